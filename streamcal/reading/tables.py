"""Tables as streams: CSV, JSON Lines and Parquet files, pipes and growing files -> batches of events.

A source knows its columns before its first batch, never holds more than a few blocks, and hands out empty batches
while it waits, so that whoever reads it can look at the clock.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from streamcal.reading import SourceError
from streamcal.reading.cells import EMPTY, EventBatch, Reading
from streamcal.reading.formats import Csv, Format, Jsonl
from streamcal.reading.lines import Pieces, Pipe
from streamcal.reading.roles import Roles, check_present
from streamcal.reading.rotation import Follower
from streamcal.reading.waiting import Patience

BLOCK = 8 << 20  # bytes of a file read at once: more is no faster, and a few blocks are in memory at a time
LONGEST = 1 << 20  # a quoted cell longer than this is a quote that somebody forgot
HOPELESS = 64 << 20  # bytes of a line: what has longer ones is no text
FORMATS = ("csv", "jsonl", "parquet")


class EventTable(Protocol):
    """A table that arrives in batches."""

    @property
    def format(self) -> str:
        """csv, jsonl or parquet."""

    @property
    def columns(self) -> list[str]:
        """The columns that are known so far."""

    @property
    def unit(self) -> str:
        """What the numbers of bad cells count: line or row."""

    def batches(self, columns: Roles) -> Iterator[EventBatch]:
        """The events, in order; an empty batch means that nothing came for a moment."""


def open_source(
    path: str,
    form: str | None = None,
    *,
    follow: bool = False,
    patience: Patience | None = None,
    block: int = BLOCK,
    arrow: bool = True,
) -> EventTable:
    """A file, a named pipe, or - for standard input. `form` is csv, jsonl or parquet, else the first bytes decide.

    `follow` waits for more at the end of a file. `arrow=False` leaves out the fast path of CSV: same batches, slower.
    """
    if form is not None and form not in FORMATS:
        raise SourceError(f"--format must be one of {', '.join(FORMATS)}, got {form}")
    patience = patience or Patience()
    piped = path == "-" or _is_pipe(path)
    if not piped and (form or sniff(_first_bytes(path))) == "parquet":
        return Parquet(path)
    follow = follow and not piped
    pieces = _piped(path, block, patience) if piped else _file(path, block)
    return _text_source(_followed(path, block, patience) if follow else pieces, form, patience, follow, arrow)


def _text_source(
    chunks: Iterator[bytes], form: str | None, patience: Patience, follow: bool, arrow: bool
) -> TextSource:
    head = b""
    for chunk in chunks:
        head += chunk
        if b"\n" in head.lstrip(b"\xef\xbb\xbf\r\n\t "):
            break
    if not head.strip(b"\xef\xbb\xbf\r\n\t "):
        raise SourceError("empty: there is nothing to read")
    form = form or sniff(head)
    if form == "parquet":
        raise SourceError("Parquet cannot be read from a pipe; give the file")
    if b"\0" in head:
        raise SourceError("not a text file; give CSV, JSON Lines or Parquet")
    parser = Csv(head, arrow) if form == "csv" else Jsonl(head)
    return TextSource(form, parser, itertools.chain([head[parser.taken :]], chunks), patience, follow)


def _is_pipe(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise SourceError(error.strerror or str(error)) from None
    if stat.S_ISDIR(mode):
        raise SourceError("is a directory; give a file")
    return not stat.S_ISREG(mode)


def _first_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(4096)
    except OSError as error:
        raise SourceError(error.strerror or str(error)) from None


def sniff(head: bytes) -> str:
    """The format that the first bytes tell: PAR1 starts Parquet, { a line of JSON, anything else is CSV."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError("the text is UTF-16; save it as UTF-8")
    if head.startswith(b"\x1f\x8b"):
        raise SourceError("the file is compressed; pipe it in: gunzip -c FILE | streamcal report -")
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if first == b"[":
        raise SourceError("one JSON array; one object per line is needed: jq -c '.[]' FILE | streamcal report -")
    return "jsonl" if first == b"{" else "csv"


def _file(path: str, size: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        yield from iter(lambda: file.read(size), b"")


def _followed(path: str, size: int, patience: Patience) -> Iterator[bytes]:
    """What is in a file and what comes, through rotation and cuts; b"" while nothing does."""
    follower = Follower(path, Pieces, chunk=size)
    follower.begin()
    try:
        while not patience.stop.is_set():
            while not follower.ready and not patience.stop.is_set() and follower.advance():
                pass
            if follower.file is not None and follower.ready:
                yield follower.file.lines.take()
                patience.fed()
            elif patience.over or follower.ended:
                return
            else:
                yield b""
                patience.stop.wait(patience.poll)
    finally:
        follower.close()


def _piped(path: str, size: int, patience: Patience) -> Iterator[bytes]:
    """What a pipe has, at once, in pieces of at most about `size`; b"" while it is silent."""
    pipe = Pipe(path)
    pipe.start()
    while not patience.stop.is_set():
        if not (data := pipe.more(patience.poll)):
            if data is None or patience.over:
                return
            yield b""
            continue
        parts = [data]
        rest: bytes | None = data
        while rest and sum(map(len, parts)) < size:
            if rest := pipe.more(0):
                parts.append(rest)
        yield b"".join(parts)
        if rest is None:
            return
        patience.fed()


def blocks(
    chunks: Iterator[bytes], cut: Callable[[bytes], int], line: int, tail: Callable[[], bool]
) -> Iterator[tuple[bytes, int]]:
    """Chunks -> blocks of whole records with the line of the first; an empty chunk goes through as an empty block.

    `tail` says at the end whether an unfinished last record counts (the file is complete) or waits (it still grows).
    """
    held = b""
    for chunk in chunks:
        held = held + chunk if held else chunk
        end = cut(held) if chunk else 0
        if not end and len(held) > LONGEST:
            end = held.rfind(b"\n") + 1
        if not end and len(held) > HOPELESS:
            raise SourceError(f"line {line} is longer than {HOPELESS >> 20} MB; is this text?")
        block, held = held[:end], held[end:]
        yield block, line
        line += block.count(b"\n")
    if held.strip() and tail():
        yield held, line


def ahead(batches: Iterator[EventBatch]) -> Iterator[EventBatch]:
    """The same batches; a thread reads the next one while the last is counted: neither side needs the interpreter."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch


class TextSource:
    """CSV or JSON Lines from a file or a pipe."""

    unit = "line"

    def __init__(self, form: str, parser: Format, chunks: Iterator[bytes], patience: Patience, follow: bool) -> None:
        self.format, self.parser, self.chunks = form, parser, chunks
        self.patience, self.follow = patience, follow

    @property
    def columns(self) -> list[str]:
        """The header of a CSV; the keys seen so far in JSON Lines."""
        return self.parser.columns

    def batches(self, columns: Roles) -> Iterator[EventBatch]:
        """The events, in order; an empty batch means that nothing came for a moment."""
        self.parser.begin(columns)
        for block, line in blocks(self.chunks, self.parser.cut, self.parser.first_line, self._complete):
            yield self.parser.parse(block, line) if block else EMPTY
        self.parser.finish()

    def _complete(self) -> bool:
        return not self.follow and not self.patience.stop.is_set()


class Parquet:
    """A Parquet file, a few hundred thousand rows at a time, only the columns that are wanted."""

    format = "parquet"
    unit = "row"

    def __init__(self, path: str, rows: int = 1 << 18) -> None:
        try:
            import pyarrow
            import pyarrow.parquet as pq
        except ImportError:
            raise SourceError('Parquet needs pyarrow: pip install "streamcal-engine[arrow]"') from None
        try:
            self.file = pq.ParquetFile(Path(path))
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise SourceError(f"not a Parquet file: {_one_line(error)}") from None
        self.columns = list(self.file.schema_arrow.names)
        self.rows = rows

    def batches(self, columns: Roles) -> Iterator[EventBatch]:
        """The events, in order."""
        import pyarrow

        check_present(columns.names, self.columns)
        try:
            yield from self._read(Reading(columns))
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise SourceError(f"the file is damaged: {_one_line(error)}") from None

    def _read(self, reading: Reading) -> Iterator[EventBatch]:
        from streamcal.reading import arrow

        columns = reading.columns
        row = 1
        for table in self.file.iter_batches(self.rows, columns=list(columns.names)):
            arrays = {name: table.column(name) for name in columns.names}
            batch = arrow.batch(reading, arrays)
            if batch is None:
                cells = {name: array.to_pylist() for name, array in arrays.items()}
                batch = reading.batch(cells, range(row, row + len(table)))
            yield batch
            row += len(table)


def _one_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
