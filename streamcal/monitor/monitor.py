"""The monitor: predictions and labels in, sums per segment, rules, alerts; one transaction per batch, so that it can be killed.

>>> monitor = Monitor({"state": ":memory:", "models": {"churn": {}}, "segments": {"fields": ["country"]}})
>>> monitor.predict("a1", 0.8, t=0.0, segment={"country": "at"})
>>> monitor.label("a1", 1, t=30.0)
>>> monitor.flush()
[]
>>> monitor.status()["models"][0]["predictions"]["joined"]
1
>>> float(monitor.snapshot("week", segment="country=at").count.sum())
1.0
>>> monitor.close()
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import msgspec
import numpy.typing as npt

from streamcal.monitor.aggregates import Aggregates
from streamcal.monitor.config.config import Config, from_document, load
from streamcal.monitor.config.settings import WHOLE
from streamcal.monitor.events import Checked, Events
from streamcal.monitor.held import HeldEvents
from streamcal.monitor.join.join import Join
from streamcal.monitor.journal import Journal
from streamcal.monitor.messages import RAW, Decoder, Unread, one_of, plain, records, told, whose
from streamcal.monitor.rules.evaluation import (
    Gone,
    ModelSums,
    Schedule,
    States,
    WindowSummary,
    counters,
    evaluate,
    firing,
    outdated,
    summary,
    unwatched,
)
from streamcal.monitor.rules.flow import Flow, flow_status
from streamcal.monitor.rules.rule import FIRING, State, state_from
from streamcal.monitor.sinks.outbox import Outbox, OutboxError
from streamcal.monitor.sources.registry import SourceTable
from streamcal.monitor.store import MEMORY, Store, StoreError
from streamcal.snapshot import Snapshot
from streamcal.times import utc

SELF, RULES, STATUS, OUTBOX = "monitor", "rules", "status", "outbox"  # documents in the store
VERSION = 2  # of the document "monitor"
BATCH = 1_000  # events of predict() and label() that wait for a transaction
LONGEST_LETTER = 1 << 20  # bytes of a message that are kept with the dead letters
CLOCK = "streamcal.clock"  # the key of a moment in the record
DAMAGED = (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError)  # what reading nonsense leads to
encode = msgspec.json.encode


class MonitorWarning(UserWarning):
    """A file or stdout does not take what is to be said. It is kept, and said later; :meth:`Monitor.status` says it, too."""


class Taken(NamedTuple):
    """What came of some messages: alerts as documents, and how many parts could not be read."""

    alerts: list[dict[str, Any]]
    unread: int


class Lost(NamedTuple):
    """A part of a message that could not be read, from where."""

    source: SourceTable | None
    place: str
    part: Unread


class Monitor:
    """Watches models, as a configuration declares (:mod:`streamcal.monitor.config`); not thread-safe.

    State is kept in the ``state`` file of the configuration: a new Monitor goes on where the last one was, also after kill -9;
    ``notes`` says what begins anew since the configuration has changed. What a call took is kept once it has returned, but for
    :meth:`predict` and :meth:`label`: those wait until there are 1,000, or for :meth:`flush`. Alerts go to the sinks; they are
    also handed out by the call that caused them. After an exception from the store (a full disk) make a new Monitor. Times are
    seconds since 1970 UTC, aware datetimes or ISO-8601 texts; no other clock counts, but for the pauses between attempts at a
    webhook.

    Rules are evaluated whenever the time of the events passes a multiple of ``every``, with what came before; of several passed
    at once only the last. So the same events give the same decisions, however they are cut into calls.

    ``config``: the path of a TOML file, a dict as tomllib gives it, or a Config. ConfigError says what is wrong with it.
    ``store``: an open store in place of the ``state`` file.
    ``outbox``: what says the alerts, and writes the audit, in place of the sinks.
    """

    def __init__(
        self,
        config: Config | Mapping[str, Any] | str | os.PathLike[str],
        store: Store | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        if not isinstance(config, Config):
            config = from_document(config) if isinstance(config, Mapping) else load(config)
        self.config, self.notes = config, list[str]()
        self.store = store or Store(config.state, mode=config.files.mode)
        self.rules = [(rule, model.name) for rule in config.rules for model in config.of(rule)]
        self.aggregates = {model.name: Aggregates.of(config, model) for model in config.models}
        self.journal = Journal(self.store, self.aggregates, kept=store is not None or config.state != MEMORY)
        self.taken = 0  # events so far
        self.trouble = ""  # what a file or stdout last said instead of taking its lines
        self._schedule = Schedule(config.every)
        self._states: States = {}
        self._summary = WindowSummary()
        self._evaluated = False  # whether rules have been evaluated in this transaction
        self._unrecorded = -math.inf  # to where the clock has moved, which the record does not say yet
        self._waiting: list[Checked] = []  # of predict() and label()
        self._things: list[bytes] = []  # the objects that they came from, for the record
        self._alerts: list[dict[str, Any]] = []  # that no call has handed out
        self._closed = False
        spans = {"ttl": config.join.ttl, "maturity": config.join.maturity, "hold": config.join.hold}
        self._join = Join(self.store, **spans)
        self._held = HeldEvents(config.join.ahead)
        self._decoder = Decoder(config)
        self.flow = Flow(config)  # what came from each source and could not be read
        gone = self._resume()
        self._declare()
        self.outbox = outbox or Outbox(config.sinks, self.store.get(OUTBOX), config.files.mode)
        self._withdraw(gone)

    def _declare(self) -> None:
        """Versions and segments that the configuration names are known before anything comes."""
        for model in self.config.models:
            for version in model.versions:
                for name in (version, version + RAW) if model.raw else (version,):
                    self._join.declare(model.name, name)
        for name, version in self._join.counters():
            self._decoder.meet(name, version)
        self.journal.first_number = float(self._join.state.seq)
        for rule, name in self.rules:
            if not isinstance(rule.segments, str):
                names = (segment for segment in rule.segments if segment not in self.aggregates[name].names)
                self.journal.segments(name, names, declared=True)

    # -- events one by one ---------------------------------------------------------------------------------------------

    def predict(
        self,
        id: str | int,
        p: Any,
        *,
        t: Any,
        model: str | None = None,
        version: str | None = None,
        segment: Mapping[str, Any] | None = None,
        w: float = 1.0,
        raw: Any = None,
    ) -> None:
        """Take a served prediction. ``segment`` holds its fields by name, ``raw`` the prediction before recalibration.

        ValueError, and nothing taken, if a value is not allowed. Duplicates and late ones are counted by the join.
        """
        settings = self._decoder.known(model)
        if w != 1.0 and not settings.weight:
            raise ValueError(f'w goes only with a model that declares its weight, as in weight = "amount", got {w!r}')
        thing = {"id": id, "p": p, "t": t, **whose(model, version)}
        thing |= {settings.weight: w} if settings.weight else {}
        thing |= {settings.raw: raw} if settings.raw and raw is not None else {}
        fields = self.config.segments.fields if self.config.segments else ()
        self._take_one({**{field: told(segment or {}, field) for field in fields}, **thing})

    def label(self, id: str | int, y: Any, *, t: Any, model: str | None = None, version: str | None = None) -> None:
        """Take the outcome of a prediction.

        Without a version it is for all versions of the model that have made a prediction of this id by then. ValueError as in
        :meth:`predict`.
        """
        self._take_one({"id": id, "y": y, "t": t, **whose(model, version)})

    def _take_one(self, thing: dict[str, Any]) -> None:
        thing = {key: plain(value) for key, value in thing.items()}
        rows, unread = self._decoder.read([thing])
        if unread:
            if thing.get("y") is not None:
                self._decoder.values[self._decoder.known(thing.get("model")).name].forget(thing["y"])
            raise ValueError(unread[0].reason)
        self._usable()
        if not rows:
            return  # a label that is missing
        self._things += self._lines([{**thing, "t": rows[0][0].t}])
        self._waiting += rows
        if len(self._waiting) >= BATCH:
            self._alerts = self._commit()

    def _usable(self) -> None:
        if self._closed:
            raise ValueError("the monitor is closed: make a new one")

    def flush(self) -> list[dict[str, Any]]:
        """Keep what waits: it survives from here on. The alerts since the last flush, or other call that hands them out."""
        return self._commit()

    # -- many events ---------------------------------------------------------------------------------------------------

    def take(self, payloads: Sequence[bytes]) -> Taken:
        """Take messages (:mod:`streamcal.monitor.messages`) in one transaction. What cannot be read is counted."""
        if not all(isinstance(payload, bytes) for payload in payloads):
            raise ValueError(f"payloads must be a list of bytes, one for each message, got {payloads!r:.80}")
        found = list(map(records, payloads))
        lost = [Lost(None, "", part) for _, bad in found for part in bad]
        return self.take_objects([thing for good, _ in found for thing in good], lost)

    def take_objects(
        self,
        objects: Sequence[dict[str, Any]],
        lost: Sequence[Lost] = (),
        documents: Mapping[str, bytes] | None = None,
        origins: Sequence[tuple[SourceTable, str]] = (),
    ) -> Taken:
        """Take the objects of messages, what of them was lost on the way, and documents of their sources: all or nothing.

        What is lost, or refused here, is appended to the dead letters of its source: of each object in ``origins``, with its
        place, else of the only one.
        """
        rows, refused = self._decoder.read(objects)
        sources = self.config.sources
        only = sources[0] if len(sources) == 1 else None
        known = dict(zip(map(id, objects), origins, strict=False)) if refused else {}
        letters = [*lost, *(Lost(*known.get(id(part.what), (only, "")), part) for part in refused)]
        came = Counter[str]()
        for table, _ in origins if len(sources) > 1 else ():
            came[table.name] += 1
        came[only.name if only is not None and origins else ""] += len(objects) - came.total()
        for source, _, part in lost:
            came[source.name if source is not None else ""] += part.times
        unread = sum(letter.part.times for letter in letters)
        return Taken(self._commit(Events.of(rows), objects, letters, documents, came=came), unread)

    def _flowed(self, came: Mapping[str, int], letters: Sequence[Lost]) -> None:
        """Count what came from each source and what of it could not be read: dead letters, and alerts where it is too much."""
        for letter in letters:
            self._dead_letter(letter)
        unread = [(source.name if source else "", part.reason, part.times) for source, _, part in letters]
        for document in self.flow.take(came, unread, time.time()) if came else ():
            self.outbox.alert(document)
            self._alerts.append(document)

    def _dead_letter(self, letter: Lost) -> None:
        """Keep what could not be read where somebody can look at it."""
        source, place, (reason, what, times) = letter
        if source is not None and source.dead_letters is not None:
            what = what[:LONGEST_LETTER].decode("utf-8", "backslashreplace") if isinstance(what, bytes) else what
            line = {"source": source.name, "place": place, "reason": reason, "what": what}
            line |= {"times": times} if times > 1 else {}
            self.outbox.append(source.dead_letters, [encode(line)])

    def predict_many(
        self,
        ids: Sequence[str | int],
        p: npt.ArrayLike,
        *,
        t: Any,
        model: str | None = None,
        version: str | None = None,
        segment: Mapping[str, Any] | None = None,
        w: npt.ArrayLike | None = None,
    ) -> list[dict[str, Any]]:
        """Take n predictions in order, in one transaction: ``p`` of shape (n,) or (n, k), the rest (n,) or one for all.

        ``segment`` holds for each of its fields n values, or one for all. The alerts that it caused. ValueError names the first
        that is not allowed; then none is taken. Raw predictions beside are another call, of version "7/raw" for version "7".
        """
        events = self._decoder.predictions(ids, p, t, model, version, segment, w)
        return self._commit(events, self._decoder.objects(events, segment, p))

    def label_many(
        self,
        ids: Sequence[str | int],
        y: npt.ArrayLike,
        *,
        t: Any,
        model: str | None = None,
        version: str | None = None,
    ) -> list[dict[str, Any]]:
        """Take n outcomes in order, in one transaction: ``y`` of shape (n,), ``t`` (n,) or one for all. As predict_many."""
        events = self._decoder.labels(ids, y, t, model, version)
        return self._commit(events, self._decoder.objects(events))

    # -- time ----------------------------------------------------------------------------------------------------------

    def advance(self, now: Any) -> list[dict[str, Any]]:
        """Move the clock without an event: what is due falls due, rules are evaluated. The alerts. Earlier times do nothing."""
        at = self._decoder.moment(now)
        return self._commit(then=lambda: self._move(at))

    def evaluate(self, now: Any = None) -> list[dict[str, Any]]:
        """Evaluate the rules at once, besides the usual moments, at the clock's time or a later one. The alerts."""
        at = self.clock if now is None else max(self._decoder.moment(now), self.clock)
        return self._commit(then=lambda: self._move(at, now=True) if at > -math.inf else None)

    @property
    def clock(self) -> float:
        """The largest time seen, -inf before the first event."""
        return self._join.clock

    # -- reading -------------------------------------------------------------------------------------------------------

    def snapshot(
        self, window: str, *, model: str | None = None, version: str | None = None, segment: str = WHOLE
    ) -> Snapshot:
        """The sums of a segment (else of all events) in a window, as of the clock. ValueError names what is there instead."""
        aggregates = self.aggregates[one_of("model", model, list(self.aggregates))]
        window = one_of("window", window, list(aggregates.windows))
        version = one_of("version", version, aggregates.versions)
        place = aggregates.names.index(one_of("segment", segment, aggregates.names))
        return aggregates.snapshot_of(window, version, place, self.clock)

    def report(
        self, window: str, *, model: str | None = None, version: str | None = None, segment: str = WHOLE
    ) -> dict[str, Any]:
        """Every metric with its sampling error and the bins of the reliability diagram, as plain data (Snapshot.report)."""
        return self.snapshot(window, model=model, version=version, segment=segment).report()

    def status(self) -> dict[str, Any]:
        """How it stands, as plain data.

        ``clock`` (None before the first event), ``taken`` events, ``unread`` parts of messages by reason with ``examples``, how
        many messages of each of ``sources`` came and could not be read, the counters of each of ``models``
        (:class:`~streamcal.monitor.join.pending.Counters`), of ``labels`` by model how many were missing and which are not known,
        ``segments`` (own sums, their cap, events in "other"), ``windows`` as of ``evaluated``, what is ``firing``, how many
        alerts are ``undelivered``, and what is in ``trouble``.
        """
        flow = flow_status(self.flow.document())
        notes = self._notes()
        return {
            "type": "status",
            "config": self.config.hash,
            "clock": None if self.clock == -math.inf else utc(self.clock),
            "taken": self.taken,
            **flow,
            "labels": {name: of.status() for name, of in self._decoder.values.items()},
            "models": counters(self._join.counters()),
            "segments": {name: aggregates.status() for name, aggregates in self.aggregates.items()},
            "evaluated": self._summary.at,
            "windows": self._summary.windows,
            "firing": [*flow["firing"], *firing(self._states)],
            "undelivered": self.outbox.undelivered,
            "dead_letters": self.outbox.dead,
            "held": self.held,
            "notes": notes,
            "trouble": [text for text in (self.trouble, *self.outbox.troubles.values(), *notes) if text],
        }

    @property
    def held(self) -> int:
        """How many events lie far ahead of all others, and are held until another message confirms their time."""
        return len(self._held)

    def _notes(self) -> list[str]:
        """What is wrong with what came and could be read: its labels, its times."""
        problems = [of.problem(self.config.max_unread) for of in self._decoder.values.values()]
        return [*filter(None, problems), *self._held.notes(self.config, self._join.predictions)]

    @property
    def boundary(self) -> float:
        """The moment of the next evaluation, inf before the first event."""
        return self._schedule.boundary

    @property
    def firing(self) -> int:
        """How many rules are firing, about whatever."""
        return len(flow_status(self.flow.document())["firing"]) + len(firing(self._states))

    def kept(self, name: str) -> bytes | None:
        """A document that came with messages (:meth:`take_objects`), as the offset of a source; None if there is none."""
        return self.store.get(name)

    def times(self, objects: Sequence[dict[str, Any]]) -> list[float]:
        """The times of those objects of messages that have one."""
        return self._decoder.times(objects)

    @property
    def pending_delivery(self) -> bool:
        """Whether something has been said, or is to be said, that the state does not know: :meth:`flush` sees to it."""
        return self.outbox.changed or bool(self.trouble)

    # -- transactions --------------------------------------------------------------------------------------------------

    def _commit(
        self,
        events: Events | None = None,
        objects: Iterable[dict[str, Any]] = (),
        letters: Sequence[Lost] = (),
        documents: Mapping[str, bytes] | None = None,
        then: Callable[[], None] | None = None,
        came: Mapping[str, int] | None = None,
    ) -> list[dict[str, Any]]:
        """What waits, then events and the objects that they came from, and what follows: one transaction.

        Then the outbox delivers. Alerts not handed out yet.
        """
        self._usable()
        lines = self._lines(objects)
        with self.store.transaction():
            waiting, things = self._waiting, self._things
            self._waiting, self._things = [], []
            self._record(things)
            if waiting:
                self._feed(Events.of(waiting))
            self._flowed(came or {}, letters)
            self._record(lines)
            if events is not None:
                self._feed(events)
            if then is not None:
                then()
            self._save(documents)
        self._deliver()
        alerts, self._alerts = self._alerts, []
        if self.trouble:
            warnings.warn(self.trouble, MonitorWarning, stacklevel=3)
        return alerts

    def _deliver(self) -> None:
        """Alerts and lines go out. A file that does not take its lines holds up nothing: they are kept, and tried again."""
        try:
            self.outbox.deliver(time.time())
            self.trouble = ""
        except OutboxError as error:
            self.trouble = str(error)

    def _lines(self, objects: Iterable[dict[str, Any]]) -> list[bytes]:
        return [] if self.config.record is None else list(map(encode, objects))

    def _record(self, lines: Sequence[bytes]) -> None:
        """Objects that are taken, as JSON, for a replay; before them where the clock has moved to without an event."""
        if self.config.record is not None and lines:
            self._record_moment()
            self.outbox.append(self.config.record, list(lines))

    def _record_moment(self) -> None:
        if self.config.record is not None and self._unrecorded > -math.inf:
            self.outbox.append(self.config.record, [encode({CLOCK: self._unrecorded})])
            self._unrecorded = -math.inf

    def _feed(self, events: Events) -> None:
        """Events in order, cut where an evaluation is due. Inside a transaction, as all that follows."""
        self._count_in(self._held.witnessed(events, self._join.clock))

    def _count_in(self, events: Events) -> None:
        first = 0
        while first < len(events):
            stop = self._schedule.until(events, first)
            if stop > first:
                part = events if stop - first == len(events) else events.part(slice(first, stop))
                for model, segment in part.segments() if self.config.segments else ():
                    self.journal.segments(model, [segment])  # they are given their places before
                self.journal.take(self._join.feed(part))
                self.taken += stop - first
            if stop < len(events):
                self._pass(float(events.t[stop]))
            first = stop

    # -- evaluations ---------------------------------------------------------------------------------------------------

    def _move(self, at: float, now: bool = False) -> None:
        """Move the clock without an event; ``now``: evaluate even if it is not due."""
        self._unrecorded = max(self._unrecorded, at)
        evaluated = self._pass(at) if at >= self._schedule.bound(at) else -math.inf
        self.journal.take(self._join.advance(at))
        if self._held and len(found := self._held.moved(at)):
            self._record_moment()  # before any event that is recorded later
            self._count_in(found)
        if now and evaluated < at:
            self._evaluate(at)

    def _pass(self, t: float) -> float:
        """An event or a clock at or beyond the boundary: first evaluate what came before it. The moment of that."""
        at = self._schedule.passed(t)
        self.journal.take(self._join.advance(at))
        self._evaluate(at)
        return at

    def _evaluate(self, at: float) -> None:
        sums = {name: ModelSums(aggregates, at) for name, aggregates in self.aggregates.items()}
        told, lines = evaluate(self.rules, sums, self._states, audited=self.config.audit is not None)
        for document, sinks in told:
            self.outbox.alert(document, sinks)
        self._alerts += [document for document, _ in told]
        if self.config.audit is not None:
            head = {"config": self.config.hash, "taken": self.taken, "time": at}
            self.outbox.append(self.config.audit, [encode({**line, **head}) for line in lines])
        self._summary = summary(sums, at)
        self.journal.evaluated()
        self._evaluated = True

    # -- what survives -------------------------------------------------------------------------------------------------

    def _save(self, documents: Mapping[str, bytes] | None = None) -> None:
        """Inside the transaction: everything that is not in the join."""
        put = self.store.put
        self.journal.write()
        if self._evaluated:
            kept = [
                [*key, s, *state] for key, of in self._states.items() for s, state in of.items() if state != State()
            ]
            put(RULES, encode(kept))
            put(STATUS, encode(self.status()))
        boundary, unrecorded = (None if math.isinf(t) else t for t in (self._schedule.boundary, self._unrecorded))
        own = {"version": VERSION, "config": self.config.hash, "taken": self.taken, "boundary": boundary}
        labels = {name: of.document() for name, of in self._decoder.values.items()}
        own |= {"flow": self.flow.document(), "labels": labels, "unrecorded": unrecorded}
        put(SELF, encode({**own, **self._held.document(), "notes": self._notes()}))
        for name, data in (documents or {}).items():
            put(name, data)
        if self.outbox.changed:
            put(OUTBOX, self.outbox.to_bytes())
        self._evaluated = False

    def _resume(self) -> Gone:
        """Go on where the documents say. What was firing and is not watched any more. StoreError if they cannot be read."""
        try:
            out = {model for (model, _), (predictions, _) in self._join.counters().items() if predictions.joined}
            self.notes += self.journal.read(self.clock, out)
            data = self.store.get(SELF)
            return self._read(msgspec.json.decode(data)) if data is not None else []
        except DAMAGED as error:
            self.store.close()
            raise StoreError(f"{self.config.state}: damaged: {error!r:.200}; take it back from a copy") from error

    def _read(self, own: dict[str, Any]) -> Gone:
        if own["version"] != VERSION:
            raise ValueError(f"the monitor's document must have version {VERSION}, got {own['version']!r}")
        if own["config"] != self.config.hash:
            self.notes.append(f"the configuration has changed: {own['config']} before, {self.config.hash} now")
        self.taken, self.flow = own["taken"], Flow(self.config, own["flow"])
        self._decoder = Decoder(self.config, own["labels"])
        self._held.restore(own)
        self._schedule.boundary = math.inf if own["boundary"] is None else own["boundary"]
        self._unrecorded = -math.inf if own["unrecorded"] is None else own["unrecorded"]
        said = msgspec.json.decode(self.store.get(STATUS) or b"{}")
        self._summary = WindowSummary(said.get("evaluated"), said.get("windows", []))
        known, gone = {(rule.name, model) for rule, model in self.rules}, []
        for rule, model, version, segment, *state in msgspec.json.decode(self.store.get(RULES) or b"[]"):
            if (rule, model) in known and segment in (*self.aggregates[model].names, WHOLE):
                self._states.setdefault((rule, model, version), {})[segment] = state_from(state)
            elif state[0] == FIRING:
                gone.append((rule, model, version, segment, state_from(state)))
                self.notes.append(f"rule {rule} was firing for {model} {version} {segment}, which is no longer watched")
        return gone

    def _withdraw(self, gone: Gone) -> None:
        """Resolve what has been said to be firing, and is not watched any more."""
        sinks = tuple(name for name, alerts in self.outbox.firing.items() if alerts is None)
        for document in unwatched(gone, self.config.rules, self.clock) if sinks else ():
            self.outbox.alert(document, sinks)
        for sink, alerts in self.outbox.firing.items():
            for document in outdated(alerts or [], self.status()["firing"]):
                self.outbox.alert(document, (sink,))

    def close(self, wait: float = 5.0) -> None:
        """Keep everything, give webhooks ``wait`` seconds, and let go of the file; a second time does nothing.

        StoreError the first time after a batch that was not kept.
        """
        if self._closed:
            return
        try:
            self._commit()
            with self.store.transaction():
                self.journal.checkpoint()
                self._evaluated = True  # so that the status is that of now
                self._save()
            self._deliver()
            self.outbox.close(wait)
            with self.store.transaction():
                self._save()
            self._deliver()
        finally:
            self._closed = True
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self._closed = True
            self.store.close()
