"""What a cell means: the one place where the text of a table becomes numbers, whatever format it came in.

Spaces around a cell do not count. An empty cell, null, None, nan and NA are *missing*: the row is counted as missing
and never as a negative. Anything else that is not what its column holds is *bad*: counted, and named by line, column
and value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from streamcal.limits import BOUNDS, LATEST
from streamcal.reading import SourceError
from streamcal.reading.roles import Roles
from streamcal.times import stamp

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Meaning = Callable[[object], float]

MISSING = frozenset({"", "null", "none", "nan", "na"})
WORDS = {"true": 1.0, "false": 0.0}
UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
NAMED = 10  # bad cells of a batch that are named; the others are only counted


@dataclass(frozen=True)
class BadCell:
    """A cell (or, without a column, a whole row) that could not be read."""

    line: int
    column: str | None
    value: str

    def __str__(self) -> str:
        shown = self.value if len(self.value) <= 40 else self.value[:37] + "..."
        if self.column is None:
            return f"line {self.line}: {shown}"
        return f"line {self.line}, column {self.column}: {shown!r}"


@dataclass(frozen=True)
class EventBatch:
    """Events in arrival order, without the rows that were missing or bad: those are only counted.

    `p` has shape (n,), or (n, classes) for a top-label claim. `segment` holds indices into `segments`.
    """

    p: Floats
    y: Floats
    w: Floats | None = None
    t: Floats | None = None
    segment: Codes | None = None
    segments: tuple[str, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict)
    missing_rows: int = 0
    bad: tuple[BadCell, ...] = ()
    bad_cells: int = 0
    bad_rows: int = 0

    def __len__(self) -> int:
        return len(self.y)

    @property
    def rows(self) -> int:
        """Rows read, events or not."""
        return len(self) + self.missing_rows + self.bad_rows

    def part(self, keep: slice | NDArray[np.bool_]) -> EventBatch:
        """Some of the events, without the counts of what was left out."""

        def some(values: Floats | None) -> Floats | None:
            return None if values is None else values[keep]

        segment = None if self.segment is None else self.segment[keep]
        return EventBatch(self.p[keep], self.y[keep], some(self.w), some(self.t), segment, self.segments)


EMPTY = EventBatch(np.empty(0), np.empty(0))


def text(cell: object) -> str:
    """A cell as the file shows it: JSON's true is 'true', 7 is '7', null is ''."""
    if isinstance(cell, str):
        return cell.strip()
    if cell is None:
        return ""
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def number(cell: object) -> float:
    """The value of a numeric cell, nan where it is missing; ValueError when it is no number."""
    shown = text(cell)
    return math.nan if shown.lower() in MISSING else float(shown)


def label(cell: object, pos_label: str | None = None) -> float:
    """1 or 0, nan where it is missing. Without `pos_label`: true or false, or a number equal to 1 or 0.

    With it: 1 where the cell equals it (as numbers where both are, else as text), 0 elsewhere.
    """
    shown = text(cell)
    if shown.lower() in MISSING:
        return math.nan
    if pos_label is not None:
        return float(_same(shown, pos_label.strip()))
    value = WORDS.get(shown.lower())
    value = float(shown) if value is None else value
    if value not in (0.0, 1.0):
        raise ValueError(shown)
    return value


def _same(a: str, b: str) -> bool:
    try:
        return a == b or float(a) == float(b)
    except ValueError:
        return False


def class_index(cell: object, names: Sequence[str], prefix: str = "") -> float:
    """Index of a class given by its column's name, that without the common prefix, or the index; nan where missing."""
    shown = text(cell)
    for name in (shown, prefix + shown):
        if name in names:
            return float(names.index(name))
    if shown.lower() in MISSING:
        return math.nan
    value = float(shown)
    if value not in range(len(names)):
        raise ValueError(shown)
    return value


class Clock:
    """Times of one file, all in ONE format: ISO-8601 (naive = UTC), epoch seconds, or the one given.

    `form`: iso, s, ms, us, ns, or a strptime pattern such as %d-%m-%Y. Without it the first time decides for the whole
    file, so that 01-09-2018 is never read by guessing what 13-09-2018 must have meant.
    """

    def __init__(self, form: str | None = None) -> None:
        if form is not None and form != "iso" and form not in UNITS and "%" not in form:
            raise SourceError(f"--time-format must be iso, s, ms, us, ns or a pattern such as %d-%m-%Y, got {form}")
        self.form = form

    def __call__(self, cell: object) -> float:
        """Seconds since epoch, nan where it is missing; ValueError when the cell is in another format."""
        shown = text(cell)
        if shown.lower() in MISSING:
            return math.nan
        seconds = self._seconds(shown, cell)
        if not math.isfinite(seconds):
            raise ValueError(shown)
        return seconds

    def _seconds(self, shown: str, cell: object) -> float:
        if self.form in UNITS:
            return float(shown) / UNITS[self.form]
        if self.form == "iso":
            return stamp(cell if isinstance(cell, datetime) else datetime.fromisoformat(shown))
        if self.form is None:
            raise ValueError(shown)
        return stamp(datetime.strptime(shown, self.form))

    def settle(self, cells: Sequence[object]) -> None:
        """Decide the format by the first cell that has one; SourceError where there are times but none has."""
        if self.form is not None:
            return
        shown = [s for s in map(text, cells) if s.lower() not in MISSING]
        self.form = next(filter(None, map(_form_of, shown)), None)
        if self.form is None and shown:
            raise SourceError(
                f"time {shown[0]!r} is neither ISO-8601 nor epoch seconds; say what it is with --time-format %d-%m-%Y"
            )


def _form_of(shown: str) -> str | None:
    try:
        seconds = float(shown)
    except ValueError:
        try:
            datetime.fromisoformat(shown)
        except ValueError:
            return None
        return "iso"
    if abs(seconds) > LATEST:
        raise SourceError(
            f"time {shown} is too large for epoch seconds; say which unit with --time-format ms, us or ns"
        )
    return "s"


def read(cells: Sequence[object], meaning: Meaning) -> tuple[Floats, list[int]]:
    """The values of a column of cells (nan: missing or bad) and the indices of the bad ones."""
    try:
        return np.fromiter(map(meaning, cells), np.float64, len(cells)), []
    except (ValueError, TypeError, OverflowError):
        return _read_each(cells, meaning)


def _read_each(cells: Sequence[object], meaning: Meaning) -> tuple[Floats, list[int]]:
    values, bad = np.full(len(cells), np.nan), []
    for i, cell in enumerate(cells):
        try:
            values[i] = meaning(cell)
        except (ValueError, TypeError, OverflowError):
            bad.append(i)
    return values, bad


def read_numbers(cells: Sequence[object]) -> tuple[Floats, list[int]]:
    """`read` with `number`; text goes through float() alone as long as it can, which is 5 times faster."""
    try:
        if not any(isinstance(cell, bool) for cell in cells):
            return np.fromiter(map(float, cells), np.float64, len(cells)), []  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        pass
    return read(cells, number)


def outside(values: Floats, low: float, high: float) -> list[int]:
    """Indices of the values beyond the limits; nan, which is missing, is not beyond."""
    return np.flatnonzero((values < low) | (values > high)).tolist()


def coded(cells: Sequence[object]) -> tuple[Codes, tuple[str, ...]]:
    """Segments as indices into the names that occur. The text stays as it is: 007 is not 7."""
    names: dict[str, int] = {}
    codes = np.fromiter((names.setdefault(text(cell), len(names)) for cell in cells), np.int64, len(cells))
    return codes, tuple(names)


def read_probabilities(cells: Sequence[object]) -> tuple[Floats, list[int]]:
    """`read_numbers` for what a window would not refuse as a probability."""
    values, bad = read_numbers(cells)
    return values, bad + outside(values, *BOUNDS["p"])


def read_weights(cells: Sequence[object]) -> tuple[Floats, list[int]]:
    """`read_numbers` for what a window would not refuse as a weight."""
    values, bad = read_numbers(cells)
    return values, bad + outside(values, *BOUNDS["w"])


@dataclass
class Parts:
    """A batch in the making: arrays in file order, nan where a cell is missing or bad."""

    p: list[Floats]
    y: Floats
    w: Floats | None = None
    t: Floats | None = None
    segment: Codes | None = None
    segments: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether no window would refuse a value: where one would, the plain path names its line."""
        sound = not any(outside(p, *BOUNDS["p"]) for p in self.p)
        return sound and (self.w is None or not outside(self.w, *BOUNDS["w"]))


class Reading:
    """The meanings of one file's columns, and the way from cells to a EventBatch."""

    def __init__(self, columns: Roles) -> None:
        self.columns = columns
        self.clock = Clock(columns.time_format)
        meaning = (
            partial(class_index, names=columns.classes, prefix=columns.prefix)
            if columns.classes
            else partial(label, pos_label=columns.pos_label)
        )
        # typed: 1, 1.0 and True are one key to a plain cache, but not one text.
        self.label: Meaning = lru_cache(4096, typed=True)(meaning)

    def batch(
        self, cells: Mapping[str, Sequence[object]], lines: Sequence[int], bad_rows: Sequence[BadCell] = ()
    ) -> EventBatch:
        """Cells by column, with the line of each row, and the rows that already failed -> EventBatch."""
        wrong: list[tuple[int, str]] = []

        def take(name: str | None, how: Callable[[Sequence[object]], tuple[Floats, list[int]]]) -> Floats | None:
            if name is None:
                return None
            values, bad = how(cells[name])
            wrong.extend((i, name) for i in bad)
            return values

        c = self.columns
        if c.time is not None:
            self.clock.settle(cells[c.time])
        y = take(c.y, partial(read, meaning=self.label))
        p = [take(name, read_probabilities) for name in c.p]
        w, t = take(c.weight, read_weights), take(c.time, partial(read, meaning=self.clock))
        assert y is not None
        parts = Parts([v for v in p if v is not None], y, w, t)
        if c.segment is not None:
            parts.segment, parts.segments = coded(cells[c.segment])
        wrong.sort()
        named = [BadCell(lines[i], name, text(cells[name][i])) for i, name in wrong[:NAMED]]
        named = sorted([*named, *bad_rows], key=_line)
        return self.assemble(parts, {i for i, _ in wrong}, named, len(wrong), len(bad_rows))

    def assemble(
        self,
        parts: Parts,
        wrong: set[int] = frozenset(),  # type: ignore[assignment]
        named: Sequence[BadCell] = (),
        bad_cells: int = 0,
        bad_rows: int = 0,
    ) -> EventBatch:
        """Leave out the rows that are bad (`wrong`) or have a missing value, and count them."""
        failed = np.zeros(len(parts.y), bool)
        failed[list(wrong)] = True
        missing, absent = self._missing(parts, failed)
        drop = failed | absent
        p = parts.p[0] if len(parts.p) == 1 else np.column_stack(parts.p)
        events = EventBatch(p, parts.y, parts.w, parts.t, parts.segment, parts.segments)
        return replace(
            events.part(~drop) if drop.any() else events,
            missing=missing,
            missing_rows=int(absent.sum()),
            bad=tuple(named[:NAMED]),
            bad_cells=bad_cells + bad_rows,
            bad_rows=int(failed.sum()) + bad_rows,
        )

    def _missing(self, parts: Parts, failed: NDArray[np.bool_]) -> tuple[dict[str, int], NDArray[np.bool_]]:
        c = self.columns
        columns = [*zip(c.p, parts.p, strict=True), (c.y, parts.y), (c.weight, parts.w), (c.time, parts.t)]
        counts: dict[str, int] = {}
        absent = np.zeros(len(failed), bool)
        for name, values in columns:
            if name is None or values is None:
                continue
            gone = np.isnan(values) & ~failed
            if gone.any():
                counts[name] = int(gone.sum())
                absent |= gone
        return counts, absent


def _line(bad: BadCell) -> int:
    return bad.line
