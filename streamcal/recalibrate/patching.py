"""Patching: find the level that is wrong most, set it to what really happened there, and go on until K2 is small.

::

    while K2 > alpha:
        v  = the level whose patch lowers the squared error most
        v' = c(v), the mean outcome where v was predicted (on a grid: the grid level nearest to it)
        everything predicted v is predicted v' from now on; if v' was a level already, the two are one

Two slips circulate in notes on this loop. Ranking the levels by the signed gap never picks a level that is too low,
and the loop stands still; setting f to the worst level itself, not to c(v), changes nothing. On a grid there is a
third: the level with the largest gap may round back to itself, so the levels are ranked by what a patch really gains.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np

from streamcal._jit import inlined, kernel
from streamcal.arrays import Array, Ints, check_whole
from streamcal.batch import FEW, CalibrationWarning
from streamcal.binning import Grid, midpoint
from streamcal.claims import check_level
from streamcal.confidence import mixture_bound
from streamcal.recalibrate.recalibrator import Recalibrator, are_levels, is_number, is_rising, recalibrator
from streamcal.rows import uniform_row

ROUNDING = 1e-12  # a patch that brings a level nearer to its mean by less than this is rounding, not a patch
FINEST = 1_000_000
ALPHA = 1e-4


class Patch(NamedTuple):
    """One step: ``level`` became ``value``, with its share ``mass`` of all events; what that took off, what is left."""

    level: float
    value: float
    mass: float
    decrease: float
    k2_after: float


class _LevelMap(Recalibrator):
    """A map that is a table: each level of the sample, and what is predicted there instead."""

    def _is_sound(self) -> bool:
        tables = [getattr(self, name) for name in self.fitted if name not in ("history_", "values_", "patched_")]
        history = getattr(self, "history_", np.empty((0, 5)))
        patches = isinstance(history, np.ndarray) and history.shape[1:] == (5,) and bool(np.isfinite(history).all())
        levels = is_rising(self.values_) and are_levels(self.values_, self.values_.size)
        return patches and levels and are_levels(self.patched_, self.values_.size) and all(map(is_number, tables))

    levels: int | None
    values_: Array
    patched_: Array

    def _predict(self, p: Array) -> Array:
        if self.levels is None:
            return self.patched_[nearest(self.values_, p)]
        steps = np.rint(self.values_ * self.levels)  # whole numbers, so that half way is exactly half way
        return self.patched_[nearest(steps, Grid(self.levels).rows(p).astype(np.float64))]

    def _sums(self, p: Array, y: Array, w: Array) -> tuple[Array, Array, Array]:
        """(levels, their weight, their weighted sum of outcomes); on a grid also of the levels that nobody predicted."""
        values, row = levels_of(p) if self.levels is None else on_grid(p, self.levels)
        n, s = (np.bincount(row, each, values.size).astype(np.float64) for each in (w, w * y))
        return values, n, s


@recalibrator("patching")
class Patching(_LevelMap):
    r"""Greedy patching: worst level first, until K2 <= alpha. Predictions in [0, 1].

    .. math:: v = \arg\max_v P(v) \left[ (v - c(v))^2 - (v' - c(v))^2 \right], \qquad v' = c(v)

    where P(v) is the share of the events whose (patched) prediction is v, and c(v) their mean outcome.

    ``levels=None``: the levels are the distinct predictions of the sample. Every patch lowers the squared error by
    exactly P(v) (v - c(v))^2 and leaves no gap behind, so there are at most as many patches as uncalibrated levels
    (the textbook bound m / alpha is true and very loose), and K2 <= alpha at the end.

    ``levels=m``: the levels are 0, 1/m, ..., 1; predictions are rounded to the nearest one (half way: to the lower one,
    as :class:`streamcal.Grid` does) and patch values too. A grid cannot promise a K2 below its floor 1 / (4 m^2):
    an alpha below it is a ValueError (``alpha=None``, the default, is 1e-4 or the floor, whichever is larger). It never
    loops, and needs at most m + 1 patches.

    ``significance=s``: only levels whose gap exceeds :func:`gap_radius` at their own weight (on a grid: by half a step
    more, since rounding a prediction makes a gap as well) are patched, with error
    probability s / (number of levels) each: on a calibrated stream no level of the sample is patched, with probability
    1 - s. (A level that others have merged into is judged again, at its new weight; s does not cover that choice.)
    Without it a sample's noise is learned too: on 500 events of 50 levels plain patching and :class:`OneShotPatching`
    make the true K2 worse. Rule of thumb: the noise costs m / (6 n), so use it, or a grid, below some 100 events a level.
    Below 10 a warning says so: continuous predictions are one level each, and patching them learns the outcomes by heart.
    Weights count as repetition; with weights that are not counts of events the radius means nothing.

    Fitted: ``history_`` (patches, 5), see :meth:`history`; ``values_`` the levels of the sample and ``patched_`` what
    each finally maps to; ``k2_before_`` (on a grid: of the rounded predictions) and ``k2_after_`` on the sample;
    ``floor_reached_``. ``predict`` of a score that the sample did not hold: what the nearest level of the sample maps
    to (half way: the lower one). A sample that is calibrated to alpha: no patch, predictions stay. Source: Roth,
    Uncertain: Modern Topics in Uncertainty Estimation; the order of patches and the floor are measured, not quoted.

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

    settings = ("alpha", "levels", "significance")
    fitted = ("values_", "patched_", "history_", "k2_before_", "k2_after_")
    history_: Array
    k2_before_: float
    k2_after_: float

    def __init__(
        self, alpha: float | None = None, levels: int | None = None, significance: float | None = None
    ) -> None:
        self.levels = check_levels(levels)
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
        self.k2_before_ = k2_of(values[seen], n[seen], s[seen])
        if self.significance is None:
            warn_if_thin(n[seen], "levels=20 or significance=0.05", 4)
        radius = 0.0 if self.significance is None else gap_radius(1.0, self.significance / float(seen.sum()))
        self.history_ = patches(values, n, s, self.alpha, self.levels or 0, radius)
        self.values_, self.patched_ = values[seen], finally_at(values, self.history_, ROUNDING)[seen]
        self.k2_after_ = float(self.history_[-1, 4]) if len(self.history_) else self.k2_before_

    @property
    def floor_reached_(self) -> bool:
        """Whether the loop ended above alpha because no patch was left that helps (and is significant)."""
        self._check_fitted()
        return bool(self.k2_after_ > self.alpha)

    def history(self) -> list[Patch]:
        """The patches in the order in which they were made."""
        self._check_fitted()
        return [Patch(*row) for row in self.history_.tolist()]


@recalibrator("one-shot-patching")
class OneShotPatching(_LevelMap):
    r"""Every level at once to the mean outcome where it was predicted: f'(x) = c(f(x)). Predictions in [0, 1].

    On the sample K2 becomes 0 and the squared error falls by exactly the old K2. Off the sample it costs the noise of
    each mean, together about m / (6 n) for m levels and n events: worse than doing nothing when the gaps are smaller
    than that (see :class:`Patching` and its ``significance``).

    ``levels=None``: the distinct predictions; ``levels=m``: predictions rounded to the nearest of 0, 1/m, ..., 1
    first (the means are not rounded). Fitted: ``values_``, ``patched_``, ``k2_before_``. A score that the sample did
    not hold maps to what the nearest level does (half way: the lower one). Source: Roth, Uncertain.

    >>> OneShotPatching().fit([0.3, 0.3, 0.8, 0.8] * 5, [0, 1, 1, 1] * 5).predict([0.3, 0.55, 0.8]).tolist()
    [0.5, 0.5, 1.0]
    """

    settings = ("levels",)
    fitted = ("values_", "patched_", "k2_before_")
    k2_before_: float

    def __init__(self, levels: int | None = None) -> None:
        self.levels = check_levels(levels)

    def _fit(self, p: Array, y: Array, w: Array) -> None:
        values, n, s = self._sums(p, y, w)
        seen = n > 0
        warn_if_thin(n[seen], "levels=20", 4)
        self.values_, self.patched_ = values[seen], s[seen] / n[seen]
        self.k2_before_ = k2_of(values[seen], n[seen], s[seen])


def check_alpha(alpha: float) -> float:
    """``alpha`` as a float; ValueError unless 0 <= alpha <= 1."""
    if isinstance(alpha, bool) or not isinstance(alpha, int | float | np.number) or not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must lie in [0, 1], got {alpha!r}")
    return float(alpha)


def check_levels(levels: int | None) -> int | None:
    """``levels`` as an int or None; ValueError unless it is None or a whole number of steps."""
    if levels is None:
        return None
    check_whole("levels", levels, 1, FINEST)
    return int(levels)


def warn_if_thin(n: Array, remedy: str, depth: int) -> None:
    """Warn where levels of these weights hold so few events that what they tell is mostly noise."""
    if n.sum() < FEW * n.size:
        message = f"{n.size} levels hold {n.sum() / n.size:.3g} events each on average: patches are mostly noise; pass {remedy}"
        warnings.warn(message, CalibrationWarning, stacklevel=depth)


def levels_of(p: Array) -> tuple[Array, Ints]:
    """(distinct values, which of them each prediction is)."""
    values, row = np.unique(p, return_inverse=True)
    return values, row.astype(np.int64)


def on_grid(p: Array, m: int) -> tuple[Array, Ints]:
    """(the levels 0, 1/m, ..., 1, which of them each prediction is nearest to)."""
    grid = Grid(m)
    return grid.levels, grid.rows(p)


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
# n and s of all levels, and a tournament over them: leaf k of `gain` is what patching level k takes off the summed
# squared error, each node above holds the larger of its two children, so the root is the best and a walk down finds
# it. `error` is the same tree with sums: its root is n K2, without the drift that subtracting as we go would bring.


def patches(values: Array, n: Array, s: Array, alpha: float, m: int, radius: float) -> Array:
    """Patch until K2 <= alpha or nothing helps: the rows of ``history_``. ``m`` 0: patch values are not rounded."""
    leaves = 1 << (values.size - 1).bit_length()
    history = np.zeros((values.size, 5))
    tree = np.zeros((2, 2 * leaves))
    done = patch_until(alpha, values, n.copy(), s.copy(), float(m), radius, tree[0], tree[1], history)
    return history[:done].copy()


@kernel
def patch_until(
    alpha: float, values: Array, n: Array, s: Array, m: float, radius: float, gain: Array, error: Array, history: Array
) -> int:
    """The loop of this file. Writes one row of ``history`` a patch and returns how many there are."""
    total = 0.0
    for k in range(values.shape[0]):
        total += n[k]
        weigh(k, values, n, s, m, radius, gain, error)
    done = 0
    # A level that has moved leaves nothing behind that could move again, so there are never more patches than levels.
    while error[1] / total > alpha and gain[1] > 0.0 and done < history.shape[0]:
        v = best(gain)
        to = patch_value(s[v] / n[v], m)
        history[done, 0], history[done, 1] = values[v], to
        history[done, 2], history[done, 3] = n[v] / total, gain[1] / total
        there = find(values, to, ROUNDING)
        if there >= 0:
            n[there] += n[v]
            s[there] += s[v]
        n[v] = s[v] = 0.0
        weigh(v, values, n, s, m, radius, gain, error)
        if there >= 0:  # elsewhere nothing waits and no gap is left
            weigh(there, values, n, s, m, radius, gain, error)
        history[done, 4] = error[1] / total
        done += 1
    return done


@inlined
def patch_value(c: float, m: float) -> float:
    """The mean itself, or the nearest of the levels i / m by the rule of :class:`streamcal.Grid`."""
    return uniform_row(c, m, 0.5, 2.0, -1.0, 2.0 * m, m) / m if m > 0.0 else c


@kernel
def weigh(k: int, values: Array, n: Array, s: Array, m: float, radius: float, gain: Array, error: Array) -> None:
    """Write level k's part of the error, and what its patch would gain, into both trees."""
    most = wrong = 0.0
    if n[k] > 0.0:
        c = s[k] / n[k]
        gap, rest = abs(values[k] - c), abs(patch_value(c, m) - c)
        wrong = n[k] * gap * gap
        rounded = 0.5 / m if m > 0.0 else 0.0  # so far a prediction may lie from its level
        if gap - rest > ROUNDING and gap > (radius / math.sqrt(n[k]) + rounded if radius > 0.0 else 0.0):
            most = n[k] * (gap * gap - rest * rest)
    put(error, k, wrong)
    node = gain.shape[0] // 2 + k
    gain[node] = most
    while node > 1:
        node //= 2
        gain[node] = max(gain[2 * node], gain[2 * node + 1])


@kernel
def put(tree: Array, k: int, x: float) -> None:
    """Set leaf k of a tree of sums, and the sums above it."""
    node = tree.shape[0] // 2 + k
    tree[node] = x
    while node > 1:
        node //= 2
        tree[node] = tree[2 * node] + tree[2 * node + 1]


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
