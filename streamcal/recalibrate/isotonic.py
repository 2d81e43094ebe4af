"""Isotonic calibration, batch and online: the non-decreasing map that fits best, by pooling adjacent violators."""

from __future__ import annotations

import numpy as np

from streamcal._jit import brief, kernel
from streamcal.arrays import Array, check_flag
from streamcal.binning import N_BINS, Grid, Levels
from streamcal.claims import Mean
from streamcal.limits import unit
from streamcal.recalibrate.online import allowed, online
from streamcal.recalibrate.recalibrator import Recalibrator, are_levels, recalibrator, rises
from streamcal.recalibrate.windowed import Windowed, check_prior, checked_window, is_empty, scale_of, take_in
from streamcal.tally import CELLS, WP, WY, W
from streamcal.windows import Cumulative, Window

TIE_BREAK = 1e-6  # of the raw score: too little to show in a forecast, and kept by doubles for scores 1e-9 apart
KIND, PRIOR, CENTRES = range(3)  # behind the window's numbers in the online one; then the middle of each bin


@kernel
def pool_adjacent_violators(x: Array, y: Array, w: Array, first: Array, last: Array, weight: Array, mean: Array) -> int:
    """Blocks of the least-squares non-decreasing fit to sorted ``x``; returns how many there are.

    A stack: equal x become one block, and a block joins its left neighbour for as long as that one is not below it.
    Each block is pooled once at most, so the whole is linear. ``mean`` is the summed w*y until the last loop.
    """
    top, i, n = -1, 0, x.shape[0]
    while i < n:
        top += 1
        first[top], last[top], weight[top], mean[top] = x[i], x[i], 0.0, 0.0
        while i < n and x[i] == first[top]:
            weight[top] += w[i]
            mean[top] += w[i] * y[i]
            i += 1
        while top > 0 and mean[top - 1] / weight[top - 1] >= mean[top] / weight[top]:
            weight[top - 1] += weight[top]
            mean[top - 1] += mean[top]
            last[top - 1] = last[top]
            top -= 1
    for b in range(top + 1):
        mean[b] /= weight[b]
    return top + 1


@kernel
def interpolate(x: Array, y: Array, at: Array, out: Array) -> None:
    """Piecewise linear between the points (x, y), constant outside.

    The fraction of the way is in [0, 1] however close two points are; a slope would overflow there.
    """
    points = x.shape[0]
    for i in range(at.shape[0]):
        v, low, high = at[i], 0, points
        while low < high:
            middle = (low + high) >> 1
            if x[middle] <= v:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            out[i] = y[0]
        elif low == points:
            out[i] = y[points - 1]
        else:
            left = x[low - 1]
            out[i] = y[low - 1] + (v - left) / (x[low] - left) * (y[low] - y[low - 1])


def isotonic_points(p: Array, y: Array, w: Array) -> tuple[Array, Array]:
    """Points (x, y) of the isotonic fit: both ends of each block, one where a block is a single score."""
    order = np.argsort(p)
    first, last, weight, mean = (np.empty(p.size) for _ in range(4))
    blocks = pool_adjacent_violators(p[order], y[order], w[order], first, last, weight, mean)
    ends = np.stack([first[:blocks], last[:blocks]], 1).reshape(-1)
    used = np.ones(ends.size, np.bool_)
    used[1::2] = first[:blocks] < last[:blocks]  # interpolation divides by the distance of two points
    return ends[used], np.repeat(mean[:blocks], 2)[used]


@recalibrator("isotonic")
class IsotonicCalibration(Recalibrator):
    r"""The non-decreasing map with the least squared error on the sample; linear between the fitted points.

    .. math:: \min_{m} \sum_i w_i (y_i - m(p_i))^2 \quad \text{subject to } p_i \le p_j \Rightarrow m(p_i) \le m(p_j)

    Equal scores are summed first; scores are equal only if they are the same number (scikit-learn also joins those
    closer than 1e-15). Below the lowest and above the highest fitted score the outermost value holds. One event, one
    class or constant scores give the base rate everywhere.

    The map has flat stretches, so it ties scores that were ordered, which changes rank measures such as the area under
    the ROC curve. ``strict=True`` adds 1e-6 of the raw score, ``(1 - 1e-6) m(p) + 1e-6 p``: no value moves by more than
    1e-6, and scores at least 1e-9 apart keep their order.

    With few events per score it overfits: below about 1,000 events Platt scaling is usually better. From a snapshot it sees
    each bin as one score: exact on a :class:`~streamcal.Grid` or :class:`~streamcal.Levels` that holds all scores. Measured on
    20,000 events with continuous scores, on the fine grids of UniformMass(15) and LogOdds(15): outputs differ by 0.005 on
    average and up to 0.1 at single scores near the ends; the Brier score on the sample rises by 4e-4 at most.

    Fitted: ``scores_`` and ``levels_``, the points of the map. Source: Zadrozny, Elkan 2002; Ayer et al. 1955 (PAV).

    >>> IsotonicCalibration().fit([0.1, 0.2, 0.4, 0.8], [0, 1, 0, 1]).predict([0.0, 0.3, 0.6, 1.0]).tolist()
    [0.0, 0.5, 0.75, 1.0]
    """

    fitted = ("scores_", "levels_")

    def __init__(self, strict: bool = False) -> None:
        self.strict = check_flag("strict", strict)

    def _fit(self, p: Array, y: Array, w: Array) -> None:
        self.scores_, self.levels_ = isotonic_points(p, y, w)

    def _is_sound(self) -> bool:
        points = rises(self.scores_) and are_levels(self.levels_, self.scores_.size)
        return points and are_levels(self.scores_, self.scores_.size) and bool((np.diff(self.levels_) >= 0.0).all())

    def _predict(self, p: Array) -> Array:
        out = np.empty(p.size)
        interpolate(self.scores_, self.levels_, p, out)
        return (1.0 - TIE_BREAK) * out + TIE_BREAK * p if self.strict else out


@kernel
def _read(buf: Array, p: float) -> float:
    """The isotonic fit to the bins of the window, linear between the ends of its blocks, at p; p itself if nothing was seen."""
    n_bins, first = int(buf[N_BINS]), int(buf[CELLS])
    own = buf.shape[0] - CENTRES - n_bins
    kind, scale = buf[own + KIND], scale_of(buf[own + KIND], buf)
    x, y, w = np.empty(n_bins), np.empty(n_bins), np.empty(n_bins)
    n, seen = 0, False
    for r in range(n_bins):
        cell, prior, centre = first + 8 * r, scale * buf[own + PRIOR], buf[own + CENTRES + r]
        weight, claimed, came = buf[cell + W], buf[cell + WP], buf[cell + WY]
        if is_empty(kind, weight, scale):  # a fading window keeps traces of very old events
            weight, claimed, came = 0.0, 0.0, 0.0
        seen = seen or weight > 0.0
        if weight + prior > 0.0:
            w[n] = weight + prior
            x[n], y[n] = (claimed + prior * centre) / w[n], (came + prior * centre) / w[n]
            n += 1
    if not seen or p != p:
        return p
    low, high, weights, mean = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    blocks, b = pool_adjacent_violators(x[:n], y[:n], w[:n], low, high, weights, mean), 0
    while b < blocks and high[b] < p:
        b += 1
    out = mean[min(b, blocks - 1)]
    if 0 < b < blocks and p < low[b]:
        out = mean[b - 1] + (p - high[b - 1]) / (low[b] - high[b - 1]) * (mean[b] - mean[b - 1])
    return float(min(max(out, 0.0), 1.0))  # a line between two points can round beyond them


@brief
def isotonic_learn(buf: Array, p: float, y: float, w: float) -> float:
    """Predict, and learn if w > 0: see :class:`OnlineIsotonic`; nan if the event is not allowed."""
    q = _read(buf, unit(p))
    if not allowed(y, w):
        return np.nan
    if q == q and w > 0.0:
        take_in(buf[buf.shape[0] - CENTRES - int(buf[N_BINS])], buf, unit(p), y, w)
    return q


@kernel
def _isotonic_run(buf: Array, p: Array, y: Array, w: Array, out: Array) -> None:
    kind = buf[buf.shape[0] - CENTRES - int(buf[N_BINS])]
    for i in range(p.shape[0]):
        out[i] = _read(buf, p[i])
        if w[i] > 0.0:
            take_in(kind, buf, p[i], y[i], w[i])


@online("isotonic")
class OnlineIsotonic(Windowed):
    """The isotonic fit to the bins of a window, made anew at each read: every bin is one score, its mean claim.

    ``prior`` is the weight of one made-up event a bin, at its middle and with an outcome equal to it, so that the map is the
    identity before any event and bends as bins fill. ``prior=0``: exactly ``IsotonicCalibration().fit_snapshot`` of the window
    (the first event then makes it constant). The window is a Cumulative, Sliding or Fading of fixed bins; default
    ``Cumulative(Grid(100))``: the finer the bins, the nearer to the fit to the events. Always non-decreasing in the
    prediction. Cost per forecast: O(bins), about a microsecond for 100; no guarantee against a hostile stream: see
    :class:`Guard`. Source: Ayer et al. 1955; Zadrozny, Elkan 2002; Dimitriadis, Gneiting, Jordan 2021 (CORP).

    >>> map = OnlineIsotonic()
    >>> map.predict_one(0.25)
    0.25
    >>> for outcome in [0, 1, 0, 0, 0, 0, 0]:
    ...     map.learn_one(0.75, outcome)
    >>> map.predict_one(0.9) >= map.predict_one(0.75)
    True
    """

    _learn, _run = isotonic_learn, _isotonic_run

    def __init__(self, window: Window | None = None, prior: float = 1.0) -> None:
        self.prior = check_prior(prior)
        self.window = checked_window(Cumulative(Grid(100)) if window is None else window, Mean())
        binning, ends = self.window.binning, np.clip(self.window.binning.edges, 0.0, 1.0)
        centres = (ends[:-1] + ends[1:]) / 2.0
        if isinstance(binning, Grid | Levels):
            centres = np.clip(binning.levels, 0.0, 1.0)  # levels may lie outside, where no score is
        self._join(np.concatenate([[self.prior], centres]))
