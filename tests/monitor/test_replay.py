"""A replay says that an audit is what really follows from the events, and where it is not."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_monitor import audit_of, document, lines_of, opened, say, taken

from streamcal.monitor.monitor import Monitor
from streamcal.monitor.replay import ReplayError, replay

EACH = {"metric": "k1", "window": "hour", "above": 0.1, "level": 0, "min_count": 5, "segments": "each"}


def doc(tmp_path, **more):
    return opened(
        tmp_path,
        **{
            "segments": {"fields": ["country"], "cap": 2},
            "detectors": {"drift": {"arl": 300}},
            "rules": {"gap": EACH, "drift": {"alarm": "drift", "segments": "each", "quiet": "1h"}},
            "model": {"raw": "raw", "weight": "amount"},
            **more,
        },
    )


def ran(monitor, n=400, seed=0):
    """A stream with a fault in its second half, taken in every way."""
    rng, t = np.random.default_rng(seed), 0.0
    for i in range(0, n, 10):
        ids = [str(k) for k in range(i, i + 10)]
        p = rng.random(10)
        y = (rng.random(10) < (p if i < n / 2 else 0.2 * p)).astype(int)
        t += rng.exponential(120.0)
        country = rng.choice(["at", "de", "ch"], 10, p=[0.2, 0.3, 0.5] if i > n / 2 else [0.5, 0.3, 0.2])
        way = i // 10 % 3
        if way == 0:
            monitor.predict_many(ids, p, t=t, segment={"country": country}, w=rng.random(10) if i % 4 else None)
            monitor.label_many(ids, y, t=t + 5.0)
        elif way == 1:
            rows = zip(ids, p.tolist(), y.tolist(), country.tolist())
            taken(monitor, *(say(a, b, c, t=t, country=d, amount=1.0, raw=b / 2) for a, b, c, d in rows))
        else:
            for a, b, c, d in zip(ids, p, y, country):
                monitor.predict(a, b, t=t, segment={"country": d}, raw=b / 3)
                monitor.label(a, c, t=t + 1.0)


def files(tmp_path):
    return lines_of(tmp_path / "record"), lines_of(tmp_path / "audit")


def test_what_was_taken_in_every_way_is_replayed_as_it_was(tmp_path):
    """Columns, messages, one by one; evaluations at once, restarts, weights, raw beside recalibrated, labels of a version."""
    for part in range(3):
        monitor = Monitor(doc(tmp_path))
        ran(monitor, seed=part)
        monitor.label_many(["3", "4"], [1, 1], t=monitor.clock + 1.0, version="")
        monitor.evaluate()
        monitor.evaluate()
        monitor.close()
    events, audit = files(tmp_path)
    found = replay(monitor.config, events, audit)
    assert found.difference == ""
    assert (found.events, found.lines) == (audit_of(tmp_path)[-1]["taken"], len(audit))
    assert {line["version"] for line in audit_of(tmp_path)} == {"", "/raw"}
    assert any(line["states"] for line in audit_of(tmp_path))


def test_columns_of_another_kind_are_recorded_as_messages_that_mean_the_same(tmp_path):
    """Labels by pos_label, classes by name, several quantiles, times as numbers."""
    for claim, p, y in (
        ("labels", [0.2, 0.7], ["yes", "no"]),
        ("top_label", [[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]], ["eel", "dog"]),
        ("quantiles", [[0.0, 1.0, 2.0], [1.0, 1.0, 1.5]], [0.5, 2.0]),
        ("pit", [0.2, 0.4], [1.0, 2.0]),
    ):
        folder = tmp_path / claim
        folder.mkdir()
        metric = "q1" if claim == "quantiles" else "k1"
        monitor = Monitor(opened(folder, claim=claim, rules={"gap": {**EACH, "metric": metric, "segments": "all"}}))
        monitor.predict_many([1, 2], p, t=np.array(["2026-01-01", "2026-01-02"], "datetime64[s]"))
        monitor.label_many([1, 2], y, t="2026-01-03T00:00:00Z")
        monitor.evaluate()
        monitor.close()
        found = replay(monitor.config, *files(folder))
        assert (found.difference, found.events) == ("", 4) and found.lines > 0


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    monitor = Monitor(doc(folder))
    ran(monitor, 240)
    monitor.close()
    return monitor.config, *files(folder)


def tampered(line, **changes):
    return json.dumps({**json.loads(line), **changes}).encode()


@pytest.mark.parametrize("at", [0, 7, -1])
def test_any_other_line_of_the_audit_is_a_difference(recorded, at):
    """Its numbers, its words, its time, its place; a line that is not there, or there twice."""
    config, events, audit = recorded
    assert replay(config, events, audit).difference == ""
    line = json.loads(audit[at])
    place = at % len(audit)
    for change in (
        {"count": 3},
        {"states": {"all": ["firing", 9]}},
        {"taken": line["taken"] - 1},
        {"time": line["time"] + 1.0},
        {"rule": "x"},
    ):
        other = [*audit[:place], tampered(audit[at], **change), *audit[place + 1 :]]
        difference = replay(config, events, other).difference
        assert difference, change
    assert replay(config, events, [*audit[: place + 1], audit[at], *audit[place + 1 :]]).difference
    if place != len(audit) - 1:  # the last may be missing: the kill came before
        assert replay(config, events, [*audit[:place], *audit[place + 1 :]]).difference
    assert (
        line["at"]
        in replay(config, events, [*audit[:place], tampered(audit[at], states=1), *audit[place + 1 :]]).difference
    )


def test_any_other_event_is_a_difference(recorded):
    """A changed prediction, outcome, segment or weight; one that is missing, twice, or in another place."""
    config, events, audit = recorded
    things = [json.loads(line) for line in events]
    some = next(i for i in range(150, len(things)) if "p" in things[i] and "y" in things[i])
    changes = [{"p": 1.0 - things[some]["p"]}, {"y": 1 - things[some]["y"]}, {"country": "xx"}, {"amount": 7.0}]
    for change in changes:
        other = [*events[:some], tampered(events[some], **change), *events[some + 1 :]]
        assert replay(config, other, audit).difference, change
    assert replay(config, [*events[:some], *events[some + 1 :]], audit).difference
    assert replay(config, [*events[:some], events[some], *events[some:]], audit).difference
    first = next(json.loads(line)["taken"] for line in audit)
    assert "the events end" in replay(config, events[: first // 4], audit).difference


def test_another_configuration_is_said(recorded):
    config, events, audit = recorded
    with pytest.raises(ReplayError, match="line 1 of the audit was written under configuration"):
        replay(Monitor(document()).config, events, audit)
    for bad in (
        b"{}",
        b"[]",
        b"7",
        b"{",
        b'"x"',
        tampered(audit[0], taken=None),
        tampered(audit[0], rule=[]),
        tampered(audit[0], at=7),
    ):
        with pytest.raises(ReplayError, match="line 2 of the audit is none"):
            replay(config, events, [audit[0], bad])


def test_a_clock_that_moved_without_an_event_is_replayed(tmp_path):
    """A pair that ripened by the wall clock went out before its correction; by the events alone it never did."""
    monitor = Monitor(
        opened(
            tmp_path,
            rules={"gap": {**EACH, "segments": "all", "min_count": 1}, "drift": {"alarm": "d"}},
            detectors={"d": {"arl": 1e6}},
            join={"maturity": "8m"},
        )
    )
    taken(monitor, say("a", 0.9, t=0.0), say("a", y=1, t=5.0))
    monitor.advance(590.0)
    taken(monitor, say("a", y=0, t=400.0))
    monitor.advance(605.0)
    monitor.close()
    assert replay(monitor.config, *files(tmp_path)).difference == ""
