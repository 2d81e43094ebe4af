"""River drift detectors that bet against what a model claims: their threshold is the guaranteed average run length."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from river import base

from streamcal.arrays import one_number
from streamcal.drift import CalibrationDrift, CoverageDrift
from streamcal.river.predictions import interval as ends_of
from streamcal.river.predictions import is_missing, outcome, probabilities, probability, quantile


class _OfPredictions(base.DriftAndWarningDetector, ABC):
    """What the detectors of this module share: they are fed like a metric, with what came and what was said.

    ``drift_detected`` and ``warning_detected`` are about the last update. What says nothing (a label or prediction that is None,
    nan, {} or no probability) is counted in ``refused`` and tells the detector nothing.
    """

    detector: CalibrationDrift | CoverageDrift

    def _start(self, detector: CalibrationDrift | CoverageDrift) -> None:
        self.detector, self.refused = detector, 0
        super().__init__()

    def update(self, y_true: Any, y_pred: Any) -> None:  # type: ignore[override]  # fed like a metric
        """Take one event, in River's order: the label or target, then the prediction that was made before it was known."""
        event = self._event(y_true, y_pred)
        if event is None:
            self.refused += 1
            self._reset()
            return
        self.detector.update(*event)
        self._drift_detected, self._warning_detected = self.detector.drift_detected, self.detector.warning_detected

    @abstractmethod
    def _event(self, y_true: Any, y_pred: Any) -> tuple[Any, float] | None:
        """Claim and outcome, None if they say nothing."""

    @property
    def evidence(self) -> float:
        """The statistic after the last event, compared with ``arl``."""
        return self.detector.evidence

    @property
    def n_detections(self) -> int:
        """Alarms so far."""
        return self.detector.alarms

    def report(self) -> dict[str, Any]:
        """What the evidence says: direction, onset, bins, sizes (see the detector's own ``report``); and ``refused``.

        ``event``, ``onset`` and ``window`` count the events that were taken, from 0, not those that were refused.
        """
        return {**self.detector.report(), "refused": self.refused}

    def history(self) -> list[dict[str, Any]]:
        """The reports of the last 20 alarms, oldest first."""
        return self.detector.history()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"arl": 1_000}


class CalibrationDriftDetector(_OfPredictions):
    r"""Alarms when the probability of ``pos_val`` is no longer calibrated: :class:`streamcal.drift.CalibrationDrift` for River.

    Fed like a metric, ``update(y_true, y_pred)``, with y_pred a probability or a dict of them by label. On calibrated
    probabilities an alarm comes after ``arl`` events on average, or later, however the case mix changes. It asks whether the
    claims are true and not whether anything has changed: a model that was never calibrated alarms again and again.

    Parameters
    ----------
    arl
        Average run length to a false alarm, in events: the threshold of the evidence.
    tolerance
        Gaps between outcome and claim up to this are no reason for an alarm, in [0, 1).
    pos_val
        The label whose probability is watched.

    >>> import random
    >>> detector, rng, alarms = CalibrationDriftDetector(arl=10_000), random.Random(1), []
    >>> for i in range(4_000):
    ...     p = rng.random()
    ...     detector.update(rng.random() < (p if i < 2_000 else 0.3 + 0.4 * p), {True: p, False: 1 - p})
    ...     if detector.drift_detected:
    ...         alarms.append((i, detector.report()["direction"]))
    >>> alarms[0][0] > 2_000, alarms[0][1]
    (True, 'too extreme')
    """

    def __init__(self, arl: float = 20_000, tolerance: float = 0.0, pos_val: Any = True) -> None:
        self.arl, self.tolerance, self.pos_val = arl, tolerance, pos_val
        self._start(CalibrationDrift(arl, tolerance))

    def _event(self, y_true: Any, y_pred: Any) -> tuple[float, float] | None:
        p, y = probability(y_pred, self.pos_val), outcome(y_true, self.pos_val)
        return None if math.isnan(p) or math.isnan(y) or not -1e-6 <= p <= 1.0 + 1e-6 else (p, y)


class TopLabelDriftDetector(_OfPredictions):
    """Alarms when the highest of several class probabilities no longer says how often its label is right.

    The claim is the highest probability, the outcome whether its label (the first wins a tie) is ``y_true``; all else as in
    :class:`CalibrationDriftDetector`. Not found: errors in labels that are not at the top.

    >>> detector = TopLabelDriftDetector(arl=100)
    >>> for label in "abcabcabcabcabc":
    ...     detector.update(label, {"a": 0.9, "b": 0.05, "c": 0.05})
    >>> detector.n_detections
    1
    """

    def __init__(self, arl: float = 20_000, tolerance: float = 0.0) -> None:
        self.arl, self.tolerance = arl, tolerance
        self._start(CalibrationDrift(arl, tolerance))

    def _event(self, y_true: Any, y_pred: Any) -> tuple[float, float] | None:
        shares = probabilities(y_pred)
        if not shares or is_missing(y_true):
            return None
        top = max(shares, key=shares.__getitem__)
        return shares[top], float(top == y_true)


class CoverageDriftDetector(_OfPredictions):
    """Alarms when intervals or quantiles no longer cover what they claim: :class:`streamcal.drift.CoverageDrift` for River.

    y_pred is an interval (a pair, or River's ``conf.Interval``) with ``interval``, else a quantile forecast: a number, or a
    dict of numbers by level.

    Parameters
    ----------
    level
        Probability that is claimed: of the interval, or the level of the quantile.
    arl, tolerance
        As in :class:`CalibrationDriftDetector`; the gap is that of the coverage from its level.
    interval
        Whether forecasts are intervals.

    >>> detector = CoverageDriftDetector(level=0.9, arl=1_000)
    >>> for y in [0.0, 3.0] * 10:
    ...     detector.update(y, (-1.0, 1.0))
    >>> detector.n_detections > 0, detector.report()["direction"]
    (True, 'too narrow')
    """

    def __init__(self, level: float = 0.9, arl: float = 20_000, tolerance: float = 0.0, interval: bool = True) -> None:
        self.level, self.arl, self.tolerance, self.interval = level, arl, tolerance, interval
        self._start(CoverageDrift(level, arl, tolerance, interval=interval))

    def _event(self, y_true: Any, y_pred: Any) -> tuple[Any, float] | None:
        y, ends = one_number(y_true), ends_of(y_pred)
        if self.interval and ends is None and not is_missing(y_pred):
            raise ValueError(
                f"y_pred must be an interval (predict_one with with_interval=True), or interval=False, got {y_pred!r:.80}"
            )
        v = ends if self.interval else quantile(y_pred, self.level)
        known = v is not None and (v[0] <= v[1] if isinstance(v, tuple) else v == v)
        return (v, y) if known and math.isfinite(y) else None
