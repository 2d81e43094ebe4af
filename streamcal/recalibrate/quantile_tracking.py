"""Quantile tracking: an offset that rises after every miss and falls after every hit, so that the coverage comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, check_number
from streamcal.claims import Quantile, check_level
from streamcal.limits import HEAVIEST, LARGEST
from streamcal.recalibrate.online import Compiled, Online, online

# The buffer: the widths so far (events, weight, mean, sum of squares about it), offset, S = sum w (err - alpha), settings.
COUNT, WEIGHT, MEAN, SQUARES, OFFSET, EXCESS, LEVEL, LR, GAIN, SPAN = range(10)
SIZE = 10
FARTHEST = 2.0 * LARGEST  # of an offset: at this one every outcome is covered, or none
NEARLY = 1.0 + 1e-9  # for comparisons of rounded sums
QUARTER_TURN = math.pi / 2.0  # as a float it lies a little below the pole: its tangent is 1.6e16


class RealForecasts(Online):
    """What all online recalibrators of quantile forecasts share: real numbers instead of probabilities."""

    level: float
    _bounds = ("v", "v")

    def details(self) -> dict[str, Any]:
        """``coverage``, the share of y <= forecast: before, after, and what it should be."""
        before, after = (float(s.values("coverage")[0]) for s in (self.compared.before, self.compared.after))
        return {**super().details(), "coverage": {"before": before, "after": after, "nominal": self.level}}

    def _claim(self) -> Quantile:
        return Quantile(self.level)

    def _complaint(self, p: Any, *event: Any) -> str:
        if not event:
            return f"v must lie in [-1e100, 1e100], got {p!r}"
        came = ", ".join(map(repr, (p, *event)))
        return f"v and y must lie in [-1e100, 1e100] and the weight in [0, 1e100], got {came}"


class OnlineQuantile(RealForecasts, Compiled):
    """Those that add something to the base forecast, and report how much.

    The buffer begins with the widths q - v of all events: COUNT, WEIGHT, MEAN, SQUARES.
    """

    def details(self) -> dict[str, Any]:
        """``coverage``, and the ``width`` that it took: mean and standard deviation of what was added to the base forecasts.

        Coverage alone says nothing: forecasts that swing between far too high and far too low cover as often as good ones.
        """
        weight, mean, squares = self._buf[[WEIGHT, MEAN, SQUARES]].tolist()
        return {**super().details(), "width": mean_and_deviation(weight, mean, squares)}


def mean_and_deviation(weight: float, mean: float, squares: float) -> dict[str, float]:
    """What :func:`spread` kept, for a report; nan without weight."""
    weight = weight or math.nan
    return {"mean": mean + 0.0 * weight, "standard_deviation": math.sqrt(max(squares, 0.0) / weight)}


@inlined
def real(v: float) -> bool:
    """Whether a forecast or outcome may be learned."""
    return -LARGEST <= v <= LARGEST


@inlined
def spread(buf: Array, at: int, x: float, w: float) -> None:
    """Add x, w > 0 times, to the COUNT, WEIGHT, MEAN and SQUARES that begin at ``at`` (West 1979: plain squares cancel)."""
    buf[at + COUNT] += 1.0
    buf[at + WEIGHT] += w
    d = x - buf[at + MEAN]
    buf[at + MEAN] += d * (w / buf[at + WEIGHT])
    buf[at + SQUARES] += max(w * d * (x - buf[at + MEAN]), 0.0)  # below 0 by rounding only


@inlined
def _event(buf: Array, v: float, y: float, w: float) -> float:
    width = buf[OFFSET]
    # Without an integral term the gain is 0: no logarithm and no tangent for a plain tracker.
    if buf[GAIN] > 0.0:
        t = buf[WEIGHT]
        angle = buf[EXCESS] * math.log(t + 1.0) / (buf[SPAN] * (t + 1.0))
        width += buf[GAIN] * math.tan(min(max(angle, -QUARTER_TURN), QUARTER_TURN))
    width = min(max(width, -FARTHEST), FARTHEST)
    q = v + width
    if w > 0.0:
        spread(buf, 0, width, w)
        excess = w * ((1.0 if y > q else 0.0) - (1.0 - buf[LEVEL]))
        buf[EXCESS] += excess
        buf[OFFSET] = min(max(buf[OFFSET] + buf[LR] * excess, -FARTHEST), FARTHEST)
    return float(q)


@brief
def tracker_learn(buf: Array, v: float, y: float, w: float) -> float:
    """Predict, and learn if w > 0: see :class:`QuantileTracker`; nan if the event is not allowed."""
    return _event(buf, v, y, w) if real(v) and real(y) and 0.0 <= w <= HEAVIEST else np.nan


@kernel
def _tracker_run(buf: Array, v: Array, y: Array, w: Array, out: Array) -> None:
    for i in range(v.shape[0]):
        out[i] = _event(buf, v[i], y[i], w[i])


@online("quantile-tracker")
class QuantileTracker(OnlineQuantile):
    r"""A base forecast v of the ``level``-quantile plus an offset that is raised after a miss and lowered after a hit.

    .. math:: \hat q_t = v_t + o_t, \quad e_t = 1[y_t > \hat q_t], \quad o_{t+1} = o_t + \eta\, w_t (e_t - \alpha)

    - ``level``: of the quantile, in (0, 1); :math:`\alpha` = 1 - ``level``.
    - ``lr``: :math:`\eta` > 0 in units of y: a miss raises the offset by ``lr * level``, a hit lowers it by ``lr * (1 - level)``.
    - ``integrator``: None, or (K_I, C), both in (0, 1e100]: see below.

    v and y are any numbers in [-1e100, 1e100]; v = 0 is a plain tracker of the quantile of y. Before any event v comes back as it
    is. A weight w is w copies met with one forecast.

    Guarantee, whatever the data, also when y is chosen after the forecast was seen: if all scores y - v lie in [-b, b], then
    after T events (weights 1) :math:`|\mathrm{mean}(e) - \alpha| \le (b + \eta) / (\eta\, T)`, since the sum of
    :math:`e_t - \alpha` is the offset over ``lr``. Weights: with the largest weight times ``lr`` for ``lr`` in the numerator, and
    T the summed weight. In floats: up to the rounding of those sums.

    NOT guaranteed: any of that where lr w is so large that the offset would pass 2e100 (it is held there); coverage over a
    part of the stream, given v, or given anything else; nor that the forecasts are of any use. With labels that come d labels
    late the bound is for forecasts as they would be when their labels come; those that were made can be missed far more often
    (:class:`~streamcal.river.RecalibratedRegressor` has a bound for those). With an ``lr`` as large as the scores the offset
    swings between covering everything and nothing, and the coverage is still met: read the ``width`` beside the ``coverage`` in
    :meth:`report`, and have ``lr`` at a few per cent of the spread of the scores; the bound then needs T well above b / ``lr``.

    ``integrator=(K_I, C)`` adds the integral term of conformal PID control to the offset:

    .. math:: K_I \tan\left(\frac{S_t \ln(t + 1)}{C\,(t + 1)}\right), \quad S_t = \sum_{s \le t} w_s (e_s - \alpha)

    with t the summed weight so far and K_I in units of y. The angle is held within the float pi/2, so that the term saturates at
    1.6e16 K_I, where the paper has infinity; offset and term together are held within 2e100: a forecast is always finite.
    The bound above still holds, as the term has the sign of the offset, and a second one that does not need ``lr``: for scores in
    [-b, b] with b <= 1.6e16 K_I, weights 1 and T >= 3, :math:`|S_T| \le \frac{\pi}{2}\, C\, \frac{T + 1}{\ln(T + 1)} + 1`.
    A small C is a tight bound bought with wild forecasts: they leave the range of y whenever S nears it.

    O(1) per event; the state is 10 numbers. Source: Gibbs, Candes 2021; Angelopoulos, Candes, Tibshirani 2023.

    >>> tracker = QuantileTracker(0.9, lr=0.5)
    >>> for y in [3.0, 1.0, 2.0]:
    ...     tracker.learn_one(0.0, y)
    >>> round(tracker.predict_one(), 6), round(tracker.predict_one(10.0), 6)
    (1.35, 11.35)
    """

    _learn, _run = tracker_learn, _tracker_run

    def __init__(self, level: float = 0.9, lr: float = 0.05, integrator: Sequence[float] | None = None) -> None:
        self.level = check_level(level)
        self.lr = check_number("lr", lr, 0.0, LARGEST, open_below=True)
        self.integrator: tuple[float, float] | None = None
        if integrator is not None:
            if not isinstance(integrator, list | tuple) or len(integrator) != 2:
                raise ValueError(f"integrator must be None or two numbers (K_I, C), got {integrator!r}")
            gain, span = (check_number("K_I and C", x, 0.0, LARGEST, open_below=True) for x in integrator)
            self.integrator = gain, span
        buf = np.zeros(SIZE)
        buf[LEVEL:] = [self.level, self.lr, *(self.integrator or (0.0, 1.0))]
        self._begin(buf)

    def predict_one(self, v: float = 0.0) -> float:
        """The base forecast plus the offset; ValueError unless v lies in [-1e100, 1e100]."""
        return super().predict_one(v)

    def _is_sound(self, buffer: Array) -> bool:
        """Our settings, finite numbers, a whole count, an offset and an excess within their limits."""
        same = (buffer[LEVEL:] == self._buf[LEVEL:]).all() and np.isfinite(buffer).all() and is_spread(buffer[:OFFSET])
        return bool(same and abs(buffer[OFFSET]) <= FARTHEST and abs(buffer[EXCESS]) <= buffer[WEIGHT] * NEARLY)


def is_spread(four: Array) -> bool:
    """Whether these can be what :func:`spread` kept."""
    count, weight, _, squares = four.tolist()
    if count == 0.0:
        return not four.any()
    return bool(count > 0.0 and count % 1.0 == 0.0 and weight > 0.0 and squares >= 0.0)
