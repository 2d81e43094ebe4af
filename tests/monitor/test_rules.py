"""The state machine of a rule against a twin that looks back over the whole history, and its laws."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal.monitor.config.config import from_document
from streamcal.monitor.config.settings import Rule
from streamcal.monitor.rules.rule import (
    BETWEEN,
    CLEAR,
    FIRING,
    OK,
    PAST,
    PENDING,
    RESOLVED,
    UNKNOWN,
    VERDICTS,
    Alert,
    Evaluation,
    State,
    alert_document,
    decisions,
    state_from,
    step,
    verdict,
)

NAN = math.nan


def ruled(**keys) -> Rule:
    """A rule as a file gives it."""
    about = {} if "alarm" in keys else {"metric": "k1", "window": "day"}
    document = {"models": {"m": {}}, "windows": {"day": {"time": "1d"}}, "detectors": {"drift": {}}}
    return from_document({**document, "rules": {"r": {**about, **keys}}}).rules[0]


START = State()


def run(rule: Rule, history, state: State = START):
    """Alerts as (kind, at, since), and the last state."""
    said = []
    for now, evaluation in history:
        state, alert = step(rule, state, evaluation, now)
        if alert:
            said.append((alert.kind, alert.at, alert.since))
    return said, state


# -- the twin -------------------------------------------------------------------------------------------------------------


def twin_verdict(keys, e) -> str:
    sign = 1 if "above" in keys else -1
    threshold = keys.get("above", keys.get("below"))
    interval = [e.value, e.value] if keys["level"] == 0 else [e.low, e.high]
    near = interval[0] if sign > 0 else interval[1]
    if e.events < keys["min_count"] or math.isnan(e.value) or math.isnan(near):
        return "unknown"
    if (near > threshold) if sign > 0 else (near < threshold):
        return "past"
    back = keys.get("clear", threshold)
    return "clear" if ((e.value <= back) if sign > 0 else (e.value >= back)) else "between"


def twin_of_metric(keys, history):
    said, start, rested = [], 0, -math.inf
    for i, (now, e) in enumerate(history):
        if said and said[-1][0] == "firing":
            if twin_verdict(keys, e) == "clear" or not e.events > 0:
                said.append(("resolved", now, said[-1][2]))
                start, rested = i + 1, now
            continue
        first = i + 1
        while first > start and twin_verdict(keys, history[first - 1][1]) == "past":
            first -= 1
        if first <= i and now - history[first][0] >= keys["for"] and now - rested >= keys["cooldown"]:
            said.append(("firing", now, history[first][0]))
    return said


def twin_of_alarm(keys, history):
    said, start, rested = [], 0, -math.inf
    for i, (now, _) in enumerate(history):
        alarms = [t for t, e in history[start : i + 1] if e.alarms]
        if said and said[-1][0] == "firing":
            if now - max(alarms[-1], said[-1][1]) >= keys["quiet"]:
                said.append(("resolved", now, said[-1][2]))
                start, rested = i + 1, now
        elif alarms and now - rested >= keys["cooldown"]:
            said.append(("firing", now, alarms[0]))
    return said


values = st.sampled_from((0.0, 0.02, 0.03, 0.04, 0.045, 0.05, 0.06, 0.1, 1.0, math.inf, NAN))
widths = st.sampled_from((0.0, 0.01, 0.02, NAN))
counts = st.sampled_from((0.0, 9.0, 10.0, 11.0, 1e6))
spans = st.sampled_from((0.0, 60.0, 120.0, 300.0))


@st.composite
def evaluations(draw):
    value, width = draw(values), draw(widths)
    return Evaluation(value, value - width, value + width, draw(counts), draw(st.sampled_from((0, 0, 0, 1, 3))))


@st.composite
def histories(draw, min_size=0):
    """Mostly a breach or its absence for a while, so that long events come, at steps that rise or stay."""
    parts = draw(st.lists(st.tuples(evaluations(), st.integers(1, 5)), min_size=min_size, max_size=15))
    all_of_them = [e for e, times in parts for _ in range(times)]
    steps = draw(
        st.lists(st.sampled_from((0.0, 60.0, 60.0, 90.0)), min_size=len(all_of_them), max_size=len(all_of_them))
    )
    return [(float(t), e) for t, e in zip(np.cumsum(steps), all_of_them)]


@st.composite
def metric_keys(draw):
    keys = {"for": draw(spans), "cooldown": draw(spans), "min_count": 10, "level": draw(st.sampled_from((0, 0.9)))}
    side = draw(st.sampled_from(("above", "below")))
    keys[side] = draw(st.sampled_from((0.04, 0.05)))
    if draw(st.booleans()):
        keys["clear"] = keys[side] + (-1 if side == "above" else 1) * draw(st.sampled_from((0.0, 0.01, 0.02)))
    return keys


def as_written(keys):
    return {k: f"{v:g}s" if k in ("for", "cooldown", "quiet") else v for k, v in keys.items()}


@given(metric_keys(), histories())
@settings(max_examples=300)
def test_a_rule_about_a_metric_does_what_the_twin_does(keys, history):
    assert run(ruled(**as_written(keys)), history)[0] == twin_of_metric(keys, history)


@given(st.fixed_dictionaries({"cooldown": spans, "quiet": st.sampled_from((60.0, 180.0))}), histories())
@settings(max_examples=300)
def test_a_rule_about_an_alarm_does_what_the_twin_does(keys, history):
    assert run(ruled(alarm="drift", **as_written(keys)), history)[0] == twin_of_alarm(keys, history)


either = st.one_of(
    metric_keys(), st.fixed_dictionaries({"alarm": st.just("drift"), "cooldown": spans, "quiet": st.just(120.0)})
)


@given(either, histories(), st.integers(0, 80))
def test_a_restart_from_json_changes_nothing(keys, history, at):
    rule = ruled(**as_written(keys))
    before, state = run(rule, history[:at])
    after, last = run(rule, history[at:], state_from(json.loads(json.dumps(list(state)))))
    assert (before + after, last) == run(rule, history)


@given(either, histories())
def test_firing_and_resolved_take_turns_and_the_state_is_sound(keys, history):
    rule, state, kinds = ruled(**as_written(keys)), State(), []
    for now, e in history:
        state, alert = step(rule, state, e, now)
        assert state == state_from(list(state))
        if alert:
            kinds.append(alert.kind)
            assert alert.since <= alert.at == now and alert.episode == state.episode == (len(kinds) + 1) // 2
    assert kinds == [FIRING, RESOLVED] * (len(kinds) // 2) + [FIRING] * (len(kinds) % 2)
    assert (state.phase == FIRING) == (len(kinds) % 2 == 1)


@given(either, histories(min_size=1))
def test_the_same_evaluation_at_the_same_time_says_nothing_new(keys, history):
    rule, state = ruled(**as_written(keys)), State()
    for now, e in history:
        state, _ = step(rule, state, e, now)
        assert step(rule, state, e, now) == (state, None)


def columns(evaluations):
    """Several evaluations as one that holds arrays."""
    return Evaluation(*(np.array([e[i] for e in evaluations], float) for i in range(4)))


@given(metric_keys(), st.lists(evaluations(), max_size=30))
def test_many_verdicts_are_the_single_ones(keys, some):
    rule = ruled(**as_written(keys))
    found = verdict(rule, columns(some))
    assert found.tolist() == [verdict(rule, e) for e in some]
    assert [VERDICTS[v] for v in found] == [twin_verdict(keys, e) for e in some]


@given(either, evaluations(), st.sampled_from((State(), State(RESOLVED, None, 50.0, None, 3))))
def test_at_rest_only_what_is_past_needs_a_step(keys, e, state):
    rule = ruled(**as_written(keys))
    if verdict(rule, e) != PAST:
        assert step(rule, state, e, 100.0) == (state, None)


# -- by hand --------------------------------------------------------------------------------------------------------------


def at(value: float, width: float = 0.01, events: float = 500, alarms: int = 0) -> Evaluation:
    return Evaluation(value, value - width, value + width, events, alarms)


def test_the_interval_must_be_past_not_the_value():
    rule = ruled(above=0.05)
    assert run(rule, [(0, at(0.055)), (60, at(0.06)), (120, at(0.0601))])[0] == [("firing", 120, 120)]
    assert run(ruled(above=0.05, level=0), [(0, at(0.05)), (60, at(0.0501))])[0] == [("firing", 60, 60)]
    assert run(ruled(below=0.5), [(0, at(0.495)), (60, at(0.48))])[0] == [("firing", 60, 60)]


def test_hysteresis_holds_between_clear_and_the_threshold():
    rule = ruled(above=0.05, clear=0.03)
    history = [(0, at(0.09)), (60, at(0.04)), (120, at(0.09)), (180, at(0.031)), (240, at(0.03)), (300, at(0.04))]
    assert run(rule, history)[0] == [("firing", 0, 0), ("resolved", 240, 0)]


def test_for_needs_every_evaluation():
    rule = ruled(above=0.05, **{"for": "2m"})
    assert run(rule, [(0, at(0.09)), (60, at(0.09)), (119, at(0.09))])[0] == []
    for gap in (at(0.05), at(NAN), at(0.09, events=99), at(0.09, width=NAN)):
        history = [(0, at(0.09)), (60, gap), (120, at(0.09)), (180, at(0.09)), (240, at(0.09))]
        assert run(rule, history)[0] == [("firing", 240, 120)]


def test_what_is_unknown_neither_fires_nor_resolves():
    rule = ruled(above=0.05)
    lost = [at(NAN), at(0.0, events=3), at(0.0, width=NAN)]
    assert run(rule, [(60.0 * i, e) for i, e in enumerate(lost)]) == ([], State())
    said, state = run(rule, [(0.0, at(0.09)), *((60.0 * i, e) for i, e in enumerate(lost, 1))])
    assert said == [("firing", 0.0, 0.0)] and state.phase == FIRING


def test_the_cool_down_delays_but_does_not_lose():
    rule = ruled(above=0.05, cooldown="10m")
    history = [(0, at(0.09)), (60, at(0.0)), (120, at(0.09)), (600, at(0.09)), (660, at(0.09))]
    assert run(rule, history)[0] == [("firing", 0, 0), ("resolved", 60, 0), ("firing", 660, 120)]
    silent = [(0, at(0.09)), (60, at(0.0)), (120, at(0.09)), (180, at(0.0)), (660, at(0.0))]
    said, state = run(rule, silent)
    assert len(said) == 2 and state == State(RESOLVED, resolved=60, episode=1)


def test_alarms_of_one_event_are_one_alert():
    rule = ruled(alarm="drift", quiet="1h")
    history = [(0, at(1.0)), (60, at(1.0, alarms=2)), (120, at(1.0)), (3000, at(1.0, alarms=1)), (6599, at(1.0))]
    assert run(rule, history)[0] == [("firing", 60, 60)]
    assert run(rule, [*history, (6600, at(1.0))])[0] == [("firing", 60, 60), ("resolved", 6600, 60)]


def test_an_alarm_in_the_cool_down_is_not_lost():
    rule = ruled(alarm="drift", quiet="1m", cooldown="1h")
    history = [(0, at(1, alarms=1)), (60, at(1)), (120, at(1, alarms=1)), (180, at(1)), (3660, at(1)), (3720, at(1))]
    kinds = [("firing", 0, 0), ("resolved", 60, 0), ("firing", 3660, 120), ("resolved", 3720, 120)]
    assert run(rule, history)[0] == kinds


@pytest.mark.parametrize("now", [NAN, math.inf, -math.inf, 99.0, -1.0])
@pytest.mark.parametrize(
    "state", [State(PENDING, 100.0), State(FIRING, 0.0, alarm=100.0, episode=1), State(resolved=100.0)]
)
def test_time_does_not_go_back(state, now):
    with pytest.raises(ValueError, match="now must be a finite time, not before 100"):
        step(ruled(above=0.05), state, at(0.0), now)


def test_time_zero_is_a_time():
    with pytest.raises(ValueError, match="not before 0"):
        step(ruled(above=0.05), State(PENDING, 0.0), at(0.9), -60.0)


@pytest.mark.parametrize(
    "data", [[], ["ok"], ["odd", None, None, None, 0], ["firing", None, None, None, 1], ["ok", 1, None, None, 0]]
)
def test_a_state_that_is_none_is_refused(data):
    with pytest.raises(ValueError, match="the state of a rule must be"):
        state_from(data)


def test_a_state_of_a_rule_that_was_about_something_else_still_ends():
    state = State(FIRING, 0.0, episode=1)
    assert step(ruled(alarm="drift", quiet="1m"), state, at(1.0), 60.0)[1].kind == RESOLVED
    assert step(ruled(above=0.05), State(FIRING, 0.0, alarm=30.0, episode=1), at(0.0), 60.0)[1].kind == RESOLVED


def test_decisions_say_why():
    """The words of an audit, by the one route that there is."""
    rule = ruled(above=0.05)
    said = {
        "past": at(0.09),
        "between": at(0.055),
        "clear": at(0.01),
        "few events": at(0.09, events=99),
        "no value": Evaluation(NAN, 0.08, 0.1, 500),
        "no interval": at(0.09, width=NAN),
    }
    every = columns([*said.values(), at(0.09, events=NAN), at(NAN)])
    codes = verdict(rule, every)
    assert codes.tolist() == [PAST, BETWEEN, CLEAR, *[UNKNOWN] * 5]
    assert decisions(rule, every, codes) == [*said, "few events", "no value"]
    alarms = ruled(alarm="drift")
    assert [verdict(alarms, at(0.0, alarms=n)) for n in (0, 1, 2)] == [BETWEEN, PAST, PAST]


def test_an_alert_as_a_document():
    rule = ruled(above=0.05, severity="critical", runbook="https://wiki.example/x")
    firing = Alert(FIRING, 2, 1767225600.0, 1767226200.0, Evaluation(0.09, 0.07, math.inf, 1234))
    said = alert_document(rule, firing, 'a "quoted"\nname', "7", "country=at")
    assert json.loads(json.dumps(said, allow_nan=False)) == said
    assert (said["since"], said["at"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z")
    assert (said["value"], said["low"], said["high"], said["count"], said["side"]) == (0.09, 0.07, None, 1234, "above")
    assert (said["model"], said["severity"], said["runbook"]) == (
        'a "quoted"\nname',
        "critical",
        "https://wiki.example/x",
    )
    ended = Alert(RESOLVED, 2, firing.since, 1767229800.0, at(0.01))
    resolved = alert_document(rule, ended, 'a "quoted"\nname', "7", "country=at")
    assert resolved["id"] == said["id"] and resolved["text"].startswith("RESOLVED (critical) r: model a")
    others = [("m", "7", "country=at"), ('a "quoted"\nname', "8", "country=at"), ('a "quoted"\nname', "7", "all")]
    assert len({said["id"], *(alert_document(rule, firing, *other)["id"] for other in others)}) == 4


def test_an_alarm_as_a_document():
    said = alert_document(ruled(alarm="drift"), Alert(FIRING, 1, 0.0, 0.0, at(3e4, alarms=1)), "m", "7", "all")
    assert (said["about"], said["threshold"], said["side"]) == ("drift", None, None)
    assert said["text"] == "FIRING (warning) r: model m, version 7, segment all: detector drift has alarmed"


def test_the_first_state_is_ok():
    assert State().phase == OK and state_from(list(State())) == State()


def test_a_window_that_has_emptied_resolves():
    """A version that is served no more would else fire for ever; too few events still say nothing."""
    rule = ruled(above=0.05)
    few, none = Evaluation(0.2, 0.1, 0.3, 7), Evaluation(math.nan, events=0)
    said, state = run(rule, [(0, at(0.2)), (60, few), (120, none)])
    assert said == [("firing", 0, 0), ("resolved", 120, 0)] and state.phase == RESOLVED
    assert run(ruled(below=0.05), [(0, none), (60, none)])[0] == []
