"""Tumbling: windows of ``size`` events, one after the other."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, Ints, check_whole
from streamcal.binning import Binning
from streamcal.snapshot import Snapshot
from streamcal.state import restorable
from streamcal.tally import (
    AUX,
    BLOCK,
    KEYS,
    PARAMETER,
    STRICT,
    add,
    add_many,
    block_of,
    cells_of,
    key_at,
    key_of,
    weight_at,
)
from streamcal.windows.window import MOST, Options, Window, events_of

# The window's own numbers of a key, behind the cells of now and of the last full window: events in the current window, windows
# closed.
FILLED, CLOSED, OWN = range(3)


@inlined
def _counters_of(buf: Array, key: int) -> int:
    """Where the window's own numbers of a key begin."""
    return int(buf[AUX]) + int(buf[KEYS]) * block_of(buf) + OWN * key


@kernel
def _make_room(buf: Array, key: int) -> int:
    """Close the key's window if it is full; returns how many events it still takes."""
    block, counters = block_of(buf), _counters_of(buf, key)
    if buf[counters + FILLED] >= buf[PARAMETER]:
        now, last = cells_of(buf, key), int(buf[AUX]) + key * block
        for i in range(block):
            buf[last + i] = buf[now + i]
            buf[now + i] = 0.0
        buf[counters + FILLED] = 0.0
        buf[counters + CLOSED] += 1.0
    return int(buf[PARAMETER] - buf[counters + FILLED])


@inlined
def _add_to_window(buf: Array, p: float, y: float, w: float, key: int) -> int:
    _make_room(buf, key)
    status = add(buf, cells_of(buf, key), key, p, y, w, 1.0)
    if status == 0 or buf[STRICT] == 0.0:  # a bad event takes a place too, unless strict
        buf[_counters_of(buf, key) + FILLED] += 1.0
    return status


@brief
def tumbling_one(buf: Array, p: float, y: float, w: float, key: float) -> int:
    """Add one event to the key's current window."""
    k = key_of(buf, key)
    return k if k < 0 else _add_to_window(buf, p, y, w, k)


@kernel
def tumbling_many(buf: Array, p: Array, y: Array, w: Array, key: Ints) -> None:
    """Add many events in order."""
    for i in range(p.shape[0]):
        _add_to_window(buf, p[i], y[i], weight_at(w, i), key_at(key, i))


@restorable
class Tumbling(Window):
    """Events since the last multiple of ``size``, per key. It closes lazily: right after ``size`` events it is still full.

    ``size``: a number of events; the other arguments as in :class:`Window`. ``last`` is the previous full window,
    ``closed`` how many have closed, ``room`` how many events the current one takes.

    >>> from streamcal import EqualWidth, Tumbling
    >>> window = Tumbling(EqualWidth(2), 2)
    >>> window.update_many([0.2, 0.9, 0.8], [0, 1, 1])
    >>> window.snapshot().count.tolist(), window.last.count.tolist(), window.closed, window.room
    ([[0.0, 1.0]], [[1.0, 1.0]], 1, 1)
    """

    _kernel = tumbling_one
    _smallest = (2,)
    settings = ("size",)
    _sets = 2  # of now, and of the last full window
    _own = OWN

    def __init__(self, binning: Binning, size: int, **options: Unpack[Options]) -> None:
        self.size = check_whole("size", size, 1)
        super().__init__(binning, **options)

    def _add(self, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
        if self._layout.keys > 1 or self.size < BLOCK:
            return tumbling_many(self._buf, p, y, w, key)
        state, i = self._counters(FILLED), 0
        while i < p.size:  # whole windows at a time, each by the fast kernel
            take = min(_make_room(self._buf, 0), p.size - i)
            part = slice(i, i + take)
            add_many(self._buf, self._layout.start, p[part], y[part], w[part], key)
            state[0] += take
            i += take
        return None

    def _own_bounds(self, buffer: Array) -> tuple[tuple[float, float], ...]:
        return (0, self.size), (0, MOST)

    def _is_sound(self, buffer: Array) -> bool:
        """Besides, that the sums of now hold as many events as were counted, and the last ones a full window if one closed."""
        taken = events_of(self._layout.cells(buffer))
        filled, closed = self._layout.own(buffer).T
        last = np.where(closed > 0.0, self.size, 0.0)
        return super()._is_sound(buffer) and bool((taken[0] == filled).all() and (taken[1] == last).all())

    def _counters(self, which: int) -> Array:
        return self._layout.own(self._buf)[:: self.claim.width, which]

    @property
    def last(self) -> Snapshot | None:
        """The previous full window of each key; None if none has closed yet."""
        if not self._counters(CLOSED).any():
            return None
        return self._frozen(self._layout.cells(self._buf)[1].copy())

    @property
    def closed(self) -> int | Ints:
        """How many full windows have been left behind: a number, or an array over keys."""
        closed = self._counters(CLOSED).astype(np.int64)
        return int(closed[0]) if self.keys == 1 else closed

    @property
    def room(self) -> int | Ints:
        """How many events the current window still takes (0: full, the next event opens a new one)."""
        room = (self.size - self._counters(FILLED)).astype(np.int64)
        return int(room[0]) if self.keys == 1 else room
