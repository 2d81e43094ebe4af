"""Patching of quantile forecasts: the same loop with means replaced by quantiles and squared error by pinball loss.

::

    while Q2 > alpha:
        v  = the level whose patch lowers the pinball loss most
        v' = the smallest v' with P(y <= v' | f = v) >= q
        everything predicted v is predicted v' from now on; if v' was a level already, the two are one
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal._jit import kernel
from streamcal.arrays import Array, check_same_index, numbers
from streamcal.binning import Levels
from streamcal.claims import check_level
from streamcal.recalibrate.patching import check_alpha, finally_at, levels_of, nearest, put, warn_if_thin
from streamcal.recalibrate.recalibrator import is_rising
from streamcal.state import Document, restorable
from streamcal.tally import MAX_WEIGHT

NAMES = ("values_", "patched_", "history_", "q2_before_", "q2_after_")
TARGET, GAIN, MASS, BELOW, COVERED = range(5)  # what `weigh` finds out about a level
TINY = 1e-300
ROUNDING = 1e-12  # of a share of the weight
LARGEST = 1e200  # of a forecast or outcome, so that sums of weighted losses stay finite


class QuantilePatch(NamedTuple):
    """One step: ``level`` became ``value``, with its share ``mass`` of all events; what pinball loss lost, what is left."""

    level: float
    value: float
    mass: float
    decrease: float
    q2_after: float


@restorable
class QuantilePatching(Document):
    r"""Greedy patching of forecasts of the ``level``-quantile, until Q2 <= alpha. Forecasts and outcomes are real numbers.

    .. math:: Q_2 = \sum_v P(v) \left( q - P(y \le v \mid f = v) \right)^2

    A patch never raises the pinball loss. If the outcomes at v have a distribution function F with
    :math:`|F(a) - F(b)| \le \rho |a - b|`, it lowers it by at least :math:`P(v)\, \delta^2 / (2 \rho)`,
    :math:`\delta = |F(v) - q|`; uniform outcomes reach that bound. A level is patched at most once, so there are at most
    as many patches as levels. Where outcomes tie, F jumps past q and a gap as large as the atom can stay: the
    loop ends when no level is better elsewhere, and ``floor_reached_`` says that this was above alpha.

    ``levels=None``: the distinct forecasts of the sample. Continuous forecasts give every level one event, and every
    forecast becomes its own outcome: then declare some ``levels`` (any real numbers; a forecast belongs to the nearest
    one, half way to the lower, as in :class:`streamcal.Levels`). Patch values are outcomes, not rounded to a level.
    Weights count as repetition. The noise of a level's quantile is learned too: have some 100 events a level.

    Fitted: ``history_`` (patches, 5), see :meth:`history`; ``values_`` the levels of the sample, ``patched_`` what each
    finally maps to; ``q2_before_``, ``q2_after_`` on the sample, the first of the forecasts rounded to their levels.
    ``predict`` of a forecast that the sample did not hold: what the nearest level of the sample maps to (half way: the
    lower one). Source: Roth, Uncertain: Modern Topics in Uncertainty Estimation.

    >>> patching = QuantilePatching(0.5, alpha=0.001).fit([1, 1, 1, 1, 5, 5, 5, 5] * 3, [2, 3, 4, 9, 1, 5, 8, 9] * 3)
    >>> patching.history()
    [QuantilePatch(level=1.0, value=3.0, mass=0.5, decrease=0.375, q2_after=0.0)]
    >>> patching.predict([0, 1, 3, 5, 9]).tolist()
    [3.0, 3.0, 3.0, 5.0, 5.0]
    """

    values_: Array
    patched_: Array
    history_: Array
    q2_before_: float
    q2_after_: float

    def __init__(self, level: float, alpha: float = 1e-4, levels: npt.ArrayLike | None = None) -> None:
        self.level = float(check_level(level))
        self.alpha = check_alpha(alpha)
        self.levels = None if levels is None else Levels(levels).values

    def __repr__(self) -> str:
        levels = None if self.levels is None else list(self.levels)
        return f"QuantilePatching(level={self.level}, alpha={self.alpha}, levels={levels})"

    def fit(self, v: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> QuantilePatching:
        """Learn from n forecasts and outcomes; returns self. ValueError names the first value that is not allowed."""
        forecasts, outcomes, weights = _checked(v, y, sample_weight)
        values, row = levels_of(self._place(forecasts))
        order = np.lexsort((outcomes, row))
        warn_if_thin(
            np.bincount(row, weights, values.size).astype(np.float64), "levels=[...], forecasts to round to", 3
        )
        starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=values.size))])
        loop = _Loop(self.level, values, outcomes[order], weights[order], starts)
        self.values_, self.q2_before_ = values, loop.q2
        self.history_ = loop.run(self.alpha)
        self.patched_, self.q2_after_ = finally_at(values, self.history_, 0.0), loop.q2
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

    @property
    def floor_reached_(self) -> bool:
        """Whether the loop ended above alpha because no patch was left that helps."""
        self._check_fitted()
        return bool(self.q2_after_ > self.alpha)

    def history(self) -> list[QuantilePatch]:
        """The patches in the order in which they were made."""
        self._check_fitted()
        return [QuantilePatch(*row) for row in self.history_.tolist()]

    def _check_fitted(self) -> None:
        if not hasattr(self, "values_"):
            raise ValueError("QuantilePatching is not fitted; call fit(v, y) first")

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        config = {"level": self.level, "alpha": self.alpha, "levels": self.levels and list(self.levels)}
        return config, {name: np.asarray(getattr(self, name), np.float64) for name in NAMES if hasattr(self, name)}

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Array]) -> QuantilePatching:
        made = cls(**config)
        if arrays:
            for name in NAMES:
                setattr(made, name, arrays[name] if arrays[name].ndim else float(arrays[name]))
            tables = is_rising(made.values_) and np.shape(made.patched_) == made.values_.shape
            if (
                not tables
                or np.shape(made.history_)[1:] != (5,)
                or not all(np.isfinite(a).all() for a in arrays.values())
            ):
                raise ValueError(f"these fitted values are none that a QuantilePatching can have: {arrays!r:.200}")
        return made


def _finite(name: str, values: npt.ArrayLike) -> Array:
    array = numbers(name, values, strict=True)
    bad = np.flatnonzero(~(np.abs(array) <= LARGEST).reshape(-1))
    if bad.size:
        raise ValueError(
            f"{name} must be finite and within +-{LARGEST:g}, got {array.reshape(-1)[bad[0]]} at index {bad[0]}"
        )
    return array


def _checked(v: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None) -> tuple[Array, Array, Array]:
    """(v, y, w) of shape (n,), those without weight left out; ValueError names the first value that is not allowed."""
    check_same_index(v, y, sample_weight)
    forecasts, outcomes = _finite("v", v), _finite("y", y)
    weights = np.ones_like(forecasts) if sample_weight is None else _finite("sample_weight", sample_weight)
    for name, values in (("y", outcomes), ("sample_weight", weights)):
        if forecasts.ndim != 1 or values.shape != forecasts.shape:
            raise ValueError(f"v and {name} must both have shape (n,), got {forecasts.shape} and {values.shape}")
    bad = np.flatnonzero((weights < 0.0) | (weights > MAX_WEIGHT))
    if bad.size:
        raise ValueError(f"sample_weight must lie in [0, {MAX_WEIGHT:g}], got {weights[bad[0]]} at index {bad[0]}")
    used = weights > 0.0
    if not used.any():
        raise ValueError(f"fit needs at least one event of positive weight, got {forecasts.size} events")
    return forecasts[used] + 0.0, outcomes[used] + 0.0, weights[used]  # + 0.0 turns -0.0 into 0.0


class _Loop:
    """The loop. A slot is a value that is predicted now: the levels of the sample first, then the new values.

    A level into which another one merged keeps the gain it had: the newcomers are best off where they came to, so
    the gain can only have fallen. What stands at the top of the heap is weighed again before it is believed.
    What has moved stays: at its new value it is best off, and so is all that joins it there later.
    """

    def __init__(self, q: float, values: Array, y: Array, w: Array, starts: npt.NDArray[np.int64]) -> None:
        table = np.zeros((values.size, 5))
        weigh_all(q, values, y, w, starts.astype(np.float64), table)
        cuts = zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        self.q, self.values, self.table = q, values, table
        self.waiting = {k: [(y[a:b], w[a:b])] for k, (a, b) in enumerate(cuts)}  # of levels that have not moved
        self.slots = {value: k for k, value in enumerate(values.tolist())}
        self.mass, self.below = table[:, MASS].tolist(), table[:, BELOW].tolist()
        self.heap = [(-gain, k) for k, gain in enumerate(table[:, GAIN].tolist()) if gain > 0.0]
        heapify(self.heap)
        self.stale: set[int] = set()
        self.total = float(sum(self.mass))
        self.error = np.zeros(2 << (2 * values.size - 1).bit_length())  # a patch makes at most one new slot
        for k in range(values.size):
            self._count(k)

    @property
    def q2(self) -> float:
        return float(self.error[1]) / self.total

    def run(self, alpha: float) -> Array:
        """Patch until Q2 <= alpha or nothing helps: the rows of ``history_``."""
        history = []
        while self.heap and self.q2 > alpha:
            gain, k = heappop(self.heap)
            if k in self.stale:
                self._weigh_again(k)
            else:
                mass, value = self.mass[k], self._move(k)
                history.append((self.values[k], value, mass / self.total, -gain / self.total, self.q2))
        return np.array(history, dtype=np.float64).reshape(-1, 5)

    def _move(self, k: int) -> float:
        value, covered = self.table[k, TARGET].item(), self.table[k, COVERED].item()
        there = self.slots.setdefault(value, len(self.mass))
        if there == len(self.mass):
            self.mass.append(0.0)
            self.below.append(0.0)
        self.mass[there] += self.mass[k]
        self.below[there] += covered
        self.mass[k] = self.below[k] = 0.0
        outcomes = self.waiting.pop(k)
        if there in self.waiting:
            self.waiting[there] += outcomes
            self.stale.add(there)
        self._count(k)
        self._count(there)
        return float(value)

    def _weigh_again(self, k: int) -> None:
        y, w = (np.concatenate(parts) for parts in zip(*self.waiting[k], strict=True))
        order = np.argsort(y, kind="stable")
        self.waiting[k] = [(y[order], w[order])]
        weigh(self.q, self.values[k], *self.waiting[k][0], 0, y.size, self.table[k])
        self.stale.remove(k)
        if (gain := self.table[k, GAIN].item()) > 0.0:
            heappush(self.heap, (-gain, k))

    def _count(self, slot: int) -> None:
        mass = self.mass[slot]
        put(self.error, slot, mass * (self.below[slot] / mass - self.q) ** 2 if mass else 0.0)


@kernel
def weigh_all(q: float, values: Array, y: Array, w: Array, starts: Array, table: Array) -> None:
    """:func:`weigh` for each level, whose outcomes are ``y[starts[k] : starts[k + 1]]``, sorted."""
    for k in range(values.shape[0]):
        weigh(q, values[k], y, w, int(starts[k]), int(starts[k + 1]), table[k])


@kernel
def weigh(q: float, v: float, y: Array, w: Array, start: int, stop: int, out: Array) -> None:
    """Patch value of a level, the summed pinball loss it saves, the weight, that of y <= v, and of y <= patch value."""
    mass = under = below = 0.0
    for i in range(start, stop):
        mass += w[i]
        under += w[i] if y[i] < v else 0.0
        below += w[i] if y[i] <= v else 0.0
    target, covered, i = y[start], 0.0, start
    # quotients: 7 of 100 are 0.07, but 0.07 * 100 > 7; and sums of tenths fall short of it by their rounding
    while i < stop and (covered / mass < q - ROUNDING or y[i] == target):
        target = y[i]
        covered += w[i]
        i += 1
    gain = 0.0
    if (
        not under / mass - ROUNDING <= q <= below / mass + ROUNDING
    ):  # else v is a q-quantile itself: no other value has less loss
        low, high, sign = min(v, target), max(v, target), 1.0 if v < target else -1.0
        for i in range(start, stop):  # loss at low - loss at high
            inner = min(max(y[i], low), high)
            gain += w[i] * (q * (inner - low) - (1.0 - q) * (high - inner))
        gain = max(sign * gain, TINY)  # also where the gain is lost in the rounding of the losses
    out[TARGET], out[GAIN], out[MASS], out[BELOW], out[COVERED] = target, gain, mass, below, covered
