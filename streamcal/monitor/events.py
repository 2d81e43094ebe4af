"""The one form of events between a message and a window: predictions, labels and joined pairs as columns.

A row of them is a :class:`Prediction`, a :class:`Label` or a :class:`Pair`. What is not allowed is found once, where columns are
made of rows (:func:`checked`), and travels with the event: the join counts it under the name of the field.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, Ints
from streamcal.limits import HEAVIEST, LATEST, LONGEST, is_allowed, is_text

Codes: TypeAlias = npt.NDArray[np.int8]
Score: TypeAlias = float | tuple[float, ...]
# By the code of what is wrong: nothing, or a field.
FIELDS = ("", "model", "version", "id", "t", "p", "w", "segment", "y")
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
Columns: TypeAlias = Sequence[tuple[Any, ...]]  # of rows of one kind, in the order of its fields
Checked: TypeAlias = tuple[Row, tuple[str, ...]]  # a row, and its fields that are not allowed


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
    it was when it did.

    >>> events = Events.of([Prediction("credit", "7", "a", 0.0, 0.8), Label("credit", None, "a", 9.0, 1.0)])
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

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Events:
        """Columns of rows, which are checked. TypeError if one is neither a Prediction nor a Label."""
        rows = all_rows(rows)
        sides = _sides(rows)
        if _are_usual(*sides):
            return cls._of_sides(rows, *sides, np.zeros(len(rows), np.int8))
        return cls.of_checked([checked(row) for row in rows])

    @classmethod
    def of_checked(cls, some: Sequence[Checked]) -> Events:
        """Columns of rows that have been checked."""
        rows, codes = [row for row, _ in some], [FIELDS.index(wrong[0]) if wrong else 0 for _, wrong in some]
        return cls._of_sides(rows, *_sides(rows), np.array(codes, np.int8))

    @classmethod
    def _of_sides(cls, rows: list[Row], predictions: Columns, labels: Columns, wrong: Codes) -> Events:
        n, scores = len(rows), _scores(predictions[4])
        keys = [
            *zip(repeat(Prediction), *predictions[:2], strict=False),
            *zip(repeat(Label), *labels[:2], strict=False),
        ]
        code = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        stream, t = np.empty(n, np.int64), np.empty(n)
        p, y, w = np.full((n, *scores.shape[1:]), math.nan), np.full(n, math.nan), np.ones(n)
        mine = np.fromiter(map(len, rows), np.int64, n) == len(Prediction._fields)
        for of, column, values in (
            (mine, p, scores), (mine, w, predictions[5]), (~mine, y, labels[4]),
            (mine, t, predictions[3]), (~mine, t, labels[3]),
        ):  # fmt: skip
            column[of] = values
        stream[mine], stream[~mine] = np.split(
            np.fromiter(map(code.__getitem__, keys), np.int64, n), [len(predictions[0])]
        )
        ids, segment = list(predictions[2] or labels[2]), list(predictions[6] or [""] * n)
        if predictions[0] and labels[0]:
            ids = [row[2] for row in rows]
            segment = [row[6] if type(row) is Prediction else "" for row in rows]
        return cls([StreamKey(*key) for key in code], stream, ids, t, p, y, w, segment, wrong)

    @classmethod
    def predictions(
        cls, model: str, version: str, ids: list[str], t: Array, p: Array, w: Array | None, segment: list[str]
    ) -> Events:
        """Predictions of one version, checked already. Shapes (n,); p also (n, k). Without w each weighs 1."""
        n = len(ids)
        stream = [StreamKey(Prediction, model, version)], np.zeros(n, np.int64)
        w, none = np.ones(n) if w is None else w, np.full(n, math.nan)
        return cls(*stream, ids, t, p, none, w, segment, np.zeros(n, np.int8))

    @classmethod
    def labels(cls, model: str, versions: Sequence[str | None], ids: list[str], t: Array, y: Array) -> Events:
        """Labels, checked already: each for all the versions, one after the other. Shapes (n,)."""
        k, n = len(versions), len(ids) * len(versions)
        stream = [StreamKey(Label, model, version) for version in versions], np.tile(np.arange(k), len(ids))
        ids = ids if k == 1 else [name for name in ids for _ in versions]
        t, y, none = np.repeat(t, k), np.repeat(y, k), np.full(n, math.nan)
        return cls(*stream, ids, t, none, y, np.ones(n), [""] * n, np.zeros(n, np.int8))

    @classmethod
    def pairs(cls, model: str, version: str, ids: list[str], segment: list[str], *columns: Array) -> Events:
        """Joined pairs of one version: columns t, p, y, w, u, moment, seq, sign. Shapes (n,); p also (n, k)."""
        for column in columns:
            column.flags.writeable = False
        (t, p, y, w, *rest), n = columns, len(segment)
        stream = [StreamKey(Pair, model, version)], np.zeros(n, np.int64)
        return cls(*stream, ids, t, p, y, w, segment, np.zeros(n, np.int8), *rest)

    def __len__(self) -> int:
        return len(self.t)

    def __iter__(self) -> Iterator[Any]:
        return map(self.row, range(len(self)))

    def row(self, i: int) -> Any:
        """One event by itself: a Prediction, Label or Pair."""
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
        columns = {name: getattr(self, name) for name in ("stream", "p", *PLAIN)}
        cut = {name: column[rows] if len(column) else column for name, column in columns.items()}
        if isinstance(rows, slice):
            return Events(self.streams, id=self.id[rows], segment=self.segment[rows], **cut)
        places = rows.tolist()
        ids = [self.id[i] for i in places] if self.id else []
        return Events(self.streams, id=ids, segment=[self.segment[i] for i in places], **cut)


# Columns of shape (n,), or empty where pairs alone have them.
PLAIN = ("t", "y", "w", "wrong", "u", "moment", "seq", "sign")


def _scores(values: Sequence[Score]) -> Array:
    """Scores as a column: (n,), or (n, k) with nan behind those of fewer numbers."""
    if set(map(type, values)) == {float}:
        return np.array(values)
    several = [one if isinstance(one, tuple) else (one,) for one in values]
    wide = max(map(len, several), default=1)
    if wide == 1:
        return np.array([one[0] for one in several], np.float64)
    return np.array([(*one, *[math.nan] * (wide - len(one))) for one in several], np.float64)


def padded(p: Array, wide: int) -> Array:
    """The same rows (n, k) with room for so many numbers each: nan behind theirs."""
    if p.shape[1] == wide:
        return p  # the table of a million open predictions must not be copied for every batch
    room = np.full((len(p), wide), math.nan)
    room[:, : p.shape[1]] = p
    return room


# -- which values are allowed ------------------------------------------------------------------------------------------


def all_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows as a list. TypeError if one is neither a Prediction nor a Label."""
    rows = list(rows)
    strange = set(map(type, rows)) - {Prediction, Label}
    if strange:
        raise TypeError(f"events must be Prediction or Label, got {', '.join(sorted(s.__name__ for s in strange))}")
    return rows


def checked(event: Row) -> Checked:
    """The event with plain texts and floats, and its fields that are not allowed, in their order.

    Whole numbers and numpy's are numbers, True and "0.5" are not. A model and version that are no text become "".

    >>> checked(Label("credit", None, "a1", 1700000000, 1))
    (Label(model='credit', version=None, id='a1', t=1700000000.0, y=1.0), ())
    >>> checked(Label("credit", "7", "", math.nan, 1.0))[1]
    ('id', 't')
    """
    return (event, ()) if _is_usual(event) else patiently_checked(event)


def _is_usual(event: Row) -> bool:
    """A quick look at usual types: whether an event is allowed just as it is. False says nothing."""
    # written twice, as most of the time of a label would go into the fields that it has not
    if isinstance(event, Prediction):
        model, version, name, t, p, w, segment = event
        return (
            type(name) is type(model) is type(version) is type(segment) is str
            and type(t) is type(w) is float
            and (name + segment + model + version).isascii()
            and 0 < len(name) <= LONGEST
            and len(segment) + len(model) + len(version) <= LONGEST
            and -LATEST <= t <= LATEST
            and 0.0 <= w <= HEAVIEST
            and (math.isfinite(p) if type(p) is float else _several(p))
        )
    model, every, name, t, y = event
    version = "" if every is None else every
    return (
        type(name) is type(model) is type(version) is str
        and type(t) is type(y) is float
        and (name + model + version).isascii()
        and 0 < len(name) <= LONGEST
        and len(model) + len(version) <= LONGEST
        and -LATEST <= t <= LATEST
        and math.isfinite(y)
    )


def _sides(rows: Sequence[Row]) -> tuple[Columns, Columns]:
    """The columns of the predictions among some rows, and of the labels."""
    predictions = list(zip(*[row for row in rows if type(row) is Prediction], strict=True))
    labels = list(zip(*[row for row in rows if type(row) is Label], strict=True))
    return predictions or [()] * len(Prediction._fields), labels or [()] * len(Label._fields)


def _are_usual(predictions: Columns, labels: Columns) -> bool:
    """:func:`_is_usual` for all of some columns: in a fifth of the time."""
    models, versions, ids, t, p, w, segments = predictions
    their_models, their_versions, their_ids, u, y = labels
    if p and type(p[0]) is tuple and set(map(type, p)) == {tuple} and min(map(len, p)) > 1:
        p = tuple(chain.from_iterable(p))
    texts = chain(models, versions, ids, segments, their_models, their_ids)
    kinds = set(map(type, chain(p, t, w, u, y))), set(map(type, texts)), set(map(type, their_versions))
    if kinds[0] != {float} or kinds[1] != {str} or not kinds[2] <= {str, type(None)}:
        return False
    names, every = {*models, *versions, *segments, *their_models, *their_versions} - {None}, [*ids, *their_ids]
    weights = np.array(w)
    return (
        "".join(chain(every, names)).isascii()
        and 0 < min(map(len, every)) <= max(map(len, every)) <= LONGEST
        and 3 * max(map(len, names)) <= LONGEST
        and bool(((weights >= 0.0) & (weights <= HEAVIEST)).all() and np.isfinite([*p, *y]).all())
        and bool((np.abs([*t, *u]) <= LATEST).all())
    )


def _several(p: Any) -> bool:
    return type(p) is tuple and len(p) > 1 and set(map(type, p)) == {float} and all(map(math.isfinite, p))


def patiently_checked(event: Row) -> Checked:
    """:func:`checked` for any types."""
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
