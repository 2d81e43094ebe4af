"""Every metric against its namesake in naive.py, and what theory promises of the numbers."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter

import naive
import numpy as np
import pytest
import strategies as sts
from conftest import some
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamcal import (
    METRICS,
    Cumulative,
    EqualWidth,
    Levels,
    LogOdds,
    Quantile,
    k2,
    l2_ce,
)
from streamcal.intervals import k2_interval, null_check

NAMES = [
    "ece",
    "mce",
    "k1",
    "k2",
    "kinf",
    "l2_ce",
    "k2_debiased",
    "l2_ce_debiased",
    "brier",
    "reliability_term",
    "resolution",
    "uncertainty",
    "within_variance",
    "within_covariance",
    "pa_ratio",
    "oe_ratio",
    "calibration_intercept",
    "calibration_slope",
    "spiegelhalter_z",
    "sharpness",
    "coverage",
    "log_loss",
    "normalized_entropy",
    "pinball_loss",
]
SIMPLE = [
    "ece",
    "mce",
    "k1",
    "k2",
    "kinf",
    "l2_ce",
    "brier",
    "reliability_term",
    "resolution",
    "uncertainty",
    "within_variance",
    "within_covariance",
    "sharpness",
    "coverage",
]


def window(stream, binning=None, **options):
    w = Cumulative(binning or EqualWidth(10), **options)
    if stream:
        p, y, weight = zip(*stream)
        w.update_many(p, y, weight)
    return w


def bins10(stream, m=10):
    return naive.split([(p, p, y, w) for p, y, w in stream], lambda c: naive.width_bin(c, m), m)


def draw(rng, n):
    """n perfectly calibrated events with uniform predictions."""
    p = rng.random(n)
    return p, (rng.random(n) < p).astype(float)


def test_the_registry_has_every_name():
    assert set(NAMES) <= set(METRICS)


# ------------------------------------------------------------------------------ definitions


@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.parametrize("event", [sts.plain_events, sts.binary_events, sts.events], ids="pbr")
@given(data=st.data())
def test_metric_is_its_definition(name, event, data):
    stream = data.draw(sts.streams(event, min_size=1))
    got = window(stream).get(name)
    assert got == pytest.approx(getattr(naive, name)(bins10(stream)), abs=1e-12, nan_ok=True)
    assert isinstance(got, float)


@pytest.mark.parametrize("name", ["pa_ratio", "oe_ratio"])
@given(stream=sts.streams(min_size=1))
def test_ratios_are_their_definitions(name, stream):
    assume(sum(w * p for p, _, w in stream) > 1e-9 and sum(w * y for _, y, w in stream) > 1e-9)
    got = window(stream).get(name)
    assert got == pytest.approx(getattr(naive, name)(bins10(stream)), rel=1e-12)


@pytest.mark.parametrize("name", ["k2_debiased", "l2_ce_debiased"])
@pytest.mark.parametrize("event", [sts.plain_events, sts.binary_events, sts.events], ids="pbr")
@given(data=st.data())
def test_debiased_metric_is_its_definition(name, event, data):
    stream = data.draw(sts.streams(event, min_size=1))
    bins = bins10(stream)
    near = [naive.effective(r) for r in bins if naive.weight(r) > 0]
    assume(all(n == 2 or abs(n - 2) > 1e-6 for n in near))
    got, want = window(stream).get(name), getattr(naive, name)(bins)
    if name == "l2_ce_debiased":  # the root is steep at zero: compare squares
        got, want = got**2, want**2
    assert got == pytest.approx(want, rel=1e-9, abs=1e-12, nan_ok=True)


inner = st.tuples(sts.inner_probabilities, sts.unit, sts.weights)
certain = st.tuples(sts.probabilities, sts.binary, sts.weights)


@pytest.mark.parametrize("event", [inner, certain], ids=["inner", "certain"])
@given(data=st.data())
def test_log_loss_and_normalised_entropy(event, data):
    stream = data.draw(sts.streams(event, min_size=1))
    w, bins = window(stream, loss="log"), bins10(stream)
    assert w.get("log_loss") == pytest.approx(naive.log_loss(bins), rel=1e-9, abs=1e-12, nan_ok=True)
    if 1e-6 < naive.coverage(bins) < 1 - 1e-6:
        want = naive.normalized_entropy(bins)
        assert w.get("normalized_entropy") == pytest.approx(want, rel=1e-9, abs=1e-12)


def test_normalised_entropy_of_the_base_rate_is_one():
    stream = [(0.25, float(i % 4 == 0), 1.0) for i in range(40)]
    assert window(stream, loss="log").get("normalized_entropy") == pytest.approx(1.0, abs=1e-12)


few_levels = st.tuples(sts.ties, sts.binary, st.just(1.0))


@given(stream=sts.streams(few_levels, min_size=2))
def test_spiegelhalter_and_intercept_on_levels(stream):
    """On bins of one value each, the sums hold everything that these two need."""
    w = window(stream, Levels((0.1, 0.25, 0.3, 0.6, 0.9)))
    bins = naive.by_value([(p, p, y, w) for p, y, w in stream])
    assert w.get("spiegelhalter_z") == pytest.approx(naive.spiegelhalter_z(bins), abs=1e-9)
    if 0 < naive.coverage(bins) < 1:
        want = naive.calibration_intercept(bins)
        assert w.get("calibration_intercept") == pytest.approx(want, abs=1e-6)


def test_slope_on_levels():
    rng = np.random.default_rng(6)
    p = rng.choice([0.1, 0.25, 0.6, 0.9], 400)
    y = (rng.random(400) < 0.2 + 0.5 * p).astype(float)
    w = Cumulative(Levels((0.1, 0.25, 0.6, 0.9)))
    w.update_many(p, y)
    bins = naive.by_value([(a, a, b, n) for (a, b), n in Counter(zip(p.tolist(), y.tolist())).items()])
    assert w.get("calibration_slope") == pytest.approx(naive.calibration_slope(bins), abs=1e-6)


@pytest.mark.parametrize(
    "p, y, intercept",
    [
        ([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], True),
        ([0.1, 0.2, 0.8, 0.9], [1, 1, 0, 0], True),
        ([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1], True),  # apart but for one level: still no maximum
        ([0.3, 0.3, 0.3], [0, 1, 1], True),
        ([0.3, 0.6], [1, 1], False),
        ([0.3, 0.6], [0, 0], False),
    ],
)
def test_a_fit_without_a_maximum_is_nan(p, y, intercept):
    """Separable outcomes let the slope run to infinity; a number there would be where it stopped."""
    w = Cumulative(Levels(sorted(set(p))))
    w.update_many(p, y)
    assert math.isnan(w.get("calibration_slope"))
    assert w.report()["metrics"]["calibration_slope"]["reason"]
    assert math.isnan(w.get("calibration_intercept")) != intercept


@pytest.mark.parametrize("slope, shift", [(1.0, 0.0), (0.5, 0.0), (2.0, 0.3)])
def test_slope_and_intercept_from_a_fine_grid(slope, shift):
    """Outcomes are their own expectations: 200 bins recover the truth to .02."""
    p = np.random.default_rng(7).beta(2, 2, 20_000)
    z = np.log(p / (1 - p))
    w = Cumulative(EqualWidth(200))
    w.update_many(p, 1 / (1 + np.exp(-(slope * z + shift))))
    assert w.get("calibration_slope") == pytest.approx(slope, abs=0.02)
    if slope == 1.0:
        assert w.get("calibration_intercept") == pytest.approx(shift, abs=0.02)


def test_spiegelhalter_is_standard_normal_when_calibrated():
    """300 windows of 500: mean within 4 se of 0, variance within 4 se of 1 (se^2 = 2/300)."""
    rng = np.random.default_rng(9)
    z = []
    for _ in range(300):
        w = Cumulative(EqualWidth(100))
        w.update_many(*draw(rng, 500))
        z.append(w.get("spiegelhalter_z"))
    assert abs(np.mean(z)) < 4 / math.sqrt(300)
    assert abs(np.var(z) - 1) < 4 * math.sqrt(2 / 300)


@pytest.mark.parametrize("name", NAMES)
def test_metrics_broadcast_over_keys(name):
    rng = np.random.default_rng(10)
    p, y = draw(rng, 300)
    key = rng.integers(0, 4, 300)  # key 4 stays empty
    together = Cumulative(EqualWidth(10), keys=5, loss="log")
    together.update_many(p, y, key=key)
    got = together.get(name)
    assert got.shape == (5,)
    for k in range(5):
        alone = Cumulative(EqualWidth(10), loss="log")
        alone.update_many(p[key == k], y[key == k])
        assert got[k] == pytest.approx(alone.get(name), rel=1e-9, nan_ok=True)
        assert together.snapshot()[k].get(name) == pytest.approx(got[k], rel=1e-9, nan_ok=True)
    assert math.isnan(got[4])


@pytest.mark.parametrize("name", NAMES)
def test_get_is_the_registered_function(name):
    s = window([(0.2, 0.0, 1.0), (0.7, 1.0, 1.0), (0.75, 0.0, 1.0)], loss="log").snapshot()
    assert s.get(name) == pytest.approx(METRICS[name](s), nan_ok=True)


def test_an_unknown_metric_names_the_known_ones():
    with pytest.raises((ValueError, KeyError), match="ece"):
        window([]).get("eec")


# ------------------------------------------------------------------------------ inequalities


@given(stream=sts.streams(min_size=1), m=st.sampled_from((1, 3, 10, 15, 25)))
def test_the_order_of_the_calibration_errors(stream, m):
    """K2 <= K1 <= sqrt(K2) <= MCE, Kinf <= K1, K1^2 <= K2, and ECE is K1; all within [0, 1]."""
    assume(sum(w for *_, w in stream) > 0)
    s = window(stream, EqualWidth(m)).snapshot()
    k_1, k_2, k_inf, top = (s.get(n) for n in ("k1", "k2", "kinf", "mce"))
    tiny = 1e-12
    assert 0 <= k_2 <= k_1 + tiny and k_1 <= math.sqrt(k_2) + tiny
    assert math.sqrt(k_2) <= top + tiny and top <= 1 + tiny
    assert k_inf <= k_1 + tiny and k_1**2 <= k_2 + tiny
    assert s.get("ece") == k_1 and s.get("l2_ce") == pytest.approx(math.sqrt(k_2), abs=1e-15)


@given(stream=sts.streams(min_size=1), m=st.sampled_from((2, 3, 5)), times=st.integers(1, 6))
def test_coarser_bins_never_show_more(stream, m, times):
    assume(sum(w for *_, w in stream) > 0)
    fine, coarse = (window(stream, EqualWidth(n)).snapshot() for n in (m * times, m))
    merged = fine.coarsen(m)
    for name in ("ece", "k2"):
        assert coarse.get(name) <= fine.get(name) + 1e-12
        assert merged.get(name) <= fine.get(name) + 1e-12
    np.testing.assert_allclose(merged.cells.sum(1), fine.cells.sum(1), rtol=1e-12)


@pytest.mark.parametrize("n", [10, 11, 100])
def test_coarsening_to_no_fewer_bins_changes_nothing(n):
    s = window([(0.05, 1.0, 1.0), (0.45, 0.0, 2.0), (0.95, 1.0, 1.0)]).snapshot()
    np.testing.assert_array_equal(s.coarsen(n).cells, s.cells)


@pytest.mark.parametrize("event", [sts.binary_events, sts.events], ids=["binary", "real"])
@given(data=st.data())
def test_murphys_terms_are_an_identity(event, data):
    stream = data.draw(sts.streams(event, min_size=1))
    assume(sum(w for *_, w in stream) > 0)
    s = window(stream).snapshot()
    total = s.get("reliability_term") - s.get("resolution") + s.get("uncertainty")
    total += s.get("within_variance") - s.get("within_covariance")
    assert s.get("brier") == pytest.approx(total, abs=1e-12)


# ------------------------------------------------------------------------------ estimators


@pytest.mark.parametrize("n", [2, 3, 4, 6])
@pytest.mark.parametrize("p, c", [(0.3, 0.3), (0.3, 0.8), (0.9, 0.5), (0.5, 0.05)])
def test_debiased_square_is_exactly_unbiased(n, p, c):
    """Its mean over all 2^n outcome vectors, each with its chance under c, is (c - p)^2."""
    mean = math.fsum(
        k2([p] * n, y, binning=EqualWidth(1), debias=True) * c ** sum(y) * (1 - c) ** (n - sum(y))
        for y in itertools.product((0, 1), repeat=n)
    )
    assert mean == pytest.approx((c - p) ** 2, abs=1e-15)


@pytest.mark.statistical
@pytest.mark.jit
def test_plug_in_is_biased_and_debiased_is_not():
    """True error 0, B = 300, n = 10,000: rmse ratio about sqrt(B) / 1.6 = 10.8 (theory: 8 to 14)."""
    rng = np.random.default_rng(11)
    plug, debiased = [], []
    for _ in range(200):
        p = (rng.integers(0, 300, 10_000) + 0.5) / 300
        y = rng.random(10_000) < p
        plug.append(k2(p, y, binning=EqualWidth(300)))
        debiased.append(k2(p, y, binning=EqualWidth(300), debias=True))
    assert abs(np.mean(debiased)) < 4 * np.std(debiased) / math.sqrt(200)
    assert np.mean(plug) == pytest.approx(5.0e-3, rel=0.05)
    ratio = math.sqrt(np.mean(np.square(plug)) / np.mean(np.square(debiased)))
    assert 8 <= ratio <= 14


@pytest.mark.parametrize("shift", [0.02, 0.1])
def test_debiased_mean_is_the_true_square(shift):
    """The chance is p + shift everywhere, so K2 = shift^2 in any binning: within 4 standard errors."""
    rng = np.random.default_rng(12)
    values = []
    for _ in range(200):
        p = rng.uniform(0.05, 0.85, 1000)
        y = rng.random(1000) < p + shift
        values.append(k2(p, y, binning=EqualWidth(15), debias=True))
    assert abs(np.mean(values) - shift**2) < 4 * np.std(values) / math.sqrt(200)


def test_signed_square_is_kept_and_its_root_is_clipped():
    stream = [(0.5, float(i % 2), 1.0) for i in range(10)]
    s = window(stream).snapshot()
    assert s.get("k2_debiased") == pytest.approx(-0.25 / 9, abs=1e-15)
    assert s.get("l2_ce_debiased") == 0.0
    p, y, _ = zip(*stream)
    assert l2_ce(p, y, debias=True) == 0.0


def test_bins_of_one_event_are_not_estimable():
    alone = window([(0.1, 1.0, 1.0), (0.5, 0.0, 1.0)])
    assert math.isnan(alone.get("k2_debiased")) and math.isnan(alone.get("l2_ce_debiased"))
    with_pair = window([(0.1, 1.0, 1.0), (0.5, 0.0, 1.0), (0.5, 1.0, 1.0)])
    assert with_pair.get("k2_debiased") == pytest.approx(2 / 3 * (0 - 0.25), abs=1e-15)


@pytest.mark.jit
@pytest.mark.parametrize("shift", [0.0, 0.03, 0.095, 0.1])
def test_k2_interval_covers(shift):
    """400 windows of n = 1000, B = 15, as keys of one: at nominal 90 % at least .87 hold the true square."""
    rng = np.random.default_rng(13)
    p = rng.uniform(0.0, 0.9, 400_000)
    w = Cumulative(EqualWidth(15), keys=400)
    w.update_many(p, rng.random(p.size) < p + shift, key=np.repeat(np.arange(400), 1000))
    lo, hi = k2_interval(w.snapshot(), level=0.90)
    assert ((lo <= w.get("k2_debiased")) & (w.get("k2_debiased") <= hi)).all()
    assert np.mean((lo <= shift**2) & (shift**2 <= hi)) >= 0.87


def test_the_reported_interval_is_the_95_percent_one():
    """Half-width 1.96 standard errors of the definition (the variance of y - p within a bin)."""
    p, y = draw(np.random.default_rng(14), 1000)
    w = Cumulative(EqualWidth(15))
    w.update_many(p, y)
    lo, hi = w.report()["metrics"]["k2_debiased"]["interval"]
    np.testing.assert_allclose(np.ravel(k2_interval(w.snapshot(), level=0.95)), (lo, hi), atol=1e-15)
    error = naive.k2_error(bins10([(a, b, 1.0) for a, b in zip(p.tolist(), y.tolist())], 15))
    value = w.get("k2_debiased")
    assert (hi - value) / 1.959964 == pytest.approx(error, rel=1e-6)
    assert (value - lo) / 1.959964 == pytest.approx(error, rel=1e-6)


@pytest.mark.statistical
@pytest.mark.jit
def test_the_null_band_holds_the_ece_of_a_perfect_model():
    """300 windows, n = 1000, B = 15: about 95 % inside (4 binomial se = .05), centre .0387."""
    rng, many = np.random.default_rng(15), some(300)
    inside, centres, values = 0, [], []
    for _ in range(many):
        w = Cumulative(EqualWidth(15))
        w.update_many(*draw(rng, 1000))
        entry = w.report()["metrics"]["ece"]
        lo, hi = entry["null"]
        inside += lo <= entry["value"] <= hi
        centres.append((lo + hi) / 2)
        values.append(entry["value"])
    assert abs(inside / many - 0.95) < 4 * math.sqrt(0.95 * 0.05 / many)
    assert np.mean(centres) == pytest.approx(0.0387, abs=0.003)
    assert np.mean(values) == pytest.approx(0.0387, abs=0.003)


def test_the_null_band_does_not_hold_a_wrong_model():
    rng = np.random.default_rng(16)
    p = rng.uniform(0, 0.85, 1000)
    w = Cumulative(EqualWidth(15))
    w.update_many(p, rng.random(1000) < p + 0.1)
    entry = w.report()["metrics"]["ece"]
    assert entry["value"] > entry["null"][1]


# ------------------------------------------------------------------------------ report, nan


def test_report_is_plain_and_complete():
    stream = [(0.2, 0.0, 1.0), (0.72, 1.0, 2.0), (0.75, 0.0, 1.0)]
    w = window(stream)
    w.update(math.nan, 1.0)
    r = w.report()
    assert set(r) >= {
        *("window", "binning", "claim", "count", "weight", "effective", "refused", "clipped"),
        *("late", "bins_used", "mean_p", "mean_y", "metrics", "reliability"),
    }
    assert (r["count"], r["weight"], r["refused"], r["bins_used"]) == (3, 4, 1, 2)
    assert r["effective"] == pytest.approx(16 / 6)
    assert r["mean_p"] == pytest.approx((0.2 + 1.44 + 0.75) / 4) and r["mean_y"] == pytest.approx(0.5)
    assert set(NAMES) <= set(r["metrics"])
    for name in SIMPLE:
        assert r["metrics"][name]["value"] == pytest.approx(w.get(name))
    json.dumps(r)  # plain: only dict, list, str, int, float, bool, None


@pytest.mark.parametrize("name", NAMES)
def test_nothing_seen_is_nan_with_a_reason(name):
    w = Cumulative(EqualWidth(10))
    entry = w.report()["metrics"][name]
    assert math.isnan(w.get(name))
    assert entry["value"] is None or math.isnan(entry["value"])
    assert entry["count"] == 0 and entry["reason"]


@pytest.mark.parametrize("name", ["log_loss", "normalized_entropy", "pinball_loss"])
def test_loss_metrics_without_loss_are_nan_and_say_why(name):
    w = window([(0.2, 0.0, 1.0), (0.7, 1.0, 1.0)])
    assert math.isnan(w.get(name))
    assert "loss" in w.report()["metrics"][name]["reason"]


def test_every_nan_has_a_reason_and_every_number_has_none():
    for stream in ([], [(0.5, 1.0, 1.0)], [(0.5, 0.0, 1.0)] * 3, [(0.0, 0.0, 1.0), (1.0, 1.0, 1.0)]):
        for name, entry in window(stream).report()["metrics"].items():
            missing = entry["value"] is None or math.isnan(entry["value"])
            assert missing == bool(entry.get("reason")), (name, entry, stream)


def test_report_of_several_keys():
    w = Cumulative(EqualWidth(10), keys=2)
    w.update_many([0.2, 0.7], [0, 1], key=[0, 1])
    r = w.report()
    assert len(r["keys"]) == 2
    assert [k["count"] for k in r["keys"]] == [1, 1]


@settings(max_examples=20)
@given(stream=sts.streams(sts.binary_events, min_size=1))
def test_reliability_bins(stream):
    s = window(stream).snapshot()
    bins = {r["lo"]: r for r in s.reliability() if r["count"]}
    for m, events in enumerate(bins10(stream)):
        if not events:
            continue
        bin = bins[m / 10]
        assert bin["hi"] == (m + 1) / 10 and bin["count"] == len(events)
        assert bin["weight"] == pytest.approx(naive.weight(events))
        if naive.weight(events) > 0:
            y = naive.mean_outcome(events)
            low, high = naive.wilson(y, naive.effective(events))
            assert bin["mean_p"] == pytest.approx(naive.mean_claim(events), abs=1e-12)
            assert bin["mean_y"] == pytest.approx(y, abs=1e-12)
            assert bin["low"] == pytest.approx(low, abs=1e-9)
            assert bin["high"] == pytest.approx(high, abs=1e-9)


def test_wilson_of_a_known_case():
    """8 of 10: [.490, .943] in every textbook."""
    s = window([(0.85, float(i < 8), 1.0) for i in range(10)]).snapshot()
    (bin,) = [r for r in s.reliability(level=0.95) if r["count"]]
    assert (bin["low"], bin["high"]) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)


def test_snapshot_shares_and_gaps():
    s = window([(0.2, 1.0, 1.0), (0.7, 1.0, 2.0), (0.65, 0.0, 1.0)]).snapshot()
    share, gap = s.share[0], s.gap[0]
    assert share.sum() == pytest.approx(1.0) and share[1] == 0.25 and share[6] == 0.75
    assert gap[1] == pytest.approx(0.8) and gap[6] == pytest.approx((2 - 2.05) / 3)
    assert gap[[0, 2, 3, 4, 5, 7, 8, 9]].tolist() == [0.0] * 8
    assert np.isnan(s.mean_p[0, 0]) and np.isnan(s.mean_y[0, 0])
    assert np.isnan(window([]).snapshot().share).all()


def test_a_quantile_window_with_pinball_loss():
    w = Cumulative(Levels((-1.0, 0.0, 1.0)), claim=Quantile(0.9), loss="pinball")
    w.update_many([0.0, 0.0, 1.0], [1.0, -1.0, 0.5], [1.0, 2.0, 1.0])
    assert w.get("pinball_loss") == pytest.approx((0.9 + 2 * 0.1 + 0.05) / 4, abs=1e-15)


def draws_of(name, rng, n):
    return {"uniform": rng.random(n), "high": rng.beta(9, 1, n), "clicks": np.exp(rng.normal(np.log(0.001), 1, n))}[
        name
    ]


@pytest.mark.jit
@pytest.mark.parametrize("n", [5, 50, 1000])
@pytest.mark.parametrize("name", ["uniform", "high", "clicks"])
def test_a_calibrated_model_is_rejected_no_more_often_than_promised(name, n):
    """At most 5 % plus three binomial standard errors, for three tests at once and from five events on."""
    rng, runs, rejected = np.random.default_rng(11), 200, 0
    for seed in range(runs):
        p = np.minimum(draws_of(name, rng, n), 1.0)
        w = Cumulative(LogOdds(15) if name == "clicks" else EqualWidth(15))
        w.update_many(p, (rng.random(n) < p).astype(float))
        rejected += bool(null_check(w.snapshot(), seed=seed)[1][0])
    assert rejected / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize(
    ("claim", "test"),
    [
        (lambda p: np.clip(p + 0.1, 0, 1), "mean"),
        (lambda p: p**2 / (p**2 + (1 - p) ** 2), "spread"),
        (lambda p: np.where((p > 0.4) & (p < 0.6), 1 - p, p) + 0.2 * np.sin(12 * p) * p * (1 - p), "k2"),
    ],
)
def test_each_kind_of_error_is_named(claim, test):
    rng = np.random.default_rng(12)
    p = rng.random(20_000)
    w = Cumulative(EqualWidth(15))
    w.update_many(claim(p), (rng.random(20_000) < p).astype(float))
    assert test in w.report()["rejected"]
