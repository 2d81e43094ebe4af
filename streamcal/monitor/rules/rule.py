"""One rule for one model, version and segment: a pure state machine, ok -> pending -> firing -> resolved, one alert per event.

An evaluation is held against the rule:

====================  =========================================================================================================
past                  the whole interval is beyond the threshold (with level 0: the value is), or a detector has alarmed
clear                 the value is at ``clear`` or on its good side
between               neither: the interval still holds the threshold, or the value is between ``clear`` and the threshold
unknown               too few events, no value, or no interval where one is needed: never a reason to fire, nor to resolve
====================  =========================================================================================================

and then the state moves:

==============  ==========================  ===================================================================================
from            to                          when
==============  ==========================  ===================================================================================
ok, resolved    pending                     past
pending         firing, with an alert       past, at each evaluation for ``for`` seconds, and ``cooldown`` since it last resolved
pending         ok or resolved, silently    not past, also unknown
firing          resolved, with an alert     clear, or nothing is left in the window
==============  ==========================  ===================================================================================

An alarm is past for a moment only. So a rule about alarms fires at once, or as soon as the cool-down is over (it is not lost);
further alarms while it fires belong to the same event, and it is resolved ``quiet`` seconds after it fired or the last of them.

Nothing here looks at a clock or draws a number: the same evaluations at the same times give the same alerts, live and replayed.

>>> from streamcal.monitor.config.settings import Rule
>>> rule = Rule("gap", metric="k1", window="day", above=0.05, lasting=600.0, clear=0.04)
>>> state, values = State(), [(0.0, 0.09), (600.0, 0.09), (1200.0, 0.045), (1800.0, 0.03)]
>>> for now, value in values:
...     state, alert = step(rule, state, Evaluation(value, value - 0.02, value + 0.02, 900), now)
...     print(state.phase, alert and alert.kind)
pending None
firing firing
firing None
resolved resolved
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streamcal.monitor.config.settings import Rule
from streamcal.monitor.config.toml_tables import digest
from streamcal.times import shown_span, utc

OK, PENDING, FIRING, RESOLVED = PHASES = ("ok", "pending", "firing", "resolved")
UNKNOWN, CLEAR, BETWEEN, PAST = range(4)
VERDICTS = ("unknown", "clear", "between", "past")


class Evaluation(NamedTuple):
    """What is known at one moment: a metric, its interval at the rule's level (nan: none) and the number of events in it.

    For an alarm: ``alarms`` since the last evaluation (0 or more); ``value``, the evidence, and ``events`` are only reported.
    ``left_out``: events that the metric says nothing of, predictions of 0 or 1 that came true.
    Each may be an array, with a number for each of several segments.
    """

    value: Any
    low: Any = math.nan
    high: Any = math.nan
    events: Any = 0.0
    alarms: Any = 0
    left_out: Any = 0.0


class State(NamedTuple):
    """Where a rule is, as plain data: ``list(state)`` is JSON, :func:`state_from` takes it back. Times in seconds."""

    phase: str = OK
    since: float | None = None  # when what is pending or firing began
    resolved: float | None = None  # when it last resolved
    alarm: float | None = None  # of what is pending or firing: its last alarm, or when it fired if that is later
    episode: int = 0  # how often it has fired


@dataclass(frozen=True)
class Alert:
    """What is to be said: ``kind`` "firing" or "resolved", of which episode, since when, at what time, seeing what."""

    kind: str
    episode: int
    since: float
    at: float
    evaluation: Evaluation


def state_from(data: Sequence[Any]) -> State:
    """The state that ``list(state)`` wrote down; ValueError if it is none."""
    state = State(*data) if len(data) == len(State._fields) else None
    if state is None or state.phase not in PHASES or (state.since is None) == (state.phase in (PENDING, FIRING)):
        raise ValueError(f"the state of a rule must be [phase, since, resolved, alarm, episode], got {data!r:.100}")
    return state


def verdict(rule: Rule, e: Evaluation) -> Any:
    """UNKNOWN, CLEAR, BETWEEN or PAST; of an evaluation that holds arrays a code for each.

    Of an alarm PAST, or BETWEEN where there was none: only time clears it. Where the verdict is not PAST, :func:`step` leaves
    a state that is "ok" or "resolved" as it is: only states that are pending or firing, and those with PAST, need a step.

    >>> rule = Rule("gap", metric="k1", window="day", above=0.05)
    >>> columns = np.array([[0.08, 0.08, 0.01, 0.08], [0.06, 0.04, 0.0, 0.06], [0.1] * 4, [900, 900, 900, 3]])
    >>> [VERDICTS[code] for code in verdict(rule, Evaluation(*columns))]
    ['past', 'between', 'clear', 'unknown']
    >>> VERDICTS[verdict(rule, Evaluation(0.08, 0.06, 0.1, 900))]
    'past'
    """
    if rule.metric is None:
        return BETWEEN + (e.alarms > 0)
    assert rule.threshold is not None and rule.cleared is not None, "a rule about a metric has a threshold"
    bound = e.value if rule.level == 0.0 else e.low if rule.sign > 0.0 else e.high
    known = (e.value == e.value) & (bound == bound) & (e.events >= rule.min_count)  # nan equals nothing
    past, clear = rule.sign * bound > rule.sign * rule.threshold, rule.sign * e.value <= rule.sign * rule.cleared
    return known * (past * PAST + (1 - past) * (BETWEEN - clear))  # UNKNOWN is 0, CLEAR is one less than BETWEEN


def decisions(rule: Rule, columns: Evaluation, codes: Any) -> list[str]:
    """The verdicts of an evaluation that holds arrays, in words for the audit; of an unknown one the reason.

    >>> rule = Rule("gap", metric="k1", window="day", above=0.1)
    >>> columns = Evaluation(*np.array([[0.2, np.nan], [0.15, 0.1], [0.25, 0.2], [7, 900]]))
    >>> decisions(rule, columns, verdict(rule, columns))
    ['few events', 'no value']
    """
    why = np.where(np.isnan(columns.value), "no value", "no interval")
    why = np.where(columns.events >= rule.min_count, why, "few events")
    found: list[str] = np.where(codes == UNKNOWN, why, np.array(VERDICTS)[codes]).tolist()
    return found


def step(rule: Rule, state: State, evaluation: Evaluation, now: float) -> tuple[State, Alert | None]:
    """The state after an evaluation at time ``now``, and what there is to say; see the tables above.

    ``now`` in seconds; ValueError if it is not finite or before a time in the state. The same evaluation again at the same time
    says nothing new. Evaluations may be any time apart; a pause counts as if all had stayed as it was.
    """
    times = (t for t in (state.since, state.resolved, state.alarm) if t is not None)
    if not (latest := max(times, default=-math.inf)) <= now < math.inf:
        raise ValueError(f"now must be a finite time, not before {latest:.17g}, got {now!r}")
    found, alarm = verdict(rule, evaluation), rule.metric is None
    if found == PAST and alarm:
        state = state._replace(alarm=now)
    since = now if state.since is None else state.since
    if state.phase == FIRING:
        last = since if state.alarm is None else state.alarm
        empty = not evaluation.events > 0.0  # a version that is served no more, a segment that has gone
        if not (now - last >= rule.quiet if alarm else found == CLEAR or empty):
            return state, None
        ended = State(RESOLVED, resolved=now, episode=state.episode)
        return ended, Alert(RESOLVED, state.episode, since, now, evaluation)
    if found != PAST and not (alarm and state.phase == PENDING):
        calm = state._replace(phase=RESOLVED if state.episode else OK, since=None)
        return (calm if state.phase == PENDING else state), None
    lasted = alarm or now - since >= rule.lasting
    cool = state.resolved is None or now - state.resolved >= rule.cooldown
    if not (lasted and cool):
        return state._replace(phase=PENDING, since=since), None
    fired = State(FIRING, since, state.resolved, now if alarm else None, state.episode + 1)
    return fired, Alert(FIRING, fired.episode, since, now, evaluation)


def alert_document(rule: Rule, alert: Alert, model: str, version: str, segment: str) -> dict[str, Any]:
    """An alert as plain JSON data, for sinks: times in UTC, ``id`` the same when it resolves, None for a number that is none.

    ``(id, kind)`` tells two messages apart: a sink that has seen it need not say it again.

    >>> alert = Alert("firing", 1, 0.0, 600.0, Evaluation(0.09, 0.07, 0.11, 900))
    >>> rule = Rule("gap", metric="k1", window="day", above=0.05)
    >>> print(alert_document(rule, alert, "churn", "7", "all")["text"])
    FIRING (warning) gap: model churn, version 7, segment all: k1 is 0.09 (0.07 to 0.11), above 0.05, in 900 events
    """
    e = alert.evaluation
    where = {"model": model, "version": version, "segment": segment}
    numbers = {"value": e.value, "low": e.low, "high": e.high, "count": e.events, "threshold": rule.threshold}
    return {
        "type": "alert",
        "id": digest((rule.name, model, version, segment, alert.episode, alert.since)),
        "kind": alert.kind,
        "rule": rule.name,
        "severity": rule.severity,
        **where,
        "about": rule.metric or rule.alarm,
        "window": rule.window,
        "side": None if rule.metric is None else "above" if rule.sign > 0.0 else "below",
        **{name: float(x) if x is not None and math.isfinite(x) else None for name, x in numbers.items()},
        "episode": alert.episode,
        "since": utc(alert.since),
        "at": utc(alert.at),
        "runbook": rule.runbook,
        "text": _text(rule, alert, where),
    }


def _text(rule: Rule, alert: Alert, where: dict[str, str]) -> str:
    e = alert.evaluation
    place = ", ".join(f"{key} {value}" for key, value in where.items() if value)
    head = f"{alert.kind.upper()} ({rule.severity}) {rule.name}: {place}"
    if rule.metric is None:
        quiet = f"no other alarm of detector {rule.alarm} for {shown_span(rule.quiet)}"
        return f"{head}: {f'detector {rule.alarm} has alarmed' if alert.kind == FIRING else quiet}"
    interval = "" if math.isnan(e.low) or math.isnan(e.high) else f" ({e.low:.3g} to {e.high:.3g})"
    side = "above" if rule.sign > 0.0 else "below"
    held = f"{side} {rule.threshold:g}" if alert.kind == FIRING else f"no longer past {rule.cleared:g}"
    if not e.events > 0.0:
        return f"{head}: there are no events any more"
    left = f"; {e.left_out:,.0f} predictions of 0 or 1 that came true are left out" if e.left_out > 0.0 else ""
    return f"{head}: {rule.metric} is {e.value:.3g}{interval}, {held}, in {e.events:,.0f} events{left}"
