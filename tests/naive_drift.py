"""Detectors as a textbook would write them: plain Python, logarithms, every start of every bet, and nothing of streamcal."""

from __future__ import annotations

import math

inf = math.inf
SLOPES = (1 / 3, 0.5, 2 / 3, 0.8, 1.25, 1.5, 2.0)
SHIFTS = (-1.0, -0.5, -0.2, 0.2, 0.5, 1.0)
STAKES = (-1.0, -0.4, 0.4, 1.0)
BINS = 10
LINE_SHARE = 0.7


def log(x: float) -> float:
    return math.log(x) if x > 0 else -inf


def log_sum(terms) -> float:
    """log of the sum of exp(term), without ever leaving logarithms."""
    terms = list(terms)
    most = max(terms, default=-inf)
    if most == -inf:
        return -inf
    if most == inf:
        return inf
    return most + math.log(math.fsum(math.exp(t - most) for t in terms))


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def bin_of(p: float, bins: int) -> int:
    """Bin m holds (m / bins, (m + 1) / bins], 0 is in bin 0."""
    return next(m for m in range(bins) if p <= (m + 1) / bins)


def bets(slopes=SLOPES, shifts=SHIFTS, stakes=STAKES, bins=BINS, line_share=LINE_SHARE):
    """All bets: (weight, kind, numbers)."""
    both = 2 if slopes and shifts else 1
    out = [(line_share / both / len(slopes), "line", (a, 0.0)) for a in slopes]
    out += [(line_share / both / len(shifts), "line", (1.0, b)) for b in shifts]
    return out + [((1 - line_share) / bins / len(stakes), "bin", (r, s)) for r in range(bins) for s in stakes]


def stake(kind, numbers, p: float) -> float:
    """The a of a bet 1 + a (y - p)."""
    if kind == "bin":
        return numbers[1]
    pc = min(max(p, 1e-9), 1 - 1e-9)
    z = numbers[0] * math.log(pc / (1 - pc)) + numbers[1]
    return sigmoid(z) / pc - sigmoid(-z) / (1 - pc)  # (q - p) / (p (1 - p)) without the cancellation


def start(kind, numbers, p: float, arl: float, tolerance: float = 0.0) -> float:
    """What is laid on a bet before an event: weighed by what it wins or loses on average where it is fair."""
    a = stake(kind, numbers, p)
    m = min(p + tolerance, 1.0) if a > 0 else max(p - tolerance, 0.0)
    return min(1.0, max(arl, 1000) / 20 * m * (1 - m) * max(abs(a), 1.0))


def log_factor(kind, numbers, p: float, y: float, bins: int = BINS, tolerance: float = 0.0) -> float:
    """log of what a bet multiplies its stake by."""
    if kind == "bin":
        bin, a = numbers
        if bin_of(p, bins) != bin:
            return 0.0
    else:
        slope, shift = numbers
        pc = min(max(p, 1e-9), 1 - 1e-9)
        z = slope * math.log(pc / (1 - pc)) + shift
        q, not_q = sigmoid(z), sigmoid(-z)
        if tolerance == 0:
            return log(max(y * q / pc + (1 - y) * not_q / (1 - pc) + stake(kind, numbers, p) * (pc - p), 0.0))
        a = stake(kind, numbers, p)
    if tolerance:
        a = min(a, 1 / (p + tolerance)) if a > 0 else max(a, -1 / (1 - p + tolerance))
    return log(1 + a * (y - p) - abs(a) * tolerance)


def impossible(p: float, y: float, tolerance: float) -> bool:
    return tolerance == 0 and ((p == 0 and y > 0) or (p == 1 and y < 1))


def log_esr(events, tolerance: float = 0.0, arl: float = 20_000, **which) -> list[float]:
    """log of the statistic after each event: sum over bets and starts of weight * what was laid * product of factors since."""
    mixture, bins = bets(**which), which.get("bins", BINS)
    logs = [-inf] * len(mixture)
    out = []
    for p, y in events:
        for k, (_, kind, numbers) in enumerate(mixture):
            laid = log(start(kind, numbers, p, arl, tolerance))
            logs[k] = log_sum([logs[k], laid]) + log_factor(kind, numbers, p, y, bins, tolerance)
        total = log_sum(log(w) + x for (w, _, _), x in zip(mixture, logs))
        out.append(inf if impossible(p, y, tolerance) else total)
    return out


def products_of_starts(events, kind, numbers, bins: int = BINS, tolerance: float = 0.0) -> list[float]:
    """log of the product of the factors from each start (1, 2, ...) to the end."""
    factors = [log_factor(kind, numbers, p, y, bins, tolerance) for p, y in events]
    return [math.fsum(factors[s:]) for s in range(len(factors))]


def run(events, arl: float, tolerance: float = 0.0, **which) -> list[int]:
    """Indices of the alarms; each begins everything anew."""
    alarms, first = [], 0
    while True:
        value = log_esr(events[first:], tolerance, arl, **which)
        at = next((i for i, x in enumerate(value) if x >= math.log(arl)), None)
        if at is None:
            return alarms
        alarms.append(first + at)
        first += at + 1


def log_wealth(events, tolerance: float = 0.0, **which) -> list[float]:
    """log of the wealth of the test after each event: likelihood bets, plus the product over bins of their mean bets."""
    bins, stakes = which.get("bins", BINS), which.get("stakes", STAKES)
    share = which.get("line_share", LINE_SHARE)
    lines = [(w, numbers) for w, kind, numbers in bets(**which) if kind == "line"]
    of_lines = [log(w) for w, _ in lines]
    of_bins = [[-math.log(len(stakes))] * len(stakes) for _ in range(bins)]
    out, never = [], False
    for p, y in events:
        of_lines = [x + log_factor("line", n, p, y, bins, tolerance) for x, (_, n) in zip(of_lines, lines)]
        r = bin_of(p, bins)
        of_bins[r] = [x + log_factor("bin", (r, s), p, y, bins, tolerance) for x, s in zip(of_bins[r], stakes)]
        never = never or impossible(p, y, tolerance)
        total = log_sum([log_sum(of_lines), log(1 - share) + sum(log_sum(x) for x in of_bins)])
        out.append(inf if never else total)
    return out


def e_bh(e_values, alpha: float) -> list[int]:
    """e-Benjamini-Hochberg: the k largest, for the largest k with k-th largest >= number / (alpha * k)."""
    order = sorted(range(len(e_values)), key=lambda i: -e_values[i])
    hits = [k for k, i in enumerate(order, 1) if e_values[i] >= len(e_values) / (alpha * k)]
    return sorted(order[: max(hits, default=0)])
