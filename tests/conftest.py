"""Hypothesis profile, the marks, and where the shared files are."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("live_employment", "live_reader", "live_streams", "live_watch")
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ci")


# Stages of their own: named by `-m`, left out otherwise. STREAMCAL_TESTS says how much of their numbers: whole, or a quarter.
STAGES = ("statistical", "servers")
# Rooms whose tests run once more as plain Python.
KERNELS = ("engine", "windows", "recalibrate", "drift")
QUARTER = os.environ.get("STREAMCAL_TESTS", "quarter") != "whole"
PLAIN = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def pytest_collection_modifyitems(config, items):
    named = [stage for stage in STAGES if stage in config.option.markexpr]
    left, out = [], []
    for item in items:
        stages = [stage for stage in STAGES if stage in item.keywords]
        (left if not stages or named or item.nodeid in config.args else out).append(item)
        if PLAIN and "jit" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="would take over 20 s with NUMBA_DISABLE_JIT=1"))
    if os.environ.get("STREAMCAL_COVERAGE") == "sparing":
        count_lines_sparingly(left)
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = left


def count_lines_sparingly(items):
    """Counting lines makes a test half as fast, so the gate counts those that are new.

    Of the cases of one test every fourth is counted; of the rooms with kernels all lines, those of kernels with them, are counted
    as plain Python only; tests of the house and of examples look at files and start processes.
    """
    cases = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        cases[test] += 1
        elsewhere = not PLAIN and item.path.parent.name in (*KERNELS, "tests")
        if elsewhere or cases[test] % 4 != 1:
            item.add_marker("no_cover")


def some(number: int) -> int:
    """So many streams, kills or events of a long test: all in a whole run, else a quarter (bounds come from the number)."""
    return max(number // 4, 1) if QUARTER else number


def sized(number: int, plain: int) -> int:
    """So many events, or streams, of a test; fewer where kernels run as plain Python (bounds come from the number)."""
    return plain if PLAIN else number


def wider(number: int) -> float:
    """By how many standard deviations of one draw a bound on a mean is wider where ``some(number)`` are drawn: 0 in a whole run.

    That is two standard errors of the smaller number less two of the whole one, for which the bound was made.
    """
    return 2.0 * (some(number) ** -0.5 - number**-0.5)


def shared() -> Path:
    """Folder of shared cases and data: STREAMCAL_SHARED, or `shared` beside the project."""
    return Path(os.environ.get("STREAMCAL_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared_file():
    """``shared_file("data/x.npz")`` -> its path; skips with the reason when it is absent."""

    def find(name: str) -> Path:
        path = shared() / name
        if not path.is_file():
            pytest.skip(f"{name} is not here: set STREAMCAL_SHARED to the folder that holds it")
        return path

    return find


@pytest.fixture(scope="session")
def cifar(shared_file):
    """(probs float64 (10000, 10), labels) of a network on CIFAR-10."""
    with np.load(shared_file("data/cifar10_vgg_probs.npz")) as f:
        return f["probs"].astype(float), f["labels"].astype(int)


@pytest.fixture(scope="session")
def games(shared_file):
    """{league: (p, y)} of published win forecasts."""
    with np.load(shared_file("data/games_nba_mlb.npz")) as f:
        return {k: (f[f"{k}_games_prob"], f[f"{k}_games_outcome"].astype(float)) for k in ("nba", "mlb")}
