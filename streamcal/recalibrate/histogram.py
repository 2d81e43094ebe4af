"""Histogram binning, batch and online: every bin of scores is mapped to the observed share of its events."""

from __future__ import annotations

import numpy as np

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, Ints, check_whole
from streamcal.binning import Edges, EqualWidth, bin_of, mass_edges, midpoint
from streamcal.claims import Mean
from streamcal.limits import unit
from streamcal.recalibrate.online import allowed, online
from streamcal.recalibrate.recalibrator import Recalibrator, are_steps, events_of, recalibrator
from streamcal.recalibrate.windowed import Windowed, check_prior, checked_window, is_empty, scale_of, take_in
from streamcal.snapshot import Snapshot
from streamcal.tally import CELLS, WY, W
from streamcal.windows import Cumulative, Window

BINNINGS = ("uniform-mass", "equal-width")
# Fewer scores than LARGE are sorted in milliseconds. BUCKETS fit the second cache (128 kB), a TABLE the first (16 kB).
LARGE, BUCKETS, TABLE = 1 << 16, 1 << 14, 1 << 11
LARGEST = 1e300  # of a factor from scores to cells, which must stay finite
ROUNDING = 1e-12  # a mean claim so little above an edge is one on the edge, but for its sums
OWN = 2  # numbers behind the window's in the online one: the window's kind, the prior


@kernel
def _weigh(scores: Array, w: Array, low: float, scale: float, weight: Array, least: Array) -> None:
    """Weight and least score of each bucket; the bucket of a score never falls as the score rises."""
    last = weight.shape[0] - 1
    for i in range(scores.shape[0]):
        b = min(int((scores[i] - low) * scale), last)  # the largest score lies on the upper end of the last
        weight[b] += w[i]
        least[b] = min(least[b], scores[i])


@kernel
def _members(scores: Array, w: Array, low: float, scale: float, wanted: Array, values: Array, weights: Array) -> int:
    """Write the scores of the wanted buckets and their weights; returns how many."""
    last, n = wanted.shape[0] - 1, 0
    for i in range(scores.shape[0]):
        if wanted[min(int((scores[i] - low) * scale), last)] > 0.0:
            values[n], weights[n] = scores[i], w[i]
            n += 1
    return n


def condensed(scores: Array, w: Array, n_bins: int) -> tuple[Array, Array]:
    """A small weighted sample with the same uniform-mass edges, bit for bit: selection instead of a sort.

    The sample is put into BUCKETS equal widths. A bucket in which no edge can lie becomes one score with its weight. Small
    samples and fractional weights (whose sums would round in another order) come back as they are.
    """
    low = float(scores.min())
    width = float(scores.max()) - low
    if scores.size < LARGE or not BUCKETS / LARGEST < width < np.inf or not (w == np.floor(w)).all():
        return scores, w
    weight, least, wanted = np.zeros(BUCKETS), np.full(BUCKETS, np.inf), np.zeros(BUCKETS)
    _weigh(scores, w, low, BUCKETS / width, weight, least)
    occupied = np.flatnonzero(weight)
    place = np.arange(occupied.size, dtype=np.float64)
    cuts = mass_edges(place, n_bins, weight[occupied], (-1.0, float(occupied.size)))[1:-1]  # k, or k + 1/2: between
    wanted[occupied[np.concatenate([np.floor(cuts), np.ceil(cuts)]).astype(np.int64)]] = 1.0
    values, weights = np.empty(scores.size), np.empty(scores.size)
    n = _members(scores, w, low, BUCKETS / width, wanted, values, weights)
    rest = occupied[wanted[occupied] == 0.0]
    return np.concatenate([values[:n], least[rest]]), np.concatenate([weights[:n], weight[rest]])


def uniform_mass_edges(scores: Array, w: Array, n_bins: int, ends: tuple[float, float] = (0.0, 1.0)) -> Array:
    """Edges of bins of equal mass (see :func:`streamcal.binning.mass_edges`) of a sample or a condensed one."""
    return mass_edges(scores, n_bins, None if bool((w == 1.0).all()) else w, ends)


@kernel
def _bins_by_table(inner: Array, low: float, scale: float, scores: Array, before: Ints, out: Ints) -> None:
    """Number of inner edges below each score. ``before[b]`` says how many lie in lower cells, so few are left to compare."""
    last = before.shape[0] - 2
    for k in range(inner.shape[0]):
        before[int(min(max((inner[k] - low) * scale, 0.0), last)) + 1] += 1
    for b in range(last + 1):
        before[b + 1] += before[b]
    for i in range(scores.shape[0]):
        x = scores[i]
        b = int(min(max((x - low) * scale, 0.0), last))
        first, end = before[b], before[b + 1]
        while first < end:
            middle = (first + end) >> 1
            if x <= inner[middle]:
                end = middle
            else:
                first = middle + 1
        out[i] = first


def bins_within(edges: Array, scores: Array) -> Ints:
    """``Edges(edges).bins(scores)`` for scores within the edges: the cell of an even table narrows the bisection down."""
    inner = edges[1:-1].copy()  # the kernel wants it contiguous
    width = inner[-1] - inner[0] if inner.size > 1 else 0.0
    if not TABLE / LARGEST < width < np.inf:
        return Edges(edges).bins(scores)
    out = np.empty(scores.size, np.int64)
    _bins_by_table(inner, inner[0], TABLE / width, scores, np.zeros(TABLE + 1, np.int64), out)
    return out


def bin_means(edges: Array, scores: Array, values: Array, w: Array) -> tuple[Array, Array]:
    """(weight, mean of ``values``) of each bin of ``edges``; the mean is nan in an empty bin."""
    bins = bins_within(edges, scores)
    weight = np.bincount(bins, w, edges.size - 1).astype(np.float64)
    total = np.bincount(bins, w * values, edges.size - 1).astype(np.float64)
    return weight, total / np.where(weight > 0, weight, np.nan)


def off_scores(edges: Array, scores: Array) -> Array:
    """The same bins without an edge on a score: such an edge moves half way to the next score, or goes if there is none.

    For mean claims of a window, which are off by rounding: a score on an edge would fall to either side.
    """
    values = np.unique(scores)
    above = np.searchsorted(values, edges[1:-1], "right")
    inner, above = edges[1:-1][above < values.size], above[above < values.size]
    low, high = values[above - 1], values[above]
    inner = np.where(low == inner, midpoint(low, high), inner)
    return np.concatenate([edges[:1], np.unique(inner), edges[-1:]])


@recalibrator("histogram")
class HistogramBinning(Recalibrator):
    r"""Mean outcome of the bin that a score falls into.

    .. math:: m(p) = \bar y_{r(p)}, \quad \bar y_r = \frac{\sum_{i: r(p_i) = r} w_i y_i}{\sum_{i: r(p_i) = r} w_i}

    ``binning="uniform-mass"`` (default) learns edges that part the sample into ``n_bins`` bins of equal mass, a weight
    being that many copies; tied scores are never split, so there can be fewer bins. ``"equal-width"`` takes edges
    m / n_bins. An empty bin (equal widths without events, or left beside a tied score) maps to its midpoint.

    The squared calibration error of the map grows like n_bins / n, since each bin must learn its own level;
    :class:`ScalingBinning` does not pay that price. From a snapshot each bin of the window counts at its mean claim: exact
    when each bin lies in one of these bins. Measured on 20,000 events: levels within 0.009 of the fit to the events on the
    fine grid of UniformMass(15), 0.017 on that of LogOdds(15); the Brier score is within 3e-4.

    Fitted: ``edges_`` (bins + 1,), ``levels_`` (bins,). Source: Zadrozny, Elkan 2001; Kumar, Liang, Ma 2019.

    >>> HistogramBinning(2).fit([0.1, 0.2, 0.7, 0.9], [0, 1, 1, 1]).predict([0.15, 0.8]).tolist()
    [0.5, 1.0]
    """

    fitted = ("edges_", "levels_")

    def __init__(self, n_bins: int = 15, binning: str = "uniform-mass") -> None:
        if binning not in BINNINGS:
            raise ValueError(f"binning must be one of {', '.join(map(repr, BINNINGS))}, got {binning!r}")
        self.n_bins, self.binning = check_whole("n_bins", n_bins, 1), binning

    def _fit(self, p: Array, y: Array, w: Array) -> None:
        if self.binning == "uniform-mass":
            self.edges_ = uniform_mass_edges(*condensed(p, w, self.n_bins), self.n_bins)
        else:
            self.edges_ = EqualWidth(self.n_bins).edges
        self._learn_levels(p, y, w)

    def _learn_levels(self, p: Array, y: Array, w: Array) -> None:
        weight, mean = bin_means(self.edges_, p, y, w)
        self.levels_ = np.where(weight > 0, mean, (self.edges_[:-1] + self.edges_[1:]) / 2.0)

    def fit_snapshot(self, snapshot: Snapshot) -> HistogramBinning:
        """See :meth:`Recalibrator.fit_snapshot`; a mean claim within 1e-12 above an edge counts as on it."""
        super().fit_snapshot(snapshot)
        p, y, w = events_of(snapshot)
        if self.binning == "uniform-mass":
            self.edges_ = off_scores(self.edges_, p)
            self._learn_levels(p, y, w)
        else:
            # Rows include their upper edge: a claim that rounding lifted over it would count one row too high.
            self._learn_levels(np.maximum(p - ROUNDING, 0.0), y, w)
        return self

    def _is_sound(self) -> bool:
        first = self.edges_.flat[0]  # a hair below 0 where many scores are exactly 0
        return bool(-1.0 / LARGEST <= first <= 0.0) and are_steps(self.edges_, self.levels_, (first, 1.0))

    def _predict(self, p: Array) -> Array:
        return self.levels_[bins_within(self.edges_, p)]


@inlined
def _level(buf: Array, p: float) -> float:
    """Mean outcome of the bin of p, the prediction itself counted ``prior`` times."""
    own = buf.shape[0] - OWN
    r, kind = bin_of(buf, p), buf[own]
    if r < 0:  # p is nan, which comes back as it is
        return p
    cell, scale = int(buf[CELLS]) + 8 * r, scale_of(kind, buf)
    if is_empty(kind, buf[cell + W], scale):
        return p
    prior = scale * buf[own + 1]
    return float(min(max((buf[cell + WY] + prior * p) / (buf[cell + W] + prior), 0.0), 1.0))


@brief
def histogram_learn(buf: Array, p: float, y: float, w: float) -> float:
    """Predict, and learn if w > 0: see :class:`OnlineHistogram`; nan if the event is not allowed."""
    q = _level(buf, unit(p))
    if not allowed(y, w):
        return np.nan
    if q == q and w > 0.0:
        take_in(buf[buf.shape[0] - OWN], buf, unit(p), y, w)
    return q


@kernel
def _histogram_run(buf: Array, p: Array, y: Array, w: Array, out: Array) -> None:
    for i in range(p.shape[0]):
        out[i] = _level(buf, p[i])
        if w[i] > 0.0:
            take_in(buf[buf.shape[0] - OWN], buf, p[i], y[i], w[i])


@online("histogram")
class OnlineHistogram(Windowed):
    r"""The tally read back: a prediction becomes the mean outcome of its bin of the window, O(1) per event.

    .. math:: m(p) = \frac{\sum_{i: r(p_i) = r(p)} w_i y_i + k \, p}{\sum_{i: r(p_i) = r(p)} w_i + k}

    with k = ``prior``: the prediction itself counts as that many events, so that an empty bin gives it back as it is and the
    first outcomes do not swing it from 0 to 1. ``prior=0`` is the plain mean. The window is a Cumulative (nothing forgotten), a
    Sliding or a Fading (drift is followed) with fixed bins; default ``Cumulative(EqualWidth(15))``. Over a cumulative window with
    ``prior=0`` this is tracking, and the bound of :class:`Calibeating` holds. Two predictions of one bin come out (nearly) equal:
    a bin coarser than the forecast loses sharpness. Source: Zadrozny, Elkan 2001; Foster, Hart 2023.

    >>> map = OnlineHistogram()
    >>> map.predict_one(0.9)
    0.9
    >>> for outcome in [1, 0, 0, 1]:
    ...     map.learn_one(0.9, outcome)
    >>> round(map.predict_one(0.9), 3)
    0.58
    """

    _learn, _run = histogram_learn, _histogram_run

    def __init__(self, window: Window | None = None, prior: float = 1.0) -> None:
        self.prior = check_prior(prior)
        self.window = checked_window(Cumulative(EqualWidth(15)) if window is None else window, Mean())
        self._join(np.array([self.prior]))
