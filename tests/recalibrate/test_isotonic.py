"""Isotonic calibration against the min-max formula, scikit-learn, and the faults people reported of other fits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import strategies as sts
from conftest import sized
from hypothesis import given
from hypothesis import strategies as st

from streamcal import Cumulative, Grid, Levels, from_bytes
from streamcal.recalibrate.isotonic import IsotonicCalibration

SAMPLES = st.lists(sts.events, min_size=1, max_size=25).filter(lambda e: any(w > 0 for _, _, w in e))


def naive_isotonic(events) -> dict[float, Fraction]:
    """{score: max over a <= i of min over b >= i of the mean outcome of scores a..b}, in exact arithmetic."""
    sums: dict[float, list[Fraction]] = {}
    for p, y, w in events:
        if w > 0:
            row = sums.setdefault(float(p), [Fraction(0), Fraction(0)])
            row[0] += Fraction(w)
            row[1] += Fraction(w) * Fraction(y)
    scores = sorted(sums)

    def mean(a, b):
        return sum(sums[x][1] for x in scores[a : b + 1]) / sum(sums[x][0] for x in scores[a : b + 1])

    n = len(scores)
    return {x: max(min(mean(a, b) for b in range(i, n)) for a in range(i + 1)) for i, x in enumerate(scores)}


def naive_interpolation(points: dict[float, Fraction], v: float) -> float:
    below = [x for x in points if x <= v]
    above = [x for x in points if x >= v]
    if not below or not above:
        return float(points[min(points) if not below else max(points)])
    a, b = max(below), min(above)
    if a == b:
        return float(points[a])
    share = (Fraction(v) - Fraction(a)) / (Fraction(b) - Fraction(a))
    return float(points[a] + share * (points[b] - points[a]))


@given(SAMPLES, st.lists(sts.probabilities, max_size=5))
def test_equals_the_min_max_formula(events, queries):
    p, y, w = map(np.array, zip(*events))
    fitted = IsotonicCalibration().fit(p, y, w)
    points = naive_isotonic(events)
    at = [*points, *queries]
    np.testing.assert_allclose(fitted.predict(at), [naive_interpolation(points, v) for v in at], rtol=0, atol=1e-12)


@given(SAMPLES)
def test_the_map_never_falls_and_keeps_the_mean(events):
    p, y, w = map(np.array, zip(*events))
    fitted = IsotonicCalibration().fit(p, y, w)
    assert (np.diff(fitted.predict(np.sort(p))) >= 0).all()
    assert (w * fitted.predict(p)).sum() == pytest.approx((w * y).sum(), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("digits", [17, 3, 1])
@pytest.mark.parametrize("n", [1, 2, 50, sized(3000, 400)])
def test_equals_scikit_learn(n, digits, weighted):
    reference = pytest.importorskip("sklearn.isotonic").IsotonicRegression(out_of_bounds="clip")
    rng = np.random.default_rng(n + digits)
    p, q = rng.random(n).round(digits), rng.random(500)
    y = (rng.random(n) < p**2).astype(float)
    w = rng.random(n) if weighted else None
    want = reference.fit(p, y, sample_weight=w).predict(q)
    np.testing.assert_allclose(IsotonicCalibration().fit(p, y, w).predict(q), want, rtol=0, atol=1e-12)


@pytest.mark.jit
def test_equals_scikit_learn_on_many_events():
    reference = pytest.importorskip("sklearn.isotonic").IsotonicRegression(out_of_bounds="clip")
    rng = np.random.default_rng(4)
    p, w = rng.beta(0.5, 2, 200_000), rng.random(200_000)
    y = (rng.random(p.size) < p).astype(float)
    want = reference.fit(p, y, sample_weight=w).predict(p)
    np.testing.assert_allclose(IsotonicCalibration().fit(p, y, w).predict(p), want, rtol=0, atol=1e-12)


@given(st.lists(st.tuples(sts.ties, sts.binary), min_size=1, max_size=40))
def test_exact_on_a_snapshot_that_holds_the_scores(events):
    p, y = map(np.array, zip(*events))
    window = Cumulative(Levels([0.1, 0.25, 0.3, 0.6, 0.9]))
    window.update_many(p, y)
    at = np.linspace(0, 1, 21)
    want = IsotonicCalibration().fit(p, y).predict(at)
    np.testing.assert_allclose(
        IsotonicCalibration().fit_snapshot(window.snapshot()).predict(at), want, rtol=0, atol=1e-12
    )


def test_a_grid_of_a_thousand_bins_is_near_the_exact_fit():
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    y = (rng.random(p.size) < p**1.5).astype(float)
    window = Cumulative(Grid(1000))
    window.update_many(p, y)
    exact, rough = IsotonicCalibration().fit(p, y), IsotonicCalibration().fit_snapshot(window.snapshot())
    difference = np.abs(exact.predict(p) - rough.predict(p))
    assert difference.mean() < 0.003
    brier_exact, brier_rough = (((m.predict(p) - y) ** 2).mean() for m in (exact, rough))
    assert brier_exact <= brier_rough < brier_exact + 3e-4


def test_small_numbers():
    fitted = IsotonicCalibration().fit([0.1, 0.2, 0.4, 0.8], [0, 1, 0, 1])
    assert fitted.scores_.tolist() == [0.1, 0.2, 0.4, 0.8]
    assert fitted.levels_.tolist() == [0.0, 0.5, 0.5, 1.0]
    assert fitted.predict([[0.0, 0.15], [0.3, 1.0]]) == pytest.approx(np.array([[0.0, 0.25], [0.5, 1.0]]))


# ------------------------------------------------------------------------------ faults reported of other fits


def test_values_closer_than_1e_15_stay_in_range():
    """isotonic-inf: the slope between nearly equal scores overflows; here the fraction of the way is used."""
    p = [0.0, 5e-324, 1e-310, 1e-16, 2e-16, 0.3, math.nextafter(0.3, 1), 1 - 2**-53, 1.0]
    y = [0, 1, 1, 0, 1, 0, 1, 0, 1]
    fitted = IsotonicCalibration().fit(p, y)
    at = np.array([*p, 1e-320, 1e-311, 1e-300, 1.5e-16])
    assert ((fitted.predict(at) >= 0) & (fitted.predict(at) <= 1)).all()
    steep = IsotonicCalibration().fit([0.0, 5e-324], [0, 1])
    assert steep.predict([0.0, 5e-324, 1.0]).tolist() == [0.0, 1.0, 1.0]


def test_zero_weights_are_ignored():
    """isotonic-zero-weight-loop: 60 points, weights 0 at 5..7."""
    rng = np.random.default_rng(1)
    p, y, w = rng.random(60), (rng.random(60) < 0.5).astype(float), np.ones(60)
    w[5:8] = 0.0
    with_zeros = IsotonicCalibration().fit(p, y, w)
    without = IsotonicCalibration().fit(np.delete(p, [5, 6, 7]), np.delete(y, [5, 6, 7]))
    assert with_zeros.to_bytes() == without.to_bytes()


def test_tiny_and_huge_weights_pool_like_ordinary_ones():
    p, y = [0.1, 0.2, 0.3], [1.0, 0.0, 1.0]
    for scale in (1e-300, 1e-160, 1.0, 1e99):
        fitted = IsotonicCalibration().fit(p, y, np.array([1.0, 3.0, 1.0]) * scale)
        assert fitted.predict(p) == pytest.approx([0.25, 0.25, 1.0])


def test_strict_keeps_the_ranking():
    """isotonic-changes-auc: flat stretches tie scores that were ordered; strict=True breaks the ties by the raw score."""
    rng = np.random.default_rng(2)
    p = rng.permutation(np.linspace(0.01, 0.99, 400))
    y = (rng.random(400) < p).astype(float)
    plain, strict = IsotonicCalibration().fit(p, y), IsotonicCalibration(strict=True).fit(p, y)
    assert len(np.unique(plain.predict(p))) < 100
    assert np.argsort(strict.predict(p)).tolist() == np.argsort(p).tolist()
    assert np.abs(strict.predict(p) - plain.predict(p)).max() <= 1e-6
    assert from_bytes(strict.to_bytes()).predict(p).tolist() == strict.predict(p).tolist()


@pytest.mark.parametrize("score", [0.0, 0.3, 1.0])
def test_constant_scores_give_the_base_rate(score):
    fitted = IsotonicCalibration().fit([score] * 4, [1, 0, 0, 0])
    assert fitted.predict([0.0, 0.3, 1.0]).tolist() == [0.25] * 3


def test_a_falling_sample_gives_the_base_rate():
    fitted = IsotonicCalibration().fit([0.1, 0.2, 0.3, 0.4], [1, 1, 0, 0])
    assert fitted.predict([0.1, 0.25, 0.9]).tolist() == [0.5] * 3
