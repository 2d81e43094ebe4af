"""The monitor against its plain twin (naive_monitor.py), however events come in, whatever is wrong with them, across restarts.

Which test covers which kind of field report (applies_to monitor):
    wrong-prob-column       test_the_probability_is_that_of_the_declared_label
    metric-nan-poison       test_a_bad_event_is_counted_and_leaves_no_poison
    nan-sticks              test_a_bad_event_is_counted_and_leaves_no_poison
    nan-without-warning     test_what_is_not_judged_says_why
    late-comer-join         test_the_side_that_comes_later_finds_its_pair
    late-right-side         test_a_label_after_its_time_is_counted_as_that
    variable-delay          test_the_side_that_comes_later_finds_its_pair
    quote-in-label          test_any_text_comes_back_as_it_was
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from naive_monitor import NaiveMonitor

from streamcal.claims import top_scores
from streamcal.drift import CalibrationDrift, CoverageDrift, PITDrift, SegmentedDrift
from streamcal.monitor import aggregates, journal
from streamcal.monitor.messages import records
from streamcal.monitor.monitor import Lost, Monitor
from streamcal.monitor.replay import Overheard, replay
from streamcal.monitor.store import Store, StoreError

DAY = 86_400.0
CLAIMS = {
    "mean": {},
    "unit": {"outcome": "unit"},
    "labels": {"pos_label": "yes", "negative_sampling_rate": 0.25},
    "quantile": {"claim": "quantile", "levels": [0.5]},
    "quantiles": {"claim": "quantile", "levels": [0.1, 0.5, 0.9]},
    "interval": {"claim": "interval", "lower": 0.1, "upper": 0.9},
    "top_label": {"claim": "top_label", "classes": ["cat", "dog", "eel"]},
    "marginal": {"claim": "marginal", "classes": ["cat", "dog", "eel"]},
    "pit": {"claim": "pit", "levels": [0.25, 0.5]},
}
WINDOWS = {
    "last": {"events": 5},
    "more": {"events": 100},
    "hour": {"time": "1h", "panes": 4},
    "made": {"time": "2h", "panes": 6, "by": "prediction"},
}
few = settings(max_examples=12, suppress_health_check=list(HealthCheck))


ELSEWHERE = os.path.join(tempfile.mkdtemp(), "alerts.jsonl")  # of tests that do not look at it


def document(claim="mean", **more):
    """A configuration as a dict: model "m", two windows of each kind."""
    model = {**CLAIMS[claim], **more.pop("model", {})}
    real = claim in ("quantile", "quantiles", "interval")  # 6,400 fine rows in each pane
    windows = (
        {name: {**w, **({"panes": 2} if "panes" in w else {})} for name, w in WINDOWS.items()} if real else WINDOWS
    )
    model |= {} if claim == "pit" or real else {"bins": 4}
    base = {
        "state": ":memory:",
        "every": "10m",
        "max_unread": 1,  # what cannot be read is looked at once a transaction: not in any cut alike
        "windows": windows,
        "sinks": {"none": {"type": "file", "path": ELSEWHERE}},
    }
    join = {"ahead": "36500d", **more.pop("join", {})}  # times far apart are no mistakes here
    return {**base, "models": {"m": model}, "join": join, **more}


def metric_rule(claim):
    name = "q1" if claim in ("quantile", "quantiles") else "k1"
    return {"metric": name, "window": "hour", "above": 0.2, "level": 0, "min_count": 1}


def some_p(claim):
    unit = st.sampled_from((0.1, 0.3, 0.5, 1.0)) | st.floats(0, 1)
    real = st.sampled_from((-1.0, 0.0, 2.5)) | st.floats(-5, 5)
    if claim in ("mean", "unit", "labels", "pit"):
        return unit
    if claim == "quantile":
        return real
    if claim in ("quantiles", "interval"):
        return st.lists(real, min_size=2 + (claim == "quantiles"), max_size=2 + (claim == "quantiles")).map(sorted)
    return st.lists(st.floats(0, 1), min_size=3, max_size=3)


def some_y(claim):
    if claim in ("top_label", "marginal"):
        return st.sampled_from(("cat", "dog", "eel"))
    words = {"labels": st.sampled_from(("yes", "no")), "mean": st.integers(0, 1), "unit": st.floats(0, 1)}
    return words.get(claim, st.sampled_from((-1.0, 0.0, 2.5)) | st.floats(-5, 5))


BAD_P = ("x", [], {"a": 1}, [0.1] * 7, -2e300, False)
BAD_Y = {"labels": (1, [], True), "top_label": ("cow", 0.5), "marginal": ("cow", 9)}


@st.composite
def objects(draw, claim, versions, raw, weight, dirty=True):
    """One object of a message: a prediction, a label, or both; now and then with something wrong."""
    thing = {"id": draw(st.integers(0, 12)), "t": draw(st.integers(0, 240)) * 60.0}
    if draw(st.integers(0, 19)) == 0:
        thing["t"] += DAY
    kind = draw(st.sampled_from(("p", "p", "y", "y", "both")))
    version = draw(st.sampled_from(versions))
    if kind != "y":
        thing |= {"p": draw(some_p(claim)), "country": draw(st.sampled_from(("at", "de", "ch", "fr")))}
        if raw and draw(st.booleans()):
            thing["raw"] = draw(some_p(claim))
        if weight:
            thing["amount"] = draw(st.sampled_from((0.0, 1.0, 2.5)))
    if kind != "p":
        thing["y"] = draw(some_y(claim))
    if version and (kind != "y" or draw(st.booleans())):
        thing["version"] = version
    return spoiled(draw, claim, thing) if dirty and draw(st.integers(0, 9)) == 0 else thing


def spoiled(draw, claim, thing):
    bad = {
        "id": (None, 1.5, "", True, [1]),
        "t": (None, "yesterday", 1.7e12, True, "2026-01-01T00:00"),
        "model": ("other", 7),
        "version": ("9", [7]),
        "p": BAD_P,
        "y": BAD_Y.get(claim, ("x", [1], {})),
        "raw": BAD_P,
        "amount": (-1.0, "2"),
    }
    name = draw(st.sampled_from([key for key in bad if key in thing or key in ("model", "version")]))
    return {**thing, name: draw(st.sampled_from(bad[name]))}


def close_to(got, want, exact):
    """Counts to the last bit, sums to 1e-12 of the largest."""
    np.testing.assert_array_equal(got[:, :-1, 0], want[:, :-1, 0])
    size = max(1.0, float(np.abs(want[:, :-1]).max(initial=0.0)))
    np.testing.assert_allclose(got[:, :-1], want[:, :-1], rtol=1e-12, atol=1e-12 * size)


def compare(monitor, twin):
    """Counters, sums of every version, place and window, and detectors."""
    status = monitor.status()
    assert status["taken"] == twin.taken
    known = [tuple(key) for key in twin.join.known]
    assert [(a["model"], a["version"]) for a in status["models"]] == known
    for account in status["models"]:
        for side in ("predictions", "labels"):
            want = twin.join.of((account["model"], account["version"]), side)
            got = {name: account[side][name] for name in want}
            assert got == want, (account["version"], side)
            assert got["received"] == sum(got.values()) - got["received"] - got["corrected"]
    for name, bank in monitor.aggregates.items():
        places = bank.names
        assert places[2:] == twin.places[name]
        for version in {pair["key"][1] for pair in twin.pairs[name]}:
            for window in monitor.config.windows:
                for place in places:
                    got = bank.snapshot_of(window.name, version, places.index(place), monitor.clock)
                    want = twin.cells(name, version, place, window, monitor.clock, bank.losses.get(window.name))
                    close_to(got.cells, want, version)
            compare_detectors(bank, twin, name, version)


def compare_detectors(bank, twin, name, version):
    """A detector is what one is that saw the same events, one by one."""
    for detector, settings_ in bank.detector_settings.items():
        own, pairs = bank.detectors[detector, version], twin.bets(name, version)
        model, places = twin.models[name], ["other", *twin.places[name]]
        arl, tolerance = settings_.arl, settings_.tolerated(model)
        p, y = (np.array([pair[key] for pair in pairs]) for key in ("p", "y"))
        want = fed(model, arl, tolerance, p, y, [places.index(pair["segment"] or "other") for pair in pairs], own)
        assert own.events == want.n == len(pairs)
        assert own.evidence == pytest.approx(want.evidence, rel=1e-9)


def fed(model, arl, tolerance, p, y, segment, own):
    if model.claim in ("top_label", "marginal"):
        p, y = top_scores(p, y)
    if model.negative_sampling_rate < 1:
        p = p / (p + model.negative_sampling_rate * (1 - p))
    if own.segmented:
        detector = SegmentedDrift(own.detector.segments, arl, tolerance)
        for event in zip(p, y, segment):
            detector.update(*event)
        return detector
    if model.claim == "pit":
        detector = PITDrift(arl)
        for u in p:
            detector.update(u)
        return detector
    levels = model.levels[0] if len(model.levels) == 1 else model.levels
    detector = CalibrationDrift(arl, tolerance)
    if model.claim == "quantile":
        detector = CoverageDrift(levels, arl, tolerance)
    if model.claim == "interval":
        detector = CoverageDrift(model.claims().levels[0], arl, tolerance, interval=True)
    for event in zip(p, y):
        detector.update(*event)
    return detector


# ---- any order of anything, with restarts


class Machine(RuleBasedStateMachine):
    """A monitor on a file, its twin, and every way in."""

    @initialize(
        claim=st.sampled_from(list(CLAIMS)),
        versions=st.sampled_from(((None,), ("7", "8"))),
        raw=st.booleans(),
        weight=st.booleans(),
        segments=st.booleans(),
        maturity=st.sampled_from(("0s", "30m")),
        hold=st.sampled_from(("0s", "1h")),
        tiny=st.booleans(),
    )
    def begin(self, claim, versions, raw, weight, segments, maturity, hold, tiny):
        if claim in ("quantiles", "interval", "quantile"):
            segments = tiny = False
        self.folder = Path(tempfile.mkdtemp())
        self.claim, self.versions, self.raw, self.weight = claim, versions, raw, weight
        self.least, journal.LEAST = journal.LEAST, 200 if tiny else journal.LEAST
        self.keys, aggregates.FIRST_KEYS = aggregates.FIRST_KEYS, 2
        model = {"versions": list(versions)} if versions[0] else {}
        model |= {"raw": "raw"} if raw else {}
        model |= {"weight": "amount"} if weight else {}
        where = {"segments": "each"} if segments else {}
        self.document = document(
            claim,
            model=model,
            every="1h",  # most of the time would go into evaluations, which other tests look at
            state=str(self.folder / "state.db"),
            audit=str(self.folder / "audit.jsonl"),
            record=str(self.folder / "taken.jsonl"),
            join={"ttl": "3h", "maturity": maturity, "hold": hold},
            sinks={"out": {"type": "file", "path": str(self.folder / "alerts.jsonl")}},
            detectors={"drift": {"arl": 50}},
            rules={"gap": {**metric_rule(claim), **where}, "drift": {"alarm": "drift", **where}},
            **({"segments": {"fields": ["country"], "cap": 2}} if segments else {}),
        )
        self.open()
        self.twin = NaiveMonitor(self.monitor.config)

    def open(self):
        self.monitor = Monitor(self.document)
        assert self.monitor.notes == []

    def draw(self, data, most, dirty=True):
        one = objects(self.claim, self.versions, self.raw, self.weight, dirty)
        return data.draw(st.lists(one, min_size=1, max_size=most))

    @rule(data=st.data())
    def payloads(self, data):
        """Messages of one or several objects, some of them no JSON at all."""
        things = self.draw(data, 8)
        cut = data.draw(st.integers(0, len(things)))
        parts = [things[:cut], {"events": things[cut:]}]
        taken = self.monitor.take([*(json.dumps(part).encode() for part in parts), b"{", b""])
        before = self.twin.unread
        for thing in things:
            self.twin.take(thing)
        assert taken.unread == self.twin.unread - before + 1

    @rule(data=st.data())
    def one_by_one(self, data):
        for thing in self.draw(data, 6, dirty=False):
            who = {"version": thing.get("version")}
            p, y, t = thing.get("p"), thing.get("y"), thing["t"]
            if p is not None:
                more = {"raw": thing["raw"]} if "raw" in thing else {}
                more |= {"w": thing["amount"]} if self.weight else {}
                self.monitor.predict(thing["id"], p, t=t, segment={"country": thing["country"]}, **who, **more)
                self.twin.take({key: value for key, value in thing.items() if key != "y"})
            if y is not None:
                self.monitor.label(thing["id"], y, t=t, **who)
                self.twin.take({key: thing[key] for key in ("id", "y", "t", "version") if key in thing})

    @rule(data=st.data(), one_t=st.booleans())
    def columns(self, data, one_t):
        """Predictions of one version, then labels of one version or of all."""
        things = self.draw(data, 8, dirty=False)
        version = data.draw(st.sampled_from(self.versions))
        made = [{k: v for k, v in o.items() if k not in ("raw", "y", "version")} for o in things if "p" in o]
        known = [{k: o[k] for k in ("id", "t", "y")} for o in things if "y" in o]
        for some in (made, known):
            for o in some:
                o |= {"version": version} if version else {}
                o["t"] = some[0]["t"] if one_t else o["t"]
        if made:
            ids, p, t, country = ([o[key] for o in made] for key in ("id", "p", "t", "country"))
            w = [o["amount"] for o in made] if self.weight else None
            when = t[0] if one_t else t
            self.monitor.predict_many(ids, p, t=when, version=version, segment={"country": country}, w=w)
        if known:
            ids, y, t = ([o[key] for o in known] for key in ("id", "y", "t"))
            self.monitor.label_many(ids, y, t=t[0] if one_t else t, version=version)
        for o in (*made, *known):
            self.twin.take(o)

    @rule(hours=st.sampled_from((0.1, 1.0, 5.0)))
    def time_goes_on(self, hours):
        now = max(self.monitor.clock, 0.0) + hours * 3600.0
        self.monitor.advance(now)
        self.twin.advance(now)

    @rule()
    def evaluated(self):
        self.monitor.evaluate()

    @rule()
    def closed_and_opened(self):
        self.monitor.close(wait=0.0)
        before = self.monitor.aggregates["m"].to_plain()
        self.open()
        assert self.monitor.aggregates["m"].to_plain() == before

    @rule()
    def killed(self):
        """What a kill leaves is the file and its log as they are after the last transaction."""
        self.monitor.flush()
        before = self.monitor.aggregates["m"].to_plain()
        state = Path(self.document["state"])
        logs = [Path(f"{state}{end}") for end in ("", "-wal") if Path(f"{state}{end}").exists()]
        for path in logs:
            shutil.copy(path, f"{path}.copy")
        self.monitor.outbox.close(0.0)
        self.monitor.store.close()
        for path in state.parent.glob("state.db*"):
            if not path.name.endswith(".copy"):
                path.unlink()
        for path in logs:
            Path(f"{path}.copy").rename(path)
        self.open()
        assert self.monitor.aggregates["m"].to_plain() == before

    @rule()
    def looked_at(self):
        self.monitor.flush()
        compare(self.monitor, self.twin)

    def teardown(self):
        if not hasattr(self, "folder"):
            return
        try:
            self.monitor.close(wait=0.0)
            self.monitor = Monitor(self.document)
            compare(self.monitor, self.twin)
            self.monitor.close(wait=0.0)
        finally:
            journal.LEAST, aggregates.FIRST_KEYS = self.least, self.keys
            with contextlib.suppress(Exception):
                self.monitor.store.close()
            shutil.rmtree(self.folder)


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=int(os.environ.get("N", 20)),
    stateful_step_count=12,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestMachine = pytest.mark.jit(TestMachine)


# ---- the same events in any cut


def live(folder, doc, parts):
    """What a monitor says that takes the parts, each in its way; its audit as text, its counters and its banks' sums."""
    folder.mkdir()
    doc = {**doc, "audit": str(folder / "audit"), "record": str(folder / "taken"), "state": ":memory:"}
    doc["sinks"] = {"out": {"type": "file", "path": str(folder / "alerts")}}
    monitor = Monitor(doc)
    for part in parts:
        part(monitor)
    monitor.flush()
    status = monitor.status()
    monitor.close(wait=0.0)
    texts = {name: (folder / name).read_text() if (folder / name).exists() else "" for name in ("audit", "alerts")}
    return {"status": {key: status[key] for key in ("taken", "models", "clock", "firing", "unread")}, **texts}, monitor


def lines_of(path):
    return path.read_bytes().splitlines() if path.exists() else []


def without_files(text):
    """Lines of an audit without the hash of the configuration, which names the files."""
    return [{key: value for key, value in json.loads(line).items() if key != "config"} for line in text.splitlines()]


@pytest.mark.jit
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data(), claim=st.sampled_from(("mean", "labels", "top_label", "pit")))
def test_the_same_events_in_any_cut_give_the_same_audit(data, claim):
    """Also where the cap makes most segments "other"."""
    one = objects(claim, ("7", "8"), True, True)
    things = data.draw(st.lists(one, min_size=20, max_size=60))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(things)), max_size=6)) | {0, len(things)})
    where = {"segments": "each"}
    doc = document(
        claim,
        model={"versions": ["7", "8"], "raw": "raw", "weight": "amount"},
        join={"ttl": "3h", "maturity": "30m", "hold": "1h"},
        detectors={"drift": {"arl": 3}},
        rules={"gap": {**metric_rule(claim), **where}, "drift": {"alarm": "drift", **where, "quiet": "30m"}},
        segments={"fields": ["country"], "cap": 1},
    )
    whole = [lambda m, some=things[a:b]: m.take([json.dumps(some).encode()]) for a, b in itertools.pairwise(cuts)]
    single = [lambda m, thing=thing: m.take([json.dumps(thing).encode()]) for thing in things]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        at_once, _ = live(folder / "a", doc, [lambda m: m.take([json.dumps(things).encode()])])
        in_parts, _ = live(folder / "b", doc, whole)
        one_by_one, monitor = live(folder / "c", doc, single)
        for other in (in_parts, one_by_one):
            assert other["status"] == at_once["status"]
            assert without_files(other["audit"]) == without_files(at_once["audit"])
            assert other["alerts"] == at_once["alerts"]
        lines, audit = (lines_of(folder / "c" / part) for part in ("taken", "audit"))
        assert replay(monitor.config, lines, audit).difference == ""


# ---- time


def taken(monitor, *things):
    return monitor.take([json.dumps(list(things)).encode()])


def say(id_, p=None, y=None, t=0.0, **more):
    return {"id": id_, "t": t, **({} if p is None else {"p": p}), **({} if y is None else {"y": y}), **more}


def opened(tmp_path, **more):
    """A configuration on files in a folder."""
    names = {name: str(tmp_path / name) for name in ("state", "audit", "record")}
    return document(**{**names, "sinks": {"out": {"type": "file", "path": str(tmp_path / "alerts")}}, **more})


def audit_of(tmp_path):
    path = tmp_path / "audit"
    return [json.loads(line) for line in lines_of(path)]


GAP = {"gap": {"metric": "k1", "window": "hour", "above": 0.2, "level": 0, "min_count": 1}}


@pytest.mark.parametrize("bad", [say("x", p=7.0, t=9e10), say(None, p=0.5, t=9e10), say("x", y="perhaps", t=9e10)])
def test_an_event_that_is_refused_moves_no_time(tmp_path, bad):
    """Neither the clock of the join nor the moments of the evaluations: it may come first, or in between."""
    monitor = Monitor(opened(tmp_path, rules=GAP))
    taken(monitor, bad)
    assert monitor.clock == -math.inf
    for i in range(60):
        taken(monitor, say(i, 0.9, 0, t=i * 60.0), bad)
    assert monitor.clock == 59 * 60.0
    assert [line["time"] for line in audit_of(tmp_path)] == [600.0, 1200.0, 1800.0, 2400.0, 3000.0]


@settings(max_examples=60)
@given(
    every=st.sampled_from(("1.1s", "1.7s", "7.3s", "1m")),
    steps=st.lists(st.integers(1, 10**6), max_size=6),
    data=st.data(),
)
def test_evaluations_are_at_multiples_and_never_twice(every, steps, data):
    """Multiples of a span that is no binary number are rounded; an event right on one, or a neighbour of it, is no trap."""
    heard = Overheard()
    monitor = Monitor(document(every=every, rules=GAP, audit="audit"), outbox=heard)
    span, at, seen = monitor.config.every, 0, []
    taken(monitor, say("first", 0.5, 1, t=0.0))
    for step in steps:
        at += step
        side = data.draw(st.sampled_from((-math.inf, 0.0, math.inf)))
        t = at * span if side == 0.0 else math.nextafter(at * span, side)
        taken(monitor, say(at, 0.5, 1, t=t))
        taken(monitor, say(f"{at}a", 0.5, 1, t=t))
        seen = [line["time"] for line in heard.lines]
        assert not seen or seen[-1] <= t < monitor.boundary
        assert monitor.boundary - t <= span * (1 + 1e-9)
    assert seen == sorted(set(seen))
    assert all(abs(moment / span - round(moment / span)) < 1e-6 for moment in seen)


@pytest.mark.parametrize(("before", "after"), [("1m", "1h"), ("1h", "1m"), ("7m", "11m")])
def test_another_every_goes_on_from_the_last_evaluation(tmp_path, before, after):
    """A rule that fires must not be shown an earlier moment than its last."""
    for every, first in ((before, 0), (after, 125)):
        monitor = Monitor(opened(tmp_path, rules=GAP, every=every))
        for i in range(first, first + 125):
            taken(monitor, say(i, 0.9, 0, t=i * 60.0 + 30.0))
        monitor.close()
    times = [line["time"] for line in audit_of(tmp_path)]
    assert times == sorted(times) and times[-1] >= 10_800.0


def test_evaluations_at_once_are_besides_the_usual_ones(tmp_path):
    monitor = Monitor(opened(tmp_path, rules=GAP))
    taken(monitor, say("a", 0.9, 0, t=10.0))
    for now in (None, None, 100.0, 600.0, 600.0, 1234.0):
        monitor.evaluate(now)
    monitor.close()
    assert [line["time"] for line in audit_of(tmp_path)] == [10.0, 10.0, 100.0, 600.0, 600.0, 1200.0, 1234.0]
    lines, audit = (lines_of(tmp_path / name) for name in ("record", "audit"))
    assert replay(monitor.config, lines, audit).difference == ""


@settings(max_examples=60)
@given(steps=st.lists(st.integers(-300, 900), min_size=1, max_size=30), cuts=st.sets(st.integers(0, 30)))
def test_what_is_too_far_ahead_is_the_same_in_any_cut(steps, cuts):
    """Events move the clock within a batch, and with it what is too far ahead, and what is evaluated when."""
    doc = document(clock="wall", join={"ahead": "10m"}, rules=GAP, audit="audit")
    t, things = 5000.0, []
    for i, step in enumerate(steps):
        things.append(say(i, 0.5, 1, t=t + step))
        t = max(t, t + step)
    said = []
    for ends in ({0, len(things)} | {c for c in cuts if c < len(things)}, set(range(len(things) + 1))):
        heard = Overheard()
        monitor = Monitor(doc, outbox=heard)
        for a, b in itertools.pairwise(sorted(ends)):
            taken(monitor, *things[a:b])
        said.append((json.dumps(heard.lines), monitor.status()["models"], monitor.clock))
    assert said[0] == said[1]


# ---- another configuration


def filled(monitor, ids, t=100.0, p=0.5, y=1):
    for i in ids:
        taken(monitor, say(i, p, y, t=t, country="at", tier="x"))


def counts(monitor, window="hour", **where):
    return monitor.snapshot(window, **where).count.sum()


def test_a_correction_of_what_counted_before_a_window_began_anew_takes_nothing_from_it(tmp_path):
    """Not from one of another time either: whatever else is there of the same row stays."""
    monitor = Monitor(opened(tmp_path))
    filled(monitor, range(5), t=100.0)
    monitor.close()
    windows = {"hour": {"time": "1h", "panes": 5}, "last": {"events": 6}, "made": WINDOWS["made"]}
    monitor = Monitor(opened(tmp_path, windows=windows))
    assert [note for note in monitor.notes if "begins anew" in note] == [
        "model m: window hour begins anew",
        "model m: window last begins anew",
    ]
    filled(monitor, range(5, 8), t=150.0)
    for i in range(5):
        taken(monitor, say(i, y=0, t=101.0 + i))  # each counts from now on, for the first time in a window of a time
    s = monitor.snapshot("hour")
    assert s.count.sum() == 8.0 and s.mean_y[s.count > 0.0] == 3 / 8
    assert counts(monitor, "last") == 3.0 and monitor.snapshot("last").get("oe_ratio") == 2.0  # their outcomes are 1
    assert counts(monitor, "made") == 8.0


@pytest.mark.parametrize("kill", [False, True])
def test_what_did_not_change_goes_on_to_the_last_bit(tmp_path, kill):
    """New rules, another cap, other settings of the join and a new window leave the other windows as they are."""
    base = {"segments": {"fields": ["country"], "cap": 2}, "detectors": {"drift": {"arl": 500}}, "model": {"bins": 3}}
    monitor = Monitor(opened(tmp_path, **base))
    rng = np.random.default_rng(1)
    for i in range(60):
        taken(monitor, say(i, rng.random(), int(rng.random() < 0.5), t=60.0 * i, country="abc"[i % 3]))
    plain = monitor.aggregates["m"].to_plain()
    monitor.store.close() if kill else monitor.close()
    base["segments"]["cap"] = 3
    more = {"windows": {**WINDOWS, "day": {"time": "1d"}}, "rules": GAP, "join": {"ttl": "9d"}, "every": "1h"}
    monitor = Monitor(opened(tmp_path, **base, **more))
    assert sum("begins anew" in note for note in monitor.notes) == 1
    now = monitor.aggregates["m"].to_plain()
    assert {name: now["windows"][name] for name in plain["windows"]} == plain["windows"]
    assert now["detectors"] == plain["detectors"] and now["segments"] == plain["segments"]
    taken(monitor, say("z", 0.5, 1, t=3600.0, country="d"))
    assert monitor.aggregates["m"].names[2:] == ["country=a", "country=b", "country=d"]
    assert counts(monitor, "day") == 1.0 and counts(monitor, "more") == 61.0


@pytest.mark.parametrize("kill", [False, True])
def test_other_fields_begin_anew_and_mix_nothing(tmp_path, kill):
    monitor = Monitor(opened(tmp_path, segments={"fields": ["country"]}))
    filled(monitor, range(5))
    taken(monitor, say("open", 0.5, t=100.0, country="at", tier="x"))
    monitor.store.close() if kill else monitor.close()
    monitor = Monitor(opened(tmp_path, segments={"fields": ["tier"]}))
    assert any("fields" in note for note in monitor.notes)
    taken(monitor, say("open", y=1, t=200.0), say(0, y=0, t=99.0), say("new", 0.5, 1, t=200.0, tier="x"))
    assert monitor.aggregates["m"].names == ["all", "other", "tier=x"]
    assert (counts(monitor), counts(monitor, segment="tier=x"), counts(monitor, segment="other")) == (2.0, 1.0, 1.0)


@pytest.mark.parametrize("kill", [False, True])
def test_a_model_that_was_gone_for_a_time_begins_anew(tmp_path, kill):
    """What counted before is not taken from it, and what was open then counts in "other"."""

    def run(models, *steps):
        monitor = Monitor({**opened(tmp_path, segments={"fields": ["country"]}), "models": models})
        for step in steps:
            taken(monitor, *step)
        own = {name: of["own"] for name, of in monitor.status()["segments"].items()}
        monitor.store.close() if kill else monitor.close()
        return monitor.notes, own

    a, b = {"a": {}}, {"b": {}}
    old = [say(i, 0.5, 1, t=100.0, model="a", country=str(i)) for i in range(3)]
    waits = say("waits", 0.5, t=100.0, model="a", country="0")
    _, own = run({**a, **b}, old, [waits])
    assert own["a"] == 3
    notes, _ = run(b, [say(1, 0.5, 1, t=150.0, model="b", country="x")])
    assert any("no longer in the configuration" in note for note in notes)
    notes, own = run({**a, **b}, [say(9, 0.5, 1, t=200.0, model="a", country="0")])
    assert any("again" in note for note in notes) and own == {"a": 1, "b": 1}
    monitor = Monitor({**opened(tmp_path, segments={"fields": ["country"]}), "models": {**a, **b}})
    assert monitor.notes == []
    taken(monitor, say(0, y=0, t=140.0, model="a"), say("waits", y=1, t=210.0, model="a"))
    assert counts(monitor, model="a") == 2.0
    assert counts(monitor, model="a", segment="other") == counts(monitor, model="a", segment="country=0") == 1.0


def test_a_model_that_is_new_takes_its_past(tmp_path):
    """Only what already counted is left out: events from before the clock are taken as ever, also after a kill."""
    monitor = Monitor({**opened(tmp_path), "models": {"a": {}}})
    taken(monitor, say(1, 0.5, 1, t=5000.0))
    monitor.close()
    for ids in (range(3), range(3, 5)):
        monitor = Monitor({**opened(tmp_path), "models": {"a": {}, "b": {}}})
        taken(monitor, *(say(i, 0.5, 1, t=4000.0, model="b") for i in ids))
        monitor.store.close()
    monitor = Monitor({**opened(tmp_path), "models": {"a": {}, "b": {}}})
    assert counts(monitor, model="b") == 5.0


# ---- a store that fails


def test_a_store_that_fails_says_so_and_a_new_monitor_goes_on_from_the_last_good_batch(tmp_path):
    """The disk is full in the middle of a transaction, at any of its writes."""
    doc = opened(tmp_path, segments={"fields": ["country"]}, rules=GAP)
    monitor = Monitor(doc)
    filled(monitor, range(20), t=100.0)
    monitor.close()
    for pages in range(0, 12, 2):
        state = tmp_path / "state"
        monitor = Monitor(doc, store=Store(state, largest=state.stat().st_size + 4096 * pages))
        before, plain = monitor.status()["taken"], monitor.aggregates["m"].to_plain()
        with pytest.raises(StoreError, match="full"):
            for i in range(200):
                ids = [f"{before}-{pages}-{i}-{j}-{'x' * 500}" for j in range(20)]
                taken(monitor, *(say(id_, 0.5, 1, t=200.0, country="at") for id_ in ids))
                before, plain = monitor.status()["taken"], monitor.aggregates["m"].to_plain()
        with pytest.raises(StoreError):
            filled(monitor, ["later"])
        monitor.store.close()
        monitor = Monitor(doc)
        assert monitor.status()["taken"] == before and monitor.aggregates["m"].to_plain() == plain
        monitor.close()


# ---- what comes in


def test_a_bad_event_is_counted_and_leaves_no_poison():
    for bad in (say("b", p="nan"), say("b", 0.5, "maybe"), {"id": "b", "p": None, "t": 0}, say("b", 2.0)):
        monitor = Monitor(document())
        taken(monitor, bad, *(say(i, 0.8, 1) for i in range(4)))
        assert sum(monitor.status()["unread"].values()) == 1
        assert monitor.snapshot("more").get("k1") == pytest.approx(0.2)
    monitor = Monitor(document())
    with pytest.raises(ValueError, match="p must be a number in"):
        monitor.predict("b", math.nan, t=0.0)


def test_the_probability_is_that_of_the_declared_label():
    """The class of each probability is declared, in a list by the order of ``classes``, in an object by name."""
    monitor = Monitor(document("top_label", windows={"more": {"events": 100}}))
    taken(monitor, say(1, [0.1, 0.7, 0.2], "dog"), say(2, {"eel": 0.2, "dog": 0.7, "cat": 0.1}, "dog"))
    assert monitor.snapshot("more").get("k1") == pytest.approx(0.3)
    labels = Monitor(document(model={"pos_label": "yes"}))
    taken(labels, say(1, 0.9, "yes"), say(2, 0.9, "no"), say(3, 0.9, 1))
    assert labels.status()["unread"] == {"y": 1} and labels.snapshot("more").get("k1") == pytest.approx(0.4)


def test_the_side_that_comes_later_finds_its_pair():
    """Either side first, after seconds or hours; each label has a delay of its own."""
    monitor = Monitor(document(join={"hold": "2h"}))
    taken(monitor, say("a", y=1, t=0.0), say("b", 0.5, t=0.0), say("b", y=0, t=5.0), say("a", 0.5, t=3600.0))
    taken(monitor, say("c", 0.5, t=0.0), say("c", y=0, t=7200.0))
    assert monitor.status()["models"][0]["predictions"]["joined"] == 3


def test_a_label_after_its_time_is_counted_as_that():
    monitor = Monitor(document(join={"ttl": "1h", "hold": "0s"}))
    taken(monitor, say("a", 0.5, t=0.0), say("b", 0.5, t=9000.0), say("a", y=1, t=100.0), say("late", 0.5, t=10.0))
    account = monitor.status()["models"][0]
    assert account["predictions"]["expired"] == account["labels"]["expired"] == 1
    assert account["predictions"]["reasons"] == {"late": 1} and account["predictions"]["joined"] == 0


def test_what_is_not_judged_says_why(tmp_path):
    """One class, few events, no value: a word in the audit and null, never nan alone."""
    rules = {
        name: {"metric": name, "window": "more", "above": 5.0, "level": 0, "min_count": 2}
        for name in ("k1", "calibration_slope")
    }
    monitor = Monitor(opened(tmp_path, rules=rules))
    for i in range(2):
        taken(monitor, say(i, 0.0, 1, t=1.0))
        monitor.evaluate()
    decisions = {(line["rule"], line["count"][0]): (line["decision"], line["value"]) for line in audit_of(tmp_path)}
    assert decisions["k1", 1.0][0] == ["few events"] and decisions["k1", 2.0][0] == ["clear"]
    assert decisions["calibration_slope", 2.0] == (["no value"], [None])


@pytest.mark.parametrize("text", ['cd "/foo"', "a\\b", "line\nfeed", "a,b=c", "ü\u2028", "\0", "{}", ""])
def test_any_text_comes_back_as_it_was(tmp_path, text):
    """As a class (where it can be), an id, a version and a segment: in the state, the audit, the record and a replay."""
    classes = ["x", text if text.isprintable() and text else "y"]  # names in a configuration are printable
    doc = opened(tmp_path, model={"claim": "top_label", "classes": classes}, segments={"fields": ["f"]})
    rules = {"gap": {"metric": "k1", "window": "more", "above": 0.0, "level": 0, "min_count": 1, "segments": "each"}}
    doc["models"]["m"].pop("bins", None)
    monitor = Monitor({**doc, "rules": rules})
    taken(monitor, say(text or "id", {classes[1]: 0.9, "x": 0.1}, classes[1], f=text, version=text))
    monitor.evaluate()
    name = monitor.config.segments.named((text,))
    assert counts(monitor, "more", version=text, segment=name) == 1.0
    monitor.close()
    (line,) = audit_of(tmp_path)
    assert line["segments"] == [name] and line["version"] == text
    assert replay(monitor.config, lines_of(tmp_path / "record"), lines_of(tmp_path / "audit")).difference == ""
    assert Monitor({**doc, "rules": rules}).aggregates["m"].names[2:] == [name]


@pytest.mark.parametrize("bad", ["\ud800", "x" * 951, "x" * 5000])
def test_a_segment_that_cannot_be_kept_is_refused(tmp_path, bad):
    """One by one, in columns and in messages; the monitor goes on."""
    doc = opened(tmp_path, segments={"fields": ["f"]})
    monitor = Monitor(doc)
    for take in (
        lambda: monitor.predict("a", 0.5, t=0.0, segment={"f": bad}),
        lambda: monitor.predict_many(["a", "b"], [0.5, 0.5], t=0.0, segment={"f": ["x", bad]}),
        lambda: monitor.predict_many(["a\ud800"], [0.5], t=0.0, segment={"f": "x"}),
        lambda: monitor.predict("x" * 1001, 0.5, t=0.0, segment={"f": "x"}),
    ):
        with pytest.raises(ValueError, match="must be (a text|texts)"):
            take()
    if bad.isascii():
        assert taken(monitor, say("a", 0.5, f=bad)).unread == 1
    taken(monitor, say("b", 0.5, 1, f="x"))
    monitor.close()
    assert counts(Monitor(doc), segment="f=x") == 1.0


def test_a_missing_value_of_a_segment_is_empty_in_every_way_in(tmp_path):
    """None, nan, not there: one segment; and a replay reads the same."""
    doc = opened(tmp_path, segments={"fields": ["f"]}, rules={"gap": {**GAP["gap"], "segments": "each"}})
    monitor = Monitor(doc)
    taken(monitor, say(1, 0.5, 1, f=None), say(2, 0.5, 1))
    monitor.predict(3, 0.5, t=0.0, segment={"f": math.nan})
    monitor.predict_many([4, 5, 6], [0.5] * 3, t=0.0, segment={"f": [None, math.nan, np.nan]})
    monitor.predict_many([7], [0.5], t=0.0, segment={})
    monitor.label_many([3, 4, 5, 6, 7], [1] * 5, t=1.0)
    monitor.evaluate()
    assert counts(monitor, segment="f=") == 7.0 and monitor.aggregates["m"].names[2:] == ["f="]
    monitor.close()
    assert replay(monitor.config, lines_of(tmp_path / "record"), lines_of(tmp_path / "audit")).difference == ""


def test_a_weight_that_goes_nowhere_is_refused():
    monitor = Monitor(document())
    with pytest.raises(ValueError, match="w goes only with a model"):
        monitor.predict("a", 0.5, t=0.0, w=2.0)
    with pytest.raises(ValueError, match="w goes only with a model"):
        monitor.predict_many(["a"], [0.5], t=0.0, w=[2.0])


GARBAGE = (
    b"\xff\xfe", b"{", b"[1, 2", b"nan", b'{"id": 1, "p": NaN, "t": 0}', b'"\\ud800"', b"[" * 9000, b"7", b"null",
    b'{"id": 1, "p": 1e999, "t": 0}', b"\xef\xbb\xbf{}", b"{}\n{]\n",
)  # fmt: skip


@pytest.mark.parametrize("payload", GARBAGE)
def test_garbage_is_counted_kept_and_does_no_harm(tmp_path, payload):
    sources = {"in": {"type": "file", "path": "x", "dead_letters": str(tmp_path / "dead")}}
    monitor = Monitor(opened(tmp_path, sources=sources))
    good, bad = records(payload)
    source = monitor.config.sources[0]
    got = monitor.take_objects(good, [Lost(source, "line 1", part) for part in bad])
    taken(monitor, say("a", 0.5, 1))
    letters = [json.loads(line) for line in lines_of(tmp_path / "dead")]
    assert got.unread == len(letters) == sum(monitor.status()["unread"].values()) >= 1
    assert all(letter["reason"] and letter["source"] == "in" for letter in letters)
    assert counts(monitor) == 1.0


@settings(max_examples=150)
@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from('{}[]:,"idpty0.5 \n\\u'), max_size=40).map(lambda x: "".join(x).encode())
)
def test_any_bytes_are_read_or_lost_never_raised(payload):
    monitor = Monitor(document())
    monitor.take([payload])
    taken(monitor, say("a", 0.5, 1, t=1.0))
    assert counts(monitor) == 1.0


@settings(max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from(("id", "t", "p", "y", "model", "version", "amount", "raw", "country")),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(max_size=5),
            lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=3), x, max_size=3),
            max_leaves=5,
        ),
    ),
    st.sampled_from(list(CLAIMS)),
)
def test_any_object_is_an_event_or_refused_with_a_reason(thing, claim):
    doc = document(claim, model={"raw": "raw", "weight": "amount"}, segments={"fields": ["country"]})
    doc["windows"] = {"last": {"events": 5}}
    monitor = Monitor(doc)
    got = taken(monitor, thing)
    accounts = monitor.status()["models"]
    rejected = sum(
        a[side]["rejected"] - a[side]["reasons"].get("late", 0) for a in accounts for side in ("predictions", "labels")
    )
    received = sum(a[side]["received"] for a in accounts for side in ("predictions", "labels"))
    assert received == monitor.status()["taken"] <= 4
    missing = monitor.status()["labels"]["m"]["missing"]
    assert (got.unread == 1) == bool(rejected or not (received or missing))
    json.dumps(monitor.status(), allow_nan=False)


def test_a_correction_of_an_event_that_has_left_changes_no_other_one():
    """Labels that come late after a first 0 (chargebacks, defaults): the event has left, others with its score have not."""
    monitor = Monitor(document(windows={"last": {"events": 5}}))
    taken(monitor, *(say(i, 0.5, 0, t=float(i)) for i in range(20)))
    taken(monitor, *(say(i, y=1, t=100.0 + i) for i in range(5)))
    assert np.nanmax(monitor.snapshot("last").mean_y) == 0.0


def test_every_alarm_of_a_large_batch_is_counted(tmp_path):
    """Also more of them than a detector remembers reports, and in more than one block of events."""
    told, n = [], 1200
    for size in (7, n):
        folder = tmp_path / str(size)
        folder.mkdir()
        rules = {"drift": {"alarm": "drift"}}
        monitor = Monitor(opened(folder, detectors={"drift": {"arl": 1}}, rules=rules))
        monitor.predict_many(range(n), [0.99] * n, t=1.0)
        for i in range(0, n, size):
            ids = list(range(i, min(i + size, n)))
            monitor.label_many(ids, [0] * len(ids), t=2.0)
        monitor.evaluate()
        told.append(audit_of(folder)[-1]["alarms"]["all"])
    assert told[0] == told[1] > 20


@pytest.mark.parametrize("raw", (False, True))
@pytest.mark.parametrize("labelled", ("label", "label_many", "take"))
@pytest.mark.parametrize("predicted", ("predict", "predict_many", "take", "take raw by itself"))
def test_a_label_finds_the_raw_prediction_by_whatever_doors_they_came(predicted, labelled, raw):
    thing = {"id": "x", "p": 0.8, "t": 0.0, "version": "a"}
    with Monitor({"state": ":memory:", "models": {"m": {"raw": "q"}}, "sinks": {}}) as monitor:
        if predicted == "predict":
            monitor.predict(**thing, raw=0.6 if raw else None)
        elif predicted == "predict_many":
            for version, p in (("a", 0.8), ("a/raw", 0.6))[: 1 + raw]:
                monitor.predict_many(["x"], [p], t=0.0, version=version)
        elif predicted == "take":
            monitor.take([json.dumps(thing | {"q": 0.6} if raw else thing).encode()])
        else:
            things = [thing, {**thing, "version": "a/raw", "p": 0.6}][: 1 + raw]
            monitor.take([json.dumps(things).encode()])
        if labelled == "label":
            monitor.label("x", 1, t=1.0, version="a")
        elif labelled == "label_many":
            monitor.label_many(["x"], [1], t=1.0, version="a")
        else:
            monitor.take([b'{"id": "x", "y": 1, "t": 1, "version": "a"}'])
        monitor.flush()
        joined = {of["version"]: of["predictions"]["joined"] for of in monitor.status()["models"]}
        assert joined == ({"a": 1, "a/raw": 1} if raw else {"a": 1})
