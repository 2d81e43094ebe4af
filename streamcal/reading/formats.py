"""CSV and JSON Lines: a block of whole lines -> one EventBatch.

Each format has a plain path, which alone defines what a block means and knows the line of every cell,
and a fast path, which declines the block as soon as anything in it is unusual.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol

import msgspec
import numpy as np

from streamcal.reading import SourceError
from streamcal.reading.cells import BadCell, EventBatch, Parts, Reading, coded, read
from streamcal.reading.roles import Roles, check_present, missing_column

DELIMITERS = ",\t;|"
LOOK = 1000  # lines of JSON in which a wanted key must turn up


class Format(Protocol):
    """What a block parser offers to the source that feeds it."""

    @property
    def columns(self) -> list[str]:
        """The columns that are known so far."""

    @property
    def first_line(self) -> int:
        """The line on which the first record stands."""

    def begin(self, columns: Roles) -> None:
        """Fix the wanted columns; SourceError when one is not there."""

    def cut(self, data: bytes) -> int:
        """Length of the whole records at the start of `data`."""

    def parse(self, block: bytes, line: int) -> EventBatch:
        """The events of whole records, the first of which stands on `line`."""

    def finish(self) -> None:
        """Called after the last block; SourceError when a column never came."""


class Csv:
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
        self.taken = _nth_newline(head, reader.line_num)
        self.arrow = arrow
        self.fast: Callable[[bytes], EventBatch | None] | None = None

    def begin(self, columns: Roles) -> None:
        """Fix the wanted columns; SourceError when one is not there."""
        check_present(columns.names, self.columns)
        self.reading = Reading(columns)
        self.places = {name: self.columns.index(name) for name in columns.names}
        if self.arrow:
            self.fast = _arrow_blocks(self.reading, self.places, len(self.header), self.delimiter)

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

    def finish(self) -> None:
        """Nothing to check: the header said it all."""

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


def _nth_newline(data: bytes, n: int) -> int:
    end = 0
    for _ in range(n):
        end = data.find(b"\n", end) + 1
        if end == 0:
            return len(data)
    return end


def _arrow_blocks(
    reading: Reading, places: Mapping[str, int], width: int, delimiter: str
) -> Callable[[bytes], EventBatch | None] | None:
    """The fast path; None without pyarrow."""
    try:
        from streamcal.reading import arrow
    except ImportError:
        return None
    return arrow.CsvBlocks(reading, places, width, delimiter)


class Jsonl:
    """One JSON object per line. A key that is absent from a line is a missing cell; a null too."""

    first_line = 1
    taken = 0

    def __init__(self, head: bytes) -> None:
        self.decoder = msgspec.json.Decoder()
        self.seen: dict[str, None] = {}
        self.lines = 0
        for line in head.split(b"\n", LOOK)[:LOOK]:
            self.seen.update(dict.fromkeys(self._object(line) or ()))

    @property
    def columns(self) -> list[str]:
        """The keys that turned up so far."""
        return list(self.seen)

    def begin(self, columns: Roles) -> None:
        """Fix the wanted columns. One that is not there yet may still come: see `finish`."""
        self.reading = Reading(columns)
        self.names = columns.names
        self.fast = self._decoder(columns)

    def _decoder(self, columns: Roles) -> msgspec.json.Decoder[Any]:
        plain = {*columns.p, columns.weight} - {columns.y, columns.time, columns.segment}
        fields = [
            (f"c{i}", float | None if name in plain else bool | int | float | str | None, None)
            for i, name in enumerate(self.names)
        ]
        self.getters = {name: attrgetter(f"c{i}") for i, name in enumerate(self.names)}
        names = {f"c{i}": name for i, name in enumerate(self.names)}
        return msgspec.json.Decoder(msgspec.defstruct("Line", fields, rename=names, gc=False))

    def cut(self, data: bytes) -> int:
        """Length of the whole lines at the start of `data`."""
        return data.rfind(b"\n") + 1

    def parse(self, block: bytes, line: int) -> EventBatch:
        """The events of whole lines, the first of which is number `line`."""
        if not self.seen.keys() >= set(self.names):
            self._look(block)
        try:
            rows = self.fast.decode_lines(block)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self.plain(block, line)
        cells = {name: list(map(get, rows)) for name, get in self.getters.items()}
        batch = self._quick(cells)
        return self.plain(block, line) if batch is None else batch

    def _quick(self, cells: dict[str, list[Any]]) -> EventBatch | None:
        """None where a cell is bad: only the plain path knows its line."""
        c = self.reading.columns
        y, bad = read(cells[c.y], self.reading.label)
        # The decoder let only numbers and null through: numpy makes null nan.
        floats = {name: np.array(cells[name], np.float64) for name in (*c.p, c.weight) if name in cells and not bad}
        if bad or len(floats) < len({*c.p, c.weight} - {None}) or {*c.p, c.weight} & {c.y, c.time, c.segment} - {None}:
            return None
        parts = Parts([floats[name] for name in c.p], y, floats.get(c.weight or ""))
        if c.time is not None:
            self.reading.clock.settle(cells[c.time])
            parts.t, bad = read(cells[c.time], self.reading.clock)
        if c.segment is not None:
            parts.segment, parts.segments = coded(cells[c.segment])
        return None if bad or not parts.sound else self.reading.assemble(parts)

    def plain(self, block: bytes, line: int) -> EventBatch:
        """The path that defines the meaning: one line at a time."""
        lines: list[int] = []
        rows: list[dict[str, object]] = []
        bad: list[BadCell] = []
        for at, data in enumerate(block.split(b"\n"), line):
            row = self._object(data)
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
            self.seen.update(dict.fromkeys(self._object(data) or ()))
        self.lines += len(lines)
        if self.lines > LOOK:
            self.finish()

    def _object(self, data: bytes) -> dict[str, object] | None:
        try:
            row = self.decoder.decode(data.removeprefix(b"\xef\xbb\xbf"))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return row if isinstance(row, dict) else None
