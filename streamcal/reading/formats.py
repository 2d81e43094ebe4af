"""Formats: the text or the file of a table -> batches of events. Open: FORMATS is their registry.

A format of one's own is a subclass of :class:`TextFormat` (whole records that end in a newline) or of :class:`Format` (a file
that is read at its own pace), and its line in FORMATS; then ``--format`` takes its name, and its ``begins`` is asked first.

CSV and JSON Lines each have a plain path, which alone defines what a block means and knows the line of every cell, and
a fast path, which declines the block as soon as anything in it is unusual.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from streamcal.reading import SourceError
from streamcal.reading.cells import EMPTY, NAMED, BadCell, EventBatch, Floats, Meaning, Reading, coded, read
from streamcal.reading.elements import elements
from streamcal.reading.lines import BOM
from streamcal.reading.records import DELIMITERS, HOPELESS, LONGEST, MOST_COLUMNS, CsvRecords, delimiter_of
from streamcal.reading.roles import Roles, check_present, missing_column

LOOK = 1000  # lines of JSON in which a wanted key must turn up
SHOWN = 200  # characters of a line that is none, kept to be shown: a line may have 16 MB
ROWS = 1 << 18  # rows of Parquet in a batch


class Format(ABC):
    """A table that arrives in batches of events; made from the path of its file."""

    unit = "row"  # what the numbers of bad cells count
    reading: Reading  # made by `meaning`
    columns: list[str]  # those that are known so far

    @property
    def name(self) -> str:
        """As it stands in FORMATS."""
        return next(name for name, kind in FORMATS.items() if kind is type(self))

    def __init__(self, path: str) -> None:
        self.path = path

    def meaning(self, columns: Roles) -> Reading:
        """What the cells of this table mean, and what came: one for the whole table, also before it is read."""
        if not hasattr(self, "reading"):
            self.reading = Reading(columns)
        return self.reading

    @classmethod
    @abstractmethod
    def begins(cls, head: bytes) -> bool:
        """Whether a file of this format begins like this."""

    @abstractmethod
    def batches(self, columns: Roles) -> Iterator[EventBatch]:
        """The events, in order; an empty batch means that nothing came for a moment."""


class TextFormat(Format):
    """A format of text, from a file or a pipe: cut into blocks of whole records. Made from what it begins with."""

    unit = "line"
    first_line = 1  # the line on which the first record stands
    taken = 0  # bytes of the head that are no records

    def __init__(self, head: bytes) -> None:
        self.head = head

    @classmethod
    def lines_of(cls, pieces: Iterator[bytes], is_whole: Callable[[], bool]) -> Iterator[bytes]:
        """Pieces of a text as those that the format reads, line by line. ``is_whole``: whether their end is that of the text."""
        return pieces

    def take_from(self, pieces: Iterator[bytes], is_complete: Callable[[], bool]) -> None:
        """Read these bytes, from the first record on. ``is_complete``: whether an unfinished last record counts."""
        self.pieces, self.is_complete = pieces, is_complete

    @abstractmethod
    def begin(self, columns: Roles) -> None:
        """Fix the wanted columns; SourceError when one is not there."""

    @abstractmethod
    def parse(self, block: bytes, line: int) -> EventBatch:
        """The events of whole records, the first of which stands on `line`."""

    def cut(self, data: bytes) -> int:
        """Length of the whole records at the start of `data`."""
        return data.rfind(b"\n") + 1

    def finish(self) -> None:
        """Called after the last block; SourceError when a column never came."""

    def batches(self, columns: Roles) -> Iterator[EventBatch]:
        """The events, in order; an empty batch means that nothing came for a moment."""
        self.begin(columns)
        for block, line in blocks(self.pieces, self.cut, self.first_line, self.is_complete):
            yield self.parse(block, line) if block else EMPTY
        self.finish()


def blocks(
    chunks: Iterator[bytes], cut: Callable[[bytes], int], line: int, tail: Callable[[], bool]
) -> Iterator[tuple[bytes, int]]:
    """Chunks -> blocks of whole records with the line of the first; an empty chunk goes through as an empty block.

    `tail` says at the end whether an unfinished last record counts (the file is complete) or waits (it still grows).
    """
    held = b""
    for chunk in chunks:
        held = held + chunk if held else chunk
        end = cut(held) if b"\n" in chunk else 0  # a line that grows is not looked through again and again
        if not end and len(held) > LONGEST:
            end = held.rfind(b"\n") + 1
        if not end and len(held) > HOPELESS:
            raise hopeless(line)
        block, held = held[:end], held[end:]
        yield block, line
        line += block.count(b"\n")
    if held.strip() and tail():
        yield held, line


def hopeless(line: int) -> SourceError:
    """A line that is too long to be one."""
    return SourceError(f"line {line} is longer than {HOPELESS >> 20} MB; is this text?")


class Csv(TextFormat):
    """CSV with a header. The delimiter is the first of , tab ; | that is in the header line."""

    def __init__(self, head: bytes, arrow: bool = True, errors: str = "replace") -> None:
        """`head` starts the file and holds its header at least; `arrow=False` leaves out the fast path.

        `errors`: what becomes of bytes that are no UTF-8.
        """
        if b"\r" in head and b"\n" not in head:
            raise SourceError("lines end in carriage returns alone; convert them: tr '\\r' '\\n'")
        bare = head.removeprefix(BOM)
        end = bare.find(b"\n", len(bare) - len(bare.lstrip())) + 1 or len(bare)
        first = bare[:end].decode("utf-8", errors)
        if (width := max(map(first.count, DELIMITERS))) >= MOST_COLUMNS:
            raise SourceError(f"{width + 1:,} columns; a table has at most {MOST_COLUMNS:,}")
        self.records, self.errors = CsvRecords(delimiter_of(first)), errors
        shown = first if '"' not in first else bare[: end + LONGEST].decode("utf-8", errors)
        begun = ((at, text, whole, self.records.row(text)) for at, text, whole in self.records.split(shown))
        at, text, is_whole, self.header = next(record for record in begun if record[3])
        if not is_whole:
            raise SourceError(f"line {at + 1}, the header: a quote that is never closed")
        self.columns = [name.strip() for name in self.header]
        self.first_line = at + (text.count("\n") or 1) + 1
        lines = head.split(b"\n", self.first_line - 1)[: self.first_line - 1]
        self.taken = min(sum(map(len, lines)) + len(lines), len(head))
        self.arrow = arrow
        self.fast: Callable[[bytes], EventBatch | None] | None = None

    @classmethod
    def begins(cls, head: bytes) -> bool:
        """Whatever is nothing else."""
        return True

    def begin(self, columns: Roles) -> None:
        """Fix the wanted columns; SourceError when one is not there."""
        check_present(columns.names, self.columns)
        self.meaning(columns)
        self.places = {name: self.columns.index(name) for name in columns.names}
        if self.arrow:
            try:
                from streamcal.reading.arrow import CsvBlocks
            except ImportError:
                return
            self.fast = CsvBlocks(self.reading, self.places, len(self.header), self.records.delimiter)

    def cut(self, data: bytes) -> int:
        """Length of the whole records at the start of `data`: a newline inside quotes ends none."""
        return self.records.whole(data)

    def parse(self, block: bytes, line: int) -> EventBatch:
        """The events of whole records, the first of which stands on `line`."""
        batch = self.fast(block) if self.fast is not None else None
        return self.plain(block, line) if batch is None else batch

    def plain(self, block: bytes, line: int) -> EventBatch:
        """The path that defines the meaning: Python's csv module, one row at a time."""
        lines: list[int] = []
        rows: list[list[str]] = []
        bad: list[BadCell] = []
        for at, row, broken in self.records.rows(block.decode("utf-8", self.errors)):
            if len(row) == len(self.header):
                if row != self.header:  # two files with the same header, one after the other
                    lines.append(line + at)
                    rows.append(row)
            elif row or broken:
                # one of those that are not named stands for all of them
                said = (
                    f"a quote that is never closed: {broken[:SHOWN]}"
                    if broken
                    else f"{len(row)} cells instead of {len(self.header)}"
                )
                bad.append(BadCell(line + at, None, said) if len(bad) < NAMED else bad[-1])
        cells = {name: [row[i] for row in rows] for name, i in self.places.items()}
        return self.reading.batch(cells, lines, bad)


class Jsonl(TextFormat):
    """One JSON object per line. A key that is absent from a line is a missing cell; a null too."""

    def __init__(self, head: bytes) -> None:
        self.decoder = msgspec.json.Decoder()
        self.seen: dict[str, None] = {}
        self.lines = 0
        for line in head.lstrip().split(b"\n", LOOK)[:LOOK]:
            self.seen.update(dict.fromkeys(self.object(line) or ()))

    @classmethod
    def begins(cls, head: bytes) -> bool:
        """With an object."""
        return head.removeprefix(BOM).lstrip()[:1] == b"{"

    @property
    def columns(self) -> list[str]:  # type: ignore[override]
        """The keys that turned up so far."""
        return list(self.seen)

    def begin(self, columns: Roles) -> None:
        """Fix the wanted columns. One that is not there yet may still come: see `finish`."""
        self.meaning(columns)
        self.names = columns.names
        numeric = columns.numeric or ()
        fields = [
            (f"c{i}", float | None if name in numeric else bool | int | float | str | None, None)
            for i, name in enumerate(self.names)
        ]
        names = {f"c{i}": name for i, name in enumerate(self.names)}
        self.fast = msgspec.json.Decoder(msgspec.defstruct("Line", fields, rename=names, gc=False))

    def parse(self, block: bytes, line: int) -> EventBatch:
        """The events of whole lines, the first of which is number `line`."""
        if not self.seen.keys() >= set(self.names):
            self._look(block)
        batch = None
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            batch = self._quick(self.fast.decode_lines(block))
        return self.plain(block, line) if batch is None else batch

    def _quick(self, rows: list[Any]) -> EventBatch | None:
        """None where a cell is bad: only the plain path knows its line."""
        if self.reading.columns.numeric is None:
            return None
        cells = {name: list(map(attrgetter(f"c{i}"), rows)) for i, name in enumerate(self.names)}
        if (time := self.reading.columns.time) is not None:
            self.reading.clock.settle(cells[time])
        labels, times = self.reading.labels.numbers, partial(_all, meaning=self.reading.clock)
        # The decoder let only numbers and null through: numpy makes null nan.
        return self.reading.quick(cells, labels, partial(np.array, dtype=np.float64), times, coded)

    def plain(self, block: bytes, line: int) -> EventBatch:
        """The path that defines the meaning: one line at a time."""
        lines: list[int] = []
        rows: list[dict[str, object]] = []
        bad: list[BadCell] = []
        for at, data in enumerate(block.split(b"\n"), line):
            row = self.object(data)
            if row is not None:
                lines.append(at)
                rows.append(row)
            elif data.strip():
                said = "not a JSON object: " + data.strip()[:SHOWN].decode("utf-8", "replace")
                bad.append(BadCell(at, None, said) if len(bad) < NAMED else bad[-1])
        return self.reading.batch({name: [row.get(name) for row in rows] for name in self.names}, lines, bad)

    def finish(self) -> None:
        """SourceError when a wanted key never came."""
        for name in self.names:
            if name not in self.seen and self.lines:
                raise missing_column(name, self.columns)

    def _look(self, block: bytes) -> None:
        lines: Sequence[bytes] = block.split(b"\n")
        for data in lines:
            self.seen.update(dict.fromkeys(self.object(data) or ()))
        self.lines += len(lines)
        if self.lines > LOOK:
            self.finish()

    def object(self, data: bytes) -> dict[str, Any] | None:
        """The object on a line; None if it is none."""
        try:
            row = self.decoder.decode(data.removeprefix(BOM))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return row if isinstance(row, dict) else None


def _all(cells: list[object], meaning: Meaning) -> Floats | None:
    values, bad = read(cells, meaning)
    return None if bad else values


class JsonArray(Jsonl):
    """One JSON array of objects, read an object at a time."""

    unit = "row"

    @classmethod
    def begins(cls, head: bytes) -> bool:
        """With an array."""
        return head.removeprefix(BOM).lstrip()[:1] == b"["

    @classmethod
    def lines_of(cls, pieces: Iterator[bytes], is_whole: Callable[[], bool]) -> Iterator[bytes]:
        """Each element on a line of its own."""
        return elements(pieces, is_whole)


class Columnar(Format):
    """A file of columns, a few hundred thousand rows at a time, only the columns that are wanted."""

    title: str  # a ... file

    def __init__(self, path: str) -> None:
        try:
            import pyarrow
        except ImportError:
            raise SourceError(f'{self.title} file needs pyarrow: pip install "streamcal-engine[arrow]"') from None
        try:
            self.open(path)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise damaged(error, f"not {self.title} file") from None
        self.columns = list(self.schema.names)

    @abstractmethod
    def open(self, path: str) -> None:
        """Open the file, and set its `schema`."""

    schema: Any

    @abstractmethod
    def tables(self, rows: int, names: list[str] | None = None) -> Iterator[Any]:
        """Record batches of about so many rows, with the columns of these names (all)."""

    def batches(self, columns: Roles) -> Iterator[EventBatch]:
        """The events, in order."""
        import pyarrow

        from streamcal.reading import arrow

        check_present(columns.names, self.columns)
        reading, row = self.meaning(columns), 1
        try:
            for table in self.tables(ROWS, list(columns.names)):
                arrays = {name: table.column(name) for name in columns.names}
                batch = arrow.batch(reading, arrays)
                if batch is None:
                    cells = {name: array.to_pylist() for name, array in arrays.items()}
                    batch = reading.batch(cells, range(row, row + len(table)))
                yield batch
                row += len(table)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise damaged(error) from None


class Parquet(Columnar):
    """A Parquet file."""

    title = "a Parquet"

    def open(self, path: str) -> None:
        """See Columnar."""
        import pyarrow.parquet as pq

        self.file = pq.ParquetFile(Path(path))
        self.schema = self.file.schema_arrow

    @classmethod
    def begins(cls, head: bytes) -> bool:
        """With its name."""
        return head.startswith(b"PAR1")

    def tables(self, rows: int, names: list[str] | None = None) -> Iterator[Any]:
        """See Columnar."""
        return iter(self.file.iter_batches(rows, columns=names))


class Arrow(Columnar):
    """Arrow IPC, as a file (which is Feather) or as a stream in a file."""

    title = "an Arrow"

    def open(self, path: str) -> None:
        """See Columnar."""
        import pyarrow as pa

        self.path = path
        with pa.OSFile(path) as file:
            self.is_file = bytes(file.read(6)) == b"ARROW1"
        self.schema = self._reader(None).schema

    def _reader(self, names: list[str] | None) -> Any:
        import pyarrow as pa

        wanted = None if names is None else sorted(map(self.columns.index, names))
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        kind = pa.ipc.open_file if self.is_file else pa.ipc.open_stream
        return kind(
            pa.OSFile(self.path), options=options
        )  # not mapped: a file that is cut meanwhile would end the process

    @classmethod
    def begins(cls, head: bytes) -> bool:
        """With its name, or the mark of a stream."""
        return head.startswith((b"ARROW1", b"\xff\xff\xff\xff"))

    def tables(self, rows: int, names: list[str] | None = None) -> Iterator[Any]:
        """See Columnar."""
        reader = self._reader(names)
        batches = map(reader.get_batch, range(reader.num_record_batches)) if self.is_file else reader
        for batch in batches:
            batch.validate(full=True)  # Arrow trusts offsets, and these are of a stranger
            for start in range(0, len(batch), rows):
                yield batch.slice(start, rows)


def damaged(error: Exception, what: str = "the file is damaged") -> SourceError:
    """What Arrow says of a file, in one line."""
    return SourceError(f"{what}: {str(error).partition(chr(10))[0]}")


FORMATS: dict[str, type[Format]] = {"csv": Csv, "jsonl": Jsonl, "json": JsonArray, "parquet": Parquet, "arrow": Arrow}


def sniff(head: bytes) -> str:
    """The format that the first bytes tell; the one that was registered last is asked first, CSV takes what is left."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError("the text is UTF-16; save it as UTF-8")
    return next(name for name, kind in reversed(FORMATS.items()) if kind.begins(head))


def known(form: str | None) -> str | None:
    """The name of a format, or None; SourceError for another."""
    if form is not None and form not in FORMATS:
        raise SourceError(f"--format must be one of {', '.join(FORMATS)}, got {form}")
    return form
