"""Streams to measure detectors on: calibrated ones, changes that ought to be found, and changes that are no reason for an alarm.

A **draw** makes claims p for the events numbered t: ``draw(t, rng) -> p``. A **stream** makes whole events, as many arrays of
shape (n,) as the detector takes: ``stream(t, rng) -> (p, y)``. Both are plain functions of the numbers of the events (an integer
array of shape (n,)) and of a numpy ``Generator``, so a stream of one's own is a function of three lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, Ints

Draw = Callable[[Ints, np.random.Generator], Array]
Stream = Callable[[Ints, np.random.Generator], tuple[Array, ...]]
BINS = 10


def beta(a: float, b: float) -> Draw:
    """Claims from a Beta distribution: Beta(.2, .2) is sharp, Beta(8, 8) dull, Beta(.5, 20) of rare events.

    >>> float(beta(2, 2)(np.arange(10_000), np.random.default_rng(0)).mean().round(2))
    0.5
    """
    return lambda t, rng: rng.beta(a, b, t.size)


def seasonal(swing: float = 1.5, period: float = 700.0, spread: float = 0.7, middle: float = -0.5) -> Draw:
    """Claims about a base rate that goes up and down: log odds are normal around a sine of this swing and period (events)."""

    def draw(t: Ints, rng: np.random.Generator) -> Array:
        return sigmoid(middle + swing * np.sin(2.0 * math.pi / period * t) + rng.normal(0.0, spread, t.size))

    return draw


def by_turns(first: Draw, second: Draw, every: int = 1000) -> Draw:
    """``every`` events of the first draw, as many of the second, and so on."""

    def draw(t: Ints, rng: np.random.Generator) -> Array:
        return np.where(t // every % 2 == 0, first(t, rng), second(t, rng))

    return draw


def calibrated(draw: Draw) -> Stream:
    """(p, y) with y = 1 with probability p: nothing to be found.

    >>> p, y = calibrated(beta(2, 2))(np.arange(10_000), np.random.default_rng(0))
    >>> float(y[p > 0.7].mean().round(1)), float(p[p > 0.7].mean().round(1))
    (0.8, 0.8)
    """

    def stream(t: Ints, rng: np.random.Generator) -> tuple[Array, ...]:
        p = draw(t, rng)
        return p, came(p, rng)

    return stream


def distorted(draw: Draw, slope: float = 1.0, shift: float = 0.0) -> Stream:
    """(p, y): the draw makes the true probabilities q, claimed is p = sigmoid(slope * logit(q) + shift).

    A slope above 1 is too extreme, below 1 not extreme enough; a shift above 0 is too high.

    >>> p, y = distorted(beta(2, 2), slope=2.0)(np.arange(10_000), np.random.default_rng(0))
    >>> float(p[p > 0.9].mean()) - float(y[p > 0.9].mean()) > 0.1
    True
    """

    def stream(t: Ints, rng: np.random.Generator) -> tuple[Array, ...]:
        q = draw(t, rng)
        with np.errstate(divide="ignore"):
            claims = sigmoid(slope * (np.log(q) - np.log1p(-q)) + shift)
        return claims, came(q, rng)

    return stream


def off(draw: Draw, gaps: Sequence[float]) -> Stream:
    """(p, y): claims from the draw; in bin m of as many equal bins (m / M, (m + 1) / M] the true probability is p + gaps[m].

    True probabilities are cut to [0, 1].
    """
    edges, gap = np.arange(1, len(gaps)) / len(gaps), np.asarray(gaps, dtype=np.float64)

    def stream(t: Ints, rng: np.random.Generator) -> tuple[Array, ...]:
        p = draw(t, rng)
        return p, came(np.clip(p + gap[np.searchsorted(edges, p)], 0.0, 1.0), rng)

    return stream


def one_bin(m: int, gap: float) -> list[float]:
    """Gaps of ten bins of which only bin m is off."""
    return [gap if bin == m else 0.0 for bin in range(BINS)]


def given(*events: npt.ArrayLike) -> Stream:
    """A recorded stream of n events, from arrays of n rows each: measure it with ``most=n``, it has no more.

    >>> [e.tolist() for e in given([0.1, 0.2, 0.3], [0, 1, 1])(np.arange(1, 9), np.random.default_rng(0))]
    [[0.2, 0.3], [1.0, 1.0]]
    """
    arrays = [np.asarray(e, dtype=np.float64) for e in events]
    return lambda t, rng: tuple(e[t[t < len(e)]] for e in arrays)


def uniform(t: Ints, rng: np.random.Generator) -> tuple[Array, ...]:
    """(u,): the PITs of right forecasts."""
    return (rng.random(t.size),)


def normal_pits(spread: float = 1.0, shift: float = 0.0) -> Stream:
    """(u,): PITs of standard normal forecasts of outcomes with this standard deviation and mean.

    >>> u, = normal_pits(spread=1.5)(np.arange(10_000), np.random.default_rng(0))
    >>> bool(((u < 0.05) | (u > 0.95)).mean() > 0.2)
    True
    """
    erf = np.frompyfunc(math.erf, 1, 1)

    def stream(t: Ints, rng: np.random.Generator) -> tuple[Array, ...]:
        z = shift + spread * rng.normal(size=t.size)
        return (0.5 + 0.5 * np.asarray(erf(z / math.sqrt(2.0)), dtype=np.float64),)

    return stream


def covered(share: float) -> Stream:
    """(v, y): forecasts v of a quantile that the outcome stays below, or meets, with probability ``share``."""

    def stream(t: Ints, rng: np.random.Generator) -> tuple[Array, ...]:
        return np.full(t.size, share), 1.0 - rng.random(t.size)

    return stream


def bold(share: float, p: float) -> float:
    """A forecaster that looks at the evidence: calm below .3 of the threshold, sure of itself the nearer it comes."""
    return p if share < 0.3 else 0.75 if share < 0.6 else 0.02


def sigmoid(z: Array) -> Array:
    """1 / (1 + exp(-z))."""
    return np.exp(-np.logaddexp(0.0, -z))


def came(q: Array, rng: np.random.Generator) -> Array:
    """Outcomes 0.0 or 1.0 of these probabilities."""
    return (rng.random(q.size) < q).astype(np.float64)


CALM = beta(2, 2)

#: Calibrated throughout.
CALIBRATED: dict[str, Stream] = {
    "Beta(2,2)": calibrated(CALM),
    "Beta(.2,.2)": calibrated(beta(0.2, 0.2)),
    "Beta(.5,20)": calibrated(beta(0.5, 20)),
    "seasonal": calibrated(seasonal()),
    "sharp, dull by turns": calibrated(by_turns(beta(0.4, 0.4), beta(8, 8))),
}

#: What follows on a calibrated Beta(2,2) and ought to be found.
CHANGES: dict[str, Stream] = {
    "too extreme 1.25": distorted(CALM, 1.25),
    "too extreme 1.5": distorted(CALM, 1.5),
    "too extreme 2": distorted(CALM, 2.0),
    "too extreme 3": distorted(CALM, 3.0),
    "not extreme enough .6": distorted(CALM, 0.6),
    "too high .2": distorted(CALM, 1.0, 0.2),
    "too high .5": distorted(CALM, 1.0, 0.5),
    "too high 1": distorted(CALM, 1.0, 1.0),
    "one bin .1": off(CALM, one_bin(7, -0.1)),
    "one bin .3": off(CALM, one_bin(7, -0.3)),
    "zigzag .2": off(CALM, [0.2, -0.2] * 5),
}

#: What follows on a calibrated Beta(2,2), is calibrated too, and ought to be left alone.
QUIET: dict[str, Stream] = {
    "none": calibrated(CALM),
    "sharper Beta(.4,.4)": calibrated(beta(0.4, 0.4)),
    "duller Beta(8,8)": calibrated(beta(8, 8)),
    "rarer Beta(1,9)": calibrated(beta(1, 9)),
    "rarer Beta(.5,20)": calibrated(beta(0.5, 20)),
    "more often Beta(9,1)": calibrated(beta(9, 1)),
}

#: What follows on right normal forecasts.
SHIFTS: dict[str, Stream] = {
    "sd x1.1": normal_pits(1.1),
    "sd x1.25": normal_pits(1.25),
    "sd x1.5": normal_pits(1.5),
    "sd x.8": normal_pits(0.8),
    "shift .1 sd": normal_pits(shift=0.1),
    "shift .25 sd": normal_pits(shift=0.25),
    "shift .5 sd": normal_pits(shift=0.5),
}
