"""Histogram binning against its definition in plain Python."""

from __future__ import annotations

import math
from statistics import fmean

import naive
import numpy as np
import pytest
import strategies as sts
from hypothesis import given
from hypothesis import strategies as st

from streamcal import Cumulative, Edges, EqualWidth, Levels, LogOdds, UniformMass, from_bytes
from streamcal.binning import mass_edges
from streamcal.recalibrate import histogram
from streamcal.recalibrate.histogram import HistogramBinning, bins_within, condensed, off_scores

SAMPLES = st.lists(st.tuples(sts.probabilities, sts.unit, st.integers(1, 3)), min_size=1, max_size=30)
BINS = st.integers(1, 12)


def naive_levels(p, y, inner) -> list[float]:
    """Mean outcome of each bin; the midpoint of a bin that holds nothing."""
    bins: list[list[float]] = [[] for _ in range(len(inner) + 1)]
    for a, b in zip(p, y):
        bins[naive.mass_bin(a, inner)].append(b)
    edges = [0.0, *inner, 1.0]
    return [fmean(r) if r else (edges[i] + edges[i + 1]) / 2 for i, r in enumerate(bins)]


@given(SAMPLES, BINS, st.lists(sts.probabilities, max_size=5))
def test_uniform_mass_equals_the_definition(events, n_bins, queries):
    p = [a for a, _, k in events for _ in range(k)]
    y = [b for _, b, k in events for _ in range(k)]
    inner = [e for e in naive.mass_edges(p, n_bins) if e < 1.0]
    levels = naive_levels(p, y, inner)
    fitted = HistogramBinning(n_bins).fit(*map(np.array, zip(*events)))
    at = [*p, *queries]
    np.testing.assert_allclose(fitted.predict(at), [levels[naive.mass_bin(v, inner)] for v in at], rtol=0, atol=1e-12)


@given(SAMPLES, BINS)
def test_equal_width_equals_the_definition(events, n_bins):
    fitted = HistogramBinning(n_bins, "equal-width").fit(*map(np.array, zip(*events)))
    for m in range(n_bins):
        held = [(y, w) for p, y, w in events if naive.width_bin(p, n_bins) == m]
        middle = (m / n_bins + (m + 1) / n_bins) / 2
        want = math.fsum(y * w for y, w in held) / math.fsum(w for _, w in held) if held else middle
        assert fitted.levels_[m] == pytest.approx(want, abs=1e-12)
    at = np.array([p for p, _, _ in events])
    bins = [naive.width_bin(p, n_bins) for p in at]
    assert fitted.predict(at).tolist() == fitted.levels_[bins].tolist()


@given(SAMPLES, BINS)
def test_the_mean_is_kept(events, n_bins):
    p, y, w = map(np.array, zip(*events))
    fitted = HistogramBinning(n_bins).fit(p, y, w)
    assert (w * fitted.predict(p)).sum() == pytest.approx((w * y).sum(), abs=1e-9)


def test_an_empty_bin_is_its_midpoint():
    """empty-bin-division: a bin without events is no 0/0."""
    fitted = HistogramBinning(4, "equal-width").fit([0.1, 0.6], [1, 0])
    assert fitted.levels_.tolist() == [1.0, 0.375, 0.0, 0.875]
    beside_an_atom = HistogramBinning(2).fit([0.9] * 5, [1, 1, 1, 1, 0])
    assert beside_an_atom.edges_.tolist() == [0.0, 0.9, 1.0]
    assert beside_an_atom.predict([0.9, 0.95]) == pytest.approx([0.8, 0.95])


@pytest.mark.parametrize("score", [0.0, 0.4, 1.0])
def test_constant_scores_give_the_base_rate_at_that_score(score):
    for binning in ("uniform-mass", "equal-width"):
        assert HistogramBinning(5, binning).fit([score] * 4, [1, 0, 0, 0]).predict(score) == 0.25


def test_atoms_at_both_ends_have_bins_of_their_own():
    p, y = [0.0] * 10 + [0.5] * 10 + [1.0] * 10, [0] * 9 + [1] + [0, 1] * 5 + [1] * 9 + [0]
    fitted = HistogramBinning(3).fit(p, y)
    assert fitted.predict([0.0, 0.5, 1.0]) == pytest.approx([0.1, 0.5, 0.9])


def test_fewer_events_than_bins():
    fitted = HistogramBinning(50).fit([0.2, 0.6], [0, 1])
    assert fitted.edges_ == pytest.approx([0.0, 0.4, 1.0])
    assert fitted.levels_.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    "arguments, message", [((0,), "n_bins"), ((2.5,), "n_bins"), ((True,), "n_bins"), ((5, "quantile"), "binning")]
)
def test_wrong_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        HistogramBinning(*arguments)


@given(st.lists(st.tuples(sts.ties, sts.binary), min_size=1, max_size=40), BINS)
def test_exact_on_a_snapshot_that_holds_the_scores(events, n_bins):
    p, y = map(np.array, zip(*events))
    window = Cumulative(Levels([0.1, 0.25, 0.3, 0.6, 0.9]))
    window.update_many(p, y)
    got, want = HistogramBinning(n_bins).fit_snapshot(window.snapshot()), HistogramBinning(n_bins).fit(p, y)
    np.testing.assert_allclose(got.predict(p), want.predict(p), rtol=0, atol=1e-12)


def test_a_mean_claim_off_by_rounding_stays_in_the_bin_of_its_score():
    """The mean of three claims 0.1 is 0.10000000000000002; an edge on it, or at 1/10, must not part it from 0.1."""
    p, y = [0.1] * 3 + [0.7] * 2, [0, 0, 1, 1, 1]
    window = Cumulative(UniformMass(15))
    window.update_many(p, y)
    s = window.snapshot()
    assert s.mean_p[0][s.weight[0] > 0][0] > 0.1
    for made in (HistogramBinning(2), HistogramBinning(4), HistogramBinning(10, "equal-width")):
        assert made.fit_snapshot(s).predict([0.1, 0.7]) == pytest.approx([1 / 3, 1.0])
        assert made.fit(p, y).predict([0.1, 0.7]) == pytest.approx([1 / 3, 1.0])


@given(st.lists(sts.probabilities, min_size=2, max_size=40, unique=True), st.lists(sts.probabilities, min_size=1))
def test_bins_by_table_follow_the_bin_rule(edges, scores):
    edges = np.unique(np.array([-np.inf, *edges, np.inf]))
    at = np.array([*scores, *edges[1:-1], *np.nextafter(edges[1:-1], -1), *np.nextafter(edges[1:-1], 2), -1e9, 1e9])
    assert bins_within(edges, at).tolist() == Edges(edges).bins(at).tolist()
    assert bins_within(edges, 1e6 * at).tolist() == Edges(edges).bins(1e6 * at).tolist()


def test_edges_leave_the_scores():
    edges = off_scores(np.array([0.0, 0.1, 0.4, 0.9, 1.0]), np.array([0.1, 0.3, 0.5, 0.9]))
    assert edges.tolist() == [0.0, 0.2, 0.4, 1.0]


def test_equal_widths_from_the_same_bins_are_exact():
    rng = np.random.default_rng(3)
    p = rng.random(2000)
    y = (rng.random(2000) < p).astype(float)
    window = Cumulative(EqualWidth(100))
    window.update_many(p, y)
    got = HistogramBinning(10, "equal-width").fit_snapshot(window.snapshot())
    np.testing.assert_allclose(got.levels_, HistogramBinning(10, "equal-width").fit(p, y).levels_, rtol=1e-12)


@pytest.mark.parametrize("binning, bound", [(UniformMass(15), 0.01), (LogOdds(15), 0.025)])
def test_near_the_exact_fit_on_a_fine_grid(binning, bound):
    rng = np.random.default_rng(3)
    p = rng.random(20_000)
    y = (rng.random(p.size) < p**1.5).astype(float)
    window = Cumulative(binning)
    window.update_many(p, y)
    got, want = HistogramBinning().fit_snapshot(window.snapshot()), HistogramBinning().fit(p, y)
    assert np.abs(got.levels_ - want.levels_).max() < bound
    assert (np.abs(got.predict(p) - want.predict(p)) > 0.05).mean() < 0.12


# ------------------------------------------------------------------------------ edges by selection


SHAPES = {
    "smooth": lambda r, n: r.random(n),
    "real": lambda r, n: 30 * r.normal(size=n),
    "tied": lambda r, n: r.random(n).round(2),
    "skewed": lambda r, n: r.beta(0.2, 5, n),
    "atom": lambda r, n: np.where(r.random(n) < 0.7, 0.3, r.random(n)),
    "constant": lambda r, n: np.full(n, 0.3),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_edges_by_selection_are_those_of_the_sort(shape, weighted, monkeypatch):
    """`condensed` may only leave out what no edge depends on: equal bit for bit."""
    monkeypatch.setattr(histogram, "LARGE", 100)
    rng = np.random.default_rng(5)
    for n, n_bins in ((3000, 1), (3001, 10), (2999, 37), (500, 499)):
        scores = SHAPES[shape](rng, n)
        w = rng.integers(1, 4, n).astype(float) if weighted else np.ones(n)
        values, weights = condensed(scores, w, n_bins)
        assert weights.sum() == w.sum()
        got, want = (mass_edges(v, n_bins, u, (-np.inf, np.inf)) for v, u in ((values, weights), (scores, w)))
        assert got.tolist() == want.tolist()


def test_selection_leaves_little_to_sort():
    scores = np.random.default_rng(6).random(200_000)
    assert scores.size > histogram.LARGE
    values, _ = condensed(scores, np.ones(scores.size), 15)
    assert values.size < 20_000


def test_fractional_weights_are_not_condensed():
    rng = np.random.default_rng(7)
    scores, w = rng.random(histogram.LARGE), rng.random(histogram.LARGE)
    assert condensed(scores, w, 10)[0] is scores


@pytest.mark.jit
@pytest.mark.parametrize("n", [60_000, 70_000])
@pytest.mark.parametrize("spread", [1e-310, 1e-305, 1e-303, 1e-290])
def test_scores_nearer_to_each_other_than_a_table_can_tell(n, spread):
    p, y = np.repeat([0.0, spread], n // 2), np.repeat([0.0, 1.0], n // 2)
    assert HistogramBinning(2).fit(p, y).predict([0.0, spread]).tolist() == [0.0, 1.0]


def test_scores_of_exactly_zero_can_be_written_down():
    fitted = HistogramBinning().fit([0.0, 0, 0, 0.2, 0.4, 0.6, 0.8], [0, 0, 1, 0, 1, 1, 1])
    assert from_bytes(fitted.to_bytes()).predict([0.0, 0.5]).tolist() == fitted.predict([0.0, 0.5]).tolist()
