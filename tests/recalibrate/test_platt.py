"""Platt scaling against exact optima, other programs, Newton in plain Python, and the shapes that break optimisers."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
import strategies as sts
from conftest import shared
from hypothesis import given
from hypothesis import strategies as st

from streamcal import CalibrationWarning, logistic
from streamcal.logistic import logit, separable, sigmoid
from streamcal.recalibrate import platt
from streamcal.recalibrate.platt import PlattScaling, platt_fit, smooth_targets
from streamcal.recalibrate.temperature import TemperatureScaling


def exact_cases():
    path = shared() / "cases" / "paper_cases.json"
    cases = json.loads(path.read_text())["cases"] if path.is_file() else []
    found = [pytest.param(c, id=c["id"]) for c in cases if c["function"] == "get_platt_scaler"]
    return found or [pytest.param(None, marks=pytest.mark.skip(reason="paper_cases.json is not here"))]


def sample(n=2000, slope=0.6, intercept=-0.4, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.beta(0.7, 0.9, n)
    return p, (rng.random(n) < sigmoid(slope * logit(p) + intercept)).astype(float)


def loss(slope, intercept, z, t, w):
    s = slope * z + intercept
    return float((w * (np.logaddexp(0.0, s) - t * s)).sum())


def naive_newton(z, t, w, steps=60):
    """The textbook: two by two Newton from (0, 0), a step halved until the loss falls. Plain Python floats."""

    def value(a, b):
        return math.fsum(
            wi * (max(s, 0.0) + math.log1p(math.exp(-abs(s))) - ti * s)
            for zi, ti, wi in zip(z, t, w)
            for s in [a * zi + b]
        )

    a = b = 0.0
    for _ in range(steps):
        q = [1.0 / (1.0 + math.exp(-(a * zi + b))) for zi in z]
        r = [wi * (qi - ti) for qi, ti, wi in zip(q, t, w)]
        v = [wi * qi * (1.0 - qi) for qi, wi in zip(q, w)]
        g0, g1 = math.fsum(ri * zi for ri, zi in zip(r, z)), math.fsum(r)
        h0 = math.fsum(vi * zi * zi for vi, zi in zip(v, z))
        h1, h2 = math.fsum(vi * zi for vi, zi in zip(v, z)), math.fsum(v)
        det = h0 * h2 - h1 * h1
        da, db = (h2 * g0 - h1 * g1) / det, (h0 * g1 - h1 * g0) / det
        size = 1.0
        while value(a - size * da, b - size * db) > value(a, b) and size > 1e-9:
            size /= 2
        a, b = a - size * da, b - size * db
    return a, b


# ---------------------------------------------------------------------------- the optimum


@pytest.mark.parametrize("case", exact_cases())
def test_the_exact_optimum(case, request):
    if isinstance(case["inputs"], str):
        (p, y), column = request.getfixturevalue("cifar"), case["args"]["column"]
        p, y = p[:, column], (y == column).astype(float)
    else:
        p, y = np.array(case["inputs"]["probs"]), np.array(case["inputs"]["labels"], float)
    exact = case["extra"]
    made = PlattScaling("hard").fit(p, y)
    assert made.slope_ == pytest.approx(exact["exact_a"], abs=1e-8)
    assert made.intercept_ == pytest.approx(exact["exact_b"], abs=1e-8)
    assert made.converged_ == 1.0
    if "query" in exact:
        np.testing.assert_allclose(made.predict(exact["query"]), exact["exact_output"], rtol=1e-7, atol=1e-9)
    if "nll_exact" in exact:
        assert loss(made.slope_, made.intercept_, logit(p), y, np.ones_like(y)) <= exact["nll_exact"] + 1e-12
    assert np.abs(np.array(case["expected"][:2]) - [made.slope_, made.intercept_]).max() <= case["tol"]


@pytest.mark.parametrize("weighted", [False, True])
def test_scikit_learn_finds_the_same_optimum(weighted):
    calibration = pytest.importorskip("sklearn.calibration")
    p, y = sample(4000)
    z, w = logit(p), np.random.default_rng(1).integers(1, 4, y.size).astype(float) if weighted else np.ones(y.size)
    a, b = calibration._sigmoid_calibration(z, y, w)
    made = PlattScaling().fit(p, y, w)
    assert [made.slope_, made.intercept_] == pytest.approx([-a, -b], abs=1e-5)
    t = smooth_targets(y, w)
    assert loss(made.slope_, made.intercept_, z, t, w) <= loss(-a, -b, z, t, w) * (1 + 1e-12)


def test_scipy_finds_the_same_optimum():
    optimize = pytest.importorskip("scipy.optimize")
    p, y = sample(500, seed=3)
    z, w = logit(p), np.ones(500)
    found = optimize.minimize(lambda ab: loss(*ab, z, y, w), [0.0, 0.0], method="BFGS", options={"gtol": 1e-9})
    made = PlattScaling("hard").fit(p, y)
    assert [made.slope_, made.intercept_] == pytest.approx(found.x.tolist(), abs=1e-5)
    assert loss(made.slope_, made.intercept_, z, y, w) <= found.fun + 1e-10


@pytest.mark.parametrize("targets", platt.TARGETS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")
def test_newton_in_plain_python_finds_the_same_optimum(targets, seed):
    rng = np.random.default_rng(seed)
    z, y = rng.normal(0.0, 2.0, 60), rng.choice([0.0, 0.25, 1.0], 60)
    w = rng.integers(1, 5, 60).astype(float)
    t = smooth_targets(y, w) if targets == "smooth" else y
    made = PlattScaling(targets).fit(sigmoid(z), y, w)
    assert [made.slope_, made.intercept_] == pytest.approx(naive_newton(z, t, w), abs=1e-9)


@given(sts.streams(st.tuples(sts.inner_probabilities, sts.unit, st.floats(0.1, 10.0)), min_size=3))
def test_the_gradient_vanishes(events):
    p, y, w = map(np.array, zip(*events))
    z, t = logit(p), smooth_targets(y, w)
    slope, intercept, converged = platt_fit(z, t, w)
    residual = w * (sigmoid(slope * z + intercept) - t)
    assert converged
    assert abs(residual.sum()) <= 1e-9 * w.sum()
    assert abs((residual * z).sum()) <= 1e-8 * w.sum()


def test_a_large_sample_from_the_optimum_of_a_part_ends_at_the_same_place(monkeypatch):
    p, y = sample(3000)
    plain = PlattScaling().fit(p, y)
    monkeypatch.setattr(logistic, "LARGE", 1000)
    started = PlattScaling().fit(p, y)
    assert [started.slope_, started.intercept_] == pytest.approx([plain.slope_, plain.intercept_], abs=1e-12)


def test_a_part_without_an_optimum_is_no_start(monkeypatch):
    """The 16th events are parted by a threshold, the sample is not."""
    z, y = np.linspace(-3.0, 3.0, 640), np.tile([0.0, 1.0], 320)
    y[::16] = z[::16] > 0.0
    plain = platt_fit(z, y, np.ones(640))
    monkeypatch.setattr(logistic, "LARGE", 100)
    assert platt_fit(z, y, np.ones(640))[:2] == pytest.approx(plain[:2], abs=1e-10)


def test_weighted_and_plain_sums_agree():
    p, y = sample(1500)
    one, two = PlattScaling("hard").fit(p, y), PlattScaling("hard").fit(p, y, np.full(1500, 2.5))
    assert [one.slope_, one.intercept_] == pytest.approx([two.slope_, two.intercept_], abs=1e-12)


@pytest.mark.jit
def test_a_million_events_and_the_true_map():
    p, y = sample(1_000_000)
    made = PlattScaling().fit(p, y)
    assert [made.slope_, made.intercept_] == pytest.approx([0.6, -0.4], abs=0.02)
    assert abs((made.predict(p) - smooth_targets(y, np.ones(y.size))).mean()) <= 1e-12


# ---------------------------------------------------------------------------- targets


def test_targets_are_platts():
    t = smooth_targets(np.array([1.0, 1.0, 0.0, 0.5]), np.array([1.0, 2.0, 4.0, 2.0]))
    high, low = 5.0 / 6.0, 1.0 / 7.0
    assert t.tolist() == pytest.approx([high, high, low, (high + low) / 2.0])


def test_smooth_targets_keep_small_samples_from_extremes():
    p, y = [0.2, 0.3, 0.7, 0.8], [0, 0, 1, 1]
    with pytest.warns(CalibrationWarning, match="no best map found"):
        hard = PlattScaling("hard").fit(p, y)
    smooth = PlattScaling().fit(p, y)
    assert smooth.converged_ == 1.0 and hard.converged_ == 0.0
    assert np.abs(smooth.predict(p) - [0.25, 0.25, 0.75, 0.75]).max() < 0.07
    assert np.abs(hard.predict(p) - y).max() < 1e-6
    assert math.isfinite(hard.slope_) and math.isfinite(hard.intercept_)


# ---------------------------------------------------------------------------- what breaks optimisers


@pytest.mark.parametrize("y", [[0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1], [0, 1, 1, 1]])
@pytest.mark.parametrize("tied", [False, True])
def test_parted_samples_stay_finite(y, tied):
    """Parted by a gap, or with both outcomes at one score: the slope runs away, converged says so."""
    z = np.array([-1.0, 0.0, 0.0 if tied else 0.5, 2.0])
    slope, intercept, converged = platt_fit(z, np.array(y, float), np.ones(4))
    assert math.isfinite(slope) and math.isfinite(intercept)
    assert converged == (not separable(z, np.array(y, float)))
    assert ((sigmoid(slope * z + intercept) > 0.5) == np.array(y, bool))[[0, 3]].all()


@pytest.mark.parametrize("y", [0.0, 1.0])
def test_one_class(y):
    p = [0.1, 0.5, 0.9]
    smooth = PlattScaling().fit(p, [y] * 3)
    assert smooth.predict(p) == pytest.approx([0.2 + 0.6 * y] * 3, abs=1e-12)
    with pytest.warns(CalibrationWarning):
        hard = PlattScaling("hard").fit(p, [y] * 3)
    assert hard.predict(p) == pytest.approx([y] * 3, abs=1e-11)
    assert hard.converged_ == 0.0


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_constant_scores_become_the_base_rate(p):
    hard = PlattScaling("hard").fit([p] * 8, [0, 0, 1, 0, 0, 0, 1, 0])
    assert hard.predict([0.0, p, 0.7]) == pytest.approx([0.25] * 3, abs=1e-14)
    smooth = PlattScaling().fit([p] * 8, [0, 0, 1, 0, 0, 0, 1, 0])
    assert smooth.predict([p])[0] == pytest.approx((2 * 3 / 4 + 6 / 8) / 8, abs=1e-14)
    assert hard.converged_ == smooth.converged_ == 1.0


def test_a_negative_slope_is_kept_and_reported():
    p, y = sample()
    with pytest.warns(CalibrationWarning, match="slope is -0"):
        turned = PlattScaling().fit(p, 1.0 - y)
    made = PlattScaling().fit(p, y)
    assert [turned.slope_, turned.intercept_] == pytest.approx([-made.slope_, -made.intercept_], abs=1e-9)


def test_raw_scores_of_a_million():
    """Field report platt-exp-overflow; RuntimeWarning is an error here."""
    z = np.array([-1e6, -1e6, 1e6, 1e6, -1e6, 1e6])
    made = PlattScaling().fit_logits(z, [0, 0, 1, 1, 1, 0])
    assert made.converged_ == 1.0
    assert made.predict_logits([-1e6, 0.0, 1e6]) == pytest.approx([0.4, 0.5, 0.6], abs=0.05)
    unit = PlattScaling()
    unit.slope_, unit.intercept_, unit.converged_ = 1.0, 0.0, 1.0
    assert unit.predict_logits([-1e6, 1e6]).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("unit", [1e-200, 1e-9, 1e9, 1e200])
def test_the_unit_of_the_score_does_not_matter(unit):
    p, y = sample(300)
    w, z = np.ones(300), logit(p)
    slope, intercept, _ = platt_fit(z, y, w)
    scaled = platt_fit(z * unit, y, w)
    assert scaled[0] * unit == pytest.approx(slope, rel=1e-9)
    assert scaled[1] == pytest.approx(intercept, rel=1e-9)
    shifted = platt_fit(z + 1000.0, y, w)
    assert shifted[0] == pytest.approx(slope, rel=1e-8)


def test_scores_that_differ_in_the_last_bit_stay_finite():
    p = np.array([0.5, math.nextafter(0.5, 1.0), 0.5, math.nextafter(0.5, 1.0)])
    made = PlattScaling().fit(p, [0, 1, 1, 0])
    assert np.isfinite([made.slope_, made.intercept_]).all()
    assert ((made.predict([0.0, 0.5, 1.0]) >= 0) & (made.predict([0.0, 0.5, 1.0]) <= 1)).all()


def test_rare_events():
    rng = np.random.default_rng(5)
    z = rng.normal(-7.0, 1.0, 20_000)
    y = (rng.random(z.size) < sigmoid(z)).astype(float)
    slope, intercept, converged = platt_fit(z, smooth_targets(y, np.ones(z.size)), np.ones(z.size))
    assert converged and abs(sigmoid(slope * z + intercept).mean() / y.mean() - 1) < 0.1


def test_one_outlier_far_out():
    """A score of 1e6 among usual ones: the halved steps still reach the optimum."""
    z, y = np.r_[np.linspace(-2, 2, 50), 1e6], np.r_[np.tile([0.0, 1.0], 25), 0.0]
    slope, intercept, converged = platt_fit(z, y, np.ones(51))
    residual = sigmoid(slope * z + intercept) - y
    assert converged and abs(residual.sum()) < 1e-9 and abs((residual * z).sum()) < 1e-2


@pytest.mark.parametrize("seed", range(60))
def test_converged_is_honest(seed):
    """Scores over ten decades, weights over seven: finite always, and where converged is said the gradient is zero."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    z = np.exp(rng.normal(0.0, (0.5, 3.0, 8.0)[seed % 3], n)) * rng.choice([-1.0, 1.0], n)
    y, w = rng.choice([0.0, 1.0], n), np.exp(rng.normal(0.0, (0.0, 3.0)[seed % 2], n))
    for t in (y, smooth_targets(y, w)):
        slope, intercept, converged = platt_fit(z, t, w)
        assert math.isfinite(slope) and math.isfinite(intercept)
        if converged:
            assert not separable(z, t) or np.ptp(t) == 0.0
            middle, spread = platt._standard(z, w)
            residual = w / w.sum() * (sigmoid(slope * z + intercept) - t)
            assert abs(residual.sum()) <= 1e-8
            assert abs((residual * (z - middle) / (spread or 1.0)).sum()) <= 1e-7


def test_scores_beside_one_far_away_keep_their_slope():
    """Standardised, the usual scores are 1e-6 apart and the optimum is a slope of 1e6: steps grow until they reach it."""
    z, y = np.r_[np.linspace(-2.0, 2.0, 50), 1e6], np.r_[np.tile([0.0, 1.0, 1.0, 0.0, 1.0], 10), 1.0]
    far, near = platt_fit(z, y, np.ones(51)), platt_fit(z[:50], y[:50], np.ones(50))
    assert far[2] and far[:2] == pytest.approx(near[:2], abs=1e-6)


# ---------------------------------------------------------------------------- the rest


def test_sigmoid_and_logit():
    z = np.array([-800.0, -30.0, -1.0, 0.0, 1.0, 30.0, 800.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        q = sigmoid(z)
    assert (q + q[::-1]).tolist() == pytest.approx([1.0] * 7)
    assert sigmoid(logit([1e-12, 0.3, 0.9])).tolist() == pytest.approx([1e-12, 0.3, 0.9], rel=1e-14)
    assert np.isfinite(logit([0.0, 1.0])).all()


def test_fit_logits_is_fit_on_logits():
    p, y = sample(200)
    w = np.arange(200) % 3.0
    a, b = PlattScaling().fit(p, y, w), PlattScaling().fit_logits(logit(p), y, w)
    assert (a.slope_, a.intercept_) == (b.slope_, b.intercept_)
    assert a.predict(p).tolist() == b.predict_logits(logit(p)).tolist()


def test_warnings_point_at_the_caller():
    p, y = sample(50)
    for fit, scores in ((PlattScaling().fit, 1.0 - p), (PlattScaling().fit_logits, -logit(p))):
        with pytest.warns(CalibrationWarning) as caught:
            fit(scores, y)
        assert caught[0].filename == __file__


def test_what_is_refused():
    with pytest.raises(ValueError, match="targets must be 'smooth' or 'hard', got 'soft'"):
        PlattScaling("soft")
    with pytest.raises(ValueError, match="z must be finite, got inf at index 1"):
        PlattScaling().fit_logits([0.0, math.inf], [0, 1])
    with pytest.raises(ValueError, match="not fitted"):
        PlattScaling().predict_logits([0.0])
    with pytest.raises(ValueError, match="shape"):
        PlattScaling().fit_logits([0.0, 1.0], [0])


def test_the_largest_scores_there_are():
    made = PlattScaling().fit_logits([-1e308, 1e308, -1e308, 1e308], [0, 1, 1, 0])
    assert np.isfinite(made.predict_logits([-1e308, 0.0, 1e308])).all()
    made = PlattScaling().fit_logits([-1e308, 1e308, -1e308, 1e308], [0, 1, 0, 1])
    assert made.predict_logits([-1e308, 1e308]).tolist() == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize("fit", [PlattScaling().fit_logits, TemperatureScaling().fit_logits, PlattScaling().fit])
def test_scores_and_outcomes_share_one_index(fit):
    pd = pytest.importorskip("pandas")
    y = pd.Series([0, 0, 1, 0, 1, 1])
    z = (
        pd.DataFrame({0: [0.1] * 6, 1: [0.2] * 6})
        if fit.__self__.__class__ is TemperatureScaling
        else pd.Series([0.5] * 6)
    )
    with pytest.raises(ValueError, match="share one index"):
        fit(z.iloc[::-1], y)
    labels = pd.MultiIndex.from_tuples([(None, i) for i in range(6)])
    fit(z.set_axis(labels), y.set_axis(labels))
