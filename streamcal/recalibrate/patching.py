"""Patching: find the level that is wrong most, set it to what really happened there, and go on until little is wrong.

::

    while the error > alpha:
        v  = the level whose patch lowers the loss most
        v' = what should have been predicted there
        everything predicted v is predicted v' from now on; if v' was a level already, the two are one

One loop for means and for quantiles. They differ in what identifies the right value of a level, and in the loss:

=========  ============================  ==============================================  ===========================
forecast   gap of a level v              v' (on a grid: the grid level nearest to it)     loss; error
=========  ============================  ==============================================  ===========================
mean       E[y | v] - v                  the mean outcome E[y | v]                        squared error; K2
quantile   P(y <= v | v) - q             the smallest v' with P(y <= v' | v) >= q         pinball loss; Q2
=========  ============================  ==============================================  ===========================

The error is the mean of the squared gap. Two slips circulate in notes on this loop. Ranking the levels by the signed gap never
picks a level that is too low, and the loop stands still; setting f to the worst level itself, not to c(v), changes nothing. On
a grid there is a third: the level with the largest gap may round back to itself, so the levels are ranked by what a patch
really gains.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal._jit import inlined, kernel
from streamcal.arrays import Array, Ints, check_aligned, check_whole, numbers
from streamcal.batch import FEW
from streamcal.binning import Grid, Levels, midpoint, uniform_bin
from streamcal.claims import check_level
from streamcal.confidence import mixture_bound
from streamcal.limits import warn
from streamcal.recalibrate.recalibrator import Fitted, Recalibrator, aligned, are_levels, checked, recalibrator, rises
from streamcal.state import restorable

# A mean nearer to a level than this is at the level; shares of the weight that differ by less are equal.
ROUNDING = 1e-12
FINEST = 1_000_000  # steps of a grid: i / m stays exact to 1e-10 of a step
ALPHA = 1e-4  # one percentage point squared
LARGEST = 1e200  # of a real forecast or outcome, so that sums of weighted losses stay finite
TINY = 1e-300  # the gain of a patch that mends a gap but whose gain in loss is lost in rounding
# What is known of a level: its weight; the weighted sum of outcomes (means) or the weight of y <= level (quantiles); where a
# patch takes it; and that sum or weight there.
MASS, HITS, TARGET, TAKEN, COLUMNS = range(5)


class Patch(NamedTuple):
    """One step: ``level`` became ``value``, with its share ``mass`` of all events; what that took off, what is left."""

    level: float
    value: float
    mass: float
    decrease: float
    k2_after: float


class QuantilePatch(NamedTuple):
    """One step: ``level`` became ``value``, with its share ``mass`` of all events; what pinball loss lost, what is left."""

    level: float
    value: float
    mass: float
    decrease: float
    q2_after: float


class _Greedy(Fitted):
    """What both loops leave: the patches, and the error before and after them (the last two of what is fitted)."""

    _patch: ClassVar[type[Patch] | type[QuantilePatch]]
    alpha: float
    values_: Array
    patched_: Array
    history_: Array

    def _keep(self, rows: Array, before: float) -> None:
        self.history_ = rows
        for name, error in zip(self.fitted[-2:], (before, float(rows[-1, 4]) if len(rows) else before), strict=True):
            setattr(self, name, error)

    @property
    def floor_reached_(self) -> bool:
        """Whether the loop ended above alpha because no patch was left that helps (and is significant)."""
        self._check_fitted()
        return bool(getattr(self, self.fitted[-1]) > self.alpha)

    def history(self) -> list[Any]:
        """The patches in the order in which they were made: each a :class:`Patch` or :class:`QuantilePatch`."""
        self._check_fitted()
        return [self._patch(*row) for row in self.history_.tolist()]


class _LevelMap(Recalibrator):
    """A map that is a table: each level of the sample, and what is predicted there instead."""

    levels: int | None
    values_: Array
    patched_: Array

    def _is_sound(self) -> bool:
        size, rows = np.size(self.values_), getattr(self, "history_", np.empty((0, 5)))
        tables = rises(self.values_) and are_levels(self.values_, size) and are_levels(self.patched_, size)
        flat = all(np.ndim(getattr(self, name)) == 0 for name in self.fitted if name.startswith("k2"))
        return tables and flat and rows.shape[1:] == (5,) and all_finite(self)

    def _predict(self, p: Array) -> Array:
        if self.levels is None:
            return self.patched_[nearest(self.values_, p)]
        steps = np.rint(self.values_ * self.levels)  # whole numbers, so that half way is exactly half way
        return self.patched_[nearest(steps, Grid(self.levels).bins(p).astype(np.float64))]

    def _sums(self, p: Array, y: Array, w: Array) -> tuple[Array, Array, Array]:
        """(levels, their weight, their weighted sum of outcomes); on a grid also of the levels that nobody predicted."""
        if self.levels is None:
            values, level = np.unique(p, return_inverse=True)
        else:
            values, level = Grid(self.levels).levels, Grid(self.levels).bins(p)
        n, s = (np.bincount(level, each, values.size).astype(np.float64) for each in (w, w * y))
        return values, n, s


@recalibrator("patching")
class Patching(_Greedy, _LevelMap):
    r"""Greedy patching: worst level first, until K2 <= alpha. Predictions in [0, 1].

    .. math:: v = \arg\max_v P(v) \left[ (v - c(v))^2 - (v' - c(v))^2 \right], \qquad v' = c(v)

    where P(v) is the share of the events whose (patched) prediction is v, and c(v) their mean outcome.

    ``levels=None``: the levels are the distinct predictions of the sample. Every patch lowers the squared error by exactly
    P(v) (v - c(v))^2 and leaves no gap behind, so there are at most as many patches as uncalibrated levels (the textbook
    bound m / alpha is true and very loose), and K2 <= alpha at the end.

    ``levels=m``: the levels are 0, 1/m, ..., 1; predictions are rounded to the nearest one (half way: to the lower one, as
    :class:`streamcal.Grid` does) and patch values too. A grid cannot promise a K2 below its floor 1 / (4 m^2): an alpha
    below it is a ValueError (``alpha=None``, the default, is 1e-4 or the floor, whichever is larger). At most m + 1 patches.

    ``significance=s``: only levels whose gap exceeds :func:`gap_radius` at their own weight (on a grid: by half a step more,
    since rounding a prediction makes a gap as well) are patched, with error probability s / (number of levels) each: on a
    calibrated stream no level of the sample is patched, with probability 1 - s. (A level that others have merged into is
    judged again, at its new weight; s does not cover that choice.) Without it a sample's noise, some m / (6 n), is learned
    too: on 500 events of 50 levels plain patching and :class:`OneShotPatching` make the true K2 worse. Use it, or a grid,
    below some 100 events a level; below 10 a warning says so: continuous predictions are one level each, and patching them
    learns the outcomes by heart. Weights count as repetition; if they are not counts of events the radius means nothing.

    Fitted: ``history_`` (patches, 5), see :meth:`history`; ``values_`` the levels of the sample and ``patched_`` what each
    finally maps to; ``k2_before_`` (on a grid: of the rounded predictions) and ``k2_after_`` on the sample;
    ``floor_reached_``. A score that the sample did not hold maps to what the nearest level does (half way: the lower one). A
    sample that is calibrated to alpha: no patch, predictions stay. Source: Roth, Uncertain: Modern Topics in Uncertainty
    Estimation; the order of patches and the floor are measured, not quoted.

    >>> p = [0.2] * 10 + [0.6] * 10 + [0.9] * 10
    >>> y = [0] * 8 + [1] * 2 + [0] * 1 + [1] * 9 + [0] * 2 + [1] * 8
    >>> patching = Patching(alpha=0.001).fit(p, y)
    >>> for patch in patching.history():
    ...     print(f"{patch.level} -> {patch.value}: K2 is {patch.k2_after:.4f}")
    0.6 -> 0.9: K2 is 0.0017
    0.9 -> 0.85: K2 is 0.0000
    >>> patching.predict([0.2, 0.6, 0.7, 0.9]).tolist()
    [0.2, 0.85, 0.85, 0.85]
    """

    fitted = ("values_", "patched_", "history_", "k2_before_", "k2_after_")
    _patch = Patch

    def __init__(
        self, alpha: float | None = None, levels: int | None = None, significance: float | None = None
    ) -> None:
        self.levels = None if levels is None else check_whole("levels", levels, 1, FINEST)
        floor = 0.0 if self.levels is None else 1.0 / (4.0 * self.levels**2)
        self.alpha = max(ALPHA, floor) if alpha is None else check_alpha(alpha)
        self.significance = None if significance is None else check_level(significance, "significance")
        if self.alpha < floor:
            raise ValueError(
                f"alpha must be at least 1 / (4 * levels^2) = {floor:g}, got {self.alpha:g}: predictions that are "
                f"multiples of 1/{self.levels} cannot promise less; raise alpha or levels"
            )

    def _fit(self, p: Array, y: Array, w: Array) -> None:
        values, n, s = self._sums(p, y, w)
        seen = n > 0
        if self.significance is None:
            warn_if_thin(n[seen], "levels=20 or significance=0.05")
        radius = 0.0 if self.significance is None else gap_radius(1.0, self.significance / float(seen.sum()))
        rows = patches_of_means(self.alpha, values, n, s, self.levels or 0, radius)
        self._keep(rows, k2_of(values[seen], n[seen], s[seen]))
        self.values_, self.patched_ = values[seen], finally_at(values, rows, ROUNDING)[seen]


@recalibrator("one-shot-patching")
class OneShotPatching(_LevelMap):
    r"""Every level at once to the mean outcome where it was predicted: f'(x) = c(f(x)). Predictions in [0, 1].

    On the sample K2 becomes 0 and the squared error falls by exactly the old K2. Off the sample it costs the noise of each
    mean, together about m / (6 n) for m levels and n events: worse than doing nothing when the gaps are smaller than that.
    ``levels``, unseen scores and source as in :class:`Patching`, but means are not rounded to a level. Fitted: ``values_``,
    ``patched_``, ``k2_before_``.

    >>> OneShotPatching().fit([0.3, 0.3, 0.8, 0.8] * 5, [0, 1, 1, 1] * 5).predict([0.3, 0.55, 0.8]).tolist()
    [0.5, 0.5, 1.0]
    """

    fitted = ("values_", "patched_", "k2_before_")

    def __init__(self, levels: int | None = None) -> None:
        self.levels = None if levels is None else check_whole("levels", levels, 1, FINEST)

    def _fit(self, p: Array, y: Array, w: Array) -> None:
        values, n, s = self._sums(p, y, w)
        seen = n > 0
        warn_if_thin(n[seen], "levels=20")
        self.values_, self.patched_ = values[seen], s[seen] / n[seen]
        self.k2_before_ = k2_of(values[seen], n[seen], s[seen])


@restorable
class QuantilePatching(_Greedy):
    r"""Greedy patching of forecasts of the ``level``-quantile, until Q2 <= alpha. Forecasts and outcomes are real numbers.

    .. math:: Q_2 = \sum_v P(v) \left( q - P(y \le v \mid f = v) \right)^2

    A patch never raises the pinball loss. If the outcomes at v have a distribution function F with
    :math:`|F(a) - F(b)| \le \rho |a - b|`, it lowers it by at least :math:`P(v)\, \delta^2 / (2 \rho)`,
    :math:`\delta = |F(v) - q|`; uniform outcomes reach that bound. A level is patched at most once. Where outcomes tie, F
    jumps past q and a gap as large as the atom can stay: the loop ends when no level is better elsewhere, and
    ``floor_reached_`` says that this was above alpha.

    ``levels=None``: the distinct forecasts of the sample. Continuous forecasts give every level one event, and every
    forecast becomes its own outcome: then declare some ``levels`` (any real numbers; a forecast belongs to the nearest one,
    half way to the lower, as in :class:`streamcal.Levels`). Patch values are outcomes, not rounded to a level. Weights count
    as repetition. The noise of a level's quantile is learned too: have some 100 events a level.

    Fitted: as in :class:`Patching`, with ``q2_before_`` (of the forecasts rounded to their levels) and ``q2_after_``;
    unseen forecasts and source as there.

    >>> patching = QuantilePatching(0.5, alpha=0.001).fit([1, 1, 1, 1, 5, 5, 5, 5] * 3, [2, 3, 4, 9, 1, 5, 8, 9] * 3)
    >>> patching.history()
    [QuantilePatch(level=1.0, value=3.0, mass=0.5, decrease=0.375, q2_after=0.0)]
    >>> patching.predict([0, 1, 3, 5, 9]).tolist()
    [3.0, 3.0, 3.0, 5.0, 5.0]
    """

    fitted = ("values_", "patched_", "history_", "q2_before_", "q2_after_")
    _fit_call, _patch = "fit(v, y)", QuantilePatch

    def __init__(self, level: float, alpha: float = 1e-4, levels: npt.ArrayLike | None = None) -> None:
        self.level = float(check_level(level))
        self.alpha = check_alpha(alpha)
        self.levels = None if levels is None else Levels(levels).values

    def __repr__(self) -> str:
        levels = None if self.levels is None else list(self.levels)
        return f"QuantilePatching(level={self.level}, alpha={self.alpha}, levels={levels})"

    def fit(self, v: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> QuantilePatching:
        """Learn from n forecasts, then their outcomes (swapped they cannot be told); returns self. ValueError names a bad one."""
        check_aligned(v=v, y=y, sample_weight=sample_weight)
        forecasts, outcomes, weights = aligned("v", _finite("v", v), _finite("y", y), sample_weight)
        # + 0.0 turns -0.0 into 0.0
        self.values_, level = np.unique(self._place(forecasts) + 0.0, return_inverse=True)
        mass = np.bincount(level, weights, self.values_.size).astype(np.float64)
        warn_if_thin(mass, "levels=[...], forecasts to round to")
        self._keep(*patches_of_quantiles(self.alpha, self.level, self.values_, level, outcomes + 0.0, weights))
        self.patched_ = finally_at(self.values_, self.history_, 0.0)
        return self

    def _place(self, v: Array) -> Array:
        if self.levels is None:
            return v
        levels = np.array(self.levels)
        return levels[nearest(levels, v)]

    def predict(self, v: npt.ArrayLike) -> Array:
        """Patched forecasts, shape of ``v`` kept. ValueError before fit, or for a forecast that is not finite."""
        self._check_fitted()
        forecasts = _finite("v", v)
        placed = self._place(forecasts.reshape(-1))
        return self.patched_[nearest(self.values_, placed)].reshape(forecasts.shape)

    def _go_on(self, fitted: dict[str, Any]) -> None:
        super()._go_on(fitted)
        tables = rises(self.values_) and self.patched_.shape == self.values_.shape and self.history_.shape[1:] == (5,)
        if not tables or not all_finite(self):
            raise ValueError(f"these fitted values are none that a QuantilePatching can have: {fitted!r:.200}")


def _finite(name: str, values: npt.ArrayLike) -> Array:
    array = numbers(name, values, strict=True)
    return checked(name, f"be finite and within +-{LARGEST:g}", array, np.abs(array) <= LARGEST)


def all_finite(made: Fitted) -> bool:
    """Whether all that was fitted are finite numbers."""
    return all(bool(np.isfinite(getattr(made, name)).all()) for name in made.fitted)


def check_alpha(alpha: float) -> float:
    """``alpha`` as a float; ValueError unless 0 <= alpha <= 1."""
    if isinstance(alpha, bool) or not isinstance(alpha, int | float | np.number) or not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must lie in [0, 1], got {alpha!r}")
    return float(alpha)


def warn_if_thin(n: Array, remedy: str) -> None:
    """Warn where levels of these weights hold so few events that what they tell is mostly noise."""
    if n.sum() < FEW * n.size:
        message = f"{n.size} levels hold {n.sum() / n.size:.3g} events each on average: patches are mostly noise; pass {remedy}"
        warn(message)


def nearest(values: Array, x: Array) -> Ints:
    """Index of the value nearest to each x, half way the lower one. ``values`` increase.

    >>> nearest(np.array([0.0, 1.0]), np.array([0.5, 0.75])).tolist()
    [0, 1]
    """
    return np.searchsorted(midpoint(values[:-1], values[1:]), x).astype(np.int64)


def k2_of(values: Array, n: Array, s: Array) -> float:
    """K2 of levels with weight n and outcome sum s, all n > 0."""
    return float((n * (values - s / n) ** 2).sum() / n.sum())


def gap_radius(n: float, alpha: float) -> float:
    r"""How far the mean gap of n events can be from its true value, with probability 1 - alpha. Any outcomes in [0, 1].

    .. math:: \frac1n \sqrt{(V + \rho) \ln \frac{V + \rho}{\rho \alpha^2}}, \qquad V = \frac n4

    the normal mixture for 1/2-sub-Gaussian steps, with :math:`\rho = V / (L + \ln(1 + L))`, :math:`L = 2 \ln(1/\alpha)`,
    which makes it nearly tightest at this n; so it shrinks as :math:`1/\sqrt n`. Above 1 it says nothing. Source:
    Howard, Ramdas, McAuliffe, Sekhon 2021.

    >>> [round(gap_radius(n, 0.001), 3) for n in (10, 100, 1000)]
    [0.665, 0.21, 0.066]
    """
    double = 2.0 * math.log(1.0 / alpha)
    v = n / 4.0
    rho = v / (double + math.log1p(double))
    return float(mixture_bound(v, rho, double)) / n


# ---------------------------------------------------------------------------- the loop
# A place is a value that can be predicted: the levels of the sample, for quantiles also all outcomes. A tournament over the
# places: leaf k of `gain` is what patching level k takes off the summed loss, each node above holds the larger of its two
# children, so the root is the best and a walk down finds it. `error` is the same tree with sums of mass * gap^2: its root is
# n K2 or n Q2, without the drift that subtracting as we go would bring.


def patches_of_means(alpha: float, values: Array, n: Array, s: Array, m: int, radius: float) -> Array:
    """The rows of ``history_`` for levels of weight n and outcome sum s. ``m`` 0: patch values are not rounded."""
    table = np.empty((values.size, COLUMNS))
    table[:, MASS], table[:, HITS:] = n, s[:, None]  # a patch takes the whole sum along; the loop finds the target
    no_events = np.empty((2, 0)), np.empty((0, 3), np.int64)  # the sums say it all
    return patch_until(np.array([alpha, math.nan, m, radius]), values, table, *no_events, values.size)[0]


def patches_of_quantiles(alpha: float, q: float, values: Array, level: Ints, y: Array, w: Array) -> tuple[Array, float]:
    """(the rows of ``history_``, Q2 before the first) of events at these levels."""
    # numpy sorts whole numbers of 16 bits by radix: half the time
    order = np.lexsort((y, level.astype(np.uint16) if values.size <= 1 << 16 else level))
    places, count = np.union1d(values, y), np.bincount(level, minlength=values.size)
    chain, ends = np.zeros((places.size, 3), np.int64), np.cumsum(count)
    chain[np.searchsorted(places, values)] = np.stack([ends - count, ends - 1, count], 1)
    table, settings = np.zeros((places.size, COLUMNS)), np.array([alpha, q, 0.0, 0.0])
    return patch_until(settings, places, table, np.stack([y[order], w[order]]), chain, values.size)


@kernel
def patch_until(
    settings: Array, places: Array, table: Array, events: Array, chain: Ints, levels: int
) -> tuple[Array, float]:
    """The loop of this file: (the rows of ``history_``, the error before the first).

    ``settings``: alpha, q, m, radius. With q nan these are means, weighed by the sums in ``table``; else quantiles, weighed by
    their events.
    """
    alpha, q, m, radius = settings[0], settings[1], settings[2], settings[3]
    n, leaves, total, done = places.shape[0], 1, 0.0, 0
    while leaves < n:
        leaves *= 2
    # A level that has moved leaves nothing behind that could move again, so there are never more patches than levels.
    history, trees, stale = np.zeros((levels, 5)), np.zeros((2, 2 * leaves)), np.zeros(n, np.bool_)
    gain, error, following, of_means = trees[0], trees[1], np.arange(1, events.shape[1] + 1), q != q
    for k in range(n):
        if of_means:
            weigh_sums(k, places, table, m, radius, gain)
        elif chain[k, COUNT] > 0:
            first, end = chain[k, FIRST], chain[k, LAST] + 1  # so far the events of a level lie side by side, sorted
            y, w = events[0][first:end], events[1][first:end]
            table[k, MASS], table[k, HITS] = weigh_events(k, q, places, table, y, w, gain)
        total += table[k, MASS]
        count_error(k, q, places, table, error)
    before = error[1] / total
    while error[1] / total > alpha and gain[1] > 0.0 and done < levels:
        k = best(gain)
        if stale[k]:
            y, w = joined_events(k, events, chain, following)
            weigh_events(k, q, places, table, y, w, gain)
            stale[k] = False
            continue
        history[done, 0], history[done, 1] = places[k], table[k, TARGET]
        history[done, 2], history[done, 3] = table[k, MASS] / total, gain[1] / total
        there = find(places, table[k, TARGET], ROUNDING if of_means else 0.0)
        if there >= 0:
            table[there, MASS] += table[k, MASS]
            table[there, HITS] += table[k, TAKEN]
        table[k] = 0.0
        put(gain, k, 0.0, True)
        count_error(k, q, places, table, error)
        if there >= 0:  # elsewhere nothing waits, and a mean leaves no gap
            if of_means:
                weigh_sums(there, places, table, m, radius, gain)
            else:
                # The newcomers are best off where they came to, so the gain of that level can only have fallen: it is weighed
                # again when it stands at the top, not at each arrival. What has moved already has no gain and stays.
                join(chain, following, k, there)
                stale[there] = True
            count_error(there, q, places, table, error)
        history[done, 4] = error[1] / total
        done += 1
    return history[:done].copy(), before


@inlined
def count_error(k: int, q: float, places: Array, table: Array, error: Array) -> None:
    """Write a place's part of the error: its weight times the square of what identifies the right value."""
    wrong = 0.0
    if table[k, MASS] > 0.0:
        gap = table[k, HITS] / table[k, MASS] - (places[k] if q != q else q)
        wrong = table[k, MASS] * gap * gap
    put(error, k, wrong, False)


@inlined
def patch_value(c: float, m: float) -> float:
    """The mean itself, or the nearest of the levels i / m by the rule of :class:`streamcal.Grid`."""
    return uniform_bin(c, m, 0.5, 2.0, -1.0, 2.0 * m, m) / m if m > 0.0 else c


@kernel
def weigh_sums(k: int, places: Array, table: Array, m: float, radius: float, gain: Array) -> None:
    """Where a level of means would be patched to, and what that gains."""
    most, n = 0.0, table[k, MASS]
    if n > 0.0:
        c = table[k, HITS] / n
        table[k, TARGET], table[k, TAKEN] = patch_value(c, m), table[k, HITS]
        gap, rest = abs(places[k] - c), abs(table[k, TARGET] - c)
        rounded = 0.5 / m if m > 0.0 else 0.0  # so far a prediction may lie from its level
        if gap - rest > ROUNDING and gap > (radius / math.sqrt(n) + rounded if radius > 0.0 else 0.0):
            most = n * (gap * gap - rest * rest)
    put(gain, k, most, True)


@kernel
def weigh_events(k: int, q: float, places: Array, table: Array, y: Array, w: Array, gain: Array) -> tuple[float, float]:
    """Where a level of quantiles would be patched to, and what that gains; returns its weight, and that of y <= level."""
    v, mass, under, below = places[k], 0.0, 0.0, 0.0
    for i in range(y.shape[0]):
        mass += w[i]
        under += w[i] if y[i] < v else 0.0
        below += w[i] if y[i] <= v else 0.0
    target, covered, i = y[0], 0.0, 0
    # quotients: 7 of 100 are 0.07, but 0.07 * 100 > 7; and sums of tenths fall short of it by their rounding
    while i < y.shape[0] and (covered / mass < q - ROUNDING or y[i] == target):
        target = y[i]
        covered += w[i]
        i += 1
    most = 0.0
    # else v is a q-quantile itself: no other value has less loss
    if not under / mass - ROUNDING <= q <= below / mass + ROUNDING:
        low, high, sign = min(v, target), max(v, target), 1.0 if v < target else -1.0
        for i in range(y.shape[0]):  # loss at low - loss at high
            inner = min(max(y[i], low), high)
            most += w[i] * (q * (inner - low) - (1.0 - q) * (high - inner))
        most = max(sign * most, TINY)
    table[k, TARGET], table[k, TAKEN] = target, covered
    put(gain, k, most, True)
    return mass, below


# The events of a level are a chain: where it begins and ends, how many there are; `following` leads from one to the next.
FIRST, LAST, COUNT = range(3)


@kernel
def joined_events(k: int, events: Array, chain: Ints, following: Ints) -> tuple[Array, Array]:
    """(outcomes of a level, sorted; their weights)."""
    n, i = chain[k, COUNT], chain[k, FIRST]
    outcomes, weights = np.empty(n), np.empty(n)
    for j in range(n):
        outcomes[j], weights[j] = events[0, i], events[1, i]
        i = following[i]
    order = np.argsort(outcomes, kind="mergesort")  # stable, so that equal outcomes are summed in one order
    return outcomes[order], weights[order]


@inlined
def join(chain: Ints, following: Ints, k: int, there: int) -> None:
    """Hang the events of a level behind those of another one."""
    if chain[there, COUNT] > 0:
        following[chain[there, LAST]] = chain[k, FIRST]
    else:
        chain[there, FIRST] = chain[k, FIRST]
    chain[there, LAST] = chain[k, LAST]
    chain[there, COUNT] += chain[k, COUNT]
    chain[k, COUNT] = 0


@kernel
def put(tree: Array, k: int, x: float, of_largest: bool) -> None:
    """Set leaf k of a tree of the largest or of sums, and the nodes above it."""
    node = tree.shape[0] // 2 + k
    tree[node] = x
    while node > 1:
        node //= 2
        left, right = tree[2 * node], tree[2 * node + 1]
        tree[node] = max(left, right) if of_largest else left + right


@kernel
def best(gain: Array) -> int:
    """The level that gains most; of equals the lowest."""
    node, leaves = 1, len(gain) // 2
    while node < leaves:
        node = 2 * node if gain[2 * node] == gain[node] else 2 * node + 1
    return node - leaves


@kernel
def find(values: Array, x: float, within: float) -> int:
    """Index of the value nearest to x in increasing values, -1 where that is further away than ``within``.

    A mean that was meant to be a level misses it by the rounding of its sum, which depends on the order of the events.
    """
    low, high = 0, values.shape[0] - 1
    while low < high:
        middle = (low + high) // 2
        if values[middle] < x:
            low = middle + 1
        else:
            high = middle
    if low > 0 and x - values[low - 1] < abs(values[low] - x):
        low -= 1
    return low if abs(values[low] - x) <= within else -1


@kernel
def finally_at(values: Array, history: Array, within: float) -> Array:
    """Where each level is in the end. Backwards: what moved to v' in this patch went where v' goes in the later ones."""
    final = values.copy()
    for t in range(history.shape[0] - 1, -1, -1):
        there = find(values, history[t, 1], within)
        final[find(values, history[t, 0], 0.0)] = final[there] if there >= 0 else history[t, 1]
    return final
