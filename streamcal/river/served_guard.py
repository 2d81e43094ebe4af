"""The default recalibrator of a classifier: a guard whose experts are weighed by what they said when the score was served."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from streamcal._jit import brief, inlined, lazily
from streamcal.arrays import Array
from streamcal.binning import EqualWidth
from streamcal.recalibrate import OnlineHistogram, OnlinePlatt
from streamcal.recalibrate.comparison import Comparison, compare_one
from streamcal.recalibrate.guard import NEAREST
from streamcal.recalibrate.histogram import histogram_learn, histogram_predict
from streamcal.recalibrate.online_newton import platt_learn, platt_predict
from streamcal.tally import MAX_WEIGHT
from streamcal.windows import Cumulative

EXPERTS = ("raw", "platt", "forgetting", "tracking")  # as in the Guard
K = len(EXPERTS)
RAW = 0.8  # weight of the raw forecast at the start; the others share the rest
SHARE = 5e-4  # of the weights, given back at every event in the proportions of the start
PATIENCE = 10.0  # a label that comes so many labels late moves the weights half as much

# The head of the buffer: classes, where the slips begin and how long each is, events learned, largest weight seen, sum of the
# weights, log loss; then the experts' weights and log losses.
CLASSES, SLIPS, STRIDE, EVENTS, LARGEST, TOTAL, OWN_LOSS, WEIGHTS, LOSSES = 0, 1, 2, 3, 4, 5, 6, 7, 7 + K
HEAD = 7 + 2 * K
# Then for each class two Platt maps, the rows that make the first of them a chain, and what was served.
BLOCK = [
    OnlinePlatt()._buf,
    OnlinePlatt(forgetting=0.999)._buf,
    OnlineHistogram(Cumulative(EqualWidth(10)))._buf,
    Comparison()._buf,
]
P1, P2, H, END = (int(end) for end in np.cumsum([part.size for part in BLOCK]))
# Then a slip for each score that waits for its label: classes (PAIR: one that stands for two) and events learned when it was
# served, the forecasts of the classes, and those of every expert.
SERVED_CLASSES, SERVED_AT, FORECASTS = range(3)
PAIR = 0


@inlined
def _start_weight(j: int) -> float:
    return RAW if j == 0 else (1.0 - RAW) / (K - 1)


@inlined
def _slip(buf: Array, place: float) -> int:
    """Where the slip of a place begins."""
    return int(buf[SLIPS]) + int(place) * int(buf[STRIDE])


@inlined
def _experts(buf: Array, slip: int, n: int, k: int) -> None:
    """Write down what each expert makes of the score of class k, which stands there as what the first one says."""
    block, at = HEAD + END * k, slip + FORECASTS + n + k
    first = platt_predict(buf[block : block + P1], buf[at])
    buf[at + n] = first
    buf[at + 2 * n] = platt_predict(buf[block + P1 : block + P2], buf[at])
    buf[at + 3 * n] = histogram_predict(buf[block + P2 : block + H], first)


@inlined
def _sum(buf: Array, row: int, classes: int) -> float:
    """What a row of forecasts is divided by; a PAIR sums to 1 as it is."""
    total = 0.0
    for k in range(classes):
        total += buf[row + k]
    return total if total > 0.0 else 1.0


@inlined
def _serve(buf: Array, slip: int, classes: int) -> None:
    """Ask the experts, and write the weighted mean of their rows before them; before any event the scores as they are."""
    buf[slip + SERVED_CLASSES], buf[slip + SERVED_AT] = classes, buf[EVENTS]
    own, n = slip + FORECASTS, max(classes, 1)
    for k in range(n):
        _experts(buf, slip, n, k)
        buf[own + k] = buf[own + n + k] if buf[EVENTS] == 0.0 else 0.0
    if buf[EVENTS] > 0.0:
        for j in range(K):
            row = own + n + j * n
            v = buf[WEIGHTS + j] / _sum(buf, row, classes)
            for k in range(n):
                buf[own + k] += v * buf[row + k]
        for k in range(n):
            buf[own + k] = min(buf[own + k], 1.0)


@brief
def serve_two(buf: Array, p: float, place: float) -> float:
    """The forecast of the first of two classes, whose score is p."""
    slip = _slip(buf, place)
    buf[slip + FORECASTS + 1] = p
    _serve(buf, slip, PAIR)
    return float(buf[slip + FORECASTS])


@brief
def serve_row(buf: Array, place: float) -> float:
    """The forecasts of all classes, whose scores stand where the raw expert's forecasts do."""
    _serve(buf, _slip(buf, place), int(buf[CLASSES]))
    return 0.0


@inlined
def _likelihood(buf: Array, row: int, classes: int, label: int) -> float:
    """What a row of forecasts gave the label."""
    q = abs(label - buf[row]) if classes == PAIR else buf[row + label] / _sum(buf, row, classes)
    return float(min(max(q, NEAREST), 1.0))


@inlined
def _weigh(buf: Array, slip: int, classes: int, label: int, w: float, late: float) -> None:
    """Multiply each weight by the likelihood of what its expert said, the later the label the less; then share some out."""
    own, n, total = slip + FORECASTS, max(classes, 1), 0.0
    buf[LARGEST] = max(buf[LARGEST], w)
    buf[TOTAL] += w
    buf[OWN_LOSS] -= w * math.log(_likelihood(buf, own, classes, label))
    rate = w / buf[LARGEST] / (1.0 + (late + buf[EVENTS] - buf[slip + SERVED_AT]) / PATIENCE)
    for j in range(K):
        likelihood = _likelihood(buf, own + n + j * n, classes, label)
        gained = math.log(likelihood)
        buf[LOSSES + j] -= w * gained
        buf[WEIGHTS + j] *= likelihood if rate == 1.0 else math.exp(rate * gained)
        total += buf[WEIGHTS + j]
    for j in range(K):
        buf[WEIGHTS + j] = (1.0 - SHARE) * buf[WEIGHTS + j] / total + SHARE * _start_weight(j)


@brief
def learn(buf: Array, place: float, label: float, w: float, late: float) -> float:
    """Learn which class came where a slip was written. If it does not know that class, only that the others did not."""
    slip = _slip(buf, place)
    classes, came = int(buf[slip + SERVED_CLASSES]), int(label)
    n = max(classes, 1)
    if w > 0.0 and (classes == PAIR or came < classes):
        _weigh(buf, slip, classes, came, w, late)
    for k in range(n):
        block, at, y = HEAD + END * k, slip + FORECASTS + n + k, 1.0 if came == k else 0.0
        compare_one(buf[block + H : block + END], buf[at], buf[at - n], y, w)
        platt_learn(buf[block : block + P1], buf[at], y, w)
        platt_learn(buf[block + P1 : block + P2], buf[at], y, w)
        histogram_learn(buf[block + P2 : block + H], buf[at + n], y, w)
    if w > 0.0:
        buf[EVENTS] += 1.0
    return 0.0


class ServedGuard:
    r"""A guard for all classes together, which weighs each expert by what it said when the score was served.

    Four experts: the scores as they are ("raw"); :class:`~streamcal.recalibrate.OnlinePlatt` for each class ("platt"); the same
    with ``forgetting=.999`` ("forgetting"); and the first with the running means of ten rows, prior 1, on top ("tracking"). With
    more than two classes each makes a row of probabilities, brought to a sum of one. A label that was in no row when its score
    was served weighs nobody. Then, with :math:`\ell` the probability of the label:

    .. math:: q_t = \sum_k v_{t,k} \, q_{t,k}, \qquad
              v_{t+1,k} = (1 - a) \frac{v_{t,k} \, \ell_{t,k}^{\,r}}{\sum_j v_{t,j} \, \ell_{t,j}^{\,r}} + a \, v_{1,k}, \qquad
              r = \frac{w_t}{W_t} \, \frac{1}{1 + d_t / 10}

    v_1 is .8 for raw and 1/15 for each other expert, a = 5e-4, W the largest weight so far (at least 1), and d_t how many other
    labels came between the forecast and its label. For a score that was predicted again, d_t is the number of scores that wait.

    Guarantee: with labels that come before the next forecast (d = 0) and weights 1, whatever the data and at every time T, the
    log loss of the labels is at most that of the raw scores plus ln 1.25 + 1.0001e-4 T nats (that of any other expert plus
    ln 15 + 4.7e-4 T), probabilities below 1e-15 read as that. With late labels nothing is guaranteed. A guard whose experts are
    judged by what they would say *now* favours those that follow the last labels most closely, and those are out of date when
    the label comes: on streams whose concept is redrawn every 4,000 events, labels 1,000 late, it cost a logistic regression
    5 % more log loss than raw. Judged by what they served, and slowly, it was 2 % less (bench/river_streams.py).

    Not guaranteed: calibration. Before any event: the scores as they are. O(classes) per event. State: 446 numbers for each
    class, and for each score that waits for its label 2, and 5 for each class. Source: Vovk 1990; Herbster, Warmuth 1998
    (fixed share); Joulani, Gyorgy, Szepesvari 2013 (late labels). Weighing by served forecasts and r are ours.

    >>> guard = ServedGuard()
    >>> guard.grow()
    >>> for came in [False, False, True, False] * 50:
    ...     _ = guard.serve_two(0.9, place=0)
    ...     guard.learn(0, 0 if came else 1, 1.0)
    >>> round(guard.serve_two(0.9, place=0), 2)
    0.26
    """

    # Mixability: with r <= 1, -ln sum v q(label) <= -(1/r) ln sum v q(label)^r. With r = 1 and the raw expert alone on the right
    # the sum telescopes to ln(1/v_1), and each event gives away at most a (1 - v_1) of the raw expert's weight.

    heaviest = MAX_WEIGHT
    _two: ClassVar[Callable[..., float]]
    _row: ClassVar[Callable[..., float]]
    _learn: ClassVar[Callable[..., float]]

    def __init__(self) -> None:
        self._capacity = 2  # slips
        self._buf = np.zeros(HEAD)
        self._buf[LARGEST] = 1.0
        self._buf[WEIGHTS : WEIGHTS + K] = [_start_weight(j) for j in range(K)]
        self._lay_out(0, self._capacity)

    def __repr__(self) -> str:
        return "ServedGuard()"

    def grow(self) -> None:
        """One class more, which starts with the identity; a single one stands for two that sum to 1."""
        self._lay_out(1, self._capacity)

    def _lay_out(self, more: int, capacity: int) -> None:
        """Make room for more classes, or for more slips."""
        buf = self._buf
        old, n = int(buf[CLASSES]), int(buf[CLASSES]) + more
        first, stride = HEAD + END * old, FORECASTS + (1 + K) * n
        slips, before = np.zeros((capacity, stride)), buf[first:].reshape(-1, max(int(buf[STRIDE]), 1))
        slips[: len(before), : before.shape[1]] = before
        self._buf = np.concatenate([buf[:first], *(BLOCK * more), slips.ravel()])
        self._buf[[CLASSES, SLIPS, STRIDE]] = n, HEAD + END * n, stride
        self._capacity = capacity

    def serve_two(self, p: float, place: int) -> float:
        """Forecast of the first of two classes; what it came from is kept at this place until another one takes it."""
        if place >= self._capacity:
            self._lay_out(0, 2 * place)
        return self._two(self._buf, p, place)

    def serve_row(self, scores: Sequence[float], place: int) -> Sequence[float]:
        """Forecasts of all classes; what they came from is kept at this place until another one takes it."""
        if place >= self._capacity:
            self._lay_out(0, 2 * place)
        buf, n = self._buf, len(scores)
        at, form = 8 * (int(buf[SLIPS]) + place * int(buf[STRIDE]) + FORECASTS), f"{n}d"
        struct.pack_into(form, buf.data, at + 8 * n, *scores)
        self._row(buf, place)
        return struct.unpack_from(form, buf.data, at)

    def learn(self, place: int, label: int, w: float, late: int = 0) -> None:
        """Learn that the class with this number came where the forecast of this place was served; w >= 0, 0 changes nothing.

        ``late``: how many labels later than the forecast at this place says, if that one was made again for the label.
        """
        self._learn(self._buf, place, label, w, late)

    @property
    def weights(self) -> dict[str, float]:
        """The share of each expert in the next forecast; they sum to 1."""
        return dict(zip(EXPERTS, self._buf[WEIGHTS : WEIGHTS + K].tolist(), strict=True))

    def report(self) -> dict[str, Any]:
        """For each class its served forecasts before and after, mean log loss of the labels, and the experts behind them."""
        classes, total = [], float(self._buf[TOTAL]) or math.nan
        for k in range(int(self._buf[CLASSES])):
            compared = Comparison()
            compared._buf[:] = self._buf[HEAD + END * k + H : HEAD + END * (k + 1)]
            classes.append({"map": repr(self), **compared.report()})
        losses = self._buf[LOSSES : LOSSES + K]
        return {
            "classes": classes,
            "log_loss": {"before": float(losses[0]) / total, "after": float(self._buf[OWN_LOSS]) / total},
            "experts": [
                {"expert": name, "weight": weight, "log_loss": loss / total}
                for (name, weight), loss in zip(self.weights.items(), losses.tolist(), strict=True)
            ],
        }


lazily(ServedGuard, "_two", serve_two, 0.5, 0.0)
lazily(ServedGuard, "_row", serve_row, 0.0)
lazily(ServedGuard, "_learn", learn, 0.0, 0.0, 1.0, 0.0)
