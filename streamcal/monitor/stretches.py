"""Many predictions or labels of one (model, version) as columns, checked: which of them are allowed just as they are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from streamcal.monitor.events import FARTHEST, HEAVIEST, LONGEST, Event, Label, Prediction, text
from streamcal.monitor.join.opened import Array, Indices

Flags: TypeAlias = npt.NDArray[np.bool_]

FEW = 16  # events that are not worth the columns


@dataclass(frozen=True)
class Predictions:
    """Columns of n predictions; p is (n,) or (n, classes). ``good``: allowed just as it is.

    >>> columns = predictions("credit", "7", ["a", ""], [0.0, 1.0], [0.5, 0.5], None, "DE")
    >>> columns.good.tolist(), columns.event(0).segment
    ([True, False], 'DE')
    """

    model: str
    version: str
    id: list[Any]
    t: Array
    p: Array
    w: Array | None
    segment: list[Any]
    good: Flags

    @property
    def names(self) -> list[str]:
        """The ids, "" where one is no text."""
        return _texts(self.id)

    def part(self, i: int, k: int) -> Predictions:
        """Those from i to before k."""
        w, part = None if self.w is None else self.w[i:k], slice(i, k)
        columns = self.id[part], self.t[part], self.p[part], w, self.segment[part], self.good[part]
        return Predictions(self.model, self.version, *columns)

    def event(self, i: int) -> Event:
        """One of them by itself."""
        p, w = self.p[i].tolist(), 1.0 if self.w is None else float(self.w[i])
        score = tuple(p) if isinstance(p, list) else p
        return Prediction(self.model, self.version, self.id[i], float(self.t[i]), score, w, self.segment[i])


@dataclass(frozen=True)
class Labels:
    """Columns of n labels. ``good``: allowed just as it is; a version of None stands for all.

    >>> labels("credit", None, ["a"], [0.0], [1.0]).event(0).y
    1.0
    """

    model: str
    version: str | None
    id: list[Any]
    t: Array
    y: Array
    good: Flags

    @property
    def names(self) -> list[str]:
        """The ids, "" where one is no text."""
        return _texts(self.id)

    def part(self, i: int, k: int) -> Labels:
        """Those from i to before k."""
        part = slice(i, k)
        return Labels(self.model, self.version, self.id[part], self.t[part], self.y[part], self.good[part])

    def event(self, i: int) -> Event:
        """One of them by itself."""
        return Label(self.model, self.version, self.id[i], float(self.t[i]), float(self.y[i]))


def predictions(model: str, version: str, ids: Any, t: Any, p: Any, w: Any, segment: Any) -> Predictions:
    """The columns, checked. ValueError if they are no columns of numbers, or not equally long."""
    names = _listed("ids", ids)
    n = len(names)
    times, scores = _numbers("t", t, n), _numbers("p", p, n, axes=(1, 2))
    weights = None if w is None else _numbers("w", w, n)
    tags = [segment] * n if isinstance(segment, str) else _listed("segment", segment)
    if len(tags) != n:
        raise ValueError(f"segment must be a text, or {n} of them as there are ids, got {len(tags)}")
    finite = np.isfinite(scores)
    good = (np.abs(times) <= FARTHEST) & (finite if finite.ndim == 1 else finite.all(1) & (finite.shape[1] > 0))
    if weights is not None:
        good &= (weights >= 0.0) & (weights <= HEAVIEST)
    good &= _allowed(names, empty=False) & _allowed([model, version], empty=True).all()
    good &= _allowed([segment], empty=True).all() if isinstance(segment, str) else _allowed(tags, empty=True)
    return Predictions(model, version, names, times, scores, weights, tags, good)


def labels(model: str, version: str | None, ids: Any, t: Any, y: Any) -> Labels:
    """The columns, checked. ValueError if they are no columns of numbers, or not equally long."""
    names = _listed("ids", ids)
    times, outcomes = _numbers("t", t, len(names)), _numbers("y", y, len(names))
    said = [model] if version is None else [model, version]
    good = (np.abs(times) <= FARTHEST) & np.isfinite(outcomes)
    good &= _allowed(names, empty=False) & _allowed(said, empty=True).all()
    return Labels(model, version, names, times, outcomes, good)


def _listed(name: str, texts: Any) -> list[Any]:
    if isinstance(texts, np.ndarray) and texts.ndim == 1:
        return list(texts.tolist())
    if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
        raise ValueError(f"{name} must be a sequence of texts, got {type(texts).__name__}")
    return list(texts)


def _texts(ids: list[Any]) -> list[str]:
    return ids if set(map(type, ids)) <= {str} else [name if type(name) is str else "" for name in ids]


def _numbers(name: str, values: Any, n: int, axes: tuple[int, ...] = (1,)) -> Array:
    """A column of numbers as float64; what is no number at all is no column."""
    try:
        column = np.asarray(values)
    except ValueError:  # rows of different lengths
        column = np.empty(0, dtype=object)
    if column.dtype.kind not in "iuf" or column.ndim not in axes:
        raise ValueError(f"{name} must be numbers, one for each id, got {type(values).__name__} of {column.dtype}")
    if len(column) != n:
        raise ValueError(f"{name} must have {n} values as there are ids, got {len(column)}")
    with np.errstate(over="ignore"):
        return column.astype(np.float64, copy=False)


def _allowed(texts: list[Any], *, empty: bool) -> Flags:
    """Which texts are, as they are: together if they can be, for speed."""
    n = len(texts)
    if set(map(type, texts)) <= {str} and (empty or all(texts)) and max(map(len, texts), default=0) <= LONGEST:
        whole = "".join(texts)
        if whole.isascii() or text(whole, LONGEST * n) is not None:
            return np.ones(n, dtype=np.bool_)
    fit = (type(one) is str and text(one) is not None and (empty or one != "") for one in texts)
    return np.fromiter(fit, np.bool_, n)


# -- from events -------------------------------------------------------------------------------------------------------


def groups_of(events: Sequence[Event]) -> list[tuple[Predictions | Labels, Indices]] | None:
    """Events as columns, and the places of these: one for each kind, model and version, in the order in which they
    came.

    None if that is not worth while: few events, or numbers that are no floats.
    """
    kinds, models, versions = map(type, events), map(itemgetter(0), events), map(itemgetter(1), events)
    named = list(zip(kinds, models, versions, strict=True))
    if len(events) < FEW or not set(map(type, itertools.chain.from_iterable(named))) <= {type, str, type(None)}:
        return None
    if len(set(named)) == 1:
        columns = _columns_of(events)
        return None if columns is None else [(columns, np.arange(len(events)))]
    places: dict[tuple[type, Any, Any], list[int]] = {}
    for i, name in enumerate(named):
        places.setdefault(name, []).append(i)
    groups: list[tuple[Predictions | Labels, Indices]] = []
    for at in places.values() if FEW * len(places) <= len(events) else ():
        columns = _columns_of([events[i] for i in at])
        if columns is None:
            return None
        groups.append((columns, np.array(at)))
    return groups or None


def _columns_of(events: Sequence[Event]) -> Predictions | Labels | None:
    """Events of one kind, model and version as columns, if all their numbers are floats; else None."""
    _, _, ids, t, value, *rest = zip(*events, strict=True)
    several = all(type(v) is tuple for v in value)
    flat = itertools.chain.from_iterable(value) if several else value
    if not set(map(type, itertools.chain(t, flat, *rest[:1]))) <= {float}:
        return None
    model: str = events[0][0]
    version: Any = events[0][1]
    try:
        if rest:
            return predictions(model, version, ids, t, value, *rest)
        return labels(model, version, ids, t, value)
    except ValueError:  # numbers of classes that differ
        return None
