"""Events from the future: what is held does not move time, however the events are cut into calls, and is said."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from streamcal.command.monitor import _status
from streamcal.monitor import Monitor, live
from streamcal.monitor.config.config import from_document
from streamcal.monitor.replay import Overheard, replay
from streamcal.monitor.store import Store

DAY = 86_400.0
CONFIG = {
    "state": ":memory:",
    "audit": "audit",
    "every": "10s",
    "models": {"m": {}},
    "join": {"ahead": "25s", "ttl": "60s"},
    "windows": {"w": {"time": "60s", "panes": 6}},
}


def told(times, cuts):
    """Everything that a monitor knows after events at these times, in calls cut so; and the moments of its evaluations."""
    heard = Overheard()
    monitor = Monitor(CONFIG, outbox=heard)
    payloads = [json.dumps({"id": i, "p": 0.5, "y": 1, "t": t}).encode() for i, t in enumerate(times)]
    for first, end in zip([0, *cuts], [*cuts, len(times)]):
        monitor.take(payloads[first:end])
    return list(dict.fromkeys(line["time"] for line in heard.lines)), monitor.status()


@given(st.lists(st.integers(0, 12).map(lambda k: 7.0 * k), min_size=1, max_size=12), st.data())
def test_the_cut_of_events_does_not_matter_where_some_are_held(times, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(times)))))
    assert told(times, cuts) == told(times, range(1, len(times)))


def test_an_event_from_the_future_in_the_first_call_is_held():
    moments, status = told([1000.0, 9000.0, 1001.0], [])
    assert moments == [] and status["held"] == 2  # its prediction and its label
    assert status["models"][0]["predictions"]["received"] == 2
    assert "event" in status["trouble"][0] and "held until another message confirms" in status["trouble"][0]


def documents(tmp_path):
    files = {name: str(tmp_path / name) for name in ("state", "audit", "record")}
    return {**CONFIG, **files, "every": "1h", "join": {"ttl": "2h", "hold": "2h"}, "windows": {"w": {"time": "1d"}}}


def pairs(ids, start):
    return [json.dumps({"id": i, "p": 0.5, "y": 1, "t": start + 10.0 * k}).encode() for k, i in enumerate(ids)]


def test_one_prediction_a_month_ahead_makes_none_late_over_a_restart_and_in_a_replay(tmp_path):
    document = documents(tmp_path)
    with Monitor(document) as monitor:
        monitor.take(pairs(range(200), 1.7e9))
        monitor.predict("far", 0.5, t=1.7e9 + 30 * DAY)
        monitor.take(pairs(range(200, 300), 1.7e9 + 2000.0))
        monitor.evaluate()
    with Store(document["state"], readonly=True) as store:
        seen = _status(store)
    assert seen["held"] == 1 and any("'far'" in text for text in seen["trouble"])
    with Monitor(document) as monitor:
        monitor.take(pairs(range(300, 400), 1.7e9 + 3000.0))
        side = monitor.status()["models"][0]["predictions"]
        assert (side["received"], side["joined"], monitor.held) == (400, 400, 1)
        monitor.take(pairs(["next"], 1.7e9 + 30 * DAY - 3000.0))  # the month has passed
        assert monitor.held == 0 and monitor.status()["models"][0]["predictions"]["received"] == 402
        monitor.predict("wall", 0.5, t=1.7e9 + 40 * DAY)
        monitor.advance(1.7e9 + 40 * DAY - 1800.0)  # a clock that goes on confirms it as well
        assert monitor.held == 0
        monitor.advance(1.7e9 + 41 * DAY)
    lines = [(tmp_path / name).read_bytes().splitlines() for name in ("record", "audit")]
    assert replay(from_document(document), *lines).difference == ""


def test_once_says_what_is_held_or_late_where_it_is_much(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text(
        'state = "s.db"\n[models.m]\n[join]\nttl = "1h"\n[sources.e]\ntype = "file"\npath = "e.jsonl"\n'
    )
    for far, late, code in ((0, 0, 0), (1, 0, 0), (0, 9, 6)):
        things = [
            *pairs(range(200), 1.7e9 + 1e5),
            *pairs(["x"] * far, 1.8e9),
            *pairs([f"l{i}" for i in range(late)], 1.7e9),
        ]
        (tmp_path / "e.jsonl").write_bytes(b"\n".join(things) + b"\n")
        (tmp_path / "s.db").unlink(missing_ok=True)
        assert live.run("c.toml", once=True, fail_on_alert=False) == code
        said = capfd.readouterr().err
        assert ("9 of 209 messages came late" in said) == bool(late)
