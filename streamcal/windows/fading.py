"""Fading: an event of age a weighs 2^(-a / half_life)."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, Ints
from streamcal.binning import Binning
from streamcal.claims import Claim
from streamcal.rows import N_ROWS, OUTSIDE
from streamcal.state import restorable
from streamcal.tally import (
    AUX,
    BAD_KEY,
    CELLS,
    COUNT,
    NOT_SCALAR,
    PARAMETER,
    STRICT,
    VECTOR,
    WW,
    W,
    add,
    admit,
    whole_key,
)
from streamcal.windows.window import Window, whole_between

# New events grow instead of old ones shrinking; at 2^128 the sums are brought back (squared weights stay finite).
HALVINGS = 128.0
FORGOTTEN = 2.0**-60  # a row below this part of its key's weight is read as empty


@brief
def fading_one(buf: Array, p: float, y: float, w: float, key: float) -> int:
    """Add one event with a weight of 2^(events seen / half-life)."""
    if buf[VECTOR] != 0.0:
        return NOT_SCALAR
    if not whole_key(buf, key):
        return BAD_KEY
    return add_fading(buf, p, y, w, int(key))


@inlined
def add_fading(buf: Array, p: float, y: float, w: float, key: int) -> int:
    """Add one event to a key of a fading window; 1 if it was refused."""
    if buf[STRICT] != 0.0 and admit(buf, p, y, w)[0] == OUTSIDE:
        return 1
    block = 8 * (int(buf[N_ROWS]) + 1)
    base, age = int(buf[CELLS]) + key * block, int(buf[AUX]) + key
    buf[age] += 1.0
    if buf[age] > HALVINGS * buf[PARAMETER]:
        _rescale(buf, base, 2.0 ** (-(buf[age] - 1.0) / buf[PARAMETER]))
        buf[age] = 1.0
    return add(buf, base, key, p, y, w, 2.0 ** ((buf[age] - 1.0) / buf[PARAMETER]))


@kernel
def _rescale(buf: Array, base: int, factor: float) -> None:
    """Bring a key's sums down by ``factor``; WW holds squares of weights. The ledger fades too, but has no squares."""
    n_rows = int(buf[N_ROWS])
    for i in range(8 * (n_rows + 1)):
        square = i % 8 == WW and i < 8 * n_rows
        buf[base + i] *= factor * factor if square else factor


@kernel
def fading_many(buf: Array, p: Array, y: Array, w: Array, key: Ints) -> None:
    """Add many events in order."""
    for i in range(p.shape[0]):
        add_fading(buf, p[i], y[i], w[i] if w.shape[0] else 1.0, key[i] if key.shape[0] else 0)


@restorable
class Fading(Window):
    """Every event, but one that lies a events of its key back counts 2^(-a / half_life). Counts are faded sums too.

    Exact to about 1e-13 relative; merging two would need their events' order, so only snapshots add up.

    >>> from streamcal import EqualWidth, Fading
    >>> window = Fading(EqualWidth(1), half_life=1)
    >>> window.update_many([0.5, 0.5, 0.5], [1, 1, 0])
    >>> window.snapshot().weight.tolist()
    [[1.75]]
    """

    _kernel = fading_one
    _smallest = (2.0,)

    def __init__(
        self,
        binning: Binning,
        half_life: float,
        *,
        keys: int = 1,
        claim: Claim | None = None,
        loss: str | None = None,
        strict: bool = False,
    ) -> None:
        if isinstance(half_life, bool) or not isinstance(half_life, int | float) or not 0.01 <= half_life < 1e15:
            raise ValueError(f"half_life must be a number of events in [0.01, 1e15), got {half_life!r}")
        self.half_life = half_life
        super().__init__(binning, keys=keys, claim=claim, loss=loss, strict=strict)

    def _extra(self, cells: int) -> int:
        return self._all_keys

    def _settle(self, aux: int) -> None:
        self._buf[AUX], self._buf[PARAMETER] = aux, self.half_life

    def _by_key(self) -> list[Array]:
        return [*super()._by_key(), self._of_keys(int(self._buf[AUX]), 1, 1)]

    def _arguments(self) -> dict[str, Any]:
        return {"half_life": self.half_life}

    def _add(self, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
        fading_many(self._buf, p, y, w, key)

    def _is_sound(self, buffer: Array) -> bool:
        ages = buffer[-self._all_keys :]
        return whole_between(ages, 0, HALVINGS * self.half_life + 1) and super()._is_sound(buffer)

    @property
    def cells(self) -> Array:
        """The faded sums, as if the newest event of each key had weight 1; shape (keys, rows + 1, 8)."""
        cells, start = super().cells, int(self._buf[AUX])
        age = np.maximum(self._buf[start : start + self._all_keys] - 1.0, 0.0)
        grown = np.array([2.0**a for a in age / self.half_life])[:, None]  # as the kernel computed it, to the last bit
        cells /= grown[:, :, None]
        cells[:, :-1, WW] /= grown
        weight = np.maximum(cells[:, :-1, W], cells[:, :-1, COUNT])
        cells[:, :-1][weight < FORGOTTEN * weight.sum(-1, keepdims=True)] = 0.0  # too little to have been read
        return cells
