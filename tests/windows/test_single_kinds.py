"""What only one kind of window does: panes and lateness, closed windows, rings."""

from __future__ import annotations

from datetime import UTC, datetime

import naive
import numpy as np
import pytest
import strategies as sts
from hypothesis import given
from hypothesis import strategies as st
from windows_cases import KINDS, PANES, PERIOD, SIZE, assert_cells, feed, naive_cells, sums, times

from streamcal import Cumulative, Edges, EqualWidth, Levels, Sliding, Timed, Tumbling
from streamcal.windows.window import Window


@given(n=st.integers(0, 40), data=st.data())
def test_tumbling_tells_how_many_closed_and_how_much_room(n, data):
    stream = [((i % 7) / 7, float(i % 2), 1.0) for i in range(n)]
    w = feed(Tumbling(EqualWidth(10), SIZE), stream, data.draw(sts.chunkings(n)))
    held = len(naive.tumbling(stream, SIZE))
    closed = max(n - 1, 0) // SIZE
    assert w.snapshot().count.sum() == held
    assert w.room == SIZE - held
    if closed:
        last = stream[(closed - 1) * SIZE : closed * SIZE]
        assert_cells(w.last.cells[:, :-1], sums(feed(Cumulative(EqualWidth(10)), last)))
    else:
        assert w.last is None


@given(data=st.data(), panes=st.integers(1, 8), lateness=st.sampled_from((0.0, 5.0, 20.0)))
def test_timed_is_its_panes_and_late_events_are_counted_not_applied(data, panes, lateness):
    stream = data.draw(sts.streams(max_size=20))
    t = data.draw(sts.times(len(stream)))
    w = Timed(EqualWidth(10), 24.0, panes=panes, lateness=lateness)
    for cut in data.draw(sts.chunkings(len(stream))):
        if stream[cut]:
            p, y, weight = zip(*stream[cut])
            w.update_many(p, y, weight, t=t[cut])
    inside, late = naive.timed(t, 24.0, panes, lateness)
    kind = KINDS["width10"]
    assert_cells(sums(w), naive_cells(kind, stream, [(i, 1.0) for i in inside]))
    if late and max(t) - min(t) < 24.0 / panes:
        assert w.snapshot().late.item() == len(late)


@given(data=st.data(), ahead=st.floats(0, 100).map(lambda x: round(x, 1)))
def test_timed_read_later_forgets_without_new_events(data, ahead):
    stream = data.draw(sts.streams(max_size=20))
    w = feed(Timed(EqualWidth(10), PERIOD, panes=PANES), stream)
    t = times(len(stream))
    now = (t[-1] if t else 1000.0) + ahead
    inside, _ = naive.timed(t, PERIOD, PANES, now=now)
    before = w.to_bytes()
    assert_cells(
        w.snapshot(t=now).cells[:, :-1],
        naive_cells(KINDS["width10"], stream, [(i, 1.0) for i in inside]),
    )
    assert w.to_bytes() == before


@given(data=st.data())
def test_late_count_is_exact_while_nothing_expires(data):
    n = data.draw(st.integers(1, 25))
    t = data.draw(sts.times(n))
    w = Timed(EqualWidth(10), 1e6, panes=4, lateness=3.0)
    w.update_many([0.5] * n, [1.0] * n, t=t)
    inside, late = naive.timed(t, 1e6, 4, 3.0)
    assert w.snapshot().late.item() == len(late)
    assert w.snapshot().count.sum() == len(inside)


def test_two_threads_that_open_rings_at_once_stay_in_bounds():
    """A window is not thread-safe: events may be lost, but the buffer that grows is whole before it is used."""
    from threading import Thread

    def feed_all(window):
        for k in range(300):
            window.update(0.5, 1, 1.0, k)

    for _ in range(3):
        w = Sliding(EqualWidth(10), 50, keys=300)
        threads = [Thread(target=feed_all, args=(w,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 0 < w.snapshot().count.sum() <= 600
        rings = w._states[:, 0]
        assert Window._is_sound(w, w._buf) and np.unique(rings).size == rings.size


def test_a_late_ring_costs_what_an_early_one_costs():
    """Rings are given with some to spare, and a document has none of the spare ones."""
    w = Sliding(EqualWidth(2), 10, keys=1000)
    for k in range(600):
        w.update(0.5, 1, 1.0, k)
    assert w.to_bytes() == type(w).from_bytes(w.to_bytes()).to_bytes()
    assert len(w.to_bytes()) < 8 * (w._layout.end + 600 * 30) + 1000


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_datetime64_means_the_same_in_every_unit(unit):
    one, many, objects = (Timed(EqualWidth(2), 60) for _ in range(3))
    stamp = np.datetime64("2024-01-01T00:00:30", unit)
    one.update(0.5, 1, t=stamp)
    many.update_many([0.5], [1], t=np.array([stamp]))
    aware = datetime(2024, 1, 1, 0, 0, 30, tzinfo=UTC)
    objects.update_many([0.5], [1], t=np.array([aware], object))
    assert one.watermark == many.watermark == objects.watermark == 1704067230.0


def test_frozen_binnings_are_frozen():
    for b in (Edges([0.0, 0.5, 1.0]), Levels([0.2, 0.4])):
        with pytest.raises(ValueError):
            b.edges[1] = 0.1


def test_numpy_whole_numbers_are_whole_numbers():
    w = Sliding(EqualWidth(np.int64(5)), np.int32(10), keys=np.uint8(2))
    assert repr(w) == "Sliding(EqualWidth(n_bins=5), 10, keys=2)"
    assert type(w).from_bytes(w.to_bytes()).to_bytes() == w.to_bytes()
