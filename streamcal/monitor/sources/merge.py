"""Several sources, one order: by event time as far as it is known, so that labels and predictions meet as they did in life.

Each source is a queue of payloads. The next is the one with the smallest time among the queues; a queue that is empty is
filled first, waited for while it may have more than it gave, and left out while nothing comes.

How far a source has been taken is the offset after the block that is being taken, and how many payloads of it. The rest of a
block that is taken in several batches is kept in the first of them: after a restart another reading of the source might give
other messages in its place (several partitions, a trimmed stream, a pipe).
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from streamcal.monitor.config.settings import Source
from streamcal.monitor.messages import Unread, records
from streamcal.monitor.monitor import Lost
from streamcal.monitor.sources.source import Block, Feed
from streamcal.reading import SourceError
from streamcal.reading.lines import Unreadable

Times = Callable[[Sequence[dict[str, Any]]], list[float]]
Kept = Callable[[str], bytes | None]
OFFSET, BLOCK = "offset/", "block/"  # and the name of the source: its documents
PATIENCE = 2.0  # seconds that a source which may have more holds up the others


@dataclass
class Payload:
    """A message, read: its objects, what of it was lost, and the time by which it is ordered."""

    objects: list[dict[str, Any]]
    lost: list[Lost]
    time: float
    place: str


@dataclass
class Batch:
    """What one transaction takes: objects in order and where each is from, what was lost, and documents of the sources."""

    objects: list[dict[str, Any]] = field(default_factory=list)
    origins: list[tuple[Source, str]] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    documents: dict[str, bytes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.objects or self.lost or self.documents)


class Stream:
    """One source while it is read. ``kept`` gives its documents as they were kept, None for those that were not."""

    def __init__(self, source: Source, feed: Feed, kept: Kept) -> None:
        self.source, self.feed = source, feed
        self.queue: deque[Payload] = deque()
        self.ended = False
        self.notes: list[str] = []
        self._kept = kept(OFFSET + source.name)
        after, self._rest = _were(source.name, self._kept, kept(BLOCK + source.name))
        self._block: Block | None = None  # that is being taken
        self._taken = 0  # payloads of it
        self._written = False  # whether it is kept
        self._front = -math.inf
        self._silent: float | None = None  # since when it is waited for
        feed.begin(after)

    def fill(self, most: int, wait: float, times: Times | None) -> bool:
        """Read a block if the queue is empty; whether something is there. Without ``times`` the order is not looked at."""
        if self.queue or self.ended or (self._block is not None and (self._block.payloads or self._block.bad)):
            return bool(self.queue)
        self._written = self._rest is not None
        if self._rest is not None:
            (self._block, self._taken), self._rest = self._rest, None
        else:
            self._block, self._taken = self.feed.read(most, wait), 0
            self.ended = self._block.ended
        self.notes += self._block.notes
        for place, payload in zip(self._block.places[self._taken :], self._block.payloads[self._taken :], strict=True):
            self.queue.append(self._read(place, payload, times))
        return bool(self.queue)

    def _read(self, place: str, payload: bytes, times: Times | None) -> Payload:
        objects, unread = records(payload)
        if times is not None:
            self._front = max(times(objects), default=self._front)
        return Payload(objects, [Lost(self.source, place, part) for part in unread], self._front, place)

    @property
    def late(self) -> bool:
        """Whether it has nothing yet, but may have more, and has not been silent for long."""
        if self.queue or self.ended or self.feed.lag == 0:
            self._silent = None
            return False
        self._silent = time.monotonic() if self._silent is None else self._silent
        return time.monotonic() - self._silent < PATIENCE

    def take(self, batch: Batch) -> None:
        """Move the first payload of the queue into a batch."""
        first = self.queue.popleft()
        batch.objects += first.objects
        batch.origins += [(self.source, first.place)] * len(first.objects)
        batch.lost += first.lost
        self._taken += 1

    def finish(self, batch: Batch) -> None:
        """A batch is whole: put in how far it takes this stream, and what a block that is done had lost itself."""
        block = self._block
        if block is None or (self.queue and not self._taken):
            return
        if not self.queue:
            batch.lost += [Lost(self.source, bad.place, Unread(bad.why, bad.start)) for bad in block.bad]
        if bool(self.queue) != self._written:
            batch.documents[BLOCK + self.source.name] = _packed(block) if self.queue else b""
            self._written = bool(self.queue)
        taken = self._taken if self.queue else 0
        offset = json.dumps({"after": block.offset.decode(), "taken": taken}).encode()
        if offset != self._kept:
            batch.documents[OFFSET + self.source.name] = self._kept = offset

    def committed(self) -> None:
        """What was taken is kept: a block that is done is acknowledged."""
        if self._block is not None and not self.queue:
            self.feed.acknowledge(self._block)
            self._block = None


def _were(name: str, offset: bytes | None, block: bytes | None) -> tuple[bytes | None, tuple[Block, int] | None]:
    """Where a feed goes on, and the block that was begun, with how much of it was taken. SourceError if that cannot be read."""
    if offset is None:
        return None, None
    try:
        was = json.loads(offset)
        after: bytes = was["after"].encode()
        return after, (_unpacked(block or b"", was["after"]), int(was["taken"])) if was["taken"] else None
    except (ValueError, TypeError, LookupError, AttributeError, msgspec.MsgspecError) as error:
        raise SourceError(f"source {name}: its offset in the state is damaged ({error!r:.100})") from None


def _packed(block: Block) -> bytes:
    bad = [(bad.place, bad.why, bad.start) for bad in block.bad]
    return msgspec.msgpack.encode((block.payloads, block.places, bad))


def _unpacked(data: bytes, offset: str) -> Block:
    payloads, places, bad = msgspec.msgpack.decode(data)
    return Block(payloads, places, offset.encode(), bad=[Unreadable(*parts) for parts in bad])


class Merge:
    """The streams of a configuration as one. ``times`` gives the times of objects."""

    def __init__(self, streams: list[Stream], times: Times) -> None:
        self.streams = streams
        self.times = times if len(streams) > 1 else None

    @property
    def ended(self) -> bool:
        """Whether no more will come."""
        return all(stream.ended and not stream.queue for stream in self.streams)

    @property
    def behind(self) -> bool:
        """Whether there is more than has been read, as far as is known."""
        return any(stream.queue or (stream.feed.lag or 0) > 0 for stream in self.streams if not stream.ended)

    def batch(self, most: int, wait: float) -> Batch:
        """Up to so many payloads in order. Empty if nothing comes within ``wait`` seconds. Commit it before the next."""
        batch, live = Batch(), self._live(most, wait)
        for _ in range(most if live else 0):
            first = min(live, key=lambda stream: stream.queue[0].time) if len(live) > 1 else live[0]
            first.take(batch)
            if not first.queue:  # its block is committed before the next is read
                break
        for stream in self.streams:
            stream.finish(batch)
        return batch

    def _live(self, most: int, wait: float) -> list[Stream]:
        """The streams that have something; none while one that has nothing is waited for."""
        streams = [stream for stream in self.streams if stream.queue or not stream.ended]
        live = [stream for stream in streams if stream.fill(most, 0.0, self.times)]
        late = [stream for stream in streams if stream.late]
        if live and not late:
            return live
        for stream in late if live else streams:
            stream.fill(most, wait / len(streams), self.times)
        return [] if any(stream.late for stream in streams) else [stream for stream in streams if stream.queue]

    def committed(self) -> None:
        """The last batch is kept."""
        for stream in self.streams:
            stream.committed()
