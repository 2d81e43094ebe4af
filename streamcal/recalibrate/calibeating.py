"""Calibeating: beat any forecaster by what its bins know about the outcomes, whatever the outcomes are."""

from __future__ import annotations

import numpy as np

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, check_whole
from streamcal.binning import Binning, EqualWidth, bin_of
from streamcal.limits import unit
from streamcal.recalibrate.forecasting import MOST_EVENTS, MOST_LEVELS, are_pairs, mixed_values, mixture, played
from streamcal.recalibrate.online import Compiled, allowed, online
from streamcal.state import reserve
from streamcal.windows.window import whole_between

METHODS = ("tracking", "hedging")
TRACKING, HEDGING = range(2)
# The buffer: the binning's plan, pairs (weight, weighted outcomes), and these five numbers.
FIRST, METHOD, M, SEED, LEARNED = range(5)
OWN = 5
MOST_PAIRS = 10_000_000  # 160 MB


@inlined
def pivot_of(p: float, m: int) -> int:
    """The one of m intervals whose midpoint is nearest p."""
    return min(int(p * m), m - 1)


@inlined
def _find(buf: Array, p: float) -> tuple[int, float]:
    """(where the pair of what is forecast for p begins, the forecast); the forecast of nan is nan."""
    own, r = buf.shape[0] - OWN, bin_of(buf, p)
    if r < 0:
        return 0, np.nan
    first = int(buf[own + FIRST])
    if buf[own + METHOD] == TRACKING:
        place = first + 2 * r
        return place, float(buf[place + 1] / buf[place]) if buf[place] > 0.0 else p
    m = int(buf[own + M])
    base = first + 2 * m * r
    i = played(buf, base, m, pivot_of(p, m), buf[own + SEED], buf[own + LEARNED])
    return base + 2 * i, (i + 0.5) / m


@inlined
def _calibeat(buf: Array, p: float, y: float, w: float) -> float:
    place, q = _find(buf, p)
    if q == q and w > 0.0:
        buf[place] += w
        buf[place + 1] += w * y
        buf[buf.shape[0] - OWN + LEARNED] += 1.0
    return q


@brief
def calibeating_learn(buf: Array, p: float, y: float, w: float) -> float:
    """Predict, and learn if w > 0: see :class:`Calibeating`; nan if the event is not allowed."""
    return _calibeat(buf, unit(p), y, w) if allowed(y, w) else np.nan


@kernel
def _calibeating_run(buf: Array, p: Array, y: Array, w: Array, out: Array) -> None:
    for i in range(p.shape[0]):
        out[i] = _calibeat(buf, p[i], y[i], w[i])


@online("calibeating")
class Calibeating(Compiled):
    r"""Keep what a forecaster knows and repair its calibration, with a bound that holds for any forecasts and any outcomes.

    - ``binning``: EqualWidth, Grid, Levels, or Edges that cover [0, 1], copied. Default ``EqualWidth(10)``.
    - ``method``: "tracking" or "hedging".
    - ``m``: intervals of hedging, 1..1,000,000. ``seed``: of its draws, a whole number in 0..2^53. Tracking uses neither.

    The raw predictions b fall into bins. Their *refinement* is the Brier score of somebody who knew each bin's mean outcome
    beforehand:

    .. math:: R(b) = \frac{1}{T} \sum_t (y_t - \bar y_{r(b_t)})^2

    ``method="tracking"`` forecasts the mean outcome of the bin so far; the first of a bin gives the prediction back as it is. For
    every sequence of T events with outcomes in [0, 1], B being the number of bins that occurred:

    .. math:: (\mathrm{Brier}(c) - R(b)) \, T \le B \, (1 + \ln(T / B))

    Where predictions are constant within bins, R(b) = Brier(b) - K_2(b): nearly all of their calibration error is won. Weights:
    all sums weighted, T = sum w / max w and the bound in units of max w (where this T is below B, the bound is T). NOT bounded:
    the calibration error of c, which an adversary can hold at 1/2. What predictions that vary within a bin know there is lost.

    ``method="hedging"`` plays a :class:`FosterForecaster` of ``m`` intervals in each bin. It looks first at the interval of the
    raw prediction, and so gives the midpoint nearest to it (also before any event) while the outcomes of that interval do not
    speak against it. For outcomes that may depend on everything but the draw, with B bins and G = sqrt(m B / T):

    .. math:: E\,K_1(c) \le \frac{1}{2m} + G, \quad E\,\mathrm{Brier}(c) \le E\,R(b) + \frac{1}{4m^2} + (1 + \tfrac{1}{2m}) G

    K_1 is by value, or by value and bin: calibrated within each bin too. Weights as there: T = (sum w)^2 / sum w^2. The best m is
    about (T / B)^(1/3). NOT bounded: a single run, other than the mean over draws, and an outcome chosen after its draw was seen.

    Cost per event O(1), hedging O(log m); the state is 2 numbers a bin, hedging 2 m a bin, the edges and 13 more. Source: Foster,
    Hart 2023 (Calibeating: beating forecasters at their own game).

    >>> map = Calibeating()
    >>> map.predict_one(0.92)
    0.92
    >>> for outcome in [1, 0, 1, 0]:
    ...     map.learn_one(0.92, outcome)
    >>> map.predict_one(0.97)
    0.5
    >>> Calibeating(method="hedging").predict_one(0.92)
    0.95
    """

    # Tracking: with mean m_n of the first n outcomes of a bin, sum_{i <= n} (y_i - m_n)^2 grows by (1 - 1/n) (y_n - m_{n-1})^2.
    # So a bin loses (y_n - c_n)^2 / n <= 1/n against its final mean, at n = 1 for any c_1 in [0, 1]; 1 + 1/2 + ... + 1/n is
    # <= 1 + ln n; B bins: Jensen. Weights: w_n (w_n / W_n) is at most the integral of min(1, max w / s) over (W_{n-1}, W_n].
    # Hedging: a cell (bin, interval) with weight N, gap g and excess or deficit h has g <= 1/(2m) + h/N and g <= 1, so
    # g^2 <= g/(2m) + h/N; E sum h <= sum over bins of sqrt(m T_r) <= sqrt(m B T); cells refine bins, so theirs is R at most.

    _learn, _run = calibeating_learn, _calibeating_run

    def __init__(self, binning: Binning | None = None, method: str = "tracking", m: int = 10, seed: int = 0) -> None:
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
        self.m, self.seed = check_whole("m", m, 1, MOST_LEVELS), check_whole("seed", seed, 0, MOST_EVENTS)
        self.method, each = method, self.m if method == "hedging" else 1
        self.binning = check_binning(EqualWidth(10) if binning is None else binning, MOST_PAIRS // each)
        pairs = self.binning.fine_bins * each
        reserve(2 * pairs)
        plan = self.binning.plan()
        own = [plan.size, METHODS.index(method), self.m, self.seed, 0]
        self._begin(np.concatenate([plan, np.zeros(2 * pairs), np.array(own, dtype=np.float64)]))

    def distribution(self, p: float) -> list[tuple[float, float]]:
        """What the forecast for p is drawn from: one (value, probability), or two where it hedges.

        >>> map = Calibeating(method="hedging", m=4)
        >>> for outcome in [1, 0]:
        ...     map.learn_one(0.6, outcome)
        >>> map.distribution(0.6)
        [(0.625, 0.75), (0.875, 0.25)]
        """
        q = self.predict_one(p)  # raises if p is not allowed
        if self.method == "tracking":
            return [(q, 1.0)]
        p, first = min(max(float(p), 0.0), 1.0), int(self._buf[FIRST - OWN])
        base = first + 2 * self.m * int(bin_of(self._buf, p))
        return mixed_values(*mixture(self._buf, base, self.m, pivot_of(p, self.m)), self.m)

    def _is_sound(self, buffer: Array) -> bool:
        first, end, learned = int(self._buf[FIRST - OWN]), buffer.size - OWN, buffer.size - OWN + LEARNED
        same = all(np.array_equal(buffer[a:b], self._buf[a:b]) for a, b in ((0, first), (end, learned)))
        return same and whole_between(buffer[learned], 0, MOST_EVENTS) and are_pairs(buffer[first:end])


def check_binning(binning: Binning, most: int) -> Binning:
    """``binning``; ValueError unless its bins are fixed, at most so many, and hold every probability."""
    if not isinstance(binning, Binning):
        raise ValueError(f"binning must be a binning such as EqualWidth(10), got {binning!r:.80}")
    if type(binning).groups is not Binning.groups:
        raise ValueError(
            f"binning must have fixed bins, such as EqualWidth, Edges, Grid or Levels, got {binning!r}: its bins are made "
            "at a read"
        )
    if binning.fine_bins > most:
        raise ValueError(f"binning must have at most {most:,} bins here, got {binning.fine_bins:,}")
    if not binning.edges[0] <= 0.0 <= 1.0 <= binning.edges[-1]:
        raise ValueError(f"binning must cover [0, 1], got {binning!r:.120}")
    return binning


@online("mixed")
class MixedForecaster(Calibeating):
    """Calibeating by hedging: calibrated against any adversary, and nearly as good as the bins of the raw prediction allow.

    ``Calibeating(binning, "hedging", m, seed)`` under a name of its own: formula, settings, guarantee and cost are said there.
    Before any event it gives the midpoint nearest to the raw prediction. Source: Foster, Hart 2023; Foster 1999.

    >>> map = MixedForecaster()
    >>> for outcome in [0, 0, 1, 0] * 50:
    ...     map.learn_one(0.92, outcome)
    >>> map.predict_one(0.92)
    0.25
    """

    def __init__(self, binning: Binning | None = None, m: int = 10, seed: int = 0) -> None:
        super().__init__(binning, "hedging", m, seed)
