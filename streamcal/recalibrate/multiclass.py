"""Recalibrators of class probabilities: one map per class (batch, online, or grown by a River classifier), or one for the
confidence of the top class."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamcal._jit import brief, inlined, lazily
from streamcal.arrays import Array, check_aligned, check_flag, check_whole, numbers
from streamcal.claims import Marginal as MarginalClaim
from streamcal.claims import TopLabel as TopLabelClaim
from streamcal.claims import top_scores
from streamcal.recalibrate.comparison import Comparison
from streamcal.recalibrate.guard import NEAREST
from streamcal.recalibrate.online import Online, check_online
from streamcal.recalibrate.online_newton import OnlinePlatt
from streamcal.recalibrate.recalibrator import Fitted, Recalibrator, check_snapshot, checked, checked_scores, within
from streamcal.snapshot import Snapshot
from streamcal.state import own_copy, restorable
from streamcal.tally import WY


class Multiclass(Fitted, ABC):
    """What both share: a recalibrator as a model, fitted copies of it, and how they are written down.

    The given recalibrator is never fitted itself. How many classes there are is the width of the probabilities, never the
    labels that happen to be in a sample.
    """

    _fit_call = "fit(probs, labels)"
    n_classes_: int

    def __init__(self, recalibrator: Recalibrator) -> None:
        if not isinstance(recalibrator, Recalibrator):
            raise ValueError(f"recalibrator must be a Recalibrator such as PlattScaling(), got {recalibrator!r}")
        self.recalibrator = recalibrator

    def fit(self, probs: npt.ArrayLike, labels: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn from class probabilities (n, classes) and class indices (n,); a weight of 2 is the event twice.

        Returns self. ValueError names the first value that is not allowed, also a label beyond the width of ``probs``.
        """
        check_aligned(probs=probs, labels=labels, sample_weight=sample_weight)
        scores = checked_classes(probs)
        known = checked_labels(labels, scores)
        self._fit(scores, known, weights_of("sample_weight", sample_weight, known))
        self.n_classes_ = scores.shape[1]
        return self

    @abstractmethod
    def _fit(self, probs: Array, labels: Array, w: Array) -> None: ...

    def _checked(self, probs: npt.ArrayLike) -> Array:
        self._check_fitted()
        scores = checked_classes(probs)
        if scores.shape[1] != self.n_classes_:
            raise ValueError(f"probs must have shape (n, {self.n_classes_}), got {scores.shape}")
        return scores

    def _go_on(self, fitted: dict[str, Any]) -> None:
        maps, width = fitted[self.fitted[0]], check_whole("n_classes", fitted["n_classes_"], 2)
        each, wanted = (maps, width) if isinstance(maps, list) else ([maps], 1)
        own = type(self.recalibrator)
        alike = all(type(one) is own and all(hasattr(one, n) for n in one.fitted) for one in each if one)
        if len(each) != wanted or not alike:
            raise ValueError(f"{len(each)} maps are not those of {self!r:.200} for {width} classes")
        super()._go_on(fitted)


def checked_classes(probs: npt.ArrayLike) -> Array:
    """Class probabilities in [0, 1] of shape (n, classes), at least two classes; rows need not sum to one."""
    scores = checked_scores(probs)
    if scores.ndim != 2 or scores.shape[1] < 2:
        raise ValueError(f"probs must have shape (n, classes) with at least two classes, got {scores.shape}")
    return scores


def checked_labels(labels: npt.ArrayLike, scores: Array) -> Array:
    """Class indices of shape (n,); ValueError names the first that is not a whole number in 0..classes - 1."""
    known = numbers("labels", labels, strict=True)
    if known.shape != scores.shape[:1]:
        raise ValueError(f"labels must have shape ({scores.shape[0]},), got {known.shape}")
    good = (known == np.floor(known)) & (known >= 0) & (known < scores.shape[1])
    return checked("labels", f"be class indices in 0..{scores.shape[1] - 1}", known, good)


def weights_of(name: str, w: npt.ArrayLike | None, labels: Array) -> Array:
    """Weights of shape (n,), 1 where there are none."""
    weights = np.ones(labels.size) if w is None else numbers(name, w, strict=True)
    if weights.shape != labels.shape:
        raise ValueError(f"{name} must have shape {labels.shape}, got {weights.shape}")
    return weights


@restorable
class MarginalCalibration(Multiclass):
    r"""One recalibrator per class, on (p_k, 1[label = k]); rows are then brought back to a sum of one.

    .. math:: q_k = m_k(p_k) \, / \, \textstyle\sum_j m_j(p_j)

    A class without an event of positive weight in the sample keeps its raw probability. ``renormalise=False`` leaves out
    the division: each class is then calibrated on its own, but a row need not sum to one. A row whose maps are all 0
    becomes uniform. ``recalibrator`` is copied for every class.

    With many classes most probabilities of a class are near 0, so that a few bins of equal mass put all that matters into one:
    take some 100 bins (``ScalingBinning(100)``), or Platt. Of the two, histogram and isotonic maps can say exactly 0 to a
    label that comes true (log loss: infinite).

    Fitted: ``recalibrators_``, one per class, None for a class that keeps its raw probability. Source: Zadrozny, Elkan
    2002; Kumar, Liang, Ma 2019 (marginal calibration).

    >>> from streamcal.recalibrate.histogram import HistogramBinning
    >>> m = MarginalCalibration(HistogramBinning(1)).fit([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]], [0, 1])
    >>> m.predict([[0.5, 0.3, 0.2]]).round(4).tolist()  # 0.5, 0.5 and the raw 0.2, divided by 1.2
    [[0.4167, 0.4167, 0.1667]]
    """

    fitted = ("recalibrators_", "n_classes_")
    recalibrators_: list[Recalibrator | None]

    def __init__(self, recalibrator: Recalibrator, renormalise: bool = True) -> None:
        super().__init__(recalibrator)
        self.renormalise = check_flag("renormalise", renormalise)

    def _fit(self, probs: Array, labels: Array, w: Array) -> None:
        seen = [bool((w[labels == k] != 0.0).any()) for k in range(probs.shape[1])]
        if not any(seen):  # with a bad weight there is one, and fit names it
            raise ValueError(f"fit needs at least one event of positive weight, got {labels.size} events")
        # A class without an event says nothing of its map; a fit would make its constant 0.
        self.recalibrators_ = [
            copy.deepcopy(self.recalibrator).fit(p, labels == k, w) if seen[k] else None for k, p in enumerate(probs.T)
        ]

    def fit_snapshot(self, snapshot: Snapshot, key: int = 0) -> MarginalCalibration:
        """Learn from a window with ``claim=streamcal.Marginal(n_classes)``, which keeps one key per class by itself.

        If the window has several keys of its own (segments), learn from this one. See :meth:`Recalibrator.fit_snapshot`.
        """
        check_snapshot(snapshot)
        if not isinstance(snapshot.claim, MarginalClaim) or snapshot.keys % snapshot.claim.width:
            raise ValueError(f"the window must have the claim Marginal(n_classes), got {snapshot.claim!r}")
        width = snapshot.claim.width
        first = width * check_whole("key", key, 0, snapshot.keys // width - 1)
        if not snapshot.weight[first : first + width].any():
            raise ValueError("fit needs at least one event of positive weight, got an empty snapshot")
        self.recalibrators_ = [
            # as in _fit: a class that never came keeps its raw probability
            copy.deepcopy(self.recalibrator).fit_snapshot(snapshot[first + k]) if seen > 0 else None
            for k, seen in enumerate(snapshot.total[first : first + width, WY])
        ]
        self.n_classes_ = width
        return self

    def predict(self, probs: npt.ArrayLike) -> Array:
        """Recalibrated class probabilities, shape (n, classes) kept. ValueError before fit or for another width."""
        scores = self._checked(probs)
        out = np.stack([m.predict(p) if m else p for m, p in zip(self.recalibrators_, scores.T, strict=True)], 1)
        return renormalised(out) if self.renormalise else out


def renormalised(q: Array) -> Array:
    """Rows (n, classes) divided by their sum; a row of zeros becomes uniform."""
    total = q.sum(-1, keepdims=True)
    # where() works out both sides: the inner one keeps it from dividing by 0.
    return np.where(total > 0.0, q / np.where(total > 0.0, total, 1.0), 1.0 / q.shape[1])


@restorable
class TopLabelCalibration(Multiclass):
    """One recalibrator for the confidence: the highest class probability against whether that class is the label.

    The first class wins a tie. ``predict`` gives the recalibrated confidence, ``transform`` class probabilities with it.
    ``recalibrator`` is copied. Fitted: ``recalibrator_``. Source: Guo et al. 2017; Kumar, Liang, Ma 2019 (top-label).

    >>> from streamcal.recalibrate.histogram import HistogramBinning
    >>> t = TopLabelCalibration(HistogramBinning(1)).fit([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], [0, 0])
    >>> t.predict([[0.2, 0.6, 0.2]]).tolist(), t.transform([[0.2, 0.6, 0.2]]).tolist()
    ([0.5], [[0.25, 0.5, 0.25]])
    """

    fitted = ("recalibrator_", "n_classes_")
    recalibrator_: Recalibrator

    def _fit(self, probs: Array, labels: Array, w: Array) -> None:
        confidence, correct = top_scores(probs, labels)
        self.recalibrator_ = copy.deepcopy(self.recalibrator).fit(confidence, correct, w)

    def fit_snapshot(self, snapshot: Snapshot, n_classes: int) -> TopLabelCalibration:
        """Learn from a window with ``claim=TopLabel()``, which does not know ``n_classes``: say it."""
        width = check_whole("n_classes", n_classes, 2)
        check_snapshot(snapshot)
        if not isinstance(snapshot.claim, TopLabelClaim):
            raise ValueError(f"the window must have the claim TopLabel(), got {snapshot.claim!r}")
        self.recalibrator_, self.n_classes_ = copy.deepcopy(self.recalibrator).fit_snapshot(snapshot), width
        return self

    def predict(self, probs: npt.ArrayLike) -> Array:
        """Recalibrated confidence of the top class, shape (n,). ValueError before fit or for another width."""
        scores = self._checked(probs)
        return self.recalibrator_.predict(scores.max(-1))

    def transform(self, probs: npt.ArrayLike) -> Array:
        """Class probabilities (n, classes) that sum to one: the top class gets its recalibrated confidence.

        The other classes are scaled to share the rest; if they were all 0 they share it equally. Another class can end up
        on top when the confidence falls far enough.
        """
        scores, confidence = self._checked(probs), self.predict(probs)
        rows, top = np.arange(len(scores)), scores.argmax(-1)
        # The rest keeps its proportions: nothing was learned about the order of the other classes.
        others = scores.copy()
        others[rows, top] = 0.0
        total = others.sum(-1, keepdims=True)
        shares = np.where(total > 0.0, others / np.where(total > 0.0, total, 1.0), 1.0 / (others.shape[1] - 1))
        out = shares * (1.0 - confidence)[:, None]
        out[rows, top] = confidence
        return out

    def _go_on(self, fitted: dict[str, Any]) -> None:
        if fitted["recalibrator_"] is None:  # a class may lack a map, the confidence may not
            raise ValueError("a fitted map of the confidence cannot be None")
        super()._go_on(fitted)


@inlined
def log_loss_of(q: float, y: float) -> float:
    """-ln q^y (1 - q)^(1 - y), a probability below 1e-15 read as that."""
    if y == 0.0:
        q = 1.0 - q
    elif y != 1.0:
        q = min(max(q, NEAREST), 1.0 - NEAREST)
        return -y * math.log(q) - (1.0 - y) * math.log1p(-q)
    return -math.log(min(max(q, NEAREST), 1.0))


@brief
def add_losses(buf: Array, p: float, q: float, y: float, w: float) -> float:
    """Add the weight of an outcome, and its log losses before and after."""
    buf[0] += w
    buf[1] += w * log_loss_of(p, y)
    buf[2] += w * log_loss_of(q, y)
    return 0.0


class Records(list[Any]):
    """What was served, by slot: a slot is used again, or is the next one."""

    def keep(self, slot: int, record: Any) -> None:
        """Put a record into a slot; slot 0 is that of a score that is served to nobody."""
        try:  # nearly always the slot is there; a question first would cost as much as the answer
            self[slot] = record
        except IndexError:
            self.extend([record] * (slot + 1 - len(self)))


class ClassMaps:
    r"""A copy of one online recalibrator for each class, on (p_k, 1[label = k]); a single one stands for two that sum to 1.

    .. math:: q_k = m_k(p_k) \, / \, \textstyle\sum_j m_j(p_j)

    The same interface as :class:`~streamcal.recalibrate.guard.ServedGuard`: classes grow, and what was served is kept by slot.
    What each recalibrator guarantees it guarantees for its class before the division. Reports compare the served forecasts,
    after it.

    >>> maps = ClassMaps(OnlinePlatt())
    >>> for _ in range(3):
    ...     maps.grow()
    >>> maps.serve_row([0.2, 0.3, 0.5], slot=0)
    [0.2, 0.3, 0.5]
    >>> maps.learn(0, 2, 1.0)
    >>> [round(q, 3) for q in maps.serve_row([0.2, 0.3, 0.5], slot=0)]
    [0.192, 0.292, 0.516]
    """

    _lose: ClassVar[Callable[..., float]]

    def __init__(self, template: Online) -> None:
        self.template, self.heaviest = template, template.heaviest
        self.maps: list[Online] = []
        self.losses = np.zeros(3)  # weight of the labels, and their summed log losses before and after
        self._records = Records()  # scores, what each map said, and what was served

    def __repr__(self) -> str:
        return repr(self.template)

    def grow(self) -> None:
        """One class more, which starts with a fresh copy."""
        self.maps.append(own_copy(self.template))

    def serve_two(self, p: float, slot: int) -> float:
        """Forecast of an event of score p; it is kept in this slot until the slot is used again."""
        q = self.maps[0]._serve(p)
        self._records.keep(slot, (p, q))
        return q

    def serve_row(self, scores: Sequence[float], slot: int) -> Sequence[float]:
        """Forecasts of all classes; they are kept in this slot. Scores that no map changes stay as they are."""
        each = self.say(scores)
        # Before anything is learned a classifier's answer comes back as it is, though its sum may differ from 1 by rounding.
        total = sum(each) or math.nan  # a row of zeros becomes uniform
        served = list(scores) if each == scores else [q / total if total > 0.0 else 1.0 / len(each) for q in each]
        self._records.keep(slot, (scores, each, served))
        return served

    def say(self, scores: Sequence[float]) -> list[float]:
        """What the map of each class makes of its score."""
        return [one._serve(p) for one, p in zip(self.maps, scores, strict=True)]

    def learn(self, slot: int, outcome: float, w: float, late: int = 0) -> None:
        """Learn what came where this slot was served: y in [0, 1] for one score, the number of a class for a row.

        ``late`` plays no part. ValueError, and nothing changed, for a weight that the recalibrator does not take.
        """
        record = self._records[slot]
        if len(record) == 3:
            scores, each, served = record
            self.learn_row(scores, each, served, int(outcome), w)
        else:
            p, q = record
            self._learn_one(self.maps[0], p, q, outcome, w, q)
            self._lose(self.losses, p, q, outcome, w)

    def learn_row(self, scores: list[float], each: list[float], served: list[float], label: int, w: float) -> None:
        """Learn that class ``label`` came where each map said ``each`` and ``served`` was given out."""
        # A class that came up after this was served has no score here: its map learns nothing from the event.
        for k, p in enumerate(scores):
            self._learn_one(self.maps[k], p, each[k], 1.0 if k == label else 0.0, w, served[k])
        if label < len(scores):
            self._lose(self.losses, scores[label], served[label], 1.0, w)

    def _learn_one(self, one: Online, p: float, said: float, y: float, w: float, served: float) -> None:
        """Learn an event for which the map said one thing and another was served (the same, if there is no row to divide)."""
        q = one._take_served(p, y, w, said)
        if q != q:
            raise ValueError(one._complaint(p, y, w))
        one.compared.record(p, served, y, w)

    def report(self) -> dict[str, Any]:
        """For each class the report of its recalibrator, and the mean log loss of the labels, below 1e-15 read as that."""
        before, after = (self.losses[1:] / (self.losses[0] or math.nan)).tolist()
        return {"classes": [one.report() for one in self.maps], "log_loss": {"before": before, "after": after}}


lazily(ClassMaps, "_lose", add_losses, 0.5, 0.5, 1.0, 1.0)


class ServedRow(NamedTuple):
    """Class probabilities that were given out, and what the map of each class said for them before they were divided."""

    probs: Array
    each: list[float]


@restorable
class OnlineMarginal(Fitted):
    r"""An online recalibrator for each of ``n_classes`` classes, on (p_k, 1[label = k]); rows then sum to one again.

    .. math:: q_k = m_k(p_k) \, / \, \textstyle\sum_j m_j(p_j)

    - ``recalibrator``: any online recalibrator of probabilities, copied for each class. Default: :class:`OnlinePlatt`.
    - ``n_classes``: how many classes there are, at least 2; declared, never inferred from labels.
    - ``renormalise``: False leaves out the division.

    Before any event: the probabilities as they are (divided by their sum). What each recalibrator guarantees it guarantees for
    its class before the division; nothing is guaranteed for the whole row. With late labels serve by :meth:`serve_one`: a
    :class:`Guard` then weighs its experts by what they said for that row. Source: Zadrozny, Elkan 2002; Kumar, Liang, Ma 2019
    (marginal calibration).

    >>> marginal = OnlineMarginal(n_classes=3)
    >>> marginal.predict_one([0.2, 0.3, 0.5]).round(12).tolist()
    [0.2, 0.3, 0.5]
    >>> for _ in range(50):
    ...     marginal.learn_one([0.2, 0.3, 0.5], 0)
    >>> marginal.predict_one([0.2, 0.3, 0.5]).round(1).tolist()
    [0.7, 0.1, 0.2]
    """

    fitted = ("recalibrators", "_losses")

    def __init__(self, recalibrator: Online | None = None, n_classes: int = 2, renormalise: bool = True) -> None:
        self.recalibrator = OnlinePlatt() if recalibrator is None else check_online("recalibrator", recalibrator)
        self.n_classes = check_whole("n_classes", n_classes, 2)
        self.renormalise = check_flag("renormalise", renormalise)
        self._maps = ClassMaps(self.recalibrator)
        for _ in range(self.n_classes):
            self._maps.grow()

    def __repr__(self) -> str:
        return f"OnlineMarginal({self.recalibrator!r}, {self.n_classes}, renormalise={self.renormalise})"

    @property
    def recalibrators(self) -> list[Online]:
        """The recalibrator of each class."""
        return self._maps.maps

    @property
    def compared(self) -> list[Comparison]:
        """For each class the raw and the served forecasts side by side."""
        return [one.compared for one in self.recalibrators]

    def predict_one(self, probs: npt.ArrayLike) -> Array:
        """Recalibrated class probabilities, shape (n_classes,). ValueError for any other shape, or a value outside [0, 1]."""
        return self.serve_one(probs).probs

    def serve_one(self, probs: npt.ArrayLike) -> ServedRow:
        """The same as ``probs``, with what each map said: give it back to :meth:`learn_one` as ``served=``."""
        row = self._rows(np.asarray(probs)[None])[0].tolist()
        each = self._maps.say(row)
        return ServedRow(self._together(np.array([each], np.float64))[0], each)

    def learn_one(
        self, probs: npt.ArrayLike, label: int, w: float = 1.0, *, served: ServedRow | npt.ArrayLike | None = None
    ) -> None:
        """Learn that class ``label`` (an index) came true where ``probs`` was predicted; ``w`` >= 0, 0 changes nothing.

        ``served``: what :meth:`serve_one` gave then, if the label is late; or the probabilities that were given out, which go
        into the report only.
        """
        rows, known, weights = self._events(np.asarray(probs)[None], [label], [w])
        if served is None:
            self._run(rows, known, weights)
            return
        probs, each = served if isinstance(served, ServedRow) else (served, None)
        given = self._rows(np.asarray(probs)[None])[0].tolist()
        self._maps.learn_row(rows[0].tolist(), each or given, given, int(known[0]), float(weights[0]))

    def run(self, probs: npt.ArrayLike, labels: npt.ArrayLike, w: npt.ArrayLike | None = None) -> Array:
        """Predict and then learn each of n events in order: probabilities (n, n_classes), each before its label was seen.

        ValueError names the first event that is not allowed; then none is learned.
        """
        check_aligned(probs=probs, labels=labels, w=w)
        return self._alone(self._run, *self._events(probs, labels, w))

    def _run(self, rows: Array, known: Array, w: Array) -> Array:
        # Class by class, each in one pass: the same as event by event, as no map looks at another one.
        columns = np.ascontiguousarray(rows.T)
        came = (known == np.arange(self.n_classes)[:, None]).astype(np.float64)
        each = [one._pass(p, y, w) for one, p, y in zip(self.recalibrators, columns, came, strict=True)]
        served = self._together(np.stack(each, 1))
        for compared, p, q, y in zip(self.compared, columns, np.ascontiguousarray(served.T), came, strict=True):
            compared.record_many(p, q, y, w)
        label = np.arange(known.size), known.astype(np.int64)
        self._maps.losses += [w.sum(), *(w @ -np.log(np.clip(q[label], NEAREST, 1.0)) for q in (rows, served))]
        return served

    def _events(self, probs: Any, labels: Any, w: Any) -> tuple[Array, Array, Array]:
        """(probabilities, labels, weights) of n events; ValueError names the first that is not allowed."""
        rows = self._rows(probs)
        known = checked_labels(labels, rows)
        return rows, known, within("w", weights_of("w", w, known), self.recalibrator.heaviest)

    def report(self) -> dict[str, Any]:
        """For each class what :meth:`Online.report` says of its served probabilities, and the mean log loss of the label.

        Probabilities below 1e-15 are read as that in the log loss.
        """
        return {"map": repr(self), **self._maps.report()}

    def _rows(self, probs: npt.ArrayLike) -> Array:
        rows = checked_classes(probs)
        if rows.shape[1] != self.n_classes:
            raise ValueError(f"probs must have {self.n_classes} classes, got shape {rows.shape}")
        return rows

    def _together(self, q: Array) -> Array:
        return renormalised(q) if self.renormalise else q

    @property
    def _losses(self) -> Array:
        return self._maps.losses

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Array]) -> Any:
        if len(config["recalibrators"]) != config["n_classes"]:  # before so many are made
            raise ValueError(f"{len(config['recalibrators'])} parts are not those of {config['n_classes']} classes")
        return super()._restore(config, arrays)

    def _go_on(self, fitted: dict[str, Any]) -> None:
        maps, losses = fitted["recalibrators"], fitted["_losses"]
        like = [(type(one), repr(one)) for one in maps]
        if like != [(type(self.recalibrator), repr(self.recalibrator))] * self.n_classes:
            raise ValueError(f"the document's parts are not those of {self!r:.200}")
        if np.shape(losses) != (3,) or not (losses >= 0.0).all():
            raise ValueError(f"losses must be three numbers, got {losses}")
        self._maps.maps, self._maps.losses = maps, losses.copy()
