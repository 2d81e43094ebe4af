"""Files and pipes as sources, one line one payload; the follower and the reader of pipes are those of ``reading``."""

from __future__ import annotations

import time
from functools import partial

from streamcal.monitor.sources.source import Messages, Source, decoded, encoded, tries
from streamcal.reading import SourceError
from streamcal.reading.lines import LONGEST, ROOM, Lines, Pipe, Unreadable, payloads
from streamcal.reading.rotation import Follower
from streamcal.reading.waiting import Stop

FILE_POLL, PIPE_POLL = 0.1, 0.05  # seconds between two looks: at a file's size, and at whether it is time to stop


class FileSource(Source):
    r"""The lines of a file; with `follow` it waits at the end for more, without it ends there.

    It goes on through rotation and cuts, and says what happened, as :class:`streamcal.reading.rotation.Follower` does.
    A line above 16 MB is handed out as bad, never held in memory.

    >>> import tempfile, pathlib
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "events.jsonl")
    >>> _ = path.write_bytes(b'{"id": 1}\n{"id": 2}\n')
    >>> source = FileSource(str(path), follow=False)
    >>> source.begin(None)
    >>> messages = source.read(1, wait=0)
    >>> messages.payloads, messages.ended
    ([b'{"id": 1}'], False)
    >>> again = FileSource(str(path), follow=False)
    >>> again.begin(messages.offset)
    >>> again.read(10, wait=0).payloads, again.read(10, wait=0).ended
    ([b'{"id": 2}'], True)
    """

    def __init__(self, path: str, follow: bool, stop: Stop | None = None, longest: int = LONGEST) -> None:
        self.path, self.follow = path, follow
        self.stop = stop or Stop()
        self._file = Follower(path, partial(Lines, longest=longest), follow)

    @property
    def counts(self) -> dict[str, int]:
        """How often it had to start anew."""
        return {"restarts": self._file.restarts}

    def begin(self, offset: bytes | None) -> None:
        """Go to the place that messages gave; None: to the start. SourceError if it is not there and not to be followed."""
        if offset is None:
            return self._file.begin()
        kept = decoded(offset, "file", self.path)
        self._file.restarts = kept["counts"]["restarts"]
        return self._file.begin(kept["mark"], kept["path"])

    def read(self, most: int, wait: float) -> Messages:
        """At most so many lines: what is there, or what comes within `wait` seconds."""
        reader, end = self._file, time.monotonic() + wait
        while True:
            while not reader.ready and not self.stop.asked and reader.advance():
                pass
            left = end - time.monotonic()
            if reader.ready or reader.ended or left <= 0.0 or self.stop.asked:
                break
            self.stop.wait(min(FILE_POLL, left))
        notes, reader.notes = reader.notes, []
        file, given, places, bad = reader.file, list[bytes](), list[str](), list[Unreadable]()
        if file is not None:
            line = file.lines.line
            given, places, bad = payloads(file.lines.take(most, ROOM), file.path, line)
        offset = {"kind": "file", "path": self.path, "mark": reader.mark(), "counts": self.counts}
        return Messages(given, places, encoded(offset).encode(), reader.ended and not reader.ready, bad, notes)

    def acknowledge(self, messages: Messages) -> None:
        """Nothing to do: a file keeps no account of its readers."""

    @property
    def lag(self) -> int | None:
        """Bytes that are there and not yet given, of the file being read; None for gzip."""
        file = self._file.file
        return None if file is None or file.packed else max(0, file.size - file.lines.place)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class PipeSource(Source):
    """The lines of standard input (path "-") or of a named pipe.

    What was read from a pipe is gone: after a restart the numbers of lines go on, but what was on the way is lost, and the
    writer must send again what was not kept (a file, Kafka or Redis needs no such care). A last line without an end counts.
    A line above 16 MB is handed out as bad. A thread reads at most 16 MB ahead, then the writer has to wait.
    """

    def __init__(self, path: str, stop: Stop | None = None, longest: int = LONGEST) -> None:
        self.name = "stdin" if path == "-" else path
        self.pipe = Pipe(path)
        self.stop = stop or Stop()
        self.counts: dict[str, int] = {}
        self._lines = Lines(longest=longest)
        self._ended = False

    def begin(self, offset: bytes | None) -> None:
        """Start to read; with an offset the lines are numbered on from there, as nothing can be read again."""
        if offset is not None:
            self._lines.line = decoded(offset, "pipe", self.name)["line"]
        self.pipe.start()

    def read(self, most: int, wait: float) -> Messages:
        """At most so many lines: what is there, or what comes within `wait` seconds."""
        for left in tries(self.stop, wait, 0.0):
            self._receive(min(left, PIPE_POLL))
            if self._lines.ready or self._ended:
                break
        line = self._lines.line
        given, places, bad = payloads(self._lines.take(most, ROOM), self.name, line)
        offset = encoded({"kind": "pipe", "line": self._lines.line}).encode()
        return Messages(given, places, offset, self._ended and not self._lines.ready, bad)

    def _receive(self, wait: float) -> None:
        while not self._lines.ready and not self._ended:
            try:
                data = self.pipe.more(wait)
            except SourceError as error:
                raise SourceError(f"{self.name}: {error}") from None
            if data is None:
                self._lines.end()
                self._ended = True
            elif data:
                self._lines.add(data)
            else:
                return
