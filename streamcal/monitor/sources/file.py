"""A file as a feed, one line one payload: followed as it grows, is rotated, or is cut."""

from __future__ import annotations

import os
from typing import Any

from streamcal.monitor.sources.source import Block, decoded, encoded, tries
from streamcal.reading import SourceError
from streamcal.reading.lines import LONGEST, ROOM, payloads
from streamcal.reading.rotation import NONE, OpenFile, first_of, found, newer
from streamcal.reading.waiting import Stop

POLL = 0.1
NEVER = 1 << 63  # a time that does not come


class FileFeed:
    r"""The lines of a file; with `follow` it waits at the end for more, without it ends there.

    Rotation: of a file that was renamed the rest is read first, then whatever came and went since, then the new one. That
    holds also when it happened while nobody looked: the file is found beside by its inode, or by its first and last
    bytes (a copy, also in gzip). A file that is empty is taken as not yet in use, so the old one is kept until then.
    A file that was cut or written anew is read from its start; that is said and counted as ``restarts``.

    A last line without an end waits for its end if the file is followed; it counts if not, or if the file was rotated.
    A file in gzip ends at its end. A line above 16 MB is handed out as bad, never held in memory.
    Limits: lines written by several processes into the old and the new file at once are seen only until the switch; of
    two files that were last written in the same tick of the file system's clock the one in between can be missed; files that
    came and went are known by names that end in a number or date (.1, -20261130, .2.gz); a file that was copied and cut
    before anything of it was read is found only so; standing in for a file, a link is followed, but not to other folders.

    >>> import tempfile, pathlib
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "events.jsonl")
    >>> _ = path.write_bytes(b'{"id": 1}\n{"id": 2}\n')
    >>> feed = FileFeed(str(path), follow=False)
    >>> feed.begin(None)
    >>> block = feed.read(1, wait=0)
    >>> block.payloads, block.ended
    ([b'{"id": 1}'], False)
    >>> again = FileFeed(str(path), follow=False)
    >>> again.begin(block.offset)
    >>> again.read(10, wait=0).payloads, again.read(10, wait=0).ended
    ([b'{"id": 2}'], True)
    """

    def __init__(self, path: str, follow: bool, stop: Stop | None = None, longest: int = LONGEST) -> None:
        self.path, self.follow, self.longest = path, follow, longest
        self.stop = stop or Stop()
        self.counts = {"restarts": 0}
        self._file: OpenFile | None = None
        self._mark: dict[str, Any] | None = None
        self._notes: list[str] = []
        self._said = False
        self._ended = False

    def begin(self, offset: bytes | None) -> None:
        """Go to the place that a block gave; None: to the start. SourceError if it is not there and not to be followed."""
        if offset is not None:
            kept = decoded(offset, "file", self.path)
            self.counts.update(kept["counts"])
            self._mark = kept["mark"]
            if (
                self._mark and kept["path"] != self.path
            ):  # what is beside the new path has nothing to do with the old one
                self._mark |= {"inode": NONE, "written": NEVER}
        if not self._open() and not self.follow:
            raise SourceError(f"{self.path}: No such file")

    def read(self, most: int, wait: float) -> Block:
        """At most so many lines: what is there, or what comes within `wait` seconds."""
        for _ in tries(self.stop, wait, POLL):
            while not self._ready() and not self.stop.is_set() and self._advance():
                pass
            if self._ready() or self._ended:
                break
        return self._block(most)

    def acknowledge(self, block: Block) -> None:
        """Nothing to do: a file keeps no account of its readers."""

    @property
    def lag(self) -> int | None:
        """Bytes that are there and not yet given, of the file being read; None for gzip."""
        if self._file is None or self._file.packed:
            return None
        return max(0, self._file.size - self._file.lines.place)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _ready(self) -> bool:
        return self._file is not None and self._file.lines.ready

    def _block(self, most: int) -> Block:
        notes, self._notes = self._notes, []
        file = self._file
        if file is None:
            return Block([], [], self._offset(), self._ended, notes=notes)
        line = file.lines.line
        given, places, bad = payloads(file.lines.take(most, ROOM), file.path, line)
        ended = self._ended and not file.lines.ready
        return Block(given, places, self._offset(), ended, bad, notes)

    def _offset(self) -> bytes:
        mark = self._mark if self._file is None else self._file.mark()
        return encoded({"kind": "file", "path": self.path, "mark": mark, "counts": self.counts})

    def _advance(self) -> bool:
        """Read on; False if there is nothing to read now."""
        if self._ended:
            return False
        if self._file is None:
            return self._open()
        data = self._file.more()
        if data is None:
            self._mark = self._file.mark()
            self.close()
            return self._open()
        if data:
            self._file.lines.add(data)
            return True
        return self._at_end(self._file)

    def _newer(self, file: OpenFile) -> list[str]:
        return newer(self.path, file.changed_ns, file.inode, file.head)

    def _open(self) -> bool:
        """Open the file that the mark says, or the first one written since; False if there is none."""
        names = [self.path]
        if (mark := self._mark) is not None:
            self._file = found(self.path, mark, self.longest)
            names = [*newer(self.path, mark["written"], mark["inode"]), self.path]
        if self._file is None and (file := first_of(names, self.longest)):
            self._file = file
            self._lost()
        elif self._file is None:
            self._missing()
        if self._file is not None:
            self._mark = None
        return self._file is not None

    def _missing(self) -> None:
        if not self._said and self.follow:
            self._notes.append(f"{self.path}: not there yet, waiting for it")
        self._said = True

    def _lost(self) -> None:
        if self._mark is not None and self._mark["head"][0]:
            self.counts["restarts"] += 1
            read = f"the file that was read up to line {self._mark['line']} was cut, written anew or is gone"
            self._notes.append(f"{self.path}: {read}; goes on at the start of what is there")

    def _at_end(self, file: OpenFile) -> bool:
        """What to do where a file has no more: wait, end, or go to the next one."""
        if (here := self._here(file)) or (here is None and not self._newer(file)):
            if not self.follow or (here and file.packed):
                file.lines.end()
                self._ended = True
            return False
        if self._unused() and self.follow and not self._newer(file):
            return False
        if data := file.more():  # written between the last look at it and the switch
            file.lines.add(data)
        elif data is None:
            return True  # cut meanwhile: to be seen again by who reads on
        elif file.lines.begun:
            file.lines.end()
        else:
            return self._next(file)
        return True

    def _here(self, file: OpenFile) -> bool | None:
        """Whether the file at the path is this one; None if there is none."""
        try:
            return os.stat(self.path).st_ino == file.inode
        except FileNotFoundError:
            return None

    def _unused(self) -> bool:
        """Whether the new file is empty: its writer has perhaps not yet gone over to it."""
        try:
            return os.stat(self.path).st_size == 0
        except FileNotFoundError:
            return True

    def _next(self, file: OpenFile) -> bool:
        following = first_of([*self._newer(file), self.path], self.longest)
        if following is not None:
            self._notes.append(f"{self.path}: rotated; {file.path} was read to its end, line {file.lines.line}")
            file.close()
            self._file = following
        return following is not None
