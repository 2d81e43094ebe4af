"""CalibrationTest: have these probabilities ever been miscalibrated? One answer for a whole stream, at any time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array
from streamcal.claims import check_level
from streamcal.drift.bets import (
    DEFAULT,
    LINES,
    PLAN,
    ROW_SHARE,
    ROWS,
    STAKES,
    TOLERATED,
    Bets,
    check_bets,
    check_tolerance,
)
from streamcal.drift.detector import (
    BAD,
    EVIDENCE,
    HEAD,
    LARGEST,
    OF_ARL,
    QUIET,
    RUN,
    STATE,
    Bettor,
    N,
    probability_events,
)
from streamcal.drift.mixture import add, cautious, impossible, line_factors
from streamcal.drift.onset import by_row, sizes
from streamcal.rows import uniform_row
from streamcal.state import restorable
from streamcal.tally import unit

# The numbers of a test: the largest log W so far and how many events it took until log W first reached its threshold (0: not
# yet); of the likelihood bets wealth, exponent and last factor; of the rows log wealth and sums; of the stakes of each row wealth
# and exponent. A wealth is its number times HUGE to the power of its exponent: none gets lost, however far it is behind.
TOP, CROSSED = range(2)
OWN = 2
HUGE, LOG_HUGE = 1e100, 100.0 * math.log(10.0)
BEHIND = 2.0  # what is that many powers of HUGE behind the largest adds nothing to its 16 digits


def ever_size(lines: int, stakes: int, rows: int) -> int:
    """How many numbers the test of one stream takes."""
    return OWN + 3 * lines + rows * (4 + 2 * stakes)


@inlined
def row_wealth_at(plan: Array) -> int:
    """Where the log wealth of the rows begins; their sums are behind it."""
    return OWN + 3 * int(plan[LINES])


def begin(plan: Array, s: Array) -> None:
    """Every bet starts with a wealth of 1."""
    lines, stakes, rows = int(plan[LINES]), int(plan[STAKES]), int(plan[ROWS])
    s[:] = 0.0
    s[OWN : OWN + lines] = 1.0
    s[row_wealth_at(plan) + 4 * rows :].reshape(rows, 2, stakes)[:, 0] = 1.0


@inlined
def grow(wealth: Array, power: Array, k: int, x: float) -> None:
    """Multiply a wealth, and move what is too large or too small for a float into its exponent."""
    wealth[k] *= x
    if wealth[k] > HUGE:
        wealth[k] /= HUGE
        power[k] += 1.0
    elif 0.0 < wealth[k] < 1.0 / HUGE:
        wealth[k] *= HUGE
        power[k] -= 1.0


@inlined
def log_sum(wealth: Array, power: Array, weights: Array) -> float:
    """Logarithm of the weighted sum of wealths; -inf if all are lost."""
    most, total = -math.inf, 0.0
    for k in range(wealth.shape[0]):
        if wealth[k] > 0.0 and power[k] > most:
            most = power[k]
    for k in range(wealth.shape[0]):
        if wealth[k] > 0.0 and power[k] >= most - BEHIND:
            total += weights[k] * (wealth[k] if power[k] == most else wealth[k] * HUGE ** (power[k] - most))
    return math.log(total) + most * LOG_HUGE if total > 0.0 else -math.inf


@inlined
def lines_now(plan: Array, s: Array, p: float, y: float) -> float:
    """Multiply the likelihood bets; the logarithm of their weighted sum."""
    n = int(plan[LINES])
    wealth, power, factors = s[OWN : OWN + n], s[OWN + n : OWN + 2 * n], s[OWN + 2 * n : OWN + 3 * n]
    line_factors(plan, factors, p, y)
    for k in range(n):
        grow(wealth, power, k, factors[k])
    return log_sum(wealth, power, plan[PLAN + 2 * n : PLAN + 3 * n])


@inlined
def bet_in_row(plan: Array, s: Array, j: int, p: float, y: float) -> None:
    """Multiply the bets in the row of this event; keep the logarithm of their mean."""
    n, rows, line, here = int(plan[STAKES]), int(plan[ROWS]), PLAN + 3 * int(plan[LINES]), row_wealth_at(plan)
    stakes, weights, own = plan[line : line + n], plan[line + n : line + 2 * n], here + 4 * rows + 2 * n * j
    wealth, power = s[own : own + n], s[own + n : own + 2 * n]
    for k in range(n):
        x = 1.0 + stakes[k] * (y - p) if plan[TOLERATED] == 0.0 else cautious(stakes[k], p, y, plan[TOLERATED])
        grow(wealth, power, k, x)
    s[here + j] = log_sum(wealth, power, weights) - math.log(plan[ROW_SHARE])


@inlined
def rows_now(plan: Array, s: Array, p: float, y: float) -> float:
    """Take the event in its row; the logarithm of the share of the rows times the product of their wealths."""
    rows, here = plan[ROWS], row_wealth_at(plan)
    j = int(uniform_row(p, rows, 0.0, 1.0, 0.0, rows, rows - 1.0))
    add(s[here + int(rows) :], j, p, y)
    if plan[ROW_SHARE] <= 0.0:
        return -math.inf
    bet_in_row(plan, s, j, p, y)
    total = math.log(plan[ROW_SHARE] * rows)
    for i in range(int(rows)):
        total += s[here + i]
    return total


@inlined
def log_add(a: float, b: float) -> float:
    """Logarithm of exp(a) + exp(b)."""
    low, high = min(a, b), max(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


@inlined
def wealth_after(plan: Array, s: Array, p: float, y: float, threshold: float, n: float) -> float:
    """Take event number n (p and y in [0, 1]): log W."""
    lines = lines_now(plan, s, p, y) if plan[LINES] > 0.0 else -math.inf
    now = log_add(lines, rows_now(plan, s, p, y))
    if s[TOP] == math.inf or impossible(plan, p, y):
        now = math.inf
    s[TOP] = max(s[TOP], now)
    if now >= threshold and s[CROSSED] == 0.0:
        s[CROSSED] = n
    return now


@inlined
def ever_take(buf: Array, p: float, y: float) -> None:
    """Take an event that is allowed."""
    first = int(buf[STATE])
    buf[N] += 1.0
    buf[RUN] += 1.0
    buf[EVIDENCE] = wealth_after(buf[HEAD:first], buf[first:], p, y, buf[OF_ARL], buf[N])


@brief
def ever_one(buf: Array, p: float, y: float) -> int:
    """Take one event, or say that it is BAD."""
    p = unit(p)
    if not (p == p and 0.0 <= y <= 1.0):
        return BAD
    ever_take(buf, p, y)
    return QUIET


@kernel
def ever_many(buf: Array, p: Array, y: Array) -> None:
    """Take events that are allowed."""
    for i in range(p.shape[0]):
        ever_take(buf, p[i], y[i])


@restorable
class CalibrationTest(Bettor):
    r"""Whether probabilities were ever miscalibrated, at level ``alpha`` in (0, 1), looked at whenever one likes.

    The same claim and the same bets as in :class:`~streamcal.drift.calibration.CalibrationDrift`, all laid once, at
    the first event:

    .. math:: W_t = s \sum_k w_k \prod_{i \le t} L_{k,i} + (1 - s) \prod_{\text{rows } r} \frac1J \sum_{j=1}^{J}
              \prod_{i \le t,\, p_i \in r} L_{j,i}

    with s the ``line_share`` of ``bets``. W is a nonnegative supermartingale if all claims are true, so the probability that it
    ever reaches 1 / alpha is at most alpha (Ville): ``rejected``. ``p_value`` = min(1, 1 / max W) is valid at any time,
    ``log_evidence`` = log W is the evidence now, 0.0 before any event, inf for good after a claim of 0 or 1 that came out
    otherwise (with ``tolerance`` 0). ``tolerance`` eps: gaps up to eps are no reason to reject.

    Before a late change W has lost what the bets lost on true claims, so that it answers "ever", slowly, and not "since when":
    use the detector for that. Memory: 2 kB, however many events. Bad events: ValueError, and nothing changed. Not thread-safe.
    Sources: Ville 1939; Arnold, Henzi, Ziegel 2023; Waudby-Smith, Ramdas 2024.

    >>> test = CalibrationTest(alpha=0.05)
    >>> test.update_many([0.9] * 40, [1, 0] * 20)
    >>> test.rejected, test.p_value < 1e-5
    (True, True)
    """

    settings: ClassVar[tuple[str, ...]] = ("alpha", "tolerance", "bets")
    _one: ClassVar[Callable[..., int]] = ever_one

    def __init__(self, alpha: float = 0.05, tolerance: float = 0.0, bets: Bets = DEFAULT) -> None:
        self.alpha = check_level(alpha, "alpha")
        self.tolerance = check_tolerance(tolerance)
        self.bets = check_bets(bets)
        plan = self.bets.plan(self.tolerance, 0)
        head, own = np.zeros(HEAD), np.zeros(ever_size(len(self.bets.lines), len(self.bets.stakes), self.bets.rows))
        head[OF_ARL], head[STATE] = -math.log(self.alpha), HEAD + plan.size
        begin(plan, own)
        self._buf = np.concatenate([head, plan, own])

    @property
    def log_evidence(self) -> float:
        """log W after the last event."""
        return float(self._buf[EVIDENCE])

    @property
    def p_value(self) -> float:
        """min(1, 1 / max W) so far: valid whenever it is looked at; never rises."""
        return math.exp(-float(self._own[TOP]))

    @property
    def rejected(self) -> bool:
        """Whether W has ever reached 1 / alpha; it stays."""
        return bool(self._own[CROSSED] > 0.0)

    @property
    def _own(self) -> Array:
        return self._buf[int(self._buf[STATE]) :]

    def update(self, p: float, y: float) -> None:
        """Take one event: the claim p in [0, 1] and its outcome y in [0, 1]. ValueError, and nothing changed, for any other."""
        self._status(p, y)

    def update_many(self, p: npt.ArrayLike, y: npt.ArrayLike) -> None:
        """Take n events in order, both of shape (n,): the same as one by one.

        ValueError names the first that is not allowed; then none is taken.
        """
        ever_many(self._buf, *probability_events(p, y))

    def report(self) -> dict[str, Any]:
        """What was found, as plain data.

        ``n``, ``alpha``, ``tolerance``, ``rejected``, ``rejected_at`` (index of the event, None: not rejected), ``log_evidence``,
        ``p_value``; of all events ``events``, ``mean_claim``, ``mean_outcome``, ``gap``, ``slope``, ``intercept``, ``k1``,
        ``k1_by_chance`` and ``rows``, as in the report of :class:`~streamcal.drift.calibration.CalibrationDrift`.
        """
        own, rows = self._own, self.bets.rows
        first = OWN + 3 * len(self.bets.lines) + rows
        sums = own[first : first + 3 * rows].reshape(rows, 3)
        return {
            "n": self.n,
            "alpha": self.alpha,
            "tolerance": self.tolerance,
            "rejected": self.rejected,
            "rejected_at": int(own[CROSSED]) - 1 if self.rejected else None,
            "log_evidence": min(max(self.log_evidence, -LARGEST), LARGEST),
            "p_value": self.p_value,
            **sizes(sums),
            "rows": by_row(sums),
        }
