"""PITs, quantiles and bets against them as a textbook would write them: plain Python, slow, and nothing of streamcal."""

from __future__ import annotations

import itertools
import math

SHAPES = [1 + 0.13 * m for m in (-3, -2, -1, 0, 1, 3, 5)]


def log_power(x: float, power: float) -> float:
    """log of x^power; where that grows without bound, as at 1e-9."""
    if power < 0:
        x = max(x, 1e-9)
    if power == 0:
        return 0.0
    return power * math.log(x) if x > 0 else -math.inf


def log_beta(u: float, a: float, b: float) -> float:
    """log density of Beta(a, b)."""
    factor = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return factor + log_power(u, a - 1) + log_power(1 - u, b - 1)


def pit_bets():
    """(a, b, weight): all pairs but (1, 1); a = b and those that mirror it weigh double."""
    bets = []
    for i, a in enumerate(SHAPES):
        for j, b in enumerate(SHAPES):
            if (i, j) != (3, 3):
                bets.append((a, b, 2 if i == j or i + j == 6 else 1))
    total = sum(w for _, _, w in bets)
    return [(a, b, w / total) for a, b, w in bets]


def pit_logs(us):
    """(weights, list of log factors per event) of each bet."""
    bets = pit_bets()
    return [w for _, _, w in bets], [[log_beta(u, a, b) for u in us] for a, b, _ in bets]


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def logit(q: float) -> float:
    return math.log(q / (1 - q))


def cell(v, y) -> int:
    """How many quantiles the outcome lies above."""
    return sum(y > x for x in v)


def interval_cell(v, y) -> int:
    """One level only: 0 covered, 1 not."""
    return 0 if v[0] <= y <= v[1] else 1


def coverage_logs(levels, cells):
    """(weights, list of log factors per event) of each bet, as likelihood ratios of the cells' probabilities."""
    k = len(levels)
    true = []
    if k > 1:
        lines = [(a, 0.0) for a in (0.5, 0.7, 0.85, 1.2, 1.5, 2.0)]
        lines += [(1.0, b) for b in (-1.0, -0.5, -0.2, 0.2, 0.5, 1.0)]
        true = [[sigmoid(a * logit(q) + b) for q in levels] for a, b in lines]
    claimed = probabilities(levels)
    table = [[p / c for p, c in zip(probabilities(q), claimed)] for q in true]
    weights = [0.5 / len(true) for _ in true]
    shifts = (-1.0, -0.3, 0.3, 1.0) if k <= 9 else (-0.5, 0.5)
    for j, q in enumerate(levels):
        for shift in shifts:
            r = sigmoid(logit(q) + shift)
            table.append([r / q if c <= j else (1 - r) / (1 - q) for c in range(k + 1)])
            weights.append((0.5 if k > 1 else 1.0) / (k * len(shifts)))
    return weights, [[math.log(row[c]) for c in cells] for row in table]


def probabilities(levels):
    edges = [0.0, *levels, 1.0]
    return [b - a for a, b in itertools.pairwise(edges)]


def products(logs):
    """For each start s the product of the factors from event s on."""
    out, total = [], 0.0
    for x in reversed(logs):
        total += x
        out.append(math.exp(total))
    return out[::-1]


def evidence(weights, logs) -> float:
    """Sum over bets and starts."""
    return math.fsum(w * math.fsum(products(x)) for w, x in zip(weights, logs))


def alarms(weights, logs, arl: float):
    """(events that alarmed, start of the run that is not over)."""
    n, start, out = len(logs[0]), 0, []
    for t in range(n):
        if evidence(weights, [x[start : t + 1] for x in logs]) >= arl:
            out.append(t)
            start = t + 1
    return out, start


def strongest(weights, logs):
    """Of the bet with the largest weighted sum: likeliest start, its likelihood ratio, mean and deviation of the start."""
    sums = [products(x) for x in logs]
    best = max(range(len(sums)), key=lambda k: weights[k] * math.fsum(sums[k]))
    stakes = sums[best]
    top = max(stakes)
    total = math.fsum(stakes)
    mean = math.fsum(s * x for s, x in enumerate(stakes)) / total
    variance = math.fsum((s - mean) ** 2 * x for s, x in enumerate(stakes)) / total
    return stakes.index(top), top, mean, math.sqrt(variance)
