"""All rules of a monitor at one moment: each is held against every version and segment, from the sums as they are.

Metrics, intervals and verdicts are computed for all slots of a model at once; the state machine of :mod:`.rule` moves only
where something is past a threshold, pending or firing. The window summary is what a person looks at first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from streamcal.arrays import Ints
from streamcal.intervals import INTERVALS
from streamcal.monitor.aggregates import ALL, OTHER, Aggregates
from streamcal.monitor.config.settings import EACH, WHOLE, Rule
from streamcal.monitor.detectors import Alarm
from streamcal.monitor.events import Events
from streamcal.monitor.join.pending import Counters
from streamcal.monitor.rules.rule import (
    FIRING,
    OK,
    PAST,
    PENDING,
    RESOLVED,
    Alert,
    Evaluation,
    State,
    alert_document,
    decisions,
    step,
    verdict,
)
from streamcal.snapshot import Snapshot
from streamcal.summary import FITTED
from streamcal.times import utc

Key = tuple[str, str, str]  # rule, model, version
States = dict[Key, dict[str, State]]  # by segment; those that say nothing are left out
ABOUT = ("rule", "model", "version", "segment")  # what an alert is about
SHOWN = ("ece", "k2_debiased", "brier", "pa_ratio")  # in the window summary, of probabilities
SHOWN_REAL = ("q1", "qinf")  # and of forecasts that are any numbers


class ModelSums:
    """The sums of a model at one moment, and what rules ask of them; each is computed once."""

    def __init__(self, aggregates: Aggregates, now: float) -> None:
        self.aggregates, self.now = aggregates, now
        self._snapshots: dict[str, Snapshot] = {}
        self._evaluations: dict[tuple[str, str, float, float], Evaluation] = {}

    def evaluation(self, rule: Rule) -> Evaluation:
        """Value, interval and number of events of the metric of a rule, one of each for each slot.

        Where a claim has several levels or classes, those of the worst of them: of that whose interval is farthest past the
        threshold, else of the worst value. The interval of each is at a level so much higher that all hold at once.
        """
        assert rule.window is not None and rule.metric is not None
        key = (rule.window, rule.metric, rule.level, rule.sign)
        if key not in self._evaluations:
            if rule.window not in self._snapshots:
                self._snapshots[rule.window] = self.aggregates.snapshot(rule.window, self.now)
            self._evaluations[key] = self._worst(rule, self._snapshots[rule.window], rule.metric)
        return self._evaluations[key]

    def _worst(self, rule: Rule, s: Snapshot, metric: str) -> Evaluation:
        width = self.aggregates.claim.width
        value = np.asarray(s.values(metric), np.float64).reshape(-1, width)
        low, high = np.full_like(value, np.nan), np.full_like(value, np.nan)
        if rule.level > 0.0:
            low, high = (x.reshape(-1, width) for x in INTERVALS[metric](s, 1.0 - (1.0 - rule.level) / width))
        seen = s.count.sum(-1).reshape(-1, width)
        events = s.uncertain.count.sum(-1).reshape(-1, width) if metric in FITTED else seen
        bound = value if rule.level == 0.0 else low if rule.sign > 0.0 else high
        known = np.where(np.isnan(bound).all(-1, keepdims=True), value, bound)
        worst = np.argmax(np.where(np.isnan(known), -np.inf, rule.sign * known), axis=1)
        slot = np.arange(worst.size)
        return Evaluation(*(x[slot, worst] for x in (value, low, high, events, np.zeros_like(events), seen - events)))


# -- when --------------------------------------------------------------------------------------------------------------


class Schedule:
    """When the rules are evaluated: whenever the time of the events passes a multiple of ``every``, with what came before."""

    def __init__(self, every: float) -> None:
        self.every, self.boundary = every, math.inf  # the moment of the next evaluation, inf before the first event

    def bound(self, t: float) -> float:
        """The moment of the next evaluation; the first event that is allowed, or the first clock, sets it."""
        if self.boundary == math.inf:
            self.boundary = (self._steps(t) + 1.0) * self.every
        return self.boundary

    def _steps(self, t: float) -> float:
        """How many times ``every`` it is, as whole multiples are rounded: the largest whose moment is not after t."""
        nearest = float(round(t / self.every))
        return nearest - (nearest * self.every > t)

    def passed(self, t: float) -> float:
        """The moment to evaluate at, for an event or a clock at or beyond the boundary, which moves on.

        It is no earlier than the boundary, which may be of another ``every`` that was before a restart.
        """
        at = max(self._steps(t) * self.every, self.boundary)
        self.boundary = (self._steps(at) + 1.0) * self.every
        return at

    def until(self, events: Events, first: int) -> int:
        """The first event from ``first`` on that is at or beyond the boundary, and that is allowed."""
        if self.boundary < math.inf and not (events.t[first:] >= self.boundary).any():
            return len(events)
        allowed = first + np.flatnonzero(events.wrong[first:] == 0)
        if not allowed.size:
            return len(events)
        times, bound = events.t[allowed], self.bound(float(events.t[allowed[0]]))
        beyond = times >= bound
        if not beyond.any():
            return len(events)
        return int(allowed[beyond.argmax()])


# -- rules -------------------------------------------------------------------------------------------------------------


Told = list[tuple[dict[str, Any], tuple[str, ...]]]  # alerts as documents, each with the sinks it is for


def evaluate(
    rules: Sequence[tuple[Rule, str]], sums: Mapping[str, ModelSums], states: States, *, audited: bool = True
) -> tuple[Told, list[dict[str, Any]]]:
    """Hold each (rule, model) against the sums of the model, by name: alerts, lines for the audit; ``states`` moves on.

    Alarms count that came since the last evaluation. An audit has a line also where no rule had anything to look at.
    """
    told: Told = []
    lines: list[dict[str, Any]] = []
    for rule, model in rules:
        watched = sums[model].aggregates.versions
        for version in sorted(watched if not rule.versions else set(watched) & set(rule.versions)):
            held = VersionRule(rule, sums[model], version, states.setdefault((rule.name, model, version), {}))
            told += held.move()
            if audited and held.names:
                lines.append(held.line())
    if audited and not lines:
        at = next(iter(sums.values())).now
        lines.append({"type": "evaluation", "at": utc(at), "rule": "", "model": "", "version": ""})
    return told, lines


class VersionRule:
    """One rule about one version of a model at one moment: the ``names`` of the segments it is about, ``numbers`` of each.

    An alarm of all segments together is told to a rule about each of them, as "all". A rule about some segments hears of an
    alarm under each name that has a share of its evidence, for what an alarm was made of begins anew.
    """

    def __init__(self, rule: Rule, sums: ModelSums, version: str, states: dict[str, State]) -> None:
        self.rule, self.version, self.states = rule, version, states
        self.aggregates, self.now = sums.aggregates, sums.now
        slots, places = self.aggregates.table(version), self._places()
        places = places[slots[places] >= 0]  # those that have had events
        if rule.metric is None and ALL not in places:
            places = np.insert(places, 0, ALL)
        self.names = [self.aggregates.names[place] for place in places.tolist()]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.alarms: dict[str, list[Alarm]] = {}  # by segment
        self.evidence = 0.0  # of the detector, now
        if rule.metric is None:
            self.numbers = self._of_detector()
        else:
            of, at = sums.evaluation(rule), slots[places]
            self.numbers = Evaluation(*(column[at] for column in of))
        self.codes = verdict(rule, self.numbers)

    def _places(self) -> Ints:
        """The places of the segments that the rule is about."""
        if isinstance(self.rule.segments, str):
            return np.array([ALL]) if self.rule.segments == WHOLE else np.arange(OTHER, len(self.aggregates.names))
        index = {name: place for place, name in enumerate(self.aggregates.names)}
        return np.array([index[name] for name in self.rule.segments if name in index], dtype=np.int64)

    def _of_detector(self) -> Evaluation:
        """The evidence of a detector, of segments with an alarm that of the last; and its alarms since the last evaluation."""
        for alarm in self.aggregates.alarms:
            if (alarm.detector, alarm.version) == (self.rule.alarm, self.version):
                told = (alarm.segment,) if self.rule.segments == EACH else (alarm.segment, *alarm.also)
                whole = alarm.segment < 0 or self.rule.segments == WHOLE
                for name in [WHOLE] if whole else [self.aggregates.names[segment + OTHER] for segment in told]:
                    if name in self.index:
                        self.alarms.setdefault(name, []).append(alarm)
        detector = self.aggregates.detectors.get((self.rule.alarm or "", self.version))
        self.evidence, events = (detector.evidence, detector.events) if detector else (0.0, 0)
        each = [self.alarms.get(name, []) for name in self.names]
        values = [float(alarms[-1].report["evidence"]) if alarms else self.evidence for alarms in each]
        return Evaluation(np.array(values), events=events, alarms=np.array([len(alarms) for alarms in each]))

    def move(self) -> Told:
        """Step where something is past, pending or firing: the alerts, with the sinks they are for."""
        due = {name for name, state in self.states.items() if state.phase in (PENDING, FIRING) and name in self.index}
        due |= {self.names[i] for i in np.flatnonzero(self.codes == PAST).tolist()}
        alerts = []
        columns = [np.broadcast_to(column, len(self.names)).tolist() for column in self.numbers] if due else []
        for name in sorted(due, key=self.index.__getitem__):
            seen = Evaluation(*(column[self.index[name]] for column in columns))
            state, alert = step(self.rule, self.states.get(name, State()), seen, self.now)
            self.states[name] = state
            if alert is not None:
                alerts.append((self._document(alert, name), self.rule.sinks))
        return alerts

    def _document(self, alert: Alert, name: str) -> dict[str, Any]:
        """An alert about a segment as plain data, with what a detector found."""
        document = alert_document(self.rule, alert, self.aggregates.model.name, self.version, name)
        if name not in self.alarms or alert.kind != FIRING:
            return document
        first = self.alarms[name][0]  # of several since the last evaluation: its onset is when it began
        also = [self.aggregates.names[segment + OTHER] for segment in first.also]
        return {**document, "text": f"{document['text']}: {first.report['text']}", "report": first.report, "also": also}

    def line(self) -> dict[str, Any]:
        """A line of the audit: every segment that has had events, one list per column."""
        rule, numbers, window = self.rule, self.numbers, None
        columns: dict[str, Any]
        if rule.metric is None:
            alarms = {name: len(found) for name, found in self.alarms.items()}
            columns = {"alarm": rule.alarm, "count": numbers.events, "evidence": self.evidence, "alarms": alarms}
        else:
            shown = {"value": numbers.value, "low": numbers.low, "high": numbers.high, "count": numbers.events}
            columns = {"metric": rule.metric, "segments": self.names, **{key: x.tolist() for key, x in shown.items()}}
            columns["decision"] = decisions(rule, numbers, self.codes)
        if rule.window is not None:
            start, end = self.aggregates.bounds(rule.window, self.now)
            window = {"name": rule.window, "from": start and utc(start), "to": end and utc(end)}
        where = {"rule": rule.name, "model": self.aggregates.model.name, "version": self.version, "window": window}
        states = {name: [state.phase, state.episode] for name, state in self.states.items() if state.phase != OK}
        return {"type": "evaluation", "at": utc(self.now), **where, **columns, "states": states}


# what was firing and is not watched any more: rule, model, version, segment
Gone = Sequence[tuple[str, str, str, str, State]]


def unwatched(gone: Gone, rules: Sequence[Rule], at: float) -> list[dict[str, Any]]:
    """What was firing when the monitor ended, and is not watched any more, resolves: alerts as documents."""
    known, found = {rule.name: rule for rule in rules}, []
    for name, *about, state in gone:
        alert = Alert(RESOLVED, state.episode, state.since or 0.0, at, Evaluation(math.nan))
        document = alert_document(known.get(name, Rule(name, alarm=name)), alert, *about)
        text = f"{document['text'].partition(':')[0]}: model {', '.join(filter(None, about))}: it is no longer watched"
        found.append({**document, "text": text})
    return found


def outdated(alerts: Sequence[dict[str, Any]], fire: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of alerts that were told to be firing, as documents, those about which nothing fires (``fire``) resolve."""
    fires = {tuple(found[key] for key in ABOUT) for found in fire}
    return [
        {**alert, "kind": RESOLVED, "text": f"{alert['text'].replace('FIRING', 'RESOLVED', 1)} (no longer watched)"}
        for alert in alerts
        if tuple(alert[key] for key in ABOUT) not in fires
    ]


# -- what a person looks at first --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WindowSummary:
    """When it was, and for each model, version and window: count, mean claim and outcome, metrics (None: undefined)."""

    at: str | None = None
    windows: list[dict[str, Any]] = field(default_factory=list)


def summary(sums: Mapping[str, ModelSums], at: float) -> WindowSummary:
    """The windows of all models, each version as a whole."""
    windows = []
    for model, of in sums.items():
        for version in of.aggregates.versions:
            where = {"model": model, "version": version}
            windows += [{**where, **_window(of, window, version)} for window in of.aggregates.windows]
    return WindowSummary(utc(at), windows)


def _window(sums: ModelSums, window: str, version: str) -> dict[str, Any]:
    s = sums.aggregates.snapshot_of(window, version, ALL, sums.now)
    names = SHOWN_REAL if sums.aggregates.claim.domain == "real" else SHOWN
    claim, outcome = (float(np.nansum(mean * s.share)) / s.keys for mean in (s.mean_p, s.mean_y))
    worst = {name: max(s.values(name).tolist(), key=lambda x: -math.inf if math.isnan(x) else x) for name in names}
    numbers = {"mean_claim": claim, "mean_outcome": outcome, **worst}
    shown = {n: x if math.isfinite(x) else None for n, x in numbers.items()}
    return {"window": window, "count": float(s.count.sum()) / s.keys, **shown}


def counters(counted: Mapping[tuple[str, str], tuple[Counters, Counters]]) -> list[dict[str, Any]]:
    """The counters of each model and version as plain data, with how many were rejected."""
    sides = ("predictions", "labels")
    return [
        {"model": model, "version": version}
        | {side: {**asdict(of), "rejected": of.rejected} for side, of in zip(sides, both, strict=True)}
        for (model, version), both in counted.items()
    ]


def firing(states: States) -> list[dict[str, Any]]:
    """Every rule that is firing: about what, and since when."""
    return [
        {**dict(zip(ABOUT, (*key, segment), strict=True)), "since": utc(state.since or 0.0)}
        for key, of in states.items()
        for segment, state in of.items()
        if state.phase == FIRING
    ]
