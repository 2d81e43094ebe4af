"""A thing of every kind that has a document, in mid-stream, and how it is used after it was read."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import streamcal as sc
from streamcal import drift, recalibrate
from streamcal.claims import Claim
from streamcal.recalibrate.online import Online
from streamcal.recalibrate.recalibrator import Recalibrator
from streamcal.windows.window import Window

RNG = np.random.default_rng(14)
N = 60
P = RNG.random(N).round(3)
Y = (RNG.random(N) < P).astype(float)
W = RNG.integers(1, 4, N).astype(float)
KEY = RNG.integers(0, 2, N)
ROWS = np.stack([0.7 * P, 0.3 * P, 1.0 - P], 1)
LABELS = RNG.integers(0, 3, N).astype(float)
V = RNG.normal(size=N).round(3)
Z = RNG.normal(size=N).round(3)
BOTH = np.stack([V - 1.0, V + 1.0], 1)
SEGMENTS = np.array(["at", "de", "ch"])[np.arange(N) % 3]
INF = float("inf")


def fed(window: Any, *columns: Any, **more: Any) -> Any:
    window.update_many(*columns, **more)
    return window


def learned(online: Any, *columns: Any) -> Any:
    online.run(*columns)
    return online


WINDOWS: dict[str, Callable[[], Any]] = {
    "Cumulative": lambda: fed(sc.Cumulative(sc.EqualWidth(5), keys=2, loss="log"), P, Y, W, key=KEY),
    "Sliding": lambda: fed(sc.Sliding(sc.Levels([0.1, 0.5, 0.9]), 9, keys=2), P, Y, W, key=KEY),
    "Tumbling": lambda: fed(sc.Tumbling(sc.Grid(4), 9, keys=2, claim=sc.Mean("binary")), P, Y, W, key=KEY),
    "Revertible": lambda: fed(sc.Revertible(sc.EqualWidth(3), keys=2), P, Y, W, key=KEY),
    "Fading": lambda: fed(sc.Fading(sc.EqualWidth(3), 25.5, keys=2), P, Y, W, key=KEY),
    "Timed": lambda: fed(sc.Timed(sc.EqualWidth(4), 60, panes=6, lateness=5, keys=2), P, Y, W, key=KEY, t=np.arange(N)),
}
# The same kinds with other bins and claims: what a config can hold besides.
MORE: dict[str, Callable[[], Any]] = {
    "Cumulative of a fine grid": lambda: fed(sc.Cumulative(sc.UniformMass(3, bits=1)), P, Y),
    "Cumulative of log odds": lambda: fed(sc.Cumulative(sc.LogOdds(3, bits=1)), P, Y),
    "Cumulative of quantiles": lambda: fed(
        sc.Cumulative(sc.Edges([-INF, 0.0, INF]), claim=sc.Quantile([0.1, 0.9]), loss="pinball"), BOTH, Z
    ),
    "Sliding of intervals": lambda: fed(sc.Sliding(sc.Edges([0.0, INF]), 7, claim=sc.Interval(0.1, 0.9)), BOTH, Z),
    "Sliding of classes": lambda: fed(sc.Sliding(sc.EqualWidth(2), 7, claim=sc.Marginal(3)), ROWS, LABELS),
    "Tumbling of the top label": lambda: fed(sc.Tumbling(sc.EqualWidth(2), 7, claim=sc.TopLabel()), ROWS, LABELS),
    "Timed of PIT": lambda: fed(sc.Timed(sc.Levels([0.5]), 9, 3, claim=sc.PIT([0.2, 0.5])), P, P, t=np.arange(N)),
    "Snapshot coarse": lambda: fed(sc.Cumulative(sc.EqualWidth(9)), P, Y).snapshot().coarsen(3),
}
DECLARED: dict[str, Callable[[], Any]] = {
    "EqualWidth": lambda: sc.EqualWidth(7),
    "UniformMass": lambda: sc.UniformMass(5, bits=3),
    "LogOdds": lambda: sc.LogOdds(5),
    "Levels": lambda: sc.Levels([0.1, 0.5]),
    "Grid": lambda: sc.Grid(8),
    "Edges": lambda: sc.Edges([0.0, 0.4, INF]),
    "Mean": lambda: sc.Mean("binary"),
    "Quantile": lambda: sc.Quantile([0.1, 0.9]),
    "Interval": lambda: sc.Interval(0.05, 0.95),
    "TopLabel": sc.TopLabel,
    "Marginal": lambda: sc.Marginal(4),
    "PIT": lambda: sc.PIT([0.25, 0.75]),
    "Bets": lambda: drift.Bets(slopes=(0.5, 2.0), shifts=(-0.5, 0.5), stakes=(-1.0, 1.0), bins=4),
    "Snapshot": lambda: WINDOWS["Cumulative"]().snapshot(),
}
MAPS: dict[str, Callable[[], Any]] = {
    "PlattScaling": lambda: sc.PlattScaling().fit(P, Y),
    "BetaCalibration": lambda: sc.BetaCalibration().fit(P, Y),
    "TemperatureScaling": lambda: sc.TemperatureScaling().fit(P, Y),
    "IsotonicCalibration": lambda: sc.IsotonicCalibration().fit(P, Y),
    "HistogramBinning": lambda: sc.HistogramBinning(4).fit(P, Y),
    "ScalingBinning": lambda: sc.ScalingBinning(4).fit(P, Y),
    "Patching": lambda: sc.Patching(levels=4).fit(P, Y),
    "OneShotPatching": lambda: sc.OneShotPatching(levels=4).fit(P, Y),
    "QuantilePatching": lambda: sc.QuantilePatching(0.5, levels=[-1.0, 0.0, 1.0]).fit(V, Z),
    "MarginalCalibration": lambda: recalibrate.Marginal(sc.PlattScaling()).fit(ROWS, LABELS),
    "TopLabelCalibration": lambda: recalibrate.TopLabel(sc.HistogramBinning(3)).fit(ROWS, LABELS),
}
ONLINE: dict[str, Callable[[], Any]] = {
    "OnlinePlatt": lambda: learned(sc.OnlinePlatt(), P, Y),
    "OnlineBeta": lambda: learned(sc.OnlineBeta(), P, Y),
    "OnlineHistogram": lambda: learned(sc.OnlineHistogram(sc.Sliding(sc.EqualWidth(4), 9)), P, Y),
    "OnlineIsotonic": lambda: learned(sc.OnlineIsotonic(sc.Fading(sc.EqualWidth(4), 9.0)), P, Y),
    "OnlinePatching": lambda: learned(sc.OnlinePatching(4, window=sc.Sliding(sc.Grid(4), 20), remember=3), P, 1.0 - Y),
    "OnlineQuantilePatching": lambda: learned(
        sc.OnlineQuantilePatching(0.5, window=sc.Sliding(sc.Levels([-1.0, 1.0]), 30, claim=sc.Quantile(0.5)), every=10),
        V,
        Z + 3.0,
    ),
    "Refit": lambda: learned(sc.Refit(sc.PlattScaling(), sc.Sliding(sc.EqualWidth(4), 30), 20), P, Y),
    "Frozen": lambda: learned(sc.Frozen(MAPS["PlattScaling"]()), P, Y),
    "Chain": lambda: learned(sc.Chain(), P, Y),
    "Guard": lambda: learned(sc.Guard([sc.OnlinePlatt(), sc.Chain()], share=0.01), P, Y),
    "Calibeating": lambda: learned(sc.Calibeating(sc.Levels([0.2, 0.8])), P, Y),
    "MixedForecaster": lambda: learned(sc.MixedForecaster(sc.EqualWidth(3), m=4), P, Y),
    "FosterForecaster": lambda: learned(sc.FosterForecaster(5), P, Y),
    "AlmostOneStepAhead": lambda: learned(sc.AlmostOneStepAhead(5), P, Y),
    "QuantileTracker": lambda: learned(sc.QuantileTracker(0.9, integrator=(1.0, 10.0)), V, Z),
    "MultivalidQuantile": lambda: learned(sc.MultivalidQuantile(0.8, m=5), V, Z),
    "MultivalidMean": lambda: learned(sc.MultivalidMean(m=5, n_bins=3), P, Y),
    "OnlineMarginal": lambda: learned(sc.OnlineMarginal(sc.Guard([sc.OnlinePlatt()]), 3), ROWS, LABELS),
    "Comparison": lambda: ONLINE["OnlinePlatt"]().compared,
}
DETECTORS: dict[str, Callable[[], Any]] = {
    "CalibrationDrift": lambda: fed(drift.CalibrationDrift(arl=40), P, 1.0 - Y),
    "TopLabelDrift": lambda: fed(drift.TopLabelDrift(arl=40), ROWS, LABELS),
    "MarginalDrift": lambda: fed(drift.MarginalDrift(3, arl=40), ROWS, LABELS),
    "SegmentedDrift": lambda: fed(drift.SegmentedDrift(["at", "de", "ch"], arl=40), P, 1.0 - Y, SEGMENTS),
    "CoverageDrift": lambda: fed(drift.CoverageDrift(0.9, arl=40), V, Z),
    "PITDrift": lambda: fed(drift.PITDrift(arl=40), P),
    "CalibrationTest": lambda: fed(drift.CalibrationTest(), P, Y),
    "SegmentedTest": lambda: fed(drift.SegmentedTest(["at", "de", "ch"]), P, Y, SEGMENTS),
}
KINDS = {**WINDOWS, **DECLARED, **MAPS, **ONLINE, **DETECTORS}
ALL = {**KINDS, **MORE}


@cache
def document(name: str) -> bytes:
    """The document of a thing by the name of its kind, or of :data:`MORE`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sc.CalibrationWarning)
        data = ALL[name]().to_bytes()
    assert isinstance(data, bytes)
    return data


def events(claim: Claim, n: int) -> tuple[Any, Any]:
    """Raw predictions and outcomes that a claim can take."""
    if isinstance(claim, sc.Marginal | sc.TopLabel):
        width = claim.width if isinstance(claim, sc.Marginal) else 3
        return np.full((n, width), 1.0 / width), np.arange(n) % width
    if isinstance(claim, sc.Interval):
        return BOTH[:n], Z[:n]
    if isinstance(claim, sc.Quantile):
        return (V[:n] if claim.scalar else np.tile(V[:n, None], claim.width)), Z[:n]
    return P[:n], Y[:n]


def use(thing: Any, whole: bool = True) -> None:
    """What a user does next: a few events, then what can be read, with its report if it is to be the ``whole``."""
    if isinstance(thing, Window):
        p, y = events(thing.claim, 7)
        when = {"t": thing.watermark + 1.0 if thing.watermark > -INF else 5.0} if isinstance(thing, sc.Timed) else {}
        thing.update_many(p, y, **when)
        if thing.claim.scalar:
            thing.update(0.3, 1.0, **when)
        thing.snapshot()
        if whole:
            thing.report()
        if isinstance(thing, sc.Sliding):
            thing.events()
    elif isinstance(thing, Online):
        p, y = (V[:7], Z[:7]) if thing._bounds[0] == "v" else (P[:7], Y[:7])
        groups = {"groups": [0]} if hasattr(thing, "groups") else {}
        for a, b in zip(p.tolist(), y.tolist(), strict=True):
            thing.predict_one(a, **groups)
            thing.learn_one(a, b, **groups)
        if whole:
            thing.report()
    elif isinstance(thing, Recalibrator):
        thing.predict(P[:7])
    else:
        kind = type(thing).__name__
        for of in (LEARNED, READ):
            if kind in of:
                of[kind](thing)
        if whole and hasattr(thing, "report"):
            thing.report()
    repr(thing)
    thing.to_bytes()


def _classes(n: int) -> Any:
    return np.full((5, n), 1.0 / n), np.zeros(5)


LEARNED: dict[str, Callable[[Any], Any]] = {
    "OnlineMarginal": lambda one: one.run(*_classes(one.n_classes)),
    "CalibrationDrift": lambda one: one.update_many(P[:9], Y[:9]),
    "TopLabelDrift": lambda one: one.update_many(ROWS[:9], LABELS[:9]),
    "MarginalDrift": lambda one: one.update_many(*_classes(one.n_classes)),
    "SegmentedDrift": lambda one: one.update_many(P[:5], Y[:5], [one._known.names[0]] * 5),
    "CoverageDrift": lambda one: one.update_many(
        V[:9] if not one._width else np.tile(np.arange(float(one._width[0])), (9, 1)), Z[:9]
    ),
    "PITDrift": lambda one: one.update_many(P[:9]),
    "CalibrationTest": lambda one: one.update_many(P[:9], Y[:9]),
    "SegmentedTest": lambda one: one.update_many(P[:5], Y[:5], [one._known.names[0]] * 5),
}
READ: dict[str, Callable[[Any], Any]] = {
    **{
        name: lambda one: one.bins(P[:3])
        for name in ("EqualWidth", "Grid", "Levels", "Edges", "UniformMass", "LogOdds")
    },
    "QuantilePatching": lambda one: (one.predict(V[:7]), one.history()),
    "MarginalCalibration": lambda one: one.predict(_classes(one.n_classes_)[0]),
    "TopLabelCalibration": lambda one: one.transform(_classes(one.n_classes_)[0]),
}
