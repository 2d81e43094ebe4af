"""Patching and quantile patching: the laws of the loop, the plain textbook loop beside it, and what a sample costs."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import warnings

import numpy as np
import pytest
from conftest import sized
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from strategies import probabilities, ties, unit, weights

import streamcal
from streamcal import CalibrationWarning
from streamcal.recalibrate.patching import OneShotPatching, Patch, Patching, QuantilePatching, gap_radius, nearest

alphas = st.sampled_from((0.1, 0.01, 1e-3, 1e-4, 1e-6, 1e-9))
grids = st.sampled_from((1, 2, 3, 7, 10, 25, 29, 50))
whole = st.integers(1, 4).map(float)
scores = st.one_of(ties, probabilities)
positive = weights.filter(bool)


@st.composite
def samples(draw, score=scores, outcome=unit, weight=positive):
    """(p, y, w) with ties, and with means that land on other levels."""
    rows = draw(st.lists(st.tuples(score, outcome, weight), min_size=1, max_size=40))
    return tuple(np.array(column) for column in zip(*rows))


# quarters on both sides: patch values often are other levels
merging = samples(st.sampled_from([k / 4 for k in range(5)]), st.sampled_from((0.0, 0.25, 0.5, 1.0)), st.just(1.0))
any_sample = st.one_of(samples(), merging)


def k2_and_brier(p, y, w):
    """K2 over the distinct values of p, and the squared error, in plain Python."""
    total, k2 = math.fsum(w), 0.0
    for v in set(p.tolist()):
        at = p == v
        n, s = math.fsum(w[at]), math.fsum(w[at] * y[at])
        k2 += n * (v - s / n) ** 2
    return k2 / total, math.fsum(w * (p - y) ** 2) / total


def uncalibrated(p, y, w):
    return sum(abs(v - np.average(y[p == v], weights=w[p == v])) > 1e-12 for v in set(p.tolist()))


def replay(patching, p):
    """The predictions after each patch, by the history alone."""
    p = p.copy()
    yield p
    for patch in patching.history():
        assert patch.level in p
        p = np.where(p == patch.level, patch.value, p)
        yield p


def rounded(p, m):
    """The nearest of 0, 1/m, ..., 1; half way the lower one."""
    return p if m is None else streamcal.Grid(m).levels[streamcal.Grid(m).bins(p)]


def textbook(p, y, w, alpha, m=None):
    """The loop as THE text has it, over a dictionary {level: events}: (patches, final predictions)."""
    p, steps, seen = rounded(p, m), [], set()
    while k2_and_brier(p, y, w)[0] > alpha:
        choices = []
        for v in sorted(set(p.tolist())):
            at = p == v
            c = np.sum(w[at] * y[at]) / np.sum(w[at])
            to = float(rounded(np.array([c]), m)[0])
            choices.append((np.sum(w[at]) * ((v - c) ** 2 - (to - c) ** 2), -v, v, to))
        gain, _, v, to = max(choices)
        if gain <= 1e-13 * w.sum():
            break
        steps.append((v, to))
        assert v not in seen, "the textbook loop came back to a level"
        seen.add(v)
        p = np.where(p == v, to, p)
    return steps, p


# ---------------------------------------------------------------------------- laws of the loop


@given(any_sample, alphas)
def test_every_patch_lowers_the_squared_error_by_what_it_says(sample, alpha):
    p, y, w = sample
    patching = Patching(alpha).fit(p, y, w)
    states = [k2_and_brier(q, y, w) for q in replay(patching, p)]
    assert_allclose(states[0][0], patching.k2_before_, atol=1e-12)
    for patch, before, after in zip(patching.history(), states, states[1:]):
        assert patch.decrease > 0.0
        assert_allclose(before[1] - after[1], patch.decrease, atol=1e-12)
        assert_allclose(patch.mass * (patch.level - patch.value) ** 2, patch.decrease, atol=1e-12)
        assert_allclose(after[0], patch.k2_after, atol=1e-12)
        assert after[0] <= before[0] + 1e-14


@given(any_sample, alphas)
def test_patching_ends_below_alpha_with_one_patch_a_level_at_most(sample, alpha):
    p, y, w = sample
    patching = Patching(alpha).fit(p, y, w)
    assert patching.k2_after_ <= alpha
    assert not patching.floor_reached_
    assert k2_and_brier(patching.predict(p), y, w)[0] <= alpha + 1e-14
    assert len(patching.history_) <= uncalibrated(p, y, w) <= len(patching.values_)


@given(any_sample, grids, st.sampled_from((1.0, 4.0, 1e4)))
def test_on_a_grid_patching_never_loops_and_ends_at_the_floor(sample, m, times):
    p, y, w = sample
    floor = 1 / (4 * m**2)
    alpha = min(times * floor, 1.0)
    patching = Patching(alpha, levels=m).fit(p, y, w)
    out = patching.predict(p)
    assert set(out.tolist()) <= set((np.arange(m + 1) / m).tolist())
    assert k2_and_brier(out, y, w)[0] <= max(alpha, floor) + 1e-14
    assert len(patching.history_) <= m + 1
    states = [k2_and_brier(q, y, w) for q in replay(patching, rounded(p, m))]
    for patch, before, after in zip(patching.history(), states, states[1:]):
        assert_allclose(before[1] - after[1], patch.decrease, atol=1e-12)
        assert_allclose(after[0], patch.k2_after, atol=1e-12)
        assert after[0] <= before[0] + 1e-14


@given(any_sample, st.one_of(st.none(), grids))
def test_what_the_history_does_is_what_predict_does(sample, m):
    p, y, w = sample
    patching = Patching(1.0 if m is None else 1 / (4 * m**2), levels=m).fit(p, y, w)
    *_, last = replay(patching, rounded(p, m))
    assert_array_equal(patching.predict(p), last)


@given(samples(weight=st.just(1.0)), alphas)
def test_the_fast_loop_is_the_textbook_loop(sample, alpha):
    steps, final = textbook(*sample, alpha)
    patching = Patching(alpha).fit(*sample)
    if len(steps) == len(patching.history_):  # nearly equal gains may be taken in the other order
        assert_allclose(patching.predict(sample[0]), final, atol=1e-9)
    assert_allclose(patching.k2_after_, k2_and_brier(final, *sample[1:])[0], atol=alpha)


@pytest.mark.parametrize("m", [None, 4, 10, 29])
@pytest.mark.parametrize("seed", range(8))
def test_the_fast_loop_takes_the_textbook_steps(m, seed):
    rng = np.random.default_rng(seed)
    n = 300
    p = rng.integers(0, 21, n) / 20
    y = (rng.random(n) < np.clip(p + rng.normal(0, 0.2, 21)[(20 * p).astype(int)], 0, 1)).astype(float)
    w = rng.random(n)  # so that no two gains are equal
    alpha = 1e-6 if m is None else 1 / (4 * m**2)
    steps, final = textbook(p, y, w, alpha, m)
    patching = Patching(alpha, levels=m).fit(p, y, w)
    assert_allclose([(v, to) for v, to, *_ in patching.history()], steps, atol=1e-12)
    assert_allclose(patching.predict(p), final, atol=1e-12)


@pytest.mark.parametrize(("alpha", "patches"), [(0.05, 6), (0.01, 14), (0.001, 18), (1e-9, 20)])
def test_the_bound_is_the_number_of_levels_not_m_over_alpha(alpha, patches):
    """Theory A2b: 20 levels, gaps of .3, masses evenly spread from small to large; m / alpha would be 400 ... 2e10."""
    values, masses = np.linspace(0.01, 0.69, 20), 2.0 * np.arange(20) + 1.0
    assert len(Patching(alpha).fit(values, values + 0.3, masses).history_) == patches


# ---------------------------------------------------------------------------- the slips


def test_a_level_that_is_too_low_is_patched():
    """The signed argmax prefers .6 (too high by .02) to .2 (too low by .7), and stands still."""
    p = np.repeat([0.2, 0.6], 50)
    y = np.concatenate([np.repeat([1.0, 0.0], (45, 5)), np.repeat([1.0, 0.0], (29, 21))])
    patches = Patching(1e-9).fit(p, y).history()
    assert [(h.level, h.value) for h in patches] == [(0.2, 0.9), (0.6, 0.58)]


def test_the_patch_value_is_the_mean_not_the_level():
    patching = Patching().fit([0.9] * 10, [1.0] * 3 + [0.0] * 7)
    assert patching.history() == [Patch(0.9, 0.3, 1.0, pytest.approx(0.36), 0.0)]


def test_a_level_that_rounds_to_itself_does_not_stall_the_grid():
    """.5 has the largest gap (.24) but no better neighbour; the loop goes on with 0, which gains less but gains."""
    p = np.repeat([0.5, 0.0], (900, 100))
    y = np.concatenate([np.repeat([1.0, 0.0], (666, 234)), np.repeat([1.0, 0.0], (30, 70))])
    patching = Patching(0.0625, levels=2).fit(p, y)
    assert not len(patching.history_)  # .9 * .24^2 + .1 * .3^2 is below the floor already
    y[-100:] = np.repeat([1.0, 0.0], (90, 10))
    patching = Patching(0.0625, levels=2).fit(p, y)
    assert [(h.level, h.value) for h in patching.history()] == [(0.0, 1.0)]


# ---------------------------------------------------------------------------- samples: noise and significance

LEVELS = (np.arange(50) + 0.5) / 50


def population_k2(seed, make, n=500, sd=0.1):
    """K2 in the population of what ``make()`` learns from n events of 50 levels, and of doing nothing."""
    rng = np.random.default_rng(seed)
    truth = np.clip(LEVELS + rng.normal(0, sd, 50), 0, 1)
    bin = np.repeat(np.arange(50), n // 50)
    y = (rng.random(n) < truth[bin]).astype(float)
    out = make().fit(LEVELS[bin], y).predict(LEVELS)
    return np.mean((out - truth) ** 2), np.mean((LEVELS - truth) ** 2)


@pytest.mark.parametrize("make", [OneShotPatching, Patching], ids=["one-shot", "patching"])
def test_plain_patching_of_a_small_sample_makes_the_true_error_worse(make):
    """500 events, 50 levels: .0094 before, .0157 after (theory A2b). 100 repetitions, 4 standard errors."""
    after, before = np.transpose([population_k2(seed, make) for seed in range(100)])
    worse = after - before
    assert worse.mean() > 0.004
    assert worse.mean() - 4 * worse.std(ddof=1) / 10 > 0
    if make is OneShotPatching:  # its floor: the noise of 50 means of 10 events, about m / (6 n) less sd^2 / 10
        assert_allclose(after.mean(), 0.0157, atol=4 * after.std(ddof=1) / 10)


def test_significant_patching_of_a_small_sample_does_not():
    after, before = np.transpose([population_k2(seed, lambda: Patching(significance=0.05)) for seed in range(100)])
    worse = after - before
    assert worse.mean() <= 2 * worse.std(ddof=1) / 10 + 1e-12


def test_significant_patching_of_a_large_sample_helps():
    after, before = np.transpose(
        [population_k2(seed, lambda: Patching(significance=0.05), n=50_000) for seed in range(10)]
    )
    assert (after < 0.5 * before).all()


def test_a_calibrated_sample_is_left_alone():
    """At significance .05 at most 5 % of calibrated samples are patched at all (200 samples: 3 standard errors)."""
    touched = sum(len(calibrated_fit(seed).history_) > 0 for seed in range(200))
    assert touched <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)


def calibrated_fit(seed):
    rng = np.random.default_rng(seed)
    p = LEVELS[rng.integers(0, 50, 2000)]
    return Patching(significance=0.05).fit(p, (rng.random(2000) < p).astype(float))


@pytest.mark.parametrize("alpha", [0.05, 0.001, 1e-6])
@pytest.mark.parametrize("n", [1, 30, 1000])
def test_the_radius_is_the_normal_mixture_near_its_tightest(n, alpha):
    """Theory D1 (i) over all rho: ours within 1 % of the best, and between Hoeffding's radius and 1.2 times it."""
    v, rho = n / 4, n / 4 * np.geomspace(1e-3, 10, 2000)
    best = (np.sqrt((v + rho) * np.log((v + rho) / (rho * alpha**2))) / n).min()
    radius = gap_radius(n, alpha)
    assert best <= radius * (1 + 1e-6) <= 1.01 * best
    assert math.sqrt(math.log(2 / alpha) / (2 * n)) < radius < 1.2 * math.sqrt(math.log(2 / alpha) / (2 * n))


def test_only_significant_levels_are_patched():
    p = np.repeat([0.1, 0.5, 0.9], (1000, 1000, 10))
    y = np.concatenate([np.repeat([1.0, 0.0], (400, 600)), np.repeat([1.0, 0.0], (520, 480)), np.repeat([1.0, 0.0], 5)])
    patching = Patching(1e-6, significance=0.05).fit(p, y)
    assert [(h.level, h.value) for h in patching.history()] == [(0.1, 0.4)]
    assert patching.floor_reached_
    assert patching.k2_after_ > 1e-6


# ---------------------------------------------------------------------------- one shot


@given(any_sample)
def test_one_shot_is_calibrated_and_lowers_the_squared_error_by_k2(sample):
    p, y, w = sample
    one = OneShotPatching().fit(p, y, w)
    k2, brier = k2_and_brier(p, y, w)
    after = k2_and_brier(one.predict(p), y, w)
    assert_allclose(one.k2_before_, k2, atol=1e-12)
    assert_allclose(after, (0.0, brier - k2), atol=1e-12)


@given(any_sample)
def test_patching_to_the_end_is_one_shot_where_nothing_merges(sample):
    p, y, w = sample
    patching, one = Patching(0.0).fit(p, y, w), OneShotPatching().fit(p, y, w)
    if not set(one.patched_.tolist()) & set(one.values_.tolist()):
        assert_allclose(patching.predict(p), one.predict(p), atol=1e-11)


def test_one_shot_on_a_grid_takes_the_exact_mean_of_the_rounded_level():
    one = OneShotPatching(levels=2).fit([0.4, 0.5, 0.6, 1.0], [0, 0, 1, 1])
    assert_array_equal(one.values_, [0.5, 1.0])
    assert_array_equal(one.predict([0.0, 0.45, 0.75, 0.76]), [1 / 3, 1 / 3, 1 / 3, 1.0])


# ---------------------------------------------------------------------------- contract and edges

MAKERS = [
    Patching,
    lambda: Patching(0.01, levels=7),
    lambda: Patching(1e-3, significance=0.1),
    OneShotPatching,
    lambda: OneShotPatching(levels=10),
]


@pytest.mark.parametrize("make", MAKERS)
@given(sample=samples(weight=whole))
def test_weights_are_repetition(make, sample):
    p, y, w = sample
    r = w.astype(int)
    a, b = make().fit(p, y, w), make().fit(np.repeat(p, r), np.repeat(y, r))
    assert_array_equal(a.values_, b.values_)
    assert_allclose(a.k2_before_, b.k2_before_, atol=1e-12)
    if isinstance(a, OneShotPatching):
        assert_allclose(a.patched_, b.patched_, atol=1e-12)


@pytest.mark.parametrize("make", MAKERS)
def test_binary_weights_are_repetition_to_the_bit(make):
    rng = np.random.default_rng(3)
    p, y, w = rng.integers(0, 11, 400) / 10, rng.integers(0, 2, 400).astype(float), rng.integers(0, 4, 400)
    a, b = make().fit(p, y, w), make().fit(np.repeat(p, w), np.repeat(y, w))
    assert a.to_bytes() == b.to_bytes()


@pytest.mark.parametrize("make", MAKERS)
@given(sample=samples())
def test_state_round_trip_and_pure_predict(make, sample):
    made = make().fit(*sample)
    x = np.linspace(0, 1, 12).reshape(3, 4)
    out = made.predict(x)
    assert out.shape == x.shape
    assert ((out >= 0) & (out <= 1)).all()
    for other in (streamcal.from_bytes(made.to_bytes()), pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert other.to_bytes() == made.to_bytes()
        assert_array_equal(other.predict(x), out)
        assert repr(other) == repr(made)
    assert made.fit(*sample).to_bytes() == make().fit(*sample).to_bytes()


def test_unfitted_state_round_trip():
    made = streamcal.from_bytes(Patching(0.01, levels=np.int64(8), significance=0.1).to_bytes())
    assert repr(made) == "Patching(alpha=0.01, levels=8, significance=0.1)"
    with pytest.raises(ValueError, match="not fitted"):
        made.history()
    with pytest.raises(ValueError, match="not fitted"):
        _ = made.floor_reached_


@pytest.mark.parametrize("make", [Patching, OneShotPatching])
def test_constant_scores_become_the_base_rate(make):
    made = make().fit([0.5] * 10, [1] * 3 + [0] * 7)
    assert_array_equal(made.predict([0.0, 0.5, 1.0]), [0.3] * 3)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_is_finite(make, label):
    out = make().fit([0.1, 0.5, 0.9], [label] * 3).predict([0.0, 0.3, 1.0])
    assert np.isfinite(out).all()
    if make in (Patching, OneShotPatching):
        assert_array_equal(out, [label] * 3)


def test_a_calibrated_sample_has_no_history():
    p = np.repeat([0.2, 0.3, 0.7], 10)
    y = np.concatenate([np.repeat([1.0, 0.0], (k, 10 - k)) for k in (2, 3, 7)])
    for alpha in (0.0, 1e-4):
        patching = Patching(alpha).fit(p, y)
        assert patching.history() == []
        assert patching.history_.shape == (0, 5)
        assert_array_equal(patching.predict(p), p)
        assert streamcal.from_bytes(patching.to_bytes()).history() == []


def test_a_mean_that_is_off_by_rounding_is_no_reason_to_patch():
    rng = np.random.default_rng(0)
    p = rng.integers(1, 10, 500) / 10
    patching = Patching(0.0).fit(p, p, rng.random(500))
    assert 0.0 < patching.k2_before_ < 1e-30
    assert not len(patching.history_)
    assert patching.floor_reached_


def test_half_way_between_two_levels_of_a_grid_is_the_lower_one():
    for m in (10, 29, 49):
        for k in range(1, m):
            one = OneShotPatching(levels=m).fit([(k - 1) / m, (k + 1) / m], [0, 1])
            assert one.predict(k / m) == 0.0


def test_a_level_can_go_on_with_the_level_it_joined():
    """.25 joins .5, both go to .75 where .75 has left for 1: what sits at a value later does not follow who left it."""
    p = np.repeat([0.25, 0.5, 0.75], (4, 4, 4))
    y = np.concatenate([[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]).astype(float)
    patching = Patching(0.0).fit(p, y)
    assert [(h.level, h.value) for h in patching.history()] == [(0.5, 1.0), (0.25, 0.5), (0.75, 1.0)]
    assert_array_equal(patching.predict([0.25, 0.5, 0.75]), [0.5, 1.0, 1.0])
    p = np.repeat([0.25, 0.5], (40, 4))
    y = np.concatenate([np.repeat([1.0, 0.0], 20), [1.0, 1.0, 1.0, 1.0]])
    patching = Patching(0.0).fit(p, y)
    assert [(h.level, h.value, h.mass) for h in patching.history()] == [
        (0.25, 0.5, pytest.approx(40 / 44)),
        (0.5, 24 / 44, 1.0),
    ]
    assert_array_equal(patching.predict([0.25, 0.5]), [24 / 44] * 2)


def test_unseen_scores_go_with_the_nearest_level_of_the_sample():
    patching = Patching().fit([0.25, 0.25, 0.75, 0.75], [0, 0, 1, 1])
    assert_array_equal(patching.predict([0.0, 0.5, np.nextafter(0.5, 1), 1.0]), [0.0, 0.0, 1.0, 1.0])
    grid = Patching(0.0025, levels=10).fit([0.1, 0.1, 0.6, 0.6], [0, 0, 1, 1])
    assert_array_equal(grid.values_, [0.1, 0.6])
    assert_array_equal(grid.predict([0.34, 0.36, 1.0]), [0.0, 1.0, 1.0])  # .34 is level .3, .36 is level .4
    halves = Patching(0.0025, levels=10).fit([0.2, 0.4], [0, 1])
    assert halves.predict(0.3) == 0.0


def test_one_level_and_one_event():
    assert Patching().fit([0.4], [1]).predict([0.0, 1.0]).tolist() == [1.0, 1.0]
    assert Patching(0.25, levels=1).fit([0.5], [1]).predict([0.0, 1.0]).tolist() == [1.0, 1.0]


def test_bins_of_a_window_can_be_learned_from():
    window = streamcal.Cumulative(streamcal.Grid(10))
    window.update_many([0.1] * 10 + [0.8] * 10, [1] * 4 + [0] * 6 + [1] * 8 + [0] * 2)
    patching = Patching().fit_snapshot(window.snapshot())
    assert_allclose(patching.predict([0.1, 0.8]), [0.4, 0.8])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Patching(1e-4, levels=10), r"alpha must be at least 1 / \(4 \* levels\^2\) = 0.0025, got 0.0001"),
        (lambda: Patching(alpha=-0.1), "alpha must lie in"),
        (lambda: Patching(alpha=math.nan), "alpha must lie in"),
        (lambda: Patching(alpha="small"), "alpha must lie in"),
        (lambda: Patching(levels=0), "levels must be a whole number"),
        (lambda: Patching(levels=2.5), "levels must be a whole number"),
        (lambda: OneShotPatching(levels=0), "levels must be a whole number"),
        (lambda: Patching(significance=0.0), "significance must lie in"),
        (lambda: Patching().fit([0.5, math.nan], [0, 1]), "p must lie in .* index 1"),
        (lambda: Patching().fit([0.5, 0.5], [0, math.nan]), "y must lie in .* index 1"),
        (lambda: Patching().fit([], []), "at least one event"),
        (lambda: Patching().predict([0.5]), "not fitted"),
        (lambda: QuantilePatching(1.0), "level must lie in"),
        (lambda: QuantilePatching(0.5, alpha=2.0), "alpha must lie in"),
        (lambda: QuantilePatching(0.5, levels=[0.0, math.inf]), "values must be finite"),
        (
            lambda: QuantilePatching(0.5).fit([1.0, math.nan], [0, 1]),
            "v must be finite and within .*, got nan at index 1",
        ),
        (
            lambda: QuantilePatching(0.5).fit([1.0, 2.0], [0, math.inf]),
            "y must be finite and within .*, got inf at index 1",
        ),
        (lambda: QuantilePatching(0.5).fit([1.0, 2.0], [0, 1], [1, -1]), "sample_weight must lie in .* index 1"),
        (lambda: QuantilePatching(0.5).fit([1.0, 2.0], [0]), "v and y must both have shape"),
        (lambda: QuantilePatching(0.5).fit([1.0], [0], [0]), "at least one event"),
        (lambda: QuantilePatching(0.5).predict([0.5]), "not fitted"),
        (lambda: QuantilePatching(0.5).fit([1.0], [0]).predict([math.nan]), "v must be finite"),
    ],
)
def test_refusals_say_what_is_allowed(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_alpha_at_the_floor_is_allowed():
    for m in (1, 2, 10, 50, 1000):
        assert Patching(1 / (4 * m**2), levels=m).levels == m


@pytest.mark.jit
def test_many_levels_do_not_hang():
    """1e5 distinct predictions: nearly one patch each, found by a tournament, not by looking at all levels each time."""
    rng = np.random.default_rng(0)
    p = rng.random(100_000)
    y = (rng.random(p.size) < p**2).astype(float)
    patching = Patching().fit(p, y)
    assert patching.k2_after_ <= 1e-4
    assert 50_000 < len(patching.history_) <= 100_000
    assert np.diff(patching.history_[:, 4]).max() <= 0.0
    quantile = QuantilePatching(0.9, levels=np.linspace(0, 1, 1000)).fit(p, p + rng.random(p.size))
    assert quantile.q2_after_ <= quantile.q2_before_


@pytest.mark.jit
def test_many_levels_that_all_join_one_do_not_hang():
    """50,000 levels are patched to a level that is patched last: it is weighed again when it is on top, not each time."""
    rng = np.random.default_rng(1)
    v = np.concatenate([np.ones(50_000), 2.0 + np.arange(50_000)])
    y = np.concatenate([rng.random(50_000) * 1.2, np.ones(50_000)])
    patching = QuantilePatching(0.9).fit(v, y)
    assert len(patching.history_) == 50_000
    assert set(patching.predict(v).tolist()) == {1.0}  # its own .83 at or below 1 became .92


# ---------------------------------------------------------------------------- quantiles

reals = st.sampled_from([k / 2 for k in range(-4, 8)])
quantile_levels = st.sampled_from((0.05, 0.1, 0.25, 0.5, 0.7, 0.9, 0.95))
real_samples = samples(
    st.one_of(reals, st.floats(-3, 3)), st.one_of(reals, st.floats(-3, 3)), st.sampled_from((1.0, 2.0, 3.0))
)


def q2_and_pinball(v, y, w, q):
    total = w.sum()
    q2 = sum(w[v == a].sum() * (w[(v == a) & (y <= a)].sum() / w[v == a].sum() - q) ** 2 for a in set(v.tolist()))
    return q2 / total, math.fsum(w * np.where(y >= v, q * (y - v), (1 - q) * (v - y))) / total


def quantile_textbook(v, y, w, q, alpha):
    """The loop in plain Python: (patches, final forecasts)."""
    steps = []
    while q2_and_pinball(v, y, w, q)[0] > alpha:
        choices = []
        for a in sorted(set(v.tolist())):
            at = v == a
            n = w[at].sum()
            to = next(b for b in sorted(y[at].tolist()) if w[at & (y <= b)].sum() / n >= q)
            loss = [np.sum(w[at] * np.where(y[at] >= b, q * (y[at] - b), (1 - q) * (b - y[at]))) for b in (a, to)]
            choices.append((loss[0] - loss[1], -a, a, to))
        gain, _, a, to = max(choices)
        if gain <= 1e-12:
            break
        steps.append((a, to))
        v = np.where(v == a, to, v)
    return steps, v


@given(real_samples, quantile_levels, alphas)
def test_quantile_patches_lower_the_pinball_loss_by_what_they_say(sample, q, alpha):
    v, y, w = sample
    patching = QuantilePatching(q, alpha).fit(v, y, w)
    states = [q2_and_pinball(f, y, w, q) for f in replay(patching, v)]
    assert_allclose(states[0][0], patching.q2_before_, atol=1e-12)
    assert_allclose(states[-1][0], patching.q2_after_, atol=1e-12)
    for patch, before, after in zip(patching.history(), states, states[1:]):
        assert patch.decrease >= 0.0
        assert_allclose(before[1] - after[1], patch.decrease, atol=1e-12)
        assert_allclose(after[0], patch.q2_after, atol=1e-12)
        assert patch.value in y
    *_, last = replay(patching, v)
    assert_array_equal(patching.predict(v), last)
    assert len(patching.history_) <= len(patching.values_)
    assert patching.floor_reached_ == (patching.q2_after_ > alpha)


@given(real_samples, quantile_levels)
def test_quantile_patching_to_the_end_leaves_only_quantiles(sample, q):
    """However large the atoms: in the end every forecast is a q-quantile of the outcomes where it is made."""
    v, y, w = sample
    out = QuantilePatching(q, 0.0).fit(v, y, w).predict(v)
    for a in set(out.tolist()):
        at = out == a
        n = w[at].sum()
        assert w[at & (y < a)].sum() / n <= q <= w[at & (y <= a)].sum() / n


@pytest.mark.parametrize("seed", range(8))
def test_the_fast_quantile_loop_takes_the_textbook_steps(seed):
    rng = np.random.default_rng(seed)
    v = rng.integers(0, 12, 200) * 1.0
    y = np.where(rng.random(200) < 0.5, rng.integers(0, 12, 200), v + rng.normal(0, 2, 200))  # ties, and merges
    w = rng.random(200)
    q = rng.choice([0.1, 0.5, 0.9])
    steps, final = quantile_textbook(v, y, w, q, 1e-6)
    patching = QuantilePatching(q, 1e-6).fit(v, y, w)
    assert [(a, b) for a, b, *_ in patching.history()] == steps
    assert_array_equal(patching.predict(v), final)


@given(st.integers(2, 60), st.integers(1, 59), st.integers(0, 59), st.floats(0.1, 10.0), st.floats(-5, 5))
def test_the_pinball_bound_is_reached_by_uniform_outcomes(n, k, j, width, start):
    """P(v) delta^2 / (2 rho), for outcomes at the midpoints of n equal cells: uniform with density rho = 1 / width."""
    k, j = min(k, n - 1), min(j, n)
    q, v = k / n, start + width * j / n
    y = start + width * (np.arange(n) + 0.5) / n
    patching = QuantilePatching(q, 0.0).fit(np.full(n, v), y)
    delta = abs(np.mean(y <= v) - q)
    bound = delta**2 * width / 2
    assert len(patching.history_) == (delta > 0)
    for patch in patching.history():
        assert patch.decrease >= bound * (1 - 1e-9)
        assert patch.decrease <= bound * (1 + 1e-9)


def test_a_gain_below_rounding_still_mends_the_level():
    """Of [-2, 0] every value is a quantile, 1e-200 is not: the loss gained is lost in rounding, the gap of .75 is not."""
    patching = QuantilePatching(0.25, 1e-4).fit([1e-200] * 4, [-2.0, 0.0, 0.0, 0.0])
    assert [(h.level, h.value) for h in patching.history()] == [(1e-200, -2.0)]
    assert patching.q2_after_ == 0.0


def test_an_atom_ends_the_loop_above_alpha():
    patching = QuantilePatching(0.5, 1e-4).fit([1.0] * 10, [0.0] * 8 + [1.0, 2.0])
    assert [(h.level, h.value) for h in patching.history()] == [(1.0, 0.0)]
    assert patching.floor_reached_
    assert_allclose(patching.q2_after_, 0.09)  # P(y <= 0) is .8


def test_the_quantile_of_seven_in_a_hundred():
    """.07 * 100 > 7 in floating point; 7 / 100 >= .07."""
    patching = QuantilePatching(0.07, 0.0).fit(np.full(100, 99.0), np.arange(1.0, 101.0))
    assert patching.predict(99.0) == 7.0
    assert patching.q2_after_ == 0.0


def test_declared_levels_of_quantile_forecasts():
    rng = np.random.default_rng(0)
    v = rng.normal(size=5000)
    y = v + 1.0 + rng.normal(size=5000)
    patching = QuantilePatching(0.8, 1e-4, levels=np.linspace(-2, 2, 9)).fit(v, y)
    assert len(patching.values_) == 9
    assert abs(np.mean(y <= patching.predict(v)) - 0.8) < 0.02
    assert patching.q2_after_ <= 1e-4 < patching.q2_before_


def test_quantile_state_round_trip():
    for levels in (None, [0.0, 1.0, 2.0]):
        made = QuantilePatching(0.9, 0.001, levels=levels)
        assert repr(streamcal.from_bytes(made.to_bytes())) == repr(made)
        made.fit([0.1, 1.2, 1.9, 0.3], [1.0, 2.0, 1.0, 0.0])
        for other in (QuantilePatching.from_bytes(made.to_bytes()), pickle.loads(pickle.dumps(made))):
            assert other.to_bytes() == made.to_bytes()
            assert other.history() == made.history()
            assert_array_equal(other.predict([[0.0, 1.0]]), made.predict([[0.0, 1.0]]))


@given(real_samples, quantile_levels)
def test_quantile_weights_are_repetition(sample, q):
    v, y, w = sample
    r = w.astype(int)
    a, b = QuantilePatching(q).fit(v, y, w), QuantilePatching(q).fit(np.repeat(v, r), np.repeat(y, r))
    assert_allclose(a.q2_before_, b.q2_before_, atol=1e-12)
    assert a.values_.tolist() == b.values_.tolist()


def test_nearest_takes_the_lower_of_two_and_the_only_one():
    assert nearest(np.array([3.0]), np.array([-1.0, 9.0])).tolist() == [0, 0]
    assert nearest(np.array([0.0, 1.0, 4.0]), np.array([0.5, 2.5, 2.6])).tolist() == [0, 1, 2]


def test_the_default_alpha_follows_the_grid():
    assert Patching().alpha == Patching(levels=100).alpha == 1e-4
    assert Patching(levels=10).alpha == 1 / 400


@pytest.mark.parametrize("made", [Patching(), OneShotPatching()])
def test_levels_of_few_events_warn(made):
    p = np.linspace(0.01, 0.99, 200)
    with pytest.warns(CalibrationWarning, match="200 levels hold 1 events each on average"):
        made.fit(p, p > 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.fit(np.repeat(p, 10), np.repeat(p > 0.5, 10))
        made.fit(p, p > 0.5, np.full(200, 10))
        Patching(significance=0.05).fit(p, p > 0.5)


def test_the_order_of_events_does_not_decide_whether_a_level_is_met():
    """The mean of 1, .6, 0, .8, .1 is .5 or .5000000000000001."""
    p, y = [0.1] * 5 + [0.5] * 5, [1.0, 0.6, 0.0, 0.8, 0.1]
    found = {
        tuple(Patching(alpha=1e-3).fit(p, [*order, *[0.9] * 5]).predict([0.1, 0.5]).round(9).tolist())
        for order in itertools.permutations(y)
    }
    assert found == {(0.7, 0.7)}


@pytest.mark.parametrize(("p", "m"), [(0.0501, 10), (0.0252, 20)])
def test_significance_on_a_grid_does_not_take_rounding_for_a_gap(p, m):
    """A calibrated forecast near the edge of a cell: its level is off by half a step, and that is no evidence."""
    rng, n = np.random.default_rng(0), sized(20_000, 2_000)
    fits = [Patching(levels=m, significance=0.05).fit(np.full(n, p), rng.random(n) < p) for _ in range(60)]
    assert sum(len(one.history_) for one in fits) <= 3 + 3 * math.sqrt(3)


@pytest.mark.parametrize("w", [0.1, 1 / 3, 0.7])
@pytest.mark.parametrize("q", np.arange(1, 20) / 20)
def test_equal_fractional_weights_give_the_plain_quantile(q, w):
    plain = QuantilePatching(q, 0.0).fit([-5.0] * 20, range(20)).predict([-5.0])
    assert QuantilePatching(q, 0.0).fit([-5.0] * 20, range(20), [w] * 20).predict([-5.0]) == plain


def test_quantiles_too_large_to_sum_are_refused():
    with pytest.raises(ValueError, match=r"within \+-1e\+200"):
        QuantilePatching(0.5).fit([1e308], [-1e308])
