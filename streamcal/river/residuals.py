"""Quantiles and intervals from residuals: how far outcomes fall from a forecast, in units of how far they lately did.

A tracked offset learns whether the outcome lay outside of what was served, whose scale and offset are as old as the label is
late. All labels that are on their way tell of the same old offset, so late ones move it by less (:class:`Residuals`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from statistics import NormalDist
from typing import Any

from streamcal.arrays import check_flag, check_number
from streamcal.claims import Quantile, check_level
from streamcal.limits import LARGEST
from streamcal.recalibrate.comparison import Comparison
from streamcal.recalibrate.multiclass import Records
from streamcal.recalibrate.multivalid import MultivalidQuantile
from streamcal.recalibrate.quantile_tracking import QuantileTracker

METHODS = ("tracker", "multivalid")
FAR = 10.0  # a residual counts in the scale as at most this many scales, so that one outlier raises it by little
PATIENCE = 5.0  # a label that comes so many labels late moves a tracked offset half as much
PER_MEAN = math.sqrt(math.pi / 2.0)  # standard deviations in a mean absolute residual, if residuals are normal


class FadingMean:
    """Mean in which what happened ``half_life`` events ago counts half; of all until 1.4 half-lives have passed. 0 before any."""

    def __init__(self, half_life: float) -> None:
        self.gain = 1.0 - 0.5 ** (1.0 / check_number("half_life", half_life, 1.0, LARGEST))
        self.events, self.value = 0, 0.0

    def take(self, x: float) -> None:
        """Take one number in."""
        self.events += 1
        self.value += max(self.gain, 1.0 / self.events) * (x - self.value)


class Offset:
    """How far to go from a forecast so that the outcome is not further out in a share ``level`` of events, in scales.

    The offset is ``start`` plus what a QuantileTracker or a MultivalidQuantile has learned from the scaled residuals.
    """

    def __init__(self, level: float, start: float, method: str, lr: float, m: int, span: float, seed: int) -> None:
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        half = check_number("span", span, 0.0, LARGEST, open_below=True)
        tracker, multivalid = QuantileTracker(level, lr), MultivalidQuantile(level, m, seed=seed, low=-half, high=half)
        self.map: QuantileTracker | MultivalidQuantile = tracker if method == "tracker" else multivalid
        self.start = start
        # A tracker learns of misses of what was served. The other counts misses by bucket, and the bucket of then may not be
        # that of now: it learns late labels as if each had been served just before it came.
        self.as_served = method == "tracker"

    @property
    def value(self) -> float:
        """The offset now."""
        return self.map.predict_one(self.start)

    def learn(self, score: float, w: float, served: float, share: float) -> None:
        """Learn one scaled residual that was served this offset; ``share`` of a step if its label is late, else 1.

        Further out than 1e100 it is a miss as any other.
        """
        score = _held(score)
        if share == 1.0:
            self.map.learn_one(self.start, score, w)
            return
        if self.as_served:
            self.map._take(self.start, _held(score - (served - self.value)), w * share)
        else:
            self.map._take(self.start, score, w)
        self.map.compared.record(self.start, served, score, w)

    def report(self) -> dict[str, Any]:
        """That of the map, its forecasts named what they are: ``offset``, mean and standard deviation, in scales."""
        said = self.map.report()
        said.pop("width")  # offset - start: below 0 where the end came nearer
        return {"start": self.start, "offset": said.pop("forecast"), **said}


def _held(score: float) -> float:
    """A score that a map may learn."""
    return min(max(score, -LARGEST), LARGEST)


class Residuals(ABC):
    """What both learn: the running scale of residuals, how late labels are, and offsets by their names, ``ends``.

    The scale is the mean absolute residual, fading, in units of y; a residual of more than 10 scales counts as 10. It is 0 until
    a residual differs from 0. Of what is served (v, scale, events learned, ...) is kept in its slot.

    Lateness is the fading mean of how many labels were learned between a forecast and its label, which is how many labels are on
    their way (Little 1961). All of them were served before the offset moved, so that full steps would carry it up to that many
    steps too far. A step of 1 / (1 + late / 5) keeps this to 5 steps at any lateness.
    """

    heaviest, low, high = LARGEST, -LARGEST, LARGEST

    def __init__(self, half_life: float, ends: dict[str, Offset]) -> None:
        self.scale, self.lateness, self.ends = FadingMean(half_life), FadingMean(half_life), ends
        self.as_served = next(iter(ends.values())).as_served
        self.records = Records()

    def learn(self, slot: int, y: float, w: float, late: int) -> None:
        """Learn that y came where this slot was served; nothing if w = 0. Without a scale then no tracked offset moves."""
        if not w > 0.0:
            return
        v, scale, then, *_ = record = self.records[slot]
        late, now, size = self.scale.events - then, self.scale.value, abs(y - v)
        self.lateness.take(late)
        # A label is as late as it is, or as they all lately were: the first of a batch is not to count more than the last.
        share = 1.0 / (1.0 + max(late, self.lateness.value) / PATIENCE)
        unit = scale if self.as_served else now
        if unit > 0.0:
            self._learn((y - v) / unit, w, share, record)
        self.scale.take(min(size, FAR * now) if now > 0.0 else size)
        self._judge(y, w, record)

    @abstractmethod
    def _learn(self, score: float, w: float, share: float, record: Any) -> None:
        """Let the offsets learn a scaled residual; ``share`` of a step, 1 as long as no label was late."""

    @abstractmethod
    def _judge(self, y: float, w: float, record: Any) -> None:
        """Sum up how good what was served is."""

    def _learned(self) -> dict[str, Any]:
        """How a report ends."""
        ends = {name: end.report() for name, end in self.ends.items()}
        return {"scale": self.scale.value, "lateness": self.lateness.value, "ends": ends}


class QuantileResiduals(Residuals):
    """A forecast v of the ``level``-quantile, moved by an offset times the scale of y - v. Nothing is moved at the start."""

    def __init__(self, level: float, half_life: float, **offset: Any) -> None:
        self.level = check_level(level)
        super().__init__(half_life, {"quantile": Offset(self.level, 0.0, **offset)})
        self.compared = Comparison(Quantile(self.level))
        self.moved = self.weight = 0.0

    def serve(self, v: float, slot: int) -> float:
        """The recalibrated quantile."""
        scale, offset = self.scale.value, self.ends["quantile"].value
        served = v + scale * offset if scale > 0.0 else v
        self.records.keep(slot, (v, scale, self.scale.events, offset, served))
        return served

    def _learn(self, score: float, w: float, share: float, record: Any) -> None:
        self.ends["quantile"].learn(score, w, record[3], share)

    def _judge(self, y: float, w: float, record: Any) -> None:
        v, *_, served = record
        self.moved, self.weight = self.moved + w * (served - v), self.weight + w
        self.compared.record(v, _held(served), y, w)

    def report(self) -> dict[str, Any]:
        """Coverage (share of y <= forecast) before and after, and ``moved``: what was added to the forecasts on average."""
        one = self.compared.report()
        coverage = {name: one[name]["metrics"]["coverage"]["value"] for name in ("before", "after")}
        return {
            **one,
            "coverage": {**coverage, "nominal": self.level},
            "moved": self.moved / (self.weight or math.nan),
            **self._learned(),
        }


class Covered:
    """Summed weight, coverage, width and interval score of served intervals."""

    def __init__(self, coverage: float) -> None:
        self.price = 2.0 / (1.0 - coverage)  # of what an outcome is outside
        self.weight = self.inside = self.width = self.score = 0.0

    def learn(self, lower: float, upper: float, y: float, w: float) -> None:
        """Take one interval in."""
        miss = max(lower - y, y - upper, 0.0)
        self.weight += w
        self.inside += w * (miss == 0.0)
        self.width += w * (upper - lower)
        self.score += w * (upper - lower + self.price * miss)

    def means(self) -> dict[str, float]:
        """Each per unit of weight; nan before any."""
        weight = self.weight or math.nan
        names = {"coverage": self.inside, "width": self.width, "interval_score": self.score}
        return {name: total / weight for name, total in names.items()}


class IntervalResiduals(Residuals):
    """An interval about a forecast v that holds the outcome with probability ``coverage``: each end at an offset of its own.

    Without learning the offsets are those of normal residuals at the running scale. ``symmetric``: one offset for both ends,
    learned from absolute residuals.
    """

    def __init__(self, coverage: float, half_life: float, symmetric: bool, **offset: Any) -> None:
        self.coverage = check_level(coverage, "interval")
        self.symmetric = check_flag("symmetric", symmetric)
        tail = (1.0 + self.coverage) / 2.0
        self.start = PER_MEAN * NormalDist().inv_cdf(tail)
        level, names = (self.coverage, ["both"]) if symmetric else (tail, ["lower", "upper"])
        super().__init__(half_life, {name: Offset(level, self.start, **offset) for name in names})
        self._below, self._above = self.ends[names[0]], self.ends[names[-1]]
        self.before, self.after = Covered(self.coverage), Covered(self.coverage)

    def serve(self, v: float, slot: int) -> tuple[float, float]:
        """(lower, upper). Both ends are v while the scale is 0; ends that have crossed are swapped."""
        scale, below, above = self.scale.value, self._below.value, self._above.value
        lower, upper = (v - scale * below, v + scale * above) if scale > 0.0 else (v, v)
        if lower > upper:
            lower, upper = upper, lower
        self.records.keep(slot, (v, scale, self.scale.events, below, above, lower, upper))
        return lower, upper

    def _learn(self, score: float, w: float, share: float, record: Any) -> None:
        self._below.learn(abs(score) if self.symmetric else -score, w, record[3], share)
        if not self.symmetric:
            self._above.learn(score, w, record[4], share)

    def _judge(self, y: float, w: float, record: Any) -> None:
        v, scale, _, _, _, lower, upper = record
        plain = scale * self.start
        self.before.learn(v - plain, v + plain, y, w)
        self.after.learn(lower, upper, y, w)

    def report(self) -> dict[str, Any]:
        """Coverage, mean width and mean interval score of normal intervals at the running scale and of the served ones."""
        before, after = self.before.means(), self.after.means()
        return {
            "before": before,
            "after": after,
            "coverage": {"before": before["coverage"], "after": after["coverage"], "nominal": self.coverage},
            "width": {"before": before["width"], "after": after["width"]},
            **self._learned(),
        }
