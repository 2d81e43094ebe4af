"""Which file was read how far, and where it is now: rotated files found again by inode, or by what is in them."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import stat
import zlib
from collections.abc import Iterator
from typing import IO, Any

from streamcal.reading import SourceError
from streamcal.reading.lines import LONGEST, Lines

CHUNK = 1 << 20
HEAD = 256
ENOUGH = 32  # bytes that must agree where the inode does not
ROTATED = re.compile(r"[.\-_]\d[\d.\-_:TZ]*")  # what rotation adds to a name: .1  -20261130  .2026-11-30_12
NONE = -1  # an inode that no file has
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


class OpenFile:
    """A file that is being read, plain or gzip, from a mark on.

    A mark holds its inode, the place and line after what was given, and digests of its first bytes and of those before
    the place. SourceError if it cannot be read; FileNotFoundError if it is not there.
    """

    def __init__(self, path: str, place: int = 0, line: int = 0, longest: int = LONGEST) -> None:
        self.path = path
        self._raw = _opened(path)
        self.packed = os.pread(self._raw.fileno(), 2, 0) == b"\x1f\x8b"
        self._file: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=self._raw) if self.packed else self._raw
        self.inode = os.fstat(self._raw.fileno()).st_ino
        self.lines = Lines(place, line, longest)
        self._at = place  # where to read on: past what was given by what is ahead in lines
        try:
            self.head = self._peek(0, min(place, HEAD))  # always the first min(_at, HEAD) bytes
            self.lines.tail = self._peek(max(place - 64, 0), min(place, 64))
        except SourceError:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return os.fstat(self._raw.fileno()).st_size

    @property
    def changed_ns(self) -> int:
        """When it was last written, in nanoseconds."""
        return os.fstat(self._raw.fileno()).st_mtime_ns

    def mark(self) -> dict[str, Any]:
        """Which file this is, and how far it was given."""
        head, tail = self.head, self.lines.tail
        digests = {"head": [len(head), _digest(head)], "tail": [len(tail), _digest(tail)]}
        where = {"inode": self.inode, "place": self.lines.place, "line": self.lines.line}
        return {**where, "written": self.changed_ns, **digests}

    def more(self) -> bytes | None:
        """The next bytes, b"" at the end (for now); None if the file was cut or written anew."""
        data = self._peek(self._at, CHUNK)
        if not self._same():  # looked at afterwards, so that nothing of another text is taken
            return None
        if self._at == 0 and data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise SourceError(f"{self.path}: the text is UTF-16; write UTF-8")
        self.head += data[: HEAD - len(self.head)]
        self._at += len(data)
        return data

    def _same(self) -> bool:
        if self.packed:
            return True
        head, place, tail = self.head, self.lines.place, self.lines.tail
        return (
            self.size >= self._at
            and self._peek(0, len(head)) == head
            and self._peek(place - len(tail), len(tail)) == tail
        )

    def fits(self, mark: dict[str, Any]) -> bool:
        """Whether this file, as far as the mark goes, is the one that was marked."""
        (head, head_digest), (tail, tail_digest) = mark["head"], mark["tail"]
        place = mark["place"]
        return (
            _digest(self._peek(0, head)) == head_digest
            and _digest(self._peek(place - tail, tail)) == tail_digest
            and (self.packed or self.size >= place)
        )

    def close(self) -> None:
        """Let go of it."""
        self._file.close()
        self._raw.close()

    def _peek(self, place: int, size: int) -> bytes:
        """So many bytes from there, fewer at the end. Plain files are not moved by it."""
        try:
            if not self.packed:
                return os.pread(self._raw.fileno(), size, place)
            self._file.seek(place)
            return self._file.read(size)
        except DAMAGED as error:
            raise SourceError(f"{self.path}: the gzip file is damaged or not complete: {error}") from None
        except OSError as error:
            raise SourceError(f"{self.path}: {error.strerror or error}") from None


def _opened(path: str) -> IO[bytes]:
    try:
        file = open(path, "rb", buffering=0, opener=_at_once)  # noqa: SIM115 closed by its owner
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise SourceError(f"{path}: must be a file")
    return file


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe that lies about must not hold it up


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def found(path: str, mark: dict[str, Any], longest: int) -> OpenFile | None:
    """The marked file, at its place: at `path`, else beside it by its inode, else by what is in it; None if it is gone.

    Of a file that was empty when it was marked nothing is known but its inode, which another may have by now: what comes
    next is the first rotated file that was written since, else the one at `path`.
    """
    if not mark["head"][0]:
        return first_of([*newer(path, mark["written"], NONE), path], longest)
    known = mark["head"][0] >= ENOUGH
    names = [path, *_beside(path, mark["inode"]), *(_rotated(path) if known else ())]
    for name in dict.fromkeys(names):
        try:
            file = OpenFile(name, mark["place"], mark["line"], longest)
        except (FileNotFoundError, SourceError):
            continue
        if (known or file.inode == mark["inode"]) and file.fits(mark):
            return file
        file.close()
    return None


def first_of(names: list[str], longest: int) -> OpenFile | None:
    """The first of these that is there, from its start; None if none is."""
    for name in names:
        try:
            return OpenFile(name, longest=longest)
        except FileNotFoundError:
            continue
    return None


def newer(path: str, written: int, inode: int, head: bytes = b"") -> list[str]:
    """Rotated files that were last written after this one, in that order: they came and went between two looks.

    `written`, `inode` and `head` are of the file that was read; a copy of it is left out.
    """
    times: list[tuple[int, str]] = []
    names = _rotated(path)
    for name in names:
        if name.endswith(".gz") and name.removesuffix(".gz") in names:
            continue  # it is being packed: not complete, and its time is not yet that of the plain file
        try:
            seen, current = os.stat(name), _inode(path)
            if not stat.S_ISREG(seen.st_mode) or seen.st_mtime_ns <= written or seen.st_ino in (inode, current):
                continue
            if not _copied(name, head):
                times.append((seen.st_mtime_ns, name))
        except FileNotFoundError:  # gone meanwhile
            continue
    return [name for _, name in sorted(times)]


def _copied(name: str, head: bytes) -> bool:
    """Whether a file is empty, or begins with these bytes."""
    file = OpenFile(name)
    start = file.more()
    file.close()
    return start is not None and (not start or (len(head) >= ENOUGH and start.startswith(head)))


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def _entries(path: str) -> Iterator[os.DirEntry[str]]:
    folder = os.path.dirname(path)
    try:
        with os.scandir(folder or ".") as entries:
            yield from entries
    except OSError:
        return


def _beside(path: str, inode: int) -> list[str]:
    return [os.path.join(os.path.dirname(path), e.name) for e in _entries(path) if e.inode() == inode]


def _rotated(path: str) -> list[str]:
    folder, base = os.path.split(path)
    names = sorted(e.name for e in _entries(path) if e.name.startswith(base))
    return [os.path.join(folder, n) for n in names if ROTATED.fullmatch(n[len(base) :].removesuffix(".gz"))]
