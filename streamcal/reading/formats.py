"""Formats: the text or the file of a table -> batches of events. Open: FORMATS is their registry.

A format of one's own is a subclass of :class:`TextFormat` (whole records that end in a newline) or of :class:`Format` (a file
that is read at its own pace), and its line in FORMATS; then ``--format`` takes its name, and its ``begins`` is asked first.

CSV and JSON Lines each have a plain path, which alone defines what a block means and knows the line of every cell, and
a fast path, which declines the block as soon as anything in it is unusual.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from streamcal.reading import SourceError
from streamcal.reading.cells import EMPTY, BadCell, EventBatch, Floats, Meaning, Reading, coded, read
from streamcal.reading.lines import BOM
from streamcal.reading.roles import Roles, check_present, missing_column

DELIMITERS = ",\t;|"
LOOK = 1000  # lines of JSON in which a wanted key must turn up
LONGEST = 1 << 20  # bytes: a quoted cell longer than this is a quote that somebody forgot
HOPELESS = 64 << 20  # bytes of a line: what has longer ones is no text
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


class Csv(TextFormat):
    """CSV with a header. The delimiter is the first of , tab ; | that is in the header line."""

    def __init__(self, head: bytes, arrow: bool = True) -> None:
        """`head` starts the file and holds its header at least; `arrow=False` leaves out the fast path."""
        if b"\r" in head and b"\n" not in head:
            raise SourceError("lines end in carriage returns alone; convert them: tr '\\r' '\\n'")
        shown = head.decode("utf-8-sig", "replace")
        first = shown.lstrip().split("\n", 1)[0]
        self.delimiter = next((d for d in DELIMITERS if d in first), ",")
        self.quoted = re.compile(rb'(?:\A|[\r\n%b]) *"[^"]*(?:""[^"]*)*("?)' % re.escape(self.delimiter.encode()))
        reader = self._reader(shown)
        self.header = next(filter(None, reader))
        self.columns = [name.strip() for name in self.header]
        self.first_line = reader.line_num + 1
        lines = head.split(b"\n", reader.line_num)[: reader.line_num]
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
            self.fast = CsvBlocks(self.reading, self.places, len(self.header), self.delimiter)

    def cut(self, data: bytes) -> int:
        """Length of the whole records at the start of `data`: a newline inside quotes ends none."""
        if b'"' not in data:
            return data.rfind(b"\n") + 1
        end = place = 0
        for field in self.quoted.finditer(data):
            end = max(end, data.rfind(b"\n", place, field.start() + 1) + 1)
            if not field[1]:
                return end
            place = field.end()
        return max(end, data.rfind(b"\n", place) + 1)

    def parse(self, block: bytes, line: int) -> EventBatch:
        """The events of whole records, the first of which stands on `line`."""
        batch = self.fast(block) if self.fast is not None else None
        return self.plain(block, line) if batch is None else batch

    def plain(self, block: bytes, line: int) -> EventBatch:
        """The path that defines the meaning: Python's csv module, one row at a time."""
        lines: list[int] = []
        rows: list[list[str]] = []
        bad: list[BadCell] = []
        for at, row in self._records(block.decode("utf-8", "replace"), line, bad):
            if len(row) == len(self.header):
                if row != self.header:  # two files with the same header, one after the other
                    lines.append(at)
                    rows.append(row)
            elif row:
                bad.append(BadCell(at, None, f"{len(row)} cells instead of {len(self.header)}"))
        cells = {name: [row[i] for row in rows] for name, i in self.places.items()}
        return self.reading.batch(cells, lines, bad)

    def _records(self, shown: str, line: int, bad: list[BadCell]) -> Iterator[tuple[int, list[str]]]:
        reader = self._reader(shown)
        before = 0
        while True:
            try:
                for row in reader:
                    yield line + before, row
                    before = reader.line_num
                return
            except csv.Error as error:  # a cell of more than csv.field_size_limit(): mostly a quote that never closes
                bad.append(BadCell(line + before, None, str(error)))
                before = reader.line_num

    def _reader(self, shown: str) -> Any:
        return csv.reader(io.StringIO(shown, newline=""), delimiter=self.delimiter, skipinitialspace=True)


class Jsonl(TextFormat):
    """One JSON object per line. A key that is absent from a line is a missing cell; a null too."""

    def __init__(self, head: bytes) -> None:
        self.decoder = msgspec.json.Decoder()
        self.seen: dict[str, None] = {}
        self.lines = 0
        for line in head.split(b"\n", LOOK)[:LOOK]:
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
                bad.append(BadCell(at, None, "not a JSON object: " + data.strip().decode("utf-8", "replace")))
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


class Parquet(Format):
    """A Parquet file, a few hundred thousand rows at a time, only the columns that are wanted."""

    def __init__(self, path: str) -> None:
        try:
            import pyarrow
            import pyarrow.parquet as pq
        except ImportError:
            raise SourceError('Parquet needs pyarrow: pip install "streamcal-engine[arrow]"') from None
        try:
            self.file = pq.ParquetFile(Path(path))
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise damaged(error, "not a Parquet file") from None
        self.columns = list(self.file.schema_arrow.names)

    @classmethod
    def begins(cls, head: bytes) -> bool:
        """With its name."""
        return head.startswith(b"PAR1")

    def batches(self, columns: Roles) -> Iterator[EventBatch]:
        """The events, in order."""
        import pyarrow

        from streamcal.reading import arrow

        check_present(columns.names, self.columns)
        reading, row = self.meaning(columns), 1
        try:
            for table in self.file.iter_batches(ROWS, columns=list(columns.names)):
                arrays = {name: table.column(name) for name in columns.names}
                batch = arrow.batch(reading, arrays)
                if batch is None:
                    cells = {name: array.to_pylist() for name, array in arrays.items()}
                    batch = reading.batch(cells, range(row, row + len(table)))
                yield batch
                row += len(table)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise damaged(error) from None


def damaged(error: Exception, what: str = "the file is damaged") -> SourceError:
    """What Arrow says of a file, in one line."""
    return SourceError(f"{what}: {str(error).partition(chr(10))[0]}")


FORMATS: dict[str, type[Format]] = {"csv": Csv, "jsonl": Jsonl, "parquet": Parquet}


def sniff(head: bytes) -> str:
    """The format that the first bytes tell; the one that was registered last is asked first, CSV takes what is left."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError("the text is UTF-16; save it as UTF-8")
    if head.startswith(b"\x1f\x8b"):
        raise SourceError("the file is compressed; pipe it in: gunzip -c FILE | streamcal report -")
    if head.removeprefix(BOM).lstrip()[:1] == b"[":
        raise SourceError("one JSON array; one object per line is needed: jq -c '.[]' FILE | streamcal report -")
    return next(name for name, kind in reversed(FORMATS.items()) if kind.begins(head))


def known(form: str | None) -> str | None:
    """The name of a format, or None; SourceError for another."""
    if form is not None and form not in FORMATS:
        raise SourceError(f"--format must be one of {', '.join(FORMATS)}, got {form}")
    return form
