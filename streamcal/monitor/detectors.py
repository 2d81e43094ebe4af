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

They see each event once, with its first outcome, and take no weights. A false alarm comes after ``arl`` events of a version
on average, or later.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from streamcal.arrays import Array, Ints
from streamcal.claims import top_scores
from streamcal.drift import CalibrationDrift, CoverageDrift, PITDrift, SegmentedDrift
from streamcal.drift.detector import in_blocks
from streamcal.drift.segments import part_in_words
from streamcal.monitor.config.settings import DECILES, Detector, Model
from streamcal.monitor.marks import Marks, last_of
from streamcal.state import from_bytes
from streamcal.times import utc

PROBABLE = ("mean", "top_label", "marginal")
KEPT = ("event", "evidence", "arl", "direction", "onset", "gap", "slope", "likelihood_ratio", "text")


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

    def to_plain(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Alarm:
        """What :meth:`to_plain` wrote."""
        return cls(**{**plain, "also": tuple(plain["also"])})


class Wager:
    """One detector of one version of a model."""

    def __init__(self, model: Model, settings: Detector, segmented: bool) -> None:
        self.model, self.settings = model, settings
        self.segmented = segmented and model.claim in PROBABLE
        self.detector: Any = self._new()
        self.marks = Marks()

    def _new(self) -> Any:
        arl, tolerance = self.settings.arl, self.settings.tolerated(self.model)
        if self.segmented:
            return SegmentedDrift(1, arl, tolerance)
        if self.model.claim in PROBABLE:
            return CalibrationDrift(arl, tolerance)
        if self.model.claim == "pit":
            return PITDrift(arl)
        if self.model.claim == "interval":
            (level,) = self.model.claims().levels
            return CoverageDrift(level, arl, tolerance, interval=True)
        levels = self.model.levels or DECILES
        return CoverageDrift(levels if len(levels) > 1 else levels[0], arl, tolerance)

    def take(self, p: Array, y: Array, t: Array, segment: Ints, version: str, segments: int) -> list[Alarm]:
        """Take events in order: the alarms. ``segment`` counts from "other" = 0 up to ``segments``; ``t``: of the predictions."""
        if self.segmented and self.detector.segments < segments:
            self.detector = self.detector.widened(max(segments, 2 * self.detector.segments))
        arrays, times, rows = self._bets(p, y, t, segment)
        found = []
        for block, alarms in in_blocks(self.detector, *arrays):
            self._mark(times[block], rows[block])
            found += [self._alarm(version, report, rows[i + 1 : block.stop]) for i, report in alarms]
        return found

    def _mark(self, times: Array, rows: Ints) -> None:
        """Note when events were: of all together, and of their segments."""
        self.marks.add(np.zeros(len(times), np.int64), times)
        if self.segmented:
            self.marks.add(rows + 1, times)

    def _bets(self, p: Array, y: Array, t: Array, segment: Ints) -> tuple[tuple[Any, ...], Array, Ints]:
        """What the detector takes, without the events that it would refuse (windows count those as refused); times, segments."""
        claim, rate = self.model.claim, self.model.negative_sampling_rate
        if claim in ("top_label", "marginal"):
            p, y = top_scores(p, y)
        if rate < 1.0:
            p = p / (p + rate * (1.0 - p))
        good = self._good(p, y)
        if not good.all():
            p, y, t, segment = p[good], y[good], t[good], segment[good]
        if claim == "pit":
            return (p,), t, segment
        return ((np.clip(p, 0.0, 1.0), y, segment) if self.segmented else (p, y)), t, segment

    def _good(self, p: Array, y: Array) -> Any:
        if self.model.claim in PROBABLE:
            return (p >= -1e-6) & (p <= 1.0 + 1e-6) & (y >= 0.0) & (y <= 1.0)
        if self.model.claim == "pit":
            return (p >= 0.0) & (p <= 1.0)
        ordered = np.isfinite(p) if p.ndim == 1 else np.isfinite(p).all(-1) & (np.diff(p, axis=-1) >= 0.0).all(-1)
        return ordered & np.isfinite(y)

    def _alarm(self, version: str, report: dict[str, Any], later: Ints) -> Alarm:
        """An alarm is about the segment that made most of its evidence, or about all together.

        ``later``: the segments of events that came after it and are counted already.
        """
        said = {key: report[key] for key in KEPT if key in report}
        sampled = " (rates of what is left after down-sampling)" if self.model.negative_sampling_rate < 1.0 else ""
        parts = report.get("segments")
        if not parts:
            since, text = self._since(report, -1, later)
            return Alarm(
                self.settings.name, version, -1, (), {**said, **since, "text": f"{said['text']}{text}{sampled}"}
            )
        named = [(part["share"], int(part["segment"])) for part in parts if part["share"] >= 0.1]
        of_all = report["whole"]["share"] if report["whole"] else 0.0
        top, segment = max(named, default=(0.0, -1))
        about = segment if top >= of_all else -1
        chief = next((part for part in parts if part["segment"] == about), report["whole"])
        said |= {key: chief[key] for key in KEPT if key in chief and key not in ("event", "evidence", "arl")}
        since, text = self._since(chief, about, later)
        said |= {**since, "text": part_in_words(chief) + text + sampled}
        return Alarm(self.settings.name, version, about, tuple(s for _, s in named if s != about), said)

    def _since(self, report: dict[str, Any], segment: int, later: Ints) -> tuple[dict[str, Any], str]:
        """The date of an onset: of the first prediction since, and in words."""
        last = last_of(report)
        if last is None:
            return {"since": None}, ""
        now = int(self.marks.counts[segment + 1]) - (len(later) if segment < 0 else int((later == segment).sum()))
        moment, known = self.marks.date(segment + 1, now - last + 1, now)
        return {"since": utc(moment) if known else None}, f", since {'about' if known else 'before'} {utc(moment)}"

    def forget(self, segment: int) -> None:
        """The place of a segment is given to another."""
        self.marks.forget(segment + 1)
        if self.segmented and segment < self.detector.segments:
            self.detector.forget(segment)

    def to_bytes(self) -> bytes:
        """The state of the detector."""
        return bytes(self.detector.to_bytes())

    @classmethod
    def from_bytes(cls, model: Model, settings: Detector, segmented: bool, data: bytes) -> Wager:
        """Go on where :meth:`to_bytes` was."""
        wager = cls(model, settings, segmented)
        wager.detector = from_bytes(data)
        return wager
