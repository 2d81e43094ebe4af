"""Platt scaling: logistic regression of the outcome on the logit of the prediction."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, check_aligned, numbers
from streamcal.limits import warn, warn_if_swapped
from streamcal.logistic import LINE, base_rate, logit, optimum, separable, sigmoid
from streamcal.recalibrate.recalibrator import Recalibrator, checked, checked_events, recalibrator

TARGETS = ("smooth", "hard")
NO_OPTIMUM = "no best map found: outcomes of one class, parted by a threshold, or weights of very unlike size"
HUGE = 1e307  # scores beyond are divided by 4: the difference of two must not overflow
SAME = 1e-290  # scores that differ by less are equal: the square of their spread would be 0
SLIGHT = 1e-9  # a negative slope that moves no logit by more than this is rounding


def smooth_targets(y: Array, w: Array) -> Array:
    """Platt's targets, (N+ + 1) / (N+ + 2) for outcome 1 and 1 / (N- + 2) for outcome 0, and between them for others.

    N+ and N- are the weights of the outcomes 1 and 0: a weight of 2 is the event twice.

    >>> smooth_targets(np.array([0.0, 1.0, 1.0]), np.ones(3)).round(3).tolist()
    [0.333, 0.75, 0.75]
    """
    positive = float((w * y).sum())
    negative = float((w * (1.0 - y)).sum())
    return y * ((positive + 1.0) / (positive + 2.0)) + (1.0 - y) / (negative + 2.0)


def platt_fit(z: Array, t: Array, w: Array) -> tuple[float, float, bool]:
    """(slope, intercept, converged) of t ~ sigmoid(slope * z + intercept) by maximum likelihood.

    Scores ``z`` (any finite size), targets ``t`` in [0, 1] and weights ``w`` > 0, all of shape (n,). Newton's method on
    the standardised scores, so that neither the unit of z nor an offset matters to the fit (an offset of 1e12 times the
    spread does to slope * z + intercept, which cancels); steps are halved until the loss falls.
    Equal scores or equal targets: slope 0 and the mean target. Targets all 0 or all 1, or parted by a threshold: there
    is no maximum, so converged is False and the values are where the loss became flat; they are always finite.

    >>> platt_fit(np.array([-1.0, -1.0, 1.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0, 1.0, 0.0]), np.ones(5))[2]
    True
    """
    z, t, w = (np.require(a, np.float64, ["C", "W"]) for a in (z, t, w))
    if np.abs(z).max() > HUGE:  # the difference of two would overflow
        slope, intercept, converged = platt_fit(z / 4.0, t, w)
        return slope / 4.0, intercept, converged
    middle, spread = _standard(z, w)
    base, mixed = base_rate(t, w)
    if spread == 0.0 or not mixed or t.min() == t.max():
        return 0.0, base, mixed
    x = (z - middle) / spread
    theta, converged = optimum(np.array([0.0, 0.0, base]), x[None], t, w, LINE)
    slope = float(theta[0]) / spread
    return slope, float(theta[2]) - slope * middle, converged and not separable(x, t)


def _standard(z: Array, w: Array) -> tuple[float, float]:
    """Weighted mean and standard deviation; the latter is exactly 0 when all scores are equal (to 1e-290)."""
    width = float(np.ptp(z))
    if width <= SAME:
        return float(z[0]), 0.0
    share = w / w.sum()
    middle = float((share * z).sum())
    return middle, max(width * math.sqrt(float((share * ((z - middle) / width) ** 2).sum())), SAME)


@recalibrator("platt")
class PlattScaling(Recalibrator):
    r"""p -> sigmoid(``slope_`` * logit(p) + ``intercept_``), fitted by maximum likelihood.

    .. math:: \max_{a, b} \sum_i w_i \left[ t_i \ln q_i + (1 - t_i) \ln (1 - q_i) \right], \quad
              q_i = \sigma(a \, \mathrm{logit}(p_i) + b)

    ``targets="smooth"`` (default): t is (N+ + 1) / (N+ + 2) for outcome 1 and 1 / (N- + 2) for outcome 0, which keeps
    the map finite on samples that a threshold parts, and has the smaller calibration error on small ones.
    ``targets="hard"``: t = y. Outcomes between 0 and 1 lie between the two targets.

    ``converged_`` is 1.0, or 0.0 with a warning when the likelihood has no maximum (hard targets and a sample that is
    of one class or parted by a threshold); the map is finite all the same. Equal scores, or one class: the (smoothed)
    base rate everywhere. A negative slope turns the order of predictions round; it is kept, and reported by a warning.
    From a snapshot of UniformMass(15, bits=7) over 20,000 events outputs moved by 2e-6 at most.

    Platt 1999; Lin, Lin, Weng 2007 for the stable form of the loss.

    >>> map = PlattScaling().fit([0.1, 0.4, 0.6, 0.9] * 25, [0, 1, 0, 1] * 25)
    >>> map.predict([0.0, 0.5, 1.0]).round(3).tolist()
    [0.0, 0.5, 1.0]
    """

    fitted = ("slope_", "intercept_", "converged_")

    def __init__(self, targets: str = "smooth") -> None:
        if targets not in TARGETS:
            raise ValueError(f"targets must be 'smooth' or 'hard', got {targets!r}")
        self.targets = targets

    def _fit(self, p: Array, y: Array, w: Array) -> None:
        self._fit_scores(logit(p), y, w)

    def fit_logits(
        self, z: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
    ) -> PlattScaling:
        """The same from scores on any scale (margins, logits) instead of probabilities; see :meth:`predict_logits`.

        ValueError names the first score that is not finite.
        """
        check_aligned(z=z, y=y, sample_weight=sample_weight)
        scores = _finite(z)
        _, outcomes, weights = checked_events(np.full(scores.shape, 0.5), y, sample_weight)
        warn_if_swapped(scores, numbers("y", y))
        if weights.size < scores.size:
            scores = scores[numbers("sample_weight", sample_weight) > 0.0]
        self._fit_scores(scores, outcomes, weights)
        return self

    def _fit_scores(self, z: Array, y: Array, w: Array) -> None:
        t = smooth_targets(y, w) if self.targets == "smooth" else y
        self.slope_, self.intercept_, converged = platt_fit(z, t, w)
        self.converged_ = float(converged)
        if not converged:
            warn(NO_OPTIMUM)
        if self.slope_ * float(z.max()) - self.slope_ * float(z.min()) < -SLIGHT:
            message = f"slope is {self.slope_:.3g}: higher predictions meet fewer outcomes; is 1 the right class?"
            warn(message)

    def _predict(self, p: Array) -> Array:
        return sigmoid(self.slope_ * logit(p) + self.intercept_)

    def predict_logits(self, z: npt.ArrayLike) -> Array:
        """Probabilities of scores on the scale of :meth:`fit_logits`, shape kept."""
        self._check_fitted()
        return sigmoid(self.slope_ * _finite(z) + self.intercept_)


def _finite(z: npt.ArrayLike) -> Array:
    scores = numbers("z", z, strict=True)
    return checked("z", "be finite", scores, np.isfinite(scores))
