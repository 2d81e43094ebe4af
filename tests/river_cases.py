"""Every River metric with random events for it and the number it must show: the batch function, or the naive definition."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import naive
import numpy as np
from river import conf, proba

from streamcal import Edges, EqualWidth, batch, log_loss, murphy, top_label
from streamcal.river.interval_metrics import PIT, Q1, Coverage, IntervalScore, PinballLoss
from streamcal.river.metrics import (
    ECE,
    K1,
    K2,
    L2CE,
    MCE,
    Brier,
    BrierCalibration,
    BrierRefinement,
    MarginalCE,
    NormalizedEntropy,
    PARatio,
    TopLabelECE,
)

BINS, EDGES = EqualWidth(15), Edges([0.0, 0.2, 0.7, 1.0])
REAL_EDGES = [-math.inf, -0.5, 0.0, 0.4, math.inf]
LEVEL = 0.8

Event = tuple[Any, Any, float]  # y_true, y_pred, w


@dataclass(frozen=True)
class Case:
    """One metric with its settings: ``make(**window)``, ``draw(rng, n)`` -> events, ``truth(events)`` -> number."""

    make: Callable[..., Any]
    draw: Callable[[np.random.Generator, int], list[Event]]
    truth: Callable[[list[Event]], float]


# ---------------------------------------------------------------------------- events


def binary(rng, n):
    p = rng.random(n)
    y = rng.random(n) < p**2
    return [(bool(b), {False: 1.0 - a, True: a}, w) for a, b, w in zip(p.tolist(), y, rng.random(n).tolist())]


def three_classes(rng, n):
    p = rng.dirichlet(np.ones(3), n)
    return [
        (int(k), dict(enumerate(row)), w)
        for k, row, w in zip(rng.integers(3, size=n), p.tolist(), rng.random(n).tolist())
    ]


def quantiles(rng, n):
    v, y = rng.normal(0.5, 1.0, n), rng.normal(0.0, 1.0, n)
    return list(zip(y.tolist(), v.tolist(), rng.random(n).tolist()))


def intervals(rng, n):
    """As River's Interval and as pairs."""
    a, y = np.sort(rng.normal(0.0, 1.0, (n, 2)), 1).tolist(), rng.normal(0.0, 1.0, n).tolist()
    kinds = [lambda lo, hi: conf.Interval(lower=lo, upper=hi), lambda lo, hi: (lo, hi)]
    return [(b, kinds[i % 2](*ends), w) for i, (b, ends, w) in enumerate(zip(y, a, rng.random(n).tolist()))]


def distributions(rng, n):
    made = []
    for y, w in zip(rng.normal(0.0, 1.0, n).tolist(), rng.random(n).tolist()):
        gaussian = proba.Gaussian()
        for x in rng.normal(0.0, 1.0, 5).tolist():
            gaussian.update(x)
        made.append((y, gaussian, w))
    return made


# ---------------------------------------------------------------------------- the truth


def on_arrays(function, events, **settings):
    """A batch function of (p, y)."""
    if not events:
        return math.nan
    y, p, w = zip(*((float(y), p[True], w) for y, p, w in events))
    return function(p, y, sample_weight=w, **settings)


def entropy_ratio(p, y, sample_weight):
    base = float(np.average(y, weights=sample_weight))
    entropy = naive.entropy(base)
    return log_loss(p, y, sample_weight=sample_weight) / entropy if entropy > 0 else math.nan


def calibration_part(p, y, **settings):
    return murphy(p, y, binning=BINS, **settings).reliability


def refinement_part(p, y, **settings):
    terms = murphy(p, y, binning=BINS, **settings)
    return terms.uncertainty - terms.resolution + terms.within_variance - terms.within_covariance


def of_top_label(events):
    if not events:
        return math.nan
    conf, correct = top_label([list(p.values()) for _, p, _ in events], [y for y, _, _ in events])
    return batch.ece(conf, correct, sample_weight=[w for *_, w in events])


def of_each_class(events, norm, debias=False):
    """marginal_ce takes no weights: class by class, as its docstring says."""
    if not events:
        return math.nan
    w = [w for *_, w in events]
    each = [
        (batch.k1 if norm == 1 else partial(batch.k2, debias=debias))(
            [p[k] for _, p, _ in events], [float(y == k) for y, _, _ in events], binning=BINS, sample_weight=w
        )
        for k in range(3)
    ]
    mean = float(np.mean(each))
    return mean if norm == 1 or math.isnan(mean) else math.sqrt(max(mean, 0.0))


def average(values, events):
    return float(np.average(values, weights=[w for *_, w in events])) if events else math.nan


def ends(interval):
    return interval if isinstance(interval, tuple) else (interval.lower, interval.upper)


def coverage(events):
    inside = [float(ends(i)[0] <= y <= ends(i)[1]) if not isinstance(i, float) else float(y <= i) for y, i, _ in events]
    return average(inside, events)


def pinball(events):
    return average([naive.pinball_of(v, y, LEVEL) for y, v, _ in events], events)


def interval_score(events):
    """Gneiting & Raftery 2007, equation 43."""

    def one(y, low, high, alpha=1.0 - LEVEL):
        return (high - low) + 2 / alpha * (low - y) * (y < low) + 2 / alpha * (y - high) * (y > high)

    return average([one(y, *ends(i)) for y, i, _ in events], events)


def q1(events):
    """Bins of the predicted value, or of the interval's width; without weights this is streamcal.q1."""
    made = [
        naive.quantile_events([LEVEL], [i], y, w)[0]
        if isinstance(i, float)
        else naive.interval_events(0.1, 0.9, *ends(i), y, w)[0]
        for y, i, w in events
    ]
    return naive.k1(naive.split(made, lambda c: naive.edge_bin(c, REAL_EDGES), 4))


def pit(events):
    """Mean absolute gap of the nine levels."""
    if not events:
        return math.nan
    u = [naive.NormalDist(f.mu, f.sigma).cdf(y) for y, f, _ in events]
    w = [w for *_, w in events]
    gaps = [naive.gap([naive.pit_events([k / 10], u_i, w_i)[0] for u_i, w_i in zip(u, w)]) for k in range(1, 10)]
    return float(np.mean(np.abs(gaps)))


def of(function, **settings):
    return partial(on_arrays, function, **settings)


CASES = {
    "ECE": Case(ECE, binary, of(batch.ece)),
    "ECE, 4 bins": Case(partial(ECE, n_bins=4), binary, of(batch.ece, n_bins=4)),
    "ECE, edges": Case(partial(ECE, binning=EDGES), binary, of(batch.k1, binning=EDGES)),
    "MCE": Case(MCE, binary, of(batch.mce, binning=BINS)),
    "K1": Case(K1, binary, of(batch.k1, binning=BINS)),
    "K2": Case(K2, binary, of(batch.k2, binning=BINS)),
    "K2, debiased": Case(partial(K2, n_bins=3, debias=True), binary, of(batch.k2, binning=EqualWidth(3), debias=True)),
    "L2CE": Case(L2CE, binary, of(batch.l2_ce, binning=BINS)),
    "L2CE, debiased": Case(
        partial(L2CE, n_bins=3, debias=True), binary, of(batch.l2_ce, binning=EqualWidth(3), debias=True)
    ),
    "Brier": Case(Brier, binary, of(batch.brier)),
    "BrierCalibration": Case(BrierCalibration, binary, of(calibration_part)),
    "BrierRefinement": Case(BrierRefinement, binary, of(refinement_part)),
    "PARatio": Case(PARatio, binary, of(batch.pa_ratio)),
    "NormalizedEntropy": Case(NormalizedEntropy, binary, of(entropy_ratio)),
    "TopLabelECE": Case(TopLabelECE, three_classes, of_top_label),
    "MarginalCE, L1": Case(partial(MarginalCE, norm=1), three_classes, partial(of_each_class, norm=1)),
    "MarginalCE, L2": Case(partial(MarginalCE, classes=(0, 1, 2)), three_classes, partial(of_each_class, norm=2)),
    "MarginalCE, debiased": Case(
        partial(MarginalCE, debias=True), three_classes, partial(of_each_class, norm=2, debias=True)
    ),
    "Coverage, quantiles": Case(partial(Coverage, LEVEL), quantiles, coverage),
    "Coverage, intervals": Case(partial(Coverage, LEVEL), intervals, coverage),
    "PinballLoss": Case(partial(PinballLoss, LEVEL), quantiles, pinball),
    "IntervalScore": Case(partial(IntervalScore, LEVEL), intervals, interval_score),
    "Q1, quantiles": Case(partial(Q1, LEVEL, binning=Edges(REAL_EDGES)), quantiles, q1),
    "Q1, intervals": Case(partial(Q1, LEVEL, binning=Edges(REAL_EDGES)), intervals, q1),
    "PIT": Case(PIT, distributions, pit),
}
METRICS = {type(case.make()).__name__: case.make for case in CASES.values()}


def name_of(value):
    """A test's name for a value: its repr, without the address that differs from run to run."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
