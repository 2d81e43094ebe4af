"""Arrays in, numbers out: the bin rule, the inputs people really have, errors that name the place."""

from __future__ import annotations

import inspect
import json
import math
import warnings
from fractions import Fraction

import naive
import numpy as np
import pytest
import strategies as sts
from hypothesis import given
from hypothesis import strategies as st

import streamcal
from streamcal import (
    Cumulative,
    Edges,
    EqualWidth,
    Grid,
    Levels,
    LogOdds,
    UniformMass,
    bin_index,
    brier,
    calibration_intercept,
    calibration_slope,
    ece,
    k1,
    k2,
    kinf,
    l2_ce,
    log_loss,
    marginal_ce,
    mce,
    murphy,
    oe_ratio,
    pa_ratio,
    pinball_loss,
    q1,
    q2,
    qinf,
    reliability,
    spiegelhalter_z,
    top_label,
)

CONF, CORRECT = [0.95, 0.90, 0.85, 0.60, 0.55, 0.30], [1, 0, 1, 1, 0, 0]
WARNING = streamcal.CalibrationWarning

# ------------------------------------------------------------------------------ the example


def test_ece_of_the_example():
    assert ece(CONF, CORRECT, 5) == pytest.approx(23 / 120, abs=1e-15)
    assert isinstance(ece(CONF, CORRECT, 5), float)


def test_reliability_of_the_example():
    count, accuracy, confidence = reliability(CONF, CORRECT, 5)
    np.testing.assert_array_equal(count, [0, 1, 2, 0, 3])
    np.testing.assert_allclose(accuracy, [0, 0, 0.5, 0, 2 / 3], rtol=1e-15)
    np.testing.assert_allclose(confidence, [0, 0.3, 0.575, 0, 0.9], rtol=1e-15)


def test_bin_index_of_the_example():
    np.testing.assert_array_equal(bin_index([0.1, 0.6, 1.0, 0.0], 10), [0, 5, 9, 0])


def test_ece_has_15_bins_by_default():
    assert ece(CONF, CORRECT) == ece(CONF, CORRECT, 15) == ece(CONF, CORRECT, n_bins=15)


# ------------------------------------------------------------------------------ the bin rule


@pytest.mark.parametrize("block", range(10))
def test_bins_at_every_edge_and_both_its_neighbours(block):
    """Edge k/M ends bin k - 1: so does the float below it; the float above it starts bin k."""
    for m in range(block * 100 + 1, block * 100 + 101):
        edge = np.arange(m + 1) / m
        own = np.maximum(np.arange(m + 1) - 1, 0)
        probe = np.concatenate((edge, np.nextafter(edge[1:], 0), np.nextafter(edge[:-1], 1)))
        want = np.concatenate((own, own[1:], np.arange(m)))
        np.testing.assert_array_equal(bin_index(probe, m), want, err_msg=f"M = {m}")


@given(c=sts.probabilities, m=st.integers(1, 1000))
def test_bins_against_exact_arithmetic(c, m):
    want = naive.width_bin(c, m)
    assert bin_index([c], m)[0] == want
    assert EqualWidth(m).bins([c])[0] == want


def test_the_edges_are_the_float_quotients():
    for m in (*range(1, 60), 100, 997, 1000):
        np.testing.assert_array_equal(EqualWidth(m).edges, [k / m for k in range(m + 1)])


@given(c=sts.probabilities, m=st.integers(1, 100))
def test_every_door_uses_the_same_bin(c, m):
    want = naive.width_bin(c, m)
    count, _, _ = reliability([c], [1], m)
    one, many = Cumulative(EqualWidth(m)), Cumulative(EqualWidth(m))
    one.update(c, 1.0)
    many.update_many([c], [1.0])
    for counts in (count, one.snapshot().count[0], many.snapshot().count[0]):
        assert list(np.flatnonzero(counts)) == [want]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("m", [10, 15, 25, 29, 41, 50, 100])
def test_narrow_floats_are_the_same_real_number(dtype, m):
    edge = (np.arange(m + 1) / m).astype(dtype)
    c = np.concatenate((edge, np.nextafter(edge, dtype(0)), np.nextafter(edge, dtype(1))))
    want = [naive.width_bin(float(x), m) for x in c]
    np.testing.assert_array_equal(bin_index(c, m), want)
    np.testing.assert_array_equal(bin_index(c.tolist(), m), want)
    np.testing.assert_array_equal(bin_index(json.loads(json.dumps(c.tolist())), m), want)
    np.testing.assert_array_equal(EqualWidth(m).bins(c), want)
    window = Cumulative(EqualWidth(m))
    for x in c:
        window.update(x, 1)
    np.testing.assert_array_equal(window.snapshot().count[0], np.bincount(want, minlength=m))


def assert_nearest(c, bins, levels):
    """The nearest level in exact arithmetic; within rounding of half-way either neighbour will do."""
    for x, bin in zip(c, bins, strict=True):
        far = [abs(Fraction(x) - Fraction(v)) for v in levels]
        assert far[bin] <= min(far) + Fraction(1, 2**53), (x, bin)


@given(c=st.lists(sts.probabilities, min_size=1, max_size=20))
def test_levels_take_the_nearest(c):
    levels = [0.1, 0.25, 0.3, math.nextafter(0.3, 1), 0.9]
    assert_nearest(c, Levels(levels).bins(c), levels)
    np.testing.assert_array_equal(Levels(levels).bins(levels), range(5))
    np.testing.assert_array_equal(Levels([0.25, 0.75]).bins([-7.0, 0.5, 0.51, 7.0]), [0, 0, 1, 1])


@given(c=st.lists(sts.probabilities, min_size=1, max_size=20), m=st.sampled_from((1, 2, 3, 10, 29)))
def test_grid_takes_the_nearest_level(c, m):
    levels = [Fraction(k, m) for k in range(m + 1)]
    assert_nearest(c, Grid(m).bins(c), levels)
    np.testing.assert_array_equal(Grid(m).bins([k / m for k in range(m + 1)]), range(m + 1))
    halves = [(2 * k + 1) / (2 * m) for k in range(m)]
    np.testing.assert_array_equal(Grid(m).bins(halves), range(m))  # a tie goes down


@given(c=st.lists(st.floats(-3, 3), min_size=1, max_size=20))
def test_edges_hold_their_upper_end_and_nothing_outside(c):
    edges = [-2.0, -0.5, 0.0, 1.0]
    c = c + edges + [math.nan]
    np.testing.assert_array_equal(Edges(edges).bins(c), [naive.edge_bin(x, edges) for x in c])


# ------------------------------------------------------------------------------ binnings


@pytest.mark.parametrize(
    "make",
    [
        lambda: EqualWidth(0),
        lambda: EqualWidth(-1),
        lambda: EqualWidth(2.5),
        lambda: UniformMass(0),
        lambda: LogOdds(-3),
        lambda: Levels([]),
        lambda: Levels([0.1, math.nan]),
        lambda: Grid(0),
        lambda: Edges([0.5]),
        lambda: Edges([0.0, 0.5, 0.5, 1.0]),
        lambda: Edges([1.0, 0.0]),
        lambda: Edges([0.0, math.nan, 1.0]),
        lambda: ece(CONF, CORRECT, 0),
        lambda: bin_index(CONF, -1),
        lambda: reliability(CONF, CORRECT, 0),
        lambda: streamcal.Sliding(EqualWidth(5), 0),
        lambda: streamcal.Tumbling(EqualWidth(5), -1),
        lambda: streamcal.Fading(EqualWidth(5), 0.0),
        lambda: streamcal.Timed(EqualWidth(5), 0.0),
        lambda: streamcal.Timed(EqualWidth(5), 60.0, panes=0),
        lambda: streamcal.Timed(EqualWidth(5), 60.0, lateness=-1.0),
        lambda: Cumulative(EqualWidth(5), keys=0),
        lambda: Cumulative(EqualWidth(5), loss="hinge"),
        lambda: streamcal.Quantile(0.0),
        lambda: streamcal.Quantile(1.5),
        lambda: streamcal.Interval(0.9, 0.1),
        lambda: streamcal.Mean("words"),
    ],
)
def test_configuration_errors_raise_at_construction(make):
    with pytest.raises((ValueError, TypeError)):
        make()


def test_the_error_says_what_is_allowed_and_what_came():
    with pytest.raises(ValueError, match=r"n_bins.*-1"):
        EqualWidth(-1)
    with pytest.raises(ValueError, match=r"level.*1\.5"):
        streamcal.Quantile(1.5)


STREAMS = {
    "uniform": lambda rng, n: rng.random(n),
    "beta": lambda rng, n: rng.beta(0.2, 5, n),
    "clicks": lambda rng, n: np.minimum(rng.lognormal(np.log(0.001), 1.0, n), np.nextafter(1, 0)),
}


@pytest.mark.parametrize("n_bins", [10, 15])
@pytest.mark.parametrize("name", STREAMS)
def test_uniform_mass_windows_hold_equal_mass(name, n_bins):
    """Mass of every bin within [.9, 1.1] of 1/B."""
    p = STREAMS[name](np.random.default_rng(1), 200_000)
    window = Cumulative(UniformMass(n_bins))
    window.update_many(p, np.zeros(len(p)))
    report = window.report()
    mass = np.array([r["weight"] for r in report["reliability"]]) / len(p)
    assert len(mass) == n_bins
    assert mass.sum() == pytest.approx(1.0, abs=1e-12)
    assert (0.9 / n_bins <= mass).all() and (mass <= 1.1 / n_bins).all()


@pytest.mark.parametrize("make", [UniformMass, LogOdds])
@given(p=st.lists(sts.probabilities, min_size=1, max_size=40))
def test_windows_never_split_a_tied_value(make, p):
    """All bins read from a window are intervals: equal values have the same bin."""
    window = Cumulative(make(4))
    window.update_many(p * 2, [0.0] * len(p) + [1.0] * len(p))
    bins = [r for r in window.report()["reliability"] if r["count"]]
    assert sum(r["count"] for r in bins) == 2 * len(p)
    assert all(r["mean_y"] == pytest.approx(0.5) for r in bins)  # each value is there once per y


@pytest.mark.parametrize("make", [UniformMass, LogOdds])
def test_the_fine_grid_covers_zero_to_one_in_order(make):
    edges = np.asarray(make(10).edges)
    assert edges[0] == 0.0 and edges[-1] == 1.0
    assert (np.diff(edges) > 0).all()
    assert np.array_equal(make(10).bins(edges[1:]), np.arange(len(edges) - 1))
    above = np.nextafter(edges[:-1], 1)
    assert np.array_equal(make(10).bins(above), np.arange(len(edges) - 1))
    assert make(10).bins([0.0])[0] == 0


def mass_bins(p, y, n_bins):
    inner = naive.mass_edges(p, n_bins)
    events = [(a, a, float(b), 1.0) for a, b in zip(p, y)]
    return naive.split(events, lambda c: naive.mass_bin(c, inner), len(inner) + 1)


@given(p=st.lists(sts.probabilities, min_size=1, max_size=30), n_bins=st.integers(1, 8), data=st.data())
def test_uniform_mass_learns_array_split_chunks_from_the_sample(p, n_bins, data):
    y = data.draw(st.lists(sts.binary, min_size=len(p), max_size=len(p)))
    bins = mass_bins(p, y, n_bins)
    for function, twin in ((k1, naive.k1), (k2, naive.k2), (mce, naive.mce), (l2_ce, naive.l2_ce)):
        got = function(p, y, binning=UniformMass(n_bins))
        assert got == pytest.approx(twin(bins), abs=1e-12)


@given(p=st.lists(sts.ties, min_size=1, max_size=12), n_bins=st.integers(1, 5), data=st.data())
def test_uniform_mass_counts_an_integer_weight_as_repetition(p, n_bins, data):
    n = len(p)
    y = data.draw(st.lists(sts.binary, min_size=n, max_size=n))
    w = data.draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    got = k1(p, y, binning=UniformMass(n_bins), sample_weight=w)
    want = k1(np.repeat(p, w), np.repeat(y, w), binning=UniformMass(n_bins))
    assert got == pytest.approx(want, abs=1e-12)


def test_neighbouring_floats_are_told_apart():
    """Their midpoint rounds to one of them; the edge must still lie between: 3 and 3 events."""
    p = [0.1, 0.2, 0.3, math.nextafter(0.3, 1), 0.5, 0.6]
    y = [0, 0, 0, 1, 1, 1]
    assert k1(p, y, binning=UniformMass(2)) == pytest.approx((sum(p[:3]) + 3 - sum(p[3:])) / 6, abs=1e-15)


# ------------------------------------------------------------------------------ values

FUNCTIONS = {
    "ece": (ece, naive.ece),
    "mce": (mce, naive.mce),
    "k1": (k1, naive.k1),
    "k2": (k2, naive.k2),
    "kinf": (kinf, naive.kinf),
    "l2_ce": (l2_ce, naive.l2_ce),
    "brier": (brier, naive.brier),
    "pa_ratio": (pa_ratio, naive.pa_ratio),
    "oe_ratio": (oe_ratio, naive.oe_ratio),
    "log_loss": (log_loss, naive.log_loss),
}


def quiet(function, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WARNING)
        return function(*args, **options)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(stream=sts.streams(min_size=1))
def test_batch_function_is_its_definition(name, stream):
    function, twin = FUNCTIONS[name]
    p, y, w = zip(*stream)
    if sum(w) == 0 or (name.endswith("ratio") and not sum(b * c for b, c in zip(y, w)) > 0):
        return
    if name == "oe_ratio" and sum(a * c for a, c in zip(p, w)) < 1e-300:
        return
    events = [(a, a, b, c) for a, b, c in stream]
    bins = naive.by_value(events)
    if name == "ece":
        bins = naive.split(events, lambda c: naive.width_bin(c, 15), 15)
    got = quiet(function, p, y, sample_weight=w)
    assert got == pytest.approx(twin(bins), rel=1e-9, abs=1e-12)


@given(stream=sts.streams(sts.binary_events, min_size=1), m=st.sampled_from((1, 4, 10)))
def test_batch_functions_take_a_binning(stream, m):
    p, y, w = zip(*stream)
    if sum(w) == 0:
        return
    bins = naive.split([(a, a, b, c) for a, b, c in stream], lambda c: naive.width_bin(c, m), m)
    for name in ("mce", "k1", "k2", "kinf", "l2_ce"):
        function, twin = FUNCTIONS[name]
        got = function(p, y, binning=EqualWidth(m), sample_weight=w)
        assert got == pytest.approx(twin(bins), rel=1e-9, abs=1e-12), name


@given(stream=sts.streams(min_size=1), m=st.sampled_from((1, 4, 10)))
def test_murphy_is_an_identity(stream, m):
    p, y, w = zip(*stream)
    if sum(w) == 0:
        return
    bins = naive.split([(a, a, b, c) for a, b, c in stream], lambda c: naive.width_bin(c, m), m)
    terms = murphy(p, y, binning=EqualWidth(m), sample_weight=w)
    assert terms.brier == pytest.approx(naive.brier(bins), abs=1e-12)
    for field, twin in (
        ("reliability", naive.reliability_term),
        ("resolution", naive.resolution),
        ("uncertainty", naive.uncertainty),
        ("within_variance", naive.within_variance),
        ("within_covariance", naive.within_covariance),
    ):
        assert getattr(terms, field) == pytest.approx(twin(bins), abs=1e-12), field
    assert terms.brier == pytest.approx(
        terms.reliability - terms.resolution + terms.uncertainty + terms.within_variance - terms.within_covariance,
        abs=1e-12,
    )


@given(stream=sts.streams(st.tuples(sts.ties, sts.binary, st.just(1.0)), min_size=6, max_size=25))
def test_spiegelhalter_intercept_and_slope_on_few_levels(stream):
    p, y, _ = zip(*stream)
    bins = naive.by_value([(a, a, b, c) for a, b, c in stream])
    z = naive.spiegelhalter_z(bins) if any(a != 0.5 for a in p) else 0.0
    assert quiet(spiegelhalter_z, p, y) == pytest.approx(z, rel=1e-6, abs=1e-6)
    if 0 < sum(y) < len(y):
        intercept = quiet(calibration_intercept, p, y)
        assert intercept == pytest.approx(naive.calibration_intercept(bins), abs=1e-6)


@pytest.mark.parametrize("slope, intercept", [(1.0, 0.0), (0.5, 0.3), (1.7, -0.4)])
def test_slope_and_intercept_of_a_logistic_stream(slope, intercept):
    """On four levels the fit is exact; the outcomes are the expected ones, given as [0, 1] values."""
    p = [0.1, 0.3, 0.6, 0.9] * 10
    y = [naive.sigmoid(slope * naive.logit(a) + intercept) for a in p]
    assert quiet(calibration_slope, p, y) == pytest.approx(slope, abs=1e-6)
    bins = naive.by_value([(a, a, b, 1.0) for a, b in zip(p, y)])
    assert quiet(calibration_intercept, p, y) == pytest.approx(naive.calibration_intercept(bins), abs=1e-6)


@given(
    v=st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=20),
    level=st.sampled_from((0.1, 0.5, 0.9)),
    data=st.data(),
)
def test_q_family_and_pinball(v, level, data):
    y = data.draw(st.lists(st.integers(-4, 4).map(float), min_size=len(v), max_size=len(v)))
    bins = naive.by_value([e for a, b in zip(v, y) for e in naive.quantile_events([level], [a], b)])
    assert quiet(q1, v, y, level) == pytest.approx(naive.q1(bins), abs=1e-12)
    assert quiet(q2, v, y, level) == pytest.approx(naive.q2(bins), abs=1e-12)
    assert quiet(qinf, v, y, level) == pytest.approx(naive.qinf(bins), abs=1e-12)
    loss = sum(naive.pinball_of(a, b, level) for a, b in zip(v, y)) / len(v)
    assert pinball_loss(v, y, level) == pytest.approx(loss, abs=1e-12)


def test_debias_switch():
    p, y = [0.2, 0.2, 0.2, 0.7, 0.7], [1, 0, 0, 1, 0]
    bins = naive.by_value([(a, a, b, 1.0) for a, b in zip(p, y)])
    assert quiet(k2, p, y, debias=True) == pytest.approx(naive.k2_debiased(bins), abs=1e-15)
    assert quiet(k2, p, y, debias=True) < 0  # signed
    assert quiet(l2_ce, p, y, debias=True) == 0.0  # clipped once, before the root


@given(data=st.data(), n=st.integers(1, 15), norm=st.sampled_from((1, 2)))
def test_marginal_ce_is_the_power_mean_over_classes(data, n, norm):
    corner = st.sampled_from(((0.7, 0.2, 0.1), (0.1, 0.1, 0.8), (0.4, 0.4, 0.2), (0.0, 0.0, 1.0)))
    probs = data.draw(st.lists(corner, min_size=n, max_size=n))
    y = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    per_event = [naive.marginal_events(a, b) for a, b in zip(probs, y)]
    classes = [naive.by_value([e[k] for e in per_event]) for k in range(3)]
    got = quiet(marginal_ce, np.array(probs), y, norm=norm)
    assert got == pytest.approx(naive.marginal_ce(classes, norm), abs=1e-12)
    fixed = marginal_ce(np.array(probs), y, norm=norm, binning=EqualWidth(5))
    bins = [naive.split([e[k] for e in per_event], lambda c: naive.width_bin(c, 5), 5) for k in range(3)]
    assert fixed == pytest.approx(naive.marginal_ce(bins, norm), abs=1e-12)


def test_marginal_ce_averages_signed_squares_and_clips_once():
    rng = np.random.default_rng(12)
    probs = np.array([(0.6, 0.3, 0.1), (0.2, 0.2, 0.6)])[rng.integers(0, 2, 40)]
    y = np.array([rng.choice(3, p=row) for row in probs])
    per_event = [naive.marginal_events(tuple(a), int(b)) for a, b in zip(probs, y)]
    classes = [naive.by_value([e[k] for e in per_event]) for k in range(3)]
    assert min(naive.k2_debiased(bins) for bins in classes) < 0  # so that clipping early would show
    got = quiet(marginal_ce, probs, y, debias=True)
    assert got == pytest.approx(naive.marginal_ce(classes, debias=True), abs=1e-12)


def test_top_label_takes_the_first_of_tied_classes():
    conf, correct = top_label([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4], [0.1, 0.2, 0.7]], [0, 2, 2])
    np.testing.assert_array_equal(conf, [0.4, 0.4, 0.7])
    np.testing.assert_array_equal(correct, [1, 0, 1])


# ------------------------------------------------------------------------------ inputs


class Column:
    """What pandas, polars and arrow columns have in common: a length and __array__."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)


def read_only(values):
    out = np.array(values)
    out.flags.writeable = False
    return out


def strided(values):
    out = np.full(3 * len(values), 0.123)
    out[::3] = values
    return out[::3]


def record_field(values):
    out = np.zeros(len(values), dtype=[("a", "i2"), ("x", "f8"), ("b", "i1")])
    out["x"] = values
    return out["x"]


INPUTS = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "read-only": read_only,
    "strided": strided,
    "reversed": lambda v: np.array(v)[::-1][::-1],
    "backwards": lambda v: np.array(v[::-1])[::-1],
    "record-field": record_field,
    "big-endian": lambda v: np.array(v).astype(">f8"),
    "column-of-matrix": lambda v: np.tile(np.array(v)[:, None], (1, 4))[:, 2],
    "fortran": lambda v: np.asfortranarray(np.array(v)[:, None])[:, 0],
    "object": lambda v: np.array(v, dtype=object),
    "column": Column,
    "json": lambda v: json.loads(json.dumps(list(v))),
}


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
def test_any_array_like_gives_the_same_number(make):
    assert ece(make(CONF), make(CORRECT), 5) == pytest.approx(23 / 120, abs=1e-15)
    assert brier(make(CONF), make(CORRECT)) == brier(CONF, CORRECT)
    window = Cumulative(EqualWidth(5))
    window.update_many(make(CONF), make(CORRECT))
    assert window.get("ece") == pytest.approx(23 / 120, abs=1e-15)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.uint64, np.float16, np.float32, float])
def test_labels_of_any_dtype(dtype):
    y = np.array(CORRECT).astype(dtype)
    assert ece(CONF, y, 5) == pytest.approx(23 / 120, abs=1e-15)
    window = Cumulative(EqualWidth(5))
    for a, b in zip(CONF, y):  # numpy scalars, np.bool_ among them
        window.update(a, b)
    assert window.get("ece") == pytest.approx(23 / 120, abs=1e-15)


def test_inputs_are_not_written_to():
    p, y = np.array(CONF), np.array(CORRECT, dtype=float)
    ece(p, y, 5), k1(p, y, binning=UniformMass(2)), Cumulative(EqualWidth(5)).update_many(p, y)
    np.testing.assert_array_equal(p, CONF)
    np.testing.assert_array_equal(y, CORRECT)


@pytest.mark.parametrize("function", [ece, mce, k1, k2, brier, pa_ratio, log_loss])
def test_two_columns_are_binary_predict_proba(function):
    both = np.column_stack((1 - np.array(CONF), CONF))
    positive = both[:, 1]
    assert quiet(function, both, CORRECT) == quiet(function, positive, CORRECT)


def test_float32_batches_are_upcast_once():
    rng = np.random.default_rng(2)
    p = rng.random(5000).astype(np.float32)
    y = (rng.random(5000) < p).astype(np.int8)
    assert ece(p, y) == ece(p.astype(float), y.astype(float))
    assert brier(p, y) == pytest.approx(float(np.mean((p.astype(float) - y) ** 2)), abs=1e-12)


# ------------------------------------------------------------------------------ errors

BAD_P = [math.nan, math.inf, -math.inf, -0.1, 1.1, 1.000002, None]
BAD_Y = [math.nan, math.inf, 2.0, -1.0, 1.0000001, -1e-9, None]
BAD_W = [-1.0, math.nan, math.inf]


def spoil(values, bad, at):
    values = [float(v) for v in values]
    values[at] = bad
    return values


@pytest.mark.parametrize("function", [ece, mce, k1, k2, brier, pa_ratio, log_loss, spiegelhalter_z])
@pytest.mark.parametrize("bad", BAD_P, ids=str)
def test_a_bad_prediction_raises_with_its_index(function, bad):
    with pytest.raises(ValueError, match=r"\b3\b"):
        quiet(function, spoil(CONF, bad, 3), CORRECT)


@pytest.mark.parametrize("bad", BAD_Y, ids=str)
def test_a_bad_outcome_raises_with_its_index(bad):
    with pytest.raises(ValueError, match=r"\b4\b"):
        ece(CONF, spoil(CORRECT, bad, 4))


@pytest.mark.parametrize("bad", BAD_W, ids=str)
def test_a_bad_weight_raises_with_its_index(bad):
    with pytest.raises(ValueError, match=r"\b5\b"):
        ece(CONF, CORRECT, sample_weight=spoil([1] * 6, bad, 5))


def test_the_first_of_many_bad_events_is_named():
    p = np.full(100_000, 0.5)
    p[[70_001, 80_000]] = np.nan
    with pytest.raises(ValueError, match="70001|70_001|70,001"):
        ece(p, np.ones(100_000))


@pytest.mark.parametrize("bad", [math.nan, -0.5, 1.5])
def test_bin_index_and_reliability_refuse_too(bad):
    with pytest.raises(ValueError, match=r"\b1\b"):
        bin_index([0.5, bad], 10)
    with pytest.raises(ValueError, match=r"\b1\b"):
        reliability([0.5, bad], [1, 0], 10)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ece([0.1, 0.2], [1]),
        lambda: ece([0.1, 0.2], [1, 0], sample_weight=[1]),
        lambda: ece([[0.1, 0.2, 0.7]], [1]),
        lambda: ece(["a"], [1]),
        lambda: ece([0.1], ["spam"]),
        lambda: k1([0.1, 0.2], [1]),
        lambda: marginal_ce([[0.1, 0.9]], [2]),
        lambda: marginal_ce([[0.1, 0.9]], [-1]),
        lambda: marginal_ce([[0.1, math.nan]], [0]),
        lambda: marginal_ce([0.1, 0.9], [0, 1]),
        lambda: top_label([[0.1, 0.9]], [0, 1]),
        lambda: top_label([[0.7, -0.1, 0.4]], [0]),
        lambda: top_label([[0.7, math.nan, 0.4]], [0]),
        lambda: top_label([[0.7, 0.3]], [2]),
        lambda: marginal_ce([[0.5, 0.6, -0.1]], [0]),
        lambda: marginal_ce([[0.5, 1.5]], [0]),
        lambda: pinball_loss([1.0], [2.0], 1.5),
        lambda: pinball_loss([1.0], [math.nan], 0.5),
        lambda: q1([1.0], [2.0], 0.0),
        lambda: q1([math.nan], [2.0], 0.5),
    ],
)
def test_shapes_and_words_raise(call):
    with pytest.raises((ValueError, TypeError)):
        quiet(call)


@pytest.mark.parametrize("bad", [2, -1, 0.5, math.nan, None, "a"])
def test_a_bad_key_raises(bad):
    w = Cumulative(EqualWidth(5), keys=2)
    with pytest.raises((ValueError, TypeError), match="key"):
        w.update_many([0.5, 0.6], [1, 0], key=[0, bad])
    with pytest.raises((ValueError, TypeError), match="key"):
        w.update(0.5, 1, key=bad)
    assert w.snapshot().count.sum() == 0


def test_empty_input_is_nan():
    for function in (ece, mce, k1, k2, kinf, l2_ce, brier, pa_ratio, spiegelhalter_z, log_loss):
        assert math.isnan(quiet(function, [], [])), function
    assert math.isnan(quiet(q1, [], [], 0.5)) and math.isnan(pinball_loss([], [], 0.5))
    assert math.isnan(murphy([], [], binning=EqualWidth(5)).brier)
    count, accuracy, confidence = reliability([], [], 4)
    for column in (count, accuracy, confidence):
        np.testing.assert_array_equal(column, np.zeros(4))


def test_all_weights_zero_is_nan():
    assert math.isnan(ece(CONF, CORRECT, sample_weight=[0] * 6))


# ------------------------------------------------------------------------------ warnings, shape


def test_few_events_per_level_warns_and_names_a_way_out():
    with pytest.warns(WARNING, match="UniformMass|EqualWidth|binning"):
        k1(CONF, CORRECT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        k1([0.2, 0.7] * 10, [0, 1] * 10)  # ten events per level
        k1(CONF, CORRECT, binning=EqualWidth(5))
        ece(CONF, CORRECT)


def test_the_value_by_distinct_prediction_does_not_switch():
    rng = np.random.default_rng(4)
    p = rng.random(500)
    y = (rng.random(500) < p).astype(float)
    assert quiet(k1, p, y) == pytest.approx(np.abs(y - p).mean(), abs=1e-12)


def test_signatures_are_those_of_the_documents():
    assert list(inspect.signature(ece).parameters) == ["conf", "correct", "n_bins", "sample_weight", "pos_label"]
    assert list(inspect.signature(bin_index).parameters) == ["conf", "n_bins"]
    assert list(inspect.signature(reliability).parameters) == ["conf", "correct", "n_bins"]
    for function in (mce, k1, kinf, brier, murphy, pa_ratio):
        assert list(inspect.signature(function).parameters)[:4] == [
            "p",
            "y",
            "binning",
            "sample_weight",
        ]


@given(stream=sts.streams(sts.plain_events, min_size=1), m=st.sampled_from((5, 10, 25)))
def test_reliability_has_m_bins_with_zeros_where_empty(stream, m):
    p, y, _ = zip(*stream)
    count, accuracy, confidence = reliability(p, y, m)
    bins = naive.split([(a, a, b, 1.0) for a, b in zip(p, y)], lambda c: naive.width_bin(c, m), m)
    assert len(count) == len(accuracy) == len(confidence) == m
    np.testing.assert_array_equal(count, [len(r) for r in bins])
    want = [naive.mean_outcome(r) if r else 0.0 for r in bins]
    np.testing.assert_allclose(accuracy, want, atol=1e-12)
    want = [naive.mean_claim(r) if r else 0.0 for r in bins]
    np.testing.assert_allclose(confidence, want, atol=1e-12)


@given(stream=sts.streams(sts.plain_events, min_size=1), data=st.data())
def test_order_does_not_matter(stream, data):
    p, y, _ = zip(*stream)
    again = data.draw(st.permutations(list(zip(p, y))))
    p2, y2 = zip(*again)
    assert ece(p2, y2) == pytest.approx(ece(p, y), abs=1e-14)
    assert k1(p2, y2, binning=UniformMass(3)) == pytest.approx(k1(p, y, binning=UniformMass(3)), abs=1e-14)


@pytest.mark.parametrize("weighted", [False, True])
def test_large_batches_in_two_threads_give_the_same_numbers(monkeypatch, weighted):
    rng = np.random.default_rng(3)
    p, y, w = rng.random(3001), rng.integers(0, 2, 3001), rng.random(3001) if weighted else None
    alone = [f(p, y, binning=UniformMass(7), sample_weight=w) for f in (k1, k2)]
    monkeypatch.setattr("streamcal.batch.THREADED", 100)
    together = [f(p, y, binning=UniformMass(7), sample_weight=w) for f in (k1, k2)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    p[2500] = 1.5
    with pytest.raises(ValueError, match="index 2500"):
        ece(p, y)


def test_marginal_ce_asks_for_two_classes_before_it_looks_at_labels():
    with pytest.raises(ValueError, match="classes must be a whole number at least 2, got 1"):
        marginal_ce([[0.5], [0.4]], [0, 1])


def test_every_warning_names_the_line_that_called():
    """Whatever number of our own calls lie between: as many classes, maps of maps, a snapshot of a window."""
    p = np.linspace(0.1, 0.9, 40)
    y = (p > 0.5).astype(float)
    probs = np.column_stack([p, 1.0 - p])
    calls = (
        lambda: k1(p, y),
        lambda: murphy(p, y),
        lambda: marginal_ce(probs, y),
        lambda: ece(p + 1e-7 * (p == p.max()) + 0.1 * (p == p.max()), y),
        lambda: streamcal.PlattScaling("hard").fit(p, y),
        lambda: streamcal.BetaCalibration().fit(p, y),
        lambda: streamcal.TemperatureScaling().fit(p, y),
        lambda: streamcal.ScalingBinning(10).fit(p, y),
        lambda: streamcal.Patching(0.0).fit(p, y),
        lambda: streamcal.recalibrate.Marginal(streamcal.PlattScaling("hard")).fit(probs, y),
    )
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert caught and {w.filename for w in caught} == {__file__}, inspect.getsource(call)
