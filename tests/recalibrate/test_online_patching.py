"""Online patching of means: the textbook loop beside it, what each note says, the evidence, drift, documents."""

from __future__ import annotations

import functools
import math
from collections import defaultdict

import numpy as np
import pytest
import strategies as sts
from conftest import sized
from hypothesis import given
from hypothesis import strategies as st

import streamcal
from streamcal import Cumulative, EqualWidth, Fading, Grid, Quantile, Sliding, Tumbling, UniformMass
from streamcal.confidence import anytime_radius
from streamcal.recalibrate.online_patching import (
    ALPHA,
    FIELDS,
    MADE,
    PATCHES,
    REMEMBER,
    TIME,
    OnlinePatch,
    OnlinePatching,
)

KINDS = ("cumulative", "sliding", "fading")


def window_of(kind, m, size):
    return {"cumulative": Cumulative, "sliding": Sliding, "fading": Fading}[kind](
        Grid(m), *[size][: kind != "cumulative"]
    )


def radius(n, significance, m):
    """Theory D1 (i), the normal mixture, with error significance / (m + 1)."""
    a = significance / (m + 1)
    v, rho = n / 4, 62.5 / (2 * math.log(1 / a) + 3)
    return math.sqrt((v + rho) * math.log((v + rho) / (rho * a**2))) / n


class Textbook:
    """The algorithm in plain Python over a list of events; every sum is taken anew."""

    def __init__(self, m, alpha, significance, every, kind, size):
        self.m, self.alpha, self.significance, self.every, self.kind, self.size = (
            m,
            alpha,
            significance,
            every,
            kind,
            size,
        )
        self.events, self.patches, self.history, self.time = [], {}, [], 0

    def level(self, p):
        """The nearest of 0, 1/m, ..., 1; half way the lower one, by the one bin rule of the house."""
        return int(Grid(self.m).bins([p])[0])

    def predict(self, p):
        return self.patches.get(self.level(p), p)

    def learn(self, p, y, w):
        if w == 0:
            return
        self.events.append((self.level(p), p, y, w))
        self.time += 1
        if self.time % self.every == 0:
            self.patch()

    def window(self):
        """level -> [(p, y, weight now)]"""
        last, found = len(self.events) - 1, defaultdict(list)
        for i, (k, p, y, w) in enumerate(self.events):
            age = last - i
            if self.kind == "sliding" and age >= self.size:
                continue
            found[k].append((p, y, w * 2 ** (-age / self.size) if self.kind == "fading" else w))
        return found

    def squared_error(self, window, patches):
        total = math.fsum(w for at in window.values() for _, _, w in at)
        return math.fsum(w * (y - patches.get(k, p)) ** 2 for k, at in window.items() for p, y, w in at) / total

    def gap(self, at, served):
        weight = math.fsum(w for _, _, w in at)
        return math.fsum(w * (y - (p if served is None else served)) for p, y, w in at) / weight

    def k2(self, window, patches):
        weight = {k: math.fsum(w for _, _, w in at) for k, at in window.items()}
        total = math.fsum(weight.values())
        return math.fsum(weight[k] / total * self.gap(at, patches.get(k)) ** 2 for k, at in window.items())

    def choices(self, window, k2):
        """(level, what it should serve) of every level that should change."""
        for k, at in window.items():
            n = math.fsum(w for _, _, w in at) ** 2 / math.fsum(w * w for _, _, w in at)
            limit = radius(n, self.significance, self.m)
            gap, raw = abs(self.gap(at, self.patches.get(k))), abs(self.gap(at, None))
            if k in self.patches and raw <= gap and raw <= limit:
                yield k, None
            elif k2 > self.alpha and gap > limit:
                yield k, math.fsum(w * y for _, y, w in at) / math.fsum(w for _, _, w in at)

    def changed(self, k, value):
        patches = {**self.patches, k: value}
        if value is None:
            del patches[k]
        return patches

    def patch(self):
        window, touched = self.window(), set()
        while True:
            k2, before = self.k2(window, self.patches), self.squared_error(window, self.patches)
            options = [
                (before - self.squared_error(window, self.changed(k, v)), k, v) for k, v in self.choices(window, k2)
            ]
            decrease, k, value = max(options, key=lambda o: o[0], default=(0.0, 0, None))
            if decrease <= 1e-14:
                return
            assert k not in touched, "the textbook loop came back to a level"
            touched.add(k)
            self.patches = self.changed(k, value)
            after = self.k2(window, self.patches)
            assert after <= k2 + 1e-15
            self.history.append((self.time, k, math.nan if value is None else value, decrease, k2, after))


@st.composite
def cases(draw):
    """(settings, stream): levels that drift away and back, some jitter within a level, real weights so that nothing ties."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    m, n = draw(st.sampled_from((1, 1, 2, 3))), 150
    p = np.clip(rng.integers(0, m + 1, n) / m + draw(st.sampled_from((0.0, 0.02, 0.2))) * rng.normal(size=n), 0, 1)
    t = np.arange(n)
    truth = np.where((t > 30) & (t < 80), 1 - p, p)
    y = (rng.random(n) < truth).astype(float) if draw(st.booleans()) else np.clip(truth + rng.normal(0, 0.1, n), 0, 1)
    w = 1.0 + draw(st.sampled_from((0.01, 10.0))) * rng.random(n)
    w[rng.random(n) < 0.05] = 0.0
    settings = {
        "m": m,
        "alpha": draw(st.sampled_from((0.0, 1e-3, 0.02))),
        "significance": draw(st.sampled_from((0.05, 0.9, 0.99))),
        "every": draw(st.sampled_from((1, 1, 3))),
    }
    return settings, draw(st.sampled_from((20, 50))), (p, y, w)


@pytest.mark.parametrize("kind", KINDS)
def test_patches_and_predictions_are_those_of_the_textbook(kind):
    recovered = []  # of each change: a twin of something that never changes would be no test

    @given(cases())
    def check(case):
        settings, size, (p, y, w) = case
        map = OnlinePatching(window=window_of(kind, settings["m"], size), **settings)
        book = Textbook(kind=kind, size=size, **settings)
        for event in zip(p, y, w):
            assert map.predict_one(event[0]) == pytest.approx(book.predict(event[0]), abs=1e-12)
            map.learn_one(*event)
            book.learn(*event)
        got = [(h.time, h.level * map.m, h.value, h.decrease, h.k2_before, h.k2_after) for h in map.history()]
        assert len(got) == len(book.history)
        np.testing.assert_allclose(
            np.array(got).reshape(-1, 6), np.array(book.history).reshape(-1, 6), rtol=0, atol=1e-12
        )
        assert map.patches == {k / map.m: pytest.approx(v, abs=1e-12) for k, v in book.patches.items()}
        recovered.extend(h.recovered for h in map.history())

    check()
    assert len(recovered) >= 50
    assert kind == "cumulative" or sum(recovered) >= 10


@st.composite
def runs(draw):
    """Events that come again and again: edges, ties, tiny and mixed weights, and enough of them to be evidence."""
    blocks = draw(st.lists(st.tuples(sts.events, st.integers(1, 30)), min_size=1, max_size=8))
    return [event for event, times in blocks for _ in range(times)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_note_is_true_of_the_window_at_its_time(kind):
    """Each note against the events themselves, replayed change by change."""
    recovered = []

    @given(runs(), st.sampled_from((1, 2, 10, 29)), st.integers(1, 3))
    def check(events, m, remember):
        map = OnlinePatching(m, 0.0, window_of(kind, m, 40), significance=0.99, remember=remember)
        book = Textbook(m, 0.0, 0.99, 10**9, kind, 40)  # keeps the events, never patches
        for event in events:
            made, patches = map.patches_made, dict(map.patches)
            map.learn_one(*event)
            book.learn(*event)
            notes, new = map.history(), map.patches_made - made
            assert len(notes) == min(map.patches_made, remember)
            assert len(map.patches) <= m + 1
            assert 0.0 <= map.predict_one(event[0]) <= 1.0
            if 0 < new <= len(notes):  # else the ring has lost some of this event's
                check_notes(book, patches, notes[len(notes) - new :])
                recovered.extend(h.recovered for h in notes[len(notes) - new :])
        now = {round(level * m): value for level, value in map.patches.items()}
        assert map.k2 == pytest.approx(book.k2(book.window(), now) if book.events else 0.0, abs=1e-12)

    check()
    assert len(recovered) >= 10  # the streams do lead to changes


def check_notes(book, patches, notes):
    window = book.window()
    total = math.fsum(w for at in window.values() for _, _, w in at)
    book.patches = {round(level * book.m): value for level, value in patches.items()}
    for note in notes:
        k = round(note.level * book.m)
        at = window[k]
        weight, outcome = math.fsum(w for _, _, w in at), math.fsum(w * y for _, y, w in at)
        gap = book.gap(at, book.patches.get(k))
        after = book.changed(k, None if note.recovered else note.value)
        assert note.time == len(book.events)
        assert note.mass == pytest.approx(weight / total, abs=1e-12)
        assert note.events == pytest.approx(weight**2 / math.fsum(w * w for _, _, w in at), rel=1e-9)
        assert note.gap == pytest.approx(gap, abs=1e-12)
        assert note.was == pytest.approx(outcome / weight, abs=1e-12)
        assert note.radius == pytest.approx(radius(note.events, book.significance, book.m), rel=1e-12)
        assert note.recovered or (abs(note.gap) > note.radius and note.value == pytest.approx(note.was, abs=1e-12))
        squares = book.squared_error(window, book.patches) - book.squared_error(window, after)
        assert 0.0 < note.decrease == pytest.approx(squares, abs=1e-12)
        assert note.k2_before == pytest.approx(book.k2(window, book.patches), abs=1e-12)
        assert note.k2_after == pytest.approx(book.k2(window, after), abs=1e-12)
        assert note.k2_after <= note.k2_before + 1e-15
        book.patches = after


# ---------------------------------------------------------------------------- the evidence


@pytest.mark.parametrize("a", [0.05, 0.05 / 21, 1e-4])
@pytest.mark.parametrize(("n", "cost"), [(50, 1.10), (250, 1.01), (2500, 1.10), (100_000, 1.25)])
def test_the_radius_is_near_the_best_normal_mixture(n, cost, a):
    """Theory D1 (i) over all rho at this n; ours has one rho for all n, as it must to hold at all of them."""
    rho = np.geomspace(1e-3, 1e5, 4000)
    best = (np.sqrt((n / 4 + rho) * np.log((n / 4 + rho) / (rho * a**2))) / n).min()
    assert best <= anytime_radius(float(n), 2 * math.log(1 / a)) * (1 + 1e-9) <= cost * best


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("p", [0.5, 0.05])
def test_the_radius_holds_at_all_times_at_once(p):
    """600 walks of 20,000 steps at a = .05: seldom outside at any time (binomial, 3 standard errors)."""
    rng, n = np.random.default_rng(1), np.arange(1.0, 20_001.0)
    limit = np.array([anytime_radius(k, 2 * math.log(1 / 0.05)) for k in n])
    ever = sum((np.abs(np.cumsum((rng.random(n.size) < p) - p)) / n > limit).any() for _ in range(600))
    assert ever <= 600 * 0.05 + 3 * math.sqrt(600 * 0.05 * 0.95)


@pytest.mark.statistical
@pytest.mark.jit
def test_a_calibrated_stream_is_left_alone_for_good():
    """Cumulative: no patch with probability .95, however long (100 streams of 20,000, alpha 0; 3 standard errors)."""
    touched = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        p = rng.random(20_000)
        map = OnlinePatching(alpha=0.0)
        map.run(p, (rng.random(p.size) < p).astype(float))
        touched += map.patches_made > 0
    assert touched <= 100 * 0.05 + 3 * math.sqrt(100 * 0.05 * 0.95)


@pytest.mark.jit
@pytest.mark.parametrize(
    "window", [Cumulative(Grid(20)), Sliding(Grid(20), 10_000), Fading(Grid(20), 5_000)], ids=KINDS
)
def test_a_calibrated_stream_loses_next_to_nothing(window):
    """Prequential Brier rises by at most m / (6 n) and two standard errors (theory A2b), even at alpha = 0; hardly a patch."""
    n, rises, made = 100_000, [], 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        p = rng.random(n)
        y = (rng.random(n) < p).astype(float)
        map = OnlinePatching(alpha=0.0, window=window)
        rises.append(np.mean((map.run(p, y) - y) ** 2 - (p - y) ** 2))
        made += map.patches_made
    assert np.mean(rises) <= 20 / (6 * n) + 2 * np.std(rises, ddof=1) / math.sqrt(5)
    assert made <= 3


def test_weights_are_no_evidence_and_their_unit_does_not_matter():
    rng = np.random.default_rng(3)
    p, w = rng.integers(0, 6, 600) / 5, rng.random(600)
    y = (rng.random(600) < 0.8 * p).astype(float)
    maps = [OnlinePatching(5, window=Sliding(Grid(5), 300)) for _ in range(3)]
    outs = [map.run(p, y, k * w) for map, k in zip(maps, (1.0, 2.0**-40, 2.0**40))]
    assert maps[0].patches_made > 0
    for map, out in zip(maps, outs):
        np.testing.assert_array_equal(np.array(map.history()), np.array(maps[0].history()))
        np.testing.assert_array_equal(out, outs[0])


def test_squares_of_tiny_weights_are_no_evidence():
    map = OnlinePatching(1, 0.0, significance=0.99)
    for _ in range(50):
        map.learn_one(1.0, 0.0, 1e-170)
    assert map.history() == []
    assert streamcal.from_bytes(map.to_bytes()).k2 == map.k2


# ---------------------------------------------------------------------------- drift

LEVELS = np.array([0.2, 0.4, 0.6, 0.7, 0.8])
BAD = {0.2: 0.5, 0.7: 0.4, 0.8: 0.5}  # from event 20,000 on; .2 and .7 are right again from 60,000 on


def drifting(seed, uniform=False, n=100_000):
    """(p, y): calibrated forecasts, of which the levels in BAD go wrong."""
    rng = np.random.default_rng(seed)
    p, t = rng.random(n) if uniform else rng.choice(LEVELS, n), np.arange(n)
    level, truth = np.rint(20 * p) / 20, p.copy()
    for bad, rate in BAD.items():
        truth[(level == bad) & (t >= 20_000) & ((t < 60_000) | (bad == 0.8))] = rate
    return p, (rng.random(n) < truth).astype(float)


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("size", [5_000, 10_000])
@pytest.mark.parametrize("seed", range(5))
def test_three_levels_go_wrong_and_two_recover(seed, size):
    """K2 of what is served is at or below alpha from 3,000 events after each change on; only those levels are ever patched.

    What is not significant stays: K2 can be promised down to the radius squared times the share of the three levels, .6, and
    the noise of five means, 5 / (4 size). Alpha is that.
    """
    alpha = 0.6 * radius(size / 5, 0.05, 20) ** 2 + 5 / (4 * size)
    p, y = drifting(seed)
    map, over = OnlinePatching(alpha=alpha, window=Sliding(Grid(20), size)), []
    for i in range(0, p.size, 100):
        map.run(p[i : i + 100], y[i : i + 100])
        if map.k2 > alpha:
            over.append(i + 100)
    assert not [t for t in over if 23_000 < t <= 60_000 or t > 63_000]
    assert {h.level for h in map.history()} == set(BAD)
    assert all(h.time > 20_000 for h in map.history())
    last = {h.level: h for h in map.history()}
    assert last[0.2].recovered and last[0.7].recovered and not last[0.8].recovered
    assert list(map.patches) == [0.8]
    assert map.patches[0.8] == pytest.approx(0.5, abs=last[0.8].radius)


@pytest.mark.statistical
@pytest.mark.jit
def test_it_pays_while_levels_are_wrong():
    p, y = drifting(0, uniform=True)
    out = OnlinePatching(window=Sliding(Grid(20), 10_000)).run(p, y)
    gained = ((p - y) ** 2 - (out - y) ** 2)[30_000:60_000]
    assert gained.mean() - 4 * gained.std() / math.sqrt(gained.size) > 0
    best = sum((bad - rate) ** 2 for bad, rate in BAD.items()) / 20
    assert gained.mean() > 0.7 * best


def test_a_patch_is_not_made_where_the_predictions_know_more():
    """m = 1: .1 + p happens, so the level is off by .1, but its mean .3 is a worse forecast than 0 and .4."""
    map, n = OnlinePatching(1, 0.0), sized(2000, 400)
    map.run([0.0, 0.4] * n, [0.1, 0.5] * n)
    assert map.k2 == pytest.approx(0.01)
    assert anytime_radius(2.0 * n, 2 * math.log(2 / 0.05)) < 0.1
    assert map.history() == []
    tight = OnlinePatching(10, 0.0)
    tight.run([0.0, 0.4] * n, [0.1, 0.5] * n)
    assert tight.patches == {0.0: pytest.approx(0.1), 0.4: pytest.approx(0.5)}


def test_recovery_does_not_wait_for_alpha():
    """A patch that is worse than none goes, however small K2 is."""
    map = OnlinePatching(10, alpha=0.01, window=Sliding(Grid(10), 400))
    other = np.full(400, 0.3), np.tile([1.0] * 3 + [0.0] * 7, 40)
    map.run(
        np.concatenate([np.full(200, 0.7), other[0][:200]]), np.concatenate([np.tile([1.0, 0.0], 100), other[1][:200]])
    )
    assert map.patches == {0.7: pytest.approx(0.5, abs=0.01)}
    map.run(
        np.tile([0.7] + [0.3] * 9, 40),
        np.concatenate([[1.0, 1, 1, 1, 0, 0, 0, 0, 0, 0], np.tile([1.0] * 3 + [0.0] * 7, 39)]),
    )
    assert map.patches == {}
    assert map.history()[-1].recovered
    assert map.history()[-1].k2_before < map.alpha
    assert map.predict_one(0.69) == 0.69


def test_a_level_out_of_the_window_keeps_its_patch():
    map = OnlinePatching(10, window=Sliding(Grid(10), 100))
    map.run([0.7] * 100, [1, 0] * 50)
    value = map.patches[0.7]
    map.run([0.2] * 300, [1, 0, 0, 0, 0] * 60)
    assert map.patches == {0.7: value}
    fading = OnlinePatching(10, window=Fading(Grid(10), 50))
    fading.run([0.7] * 100, [0] * 100)
    made = fading.patches_made
    n = sized(12_000, 1_000)
    fading.run([0.2] * 5 * n, [1, 0, 0, 0, 0] * n)
    assert 0.7 in fading.patches
    assert fading.patches_made == made


def test_a_window_that_has_run_is_patched_at_the_first_look():
    window = Cumulative(Grid(10))
    window.update_many([0.7] * 200, [1, 0] * 100)
    map = OnlinePatching(10, window=window, every=3)
    assert map.predict_one(0.7) == 0.7
    map.run([0.2, 0.2], [0, 0])
    assert map.history() == []
    map.learn_one(0.2, 1)
    assert [(h.time, h.level, h.value) for h in map.history()] == [(3.0, 0.7, 0.5)]
    assert window.get("k2") == pytest.approx(0.04)  # ours was a copy


# ---------------------------------------------------------------------------- history, report, settings


def restless():
    """Every 80 events the one level turns round: many changes."""
    return [0.5] * 2000, [float((i // 80) % 2) for i in range(2000)]


def test_the_history_is_a_ring():
    p, y = restless()
    long, short = (OnlinePatching(2, window=Sliding(Grid(2), 40), remember=k) for k in (1000, 7))
    np.testing.assert_array_equal(long.run(p, y), short.run(p, y))
    assert long.patches_made == short.patches_made == len(long.history()) > 20
    words = [str(h) for h in long.history()]
    assert [str(h) for h in short.history()] == words[-7:] != words[:7]
    assert [h.time for h in long.history()] == sorted(h.time for h in long.history())


def test_a_patch_in_words():
    patch = OnlinePatch(20412.0, 0.7, 0.5504, 0.7, 412.2, 0.05, -0.1496, 0.06, 0.001, 0.00312, 0.0004)
    assert str(patch) == (
        "event 20412: level 0.7 -> 0.55 (said 0.70, was 0.55 +- 0.06 in 412 events, K2 0.0031 -> 0.0004)"
    )
    back = patch._replace(value=math.nan, said=0.5504, gap=0.1396)
    assert str(back) == (
        "event 20412: level 0.7 recovered (said 0.55, was 0.69 +- 0.06 in 412 events, K2 0.0031 -> 0.0004)"
    )


def test_the_report_tells_the_history():
    map = OnlinePatching(2, window=Sliding(Grid(2), 40))
    map.run(*restless())
    report = map.report()
    assert report["patches_made"] == map.patches_made
    assert report["history"] == [str(h) for h in map.history()[-20:]]
    assert report["after"]["metrics"]["brier"]["value"] < report["before"]["metrics"]["brier"]["value"]


def test_the_default_alpha_is_half_a_step_squared():
    assert OnlinePatching(m=50).alpha == 1e-4
    assert OnlinePatching().alpha == 0.000625


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"m": 0}, "m must be a whole number"),
        ({"m": True}, "m must be a whole number"),
        ({"alpha": -1e-9}, "alpha must lie in"),
        ({"alpha": math.nan}, "alpha must lie in"),
        ({"significance": 0.0}, "significance must lie in"),
        ({"significance": 1.0}, "significance must lie in"),
        ({"every": 0}, "every must be a whole number"),
        ({"remember": 0}, "remember must be a whole number in 1..100000, got 0"),
        ({"remember": 10**6}, "remember must be"),
        ({"window": Sliding(EqualWidth(20), 100)}, r"bins Grid\(20\), got Sliding\(EqualWidth"),
        ({"window": Sliding(Grid(10), 100)}, r"bins Grid\(20\)"),
        ({"window": 5000}, r"bins Grid\(20\), got 5000"),
        ({"window": Tumbling(Grid(20), 100)}, "one of Cumulative, Sliding, Fading"),
        ({"window": Sliding(Grid(20), 100, keys=2)}, "one key"),
        ({"window": Cumulative(UniformMass(15))}, r"bins Grid\(20\)"),
        ({"window": Sliding(Grid(20), 100, claim=Quantile(0.9))}, "claim"),
        ({"level": 0.9}, "for quantile forecasts use OnlineQuantilePatching"),
    ],
)
def test_refusals_say_what_is_allowed(arguments, message):
    with pytest.raises(ValueError, match=message):
        OnlinePatching(**arguments)


# ---------------------------------------------------------------------------- documents


@pytest.mark.parametrize("kind", KINDS)
def test_restored_in_the_middle_it_goes_on_to_the_bit(kind):
    rng = np.random.default_rng(4)
    p = rng.integers(0, 5, 900) / 4
    y = (rng.random(900) < np.where(np.arange(900) % 500 < 250, p, 1 - p)).astype(float)
    w = rng.random(900)
    whole = OnlinePatching(4, window=window_of(kind, 4, 100), remember=5)
    out = whole.run(p, y, w)
    parts, map = [], OnlinePatching(4, window=window_of(kind, 4, 100), remember=5)
    for i in range(0, 900, 150):
        map = streamcal.from_bytes(map.to_bytes())
        parts.append(map.run(p[i : i + 150], y[i : i + 150], w[i : i + 150]))
    assert whole.patches_made > 2
    assert np.concatenate(parts).tobytes() == out.tobytes()
    assert [str(h) for h in map.history()] == [str(h) for h in whole.history()]
    assert map._buf.tobytes() == whole._buf.tobytes()


@functools.cache
def patched_document():
    map = OnlinePatching(2, window=Sliding(Grid(2), 40), remember=5)
    map.run(*restless())
    return map.to_bytes()


def hostile(change):
    """A document of a patched map in which one of our own numbers was changed."""
    map = streamcal.from_bytes(patched_document())
    change(map._own)
    return map.to_bytes()


def put(place, value):
    def change(own):
        own[place] = value

    return change


NOTES = PATCHES + 3


@pytest.mark.parametrize(
    "change",
    [
        put(0, 2.0),
        put(ALPHA, 0.5),
        put(ALPHA + 1, 0.0),
        put(ALPHA + 2, 0.0),
        put(ALPHA + 2, math.nan),
        put(REMEMBER, 1e9),
        put(REMEMBER, 0.0),
        put(TIME, 0.5),
        put(TIME, -1.0),
        put(TIME, 1e300),
        put(TIME, math.nan),
        put(MADE, -1.0),
        put(MADE, 3.5),
        put(MADE, math.inf),
        put(PATCHES, 1.5),
        put(PATCHES, -math.inf),
        put(-1, 3.0),
        put(-1, 1e12),
        put(NOTES, 1e9),
        put(NOTES, -1.0),
        put(NOTES + 1, 3.0),
        put(NOTES + 1, 0.5),
        put(NOTES + 2, 2.0),
        put(NOTES + 3, math.nan),
        put(NOTES + FIELDS + 10, math.inf),
    ],
)
def test_a_document_with_impossible_numbers_is_refused(change):
    with pytest.raises(ValueError, match="do not fit"):
        streamcal.from_bytes(hostile(change))


def test_an_untouched_document_is_not():
    assert streamcal.from_bytes(hostile(lambda own: None)).patches_made > 20


def test_any_possible_numbers_in_a_document_end_and_stay_in_range():
    """Patches, counts and sums that fit together nowhere are refused, or the loop ends and predictions stay in [0, 1]."""
    rng = np.random.default_rng(5)
    for kind in KINDS:
        map = OnlinePatching(3, 0.0, window_of(kind, 3, 20), significance=0.9, remember=2)
        map.run(rng.random(30), rng.random(30))
        cells = map.window._layout.cells(map.window._buf)[0]
        cells[:] = rng.choice([0.0, 1.0, -3.0, 1e9, 1e-9], cells.shape)
        map._own[PATCHES : PATCHES + 4] = rng.choice([math.nan, 0.0, 1.0], 4)
        try:
            again = streamcal.from_bytes(map.to_bytes())
        except ValueError:  # counts or sums that no events have
            continue
        out = again.run(rng.random(200), rng.random(200))
        assert ((out >= 0) & (out <= 1)).all()
