"""Sliding: the last ``size`` events of each key."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, Unpack

import numpy as np

from streamcal._jit import add_four_exactly, brief, inlined, kernel
from streamcal.arrays import Array, Ints, check_whole, one_number
from streamcal.binning import OUTSIDE, Binning
from streamcal.state import reserve, restorable
from streamcal.tally import (
    AUX,
    CELLS,
    CLIPPED,
    COUNT,
    FOUR,
    IMPOSSIBLE,
    INFINITE,
    KEYS,
    LOSS,
    NO_RING,
    ONES,
    PARAMETER,
    REFUSED,
    ZEROS,
    admit,
    block_of,
    cells_of,
    certain_at,
    claim_at,
    first_bad,
    is_unwanted,
    key_at,
    key_of,
    loss_at,
    weight_at,
)
from streamcal.windows.window import NO_KEYS, Options, Window

# Three sets of cells (the sums, their rounding errors, their peaks), then per key [its ring or -1, next place, filled], then the
# rings.
RING, PLACE, FILLED, STATES = range(4)
EVENT = 3  # numbers of an event in a ring: raw prediction, raw outcome, weight
# A sum and its error hold 106 bits. A sum that has fallen below this part of its peak is about to lose those that hold what
# remains: its key is then summed again from the ring.
FAR = 2.0**-40
NEARLY = (
    1e-9  # of its peak, that a sum may differ from the one of the same events taken anew: far more than rounding does
)
FALLEN = 2  # the status that says so
GROWING = Lock()  # no two rings of one number, even where two threads share a window against all advice


@inlined
def apply_event(buf: Array, key: int, p: float, y: float, w: float, sign: float) -> int:
    """Add (+1) or take back (-1) an event, by the same arithmetic; FALLEN if what stays is far below what was."""
    base, error = cells_of(buf, key), int(buf[AUX]) - int(buf[CELLS])
    ledger = base + block_of(buf) - 8
    b, score, outcome, clipped = admit(buf, p, y, w)
    if b == OUTSIDE:
        buf[ledger + REFUSED] += sign
        return 1
    claim = claim_at(buf, key, score)
    at, v = base + 8 * b, sign * w
    i, e, wp, wy = np.uint64(at), np.uint64(at + error), v * claim, v * outcome
    add_four_exactly(buf, i, e, sign, v, v * w, wp)
    add_four_exactly(buf, i + FOUR, e + FOUR, wy, wp * claim, wp * outcome, wy * outcome)
    if clipped:
        buf[ledger + CLIPPED] += sign
    if sign < 0.0 and buf[at + COUNT] == 0.0:
        _empty(buf, at, error)
    status = _watch_peaks(buf, at, 8, error, sign)
    column, loss = loss_at(buf, score, y, claim, w)
    if column != OUTSIDE:  # one sum of the ledger: its neighbours get nothing
        place = ledger + column
        add_four_exactly(buf, np.uint64(place), np.uint64(place + error), sign * loss, 0.0, 0.0, 0.0)
        if column == LOSS:
            status = max(status, _watch_peaks(buf, place, 1, error, sign))
    kind = certain_at(buf, score, y, w)
    if kind != OUTSIDE:
        place = ledger + INFINITE
        wrong = sign if kind == IMPOSSIBLE else 0.0
        zeros = v if kind == ZEROS else 0.0
        ones = v if kind == ONES else 0.0
        add_four_exactly(buf, np.uint64(place), np.uint64(place + error), wrong * w, wrong, zeros, ones)
    return status


@inlined
def _empty(buf: Array, first: int, error: int) -> None:
    """A bin without events holds nothing, not rounding dust."""
    for i in range(first, first + 8):
        buf[i] = 0.0
        buf[i + error] = 0.0
        buf[i + 2 * error] = 0.0


@inlined
def _watch_peaks(buf: Array, first: int, n: int, error: int, sign: float) -> int:
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
    """Where the state of a key begins; that of the first key too many is where the rings begin."""
    return 3 * int(buf[AUX]) - 2 * int(buf[CELLS]) + key * STATES


@inlined
def _ring_of(buf: Array, key: int) -> int:
    """Where the ring of a key begins."""
    return _state_of(buf, int(buf[KEYS])) + EVENT * int(buf[PARAMETER]) * int(buf[_state_of(buf, key) + RING])


@kernel
def _recount(buf: Array, key: int, ring: int, filled: int) -> None:
    """Sum the key's cells again from its ring, so that nothing old can linger."""
    base, error = cells_of(buf, key), int(buf[AUX]) - int(buf[CELLS])
    for i in range(base, base + block_of(buf), 8):
        _empty(buf, i, error)
    for i in range(ring, ring + EVENT * filled, EVENT):
        apply_event(buf, key, buf[i], buf[i + 1], buf[i + 2], 1.0)


@kernel
def _recount_all(buf: Array) -> None:
    """The sums of every key again from its ring; nothing where there is none."""
    for key in range(int(buf[KEYS])):
        state = _state_of(buf, key)
        _recount(buf, key, _ring_of(buf, key), int(buf[state + FILLED]) if buf[state + RING] >= 0.0 else 0)


@inlined
def slide(buf: Array, p: float, y: float, w: float, key: int) -> int:
    """Take the oldest event of the key back if its ring is full, and add the new one; 1 if it was refused."""
    size, state = int(buf[PARAMETER]), _state_of(buf, key)
    if buf[state + RING] < 0.0:
        return NO_RING
    if is_unwanted(buf, p, y, w):
        return 1
    ring, place = _ring_of(buf, key), int(buf[state + PLACE])
    i, fallen = ring + EVENT * place, False
    if buf[state + FILLED] >= size:
        fallen = apply_event(buf, key, buf[i], buf[i + 1], buf[i + 2], -1.0) == FALLEN
    else:
        buf[state + FILLED] += 1.0
    buf[i], buf[i + 1], buf[i + 2] = p, y, w  # as they came: what leaves must be taken back by the same arithmetic
    status = apply_event(buf, key, p, y, w, 1.0)
    if fallen:
        _recount(buf, key, ring, size)
    buf[state + PLACE] = 0.0 if place + 1 == size else place + 1.0
    return status


@inlined
def _is_there(buf: Array, first: int, place: int, p: Array, y: Array, w: float) -> bool:
    """Whether an event of as many keys as ``p`` is long, from ``first`` on, lies at this place of their rings."""
    for j in range(p.shape[0]):
        i = _ring_of(buf, first + j) + EVENT * place
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
                at = ring + EVENT * place
                buf[at + 1], buf[at + 2] = new[j], new_w  # before a recount, which reads the ring
                fallen = apply_event(buf, first + j, p[j], y[j], w, -1.0) == FALLEN
                apply_event(buf, first + j, p[j], new[j], new_w, 1.0)
                if fallen:
                    _recount(buf, first + j, ring, filled)
            return age
    return -1


@brief
def sliding_one(buf: Array, p: float, y: float, w: float, key: float) -> int:
    """Take the oldest event of the key back if its ring is full, and add the new one."""
    k = key_of(buf, key)
    return k if k < 0 else slide(buf, p, y, w, k)


@kernel
def sliding_many(buf: Array, p: Array, y: Array, w: Array, key: Ints) -> None:
    """Add many events in order; every key in ``key`` has its ring."""
    for i in range(p.shape[0]):
        slide(buf, p[i], y[i], weight_at(w, i), key_at(key, i))


@restorable
class Sliding(Window):
    """The last ``size`` events of each key: 24 bytes an event, O(1) per event.

    ``size``: a number of events; the other arguments as in :class:`Window`.

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
    settings = ("size",)
    _sets = 3
    _counted = slice(1)
    _own = STATES

    def __init__(self, binning: Binning, size: int, **options: Unpack[Options]) -> None:
        self.size = check_whole("size", size, 1)
        super().__init__(binning, **options)

    def _begin(self) -> None:
        super()._begin()
        self._states[:, RING] = -1.0
        if self._layout.keys == 1:
            self._give_rings(np.zeros(1, np.int64))

    @property
    def _states(self) -> Array:
        """The ring, the next place and the number of events of each key, a view of shape (keys, 3)."""
        return self._layout.own(self._buf)

    @property
    def _rings(self) -> Array:
        """All rings, a view of shape (rings, size, 3)."""
        return self._buf[self._layout.end :].reshape(-1, self.size, EVENT)

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
        (down-sampled negatives weigh more than positives). ``ages``: how many came after it must be one of these.
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
        age = int(self._alone(_correct, self._buf, first, scores, outcomes, weight, new, new_weight, among))
        return age if age >= 0 else None

    def _one_event(self, p: Any, y: Any) -> tuple[Array, Array]:
        """Scores and outcomes of one raw event, one of each per key of the claim."""
        if self.claim.scalar:
            return np.array([one_number(p)]), np.array([one_number(y)])
        ((scores, outcomes, *_),) = self._events([p], [y], None, None, None)
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
        place = check_whole("key", key, 0, self._layout.keys - 1)
        ring, at, filled = self._states[place].astype(np.int64).tolist()
        if ring < 0:
            return np.empty(0), np.empty(0), np.empty(0)
        p, y, w = self._rings[ring, np.arange(at - filled, at) % self.size].T.copy()
        return p, y, w

    def _may_have(self, size: int) -> bool:
        beyond = size - self._layout.end
        return beyond >= 0 and beyond % (EVENT * self.size) == 0

    def _own_bounds(self, buffer: Array) -> tuple[tuple[float, float], ...]:
        rings = (buffer.size - self._layout.end) // (EVENT * self.size)
        return (-1, rings - 1), (0, self.size - 1), (0, self.size)

    def _is_sound(self, buffer: Array) -> bool:
        """Besides, that the rings are numbered from 0 on, are filled from their beginning, and hold the events of the sums."""
        if not super()._is_sound(buffer):
            return False
        rings, places, filled = self._layout.own(buffer).T
        used = np.sort(rings[rings >= 0.0])
        begun = (rings >= 0.0) | (filled == 0.0)
        if not (
            np.array_equal(used, np.arange(used.size)) and ((filled == self.size) | (places == filled) & begun).all()
        ):
            return False
        again = buffer.copy()
        _recount_all(again)
        (have, _, peaks), (want, *_) = self._layout.cells(buffer), self._layout.cells(again)
        counts = np.array_equal(have[:, :, COUNT], want[:, :, COUNT]) and np.array_equal(
            have[:, -1, :LOSS], want[:, -1, :LOSS]
        )
        return counts and bool((np.abs(have - want) <= NEARLY * np.maximum(np.abs(peaks), np.abs(want))).all())

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        config, _ = super()._state()
        used = int((self._states[:, RING] >= 0).sum())
        return config, {"buffer": self._buf[: self._layout.end + EVENT * self.size * used]}

    def _give_rings(self, keys: Ints) -> None:
        """Allocate rings for those of these keys that have none, with some to spare where there are many keys.

        The new buffer is whole before it takes the old one's place: whoever is in a kernel meanwhile stays in bounds.
        """
        with GROWING:
            buffer = self._buf
            states = self._layout.own(buffer)
            new = keys[states[keys, RING] < 0]
            if not new.size:
                return
            used = int((states[:, RING] >= 0).sum())
            rings = (buffer.size - self._layout.end) // (EVENT * self.size)
            if used + new.size > rings:
                rings = min(max(used + new.size, 2 * used), self._layout.keys)
                reserve(EVENT * self.size * rings)
                old, buffer = buffer, np.zeros(self._layout.end + EVENT * self.size * rings)
                buffer[: old.size] = old
            self._layout.own(buffer)[new, RING] = np.arange(used, used + new.size)
            self._buf = buffer

    def _not_added(self, status: int, p: Any, y: Any, w: Any, key: Any, t: Any = None) -> None:
        if status == NO_RING:
            self._give_rings(np.array([int(key)]))
            return self.update(p, y, w, key)
        return super()._not_added(status, p, y, w, key, t)

    def _add(self, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
        to = key if key.size else np.zeros(min(p.size, 1), np.int64)
        self._give_rings(np.unique(to[self._states[to, RING] < 0.0]))
        if not key.size:  # what would leave again within this batch need not come in
            p, y, w = p[-self.size :], y[-self.size :], w[-self.size :]
        sliding_many(self._buf, p, y, w, key)
