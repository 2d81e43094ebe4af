"""Beta calibration: the constrained optimum of each variant, and the identity that it contains."""

from __future__ import annotations

import math

import numpy as np
import pytest
import strategies as sts
from hypothesis import given
from hypothesis import strategies as st

from streamcal import CalibrationWarning, logistic
from streamcal.logistic import logit, sigmoid
from streamcal.recalibrate.beta import VARIANTS, BetaCalibration
from streamcal.recalibrate.platt import PlattScaling

BASES = {
    "abm": np.eye(3),
    "ab": np.array([[1.0, 0.0, math.log(2.0)], [0.0, 1.0, -math.log(2.0)]]),
    "am": np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
}


def sample(a=0.5, b=1.4, c=0.3, n=3000, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.001, 0.999, n)
    return p, (rng.random(n) < sigmoid(a * np.log(p) - b * np.log1p(-p) + c)).astype(float)


def loss(abc, p, y, w=1.0):
    inner = np.clip(p, 1e-12, 1 - 1e-12)
    s = abc[0] * np.log(inner) - abc[1] * np.log1p(-inner) + abc[2]
    return float((w * (np.logaddexp(0.0, s) - y * s)).sum())


def abc_of(made):
    return np.array([made.a_, made.b_, made.c_])


@pytest.mark.jit
def test_the_true_map_is_found():
    made = BetaCalibration().fit(*sample(n=60_000))
    assert abc_of(made) == pytest.approx([0.5, 1.4, 0.3], abs=0.06)
    assert made.converged_ == 1.0


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "true", [(0.5, 1.4, 0.3), (1.0, 1.0, 0.0), (-0.8, 1.0, 0.2), (1.0, -0.8, 0.2), (-0.5, -0.7, 0.4)]
)
def test_scipy_finds_no_lower_loss_under_the_bounds(variant, true):
    optimize = pytest.importorskip("scipy.optimize")
    p, y = sample(*true, n=600)
    basis = BASES[variant]  # rows are the free coefficients, columns are (a, b, c)
    bounds = [(0.0, None) if row[:2].any() else (None, None) for row in basis]
    start = [0.5 if row[:2].any() else 0.0 for row in basis]
    found = optimize.minimize(
        lambda x: loss(x @ basis, p, y), start, bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-9}
    )
    made = BetaCalibration(variant).fit(p, y)
    assert made.a_ >= 0.0 and made.b_ >= 0.0
    assert loss(abc_of(made), p, y) <= found.fun + 1e-7
    assert made.predict(p) == pytest.approx(sigmoid(logit_of(found.x @ basis, p)), abs=2e-4)


def logit_of(abc, p):
    return abc[0] * np.log(p) - abc[1] * np.log1p(-p) + abc[2]


def test_equal_coefficients_are_platt_scaling():
    p, y = sample()
    equal, platt = BetaCalibration("am").fit(p, y), PlattScaling("hard").fit(p, y)
    assert [equal.a_, equal.c_] == pytest.approx([platt.slope_, platt.intercept_], abs=1e-8)
    assert equal.a_ == equal.b_


def test_the_midpoint_variant_keeps_a_half():
    made = BetaCalibration("ab").fit(*sample())
    assert made.predict([0.5])[0] == pytest.approx(0.5, abs=1e-15)
    assert made.c_ == pytest.approx((made.a_ - made.b_) * math.log(2.0), abs=1e-14)


@pytest.mark.jit
def test_a_calibrated_sample_gives_nearly_the_identity():
    p, y = sample(1.0, 1.0, 0.0, 60_000)
    assert BetaCalibration().fit(p, y).predict(p) == pytest.approx(p, abs=0.015)


@pytest.mark.parametrize("variant", VARIANTS)
def test_reversed_scores_give_a_constant(variant):
    p, y = sample(1.0, 1.0, 0.0)
    made = BetaCalibration(variant).fit(p, 1.0 - y)
    assert (made.a_, made.b_) == (0.0, 0.0)
    assert np.ptp(made.predict([0.0, 0.4, 1.0])) == 0.0
    assert made.predict([0.2])[0] == pytest.approx(0.5 if variant == "ab" else 1.0 - y.mean(), abs=1e-9)


@given(sts.streams(st.tuples(sts.inner_probabilities, sts.unit, st.floats(0.1, 5.0)), min_size=2))
@pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")
def test_it_is_monotone_and_keeps_the_mean(events):
    p, y, w = map(np.array, zip(*events))
    made = BetaCalibration().fit(p, y, w)
    grid = np.linspace(0.0, 1.0, 201)
    assert (np.diff(made.predict(grid)) >= -1e-12).all()
    if made.converged_:
        assert (w * made.predict(p)).sum() == pytest.approx((w * y).sum(), abs=1e-6 * w.sum())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("y", [[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]])
def test_parted_samples_and_one_class_stay_finite(variant, y):
    p = [0.1, 0.3, 0.6, 0.9]
    fit = BetaCalibration(variant).fit
    if variant == "ab" and len(set(y)) == 1:
        made = fit(p, y)  # outcomes of one class on both sides of 1/2, which this variant keeps: there is an optimum
        assert made.converged_ == 1.0
    else:
        with pytest.warns(CalibrationWarning, match="no best map found"):
            made = fit(p, y)
        assert made.converged_ == 0.0
        assert made.predict(p) == pytest.approx(y, abs=1e-6)
    assert np.isfinite(abc_of(made)).all()


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_constant_scores_become_the_base_rate(p):
    made = BetaCalibration().fit([p] * 4, [0, 1, 0, 0])
    assert made.predict([p, 0.5]) == pytest.approx([0.25, 0.25], abs=1e-14)
    kept = BetaCalibration("ab").fit([p] * 4, [0, 1, 0, 0])
    wanted = 0.25 if p < 0.5 else 0.5
    assert kept.predict([p])[0] == pytest.approx(wanted, abs=1e-9)


def test_two_distinct_scores_leave_one_coefficient_open():
    """Three coefficients, two levels: the shortest solution is taken, and it fits both levels."""
    made = BetaCalibration().fit([0.2] * 10 + [0.8] * 10, [1] * 3 + [0] * 7 + [1] * 6 + [0] * 4)
    assert made.predict([0.2, 0.8]) == pytest.approx([0.3, 0.6], abs=1e-9)


def test_a_large_sample_from_the_optimum_of_a_part_ends_at_the_same_place(monkeypatch):
    plain = BetaCalibration().fit(*sample(n=1000))
    monkeypatch.setattr(logistic, "LARGE", 500)
    assert abc_of(BetaCalibration().fit(*sample(n=1000))) == pytest.approx(abc_of(plain), abs=1e-11)


@pytest.mark.jit
def test_rounding_of_a_long_sum_does_not_keep_it_busy(monkeypatch):
    """At the optimum a gain is below the rounding of the loss: steps must end there, not be halved for minutes."""
    passes = []
    loss = logistic.logistic_loss
    monkeypatch.setattr(logistic, "logistic_loss", lambda *a: passes.append(a[2].size) or loss(*a))
    made = BetaCalibration().fit(*sample(1.0, 1.0, 0.0, 400_000))
    assert made.converged_ == 1.0
    assert sum(n == 400_000 for n in passes) <= 12


def test_fractional_outcomes_and_weights():
    p, y = sample(n=300)
    w = np.arange(300) % 3
    a = BetaCalibration().fit(p, 0.5 * y + 0.2, w)
    b = BetaCalibration().fit(np.repeat(p, w), np.repeat(0.5 * y + 0.2, w))
    assert abc_of(a) == pytest.approx(abc_of(b), abs=1e-9)


def test_logits_of_both_ends():
    made = BetaCalibration().fit(*sample())
    assert np.isfinite(logit(made.predict([0.0, 1.0]))).all()


def test_an_unknown_variant_is_refused():
    with pytest.raises(ValueError, match="variant must be 'abm', 'ab' or 'am', got 'mn'"):
        BetaCalibration("mn")


@pytest.mark.jit
@pytest.mark.parametrize(("middle", "width"), [(0.5, 1e-12), (1e-3, 1e-5), (0.9, 1e-9), (1e-6, 1e-6)])
def test_squeezed_scores_are_no_harder(middle, width):
    """What beta calibration can do with scores in a narrow band is a logistic map of their place in it."""
    x = np.random.default_rng(0).random(2000)
    y = (np.random.default_rng(1).random(2000) < x).astype(float)
    p = middle * (1.0 + width * x)
    made, platt = BetaCalibration().fit(p, y), PlattScaling("hard").fit(p, y)
    brier = [float(((one.predict(p) - y) ** 2).mean()) for one in (made, platt)]
    assert made.converged_ == 1.0
    assert brier[0] == pytest.approx(brier[1], abs=2e-3)
