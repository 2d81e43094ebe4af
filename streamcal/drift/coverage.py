"""CoverageDrift: an alarm when quantiles or intervals stop covering what they claim, with a guaranteed average run length."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, Ints, check_aligned, check_flag, numbers
from streamcal.claims import Claim, Interval, check_level
from streamcal.drift import shiryaev_roberts as sr
from streamcal.drift.bets import MOST_LEVELS, check_tolerance, coverage_bets, coverage_constants
from streamcal.drift.detector import Detector, detector, weighing_of
from streamcal.drift.onset import onset_report

COPY_LEVELS = 20  # sums back to any moment in the last 8 million events, else to the start of the run
# The constants in the buffer: the kind of forecast; how many bets there are on all levels together; then the weight of each bet;
# of each bet on a level its increment if covered, if not, and the level; the increments of the others by cell.
KIND, LINES, WEIGHTS = range(sr.FIRST, sr.FIRST + 3)
QUANTILE, INTERVAL, SEVERAL = range(3)  # the kinds of claims: a kernel cannot look at a class
MEANING = {
    "too low": "too few outcomes lie below",
    "too high": "too many outcomes lie below",
    "too narrow": "too few outcomes lie inside",
    "too wide": "too many outcomes lie inside",
}


@inlined
def cell_increments(buf: Array, x: Array, cell: int) -> None:
    """What an outcome in this cell multiplies each bet by."""
    lines, first = int(buf[LINES]), WEIGHTS + x.shape[0]
    n = x.shape[0] - lines
    hit, miss, at = buf[first : first + n], buf[first + n : first + 2 * n], buf[first + 2 * n : first + 3 * n]
    here = buf[first + 3 * n + cell * lines : first + 3 * n + (cell + 1) * lines]
    for k in range(lines):
        x[k] = here[k]
    for k in range(n):
        x[lines + k] = hit[k] if at[k] >= cell else miss[k]


@inlined
def take(buf: Array, cell: int) -> int:
    """Take an event whose outcome fell into this cell."""
    sr.count_event(buf)
    n, s, first = int(buf[sr.BETS]), buf[int(buf[sr.STATE]) :], int(buf[sr.AT_BETS])
    s[sr.TIME] += 1.0
    bets, x = s[first : first + sr.MOMENTS * n], s[first + sr.MOMENTS * n : first + (sr.MOMENTS + 1) * n]
    cell_increments(buf, x, cell)
    sr.accumulate(bets, x, s[sr.TIME], 1.0)
    s[int(buf[sr.AT_SUMS]) + cell] += 1.0
    sr.keep_copy(buf, s)
    return sr.judge(buf, sr.weighted(buf[WEIGHTS : WEIGHTS + n], bets[:n]))


@inlined
def scalar_cell(kind: float, low: float, high: float, y: float) -> float:
    """Cell of an outcome: of one quantile ``low`` 0 below, 1 above; of an interval 0 inside, 1 below, 2 above. nan: not allowed.

    Of several quantiles it was worked out before, and comes as ``low``.
    """
    if kind == SEVERAL:
        return low
    if not (math.isfinite(y) and low <= high):
        return math.nan
    if kind == QUANTILE:
        return 1.0 if y > low else 0.0
    return 1.0 if y < low else 2.0 if y > high else 0.0


@brief
def coverage_one(buf: Array, low: float, high: float, y: float) -> int:
    """Take one event, or say that it is BAD."""
    cell = scalar_cell(buf[KIND], low, high, y)
    return take(buf, int(cell)) if cell == cell else sr.BAD


@kernel
def cells_many(kind: float, v: Array, y: Array, cells: Array) -> int:
    """Cells of many outcomes (of several quantiles: how many lie below); the index of the first not allowed, or their number."""
    last = v.shape[1] - 1
    for i in range(v.shape[0]):
        cell = scalar_cell(kind, v[i, 0], v[i, last], y[i])
        if kind == SEVERAL:
            cell = 0.0 if math.isfinite(y[i]) else math.nan
            for j in range(last + 1):
                cell += 1.0 if y[i] > v[i, j] else 0.0
                if not v[i, max(j - 1, 0)] <= v[i, j]:
                    cell = math.nan
        if cell != cell:
            return i
        cells[i] = cell
    return int(v.shape[0])


@kernel
def coverage_many(buf: Array, first: int, cells: Array) -> int:
    """Take events from ``first`` on: the index of the first that alarms, or their number."""
    for i in range(first, cells.shape[0]):
        if take(buf, int(cells[i])) == sr.ALARMED:
            return i
    return int(cells.shape[0])


@detector("coverage", "quantile", "interval")
class CoverageDrift(Detector):
    r"""Alarms when quantiles or intervals no longer cover what they claim. ``arl``: events to a false alarm, in [1, 1e15].

    ``level`` is what is claimed, in (0, 1):

    - one number q: v is forecast as the quantile at q, so that :math:`P(y \le v \mid \text{past}) = q`;
    - increasing numbers (2 to 23 of them): v holds the quantile at each, in increasing order (equal ones are allowed);
    - one number q and ``interval=True``: v = (lo, hi), and :math:`P(lo \le y \le hi \mid \text{past}) = q`, however the rest is
      split between below and above. To hold both ends to a level of their own give two levels, (.05, .95) for instance.

    Against a level q are laid bets :math:`L = 1 + \lambda\,(1[y \le v] - q)`, as likelihood ratios of levels whose log odds are
    off by .3 or 1 (.5 with more than 9 levels). With several levels half of the stake is on those, the other half on all levels
    together, as likelihood ratios of the cells between them (narrower, wider, lower, higher). The evidence, what ``arl``
    guarantees for any forecasts, runs and ``warning_arl``: as in :class:`~streamcal.drift.calibration.CalibrationDrift`.

    ``tolerance`` eps in [0, 1): a coverage within eps of its level at every event is no reason for an alarm.
    ``at_least=True``: the claim is :math:`P \ge q`, as conformal prediction makes it, or quantiles of discrete outcomes; only
    coverage below its level is evidence.

    v may be infinite; nan, crossed quantiles, an interval with lo > hi and an outcome that is not a finite number are refused:
    ValueError, and nothing changed. No events change nothing.

    Not guaranteed: how soon a change is found; that coverage which is right on average over a short cycle and wrong within it is
    found at all. Even a small lasting error alarms in the end unless it is tolerated. Outcomes with ties are covered more often
    than q by a right quantile: use ``at_least``, or :class:`PITDrift` with draws. Overcoverage at a level near 1 is slow to show:
    every event says little. Events must come in the order in which the forecasts were made. Memory: 2 kB (one level) to 15 kB (23
    levels), and the reports of the last 20 alarms. Not thread-safe.

    Measured at ``arl=20_000``, change after 2,000 right events, median delay of 200 runs: .9 claimed and .8 seen about 130
    events, .85 380, .95 290; .5 and .6 270; .05 and .1 240; .99 and .97 350. Outcomes that spread 1.25 times as far as
    normal forecasts: interval at .9 168, levels .05 and .95 194, nine deciles 201. Run length 1.08 to 1.13 times ``arl``.

    An interval hardly sees outcomes that lie elsewhere as a whole: shifted by .25 standard deviations 4,048 events, levels .05
    and .95 448, nine deciles 210.

    Sources: Shin, Ramdas, Rinaldo 2024 (e-detectors); Waudby-Smith, Ramdas 2024 (betting on means); the bets are ours, by
    simulation.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> drift = CoverageDrift(0.9, interval=True)
    >>> bounds = np.tile([-1.645, 1.645], (3000, 1))
    >>> alarms = drift.update_many(bounds, rng.normal(0, np.where(np.arange(3000) < 2000, 1.0, 1.5)))
    >>> first = drift.history()[0]
    >>> int(alarms[0]) == first["event"], first["direction"]
    (True, 'too narrow')
    """

    settings: ClassVar[tuple[str, ...]] = ("level", "arl", "tolerance", "interval", "at_least", "warning_arl")
    _one: ClassVar[Callable[..., int]] = coverage_one
    _many = coverage_many
    _sample = (0.0, 0.0, 0.0)

    def __init__(
        self,
        level: float | Sequence[float],
        arl: float = 20_000,
        tolerance: float = 0.0,
        *,
        interval: bool = False,
        at_least: bool = False,
        warning_arl: float | None = None,
    ) -> None:
        self.level, self.tolerance = check_levels(level), check_tolerance(tolerance)
        self.interval, self.at_least = check_flag("interval", interval), check_flag("at_least", at_least)
        if self.interval and isinstance(self.level, tuple):
            raise ValueError(f"level must be one number, the coverage claimed, for an interval, got {level!r}")
        levels = np.atleast_1d(self.level)
        self._kind = INTERVAL if self.interval else SEVERAL if isinstance(self.level, tuple) else QUANTILE
        self._bets = coverage_bets(levels, self.tolerance, self.at_least, self.interval)
        of_bets = coverage_constants(self._bets, levels, self.tolerance, weighing_of(arl))
        constants = {"kind": self._kind, "lines": self._bets.lines, **of_bets}
        stream = sr.stream_parts(self._bets.weights.size, 3 if self.interval else levels.size + 1, COPY_LEVELS)
        self._lay_out(stream, constants, {"streams": (1, stream.size)})
        self._begin(arl, warning_arl)

    @classmethod
    def for_claim(cls, claim: Claim, arl: float, tolerance: float) -> Self:
        """Of an interval its coverage; of quantiles all levels."""
        levels = claim.levels
        level = levels[0] if len(levels) == 1 else levels
        return cls(level, arl, tolerance, interval=isinstance(claim, Interval))

    def update(self, v: Any, y: float) -> None:
        """Take one event: the forecast v (a number, the quantiles, or lo and hi) and the outcome y.

        ValueError, and nothing changed, if it is not allowed.

        >>> drift = CoverageDrift([0.1, 0.9])
        >>> drift.update([-1.3, 1.3], 0.2)
        >>> drift.update([1.3, -1.3], 0.2)
        Traceback (most recent call last):
        ...
        ValueError: v must hold 2 quantiles in increasing order and y be a finite number, got [1.3, -1.3], 0.2
        """
        try:
            if isinstance(v, str | bytes | dict | set):
                status = sr.BAD
            elif self._kind == QUANTILE:
                status = self._one(self._buf, v, v, y)
            elif self._kind == INTERVAL:
                low, high = v
                status = self._one(self._buf, low, high, y)
            else:
                status = self._one(self._buf, self._above(v, y), 0.0, 0.0)
        except (TypeError, ValueError, OverflowError):
            status = sr.BAD
        if status != sr.QUIET:
            self._answer(status, v, y)

    def update_many(self, v: npt.ArrayLike, y: npt.ArrayLike) -> Ints:
        """Take n events in order, forecasts first (they cannot be told from outcomes): the indices of those that alarmed.

        v has shape (n,), (n, levels) with several levels or (n, 2) with intervals; y has shape (n,).

        >>> CoverageDrift(0.5, arl=3).update_many(np.zeros(9), np.ones(9)).tolist()
        [2, 5, 8]
        """
        check_aligned(v=v, y=y)
        forecasts, outcomes = numbers("v", v, strict=True), numbers("y", y, strict=True)
        wanted = outcomes.shape[:1] + self._width
        forecasts = forecasts.reshape(wanted) if forecasts.size == outcomes.size == 0 else forecasts
        if outcomes.ndim != 1 or forecasts.shape != wanted:
            shape = f"(n, {self._width[0]})" if self._width else "(n,)"
            raise ValueError(f"v must have shape {shape} and y (n,), got {forecasts.shape} and {outcomes.shape}")
        flat = np.ascontiguousarray(forecasts if self._width else forecasts[:, None])
        cells = np.empty(outcomes.size)
        i = cells_many(float(self._kind), flat, np.ascontiguousarray(outcomes), cells)
        if i < outcomes.size:
            raise ValueError(f"{self._complaint(forecasts[i].tolist(), float(outcomes[i]))} at index {i}")
        return self._take_many(cells)

    @property
    def _width(self) -> tuple[int, ...]:
        """Shape of one forecast."""
        return (2,) if self.interval else (len(self.level),) if isinstance(self.level, tuple) else ()

    def _above(self, v: Any, y: Any) -> float:
        """Above how many of several quantiles the outcome lies, nan if the event is not allowed."""
        quantiles, outcome = [float(x) for x in v], float(y)
        ordered = all(a <= b for a, b in itertools.pairwise(quantiles))
        if len(quantiles) != self._width[0] or not ordered or not math.isfinite(outcome):
            return math.nan
        return float(bisect.bisect_left(quantiles, outcome))

    def _complaint(self, *event: Any) -> str:
        v, y = event
        allowed = "be a number" if not self._width else f"hold {self._width[0]} quantiles in increasing order"
        if self.interval:
            allowed = "hold lo and hi, lo <= hi,"
        return f"v must {allowed} and y be a finite number, got {v!r:.200}, {y!r:.80}"

    def report(self) -> dict[str, Any]:
        """What the evidence says: see :meth:`Detector.report`.

        The directions are "too low" and "too high" (the quantiles), "too narrow" and "too wide" (the interval; with several
        levels one of the four); ``level``, if the strongest bet is one on a single level. The sizes: ``coverage``, for each
        level what was ``predicted``, ``observed`` and their ``gap`` (observed - predicted); of intervals also the shares
        ``below`` and ``above``.
        """
        said, best, sums = onset_report(self, self._bets.leaning)
        levels, n = np.atleast_1d(self.level).tolist(), float(sums.sum())
        single = best >= self._bets.lines
        level = levels[np.abs(self._bets.stakes[best]).argmax()] if single else None
        shares = [float(x) / n if n else None for x in (sums[:1] if self.interval else sums[:-1].cumsum())]
        coverage = [
            {"predicted": q, "observed": c, "gap": None if c is None else c - q}
            for q, c in zip(levels, shares, strict=True)
        ]
        said |= {"tolerance": self.tolerance, "level": level, "events": int(n), "coverage": coverage}
        if self.interval:
            said |= {"below": float(sums[1]) / n if n else None, "above": float(sums[2]) / n if n else None}
        return {**said, "text": sentence(said, "intervals" if self.interval else "quantiles")}


def check_levels(level: Any) -> float | tuple[float, ...]:
    """One level, or 2 to 23 increasing ones; ValueError for others."""
    if not isinstance(level, Sequence | np.ndarray) or isinstance(level, str) or np.ndim(level) == 0:
        return check_level(level)
    levels = tuple(check_level(q) for q in level)
    if not 2 <= len(levels) <= MOST_LEVELS or any(a >= b for a, b in itertools.pairwise(levels)):
        raise ValueError(f"level must be one number or 2 to {MOST_LEVELS} increasing ones, got {levels}")
    return levels


def sentence(report: dict[str, Any], what: str) -> str:
    """A report in one sentence."""
    if report["direction"] is None:
        return f"no evidence against the {what}"
    worst = sorted(report["coverage"], key=lambda level: -abs(level["gap"]))[:5]
    worst.sort(key=lambda level: level["predicted"])
    seen = ", ".join(f"{level['predicted']:.4g}: {level['observed']:.3f}" for level in worst)
    return (
        f"{what} {report['direction']} ({MEANING[report['direction']]}) since event {report['onset']} "
        f"(+- {report['onset_spread']:.0f}): from event {report['sums_since']} on coverage predicted and observed in "
        f"{report['events']} events is {seen}"
    )
