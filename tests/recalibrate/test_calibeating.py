"""Calibeating against its definition, its bound for any bits and forecasts, and adversaries who see all but the draw."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
import strategies as sts
from conftest import sized
from hypothesis import given
from hypothesis import strategies as st
from online_adversaries import ADVERSARIES, game

from streamcal import Cumulative, Edges, EqualWidth, Grid, Levels, LogOdds, UniformMass, from_bytes, k1, k2
from streamcal.recalibrate.calibeating import FIRST, LEARNED, METHOD, OWN, Calibeating, M, MixedForecaster
from streamcal.recalibrate.forecasting import uniform
from streamcal.recalibrate.histogram import OnlineHistogram

BINNINGS = st.sampled_from(
    [
        EqualWidth(1),
        EqualWidth(3),
        EqualWidth(10),
        EqualWidth(25),
        Grid(4),
        Levels([0.1, 0.5, 0.9]),
        Edges([0.0, 0.2, 0.9, 1.0]),
        Edges([-math.inf, 0.25, math.inf]),
    ]
)
EVENTS = st.lists(sts.events, max_size=60)
BELOW_HALF = Edges([0.0, math.nextafter(0.5, 0.0), 1.0])
REPEATS, STEPS = sized(20, 5), sized(1_000, 400)  # games with adversaries


def excess_of(q, y, bins, w) -> float:
    """Weighted squared error above that of each bin's own mean outcome."""
    n = np.bincount(bins, w)
    mean = np.divide(np.bincount(bins, w * y), n, out=np.zeros(n.size), where=n > 0)
    return float((w * (q - y) ** 2).sum() - (w * (mean[bins] - y) ** 2).sum())


def price(bins: float, events: float) -> float:
    """The bound in units of the largest weight: B (1 + ln(T / B)), and T where there are fewer events than bins."""
    return bins * (1.0 + math.log(events / bins)) if events >= bins else events


@given(EVENTS, BINNINGS)
def test_tracking_is_the_mean_of_the_bin(events, binning):
    map, seen = Calibeating(binning), defaultdict(list)
    for p, y, w in events:
        forecast = map.predict_one(p)
        past = seen[int(binning.bins(p))]
        weight = math.fsum(v for _, v in past)
        want = math.fsum(a * v for a, v in past) / weight if weight > 0 else p
        assert forecast == pytest.approx(want, abs=1e-12)
        if not weight > 0:
            assert forecast == p
        map.learn_one(p, y, w)
        past.append((y, w))


@given(st.lists(sts.binary_events, min_size=1, max_size=40), BINNINGS)
def test_tracking_is_the_histogram_without_a_prior(events, binning):
    p, y, w = zip(*events)
    other = OnlineHistogram(Cumulative(binning), prior=0.0).run(p, y, w)
    np.testing.assert_allclose(Calibeating(binning).run(p, y, w), other, rtol=0, atol=1e-12)


@given(st.lists(sts.events, min_size=1, max_size=200), BINNINGS)
def test_trackings_bound_for_any_forecasts_outcomes_and_weights(events, binning):
    p, y, w = map(np.array, zip(*events))
    if not (w > 0).any():
        return
    q, bins, largest = Calibeating(binning).run(p, y, w), binning.bins(p), w.max()
    occurred = np.unique(bins[w > 0]).size
    assert excess_of(q, y, bins, w) <= largest * price(occurred, w.sum() / largest) + 1e-9 * w.sum()


@given(st.lists(sts.plain_events, min_size=1, max_size=200), BINNINGS)
def test_trackings_bound_for_any_bits(events, binning):
    p, y, w = map(np.array, zip(*events))
    bins = binning.bins(p)
    occurred = np.unique(bins).size
    assert excess_of(Calibeating(binning).run(p, y), y, bins, w) <= occurred * (1 + math.log(y.size / occurred)) + 1e-9


@given(st.lists(st.tuples(st.sampled_from((0.05, 0.3, 0.75)), sts.binary), min_size=1, max_size=200))
def test_tracking_beats_a_forecaster_by_its_calibration_error(events):
    """For forecasts that are constant within bins: Brier(c) <= Brier(b) - K2(b) + B (1 + ln(T / B)) / T."""
    p, y = map(np.array, zip(*events))
    q, occurred = Calibeating(Levels([0.05, 0.3, 0.75])).run(p, y), np.unique(p).size
    raw = ((p - y) ** 2).mean() - k2(p, y) if y.size >= 30 else ((p - y) ** 2).mean() - plain_k2(p, y)
    assert ((q - y) ** 2).mean() <= raw + occurred * (1 + math.log(y.size / occurred)) / y.size + 1e-12


def plain_k2(p, y) -> float:
    return sum((p == v).mean() * ((y[p == v]).mean() - v) ** 2 for v in np.unique(p))


@pytest.mark.parametrize("T", [100, 10_000])
def test_trackings_excess_does_grow_like_the_logarithm(T):
    """One bin and y = 1[c < 1/2]: ln(T) / 4 and more, so only the factor of the bound could be better."""
    map = Calibeating(EqualWidth(1))
    q, y = game(map, "gap", np.full(T, 0.5))
    excess = excess_of(q, y, np.zeros(T, dtype=int), np.ones(T))
    assert 0.25 * math.log(T) <= excess <= 1 + math.log(T)
    assert k1(q, y, binning=BELOW_HALF) >= 0.5, "tracking alone is not calibrated against an adversary"


# -- hedging ------------------------------------------------------------------------------------------------------------


class NaiveHedging:
    """A plain Foster forecaster in each bin: exact fractions, and bisection that begins at the raw prediction's interval."""

    def __init__(self, binning, m: int, seed: int) -> None:
        self.binning, self.m, self.seed, self.learned = binning, m, seed, 0
        self.pairs = defaultdict(lambda: [[Fraction(0), Fraction(0)] for _ in range(m)])

    def side(self, bin: int, i: int) -> Fraction:
        """Its deficit as a negative number, its excess as a positive one, 0 for neither."""
        n, s = self.pairs[bin][i]
        return min(s - Fraction(i, self.m) * n, Fraction(0)) + max(s - Fraction(i + 1, self.m) * n, Fraction(0))

    def played(self, bin: int, p: float) -> int:
        low, high, i = -1, self.m, min(int(p * self.m), self.m - 1)
        while high - low > 1:
            if self.side(bin, i) == 0:
                return i
            low, high = (low, i) if self.side(bin, i) < 0 else (i, high)
            i = (low + high) // 2
        deficit, excess = -self.side(bin, high), self.side(bin, low)
        return low if uniform(float(self.seed), float(self.learned)) < deficit / (deficit + excess) else high

    def learn(self, p: float, y: float, w: float) -> float:
        bin = int(self.binning.bins(p))
        i = self.played(bin, p)
        self.pairs[bin][i][0] += Fraction(w)
        self.pairs[bin][i][1] += Fraction(w) * Fraction(y)
        self.learned += w > 0
        return (i + 0.5) / self.m


@given(
    st.lists(st.tuples(sts.probabilities, sts.binary, sts.integer_weights), max_size=80),
    BINNINGS,
    st.integers(1, 8),
    st.integers(0, 99),
)
def test_hedging_is_a_foster_forecaster_in_each_bin(events, binning, m, seed):
    twin, map = NaiveHedging(binning, m, seed), MixedForecaster(binning, m, seed)
    for p, y, w in events:
        forecast = map.predict_one(p)
        assert forecast in [value for value, _ in map.distribution(p)]
        map.learn_one(p, y, w)
        assert forecast == twin.learn(p, y, w)


@given(sts.probabilities, st.integers(1, 50), BINNINGS)
def test_hedging_begins_at_the_nearest_midpoint(p, m, binning):
    map = MixedForecaster(binning, m)
    assert abs(map.predict_one(p) - p) <= 1 / (2 * m) + 1e-15
    assert map.distribution(p) == [(map.predict_one(p), 1.0)]


@given(st.lists(st.tuples(sts.probabilities, sts.binary), max_size=40), st.integers(1, 12))
def test_mixed_is_another_name_of_hedging(events, m):
    p, y = zip(*events) if events else ((), ())
    one, other = MixedForecaster(EqualWidth(5), m, 3), Calibeating(EqualWidth(5), "hedging", m, 3)
    assert one.run(p, y).tolist() == other.run(p, y).tolist()
    assert one._buf.tobytes() == other._buf.tobytes()


def hedging_games(adversary: str, T: int, bins: int, m: int, w=None) -> tuple[float, float]:
    """Means over the seeds of K1 by value and bin, and of the excess of the Brier score over the refinement."""
    weight, gaps, excesses = np.ones(T) if w is None else w, [], []
    for seed in range(REPEATS):
        p = np.random.default_rng(seed).random(T)
        q, y = game(MixedForecaster(EqualWidth(bins), m, seed), adversary, p, w)
        bin = EqualWidth(bins).bins(p)
        cell = bin * m + (q * m).astype(int)
        n = np.bincount(cell, weight)
        gap = np.bincount(cell, weight * y) - ((np.arange(n.size) % m + 0.5) / m) * n
        gaps.append(np.abs(gap).sum() / weight.sum())
        excesses.append(excess_of(q, y, bin, weight) / weight.sum())
        assert k1(q, y, sample_weight=w) <= gaps[-1] + 1e-12, "by value it is smaller still"
    return float(np.mean(gaps)), float(np.mean(excesses))


def check_hedging(adversary, T, bins, m, effective, w=None):
    gap, excess = hedging_games(adversary, T, bins, m, w)
    hedge = math.sqrt(m * bins / effective)
    assert gap <= 1 / (2 * m) + hedge
    assert excess <= 1 / (4 * m * m) + (1 + 1 / (2 * m)) * hedge
    return gap


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize(("bins", "m"), [(1, 10), (10, 5)])
def test_hedgings_bounds_against_adaptive_adversaries(adversary, bins, m):
    check_hedging(adversary, STEPS, bins, m, STEPS)


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_hedging_is_calibrated_where_tracking_is_not(adversary):
    gap = check_hedging(adversary, 64_000, 10, 19, 64_000)
    q, y = game(Calibeating(), adversary, np.random.default_rng(0).random(64_000))
    assert gap <= 0.1 and k1(q, y, binning=BELOW_HALF) >= 0.5


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_hedgings_bounds_with_weights(adversary):
    w = np.random.default_rng(0).pareto(3.0, STEPS)
    check_hedging(adversary, w.size, 3, 7, w.sum() ** 2 / (w * w).sum(), w)


# -- settings and documents ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("binning", "message"),
    [
        (UniformMass(10), "fixed bins"),
        (LogOdds(10), "fixed bins"),
        (Edges([0.0, 0.5]), "cover"),
        (Edges([0.1, 1.0]), "cover"),
        (EqualWidth(2**31 - 1), "at most 10,000,000 bins"),
        ("EqualWidth", "must be a binning"),
        (10, "must be a binning"),
    ],
)
def test_a_binning_that_cannot_be_tracked_is_refused(binning, message):
    for make in (Calibeating, MixedForecaster):
        with pytest.raises(
            ValueError, match=message if isinstance(binning, str | int) or make is Calibeating else "binning"
        ):
            make(binning)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="method must be one of 'tracking', 'hedging', got 'tracing'"):
        Calibeating(method="tracing")
    with pytest.raises(ValueError, match="m must be a whole number"):
        Calibeating(m=0)
    with pytest.raises(ValueError, match="seed must be a whole number"):
        MixedForecaster(seed=-1)
    with pytest.raises(ValueError, match="binning must have at most 10 bins here, got 15"):
        MixedForecaster(EqualWidth(15), m=1_000_000)
    for map in (Calibeating(), MixedForecaster()):
        with pytest.raises(ValueError, match="must lie in"):
            map.distribution(1.5)


@given(st.lists(sts.events, max_size=30), BINNINGS, st.sampled_from(("tracking", "hedging")), sts.probabilities)
def test_documents_hold_the_binning(events, binning, method, p):
    map = Calibeating(binning, method, m=3, seed=5)
    for event in events:
        map.learn_one(*event)
    again = from_bytes(map.to_bytes())
    assert repr(again) == repr(map) and again.binning == binning
    assert again.distribution(p) == map.distribution(p)
    assert again.to_bytes() == map.to_bytes()


@pytest.mark.parametrize("method", ["tracking", "hedging"])
@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, 1.0),  # the plan's rule
        (1, 1e9),  # its number of bins
        (7, 1e9),  # where its edges begin
        (8, -1.0),  # weight of the first pair
        (9, 1.0),  # outcomes without weight
        (9, math.nan),
        (FIRST - OWN, 0.0),
        (METHOD - OWN, 7.0),
        (M - OWN, 1e6),
        (LEARNED - OWN, 0.5),
        (LEARNED - OWN, math.nan),
    ],
)
def test_a_document_that_no_stream_can_write_is_refused(method, place, value):
    map = Calibeating(method=method)
    map._buf[place] = value
    with pytest.raises(ValueError, match="does not fit"):
        from_bytes(map.to_bytes())


def test_a_document_of_another_binning_is_refused():
    small, large = Calibeating(EqualWidth(3)), Calibeating(EqualWidth(4))
    large._buf = small._buf
    with pytest.raises(ValueError, match="does not fit"):
        from_bytes(large.to_bytes())
    small.binning = None
    with pytest.raises(ValueError, match="does not fit"):
        from_bytes(small.to_bytes())
