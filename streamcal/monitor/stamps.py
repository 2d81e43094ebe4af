"""Which event is which in a window of the last events: so that a correction finds the one it is about, or none.

A ring beside that of :class:`~streamcal.Sliding`, with the same places: the number of the prediction for each event of each
slot.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamcal._jit import kernel
from streamcal.arrays import Array, Ints


@kernel
def stamp_many(rings: Array, places: Ints, slots: Ints, numbers: Array) -> None:
    """Put the numbers of events into the rings of their slots, in order."""
    size = rings.shape[1]
    for i in range(slots.shape[0]):
        slot = slots[i]
        rings[slot, places[slot]] = numbers[i]
        places[slot] = 0 if places[slot] + 1 == size else places[slot] + 1


class Stamps:
    """The numbers of the last ``size`` events of each slot, 8 bytes each.

    >>> stamps = Stamps(3)
    >>> stamps.add(np.array([0, 0, 1, 0]), np.array([5.0, 6.0, 6.0, 7.0]))
    >>> stamps.ages(0, 5.0).tolist(), stamps.ages(1, 5.0).tolist()
    ([2], [])
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.rings: Array = np.full((0, size), np.nan)
        self.places: Ints = np.zeros(0, np.int64)

    def _widen(self, slots: int) -> None:
        if slots > len(self.places):
            more = max(slots, 2 * len(self.places)) - len(self.places)
            self.rings = np.concatenate([self.rings, np.full((more, self.size), np.nan)])
            self.places = np.concatenate([self.places, np.zeros(more, np.int64)])

    def add(self, slots: Ints, numbers: Array) -> None:
        """Events of these slots, in the order in which the window takes them."""
        if slots.size:
            self._widen(int(slots.max()) + 1)
            stamp_many(self.rings, self.places, slots, np.ascontiguousarray(numbers))

    def ages(self, slot: int, number: float) -> Ints:
        """Where the event of this number is in a slot: how many came after it; empty if it has left."""
        if slot >= len(self.places):
            return np.zeros(0, np.int64)
        at = np.flatnonzero(self.rings[slot] == number)
        return np.asarray((self.places[slot] - 1 - at) % self.size)

    def empty(self, slot: int) -> None:
        """Forget the events of a slot."""
        if slot < len(self.places):
            self.rings[slot] = np.nan

    def to_plain(self) -> dict[str, Any]:
        """Everything as plain data; :meth:`take_over` reads it."""
        return {"rings": self.rings.astype("<f8").tobytes(), "places": self.places.tolist()}

    def take_over(self, plain: dict[str, Any]) -> None:
        """Go on where :meth:`to_plain` was. ValueError if they do not fit."""
        self.places = np.array(plain["places"], np.int64)
        self.rings = np.frombuffer(plain["rings"], "<f8").reshape(len(self.places), self.size).copy()
        if self.places.size and not 0 <= self.places.min() <= self.places.max() < self.size:
            raise ValueError(f"places must lie in 0..{self.size - 1}, got {plain['places']!r:.80}")
