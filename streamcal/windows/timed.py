"""Timed: the events of the last ``period`` seconds, in panes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamcal._jit import add_four, brief, inlined, kernel
from streamcal.arrays import Array, Ints, check_same_index, check_whole, numbers
from streamcal.binning import Binning
from streamcal.claims import Claim
from streamcal.rows import N_ROWS, OUTSIDE
from streamcal.snapshot import Number, Snapshot
from streamcal.state import restorable
from streamcal.tally import (
    BAD_KEY,
    CELLS,
    CLIPPED,
    COUNT,
    FOUR,
    INFINITE,
    KEYS,
    LARGEST_LOSS,
    LATE,
    LEVELS,
    LOSS,
    LOSS_KIND,
    NO_LOSS,
    NOT_SCALAR,
    PARAMETER,
    REFUSED,
    SECOND,
    STATE,
    STRICT,
    THIRD,
    VECTOR,
    WPY,
    WY,
    WYY,
    add,
    admit,
    loss_of,
    whole_key,
)
from streamcal.times import seconds
from streamcal.windows.window import Window

# In the header: PARAMETER pane length, SECOND panes, THIRD lateness, STATE the largest time seen (-inf before the first)
LAST_PANE = 2.0**52  # panes are counted in float64; a time beyond is refused
DUST = 2.0**-44  # a sum of outcomes that is less than this part of what it was before events were taken back is 0


@kernel
def _advance(buf: Array, t: float) -> None:
    """Move the watermark to ``t``, emptying the panes that come into use."""
    pane, panes = buf[PARAMETER], int(buf[SECOND])
    now = int(math.floor(t / pane))
    before = now if buf[STATE] == -math.inf else int(math.floor(buf[STATE] / pane))
    first = max(before + 1, now - panes + 1)
    size = int(buf[KEYS]) * 8 * (int(buf[N_ROWS]) + 1)
    for index in range(first, now + 1):
        start = int(buf[CELLS]) + (index % panes) * size
        for i in range(start, start + size):
            buf[i] = 0.0
    buf[STATE] = t


@inlined
def _add_timed(buf: Array, p: float, y: float, w: float, key: int, t: float) -> int:
    pane, panes, block = buf[PARAMETER], int(buf[SECOND]), 8 * (int(buf[N_ROWS]) + 1)
    size, offset = int(buf[KEYS]) * block, int(buf[CELLS]) + key * block
    clock = -LAST_PANE < t / pane < LAST_PANE  # False for nan and inf
    if not clock or admit(buf, p, y, w)[0] == OUTSIDE:
        if buf[STRICT] == 0.0:
            at = int(math.floor(buf[STATE] / pane)) if buf[STATE] > -math.inf else 0
            buf[offset + (at % panes) * size + block - 8 + REFUSED] += 1.0
        return 1
    if t > buf[STATE]:
        _advance(buf, t)
    newest, index = int(math.floor(buf[STATE] / pane)), int(math.floor(t / pane))
    if t < buf[STATE] - buf[THIRD] or index <= newest - panes:
        buf[offset + (newest % panes) * size + block - 8 + LATE] += 1.0
        return 0
    return add(buf, offset + (index % panes) * size, key, p, y, w, 1.0)


@brief
def timed_one(buf: Array, p: float, y: float, w: float, key: float, t: float) -> int:
    """Add one event to the pane of its time, or count it as late."""
    if buf[VECTOR] != 0.0:
        return NOT_SCALAR
    if not whole_key(buf, key):
        return BAD_KEY
    return _add_timed(buf, p, y, w, int(key), t)


@kernel
def timed_many(buf: Array, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
    """Add many events in order of arrival."""
    for i in range(p.shape[0]):
        _add_timed(buf, p[i], y[i], w[i] if w.shape[0] else 1.0, key[i] if key.shape[0] else 0, t[i])


@inlined
def _less(buf: Array, i: int, x: float, dust: float) -> None:
    """Take ``x`` from a sum of what is not negative; 0 if no more is left than this part of it."""
    left = buf[i] - x
    buf[i] = left if left > dust * buf[i] else 0.0


@inlined
def _take_from_row(buf: Array, i: int, v: float, claim: float, outcome: float) -> None:
    """Take an event from its row, the last one with all that rounding has left there."""
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
def _take_loss(buf: Array, base: int, loss: float, v: float) -> None:
    """Take the loss of an event of weight ``v`` from the ledger; without events there is none."""
    ledger = base + 8 * int(buf[N_ROWS])
    if loss < LARGEST_LOSS:
        _less(buf, ledger + LOSS, loss, 0.0)
    else:
        _less(buf, ledger + INFINITE, v, DUST)
    for i in range(base, ledger, 8):
        if buf[i + COUNT] > 0.0:
            return
    buf[ledger + LOSS], buf[ledger + INFINITE] = 0.0, 0.0


@inlined
def _take_back(buf: Array, p: float, y: float, w: float, key: int, t: float) -> bool:
    """Take one event from the pane of its time; False, and nothing changed, if it cannot be there."""
    pane, panes, block = buf[PARAMETER], int(buf[SECOND]), 8 * (int(buf[N_ROWS]) + 1)
    r, score, outcome, clipped = admit(buf, p, y, w)
    if r == OUTSIDE or not -LAST_PANE < t / pane < LAST_PANE or not t <= buf[STATE]:
        return False
    index = int(math.floor(t / pane))
    base = int(buf[CELLS]) + (index % panes) * int(buf[KEYS]) * block + key * block
    if index <= int(math.floor(buf[STATE] / pane)) - panes or buf[base + 8 * r + COUNT] < 1.0:
        return False
    level = buf[int(buf[LEVELS]) + key]
    _take_from_row(buf, base + 8 * r, w, score if math.isnan(level) else level, outcome)
    if clipped:
        _less(buf, base + block - 8 + CLIPPED, 1.0, 0.0)
    if buf[LOSS_KIND] != NO_LOSS:
        _take_loss(buf, base, w * loss_of(buf, score, y, level) if w > 0.0 else 0.0, w)
    return True


@kernel
def _take_back_many(buf: Array, p: Array, y: Array, w: Array, key: Ints, t: Array, width: int) -> int:
    """Take back events of ``width`` keys each; how many of them were there, under any of their keys."""
    taken = 0
    for i in range(0, p.shape[0], width):
        there = False
        for j in range(i, i + width):
            there |= _take_back(buf, p[j], y[j], w[j] if w.shape[0] else 1.0, key[j] if key.shape[0] else 0, t[j])
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
    _smallest = (60.0, 2)

    def __init__(
        self,
        binning: Binning,
        period: float,
        panes: int = 60,
        lateness: float = 0,
        *,
        keys: int = 1,
        claim: Claim | None = None,
        loss: str | None = None,
        strict: bool = False,
    ) -> None:
        if not isinstance(period, int | float) or not 0 < period < 1e12:
            raise ValueError(f"period must be a number of seconds in (0, 1e12), got {period!r}")
        panes = check_whole("panes", panes, 1, 100_000)
        if not isinstance(lateness, int | float) or not 0 <= lateness <= period:
            raise ValueError(f"lateness must be a number of seconds in [0, period], got {lateness!r}")
        self.period, self.panes, self.lateness = period, panes, lateness
        super().__init__(binning, keys=keys, claim=claim, loss=loss, strict=strict)

    def _panes(self) -> int:
        return self.panes

    def _settle(self, aux: int) -> None:
        self._buf[PARAMETER], self._buf[SECOND], self._buf[THIRD] = self.period / self.panes, self.panes, self.lateness
        self._buf[STATE] = -math.inf

    def _arguments(self) -> dict[str, Any]:
        return {"period": self.period, "panes": self.panes, "lateness": self.lateness}

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
        times = self._times(p, t)
        wrong = np.flatnonzero(~(np.abs(times / self._buf[PARAMETER]) < LAST_PANE))
        if self.strict and wrong.size:
            raise ValueError(f"t must hold finite times, got {times.reshape(-1)[wrong[0]]} at index {wrong[0]}")
        self._take(p, y, w, key, times)

    def _times(self, p: Any, t: Any) -> Array:
        """The times of n events as seconds; one time is that of all of them."""
        if t is None:
            raise ValueError("Timed needs the times of the events: t=")
        times = numbers("t", seconds(t))
        return np.full(len(p), float(times)) if times.ndim == 0 and np.ndim(p) else times

    def take_back_many(self, p: Any, y: Any, w: Any = None, *, key: Any = None, t: Any) -> int:
        """Take back events that :meth:`update_many` added, given as they were then; how many were taken back.

        Left out: those that were refused, those whose pane has gone by now, and those whose row of their pane is empty; that
        another event of the same row was meant cannot be seen, nor that an event was counted as late when it came. With
        ``lateness=period`` an event is late only when its pane has gone: then all that one needs to know is its time. (A
        corrected event that is added again with its old time must not be late either.) Time goes on as it was. Counts, and sums
        of 0 and 1, are exact; others to 1e-15 of the largest that the sum has been. Shapes and errors as in update_many.

        >>> from streamcal import EqualWidth, Timed
        >>> window = Timed(EqualWidth(1), period=10, panes=10, lateness=10)
        >>> window.update_many([0.7, 0.7], [1, 1], t=[100.0, 101.0])
        >>> window.take_back_many([0.7], [1], t=100.0), window.take_back_many([0.7], [1], t=50.0), window.get("coverage")
        (1, 0, 1.0)
        """
        times = self._times(p, t)
        check_same_index(p, y, w, key)
        pieces = self._pieces(p, y, w, self._whole_keys(key, len(p) if np.ndim(p) else 0), times)
        return sum(int(_take_back_many(self._buf, *piece, self.claim.width)) for piece in list(pieces))

    def merge_key(self, source: int, into: int) -> None:
        """Add the sums of key ``source`` to those of key ``into``, pane by pane; ``source`` is empty then.

        ValueError unless both are in 0..keys - 1 and not the same.

        >>> from streamcal import EqualWidth, Timed
        >>> window = Timed(EqualWidth(1), period=10, panes=10, keys=3)
        >>> window.update_many([0.7, 0.7], [1, 1], key=[1, 2], t=100.0)
        >>> window.merge_key(1, into=2)
        >>> window.snapshot().count.tolist()
        [[0.0], [0.0], [2.0]]
        """
        gone, to = self._places(source, "source"), self._places(into, "into")
        if gone == to:
            raise ValueError(f"source and into must be two keys, got {source!r} and {into!r}")
        cells = self._pane_cells()
        cells[:, to] += cells[:, gone]
        cells[:, gone] = 0.0

    def _add(self, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
        timed_many(self._buf, p, y, w, key, t)

    @property
    def watermark(self) -> float:
        """The largest time seen, -inf before the first event."""
        return float(self._buf[STATE])

    def _pane_cells(self) -> Array:
        size = self._all_keys * self._block
        start = int(self._buf[CELLS])
        shape = (self.panes, self._all_keys, self._rows + 1, 8)
        return self._buf[start : start + self.panes * size].reshape(shape)

    def _is_sound(self, buffer: Array) -> bool:
        newest = buffer[STATE] / buffer[PARAMETER]
        return (newest == -math.inf or abs(newest) < LAST_PANE) and super()._is_sound(buffer)

    def _indexes(self) -> Ints:
        """The absolute number of the time slice that each pane holds."""
        newest = math.floor(self.watermark / self._buf[PARAMETER]) if self.watermark > -math.inf else 0
        return newest - (newest - np.arange(self.panes)) % self.panes

    @property
    def cells(self) -> Array:
        """The sums as of the largest time seen, shape (keys, rows + 1, 8)."""
        return np.asarray(self._pane_cells().sum(0))

    def snapshot(self, t: Any = None) -> Snapshot:
        """A frozen copy of the sums as of time ``t``; None: the largest time seen (an earlier ``t`` means that, too)."""
        at = self.watermark if t is None else float(seconds(t))
        if math.isnan(at):
            raise ValueError(f"t must be a time, got {t!r}")
        if at <= self.watermark or self.watermark == -math.inf:
            return self._frozen(self.cells)
        alive = self._indexes() > math.floor(at / self._buf[PARAMETER]) - self.panes if at < math.inf else []
        return self._frozen(self._pane_cells()[alive].sum(0) if any(alive) else np.zeros_like(self.cells))

    def snapshot_of(self, key: int, t: Any = None) -> Snapshot:
        """The same of one key only, which is quicker where there are many: its keys are those of the claim.

        >>> from streamcal import EqualWidth, Timed
        >>> window = Timed(EqualWidth(1), period=10, panes=10, keys=3)
        >>> window.update_many([0.7, 0.7], [1, 1], key=[1, 2], t=100.0)
        >>> window.snapshot_of(2).count.tolist(), window.snapshot_of(2, t=200.0).count.tolist()
        ([[1.0]], [[0.0]])
        """
        at = self.watermark if t is None else max(float(seconds(t)), self.watermark)
        panes = self._pane_cells()[:, self._places(key)]
        if at > -math.inf:
            panes = panes[self._indexes() > math.floor(at / self._buf[PARAMETER]) - self.panes if at < math.inf else []]
        return self._frozen(panes.sum(0))

    def get(self, name: str, t: Any = None) -> Number:
        """A metric by name as of time ``t``. See :meth:`Window.get`."""
        return self.snapshot(t).get(name)

    def report(self, t: Any = None) -> dict[str, Any]:
        """Everything as of time ``t``. See :meth:`Window.report`."""
        return {"window": repr(self), **self.snapshot(t).report()}

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
            merged._pane_cells()[0] += old._pane_cells()[0]
            return merged  # type: ignore[no-any-return]
        kept = merged._indexes()
        for pane, index in enumerate(old._indexes()):
            merged._pane_cells()[pane] += old._pane_cells()[pane] * (index in kept)
        return merged  # type: ignore[no-any-return]
