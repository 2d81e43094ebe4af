"""What a cell means: the one place where the text of a table becomes numbers, whatever format it came in.

Spaces around a cell do not count. An empty cell, null, None, nan, NA and their like (``outcomes``) are *missing*: the row is
counted as missing and never as a negative. Anything else that is not what its column holds is *bad*: counted, and named by
line, column and value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.arrays import one_number
from streamcal.limits import BOUNDS, LATEST, is_distribution
from streamcal.logistic import sigmoid
from streamcal.reading import SourceError
from streamcal.reading.outcomes import MISSING, UNKNOWN, ClassLabels, Outcomes, text
from streamcal.reading.roles import Roles
from streamcal.reading.shown import shown
from streamcal.times import stamp

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Meaning = Callable[[object], float]
Quick = Callable[[Any], Floats | None]  # a column -> its values; None where one is not as usual
Numbered = Callable[[Any], Codes]  # a column of labels -> the numbers of their values

UNITS = {"d": 1 / 86_400, "s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # how many are a second
RECENT = 1e8  # seconds: March 1973. Beside later times an earlier one counts another unit, or nothing
NAMED = 10  # bad cells of a batch that are named; the others are only counted


@dataclass(frozen=True)
class BadCell:
    """A cell (or, without a column, a whole row) that could not be read."""

    line: int
    column: str | None
    value: str

    def __str__(self) -> str:
        if self.column is None:
            return f"line {self.line}: {shown(self.value, 80)}"
        cut = self.value if len(self.value) <= 40 else self.value[:37] + "..."
        return f"line {self.line}, column {shown(self.column)}: {cut!r}"


@dataclass(frozen=True)
class EventBatch:
    """Events in arrival order, without the rows that were missing or bad: those are only counted.

    `p` has shape (n,), or (n, classes) for a top-label claim. `segment` holds indices into `segments`. `bad_after`: of each bad
    row, how many events of this batch came before it. `lost`: by segment, how many rows were missing and how many bad.
    `provisional`: whether `y` holds classes by name, and later labels may say that all are indices.
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
    bad_after: Codes | None = None
    lost: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    provisional: bool = False

    def __len__(self) -> int:
        return len(self.y)

    @property
    def rows(self) -> int:
        """Rows read, events or not."""
        return len(self) + self.missing_rows + self.bad_rows

    @property
    def sound(self) -> bool:
        """Whether no window would refuse a value: where one would, the plain path names its line."""
        if self.p.ndim == 2 and not is_distribution(self.p[~np.isnan(self.p).any(-1)]).all():
            return False
        return not outside("p", self.p) and (self.w is None or not outside("w", self.w))

    def part(self, keep: slice | NDArray[np.bool_ | np.int64]) -> EventBatch:
        """Some of the events, without the counts of what was left out."""
        w, t = (None if values is None else values[keep] for values in (self.w, self.t))
        segment = None if self.segment is None else self.segment[keep]
        return EventBatch(self.p[keep], self.y[keep], w, t, segment, self.segments)


NO_ROWS = np.empty(0, np.int64)
EMPTY = EventBatch(np.empty(0), np.empty(0))


def number(cell: object, decimal: str = ".") -> float:
    """The value of a numeric cell, nan where it is missing; ValueError when it is no number."""
    shown = text(cell)
    if shown.lower() in MISSING:
        return math.nan
    if decimal == "," and isinstance(cell, str):
        if "." in shown:
            raise ValueError(shown)
        shown = shown.replace(",", ".")
    return float(shown)


class Scores:
    """The scale of a table's predicted probabilities, and what of them lies outside it: counted, to say what they look like.

    ``scale``: unit, percent or logit (of several classes: softmax of a row).
    """

    def __init__(self, scale: str = "unit", decimal: str = ".") -> None:
        self.scale, self.decimal = scale, decimal
        self.outside = self.negative = self.large = self.commas = self.percents = self.rows = 0

    def number(self, cell: object) -> float:
        """As :func:`number`; on the scale of percent a cell may end with the sign."""
        if self.scale == "percent" and isinstance(cell, str):
            cell = cell.strip().removesuffix("%")
        return number(cell, self.decimal)

    def scaled(self, p: Floats) -> Floats:
        """Values on the scale as probabilities, of shape (n,) or (n, classes); nan stays."""
        if self.scale == "percent":
            return p / 100.0
        if self.scale == "unit" or not p.size:
            return p
        p = np.where(np.isinf(p), np.inf, p)  # no probability: outside, and counted
        with np.errstate(invalid="ignore"):
            if p.ndim == 1:
                return np.where(np.isinf(p), np.inf, sigmoid(p))
            shares = np.exp(p - p.max(-1, keepdims=True))
            return np.where(np.isinf(p).any(-1, keepdims=True), np.inf, shares / shares.sum(-1, keepdims=True))

    def read(self, columns: Sequence[Sequence[object]]) -> tuple[Floats, list[list[int]], list[int]]:
        """Columns of cells -> probabilities, the bad cells of each column, and the rows of classes that do not sum to 1."""
        found = [_floats(cells, self.number, self.decimal) for cells in columns]
        p = self.scaled(side_by_side([values for values, _ in found]))
        for cells, values, (_, bad) in zip(columns, p.T if p.ndim == 2 else (p,), found, strict=True):
            self.look(cells, values, bad)
            bad.extend(outside("p", values))
        wrong = [bad for _, bad in found]
        if p.ndim == 1:
            return p, wrong, []
        whole = np.asarray(~np.isnan(p).any(-1))
        whole[[i for bad in wrong for i in bad]] = False
        rows = np.flatnonzero(whole & ~is_distribution(p)).tolist()
        self.rows += len(rows)
        return p, wrong, rows

    def look(self, cells: Sequence[object], values: Floats, bad: Sequence[int]) -> None:
        """Count what a column of cells has that is no probability. `values` are scaled, `bad` are the unreadable cells."""
        wrong = values[outside("p", values)]
        self.outside += wrong.size
        self.negative += int((wrong < 0).sum())
        self.large += int((wrong > 100).sum())
        for cell in (text(cells[i]) for i in bad):
            self.percents += cell.endswith("%")
            with suppress(ValueError):
                self.commas += "," in cell and not math.isnan(number(cell.removesuffix("%"), ","))

    def problem(self, allowed: float, n: int) -> str | None:
        """What the scores look like where more than this share of n rows has none; None where all is well."""
        if self.commas > allowed * n:
            return "scores have a decimal comma: --decimal ,"
        if self.percents > allowed * n:
            return "scores have percent signs: --scale percent"
        if self.rows > allowed * n:
            return f"{self.rows:,} rows of class probabilities do not sum to 1 (to .001)"
        if not self.outside > allowed * n:
            return None
        said = f"{self.outside:,} score{'s lie' if self.outside > 1 else ' lies'} outside [0, 1]"
        if self.scale != "unit":
            return f"{said}: are they on the scale of --scale {self.scale}?"
        if self.large and not self.negative:
            return f"{said}, {self.large:,} above 100"
        said += f", {self.negative:,} of them below 0" if self.negative else ""
        guess = "logits: --scale logit" if self.negative else "percent: --scale percent"
        if 2 * self.outside > n:
            return f"{said}: looks like {guess}"
        return f"{said}, and most within; if all are {guess}, else mend these or allow them by --max-bad"


class Clock:
    """Times of one file, all in ONE format: ISO-8601 (naive = UTC), epoch seconds, or the one given.

    `form`: iso, s, ms, us, ns, d (days since 1970), or a strptime pattern such as %d-%m-%Y. Without it the first time decides
    for the whole file, so that 01-09-2018 is never read by guessing what 13-09-2018 must have meant. The unit is held against
    every cell: a time after the year 5138, or one before March 1973 beside later ones, counts another unit and is bad.
    """

    def __init__(self, form: str | None = None, decimal: str = ".") -> None:
        if form is not None and form != "iso" and form not in UNITS and "%" not in form:
            raise SourceError(f"--time-format must be iso, s, ms, us, ns, d or a pattern such as %d-%m-%Y, got {form}")
        self.form, self.decimal = form, decimal
        self.settled = form is not None and form not in UNITS
        self.low = -LATEST  # the smallest epoch time that counts the same unit as the first

    def __call__(self, cell: object) -> float:
        """Seconds since epoch, nan where it is missing; ValueError when the cell is in another format."""
        shown = text(cell)
        if shown.lower() in MISSING:
            return math.nan
        if self.form in UNITS:
            seconds = number(cell, self.decimal) / UNITS[self.form]
            if not self.low <= seconds <= LATEST:
                raise ValueError(shown)
        elif self.form == "iso":
            seconds = stamp(cell if isinstance(cell, datetime) else datetime.fromisoformat(shown))
        elif self.form is not None:
            seconds = stamp(datetime.strptime(shown, self.form))
        if self.form is None or not math.isfinite(seconds):
            raise ValueError(shown)
        return seconds

    def settle(self, cells: Sequence[object]) -> None:
        """Decide the format, and the smallest time, by the first cell that has one; SourceError where none of the times has."""
        if self.settled:
            return
        shown = [s for s in map(text, cells) if s.lower() not in MISSING]
        if self.form is None:
            self.form = next(filter(None, map(_form_of, shown)), None)
        if self.form is None and shown:
            raise SourceError(
                f"time {shown[0]!r} is neither ISO-8601 nor epoch seconds; say what it is with --time-format %d-%m-%Y"
            )
        times = (one_number(s) / UNITS.get(self.form or "", math.nan) for s in shown)
        first = next((t for t in times if t <= LATEST), math.nan)
        self.settled = bool(shown)
        if first >= RECENT:
            self.low = RECENT


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


def read_numbers(
    cells: Sequence[object], what: str, meaning: Meaning = number, decimal: str = "."
) -> tuple[Floats, list[int]]:
    """`read` with `meaning`, for what a window would not refuse as a w. Text goes through float() alone as long as it can,
    which is 5 times faster.
    """
    values, bad = _floats(cells, meaning, decimal)
    return values, bad + outside(what, values)


def _floats(cells: Sequence[object], meaning: Meaning, decimal: str) -> tuple[Floats, list[int]]:
    try:
        if decimal != "." or any(isinstance(cell, bool) for cell in cells):
            raise ValueError
        return np.fromiter(map(float, cells), np.float64, len(cells)), []  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        return read(cells, meaning)


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
        self.columns = c = columns
        self.clock = Clock(c.time_format, c.decimal)
        self.scores = Scores(c.scale, c.decimal)
        self.labels = labels_of(c)

    def batch(
        self, cells: Mapping[str, Sequence[object]], lines: Sequence[int], bad_rows: Sequence[BadCell] = ()
    ) -> EventBatch:
        """Cells by column, with the line of each row, and the rows that already failed."""
        c = self.columns
        if c.time is not None:
            self.clock.settle(cells[c.time])
        numbers = self.labels.numbers(cells[c.y])
        y = self.labels.outcomes(numbers)
        p, wrong_p, unlike = self.scores.read([cells[name] for name in c.p])
        wrong = [(i, name) for name, bad in zip(c.p, wrong_p, strict=True) for i in bad]
        wrong += [(i, c.y) for i in np.flatnonzero(y == UNKNOWN).tolist()]
        w = t = None
        if c.weight is not None:
            w, bad = read_numbers(cells[c.weight], "w", partial(number, decimal=c.decimal), c.decimal)
            wrong += [(i, c.weight) for i in bad]
        if c.time is not None:
            t, bad = read(cells[c.time], self.clock)
            wrong += [(i, c.time) for i in bad]
        named = [BadCell(lines[i], name, text(cells[name][i])) for i, name in sorted(wrong)[:NAMED]]
        named += [BadCell(lines[i], None, f"probabilities sum to {p[i].sum():.4g}") for i in unlike[:NAMED]]
        named = sorted([*named, *bad_rows], key=attrgetter("line"))[:NAMED]
        segment = () if c.segment is None else coded(cells[c.segment])
        rows = sorted({i for i, _ in wrong} | set(unlike))
        n_bad = len(wrong) + len(unlike) + len(bad_rows)
        before = np.searchsorted(np.asarray(lines), [bad.line for bad in bad_rows])
        self.labels.count(numbers)
        return self.cleared(EventBatch(p, y, w, t, *segment), rows, tuple(named), n_bad, before)

    def quick(
        self, cells: Mapping[str, Any], labels: Numbered, numbers: Quick, times: Quick, segments: Callable[[Any], Any]
    ) -> EventBatch | None:
        """A batch of columns that are read whole; None where a reader declines, or a window would refuse a value."""
        c = self.columns
        p = [numbers(cells[name]) for name in c.p]
        w, t = (None if name is None else how(cells[name]) for name, how in ((c.weight, numbers), (c.time, times)))
        found = [values for values in p if values is not None]
        if len(found) < len(p) or (w is None) != (c.weight is None) or (t is None) != (c.time is None):
            return None
        which = labels(cells[c.y])
        y = self.labels.outcomes(which)
        segment = () if c.segment is None else segments(cells[c.segment])
        events = EventBatch(self.scores.scaled(side_by_side(found)), y, w, t, *segment)
        return self.cleared(events) if events.sound and self.labels.count(which, known=True) else None

    def cleared(
        self,
        events: EventBatch,
        wrong: Sequence[int] = (),
        bad: tuple[BadCell, ...] = (),
        cells: int = 0,
        before: Codes = NO_ROWS,
    ) -> EventBatch:
        """Leave out the rows that are bad (`wrong`) or have a missing value, which is nan, and count them.

        Rows that were bad as a whole stood `before` the rows of these indices; `bad` names some of the bad `cells`.
        """
        c = self.columns
        failed, absent = np.zeros((2, len(events)), bool)
        missing: dict[str, int] = {}
        failed[list(wrong)] = True
        p = events.p.T if c.classes else (events.p,)
        for name, values in (*zip(c.p, p, strict=True), (c.y, events.y), (c.weight, events.w), (c.time, events.t)):
            if name is None or values is None or not (gone := np.isnan(values)).any():
                continue
            gone &= ~failed
            absent |= gone
            missing |= {name: int(gone.sum())} if gone.any() else {}
        provisional = not self.labels.settled
        if not (wrong or missing or before.size):
            return replace(events, provisional=provisional)
        kept = np.append(0, np.cumsum(~(failed | absent)))  # events before each row
        return replace(
            events.part(~(failed | absent)),
            missing=missing,
            missing_rows=int(absent.sum()),
            bad=bad,
            bad_cells=cells,
            bad_rows=int(failed.sum()) + before.size,
            bad_after=np.sort(np.concatenate([kept[:-1][failed], kept[before]])),
            lost=_lost(events, absent, failed),
            provisional=provisional,
        )

    def problems(self, allowed: float, rows: int) -> list[str]:
        """Why a table cannot be judged of which these rows are no missing ones, and what settles it; empty where it can."""
        found = (self.labels.problem(allowed), self.scores.problem(allowed, rows))
        return [problem for problem in found if problem is not None]


def labels_of(c: Roles) -> Outcomes | ClassLabels:
    """The rule for a table's labels, with nothing counted; SourceError for declarations that contradict themselves."""
    if c.classes:
        return ClassLabels(c.classes, c.prefix, c.labels, c.missing, command=True)
    try:
        return Outcomes(c.pos_label, c.neg_label, c.missing, command=True)
    except ValueError as error:
        raise SourceError(str(error)) from None


def _lost(events: EventBatch, absent: NDArray[np.bool_], failed: NDArray[np.bool_]) -> dict[str, tuple[int, int]]:
    """By segment, how many rows are missing and how many are bad."""
    if events.segment is None:
        return {}
    gone, bad = (
        np.bincount(events.segment[rows], minlength=len(events.segments)).tolist() for rows in (absent, failed)
    )
    return {name: (m, b) for name, m, b in zip(events.segments, gone, bad, strict=True) if m or b}


def side_by_side(columns: list[Floats]) -> Floats:
    """One column as it is, several as the classes of a top-label claim."""
    return columns[0] if len(columns) == 1 else np.column_stack(columns)
