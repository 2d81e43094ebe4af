"""Intervals of metrics, by the names of the metrics: coverage by simulation, plain twins, corner cases."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import naive
import numpy as np
import pytest
import strategies as sts
from conftest import some
from hypothesis import given, settings
from hypothesis import strategies as st
from windows_cases import KINDS, WINDOWS, build, every_kind, feed

from streamcal import METRICS, Cumulative, EqualWidth, Levels, Mean, Quantile, UniformMass
from streamcal.batch import bin_index
from streamcal.intervals import INTERVALS, k1_interval, k2_interval, wilson

LEVEL = 0.9
PATTERNS = {  # of the gaps, each with a mean size of about 1
    "shift": lambda p, bin: np.ones_like(p),
    "alternate": lambda p, bin: np.where(bin % 2 == 0, 1.0, -1.0),
    "few": lambda p, bin: np.where(bin % 5 == 0, 5.0, 0.0),
    "tilt": lambda p, bin: 4.0 * (p - 0.5),
}
CLAIMS = {
    "uniform": lambda rng, n: rng.random(n),
    "low": lambda rng, n: rng.beta(0.5, 2.0, n),
    "rare": lambda rng, n: np.minimum(0.001 * np.exp(rng.normal(0.0, 1.0, n) - 0.5), 1.0),
}
WEIGHTS = {
    "equal": lambda rng, n: np.ones(n),
    "some": lambda rng, n: rng.choice([1.0, 3.0, 10.0], n),
    "skew": lambda rng, n: rng.exponential(1.0, n),
}
MANY = {100: 1000, 1000: 500, 10_000: 200}


def simulated(claims, weights, pattern, size, n, bins, many, seed=7):
    """``many`` windows of n events as keys of one: its snapshot, and for each event (key, bin, claim, chance, weight)."""
    rng = np.random.default_rng(seed)
    p = CLAIMS[claims](rng, n * many)
    bin = bin_index(p, bins)
    gap = size * PATTERNS[pattern](p, bin)
    chance = np.where((p + gap >= 0.0) & (p + gap <= 1.0), p + gap, np.clip(p - gap, 0.0, 1.0))
    w, key = WEIGHTS[weights](rng, p.size), np.repeat(np.arange(many), n)
    window = Cumulative(EqualWidth(bins), keys=many)
    window.update_many(p, (rng.random(p.size) < chance).astype(float), w, key=key)
    return window.snapshot(), key, bin, p, chance, w


def true_k1(s, key, bin, p, chance, w):
    """K1 of the events that came, if every outcome were its chance."""
    gaps = np.bincount(key * s.bins + bin, w * (chance - p), s.keys * s.bins).reshape(s.keys, s.bins)
    return np.abs(gaps).sum(1) / np.bincount(key, w)


def assert_covers(low, high, true, level=LEVEL):
    """At least ``level``, but for two binomial standard errors."""
    share = np.mean((low <= true + 1e-12) & (true <= high + 1e-12))
    assert share >= level - 2.0 * math.sqrt(level * (1.0 - level) / true.size), share


BINS = [(10, "equal"), (15, "equal"), (15, "some"), (15, "skew"), (100, "equal"), (100, "some")]
SHAPES = [("shift", 0.0), *itertools.product(PATTERNS, (0.02, 0.05, 0.1))]
CASES = sts.pairwise(itertools.product(BINS, MANY, CLAIMS, SHAPES), *(lambda case, i=i: case[i] for i in range(4)))


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("bins, n, claims, shape", CASES, ids=str)
def test_the_interval_of_k1_covers(claims, bins, n, shape):
    """At least 100 windows: of 50, two that miss are more than two standard errors of .99 allow."""
    s, *events = simulated(claims, bins[1], *shape, n, bins[0], max(some(MANY[n]), 100))
    true = true_k1(s, *events)
    for level in (LEVEL, 0.99):
        low, high = INTERVALS["k1"](s, level)
        assert_covers(low, high, true, level)
        assert not np.isnan(low).any() and (low <= s.get("k1")).all() and (s.get("k1") <= high).all()


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_threshold_that_is_the_true_value_is_rarely_passed(pattern):
    """What a rule relies on: where K1 is at most .05, the lower end is above it in at most half the doubt."""
    for level in (0.9, 0.99, 0.999):
        s, *events = simulated("low", "equal", pattern, 0.05, 1000, 15, some(2000), seed=11)
        low, _ = k1_interval(s, level)
        allowed = (1.0 - level) / 2.0
        assert np.mean(low > true_k1(s, *events)) <= allowed + 2.0 * math.sqrt(allowed / s.keys) + 1.0 / s.keys


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("claims", CLAIMS)
@pytest.mark.parametrize("n", MANY)
@pytest.mark.parametrize("bins", [3, 15])
def test_the_intervals_of_brier_and_the_ratios_cover(claims, n, bins):
    for size in (0.0, 0.05):
        s, key, bin, p, chance, w = simulated(claims, "equal", "tilt", size, n, bins, some(MANY[n]))

        def mean(values, key=key, n=n):
            return np.bincount(key, values) / n

        assert_covers(*INTERVALS["brier"](s, LEVEL), mean(p**2 + chance * (1.0 - 2.0 * p)))
        expected, claimed = mean(chance), mean(p)
        for name, true in (("coverage", expected), ("oe_ratio", expected / claimed), ("pa_ratio", claimed / expected)):
            low, high = INTERVALS[name](s, LEVEL)
            # Wilson's interval is right on average over many chances, not at each: three points at the worst of them
            share = np.mean((low <= true) & (true <= high))
            assert share >= LEVEL - 0.03 - 2.0 * math.sqrt(LEVEL * (1.0 - LEVEL) / true.size), name


@pytest.mark.jit
@pytest.mark.parametrize("bins", [10, 100])
def test_fractions_are_no_reason_to_be_vague(bins):
    """Outcomes that are always about the claim: the interval is as narrow as they vary, and covers."""
    rng = np.random.default_rng(2)
    p, key = rng.uniform(0.2, 0.8, 400_000), np.repeat(np.arange(200), 2000)
    window = Cumulative(EqualWidth(bins), keys=200)
    window.update_many(p, p + 0.05 + rng.normal(0.0, 0.02, p.size), key=key)
    low, high = k1_interval(window.snapshot(), LEVEL)
    assert_covers(low, high, np.full(200, 0.05))
    assert np.mean(high - low) < 0.015
    assert np.isnan(INTERVALS["brier"](window.snapshot(), LEVEL)[0]).all()


# ---------------------------------------------------------------------------- plain twins


events = st.lists(st.tuples(sts.probabilities, sts.unit, sts.weights), max_size=60)


@settings(max_examples=60)
@given(events, st.booleans(), st.sampled_from((0.5, 0.95, 0.999)))
def test_k1_is_the_plain_one(stream, binary, level):
    stream = [(p, round(y) if binary else y, w) for p, y, w in stream]
    window = Cumulative(EqualWidth(10))
    for e in stream:
        window.update(*e)
    bins = naive.split([(p, p, float(y), w) for p, y, w in stream], lambda c: naive.width_bin(c, 10), 10)
    np.testing.assert_allclose(
        np.ravel(k1_interval(window.snapshot(), level)), naive.k1_interval(bins, level), rtol=1e-7, atol=1e-7
    )


@every_kind
@settings(max_examples=6)
@given(data=st.data())
def test_keys_have_the_intervals_that_they_have_alone(kind, data):
    stream = data.draw(sts.streams(kind.raw, 60, min_size=20))
    key = data.draw(st.lists(st.integers(0, 1), min_size=len(stream), max_size=len(stream)))
    together = feed(build(WINDOWS["cumulative"], kind, keys=3), stream, key=key).snapshot()
    for name, bounds in INTERVALS.items():
        low, high = bounds(together, 0.9)
        assert low.shape == high.shape == (together.keys,), name
        assert ((low <= high) | np.isnan(low)).all(), name
        for k in range(together.keys):
            alone = np.ravel(bounds(together[k], 0.9))
            np.testing.assert_allclose(alone, [low[k], high[k]], rtol=1e-12, atol=1e-12, err_msg=name)


def sample(n=2000, keys=1, seed=0, **options):
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    window = Cumulative(EqualWidth(15), keys=keys, **options)
    window.update_many(p, (rng.random(n) < p).astype(float), key=rng.integers(0, keys, n))
    return window.snapshot()


def test_every_name_is_a_metric_and_what_it_says():
    s = sample(keys=3)
    assert set(INTERVALS) <= set(METRICS)
    assert INTERVALS["ece"] is INTERVALS["k1"] is k1_interval
    np.testing.assert_array_equal(INTERVALS["k2_debiased"](s, 0.9), k2_interval(s, 0.9))
    np.testing.assert_array_equal(INTERVALS["k2"](s, 0.9), np.maximum(k2_interval(s, 0.9), 0.0))
    np.testing.assert_array_equal(INTERVALS["l2_ce"](s, 0.9), np.sqrt(np.maximum(k2_interval(s, 0.9), 0.0)))
    low, high = wilson(s.total[:, 4] / s.total[:, 1], s.total[:, 0], 0.9)
    np.testing.assert_allclose(INTERVALS["coverage"](s, 0.9), (low, high), rtol=1e-12)
    claim = s.total[:, 3] / s.total[:, 1]
    np.testing.assert_allclose(INTERVALS["oe_ratio"](s, 0.9), (low / claim, high / claim), rtol=1e-12)
    np.testing.assert_allclose(INTERVALS["pa_ratio"](s, 0.9), (claim / high, claim / low), rtol=1e-12)
    for place, name in enumerate(("calibration_intercept", "calibration_slope")):
        got = np.transpose(INTERVALS[name](s, 0.9))
        half = NormalDist().inv_cdf(0.95) * s.logistic[:, 2 + place]
        want = np.transpose([s.logistic[:, place] - half, s.logistic[:, place] + half])
        np.testing.assert_allclose(got, want, rtol=1e-12)
    for name in ("k1", "brier", "coverage", "oe_ratio", "pa_ratio", "calibration_intercept", "calibration_slope"):
        low, high = INTERVALS[name](s, 0.9)
        value = s.values(name)
        assert ((low <= value) & (value <= high)).all(), name


@pytest.mark.parametrize("name", INTERVALS)
def test_nothing_seen_is_nan(name):
    low, high = INTERVALS[name](Cumulative(EqualWidth(5), keys=2).snapshot(), 0.9)
    assert np.isnan(low).all() and np.isnan(high).all()


@pytest.mark.parametrize("name", ["k1", "ece", "brier"])
def test_fewer_than_ten_events_are_too_few(name):
    window = Cumulative(EqualWidth(5))
    window.update_many([0.5] * 9, [1, 0, 0] * 3)
    assert np.isnan(INTERVALS[name](window.snapshot(), 0.9)).all()
    window.update(0.5, 1, 1000.0)  # one event in effect
    assert np.isnan(INTERVALS[name](window.snapshot(), 0.9)).all()
    window = Cumulative(EqualWidth(5))
    window.update_many([0.5] * 10, [1, 0] * 5)
    assert np.isfinite(INTERVALS[name](window.snapshot(), 0.9)).all()


def test_q1_is_about_quantiles():
    assert np.isnan(INTERVALS["q1"](sample(), 0.9)).all()
    rng = np.random.default_rng(0)
    window = Cumulative(UniformMass(10), claim=Quantile(0.9))
    v = rng.normal(0.0, 1.0, 4000)
    window.update_many(v, v + rng.normal(0.0, 1.0, 4000) - 0.5244)  # y <= v with chance .7
    low, high = INTERVALS["q1"](window.snapshot(), 0.9)
    assert 0.17 < low[0] < 0.2 < high[0] < 0.23


def test_one_kind_of_outcome_does_not_look_sure():
    """No positive among 100 events at a claim of .001 leaves room for a chance of a few percent; none among a million, not."""
    for n, most in ((100, 0.05), (1_000_000, 2e-3)):
        window = Cumulative(Levels([0.001]))
        window.update_many(np.full(100, 0.001), np.zeros(100))
        s = sum([window.snapshot()] * (n // 100))
        low, high = k1_interval(s, 0.95)
        assert low[0] <= 0.001 < high[0] < most
        assert (high[0] > 0.02) == (n == 100)
        low, high = INTERVALS["pa_ratio"](s, 0.95)
        assert low[0] < 1.0e3 and math.isinf(high[0])


def test_weights_of_down_sampled_negatives_are_taken_with_caution():
    """One negative in ten is left and counts ten: the weights know the outcome, so intervals are wide, but they cover."""
    rng, many, n = np.random.default_rng(4), 300, 1000
    p = rng.beta(1.0, 30.0, many * n)
    y = (rng.random(p.size) < p).astype(float)
    kept = (y == 1.0) | (rng.random(p.size) < 0.1)
    window = Cumulative(EqualWidth(15), claim=Mean("binary"), keys=many)
    key = np.repeat(np.arange(many), n)[kept]
    window.update_many(p[kept], y[kept], np.where(y[kept] == 1.0, 1.0, 10.0), key=key)
    low, high = k1_interval(window.snapshot(), LEVEL)
    assert_covers(low, high, np.zeros(many))


@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, math.nan])
def test_a_level_is_a_probability(name, level):
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\)"):
        INTERVALS[name](sample(), level)


def test_intervals_read_the_bins_as_metrics_do():
    window = feed(Cumulative(UniformMass(4)), [(i / 40, float(i % 3 == 0), 1.0) for i in range(40)])
    s = window.snapshot()
    np.testing.assert_array_equal(k1_interval(s, 0.9), k1_interval(s.read, 0.9))
    assert KINDS["mass"].binning == window.binning
