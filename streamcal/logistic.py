"""Logistic regression on grouped outcomes: the one fit behind calibration slope and intercept."""

from __future__ import annotations

import numpy as np

from streamcal.arrays import Array

STEPS, FLAT, SINGULAR = 100, 1e-12, 1e12


def separable(x: Array, y: Array) -> bool:
    """Whether a threshold on x parts the outcomes, or all x are equal: then the likelihood has no maximum."""
    negative, positive = x[y < 1.0], x[y > 0.0]
    return bool(negative.max() <= positive.min() or positive.max() <= negative.min())


def fit(features: Array, y: Array, w: Array, offset: Array) -> tuple[Array, Array] | None:
    """(theta, covariance) of y ~ sigmoid(theta . features + offset) by maximum likelihood; None without an optimum.

    ``features`` (k, rows), mean outcomes ``y`` in [0, 1] and weights ``w`` (rows,). Newton's method with step halving.
    The covariance is the inverse Fisher information of weights that count events.
    """
    share = w / w.sum()

    def loss(theta: Array) -> float:
        z = theta @ features + offset
        return float((share * (np.logaddexp(0.0, z) - y * z)).sum())

    theta = np.zeros(len(features))
    for _ in range(STEPS):
        q = 1.0 / (1.0 + np.exp(-np.clip(theta @ features + offset, -500.0, 500.0)))
        gradient = features @ (share * (q - y))
        hessian = (features * (share * q * (1.0 - q))) @ features.T
        if not np.isfinite(hessian).all() or np.linalg.cond(hessian) > SINGULAR:
            return None
        step = np.linalg.solve(hessian, gradient)
        now = loss(theta)
        while loss(theta - step) > now and abs(step).max() > FLAT:
            step = step / 2.0
        theta = theta - step
        if abs(step).max() <= FLAT or abs(gradient).max() <= FLAT:
            return theta, np.linalg.inv(hessian) / w.sum()
    return None
