"""Beta calibration: logistic regression on ln p and ln(1 - p), so that the two ends bend on their own."""

from __future__ import annotations

import math

import numpy as np

from streamcal.arrays import Array
from streamcal.limits import warn
from streamcal.logistic import CLIP, base_rate, evaluation, logit, optimum, sigmoid
from streamcal.recalibrate.platt import NO_OPTIMUM
from streamcal.recalibrate.recalibrator import Recalibrator, recalibrator

VARIANTS = ("abm", "ab", "am")
LN2 = math.log(2.0)  # the logit of 1/2 is 0 with c = (a - b) ln 2


@recalibrator("beta")
class BetaCalibration(Recalibrator):
    r"""p -> sigmoid(``a_`` ln p - ``b_`` ln(1 - p) + ``c_``) with a, b >= 0: always monotone.

    .. math:: \max_{a, b \ge 0, c} \sum_i w_i \left[ y_i \ln q_i + (1 - y_i) \ln (1 - q_i) \right], \quad
              q_i = \sigma(a \ln p_i - b \ln (1 - p_i) + c)

    ``variant``: "abm" fits all three; "am" has a = b (Platt scaling that cannot turn round); "ab" keeps 1/2 where it is,
    c = (a - b) ln 2. A coefficient that comes out negative is set to 0 and the rest fitted again; of the maps that remain
    the likeliest is taken, which is the optimum under a, b >= 0. Unlike a logistic map this one has the identity, and
    repairs scores that are squeezed (sigmoid-shaped) as well as those that are too extreme.

    p is clipped to [1e-12, 1 - 1e-12]. Equal predictions or one class: the base rate everywhere ("ab": as near as it can
    come while it keeps 1/2), a = b = 0. ``converged_`` is 1.0, or 0.0 with a warning when the likelihood has no maximum (one
    class, or parted by a threshold): the map is finite all the same. From a snapshot of UniformMass(15, bits=7) over
    20,000 events outputs moved by 2e-5 at most against the fit to the events. Kull, Silva Filho, Flach 2017.

    >>> map = BetaCalibration().fit([0.1, 0.4, 0.6, 0.9] * 5, [0, 1, 0, 1] * 5)
    >>> bool(map.a_ >= 0 and map.b_ >= 0), map.predict([0.5]).round(3).tolist()
    (True, [0.5])
    """

    fitted = ("a_", "b_", "c_", "converged_")

    def __init__(self, variant: str = "abm") -> None:
        if variant not in VARIANTS:
            raise ValueError(f"variant must be 'abm', 'ab' or 'am', got {variant!r}")
        self.variant = variant

    def _fit(self, p: Array, y: Array, w: Array) -> None:
        z, (base, mixed) = logit(p), base_rate(y, w)
        if self.variant != "ab" and (not mixed or z.min() == z.max()):
            abc, converged = (0.0, 0.0, base), mixed
        else:
            abc, converged = self._constrained(_curves(p), y, w)
            ones, zeros = z[y > 0], z[y < 1]
            if self.variant == "ab":  # which can part the outcomes only at 1/2
                parted = z.any() and (ones >= 0.0).all() and (zeros <= 0.0).all()
            else:
                parted = ones.min() >= zeros.max()
            converged = converged and not parted
        self.a_, self.b_, self.c_, self.converged_ = *abc, float(converged)
        if not converged:
            warn(NO_OPTIMUM)

    def _constrained(self, curves: Array, y: Array, w: Array) -> tuple[tuple[float, float, float], bool]:
        """((a, b, c), converged) of least loss with a, b >= 0: without a bound, else with one or both of the two at 0."""
        free = np.array([1.0, 1.0, 1.0])
        if self.variant == "am":
            curves, free[1] = curves.sum(axis=0, keepdims=True), 0.0
        elif self.variant == "ab":
            curves, free[2] = curves + np.array([[LN2], [-LN2]]), 0.0
        best: tuple[float, Array, bool] | None = None
        for held in ([], [0], [1], [0, 1]) if self.variant != "am" else ([], [0]):
            some = free.copy()
            some[held] = 0.0
            loss, theta, converged = _fit(curves, some, y, w)
            if theta[:2].min() >= 0.0 and (best is None or loss < best[0]):
                best = loss, theta, converged
            if best is not None and not held:  # the optimum without a bound keeps the bound: no other can be better
                break
        assert best is not None  # the last one has a = b = 0
        a, b, c = best[1].tolist()
        a, b, c = {"am": (a, a, c), "ab": (a, b, (a - b) * LN2)}.get(self.variant, (a, b, c))
        return (a, b, c), best[2]

    def _predict(self, p: Array) -> Array:
        rising, falling = _curves(p)
        return sigmoid(self.a_ * rising + self.b_ * falling + self.c_)


def _curves(p: Array) -> Array:
    """ln p and -ln(1 - p), shape (2, n)."""
    inner = np.clip(p, CLIP, 1.0 - CLIP)
    return np.stack([np.log(inner), -np.log1p(-inner)])  # log1p: 1 - p has lost the digits of a small p


def _fit(curves: Array, free: Array, y: Array, w: Array) -> tuple[float, Array, bool]:
    """(loss, theta, converged) of the logistic regression on standardised curves, so that squeezed scores are no harder.

    A map that keeps 1/2 has no constant that could take up the middle: there only the unit is changed.
    """
    share, k = w / w.sum(), len(curves)
    middle = curves @ share * free[2]
    spread = np.sqrt((curves - middle[:, None]) ** 2 @ share)
    spread[spread == 0.0] = 1.0
    x = (curves - middle[:, None]) / spread[:, None]
    theta, converged = optimum(np.zeros(3), x, y, w, free)
    loss = evaluation(x, y, w)(theta)[0]
    theta[:k] /= spread
    theta[2] -= float(theta[:k] @ middle)
    return loss, theta, converged
