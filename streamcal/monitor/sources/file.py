"""Files and pipes as sources, one line one payload; the follower and the reader of pipes are those of ``reading``."""

from __future__ import annotations

from streamcal.monitor.sources.source import Messages, Source, decoded, encoded
from streamcal.reading import SourceError
from streamcal.reading.lines import LONGEST, Lines, Pipe, payloads
from streamcal.reading.rotation import Follower
from streamcal.reading.waiting import Stop

POLL = 0.05  # seconds between two looks at whether it is time to stop


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
        self.path, self.follow, self.stop = path, follow, stop or Stop()
        self._file = Follower(path, follow, longest)

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
        reader = self._file
        reader.wait(wait, self.stop)
        notes, reader.notes = reader.notes, []
        file = reader.file
        given, places, bad = payloads(file.lines, most, file.path) if file is not None else ([], [], [])
        offset = encoded(kind="file", path=self.path, mark=reader.mark(), counts={"restarts": reader.restarts})
        return Messages(given, places, offset, reader.ended and not reader.ready, bad, notes)

    @property
    def lag(self) -> int | None:
        """Bytes that are there and not yet given, of the file being read; None for gzip."""
        file = self._file.file
        return None if file is None or file.packed else max(0, file.stat.st_size - file.lines.place)

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
        for left in self.stop.tries(wait):
            self._receive(min(left, POLL))
            if self._lines.ready or self._ended:
                break
        given, places, bad = payloads(self._lines, most, self.name)
        offset = encoded(kind="pipe", line=self._lines.line)
        return Messages(given, places, offset, self._ended and not self._lines.ready, bad)

    def _receive(self, wait: float) -> None:
        while not self._lines.ready and not self._ended:
            try:
                data = self.pipe.more(wait)
            except SourceError as error:
                raise SourceError(f"{self.name}: {error}") from None
            if data == b"":
                return
            if data is None:
                self._lines.end()
                self._ended = True
            else:
                self._lines.add(data)
