"""What online patching of means and of quantiles share: when a gap is evidence, what follows from it, and the history."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from streamcal._jit import inlined
from streamcal.arrays import Array, check_whole
from streamcal.claims import Claim, check_level
from streamcal.confidence import anytime_radius
from streamcal.recalibrate.windowed import FADING, Windowed, scale_of
from streamcal.rows import N_ROWS
from streamcal.tally import CELLS, WW, W
from streamcal.windows import Window
from streamcal.windows.fading import FORGOTTEN
from streamcal.windows.window import whole_between

# Behind the window's numbers, ours: the settings and counts, the patch of each row (nan: none), the ring of the last patches,
# and at the very end how many numbers are ours.
KIND, ALPHA, DOUBT, EVERY, REMEMBER, TIME, MADE, PATCHES = range(8)
# A note in the ring: what was changed when, on what evidence, and what it did.
EVENT, ROW, VALUE, SAID, EFFECTIVE, MASS, GAP, RADIUS, DECREASE, BEFORE, AFTER = range(11)
FIELDS = 11
MOST_REMEMBERED = 100_000
STAYS, RECOVERED, WRONG = range(3)


@inlined
def ours(buf: Array) -> int:
    """Where our numbers begin."""
    return int(buf.shape[0]) - int(buf[-1])


@inlined
def rows_of(buf: Array) -> tuple[Array, Array]:
    """(sums of the rows, their patches), views of shape (rows, 8) and (rows,)."""
    n, sums, patches = int(buf[N_ROWS]), int(buf[CELLS]), ours(buf) + PATCHES
    return buf[sums : sums + 8 * n].reshape((n, 8)), buf[patches : patches + n]


@inlined
def least_weight(buf: Array) -> float:
    """A row with no more weight than this is not in the window: in a fading one old events leave traces."""
    kind = buf[ours(buf) + KIND]
    return FORGOTTEN * scale_of(kind, buf) if kind == FADING else 0.0


@inlined
def is_significant(gap: float, rows: Array, r: int, doubt: float) -> bool:
    """Whether a summed gap (weight * gap) exceeds the radius at the row's effective number of events W^2 / WW."""
    weight = rows[r, W]
    return bool(abs(gap) > weight * anytime_radius(weight * weight / rows[r, WW], doubt))


@inlined
def verdict(gap: float, raw: float, rows: Array, r: int, patched: bool, too_wrong: bool, doubt: float) -> int:
    """What the summed gaps of what a row serves, and of the raw predictions in it, say about its patch.

    RECOVERED: the raw predictions are no further off than the patch, and not significantly. WRONG: what is served is
    significantly off (asked only while the whole is ``too_wrong``). A row that has just been changed STAYS: a patch is made
    only where the raw predictions are significantly off, and taken back only where they are not.
    """
    if rows[r, WW] <= 0.0:  # the squares of tiny weights are 0 in a float: nothing can be said
        return STAYS
    if patched and abs(raw) <= abs(gap) and not is_significant(raw, rows, r, doubt):
        return RECOVERED
    if too_wrong and is_significant(gap, rows, r, doubt):
        return WRONG
    return STAYS


@inlined
def write_down(buf: Array, r: int, value: float, said: float, gap: float, total: float) -> Array:
    """Begin the note of a change, over the oldest in the ring; what it did to the errors is for the caller to fill in."""
    own = ours(buf)
    rows, patches = rows_of(buf)
    first = own + PATCHES + patches.shape[0] + FIELDS * (int(buf[own + MADE]) % int(buf[own + REMEMBER]))
    note, events = buf[first : first + FIELDS], rows[r, W] * rows[r, W] / rows[r, WW]
    note[EVENT], note[ROW], note[VALUE], note[SAID] = buf[own + TIME], r, value, said
    note[EFFECTIVE], note[MASS] = events, rows[r, W] / total
    note[GAP], note[RADIUS] = gap, anytime_radius(events, buf[own + DOUBT])
    buf[own + MADE] += 1.0
    return note


class WithPatches(Windowed):
    """The settings, the patches of the rows, and the ring of the last ``remember`` changes."""

    alpha: float
    significance: float
    every: int
    remember: int
    span: ClassVar[tuple[float, float]]  # what a patch can be

    def _start(self, window: Window, claim: Claim, significance: float, every: int, remember: int) -> None:
        """Check what both are given, and begin without a patch: the last line of a constructor."""
        self.significance = check_level(significance, "significance")
        self.every = check_whole("every", every, 1)
        self.remember = check_whole("remember", remember, 1, MOST_REMEMBERED)
        self._adopt(window, lambda: self._nothing_yet(window.binning.n_rows)[KIND + 1 :], claim)

    def _nothing_yet(self, rows: int) -> Array:
        own = np.zeros(PATCHES + rows + FIELDS * self.remember + 1)
        own[ALPHA], own[DOUBT] = self.alpha, 2.0 * math.log(rows / self.significance)
        own[EVERY], own[REMEMBER], own[-1] = self.every, self.remember, own.size
        own[PATCHES : PATCHES + rows] = math.nan
        return own

    @property
    def patches_made(self) -> int:
        """How many changes there have been since the start; :meth:`history` holds the last of them."""
        return int(self._own[MADE])

    @property
    def patches(self) -> dict[Any, float]:
        """The levels that are patched now, and what they serve."""
        raise AssertionError("each says what its rows are")  # pragma: no cover

    def history(self) -> list[Any]:
        """The last ``remember`` changes, oldest first."""
        raise AssertionError("each says what its notes mean")  # pragma: no cover

    def details(self) -> dict[str, Any]:
        """The levels that are patched now, how many changes there have been, and the last twenty in words."""
        return {
            **super().details(),
            "patches": self.patches,
            "patches_made": self.patches_made,
            "history": [str(h) for h in self.history()[-20:]],
        }

    def _patch_values(self) -> list[float]:
        """The patch of each row, nan where there is none."""
        values: list[float] = self._own[PATCHES : PATCHES + self.window.binning.n_rows].tolist()
        return values

    def _notes(self, own: Array) -> Array:
        """What the ring holds, oldest first, shape (notes, FIELDS)."""
        ring = own[PATCHES + self.window.binning.n_rows : -1].reshape(self.remember, FIELDS)
        made = int(own[MADE])
        return np.roll(ring, -(made % self.remember), axis=0) if made > self.remember else ring[:made]

    def _is_sound(self, own: Array) -> bool:
        fixed, rows = [KIND, ALPHA, DOUBT, EVERY, REMEMBER, own.size - 1], self.window.binning.n_rows
        if not np.array_equal(own[fixed], self._own[fixed]) or not whole_between(own[[TIME, MADE]], 0, 2**53):
            return False
        notes, (low, high) = self._notes(own), self.span
        values = np.concatenate([own[PATCHES : PATCHES + rows], notes[:, VALUE]])
        return (
            bool((np.isnan(values) | ((values >= low) & (values <= high))).all())
            and whole_between(notes[:, EVENT], 1, own[TIME])
            and whole_between(notes[:, ROW], 0, rows - 1)
            and bool(np.isfinite(np.delete(notes, VALUE, axis=1)).all())
        )
