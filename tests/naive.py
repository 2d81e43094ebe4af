"""The definitions, as a textbook would write them: plain Python, slow, and nothing of streamcal.

An *event* is ``(score, claim, outcome, weight)``.  *Bins* are lists of events, one list per bin.
Every function reads the full list of events each time; nothing is updated, nothing is kept.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from fractions import Fraction
from statistics import NormalDist

nan, inf = math.nan, math.inf

# ---------------------------------------------------------------------------- which bin


@functools.cache
def width_edges(m: int) -> tuple[Fraction, ...]:
    """The edges 0/m, 1/m ... m/m: each one the exact value of the float quotient."""
    return tuple(Fraction(k / m) for k in range(m + 1))


def width_bin(c: float, m: int) -> int:
    """Bin k holds (k/m, (k+1)/m], 0 itself is in bin 0; -1 when c is no probability."""
    if not 0 <= c <= 1:
        return -1
    return edge_bin(Fraction(float(c)), width_edges(m))


def edge_bin(c, edges) -> int:
    """Bin k holds (e[k], e[k+1]], e[0] itself is in bin 0; -1 outside."""
    if not edges[0] <= c <= edges[-1]:
        return -1
    return max(bisect.bisect_left(edges, c) - 1, 0)


def chunks(n: int, parts: int) -> list[int]:
    """Sizes of np.array_split: as equal as can be, the first n mod parts one larger."""
    small, larger = divmod(n, parts)
    return [small + 1] * larger + [small] * (parts - larger)


def mass_edges(values, parts: int) -> list[float]:
    """Inner edges of equal-mass bins: midpoints between chunks of the sorted sample, each once."""
    values = sorted(values)
    inner = []
    for cut in itertools.accumulate(chunks(len(values), parts)[:-1]):
        if 0 < cut < len(values):
            a, b = values[cut - 1], values[cut]
            middle = float((Fraction(a) + Fraction(b)) / 2)
            inner.append(a if middle >= b else middle)
    return sorted(set(inner))


def mass_bin(c: float, inner) -> int:
    return bisect.bisect_left(inner, c)


def split(events, bin, n_bins: int) -> list[list]:
    """Bins of events by ``bin(score)``."""
    bins = [[] for _ in range(n_bins)]
    for e in events:
        bins[bin(e[0])].append(e)
    return bins


def by_value(events) -> list[list]:
    """Bins by distinct score."""
    values = sorted({e[0] for e in events})
    return [[e for e in events if e[0] == v] for v in values]


# ---------------------------------------------------------------------------- which events


def admit(p, y, w=1.0, *, binary: bool = False):
    """``(p, y, w, clipped)`` of an admissible event of the mean claim, None of any other."""
    if p is None or y is None or w is None:
        return None
    p, y, w = float(p), float(y), float(w)
    if not (-1e-6 <= p <= 1 + 1e-6) or not (0 <= y <= 1) or not (0 <= w < inf):
        return None
    if binary and y not in (0.0, 1.0):
        return None
    return min(max(p, 0.0), 1.0), y, w, not 0 <= p <= 1


def swapped(events) -> bool:
    """Whether all predictions are 0 or 1, and some outcome is not."""
    counted = [(p, y) for p, y, w in events if w > 0]
    return all(p in (0.0, 1.0) for p, _ in counted) and any(0.0 < y < 1.0 for _, y in counted)


def tail(events: list, size: int) -> list:
    return events[-size:]


def tumbling(events: list, size: int) -> list:
    """Since the last multiple of size; a window just filled still shows."""
    return events[len(events) - ((len(events) - 1) % size + 1) :] if events else []


def fade(n: int, half_life: float) -> list[float]:
    """Weights 2^(-age / half_life) of n events, the last of age 0."""
    return [2.0 ** (-(n - 1 - i) / half_life) for i in range(n)]


def pane(t: float, width: float) -> int:
    return math.floor(t / width)


def timed(times, period: float, panes: int, lateness: float = 0.0, now: float | None = None):
    """Indices of the events inside the last panes at time ``now``, and of those that came too late."""
    width = period / panes
    kept, late, mark = [], [], -inf
    for i, t in enumerate(times):
        if t < mark - lateness:
            late.append(i)
        else:
            kept.append(i)
            mark = max(mark, t)
    if now is None:
        now = mark
    inside = [i for i in kept if pane(times[i], width) > pane(now, width) - panes]
    return inside, late


def taken_back(kept: list, gone, pane_of, newest: int, panes: int):
    """What stays of (time, event) when these are taken back, and how many of those were there: their pane has not gone."""
    left, count = list(kept), 0
    for t, event in gone:
        if pane_of(t) > newest - panes and (t, event) in left:
            left.remove((t, event))
            count += 1
    return left, count


def corrected(ring: list, event, new, seen=lambda e: e) -> bool:
    """The newest event of a ring that looks like this one becomes the new one."""
    for i in reversed(range(len(ring))):
        if seen(ring[i]) == seen(event):
            ring[i] = new
            return True
    return False


# ---------------------------------------------------------------------------- claims


def mean_events(p, y, w=1.0):
    return [(p, p, y, w)]


def quantile_events(levels, v, y, w=1.0):
    return [(v_k, q, float(y <= v_k), w) for v_k, q in zip(v, levels)]


def interval_events(lower, upper, lo, hi, y, w=1.0):
    return [(hi - lo, upper - lower, float(lo <= y <= hi), w)]


def top_label_events(probs, y, w=1.0):
    best = max(probs)
    return [(best, best, float(list(probs).index(best) == y), w)]


def marginal_events(probs, y, w=1.0):
    return [(p, p, float(k == y), w) for k, p in enumerate(probs)]


def pit_events(levels, u, w=1.0):
    return [(q, q, float(u <= q), w) for q in levels]


# ---------------------------------------------------------------------------- the eight sums


def sums(events) -> list[float]:
    """COUNT, W, WW, WP, WY, WPP, WPY, WYY of one bin."""
    f = math.fsum
    return [
        float(len(events)),
        f(w for _, _, _, w in events),
        f(w * w for _, _, _, w in events),
        f(w * c for _, c, _, w in events),
        f(w * y for _, _, y, w in events),
        f(w * c * c for _, c, _, w in events),
        f(w * c * y for _, c, y, w in events),
        f(w * y * y for _, _, y, w in events),
    ]


def weight(events) -> float:
    return math.fsum(e[3] for e in events)


def mean_claim(events) -> float:
    return math.fsum(e[3] * e[1] for e in events) / weight(events)


def mean_outcome(events) -> float:
    return math.fsum(e[3] * e[2] for e in events) / weight(events)


def gap(events) -> float:
    return math.fsum(e[3] * (e[2] - e[1]) for e in events) / weight(events)


def effective(events) -> float:
    """Effective sample size (sum w)^2 / sum w^2."""
    return weight(events) ** 2 / math.fsum(e[3] ** 2 for e in events)


def shares(bins):
    """(share of the weight, bin) of every bin that has weight."""
    total = math.fsum(weight(r) for r in bins)
    return [(weight(r) / total, r) for r in bins if weight(r) > 0]


def pooled(bins) -> list:
    return [e for r in bins for e in r]


def defined(metric):
    """nan when no weight was seen."""

    @functools.wraps(metric)
    def number(bins):
        return metric(bins) if weight(pooled(bins)) > 0 else nan

    return number


# ---------------------------------------------------------------------------- calibration errors


@defined
def k1(bins):
    return math.fsum(s * abs(gap(r)) for s, r in shares(bins))


ece = k1


@defined
def k2(bins):
    return math.fsum(s * gap(r) ** 2 for s, r in shares(bins))


@defined
def kinf(bins):
    return max(s * abs(gap(r)) for s, r in shares(bins))


@defined
def mce(bins):
    return max(abs(gap(r)) for s, r in shares(bins))


def l2_ce(bins):
    return math.sqrt(k2(bins))


def power_ce(bins, norm: float) -> float:
    """(sum of share * |gap|^norm)^(1/norm)."""
    return math.fsum(s * abs(gap(r)) ** norm for s, r in shares(bins)) ** (1 / norm)


def outcome_variance(events) -> float:
    """Variance of the outcomes in a bin: y (1 - y) at the mean y when they are 0/1."""
    centre = mean_outcome(events)
    return math.fsum(w * (y - centre) ** 2 for _, _, y, w in events) / weight(events)


def debiased_square(events) -> float:
    """gap^2 less the variance that the mean outcome has by chance; needs an effective size of two."""
    return gap(events) ** 2 - outcome_variance(events) / (effective(events) - 1)


@defined
def k2_debiased(bins):
    able = [(s, r) for s, r in shares(bins) if effective(r) >= 2]
    return math.fsum(s * debiased_square(r) for s, r in able) if able else nan


def l2_ce_debiased(bins):
    square = k2_debiased(bins)
    return square if math.isnan(square) else math.sqrt(max(square, 0.0))


def marginal_ce(bins_of_class, norm: float = 2, debias: bool = False) -> float:
    """(mean over classes of CE_k^norm)^(1/norm); signed squares are averaged, then clipped once."""
    if debias:
        powers = [k2_debiased(bins) for bins in bins_of_class]
    else:
        powers = [power_ce(bins, norm) ** norm for bins in bins_of_class]
    return max(math.fsum(powers) / len(powers), 0.0) ** (1 / norm)


q1, q2, qinf = k1, k2, kinf

# ---------------------------------------------------------------------------- scores


@defined
def brier(bins):
    events = pooled(bins)
    return math.fsum(w * (c - y) ** 2 for _, c, y, w in events) / weight(events)


@defined
def reliability_term(bins):
    return k2(bins)


@defined
def resolution(bins):
    base = mean_outcome(pooled(bins))
    return math.fsum(s * (mean_outcome(r) - base) ** 2 for s, r in shares(bins))


@defined
def uncertainty(bins):
    events = pooled(bins)
    base = mean_outcome(events)
    return math.fsum(w * (y - base) ** 2 for _, _, y, w in events) / weight(events)


@defined
def within_variance(bins):
    parts = [w * (c - mean_claim(r)) ** 2 for r in bins if weight(r) > 0 for _, c, _, w in r]
    return math.fsum(parts) / weight(pooled(bins))


@defined
def within_covariance(bins):
    parts = [2 * w * (c - mean_claim(r)) * (y - mean_outcome(r)) for r in bins if weight(r) > 0 for _, c, y, w in r]
    return math.fsum(parts) / weight(pooled(bins))


@defined
def pa_ratio(bins):
    events = pooled(bins)
    return math.fsum(w * c for _, c, _, w in events) / math.fsum(w * y for _, _, y, w in events)


@defined
def oe_ratio(bins):
    return 1 / pa_ratio(bins)


@defined
def sharpness(bins):
    events = pooled(bins)
    centre = mean_claim(events)
    return math.fsum(w * (c - centre) ** 2 for _, c, _, w in events) / weight(events)


@defined
def coverage(bins):
    return mean_outcome(pooled(bins))


def uncertain(events) -> list:
    """Without claims of 0 or 1 that came true."""
    return [e for e in events if e[1] not in (0, 1) or e[1] != e[2]]


@defined
def impossible(bins):
    """The share of the weight of events of infinite log loss."""
    events = pooled(bins)
    return math.fsum(w for _, c, y, w in events if log_loss_of(c, y) == inf) / weight(events)


@defined
def spiegelhalter_z(bins):
    """sum (y-p)(1-2p) over the square root of its variance under calibration; unit weights. Infinite for an impossible event."""
    events = uncertain(pooled(bins))
    if impossible([events]) > 0:
        return inf
    top = math.fsum((y - c) * (1 - 2 * c) for _, c, y, _ in events)
    return top / math.sqrt(math.fsum((1 - 2 * c) ** 2 * c * (1 - c) for _, c, _, _ in events))


def log_loss_of(p: float, y: float) -> float:
    """-y ln p - (1-y) ln(1-p), where 0 ln 0 = 0 and a certain miss is infinite."""
    loss = 0.0
    for share, chance in ((y, p), (1 - y, 1 - p)):
        if share > 0:
            loss += inf if chance <= 0 else -share * math.log(chance)
    return loss


@defined
def log_loss(bins):
    events = pooled(bins)
    parts = [w * log_loss_of(c, y) for _, c, y, w in events if w > 0]
    return inf if inf in parts else math.fsum(parts) / weight(events)


def entropy(p: float) -> float:
    return log_loss_of(p, p)


@defined
def normalized_entropy(bins):
    return log_loss(bins) / entropy(coverage(bins))


def pinball_of(v: float, y: float, level: float) -> float:
    return level * (y - v) if y >= v else (1 - level) * (v - y)


def logit(p: float) -> float:
    return math.log(p) - math.log1p(-p)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def calibration_intercept(bins, slope: float = 1.0) -> float:
    """The a that makes sum w (y - sigmoid(slope logit p + a)) zero, by bisection; of uncertain events, if none is impossible."""
    events = uncertain(pooled(bins))
    if impossible(bins) > 0:
        return math.nan
    lo, hi = -60.0, 60.0
    for _ in range(200):
        a = (lo + hi) / 2
        rest = math.fsum(w * (y - sigmoid(slope * logit(c) + a)) for _, c, y, w in events)
        lo, hi = (a, hi) if rest > 0 else (lo, a)
    return (lo + hi) / 2


def calibration_slope(bins) -> float:
    """The b of the logistic fit sigmoid(b logit p + a): its score sum w logit(p) (y - ...) is zero. Events as above."""
    events = uncertain(pooled(bins))
    if impossible(bins) > 0:
        return math.nan
    lo, hi = -30.0, 30.0
    for _ in range(100):
        b = (lo + hi) / 2
        a = calibration_intercept(bins, b)
        rest = math.fsum(w * logit(c) * (y - sigmoid(b * logit(c) + a)) for _, c, y, w in events)
        lo, hi = (b, hi) if rest > 0 else (lo, b)
    return (lo + hi) / 2


# ---------------------------------------------------------------------------- errors of numbers


def wilson(share: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a proportion seen in n (effective) trials."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def bin_error(r, part: float) -> float:
    """Squared standard error of the gap of one bin: the larger of what the outcomes show and what the claims say."""
    n, g = effective(r), gap(r)
    shown = math.fsum(w * (y - c - g) ** 2 for _, c, y, w in r) / weight(r) * n / (n - 1) if n > 1 + 1e-9 else 0.0
    said = part * math.fsum(w * c * (1 - c) for _, c, _, w in r) / weight(r)
    return max(shown, said) / n


def bernoulli_part(bins) -> float:
    """How much of the variance of 0/1 outcomes the outcomes have, within bins: 1 if all are 0 or 1."""
    of, most = 0.25, 0.25
    for r in bins:
        if weight(r) > 0:
            m = mean_outcome(r)
            of += effective(r) * math.fsum(w * (y - m) ** 2 for _, _, y, w in r) / weight(r)
            most += effective(r) * m * (1 - m)
    return min(of / most, 1.0)


def k1_interval(bins, level: float = 0.95) -> tuple[float, float]:
    """As the formulas in streamcal.intervals.k1_interval say, bin by bin."""
    if weight(pooled(bins)) == 0 or effective(pooled(bins)) < 10:
        return nan, nan
    z, z2 = NormalDist().inv_cdf((1 + level) / 2), NormalDist().inv_cdf(1 - (1 - level) / 4)
    n, part = effective(pooled(bins)), bernoulli_part(bins)
    seen = [(a, gap(r), bin_error(r, part), effective(r)) for a, r in shares(bins)]
    variance = math.fsum(a * a * v for a, _, v, _ in seen)
    excess = math.fsum(
        a * math.sqrt(4 * v / math.pi) * (1 + 0.5 / k) * math.exp(-g * g / (2 * v)) for a, g, v, k in seen if v > 0
    )
    size = math.fsum(a * abs(g) for a, g, _, _ in seen)
    low = max(
        size - excess - z * math.sqrt(1.65 * variance),
        abs(math.fsum(a * g for a, g, _, _ in seen)) - z2 * math.sqrt(variance),
    )
    few = n / (2 - n / len(pooled(bins)))  # unequal weights: fewer still
    high = size + z * math.sqrt(variance + z * z / (4 * few * few)) + z * z / (2 * few)
    return min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)


def k2_error(bins) -> float:
    """Standard error of the debiased K2, unit weights: v is the sample variance of y - p in a bin."""
    total = 0.0
    for s, r in shares(bins):
        n = len(r)
        if n < 2:
            continue
        x = [y - c for _, c, y, _ in r]
        g = math.fsum(x) / n
        v = math.fsum((d - g) ** 2 for d in x) / (n - 1)
        total += s * s * (2 * v * v / (n * (n - 1)) + 4 * max(g * g - v / n, 0.0) * v / n)
    return math.sqrt(total)


def mixture(forecasts, outcomes, share=0.0):
    """Bayes mixture of K forecasts a step in log loss, with fixed share: the forecasts that it makes."""
    k = len(forecasts[0])
    v, out = [1.0 / k] * k, []
    for bin, y in zip(forecasts, outcomes):
        inner = [min(max(q, 1e-15), 1.0 - 1e-15) for q in bin]
        out.append(sum(a * q for a, q in zip(v, inner)) / sum(v))
        v = [a * q**y * (1.0 - q) ** (1.0 - y) for a, q in zip(v, inner)]
        v = [(1.0 - share) * a / sum(v) + share / k for a in v]
    return out
