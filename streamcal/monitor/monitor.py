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
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamcal.monitor.columns import Columns, label_columns, prediction_columns
from streamcal.monitor.config.config import Config, from_document, load
from streamcal.monitor.config.settings import WHOLE, Source
from streamcal.monitor.engine import Engine, encode
from streamcal.monitor.events import Event
from streamcal.monitor.messages import RAW, Unread, records, there
from streamcal.monitor.store import Store
from streamcal.snapshot import Snapshot


class MonitorWarning(UserWarning):
    """A file or stdout does not take what is to be said. It is kept, and said later; :meth:`Monitor.status` says it, too."""


BATCH = 1_000  # events of predict() and label() that wait for a transaction
LONGEST_LETTER = 1 << 20  # bytes of a message that are kept with the dead letters


class Taken(NamedTuple):
    """What came of some messages: alerts as documents, and how many parts could not be read."""

    alerts: list[dict[str, Any]]
    unread: int


class Lost(NamedTuple):
    """A part of a message that could not be read, from where."""

    source: Source | None
    place: str
    part: Unread


def opened(config: Config | Mapping[str, Any] | str | os.PathLike[str]) -> Config:
    """A configuration from a file or a dict; ConfigError says what is wrong with it."""
    if isinstance(config, Config):
        return config
    return from_document(config) if isinstance(config, Mapping) else load(config)


class Monitor:
    """Watches models, as a configuration declares (:mod:`streamcal.monitor.config.config`); not thread-safe.

    ``config``: the path of a TOML file, a dict as tomllib gives it, or a Config. State is kept in its ``state`` file: a new
    Monitor goes on where the last one was, also after kill -9; ``notes`` says what begins anew since the configuration has
    changed. What a call took is kept once it has returned, but for :meth:`predict` and :meth:`label`: those wait until there
    are 1,000, or for :meth:`flush`. Alerts go to the sinks; they are also handed out by the call that caused them. After an
    exception from the store (a full disk) make a new Monitor. Times are seconds since 1970 UTC, aware datetimes or ISO-8601
    texts; no other clock counts, but for the pauses between attempts at a webhook.

    Rules are evaluated whenever the time of the events passes a multiple of ``every``, with what came before; of several passed
    at once only the last. So the same events give the same decisions, however they are cut into calls.
    """

    def __init__(self, config: Config | Mapping[str, Any] | str | os.PathLike[str], store: Store | None = None) -> None:
        self.config = opened(config)
        self.engine = Engine(self.config, store)
        self.notes = self.engine.notes
        self._waiting: list[Event] = []
        self._things: list[bytes] = []  # the objects that they came from, for the record
        self._unsaid: list[dict[str, Any]] = []  # alerts that no call has handed out
        self._closed = False

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
        settings = self.engine.intake.known(model)
        if w != 1.0 and not settings.weight:
            raise ValueError(f'w goes only with a model that declares its weight, as in weight = "amount", got {w!r}')
        thing = {"id": id, "p": p, "t": t, **_whose(model, version)}
        thing |= {settings.weight: w} if settings.weight else {}
        thing |= {settings.raw: raw} if settings.raw and raw is not None else {}
        fields = self.config.segments.fields if self.config.segments else ()
        self._take_one({**{field: _told(segment or {}, field) for field in fields}, **thing})

    def label(self, id: str | int, y: Any, *, t: Any, model: str | None = None, version: str | None = None) -> None:
        """Take the outcome of a prediction.

        Without a version it is for all versions of the model that have made a prediction of this id by then. ValueError as in
        :meth:`predict`.
        """
        self._take_one({"id": id, "y": y, "t": t, **_whose(model, version)})

    def _take_one(self, thing: dict[str, Any]) -> None:
        thing = {key: _plain(value) for key, value in thing.items()}
        events, unread = self.engine.intake.read([thing])
        if unread:
            raise ValueError(unread[0].reason)
        self._usable()
        if self.config.record is not None:
            self._things.append(encode({**thing, "t": events[0].t}))
        self._waiting += events
        if len(self._waiting) >= BATCH:
            self._unsaid = self._commit()

    def _usable(self) -> None:
        if self._closed:
            raise ValueError("the monitor is closed: make a new one")

    def flush(self) -> list[dict[str, Any]]:
        """Keep what waits: it survives from here on. The alerts since the last flush, or other call that hands them out."""
        return self._commit()

    def _commit(
        self, change: Callable[[], None] | None = None, documents: Mapping[str, bytes] | None = None
    ) -> list[dict[str, Any]]:
        """What waits, then a change, in one transaction. All alerts that no call has handed out."""
        self._usable()

        def all_of_it() -> None:
            waiting, things = self._waiting, self._things
            self._waiting, self._things = [], []
            self.engine.record(things)
            self.engine.feed(waiting)
            if change is not None:
                change()

        alerts, self._unsaid = [*self._unsaid, *self.engine.commit(all_of_it, documents)], []
        if self.engine.trouble:
            warnings.warn(self.engine.trouble, MonitorWarning, stacklevel=3)
        return alerts

    # -- many events ---------------------------------------------------------------------------------------------------

    def take(self, payloads: Sequence[bytes]) -> Taken:
        """Take messages (:mod:`streamcal.monitor.messages`) in one transaction. What cannot be read is counted, see
        ``status``."""
        if not all(isinstance(payload, bytes) for payload in payloads):
            raise ValueError(f"payloads must be a list of bytes, one for each message, got {payloads!r:.80}")
        objects: list[dict[str, Any]] = []
        lost: list[Lost] = []
        for payload in payloads:
            good, bad = records(payload)
            objects += good
            lost += [Lost(None, "", part) for part in bad]
        return self.take_objects(objects, lost)

    def take_objects(
        self,
        objects: Sequence[dict[str, Any]],
        lost: Sequence[Lost] = (),
        documents: Mapping[str, bytes] | None = None,
        origins: Sequence[tuple[Source, str]] = (),
    ) -> Taken:
        """Take the objects of messages, what of them was lost on the way, and documents of their sources: all or nothing.

        What is lost, or refused here, is appended to the dead letters of its source: of each object in ``origins``, with its
        place, else of the only one.
        """
        events, refused = self.engine.intake.read(objects)
        sources = self.config.sources
        only = sources[0] if len(sources) == 1 else None
        known = dict(zip(map(id, objects), origins, strict=False)) if refused else {}
        letters = [*lost, *(Lost(*known.get(id(part.what), (only, "")), part) for part in refused)]

        things = [] if self.config.record is None else [encode(thing) for thing in objects]

        def change() -> None:
            self._letters(letters)
            self.engine.record(things)
            self.engine.feed(events)

        return Taken(self._commit(change, documents), len(letters))

    def _letters(self, letters: Sequence[Lost]) -> None:
        """Count what could not be read, and keep it where somebody can look at it."""
        counts = self.engine.unread
        for source, place, part in letters:
            reason = part.reason.partition(":")[0].partition(" must")[0]
            counts[reason] = counts.get(reason, 0) + 1
            if source is not None:
                self.engine.append(source.dead_letters, [{"source": source.name, "place": place, **_letter(part)}])

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
        intake = self.engine.intake
        return self._take_columns(prediction_columns(intake, ids, p, t, model, version, segment, w), segment)

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
        columns = label_columns(self.engine.intake, ids, y, t, model, version)
        settings = self.engine.intake.known(model)
        if settings.raw and f"{columns.version}{RAW}" in self.engine.intake.versions[settings.name]:
            return self.take_objects(list(columns.objects(self.engine.intake, None))).alerts
        return self._take_columns(columns, None)

    def _take_columns(self, columns: Columns, segment: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        things = []
        if self.config.record is not None:
            things = [encode(thing) for thing in columns.objects(self.engine.intake, segment)]

        def change() -> None:
            self.engine.record(things)
            self.engine.feed_columns(columns)

        return self._commit(change)

    # -- time ----------------------------------------------------------------------------------------------------------

    def advance(self, now: Any) -> list[dict[str, Any]]:
        """Move the clock without an event: what is due falls due, rules are evaluated. The alerts. Earlier times do nothing."""
        at = self.engine.intake.moment(now)
        return self._commit(lambda: self.engine.move(at))

    def evaluate(self, now: Any = None) -> list[dict[str, Any]]:
        """Evaluate the rules at once, besides the usual moments, at the clock's time or a later one. The alerts."""
        at = -math.inf if now is None else self.engine.intake.moment(now)
        return self._commit(
            lambda: self.engine.move(max(at, self.clock), now=True) if max(at, self.clock) > -math.inf else None
        )

    @property
    def clock(self) -> float:
        """The largest time seen, -inf before the first event."""
        return self.engine.join.clock

    # -- reading -------------------------------------------------------------------------------------------------------

    def snapshot(
        self, window: str, *, model: str | None = None, version: str | None = None, segment: str = WHOLE
    ) -> Snapshot:
        """The sums of a segment (else of all events) in a window, as of the clock. ValueError names what is there instead."""
        banks = self.engine.banks
        bank = banks[_one_of("model", model, list(banks))]
        window = _one_of("window", window, list(bank.windows))
        version = _one_of("version", version, bank.versions)
        place = bank.places.names.index(_one_of("segment", segment, bank.places.names))
        return bank.of(window, version, place, self.clock)

    def report(
        self, window: str, *, model: str | None = None, version: str | None = None, segment: str = WHOLE
    ) -> dict[str, Any]:
        """Every metric with its sampling error and the rows of the reliability diagram, as plain data (Snapshot.report)."""
        return self.snapshot(window, model=model, version=version, segment=segment).report()

    def status(self) -> dict[str, Any]:
        """How it stands, as plain data.

        ``clock`` (None before the first event), ``taken`` events, ``unread`` parts of messages by reason, the counters of each
        of ``models`` (:class:`~streamcal.monitor.join.pending.Account`), ``segments`` (own sums, their cap, events in "other"),
        ``windows`` as of ``evaluated``, what is ``firing``, and how many alerts are ``undelivered``.
        """
        return self.engine.status()

    def close(self, wait: float = 5.0) -> None:
        """Keep everything, give webhooks ``wait`` seconds, and let go of the file."""
        if self._closed:
            return
        self._commit()
        self._closed = True
        self.engine.close(wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._closed = True
            self.engine.store.close()


def _told(segment: Mapping[str, Any], field: str) -> str | None:
    """The value of a field as text, None if there is none: what a record keeps is what was taken."""
    value = there(_plain(segment.get(field)))
    return None if value == "" else str(value)


def _whose(model: str | None, version: str | None) -> dict[str, Any]:
    return {key: value for key, value in (("model", model), ("version", version)) if value is not None}


def _one_of(what: str, name: str | None, there: list[str]) -> str:
    if name is None and len(there) == 1:
        return there[0]
    if name is None or name not in there:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, there[:20])) or 'none yet'}, got {name!r}")
    return name


def _plain(value: Any) -> Any:
    """Values of numpy as those of Python, the rest as they are."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) and value.dtype.kind != "M" else value


def _letter(part: Unread) -> dict[str, Any]:
    what = part.what
    if isinstance(what, bytes):
        what = what[:LONGEST_LETTER].decode("utf-8", "backslashreplace")
    return {"reason": part.reason, "what": what}
