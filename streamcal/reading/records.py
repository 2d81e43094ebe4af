"""Text of CSV -> records, each of one line or more: a quoted cell may hold ends of lines, and a quote may never be closed.

A quote that is not closed makes its own line bad, and the reading begins again at the next one: no line is lost to it. Time is
linear in the text, however many such quotes there are.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat

DELIMITERS = ",\t;|"
LONGEST = (
    1 << 17
)  # characters of a record of several lines: more than a text anybody quotes, so the quote was forgotten
HOPELESS = 16 << 20  # bytes of a line: what has longer ones is no text
MOST_COLUMNS = 2_000_000  # of a table: each costs about 100 bytes, and more would not fit into 300 MB

# The limit of the csv module is one for the process; here lines are bounded, and so are cells.
csv.field_size_limit(HOPELESS)


def delimiter_of(line: str) -> str:
    """The first of , tab ; | that is in a header."""
    return next((sign for sign in DELIMITERS if sign in line), ",")


class CsvRecords:
    r"""Cuts text with this delimiter into records.

    >>> [*CsvRecords(",").split('a,"b\nc"\nd,"e\nf,g\n')]
    [(0, 'a,"b\nc"\n', True), (2, 'd,"e\n', False), (3, 'f,g\n', True)]
    """

    def __init__(self, delimiter: str) -> None:
        self.delimiter = delimiter
        sign = re.escape(delimiter)
        # a cell in quotes, at the start of a line or behind a delimiter; group 1 is empty where it is not closed
        cell = ' *"[^"]*(?:""[^"]*)*("?)'
        self._cells = re.compile(rf"(?:\A|{sign}){cell}")
        self._cells_of_bytes = re.compile(rf"(?:\A|[\r\n]|{sign}){cell}".encode())
        self._rest = re.compile(r'[^"]*(?:""[^"]*)*("?)')  # of a cell that was opened on a line before
        self._behind = re.compile(rf" *(?:{sign}|[\r\n]|\Z)")  # what may stand behind its last quote

    def whole(self, data: bytes) -> int:
        """Length of the whole records at the start of some bytes."""
        if b'"' not in data:
            return data.rfind(b"\n") + 1
        end = place = 0
        for cell in self._cells_of_bytes.finditer(data):
            end = max(end, data.rfind(b"\n", place, cell.start() + 1) + 1)
            if not cell[1]:
                return end
            place = cell.end()
        return max(end, data.rfind(b"\n", place) + 1)

    def split(self, text: str) -> Iterator[tuple[int, str, bool]]:
        """CsvRecords with the line on which they begin, from 0; a line with a quote that is not closed is False."""
        lines = _lines(text)
        first = hopeless = 0  # up to that line nothing is right that is inside of quotes at its start
        while first < len(lines):
            end = first + 1
            if '"' in lines[first]:
                end, hopeless = self._end(lines, first, hopeless)
            yield first, "".join(lines[first : max(end, first + 1)]), end > first
            first = max(end, first + 1)

    def _end(self, lines: list[str], first: int, hopeless: int) -> tuple[int, int]:
        """The line after a record, `first` itself where there is none; and the last line that is hopeless inside of quotes."""
        place, size, inside = first, 0, self._opens(lines[first], 0)
        while inside:
            size += len(lines[place])
            place += 1
            if place == len(lines) or place <= hopeless or size > LONGEST:
                return first, max(place, hopeless)
            rest = self._rest.match(lines[place])
            if rest is not None and rest[1]:
                if not self._behind.match(lines[place], rest.end()):
                    return first, place
                inside = self._opens(lines[place], rest.end())
        return place + 1, hopeless

    def _opens(self, line: str, place: int) -> bool:
        """Whether a cell begins on this line, from a place on, that does not end on it."""
        return any(not cell[1] for cell in self._cells.finditer(line, place))

    def row(self, record: str) -> list[str]:
        """The cells of a record."""
        return next(csv.reader([record], delimiter=self.delimiter, skipinitialspace=True), [])

    def rows(self, text: str) -> Iterator[tuple[int, list[str], str]]:
        """Rows with the line on which they begin, from 0; of a line with a quote that is not closed no row, but the line."""
        with suppress(csv.Error):  # which knows less than `split`, and is faster
            yield from zip(*self._strict(_lines(text)), repeat(""))
            return
        place, broken = 0, ""

        def records() -> Iterator[str]:
            nonlocal place, broken
            for line, record, is_whole in self.split(text):
                place, broken = line, "" if is_whole else record
                yield record if is_whole else "\n"

        for row in csv.reader(records(), delimiter=self.delimiter, skipinitialspace=True):
            yield place, row, broken

    def _strict(self, lines: list[str]) -> tuple[list[int], list[list[str]]]:
        """Rows of text in which no quote is lost, with the lines on which they begin; csv.Error where one may be."""
        reader = csv.reader(lines, delimiter=self.delimiter, skipinitialspace=True, strict=True)
        places: list[int] = []
        rows: list[list[str]] = []
        place = 0
        for row in reader:
            places.append(place)
            rows.append(row)
            end = reader.line_num
            if end > place + 1 and sum(map(len, lines[place:end])) > LONGEST:
                raise csv.Error
            place = end
        return places, rows


def _lines(text: str) -> list[str]:
    """Lines with their ends, of any kind."""
    if "\r" in text:
        return [*io.StringIO(text, newline="")]
    *whole, last = text.split("\n")
    return [line + "\n" for line in whole] + ([last] if last else [])
