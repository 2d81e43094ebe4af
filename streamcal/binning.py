"""Score -> bin: the one kernel that says which bin of the sums a score belongs to, and the six binnings that plan it.

Bin ``m`` holds the scores in ``(e[m], e[m + 1]]``; the first edge itself belongs to bin 0. Batch functions, windows,
recalibrators and plots all call :func:`bin_of`, so they can never disagree about an edge.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from streamcal._jit import float_bits, inlined, kernel
from streamcal.arrays import Array, Ints, check_whole, numbers
from streamcal.state import Declared, reserve, restorable

# A plan is a float64 array that begins with these eight numbers; a window's buffer begins with its plan. EDGES: where the
# edges begin, 0 if the rule computes them.
RULE, N_BINS, SCALE, SHIFT, STEP, OFFSET, DENOMINATOR, EDGES = range(8)
UNIFORM, SEARCH, DYADIC, SIGNED = range(4)  # the rules
OUTSIDE = -1  # the bin of a score that no bin holds


@inlined
def uniform_bin(c: float, scale: float, shift: float, step: float, offset: float, den: float, last: float) -> float:
    """Bin of ``c`` between the edges ``(step * j + offset) / den``: the nearest edge decides.

    ``c * scale + shift`` is off by at most an ulp, so its nearest integer names the nearest edge (half way
    between two edges either one gives the same bin), and one comparison with that edge is exact.
    """
    j = np.rint(c * scale + shift)
    k = j - 1.0 if c <= (step * j + offset) / den else j  # a choice, not j - (c <= ...): that is slower vectorised
    k = k if k > 0.0 else 0.0  # also where c is nan: the caller has checked, or will not use it
    return k if k < last else last


@inlined
def dyadic_bin(p: float, shift: int, base: int, half: int) -> int:
    """Bin of a probability on the grid of leading mantissa bits of ``min(p, 1 - p)``, finer towards 0 and 1."""
    if p <= 0.5:
        return max(((float_bits(p + 0.0) - 1) >> shift) - base, 0)  # + 0.0 turns -0.0 into 0.0
    return 2 * half - 1 - max((float_bits(1.0 - p) >> shift) - base, 0)


@inlined
def signed_bin(v: float, shift: int, base: int, half: int) -> int:
    """Bin of a real number on the grid of leading mantissa bits of ``|v|``, mirrored for negative numbers."""
    if v > 0.0:
        return half + min(max(((float_bits(v) - 1) >> shift) - base, 0), half - 1)
    return half - 1 - min(max((float_bits(-v if v < 0.0 else 0.0) >> shift) - base, 0), half - 1)


@kernel
def search_bin(plan: Array, c: float) -> int:
    """Bin of ``c`` between arbitrary increasing edges, by bisection."""
    first = int(plan[EDGES])
    low, high = 0, int(plan[N_BINS]) - 1
    while low < high:
        middle = (low + high) >> 1
        if c <= plan[first + middle + 1]:
            high = middle
        else:
            low = middle + 1
    return low


@inlined
def bin_of(plan: Array, c: float) -> int:
    """The bin of score ``c`` under ``plan``; OUTSIDE (-1) where no bin holds it (nan, or beyond the edges)."""
    rule = int(plan[RULE])
    if rule == SIGNED:
        if not -math.inf < c < math.inf:
            return OUTSIDE
        return signed_bin(c, int(plan[SCALE]), int(plan[SHIFT]), int(plan[STEP]))
    if rule == SEARCH:
        first = int(plan[EDGES])
        if not plan[first] <= c <= plan[first + int(plan[N_BINS])]:
            return OUTSIDE
        return search_bin(plan, c)
    if not 0.0 <= c <= 1.0:
        return OUTSIDE
    if rule == DYADIC:
        return dyadic_bin(c, int(plan[SCALE]), int(plan[SHIFT]), int(plan[STEP]))
    return int(
        uniform_bin(c, plan[SCALE], plan[SHIFT], plan[STEP], plan[OFFSET], plan[DENOMINATOR], plan[N_BINS] - 1.0)
    )


@kernel
def bins_of(plan: Array, c: Array, out: Ints) -> None:
    """Write the bin of each score into ``out``."""
    for i in range(c.shape[0]):
        out[i] = bin_of(plan, c[i])


def plan_of(numbers: Sequence[float], edges: Array | None = None) -> Array:
    """A plan array: eight numbers, and behind them the edges where the rule needs to look them up."""
    head = np.zeros(8)
    head[: len(numbers)] = numbers
    head[EDGES] = 0 if edges is None else 8
    plan = head if edges is None else np.concatenate([head, edges])
    plan.setflags(write=False)  # a binning is frozen, its edges too
    return plan


def edges_of(plan: Array) -> Array:
    """The edges of the bins that :func:`bin_of` finds by this plan, shape (bins + 1,)."""
    if plan[RULE] == SEARCH:
        return plan[int(plan[EDGES]) :]
    reserve(int(plan[N_BINS]) + 1)
    if plan[RULE] == UNIFORM:
        j = np.arange(plan[N_BINS] + 1.0)
        uniform: Array = np.clip((plan[STEP] * j + plan[OFFSET]) / plan[DENOMINATOR], 0.0, 1.0)
        return uniform
    shift, base, half = int(plan[SCALE]), int(plan[SHIFT]), int(plan[STEP])
    up = ((np.arange(1, half + 1, dtype=np.int64) + base) << shift).view(np.float64)
    if plan[RULE] == DYADIC:
        return np.concatenate([[0.0], up, 1.0 - up[-2::-1], [1.0]])
    return np.concatenate([[-np.inf], -up[-2::-1], [0.0], up[:-1], [np.inf]])


class Binning(Declared, ABC):
    """What all binnings share. ``domain`` is "unit" (scores in [0, 1]), "real", or "both" (a fine grid for each)."""

    domain: ClassVar[str] = "unit"

    @abstractmethod
    def plan(self, domain: str = "unit") -> Array:
        """The numbers that :func:`bin_of` needs, for scores of this domain."""

    def fine_edges(self, domain: str = "unit") -> Array:
        """Edges of the bins that a window keeps, shape (bins + 1,)."""
        return edges_of(self.plan(domain))

    def groups(self, mass: Array, edges: Array) -> Ints | None:
        """Which of ``n_bins`` bins each fine bin belongs to at a read; None where bins are read as they are."""
        return None

    @property
    def edges(self) -> Array:
        """Edges e of the bins (e[m], e[m + 1]], shape (bins + 1,)."""
        return self.fine_edges()

    @property
    def fine_bins(self) -> int:
        """How many bins a window with this binning keeps."""
        return int(self.plan()[N_BINS])

    def bins(self, c: npt.ArrayLike, domain: str = "unit") -> Ints:
        """Bin of each score, -1 where no bin holds it. Shape of ``c`` kept.

        >>> EqualWidth(10).bins([0.1, 0.6, 1.0, 0.0, float("nan")]).tolist()
        [0, 5, 9, 0, -1]
        """
        scores = numbers("scores", c)
        out = np.empty(scores.size, np.int64)
        bins_of(self.plan(domain).copy(), scores.reshape(-1).copy(), out)
        return out.reshape(scores.shape)


@restorable
@dataclass(frozen=True)
class EqualWidth(Binning):
    """``n_bins`` bins of equal width on [0, 1]; the edges are the float quotients m / n_bins.

    >>> EqualWidth(4).edges.tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """

    n_bins: int = 15

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_bins", check_whole("n_bins", self.n_bins, 1))

    def plan(self, domain: str = "unit") -> Array:
        """See :meth:`Binning.plan`."""
        return plan_of([UNIFORM, self.n_bins, self.n_bins, 0.0, 1.0, 0.0, self.n_bins])


@restorable
@dataclass(frozen=True)
class Grid(Binning):
    """The m + 1 levels 0, 1/m, ..., 1: a score belongs to the nearest level (half way: to the lower one).

    >>> Grid(4).bins([0.0, 0.1, 0.125, 0.13, 1.0]).tolist()
    [0, 0, 0, 1, 4]
    """

    m: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", check_whole("m", self.m, 1))

    @property
    def levels(self) -> Array:
        """The levels i / m, shape (m + 1,)."""
        return np.arange(self.m + 1) / self.m

    def plan(self, domain: str = "unit") -> Array:
        """See :meth:`Binning.plan`."""
        return plan_of([UNIFORM, self.m + 1, self.m, 0.5, 2.0, -1.0, 2.0 * self.m])


def _strictly_increasing(name: str, values: npt.ArrayLike, least: int) -> Array:
    numbers = np.asarray(values, dtype=np.float64).reshape(-1)
    if numbers.size < least:
        raise ValueError(f"{name} must hold at least {least} numbers, got {numbers.size}")
    wrong = np.flatnonzero(~(numbers[1:] > numbers[:-1]))
    if wrong.size or np.isnan(numbers[0]):
        i = int(wrong[0]) if wrong.size else 0
        raise ValueError(f"{name} must be strictly increasing, got {numbers[i : i + 2].tolist()} at index {i}")
    return numbers


def midpoint(low: Array, high: Array) -> Array:
    """An edge between neighbours a < b: their midpoint, but always a <= edge < b, even for adjacent floats."""
    middle = low / 2.0 + high / 2.0
    return np.where((middle >= high) | (middle < low), low, middle)


@dataclass(frozen=True, repr=False)
class _Listed(Binning):
    """Bins whose edges follow from a list of numbers, and are looked up."""

    _plan: Array = field(init=False, compare=False)
    domain: ClassVar[str] = "real"

    def __repr__(self) -> str:
        (numbers,) = (value for name, value in vars(self).items() if name != "_plan")
        return f"{type(self).__name__}({list(numbers)})"

    def plan(self, domain: str = "unit") -> Array:
        """See :meth:`Binning.plan`."""
        return self._plan

    def _keep(self, name: str, numbers: Array, edges: Array) -> None:
        object.__setattr__(self, name, tuple(numbers.tolist()))
        object.__setattr__(self, "_plan", plan_of([SEARCH, edges.size - 1], edges))


@restorable
@dataclass(frozen=True, repr=False)
class Edges(_Listed):
    """Bins between given increasing edges; a score beyond the first or last edge has no bin (use -inf, inf to be open).

    >>> Edges([0.0, 0.5, 1.0]).bins([0.5, 0.51, 1.5]).tolist()
    [0, 1, -1]
    """

    given: tuple[float, ...]

    def __init__(self, edges: npt.ArrayLike) -> None:
        numbers = _strictly_increasing("edges", edges, 2)
        self._keep("given", numbers, numbers)


@restorable
@dataclass(frozen=True, repr=False)
class Levels(_Listed):
    """Declared distinct values, one bin each; any other score belongs to the nearest value (half way: the lower one).

    >>> Levels([0.1, 0.5, 0.9]).bins([0.1, 0.3, 0.31, 0.9]).tolist()
    [0, 0, 1, 2]
    """

    values: tuple[float, ...]

    def __init__(self, values: npt.ArrayLike) -> None:
        numbers = _strictly_increasing("values", np.unique(np.asarray(values, dtype=np.float64)), 1)
        if not np.isfinite(numbers).all():
            raise ValueError(f"values must be finite, got {numbers[~np.isfinite(numbers)][0]}")
        self._keep("values", numbers, np.concatenate([[-np.inf], midpoint(numbers[:-1], numbers[1:]), [np.inf]]))

    @property
    def levels(self) -> Array:
        """The values, sorted, shape (bins,)."""
        return np.array(self.values)


# The fine grid starts at 2^-32 of a probability and spans 2^-20..2^30 of a real number; smaller ones share a bin.
_UNIT_EXPONENTS, _REAL_EXPONENTS = (-32, -1), (-20, 30)


@dataclass(frozen=True)
class _Fine(Binning):
    """A fine grid, relative in both tails, that sums exactly and is merged into ``n_bins`` bins at a read."""

    n_bins: int = 15
    bits: int | None = None
    domain: ClassVar[str] = "both"

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_bins", check_whole("n_bins", self.n_bins, 1))
        if self.bits is not None:
            object.__setattr__(self, "bits", check_whole("bits", self.bits, 1, 16))

    def _enough_bits(self) -> int:
        """As many leading mantissa bits of the fine grid as the resolution of the merged bins asks for."""
        return 5  # edges within 3 % of the ideal ones, relative to min(p, 1 - p)

    def plan(self, domain: str = "unit") -> Array:
        """See :meth:`Binning.plan`."""
        if domain == "real" and isinstance(self, LogOdds):
            raise ValueError("LogOdds bins probabilities; for quantile forecasts use UniformMass, Edges or Levels")
        rule, (low, high) = (DYADIC, _UNIT_EXPONENTS) if domain == "unit" else (SIGNED, _REAL_EXPONENTS)
        bits = self._enough_bits() if self.bits is None else self.bits
        half = (high - low) << bits
        return plan_of([rule, 2 * half, 52 - bits, (low + 1023) << bits, half])


@restorable
class UniformMass(_Fine):
    r"""``n_bins`` bins of equal mass.

    Batch functions learn the edges from the sample (:func:`mass_edges`). A window keeps ``62 * 2^bits`` fine bins
    (3,968 for the default 15 bins: 254 kB a key) and merges them at a read, each bin within 10 % of 1 / n_bins for
    smooth scores that are not narrower than a few fine bins (one is 2^-bits wide, relative to min(p, 1 - p)).
    A value is never split over two bins, so ties can leave fewer bins than asked for. ``bits=None`` takes
    ``ceil(log2(4 n_bins))``.
    """

    def _enough_bits(self) -> int:
        return math.ceil(math.log2(4 * self.n_bins))

    def groups(self, mass: Array, edges: Array) -> Ints:
        """A fine bin goes where the middle of its mass lies."""
        return equal_mass_groups(mass, self.n_bins)


@restorable
class LogOdds(_Fine):
    r"""``n_bins`` bins of equal width in log-odds, between the lowest and the highest occupied bin of a fine grid.

    Made for rare events, where equal widths in p put nearly all traffic into one bin. ``bits=None`` takes 5:
    1,984 fine bins (124 kB a key), edges within 3 % of min(p, 1 - p) of the ideal ones.
    """

    def groups(self, mass: Array, edges: Array) -> Ints:
        """A fine bin goes where the log-odds of its middle lie."""
        middle = (edges[..., :-1] + edges[..., 1:]) / 2.0
        odds = np.log(middle / (1.0 - middle))
        occupied = mass > 0
        low = np.where(occupied, odds, np.inf).min(-1, keepdims=True)
        high = np.where(occupied, odds, -np.inf).max(-1, keepdims=True)
        width = np.where(high > low, (high - low) / self.n_bins, 1.0)
        low = np.where(np.isfinite(low), low, 0.0)
        place = np.floor((odds - low) / width)
        return np.clip(place, 0, self.n_bins - 1).astype(np.int64)


def equal_mass_groups(mass: Array, n: int) -> Ints:
    """For each key, which of ``n`` bins of nearly equal mass each fine bin joins. Shape (keys, fine bins)."""
    total = mass.sum(-1, keepdims=True)
    middle = np.cumsum(mass, -1) - mass / 2.0
    share = middle / np.where(total > 0, total, 1.0)
    return np.clip(np.floor(share * n), 0, n - 1).astype(np.int64)


def mass_edges(p: Array, n_bins: int, w: Array | None = None, ends: tuple[float, float] = (0.0, 1.0)) -> Array:
    """Edges of ``n_bins`` bins whose masses are as equal as they can be without splitting a tied value.

    Chunks as ``numpy.array_split`` makes them (the first n mod B one larger), each inner edge the midpoint of the two
    scores it separates. A whole-numbered weight counts as that many copies.

    >>> mass_edges(np.array([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]), 3).round(9).tolist()
    [0.0, 0.55, 0.75, 1.0]
    """
    if w is None:
        values, reached = np.sort(p), np.arange(1.0, p.size + 1.0)
    else:
        order = np.argsort(p, kind="stable")
        order = order[w[order] > 0]
        values, reached = p[order], np.cumsum(w[order])
    if not values.size:
        return np.array(ends)
    total, i = reached[-1], np.arange(1, n_bins)
    whole = w is None or bool((w == np.floor(w)).all())
    cuts = i * (total // n_bins) + np.minimum(i, total % n_bins) if whole else i * (total / n_bins)
    cuts = cuts[(cuts > 0) & (cuts < total)]
    left = values[np.searchsorted(reached, cuts, "left")]
    right = values[np.minimum(np.searchsorted(reached, cuts, "right"), values.size - 1)]
    inner = np.unique(np.where(left < right, midpoint(left, right), left))
    # an atom at the lower end has a bin of its own: that bin then begins just below it
    low = ends[0] if not inner.size or inner[0] > ends[0] else np.nextafter(ends[0], -np.inf)
    return np.concatenate([[low], inner[inner < ends[1]], [ends[1]]])


# Binnings by the names that the command, the configuration of a monitor and River's metrics give them.
BINNINGS: dict[str, type[EqualWidth | UniformMass | LogOdds]] = {
    "equal-width": EqualWidth,
    "uniform-mass": UniformMass,
    "log-odds": LogOdds,
}
