"""Online recalibrators made of others: a batch one refitted from a window, a fitted one that stays, one on top of another."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import numpy as np

from streamcal._jit import kernel
from streamcal.arrays import Array, check_whole, one_number
from streamcal.binning import EqualWidth, UniformMass
from streamcal.claims import Mean
from streamcal.limits import HEAVIEST, CalibrationWarning, is_allowed, unit
from streamcal.recalibrate.histogram import OnlineHistogram
from streamcal.recalibrate.online import Online, check_online, online
from streamcal.recalibrate.online_newton import OnlinePlatt
from streamcal.recalibrate.platt import PlattScaling
from streamcal.recalibrate.recalibrator import Recalibrator
from streamcal.recalibrate.windowed import NUMBERS, take_in
from streamcal.state import own_copy, restorable
from streamcal.windows import Cumulative, Fading, Sliding, Window


@kernel
def take_in_many(kind: float, buf: Array, p: Array, y: Array, w: Array) -> None:
    """Add many events to a window one by one, so that its sums do not depend on how many came at once."""
    for i in range(p.shape[0]):
        if w[i] > 0.0:
            take_in(kind, buf, p[i], y[i], w[i])


@online("refit")
class Refit(Online):
    """Fit a batch recalibrator anew on what is in a window after every so many events; before the first fit: the identity.

    - ``recalibrator``: any of streamcal's, copied. Default: PlattScaling.
    - ``window``: a Sliding one is fitted to its events, exactly; a Cumulative or Fading one to its sums (``fit_snapshot``: see
      there how near that is; a fine grid such as UniformMass(15, bits=7) is best). Copied. Default: the last 5,000 events.
    - ``every``: events of positive weight between two fits.

    The map in force is ``recalibrator_`` (None before the first fit). A fit that fails or warns does not stop the stream: its
    message is ``note_`` ("" if there is none), and after a failure the old map stays.

    Nothing is guaranteed beyond what the recalibrator promises on the window; put it into a :class:`Guard` where it must do no
    harm, with ``clip``: histogram and isotonic maps say exactly 0 or 1 where a bin had one outcome only. Cost: a fit every
    ``every`` events, and a ``predict`` of the recalibrator for each forecast from Python (some 10 microseconds); :meth:`run`
    predicts all events between two fits at once. State: the window's.

    >>> refit = Refit(PlattScaling(), Sliding(UniformMass(15), 1000), every=100)
    >>> refit.predict_one(0.8), refit.recalibrator_
    (0.8, None)
    >>> p = np.random.default_rng(0).random(1000)
    >>> served = refit.run(p, p > 0.5)
    >>> refit.predict_one(0.8) > 0.95
    True
    """

    fitted = ("compared", "recalibrator_", "note_", "_since")
    recalibrator_: Recalibrator | None

    def __init__(
        self, recalibrator: Recalibrator | None = None, window: Window | None = None, every: int = 500
    ) -> None:
        given = PlattScaling() if recalibrator is None else recalibrator
        if not isinstance(given, Recalibrator):
            raise ValueError(f"recalibrator must be a Recalibrator such as PlattScaling(), got {given!r:.80}")
        # Some thousand events are what a batch map needs; more of them would be slow to forget a change.
        who = Sliding(UniformMass(15), 5000) if window is None else window
        if type(who) not in NUMBERS or who.keys != 1 or who.claim != Mean():
            names = ", ".join(kind.__name__ for kind in (Cumulative, Sliding, Fading))
            raise ValueError(f"window must be one of {names} with one key and the claim Mean(), got {who!r:.120}")
        self.recalibrator, self.window = own_copy(given), own_copy(who)
        self.every = check_whole("every", every, 1)
        self.recalibrator_, self.note_, self._since = None, "", 0
        self._compare()

    def _forecast(self, p: float) -> float:
        return float(self._mapped(np.array([unit(one_number(p))]))[0])

    def _mapped(self, p: Array) -> Array:
        """The map in force; nan stays nan."""
        if self.recalibrator_ is None:
            return p.copy()
        known = p == p
        out = np.full(p.shape, np.nan)
        out[known] = self.recalibrator_.predict(p[known])
        return out

    def _take(self, p: float, y: float, w: float) -> float:
        score, outcome, weight = unit(one_number(p)), one_number(y), one_number(w)
        if not (score == score and 0.0 <= outcome <= 1.0 and 0.0 <= weight <= HEAVIEST):
            return math.nan
        return float(self._pass(*np.array([[score], [outcome], [weight]]))[0])

    def _pass(self, p: Array, y: Array, w: Array) -> Array:
        # Cut where a fit falls due: between two fits the map is the same, so that one predict serves all.
        out, low, weighty = np.empty(p.size), 0, np.cumsum(w > 0.0)
        while low < p.size:
            done = int(weighty[low - 1]) if low else 0
            high = int(np.searchsorted(weighty, done + self.every - self._since)) + 1
            part = slice(low, high)
            out[part] = self._mapped(p[part])
            take_in_many(float(NUMBERS[type(self.window)]), self.window._buf, p[part], y[part], w[part])
            self._since += int((w[part] > 0.0).sum())
            if self._since == self.every:
                self._refit()
            low = high
        return out

    def _refit(self) -> None:
        # The fit is that of a copy: one that fails half-way must not leave a map that is half of each.
        self._since, new = 0, copy.deepcopy(self.recalibrator)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CalibrationWarning)
            try:
                if isinstance(self.window, Sliding):
                    p, y, w = self.window.events()
                    used = is_allowed("p", p) & is_allowed("y", y) & is_allowed("w", w)  # those that it did not refuse
                    new.fit(p[used], y[used], w[used])
                else:
                    new.fit_snapshot(self.window.snapshot())
            except ValueError as error:
                self.note_ = f"not fitted: {error}"
                return
        self.recalibrator_ = new
        self.note_ = "; ".join(dict.fromkeys(str(warning.message) for warning in caught))

    def details(self) -> dict[str, Any]:
        """``recalibrator``, the map in force, and ``note``, what its fit warned of."""
        return {"recalibrator": repr(self.recalibrator_), "note": self.note_}

    def _go_on(self, fitted: dict[str, Any]) -> None:
        since, map_in_force = fitted["_since"], fitted["recalibrator_"]
        counted = type(since) is int and 0 <= since < self.every
        if not counted or not isinstance(map_in_force, type(self.recalibrator) | None):
            raise ValueError(f"the document does not fit {self!r:.200}")
        if map_in_force is not None:
            map_in_force.predict([0.5])  # ValueError if it is not fitted
        super()._go_on({**fitted, "note_": str(fitted["note_"])})


@restorable
class Frozen(Online):
    """A batch recalibrator that has been fitted, as an expert among online ones: it predicts, and never learns.

    For a :class:`Guard` in front of a map that is in production. It is copied. Events are counted in the report only.

    >>> map = PlattScaling("hard").fit([0.1, 0.4, 0.6, 0.9] * 25, [0, 1, 0, 1] * 25)
    >>> frozen = Frozen(map)
    >>> frozen.learn_one(0.6, 1.0)
    >>> round(frozen.predict_one(0.5), 6)
    0.5
    """

    def __init__(self, recalibrator: Recalibrator) -> None:
        if not isinstance(recalibrator, Recalibrator):
            raise ValueError(f"recalibrator must be a fitted Recalibrator, got {recalibrator!r:.80}")
        recalibrator.predict([0.5])  # ValueError if it is not fitted
        self.recalibrator = own_copy(recalibrator)
        self._compare()

    def _forecast(self, p: float) -> float:
        score = unit(one_number(p))
        return float(self.recalibrator.predict([score])[0]) if score == score else math.nan

    def _take(self, p: float, y: float, w: float) -> float:
        fine = 0.0 <= one_number(y) <= 1.0 and 0.0 <= one_number(w) <= HEAVIEST
        return self._forecast(p) if fine else math.nan

    def _pass(self, p: Array, y: Array, w: Array) -> Array:
        return self.recalibrator.predict(p)


@online("chain")
class Chain(Online):
    r"""One map on top of another, ``second(first(p))``; each learns from what it was given.

    - ``first``: an online recalibrator of probabilities, copied, which sees the raw prediction. Default: OnlinePlatt.
    - ``second``: one that sees what ``first`` makes of it, copied. Default: the running mean of each of ten bins, where the
      forecast itself counts as ten events.

    The defaults are "online Platt scaling with calibeating (tracking)". Nothing is guaranteed beyond what ``second`` promises for
    the forecasts of ``first``. Cost and state: those of the two together. Source: Gupta, Ramdas 2023.

    >>> chain = Chain()
    >>> for outcome in [1, 0, 1, 1]:
    ...     chain.learn_one(0.95, outcome)
    >>> round(chain.predict_one(0.95), 3)
    0.878
    """

    def __init__(self, first: Online | None = None, second: Online | None = None) -> None:
        self.first = OnlinePlatt() if first is None else check_online("first", first)
        means = OnlineHistogram(Cumulative(EqualWidth(10)), prior=10.0)
        self.second = means if second is None else check_online("second", second)
        self.heaviest = min(self.first.heaviest, self.second.heaviest)
        self._compare()

    def _forecast(self, p: float) -> float:
        return self.second._forecast(self.first._forecast(p))

    def _take(self, p: float, y: float, w: float) -> float:
        # Asked first: the first map must not learn what the second refuses.
        if not 0.0 <= one_number(w) <= self.heaviest:
            return math.nan
        q = self.first._take(p, y, w)
        return self.second._take(q, y, w) if q == q else q

    def _pass(self, p: Array, y: Array, w: Array) -> Array:
        return self.second._pass(self.first._pass(p, y, w), y, w)
