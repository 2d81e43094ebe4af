"""Recalibrated regressors: River's own checks, coverage beside its theorem, bounded means, what is refused, delayed labels.

| field report | test |
|---|---|
| none-label-counted-negative | test_none_label_counted_negative |
| numpy-bool-subtraction | test_numpy_bool_subtraction |
| predict-side-effect | test_predict_side_effect |
| jitclass-pickle | test_jitclass_pickle |
"""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from statistics import NormalDist

import narwhals.stable.v2 as nw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from river import (
    base,
    checks,
    conf,
    datasets,
    evaluate,
    linear_model,
    metrics,
    neighbors,
    optim,
    preprocessing,
    stream,
    tree,
)

from streamcal import OnlinePlatt, QuantileTracker
from streamcal.river.interval_metrics import Coverage, IntervalScore
from streamcal.river.regressor import RecalibratedRegressor
from streamcal.river.residuals import PATIENCE


def scaled_linear(**settings):
    return preprocessing.StandardScaler() | linear_model.LinearRegression(**settings)


BASES = {
    "linear": linear_model.LinearRegression,
    "tree": tree.HoeffdingTreeRegressor,
    "nearest": lambda: neighbors.KNNRegressor(engine=neighbors.LazySearch(window_size=50)),
    "pipeline": scaled_linear,
}
ASKED = {
    "interval": {"interval": 0.9},
    "symmetric": {"interval": 0.8, "symmetric": True},
    "multivalid": {"interval": 0.9, "method": "multivalid"},
    "quantile": {"level": 0.9},
    "mean": {"low": 0.0, "high": 100.0},
    "mean by Platt": {"low": 0.0, "high": 100.0, "recalibrator": OnlinePlatt()},
}


class Given(base.Regressor):
    """A base that forecasts the feature "v" and remembers what it was given to learn."""

    def __init__(self):
        self.learned = []

    def learn_one(self, x, y, **kwargs):
        self.learned.append((x["v"], y, kwargs))

    def predict_one(self, x):
        return x["v"]


def feed(model, pairs):
    """(interval, target) of each (forecast, target), the interval served before the target was learned."""
    served = []
    for v, y in pairs:
        served.append((model.predict_one({"v": v}, with_interval=True), y))
        model.learn_one({"v": v}, y)
    return served


def drifting(seed, n=5000):
    """Forecast 0; normal outcomes whose spread triples half-way, and whose mean jumps by 2 in the last fifth."""
    rng, t = np.random.default_rng(seed), np.arange(n)
    return list(
        zip(itertools.repeat(0.0), np.where(t < n // 2, 1.0, 3.0) * rng.normal(size=n) + 2.0 * (t > 4 * n // 5))
    )


def coverage(served):
    return float(np.mean([y in interval for interval, y in served]))


def approval(model):
    """The same for the approval data, T = 1,001."""
    served = []
    for x, y in datasets.TrumpApproval():
        served.append((model.predict_one(x, with_interval=True), y))
        model.learn_one(x, y)
    return served


# -- River's conventions -------------------------------------------------------------------------------------------------


@pytest.mark.jit
@pytest.mark.no_cover  # thousands of events through models of River: other tests run the same lines
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a pipeline"])
def test_every_check_of_river_passes(asked, inside):
    """All that can be asked for, each with two of the bases in turn: of a base no more is known than its forecast."""
    name = list(BASES)[(list(ASKED).index(asked) + 2 * inside) % len(BASES)]
    model = RecalibratedRegressor(BASES[name](), **ASKED[asked])
    if inside:
        model = preprocessing.StandardScaler() | model
    assert model._unit_test_skips() == set()
    ran = 0
    for check in checks.yield_checks(model):
        check(model.clone())
        ran += 1
    assert ran >= 25


def test_parameters_for_tests_cover_the_three_kinds():
    kinds = [set(given) - {"regressor"} for given in RecalibratedRegressor._unit_test_params()]
    assert kinds == [{"interval"}, {"level"}, {"low", "high"}]


def test_parameters_are_kept_as_given_and_the_recalibrator_is_copied():
    mine, inner = OnlinePlatt(), Given()
    model = RecalibratedRegressor(inner, recalibrator=mine, low=0, high=1)
    assert model.recalibrator is mine and model.regressor is inner and model.low == 0
    for _ in range(50):
        model.learn_one({"v": 0.9}, 0.1)
    assert mine.predict_one(0.9) == 0.9
    assert model.predict_one({"v": 0.9}) < 0.5


@pytest.mark.parametrize("asked", ASKED)
def test_a_clone_has_learned_nothing(asked):
    model = RecalibratedRegressor(scaled_linear(), **ASKED[asked])
    fresh = pickle.dumps(model.clone())
    for x, y in datasets.TrumpApproval().take(100):
        model.learn_one(x, y)
    assert pickle.dumps(model.clone()) == fresh


@pytest.mark.parametrize("asked", ASKED)
def test_jitclass_pickle(asked):
    """A copy by pickle or deepcopy goes on as the original does."""
    model = RecalibratedRegressor(scaled_linear(), **ASKED[asked])
    rows = list(datasets.TrumpApproval().take(200))
    for x, y in rows[:100]:
        model.learn_one(x, y)
    copies = pickle.loads(pickle.dumps(model)), copy.deepcopy(model)
    wanted = "interval" in ASKED[asked]
    for x, y in rows[100:]:
        now = model.predict_one(x, with_interval=wanted)
        assert all(one.predict_one(x, with_interval=wanted) == now for one in copies)
        for one in (model, *copies):
            one.learn_one(x, y)


@pytest.mark.parametrize("asked", ASKED)
def test_predict_side_effect(asked):
    """Forecasts between, also of wild features, change no later forecast."""
    plain, asked_often = (RecalibratedRegressor(scaled_linear(), **ASKED[asked]) for _ in range(2))
    for x, y in datasets.TrumpApproval().take(150):
        for wild in (x, x, dict.fromkeys(x, 1e30), {}):
            asked_often.predict_one(wild)
        assert asked_often.predict_one(x) == plain.predict_one(x)
        for model in (plain, asked_often):
            model.learn_one(x, y)


# -- intervals -----------------------------------------------------------------------------------------------------------


def twin(pairs, level, lr, half_life):
    """The two-sided tracker in plain Python: (lower, upper) of each event, and the scaled residuals."""
    tail, gain = (1 + level) / 2, 1 - 0.5 ** (1 / half_life)
    start = math.sqrt(math.pi / 2) * NormalDist().inv_cdf(tail)
    lower = upper = start
    s, served, scores = 0.0, [], []
    for n, (v, y) in enumerate(pairs, 1):
        served.append((v - s * lower, v + s * upper))
        if s > 0:
            z = (y - v) / s
            scores.append(z)
            lower += lr * ((-z > lower) - (1 - tail))
            upper += lr * ((z > upper) - (1 - tail))
        size = min(abs(y - v), 10 * s) if s > 0 else abs(y - v)
        s += max(gain, 1 / n) * (size - s)
    return served, np.array(scores), start


def test_intervals_are_those_of_the_plain_rule():
    pairs = [(v, v + e) for (_, e), v in zip(drifting(3), np.sin(np.arange(2000) / 40).tolist())]
    model = RecalibratedRegressor(Given(), interval=0.8, lr=0.07, half_life=30.0)
    served, _, _ = twin(pairs, 0.8, 0.07, 30.0)
    for (interval, _), (low, high) in zip(feed(model, pairs), served):
        assert (interval.lower, interval.upper) == pytest.approx((min(low, high), max(low, high)), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["nearest", "pipeline"])
@pytest.mark.parametrize("nominal", [0.8, 0.9])
def test_coverage_of_the_approval_data_is_nominal(name, nominal):
    """T = 1,001. The theorem alone gives 2 (b + lr) / (lr T), which is more than .02 here; measured: within .01."""
    inner = scaled_linear(intercept_lr=0.1) if name == "pipeline" else BASES[name]()
    model = RecalibratedRegressor(inner, interval=nominal)
    served = approval(model)
    assert abs(coverage(served) - nominal) <= 0.02
    said = model.report()
    assert said["coverage"]["after"] == pytest.approx(coverage(served))
    assert said["width"]["after"] == pytest.approx(np.mean([interval.width for interval, _ in served]))


def test_coverage_is_nearer_and_intervals_better_than_those_of_jackknife():
    """T = 1,001 of the approval data; interval score: width + 20 x the distance of what is missed."""
    ours = approval(RecalibratedRegressor(scaled_linear(intercept_lr=0.1), interval=0.9))
    theirs = approval(conf.RegressionJackknife(scaled_linear(intercept_lr=0.1), confidence_level=0.9))
    assert abs(coverage(ours) - 0.9) < abs(coverage(theirs) - 0.9)
    drift = drifting(0)
    assert abs(coverage(feed(RecalibratedRegressor(Given(), interval=0.9), drift)) - 0.9) < 0.01
    assert coverage(feed(conf.RegressionJackknife(Given(), confidence_level=0.9), drift)) < 0.85


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("symmetric", [False, True])
def test_coverage_under_drift_is_nominal(seed, symmetric):
    """T = 5,000, spread and mean change: within .02; and within .05 in each fifth."""
    served = feed(RecalibratedRegressor(Given(), interval=0.9, symmetric=symmetric), drifting(seed))
    assert abs(coverage(served) - 0.9) <= 0.02
    for part in range(5):
        assert abs(coverage(served[1000 * part : 1000 * (part + 1)]) - 0.9) <= 0.05


def within_the_theorem(pairs, nominal, lr):
    """Both ends' frequencies of a miss beside (b + lr) / (lr T)."""
    served, scores, start = twin(pairs, nominal, lr, 50.0)
    first = len(pairs) - scores.size
    low, high = np.array(served[first:]).T
    y = np.array([y for _, y in pairs[first:]])
    for sign, end in ((-1.0, low), (1.0, high)):
        b = max(np.abs(sign * scores - start).max(), 1e-9)
        missed = np.mean(sign * y > sign * end)
        assert abs(missed - (1 - nominal) / 2) <= (b + lr) / (lr * scores.size) + 1e-9
    return 2 * (np.abs(scores).max() + start + lr) / (lr * scores.size)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60).filter(lambda ys: any(ys[:-1])),
    st.sampled_from([0.5, 0.8, 0.95]),
    st.sampled_from([0.02, 0.1, 1.0]),
)
def test_the_theorem_holds_whatever_comes(ys, nominal, lr):
    pairs = [(0.0, y) for y in ys]
    bound = within_the_theorem(pairs, nominal, lr)
    served = feed(RecalibratedRegressor(Given(), interval=nominal, lr=lr), pairs)
    first = next(i for i, y in enumerate(ys) if y) + 1
    assert coverage(served[first:]) >= nominal - bound - 1e-9


@pytest.mark.parametrize("name", BASES)
def test_the_theorem_holds_for_every_base(name):
    """T = 1,001 of the approval data, where the tree's forecasts reach 1e10."""
    inner, pairs = BASES[name](), []
    for x, y in datasets.TrumpApproval():
        v = inner.predict_one(x)
        if abs(v) <= 1e100:
            pairs.append((v, y))
        inner.learn_one(x, y)
    assert len(pairs) > 500
    within_the_theorem(pairs, 0.9, 0.1)


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("symmetric", [False, True])
def test_multivalid_intervals_cover(symmetric):
    """T = 20,000, spread and mean change."""
    model = RecalibratedRegressor(Given(), interval=0.9, method="multivalid", symmetric=symmetric)
    assert abs(coverage(feed(model, drifting(0, 20_000))) - 0.9) <= 0.02


def test_intervals_do_not_depend_on_the_unit():
    pairs = drifting(1, 500)
    small, large = (RecalibratedRegressor(Given(), interval=0.9) for _ in range(2))
    for (a, _), (b, _) in zip(feed(small, pairs), feed(large, [(1e6 * v, 1e6 * y) for v, y in pairs])):
        assert (b.lower, b.upper) == pytest.approx((1e6 * a.lower, 1e6 * a.upper), rel=1e-9)


def test_one_outlier_does_not_blow_the_intervals_up():
    model = RecalibratedRegressor(Given(), interval=0.9)
    pairs = drifting(2, 1000)
    before = feed(model, pairs)[-1][0].width
    feed(model, [(0.0, 1e30)])
    assert model.predict_one({"v": 0.0}, with_interval=True).width < 1.5 * before


def test_the_ends_report_how_far_they_lay_from_the_forecast():
    """Offsets in scales, mean over the events with a scale: no end of TrumpApproval lies on the wrong side of its forecast."""
    model, lower, upper = RecalibratedRegressor(scaled_linear(intercept_lr=0.1), interval=0.9), [], []
    for x, y in datasets.TrumpApproval():
        v, interval, s = model.predict_one(x), model.predict_one(x, with_interval=True), model._map.scale.value
        if s > 0.0:
            lower.append((v - interval.lower) / s)
            upper.append((interval.upper - v) / s)
        model.learn_one(x, y)
    ends = model.report()["ends"]
    for name, offsets in (("lower", lower), ("upper", upper)):
        assert ends[name]["offset"]["mean"] == pytest.approx(np.mean(offsets), rel=1e-9) and np.mean(offsets) > 1.0
        assert ends[name]["offset"]["standard_deviation"] == pytest.approx(np.std(offsets), rel=1e-6)
        assert ends[name]["start"] == model._map.start and "width" not in ends[name]


def test_lopsided_residuals_get_a_lopsided_interval():
    """Exponential residuals - 1: the .05 and .95 quantiles are -.95 and 2.00."""
    rng = np.random.default_rng(0)
    served = feed(RecalibratedRegressor(Given(), interval=0.9), [(0.0, y) for y in rng.exponential(size=8000) - 1.0])
    low, high = np.mean([(interval.lower, interval.upper) for interval, _ in served[2000:]], axis=0)
    assert low == pytest.approx(-0.95, abs=0.1) and high == pytest.approx(2.0, abs=0.2)


def test_before_any_residual_the_interval_is_the_forecast():
    model = RecalibratedRegressor(Given(), interval=0.9)
    assert model.predict_one({"v": 3.0}, with_interval=True) == conf.Interval(3.0, 3.0)
    model.learn_one({"v": 3.0}, 3.0)  # no residual yet
    assert model.predict_one({"v": 4.0}, with_interval=True) == conf.Interval(4.0, 4.0)
    assert all(math.isnan(v) for v in RecalibratedRegressor(Given(), interval=0.9).report()["after"].values())


@pytest.mark.parametrize("asked", ["interval", "symmetric", "multivalid"])
def test_forecasts_beside_intervals_are_those_of_the_base(asked):
    plain, model = scaled_linear(), RecalibratedRegressor(scaled_linear(), **ASKED[asked])
    for x, y in datasets.TrumpApproval().take(200):
        assert model.predict_one(x) == plain.predict_one(x)
        interval = model.predict_one(x, with_interval=True)
        assert interval.lower <= interval.upper and type(interval.lower) is type(interval.upper) is float
        model.learn_one(x, y)
        plain.learn_one(x, y)


def test_intervals_are_judged_in_a_loop():
    """River's evaluation gives metrics the point forecast: no interval, and to Coverage a quantile."""
    dataset, metric = datasets.TrumpApproval(), Coverage(level=0.9)
    model = RecalibratedRegressor(scaled_linear(intercept_lr=0.1), interval=0.9)
    with pytest.raises(
        ValueError, match=r"River's evaluation .* write a loop, metric.update\(y, model.predict_one\(x, "
    ):
        evaluate.progressive_val_score(dataset, model.clone(), IntervalScore(level=0.9))
    points = evaluate.progressive_val_score(dataset, model.clone(), Coverage(level=0.9)).get()
    for x, y in dataset:
        metric.update(y, model.predict_one(x, with_interval=True))
        model.learn_one(x, y)
    assert metric.get() == model.report()["coverage"]["after"]
    assert points < 0.8 < 0.88 < metric.get()
    for one in (Coverage, IntervalScore, RecalibratedRegressor):
        assert "progressive_val_score" in one.__doc__ and "loop" in one.__doc__


# -- quantiles -----------------------------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("method", "events"), [("tracker", 5000), pytest.param("multivalid", 40_000, marks=pytest.mark.jit)]
)
@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_a_wrong_quantile_comes_right(method, events, level):
    """The base says 0 for every quantile of normal outcomes whose spread changes. Multivalid takes longer (its docstring)."""
    model = RecalibratedRegressor(Given(), level=level, method=method)
    under = []
    for v, y in drifting(4, events):
        under.append(y <= model.predict_one({"v": v}))
        model.learn_one({"v": v}, y)
    said = model.report()
    assert np.mean(under) == pytest.approx(level, abs=0.02)
    assert said["coverage"]["after"] == pytest.approx(np.mean(under), abs=1e-12)
    assert said["before"]["count"] == events and said["coverage"]["nominal"] == level
    if level != 0.5:
        losses = [said[when]["metrics"]["pinball_loss"]["value"] for when in ("before", "after")]
        assert losses[1] < 0.8 * losses[0]


def test_quantile_is_that_of_a_tracker_on_scaled_residuals():
    model, tracker = RecalibratedRegressor(Given(), level=0.7, lr=0.2, half_life=1e9), QuantileTracker(0.7, 0.2)
    sizes = []
    for v, y in drifting(5, 300):
        s = float(np.mean(sizes)) if sizes else 0.0
        assert model.predict_one({"v": v}) == pytest.approx(v + s * tracker.predict_one(), rel=1e-9, abs=1e-12)
        if s:
            tracker.learn_one(0.0, (y - v) / s)
        model.learn_one({"v": v}, y)
        sizes.append(min(abs(y - v), 10 * s) if s else abs(y - v))


def test_quantile_regression_is_repaired():
    """The .9-quantile by River's own quantile loss on the approval data, T = 1,001."""
    inner = scaled_linear(loss=optim.losses.Quantile(0.9), intercept_lr=0.1)
    model = RecalibratedRegressor(inner, level=0.9)
    for x, y in datasets.TrumpApproval():
        model.learn_one(x, y)
    said = model.report()["coverage"]
    assert abs(said["after"] - 0.9) <= 0.02 < abs(said["before"] - 0.9)


def test_interval_from_a_quantile_is_refused():
    with pytest.raises(ValueError, match=r"with_interval=True needs interval=.* got None"):
        RecalibratedRegressor(Given(), level=0.9).predict_one({"v": 0.0}, with_interval=True)


# -- means ---------------------------------------------------------------------------------------------------------------


@given(st.floats(-50.0, 50.0))
def test_a_mean_comes_back_as_it_is_at_the_start(v):
    model = RecalibratedRegressor(Given(), low=-50, high=50)
    assert model.predict_one({"v": v}) == pytest.approx(v, abs=1e-9)


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(10.0, 20.0)), max_size=30), st.floats(-1e9, 1e9))
def test_a_mean_stays_within_its_bounds(pairs, v):
    model = RecalibratedRegressor(Given(), low=10, high=20)
    for one, y in pairs:
        model.learn_one({"v": one}, y)
    assert 10.0 <= model.predict_one({"v": v}) <= 20.0


def test_a_biased_mean_comes_right():
    """T = 5,000: the truth is 20 + .5 v on [0, 100], the base says v."""
    rng = np.random.default_rng(0)
    model, raw, made = RecalibratedRegressor(Given(), low=0, high=100), [], []
    for v in rng.uniform(0.0, 100.0, 5000).tolist():
        y = float(np.clip(20 + 0.5 * v + 10 * rng.normal(), 0, 100))
        raw.append(v - y)
        made.append(model.predict_one({"v": v}) - y)
        model.learn_one({"v": v}, y)
    assert np.sqrt(np.mean(np.square(made[500:]))) < 10.8 < 17.0 < np.sqrt(np.mean(np.square(raw[500:])))
    said = model.report()
    assert said["after"]["metrics"]["ece"]["value"] < 0.2 * said["before"]["metrics"]["ece"]["value"]


@pytest.mark.parametrize("recalibrator", [None, OnlinePlatt()])
def test_the_log_loss_of_means_is_a_mean_of_what_was_served(recalibrator):
    """Before and after, as for classifiers; weights 1, 1, .5, .5, ..."""
    model, losses = RecalibratedRegressor(Given(), recalibrator, low=-2, high=6), []
    rng = np.random.default_rng(9)
    for i, v in enumerate(rng.uniform(-1.5, 5.5, 400).tolist()):
        y, w = float(np.clip(v + rng.normal(), -2, 6)), 1.0 if i % 4 < 2 else 0.5
        p, q, t = ((u + 2) / 8 for u in (v, model.predict_one({"v": v}), y))
        losses.append((w, *(-w * (t * math.log(f) + (1 - t) * math.log1p(-f)) for f in (p, q))))
        model.learn_one({"v": v}, y, w=w)
    weight, before, after = np.sum(losses, axis=0)
    said = model.report()
    assert said["log_loss"] == pytest.approx({"before": before / weight, "after": after / weight}, rel=1e-9)
    if recalibrator is None:
        assert said["experts"][0]["log_loss"] == pytest.approx(before / weight, rel=1e-9)
        for one in said["experts"]:
            assert one["excess"] == pytest.approx(weight * (said["log_loss"]["after"] - one["log_loss"]), abs=1e-8)
            assert one["excess"] <= one["bound"]


def test_a_target_outside_its_bounds_is_learned_by_the_base_alone():
    model = RecalibratedRegressor(Given(), low=0, high=1)
    model.learn_one({"v": 0.5}, 1.5)
    assert model.outside == 1 and model.regressor.learned == [(0.5, 1.5, {})]
    assert model.report()["count"] == 0.0


def test_mean_and_interval_go_into_each_other():
    mean = RecalibratedRegressor(scaled_linear(intercept_lr=0.1), low=30, high=50)
    model = RecalibratedRegressor(mean, interval=0.9)
    served = approval(model)
    assert all(30.0 <= interval.center <= 50.0 for interval, _ in served[:1])
    assert abs(coverage(served) - 0.9) <= 0.02


# -- what is refused, weights --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("missing", [None, math.nan, float("inf"), "no number"])
def test_none_label_counted_negative(missing, asked):
    """A target that is missing is counted and learned by nobody."""
    whole, holed = (RecalibratedRegressor(scaled_linear(), **ASKED[asked]) for _ in range(2))
    for x, y in datasets.TrumpApproval().take(100):
        whole.learn_one(x, y)
        holed.learn_one(x, y)
        holed.learn_one(x, missing)
    assert holed.predict_one(x) == whole.predict_one(x)
    said, wanted = holed.report(), whole.report()
    assert said["counts"].pop("refused") == 100 and wanted["counts"].pop("refused") == 0
    assert repr(said) == repr(wanted)


def test_numpy_bool_subtraction():
    """Targets that are numpy booleans are 0 and 1."""
    plain, model = (RecalibratedRegressor(scaled_linear(), low=0, high=1) for _ in range(2))
    for x, y in datasets.Phishing().take(200):
        plain.learn_one(x, float(y))
        model.learn_one(x, np.bool_(y))
        assert model.predict_one(x) == plain.predict_one(x)


@pytest.mark.parametrize("forecast", [math.nan, math.inf, -math.inf, 1e200, None])
@pytest.mark.parametrize("asked", ASKED)
def test_a_forecast_that_is_none_is_given_back(forecast, asked):
    model = RecalibratedRegressor(Given(), **ASKED[asked])
    got = model.predict_one({"v": forecast})
    assert got is None if forecast is None else got == forecast or (math.isnan(got) and math.isnan(forecast))
    model.learn_one({"v": forecast}, 1.0)
    assert model.unusable == 1 and len(model.regressor.learned) == 1
    if "interval" in ASKED[asked]:
        interval = model.predict_one({"v": forecast}, with_interval=True)
        assert (interval.lower == interval.upper) is (forecast is not None and not math.isnan(forecast))


@pytest.mark.parametrize("asked", ASKED)
def test_a_bad_weight_changes_nothing(asked):
    model = RecalibratedRegressor(Given(), **ASKED[asked])
    for y in (1.0, 2.0, 3.0):
        model.learn_one({"v": 1.5}, y)
    before = pickle.dumps(model._map), list(model.regressor.learned)
    for w in (-1.0, math.nan, "much"):
        with pytest.raises(ValueError, match="w must be a number"):
            model.learn_one({"v": 1.5}, 2.0, w=w)
    assert (pickle.dumps(model._map), model.regressor.learned) == before


@pytest.mark.parametrize("asked", ASKED)
def test_a_weight_of_zero_teaches_the_map_nothing(asked):
    plain, weighted = (RecalibratedRegressor(Given(), **ASKED[asked]) for _ in range(2))
    wanted = "interval" in ASKED[asked]
    for y in np.random.default_rng(0).uniform(0.0, 3.0, 100).tolist():
        for model in (plain, weighted):
            model.learn_one({"v": 1.5}, y, w=1.0)
        weighted.learn_one({"v": 1.5}, 2.9, w=0.0)
        assert weighted.predict_one({"v": 1.5}, with_interval=wanted) == plain.predict_one(
            {"v": 1.5}, with_interval=wanted
        )


def test_weights_reach_the_base_and_the_coverage():
    model = RecalibratedRegressor(Given(), interval=0.5)
    model.learn_one({"v": 0.0}, 1.0, w=1.0)
    model.learn_one({"v": 0.0}, 0.5, w=3.0)
    assert [kwargs for _, _, kwargs in model.regressor.learned] == [{}, {"w": 3.0}]
    assert model.report()["coverage"]["after"] == 0.75  # the first interval was the forecast itself


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one"),
        ({"low": 0.0}, "exactly one"),
        ({"low": 0.0, "high": 1.0, "level": 0.5}, "exactly one"),
        ({"level": 0.5, "interval": 0.5}, "exactly one"),
        ({"interval": 0.5, "low": 0.0}, "exactly one"),
        ({"low": 1.0, "high": 1.0}, "low must be below high"),
        ({"low": math.nan, "high": 1.0}, "low must be a number"),
        ({"low": 0.0, "high": 1.0, "recalibrator": "platt"}, "online recalibrator"),
        ({"level": 0.5, "recalibrator": OnlinePlatt()}, "goes with low= and high= only"),
        ({"level": 1.0}, r"level must lie in \(0, 1\), got 1.0"),
        ({"interval": 90}, r"interval must lie in \(0, 1\), got 90"),
        ({"interval": 0.9, "method": "magic"}, "method must be one of tracker, multivalid, got 'magic'"),
        ({"interval": 0.9, "symmetric": "no"}, "symmetric must be True or False"),
        ({"interval": 0.9, "lr": 0.0}, "lr must be a number"),
        ({"interval": 0.9, "half_life": 0.5}, "half_life must be a number"),
        ({"interval": 0.9, "span": 0.0}, "span must be a number"),
        ({"interval": 0.9, "m": 0}, "m must be a whole number"),
        ({"interval": 0.9, "seed": -1}, "seed must be a whole number"),
        ({"interval": 0.9, "memory": -1}, "memory must be a whole number"),
    ],
)
def test_settings_that_are_not_allowed(given, message):
    with pytest.raises(ValueError, match=message):
        RecalibratedRegressor(Given(), **given)


@pytest.mark.parametrize("inner", [None, linear_model.LogisticRegression(), preprocessing.StandardScaler()])
def test_a_base_that_is_no_regressor(inner):
    with pytest.raises(ValueError, match="regressor must be a River regressor"):
        RecalibratedRegressor(inner, interval=0.9)


# -- mini-batches --------------------------------------------------------------------------------------------------------


def frames(kind):
    """(rows -> dataframe, values -> series) of a package."""
    if kind == "polars":
        pl = pytest.importorskip("polars")
        return pl.DataFrame, lambda values: pl.Series("y", values)
    pa = pytest.importorskip("pyarrow")
    return pa.Table.from_pylist, lambda values: pa.chunked_array([values])


def listed(series):
    return nw.from_native(series, series_only=True).to_list()


@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
@pytest.mark.parametrize("asked", ASKED)
def test_many_are_one_by_one(asked, kind):
    """For the map, beside one that is given the base's forecasts one by one. The base learns batches in its own way."""
    frame, series = frames(kind)
    rows = [({k: float(v) for k, v in x.items()}, y) for x, y in datasets.TrumpApproval().take(60)]
    inner, model = scaled_linear(), RecalibratedRegressor(scaled_linear(), **ASKED[asked])
    single = RecalibratedRegressor(Given(), **ASKED[asked])
    for i in range(0, 60, 6):
        X, y = frame([x for x, _ in rows[i : i + 6]]), [y for _, y in rows[i : i + 6]]
        said = listed(inner.predict_many(X))
        assert listed(model.predict_many(X)) == [single.predict_one({"v": v}, id=k) for k, v in enumerate(said)]
        for k, (v, target) in enumerate(zip(said, y)):
            single.learn_one({"v": v}, target, id=k)
        for one in (inner, model):
            one.learn_many(X, series(y))
    assert model.served == single.served == 60
    assert repr(model._map.report()) == repr(single._map.report())


def test_many_weights_and_missing_targets():
    pl = pytest.importorskip("polars")
    plain, holed = (RecalibratedRegressor(scaled_linear(), interval=0.9) for _ in range(2))
    X = pl.DataFrame({"a": [1.0, 2.0, 3.0, 4.0]})
    plain.learn_many(X[::2], pl.Series("y", [1.0, 3.0]), w=2.0)
    holed.learn_many(X, pl.Series("y", [1.0, None, 3.0, math.nan]), w=pl.Series([2.0, 1.0, 2.0, 1.0]))
    assert holed.refused == 2 and holed.predict_one({"a": 2.0}) == plain.predict_one({"a": 2.0})
    assert repr(holed._map.report()) == repr(plain._map.report())
    with pytest.raises(ValueError, match="w must be a number"):
        holed.learn_many(X, pl.Series("y", [1.0] * 4), w=-1.0)


def test_a_batch_that_is_not_allowed_is_learned_by_nobody():
    pl = pytest.importorskip("polars")
    X, model = pl.DataFrame({"a": [1.0, 2.0]}), RecalibratedRegressor(scaled_linear(), interval=0.9)
    for y, options, message in (
        ([1.0], {}, "X, y and w must have as many rows, got 2, 1 and 2"),
        ([1.0, 2.0], {"w": pl.Series([1.0])}, "X, y and w must have as many rows, got 2, 2 and 1"),
        ([1.0, 2.0], {"id": ["one"]}, "id must name each of 2 rows, got 1 ids"),
    ):
        with pytest.raises(ValueError, match=message):
            model.learn_many(X, pl.Series("y", y), **options)
    counts = model.report()["counts"]
    assert counts == dict.fromkeys(counts, 0)


def test_the_forecast_of_a_missing_target_does_not_wait_for_the_next():
    pl = pytest.importorskip("polars")
    model = RecalibratedRegressor(scaled_linear(), interval=0.9)
    model.predict_one({"a": 1.0}, id="one")
    model.learn_one({"a": 1.0}, math.nan, id="one")
    model.predict_many(pl.DataFrame({"a": [1.0, 2.0]}), id=[1, 2])
    model.learn_many(pl.DataFrame({"a": [2.0, 1.0]}), pl.Series("y", [None, 3.0]), id=[2, 1])
    assert (model.waiting, model.served, model.refused) == (0, 1, 2)


def test_a_base_without_batches_has_none():
    model = RecalibratedRegressor(Given(), interval=0.9)
    assert not hasattr(model, "learn_many") and not hasattr(model, "predict_many")


# -- late targets --------------------------------------------------------------------------------------------------------


def late(model, rows, delay, by_id=False):
    """(interval, target) of each event in the order of the targets, each served ``delay`` events before it was learned."""
    waiting, served = {}, []
    for i, x, y in stream.simulate_qa(rows, None, delay):
        named = {"id": i} if by_id else {}
        if y is None:
            waiting[i] = model.predict_one(x, with_interval=True, **named)
        else:
            served.append((waiting.pop(i), y))
            model.learn_one(x, y, **named)
    return served


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("delay", [1, 30, 200])
def test_late_targets_meet_what_was_served(delay, by_id):
    """All are found, and the report is about the intervals that were served."""
    model = RecalibratedRegressor(scaled_linear(intercept_lr=0.1), interval=0.9)
    served = late(model, datasets.TrumpApproval(), delay, by_id)
    said = model.report()
    assert said["counts"]["served"] == 1001 and said["counts"]["repredicted"] == said["counts"]["waiting"] == 0
    assert said["coverage"]["after"] == pytest.approx(coverage(served))
    assert said["width"]["after"] == pytest.approx(np.mean([interval.width for interval, _ in served]))


def served_late(model, rows, delay):
    """(untouched covers, served covers) of each event after the first target, each learned ``delay`` events late."""
    waiting, found = [], []
    for i, (x, y) in enumerate(rows):
        interval, scale = model.predict_one(x, with_interval=True, id=i), model._map.scale.value
        waiting.append((i, x, y, abs(model.predict_one(x, id=i) - y) <= scale * model._map.start, y in interval, scale))
        if len(waiting) > delay:
            i, x, y, before, after, scale = waiting.pop(0)
            if scale > 0.0:
                found.append((before, after))
            model.learn_one(x, y, id=i)
    return np.array(found, float)


def served_in_batches(model, rows, size):
    """The same in mini-batches."""
    pl, found = pytest.importorskip("polars"), []
    for k in range(0, len(rows), size):
        X, y = pl.DataFrame([x for x, _ in rows[k : k + size]]), np.array([y for _, y in rows[k : k + size]])
        v = np.array(listed(model.predict_many(X)))
        other = copy.deepcopy(model)  # what is served twice waits twice
        intervals = [other.predict_one(x, with_interval=True) for x, _ in rows[k : k + size]]
        lower, upper = np.array([(interval.lower, interval.upper) for interval in intervals]).T
        scale = model._map.scale.value
        if scale > 0.0:
            found += zip(np.abs(y - v) <= scale * model._map.start, (lower <= y) & (y <= upper), strict=True)
        model.learn_many(X, pl.Series("y", y))
    return np.array(found, float)


def linear_rows(seed, spread, n=3000):
    """y = 5 x + spread(i) N(0, 1), and a feature of no use."""
    rng = np.random.default_rng(seed)
    x, noise, other = rng.uniform(-1, 1, n), rng.normal(size=n), rng.random(n)
    return [({"x": float(x[i]), "other": float(other[i])}, float(5 * x[i] + spread(i) * noise[i])) for i in range(n)]


def approval_rows():
    return [({k: float(v) for k, v in x.items()}, y) for x, y in datasets.TrumpApproval()]


ROWS = {
    "iid": lambda: linear_rows(0, lambda i: 1.0),
    "spread jumps": lambda: linear_rows(1, lambda i: 3.0 if i // 1500 % 2 else 1.0),
    "spread waves": lambda: linear_rows(2, lambda i: math.exp(math.sin(i * math.tau / 3000))),
    "approval": approval_rows,
}


def assert_covers(found, block):
    """Not below the untouched intervals or .9, whichever is lower, by 3 standard errors; nor is any block by 4 of its own."""
    untouched, served = found.mean(0)
    assert served >= min(untouched, 0.9) - 3 * math.sqrt(0.09 / len(found))
    for k in range(0, len(found) - block + 1, block):
        untouched, served = found[k : k + block].mean(0)
        assert served >= min(untouched, 0.9) - 4 * math.sqrt(0.09 / block)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("delay", [10, 100, 1000])
def test_late_targets_leave_coverage_where_it_was(name, delay):
    if name == "approval" and delay == 1000:
        delay = 50  # T = 1,001
    model = RecalibratedRegressor(scaled_linear(intercept_lr=0.1), interval=0.9)
    found = served_late(model, ROWS[name](), delay)
    assert len(found) >= 800
    assert_covers(found, 200 if name == "approval" else 500)
    assert model.report()["lateness"] == pytest.approx(delay, rel=1e-4)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("size", [10, 100])
def test_mini_batches_leave_coverage_where_it_was(name, size):
    if name == "approval" and size == 10:
        size = 20  # River's scaler fails on batches of 10 of this data: a variance below 0
    model = RecalibratedRegressor(scaled_linear(intercept_lr=0.1), interval=0.9)
    found = served_in_batches(model, ROWS[name](), size)
    assert len(found) > 800
    assert_covers(found, 200 if name == "approval" else 500)
    said = model.report()
    assert said["counts"]["served"] == len(ROWS[name]())
    assert said["coverage"]["after"] * said["counts"]["served"] == pytest.approx(found[:, 1].sum(), abs=1e-6)


@given(
    st.lists(st.floats(-100.0, 100.0), min_size=12, max_size=120).filter(lambda ys: ys[0] != 0.0),
    st.integers(0, 10),
    st.sampled_from([0.1, 0.5, 0.95]),
    st.sampled_from([0.02, 0.1, 1.0]),
)
def test_the_theorem_for_late_targets_holds_whatever_comes(ys, delay, level, lr):
    """Of what was served, not of what would be served when the target comes."""
    model, waiting, missed, b = RecalibratedRegressor(Given(), level=level, lr=lr), [], [], 0.0
    for i, y in enumerate(ys):
        q, scale = model.predict_one({"v": 0.0}, id=i), model._map.scale.value
        waiting.append((i, y, q, scale))
        if len(waiting) > delay:
            i, y, q, scale = waiting.pop(0)
            if scale > 0.0:
                missed.append(y > q)
                b = max(b, abs(y) / scale)
            model.learn_one({"v": 0.0}, y, id=i)
    if missed:
        bound = (b + PATIENCE * lr) * (1 + delay / PATIENCE) / (lr * len(missed))
        assert abs(np.mean(missed) - (1 - level)) <= bound + 1e-9


@pytest.mark.parametrize("delay", [1, 7, 60])
def test_late_targets_move_the_ends_by_the_rule(delay):
    """The plain rule: the scale and offsets of serving time, steps of lr / (1 + lateness / 5)."""
    alpha, start, gain = 0.1, math.sqrt(math.pi / 2) * NormalDist().inv_cdf(0.9), 1 - 0.5 ** (1 / 50)
    lower = upper = start
    s, n, mean, slips = 0.0, 0, 0.0, []
    model = RecalibratedRegressor(Given(), interval=0.8)
    for i, (v, y) in enumerate(drifting(6, 800)):
        interval = model.predict_one({"v": v}, with_interval=True, id=i)
        assert sorted((v - s * lower, v + s * upper)) == pytest.approx([interval.lower, interval.upper], abs=1e-9)
        slips.append((i, y, s, lower, upper, n))
        if len(slips) > delay:
            i, y, scale, low, up, then = slips.pop(0)
            late, n = n - then, n + 1
            mean += max(gain, 1 / n) * (late - mean)
            step = 0.1 / (1 + max(late, mean) / 5)
            if scale > 0:
                lower += step * ((-y / scale > low) - alpha)
                upper += step * ((y / scale > up) - alpha)
            s += max(gain, 1 / n) * ((min(abs(y), 10 * s) if s > 0 else abs(y)) - s)
            model.learn_one({"v": v}, y, id=i)


@pytest.mark.parametrize("nominal", [0.5, 0.9])
def test_prompt_targets_are_learned_as_by_plain_trackers_to_the_last_bit(nominal):
    """Each end is a QuantileTracker that learns (start, residual / scale); lateness plays no part."""
    model, ends = (
        RecalibratedRegressor(Given(), interval=nominal),
        [QuantileTracker((1 + nominal) / 2, 0.1) for _ in "lu"],
    )
    start = model._map.start
    for v, y in drifting(7, 1500):
        s = model._map.scale.value
        below, above = (end.predict_one(start) for end in ends)
        interval = model.predict_one({"v": v}, with_interval=True)
        assert [interval.lower, interval.upper] == (sorted((v - s * below, v + s * above)) if s > 0 else [v, v])
        model.learn_one({"v": v}, y)
        if s > 0:
            ends[0].learn_one(start, -((y - v) / s))
            ends[1].learn_one(start, (y - v) / s)
    assert model.report()["lateness"] == 0.0


def test_one_straggler_does_not_stop_the_rest():
    """A target 2,000 late among prompt ones; 500 targets later a step is whole again up to a hundredth."""
    model = RecalibratedRegressor(Given(), interval=0.9)
    model.predict_one({"v": 0.0}, id="straggler")
    pairs = drifting(8, 2500)
    feed(model, pairs[:2000])
    model.learn_one({"v": 0.0}, 0.5, id="straggler")
    assert 20.0 < model.report()["lateness"] < 40.0
    feed(model, pairs[2000:])
    assert 0.0 < model.report()["lateness"] < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_late_targets_are_covered_in_the_end(seed):
    """T = 5,000 and targets 100 events late; spread and mean change. Within .03, as each change is seen 100 events late."""
    rows = [({"v": v, "t": t}, y) for t, (v, y) in enumerate(drifting(seed))]
    assert abs(coverage(late(RecalibratedRegressor(Given(), interval=0.9), rows, 100)) - 0.9) <= 0.03


def test_a_served_forecast_is_learned_and_not_a_later_one():
    """The base changes its mind between the forecast and the target; residuals are those of what was served."""
    inner = Given()
    model = RecalibratedRegressor(inner, level=0.5)
    model.learn_one({"v": 0.0}, 1.0)  # a scale
    x = {"v": 5.0}
    model.predict_one(x, id="a")
    x["v"] = 7.0
    model.learn_one(x, 6.0, id="a")
    assert model.report()["before"]["metrics"]["coverage"]["value"] == 0.0  # 1 > 0 and 6 > 5
    assert (model.served, model.repredicted) == (1, 1)


def test_inside_a_pipeline_ids_find_what_was_served():
    """The scaler has moved on, so that x is another one by the time of its target."""
    counts = []
    for by_id in (False, True):
        inner = RecalibratedRegressor(linear_model.LinearRegression(intercept_lr=0.1), interval=0.9)
        late(preprocessing.StandardScaler() | inner, datasets.TrumpApproval(), 50, by_id)
        counts.append((inner.served, inner.repredicted))
    assert counts[0][1] > 900 and counts[1] == (1001, 0)


def test_memory_is_bounded():
    model = RecalibratedRegressor(Given(), interval=0.9, memory=10)
    for i in range(100):
        model.predict_one({"v": float(i)}, with_interval=True)
    assert (model.waiting, model.forgotten, len(model._map.records)) == (10, 90, 11)
    for i in range(100):
        model.learn_one({"v": float(i)}, 0.0)
    assert (model.served, model.repredicted, model.waiting) == (10, 90, 0)


@pytest.mark.parametrize("asked", ["interval", "symmetric", "multivalid"])
@pytest.mark.parametrize("delay", [None, 50])
def test_progressive_validation_sees_the_base(asked, delay):
    """The error of the forecasts beside intervals is that of the base, to the last bit."""
    model = RecalibratedRegressor(scaled_linear(), **ASKED[asked])
    scores = [
        evaluate.progressive_val_score(datasets.TrumpApproval(), one, metrics.MAE(), delay=delay).get()
        for one in (model, scaled_linear())
    ]
    assert scores[0] == scores[1] and model.served == 1001


@pytest.mark.parametrize("delay", [None, 50])
def test_progressive_validation_of_means(delay):
    """The mean absolute error of a base that is biased at first falls: 1.31 -> 1.10, with targets 50 events late by half."""
    scores = [
        evaluate.progressive_val_score(datasets.TrumpApproval(), one, metrics.MAE(), delay=delay).get()
        for one in (RecalibratedRegressor(scaled_linear(), low=0, high=100), scaled_linear())
    ]
    assert scores[0] < (0.9 if delay is None else 0.6) * scores[1]


@pytest.mark.parametrize("asked", ASKED)
def test_the_state_does_not_grow(asked):
    model = RecalibratedRegressor(scaled_linear(), **ASKED[asked])
    rng, sizes = np.random.default_rng(0), []
    for _ in range(2):
        for a, b in rng.normal(size=(3000, 2)).tolist():
            model.predict_one({"a": a, "b": b})
            model.learn_one({"a": a, "b": b}, a + 0.1 * b)
        sizes.append(len(pickle.dumps(model)))
    assert sizes[1] <= sizes[0] + 100
