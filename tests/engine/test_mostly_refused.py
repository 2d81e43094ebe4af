"""Events refused are said before any number, and where they are most there is none; light weights; sums of windows; shares."""

from __future__ import annotations

import math

import numpy as np
import pytest

import streamcal
from streamcal import Cumulative, EqualWidth, Fading, PlattScaling, Revertible, Sliding, Timed, Tumbling
from streamcal.intervals import wilson
from streamcal.reporting.verdict import verdict

MAKE = {
    "Cumulative": lambda **o: Cumulative(EqualWidth(5), **o),
    "Sliding": lambda **o: Sliding(EqualWidth(5), 100, **o),
    "Tumbling": lambda **o: Tumbling(EqualWidth(5), 100, **o),
    "Fading": lambda **o: Fading(EqualWidth(5), 1e9, **o),
    "Revertible": lambda **o: Revertible(EqualWidth(5), **o),
    "Timed": lambda **o: Timed(EqualWidth(5), 100, **o),
}


def fed(kind, bad, good, **options):
    window = MAKE[kind](**options)
    more = {"t": 1.0} if kind == "Timed" else {}
    for event in [("abc", 1), (20, 1), (0.3, None)] * (bad // 3) + [(0.25, i % 4 == 0) for i in range(good)]:
        window.update(*event, **more)
    return window


@pytest.mark.parametrize("kind", MAKE)
def test_a_window_says_how_many_it_refused_first(kind):
    window = fed(kind, 3, 40)
    assert repr(window) == f"<3 refused> {window.report()['window']}" and repr(fed(kind, 0, 4)).startswith(kind)
    report = window.report()
    assert report["refusals"] == "3 of 43 events refused" and list(report)[1] == "refusals"
    assert not math.isnan(window.get("ece"))
    assert verdict(report).startswith("calibrated as far as n = 40 can tell") and "3 of 43 events refused" in verdict(
        report
    )
    assert "refusals" not in fed(kind, 0, 4).report()


@pytest.mark.parametrize("kind", MAKE)
def test_a_window_that_refused_more_than_it_took_has_no_numbers(kind):
    window = fed(kind, 33, 10)
    report = window.report()
    for name, found in report["metrics"].items():
        assert (
            math.isnan(found["value"]) and found["reason"] == "33 of 43 events refused" and "interval" not in found
        ), name
    assert verdict(report) == "cannot be judged: 33 of 43 events refused" and report["rejected"] == []
    with pytest.warns(streamcal.CalibrationWarning, match="33 of 43 events refused"):
        assert math.isnan(window.get("ece"))
    only = fed(kind, 3, 0)
    assert verdict(only.report()) == "cannot be judged: 3 of 3 events refused"


def test_keys_are_judged_each_by_itself():
    window = Cumulative(EqualWidth(5), keys=2)
    window.update_many([7.0, 7.0, 0.5, 0.5, 0.5], [1] * 5, key=[0, 0, 0, 1, 1])
    assert np.isnan(window.snapshot().get("k1")).tolist() == [True, False]


def test_river_prints_it():
    from streamcal.river import ECE, MarginalCE

    metric = ECE()
    for p in [0.25] * 10 + [None] * 3:
        metric.update(True, p)
    assert repr(metric) == "ECE: 0.75 (3 of 13 events refused)"
    for _ in range(1000):
        metric.update(True, float("nan"))
    assert repr(metric) == "ECE: no value, 1,003 of 1,013 events refused" and math.isnan(metric.get())
    several = MarginalCE()
    several.update("a", {"a": 0.5, "b": 0.5})
    several.update(None, {"a": 0.5, "b": 0.5})
    assert repr(several).endswith("(1 of 2 events refused)")


def test_weights_whose_square_underflows_are_refused():
    """They gave a null band of .26 .. .44: the sum of their squares is 0, and so is every effective size."""
    p, y = [0.3] * 1000, [1] * 300 + [0] * 700
    for w, refused in ((1e-150, 0), (1e-151, 1000), (5e-324, 1000), (0.0, 0)):
        one, many = Cumulative(EqualWidth(15)), Cumulative(EqualWidth(15))
        many.update_many(p, y, [w] * 1000)
        one.update(0.3, 1, w)
        assert many.snapshot().refused[0] == refused and one.snapshot().refused[0] == (refused > 0)
    with pytest.raises(ValueError, match="1e-150"):
        streamcal.ece(p, y, sample_weight=[1e-160] * 1000)
    with pytest.raises(ValueError, match="1e-150"):
        PlattScaling().fit(p, y, [1e-160] * 1000)
    with pytest.raises(ValueError, match="1e-150"):
        streamcal.OnlinePlatt().run(p, y, [1e-160] * 1000)
    light, plain = Cumulative(EqualWidth(15)), Cumulative(EqualWidth(15))
    light.update_many(p, y, [1e-150] * 1000)
    plain.update_many(p, y)
    assert light.report()["metrics"]["k1"]["null"] == pytest.approx(plain.report()["metrics"]["k1"]["null"], rel=1e-9)


def test_windows_that_add_can_be_summed_and_others_say_what_can():
    windows = [Cumulative(EqualWidth(2)) for _ in range(3)]
    for i, window in enumerate(windows):
        window.update(0.2 * i, 1)
    total = sum(windows)
    assert total.snapshot().count.sum() == 3 and windows[0].snapshot().count.sum() == 1
    assert sum(windows[:1]) is not windows[0]
    for kind in ("Sliding", "Tumbling", "Fading", "Revertible"):
        one, other = MAKE[kind](), MAKE[kind]()
        for bad in (
            lambda one=one, other=other: one + other,
            lambda one=one: sum([one]),
            lambda one=one: windows[0] + one,
        ):
            with pytest.raises(TypeError, match=r"add their snapshots, a.snapshot\(\) \+ b.snapshot\(\)"):
                bad()
        assert (one.snapshot() + other.snapshot()).count.sum() == 0


def test_the_ends_of_a_share_are_what_they_are():
    for n in range(1, 200):
        low, high = wilson(np.array([0.0, 1.0]), np.array([float(n)] * 2))
        assert low[0] == 0.0 and high[1] == 1.0 and 0.0 < high[0] < 1.0
    assert all(math.isnan(end[0]) for end in wilson(np.array([math.nan]), np.array([0.0])))
