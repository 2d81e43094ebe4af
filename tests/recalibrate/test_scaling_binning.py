"""Scaling-binning: the three steps in plain Python, and what its theory promises, seeded."""

from __future__ import annotations

import math
import warnings

import naive
import numpy as np
import pytest
import strategies as sts
from hypothesis import given
from hypothesis import strategies as st

from streamcal import CalibrationWarning, Cumulative, Levels, LogOdds, UniformMass, from_bytes, k2
from streamcal.logistic import logit, sigmoid
from streamcal.recalibrate.histogram import HistogramBinning
from streamcal.recalibrate.platt import PlattScaling
from streamcal.recalibrate.scaling_binning import ScalingBinning, logit_of_mean

pytestmark = pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")
SAMPLES = st.lists(st.tuples(st.floats(0.01, 0.99), sts.binary), min_size=1, max_size=40)
SLOPE, INTERCEPT = 0.6, 0.4


def truth(p):
    return sigmoid(SLOPE * logit(p) + INTERCEPT)


def draw(n: int, rng) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes whose chance is in Platt's family."""
    p = rng.random(n)
    return p, (rng.random(n) < truth(p)).astype(float)


# ------------------------------------------------------------------------------ the three steps


def naive_output(z: list[float], n_bins: int, at: float) -> float:
    """Bins of equal mass on the outputs sigmoid(z); the mean output of the bin of ``at``."""
    g = [naive.sigmoid(v) for v in z]
    inner = [e for e in naive.mass_edges(g, n_bins) if e < 1.0]
    bin = naive.mass_bin(naive.sigmoid(at), inner)
    held = [v for v in g if naive.mass_bin(v, inner) == bin]
    edges = [0.0, *inner, 1.0]
    return math.fsum(held) / len(held) if held else (edges[bin] + edges[bin + 1]) / 2


@given(SAMPLES, st.integers(1, 12))
def test_equals_the_three_steps_on_the_sample(events, n_bins):
    p, y = map(np.array, zip(*events))
    fitted = ScalingBinning(n_bins).fit(p, y)
    scaling = PlattScaling().fit(p, y)
    assert (fitted.slope_, fitted.intercept_) == (scaling.slope_, scaling.intercept_)
    z = (fitted.slope_ * logit(p) + fitted.intercept_).tolist()
    if len({naive.sigmoid(v) for v in z}) == len(set(z)):  # else the logit still parts what the outputs tie
        np.testing.assert_allclose(fitted.predict(p), [naive_output(z, n_bins, v) for v in z], rtol=0, atol=1e-12)


def test_the_level_of_a_bin_averages_outputs_not_outcomes():
    rng = np.random.default_rng(0)
    p, y = draw(500, rng)
    fitted = ScalingBinning(10).fit(p, y)
    outputs = PlattScaling().fit(p, y).predict(p)
    bins = np.searchsorted(fitted.edges_, logit(outputs), "left") - 1
    assert fitted.levels_ == pytest.approx([outputs[bins == r].mean() for r in range(10)], abs=1e-9)
    assert np.abs(fitted.levels_ - [y[bins == r].mean() for r in range(10)]).max() > 0.03
    assert np.bincount(bins).tolist() == [50] * 10


@given(st.lists(st.tuples(st.floats(0.01, 0.99), sts.binary, st.integers(1, 3)), min_size=1, max_size=20))
def test_a_weight_is_that_many_copies(events):
    p, y, w = map(np.array, zip(*events))
    at = np.linspace(0.01, 0.99, 15)
    weighted, copied = ScalingBinning(4).fit(p, y, w), ScalingBinning(4).fit(np.repeat(p, w), np.repeat(y, w))
    assert weighted.edges_.size == copied.edges_.size
    near = np.abs(logit(weighted.predict(at)) - logit(copied.predict(at))) < 1e-6
    assert near.mean() > 0.8  # a query on an edge may fall to either side


def test_the_split_takes_three_parts_of_a_shuffle():
    rng = np.random.default_rng(1)
    p, y = draw(301, rng)
    fitted = ScalingBinning(4, split=True, seed=5).fit(p, y)
    order = np.random.default_rng(5).permutation(301)
    one, two, three = order[:101], order[101:201], order[201:]
    scaling = PlattScaling().fit(p[one], y[one])
    assert (fitted.slope_, fitted.intercept_) == (scaling.slope_, scaling.intercept_)
    bins = [np.searchsorted(fitted.edges_, logit(scaling.predict(p[part])), "left") - 1 for part in (two, three)]
    assert np.bincount(bins[0]).tolist() == [25] * 4
    assert fitted.levels_ == pytest.approx([scaling.predict(p[three])[bins[1] == r].mean() for r in range(4)])
    assert ScalingBinning(4, split=True, seed=5).fit(p, y).to_bytes() == fitted.to_bytes()
    assert ScalingBinning(4, split=True, seed=6).fit(p, y).levels_.tolist() != fitted.levels_.tolist()


def test_the_split_needs_three_events_and_not_a_snapshot():
    with pytest.raises(ValueError, match="at least 3"):
        ScalingBinning(2, split=True).fit([0.1, 0.2], [0, 1])
    window = Cumulative(UniformMass(15))
    window.update_many([0.1, 0.4, 0.8], [0, 1, 1])
    with pytest.raises(ValueError, match="split=True needs the events"):
        ScalingBinning(2, split=True).fit_snapshot(window.snapshot())


def test_saturated_outputs_do_not_tie():
    """A sample that a threshold parts: the hard fit's outputs are 0 and 1, its bins still have equal mass."""
    p = np.concatenate([np.linspace(0.1, 0.4, 50), np.linspace(0.6, 0.9, 50)])
    fitted = ScalingBinning(10, targets="hard").fit(p, p > 0.5)
    z = fitted.slope_ * logit(p) + fitted.intercept_
    assert len(np.unique(sigmoid(z))) < 80
    assert np.histogram(z, fitted.edges_)[0].tolist() == [10] * 10
    assert fitted.well_balanced_


@given(st.floats(-700, 700), st.floats(0, 700))
def test_logit_of_mean_is_between(low, width):
    high = low + width
    middle = float(logit_of_mean(np.array(low), np.array(high)))
    assert low - 1e-9 <= middle <= high + 1e-9
    if abs(low) < 30 and abs(high) < 30:
        mean = (naive.sigmoid(low) + naive.sigmoid(high)) / 2
        assert naive.sigmoid(middle) == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("score", [0.0, 0.3, 1.0])
def test_constant_scores_give_the_smoothed_base_rate(score):
    fitted = ScalingBinning(5).fit([score] * 40, [1, 0, 0, 0] * 10)
    assert fitted.predict([0.0, 0.3, 1.0]) == pytest.approx([10 / 40 * 11 / 12 + 30 / 40 / 32] * 3)
    assert not fitted.well_balanced_


@pytest.mark.parametrize("arguments", [{"n_bins": 0}, {"targets": "soft"}, {"seed": -1}, {"n_bins": 1.5}])
def test_wrong_settings_are_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        ScalingBinning(**arguments)


# ------------------------------------------------------------------------------ balance


@pytest.mark.parametrize("n, warns", [(184, True), (185, False)])
def test_too_few_events_for_the_bins_warn(n, warns):
    """n < 4 B ln(10 B) = 184.2 for 10 bins."""
    p, y = draw(n, np.random.default_rng(2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = ScalingBinning(10).fit(p, y)
    assert [w.category for w in caught] == [CalibrationWarning] * warns
    assert not caught or ("185" in str(caught[0].message) and caught[0].filename == __file__)
    assert fitted.well_balanced_ is True


def test_ties_unbalance_the_bins():
    p, y = draw(1000, np.random.default_rng(3))
    assert ScalingBinning(10).fit(p, y).well_balanced_ is True
    p[:400] = 0.3
    fitted = ScalingBinning(10).fit(p, y)
    assert fitted.well_balanced_ is False
    assert from_bytes(fitted.to_bytes()).well_balanced_ is False


@pytest.mark.jit
@pytest.mark.parametrize("n_bins", [5, 10, 20])
def test_uniform_mass_bins_are_two_well_balanced_in_the_population(n_bins):
    """Kumar, Liang, Ma 2019: n = c B ln(10 B) does it with probability .9; measured c = 4 gives .97, c = 1 less than .6."""
    rng = np.random.default_rng(4)

    def balanced(c: float) -> float:
        n, hits = math.ceil(c * n_bins * math.log(10 * n_bins)), 0
        for _ in range(300):
            p = rng.random(n)
            mass = np.diff(HistogramBinning(n_bins).fit(p, p).edges_)
            hits += bool(((mass >= 0.5 / n_bins) & (mass <= 2 / n_bins)).all())
        return hits / 300

    assert balanced(4) >= 0.93
    assert balanced(1) <= 0.7


# ------------------------------------------------------------------------------ calibration error


POPULATION = (np.arange(4000) + 0.5) / 4000


def population_error(fitted) -> float:
    """Mean squared gap, by bin, between a bin's level and its mean truth on uniform scores."""
    scores = fitted._scaled(POPULATION) if isinstance(fitted, ScalingBinning) else POPULATION
    bin = np.searchsorted(fitted.edges_, scores, "left") - 1
    count = np.bincount(bin, minlength=fitted.levels_.size)
    mean = np.bincount(bin, truth(POPULATION), fitted.levels_.size) / np.maximum(count, 1)
    return float((count / count.sum() * (mean - fitted.levels_) ** 2).sum())


def mean_errors(maps, n: int, repeats: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.mean(
        [[population_error(m.fit(p, y)) for m in maps] for p, y in (draw(n, rng) for _ in range(repeats))], 0
    )


@pytest.mark.statistical
@pytest.mark.jit
def test_more_bins_cost_histogram_binning_but_not_scaling_binning():
    """5 -> 20 bins: about 4 times the squared error against about none; both halve when n doubles."""
    maps = [m(b) for m in (HistogramBinning, ScalingBinning) for b in (5, 20)]
    maps += [ScalingBinning(b, split=True) for b in (5, 20)]
    at_2000 = mean_errors(maps, 2000, 250, 5)
    histogram, reused, split = at_2000[1::2] / at_2000[::2]
    assert 3.2 <= histogram <= 4.6
    assert 0.9 <= reused <= 1.15
    assert 0.9 <= split <= 1.15
    assert at_2000[3] < at_2000[5] / 1.5  # all events in all steps: lower than the split
    assert at_2000[3] < at_2000[1] / 3
    at_1000 = mean_errors(maps[:4], 1000, 250, 6)
    assert ((at_1000 / at_2000[:4] >= 1.6) & (at_1000 / at_2000[:4] <= 2.5)).all()


@pytest.mark.statistical
@pytest.mark.jit
def test_platt_targets_keep_the_levels_away_from_zero_and_one():
    rng = np.random.default_rng(7)
    p, y = draw(1000, rng)
    with_hard = ScalingBinning(100, targets="hard").fit(p, y)
    assert ((with_hard.levels_ > 0) & (with_hard.levels_ < 1)).all()
    assert population_error(with_hard) < population_error(HistogramBinning(100).fit(p, y)) / 5


def test_calibration_error_is_k2_by_output_value():
    rng = np.random.default_rng(8)
    fitted = ScalingBinning(10).fit(*draw(500, rng))
    p, y = draw(3000, rng)
    error = fitted.calibration_error(p, y)
    out = fitted.predict(p)
    assert error.plug_in == pytest.approx(k2(out, y), abs=1e-12)
    assert error.debiased == pytest.approx(k2(out, y, debias=True), abs=1e-12)
    held = [(v, y[out == v]) for v in np.unique(out)]
    by_hand = sum(len(s) / 3000 * ((s.mean() - v) ** 2 - s.mean() * (1 - s.mean()) / (len(s) - 1)) for v, s in held)
    assert error.debiased == pytest.approx(by_hand, abs=1e-12)
    assert error.low < error.debiased < error.high
    narrow = fitted.calibration_error(p, y, level=0.5)
    assert error.low < narrow.low < narrow.high < error.high


def test_calibration_error_reads_weights_as_copies():
    rng = np.random.default_rng(9)
    fitted = ScalingBinning(3).fit(*draw(300, rng))
    p, y = draw(200, rng)
    w = rng.integers(0, 3, 200)
    weighted = fitted.calibration_error(p, y, w)
    assert weighted.plug_in == pytest.approx(fitted.calibration_error(np.repeat(p, w), np.repeat(y, w)).plug_in)


def test_calibration_error_needs_a_fit_and_repeated_outputs():
    with pytest.raises(ValueError, match="not fitted"):
        ScalingBinning().calibration_error([0.5], [1])
    fitted = ScalingBinning(2).fit([0.1, 0.2, 0.8, 0.9], [0, 1, 0, 1])
    error = fitted.calibration_error([0.1, 0.9], [0, 1])
    assert error.plug_in > 0
    assert math.isnan(error.debiased) and math.isnan(error.low)


@pytest.mark.statistical
@pytest.mark.jit
def test_the_debiased_error_is_unbiased_and_the_plug_in_is_not():
    """The truth of a fitted map is known here; B = 50 bins read from 1000 events at a time."""
    rng = np.random.default_rng(10)
    fitted = ScalingBinning(50).fit(*draw(3000, rng))
    bins = np.searchsorted(fitted.edges_, fitted._scaled(POPULATION), "left")
    assert len(set(fitted.levels_)) == 50  # by bin is by value
    exact = population_error(fitted)
    errors = [fitted.calibration_error(*draw(1000, rng)) for _ in range(200)]
    plug_in, debiased, low, high = np.array(errors).T
    assert abs(debiased.mean() - exact) < 4 * debiased.std() / math.sqrt(200)
    bias = (np.bincount(bins, truth(POPULATION) * (1 - truth(POPULATION))) / POPULATION.size).sum() * 50 / 1000
    assert plug_in.mean() - exact == pytest.approx(bias, rel=0.15)
    assert plug_in.mean() > 10 * exact
    assert ((low <= exact) & (exact <= high)).mean() >= 0.9


# ------------------------------------------------------------------------------ from a snapshot


@given(st.lists(st.tuples(sts.ties, sts.binary), min_size=1, max_size=40), st.integers(1, 8))
def test_exact_on_a_snapshot_that_holds_the_scores(events, n_bins):
    p, y = map(np.array, zip(*events))
    window = Cumulative(Levels([0.1, 0.25, 0.3, 0.6, 0.9]))
    window.update_many(p, y)
    got, want = ScalingBinning(n_bins).fit_snapshot(window.snapshot()), ScalingBinning(n_bins).fit(p, y)
    np.testing.assert_allclose(got.predict(p), want.predict(p), rtol=0, atol=1e-9)


@pytest.mark.jit
@pytest.mark.parametrize("binning, bound", [(UniformMass(15), 0.006), (LogOdds(15), 0.012)])
def test_near_the_exact_fit_on_a_fine_grid(binning, bound):
    p, y = draw(20_000, np.random.default_rng(11))
    window = Cumulative(binning)
    window.update_many(p, y)
    got, want = ScalingBinning().fit_snapshot(window.snapshot()), ScalingBinning().fit(p, y)
    assert np.abs(got.levels_ - want.levels_).max() < bound
    assert (np.abs(got.predict(p) - want.predict(p)) > 2 * bound).mean() < 0.06
    brier_got, brier_want = (((m.predict(p) - y) ** 2).mean() for m in (got, want))
    assert brier_got == pytest.approx(brier_want, abs=4e-4)


def test_split_is_a_switch_not_a_fraction():
    with pytest.raises(ValueError, match="split must be True or False, got 0.5"):
        ScalingBinning(split=0.5)
