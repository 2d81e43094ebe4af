"""Calibration metrics for regressors whose output is a quantile, an interval or a distribution.

A quantile is a number, or a dict of numbers by level. An interval is a pair (low, high) or anything with ``lower`` and
``upper``, such as River's ``conf.Interval``. A distribution is anything with ``cdf(y)``, such as ``proba.Gaussian``.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from river import metrics

from streamcal.arrays import check_whole, one_number
from streamcal.binning import Binning, Edges, EqualWidth, LogOdds
from streamcal.claims import Quantile, check_level
from streamcal.river.metrics import Windowed, binning_of, window_of
from streamcal.river.predictions import DICTS, interval, is_missing, quantile

ANYWHERE = Edges([-math.inf, math.inf])  # one bin for all real numbers


class OfRegressors(Windowed, metrics.base.RegressionMetric):
    """What the metrics of this module share: they work with regressors."""

    def _set(self, level: float, window_size: int | None, half_life: float | None) -> None:
        self.level, self.window_size, self.half_life = level, window_size, half_life
        self._level = check_level(level)


class Coverage(OfRegressors):
    """Share of outcomes that fell inside: of an interval, its ends included; of a quantile, at or below it. In [0, 1].

    nan if nothing was seen. Ends may be infinite; an interval with low > high is refused and counted. Better is nearer to
    ``level``, which is what ``is_better_than`` and ``>`` compare; ``bigger_is_better`` has no answer for it and says False.

    A number is a quantile, and the point forecast of a regressor is judged as one. River's ``progressive_val_score`` gives
    metrics nothing else, also where the regressor has intervals: ask for those in a loop,
    ``metric.update(y, model.predict_one(x, with_interval=True))``, then ``model.learn_one(x, y)``.

    Parameters
    ----------
    level
        What the forecasts claim: the quantile's level, or the probability of the interval. A dict is asked for it.
    window_size, half_life
        Only the last so many events count; or an event that lies so many events back counts half. Without them all events
        count, and can be reverted (exactly).

    >>> metric = Coverage(level=0.8)
    >>> for y in (1, 2, 3, 9):
    ...     metric.update(y, (0, 5))
    >>> metric
    Coverage: 0.75
    """

    _reads = "coverage"

    def __init__(self, level: float = 0.5, window_size: int | None = None, half_life: float | None = None) -> None:
        self._set(level, window_size, half_life)
        self._window = window_of(EqualWidth(1), window_size, half_life)

    def _event(self, y_true: Any, y_pred: Any) -> tuple[float, float]:
        y, ends = one_number(y_true), interval(y_pred)
        low, high = (-math.inf, quantile(y_pred, self._level)) if ends is None else ends
        known = math.isfinite(y) and low <= high
        return self._level, float(low <= y <= high) if known else math.nan

    def is_better_than(self, other: Any) -> bool:
        """Whether this coverage is nearer to its level than the other to its own; never if one of the two is nan."""
        return bool(abs(self.get() - self._level) < abs(other.get() - other._level))


class PinballLoss(OfRegressors):
    r"""Mean pinball loss of forecasts v of the ``level`` quantile: :math:`(y - v)(q - 1[y < v])`, in units of y.

    Never negative; nan if nothing was seen. A dict is asked for ``level``. Parameters as in :class:`Coverage`. Source:
    Koenker & Bassett 1978.

    >>> metric = PinballLoss(level=0.9)
    >>> metric.update(3.0, 1.0)
    >>> metric
    PinballLoss: 1.8
    """

    _reads = "pinball_loss"

    def __init__(self, level: float = 0.5, window_size: int | None = None, half_life: float | None = None) -> None:
        self._set(level, window_size, half_life)
        self._window = window_of(ANYWHERE, window_size, half_life, Quantile(self._level), "pinball")

    def _event(self, y_true: Any, y_pred: Any) -> tuple[float, float]:
        return quantile(y_pred, self._level), one_number(y_true)


class IntervalScore(OfRegressors):
    r"""Mean interval score of central intervals [l, u] that claim ``level``, in units of y; nan if nothing was seen.

    .. math:: (u - l) + \frac2\alpha (l - y) 1[y < l] + \frac2\alpha (y - u) 1[y > u], \qquad \alpha = 1 - level

    Width, and a price for what falls outside: never negative, lowest in the mean for the true quantiles. It is the sum of
    the pinball losses of the two ends, times 2 / alpha. An interval with low > high or an infinite end is refused and
    counted; a dict is asked for both levels. A number is a ValueError: River's ``progressive_val_score`` gives metrics the point
    forecast, so ask for the interval in a loop, as in :class:`Coverage`, where the parameters are too. Source: Gneiting &
    Raftery 2007.

    >>> metric = IntervalScore(level=0.8)
    >>> metric.update(5.0, (1.0, 4.0))  # 3 wide, 1 outside: 3 + 2 / 0.2
    >>> metric
    IntervalScore: 13.
    """

    _reads = "pinball_loss"

    def __init__(self, level: float = 0.9, window_size: int | None = None, half_life: float | None = None) -> None:
        self._set(level, window_size, half_life)
        self._alpha = 1.0 - self._level
        self._window = window_of(ANYWHERE, window_size, half_life, Quantile(0.5), "pinball")

    def _event(self, y_true: Any, y_pred: Any) -> tuple[float, float]:
        """The score as a window can take it: half of it is the pinball loss of forecasting 0 as a median."""
        y, ends = one_number(y_true), interval(y_pred)
        if ends is None and isinstance(y_pred, DICTS):
            ends = quantile(y_pred, self._alpha / 2), quantile(y_pred, 1 - self._alpha / 2)
        if ends is None and not is_missing(y_pred):
            raise ValueError(
                f"y_pred must be an interval, (low, high) or with lower and upper, got {y_pred!r:.80}; River's evaluation asks "
                "a regressor for its point forecast only: write a loop, metric.update(y, model.predict_one(x, "
                "with_interval=True)) and then model.learn_one(x, y)"
            )
        low, high = ends or (math.nan, math.nan)
        if not low <= high:
            return 0.0, math.nan
        return 0.0, (high - low) + (max(low - y, 0.0) + max(y - high, 0.0)) * 2.0 / self._alpha

    def get(self) -> float:
        """The value now, nan if nothing was seen."""
        return 2.0 * super().get()


class Q1(OfRegressors):
    r"""Mean absolute calibration gap of quantiles or intervals, in [0, 1]; nan if nothing was seen.

    .. math:: Q_1 = \sum_r \frac{W_r}{W} |level - \bar c_r|

    where c is 1 if the outcome is at or below the quantile (bins of the predicted value), or inside the interval, ends
    included (bins of its width: are narrow ones too narrow?). 0 needs the right coverage in every bin, not only on the
    whole. Too high for few events, like the ECE. What is not finite, and low > high, is refused and counted. Source: Roth,
    Uncertain.

    Parameters
    ----------
    level
        What the forecasts claim: the quantile's level, or the probability of the interval. A dict is asked for it.
    n_bins
        Number of bins.
    binning
        None or "uniform-mass" (a fine grid of any real numbers, 6,400 bins for 15 of equal mass: .4 MB, and three times that
        unless fading), or a :class:`streamcal.binning.Binning` of real numbers, such as ``Edges([-inf, 0, 10, inf])``.
    window_size, half_life
        As in :class:`Coverage`.

    >>> metric = Q1(level=0.75)
    >>> for y in (1, 2, 3, 9):
    ...     metric.update(y, 5.0)
    ...     metric.update(y, 2.0)
    >>> metric  # the bin of 5.0 is right, that of 2.0 holds 50 %
    Q1: 0.125
    """

    _reads = "q1"

    def __init__(
        self,
        level: float = 0.5,
        n_bins: int = 15,
        binning: str | Binning | None = None,
        window_size: int | None = None,
        half_life: float | None = None,
    ) -> None:
        self._set(level, window_size, half_life)
        self.n_bins, self.binning = n_bins, binning
        bins = binning_of(n_bins, binning, usual="uniform-mass")
        if bins.domain == "unit" or isinstance(bins, LogOdds):
            raise ValueError(
                f"binning must hold any real number: None, 'uniform-mass', Edges or Levels, got {binning!r}"
            )
        self._window = window_of(bins, window_size, half_life, Quantile(self._level))

    def _event(self, y_true: Any, y_pred: Any) -> tuple[float, float]:
        """An interval is to the window a quantile of the size of its width, with an outcome above it or not."""
        y, ends = one_number(y_true), interval(y_pred)
        if ends is None:
            return quantile(y_pred, self._level), y
        low, high = ends
        if not (low <= high and math.isfinite(y)):
            return math.nan, math.nan
        return high - low, high - low if low <= y <= high else sys.float_info.max


class PIT(OfRegressors):
    r"""How far probability integral transforms u = F(y) are from uniform, in [0, 1/2]; nan if nothing was seen.

    .. math:: \frac{1}{m-1} \sum_{j=1}^{m-1} \left| P(u \le j/m) - j/m \right|, \qquad m = n\_bins

    0 if outcomes fall below each quantile as often as they should. ``y_pred`` is anything with ``cdf(y)``, and must not have
    changed when its event is reverted. For continuous outcomes only: whole numbers are never uniform. A Gaussian without
    spread (River's before its second event) is refused and counted, like any u outside [0, 1]. Source: Dawid 1984;
    Gneiting, Balabdaoui, Raftery 2007.

    Parameters
    ----------
    n_bins
        Number of bins of the histogram of u, at least 2.
    window_size, half_life
        As in :class:`Coverage`.

    >>> from river import proba
    >>> forecast = proba.Gaussian()
    >>> for y in (-1.0, 1.0):
    ...     forecast.update(y)
    >>> metric = PIT(n_bins=4)
    >>> for y in (-2.0, -0.5, 0.5, 2.0):
    ...     metric.update(y, forecast)
    >>> metric, metric.histogram
    (PIT: 0., [0.25, 0.25, 0.25, 0.25])
    """

    def __init__(self, n_bins: int = 10, window_size: int | None = None, half_life: float | None = None) -> None:
        self.n_bins, self.window_size, self.half_life = n_bins, window_size, half_life
        self._window = window_of(EqualWidth(check_whole("n_bins", n_bins, 2)), window_size, half_life)

    def _event(self, y_true: Any, y_pred: Any) -> tuple[float, float]:
        if is_missing(y_pred):
            return math.nan, math.nan
        if not callable(getattr(y_pred, "cdf", None)):
            raise ValueError(f"y_pred must be a distribution with cdf(y), got {y_pred!r:.80}")
        y = one_number(y_true)
        if math.isnan(y) or one_number(getattr(y_pred, "sigma", 1.0)) == 0.0:
            return math.nan, math.nan
        return one_number(y_pred.cdf(y)), 1.0

    @property
    def histogram(self) -> list[float]:
        """Share of the events in each of ``n_bins`` equal bins of u; a hump: too wide forecasts, a valley: too narrow ones."""
        return [float(share) for share in self._window.snapshot().share[0]]

    def get(self) -> float:
        """The value now, nan if nothing was seen."""
        below = np.cumsum(self.histogram)[:-1]
        return float(np.abs(below - np.arange(1, self.n_bins) / self.n_bins).mean())

    def report(self) -> dict[str, Any]:
        """Value, count and weight of events, how many were refused, and the histogram."""
        s = self._window.snapshot()
        return {
            "value": self.get(),
            "count": float(s.count.sum()),
            "weight": float(s.weight.sum()),
            "refused": float(s.refused[0]),
            "histogram": self.histogram,
        }
