"""What happened to the sums since they were last written whole: so that a batch writes what is new, and not everything.

Each transaction appends one document with what the aggregates took, in order. After a kill they are made from the last
checkpoint, and the journal happens to them again: the same to the last bit. A checkpoint is due when the journal has grown
as large as what a checkpoint writes: everything is written twice at most, and a restart reads no more than twice the state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from streamcal.monitor.aggregates import Aggregates
from streamcal.monitor.events import Events, Pair, StreamKey
from streamcal.monitor.store import Store

PREFIX, CHECKPOINT = "journal/", "checkpoint"
PIECE = 64 << 20  # bytes of a document: SQLite takes a thousand million at most
LEAST = 4 << 20  # bytes of journal before a checkpoint is worth while
SEGMENT, JOINED, EVALUATED = "segment", "joined", "evaluated"  # kinds of entries


class Journal:
    """Writes down what the aggregates take, and lets it happen again. Nothing is written for a store in memory."""

    def __init__(self, store: Store, aggregates: Mapping[str, Aggregates], *, kept: bool = True) -> None:
        self.store, self.aggregates, self.kept = store, aggregates, kept
        self.number = self.size = 0  # of the documents since the checkpoint, and their bytes
        self.limit = 0  # so the first write is a checkpoint: it says whose journal this is
        self.first_number = 0.0  # the last number that the join had given when this process began
        self._entries: list[Any] = []

    # -- what happens, and is noted ------------------------------------------------------------------------------------

    def segments(self, model: str, names: Iterable[str], declared: bool = False) -> None:
        """Predictions of these segments come: the new ones are given places while there are any, if declared always."""
        aggregates = self.aggregates[model]
        for name in names:
            if declared or aggregates.wants_place(name):
                self._entries.append((SEGMENT, model, name, self.first_number))
                aggregates.place(name, self.first_number)

    def take(self, joined: Iterable[Events]) -> None:
        """Joined events are counted, if of a model in the configuration."""
        for events in joined:
            model = events.streams[0].model
            if model in self.aggregates:
                if self.kept:
                    self._entries.append((JOINED, model, *_packed(events)))
                self.aggregates[model].take(events)

    def evaluated(self) -> None:
        """The rules have been evaluated: alarms are told."""
        for model, aggregates in self.aggregates.items():
            self._entries.append((EVALUATED, model))
            aggregates.alarms = []

    # -- documents -----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Inside the transaction: keep what happened since the last call; a checkpoint instead where one is due."""
        entries, self._entries = self._entries, []
        if not self.kept or not entries:
            return
        data = msgspec.msgpack.encode(entries)
        if self.size + len(data) > self.limit:
            self.checkpoint()
            return
        self.store.put(f"{PREFIX}{self.number:012d}", data)
        self.number += 1
        self.size += len(data)

    def checkpoint(self) -> None:
        """Inside the transaction: write the aggregates whole, and forget the journal."""
        if not self.kept:
            return
        data = msgspec.msgpack.encode({name: of.to_plain() for name, of in self.aggregates.items()})
        self.store.drop(CHECKPOINT)
        for i, first in enumerate(range(0, len(data), PIECE)):
            self.store.put(f"{CHECKPOINT}/{i:06d}", data[first : first + PIECE])
        self.store.drop(PREFIX)
        self._entries, self.number, self.size, self.limit = [], 0, 0, max(LEAST, len(data))

    def read(self, clock: float, counted: Collection[str] = ()) -> list[str]:
        """Make the aggregates what they were. What begins anew since the configuration has changed, in words.

        Then the next write is a checkpoint: a journal is of one configuration. ``clock``: of the join; ``counted``: the models
        of which pairs have gone out.
        """
        notes: list[str] = []
        data = b"".join(self.store.get(name) or b"" for name in self.store.names(CHECKPOINT))
        if not data:
            return notes
        documents = msgspec.msgpack.decode(data)
        for name in counted:
            if name in self.aggregates and name not in documents:  # it was not there for a time
                self.aggregates[name].begin_anew(clock)
                notes.append(f"model {name}: it is in the configuration again, its sums begin anew")
        for name, plain in documents.items():
            if name in self.aggregates:
                notes += self.aggregates[name].take_over(plain, clock)
            else:
                notes.append(f"model {name}: it is no longer in the configuration, its sums are dropped")
        for name in self.store.names(PREFIX):
            entries = self.store.get(name) or b""
            self.number, self.size = int(name.removeprefix(PREFIX)) + 1, self.size + len(entries)
            for kind, model, *rest in msgspec.msgpack.decode(entries):
                aggregates = self.aggregates.get(model)
                if aggregates is None:
                    continue
                if kind == SEGMENT:
                    aggregates.place(*rest)
                elif kind == JOINED:
                    aggregates.take(_unpacked(model, rest))
                else:
                    aggregates.alarms = []
        same = not notes and set(self.aggregates) <= set(documents)
        self.limit = max(LEAST, len(data)) if same else 0
        return notes


def _packed(events: Events) -> tuple[Any, ...]:
    """Pairs as plain data: segments once each, and which pair has which; columns as the bytes of float64."""
    names = {name: i for i, name in enumerate(dict.fromkeys(events.segment))}
    which = np.fromiter(map(names.__getitem__, events.segment), np.uint32, len(events))
    columns = events.p, events.y, events.w, events.sign, events.t, events.moment, events.seq
    packed = [np.ascontiguousarray(column, "<f8").tobytes() for column in columns]
    return (events.version, list(names), which.tobytes(), packed)


def _unpacked(model: str, plain: Sequence[Any]) -> Events:
    """The pairs again, without their ids; as time of the label the moment at which they count."""
    version, names, which, packed = plain
    segment = [names[i] for i in np.frombuffer(which, np.uint32).tolist()]
    p, y, w, sign, t, moment, seq = (np.frombuffer(column, "<f8") for column in packed)
    p = p.reshape(len(segment), -1) if p.size > len(segment) else p
    key = StreamKey(Pair, model, version)
    return Events.alike(key, [], t, p, y, w, segment, moment, moment, seq, sign)
