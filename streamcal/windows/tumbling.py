"""Tumbling: windows of ``size`` events, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, Ints, check_whole
from streamcal.binning import Binning
from streamcal.claims import Claim
from streamcal.rows import N_ROWS
from streamcal.snapshot import Snapshot
from streamcal.state import restorable
from streamcal.tally import (
    AUX,
    BAD_KEY,
    BLOCK,
    CELLS,
    KEYS,
    NOT_SCALAR,
    PARAMETER,
    STRICT,
    VECTOR,
    add,
    add_many,
    whole_key,
)
from streamcal.windows.window import Window, whole_between

# per key, behind the cells of now and of the last full window: events in the current window, windows closed
FILLED, CLOSED = range(2)


@kernel
def _make_room(buf: Array, key: int) -> int:
    """Close the key's window if it is full; returns how many events it still takes."""
    block = 8 * (int(buf[N_ROWS]) + 1)
    state = int(buf[AUX]) + int(buf[KEYS]) * block + 2 * key
    if buf[state + FILLED] >= buf[PARAMETER]:
        now, last = int(buf[CELLS]) + key * block, int(buf[AUX]) + key * block
        for i in range(block):
            buf[last + i] = buf[now + i]
            buf[now + i] = 0.0
        buf[state + FILLED] = 0.0
        buf[state + CLOSED] += 1.0
    return int(buf[PARAMETER] - buf[state + FILLED])


@brief
def tumbling_one(buf: Array, p: float, y: float, w: float, key: float) -> int:
    """Add one event to the key's current window; a bad one takes a place in it too (unless strict)."""
    if buf[VECTOR] != 0.0:
        return NOT_SCALAR
    if not whole_key(buf, key):
        return BAD_KEY
    return _add_to_window(buf, p, y, w, int(key))


@inlined
def _add_to_window(buf: Array, p: float, y: float, w: float, key: int) -> int:
    block = 8 * (int(buf[N_ROWS]) + 1)
    _make_room(buf, key)
    status = add(buf, int(buf[CELLS]) + key * block, key, p, y, w, 1.0)
    if status == 0 or buf[STRICT] == 0.0:
        buf[int(buf[AUX]) + int(buf[KEYS]) * block + 2 * key + FILLED] += 1.0
    return status


@kernel
def tumbling_many(buf: Array, p: Array, y: Array, w: Array, key: Ints) -> None:
    """Add many events in order."""
    for i in range(p.shape[0]):
        _add_to_window(buf, p[i], y[i], w[i] if w.shape[0] else 1.0, key[i] if key.shape[0] else 0)


@restorable
class Tumbling(Window):
    """Events since the last multiple of ``size``, per key. It closes lazily: right after ``size`` events it is still full.

    ``last`` is the previous full window, ``closed`` how many have closed, ``room`` how many events the current one takes.

    >>> from streamcal import EqualWidth, Tumbling
    >>> window = Tumbling(EqualWidth(2), 2)
    >>> window.update_many([0.2, 0.9, 0.8], [0, 1, 1])
    >>> window.snapshot().count.tolist(), window.last.count.tolist(), window.closed, window.room
    ([[0.0, 1.0]], [[1.0, 1.0]], 1, 1)
    """

    _kernel = tumbling_one
    _smallest = (2,)

    def __init__(
        self,
        binning: Binning,
        size: int,
        *,
        keys: int = 1,
        claim: Claim | None = None,
        loss: str | None = None,
        strict: bool = False,
    ) -> None:
        self.size = check_whole("size", size, 1)
        super().__init__(binning, keys=keys, claim=claim, loss=loss, strict=strict)

    def _extra(self, cells: int) -> int:
        return cells + 2 * self._all_keys

    def _settle(self, aux: int) -> None:
        self._buf[AUX], self._buf[PARAMETER] = aux, self.size

    def _by_key(self) -> list[Array]:
        counters = int(self._buf[AUX]) + self._all_keys * self._block
        return [self._of_keys(int(self._buf[CELLS]), 2, self._block), self._of_keys(counters, 1, 2)]

    def _arguments(self) -> dict[str, Any]:
        return {"size": self.size}

    def _add(self, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
        if self._all_keys > 1 or self.size < BLOCK:
            return tumbling_many(self._buf, p, y, w, key)
        state, i = self._counters(FILLED), 0
        while i < p.size:  # whole runs at a time
            take = min(_make_room(self._buf, 0), p.size - i)
            part = slice(i, i + take)
            add_many(self._buf, int(self._buf[CELLS]), p[part], y[part], w[part], key)
            state[0] += take
            i += take
        return None

    def _is_sound(self, buffer: Array) -> bool:
        counters = buffer[-2 * self._all_keys :].reshape(-1, 2)
        whole = whole_between(counters[:, FILLED], 0, self.size) and whole_between(counters[:, CLOSED], 0, 2.0**53)
        return whole and super()._is_sound(buffer)

    def _counters(self, which: int) -> Array:
        start = int(self._buf[AUX]) + self._all_keys * self._block
        return self._buf[start : start + 2 * self._all_keys].reshape(-1, 2)[:: self.claim.width, which]

    @property
    def last(self) -> Snapshot | None:
        """The previous full window of each key; None if none has closed yet."""
        if not self._counters(CLOSED).any():
            return None
        return self._frozen(self._cells_at(int(self._buf[AUX])).copy())

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
