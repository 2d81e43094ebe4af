"""Which bets are laid against claimed probabilities, and how the stake is split between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamcal.arrays import Array, check_whole, one_number
from streamcal.state import Document, restorable

# A plan is a float64 array that begins with these numbers: how many likelihood bets, stakes and rows there are, the tolerance,
# what one row stakes in all, how many levels of checkpoints, how many likelihood bets (the first) need an exponential, rounded
# up to whole vectors of four. Behind them: slope, factor and weight of each likelihood bet, stake
# and weight of each bet in a row.
LINES, STAKES, ROWS, TOLERATED, ROW_SHARE, LEVELS, CURVED = range(7)
PLAN = 7
STEEPEST, FURTHEST, MOST = 8.0, 8.0, 64


@restorable
@dataclass(frozen=True)
class Bets(Document):
    r"""A mixture of bets against claimed probabilities p in [0, 1]: what is looked for, and with which share of the stake.

    Every bet is linear in the outcome, :math:`L = 1 + a\,(y - p)`, so that its expectation is 1 if the claim is true:

    - likelihood bets: the outcome came from :math:`q = \mathrm{sigmoid}(a \,\mathrm{logit}\, p + b)` and not from p, so
      :math:`L = q/p` where it came true and :math:`(1-q)/(1-p)` where not. One for each of ``slopes`` (with b = 0; below 1:
      overconfident) and of ``shifts`` (with a = 1; above 0: claims too low); half of their share each;
    - row bets: in each of ``rows`` rows of equal width, for each of ``stakes`` s, :math:`L = 1 + s\,(y - p)` where p lies in the
      row and 1 elsewhere: any shape that is not a line on the logit scale, a single bad row for instance.

    ``line_share`` of the stake is on the likelihood bets, the rest on the rows. Slopes lie in (0, 8] without 1, shifts in [-8, 8]
    without 0, stakes in [-1, 1] without 0; at most 64 of each, and at most 32 rows. ValueError for others. More bets cost time
    and a little delay each: the stake is split.

    The defaults are by simulation (median delay at ``arl=20_000``, 200 to 300 runs). Stakes of .2 and .7 with a share of 2/3 find
    one row that is .3 off after 484 events, these after 415; rows off by .2 in turns after 401 and 351; overconfidence 1.25, 1.5,
    2, 3 after 933, 345, 111, 44 and 924, 343, 109, 43. Stakes of .3 and 1, six stakes, five slopes with four shifts: no better.
    Sources: Waudby-Smith, Ramdas 2024; Arnold, Henzi, Ziegel 2023.

    >>> Bets(rows=5).rows
    5
    >>> Bets(stakes=(0.5, 2.0))
    Traceback (most recent call last):
    ...
    ValueError: stakes must lie in [-1, 1] and not be 0, got 2.0
    """

    slopes: tuple[float, ...] = (1 / 3, 0.5, 2 / 3, 0.8, 1.25, 1.5, 2.0)
    shifts: tuple[float, ...] = (-1.0, -0.5, -0.2, 0.2, 0.5, 1.0)
    stakes: tuple[float, ...] = (-1.0, -0.4, 0.4, 1.0)
    rows: int = 10
    line_share: float = 0.7

    def __post_init__(self) -> None:
        fixed = {
            "slopes": _those("slopes", self.slopes, 0.0, STEEPEST, 1.0),
            "shifts": _those("shifts", self.shifts, -FURTHEST, FURTHEST, 0.0),
            "stakes": _those("stakes", self.stakes, -1.0, 1.0, 0.0),
            "rows": check_whole("rows", self.rows, 1, 32),
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

    def plan(self, tolerance: float, levels: int) -> Array:
        """These bets as the kernels read them."""
        lines = np.array(self.lines).reshape(-1, 3)
        curved = min(-(-len(self.slopes) // 4) * 4, len(lines)) if len(lines) else 0
        row_share = (1.0 - self.line_share) / self.rows
        head = [len(lines), len(self.stakes), self.rows, tolerance, row_share, levels, curved]
        each = np.full(len(self.stakes), row_share / max(len(self.stakes), 1))
        return np.concatenate([head, lines[:, 0], np.exp(lines[:, 1]), lines[:, 2], self.stakes, each])

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        return {"arguments": list(vars(self).values())}, {}

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Array]) -> Any:
        return cls(*config["arguments"])


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
