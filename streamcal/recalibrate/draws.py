"""Reproducible draws: a pure function of a seed and the number of events, so that asking twice gives the same one."""

from __future__ import annotations

import numpy as np

from streamcal._jit import JIT, inlined

GOLDEN, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
BITS = 2.0**-53

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
