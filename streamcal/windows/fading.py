"""Fading: an event of age a weighs 2^(-a / half_life)."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, Ints
from streamcal.binning import Binning
from streamcal.state import restorable
from streamcal.tally import (
    AUX,
    COUNT,
    PARAMETER,
    WW,
    W,
    add,
    block_of,
    cells_of,
    is_unwanted,
    key_at,
    key_of,
    weight_at,
)
from streamcal.windows.window import Options, Window

# New events grow instead of old ones shrinking: one multiplication per event, not one per sum. After so many half-lives the sums
# are brought back, before the squared weights, 2^256, come near the end of float64.
HALVINGS = 128.0
FORGOTTEN = 2.0**-60  # a bin below this part of its key's weight holds nothing that could be told from rounding: empty
LONGEST_HALF_LIFE = 1e15  # events: beyond it one event no longer changes the growth in float64


@brief
def fading_one(buf: Array, p: float, y: float, w: float, key: float) -> int:
    """Add one event with a weight of 2^(events seen / half-life)."""
    k = key_of(buf, key)
    return k if k < 0 else add_fading(buf, p, y, w, k)


@inlined
def add_fading(buf: Array, p: float, y: float, w: float, key: int) -> int:
    """Add one event to a key of a fading window; 1 if it was refused."""
    if is_unwanted(buf, p, y, w):
        return 1
    base, age = cells_of(buf, key), int(buf[AUX]) + key
    buf[age] += 1.0
    if buf[age] > HALVINGS * buf[PARAMETER]:
        _rescale(buf, base, 2.0 ** (-(buf[age] - 1.0) / buf[PARAMETER]))
        buf[age] = 1.0  # the new event has weight 1 again
    return add(buf, base, key, p, y, w, 2.0 ** ((buf[age] - 1.0) / buf[PARAMETER]))


@kernel
def _rescale(buf: Array, base: int, factor: float) -> None:
    """Bring a key's sums down by ``factor``; WW holds squares of weights. The ledger fades too, but has no squares."""
    block = block_of(buf)
    for i in range(block):
        square = i % 8 == WW and i < block - 8
        buf[base + i] *= factor * factor if square else factor


@kernel
def fading_many(buf: Array, p: Array, y: Array, w: Array, key: Ints) -> None:
    """Add many events in order."""
    for i in range(p.shape[0]):
        add_fading(buf, p[i], y[i], weight_at(w, i), key_at(key, i))


@restorable
class Fading(Window):
    """Every event, but one that lies a events of its key back counts 2^(-a / half_life). Counts are faded sums too.

    ``half_life``: a number of events in [0.01, 1e15); the other arguments as in :class:`Window`. Exact to about 1e-13
    relative; merging two would need their events' order, so only snapshots add up.

    >>> from streamcal import EqualWidth, Fading
    >>> window = Fading(EqualWidth(1), half_life=1)
    >>> window.update_many([0.5, 0.5, 0.5], [1, 1, 0])
    >>> window.snapshot().weight.tolist()
    [[1.75]]
    """

    _kernel = fading_one
    _smallest = (2.0,)
    settings = ("half_life",)
    _counted = slice(0)  # they fade
    _own = 1  # events seen since the sums were brought back: the age

    def __init__(self, binning: Binning, half_life: float, **options: Unpack[Options]) -> None:
        allowed = isinstance(half_life, int | float) and not isinstance(half_life, bool)
        if not allowed or not 0.01 <= half_life < LONGEST_HALF_LIFE:
            raise ValueError(f"half_life must be a number of events in [0.01, 1e15), got {half_life!r}")
        self.half_life = half_life
        super().__init__(binning, **options)

    def _add(self, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
        fading_many(self._buf, p, y, w, key)

    def _own_bounds(self, buffer: Array) -> tuple[tuple[float, float], ...]:
        return ((0, HALVINGS * self.half_life + 1),)

    @property
    def cells(self) -> Array:
        """The faded sums, as if the newest event of each key had weight 1; shape (keys, bins + 1, 8)."""
        cells = super().cells
        age = np.maximum(self._layout.own(self._buf)[:, 0] - 1.0, 0.0)
        grown = np.array([2.0**a for a in age / self.half_life])[:, None]  # as the kernel computed it, to the last bit
        cells /= grown[:, :, None]
        cells[:, :-1, WW] /= grown
        weight = np.maximum(cells[:, :-1, W], cells[:, :-1, COUNT])
        cells[:, :-1][weight < FORGOTTEN * weight.sum(-1, keepdims=True)] = 0.0  # too little to have been read
        return cells
