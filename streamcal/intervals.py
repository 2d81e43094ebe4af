"""Sampling error of the numbers: what a perfect model would show, and how far a value can be trusted.

All of it is for a fixed window read once: looking at a moving window again and again gives no guarantee over time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from streamcal.arrays import Array
from streamcal.claims import check_level
from streamcal.logistic import MEAN_CLIP, logit
from streamcal.snapshot import Snapshot
from streamcal.tally import QUANTILE, WP, WPP, WW, WY, WYY, W

DRAWS = 1000  # the ends of a 95 % band are then known to about a tenth of its width
FEWEST, LIMIT, AT_ONCE = 200, 20_000_000, 2_000_000  # with very many bins fewer draws, and few at once
TESTS = ("k2", "mean", "spread")
Statistic: TypeAlias = Callable[[Array], Array]
Bounds: TypeAlias = tuple[Array, Array]
SPREAD = 1.65  # the most that |x| - sqrt(4/pi) exp(-x^2/2) varies, for a normal x of variance 1 about any mean
FEWEST_EVENTS = 10.0  # below, a normal approximation says nothing
TINY = 1e-300  # so that nothing is divided by 0
DUST = 1e-12  # rounding in a sum of gaps
# the plug-in values of bins with these shares whose gaps have these sizes, (draws, bins) -> (draws,)
NULL_VALUES: dict[str, Callable[[Array, Array], Array]] = {
    "ece": lambda share, size: np.asarray((share * size).sum(-1)),
    "k1": lambda share, size: np.asarray((share * size).sum(-1)),
    "k2": lambda share, size: np.asarray((share * size**2).sum(-1)),
    "l2_ce": lambda share, size: np.sqrt((share * size**2).sum(-1)),
    "kinf": lambda share, size: np.asarray((share * size).max(-1)),
    "mce": lambda share, size: np.asarray(size.max(-1)),
}


def _deviations(level: float) -> float:
    """How many standard deviations to either side of a normal mean hold ``level`` of it."""
    return NormalDist().inv_cdf(0.5 + check_level(level) / 2.0)


def wilson(mean: Array, n: Array, level: float = 0.95) -> tuple[Array, Array]:
    r"""Wilson's interval of a share ``mean`` seen in ``n`` (effective) events; nan where n is 0.

    .. math:: \frac{\bar y + z^2/2n \pm z \sqrt{\bar y (1 - \bar y)/n + z^2/4n^2}}{1 + z^2/n}

    Shapes of ``mean`` and ``n`` broadcast. Exact coverage is not guaranteed; it is near ``level`` for any n, also near
    0 and 1. Source: Wilson 1927.

    >>> low, high = wilson(np.array([0.5]), np.array([10.0]))
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (0.2366, 0.7634)
    """
    z = _deviations(level)
    with np.errstate(divide="ignore", invalid="ignore"):
        half = z * np.sqrt(mean * (1.0 - mean) / n + z * z / (4.0 * n * n))
        centre, scale = mean + z * z / (2.0 * n), 1.0 + z * z / n
        return np.clip((centre - half) / scale, 0.0, 1.0), np.clip((centre + half) / scale, 0.0, 1.0)


def k2_interval(s: Snapshot, level: float = 0.95) -> tuple[Array, Array]:
    r"""Interval of the debiased K2, signed: debiased K2 plus or minus z standard errors. Two arrays of shape (keys,).

    .. math:: se^2 = \sum_r (W_r/W)^2 \left[ \frac{2 v_r^2}{n_r (n_r - 1)}
              + 4 \max(g_r^2 - v_r/n_r, 0) \frac{v_r}{n_r} \right]

    with v the sample variance of outcome - claim in a bin, g its mean, n the effective sample size. nan where no bin
    holds two events. Normal approximation: measured coverage of 90 % intervals is .98, .96, .90 at a true error of
    0, .03, .095 (n = 1000, 15 bins). For one look at a fixed window.
    """
    s = s.read
    z = _deviations(level)
    n, gap = s.effective, s.gap
    enough = n >= 2.0 - 1e-9
    safe = np.where(enough, n, 2.0)
    v = np.where(enough, s.residual_variance, 0.0)
    excess = np.maximum(gap**2 - v / safe, 0.0)
    variance = np.where(enough, 2.0 * v**2 / (safe * (safe - 1.0)) + 4.0 * excess * v / safe, 0.0)
    se = np.sqrt((s.share**2 * variance).sum(-1))
    centre = s.values("k2_debiased")
    return centre - z * se, centre + z * se


def k1_interval(s: Snapshot, level: float = 0.95) -> Bounds:
    r"""Interval of the true K1 of the events that came, in [0, 1]: of gaps of the bins that are those of their chances, at the
    bins' shares as they are. Two arrays of shape (keys,).

    With a share :math:`a_r`, the gap g of n (effective) events in a bin, :math:`se_r = \sqrt{v_r / n_r}`, z of ``level`` and z'
    of half the doubt:

    .. math:: K_1 \ge \sum_r a_r \left( |g_r| - se_r \sqrt{4/\pi} \, (1 + \tfrac{1}{2 n_r}) \, e^{-g_r^2 / 2 se_r^2} \right)
              - z \sqrt{V \sum_r a_r^2 se_r^2}, \qquad
              K_1 \ge \Big| \sum_r a_r g_r \Big| - z' \sqrt{\sum_r a_r^2 se_r^2}

    .. math:: K_1 \le \hat K_1 + z \sqrt{\sum_r a_r^2 se_r^2 + z^2 / 4 n^2} + z^2 / 2 n

    the larger of the two lower ends. Why they hold: noise makes the size of a gap larger by its mean excess b, at most
    :math:`\sqrt{2/\pi} \, se` and nearly 0 where the true gap is large, and the term that is taken off has a mean of at least b
    for every true gap (its normal mean is :math:`\sqrt{2/\pi} \, se \, e^{-d^2/4}` at d standard errors, and b is at most that
    with :math:`e^{-d^2/2}`); V = 1.65 is the most that the variance of the difference can be, of one of a gap. Noise never makes
    K1 smaller on average, so the upper end needs no such term; Wilson's correction is for outcomes of which none have come
    (its n smaller, down to half, where weights are unequal: their sums are more skew).

    v is the sample variance of outcome - claim, or that which the claims say, the mean of p(1 - p), if that is larger (times the
    share of it that outcomes between 0 and 1 have): bins with one event or outcomes of one kind do not look sure. nan where a
    key has fewer than 10 (effective) events. For one look at a fixed window, and bins that do not know the outcomes. Weights that
    know them (a stream without most of its negatives) make it too wide. Coverage, simulated: at least ``level``.

    >>> from streamcal import Cumulative, EqualWidth
    >>> window = Cumulative(EqualWidth(10))
    >>> window.update_many([0.3, 0.6] * 500, [0, 1, 1, 1] * 250)
    >>> low, high = k1_interval(window.snapshot())
    >>> round(window.get("k1"), 3), round(float(low[0]), 3), round(float(high[0]), 3)
    (0.3, 0.265, 0.333)
    """
    s, doubt = s.read, 1.0 - check_level(level)
    z, half = (NormalDist().inv_cdf(1.0 - doubt / k) for k in (2.0, 4.0))
    n, square = s.effective, _gap_variance(s)
    share, size = np.where(n > 0, s.share, 0.0), np.abs(s.gap)
    excess = math.sqrt(4.0 / math.pi) * np.sqrt(square) * np.exp(-(size**2) / (2.0 * np.maximum(square, TINY)))
    variance = (share**2 * square).sum(-1)
    by_bin = (share * (size - excess * (1.0 + 0.5 / np.maximum(n, 1.0)))).sum(-1) - z * np.sqrt(SPREAD * variance)
    whole = np.abs((share * s.gap).sum(-1)) - half * np.sqrt(variance)
    seen = _effective(s)
    few = np.maximum(seen, 1.0) / (2.0 - seen / np.maximum(s.count.sum(-1), seen + TINY))
    high = (share * size).sum(-1) + z * np.sqrt(variance + (z / (2.0 * few)) ** 2) + z * z / (2.0 * few)
    enough = seen >= FEWEST_EVENTS - 1e-9
    low = np.maximum(by_bin, whole)
    return np.where(enough, np.clip(low, 0.0, 1.0), np.nan), np.where(enough, np.clip(high, 0.0, 1.0), np.nan)


def _gap_variance(s: Snapshot) -> Array:
    """Squared standard error of the gap of each bin, 0 in empty ones: see :func:`k1_interval`."""
    n, columns = s.effective, s.columns
    weight = np.where(s.weight > 0, s.weight, 1.0)
    claimed = np.maximum(columns[WP] - columns[WPP], 0.0) / weight
    spread, most = (n * s.outcome_variance).sum(-1), (n * np.where(n > 0, s.mean_y * (1.0 - s.mean_y), 0.0)).sum(-1)
    part = np.minimum((spread + 0.25) / (np.maximum(most, 0.0) + 0.25), 1.0)  # 1 if all outcomes are 0 or 1
    return np.where(n > 0, np.maximum(s.residual_variance, part[:, None] * claimed) / np.where(n > 0, n, 1.0), 0.0)


def _effective(s: Snapshot) -> Array:
    """Effective sample size of each key."""
    weight, squares = s.weight.sum(-1), s.columns[WW].sum(-1)
    return np.where(squares > 0, weight**2 / np.where(squares > 0, squares, 1.0), 0.0)


def null_check(
    s: Snapshot, level: float = 0.95, seed: int = 0, draws: int = DRAWS
) -> tuple[dict[str, Array], list[tuple[str, ...]]]:
    """What a perfect model would show, and for each key the tests that tell it from one, all at once at 1 - ``level``.

    First the central ``level`` bands of the plug-in values, arrays of shape (keys, 2) by name. Consistency resampling: in each
    bin the outcomes are drawn as Binomial(n, mean claim), n the (rounded) effective sample size; ``draws`` draws, reproducible
    by ``seed``. Outcomes between 0 and 1 vary less than that: then the band is too wide. nan where nothing was seen.

    Then the names of the tests: three statistics are held against the same resampled outcomes (Bonferroni), "k2" (any bin is
    off), "mean" (the mean gap: too high or too low) and "spread" (gaps that rise or fall with the logit of the claim:
    too extreme or not extreme enough). Right for any number of events, since nothing is approximated but the claims within a
    bin by their mean. Source: Bröcker & Smith 2007.
    """
    s, tail = s.read, (1.0 - check_level(level)) / 2.0
    rng = np.random.default_rng(seed)
    bands = {name: np.full((s.keys, 2), np.nan) for name in NULL_VALUES}
    found: list[tuple[str, ...]] = [()] * s.keys
    for key in np.flatnonzero(s.weight.sum(-1) > 0).tolist():
        used = s.weight[key] > 0
        n = np.clip(np.rint(s.effective[key, used]), 1.0, 2.0**62)
        claim, share = np.clip(s.mean_p[key, used], 0.0, 1.0), s.share[key, used]
        statistics = _statistics(share, claim)
        drawn = _drawn(rng, n, claim, min(draws, max(FEWEST, LIMIT // n.size)), statistics)
        for name in NULL_VALUES:
            bands[name][key] = np.quantile(drawn[name], [tail, 1.0 - tail])
        gap = s.gap[None, key, used]
        found[key] = tuple(
            name
            for name in TESTS
            if abs(statistics[name](gap)[0]) > np.quantile(np.abs(drawn[name]), 1.0 - 2.0 * tail / len(TESTS)) + DUST
        )
    return bands, found


def _statistics(share: Array, claim: Array) -> dict[str, Statistic]:
    """Every value of gaps (draws, bins) that is held against its null distribution."""
    odds = logit(claim, MEAN_CLIP)
    odds = odds - (share * odds).sum()
    of_sizes: dict[str, Statistic] = {
        name: lambda gaps, of=of: of(share, np.abs(gaps))  # type: ignore[misc]
        for name, of in NULL_VALUES.items()
    }
    return {**of_sizes, "mean": lambda gaps: gaps @ share, "spread": lambda gaps: gaps @ (share * odds)}


def _drawn(
    rng: np.random.Generator, n: Array, claim: Array, draws: int, statistics: dict[str, Statistic]
) -> dict[str, Array]:
    """The statistics of ``draws`` samples of a perfect model, a few samples at a time so that many bins fit in memory."""
    parts: dict[str, list[Array]] = {name: [] for name in statistics}
    step = max(1, AT_ONCE // n.size)
    for first in range(0, draws, step):
        size = (min(step, draws - first), n.size)
        gaps = rng.binomial(n.astype(np.int64), claim, size) / n - claim
        for name, of in statistics.items():
            parts[name].append(of(gaps))
    return {name: np.concatenate(values) for name, values in parts.items()}


# ---------------------------------------------------------------------------- by the names of metrics


def _q1(s: Snapshot, level: float) -> Bounds:
    """As K1; nan for claims that are not of quantiles."""
    low, high = k1_interval(s, level)
    is_one = s.claim.kind == QUANTILE
    return (low, high) if is_one else (np.full(s.keys, np.nan), np.full(s.keys, np.nan))


def _not_below_0(s: Snapshot, level: float) -> Bounds:
    """The interval of K2, which is not negative."""
    low, high = k2_interval(s, level)
    return np.maximum(low, 0.0), np.maximum(high, 0.0)


def _root(s: Snapshot, level: float) -> Bounds:
    """The root of the interval of K2."""
    low, high = _not_below_0(s, level)
    return np.sqrt(low), np.sqrt(high)


def _mean_outcome(s: Snapshot, level: float) -> Bounds:
    """Wilson's interval of the mean outcome, nan where nothing was seen."""
    total, n = s.total, _effective(s)
    seen = np.where(n > 0, n, np.nan)
    mean = total[:, WY] / np.where(total[:, W] > 0, total[:, W], np.nan)
    low, high = wilson(mean, seen, level)
    return np.where(mean <= 0.0, 0.0, low), np.where(mean >= 1.0, 1.0, high)  # without what rounding leaves there


def _mean_claim(s: Snapshot) -> Array:
    """Mean claim of each key, never -0.0; nan where nothing was seen."""
    return np.abs(s.total[:, WP]) / np.where(s.total[:, W] > 0, s.total[:, W], np.nan)


def _observed_over_expected(s: Snapshot, level: float) -> Bounds:
    """Wilson's interval of the mean outcome over the mean claim."""
    (low, high), claim = _mean_outcome(s, level), _mean_claim(s)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(low == 0.0, 0.0, low / claim), high / claim


def _predicted_over_actual(s: Snapshot, level: float) -> Bounds:
    """The inverse: infinite above where the chance of any positive outcome may be 0."""
    (low, high), claim = _mean_outcome(s, level), _mean_claim(s)
    with np.errstate(divide="ignore", invalid="ignore"):
        return claim / high, np.where(low == 0.0, np.inf, claim / low)


def _brier(s: Snapshot, level: float) -> Bounds:
    """Brier score plus or minus z standard errors, at the claims that came; nan where outcomes are not all 0 or 1.

    Then (p - y)^2 = p^2 + y (1 - 2p): its variance is the mean of (1 - 2p)^2 in a bin times that of the outcome (as in
    :func:`k1_interval`), too large where bins are wide. Corrected as Wilson's interval is.
    """
    z, n, columns = _deviations(level), _effective(s), s.columns
    weight = np.where(s.weight > 0, s.weight, 1.0)
    slope = np.maximum(1.0 - 4.0 * (columns[WP] - columns[WPP]) / weight, 0.0)
    share, total, few = np.where(s.weight > 0, s.share, 0.0), s.total, np.maximum(n, 1.0)
    half = z * np.sqrt((share**2 * slope * _gap_variance(s)).sum(-1) + (z / (2.0 * few)) ** 2) + z * z / (2.0 * few)
    binary = np.abs(total[:, WY] - total[:, WYY]) <= DUST * total[:, WY]
    centre = np.where(binary & (n >= FEWEST_EVENTS - 1e-9), s.values("brier"), np.nan)
    return np.clip(centre - half, 0.0, 1.0), np.clip(centre + half, 0.0, 1.0)


def _logistic(place: int) -> Callable[[Snapshot, float], Bounds]:
    """Wald intervals of the intercept or slope, fitted key by key: about 0.1 ms each, so seconds for 10,000 keys."""

    def bounds(s: Snapshot, level: float) -> Bounds:
        half = _deviations(level) * s.logistic[:, 2 + place]
        return s.logistic[:, place] - half, s.logistic[:, place] + half

    return bounds


INTERVALS: dict[str, Callable[[Snapshot, float], Bounds]] = {
    "k1": k1_interval,
    "ece": k1_interval,
    "q1": _q1,
    "k2": _not_below_0,
    "k2_debiased": k2_interval,
    "l2_ce": _root,
    "l2_ce_debiased": _root,
    "reliability_term": _not_below_0,
    "brier": _brier,
    "coverage": _mean_outcome,
    "oe_ratio": _observed_over_expected,
    "pa_ratio": _predicted_over_actual,
    "calibration_intercept": _logistic(0),
    "calibration_slope": _logistic(1),
}
