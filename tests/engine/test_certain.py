"""Numbers are about the events they say: predictions of exactly 0 and 1 in fits, in z, in the log loss and wherever told."""

from __future__ import annotations

import json
import math

import naive
import numpy as np
import pytest
import strategies as sts
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import streamcal
from streamcal import (
    Cumulative,
    Edges,
    EqualWidth,
    Fading,
    Grid,
    Levels,
    LogOdds,
    Revertible,
    Sliding,
    Timed,
    Tumbling,
    UniformMass,
)
from streamcal.command.main import app
from streamcal.intervals import INTERVALS
from streamcal.monitor import Monitor
from streamcal.tally import COUNT, IMPOSSIBLE, INFINITE

FITTED = ("calibration_intercept", "calibration_slope", "spiegelhalter_z")
LEFT = "predictions of 0 or 1 that came true are left out"
P13, Y13 = [0.0] * 1000 + [0.5] * 10 + [0.6] * 10, [1] * 1000 + [0, 1] * 10


def forest(n=4000, seed=5, wrong=0):
    """Scores of a forest: about two in five are exactly 0 or 1, and all but ``wrong`` of those come true."""
    rng = np.random.default_rng(seed)
    p = np.clip(np.round(rng.beta(0.3, 0.4, n) * 1.1 - 0.05, 2), 0.0, 1.0)
    y = (rng.random(n) < np.clip(p * 0.8 + 0.1, 0.0, 1.0)).astype(float)
    sure = (p == 0.0) | (p == 1.0)
    y[sure] = p[sure]
    y[np.flatnonzero(sure)[:wrong]] = 1.0 - p[np.flatnonzero(sure)[:wrong]]
    return p, y, sure


def test_the_case_of_a_thousand_zeros_that_came():
    """Case 13: no finite offset exists, so there is none; and how many are to blame is a number."""
    assert math.isnan(streamcal.calibration_intercept(P13, Y13)) and math.isnan(streamcal.calibration_slope(P13, Y13))
    assert streamcal.spiegelhalter_z(P13, Y13) == math.inf
    for binning in (EqualWidth(15), UniformMass(15), LogOdds(15), Levels([0.0, 0.5, 0.6])):
        window = Cumulative(binning, loss="log")
        window.update_many(P13, Y13)
        said = window.report()["metrics"]
        for name in FITTED[:2]:
            assert (
                said[name]["reason"] == "1,000 predictions of 0 or 1 came out otherwise"
                and "interval" not in said[name]
            )
            assert all(math.isnan(bound[0]) for bound in INTERVALS[name](window.snapshot(), 0.95))
        assert said["impossible"] == {"value": 1000 / 1020, "count": 1020, "bins": said["k1"]["bins"], "events": 1000}
        assert said["log_loss"]["value"] == math.inf


def test_one_claim_of_0_that_came_true_among_fair_ones():
    """Case 13: the log loss of 1,000 events is infinite because of one of them, and a number says so."""
    window = Cumulative(EqualWidth(15), loss="log")
    window.update_many([0.5] * 999 + [0.0], [0, 1] * 499 + [1, 1])
    found = window.report()["metrics"]["impossible"]
    assert found["events"] == 1 and found["value"] == 0.001 and window.get("log_loss") == math.inf


def test_a_hundred_claims_of_0_that_came_true():
    said = streamcal.Cumulative(EqualWidth(15))
    said.update_many([0.0] * 100, [0] * 100)
    for name in FITTED:
        found = said.report()["metrics"][name]
        assert math.isnan(found["value"]) and found["reason"] == "every prediction is 0 or 1"
        assert (found["count"], found["left_out"]) == (0, 100)
    assert said.get("impossible") == 0.0


@pytest.mark.parametrize(
    "make",
    [
        lambda b: Cumulative(b),
        lambda b: Sliding(b, 10_000),
        lambda b: Tumbling(b, 10_000),
        lambda b: Revertible(b),
        lambda b: Timed(b, 100),
        lambda b: Fading(b, 1e14),
    ],
    ids=["Cumulative", "Sliding", "Tumbling", "Revertible", "Timed", "Fading"],
)
@pytest.mark.parametrize("binning", [EqualWidth(15), UniformMass(10), Levels(np.arange(101) / 100)], ids=str)
def test_a_fit_and_its_count_are_those_of_the_events_it_knows(make, binning):
    """In bins that a certain prediction shares with others, too, event by event and many at once."""
    p, y, sure = forest()
    assert 0.35 < sure.mean() < 0.6
    some, others, one = make(binning), make(binning), make(binning)
    more = {"t": 1.0} if isinstance(some, Timed) else {}
    some.update_many(p, y, **more)
    others.update_many(p[~sure], y[~sure], **more)
    for pair in zip(p[:300].tolist(), y[:300].tolist(), strict=True):
        one.update(*pair, **more)
    said, wanted = some.report()["metrics"], others.report()["metrics"]
    for name in FITTED:
        assert said[name]["count"] == pytest.approx((~sure).sum(), rel=1e-9)
        assert said[name]["left_out"] == pytest.approx(sure.sum(), rel=1e-9) and "left_out" not in wanted[name]
        assert said[name]["value"] == pytest.approx(wanted[name]["value"], rel=1e-9)
        assert said[name].get("interval", []) == pytest.approx(wanted[name].get("interval", []), rel=1e-9)
    assert one.report()["metrics"][FITTED[0]]["left_out"] == pytest.approx(sure[:300].sum(), rel=1e-9)


@pytest.mark.parametrize(
    "binning",
    [EqualWidth(3), UniformMass(2), LogOdds(2), Grid(4), Levels([0.0, 0.5]), Edges([-1.0, 0.4, 2.0])],
    ids=lambda b: type(b).__name__,
)
@given(data=st.data())
def test_without_certain_events_the_sums_are_those_of_the_others(binning, data):
    p = st.one_of(sts.binary, sts.ties, st.floats(0.001, 0.999))
    events = data.draw(sts.streams(st.tuples(p, sts.unit, st.just(0.75))))
    every, some = Cumulative(binning), Cumulative(binning)
    for event in events:
        every.update(*event)
        if event[0] not in (0.0, 1.0) or event[0] != event[1]:
            some.update(*event)
    np.testing.assert_allclose(every.snapshot().uncertain.cells[:, :-1], some.cells[:, :-1], atol=1e-12)
    wrong = [w for p, y, w in events if naive.log_loss_of(p, y) == math.inf]
    assert every.snapshot().ledger[0, [INFINITE, IMPOSSIBLE]].tolist() == [sum(wrong), len(wrong)]


@given(
    events=sts.streams(st.tuples(st.one_of(sts.binary, sts.ties), sts.binary, st.just(1.0)), min_size=1, max_size=60)
)
def test_each_number_is_its_twin(events):
    window = Cumulative(Levels([0.0, 0.1, 0.25, 0.3, 0.6, 0.9, 1.0]))
    for event in events:
        window.update(*event)
    bins = naive.by_value([(p, p, y, w) for p, y, w in events])
    assert window.get("impossible") == pytest.approx(naive.impossible(bins), abs=1e-15)
    z = window.get("spiegelhalter_z")
    if not math.isnan(z):
        assert z == pytest.approx(naive.spiegelhalter_z(bins), abs=1e-9)
    b = window.get("calibration_intercept")
    assert math.isnan(b) or b == pytest.approx(naive.calibration_intercept(bins), abs=1e-6)


@pytest.mark.parametrize(
    ("p", "y", "name", "reason"),
    [
        ([0.2, 0.7], [1, 1], "calibration_intercept", "outcome 0 is missing"),
        ([0.2, 0.7], [0, 0], "calibration_slope", "outcome 1 is missing"),
        ([0.2, 0.7, 1.0], [0, 0, 1], "calibration_slope", "outcome 1 is missing"),
        ([0.2, 0.2], [0, 1], "calibration_slope", "all predictions are equal"),
        ([0.2, 0.7], [0, 1], "calibration_slope", "a threshold parts the outcomes"),
        ([0.5, 0.5, 1.0], [0, 1, 1], "spiegelhalter_z", "every prediction is 1/2"),
        ([1.0, 0.0], [1, 0], "spiegelhalter_z", "every prediction is 0 or 1"),
        ([0.5, 0.5], [1, 1], "normalized_entropy", "outcome 0 is missing"),
        ([0.5, 0.0], [1, 1], "calibration_slope", "1 predictions of 0 or 1 came out otherwise"),
    ],
)
def test_a_reason_is_one_condition(p, y, name, reason):
    window = Cumulative(EqualWidth(10), loss="log")
    window.update_many(p, y)
    assert window.report()["metrics"][name]["reason"] == reason


def test_no_reason_of_a_metric_names_several_conditions():
    for undefined in streamcal.snapshot.UNDEFINED.values():
        assert callable(undefined) or " or all " not in undefined


def test_what_has_left_a_window_is_no_longer_impossible():
    sliding, timed, taken = Sliding(EqualWidth(4), 3), Timed(EqualWidth(4), 10, panes=10), Revertible(EqualWidth(4))
    for w, more in ((sliding, {}), (timed, {"t": 1.0}), (taken, {})):
        w.update(0.0, 1, 0.3, **more)
        assert w.get("impossible") == 1.0
    sliding.update_many([0.5, 0.4, 1.0], [0, 1, 1])
    timed.update(0.5, 1, t=2.0)
    assert timed.take_back_many([0.0], [1], [0.3], t=1.0) == 1
    taken.update(0.5, 1)
    taken.revert(0.0, 1, 0.3)
    for w in (sliding, timed, taken):
        assert w.get("impossible") == 0.0 and w.snapshot().impossible.tolist() == [0.0]
    assert sliding.snapshot().ledger[0].tolist() == [0, 0, 0, 0, 0, 0, 0, 1]


def test_large_batches_are_those_of_single_events():
    """The fast kernels: of one key, of many keys, of fine grids, weighted, with fractions."""
    p, y, sure = forest(6000, wrong=7)
    y[::5] = y[::5] * 0.5
    w, key = np.random.default_rng(1).integers(0, 4, p.size).astype(float), np.arange(p.size) % 3
    for binning in (EqualWidth(15), UniformMass(15)):
        for more in ({}, {"w": w}, {"key": key}, {"w": w, "key": key}):
            many, one = (Cumulative(binning, keys=3) for _ in range(2))
            many.update_many(p, y, **more)
            for i in range(p.size):
                one.update(p[i], y[i], *(([w[i]]) if "w" in more else []), **({"key": key[i]} if "key" in more else {}))
            np.testing.assert_allclose(many.cells, one.cells, rtol=1e-12, atol=1e-12)
            assert one.snapshot().impossible.sum() > 100


def call(*args):
    return CliRunner().invoke(app, [str(a) for a in args])


def answer(*args):
    return json.loads(call(*args, "--json").stdout)


def table(path, p, y):
    path.write_text("p,y\n" + "".join(f"{a:g},{b:g}\n" for a, b in zip(p, y, strict=True)))
    return path


def test_the_command_says_how_many_were_left_out(tmp_path):
    p, y, sure = forest()
    file = table(tmp_path / "forest.csv", p, y)
    limit = "--fail-if", "calibration_slope < 0.1"
    said = answer("report", file, *limit)
    slope = said["metrics"]["calibration_slope"]
    assert (slope["count"], slope["left_out"]) == ((~sure).sum(), sure.sum())
    assert said["limits"][0]["reason"] == f"{sure.sum():,} {LEFT}" and said["limits"][0]["crossed"] is False
    printed = call("report", file, *limit).stdout
    assert f"calibration_slope: of {(~sure).sum():,} events; {sure.sum():,} {LEFT}" in printed
    assert f'limit "calibration_slope < 0.1": held, at {slope["value"]:.4f} ({sure.sum():,} {LEFT})' in printed


def test_the_command_names_impossible_events(tmp_path):
    file = table(tmp_path / "zeros.csv", P13, Y13)
    said = answer("report", file, "--fail-if", "impossible > 0")
    assert said["metrics"]["impossible"]["events"] == 1000 and said["limits"][0]["crossed"] is True
    assert (
        said["metrics"]["spiegelhalter_z"]["value"] is None
        and said["metrics"]["spiegelhalter_z"]["reason"] == "infinite"
    )
    assert "1,000 predictions of 0 or 1 came out otherwise" in call("report", file).stdout
    assert "nan" not in said["verdict"]


def test_a_rule_says_how_many_were_left_out():
    p, y, sure = forest()
    rules = {"slope": {"metric": "calibration_slope", "window": "w", "below": 0.9, "min_count": 10, "sinks": ["none"]}}
    rules["never"] = {
        "metric": "impossible",
        "window": "w",
        "above": 0.0,
        "level": 0.0,
        "min_count": 1,
        "sinks": ["none"],
    }
    config = {
        "state": ":memory:",
        "models": {"m": {}},
        "windows": {"w": {"events": 5000}},
        "rules": rules,
        "sinks": {"none": {"type": "stdout"}},
    }
    monitor = Monitor(config)
    monitor.predict_many([str(i) for i in range(p.size)], p, t=np.arange(p.size) / 10)
    told = monitor.label_many([str(i) for i in range(p.size)], y, t=500.0) + monitor.advance(90_000.0)
    (alert,) = [a for a in told if a["kind"] == "firing"]
    assert alert["count"] == pytest.approx((~sure).sum()) and alert["text"].endswith(f"; {sure.sum():,} {LEFT}")
    json.dumps(alert, allow_nan=False)


def test_river_reads_it_too():
    from streamcal.river import ECE

    metric = ECE()
    for p, y in zip(P13, Y13, strict=True):
        metric.update(bool(y), p)
    assert metric.report()["metrics"]["impossible"]["events"] == 1000
    assert metric.report()["count"] == metric._window.snapshot().total[0, COUNT]
