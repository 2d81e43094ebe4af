"""Golden documents and reports: one of each kind of thing after the same events; what it writes down, and what it says.

tests/golden/documents.json holds for each the document of `to_bytes`: its line of JSON without the checksum, and its arrays
(long ones as hash and sums). It changes where a buffer's layout changes. tests/golden/reports.json holds what is seen from
outside: predictions, alarms, `report()`, metrics, all floats to their last bit; it must stay, whatever happens to the layout.
Floats: see golden_expectations.py.

    python tests/process/test_golden_documents.py             # writes both files anew
    python tests/process/test_golden_documents.py documents   # only this one (or: reports)

To write them anew is to say that users shall get something else: look at `git diff tests/golden` before it is committed.
"""

from __future__ import annotations

import importlib
import inspect
import json
import random
import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from golden_expectations import (
    GOLDEN,
    WRITTEN_BY,
    as_text,
    demand,
    differences,
    document,
    fingerprint,
    in_short,
    is_exact,
    plain,
)

import streamcal as sc
from streamcal import batch, confidence, drift, recalibrate

pytestmark = [
    pytest.mark.jit,
    pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning"),
]
N = 600
ROWS = 9  # a longer list of tables in a report is shown in short
INF = float("inf")


# -- events ------------------------------------------------------------------------------------------------------------


def uniforms(seed: int, *shape: int) -> np.ndarray:
    """Numbers in [0, 1) of Python's own generator, which stays the same for ever."""
    rng = random.Random(seed)
    return np.array([rng.random() for _ in range(int(np.prod(shape)))]).reshape(shape)


def normals(seed: int, *shape: int) -> np.ndarray:
    return (uniforms(seed, 12, *shape).sum(axis=0) - 6.0).round(6)


def binary(n: int = N, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """(p, y) of a model that is too sure, more so in the second half."""
    p = uniforms(seed, n).round(4)
    p[:4] = (0.0, 1.0, 0.5, 0.3)
    power = np.where(np.arange(n) < n / 2, 1.2, 3.0)
    q = p**power / (p**power + (1.0 - p) ** power)
    return p, (uniforms(seed + 100, n) < 0.7 * p + 0.3 * (1.0 - q)).astype(float)


def classes(n: int = N, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    x = uniforms(seed, n, 3) + 0.05
    p = x / x.sum(axis=1, keepdims=True)
    drawn = uniforms(seed + 100, n)
    turned = np.where(np.arange(n)[:, None] < n / 2, p, p[:, ::-1])
    return p, (drawn[:, None] > np.cumsum(turned, axis=1)[:, :2]).sum(axis=1)


def quantiles(n: int = N, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Forecasts of the quantiles .1, .5, .9, and outcomes that spread more in the second half."""
    middle, spread = normals(seed, n), np.where(np.arange(n) < n / 2, 1.0, 1.6)
    return middle[:, None] + np.array([-1.3, 0.0, 1.3]), middle + spread * normals(seed + 100, n)


def weights(n: int = N, seed: int = 4) -> np.ndarray:
    return (3.0 * uniforms(seed, n)).round(2)


# -- things: each is fed, and says what is seen from outside -------------------------------------------------------------

Thing = tuple[Any, dict[str, Any]]


def of_window(window: Any, *columns: Any, **more: Any) -> Thing:
    """A window after the events, with a look at all that it says."""
    window.update_many(*columns, **more)
    snapshot = window.snapshot()
    seen: dict[str, Any] = {"report": window.report()}
    seen["metrics"] = {name: snapshot.values(name).tolist() for name in sc.METRICS}
    seen["got"] = {name: _or_error(window.get, name) for name in ("ece", "k1", "coverage")}
    seen["repr"] = repr(window)
    return window, seen


def windows() -> dict[str, Thing]:
    (p, y), w, key, t = binary(), weights(), np.arange(N) % 2, np.arange(N) * 1.5
    (rows, labels), (v, z) = classes(), quantiles()
    two = {"keys": 2, "loss": "log"}
    made = {
        "cumulative": of_window(sc.Cumulative(sc.EqualWidth(8), **two), p, y, w, key=key),
        "sliding": of_window(sc.Sliding(sc.EqualWidth(8), 130, **two), p, y, w, key=key),
        "tumbling": of_window(sc.Tumbling(sc.Grid(6), 130, keys=2), p, y, w, key=key),
        "revertible": of_window(sc.Revertible(sc.Levels([0.1, 0.5, 0.9]), keys=2), p, y, w, key=key),
        "fading": of_window(sc.Fading(sc.EqualWidth(8), 90.5, keys=2), p, y, w, key=key),
        "timed": of_window(sc.Timed(sc.EqualWidth(8), 300.0, panes=10, lateness=20.0), p, y, w, t=t),
        "uniform mass": of_window(sc.Sliding(sc.UniformMass(6, bits=2), 400), p, y),
        "log odds": of_window(sc.Cumulative(sc.LogOdds(6, bits=1)), p**4, y),
        "edges": of_window(sc.Cumulative(sc.Edges([0.0, 0.2, 0.3, 1.0])), p, y),
        "quantile": of_window(
            sc.Sliding(sc.Edges([-INF, -1.0, 1.0, INF]), 300, claim=sc.Quantile(0.9), loss="pinball"), v[:, 2], z
        ),
        "quantiles": of_window(sc.Cumulative(sc.UniformMass(4, bits=1), claim=sc.Quantile([0.1, 0.5, 0.9])), v, z),
        "interval": of_window(sc.Cumulative(sc.Edges([0.0, 2.0, 3.0, INF]), claim=sc.Interval(0.1, 0.9)), v[:, ::2], z),
        "top label": of_window(sc.Tumbling(sc.EqualWidth(5), 250, claim=sc.TopLabel()), rows, labels),
        "marginal": of_window(sc.Sliding(sc.EqualWidth(5), 250, claim=sc.Marginal(3)), rows, labels),
        "pit": of_window(sc.Cumulative(sc.Levels([0.2, 0.5, 0.8]), claim=sc.PIT([0.2, 0.5, 0.8])), p, p),
    }
    timed, seen = made["timed"]
    for late in (899.0, 880.0, 200.0, 1500.0):
        timed.update(0.7, 1.0, t=late)
    seen["after late ones"] = timed.report()
    bad, seen = made["edges"]
    for a, b, c in ((float("nan"), 1.0, 1.0), (1.5, 1.0, 1.0), (0.5, 2.0, 1.0), (0.5, 1.0, -1.0)):
        bad.update(a, b, c)
    seen["after refused ones"] = bad.report()
    taken, seen = made["revertible"]
    for a, b, c in list(zip(p, y, w))[:50:2]:
        taken.revert(a, b, c)
    seen["after some were taken back"] = taken.report()
    return made


def of_map(recalibrator: Any, p: Any, y: Any, probe: Any, w: Any = None) -> Thing:
    recalibrator.fit(p, y, w)
    seen = {"predict": recalibrator.predict(probe), "repr": repr(recalibrator)}
    for name in ("history", "floor_reached_", "rounds_"):
        found = getattr(recalibrator, name, None)
        if found is not None:
            seen[name] = found() if callable(found) else found
    return recalibrator, seen


MAPS = [
    *((name, {}) for name in sc.RECALIBRATORS),
    ("platt", {"targets": "hard"}),
    ("beta", {"variant": "am"}),
    ("beta", {"variant": "ab"}),
    ("isotonic", {"strict": True}),
    ("histogram", {"binning": "equal-width", "n_bins": 7}),
    ("scaling-binning", {"targets": "hard", "n_bins": 5}),
    ("scaling-binning", {"split": True, "seed": 3}),
    ("patching", {"levels": 100, "alpha": 1e-4}),
    ("patching", {"significance": 0.05}),
    ("one-shot-patching", {"levels": 20}),
]
PROBE = np.array([0.0, 1e-300, 1e-9, 0.01, 0.27, 0.3, 0.5, 0.501, 0.77, 0.99, 1.0 - 1e-16, 1.0])


def named(name: str, arguments: dict[str, Any]) -> str:
    return " ".join([name, *(f"{key}={value!r}" for key, value in arguments.items())])


def maps() -> dict[str, Thing]:
    (p, y), w, (rows, labels), (v, z) = binary(), weights(), classes(), quantiles()
    made = {named(name, more): of_map(sc.RECALIBRATORS[name](**more), p, y, PROBE) for name, more in MAPS}
    weighted = {f"{name} weighted": of_map(sc.RECALIBRATORS[name](), p, y, PROBE, w) for name in sc.RECALIBRATORS}
    several = {
        "marginal": of_map(recalibrate.Marginal(sc.PlattScaling()), rows, labels, rows[:6]),
        "marginal histogram": of_map(recalibrate.Marginal(sc.HistogramBinning(5), False), rows, labels, rows[:6]),
        "top-label": of_map(recalibrate.TopLabel(sc.IsotonicCalibration()), rows, labels, rows[:6]),
        "quantile patching": of_map(sc.QuantilePatching(0.9), v[:, 2].round(1), z, np.linspace(-3.0, 4.0, 12)),
        "quantile patching levels": of_map(
            sc.QuantilePatching(0.5, 1e-3, levels=[-1.0, 0.0, 1.0]), v[:, 1], z, np.linspace(-3.0, 4.0, 12)
        ),
    }
    return {**made, **weighted, **several}


ONLINES = [
    *((name, {}) for name in sc.ONLINE),
    ("histogram", {"window": sc.Sliding(sc.EqualWidth(7), 40)}),
    ("histogram", {"window": sc.Fading(sc.EqualWidth(7), 30), "prior": 0.5}),
    ("isotonic", {"window": sc.Sliding(sc.Grid(20), 40), "prior": 0.5}),
    ("isotonic", {"window": sc.Fading(sc.EqualWidth(15), 30)}),
    ("platt", {"forgetting": 0.99}),
    ("beta", {"forgetting": 0.99}),
    ("calibeating", {"method": "hedging"}),
    ("foster", {"m": 7, "seed": 3}),
    ("guard", {"share": 0.01}),
    ("guard", {"raw_weight": 0.9, "names": ["a", "b", "c"]}),
    ("guard", {"experts": [sc.OnlinePlatt(), sc.OnlineHistogram()], "max_weight": 5.0}),
    ("refit", {"recalibrator": sc.IsotonicCalibration(), "every": 70}),
    ("refit", {"window": sc.Fading(sc.UniformMass(15, bits=4), 100), "every": 130}),
    ("patching", {"window": sc.Sliding(sc.Grid(20), 60), "m": 20}),
    ("patching", {"window": sc.Fading(sc.Grid(20), 50), "m": 20, "every": 5}),
    ("quantile-tracker", {"integrator": [1.0, 50.0]}),
    ("quantile-patching", {"window": sc.Sliding(sc.Edges([-INF, -1.0, 1.0, INF]), 120, claim=sc.Quantile(0.9))}),
]
REAL = ("quantile-tracker", "multivalid-quantile", "quantile-patching")  # they forecast quantiles


def of_online(made: Any, p: Any, y: Any, w: Any = None, full: bool = False, **more: Any) -> Thing:
    """In one pass, then one by one with the forecast that was served before."""
    seen: dict[str, Any] = {"run": made.run(p[:400], y[:400], None if w is None else w[:400], **more)[::7]}
    served = [made.predict_one(a) for a in p[400:420].tolist()] if not more else []
    for a, b, q in zip(p[400:], y[400:], served):
        made.learn_one(float(a), float(b), 1.0, served=q)
    seen["served"] = served
    report = made.report()
    if not full:
        report.pop("before", None)  # of the same raw forecasts as where it is full
    if w is None:
        seen["report"] = report
    seen["probe"] = [made.predict_one(a) for a in (0.0, 0.1, 0.5, 0.77, 1.0)] if not more else []
    if hasattr(made, "history"):
        seen["history"] = made.history() if callable(made.history) else made.history
    if hasattr(made, "distribution") and not more:
        takes = inspect.signature(made.distribution).parameters
        seen["distribution"] = made.distribution(*([0.4] if takes else []))
    return made, seen


def _or_error(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def onlines() -> dict[str, Thing]:
    (p, y), w, (rows, labels), (v, z) = binary(), weights().clip(0.0, 1.0), classes(), quantiles()
    made = {}
    for name, more in ONLINES:
        events = (v[:, 2], z) if name in REAL else (p, y)
        made[named(name, {k: str(v)[:40] for k, v in more.items()})] = of_online(
            sc.ONLINE[name](**more), *events, full=not more
        )
        if not more:
            made[f"{name} weighted"] = of_online(sc.ONLINE[name](), *events, w)
    groups = np.stack([np.ones(N), np.arange(N) % 2, np.arange(N) % 3 == 0], axis=1)[:400]
    made["multivalid-mean groups"] = of_online(sc.MultivalidMean(m=10, groups=3, seed=1), p, y, groups=groups)
    made["multivalid-quantile groups"] = of_online(
        sc.MultivalidQuantile(0.8, m=10, groups=3, low=-4.0, high=4.0), v[:, 2], z, groups=groups
    )
    several = sc.OnlineMarginal(sc.OnlinePlatt(), 3)
    seen = {"run": several.run(rows, labels)[::17], "report": several.report(), "probe": several.predict_one(rows[0])}
    made["online marginal"] = several, seen
    frozen = sc.Frozen(sc.PlattScaling().fit(p, y))
    made["frozen"] = of_online(frozen, p, y)
    return made


def of_detector(made: Any, *columns: Any) -> Thing:
    """In two calls and some events one by one."""
    first, second, rest = ([c[a:b] for c in columns] for a, b in ((0, 250), (250, N - 20), (N - 20, N)))
    seen: dict[str, Any] = {"alarms": [_plain_or_none(made.update_many(*first)), made.report()]}
    seen["alarms"] += [_plain_or_none(made.update_many(*second)), made.report()]
    for event in zip(*rest):
        made.update(*event)
    for name in ("evidence", "log_evidence", "p_value", "rejected", "drift_detected", "warning_detected", "n"):
        if hasattr(made, name):
            seen[name] = getattr(made, name)
    seen["report"] = made.report()
    if hasattr(made, "history"):
        seen["history"] = made.history()
    seen["repr"] = repr(made)
    return made, seen


def _plain_or_none(found: Any) -> Any:
    return None if found is None else found.tolist()


def detectors() -> dict[str, Thing]:
    (p, y), (rows, labels), (v, z) = binary(), classes(), quantiles()
    land = np.array(["at", "de", "ch"])[np.arange(N) % 3]
    u = np.where(np.arange(N) < N / 2, uniforms(9, N), 0.5 + 0.5 * (uniforms(9, N) - 0.5))
    bets = drift.Bets(slopes=(0.5, 2.0), shifts=(-0.5, 0.5), stakes=(-1.0, 1.0), bins=4, line_share=0.5)
    narrow, seen = of_detector(drift.SegmentedDrift(["at", "de", "ch"], arl=300), p, y, land)
    wide = narrow.widened(["at", "de", "ch", "it"])
    wide.update_many([0.5] * 30, [1] * 30, ["it"] * 30)
    return {
        "calibration": of_detector(drift.CalibrationDrift(arl=200), p, y),
        "calibration bets": of_detector(drift.CalibrationDrift(400, 0.03, bets, warning_arl=50), p, y),
        "coverage": of_detector(drift.CoverageDrift(0.9, arl=300), v[:, 2], z),
        "coverage levels": of_detector(drift.CoverageDrift([0.1, 0.5, 0.9], 300, 0.01, warning_arl=60), v, z),
        "coverage interval": of_detector(drift.CoverageDrift(0.8, arl=300, interval=True), v[:, ::2], z),
        "coverage at least": of_detector(drift.CoverageDrift(0.9, arl=300, at_least=True), v[:, 2], z),
        "pit": of_detector(drift.PITDrift(300, warning_arl=40, seed=2), u),
        "pit steps": of_detector(drift.PITDrift(300), (u * 8 // 1) / 8, (u * 8 // 1 + 1) / 8),
        "top label": of_detector(drift.TopLabelDrift(arl=300), rows, labels),
        "marginal": of_detector(drift.MarginalDrift(3, arl=300), rows, labels),
        "segmented": of_detector(drift.SegmentedDrift(["at", "de", "ch"], arl=300), p, y, land),
        "segmented numbers": of_detector(drift.SegmentedDrift(3, 300, 0.02, whole_share=0.3), p, y, np.arange(N) % 3),
        "segmented widened": (wide, {"before": seen, "report": wide.report(), "history": wide.history()}),
        "test": of_detector(drift.CalibrationTest(0.05), p, y),
        "test tolerance": of_detector(drift.CalibrationTest(0.01, 0.05, bets), p, y),
        "segmented test": of_detector(drift.SegmentedTest(["at", "de", "ch"]), p, y, land),
        "bets": (bets, {"repr": repr(bets)}),
    }


def plain_things() -> dict[str, Thing]:
    """Binnings, claims, and a snapshot."""
    made = [
        sc.EqualWidth(7),
        sc.UniformMass(5, bits=3),
        sc.LogOdds(5),
        sc.Levels([0.1, 0.5]),
        sc.Grid(8),
        sc.Edges([0.0, 0.4, 1.0]),
        sc.Mean("binary"),
        sc.Quantile([0.1, 0.9]),
        sc.Interval(0.05, 0.95),
        sc.TopLabel(),
        sc.Marginal(4),
        sc.PIT([0.25, 0.75]),
    ]
    p, y = binary()
    window = sc.Cumulative(sc.EqualWidth(10), keys=2)
    window.update_many(p, y, key=np.arange(N) % 2)
    snapshot = window.snapshot()
    bounds = {
        "k1": confidence.anytime_k1(snapshot),
        "l2_ce": confidence.anytime_l2_ce(snapshot),
        "p": confidence.anytime_p_value(snapshot),
        "bins": confidence.normal_mixture(snapshot),
        "variance": confidence.empirical_bernstein(snapshot),
    }
    things: dict[str, Thing] = {type(one).__name__: (one, {"repr": repr(one)}) for one in made}
    return {**things, "Snapshot": (snapshot, {"errors for all looks": bounds, "one key": snapshot[1].report()})}


def batch_numbers() -> dict[str, Any]:
    """What the functions of arrays give."""
    (p, y), w, (rows, labels), (v, z) = binary(), weights(), classes(), quantiles()
    inner = p.clip(0.01, 0.99)
    found: dict[str, Any] = {}
    for name in ("ece", "mce", "k1", "k2", "kinf", "l2_ce", "brier", "murphy", "pa_ratio", "oe_ratio"):
        measure = getattr(batch, name)
        found[name] = [measure(p, y), measure(p, y, sample_weight=w)]
        if name not in ("ece", "mce"):
            found[name] += (
                [measure(p, y, binning=sc.UniformMass(6))] if name not in ("brier", "pa_ratio", "oe_ratio") else []
            )
    for name in ("log_loss", "calibration_slope", "calibration_intercept", "spiegelhalter_z"):
        found[name] = [getattr(batch, name)(inner, y), getattr(batch, name)(inner, y, sample_weight=w)]
    for name in ("q1", "q2", "qinf"):
        found[name] = [getattr(batch, name)(v[:, 2].round(1), z, 0.9)]
    found["debiased"] = [sc.k2(p, y, binning=sc.EqualWidth(9), debias=True), sc.l2_ce(p, y, debias=True)]
    tied = rows.round(1) / rows.round(1).sum(1, keepdims=True)
    found["marginal_ce"] = [sc.marginal_ce(tied, labels, norm=n) for n in (1, 2)]
    found["pinball_loss"] = sc.pinball_loss(v[:, 2], z, 0.9)
    found["reliability"] = sc.reliability(p, y, 9)
    found["bin_index"] = sc.bin_index(p[:40], 9)
    found["top_label"] = [a[:20] for a in sc.top_label(rows, labels)]
    return found


def river_numbers() -> dict[str, Any]:
    """Classifiers and regressors of River whose scores are given: labels at once, late by an id, of several classes."""
    from river import base

    from streamcal import river

    class Scores(base.Classifier):
        _multiclass = True

        def learn_one(self, x: Any, y: Any) -> None:
            pass

        def predict_proba_one(self, x: Any) -> dict[Any, float]:
            return dict(x["p"])

    class Binary(Scores):
        _multiclass = False

    class Means(base.Regressor):
        def learn_one(self, x: Any, y: Any) -> None:
            pass

        def predict_one(self, x: Any) -> float:
            return x["v"]

    (p, y), (rows, labels), (v, z) = binary(), classes(), quantiles()
    found: dict[str, Any] = {}

    def classified(name: str, made: Any, xs: list[Any], ys: list[Any], late: int) -> None:
        out = []
        for i in range(len(xs) + late):
            if i < len(xs):
                out.append(list(made.predict_proba_one(xs[i], id=i).values()))
            if i >= late:
                made.learn_one(xs[i - late], ys[i - late], id=i - late)
        found[name] = {"served": out[::23], "report": made.report()}

    two = [{"p": {False: 1.0 - a, True: a}} for a in p.clip(0.001, 0.999).tolist()]
    three = [{"p": dict(zip("abc", row))} for row in rows.tolist()]
    truth, names = (y > 0).tolist(), ["abc"[k] for k in labels]
    classified("binary", river.RecalibratedClassifier(Binary()), two, truth, 0)
    classified("binary late", river.RecalibratedClassifier(Binary()), two, truth, 50)
    classified("binary beta", river.RecalibratedClassifier(Binary(), sc.OnlineBeta()), two, truth, 5)
    classified("binary Platt", river.RecalibratedClassifier(Binary(), sc.PlattScaling().fit(p, y)), two, truth, 0)
    classified("classes", river.RecalibratedClassifier(Scores()), three, names, 0)
    classified("classes late", river.RecalibratedClassifier(Scores(), memory=30), three, names, 40)
    asked = {
        "interval": {"interval": 0.9},
        "symmetric": {"interval": 0.8, "symmetric": True},
        "multivalid": {"interval": 0.9, "method": "multivalid"},
        "quantile": {"level": 0.9},
        "mean": {"low": -8.0, "high": 8.0},
    }
    for name, more in asked.items():
        made, out = river.RecalibratedRegressor(Means(), **more), []
        for i in range(N):
            x = {"v": float(v[i, 1])}
            served = made.predict_one(x, with_interval=True) if "interval" in more else made.predict_one(x)
            out.append([served.lower, served.upper] if "interval" in more else served)
            made.learn_one(x, float(z[i]))
        found[name] = {"served": out[::23], "report": made.report()}
    for name in ("ECE", "MCE", "K1", "K2", "L2CE", "Brier", "BrierCalibration", "BrierRefinement", "PARatio"):
        for more in ({}, {"window_size": 100}, {"half_life": 50}):
            made = getattr(river, name)(**more)
            for a, b in zip(two, truth):
                made.update(b, a["p"])
            found[named(name, more)] = made.get()
    for name, more in (("Coverage", {}), ("PinballLoss", {"level": 0.9}), ("Q1", {"level": 0.9})):
        found[f"{name} of numbers"] = _or_error(_river_metric, getattr(river, name), more, v[:, 2], z)
    return found


def _river_metric(kind: Any, more: dict[str, Any], v: Any, z: Any) -> float:
    made = kind(**more)
    for a, b in zip(z.tolist(), v.tolist()):
        made.update(a, b)
    return made.get()


ROOMS: dict[str, Callable[[], dict[str, Thing]]] = {
    "windows": windows,
    "maps": maps,
    "online": onlines,
    "drift": detectors,
    "plain": plain_things,
}
NUMBERS = {"batch": batch_numbers, "river": river_numbers}


@cache
def fed(room: str) -> dict[str, Thing]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sc.CalibrationWarning)
        return ROOMS[room]()


def documents(room: str) -> dict[str, Any]:
    found = {f"{room}: {name}": document(thing.to_bytes()) for name, (thing, _) in fed(room).items()}
    return in_short(plain(found))


def reports(room: str) -> dict[str, Any]:
    if room in NUMBERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sc.CalibrationWarning)
            return in_short(plain({f"{room}: {name}": seen for name, seen in NUMBERS[room]().items()}), ROWS)
    return in_short(plain({f"{room}: {name}": seen for name, (_, seen) in fed(room).items() if seen}), ROWS)


FILES = {"documents": (documents, list(ROOMS)), "reports": (reports, [*ROOMS, *NUMBERS])}

# -- tests -------------------------------------------------------------------------------------------------------------


def unlike(file: str, room: str) -> list[str]:
    kept = json.loads((GOLDEN / f"{file}.json").read_text())
    want = {name: thing for name, thing in kept.items() if name.startswith(f"{room}: ")}
    return differences(want, json.loads(json.dumps(FILES[file][0](room))), is_exact(), file)


@pytest.mark.parametrize("room", FILES["reports"][1])
def test_what_is_seen_from_outside_stays(room):
    demand(unlike("reports", room), "tests/process/test_golden_documents.py reports")


@pytest.mark.parametrize("room", FILES["documents"][1])
def test_documents_stay(room):
    demand(unlike("documents", room), "tests/process/test_golden_documents.py documents")


def test_everything_public_that_has_a_document_is_here():
    written = (GOLDEN / "documents.json").read_text()
    for room in ("streamcal", "streamcal.drift", "streamcal.recalibrate"):
        module = importlib.import_module(room)
        for name in module.__all__:
            kind = getattr(module, name)
            if isinstance(kind, type) and hasattr(kind, "to_bytes") and "_state" in dir(kind):
                abstract = name in ("Online", "Recalibrator", "Detector")
                assert abstract or f'"kind": "{kind.__name__}"' in written, name


# -- written anew ------------------------------------------------------------------------------------------------------


def main(args: list[str]) -> None:
    for file in args or list(FILES):
        of, rooms = FILES[file]
        text = as_text({name: thing for room in rooms for name, thing in of(room).items()})
        (GOLDEN / f"{file}.json").write_text(text)
        print(f"{file}: {len(text):,} characters")
    WRITTEN_BY.write_text(json.dumps(fingerprint(), indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
