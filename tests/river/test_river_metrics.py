"""Every River metric, by the plan that River tests its own by, and more: each test runs over river_cases.CASES.

Which test covers which kind of field report (applies_to river-adapter, as far as it concerns metrics):

    numpy-bool-subtraction           there: test_river_predictions.py
    string-label-zero                there
    none-label-counted-negative      there, and test_what_says_nothing_is_refused_and_counted
    string-keys                      there
    cold-start-none                  there, and test_in_a_run_with_a_cold_start
    label-vs-dict                    there
    predict-side-effect              test_reading_changes_nothing
    jitclass-pickle                  test_pickle_and_deepcopy_go_on_where_it_was
"""

from __future__ import annotations

import collections
import copy
import datetime as dt
import math
import pickle

import numpy as np
import pytest
from river import (
    datasets,
    ensemble,
    evaluate,
    linear_model,
    metrics,
    naive_bayes,
    neighbors,
    preprocessing,
    tree,
    utils,
)
from river_cases import CASES, METRICS, name_of

from streamcal import ece
from streamcal.river.interval_metrics import Coverage
from streamcal.river.metrics import ECE, Brier, MarginalCE, NormalizedEntropy, PARatio, TopLabelECE

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
every_metric = pytest.mark.parametrize("make", METRICS.values(), ids=METRICS.keys())


def same(a, b, tolerance):
    assert a == pytest.approx(b, rel=tolerance, abs=tolerance, nan_ok=True)


def fed(metric, events):
    for y, p, w in events:
        metric.update(y, p, w)
    return metric


def windows_of(metric):
    return [metric._window, *getattr(metric, "_windows", {}).values()]


def cells_of(metric):
    return np.concatenate([window.cells.ravel() for window in windows_of(metric)])


# ---------------------------------------------------------------------------- River's plan


@every_case
def test_equals_the_batch_function_at_every_step_with_weights(case):
    for seed in range(3):
        events = case.draw(np.random.default_rng(seed), 30)
        metric = case.make()
        assert math.isnan(metric.get())
        for i, (y, p, w) in enumerate(events):
            metric.update(y_true=y, y_pred=p, w=w)
            same(metric.get(), case.truth(events[: i + 1]), 1e-10)


@every_case
@pytest.mark.parametrize("size", [1, 2, 5, 10])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_rolling_equals_the_batch_function_on_the_tail(case, size):
    events = [(y, p, 1.0) for y, p, _ in case.draw(np.random.default_rng(size), 30)]
    rolling = utils.Rolling(case.make(), window_size=size)
    for i, (y, p, _) in enumerate(events):
        rolling.update(y_true=y, y_pred=p)
        str(rolling)
        same(rolling.get(), case.truth(events[: i + 1][-size:]), 1e-10)


@every_case
@pytest.mark.parametrize("size", [1, 2, 5, 10])
def test_a_window_of_its_own_equals_the_batch_function_on_the_tail(case, size):
    events = case.draw(np.random.default_rng(size), 30)
    metric = case.make(window_size=size)
    for i, (y, p, w) in enumerate(events):
        metric.update(y, p, w)
        same(metric.get(), case.truth(events[: i + 1][-size:]), 1e-10)


@every_case
def test_fading_equals_the_batch_function_with_fading_weights(case):
    events = case.draw(np.random.default_rng(1), 40)
    metric = fed(case.make(half_life=7), events)
    faded = [(y, p, w * 2.0 ** (-(len(events) - 1 - i) / 7)) for i, (y, p, w) in enumerate(events)]
    same(metric.get(), case.truth(faded), 1e-9)


@every_case
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_time_rolling_equals_the_batch_function_on_the_period(case):
    rng, start = np.random.default_rng(4), dt.datetime(2024, 1, 1)
    events = case.draw(rng, 40)
    times = [start + dt.timedelta(hours=h) for h in np.cumsum(rng.exponential(1.0, 40)).tolist()]
    rolling = utils.TimeRolling(case.make(), period=dt.timedelta(hours=6))
    for i, ((y, p, w), t) in enumerate(zip(events, times)):
        rolling.update(y, p, w, t=t)
        inside = [e for e, at in zip(events[: i + 1], times) if at > t - dt.timedelta(hours=6)]
        same(rolling.get(), case.truth(inside), 1e-10)


@every_case
def test_reverting_everything_leaves_nothing(case):
    """Not even rounding dust: the sums are those of a new metric."""
    rng = np.random.default_rng(5)
    events = [(y, p, w * 10.0 ** rng.integers(-6, 6)) for y, p, w in case.draw(rng, 60)]
    metric = fed(case.make(), events)
    for i in rng.permutation(60):
        metric.revert(*events[i])
    assert math.isnan(metric.get())
    assert not np.abs(cells_of(metric)[:-8]).max() > 0


@every_case
def test_reverting_some_leaves_the_others(case):
    rng = np.random.default_rng(6)
    events = case.draw(rng, 60)
    gone = set(rng.permutation(60)[:45].tolist())
    metric = fed(case.make(), events)
    for i in gone:
        metric.revert(*events[i])
    rest = [e for i, e in enumerate(events) if i not in gone]
    same(metric.get(), case.truth(rest), 1e-12)
    np.testing.assert_allclose(cells_of(metric), cells_of(fed(case.make(), rest)), rtol=1e-13, atol=1e-15)


@every_case
def test_what_was_never_added_cannot_be_reverted(case):
    event = case.draw(np.random.default_rng(7), 1)[0]
    if not isinstance(metric := case.make(), MarginalCE) or metric.classes:
        with pytest.raises(ValueError, match="no such event"):
            metric.revert(*event)
    fed(metric, [event])
    metric.revert(*event)
    with pytest.raises(ValueError, match="no such event"):
        metric.revert(*event)


@every_case
@pytest.mark.parametrize("window", [{"window_size": 3}, {"half_life": 3.0}], ids=str)
def test_a_window_of_its_own_cannot_revert_and_says_why(case, window):
    events = case.draw(np.random.default_rng(8), 5)
    metric = fed(case.make(**window), events)
    (name,) = window
    before = cells_of(metric)
    with pytest.raises(ValueError, match=rf"{type(metric).__name__}\({name}=3.*for utils.Rolling leave {name} out"):
        metric.revert(*events[-1])
    np.testing.assert_array_equal(cells_of(metric), before)


@every_case
@pytest.mark.parametrize("window", [{}, {"window_size": 9}, {"half_life": 9.0}], ids=str)
def test_pickle_and_deepcopy_go_on_where_it_was(case, window):
    events = case.draw(np.random.default_rng(9), 30)
    metric = fed(case.make(**window), events[:20])
    for twin in (pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric), metric.clone(include_attributes=True)):
        assert type(twin) is type(metric)
        assert repr(twin) == repr(metric)
        original = fed(copy.deepcopy(metric), events[20:])
        fed(twin, events[20:])
        np.testing.assert_array_equal(cells_of(twin), cells_of(original))
        if not window:
            twin.revert(*events[0])
    fresh = pickle.loads(pickle.dumps(case.make(**window)))
    same(fed(fresh, events).get(), fed(metric, events[20:]).get(), 1e-12)


@every_case
@pytest.mark.parametrize("window", [{}, {"window_size": 9}, {"half_life": 9.0}], ids=str)
def test_clone_has_the_parameters_and_has_seen_nothing(case, window):
    metric = fed(case.make(**window), case.draw(np.random.default_rng(10), 10))
    cloned = metric.clone()
    assert cloned._get_params() == metric._get_params()
    assert math.isnan(cloned.get())
    assert not cells_of(cloned).any()
    changed = metric.clone({"window_size": 4, "half_life": None})
    assert changed.window_size == 4


@every_case
def test_repr(case):
    metric = case.make()
    assert repr(metric) == f"{type(metric).__name__}: nan"
    for event in case.draw(np.random.default_rng(11), 12):
        metric.update(*event)
        name, _, value = str(metric).partition(": ")
        assert name == type(metric).__name__
        if not math.isnan(metric.get()):
            assert float(value.replace(",", "")) == pytest.approx(metric.get(), abs=1e-6)


# ---------------------------------------------------------------------------- what a River metric is


@every_metric
def test_what_river_asks_of_a_metric(make):
    metric = make()
    kind = type(metric)
    assert issubclass(kind, metrics.base.Metric)
    assert metric.bigger_is_better is False
    assert metric.works_with_weights
    assert kind.__doc__ and ">>>" in kind.__doc__
    assert [kind(**params) for params in kind._unit_test_params()]
    for name, value in metric._get_params().items():
        assert not isinstance(value, np.ndarray), name
        assert getattr(make(), name) == value
    classifier, regressor = linear_model.LogisticRegression(), linear_model.LinearRegression()
    if isinstance(metric, metrics.base.ClassificationMetric):
        assert metric.requires_labels is False
        assert metric.works_with(classifier) and not metric.works_with(regressor)
        assert metric.works_with(preprocessing.StandardScaler() | classifier)
    else:
        assert not hasattr(
            metric, "requires_labels"
        )  # River's own regression metrics have none: Metrics would ask them
        assert metric.works_with(regressor) and not metric.works_with(classifier)


@every_case
def test_python_floats_come_out(case):
    metric = fed(case.make(), case.draw(np.random.default_rng(12), 10))
    assert type(metric.get()) is float
    assert type(metric.n_refused) is float


@every_case
def test_reading_changes_nothing(case):
    events = case.draw(np.random.default_rng(13), 20)
    metric, unread = case.make(), fed(case.make(), events)
    for event in events:
        metric.update(*event)
        metric.get(), repr(metric), metric.report(), metric.n_refused, metric.is_better_than(metric)
    assert pickle.dumps(metric) == pickle.dumps(unread)
    np.testing.assert_array_equal(cells_of(metric), cells_of(unread))


@every_case
def test_a_prediction_is_only_read(case):
    for y, p, w in case.draw(np.random.default_rng(14), 5):
        before = copy.deepcopy(p)
        metric = case.make()
        metric.update(y, p, w)
        metric.revert(y, p, w)
        assert vars(p).keys() == vars(before).keys() if hasattr(p, "__dict__") else p == before


@every_case
def test_better_is_smaller_or_nearer(case):
    rng = np.random.default_rng(15)
    one, two = (fed(case.make(), case.draw(rng, 25)) for _ in range(2))
    distance = {
        "PARatio": lambda m: abs(math.log(m.get())),
        "Coverage": lambda m: abs(m.get() - m.level),
    }.get(type(one).__name__, lambda m: m.get())
    assert (one > two) == (distance(one) < distance(two))
    assert (two > one) == (distance(two) < distance(one))
    assert not case.make() > one and not one > case.make()  # nan is not better, nor worse


def test_a_ratio_or_a_coverage_is_better_nearer_to_its_target():
    ratios = {}
    for p in (0.1, 0.5, 0.9):
        ratios[p] = fed(PARatio(), [(True, p, 1.0), (False, p, 1.0)])
    assert ratios[0.5] > ratios[0.9] > ratios[0.1]  # 1, 1.8 and .2
    nothing, all_zero = fed(PARatio(), [(False, 0.5, 1.0)]), fed(PARatio(), [(True, 0.0, 1.0)])
    assert nothing.get() == math.inf and all_zero.get() == 0.0
    assert ratios[0.1] > nothing and ratios[0.1] > all_zero
    half, whole = (fed(Coverage(0.5), [(y, 1.0, 1.0) for y in ys]) for ys in ((0, 2), (0, 0)))
    assert half > whole and not whole > half


# ---------------------------------------------------------------------------- missing and wrong


@every_case
@pytest.mark.parametrize("nothing", [None, math.nan, np.nan, np.float64("nan")], ids=name_of)
@pytest.mark.parametrize("window", [{}, {"window_size": 50}, {"half_life": 1e6}], ids=str)
def test_what_says_nothing_is_refused_and_counted(case, nothing, window):
    events = case.draw(np.random.default_rng(16), 10)
    metric, clean = case.make(**window), fed(case.make(**window), events)
    for y, p, w in events:
        metric.update(nothing, p, w)
        metric.update(y, p, w)
        metric.update(y, nothing, w)
    same(
        metric.get(), clean.get(), 1e-4 if "half_life" in window else 1e-12
    )  # in a fading window it makes others older
    same(metric.n_refused, 20.0, 1e-4)
    assert clean.n_refused == 0.0
    if not window:
        for y, p, w in events:
            metric.revert(nothing, p, w)
            metric.revert(y, nothing, w)
        assert metric.n_refused == 0.0
        np.testing.assert_array_equal(cells_of(metric), cells_of(clean))


@every_case
@pytest.mark.parametrize("w", [-1.0, math.nan, math.inf, None, "heavy"], ids=name_of)
def test_a_wrong_weight_is_refused_and_counted(case, w):
    events = case.draw(np.random.default_rng(17), 6)
    metric = fed(case.make(), events)
    before, value = cells_of(metric), metric.get()
    for y, p, _ in events:
        metric.update(y, p, w)
    same(metric.get(), value, 0.0)
    assert metric.n_refused == 6.0
    for y, p, _ in events:
        metric.revert(y, p, w)
    np.testing.assert_array_equal(cells_of(metric), before)


WRONG = [
    ({"window_size": 0}, "window_size must be a whole number at least 1, got 0"),
    ({"window_size": 2.5}, "window_size must be a whole number"),
    ({"half_life": 0}, "half_life must be a number of events"),
    ({"half_life": "7"}, "half_life must be a number of events"),
    ({"window_size": 5, "half_life": 5}, "window_size or half_life, not both, got 5 and 5"),
    ({"n_bins": 0}, "n_bins must be a whole number at least"),
    ({"binning": "equal"}, "binning must be None, 'equal-width', .* or a Binning, got 'equal'"),
    ({"binning": [0.0, 0.5, 1.0]}, r"or a Binning, got \[0.0, 0.5, 1.0\]"),
    ({"debias": "False"}, "debias must be True or False, got 'False'"),
    ({"level": 1.5}, r"level must lie in \(0, 1\), got 1.5"),
    ({"norm": 3}, "norm must be 1 or 2, and 2 with debias, got 3"),
    ({"norm": 1, "debias": True}, "norm must be 1 or 2, and 2 with debias, got 1"),
    ({"classes": ("a",)}, r"classes must be None or at least two different labels, got \('a',\)"),
    ({"classes": (1, True)}, "at least two different labels"),
    ({"classes": "ab"}, "at least two different labels, got 'ab'"),
]
WRONG_CASES = [
    pytest.param(type(make()), arguments, message, id=f"{name}-{arguments}")
    for name, make in METRICS.items()
    for arguments, message in WRONG
    if set(arguments) <= set(make()._get_params())
]


@pytest.mark.parametrize(("kind", "arguments", "message"), WRONG_CASES)
def test_a_wrong_parameter_is_named_at_once(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        kind(**arguments)


# ---------------------------------------------------------------------------- inside River


def scaled(model):
    return preprocessing.StandardScaler() | model


def served(dataset, model):
    """(p, y) as progressive validation sees them."""
    p, y = [], []
    for x, label in dataset:
        proba = model.predict_proba_one(x)
        if proba:
            p.append(proba[True])
            y.append(label)
        model.learn_one(x, label)
    return p, y


def test_added_to_log_loss_in_progressive_validation():
    model = scaled(linear_model.LogisticRegression())
    both = metrics.LogLoss() + ECE(window_size=1000)
    assert isinstance(both, metrics.base.Metrics) and not both.requires_labels
    alone = evaluate.progressive_val_score(datasets.Phishing(), model.clone(), metrics.LogLoss())
    evaluate.progressive_val_score(datasets.Phishing(), model.clone(), both)
    p, y = served(datasets.Phishing(), model.clone())
    assert len(p) == 1250
    assert both[0].get() == alone.get()
    same(both[1].get(), ece(p[-1000:], y[-1000:]), 1e-12)
    assert repr(both).splitlines()[1] == f"ECE: {both[1].get():.6f}".rstrip("0")


def test_among_metrics_that_need_labels():
    model = scaled(linear_model.LogisticRegression())
    mixed = metrics.Accuracy() + ECE() + metrics.ROCAUC() + Brier(window_size=100)
    evaluate.progressive_val_score(datasets.Phishing(), model.clone(), mixed)
    accuracy = evaluate.progressive_val_score(datasets.Phishing(), model.clone(), metrics.Accuracy())
    p, y = served(datasets.Phishing(), model.clone())
    assert mixed[0].get() == accuracy.get()
    same(mixed[1].get(), ece(p, y), 1e-12)
    same(mixed[3].get(), float(np.mean((np.array(p) - np.array(y))[-100:] ** 2)), 1e-12)
    assert [type(m) for m in mixed.clone()] == [type(m) for m in mixed]
    with pytest.raises(ValueError, match="not compatible"):
        ECE() + Coverage()


def test_metrics_revert_together():
    both, events = metrics.LogLoss() + ECE(), [(True, {True: 0.8, False: 0.2}), (False, {True: 0.7, False: 0.3})]
    for event in events:
        both.update(*event, 2.0)
    both.revert(*events[0], 2.0)
    same(both[1].get(), 0.7, 1e-12)


def test_beside_river_s_regression_metrics():
    both = Coverage(0.5) + metrics.MAE()
    evaluate.progressive_val_score(datasets.TrumpApproval(), scaled(linear_model.LinearRegression()), both)
    assert 0.0 < both[0].get() < 1.0


def test_with_delayed_labels():
    """Each served score counts once, when its label arrives."""
    model = scaled(linear_model.LogisticRegression())
    steps = evaluate.iter_progressive_val_score(
        datasets.Phishing(), model, ECE(), delay=100, step=250, yield_predictions=True
    )
    steps = list(steps)
    assert steps[-1]["Step"] == 1250
    assert steps[-1]["ECE"].report()["count"] == 1250.0


MODELS = [
    naive_bayes.GaussianNB(),
    tree.HoeffdingTreeClassifier(),
    neighbors.KNNClassifier(),
    ensemble.BaggingClassifier(tree.HoeffdingTreeClassifier(), n_models=3, seed=1),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_in_a_run_with_a_cold_start(model):
    """Empty dicts, a class that is not there yet, unnormalised Counters: given to the metrics as they come."""
    binary, several, wild = ECE(), TopLabelECE() + MarginalCE() + MarginalCE(classes=("sea", "moon")), 0
    model = model.clone()
    for x, y in datasets.Bananas().take(300):
        p = model.predict_proba_one(x)
        wild += len(p) != 2 or type(p) is not dict
        binary.update(y, p)
        model.learn_one(x, y)
    assert wild  # else this test says nothing
    assert binary.report()["count"] + binary.n_refused == 300.0
    assert 0.0 <= binary.get() <= 1.0
    model = model.clone()
    for x, y in datasets.ImageSegments().take(300):
        several.update(y, model.predict_proba_one(x))
        model.learn_one(x, y)
    for metric in several[:2]:
        assert 0.0 <= metric.get() <= 1.0
        assert 1.0 <= metric.n_refused < 5.0
    assert several[2].n_refused == 300.0  # labels that were not declared


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_rolling_does_not_drift_over_a_long_run():
    """River's rolling variance of [1, 1, 1] is 128 after large values; here what remains is what is left."""
    rng = np.random.default_rng(18)
    rolling, own, last = utils.Rolling(NormalizedEntropy(), 50), NormalizedEntropy(window_size=50), collections.deque()
    for i in range(20_000):
        w = 1e12 if i < 15_000 else 1e-6
        event = (bool(rng.random() < 0.3), float(rng.random()), w)
        rolling.update(*event)
        own.update(*event)
        last.append(event)
    fresh = fed(NormalizedEntropy(), list(last)[-50:])
    same(rolling.get(), fresh.get(), 1e-9)
    same(own.get(), fresh.get(), 1e-12)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_by_class_in_river_s_rolling():
    rolling = utils.Rolling(ECE, 2, n_bins=4)
    for y, p in ((True, 0.1), (True, 0.9), (False, 0.4)):
        rolling.update(y, p)
    same(rolling.get(), (0.1 + 0.4) / 2, 1e-12)
