"""Faults that people reported of other tools, each made a test of its kind.

Kinds of metrics:
    bin-edge-one                     test_hard_predictions_are_in_the_outer_bins
    bin-edge-zero                    test_hard_predictions_are_in_the_outer_bins
    bin-edge-perfect                 test_hard_predictions_are_in_the_outer_bins
    bin-count-semantics              test_n_bins_counts_intervals
    shape-two-column-binary          test_predict_proba_is_accepted
    plot-empty-bin                   test_an_empty_bin_is_not_a_value_of_zero
    debias-single-sample-bin         test_single_sample_bins_leave_the_debiased_error_finite
    weights-missing                  test_weight_two_is_the_row_twice
    weights-sum-nonpositive          test_no_weight_is_no_information
    all-weights-zero                 test_no_weight_is_no_information
    fewer-rows-than-bin              test_fewer_events_than_bins
    constant-predictor-quantile-bins test_a_constant_wrong_predictor_is_not_perfect
    digitize-right                   test_evenly_spaced_points_fill_ten_equal_bins
    range-check                      test_calibration_errors_stay_in_range
    n-bins-invalid                   test_invalid_bin_counts_name_the_parameter
    empty-all-bins                   test_nothing_is_nan_in_every_metric
    empty-input                      test_nothing_is_nan_in_every_metric
    nan-silently-binned              test_a_nan_is_refused_not_binned
    single-class-positive            test_one_class_is_scored_as_it_is
    single-class-scalar              test_one_class_is_scored_as_it_is
    single-class-logloss             test_one_class_is_scored_as_it_is
    logloss-infinite                 test_a_certain_miss_is_infinite_and_leaves_the_window_with_its_event
    float32-count-freeze             test_counts_pass_two_to_the_24
    float32-state                    test_counts_pass_two_to_the_24
    float32-sum-drift                test_a_long_float32_sum_does_not_drift
    one-bin                          test_one_bin_holds_everything
    pit-for-counts                   test_pit_of_counts_needs_randomising
    nan-broadcast                    test_nan_in_one_part_removes_the_case
    pinball-sign                     test_pinball_loss_is_never_negative
    pinball-not-averaged             test_pinball_loss_is_a_mean_over_rows
    index-misaligned                 test_unlike_indexes_are_rejected
    index-order                      test_unlike_indexes_are_rejected
    index-policy                     test_unlike_indexes_are_rejected
    noncontiguous-flat               test_layout_does_not_matter
    readonly-array                   test_layout_does_not_matter
    crps-outside-support             not yet: there is no CRPS
    crps-ensemble-size-bias          not yet: there is no CRPS

Kinds of windows:
    window-counts-calls              test_a_window_counts_events_not_calls
    batch-larger-than-window         test_a_batch_larger_than_the_window_leaves_its_tail
    rolling-mean-cancellation        test_a_huge_value_leaves_with_its_event
    rolling-nan-poison               test_a_bad_value_leaves_no_poison
    inf-in-window                    test_a_bad_value_leaves_no_poison
    rolling-std-large                test_variance_after_a_large_value_has_left
    negative-variance                test_variance_is_never_negative
    window-history-dependence        test_two_histories_one_content
    all-nan-window                   test_a_window_of_bad_events_is_nan
    same-timestamp-tie               test_equal_times_are_both_kept
    late-event-accepted              test_a_late_event_is_counted_not_applied
    idle-window-stale                test_an_idle_window_empties_itself
    dst-fold                         test_the_repeated_hour_is_two_hours

Kinds of other rooms that speak of windows or metrics already:
    metric-nan-poison                test_a_bad_value_leaves_no_poison
    nan-sticks                       test_a_bad_value_leaves_no_poison
    nan-without-warning              test_a_nan_comes_with_its_reason
    numpy-bool-subtraction           test_numpy_scalars_are_numbers
    none-label-counted-negative      test_a_missing_label_is_not_a_negative
    string-label-zero                test_a_word_is_never_a_positive_label
    jitclass-pickle                  test_every_window_pickles

Kinds of other rooms (recalibrator, detector, monitor, River, cli) are tested with those rooms.
"""

from __future__ import annotations

import copy
import datetime as dt
import json
import math
import pickle
import re

import numpy as np
import pytest
import strategies as sts
from conftest import shared
from hypothesis import given
from hypothesis import strategies as st

from streamcal import (
    METRICS,
    PIT,
    Cumulative,
    Edges,
    EqualWidth,
    Fading,
    Interval,
    Quantile,
    Sliding,
    Timed,
    TopLabel,
    Tumbling,
    UniformMass,
    bin_index,
    brier,
    ece,
    k1,
    k2,
    kinf,
    l2_ce,
    log_loss,
    mce,
    pinball_loss,
    reliability,
)

pytestmark = pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")
B = EqualWidth(10)
ERRORS = (ece, mce, k1, k2, kinf, l2_ce)
WINDOWS = {
    "cumulative": lambda **k: Cumulative(B, **k),
    "sliding": lambda **k: Sliding(B, 4, **k),
    "tumbling": lambda **k: Tumbling(B, 4, **k),
    "fading": lambda **k: Fading(B, 4.0, **k),
    "timed": lambda **k: Timed(B, 4.0, panes=4, **k),
}
every_window = pytest.mark.parametrize("make", WINDOWS.values(), ids=WINDOWS)


def tell(w, p, y, weight=1.0, t=0.0):
    clock = {"t": t} if isinstance(w, Timed) else {}
    w.update(p, y, weight, **clock)
    return w


# ------------------------------------------------------------------------------ metrics


@pytest.mark.parametrize(
    "p, y, n_bins, right",
    [
        ([0.95, 1.0], [1, 0], 10, 0.475),
        ([1, 1, 1, 1, 0], [0, 0, 1, 1, 1], 2, 0.6),
        ([0, 1, 0, 1], [0, 1, 0, 1], 15, 0.0),
        ([1.0], [1], 10, 0.0),
        ([0.0], [1], 10, 1.0),
    ],
)
def test_hard_predictions_are_in_the_outer_bins(p, y, n_bins, right):
    assert ece(p, y, n_bins) == pytest.approx(right, abs=1e-15)
    w = Cumulative(EqualWidth(n_bins))
    w.update_many(np.array(p, np.float32), y)
    assert w.get("ece") == pytest.approx(right, abs=1e-7)
    assert w.snapshot().refused.item() == 0


@pytest.mark.parametrize("n_bins", [2, 3])
def test_n_bins_counts_intervals(n_bins):
    p, y = [0.25, 0.25, 0.55, 0.75, 0.75], [0, 0, 1, 1, 1]
    assert ece(p, y, n_bins) == pytest.approx(0.29, abs=1e-15)
    assert EqualWidth(n_bins).fine_bins == n_bins


def test_predict_proba_is_accepted():
    proba = np.array([[0.1, 0.9], [0.4, 0.6], [0.8, 0.2]])
    for function in ERRORS:
        assert function(proba, [1, 1, 0]) == function(proba[:, 1], [1, 1, 0])
    with pytest.raises(ValueError, match=r"3|top_label|column|shape"):
        ece(np.ones((4, 3)) / 3, [0, 1, 2, 0])


def test_an_empty_bin_is_not_a_value_of_zero():
    w = Cumulative(EqualWidth(5))
    w.update_many([0.0, 0.3], [0, 1])
    s = w.snapshot()
    assert s.count[0].tolist() == [1, 1, 0, 0, 0]
    assert s.mean_y[0, 0] == 0.0 and np.isnan(s.mean_y[0, 2:]).all() and np.isnan(s.mean_p[0, 2:]).all()
    for bin in s.reliability():
        assert bin["count"] or bin["mean_y"] is None or math.isnan(bin["mean_y"])


@pytest.mark.parametrize("binning", [EqualWidth(10), UniformMass(3), None])
def test_single_sample_bins_leave_the_debiased_error_finite(binning):
    p, y = [0.05, 0.45, 0.45, 0.45, 0.95], [0, 1, 0, 1, 1]
    for function in (k2, l2_ce):
        assert math.isfinite(function(p, y, binning=binning, debias=True))


@pytest.mark.parametrize("function", ERRORS + (brier,), ids=lambda f: f.__name__)
def test_weight_two_is_the_row_twice(function):
    p, y = [0.1, 0.4, 0.4, 0.9], [1, 0, 1, 1]
    weighted = function(p, y, sample_weight=[2, 1, 3, 1])
    repeated = function(np.repeat(p, [2, 1, 3, 1]), np.repeat(y, [2, 1, 3, 1]))
    assert weighted == pytest.approx(repeated, abs=1e-15)


@every_window
def test_no_weight_is_no_information(make):
    w = make(loss="log")
    for _ in range(3):
        tell(w, 0.4, 1.0, 0.0)
    for name in METRICS:
        assert math.isnan(w.get(name)), name
    assert w.report()["weight"] == 0
    with pytest.raises(ValueError):
        ece([0.4, 0.5], [1, 0], sample_weight=[1, -2])


@pytest.mark.parametrize("binning", [UniformMass(15), EqualWidth(15)])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_fewer_events_than_bins(binning, n):
    p = np.linspace(0.1, 0.8, n)
    for function in (mce, k1, k2, kinf, l2_ce):
        assert math.isfinite(function(p, np.ones(n), binning=binning))
    w = Cumulative(binning)
    w.update_many(p, np.ones(n))
    report = w.report()
    assert report["count"] == n and 1 <= report["bins_used"] <= n


@pytest.mark.parametrize("n_bins", [1, 2, 4, 15])
def test_a_constant_wrong_predictor_is_not_perfect(n_bins):
    p, y = [0.3] * 4, [1, 1, 1, 0]
    assert k1(p, y, binning=UniformMass(n_bins)) == pytest.approx(0.45, abs=1e-15)
    w = Cumulative(UniformMass(n_bins))
    w.update_many(p, y)
    assert w.get("ece") == pytest.approx(0.45, abs=1e-15)


def test_evenly_spaced_points_fill_ten_equal_bins():
    """k/100, k = 0..100: eleven points in the first bin (0 belongs to it), ten in each other."""
    bins = bin_index(np.arange(101) / 100, 10)
    np.testing.assert_array_equal(np.bincount(bins), [11] + [10] * 9)
    assert len(np.bincount(bin_index(np.linspace(0, 1, 100), 10))) == 10


@given(stream=sts.streams(min_size=1), m=st.integers(1, 30))
def test_calibration_errors_stay_in_range(stream, m):
    p, y, w = zip(*stream)
    if sum(w) == 0:
        return
    for value in (
        ece(p, y, m, sample_weight=w),
        *(f(p, y, binning=EqualWidth(m), sample_weight=w) for f in (mce, k1, k2, kinf, l2_ce)),
        *(f(p, y, sample_weight=w) for f in (mce, k1, k2, kinf, l2_ce, brier)),
    ):
        assert 0 <= value <= 1 + 1e-12


@pytest.mark.parametrize("n", [0, -1])
@pytest.mark.parametrize(
    "call",
    [
        lambda n: ece([0.5], [1], n),
        lambda n: bin_index([0.5], n),
        lambda n: reliability([0.5], [1], n),
        lambda n: EqualWidth(n),
        lambda n: UniformMass(n),
        lambda n: Cumulative(EqualWidth(10)).snapshot().coarsen(n),
    ],
    ids=["ece", "bin_index", "reliability", "EqualWidth", "UniformMass", "coarsen"],
)
def test_invalid_bin_counts_name_the_parameter(call, n):
    with pytest.raises(ValueError, match=rf"\bn(_bins)?\b.*{n}"):
        call(n)


@every_window
def test_nothing_is_nan_in_every_metric(make):
    w = make(loss="log")
    for name in METRICS:
        assert math.isnan(w.get(name)), name
    assert w.report()["count"] == 0
    for function in ERRORS:
        assert math.isnan(function([], []))


@every_window
def test_a_nan_is_refused_not_binned(make):
    with pytest.raises(ValueError, match=r"\b0\b"):
        ece([math.nan, 0.5], [0, 1])
    w = tell(tell(make(), math.nan, 0.0), 0.5, 1.0)
    s = w.snapshot()
    assert s.count[0, 4] == s.count.sum() == pytest.approx(1, abs=1e-12)
    assert s.refused.item() == pytest.approx(0.5 ** (1 / 4) if isinstance(w, Fading) else 1, abs=1e-12)


@pytest.mark.parametrize("make", [list, np.array])
def test_one_class_is_scored_as_it_is(make):
    assert brier(make([1.0, 1.0, 1.0]), make([1, 1, 1])) == 0.0
    assert brier(make([0.5]), make([0])) == 0.25
    assert log_loss(make([0.0, 0.0, 0.0]), make([1, 1, 1])) > 34
    assert log_loss(make([0.5]), make([0])) == pytest.approx(math.log(2))


def test_a_certain_miss_is_infinite_and_leaves_the_window_with_its_event():
    assert log_loss([0.0, 0.5], [1, 1]) == math.inf
    w = Sliding(B, 2, loss="log")
    w.update(0.0, 1.0)
    assert w.get("log_loss") == math.inf
    for _ in range(2):
        w.update(0.5, 1.0)
    assert w.get("log_loss") == pytest.approx(math.log(2), abs=1e-15)
    w.update(1.0, 1.0), w.update(0.0, 0.0)  # certain and right: no loss at all
    assert w.get("log_loss") == 0.0


@pytest.mark.parametrize("count", [2**24 + 1, 90_170_814])
def test_counts_pass_two_to_the_24(count):
    """Built by doubling: binary digits of the count, most significant first."""
    one = Cumulative(B)
    one.update(0.55, 1.0)
    one, total = one.snapshot(), Cumulative(B).snapshot()
    for digit in bin(count)[2:]:
        total = total + total
        total = total + one if digit == "1" else total
    assert total.count.sum() == count and total.cells[0, 5, 4] == count


@pytest.mark.jit
def test_a_long_float32_sum_does_not_drift():
    """Ten million events of float32 .1, in one batch and one window: the mean is still that float."""
    p = np.full(10_000_000, 0.1, np.float32)
    w = Cumulative(B)
    w.update_many(p, np.zeros(len(p), np.float32))
    assert w.snapshot().mean_p[0, 1] == pytest.approx(float(np.float32(0.1)), rel=1e-9)


def test_one_bin_holds_everything():
    count, accuracy, confidence = reliability([0.0, 0.3, 1.0], [0, 1, 1], 1)
    assert count.tolist() == [3]
    assert accuracy[0] == pytest.approx(2 / 3) and confidence[0] == pytest.approx(1.3 / 3)
    w = Cumulative(EqualWidth(1))
    w.update(0.5, 1.0)
    assert w.snapshot().share.tolist() == [[1.0]]


def test_pit_of_counts_needs_randomising():
    """Poisson(2), forecast exactly: F(y) is far from uniform, F(y-1) + U (F(y) - F(y-1)) is uniform."""
    rng = np.random.default_rng(17)
    y = rng.poisson(2.0, 20_000)
    cdf = np.cumsum([math.exp(-2) * 2**k / math.factorial(k) for k in range(60)])
    upper = np.minimum(cdf[y], 1.0)
    lower = np.where(y > 0, cdf[np.maximum(y - 1, 0)], 0.0)
    values = {"plain": upper, "random": np.minimum(lower + rng.random(len(y)) * (upper - lower), 1.0)}
    gaps = {}
    for name, u in values.items():
        w = Cumulative(B, claim=PIT((0.25, 0.5, 0.75)))
        w.update_many(u, None)
        gaps[name] = np.abs(w.get("coverage") - [0.25, 0.5, 0.75]).max()
    assert gaps["plain"] > 0.05
    assert gaps["random"] < 4 * 0.5 / math.sqrt(20_000)


@pytest.mark.parametrize(
    "claim, binning, raw, y",
    [
        (Quantile(0.5), Edges((-9.0, 0.0, 9.0)), math.nan, 1.0),
        (Quantile(0.5), Edges((-9.0, 0.0, 9.0)), 1.0, math.nan),
        (Interval(0.1, 0.9), Edges((0.0, 9.0)), (math.nan, 1.0), 0.0),
        (Interval(0.1, 0.9), Edges((0.0, 9.0)), (0.0, math.nan), 0.0),
        (Interval(0.1, 0.9), Edges((0.0, 9.0)), (0.0, 1.0), math.nan),
        (TopLabel(), EqualWidth(5), (0.2, math.nan, 0.7), 2),
    ],
)
def test_nan_in_one_part_removes_the_case(claim, binning, raw, y):
    w = Cumulative(binning, claim=claim)
    w.update_many([raw], [y])
    w.update(raw, y)
    assert w.snapshot().count.sum() == 0 and (w.snapshot().refused == 2).all()


@given(y=st.floats(-1e6, 1e6), v=st.floats(-1e6, 1e6), level=st.sampled_from((0.1, 0.5, 0.9)))
def test_pinball_loss_is_never_negative(y, v, level):
    want = level * (y - v) if y >= v else (1 - level) * (v - y)
    assert pinball_loss([v], [y], level) == pytest.approx(want) and want >= 0
    assert pinball_loss([0.0], [-1.0], 0.5) == 0.5


def test_pinball_loss_is_a_mean_over_rows():
    rng = np.random.default_rng(18)
    v, y = rng.normal(size=127), rng.normal(size=127)
    want = np.mean(np.where(y >= v, 0.9 * (y - v), 0.1 * (v - y)))
    assert pinball_loss(v, y, 0.9) == pytest.approx(want, rel=1e-12)
    assert pinball_loss(np.tile(v, 3), np.tile(y, 3), 0.9) == pytest.approx(want, rel=1e-12)


class Series:
    """What of a pandas Series matters here: values with an index."""

    def __init__(self, values, index):
        self.values, self.index = np.asarray(values), np.asarray(index)

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)


def series_types():
    types = [pytest.param(Series, id="like-pandas")]
    try:
        import pandas as pd
    except ImportError:
        return types
    return [*types, pytest.param(lambda v, i: pd.Series(v, index=i), id="pandas")]


@pytest.mark.parametrize("make", series_types())
def test_unlike_indexes_are_rejected(make):
    """By position when only one has an index or both have the same one; never silently otherwise."""
    p, y = [0.9, 0.1, 0.6], [1, 0, 0]
    want = brier(p, y)
    assert brier(p, make(y, [2, 0, 1])) == want
    assert brier(make(p, [2, 0, 1]), make(y, [2, 0, 1])) == want
    with pytest.raises(ValueError, match="index"):
        brier(make(p, [0, 1, 2]), make(y, [2, 0, 1]))
    with pytest.raises(ValueError, match="index"):
        Cumulative(B).update_many(make(p, [0, 1, 2]), make(y, [2, 0, 1]))


def layouts(values):
    field = np.zeros(len(values), dtype=[("a", "i1"), ("x", "f8")])
    field["x"] = values
    frozen = np.array(values)
    frozen.flags.writeable = False
    return [field["x"], np.repeat(values, 2)[::2], np.array(values[::-1])[::-1], frozen, frozen[:]]


@pytest.mark.parametrize("which", range(5))
def test_layout_does_not_matter(which):
    rng = np.random.default_rng(19)
    p = rng.random(2000)
    y = (rng.random(2000) < p).astype(float)
    assert ece(layouts(p)[which], layouts(y)[which]) == ece(p, y)
    a, b = Sliding(B, 700), Sliding(B, 700)
    a.update_many(p, y), b.update_many(layouts(p)[which], layouts(y)[which])
    np.testing.assert_array_equal(a.cells, b.cells)


# ------------------------------------------------------------------------------ windows


@pytest.mark.parametrize("batch", [1, 7, 100, 250])
def test_a_window_counts_events_not_calls(batch):
    w = Sliding(B, 100)
    p = np.random.default_rng(20).random(1000)
    for part in np.array_split(p, 1000 // batch):
        w.update_many(part, np.ones(len(part)))
    assert w.snapshot().count.sum() == 100
    tail = Cumulative(B)
    tail.update_many(p[-100:], np.ones(100))
    np.testing.assert_allclose(w.cells, tail.cells, rtol=1e-12)


@pytest.mark.parametrize("n", [4, 5, 8, 10, 1000])
def test_a_batch_larger_than_the_window_leaves_its_tail(n):
    p = np.arange(n) / n
    w, tail = Sliding(B, 4), Cumulative(B)
    w.update_many(p, np.ones(n)), tail.update_many(p[-4:], np.ones(4))
    np.testing.assert_allclose(w.cells, tail.cells, rtol=1e-12)


def test_a_huge_value_leaves_with_its_event():
    """1e16, 1, 1, 1 through a window of two, as a weight and as the loss of a quantile."""
    w = Sliding(B, 2)
    for weight in (1e16, 1.0, 1.0, 1.0):
        w.update(0.25, 1.0, weight)
    s = w.snapshot()
    assert s.weight.sum() == 2.0 and s.mean_p[0, 2] == 0.25 and s.cells[0, 2, 2] == 2.0
    q = Sliding(Edges((-1.0, 1.0)), 2, claim=Quantile(0.5), loss="pinball")
    for y in (1e16, 1.0, 1.0, 1.0):
        q.update(0.0, y)
    assert q.get("pinball_loss") == 0.5


@every_window
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["p", "y", "w"])
def test_a_bad_value_leaves_no_poison(make, bad, place):
    w, clean = make(loss="log"), make(loss="log")
    event = {"p": (bad, 1.0, 1.0), "y": (0.5, bad, 1.0), "w": (0.5, 1.0, bad)}[place]
    tell(w, *event)
    for _ in range(6):
        tell(w, 0.5, 1.0), tell(clean, 0.5, 1.0)
    for name in ("ece", "brier", "log_loss", "sharpness"):
        assert w.get(name) == pytest.approx(clean.get(name), rel=1e-14), name


def test_variance_after_a_large_value_has_left():
    """Window of five, a NaN in it: the variance of the other four, whatever was there before."""
    w = Sliding(B, 5)
    for p, weight in ((0.9, 9.54e8), (0.6225, 1.0), (math.nan, 1.0), (0.0, 1.0), (1.0, 1.0), (0.0, 1.0)):
        w.update(p, 1.0, weight)
    assert w.get("sharpness") == pytest.approx(np.var([0.6225, 0.0, 1.0, 0.0]), rel=1e-12)
    assert w.report()["refused"] == 1


@given(p=st.lists(st.sampled_from((1e-16, 1e-40, 1e-73, 5e-324, 1 - 2**-53, 1.0, 0.3)), min_size=3, max_size=12))
def test_variance_is_never_negative(p):
    w = Sliding(B, 3)
    for x in p:
        w.update(x, 1.0)
        for name in ("sharpness", "within_variance", "uncertainty", "brier", "l2_ce"):
            assert w.get(name) >= 0, name


@pytest.mark.parametrize("first", [(0.3, 1.0, 1e5), (0.9, 0.0, 1e16), (0.05, 1.0, 1e-300)])
def test_two_histories_one_content(first):
    a, b = Sliding(B, 3), Sliding(B, 3)
    a.update(*first), b.update(0.0, 0.0)
    for p in (0.1, 0.2, 0.3, 0.4):
        a.update(p, 1.0), b.update(p, 1.0)
    np.testing.assert_allclose(a.cells, b.cells, rtol=1e-12)
    for name in ("ece", "sharpness", "brier", "k2_debiased"):
        assert a.get(name) == pytest.approx(b.get(name), rel=1e-12, nan_ok=True), name


@pytest.mark.parametrize("size", [1, 3])
def test_a_window_of_bad_events_is_nan(size):
    w = Sliding(B, size)
    for p in (0.2, 0.7, 0.4):
        w.update(p, 1.0)
    for _ in range(size):
        w.update(math.nan, 1.0)
    for name in METRICS:
        assert math.isnan(w.get(name)), name
    assert w.report()["count"] == 0 and w.report()["refused"] == size


def test_equal_times_are_both_kept():
    w = Timed(B, 10.0, panes=5)
    w.update(0.2, 0.0, t=7.0), w.update(0.8, 1.0, t=7.0)
    w.update_many([0.3, 0.4], [1, 0], t=[7.0, 7.0])
    assert w.snapshot().count.sum() == 4 and w.snapshot().late.item() == 0


@pytest.mark.parametrize("lateness", [0.0, 5.0])
def test_a_late_event_is_counted_not_applied(lateness):
    w = Timed(B, 10.0, panes=10, lateness=lateness)
    w.update(0.9, 1.0, t=100.0)
    w.update(0.1, 0.0, t=0.0)
    s = w.snapshot()
    assert s.count.sum() == 1 and s.late.item() == 1 and w.get("coverage") == 1.0
    w.update(0.1, 0.0, t=100.0 - lateness)
    assert w.snapshot().count.sum() == 2


@pytest.mark.parametrize("t", [3700.0, 1e9])
def test_an_idle_window_empties_itself(t):
    w = Timed(B, 10.0, panes=5)
    w.update(0.9, 1.0, t=100.0)
    assert w.snapshot().count.sum() == 1
    assert w.snapshot(t=t).count.sum() == 0 and math.isnan(w.snapshot(t=t).get("ece"))
    assert w.snapshot(t=100.0).count.sum() == 1  # the read changed nothing


def test_the_repeated_hour_is_two_hours():
    """1:30 summer time and 1:30 winter time are an hour apart; a 45-minute window holds one of them."""
    summer, winter = dt.timezone(dt.timedelta(hours=1)), dt.timezone(dt.timedelta(0))
    first = dt.datetime(2026, 10, 25, 1, 30, tzinfo=summer)
    second = dt.datetime(2026, 10, 25, 1, 30, tzinfo=winter)
    w = Timed(B, 2700.0, panes=9)
    w.update(0.2, 0.0, t=first)
    w.update(0.8, 1.0, t=second)
    s = w.snapshot()
    assert s.count.sum() == 1 and s.count[0, 7] == 1 and s.late.item() == 0
    seconds = Timed(B, 2700.0, panes=9)
    seconds.update(0.2, 0.0, t=first.timestamp()), seconds.update(0.8, 1.0, t=second.timestamp())
    np.testing.assert_array_equal(seconds.cells, w.cells)
    stamps = np.array([first.timestamp(), second.timestamp()]).astype("datetime64[s]")
    for unit in ("s", "ms", "us", "ns"):
        many = Timed(B, 2700.0, panes=9)
        many.update_many([0.2, 0.8], [0.0, 1.0], t=stamps.astype(f"datetime64[{unit}]"))
        np.testing.assert_array_equal(many.cells, w.cells)
    with pytest.raises((ValueError, TypeError)):  # which of the two would it be?
        w.update(0.5, 1.0, t=dt.datetime(2026, 10, 25, 1, 30))


# ------------------------------------------------------------------------------ of other rooms


@every_window
def test_a_nan_comes_with_its_reason(make):
    w = tell(tell(make(), 0.5, 1.0), 0.6, 1.0)
    for name, entry in w.report()["metrics"].items():
        if entry["value"] is None or math.isnan(entry["value"]):
            assert isinstance(entry["reason"], str) and entry["reason"], name


@every_window
@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.float32, bool, int])
def test_numpy_scalars_are_numbers(make, kind):
    a, b = make(), make()
    for p, y in ((0.25, 1), (0.75, 0), (0.5, 1)):
        tell(a, np.float32(p), kind(y)), tell(b, p, float(y))
    np.testing.assert_array_equal(a.cells, b.cells)


@every_window
def test_a_missing_label_is_not_a_negative(make):
    w = tell(tell(make(), 0.9, None), 0.9, 1.0)
    if isinstance(w, Timed):
        w.update_many([0.9, 0.9], [None, 1.0], t=[0.0, 0.0])
    else:
        w.update_many([0.9, 0.9], [None, 1.0])
    s = w.snapshot()
    assert s.refused.item() == 2 or isinstance(w, Fading)
    assert s.mean_y[0, 8] == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("word", ["0", "False", "no", "nan", "1", ""])
@every_window
def test_a_word_is_never_a_positive_label(make, word):
    """It raises or is counted as refused; it is not taken for True."""
    w = tell(make(), 0.9, 0.0)
    try:
        tell(w, 0.9, word)
    except (TypeError, ValueError):
        pass
    s = w.snapshot()
    assert s.mean_y[0, 8] == 0.0 or word == "1"


@every_window
def test_every_window_pickles(make):
    w = tell(make(loss="log"), 0.9, 1.0)
    for back in (pickle.loads(pickle.dumps(w)), copy.deepcopy(w)):
        tell(back, 0.3, 0.0)
        assert back.snapshot().count.sum() > w.snapshot().count.sum()


# ------------------------------------------------------------------------------ this table


def test_every_reported_kind_is_in_the_table():
    path = shared() / "cases" / "field_reports.jsonl"
    if not path.is_file():
        pytest.skip("field_reports.jsonl is not here: set STREAMCAL_SHARED to the folder that holds it")
    reports = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = {r["kind"] for r in reports if r["applies_to"] in ("metric", "window")}
    assert kinds <= set(table())


def table() -> dict[str, str]:
    return dict(re.findall(r"^    ([\w-]+) +(test_\w+|not yet)", __doc__, re.MULTILINE))


def test_every_test_of_the_table_is_here():
    for kind, name in table().items():
        assert name == "not yet" or callable(globals()[name]), kind
