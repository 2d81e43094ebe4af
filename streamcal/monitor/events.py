"""What goes into the join and what comes out: predictions, labels, joined events; which values are allowed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from streamcal.monitor.join.opened import RIPE, SEQ, WEIGHT, Array, Piece, Record, Score, T, U, Y

FARTHEST = 1e11  # seconds: the year 5138; a larger time counts milliseconds or less
HEAVIEST = 1e100  # as in a window
LONGEST = 1_000  # characters of an id, a model, a version, a segment


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


Event: TypeAlias = Prediction | Label


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


@dataclass(frozen=True)
class Joined:
    """Joined events of one (model, version), in order, as columns. They can not be written to.

    ``weight`` is ``sign * w``: adding takes back what it must.

    >>> record = (0.0, 0.8, 2.0, "DE", 64.0, 0.0, 1, 1.0, 9.0)
    >>> joined = Joined("credit", "7", [piece_of([(1.0, "a", record)])])
    >>> joined.p.tolist(), joined.y.tolist(), joined.weight.tolist(), joined.segment
    ([0.8], [1.0], [2.0], ['DE'])
    >>> joined.moment.tolist(), joined.corrections
    ([9.0], False)
    >>> next(iter(joined)).u
    9.0
    """

    model: str
    version: str
    pieces: Sequence[Piece]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Pair]:
        for piece in self.pieces:
            scores = piece.p.tolist() if piece.p.ndim == 1 else list(map(tuple, piece.p.tolist()))
            columns = piece.sign.tolist(), piece.id, scores, piece.segment, piece.rows.tolist()
            for sign, name, p, segment, (t, _, w, _, _, _, _, y, u) in zip(*columns, strict=True):
                yield Pair(sign, self.model, self.version, name, t, p, w, segment, y, u)

    @cached_property
    def _rows(self) -> Array:
        return _frozen(np.concatenate([piece.rows for piece in self.pieces]))

    @cached_property
    def id(self) -> list[str]:
        """The ids."""
        return [name for piece in self.pieces for name in piece.id]

    @cached_property
    def segment(self) -> list[str]:
        """The segments, as the predictions had them."""
        return [name for piece in self.pieces for name in piece.segment]

    @cached_property
    def sign(self) -> Array:
        """+1 for a pair that counts from now on, -1 for one that does not any longer."""
        return _frozen(np.concatenate([piece.sign for piece in self.pieces]))

    @cached_property
    def corrections(self) -> bool:
        """Whether any pair is taken back."""
        return bool((self.sign < 0.0).any())

    @cached_property
    def weight(self) -> Array:
        """Sign times the weight of the prediction."""
        return _frozen(self.sign * self._rows[:, WEIGHT])

    @cached_property
    def t(self) -> Array:
        """Times of the predictions."""
        return _frozen(self._rows[:, T].copy())

    @cached_property
    def u(self) -> Array:
        """Times of the labels."""
        return _frozen(self._rows[:, U].copy())

    @cached_property
    def seq(self) -> Array:
        """The number of each prediction, given once: the same when its pair is taken back."""
        return _frozen(self._rows[:, SEQ].copy())

    @cached_property
    def moment(self) -> Array:
        """When each pair counts: at the time of its label, but not before the prediction is ripe.

        A pair that is taken back has the moment that it had when it went out.
        """
        return _frozen(np.maximum(self._rows[:, U], self._rows[:, RIPE]))

    @cached_property
    def p(self) -> Array:
        """What was predicted: shape (n,), or (n, classes). ValueError if their numbers of classes differ."""
        return _frozen(np.concatenate([piece.p for piece in self.pieces]))

    @cached_property
    def y(self) -> Array:
        """Outcomes."""
        return _frozen(self._rows[:, Y].copy())


def _frozen(values: Array) -> Array:
    values.flags.writeable = False
    return values


def piece_of(pairs: Sequence[tuple[float, str, Record]]) -> Piece:
    """Pairs (sign, id, record) as columns; their scores have one number of classes."""
    signs, ids, records = zip(*pairs, strict=True)
    t, p, w, segment, *rest = zip(*records, strict=True)
    several = isinstance(p[0], tuple)
    columns = t, [math.nan] * len(ids) if several else p, w, [0.0] * len(ids), *rest
    return Piece(np.array(signs), list(ids), list(segment), np.array(p, dtype=np.float64), np.array(columns).T)


# -- which values are allowed: a quick look that knows the usual types, and a patient one for the rest
# ---------------------


def plain_prediction(event: Prediction) -> bool:
    """Whether it is allowed just as it is. False says nothing: ask :func:`mended_prediction`."""
    model, version, name, t, p, w, segment = event
    return (
        type(t) is type(p) is type(w) is float
        and type(name) is type(model) is type(version) is type(segment) is str
        and (name + segment + model + version).isascii()
        and 0 < len(name) <= LONGEST
        and len(segment) + len(model) + len(version) <= LONGEST
        and -FARTHEST <= t <= FARTHEST
        and -math.inf < p < math.inf
        and 0.0 <= w <= HEAVIEST
    )


def plain_label(event: Label) -> bool:
    """Whether it is allowed just as it is. False says nothing: ask :func:`mended_label`."""
    model, version, name, t, y = event
    version = "" if version is None else version
    return (
        type(t) is type(y) is float
        and type(name) is type(model) is type(version) is str
        and (name + model + version).isascii()
        and 0 < len(name) <= LONGEST
        and len(model) + len(version) <= LONGEST
        and -FARTHEST <= t <= FARTHEST
        and -math.inf < y < math.inf
    )


def mended_prediction(event: Prediction) -> tuple[Prediction, str]:
    """The event with plain texts and floats, and the name of the first field that is not allowed ("" if all are).

    Whole numbers and numpy's are numbers, True and "0.5" are not. A model and version that are no text become "".
    """
    (model, version, name), reason = _texts(*event[:3])
    t, p, w = _real(event.t), _score(event.p), _real(event.w)
    segment = text(event.segment)
    reason = reason or ("" if -FARTHEST <= t <= FARTHEST else "t") or ("p" if p is None else "")
    reason = reason or ("" if 0.0 <= w <= HEAVIEST else "w") or ("segment" if segment is None else "")
    return Prediction(model, version, name, t, math.nan if p is None else p, w, segment or ""), reason


def mended_label(event: Label) -> tuple[Label, str]:
    """The event with plain texts and floats, and the name of the first field that is not allowed ("" if all are)."""
    every = event.version is None
    (model, version, name), reason = _texts(event.model, "" if every else event.version, event.id)
    t, y = _real(event.t), _real(event.y)
    reason = reason or ("" if -FARTHEST <= t <= FARTHEST else "t") or ("" if math.isfinite(y) else "y")
    return Label(model, None if every and reason != "model" else version, name, t, y), reason


def is_allowed(event: Event) -> bool:
    """Whether nothing in it is refused for its value.

    >>> is_allowed(Label("credit", None, "a1", 1.7e9, 1.0)), is_allowed(Label("credit", "7", "a1", math.nan, 1.0))
    (True, False)
    """
    if isinstance(event, Prediction):
        return plain_prediction(event) or not mended_prediction(event)[1]
    return plain_label(event) or not mended_label(event)[1]


def _texts(*given: Any) -> tuple[tuple[str, str, str], str]:
    """Model, version and id, and which of them is not allowed."""
    model, version, name = map(text, given)
    if model is None or version is None:
        return ("", "", ""), "model" if model is None else "version"
    return (model, version, name or ""), "" if name else "id"


def text(value: Any, longest: int = LONGEST) -> str | None:
    """A text that can be written down as UTF-8 and is not too long, else None.

    >>> text("é"), text("\\ud800"), text(7)
    ('é', None, None)
    """
    if not isinstance(value, str) or len(value) > longest:
        return None
    try:
        return str(value.encode(), "utf-8")
    except UnicodeEncodeError:
        return None


def _real(value: Any) -> float:
    """A number as a float, nan if it is none."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _score(value: Any) -> Score | None:
    """A finite number, or a tuple of one or more from any sequence of them; else None."""
    if isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim == 1):
        several = tuple(map(_real, value))
        return several if several and all(map(math.isfinite, several)) else None
    one = _real(value)
    return one if math.isfinite(one) else None
