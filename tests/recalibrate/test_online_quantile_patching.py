"""Online patching of quantile forecasts: the textbook loop beside it, what each note says, drift, atoms, documents."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcal
from streamcal import Cumulative, Edges, EqualWidth, Fading, Levels, Mean, Quantile, Sliding, UniformMass
from streamcal.recalibrate.online_patching import MADE, PATCHES, OnlineQuantilePatch, OnlineQuantilePatching, covering
from streamcal.windows.sliding import FILLED, RING

INF = math.inf


def window_of(edges, size, level):
    return Sliding(Edges(edges), size, claim=Quantile(level))


def loss(v, y, q):
    return q * (y - v) if y >= v else (1 - q) * (v - y)


class Textbook:
    """The algorithm in plain Python over the list of the last events."""

    def __init__(self, level, alpha, significance, every, edges, size):
        self.q, self.alpha, self.a, self.every = level, alpha, significance / (len(edges) - 1), every
        self.edges, self.size = edges, size
        self.events, self.shifts, self.history, self.time = [], {}, [], 0

    def bin(self, v):
        return next(r for r, high in enumerate(self.edges[1:]) if v <= high)

    def predict(self, v):
        return v + self.shifts.get(self.bin(v), 0.0)

    def learn(self, v, y, w):
        if w > 0:
            self.events = [*self.events, (v, y, w)][-self.size :]
            self.time += 1
            if self.time % self.every == 0:
                self.patch()

    def window(self):
        found = defaultdict(list)
        for event in self.events:
            found[self.bin(event[0])].append(event)
        return found

    def gap(self, at, shift):
        return math.fsum(w for v, y, w in at if y <= v + shift) / math.fsum(w for _, _, w in at) - self.q

    def q2(self, window, shifts):
        total = math.fsum(w for _, _, w in self.events)
        mass = {r: math.fsum(w for _, _, w in at) / total for r, at in window.items()}
        return math.fsum(mass[r] * self.gap(at, shifts.get(r, 0.0)) ** 2 for r, at in window.items())

    def pinball(self, shifts):
        total = math.fsum(w for _, _, w in self.events)
        served = [(v + shifts.get(self.bin(v), 0.0), y, w) for v, y, w in self.events]
        return math.fsum(w * loss(v, y, self.q) for v, y, w in served) / total

    def quantile(self, at):
        """The least y - v that covers the share q, raised to where v + (y - v) is not rounded below y."""
        total, reached = math.fsum(w for _, _, w in at), 0.0
        for v, y, w in sorted(at, key=lambda e: e[1] - e[0]):
            reached += w
            shift = y - v
            if reached / total >= self.q - 1e-14:
                break
        while v + shift < y:
            shift = math.nextafter(shift, INF)
        return shift

    def choices(self, window, q2):
        for r, at in window.items():
            n = math.fsum(w for _, _, w in at) ** 2 / math.fsum(w * w for _, _, w in at)
            rho = 62.5 / (2 * math.log(1 / self.a) + 3)
            limit = math.sqrt((n / 4 + rho) * math.log((n / 4 + rho) / (rho * self.a**2))) / n
            gap, raw = abs(self.gap(at, self.shifts.get(r, 0.0))), abs(self.gap(at, 0.0))
            if r in self.shifts and raw <= gap and raw <= limit:
                yield r, None
            elif q2 > self.alpha and gap > limit:
                yield r, self.quantile(at)

    def changed(self, r, shift):
        return {k: s for k, s in {**self.shifts, r: shift}.items() if s is not None}

    def patch(self):
        window = self.window()
        while True:
            q2, before = self.q2(window, self.shifts), self.pinball(self.shifts)
            options = [(before - self.pinball(self.changed(r, s)), r, s) for r, s in self.choices(window, q2)]
            decrease, r, shift = max(options, key=lambda o: o[0], default=(0.0, 0, None))
            if decrease <= 1e-14:
                return
            self.shifts = self.changed(r, shift)
            after = self.q2(window, self.shifts)
            self.history.append((self.time, r, math.nan if shift is None else shift, decrease, q2, after))


def case_of(seed, level, n=200):
    """Forecasts in three bins that are right, then 2 too low or too high, then right."""
    rng = np.random.default_rng(seed)
    v, t = rng.normal(size=n), np.arange(n)
    off = np.where((t > 40) & (t < 110), rng.choice((-2.0, 2.0)), 0.0)
    noise = rng.normal(size=n)
    return v + np.quantile(noise, level), v + off + noise, 1.0 + rng.choice((0.01, 5.0)) * rng.random(n)


def test_shifts_and_forecasts_are_those_of_the_textbook():
    recovered = []

    @given(st.integers(0, 10_000), st.sampled_from((0.3, 0.5, 0.9)), st.sampled_from((0.0, 0.01)), st.integers(1, 4))
    def check(seed, level, alpha, every):
        edges, settings = [-INF, 0.0, 1.0, INF], {"level": level, "alpha": alpha, "significance": 0.9, "every": every}
        map = OnlineQuantilePatching(window=window_of(edges, 60, level), **settings)
        book = Textbook(edges=edges, size=60, **settings)
        for event in zip(*case_of(seed, level)):
            assert map.predict_one(event[0]) == pytest.approx(book.predict(event[0]), abs=1e-12)
            map.learn_one(*event)
            book.learn(*event)
        got = [(h.time, edges.index(h.low), h.shift, h.decrease, h.q2_before, h.q2_after) for h in map.history()]
        assert len(got) == len(book.history)
        np.testing.assert_allclose(
            np.array(got).reshape(-1, 6), np.array(book.history).reshape(-1, 6), rtol=0, atol=1e-12
        )
        assert map.q2 == pytest.approx(book.q2(book.window(), book.shifts), abs=1e-12)
        recovered.extend(h.recovered for h in map.history())

    check()
    assert len(recovered) >= 50
    assert sum(recovered) >= 5


halves = st.sampled_from([k / 2 for k in range(-3, 4)])
events = st.tuples(halves, halves, st.sampled_from((1.0, 1.0, 2.0, 0.25, 0.0)))


@given(st.lists(st.tuples(events, st.integers(1, 30)), min_size=1, max_size=8), st.sampled_from((0.1, 0.5, 0.9)))
def test_every_note_is_true_of_the_window_at_its_time(blocks, level):
    """Ties, atoms, weights: each note against the events themselves; the pinball loss falls by what it says."""
    edges = [-INF, -0.5, 0.5, INF]
    map = OnlineQuantilePatching(level, 0.0, window_of(edges, 40, level), significance=0.99, every=1)
    book = Textbook(level, 0.0, 0.99, 10**9, edges, 40)  # keeps the events, never patches
    for event in [e for e, times in blocks for _ in range(times)]:
        made = map.patches_made
        map.learn_one(*event)
        book.learn(*event)
        window = book.window()
        for note in map.history()[made:]:
            r = edges.index(note.low)
            at, after = window[r], book.changed(r, None if note.recovered else note.shift)
            assert note.gap == pytest.approx(book.gap(at, book.shifts.get(r, 0.0)), abs=1e-12)
            assert note.covered == pytest.approx(note.gap + level, abs=1e-12)
            assert note.recovered or abs(note.gap) > note.radius
            assert note.recovered or book.gap(at, note.shift) >= -1e-12
            assert 0.0 < note.decrease == pytest.approx(book.pinball(book.shifts) - book.pinball(after), abs=1e-12)
            assert note.q2_before == pytest.approx(book.q2(window, book.shifts), abs=1e-12)
            assert note.q2_after == pytest.approx(book.q2(window, after), abs=1e-12)
            book.shifts = after
        assert len(map.patches) <= 3


@given(st.floats(-1e100, 1e100), st.floats(-1e100, 1e100))
def test_the_outcome_that_decides_is_covered(v, y):
    """v + (y - v) can be rounded below y; and no more than a few ulps are given away."""
    shift = covering(v, y)
    assert v + shift >= y
    assert abs(shift - (y - v)) <= 8 * math.ulp(max(abs(v), abs(y)))


def test_in_a_bin_of_one_level_the_patch_is_the_quantile_of_its_outcomes():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 50, 500) / 7
    map = OnlineQuantilePatching(0.7, 0.0, Sliding(Levels([0.1, 5.0]), 500, claim=Quantile(0.7)))
    map.run(np.full(500, 0.1), y)
    last = int(map.history()[-1].time)
    want = next(b for b in np.sort(y[:last]) if np.mean(y[:last] <= b) >= 0.7)
    assert map.predict_one(0.1) == want
    assert map.predict_one(5.0) == 5.0


def test_the_quantile_of_seven_in_a_hundred():
    """.07 * 100 > 7 in floating point; 7 / 100 >= .07."""
    map = OnlineQuantilePatching(0.07, 0.0)
    map.run(np.full(100, 99.0), np.arange(1.0, 101.0))
    assert map.predict_one(99.0) == 7.0
    assert map.q2 == pytest.approx(0.0, abs=1e-30)


def test_an_atom_ends_the_loop_above_alpha():
    map = OnlineQuantilePatching(0.5, 0.0, every=100)
    map.run(np.ones(400), np.tile([0.0] * 8 + [1.0, 2.0], 40))
    assert [(h.time, h.shift) for h in map.history()] == [(100.0, -1.0)]
    assert map.q2 == pytest.approx(0.09)  # P(y <= 0) is .8


# ---------------------------------------------------------------------------- drift and calm


def normal_stream(seed, n=60_000, wide=(20_000, 40_000)):
    """(forecasts of the .9 quantile, outcomes): in the upper third the spread doubles for a while."""
    rng = np.random.default_rng(seed)
    v, t = rng.normal(size=n), np.arange(n)
    spread = np.where((v > 0.5) & (t >= wide[0]) & (t < wide[1]), 2.0, 1.0)
    return v + 1.2815515655446004, v + spread * rng.normal(size=n), t


EDGES = [-INF, 0.78, 1.78, INF]


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("seed", range(3))
def test_a_bin_goes_wrong_and_recovers(seed):
    v, y, t = normal_stream(seed)
    map = OnlineQuantilePatching(0.9, 1e-3, window_of(EDGES, 5000, 0.9))
    out = map.run(v, y)
    assert {h.low for h in map.history()} == {1.78}
    assert all(h.time > 20_000 for h in map.history())
    assert map.history()[-1].recovered
    assert map.patches == {}
    wrong = (v > 1.79) & (t >= 26_000) & (t < 40_000)
    raw, patched = (np.mean(y[wrong] <= f[wrong]) for f in (v, out))
    assert raw < 0.78
    assert patched == pytest.approx(0.9, abs=map.history()[-1].radius)
    losses = [np.where(y >= f, 0.9 * (y - f), 0.1 * (f - y))[wrong].mean() for f in (v, out)]
    assert losses[1] < losses[0]


@pytest.mark.statistical
@pytest.mark.jit
def test_right_forecasts_are_left_alone():
    made = 0
    for seed in range(10):
        v, y, _ = normal_stream(seed, wide=(0, 0))
        map = OnlineQuantilePatching(0.9, 0.0, window_of(EDGES, 5000, 0.9))
        map.run(v, y)
        made += map.patches_made
    assert made <= 1


# ---------------------------------------------------------------------------- history, settings, documents


def test_a_patch_in_words():
    patch = OnlineQuantilePatch(2100.0, -INF, 1.5, 0.8412, 0.71, 512.3, 0.5, -0.19, 0.05, 0.01, 0.0361, 0.0)
    assert str(patch) == (
        "event 2100: forecasts in (-inf, 1.5] shifted by +0.841 "
        "(covered 0.71, not 0.9 +- 0.05, in 512 events, Q2 0.0361 -> 0.0000)"
    )
    assert "(-inf, 1.5] recovered (covered" in str(patch._replace(shift=math.nan))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"level": 1.0}, "level must lie in"),
        ({"alpha": -1.0}, "alpha must lie in"),
        ({"every": 0}, "every must be"),
        ({"remember": 0}, "remember must be"),
        ({"significance": 2}, "significance must lie in"),
        (
            {"window": Cumulative(Levels([0.0]), claim=Quantile(0.9))},
            "window must be a Sliding: a quantile needs the events",
        ),
        ({"window": Fading(Levels([0.0]), 50, claim=Quantile(0.9))}, "window must be a Sliding"),
        ({"window": Sliding(Levels([0.0]), 50)}, "claim"),
        ({"window": Sliding(Levels([0.0]), 50, claim=Quantile(0.8))}, "claim"),
        ({"window": Sliding(Levels([0.0]), 50, claim=Mean())}, "claim"),
        ({"window": Sliding(Edges([0.0, 1.0]), 50, claim=Quantile(0.9))}, "Edges from -inf to inf"),
        ({"window": Sliding(UniformMass(5), 50, claim=Quantile(0.9))}, "Edges from -inf to inf"),
        ({"window": Sliding(EqualWidth(5), 50, claim=Quantile(0.9))}, "Edges from -inf to inf"),
    ],
)
def test_refusals_say_what_is_allowed(arguments, message):
    with pytest.raises(ValueError, match=message):
        OnlineQuantilePatching(**arguments)


@pytest.mark.parametrize(
    "event", [(math.nan, 0.0), (math.inf, 0.0), (2e100, 0.0), (0.0, math.nan), (0.0, -math.inf), (None, 0.0)]
)
def test_bad_events_are_refused_and_change_nothing(event):
    map = OnlineQuantilePatching()
    before = map.to_bytes()
    with pytest.raises(ValueError, match="must lie in"):
        map.learn_one(*event)
    assert map.to_bytes() == before


def test_extreme_numbers_stay_finite():
    map = OnlineQuantilePatching(0.5, 0.0, every=10)
    out = map.run(np.tile([1e100, -1e100], 50), np.tile([-1e100, 1e100], 50))
    assert np.isfinite(out).all()
    assert math.isfinite(map.predict_one(1e100))
    assert streamcal.from_bytes(map.to_bytes()).patches == map.patches


def test_restored_in_the_middle_it_goes_on_to_the_bit():
    v, y, w = case_of(7, 0.5, 900)
    make = lambda: OnlineQuantilePatching(0.5, 0.0, window_of([-INF, 0.0, INF], 50, 0.5), 0.9, every=7, remember=3)  # noqa: E731
    whole, map, parts = make(), make(), []
    out = whole.run(v, y, w)
    for i in range(0, 900, 150):
        map = streamcal.from_bytes(map.to_bytes())
        parts.append(map.run(v[i : i + 150], y[i : i + 150], w[i : i + 150]))
    assert whole.patches_made > 3
    assert np.concatenate(parts).tobytes() == out.tobytes()
    assert map._buf.tobytes() == whole._buf.tobytes()


@pytest.mark.parametrize(
    ("place", "value"), [(MADE, 0.5), (PATCHES, 1e300), (PATCHES, INF), (PATCHES + 1, -7.0), (-1, 5.0)]
)
def test_a_document_with_impossible_numbers_is_refused(place, value):
    map = OnlineQuantilePatching(0.5)
    map.run([0.0] * 200, [1, 2, 3, 4] * 50)
    map._own[place] = value
    with pytest.raises(ValueError, match="do not fit"):
        streamcal.from_bytes(map.to_bytes())


def test_sums_and_events_of_a_document_that_fit_nowhere_do_no_harm():
    rng = np.random.default_rng(5)
    map = OnlineQuantilePatching(0.5, 0.0, window_of([-INF, 0.0, INF], 30, 0.5), 0.9, every=1)
    map.run(rng.normal(size=60), rng.normal(size=60) + 3)
    cells = map.window._layout.cells(map.window._buf)[0]
    ring = map.window._rings.reshape(-1)
    for at, choices in ((cells, [0.0, 1.0, -3.0, 1e9, 1e-9]), (ring, [0.0, math.nan, math.inf, -1.0, 1e300])):
        at[:] = rng.choice(choices, at.shape)
        with pytest.raises(ValueError, match="does not fit"):
            streamcal.from_bytes(map.to_bytes())


def test_a_window_without_its_ring_holds_no_events():
    """A document that says so of a window with events is refused: nothing is read beyond the buffer, and nothing learned."""
    map = OnlineQuantilePatching(0.5, 0.0, window_of([-INF, INF], 100_000, 0.5), every=1)
    map.run([0.0] * 20, [1.0] * 20)
    states = map.window._states
    states[0, RING], states[0, FILLED] = -1.0, 100_000.0
    map._own[PATCHES] = 1.0
    with pytest.raises(ValueError, match="too small for what its config asks"):
        streamcal.from_bytes(map.to_bytes())
