"""A mixture of the raw forecast and recalibrators that can hardly be worse than the best of them: one rule for any experts, for
one probability or a row of them, with labels that come at once or late.

:class:`Guard` asks any experts for one probability; :class:`ServedGuard` has four compiled ones for each class and is the default
of the River adapters. Both begin their buffer alike (:class:`Weights`) and share the kernels that mix and weigh.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from streamcal._jit import brief, inlined, kernel, lazily
from streamcal.arrays import Array, one_number
from streamcal.binning import EqualWidth
from streamcal.claims import check_level
from streamcal.limits import HEAVIEST, unit
from streamcal.recalibrate.comparison import Comparison, compare_one
from streamcal.recalibrate.histogram import OnlineHistogram, histogram_learn
from streamcal.recalibrate.online import Online, check_online, online, part
from streamcal.recalibrate.online_newton import OnlinePlatt, platt_learn
from streamcal.recalibrate.refit import Chain
from streamcal.windows import Cumulative

USUAL = ("platt", "forgetting", "tracking")
# A forecast nearer to 0 or 1 is read as this: its log loss is at most 34.5, so that no expert is lost for good, and 1 - 1e-15 is
# still another number than 1.
NEAREST = 1e-15
# A label that comes so many labels late moves the weights half as much; with prompt labels it plays no part.
PATIENCE = 10.0

# The buffer begins with these numbers, then for each of K experts: its weight at the start, now, its log loss, and (if nothing is
# shared) the logarithm of its weight, of which the largest is 0. Only a ServedGuard has the last three numbers of the head.
EXPERTS, SHARE, LARGEST, CLIP, EVENTS, TOTAL, OWN_LOSS, CLASSES, RECORDS, STRIDE, HEAD = range(11)
# A served record: how many classes it has (PAIR: one probability, which stands for two classes), events learned when it was made,
# the mixture's forecasts of the classes, and those of every expert.
RECORD_CLASSES, RECORD_AT, FORECASTS = range(3)
PAIR = 0


class Weights:
    """Named views of a guard's buffer, by the layout above."""

    def __init__(self, buf: Array, experts: int) -> None:
        self.buf = buf
        self.start, self.weights, self.losses, self.logs = buf[HEAD : HEAD + 4 * experts].reshape(4, experts)
        self.settings = buf[: CLIP + 1]
        self.counts = buf[EVENTS : OWN_LOSS + 1]

    @property
    def now(self) -> Array:
        """The weights, brought to a sum of one."""
        return np.asarray(self.weights / self.weights.sum())

    def begin(self, share: float, largest: float, clip: float, raw: float) -> None:
        """Before any event: this weight for the raw forecast, the others share the rest."""
        size = self.start.size
        self.settings[:] = size, share, largest, clip
        self.start[:] = [raw] + [(1.0 - raw) / (size - 1)] * (size - 1)
        self.logs[:] = np.log(self.start) - np.log(self.start).max()
        self.weights[:] = self.start if share else np.exp(self.logs)

    def experts(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """For each expert its weight, summed log loss, the mixture's excess over it, and the bound of that for prompt labels."""
        share, largest, events = self.settings[1], self.settings[2], self.counts[0]
        shared = max(float(events) - 1.0, 0.0) * -np.log1p(-share * (1.0 - self.start))
        bounds = largest * (shared - np.log(self.start))
        excess = self.buf[OWN_LOSS] - self.losses
        columns = zip(names, self.now.tolist(), self.losses.tolist(), excess.tolist(), bounds.tolist(), strict=True)
        return [dict(zip(("expert", "weight", "log_loss", "excess", "bound"), row, strict=True)) for row in columns]


@inlined
def row_sum(buf: Array, row: int, classes: int) -> float:
    """What a row of forecasts is divided by; a PAIR sums to 1 as it is. 0: the row says nothing, and is read as equal shares."""
    if classes == PAIR:
        return 1.0
    total = 0.0
    for k in range(classes):
        total += buf[row + k]
    return total


@inlined
def mix(buf: Array, experts: int, record: int, classes: int) -> None:
    """Write the weighted mean of the experts' rows, each brought to a sum of one, before them."""
    buf[record + RECORD_CLASSES], buf[record + RECORD_AT] = classes, buf[EVENTS]
    own, n, weights, both = record + FORECASTS, max(classes, 1), HEAD + experts, 0.0
    for k in range(n):
        buf[own + k] = 0.0
    for j in range(experts):
        row = own + n + j * n
        total = row_sum(buf, row, classes)
        both += buf[weights + j]
        v = buf[weights + j] / (total if total > 0.0 else n)
        for k in range(n):
            buf[own + k] += v * (buf[row + k] if total > 0.0 else 1.0)
    for k in range(n):
        buf[own + k] = min(buf[own + k] / both, 1.0)  # above 1 by rounding only


@inlined
def log_likelihood(buf: Array, row: int, classes: int, outcome: float) -> float:
    """ln of what a row of forecasts gave the class that came; of a PAIR, of q^y (1 - q)^(1 - y)."""
    if classes == PAIR:
        q = min(max(buf[row], NEAREST), 1.0 - NEAREST)
        if outcome == 1.0:
            return math.log(q)
        return math.log1p(-q) if outcome == 0.0 else outcome * math.log(q) + (1.0 - outcome) * math.log1p(-q)
    total = row_sum(buf, row, classes)
    q = buf[row + int(outcome)] / total if total > 0.0 else 1.0 / classes
    return math.log(min(max(q, NEAREST), 1.0))


@inlined
def weigh(buf: Array, experts: int, record: int, outcome: float, w: float, late: float) -> None:
    """Bayes: multiply each weight by the likelihood of what its expert served, the later the label the less; then share some."""
    classes, own, share = int(buf[record + RECORD_CLASSES]), record + FORECASTS, buf[SHARE]
    n, weights, losses, logs = max(classes, 1), HEAD + experts, HEAD + 2 * experts, HEAD + 3 * experts
    buf[LARGEST] = max(buf[LARGEST], w)
    buf[TOTAL] += w
    buf[OWN_LOSS] -= w * log_likelihood(buf, own, classes, outcome)
    # All labels that are on their way tell of the same old weights: each moves them less. A rate w / patience / LARGEST above 1
    # would lose the bound (mixability).
    patience = 1.0 + (late + buf[EVENTS] - buf[record + RECORD_AT]) / PATIENCE
    total, top = 0.0, -math.inf
    for j in range(experts):
        gained = w * log_likelihood(buf, own + n + j * n, classes, outcome)
        buf[losses + j] -= gained
        gained /= buf[LARGEST] * patience
        if share > 0.0:
            buf[weights + j] *= math.exp(gained)
            total += buf[weights + j]
        else:  # nothing lifts a weight: one that fell to e^-2000 must be able to come back
            buf[logs + j] += gained
            top = max(top, buf[logs + j])
    for j in range(experts):
        if share > 0.0:
            buf[weights + j] = (1.0 - share) * buf[weights + j] / total + share * buf[HEAD + j]
        else:
            buf[logs + j] -= top
            buf[weights + j] = math.exp(buf[logs + j])


@brief
def guard_learn(buf: Array, y: float, w: float, was_served: float) -> float:
    """The mixture of the forecasts in the record (nan if one is), or of one served before; then weigh the experts, if w > 0."""
    experts = int(buf[EXPERTS])
    record = HEAD + 4 * experts
    if not was_served:
        for j in range(experts):
            at, near = record + FORECASTS + 1 + j, NEAREST if j == 0 else buf[CLIP]
            if buf[at] != buf[at]:
                return np.nan
            buf[at] = min(max(buf[at], near), 1.0 - near)
        mix(buf, experts, record, PAIR)
    q = float(buf[record + FORECASTS])
    if w > 0.0:
        weigh(buf, experts, record, y, w, 0.0)
        buf[EVENTS] += 1.0
    return q


@kernel
def guard_run(buf: Array, forecasts: Array, y: Array, w: Array, out: Array) -> None:
    """Mix and weigh the forecasts (experts, n) of many events in order."""
    first = HEAD + 4 * int(buf[EXPERTS]) + FORECASTS + 1
    for i in range(y.shape[0]):
        buf[first : first + forecasts.shape[0]] = forecasts[:, i]
        out[i] = guard_learn(buf, y[i], w[i], 0.0)


class ServedForecast(float):
    """A forecast of a :class:`Guard`, and what each expert said for it: ``learn_one(p, y, served=it)`` weighs them by that."""

    record: Array


@online("guard")
class Guard(Online):
    r"""A mixture of the raw forecast and recalibrators, so that recalibration cannot hurt. Weights by Bayes, in log loss.

    .. math:: q_t = \sum_k v_{t,k} \, q_{t,k}, \qquad v_{t+1,k} = (1 - a) \frac{v_{t,k} \, \ell_{t,k}^{\,r_t}}
              {\sum_j v_{t,j} \, \ell_{t,j}^{\,r_t}} + a \, v_{1,k}, \qquad \ell = q^{y} (1 - q)^{1 - y}, \qquad
              r_t = \frac{w_t}{W} \, \frac{1}{1 + d_t / 10}

    over K experts: the raw forecast and the given ones. d is how many other labels were learned between a forecast and its own
    label: 0 for prompt labels. With late labels serve by :meth:`serve_one` and pass what it gave as ``served=``: then l is that
    of the forecasts that were served, and the weights move slowly. With a plain number as ``served``, and in a guard that is
    part of another map, experts are weighed by what they would say *now*, which favours those that follow the last labels most
    closely: log loss .75, raw .72, by what was served .69, where concepts are redrawn every 2,500 events and labels are 1,000
    late (tests/river/test_one_guard.py).

    - ``experts``: online recalibrators of probabilities, copied. Default: "platt", online Platt scaling; "forgetting", the same
      with ``forgetting=.999``; "tracking", the first with the running means of ten bins on top.
    - ``names``: what they are called in :attr:`weights` and the report; without it each is called as it is written.
    - ``raw_weight``: weight v_1 of the raw forecast at the start, in (0, 1), the others share the rest; None: 1 / K each.
    - ``share``: a in [0, 1), the part of the weights that is given back at every event in the proportions of the start.
    - ``max_weight``: W in (0, 1e100], the largest weight of an event; a larger one is a ValueError.
    - ``clip``: a forecast of an expert nearer to 0 or 1 is read as this, in [1e-15, .1].

    Guarantee, whatever the data, for prompt labels, at every time T and for every expert k, the raw one included (``share=0``,
    weights 1), both summed over the whole stream:

    .. math:: \text{log loss of the guard} \le \text{log loss of expert } k + \ln (1 / v_{1,k})

    So recalibration costs at most ln K nats in all, ln 4 = 1.39 for the default; they can be spent at once, in the first hundred
    events. With ``raw_weight=.9`` it is ln(1 / .9) = .11 nats, and a good recalibrator is followed a few events later.

    When the best expert changes, the old one's lead must first be used up. With ``share`` = a > 0, for every sequence of experts
    that begins with k and has S changes, each to an expert of weight v_1 or more at the start, in T events (S = 0: any single
    expert):

    .. math:: \text{excess} \le \ln \frac{1}{v_{1,k}} + S \ln \frac{1}{a \, v_1} + (T - 1 - S) \ln \frac{1}{1 - a + a \, v_1}

    Raw forecasts nearer to 0 or 1 than 1e-15 are read as that, so the raw forecast's own loss can be infinite where the guard's
    is 34.5. An expert that says exactly 0 or 1, as histogram and isotonic maps do, and is wrong once, loses 34.5 nats with the
    default clip and seldom comes back; with ``clip=.001`` it is 6.9. With weights up to W all excesses are W times as large.

    Not guaranteed: anything with late labels (an adversary gains without bound, real streams little); calibration (ECE can rise
    where log loss falls); being better than the best expert, though in practice a mixture often is; any bound in Brier score,
    where the same weights are usually near the best expert. Cost and state: those of the experts, and a few numbers each.

    Source: Vovk 1990; Herbster, Warmuth 1998 (fixed share); Joulani, Gyorgy, Szepesvari 2013 (late labels). Weighing by served
    forecasts and r are ours.

    >>> guard = Guard()
    >>> for outcome in [0, 0, 1, 0] * 50:
    ...     served = guard.serve_one(0.9)
    ...     guard.learn_one(0.9, outcome, served=served)
    >>> round(guard.predict_one(0.9), 2)
    0.26
    >>> round(guard.weights["raw"], 3)
    0.0
    """

    # Mixability: with r <= 1, -ln sum v l <= -(1/r) ln sum v l^r. With r = 1 and one expert alone on the right the sum telescopes
    # to ln(1/v_1), and each event gives away at most a (1 - v_1) of that expert's weight.

    fitted = ("compared", "_learned")
    _weigh: ClassVar[Callable[..., float]]

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
            allowed = "a list of at least one online recalibrator (the raw forecast is always one more)"
            raise ValueError(f"experts must be {allowed}, got {experts!r:.80}")
        self.experts = [check_online("every expert", expert) for expert in experts]
        self.names = None if names is None else _checked_names(names, len(self.experts))
        self.raw_weight = None if raw_weight is None else check_level(raw_weight, "raw_weight")
        self.share, self.max_weight, self.clip = one_number(share), one_number(max_weight), one_number(clip)
        if not 0.0 <= self.share < 1.0:
            raise ValueError(f"share must lie in [0, 1), got {share!r}")
        if not 0.0 < self.max_weight <= HEAVIEST:
            raise ValueError(f"max_weight must lie in (0, 1e100], got {max_weight!r}")
        self.heaviest = self.max_weight
        for expert in self.experts:
            if expert.heaviest < self.max_weight:
                raise ValueError(
                    f"max_weight must be at most that of every expert, got {max_weight!r} for {expert!r:.80}"
                )
        if not NEAREST <= self.clip <= 0.1:  # .1: log losses of 2.3 and less would all be the same
            raise ValueError(f"clip must lie in [{NEAREST:g}, 0.1], got {clip!r}")
        size = len(self.experts) + 1
        self._record = HEAD + 4 * size
        self._buf = np.zeros(self._record + FORECASTS + 1 + size)
        raw = 1.0 / size if self.raw_weight is None else self.raw_weight
        self._weights.begin(self.share, self.max_weight, self.clip, raw)
        self._compare()

    @property
    def _weights(self) -> Weights:
        return Weights(self._buf, len(self.experts) + 1)

    @property
    def expert_names(self) -> list[str]:
        """The experts by name, "raw" first: as given, or as each is written; a number tells equal ones apart."""
        names = ["raw", *(self.names or [])]
        for expert in map(repr, () if self.names else self.experts):
            again = sum(name == expert or name.startswith(f"{expert} #") for name in names)
            names.append(f"{expert} #{again + 1}" if again else expert)
        return names

    @property
    def weights(self) -> dict[str, float]:
        """The share of each expert in the next forecast; they sum to 1."""
        return dict(zip(self.expert_names, self._weights.now.tolist(), strict=True))

    @property
    def losses(self) -> dict[str, float]:
        """Summed log loss of each expert so far, in nats, and of the guard itself."""
        names, each = [*self.expert_names, "guard"], [*self._weights.losses.tolist(), float(self._buf[OWN_LOSS])]
        return dict(zip(names, each, strict=True))

    def details(self) -> dict[str, Any]:
        """``experts``: weight, log loss, the guard's excess over it, and its bound (for a single expert); the guard's log loss.

        The bound is for labels that come before the next forecast.
        """
        return {"experts": self._weights.experts(self.expert_names), "log_loss": float(self._buf[OWN_LOSS])}

    def serve_one(self, p: float) -> ServedForecast:
        """The same number as :meth:`predict_one`, with what each expert said: give it back to ``learn_one`` as ``served=``."""
        return self._kept(self.predict_one(p))

    def _serve(self, p: float) -> float:
        return self._kept(self._forecast(p))

    def _kept(self, q: float) -> ServedForecast:
        served = ServedForecast(q)
        served.record = self._buf[self._record :].copy()
        return served

    def _forecast(self, p: float) -> float:
        buf, at = self._buf, self._record + FORECASTS + 1
        buf[at] = raw_score(p)
        for expert in self.experts:
            at += 1
            buf[at] = expert._forecast(p)
        return self._weigh(buf, 0.0, 0.0, 0.0)

    def _take(self, p: float, y: float, w: float) -> float:
        return self._take_served(p, y, w, math.nan)

    def _take_served(self, p: float, y: float, w: float, served: float) -> float:
        raw, outcome, weight = raw_score(p), one_number(y), one_number(w)
        if not (raw == raw and 0.0 <= outcome <= 1.0 and 0.0 <= weight <= self.max_weight):
            return math.nan
        buf, at = self._buf, self._record + FORECASTS + 1
        if type(served) is ServedForecast:
            for expert in self.experts:
                expert._take(raw, outcome, weight)
            buf[self._record :] = served.record
            return self._weigh(buf, outcome, weight, 1.0)
        buf[at] = raw
        for expert in self.experts:
            at += 1
            buf[at] = expert._take(raw, outcome, weight)
        return self._weigh(buf, outcome, weight, 0.0)

    def _pass(self, p: Array, y: Array, w: Array) -> Array:
        forecasts, out = np.stack([p, *(expert._pass(p, y, w) for expert in self.experts)]), np.empty(p.size)
        guard_run(self._buf, forecasts, y, w, out)
        return out

    _learned = part(lambda self: slice(self._record), "The buffer but the record, which is no part of the state.")

    def _go_on(self, fitted: dict[str, Any]) -> None:
        buffer, own = fitted["_learned"].reshape(-1), self._weights
        fits = buffer.size == self._record and not np.isnan(buffer).any()
        new = Weights(buffer, own.start.size) if fits else own
        fits = fits and np.array_equal(new.settings, own.settings) and np.array_equal(new.start, own.start)
        if not fits or new.logs.max() != 0.0 or not 0.0 <= new.weights.min() <= new.weights.max() <= 1.0:
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


# A ServedGuard's buffer goes on with these parts for each class: two Platt maps, the bins that make the first of them a chain,
# and the comparison of what was served. Then the served records, one for each slot.
K = 1 + len(USUAL)
FIRST_CLASS = HEAD + 4 * K
PARTS = [
    OnlinePlatt()._buf,
    OnlinePlatt(forgetting=0.999)._buf,
    OnlineHistogram(Cumulative(EqualWidth(10)))._buf,
    Comparison()._buf,
]
PLATT, FORGETTING, TRACKING, BLOCK = (int(end) for end in np.cumsum([part.size for part in PARTS]))
# The raw scores' weight at the start: they cost ln 1.25 nats at most. A wrapper is put around a classifier without a trial, so
# that doing no harm counts more than the .1 nats or so that equal weights would gain in the first events.
RAW_WEIGHT = 0.8
# Given back at every event: a weight that was lost is back within some thousand events, for 1e-4 nats an event.
CLASS_SHARE = 5e-4


@inlined
def _record(buf: Array, slot: float) -> int:
    """Where the served record of a slot begins."""
    return int(buf[RECORDS]) + int(slot) * int(buf[STRIDE])


@brief
def served_guard_serve(buf: Array, p: float, slot: float, is_row: float) -> float:
    """Ask the experts about the score p, or about those of all classes, which stand as the raw expert's row; the first forecast.

    Before any event scores are served as they are.
    """
    record, classes = _record(buf, slot), int(buf[CLASSES]) if is_row else PAIR
    own, n = record + FORECASTS, max(classes, 1)
    if not is_row:
        buf[own + 1] = p
    for k in range(n):
        block, at = FIRST_CLASS + BLOCK * k, own + n + k
        first = platt_learn(buf[block : block + PLATT], buf[at], 0.0, 0.0)  # a weight of 0 learns nothing
        buf[at + n] = first
        buf[at + 2 * n] = platt_learn(buf[block + PLATT : block + FORGETTING], buf[at], 0.0, 0.0)
        buf[at + 3 * n] = histogram_learn(buf[block + FORGETTING : block + TRACKING], first, 0.0, 0.0)
    mix(buf, K, record, classes)
    if buf[EVENTS] == 0.0:
        buf[own : own + n] = buf[own + n : own + 2 * n]
    return float(buf[own])


@brief
def served_guard_learn(buf: Array, slot: float, outcome: float, w: float, late: float) -> float:
    """Learn what came where a record was served. If it does not know that class, only that the others did not come."""
    record = _record(buf, slot)
    classes = int(buf[record + RECORD_CLASSES])
    n = max(classes, 1)
    if w > 0.0 and (classes == PAIR or outcome < classes):
        weigh(buf, K, record, outcome, w, late)
    for k in range(n):
        block, at = FIRST_CLASS + BLOCK * k, record + FORECASTS + n + k
        y = outcome if classes == PAIR else 1.0 if outcome == k else 0.0
        compare_one(buf[block + TRACKING : block + BLOCK], buf[at], buf[at - n], y, w)
        platt_learn(buf[block : block + PLATT], buf[at], y, w)
        platt_learn(buf[block + PLATT : block + FORGETTING], buf[at], y, w)
        histogram_learn(buf[block + FORGETTING : block + TRACKING], buf[at + n], y, w)
    if w > 0.0:
        buf[EVENTS] += 1.0
    return 0.0


class ServedGuard:
    r"""The guard of all classes of a model together, compiled: the default recalibrator of the River adapters.

    The rule and the four experts of :class:`Guard`, for each class, with l the probability of the class that came, raw weight .8,
    ``share`` 5e-4, and W the largest weight so far (at least 1); "tracking" has prior 1. With more than two classes each expert
    makes a row of probabilities, brought to a sum of one. A class that was in no row when its score was served weighs nobody.
    What was served is kept by slot, a number from 0 on, until the slot is used again. For a score that is predicted again for its
    label, d is the number of scores that wait.

    Guarantee: with labels that come before the next forecast (d = 0) and weights 1, whatever the data and at every time T, the
    log loss of the labels is at most that of the raw scores plus ln 1.25 + 1.0001e-4 T nats (that of any other expert plus
    ln 15 + 4.7e-4 T), probabilities below 1e-15 read as that. With late labels nothing is guaranteed. On streams whose concept is
    redrawn every 4,000 events, labels 1,000 late, experts judged by what they would say *now* cost a logistic regression 5 %
    more log loss than raw; judged by what they served, and slowly, it was 2 % less (bench/river_streams.py).

    Not guaranteed: calibration. Before any event: the scores as they are. O(classes) per event. State: 446 numbers for each
    class, and for each score that waits for its label 2, and 5 for each class.

    >>> guard = ServedGuard()
    >>> guard.grow()
    >>> for came in [0, 0, 1, 0] * 50:
    ...     _ = guard.serve_two(0.9, slot=0)
    ...     guard.learn(0, came, 1.0)
    >>> round(guard.serve_two(0.9, slot=0), 2)
    0.26
    """

    heaviest = HEAVIEST
    _serve: ClassVar[Callable[..., float]]
    _learn: ClassVar[Callable[..., float]]

    def __init__(self) -> None:
        self._buf, self._slots = np.zeros(FIRST_CLASS), 2
        self._weights.begin(CLASS_SHARE, 1.0, NEAREST, RAW_WEIGHT)
        self._lay_out(0, self._slots)

    def __repr__(self) -> str:
        return "ServedGuard()"

    @property
    def _weights(self) -> Weights:
        return Weights(self._buf, K)

    def grow(self) -> None:
        """One class more, which starts with the identity; a single one stands for two that sum to 1."""
        self._lay_out(1, self._slots)

    def _lay_out(self, more: int, slots: int) -> None:
        """Make room for more classes, or for more records."""
        buf = self._buf
        old, n = int(buf[CLASSES]), int(buf[CLASSES]) + more
        first, stride = FIRST_CLASS + BLOCK * old, FORECASTS + (1 + K) * n
        records, before = np.zeros((slots, stride)), buf[first:].reshape(-1, max(int(buf[STRIDE]), 1))
        records[: len(before), : before.shape[1]] = before
        self._buf = np.concatenate([buf[:first], *(PARTS * more), records.ravel()])
        self._buf[[CLASSES, RECORDS, STRIDE]] = n, FIRST_CLASS + BLOCK * n, stride
        self._slots = slots

    def serve_two(self, p: float, slot: int) -> float:
        """Forecast of an event of score p; the record of it is kept in this slot."""
        if slot >= self._slots:
            self._lay_out(0, 2 * slot)
        return self._serve(self._buf, p, slot, 0.0)

    def serve_row(self, scores: Sequence[float], slot: int) -> Sequence[float]:
        """Forecasts of all classes; the record of them is kept in this slot."""
        if slot >= self._slots:
            self._lay_out(0, 2 * slot)
        buf, n = self._buf, len(scores)
        at, form = 8 * (int(buf[RECORDS]) + slot * int(buf[STRIDE]) + FORECASTS), f"{n}d"
        struct.pack_into(form, buf.data, at + 8 * n, *scores)
        self._serve(buf, 0.0, slot, 1.0)
        return struct.unpack_from(form, buf.data, at)

    def learn(self, slot: int, outcome: float, w: float, late: int = 0) -> None:
        """Learn what came where the record of this slot was served: y in [0, 1] for one score, the number of a class for a row.

        ``w`` >= 0, 0 changes nothing. ``late``: how many labels later than the record says, if it was made again for the label.
        """
        self._learn(self._buf, slot, outcome, w, late)

    @property
    def weights(self) -> dict[str, float]:
        """The share of each expert in the next forecast; they sum to 1."""
        return dict(zip(("raw", *USUAL), self._weights.now.tolist(), strict=True))

    def report(self) -> dict[str, Any]:
        """For each class its served forecasts before and after, mean log loss of the labels, and the experts behind them.

        ``excess`` and ``bound`` of the experts (see :meth:`Guard.details`) are sums.
        """
        classes, total = [], float(self._buf[TOTAL]) or math.nan
        for k in range(int(self._buf[CLASSES])):
            compared = Comparison()
            compared._buf[:] = self._buf[FIRST_CLASS + BLOCK * k + TRACKING : FIRST_CLASS + BLOCK * (k + 1)]
            classes.append({"map": repr(self), **compared.report()})
        experts = [{**e, "log_loss": e["log_loss"] / total} for e in self._weights.experts(("raw", *USUAL))]
        log_loss = {"before": experts[0]["log_loss"], "after": float(self._buf[OWN_LOSS]) / total}
        return {"classes": classes, "log_loss": log_loss, "experts": experts}


lazily(Guard, "_weigh", guard_learn, 1.0, 1.0, 0.0)
lazily(ServedGuard, "_serve", served_guard_serve, 0.5, 0.0, 0.0)
lazily(ServedGuard, "_learn", served_guard_learn, 0.0, 0.0, 1.0, 0.0)
