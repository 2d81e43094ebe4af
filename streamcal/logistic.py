"""Logistic regression by Newton's method: behind Platt and beta calibration, and behind calibration slope and intercept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from streamcal._jit import kernel
from streamcal.arrays import Array

STEPS, HALVINGS = 100, 60
DONE = 1e-18  # squared Newton decrement: the step taken at this size leaves an error of its square
ROUNDING, FLAT = 1e-12, 1e-10  # of the loss: how far it may round, and below what a gain must fall tenfold a step
SINGULAR, NO_SLOPE, RADIUS = 1e-13, 1e-13, 8.0  # of the largest curvature; of a mean gradient; of the first step
SWEEPS, EPSILON = 30, 2.2e-16  # of a diagonalisation
CONDITION = 1e12  # of a Hessian whose inverse still means something
Evaluation: TypeAlias = Callable[[Array], tuple[float, Array, Array]]


def separable(x: Array, y: Array) -> bool:
    """Whether a threshold on x parts the outcomes, or all x are equal: then the likelihood has no maximum."""
    negative, positive = x[y < 1.0], x[y > 0.0]
    return bool(negative.max() <= positive.min() or positive.max() <= negative.min())


def fit(features: Array, y: Array, w: Array, offset: Array) -> tuple[Array, Array] | None:
    """(theta, covariance) of y ~ sigmoid(theta . features + offset) by maximum likelihood; None if features are equal.

    ``features`` (k, rows), mean outcomes ``y`` in [0, 1] and weights ``w`` (rows,), for which there is an optimum: see
    :func:`separable`. The covariance is the inverse Fisher information of weights that count events.
    """
    evaluate = evaluation(np.ascontiguousarray(features), y, w, offset)
    theta, converged = newton(evaluate, np.zeros(len(features)))
    hessian = evaluate(theta)[2]
    if not converged or np.linalg.cond(hessian) > CONDITION:
        return None
    return theta, np.linalg.inv(hessian) / w.sum()


def evaluation(x: Array, y: Array, w: Array, offset: Array | None = None) -> Evaluation:
    """theta -> (mean loss, gradient, Hessian) of y ~ sigmoid(theta @ x + offset)."""
    k, total = len(x), float(w.sum())
    start = np.empty(0) if offset is None else offset

    def evaluate(theta: Array) -> tuple[float, Array, Array]:
        s = _sums(x, y, w, start, theta, np.empty(1 + k + k * k)) / total
        return float(s[0]), s[1 : 1 + k], s[1 + k :].reshape(k, k)

    return evaluate


@kernel
def _sums(x: Array, y: Array, w: Array, offset: Array, theta: Array, out: Array) -> Array:
    """Loss, gradient (k) and Hessian (k, k) of the logistic loss in one pass; empty offset: zeros."""
    k = theta.shape[0]
    out[:] = 0.0
    for i in range(x.shape[1]):
        z = offset[i] if offset.shape[0] else 0.0
        for r in range(k):
            z += theta[r] * x[r, i]
        e = math.exp(-abs(z))
        q = (1.0 if z >= 0.0 else e) / (1.0 + e)
        v = w[i] * e / ((1.0 + e) * (1.0 + e))
        out[0] += w[i] * (max(z, 0.0) - y[i] * z + math.log1p(e))
        for r in range(k):
            out[1 + r] += w[i] * (q - y[i]) * x[r, i]
            for c in range(k):
                out[1 + k + r * k + c] += v * x[r, i] * x[c, i]
    return out


def newton(evaluate: Evaluation, theta: Array) -> tuple[Array, bool]:
    """(theta, converged) at the minimum of a convex mean loss; ``evaluate`` gives (loss, gradient, Hessian).

    Near the minimum a step gains less than the loss rounds: then it is taken unseen, and when the gain no longer shrinks
    as Newton's method makes it shrink, it is rounding too. Not converged: no step makes the loss fall although the
    gradient promises it, or STEPS were not enough.
    """
    loss, gradient, hessian = evaluate(theta)
    last, radius = math.inf, RADIUS
    for _ in range(STEPS):
        step, whole = _step(gradient, hessian, radius)
        gain = float(gradient @ step)
        if whole and (gain <= DONE or last / 10.0 < gain <= FLAT * abs(loss)):
            return theta - step, True
        last, radius = (gain, radius) if whole else (math.inf, radius * 4.0)
        for _ in range(HALVINGS):
            new = evaluate(theta - step)
            if new[0] <= loss - 1e-4 * gain + ROUNDING * abs(loss):
                break
            step, gain, last, radius = step / 2.0, gain / 2.0, math.inf, radius / 2.0
        else:
            return theta, False
        theta = theta - step
        loss, gradient, hessian = new
    return theta, False


@kernel
def _step(gradient: Array, hessian: Array, radius: float) -> tuple[Array, bool]:
    """(Newton's step, whether it is whole): the shortest one where the loss is flat, at most radius long."""
    curvature, axes = principal(hessian)
    k, steepest, length = curvature.shape[0], 1e-300, 0.0
    for a in range(k):
        steepest = max(steepest, curvature[a])
    step = np.zeros(k)
    for a in range(k):
        slope = 0.0
        for r in range(k):
            slope += gradient[r] * axes[r, a]
        if curvature[a] > SINGULAR * steepest or abs(slope) > NO_SLOPE:
            along = slope / max(curvature[a], SINGULAR * steepest)
            length += along * along
            for r in range(k):
                step[r] += axes[r, a] * along
    length = math.sqrt(length)
    if length <= radius:
        return step, True
    return step * (radius / length), False


@kernel
def principal(matrix: Array) -> tuple[Array, Array]:
    """(eigenvalues, eigenvectors in columns) of a small symmetric matrix, by Jacobi's rotations.

    A rotation makes one entry off the diagonal 0: one is all that two parameters need, a few sweeps do for three. A call of
    LAPACK costs more than a pass over a thousand events. Golub, Van Loan, Matrix Computations, section 8.5.

    >>> principal(np.array([[2.0, 1.0], [1.0, 2.0]]))[0].round(12).tolist()
    [1.0, 3.0]
    """
    k = matrix.shape[0]
    a, axes, values = matrix.copy(), np.eye(k), np.empty(k)
    for _ in range(SWEEPS):
        clean = True
        for p in range(k):
            for q in range(p + 1, k):
                if abs(a[p, q]) > EPSILON * math.sqrt(abs(a[p, p] * a[q, q])):
                    clean = False
                    _rotate(a, axes, p, q)
        if clean:
            break
    for r in range(k):
        values[r] = a[r, r]
    return values, axes


@kernel
def _rotate(a: Array, axes: Array, p: int, q: int) -> None:
    """One rotation in the plane of p and q that makes a[p, q] 0."""
    half = (a[q, q] - a[p, p]) / (2.0 * a[p, q])
    t = math.copysign(1.0, half) / (abs(half) + math.sqrt(1.0 + half * half))
    c = 1.0 / math.sqrt(1.0 + t * t)
    s = t * c
    for r in range(a.shape[0]):
        a[r, p], a[r, q] = c * a[r, p] - s * a[r, q], s * a[r, p] + c * a[r, q]
        axes[r, p], axes[r, q] = c * axes[r, p] - s * axes[r, q], s * axes[r, p] + c * axes[r, q]
    for r in range(a.shape[0]):
        a[p, r], a[q, r] = c * a[p, r] - s * a[q, r], s * a[p, r] + c * a[q, r]
    a[p, q] = a[q, p] = 0.0
