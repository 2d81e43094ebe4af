"""Calibrated forecasts of any sequence of outcomes, even an adversary's: Foster's random one, and one without chance.

A draw (:func:`uniform`) is a pure function of a seed and the number of events, so that asking twice gives the same one.
"""

from __future__ import annotations

import math

import numpy as np

from streamcal._jit import JIT, brief, inlined, kernel
from streamcal.arrays import Array, check_whole
from streamcal.limits import HEAVIEST, unit
from streamcal.recalibrate.online import Compiled, allowed, online
from streamcal.state import reserve
from streamcal.windows.window import whole_between

MOST_LEVELS = 1_000_000  # 16 MB of sums; more levels than events could never be told apart
MOST_EVENTS = 2**53  # and seeds: whole numbers up to here are exact
# SplitMix64: the golden ratio as a fraction of 2^64, and the two multipliers of its finalizer (Steele, Lea, Flood 2014).
GOLDEN, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
BITS = 2.0**-53  # of a double in [0, 1): the upper 53 bits of the mixed number

if JIT:

    @inlined
    def times(a: np.uint64, b: np.uint64) -> np.uint64:
        """Product modulo 2^64."""
        return a * b
else:

    def times(a: np.uint64, b: np.uint64) -> np.uint64:
        """Product modulo 2^64; numpy would warn of the overflow that is wanted here."""
        return np.uint64(int(a) * int(b) % 2**64)


@inlined
def uniform(seed: float, t: float) -> float:
    """A number in [0, 1) for whole numbers ``seed`` and ``t`` in 0..2^53: SplitMix64's mixing (Steele, Lea, Flood 2014)."""
    x = _mixed(times(np.uint64(seed + 1.0), GOLDEN))
    x = _mixed(x ^ times(np.uint64(t + 1.0), GOLDEN))
    return float(x >> np.uint64(11)) * BITS


@inlined
def _mixed(x: np.uint64) -> np.uint64:
    x = times(x ^ (x >> np.uint64(30)), FIRST)
    x = times(x ^ (x >> np.uint64(27)), SECOND)
    return x ^ (x >> np.uint64(31))


# Foster's buffer: three numbers, and for each interval its weight N and its weighted outcomes S.
M, SEED, LEARNED, PAIRS = range(4)
# The buffer without chance: two numbers, and for each level i / m the sum V of w (y - i / m) where it was the shadow.
MOVED, SUMS = 1, 2


@inlined
def mixture(buf: Array, base: int, m: int, pivot: int) -> tuple[int, float]:
    """(i, chance): Foster's rule plays interval i with this chance, and else i + 1.

    The pairs (N, S) of the m intervals begin at ``base``. Bisection, from ``pivot`` on: all intervals up to ``low`` are out, and
    low has seen too many outcomes above it (excess > 0); all from ``high`` on are out, and high has seen too few (deficit > 0).
    The lowest interval never has a deficit and the highest never an excess, as 0 <= S <= N: so low and high are real at the end.
    """
    low, high, i = -1, m, pivot
    while True:
        weight, outcomes = buf[base + 2 * i], buf[base + 2 * i + 1]
        if i * weight > m * outcomes:
            high = i
        elif m * outcomes > (i + 1) * weight:
            low = i
        else:
            return i, 1.0
        if high - low == 1:
            break
        i = (low + high) >> 1
    excess = m * buf[base + 2 * low + 1] - (low + 1) * buf[base + 2 * low]
    deficit = high * buf[base + 2 * high] - m * buf[base + 2 * high + 1]
    return low, float(deficit / (deficit + excess))


@inlined
def played(buf: Array, base: int, m: int, pivot: int, seed: float, learned: float) -> int:
    """The interval that is drawn: a function of the state, so that asking twice gives the same one."""
    i, chance = mixture(buf, base, m, pivot)
    return i + 1 if chance < 1.0 and uniform(seed, learned) >= chance else i


def are_pairs(values: Array) -> bool:
    """Whether a part of a buffer holds pairs (N, S) with 0 <= S <= N, which the bisection relies on."""
    weight, outcomes = values[0::2], values[1::2]
    return bool(((outcomes >= 0.0) & (outcomes <= weight) & (weight <= HEAVIEST * MOST_EVENTS)).all())


@inlined
def _foster(buf: Array, y: float, w: float) -> float:
    m = int(buf[M])
    i = played(buf, PAIRS, m, 0, buf[SEED], buf[LEARNED])
    if w > 0.0:
        buf[PAIRS + 2 * i] += w
        buf[PAIRS + 2 * i + 1] += w * y
        buf[LEARNED] += 1.0
    return (i + 0.5) / m


@brief
def foster_learn(buf: Array, p: float, y: float, w: float) -> float:
    """Predict, and learn if w > 0: see :class:`FosterForecaster`; nan if the event is not allowed."""
    return _foster(buf, y, w) if unit(p) == unit(p) and allowed(y, w) else np.nan


@kernel
def _foster_run(buf: Array, p: Array, y: Array, w: Array, out: Array) -> None:
    for i in range(y.shape[0]):
        out[i] = _foster(buf, y[i], w[i])


class Unaided(Compiled):
    """A forecaster that looks at past outcomes only: the raw prediction must be allowed, and is ignored."""

    def predict_one(self, p: float = 0.5) -> float:
        """The forecast of the next outcome; ``p`` is ignored. ValueError unless p is in [0, 1]."""
        return super().predict_one(p)


@online("foster")
class FosterForecaster(Unaided):
    r"""Forecasts that end up calibrated whatever the outcomes are, also if an adversary picks them; drawn at random.

    - ``m``: intervals, 1..1,000,000.
    - ``seed``: a whole number in 0..2^53; a draw is a function of it and of the number of events learned, so that asking twice
      gives the same forecast.

    The unit interval is cut into m intervals [l_i, r_i] = [i / m, (i + 1) / m]; a forecast is the midpoint of one of them. With
    N_i = sum of w and S_i = sum of w y over the events for which i was played:

    .. math:: d_i = l_i N_i - S_i \text{ (deficit)}, \qquad e_i = S_i - r_i N_i \text{ (excess)}

    Bisection finds an interval with neither, which is played, or neighbours with e_i > 0 and d_{i+1} > 0: then i is played with
    probability d_{i+1} / (d_{i+1} + e_i), else i + 1. It looks at the lowest interval first: before any event the forecast is
    1 / (2 m). The raw prediction is ignored.

    Guarantee, for outcomes in [0, 1] that may depend on all that has happened and on :meth:`distribution`, but not on the draw:

    .. math:: E\,K_1 \le \frac{1}{2m} + \sqrt{\frac{m}{T}}, \qquad \text{at } m = T^{1/3}: \; \tfrac32 T^{-1/3}

    K_1 is that of the played midpoints, by value; T is the number of events; rounding m costs at most 4 % (:meth:`levels_for`).
    A weight is one draw that counts w times: T becomes (sum w)^2 / sum w^2, for weights that do not depend on the draws. (Proof:
    sum of max(d_i, 0)^2 + max(e_i, 0)^2 grows by at most w^2 an event in expectation, since r_i = l_{i+1}.)

    NOT bounded: sharpness, Brier score and log loss (the base rate alone is calibrated); the error within any segment; a single
    run, other than the mean over draws; anything if an outcome is chosen after its draw was seen, or by who knows ``seed``.

    Cost per event O(log m); the state is 2 m + 3 numbers. Source: Foster
    1999 (A proof of calibration via Blackwell's approachability theorem); Foster, Vohra 1998 (Asymptotic calibration).

    >>> forecaster = FosterForecaster(m=10)
    >>> forecaster.predict_one()
    0.05
    >>> for outcome in [1, 1, 0, 1] * 50:
    ...     forecaster.learn_one(0.5, outcome)
    >>> [(round(value, 2), round(chance, 2)) for value, chance in forecaster.distribution()]
    [(0.75, 1.0)]
    """

    _learn, _run = foster_learn, _foster_run

    def __init__(self, m: int = 10, seed: int = 0) -> None:
        self.m = check_whole("m", m, 1, MOST_LEVELS)
        self.seed = check_whole("seed", seed, 0, MOST_EVENTS)
        reserve(2 * self.m)
        self._begin(np.concatenate([[float(self.m), float(self.seed), 0.0], np.zeros(2 * self.m)]))

    @staticmethod
    def levels_for(T: int) -> int:
        """The m that makes the bound smallest for T events: T^(1/3), rounded."""
        return max(1, round(math.cbrt(check_whole("T", T, 1, MOST_EVENTS))))

    def distribution(self) -> list[tuple[float, float]]:
        """What the next forecast is drawn from: one or two (value, probability). All that the guarantee lets an adversary see."""
        return mixed_values(*mixture(self._buf, PAIRS, self.m, 0), self.m)

    def _is_sound(self, buffer: Array) -> bool:
        same = bool((buffer[:LEARNED] == self._buf[:LEARNED]).all())
        return same and whole_between(buffer[LEARNED], 0, MOST_EVENTS) and are_pairs(buffer[PAIRS:])


def mixed_values(i: int, chance: float, m: int) -> list[tuple[float, float]]:
    """(midpoint, probability) of interval i, and of i + 1 unless i is certain."""
    low, high = ((i + 0.5) / m, chance), ((i + 1.5) / m, 1.0 - chance)
    return [low] if chance == 1.0 else [low, high]


@inlined
def _ahead(buf: Array, y: float, w: float) -> float:
    """Forecast a level i with V_i >= 0 >= V_{i+1}, found by bisection. V_0 = V_m = 0 always: a shadow there has no gap."""
    m = int(buf[M])
    low, high, i = 0, m, m >> 1  # V[low] >= 0 >= V[high]
    while buf[SUMS + i] < 0.0 or buf[SUMS + i + 1] > 0.0:
        low, high = (low, i) if buf[SUMS + i] < 0.0 else (i + 1, high)
        i = (low + high) >> 1
    p, above = i / m, (i + 1) / m
    if w <= 0.0:
        return p
    if y <= p:
        buf[SUMS + i] += w * (y - p)
    elif y >= above:
        buf[SUMS + i + 1] += w * (y - above)
        buf[MOVED] += w * (above - p)
    else:  # such an outcome is its own shadow, without a gap
        buf[MOVED] += w * (y - p)
    return p


@brief
def ahead_learn(buf: Array, p: float, y: float, w: float) -> float:
    """Predict, and learn if w > 0: see :class:`AlmostOneStepAhead`; nan if the event is not allowed."""
    return _ahead(buf, y, w) if unit(p) == unit(p) and allowed(y, w) else np.nan


@kernel
def _ahead_run(buf: Array, p: Array, y: Array, w: Array, out: Array) -> None:
    for i in range(y.shape[0]):
        out[i] = _ahead(buf, y[i], w[i])


@online("almost-one-step-ahead")
class AlmostOneStepAhead(Unaided):
    r"""Forecasts without chance that stay near a calibrated sequence whatever the outcomes are: within 2 sqrt(T) + 1.

    - ``m``: levels less one, 1..1,000,000.

    Levels 0, 1/m, ..., 1. The forecast is a level i / m such that V_i >= 0 >= V_{i+1}. Once y is known, its *shadow* is the one
    of the two levels that y pulls back to 0: i / m if y <= i / m, (i + 1) / m if y >= (i + 1) / m, and y itself in between. V_k
    is the sum of w (y - k / m) over the events whose shadow was k / m. Before any event the forecast is 1/2, or the level below
    it if m is odd. The raw prediction is ignored.

    Guarantee, for every sequence of outcomes in [0, 1], always: abs(V_k) <= the largest weight, and V_0 = V_m = 0. So after T
    events of weight 1 there is a perfectly calibrated sequence q near the forecasts p:

    .. math:: \sum_t |p_t - q_t| \le \sum_t |p_t - \text{shadow}_t| + \sum_k |V_k| \le \frac{T}{m} + m - 1 \le 2 \sqrt T + 1

    the last at m = sqrt(T), rounded (:meth:`levels_for`). With weights: sum w / m + (m - 1) max w. The middle is
    :attr:`shadow_distance`.

    NOT bounded: the calibration error of the forecasts by value (ECE, K_1). Against y = 1[p < 1/2] every forecaster without
    chance has at least 1/2, however long the stream: a level that is always met by 1 just below one that is always met by 0 is
    near a calibrated sequence, but is not one. :class:`FosterForecaster` draws for that. Nor sharpness, Brier score or segments.

    Cost per event O(log m); the state is m + 3 numbers. Source: Arunachaleswaran, Collina,
    Roth, Shi 2024 (An elementary predictor obtaining 2 sqrt(T) + 1 distance to calibration).

    >>> forecaster = AlmostOneStepAhead(m=10)
    >>> forecaster.predict_one()
    0.5
    >>> for outcome in [1, 1, 0, 1] * 25:
    ...     forecaster.learn_one(0.5, outcome)
    >>> forecaster.shadow_distance <= 100 / 10 + 10 - 1
    True
    """

    _learn, _run = ahead_learn, _ahead_run

    def __init__(self, m: int = 100) -> None:
        self.m = check_whole("m", m, 1, MOST_LEVELS)
        reserve(self.m)
        self._begin(np.concatenate([[float(self.m), 0.0], np.zeros(self.m + 1)]))

    @staticmethod
    def levels_for(T: int) -> int:
        """The m that makes the bound smallest for T events: sqrt(T), rounded."""
        return max(1, round(math.sqrt(check_whole("T", T, 1, MOST_EVENTS))))

    @property
    def shadow_distance(self) -> float:
        """Sum of w abs(p - shadow) + sum of abs(V): no less than the distance of the forecasts to a calibrated sequence."""
        return float(self._buf[MOVED] + np.abs(self._buf[SUMS:]).sum())

    def _is_sound(self, buffer: Array) -> bool:
        ends = buffer[SUMS] == buffer[-1] == 0.0  # the bisection relies on it
        moved = 0.0 <= buffer[MOVED] <= HEAVIEST * MOST_EVENTS
        return bool(buffer[M] == self.m and moved and ends and (np.abs(buffer[SUMS:]) <= HEAVIEST).all())
