"""Intervals of a regressor whose labels come late, one by one or in mini-batches: how often do they cover?

    python bench/river_late_regressors.py [--seeds 2] [--events 8000]

Coverage at .9 and mean width of the normal interval at the running scale ("untouched") and of the one that
RecalibratedRegressor(interval=.9) served, about the forecasts of one linear model; of the events served after the first label
had come, as both have no width before. "shortfall" is how far the served coverage of a block of 500 events (200 of
TrumpApproval) lies below the untouched one or .9, whichever is lower, in the worst block; a block's standard error is .013
(.021). Takes half a minute. Exits with 1 if a figure misses its bound.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
from collections import deque

import numpy as np
import polars as pl
from checks import Checks
from rich.table import Table
from river import datasets, linear_model, preprocessing
from tables import Console

from streamcal.river import RecalibratedRegressor

Rows = list[tuple[dict[str, float], float]]
LEVEL = 0.9


def made(events: int, seed: int, spread) -> Rows:
    """y = 5 x + spread(i) N(0, 1), and a feature of no use."""
    rng = random.Random(seed)
    rows = []
    for i in range(events):
        x = rng.uniform(-1.0, 1.0)
        rows.append(({"x": x, "other": rng.random()}, 5.0 * x + spread(i) * rng.gauss(0.0, 1.0)))
    return rows


def approval(events: int, seed: int) -> Rows:
    return [({name: float(v) for name, v in x.items()}, y) for x, y in datasets.TrumpApproval()]


STREAMS = {
    "iid": lambda events, seed: made(events, seed, lambda i: 1.0),
    "spread 1, 3, 1, ... by 2,500": lambda events, seed: made(events, seed, lambda i: 3.0 if i // 2500 % 2 else 1.0),
    "spread e^sin, period 3,000": lambda events, seed: made(
        events, seed, lambda i: math.exp(math.sin(i * math.tau / 3000))
    ),
    "TrumpApproval": approval,
}
FEEDS = [("late", 0), ("late", 10), ("late", 100), ("late", 1000), ("batch", 10), ("batch", 20), ("batch", 100)]
TOO_MUCH = [
    ("late", 1000),
    ("batch", 10),
]  # for TrumpApproval: it has 1,001 events, and River's scaler fails on the batches


def one_by_one(model: RecalibratedRegressor, rows: Rows, delay: int) -> None:
    """Feed the rows, each label ``delay`` events late."""
    waiting: deque[tuple[int, dict[str, float], float]] = deque()
    for i, (x, y) in enumerate(rows):
        model.predict_one(x, with_interval=True, id=i)
        waiting.append((i, x, y))
        if len(waiting) > delay:
            k, x, y = waiting.popleft()
            model.learn_one(x, y, id=k)


def in_batches(model: RecalibratedRegressor, rows: Rows, size: int) -> None:
    """Feed the rows in mini-batches: all of one are predicted, then all are learned."""
    for part in (rows[i : i + size] for i in range(0, len(rows), size)):
        X = pl.DataFrame([x for x, _ in part])
        model.predict_many(X)
        model.learn_many(X, pl.Series("y", [y for _, y in part]))


class Noted(list):
    """Takes the place of the sums of a model's report: every interval that is learned, (covered, width)."""

    def __init__(self, sums) -> None:
        self.sums = sums

    def learn(self, lower: float, upper: float, y: float, w: float) -> None:
        self.append((float(lower <= y <= upper), upper - lower))
        self.sums.learn(lower, upper, y, w)


def play(rows: Rows, feed: str, size: int, **asked) -> np.ndarray:
    """(n, 4): untouched coverage and width, served coverage and width of the events served after the first label."""
    inner = preprocessing.StandardScaler() | linear_model.LinearRegression(intercept_lr=0.1)
    model = RecalibratedRegressor(inner, interval=LEVEL, **asked)
    model._map.before, model._map.after = Noted(model._map.before), Noted(model._map.after)
    (one_by_one if feed == "late" else in_batches)(model, rows, size)
    return np.hstack([np.array(model._map.before), np.array(model._map.after)])[max(size, 1) :]


def shortfall(found: np.ndarray, block: int) -> float:
    """See the top; below 0 if the served intervals cover more in every block."""
    blocks = [found[i : i + block].mean(0) for i in range(0, len(found) - block + 1, block)]
    return max(min(b[0], LEVEL) - b[2] for b in blocks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--events", type=int, default=8000)
    parser.add_argument("--method", default="tracker")
    parser.add_argument("--symmetric", action="store_true")
    args = parser.parse_args()
    checks, console = Checks(), Console(width=140)
    table = Table("stream", "labels", "untouched", "served", "width", "shortfall", title="coverage at .9 and width")
    for (name, make), (feed, size) in itertools.product(STREAMS.items(), FEEDS):
        real = make is approval
        if real and (feed, size) in TOO_MUCH:
            continue
        runs = [
            play(make(args.events, seed), feed, size, method=args.method, symmetric=args.symmetric)
            for seed in range(1 if real else args.seeds)
        ]
        before, wide, after, served = np.mean([run.mean(0) for run in runs], axis=0)
        short = max(shortfall(run, 200 if real else 500) for run in runs)
        labels = f"{size:,} late" if feed == "late" else f"batches of {size}"
        table.add_row(name, labels, f"{before:.3f}", f"{after:.3f}", f"{wide:.2f} -> {served:.2f}", f"{short:.3f}")
        checks.add(f"{name}, {labels}: coverage - min(untouched, .9)", after - min(before, LEVEL), -0.015, form=".3f")
        checks.add(f"{name}, {labels}: shortfall", short, -1.0, 0.06, form=".3f")
    console.print(table)
    console.print(checks.table())
    return 0 if checks.hold else 1


if __name__ == "__main__":
    sys.exit(main())
