"""What happened to the sums since they were last written whole: so that a batch writes what is new, and not everything.

Each transaction appends one document with what its banks took, in order. After a kill the banks are made from the last
checkpoint, and the journal happens to them again: the same to the last bit. A checkpoint is due when the journal has grown
as large as what a checkpoint writes: everything is written twice at most, and a restart reads no more than twice the state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from streamcal.monitor.aggregates import Bank, Counted
from streamcal.monitor.store import Store

PREFIX, CHECKPOINT = "journal/", "checkpoint"
PIECE = 64 << 20  # bytes of a document: SQLite takes a thousand million at most
LEAST = 4 << 20  # bytes of journal before a checkpoint is worth while
PLACED, JOINED, TURNED = "placed", "joined", "turned"


class Journal:
    """Writes down what the banks take, and lets it happen again. Nothing is written for a store in memory."""

    def __init__(self, store: Store, banks: Mapping[str, Bank], *, kept: bool = True) -> None:
        self.store, self.banks, self.kept = store, banks, kept
        self.number = self.size = 0  # of the documents since the checkpoint, and their bytes
        self.limit = 0  # so the first write is a checkpoint: it says whose journal this is
        self._entries: list[Any] = []
        self._gone: dict[str, int] = {}  # placings of models that are not in the configuration now

    # -- what happens, and is noted ------------------------------------------------------------------------------------

    def tag(self, model: str, segment: str) -> str:
        """The tag of a segment (:meth:`Places.tag`)."""
        places = self.banks[model].places
        if places.settings is not None and not places.holds(segment):
            self._entries.append((PLACED, model, segment))
        return places.tag(segment)

    def take(self, model: str, events: Counted) -> None:
        """A bank counts joined events."""
        if self.kept:
            self._entries.append((JOINED, model, *_packed(events)))
        self.banks[model].take(events)

    def turn(self, model: str, keep: Sequence[str]) -> list[str]:
        """A bank has been evaluated (:meth:`Bank.turn`): the segments that lost their place."""
        bank = self.banks[model]
        gone = bank.turn(keep)
        self._entries.append((TURNED, model, list(keep), bank.places.cap, bank.places.given))
        return gone

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
        """Inside the transaction: write the banks whole, and forget the journal."""
        if not self.kept:
            return
        gone = {name: {"given": given} for name, given in self._gone.items()}
        data = msgspec.msgpack.encode({**gone, **{name: bank.to_plain() for name, bank in self.banks.items()}})
        self.store.drop(CHECKPOINT)
        for i, first in enumerate(range(0, len(data), PIECE)):
            self.store.put(f"{CHECKPOINT}/{i:06d}", data[first : first + PIECE])
        self.store.drop(PREFIX)
        self._entries, self.number, self.size, self.limit = [], 0, 0, max(LEAST, len(data))

    def read(self, clock: float, counted: Collection[str] = ()) -> list[str]:
        """Make the banks what they were. What begins anew since the configuration has changed, in words.

        Then the next write is a checkpoint: a journal is of one configuration. ``clock``: of the join; ``counted``: the models
        of which pairs have gone out.
        """
        notes: list[str] = []
        data = b"".join(self.store.get(name) or b"" for name in self.store.names(CHECKPOINT))
        if not data:
            return notes
        documents = msgspec.msgpack.decode(data)
        for name in counted:  # a model that was not there for a time
            if name in self.banks and "marks" not in documents.get(name, {}):
                self.banks[name].begin_anew(documents.get(name, {"given": 0})["given"], clock)
                notes.append(f"model {name}: it is in the configuration again, its sums begin anew")
        for name, plain in documents.items():
            if name not in self.banks:
                self._gone[name] = plain["places"]["given"] if "marks" in plain else plain["given"]
                if "marks" in plain:
                    notes.append(f"model {name}: it is no longer in the configuration, its sums are dropped")
            elif "marks" in plain:
                notes += self.banks[name].take_over(plain, clock)
        for entry in self._documents():
            self._again(*entry)
        same = not notes and set(self.banks) <= set(documents)
        self.limit = max(LEAST, len(data)) if same else 0
        return notes

    def _documents(self) -> Iterator[Any]:
        for name in self.store.names(PREFIX):
            data = self.store.get(name) or b""
            self.number, self.size = int(name.removeprefix(PREFIX)) + 1, self.size + len(data)
            yield from msgspec.msgpack.decode(data)

    def _again(self, kind: str, model: str, *rest: Any) -> None:
        bank = self.banks.get(model)
        if bank is None:
            given = self._gone.get(model, 0)
            self._gone[model] = rest[2] if kind == TURNED else given + (kind == PLACED)
            return
        if kind == PLACED:
            bank.places.again(*rest)
        elif kind == JOINED:
            bank.take(_unpacked(rest))
        else:
            bank.turned(*rest)


def _packed(events: Counted) -> tuple[Any, ...]:
    """Events as plain data: tags once each, and which event has which; columns as the bytes of float64."""
    names = {tag: i for i, tag in enumerate(dict.fromkeys(events.tags))}
    which = np.fromiter(map(names.__getitem__, events.tags), np.uint32, len(events))
    columns = [np.ascontiguousarray(column, "<f8").tobytes() for column in events[2:]]
    return (events.version, list(names), which.tobytes(), columns)


def _unpacked(plain: Sequence[Any]) -> Counted:
    version, names, which, columns = plain
    tags = [names[i] for i in np.frombuffer(which, np.uint32).tolist()]
    p, *others = (np.frombuffer(column, "<f8") for column in columns)
    return Counted(version, tags, p.reshape(len(tags), -1) if p.size > len(tags) else p, *others)
