"""`streamcal.sklearn`: scikit-learn's own checks, and what its users do with a classifier."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install scikit-learn")

from sklearn.base import clone
from sklearn.calibration import calibration_curve as sklearn_curve
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamcal import LogOdds
from streamcal.recalibrate import RECALIBRATORS, HistogramBinning, Marginal, PlattScaling, ScalingBinning
from streamcal.sklearn import CalibratedClassifier, calibration_curve, calibration_display


def table(classes: int = 2, n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Features that say the same thing several times, which makes naive Bayes too sure of itself."""
    X, y = make_classification(
        n, 8, n_informative=4, n_redundant=4, n_classes=classes, n_clusters_per_class=1, flip_y=0.2, random_state=0
    )
    return X, y


def halves(classes: int = 2) -> tuple[Any, np.ndarray, np.ndarray]:
    """A classifier fitted on one half, and the other half."""
    X, y = table(classes)
    return GaussianNB().fit(X[:300], y[:300]), X[300:], y[300:]


# ---- scikit-learn's checks: every check applies, so none is listed as expected to fail


# each of two estimators and of two recalibrators meets every check
@parametrize_with_checks([CalibratedClassifier(), CalibratedClassifier(GaussianNB(), "isotonic")])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks fit on 10 points and with one row of zeros
        check(estimator)


# ---- a classifier that is fitted already


def test_prefit_is_the_library_on_its_probabilities() -> None:
    fitted, X, y = halves()
    before = fitted.predict_proba(X)
    model = CalibratedClassifier(fitted).fit(X, y)
    assert model.estimator_ is fitted
    np.testing.assert_array_equal(fitted.predict_proba(X), before)
    expected = PlattScaling().fit(before[:, 1], y).predict(before[:, 1])
    np.testing.assert_array_equal(model.predict_proba(X), np.column_stack([1 - expected, expected]))
    np.testing.assert_array_equal(model.predict(X), (expected > 0.5).astype(int))
    assert ((before[:, 1] - y) ** 2).mean() > ((expected - y) ** 2).mean()


@pytest.mark.parametrize("name", sorted(RECALIBRATORS))
def test_prefit_with_several_classes_and_every_name(name: str) -> None:
    fitted, X, y = halves(4)
    model = CalibratedClassifier(fitted, name).fit(X, y)
    probs = model.predict_proba(X)
    assert probs.shape == (300, 4)
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-12)
    expected = Marginal(RECALIBRATORS[name]()).fit(fitted.predict_proba(X), y).predict(fitted.predict_proba(X))
    np.testing.assert_array_equal(probs, expected)
    np.testing.assert_array_equal(model.predict(X), probs.argmax(1))


@pytest.mark.parametrize("classes", [2, 3])
def test_labels_may_be_text(classes: int) -> None:
    X, y = table(classes)
    names = np.array(["no", "yes", "always"])[:classes]
    model = CalibratedClassifier(GaussianNB().fit(X[:300], names[y[:300]])).fit(X[300:], names[y[300:]])
    plain = CalibratedClassifier(GaussianNB().fit(X[:300], y[:300])).fit(X[300:], y[300:])
    places = [model.classes_.tolist().index(name) for name in names]
    np.testing.assert_allclose(model.predict_proba(X)[:, places], plain.predict_proba(X), rtol=1e-6)
    assert set(model.predict(X)) <= set(names)
    assert model.score(X, names[y]) == pytest.approx(plain.score(X, y), abs=0.01)


class Foreign:
    """Any class with predict_proba: no base class, and its labels in an order of its own."""

    def __init__(self) -> None:
        self.classes_ = ["yes", "no"]

    def fit(self, X: Any, y: Any) -> Foreign:
        raise AssertionError("it is fitted already")

    def predict_proba(self, X: Any) -> np.ndarray:
        p = np.asarray(X)[:, 0]
        return np.column_stack([p, 1 - p])


def test_a_foreign_classifier_with_labels_in_its_own_order() -> None:
    p = np.random.default_rng(0).random(500)
    y = np.where(np.random.default_rng(1).random(500) < p, "yes", "no")
    model = CalibratedClassifier(Foreign()).fit(p[:, None], y)
    found = model.predict_proba([[0.1], [0.9]])
    assert found[0, 0] < 0.3
    assert found[1, 0] > 0.7
    assert model.predict([[0.1], [0.9]]).tolist() == ["no", "yes"]


def test_the_data_go_to_the_estimator_as_they_are() -> None:
    """A pipeline that begins with text."""
    words = ["good fine", "bad awful", "good", "awful bad bad", "fine", "bad"] * 10
    y = [1, 0] * 30
    fitted = make_pipeline(CountVectorizer(), LogisticRegression()).fit(words, y)
    for estimator in (fitted, clone(fitted)):
        model = CalibratedClassifier(estimator).fit(words, y)
        assert model.predict(["good", "awful"]).tolist() == [1, 0]


def test_an_unseen_class_is_named() -> None:
    fitted, X, y = halves()
    with pytest.raises(ValueError, match=r"classes of the estimator, \[0, 1\], got \[7\]"):
        CalibratedClassifier(fitted).fit(X, np.where(np.arange(300) == 5, 7, y))


def test_a_class_that_is_absent_keeps_its_probability() -> None:
    fitted, X, y = halves(3)
    probs = CalibratedClassifier(fitted).fit(X[y < 2], y[y < 2]).predict_proba(X)
    assert probs.shape == (300, 3)
    assert (probs[:, 2] > 0).any()


# ---- a classifier that is not fitted yet


def test_out_of_fold_probabilities_teach_the_map() -> None:
    X, y = table()
    forest = RandomForestClassifier(10, random_state=0)
    model = CalibratedClassifier(forest, "beta", cv=3).fit(X, y)
    out_of_fold = cross_val_predict(forest, X, y, cv=3, method="predict_proba")[:, 1]
    whole = clone(forest).fit(X, y).predict_proba(X)[:, 1]
    expected = RECALIBRATORS["beta"]().fit(out_of_fold, y).predict(whole)
    np.testing.assert_array_equal(model.predict_proba(X)[:, 1], expected)
    assert not hasattr(forest, "estimators_")


def test_cv_takes_what_scikit_learn_takes() -> None:
    X, y = table()
    folds = StratifiedKFold(4, shuffle=True, random_state=1)
    by_splitter = CalibratedClassifier(GaussianNB(), cv=folds).fit(X, y)
    by_list = CalibratedClassifier(GaussianNB(), cv=list(folds.split(X, y))).fit(X, y)
    np.testing.assert_array_equal(by_splitter.predict_proba(X), by_list.predict_proba(X))


def test_too_few_of_a_class() -> None:
    X = np.arange(6.0)[:, None]
    with pytest.raises(ValueError, match="every class needs two examples to be split into folds, got 1 of one"):
        CalibratedClassifier().fit(X, [0, 0, 0, 0, 0, 1])
    with pytest.raises(ValueError, match="at least two classes, got 1 class"):
        CalibratedClassifier().fit(X, [1] * 6)
    assert CalibratedClassifier().fit(X, [0, 0, 0, 0, 1, 1]).predict_proba(X).shape == (6, 2)


# ---- weights


@pytest.mark.parametrize("classes", [2, 3])
def test_a_weight_of_two_is_the_event_twice(classes: int) -> None:
    fitted, X, y = halves(classes)
    w = np.arange(300) % 3
    weighted = CalibratedClassifier(fitted).fit(X, y, sample_weight=w)
    repeated = CalibratedClassifier(fitted).fit(X.repeat(w, 0), y.repeat(w))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-7)
    assert not np.allclose(weighted.predict_proba(X), CalibratedClassifier(fitted).fit(X, y).predict_proba(X))


def test_a_classifier_without_weights_is_said() -> None:
    X, y = table()
    with pytest.warns(UserWarning, match="KNeighborsClassifier takes no weights: only the map is weighted"):
        model = CalibratedClassifier(KNeighborsClassifier()).fit(X, y, np.where(y, 3.0, 1.0))
    plain = CalibratedClassifier(KNeighborsClassifier()).fit(X, y)
    assert model.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.1


# ---- the habits of scikit-learn


def test_parameters_and_clones() -> None:
    model = CalibratedClassifier(GaussianNB(), ScalingBinning(7), cv=3)
    copy = clone(model)
    assert copy.get_params()["recalibrator"].n_bins == 7
    assert copy.recalibrator is not model.recalibrator
    assert copy.set_params(estimator__var_smoothing=0.5, recalibrator="beta", cv=2) is copy
    assert (copy.estimator.var_smoothing, copy.recalibrator, copy.cv) == (0.5, "beta", 2)
    assert model.estimator.var_smoothing == 1e-9


def test_a_given_recalibrator_is_copied() -> None:
    fitted, X, y = halves()
    given = HistogramBinning(4)
    model = CalibratedClassifier(fitted, given).fit(X, y)
    assert not any(name.endswith("_") for name in vars(given))
    assert (model.recalibrator_.n_bins, model.recalibrator) == (4, given)
    assert len(np.unique(model.predict_proba(X)[:, 1])) <= 4


def test_names_that_are_none() -> None:
    fitted, X, y = halves()
    with pytest.raises(ValueError, match="recalibrator must be one of platt, beta, .*, got 'plat'"):
        CalibratedClassifier(fitted, "plat").fit(X, y)
    for ask in (CalibratedClassifier(fitted).predict, CalibratedClassifier(fitted).predict_proba):
        with pytest.raises(NotFittedError):
            ask(X)


def test_in_a_pipeline_and_around_one() -> None:
    X, y = table()
    inside = make_pipeline(StandardScaler(), CalibratedClassifier(GaussianNB())).fit(X, y)
    around = CalibratedClassifier(make_pipeline(StandardScaler(), GaussianNB())).fit(X, y)
    assert inside.score(X, y) > 0.7
    np.testing.assert_allclose(inside.predict_proba(X), around.predict_proba(X), atol=0.02)
    assert around.n_features_in_ == 8


@pytest.mark.filterwarnings("ignore::UserWarning")  # few events for 10 bins
def test_a_search_over_names() -> None:
    X, y = table()
    grid = {"recalibrator": ["platt", "isotonic", HistogramBinning(5)]}
    for estimator in (GaussianNB(), FrozenEstimator(GaussianNB().fit(X[:300], y[:300]))):
        search = GridSearchCV(CalibratedClassifier(estimator, cv=2), grid, scoring="neg_brier_score", cv=2)
        search.fit(X[300:], y[300:])
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert search.best_params_["recalibrator"] in grid["recalibrator"]


def test_a_frozen_classifier_stays_fitted_in_a_clone() -> None:
    fitted, X, y = halves()
    frozen = clone(CalibratedClassifier(FrozenEstimator(fitted))).fit(X, y)
    plain = CalibratedClassifier(fitted).fit(X, y)
    np.testing.assert_array_equal(frozen.predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize("classes", [2, 3])
def test_pickles(classes: int) -> None:
    fitted, X, y = halves(classes)
    model = CalibratedClassifier(fitted, "scaling-binning").fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))


# ---- the curve


def claims(n: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    p = rng.random(n) * 0.7
    return (rng.random(n) < p).astype(int), p


@pytest.mark.parametrize("n_bins", [1, 3, 7, 10, 15, 64])
def test_the_curve_is_scikit_learns_where_no_edge_is_a_value(n_bins: int) -> None:
    y, p = claims()
    for ours, theirs in zip(calibration_curve(y, p, n_bins=n_bins), sklearn_curve(y, p, n_bins=n_bins), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_weights_of_the_curve_are_repetitions() -> None:
    y, p = claims()
    w = np.arange(p.size) % 4
    weighted = calibration_curve(y, p, sample_weight=w, n_bins=9)
    for ours, theirs in zip(weighted, calibration_curve(y.repeat(w), p.repeat(w), n_bins=9), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_the_curve_takes_any_binning_and_names_the_bad() -> None:
    y, p = claims()
    prob_true, prob_pred = calibration_curve(y, p, binning=LogOdds(12))
    assert prob_true.shape == prob_pred.shape
    assert (np.diff(prob_pred) > 0).all()
    with pytest.raises(ValueError, match="index 3"):
        calibration_curve([0, 1, 1, 0], [0.1, 0.2, 0.3, 1.5])
    with pytest.raises(ValueError, match="index 1"):
        calibration_curve([0, 7], [0.1, 0.2])


def test_the_display_plots() -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    y, p = claims()
    display = calibration_display(y, p, estimator_name="model", n_bins=8)
    try:
        display.plot()
        x, height = display.line_.get_data()
    finally:
        pyplot.close("all")
    prob_true, prob_pred = calibration_curve(y, p, n_bins=8)
    np.testing.assert_array_equal(x, prob_pred)
    np.testing.assert_array_equal(height, prob_true)
    assert display.y_prob is not None
    assert display.line_.get_label() == "model"
