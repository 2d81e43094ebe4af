"""A pipe as a feed, one line one payload: standard input, or a named pipe."""

from __future__ import annotations

import queue
import threading

from streamcal.monitor.sources.source import Block, decoded, encoded, tries
from streamcal.reading import SourceError
from streamcal.reading.lines import LONGEST, ROOM, Lines, payloads
from streamcal.reading.tables import reader
from streamcal.reading.waiting import Stop

PIECE = 1 << 18
POLL = 0.05


class PipeFeed:
    """The lines of standard input (path "-") or of a named pipe.

    What was read from a pipe is gone: after a restart the numbers of lines go on, but what was on the way is lost, and the
    writer must send again what was not kept (a file, Kafka or Redis needs no such care). A last line without an end counts.
    A line above 16 MB is handed out as bad. A thread reads at most 16 MB ahead, then the writer has to wait.
    """

    def __init__(self, path: str, stop: Stop | None = None, longest: int = LONGEST) -> None:
        self.path, self.name = path, "stdin" if path == "-" else path
        self.stop = stop or Stop()
        self.counts: dict[str, int] = {}
        self._lines = Lines(longest=longest)
        self._arrived: queue.Queue[bytes | OSError] = queue.Queue(ROOM // PIECE)
        self._ended = False

    def begin(self, offset: bytes | None) -> None:
        """Start to read; with an offset the lines are numbered on from there, as nothing can be read again."""
        if offset is not None:
            self._lines.line = decoded(offset, "pipe", self.name)["line"]
        threading.Thread(target=_pump, args=(self.path, self._arrived), daemon=True).start()

    def read(self, most: int, wait: float) -> Block:
        """At most so many lines: what is there, or what comes within `wait` seconds."""
        for left in tries(self.stop, wait, 0.0):
            self._receive(min(left, POLL))
            if self._lines.ready or self._ended:
                break
        line = self._lines.line
        given, places, bad = payloads(self._lines.take(most, ROOM), self.name, line)
        offset = encoded({"kind": "pipe", "line": self._lines.line})
        return Block(given, places, offset, self._ended and not self._lines.ready, bad)

    def acknowledge(self, block: Block) -> None:
        """Nothing to do: nobody keeps an account."""

    @property
    def lag(self) -> int | None:
        """None: nobody knows what is in a pipe."""
        return None

    def close(self) -> None:
        """Nothing to do: the thread ends with the pipe, or with the process."""

    def _receive(self, wait: float) -> None:
        while not self._lines.ready and not self._ended:
            try:
                data = self._arrived.get(timeout=wait) if wait > 0 else self._arrived.get_nowait()
            except queue.Empty:
                return
            if isinstance(data, OSError):
                raise SourceError(f"{self.name}: {data.strerror or data}")
            if data:
                self._lines.add(data)
            else:
                self._lines.end()
                self._ended = True


def _pump(path: str, arrived: queue.Queue[bytes | OSError]) -> None:
    try:
        read = reader(path)
        while data := read(PIECE):
            arrived.put(data)
        arrived.put(b"")
    except OSError as error:
        arrived.put(error)
