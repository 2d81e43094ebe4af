"""What a monitor does with events: the join, the banks, evaluations at their moments, and what survives a kill."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from streamcal.arrays import Array
from streamcal.monitor.aggregates import Bank, counted
from streamcal.monitor.columns import Columns
from streamcal.monitor.config.config import Config
from streamcal.monitor.config.settings import WHOLE, Rule
from streamcal.monitor.events import Event, Joined, Prediction, is_allowed
from streamcal.monitor.join.join import Join
from streamcal.monitor.journal import Journal
from streamcal.monitor.messages import RAW, Intake
from streamcal.monitor.rules.evaluation import Readings, States, evaluate, nothing_said
from streamcal.monitor.rules.rule import FIRING, RESOLVED, Alert, Evaluation, State, alert_document, state_from
from streamcal.monitor.rules.standing import Standing, counters, firing, standing
from streamcal.monitor.sinks.append_file import OutboxError
from streamcal.monitor.sinks.outbox import Outbox
from streamcal.monitor.store import MEMORY, Store, StoreError
from streamcal.times import utc

SELF, RULES, STATUS, OUTBOX = "monitor", "rules", "status", "outbox"
VERSION = 1
CLOCK = "streamcal.clock"  # the key of a moment in the record
DAMAGED = (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError)  # what reading nonsense leads to
LOSSES = {"log_loss": "log", "normalized_entropy": "log", "pinball_loss": "pinball"}
encode = msgspec.json.encode


class Engine:
    """The parts of a monitor, and one transaction for each batch. Events go in checked; not thread-safe."""

    def __init__(self, config: Config, store: Store | None = None) -> None:
        self.config, self.digest = config, config.hash
        kept = store is not None or self.config.state != MEMORY
        self.store = store or Store(self.config.state)
        self.rules = [(rule, model.name) for rule in self.config.rules for model in self.config.of(rule)]
        self.banks = {model.name: self._bank(model.name) for model in self.config.models}
        self.journal = Journal(self.store, self.banks, kept=kept)
        self.states: States = {}
        self.taken, self.boundary = 0, math.inf
        self._unrecorded = -math.inf  # to where the clock has moved, which the record does not say yet
        self.unread: dict[str, int] = {}
        self.seen: Standing = Standing()
        self._dropped: list[tuple[str, str, str, str, State]] = []
        self.notes: list[str] = []
        join = self.config.join
        ahead = math.inf if join.ahead is None else join.ahead
        self.join = Join(self.store, ttl=join.ttl, maturity=join.maturity, hold=join.hold, ahead=ahead)
        self._resume()
        for model in config.models:
            for version in model.versions:
                for name in (version, version + RAW) if model.raw else (version,):
                    self.join.declare(model.name, name)
        self.intake = Intake(self.config)
        for name, version in self.join.accounts():
            if name in self.intake.versions:
                self.intake.versions[name][version] = None
        self.outbox = Outbox(self.config.sinks, self.store.get(OUTBOX))
        self._withdraw()
        self._alerts: list[dict[str, Any]] = []
        self.trouble = ""  # what a file or stdout last said instead of taking its lines
        self._moved = False  # whether rules have been evaluated in this transaction

    def _bank(self, name: str) -> Bank:
        (model,) = (m for m in self.config.models if m.name == name)
        rules = [rule for rule, of in self.rules if of == name]
        losses = {r.window: LOSSES[r.metric] for r in rules if r.window and r.metric in LOSSES}
        detectors = [detector for detector in self.config.detectors if detector.watches(model)]
        return Bank(model, self.config.windows, detectors, self.config.segments, losses)

    # -- batches -------------------------------------------------------------------------------------------------------

    def commit(self, change: Callable[[], None], documents: Mapping[str, bytes] | None = None) -> list[dict[str, Any]]:
        """One transaction: a change, what follows from it, documents of the caller. Then the outbox delivers. The alerts."""
        with self.store.transaction():
            change()
            self._save(documents)
        self._deliver()
        alerts, self._alerts = self._alerts, []
        return alerts

    def _deliver(self) -> None:
        """Alerts and lines go out. A file that does not take its lines holds up nothing: they are kept, and tried again."""
        try:
            self.outbox.deliver(time.time())
            self.trouble = ""
        except OutboxError as error:
            self.trouble = str(error)

    def feed(self, events: list[Event]) -> None:
        """Events in order, cut where an evaluation is due. Inside :meth:`commit`, as all that follows."""
        times = np.array([event[3] for event in events], np.float64)
        first = 0
        while first < len(events):
            stop = self._until(times, first, lambda i: is_allowed(events[i]))
            if stop > first:
                self._count(self.join.feed(self._tagged(events[first:stop])))
                self.taken += stop - first
            if stop < len(events):
                self._pass(float(times[stop]))
            first = stop

    def feed_columns(self, columns: Columns) -> None:
        """The same for columns."""
        first = 0
        while first < len(columns):
            stop = self._until(columns.t, first, lambda i: True)
            if stop > first:
                self._count(columns.part(first, stop).tagged(self.journal.tag).feed(self.join))
                self.taken += stop - first
            if stop < len(columns):
                self._pass(float(columns.t[stop]))
            first = stop

    def _tagged(self, events: list[Event]) -> list[Event]:
        """With the tags of segments in place of their names: who has a place may change at each evaluation, not before."""
        if self.config.segments is None:
            return events
        tag = self.journal.tag
        return [
            Prediction(*e[:6], tag(e.model, e.segment)) if isinstance(e, Prediction) and is_allowed(e) else e
            for e in events
        ]

    def move(self, at: float, now: bool = False) -> None:
        """Move the clock without an event; ``now``: evaluate even if it is not due."""
        self._unrecorded = max(self._unrecorded, at)
        evaluated = self._pass(at) if at >= self._bound(at) else -math.inf
        self._count(self.join.advance(at))
        if now and evaluated < at:
            self._evaluate(at)

    def append(self, path: str | None, things: Sequence[dict[str, Any]]) -> None:
        """Lines for a file, if there is one."""
        if path is not None and things:
            self.outbox.append(path, [encode(thing) for thing in things])

    def record(self, things: Sequence[bytes]) -> None:
        """Objects that are taken, as JSON, for a replay; before them where the clock has moved to without an event."""
        if self.config.record is None or not things:
            return
        moved = [encode({CLOCK: self._unrecorded})] if self._unrecorded > -math.inf else []
        self._unrecorded = -math.inf
        self.outbox.append(self.config.record, [*moved, *things])

    # -- time ----------------------------------------------------------------------------------------------------------

    def _bound(self, t: float) -> float:
        """The moment of the next evaluation; the first event that is allowed, or the first clock, sets it."""
        if self.boundary == math.inf:
            self.boundary = (self._steps(t) + 1.0) * self.config.every
        return self.boundary

    def _steps(self, t: float) -> float:
        """How many times ``every`` it is, as whole multiples are rounded: the largest whose moment is not after t."""
        nearest = float(round(t / self.config.every))
        return nearest if nearest * self.config.every <= t else nearest - 1.0

    def _pass(self, t: float) -> float:
        """An event or a clock at or beyond the boundary: first evaluate what came before it. The moment of that.

        It is no earlier than the boundary, which may be of another ``every`` that was before a restart.
        """
        at = max(self._steps(t) * self.config.every, self.boundary)
        self._count(self.join.advance(at))
        self._evaluate(at)
        self.boundary = (self._steps(at) + 1.0) * self.config.every
        return at

    def _until(self, times: Array, first: int, allowed: Callable[[int], bool]) -> int:
        """The first event from ``first`` on that is at or beyond the boundary, and that the join will believe."""
        if self.boundary == math.inf:
            sound = next((i for i in range(first, len(times)) if allowed(i)), None)
            if sound is None:
                return len(times)
            self._bound(float(times[sound]))
        beyond = np.flatnonzero(times[first:] >= self.boundary)
        clock, ahead = self.join.clock, self.join.ahead
        if beyond.size and ahead < math.inf:  # what comes before moves the clock, too
            beyond = np.arange(len(times) - first)
        for i in (beyond + first).tolist():
            if allowed(i) and (times[i] <= clock + ahead or clock == -math.inf):
                if times[i] >= self.boundary:
                    return int(i)
                clock = max(clock, times[i])
        return len(times)

    # -- counting ------------------------------------------------------------------------------------------------------

    def _count(self, joined: list[Joined]) -> None:
        for some in joined:
            if some.model in self.banks:
                self.journal.take(some.model, counted(some))

    def _evaluate(self, at: float) -> None:
        readings = {name: Readings(bank, at) for name, bank in self.banks.items()}
        found = evaluate(self.rules, readings, self.states, audited=self.config.audit is not None)
        for document, sinks in found.alerts:
            self.outbox.alert(document, sinks)
        self._alerts += [document for document, _ in found.alerts]
        if self.config.audit is not None:
            head = {"config": self.digest, "taken": self.taken, "time": at}
            self.append(self.config.audit, [{**line, **head} for line in found.lines or [nothing_said(at)]])
        self.seen = standing(readings, at)
        for name in self.banks:
            self._forget(name, self.journal.turn(name, self._firing(name)))
        self._moved = True

    def _forget(self, model: str, segments: Sequence[str]) -> None:
        """Segments that have lost their place have no state any more: if they come again, they begin anew."""
        for key, of in self.states.items():
            for segment in segments if key[1] == model else ():
                of.pop(segment, None)

    def _firing(self, model: str) -> list[str]:
        """Segments of a model about which something fires."""
        found = {
            s for key, of in self.states.items() if key[1] == model for s, state in of.items() if state.phase == FIRING
        }
        return sorted(found)

    # -- what survives -------------------------------------------------------------------------------------------------

    def _save(self, documents: Mapping[str, bytes] | None = None) -> None:
        """Inside the transaction: everything that is not in the join."""
        put = self.store.put
        self.journal.write()
        if self._moved:
            kept = [[*key, s, *state] for key, of in self.states.items() for s, state in of.items() if state != State()]
            put(RULES, encode(kept))
            put(STATUS, encode(self.status()))
        boundary = None if self.boundary == math.inf else self.boundary
        own = {"version": VERSION, "config": self.digest, "taken": self.taken, "boundary": boundary}
        unrecorded = None if self._unrecorded == -math.inf else self._unrecorded
        put(SELF, encode({**own, "unread": self.unread, "unrecorded": unrecorded}))
        for name, data in (documents or {}).items():
            put(name, data)
        if self.outbox.changed:
            put(OUTBOX, self.outbox.to_bytes())
        self._moved = False

    def _resume(self) -> None:
        """Go on where the documents say. StoreError if they cannot be read."""
        try:
            out = {model for (model, _), (predictions, _) in self.join.accounts().items() if predictions.joined}
            self.notes += self.journal.read(self.join.clock, out)
            self._read()
        except DAMAGED as error:
            self.store.close()
            raise StoreError(f"{self.config.state}: damaged: {error!r:.200}; take it back from a copy") from error

    def _read(self) -> None:
        data, rules = self.store.get(SELF), self.store.get(RULES)
        if data is None:
            return
        own = msgspec.json.decode(data)
        if own["version"] != VERSION:
            raise ValueError(f"the monitor's document must have version {VERSION}, got {own['version']!r}")
        if own["config"] != self.digest:
            self.notes.append(f"the configuration has changed: {own['config']} before, {self.digest} now")
        self.taken, self.unread = own["taken"], own["unread"]
        self.boundary = math.inf if own["boundary"] is None else own["boundary"]
        self._unrecorded = -math.inf if own["unrecorded"] is None else own["unrecorded"]
        said = msgspec.json.decode(self.store.get(STATUS) or b"{}")
        self.seen = Standing(said.get("evaluated"), said.get("windows", []))
        known = {(rule.name, model) for rule, model in self.rules}
        for rule, model, version, segment, *state in msgspec.json.decode(rules or b"[]"):
            if (rule, model) in known and segment in (*self.banks[model].places.names, WHOLE):
                self.states.setdefault((rule, model, version), {})[segment] = state_from(state)
            elif state[0] == FIRING:
                self._dropped.append((rule, model, version, segment, state_from(state)))
                self.notes.append(f"rule {rule} was firing for {model} {version} {segment}, which is no longer watched")

    def _withdraw(self) -> None:
        """Resolve what has been said to be firing, and is not watched any more."""
        sinks = tuple(sink.name for sink in self.config.sinks if sink.format != "alertmanager")
        rules = {rule.name: rule for rule, _ in self.rules}
        for name, model, version, segment, state in self._dropped if sinks else ():
            alert = Alert(RESOLVED, state.episode, state.since or 0.0, self.join.clock, Evaluation(math.nan))
            said = alert_document(rules.get(name, Rule(name, alarm=name)), alert, model, version, segment)
            where = ", ".join(filter(None, (model, version, segment)))
            text = f"{said['text'].partition(':')[0]}: model {where}: it is no longer watched"
            self.outbox.alert({**said, "text": text}, sinks)
        for sink, documents in self.outbox.standing.items():
            for said in documents:
                known = self.states.get((said["rule"], said["model"], said["version"]), {}).get(said["segment"])
                if known is None or known.phase != FIRING:
                    text = said["text"].replace("FIRING", "RESOLVED", 1) + " (no longer watched)"
                    self.outbox.alert({**said, "kind": "resolved", "text": text}, (sink,))

    def close(self, wait: float) -> None:
        """Write everything whole, give webhooks ``wait`` seconds, and let go of the file."""
        try:
            with self.store.transaction():
                self.journal.checkpoint()
                self._moved = True
                self._save()
            self._deliver()
            self.outbox.close(wait)
            with self.store.transaction():
                self._save()
            self._deliver()
        finally:
            self.store.close()

    # -- reading -------------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """How it stands, as plain data: see :meth:`Monitor.status`."""
        clock = self.join.clock
        accounts = [
            {"model": model, "version": version, "predictions": counters(p), "labels": counters(y)}
            for (model, version), (p, y) in self.join.accounts().items()
        ]
        segments = {
            name: {"own": max(len(b.places) - 2, 0), "cap": b.places.cap, "overflow": b.places.overflow}
            for name, b in self.banks.items()
        }
        return {
            "type": "status",
            "config": self.digest,
            "clock": None if clock == -math.inf else utc(clock),
            "taken": self.taken,
            "unread": self.unread,
            "models": accounts,
            "segments": segments,
            "evaluated": self.seen.at,
            "windows": self.seen.windows,
            "firing": firing(self.states),
            "undelivered": self.outbox.undelivered,
            "dead_letters": self.outbox.dead,
            "trouble": [text for text in (self.trouble, *self.outbox.troubles.values()) if text],
        }
