"""One look at everything: each rule about each model, version and segment, from the sums as they are.

Metrics, intervals and verdicts are computed for all slots of a bank at once; the state machine of :mod:`.rules` moves only
where something is past a threshold, pending or firing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streamcal.arrays import Array, Ints
from streamcal.intervals import INTERVALS
from streamcal.monitor.aggregates import Bank
from streamcal.monitor.config.settings import EACH, WHOLE, Rule
from streamcal.monitor.detectors import Alarm
from streamcal.monitor.rules.rule import (
    FIRING,
    OK,
    PAST,
    PENDING,
    UNKNOWN,
    VERDICTS,
    Alert,
    Evaluation,
    State,
    alert_document,
    step,
    verdicts,
)
from streamcal.monitor.segments import ALL, OTHER
from streamcal.snapshot import Snapshot
from streamcal.times import utc

Key = tuple[str, str, str]  # rule, model, version
States = dict[Key, dict[str, State]]  # by segment; those that say nothing are left out
REASONS = np.array(["few events", "no value", "no interval"], dtype=object)
WORDS = np.array(VERDICTS, dtype=object)


class Numbers(NamedTuple):
    """What a rule is held against, one number for each slot."""

    value: Array
    low: Array
    high: Array
    events: Array


class Readings:
    """The sums of a bank at one moment, and what rules ask of them; each is computed once."""

    def __init__(self, bank: Bank, now: float) -> None:
        self.bank, self.now = bank, now
        self._snapshots: dict[str, Snapshot] = {}
        self._numbers: dict[tuple[str, str, float, float], Numbers] = {}

    def snapshot(self, window: str) -> Snapshot:
        """The sums of a window; its keys are the slots, times the levels or classes of the claim."""
        if window not in self._snapshots:
            self._snapshots[window] = self.bank.snapshot(window, self.now)
        return self._snapshots[window]

    def numbers(self, rule: Rule) -> Numbers:
        """Value, interval and number of events of the metric of a rule.

        Where a claim has several levels or classes, those of the worst of them: of that whose interval is farthest past the
        threshold, else of the worst value. The interval of each is at a level so much higher that all hold at once.
        """
        assert rule.window is not None and rule.metric is not None
        key = (rule.window, rule.metric, rule.level, rule.sign)
        if key not in self._numbers:
            self._numbers[key] = self._worst(rule, self.snapshot(rule.window), rule.metric)
        return self._numbers[key]

    def _worst(self, rule: Rule, s: Snapshot, metric: str) -> Numbers:
        width = self.bank.claim.width
        value = np.asarray(s.values(metric), np.float64).reshape(-1, width)
        low, high = np.full_like(value, np.nan), np.full_like(value, np.nan)
        if rule.level > 0.0:
            low, high = (x.reshape(-1, width) for x in INTERVALS[metric](s, 1.0 - (1.0 - rule.level) / width))
        events = s.count.sum(-1).reshape(-1, width)
        if width == 1:
            return Numbers(value[:, 0], low[:, 0], high[:, 0], events[:, 0])
        bound = value if rule.level == 0.0 else low if rule.sign > 0.0 else high
        known = np.where(np.isnan(bound).all(-1, keepdims=True), value, bound)
        worst = np.argmax(np.where(np.isnan(known), -np.inf, rule.sign * known), axis=1)
        row = np.arange(worst.size)
        return Numbers(*(x[row, worst] for x in (value, low, high, events)))


@dataclass
class Outcome:
    """What an evaluation found: alerts as documents with the sinks they are for, and lines for the audit."""

    alerts: list[tuple[dict[str, Any], tuple[str, ...]]]
    lines: list[dict[str, Any]]


def evaluate(
    rules: Sequence[tuple[Rule, str]], readings: Mapping[str, Readings], states: States, *, audited: bool = True
) -> Outcome:
    """Hold each (rule, model) against what is read of its bank, by name; ``states`` moves on.

    Alarms count that came since the last turn of the bank.
    """
    found = Outcome([], [])
    for rule, model in rules:
        kind: type[Look] = AboutMetric if rule.metric is not None else AboutAlarm
        watched = readings[model].bank.versions
        for version in sorted(watched if not rule.versions else set(watched) & set(rule.versions)):
            look = kind(rule, readings[model], version, states.setdefault((rule.name, model, version), {}))
            found.alerts += look.move()
            if audited and look.names:
                found.lines.append(look.line())
    return found


def nothing_said(at: float) -> dict[str, Any]:
    """The line of an evaluation at which no rule had anything to look at."""
    return {"type": "evaluation", "at": utc(at), "rule": "", "model": "", "version": ""}


class Look:
    """One rule about one version of a model at one moment. ``places`` are what it is about; ``names`` their segments."""

    def __init__(self, rule: Rule, readings: Readings, version: str, states: dict[str, State]) -> None:
        self.rule, self.readings, self.version, self.states = rule, readings, version, states
        self.bank, self.now = readings.bank, readings.now
        self.places = self._chosen()
        self.names = [self.bank.places.names[place] for place in self.places.tolist()]
        self.index = {name: i for i, name in enumerate(self.names)}

    def _chosen(self) -> Ints:
        """The places of the segments that the rule is about, if they have had events."""
        rule, bank = self.rule, self.bank
        table = bank.table(self.version)
        if rule.segments == WHOLE:
            places = np.array([ALL])
        elif rule.segments == EACH:
            places = np.arange(OTHER, len(bank.places))
        else:
            index = {name: place for place, name in enumerate(bank.places.names)}
            places = np.array([index[name] for name in rule.segments if name in index], dtype=np.int64)
        return np.asarray(places[table[places] >= 0])

    def move(self) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
        """Step where something is past, pending or firing: the alerts, with the sinks they are for."""
        busy = [name for name, state in self.states.items() if state.phase in (PENDING, FIRING) and name in self.index]
        alerts = []
        for name in sorted({*busy, *self.live()}, key=self.index.__getitem__):
            state, alert = step(self.rule, self.states.get(name, State()), self.seen(name), self.now)
            self.states[name] = state
            if alert is not None:
                alerts.append((self.document(alert, name), self.rule.sinks))
        return alerts

    def live(self) -> list[str]:
        """The segments where the rule is past its threshold."""
        raise AssertionError("each kind of rule looks in its own way")  # pragma: no cover

    def seen(self, name: str) -> Evaluation:
        """What is known of a segment."""
        raise AssertionError("each kind of rule looks in its own way")  # pragma: no cover

    def columns(self) -> dict[str, Any]:
        """What the audit says besides where and when."""
        raise AssertionError("each kind of rule looks in its own way")  # pragma: no cover

    def document(self, alert: Alert, name: str) -> dict[str, Any]:
        """An alert about a segment as plain data."""
        return alert_document(self.rule, alert, self.bank.model.name, self.version, name)

    def line(self) -> dict[str, Any]:
        """A line of the audit: every segment that has had events, one list per column."""
        window, rule = None, self.rule
        if rule.window is not None:
            start, end = self.bank.bounds(rule.window, self.now)
            window = {"name": rule.window, "from": start and utc(start), "to": end and utc(end)}
        where = {"rule": rule.name, "model": self.bank.model.name, "version": self.version, "window": window}
        states = {name: [state.phase, state.episode] for name, state in self.states.items() if state.phase != OK}
        return {"type": "evaluation", "at": utc(self.now), **where, **self.columns(), "states": states}


class AboutMetric(Look):
    """A rule about a metric in a window."""

    def __init__(self, rule: Rule, readings: Readings, version: str, states: dict[str, State]) -> None:
        super().__init__(rule, readings, version, states)
        slots = self.bank.table(version)[self.places]
        self.numbers = Numbers(*(column[slots] for column in readings.numbers(rule)))
        self.codes = verdicts(rule, *self.numbers)

    def live(self) -> list[str]:
        """See :meth:`Look.live`."""
        return [self.names[i] for i in np.flatnonzero(self.codes == PAST).tolist()]

    def seen(self, name: str) -> Evaluation:
        """See :meth:`Look.seen`."""
        value, low, high, events = (float(column[self.index[name]]) for column in self.numbers)
        return Evaluation(value, low, high, events)

    def columns(self) -> dict[str, Any]:
        """See :meth:`Look.columns`."""
        n, why = self.numbers, np.where(np.isnan(self.numbers.value), 1, 2)
        reasons = REASONS[np.where(n.events >= self.rule.min_count, why, 0)]
        said = np.where(self.codes == UNKNOWN, reasons, WORDS[self.codes])
        columns = zip(("value", "low", "high", "count"), n, strict=True)
        numbers = {name: column.tolist() for name, column in columns}
        return {"metric": self.rule.metric, "segments": self.names, **numbers, "decision": said.tolist()}


class AboutAlarm(Look):
    """A rule about the alarms of a detector. An alarm of all segments together is told to a rule about each of them, as "all".

    A rule about some segments hears of an alarm under each name that has a share of its evidence, for what an alarm was made
    of begins anew, and of one of all together as "all".
    """

    def __init__(self, rule: Rule, readings: Readings, version: str, states: dict[str, State]) -> None:
        super().__init__(rule, readings, version, states)
        self.wager = self.bank.wagers.get((rule.alarm or "", version))
        self.alarms: dict[str, list[Alarm]] = {}
        for alarm in self.bank.alarms:
            if alarm.detector == rule.alarm and alarm.version == version:
                for name in self._names_of(alarm):
                    if name in self.index:
                        self.alarms.setdefault(name, []).append(alarm)

    def _names_of(self, alarm: Alarm) -> list[str]:
        """The segments under which it is told."""
        if alarm.segment < 0 or self.rule.segments == WHOLE:
            return [WHOLE]
        told = (alarm.segment,) if self.rule.segments == EACH else (alarm.segment, *alarm.also)
        return [self.bank.places.names[segment + OTHER] for segment in told]

    def _chosen(self) -> Ints:
        places = super()._chosen()
        return places if ALL in places else np.insert(places, 0, ALL)

    def live(self) -> list[str]:
        """See :meth:`Look.live`."""
        return list(self.alarms)

    def seen(self, name: str) -> Evaluation:
        """See :meth:`Look.seen`."""
        alarms = self.alarms.get(name, [])
        evidence = alarms[-1].report["evidence"] if alarms else self._evidence()
        return Evaluation(float(evidence), events=self._events(), alarms=len(alarms))

    def _evidence(self) -> float:
        return 0.0 if self.wager is None else float(self.wager.detector.evidence)

    def _events(self) -> int:
        return 0 if self.wager is None else int(self.wager.detector.n)

    def document(self, alert: Alert, name: str) -> dict[str, Any]:
        """With what the detector found."""
        document = super().document(alert, name)
        if name not in self.alarms or alert.kind != FIRING:
            return document
        first = self.alarms[name][0]  # of several since the last look: its onset is when it began
        names = self.bank.places.names
        also = [names[segment + OTHER] for segment in first.also]
        return {**document, "text": f"{document['text']}: {first.report['text']}", "report": first.report, "also": also}

    def columns(self) -> dict[str, Any]:
        """See :meth:`Look.columns`."""
        alarms = {name: len(found) for name, found in self.alarms.items()}
        return {"alarm": self.rule.alarm, "count": self._events(), "evidence": self._evidence(), "alarms": alarms}
