"""What an attacker found in the monitor: one test for each kind of fault."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from streamcal.drift import DETECTORS, SegmentedDrift
from streamcal.monitor import Monitor, parse
from streamcal.monitor.config import EXAMPLE
from streamcal.monitor.config.settings import Rule
from streamcal.monitor.detectors import BACK, STEP, OnsetClock
from streamcal.monitor.replay import replay
from streamcal.monitor.rules.evaluation import ModelSums

DAY = 86_400.0


def made(**more):
    return Monitor({"state": ":memory:", "models": {"m": {}}, "windows": {"w": {"events": 100}}, **more})


def joined(monitor):
    return [(d["version"], d["labels"]["joined"]) for d in monitor.status()["models"]]


def test_every_model_of_the_documented_example_takes_events(tmp_path):
    """With a state file: what its windows take fits into it."""
    text = EXAMPLE
    for name in ("streamcal.db", "audit.jsonl", "taken.jsonl", "alerts.jsonl"):
        text = text.replace(f'"{name}"', f'"{tmp_path / name}"')
    config = parse(text.partition("[sinks.ops]")[0].replace('sinks = ["ops"]', ""))
    scores = {
        "churn": 0.3,
        "clicks": 0.01,
        "demand": [1.0, 2.0, 3.0],
        "demand-range": [1.0, 2.0],
        "animals": [0.3, 0.7],
    }
    assert set(scores) == {m.name for m in config.models}
    ys = {"churn": "yes", "clicks": 1, "demand": 2.5, "demand-range": 1.5, "animals": "cat"}
    start = 1.8e9
    for _ in range(2):  # and again after a restart
        with Monitor(config) as monitor:
            monitor.advance(start)  # its clock is the wall's
            for name, p in scores.items():
                more = {"w": 2.0, "version": "7"} if name == "churn" else {}
                monitor.predict(f"{start}", p, t=start, model=name, segment={"country": "at", "tier": "gold"}, **more)
                monitor.label(f"{start}", ys[name], t=start + 9, model=name)
            monitor.advance(start + 2 * DAY)
            sides = [d["predictions"] for d in monitor.status()["models"] if d["predictions"]["received"]]
            assert len(sides) == len(scores) and all(d["joined"] == d["received"] for d in sides)
        start += 3 * DAY
    assert (tmp_path / "streamcal.db").stat().st_size < 20e6


@pytest.mark.parametrize("missing", [math.nan, None, np.float64("nan")])
def test_a_missing_label_is_never_a_negative(missing):
    for label in (1, "yes", True):
        monitor = made(models={"m": {"pos_label": label}})
        monitor.predict_many(["a", "b"], [0.5, 0.5], t=0.0)
        monitor.label("a", missing, t=1.0)
        monitor.label_many(["a", "b"], np.array([label, missing], dtype=object), t=1.0)
        assert monitor.take([b'{"id": "b", "y": NaN, "t": 1}', b'{"id": "b", "y": null, "t": 1}']).unread == 1
        monitor.flush()
        assert joined(monitor) == [("", 1)] and monitor.status()["labels"]["m"] == {"missing": 3, "unknown": {}}


@pytest.mark.parametrize(("claim", "p"), [("pit", 0.3), ("quantile", 0.3)])
def test_one_level_is_a_claim_like_any_other(claim, p):
    monitor = made(
        models={"m": {"claim": claim, "levels": [0.5]}}, rules={"r": {"metric": "k1", "window": "w", "above": 0.3}}
    )
    for i in range(300):
        monitor.predict(i, p, t=float(i))
        monitor.label(i, 0.2, t=float(i))
    monitor.flush()
    assert monitor.snapshot("w").count.sum() == 100
    assert monitor.snapshot("w").get("coverage") == 1.0


def test_what_is_no_json_is_refused_or_written_as_it_was_taken(tmp_path):
    """A record never stops the monitor, and says what segments were."""
    monitor = Monitor(
        {
            "state": str(tmp_path / "s.db"),
            "audit": str(tmp_path / "a"),
            "record": str(tmp_path / "r"),
            "models": {"m": {}},
            "segments": {"fields": ["c"]},
            "every": "1m",
        }
    )
    odd = [object, math.inf, np.int64(3), np.str_("x"), True, None, ("a", 1), np.datetime64("2026-01-01")]
    for i, value in enumerate(odd):
        monitor.predict(i, 0.5, t=float(i), segment={"c": value, "not a field": object()})
        monitor.predict_many(
            [f"m{i}"], [0.5], t=float(i), segment={"c": value if not isinstance(value, tuple) else "a", "o": object()}
        )
    monitor.predict_many(["x", "y"], [0.5, 0.5], t=50.0, segment={"c": [np.int64(1), np.str_("b")]})
    monitor.label_many([*range(len(odd)), "x"], [1] * (len(odd) + 1), t=70.0)
    monitor.advance(200.0)
    monitor.close()
    with open(tmp_path / "r", "rb") as taken, open(tmp_path / "a", "rb") as audit:
        assert replay(monitor.config, taken, audit).difference == ""


@pytest.mark.parametrize(
    "ids", ["ab", b"ab", 7, np.array("ab"), [["a"], ["b"]], [1.5, 2.5], [None, "a"], [True, False]]
)
def test_ids_that_are_none_change_nothing(ids):
    monitor = made()
    with pytest.raises(ValueError, match="ids must be"):
        monitor.predict_many(ids, [0.5, 0.6], t=0.0)
    monitor.predict_many((str(i) for i in range(2)), [0.5, 0.6], t=0.0)  # a generator is one
    assert monitor.status()["taken"] == 2


@pytest.mark.parametrize("y", [10**400, -(10**400), "x", [], {}])
def test_labels_that_are_none_change_nothing(y):
    monitor = made()
    with pytest.raises(ValueError, match="y must be"):
        monitor.label("a", y, t=0.0)
    with pytest.raises(ValueError):
        monitor.take(b'{"id": 1}')
    monitor.close()
    with pytest.raises(ValueError, match="closed"):
        monitor.predict("a", 0.5, t=0.0)
    monitor.close()  # once more does nothing


def drifting(n, rng):
    """Two segments that drift in opposite ways."""
    c = rng.choice(["a", "b"], n)
    p = rng.uniform(0.3, 0.7, n)
    return c, p, (rng.random(n) < np.where(c == "a", p + 0.25, p - 0.25)).astype(int)


@pytest.mark.parametrize("segments", [["c=a"], ["c=b"], ["c=a", "c=b"]])
def test_an_alarm_is_told_under_each_name_that_has_a_share(segments):
    monitor = made(
        segments={"fields": ["c"]},
        detectors={"d": {"arl": 1000}},
        rules={"r": {"alarm": "d", "segments": segments, "quiet": "1d"}},
        every="1m",
    )
    c, p, y = drifting(600, np.random.default_rng(0))
    monitor.predict_many(np.arange(600), p, t=1.0, segment={"c": c})
    monitor.label_many(np.arange(600), y, t=2.0)
    named = {alert["segment"] for alert in monitor.advance(120.0)}
    assert named & {*segments, "all"}


def test_the_worst_of_several_is_the_surest_not_the_noisiest():
    """A class that is surely wrong is not hidden by a rare one whose value is larger and says nothing."""
    monitor = made(models={"m": {"claim": "marginal", "classes": ["a", "b", "c"]}}, windows={"w": {"events": 5000}})
    p = np.tile([0.45, 0.549, 0.001], (4000, 1))
    y = np.repeat([0, 1, 2], [2600, 1399, 1])
    monitor.predict_many(np.arange(4000), p, t=0.0)
    monitor.label_many(np.arange(4000), np.array(["a", "b", "c"], dtype=object)[y], t=1.0)
    rule = Rule("r", metric="pa_ratio", window="w", above=1.2, level=0.99)
    numbers = ModelSums(monitor.aggregates["m"], 2.0).evaluation(rule)
    s = monitor.snapshot("w")
    assert s.values("pa_ratio").argmax() == 2 and numbers.low[0] > 1.2


def test_alerts_are_handed_out_by_a_later_call():
    rules = {"r": {"metric": "k1", "window": "w", "above": 0.2, "level": 0}}
    monitor = made(rules=rules, every="1m")
    for i in range(1500):
        monitor.predict(i, 0.9, t=float(i))
        monitor.label(i, 0, t=float(i))
    assert [alert["rule"] for alert in monitor.flush()] == ["r"]
    assert monitor.flush() == []


def test_a_new_version_leaves_the_old_ones_alone(tmp_path):
    def opened(versions):
        return Monitor(
            {
                "state": str(tmp_path / "s.db"),
                "models": {"m": {"versions": versions}},
                "windows": {"w": {"events": 100}},
            }
        )

    with opened(["7"]) as monitor:
        for i in range(50):
            monitor.predict(i, 0.5, t=float(i))
            monitor.label(i, i % 2, t=float(i))
    with opened(["7", "8"]) as monitor:
        assert not [note for note in monitor.notes if "begins anew" in note]
        assert monitor.snapshot("w", version="7").count.sum() == 50


def test_rubbish_takes_no_versions():
    monitor = made()
    monitor.take([json.dumps({"id": i, "p": 7, "t": 1.0, "version": f"junk {i}"}).encode() for i in range(1100)])
    monitor.take(
        [json.dumps({"id": i, "p": 0.5, "t": "then", "version": f"more junk {i}"}).encode() for i in range(1100)]
    )
    assert monitor.take([b'{"id": "good", "p": 0.5, "t": 1, "version": "8"}']).unread == 0
    assert [account["version"] for account in monitor.status()["models"] if account["predictions"]["pending"]] == ["8"]


def test_a_byte_order_mark_is_no_part_of_a_message():
    assert made().take([b'\xef\xbb\xbf{"id": "a", "p": 0.5, "t": 1}']).unread == 0


def test_widening_at_other_moments_gives_the_same_evidence():
    """Places are given as predictions come, so a detector is widened at a moment that depends on how events are cut."""
    rng = np.random.default_rng(3)
    n = 6000
    c, p = rng.integers(0, 40, n).astype(str), rng.random(n)
    y = (rng.random(n) < p).astype(int)
    evidence = set()
    for step in (n, 17):
        monitor = made(
            segments={"fields": ["c"]}, detectors={"d": {"arl": 1e9}}, rules={"r": {"alarm": "d"}}, every="1m"
        )
        for i in range(0, n, step):
            part = slice(i, i + step)
            monitor.predict_many(np.arange(n)[part], p[part], t=1.0, segment={"c": c[part]})
            monitor.label_many(np.arange(n)[part], y[part], t=2.0)
        (detector,) = monitor.aggregates["m"].detectors.values()
        evidence.add(detector.evidence)
    assert len(evidence) == 1


def test_an_audit_that_ends_early_is_a_difference(tmp_path):
    rules = {"r": {"metric": "k1", "window": "w", "above": 0.2, "level": 0, "min_count": 1}}
    monitor = Monitor({"state": str(tmp_path / "s"), "audit": str(tmp_path / "a"), "record": str(tmp_path / "r"),
                       "models": {"m": {}}, "windows": {"w": {"events": 9}}, "rules": rules, "every": "1m"})  # fmt: skip
    monitor.evaluate(5.0)  # nothing has come: it is a line all the same
    for i in range(300):
        monitor.predict(i, 0.9, t=float(i))
        monitor.label(i, i % 2, t=float(i))
    monitor.close()
    lines = (tmp_path / "a").read_bytes().splitlines()
    taken = (tmp_path / "r").read_bytes().splitlines()
    assert replay(monitor.config, taken, lines).difference == ""
    for fewer in (lines[:-1], lines[:1], []):
        assert "the audit ends" in replay(monitor.config, taken, fewer).difference


def test_a_rule_that_is_gone_says_so_in_what_it_withdraws(tmp_path):
    def opened(rules):
        sink = {"type": "webhook", "url": "http://127.0.0.1:9/x", "format": "alertmanager"}
        base = {"detectors": {"d": {}}, "sinks": {"am": sink}, "windows": {"w": {"events": 9}}, "every": "1m"}
        return made(state=str(tmp_path / "s"), rules=rules, **base)

    rule = {"metric": "k1", "window": "w", "above": 0.2, "level": 0, "min_count": 1}
    monitor = opened({"r": rule})
    objects = [{"id": i, "p": 0.9, "t": float(i), "y": 0} for i in range(100)]
    assert [alert["kind"] for alert in monitor.take_objects(objects).alerts] == ["firing"]
    monitor.close(0.0)
    monitor = opened({})
    queued = json.loads(monitor.outbox.to_bytes().partition(b"\n")[0])
    assert "FIRING" not in json.dumps([e for e in queued["sinks"]["am"]["queue"] if "resolved" in json.dumps(e)])
    monitor.close(0.0)


def test_what_the_wall_clock_let_in_is_let_in_again(tmp_path):
    """Events that are refused when they are far ahead: the record says where the clock was."""
    files = {"state": str(tmp_path / "s.db"), "audit": str(tmp_path / "a"), "record": str(tmp_path / "r")}
    rules = {"r": {"metric": "k1", "window": "w", "above": 0.2, "level": 0, "min_count": 1}}
    monitor = made(**files, clock="wall", every="1h", join={"ahead": "1m"}, rules=rules)
    for i in range(100):
        monitor.advance(300.0 * i)
        monitor.predict(i, 0.9, t=300.0 * i)
        monitor.label(i, 0, t=300.0 * i + 5)
        monitor.flush()
    assert joined(monitor) == [("", 100)]
    monitor.close()
    with open(tmp_path / "r", "rb") as taken, open(tmp_path / "a", "rb") as audit:
        found = replay(monitor.config, taken, audit)
    assert found.difference == "" and found.lines > 5


def test_rules_may_be_about_some_versions():
    rules = {"r": {"metric": "k1", "window": "w", "above": 0.2, "level": 0, "min_count": 1, "versions": ["7"]}}
    monitor = made(rules=rules, models={"m": {"raw": "raw"}})
    for version in ("7", "8"):
        monitor.predict(version, 0.9, t=1.0, version=version, raw=0.95)
        monitor.label(version, 0, t=2.0, version=version)
    assert [alert["version"] for alert in monitor.evaluate(3.0)] == ["7"]


def test_the_first_of_several_alarms_says_when_it_began():
    """Found at one look: the later ones only know how it went on."""
    monitor = made(detectors={"d": {"arl": 1000}}, rules={"r": {"alarm": "d"}}, every="1d")
    rng = np.random.default_rng(0)
    p = rng.uniform(0.2, 0.8, 4000)
    y = rng.random(4000) < np.where(np.arange(4000) < 1000, p, np.minimum(p + 0.2, 1.0))
    monitor.predict_many(np.arange(4000), p, t=1.0)
    monitor.label_many(np.arange(4000), y.astype(int), t=2.0)
    (alert,) = monitor.advance(2 * DAY)
    assert alert["report"]["event"] < 1500 and monitor.aggregates["m"].detectors["d", ""].detector.alarms > 5


def test_what_is_watched_no_more_is_resolved(tmp_path):
    """In files and chats, too: an incident does not stay open because a segment or a rule has gone."""
    rule = {"metric": "k1", "window": "w", "above": 0.2, "level": 0, "min_count": 1, "segments": "each"}
    base = {"state": str(tmp_path / "s"), "sinks": {"f": {"type": "file", "path": str(tmp_path / "alerts")}}}
    with made(**base, segments={"fields": ["c"]}, rules={"r": rule, "gone": rule}) as monitor:
        monitor.predict("a", 0.9, t=1.0, segment={"c": "x"})
        monitor.label("a", 0, t=2.0)
        assert len(monitor.evaluate(3.0)) == 2
    with made(**base, segments={"fields": ["d"]}, rules={"r": rule}) as monitor:
        assert len([note for note in monitor.notes if "was firing" in note]) == 2
    said = [json.loads(line) for line in (tmp_path / "alerts").read_text().splitlines()]
    kinds = {(alert["id"], alert["kind"]) for alert in said}
    assert len(said) == 4 and {kind for _, kind in kinds} == {"firing", "resolved"} and len({i for i, _ in kinds}) == 2
    assert all("no longer watched" in alert["text"] for alert in said if alert["kind"] == "resolved")


@pytest.mark.parametrize("step", [5000, 37])
def test_an_alert_says_since_when(step):
    """The date of the onset, to within 16 events of what the detector says, however events are cut."""
    monitor = made(segments={"fields": ["c"]}, detectors={"d": {"arl": 1e7}}, every="1d",
                   rules={"r": {"alarm": "d", "segments": "each"}})  # fmt: skip
    rng = np.random.default_rng(5)
    n, minute = 5000, 60.0
    c, p, t = rng.choice(["x", "y"], n, p=[0.2, 0.8]), rng.uniform(0.2, 0.8, n), np.arange(n) * minute
    off = (c == "x") & (np.arange(n) >= 3000)
    y = (rng.random(n) < np.where(off, 1.0 - p, p)).astype(int)
    said = []
    for i in range(0, n, step):
        part = slice(i, i + step)
        said += monitor.predict_many(np.arange(n)[part], p[part], t=t[part], segment={"c": c[part]})
        said += monitor.label_many(np.arange(n)[part], y[part], t=t[part] + 9.0)
    alert = [*said, *monitor.advance(10 * DAY)][0]
    detector = SegmentedDrift(["x", "y"], arl=1e7)
    found = int(detector.update_many(p, y, c)[0])
    (part,) = (part for part in detector.history()[0]["segments"] if part["segment"] == "x")
    own = np.flatnonzero(c == "x")
    first = int((c[: found + 1] == "x").sum()) - part["last"]  # of the events of x, from 0
    since = np.datetime64(alert["report"]["since"].rstrip("Z")).astype("datetime64[s]").astype(float)
    assert alert["segment"] == "c=x" and f"since about {alert['report']['since']}" in alert["text"]
    assert since in t[own[first - 15 : first + 1]]
    assert monitor.aggregates["m"].detectors["d", ""].clock.counts[0] == n


@pytest.mark.parametrize("claim", ["mean", "quantile", "pit"])
def test_alerts_about_all_events_say_since_when_too(claim):
    levels = {} if claim == "mean" else {"levels": [0.5]}
    monitor = made(
        models={"m": {"claim": claim, **levels}}, detectors={"d": {"arl": 1000}}, rules={"r": {"alarm": "d"}}
    )
    p = np.full(600, 0.5)
    monitor.predict_many(np.arange(600), p, t=np.arange(600) * 60.0)
    monitor.label_many(np.arange(600), np.ones(600), t=600 * 60.0)
    (alert, *_) = monitor.advance(DAY)
    assert claim == "pit" or alert["report"]["since"] == "1970-01-01T00:00:00Z"
    assert "since about 1970-01-01T" in alert["text"]


def test_a_detector_of_ones_own_bets_in_the_place_of_another(monkeypatch):
    """Registered under the name of the one for probabilities, it sees their events."""

    class Own(DETECTORS["calibration"]):
        @classmethod
        def for_claim(cls, claim, arl, tolerance):
            return cls(arl=arl / 2)

    monkeypatch.setitem(DETECTORS, "calibration", Own)
    monitor = made(detectors={"d": {"arl": 1000}}, rules={"r": {"alarm": "d"}})
    monitor.predict_many(["a", "b"], [0.5, 0.6], t=0.0)
    monitor.label_many(["a", "b"], [1, 0], t=1.0)
    own = monitor.aggregates["m"].detectors["d", ""]
    assert (type(own.detector), own.detector.arl, own.events) == (Own, 500.0, 2)


def test_an_onset_long_ago_is_before_what_is_known():
    clock, t = OnsetClock(), np.arange(50_000) * 1.0
    for i in range(0, 50_000, 1000):
        clock.add(np.arange(i, i + 1000) % 2, t[i : i + 1000])
    assert clock.counts[1] == 25_000
    for back in (0, 15, 16, 500, 1000):
        moment, known = clock.date(1, 25_000 - back, 25_000)
        assert known and 0 <= t[1::2][25_000 - back - 1] - moment < 2 * STEP
    moment, known = clock.date(1, 3, 25_000)
    assert not known and moment == t[1::2][(24_999 // STEP - BACK) * STEP]
    again = OnsetClock()
    again.take_over(clock.to_plain())
    assert again.date(1, 24_500, 25_000) == clock.date(1, 24_500, 25_000)
