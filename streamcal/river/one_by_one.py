"""A copy of one online recalibrator for each class of a classifier, with the scores that wait for their labels."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

from streamcal.recalibrate import Online
from streamcal.recalibrate.guard import NEAREST


class OneByOne:
    r"""One recalibrator per class on (p_k, 1[label = k]), rows brought to a sum of one; a single one for two classes.

    .. math:: q_k = m_k(p_k) \, / \, \textstyle\sum_j m_j(p_j)

    The same interface as :class:`~streamcal.river.served_guard.ServedGuard`. What each recalibrator guarantees it guarantees
    for its class before the division. Reports compare the served forecasts, after it.

    >>> from streamcal.recalibrate import OnlinePlatt
    >>> maps = OneByOne(OnlinePlatt())
    >>> for _ in range(3):
    ...     maps.grow()
    >>> maps.serve_row([0.2, 0.3, 0.5], place=0)
    [0.2, 0.3, 0.5]
    >>> maps.learn(0, 2, 1.0)
    >>> [round(q, 3) for q in maps.serve_row([0.2, 0.3, 0.5], place=0)]
    [0.192, 0.292, 0.516]
    """

    def __init__(self, template: Online) -> None:
        self.template, self.heaviest = template, template.heaviest
        self.maps: list[Online] = []
        self._slips: list[Any] = [None]  # by place: score and forecast, or those of all classes
        self._total, self._losses = 0.0, [0.0, 0.0]

    def __repr__(self) -> str:
        return repr(self.template)

    def grow(self) -> None:
        """One class more, which starts with a fresh copy; a single one stands for two classes that sum to 1."""
        self.maps.append(copy.deepcopy(self.template))

    def serve_two(self, p: float, place: int) -> float:
        """Forecast of the first of two classes; it is kept with its score at this place until another one takes it."""
        q = self.maps[0]._forecast(p)
        self._keep(place, (p, q))
        return q

    def serve_row(self, scores: Sequence[float], place: int) -> Sequence[float]:
        """Forecasts of all classes; they are kept with their scores at this place until others take it."""
        row = [one._forecast(p) for one, p in zip(self.maps, scores, strict=True)]
        total = sum(row)
        row = list(scores) if row == scores or total <= 0.0 else [q / total for q in row]
        self._keep(place, (scores, row))
        return row

    def _keep(self, place: int, slip: Any) -> None:
        if place == len(self._slips):
            self._slips.append(slip)
        else:
            self._slips[place] = slip

    def learn(self, place: int, label: int, w: float, late: int = 0) -> None:
        """Learn that the class with this number came where the forecast of this place was served; ``late`` plays no part.

        ValueError, and nothing changed, for a weight that the recalibrator does not take.
        """
        p, q = self._slips[place]
        if type(p) is not list:
            _learn(self.maps[0], p, q, 0.0 if label else 1.0, w)
            self._lose((p, 1.0 - p), (q, 1.0 - q), label, w)
            return
        for k, one in enumerate(self.maps[: len(p)]):
            _learn(one, p[k], q[k], 1.0 if k == label else 0.0, w)
        if label < len(p):
            self._lose(p, q, label, w)

    def _lose(self, before: Sequence[float], after: Sequence[float], label: int, w: float) -> None:
        """Sum up the log losses of two rows."""
        self._total += w
        for i, row in enumerate((before, after)):
            self._losses[i] -= w * math.log(min(max(row[label], NEAREST), 1.0))

    def report(self) -> dict[str, Any]:
        """For each class the report of its recalibrator, and the mean log loss of the labels, below 1e-15 read as that."""
        before, after = (loss / (self._total or math.nan) for loss in self._losses)
        return {"classes": [one.report() for one in self.maps], "log_loss": {"before": before, "after": after}}


def _learn(one: Online, p: float, q: float, y: float, w: float) -> None:
    """Learn an event, and note down what was served for it."""
    now = one._take(p, y, w)
    if now != now:
        raise ValueError(one._complaint(p, y, w))
    one.compared.record(p, q, y, w)
