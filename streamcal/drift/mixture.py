"""The mixture of bets on one stream, as sums over all starts (e-SR): the layout of its numbers and the kernel of one event.

Of each bet five numbers are kept: the sum R of what a stake of 1 laid before every event has become, the largest of these M (the
running maximum likelihood over the starts) with its start BEGAN, and S1 = sum of start * stake, S2 = sum of start^2 * stake, the
moments of the start. Starts are counted in events of this run, the first is 1.

A bet in a row is 1 everywhere else, so its R grows by 1 there: rows are brought up to date only when an event falls into them.
"""

from __future__ import annotations

import math

from streamcal._jit import inlined
from streamcal.arrays import Array
from streamcal.drift.bets import CURVED, LEVELS, LINES, PLAN, ROW_SHARE, ROWS, STAKES, TOLERATED
from streamcal.drift.checkpoints import CLAIMS, COUNT, FINEST, OUTCOMES, checkpoint_size, slot_of
from streamcal.drift.powers import exponentials
from streamcal.rows import uniform_row

# The numbers of one stream: how many events it has had; then of all likelihood bets R, M, BEGAN, S1, S2 and the last factor;
# then of all rows the event they were brought up to date, their weighted R then, their three sums; then of each row R, M, BEGAN,
# S1, S2 of each stake; then the checkpoints.
TIME = 0
FIRST = 1
R, M, BEGAN, S1, S2 = range(5)
LEAST = 1e-9  # likelihood bets take claims nearer to 0 or 1 as this


def stream_size(lines: int, stakes: int, rows: int, levels: int) -> int:
    """How many numbers one stream takes."""
    return FIRST + 6 * lines + rows * (5 + 5 * stakes) + checkpoint_size(rows, levels)


@inlined
def rows_at(plan: Array) -> int:
    """Where the rows begin."""
    return FIRST + 6 * int(plan[LINES])


@inlined
def sums_at(plan: Array) -> int:
    """Where the sums of the rows begin."""
    return rows_at(plan) + 2 * int(plan[ROWS])


@inlined
def stakes_at(plan: Array) -> int:
    """Where the bets in the rows begin."""
    return rows_at(plan) + 5 * int(plan[ROWS])


@inlined
def copies_at(plan: Array) -> int:
    """Where the checkpoints begin."""
    return stakes_at(plan) + 5 * int(plan[ROWS] * plan[STAKES])


@inlined
def cautious(a: float, p: float, y: float, tolerance: float) -> float:
    """What a bet of stake a becomes if gaps up to ``tolerance`` are no reason to win: never below 0, expectation at most 1."""
    a = min(a, 1.0 / (p + tolerance)) if a > 0.0 else max(a, -1.0 / (1.0 - p + tolerance))
    return float(max(1.0 + a * (y - p) - abs(a) * tolerance, 0.0))


@inlined
def stake(claimed: float, bet: float) -> float:
    """The a of 1 + a (y - p), where outcomes came with these odds ``bet`` on and not with those ``claimed``."""
    return (bet / claimed - 1.0) * (1.0 + claimed) / (1.0 + bet)


@inlined
def line_factors(plan: Array, factors: Array, p: float, y: float) -> None:
    """Write down what each likelihood bet multiplies its stakes by."""
    n, curved, tolerance = int(plan[LINES]), int(plan[CURVED]), plan[TOLERATED]
    slopes, shifts = plan[PLAN : PLAN + n], plan[PLAN + n : PLAN + 2 * n]
    pc = min(max(p, LEAST), 1.0 - LEAST)
    odds = pc / (1.0 - pc)
    exponentials(slopes[:curved], math.log(odds), factors[:curved])
    for k in range(curved, n):
        factors[k] = odds
    for k in range(n):
        factors[k] *= shifts[k]
    lost, won = (1.0 - y) * (1.0 + odds), y * (1.0 + odds) / odds
    if tolerance == 0.0:
        for k in range(n):
            a = stake(odds, factors[k]) if pc != p else 0.0
            # the stake is that of the clipped claim, the bet is on the claim as it is: else a sure thing would win a little
            factors[k] = max((lost + won * factors[k]) / (1.0 + factors[k]) + a * (pc - p), 0.0)
    else:
        for k in range(n):
            factors[k] = cautious(stake(odds, factors[k]), p, y, tolerance)


@inlined
def bet_on_lines(plan: Array, s: Array, t: float) -> float:
    """Open every likelihood bet anew, multiply; the weighted sum over all starts."""
    n, total = int(plan[LINES]), 0.0
    weights, factors = plan[PLAN + 2 * n : PLAN + 3 * n], s[FIRST + 5 * n : FIRST + 6 * n]
    r, m, began = s[FIRST : FIRST + n], s[FIRST + n : FIRST + 2 * n], s[FIRST + 2 * n : FIRST + 3 * n]
    s1, s2 = s[FIRST + 3 * n : FIRST + 4 * n], s[FIRST + 4 * n : FIRST + 5 * n]
    for k in range(n):
        x = factors[k]
        r[k] = (r[k] + 1.0) * x
        s1[k] = (s1[k] + t) * x
        s2[k] = (s2[k] + t * t) * x
        began[k] = t if m[k] <= 1.0 else began[k]
        m[k] = (1.0 if m[k] <= 1.0 else m[k]) * x
        total += weights[k] * r[k]
    return total


@inlined
def bet_on_row(plan: Array, bets: Array, last: float, p: float, y: float, t: float) -> float:
    """Bring the bets of the row of this event up to date, open them anew, multiply; their weighted sum over all starts."""
    n, tolerance = int(plan[STAKES]), plan[TOLERATED]
    first = PLAN + 3 * int(plan[LINES])
    stakes, weights = plan[first : first + n], plan[first + n : first + 2 * n]
    starts, starts1, starts2 = 1.0, t, t * t
    if last < t - 1.0:  # also the starts of the events that fell elsewhere
        starts = t - last
        starts1 = starts * (last + 1.0 + t) / 2.0
        starts2 = (t * (t + 1.0) * (2.0 * t + 1.0) - last * (last + 1.0) * (2.0 * last + 1.0)) / 6.0
    staked, gap = 0.0, y - p
    for k in range(n):
        x = 1.0 + stakes[k] * gap if tolerance == 0.0 else cautious(stakes[k], p, y, tolerance)
        b = 5 * k
        bets[b + R] = (bets[b + R] + starts) * x
        bets[b + S1] = (bets[b + S1] + starts1) * x
        bets[b + S2] = (bets[b + S2] + starts2) * x
        bets[b + BEGAN] = t if bets[b + M] <= 1.0 else bets[b + BEGAN]
        bets[b + M] = max(bets[b + M], 1.0) * x
        staked += weights[k] * bets[b + R]
    return float(staked)


@inlined
def add(sums: Array, j: int, p: float, y: float) -> None:
    """Add the event to the sums of its row."""
    sums[3 * j + COUNT] += 1.0
    sums[3 * j + CLAIMS] += p
    sums[3 * j + OUTCOMES] += y


@inlined
def all_rows(plan: Array, s: Array, t: float) -> float:
    """The weighted sum over all starts of the bets in all rows, those that were not touched as they would be by now."""
    n, first = int(plan[ROWS]), rows_at(plan)
    touched, staked = s[first : first + n], s[first + n : first + 2 * n]
    total, untouched = 0.0, 0.0
    for j in range(n):
        total += staked[j]
        untouched += t - touched[j]
    return float(total + plan[ROW_SHARE] * untouched)


@inlined
def keep_copy(plan: Array, s: Array, t: int) -> None:
    """Copy the sums of all rows to their checkpoint."""
    n, first = 3 * int(plan[ROWS]), sums_at(plan)
    to = copies_at(plan) + slot_of(t, int(plan[LEVELS])) * (1 + n)
    s[to] = t
    s[to + 1 : to + 1 + n] = s[first : first + n]


@inlined
def impossible(plan: Array, p: float, y: float) -> bool:
    """Whether something came that the claim said could not: infinite evidence, unless gaps are tolerated."""
    return bool(plan[TOLERATED] == 0.0 and ((p == 0.0 and y > 0.0) or (p == 1.0 and y < 1.0)))


@inlined
def bet(plan: Array, s: Array, p: float, y: float) -> float:
    """Take one event (p and y in [0, 1]): the weighted sum of all bets over all starts."""
    s[TIME] += 1.0
    t, total, rows = s[TIME], 0.0, plan[ROWS]
    if plan[LINES] > 0.0:
        n = int(plan[LINES])
        line_factors(plan, s[FIRST + 5 * n : FIRST + 6 * n], p, y)
        total = bet_on_lines(plan, s, t)
    j = int(uniform_row(p, rows, 0.0, 1.0, 0.0, rows, rows - 1.0))
    here, bets = rows_at(plan) + j, stakes_at(plan) + 5 * j * int(plan[STAKES])
    s[here + int(rows)] = bet_on_row(plan, s[bets : bets + 5 * int(plan[STAKES])], s[here], p, y, t)
    s[here] = t
    add(s[sums_at(plan) :], j, p, y)
    if int(t) % FINEST == 0:
        keep_copy(plan, s, int(t))
    return math.inf if impossible(plan, p, y) else total + all_rows(plan, s, t)
