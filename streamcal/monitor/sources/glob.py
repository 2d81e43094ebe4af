"""All files whose names fit a pattern as one source: those that are there in order of name, then what is added to any of them.

A file is known by its inode and by what is in it, wherever a rotation takes it: so a pattern may match rotated files as well, and
none is read twice. One file is open at a time, so thousands may match.
"""

from __future__ import annotations

import contextlib
import glob
import os
import time
from typing import Any

from streamcal.monitor.sources.source import Messages, Source, decoded, encoded
from streamcal.reading import AwayError
from streamcal.reading.lines import LONGEST, Lines, payloads
from streamcal.reading.rotation import ENOUGH, Follower, OpenFile, is_rotated
from streamcal.reading.waiting import Stop

LOOK = 1.0  # seconds between two looks at which files there are: a thousand take some milliseconds
POLL = 0.1  # seconds between two looks at whether it is time to stop
KINDS = ("files", "file")  # of offsets: a pattern may take the place of the name of one file

Mark = dict[str, Any]
Seen = tuple[int, int, int]  # inode, bytes, time of the last write


def is_pattern(path: str) -> bool:
    """Whether a path is a pattern: it holds * ? or [, and no file has this very name."""
    return glob.has_magic(path) and not os.path.lexists(path)


class GlobSource(Source):
    """The lines of all files that match; with ``follow`` also of what is added to them, and of files that come later.

    Without ``follow`` a pattern that matches nothing is an AwayError. A file that was cut or written anew is read from its start,
    which is said in ``notes`` and counted in ``restarts``. Files in gzip are read once they are complete: while the plain file is
    beside them it is the one that counts. The offset holds about 250 bytes for each file that is there.
    """

    def __init__(self, pattern: str, follow: bool, stop: Stop | None = None, longest: int = LONGEST) -> None:
        self.pattern, self.follow, self.stop, self.longest = pattern, follow, stop or Stop(), longest
        self.counts = {"restarts": 0}
        self._marks: dict[str, Mark | None] = {}  # by path: how far each file was taken; None: not at all yet
        self._seen: dict[str, Seen] = {}  # how each file was when it had been read to its end
        self._due: list[str] = []  # files that have more than was read, in order of name
        self._file: OpenFile | None = None  # that is being read
        self._looked = -LOOK
        self._notes: list[str] = []
        self._said = False

    def begin(self, offset: bytes | None) -> None:
        """Go to the place that messages gave; None: to the start."""
        if offset is not None:
            kind = "file" if b'"kind":"file"' in offset[:20] else "files"
            kept = decoded(offset, kind, self.pattern)
            self._marks = {kept["path"]: kept["mark"]} if kind == "file" else dict(kept["files"])
            self.counts.update(kept["counts"])
        self._look()
        if not self._marks and not self.follow:
            raise AwayError(f"{self.pattern}: no file matches")

    def read(self, most: int, wait: float) -> Messages:
        """At most so many lines: what is there, or what comes within `wait` seconds."""
        ended = False
        for left in self.stop.tries(wait):
            while not (self._file and self._file.lines.ready) and (self._file or self._open()):
                self._advance()
            if self._file is not None:
                break
            if ended := not self.follow:
                break
            self.stop.wait(min(left, POLL))
        file = self._file
        given, places, bad = payloads(file.lines, most, file.path) if file else ([], [], [])
        if file:
            self._marks[file.path] = file.mark()
        notes, self._notes = self._notes, []
        offset = encoded(kind="files", files=self._marks, counts=self.counts)
        return Messages(given, places, offset, ended, bad, notes)

    @property
    def lag(self) -> int | None:
        """Bytes that are there and not yet given, as of the last look; None while a file in gzip is read."""
        if self._file is not None and self._file.packed:
            return None
        left = 0
        for path in self._due:
            with contextlib.suppress(OSError):
                left += max(os.stat(path).st_size - (self._marks.get(path) or {"place": 0})["place"], 1)
        return left + (0 if self._file is None else self._file.stat.st_size - self._file.lines.place)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _look(self) -> None:
        """Which files there are, where those that are known are now, and which have more."""
        self._looked = time.monotonic()
        there = self._matching()
        paths = {seen[0]: path for path, seen in there.items()}
        marks: dict[str, Mark | None] = {}
        rest: list[str] = []  # of files that match no longer
        for path, mark in self._marks.items():
            if mark is None:
                continue
            now = path if path in there and there[path][0] == mark["inode"] else paths.get(mark["inode"])
            if now is None and (found := Follower(path, longest=self.longest).found(mark)) is not None:
                now = found.path
                mark |= {"inode": found.inode}
                rest += [now] if now not in there and found.more(1) else []
                found.close()
            if now in there or now in rest:
                marks[str(now)] = mark
            elif path in there:  # another file, of another beginning
                marks[path] = mark
        marks |= {path: copied for path in there if path not in marks and (copied := self._copied(path))}
        self._marks = {**{path: marks.get(path) for path in there}, **{path: marks[path] for path in rest}}
        self._seen = {path: seen for path, seen in self._seen.items() if there.get(path) == seen}
        self._due = [*rest, *(path for path in there if path not in self._seen)]
        if not there and not self._said:
            self._notes.append(f"{self.pattern}: no file matches yet, waiting for one")
        self._said = not there

    def _copied(self, path: str) -> Mark | None:
        """Of a new file that rotation made as a copy of one that was read (in gzip, or before that was cut): how far that was."""
        for known, mark in self._marks.items():
            packed = path == known + ".gz"
            if mark and mark["head"][0] >= ENOUGH and (packed or is_rotated(path, known)):
                with contextlib.suppress(FileNotFoundError), contextlib.closing(OpenFile(path, self._lines())) as file:
                    if file.fits(mark):
                        return {**mark, "inode": file.inode}
        return None

    def _matching(self) -> dict[str, Seen]:
        """The files that match, in order of name."""
        found: dict[str, Seen] = {}
        for path in sorted(glob.glob(self.pattern, recursive=True)):
            with contextlib.suppress(OSError):  # gone meanwhile
                now = os.stat(path)
                found[path] = now.st_ino, now.st_size, now.st_mtime_ns
        return {
            path: seen for path, seen in found.items() if path.removesuffix(".gz") not in found or path[-3:] != ".gz"
        }

    def _open(self) -> bool:
        """Open the next file that has more; whether there is one."""
        if not self._due and self.follow and time.monotonic() - self._looked >= LOOK:
            self._look()
        while self._due:
            path = self._due.pop(0)
            mark = self._marks.get(path)
            try:
                file = OpenFile(path, Lines(mark["place"], mark["line"], self.longest) if mark else self._lines())
                if mark and not file.fits(mark):
                    file.close()
                    file = OpenFile(path, self._lines())
                    self.counts["restarts"] += 1
                    was = f"the file that was read up to line {mark['line']} was cut or written anew"
                    self._notes.append(f"{path}: {was}; it is read from its start")
            except FileNotFoundError:
                continue
            self._file = file
            return True
        return False

    def _lines(self) -> Lines:
        return Lines(longest=self.longest)

    def _advance(self) -> None:
        """Read on in the open file; at its end let go of it."""
        file = self._file
        assert file is not None
        now = file.stat
        data = file.more()
        if data is None:  # cut while it was read: once more, from its start
            self._due.insert(0, file.path)
        elif data:
            file.lines.add(data)
            return
        elif file.lines.begun and (file.packed or not self.follow):
            file.lines.end()
            return
        else:
            self._seen[file.path] = now.st_ino, now.st_size, now.st_mtime_ns
        self._marks[file.path] = file.mark()
        self.close()
