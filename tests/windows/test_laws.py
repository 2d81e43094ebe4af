"""Laws of the sums: every window, with every binning and claim, holds what its definition says."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import strategies as sts
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from windows_cases import (
    KINDS,
    PLUG_IN,
    WINDOWS,
    assert_cells,
    build,
    every_kind,
    every_part,
    every_way,
    every_window,
    feed,
    feed_one,
    few,
    naive_cells,
    restored,
    sums,
    times,
)

import streamcal
from streamcal import Cumulative, Edges, EqualWidth, Grid, Levels, LogOdds, Mean, Timed, UniformMass
from streamcal.state import to_bytes


@every_window
@every_kind
@few
@given(data=st.data())
def test_window_holds_exactly_its_content(window, kind, data):
    stream = data.draw(sts.streams(kind.raw))
    w = feed(build(window, kind), stream, data.draw(sts.chunkings(len(stream))))
    assert_cells(sums(w), naive_cells(kind, stream, window.content(len(stream))), window.faded)


@every_part
@few
@given(data=st.data())
def test_snapshots_merge_in_any_order_and_subtract_back(window, kind, data):
    one, two = (data.draw(sts.streams(kind.raw, 15)) for _ in range(2))
    a, b = (feed(build(window, kind), s).snapshot() for s in (one, two))
    both = naive_cells(kind, one, window.content(len(one)))
    both = both + naive_cells(kind, two, window.content(len(two)))
    assert_cells((a + b).cells[:, :-1], both, window.faded)
    np.testing.assert_array_equal((a + b).cells, (b + a).cells)
    back = (a + b - b).cells
    if not window.faded:
        np.testing.assert_array_equal(back[..., 0], a.cells[..., 0])
    np.testing.assert_allclose(back, a.cells, rtol=0, atol=1e-12 * (1 + both.max()))


@every_kind
@few
@given(data=st.data())
def test_windows_add_up_like_one_window(kind, data):
    """Timed windows are on one clock: the later of the two watermarks decides what is left."""
    one, two = (data.draw(sts.streams(kind.raw, 15)) for _ in range(2))
    n = max(len(one), len(two))
    for name in ("cumulative", "timed"):
        a, b = (feed(build(WINDOWS[name], kind), s) for s in (one, two))
        left = WINDOWS[name].content(n)
        want = sum(naive_cells(kind, s, [(i, f) for i, f in left if i < len(s)]) for s in (one, two))
        assert_cells(sums(a + b), want)
        assert_cells(sums(b + a), want)


@every_kind
@few
@given(data=st.data())
def test_order_does_not_matter_to_cumulative(kind, data):
    stream = data.draw(sts.streams(kind.raw))
    shuffled = data.draw(st.permutations(stream))
    assert_cells(
        sums(feed(build(WINDOWS["cumulative"], kind), shuffled)),
        sums(feed(build(WINDOWS["cumulative"], kind), stream)),
    )


@every_part
@few
@given(data=st.data())
def test_batches_do_not_matter(window, kind, data):
    stream = data.draw(sts.streams(kind.raw))
    a = feed(build(window, kind), stream, data.draw(sts.chunkings(len(stream))))
    b = feed(build(window, kind), stream, data.draw(sts.chunkings(len(stream))))
    assert_cells(a.cells, b.cells, window.faded)


@every_window
@every_kind
@few
@given(data=st.data())
def test_one_by_one_is_one_batch(window, kind, data):
    stream = data.draw(sts.streams(kind.raw))
    a, b = build(window, kind), build(window, kind)
    feed(a, stream)
    for i, (raw, y, w) in enumerate(stream):
        feed_one(b, raw, y, w, i)
    assert_cells(a.cells, b.cells, window.faded)


@every_kind
@few
@given(data=st.data())
def test_integer_weight_is_a_repeated_event(kind, data):
    stream = [(raw, y, float(data.draw(st.integers(0, 4)))) for raw, y, _ in data.draw(sts.streams(kind.raw, 12))]
    repeated = [(raw, y, 1.0) for raw, y, w in stream for _ in range(int(w))]
    for name in ("cumulative", "timed"):
        a, b = build(WINDOWS[name], kind), build(WINDOWS[name], kind)
        for w, events in ((a, stream), (b, repeated)):
            for raw, y, weight in events:
                feed_one(w, raw, y, weight, 0)
        np.testing.assert_array_equal(a.snapshot().weight, b.snapshot().weight)
        for metric in PLUG_IN:
            np.testing.assert_allclose(a.get(metric), b.get(metric), rtol=1e-9, atol=1e-12, err_msg=metric)


@every_window
@pytest.mark.parametrize("name", ["width10", "mass", "levels", "edges", "binary", "log"])
@few
@given(data=st.data())
def test_keys_are_separate_windows(window, name, data):
    kind = KINDS[name]
    stream = data.draw(sts.streams(kind.raw))
    key = data.draw(st.lists(st.integers(0, 2), min_size=len(stream), max_size=len(stream)))
    together = feed(build(window, kind, keys=3), stream, data.draw(sts.chunkings(len(stream))), key=key)
    for k in range(3):
        alone = build(window, kind)
        for i, event in enumerate(stream):
            if key[i] == k:
                feed_one(alone, *event, i)
        if isinstance(alone, Timed) and stream:  # time passes for every key
            last = times(len(stream))[-1]
            assert_cells(together.snapshot(t=last).cells[k, :-1], alone.snapshot(t=last).cells[0, :-1])
        else:
            assert_cells(together.cells[k, :-1], alone.cells[0, :-1], window.faded)


@every_part
@few
@given(data=st.data())
def test_reads_change_nothing(window, kind, data):
    w = feed(build(window, kind), data.draw(sts.streams(kind.raw)))
    before = w.to_bytes()
    first = w.snapshot()
    w.get("ece"), w.get("k2_debiased"), w.report()
    second = w.snapshot()
    np.testing.assert_array_equal(first.cells, second.cells)
    assert w.to_bytes() == before


@every_way("how", ["bytes", "class", "pickle", "deepcopy"])
@settings(max_examples=4)
@given(data=st.data())
def test_a_restored_window_goes_on_bit_for_bit(window, kind, how, data):
    stream = data.draw(sts.streams(kind.raw))
    middle = data.draw(st.integers(0, len(stream)))
    w = feed(build(window, kind), stream[:middle])
    copied = restored(how, w)
    assert type(copied) is type(w)
    feed(w, stream[middle:], start=middle)
    feed(copied, stream[middle:], start=middle)
    for i in range(3):
        for x in (w, copied):
            if stream:
                feed_one(x, *stream[i % len(stream)], len(stream) + i)
    assert w.to_bytes() == copied.to_bytes()
    assert w.cells.tobytes() == copied.cells.tobytes()


@every_part
@few
@given(data=st.data())
def test_a_snapshot_is_frozen(window, kind, data):
    stream = data.draw(sts.streams(kind.raw, min_size=1))
    w = feed(build(window, kind), stream)
    s = w.snapshot()
    kept = s.cells.copy()
    feed(w, stream, start=len(stream))
    np.testing.assert_array_equal(s.cells, kept)
    with pytest.raises(ValueError):
        s.cells[0, 0, 0] = 1.0
    with pytest.raises(AttributeError):
        s.cells = kept


@every_kind
@few
@given(data=st.data())
def test_a_snapshot_survives_its_bytes(kind, data):
    s = feed(build(WINDOWS["cumulative"], kind), data.draw(sts.streams(kind.raw))).snapshot()
    for back in (streamcal.from_bytes(s.to_bytes()), pickle.loads(pickle.dumps(s)), copy.deepcopy(s)):
        assert back.cells.tobytes() == s.cells.tobytes()
        assert (back.binning, back.claim, back.loss) == (s.binning, s.claim, s.loss)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_binning_survives_its_bytes_and_its_repr(kind):
    b = kind.binning
    names = {c.__name__: c for c in (EqualWidth, UniformMass, LogOdds, Levels, Grid, Edges)}
    for back in (streamcal.from_bytes(to_bytes(b)), eval(repr(b), names), copy.deepcopy(b)):
        assert back == b and hash(back) == hash(b)
        np.testing.assert_array_equal(back.edges, b.edges)


@pytest.mark.parametrize(
    "a, b",
    [
        (Cumulative(EqualWidth(10)), Cumulative(EqualWidth(11))),
        (Cumulative(EqualWidth(10)), Cumulative(Grid(9))),
        (Cumulative(EqualWidth(10)), Cumulative(EqualWidth(10), claim=Mean("binary"))),
        (Cumulative(EqualWidth(10)), Cumulative(EqualWidth(10), loss="log")),
        (Cumulative(EqualWidth(10)), Cumulative(EqualWidth(10), keys=2)),
    ],
    ids=["bins", "binning", "claim", "loss", "keys"],
)
def test_unlike_things_do_not_merge(a, b):
    with pytest.raises(ValueError):
        a.snapshot() + b.snapshot()
    with pytest.raises(ValueError):
        a.snapshot() - b.snapshot()
    with pytest.raises(ValueError):
        a + b


@given(stream=sts.streams(), data=st.data())
def test_subtracting_yesterday_leaves_today(stream, data):
    assume(stream)
    cut = data.draw(st.integers(0, len(stream)))
    stream = [(p, float(y > 0.5), float(round(w))) for p, y, w in stream]
    w = feed(Cumulative(EqualWidth(10)), stream[:cut])
    yesterday = w.snapshot()
    feed(w, stream[cut:])
    today = feed(Cumulative(EqualWidth(10)), stream[cut:]).snapshot()
    got = (w.snapshot() - yesterday).cells
    for column in (0, 1, 2, 4, 7):  # counts, integer weights and 0/1 labels are integers: exact
        np.testing.assert_array_equal(got[..., column], today.cells[..., column])
    np.testing.assert_allclose(got, today.cells, rtol=0, atol=1e-9)


def test_snapshots_sum_and_never_give_more_than_they_hold():
    a, b = Cumulative(EqualWidth(4)), Cumulative(EqualWidth(4))
    a.update_many([0.1, 0.9], [0, 1])
    b.update(0.1, 1)
    assert sum([a.snapshot(), b.snapshot()]).count.sum() == 3
    with pytest.raises(ValueError, match="fewer events"):
        b.snapshot() - a.snapshot()
