"""Multivalid forecasts: right given the forecast itself and given every declared group, at once, whatever the data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, check_number, check_whole
from streamcal.binning import uniform_bin
from streamcal.claims import check_level
from streamcal.limits import HEAVIEST, LARGEST, unit
from streamcal.recalibrate.forecasting import uniform
from streamcal.recalibrate.grouped import HIGH, LEVEL, LOW, MOST_BUCKETS, N_BINS, SEED, Grouped, M, pull, take_in
from streamcal.recalibrate.online import allowed, online
from streamcal.recalibrate.quantile_tracking import COUNT, OnlineQuantile, real

# 1 / (COARSE m) parts the two thresholds of a mixture of quantiles: scores within that band have no bound, so it is thin.
# 1 / (FINE m) parts those of means, where the bound pays T / (FINE m) for it.
COARSE, FINE = 1e3, 1e9
OWN = -1  # the raw prediction itself is played, not the edge of a bucket


@inlined
def lowest_change(buf: Array, members: int) -> tuple[int, float]:
    """(i, chance): play the edge i / m, or with this chance a little below it, so that the pulls of both buckets cancel.

    The first neighbours whose pulls differ in sign; without any the upper end, or the lower one if all pull down.
    """
    m = int(buf[M])
    below = pull(buf, 0, members, -1)  # row -1: the rows of the raw prediction play no part
    for i in range(1, m):
        here = pull(buf, i, members, -1)
        if (below > 0.0) != (here > 0.0):
            return i, abs(here) / (abs(here) + abs(below))
        below = here
    return (0, 0.0) if below > 0.0 else (m, 0.0)


@inlined
def nearest_change(buf: Array, p: float, members: int, bin: int) -> tuple[int, float]:
    """The same, the neighbours looked for from the bucket of p on: down if it pulls down, up if up. OWN if it does not pull."""
    m = int(buf[M])
    i = bucket_of(p, m)
    here = pull(buf, i, members, bin)
    # Nothing speaks against p: it keeps what it knows. So it is before any event.
    if here == 0.0:
        return OWN, 0.0
    way = -1 if here > 0.0 else 1
    while 0 <= i + way < m:
        i += way
        there = pull(buf, i, members, bin)
        if (there >= 0.0) if here < 0.0 else (there <= 0.0):
            upper, lower = (there, here) if way > 0 else (here, there)
            return max(i, i - way), abs(upper) / (abs(upper) + abs(lower))
        here = there
    return (0, 0.0) if way < 0 else (m, 0.0)


@inlined
def bucket_of(p: float, m: int) -> int:
    """Bucket of a forecast in [0, 1]: i holds i / m, but not what is played a little below (i + 1) / m."""
    # Half the distance of the two thresholds is added, so that i / m that came out a rounding below i stays in bucket i.
    return min(int(p * m + 0.5 / FINE), m - 1)


@inlined
def raw_bin(buf: Array, p: float) -> int:
    """Bin of the raw prediction, of N_BINS of equal width."""
    bins = buf[N_BINS]
    return int(uniform_bin(p, bins, 0.0, 1.0, 0.0, bins, bins - 1.0))


@inlined
def _edge(m: int, i: int, below: int, fineness: float) -> float:
    return i / m - below / (fineness * m)


@inlined
def _between(buf: Array, share: float) -> float:
    return float(share * buf[HIGH] + (1.0 - share) * buf[LOW])


@inlined
def _quantile_event(buf: Array, v: float, y: float, w: float, members: int) -> float:
    m = int(buf[M])
    i, chance = lowest_change(buf, members)
    below = 1 if uniform(buf[SEED], buf[COUNT]) < chance else 0  # a draw: the same if asked twice
    width = _between(buf, _edge(m, i, below, COARSE))
    q = v + width
    if w > 0.0:
        excess = (1.0 - buf[LEVEL]) - (1.0 if y > q else 0.0)
        take_in(buf, min(i - below, m - 1), members, -1, excess, w, width)
    return q


@inlined
def _mean_event(buf: Array, p: float, y: float, w: float, members: int) -> float:
    m, bin = int(buf[M]), raw_bin(buf, p)
    i, chance = nearest_change(buf, p, members, bin)
    below = 1 if uniform(buf[SEED], buf[COUNT]) < chance else 0  # a draw: the same if asked twice
    q = p if i == OWN else _edge(m, i, below, FINE)
    if w > 0.0:
        # What was played just below an edge belongs to the bucket below it.
        bucket = bucket_of(p, m) if i == OWN else min(i - below, m - 1)
        take_in(buf, bucket, members, bin, q - y, w, q)
    return q


@brief
def quantile_learn(buf: Array, v: float, y: float, w: float, groups: float) -> float:
    """Predict, and learn if w > 0: see :class:`MultivalidQuantile`; nan if the event is not allowed."""
    fine = real(v) and real(y) and 0.0 <= w <= HEAVIEST
    return _quantile_event(buf, v, y, w, int(groups)) if fine else np.nan


@kernel
def _quantile_run(buf: Array, v: Array, y: Array, w: Array, groups: Array, out: Array) -> None:
    for i in range(v.shape[0]):
        out[i] = _quantile_event(buf, v[i], y[i], w[i], int(groups[i]))


@brief
def mean_learn(buf: Array, p: float, y: float, w: float, groups: float) -> float:
    """Predict, and learn if w > 0: see :class:`MultivalidMean`; nan if the event is not allowed."""
    p = unit(p)
    return _mean_event(buf, p, y, w, int(groups)) if p == p and allowed(y, w) else np.nan


@kernel
def _mean_run(buf: Array, p: Array, y: Array, w: Array, groups: Array, out: Array) -> None:
    for i in range(p.shape[0]):
        out[i] = _mean_event(buf, p[i], y[i], w[i], int(groups[i]))


def _pairs(chance: float, above: float, below: float) -> list[tuple[float, float]]:
    """(forecast, probability) of those that can be played."""
    return [pair for pair in ((below, chance), (above, 1.0 - chance)) if pair[1] > 0.0]


@online("multivalid-quantile")
class MultivalidQuantile(Grouped, OnlineQuantile):
    r"""A base forecast v of the ``level``-quantile plus a threshold, covering as often as it should given the threshold and
    given each of several groups, which may overlap: MVP.

    The threshold lies in [low, high], here scaled to [0, 1] and cut into m buckets [i / m, (i + 1) / m). For bucket i and
    group g: N = sum of w and V = sum of w (alpha - err) over the events of the group whose threshold lay in the bucket; alpha
    = 1 - level, err = 1[y > forecast]; F(N) = sqrt(N + 1) log2(N + 2). For an event, summed over its groups:

    .. math:: C_i = \sum_g \frac{e^{V / (2 F)} - e^{-V / (2 F)}}{F} \, e^{0.105 / \log_2(N + 2)}

    (The last factor, of 1 to 1.11, is not in the paper; it makes the bound below provable.) The first neighbours i - 1, i of
    which just one has C > 0 are mixed: the threshold is i / m - 1 / (1000 m), in bucket i - 1, with probability abs(C_i) /
    (abs(C_i) + abs(C_{i-1})), else i / m. Without such neighbours it is high if no C > 0 (so before any event), else low.
    Exponents are held within 300. v and y are any numbers in [-1e100, 1e100]. A weight w is one draw that counts w times.

    - ``level``: of the quantile, in (0, 1).
    - ``m``: buckets, 1..1000; about 40.
    - ``groups``: how many there are, 1..52; an event names its own.
    - ``seed``: 0..2^53; a draw is a function of it and of the number of events learned.
    - ``low`` < ``high``: in units of y, in [-1e100, 1e100], such that hardly a score y - v lies outside.

    Guarantee, for events of weight 1 whose groups and outcomes depend on the past and on :meth:`distribution` in any way, but
    not on the draw; with scores in (low, high], none of them in the band of (high - low) / (1000 m) below an edge, its edge
    included. With probability at least 1 - p over the draws, at all times, for all m buckets and G groups:

    .. math:: |\mathrm{coverage} - \mathrm{level}| = \frac{|V|}{N} \le 2 \ln\left(\frac{2.6\, m\, G}{p}\right) \frac{F(N)}{N}

    (The sum over all i and g of 2 cosh(V / (2 F)), with factors in 1..1.28, never grows in expectation.) Measured (m = 40,
    all events and a group of another scale, T = 20,000, 20 seeds): coverage within 0.008 of the level, within 0.022 where the
    scales drift by 60 %; abs(coverage - level) sqrt(N) at most 2.0 in buckets of a group with N >= 200, 3.2 with drift; the
    mean absolute gap of a bucket is 0.038, 0.008, 0.001 at T = 2,000, 20,000, 200,000, with drift 0.058, 0.025, 0.008.

    NOT guaranteed: coverage above what ``high`` allows or below what ``low`` does. Anything for scores in the band: whoever puts
    every score on the upper of two mixed thresholds ruins the buckets; many equal scores on an edge do so in part. Anything for
    what was forecast if labels come late: each counts in the bucket that is played when it comes. Coverage given the exact
    threshold instead of its bucket. A small width: read ``width`` beside ``coverage`` in :meth:`report`.

    O(m x groups of the event) per event, with two exponentials per group only to learn. State: 11 + groups (3 m + 4) numbers.
    Source: Bastani, Gupta, Jung, Noarov, Ramalingam, Roth 2022; Gupta, Jung, Noarov, Pai, Roth 2022.

    >>> map = MultivalidQuantile(0.8, m=20, groups=2)
    >>> map.predict_one(groups=[0])
    1.0
    >>> for k in range(2000):
    ...     map.learn_one(0.0, k % 101 / 101 * (0.25 if k % 2 else 1.0), groups=[k % 2])
    >>> [round(map.predict_one(groups=[g]), 1) for g in (0, 1)]
    [0.8, 0.2]
    """

    sign = 1.0
    _learn, _run = quantile_learn, _quantile_run

    def __init__(
        self, level: float = 0.9, m: int = 40, groups: int = 1, seed: int = 0, low: float = 0.0, high: float = 1.0
    ) -> None:
        self.level = check_level(level)
        self.low, self.high = (check_number(n, x, -LARGEST, LARGEST) for n, x in (("low", low), ("high", high)))
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got {low!r} and {high!r}")
        self._start(m, groups, seed, 0, (self.level, self.low, self.high))

    def predict_one(self, v: float = 0.0, groups: Iterable[int] | None = None) -> float:
        """The base forecast plus a threshold; see :meth:`Grouped.predict_one`."""
        return super().predict_one(v, groups)

    def distribution(self, v: float = 0.0, groups: Iterable[int] | None = None) -> list[tuple[float, float]]:
        """What a forecast is drawn from: one or two (forecast, probability). All that the guarantee lets an adversary see."""
        members = self._members(groups)
        self._served(v, members)  # raises where v is not allowed
        i, chance = lowest_change(self._buf, int(members))
        above, below = (float(v) + _between(self._buf, _edge(self.m, i, b, COARSE)) for b in (0, 1))
        return _pairs(chance, above, below)

    def _outcome(self, gap: float, widths: dict[str, float]) -> dict[str, Any]:
        return {"coverage": self.level + gap, "nominal": self.level, "width": widths}


@online("multivalid-mean")
class MultivalidMean(Grouped):
    r"""Probabilities (or means in [0, 1]) that are right on average given the forecast, given each of several groups, which
    may overlap, and given the bin of the raw prediction.

    As in :class:`MultivalidQuantile`, but the forecast itself has the buckets, and V = sum of w (forecast - y). Each of
    ``n_bins`` bins of equal width of the raw prediction p is one more group of the event, so that what p knows is kept. The
    neighbours to be mixed are looked for from the bucket of p on: downwards if its C > 0, upwards if C < 0, until C changes
    its sign; 0 or 1 if it never does. Where C = 0 in the bucket of p, p comes back as it is: so before any event.

    - ``m``: buckets of the forecast, 1..1000.
    - ``groups``, ``seed``: as there.
    - ``n_bins``: of the raw prediction, 1..1000.

    Guarantee: that of MultivalidQuantile for the mean gaps, with G = groups + n_bins, for any outcomes in [0, 1] that do not
    depend on the draw. There is no band: the two forecasts of a mixture differ by 1 / (10^9 m) only, which adds T / (10^9 m)
    to the logarithm's term after T events. Measured (m = 40, all events and a group with other odds, T = 20,000, 10 seeds):
    abs(mean gap) sqrt(N) at most 2.8 in buckets of a group with N >= 200, 3.4 with an abrupt shift. The Brier score of three
    p that is not calibrated fell from 0.016 .. 0.037 above the best possible one to 0.003 above it, with the shift from 0.030 to
    0.012; that of a calibrated p rose by 0.0013.

    NOT guaranteed: Brier score or log loss; that a group as a whole is right as fast as each of its buckets; a group of few
    events.

    O(buckets passed x groups of the event) per event. State: 11 + 4 groups + 3 m (groups + n_bins) numbers. Source: Gupta,
    Jung, Noarov, Pai, Roth 2022; Bastani, Gupta, Jung, Noarov, Ramalingam, Roth 2022.

    >>> map = MultivalidMean()
    >>> map.predict_one(0.9)
    0.9
    >>> for k in range(3000):
    ...     map.learn_one(0.9, k % 10 < 7)
    >>> round(map.predict_one(0.9), 2)
    0.7
    """

    sign = -1.0
    _learn, _run = mean_learn, _mean_run

    def __init__(self, m: int = 40, groups: int = 1, seed: int = 0, n_bins: int = 10) -> None:
        self.n_bins = check_whole("n_bins", n_bins, 1, MOST_BUCKETS)
        self._start(m, groups, seed, self.n_bins, (0.0, 0.0, 1.0))

    def distribution(self, p: float, groups: Iterable[int] | None = None) -> list[tuple[float, float]]:
        """What a forecast is drawn from: one or two (forecast, probability). All that the guarantee lets an adversary see."""
        members = self._members(groups)
        self._served(p, members)  # raises where p is not allowed
        p = min(max(float(p), 0.0), 1.0)
        i, chance = nearest_change(self._buf, p, int(members), raw_bin(self._buf, p))
        above, below = (_edge(self.m, i, b, FINE) for b in (0, 1))
        return [(p, 1.0)] if i == OWN else _pairs(chance, above, below)

    def _outcome(self, gap: float, widths: dict[str, float]) -> dict[str, Any]:
        return {"gap": gap, "forecast": widths}
