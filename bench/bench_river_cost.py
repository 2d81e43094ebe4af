"""What the River adapters cost: metrics beside River's, wrappers beside the model they wrap, and the size of a long run.

    python bench/bench_river_cost.py [--events 50000] [--long 200000] [--rounds 7]

Times are the best of interleaved rounds within this run; answers are asserted before. Exits with 1 if a figure misses its bound.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections.abc import Callable

import numpy as np
from checks import Checks
from rich.table import Table
from river import base, linear_model, metrics, naive_bayes, stats, tree, utils
from tables import Console
from workloads import calibrated, interleaved

from streamcal import ece
from streamcal.river import ECE, RecalibratedClassifier, RecalibratedRegressor

SIZE = 1000
CLASSIFIERS = {
    "LogisticRegression": linear_model.LogisticRegression,
    "GaussianNB": naive_bayes.GaussianNB,
    "HoeffdingTree": tree.HoeffdingTreeClassifier,
}
Rows = list[tuple[dict[str, float], bool]]


class Constant(base.Classifier):
    """Costs next to nothing: what is left is the wrapper."""

    said = {True: 0.7, False: 0.3}  # noqa: RUF012

    def learn_one(self, x, y):
        pass

    def predict_proba_one(self, x):
        return self.said


def metric_passes(n: int) -> dict[str, Callable[[], object]]:
    p, y = calibrated(n)
    events = [(bool(b), {True: a, False: 1.0 - a}) for a, b in zip(p.tolist(), y.tolist(), strict=True)]

    def of(make):
        def run():
            metric = make()
            update = metric.update
            for label, said in events:
                update(label, said)
            return metric

        return run

    runs = {
        "ECE": of(ECE),
        f"ECE, last {SIZE}": of(lambda: ECE(window_size=SIZE)),
        "river LogLoss": of(metrics.LogLoss),
        f"river Rolling(LogLoss, {SIZE})": of(lambda: utils.Rolling(metrics.LogLoss, window_size=SIZE)),
    }
    assert abs(runs["ECE"]().get() - ece(p, y)) < 1e-12
    assert abs(runs[f"ECE, last {SIZE}"]().get() - ece(p[-SIZE:], y[-SIZE:])) < 1e-12
    return runs


def rows_of(n: int) -> Rows:
    """Six normal features and a label that depends on them."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 6))
    y = rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * x[:, 0]))
    return [(dict(zip("abcdef", row, strict=True)), bool(b)) for row, b in zip(x.tolist(), y, strict=True)]


def classifier_pass(make: Callable[[], base.Classifier], rows: Rows) -> Callable[[], object]:
    def run():
        model = make()
        predict, learn = model.predict_proba_one, model.learn_one
        for x, y in rows:
            predict(x)
            learn(x, y)
        return model

    return run


def regressor_pass(make: Callable[[], base.Regressor], rows: Rows) -> Callable[[], object]:
    def run():
        model = make()
        predict, learn = model.predict_one, model.learn_one
        for x, _ in rows:
            predict(x)
            learn(x, x["a"])
        return model

    return run


def wrapper_passes(n: int) -> dict[str, Callable[[], object]]:
    rows, runs = rows_of(n), {}
    for name, make in {"Constant": Constant, **CLASSIFIERS}.items():
        runs[name] = classifier_pass(make, rows)
        runs[f"{name}, recalibrated"] = classifier_pass(lambda make=make: RecalibratedClassifier(make()), rows)
    runs["mean regressor"] = regressor_pass(MeanRegressor, rows)
    runs["mean regressor, recalibrated"] = regressor_pass(
        lambda: RecalibratedRegressor(MeanRegressor(), interval=0.9), rows
    )
    model = runs["Constant, recalibrated"]()
    assert model.served == n and model.repredicted == 0
    return runs


class MeanRegressor(base.Regressor):
    """The running mean of the targets."""

    def __init__(self):
        self.mean = stats.Mean()

    def learn_one(self, x, y):
        self.mean.update(y)

    def predict_one(self, x):
        return self.mean.get()


def sizes(n: int) -> list[int]:
    """Bytes of the pickled wrapper after a tenth and all of n events, labels 1,000 late and one in ten lost."""
    model, waiting, found = RecalibratedClassifier(linear_model.LogisticRegression(), memory=5_000), [], []
    for i, (x, y) in enumerate(rows_of(n)):
        model.predict_proba_one(x)
        waiting.append((x, y))
        if len(waiting) > SIZE:
            late = waiting.pop(0)
            if i % 10:
                model.learn_one(*late)
        if i in (n // 10, n - 1):
            found.append(len(pickle.dumps(model)))
    assert model.served == model.report()["counts"]["served"] > 0.85 * n
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--long", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    console, checks = Console(width=120), Checks()
    seconds = interleaved(metric_passes(args.events), args.rounds)
    wrapped = interleaved(wrapper_passes(args.events // 5), args.rounds)
    table = Table("what", "ns per event", title=f"best of {args.rounds}")
    for name, s in seconds.items():
        table.add_row(name, f"{s / args.events * 1e9:.0f}")
    for name, s in wrapped.items():
        table.add_row(f"{name}: predict and learn", f"{s / (args.events // 5) * 1e9:.0f}")
    console.print(table)
    plain, rolling = seconds["river LogLoss"], seconds[f"river Rolling(LogLoss, {SIZE})"]
    checks.add("ECE.update / LogLoss.update", seconds["ECE"] / plain, 0.0, 0.45)
    checks.add(f"ECE(window_size={SIZE}) / Rolling(LogLoss)", seconds[f"ECE, last {SIZE}"] / rolling, 0.0, 0.20)
    for name in ["Constant", *CLASSIFIERS]:
        added = (wrapped[f"{name}, recalibrated"] - wrapped[name]) / (args.events // 5) * 1e6
        checks.add(f"RecalibratedClassifier adds to {name}, us", added, 0.0, 3.0)
    added = (wrapped["mean regressor, recalibrated"] - wrapped["mean regressor"]) / (args.events // 5) * 1e6
    checks.add("RecalibratedRegressor(interval=.9) adds, us", added, 0.0, 10.0)
    first, last = sizes(args.long)
    checks.add(f"bytes after {args.long:,} events / after a tenth", last / first, 0.0, 1.05)
    console.print(checks.table())
    return 0 if checks.hold else 1


if __name__ == "__main__":
    sys.exit(main())
