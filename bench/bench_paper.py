"""The published figures of scaling-binning, and what the method promises where the truth is known.

    python bench/bench_paper.py [--data cifar10_vgg_probs.npz] [--repetitions 100] [--out figures]
                                                                        (needs matplotlib for --out: the extra plot)

Exits with 1 if a figure misses its bound (they are for 100 repetitions: fewer are too noisy, and take less than the two
minutes). Without --data only the synthetic part runs, in a minute. The data: class probabilities of a
VGG network on the 10,000 test images of CIFAR-10, data/cifar_probs.dat of https://github.com/p-lambda/verified_calibration
(MIT). It is a pickle, so make the file once, if you trust its source:

    probs, labels = pickle.load(open("cifar_probs.dat", "rb"))
    np.savez("cifar10_vgg_probs.npz", probs=np.float32(probs), labels=np.uint8(labels).ravel())
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from checks import Checks
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tables import Console

from streamcal import Cumulative, Levels
from streamcal.batch import CalibrationWarning
from streamcal.logistic import logit, sigmoid
from streamcal.recalibrate import HistogramBinning, Recalibrator, ScalingBinning

Array = np.ndarray
BINS = list(range(10, 101, 10))
SAMPLE = 1000  # points that a map is fitted to, drawn with replacement
USABLE = 0.02  # calibration error that one would accept
SLOPE, INTERCEPT = 2.0, 1.0  # the synthetic truth of the paper: P(y = 1 | p) = sigmoid(2 logit p + 1), p uniform
CELLS = [(1000, 10), (2000, 10), (2000, 5), (2000, 20), (1000, 50), (1000, 100)]  # (n, bins)
PUBLISHED = 100  # repetitions that the bounds are for
SYNTHETIC = 20  # synthetic repetitions to one on the real data: they are cheap, and their ratios are noisy
HISTOGRAM, HARD, SMOOTH = "histogram binning", "scaling-binning, hard targets", "scaling-binning, smooth (default)"
HARD_SPLIT, SMOOTH_SPLIT = "three-way split, hard", "three-way split, smooth"
HISTOGRAM_WIDTH, SCALING_WIDTH = "histogram, equal widths", "scaling, equal widths"


class EqualWidthScaling(ScalingBinning):
    """The ablation: bins of equal width on the scaled output, levels still the mean output in the bin."""

    def _fit(self, p: Array, y: Array, w: Array) -> None:
        super()._fit(p, y, w)
        inner = logit(np.arange(1, self.n_bins) / self.n_bins)
        self.edges_ = np.concatenate([[-np.inf], inner, [np.inf]])
        self._learn_levels(self._scaled(p), w)


METHODS: dict[str, Callable[[int, int], Recalibrator]] = {
    HISTOGRAM: lambda b, seed: HistogramBinning(b),
    HARD: lambda b, seed: ScalingBinning(b, targets="hard"),
    SMOOTH: lambda b, seed: ScalingBinning(b),
    HARD_SPLIT: lambda b, seed: ScalingBinning(b, split=True, targets="hard", seed=seed),
    SMOOTH_SPLIT: lambda b, seed: ScalingBinning(b, split=True, seed=seed),
    HISTOGRAM_WIDTH: lambda b, seed: HistogramBinning(b, binning="equal-width"),
    SCALING_WIDTH: lambda b, seed: EqualWidthScaling(b),
}
NAMES = list(METHODS)


# ---- real data: error of a fitted map on all points


def by_value(levels: Array, q: Array, y: Array) -> float:
    """Squared calibration error of outputs q over their distinct values; q are among ``levels``."""
    values = np.unique(levels)
    return error_by_bin(np.searchsorted(values, q), values, y)


def error_by_bin(bins: Array, levels: Array, y: Array) -> float:
    """The same over bins, which may share an output."""
    n, hits = np.bincount(bins, minlength=levels.size), np.bincount(bins, y, levels.size)
    used = n > 0
    return float(((hits[used] - n[used] * levels[used]) ** 2 / n[used]).sum() / y.size)


def errors(fitted: Recalibrator, p: Array, y: Array) -> tuple[float, float]:
    """(squared calibration error by value, mean squared error) on events (p, y)."""
    q = fitted.predict(p)
    return by_value(fitted.levels_, q, y), float(((q - y) ** 2).mean())


def sweep(p: Array, y: Array, chosen: Array, seed: int) -> Array:
    """errors of every method at every number of bins, fitted to the chosen points: (methods, bins, 2)."""
    sample = p[chosen], y[chosen]
    return np.array([[errors(make(b, seed).fit(*sample), p, y) for b in BINS] for make in METHODS.values()])


@dataclass
class Cifar:
    """Means over repetitions (and classes) by method and number of bins; squared error is the sum over classes / 2."""

    marginal: Array
    top: Array
    spread: float  # standard error of the reduction at 100 bins, hard targets
    by_bin: float  # histogram binning at 100 bins


def measure_cifar(path: Path, repetitions: int, progress: Progress) -> Cifar:
    with np.load(path) as file:
        probs, labels = file["probs"].astype(np.float64), file["labels"].astype(np.int64)
    columns = [(probs[:, k].copy(), (labels == k).astype(np.float64)) for k in range(probs.shape[1])]
    confidence, correct = probs.max(1), (probs.argmax(1) == labels).astype(np.float64)
    rng, task = np.random.default_rng(0), progress.add_task("CIFAR-10", total=repetitions)
    marginal, top, by_bin = [], [], []
    for seed in range(repetitions):
        chosen = rng.integers(0, labels.size, SAMPLE)
        marginal.append(np.mean([sweep(p, y, chosen, seed) for p, y in columns], axis=0))
        top.append(sweep(confidence, correct, chosen, seed))
        for p, y in columns:
            fitted = HistogramBinning(BINS[-1]).fit(p[chosen], y[chosen])
            by_bin.append(error_by_bin(np.searchsorted(fitted.edges_[1:-1], p), fitted.levels_, y))
        progress.advance(task)
    runs = np.array(marginal)
    runs[..., 1] *= len(columns) / 2
    last = runs[:, :, -1, 0]
    gap = last[:, NAMES.index(HARD)] - reduced(last.mean(0), HARD, kept=True) * last[:, 0]
    spread = float(gap.std(ddof=1) / np.sqrt(repetitions) / last[:, 0].mean()) if repetitions > 1 else np.nan
    return Cifar(runs.mean(0), np.mean(top, axis=0), spread, float(np.mean(by_bin)))


def reduced(values: Array, name: str, kept: bool = False) -> float:
    """By which share ``name`` is below histogram binning (or what share is kept)."""
    share = float(values[NAMES.index(name)] / values[0])
    return share if kept else 1.0 - share


def sweep_table(title: str, values: Array, scale: float, form: str) -> Table:
    table = Table("method", *[f"B={b}" for b in BINS], title=title)
    for name, row in zip(NAMES, values, strict=True):
        table.add_row(name, *[f"{v * scale:{form}}" for v in row])
    return table


def usable(found: Cifar, name: str) -> tuple[int, float]:
    """(most bins at which the calibration error is accepted, squared error there); (0, nan) if there are none."""
    ce2, mse = found.marginal[NAMES.index(name)].T
    fits = np.flatnonzero(np.sqrt(ce2) <= USABLE)
    return (BINS[fits[-1]], float(mse[fits[-1]])) if fits.size else (0, np.nan)


def report_cifar(found: Cifar, checks: Checks, console: Console) -> None:
    ce2, top = found.marginal[..., 0], found.top[..., 0]
    console.print(sweep_table("marginal: squared calibration error by output value, 1e-4", ce2, 1e4, ".2f"))
    console.print(sweep_table("marginal: mean squared error, sum over classes / 2", found.marginal[..., 1], 1.0, ".4f"))
    console.print(sweep_table("top label: squared calibration error by output value, 1e-4", top, 1e4, ".2f"))
    console.print(sweep_table("top label: mean squared error", found.top[..., 1], 1.0, ".4f"))
    console.print(
        f"histogram binning, B=100: {ce2[0, -1] * 1e4:.2f}e-4 by output value, {found.by_bin * 1e4:.2f}e-4 by bin; "
        f"standard error of the reduction at B=100: {found.spread:.1%}; with the split default targets it is "
        f"{reduced(ce2[:, -1], SMOOTH_SPLIT):.1%}, hard {reduced(ce2[:, -1], HARD_SPLIT):.1%}"
    )
    checks.add("marginal, B=100, hard: CE2 below histogram, %", 100 * reduced(ce2[:, -1], HARD), 27, 43, ".1f")
    checks.add(
        "marginal, B=10, hard: CE2 below histogram, % (about equal)", 100 * reduced(ce2[:, 0], HARD), -10, 10, ".1f"
    )
    checks.add(
        "marginal, B=100, default targets: CE2 below histogram, %", 100 * reduced(ce2[:, -1], SMOOTH), 45, form=".1f"
    )
    (b0, mse0), (b1, mse1), (b2, mse2) = (usable(found, name) for name in (HISTOGRAM, HARD, SMOOTH))
    console.print(
        f"most bins with CE <= {USABLE}: histogram {b0}, hard {b1}, smooth {b2} (MSE {1 - mse2 / mse0:.1%} lower)"
    )
    checks.add(f"MSE lower at CE <= {USABLE}, hard (B={b1} against {b0}), %", 100 * (1 - mse1 / mse0), 8, form=".2f")
    wide = reduced(ce2[:, -1], SCALING_WIDTH, kept=True)
    checks.add("ablation: B=100, scaling with equal widths: CE2 / histogram's (gain is gone)", wide, 1.0)
    checks.add("by bin / by value, histogram, B=100 (they differ)", found.by_bin / ce2[0, -1], 1.1)
    checks.add("top label, B=10, hard: CE2 / histogram's (honest loss)", reduced(top[:, 0], HARD, kept=True), 1.0)
    console.print(
        f"top label, CE2 against histogram binning: hard {reduced(top[:, 0], HARD, kept=True):.2f} times at B=10 and "
        f"{reduced(top[:, -1], HARD, kept=True):.2f} at B=100; default targets {reduced(top[:, 0], SMOOTH, kept=True):.2f} "
        f"and {reduced(top[:, -1], SMOOTH, kept=True):.2f}"
    )


# ---- synthetic: the error over the whole population, by integration


def truth(p: Array) -> Array:
    return sigmoid(SLOPE * logit(p) + INTERCEPT)


NODES = np.linspace(0.0, 1.0, 200_001)
HITS = np.concatenate([[0.0], np.cumsum((truth(NODES)[1:] + truth(NODES)[:-1]) / 2.0)]) / (NODES.size - 1)
SQUARE = float((truth(NODES) ** 2).mean())


def population(fitted: Recalibrator) -> tuple[float, float, bool]:
    """(CE2, squared distance of the map from the truth, bins 2-well-balanced) over p uniform, without sampling."""
    cuts = fitted.edges_[1:-1]
    if isinstance(fitted, ScalingBinning):
        cuts = np.sort(sigmoid((cuts - fitted.intercept_) / fitted.slope_))
        assert fitted.slope_ > 0.0, "a falling map on a rising truth"
    cuts = np.concatenate([[0.0], cuts, [1.0]])
    mass, hits, levels = np.diff(cuts), np.diff(np.interp(cuts, NODES, HITS)), fitted.levels_
    used = mass > 0.0
    ce2 = ((hits - mass * levels)[used] ** 2 / mass[used]).sum()
    distance = SQUARE + (mass * levels**2 - 2.0 * hits * levels).sum()
    fair = ((mass >= 0.5 / mass.size) & (mass <= 2.0 / mass.size)).all()
    return float(ce2), float(distance), bool(fair)


def measure_synthetic(repetitions: int, progress: Progress) -> Array:
    """population of every method in every cell, one sample for all of them: means (methods, cells, 3)."""
    rng, task = np.random.default_rng(1), progress.add_task("synthetic", total=repetitions)
    total = np.zeros((len(METHODS), len(CELLS), 3))
    for seed in range(repetitions):
        p = rng.random(max(n for n, _ in CELLS))
        y = (rng.random(p.size) < truth(p)).astype(np.float64)
        for m, make in enumerate(METHODS.values()):
            for c, (n, b) in enumerate(CELLS):
                total[m, c] += population(make(b, seed).fit(p[:n], y[:n]))
        progress.advance(task)
    return total / repetitions


def report_synthetic(found: Array, checks: Checks, console: Console) -> None:
    cell = {pair: i for i, pair in enumerate(CELLS)}
    titles = (
        "exact squared calibration error, 1e-4",
        "squared distance from the truth, 1e-4",
        "2-well-balanced, % of runs",
    )
    for k, title in enumerate(titles):
        table = Table("method", *[f"n={n} B={b}" for n, b in CELLS], title=f"synthetic: {title}")
        for name, row in zip(NAMES, found[..., k] * (1e2 if k == 2 else 1e4), strict=True):
            table.add_row(name, *[f"{v:.1f}" if k == 2 else f"{v:.2f}" for v in row])
        console.print(table)
    table = Table(
        "method", "n 1000 -> 2000, B=10: CE2 divided by", "B 5 -> 20, n=2000: CE2 times", title="synthetic: ratios"
    )
    ce2 = found[..., 0]
    halves = ce2[:, cell[1000, 10]] / ce2[:, cell[2000, 10]]
    grows = ce2[:, cell[2000, 20]] / ce2[:, cell[2000, 5]]
    for name, half, more in zip(NAMES, halves, grows, strict=True):
        table.add_bin(name, f"{half:.2f}", f"{more:.2f}")
    console.print(table)
    s, split = NAMES.index(SMOOTH), NAMES.index(SMOOTH_SPLIT)
    checks.add("synthetic: CE2 at n=1000 / n=2000, histogram", halves[0], 1.8, 2.3)
    checks.add("synthetic: CE2 at n=1000 / n=2000, scaling-binning", halves[s], 1.8, 2.3)
    checks.add("synthetic: CE2 at B=20 / B=5, histogram by bin", grows[0], 3.2, 4.6)
    checks.add("synthetic: CE2 at B=20 / B=5, scaling-binning", grows[s], 0.9, 1.15)
    reuse = ce2[split, cell[1000, 10]] / ce2[s, cell[1000, 10]]
    checks.add("synthetic: CE2 three-way split / reused, n=1000 B=10", reuse, 2.0, 3.5)
    fair = found[:, cell[1000, 10], 2] * 100
    checks.add("ablation: bins 2-well-balanced with uniform mass, % of runs", fair[s], 90, form=".1f")
    checks.add("ablation: the same with equal widths", fair[NAMES.index(SCALING_WIDTH)], 0, 10, ".1f")


# ---- estimating an error that is known


@dataclass
class Estimation:
    """Estimates of the squared error of one fixed model: (repetitions, plug-in and debiased)."""

    bins: int
    n: int
    true: float
    found: Array


def measure_estimation(bins: int, n: int, off: float, repetitions: int, progress: Progress) -> Estimation:
    """Samples of a model with even levels whose outcomes are off by +-``off`` in turn (inwards at the ends)."""
    rng, task = np.random.default_rng(2), progress.add_task(f"estimation B={bins}", total=repetitions)
    levels = (np.arange(bins) + 0.5) / bins
    sign = np.where(levels < off, 1.0, np.where(levels > 1.0 - off, -1.0, (-1.0) ** np.arange(bins)))
    chance, binning, found = levels + sign * off, Levels(levels), np.empty((repetitions, 2))
    for r in range(repetitions):
        bin = rng.integers(0, bins, n)
        window = Cumulative(binning)
        window.update_many(levels[bin], (rng.random(n) < chance[bin]).astype(np.float64))
        s = window.snapshot()
        found[r] = s.values("k2")[0], s.values("k2_debiased")[0]
        progress.advance(task)
    return Estimation(bins, n, off**2, found)


def report_estimation(off: Estimation, calibrated: Estimation, checks: Checks, console: Console) -> None:
    table = Table(
        "model", "estimator", "mean", "bias", "standard error", "RMSE", title="squared error, truth known, 1e-4"
    )
    for e in (off, calibrated):
        for k, name in enumerate(("plug-in", "debiased")):
            x = e.found[:, k]
            values = (x.mean(), x.mean() - e.true, x.std(ddof=1) / np.sqrt(x.size), rmse(e, k))
            table.add_bin(f"B={e.bins} n={e.n} truth {e.true * 1e4:.2f}", name, *[f"{v * 1e4:.3f}" for v in values])
    console.print(table)
    checks.add("plug-in / truth, B=100 n=1000 (about 20)", off.found[:, 0].mean() / off.true, 15, 25, ".1f")
    for e in (off, calibrated):
        x = e.found[:, 1]
        far = abs(x.mean() - e.true) / (x.std(ddof=1) / np.sqrt(x.size))
        checks.add(f"debiased: standard errors from the truth, B={e.bins} n={e.n}", far, 0, 3)
    checks.add("RMSE plug-in / debiased, B=300 n=10,000", rmse(calibrated, 0) / rmse(calibrated, 1), 8, 14)


def rmse(e: Estimation, k: int) -> float:
    return float(np.sqrt(((e.found[:, k] - e.true) ** 2).mean()))


# ---- figures


def draw(found: Cifar, folder: Path, kind: str) -> list[Path]:
    """Two pictures: calibration error against bins; squared error against bins, and against calibration error."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    styles = {
        HISTOGRAM: ("#444444", "s--"),
        HARD: ("#0072b2", "o-"),
        SMOOTH: ("#d55e00", "^-"),
        HARD_SPLIT: ("#999933", "v:"),
    }
    first, second = Figure((6.4, 4.4), layout="constrained"), Figure((11.0, 4.4), layout="constrained")
    ce, (mse, trade) = first.subplots(), second.subplots(1, 2)
    for name, (colour, style) in styles.items():
        ce2, square = found.marginal[NAMES.index(name)].T
        ce.plot(BINS, ce2 * 1e4, style, color=colour, label=name)
        mse.plot(BINS, square, style, color=colour, label=name)
        trade.plot(np.sqrt(ce2), square, style, color=colour, label=name)
    ce.set(xlabel="bins", ylabel="squared calibration error, $10^{-4}$", ylim=(0, None))
    mse.set(xlabel="bins", ylabel="mean squared error")
    trade.set(xlabel="calibration error", ylabel="mean squared error")
    trade.axvline(USABLE, color="black", linewidth=0.8)
    first.suptitle("CIFAR-10, 1000 points: calibration error by output value", size=11)
    second.suptitle("CIFAR-10, 1000 points: squared error; the line is the calibration error one would accept", size=11)
    for figure, axes in ((first, ce), (second, mse)):
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    paths = [folder / f"calibration_error.{kind}", folder / f"squared_error.{kind}"]
    for figure, path in zip((first, second), paths, strict=True):
        figure.savefig(path, dpi=120)
    return paths


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, help="the npz with probs (10000, 10) and labels; without it: synthetic only"
    )
    parser.add_argument("--repetitions", type=int, default=PUBLISHED)
    parser.add_argument("--out", type=Path, help="folder for the two figures; needs --data")
    parser.add_argument("--format", choices=("svg", "png"), default="svg")
    args = parser.parse_args()
    if args.out and not args.data:
        parser.error("--out draws the CIFAR figures: give --data")
    if args.data and not args.data.is_file():
        parser.error(f"--data {args.data}: there is no such file")
    if args.repetitions < 2:
        parser.error(f"--repetitions must be at least 2, got {args.repetitions}")
    warnings.simplefilter("ignore", CalibrationWarning)  # small and separable samples are what is measured here
    console, checks, many = Console(width=150), Checks(), SYNTHETIC * args.repetitions
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        cifar = measure_cifar(args.data, args.repetitions, progress) if args.data else None
        synthetic = measure_synthetic(many, progress)
        off = measure_estimation(100, 1000, 0.03, many, progress)
        calibrated = measure_estimation(300, 10_000, 0.0, many, progress)
    if cifar:
        report_cifar(cifar, checks, console)
    else:
        console.print("no --data: the CIFAR tables are left out")
    report_synthetic(synthetic, checks, console)
    report_estimation(off, calibrated, checks, console)
    console.print(checks.table())
    if args.repetitions < PUBLISHED:
        console.print(f"the bounds are for {PUBLISHED} repetitions; with {args.repetitions} a miss may be noise")
    if cifar and args.out:
        console.print("wrote", *map(str, draw(cifar, args.out, args.format)))
    return 0 if checks.hold else 1


if __name__ == "__main__":
    sys.exit(main())
