"""River's classifiers before and after recalibration: bundled data x models x orders, labels at once and 1,000 events late.

    python bench/bench_river.py [--orders 3] [--most 5000] [--delays 0 1000] [--each]

Each forecast is made before its label is learned (River's simulate_qa). Three columns from one run of the classifier: what it
said ("raw"), what RecalibratedClassifier with its default made of it ("default"), and plain online Platt scaling ("Platt") of
the same scores, learned when their labels come (a score predicted again where the classifier had said nothing, as the default
does). Order 0 is that of the data, the others are shuffled; ``--most``: events taken of each (of Shuttle, which has 49,097, a
random sample in the order of the data). Binary: probability of the positive class; ImageSegments: ECE and k2 of the top label,
Brier score over all classes. Takes about three minutes. Exits with 1 if a figure misses its bound.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
from dataclasses import dataclass

import numpy as np
from checks import Checks
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from river import datasets, forest, linear_model, multiclass, naive_bayes, neighbors, preprocessing, stream, tree
from tables import Console

from streamcal import EqualWidth, OnlineMarginal, OnlinePlatt, ece, k2, top_label
from streamcal.river.classifier import RecalibratedClassifier
from streamcal.river.predictions import probabilities

Array = np.ndarray
COLUMNS = ("raw", "default", "Platt")
MEASURES = ("log loss", "Brier", "ECE", "k2, debiased")
EXPERTS = 4  # of the default: raw, and three recalibrators
OVERCONFIDENT = 0.03  # mean confidence - accuracy of the raw forecasts, from which on they are called overconfident
MARGIN = 0.95  # their log loss after recalibration is at most this share of the raw one


def shuttle(most: int) -> list:
    """A sample of Shuttle in the order of the data."""
    rows = list(datasets.Shuttle())
    return [rows[i] for i in sorted(random.Random(0).sample(range(len(rows)), most))]


DATA = {
    "Phishing": lambda most: list(datasets.Phishing())[:most],
    "Bananas": lambda most: list(datasets.Bananas())[:most],
    "Shuttle": shuttle,
    "ImageSegments": lambda most: list(datasets.ImageSegments())[:most],
}


def logistic(binary: bool):
    inner = linear_model.LogisticRegression()
    return preprocessing.StandardScaler() | (inner if binary else multiclass.OneVsRestClassifier(inner))


MODELS = {
    "LogisticRegression": logistic,
    "GaussianNB": lambda binary: naive_bayes.GaussianNB(),
    "HoeffdingTree": lambda binary: tree.HoeffdingTreeClassifier(),
    "ARF, 5 trees": lambda binary: forest.ARFClassifier(n_models=5, seed=1),
    "KNN": lambda binary: preprocessing.StandardScaler() | neighbors.KNNClassifier(),
}


@dataclass
class Run:
    """Forecasts (n, classes) of the three columns, and class indices."""

    forecasts: list[Array]
    labels: Array

    def binary(self) -> bool:
        return self.forecasts[0].shape[1] == 2

    def measures(self, column: int) -> list[float]:
        """See MEASURES."""
        probs, n = self.forecasts[column], self.labels.size
        hit = np.eye(probs.shape[1])[self.labels]
        p, y = (probs[:, 1], hit[:, 1]) if self.binary() else top_label(probs, self.labels)
        p = np.ascontiguousarray(p)
        log_loss = -np.log(np.maximum(probs[np.arange(n), self.labels], 1e-15)).mean()
        brier = ((probs - hit) ** 2).sum(-1).mean() / (2.0 if self.binary() else 1.0)
        return [float(log_loss), float(brier), float(ece(p, y)), float(k2(p, y, binning=EqualWidth(15), debias=True))]

    def overconfidence(self) -> float:
        """Mean confidence - accuracy of the raw forecasts."""
        confidence, correct = top_label(self.forecasts[0], self.labels)
        return float(confidence.mean() - correct.mean())


class Platt:
    """Plain online Platt scaling of the same scores: of the positive class, or of each."""

    def __init__(self, classes: int) -> None:
        self.map = OnlinePlatt() if classes == 2 else OnlineMarginal(OnlinePlatt(), classes)

    def predict(self, row: list[float]) -> list[float]:
        if len(row) > 2:
            return list(self.map.predict_one(row))
        q = self.map.predict_one(row[1])
        return [1.0 - q, q]

    def learn(self, row: list[float], label: int) -> None:
        if len(row) > 2:
            self.map.learn_one(row, label)
        else:
            self.map.learn_one(row[1], label)


def play(rows: list, classifier, classes: list, delay: int) -> Run:
    """Run a classifier, its recalibrated wrapper and Platt over the rows; events for which it said nothing do not count."""
    model, platt, index = RecalibratedClassifier(classifier), Platt(len(classes)), {c: i for i, c in enumerate(classes)}
    waiting, made, labels = {}, ([], [], []), []
    for i, x, y in stream.simulate_qa(rows, None, delay or None, copy=delay > 0):
        if i not in waiting:
            served, raw = model.predict_proba_one(x, id=i), row_of(classifier.predict_proba_one(x), classes)
            waiting[i] = raw, row_of(served, classes), raw and platt.predict(raw)
            continue
        three = waiting.pop(i)
        if three[0]:
            for column, row in zip(made, three, strict=True):
                column.append(row)
            labels.append(index[y])
        if score := three[0] or row_of(classifier.predict_proba_one(x), classes):
            platt.learn(score, index[y])
        model.learn_one(x, y, id=i)
    return Run([np.array(column) for column in made], np.array(labels))


def row_of(said: dict, classes: list) -> list[float]:
    """Probabilities in the order of the classes, brought to a sum of 1; none if nothing was said."""
    probs = probabilities(said)
    row = [probs.get(c, 0.0) for c in classes]
    total = sum(row)
    return [min(p / total, 1.0) for p in row] if total > 0.0 else []


def measure(args: argparse.Namespace, progress: Progress) -> dict[tuple[str, str, int], list[Run]]:
    """All runs, by (data, model, delay)."""
    found: dict[tuple[str, str, int], list[Run]] = {}
    task = progress.add_task("", total=len(DATA) * args.orders * len(MODELS) * len(args.delays))
    for (data, load), order in itertools.product(DATA.items(), range(args.orders)):
        rows = load(args.most)
        if order:
            random.Random(order).shuffle(rows)
        classes = sorted({y for _, y in rows})
        for (model, make), delay in itertools.product(MODELS.items(), args.delays):
            progress.update(task, description=f"{data}, {model}, {delay}")
            run = play(rows, make(len(classes) == 2), classes, delay)
            found.setdefault((data, model, delay), []).append(run)
            progress.advance(task)
    return found


def table_of(found: dict, delay: int, console: Console) -> None:
    """Means over the orders, of each column."""
    table = Table("data", "model", "over", *MEASURES, title=f"raw / default / Platt, labels {delay:,} events late")
    for (data, model, late), runs in found.items():
        if late != delay:
            continue
        values = np.mean([[run.measures(c) for c in range(3)] for run in runs], axis=0)
        over = np.mean([run.overconfidence() for run in runs])
        cells = []
        for m in range(len(MEASURES)):
            digits = 5 if m == 3 else 4
            row = [f"{v:.{digits}f}" for v in values[:, m]]
            row[1] = f"[{'red' if values[1, m] > values[0, m] else 'green'}]{row[1]}[/]"
            cells.append(" / ".join(row))
        table.add_row(data, model, f"{over:+.3f}", *cells)
    console.print(table)


def check(found: dict, checks: Checks, console: Console) -> None:
    """Log loss of each run against its bounds; which runs it did not help."""
    worse = []
    for (data, model, delay), runs in found.items():
        for order, run in enumerate(runs):
            raw, default = (run.measures(c)[0] for c in range(2))
            what = f"{data}, {model}, order {order}, delay {delay}"
            bound = 1.001 * raw + math.log(EXPERTS) / run.labels.size
            checks.add(f"{what}: log loss", default, 0.0, bound, ".5f")
            if run.overconfidence() >= OVERCONFIDENT:
                checks.add(f"{what}: overconfident by {run.overconfidence():.3f}", default / raw, 0.0, MARGIN, ".4f")
            if default >= raw:
                worse.append(f"{what}: {raw:.5f} -> {default:.5f} ({default / raw - 1.0:+.2%})")
    console.print(f"\nlog loss not lower than raw: {len(worse)} of {sum(map(len, found.values()))} runs")
    for line in worse:
        console.print(f"  {line}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=3, help="the data's own and shuffled ones")
    parser.add_argument("--most", type=int, default=5000, help="events taken of each data set")
    parser.add_argument("--delays", type=int, nargs="+", default=[0, 1000], help="events until a label comes")
    parser.add_argument("--each", action="store_true", help="print every check, not only those that fail")
    args = parser.parse_args()
    console, checks = Console(width=190), Checks()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        found = measure(args, progress)
    for delay in args.delays:
        table_of(found, delay, console)
    check(found, checks, console)
    failed = [row for row in checks.rows if not row[-1]]
    console.print(f"{len(checks.rows)} checks, {len(failed)} do not hold")
    if args.each or failed:
        console.print((checks if args.each else Checks(failed)).table())
    return 0 if checks.hold else 1


if __name__ == "__main__":
    sys.exit(main())
