"""A mixture of the raw forecast and any recalibrators that can hardly be worse than the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from streamcal._jit import brief, inlined, kernel, lazily
from streamcal.arrays import Array, one_number
from streamcal.claims import check_level
from streamcal.recalibrate.chain import Chain
from streamcal.recalibrate.online import Online, check_online, online
from streamcal.recalibrate.online_newton import OnlinePlatt
from streamcal.tally import COUNT, unit

USUAL = ("platt", "forgetting", "tracking")
NEAREST = 1e-15  # a forecast nearer to 0 or 1 is read as this: its log loss is at most 34.6
# The buffer: settings and the guard's own log loss, then for each of K experts the logarithm of its weight, its log loss, and
# the forecast that is being mixed (which is no part of the state).
EXPERTS, SHARE, LARGEST, CLIP, OWN_LOSS, HEAD = range(6)


@inlined
def _log_likelihood(q: float, y: float) -> float:
    """ln of q^y (1 - q)^(1 - y)."""
    return y * math.log(q) + (1.0 - y) * math.log1p(-q)


@inlined
def _read(buf: Array, k: int) -> float:
    """Forecast of expert k as it is read: the raw one (k = 0) and a recalibrator each have their clip. nan stays nan."""
    q, near = buf[HEAD + 2 * int(buf[EXPERTS]) + k], NEAREST if k == 0 else buf[CLIP]
    return float(min(max(q, near), 1.0 - near) if q == q else q)


@inlined
def _mixed(buf: Array) -> float:
    """The weighted mean of the experts' forecasts; the largest log weight is 0. nan if one of them is nan."""
    experts = int(buf[EXPERTS])
    total, mean = 0.0, 0.0
    for k in range(experts):
        v = math.exp(buf[HEAD + k])
        total += v
        mean += v * _read(buf, k)
    return mean / total


@inlined
def _weigh(buf: Array, q: float, y: float, w: float) -> None:
    """Bayes: multiply each weight by the likelihood of its expert; then share some of it out."""
    experts, top = int(buf[EXPERTS]), -math.inf
    buf[OWN_LOSS] -= w * _log_likelihood(q, y)
    for k in range(experts):
        gained = w * _log_likelihood(_read(buf, k), y)
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

    over K experts: the raw forecast and the given ones, of weight v_1 = 1/K each at the start. Whatever the data, at every time
    t and for every expert k, the raw one included (``share=0``, weights 1):

    .. math:: \text{log loss of the guard} \le \text{log loss of expert } k + \ln (1 / v_{1,k})

    both summed over the whole stream, so the cost of switching recalibration on is at most ln K nats in all: ln 4 = 1.39 for the
    default. They can be spent at once, in the first hundred events, when nobody knows yet who is right. ``raw_weight`` = r gives
    the raw forecast that weight at the start, and the rest to the others in equal parts: then it is ln(1 / r) nats at most, .11
    for r = .9, and a good recalibrator is followed a few events later.

    The mixture need not be near the best *mixture in time*: when the best expert changes, the old one's lead must first be used
    up. ``share`` = a in (0, 1) gives that part of the weights back to all at every event (fixed share), and for every sequence
    of experts, the first of them k, with S changes in T events:

    .. math:: \text{excess} \le \ln \frac{1}{v_{1,k}} + S \ln \frac{K}{a} + (T - 1 - S) \ln \frac{1}{1 - a + a / K}

    (S = 0: any single expert). Raw forecasts nearer to 0 or 1 than 1e-15 are read as that, so the raw forecast's own loss can be
    infinite where the guard's is 34.6; those of recalibrators as at least ``clip`` from 0 and 1. One that says exactly 0 or 1,
    as histogram and isotonic maps do, and is wrong once, loses 34.5 nats with the default clip and seldom comes back; with
    ``clip=.001`` it is 6.9. A weight w is w times the loss; with weights up to ``max_weight`` = W all excesses are W times as
    large at most (a larger weight is a ValueError).

    Not guaranteed: anything when labels come late (see :class:`~streamcal.recalibrate.Online`; an adversary gains without
    bound, real streams little); calibration (ECE can rise where log loss falls); being better than the best expert, though in
    practice a mixture often is. In Brier score the same weights are usually near the best expert, without a bound. Experts
    are copied. Default: "platt", online Platt scaling; "forgetting", the same with ``forgetting=.999``; "tracking", the first
    with the running means of ten rows on top. ``names`` names them in :attr:`weights` and the report; without it each is called
    as it is written. Cost and state: those of the experts, and a few numbers each.

    Source: Vovk 1990; Herbster, Warmuth 1998 (fixed share).

    >>> guard = Guard()
    >>> for outcome in [0, 0, 1, 0] * 50:
    ...     guard.learn_one(0.9, outcome)
    >>> round(guard.predict_one(0.9), 2)
    0.26
    >>> round(guard.weights["raw"], 3)
    0.0
    """

    settings = ("experts", "names", "raw_weight", "share", "max_weight", "clip")
    fitted = ("compared", "_learned")
    _mix: ClassVar[Callable[..., float]]
    _mix_and_weigh: ClassVar[Callable[..., float]]

    def __init__(
        self,
        experts: Sequence[Online] | None = None,
        names: Sequence[str] | None = None,
        raw_weight: float | None = None,
        share: float = 0.0,
        max_weight: float = 1.0,
        clip: float = NEAREST,
    ) -> None:
        if experts is None:
            experts, names = [OnlinePlatt(), OnlinePlatt(forgetting=0.999), Chain()], list(names or USUAL)
        if not isinstance(experts, list | tuple) or not experts:
            raise ValueError(
                "experts must be a list of at least one online recalibrator (the raw forecast is always one more), "
                f"got {experts!r:.80}"
            )
        self.experts = [check_online("every expert", expert) for expert in experts]
        self.names = None if names is None else _checked_names(names, len(self.experts))
        self.raw_weight = None if raw_weight is None else check_level(raw_weight, "raw_weight")
        self.share, self.max_weight, self.clip = one_number(share), one_number(max_weight), one_number(clip)
        if not 0.0 <= self.share < 1.0:
            raise ValueError(f"share must lie in [0, 1), got {share!r}")
        if not 0.0 < self.max_weight <= 1e100:
            raise ValueError(f"max_weight must lie in (0, 1e100], got {max_weight!r}")
        self.heaviest = self.max_weight
        light = [expert for expert in self.experts if expert.heaviest < self.max_weight]
        if light:
            raise ValueError(
                f"max_weight must be at most that of every expert, got {max_weight!r} for {light[0]!r:.80}"
            )
        if not NEAREST <= self.clip <= 0.1:
            raise ValueError(f"clip must lie in [{NEAREST:g}, 0.1], got {clip!r}")
        self._buf = np.zeros(HEAD + 3 * self._size)
        self._buf[:OWN_LOSS] = self._size, self.share, self.max_weight, self.clip
        first = np.log(self._first_weights())
        self._buf[HEAD : HEAD + self._size] = first - first.max()
        self._compare()

    def _first_weights(self) -> Array:
        """Weight of each expert before any event, shape (K,)."""
        raw = 1.0 / self._size if self.raw_weight is None else self.raw_weight
        return np.concatenate([[raw], np.full(self._size - 1, (1.0 - raw) / (self._size - 1))])

    @property
    def _size(self) -> int:
        return len(self.experts) + 1

    @property
    def expert_names(self) -> list[str]:
        """The experts by name, "raw" first: as given, or as each is written; a number tells equal ones apart."""
        names: list[str] = ["raw"]
        if self.names:
            return names + self.names
        for expert in map(repr, self.experts):
            again = sum(name == expert or name.startswith(f"{expert} #") for name in names)
            names.append(f"{expert} #{again + 1}" if again else expert)
        return names

    @property
    def weights(self) -> dict[str, float]:
        """The share of each expert in the next forecast; they sum to 1."""
        v = np.exp(self._buf[HEAD : HEAD + self._size])
        return dict(zip(self.expert_names, (v / v.sum()).tolist(), strict=True))

    @property
    def losses(self) -> dict[str, float]:
        """Summed log loss of each expert so far, in nats, and of the guard itself."""
        own = self._buf[HEAD + self._size : HEAD + 2 * self._size].tolist()
        return {**dict(zip(self.expert_names, own, strict=True)), "guard": float(self._buf[OWN_LOSS])}

    def details(self) -> dict[str, Any]:
        """``experts``: weight, log loss, the guard's excess over it, and its bound (for a single expert); the guard's log loss.

        The bound is for labels that come before the next forecast.
        """
        losses, weights = self.losses, self.weights
        guard, events = losses.pop("guard"), float(self.compared.window.cells[0, :-1, COUNT].sum())
        kept = 1.0 - self.share + self.share / self._size
        shared = max(events - 1.0, 0.0) * -math.log(kept)
        bounds = self.max_weight * (shared - np.log(self._first_weights()))
        experts = [
            {"expert": name, "weight": weights[name], "log_loss": loss, "excess": guard - loss, "bound": float(bound)}
            for (name, loss), bound in zip(losses.items(), bounds, strict=True)
        ]
        return {"experts": experts, "log_loss": guard}

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

    @property
    def _learned(self) -> Array:
        """The settings, the weights and the losses: the buffer but the forecasts of the last event."""
        return self._buf[: HEAD + 2 * self._size]

    @_learned.setter
    def _learned(self, learned: Array) -> None:
        self._buf[: HEAD + 2 * self._size] = learned.reshape(-1)

    def _go_on(self, fitted: dict[str, Any]) -> None:
        buffer = fitted["_learned"].reshape(-1)
        weights = buffer[HEAD : HEAD + self._size]
        same = buffer.size == HEAD + 2 * self._size and np.array_equal(buffer[:OWN_LOSS], self._buf[:OWN_LOSS])
        if not same or np.isnan(buffer).any() or weights.max() != 0.0:
            raise ValueError(f"{buffer.size} numbers do not fit {self!r:.200}")
        super()._go_on(fitted)


def _checked_names(names: Sequence[str], n: int) -> list[str]:
    found = [names] if isinstance(names, str) else list(names)
    if len(found) != n or not all(isinstance(name, str) for name in found) or len({*found, "raw", "guard"}) != n + 2:
        raise ValueError(f"names must hold {n} different names, not raw or guard, got {names!r:.120}")
    return found


def raw_score(p: Any) -> float:
    """What the raw expert forecasts: p itself, clipped as everywhere, nan where it is not allowed."""
    value = one_number(p)
    return value if 0.0 <= value <= 1.0 else float(unit(value))


lazily(Guard, "_mix", guard_predict)
lazily(Guard, "_mix_and_weigh", guard_learn, 1.0, 1.0)
