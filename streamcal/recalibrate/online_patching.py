"""Patching while the events come: a level that the window shows to be wrong is set to what really happened there.

::

    after each event, one change at a time, the one that lowers the squared error in the window most:
        a level that is wrong, while K2 of what is served > alpha:  serve c(v), its mean outcome in the window
        a patched level that is right again without its patch:      serve the raw prediction (it has recovered)
    and write down what was changed, when, and on what evidence

A level is wrong if its gap is significant: larger than the noise of its events explains. Without that the loop would learn the
noise of every level, again and again; with it a calibrated stream is left alone (see :mod:`streamcal.recalibrate.patching`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, check_whole
from streamcal.binning import Grid
from streamcal.claims import Mean
from streamcal.recalibrate.online import allowed, online
from streamcal.recalibrate.patch_history import (
    AFTER,
    ALPHA,
    BEFORE,
    DECREASE,
    DOUBT,
    EVERY,
    KIND,
    PATCHES,
    RECOVERED,
    STAYS,
    TIME,
    WRONG,
    WithPatches,
    least_weight,
    ours,
    rows_of,
    verdict,
    write_down,
)
from streamcal.recalibrate.patching import FINEST, check_alpha
from streamcal.recalibrate.windowed import take_in
from streamcal.rows import row
from streamcal.tally import WP, WPP, WPY, WW, WY, W, unit
from streamcal.windows import Cumulative, Window


class OnlinePatch(NamedTuple):
    """One change of a level, with its evidence. ``str`` says it in one line.

    At ``time`` (events learned) ``level`` began to serve ``value`` (nan: the raw prediction again). In the window, ``events``
    (their effective number) with the share ``mass`` of its weight, it had ``said`` this on average, which was off by ``gap``;
    chance explains ``radius``. The change took ``decrease`` off the squared error in the window, and K2 from ``k2_before`` to
    ``k2_after``.
    """

    time: float
    level: float
    value: float
    said: float
    events: float
    mass: float
    gap: float
    radius: float
    decrease: float
    k2_before: float
    k2_after: float

    @property
    def was(self) -> float:
        """Mean outcome of the level in the window."""
        return self.said + self.gap

    @property
    def recovered(self) -> bool:
        """Whether a patch was taken back."""
        return math.isnan(self.value)

    def __str__(self) -> str:
        change = "recovered" if self.recovered else f"-> {self.value:.2f}"
        return (
            f"event {self.time:.0f}: level {self.level:g} {change} (said {self.said:.2f}, was {self.was:.2f} "
            f"+- {self.radius:.2f} in {self.events:.0f} events, K2 {self.k2_before:.4f} -> {self.k2_after:.4f})"
        )


# ---------------------------------------------------------------------------- what a level serves, and how wrong it is
# A level is a row of the window. `patch` is what it serves, nan where that is the raw prediction.


@inlined
def served(buf: Array, p: float) -> float:
    """The patch of the level of p, or p itself where there is none; nan stays nan."""
    level = row(buf, p)
    patch = buf[ours(buf) + PATCHES + level] if level >= 0 else p
    return float(patch if patch == patch else p)


@inlined
def summed_gap(rows: Array, level: int, patch: float) -> float:
    """Weight * gap of a level, had it served this all through the window."""
    return float(rows[level, WY] - (patch * rows[level, W] if patch == patch else rows[level, WP]))


@inlined
def summed_squares(rows: Array, level: int, patch: float) -> float:
    """Squared errors of a level, had it served this all through the window; less sum w y^2, which nothing changes."""
    if patch == patch:
        return float(patch * (patch * rows[level, W] - 2.0 * rows[level, WY]))
    return float(rows[level, WPP] - 2.0 * rows[level, WPY])


@inlined
def may_change(rows: Array, level: int, patch: float, gap: float, doubt: float) -> bool:
    """Whether a verdict other than STAYS is possible: the gap exceeds the least that any radius can be, or the patch is no
    better than none. Most levels at most events are spared the logarithm in the radius by this.
    """
    if patch == patch and abs(summed_gap(rows, level, np.nan)) <= abs(gap):
        return True
    return bool(4.0 * gap * gap > doubt * rows[level, WW])


# ---------------------------------------------------------------------------- the loop


@kernel
def first_to_change(buf: Array) -> int:
    """The first level that may change, their number if there is none: after most events that is all there is to do."""
    rows, patches = rows_of(buf)
    least, doubt = least_weight(buf), buf[ours(buf) + DOUBT]
    for level in range(patches.shape[0]):
        if rows[level, W] > least:
            patch = patches[level]
            gap = summed_gap(rows, level, patch)
            if may_change(rows, level, patch, gap, doubt) and changes(rows, level, patch, gap, doubt):
                return level
    return int(patches.shape[0])


@inlined
def changes(rows: Array, level: int, patch: float, gap: float, doubt: float) -> bool:
    """Whether its sums speak for a change of this level, if K2 allows one."""
    return verdict(gap, summed_gap(rows, level, np.nan), rows, level, patch == patch, True, doubt) != STAYS


@kernel
def k2_served(buf: Array) -> tuple[float, float]:
    """(K2 of what is served, weight of all levels); K2 is 0 where nothing weighs."""
    rows, patches = rows_of(buf)
    least, error, total = least_weight(buf), 0.0, 0.0
    for level in range(patches.shape[0]):
        weight = rows[level, W]
        if weight > least:
            gap = summed_gap(rows, level, patches[level])
            error += gap * gap / weight
            total += weight
    return (error / total if total > 0.0 else 0.0), total


@inlined
def better(rows: Array, level: int, patch: float, too_wrong: bool, doubt: float) -> float:
    """What a level should serve; what it serves if that is right."""
    gap, raw = summed_gap(rows, level, patch), summed_gap(rows, level, np.nan)
    found = verdict(gap, raw, rows, level, patch == patch, too_wrong, doubt)
    if found == RECOVERED:
        return np.nan
    if found == WRONG:
        return float(min(max(rows[level, WY] / rows[level, W], 0.0), 1.0))
    return patch


@kernel
def best_change(buf: Array, first: int, too_wrong: bool) -> tuple[int, float, float]:
    """(level, its new patch, what that takes off the summed squared error) of the best change; the last is 0 if there is none."""
    rows, patches = rows_of(buf)
    least, doubt = least_weight(buf), buf[ours(buf) + DOUBT]
    best, best_patch, most = 0, np.nan, 0.0
    for level in range(first, patches.shape[0]):
        patch = patches[level]
        if rows[level, W] > least and may_change(rows, level, patch, summed_gap(rows, level, patch), doubt):
            other = better(rows, level, patch, too_wrong, doubt)
            decrease = summed_squares(rows, level, patch) - summed_squares(rows, level, other)
            if decrease > most:
                best, best_patch, most = level, other, decrease
    return best, best_patch, most


@kernel
def patch_levels(buf: Array) -> None:
    """The loop of this file. It changes a level once at most, so it ends."""
    rows, patches = rows_of(buf)
    for _ in range(patches.shape[0]):
        first = first_to_change(buf)
        if first == patches.shape[0]:
            return
        k2, total = k2_served(buf)
        level, patch, decrease = best_change(buf, first, k2 > buf[ours(buf) + ALPHA])
        if decrease <= 0.0:
            return
        gap = summed_gap(rows, level, patches[level]) / rows[level, W]
        note = write_down(buf, level, patch, rows[level, WY] / rows[level, W] - gap, gap, total)
        patches[level] = patch
        note[DECREASE], note[BEFORE] = decrease / total, k2
        note[AFTER] = k2_served(buf)[0]


# ---------------------------------------------------------------------------- one event, many events


@inlined
def learn(buf: Array, p: float, y: float, w: float) -> None:
    """Take in an event that is allowed and has weight; then patch, every so many events."""
    own = ours(buf)
    take_in(buf[own + KIND], buf, p, y, w)
    buf[own + TIME] += 1.0
    if int(buf[own + TIME]) % int(buf[own + EVERY]) == 0:
        patch_levels(buf)


@brief
def patching_predict(buf: Array, p: float) -> float:
    """See :class:`OnlinePatching`; nan if p is not allowed."""
    return served(buf, unit(p))


@brief
def patching_learn(buf: Array, p: float, y: float, w: float) -> float:
    """Predict, then learn; nan if the event is not allowed."""
    q = served(buf, unit(p)) if allowed(y, w) else np.nan
    if q == q and w > 0.0:
        learn(buf, unit(p), y, w)
    return q


@kernel
def patching_run(buf: Array, p: Array, y: Array, w: Array, out: Array) -> None:
    """Predict and learn many events in order."""
    for i in range(p.shape[0]):
        out[i] = served(buf, p[i])
        if w[i] > 0.0:
            learn(buf, p[i], y[i], w[i])


@online("patching")
class OnlinePatching(WithPatches):
    r"""Levels that are wrong serve their mean outcome until they are right again, and every change is written down.

    A prediction p belongs to the nearest level of 0, 1/m, ..., 1. A level serves p itself, or its patch. Over the events in the
    window, with W the weight of a level and n = W^2 / (sum of w^2) its effective number of events,

    .. math:: K_2 = \sum_{\text{levels}} \frac{W}{\sum W} g^2, \quad g = \bar y - \overline{\text{served}}, \qquad
              |g| > \frac1n \sqrt{\left(\frac n4 + \rho\right) \ln \frac{n/4 + \rho}{\rho\, a^2}}
              \text{: significant}, \quad a = \frac{\text{significance}}{m + 1}

    (rho: :func:`~streamcal.recalibrate.patch_history.anytime_radius`). After each event, or ``every`` so many, as long as one of
    these lowers the squared error in the window, the one that lowers it most is done:
    *patch*: while K2 > alpha, a level whose gap is significant serves its mean outcome from now on;
    *recover*: at any K2, a patched level whose raw gap is not above its gap and not significant serves p again.

    ``m`` 1..1,000,000. ``alpha`` in [0, 1], default 1 / (4 m^2): half a step squared, as far as rounding to the levels moves a
    prediction. ``window``: a Cumulative, Sliding or Fading with ``Grid(m)``; default ``Cumulative(Grid(m))``, which forgets
    nothing; to follow drift take ``Sliding(Grid(m), 10_000)``. ``remember`` 1..100,000: how many changes history holds. ``w`` is
    a weight in all means; in the evidence a weight of 2 is one event, not two.

    Guaranteed: at each change the squared error in the window falls, by ``decrease``, and K2 does not rise; a level is changed
    at most once an event. With a Cumulative window and equal weights, where the mean of y given all the past is p: no level is
    ever patched, however long the stream, with probability 1 - significance. NOT guaranteed: K2 <= alpha (a gap that is not
    significant stays: K2 can stay at the mean of the radius squared); the same in a Sliding or Fading window, where each look
    can err (measured on uniform p, m = 20, alpha = 0: a false patch in 300,000 events at size 5,000, in a million at 10,000);
    that a patched level still ranks the predictions in it, it serves one number. A level that has left the window keeps its
    patch.

    Cost O(m) an event: at m = 100 some 0.2 to 0.3 us. The state is m + 11 ``remember`` numbers and the window.
    Source: Roth, Uncertain: Modern Topics in Uncertainty Estimation, and Howard, Ramdas, McAuliffe, Sekhon 2021 for the
    evidence; recovery is ours.

    >>> map = OnlinePatching(m=10)
    >>> _ = map.run([0.7] * 200, [1, 0] * 100)
    >>> for patch in map.history():
    ...     print(patch)
    event 96: level 0.7 -> 0.50 (said 0.70, was 0.50 +- 0.20 in 96 events, K2 0.0400 -> 0.0000)
    >>> map.predict_one(0.68), map.predict_one(0.6), map.patches
    (0.5, 0.6, {0.7: 0.5})
    """

    settings = ("m", "alpha", "window", "significance", "every", "remember")
    span = (0.0, 1.0)
    _predict, _learn, _run = patching_predict, patching_learn, patching_run

    def __init__(
        self,
        m: int = 20,
        alpha: float | None = None,
        window: Window | None = None,
        significance: float = 0.05,
        every: int = 1,
        remember: int = 1000,
        level: float | None = None,
    ) -> None:
        if level is not None:
            raise ValueError(f"level must be None, got {level!r}: for quantile forecasts use OnlineQuantilePatching")
        self.m = check_whole("m", m, 1, FINEST)
        self.alpha = 1.0 / (4.0 * self.m**2) if alpha is None else check_alpha(alpha)
        window = Cumulative(Grid(self.m)) if window is None else window
        if getattr(window, "binning", None) != Grid(self.m):
            raise ValueError(f"window must be a window with the rows Grid({self.m}), got {window!r:.100}")
        self._start(window, Mean(), significance, every, remember)

    @property
    def k2(self) -> float:
        """K2 in the window of what is served now; 0 before any event."""
        return float(k2_served(self._buf)[0])

    @property
    def patches(self) -> dict[float, float]:
        """The levels that are patched now, and what they serve."""
        pairs = zip(Grid(self.m).levels.tolist(), self._patch_values(), strict=True)
        return {level: patch for level, patch in pairs if patch == patch}

    def history(self) -> list[OnlinePatch]:
        """The last ``remember`` changes, oldest first."""
        return [OnlinePatch(time, level / self.m, *rest) for time, level, *rest in self._notes(self._own).tolist()]
