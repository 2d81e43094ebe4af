"""CalibrationDrift: an alarm when probabilities stop being calibrated, with a guaranteed average run length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy.typing as npt

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, Ints
from streamcal.drift.bets import DEFAULT, Bets
from streamcal.drift.detector import ProbabilityDetector, detector, probability_events
from streamcal.drift.onset import NOT_EXTREME_ENOUGH, TOO_EXTREME, stream_report
from streamcal.drift.shiryaev_roberts import ALARMED, BAD, BEFORE, QUIET, STATE, count_event, judge, probability_event
from streamcal.limits import unit

COPY_LEVELS = 21  # sums back to any moment in the last 16 million events, else to the start of the run


@inlined
def take(buf: Array, p: float, y: float) -> int:
    """Take an event that is allowed."""
    count_event(buf)
    return judge(buf, probability_event(buf, buf[int(buf[STATE]) :], p, y))


@brief
def drift_one(buf: Array, p: float, y: float) -> int:
    """Take one event, or say that it is BAD."""
    if not 0.0 <= p <= 1.0:
        p = unit(p)
    return take(buf, p, y) if p == p and 0.0 <= y <= 1.0 else BAD


@kernel
def drift_many(buf: Array, first: int, p: Array, y: Array) -> int:
    """Take events from ``first`` on: the index of the first that alarms, or their number."""
    for i in range(first, p.shape[0]):
        if take(buf, p[i], y[i]) == ALARMED:
            return i
    return int(p.shape[0])


@detector("calibration", "mean", "top_label", "marginal")
class CalibrationDrift(ProbabilityDetector):
    r"""Alarms when probabilities are no longer calibrated. A false alarm comes after ``arl`` events on average, or later.

    The claim is :math:`E[y_t \mid \text{past}, p_t] = p_t`, for p in [0, 1] and outcomes y in [0, 1]. Against it are laid the
    bets k of ``bets``, each with a weight w and an increment :math:`L_{k,t} \ge 0` of expectation at most 1, anew before every
    event with a stake g in [0, 1], and

    .. math:: R_{k,t} = (R_{k,t-1} + g_{k,t})\, L_{k,t}, \qquad \text{evidence}_t = \sum_k w_k R_{k,t}, \qquad
              \text{alarm when evidence} \ge \text{arl}

    g is what is at stake at this event: 1 for most, less for claims so near to 0 or 1 that ``arl`` of them hold fewer than 20
    outcomes of the rarer kind, and 0 for a bet that cannot win whatever comes. So certain claims that come true never alarm, and
    rare events alarm by what comes and not after ``arl`` events by the clock (formula and proof: ``shiryaev_roberts``). Since
    evidence minus the sum of all stakes is a supermartingale, and that sum is at most t, the average number of events to a false
    alarm is at least ``arl``, for any forecasts, also those chosen from the past or from this statistic: sharper, duller or rarer
    but calibrated ones are no reason for an alarm. No warm-up, no reference period: it asks whether the claims are true, not
    whether anything has changed. The run begins anew with the event after an alarm. Measured run lengths are 1.05 to 1.2 times
    ``arl``.

    ``tolerance`` eps in [0, 1): gaps up to eps, :math:`|E[y] - p| \le \varepsilon` at every event, are no reason for an alarm.
    Then :math:`L = 1 + a\,(y - p) - |a|\,\varepsilon` with a cut so that L >= 0. ``arl`` lies in [1, 1e15], ``warning_arl`` in
    [1, arl]: ``warning_detected`` from this evidence on (None: arl / 10).

    A claim of exactly 0 or 1 that comes out otherwise is infinite evidence, an alarm at once, if the tolerance is 0 (with a
    tolerance it is evidence like other). Likelihood bets take claims nearer to 0 or 1 than 1e-9 as that. Claims up to 1e-6
    outside [0, 1] are clipped; nan, None and others are refused: ValueError, and nothing changed. No weights.

    "too extreme" and "not extreme enough" are about the slope of log odds against the predicted ones, "too high" and "too low"
    about their level. With rare events both can fit, and the stronger bet decides.

    Not guaranteed: the probability of a false alarm in a given span is not 0, about t / arl in t events; the delay depends on how
    wrong the claims are and on whether a bet fits. Delayed labels: events in the order of their labels will do if no forecast was
    made with a label that is counted later. Memory: 14 kB however many events, and the reports of the last 20 alarms. Not
    thread-safe.

    Sources: Shin, Ramdas, Rinaldo 2024 (e-detectors); Arnold, Henzi, Ziegel 2023 (sequentially valid tests of calibration).

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> p = rng.beta(2, 2, 3000)
    >>> odds = (p / (1 - p)) ** np.where(np.arange(3000) < 2000, 1.0, 0.5)  # from event 2000 on too extreme
    >>> detector = CalibrationDrift(arl=20_000)
    >>> alarms = detector.update_many(p, rng.random(3000) < odds / (1 + odds))
    >>> first = detector.history()[0]
    >>> int(alarms[0]) == first["event"], first["direction"]
    (True, 'too extreme')
    """

    settings: ClassVar[tuple[str, ...]] = ("arl", "tolerance", "bets", "warning_arl")
    _one: ClassVar[Callable[..., int]] = drift_one
    _many: ClassVar[Callable[..., int]] = drift_many

    def __init__(
        self, arl: float = 20_000, tolerance: float = 0.0, bets: Bets = DEFAULT, warning_arl: float | None = None
    ) -> None:
        self._lay(arl, tolerance, bets, warning_arl, COPY_LEVELS)

    def update(self, p: float, y: float) -> None:
        """Take one event: the claim p in [0, 1] and its outcome y in [0, 1]. ValueError, and nothing changed, for any other.

        >>> detector = CalibrationDrift(arl=1000)
        >>> detector.update(0.0, 1)
        >>> detector.drift_detected, detector.evidence
        (True, inf)
        """
        try:
            status = self._one(self._buf, p, y)
        except (TypeError, ValueError, OverflowError):
            status = BAD
        if status != QUIET:
            self._answer(status, p, y)

    def update_many(self, p: npt.ArrayLike, y: npt.ArrayLike) -> Ints:
        """Take n events in order, both of shape (n,): the indices of those that alarmed.

        >>> CalibrationDrift(arl=3).update_many([0.5, 0.5, 0.5, 0.5, 0.5, 0.5], [1, 1, 1, 1, 1, 1]).tolist()
        [2, 5]
        """
        return self._take_many(*probability_events(p, y))

    def report(self) -> dict[str, Any]:
        """What the evidence says: see :meth:`Detector.report`.

        Besides: ``bin`` (its bounds, if the strongest bet is one in a bin), ``strength`` (the weighted sum of the likelihood
        ratios of all bets that win), ``impossible`` (whether a claim of 0 or 1 came out otherwise). The directions are "too
        extreme", "not extreme enough", "too high", "too low". The sizes: ``mean_claim``, ``mean_outcome``, ``gap`` (outcome -
        claim), ``slope`` and ``intercept`` of the calibration line, ``k1`` (mean absolute gap over bins) and ``k1_by_chance``
        (what true claims would show), and ``bins``.
        """
        found = stream_report(self, self.stream(), int(self._buf[BEFORE]))
        window = None if found["onset"] is None else [found["onset"], self.n]
        said = {**self._heading(), **found, "window": window}
        return {**said, "text": sentence(said)}


def sentence(report: dict[str, Any]) -> str:
    """A report in one sentence; of a bet in one bin, with the numbers of that bin."""
    if report["impossible"]:
        return f"event {report['event']} was predicted to be impossible"
    if report["direction"] is None:
        return "no evidence against the predictions"
    in_bin = [{**r, "events": r["n"], "slope": None} for r in report["bins"] if r["bin"] == report["bin"]]
    what, of = report["direction"], report
    if in_bin:  # the bin may be off the other way than all together
        of, (low, high) = in_bin[0], report["bin"]
        what = f"too {'low' if of['gap'] > 0.0 else 'high'} in bin ({low:g}, {high:g}]"
    return (
        f"predictions {what} since event {report['onset']} (+- {report['onset_spread']:.0f}): "
        f"from event {report['sums_since']} on {in_numbers(of, report['direction'])}"
    )


def in_numbers(found: dict[str, Any], direction: str) -> str:
    """How far predictions are off, in words: predicted and observed; the slope where it says what the bets say.

    The slope is that of the means of bins, and rough where nearly all claims lie in one.
    """
    said = f"{found['events']:,} events, {found['mean_claim']:.3g} predicted, {found['mean_outcome']:.3g} observed"
    slope = found["slope"]
    if slope not in (None, 1.0) and direction == (TOO_EXTREME if slope < 1.0 else NOT_EXTREME_ENOUGH):
        return f"{said}, on a calibration line of slope {slope:.2f} (1 is right)"
    return said
