"""What a monitor promises of its alerts, its speed and its memory: the benches in short, and the faults that they found.

The long versions, with the figures: bench/bench_monitor_quality.py, bench_monitor_load.py, bench_soak.py.
"""

from __future__ import annotations

import argparse

import bench_monitor_load as load
import bench_monitor_quality as quality
import numpy as np
import pytest
from bench_soak import soak
from checks import Checks
from conftest import some
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from streamcal.drift import CalibrationDrift
from streamcal.monitor.aggregates import Aggregates
from streamcal.monitor.config.config import from_document
from streamcal.monitor.events import Events, Pair, StreamKey
from streamcal.monitor.monitor import Monitor

# ---- alerts


@pytest.mark.statistical
@pytest.mark.jit
def test_the_usual_rules_keep_their_promise_on_a_healthy_stream():
    """An alarm in arl = 1e6 events on average: over 4 x 50,000 events more than 2 would be a chance of less than 1 in 500."""
    streams = some(4)
    found = [quality.watch(quality.USUAL, quality.stream(seed, 5, 10_000)) for seed in range(streams)]
    promised = sum(f.joined for f in found) / quality.ARL
    assert 0.03 * streams < promised < 0.06 * streams
    assert sum(f.alarms for f in found) <= quality.poisson_bound(promised, 2e-3) <= 2


@pytest.mark.statistical
@pytest.mark.jit
def test_three_faults_at_once_are_found_and_named_and_no_other_segment_is():
    days = 20.0
    events = quality.stream(1, days, 10_000, quality.FAULTS)
    alerts = quality.watch(quality.USUAL, events).firing()
    found = {hit.segment: hit for hit in quality.hits(events, alerts, quality.FAULTS, days)}
    assert set(found) == {f"s=s{which}" for which in quality.FAULTS}
    assert quality.named(alerts) - {"all"} == set(found)
    assert found["s=s9"].events < 300 and max(hit.events for hit in found.values()) < 3_000


@pytest.mark.statistical
@pytest.mark.jit
def test_a_rule_about_k1_says_nothing_of_right_claims_and_finds_wrong_ones():
    """50 segments, evaluated each hour for 10 days, threshold .05: claims that are right, and claims that are off by .15."""
    rules = quality.gap_rules(0.05)
    assert not quality.watch(rules, quality.stream(2, 10, 5_000)).alerts
    wrong = quality.watch(rules, quality.stream(2, 10, 5_000, gap=0.15))
    assert len(quality.named(wrong.firing("k1 at .95"))) >= 20


def test_the_poisson_bound():
    """P(N > k) by the table: mean 1 exceeds 5 with .00059 and 4 with .0037; mean .24 exceeds 2 with .0019."""
    assert quality.poisson_bound(1.0) == 5
    assert [quality.poisson_bound(0.24, chance) for chance in (2e-3, 1e-3)] == [2, 3]


# ---- load


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("part", ["columns", "payloads", "counting", "evaluation", "restart"])
def test_the_answers_under_load(part, tmp_path, monkeypatch):
    """The figures of so short a run mean nothing, so bounds are not looked at: the asserts of the bench are."""
    wish = argparse.Namespace(open=2_000, events=10_000, segments=200, folder=str(tmp_path))
    checks = Checks()
    getattr(load, part)(wish, checks, Console(quiet=True))
    assert checks.rows


@pytest.mark.statistical
@pytest.mark.jit
def test_everything_adds_up_after_a_soak_and_memory_stays_flat(tmp_path):
    ran = soak(tmp_path, some(200_000), batch=1_000)
    assert ran.memory[-1] <= 1.15 * ran.memory[0], ran.memory
    assert ran.audit > 0 and ran.file < 100e6


# ---- faults that were found


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=20))
def test_down_sampled_negatives_weigh_more_in_a_batch_of_any_size(rows):
    config = from_document({"models": {"m": {"negative_sampling_rate": 0.1}}, "rules": {}})
    made = Aggregates(config.models[0], config.windows, (), None)
    p, y = np.array(rows, dtype=np.float64).T
    one = np.ones(len(rows))
    made.take(Events.alike(StreamKey(Pair, "m", "1"), [], one, p, y, one, [""] * len(rows), one, one, one, one))
    assert made.snapshot_of("week", "1", 0, 1.0).weight.sum() == pytest.approx(
        np.where(y == 0, 10.0, 1.0).sum(), rel=1e-12
    )


values = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, 1.0, 2.5]), st.sampled_from("a1,=")
)


@settings(max_examples=50)
@given(st.lists(st.tuples(values, values), min_size=1, max_size=12))
def test_segments_in_columns_have_the_names_that_they_have_one_by_one(rows):
    """1, 1.0 and True are equal in Python, and three segments."""
    config = {"state": ":memory:", "models": {"m": {}}, "segments": {"fields": ["a", "b"]}}
    with Monitor(config) as one, Monitor(config) as many:
        for i, (a, b) in enumerate(rows):
            one.predict(i, 0.5, t=0.0, segment={"a": a, "b": b})
        columns = [np.fromiter(column, dtype=object) for column in zip(*rows)]
        ids = range(len(rows))
        many.predict_many(ids, np.full(len(rows), 0.5), t=0.0, segment=dict(zip("ab", columns)))
        one.flush()
        assert many.aggregates["m"].names == one.aggregates["m"].names


@pytest.mark.jit
def test_an_alarm_costs_no_more_than_its_report():
    """Each alarm of a detector with a full history: the reports of the others are not copied."""
    detector = CalibrationDrift(20)
    detector.update_many([0.5] * 2_000, [1] * 2_000)
    assert len(detector.history()) == 20 and [h["event"] for h in detector.history(2)] == [
        h["event"] for h in detector.history()[-2:]
    ]
    assert detector.history(0) == []
