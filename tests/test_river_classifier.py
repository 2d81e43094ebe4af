"""The recalibrated classifier: River's own checks, which score is learned from, and what the default promises.

Kinds of field reports with applies_to river-adapter that concern classifiers are tested where labels and probabilities are read:
test_river_predictions.py.
"""

from __future__ import annotations

import copy
import math
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from river import (
    base,
    checks,
    compose,
    datasets,
    evaluate,
    linear_model,
    metrics,
    naive_bayes,
    neighbors,
    preprocessing,
    tree,
)

from streamcal import Guard, IsotonicCalibration, OnlinePlatt
from streamcal.river import ECE, RecalibratedClassifier

MODELS = {
    "logistic": lambda: linear_model.LogisticRegression(),
    "bayes": lambda: naive_bayes.GaussianNB(),
    "tree": lambda: tree.HoeffdingTreeClassifier(),
    "nearest": lambda: neighbors.KNNClassifier(),
    "pipeline": lambda: preprocessing.StandardScaler() | linear_model.LogisticRegression(),
    "several classes": lambda: tree.HoeffdingAdaptiveTreeClassifier(seed=1),
}


class Said(base.Classifier):
    """A classifier that says what it is told."""

    def __init__(self, multiclass=False):
        self.multiclass = multiclass
        self.said, self.learned = {}, []

    @property
    def _multiclass(self):
        return self.multiclass

    def learn_one(self, x, y):
        self.learned.append(y)

    def predict_proba_one(self, x):
        return dict(self.said)


def says(p):
    one = Said()
    one.said = {True: p, False: 1.0 - p}
    return one


@pytest.mark.jit
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a pipeline"])
@pytest.mark.parametrize("name", MODELS)
def test_every_check_of_river_passes(name, inside):
    model = RecalibratedClassifier(MODELS[name]())
    if inside:
        model = preprocessing.StandardScaler() | model
    found = list(checks.yield_checks(model))
    assert len(found) > 10
    for check in found:
        check(model.clone())


@pytest.mark.parametrize(
    "recalibrator", [None, OnlinePlatt(), IsotonicCalibration(), Guard()], ids=lambda r: type(r).__name__
)
def test_before_anything_is_learned_the_probabilities_are_those_of_the_classifier(recalibrator):
    for p in (0.0, 0.1, 0.73, 1.0):
        model = RecalibratedClassifier(says(p), recalibrator)
        assert model.predict_proba_one({}) == pytest.approx({True: p, False: 1.0 - p}, abs=1e-12)
    assert recalibrator is None or model.recalibrator is recalibrator


@pytest.mark.parametrize(
    "said", [{}, Counter(), {True: 0.2}, {np.True_: 0.3, np.False_: 0.7}, Counter({True: 3, False: 1})]
)
def test_both_labels_from_the_first_call(said):
    model = RecalibratedClassifier(Said())
    model.classifier.said = said
    answer = model.predict_proba_one({"a": 1})
    assert set(answer) == {True, False} and sum(answer.values()) == pytest.approx(1.0)
    assert all(type(q) is float for q in answer.values())


def test_a_label_is_learned_with_the_score_that_was_served():
    model = RecalibratedClassifier(says(0.9), OnlinePlatt())
    x = {"a": 1}
    model.predict_proba_one(x)
    model.classifier.said = {True: 0.2, False: 0.8}  # by the time the label comes it says something else
    model.learn_one(x, False)
    want = OnlinePlatt()
    want.learn_one(0.9, 0.0)
    assert model.predict_proba_one({"a": 2})[True] == want.predict_one(0.2)
    assert (model.served, model.repredicted, model.waiting) == (1, 0, 1)
    model.learn_one({"b": 1}, True)
    assert (model.served, model.repredicted) == (1, 1)


def test_ids_find_what_features_do_not():
    model = RecalibratedClassifier(says(0.9), OnlinePlatt())
    model.predict_proba_one({"a": 1}, id="one")
    model.learn_one({"a": 1.0001}, True, id="one")
    assert (model.served, model.repredicted) == (1, 0)


def test_the_memory_is_bounded_and_what_it_drops_is_counted():
    model = RecalibratedClassifier(says(0.9), memory=10)
    for i in range(100):
        model.predict_proba_one({"a": i})
    assert (model.waiting, model.forgotten) == (10, 90)
    size = len(pickle.dumps(model))
    for i in range(1000):
        model.predict_proba_one({"a": i})
    assert len(pickle.dumps(model)) < 1.1 * size + 500


@pytest.mark.parametrize("missing", [None, math.nan, np.nan])
def test_a_missing_label_is_refused_counted_and_nobody_learns_it(missing):
    model = RecalibratedClassifier(says(0.9))
    before = model.predict_proba_one({"a": 1})
    model.learn_one({"a": 1}, missing)
    assert model.refused == 1 and model.classifier.learned == []
    assert model.predict_proba_one({"a": 1}) == before
    with pytest.raises(ValueError, match="labels must be False or True"):
        model.learn_one({"a": 1}, "yes")


def test_classes_grow_and_rows_sum_to_one():
    rng, model = np.random.default_rng(0), RecalibratedClassifier(Said(multiclass=True))
    assert model.predict_proba_one({}) == {} and model.predict_one({}) is None
    for i in range(300):
        labels = "abc"[: 1 + i // 100]
        row = rng.dirichlet(np.ones(len(labels)))
        model.classifier.said = dict(zip(labels, row.tolist(), strict=True))
        answer = model.predict_proba_one({"a": i})
        assert sum(answer.values()) == pytest.approx(1.0) and set(labels) <= set(answer)
        model.learn_one({"a": i}, labels[-1])
    report = model.report()
    assert list(report["classes"]) == ["a", "b", "c"] and report["counts"]["served"] == 300


@given(st.lists(st.tuples(st.sampled_from([0.0, 1e-9, 0.2, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=60))
def test_the_default_is_never_much_worse_than_raw(stream):
    """Its documented bound, labels before the next forecast: ln 1.25 + 1.0001e-4 T nats."""
    model, excess = RecalibratedClassifier(says(0.5)), 0.0
    for i, (p, came) in enumerate(stream):
        model.classifier.said = {True: p, False: 1.0 - p}
        q = model.predict_proba_one({"a": i})[came]
        model.learn_one({"a": i}, came)
        excess += math.log(max(p if came else 1.0 - p, 1e-15)) - math.log(max(q, 1e-15))
    assert excess <= math.log(1.25) + 1.0001e-4 * len(stream) + 1e-9


def test_late_labels_in_progressive_validation_find_their_scores():
    model = RecalibratedClassifier(preprocessing.StandardScaler() | naive_bayes.GaussianNB())
    evaluate.progressive_val_score(datasets.Phishing(), model, metrics.LogLoss() + ECE(), delay=100)
    counts = model.report()["counts"]
    assert counts["served"] + counts["repredicted"] == 1250
    assert counts["served"] > 0.9 * 1250  # of events with equal features that wait together only one finds its score


def test_copies_and_pickles_go_on_alike():
    model = RecalibratedClassifier(naive_bayes.GaussianNB())
    data = list(datasets.Phishing())
    for x, y in data[:300]:
        model.predict_proba_one(x)
        model.learn_one(x, y)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for x, y in data[300:500]:
        want = model.predict_proba_one(x)
        model.learn_one(x, y)
        for one in copies:
            assert one.predict_proba_one(x) == want
            one.learn_one(x, y)
    fresh = model.clone()
    assert fresh.served == 0 and fresh.predict_proba_one(data[0][0]) == {}


def test_it_repairs_an_overconfident_classifier():
    model = RecalibratedClassifier(compose.Pipeline(preprocessing.StandardScaler(), naive_bayes.GaussianNB()))
    raw, repaired = metrics.LogLoss(), metrics.LogLoss()
    for x, y in datasets.Phishing():
        raw.update(y, model.classifier.predict_proba_one(x))
        repaired.update(y, model.predict_proba_one(x))
        model.learn_one(x, y)
    assert repaired.get() < 0.8 * raw.get()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RecalibratedClassifier(linear_model.LinearRegression()), "classifier must be a River classifier"),
        (lambda: RecalibratedClassifier(says(0.5), recalibrator=0.5), "recalibrator must be an online recalibrator"),
        (lambda: RecalibratedClassifier(says(0.5)).learn_one({}, True, w=-1.0), "w must lie in"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
