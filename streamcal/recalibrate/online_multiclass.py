"""Class probabilities recalibrated online: one online recalibrator per class, rows brought back to a sum of one."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, check_flag, check_same_index, check_whole, numbers
from streamcal.recalibrate.comparison import Comparison
from streamcal.recalibrate.multiclass import checked_classes, checked_labels, renormalised
from streamcal.recalibrate.online import Online, check_online
from streamcal.recalibrate.online_newton import OnlinePlatt
from streamcal.state import Document, parts_document, parts_from, restorable


@restorable
class OnlineMarginal(Document):
    r"""An online recalibrator for each of ``n_classes`` classes, on (p_k, 1[label = k]); rows then sum to one again.

    .. math:: q_k = m_k(p_k) \, / \, \textstyle\sum_j m_j(p_j)

    ``recalibrator`` is copied for each class (default :class:`OnlinePlatt`); the number of classes is declared, never inferred
    from labels. ``renormalise=False`` leaves out the division. Before any event: the probabilities as they are (divided by
    their sum). What each recalibrator guarantees it guarantees for its class before the division; nothing is guaranteed
    for the whole row. Source: Zadrozny, Elkan 2002; Kumar, Liang, Ma 2019 (marginal calibration).

    >>> marginal = OnlineMarginal(n_classes=3)
    >>> marginal.predict_one([0.2, 0.3, 0.5]).round(12).tolist()
    [0.2, 0.3, 0.5]
    >>> for _ in range(50):
    ...     marginal.learn_one([0.2, 0.3, 0.5], 0)
    >>> marginal.predict_one([0.2, 0.3, 0.5]).round(1).tolist()
    [0.7, 0.1, 0.2]
    """

    def __init__(self, recalibrator: Online | None = None, n_classes: int = 2, renormalise: bool = True) -> None:
        self.recalibrator = OnlinePlatt() if recalibrator is None else check_online("recalibrator", recalibrator)
        self.n_classes = check_whole("n_classes", n_classes, 2)
        self.renormalise = check_flag("renormalise", renormalise)
        self.recalibrators = [copy.deepcopy(self.recalibrator) for _ in range(self.n_classes)]
        self.compared = [Comparison() for _ in range(self.n_classes)]
        self._losses = np.zeros(3)  # weight, and the summed log loss of the label before and after

    def __repr__(self) -> str:
        return f"OnlineMarginal({self.recalibrator!r}, {self.n_classes}, renormalise={self.renormalise})"

    def predict_one(self, probs: npt.ArrayLike) -> Array:
        """Recalibrated class probabilities, shape (n_classes,). ValueError for any other shape, or a value outside [0, 1]."""
        row = self._rows(np.asarray(probs)[None])[0]
        q = self._together(np.array([[one.predict_one(p) for one, p in zip(self.recalibrators, row, strict=True)]]))
        return np.asarray(q[0])

    def learn_one(
        self, probs: npt.ArrayLike, label: int, w: float = 1.0, *, served: npt.ArrayLike | None = None
    ) -> None:
        """Learn that class ``label`` (an index) came true where ``probs`` was predicted; ``w`` >= 0, 0 changes nothing.

        ``served``: the probabilities that were given out, if not those of now (delayed labels); for the report only.
        """
        given = None if served is None else self._rows(np.asarray(served)[None])
        rows, known, weights = self._events(np.asarray(probs)[None], [label], [w])
        out = self._learn(rows, known, weights)
        self._record(rows, out if given is None else given, known, weights)

    def run(self, probs: npt.ArrayLike, labels: npt.ArrayLike, w: npt.ArrayLike | None = None) -> Array:
        """Predict and then learn each of n events in order: probabilities (n, n_classes), each before its label was seen.

        ValueError names the first event that is not allowed; then none is learned.
        """
        check_same_index(probs, labels, w)
        rows, known, weights = self._events(probs, labels, w)
        out = self._learn(rows, known, weights)
        self._record(rows, out, known, weights)
        return out

    def _events(
        self, probs: npt.ArrayLike, labels: npt.ArrayLike, w: npt.ArrayLike | None
    ) -> tuple[Array, Array, Array]:
        """(probabilities, labels, weights) of n events; ValueError names the first that is not allowed."""
        rows = self._rows(probs)
        known = checked_labels(labels, rows)
        weights = np.ones(known.size) if w is None else numbers("w", w, strict=True)
        if weights.shape != known.shape:
            raise ValueError(f"w must have shape {known.shape}, got {weights.shape}")
        most = self.recalibrator.heaviest
        bad = np.flatnonzero(~((weights >= 0.0) & (weights <= most)))
        if bad.size:
            raise ValueError(f"w must lie in [0, {most:g}], got {weights[bad[0]]} at index {bad[0]}")
        return rows, known, weights

    def _learn(self, rows: Array, known: Array, w: Array) -> Array:
        """What each class's recalibrator made of its column before it learned, together."""
        each = zip(self.recalibrators, rows.T, range(self.n_classes), strict=True)
        columns = [one._pass(np.ascontiguousarray(p), (known == k).astype(np.float64), w) for one, p, k in each]
        return self._together(np.stack(columns, 1))

    def _record(self, rows: Array, served: Array, known: Array, w: Array) -> None:
        for k, compared in enumerate(self.compared):
            pair = np.ascontiguousarray(rows[:, k]), np.ascontiguousarray(served[:, k])
            compared.record_many(*pair, (known == k).astype(np.float64), w)
        label = np.arange(known.size), known.astype(np.int64)
        self._losses += w.sum(), _log_loss(rows[label], w), _log_loss(served[label], w)

    def report(self) -> dict[str, Any]:
        """For each class what :meth:`Online.report` says of its served probabilities, and the mean log loss of the label.

        With it the details of each class's recalibrator, such as the experts of a guard.
        """
        before, after = (self._losses[1:] / (self._losses[0] or math.nan)).tolist()
        return {
            "map": repr(self),
            "classes": [
                {**compared.report(), **one.details()}
                for compared, one in zip(self.compared, self.recalibrators, strict=True)
            ],
            "log_loss": {"before": before, "after": after},
        }

    def _rows(self, probs: npt.ArrayLike) -> Array:
        rows = checked_classes(probs)
        if rows.shape[1] != self.n_classes:
            raise ValueError(f"probs must have {self.n_classes} classes, got shape {rows.shape}")
        return rows

    def _together(self, q: Array) -> Array:
        return renormalised(q) if self.renormalise else q

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        parts, arrays = parts_document([self.recalibrator, *self.recalibrators, *self.compared])
        return {"n_classes": self.n_classes, "renormalise": self.renormalise, "parts": parts}, {
            **arrays,
            "losses": self._losses,
        }

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Array]) -> OnlineMarginal:
        if len(config["parts"]) != 1 + 2 * check_whole("n_classes", config["n_classes"], 2):
            raise ValueError(f"{len(config['parts'])} parts are not those of {config['n_classes']} classes")
        template, *parts = parts_from(config["parts"], arrays)
        made = cls(template, config["n_classes"], config["renormalise"])
        maps, compared = parts[: made.n_classes], parts[made.n_classes :]
        fits = [type(one) is type(template) and repr(one) == repr(template) for one in maps]
        if not all(fits) or [type(one) for one in compared] != [Comparison] * made.n_classes:
            raise ValueError(f"the document's parts are not those of {made!r:.200}")
        losses = arrays["losses"].reshape(-1)
        if losses.size != 3 or not (losses >= 0.0).all():
            raise ValueError(f"losses must be three numbers, got {losses}")
        made.recalibrators, made.compared, made._losses = maps, compared, losses
        return made


def _log_loss(q: Array, w: Array) -> float:
    """Summed -ln q, infinite where a label of some weight had probability 0."""
    used = w > 0.0
    with np.errstate(divide="ignore"):
        return float(-(w[used] @ np.log(q[used])))
