"""Temperature scaling: the optimum, its bounds, and several classes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import strategies as sts
from hypothesis import given
from hypothesis import strategies as st

from streamcal import CalibrationWarning
from streamcal.logistic import logit, sigmoid
from streamcal.recalibrate.temperature import HOTTEST, TemperatureScaling


def sample(temperature, n=3000, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(0.0, 3.0, n)
    return sigmoid(z), (rng.random(n) < sigmoid(z / temperature)).astype(float)


def classes(temperature, n=2000, k=4, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(0.0, 3.0, (n, k))
    q = np.exp(z / temperature)
    q /= q.sum(1, keepdims=True)
    return z, (rng.random((n, 1)) > q.cumsum(1)).sum(1)


def naive_loss(z, labels, temperature):
    """-mean ln softmax(z / T)[label], as one would write it."""
    rows = [[v / temperature for v in row] for row in z]
    return math.fsum(math.log(math.fsum(math.exp(v) for v in row)) - row[k] for row, k in zip(rows, labels)) / len(z)


@pytest.mark.jit
@pytest.mark.parametrize("temperature", [0.2, 1.0, 2.5, 10.0])
def test_the_true_temperature_is_found(temperature):
    made = TemperatureScaling().fit(*sample(temperature, 20_000))
    assert made.temperature_ == pytest.approx(temperature, rel=0.06)
    assert made.converged_ == 1.0


@given(sts.streams(st.tuples(sts.inner_probabilities, sts.binary, st.floats(0.1, 5.0)), min_size=2))
@pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")
def test_the_derivative_vanishes_or_points_past_the_bound(events):
    p, y, w = map(np.array, zip(*events))
    z, made = logit(p), TemperatureScaling().fit(p, y, w)
    slope = float((w * z * (sigmoid(z / made.temperature_) - y)).sum())
    if made.converged_:
        assert abs(slope) <= 1e-8 * (w * np.abs(z)).sum() + 1e-12
    else:
        assert made.temperature_ in (HOTTEST, 1.0 / HOTTEST)
        assert slope >= 0.0 if made.temperature_ == HOTTEST else slope <= 0.0


def test_scipy_finds_the_same_temperature():
    optimize = pytest.importorskip("scipy.optimize")
    p, y = sample(3.0, 400)
    z = logit(p)
    found = optimize.minimize_scalar(
        lambda u: (np.logaddexp(0, u * z) - y * u * z).sum(),
        bounds=(0.02, 50),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert 1.0 / TemperatureScaling().fit(p, y).temperature_ == pytest.approx(found.x, abs=1e-6)


def test_a_flat_loss_stops_at_the_bound_and_says_so():
    """Field report temperature-diverges: T went 3.4, 7.5, 15.8, ... 2.4e7 where predictions know nothing."""
    p, y = sample(1.0)
    with pytest.warns(CalibrationWarning, match="temperature 50 is a limit"):
        hot = TemperatureScaling().fit(p, 1.0 - y)
    assert (hot.temperature_, hot.converged_) == (HOTTEST, 0.0)
    with pytest.warns(CalibrationWarning, match=r"temperature 0\.02 is a limit"):
        cold = TemperatureScaling().fit(p, p > 0.5)
    assert (cold.temperature_, cold.converged_) == (1.0 / HOTTEST, 0.0)
    assert np.isfinite(cold.predict([0.0, 0.5, 1.0])).all()


def test_all_predictions_a_half():
    made = TemperatureScaling().fit([0.5, 0.5, 0.5], [0, 1, 1])
    assert (made.temperature_, made.converged_) == (1.0, 1.0)
    assert made.predict([0.5]).tolist() == [0.5]


def test_equal_predictions_become_the_base_rate_on_their_side():
    made = TemperatureScaling().fit([0.8] * 10, [1] * 7 + [0] * 3)
    assert made.predict([0.8])[0] == pytest.approx(0.7, abs=1e-12)


def test_a_half_is_kept_and_order_too():
    made = TemperatureScaling().fit(*sample(4.0))
    p = np.linspace(0.0, 1.0, 101)
    assert made.predict(p)[50] == 0.5
    assert (np.diff(made.predict(p)) > 0).all()


# ---------------------------------------------------------------------------- several classes


@pytest.mark.parametrize("temperature", [0.5, 2.0, 6.0])
def test_classes_find_the_least_loss(temperature):
    z, labels = classes(temperature)
    made = TemperatureScaling().fit_logits(z, labels)
    best = naive_loss(z.tolist(), labels.tolist(), made.temperature_)
    assert made.temperature_ == pytest.approx(temperature, rel=0.2)
    for factor in (1 - 1e-3, 1 + 1e-3):
        assert naive_loss(z.tolist(), labels.tolist(), made.temperature_ * factor) > best


def test_two_classes_are_the_binary_case():
    p, y = sample(3.0)
    binary = TemperatureScaling().fit(p, y)
    z = np.stack([np.zeros_like(p), logit(p)], 1)
    pair = TemperatureScaling().fit_logits(z, y.astype(int))
    assert pair.temperature_ == pytest.approx(binary.temperature_, rel=1e-9)
    assert pair.predict_logits(z)[:, 1] == pytest.approx(binary.predict(p), abs=1e-12)


def test_log_probabilities_are_logits():
    z, labels = classes(2.0)
    logs = z - np.log(np.exp(z).sum(1, keepdims=True))
    a, b = TemperatureScaling().fit_logits(z, labels), TemperatureScaling().fit_logits(logs, labels)
    assert a.temperature_ == pytest.approx(b.temperature_, rel=1e-10)
    assert a.predict_logits(z) == pytest.approx(b.predict_logits(logs), abs=1e-12)


@pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")
def test_a_probability_of_zero_is_read_as_very_small():
    logs = np.array([[0.0, -np.inf], [-0.1, -2.4], [-np.inf, 0.0]])
    before = logs.copy()
    made = TemperatureScaling().fit_logits(logs, [0, 1, 0])
    assert np.isfinite(made.temperature_)
    q = made.predict_logits(logs)
    assert np.isfinite(q).all() and q.sum(1) == pytest.approx(np.ones(3), abs=1e-15)
    assert np.array_equal(logs, before)


@pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")
def test_large_logits_and_weights():
    z = np.array([[1e6, 0.0, -1e6], [-1e6, 1e6, 0.0], [0.0, 1e6, 3.0]])
    q = TemperatureScaling().fit_logits(z, [0, 1, 2]).predict_logits(z)
    assert ((q >= 0) & (q <= 1)).all()
    z, labels = classes(2.0, 200)
    w = np.arange(200) % 3
    a = TemperatureScaling().fit_logits(z, labels, w)
    b = TemperatureScaling().fit_logits(np.repeat(z, w, axis=0), np.repeat(labels, w))
    assert a.temperature_ == pytest.approx(b.temperature_, rel=1e-11)


def test_equal_logits_and_absent_classes():
    assert TemperatureScaling().fit_logits(np.ones((3, 4)), [0, 1, 2]).temperature_ == 1.0
    z, labels = classes(2.0)
    keep = labels != 3
    q = TemperatureScaling().fit_logits(z[keep], labels[keep]).predict_logits(z)
    assert q.shape == z.shape and (q[:, 3] > 0).all()


def test_empty_logits_keep_their_shape():
    made = TemperatureScaling().fit_logits(*classes(2.0, 50))
    assert made.predict_logits(np.empty((0, 4))).shape == (0, 4)


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ([[0.0, math.nan]], [0], "logits must be finite .* at index 0"),
        ([[0.0, 1.0], [math.inf, 0.0]], [0, 1], "logits must be finite .* at index 1"),
        ([[-math.inf, -math.inf]], [0], "logits must be finite .* at index 0"),
        ([0.0, 1.0], [0, 1], r"logits must have shape \(n, classes\)"),
        ([[0.0], [1.0]], [0, 0], "at least 2 classes"),
        ([[0.0, 1.0]], [2], r"labels must be whole numbers in 0\.\.1, got 2\.0 at index 0"),
        ([[0.0, 1.0], [0.0, 1.0]], [0, 0.5], r"got 0\.5 at index 1"),
        ([[0.0, 1.0]], [-1], r"got -1\.0 at index 0"),
        ([[0.0, 1.0]], [0, 1], r"labels must have shape \(1,\), got \(2,\)"),
        (np.empty((0, 3)), [], "at least one event"),
    ],
)
def test_what_is_refused(logits, labels, message):
    with pytest.raises(ValueError, match=message):
        TemperatureScaling().fit_logits(logits, labels)


def test_probabilities_instead_of_logits_warn():
    probs = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    with pytest.warns(CalibrationWarning, match="pass their logarithms"):
        TemperatureScaling().fit_logits(probs, np.arange(50) % 3)
