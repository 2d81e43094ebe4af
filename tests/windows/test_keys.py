"""Keys that come: a window with more keys is one that had them from the start; one key is read alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import streams
from windows_cases import KINDS, build, every_way, every_window, feed, feed_one, restored

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
