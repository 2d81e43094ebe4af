"""The columns of bench_drift: detectors of River with the one parameter by which their run length is tuned, and dummies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from drift_harness import Make, Watch, every, never, one_by_one, run_length, tune
from drift_streams import Stream
from kept import Kept

Array = np.ndarray


def residual(p: Array, y: Array) -> Array:
    return y - p


def squared_error(p: Array, y: Array) -> Array:
    return (y - p) ** 2


def slope_score(p: Array, y: Array) -> Array:
    """The residual, times the log odds of the claim: what moves if claims become too sure of themselves."""
    with np.errstate(divide="ignore"):
        z = np.log(p) - np.log1p(-p)
    return (y - p) * np.clip(z / 3.0, -1.0, 1.0)


def error(p: Array, y: Array) -> Array:
    """Whether the likelier outcome did not come: 1 is an error, as DDM and HDDM want it."""
    return (p > 0.5) != (y > 0.5)


@dataclass(frozen=True)
class Rival:
    """A detector with a parameter in ``between``, from too many alarms to too few; what one event costs it, in microseconds."""

    detector: Callable[[float], object]
    value: Callable[..., Array]
    between: tuple[float, float]
    cost: float

    def family(self, parameter: float) -> Make:
        def make() -> Watch:
            return one_by_one(self.detector(parameter), self.value)

        return make


def _adwin(delta: float) -> object:
    from river.drift import ADWIN

    return ADWIN(delta)


def _page_hinkley(threshold: float) -> object:
    from river.drift import PageHinkley

    return PageHinkley(threshold=threshold, mode="both")


def _ddm(level: float) -> object:
    from river.drift.binary import DDM

    return DDM(drift_threshold=level)


def _hddm_a(confidence: float) -> object:
    from river.drift.binary import HDDMA

    return HDDMA(drift_confidence=confidence, warning_confidence=confidence, two_sided_test=True)


def _hddm_w(confidence: float) -> object:
    from river.drift.binary import HDDMW

    return HDDMW(drift_confidence=confidence, warning_confidence=confidence, two_sided_test=True)


ADWIN, PH = (5.0, 1e-4), (1.0, 1000.0)
RIVALS = {
    "ADWIN, residual": Rival(_adwin, residual, ADWIN, 0.4),
    "ADWIN, sq. error": Rival(_adwin, squared_error, ADWIN, 0.4),
    "ADWIN, slope score": Rival(_adwin, slope_score, ADWIN, 0.4),
    "Page-Hinkley, residual": Rival(_page_hinkley, residual, PH, 1.2),
    "Page-Hinkley, sq. error": Rival(_page_hinkley, squared_error, PH, 1.2),
    "DDM, error": Rival(_ddm, error, (0.5, 20.0), 1.3),
    "HDDM_A, error": Rival(_hddm_a, error, (0.9, 1e-12), 5.0),
    "HDDM_W, error": Rival(_hddm_w, error, (0.9, 1e-12), 8.0),
}
PIT_RIVALS = {
    "ADWIN, |u - .5|": Rival(_adwin, lambda u: np.abs(u - 0.5), ADWIN, 0.4),
    "ADWIN, u": Rival(_adwin, lambda u: u, ADWIN, 0.4),
}
QUICK = ("ADWIN, residual", "ADWIN, sq. error", "Page-Hinkley, residual")


def by_chance(rate: float) -> Make:
    """Alarms with this probability at each event: the last bits of the claim are as good as a draw, and the same every time."""

    def first(p: Array, *others: Array) -> int:
        alarms = np.flatnonzero(p * 2.0**32 % 1.0 < rate)
        return int(alarms[0]) if alarms.size else -1

    return lambda: first


@dataclass(frozen=True)
class Column:
    """A detector in the tables: how it is made, its run length (mean, se), how many runs it can afford, its parameter,
    and whether its run length is that of the others within 4 standard errors."""

    make: Make
    length: dict[str, float]
    runs: int
    parameter: float = math.nan
    equal: bool = True


def precision_of(one: Rival, quick: bool) -> float:
    """Standard error of a tuned run length, as a share of it."""
    return 0.3 if quick else 0.05 if one.cost < 1.0 else 0.07 if one.cost < 2.0 else 0.15


def tuned_cell(kept: Kept, one: Rival, target: float, stream: Stream) -> dict[str, object]:
    tuned = tune(one.family, target, stream, one.between, precision_of(one, kept.quick), seed=4)
    return {**asdict(tuned), "reached": tuned.reached}


def columns(kept: Kept, name: str, ours: Column, rivals: dict[str, Rival], stream: Stream) -> dict[str, Column]:
    """Ours, measured in 1,600 runs, and the rivals tuned to that run length."""
    length = kept(f"run length, {name}", lambda: asdict(run_length(ours.make, stream, 1600, seed=3)))
    found = {name: Column(ours.make, length, ours.runs, ours.parameter)}
    for rival, one in rivals.items():
        tuned = kept(f"tuned, {rival}", lambda one=one: tuned_cell(kept, one, length["mean"], stream))
        runs = 20 if kept.quick else 100 if one.cost < 2.0 else 40
        make = one.family(tuned["parameter"])
        found[rival] = Column(make, tuned["run_length"], runs, tuned["parameter"], tuned["reached"])
    return found


def dummies(target: float) -> dict[str, Column]:
    """They look at nothing; the first two have the run length of the others."""
    equal = {"mean": target, "se": 0.0}
    return {
        "by chance": Column(by_chance(1.0 / target), equal, 200),
        "every so often": Column(every(round(target)), equal, 20),
        "never": Column(never, {"mean": math.inf, "se": 0.0}, 20),
        "always": Column(every(1), {"mean": 1.0, "se": 0.0}, 20),
    }
