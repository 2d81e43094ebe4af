"""The one follower of files that grow, are rotated, or are cut; and which file was read how far, and where it is now."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import re
import stat
import time
import zlib
from typing import IO, Any

from streamcal.reading import AwayError, SourceError
from streamcal.reading.lines import LONGEST, TAIL, Lines
from streamcal.reading.waiting import Stop

CHUNK = 1 << 20  # bytes read at once
POLL = 0.1  # seconds between two looks at a file's size
HEAD = 256  # first bytes by which a file is known
ENOUGH = 32  # bytes that must agree where the inode does not
ROTATED = re.compile(r"[.\-_]\d[\d.\-_:TZ]*")  # what rotation adds to a name: .1  -20261130  .2026-11-30_12
NONE = -1  # an inode that no file has
NEVER = 1 << 63  # a time that does not come
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


class Follower:
    """Reads a file on as it grows, is rotated, or is cut; with ``follow=False`` once, to its end.

    Lines longer than ``longest`` bytes are known by their start alone (see Lines).

    Rotation: of a file that was renamed the rest is read first, then whatever came and went since, then the new one. That
    holds also when it happened while nobody looked: the file is found beside by its inode, or by its first and last
    bytes (a copy, also in gzip). A file that is empty is taken as not yet in use, so the old one is kept until then.
    A file that was cut or written anew is read from its start; that is said in ``notes`` and counted in ``restarts``.

    A last line without an end waits for its end if the file is followed; it counts if not, or if the file was rotated.
    A file in gzip ends at its end.
    Limits: lines written by several processes into the old and the new file at once are seen only until the switch; of
    two files that were last written in the same tick of the file system's clock the one in between can be missed; files that
    came and went are known by names that end in a number or date (.1, -20261130, .2.gz); a file that was copied and cut
    before anything of it was read is found only so; standing in for a file, a link is followed, but not to other folders.
    """

    def __init__(self, path: str, follow: bool = True, longest: int = LONGEST, chunk: int = CHUNK) -> None:
        self.path, self.follow, self.longest, self.chunk = path, follow, longest, chunk
        self.file: OpenFile | None = None
        self.notes: list[str] = []
        self.restarts = 0
        self.ended = False
        self._mark: dict[str, Any] | None = None
        self._said = False

    def begin(self, mark: dict[str, Any] | None = None, path: str | None = None) -> None:
        """Go to a mark, of a file that was at ``path``; None: to the start. SourceError if it is neither there nor followed."""
        self._mark = mark
        if mark and path != self.path:  # what is beside the new path has nothing to do with the old one
            self._mark = {**mark, "inode": NONE, "written": NEVER}
        if not self._open() and not self.follow:
            raise AwayError(f"{self.path}: No such file")

    def mark(self) -> dict[str, Any] | None:
        """Which file is read, and how far it was taken."""
        return self._mark if self.file is None else self.file.mark()

    @property
    def ready(self) -> bool:
        """Whether there is something to take from ``file.lines``; take it before the next ``wait``."""
        return self.file is not None and self.file.lines.ready

    def wait(self, seconds: float, stop: Stop) -> bool:
        """Read on until something is ready, the file has ended, the time is over or someone asks to stop; whether it is ready."""
        end = time.monotonic() + seconds
        while True:
            while not self.ready and not stop.asked and self._advance():
                pass
            left = end - time.monotonic()
            if self.ready or self.ended or left <= 0.0 or stop.asked:
                return self.ready
            stop.wait(min(POLL, left))

    def _advance(self) -> bool:
        """Read a piece; False if there is nothing to read now."""
        if self.ended:
            return False
        if self.file is None:
            return self._open()
        data = self.file.more(self.chunk)
        if data is None:
            self._mark = self.file.mark()
            self.close()
            return self._open()
        if data:
            self.file.lines.add(data)
            return True
        return self._at_end(self.file)

    def close(self) -> None:
        """Let go of the file."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def _open(self) -> bool:
        """Open the file that the mark says, or the first one written since; False if there is none."""
        names = [self.path]
        if (mark := self._mark) is not None:
            self.file = self.found(mark)
            names = [*newer(self.path, mark["written"], mark["inode"]), self.path]
        if self.file is None and (file := self._first_of(names)):
            self.file = file
            if mark is not None and mark["head"][0]:
                self.restarts += 1
                read = f"the file that was read up to line {mark['line']} was cut, written anew or is gone"
                self.notes.append(f"{self.path}: {read}; goes on at the start of what is there")
        if self.file is not None:
            self._mark = None
            return True
        if not self._said and self.follow:
            self.notes.append(f"{self.path}: not there yet, waiting for it")
        self._said = True
        return False

    def found(self, mark: dict[str, Any]) -> OpenFile | None:
        """The marked file: at the path, else beside it by its inode, else by what is in it; None if it is gone.

        Of a file that was empty when it was marked nothing is known but its inode, which another may have by now: what comes
        next is the first rotated file that was written since, else the one at the path.
        """
        if not mark["head"][0]:
            return self._first_of([*newer(self.path, mark["written"], NONE), self.path])
        known = mark["head"][0] >= ENOUGH
        folder = os.path.dirname(self.path)
        beside = [os.path.join(folder, e.name) for e in _entries(self.path) if e.inode() == mark["inode"]]
        for name in dict.fromkeys([self.path, *beside, *(_rotated(self.path) if known else ())]):
            try:
                file = OpenFile(name, Lines(mark["place"], mark["line"], self.longest))
            except (FileNotFoundError, SourceError):
                continue
            if (known or file.inode == mark["inode"]) and file.fits(mark):
                return file
            file.close()
        return None

    def _first_of(self, names: list[str]) -> OpenFile | None:
        """The first of these that is there, from its start; None if none is."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                return OpenFile(name, Lines(longest=self.longest))
        return None

    def _at_end(self, file: OpenFile) -> bool:
        """What to do where a file has no more: wait, end, or go to the next one."""
        at_path = _stat(self.path)
        here = at_path is not None and at_path.st_ino == file.inode
        if here or (at_path is None and not self._newer(file)):
            if not self.follow or (here and file.packed):
                file.lines.end()
                self.ended = True
            return False
        now = _stat(self.path)  # an empty file's writer has perhaps not yet gone over to it
        if (now is None or now.st_size == 0) and self.follow and not self._newer(file):
            return False
        if data := file.more(self.chunk):  # written between the last look at it and the switch
            file.lines.add(data)
        elif data is None:
            return True  # cut meanwhile: to be seen again by who reads on
        elif file.lines.begun:
            file.lines.end()
        else:
            return self._next(file)
        return True

    def _newer(self, file: OpenFile) -> list[str]:
        return newer(self.path, file.stat.st_mtime_ns, file.inode, file.head)

    def _next(self, file: OpenFile) -> bool:
        following = self._first_of([*self._newer(file), self.path])
        if following is not None:
            self.notes.append(f"{self.path}: rotated; {file.path} was read to its end, line {file.lines.line}")
            file.close()
            self.file = following
        return following is not None


class OpenFile:
    """A file that is being read, plain or gzip, from the place of its ``lines`` on.

    A mark holds its inode, the place and line after what was given, and digests of its first bytes and of those before
    the place. SourceError if it cannot be read; FileNotFoundError if it is not there.
    """

    def __init__(self, path: str, lines: Lines) -> None:
        self.path, self.lines = path, lines
        self._raw = _opened(path)
        self.packed = os.pread(self._raw.fileno(), 2, 0) == b"\x1f\x8b"
        self._file: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=self._raw) if self.packed else self._raw
        self.inode = self.stat.st_ino
        self._at = place = lines.place  # where to read on: past what was given by what is ahead in lines
        try:
            self.head = self._peek(0, min(place, HEAD))  # always the first min(_at, HEAD) bytes
            self.lines.tail = self._peek(max(place - TAIL, 0), min(place, TAIL))
        except SourceError:
            self.close()
            raise

    @property
    def stat(self) -> os.stat_result:
        """Its inode, bytes on disk, and when it was last written."""
        return os.fstat(self._raw.fileno())

    def mark(self) -> dict[str, Any]:
        """Which file this is, and how far it was given."""
        where = {"inode": self.inode, "place": self.lines.place, "line": self.lines.line}
        digests = {name: [len(part), _digest(part)] for name, part in (("head", self.head), ("tail", self.lines.tail))}
        return {**where, "written": self.stat.st_mtime_ns, **digests}

    def more(self, size: int = CHUNK) -> bytes | None:
        """The next bytes, so many at most, b"" at the end (for now); None if the file was cut or written anew."""
        data = self._peek(self._at, size)
        # looked at afterwards, so that nothing of another text is taken
        if not (self.packed or (self.stat.st_size >= self._at and self.fits(self.mark()))):
            return None
        if self._at == 0 and data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise SourceError(f"{self.path}: the text is UTF-16; write UTF-8")
        self.head += data[: HEAD - len(self.head)]
        self._at += len(data)
        return data

    def fits(self, mark: dict[str, Any]) -> bool:
        """Whether this file, as far as the mark goes, is the one that was marked."""
        (head, head_digest), (tail, tail_digest), place = mark["head"], mark["tail"], mark["place"]
        return (
            _digest(self._peek(0, head)) == head_digest
            and _digest(self._peek(place - tail, tail)) == tail_digest
            and (self.packed or self.stat.st_size >= place)
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
        # NONBLOCK: a pipe that lies about must not hold it up
        file = open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise SourceError(f"{path}: {error.strerror or error}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise SourceError(f"{path}: must be a file")
    return file


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


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
            seen, current = os.stat(name), _stat(path)
            if current is not None and seen.st_ino == current.st_ino:
                continue
            if not stat.S_ISREG(seen.st_mode) or seen.st_mtime_ns <= written or seen.st_ino == inode:
                continue
            if not _copied(name, head):
                times.append((seen.st_mtime_ns, name))
        except FileNotFoundError:  # gone meanwhile
            continue
    return [name for _, name in sorted(times)]


def _copied(name: str, head: bytes) -> bool:
    """Whether a file is empty, or begins with these bytes."""
    file = OpenFile(name, Lines())
    start = file.more()
    file.close()
    return start is not None and (not start or (len(head) >= ENOUGH and start.startswith(head)))


def _stat(path: str) -> os.stat_result | None:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(path)
    return None


def _entries(path: str) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(os.path.dirname(path) or ".") as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []


def is_rotated(name: str, path: str) -> bool:
    """Whether a name is that of a path with what rotation adds to it."""
    return name.startswith(path) and ROTATED.fullmatch(name[len(path) :].removesuffix(".gz")) is not None


def _rotated(path: str) -> list[str]:
    folder, base = os.path.split(path)
    return [os.path.join(folder, e.name) for e in _entries(path) if is_rotated(e.name, base)]
