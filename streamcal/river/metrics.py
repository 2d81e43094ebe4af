"""Calibration metrics for binary classifiers: River metrics that read a window's sums.

All take the same parameters (see :class:`ECE`) and probabilities as River's classifiers give them: a float, or a dict by
label, also empty, unnormalised (votes, a Counter) or without one of the labels.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, ClassVar

from river import metrics

from streamcal.arrays import check_flag
from streamcal.binning import Binning
from streamcal.river.predictions import HIGH, LOW, outcome, probability
from streamcal.river.windowed import Windowed, rows_of, window_of
from streamcal.snapshot import METRICS

MOST_LABELS = 100  # labels whose outcome is remembered; with more of them the others are read anew each time


class BinaryCalibration(Windowed, metrics.base.BinaryMetric):
    """What the metrics of this module share: they differ in what they read from the window (``_reads``)."""

    _reads: str = "ece"
    _loss: ClassVar[str | None] = None

    def __init__(
        self,
        n_bins: int = 15,
        binning: str | Binning | None = None,
        window_size: int | None = None,
        half_life: float | None = None,
        pos_val: Any = True,
    ) -> None:
        self.n_bins = n_bins
        self.binning = binning
        self.window_size = window_size
        self.half_life = half_life
        self.pos_val = pos_val
        self._window = window_of(rows_of(n_bins, binning), window_size, half_life, loss=self._loss)
        self._outcomes: dict[Any, float] = {}  # of labels that were seen
        self._short: Any = None  # what update needs for a usual event, once it has seen one

    def update(self, y_true: Any, y_pred: Any, w: float = 1.0) -> None:
        """Add an event: ``y_pred`` the probability of ``pos_val`` or a dict of probabilities, ``w`` in [0, 1e100]."""
        # One call into compiled code for what most events look like. Any surprise goes the long way round, which gives a
        # usual event the same numbers (test_the_short_way_is_the_long_way).
        try:
            pos, other, only_two, outcomes, one, buf = self._short
            if y_pred.__class__ is dict:
                p = y_pred[pos]
                if not (LOW < p + y_pred[other] < HIGH and (only_two or len(y_pred) == 2)):
                    raise ValueError
            elif y_pred.__class__ is float:
                p = y_pred
            else:
                raise TypeError
            one(buf, p, outcomes[y_true], w, 0.0)
        except (KeyError, TypeError, ValueError, OverflowError):
            self._read_and_update(y_true, y_pred, w)

    def _read_and_update(self, y_true: Any, y_pred: Any, w: float) -> None:
        """Any event. The window's compiled entry is there when it has taken one."""
        p, y = self._event(y_true, y_pred)
        self._window.update(p, y, w)
        if not math.isnan(y) and len(self._outcomes) < MOST_LABELS:
            with suppress(TypeError):  # a label that no dict can have as a key
                self._outcomes[y_true] = y
        two_keys = isinstance(y_pred, dict) and len(y_pred) == 2 and self.pos_val in y_pred
        if self._short is None or two_keys:
            pos, only_two = self.pos_val, isinstance(self.pos_val, bool)
            other = not pos if only_two else next((key for key in y_pred if key != pos), None) if two_keys else None
            self._short = pos, other, only_two, self._outcomes, type(self._window)._one, self._window._buf

    def _event(self, y_true: Any, y_pred: Any) -> tuple[float, float]:
        p = probability(y_pred, self.pos_val)
        try:
            return p, self._outcomes[y_true]
        except (KeyError, TypeError):
            return p, outcome(y_true, self.pos_val)

    def get(self) -> float:
        """The value now, nan if nothing was seen."""
        return float(self._window.get(self._reads))

    @property
    def requires_labels(self) -> bool:
        """False: probabilities."""
        return False

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_short": None}  # compiled entries cannot be pickled

    def clone(self, new_params: dict[str, Any] | None = None, include_attributes: bool = False) -> Any:
        """A new metric with the same parameters, or those of ``new_params``; ``include_attributes``: also what it has seen."""
        made = super().clone(new_params, include_attributes)
        made._short = None  # River copies attribute by attribute: this one would go on with the old window's sums
        return made


class ECE(BinaryCalibration):
    r"""Expected calibration error: :math:`\sum_r \frac{W_r}{W} |\bar y_r - \bar p_r|`, in [0, 1]; nan if nothing was seen.

    Biased upwards for few events: a perfect model shows .12 at 100 events in 15 rows, .038 at 1,000; ``report()`` has
    what a perfect model would show, and a debiased value. Source: Naeini, Cooper, Hauskrecht 2015; Guo et al. 2017.

    Parameters
    ----------
    n_bins
        Number of rows.
    binning
        None or "equal-width", "uniform-mass", "log-odds" (rare events), or a :class:`streamcal.binning.Binning`, such as
        ``Levels([0.1, 0.5])``, whose own rows count. Binnings are frozen and hold no data.
    window_size
        Only the last so many events count (24 bytes each).
    half_life
        An event that lies so many events back counts half.
    pos_val
        The positive label: that of the probabilities, and the key looked up in dicts. With true/false labels 0, 1 and
        numpy's are as good; all others are negative if they are like ``pos_val`` (text, a number), and an error if not.

    Without ``window_size`` and ``half_life`` all events count, and can be reverted (exactly): ``utils.Rolling(ECE, 100)``.

    Examples
    --------
    >>> from streamcal import ece
    >>> metric = ECE(n_bins=5)
    >>> y_pred = [0.95, 0.90, 0.85, 0.60, 0.55, 0.30]
    >>> for yt, yp in zip([True, False, True, True, False, False], y_pred):
    ...     metric.update(yt, {True: yp, False: 1 - yp})
    >>> metric
    ECE: 0.191667
    >>> metric.update(None, 0.5)
    >>> metric.get() == ece(y_pred, [1, 0, 1, 1, 0, 0], 5), metric.n_refused
    (True, 1.0)
    """

    _reads = "ece"


class MCE(BinaryCalibration):
    r"""Maximum calibration error: :math:`\max_r |\bar y_r - \bar p_r|`, in [0, 1]; nan if nothing was seen.

    One event in a row is enough to make it large. Parameters as in :class:`ECE`.

    >>> metric = MCE()
    >>> metric.update(True, 0.75)
    >>> metric
    MCE: 0.25
    """

    _reads = "mce"


class K1(BinaryCalibration):
    r"""Mean absolute calibration gap: :math:`\sum_r \frac{W_r}{W} |\bar y_r - \bar p_r|` in [0, 1]; nan if nothing was seen.

    Of the rows: the ECE, as long as the rows are not the distinct predicted values (``binning=Levels(...)``), for which it
    is defined. Parameters as in :class:`ECE`. Source: Roth, Uncertain.

    >>> metric = K1()
    >>> metric.update(True, 0.75)
    >>> metric
    K1: 0.25
    """

    _reads = "k1"


class K2(BinaryCalibration):
    r"""Mean squared calibration gap: :math:`\sum_r \frac{W_r}{W} (\bar y_r - \bar p_r)^2` in [0, 1]; nan if nothing was seen.

    Not rooted, too high by about B/(6n) for B rows; with ``debias`` without that bias, signed, and nan until a row holds two
    events. Other parameters as in :class:`ECE`. Source: Roth, Uncertain; Kumar, Liang, Ma 2019.

    >>> metric = K2()
    >>> metric.update(True, 0.75)
    >>> metric
    K2: 0.0625
    """

    _fmt = ",.8f"
    _plain: ClassVar[str] = "k2"

    def __init__(
        self,
        n_bins: int = 15,
        binning: str | Binning | None = None,
        window_size: int | None = None,
        half_life: float | None = None,
        pos_val: Any = True,
        debias: bool = False,
    ) -> None:
        super().__init__(n_bins, binning, window_size, half_life, pos_val)
        self.debias = debias
        self._reads = self._plain + "_debiased" * check_flag("debias", debias)


class L2CE(K2):
    """L2 calibration error, the root of :class:`K2` (0 where the debiased square is negative), in [0, 1]; nan likewise.

    Parameters as in :class:`K2`. Source: Kumar, Liang, Ma 2019.

    >>> metric = L2CE()
    >>> metric.update(True, 0.75)
    >>> metric
    L2CE: 0.25
    """

    _fmt = ",.6f"
    _plain = "l2_ce"


class Brier(BinaryCalibration):
    """Brier score, the mean of (p - y)^2 in [0, 1]; nan if nothing was seen. Exact whatever the rows.

    :class:`BrierCalibration` and :class:`BrierRefinement` over the same rows add up to it. Parameters as in :class:`ECE`.
    Source: Brier 1950.

    >>> metric = Brier()
    >>> metric.update(True, 0.5)
    >>> metric
    Brier: 0.25
    """

    _reads = "brier"


class BrierCalibration(BinaryCalibration):
    """The part of the Brier score that recalibrating the rows would take off it: K2 of the rows, in [0, 1].

    nan if nothing was seen. Too high by about B/(6n), like :class:`K2`. Parameters as in :class:`ECE`. Source: Murphy 1973.

    >>> metric = BrierCalibration()
    >>> metric.update(True, 0.5)
    >>> metric
    BrierCalibration: 0.25
    """

    _fmt = ",.8f"
    _reads = "reliability_term"


class BrierRefinement(BinaryCalibration):
    """The part of the Brier score that recalibrating the rows would leave; nan if nothing was seen.

    Brier score - :class:`BrierCalibration` = uncertainty - resolution + what varies within the rows: the mean variance of
    y - p within a row, in [0, 1]. Parameters as in :class:`ECE`. Source: Murphy 1973; Stephenson, Coelho, Jolliffe 2008.

    >>> metric = BrierRefinement()
    >>> for outcome in (True, True, True, False):
    ...     metric.update(outcome, 0.5)
    >>> metric
    BrierRefinement: 0.1875
    """

    def get(self) -> float:
        """The value now, nan if nothing was seen."""
        s = self._window.snapshot()
        return max(float(METRICS["brier"](s)) - float(METRICS["reliability_term"](s)), 0.0)  # not below by rounding


class PARatio(BinaryCalibration):
    """Predicted over actual, sum p / sum y: 1 right on average, above 1 claims too much; inf without a positive outcome.

    nan if nothing was seen, or all is 0. Better is nearer to 1, by the absolute logarithm: that is what ``is_better_than``
    and ``>`` compare; ``bigger_is_better`` has no answer for it and says False. Parameters as in :class:`ECE`.

    >>> metric = PARatio()
    >>> metric.update(True, 0.5)
    >>> metric
    PARatio: 0.5
    """

    _reads = "pa_ratio"

    def is_better_than(self, other: Any) -> bool:
        """Whether this ratio is nearer to 1; never if one of the two is undefined."""
        return _from_one(self.get()) < _from_one(other.get())


def _from_one(ratio: float) -> float:
    return abs(math.log(ratio)) if ratio > 0.0 else math.inf if ratio == 0.0 else math.nan


class NormalizedEntropy(BinaryCalibration):
    r"""Log loss over the entropy of the base rate: below 1 better than always saying the base rate.

    .. math:: \frac{-\frac1W \sum_i w_i \left[y_i \ln p_i + (1 - y_i) \ln(1 - p_i)\right]}
                   {-\bar y \ln \bar y - (1 - \bar y) \ln(1 - \bar y)}, \qquad \bar y = \frac1W \sum_i w_i y_i

    0 is perfect; inf if p = 0 met a positive or p = 1 a negative (no hidden epsilon, unlike River's LogLoss); nan if nothing
    was seen or all outcomes are equal. The base rate is that of the window. Parameters as in :class:`ECE`. Source: He et
    al. 2014.

    >>> metric = NormalizedEntropy()
    >>> metric.update(True, 0.5)
    >>> metric.update(False, 0.5)
    >>> metric
    NormalizedEntropy: 1.
    """

    _reads = "normalized_entropy"
    _loss = "log"
