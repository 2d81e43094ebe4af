"""Scaling-binning: bin the outputs of a fitted scaling map, so that its calibration error can be measured."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, check_flag, check_whole
from streamcal.binning import Levels
from streamcal.intervals import k2_interval
from streamcal.limits import warn, warn_if_swapped
from streamcal.logistic import logit, sigmoid
from streamcal.recalibrate.histogram import bin_means, bins_within, condensed, off_scores, uniform_mass_edges
from streamcal.recalibrate.platt import PlattScaling
from streamcal.recalibrate.recalibrator import Recalibrator, are_steps, checked_events, events_of, recalibrator
from streamcal.snapshot import Snapshot
from streamcal.windows import Cumulative

CONSTANT = 4.0  # n >= 4 B ln(10 B) makes the bins 2-well-balanced with probability .9 (measured: .94 to .985)
ROUNDING = 1e-9  # of a share: bins of exactly half the mass count as balanced, however their weights are summed


class CalibrationError(NamedTuple):
    """Squared calibration error (K2) of a map on other data, by output value; the interval is around ``debiased``."""

    plug_in: float
    debiased: float
    low: float
    high: float


def logit_of_mean(low: Array, high: Array) -> Array:
    """logit of (sigmoid(low) + sigmoid(high)) / 2, also where both sigmoids are 0 or 1 in floats.

    >>> logit_of_mean(np.array([-1.0, 800.0]), np.array([1.0, 900.0])).round(3).tolist()
    [0.0, 800.693]
    """
    up = np.logaddexp(-np.logaddexp(0.0, -low), -np.logaddexp(0.0, -high))
    down = np.logaddexp(-np.logaddexp(0.0, low), -np.logaddexp(0.0, high))
    return np.asarray(up - down)


def scaled_edges(z: Array, w: Array, n_bins: int) -> Array:
    """Uniform-mass edges of the outputs sigmoid(z), kept as logits: outputs that are both 1.0 still have an edge between.

    An inner edge is the midpoint of two neighbouring outputs, as in the paper. It stays where it is if the midpoint is not
    between the two logits (tied or adjacent values).
    """
    values, weights = condensed(z, w, n_bins)
    edges = uniform_mass_edges(values, weights, n_bins, (-np.inf, np.inf))
    inner, ordered = edges[1:-1], np.sort(values)
    above = np.searchsorted(ordered, inner, "right")
    low, high = ordered[above - 1], ordered[np.minimum(above, ordered.size - 1)]
    middle = logit_of_mean(low, high)
    edges[1:-1] = np.where((low < inner) & (low <= middle) & (middle < high), middle, inner)
    return edges


@recalibrator("scaling-binning")
class ScalingBinning(Recalibrator):
    r"""Platt scaling g, then bins of equal mass on its outputs; a bin maps to the mean of g in it, not of the outcomes.

    .. math:: g(p) = \sigma(a \, \mathrm{logit}(p) + b), \quad m(p) = \frac{\sum_{i: r(p_i) = r(p)} w_i g(p_i)}
              {\sum_{i: r(p_i) = r(p)} w_i}

    The map takes at most ``n_bins`` values, so its calibration error E (E[y | m] - m)^2 can be estimated, which it cannot
    be for a continuous map: see :meth:`calibration_error`. And since the levels average g, they are learned from all
    events together: the squared error falls like 1 / n with nearly nothing added for more bins, where that of
    :class:`HistogramBinning` grows like n_bins / n. It is no better where the scores are far from Platt's family.

    Bins are cut on the logit, where saturated outputs do not tie. An empty bin (beside a tied score) maps to the midpoint of
    its two outputs. ``targets`` is that of :class:`PlattScaling`.

    ``split=True`` is what the paper's theorem is about: a shuffle with ``seed``, then one third of the events each for g, for
    the edges, and for the levels (what three does not divide goes to the first). The default uses all events in all three
    steps: 2 to 3 times lower squared error, measured. With ``split`` a weight is no longer exactly that many copies.

    ``well_balanced_``: whether each bin holds between 1/(2B) and 2/B of the sample (false where ties make bins too heavy or
    empty); fewer than 4 B ln(10 B) events for the edges warn, since the bins may then not be so in the population.

    From a snapshot (``split=False`` only) a bin of the window counts at its mean claim. Measured on 20,000 events against the
    fit to the events: levels within 0.004 on the grid of UniformMass(15), 0.01 on that of LogOdds(15); at most 3 and 5 % of the
    events fall into a neighbouring bin; the Brier score is within 3e-4.

    Fitted: ``slope_``, ``intercept_``, ``edges_`` (bins + 1,) as logits of outputs, ``levels_`` (bins,), ``well_balanced_``.
    Source: Kumar, Liang, Ma 2019.

    >>> p = np.arange(1, 400) / 400
    >>> map = ScalingBinning(4).fit(p, p > 0.4 + 0.2 * np.sin(99.0 * p))
    >>> map.levels_.size, map.well_balanced_
    (4, True)
    """

    fitted = ("slope_", "intercept_", "edges_", "levels_", "well_balanced_")

    def __init__(self, n_bins: int = 10, split: bool = False, targets: str = "smooth", seed: int = 0) -> None:
        self.n_bins, self.seed = check_whole("n_bins", n_bins, 1), check_whole("seed", seed, 0)
        self.split = check_flag("split", split)  # the thirds are fixed
        self.targets = PlattScaling(targets).targets

    def _fit(self, p: Array, y: Array, w: Array) -> None:
        one: Any = slice(None)  # which events the three steps see
        two, three = one, one
        if self.split:
            third = p.size // 3  # the scaling takes one or two more, where something is left over
            if not third:
                raise ValueError(f"split=True needs at least 3 events of positive weight, got {p.size}")
            one, two, three = np.split(np.random.default_rng(self.seed).permutation(p.size), [-2 * third, -third])
        scaling = PlattScaling(self.targets)
        scaling._fit(p[one], y[one], w[one])
        self.slope_, self.intercept_ = scaling.slope_, scaling.intercept_
        z = self._scaled(p)
        self.edges_ = scaled_edges(z[two], w[two], self.n_bins)
        self._learn_levels(z[three], w[three])
        if self.split:
            self.well_balanced_ = self._balanced(bin_means(self.edges_, z, z, w)[0])
        n, least = float(w[two].sum()), CONSTANT * self.n_bins * math.log(10.0 * self.n_bins)
        if n < least:
            message = (
                f"{self.n_bins} bins from {n:g} events may be far from equal mass in the population: "
                f"take at least {math.ceil(least)} events or fewer bins"
            )
            warn(message)

    def _learn_levels(self, z: Array, w: Array) -> None:
        weight, mean = bin_means(self.edges_, z, sigmoid(z), w)
        ends = sigmoid(self.edges_)
        self.levels_ = np.where(weight > 0, mean, (ends[:-1] + ends[1:]) / 2.0)
        self.well_balanced_ = self._balanced(weight)

    def _balanced(self, weight: Array) -> bool:
        share = weight / weight.sum()
        low, high = 0.5 / self.n_bins - ROUNDING, 2.0 / self.n_bins + ROUNDING
        return bool(((low <= share) & (share <= high)).all())

    def _scaled(self, p: Array) -> Array:
        return self.slope_ * logit(p) + self.intercept_

    def _go_on(self, fitted: dict[str, Any]) -> None:
        super()._go_on(fitted)
        self.well_balanced_ = bool(self.well_balanced_)  # documents hold fitted flags as numbers

    def _is_sound(self) -> bool:
        numbers = self.slope_, self.intercept_, self.well_balanced_
        fine = all(isinstance(x, float) and math.isfinite(x) for x in numbers)
        return fine and are_steps(self.edges_, self.levels_, (-math.inf, math.inf))

    def _predict(self, p: Array) -> Array:
        return self.levels_[bins_within(self.edges_, self._scaled(p))]

    def fit_snapshot(self, snapshot: Snapshot) -> ScalingBinning:
        """See :meth:`Recalibrator.fit_snapshot`; ValueError with ``split=True``, since bins are not events."""
        if self.split:
            raise ValueError("split=True needs the events: a snapshot has only sums; use split=False")
        super().fit_snapshot(snapshot)
        p, _, w = events_of(snapshot)
        z = self._scaled(p)
        self.edges_ = off_scores(self.edges_, z)
        self._learn_levels(z, w)
        return self

    def calibration_error(
        self, p: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None, *, level: float = 0.95
    ) -> CalibrationError:
        r"""Squared calibration error of the fitted map, from events that were not used to fit it; by output value.

        .. math:: \sum_v \frac{W_v}{W} (\bar y_v - v)^2

        over the outputs v: two bins with the same output count as one. ``plug_in`` is that sum, biased up by about
        B y(1 - y) / n. ``debiased`` (signed) is not; its interval covers near ``level``. nan where no output was seen
        twice. The root of either is an error in probability units.

        >>> p = np.linspace(0.02, 0.98, 400)
        >>> ScalingBinning(4).fit(p, p > 0.5).calibration_error(p, p > 0.5).plug_in < 0.01
        True
        """
        self._check_fitted()
        scores, outcomes, weights = checked_events(p, y, sample_weight)
        warn_if_swapped(scores, outcomes)
        window = Cumulative(Levels(self.levels_))  # Levels joins equal outputs into one row, as the sum over v asks
        window.update_many(self.predict(scores), outcomes, weights)
        s = window.snapshot()
        low, high = k2_interval(s, level)
        numbers = (s.values("k2"), s.values("k2_debiased"), low, high)
        return CalibrationError(*(float(one[0]) for one in numbers))
