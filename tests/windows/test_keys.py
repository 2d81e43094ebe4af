"""Keys that come and go: a window with more keys, an emptied key, one key's sums added to another's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import streams
from windows_cases import KINDS, WINDOWS, build, every_kind, every_way, every_window, feed, feed_one, restored, sums

from streamcal import Cumulative, EqualWidth, Marginal, Sliding, Timed, Tumbling
from streamcal.tally import STATE

few = settings(max_examples=8)


def kept(window):
    """All that a window keeps, but for which ring is whose."""
    parts = [part.copy() for part in window._layout.by_key(window._buf)]
    rings = []
    if isinstance(window, Sliding):
        parts[-1][..., 0] = 0.0
        rings = [column for key in range(window._layout.keys) for column in window.events(key)]
    return [*parts, *rings, window._buf[STATE]]


def assert_same(a, b):
    for one, two in zip(kept(a), kept(b), strict=True):
        np.testing.assert_array_equal(one, two)


@every_way("saved", [False, True])
@few
@given(data=st.data())
def test_a_widened_window_is_one_that_was_wide_from_the_start(window, kind, saved, data):
    few_keys = data.draw(st.integers(1, 3))
    many = data.draw(st.integers(few_keys, 6))
    stream, later = data.draw(streams(kind.raw, 20)), data.draw(streams(kind.raw, 20))
    first = data.draw(st.lists(st.integers(0, few_keys - 1), min_size=len(stream), max_size=len(stream)))
    then = data.draw(st.lists(st.integers(0, many - 1), min_size=len(later), max_size=len(later)))
    narrow, wide = build(window, kind, keys=few_keys), build(window, kind, keys=many)
    for i, event in enumerate(stream):
        feed_one(narrow, *event, i, first[i])
        feed_one(wide, *event, i, first[i])
    before = narrow.to_bytes()
    if saved:
        narrow = restored("bytes", narrow)
    widened = narrow.widened(many)
    assert narrow.to_bytes() == before
    if saved:
        widened = restored("bytes", widened)
    assert repr(widened) == repr(wide)
    np.testing.assert_array_equal(widened.cells[: narrow._layout.keys], narrow.cells)
    assert_same(widened, wide)
    cut = data.draw(st.integers(0, len(later)))
    for part in (slice(0, cut), slice(cut, len(later))):
        if many > 1:
            feed(widened, later, [part], len(stream), then), feed(wide, later, [part], len(stream), then)
    assert_same(widened, wide)
    for name in ("k1", "brier"):
        np.testing.assert_array_equal(widened.get(name), wide.get(name))


@every_window
def test_fewer_keys_are_refused(window):
    w = build(window, KINDS["width10"], keys=3)
    for keys in (2, 0, -1, 2.5, True):
        with pytest.raises(ValueError, match="keys must be a whole number at least 3, got"):
            w.widened(keys)
    assert_same(w.widened(3), w)


def test_a_tumbling_window_keeps_its_last_window_and_counts():
    window = Tumbling(EqualWidth(2), 2, keys=2)
    window.update_many([0.1] * 5, [1, 0, 1, 1, 0], key=[0, 0, 0, 1, 1])
    wide = window.widened(4)
    np.testing.assert_array_equal(wide.last.cells[:2], window.last.cells)
    assert wide.closed.tolist() == [1, 0, 0, 0] and wide.room.tolist() == [1, 0, 2, 2]


def test_a_timed_window_keeps_its_time():
    window = Timed(EqualWidth(2), 60, 6)
    window.update(0.3, 1, t=1000.0)
    wide = window.widened(2)
    wide.update_many([0.3, 0.3], [1, 1], key=[1, 1], t=[900.0, 1000.0])
    assert wide.snapshot().late.tolist() == [0.0, 1.0] and wide.watermark == 1000.0


@pytest.mark.parametrize("key", [None, [0] * 9], ids=["none", "zeros"])
def test_without_keys_all_events_are_those_of_key_0(key):
    stream = [(0.1 * i, float(i % 2), 1.0) for i in range(9)]
    columns = [list(c) for c in zip(*stream)]
    for make in (Cumulative, lambda b, **k: Sliding(b, 4, **k), lambda b, **k: Tumbling(b, 4, **k)):
        alone, among = make(EqualWidth(3)), make(EqualWidth(3), keys=3)
        alone.update_many(*columns), among.update_many(*columns, key=key)
        np.testing.assert_allclose(among.cells[:1], alone.cells, rtol=1e-12)
        assert not among.cells[1:].any()
    assert alone.snapshot().count.sum() == 1.0  # the last window of four


@every_window
@every_kind
@few
@given(data=st.data())
def test_an_emptied_key_is_one_without_events(window, kind, data):
    stream = data.draw(streams(kind.raw, 25))
    key = data.draw(st.lists(st.integers(0, 2), min_size=len(stream), max_size=len(stream)))
    cut, gone = data.draw(st.integers(0, len(stream))), data.draw(st.integers(0, 2))
    emptied, never = build(window, kind, keys=3), build(window, kind, keys=3)
    for i, event in enumerate(stream):
        if i == cut:
            emptied.empty(gone)
            width = kind.keys
            assert not emptied.cells[gone * width : (gone + 1) * width].any()
            emptied = restored("bytes", emptied)
        feed_one(emptied, *event, i, key[i])
        if i >= cut or key[i] != gone:
            feed_one(never, *event, i, key[i])
        elif isinstance(never, Timed):  # its time goes on
            feed_one(never, *event, i, key[i]), never.empty(gone)
    if cut == len(stream):
        emptied.empty(gone)
    assert_same(emptied, never)


@pytest.mark.parametrize("name", ["empty"])
@every_window
def test_a_key_that_is_not_there_can_not_be_emptied(window, name):
    w = build(window, KINDS["width10"], keys=3)
    for key in (3, -1, 1.5, True, None):
        with pytest.raises(ValueError, match=r"key must be a whole number in 0\.\.2, got"):
            w.empty(key)


def test_an_emptied_sliding_key_keeps_nothing_of_its_events():
    window = Sliding(EqualWidth(2), 3, keys=2)
    window.update_many([0.123] * 4, [1] * 4, key=[1, 1, 1, 1])
    window.update(0.7, 1)
    size = window._buf.size
    window.empty(1)
    assert window.events(1)[0].size == 0 and window.events(0)[0].tolist() == [0.7]
    assert not (window._buf == 0.123).any()
    window.update_many([0.2] * 5, [1] * 5, key=[1] * 5)
    assert window._buf.size == size  # its ring is used again
    assert window.events(1)[0].tolist() == [0.2] * 3


@every_kind
@few
@given(data=st.data())
def test_merging_a_key_is_having_seen_its_events_under_the_other(kind, data):
    stream = data.draw(streams(kind.raw, 25))
    key = data.draw(st.lists(st.integers(0, 2), min_size=len(stream), max_size=len(stream)))
    source, into = data.draw(st.permutations(range(3)))[:2]
    window, want = (build(WINDOWS["timed"], kind, keys=3) for _ in range(2))
    for i, event in enumerate(stream):
        feed_one(window, *event, i, key[i])
        feed_one(want, *event, i, into if key[i] == source else key[i])
    window.merge_key(source, into)
    np.testing.assert_array_equal(sums(window)[..., 0], sums(want)[..., 0])
    np.testing.assert_allclose(window._panes, want._panes, rtol=1e-12, atol=1e-300)
    assert window.watermark == want.watermark


def test_merging_needs_two_keys():
    window = Timed(EqualWidth(2), 60, 6, keys=2, claim=Marginal(3))
    with pytest.raises(ValueError, match="source and into must be two keys, got 1 and 1"):
        window.merge_key(1, 1)
    with pytest.raises(ValueError, match=r"into must be a whole number in 0\.\.1, got 2"):
        window.merge_key(1, 2)
    with pytest.raises(ValueError, match=r"source must be a whole number in 0\.\.1, got -1"):
        window.merge_key(-1, 1)


@few
@given(data=st.data())
def test_the_sums_of_one_key_are_those_of_the_snapshot(data):
    """At any time, also one long after the last event; and of a claim with several keys."""
    claim = data.draw(st.sampled_from([None, Marginal(2)]))
    window = Timed(EqualWidth(3), 10.0, 5, 10.0, keys=3, claim=claim)
    for t in sorted(data.draw(st.lists(st.floats(0, 40), max_size=8))):
        p = data.draw(st.floats(0, 1))
        window.update_many([p if claim is None else [p, 1 - p]], [1], key=[data.draw(st.integers(0, 2))], t=t)
    at = data.draw(st.sampled_from([None, 0.0, 20.0, 41.0, 45.0, 1e9, math.inf]))
    width = 1 if claim is None else 2
    whole = window.snapshot(at)
    for key in range(3):
        one = window.snapshot_of(key, at)
        np.testing.assert_array_equal(one.cells, whole.cells[key * width : (key + 1) * width])
