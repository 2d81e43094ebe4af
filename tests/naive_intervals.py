"""Textbook confidence sequences in plain Python, event by event. Imports nothing of ours.

An event is (bin, claim, outcome, weight).
"""

from __future__ import annotations

import math


def bound(v, rho, alpha):
    """The normal mixture's two-sided boundary at variance v."""
    return math.sqrt((v + rho) * math.log((v + rho) / (rho * alpha * alpha)))


def of_bin(events, r):
    return [(p, y, w) for bin, p, y, w in events if bin == r]


def possible(low, high, mean_p):
    """A mean outcome lies in [0, 1]."""
    return min(max(low, -mean_p), 1.0 - mean_p), min(max(high, -mean_p), 1.0 - mean_p)


def weighted(values, weights):
    return math.fsum(w * v for v, w in zip(values, weights)) / math.fsum(weights)


def normal_mixture(bin, level, around):
    """(low, high) of a bin's mean gap; None if it has no weight."""
    total = math.fsum(w for _, _, w in bin)
    if total <= 0.0:
        return None
    alpha = 1.0 - level
    rho = around / 4.0 / (2.0 * math.log(1.0 / alpha) + 3.0)
    gap = math.fsum(w * (y - p) for p, y, w in bin) / total
    radius = bound(math.fsum(w * w for _, _, w in bin) / 4.0, rho, alpha) / total
    return possible(gap - radius, gap + radius, weighted([p for p, _, _ in bin], [w for _, _, w in bin]))


def predictable_variance(bin):
    """Sum of squares of y minus its prediction: the claim moved by the mean gap before, kept in [0, 1]. Equal weights."""
    total, v = 0.0, 0.0
    for i, (p, y, _) in enumerate(bin):
        guess = min(max(p + (total / i if i else 0.0), 0.0), 1.0)
        v += (y - guess) ** 2
        total += y - p
    return v


def variance_from_sums(bin):
    """The upper bound of that which the sums allow."""
    n, x = len(bin), [y - p for p, y, _ in bin]
    mean = math.fsum(x) / n
    q = math.fsum((a - mean) ** 2 for a in x)
    return min(n, 1.0 + q + (q if q <= 1.0 else 1.0 + math.log(q)))


def empirical_bernstein(bin, level, v):
    """(low, high) of a bin's mean gap with the polynomial stitched boundary at variance v, scale c = 1."""
    n, alpha, v = len(bin), (1.0 - level) / 2.0, max(v, 1.0)
    log = 1.4 * math.log(math.log(2.0 * v)) + math.log(3.1055 / (alpha * math.log(2.0) ** 1.4))
    k1, k2 = (2**0.25 + 2**-0.25) / math.sqrt(2.0), (math.sqrt(2.0) + 1.0) / 2.0
    radius = (math.sqrt(k1 * k1 * v * log + k2 * k2 * log * log) + k2 * log) / n
    gap = math.fsum(y - p for p, y, _ in bin) / n
    return possible(gap - radius, gap + radius, math.fsum(p for p, _, _ in bin) / n)


def bins_of(events, n_bins):
    """(weight, variance, |summed gap|, furthest possible gap) of each bin."""
    out = []
    for r in range(n_bins):
        bin = of_bin(events, r)
        weight = math.fsum(w for _, _, w in bin)
        size = abs(math.fsum(w * y for _, y, w in bin) - math.fsum(w * p for p, _, w in bin))
        mean = weighted([p for p, _, _ in bin], [w for _, _, w in bin]) if weight > 0 else 0.5
        out.append((weight, math.fsum(w * w for _, _, w in bin) / 4.0, size, max(mean, 1.0 - mean)))
    return out


def allowed(bins, level, rho):
    """C of the ellipsoid."""
    return 2.0 * math.log(1.0 / (1.0 - level)) + math.fsum(math.log((v + rho) / rho) for _, v, _, _ in bins)


def least_k1(bins, level, rho):
    """By bisection on t: each |S| falls by t (v + rho), to no less than 0, until the ellipsoid is used up."""
    c, total = allowed(bins, level, rho), math.fsum(r[0] for r in bins)
    spent = lambda t: math.fsum(min(s, t * (v + rho)) ** 2 / (v + rho) for _, v, s, _ in bins)  # noqa: E731
    low, high = 0.0, max(s / (v + rho) for _, v, s, _ in bins)
    if spent(high) <= c:
        return 0.0
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (low, middle) if spent(middle) > c else (middle, high)
    return math.fsum(max(s - low * (v + rho), 0.0) for _, v, s, _ in bins) / total


def by_precision(bins, rho):
    return sorted((r for r in bins if r[0] > 0), key=lambda r: (r[1] + rho) / r[0])


def most_k1(bins, level, rho):
    c, total, best = allowed(bins, level, rho), math.fsum(r[0] for r in bins), math.inf
    bins = by_precision(bins, rho)
    for k in range(len(bins) + 1):
        known, others = bins[:k], bins[k:]
        room = math.sqrt(c * math.fsum(v + rho for _, v, _, _ in known))
        best = min(best, math.fsum(r[2] for r in known) + room + math.fsum(w * far for w, _, _, far in others))
    return best / total


def l2(bins, level, rho):
    """(least, most) of the root of K2 by the best number of bins that are told best."""
    c, total, low, high = allowed(bins, level, rho), math.fsum(r[0] for r in bins), 0.0, math.inf
    bins = by_precision(bins, rho)
    for k in range(len(bins) + 1):
        known, others = bins[:k], bins[k:]
        seen = math.sqrt(math.fsum(s * s / w for w, _, s, _ in known) / total)
        room = math.sqrt(c / total * max((v + rho) / w for w, v, _, _ in known)) if known else 0.0
        low = max(low, seen - room)
        high = min(high, math.sqrt((seen + room) ** 2 + math.fsum(w * far * far for w, _, _, far in others) / total))
    return low, high


def anytime(events, n_bins, level, around):
    """((low, high) of K1, (low, high) of the root of K2, p-value); None if nothing has weight."""
    bins, rho = bins_of(events, n_bins), around / 4.0
    if math.fsum(r[0] for r in bins) <= 0.0:
        return None
    least, (low, high) = least_k1(bins, level, rho), l2(bins, level, rho)
    most = min(most_k1(bins, level, rho), high)
    evidence = math.fsum(s * s / (v + rho) - math.log((v + rho) / rho) for _, v, s, _ in bins) / 2.0
    return (least, min(most, 1.0)), (max(least, low), min(high, 1.0)), math.exp(-max(evidence, 0.0))


def plain_k1(bins, level, rho):
    """The ball's half-width as the theory says it, all bins at once."""
    used = [r for r in bins if r[0] > 0]
    return math.sqrt(allowed(bins, level, rho) * math.fsum(v + rho for _, v, _, _ in used)) / math.fsum(
        r[0] for r in used
    )
