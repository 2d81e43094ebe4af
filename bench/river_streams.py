"""A stream whose concept is redrawn, with late labels: which score should a recalibrator learn from?

    python bench/river_streams.py [--seeds 5] [--delay 1000]

ECE and log loss of what was served: by the classifier ("raw"), and recalibrated by plain online Platt scaling or by the default
of RecalibratedClassifier, each learned on the score that was served or on one predicted again when the label came
(``memory=0``). "Guard" is the default's experts behind streamcal's Guard, which weighs them by what they would say now.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from checks import Checks
from rich.table import Table
from river import linear_model, naive_bayes, stream, tree
from tables import Console

from streamcal import ece
from streamcal.recalibrate import Guard, OnlinePlatt
from streamcal.river.classifier import RecalibratedClassifier

Rows = list[tuple[dict[str, float], bool]]

MODELS = {
    "LogisticRegression": linear_model.LogisticRegression,
    "HoeffdingTree": tree.HoeffdingTreeClassifier,
    "GaussianNB": naive_bayes.GaussianNB,
}
VARIANTS = {
    "Platt, served": lambda model: RecalibratedClassifier(model, OnlinePlatt()),
    "Platt, again": lambda model: RecalibratedClassifier(model, OnlinePlatt(), memory=0),
    "Guard, served": lambda model: RecalibratedClassifier(model, Guard()),
    "default, served": RecalibratedClassifier,
    "default, again": lambda model: RecalibratedClassifier(model, memory=0),
}


def redrawn(seed: int, n: int = 20_000, every: int = 2_500, features: int = 6, steepness: float = 2.0) -> Rows:
    """n events of normal features; the log-odds are linear in them, in a direction that is drawn anew ``every`` events."""
    rng = np.random.default_rng(seed)
    names = [f"x{i}" for i in range(features)]
    direction = np.empty(features)
    rows = []
    for i in range(n):
        if i % every == 0:
            direction = rng.normal(size=features)
            direction *= steepness / np.linalg.norm(direction)
        x = rng.normal(size=features)
        came = rng.random() < 1.0 / (1.0 + np.exp(-x @ direction))
        rows.append((dict(zip(names, x.tolist(), strict=True)), bool(came)))
    return rows


def served(model, rows: Rows, delay: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of True as they were given out, and outcomes; labels come ``delay`` events late, as in River's evaluation."""
    p: dict[int, float] = {}
    for i, x, y in stream.simulate_qa(rows, None, delay or None, copy=True):
        if i in p:
            model.learn_one(x, y)
        else:
            p[i] = model.predict_proba_one(x).get(True, 0.5)
    return np.array([p[i] for i in range(len(rows))]), np.array([float(y) for _, y in rows])


def log_loss(p: np.ndarray, y: np.ndarray) -> float:
    """Mean log loss, probabilities nearer to 0 and 1 than 1e-15 read as that."""
    q = np.clip(p, 1e-15, 1.0 - 1e-15)
    return float(-(y * np.log(q) + (1.0 - y) * np.log1p(-q)).mean())


def measures(make, variants: list[str], seeds: range, delay: int, **shape: float) -> dict[str, np.ndarray]:
    """Mean ECE and log loss over the seeds, of the raw scores and of each variant."""
    sums = {name: np.zeros(2) for name in ["raw", *variants]}
    for seed in seeds:
        rows = redrawn(seed, **shape)
        for name in sums:
            p, y = served(VARIANTS[name](make()) if name != "raw" else make(), rows, delay)
            sums[name] += np.array([float(ece(p, y)), log_loss(p, y)]) / len(seeds)
    return sums


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--delay", type=int, default=1000, help="events until a label comes")
    parser.add_argument("--every", type=int, nargs="+", default=[2500, 4000], help="events of one concept")
    args = parser.parse_args()
    checks, console = Checks(), Console(width=140)
    for every in args.every:
        table = Table(
            "classifier", "raw", *VARIANTS, title=f"ECE / log loss, redrawn every {every:,}, {args.delay:,} late"
        )
        for name, make in MODELS.items():
            found = measures(make, list(VARIANTS), range(args.seeds), args.delay, every=every)
            table.add_row(name, *(f"{e:.3f} / {loss:.3f}" for e, loss in found.values()))
            what = f"{name}, every {every:,}"
            gain = found["Platt, again"][0] - found["Platt, served"][0]
            checks.add(f"{what}, Platt: ECE predicted again - served", gain, 0.0, form=".4f")
            checks.add(
                f"{what}: log loss raw - default", found["raw"][1] - found["default, served"][1], 0.0, form=".4f"
            )
        console.print(table)
    console.print(checks.table())
    return 0 if checks.hold else 1


if __name__ == "__main__":
    sys.exit(main())
