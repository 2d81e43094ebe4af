"""Events that are refused, clipped or weigh nothing: counted in the ledger, and in no number."""

from __future__ import annotations

import naive
import numpy as np
import pytest
import strategies as sts
from hypothesis import given
from hypothesis import strategies as st
from windows_cases import (
    KINDS,
    PLUG_IN,
    SIZE,
    WINDOWS,
    assert_cells,
    build,
    every_window,
    feed,
    feed_one,
    naive_cells,
    sums,
)

from streamcal import Cumulative, EqualWidth, Sliding, Timed


@given(stream=sts.dirty_streams, size=st.integers(1, 12), data=st.data())
def test_sliding_is_the_tail_refused_events_included(stream, size, data):
    cuts = data.draw(sts.chunkings(len(stream)))
    sliding = feed(Sliding(EqualWidth(10), size), stream, cuts)
    tail = feed(Cumulative(EqualWidth(10)), naive.tail(stream, size))
    assert_cells(sums(sliding), sums(tail))
    np.testing.assert_array_equal(sliding.snapshot().refused, tail.snapshot().refused)
    np.testing.assert_array_equal(sliding.snapshot().clipped, tail.snapshot().clipped)


@given(stream=sts.dirty_streams)
def test_the_ledger_counts_what_was_refused_and_clipped(stream):
    admitted = [naive.admit(*e) for e in stream]
    s = feed(Cumulative(EqualWidth(10)), stream).snapshot()
    assert s.refused.item() == admitted.count(None)
    assert s.clipped.item() == sum(a[3] for a in admitted if a)
    good = [a[:3] for a in admitted if a]
    kind = KINDS["width10"]
    assert_cells(s.cells[:, :-1], naive_cells(kind, good, [(i, 1.0) for i in range(len(good))]))


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@given(stream=sts.dirty_streams)
def test_one_by_one_is_one_batch_with_bad_events(window, stream):
    a, b = build(window, KINDS["width10"]), build(window, KINDS["width10"])
    feed(a, stream)
    for i, event in enumerate(stream):
        feed_one(b, *event, i)
    assert_cells(a.cells, b.cells, window.faded)


@pytest.mark.parametrize("name", ["cumulative", "timed"])
@pytest.mark.parametrize("one", [False, True], ids=["batch", "one"])
@given(stream=sts.streams(max_size=8), bad=sts.bad_events)
def test_a_refused_event_changes_only_the_ledger(name, one, stream, bad):
    w = feed(build(WINDOWS[name], KINDS["width10"]), stream)
    before = w.snapshot()
    if one:
        feed_one(w, *bad, len(stream))
    else:
        feed(w, [bad], start=len(stream))
    after = w.snapshot()
    np.testing.assert_array_equal(after.cells[:, :-1], before.cells[:, :-1])
    assert after.refused.item() == before.refused.item() + 1


@pytest.mark.parametrize("name", ["cumulative", "sliding", "tumbling", "timed"])
@given(stream=sts.streams(max_size=SIZE - 1), bad=sts.bad_events)
def test_a_refused_event_changes_no_number_while_there_is_room(name, stream, bad):
    w = feed(build(WINDOWS[name], KINDS["width10"]), stream)
    before = {m: w.get(m) for m in PLUG_IN}
    feed_one(w, *bad, len(stream))
    for metric, value in before.items():
        np.testing.assert_array_equal(w.get(metric), value)


@given(bad=sts.bad_events)
def test_strict_raises_and_leaves_no_trace(bad):
    for name, window in WINDOWS.items():
        w = build(window, KINDS["width10"], strict=True)
        feed_one(w, 0.5, 1.0, 1.0, 0)
        before = sums(w)
        with pytest.raises(ValueError):
            feed_one(w, *bad, 1)
        with pytest.raises(ValueError):
            feed(w, [bad], start=1)
        np.testing.assert_array_equal(sums(w), before, err_msg=name)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e16])
def test_bad_values_at_the_door_leave_no_trace(value):
    w, clean = Sliding(EqualWidth(10), 5), Sliding(EqualWidth(10), 5)
    for i in range(40):
        p, y = (i % 11) / 11, float(i % 2)
        if i % 4 == 0:
            w.update(value, y), w.update(p, value), w.update(p, y, -value)
        w.update(p, y)
        clean.update(p, y)
    for _ in range(5):
        w.update(0.3, 1.0), clean.update(0.3, 1.0)
    np.testing.assert_array_equal(w.cells, clean.cells)


@every_window
def test_nothing_seen_is_nan_with_count_zero(window):
    for kind in KINDS.values():
        w = build(window, kind)
        assert w.snapshot().count.sum() == 0
        for metric in PLUG_IN:
            assert np.isnan(w.get(metric)).all(), metric


@every_window
def test_zero_weight_is_no_information(window):
    w = build(window, KINDS["width10"])
    for i in range(5):
        feed_one(w, 0.3, 1.0, 0.0, i)
    assert w.snapshot().weight.sum() == 0
    for metric in PLUG_IN:
        assert np.isnan(w.get(metric)), metric


def test_strict_timed_refuses_a_time_that_no_pane_has():
    w = Timed(EqualWidth(2), 10, strict=True)
    with pytest.raises(ValueError, match="index 1"):
        w.update_many([0.5, 0.5], [1, 1], t=[0.0, 1e300])
    assert w.snapshot().count.sum() == 0
