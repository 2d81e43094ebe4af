"""One event into a window of any kind from inside another kernel, and what a row of it holds then."""

from __future__ import annotations

from streamcal._jit import inlined
from streamcal.arrays import Array
from streamcal.tally import AUX, CELLS, PARAMETER, add
from streamcal.windows.cumulative import Cumulative
from streamcal.windows.fading import FORGOTTEN, Fading, add_fading
from streamcal.windows.sliding import Sliding, slide
from streamcal.windows.window import Window

CUMULATIVE, SLIDING, FADING = range(3)
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
    """Whether a row of this weight holds nothing that can be read: in a fading window traces of very old events do not."""
    return weight <= (FORGOTTEN * scale if kind == FADING else 0.0)
