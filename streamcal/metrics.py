"""Snapshot -> number. Each metric is one function; the registry gives it to windows, the command, rules and exporters.

Every metric reads (keys, bins) sums and gives one number per key; nan where nothing was seen. Bins are those of the
window's binning, so K1, K2 and Kinf are about its bins; with :class:`~streamcal.Levels` or in the batch functions they
are about the distinct predicted values, which is their definition. Of a quantile window they are Q1, Q2 and Qinf.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import overload

import numpy as np

from streamcal.arrays import Array
from streamcal.snapshot import METRICS, UNDEFINED, Number, Reason, Snapshot
from streamcal.tally import INFINITE, MEAN, QUANTILE, WP, WPP, WPY, WW, WY, WYY, W

PER_KEY = Callable[[Snapshot], Array]
Measure = Callable[[Snapshot], Number]
NEEDS_QUANTILES = "the window was not built with claim=Quantile(...)"
NEEDS_LOG_LOSS = "the window was built without loss='log'"


def _one_kind(s: Snapshot) -> str:
    """Which of the two outcomes is missing."""
    return f"outcome {int(s.total[0, WY] <= 0.0)} is missing"


def _nothing_left(s: Snapshot) -> str:
    """Why there is nothing to fit, as one condition; empty if there is something."""
    if s.impossible[0]:
        return f"{s.impossible[0]:,.0f} predictions of 0 or 1 came out otherwise"
    total = s.uncertain.total[0]
    if not total[W] > 0.0:
        return "every prediction is 0 or 1"
    return "" if 0.0 < total[WY] < total[W] else _one_kind(s.uncertain)


def _no_slope(s: Snapshot) -> str:
    seen = s.uncertain.mean_p[0][s.uncertain.weight[0] > 0]
    alone = seen.size and seen.min() == seen.max()
    return _nothing_left(s) or ("all predictions are equal" if alone else "a threshold parts the outcomes")


@overload
def metric(function: PER_KEY, /) -> Measure:
    """``@metric``"""


@overload
def metric(*, undefined: Reason = "", fine: bool = False) -> Callable[[PER_KEY], Measure]:
    """``@metric(fine=True)``"""


def metric(
    function: PER_KEY | None = None, /, *, undefined: Reason = "", fine: bool = False
) -> Measure | Callable[[PER_KEY], Measure]:
    """Register a function (Snapshot -> one number per key) under its name.

    It sees the bins as they are read (a fine grid already merged), or with ``fine`` the bins as they are kept.
    ``undefined`` says in a report why the value is nan although something was seen, in one condition: a text, or a function that
    makes it from the snapshot of one key. A name that is taken is replaced.

    >>> from streamcal import EqualWidth, Cumulative
    >>> @metric
    ... def mean_gap(s):
    ...     return (s.share * s.gap).sum(-1)
    >>> window = Cumulative(EqualWidth(4))
    >>> window.update(0.75, 1)
    >>> window.get("mean_gap"), METRICS.pop("mean_gap") is mean_gap
    (0.25, True)
    """

    def register(function: PER_KEY) -> Measure:
        @wraps(function)
        def measure(s: Snapshot) -> Number:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                value = np.asarray(function(s if fine else s.read), dtype=np.float64)
            if value.shape != (s.keys,):
                got = f"shape {value.shape}"
                raise ValueError(
                    f"metric {function.__name__} must give one number per key, shape ({s.keys},), got {got}"
                )
            return float(value[0]) if s.keys == 1 else value

        METRICS[function.__name__] = measure
        UNDEFINED[function.__name__] = undefined or "undefined here"
        return measure

    return register if function is None else register(function)


def over_bins(values: Array) -> Array:
    """Sum over the bins of each key."""
    return np.asarray(values.sum(-1))


def _over(s: Snapshot, *columns: int) -> list[Array]:
    """Columns summed over bins and divided by the weight of the key; nan where nothing was seen."""
    total = s.total
    weight = np.where(total[:, W] > 0, total[:, W], np.nan)
    return [total[:, c] / weight for c in columns]


@metric()
def ece(s: Snapshot) -> Array:
    r"""Expected calibration error, in probability units: 0 calibrated, 1 worst, nan when empty.

    .. math:: \sum_r \frac{W_r}{W} \left| \bar y_r - \bar p_r \right|

    Biased upwards in small windows: a perfect model shows .12 at 100 events in 15 bins, .038 at 1,000. Source:
    Naeini, Cooper, Hauskrecht 2015; Guo et al. 2017.
    """
    return over_bins(s.share * np.abs(s.gap))


@metric()
def mce(s: Snapshot) -> Array:
    r"""Maximum calibration error :math:`\max_r |\bar y_r - \bar p_r|` over occupied bins, whatever their weight: in [0, 1],
    nan when empty. One event in a bin is enough to make it large. Source: Naeini, Cooper, Hauskrecht 2015.
    """
    return np.where(s.weight.sum(-1) > 0, np.abs(s.gap).max(-1), np.nan)


@metric()
def k1(s: Snapshot) -> Array:
    r"""Mean absolute calibration gap, in probability units: 0 calibrated, 1 worst, nan when empty.

    .. math:: K_1 = \sum_r \frac{W_r}{W} \left| \bar y_r - \bar p_r \right|

    The same sum as the ECE; the name says that bins are meant to be predicted values. Source: Roth, Uncertain.
    """
    return over_bins(s.share * np.abs(s.gap))


@metric()
def k2(s: Snapshot) -> Array:
    r"""Mean squared calibration gap, not rooted: in [0, 1], nan when empty.

    .. math:: K_2 = \sum_r \frac{W_r}{W} (\bar y_r - \bar p_r)^2

    Plug-in: too high by about B/(6n) for B bins. K2 <= K1 <= sqrt(K2) <= MCE. Source: Roth, Uncertain.
    """
    return over_bins(s.share * s.gap**2)


@metric()
def kinf(s: Snapshot) -> Array:
    r"""Largest calibration gap weighted by its bin's share: :math:`K_\infty = \max_r \frac{W_r}{W} |\bar y_r - \bar p_r|`,
    in [0, 1], nan when empty. Unweighted it is the MCE. Source: Roth, Uncertain.
    """
    return np.asarray((s.share * np.abs(s.gap)).max(-1))


@metric()
def l2_ce(s: Snapshot) -> Array:
    """L2 calibration error, the root of K2, in probability units; nan when empty. Source: Kumar, Liang, Ma 2019."""
    return np.sqrt(over_bins(s.share * s.gap**2))


def _of_quantiles(s: Snapshot, value: Array) -> Array:
    return value if s.claim.kind == QUANTILE else np.full(s.keys, np.nan)


@metric(undefined=NEEDS_QUANTILES)
def q1(s: Snapshot) -> Array:
    r"""K1 of quantile claims: :math:`\sum_v P(v) |q - P(y \le v \mid v)|`, nan for other claims. Source: Roth, Uncertain."""
    return _of_quantiles(s, over_bins(s.share * np.abs(s.gap)))


@metric(undefined=NEEDS_QUANTILES)
def q2(s: Snapshot) -> Array:
    """K2 of quantile claims, not rooted; nan for other claims. Source: Roth, Uncertain."""
    return _of_quantiles(s, over_bins(s.share * s.gap**2))


@metric(undefined=NEEDS_QUANTILES)
def qinf(s: Snapshot) -> Array:
    """Kinf of quantile claims; nan for other claims. Source: Roth, Uncertain."""
    return _of_quantiles(s, (s.share * np.abs(s.gap)).max(-1))


@metric(undefined="no bin has an effective sample size of two")
def k2_debiased(s: Snapshot) -> Array:
    r"""K2 without its sampling bias, signed: near 0, also below it, for a calibrated model; nan when no bin holds two events.

    .. math:: \sum_r \frac{W_r}{W} \left[ (\bar y_r - \bar p_r)^2 - \frac{\overline{y^2}_r - \bar y_r^2}{n_r - 1} \right]

    with n the effective sample size W^2/WW. Bins with n < 2 add nothing but keep their weight. Exactly unbiased where all
    claims of a bin are equal. Source: Kumar, Liang, Ma 2019.
    """
    n = s.effective
    enough = n >= 2.0 - 1e-9
    term = s.gap**2 - s.outcome_variance / np.where(enough, n - 1.0, 1.0)
    value = (s.share * np.where(enough, term, 0.0)).sum(-1)
    return np.where(enough.any(-1), value, np.nan)


@metric(undefined="no bin has an effective sample size of two")
def l2_ce_debiased(s: Snapshot) -> Array:
    """Root of the debiased K2, 0 where that is negative, in probability units. Source: Kumar, Liang, Ma 2019."""
    return np.sqrt(np.maximum(s.values("k2_debiased"), 0.0))


@metric(fine=True)
def brier(s: Snapshot) -> Array:
    r"""Brier score, the mean of :math:`(p - y)^2`: in [0, 1], lower is better, nan when empty. Exact whatever the bins.
    Source: Brier 1950.
    """
    pp, py, yy = _over(s, WPP, WPY, WYY)
    return pp - 2.0 * py + yy


@metric()
def reliability_term(s: Snapshot) -> Array:
    r"""Murphy's reliability term (K2 of these bins): what recalibrating the bins would take off the Brier score.

    brier = reliability_term - resolution + uncertainty + within_variance - within_covariance, exactly, for outcomes in [0, 1]
    and any weights. nan when empty. Source: Murphy 1973; Stephenson, Coelho, Jolliffe 2008.
    """
    return over_bins(s.share * s.gap**2)


@metric()
def resolution(s: Snapshot) -> Array:
    r"""Murphy's resolution :math:`\sum_r \frac{W_r}{W} (\bar y_r - \bar y)^2`: higher is better, nan when empty."""
    (mean,) = _over(s, WY)
    return over_bins(s.share * np.where(s.weight > 0, s.mean_y - mean[:, None], 0.0) ** 2)


@metric(fine=True)
def uncertainty(s: Snapshot) -> Array:
    """Murphy's uncertainty, the variance of the outcome: y(1 - y) of the base rate if binary; nan when empty."""
    mean, yy = _over(s, WY, WYY)
    return yy - mean**2


@metric()
def within_variance(s: Snapshot) -> Array:
    """Mean variance of the claims within a bin: 0 when bins are predicted values; nan when empty."""
    return over_bins(s.share * np.maximum(s.spread(WPP, s.mean_p, s.mean_p), 0.0))


@metric()
def within_covariance(s: Snapshot) -> Array:
    """Twice the mean covariance of claim and outcome within a bin: 0 when bins are predicted values; nan when empty."""
    return over_bins(2.0 * s.share * s.spread(WPY, s.mean_p, s.mean_y))


@metric(undefined="no positive outcome and no positive claim", fine=True)
def pa_ratio(s: Snapshot) -> Array:
    """Predicted over actual, sum p / sum y: 1 right on average, above 1 predicted too high; inf when no outcome is positive."""
    return s.total[:, WP] / s.total[:, WY]


@metric(undefined="no positive outcome and no positive claim", fine=True)
def oe_ratio(s: Snapshot) -> Array:
    """Observed over expected, sum y / sum p, the inverse of pa_ratio; inf when every claim is 0."""
    return s.total[:, WY] / s.total[:, WP]


@metric(fine=True)
def sharpness(s: Snapshot) -> Array:
    """Variance of the claims: 0 when all are equal, at most 1/4; nan when empty. Says nothing about being right."""
    mean, pp = _over(s, WP, WPP)
    return np.maximum(pp - mean**2, 0.0)


@metric(fine=True)
def coverage(s: Snapshot) -> Array:
    """Mean outcome, in [0, 1]: of a quantile or interval window the empirical coverage, else the base rate; nan when empty."""
    return _over(s, WY)[0]


@metric(undefined="the window was built for forecasts that are no probabilities", fine=True)
def impossible(s: Snapshot) -> Array:
    """Share of the weight of events of infinite log loss, in [0, 1]: 0 was predicted for what came, or 1 for what did not.

    One of them makes the log loss infinite, and leaves a logistic fit without an optimum. nan for claims that are no
    probabilities, or when empty. A report has their number as ``events``.
    """
    weight = np.where(s.total[:, W] > 0, s.total[:, W], np.nan)
    share = np.where(s.impossible > 0, s.ledger[:, INFINITE], 0.0) / weight
    return share if s.claim.kind == MEAN else np.full(s.keys, np.nan)


@metric(undefined=NEEDS_LOG_LOSS, fine=True)
def log_loss(s: Snapshot) -> Array:
    """Mean log loss in nats; inf if p = 0 met a positive or p = 1 a negative; nan without ``loss="log"`` or when empty."""
    return s.mean_loss if s.loss == "log" else np.full(s.keys, np.nan)


@metric(undefined=lambda s: _one_kind(s) if s.loss == "log" else NEEDS_LOG_LOSS, fine=True)
def normalized_entropy(s: Snapshot) -> Array:
    """Log loss over the entropy of the base rate: below 1 better than always saying the base rate. Source: He et al. 2014."""
    (mean,) = _over(s, WY)
    entropy = -(mean * np.log(mean) + (1.0 - mean) * np.log1p(-mean))
    loss = s.mean_loss if s.loss == "log" else np.full(s.keys, np.nan)
    return loss / np.where(entropy > 0, entropy, np.nan)


@metric(undefined="the window was built without loss='pinball'", fine=True)
def pinball_loss(s: Snapshot) -> Array:
    """Mean pinball loss of quantile forecasts, in units of y; nan without ``loss="pinball"`` or when empty."""
    return s.mean_loss if s.loss == "pinball" else np.full(s.keys, np.nan)


@metric(
    undefined=lambda s: _nothing_left(s) if s.uncertain.total[0, W] <= 0.0 else "every prediction is 1/2", fine=True
)
def spiegelhalter_z(s: Snapshot) -> Array:
    r"""Spiegelhalter's z, standard normal for a calibrated model (for 0/1 outcomes); nan when empty or without spread, inf
    where 0 or 1 was predicted and came out otherwise: what is impossible has no variance. Those that came true add nothing.

    .. math:: z = \frac{\sum (y - p)(1 - 2p)}{\sqrt{\sum (1 - 2p)^2 p (1 - p)}}

    The numerator is exact. The denominator needs fourth powers of p, taken from each bin's mean and variance (second
    order), exact where bins are predicted values. Weights enter it by WW / W. Source: Spiegelhalter 1986.
    """
    impossible, s = s.impossible > 0, s.uncertain
    p, y, pp, py = (s.cells[:, :-1, c] for c in (WP, WY, WPP, WPY))
    top = (y - p - 2.0 * py + 2.0 * pp).sum(-1)
    m = np.where(s.weight > 0, s.mean_p, 0.5)
    u, slope = m * (1.0 - m), 1.0 - 2.0 * m
    curve = -2.0 * (1.0 - 8.0 * u) - 8.0 * slope**2
    each = np.maximum(slope**2 * u + curve / 2.0 * s.spread(WPP, s.mean_p, s.mean_p), 0.0)
    bottom = (s.cells[:, :-1, WW] * each).sum(-1)
    return np.where(impossible, np.inf, top / np.sqrt(np.where(bottom > 0, bottom, np.nan)))


@metric(undefined=_nothing_left, fine=True)
def calibration_intercept(s: Snapshot) -> Array:
    """Calibration in the large on the logit scale: b of y ~ sigmoid(logit p + b). 0 right, below 0 predicted too high.

    Fitted by maximum likelihood on the bins' mean claims: exact where bins are predicted values, else as fine as the
    bins. Predictions of exactly 0 or 1 are left out where they came true: any b fits them. nan where one came out otherwise,
    which no b fits, when empty, or when all outcomes are equal. Source: Cox 1958; Van Calster et al. 2016.
    """
    return s.logistic[:, 0]


@metric(undefined=_no_slope, fine=True)
def calibration_slope(s: Snapshot) -> Array:
    """Slope a of y ~ sigmoid(a logit p + b): 1 right, below 1 too extreme, above 1 not extreme enough.

    Fitted by maximum likelihood on the bins' mean claims: exact where bins are predicted values, else as fine as the
    bins. Where nearly all claims share one bin it is mostly noise: read its interval in a report, and take LogOdds bins
    for rare events. Predictions of 0 and 1 as in :func:`calibration_intercept`; nan also when separable, or all claims are
    equal. Source: Cox 1958; Van Calster et al. 2016.
    """
    return s.logistic[:, 1]
