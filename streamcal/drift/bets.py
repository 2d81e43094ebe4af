"""Which bets are laid against probabilities, quantiles and intervals, and how the stake is split between them.

Nothing here is done per event: a detector writes its bets down as constants, which its kernels read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, check_whole, one_number
from streamcal.drift.shiryaev_roberts import BufferParts, stream_parts
from streamcal.logistic import logit, sigmoid
from streamcal.state import Described, restorable

STEEPEST, FURTHEST = 8.0, 8.0  # with the odds of the least claim, exp(slope * log odds) must stay a finite number
MOST = 64  # bets of each kind: each costs time at every event, and makes the share of the others smaller
SHIFTS, FEWER_SHIFTS = (-1.0, -0.3, 0.3, 1.0), (-0.5, 0.5)  # of the log odds of one level; fewer where there are many
FEW_LEVELS, MOST_LEVELS = 9, 23  # more levels than few take fewer shifts, so that the state stays below 16 kB
SLOPES, LINE_SHIFTS = (0.5, 0.7, 0.85, 1.2, 1.5, 2.0), (-1.0, -0.5, -0.2, 0.2, 0.5, 1.0)  # of all levels


@restorable
@dataclass(frozen=True)
class Bets(Described):
    r"""A mixture of bets against claimed probabilities p in [0, 1]: what is looked for, and with which share of the stake.

    Every bet is linear in the outcome, :math:`L = 1 + a\,(y - p)`, so that its expectation is 1 if the claim is true:

    - likelihood bets: the outcome came from :math:`q = \mathrm{sigmoid}(a \,\mathrm{logit}\, p + b)` and not from p, so
      :math:`L = q/p` where it came true and :math:`(1-q)/(1-p)` where not. One for each of ``slopes`` (with b = 0; below 1:
      too extreme) and of ``shifts`` (with a = 1; above 0: claims too low); half of their share each;
    - bin bets: in each of ``bins`` bins of equal width, for each of ``stakes`` s, :math:`L = 1 + s\,(y - p)` where p lies in the
      bin and 1 elsewhere: any shape that is not a line on the logit scale, a single bad bin for instance.

    ``line_share`` of the stake is on the likelihood bets, the rest on the bins. Slopes lie in (0, 8] without 1, shifts in [-8, 8]
    without 0, stakes in [-1, 1] without 0; at most 64 of each, and at most 32 bins. ValueError for others. More bets cost time
    and a little delay each: the stake is split.

    The defaults are by simulation (median delay at ``arl=20_000``, 200 to 300 runs). Stakes of .2 and .7 with a share of 2/3 find
    one bin that is .3 off after 484 events, these after 415; bins off by .2 in turns after 401 and 351; too extreme by 1.25, 1.5,
    2, 3 after 933, 345, 111, 44 and 924, 343, 109, 43. Stakes of .3 and 1, six stakes, five slopes with four shifts: no better.
    Sources: Waudby-Smith, Ramdas 2024; Arnold, Henzi, Ziegel 2023.

    >>> Bets(bins=5).bins
    5
    >>> Bets(stakes=(0.5, 2.0))
    Traceback (most recent call last):
    ...
    ValueError: stakes must lie in [-1, 1] and not be 0, got 2.0
    """

    settings: ClassVar[tuple[str, ...]] = ("slopes", "shifts", "stakes", "bins", "line_share")
    slopes: tuple[float, ...] = (1 / 3, 0.5, 2 / 3, 0.8, 1.25, 1.5, 2.0)
    shifts: tuple[float, ...] = (-1.0, -0.5, -0.2, 0.2, 0.5, 1.0)
    stakes: tuple[float, ...] = (-1.0, -0.4, 0.4, 1.0)
    bins: int = 10
    line_share: float = 0.7

    def __post_init__(self) -> None:
        fixed = {
            "slopes": _those("slopes", self.slopes, 0.0, STEEPEST, 1.0),
            "shifts": _those("shifts", self.shifts, -FURTHEST, FURTHEST, 0.0),
            "stakes": _those("stakes", self.stakes, -1.0, 1.0, 0.0),
            "bins": check_whole("bins", self.bins, 1, 32),
            "line_share": _share(self.line_share),
        }
        for name, value in fixed.items():
            object.__setattr__(self, name, value)
        if self.line_share > 0.0 and not self.slopes + self.shifts:
            raise ValueError(f"line_share must be 0 where there are no slopes and no shifts, got {self.line_share!r}")
        if self.line_share < 1.0 and not self.stakes:
            raise ValueError(f"line_share must be 1 where there are no stakes, got {self.line_share!r}")

    @property
    def lines(self) -> list[tuple[float, float, float]]:
        """(slope, shift, weight) of each likelihood bet; the weights add up to ``line_share``."""
        both = 0.5 if self.slopes and self.shifts else 1.0
        slopes = [(a, 0.0, self.line_share * both / len(self.slopes)) for a in self.slopes]
        return slopes + [(1.0, b, self.line_share * both / len(self.shifts)) for b in self.shifts]

    def stream(self, levels: int) -> BufferParts:
        """How one stream of events with these bets is laid out, with so many levels of copies of its sums."""
        return stream_parts(len(self.lines), 3 * self.bins, levels, self.bins, len(self.stakes))

    def constants(self, tolerance: float, weighing: float = 0.0) -> dict[str, npt.ArrayLike]:
        """These bets as the kernels read them; ``weighing`` of the starts, of which a test has one only."""
        lines = np.array(self.lines).reshape(-1, 3)
        curved = min(-(-len(self.slopes) // 4) * 4, len(lines)) if len(lines) else 0
        bin_share = (1.0 - self.line_share) / self.bins
        in_bin = np.full(len(self.stakes), bin_share / max(len(self.stakes), 1))
        upwards = np.array(self.stakes) > 0.0
        return {
            "tolerance": tolerance,
            "weighing": weighing,
            "bin_share": bin_share,
            "down_share": in_bin[~upwards].sum(),
            "up_share": in_bin[upwards].sum(),
            "curved": curved,
            "slopes": lines[:, 0],
            "odds": np.exp(lines[:, 1]),
            "weights": lines[:, 2],
            "bin_stakes": self.stakes,
            "bin_weights": in_bin,
        }


def _those(name: str, values: Sequence[float], low: float, high: float, void: float) -> tuple[float, ...]:
    """Distinct numbers in [low, high] (a slope: above 0) that make a bet: with ``void`` nothing is ever won or lost."""
    if not isinstance(values, list | tuple | np.ndarray) or len(values) > MOST:
        raise ValueError(f"{name} must be a sequence of at most {MOST} numbers, got {values!r:.80}")
    checked = tuple(map(one_number, values))
    for v in checked:
        if not low <= v <= high or v == void or (name == "slopes" and v <= 0.0):
            allowed = f"({low:g}, {high:g}]" if name == "slopes" else f"[{low:g}, {high:g}]"
            raise ValueError(f"{name} must lie in {allowed} and not be {void:g}, got {v!r}")
    if len(set(checked)) != len(checked):
        raise ValueError(f"{name} must be distinct, got {checked}")
    return checked


def _share(value: float) -> float:
    share = one_number(value)
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"line_share must lie in [0, 1], got {value!r}")
    return share


DEFAULT = Bets()


def check_tolerance(value: float) -> float:
    """A gap that is no reason for an alarm, in [0, 1)."""
    tolerance = one_number(value)
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"tolerance must lie in [0, 1), got {value!r}")
    return tolerance


def check_bets(value: Any) -> Bets:
    """The bets, or a ValueError."""
    if not isinstance(value, Bets):
        raise ValueError(f"bets must be Bets(...), got {value!r:.80}")
    return value


# ---- bets against the coverage of quantiles and intervals


class CoverageBets(NamedTuple):
    """The bets: stakes lambda of shape (bets, levels), the first ``lines`` of them on all levels together; what each leans to."""

    stakes: Array
    lines: int
    weights: Array
    leaning: dict[str, Array]


def single_stakes(levels: Array, tolerance: float) -> Array:
    """Stakes of the bets on each level alone: likelihood ratios of shifted levels, against the furthest level that is tolerated.

    A level that may be as far off as 0 or 1 is not bet on in that direction.
    """
    rows = []
    for j, q in enumerate(levels):
        for shift in SHIFTS if levels.size <= FEW_LEVELS else FEWER_SHIFTS:
            edge = q + math.copysign(tolerance, shift)
            if 0.0 < edge < 1.0:
                stake = (sigmoid(logit(edge) + shift) - edge) / (edge * (1.0 - edge))
                rows.append(stake * (np.arange(levels.size) == j))
    return np.array(rows).reshape(-1, levels.size)


def line_stakes(levels: Array, tolerance: float) -> Array:
    """Stakes of the bets on all levels together: the true ones are sigmoid(slope * logit q + shift). None with one level."""
    lines = [(a, 0.0) for a in SLOPES] + [(1.0, b) for b in LINE_SHIFTS] if levels.size > 1 else []
    true = np.array([sigmoid(a * logit(levels) + b) for a, b in lines]).reshape(-1, levels.size)
    ratio = np.diff(true, prepend=0.0, append=1.0) / np.diff(levels, prepend=0.0, append=1.0)
    stakes = ratio[:, :-1] - ratio[:, 1:]
    lost: Array = 1.0 - exact_factors(stakes, levels, tolerance).min(1)  # more than all only with a tolerance
    return np.asarray(stakes / np.maximum(lost, 1.0)[:, None])


def exact_factors(stakes: Array, levels: Array, tolerance: float) -> Array:
    """L = 1 + sum over levels of lambda (1[covered] - q) - |lambda| tolerance of each bet in each cell, also where it is below 0.

    Shape (bets, levels + 1); cell c lies above c quantiles.
    """
    covered = np.arange(levels.size) >= np.arange(levels.size + 1)[:, None]
    return np.asarray(1.0 + stakes @ (covered - levels).T - tolerance * np.abs(stakes).sum(1, keepdims=True))


def factors(stakes: Array, levels: Array, tolerance: float) -> Array:
    """What each bet multiplies its stakes by in each cell, rounded down: no expectation is above 1.

    The stakes must be so small that no factor is below 0 but by rounding: lifting it to 0 would lift the expectation.
    """
    exact = exact_factors(stakes, levels, tolerance)
    return np.asarray(np.maximum(np.floor(exact * 1e13) / 1e13, 0.0))


def coverage_bets(levels: Array, tolerance: float, at_least: bool, interval: bool) -> CoverageBets:
    """All bets that are laid. Where a level is claimed "at least", those that win when more is covered are left out."""
    lines, singles = line_stakes(levels, tolerance), single_stakes(levels, tolerance)
    slopes = np.array([math.copysign(1.0, 1.0 - a) for a in SLOPES] + [0.0] * len(LINE_SHIFTS))[: len(lines)]
    shifts = np.array([0.0] * len(SLOPES) + list(np.sign(LINE_SHIFTS)))[: len(lines)]
    sign = np.sign(singles.sum(1))
    tail = 1.0 - 2.0 * (np.abs(singles) > 0.0) @ levels if levels.size > 1 else np.zeros(sign.size)
    narrow = np.concatenate([slopes, -sign if interval else sign * tail])  # a low quantile too high, a high one too low
    high = np.concatenate([shifts, np.zeros(sign.size) if interval else sign])
    stakes = np.concatenate([lines, singles])
    kept = np.asarray((stakes <= 0.0).all(1) if at_least else np.ones(len(stakes), dtype=bool))
    if not kept.any():
        raise ValueError(f"tolerance must leave something to bet on, got {tolerance!r} for levels {levels.tolist()}")
    n_lines, n_singles = int(kept[: len(lines)].sum()), int(kept[len(lines) :].sum())
    share = 1.0 if n_lines == 0 or n_singles == 0 else 0.5
    weights = np.concatenate([np.full(n, share / max(n, 1)) for n in (n_lines, n_singles)])
    both = {"too low": -high, "too high": high, "too narrow": narrow, "too wide": -narrow}
    leaning = {name: lean[kept] for name, lean in both.items() if (lean != 0.0).any()}
    return CoverageBets(stakes[kept], n_lines, weights, leaning)


def coverage_starts(stakes: Array, levels: Array, tolerance: float, weighing: float) -> Array:
    """What is laid on each bet before each event, in [0, 1]: as against probabilities, by the level with the most at stake.

    0 on a bet that wins in no cell.
    """
    fair = np.clip(levels + np.sign(stakes) * tolerance, 0.0, 1.0)
    most = (np.where(stakes == 0.0, 0.0, np.maximum(np.abs(stakes), 1.0)) * fair * (1.0 - fair)).max(1, initial=0.0)
    wins = exact_factors(stakes, levels, tolerance).max(1, initial=0.0) > 1.0
    return np.asarray(np.minimum(weighing * most, 1.0) * wins)


def coverage_constants(
    bets: CoverageBets, levels: Array, tolerance: float, weighing: float
) -> dict[str, npt.ArrayLike]:
    """The bets as the kernels read them: of each one on a level its factor if covered, if not, and the level; others by cell.

    What is laid on a bet is the same at every event, so that it goes into its weight.
    """
    by_cell = factors(bets.stakes, levels, tolerance)
    singles = by_cell[bets.lines :]
    return {
        "weights": bets.weights * coverage_starts(bets.stakes, levels, tolerance, weighing),
        "covered": singles[:, 0],
        "missed": singles[:, -1],
        "level": np.abs(bets.stakes[bets.lines :]).argmax(1),
        "by_cell": by_cell[: bets.lines].T,
    }
