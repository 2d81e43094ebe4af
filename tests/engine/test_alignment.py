"""Two columns of unlike index or length are refused at every public door that takes columns; the doors are found, not listed."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pytest

import streamcal
import streamcal.drift
import streamcal.monitor
import streamcal.recalibrate
from streamcal import EqualWidth
from streamcal.arrays import check_aligned

P, Y, V = np.array([0.2, 0.8, 0.7, 0.4]), np.array([0.0, 1.0, 0.0, 1.0]), np.array([1.5, 2.5, 3.5, 0.5])
PROBS, ONES, TWO = np.column_stack([P, 1.0 - P]), np.ones(4), np.arange(4) % 2
# What a parameter of this name takes: a column of four events.
COLUMNS = {
    **dict.fromkeys(("p", "conf", "u", "below"), P),
    **dict.fromkeys(("y", "correct", "labels"), Y),
    **dict.fromkeys(("upto", "w", "sample_weight"), ONES),
    **dict.fromkeys(("key", "segment"), TWO),
    "v": V,
    "z": V,
    "probs": PROBS,
    "logits": np.log(PROBS),
    "t": np.arange(4.0),
    "ids": np.arange(4),
    "groups": np.array([[1, 1], [1, 0], [0, 1], [1, 1]]),
}
CALLED = {"conf": "p", "correct": "y", "below": "u", "p": "probs", "y": "labels"}  # in errors of some doors
OTHERS = {"level": 0.5, "n_bins": 2}  # arguments of a door that are no columns
# A method of one event, or one of columns that the house has checked, is no door of columns.
NO_DOORS = (
    "_one",
    ".update",
    ".revert",
    ".correct",
    ".distribution",
    ".events",
    ".snapshot_of",
    ".add_checked",
    ".add_columns",
)
NO_DOORS += (".predict", ".label")


def public(room):
    return [(name, getattr(room, name)) for name in getattr(room, "__all__", vars(room)) if name[0] != "_"]


def doors():
    """Every public function, and method of a public class, that takes two columns or more: (name, function, its class)."""
    found = {}
    for room in (streamcal, streamcal.recalibrate, streamcal.drift, streamcal.monitor):
        for name, thing in public(room):
            inside = [] if not inspect.isclass(thing) else inspect.getmembers(thing, inspect.isfunction)
            for label, function in [(name, thing), *((f"{name}.{n}", f) for n, f in inside if n[0] != "_")]:
                if not inspect.isfunction(function) or label.endswith(NO_DOORS) or inspect.isabstract(thing):
                    continue
                if len(COLUMNS.keys() & inspect.signature(function).parameters.keys()) > 1:
                    found[label] = function, thing if inspect.isclass(thing) else None
    return found


DOORS = doors()
MODEL = {"bins": 4, "weight": "amount"}
CONFIG = {
    "state": ":memory:",
    "models": {"m": MODEL},
    "windows": {"w": {"events": 9}},
    "segments": {"fields": ["shop"]},
}


def made(kind):
    """A new instance of a class that has doors."""
    name = kind.__name__
    usual = {
        "Monitor": lambda: kind(CONFIG),
        "Online": streamcal.OnlinePlatt,
        "Recalibrator": streamcal.PlattScaling,
        "Chain": lambda: kind(streamcal.OnlinePlatt(), streamcal.OnlineBeta()),
        "Frozen": lambda: kind(streamcal.PlattScaling().fit(P, Y)),
        "Guard": lambda: kind([streamcal.OnlinePlatt()]),
        "Refit": lambda: kind(streamcal.PlattScaling()),
        "OnlineMarginal": lambda: kind(streamcal.OnlinePlatt(), 2),
        "QuantileTracker": lambda: kind(0.5),
        "OnlineQuantilePatching": lambda: kind(0.5, 0.1),
        "QuantilePatching": lambda: kind(0.5, 0.1),
        "MultivalidQuantile": lambda: kind(0.5, groups=2),
        "MultivalidMean": lambda: kind(groups=2),
        "CoverageDrift": lambda: kind(0.5),
        "MarginalDrift": lambda: kind(2),
        "ScalingBinning": lambda: kind(n_bins=2).fit(P, Y),
        "Calibeating": lambda: kind(EqualWidth(2)),
        "MixedForecaster": lambda: kind(EqualWidth(2)),
    }
    if name in usual:
        return usual[name]()
    if issubclass(kind, streamcal.windows.Window):
        return kind(
            EqualWidth(2), *{"Sliding": (3,), "Tumbling": (3,), "Fading": (3,), "Timed": (9,)}.get(name, ()), keys=2
        )
    if name in ("SegmentedDrift", "SegmentedTest"):
        return kind(2)
    if name in ("Marginal", "MarginalCalibration", "TopLabel", "TopLabelCalibration"):
        return kind(streamcal.PlattScaling())
    return kind()


def arguments(label):
    """The columns that a door takes, and its other arguments."""
    names = inspect.signature(DOORS[label][0]).parameters.keys()
    columns = {name: COLUMNS[name] for name in COLUMNS if name in names}
    if "t" in columns and ".update_many" in label and not label.startswith("Timed"):
        del columns["t"]
    columns |= {"p": PROBS} if label.startswith(("MarginalDrift", "TopLabelDrift")) else {}
    return columns, {name: value for name, value in OTHERS.items() if name in names}


def call(label, columns):
    """The door with these columns, on an instance of its own."""
    function, kind = DOORS[label]
    columns = {**columns, "segment": {"shop": columns["segment"]}} if label == "Monitor.predict_many" else columns
    own = [] if kind is None else [made(kind)]
    if label == "Timed.take_back_many":
        own[0].update_many(**columns)
    return function(*own, **columns, **arguments(label)[1])


def with_index(column, index):
    """A Series of pandas, or a frame of it where the column has rows."""
    pandas = pytest.importorskip("pandas")
    return pandas.Series(column, index=index) if column.ndim == 1 else pandas.DataFrame(column, index=index)


@pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")
@pytest.mark.parametrize("label", DOORS)
def test_series_of_unlike_index_are_refused_and_named(label):
    columns = arguments(label)[0]
    same = {name: with_index(column, [3, 1, 0, 2]) for name, column in columns.items()}
    call(label, same)
    for one, other in itertools.combinations(columns, 2):
        unlike = {**columns, one: same[one], other: with_index(columns[other], [0, 1, 2, 3])}
        with pytest.raises(ValueError, match="must share one index") as raised:
            call(label, unlike)
        named = set(str(raised.value).replace(" shop", "").split(" must")[0].split(" and "))
        assert all(named & {name, CALLED.get(name)} for name in (one, other))


@pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")
@pytest.mark.parametrize("label", DOORS)
def test_series_of_polars_of_unlike_length_are_refused(label):
    polars = pytest.importorskip("polars")
    columns = arguments(label)[0]
    series = {
        name: polars.Series(name, column.tolist()) if column.ndim == 1 else column for name, column in columns.items()
    }
    call(label, series)
    for other in [name for name in columns if columns[name].ndim == 1]:
        with pytest.raises(ValueError):
            call(label, {**series, other: polars.Series(other, columns[other][:1].tolist())})


def test_the_walk_finds_the_doors():
    """A door that this test no longer finds would no longer be tested."""
    wanted = {
        "ece",
        "Timed.update_many",
        "Monitor.label_many",
        "MultivalidQuantile.run",
        "PlattScaling.fit",
        "PITDrift.update_many",
    }
    assert wanted <= DOORS.keys() and len(DOORS) > 70


def test_an_index_of_any_kind_counts():
    pandas = pytest.importorskip("pandas")
    days = pandas.date_range("2026-01-01", periods=4, freq="D")
    check_aligned(p=pandas.Series(P, days), y=pandas.Series(Y, days), w=None, t=days, ids=[3, 4, 5, 6])
    with pytest.raises(
        ValueError, match=r"p and y must share one index, got \[0, 1, 2, ...\] \(4\) and \[1, 2, 3, ...\] \(4\)"
    ):
        check_aligned(p=pandas.Series(P), w=ONES, y=pandas.Series(Y, index=[1, 2, 3, 4]))
    with pytest.raises(ValueError, match="p and y must be of one length, got 4 and 3"):
        check_aligned(p=pandas.Series(P), y=pandas.Index([1, 2, 3]))


def test_predictions_and_labels_sorted_otherwise():
    """Case 11: the labels of a frame that is sorted otherwise went to other predictions."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": ["a", "b", "c", "d"], "p": P, "y": Y})
    lab = frame.sort_values("y")
    monitor = streamcal.monitor.Monitor(CONFIG)
    monitor.predict_many(frame["id"], frame["p"], t=1.0, w=1.0, segment={"shop": "x"})
    with pytest.raises(ValueError, match="ids and y must share one index"):
        monitor.label_many(frame["id"], lab["y"], t=2.0)
    monitor.label_many(lab["id"], lab["y"], t=2.0)
    assert monitor.status()["models"][0]["labels"]["joined"] == 4
