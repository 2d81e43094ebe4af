"""What both wrappers share: the scores that wait for their labels, the counts, and mini-batches of any dataframe."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from numbers import Real
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
from river.utils import dataframe

from streamcal.river.served import Served


class RecalibratingWrapper(ABC):
    """A River model around a River model, whose map learns each label with the score that was served for it.

    A mini-batch is many events for the map, in order, and one call of ``learn_many`` for the model inside.
    """

    counted: ClassVar[tuple[str, ...]] = ("served", "repredicted", "forgotten", "waiting", "refused", "unusable")
    _wrapped_model: Any
    _waiting: Served
    _light: bool  # whether a weight of 1 is too much for the map
    _y_name: str | None = None  # of the last series of labels

    def _start(self, memory: int, heaviest: float) -> None:
        """Nothing has been served: a part of the constructor. ``heaviest``: the largest weight that the map takes."""
        self._waiting, self._light = Served(memory), heaviest < 1.0
        self._takes_weights = takes_weights(self._wrapped_model.learn_one)
        self.repredicted = self.refused = self.unusable = 0

    @property
    def served(self) -> int:
        """Labels that were learned with the score that was served."""
        return self._waiting.found

    @property
    def forgotten(self) -> int:
        """Scores that were dropped before their label came."""
        return self._waiting.forgotten

    @property
    def waiting(self) -> int:
        """Scores that wait for their label."""
        return len(self._waiting)

    @property
    def counts(self) -> dict[str, int]:
        """All counts by name."""
        return {name: getattr(self, name) for name in self.counted}

    def learn_one(self, x: Any, y: Any, *, w: float = 1.0, id: Hashable | None = None, **kwargs: Any) -> None:
        """Learn the label of x: first the map, with what was served, then the model inside.

        ValueError, and nothing is learned, if y can not be a label here, or w no weight (>= 0, up to what the map takes; 0
        changes no map).
        """
        label = self._label(y)
        outcome = self._outcome(label)
        if outcome is None:
            self._waiting.drop(x, id)
            return
        if w != 1.0 or self._light:
            w = self._weight(w)
            if self._takes_weights and w != 1.0:
                kwargs["w"] = w
        self._learn(x, outcome, w, id)
        self._wrapped_model.learn_one(x, label, **kwargs)

    @property
    def learn_many(self) -> Callable[..., None]:
        """``learn_many(X, y)``: as learn_one row by row for the map; then the model inside learns all rows at once.

        Rows whose label is missing are left out. ``w``: one weight, or a series of them; ``id``: a sequence of ids.
        """
        self._wrapped_model.learn_many  # noqa: B018 - AttributeError if it has none
        return self._learn_many

    def _learn_many(self, X: Any, y: Any, *, w: Any = 1.0, id: Any = None, **kwargs: Any) -> None:
        xs, labels, one = rows_of(X), list(map(self._label, values_of(y))), isinstance(w, Real)
        weights = [self._weight(v) for v in ([w] * len(xs) if one else values_of(w))]
        ids = ids_of(id, len(xs))
        if not len(xs) == len(labels) == len(weights):
            raise ValueError(f"X, y and w must have as many rows, got {len(xs)}, {len(labels)} and {len(weights)}")
        self._y_name = getattr(y, "name", None)
        outcomes = [self._outcome(label) for label in labels]  # all of them before any is learned: one may be an error
        for x, outcome, weight, which in zip(xs, outcomes, weights, ids, strict=True):
            if outcome is None:
                self._waiting.drop(x, which)
            else:
                self._learn(x, outcome, weight, which)
        known = [outcome is not None for outcome in outcomes]
        if not all(known):
            X, w = kept(X, known), w if one else kept(w, known)
            y = series_of([label for label, here in zip(labels, known, strict=True) if here], self._y_name, X)
        if not (one and w == 1.0) and takes_weights(self._wrapped_model.learn_many):
            kwargs["w"] = w
        if any(known):
            self._wrapped_model.learn_many(X, y, **kwargs)

    def _label(self, y: Any) -> Any:
        """A label as the model inside learns it."""
        return y

    @abstractmethod
    def _outcome(self, y: Any) -> Any:
        """A label as the map learns it; None, and counted, if it is missing."""

    @abstractmethod
    def _weight(self, w: Any) -> float:
        """A weight that the map takes, else a ValueError."""

    @abstractmethod
    def _learn(self, x: Any, outcome: Any, w: float, id: Hashable | None) -> None:
        """Let the map learn what came, with the score that was served if it is found."""


def takes_weights(method: Callable[..., Any]) -> bool:
    """Whether a method of a River model can be given ``w=``."""
    parameters = inspect.signature(method).parameters.values()
    return any(p.name == "w" or p.kind is p.VAR_KEYWORD for p in parameters)


def rows_of(X: Any) -> list[Any]:
    """The rows of a dataframe (pandas, polars, pyarrow, ...) as dicts by column, or the values of a series (texts, say).

    Every nan in them is the same object, so that equal rows are equal.
    """
    wrapped = nw.from_native(X, eager_only=True, allow_series=True)
    if isinstance(wrapped, nw.Series):
        return wrapped.to_list()
    rows = wrapped.iter_rows(named=True)
    return [{k: math.nan if isinstance(v, float) and v != v else v for k, v in row.items()} for row in rows]


def values_of(y: Any) -> list[Any]:
    """The values of a series."""
    return dataframe.into_series(y).to_list()


def kept(thing: Any, which: Sequence[bool]) -> Any:
    """The rows for which ``which`` is true."""
    return nw.from_native(thing, eager_only=True, allow_series=True).filter(list(which)).to_native()


def series_of(values: Sequence[Any], name: str | None, like: Any) -> Any:
    """Values as a series of the kind of ``like``, with its index if it has one."""
    return dataframe.to_native_series(values, name=name, like=dataframe.into_frame(like))


def ids_of(given: Any, n: int) -> Sequence[Any]:
    """An id for each of n rows, None where there are none."""
    ids = [None] * n if given is None else list(given)
    if len(ids) != n:
        raise ValueError(f"id must name each of {n} rows, got {len(ids)} ids")
    return ids
