"""The one row kernel: score -> row, by the plan of a binning.

Row ``m`` holds the scores in ``(e[m], e[m + 1]]``; the first edge itself belongs to row 0. Batch functions, windows,
recalibrators and plots all call :func:`row`, so they can never disagree about an edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from streamcal._jit import float_bits, inlined, kernel
from streamcal.arrays import Array, Ints

# A plan is a float64 array that begins with these eight numbers; a window's buffer begins with its plan.
RULE, N_ROWS, SCALE, SHIFT, STEP, OFFSET, DENOMINATOR, EDGES = range(8)
UNIFORM, SEARCH, DYADIC, SIGNED = range(4)
OUTSIDE = -1


@inlined
def uniform_row(c: float, scale: float, shift: float, step: float, offset: float, den: float, last: float) -> float:
    """Row of ``c`` between the edges ``(step * j + offset) / den``: the nearest edge decides.

    ``c * scale + shift`` is off by at most an ulp, so its nearest integer names the nearest edge (half way
    between two edges either one gives the same row), and one comparison with that edge is exact.
    """
    j = np.rint(c * scale + shift)
    k = j - 1.0 if c <= (step * j + offset) / den else j  # a choice, not j - (c <= ...): that is slower vectorised
    k = k if k > 0.0 else 0.0  # also where c is nan: the caller has checked, or will not use it
    return k if k < last else last


@inlined
def dyadic_row(p: float, shift: int, base: int, half: int) -> int:
    """Row of a probability on the grid of leading mantissa bits of ``min(p, 1 - p)``, finer towards 0 and 1."""
    if p <= 0.5:
        return max(((float_bits(p + 0.0) - 1) >> shift) - base, 0)  # + 0.0 turns -0.0 into 0.0
    return 2 * half - 1 - max((float_bits(1.0 - p) >> shift) - base, 0)


@inlined
def signed_row(v: float, shift: int, base: int, half: int) -> int:
    """Row of a real number on the grid of leading mantissa bits of ``|v|``, mirrored for negative numbers."""
    if v > 0.0:
        return half + min(max(((float_bits(v) - 1) >> shift) - base, 0), half - 1)
    return half - 1 - min(max((float_bits(-v if v < 0.0 else 0.0) >> shift) - base, 0), half - 1)


@kernel
def search_row(plan: Array, c: float) -> int:
    """Row of ``c`` between arbitrary increasing edges, by bisection."""
    first = int(plan[EDGES])
    low, high = 0, int(plan[N_ROWS]) - 1
    while low < high:
        middle = (low + high) >> 1
        if c <= plan[first + middle + 1]:
            high = middle
        else:
            low = middle + 1
    return low


@inlined
def row(plan: Array, c: float) -> int:
    """The row of score ``c`` under ``plan``; OUTSIDE (-1) where no row holds it (nan, or beyond the edges)."""
    rule = int(plan[RULE])
    if rule == SIGNED:
        if not -math.inf < c < math.inf:
            return OUTSIDE
        return signed_row(c, int(plan[SCALE]), int(plan[SHIFT]), int(plan[STEP]))
    if rule == SEARCH:
        first = int(plan[EDGES])
        if not plan[first] <= c <= plan[first + int(plan[N_ROWS])]:
            return OUTSIDE
        return search_row(plan, c)
    if not 0.0 <= c <= 1.0:
        return OUTSIDE
    if rule == DYADIC:
        return dyadic_row(c, int(plan[SCALE]), int(plan[SHIFT]), int(plan[STEP]))
    return int(
        uniform_row(c, plan[SCALE], plan[SHIFT], plan[STEP], plan[OFFSET], plan[DENOMINATOR], plan[N_ROWS] - 1.0)
    )


@kernel
def rows_of(plan: Array, c: Array, out: Ints) -> None:
    """Write the row of each score into ``out``."""
    for i in range(c.shape[0]):
        out[i] = row(plan, c[i])


def plan_of(numbers: Sequence[float], edges: Array | None = None) -> Array:
    """A plan array: eight numbers, and behind them the edges where the rule needs to look them up."""
    head = np.zeros(8)
    head[: len(numbers)] = numbers
    head[EDGES] = 0 if edges is None else 8
    plan = head if edges is None else np.concatenate([head, edges])
    plan.setflags(write=False)  # a binning is frozen, its edges too
    return plan
