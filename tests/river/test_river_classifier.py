"""The recalibrated classifier: River's own checks, which score is learned from, and what the default promises.

Which test covers which kind of field report (applies_to river-adapter, as far as it concerns classifiers; metrics:
test_river_predictions.py):

    numpy-bool-subtraction           test_labels_of_any_kind_that_means_true_or_false
    string-label-zero                test_text_is_no_label_of_two_classes
    none-label-counted-negative      test_a_missing_label_is_refused_counted_and_nobody_learns_it
    string-keys                      test_answers_with_other_keys_or_none_are_errors
    cold-start-none                  test_classes_grow_and_rows_sum_to_one, test_both_labels_from_the_first_call
    label-vs-dict                    test_answers_with_other_keys_or_none_are_errors
    predict-side-effect              test_predicting_changes_no_answer
    jitclass-pickle                  test_copies_and_pickles_go_on_alike
"""

from __future__ import annotations

import copy
import math
import pickle
from collections import Counter, defaultdict

import narwhals.stable.v2 as nw
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
from streamcal.river.served import Served
from streamcal.river.wrapper import rows_of

MODELS = {
    "logistic": lambda: linear_model.LogisticRegression(),
    "bayes": lambda: naive_bayes.GaussianNB(),
    "tree": lambda: tree.HoeffdingTreeClassifier(),
    "nearest": lambda: neighbors.KNNClassifier(engine=neighbors.LazySearch(window_size=50)),
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
@pytest.mark.no_cover  # thousands of events through models of River: other tests run the same lines
@pytest.mark.parametrize(
    ("name", "inside"), [*((name, False) for name in MODELS), ("logistic", True), ("several classes", True)]
)
def test_every_check_of_river_passes(name, inside):
    """Every model alone; in a pipeline one of two classes and one of several: of what stands inside it sees no more."""
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


@pytest.mark.parametrize("key", [{}, {"id": "one"}])
def test_the_score_of_a_missing_label_does_not_wait_for_the_next(key):
    model = RecalibratedClassifier(says(0.1), OnlinePlatt())
    model.predict_proba_one({"k": 1}, **key)
    model.learn_one({"k": 1}, None, **key)
    assert (model.waiting, model.served, model.refused) == (0, 0, 1)
    model.classifier.said = {True: 0.7, False: 0.3}
    model.predict_proba_one({"k": 1}, **key)
    model.learn_one({"k": 1}, True, **key)
    want = OnlinePlatt()
    want.learn_one(0.7, 1.0)
    assert model.predict_proba_one({"k": 1})[True] == want.predict_one(0.7)


def test_labels_that_are_the_same_text_are_an_error():
    """As from a file of JSON, or from the column names of a dataframe."""
    model = RecalibratedClassifier(Said(multiclass=True))
    model.learn_one({}, 1)
    model.learn_one({}, np.int64(2))
    model.learn_one({}, 2)
    with pytest.raises(ValueError, match=r"labels must differ as texts too, got '1' \(str\) beside 1"):
        model.learn_one({}, "1")


@pytest.mark.parametrize("said", [{True: 0.3}, {False: 0.7}])
def test_a_dict_that_makes_up_what_is_asked_for(said):
    model = RecalibratedClassifier(Said())
    model.classifier.predict_proba_one = lambda x: made
    made = defaultdict(float, said)
    assert model.predict_proba_one({}) == pytest.approx({True: 0.3, False: 0.7})
    assert made == said


def test_rounding_above_one_is_clipped():
    model = RecalibratedClassifier(says(0.5))
    model.classifier.said = {True: 1.0000005, False: 0.0}
    assert model.predict_proba_one({}) == {True: 1.0, False: 0.0}


def test_a_recalibrator_of_small_weights():
    """A weight of 1 is not always allowed: then nothing is learned."""
    model = RecalibratedClassifier(says(0.5), Guard(max_weight=0.5))
    model.predict_proba_one({"a": 1})
    with pytest.raises(ValueError, match=r"w must lie in \[0, 0.5\]"):
        model.learn_one({"a": 1}, True)
    assert (model.waiting, model.served) == (1, 0) and model.classifier.learned == []
    model.learn_one({"a": 1}, True, w=np.float32(0.5))
    assert model.served == 1


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


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1e-9, 0.05, 0.5, 0.95, 1.0]), st.sampled_from("aab"), st.booleans()),
        max_size=60,
    ),
    st.integers(0, 20),
)
def test_nor_where_classes_come_one_after_the_other(stream, first):
    """Until event ``first`` the classifier knows only one class, later two or three: the same bound."""
    model, excess = RecalibratedClassifier(Said(multiclass=True)), 0.0
    for i, (p, came, third) in enumerate(stream):
        said = {"a": 0.9} if i < first else {"a": p, "b": 1.0 - p}
        if third and i > first:
            said = {"a": p / 2, "b": (1.0 - p) / 2, "c": 0.5}
        model.classifier.said = said
        q = model.predict_proba_one({"i": i})
        model.learn_one({"i": i}, came)
        if i or q:  # the first answers name nobody
            excess += math.log(max(said.get(came, 0.0), 1e-15)) - math.log(max(q.get(came, 0.0), 1e-15))
    assert excess <= math.log(1.25) + 1.0001e-4 * len(stream) + 1e-9


@pytest.mark.parametrize("recalibrator", [None, OnlinePlatt()], ids=["default", "Platt"])
@pytest.mark.parametrize("labels", [(True, False), ("a", "b")])
def test_log_loss_of_what_was_impossible_is_finite(recalibrator, labels):
    model = RecalibratedClassifier(Said(multiclass=labels[0] == "a"), recalibrator)
    model.classifier.said = {labels[0]: 0.0, labels[1]: 1.0}
    model.predict_proba_one({})
    model.learn_one({}, labels[0])
    assert model.report()["log_loss"] == pytest.approx(dict.fromkeys(("before", "after"), -math.log(1e-15)))


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


@pytest.mark.parametrize("yes", [True, 1, 1.0, np.True_, np.int64(1), np.float32(1.0)])
def test_labels_of_any_kind_that_means_true_or_false(yes):
    model, plain = RecalibratedClassifier(says(0.7)), RecalibratedClassifier(says(0.7))
    for one, label in ((model, yes), (plain, True)):
        for _ in range(20):
            one.predict_proba_one({"a": 1})
            one.learn_one({"a": 1}, label)
    assert model.predict_proba_one({"a": 1}) == plain.predict_proba_one({"a": 1})
    assert model.predict_proba_one({"a": 1})[True] > 0.7


@pytest.mark.parametrize("text", ["0", "False", "no", "1", "True"])
def test_text_is_no_label_of_two_classes(text):
    model = RecalibratedClassifier(says(0.7))
    with pytest.raises(ValueError, match=f"labels must be False or True here .*'{text}'"):
        model.learn_one({"a": 1}, text)
    assert model.classifier.learned == [] and model.report()["counts"]["repredicted"] == 0


@pytest.mark.parametrize("said", [{True: 1.2, False: -0.2}, {True: math.nan, False: math.nan}])
def test_an_answer_that_is_no_probability_is_served_as_it_is_and_counted(said):
    model = RecalibratedClassifier(says(0.5))
    model.classifier.said = said
    answer = model.predict_proba_one({"a": 1})
    assert model.unusable == 1 and model.waiting == 0
    assert all(answer[label] is p or answer[label] == p for label, p in said.items() if p == p)
    model.learn_one({"a": 1}, True)  # the classifier learns; there is no score to learn from
    assert model.classifier.learned == [True] and model.unusable == 2
    model.classifier.said = {True: 0.8, False: 0.2}
    assert model.predict_proba_one({"a": 2}) == {True: 0.8, False: 0.2}


@pytest.mark.parametrize(
    ("said", "message"), [({"1": 0.9, "0": 0.1}, r"the keys \['1', '0'\]"), ("path", "y_pred must be .*'path'")]
)
def test_answers_with_other_keys_or_none_are_errors(said, message):
    model = RecalibratedClassifier(says(0.5))
    model.classifier.predict_proba_one = lambda x: said
    with pytest.raises(ValueError, match=message):
        model.predict_proba_one({"a": 1})
    assert model.waiting == 0


@pytest.mark.parametrize("name", MODELS)
def test_predicting_changes_no_answer(name):
    """Also with a huge x between."""
    model, data = RecalibratedClassifier(MODELS[name]()), list(datasets.Phishing().take(80))
    for x, y in data[:60]:
        model.learn_one(x, y)
    huge = dict.fromkeys(data[0][0], 1e12)
    first = [model.predict_proba_one(x) for x, _ in data[60:]]
    model.predict_proba_one(huge)
    model.predict_one(huge)
    assert [model.predict_proba_one(x) for x, _ in data[60:]] == first


def test_a_weight_is_for_the_map_and_for_the_classifier():
    x = {"a": 1.0}
    weighed, repeated = (RecalibratedClassifier(says(0.9), OnlinePlatt()) for _ in range(2))
    weighed.learn_one(x, False, w=0.0)
    assert weighed.predict_proba_one(x) == repeated.predict_proba_one(x)
    want = OnlinePlatt()
    want.learn_one(0.9, 0.0, 3.0)
    weighed.learn_one(x, False, w=3.0)
    assert weighed.predict_proba_one(x)[True] == want.predict_one(0.9)
    bayes = RecalibratedClassifier(naive_bayes.GaussianNB())  # takes no weights
    bayes.learn_one(x, True, w=2.0)
    logistic, plain = RecalibratedClassifier(linear_model.LogisticRegression()), linear_model.LogisticRegression()
    logistic.learn_one(x, True, w=2.0)
    plain.learn_one(x, True, w=2.0)
    assert logistic.classifier.weights == plain.weights


def test_a_label_learned_on_a_score_predicted_again_is_as_late_as_there_are_scores_that_wait():
    """The experts' weights move less by a label of an old score: one predicted anew for it must not hide that it is old."""
    prompt, late = (RecalibratedClassifier(says(0.9)) for _ in range(2))
    for i in range(1000):
        late.predict_proba_one({"a": i}, id=i)
    for i in range(50):
        for one in (prompt, late):
            one.learn_one({"b": i}, False, id=-1 - i)
    assert prompt.repredicted == late.repredicted == 50
    raw = [one._maps.weights["raw"] for one in (prompt, late)]
    # 50 labels to which raw gave .1 and another at most 1, each weighing 1 / (1 + 1000 / 10)
    most = 0.2 * math.exp(50 * math.log(10.0) / 101.0)
    assert raw[1] >= 0.8 / (0.8 + most) > 10 * raw[0]


@pytest.mark.parametrize("base_model", [linear_model.LogisticRegression, naive_bayes.GaussianNB])
@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_batches_are_rows_for_the_recalibrator(kind, base_model):
    """Beside one that is told what the classifier says of each row. The classifier learns batches in its own way."""
    frame, series = frames(kind)
    data = [({k: float(v) for k, v in x.items()}, y) for x, y in datasets.Phishing().take(90)]
    inner, model, single = base_model(), RecalibratedClassifier(base_model()), RecalibratedClassifier(says(0.5))
    inner.learn_many(frame([x for x, _ in data[:30]]), series([y for _, y in data[:30]]))
    model.classifier.learn_many(frame([x for x, _ in data[:30]]), series([y for _, y in data[:30]]))
    for i in range(30, 90, 6):
        X, y = frame([x for x, _ in data[i : i + 6]]), [y for _, y in data[i : i + 6]]
        said = listed(inner.predict_proba_many(X))
        want = []
        for k, row in enumerate(said):
            single.classifier.said = row
            want.append(single.predict_proba_one({"k": k}, id=k))
        labels = copy.deepcopy(model).predict_many(X)  # of a copy: what is served twice waits twice
        assert nw.from_native(labels, series_only=True).to_list() == [r[True] > r[False] for r in want]
        assert listed(model.predict_proba_many(X)) == want
        for k, label in enumerate(y):
            single.learn_one({"k": k}, label, id=k)
        inner.learn_many(X, series(y))
        model.learn_many(X, series(y))
    assert model.served == single.served == 60
    assert repr(model.report()["log_loss"]) == repr(single.report()["log_loss"])


def frames(kind):
    """(rows -> dataframe, values -> series) of a package."""
    if kind == "pyarrow":
        pa = pytest.importorskip("pyarrow")
        return pa.Table.from_pylist, lambda values: pa.chunked_array([values])
    package = pytest.importorskip(kind)
    return package.DataFrame, lambda values: package.DataFrame({"y": values})["y"]


def listed(frame):
    """Its rows, with the labels that the column names mean."""
    rows = nw.from_native(frame, eager_only=True).iter_rows(named=True)
    return [{str(name) == "True": p for name, p in row.items()} for row in rows]


def test_batches_leave_out_missing_labels_and_take_weights():
    pl = pytest.importorskip("polars")
    X = pl.DataFrame({"a": [1.0, 2.0, 3.0, 4.0]})
    plain, holed = (RecalibratedClassifier(linear_model.LogisticRegression()) for _ in range(2))
    plain.learn_many(X[::2], pl.Series("y", [True, False]), w=pl.Series([2.0, 1.0]))
    holed.learn_many(X, pl.Series("y", [True, None, False, None]), w=pl.Series([2.0, 1.0, 1.0, 3.0]))
    assert holed.refused == 2
    assert holed.predict_proba_one({"a": 2.0}) == plain.predict_proba_one({"a": 2.0})
    with pytest.raises(ValueError, match="w must lie in"):
        holed.learn_many(X, pl.Series("y", [True] * 4), w=-1.0)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [("pandas", None), ("pandas", math.nan), ("pandas", "NA"), ("polars", None), ("pyarrow", None)],
)
def test_a_missing_label_in_a_batch_reaches_nobody(kind, missing):
    """Whatever type the series has because of it."""
    frame, series = frames(kind)
    if missing == "NA":
        missing = pytest.importorskip("pandas").NA
    whole, holed = (RecalibratedClassifier(linear_model.LogisticRegression()) for _ in range(2))
    rows = [{"a": 1.0}, {"a": 2.0}, {"a": 3.0}]
    whole.learn_many(frame(rows[::2]), series([True, False]))
    holed.learn_many(frame(rows), series([True, missing, False]))
    assert holed.refused == 1 and holed.predict_proba_one({"a": 2.0}) == whole.predict_proba_one({"a": 2.0})
    holed.learn_many(frame(rows[:1]), series([missing]))
    assert holed.refused == 2


def test_a_batch_that_is_not_allowed_is_learned_by_nobody():
    pl = pytest.importorskip("polars")
    X = pl.DataFrame({"a": [1.0, 2.0]})
    model = RecalibratedClassifier(linear_model.LogisticRegression())
    for y, options, message in (
        ([True], {}, "X, y and w must have as many rows, got 2, 1 and 2"),
        ([True, False], {"w": pl.Series([1.0])}, "X, y and w must have as many rows, got 2, 2 and 1"),
        ([True, False], {"w": pl.Series([1.0, -1.0])}, "w must lie in"),
        ([True, False], {"id": ["one"]}, "id must name each of 2 rows, got 1 ids"),
        ([1, 7], {}, "labels must be False or True here"),
    ):
        with pytest.raises(ValueError, match=message):
            model.learn_many(X, pl.Series("y", y), **options)
    assert model.report()["counts"] == dict.fromkeys(model.report()["counts"], 0)
    assert model.classifier.weights == {}


@pytest.mark.parametrize("labels", [(0, 1), ("False", "True"), (False, True)])
@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_trained_model_says_what_its_labels_are(kind, labels):
    """Where all column names are texts."""
    frame, series = frames(kind)
    rows = [{"a": float(i % 3), "b": float(i)} for i in range(12)]
    y = [labels[i % 2] for i in range(12)]
    inner = naive_bayes.GaussianNB()
    for row, label in zip(rows, y):
        inner.learn_one(row, label)
    model = RecalibratedClassifier(inner)
    model.predict_proba_many(frame(rows))
    model.learn_many(frame(rows), series(y))
    assert list(model.predict_proba_one(rows[0])) in ([*labels], [*labels[::-1]])
    assert model.served == 12 and set(map(type, model.predict_proba_one(rows[0]))) == {type(labels[0])}


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_nan_in_a_batch_is_found_again(kind):
    """Two readings of the same row are the same features, as those of one x are."""
    X, served = frames(kind)[0]([{"a": 1.0, "b": math.nan}, {"a": 2.0, "b": math.nan}]), Served(10)
    assert [served.remember(x) for x in rows_of(X)] == [1, 2]
    assert [served.take(x) for x in rows_of(X)] == [1, 2]


def test_ids_of_batches():
    pl = pytest.importorskip("polars")
    X = pl.DataFrame({"a": [1.0, 2.0]})
    model = RecalibratedClassifier(linear_model.LogisticRegression())
    model.predict_proba_many(X, id=["one", "two"])
    model.learn_many(X[::-1], pl.Series("y", [True, False]), id=["two", "one"])
    model.predict_many(X, id=[3, 4])
    model.learn_one({"a": 5.0}, True, id=4)
    assert (model.served, model.repredicted, model.waiting) == (3, 0, 1)


def test_an_id_that_no_dict_can_find():
    model = RecalibratedClassifier(says(0.5))
    for call in (model.predict_proba_one, lambda x, id: model.learn_one(x, True, id=id)):
        with pytest.raises(ValueError, match="id must be hashable"):
            call({"a": 1}, id=[1])


def test_a_wrapper_that_never_finds_its_scores_says_so():
    """Inside a pipeline whose scaler moves on."""
    model = preprocessing.StandardScaler() | RecalibratedClassifier(linear_model.LogisticRegression())
    with pytest.warns(UserWarning, match="no served score was found again for the first 100 labels"):
        evaluate.progressive_val_score(datasets.Phishing(), model, metrics.LogLoss())


def test_a_classifier_without_batches_has_none():
    model = RecalibratedClassifier(says(0.5))
    assert not any(hasattr(model, name) for name in ("learn_many", "predict_proba_many", "predict_many"))


def test_a_long_run_keeps_its_size():
    """20,000 events with labels 500 late, some of which never come: memory as after the first 5,000."""
    model, sizes = RecalibratedClassifier(says(0.8), memory=300), []
    for i in range(20_000):
        model.predict_proba_one({"a": i})
        if i >= 500 and i % 3:
            model.learn_one({"a": i - 500}, i % 2 == 0)
        if i in (5_000, 19_999):
            model.classifier.learned.clear()
            sizes.append(len(pickle.dumps(model)))
    assert sizes[1] < 1.05 * sizes[0]
    assert model.waiting <= 300 and model.served == 0 < model.forgotten
