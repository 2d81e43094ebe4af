"""Lines at the end of a file, each exactly once, whatever moment the process is killed at.

What is still to be written is part of the state that a transaction saves, together with the place in the file where it
begins. So a line is written only after it was saved, and only at its place; after a kill the saved lines are held against
what stands at that place: what is there is not written again, what is torn is completed.

Where somebody else changed the file (rotated or truncated it, or wrote into it), so that it is shorter or something else
stands there, the place is no longer ours: the lines go to the end of the file as it is now, once that new place has been
saved too. Nothing is ever overwritten. Exact for a killed process, and one writer per file. A line that was written but not
yet saved as such when both a kill and a rotation come is in both files. After a power cut the last lines may be there twice;
with ``durable`` none is missing.
"""

from __future__ import annotations

import os
import stat
from io import FileIO
from typing import NamedTuple


class OutboxError(Exception):
    """Something could not be said: the message names the file or sink, says why, and that nothing is lost."""


class Place(NamedTuple):
    """Where lines go on: behind byte ``at`` of the file."""

    path: str
    at: int
    durable: bool = False


def place_of(path: str, durable: bool = False) -> Place:
    """The end of a file as it is now, its beginning where there is none or one cannot look."""
    try:
        return Place(path, os.stat(path).st_size, durable)
    except OSError:
        return Place(path, 0, durable)


class AppendFile:
    """Lines for one file: ``add``, then ``saved`` once they are in the transaction, then ``write``. Not thread-safe.

    ``place`` and ``lines`` are its whole state. An empty file, or none, is where the first line goes; the folder must exist.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = AppendFile(place_of(folder.name + "/audit.jsonl"))
    >>> file.add([b"one", b"two"])
    >>> file.write()  # nothing: they are not yet saved
    >>> state = file.place, file.lines
    >>> file.saved()
    >>> file.write()
    >>> AppendFile(*state).write()  # as after a kill before the next transaction: the same bytes at the same place
    >>> open(folder.name + "/audit.jsonl").read()
    'one\\ntwo\\n'
    """

    def __init__(self, place: Place, lines: bytes = b"") -> None:
        self.place = place
        self._lines = bytearray(lines)
        self._ready = len(lines)  # so many bytes are in the state as it was last saved
        self.changed = False  # since then

    @property
    def lines(self) -> bytes:
        """What is not yet known to be in the file."""
        return bytes(self._lines)

    @property
    def pending(self) -> int:
        """So many lines are not yet written."""
        return self._lines.lstrip(b"\n").count(b"\n")

    def add(self, lines: list[bytes], durable: bool = False) -> None:
        """More lines, without their end; ValueError for one that is empty or holds a line feed."""
        for line in lines:
            if not line or b"\n" in line:
                raise ValueError(f"a line for {self.place.path} must hold bytes and no line feed, got {line[:100]!r}")
        self.place = self.place._replace(durable=self.place.durable or durable)
        self._lines += b"".join(line + b"\n" for line in lines)
        self.changed |= bool(lines)

    def saved(self) -> None:
        """``place`` and ``lines``, as they are, are about to be committed."""
        self._ready, self.changed = len(self._lines), False

    def write(self) -> None:
        """Write what was saved. OutboxError if the file does not take it; it stays, and a later call goes on where it was.

        If the place is no longer ours nothing is written, there is a new place, and ``changed`` says that it must be saved.
        """
        if not self._ready:
            return
        try:
            with open(self.place.path, "r+b", buffering=0, opener=_made) as file:
                self._write(file)
        except OSError as error:
            kept = f"{self.pending} lines for it are kept, and written as soon as it takes them"
            raise OutboxError(f"{self.place.path}: {error.strerror or error}; {kept}") from error

    def _write(self, file: FileIO) -> None:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OutboxError(f"{self.place.path}: must be an ordinary file, which lines can be added to exactly once")
        due = bytes(self._lines[: self._ready])
        done = self._there(file, found.st_size, due)
        if done is None:
            self._move(file, found.st_size)
            return
        file.seek(self.place.at + done)
        rest = memoryview(due)[done:]
        while rest:
            rest = rest[file.write(rest) :]
        if self.place.durable:
            os.fsync(file.fileno())
        self.place = self.place._replace(at=self.place.at + len(due))
        del self._lines[: self._ready]
        self._ready, self.changed = 0, True

    def _there(self, file: FileIO, size: int, due: bytes) -> int | None:
        """So many bytes of what is due are at its place already; None if the place is not ours any more."""
        at = self.place.at
        if size < at:
            return None
        file.seek(max(at - 1, 0))
        there = file.read(len(due) + min(at, 1))
        if at and there[:1] != b"\n" and not due.startswith(b"\n"):  # would be glued to the line before
            return None
        there = there[min(at, 1) :]
        return len(there) if due.startswith(there) else None

    def _move(self, file: FileIO, size: int) -> None:
        """To the end of the file, on a line of its own, once that has been saved."""
        file.seek(max(size - 1, 0))
        glue = b"" if file.read(1) in (b"", b"\n") else b"\n"
        self._lines = bytearray(glue + self._lines.lstrip(b"\n"))
        self.place = self.place._replace(at=size)
        self._ready, self.changed = 0, True


def _made(path: str, flags: int) -> int:
    """An open file, made if it is not there."""
    return os.open(path, flags | os.O_CREAT, 0o666)


class AppendFiles(dict[str, AppendFile]):
    """The files of an outbox by their paths; one begins with its first lines."""

    def append(self, path: str, lines: list[bytes], durable: bool = False) -> None:
        """Lines for the end of a file: as :meth:`AppendFile.add`."""
        if path not in self:
            self[path] = AppendFile(place_of(path))
        self[path].add(lines, durable)
