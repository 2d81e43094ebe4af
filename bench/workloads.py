"""The streams and the clock that every bench shares."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np


def calibrated(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """n uniform predictions and 0/1 outcomes of a calibrated model, both float64."""
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return p, (rng.random(n) < p).astype(np.float64)


def best(function: Callable[..., Any], *args: Any, repeat: int = 5) -> float:
    """Seconds of the fastest of ``repeat`` runs, after one that warms up."""
    function(*args)
    fastest = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        function(*args)
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


def interleaved(functions: dict[str, Callable[[], Any]], repeat: int = 7) -> dict[str, float]:
    """Seconds of the fastest run of each function, in turns, so that a slow moment hits all of them."""
    fastest = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for _ in range(repeat):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            fastest[name] = min(fastest[name], time.perf_counter() - start)
    return fastest
