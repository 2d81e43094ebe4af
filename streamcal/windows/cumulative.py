"""Cumulative: every event since the start."""

from __future__ import annotations

from streamcal._jit import brief
from streamcal.arrays import Array, Ints
from streamcal.rows import N_ROWS
from streamcal.state import restorable
from streamcal.tally import BAD_KEY, CELLS, NOT_SCALAR, VECTOR, add, add_many, whole_key
from streamcal.windows.window import Window


@brief
def cumulative_one(buf: Array, p: float, y: float, w: float, key: float) -> int:
    """Add one event for good."""
    if buf[VECTOR] != 0.0:
        return NOT_SCALAR
    if not whole_key(buf, key):
        return BAD_KEY
    k = int(key)
    return add(buf, int(buf[CELLS]) + k * 8 * (int(buf[N_ROWS]) + 1), k, p, y, w, 1.0)


@restorable
class Cumulative(Window):
    """All events since the start: O(1) per event, merges with ``+``.

    >>> from streamcal import Cumulative, EqualWidth
    >>> window = Cumulative(EqualWidth(5))
    >>> window.update_many([0.95, 0.90, 0.85, 0.60, 0.55, 0.30], [1, 0, 1, 1, 0, 0])
    >>> round(window.get("ece"), 6)
    0.191667
    """

    _kernel = cumulative_one
    _holds_all = True

    def _add(self, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
        add_many(self._buf, int(self._buf[CELLS]), p, y, w, key)

    def __add__(self, other: Cumulative) -> Cumulative:
        """A new window that has seen what both have. ValueError if their configurations differ."""
        if not isinstance(other, Cumulative):
            return NotImplemented
        both = self.snapshot() + other.snapshot()
        merged = Cumulative(self.binning, keys=self.keys, claim=self.claim, loss=self.loss, strict=self.strict)
        merged._cells_at(int(merged._buf[CELLS]))[:] = both.cells
        return merged
