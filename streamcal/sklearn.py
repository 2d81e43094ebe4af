"""scikit-learn's vocabulary: a recalibrating classifier, and a reliability curve that its display takes.

Needs scikit-learn (``pip install "streamcal-engine[sklearn]"``); nothing else here imports it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
except ImportError:
    raise ImportError('streamcal.sklearn needs scikit-learn: pip install "streamcal-engine[sklearn]"') from None
from sklearn.calibration import CalibrationDisplay
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.utils import column_or_1d, get_tags, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, has_fit_parameter

from streamcal.arrays import Array
from streamcal.batch import tally
from streamcal.binning import Binning, EqualWidth
from streamcal.recalibrate import RECALIBRATORS, Marginal, Recalibrator


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose probabilities are recalibrated: per class, and renormalised, with more than two classes.

    ``estimator``: any classifier with ``predict_proba`` (None: logistic regression). One that is already fitted is left as
    it is and X, y are data it has not seen (where the wrapper itself will be cloned, as in a grid search, put it into
    scikit-learn's FrozenEstimator). One that is not is fitted on all of X, y, and the recalibrator on its out-of-fold
    probabilities (``cv``: a number of folds, or anything that scikit-learn takes there). ``recalibrator``: a name such as
    "platt" or "scaling-binning", or a Recalibrator, which is copied.

    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = np.random.default_rng(0).normal(size=(200, 2)), np.arange(200) % 2
    >>> CalibratedClassifier(GaussianNB().fit(X[:100], y[:100])).fit(X[100:], y[100:]).predict_proba(X[:1]).shape
    (1, 2)
    """

    def __init__(self, estimator: Any = None, recalibrator: str | Recalibrator = "platt", cv: Any = 5) -> None:
        self.estimator = estimator
        self.recalibrator = recalibrator
        self.cv = cv

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CalibratedClassifier:
        """Recalibrate on X (n, ...), which goes to the estimator as it is, and labels y (n,); the class says who fits what."""
        X, y = indexable(X, column_or_1d(y, warn=True))
        check_classification_targets(y)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, y)
        one = self._new_recalibrator()
        if not hasattr(self._given(), "predict_proba"):
            name = type(self._given()).__name__
            raise ValueError(
                f"estimator must have predict_proba, {name} has none; for scores of decision_function use "
                "PlattScaling().fit_logits(scores, y)"
            )
        if self._is_fitted():
            self.estimator_, probs = self.estimator, np.asarray(self.estimator.predict_proba(X))
        else:
            self.estimator_, probs = self._fit_both(clone(self._given()), X, y, weight)
        self.classes_ = np.asarray(self.estimator_.classes_)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise ValueError(f"y must hold classes of the estimator, {self.classes_.tolist()}, got {unknown.tolist()}")
        order = np.argsort(self.classes_)  # the estimator's classes need not be sorted
        codes = order[np.searchsorted(self.classes_, y, sorter=order)]
        two = len(self.classes_) == 2
        self.recalibrator_: Any = (
            one.fit(probs[:, 1], codes, weight) if two else Marginal(one).fit(probs, codes, weight)
        )
        return self

    def _given(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _is_fitted(self) -> bool:
        if self.estimator is None or not hasattr(self.estimator, "__sklearn_tags__"):
            return hasattr(self.estimator, "classes_")  # a class that knows nothing of scikit-learn
        try:
            check_is_fitted(self.estimator)
        except NotFittedError:
            return False
        return True

    def _fit_both(self, estimator: Any, X: Any, y: Any, weight: Array | None) -> tuple[Any, Array]:
        """(estimator fitted on everything, out-of-fold probabilities)."""
        classes, counts = np.unique(y, return_counts=True)
        if len(classes) < 2:
            raise ValueError(f"y must hold at least two classes, got 1 class: {classes.tolist()}")
        folds = self.cv
        if isinstance(folds, int):
            if counts.min() < 2:
                raise ValueError(f"every class needs two examples to be split into folds, got {counts.min()} of one")
            folds = min(folds, int(counts.min()))
        params = {} if weight is None else {"sample_weight": weight}
        if params and not has_fit_parameter(estimator, "sample_weight"):
            warnings.warn(f"{type(estimator).__name__} takes no weights: only the map is weighted", stacklevel=3)
            params = {}
        probs = cross_val_predict(estimator, X, y, cv=folds, method="predict_proba", params=params)
        return estimator.fit(X, y, **params), probs

    def _new_recalibrator(self) -> Recalibrator:
        if isinstance(self.recalibrator, Recalibrator):
            return type(self.recalibrator).from_bytes(self.recalibrator.to_bytes())  # type: ignore[no-any-return]
        if not isinstance(self.recalibrator, str) or self.recalibrator not in RECALIBRATORS:
            raise ValueError(f"recalibrator must be one of {', '.join(RECALIBRATORS)}, got {self.recalibrator!r}")
        return RECALIBRATORS[self.recalibrator]()

    def predict_proba(self, X: Any) -> Array:
        """Recalibrated class probabilities, shape (n, classes), rows sum to 1."""
        check_is_fitted(self)
        probs = np.asarray(self.estimator_.predict_proba(X))
        if len(self.classes_) > 2:
            return np.asarray(self.recalibrator_.predict(probs))
        positive = self.recalibrator_.predict(probs[:, 1])
        return np.column_stack([1.0 - positive, positive])

    def predict(self, X: Any) -> Any:
        """The class of the highest recalibrated probability, shape (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's tags: those of the wrapped estimator where they pass through."""
        tags = super().__sklearn_tags__()
        if hasattr(self._given(), "__sklearn_tags__"):
            tags.input_tags = get_tags(self._given()).input_tags
        return tags


def calibration_curve(
    y_true: npt.ArrayLike,
    y_prob: npt.ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning | None = None,
    sample_weight: Any = None,
) -> tuple[Array, Array]:
    """(prob_true, prob_pred) of the occupied rows, as scikit-learn's function of that name returns them, with weights.

    ``binning`` (default EqualWidth(n_bins)) may be any of streamcal's. ValueError names the first bad index.

    >>> calibration_curve([0, 1, 1], [0.2, 0.8, 0.9], n_bins=2)
    (array([0., 1.]), array([0.2 , 0.85]))
    """
    s = tally(y_prob, y_true, EqualWidth(n_bins) if binning is None else binning, sample_weight).read
    used = s.weight[0] > 0
    return s.mean_y[0, used], s.mean_p[0, used]


def calibration_display(
    y_true: npt.ArrayLike, y_prob: npt.ArrayLike, *, estimator_name: str | None = None, **options: Any
) -> CalibrationDisplay:
    """scikit-learn's CalibrationDisplay of :func:`calibration_curve` (``options`` go there); draw it with ``.plot()``."""
    prob_true, prob_pred = calibration_curve(y_true, y_prob, **options)
    return CalibrationDisplay(prob_true, prob_pred, np.asarray(y_prob), estimator_name=estimator_name)
