"""Events from the future: what is refused does not move time, however the events are cut into calls."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from streamcal.monitor.monitor import Monitor
from streamcal.monitor.replay import Overheard

CONFIG = {
    "state": ":memory:",
    "audit": "audit",
    "every": "10s",
    "clock": "wall",
    "models": {"m": {}},
    "join": {"ahead": "25s", "ttl": "60s"},
    "windows": {"w": {"time": "60s", "panes": 6}},
    "sinks": {"none": {"type": "file", "path": "/dev/null"}},
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
def test_the_cut_of_events_does_not_matter_where_some_are_refused(times, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(times)))))
    assert told(times, cuts) == told(times, range(1, len(times)))


def test_an_event_from_the_future_in_the_first_call_is_refused():
    moments, status = told([1000.0, 9000.0, 1001.0], [])
    assert moments == []
    assert status["models"][0]["predictions"]["reasons"] == {"ahead": 1}
