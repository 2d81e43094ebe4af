"""Calibration metrics for classifiers with any number of classes: of the highest probability, and of every one."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Sequence
from typing import Any

from river import base, metrics

from streamcal.arrays import check_flag
from streamcal.binning import Binning
from streamcal.river.predictions import alike, is_missing, probabilities
from streamcal.river.windowed import AnyWindow, Windowed, rows_of, taken_back, window_of

MOST_CLASSES = 1000  # with more of them a label is an id or a number to be predicted
NOBODY = object()  # a class that no prediction names, and that is never true


class OfProbabilities(Windowed, metrics.base.MultiClassMetric):
    """What the metrics of this module share: they take dicts of probabilities."""

    @property
    def requires_labels(self) -> bool:
        """False: probabilities."""
        return False

    def works_with(self, model: Any) -> bool:
        """Whether a model is a classifier: clusterers give no probabilities."""
        return isinstance(model, base.Classifier)


class TopLabelECE(OfProbabilities):
    """ECE of the highest probability against whether its class was right, in [0, 1]; nan if nothing was seen.

    ``y_pred`` is a dict of probabilities by class, also empty (refused and counted) or unnormalised (votes). The first
    class wins a tie. A label that the dict does not have is a miss, unless it is of another kind (text among numbers): a
    ValueError. Parameters as in :class:`streamcal.river.metrics.ECE`. Source: Guo et al. 2017.

    >>> metric = TopLabelECE()
    >>> metric.update("b", {"a": 0.2, "b": 0.7, "c": 0.1})
    >>> metric
    TopLabelECE: 0.3
    """

    def __init__(
        self,
        n_bins: int = 15,
        binning: str | Binning | None = None,
        window_size: int | None = None,
        half_life: float | None = None,
    ) -> None:
        self.n_bins = n_bins
        self.binning = binning
        self.window_size = window_size
        self.half_life = half_life
        self._window = window_of(rows_of(n_bins, binning), window_size, half_life)

    def _event(self, y_true: Any, y_pred: Any) -> tuple[float, float]:
        p = probabilities(y_pred)
        if not p or is_missing(y_true):
            return math.nan, math.nan
        top = max(p, key=p.__getitem__)
        _check_alike(y_true, top)
        return p[top], float(y_true == top)

    def get(self) -> float:
        """The value now, nan if nothing was seen."""
        return float(self._window.get("ece"))


def _check_alike(y_true: Any, known: Any) -> None:
    if not alike(y_true, known):
        raise ValueError(f"y_true must be a label like {known!r}, got {y_true!r}")


class MarginalCE(OfProbabilities):
    r"""Marginal calibration error :math:`(\frac1K \sum_k CE_k^{norm})^{1/norm}` over K classes, in [0, 1]; nan if nothing was
    seen.

    CE_k is the L1 error of (p_k, 1[y = k]) for ``norm=1``, the L2 error for ``norm=2``; with ``debias`` (norm 2 only) the
    signed debiased squares are averaged, and the mean clipped at 0 once. A class that a prediction leaves out has
    probability 0. Source: Kumar, Liang, Ma 2019.

    Parameters
    ----------
    classes
        The classes to average over: an event with another label is refused and counted. None: those named so far by a
        label or a prediction, at most 1,000. One that turns up late counts as if it had been there from the start, with
        probability 0 until then (exactly); one that was seen stays, also when all its events were reverted or forgotten.
    norm, debias
        See above.
    n_bins, binning, window_size, half_life
        As in :class:`streamcal.river.metrics.ECE`; a window per class.

    >>> metric = MarginalCE(norm=1)
    >>> metric.update("b", {"a": 0.2, "b": 0.7, "c": 0.1})
    >>> metric
    MarginalCE: 0.2
    """

    def __init__(
        self,
        classes: Sequence[Hashable] | None = None,
        norm: int = 2,
        debias: bool = False,
        n_bins: int = 15,
        binning: str | Binning | None = None,
        window_size: int | None = None,
        half_life: float | None = None,
    ) -> None:
        self.classes = classes
        self.norm = norm
        self.debias = debias
        self.n_bins = n_bins
        self.binning = binning
        self.window_size = window_size
        self.half_life = half_life
        if norm not in (1, 2) or (check_flag("debias", debias) and norm != 2):
            raise ValueError(f"norm must be 1 or 2, and 2 with debias, got {norm!r}")
        if classes is not None and (isinstance(classes, str) or not 2 <= len(set(classes)) == len(classes)):
            raise ValueError(f"classes must be None or at least two different labels, got {classes!r:.200}")
        # the window of a class that nobody has named: a new class begins with a copy of it
        self._window = window_of(rows_of(n_bins, binning), window_size, half_life)
        self._windows: dict[Hashable, AnyWindow] = {}
        for label in classes or ():
            self._windows[label] = copy.deepcopy(self._window)

    def update(self, y_true: Any, y_pred: Any, w: float = 1.0) -> None:
        """Add an event to the window of every class: ``y_pred`` a dict of probabilities by class."""
        p = self._probabilities(y_true, y_pred)
        if p and self.classes is None:
            self._make_room([label for label in (*p, y_true) if label not in self._windows])
        for label, window in self._all_windows():
            window.update(*_marginal(p, label, y_true), w)

    def revert(self, y_true: Any, y_pred: Any, w: float = 1.0) -> None:
        """Take back an event, given as it was then. Exact; ValueError if there is no such event, or with a window of its own."""
        p = self._probabilities(y_true, y_pred)
        for label, window in self._all_windows():
            taken_back(self, window).revert(*_marginal(p, label, y_true), w)

    def _probabilities(self, y_true: Any, y_pred: Any) -> dict[Hashable, float]:
        """Probabilities by class, none if the event must be refused."""
        p = probabilities(y_pred)
        if not p or is_missing(y_true):
            return {}
        _check_alike(y_true, next(iter(self._windows or p)))
        _check_alike(y_true, next(iter(p)))
        return {} if self.classes is not None and y_true not in self._windows else p

    def _make_room(self, new: list[Hashable]) -> None:
        if len(self._windows) + len(new) > MOST_CLASSES:
            raise ValueError(f"there must be at most {MOST_CLASSES} classes, got also {new!r:.80}")
        for label in new:
            if label not in self._windows:
                self._windows[label] = copy.deepcopy(self._window)

    def _all_windows(self) -> list[tuple[Any, AnyWindow]]:
        return [*self._windows.items(), (NOBODY, self._window)]

    def get(self) -> float:
        """The value now, nan if nothing was seen."""
        if not self._windows:
            return math.nan
        name = "k1" if self.norm == 1 else "k2_debiased" if self.debias else "k2"
        mean = sum(float(window.get(name)) for window in self._windows.values()) / len(self._windows)
        return mean if self.norm == 1 or math.isnan(mean) else math.sqrt(max(mean, 0.0))

    def report(self) -> dict[Any, Any]:
        """The report of each class by its label (see Snapshot.report)."""
        return {label: window.report() for label, window in self._windows.items()}


def _marginal(p: dict[Hashable, float], label: Any, y_true: Any) -> tuple[float, float]:
    """(probability, outcome) of one class; both nan if the event must be refused."""
    return (p.get(label, 0.0), float(label == y_true)) if p else (math.nan, math.nan)
