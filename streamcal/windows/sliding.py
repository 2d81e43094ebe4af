"""Sliding: the last ``size`` events of each key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from threading import Lock
from typing import Any, Self

import numpy as np

from streamcal._jit import add_four_exactly, brief, inlined, kernel
from streamcal.arrays import Array, Ints, check_whole, one_number
from streamcal.binning import Binning
from streamcal.claims import Claim
from streamcal.rows import N_ROWS, OUTSIDE
from streamcal.state import restorable
from streamcal.tally import (
    AUX,
    BAD_KEY,
    CELLS,
    CLIPPED,
    COUNT,
    FOUR,
    INFINITE,
    KEYS,
    LARGEST_LOSS,
    LEVELS,
    LOSS,
    LOSS_KIND,
    NO_LOSS,
    NO_RING,
    NOT_SCALAR,
    PARAMETER,
    REFUSED,
    STRICT,
    VECTOR,
    admit,
    first_bad,
    loss_of,
    whole_key,
)
from streamcal.windows.window import NO_KEYS, Window, whole_between

# Behind the cells: their rounding errors and their peaks (same shape), then per key [its ring or -1, next place, filled],
# then the rings.
RING, PLACE, FILLED, STATES = range(4)
# A sum and its error hold 106 bits. A sum that has fallen below this part of its peak is about to lose those that hold what
# remains: its key is then summed again from the ring.
FAR = 2.0**-40
GROWING = Lock()  # no two rings of one number, even where two threads share a window against all advice
FALLEN = 2


@inlined
def _add_exactly(buf: Array, i: int, error: int, x: float) -> None:
    """One sum of the ledger, its rounding error at ``i + error``; the neighbours get nothing."""
    add_four_exactly(buf, np.uint64(i), np.uint64(i + error), x, 0.0, 0.0, 0.0)


@inlined
def apply_event(buf: Array, key: int, p: float, y: float, w: float, sign: float) -> int:
    """Add (+1) or take back (-1) an event, by the same arithmetic; FALLEN if what stays is far below what was."""
    block = 8 * (int(buf[N_ROWS]) + 1)
    base, error = int(buf[CELLS]) + key * block, int(buf[AUX]) - int(buf[CELLS])
    ledger = base + block - 8
    r, score, outcome, clipped = admit(buf, p, y, w)
    if r == OUTSIDE:
        buf[ledger + REFUSED] += sign
        return 1
    level = buf[int(buf[LEVELS]) + key]
    claim = score if math.isnan(level) else level
    i, v = np.uint64(base + 8 * r), sign * w
    e, wp, wy = np.uint64(base + 8 * r + error), v * claim, v * outcome
    add_four_exactly(buf, i, e, sign, v, v * w, wp)
    add_four_exactly(buf, i + FOUR, e + FOUR, wy, wp * claim, wp * outcome, wy * outcome)
    if clipped:
        buf[ledger + CLIPPED] += sign
    if sign < 0.0 and buf[base + 8 * r + COUNT] == 0.0:
        _empty(buf, base + 8 * r, error)
    status = _watch(buf, base + 8 * r, 8, error, sign)
    if buf[LOSS_KIND] != NO_LOSS and w > 0.0:
        loss = w * loss_of(buf, score, y, level)
        if loss < LARGEST_LOSS:
            _add_exactly(buf, ledger + LOSS, error, sign * loss)
            status = max(status, _watch(buf, ledger + LOSS, 1, error, sign))
        else:
            _add_exactly(buf, ledger + INFINITE, error, v)
    return status


@inlined
def _empty(buf: Array, row: int, error: int) -> None:
    """A row without events holds nothing, not rounding dust."""
    for i in range(row, row + 8):
        buf[i] = 0.0
        buf[i + error] = 0.0
        buf[i + 2 * error] = 0.0


@inlined
def _watch(buf: Array, first: int, n: int, error: int, sign: float) -> int:
    """Keep the peaks of n sums; FALLEN if one has come down far below its peak (to exactly 0 is no fall)."""
    fallen = 0
    for i in range(first, first + n):
        value, peak = buf[i], buf[i + 2 * error]
        if sign < 0.0:
            fallen |= (value < FAR * peak) & (value != 0.0)
        else:
            buf[i + 2 * error] = max(value, peak)
    return FALLEN if fallen else 0


@inlined
def _state_of(buf: Array, key: int) -> int:
    """Where the state of a key begins."""
    return 3 * int(buf[AUX]) - 2 * int(buf[CELLS]) + key * STATES


@kernel
def _recount(buf: Array, key: int, ring: int, filled: int) -> None:
    """Sum the key's cells again from its ring, so that nothing old can linger."""
    block = 8 * (int(buf[N_ROWS]) + 1)
    base, error = int(buf[CELLS]) + key * block, int(buf[AUX]) - int(buf[CELLS])
    for i in range(base, base + block, 8):
        _empty(buf, i, error)
    for i in range(ring, ring + 3 * filled, 3):
        apply_event(buf, key, buf[i], buf[i + 1], buf[i + 2], 1.0)


@inlined
def slide(buf: Array, p: float, y: float, w: float, key: int) -> int:
    """Take the oldest event of the key back if its ring is full, and add the new one; 1 if it was refused."""
    size, state = int(buf[PARAMETER]), _state_of(buf, key)
    if buf[state + RING] < 0.0:
        return NO_RING
    if buf[STRICT] != 0.0 and admit(buf, p, y, w)[0] == OUTSIDE:
        return 1
    ring, place = _state_of(buf, int(buf[KEYS])) + 3 * size * int(buf[state + RING]), int(buf[state + PLACE])
    i, fallen = ring + 3 * place, False
    if buf[state + FILLED] >= size:
        fallen = apply_event(buf, key, buf[i], buf[i + 1], buf[i + 2], -1.0) == FALLEN
    else:
        buf[state + FILLED] += 1.0
    buf[i], buf[i + 1], buf[i + 2] = p, y, w
    status = apply_event(buf, key, p, y, w, 1.0)
    if fallen:
        _recount(buf, key, ring, size)
    buf[state + PLACE] = 0.0 if place + 1 == size else place + 1.0
    return status


@inlined
def _ring_of(buf: Array, key: int) -> int:
    """Where the ring of a key begins."""
    return _state_of(buf, int(buf[KEYS])) + 3 * int(buf[PARAMETER]) * int(buf[_state_of(buf, key) + RING])


@inlined
def _is_there(buf: Array, first: int, place: int, p: Array, y: Array, w: float) -> bool:
    """Whether an event of as many keys as ``p`` is long, from ``first`` on, lies at this place of their rings."""
    for j in range(p.shape[0]):
        i = _ring_of(buf, first + j) + 3 * place
        if buf[i] != p[j] or buf[i + 1] != y[j] or buf[i + 2] != w:
            return False
    return True


@kernel
def _correct(buf: Array, first: int, p: Array, y: Array, w: float, new: Array, new_w: float, ages: Ints) -> int:
    """Give the newest event that equals (p, y, w) in the rings of the keys from ``first`` on its new outcomes and weight.

    Only those of certain ages, if there are ages. The age of the event, -1 if there is none.
    """
    size, state = int(buf[PARAMETER]), _state_of(buf, first)
    filled = int(buf[state + FILLED])
    for i in range(ages.shape[0] if ages.shape[0] else filled):
        age = int(ages[i]) if ages.shape[0] else i
        place = (int(buf[state + PLACE]) - 1 - age) % size
        if age < filled and _is_there(buf, first, place, p, y, w):
            for j in range(p.shape[0]):
                ring = _ring_of(buf, first + j)
                buf[ring + 3 * place + 1], buf[ring + 3 * place + 2] = new[j], new_w
                fallen = apply_event(buf, first + j, p[j], y[j], w, -1.0) == FALLEN
                apply_event(buf, first + j, p[j], new[j], new_w, 1.0)
                if fallen:
                    _recount(buf, first + j, ring, filled)
            return age
    return -1


@brief
def sliding_one(buf: Array, p: float, y: float, w: float, key: float) -> int:
    """Take the oldest event of the key back if its ring is full, and add the new one."""
    if buf[VECTOR] != 0.0:
        return NOT_SCALAR
    if not whole_key(buf, key):
        return BAD_KEY
    return slide(buf, p, y, w, int(key))


@kernel
def sliding_many(buf: Array, p: Array, y: Array, w: Array, key: Ints) -> None:
    """Add many events in order; every key in ``key`` has its ring."""
    for i in range(p.shape[0]):
        slide(buf, p[i], y[i], w[i] if w.shape[0] else 1.0, key[i] if key.shape[0] else 0)


@restorable
class Sliding(Window):
    """The last ``size`` events of each key: 24 bytes an event, O(1) per event.

    A refused event holds a place like any other and is in the ledger until it leaves: Sliding always equals Cumulative on
    the tail. What is in the window does not depend on what was: each sum carries its rounding error (106 bits), and is
    taken again from the ring when it has fallen below 2^-40 of its peak. A key's ring is allocated at its first event.

    >>> from streamcal import EqualWidth, Sliding
    >>> window = Sliding(EqualWidth(2), 2)
    >>> window.update_many([0.1, 0.2, 0.9], [1, 0, 1])
    >>> window.snapshot().count.tolist()
    [[1.0, 1.0]]
    """

    _kernel = sliding_one
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
        if self._all_keys == 1:
            self._give_rings(np.zeros(1, np.int64))

    def _extra(self, cells: int) -> int:
        return 2 * cells + self._all_keys * STATES

    def _settle(self, aux: int) -> None:
        self._buf[AUX], self._buf[PARAMETER] = aux, self.size
        self._states()[:, RING] = -1.0

    def _by_key(self) -> list[Array]:
        cells = self._of_keys(int(self._buf[CELLS]), 3, self._block)
        return [cells, self._of_keys(self._fixed() - STATES * self._all_keys, 1, STATES)]

    def _make_room_for(self, other: Self) -> None:
        rings = other._buf[other._fixed() :]
        cells, states, end = int(self._buf[CELLS]), self._states(), self._fixed()
        buffer = np.zeros(end + rings.size)
        buffer[:cells], buffer[end:] = self._buf[:cells], rings
        self._buf = buffer
        self._states()[:] = states

    def _arguments(self) -> dict[str, Any]:
        return {"size": self.size}

    def empty(self, key: int = 0) -> None:
        """See :meth:`Window.empty`. The key keeps its ring, empty."""
        rings = self._states()[self._places(key), RING].copy()
        super().empty(key)
        self._states()[self._places(key), RING] = rings
        for first in (self._fixed() + 3 * self.size * rings[rings >= 0.0].astype(np.int64)).tolist():
            self._buf[first : first + 3 * self.size] = 0.0

    def correct(
        self,
        p: Any,
        y: Any,
        new_y: Any,
        w: float = 1.0,
        key: int = 0,
        *,
        new_w: float | None = None,
        ages: Ints | None = None,
    ) -> int | None:
        """Give the newest event of ``key`` that equals (p, y, w) the outcome ``new_y`` in its place.

        How many events came after it (0: it is the newest), None if none does. ``new_w`` gives it another weight, too
        (down-sampled negatives weigh more than positives). ``ages``: it must be one of those, for whoever knows which it is.
        With None nothing has changed: it has left, or never came (what is not a number equals nothing). The sums are those of
        the ring after it, as exact as ever. All keys of a claim of several change together; of events that look the same to it
        (an Interval of one width, TopLabel of one confidence) the newest changes, which makes no difference to the sums. An
        outcome that is not allowed makes it a refused event; with ``strict`` ValueError. O(size) at worst.

        >>> from streamcal import EqualWidth, Sliding
        >>> window = Sliding(EqualWidth(2), 2)
        >>> window.update_many([0.1, 0.2, 0.9], [1, 0, 1])
        >>> window.correct(0.1, 1, 0), window.correct(0.9, 1, 0), window.events()[1].tolist()
        (None, 0, [0.0, 0.0])
        """
        first, weight = self._places(key).start, one_number(w)
        new_weight = weight if new_w is None else one_number(new_w)
        scores, outcomes = self._one_event(p, y)
        _, new = self._one_event(p, new_y)
        if self.strict and first_bad(self._buf, scores, new, np.full(scores.size, new_weight)) >= 0:
            raise ValueError(self._complaint(p, new_y, w))
        if ages is not None and not ages.size:
            return None
        among = NO_KEYS if ages is None else np.ascontiguousarray(ages, np.int64)
        age = int(_correct(self._buf, first, scores, outcomes, weight, new, new_weight, among))
        return age if age >= 0 else None

    def _one_event(self, p: Any, y: Any) -> tuple[Array, Array]:
        """Scores and outcomes of one raw event, one of each per key of the claim."""
        if self.claim.scalar:
            return np.array([one_number(p)]), np.array([one_number(y)])
        ((scores, outcomes, *_),) = self._pieces([p], [y], None, NO_KEYS, None)
        return scores, outcomes

    def events(self, key: int = 0) -> tuple[Array, Array, Array]:
        """The events of a key that are in the window, oldest first: raw predictions, outcomes and weights, each (n,).

        Refused events are among them as they came.

        >>> from streamcal import EqualWidth, Sliding
        >>> window = Sliding(EqualWidth(2), 2)
        >>> window.update_many([0.1, 0.2, 0.9], [1, 0, 1])
        >>> window.events()[0].tolist()
        [0.2, 0.9]
        """
        place = check_whole("key", key, 0, self._all_keys - 1)
        ring, at, filled = self._states()[place].astype(np.int64).tolist()
        if ring < 0:
            return np.empty(0), np.empty(0), np.empty(0)
        first = self._fixed() + 3 * self.size * ring
        rows = self._buf[first : first + 3 * self.size].reshape(-1, 3)
        order = np.arange(at - filled, at) % self.size
        return rows[order, 0], rows[order, 1], rows[order, 2]

    def _states(self, buffer: Array | None = None) -> Array:
        end = self._fixed()
        return (self._buf if buffer is None else buffer)[end - STATES * self._all_keys : end].reshape(-1, STATES)

    def _may_have(self, size: int) -> bool:
        beyond = size - self._fixed()
        return beyond >= 0 and beyond % (3 * self.size) == 0

    def _fixed(self) -> int:
        """Where the rings begin."""
        return 3 * int(self._buf[AUX]) - 2 * int(self._buf[CELLS]) + STATES * self._all_keys

    def _is_sound(self, buffer: Array) -> bool:
        end = self._fixed()
        states = buffer[end - STATES * self._all_keys : end].reshape(-1, STATES)
        rings, count = states[states[:, RING] >= 0, RING], (buffer.size - end) // (3 * self.size)
        return (
            bool(np.isfinite(buffer[int(self._buf[CELLS]) : end]).all())
            and whole_between(states[:, RING], -1, count - 1)
            and np.unique(rings).size == rings.size
            and whole_between(states[:, PLACE], 0, self.size - 1)
            and whole_between(states[:, FILLED], 0, self.size)
        )

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        config, _ = super()._state()
        used = int((self._states()[:, RING] >= 0).sum())
        return config, {"buffer": self._buf[: self._fixed() + 3 * self.size * used]}

    def _give_rings(self, keys: Ints) -> None:
        """Allocate rings for those of these keys that have none, with some to spare where there are many keys.

        The new buffer is whole before it takes the old one's place: whoever is in a kernel meanwhile stays in bounds.
        """
        with GROWING:
            buffer = self._buf
            states = self._states(buffer)
            new = keys[states[keys, RING] < 0]
            if not new.size:
                return
            used = int((states[:, RING] >= 0).sum())
            rings = (buffer.size - self._fixed()) // (3 * self.size)
            if used + new.size > rings:
                rings = min(max(used + new.size, 2 * used), self._all_keys)
                old, buffer = buffer, np.zeros(self._fixed() + 3 * self.size * rings)
                buffer[: old.size] = old
            self._states(buffer)[new, RING] = np.arange(used, used + new.size)
            self._buf = buffer

    def _not_added(self, status: int, p: Any, y: Any, w: Any, key: Any, t: Any = None) -> None:
        if status == NO_RING:
            self._give_rings(np.array([int(key)]))
            return self.update(p, y, w, key)
        return super()._not_added(status, p, y, w, key, t)

    def _add(self, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
        to = key if key.size else np.zeros(min(p.size, 1), np.int64)
        self._give_rings(np.unique(to[self._states()[to, RING] < 0.0]))
        if not key.size:  # what would leave again within this batch need not come in
            p, y, w = p[-self.size :], y[-self.size :], w[-self.size :]
        sliding_many(self._buf, p, y, w, key)
