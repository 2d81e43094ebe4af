"""Quantiles and intervals from residuals: how far outcomes fall from a forecast, in units of how far they lately did.

A tracked offset learns whether the outcome lay outside of what was served, whose scale and offset are as old as the label is
late. All labels that are on their way tell of the same old offset, so late ones move it by less (:class:`Lateness`).
"""

from __future__ import annotations

import math
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

    def _take(self, x: float) -> None:
        self.events += 1
        self.value += max(self.gain, 1.0 / self.events) * (x - self.value)


class Scale(FadingMean):
    """Mean absolute residual, fading. In units of y, >= 0.

    A residual of more than 10 scales counts as 10. ``value`` is 0 until a residual differs from 0.
    """

    def learn(self, residual: float) -> None:
        """Take one residual in."""
        size = abs(residual)
        if self.value > 0.0:
            size = min(size, FAR * self.value)
        self._take(size)


class Lateness(FadingMean):
    """By how many labels a label is late: how many were learned between its forecast and itself. Their fading mean.

    That is how many labels are on their way (Little 1961). All of them were served before the offset moved, so that full
    steps would carry it up to that many steps too far. A step of 1 / (1 + late / 5) keeps this to 5 steps at any lateness.
    """

    def share(self, late: int) -> float:
        """Of a whole step, what a label that is so late is to move the offset; 1 as long as none was late.

        It is as late as it is, or as they all lately were: the first of a batch is not to count more than the last.
        """
        self._take(late)
        return 1.0 / (1.0 + max(late, self.value) / PATIENCE)


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
        said = {**self.map.report()}
        said.pop("width")  # offset - start: below 0 where the end came nearer
        return {"start": self.start, "offset": said.pop("forecast"), **said}


def _held(score: float) -> float:
    """A score that a map may learn."""
    return min(max(score, -LARGEST), LARGEST)


class QuantileResiduals:
    """A forecast v of the ``level``-quantile, moved by an offset times the scale of y - v. Nothing is moved at the start."""

    heaviest, low, high = LARGEST, -LARGEST, LARGEST

    def __init__(self, level: float, half_life: float, **offset: Any) -> None:
        self.level = check_level(level)
        self.scale, self.lateness = Scale(half_life), Lateness(half_life)
        self.offset = Offset(self.level, 0.0, **offset)
        self.compared = Comparison(Quantile(self.level))
        self.moved = self.weight = 0.0
        self.records = Records()

    def serve(self, v: float, slot: int) -> float:
        """The recalibrated quantile; (v, scale, events learned, offset, quantile) is kept in this slot."""
        scale, offset = self.scale.value, self.offset.value
        served = v + scale * offset if scale > 0.0 else v
        self.records.keep(slot, (v, scale, self.scale.events, offset, served))
        return served

    def learn(self, slot: int, y: float, w: float, late: int) -> None:
        """Learn that y came where this slot was served; nothing if w = 0. Without a scale then no tracked offset moves."""
        if not w > 0.0:
            return
        v, scale, then, offset, served = self.records[slot]
        share = self.lateness.share(self.scale.events - then)
        unit = scale if self.offset.as_served else self.scale.value
        if unit > 0.0:
            self.offset.learn((y - v) / unit, w, offset, share)
        self.scale.learn(y - v)
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
            "scale": self.scale.value,
            "lateness": self.lateness.value,
            "ends": {"quantile": self.offset.report()},
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


class IntervalResiduals:
    """An interval about a forecast v that holds the outcome with probability ``coverage``: each end at an offset of its own.

    Without learning the offsets are those of normal residuals at the running scale. ``symmetric``: one offset for both ends,
    learned from absolute residuals.
    """

    heaviest, low, high = LARGEST, -LARGEST, LARGEST

    def __init__(self, coverage: float, half_life: float, symmetric: bool, **offset: Any) -> None:
        self.coverage = check_level(coverage, "interval")
        self.symmetric = check_flag("symmetric", symmetric)
        tail = (1.0 + self.coverage) / 2.0
        self.start = PER_MEAN * NormalDist().inv_cdf(tail)
        self.scale, self.lateness = Scale(half_life), Lateness(half_life)
        self.ends = [Offset(self.coverage if symmetric else tail, self.start, **offset) for _ in range(2 - symmetric)]
        self.before, self.after = Covered(self.coverage), Covered(self.coverage)
        self.records = Records()

    def serve(self, v: float, slot: int) -> tuple[float, float]:
        """(lower, upper); (v, scale, events learned, offset of either end, lower, upper) is kept in this slot.

        Both ends are v while the scale is 0. Ends that have crossed are swapped.
        """
        scale, below, above = self.scale.value, self.ends[0].value, self.ends[-1].value
        lower, upper = (v - scale * below, v + scale * above) if scale > 0.0 else (v, v)
        if lower > upper:
            lower, upper = upper, lower
        self.records.keep(slot, (v, scale, self.scale.events, below, above, lower, upper))
        return lower, upper

    def learn(self, slot: int, y: float, w: float, late: int) -> None:
        """Learn that y came where this slot was served; nothing if w = 0. Without a scale then no tracked offset moves."""
        if not w > 0.0:
            return
        v, scale, then, below, above, lower, upper = self.records[slot]
        share = self.lateness.share(self.scale.events - then)
        unit = scale if self.ends[0].as_served else self.scale.value
        if unit > 0.0:
            score = (y - v) / unit
            self.ends[0].learn(abs(score) if self.symmetric else -score, w, below, share)
            if not self.symmetric:
                self.ends[1].learn(score, w, above, share)
        self.scale.learn(y - v)
        plain = scale * self.start
        self.before.learn(v - plain, v + plain, y, w)
        self.after.learn(lower, upper, y, w)

    def report(self) -> dict[str, Any]:
        """Coverage, mean width and mean interval score of normal intervals at the running scale and of the served ones."""
        before, after = self.before.means(), self.after.means()
        names = ["both"] if self.symmetric else ["lower", "upper"]
        return {
            "before": before,
            "after": after,
            "coverage": {"before": before["coverage"], "after": after["coverage"], "nominal": self.coverage},
            "width": {"before": before["width"], "after": after["width"]},
            "scale": self.scale.value,
            "lateness": self.lateness.value,
            "ends": {name: end.report() for name, end in zip(names, self.ends, strict=True)},
        }
