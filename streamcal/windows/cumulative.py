"""Cumulative: every event since the start."""

from __future__ import annotations

from streamcal._jit import brief
from streamcal.arrays import Array, Ints
from streamcal.state import restorable
from streamcal.tally import add, add_many, cells_of, key_of
from streamcal.windows.window import NO_KEYS, Window


@brief
def cumulative_one(buf: Array, p: float, y: float, w: float, key: float) -> int:
    """Add one event for good."""
    k = key_of(buf, key)
    return k if k < 0 else add(buf, cells_of(buf, k), k, p, y, w, 1.0)


@restorable
class Cumulative(Window):
    """All events since the start: O(1) per event, merges with ``+``. Arguments as in :class:`Window`.

    >>> from streamcal import Cumulative, EqualWidth
    >>> window = Cumulative(EqualWidth(5))
    >>> window.update_many([0.95, 0.90, 0.85, 0.60, 0.55, 0.30], [1, 0, 1, 1, 0, 0])
    >>> round(window.get("ece"), 6)
    0.191667
    """

    _kernel = cumulative_one
    _holds_all = True

    def _add(self, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
        add_many(self._buf, self._layout.start, p, y, w, key)

    def add_columns(self, p: Array, y: Array, w: Array) -> None:
        """Add events to key 0 that are columns as kernels read them (no weights: none), as :meth:`update_many` would."""
        add_many(self._buf, self._layout.start, p, y, w, NO_KEYS)

    def __add__(self, other: Cumulative) -> Cumulative:
        """A new window that has seen what both have. ValueError if their configurations differ."""
        if not isinstance(other, Cumulative):
            return NotImplemented
        both = self.snapshot() + other.snapshot()
        merged = Cumulative(self.binning, keys=self.keys, claim=self.claim, loss=self.loss, strict=self.strict)
        merged._layout.cells(merged._buf)[0] = both.cells
        return merged
