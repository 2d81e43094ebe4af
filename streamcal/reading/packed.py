"""Packed files and pipes: gzip, bzip2 and zstd, known by their first bytes and unpacked a piece at a time, also several behind
each other. However little of a packed file there is and however much is in it, no more than a piece is in memory.
"""

from __future__ import annotations

import bz2
import gzip
import io
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import IO, Any, cast

from streamcal.reading import SourceError

PIECE = 1 << 20  # bytes unpacked at once: more is no faster
LONGEST_START = 4  # bytes by which a format is known


class Borrowed:
    """A file that stays open: pyarrow closes what it was given."""

    closed = False

    def __init__(self, raw: IO[bytes]) -> None:
        self.read = raw.read

    def close(self) -> None:
        """Not here."""


def _zstd(raw: IO[bytes]) -> Any:
    """Of Python itself from 3.14 on, else of a package that is there."""
    ways: tuple[tuple[str, Callable[[Any], Any]], ...] = (
        ("compression.zstd", lambda zstd: zstd.ZstdFile(raw)),
        ("backports.zstd", lambda zstd: zstd.ZstdFile(raw)),
        (
            "zstandard",
            lambda zstandard: zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True, closefd=False),
        ),
        ("pyarrow", lambda arrow: arrow.CompressedInputStream(arrow.PythonFile(Borrowed(raw), "r"), "zstd")),
    )
    for module, opened in ways:
        try:
            return opened(import_module(module))
        except ImportError:
            continue
    raise SourceError('zstd needs Python 3.14, zstandard or pyarrow: pip install "streamcal-engine[arrow]"')


KINDS: dict[bytes, tuple[str, Callable[[IO[bytes]], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda raw: gzip.GzipFile(fileobj=raw, mode="rb")),
    b"BZh": ("bzip2", lambda raw: bz2.BZ2File(raw)),
    b"\x28\xb5\x2f\xfd": ("zstd", _zstd),
}
ENDINGS = (".gz", ".bz2", ".zst")  # what the packed files of rotation are called


def kind_of(start: bytes) -> str | None:
    """gzip, bzip2 or zstd, by the first bytes; None for what is not packed."""
    return next((name for sign, (name, _) in KINDS.items() if start.startswith(sign)), None)


class Unpacked:
    """A packed file that is read like a plain one. ``raw`` is at its start, and can be sought if ``seek`` is to go back.

    SourceError where it is damaged or not complete.
    """

    def __init__(self, raw: IO[bytes], kind: str, name: str = "") -> None:
        self._raw, self.kind = raw, kind
        self._name = f"{name}: " if name else ""
        self._begin()

    def _begin(self) -> None:
        self._file = next(opened for name, opened in KINDS.values() if name == self.kind)(self._raw)
        self._place = 0

    def read(self, size: int = PIECE) -> bytes:
        """At most so many bytes, b"" at the end."""
        parts: list[bytes] = []
        try:
            while size > 0 and (data := self._file.read(size)):
                parts.append(data)
                size -= len(data)
        except (SourceError, MemoryError):
            raise
        except Exception as error:  # each package has errors of its own
            raise SourceError(f"{self._name}the {self.kind} file is damaged or not complete: {error}") from None
        data = b"".join(parts)
        self._place += len(data)
        return data

    def seek(self, place: int) -> None:
        """Go to a place in what is unpacked: forward by reading, back by beginning anew."""
        if place < self._place:
            self._raw.seek(0)
            self._begin()
        while self._place < place and self.read(min(place - self._place, PIECE)):
            pass

    def close(self) -> None:
        """Let go of it."""
        self._file.close()


class Pieces(io.RawIOBase):
    """Pieces of bytes, as they come, as a file to be unpacked."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._held = pieces, b""

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Some bytes; 0 at the end. Waits where nothing came yet."""
        while not self._held:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._held = piece
        n = min(len(buffer), len(self._held))
        buffer[:n], self._held = self._held[:n], self._held[n:]
        return n


def unpacked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces as they are, or unpacked if they begin like a packed file."""
    start = b""
    for piece in pieces:
        start += piece
        if len(start) >= LONGEST_START:
            break
    kind = kind_of(start)

    def whole() -> Iterator[bytes]:
        if start:
            yield start
        yield from pieces

    if kind is None:
        return whole()
    file = Unpacked(cast(IO[bytes], io.BufferedReader(Pieces(whole()), PIECE)), kind)
    return iter(file.read, b"")
