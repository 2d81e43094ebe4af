"""The predictions of a book that are open, by id: one row of numbers each, in one table.

A label with a random id costs what it takes to fetch its id and its row from memory, so a row is one block of 72 bytes
and a batch of rows is one indexing; with a tuple of floats for each prediction it was measured at three times that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.int64]
Score: TypeAlias = float | tuple[float, ...]
# One open prediction: (t, p, w, segment, due, ripe, seq, y, u). It is forgotten at ``due``, counts from ``ripe`` on,
# and ``seq`` is its number; y and u are outcome and label time, None before the label.
Record: TypeAlias = tuple[float, Score, float, str, float, float, int, float | None, float | None]
# The columns of the table are those of a record: nan for a y and u that are not there yet, and for a p that is a tuple.
T: Final = 0
P: Final = 1
WEIGHT: Final = 2
SEGMENT: Final = 3
DUE: Final = 4
RIPE: Final = 5
SEQ: Final = 6
Y: Final = 7
U: Final = 8
FIRST = 1_024  # rows of a new table; it doubles when it is full


class Piece(NamedTuple):
    """Pairs that go out: their signs, ids, segments, scores, and a copy of their rows (n, 9)."""

    sign: Array
    id: list[str]
    segment: list[str]
    p: Array
    rows: Array


class Open:
    """Open predictions by id: as a dict of records, and many at a time. Not thread-safe.

    >>> book = Open()
    >>> book["a"] = (0.0, 0.8, 1.0, "DE", 64.0, 0.0, 1, None, None)
    >>> book["a"][1], book.get("b"), "a" in book, len(book)
    (0.8, None, True, 1)
    >>> [piece.p.tolist() for piece in book.pieces(["a"], book.places(["a"]))]
    [[0.8]]
    """

    __slots__ = ("_free", "_place", "_segment", "_several", "table")

    def __init__(self) -> None:
        self._place: dict[str, int] = {}
        self._free: list[int] = []
        self.table = np.empty((0, U + 1))
        self._segment: npt.NDArray[np.object_] = np.empty(0, dtype=object)
        self._several: dict[int, tuple[float, ...]] = {}  # the scores of several classes, by place

    # -- one by one ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._place)

    def __iter__(self) -> Iterator[str]:
        return iter(self._place)

    def __contains__(self, name: str) -> bool:
        return name in self._place

    def __getitem__(self, name: str) -> Record:
        place = self._place[name]
        t, p, w, _, due, ripe, seq, y, u = self.table[place].tolist()
        score = self._several.get(place, p) if self._several else p
        return t, score, w, self._segment[place], due, ripe, int(seq), None if y != y else y, None if u != u else u

    def __setitem__(self, name: str, record: Record) -> None:
        t, p, w, segment, due, ripe, seq, y, u = record
        place = self._place.get(name)
        if place is None:
            (place,) = self._take(1)
            self._place[name] = place
        self._segment[place] = segment
        if isinstance(p, tuple):
            self._several[place], p = p, math.nan
        outcome = (math.nan, math.nan) if y is None or u is None else (y, u)
        self.table[place] = (t, p, w, 0.0, due, ripe, seq, *outcome)

    def get(self, name: str) -> Record | None:
        """The record of an id, None if it is not open."""
        return self[name] if name in self._place else None

    def settle(self, name: str, y: float, u: float) -> None:
        """Set the outcome of an open id."""
        self.table[self._place[name], Y:] = y, u

    # -- many ----------------------------------------------------------------------------------------------------------

    def isdisjoint(self, ids: Sequence[str]) -> bool:
        """Whether none of the ids is open."""
        return self._place.keys().isdisjoint(ids)

    def places(self, ids: Sequence[str]) -> Indices:
        """The rows of ids in the table, -1 for one that is not open."""
        place = self._place
        return np.fromiter([place.get(name, -1) for name in ids], np.int64, len(ids))

    def add(self, ids: list[str], columns: tuple[Any, ...], p: Array, segment: list[str]) -> None:
        """Open new ids, none twice: columns t, p (see below), w, due, ripe, seq; ``p`` (n,) or (n, classes)."""
        places = self._take(len(ids))
        self._place.update(zip(ids, places, strict=True))
        rows = np.empty((len(ids), U + 1))
        rows[:, T], rows[:, WEIGHT], rows[:, DUE], rows[:, RIPE], rows[:, SEQ] = columns
        rows[:, SEGMENT], rows[:, Y:] = 0.0, math.nan
        rows[:, P] = p if p.ndim == 1 else math.nan
        if p.ndim == 2:
            self._several.update(zip(places, map(tuple, p.tolist()), strict=True))
        at = np.array(places)
        self.table[at] = rows
        self._segment[at] = segment

    def pieces(self, ids: list[str], places: Indices) -> list[Piece]:
        """Pairs that go out with sign +1; more than one piece where the numbers of classes differ."""
        rows, segment = self.table[places], self._segment[places].tolist()
        if not self._several or not np.isnan(rows[:, P]).any():
            return [Piece(np.ones(len(ids)), ids, segment, rows[:, P], rows)]
        scores = [self._several.get(place, p) for place, p in zip(places.tolist(), rows[:, P].tolist(), strict=True)]
        out, first = [], 0
        for _, same in groupby(scores, lambda p: len(p) if isinstance(p, tuple) else 0):
            part = slice(first, first + len(p := np.array(list(same))))
            out.append(Piece(np.ones(len(p)), ids[part], segment[part], p, rows[part]))
            first += len(p)
        return out

    def remove(self, ids: list[str]) -> int:
        """Forget open ids; how many of them had no outcome."""
        places = list(map(self._place.pop, ids))
        self._free += places
        for place in places if self._several else ():
            self._several.pop(place, None)
        return int(np.isnan(self.table[places, Y]).sum())

    def unsettled(self, clock: float) -> int:
        """How many have no outcome, or one that does not count yet."""
        rows = self.table[np.fromiter(self._place.values(), np.int64, len(self._place))]
        return int((np.isnan(rows[:, Y]) | (rows[:, RIPE] > clock)).sum())

    def _take(self, n: int) -> list[int]:
        """Free places."""
        while len(self._free) < n:
            size = len(self.table)
            more = max(FIRST, size)
            self.table = np.concatenate([self.table, np.zeros((more, U + 1))])
            self._segment = np.concatenate([self._segment, np.full(more, "", dtype=object)])
            self._free += range(size + more - 1, size - 1, -1)
        taken = self._free[len(self._free) - n :]
        del self._free[len(self._free) - n :]
        return taken
