"""The bounds on values, once for the whole house: which p, y, w, v, t and text an event may have, each with its reason.

A value is checked once, at the door where it comes in: one number in a kernel (:func:`unit`), one number or a whole
column in Python (:func:`is_allowed`, :func:`first_refused`). A room that refuses a value names it in the words of
``WORDS``, so that the same mistake reads the same everywhere. A bound that belongs to one idea alone (the largest
``arl``, the longest line of a file) stays in the file of that idea.
"""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from streamcal._jit import inlined
from streamcal.arrays import Array

Flags: TypeAlias = npt.NDArray[np.bool_]

TOLERANCE = 1e-6  # a sum of float32 softmax outputs may pass 1 by this much: clipped, and counted as clipped
SUM_TOLERANCE = 1e-3  # a row of class probabilities sums to 1 up to this: those that were printed with four digits do
HEAVIEST = 1e100  # weight: its square must stay finite in a sum
LARGEST = 1e100  # size of a forecast or outcome that is no probability: its square must stay finite in a sum
LATEST = 1e11  # seconds: the year 5138; a larger time counts milliseconds or less
LONGEST = 1_000  # characters of an id, a model, a version, a segment: a longer one is a mistake that fills the store

# From, to: both ends are allowed. nan lies between no two numbers, so it is refused everywhere.
BOUNDS: dict[str, tuple[float, float]] = {
    "p": (-TOLERANCE, 1.0 + TOLERANCE),
    "y": (0.0, 1.0),
    "w": (0.0, HEAVIEST),
    "v": (-LARGEST, LARGEST),
    "t": (-LATEST, LATEST),
}
WORDS = {
    "p": "a probability in [0, 1]",
    "y": "an outcome in [0, 1]",
    "w": f"a weight in [0, {HEAVIEST:g}]".replace("+", ""),
    "v": f"a number in [-{LARGEST:g}, {LARGEST:g}]".replace("+", ""),
    "t": "a time in seconds since 1970",
}


SWAPPED = "the predictions hold only 0 and 1 and the outcomes do not: they look swapped; the order is (p, y), predictions first"


class CalibrationWarning(UserWarning):
    """The number is right but may not mean what was hoped for; the message names the alternative."""


def warn(message: str) -> None:
    """A CalibrationWarning at the line that called this package, however many of our own calls lie between."""
    depth, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "streamcal":
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, CalibrationWarning, stacklevel=depth)


def warn_if_swapped(p: Array, y: Array) -> None:
    """Warn where all of n predictions are 0 or 1 and some outcome is not: (y, p) in place of (p, y)."""
    if (
        p.size and _certain(p[:1]) and _certain(p) and not _certain(y)
    ):  # of most columns the first prediction settles it
        warn(SWAPPED)


def _certain(values: Array) -> bool:
    return bool(((values == 0.0) | (values == 1.0)).all())


@inlined
def unit(p: float) -> float:
    """A probability in [0, 1], clipped where it is up to TOLERANCE outside; nan where it is further out."""
    if 0.0 <= p <= 1.0:
        return p
    if -TOLERANCE <= p <= 1.0 + TOLERANCE:
        return 0.0 if p < 0.0 else 1.0
    return math.nan


def is_allowed(what: str, value: Any) -> Any:
    """Whether a number, or each of an array, may be a p, y, w, v or t: a bool, or an array of them in the same shape.

    >>> is_allowed("w", 2.0), is_allowed("t", 1.7e12), is_allowed("p", np.array([0.5, 1.0000001, 1.1, np.nan])).tolist()
    (True, False, [True, True, False, False])
    """
    low, high = BOUNDS[what]
    return (low <= value) & (value <= high)


def is_distribution(rows: Array) -> Flags:
    """Whether each row of an (n, classes) array holds probabilities that sum to 1, up to ``SUM_TOLERANCE``. Shape (n,).

    >>> is_distribution(np.array([[0.5, 0.5], [0.9, 0.9], [1.5, -0.5], [np.nan, 1.0]])).tolist()
    [True, False, False, False]
    """
    found: Flags = (np.abs(rows.sum(-1) - 1.0) <= SUM_TOLERANCE) & is_allowed("p", rows).all(-1)
    return found


def first_refused(what: str, values: Array) -> int:
    """Index of the first of n values that may not be a p, y, w, v or t; -1 if all may.

    >>> first_refused("y", np.array([0.0, 1.0, 2.0])), first_refused("y", np.array([0.0]))
    (2, -1)
    """
    wrong: Flags = ~is_allowed(what, values)
    return int(wrong.argmax()) if wrong.any() else -1


def is_text(value: Any, longest: int = LONGEST) -> bool:
    """Whether it is a text of at most ``longest`` characters that can be written down as UTF-8 (half a surrogate cannot).

    >>> is_text("é"), is_text("\\ud800"), is_text(7), is_text("a" * 1001)
    (True, False, False, False)
    """
    if not isinstance(value, str) or len(value) > longest:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
