"""Logit, sigmoid and logistic regression, once for the whole house: log odds, the loss with its derivatives, Newton's method.

Platt and beta calibration, temperature scaling, the online maps, calibration slope and intercept, and the slopes of a drift
report are fitted here. A model has two curves at most and a constant: y ~ sigmoid(a * curve + b * curve + c).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from streamcal._jit import inlined, kernel
from streamcal.arrays import Array

# Probabilities nearer to 0 or 1 than a clip are read as that clip, so that a prediction of exactly 0 or 1 has a finite logit.
CLIP = 1e-12  # of predictions: logits within +-27.6, so one impossible event costs as much as 40 coin tosses
MEAN_CLIP = 1e-9  # of mean claims of bins: those below are told apart by no sum of less than 1e9 events
UNCLIPPED = 0.0  # of values that lie inside (0, 1) already: none is moved, 0 and 1 become infinite

STEPS, HALVINGS = 100, 60  # 60 halvings shorten a step to 1e-18 of it; a few steps do where the start is not absurd
DONE = 1e-18  # squared Newton decrement: the step taken at this size leaves an error of its square
ROUNDING, FLAT = 1e-12, 1e-10  # of the loss: how far it may round, and below what a gain must fall tenfold a step
SINGULAR, NO_SLOPE, RADIUS = 1e-13, 1e-13, 8.0  # of the largest curvature; of a mean gradient; of the first step
# Of a diagonalisation: 3 to 5 sweeps are usual; an entry below the rounding of its row is 0.
SWEEPS, EPSILON = 30, 2.2e-16
CONDITION = 1e12  # of a Hessian whose inverse still means something
THIN, LARGE = 16, 1 << 16  # a sample of LARGE events starts at the optimum of every 16th: that saves half the passes
BLOCK = 512  # factors in (1, 2] whose product stays below the largest double

# The coefficients (a, b, c): which are searched for; the others stay where the search starts.
ALL = np.array([1.0, 1.0, 1.0])
LINE = np.array([1.0, 0.0, 1.0])
CONSTANT = np.array([0.0, 0.0, 1.0])
Evaluation: TypeAlias = Callable[[Array], tuple[float, Array, Array]]


def logit(p: npt.ArrayLike, clip: float = CLIP) -> Array:
    """ln(p / (1 - p)), with p clipped to [clip, 1 - clip]: within +-27.6 for 1e-12.

    >>> logit([0.0, 0.5, 0.75]).round(3).tolist()
    [-27.631, 0.0, 1.099]
    """
    inner = np.clip(np.asarray(p, dtype=np.float64), clip, 1.0 - clip)
    return np.asarray(np.log(inner / (1.0 - inner)))


def sigmoid(z: npt.ArrayLike) -> Array:
    """1 / (1 + exp(-z)), through exp(-|z|) on both sides, so that nothing overflows.

    >>> sigmoid([-1e6, 0.0, 1e6]).tolist()
    [0.0, 0.5, 1.0]
    """
    score = np.asarray(z, dtype=np.float64)
    small = np.exp(-np.abs(score))
    return np.asarray(np.where(score >= 0.0, 1.0, small) / (1.0 + small))


@inlined
def log_odds(p: float, clip: float) -> float:
    """:func:`logit` of one number, for kernels."""
    inner = min(max(p, clip), 1.0 - clip)
    return math.log(inner / (1.0 - inner))


@inlined
def chance(z: float) -> float:
    """:func:`sigmoid` of one number, for kernels."""
    e = math.exp(-abs(z))
    return (1.0 if z >= 0.0 else e) / (1.0 + e)


@kernel
def separable(x: Array, y: Array) -> bool:
    """Whether a threshold on x parts outcomes 0 from outcomes 1, or all x are equal: then the likelihood has no maximum.

    Outcomes between 0 and 1 are of both kinds.
    """
    zero_low, zero_high, one_low, one_high = np.inf, -np.inf, np.inf, -np.inf
    for i in range(x.shape[0]):
        if y[i] < 1.0:
            zero_low, zero_high = min(zero_low, x[i]), max(zero_high, x[i])
        if y[i] > 0.0:
            one_low, one_high = min(one_low, x[i]), max(one_high, x[i])
    return zero_high <= one_low or one_high <= zero_low


def base_rate(y: Array, w: Array) -> tuple[float, bool]:
    """(logit of the mean outcome, whether there are two kinds of outcomes): clipped where there is only one kind."""
    rate = float((w * y).sum() / w.sum())
    return log_odds(rate, CLIP), CLIP <= rate <= 1.0 - CLIP


def fit(x: Array, y: Array, w: Array, slope: float | None = None) -> tuple[Array, Array] | None:
    """(theta, covariance) of y ~ sigmoid(slope * x + intercept) by maximum likelihood; None if all x are equal.

    theta is (slope, intercept), or (intercept,) where a ``slope`` is given. ``x``, mean outcomes ``y`` in [0, 1] and weights
    ``w`` of shape (n,), for which there is an optimum: see :func:`separable`. The covariance is the inverse Fisher
    information of weights that count events.
    """
    free = LINE if slope is None else CONSTANT
    evaluate = evaluation(x[None], y, w, free)
    theta, converged = newton(evaluate, np.array([slope or 0.0, 0.0, 0.0]))
    found = np.flatnonzero(free)
    hessian = evaluate(theta)[2][np.ix_(found, found)]
    if not converged or np.linalg.cond(hessian) > CONDITION:
        return None
    return theta[found], np.linalg.inv(hessian) / w.sum()


def optimum(theta: Array, curves: Array, y: Array, w: Array, free: Array = ALL) -> tuple[Array, bool]:
    """((a, b, c), converged) of least loss, from ``theta``; of many events first that of every 16th one."""
    if y.size >= LARGE:
        near, converged = optimum(theta, curves[:, ::THIN], y[::THIN], w[::THIN], free)
        theta = near if converged else theta
    return newton(evaluation(curves, y, w, free), theta)


def evaluation(curves: Array, y: Array, w: Array, free: Array = ALL) -> Evaluation:
    """(a, b, c) -> (mean loss, gradient, Hessian) of y ~ sigmoid(a * curves[0] + b * curves[1] + c).

    ``curves`` (1 or 2, n): with one curve b is unused. Derivatives by coefficients that are not ``free`` are 0, so that
    :func:`newton` leaves these alone.
    """
    x, x2, y, w = (np.require(a, np.float64, ["C", "W"]) for a in (curves[0], curves[-1], y, w))
    weights, second = np.empty(0) if (w == 1.0).all() else w, x2 if len(curves) > 1 else None
    total = float(w.sum())
    return lambda theta: logistic_loss(x, second, y, weights, total, theta, free, True)


@kernel
def logistic_loss(
    x: Array, x2: Array | None, y: Array, w: Array, total: float, theta: Array, free: Array, with_loss: bool
) -> tuple[float, Array, Array]:
    """(mean loss, gradient, Hessian) of the logistic loss in one pass over events of summed weight ``total``; empty w: ones.

    The loss is ln(1 + e^-|z|) + max(z, 0) - y z. With weights 1 the logarithms of a block are one logarithm of a product,
    which halves the time. Without a second curve (None is known when this is compiled) its sums cost nothing and stay 0.
    """
    loss, s = 0.0, np.zeros(9)
    n, weighted = y.shape[0], w.shape[0] > 0
    for low in range(0, n, BLOCK):
        parts, product = 0.0, 1.0
        ga, gb, gc, haa, hab, hac, hbb, hbc, hcc = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(low, min(low + BLOCK, n)):
            z = theta[0] * x[i] + theta[2]
            if x2 is not None:
                z += theta[1] * x2[i]
            e = math.exp(-abs(z))
            q, part = (1.0 if z >= 0.0 else e) / (1.0 + e), max(z, 0.0) - y[i] * z
            if weighted:
                g, v = w[i] * (q - y[i]), w[i] * e / ((1.0 + e) * (1.0 + e))
                part = w[i] * (part + math.log1p(e)) if with_loss else 0.0
            else:
                g, v = q - y[i], e / ((1.0 + e) * (1.0 + e))
                product *= 1.0 + e
            parts += part
            ga += g * x[i]
            gc += g
            haa += v * x[i] * x[i]
            hac += v * x[i]
            hcc += v
            if x2 is not None:
                gb += g * x2[i]
                hab += v * x[i] * x2[i]
                hbb += v * x2[i] * x2[i]
                hbc += v * x2[i]
        loss += parts + math.log(product)
        for k, part in enumerate((ga, gb, gc, haa, hab, hac, hbb, hbc, hcc)):
            s[k] += part
    gradient, hessian, k = np.empty(3), np.empty((3, 3)), 3
    for r in range(3):
        gradient[r] = free[r] * (s[r] / total)
        for c in range(r, 3):
            hessian[r, c] = hessian[c, r] = free[r] * free[c] * (s[k] / total)
            k += 1
    return loss / total, gradient, hessian


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
