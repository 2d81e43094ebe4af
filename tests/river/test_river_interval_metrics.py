"""The River metrics for regressors: what they take for a quantile, an interval, a distribution, and inside River."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from river import conf, datasets, evaluate, linear_model, metrics, optim, preprocessing, proba, stats, utils
from river_cases import REAL_EDGES, name_of

import streamcal
from streamcal import Cumulative, Edges, EqualWidth, Interval, LogOdds, Quantile, UniformMass, batch
from streamcal.river.interval_metrics import PIT, Q1, Coverage, IntervalScore, PinballLoss

nan, inf = math.nan, math.inf


def fed(metric, events):
    for event in events:
        metric.update(*event)
    return metric


def forecasts(n=500, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(0.0, 1.0, n), rng.normal(0.0, 1.0, n)


# ---------------------------------------------------------------------------- the batch functions without weights


@pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")
def test_unweighted_values_are_the_batch_functions():
    v, y = np.round(forecasts()[0], 1), forecasts()[1]
    events = list(zip(y.tolist(), v.tolist()))
    assert fed(PinballLoss(0.9), events).get() == pytest.approx(streamcal.pinball_loss(v, y, 0.9), abs=1e-12)
    by_value = fed(Q1(0.9, binning=streamcal.Levels(v)), events)
    assert by_value.get() == pytest.approx(batch.q1(v, y, 0.9), abs=1e-12)
    edges = Edges(REAL_EDGES)
    assert fed(Q1(0.9, binning=edges), events).get() == pytest.approx(batch.q1(v, y, 0.9, binning=edges), abs=1e-12)


@pytest.mark.parametrize("n_bins", [4, 15])
def test_q1_by_mass_is_the_window_s_own(n_bins):
    v, y = forecasts()
    for metric in (Q1(0.3, n_bins), Q1(0.3, n_bins, "uniform-mass"), Q1(0.3, binning=UniformMass(n_bins))):
        fed(metric, zip(y.tolist(), v.tolist()))
        window = Cumulative(UniformMass(n_bins), claim=Quantile(0.3))
        window.update_many(v, y)
        assert metric.get() == pytest.approx(window.get("q1"), abs=1e-12)
        assert len(metric.report()["reliability"]) == n_bins


@pytest.mark.parametrize("binning", [UniformMass(5), Edges([0.0, 1.0, 2.0, inf])], ids=name_of)
def test_q1_of_intervals_is_k1_of_the_interval_claim(binning):
    rng = np.random.default_rng(1)
    bounds, y = np.sort(rng.normal(0, 1.5, (400, 2)), 1), rng.normal(0, 1, 400)
    y[:50], y[50:100] = bounds[:50, 0], bounds[50:100, 1]  # on the ends: inside
    window = Cumulative(binning, claim=Interval(0.1, 0.9))
    window.update_many(bounds, y)
    metric = fed(Q1(0.8, binning=binning), zip(y.tolist(), map(tuple, bounds.tolist())))
    assert metric.get() == pytest.approx(window.get("k1"), abs=1e-12)
    assert metric.get() > 0.05


def test_the_interval_score_is_the_pinball_losses_of_both_ends():
    rng = np.random.default_rng(2)
    bounds, y = np.sort(rng.normal(0, 1.5, (300, 2)), 1), rng.normal(0, 1, 300)
    score = fed(IntervalScore(0.8), zip(y.tolist(), map(tuple, bounds.tolist())))
    low, high = streamcal.pinball_loss(bounds[:, 0], y, 0.1), streamcal.pinball_loss(bounds[:, 1], y, 0.9)
    assert score.get() == pytest.approx((low + high) * 2 / 0.2, rel=1e-12)


def test_pit_is_the_mean_gap_of_the_pit_claim():
    gaussian, (_, y) = proba.Gaussian(), forecasts(400, 3)
    for x in (-1.0, 0.3, 2.0):
        gaussian.update(x)
    window = Cumulative(EqualWidth(1), claim=streamcal.PIT([k / 7 for k in range(1, 7)]))
    window.update_many([gaussian.cdf(v) for v in y.tolist()], None)
    s = window.snapshot()
    expected = float(np.abs(s.gap[:, 0]).mean())
    assert fed(PIT(7), [(v, gaussian) for v in y.tolist()]).get() == pytest.approx(expected, abs=1e-12)
    assert expected > 0.1


# ---------------------------------------------------------------------------- what a prediction may be


@pytest.mark.parametrize(
    ("y_pred", "inside"),
    [
        ((1.0, 2.0), True),
        ([1, 2], True),
        ((2.0, 3.0), True),  # ends are inside
        ((1.0, 1.9), False),
        (conf.Interval(lower=1.0, upper=2.0), True),
        (conf.Interval(lower=2.1, upper=3.0), False),
        ((-inf, 2.0), True),
        ((2.5, inf), False),
        (2.0, True),
        (np.float64(1.9), False),
        (inf, True),
        (-inf, False),
        ({0.1: 0.0, 0.8: 2.0}, True),
        ({0.1: 3.0, 0.8: 1.0}, False),
    ],
    ids=name_of,
)
def test_coverage_of(y_pred, inside):
    metric = fed(Coverage(0.8), [(2.0, y_pred)])
    assert metric.get() == float(inside)
    metric.revert(2, y_pred)
    assert math.isnan(metric.get())


REFUSED = [(3.0, 1.0), (nan, 1.0), (1.0, nan), (None, 1.0), conf.Interval(lower=2.0, upper=1.0), {}, None, nan]


@pytest.mark.parametrize("y_pred", REFUSED, ids=name_of)
@pytest.mark.parametrize("make", [Coverage, IntervalScore, Q1])
def test_what_is_no_interval_is_refused_and_counted(make, y_pred):
    metric = fed(make(0.5), [(1.0, y_pred), (nan, (0.0, 1.0)), (None, (0.0, 1.0))])
    assert math.isnan(metric.get()) and metric.n_refused == 3.0
    metric.revert(1.0, y_pred)
    assert metric.n_refused == 2.0


@pytest.mark.parametrize("make", [IntervalScore, Q1, PinballLoss])
def test_what_is_not_finite_is_refused_and_counted_where_a_number_is_needed(make):
    events = [(1.0, (-inf, 2.0)), (1.0, (0.0, inf))] if make is not PinballLoss else [(1.0, inf), (1.0, -inf)]
    assert fed(make(0.5), events).n_refused == 2.0
    y_pred = (0.0, 1.0) if make is not PinballLoss else 1.0
    assert fed(make(0.5), [(inf, y_pred), (-inf, y_pred), ("high", y_pred)]).n_refused == 3.0


def test_a_dict_by_level_is_asked_for_its_levels():
    """1 - .9 is not .1, and (1 - .9) / 2 is not .05: levels are found to 1e-9."""
    y_pred = {0.05: 0.0, 0.5: 2.0, 0.95: 3.0}
    assert fed(PinballLoss(0.5), [(4.0, y_pred)]).get() == 1.0
    assert fed(Q1(1 - 0.05, binning=Edges([-inf, inf])), [(2.5, y_pred)]).get() == pytest.approx(0.05)
    assert fed(IntervalScore(0.9), [(1.0, y_pred)]).get() == 3.0
    assert fed(IntervalScore(0.9), [(4.0, y_pred)]).get() == pytest.approx(3 + 20.0)
    for metric in (PinballLoss(0.9), Coverage(0.9), Q1(0.9), IntervalScore(0.8)):
        with pytest.raises(ValueError, match=r"y_pred must hold the level 0\.[91], got the keys \[0.05, 0.5, 0.95\]"):
            metric.update(1.0, y_pred)
    with pytest.raises(ValueError, match=r"must hold the level 0.5, got the keys \['0.5'\]"):
        PinballLoss(0.5).update(1.0, {"0.5": 1.0})


@pytest.mark.parametrize("wrong", ["high", b"1", (1.0, 2.0, 3.0), np.array([1.0, 2.0]), object()], ids=name_of)
def test_what_is_no_prediction_at_all_is_an_error(wrong):
    for metric in (Coverage(), PinballLoss(), Q1()):
        with pytest.raises(ValueError, match="y_pred must be a number, or a dict of numbers by level, got"):
            metric.update(1.0, wrong)
    for y_pred in (wrong, 1.0):
        with pytest.raises(ValueError, match=r"y_pred must be an interval, \(low, high\) or with lower and upper, got"):
            IntervalScore().update(1.0, y_pred)
    with pytest.raises(ValueError, match="y_pred must be a number, or a dict"):
        PinballLoss().update(1.0, (0.0, 1.0))


@pytest.mark.parametrize(
    "binning", [EqualWidth(5), LogOdds(5), "equal-width", "log-odds", streamcal.Grid(4)], ids=name_of
)
def test_bins_of_probabilities_are_not_for_quantiles(binning):
    with pytest.raises(
        ValueError, match="binning must hold any real number: None, 'uniform-mass', Edges or Levels, got"
    ):
        Q1(binning=binning)


# ---------------------------------------------------------------------------- distributions


def test_pit_of_right_and_of_wrong_forecasts():
    rng, wide = np.random.default_rng(4), proba.Gaussian()
    for x in rng.normal(0.0, 1.0, 20_000).tolist():
        wide.update(x)
    right = fed(PIT(), [(y, wide) for y in rng.normal(0.0, 1.0, 5000).tolist()])
    narrow = fed(PIT(), [(y, wide) for y in rng.normal(0.0, 3.0, 5000).tolist()])
    high = fed(PIT(4), [(99.0, wide)])
    normal, levels = NormalDist(), [k / 10 for k in range(1, 10)]
    expected = np.mean([abs(normal.cdf(normal.inv_cdf(q) / 3) - q) for q in levels])
    assert right.get() < 0.02
    assert narrow.get() == pytest.approx(expected, abs=0.015)
    assert right > narrow
    assert narrow.histogram[0] > 0.25 and narrow.histogram[-1] > 0.25
    assert high.get() == 0.5 and high.histogram == [0.0, 0.0, 0.0, 1.0]
    report = narrow.report()
    assert report["value"] == narrow.get() and report["count"] == 5000.0 and report["histogram"] == narrow.histogram


def test_pit_of_other_distributions():
    beta = proba.Beta(2, 2)
    assert fed(PIT(2), [(0.25, beta), (0.75, beta)]).get() == 0.0

    class Uniform:
        def cdf(self, x):
            return np.float64(x)

    assert fed(PIT(4), [(x, Uniform()) for x in (0.25, 0.5, 0.75, 1.0)]).get() == 0.0


def test_what_has_no_pit():
    """River's Gaussian says 0 for the cdf of a point mass, on both sides of it."""
    fresh = proba.Gaussian()
    assert fresh.cdf(1.0) == 0.0
    once = proba.Gaussian()
    once.update(3.0)
    metric = fed(PIT(), [(1.0, fresh), (4.0, once), (nan, proba.Beta()), (None, proba.Beta()), (-1.0, proba.Beta())])
    assert metric.n_refused == 5.0 and math.isnan(metric.get())
    for wrong in (0.5, (0.0, 1.0), proba.Multinomial(["a"]), "cdf"):
        with pytest.raises(ValueError, match=r"y_pred must be a distribution with cdf\(y\), got"):
            metric.update(1.0, wrong)


# ---------------------------------------------------------------------------- inside River


def test_a_quantile_regression_in_progressive_validation():
    model = preprocessing.StandardScaler() | linear_model.LinearRegression(
        optimizer=optim.SGD(0.05), loss=optim.losses.Quantile(0.8), intercept_lr=0.2
    )
    both = Coverage(0.8, window_size=500) + PinballLoss(0.8) + metrics.MAE()
    evaluate.progressive_val_score(datasets.TrumpApproval(), model.clone(), both)
    v, y, model = [], [], model.clone()
    for x, label in datasets.TrumpApproval():
        v.append(model.predict_one(x))
        y.append(label)
        model.learn_one(x, label)
    assert both[0].get() == pytest.approx(np.mean(np.array(y[-500:]) <= np.array(v[-500:])), abs=1e-12)
    assert both[1].get() == pytest.approx(streamcal.pinball_loss(v, y, 0.8), abs=1e-10)
    assert 0.6 < both[0].get() < 0.95


def test_the_intervals_of_river_s_jackknife():
    model = conf.RegressionJackknife(
        preprocessing.StandardScaler() | linear_model.LinearRegression(intercept_lr=0.1), confidence_level=0.9
    )
    coverage, score, rolling = Coverage(0.9), IntervalScore(0.9), utils.Rolling(Coverage, 200, level=0.9)
    theirs, inside = stats.Mean(), []
    for x, y in datasets.TrumpApproval():
        interval = model.predict_one(x, with_interval=True)
        for metric in (coverage, score, rolling):
            metric.update(y, interval)
        inside.append(y in interval)
        theirs.update(y in interval)
        model.learn_one(x, y)
    assert coverage.get() == pytest.approx(theirs.get(), abs=1e-12)
    assert rolling.get() == pytest.approx(np.mean(inside[-200:]), abs=1e-12)
    assert 0.8 < coverage.get() < 1.0 and score.get() > 0.0


def test_the_distributions_of_river_s_bayesian_regression():
    model, metric = linear_model.BayesianLinearRegression(), PIT(window_size=800)
    for x, y in datasets.TrumpApproval():
        metric.update(y, model.predict_one(x, with_dist=True))
        model.learn_one(x, y)
    assert metric.report()["count"] == 800.0
    assert 0.0 < metric.get() < 0.5
