"""(y, p) in place of (p, y) is said once at every door that can tell; honest data, certain predictions too, are never accused."""

from __future__ import annotations

import inspect
import warnings

import naive
import numpy as np
import pytest
import strategies as sts
from hypothesis import given
from hypothesis import strategies as st
from test_alignment import DOORS, made

import streamcal
from streamcal import Cumulative, EqualWidth, Levels, UniformMass
from streamcal.drift import CalibrationDrift, CalibrationTest

RNG = np.random.default_rng(3)
P = RNG.random(60).round(3)
Y = (RNG.random(60) < P).astype(float)
NAMES = {"p": ("p", "y"), "conf": ("conf", "correct"), "z": ("z", "y")}
MORE = {
    "level": 0.5,
    "n_bins": 2,
    "key": np.zeros(60, int),
    "segment": np.zeros(60),
    "groups": np.ones((60, 2)),
    "t": np.arange(60.0),
}
# Doors of probabilities: quantile doors cannot tell, rows of classes are of another shape, ids say what is meant.
TOLD = [
    label
    for label, (function, _) in DOORS.items()
    if NAMES.keys() & (names := inspect.signature(function).parameters.keys())
    and not label.startswith(("Monitor", "MarginalDrift", "TopLabelDrift", "Timed.take_back"))
    and "Quantile" not in label
    and "v" not in names
]


def swapped(what):
    """How often it said that p and y are swapped."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        what()
    said = [w for w in caught if "swapped" in str(w.message)]
    assert all(w.category is streamcal.CalibrationWarning and w.filename == __file__ for w in said)
    return len(said)


def call(label, p, y):
    function, kind = DOORS[label]
    names = inspect.signature(function).parameters
    columns = next(pair for first, pair in NAMES.items() if first in names)
    own = [] if kind is None else [made(kind)]
    more = {name: value for name, value in MORE.items() if name in names}
    if label.endswith("update_many") and own and not label.startswith("Timed"):
        more.pop("t", None)
    function(*own, **dict(zip(columns, (p, y), strict=True)), **more)
    if own and hasattr(own[0], "get"):
        for _ in range(3):  # once a window
            own[0].get("ece"), own[0].report(), own[0].snapshot()


@pytest.mark.parametrize("label", TOLD)
def test_swapped_columns_are_told_once(label):
    assert swapped(lambda: call(label, Y, P)) == 1
    assert swapped(lambda: call(label, P, Y)) == 0
    assert (
        swapped(lambda: call(label, Y, Y)) == swapped(lambda: call(label, Y, 1.0 - Y)) == 0
    )  # certain, right and wrong
    mixed = np.where(np.arange(60) < 40, Y, P)
    assert swapped(lambda: call(label, mixed, Y)) == swapped(lambda: call(label, mixed, P)) == 0


def test_the_doors_that_are_walked():
    wanted = {
        "ece",
        "brier",
        "Sliding.update_many",
        "Patching.fit",
        "OnlinePlatt.run",
        "CalibrationTest.update_many",
        "murphy",
    }
    assert wanted <= set(TOLD) and len(TOLD) > 45


def one_by_one(thing, door, p, y):
    for pair in zip(p.tolist(), y.tolist(), strict=True):
        getattr(thing, door)(*pair)


@pytest.mark.parametrize(
    ("make", "door", "read"),
    [
        (lambda: Cumulative(EqualWidth(10)), "update", lambda w: (w.get("k1"), w.get("k2"))),
        (lambda: streamcal.Sliding(UniformMass(4), 30), "update", lambda w: (w.report(), w.report())),
        (lambda: streamcal.Fading(EqualWidth(10), 7), "update", lambda w: (w.snapshot(), w.snapshot())),
        (lambda: streamcal.OnlinePlatt(), "learn_one", lambda w: w.report()),
        (lambda: streamcal.Guard([streamcal.OnlinePlatt()]), "learn_one", lambda w: w.report()),
        (CalibrationDrift, "update", lambda w: None),
        (CalibrationTest, "update", lambda w: w.report()),
    ],
    ids=["Cumulative", "Sliding", "Fading", "OnlinePlatt", "Guard", "CalibrationDrift", "CalibrationTest"],
)
def test_swapped_events_one_by_one(make, door, read):
    for p, y, times in (
        (Y, P, 1),
        (P, Y, 0),
        (Y, Y, 0),
        (Y, 1.0 - Y, 0),
        (np.where(np.arange(60) % 9 > 0, Y, P), Y, 0),
    ):
        thing = make()
        assert swapped(lambda thing=thing, p=p, y=y: (one_by_one(thing, door, p, y), read(thing))) == times


def test_means_of_bins_are_no_outcomes():
    """A map learned from the bins of a window with certain predictions: their mean outcomes are between 0 and 1."""
    window = Cumulative(Levels([0.0, 1.0]))
    window.update_many([0.0] * 50 + [1.0] * 50, [0.0] * 45 + [1.0] * 50 + [0.0] * 5)
    assert swapped(lambda: streamcal.HistogramBinning(2).fit_snapshot(window.snapshot())) == 0


@given(events=sts.streams(st.tuples(st.one_of(sts.binary, sts.ties), st.one_of(sts.binary, sts.unit), sts.weights)))
def test_the_sums_say_it_as_the_events_do(events):
    window = Cumulative(EqualWidth(3))
    for event in events:
        window.update(*event)
    assert window._may_be_swapped
    assert (swapped(window.snapshot) == 1) == window.snapshot().is_swapped == naive.swapped(events)
