"""Which bets are laid against the coverage of quantiles and intervals. Nothing here is done per event."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array

SHIFTS, FEWER_SHIFTS = (
    (-1.0, -0.3, 0.3, 1.0),
    (-0.5, 0.5),
)  # of the log odds of one level; fewer where there are many levels
FEW_LEVELS, MOST_LEVELS = 9, 23
SLOPES, LINE_SHIFTS = (0.5, 0.7, 0.85, 1.2, 1.5, 2.0), (-1.0, -0.5, -0.2, 0.2, 0.5, 1.0)  # of all levels


class Plan(NamedTuple):
    """The bets: stakes lambda of shape (bets, levels), the first ``lines`` of them on all levels together; what each leans to."""

    stakes: Array
    lines: int
    weights: Array
    leaning: dict[str, Array]


def log_odds(q: npt.ArrayLike) -> Array:
    """log(q / (1 - q)) of each number in (0, 1)."""
    x = np.asarray(q, dtype=np.float64)
    return np.asarray(np.log(x / (1.0 - x)))


def sigmoid(z: npt.ArrayLike) -> Array:
    """The number in (0, 1) with these log odds."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.asarray(z, dtype=np.float64))))


def single_stakes(levels: Array, tolerance: float) -> Array:
    """Stakes of the bets on each level alone: likelihood ratios of shifted levels, against the furthest level that is tolerated.

    A level that may be as far off as 0 or 1 is not bet on in that direction.
    """
    rows = []
    for j, q in enumerate(levels):
        for shift in SHIFTS if levels.size <= FEW_LEVELS else FEWER_SHIFTS:
            edge = q + math.copysign(tolerance, shift)
            if 0.0 < edge < 1.0:
                stake = (sigmoid(log_odds(edge) + shift) - edge) / (edge * (1.0 - edge))
                rows.append(stake * (np.arange(levels.size) == j))
    return np.array(rows).reshape(-1, levels.size)


def line_stakes(levels: Array, tolerance: float) -> Array:
    """Stakes of the bets on all levels together: the true ones are sigmoid(slope * logit q + shift). None with one level."""
    lines = [(a, 0.0) for a in SLOPES] + [(1.0, b) for b in LINE_SHIFTS] if levels.size > 1 else []
    true = np.array([sigmoid(a * log_odds(levels) + b) for a, b in lines]).reshape(-1, levels.size)
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


def coverage_bets(levels: Array, tolerance: float, at_least: bool, interval: bool) -> Plan:
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
    return Plan(stakes[kept], n_lines, weights, leaning)


def constants_of(plan: Plan, levels: Array, tolerance: float) -> Array:
    """The bets as the kernels read them."""
    by_cell = factors(plan.stakes, levels, tolerance)
    singles, at = by_cell[plan.lines :], np.abs(plan.stakes[plan.lines :]).argmax(1)
    return np.concatenate([plan.weights, singles[:, 0], singles[:, -1], at, by_cell[: plan.lines].T.reshape(-1)])
