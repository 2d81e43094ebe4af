"""The one Shiryaev-Roberts accumulator: bets against claims, summed over all the starts that they could have had (e-SR).

A bet multiplies its stake by an increment L of expectation at most 1 while the claims are true. Before every event a stake g in
[0, 1] is laid on every bet, so a bet has as many starts as there were events. Of each bet five numbers are kept: R, what all its
starts have become together; M, the largest product of increments since any start (the running maximum likelihood over the
starts), and the event BEGAN before which that one was laid; A1 and A2, the sums of age * stake and of age^2 * stake, where the
start before the last event has age 0.

Ages and not starts: after 10^8 events the second moment of the starts has no digits left for their spread.

**How much is laid.** With stakes of 1 at every event the sum grows by 1 per event also where nothing can be won or lost, and
alarms after ``arl`` events like a clock. So the stake is weighed by what is at stake:

    g = min(1, weighing * max(1, |a|) * m (1 - m)),    weighing = max(arl, LEAST_ARL) / RARER_IN_ARL

where the bet is L = 1 + a (y - p) - |a| tolerance, and m is the mean of y against which it is fair: p + tolerance for a > 0,
p - tolerance for a < 0, cut to [0, 1]. 2 |a| m (1 - m) is what it wins or loses there on average, E |L - 1|. A bet on many times
as many rare events as were predicted learns much from one of them, and need not wait. g is 1 where ``arl`` events hold
RARER_IN_ARL outcomes of the rarer kind or more. While none of them comes, a bet on more of them multiplies by 1 - a p and so
stays below g / (a p), at most ``weighing``: no clock. g is 0 where the bet cannot win whatever comes: for a > 0 the most is
1 + a (1 - p - tolerance), at most 1 where m = 1; for a < 0 it is 1 + |a| (p - tolerance), at most 1 where m = 0. Without
tolerance these are claims of 1 and of 0. The bets in bins, |a| <= 1, have one g upwards and one downwards.

**Why the run length holds.** R_t = (R_{t-1} + g_t) L_t. g_t depends on the past and on the claim p_t, so it is known before y_t,
and E[R_t | past, p_t] <= R_{t-1} + g_t. With weights w_k that add up to 1, the evidence E_t = sum over k of w_k R_{k,t} minus
G_t = sum over k and s <= t of w_k g_{k,s} is a supermartingale that begins at 0, and G_t <= t. Let T be the first event with
E_T >= arl. Since E >= 0, E[E_min(T, n)] <= E[G_min(T, n)] <= E[min(T, n)] for every n; n growing, arl P(T < infinity) <= E[T],
and where T may be infinite E[T] is. So E[T] >= arl. What a claim of 0 or 1 rules out has probability 0 while the claims are true:
to alarm at once when it comes, as if 0 times infinity were infinity, takes nothing from this.

Three kinds of bets are laid out in this way. Lines and cells win or lose at every event. A bet in a bin is 1 at every event that
falls elsewhere, so a bin is brought up to date only when an event falls into it: the stakes laid since are then counted together,
those of bets that win upwards and downwards each, as spread evenly over the events.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np

from streamcal._jit import inlined
from streamcal.arrays import Array
from streamcal.binning import uniform_bin


class BufferParts:
    """Names for the parts of a flat float64 array, one behind the other: where each begins, and a view of each in its shape.

    >>> parts = BufferParts({"time": (), "bets": (2, 3)})
    >>> parts.at, parts.size
    ({'time': 0, 'bets': 1}, 7)
    >>> numbers = np.arange(7.0)
    >>> parts.views(numbers).bets[1, 0] = 9.0
    >>> numbers.tolist()
    [0.0, 1.0, 2.0, 3.0, 9.0, 5.0, 6.0]
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = dict(shapes)
        self.at: dict[str, int] = {}
        self.size = 0
        for name, shape in self.shapes.items():
            self.at[name] = self.size
            self.size += math.prod(shape)

    def views(self, numbers: Array) -> SimpleNamespace:
        """The parts by their names: what is written into them is written into ``numbers``."""
        sizes = {name: math.prod(shape) for name, shape in self.shapes.items()}
        return SimpleNamespace(
            **{name: numbers[at : at + sizes[name]].reshape(self.shapes[name]) for name, at in self.at.items()}
        )


# ---- a run: from one alarm to the next

# n: events ever; run: of these in this run; before: those before this run; arl, warning_arl: the thresholds; state: where the
# numbers begin that a run gathers, all 0.0 at its start; kept: what the run before left, which is no evidence in this one (0.0
# but for many segments)
RUN_PARTS = BufferParts(
    dict.fromkeys(("n", "run", "before", "alarms", "evidence", "status", "arl", "warning_arl", "state", "kept"), ())
)
N, RUN, BEFORE, ALARMS, EVIDENCE, STATUS, OF_ARL, OF_WARNING, STATE, KEPT = RUN_PARTS.at.values()
BAD, QUIET, WARNED, ALARMED = -1, 0, 1, 2  # what a kernel says of an event, and what STATUS holds (never BAD)


@inlined
def restart(buf: Array) -> None:
    """Begin a new run: nothing gathered, no evidence."""
    for i in range(int(buf[STATE]), buf.shape[0]):
        buf[i] = 0.0
    buf[BEFORE], buf[RUN], buf[EVIDENCE], buf[STATUS], buf[KEPT] = buf[N], 0.0, 0.0, QUIET, 0.0


@inlined
def count_event(buf: Array) -> None:
    """Count one good event; the first after an alarm begins a new run."""
    if buf[STATUS] == ALARMED:
        restart(buf)
    buf[N] += 1.0
    buf[RUN] += 1.0


@inlined
def judge(buf: Array, evidence: float) -> int:
    """Note the statistic after this event: QUIET, WARNED or ALARMED."""
    status = QUIET
    if evidence >= buf[OF_ARL]:
        status = ALARMED
        buf[ALARMS] += 1.0
    elif evidence >= buf[OF_WARNING]:
        status = WARNED
    buf[EVIDENCE], buf[STATUS] = evidence, status
    return status


# ---- a stream: the events of one class, one segment, or of all


# A buffer says behind its run how its streams are laid out: how many bets each event touches, bins, stakes in each bin, sums and
# levels of copies there are, the size of a stream, and where its parts begin.
STREAM_CONSTANTS = (
    *("bets", "bins", "stakes", "sums", "levels", "size"),
    *("at_bets", "at_bins", "at_binned", "at_sums", "at_starts"),
)
FIRST = RUN_PARTS.size + len(STREAM_CONSTANTS)  # where the constants of the kind of detector begin
BETS, BINS, STAKES, SUMS, LEVELS, SIZE, AT_BETS, AT_BINS, AT_BINNED, AT_SUMS, AT_STARTS = range(RUN_PARTS.size, FIRST)
# Of a stream: its events in this run, also the number of the last; what was laid on each bet with |a| up to 1 (as in bins) that
# wins downwards, and upwards
TIME, DOWN, UP = range(3)
R, M, BEGAN, A1, A2 = range(5)
MOMENTS = 5  # numbers of each bet
FEW = 8  # bets: so many or less are accumulated one by one, more in vectors
# Of each bin: the event that it was brought up to date at; its weighted R then, less what the stream had laid on its bets by
# then; what it had laid on each of them.
TOUCHED, STAKED, LAID_DOWN, LAID_UP = range(4)
# At 20 outcomes of the rarer kind (claims of 1e-3 at arl 20,000) delays are as without weighing, and the clock is not heard: see
# test_rare_claims_alarm_by_what_comes_and_not_by_the_clock
RARER_IN_ARL = 20.0
LEAST_ARL = (
    1_000.0  # shorter ones are weighed like this: else claims of .5, where everything is at stake, would have to wait
)
EVEN = 1.0 + 1e-12  # a likelihood ratio up to here may be rounding: no start, and no reason to name a direction
FINEST = 16  # events between two copies of the sums: older than that an onset is known no better
COPIES = 2  # of each level: with one, the youngest copy of a level could be half of its reach away


def stream_parts(bets: int, sums: int, levels: int, bins: int = 0, stakes: int = 0) -> BufferParts:
    """A stream with so many bets on every event, stakes in each bin, sums, and levels of copies of the sums.

    A copy of the sums is made every FINEST events. The copy after event t is kept on the level of the largest power of 2 that
    divides t, the last two of each level: so of age a there is a copy within a quarter of a, or 16 events, for ages up to
    FINEST * 2^(levels - 1); before that there is only the start of the run. Memory does not grow with the number of events.
    """
    return BufferParts(
        {
            "time": (),
            "laid": (2,),
            "bets": (MOMENTS, bets),
            "increments": (bets + stakes,),
            "starts": (bets if bins else 0,),  # cells and densities weigh theirs beforehand
            "bins": (4, bins),
            "binned": (bins, stakes, MOMENTS),
            "sums": (sums,),
            "copies": (levels * COPIES, 1 + sums),
        }
    )


def stream_constants(stream: BufferParts) -> dict[str, int]:
    """What the kernels must know of the parts of a stream."""
    shapes = stream.shapes
    counts = [
        shapes["bets"][-1],
        shapes["bins"][-1],
        shapes["increments"][-1] - shapes["bets"][-1],
        math.prod(shapes["sums"]),
    ]
    of = dict(zip(STREAM_CONSTANTS, [*counts, shapes["copies"][0] // COPIES, stream.size], strict=False))
    return of | {f"at_{name}": stream.at[name] for name in ("bets", "bins", "binned", "sums", "starts")}


@inlined
def starting_ages(starts: float) -> tuple[float, float]:
    """Sum of the ages 0 to starts - 1, and of their squares."""
    ages = starts * (starts - 1.0) / 2.0
    return ages, ages * (2.0 * starts - 1.0) / 3.0


@inlined
def accumulate(bets: Array, increments: Array, t: float, starts: float) -> None:
    """Lay a stake of 1 on each bet before event t and before the ``starts - 1`` events that it did not see; multiply all.

    ``bets``: R, M, BEGAN, A1, A2 of n bets; the events not seen multiplied by 1. The new starts have ages 0 to starts - 1.
    """
    n, x = increments.shape[0], increments
    r, m, began, a1, a2 = bets[:n], bets[n : 2 * n], bets[2 * n : 3 * n], bets[3 * n : 4 * n], bets[4 * n : 5 * n]
    ages, squares = starting_ages(starts)
    if n <= FEW:  # the same in one loop: the vectors of the two below would cost more than they save
        for k in range(n):
            a2[k] = (a2[k] + 2.0 * starts * a1[k] + starts * starts * r[k] + squares) * x[k]
            a1[k] = (a1[k] + starts * r[k] + ages) * x[k]
            r[k] = (r[k] + starts) * x[k]
            began[k] = t if m[k] <= EVEN else began[k]
            m[k] = (1.0 if m[k] <= EVEN else m[k]) * x[k]
        return
    for k in range(n):
        a2[k] = (a2[k] + 2.0 * starts * a1[k] + starts * starts * r[k] + squares) * x[k]
        a1[k] = (a1[k] + starts * r[k] + ages) * x[k]
        r[k] = (r[k] + starts) * x[k]
    for k in range(n):  # its own loop: a choice and a product are vectors of their own
        began[k] = t if m[k] <= EVEN else began[k]
        m[k] = (1.0 if m[k] <= EVEN else m[k]) * x[k]


@inlined
def mean_ages(events: float) -> tuple[float, float]:
    """Mean of the ages 0 to events - 1, and of their squares."""
    age = (events - 1.0) / 2.0
    return age, age * (2.0 * events - 1.0) / 3.0


def bins_now(binned: Array, bins: Array, stakes: Array, laid: Array, t: float) -> Array:
    """Bets (bins, stakes, 5) as they are after event t: with what was laid on them since their bin was touched."""
    starts = np.where(stakes > 0.0, (laid[1] - bins[LAID_UP])[:, None], (laid[0] - bins[LAID_DOWN])[:, None])
    events = np.maximum(t - bins[TOUCHED], 1.0)[:, None]  # of none nothing was laid
    age, square = mean_ages(events)
    r, a1, now = binned[..., R], binned[..., A1], binned.copy()
    passed = (t - bins[TOUCHED])[:, None]
    now[..., R] += starts
    now[..., A1] += passed * r + starts * age
    now[..., A2] += passed * (2.0 * a1 + passed * r) + starts * square
    return now


@inlined
def weighted(weights: Array, r: Array) -> float:
    """Sum of weight * R in four parts, so that one addition need not wait for the last."""
    n, a, b, c, d = weights.shape[0], 0.0, 0.0, 0.0, 0.0
    fours = n - n % 4
    for k in range(0, fours, 4):
        a += weights[k] * r[k]
        b += weights[k + 1] * r[k + 1]
        c += weights[k + 2] * r[k + 2]
        d += weights[k + 3] * r[k + 3]
    for k in range(fours, n):
        a += weights[k] * r[k]
    return (a + b) + (c + d)


# ---- sums of the events since any moment, nearly


@inlined
def slot_of(t: int, levels: int) -> int:
    """Where the copy made after event t, a multiple of FINEST, goes: over the older of its level."""
    step, level = t // FINEST, 0
    while step % 2 == 0 and level < levels - 1:
        step //= 2
        level += 1
    turn = step // 2 if level < levels - 1 else step  # all on the last level, only odd steps on the others
    return level * COPIES + turn % COPIES


@inlined
def keep_copy(buf: Array, s: Array) -> None:
    """Copy the sums of a stream, if it is time for a copy."""
    t = int(s[TIME])
    if t % FINEST == 0:
        n, first = int(buf[SUMS]), int(buf[AT_SUMS])
        to = first + n + slot_of(t, int(buf[LEVELS])) * (1 + n)
        s[to] = t
        for c in range(n):
            s[to + 1 + c] = s[first + c]


def sums_since(copies: Array, sums: Array, start: int, t: int) -> tuple[int, Array]:
    """(event, sums of all events after that event), for the copy nearest to ``start``; t is the last event of the stream.

    Of the events after ``start`` no more than a quarter are left out: later there might be few left, or none. Event 0 is the
    start of the run.
    """
    at = copies[:, 0]
    kept = copies[(at > 0.0) & (at <= start + (t - start) / 4.0)]
    known = np.concatenate([np.zeros((1, copies.shape[1])), kept])
    nearest = known[np.argmin(np.abs(known[:, 0] - start))]
    return int(nearest[0]), sums - nearest[1:]


# ---- bets against probabilities: lines, that every event touches, and stakes in bins of the claim

# The constants of such a detector: the tolerance; how starts are weighed; what one bin stakes in all, downwards and upwards; how
# many lines (the first) need an exponential, rounded up to whole vectors of four. Behind them slope, odds of the shift, and
# weight of each line, stake and weight in a bin.
TOLERATED, WEIGHING, BIN_SHARE, DOWN_SHARE, UP_SHARE, CURVED, LINES = range(FIRST, FIRST + 7)
COUNT, CLAIMS, OUTCOMES = range(3)  # the sums of a bin
LEAST = 1e-9  # lines take claims nearer to 0 or 1 as this: the odds of 0 would be no number

LARGEST_EXPONENT = 320  # of 2: for |x| up to 221, more than the steepest slope makes of the odds of LEAST
POWERS_OF_TWO = 2.0 ** np.arange(-LARGEST_EXPONENT, LARGEST_EXPONENT + 1)
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # together ln 2, the first with 32 bits only
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13 = (1.0 / np.cumprod(np.arange(1.0, 14.0)))[1:].tolist()  # 1 / k!


@inlined
def exponentials(slopes: Array, z: float, out: Array) -> None:
    """``out = exp(slopes * z)`` to 4e-16, for |slope * z| up to 221: in half the time of as many calls.

    exp(x) = 2^k exp(r) with k the nearest whole number to x / ln 2; |r| <= .35, where 13 terms of the series are exact. A plain
    loop that the compiler turns into vectors.
    """
    n, scaled = slopes.shape[0], z * LOG2_E
    for i in range(n):
        k = np.rint(slopes[i] * scaled)
        r = (slopes[i] * z - k * LN2_HIGH) - k * LN2_LOW
        r2 = r * r
        r4 = r2 * r2
        low, middle = (1.0 + r) + r2 * (C2 + C3 * r), (C4 + C5 * r) + r2 * (C6 + C7 * r)
        high, last = (C8 + C9 * r) + r2 * (C10 + C11 * r), C12 + C13 * r
        out[i] = low + r4 * (middle + r4 * (high + r4 * last))
    for i in range(n):  # its own loop: a look-up is no vector instruction
        out[i] *= POWERS_OF_TWO[int(np.rint(slopes[i] * scaled)) + LARGEST_EXPONENT]


@inlined
def cautious(a: float, p: float, y: float, tolerance: float) -> float:
    """What a bet of stake a becomes if gaps up to ``tolerance`` are no reason to win: never below 0, expectation at most 1."""
    a = min(a, 1.0 / (p + tolerance)) if a > 0.0 else max(a, -1.0 / (1.0 - p + tolerance))
    return float(max(1.0 + a * (y - p) - abs(a) * tolerance, 0.0))


@inlined
def stake_of_odds(claimed: float, odds: float) -> float:
    """The a of 1 + a (y - p), where outcomes came with these odds and not with those ``claimed``."""
    return (odds / claimed - 1.0) * (1.0 + claimed) / (1.0 + odds)


def weighing(arl: float) -> float:
    """What is at stake, p (1 - p), times this is laid on a bet, and at most 1."""
    return max(arl, LEAST_ARL) / RARER_IN_ARL


@inlined
def at_stake(buf: Array, p: float) -> tuple[float, float]:
    """What is laid on bets with |a| up to 1 that win downwards, and upwards: where it is above 1, 1."""
    low, high = max(p - buf[TOLERATED], 0.0), min(p + buf[TOLERATED], 1.0)
    return buf[WEIGHING] * low * (1.0 - low), buf[WEIGHING] * high * (1.0 - high)


@inlined
def line_odds(buf: Array, x: Array, p: float) -> float:
    """Write into x the odds of each line; the odds claimed."""
    n, curved = int(buf[BETS]), int(buf[CURVED])
    slopes, shifts = buf[LINES : LINES + n], buf[LINES + n : LINES + 2 * n]
    pc = min(max(p, LEAST), 1.0 - LEAST)
    odds = pc / (1.0 - pc)
    exponentials(slopes[:curved], math.log(odds), x[:curved])
    for k in range(curved, n):
        x[k] = odds
    for k in range(n):
        x[k] *= shifts[k]
    return odds


@inlined
def line_starts(x: Array, starts: Array, odds: float, down: float, up: float) -> None:
    """Write into ``starts`` what is laid on each line: x are their odds."""
    inverse, both = 1.0 / odds, 1.0 + odds
    for k in range(x.shape[0]):
        a = (x[k] * inverse - 1.0) * both / (1.0 + x[k])
        g = (up if a > 0.0 else down) * (a if a > 1.0 else -a if a < -1.0 else 1.0)
        starts[k] = g if g < 1.0 else 1.0


@inlined
def line_increments(buf: Array, x: Array, odds: float, p: float, y: float) -> None:
    """Turn the odds of each line, in x, into what it multiplies its stakes by."""
    n, tolerance, pc = x.shape[0], buf[TOLERATED], min(max(p, LEAST), 1.0 - LEAST)
    lost, won = (1.0 - y) * (1.0 + odds), y * (1.0 + odds) / odds
    if tolerance == 0.0 and pc == p:
        for k in range(n):
            x[k] = (lost + won * x[k]) / (1.0 + x[k])
    elif tolerance == 0.0:
        for k in range(
            n
        ):  # the stake is that of the clipped claim, the bet on the claim as it is: else a sure thing would win
            x[k] = max((lost + won * x[k]) / (1.0 + x[k]) + stake_of_odds(odds, x[k]) * (pc - p), 0.0)
    else:
        for k in range(n):
            x[k] = cautious(stake_of_odds(odds, x[k]), p, y, tolerance)


@inlined
def stake_increment(a: float, p: float, y: float, tolerance: float) -> float:
    """What a stake of a in the bin of this event multiplies by."""
    return 1.0 + a * (y - p) if tolerance == 0.0 else cautious(a, p, y, tolerance)


@inlined
def bin_of(buf: Array, p: float) -> int:
    """The bin of a claim: bins of equal width."""
    bins = buf[BINS]
    return int(uniform_bin(p, bins, 0.0, 1.0, 0.0, bins, bins - 1.0))


@inlined
def add(sums: Array, j: int, p: float, y: float) -> None:
    """Add the event to the sums of its bin."""
    sums[3 * j + COUNT] += 1.0
    sums[3 * j + CLAIMS] += p
    sums[3 * j + OUTCOMES] += y


@inlined
def impossible(buf: Array, p: float, y: float) -> bool:
    """Whether something came that the claim said could not: infinite evidence, unless gaps are tolerated."""
    return bool(buf[TOLERATED] == 0.0 and ((p == 0.0 and y > 0.0) or (p == 1.0 and y < 1.0)))


@inlined
def accumulate_bin(buf: Array, s: Array, j: int, p: float, y: float) -> None:
    """Bring the bin of this event up to date, accumulate its bets, and note their weighted sum over all starts.

    Few bets: one loop of plain numbers, since the vectors of :func:`accumulate` would cost more than they save.
    """
    n, bins, here, t = int(buf[STAKES]), int(buf[BINS]), int(buf[AT_BINS]) + j, s[TIME]
    at, own = LINES + 3 * int(buf[BETS]), int(buf[AT_BINNED]) + MOMENTS * n * j
    # slices and plain numbers: of these the compiler knows that no index counts from the end and nothing written changes them
    bets, stakes, weights = s[own : own + MOMENTS * n], buf[at : at + n], buf[at + n : at + 2 * n]
    passed, total, tolerance = t - s[here], 0.0, buf[TOLERATED]
    down, up = s[DOWN] - s[here + LAID_DOWN * bins], s[UP] - s[here + LAID_UP * bins]
    age, square = mean_ages(passed)
    for k in range(n):
        b, x, starts = MOMENTS * k, stake_increment(stakes[k], p, y, tolerance), up if stakes[k] > 0.0 else down
        bets[b + A2] = (
            bets[b + A2] + 2.0 * passed * bets[b + A1] + passed * passed * bets[b + R] + starts * square
        ) * x
        bets[b + A1] = (bets[b + A1] + passed * bets[b + R] + starts * age) * x
        bets[b + R] = (bets[b + R] + starts) * x
        bets[b + BEGAN] = t if bets[b + M] <= EVEN else bets[b + BEGAN]
        bets[b + M] = (1.0 if bets[b + M] <= EVEN else bets[b + M]) * x
        total += weights[k] * bets[b + R]
    s[here], s[here + bins] = t, total - (buf[DOWN_SHARE] * s[DOWN] + buf[UP_SHARE] * s[UP])
    s[here + LAID_DOWN * bins], s[here + LAID_UP * bins] = s[DOWN], s[UP]


@inlined
def all_bins(buf: Array, s: Array) -> float:
    """The weighted sum over all starts of the bets in all bins, those that were not touched as they would be by now."""
    n, first, total, other = int(buf[BINS]), int(buf[AT_BINS]), 0.0, 0.0
    staked = s[first + n : first + 2 * n]
    for j in range(0, n - 1, 2):
        total += staked[j]
        other += staked[j + 1]
    total += other + (staked[n - 1] if n % 2 else 0.0)
    return float(max(total + n * (buf[DOWN_SHARE] * s[DOWN] + buf[UP_SHARE] * s[UP]), 0.0))


@inlined
def probability_event(buf: Array, s: Array, p: float, y: float) -> float:
    """Take one event (p and y in [0, 1]) into stream s: the weighted sum of all bets over all starts."""
    s[TIME] += 1.0
    n, first, total = int(buf[BETS]), int(buf[AT_BETS]), 0.0
    down, up = at_stake(buf, p)
    if n > 0:
        at = first + MOMENTS * n
        bets, x, starts = s[first:at], s[at : at + n], s[int(buf[AT_STARTS]) : int(buf[AT_STARTS]) + n]
        odds, whole = line_odds(buf, x, p), down >= 1.0 and up >= 1.0
        if not whole:
            line_starts(x, starts, odds, down, up)
        line_increments(buf, x, odds, p, y)
        if not whole:  # the rest of accumulate does not look at what is laid
            for k in range(n):
                starts[k] = (bets[k] + starts[k]) * x[k]
        accumulate(bets, x, s[TIME], 1.0)
        if not whole:
            bets[:n] = starts
        total = weighted(buf[LINES + 2 * n : LINES + 3 * n], bets[:n])
    s[DOWN] += min(down, 1.0)
    s[UP] += min(up, 1.0)
    j = bin_of(buf, p)
    accumulate_bin(buf, s, j, p, y)
    add(s[int(buf[AT_SUMS]) :], j, p, y)
    keep_copy(buf, s)
    return math.inf if impossible(buf, p, y) else total + all_bins(buf, s)
