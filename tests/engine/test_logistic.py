"""The one Newton's method: its optimum against one in longer floats, its axes against LAPACK."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from streamcal.logistic import fit, newton, principal, separable


def exact_optimum(features, y, w):
    """Newton's method with the sums in long doubles: its steps end where those end."""
    theta = np.zeros(len(features), np.longdouble)
    for _ in range(60):
        q = 1.0 / (1.0 + np.exp(-(theta @ features)))
        gradient = features @ (w * (q - y))
        hessian = (features * (w * q * (1.0 - q))) @ features.T
        theta = theta - np.linalg.solve(hessian.astype(float), gradient.astype(float))
    return theta


@pytest.mark.parametrize("seed", range(40))
def test_the_optimum_is_exact_also_where_a_gain_is_below_the_rounding_of_the_loss(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 40))
    x, w = rng.normal(0.0, 2.0, n), rng.integers(1, 50, n).astype(float)
    y = rng.binomial(w.astype(int), 1.0 / (1.0 + np.exp(-x))) / w
    if separable(x, y):
        pytest.skip("no optimum")
    features = np.stack([x, np.ones(n)])
    theta, covariance = fit(x, y, w)
    assert_allclose(theta, exact_optimum(features, y, w).astype(float), rtol=1e-11, atol=1e-12)
    q = 1.0 / (1.0 + np.exp(-(theta @ features)))
    assert_allclose(covariance, np.linalg.inv((features * (w * q * (1.0 - q))) @ features.T), rtol=1e-9)


def test_no_fit_where_features_cannot_be_told_apart():
    y = np.array([0.2, 0.4, 0.9])
    assert fit(np.ones(3), y, np.ones(3)) is None


def test_a_given_slope_is_not_fitted():
    x, y = np.array([-2.0, -1.0, 1.0, 2.0]), np.array([0.2, 0.1, 0.6, 0.9])
    theta, _ = fit(x, y, np.ones(4), slope=0.7)
    assert (1.0 / (1.0 + np.exp(-(theta[0] + 0.7 * x)))).sum() == pytest.approx(y.sum(), abs=1e-12)


@given(st.integers(1, 4), st.integers(0, 2**32 - 1), st.floats(-150.0, 150.0))
def test_principal_axes_rebuild_the_matrix(k, seed, exponent):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(k, k)) * 10.0 ** (exponent / 4.0)
    matrix = root @ root.T
    values, axes = principal(matrix)
    size = np.abs(matrix).max()
    assert_allclose(axes.T @ axes, np.eye(k), atol=1e-13)
    assert_allclose(axes * values @ axes.T, matrix, atol=1e-13 * size)
    assert_allclose(np.sort(values), np.linalg.eigvalsh(matrix), atol=1e-13 * size)


@pytest.mark.parametrize("diagonal", [(0.0, 0.0), (1.0, 0.0), (1e-300, 1.0), (2.0, 2.0)])
def test_principal_axes_of_a_diagonal_matrix_are_the_coordinates(diagonal):
    values, axes = principal(np.diag(diagonal))
    assert values.tolist() == list(diagonal) and np.array_equal(axes, np.eye(2))


def test_a_flat_direction_is_left_alone():
    """Equal columns: the sum of their coefficients has an optimum, their difference does not matter and stays 0."""

    def evaluate(theta):
        off = theta[0] + theta[1] - 3.0
        return 0.5 * off * off, np.array([off, off]), np.ones((2, 2))

    theta, converged = newton(evaluate, np.zeros(2))
    assert converged and theta.tolist() == pytest.approx([1.5, 1.5], abs=1e-12)
