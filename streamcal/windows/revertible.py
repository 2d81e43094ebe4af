"""Revertible: every event that was added and has not been taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from streamcal._jit import brief, inlined, kernel, lazily
from streamcal.arrays import Array, Ints
from streamcal.binning import OUTSIDE
from streamcal.state import restorable
from streamcal.tally import (
    BAD_KEY,
    COUNT,
    NOT_SCALAR,
    REFUSED,
    admit,
    block_of,
    cells_of,
    is_unwanted,
    key_at,
    key_of,
    weight_at,
)
from streamcal.windows.sliding import apply_event
from streamcal.windows.window import Window

ABSENT = -4  # the status of an event that cannot be taken back: its bin holds none


@brief
def revertible_one(buf: Array, p: float, y: float, w: float, key: float) -> int:
    """Add one event, keeping what rounding loses of each sum."""
    k = key_of(buf, key)
    return k if k < 0 else _add_one(buf, p, y, w, k)


@kernel
def _add_one(buf: Array, p: float, y: float, w: float, key: int) -> int:
    if is_unwanted(buf, p, y, w):
        return 1
    return 1 if apply_event(buf, key, p, y, w, 1.0) == 1 else 0  # how far a sum has fallen does not matter here


@inlined
def _take_back(buf: Array, p: float, y: float, w: float, key: int) -> int:
    """Take one event back; ABSENT, and nothing changed, where its bin holds none."""
    base, b = cells_of(buf, key), admit(buf, p, y, w)[0]
    place = base + block_of(buf) - 8 + REFUSED if b == OUTSIDE else base + 8 * b + COUNT
    if buf[place] < 1.0:
        return ABSENT
    apply_event(buf, key, p, y, w, -1.0)
    return 0


@brief
def revert_one(buf: Array, p: float, y: float, w: float, key: float) -> int:
    """Take one event back by its key."""
    k = key_of(buf, key)
    return k if k < 0 else _take_back(buf, p, y, w, k)


@kernel
def revert_many(buf: Array, p: Array, y: Array, w: Array, key: Ints) -> int:
    """Take events back in order, up to the first that is ABSENT."""
    for i in range(p.shape[0]):
        if _take_back(buf, p[i], y[i], weight_at(w, i), key_at(key, i)) == ABSENT:
            return ABSENT
    return 0


@kernel
def revertible_many(buf: Array, p: Array, y: Array, w: Array, key: Ints) -> None:
    """Add many events in order."""
    for i in range(p.shape[0]):
        _add_one(buf, p[i], y[i], weight_at(w, i), key_at(key, i))


@restorable
class Revertible(Window):
    """All events that were added, less those that :meth:`revert` took back: O(1) for either, with sums of 106 bits.

    For streams that correct themselves, and for windows that someone else keeps (River's ``utils.Rolling``): after any number of
    events have come and gone the sums are those of what is left, to about 1e-15 of the largest that each sum has been.
    Arguments as in :class:`Window`.

    >>> from streamcal import EqualWidth
    >>> window = Revertible(EqualWidth(2))
    >>> window.update_many([0.1, 0.9, 0.8], [0, 1, 1])
    >>> window.revert(0.9, 1)
    >>> window.snapshot().count.tolist()
    [[1.0, 1.0]]
    """

    _kernel = revertible_one
    _sets = 3  # the sums, their rounding errors, their peaks: as Sliding has them
    _counted = slice(1)
    _back: ClassVar[Callable[..., int]]

    def revert(self, p: Any, y: Any, w: float = 1.0, key: int = 0) -> None:
        """Take back an event that :meth:`update` added, given as it was then.

        ValueError, and nothing changed, if its bin (for a refused event: the count of refused ones) is empty; that another
        event of the same bin was meant cannot be seen.
        """
        try:
            status = self._back(self._buf, p, y, w, key)
        except (TypeError, ValueError, OverflowError):
            status = NOT_SCALAR
        if status == NOT_SCALAR:  # an event of several keys, or one that is no number
            ((scores, outcomes, weights, keys, _),) = self._events([p], [y], [w], [key], None)
            status = self._alone(revert_many, self._buf, scores, outcomes, weights, keys)
        if status == BAD_KEY:
            raise ValueError(f"key must be a whole number in 0..{self.keys - 1}, got {key!r}")
        if status == ABSENT:
            raise ValueError(f"there is no such event to take back: {p!r}, {y!r}, {w!r}")

    def _add(self, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
        revertible_many(self._buf, p, y, w, key)


lazily(Revertible, "_back", revert_one, 0.5, 1.0, 1.0, 0.0)
