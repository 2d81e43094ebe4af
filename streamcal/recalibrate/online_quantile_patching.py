"""Patching of quantile forecasts while the events come: a row whose coverage is wrong is shifted to where it is right.

::

    every so many events, one change at a time, the one that lowers the pinball loss in the window most:
        a row that is wrong, while Q2 of what is served > alpha:  shift its forecasts by the q-quantile of its y - v in the window
        a shifted row that is right again without its shift:      serve the raw forecasts (it has recovered)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array
from streamcal.binning import Edges
from streamcal.claims import Quantile, check_level
from streamcal.recalibrate.online import online
from streamcal.recalibrate.patch_history import (
    AFTER,
    ALPHA,
    BEFORE,
    DECREASE,
    DOUBT,
    EVERY,
    PATCHES,
    RECOVERED,
    STAYS,
    TIME,
    WithPatches,
    ours,
    rows_of,
    verdict,
    write_down,
)
from streamcal.recalibrate.patching import check_alpha
from streamcal.recalibrate.quantile_tracking import FARTHEST, RealForecasts, real
from streamcal.rows import OUTSIDE, row
from streamcal.tally import AUX, CELLS, LEVELS, MAX_WEIGHT, WY, W, admit
from streamcal.windows import Sliding
from streamcal.windows.sliding import FILLED, RING, STATES, slide


class OnlineQuantilePatch(NamedTuple):
    """One change of a row, with its evidence. ``str`` says it in one line.

    At ``time`` (events learned) the forecasts in (``low``, ``high``] began to be served with ``shift`` added (nan: none again).
    In the window, ``events`` (their effective number) with the share ``mass`` of its weight, what had been served ``covered``
    this share of the outcomes, which was off the level by ``gap``; chance explains ``radius``. The change took ``decrease`` off
    the pinball loss in the window, and Q2 from ``q2_before`` to ``q2_after``.
    """

    time: float
    low: float
    high: float
    shift: float
    covered: float
    events: float
    mass: float
    gap: float
    radius: float
    decrease: float
    q2_before: float
    q2_after: float

    @property
    def recovered(self) -> bool:
        """Whether a shift was taken back."""
        return math.isnan(self.shift)

    def __str__(self) -> str:
        change = "recovered" if self.recovered else f"shifted by {self.shift:+.3g}"
        return (
            f"event {self.time:.0f}: forecasts in ({self.low:g}, {self.high:g}] {change} (covered {self.covered:.2f}, not "
            f"{self.covered - self.gap:g} +- {self.radius:.2f}, in {self.events:.0f} events, "
            f"Q2 {self.q2_before:.4f} -> {self.q2_after:.4f})"
        )


# ---------------------------------------------------------------------------- what a row serves, and how wrong it is
# `shift` is the patch of a row: what is added to its forecasts, nan where nothing is.


@inlined
def shifted(v: float, shift: float) -> float:
    """What is served for the forecast v."""
    return float(v + shift if shift == shift else v)


@inlined
def served(buf: Array, v: float) -> float:
    """What is served for the forecast v in its row; nan if v is not allowed."""
    return shifted(v, buf[ours(buf) + PATCHES + row(buf, v)]) if real(v) else np.nan


@inlined
def ring_of(buf: Array) -> tuple[int, int]:
    """(where the events in the window begin, where they end): forecast, outcome and weight of each, side by side."""
    state = 3 * int(buf[AUX]) - 2 * int(buf[CELLS])
    first = state + STATES
    return first, first + 3 * int(buf[state + FILLED]) if buf[state + RING] == 0.0 else first


@kernel
def cover(buf: Array, covered: Array, raw: Array) -> None:
    """Write the weight of the outcomes of each row in the window that what is served now covers, and that the forecasts do.

    Both are in the window's sums where nothing is shifted. The events are read only for shifted rows; then for both, so that
    the same outcomes have the same weight to the last bit.
    """
    rows, shifts = rows_of(buf)
    any_shift = False
    for r in range(shifts.shape[0]):
        is_shifted = shifts[r] == shifts[r]
        covered[r] = raw[r] = 0.0 if is_shifted else rows[r, WY]
        any_shift |= is_shifted
    first, end = ring_of(buf)
    for i in range(first, end if any_shift else first, 3):
        r, v, hit, _clipped = admit(buf, buf[i], buf[i + 1], buf[i + 2])
        if r != OUTSIDE and shifts[r] == shifts[r]:
            covered[r] += buf[i + 2] if buf[i + 1] <= v + shifts[r] else 0.0
            raw[r] += buf[i + 2] * hit


@kernel
def q2_of(rows: Array, covered: Array, level: float) -> tuple[float, float]:
    """(Q2, weight of all rows); Q2 is 0 where nothing weighs."""
    error, total = 0.0, 0.0
    for r in range(covered.shape[0]):
        if rows[r, W] > 0.0:
            gap = covered[r] - level * rows[r, W]
            error += gap * gap / rows[r, W]
            total += rows[r, W]
    return (error / total if total > 0.0 else 0.0), total


# ---------------------------------------------------------------------------- what a row should serve


@kernel
def best_shift(buf: Array, wanted: int, weight: float, level: float) -> float:
    """The least y - v of a row in the window that, added to all its forecasts, covers the share ``level`` of its outcomes."""
    first, end = ring_of(buf)
    excess, place, n = np.empty((end - first) // 3), np.empty((end - first) // 3, np.int64), 0
    for i in range(first, end, 3):
        if buf[i + 2] > 0.0 and admit(buf, buf[i], buf[i + 1], buf[i + 2])[0] == wanted:
            excess[n], place[n] = buf[i + 1] - buf[i], i
            n += 1
    if n == 0:  # only in a document that was tampered with
        return np.nan
    reached, k, order = 0.0, 0, np.argsort(excess[:n], kind="mergesort")
    while k < n - 1 and (reached + buf[place[order[k]] + 2]) / weight < level:
        reached += buf[place[order[k]] + 2]
        k += 1
    i = place[order[k]]
    return covering(buf[i], buf[i + 1])


@inlined
def covering(v: float, y: float) -> float:
    """y - v, an ulp or two more where v + (y - v) is rounded below y: the outcome that decides must be covered."""
    shift = min(max(y - v, -FARTHEST), FARTHEST)
    for _ in range(4):
        shift = np.nextafter(shift, np.inf) if v + shift < y else shift
    return min(shift, FARTHEST)


@inlined
def pinball(v: float, y: float, level: float) -> float:
    """Pinball loss of the forecast v."""
    return (y - v) * level if y >= v else (v - y) * (1.0 - level)


@kernel
def saved(buf: Array, wanted: int, old: float, new: float, level: float) -> float:
    """What another shift takes off the summed pinball loss of a row in the window."""
    first, end = ring_of(buf)
    total = 0.0
    for i in range(first, end, 3):
        v, y, w = buf[i], buf[i + 1], buf[i + 2]
        if w > 0.0 and admit(buf, v, y, w)[0] == wanted:
            total += w * (pinball(shifted(v, old), y, level) - pinball(shifted(v, new), y, level))
    return total


@kernel
def best_change(buf: Array, covered: Array, raw: Array, level: float, too_wrong: bool) -> tuple[int, float, float]:
    """(row, its new shift, what that takes off the summed pinball loss) of the best change; the last is 0 if there is none."""
    rows, shifts = rows_of(buf)
    best, best_value, most = 0, np.nan, 0.0
    for r in range(shifts.shape[0]):
        weight, is_shifted = rows[r, W], shifts[r] == shifts[r]
        if weight > 0.0 and (too_wrong or is_shifted):
            gap, raw_gap = covered[r] - level * weight, raw[r] - level * weight
            found = verdict(gap, raw_gap, rows, r, is_shifted, too_wrong, buf[ours(buf) + DOUBT])
            if found != STAYS:
                shift = np.nan if found == RECOVERED else best_shift(buf, r, weight, level)
                decrease = saved(buf, r, shifts[r], shift, level)
                if decrease > most:
                    best, best_value, most = r, shift, decrease
    return best, best_value, most


@kernel
def patch_rows(buf: Array) -> None:
    """The loop of this file. It changes a row once at most, so it ends."""
    rows, shifts = rows_of(buf)
    level, covered, raw = buf[int(buf[LEVELS])], np.empty(shifts.shape[0]), np.empty(shifts.shape[0])
    cover(buf, covered, raw)
    q2, total = q2_of(rows, covered, level)
    for _ in range(shifts.shape[0]):
        r, shift, decrease = best_change(buf, covered, raw, level, q2 > buf[ours(buf) + ALPHA])
        if decrease <= 0.0:
            return
        share = covered[r] / rows[r, W]
        note = write_down(buf, r, shift, share, share - level, total)
        shifts[r] = shift
        note[DECREASE], note[BEFORE] = decrease / total, q2
        cover(buf, covered, raw)
        q2, total = q2_of(rows, covered, level)
        note[AFTER] = q2


# ---------------------------------------------------------------------------- one event, many events


@inlined
def learn(buf: Array, v: float, y: float, w: float) -> None:
    """Take in an event that is allowed and has weight; then patch, every so many events."""
    own = ours(buf)
    slide(buf, v, y, w, 0)
    buf[own + TIME] += 1.0
    if int(buf[own + TIME]) % int(buf[own + EVERY]) == 0:
        patch_rows(buf)


@brief
def quantile_patching_predict(buf: Array, v: float) -> float:
    """See :class:`OnlineQuantilePatching`; nan if v is not allowed."""
    return served(buf, v)


@brief
def quantile_patching_learn(buf: Array, v: float, y: float, w: float) -> float:
    """Predict, then learn; nan if the event is not allowed."""
    q = served(buf, v) if real(y) and 0.0 <= w <= MAX_WEIGHT else np.nan
    if q == q and w > 0.0:
        learn(buf, v, y, w)
    return q


@kernel
def quantile_patching_run(buf: Array, v: Array, y: Array, w: Array, out: Array) -> None:
    """Predict and learn many events in order."""
    for i in range(v.shape[0]):
        out[i] = served(buf, v[i])
        if w[i] > 0.0:
            learn(buf, v[i], y[i], w[i])


@online("quantile-patching")
class OnlineQuantilePatching(RealForecasts, WithPatches):
    r"""Rows of quantile forecasts whose coverage is wrong are shifted until they are right again; every change is written down.

    The rows are those of the window's binning: ``Levels`` (a forecast belongs to the nearest) or ``Edges`` from -inf to inf. A
    row serves its forecasts v as they are, or v + s. With q = ``level``, over the events in the window, W the weight of a row,

    .. math:: Q_2 = \sum_{\text{rows}} \frac{W}{\sum W} g^2, \quad g = P(y \le \text{served}) - q, \qquad
              s = \min \{ y_i - v_i : P(y \le v + y_i - v_i) \ge q \}

    Every ``every`` events, as long as one of these lowers the pinball loss in the window, the one that lowers it most is done:
    *patch*: while Q2 > alpha, a row whose gap is significant (as in :class:`OnlinePatching`, at a = significance / rows) is
    shifted by s from now on; *recover*: at any Q2, a shifted row whose raw gap is not above its gap and not significant serves v.
    In a row of one level, v + s is the q-quantile of its outcomes: the textbook patch. In a wide row the forecasts keep their
    differences.

    ``alpha`` in [0, 1], default 1e-4: one percentage point squared. ``window``: a ``Sliding`` with the claim ``Quantile(level)``,
    since a quantile needs the events themselves; default 5,000 events in one row. ``remember`` 1..100,000: how many changes
    history holds. v and y in [-1e100, 1e100]. ``w`` is a weight in all shares; in the evidence a weight of 2 is one event.

    Guaranteed: at each change the pinball loss in the window falls, by ``decrease``; a row is changed at most once a look. NOT
    guaranteed: Q2 <= alpha (a gap that is not significant stays, and where outcomes tie, one as large as the atom); that no
    right row is ever patched: each look has error a a row, and there are many looks.

    Cost O(1) an event; at a look O(rows), O(size) where a row is shifted, O(size log size) where one changes. Source: Roth,
    Uncertain: Modern Topics in Uncertainty Estimation; the shift and the recovery are ours.

    >>> map = OnlineQuantilePatching(0.5)
    >>> _ = map.run([0.0] * 200, [1, 2, 3, 4] * 50)
    >>> for patch in map.history():
    ...     print(patch)
    event 100: forecasts in (-inf, inf] shifted by +2 (covered 0.00, not 0.5 +- 0.15, in 100 events, Q2 0.2500 -> 0.0000)
    >>> map.predict_one(10.0), map.patches
    (12.0, {(-inf, inf): 2.0})
    """

    settings = ("level", "alpha", "window", "significance", "every", "remember")
    span = (-FARTHEST, FARTHEST)
    _predict, _learn, _run = quantile_patching_predict, quantile_patching_learn, quantile_patching_run

    def __init__(
        self,
        level: float = 0.9,
        alpha: float = 1e-4,
        window: Sliding | None = None,
        significance: float = 0.05,
        every: int = 100,
        remember: int = 1000,
    ) -> None:
        self.level, self.alpha = check_level(level), check_alpha(alpha)
        claim = Quantile(self.level)
        window = Sliding(Edges([-math.inf, math.inf]), 5000, claim=claim) if window is None else window
        if not isinstance(window, Sliding):
            raise ValueError(f"window must be a Sliding: a quantile needs the events themselves, got {window!r:.100}")
        edges = window.binning.fine_edges("real")
        if window.binning.domain != "real" or not edges[0] == -math.inf or not edges[-1] == math.inf:
            raise ValueError(f"window must have Levels, or Edges from -inf to inf, got {window.binning!r:.100}")
        self._start(window, claim, significance, every, remember)

    @property
    def q2(self) -> float:
        """Q2 in the window of what is served now; 0 before any event."""
        rows, shifts = rows_of(self._buf)
        covered = np.empty(shifts.size)
        cover(self._buf, covered, np.empty(shifts.size))
        return float(q2_of(rows, covered, self.level)[0])

    @property
    def patches(self) -> dict[tuple[float, float], float]:
        """The rows (low, high] that are shifted now, and by how much."""
        edges = self.window.binning.edges.tolist()
        spans = zip(edges[:-1], edges[1:], self._patch_values(), strict=True)
        return {(low, high): shift for low, high, shift in spans if shift == shift}

    def history(self) -> list[OnlineQuantilePatch]:
        """The last ``remember`` changes, oldest first."""
        edges = self.window.binning.edges.tolist()
        notes = self._notes(self._own).tolist()
        return [OnlineQuantilePatch(t, edges[int(r)], edges[int(r) + 1], *rest) for t, r, *rest in notes]
