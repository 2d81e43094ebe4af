"""How long a recalibrator takes to learn from a million events, against scikit-learn and the reference of scaling-binning.

    python bench/bench_recalibrate.py [--events 1000000] [--data cifar10_vgg_probs.npz] [--repeat 5]

Peers: pip install "streamcal-engine[bench]", and the package of the scaling-binning paper, whose own requirements are old:
pip install --no-deps uncertainty-calibration (rows against it are left out where it is absent). With --data (see
bench_paper.py for the file) also one repetition of the whole CIFAR-10 figure. Answers are compared before a time is
printed. Everything runs on one thread; ratios are of CPU seconds, the fastest run of each. Exits with 1 below a bound
(they are for a million events).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# one thread for everybody; read when numpy is imported
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np
from bench_paper import BINS, SAMPLE, errors
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression
from tables import Console

from streamcal.batch import CalibrationWarning
from streamcal.logistic import logit
from streamcal.recalibrate import HistogramBinning, IsotonicCalibration, PlattScaling, Recalibrator, ScalingBinning
from streamcal.recalibrate.platt import smooth_targets

try:
    from calibration import calibrators as reference
    from calibration import utils as reference_utils
except ImportError:
    reference = None

Array = np.ndarray
ABSENT = "the reference package is absent: pip install --no-deps uncertainty-calibration"
SLOW = 2  # runs of a peer that takes seconds


@dataclass
class Race:
    """Two ways to the same answer, and how many times as fast the first must be (0: just told)."""

    what: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    bound: float
    runs: int | None = None  # of the peer; None: as many as ours
    cpu: tuple[float, float] = (np.inf, np.inf)
    wall: tuple[float, float] = (np.inf, np.inf)

    @property
    def ratio(self) -> float:
        return self.cpu[1] / self.cpu[0]


def timed(function: Callable[[], Any]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.process_time() - cpu, time.perf_counter() - wall


def run(race: Race, repeat: int) -> None:
    """Both in turns, so that a slow moment hits both. The comparison of the answers has warmed them up."""
    best = np.full((2, 2), np.inf)
    theirs = min(repeat, race.runs or repeat)
    for turn in range(repeat):
        best[0] = np.minimum(best[0], timed(race.ours))
        if turn < theirs:
            best[1] = np.minimum(best[1], timed(race.theirs))
    race.cpu, race.wall = (float(best[0, 0]), float(best[1, 0])), (float(best[0, 1]), float(best[1, 1]))


def events(n: int) -> tuple[Array, Array]:
    """Uniform predictions whose outcomes are not in the Platt family."""
    rng = np.random.default_rng(0)
    p = rng.random(n)
    return p, (rng.random(n) < p**1.3).astype(np.float64)


def close(what: str, a: Any, b: Any, within: float, notes: list[str]) -> None:
    """Stop if two answers differ; else note by how much."""
    gap = float(np.abs(np.asarray(a) - np.asarray(b)).max())
    assert gap <= within, f"{what}: answers differ by {gap:g}, more than {within:g}"
    notes.append(f"{what}: answers differ by {gap:.1e} at most (allowed {within:g})")


def binning_races(p: Array, y: Array, notes: list[str]) -> list[Race]:
    """Histogram and scaling-binning against the reference, whose logistic regression stops at a gradient of 1e-4."""
    races, q = [], np.random.default_rng(1).random(10_000)
    for b in (10, 100):
        for what, ours, kind, bound, within in (
            ("scaling-binning", ScalingBinning(b, targets="hard"), "PlattBinnerCalibrator", 12.0, 1e-3),
            ("histogram binning", HistogramBinning(b), "HistogramCalibrator", 8.0, 1e-12),
        ):
            theirs = getattr(reference, kind)(p.size, b)
            theirs.train_calibration(p, y)
            got, want = ours.fit(p, y).predict(q), np.asarray(theirs.calibrate(q))
            same = (
                np.abs(got - want) < within
            )  # a point between two edges that differ in the last digits may fall aside
            assert same.mean() > 0.999, f"{what}, B={b}: {1 - same.mean():.2%} of the answers differ"
            close(f"{what}, B={b} ({(~same).sum()} of {q.size} in the next bin)", got[same], want[same], within, notes)
            title = f"{what} fit, B={b}, against uncertainty-calibration"
            races.append(
                Race(title, lambda m=ours: m.fit(p, y), lambda t=theirs: t.train_calibration(p, y), bound, SLOW)
            )
    return races


def platt_race(p: Array, y: Array, notes: list[str]) -> Race:
    """Both from scores; the optimum is the same if the losses agree to 1e-8."""
    z = logit(p)
    ours, theirs = PlattScaling().fit_logits(z, y), _SigmoidCalibration().fit(z, y)
    t = smooth_targets(y, np.ones_like(y))

    def loss(a: float, b: float) -> float:
        s = a * z + b
        return float((np.logaddexp(0.0, s) - t * s).mean())

    at = (ours.slope_, ours.intercept_), (-theirs.a_, -theirs.b_)
    close("Platt, loss", loss(*at[0]), loss(*at[1]), 1e-8, notes)
    gaps = ", ".join(f"{abs(a - b):.1e}" for a, b in zip(*at, strict=True))
    notes.append(
        f"Platt: slope and intercept differ by {gaps}; ours minus their loss {loss(*at[0]) - loss(*at[1]):.1e}"
    )
    title = "Platt scaling fit against scikit-learn's sigmoid"
    return Race(title, lambda: ours.fit_logits(z, y), lambda: _SigmoidCalibration().fit(z, y), 1.5)


def isotonic_races(p: Array, y: Array, notes: list[str]) -> list[Race]:
    races, q = [], np.random.default_rng(1).random(p.size)
    for what, scores in (("all scores distinct", p), ("1001 scores", p.round(3))):
        ours, theirs = IsotonicCalibration().fit(scores, y), IsotonicRegression(out_of_bounds="clip").fit(scores, y)
        close(f"isotonic, {what}", ours.predict(q), theirs.predict(q), 1e-9, notes)
        title = f"isotonic fit, {what}, against scikit-learn"
        races.append(Race(title, lambda m=ours, s=scores: m.fit(s, y), lambda m=theirs, s=scores: m.fit(s, y), 1.0))
    return races


class Points:
    """All points of one class, sorted once: a monotone map is then judged by sums between its edges."""

    def __init__(self, p: Array, y: Array) -> None:
        order = np.argsort(p, kind="stable")
        self.p, self.y = p, y
        self.sorted, self.logits = p[order], logit(p[order])
        self.hits = np.concatenate([[0.0], np.cumsum(y[order])])

    def errors(self, fitted: Recalibrator) -> tuple[float, float]:
        """bench_paper.errors without a prediction for every point."""
        if not isinstance(fitted, ScalingBinning):
            return self.between(self.sorted, fitted)
        if fitted.slope_ <= 0.0:
            return errors(fitted, self.p, self.y)
        return self.between(fitted.slope_ * self.logits + fitted.intercept_, fitted)

    def between(self, scores: Array, fitted: Recalibrator) -> tuple[float, float]:
        """The same from the points' scores on the scale of ``fitted.edges_``, in the order of the points."""
        ends = np.concatenate([[0], np.searchsorted(scores, fitted.edges_[1:-1], "right"), [scores.size]])
        n, hits, levels = np.diff(ends), np.diff(self.hits[ends]), fitted.levels_
        square = (n * levels**2 - 2.0 * hits * levels).sum() + self.hits[-1]
        values, value = np.unique(levels, return_inverse=True)
        n, hits = np.bincount(value, n), np.bincount(value, hits)
        ce2 = ((hits - n * values) ** 2 / np.maximum(n, 1.0)).sum()
        return float(ce2 / scores.size), float(square / scores.size)


Judge = Callable[[Recalibrator, Points], tuple[float, float]]


def our_figure(classes: list[Points], chosen: Array, judge: Judge) -> Array:
    """(method, bins, CE2 and MSE) of one repetition, each map fitted and judged on its own."""
    out = np.empty((2, len(BINS), 2))
    samples = [(c.p[chosen], c.y[chosen]) for c in classes]
    for j, b in enumerate(BINS):
        for i, made in enumerate((HistogramBinning(b), ScalingBinning(b, targets="hard"))):
            found = [judge(made.fit(*sample), c) for sample, c in zip(samples, classes, strict=True)]
            out[i, j] = np.mean(found, axis=0) * (1.0, len(classes) / 2)
    return out


def shared_figure(classes: list[Points], chosen: Array) -> Array:
    """The same with one scaling map per class: scaling-binning is histogram binning of its outputs on themselves."""
    out = np.zeros((2, len(BINS), 2))
    for c in classes:
        p, y = c.p[chosen], c.y[chosen]
        scaling = PlattScaling(targets="hard").fit(p, y)
        q, scaled = scaling.predict(p), scaling.predict(c.sorted)
        for j, b in enumerate(BINS):
            out[0, j] += c.between(c.sorted, HistogramBinning(b).fit(p, y))
            out[1, j] += c.between(scaled, HistogramBinning(b).fit(q, q))
    return out / len(classes) * (1.0, len(classes) / 2)


def their_figure(probs: Array, labels: Array, chosen: Array) -> Array:
    """The same by the reference's own calibrators and estimators."""
    out = np.empty((2, len(BINS), 2))
    for j, b in enumerate(BINS):
        for i, kind in enumerate((reference.HistogramMarginalCalibrator, reference.PlattBinnerMarginalCalibrator)):
            made = kind(SAMPLE, b)
            made.train_calibration(probs[chosen], labels[chosen])
            q = made.calibrate(probs)
            ce = reference_utils.get_binning_ce(q, labels, p=2, debias=False, mode="marginal")
            out[i, j] = ce**2, reference_utils.eval_marginal_mse(q, probs, labels)
    return out


def figure_races(path: Path, notes: list[str]) -> list[Race]:
    """One repetition of the CIFAR-10 figure: two methods, ten numbers of bins, ten classes; fit, both errors."""
    with np.load(path) as file:
        probs, labels = file["probs"].astype(np.float64), file["labels"].astype(np.int64)
    chosen = np.random.default_rng(0).integers(0, labels.size, SAMPLE)
    classes = [Points(probs[:, k].copy(), (labels == k).astype(np.float64)) for k in range(probs.shape[1])]

    def by_sums() -> Array:
        return our_figure(classes, chosen, lambda m, points: points.errors(m))

    def by_predict() -> Array:
        return our_figure(classes, chosen, lambda m, points: errors(m, points.p, points.y))

    def theirs() -> Array:
        return their_figure(probs, labels, chosen)

    got, want = by_sums(), theirs()
    close("CIFAR-10 figure, by sums or by predict", got, by_predict(), 1e-12, notes)
    close("CIFAR-10 figure, one scaling map per class", shared_figure(classes, chosen), got, 1e-6, notes)
    even = [j for j, b in enumerate(BINS) if SAMPLE % b == 0]  # others: the two put the remainder into other bins
    close("CIFAR-10 figure, histogram, CE2 and MSE", got[0, even], want[0, even], 1e-10, notes)
    close("CIFAR-10 figure, scaling-binning, CE2", got[1, even, 0], want[1, even, 0], 2e-5, notes)
    close("CIFAR-10 figure, scaling-binning, MSE", got[1, even, 1], want[1, even, 1], 2e-4, notes)
    return [
        Race("CIFAR-10 figure, a repetition, against uncertainty-calibration", by_sums, theirs, 20.0, SLOW),
        Race("the same with predict on every point", by_predict, theirs, 0.0, 1),
        Race("the same with one scaling map per class", lambda: shared_figure(classes, chosen), theirs, 0.0, 1),
    ]


def table_of(races: list[Race], n: int) -> Table:
    columns = ("what", "ours, CPU s", "theirs, CPU s", "times as fast", "on the wall", "bound", "holds")
    table = Table(title=f"{n:,} events, one thread")
    for column in columns:
        table.add_column(column, justify="left" if column == "what" else "right")
    for r in races:
        holds = "" if not r.bound else "yes" if r.ratio >= r.bound else "[bold red]NO[/]"
        bound = f">= {r.bound:g}" if r.bound else "none"
        wall = f"{r.wall[1] / r.wall[0]:.1f}"
        table.add_row(r.what, f"{r.cpu[0]:.4f}", f"{r.cpu[1]:.4f}", f"{r.ratio:.1f}", wall, bound, holds)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--data", type=Path, help="the npz of bench_paper.py: adds the whole CIFAR-10 figure")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore", CalibrationWarning)  # small samples of rare classes are part of the figure
    console, notes = Console(width=150), []
    p, y = events(args.events)
    steps: list[Callable[[], list[Race]]] = [lambda: [platt_race(p, y, notes)], lambda: isotonic_races(p, y, notes)]
    if reference is None:
        console.print(ABSENT)
    else:
        steps.append(lambda: binning_races(p, y, notes))
        if args.data:
            steps.append(lambda: figure_races(args.data, notes))
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        races = [race for step in progress.track(steps, description="same answers?") for race in step()]
        for race in progress.track(races, description="times"):
            run(race, args.repeat)
    for note in notes:
        console.print(note, highlight=False)
    console.print(table_of(races, args.events))
    return 0 if all(r.ratio >= r.bound for r in races) else 1


if __name__ == "__main__":
    sys.exit(main())
