"""Adversaries of the online forecasters: they see the state and the distribution of the next forecast, but not its draw.

``game(forecaster, adversary, p)`` plays len(p) events in one kernel and returns (forecasts, outcomes). ADVERSARIES names them:

- "expectation": y = 1 where the expected forecast is below 1/2
- "gap": the y that makes the expected sum of |S_i - midpoint_i N_i|, which is K1 times the number of events, largest
- "potential": the y that makes the expected sum of max(deficit, 0)^2 + max(excess, 0)^2 largest

Against a forecaster without chance all three are y = 1[forecast < 1/2]: a calibration error of at least 1/2 by value.
"""

from __future__ import annotations

import numpy as np

from streamcal._jit import inlined, kernel
from streamcal.binning import bin_of
from streamcal.recalibrate import calibeating, forecasting
from streamcal.recalibrate.calibeating import Calibeating, calibeating_learn
from streamcal.recalibrate.forecasting import (
    PAIRS,
    AlmostOneStepAhead,
    FosterForecaster,
    ahead_learn,
    foster_learn,
    mixture,
)

Array = np.ndarray
ADVERSARIES = {"expectation": 0, "gap": 1, "potential": 2}
EXPECTATION, GAP, POTENTIAL = range(3)


@inlined
def harm(adversary: int, buf: Array, place: int, i: int, m: int, y: float) -> float:
    """What interval i, whose pair (N, S) is at ``place``, would add to the adversary's sum after another outcome y."""
    weight, outcomes = buf[place] + 1.0, buf[place + 1] + y
    if adversary == GAP:
        return abs(outcomes - (i + 0.5) / m * weight)
    deficit, excess = max(i / m * weight - outcomes, 0.0), max(outcomes - (i + 1) / m * weight, 0.0)
    return deficit * deficit + excess * excess


@inlined
def worst(adversary: int, buf: Array, base: int, m: int, pivot: int) -> float:
    """The outcome that this adversary picks against the Foster forecaster whose pairs begin at ``base``."""
    i, chance = mixture(buf, base, m, pivot)
    if adversary == EXPECTATION:
        return 1.0 if (i + 1.5 - chance) / m < 0.5 else 0.0
    place, gain = base + 2 * i, 0.0
    for side in range(1 if chance == 1.0 else 2):
        rise = harm(adversary, buf, place + 2 * side, i + side, m, 1.0)
        fall = harm(adversary, buf, place + 2 * side, i + side, m, 0.0)
        gain += (chance if side == 0 else 1.0 - chance) * (rise - fall)
    return 1.0 if gain > 0.0 else 0.0


@kernel
def against_foster(adversary: int, buf: Array, p: Array, w: Array, y: Array, q: Array) -> None:
    m = int(buf[forecasting.M])
    for t in range(p.shape[0]):
        y[t] = worst(adversary, buf, PAIRS, m, 0)
        q[t] = foster_learn(buf, p[t], y[t], w[t])


@kernel
def against_hedging(adversary: int, buf: Array, p: Array, w: Array, y: Array, q: Array) -> None:
    own = buf.shape[0] - calibeating.OWN
    m, first = int(buf[own + calibeating.M]), int(buf[own + calibeating.FIRST])
    for t in range(p.shape[0]):
        base = first + 2 * m * bin_of(buf, p[t])
        y[t] = worst(adversary, buf, base, m, calibeating.pivot_of(p[t], m))
        q[t] = calibeating_learn(buf, p[t], y[t], w[t])


@kernel
def against_tracking(buf: Array, p: Array, w: Array, y: Array, q: Array) -> None:
    for t in range(p.shape[0]):
        y[t] = 1.0 if calibeating_learn(buf, p[t], 0.0, 0.0) < 0.5 else 0.0
        q[t] = calibeating_learn(buf, p[t], y[t], w[t])


@kernel
def against_ahead(buf: Array, p: Array, w: Array, y: Array, q: Array) -> None:
    for t in range(p.shape[0]):
        y[t] = 1.0 if ahead_learn(buf, p[t], 0.0, 0.0) < 0.5 else 0.0
        q[t] = ahead_learn(buf, p[t], y[t], w[t])


@kernel
def against_running_mean(m: int, y: Array, q: Array) -> None:
    """The foil: the mean of the outcomes so far, on a grid of m levels, is what 1[forecast < 1/2] beats for ever."""
    total = 0.0
    for t in range(y.shape[0]):
        q[t] = np.rint(m * (total / t if t else 0.5)) / m
        y[t] = 1.0 if q[t] < 0.5 else 0.0
        total += y[t]


def game(
    forecaster: FosterForecaster | AlmostOneStepAhead | Calibeating, adversary: str, p: Array, w: Array | None = None
) -> tuple[Array, Array]:
    """(forecasts, outcomes) of len(p) events; the forecaster has learned them afterwards, its comparison has not."""
    kind, y, q = ADVERSARIES[adversary], np.empty(len(p)), np.empty(len(p))
    p, w = np.array(p, dtype=np.float64), np.ones(len(p)) if w is None else np.array(w, dtype=np.float64)
    if isinstance(forecaster, FosterForecaster):
        against_foster(kind, forecaster._buf, p, w, y, q)
    elif isinstance(forecaster, AlmostOneStepAhead):
        against_ahead(forecaster._buf, p, w, y, q)
    elif forecaster.method == "hedging":
        against_hedging(kind, forecaster._buf, p, w, y, q)
    else:
        against_tracking(forecaster._buf, p, w, y, q)
    return q, y


def foil(m: int, n: int) -> tuple[Array, Array]:
    """(forecasts, outcomes) of n events of the running mean on a grid against y = 1[forecast < 1/2]."""
    y, q = np.empty(n), np.empty(n)
    against_running_mean(m, y, q)
    return q, y
