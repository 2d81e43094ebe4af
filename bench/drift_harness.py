"""What a detector is worth: how often it alarms where nothing is wrong, and how soon after something went wrong.

Each of the two numbers says nothing without the other: one that always alarms has the shortest delay. So detectors are compared
at equal run length: :func:`tune` finds the parameter with which another detector alarms as rarely as ours, :func:`run_length`
measures it, :func:`delays` gives what is left to compare. Beside them belong :func:`never` and :func:`every`, which look at
nothing: what they reach is what the measure gives away for free.

``make`` stands for any function without arguments that returns a new detector, of one of these kinds:

- one with ``update_many(*arrays)`` that returns the indices at which it alarmed: all of ``streamcal.drift``;
- a function ``first(*arrays)`` that takes some more events and returns the index of the first alarm, or -1; after an alarm it is
  not called again. :func:`one_by_one` makes one of a detector of another library.

Streams are in :mod:`drift_streams`. All is drawn from ``seed``: the same again every time, and for a given seed the
same events for every detector.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from drift_streams import CALM, Draw, Stream, bold

from streamcal.arrays import Array, check_whole

Watch = Callable[..., int]
Make = Callable[[], Any]
BLOCK, FIRST_CUT = 8192, 256  # events drawn at a time; events shown to a new detector at a time
UNSURE = 4.0  # standard errors from the target within which bisection asks for more runs


# ---- detectors


def watch(detector: Any) -> Watch:
    """Any detector as a function that takes more events, arrays of shape (n,), and returns the index of its first alarm, or -1.

    A detector with ``update_many`` may have taken events behind that alarm. ValueError for what is no detector.

    >>> from streamcal.drift import CalibrationDrift
    >>> watch(CalibrationDrift(arl=3))([0.5, 0.5, 0.5, 0.5], [1, 1, 1, 1])
    2
    """
    if hasattr(detector, "update_many"):

        def first(*events: Any) -> int:
            alarms = detector.update_many(*events)
            return int(alarms[0]) if len(alarms) else -1

        return first
    if not callable(detector):
        raise ValueError(f"a detector has update_many, or is a function (see one_by_one), got {detector!r:.80}")
    return detector  # type: ignore[no-any-return]


def one_by_one(detector: Any, value: Callable[..., Any] | None = None) -> Watch:
    """A detector with ``update`` and ``drift_detected`` as a function for :func:`watch`: River's, for instance.

    ``value(*arrays)`` makes of the events the array of what it is to be updated with, a residual y - p for instance; without
    it, it is updated with the events as they are: ``update(p, y)``.

    >>> class Above:
    ...     def update(self, x):
    ...         self.drift_detected = x > 0.5
    >>> one_by_one(Above(), lambda p, y: y - p)(np.array([0.9, 0.3]), np.array([1.0, 1.0]))
    1
    """

    def first(*events: Any) -> int:
        shown = [value(*events)] if value else events
        update = detector.update
        for i, event in enumerate(zip(*(np.asarray(e).tolist() for e in shown), strict=True)):
            update(*event)
            if detector.drift_detected:
                return i
        return -1

    return first


def never() -> Watch:
    """A detector that never alarms."""
    return lambda *events: -1


def every(n: int) -> Make:
    """Makes detectors that alarm at every n-th event, whatever it is; ``every(1)`` always alarms.

    >>> watch(every(3)())(np.zeros(10))
    2
    """
    check_whole("n", n, 1)

    def make() -> Watch:
        taken = 0

        def first(*events: Any) -> int:
            nonlocal taken
            left = n - taken
            taken += len(events[0])
            return left - 1 if taken >= n else -1

        return first

    return make


# ---- run length


@dataclass(frozen=True)
class RunLength:
    """Average number of events from a start to an alarm, ``mean``, and its standard error ``se``; both inf if none came.

    ``runs``: how many alarms; ``events``: how many events they took, with those of a last run that was cut off. The mean is
    events / runs. The standard error is from the spread of the lengths; if the last run was cut off, it is mean / sqrt(runs), as
    for lengths without memory.
    """

    mean: float
    se: float
    runs: int
    events: int

    @property
    def per_100_000(self) -> float:
        """Alarms in 100,000 events, each followed by a new start."""
        return 1e5 / self.mean

    @staticmethod
    def of(lengths: list[int], rest: int) -> RunLength:
        """From the lengths of runs that ended in an alarm, and the events of one that did not."""
        runs, events = len(lengths), sum(lengths) + rest
        if runs < 2:
            return RunLength(events / runs if runs else math.inf, math.inf, runs, events)
        mean = events / runs
        spread = mean if rest else float(np.std(lengths, ddof=1))
        return RunLength(mean, spread / math.sqrt(runs), runs, events)


def run_length(make: Make, stream: Stream, runs: int = 400, seed: int = 0, most: float = 1e9) -> RunLength:
    """Average run length of new detectors on one long stream, each started where the one before it alarmed.

    Ends with so many alarms (>= 1), or after ``most`` events. On calibrated streams this is the run length to a false alarm, and
    the longer the better; its standard error is about 1 / sqrt(runs) of it.

    >>> from streamcal.drift import CalibrationDrift
    >>> from drift_streams import CALIBRATED
    >>> found = run_length(lambda: CalibrationDrift(arl=50), CALIBRATED["Beta(2,2)"], runs=40)
    >>> found.mean > 50 - 2 * found.se
    True
    """
    check_whole("runs", runs, 1)
    rng, first = np.random.default_rng(seed), watch(make())
    lengths: list[int] = []
    t, age, end = 0, 0, int(min(most, 2**53))
    while len(lengths) < runs and t < end:
        events, at = stream(np.arange(t, t + BLOCK), rng), 0
        last = min(BLOCK, end - t)
        while at < last and len(lengths) < runs:
            cut = min(at + max(FIRST_CUT, age // 2), last)
            i = first(*(e[at:cut] for e in events))
            taken = cut - at if i < 0 else i + 1
            at, age = at + taken, age + taken
            if i >= 0:
                lengths.append(age)
                age, first = 0, watch(make())
        t += BLOCK
    return RunLength.of(lengths, age)


def share_of_threshold(detector: Any) -> float:
    """How near the evidence of a detector of ours is to an alarm: 0 nothing, 1 alarm."""
    return float(detector.evidence / detector.arl)


def chosen_run_length(
    make: Make,
    choose: Callable[[float, float], float] = bold,
    runs: int = 400,
    seed: int = 0,
    draw: Draw = CALM,
    share: Callable[[Any], float] = share_of_threshold,
    most: float = 1e9,
) -> RunLength:
    """Average run length when every claim is chosen from the statistic, and is true.

    Before each event the forecaster is told ``share(detector)`` and a claim that was drawn, and answers
    ``choose(share, claim)``, a probability; the outcome has that probability. The detector takes ``update(p, y)``.

    >>> from streamcal.drift import CalibrationDrift
    >>> found = chosen_run_length(lambda: CalibrationDrift(arl=50), runs=30)
    >>> found.mean > 50 - 2 * found.se
    True
    """
    check_whole("runs", runs, 1)
    rng, detector = np.random.default_rng(seed), make()
    lengths: list[int] = []
    t, age = 0, 0
    while len(lengths) < runs and t < most:
        claims, draws = draw(np.arange(t, t + BLOCK), rng).tolist(), rng.random(BLOCK).tolist()
        for claim, u in zip(claims, draws, strict=True):
            p = choose(share(detector), claim)
            detector.update(p, float(u < p))
            age += 1
            if detector.drift_detected:
                lengths.append(age)
                age, detector = 0, make()
                if len(lengths) == runs:
                    break
        t += BLOCK
    return RunLength.of(lengths, age)


# ---- delay


@dataclass(frozen=True)
class Delays:
    """How long after a change the alarm came, in events, in each run: 1 is at the first changed event, inf: not in the horizon.

    ``early``: alarms before the change, in all runs together. ``noted``: what ``note`` said of each run that was not missed.
    """

    delays: Array
    early: int
    noted: list[Any] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """The smallest delay within which this share of the runs, in (0, 1], had alarmed; inf if less than that ever did."""
        return float(np.sort(self.delays)[max(math.ceil(share * self.delays.size), 1) - 1])

    def within(self, events: float) -> float:
        """Share of the runs that alarmed within so many events of the change."""
        return float((self.delays <= events).mean())

    @property
    def median(self) -> float:
        """Delay of the middle run (of two the quicker)."""
        return self.quantile(0.5)

    @property
    def p90(self) -> float:
        """Delay within which nine runs in ten had alarmed."""
        return self.quantile(0.9)

    @property
    def missed(self) -> float:
        """Share of the runs without an alarm in the horizon."""
        return float(np.isinf(self.delays).mean())


def delays(
    make: Make,
    before: Stream,
    after: Stream,
    at: int = 2000,
    horizon: int = 20_000,
    runs: int = 200,
    seed: int = 0,
    note: Callable[[Any], Any] | None = None,
) -> Delays:
    """Delays of the first alarm at or behind event ``at`` (>= 0), where the stream changes; at most ``horizon`` (>= 1) events.

    An alarm before the change is counted as ``early`` and a new detector goes on from there, as in use. Each run has draws of its
    own. ``note(detector)`` is asked after the alarm; a detector with ``update_many`` may then have taken some events more, so
    ask for ``history()[0]``.

    >>> from drift_streams import CALIBRATED, CHANGES
    >>> found = delays(every(30), CALIBRATED["Beta(2,2)"], CHANGES["too extreme 2"], at=100, horizon=50, runs=5)
    >>> found.median, found.early, found.missed
    (20.0, 15, 0.0)
    """
    for name, value, low in (("at", at, 0), ("horizon", horizon, 1), ("runs", runs, 1)):
        check_whole(name, value, low)
    found, early, noted = [], 0, []
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        detector, alarms = _before(make, before(np.arange(at), rng), at)
        early += alarms
        found.append(_after(detector, after, at, horizon, rng))
        if note and math.isfinite(found[-1]):
            noted.append(note(detector))
    return Delays(np.array(found), early, noted)


def _before(make: Make, events: tuple[Array, ...], n: int) -> tuple[Any, int]:
    """A detector that has taken the events since the last alarm before the change, and how many alarms there were."""
    detector, at, alarms = make(), 0, 0
    while at < n:
        i = watch(detector)(*(e[at:] for e in events))
        if i < 0:
            break
        detector, at, alarms = make(), at + i + 1, alarms + 1
    return detector, alarms


def _after(detector: Any, stream: Stream, at: int, horizon: int, rng: np.random.Generator) -> float:
    """Events from the change to the alarm, inf if there is none."""
    first, taken, size = watch(detector), 0, FIRST_CUT // 2
    while taken < horizon:
        size = min(2 * size, BLOCK)
        events = stream(np.arange(at + taken, at + taken + size), rng)
        i = first(*(e[: horizon - taken] for e in events))
        if i >= 0:
            return float(taken + i + 1)
        taken += size
    return math.inf


# ---- equal run length


@dataclass(frozen=True)
class Tuned:
    """The parameter with which a detector has the run length ``target``, and the run length measured with it, on new draws."""

    parameter: float
    target: float
    run_length: RunLength

    @property
    def reached(self) -> bool:
        """Whether the run length measured is within 4 standard errors of the target."""
        return abs(self.run_length.mean - self.target) <= UNSURE * self.run_length.se < math.inf


def tune(
    family: Callable[[float], Make],
    target: float,
    stream: Stream,
    between: tuple[float, float],
    precision: float = 0.05,
    seed: int = 0,
    steps: int = 20,
) -> Tuned:
    """The parameter with which the detectors of ``family(parameter)`` have an average run length of ``target`` on this stream.

    Bisection on the logarithm of the parameter between two numbers above 0: the first where the runs are too short, the second
    where they are too long (that may be the smaller one). Each step sees the same draws, few runs where they decide it and
    1 / precision^2 near the target, and it ends within half of ``precision`` of the target, or after so many ``steps``.
    ``precision`` in (0, 1) is the standard error of the run length in the end, as a share, if runs are as good as without memory;
    with heavy tails (many short runs, a few that do not end) a mean is hardly to be measured, and ``Tuned.run_length.se`` shows
    it. ``Tuned.reached`` says whether there is such a parameter: not if the target lies outside of what the two numbers give, or
    is jumped over.

    >>> from drift_streams import uniform
    >>> def above(level):
    ...     return lambda: lambda u: int((u > level).argmax()) if (u > level).any() else -1
    >>> found = tune(above, 100, uniform, (0.5, 0.9999))
    >>> round(found.parameter, 2), found.reached
    (0.99, True)
    """
    if not (min(between) > 0.0 and 0.0 < precision < 1.0 and target >= 1.0):
        raise ValueError(
            f"between must be above 0, precision in (0, 1), target at least 1, got {between}, {precision!r}, {target!r}"
        )
    runs = math.ceil(precision**-2.0)
    short, long = between
    for _ in range(steps):
        parameter = math.sqrt(short * long)
        off = _off_target(family(parameter), target, stream, runs, seed)
        if abs(off) <= precision / 2.0:
            break
        short, long = (parameter, long) if off < 0.0 else (short, parameter)
    again = run_length(family(parameter), stream, runs, seed + 1, 4.0 * runs * target)
    return Tuned(parameter, target, again)


def _off_target(make: Make, target: float, stream: Stream, runs: int, seed: int) -> float:
    """How far the run length is above (positive) or below the target, as a share of it; roughly where it is far off."""
    off = 0.0
    for few in (max(runs // 16, 4), max(runs // 4, 8), runs):
        unsure = UNSURE / math.sqrt(few)
        off = run_length(make, stream, few, seed, (1.0 + unsure) * few * target).mean / target - 1.0
        if abs(off) >= unsure:
            break
    return off
