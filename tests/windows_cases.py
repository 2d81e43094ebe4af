"""The family that the laws of the windows run over, in two small tables.

KINDS: claim + binning + its textbook bin and events. WINDOWS: constructor + its textbook content. A new window or claim
is one line here.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import pickle
from collections.abc import Callable

import naive
import numpy as np
import pytest
import strategies as sts
from hypothesis import settings
from hypothesis import strategies as st

import streamcal
from streamcal import (
    PIT,
    Cumulative,
    Edges,
    EqualWidth,
    Fading,
    Grid,
    Interval,
    Levels,
    LogOdds,
    Marginal,
    Mean,
    Quantile,
    Revertible,
    Sliding,
    Timed,
    TopLabel,
    Tumbling,
    UniformMass,
)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A claim with a binning: how to draw raw events, and what one raw event means per key."""

    claim: object
    binning: object
    raw: st.SearchStrategy  # of (raw prediction, outcome, weight)
    events: Callable  # raw, y, w -> one naive event per key
    keys: int = 1
    loss: str | None = None
    domain: str = "unit"

    @property
    def edges(self):
        return [float(e) for e in self.binning.fine_edges(self.domain)]

    @property
    def options(self):
        return {"claim": self.claim, "loss": self.loss}


LEVELS = (0.1, 0.25, 0.3, 0.9)
CUTS = (0.0, 0.1, 0.3, 0.9, 1.0)
QUANTILES = (0.1, 0.5, 0.9)

reals = st.integers(-9, 9).map(lambda i: i / 2)
labels = st.integers(0, 2)
simplex = st.sampled_from(((0.7, 0.2, 0.1), (0.1, 0.1, 0.8), (0.4, 0.4, 0.2), (1.0, 0.0, 0.0), (0.0, 0.5, 0.5)))
pairs = st.tuples(reals, st.integers(0, 8)).map(lambda a: (a[0], a[0] + a[1] / 2))


def weighted(raw, y):
    return st.tuples(raw, y, sts.weights)


def mean(binning, event=sts.events, claim=None, loss=None):
    return Kind(claim or Mean(), binning, event, naive.mean_events, loss=loss)


KINDS = {
    "width10": mean(EqualWidth(10)),
    "width25": mean(EqualWidth(25)),
    "mass": mean(UniformMass(4)),
    "logodds": mean(LogOdds(4)),
    "levels": mean(Levels(LEVELS)),
    "grid": mean(Grid(10)),
    "edges": mean(Edges(CUTS)),
    "binary": mean(EqualWidth(10), sts.binary_events, Mean("binary")),
    "log": mean(
        EqualWidth(10),
        st.tuples(sts.inner_probabilities, sts.unit, sts.weights),
        loss="log",
    ),
    "quantile": Kind(
        Quantile(0.9),
        Edges((-5.0, -1.0, 0.0, 2.0, 5.0)),
        weighted(reals, reals),
        lambda v, y, w: naive.quantile_events([0.9], [v], y, w),
        loss="pinball",
    ),
    "quantile-mass": Kind(
        Quantile(0.5),
        UniformMass(4),
        weighted(st.one_of(reals, st.floats(-1e12, 1e12), st.sampled_from((0.0, 5e-324, -1e-9))), reals),
        lambda v, y, w: naive.quantile_events([0.5], [v], y, w),
        domain="real",
    ),
    "quantiles": Kind(
        Quantile(QUANTILES),
        Levels((-2.0, 0.0, 2.0)),
        weighted(st.tuples(reals, reals, reals), reals),
        lambda v, y, w: naive.quantile_events(QUANTILES, v, y, w),
        keys=3,
    ),
    "interval": Kind(
        Interval(0.1, 0.9),
        Edges((0.0, 1.0, 2.0, 10.0)),
        weighted(pairs, reals),
        lambda b, y, w: naive.interval_events(0.1, 0.9, *b, y, w),
    ),
    "toplabel": Kind(TopLabel(), EqualWidth(10), weighted(simplex, labels), naive.top_label_events),
    "marginal": Kind(Marginal(3), EqualWidth(10), weighted(simplex, labels), naive.marginal_events, keys=3),
    "pit": Kind(
        PIT(QUANTILES),
        EqualWidth(10),
        st.tuples(sts.probabilities, st.just(0.0), sts.weights),
        lambda u, y, w: naive.pit_events(QUANTILES, u, w),
        keys=3,
    ),
}

SIZE, HALF_LIFE, PERIOD, PANES, STEP = 7, 5.0, 60.0, 6, 3.7


@dataclasses.dataclass(frozen=True)
class WindowCase:
    """A kind of window: how to make one, and which events are in it by its textbook rule."""

    make: Callable
    content: Callable  # n events -> [(index, factor)]
    faded: bool = False


def times(n: int, start: int = 0) -> list[float]:
    return [1000.0 + STEP * i for i in range(start, start + n)]


WINDOWS = {
    "cumulative": WindowCase(Cumulative, lambda n: [(i, 1.0) for i in range(n)]),
    "revertible": WindowCase(Revertible, lambda n: [(i, 1.0) for i in range(n)]),
    "sliding": WindowCase(
        lambda b, **k: Sliding(b, SIZE, **k),
        lambda n: [(i, 1.0) for i in naive.tail(list(range(n)), SIZE)],
    ),
    "tumbling": WindowCase(
        lambda b, **k: Tumbling(b, SIZE, **k),
        lambda n: [(i, 1.0) for i in naive.tumbling(list(range(n)), SIZE)],
    ),
    "fading": WindowCase(
        lambda b, **k: Fading(b, HALF_LIFE, **k),
        lambda n: list(enumerate(naive.fade(n, HALF_LIFE))),
        faded=True,
    ),
    "timed": WindowCase(
        lambda b, **k: Timed(b, PERIOD, panes=PANES, **k),
        lambda n: [(i, 1.0) for i in naive.timed(times(n), PERIOD, PANES)[0]],
    ),
}

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
every_window = pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
few = settings(max_examples=12)
# Every window with every claim and with every binning: for laws that ask nothing of the three together.
every_part = pytest.mark.parametrize(
    "window, kind",
    [
        pytest.param(WINDOWS[w], KINDS[k], id=f"{w}-{k}")
        for w, k in sts.pairwise(
            itertools.product(WINDOWS, KINDS),
            lambda case: case[0],
            lambda case: type(KINDS[case[1]].claim),
            lambda case: type(KINDS[case[1]].binning),
        )
    ],
)


def every_way(name, ways):
    """Every window with every kind, with some of the ways: each way with every window and with every kind."""
    cases = sts.pairwise(itertools.product(WINDOWS, KINDS, ways), *(lambda case, i=i: case[i] for i in range(3)))
    params = [pytest.param(WINDOWS[w], KINDS[k], way, id=f"{w}-{k}-{way}") for w, k, way in cases]
    return pytest.mark.parametrize(f"window, kind, {name}", params)


def build(window: WindowCase, kind: Kind, **options):
    return window.make(kind.binning, **{**kind.options, **options})


def feed(w, stream, cuts=None, start=0, key=None):
    """Feed a list of (raw, y, weight) in batches (default: one)."""
    for cut in cuts or [slice(0, len(stream))]:
        part = stream[cut]
        if not part:
            continue
        raw, y, weight = (list(column) for column in zip(*part))
        t = times(len(part), start + cut.start) if isinstance(w, Timed) else None
        w.update_many(raw, y, weight, key=None if key is None else key[cut], t=t)
    return w


def feed_one(w, raw, y, weight, index, key=0):
    clock = {"t": times(1, index)[0]} if isinstance(w, Timed) else {}
    w.update(raw, y, weight, key=key, **clock)


def bin_function(kind: Kind) -> Callable:
    """The textbook bin of a score: exact for equal widths, else between the edges the binning states.

    (That Grid, Levels and the fine grids state the right edges is tested in test_batch.)
    """
    if isinstance(kind.binning, EqualWidth):
        return lambda c: naive.width_bin(c, kind.binning.n_bins)
    edges = kind.edges
    return lambda c: naive.edge_bin(c, edges)


def naive_cells(kind: Kind, stream, content) -> np.ndarray:
    """(keys, bins, 8) sums of the events in content, without the ledger."""
    bin_of = bin_function(kind)
    groups = {}
    for i, factor in content:
        raw, y, weight = stream[i]
        for key, (c, claim, outcome, w) in enumerate(kind.events(raw, y, weight)):
            groups.setdefault((key, bin_of(c)), []).append(((c, claim, outcome, w * factor), factor))
    out = np.zeros((kind.keys, len(kind.edges) - 1, 8))
    for place, group in groups.items():
        out[place] = naive.sums([event for event, _ in group])
        out[place][0] = math.fsum(factor for _, factor in group)  # a faded event counts as a part of one
    return out


def assert_cells(got, want, faded=False, atol=1e-300):
    """Counts exactly (unless faded), every other sum to 1e-12 relative: no sum has terms of two signs."""
    if not faded:
        np.testing.assert_array_equal(got[..., 0], want[..., 0])
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=atol)


def sums(window_or_snapshot) -> np.ndarray:
    return np.array(window_or_snapshot.cells)[:, :-1]


def restored(how: str, w):
    if how == "bytes":
        return streamcal.from_bytes(w.to_bytes())
    if how == "class":
        return type(w).from_bytes(w.to_bytes())
    return pickle.loads(pickle.dumps(w)) if how == "pickle" else copy.deepcopy(w)


PLUG_IN = [
    "ece",
    "mce",
    "k1",
    "k2",
    "kinf",
    "l2_ce",
    "brier",
    "reliability_term",
    "resolution",
    "uncertainty",
    "within_variance",
    "within_covariance",
    "pa_ratio",
    "oe_ratio",
    "sharpness",
    "coverage",
]
