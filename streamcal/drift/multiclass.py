"""Several classes: the top label against whether it is right, and all classes at once by averaging their evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from streamcal._jit import inlined, kernel
from streamcal.arrays import Array, Ints, check_aligned, check_whole, numbers
from streamcal.claims import Claim, top_label
from streamcal.drift.bets import DEFAULT, Bets
from streamcal.drift.calibration import CalibrationDrift
from streamcal.drift.detector import ProbabilityDetector, detector
from streamcal.drift.onset import stream_report
from streamcal.drift.shiryaev_roberts import ALARMED, BEFORE, SIZE, STATE, count_event, judge, probability_event
from streamcal.limits import is_distribution

LEVELS = 12  # of copies per class: sums back to any moment in the last 32,768 events, else to the start of the run
SHOWN = 10  # classes in a report: enough to see which, and a thousand classes make no long document


@detector("top_label", "top_label")
class TopLabelDrift(CalibrationDrift):
    """Alarms when the highest class probability no longer says how often its class is right.

    One event is a row of class probabilities and a class index; the claim is the highest probability, the outcome whether its
    class is the label (the first class wins a tie). Everything else, the guarantee too, is that of
    :class:`~streamcal.drift.calibration.CalibrationDrift`. Not found: errors in classes that are not at the top.
    Source: Guo et al. 2017.

    >>> detector = TopLabelDrift(arl=1000)
    >>> detector.update_many([[0.1, 0.9]] * 60, [0, 1] * 30).size > 0
    True
    """

    def update(self, p: npt.ArrayLike, y: float) -> None:
        """Take one event: class probabilities of shape (classes,) and the class index of the label. ValueError for others."""
        (claim,), (right,) = top_label(numbers("p", p)[None], [y])
        super().update(float(claim), float(right))

    def update_many(self, p: npt.ArrayLike, y: npt.ArrayLike) -> Ints:
        """Take n events in order, (n, classes) and (n,): the indices of those that alarmed; ValueError names the first bad."""
        return super().update_many(*top_label(p, y))


@inlined
def class_take(buf: Array, probs: Array, label: int) -> int:
    """Take an event that is allowed."""
    count_event(buf)
    first, size, total, classes = int(buf[STATE]), int(buf[SIZE]), 0.0, probs.shape[0]
    for k in range(classes):
        s = buf[first + k * size : first + (k + 1) * size]
        total += probability_event(buf, s, probs[k], 1.0 if k == label else 0.0)
    return judge(buf, total / classes)


@kernel
def class_many(buf: Array, first: int, probs: Array, labels: Array) -> int:
    """Take events from ``first`` on: the index of the first that alarms, or their number."""
    for i in range(first, labels.shape[0]):
        if class_take(buf, probs[i], int(labels[i])) == ALARMED:
            return i
    return int(labels.shape[0])


@detector("marginal", "marginal")
class MarginalDrift(ProbabilityDetector):
    r"""Alarms when the probabilities of ``n_classes`` classes (at least 2) are no longer calibrated, each for itself.

    The claim is :math:`P(y_t = k \mid \text{past}, p_t) = p_{t,k}` for every class k. Each class has the bets of
    :class:`~streamcal.drift.calibration.CalibrationDrift`, and the evidence is the mean over the classes, so that the guarantee
    is the same: a false alarm comes after ``arl`` events on average, or later, however the classes depend on each other.

    A class that drifts alone needs n_classes times as much evidence as it would need by itself: a few events more, since evidence
    grows exponentially. ``tolerance``, certain claims, what is not guaranteed: as there. Rows of probabilities need not add up
    to 1. Memory: 9 kB per class. Not thread-safe.

    >>> detector = MarginalDrift(3, arl=1000)
    >>> alarms = detector.update_many([[0.2, 0.3, 0.5]] * 200, [0] * 200)
    >>> alarms.size > 0, detector.history()[0]["class"], detector.history()[0]["direction"]
    (True, 0, 'too low')
    """

    settings: ClassVar[tuple[str, ...]] = ("n_classes", "arl", "tolerance", "bets", "warning_arl")
    _many: ClassVar[Callable[..., int]] = class_many

    def __init__(
        self,
        n_classes: int,
        arl: float = 20_000,
        tolerance: float = 0.0,
        bets: Bets = DEFAULT,
        warning_arl: float | None = None,
    ) -> None:
        self.n_classes = check_whole("n_classes", n_classes, 2, 100_000)
        self._lay(arl, tolerance, bets, warning_arl, LEVELS, self.n_classes)

    @classmethod
    def for_claim(cls, claim: Claim, arl: float, tolerance: float) -> Self:
        """Of as many classes as the claim has."""
        return cls(len(claim.levels), arl, tolerance)

    def update(self, p: npt.ArrayLike, y: float) -> None:
        """Take one event: probabilities of shape (n_classes,) and the class index of the label. ValueError for any other."""
        self.update_many(numbers("p", p)[None], [y])

    def update_many(self, p: npt.ArrayLike, y: npt.ArrayLike) -> Ints:
        """Take n events in order, (n, n_classes) and (n,): the indices of those that alarmed."""
        check_aligned(p=p, y=y)
        probs, labels = numbers("p", p, strict=True), numbers("y", y, strict=True)
        if probs.size == labels.size == 0:
            probs, labels = np.empty((0, self.n_classes)), np.empty(0)
        if labels.ndim != 1 or probs.shape != (labels.size, self.n_classes):
            raise ValueError(
                f"p must have shape (n, {self.n_classes}) and y (n,), got {probs.shape} and {labels.shape}"
            )
        known = (labels >= 0.0) & (labels < self.n_classes) & (labels == np.floor(labels))
        allowed = is_distribution(probs) & known
        if not allowed.all():
            i = int(np.argmin(allowed))
            wanted = f"p must lie in [0, 1], each row sum to 1 and y be a class index in 0..{self.n_classes - 1}"
            raise ValueError(f"{wanted}, got {probs[i].tolist()}, {float(labels[i])!r} at index {i}")
        return self._take_many(np.ascontiguousarray(np.clip(probs, 0.0, 1.0)), np.ascontiguousarray(labels))

    def report(self) -> dict[str, Any]:
        """What the evidence says, as plain data: of the alarm if the last event alarmed, else of the evidence so far.

        The keys of :meth:`CalibrationDrift.report` but ``text``, those of the class with the strongest evidence, its index under
        ``class`` (None: no evidence), and under ``classes`` the ten strongest: ``class``, ``strength``, ``direction``, ``onset``,
        ``events``, ``gap``.
        """
        before = int(self._buf[BEFORE])
        read = [stream_report(self, self.stream(k), before) for k in range(self.n_classes)]
        order = sorted(range(self.n_classes), key=lambda k: -read[k]["strength"])[:SHOWN]
        brief = ("strength", "direction", "onset", "events", "gap")
        best = read[order[0]]
        return {
            **self._heading(),
            "class": order[0] if best["direction"] else None,
            **best,
            "window": None if best["onset"] is None else [best["onset"], self.n],
            "classes": [{"class": k, **{b: read[k][b] for b in brief}} for k in order],
        }
