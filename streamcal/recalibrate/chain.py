"""One online recalibrator on top of another."""

from __future__ import annotations

import math

from streamcal.arrays import Array, one_number
from streamcal.binning import EqualWidth
from streamcal.recalibrate.histogram import OnlineHistogram
from streamcal.recalibrate.online import Online, check_online, online
from streamcal.recalibrate.online_newton import OnlinePlatt
from streamcal.windows import Cumulative


@online("chain")
class Chain(Online):
    """``second`` recalibrates what ``first`` makes of the raw prediction; each learns from what it was given.

    Default: online Platt scaling, and on top of it the running mean of each of ten rows, where the forecast itself counts as
    ten events: "online Platt scaling with calibeating (tracking)" of Gupta, Ramdas 2023. Both are copied. Cost and state: those
    of the two together.

    >>> chain = Chain()
    >>> for outcome in [1, 0, 1, 1]:
    ...     chain.learn_one(0.95, outcome)
    >>> round(chain.predict_one(0.95), 3)
    0.878
    """

    settings = ("first", "second")

    def __init__(self, first: Online | None = None, second: Online | None = None) -> None:
        self.first = OnlinePlatt() if first is None else check_online("first", first)
        means = OnlineHistogram(Cumulative(EqualWidth(10)), prior=10.0)
        self.second = means if second is None else check_online("second", second)
        self.heaviest = min(self.first.heaviest, self.second.heaviest)
        self._compare()

    def _forecast(self, p: float) -> float:
        return self.second._forecast(self.first._forecast(p))

    def _take(self, p: float, y: float, w: float) -> float:
        if not 0.0 <= one_number(w) <= self.heaviest:
            return math.nan
        q = self.first._take(p, y, w)
        return self.second._take(q, y, w) if q == q else q

    def _pass(self, p: Array, y: Array, w: Array) -> Array:
        return self.second._pass(self.first._pass(p, y, w), y, w)
