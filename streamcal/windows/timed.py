"""Timed: the events of the last ``period`` seconds, in panes."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from streamcal._jit import add_four, brief, inlined, kernel
from streamcal.arrays import Array, Ints, check_aligned, check_whole, numbers
from streamcal.binning import OUTSIDE, Binning
from streamcal.snapshot import Number, Snapshot
from streamcal.state import restorable
from streamcal.summary import report
from streamcal.tally import (
    CELLS,
    CLIPPED,
    COUNT,
    FOUR,
    IMPOSSIBLE,
    INFINITE,
    KEYS,
    LATE,
    LOSS,
    NOT_SCALAR,
    PARAMETER,
    REFUSED,
    SECOND,
    STATE,
    STRICT,
    THIRD,
    WPY,
    WY,
    WYY,
    add,
    admit,
    block_of,
    certain_at,
    claim_at,
    key_at,
    key_of,
    loss_at,
    weight_at,
)
from streamcal.times import seconds
from streamcal.windows.window import Options, Window

# In the header: seconds of a pane, panes, lateness in seconds, the largest time seen (-inf before the first).
PANE, PANES, LATENESS, WATERMARK = PARAMETER, SECOND, THIRD, STATE
LAST_PANE = 2.0**52  # panes are counted in float64, where whole numbers end soon after; a time beyond is refused
MOST_PANES = 100_000  # all of them are summed at a read
LONGEST_PERIOD = 1e12  # seconds: 30,000 years; more is a mistake of the unit
DUST = 2.0**-44  # a sum of outcomes that is less than this part of what it was before events were taken back is 0


@kernel
def _advance(buf: Array, t: float) -> None:
    """Move the watermark to ``t``, emptying the panes that come into use."""
    pane, panes = buf[PANE], int(buf[PANES])
    now = int(math.floor(t / pane))
    before = now if buf[WATERMARK] == -math.inf else int(math.floor(buf[WATERMARK] / pane))
    first = max(before + 1, now - panes + 1)  # a jump over more panes than there are empties each of them once
    size = int(buf[KEYS]) * block_of(buf)
    for index in range(first, now + 1):
        start = int(buf[CELLS]) + (index % panes) * size
        for i in range(start, start + size):
            buf[i] = 0.0
    buf[WATERMARK] = t


@inlined
def _pane_of(buf: Array, index: int, key: int) -> int:
    """Where the cells of a key begin in the pane of this time slice."""
    block = block_of(buf)
    return int(buf[CELLS]) + (index % int(buf[PANES])) * int(buf[KEYS]) * block + key * block


@inlined
def _has_pane(buf: Array, t: float) -> bool:
    """Whether a time is a number that panes can be counted to; False for nan and inf."""
    return bool(-LAST_PANE < t / buf[PANE] < LAST_PANE)


@inlined
def _add_timed(buf: Array, p: float, y: float, w: float, key: int, t: float) -> int:
    pane, ledger = buf[PANE], block_of(buf) - 8
    if not _has_pane(buf, t) or admit(buf, p, y, w)[0] == OUTSIDE:
        if buf[STRICT] == 0.0:  # a refused event has no time: it counts in the newest pane
            newest = int(math.floor(buf[WATERMARK] / pane)) if buf[WATERMARK] > -math.inf else 0
            buf[_pane_of(buf, newest, key) + ledger + REFUSED] += 1.0
        return 1
    if t > buf[WATERMARK]:  # only an event that is allowed moves time
        _advance(buf, t)
    newest, index = int(math.floor(buf[WATERMARK] / pane)), int(math.floor(t / pane))
    if t < buf[WATERMARK] - buf[LATENESS] or index <= newest - int(buf[PANES]):
        buf[_pane_of(buf, newest, key) + ledger + LATE] += 1.0
        return 0
    return add(buf, _pane_of(buf, index, key), key, p, y, w, 1.0)


@brief
def timed_one(buf: Array, p: float, y: float, w: float, key: float, t: float) -> int:
    """Add one event to the pane of its time, or count it as late."""
    k = key_of(buf, key)
    return k if k < 0 else _add_timed(buf, p, y, w, k, t)


@kernel
def timed_many(buf: Array, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
    """Add many events in order of arrival."""
    for i in range(p.shape[0]):
        _add_timed(buf, p[i], y[i], weight_at(w, i), key_at(key, i), t[i])


@inlined
def _less(buf: Array, i: int, x: float, dust: float) -> None:
    """Take ``x`` from a sum of what is not negative; 0 if no more is left than this part of it."""
    left = buf[i] - x
    buf[i] = left if left > dust * buf[i] else 0.0


@inlined
def _take_from_bin(buf: Array, i: int, v: float, claim: float, outcome: float) -> None:
    """Take an event from its bin, the last one with all that rounding has left there."""
    if buf[i + COUNT] == 1.0:
        for j in range(i, i + 8):
            buf[j] = 0.0
        return
    before = max(buf[i + WY], 0.0)
    wp, wy = v * claim, v * outcome
    add_four(buf, np.uint64(i), -1.0, -v, -v * v, -wp)
    add_four(buf, np.uint64(i) + FOUR, -wy, -wp * claim, -wp * outcome, -wy * outcome)
    for j in range(i, i + 8):
        buf[j] = max(buf[j], 0.0)
    if buf[i + WY] <= DUST * before:  # no positive outcome is left
        buf[i + WY], buf[i + WPY], buf[i + WYY] = 0.0, 0.0, 0.0


@inlined
def _take_back(buf: Array, p: float, y: float, w: float, key: int, t: float) -> bool:
    """Take one event from the pane of its time; False, and nothing changed, if it cannot be there."""
    b, score, outcome, clipped = admit(buf, p, y, w)
    if b == OUTSIDE or not _has_pane(buf, t) or not t <= buf[WATERMARK]:
        return False
    index, newest = int(math.floor(t / buf[PANE])), int(math.floor(buf[WATERMARK] / buf[PANE]))
    base = _pane_of(buf, index, key)
    if index <= newest - int(buf[PANES]) or buf[base + 8 * b + COUNT] < 1.0:
        return False
    claim, ledger = claim_at(buf, key, score), base + block_of(buf) - 8
    _take_from_bin(buf, base + 8 * b, w, claim, outcome)
    if clipped:
        _less(buf, ledger + CLIPPED, 1.0, 0.0)
    column, loss = loss_at(buf, score, y, claim, w)
    if column != OUTSIDE:
        _less(buf, ledger + column, loss, 0.0 if column == LOSS else DUST)
    kind = certain_at(buf, score, y, w)
    if kind != OUTSIDE:
        _less(buf, ledger + kind, 1.0 if kind == IMPOSSIBLE else w, DUST)
        if kind == IMPOSSIBLE:
            _less(buf, ledger + INFINITE, w, DUST)
    for i in range(base, ledger, 8):
        if buf[i + COUNT] > 0.0:
            return True
    for i in range(ledger + LOSS, ledger + 8):  # without events there is none
        buf[i] = 0.0
    return True


@kernel
def _take_back_many(buf: Array, p: Array, y: Array, w: Array, key: Ints, t: Array, width: int) -> int:
    """Take back events of ``width`` keys each; how many of them were there, under any of their keys."""
    taken = 0
    for i in range(0, p.shape[0], width):
        there = False
        for j in range(i, i + width):
            there |= _take_back(buf, p[j], y[j], weight_at(w, j), key_at(key, j), t[j])
        taken += there
    return taken


@restorable
class Timed(Window):
    """The events of the last ``period`` seconds: ``panes`` tallies of period / panes seconds each, summed at a read.

    At time T it holds the events with floor(t / pane) > floor(T / pane) - panes: the period to within one pane. An event
    more than ``lateness`` seconds behind the largest time seen, or from a pane that has gone, is counted as late and
    never applied. Read with a later time it is emptier, with no new event needed. Refused events count in the newest
    pane. There is no clock inside: one event with a wrong time far ahead empties the window and makes the rest late.

    >>> from streamcal import EqualWidth, Timed
    >>> window = Timed(EqualWidth(2), period=10, panes=10)
    >>> window.update(0.7, 1, t=100.0)
    >>> window.update(0.7, 1, t=0.0)
    >>> s = window.snapshot()
    >>> s.count.sum(), s.late.tolist(), window.snapshot(t=3700.0).count.sum()
    (np.float64(1.0), [1.0], np.float64(0.0))
    """

    _kernel = timed_one
    _event = (0.5, 1.0, 1.0, 0.0, 0.0)
    _smallest = (60.0, 2)
    settings = ("period", "panes", "lateness")

    def __init__(
        self, binning: Binning, period: float, panes: int = 60, lateness: float = 0, **options: Unpack[Options]
    ) -> None:
        if not isinstance(period, int | float) or not 0 < period < LONGEST_PERIOD:
            raise ValueError(f"period must be a number of seconds in (0, 1e12), got {period!r}")
        self._sets = panes = check_whole("panes", panes, 1, MOST_PANES)
        if not isinstance(lateness, int | float) or not 0 <= lateness <= period:
            raise ValueError(f"lateness must be a number of seconds in [0, period], got {lateness!r}")
        self.period, self.panes, self.lateness = period, panes, lateness
        super().__init__(binning, **options)

    def _begin(self) -> None:
        super()._begin()  # PANES and LATENESS among others
        self._buf[PANE], self._buf[WATERMARK] = self.period / self.panes, -math.inf

    def update(self, p: Any, y: Any, w: float = 1.0, key: int = 0, *, t: Any) -> None:  # type: ignore[override]
        """Add one event of time ``t``: seconds since 1970, or an aware datetime. See :meth:`Window.update`."""
        t = t if t.__class__ is float or t.__class__ is int else seconds(t)
        try:
            status = self._one(self._buf, p, y, w, key, t)
        except (TypeError, ValueError, OverflowError):
            status = NOT_SCALAR
        if status:
            self._not_added(status, p, y, w, key, t)

    def update_many(self, p: Any, y: Any, w: Any = None, *, key: Any = None, t: Any = None) -> None:
        """Add many events of times ``t`` (n,), or all of one time, in order of arrival. See :meth:`Window.update_many`."""
        check_aligned(p=p, y=y, w=w, key=key, t=t)
        times = self._times(p, t)
        wrong = np.flatnonzero(~(np.abs(times / self._buf[PANE]) < LAST_PANE))
        if self.strict and wrong.size:
            raise ValueError(f"t must hold finite times, got {times.reshape(-1)[wrong[0]]} at index {wrong[0]}")
        self._update_many(p, y, w, key, times)

    def _times(self, p: Any, t: Any) -> Array:
        """The times of n events as seconds; one time is that of all of them."""
        if t is None:
            raise ValueError("Timed needs the times of the events: t=")
        times = numbers("t", seconds(t))
        return np.full(len(p), float(times)) if times.ndim == 0 and np.ndim(p) else times

    def take_back_many(self, p: Any, y: Any, w: Any = None, *, key: Any = None, t: Any) -> int:
        """Take back events that :meth:`update_many` added, given as they were then; how many were taken back.

        Left out: those that were refused, those whose pane has gone by now, and those whose bin of their pane is empty; that
        another event of the same bin was meant cannot be seen, nor that an event was counted as late when it came. With
        ``lateness=period`` an event is late only when its pane has gone: then all that one needs to know is its time. (A
        corrected event that is added again with its old time must not be late either.) Time goes on as it was. Counts, and sums
        of 0 and 1, are exact; others to 1e-15 of the largest that the sum has been. Shapes and errors as in update_many.

        >>> from streamcal import EqualWidth, Timed
        >>> window = Timed(EqualWidth(1), period=10, panes=10, lateness=10)
        >>> window.update_many([0.7, 0.7], [1, 1], t=[100.0, 101.0])
        >>> window.take_back_many([0.7], [1], t=100.0), window.take_back_many([0.7], [1], t=50.0), window.get("coverage")
        (1, 0, 1.0)
        """
        check_aligned(p=p, y=y, w=w, key=key, t=t)
        events = list(self._events(p, y, w, key, self._times(p, t)))
        return self._alone(lambda: sum(int(_take_back_many(self._buf, *some, self.claim.width)) for some in events))

    def _add(self, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
        timed_many(self._buf, p, y, w, key, t)

    @property
    def _panes(self) -> Array:
        """The sums of each pane, a view of shape (panes, keys, bins + 1, 8)."""
        return self._layout.cells(self._buf)

    @property
    def watermark(self) -> float:
        """The largest time seen, -inf before the first event."""
        return float(self._buf[WATERMARK])

    def _is_sound(self, buffer: Array) -> bool:
        newest = buffer[WATERMARK] / buffer[PANE]
        return (newest == -math.inf or abs(newest) < LAST_PANE) and super()._is_sound(buffer)

    def _indexes(self) -> Ints:
        """The absolute number of the time slice that each pane holds."""
        newest = math.floor(self.watermark / self._buf[PANE]) if self.watermark > -math.inf else 0
        return newest - (newest - np.arange(self.panes)) % self.panes

    @property
    def cells(self) -> Array:
        """The sums as of the largest time seen, shape (keys, bins + 1, 8)."""
        return self._as_of(None, slice(None))

    def _as_of(self, t: Any, keys: slice) -> Array:
        """The sums of some keys as of time ``t``, but no earlier than the largest time seen."""
        at = self.watermark if t is None else float(seconds(t))
        if math.isnan(at):
            raise ValueError(f"t must be a time, got {t!r}")
        panes = self._panes[:, keys]
        if at > self.watermark > -math.inf:
            panes = panes[self._indexes() > math.floor(at / self._buf[PANE]) - self.panes if at < math.inf else []]
        return np.asarray(panes.sum(0))

    def snapshot(self, t: Any = None) -> Snapshot:
        """A frozen copy of the sums as of time ``t``; None: the largest time seen (an earlier ``t`` means that, too)."""
        return self._frozen(self._as_of(t, slice(None)))

    def snapshot_of(self, key: int, t: Any = None) -> Snapshot:
        """The same of one key only, which is quicker where there are many: its keys are those of the claim.

        >>> from streamcal import EqualWidth, Timed
        >>> window = Timed(EqualWidth(1), period=10, panes=10, keys=3)
        >>> window.update_many([0.7, 0.7], [1, 1], key=[1, 2], t=100.0)
        >>> window.snapshot_of(2).count.tolist(), window.snapshot_of(2, t=200.0).count.tolist()
        ([[1.0]], [[0.0]])
        """
        return self._frozen(self._as_of(t, self._places(key)))

    def get(self, name: str, t: Any = None) -> Number:
        """A metric by name as of time ``t``. See :meth:`Window.get`."""
        return self.snapshot(t).get(name)

    def report(self, t: Any = None) -> dict[str, Any]:
        """Everything as of time ``t``. See :meth:`Window.report`."""
        return {"window": repr(self), **report(self.snapshot(t))}

    def __add__(self, other: Timed) -> Timed:
        """What both have seen, pane by pane, as of the later watermark. ValueError if their configurations differ."""
        if not isinstance(other, Timed):
            return NotImplemented
        mine, theirs = ({**window._state()[0], "strict": False} for window in (self, other))
        if mine != theirs:
            raise ValueError(f"windows must share their configuration, got {self!r} and {other!r}")
        old, new = sorted((self, other), key=lambda window: window.watermark)
        merged = type(self).from_bytes(new.to_bytes())
        if old.watermark == -math.inf:
            merged._panes[0] += old._panes[0]
            return merged  # type: ignore[no-any-return]
        kept = merged._indexes()
        for pane, index in enumerate(old._indexes()):
            merged._panes[pane] += old._panes[pane] * (index in kept)
        return merged  # type: ignore[no-any-return]
