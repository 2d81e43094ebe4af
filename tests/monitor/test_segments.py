"""Which segments have sums of their own: declared ones, then those that came first; a place is kept for ever."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_monitor import GAP, document, opened, say, taken

from streamcal.monitor.monitor import Monitor

BASE = {"segments": {"fields": ["f"], "cap": 2}, "rules": {"gap": {**GAP["gap"], "segments": "each", "above": 0.9}}}


def started(**more):
    return Monitor(document(**{**BASE, **more}))


def events(monitor, segment, n, t, first=0, y=1):
    taken(monitor, *(say(f"{segment}{first + i}", 0.5, y, t=t, f=segment) for i in range(n)))


def names(monitor):
    return monitor.aggregates["m"].names[2:]


def counts(monitor, window, segment="all"):
    return monitor.snapshot(window, segment=segment).count.sum()


def test_who_came_first_keeps_the_place_however_much_comes_later():
    monitor = started()
    events(monitor, "a", 5, 60.0)
    events(monitor, "b", 10, 60.0)
    events(monitor, "c", 400, 60.0)
    monitor.advance(660.0)
    events(monitor, "c", 3, 700.0, first=1000)
    assert names(monitor) == ["f=a", "f=b"]
    for window in ("hour", "made"):
        assert [counts(monitor, window, s) for s in ("all", "f=a", "f=b", "other")] == [418.0, 5.0, 10.0, 403.0]
    assert monitor.status()["segments"]["m"] == {"own": 2, "cap": 2, "overflow": 403}


def test_declared_segments_always_have_a_place():
    """Those that rules name: also where the others are first, and where they are more than the cap."""
    for declared, own in ((["f=x"], ["f=x", "f=a"]), (["f=x", "f=y", "f=z"], ["f=x", "f=y", "f=z"])):
        monitor = started(rules={"gap": {**GAP["gap"], "segments": [*declared, "other"]}})
        for segment in "abcxyz":
            events(monitor, segment, 2, 60.0)
        assert names(monitor) == own
        assert [counts(monitor, "hour", name) for name in own] == [2.0] * len(own)
        assert counts(monitor, "hour", "other") == 12.0 - 2.0 * len(own)
        assert monitor.status()["segments"]["m"] == {"own": len(own), "cap": 2, "overflow": 12 - 2 * len(own)}


def test_a_segment_that_is_declared_later_is_placed_from_then_on(tmp_path):
    doc = opened(tmp_path, **BASE)
    monitor = Monitor(doc)
    for segment in "abc":
        events(monitor, segment, 2, 60.0)
    monitor.close()
    for kill in (True, False):
        monitor = Monitor({**doc, "rules": {"gap": {**GAP["gap"], "segments": ["f=c"]}}})
        assert names(monitor) == ["f=a", "f=b", "f=c"] and not [n for n in monitor.notes if "begin" in n]
        events(monitor, "c", 1, 70.0, first=10 + kill)
        events(monitor, "d", 1, 70.0, first=10 + kill)
        monitor.store.close() if kill else monitor.close()
    assert counts(Monitor(doc), "hour", "f=c") == 2.0


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_a_correction_is_taken_back_from_where_it_counted(tmp_path, first, kill):
    """Also of an event that counted in "other", whose segment has a place of its own since the cap is larger."""
    doc = opened(tmp_path, **BASE)
    monitor = Monitor(doc)
    for segment, n in (("a", 5), ("b", 10), ("c", 40)):
        events(monitor, segment, n, 60.0)
    taken(monitor, say("open", 0.5, t=60.0, f="c"))
    monitor.store.close() if kill else monitor.close()
    monitor = Monitor({**doc, "segments": {"fields": ["f"], "cap": 3}})
    events(monitor, "c", 3, 700.0, first=100)
    assert names(monitor) == ["f=a", "f=b", "f=c"]
    taken(monitor, say("open", y=1, t=710.0))  # its place is that of its prediction
    assert (counts(monitor, "hour", "f=c"), counts(monitor, "hour", "other")) == (3.0, 41.0)
    for i, where in ((first, "other"), (100 + first, "f=c")):
        before = {s: monitor.snapshot("hour", segment=s) for s in ("all", "other", "f=b", "f=c")}
        taken(monitor, say(f"c{i}", y=0, t=800.0))
        for name, was in before.items():
            now = monitor.snapshot("hour", segment=name)
            assert now.count.sum() == was.count.sum()
            wrong = now.count.sum() * (1 - np.nansum(now.mean_y * now.share))
            wrong_before = was.count.sum() * (1 - np.nansum(was.mean_y * was.share))
            assert wrong - wrong_before == pytest.approx(float(name in ("all", where)))


@pytest.mark.parametrize("how", ["at once", "in two", "one by one", "columns"])
def test_who_has_a_place_does_not_depend_on_how_events_are_cut(tmp_path, how):
    monitor = Monitor(opened(tmp_path, **BASE))
    things = [say(f"{f}{i}", 0.5, t=60.0, f=f) for f, n in (("a", 5), ("b", 10), ("c", 40)) for i in range(n)]
    things += [say(o["id"], y=1, t=70.0) for o in things]
    things += [say(f"late{f}", 0.5, t=700.0, f=f) for f in "abc"] + [say(f"late{f}", y=1, t=701.0) for f in "abc"]
    if how == "columns":
        made, after = things[:55], things[110:113]
        ids, f, t = ([o[key] for o in (*made, *after)] for key in ("id", "f", "t"))
        monitor.predict_many(ids[:55], [0.5] * 55, t=t[:55], segment={"f": f[:55]})
        monitor.label_many([*ids[:55], "x"], [1] * 56, t=[*[70.0] * 55, 75.0])
        monitor.predict_many(["y", *ids[55:]], [0.5] * 4, t=[80.0, *t[55:]], segment={"f": ["b", *f[55:]]})
        monitor.label_many(ids[55:], [1] * 3, t=701.0)
    else:
        size = {"at once": len(things), "in two": 50, "one by one": 1}[how]
        for i in range(0, len(things), size):
            monitor.take([json.dumps(things[i : i + size]).encode()])
    assert names(monitor) == ["f=a", "f=b"]
    assert [counts(monitor, "more", s) for s in ("f=a", "f=b", "other")] == [6.0, 11.0, 41.0]


def test_a_journal_under_another_cap_gives_the_places_that_were(tmp_path):
    """Killed before a checkpoint, then a smaller or larger cap: what has a place keeps it."""
    for cap, more in ((1, []), (9, ["f=d"])):
        folder = tmp_path / str(cap)
        folder.mkdir()
        doc = opened(folder, **BASE)
        monitor = Monitor(doc)
        taken(monitor, say("first", t=0.0, y=1))
        events(monitor, "a", 5, 60.0)
        events(monitor, "b", 10, 60.0)
        events(monitor, "c", 40, 60.0)
        monitor.advance(660.0)
        before = monitor.aggregates["m"].to_plain()
        monitor.store.close()
        monitor = Monitor({**doc, "segments": {"fields": ["f"], "cap": cap}})
        after = monitor.aggregates["m"].to_plain()
        assert after["segments"] == before["segments"] and after["windows"] == before["windows"]
        events(monitor, "d", 1, 700.0)
        assert names(monitor) == ["f=a", "f=b", *more]
