"""The detectors of a monitor: for each version of a model one that bets against its claims, and the alarms it gives.

=========================  ==========================================================================================
claim                      detector
=========================  ==========================================================================================
mean                       CalibrationDrift, with segments SegmentedDrift; of a stream whose negatives are down-sampled to
                           a share r the claim is p / (p + r (1 - p)), which is what is true of the events that came
top_label, marginal        the same for the class with the highest probability
quantile, interval         CoverageDrift, of all segments together
pit                        PITDrift, of all segments together; it knows no tolerance
=========================  ==========================================================================================

They are those of the family :data:`streamcal.drift.DETECTORS`: the first that bets against the claim, so that one of your own
is given the name of the one that it replaces. They see each event once, with its first outcome, and take no weights. A false
alarm comes after ``arl`` events of a version on average, or later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamcal._jit import kernel
from streamcal.arrays import Array, Ints
from streamcal.claims import top_scores
from streamcal.drift import DETECTORS
from streamcal.drift.detector import in_blocks
from streamcal.drift.segments import part_in_words
from streamcal.limits import is_allowed
from streamcal.monitor.config.settings import DetectorTable, Model
from streamcal.state import from_bytes
from streamcal.times import utc

PROBABLE = ("mean", "top_label", "marginal")
SEGMENTED = "segmented"  # the detector that names segments
KEPT = ("event", "evidence", "arl", "direction", "onset", "gap", "slope", "likelihood_ratio", "text")
NAMED = 0.1  # share of the evidence from which a segment is named
STEP = 16  # events between two times that are kept: an onset is dated to within so many
TIMES = 128  # that are kept of each row: the last 2,048 events
BACK = 64  # of them that an onset is dated by; the others are room for the rest of a block, which came after its alarm


@dataclass(frozen=True)
class Alarm:
    """An alarm of a detector: of which version, about which segment (its index from "other" = 0; -1: all together), saying what.

    ``also``: indices of other segments with a share of the evidence.
    """

    detector: str
    version: str
    segment: int
    also: tuple[int, ...]
    report: dict[str, Any]


@kernel
def _keep(rings: Array, counts: Ints, rows: Ints, values: Array, step: int) -> None:
    """Put every ``step``-th value of each row into its ring, in order."""
    for i in range(rows.shape[0]):
        row = rows[i]
        if counts[row] % step == 0:
            rings[row, counts[row] // step % rings.shape[1]] = values[i]
        counts[row] += 1


class Rings:
    """Of each row the last ``size`` of its values, or of every ``step``-th of them; ``counts`` says how many there were.

    >>> rings = Rings(3)
    >>> rings.add(np.array([0, 0, 1, 0]), np.array([5.0, 6.0, 6.0, 7.0]))
    >>> rings.ages(0, 5.0).tolist(), rings.ages(1, 5.0).tolist(), rings.counts.tolist()
    ([2], [], [3, 1])
    """

    def __init__(self, size: int, step: int = 1, empty: float = math.nan) -> None:
        self.step, self.empty = step, empty
        self.counts: Ints = np.zeros(0, np.int64)
        self.rings: Array = np.zeros((0, size))

    def add(self, rows: Ints, values: Array) -> None:
        """Values of these rows in order. Shapes (n,)."""
        had, wanted = len(self.counts), int(rows.max(initial=-1)) + 1
        if wanted > had:
            more = max(wanted, 2 * had) - had
            self.counts = np.append(self.counts, np.zeros(more, np.int64))
            self.rings = np.append(self.rings, np.full((more, self.rings.shape[1]), self.empty), axis=0)
        _keep(self.rings, self.counts, rows, np.ascontiguousarray(values), self.step)

    def ages(self, row: int, value: float) -> Ints:
        """Where a value is in a row of every value: how many came after it; empty if it has left."""
        if row >= len(self.counts):
            return np.zeros(0, np.int64)
        return np.asarray((self.counts[row] - 1 - np.flatnonzero(self.rings[row] == value)) % self.rings.shape[1])

    def to_plain(self) -> dict[str, Any]:
        """Everything as plain data; :meth:`take_over` reads it."""
        return {"counts": self.counts.tolist(), "rings": self.rings.astype("<f8").tobytes()}

    def take_over(self, plain: dict[str, Any]) -> None:
        """Go on where :meth:`to_plain` was. ValueError if they do not fit."""
        self.counts = np.array(plain["counts"], np.int64)
        self.rings = np.frombuffer(plain["rings"], "<f8").reshape(len(self.counts), self.rings.shape[1]).copy()
        if self.counts.min(initial=0) < 0:
            raise ValueError(f"counts must not be negative, got {plain['counts']!r:.80}")


class OnsetClock(Rings):
    """When the events were that a detector counts: so that an onset, which it knows as a number of events ago, has a date.

    For each row (0: all events of a version, then its segments) the time of every 16th event is kept, of the last 2,048. An
    onset up to 1,024 events ago is dated to within 16 events; of an older one the date of the oldest is known, before which it
    was. The first event of a row is number 1.

    >>> clock = OnsetClock()
    >>> clock.add(np.array([0, 1, 0]), np.array([5.0, 6.0, 7.0]))
    >>> clock.date(0, 2, now=2), clock.date(1, 1, now=1)
    ((5.0, True), (6.0, True))
    """

    def __init__(self) -> None:
        super().__init__(TIMES, STEP, empty=0.0)

    def date(self, row: int, number: int, now: int) -> tuple[float, bool]:
        """The time of an event of a row as of its event ``now`` (at most 1,000 before its last); False: it was before that."""
        wanted, newest = (max(number, 1) - 1) // STEP, (now - 1) // STEP
        oldest = max(newest - BACK, 0)
        return float(self.rings[row, max(wanted, oldest) % TIMES]), wanted >= oldest


class ModelDetector:
    """One detector of one version of a model."""

    def __init__(self, model: Model, settings: DetectorTable, segmented: bool) -> None:
        self.model, self.settings = model, settings
        self.segmented = segmented and model.claim in DETECTORS[SEGMENTED].claims
        of = (cls for cls in DETECTORS.values() if model.claim in cls.claims)
        made = DETECTORS[SEGMENTED] if self.segmented else next(of)
        self.detector: Any = made.for_claim(model.claims(), settings.arl, settings.tolerated(model))
        self.clock = OnsetClock()

    @property
    def evidence(self) -> float:
        """What it has against the claims now."""
        return float(self.detector.evidence)

    @property
    def events(self) -> int:
        """How many it has seen."""
        return int(self.detector.n)

    def take(self, p: Array, y: Array, t: Array, segment: Ints, version: str, segments: int) -> list[Alarm]:
        """Take events in order: the alarms. ``segment`` counts from "other" = 0 up to ``segments``; ``t``: of the predictions."""
        if self.segmented and self.detector.segments < segments:
            self.detector = self.detector.widened(max(segments, 2 * self.detector.segments))
        arrays, times, rows = self._bets(p, y, t, segment)
        found = []
        for block, alarms in in_blocks(self.detector, *arrays):
            self.clock.add(np.zeros(len(times[block]), np.int64), times[block])
            if self.segmented:
                self.clock.add(rows[block] + 1, times[block])
            found += [self._alarm(version, report, rows[i + 1 : block.stop]) for i, report in alarms]
        return found

    def _bets(self, p: Array, y: Array, t: Array, segment: Ints) -> tuple[tuple[Any, ...], Array, Ints]:
        """Detector inputs, times and segments; events that the detector would refuse (windows count them) are removed."""
        claim, rate = self.model.claim, self.model.negative_sampling_rate
        if claim in ("top_label", "marginal"):
            p, y = top_scores(p, y)
        if rate < 1.0:
            p = p / (p + rate * (1.0 - p))
        if claim in PROBABLE:
            good = is_allowed("p", p) & is_allowed("y", y)
        else:
            columns = p[:, None] if p.ndim == 1 else p
            ordered = np.isfinite(columns).all(-1) & (np.diff(columns, axis=-1) >= 0.0).all(-1)
            good = ordered & ((p >= 0.0) & (p <= 1.0) if claim == "pit" else np.isfinite(y))
        p, y, t, segment = p[good], y[good], t[good], segment[good]
        if claim == "pit":
            return (p,), t, segment
        return ((np.clip(p, 0.0, 1.0), y, segment) if self.segmented else (p, y)), t, segment

    def _alarm(self, version: str, report: dict[str, Any], later: Ints) -> Alarm:
        """An alarm is about the segment that made most of its evidence, or about all together.

        ``later``: the segments of events that came after it and are counted already.
        """
        said = {key: report[key] for key in KEPT if key in report}
        chief, about, text = report, -1, report["text"]
        also: tuple[int, ...] = ()
        if parts := report.get("segments"):
            named = [(part["share"], int(part["segment"])) for part in parts if part["share"] >= NAMED]
            of_all = report["whole"]["share"] if report["whole"] else 0.0
            top, segment = max(named, default=(0.0, -1))
            about = segment if top >= of_all else -1
            also = tuple(s for _, s in named if s != about)
            chief = next((part for part in parts if part["segment"] == about), report["whole"])
            said |= {key: chief[key] for key in KEPT if key in chief and key not in ("event", "evidence", "arl")}
            text = part_in_words(chief)
        sampled = " (rates of what is left after down-sampling)" if self.model.negative_sampling_rate < 1.0 else ""
        since, when = self._since(chief, about, later)
        said |= {"since": since, "text": f"{text}{when}{sampled}"}
        return Alarm(self.settings.name, version, about, also, said)

    def _since(self, report: dict[str, Any], segment: int, later: Ints) -> tuple[str | None, str]:
        """The date of an onset: of the first prediction since, and in words."""
        last = events_since(report)
        if last is None:
            return None, ""
        now = int(self.clock.counts[segment + 1]) - (len(later) if segment < 0 else int((later == segment).sum()))
        moment, known = self.clock.date(segment + 1, now - last + 1, now)
        return utc(moment) if known else None, f", since {'about' if known else 'before'} {utc(moment)}"

    def to_plain(self) -> list[Any]:
        """The states of the detector and of its clock; :meth:`take_over` reads it."""
        return [self.detector.to_bytes(), self.clock.to_plain()]

    def take_over(self, plain: list[Any]) -> None:
        """Go on where :meth:`to_plain` was."""
        self.detector = from_bytes(plain[0])
        self.clock.take_over(plain[1])


def events_since(report: dict[str, Any]) -> int | None:
    """How many of the latest events are since the onset of a report; None where it names none."""
    if report.get("last") is not None:
        return int(report["last"])
    onset, event = report.get("onset"), report.get("event")
    return None if onset is None or event is None or math.isnan(onset) else int(event) - int(onset) + 1
