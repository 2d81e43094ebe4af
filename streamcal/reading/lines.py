"""A pipe -> pieces of bytes; pieces -> lines; lines -> payloads. Never holds more than the longest line allowed."""

from __future__ import annotations

import io
import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import BinaryIO

from streamcal.reading import SourceError

ROOM = 16 << 20  # bytes: a block of a file or a pipe is not larger, but for its last payload
LONGEST = 16 << 20  # bytes of a line: a longer one is no message, and would fill the memory
SAMPLE = 1024  # bytes of a line that is too long which are shown
PIECE = 1 << 18  # bytes asked of a pipe at once
TAIL = 64  # bytes before a place that tell whether it is still in the same text
BOM = b"\xef\xbb\xbf"


class Pipe:
    """Standard input (path "-") or a named pipe, read ahead by a thread: a silent pipe blocks neither the clock nor a signal.

    At most 16 MB are read ahead, then the writer has to wait.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.arrived: queue.Queue[bytes | BaseException] = queue.Queue(ROOM // PIECE)

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._pump, daemon=True).start()

    def _pump(self) -> None:
        try:
            read = reader(self.path)
            while data := read(PIECE):
                self.arrived.put(data)
            self.arrived.put(b"")
        except BaseException as error:  # whatever it is: who waits for more must hear of it
            self.arrived.put(error)

    def more(self, wait: float) -> bytes | None:
        """What came next, within so many seconds; b"" if nothing did, None at the end. SourceError if it cannot be read."""
        try:
            data = self.arrived.get(timeout=wait) if wait > 0 else self.arrived.get_nowait()
        except queue.Empty:
            return b""
        if isinstance(data, OSError):
            raise SourceError(data.strerror or str(data))
        if isinstance(data, BaseException):
            raise data
        return data or None


def reader(path: str) -> Callable[[int], bytes]:
    """Reads what is there, unbuffered: a thread waiting inside a buffered reader makes Python abort when it exits."""
    if path != "-":
        return io.FileIO(path).read
    there = standard_input()
    try:
        return io.FileIO(there.fileno(), closefd=False).read
    except io.UnsupportedOperation:  # a stand-in without a file descriptor
        return there.read


def standard_input() -> BinaryIO:
    """Its bytes; SourceError if it is closed, as services and cron have it."""
    if sys.stdin is None:
        raise SourceError("is closed; give a file or a pipe")
    return sys.stdin.buffer


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What came but cannot be handed on as a payload: where, why, and how it begins (at most 1 kB)."""

    place: str
    why: str
    start: bytes


@dataclass(frozen=True, slots=True)
class Long:
    """A line that is too long: how it begins, and its length."""

    start: bytes
    size: int

    def __len__(self) -> int:
        return self.size


class Lines:
    r"""Cuts bytes into lines, however they come in pieces. ``place`` and ``line``: bytes and lines that were taken; ``begun``:
    bytes of a line that has not ended.

    >>> lines = Lines()
    >>> for piece in (b"one\ntw", b"o\nthr"):
    ...     lines.add(piece)
    >>> lines.take(10), lines.place, lines.line
    ([b'one', b'two'], 8, 2)
    """

    def __init__(self, place: int = 0, line: int = 0, longest: int = LONGEST) -> None:
        self.place, self.line, self.longest = place, line, longest
        self.tail = b""  # the last bytes that were taken
        self._ready: list[bytes | Long] = []
        self._next = 0
        self._parts: list[bytes] = []
        self.begun = 0
        self._torn = False

    @property
    def ready(self) -> bool:
        """Whether there is a whole line."""
        return self._next < len(self._ready)

    @property
    def unended(self) -> bytes:
        """What there is of a line that has not ended; its start, if it is too long."""
        return b"".join(self._parts)

    def add(self, data: bytes) -> None:
        """More bytes."""
        first, *others = data.split(b"\n")
        self._hold(first)
        if others:
            self._finish()
            last = others.pop()
            if len(data) > self.longest:
                self._ready += [x if len(x) <= self.longest else Long(x[:SAMPLE], len(x)) for x in others]
            else:
                self._ready += others
            self._hold(last)

    def end(self) -> None:
        """No more will come: what is there is the last line."""
        if self.begun:
            self._finish()
            self._torn = True

    def take(self, most: int = sys.maxsize, room: int = ROOM) -> list[bytes | Long]:
        """At most so many lines, and of so many bytes unless the first is longer."""
        taken = self._ready[self._next : self._next + most]
        size = sum(map(len, taken))
        if size > room:
            taken = taken[: max(1, sum(1 for total in accumulate(map(len, taken)) if total <= room))]
            size = sum(map(len, taken))
        self._next += len(taken)
        self.place += size + len(taken)
        self.line += len(taken)
        if taken:
            last = taken[-1]
            ended = self.ready or not self._torn
            self.place -= not ended
            self.tail = b"" if isinstance(last, Long) else (last[-TAIL:] + b"\n" * ended)[-TAIL:]
        if not self.ready:
            self._ready, self._next = [], 0
        return taken

    def _hold(self, piece: bytes) -> None:
        if piece:
            self.begun += len(piece)
            if self.begun <= self.longest:
                self._parts.append(piece)
            else:  # its start is enough: a line without an end must not fill the memory
                self._parts = [b"".join([*self._parts, piece])[:SAMPLE]]

    def _finish(self) -> None:
        line = self.unended
        self._ready.append(line if self.begun <= self.longest else Long(line, self.begun))
        self._parts, self.begun = [], 0


def payloads(lines: Lines, most: int, name: str) -> tuple[list[bytes], list[str], list[Unreadable]]:
    r"""At most so many lines are taken: payloads, their places, and what is too long. Blank lines are nothing.

    Before line 1 a mark of UTF-8 is taken off, and zeros, with which a file begins that was cut while its writer goes on at its
    old place.

    >>> lines = Lines()
    >>> lines.add(b"{}\r\n\n[]\n")
    >>> payloads(lines, 10, "a.jsonl")
    ([b'{}', b'[]'], ['a.jsonl line 1', 'a.jsonl line 3'], [])
    """
    bad: list[Unreadable] = []
    given: list[bytes] = []
    places: list[str] = []
    first = lines.line + 1
    for number, item in enumerate(lines.take(most), first):
        if isinstance(item, Long):
            bad.append(Unreadable(f"{name} line {number}", f"a line of {len(item)} bytes is too long", item.start))
            continue
        text = item.removesuffix(b"\r")
        if number == 1:
            text = text.removeprefix(BOM).lstrip(b"\0")
        if text and not text.isspace():
            given.append(text)
            places.append(f"{name} line {number}")
    return given, places, bad
