"""Temperature scaling: one number that makes all predictions of a model more or less extreme."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from streamcal._jit import kernel
from streamcal.arrays import Array, check_aligned, numbers
from streamcal.limits import warn
from streamcal.logistic import ALL, CLIP, logistic_loss, logit, sigmoid
from streamcal.recalibrate.recalibrator import Recalibrator, checked, checked_events, recalibrator

HOTTEST = 50.0  # temperatures lie in [1/50, 50]: beyond, outputs are 1/2 or 0 and 1 for any usual logit
STEPS = 200  # halvings in logarithm leave a bracket one float wide
CLOSE = 1e-9  # relative: a step of Newton's of this size leaves an error of its square
Slopes: TypeAlias = Callable[[float], tuple[float, float]]


@recalibrator("temperature")
class TemperatureScaling(Recalibrator):
    r"""p -> sigmoid(logit(p) / ``temperature_``), fitted by maximum likelihood with 1/50 <= T <= 50.

    .. math:: \min_{u = 1/T} \sum_i w_i \left[ \ln(1 + e^{u z_i}) - y_i u z_i \right], \quad z_i = \mathrm{logit}(p_i)

    T > 1: the model was too extreme. The loss is convex in 1/T: Newton's method kept inside a shrinking bracket. Where the
    loss falls all the way to a bound (the sample is perfectly separated at 1/2: 1/50; predictions are no better than
    reversed: 50), T is that bound, ``converged_`` 0.0 and a warning says so. All predictions 1/2: any T is as good, T = 1.
    The map keeps 1/2, so it can neither shift a base rate nor turn an order round: use PlattScaling for that. Equal
    predictions become the base rate only if it lies on their side of 1/2. From a snapshot of UniformMass(15, bits=7)
    over 20,000 events outputs moved by 2e-6 at most against the fit to the events.

    Several classes: :meth:`fit_logits` and :meth:`predict_logits`, softmax(logits / T). Guo et al. 2017.

    >>> map = TemperatureScaling().fit([0.9] * 10 + [0.1] * 10, [1] * 7 + [0] * 10 + [1] * 3)
    >>> map.predict([0.9, 0.5]).round(6).tolist()
    [0.7, 0.5]
    """

    fitted = ("temperature_", "converged_")

    def _fit(self, p: Array, y: Array, w: Array) -> None:
        # As the kernel takes them, once: the search calls it again and again.
        z, y, w = (np.require(a, np.float64, ["C", "W"]) for a in (logit(p), y, w))
        weights = np.empty(0) if (w == 1.0).all() else w

        def slopes(u: float) -> tuple[float, float]:
            _, gradient, hessian = logistic_loss(z, None, y, weights, 1.0, np.array([u, 0.0, 0.0]), ALL, False)
            return float(gradient[0]), float(hessian[0, 0])

        self._search(slopes, bool(z.any()))

    def fit_logits(
        self, logits: npt.ArrayLike, labels: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
    ) -> TemperatureScaling:
        """The same for K classes: ``logits`` or log-probabilities (n, K), ``labels`` (n,) among 0..K-1.

        -inf (a probability of 0) counts as 1e-12 of the greatest probability of its row, or as the least other logit
        if that is smaller. ValueError names the first logit or label that is not allowed.
        """
        check_aligned(logits=logits, labels=labels, sample_weight=sample_weight)
        z = _rows_of_logits(logits)
        wanted = numbers("labels", labels, strict=True)
        if wanted.shape != z.shape[:1]:
            raise ValueError(f"labels must have shape ({len(z)},), got {wanted.shape}")
        good = (wanted >= 0) & (wanted < z.shape[1]) & (wanted == np.floor(wanted))
        checked("labels", f"be whole numbers in 0..{z.shape[1] - 1}", wanted, good)
        if z.size and (z >= 0.0).all() and np.allclose(z.sum(axis=1), 1.0):
            message = "every row of the logits sums to 1, as probabilities do: pass their logarithms"
            warn(message)
        _, _, w = checked_events(np.full(len(z), 0.5), np.zeros(len(z)), sample_weight)
        if w.size < len(z):
            used = numbers("sample_weight", sample_weight) > 0.0
            z, wanted = z[used], wanted[used]
        wanted = np.require(wanted, np.float64, ["C", "W"])
        self._search(lambda u: _class_slopes(z, wanted, w, u), bool(np.ptp(z, axis=1).any()))
        return self

    def _search(self, slopes: Slopes, matters: bool) -> None:
        u, converged = _least(slopes) if matters else (1.0, True)
        self.temperature_, self.converged_ = 1.0 / u, float(converged)
        if not converged:
            message = f"the loss falls up to the bound: temperature {self.temperature_:g} is a limit, not an optimum"
            warn(message)

    def _predict(self, p: Array) -> Array:
        return sigmoid(logit(p) / self.temperature_)

    def predict_logits(self, logits: npt.ArrayLike) -> Array:
        """Probabilities (n, K) = softmax(logits / T); each row sums to 1."""
        self._check_fitted()
        z = _rows_of_logits(logits)
        e = np.exp((z - z.max(axis=1, keepdims=True)) / self.temperature_)
        return np.asarray(e / e.sum(axis=1, keepdims=True))


def _least(slopes: Slopes) -> tuple[float, bool]:
    """(u, converged): where the first derivative of a convex function crosses 0 in [1/50, 50], or the bound."""
    low, high = 1.0 / HOTTEST, HOTTEST
    if slopes(low)[0] >= 0.0:
        return low, False
    if slopes(high)[0] <= 0.0:
        return high, False
    u = 1.0
    for _ in range(STEPS):
        first, second = slopes(u)
        low, high = (u, high) if first < 0.0 else (low, u)
        step = first / second if second > 0.0 else math.inf
        if abs(step) <= CLOSE * u:
            return min(max(u - step, 1.0 / HOTTEST), HOTTEST), True
        u = u - step if low < u - step < high else math.sqrt(low * high)
    return u, True


@kernel
def _class_slopes(z: Array, labels: Array, w: Array, u: float) -> tuple[float, float]:
    """Two derivatives in u of the loss -ln softmax(u * z)[label]: mean minus wanted logit, and variance, under the softmax."""
    first, second = 0.0, 0.0
    for i in range(z.shape[0]):
        top = z[i, 0]
        for k in range(1, z.shape[1]):
            top = max(top, z[i, k])
        total, mean, square = 0.0, 0.0, 0.0
        for k in range(z.shape[1]):
            below = z[i, k] - top
            e = math.exp(u * below)
            if e > 0.0:
                total += e
                mean += e * below
                square += e * below * below
        mean /= total
        first += w[i] * (mean - (z[i, int(labels[i])] - top))
        second += w[i] * (square / total - mean * mean)
    return first, second


def _rows_of_logits(logits: npt.ArrayLike) -> Array:
    """Logits (n, K) as a new, finite array; ValueError names the row of the first that is nan, +inf, or nothing at all."""
    z = np.array(numbers("logits", logits, strict=True), order="C")
    if z.ndim != 2 or z.shape[1] < 2:
        raise ValueError(f"logits must have shape (n, classes) with at least 2 classes, got {z.shape}")
    top = z.max(axis=1, keepdims=True, initial=-np.inf)
    if (bad := np.flatnonzero(~np.isfinite(top) | np.isnan(z).any(axis=1, keepdims=True))).size:
        raise ValueError(
            f"logits must be finite (or -inf beside a finite one), got {z[bad[0]].tolist()} at index {bad[0]}"
        )
    absent = np.isneginf(z)
    least = np.where(absent, np.inf, z).min(axis=1, keepdims=True, initial=np.inf)
    return np.where(absent, np.minimum(least, top + math.log(CLIP)), z)
