"""The one form of events between a message and a window: predictions, labels and joined pairs as columns.

A row of them is a :class:`Prediction`, a :class:`Label` or a :class:`Pair`. What is not allowed is found once, at the door
(the decoder of messages, or :func:`checked_rows`), and travels with the event: the join counts it under the name of the field.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, count
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, Ints
from streamcal.limits import HEAVIEST, LATEST, LONGEST, Flags, is_allowed, is_text

Codes: TypeAlias = npt.NDArray[np.int8]
Score: TypeAlias = float | tuple[float, ...]
# By the code of what is wrong: nothing, or a field.
FIELDS = ("", "model", "version", "id", "t", "p", "w", "segment", "y")
BLOCK = 1_000  # events taken together: what they touch stays in the processor's cache
EMPTY: Array = np.empty(0)
EMPTY.flags.writeable = False


class Prediction(NamedTuple):
    """A served prediction: p is a number, or a tuple of them (several classes); t in seconds UTC; an id is used once.

    Allowed: texts of up to 1,000 characters, an id that is not empty, times within 1e11 s of 1970, finite p, w in [0,
    1e100].

    >>> Prediction("credit", "7", "a1", 1.7e9, 0.82).w
    1.0
    """

    model: str
    version: str
    id: str
    t: float
    p: Score
    w: float = 1.0
    segment: str = ""


class Label(NamedTuple):
    """An outcome (0 or 1, a class index, a value) for a prediction; t is when it became known, in seconds UTC.

    A version of None: for every version of the model.

    >>> Label("credit", "7", "a1", 1.7e9, 1.0).y
    1.0
    """

    model: str
    version: str | None
    id: str
    t: float
    y: float


class Pair(NamedTuple):
    """One joined event: t and u are the times of prediction and label; sign -1 takes an earlier pair back."""

    sign: float
    model: str
    version: str
    id: str
    t: float
    p: Score
    w: float
    segment: str
    y: float
    u: float


Row: TypeAlias = Prediction | Label


def row_from(data: Sequence[Any]) -> Row:
    """The row that ``list(row)`` wrote down, as JSON gives it back."""
    values: list[Any] = [tuple(value) if isinstance(value, list) else value for value in data]
    return Label(*values) if len(values) == len(Label._fields) else Prediction(*values)


Columns: TypeAlias = list[tuple[Any, ...]]
Checked: TypeAlias = tuple[Row, str]  # a row, and the first of its fields that is not allowed, "" if all are


class StreamKey(NamedTuple):
    """What some events have in common: their kind (the class of their rows), model and version."""

    kind: type[Prediction | Label | Pair]
    model: str
    version: str | None


@dataclass(frozen=True, eq=False)
class Events:
    """Events in order, as columns of n. They are not written to.

    ``stream``: which of the ``streams`` each is of. ``p``: (n,), or (n, k) with nan behind a score of fewer numbers; a label
    has nan there, and a prediction as its ``y``. ``wrong``: 0, or which of FIELDS is not allowed. Only pairs have the last four
    columns: ``u``, the time of the label; ``moment``, when the pair counts: then, but not before the prediction is ripe;
    ``seq``, the number of the prediction, given once; ``sign``, -1 where the pair does not count any longer: its moment is what
    it was when it did. ``rows``: the rows that they were made of, where they were.

    >>> rows = [Prediction("credit", "7", "a", 0.0, 0.8), Label("credit", None, "a", 9.0, 1.0)]
    >>> events = Events.of(checked_rows(rows))
    >>> events.stream.tolist(), events.t.tolist(), events.p.tolist(), events.y.tolist()
    ([0, 1], [0.0, 9.0], [0.8, nan], [nan, 1.0])
    >>> list(events.part(slice(1, 2)))
    [Label(model='credit', version=None, id='a', t=9.0, y=1.0)]
    """

    streams: Sequence[StreamKey]
    stream: Ints
    id: list[str]
    t: Array
    p: Array
    y: Array
    w: Array
    segment: list[str]
    wrong: Codes
    u: Array = field(default_factory=lambda: EMPTY)
    moment: Array = field(default_factory=lambda: EMPTY)
    seq: Array = field(default_factory=lambda: EMPTY)
    sign: Array = field(default_factory=lambda: EMPTY)
    rows: Sequence[Row] = ()

    @classmethod
    def of(cls, some: Sequence[Checked]) -> Events:
        """Columns of rows that have been checked."""
        rows, fields = [*zip(*some, strict=True)] or ((), ())
        events = cls._of_columns(rows, *_by_kind(rows))
        if any(fields):
            events.wrong[:] = list(map(FIELDS.index, fields))
        return events

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> Events:
        """Columns of rows that are checked now: all together if they are of usual types, else one by one."""
        columns = _by_kind(rows)
        return cls._of_columns(rows, *columns) if _are_usual(*columns) else cls.of(checked_rows(rows))

    @classmethod
    def _of_columns(cls, rows: Sequence[Row], predictions: Columns, labels: Columns) -> Events:
        n, (models, versions, ids, t, *_) = len(rows), predictions or [()] * 4
        scores, weights, segment = predictions[4:] or [()] * 3
        p, w, y = score_column(scores), np.array(weights, np.float64), np.empty(n)
        y.fill(math.nan)
        if labels:
            models, versions, ids, t, *_ = zip(*rows, strict=False)  # a label is shorter
            label = np.array([type(row) is Label for row in rows])
            p, w, y[label] = _spread(p, ~label, math.nan), _spread(w, ~label, 1.0), labels[4]
            segment = tuple([row.segment if type(row) is Prediction else "" for row in rows])
        code: defaultdict[tuple[Any, ...], int] = defaultdict(count().__next__)
        codes = map(code.__getitem__, zip(map(type, rows), models, versions, strict=True))
        stream, times, wrong = np.fromiter(codes, np.int64, n), np.array(t, np.float64), np.zeros(n, np.int8)
        streams = [StreamKey(*key) for key in code]
        return cls(streams, stream, list(ids), times, p, y, w, list(segment), wrong, rows=rows)

    @classmethod
    def alike(
        cls,
        key: StreamKey,
        ids: list[str],
        t: Array,
        p: Array | None = None,
        y: Array | None = None,
        w: Array | None = None,
        segment: list[str] | None = None,
        *more: Any,
    ) -> Events:
        """Events of one stream, checked already. Shapes (n,); p also (n, k). ``more``: u, moment, seq and sign of pairs."""
        n = len(t)
        p, y = (np.full(n, math.nan) if column is None else column for column in (p, y))
        w, segment = np.ones(n) if w is None else w, [""] * n if segment is None else segment
        return cls([key], np.zeros(n, np.int64), ids, t, p, y, w, segment, np.zeros(n, np.int8), *more)

    def __len__(self) -> int:
        return len(self.t)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows) if self.rows else map(self.row, range(len(self)))

    def row(self, i: int) -> Any:
        """One event by itself: a Prediction, Label or Pair."""
        if self.rows:
            return self.rows[i]
        kind, model, version = self.streams[self.stream[i]]
        name, t = self.id[i], float(self.t[i])
        if kind is Label:
            return Label(model, version, name, t, float(self.y[i]))
        scores = self.p[i].tolist() if self.p.ndim == 2 else [float(self.p[i])]
        scores = [p for p in scores if p == p] or [math.nan]
        p, w = scores[0] if len(scores) == 1 else tuple(scores), float(self.w[i])
        if kind is Prediction:
            return Prediction(model, version or "", name, t, p, w, self.segment[i])
        pair = float(self.sign[i]), model, version or "", name, t, p, w, self.segment[i]
        return Pair(*pair, float(self.y[i]), float(self.u[i]))

    @property
    def model(self) -> str:
        """The model of all of them, where they are of one."""
        return self.streams[0].model

    @property
    def version(self) -> str:
        """The version of all of them, where they are of one."""
        return self.streams[0].version or ""

    def segments(self) -> Iterable[tuple[str, str]]:
        """Models and segments of the predictions that are allowed, each once, in the order in which they first come."""
        mine = np.array([key.kind is Prediction for key in self.streams])[self.stream] & (self.wrong == 0)
        named = zip(self.stream.tolist(), self.segment, strict=True)
        found = dict.fromkeys(named if mine.all() else compress(named, mine.tolist()))
        return dict.fromkeys((self.streams[code].model, segment) for code, segment in found)

    def part(self, rows: slice | Ints) -> Events:
        """The events at these places."""
        columns: dict[str, Any] = {
            name: column[rows] if len(column := getattr(self, name)) else column for name in COLUMNS
        }
        if isinstance(rows, slice):
            columns |= {"rows": self.rows[rows]}
            return Events(self.streams, id=self.id[rows], segment=self.segment[rows], **columns)
        places = rows.tolist()
        ids = [self.id[i] for i in places] if self.id else []
        return Events(self.streams, id=ids, segment=[self.segment[i] for i in places], **columns)


COLUMNS = ("stream", "t", "p", "y", "w", "wrong", "u", "moment", "seq", "sign")


def score_column(values: Sequence[Score]) -> Array:
    """Scores as a column: (n,), or (n, k) with nan behind those of fewer numbers."""
    if set(map(type, values)) == {float}:
        return np.array(values)
    several = [one if isinstance(one, tuple) else (one,) for one in values]
    wide = max(map(len, several), default=1)
    column = np.array([(*one, *[math.nan] * (wide - len(one))) for one in several], np.float64)
    return column if wide > 1 else column.reshape(-1)


def padded(p: Array, wide: int) -> Array:
    """The same rows (n, k) with room for so many numbers each: nan behind theirs."""
    if p.shape[1] == wide:
        return p  # the table of a million open predictions must not be copied for every batch
    room = np.full((len(p), wide), math.nan)
    room[:, : p.shape[1]] = p
    return room


# -- which values are allowed ------------------------------------------------------------------------------------------


def checked_rows(rows: Iterable[Row]) -> list[Checked]:
    """Rows, each with the first of its fields that is not allowed."""
    done: list[Checked] = []
    for row in rows:
        plain, wrong = (row, ()) if _is_usual(row) else checked(row)
        done.append((plain, wrong[0] if wrong else ""))
    return done


def _is_usual(row: Row) -> bool:
    """A quick look at a row of usual types: whether it is allowed just as it is. False says nothing."""
    model, version, name, t, value = row[:5]
    w, segment = row[5:] if type(row) is Prediction else (1.0, "")
    version = "" if version is None and type(row) is Label else version
    return (
        type(t) is type(value) is type(w) is float
        and type(name) is type(model) is type(version) is type(segment) is str
        and (name + segment + model + version).isascii()
        and 0 < len(name) <= LONGEST
        and len(segment) + len(model) + len(version) <= LONGEST
        and -LATEST <= t <= LATEST
        and -math.inf < value < math.inf
        and 0.0 <= w <= HEAVIEST
    )


def _by_kind(rows: Sequence[Row]) -> tuple[Columns, Columns]:
    """The columns of the predictions among rows and of the labels; [] where there are none."""
    predictions, labels = ([row for row in rows if type(row) is kind] for kind in (Prediction, Label))
    return [*zip(*predictions, strict=True)], [*zip(*labels, strict=True)]


def _are_usual(predictions: Columns, labels: Columns) -> bool:
    """The same quick look at all of some rows."""
    models, versions, ids, t, p, w, segments = predictions or [()] * 7
    of, some, names, u, y = labels or [()] * 5
    if p and type(p[0]) is tuple and set(map(type, p)) == {tuple} and min(map(len, p)) > 1:
        p = tuple(chain.from_iterable(p))
    ids, times = ids + names, t + u
    numbers, texts = (*p, *times, *w, *y), chain(models, versions, ids, segments, of)
    if set(map(type, numbers)) != {float} or set(map(type, texts)) != {str} or set(map(type, some)) - {str, type(None)}:
        return False
    named, lengths = {*models, *versions, *segments, *of, *some} - {None}, set(map(len, ids))
    return (
        "".join(chain(ids, named)).isascii()
        and 0 < min(lengths) <= max(lengths) <= LONGEST
        and 3 * max(map(len, named)) <= LONGEST
        and math.isfinite(sum(numbers))  # then each of them is
        and -LATEST <= min(times) <= max(times) <= LATEST
        and 0.0 <= min(w, default=0.0) <= max(w, default=0.0) <= HEAVIEST
    )


def _spread(column: Array, at: Flags, fill: float) -> Array:
    """The column in the rows where it belongs, and what fills the others."""
    spread = np.full((len(at), *column.shape[1:]), fill)
    spread[at] = column
    return spread


def checked(event: Row) -> tuple[Row, tuple[str, ...]]:
    """The event with plain texts and floats, and its fields that are not allowed, in their order.

    Whole numbers and numpy's are numbers, True and "0.5" are not. A model and version that are no text become "".

    >>> checked(Label("credit", None, "a1", 1700000000, 1))
    (Label(model='credit', version=None, id='a1', t=1700000000.0, y=1.0), ())
    >>> checked(Label("credit", "7", "", math.nan, 1.0))[1]
    ('id', 't')
    """
    every = isinstance(event, Label) and event.version is None
    model, version, name = map(_text, (event.model, "" if every else event.version, event.id))
    t = _real(event.t)
    wrong = [("model", model is None), ("version", version is None), ("id", not name), ("t", not is_allowed("t", t))]
    if model is None or version is None:
        every, model, version, name = every and model is not None, "", "", ""
    plain: Row
    if isinstance(event, Prediction):
        p, w, segment = _score(event.p), _real(event.w), _text(event.segment)
        wrong += [("p", p is None), ("w", not is_allowed("w", w)), ("segment", segment is None)]
        plain = Prediction(model, version, name or "", t, math.nan if p is None else p, w, segment or "")
    else:
        y = _real(event.y)
        wrong += [("y", not math.isfinite(y))]
        plain = Label(model, None if every else version, name or "", t, y)
    return plain, tuple(field for field, is_wrong in wrong if is_wrong)


def _text(value: Any) -> str | None:
    return str.__str__(value) if is_text(value) else None


def _real(value: Any) -> float:
    """A number as a float, nan if it is none."""
    if type(value) is float:
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _score(value: Any) -> Score | None:
    """A finite number, or a tuple of several from any sequence of them; else None."""
    several = tuple(map(_real, value)) if isinstance(value, tuple | list | np.ndarray) and np.ndim(value) == 1 else ()
    several = several or (_real(value),)
    if not all(map(math.isfinite, several)):
        return None
    return several[0] if len(several) == 1 else several
