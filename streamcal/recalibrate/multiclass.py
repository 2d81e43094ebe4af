"""Recalibrators of class probabilities: one map per class, or one for the confidence of the top class."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, check_flag, check_same_index, check_whole, numbers
from streamcal.claims import Marginal as MarginalClaim
from streamcal.claims import TopLabel as TopLabelClaim
from streamcal.claims import top_scores
from streamcal.recalibrate.recalibrator import Recalibrator, check_snapshot, checked_scores
from streamcal.snapshot import Snapshot
from streamcal.state import Document, parts_document, parts_from, restorable
from streamcal.tally import WY

M = TypeVar("M", bound="Multiclass")


class Multiclass(Document):
    """What both share: a recalibrator as a model, fitted copies of it, and how they are written down.

    The given recalibrator is never fitted itself. How many classes there are is the width of the probabilities, never the
    labels that happen to be in a sample.
    """

    settings: ClassVar[tuple[str, ...]] = ("recalibrator",)

    def __init__(self, recalibrator: Recalibrator) -> None:
        if not isinstance(recalibrator, Recalibrator):
            raise ValueError(f"recalibrator must be a Recalibrator such as PlattScaling(), got {recalibrator!r}")
        self.recalibrator = recalibrator

    def fit(self: M, probs: npt.ArrayLike, labels: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> M:
        """Learn from class probabilities (n, classes) and class indices (n,); a weight of 2 is the event twice.

        Returns self. ValueError names the first value that is not allowed, also a label beyond the width of ``probs``.
        """
        check_same_index(probs, labels, sample_weight)
        scores = checked_classes(probs)
        known = checked_labels(labels, scores)
        weights = np.ones(known.size) if sample_weight is None else numbers("sample_weight", sample_weight, strict=True)
        if weights.shape != known.shape:
            raise ValueError(f"sample_weight must have shape {known.shape}, got {weights.shape}")
        self._fit(scores, known, weights)
        self.n_classes_ = scores.shape[1]
        return self

    def _fit(self, probs: Array, labels: Array, w: Array) -> None:
        raise AssertionError("each learns in its own way")  # pragma: no cover

    def _checked(self, probs: npt.ArrayLike) -> Array:
        if not hasattr(self, "n_classes_"):
            raise ValueError(f"{type(self).__name__} is not fitted; call fit(probs, labels) first")
        scores = checked_classes(probs)
        if scores.shape[1] != self.n_classes_:
            raise ValueError(f"probs must have shape (n, {self.n_classes_}), got {scores.shape}")
        return scores

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{s}={getattr(self, s)!r}' for s in self.settings)})"

    @property
    def _maps(self) -> list[Recalibrator | None]:
        """The fitted copies; None for a class that keeps its raw probability."""
        raise AssertionError("each has its own")  # pragma: no cover

    def _take(self, maps: list[Recalibrator | None]) -> None:
        raise AssertionError("each has its own")  # pragma: no cover

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        maps = self._maps if hasattr(self, "n_classes_") else []
        parts, arrays = parts_document([self.recalibrator, *maps])
        config = {s: getattr(self, s) for s in self.settings if s != "recalibrator"}
        return {**config, "recalibrators": parts, "n_classes": getattr(self, "n_classes_", None)}, arrays

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Array]) -> Any:
        recalibrator: Any
        recalibrator, *maps = parts_from(config.pop("recalibrators"), arrays)
        n_classes = config.pop("n_classes")
        made = cls(recalibrator, **config)
        if n_classes is not None:
            made.n_classes_ = check_whole("n_classes", n_classes, 2)
            if len(maps) != made._count() or not all(_is_fitted(one, recalibrator) for one in maps):
                raise ValueError(f"{len(maps)} maps are not those of {made!r:.200} for {n_classes} classes")
            made._take(maps)
        return made

    def _count(self) -> int:
        """How many maps a fitted one has."""
        raise AssertionError("each has its own")  # pragma: no cover


def _is_fitted(one: Any, template: Recalibrator) -> bool:
    """Whether it is a fitted copy of the template, or None for a class that keeps its raw probability."""
    return one is None or (type(one) is type(template) and all(hasattr(one, name) for name in one.fitted))


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
    bad = np.flatnonzero(~((known == np.floor(known)) & (known >= 0) & (known < scores.shape[1])))
    if bad.size:
        raise ValueError(
            f"labels must be class indices in 0..{scores.shape[1] - 1}, got {known[bad[0]]} at index {bad[0]}"
        )
    return known


@restorable
class MarginalCalibration(Multiclass):
    r"""One recalibrator per class, on (p_k, 1[label = k]); rows are then brought back to a sum of one.

    .. math:: q_k = m_k(p_k) \, / \, \textstyle\sum_j m_j(p_j)

    A class without an event of positive weight in the sample keeps its raw probability. ``renormalise=False`` leaves out
    the division: each class is then calibrated on its own, but a row need not sum to one. A row whose maps are all 0
    becomes uniform. ``recalibrator`` is copied for every class.

    With many classes most probabilities of a class are near 0, so that a few rows of equal mass put all that matters into one:
    take some 100 rows (``ScalingBinning(100)``), or Platt. Of the two, histogram and isotonic maps can say exactly 0 to a
    label that comes true (log loss: infinite).

    Fitted: ``recalibrators_``, one per class, None for a class that keeps its raw probability. Source: Zadrozny, Elkan
    2002; Kumar, Liang, Ma 2019 (marginal calibration).

    >>> from streamcal.recalibrate.histogram import HistogramBinning
    >>> m = MarginalCalibration(HistogramBinning(1)).fit([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]], [0, 1])
    >>> m.predict([[0.5, 0.3, 0.2]]).round(4).tolist()  # 0.5, 0.5 and the raw 0.2, divided by 1.2
    [[0.4167, 0.4167, 0.1667]]
    """

    settings: ClassVar[tuple[str, ...]] = ("recalibrator", "renormalise")
    recalibrators_: list[Recalibrator | None]

    def __init__(self, recalibrator: Recalibrator, renormalise: bool = True) -> None:
        super().__init__(recalibrator)
        self.renormalise = check_flag("renormalise", renormalise)

    def _fit(self, probs: Array, labels: Array, w: Array) -> None:
        self.recalibrators_ = [
            copy.deepcopy(self.recalibrator).fit(probs[:, k], labels == k, w) if seen else None
            for k, seen in enumerate(_seen(labels, w, probs.shape[1]))
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
            copy.deepcopy(self.recalibrator).fit_snapshot(snapshot[first + k]) if seen > 0 else None
            for k, seen in enumerate(snapshot.total[first : first + width, WY])
        ]
        self.n_classes_ = width
        return self

    def predict(self, probs: npt.ArrayLike) -> Array:
        """Recalibrated class probabilities, shape (n, classes) kept. ValueError before fit or for another width."""
        scores = self._checked(probs)
        columns = [p if m is None else m.predict(p) for m, p in zip(self.recalibrators_, scores.T, strict=True)]
        out = np.stack(columns, 1)
        return renormalised(out) if self.renormalise else out

    @property
    def _maps(self) -> list[Recalibrator | None]:
        return self.recalibrators_

    def _count(self) -> int:
        return int(self.n_classes_)

    def _take(self, maps: list[Recalibrator | None]) -> None:
        self.recalibrators_ = maps


def _seen(labels: Array, w: Array, n_classes: int) -> list[bool]:
    """Whether each class has an event of positive weight; ValueError if none has (or let fit name the bad weight)."""
    seen = [bool((w[labels == k] != 0.0).any()) for k in range(n_classes)]
    if not any(seen):
        raise ValueError(f"fit needs at least one event of positive weight, got {labels.size} events")
    return seen


def renormalised(q: Array) -> Array:
    """Rows (n, classes) divided by their sum; a row of zeros becomes uniform."""
    total = q.sum(-1, keepdims=True)
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
        self.recalibrator_ = copy.deepcopy(self.recalibrator).fit_snapshot(snapshot)
        self.n_classes_ = width
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
        scores = self._checked(probs)
        rows, top = np.arange(len(scores)), scores.argmax(-1)
        confidence = self.recalibrator_.predict(scores.max(-1))
        others = scores.copy()
        others[rows, top] = 0.0
        total = others.sum(-1, keepdims=True)
        flat = np.ones_like(others) / (others.shape[1] - 1)
        out = np.where(total > 0.0, others / np.where(total > 0.0, total, 1.0), flat) * (1.0 - confidence)[:, None]
        out[rows, top] = confidence
        return out

    @property
    def _maps(self) -> list[Recalibrator | None]:
        return [self.recalibrator_]

    def _count(self) -> int:
        return 1

    def _take(self, maps: list[Recalibrator | None]) -> None:
        if maps[0] is None:
            raise ValueError("a fitted map of the confidence cannot be None")
        self.recalibrator_ = maps[0]


# the names by which issue and users know them inside this room; the claims of the same names are streamcal.Marginal, ...
Marginal, TopLabel = MarginalCalibration, TopLabelCalibration
