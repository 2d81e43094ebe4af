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
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.limits import BOUNDS, LATEST
from streamcal.reading import SourceError
from streamcal.reading.outcomes import MISSING, text
from streamcal.reading.roles import Roles
from streamcal.times import stamp

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Meaning = Callable[[object], float]
Quick = Callable[[Any], Floats | None]  # a column -> its values; None where one is not as usual

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

    @property
    def sound(self) -> bool:
        """Whether no window would refuse a value: where one would, the plain path names its line."""
        return not outside("p", self.p) and (self.w is None or not outside("w", self.w))

    def part(self, keep: slice | NDArray[np.bool_ | np.int64]) -> EventBatch:
        """Some of the events, without the counts of what was left out."""
        w, t = (None if values is None else values[keep] for values in (self.w, self.t))
        segment = None if self.segment is None else self.segment[keep]
        return EventBatch(self.p[keep], self.y[keep], w, t, segment, self.segments)


EMPTY = EventBatch(np.empty(0), np.empty(0))


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
        if self.form in UNITS:
            seconds = float(shown) / UNITS[self.form]
        elif self.form == "iso":
            seconds = stamp(cell if isinstance(cell, datetime) else datetime.fromisoformat(shown))
        elif self.form is not None:
            seconds = stamp(datetime.strptime(shown, self.form))
        if self.form is None or not math.isfinite(seconds):
            raise ValueError(shown)
        return seconds

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
        values, bad = np.full(len(cells), np.nan), []
    for i, cell in enumerate(cells):
        try:
            values[i] = meaning(cell)
        except (ValueError, TypeError, OverflowError):
            bad.append(i)
    return values, bad


def read_numbers(cells: Sequence[object], what: str) -> tuple[Floats, list[int]]:
    """`read` with `number`, for what a window would not refuse as a p or w.

    Text goes through float() alone as long as it can, which is 5 times faster.
    """
    try:
        if any(isinstance(cell, bool) for cell in cells):
            raise ValueError
        values = np.fromiter(map(float, cells), np.float64, len(cells))  # type: ignore[arg-type]
        return values, outside(what, values)
    except (ValueError, TypeError, OverflowError):
        values, bad = read(cells, number)
        return values, bad + outside(what, values)


def outside(what: str, values: Floats) -> list[int]:
    """Indices of the values beyond the limits of a p or w; nan, which is missing, is not beyond."""
    low, high = BOUNDS[what]
    return np.flatnonzero((values < low) | (values > high)).tolist()


def coded(cells: Sequence[object]) -> tuple[Codes, tuple[str, ...]]:
    """Segments as indices into the names that occur. The text stays as it is: 007 is not 7."""
    names: dict[str, int] = {}
    codes = np.fromiter((names.setdefault(text(cell), len(names)) for cell in cells), np.int64, len(cells))
    return codes, tuple(names)


class Reading:
    """The meanings of one file's columns, and the way from cells to a batch of events."""

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
        """Cells by column, with the line of each row, and the rows that already failed."""
        c = self.columns
        if c.time is not None:
            self.clock.settle(cells[c.time])
        wanted: list[tuple[str | None, Callable[[Sequence[object]], tuple[Floats, list[int]]]]] = [
            (c.y, partial(read, meaning=self.label)),
            (c.weight, partial(read_numbers, what="w")),
            (c.time, partial(read, meaning=self.clock)),
            *((name, partial(read_numbers, what="p")) for name in c.p),
        ]
        found = [(name, how(cells[name])) for name, how in wanted if name is not None]
        wrong = sorted((i, name) for name, (_, bad) in found for i in bad)
        columns = iter(values for _, (values, _) in found)
        y, w, t = (next(columns) if name is not None else None for name in (c.y, c.weight, c.time))
        assert y is not None
        named = [BadCell(lines[i], name, text(cells[name][i])) for i, name in wrong[:NAMED]]
        named = sorted([*named, *bad_rows], key=attrgetter("line"))[:NAMED]
        segment = () if c.segment is None else coded(cells[c.segment])
        events = EventBatch(side_by_side([*columns]), y, w, t, *segment)
        rows = sorted({i for i, _ in wrong})
        return self.cleared(events, rows, tuple(named), len(wrong) + len(bad_rows), len(bad_rows))

    def quick(
        self, cells: Mapping[str, Any], label: Quick, numbers: Quick, times: Quick, segments: Callable[[Any], Any]
    ) -> EventBatch | None:
        """A batch of columns that are read whole; None where a reader declines, or a window would refuse a value."""
        c = self.columns
        p = [numbers(cells[name]) for name in c.p]
        rest = ((c.y, label), (c.weight, numbers), (c.time, times))
        y, w, t = (None if name is None else how(cells[name]) for name, how in rest)
        found = [values for values in p if values is not None]
        if y is None or len(found) < len(p) or (w is None) != (c.weight is None) or (t is None) != (c.time is None):
            return None
        segment = () if c.segment is None else segments(cells[c.segment])
        events = EventBatch(side_by_side(found), y, w, t, *segment)
        return self.cleared(events) if events.sound else None

    def cleared(
        self,
        events: EventBatch,
        wrong: Sequence[int] = (),
        bad: tuple[BadCell, ...] = (),
        cells: int = 0,
        rows: int = 0,
    ) -> EventBatch:
        """Leave out the rows that are bad (`wrong`) or have a missing value, which is nan, and count them.

        Before that, `rows` were bad as a whole; `bad` names some of the bad `cells`.
        """
        c = self.columns
        failed = np.zeros(len(events), bool)
        failed[list(wrong)] = True
        absent, missing = np.zeros(len(events), bool), {}
        p = events.p.T if c.classes else (events.p,)
        for name, values in (*zip(c.p, p, strict=True), (c.y, events.y), (c.weight, events.w), (c.time, events.t)):
            gone = np.isnan(values) & ~failed if values is not None else failed[:0]
            if name is not None and gone.any():
                missing[name] = int(gone.sum())
                absent |= gone
        kept = events.part(~(failed | absent)) if (failed | absent).any() else events
        without, rows = int(absent.sum()), rows + int(failed.sum())
        return replace(kept, missing=missing, missing_rows=without, bad=bad, bad_cells=cells, bad_rows=rows)


def side_by_side(columns: list[Floats]) -> Floats:
    """One column as it is, several as the classes of a top-label claim."""
    return columns[0] if len(columns) == 1 else np.column_stack(columns)
