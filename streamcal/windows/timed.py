"""Timed: the events of the last ``period`` seconds, in panes."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import numpy as np

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, Ints, check_whole, numbers, one_number
from streamcal.binning import Binning
from streamcal.claims import Claim
from streamcal.rows import N_ROWS, OUTSIDE
from streamcal.snapshot import Number, Snapshot
from streamcal.state import restorable
from streamcal.tally import (
    BAD_KEY,
    CELLS,
    KEYS,
    LATE,
    NOT_SCALAR,
    PARAMETER,
    REFUSED,
    SECOND,
    STATE,
    STRICT,
    THIRD,
    VECTOR,
    add,
    admit,
    whole_key,
)
from streamcal.windows.window import Window

# In the header: PARAMETER pane length, SECOND panes, THIRD lateness, STATE the largest time seen (-inf before the first)
LAST_PANE = 2.0**52  # panes are counted in float64; a time beyond is refused


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


def seconds(t: Any) -> Any:
    """Times as seconds since 1970 UTC: numbers as they are, aware datetimes, datetime64 (UTC). Naive datetimes raise."""
    if isinstance(t, datetime):
        if t.tzinfo is None:
            raise ValueError(f"t must be aware of its time zone (or a number of seconds), got naive {t!r}")
        return t.timestamp()
    if t is None or (np.ndim(t) == 0 and not isinstance(t, np.datetime64 | np.ndarray)):
        return t
    hidden = np.ma.getmaskarray(t) if isinstance(t, np.ma.MaskedArray) else None
    times = np.asarray(t)
    if times.dtype.kind == "M":
        stamps = times.astype("datetime64[us]")
        times = np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64) / 1e6)
    elif times.dtype.kind == "O":
        times = np.array([math.nan if v is None else one_number(seconds(v)) for v in times.tolist()])
    if hidden is not None:
        times = np.where(hidden, np.nan, times)
    return float(times) if times.ndim == 0 else times


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
        """Add many events of times ``t`` (n,) in order of arrival. See :meth:`Window.update_many`."""
        if t is None:
            raise ValueError("Timed needs the times of the events: t=")
        times = numbers("t", seconds(t))
        wrong = np.flatnonzero(~(np.abs(times / self._buf[PARAMETER]) < LAST_PANE))
        if self.strict and wrong.size:
            raise ValueError(f"t must hold finite times, got {times.reshape(-1)[wrong[0]]} at index {wrong[0]}")
        self._take(p, y, w, key, times)

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
