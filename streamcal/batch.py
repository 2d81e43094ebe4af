"""Arrays in, numbers out: the batch functions. Thin: arrays -> events -> one Cumulative window -> metric.

Bad input raises ValueError naming the first bad index. Empty input gives nan. ``pos_label``: the outcome that is 1, where y
holds other labels than numbers in [0, 1]; true/false, t/f, yes/no and y/n are read without one (``reading/outcomes``).
"""

from __future__ import annotations

from threading import Thread
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from streamcal.arrays import Array, Ints, check_aligned, for_kernels, numbers
from streamcal.binning import Binning, Edges, EqualWidth, Levels, UniformMass, mass_edges
from streamcal.claims import Claim, Mean, Quantile, check_level, labelled
from streamcal.limits import SWAPPED, TOLERANCE, WORDS, first_refused, is_allowed, warn
from streamcal.reading.outcomes import outcome_numbers
from streamcal.snapshot import Snapshot
from streamcal.windows import Cumulative
from streamcal.windows.window import NONE

Bins: TypeAlias = Binning | None
Weights: TypeAlias = ArrayLike | None
Label: TypeAlias = (
    object  # of the outcome that is 1; None: outcomes are numbers in [0, 1], or read by the rule for words
)

THREADED = 2**22  # below, a second thread starts too late to help
FEW = 10  # events a level should hold on average before a gap per level says much


def _columns(name: str, p: Any, y: Any, sample_weight: Any, pos_label: object = None) -> tuple[Array, Array, Array]:
    """(predictions, outcomes, weights or none) as kernels read them, each of shape (n,).

    An (n, 2) array of predictions is a binary predict_proba, of which the positive column is meant.
    """
    check_aligned(**{name: p, "y": y, "sample_weight": sample_weight})
    scores = numbers(name, p, strict=True)
    if name == "p" and scores.ndim == 2 and scores.shape[1] == 2:
        scores = scores[:, 1]
    if scores.ndim != 1:
        raise ValueError(f"{name} must have shape (n,), or (n, 2) if p is a binary predict_proba, got {scores.shape}")
    outcomes = outcome_numbers(y, pos_label) if name == "p" else numbers("y", y, strict=True)
    weights = None if sample_weight is None else numbers("sample_weight", sample_weight, strict=True)
    for other, array in (("y", outcomes), ("sample_weight", weights)):
        if array is not None and array.shape != scores.shape:
            raise ValueError(f"{other} must hold one value per prediction, got shapes {array.shape} and {scores.shape}")
    return for_kernels(scores), for_kernels(outcomes), NONE if weights is None else for_kernels(weights)


def _learned_bins(p: Array, binning: UniformMass | None, w: Array, unit: bool, warns: bool) -> Binning:
    """Bins that depend on the predictions: their distinct values, or uniform mass."""
    finite = np.isfinite(p)  # a bad one is refused, and named, when it is added
    w = w[finite] if w.size else w
    p = np.clip(p[finite], 0.0, 1.0) if unit else p[finite]
    if binning is not None:
        ends = (0.0, 1.0) if unit else (-np.inf, np.inf)
        return Edges(mass_edges(p, binning.n_bins, w if w.size else None, ends))
    values = np.unique(p)
    if warns and 0 < p.size < FEW * values.size:
        warn(
            f"{values.size} distinct predicted values hold {p.size / values.size:.1f} events each on average: a gap per "
            "value is mostly noise. Pass binning=UniformMass(15) or EqualWidth(15) for a number per bin."
        )
    return Levels(values) if values.size else EqualWidth(1)


def tally(
    p: Any,
    y: Any,
    binning: Bins,
    sample_weight: Any = None,
    pos_label: object = None,
    claim: Claim | None = None,
    warns: bool = False,
) -> Snapshot:
    """All events in one snapshot. ``pos_label``: the outcome that is 1, where outcomes are no numbers in [0, 1]."""
    claim = Mean() if claim is None else claim
    scores, outcomes, weights = _columns("v" if isinstance(claim, Quantile) else "p", p, y, sample_weight, pos_label)
    if binning is None or isinstance(binning, UniformMass):
        binning = _learned_bins(scores, binning, weights, claim.domain == "unit", warns)
    s = _cumulated(Cumulative(binning, claim=claim), scores, outcomes, weights)
    if s.clipped[0]:
        warn(f"{s.clipped[0]:.0f} predictions within {TOLERANCE} outside [0, 1] were clipped")
    return s


def _cumulated(window: Cumulative, p: Array, y: Array, w: Array) -> Snapshot:
    """The window's snapshot with these events, or a ValueError that names the first bad one.

    From THREADED events on in two threads, one tally each: the kernels let go of the interpreter lock, and sums add up.
    """
    window._may_be_swapped = False  # half of the events may look so: it is asked of all, below
    if p.size < THREADED:
        window.add_columns(p, y, w)
        s = window.snapshot()
    else:
        other, half = Cumulative(window.binning, claim=window.claim, loss=window.loss), p.size // 2
        other._may_be_swapped = False
        thread = Thread(target=other.add_columns, args=(p[half:], y[half:], w[half:]))
        thread.start()
        window.add_columns(p[:half], y[:half], w[:half])
        thread.join()
        s = window.snapshot() + other.snapshot()
    if s.refused[0]:
        window.strict = True
        i = first_refused("y", y) if window.claim.domain == "unit" else -1
        if i >= 0 and is_allowed("p", p[i]):
            raise ValueError(
                f"y must be {WORDS['y']}, or say with pos_label= which value is 1, got {y[i]} at index {i}"
            )
        window.update_many(p, y, w if w.size else None)
    if s.is_swapped:
        warn(SWAPPED)
    return s


def _value(name: str, s: Snapshot) -> float:
    return float(s.values(name)[0])


def bin_index(conf: ArrayLike, n_bins: int) -> Ints:
    """Bin of each confidence in ``n_bins`` equal bins: bin m holds (m / n_bins, (m + 1) / n_bins], 0 belongs to bin 0.

    Shape of ``conf`` kept; ValueError names the first value outside [0, 1]. Exact at every edge.

    >>> bin_index([0.1, 0.6, 1.0, 0.0], 10).tolist()
    [0, 5, 9, 0]
    """
    scores = numbers("conf", conf, strict=True)
    bins = EqualWidth(n_bins).bins(scores)
    bad = np.flatnonzero(bins.reshape(-1) < 0)
    if bad.size:
        raise ValueError(f"conf must lie in [0, 1], got {scores.reshape(-1)[bad[0]]} at index {bad[0]}")
    return bins


def reliability(conf: ArrayLike, correct: ArrayLike, n_bins: int) -> tuple[Array, Array, Array]:
    """(count, accuracy, confidence) of ``n_bins`` equal bins: three arrays of length n_bins, zeros for empty bins.

    >>> count, accuracy, confidence = reliability([0.95, 0.90, 0.85, 0.60, 0.55, 0.30], [1, 0, 1, 1, 0, 0], 5)
    >>> count.tolist(), accuracy.round(4).tolist(), confidence.round(4).tolist()
    ([0, 1, 2, 0, 3], [0.0, 0.0, 0.5, 0.0, 0.6667], [0.0, 0.3, 0.575, 0.0, 0.9])
    """
    s = tally(conf, correct, EqualWidth(n_bins))
    return s.count[0].astype(np.int64), np.nan_to_num(s.mean_y[0]), np.nan_to_num(s.mean_p[0])


def ece(
    conf: ArrayLike, correct: ArrayLike, n_bins: int = 15, *, sample_weight: Weights = None, pos_label: Label = None
) -> float:
    r"""Expected calibration error in ``n_bins`` equal bins: in [0, 1], nan when empty.

    .. math:: \sum_m \frac{n_m}{n} | acc_m - conf_m |

    Biased upwards for small n: a perfect model shows .12 at n = 100 in 15 bins. See :func:`k2` with ``debias=True``.
    Source: Guo et al. 2017.

    >>> ece([0.95, 0.90, 0.85, 0.60, 0.55, 0.30], [1, 0, 1, 1, 0, 0], 5) == 0.19166666666666668  # 23 / 120
    True
    """
    return _value("ece", tally(conf, correct, EqualWidth(n_bins), sample_weight, pos_label))


def mce(
    p: ArrayLike, y: ArrayLike, *, binning: Bins = None, sample_weight: Weights = None, pos_label: Label = None
) -> float:
    """Largest absolute gap over distinct predicted values (or the bins of ``binning``): in [0, 1], nan when empty."""
    return _value("mce", tally(p, y, binning, sample_weight, pos_label, warns=True))


def k1(
    p: ArrayLike, y: ArrayLike, *, binning: Bins = None, sample_weight: Weights = None, pos_label: Label = None
) -> float:
    r"""Mean absolute gap :math:`\sum_v P(v)|v - E[y|v]|` over distinct predicted values (or the bins of ``binning``).

    In [0, 1], nan when empty. Source: Roth, Uncertain.

    >>> k1([0.3] * 10, [1] * 4 + [0] * 6).__round__(12)
    0.1
    """
    return _value("k1", tally(p, y, binning, sample_weight, pos_label, warns=True))


def k2(
    p: ArrayLike,
    y: ArrayLike,
    *,
    binning: Bins = None,
    sample_weight: Weights = None,
    pos_label: Label = None,
    debias: bool = False,
) -> float:
    r"""Mean squared gap :math:`\sum_v P(v)(v - E[y|v])^2` over distinct predicted values (or the bins of ``binning``).

    Not rooted. In [0, 1], nan when empty; with ``debias`` without its sampling bias and then signed, nan when no bin
    holds two events. Source: Roth, Uncertain; Kumar, Liang, Ma 2019.
    """
    return _value("k2_debiased" if debias else "k2", tally(p, y, binning, sample_weight, pos_label, warns=True))


def kinf(
    p: ArrayLike, y: ArrayLike, *, binning: Bins = None, sample_weight: Weights = None, pos_label: Label = None
) -> float:
    """Largest gap weighted by its share, over distinct predicted values (or the bins of ``binning``): in [0, 1]."""
    return _value("kinf", tally(p, y, binning, sample_weight, pos_label, warns=True))


def l2_ce(
    p: ArrayLike,
    y: ArrayLike,
    *,
    binning: Bins = None,
    sample_weight: Weights = None,
    pos_label: Label = None,
    debias: bool = False,
) -> float:
    """L2 calibration error, the root of :func:`k2` (debiased: 0 where that is negative). Source: Kumar, Liang, Ma 2019."""
    return _value("l2_ce_debiased" if debias else "l2_ce", tally(p, y, binning, sample_weight, pos_label, warns=True))


def brier(
    p: ArrayLike, y: ArrayLike, *, binning: Bins = None, sample_weight: Weights = None, pos_label: Label = None
) -> float:
    """Brier score, the mean of (p - y)^2: in [0, 1], nan when empty. The same whatever the binning. Source: Brier 1950.

    >>> brier([0.5], [0])
    0.25
    """
    return _value("brier", tally(p, y, binning or EqualWidth(1), sample_weight, pos_label))


class Murphy(NamedTuple):
    """Murphy's terms: ``brier = reliability - resolution + uncertainty + within_variance - within_covariance``, exactly."""

    reliability: float
    resolution: float
    uncertainty: float
    within_variance: float
    within_covariance: float

    @property
    def brier(self) -> float:
        """The Brier score that the terms add up to."""
        between = self.reliability - self.resolution + self.uncertainty
        return between + self.within_variance - self.within_covariance


def murphy(
    p: ArrayLike, y: ArrayLike, *, binning: Bins = None, sample_weight: Weights = None, pos_label: Label = None
) -> Murphy:
    """Decomposition of the Brier score over distinct predicted values, where the within terms are 0, or over bins.

    For outcomes in [0, 1] and any weights; all nan when empty. Source: Murphy 1973; Stephenson et al. 2008.

    >>> terms = murphy([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 0])
    >>> abs(terms.brier - brier([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 0])) < 1e-12
    True
    """
    s = tally(p, y, binning, sample_weight, pos_label, warns=True)
    names = ("reliability_term", "resolution", "uncertainty", "within_variance", "within_covariance")
    return Murphy(*(_value(name, s) for name in names))


def pa_ratio(
    p: ArrayLike, y: ArrayLike, *, binning: Bins = None, sample_weight: Weights = None, pos_label: Label = None
) -> float:
    """Predicted over actual, sum p / sum y: above 1 predicted too high; inf when no outcome is positive, nan when empty."""
    return _value("pa_ratio", tally(p, y, binning or EqualWidth(1), sample_weight, pos_label))


def oe_ratio(
    p: ArrayLike, y: ArrayLike, *, binning: Bins = None, sample_weight: Weights = None, pos_label: Label = None
) -> float:
    """Observed over expected, sum y / sum p, the inverse of :func:`pa_ratio`."""
    return _value("oe_ratio", tally(p, y, binning or EqualWidth(1), sample_weight, pos_label))


def calibration_slope(
    p: ArrayLike, y: ArrayLike, *, binning: Bins = None, sample_weight: Weights = None, pos_label: Label = None
) -> float:
    """Slope a of y ~ sigmoid(a logit p + b): below 1 too extreme. See the metric of that name; exact by default."""
    return _value("calibration_slope", tally(p, y, binning, sample_weight, pos_label))


def calibration_intercept(
    p: ArrayLike, y: ArrayLike, *, binning: Bins = None, sample_weight: Weights = None, pos_label: Label = None
) -> float:
    """b of y ~ sigmoid(logit p + b): below 0 predicted too high. See the metric of that name; exact by default."""
    return _value("calibration_intercept", tally(p, y, binning, sample_weight, pos_label))


def spiegelhalter_z(
    p: ArrayLike, y: ArrayLike, *, binning: Bins = None, sample_weight: Weights = None, pos_label: Label = None
) -> float:
    """Spiegelhalter's z, standard normal for a calibrated model. See the metric of that name; exact by default."""
    return _value("spiegelhalter_z", tally(p, y, binning, sample_weight, pos_label))


def q1(v: ArrayLike, y: ArrayLike, level: float, *, binning: Bins = None) -> float:
    r"""Mean quantile gap :math:`\sum_v P(v) |q - P(y \le v | v)|` of forecasts v of the ``level`` quantile, by distinct value.

    Forecasts first, then outcomes: swapped they cannot be told from others. In [0, 1], nan when empty. It is :func:`k1` of the
    events (claim q, outcome 1[y <= v]). Source: Roth, Uncertain.

    >>> round(q1([10.0] * 10, list(range(6, 16)), 0.9), 12)
    0.4
    """
    return _value("q1", tally(v, y, binning, claim=Quantile(check_level(level)), warns=True))


def q2(v: ArrayLike, y: ArrayLike, level: float, *, binning: Bins = None) -> float:
    """Mean squared quantile gap of forecasts v, then outcomes y, not rooted. See :func:`q1`."""
    return _value("q2", tally(v, y, binning, claim=Quantile(check_level(level)), warns=True))


def qinf(v: ArrayLike, y: ArrayLike, level: float, *, binning: Bins = None) -> float:
    """Largest quantile gap of forecasts v, then outcomes y, weighted by its share. See :func:`q1`."""
    return _value("qinf", tally(v, y, binning, claim=Quantile(check_level(level)), warns=True))


def marginal_ce(
    probs: ArrayLike, labels: ArrayLike, *, norm: float = 2, debias: bool = False, binning: Bins = None
) -> float:
    r"""Marginal calibration error of class probabilities (n, K): :math:`(\frac1K \sum_k CE_k^{norm})^{1/norm}`.

    CE_k is the L1 error of class k for ``norm=1`` and the L2 error for ``norm=2``; with ``debias`` (norm 2 only) the
    signed debiased squares are averaged and the mean clipped at 0 once. ``binning`` applies per class; default the
    distinct values. nan when empty. The classes are the columns: a class absent from the labels counts like any other.
    Source: Kumar, Liang, Ma 2019.
    """
    if norm not in (1, 2) or (debias and norm != 2):
        raise ValueError(f"norm must be 1 or 2, and 2 with debias, got {norm!r}")
    given, known = labelled(probs, labels, 2)
    hit = (known[:, None] == np.arange(given.shape[1])).astype(np.float64)
    name = "k1" if norm == 1 else "k2_debiased" if debias else "k2"
    powers = [_value(name, tally(given[:, k], hit[:, k], binning, warns=k == 0)) for k in range(given.shape[1])]
    mean = float(np.mean(powers))
    return mean if norm == 1 else float(np.sqrt(max(mean, 0.0))) if mean == mean else mean


def pinball_loss(v: ArrayLike, y: ArrayLike, level: float) -> float:
    r"""Mean pinball loss of forecasts v of the ``level`` quantile, then outcomes y, in their units; never negative, nan if empty.

    .. math:: (y - v)\,(q - 1[y < v])

    Averaged over events. Source: Koenker & Bassett 1978.

    >>> pinball_loss([0.0], [-1.0], 0.5)
    0.5
    """
    return _loss("v", v, y, Quantile(check_level(level)), "pinball", None)


def log_loss(p: ArrayLike, y: ArrayLike, *, sample_weight: Weights = None, pos_label: Label = None) -> float:
    """Mean log loss in nats: inf if p = 0 met a positive or p = 1 a negative, no hidden epsilon; nan when empty.

    >>> round(log_loss([0.5, 0.5], [0, 1]), 6)
    0.693147
    """
    return _loss("p", p, y, Mean(), "log", sample_weight, pos_label)


def _loss(name: str, p: Any, y: Any, claim: Claim, loss: str, sample_weight: Any, pos_label: Label = None) -> float:
    one_bin = EqualWidth(1) if claim.domain == "unit" else Edges([-np.inf, np.inf])
    window = Cumulative(one_bin, claim=claim, loss=loss)
    return float(_cumulated(window, *_columns(name, p, y, sample_weight, pos_label)).mean_loss[0])
