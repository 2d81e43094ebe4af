r"""Confidence sequences: intervals that hold at every event at once, however often and whenever one looks.

What they need: sums that began at the first event (or at one fixed beforehand) and that nothing has left since; claims and
weights that were fixed before their outcome was known; bins that were fixed before the events. Then nothing else is assumed:
outcomes in [0, 1] may depend on all that went before, the model may learn, its error may change over time. What is estimated is
the mean so far of

.. math:: \mu_s = E[y_s \mid \text{everything before } y_s] - p_s

in the order in which outcomes become known. Not covered: a moving or fading window (alarms come from a detector), bins
that were cut by the events in them, weights that know the outcome, the best of several keys (ask for a higher level).
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from streamcal._jit import inlined
from streamcal.arrays import Array, one_number
from streamcal.claims import check_level
from streamcal.snapshot import Snapshot
from streamcal.tally import COUNT, WP, WW, WY, W

Bounds: TypeAlias = tuple[Array, Array]
AROUND = 250.0  # events in a bin about which intervals are made narrow; it costs little elsewhere
# Polynomial stitching with eta = 2, s = 1.4 and c = 1; 3.1055 is zeta(1.4).
SMALLEST = 1e-140  # weights whose squares are numbers
POWER, FIRST, SECOND = 1.4, (2.0**0.25 + 2.0**-0.25) / math.sqrt(2.0), (math.sqrt(2.0) + 1.0) / 2.0
STITCHES = math.log(3.1055 / math.log(2.0) ** POWER)


def mixture_bound(v: Any, rho: Any, doubt: float) -> Any:
    r"""How far a sum of 1-sub-Gaussian steps of variance v goes, now and at any later v, with probability 1 - a.

    .. math:: \sqrt{(v + \rho) \ln \frac{v + \rho}{\rho \, a^2}}

    the normal mixture, two-sided. ``doubt`` is 2 ln(1/a). Numbers or arrays. Source: Robbins 1970; Howard, Ramdas,
    McAuliffe, Sekhon 2021.

    >>> round(float(mixture_bound(250.0, 62.5, -2 * math.log(0.05))), 2)
    48.74
    """
    return np.sqrt((v + rho) * (doubt + np.log((v + rho) / rho)))


_mixture_bound = inlined(mixture_bound)


@inlined
def anytime_radius(n: float, doubt: float) -> float:
    r"""How far the mean gap of n events can be from its true value, now and at any later n, with probability 1 - a.

    .. math:: \frac1n \sqrt{(n/4 + \rho) \ln \frac{n/4 + \rho}{\rho \, a^2}}, \qquad \rho = \frac{62.5}{2 \ln(1/a) + 3}

    the normal mixture for 1/2-sub-Gaussian steps, with a rho that makes it nearly tightest at 250 events and costs little
    elsewhere. ``doubt`` is 2 ln(1/a). Source: Howard, Ramdas, McAuliffe, Sekhon 2021.

    >>> [round(anytime_radius(n, -2 * math.log(0.05 / 21)), 3) for n in (25.0, 250.0, 2500.0)]
    [0.465, 0.126, 0.041]
    """
    return float(_mixture_bound(n / 4.0, AROUND / 4.0 / (doubt + 3.0), doubt)) / n


def _doubt(level: float) -> float:
    return -2.0 * math.log1p(-check_level(level))


def _around(around: float) -> float:
    value = one_number(around)
    if not 0.0 < value < math.inf:
        raise ValueError(f"around must be a number of events above 0, got {around!r}")
    return value


def _fixed_bins(s: Snapshot) -> Array:
    """The bins' sums, shape (keys, bins, 8), if the bins were fixed beforehand."""
    if s.coarse:
        raise ValueError(
            "bins must be fixed before the events; these were merged by their mass: give the snapshot itself"
        )
    return s.cells[:, :-1]


def _possible(s: Snapshot, radius: Array) -> Bounds:
    """The gap plus or minus a radius, where the mean outcome stays in [0, 1]; nan in empty bins."""
    gap = s.mean_y - s.mean_p
    return np.clip(gap - radius, -s.mean_p, 1.0 - s.mean_p), np.clip(gap + radius, -s.mean_p, 1.0 - s.mean_p)


def normal_mixture(s: Snapshot, level: float = 0.95, around: float = AROUND) -> Bounds:
    r"""Anytime interval of the gap of each bin (mean outcome - mean claim, in [-1, 1]). Two arrays, shape (keys, bins).

    .. math:: g_r \pm \frac{1}{W_r} \sqrt{(V_r + \rho) \ln \frac{V_r + \rho}{\rho (1 - level)^2}}, \qquad
              V_r = \frac{\sum w^2}{4}, \quad \rho = \frac{around / 4}{2 \ln \frac{1}{1 - level} + 3}

    With probability ``level`` it holds the mean so far of the true gap at all events, for each bin by itself (all of B bins:
    a level of 1 - (1 - level)/B); the true gap may change over time. Any weights that were fixed before the outcome: then the
    target is weighted too. ``around``: the number of events of weight 1 where it is to be narrowest; another unit of weight
    calls for ``around`` times its square. Empty bins: nan. About 1.6 times as wide as a Wald interval of an even outcome at
    1,000 events, and no narrower where outcomes are rare: see :func:`empirical_bernstein`. Source: Howard, Ramdas, McAuliffe,
    Sekhon 2021.

    >>> from streamcal import Cumulative, EqualWidth
    >>> window = Cumulative(EqualWidth(1))
    >>> window.update_many([0.5] * 1000, [0, 1] * 500)
    >>> [round(float(bound[0, 0]), 3) for bound in normal_mixture(window.snapshot())]
    [-0.05, 0.05]
    """
    cells, doubt = _fixed_bins(s), _doubt(level)
    rho = _around(around) / 4.0 / (doubt + 3.0)
    with np.errstate(over="ignore"):  # by a tiny weight
        radius = mixture_bound(cells[..., WW] / 4.0, rho, doubt) / np.where(s.weight > 0, s.weight, np.nan)
    return _possible(s, radius)


def empirical_bernstein(s: Snapshot, level: float = 0.95) -> Bounds:
    r"""Anytime interval of the gap of each bin that narrows where outcomes vary little. Two arrays, shape (keys, bins).

    .. math:: g_r \pm \frac{1}{n_r} \left( \sqrt{k_1^2 v \ell + k_2^2 \ell^2} + k_2 \ell \right), \qquad
              \ell = 1.4 \ln \ln 2 v + \ln \frac{2 \, \zeta(1.4)}{(1 - level) \ln^{1.4} 2}

    with k1 = (2^(1/4) + 2^(-1/4)) / sqrt 2, k2 = (sqrt 2 + 1) / 2 and v an upper bound, from the sums alone, of the predictable
    variance that the theorem asks for, V = sum (x_s - mean of x before s)^2 (predictions kept in [0, 1]), x = y - p:

    .. math:: v = Q + 1 + \begin{cases} Q & Q \le 1 \ 1 + \ln Q & Q > 1 \end{cases}, \qquad Q = \sum_s (x_s - \bar x)^2

    at most n. (The steps of Q are (s - 1)/s times those of V, each of which is at most 1.) v exceeds V by about ln V. Guarantee
    and target as in :func:`normal_mixture`. Narrower than that one from about 350 events on where a bin's outcomes are one in
    twenty, wider where they are even. Only for equal weights, in [1e-140, 1e140]: nan in a bin whose weights differ or where an
    event weighs 0, and in empty bins. Source: Howard, Ramdas, McAuliffe, Sekhon 2021, theorem 4 and equation 10.

    >>> from streamcal import Cumulative, EqualWidth
    >>> window = Cumulative(EqualWidth(1))
    >>> window.update_many([0.05] * 10_000, ([1] + [0] * 19) * 500)
    >>> [round(float(bound[0, 0]), 4) for bound in empirical_bernstein(window.snapshot())]
    [-0.01, 0.01]
    """
    cells, doubt = _fixed_bins(s), _doubt(level)
    n, weight, squares = cells[..., COUNT], cells[..., W], cells[..., WW]
    each = np.where(n > 0, weight / np.maximum(n, 1.0), 0.0)  # relative to it nothing underflows unseen
    sure = (each > SMALLEST) & (each < 1.0 / SMALLEST)
    equal = sure & (np.abs(weight * each - squares) <= 1e-9 * squares)
    v = predictable_variance(np.where(equal, n, np.nan), s.residual_variance * np.maximum(n - 1.0, 0.0))
    log = POWER * np.log(np.log(2.0 * v)) + STITCHES + doubt / 2.0 + math.log(2.0)
    return _possible(s, (np.sqrt(FIRST**2 * v * log + SECOND**2 * log**2) + SECOND * log) / n)


def predictable_variance(n: Array, q: Array) -> Array:
    """The most that V of :func:`empirical_bernstein` can be where n gaps have the sum of squares q about their mean."""
    return np.minimum(n, q + 1.0 + np.where(q > 1.0, 1.0 + np.log(np.maximum(q, 1.0)), q))


# ---------------------------------------------------------------------------- all bins at once


def anytime_k1(s: Snapshot, level: float = 0.95, around: float = AROUND) -> Bounds:
    r"""Anytime interval of K1, the mean size of the bins' true gaps, in [0, 1]. Two arrays, shape (keys,).

    With probability ``level`` at all events the true gaps G (summed over the events of a bin) lie in an ellipsoid about the
    seen ones S, and the interval holds every K1 that is possible there:

    .. math:: \sum_r \frac{(S_r - G_r)^2}{V_r + \rho} \le C = 2 \ln \frac{1}{1 - level} + \sum_r \ln \frac{V_r + \rho}{\rho},
              \qquad V_r = \frac{\sum w^2}{4}, \quad \rho = \frac{around}{4}

    so :math:`|\hat K_1 - K_1| \le \sqrt{C \sum_r (V_r + \rho)} / W`. The lower end is the least K1 in the ellipsoid, exactly;
    it is above 0 just where :func:`anytime_p_value` is below 1 - level. The upper end bounds bins with few events by what a
    mean outcome in [0, 1] allows. Holds together with :func:`anytime_l2_ce` of the same settings.

    The true K1 is that of the bins: within a bin gaps cancel, also over time. Weights and ``around`` as in
    :func:`normal_mixture`; bins must be fixed beforehand (ValueError for merged ones; a fine grid is taken bin by bin). nan where
    nothing was seen. Width at 10 even bins: .1 at 3,000 events, .03 at 30,000; it says little below a thousand. Source: the
    product of the bins' mixtures (Robbins 1970; Howard, Ramdas, McAuliffe, Sekhon 2021) is a supermartingale: Ville 1939.

    >>> from streamcal import Cumulative, EqualWidth
    >>> window = Cumulative(EqualWidth(10))
    >>> window.update_many([0.25, 0.75] * 5000, [0, 1] * 5000)
    >>> low, high = anytime_k1(window.snapshot())
    >>> round(float(low[0]), 2), round(float(high[0]), 2)
    (0.23, 0.27)
    """
    ball, doubt = _Ellipsoid(s, around), _doubt(level)
    return ball.seen(ball.least_k1(doubt)), ball.seen(np.minimum(ball.most_k1(doubt), ball.most_l2(doubt)))


def anytime_l2_ce(s: Snapshot, level: float = 0.95, around: float = AROUND) -> Bounds:
    r"""Anytime interval of the root of K2, the root mean square of the bins' true gaps, in [0, 1]. Two arrays, shape (keys,).

    The ellipsoid of :func:`anytime_k1`, and the same guarantee, in which

    .. math:: | \sqrt{\hat K_2} - \sqrt{K_2} | \le \sqrt{\frac{C}{W} \max_r \frac{V_r + \rho}{W_r}}

    The bins with least weight are left out of the maximum where that makes the interval narrower: they count 0 at the lower end,
    and as far off as a mean outcome in [0, 1] allows at the upper one. The lower end is at least that of K1.

    >>> from streamcal import Cumulative, EqualWidth
    >>> window = Cumulative(EqualWidth(10))
    >>> window.update_many([0.25, 0.75] * 5000, [0, 1] * 5000)
    >>> low, high = anytime_l2_ce(window.snapshot())
    >>> round(float(low[0]), 2), round(float(high[0]), 2)
    (0.23, 0.27)
    """
    ball, doubt = _Ellipsoid(s, around), _doubt(level)
    return ball.seen(np.maximum(ball.least_k1(doubt), ball.least_l2(doubt))), ball.seen(ball.most_l2(doubt))


def anytime_p_value(s: Snapshot, around: float = AROUND) -> Array:
    r"""Evidence against "every claim was right", in (0, 1], that may be read at any time. Shape (keys,).

    .. math:: p = \min \left( 1, \prod_r \sqrt{\frac{V_r + \rho}{\rho}} \; e^{-S_r^2 / 2 (V_r + \rho)} \right)

    the level at which the ellipsoid of :func:`anytime_k1` just reaches K1 = 0. If all claims are right, p falls to a or below at
    some event with probability at most a, for each a. A p-value of a fixed sample is smaller: this is the price of looking
    always. It knows no more than V = n/4: for rare outcomes, and for tilts, ``streamcal.drift.CalibrationTest`` sees far more.
    nan where nothing was seen; weights, bins and source as there.

    >>> from streamcal import Cumulative, EqualWidth
    >>> window = Cumulative(EqualWidth(10))
    >>> window.update_many([0.7] * 500, [0, 1] * 250)
    >>> float(anytime_p_value(window.snapshot())[0]) < 1e-10
    True
    """
    ball = _Ellipsoid(s, around)
    return ball.seen(np.exp(np.minimum(ball.doubt - (ball.size**2 / ball.axis).sum(-1), 0.0) / 2.0))


class _Ellipsoid:
    """Where the summed true gaps of the bins lie, and how large K1 and the root of K2 can be there.

    Bins are in the order of their precision, W_r / (V_r + rho), so that the first k bins are those that are told best.
    ``doubt``, everywhere: 2 ln(1/a), to which the sum over bins is added.
    """

    def __init__(self, s: Snapshot, around: float) -> None:
        cells, rho = _fixed_bins(s), _around(around) / 4.0
        v, weight = cells[..., WW] / 4.0, cells[..., W]
        with np.errstate(divide="ignore", over="ignore"):
            reach = (v + rho) / weight
        order = np.argsort(reach, -1, kind="stable")
        self.total = weight.sum(-1)
        self.whole = np.where(self.total > 0, self.total, 1.0)
        share = weight / self.whole[:, None]
        furthest = np.where(weight > 0, np.maximum(s.mean_p, 1.0 - s.mean_p), 0.0)
        size = np.abs(cells[..., WY] - cells[..., WP])
        self.doubt = np.log1p(v / rho).sum(-1)
        self.size, self.axis, self.gap, self.share, self.reach, self.furthest = (
            np.take_along_axis(a, order, -1) for a in (size, v + rho, np.abs(s.gap), share, reach, furthest)
        )

    def seen(self, value: Array) -> Array:
        """In [0, 1], nan where nothing was seen."""
        return np.where(self.total > 0, np.clip(value, 0.0, 1.0), np.nan)

    def least_k1(self, doubt: float) -> Array:
        """The least K1: each |S| shrinks by t (V + rho), to no less than 0, with the t that uses C up."""
        c = (doubt + self.doubt)[:, None]
        order = np.argsort(self.size / self.axis, -1, kind="stable")
        size, axis = (np.take_along_axis(a, order, -1) for a in (self.size, self.axis))
        spent = _first(size**2 / axis)[:, :-1]  # by the bins before, that have shrunk to 0
        width = _last(axis)[:, :-1]
        found = spent + (size / axis) ** 2 * width >= c
        k = np.argmax(found, -1)[:, None]
        square = (c - np.take_along_axis(spent, k, -1)) / np.take_along_axis(width, k, -1)
        left = np.maximum(size - axis * np.sqrt(np.maximum(square, 0.0)), 0.0).sum(-1)
        return np.where(found.any(-1), left / self.whole, 0.0)

    def most_k1(self, doubt: float) -> Array:
        """The most that K1 can be: the first k bins by the ellipsoid, the others by what is possible; the best k."""
        with np.errstate(over="ignore"):
            room = np.sqrt((doubt + self.doubt)[:, None] * _first(self.axis)) / self.whole[:, None]
        return np.asarray((_first(self.share * self.gap) + room + _last(self.share * self.furthest)).min(-1))

    def _first_l2(self, doubt: float) -> tuple[Array, Array]:
        """The root mean square of the first k gaps, as seen, and how far it can be from the true one."""
        worst = np.concatenate([np.zeros((self.reach.shape[0], 1)), self.reach], -1)
        with np.errstate(over="ignore"):
            room = np.sqrt((doubt + self.doubt)[:, None] * worst / self.whole[:, None])
        return np.sqrt(_first(self.share * self.gap**2)), room

    def least_l2(self, doubt: float) -> Array:
        """The least that the root of K2 can be, by the best k."""
        seen, room = self._first_l2(doubt)
        return np.asarray((seen - room).max(-1))

    def most_l2(self, doubt: float) -> Array:
        """The most that the root of K2 can be, by the best k."""
        seen, room = self._first_l2(doubt)
        return np.asarray(np.hypot(seen + room, np.sqrt(_last(self.share * self.furthest**2))).min(-1))


def _first(a: Array) -> Array:
    """Sums of the first 0, 1, ... bins, shape (keys, bins + 1)."""
    return np.concatenate([np.zeros((a.shape[0], 1)), np.cumsum(a, -1)], -1)


def _last(a: Array) -> Array:
    """Sums of all but the first 0, 1, ... bins, shape (keys, bins + 1)."""
    return _first(a[:, ::-1])[:, ::-1]
