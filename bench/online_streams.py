"""Four streams on which online recalibrators differ: each a function seed -> (p, y) of 20,000 events.

In the first three the outcome has probability sigmoid(z) with z ~ N(0, 1.45^2), and the forecast is sigmoid(a z + b) with
(a, b) that may move in time: Platt's map a step behind. The fourth is outside Platt's family.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray
T, SPREAD = 20_000, 1.45


def _sigmoid(z: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-z))


def _distorted(seed: int, a: Array | float, b: Array | float) -> tuple[Array, Array]:
    """Outcomes of probability sigmoid(z), forecast as sigmoid(a z + b)."""
    rng = np.random.default_rng(seed)
    z = SPREAD * rng.normal(size=T)
    return _sigmoid(a * z + b), (rng.random(T) < _sigmoid(z)).astype(np.float64)


def overconfident(seed: int) -> tuple[Array, Array]:
    """The same at all times: a = 2.15, b = 0."""
    return _distorted(seed, 2.15, 0.0)


def abrupt(seed: int) -> tuple[Array, Array]:
    """a = 2 throughout; b = 0 in the first half, 1.8 in the second."""
    return _distorted(seed, 2.0, np.where(np.arange(T) < T // 2, 0.0, 1.8))


def slow(seed: int) -> tuple[Array, Array]:
    """a grows evenly from 1 to 1.9; b = 0."""
    return _distorted(seed, np.linspace(1.0, 1.9, T), 0.0)


def cubic(seed: int) -> tuple[Array, Array]:
    """p uniform, outcomes of probability (1 + (2 p - 1)^3) / 2: flat in the middle, which no Platt map is."""
    rng = np.random.default_rng(seed)
    p = rng.random(T)
    return p, (rng.random(T) < (1.0 + (2.0 * p - 1.0) ** 3) / 2.0).astype(np.float64)


STREAMS: dict[str, Callable[[int], tuple[Array, Array]]] = {
    "iid too extreme": overconfident,
    "abrupt drift": abrupt,
    "slow drift": slow,
    "not Platt's shape": cubic,
}
