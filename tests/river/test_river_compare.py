"""Side by side: what a classifier said and what recalibration made of it are what separate runs give, also with late labels."""

from __future__ import annotations

import datetime as dt
import math

import numpy as np
import pytest
from river import base, datasets, evaluate, linear_model, metrics, multiclass, naive_bayes, preprocessing, stream, tree

from streamcal import EqualWidth, OnlineHistogram, OnlinePlatt, ece, k2, top_label
from streamcal.river.classifier import RecalibratedClassifier
from streamcal.river.comparison import compare
from streamcal.river.predictions import probabilities


def logistic():
    return preprocessing.StandardScaler() | linear_model.LogisticRegression()


def served(model, dataset, delay=None, by_id=False):
    """(probabilities, label) of each event in the order of the labels, and the model learns."""
    waiting, events = {}, []
    for i, x, y in stream.simulate_qa(dataset, None, delay):
        named = {"id": i} if by_id else {}
        if y is None:
            waiting[i] = probabilities(model.predict_proba_one(x, **named))
        else:
            events.append((waiting.pop(i), y))
            model.learn_one(x, y, **named)
    return events


def equal(one, other):
    """Whether two reports are equal; nan is nan."""
    return repr(one) == repr(other)


MODELS = {
    "around a classifier": lambda: naive_bayes.GaussianNB(),
    "around a pipeline": logistic,
    "wrapped": lambda: RecalibratedClassifier(naive_bayes.GaussianNB()),
    "at the end of a pipeline": lambda: (
        preprocessing.StandardScaler() | RecalibratedClassifier(linear_model.LogisticRegression())
    ),
    "deep in pipelines": lambda: (
        preprocessing.MinMaxScaler()
        | (preprocessing.StandardScaler() | RecalibratedClassifier(linear_model.LogisticRegression()))
    ),
}
BARE = {
    "around a classifier": lambda: naive_bayes.GaussianNB(),
    "around a pipeline": logistic,
    "wrapped": lambda: naive_bayes.GaussianNB(),
    "at the end of a pipeline": logistic,
    "deep in pipelines": lambda: preprocessing.MinMaxScaler() | logistic(),
}
ALONE = {
    "around a classifier": lambda: RecalibratedClassifier(naive_bayes.GaussianNB()),
    "around a pipeline": lambda: RecalibratedClassifier(logistic()),
    **{name: MODELS[name] for name in ("wrapped", "at the end of a pipeline", "deep in pipelines")},
}


@pytest.mark.parametrize("delay", [None, 1, 100, 2000])
@pytest.mark.parametrize("name", MODELS)
def test_both_are_what_separate_runs_give(name, delay):
    both = compare(MODELS[name](), datasets.Phishing(), delay=delay)
    raw = served(BARE[name](), datasets.Phishing(), delay)
    after = served(ALONE[name](), datasets.Phishing(), delay, by_id=True)
    for when, events in (("before", raw), ("after", after)):
        events = [event for event, (said, _) in zip(events, raw) if said]
        assert both["count"] == both[when]["count"] == len(events)
        if not events:  # no label came in time to learn from
            assert name in ("around a classifier", "wrapped") and delay == 2000
            continue
        p, y = np.array([(probs.get(True, 0.0), label) for probs, label in events]).T
        wanted = -np.mean([np.log(max(probs.get(label, 0.0), 1e-15)) for probs, label in events])
        assert both[when]["log_loss"] == pytest.approx(wanted, rel=1e-9)
        assert both[when]["ece"] == pytest.approx(ece(p, y, 15), abs=1e-12)
        assert both[when]["k2_debiased"] == pytest.approx(k2(p, y, binning=EqualWidth(15), debias=True), abs=1e-12)
        assert both[when]["brier"] == pytest.approx(np.mean((p - y) ** 2), abs=1e-9)


@pytest.mark.parametrize("delay", [None, 200])
def test_it_is_what_progressive_validation_gives(delay):
    both = compare(logistic(), datasets.Phishing(), delay=delay)
    for when, model in (("before", logistic()), ("after", RecalibratedClassifier(logistic()))):
        wanted = evaluate.progressive_val_score(datasets.Phishing(), model, metrics.LogLoss(), delay=delay)
        assert both[when]["log_loss"] == pytest.approx(wanted.get(), rel=1e-9)


def test_moment_and_delay_may_be_times():
    """An event a minute and labels two hours late: 120 events late."""
    start = dt.datetime(2020, 1, 1)
    timed = [({**x, "at": start + dt.timedelta(minutes=i)}, y) for i, (x, y) in enumerate(datasets.Phishing())]

    def untimed():
        return naive_bayes.GaussianNB()

    class Blind(base.Classifier):
        """Drops the time."""

        def __init__(self):
            self.inner = untimed()

        def learn_one(self, x, y):
            self.inner.learn_one({k: v for k, v in x.items() if k != "at"}, y)

        def predict_proba_one(self, x):
            return self.inner.predict_proba_one({k: v for k, v in x.items() if k != "at"})

    by_time = compare(Blind(), timed, moment="at", delay=dt.timedelta(hours=2))
    by_count = compare(untimed(), datasets.Phishing(), delay=120)
    assert equal(by_time["before"], by_count["before"]) and equal(by_time["after"], by_count["after"])


def test_several_classes_are_read_by_the_top_label():
    names = sorted({y for _, y in datasets.ImageSegments()})
    both = compare(tree.HoeffdingTreeClassifier(), datasets.ImageSegments())
    events = [event for event in served(tree.HoeffdingTreeClassifier(), datasets.ImageSegments()) if event[0]]
    probs = np.array([[one.get(name, 0.0) for name in names] for one, _ in events])
    labels = np.array([names.index(y) for _, y in events])
    assert both["claim"] == "top label" and both["count"] == len(events)
    assert both["before"]["ece"] == pytest.approx(ece(*top_label(probs, labels)), abs=1e-12)
    hit = np.eye(len(names))[labels]
    assert both["before"]["brier"] == pytest.approx(((probs - hit) ** 2).sum(-1).mean(), rel=1e-9)
    wanted = -np.log(np.maximum(probs[np.arange(labels.size), labels], 1e-15)).mean()
    assert both["before"]["log_loss"] == pytest.approx(wanted, rel=1e-9)


def test_an_overconfident_classifier_is_repaired():
    """T = 1,250: naive Bayes on features that repeat each other; measured: log loss .70 -> .38, ECE .069 -> .038."""
    both = compare(naive_bayes.GaussianNB(), datasets.Phishing())
    assert both["after"]["ece"] < 0.7 * both["before"]["ece"]
    assert both["after"]["log_loss"] < 0.7 * both["before"]["log_loss"]


def test_the_table_shows_the_numbers():
    both = compare(logistic(), datasets.Phishing().take(300), recalibrator=OnlinePlatt())
    lines = str(both).splitlines()
    assert lines[0] == f"probability of True, {both['count']:,} labels"
    assert lines[1].split() == ["before", "after"]
    for line, name in zip(lines[2:], ("ece", "k2_debiased", "log_loss", "brier"), strict=True):
        assert line.split()[-2:] == [f"{both[when][name]:.5f}" for when in ("before", "after")]


def test_the_reports_are_streamcals():
    both = compare(logistic(), datasets.Phishing())
    for when in ("before", "after"):
        assert (
            both[when]["metrics"]["ece"]["null"][1] > 0.0 and sum(r["count"] for r in both[when]["reliability"]) == 1250
        )


def test_the_model_learns_in_place():
    model = preprocessing.StandardScaler() | RecalibratedClassifier(linear_model.LogisticRegression())
    both = compare(model, datasets.Phishing().take(200))
    assert both["model"] is model["RecalibratedClassifier"]
    assert model.predict_proba_one(next(iter(datasets.Phishing()))[0])[True] != 0.5


def test_the_recalibrator_is_used():
    both = compare(naive_bayes.GaussianNB(), datasets.Phishing(), recalibrator=OnlineHistogram())
    assert isinstance(both["model"].recalibrator, OnlineHistogram)


@pytest.mark.parametrize("missing", [None, math.nan])
@pytest.mark.parametrize("delay", [None, 30])
def test_missing_labels_are_counted(missing, delay):
    """They are in neither report, and change nothing in them."""
    rows = list(datasets.Phishing())
    holed = [row for i, row in enumerate(rows) for row in ([(rows[i][0], missing), row] if i % 3 == 0 else [row])]
    both = compare(naive_bayes.GaussianNB(), holed, delay=delay)
    assert both["unlabelled"] == 417 and both["count"] + both["unpredicted"] == 1250
    assert "left out, unlabelled: 417" in str(both)
    if delay is None:
        assert equal(both["before"], compare(naive_bayes.GaussianNB(), rows)["before"])


def test_a_classifier_that_says_nothing_is_left_out():
    both = compare(naive_bayes.GaussianNB(), datasets.Phishing(), delay=100)
    silent = sum(not probs for probs, _ in served(naive_bayes.GaussianNB(), datasets.Phishing(), 100))
    assert both["unpredicted"] == silent == 1250 - both["count"] > 0


def test_weights_count():
    """Weights of the data go into the reports, and to the model."""
    rows = list(datasets.Phishing().take(400))
    weighted = [(x, y, {"w": 1.0 + i % 2}) for i, (x, y) in enumerate(rows)]
    one = compare(logistic(), weighted, recalibrator=OnlinePlatt())
    assert one["before"]["weight"] == 600.0 and one["before"]["count"] == 400.0
    assert one["before"]["log_loss"] != compare(logistic(), rows)["before"]["log_loss"]


def test_nothing_seen():
    both = compare(logistic(), [])
    assert both["count"] == 0 and math.isnan(both["before"]["log_loss"]) and "0 labels" in str(both)


def test_other_positive_labels():
    """Text labels with pos_val; without it two labels are read by the top one."""
    rows = [(x, "ham" if y else "spam") for x, y in datasets.Phishing()]
    assert compare(naive_bayes.GaussianNB(), rows, pos_val="ham")["claim"] == "probability of 'ham'"
    assert compare(naive_bayes.GaussianNB(), rows)["claim"] == "top label"


def test_scores_are_found_also_inside_a_pipeline():
    """The scaler has moved on when a label comes late: each event has its number as id. An id of the data goes first."""
    rows = list(datasets.Phishing())
    for given in (rows, [(x, y, {"id": f"event {i}"}) for i, (x, y) in enumerate(rows)]):
        both = compare(MODELS["deep in pipelines"](), given, delay=100)
        assert (both["model"].served, both["model"].repredicted) == (1250, 0)


class Half(base.Classifier):
    """Says how probable one of two labels is, and leaves the other out."""

    def __init__(self, label):
        self.label = label

    def learn_one(self, x, y):
        pass

    def predict_proba_one(self, x):
        return {self.label: 0.25}


@pytest.mark.parametrize("label", [True, False])
def test_a_label_that_is_left_out_has_the_rest(label):
    rows = [({"a": float(i)}, i % 4 == 0) for i in range(100)]
    both = compare(Half(label), rows)
    assert both["before"]["mean_p"] == (0.25 if label else 0.75)
    assert both["before"]["log_loss"] == pytest.approx(
        -np.mean([np.log(0.25 if y == label else 0.75) for _, y in rows])
    )


def test_what_is_refused():
    with pytest.raises(ValueError, match="model must be a classifier"):
        compare(linear_model.LinearRegression(), datasets.TrumpApproval())
    with pytest.raises(ValueError, match="the model has a recalibrator"):
        compare(RecalibratedClassifier(logistic()), datasets.Phishing(), recalibrator=OnlinePlatt())


def test_one_against_the_rest_of_several_classes():
    inner = preprocessing.StandardScaler() | multiclass.OneVsRestClassifier(linear_model.LogisticRegression())
    both = compare(inner, datasets.ImageSegments(), delay=100)
    assert both["after"]["log_loss"] < both["before"]["log_loss"]
