"""scikit-learn's vocabulary: a recalibrating classifier, and a reliability curve that its display takes.

Needs scikit-learn (``pip install scikit-learn``); nothing else here imports it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.calibration import CalibrationDisplay
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from streamcal.arrays import Array
from streamcal.batch import tally
from streamcal.binning import Binning, EqualWidth
from streamcal.recalibrate import RECALIBRATORS, Marginal, Recalibrator


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose probabilities are recalibrated: per class, and renormalised, with more than two classes.

    ``estimator``: any classifier with ``predict_proba`` (None: logistic regression). One that is already fitted is left as
    it is and X, y are data it has not seen. One that is not is fitted on all of X, y, and the recalibrator on its
    out-of-fold probabilities (``cv`` folds). ``recalibrator``: a name such as "platt" or "scaling-binning", or a
    Recalibrator, which is copied.

    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = np.random.default_rng(0).normal(size=(200, 2)), np.arange(200) % 2
    >>> CalibratedClassifier(GaussianNB().fit(X[:100], y[:100])).fit(X[100:], y[100:]).predict_proba(X[:1]).shape
    (1, 2)
    """

    def __init__(self, estimator: Any = None, recalibrator: str | Recalibrator = "platt", cv: int = 5) -> None:
        self.estimator = estimator
        self.recalibrator = recalibrator
        self.cv = cv

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CalibratedClassifier:
        """Recalibrate on X (n, features) and the labels y (n,); see the class on who fits what."""
        X, y = validate_data(self, X, y, accept_sparse=["csr", "csc", "coo"], ensure_all_finite=False)
        check_classification_targets(y)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        estimator = LogisticRegression() if self.estimator is None else self.estimator
        try:
            check_is_fitted(estimator)
            self.estimator_, probs = estimator, estimator.predict_proba(X)
        except NotFittedError:
            self.estimator_, probs = self._fit_both(clone(estimator), X, y, weight)
        self.classes_ = self.estimator_.classes_
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise ValueError(f"y must hold classes of the estimator, {self.classes_.tolist()}, got {unknown.tolist()}")
        codes = np.searchsorted(self.classes_, y)
        one = self._new_recalibrator()
        binary = len(self.classes_) == 2
        self.recalibrator_: Any = (
            one.fit(probs[:, 1], codes, weight) if binary else Marginal(one).fit(probs, codes, weight)
        )
        return self

    def _fit_both(self, estimator: Any, X: Any, y: Any, weight: Array | None) -> tuple[Any, Array]:
        """(estimator fitted on everything, out-of-fold probabilities)."""
        smallest = int(np.bincount(LabelEncoder().fit_transform(y)).min())
        if len(np.unique(y)) < 2:
            raise ValueError(f"y must hold at least two classes, got 1 class: {np.unique(y).tolist()}")
        if smallest < 2:
            raise ValueError(f"every class needs two examples to be split into folds, got a class with {smallest}")
        params = {} if weight is None else {"sample_weight": weight}
        folds = min(self.cv, smallest)
        probs = cross_val_predict(estimator, X, y, cv=folds, method="predict_proba", params=params)
        return estimator.fit(X, y, **params), probs

    def _new_recalibrator(self) -> Recalibrator:
        if isinstance(self.recalibrator, Recalibrator):
            return type(self.recalibrator).from_bytes(self.recalibrator.to_bytes())  # type: ignore[no-any-return]
        if self.recalibrator not in RECALIBRATORS:
            raise ValueError(f"recalibrator must be one of {', '.join(RECALIBRATORS)}, got {self.recalibrator!r}")
        return RECALIBRATORS[self.recalibrator]()

    def predict_proba(self, X: Any) -> Array:
        """Recalibrated class probabilities, shape (n, classes), rows sum to 1."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse=["csr", "csc", "coo"], ensure_all_finite=False, reset=False)
        probs = self.estimator_.predict_proba(X)
        if len(self.classes_) > 2:
            return np.asarray(self.recalibrator_.predict(probs))
        positive = self.recalibrator_.predict(probs[:, 1])
        return np.column_stack([1.0 - positive, positive])

    def predict(self, X: Any) -> Any:
        """The class of the highest recalibrated probability, shape (n,)."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's tags: those of the wrapped estimator where they pass through."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def calibration_curve(
    y_true: npt.ArrayLike,
    y_prob: npt.ArrayLike,
    *,
    n_bins: int = 15,
    binning: Binning | None = None,
    sample_weight: npt.ArrayLike | None = None,
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
