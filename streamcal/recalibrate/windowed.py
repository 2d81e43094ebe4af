"""Online recalibrators that read their map from the sums of a window of any kind, inside their own kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamcal._jit import inlined
from streamcal.arrays import Array, one_number
from streamcal.binning import Binning
from streamcal.claims import Claim
from streamcal.recalibrate.online import Compiled, Online, part
from streamcal.state import own_copy
from streamcal.tally import AUX, CELLS, PARAMETER, add
from streamcal.windows import Cumulative, Fading, Sliding, Window
from streamcal.windows.fading import FORGOTTEN, add_fading
from streamcal.windows.sliding import slide

CUMULATIVE, SLIDING, FADING = range(3)  # a kernel knows the kind of a window by its number
NUMBERS: dict[type[Window], int] = {Cumulative: CUMULATIVE, Sliding: SLIDING, Fading: FADING}


@inlined
def take_in(kind: float, buf: Array, p: float, y: float, w: float) -> None:
    """Add one event that is allowed to key 0 of a window of this kind."""
    if kind == SLIDING:
        slide(buf, p, y, w, 0)
    elif kind == FADING:
        add_fading(buf, p, y, w, 0)
    else:
        add(buf, int(buf[CELLS]), 0, p, y, w, 1.0)


@inlined
def scale_of(kind: float, buf: Array) -> float:
    """What an event of weight 1 that has just come in weighs in the sums: they grow in a fading window."""
    if kind == FADING:
        return float(2.0 ** ((max(buf[int(buf[AUX])], 1.0) - 1.0) / buf[PARAMETER]))
    return 1.0


@inlined
def is_empty(kind: float, weight: float, scale: float) -> bool:
    """Whether a bin of this weight holds nothing that can be read: in a fading window traces of very old events do not."""
    return weight <= (FORGOTTEN * scale if kind == FADING else 0.0)


class Windowed(Compiled):
    """A recalibrator with a window: a Cumulative, Sliding or Fading of one key with fixed bins says who is in the sums.

    The buffer is the window's, and behind it the numbers of the recalibrator; the first of them is the window's kind. The
    given window is copied, with what it has seen: a recalibrator can start from a window that has run for a while.
    """

    fitted = ("compared", "_own")
    window: Window

    def _join(self, own: Array) -> None:
        """Begin with these numbers of our own behind those of :attr:`window`: the last line of a constructor."""
        # One buffer for both: a kernel is given one array, and the window reads its sums in front of it.
        sums, kind = self.window._buf, float(NUMBERS[type(self.window)])
        self._begin(np.concatenate([sums, [kind], own]))
        self.window._buf = self._buf[: sums.size]

    _own = part(lambda self: slice(self.window._buf.size, None), "The numbers behind those of the window.")

    def _is_sound(self, own: Array) -> bool:
        """Whether these are the numbers of our own: those of the settings, unless a kind keeps more."""
        return np.array_equal(own, self._own)

    def _go_on(self, fitted: dict[str, Any]) -> None:
        own = fitted["_own"].reshape(-1)
        if own.size != self._own.size or own[0] != self._own[0] or not self._is_sound(own):
            raise ValueError(f"{own.size} numbers do not fit {self!r:.200}")
        Online._go_on(self, fitted)


def checked_window(window: Window, claim: Claim) -> Window:
    """A copy of a window; ValueError unless it is a Cumulative, Sliding or Fading of one key, for this claim, with fixed bins."""
    # A kernel adds to the window itself (take_in), so that only kinds that it knows will do.
    if type(window) not in NUMBERS:
        names = ", ".join(kind.__name__ for kind in (Cumulative, Sliding, Fading))
        raise ValueError(f"window must be one of {names}, got {window!r:.80}")
    if window.keys != 1 or window.claim != claim:
        raise ValueError(f"window must have one key and the claim {claim!r}, got {window!r:.120}")
    if type(window.binning).groups is not Binning.groups:
        raise ValueError(
            f"window must have fixed bins, such as EqualWidth, Edges, Grid or Levels, got {window.binning!r}: its bins are made "
            "at a read; use Refit for it"
        )
    return own_copy(window)


def check_prior(prior: float) -> float:
    """``prior`` as a float; ValueError unless it is a number of events in [0, 1e9]."""
    value = math.nan if isinstance(prior, bool) else one_number(prior)
    if not 0.0 <= value <= 1e9:  # more events than any window holds: the map would never leave the identity
        raise ValueError(f"prior must be a number of events in [0, 1e9], got {prior!r}")
    return value
