"""Beta calibration: logistic regression on ln p and ln(1 - p), so that the two ends bend on their own."""

from __future__ import annotations

import math
import warnings

import numpy as np

from streamcal.arrays import Array
from streamcal.batch import CalibrationWarning
from streamcal.logistic import evaluation, newton
from streamcal.recalibrate.platt import CLIP, LARGE, THIN, logit, sigmoid
from streamcal.recalibrate.recalibrator import Recalibrator, recalibrator

# Which coefficients each variant fits: rows are the fitted ones, columns are (a, b, c).
LN2 = math.log(2.0)
VARIANTS = {
    "abm": np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    "ab": np.array([[1.0, 0.0, LN2], [0.0, 1.0, -LN2]]),
    "am": np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
}


@recalibrator("beta")
class BetaCalibration(Recalibrator):
    r"""p -> sigmoid(``a_`` ln p - ``b_`` ln(1 - p) + ``c_``) with a, b >= 0: always monotone.

    .. math:: \max_{a, b \ge 0, c} \sum_i w_i \left[ y_i \ln q_i + (1 - y_i) \ln (1 - q_i) \right], \quad
              q_i = \sigma(a \ln p_i - b \ln (1 - p_i) + c)

    ``variant``: "abm" fits all three; "am" has a = b (Platt scaling that cannot turn round); "ab" keeps 1/2 where it is,
    c = (a - b) ln 2. A coefficient that comes out negative is set to 0 and the rest fitted again; of the maps that remain
    the likeliest is taken, which is the optimum under a, b >= 0. Unlike a logistic map this one has the identity, and
    repairs scores that are squeezed (sigmoid-shaped) as well as those that are too sure.

    p is clipped to [1e-12, 1 - 1e-12]. Equal predictions or one class: the base rate everywhere ("ab": as near as it can
    come while it keeps 1/2), a = b = 0. ``converged_`` is 1.0, or 0.0 with a warning when the likelihood has no maximum (one
    class, or parted by a threshold): the map is finite all the same. From a snapshot of UniformMass(15, bits=7) over
    20,000 events outputs moved by 2e-5 at most against the fit to the events. Kull, Silva Filho, Flach 2017.

    >>> map = BetaCalibration().fit([0.1, 0.4, 0.6, 0.9] * 5, [0, 1, 0, 1] * 5)
    >>> bool(map.a_ >= 0 and map.b_ >= 0), map.predict([0.5]).round(3).tolist()
    (True, [0.5])
    """

    settings = ("variant",)
    fitted = ("a_", "b_", "c_", "converged_")

    a_: float
    b_: float
    c_: float
    converged_: float

    def __init__(self, variant: str = "abm") -> None:
        if variant not in VARIANTS:
            raise ValueError(f"variant must be 'abm', 'ab' or 'am', got {variant!r}")
        self.variant = variant

    def _fit(self, p: Array, y: Array, w: Array) -> None:
        z, rate = logit(p), float((w * y).sum() / w.sum())
        inner = min(max(rate, CLIP), 1.0 - CLIP)
        if self.variant != "ab" and (inner != rate or z.min() == z.max()):
            abc, converged = np.array([0.0, 0.0, math.log(inner / (1.0 - inner))]), inner == rate
        else:
            abc, converged = _constrained(_curves(p), y, w, VARIANTS[self.variant])
            converged = converged and not self._parts(z, y)
        self.a_, self.b_, self.c_, self.converged_ = *map(float, abc), float(converged)
        if not converged:
            message = "no best map found: outcomes of one class, parted by a threshold, or weights of very unlike size"
            warnings.warn(message, CalibrationWarning, stacklevel=3)

    def _parts(self, z: Array, y: Array) -> bool:
        """Whether some map of this variant fits the outcomes perfectly; "ab" can only part them at 1/2."""
        if self.variant != "ab":
            return bool(z[y > 0].min() >= z[y < 1].max())
        return bool(z.any() and (z[y > 0] >= 0.0).all() and (z[y < 1] <= 0.0).all())

    def _is_sound(self) -> bool:
        return super()._is_sound() and min(self.a_, self.b_) >= 0.0

    def _predict(self, p: Array) -> Array:
        rising, falling, one = _curves(p)
        return sigmoid(self.a_ * rising + self.b_ * falling + self.c_ * one)


def _curves(p: Array) -> Array:
    """ln p, -ln(1 - p) and 1, shape (3, n)."""
    inner = np.clip(p, CLIP, 1.0 - CLIP)
    return np.stack([np.log(inner), -np.log1p(-inner), np.ones_like(inner)])


def _constrained(curves: Array, y: Array, w: Array, basis: Array) -> tuple[Array, bool]:
    """((a, b, c), converged) of least loss with a, b >= 0: without a bound, else with a subset of the two at 0."""
    best: tuple[float, Array, bool] | None = None
    for free in _subsets(basis):
        loss, abc, converged = _fit(np.ascontiguousarray(free @ curves), free, y, w)
        if abc[:2].min() >= 0.0 and (best is None or loss < best[0]):
            best = loss, abc, converged
        if best is not None and free is basis:
            break
    assert best is not None  # the last subset has a = b = 0
    return best[1], best[2]


def _subsets(basis: Array) -> list[Array]:
    """The basis itself, then without each coefficient that has a bound, then without any of them."""
    bounded = np.flatnonzero(basis[:, :2].any(axis=1))
    without = [np.delete(basis, k, axis=0) for k in bounded] if bounded.size > 1 else []
    return [basis, *without, np.delete(basis, bounded, axis=0)]


def _fit(x: Array, basis: Array, y: Array, w: Array) -> tuple[float, Array, bool]:
    """(loss, (a, b, c), converged) of the logistic regression on the curves ``x`` (k, n)."""
    constant = len(basis) > 0 and not basis[-1, :2].any()
    middle, spread = _standard(x, w, constant)
    x = np.ascontiguousarray((x - middle) / spread)
    theta, converged = _from(np.zeros(len(x)), x, y, w)
    loss = evaluation(x, y, w)(theta)[0]
    theta = theta / spread[:, 0]
    if constant:
        theta[-1] -= float(theta @ middle[:, 0])
    return loss, theta @ basis, converged


def _standard(x: Array, w: Array, constant: bool) -> tuple[Array, Array]:
    """Middle and spread of each curve, so that squeezed predictions are no harder than others; the constant stays.

    A map that keeps 1/2 has no constant that could take up the middle: there only the unit is changed.
    """
    share = w / w.sum()
    middle = np.zeros((len(x), 1))
    if constant:
        middle[:-1, 0] = x[:-1] @ share
    spread = np.sqrt((x - middle) ** 2 @ share)[:, None]
    return middle, np.where(spread > 0.0, spread, 1.0)


def _from(theta: Array, x: Array, y: Array, w: Array) -> tuple[Array, bool]:
    """Newton on all events, from the optimum of every 16th one where there are many: see platt."""
    if y.size >= LARGE:
        near, converged = _from(theta, x[:, ::THIN].copy(), y[::THIN].copy(), w[::THIN].copy())
        theta = near if converged else theta
    return newton(evaluation(x, y, w), theta)
