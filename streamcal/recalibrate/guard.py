"""A mixture of the raw forecast and any recalibrators that can hardly be worse than the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from streamcal._jit import brief, inlined, kernel, lazily
from streamcal.arrays import Array, one_number
from streamcal.recalibrate.chain import Chain
from streamcal.recalibrate.online import Online, check_online, online, unit
from streamcal.recalibrate.online_newton import OnlinePlatt

NEAREST = 1e-15  # a forecast nearer to 0 or 1 is read as this: its log loss is at most 34.6
# The buffer: settings and the guard's own log loss, then for each of K experts the logarithm of its weight, its log loss, and
# the forecast that is being mixed (which is no part of the state).
EXPERTS, SHARE, LARGEST, OWN_LOSS, HEAD = range(5)


@inlined
def _log_likelihood(q: float, y: float) -> float:
    """ln of q^y (1 - q)^(1 - y)."""
    return y * math.log(q) + (1.0 - y) * math.log1p(-q)


@inlined
def _mixed(buf: Array) -> float:
    """The weighted mean of the experts' forecasts; the largest log weight is 0. nan if one of them is nan."""
    experts = int(buf[EXPERTS])
    total, mean = 0.0, 0.0
    for k in range(experts):
        v, q = math.exp(buf[HEAD + k]), buf[HEAD + 2 * experts + k]
        total += v
        mean += v * min(max(q, NEAREST), 1.0 - NEAREST) if q == q else q
    return mean / total


@inlined
def _weigh(buf: Array, q: float, y: float, w: float) -> None:
    """Bayes: multiply each weight by the likelihood of its expert; then share some of it out."""
    experts, top = int(buf[EXPERTS]), -math.inf
    buf[OWN_LOSS] -= w * _log_likelihood(q, y)
    for k in range(experts):
        forecast = min(max(buf[HEAD + 2 * experts + k], NEAREST), 1.0 - NEAREST)
        gained = w * _log_likelihood(forecast, y)
        buf[HEAD + experts + k] -= gained
        buf[HEAD + k] += gained / buf[LARGEST]
        top = max(top, buf[HEAD + k])
    total = 0.0
    for k in range(experts):
        buf[HEAD + k] -= top
        total += math.exp(buf[HEAD + k])
    share = buf[SHARE]
    if share > 0.0:
        top = -math.inf
        for k in range(experts):
            buf[HEAD + k] = math.log((1.0 - share) * math.exp(buf[HEAD + k]) / total + share / experts)
            top = max(top, buf[HEAD + k])
        for k in range(experts):
            buf[HEAD + k] -= top


@brief
def guard_predict(buf: Array) -> float:
    """The mixture of the forecasts at the end of the buffer; nan if one of them is."""
    return _mixed(buf)


@brief
def guard_learn(buf: Array, y: float, w: float) -> float:
    """The same, then weigh the experts by what came."""
    q = _mixed(buf)
    if w > 0.0:
        _weigh(buf, q, y, w)
    return q


@kernel
def guard_run(buf: Array, forecasts: Array, y: Array, w: Array, out: Array) -> None:
    """Mix and weigh the forecasts (experts, n) of many events in order."""
    experts = int(buf[EXPERTS])
    for i in range(y.shape[0]):
        for k in range(experts):
            buf[HEAD + 2 * experts + k] = forecasts[k, i]
        out[i] = _mixed(buf)
        if w[i] > 0.0:
            _weigh(buf, out[i], y[i], w[i])


@online("guard")
class Guard(Online):
    r"""A mixture of the raw forecast and recalibrators, so that recalibration cannot hurt. Weights by Bayes, in log loss.

    .. math:: q_t = \sum_k v_{t,k} \, q_{t,k}, \qquad v_{t+1,k} \propto v_{t,k} \, q_{t,k}^{y_t} (1 - q_{t,k})^{1 - y_t}

    over K experts: the raw forecast and the given ones, of equal weight at the start. Whatever the data, at every time t and
    for every expert k, the raw one included (``share=0``, weights 1):

    .. math:: \text{log loss of the guard} \le \text{log loss of expert } k + \ln K

    both summed over the whole stream, so the cost of switching recalibration on is at most ln K nats in all. It need not be
    near the best *mixture in time*: when the best expert changes, the old one's lead must first be used up. ``share`` = a in
    (0, 1) gives that part of the weights back to all at every event (fixed share), and for every sequence of experts with S
    changes in T events:

    .. math:: \text{excess} \le \ln K + S \ln \frac{K}{a} + (T - 1 - S) \ln \frac{1}{1 - a + a / K}

    (S = 0: any single expert). Forecasts nearer to 0 or 1 than 1e-15 are read as that, so the raw forecast's own loss can be
    infinite where the guard's is 34.6. A weight w is w times the loss; with weights up to ``max_weight`` = W the excess is at
    most W ln K (a larger weight is a ValueError).

    Not guaranteed: calibration, or being better than the best expert; in practice a mixture often is. In Brier score the
    same weights are usually near the best column, without a bound. Experts are copied; default: online Platt scaling, with
    and without forgetting, and with tracking on top. Cost and state: those of the experts, and a few numbers each.

    Source: Vovk 1990; Herbster, Warmuth 1998 (fixed share).

    >>> guard = Guard()
    >>> for outcome in [0, 0, 1, 0] * 50:
    ...     guard.learn_one(0.9, outcome)
    >>> round(guard.predict_one(0.9), 2)
    0.25
    >>> round(guard.weights["raw"], 3)
    0.0
    """

    settings = ("experts", "share", "max_weight")
    _mix: ClassVar[Callable[..., float]]
    _mix_and_weigh: ClassVar[Callable[..., float]]

    def __init__(self, experts: Sequence[Online] | None = None, share: float = 0.0, max_weight: float = 1.0) -> None:
        if experts is None:
            experts = [OnlinePlatt(), OnlinePlatt(forgetting=0.999), Chain()]
        self.experts = [check_online("every expert", expert) for expert in experts]
        if not self.experts:
            raise ValueError("experts must hold at least one online recalibrator; the raw forecast is always one more")
        self.share, self.max_weight = one_number(share), one_number(max_weight)
        if not 0.0 <= self.share < 1.0:
            raise ValueError(f"share must lie in [0, 1), got {share!r}")
        if not 0.0 < self.max_weight <= 1e100:
            raise ValueError(f"max_weight must lie in (0, 1e100], got {max_weight!r}")
        self._buf = np.zeros(HEAD + 3 * self._size)
        self._buf[[EXPERTS, SHARE, LARGEST]] = self._size, self.share, self.max_weight
        self._compare()

    @property
    def _size(self) -> int:
        return len(self.experts) + 1

    @property
    def names(self) -> list[str]:
        """The experts by name: "raw", and each recalibrator as it is written; a number tells equal ones apart."""
        names: list[str] = ["raw"]
        for expert in map(repr, self.experts):
            again = sum(name == expert or name.startswith(f"{expert} #") for name in names)
            names.append(f"{expert} #{again + 1}" if again else expert)
        return names

    @property
    def weights(self) -> dict[str, float]:
        """The share of each expert in the next forecast; they sum to 1."""
        v = np.exp(self._buf[HEAD : HEAD + self._size])
        return dict(zip(self.names, (v / v.sum()).tolist(), strict=True))

    @property
    def losses(self) -> dict[str, float]:
        """Summed log loss of each expert so far, in nats, and of the guard itself."""
        own = self._buf[HEAD + self._size : HEAD + 2 * self._size].tolist()
        return {**dict(zip(self.names, own, strict=True)), "guard": float(self._buf[OWN_LOSS])}

    def report(self) -> dict[str, Any]:
        """See :meth:`Online.report`; ``experts`` adds the weight and log loss of each, and what the guard lost against it."""
        losses, weights = self.losses, self.weights
        guard = losses.pop("guard")
        experts = [
            {"expert": name, "weight": weights[name], "log_loss": loss, "excess": guard - loss}
            for name, loss in losses.items()
        ]
        bound = self.max_weight * math.log(self._size) if self.share == 0.0 else None
        return {**super().report(), "experts": experts, "log_loss": guard, "bound": bound}

    def _complaint(self, p: Any, y: Any, w: Any) -> str:
        return (
            f"p and y must lie in [0, 1] and the weight in [0, max_weight={self.max_weight:g}], got {p!r}, {y!r}, {w!r}"
        )

    def _allowed(self, p: Array, y: Array, w: Array) -> Any:
        return super()._allowed(p, y, w) & (w <= self.max_weight)

    def _forecast(self, p: float) -> float:
        slots, place = self._buf, HEAD + 2 * self._size
        slots[place] = raw_score(p)
        for expert in self.experts:
            place += 1
            slots[place] = expert._forecast(p)
        return self._mix(slots)

    def _take(self, p: float, y: float, w: float) -> float:
        raw, outcome, weight = raw_score(p), one_number(y), one_number(w)
        if not (raw == raw and 0.0 <= outcome <= 1.0 and 0.0 <= weight <= self.max_weight):
            return math.nan
        slots, place = self._buf, HEAD + 2 * self._size
        slots[place] = raw
        for expert in self.experts:
            place += 1
            slots[place] = expert._take(raw, outcome, weight)
        return self._mix_and_weigh(slots, outcome, weight)

    def _pass(self, p: Array, y: Array, w: Array) -> Array:
        forecasts, out = np.stack([p, *(expert._pass(p, y, w) for expert in self.experts)]), np.empty(p.size)
        guard_run(self._buf, forecasts, y, w, out)
        return out

    def _parts(self) -> list[Any]:
        return list(self.experts)

    def _arrays(self) -> Mapping[str, Array]:
        return {"buffer": self._buf[: HEAD + 2 * self._size]}

    @classmethod
    def _made(cls, settings: dict[str, Any], parts: list[Any]) -> Guard:
        return cls(**{**settings, "experts": parts})

    def _go_on(self, parts: list[Any], arrays: dict[str, Array]) -> None:
        buffer = arrays["buffer"].reshape(-1)
        weights = buffer[HEAD : HEAD + self._size]
        own = HEAD + 2 * self._size
        same = buffer.size == own and np.array_equal(buffer[:OWN_LOSS], self._buf[:OWN_LOSS])
        if not same or np.isnan(buffer).any() or weights.max() != 0.0:
            raise ValueError(f"{buffer.size} numbers do not fit {self!r:.200}")
        self._buf[:own] = buffer


def raw_score(p: Any) -> float:
    """What the raw expert forecasts: p itself, clipped as everywhere, nan where it is not allowed."""
    value = one_number(p)
    return value if 0.0 <= value <= 1.0 else float(unit(value))


lazily(Guard, "_mix", guard_predict)
lazily(Guard, "_mix_and_weigh", guard_learn, 1.0, 1.0)
