"""Which segments have sums of their own, and where the sums of those go that lose their place."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_monitor import GAP, document, opened, say, taken

from streamcal.monitor.config.settings import Segments
from streamcal.monitor.monitor import Monitor
from streamcal.monitor.segments import OTHER, Places, name_of

BASE = {"segments": {"fields": ["f"], "cap": 2}, "rules": {"gap": {**GAP["gap"], "segments": "each", "above": 0.9}}}


def started(**more):
    return Monitor(document(**{**BASE, **more}))


def events(monitor, segment, n, t, first=0, y=1):
    taken(monitor, *(say(f"{segment}{first + i}", 0.5, y, t=t, f=segment) for i in range(n)))


def names(monitor):
    return monitor.engine.banks["m"].places.names[2:]


def counts(monitor, window, segment="all"):
    return monitor.snapshot(window, segment=segment).count.sum()


def shifted(**more):
    """Ten events of "a" and "b", then many of "c": at the evaluation "c" has taken the place of one of them."""
    monitor = started(**more)
    events(monitor, "a", 5, 60.0)
    events(monitor, "b", 10, 60.0)
    events(monitor, "c", 40, 60.0)
    monitor.advance(660.0)
    return monitor


def test_who_has_most_traffic_takes_the_place_of_who_has_least():
    monitor = shifted()
    assert names(monitor) == ["f=c", "f=b"]
    events(monitor, "c", 3, 700.0, first=100)
    for window in ("hour", "made", "more"):
        assert (counts(monitor, window, "f=b"), counts(monitor, window, "f=c")) == (10.0, 3.0)
        assert counts(monitor, window) == 58.0
    # what was of "a" is of "other" now, but in windows of a number of events, where its order is lost
    assert [counts(monitor, window, "other") for window in ("hour", "made", "more")] == [45.0, 45.0, 40.0]


@pytest.mark.parametrize("first", [0, 1])
def test_a_correction_is_taken_back_from_where_the_sums_went(first):
    """Of an event that counted in a place of its own, in the place of another since, and in "other" from the start."""
    monitor = shifted()
    events(monitor, "c", 3, 700.0, first=100)
    for segment, i, where in (
        ("a", first, "other"),
        ("b", first, "f=b"),
        ("c", first, "other"),
        ("c", 100 + first, "f=c"),
    ):
        before = {s: monitor.snapshot("hour", segment=s) for s in ("all", "other", "f=b", "f=c")}
        taken(monitor, say(f"{segment}{i}", y=0, t=800.0))
        for name, was in before.items():
            now = monitor.snapshot("hour", segment=name)
            assert now.count.sum() == was.count.sum()
            wrong = now.count.sum() * (1 - np.nansum(now.mean_y * now.share))
            wrong_before = was.count.sum() * (1 - np.nansum(was.mean_y * was.share))
            assert wrong - wrong_before == pytest.approx(float(name in ("all", where)))


def test_who_lost_a_place_gets_a_new_number_and_its_old_events_stay_in_other():
    monitor = shifted()
    taken(monitor, say("open", 0.5, t=700.0, f="b"))
    events(monitor, "a", 200, 700.0, first=100)
    monitor.advance(1260.0)
    places = monitor.engine.banks["m"].places
    assert sorted(names(monitor)) in (["f=a", "f=c"], ["f=a", "f=b"])
    assert sorted(places.numbers[2:])[-1] == places.given == 4
    events(monitor, "a", 1, 1300.0, first=900)
    assert counts(monitor, "hour", "f=a") == 1.0
    taken(monitor, say("a0", y=0, t=1400.0), say("a100", y=0, t=1400.0))
    own = monitor.snapshot("hour", segment="f=a")
    assert own.count.sum() == 1.0 and np.nansum(own.mean_y) == 1.0


def test_a_place_where_a_rule_fires_is_kept():
    """Else nobody would ever hear that it is over."""
    monitor = started(rules={"gap": {**GAP["gap"], "segments": ["f=a"], "above": 0.4}})
    events(monitor, "a", 5, 60.0)
    events(monitor, "b", 10, 60.0)
    monitor.advance(660.0)
    assert monitor.status()["firing"][0]["segment"] == "f=a"
    events(monitor, "c", 60, 700.0)
    monitor.advance(1260.0)
    assert names(monitor) == ["f=a", "f=c"]


@pytest.mark.parametrize("how", ["at once", "in two", "one by one", "columns"])
def test_a_place_that_changes_hands_in_the_middle_of_a_batch(tmp_path, how):
    """What comes after the evaluation has the new place, however the events are cut."""
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
    assert names(monitor) == ["f=c", "f=b"]
    assert (counts(monitor, "more", "f=c"), counts(monitor, "more", "f=b")) == (1.0, 11.0)


def test_a_journal_under_another_cap_gives_the_places_that_were(tmp_path):
    """Killed before a checkpoint, then a smaller or larger cap: what has a place keeps it, and its number."""
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
        before = monitor.engine.banks["m"].to_plain()
        monitor.engine.store.close()
        monitor = Monitor({**doc, "segments": {"fields": ["f"], "cap": cap}})
        after = monitor.engine.banks["m"].to_plain()
        assert after["places"] == before["places"] and after["windows"] == before["windows"]
        events(monitor, "d", 1, 700.0)
        assert names(monitor) == ["f=c", "f=b", *more]


# ---- Places by itself


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 40), st.booleans()), max_size=25),
    cap=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_places_are_the_same_in_any_cut_and_numbers_are_never_used_twice(steps, cap, seed):
    rng = np.random.default_rng(seed)
    one, other = Places(Segments(("f",), cap=cap)), Places(Segments(("f",), cap=cap))
    given_, tags = {}, []
    for name, n, turn in steps:
        tags = [one.tag(name)] * n
        one.saw("7", tags, one.of(tags))
        cut = int(rng.integers(0, n + 1))
        for part in (tags[:cut], tags[cut:]):
            assert other.tag(name) == tags[0]
            other.saw("7", part, other.of(part))
        if turn:
            before = dict(zip(one.names, one.numbers))
            changed = one.turn()
            assert changed == other.turn()
            for place in changed:
                assert one.numbers[place] > max(before.values())
        again = Places(Segments(("f",), cap=cap))
        again.take_over(json.loads(json.dumps(one.to_plain())))
        assert again.to_plain() == one.to_plain() == other.to_plain()
        for place, (holder, number) in enumerate(zip(one.names, one.numbers)):
            if place > OTHER:
                assert given_.setdefault(number, holder) == holder
                assert one.of([f"{number}:{holder}", f"{number + 100}:{holder}"]).tolist() == [place, OTHER]
    assert len(one) <= cap + 2 and one.traffic.sum() >= 0.0
    assert all(math.isfinite(x) for x in one.traffic)


def test_a_name_comes_back_from_its_tag():
    places = Places(Segments(("f",), cap=1))
    for name in ("f=a:b", "f=", "f=1:2:3"):
        assert name_of(places.tag(name)) == name
