"""What has left a window leaves no trace in its sums, however large it was."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest
import strategies as sts
from hypothesis import given, settings
from hypothesis import strategies as st
from windows_cases import KINDS, WINDOWS, assert_cells, build, feed, feed_one, naive_cells, sums

from streamcal import Cumulative, Edges, EqualWidth, Fading, Quantile, Sliding

huge = st.tuples(sts.probabilities, sts.unit, st.just(1e16))
one_bin = st.tuples(st.sampled_from((0.41, 0.45, 0.5)), sts.unit, st.sampled_from((1.0, 1e9)))
mixed = st.tuples(st.sampled_from((0.3, 0.45, 0.5)), sts.binary, st.sampled_from((0.1, 0.3, 1.0, 1e16)))
one_bin_after = st.tuples(st.sampled_from((0.42, 0.44, 0.49)), sts.unit, st.just(1.0))


@pytest.mark.parametrize("one", [False, True], ids=["batch", "one"])
@pytest.mark.parametrize("name", ["sliding", "tumbling", "timed"])
@pytest.mark.parametrize(
    "before, after",
    [(huge, sts.events), (one_bin, one_bin_after), (sts.events, sts.plain_events), (mixed, mixed)],
    ids=["huge", "one-bin", "any", "mixed"],
)
@settings(max_examples=20)
@given(data=st.data())
def test_history_leaves_no_trace(name, one, before, after, data):
    """At every step after a prefix, the window equals the naive sums of its content alone.

    Down to 1e-25: what is below (a prediction of 1e-91 beside one of .1) is no probability.
    """
    kind, window = KINDS["width10"], WINDOWS[name]
    prefix = data.draw(sts.streams(before, 20))
    stream = prefix + data.draw(sts.streams(after, 25))
    w = feed(build(window, kind), prefix)
    for n in range(len(prefix), len(stream)):
        if one:
            feed_one(w, *stream[n], n)
        else:
            feed(w, stream[n : n + 1], start=n)
        assert_cells(sums(w), naive_cells(kind, stream, window.content(n + 1)), atol=1e-25)


@pytest.mark.parametrize("size", [2, 3, 7, 9, 11])
@pytest.mark.parametrize("before", [0, 1, 5, 10])
@pytest.mark.parametrize("factor", [10.0, 100.0, 1000.0, 1e5])
def test_weights_that_fall_step_by_step_leave_no_trace(factor, before, size):
    """From 1e16 down to 1, each a part of the last: no single step is large, all of them together are."""
    weights = [1.0] * before + [1e16 / factor**i for i in range(int(16 / math.log10(factor)))]
    stream = [(0.45, float(i % 3 == 0), w) for i, w in enumerate(weights + [1.0] * 3 * size)]
    w, kind = Sliding(EqualWidth(10), size), KINDS["width10"]
    for n, event in enumerate(stream):
        w.update(*event)
        content = [(i, 1.0) for i in naive.tail(list(range(n + 1)), size)]
        assert_cells(sums(w), naive_cells(kind, stream, content))


def test_sums_of_outcomes_that_have_left_are_zero():
    """The weights stay large, the positives leave: sum w y is exactly 0, and the p/a ratio infinite."""
    w = Sliding(EqualWidth(1), 3)
    for y, weight in ((1, 0.1), (1, 1e16), (1, 0.3), (0, 1e16), (0, 1.0), (0, 1.0)):
        w.update(0.3, y, weight)
    assert w.cells[0, 0, [4, 6, 7]].tolist() == [0.0, 0.0, 0.0]
    assert w.get("coverage") == 0.0 and w.get("pa_ratio") == math.inf


@pytest.mark.parametrize("size", [2, 5, 9, 11])
@pytest.mark.parametrize("factor", [1e3, 1e5, 1e10])
def test_losses_that_fall_step_by_step_leave_no_trace(factor, size):
    outcomes = [1.0] + [1e30 / factor**i for i in range(int(30 / math.log10(factor)))] + [1.0] * 3 * size
    w = Sliding(Edges((-1.0, 1.0)), size, claim=Quantile(0.5), loss="pinball")
    for n, y in enumerate(outcomes):
        w.update(0.0, y)
        tail = naive.tail(outcomes[: n + 1], size)
        want = math.fsum(naive.pinball_of(0.0, y, 0.5) for y in tail) / len(tail)
        assert w.get("pinball_loss") == pytest.approx(want, rel=1e-12)


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("outcomes", ["binary", "real", "weighted"])
def test_ten_million_slides_do_not_drift(outcomes):
    rng = np.random.default_rng(5)
    n, size = 1_000_000, 10_000
    p = rng.random(n)
    y = rng.random(n) if outcomes == "real" else (rng.random(n) < p).astype(float)
    w = rng.lognormal(0, 3, n) if outcomes == "weighted" else np.ones(n)
    sliding = Sliding(EqualWidth(15), size)
    for _ in range(10):
        for part in np.array_split(np.arange(n), 143):  # smaller than the window: every event slides
            sliding.update_many(p[part], y[part], w[part])
    for i in range(n - size // 2, n):
        sliding.update(p[i], y[i], w[i])
    tail = np.r_[n - size // 2 : n, n - size // 2 : n]
    fresh = Cumulative(EqualWidth(15))
    fresh.update_many(p[tail], y[tail], w[tail])
    assert_cells(sliding.cells, fresh.cells)


def test_a_loss_too_large_to_add_leaves_no_trace():
    w = Sliding(Edges([-math.inf, math.inf]), 2, claim=Quantile(0.9), loss="pinball")
    for _ in range(3):
        w.update(-0.8e308, 0.9e308)
    assert w.get("pinball_loss") == math.inf
    for _ in range(3):
        w.update(1.0, 2.0)
    assert w.get("pinball_loss") == pytest.approx(0.9)


def test_a_fading_window_forgets():
    """After 500 half-lives neither a bin nor an infinite loss is left of an event."""
    w = Fading(EqualWidth(10), 1.0, loss="log")
    w.update(0.0, 1)
    w.update_many([0.75] * 500, [1] * 500)
    assert w.report()["bins_used"] == 1
    assert w.get("log_loss") == pytest.approx(-math.log(0.75))
    assert w.get("mce") == pytest.approx(0.25)
