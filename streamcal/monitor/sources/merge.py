"""Several sources, one order: by event time as far as it is known, so that labels and predictions meet as they did in life.

The next message is the one with the smallest time among those that are first in each source. A source of which none is there is
read first, waited for while it may have more than it gave, and left out while nothing comes.

How far a source has been taken is the offset after the batch of messages that is being taken, and how many of them. The rest of
a batch that is taken in several transactions is kept in the first of them: after a restart another reading of the source might
give other messages in its place (several partitions, a trimmed stream, a pipe).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from streamcal.monitor.messages import Unread, records, renamed
from streamcal.monitor.monitor import Lost
from streamcal.monitor.sources.registry import SourceTable
from streamcal.monitor.sources.source import Messages, Source
from streamcal.reading import SourceError
from streamcal.reading.lines import Unreadable

Times = Callable[[Sequence[dict[str, Any]]], list[float]]
Kept = Callable[[str], bytes | None]
OFFSET, MESSAGES = "offset/", "messages/"  # and the name of the source: its documents
PATIENCE = 2.0  # seconds that a source which may have more holds up the others: brokers answer within one


@dataclass
class Merged:
    """What one transaction takes: objects in order and where each is from, what was lost, and documents of the sources."""

    objects: list[dict[str, Any]] = field(default_factory=list)
    origins: list[tuple[SourceTable, str]] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    documents: dict[str, bytes] = field(default_factory=dict)


class Stream:
    """One source while it is read. ``kept`` gives its documents as they were kept, None for those that were not.

    ``left``: so many messages are there that have not been taken. ``time``: the latest moment in the first of them.
    """

    def __init__(self, table: SourceTable, source: Source, kept: Kept) -> None:
        self.table, self.source = table, source
        self.times: Times | None = None  # without it the order is not looked at
        self.left, self.time = 0, -math.inf
        self.ended = False
        self.notes: list[str] = []
        self._messages: Messages | None = None  # that are being taken
        self._taken = 0  # so many of them
        self._first: tuple[list[dict[str, Any]], list[Unread]] | None = None  # what is in the first that is left
        self._silent: float | None = None  # since when it is waited for
        self._kept = kept(OFFSET + table.name)
        after = None
        if self._kept is not None:
            try:
                was = json.loads(self._kept)
                after = was["after"].encode()
                if was["taken"]:
                    self._taken = int(was["taken"])
                    payloads, places, bad = msgspec.msgpack.decode(kept(MESSAGES + table.name) or b"")
                    self._messages = Messages(payloads, places, after, bad=[Unreadable(*parts) for parts in bad])
                    self.left = max(len(payloads) - self._taken, 0)
            except (ValueError, TypeError, LookupError, AttributeError, msgspec.MsgspecError) as error:
                damaged = SourceError(f"source {table.name}: its offset in the state is damaged ({error!r:.100})")
                damaged.code = 4  # it is the state that is at fault, and not the source
                raise damaged from None
        self._written = self._messages is not None  # whether the messages are kept
        source.begin(after)

    def fill(self, most: int, wait: float) -> bool:
        """Read if nothing is left; whether something is there."""
        done = self._messages is None or not (self._messages.payloads or self._messages.bad)
        if not self.left and not self.ended and done:
            self._messages = messages = self.source.read(most, wait)
            self._taken, self.left, self._written = 0, len(messages.payloads), False
            self.ended = messages.ended
            self.notes += messages.notes
        self._look()
        return self.left > 0

    def _look(self) -> None:
        """Into the first message that is left, if the order matters."""
        if self.times is not None and self._messages is not None and self.left and self._first is None:
            self._first = self._records(self._messages.payloads[self._taken])
            self.time = max(self.times(self._first[0]), default=self.time)

    def _records(self, payload: bytes) -> tuple[list[dict[str, Any]], list[Unread]]:
        """What is in a message, under our names of its fields."""
        objects, unread = records(payload)
        return (renamed(objects, self.table.fields) if self.table.fields else objects), unread

    @property
    def late(self) -> bool:
        """Whether it has nothing yet, but may have more, and has not been silent for long."""
        if self.left or self.ended or self.source.lag == 0:
            self._silent = None
            return False
        self._silent = time.monotonic() if self._silent is None else self._silent
        return time.monotonic() - self._silent < PATIENCE

    def take(self, most: int, merged: Merged) -> None:
        """Take so many messages at most."""
        messages = self._messages
        assert messages is not None
        end = min(self._taken + most, len(messages.payloads))
        for at in range(self._taken, end):
            objects, unread = self._first or self._records(messages.payloads[at])
            self._first = None
            merged.objects += objects
            merged.origins += [(self.table, messages.places[at])] * len(objects)
            merged.lost += [Lost(self.table, messages.places[at], part) for part in unread]
        self.left -= end - self._taken
        self._taken = end
        self._look()

    def finish(self, merged: Merged) -> None:
        """All is taken that one transaction takes: put in how far that is, and of messages that are done what was bad."""
        messages = self._messages
        if messages is None or (self.left and not self._taken):
            return
        if not self.left:
            merged.lost += [Lost(self.table, bad.place, Unread(bad.why, bad.start)) for bad in messages.bad]
        if bool(self.left) != self._written:
            bad = [(bad.place, bad.why, bad.start) for bad in messages.bad]
            rest = msgspec.msgpack.encode((messages.payloads, messages.places, bad)) if self.left else b""
            merged.documents[MESSAGES + self.table.name] = rest
            self._written = bool(self.left)
        taken = self._taken if self.left else 0
        offset = json.dumps({"after": messages.offset.decode(), "taken": taken}).encode()
        if offset != self._kept:
            merged.documents[OFFSET + self.table.name] = self._kept = offset

    def committed(self) -> None:
        """What was taken is kept: messages that are done are acknowledged."""
        if self._messages is not None and not self.left:
            self.source.acknowledge(self._messages)
            self._messages = None


class Merge:
    """The streams of a configuration as one. ``times`` gives the times of objects."""

    def __init__(self, streams: list[Stream], times: Times) -> None:
        self.streams = streams
        for stream in streams if len(streams) > 1 else ():
            stream.times = times

    @property
    def ended(self) -> bool:
        """Whether no more will come."""
        return all(stream.ended and not stream.left for stream in self.streams)

    @property
    def behind(self) -> bool:
        """Whether there is more than has been read, as far as is known."""
        return any(stream.left or (stream.source.lag or 0) > 0 for stream in self.streams if not stream.ended)

    def next(self, most: int, wait: float) -> Merged:
        """Up to so many messages in order. Empty if none comes within ``wait`` seconds. Commit it before the next."""
        merged, live = Merged(), self._live(most, wait)
        if len(live) == 1:
            live[0].take(most, merged)
        for _ in range(most if len(live) > 1 else 0):
            first = min(live, key=lambda stream: stream.time)
            first.take(1, merged)
            if not first.left:  # what was taken is committed before more of it is read
                break
        for stream in self.streams:
            stream.finish(merged)
        return merged

    def _live(self, most: int, wait: float) -> list[Stream]:
        """The streams that have something; none while one that has nothing is waited for."""
        streams = [stream for stream in self.streams if stream.left or not stream.ended]
        live = [stream for stream in streams if stream.fill(most, 0.0)]
        late = [stream for stream in streams if stream.late]
        if live and not late:
            return live
        for stream in late if live else streams:
            stream.fill(most, wait / len(streams))
        return [] if any(stream.late for stream in streams) else [stream for stream in streams if stream.left]

    def committed(self) -> None:
        """What came last is kept."""
        for stream in self.streams:
            stream.committed()
