"""Outcomes that were not what they seemed: events taken back from a Timed window, corrected in a Sliding one."""

from __future__ import annotations

import math
import time

import naive
import numpy as np
import pytest
import strategies as sts
from hypothesis import given, settings
from hypothesis import strategies as st
from windows_cases import KINDS, SIZE, assert_cells, every_kind, naive_cells, sums

from streamcal import EqualWidth, Quantile, Sliding, Timed, UniformMass

PERIOD, PANES = 60.0, 6
few = settings(max_examples=25)


def timed(kind, **options):
    return Timed(kind.binning, PERIOD, PANES, PERIOD, **kind.options, **options)


def pane(t):
    return naive.pane(t, PERIOD / PANES)


def columns(events):
    return [list(c) for c in zip(*events)]


@st.composite
def moved(draw, kind, keys=1):
    """Events with times and keys, and which of them are taken back after which step."""
    stream = draw(sts.streams(kind.raw, 25, min_size=1))
    n = len(stream)
    key = draw(st.lists(st.integers(0, keys - 1), min_size=n, max_size=n))
    return stream, draw(sts.times(n, 8.0)), key, draw(st.lists(st.integers(0, n - 1), unique=True))


@every_kind
@few
@given(data=st.data())
def test_what_stays_in_a_timed_window_is_what_was_not_taken_back(kind, data):
    stream, t, key, back = data.draw(moved(kind, 2))
    cut = data.draw(st.integers(0, len(stream)))
    window = timed(kind, keys=2)
    kept, mark = [], -math.inf
    for part, gone in (((0, cut), back), ((cut, len(stream)), [])):
        for i in range(*part):
            window.update(*stream[i], t=t[i], key=key[i])
            mark = max(mark, t[i])
            if pane(t[i]) > pane(mark) - PANES:
                kept.append((t[i], (key[i], stream[i])))
        gone = [i for i in gone if i < cut]
        if gone:
            raw, y, w = columns([stream[i] for i in gone])
            taken = window.take_back_many(raw, y, w, key=[key[i] for i in gone], t=[t[i] for i in gone])
            pairs = [(t[i], (key[i], stream[i])) for i in gone]
            kept, count = naive.taken_back(kept, pairs, pane, pane(mark), PANES)
            assert taken == count
        inside = [event for when, event in kept if pane(when) > pane(mark) - PANES]
        most = max([1.0, *(w * w for _, _, w in stream)])
        for k in range(2):
            want = naive_cells(kind, [e for _, e in inside], [(i, 1.0) for i, (at, _) in enumerate(inside) if at == k])
            got = sums(window)[k * kind.keys : (k + 1) * kind.keys]
            np.testing.assert_array_equal(got[..., 0], want[..., 0])
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14 * len(stream) * most)
    assert window.watermark == mark or not stream


@few
@given(data=st.data())
def test_sums_of_zeros_and_ones_are_exact(data):
    kind = KINDS["binary"]
    event = st.tuples(sts.probabilities, sts.binary, st.just(1.0))
    stream = data.draw(st.lists(event, min_size=1, max_size=40))
    gone = data.draw(st.lists(st.integers(0, len(stream) - 1), unique=True))
    window, want = timed(kind), timed(kind)
    window.update_many(*columns(stream), t=1000.0)
    stays = [e for i, e in enumerate(stream) if i not in gone]
    if stays:
        want.update_many(*columns(stays), t=1000.0)
    if gone:
        assert window.take_back_many(*columns([stream[i] for i in gone]), t=1000.0) == len(gone)
    exact = [0, 1, 2, 4, 7]  # COUNT, W, WW, WY, WYY
    np.testing.assert_array_equal(sums(window)[..., exact], sums(want)[..., exact])
    np.testing.assert_allclose(sums(window), sums(want), rtol=1e-12, atol=1e-13)
    assert not sums(window)[sums(want)[..., 0] == 0.0].any()


@few
@given(stream=sts.dirty_streams, data=st.data())
def test_refused_events_are_left_out_and_clipped_ones_counted(stream, data):
    window = Timed(EqualWidth(10), PERIOD, PANES, PERIOD)
    for e in stream:
        window.update(*e, t=1000.0)
    refused = window.snapshot().refused.item()
    if stream:
        raw, y, w = columns(stream)
        assert window.take_back_many(raw, y, w, t=[1000.0] * len(stream)) == sum(
            naive.admit(*e) is not None for e in stream
        )
    assert not sums(window).any()
    assert window.snapshot().clipped.item() == 0.0 and window.snapshot().refused.item() == refused


@few
@given(events=st.lists(st.tuples(sts.probabilities, sts.unit, sts.weights), min_size=1, max_size=20), data=st.data())
def test_losses_are_taken_back_infinite_ones_too(events, data):
    gone = data.draw(st.lists(st.integers(0, len(events) - 1), unique=True))
    window, want = (Timed(EqualWidth(5), PERIOD, PANES, loss="log") for _ in range(2))
    for i, e in enumerate(events):
        window.update(*e, t=1000.0)
        if i not in gone:
            want.update(*e, t=1000.0)
    if gone:
        window.take_back_many(*columns([events[i] for i in gone]), t=1000.0)
    got, wanted = window.get("log_loss"), want.get("log_loss")
    if math.isinf(wanted) or math.isnan(wanted):
        assert got == wanted or (math.isnan(got) and math.isnan(wanted))
    else:
        total = sum(w for _, _, w in events) / want.snapshot().weight.sum()
        assert got == pytest.approx(wanted, rel=1e-9, abs=1e-10 * max(total, 1.0))


def test_all_positives_taken_back_leave_no_trace():
    window = Timed(EqualWidth(1), PERIOD, PANES)
    for y, w in ((1, 0.1), (1, 0.7), (1, 0.3), (0, 1.1), (0, 1.0)):
        window.update(0.3, y, w, t=5.0)
    assert window.take_back_many([0.3] * 3, [1] * 3, [0.7, 0.3, 0.1], t=5.0) == 3
    assert window.cells[0, 0, [4, 6, 7]].tolist() == [0.0, 0.0, 0.0]
    assert window.get("coverage") == 0.0 and window.get("pa_ratio") == math.inf


def test_what_is_not_there_is_left_out():
    window = Timed(EqualWidth(2), PERIOD, PANES, keys=2)
    assert window.take_back_many([0.3], [1], t=5.0) == 0
    window.update_many([0.3, 0.3], [1, 0], t=[5.0, 54.0])
    before = window.to_bytes()
    for p, y, w, key, t in ((0.3, 1, 1, 1, 5.0), (0.8, 1, 1, 0, 5.0), (0.3, 1, 1, 0, 15.0), (0.3, 1, 1, 0, 1e9)):
        assert window.take_back_many([p], [y], [w], key=[key], t=[t]) == 0
    for p, y, w, t in ((math.nan, 1, 1, 5.0), (0.3, 2, 1, 5.0), (0.3, 1, -1, 5.0), (0.3, 1, 1, math.nan)):
        assert window.take_back_many([p], [y], [w], t=[t]) == 0
    assert window.take_back_many([], [], t=[]) == 0
    assert window.to_bytes() == before
    assert window.take_back_many([0.3], [1], t=5.0) == 1 and window.watermark == 54.0
    with pytest.raises(ValueError, match="Timed needs the times"):
        window.take_back_many([0.3], [1], t=None)
    with pytest.raises(ValueError, match=r"key must hold whole numbers in 0\.\.1"):
        window.take_back_many([0.3], [1], key=[2], t=5.0)
    with pytest.raises(ValueError, match="t must hold one value per prediction"):
        window.take_back_many([0.3], [1], t=[5.0, 6.0])


@every_kind
@few
@given(data=st.data())
def test_one_time_for_all_is_the_time_of_each(kind, data):
    stream = data.draw(sts.streams(kind.raw, 20, min_size=1))
    one, each = timed(kind), timed(kind)
    one.update_many(*columns(stream), t=77.5), each.update_many(*columns(stream), t=[77.5] * len(stream))
    assert one.to_bytes() == each.to_bytes()


# ---------------------------------------------------------------------------- Sliding.correct


def seen(kind, event):
    """What the claim makes of a raw event: that is all that a ring holds of it."""
    p, y, w = event
    return event if kind.claim.scalar else ([a.tolist() for a in kind.claim.events([p], [y])], w)


@every_kind
@few
@given(data=st.data())
def test_a_corrected_event_is_in_the_ring_as_if_it_had_come_so(kind, data):
    stream = data.draw(sts.streams(kind.raw, 20, min_size=1))
    window, ring = Sliding(kind.binning, SIZE, keys=2, **kind.options), []
    for event in stream:
        window.update(*event, key=1)
        ring = naive.tail([*ring, event], SIZE)
        if data.draw(st.booleans()):
            p, y, w = data.draw(st.sampled_from(stream))
            new_y = data.draw(st.sampled_from(stream))[1]
            want = naive.corrected(ring, (p, y, w), (p, new_y, w), lambda e: seen(kind, e))
            before = window.to_bytes()
            assert (window.correct(p, y, new_y, w, key=1) is not None) is want
            assert want or window.to_bytes() == before
    fresh = Sliding(kind.binning, SIZE, keys=2, **kind.options)
    fresh.update_many(*columns(ring), key=[1] * len(ring))
    assert_cells(sums(window)[kind.keys :], naive_cells(kind, ring, [(i, 1.0) for i in range(len(ring))]))
    np.testing.assert_allclose(window.cells, fresh.cells, rtol=1e-12, atol=1e-300)
    for k in range(2 * kind.keys):
        for a, b in zip(window.events(k), fresh.events(k)):
            np.testing.assert_array_equal(a, b)
    assert not window.cells[: kind.keys].any()


@few
@given(data=st.data())
def test_corrections_leave_no_trace_whatever_the_weights(data):
    """Weights that fall from 1e16 to 1: what is left is summed again from the ring."""
    event = st.tuples(st.sampled_from((0.3, 0.45)), sts.unit, st.sampled_from((0.1, 1.0, 1e9, 1e16)))
    window, ring = Sliding(EqualWidth(10), SIZE), []
    for e in data.draw(st.lists(event, min_size=1, max_size=20)):
        window.update(*e)
        ring = naive.tail([*ring, e], SIZE)
        p, y, w = data.draw(st.sampled_from(ring))
        new_y = data.draw(sts.unit)
        assert window.correct(p, y, new_y, w) is not None and naive.corrected(ring, (p, y, w), (p, new_y, w))
        assert_cells(
            sums(window), naive_cells(KINDS["width10"], ring, [(i, 1.0) for i in range(len(ring))]), atol=1e-25
        )


def test_a_correction_that_is_not_allowed():
    window = Sliding(EqualWidth(2), 3)
    window.update_many([0.1, math.nan, 0.9], [1, 1, 0])
    assert window.correct(math.nan, 1, 0) is None and window.correct(0.1, None, 0) is None
    assert window.correct(0.1, 1, 2.0) is not None  # as an update would be: refused, and counted
    assert window.snapshot().refused.item() == 2.0 and window.snapshot().count.sum() == 1.0
    assert window.correct(0.1, 2.0, 0) is not None and window.snapshot().count.tolist() == [[1.0, 1.0]]
    assert window.correct(0.9, 0, 1) == 0 and window.get("coverage") == 0.5
    with pytest.raises(ValueError, match=r"key must be a whole number in 0\.\.0, got 1"):
        window.correct(0.1, 0, 1, key=1)
    strict = Sliding(EqualWidth(2), 3, strict=True)
    strict.update(0.1, 1)
    before = strict.to_bytes()
    with pytest.raises(ValueError, match=r"the outcome in \[0, 1\]"):
        strict.correct(0.1, 1, 2.0)
    assert strict.to_bytes() == before


def test_a_key_without_events_has_nothing_to_correct():
    assert Sliding(EqualWidth(2), 3, keys=5).correct(0.1, 1, 0, key=4) is None
    quantile = Sliding(UniformMass(4), 3, claim=Quantile(0.9), loss="pinball")
    quantile.update_many([1.0, 2.0], [5.0, 1.0])
    assert quantile.get("coverage") == 0.5
    assert quantile.correct(1.0, 5.0, 0.5) and quantile.get("coverage") == 1.0
    assert quantile.get("pinball_loss") == pytest.approx(0.1 * (0.5 + 1.0) / 2)


@pytest.mark.jit
def test_taking_back_is_fast():
    """Many times faster than in Python, so that a stream may correct itself."""
    rng = np.random.default_rng(1)
    n = 100_000
    p, key, t = rng.random(n), rng.integers(0, 1000, n), 1000.0 + rng.random(n) * 59
    y = (rng.random(n) < p).astype(float)
    window = Timed(EqualWidth(15), 60, 6, 60, keys=1000)
    window.update_many(p, y, key=key, t=t)
    window.take_back_many(p[:1], y[:1], key=key[:1], t=t[:1])
    start = time.perf_counter()
    assert window.take_back_many(p[1:], y[1:], key=key[1:], t=t[1:]) == n - 1
    assert time.perf_counter() - start < 0.5
    assert not window.cells.any()
