"""Foster's forecaster and the one almost one step ahead: against their definitions, their proofs and their adversaries."""

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
from online_adversaries import ADVERSARIES, foil, game

from streamcal import from_bytes, k1
from streamcal.recalibrate.forecasting import (
    LEARNED,
    MOVED,
    PAIRS,
    SUMS,
    AlmostOneStepAhead,
    FosterForecaster,
    M,
    uniform,
)

LEVELS = st.integers(1, 12)
SEEDS = st.integers(0, 2**53)
BITS = st.lists(sts.binary, max_size=80)
WEIGHTED = st.lists(st.tuples(sts.unit, sts.weights), max_size=60)
REPEATS, STEPS = sized(20, 5), sized(1_000, 400)  # games with adversaries


def pairs_of(forecaster) -> list[tuple[Fraction, Fraction]]:
    numbers = [Fraction(float(x)) for x in forecaster._buf[PAIRS:]]
    return list(zip(numbers[0::2], numbers[1::2]))


def potential(pairs) -> Fraction:
    """Sum of max(deficit, 0)^2 + max(excess, 0)^2."""
    m = len(pairs)
    gaps = [max(Fraction(i, m) * n - s, s - Fraction(i + 1, m) * n, Fraction(0)) for i, (n, s) in enumerate(pairs)]
    return sum((g * g for g in gaps), Fraction(0))


class NaiveFoster:
    """B1 of the textbook: lists of sums in exact fractions, bisection by recursion, the lowest interval looked at first."""

    def __init__(self, m: int, seed: int) -> None:
        self.m, self.seed, self.learned = m, seed, 0
        self.n, self.s = [Fraction(0)] * m, [Fraction(0)] * m

    def deficit(self, i: int) -> Fraction:
        return Fraction(i, self.m) * self.n[i] - self.s[i]

    def excess(self, i: int) -> Fraction:
        return self.s[i] - Fraction(i + 1, self.m) * self.n[i]

    def between(self, low: int, high: int) -> tuple[int, Fraction]:
        """(i, chance) where low has an excess, and high a deficit or high is m."""
        if high - low == 1:
            return low, self.deficit(high) / (self.deficit(high) + self.excess(low))
        i = (low + high) // 2
        if self.deficit(i) > 0:
            return self.between(low, i)
        if self.excess(i) > 0:
            return self.between(i, high)
        return i, Fraction(1)

    def learn(self, y: float, w: float) -> float:
        i, chance = (0, Fraction(1)) if self.excess(0) <= 0 else self.between(0, self.m)
        i += uniform(float(self.seed), float(self.learned)) >= chance
        self.n[i] += Fraction(w)
        self.s[i] += Fraction(w) * Fraction(y)
        self.learned += w > 0
        return (i + 0.5) / self.m


@given(st.lists(st.tuples(sts.binary, sts.integer_weights), max_size=80), LEVELS, SEEDS)
def test_foster_is_the_textbook(events, m, seed):
    twin, forecaster = NaiveFoster(m, seed), FosterForecaster(m, seed)
    for y, w in events:
        forecast = forecaster.predict_one()
        forecaster.learn_one(0.3, y, w)
        assert forecast == twin.learn(y, w)
    assert forecaster._buf[PAIRS:].tolist() == [float(x) for pair in zip(twin.n, twin.s) for x in pair]


@given(BITS, LEVELS, SEEDS)
def test_what_foster_plays_is_allowed(bits, m, seed):
    """One interval without deficit or excess; or neighbours that pull towards each other, and the chance that cancels."""
    forecaster = FosterForecaster(m, seed)
    for y in bits:
        pairs, played = pairs_of(forecaster), forecaster.distribution()
        index = [round(value * m - 0.5) for value, _ in played]
        excess = [pairs[i][1] - Fraction(i + 1, m) * pairs[i][0] for i in index]
        deficit = [Fraction(i, m) * pairs[i][0] - pairs[i][1] for i in index]
        if len(played) == 1:
            assert max(excess[0], deficit[0]) <= 0 and played[0][1] == 1.0
        else:
            assert index[1] == index[0] + 1 and excess[0] > 0 and deficit[1] > 0
            assert played[0][1] == pytest.approx(float(deficit[1] / (deficit[1] + excess[0])), rel=1e-14)
            assert sum(chance for _, chance in played) == 1.0
        assert forecaster.predict_one() in [value for value, _ in played]
        forecaster.learn_one(0.5, y)


@given(st.lists(st.tuples(sts.binary, sts.integer_weights), max_size=60), LEVELS, sts.unit, sts.integer_weights)
def test_the_step_of_fosters_proof(events, m, y, w):
    """In expectation over the draw, no outcome raises the potential by more than w^2: the whole proof of the bound."""
    forecaster = FosterForecaster(m)
    for outcome, weight in events:
        forecaster.learn_one(0.5, outcome, weight)
    before, expected = pairs_of(forecaster), Fraction(0)
    for value, chance in forecaster.distribution():
        after, i = list(before), round(value * m - 0.5)
        after[i] = (before[i][0] + Fraction(w), before[i][1] + Fraction(w) * Fraction(y))
        expected += Fraction(chance) * potential(after)
    assert float(expected - potential(before)) <= w * w + 1e-12


@given(WEIGHTED, LEVELS, SEEDS)
def test_fosters_sums_stay_what_the_bisection_needs(events, m, seed):
    forecaster = FosterForecaster(m, seed)
    for y, w in events:
        forecaster.learn_one(0.5, y, w * 1e-320 if w == 1.0 else w)
    assert from_bytes(forecaster.to_bytes()).distribution() == forecaster.distribution()
    assert forecaster._buf[LEARNED] == sum(w > 0 for _, w in events)


def foster_games(adversary: str, T: int, m: int, w=None) -> tuple[float, float]:
    """Means over the seeds of K1 by value and of potential / sum of w^2."""
    gaps, potentials = [], []
    for seed in range(REPEATS):
        forecaster = FosterForecaster(m, seed)
        q, y = game(forecaster, adversary, np.full(T, 0.5), w)
        gaps.append(float(k1(q, y, sample_weight=w)))
        potentials.append(float(potential(pairs_of(forecaster))) / (T if w is None else float((w * w).sum())))
    return float(np.mean(gaps)), float(np.mean(potentials))


@pytest.mark.statistical
@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("T", [1_000, 1_331, pytest.param(64_000, marks=pytest.mark.jit)])
def test_fosters_bound_against_adaptive_adversaries(adversary, T):
    gap, growth = foster_games(adversary, T, FosterForecaster.levels_for(T))
    assert gap <= 1.5 * T ** (-1 / 3) and growth <= 1.0


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_fosters_error_falls_like_the_cube_root(adversary):
    sizes = np.array([1_000, 8_000, 64_000])
    gaps = [foster_games(adversary, T, FosterForecaster.levels_for(T))[0] for T in sizes.tolist()]
    assert -0.45 <= np.polyfit(np.log(sizes), np.log(gaps), 1)[0] <= -0.30


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_fosters_bound_with_weights(adversary):
    w = np.random.default_rng(0).pareto(3.0, STEPS)
    gap, growth = foster_games(adversary, w.size, 10, w)
    assert gap <= 1 / 20 + math.sqrt(10 * (w * w).sum()) / w.sum() and growth <= 1.0


def gain_of_one(adversary: str, forecaster) -> float:
    """How much more the adversary expects from outcome 1 than from 0, by the definitions."""
    played, pairs, m = forecaster.distribution(), pairs_of(forecaster), forecaster.m
    if adversary == "expectation":
        return 0.5 - sum(value * chance for value, chance in played)
    total = 0.0
    for value, chance in played:
        i = round(value * m - 0.5)
        n, s = pairs[i][0] + 1, pairs[i][1]
        middle = Fraction(2 * i + 1, 2 * m)
        after = [
            abs(s + y - middle * n)
            if adversary == "gap"
            else max(Fraction(i, m) * n - s - y, s + y - Fraction(i + 1, m) * n, Fraction(0)) ** 2
            for y in (0, 1)
        ]
        total += chance * float(after[1] - after[0])
    return total


@pytest.mark.parametrize("m", [7, 10])
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_the_games_kernel_plays_by_the_public_rules(adversary, m):
    """What the adversary does in the kernel, done with distribution() and learn_one()."""
    q, y = game(FosterForecaster(m, 3), adversary, np.full(300, 0.5))
    forecaster = FosterForecaster(m, 3)
    for forecast, outcome in zip(q, y):
        gain = gain_of_one(adversary, forecaster)
        assert forecaster.predict_one() == forecast
        assert outcome == (gain > 0) or abs(gain) < 1e-12
        forecaster.learn_one(0.5, outcome)


@pytest.mark.parametrize("m", [10, 40, 100])
def test_without_chance_one_half_of_error_remains(m):
    """The foil: what randomness is for."""
    for q, y in (foil(m, 4_000), game(AlmostOneStepAhead(m), "gap", np.full(4_000, 0.5))):
        assert 0.5 <= k1(q, y) <= 0.6
    assert foster_games("gap", STEPS, m)[0] <= 1 / (2 * m) + math.sqrt(m / STEPS)


def test_draws_are_a_function_of_the_seed():
    p, y = np.full(300, 0.5), np.arange(300) % 2.0
    one, again, other = (FosterForecaster(10, seed).run(p, y) for seed in (1, 1, 2))
    assert one.tolist() == again.tolist() != other.tolist()


@given(st.integers(1, 10**15))
def test_the_levels_that_are_advised(T):
    m = FosterForecaster.levels_for(T)
    assert 1 / (2 * m) + math.sqrt(m / T) <= 1.04 * 1.5 * T ** (-1 / 3)
    m = AlmostOneStepAhead.levels_for(T)
    assert T / m + m - 1 <= 2 * math.sqrt(T) + 1


# -- almost one step ahead ----------------------------------------------------------------------------------------------


class NaiveAhead:
    """B2 of the textbook: every level looked at from the middle outwards by bisection, the shadow's sums in a dictionary."""

    def __init__(self, m: int) -> None:
        self.m, self.sums = m, defaultdict(float)
        self.shadows: list[float] = []

    def level(self) -> int:
        return next(i for i in self.order(0, self.m) if self.sums[i] >= 0 >= self.sums[i + 1])

    def order(self, low: int, high: int):
        while True:
            i = (low + high) // 2
            yield i
            low, high = (low, i) if self.sums[i] < 0 else (i + 1, high)

    def learn(self, y: float, w: float) -> float:
        i, m = self.level(), self.m
        k = i if y <= i / m else i + 1 if y >= (i + 1) / m else None
        self.shadows.append(y if k is None else k / m)
        if k is not None:
            self.sums[k] += w * (y - k / m)
        return i / m


@given(WEIGHTED, LEVELS)
def test_ahead_is_the_textbook_and_keeps_its_bound(events, m):
    twin, forecaster, forecasts = NaiveAhead(m), AlmostOneStepAhead(m), []
    for y, w in events:
        forecasts.append(forecaster.predict_one())
        forecaster.learn_one(0.9, y, w)
        assert forecasts[-1] == twin.learn(y, w)
        assert np.abs(forecaster._buf[SUMS:]).max() <= max(w for _, w in events)
        assert forecaster._buf[SUMS] == forecaster._buf[-1] == 0.0
    moved = math.fsum(w * abs(q - s) for (_, w), q, s in zip(events, forecasts, twin.shadows))
    total, largest = math.fsum(w for _, w in events), max((w for _, w in events), default=0.0)
    assert forecaster.shadow_distance == pytest.approx(moved + sum(map(abs, twin.sums.values())), rel=1e-12, abs=1e-12)
    assert forecaster.shadow_distance <= total / m + (m - 1) * largest + 1e-9 * total


@given(st.lists(sts.binary, min_size=1, max_size=300))
def test_aheads_bound_for_any_bits(bits):
    T = len(bits)
    forecaster = AlmostOneStepAhead(AlmostOneStepAhead.levels_for(T))
    for y in bits:
        forecaster.learn_one(0.5, y)
        assert np.abs(forecaster._buf[SUMS:]).max() <= 1.0
    assert forecaster.shadow_distance <= 2 * math.sqrt(T) + 1


@given(st.lists(sts.unit, min_size=1, max_size=100), LEVELS)
def test_the_shadow_distance_is_that_of_a_calibrated_sequence(outcomes, m):
    """Moving each shadow level to the mean outcome it met gives a perfectly calibrated sequence at that distance or less."""
    twin, forecaster = NaiveAhead(m), AlmostOneStepAhead(m)
    forecasts = forecaster.run(np.full(len(outcomes), 0.5), outcomes)
    met = defaultdict(list)
    for y in outcomes:
        twin.learn(y, 1.0)
        met[twin.shadows[-1]].append(y)
    means = {shadow: math.fsum(ys) / len(ys) for shadow, ys in met.items()}
    calibrated = [means[shadow] for shadow in twin.shadows]
    distance = math.fsum(abs(a - b) for a, b in zip(forecasts, calibrated))
    assert distance <= forecaster.shadow_distance + 1e-9


@pytest.mark.statistical
@pytest.mark.parametrize("T", [100, 10_000, pytest.param(1_000_000, marks=pytest.mark.jit)])
def test_aheads_bound_on_long_streams(T):
    rng, t = np.random.default_rng(0), np.arange(T)
    streams = [(rng.random(T) < 0.75), rng.random(T) < 0.5 + 0.4 * np.sin(20.0 * t / T), t % 2, t * 2 < T]
    for y in (*streams, None):
        forecaster = AlmostOneStepAhead(AlmostOneStepAhead.levels_for(T))
        if y is None:
            game(forecaster, "gap", np.full(T, 0.5))
        else:
            forecaster.run(np.full(T, 0.5), np.asarray(y, dtype=float))
        assert np.abs(forecaster._buf[SUMS:]).max() <= 1.0
        assert forecaster.shadow_distance <= 2 * math.sqrt(T) + 1


# -- settings and documents ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FosterForecaster, AlmostOneStepAhead])
@pytest.mark.parametrize("m", [0, -1, 1_000_001, 2.0, True, None, "3"])
def test_a_wrong_number_of_levels_is_refused(kind, m):
    with pytest.raises(ValueError, match="m must be a whole number"):
        kind(m)


@pytest.mark.parametrize("seed", [-1, 2**53 + 1, 0.5, None])
def test_a_wrong_seed_is_refused(seed):
    with pytest.raises(ValueError, match="seed must be a whole number"):
        FosterForecaster(10, seed)


@pytest.mark.parametrize("T", [0, -1, 1.5])
def test_a_wrong_number_of_events_is_refused(T):
    for kind in (FosterForecaster, AlmostOneStepAhead):
        with pytest.raises(ValueError, match="T must be a whole number"):
            kind.levels_for(T)


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        (FosterForecaster, M, 3.0),
        (FosterForecaster, M, math.nan),
        (FosterForecaster, 1, 1.0),  # seed
        (FosterForecaster, LEARNED, 0.5),
        (FosterForecaster, LEARNED, -1.0),
        (FosterForecaster, LEARNED, math.inf),
        (FosterForecaster, PAIRS, -1.0),
        (FosterForecaster, PAIRS, math.inf),
        (FosterForecaster, PAIRS + 1, 1.0),  # outcomes without weight
        (FosterForecaster, PAIRS + 1, -1.0),
        (FosterForecaster, PAIRS + 7, math.nan),
        (AlmostOneStepAhead, M, 5.0),
        (AlmostOneStepAhead, MOVED, -1.0),
        (AlmostOneStepAhead, MOVED, math.nan),
        (AlmostOneStepAhead, SUMS, -0.5),
        (AlmostOneStepAhead, -1, 0.5),
        (AlmostOneStepAhead, SUMS + 1, math.inf),
        (AlmostOneStepAhead, SUMS + 2, math.nan),
    ],
)
def test_a_document_that_no_stream_can_write_is_refused(kind, place, value):
    hostile = kind(4)
    hostile._buf[place] = value
    with pytest.raises(ValueError, match="does not fit"):
        from_bytes(hostile.to_bytes())
