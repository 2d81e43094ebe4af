"""Quantiles and intervals from residuals: how far outcomes fall from a forecast, in units of how far they lately did."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from streamcal.arrays import check_flag
from streamcal.claims import Quantile, check_level
from streamcal.recalibrate.comparison import Comparison
from streamcal.recalibrate.multivalid import MultivalidQuantile
from streamcal.recalibrate.quantile_tracking import LARGEST, QuantileTracker, check_number

METHODS = ("tracker", "multivalid")
FAR = 10.0  # a residual counts in the scale as at most this many scales, so that one outlier raises it by little
PER_MEAN = math.sqrt(math.pi / 2.0)  # standard deviations in a mean absolute residual, if residuals are normal


class Scale:
    """Mean absolute residual, fading: what happened ``half_life`` events ago counts half. In units of y, >= 0.

    The mean of all until 1.4 half-lives have passed, as nothing is known at the start. A residual of more than 10 scales counts
    as 10. ``value`` is 0 until a residual differs from 0.
    """

    def __init__(self, half_life: float) -> None:
        self.gain = 1.0 - 0.5 ** (1.0 / check_number("half_life", half_life, 1.0, LARGEST))
        self.events, self.value = 0, 0.0

    def learn(self, residual: float) -> None:
        """Take one residual in."""
        size = abs(residual)
        if self.value > 0.0:
            size = min(size, FAR * self.value)
        self.events += 1
        self.value += max(self.gain, 1.0 / self.events) * (size - self.value)


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

    @property
    def value(self) -> float:
        """The offset now."""
        return self.map.predict_one(self.start)

    def learn(self, score: float, w: float) -> None:
        """Learn one scaled residual. Further out than 1e100 it is a miss as any other."""
        self.map.learn_one(self.start, min(max(score, -LARGEST), LARGEST), w)


class QuantileResiduals:
    """A forecast v of the ``level``-quantile, moved by an offset times the scale of y - v. Nothing is moved at the start."""

    heaviest = LARGEST

    def __init__(self, level: float, half_life: float, **offset: Any) -> None:
        self.level = check_level(level)
        self.scale, self.offset = Scale(half_life), Offset(self.level, 0.0, **offset)
        self.compared = Comparison(Quantile(self.level))
        self.moved = self.weight = 0.0

    def serve(self, v: float) -> tuple[float, float, float]:
        """(v, scale, the recalibrated quantile): a slip that goes to :meth:`learn` with the outcome."""
        scale = self.scale.value
        return v, scale, v + scale * self.offset.value if scale > 0.0 else v

    def learn(self, slip: tuple[float, float, float], y: float, w: float) -> None:
        """Learn that y came where this was served."""
        v, scale, served = slip
        scale = scale or self.scale.value  # a label that comes late may find a scale where its forecast had none
        if scale > 0.0:
            self.offset.learn((y - v) / scale, w)
        if w > 0.0:
            self.scale.learn(y - v)
            self.moved, self.weight = self.moved + w * (served - v), self.weight + w
        self.compared.record(v, min(max(served, -LARGEST), LARGEST), y, w)

    def report(self) -> dict[str, Any]:
        """Coverage (share of y <= forecast) before and after, and what was added to the forecasts on average."""
        one = self.compared.report()
        coverage = {name: one[name]["metrics"]["coverage"]["value"] for name in ("before", "after")}
        return {
            **one,
            "coverage": {**coverage, "nominal": self.level},
            "width": {"before": 0.0, "after": self.moved / (self.weight or math.nan)},
            "scale": self.scale.value,
            "ends": {"upper": self.offset.map.report()},
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

    heaviest = LARGEST

    def __init__(self, coverage: float, half_life: float, symmetric: bool, **offset: Any) -> None:
        self.coverage = check_level(coverage, "interval")
        self.symmetric = check_flag("symmetric", symmetric)
        tail = (1.0 + self.coverage) / 2.0
        self.start = PER_MEAN * NormalDist().inv_cdf(tail)
        self.scale = Scale(half_life)
        self.ends = [Offset(self.coverage if symmetric else tail, self.start, **offset) for _ in range(2 - symmetric)]
        self.before, self.after = Covered(self.coverage), Covered(self.coverage)

    def serve(self, v: float) -> tuple[float, float, float, float]:
        """(v, scale, lower, upper): a slip that goes to :meth:`learn` with the outcome.

        Both ends are v while the scale is 0. Ends that have crossed are swapped.
        """
        scale = self.scale.value
        if scale == 0.0:
            return v, scale, v, v
        below, above = v - scale * self.ends[0].value, v + scale * self.ends[-1].value
        return (v, scale, below, above) if below <= above else (v, scale, above, below)

    def learn(self, slip: tuple[float, float, float, float], y: float, w: float) -> None:
        """Learn that y came where this was served."""
        v, scale, lower, upper = slip
        now = scale or self.scale.value  # a label that comes late may find a scale where its forecast had none
        if now > 0.0:
            score = (y - v) / now
            self.ends[0].learn(abs(score) if self.symmetric else -score, w)
            if not self.symmetric:
                self.ends[1].learn(score, w)
        if w > 0.0:
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
            "ends": {name: end.map.report() for name, end in zip(names, self.ends, strict=True)},
        }
