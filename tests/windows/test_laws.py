"""Laws of the sums: every window, with every binning and claim, holds what its definition says.

Three small tables make the family: KINDS (claim + binning + its textbook row and events), WINDOWS
(constructor + its textbook content), and the laws below, one test each, run over both.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from collections.abc import Callable
from datetime import UTC, datetime

import naive
import numpy as np
import pytest
import strategies as sts
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import streamcal
from streamcal import (
    PIT,
    Cumulative,
    Edges,
    EqualWidth,
    Fading,
    Grid,
    Interval,
    Levels,
    LogOdds,
    Marginal,
    Mean,
    Quantile,
    Revertible,
    Sliding,
    Timed,
    TopLabel,
    Tumbling,
    UniformMass,
)
from streamcal.state import to_bytes

# ------------------------------------------------------------------------------ the family


@dataclasses.dataclass(frozen=True)
class Kind:
    """A claim with a binning: how to draw raw events, and what one raw event means per key."""

    claim: object
    binning: object
    raw: st.SearchStrategy  # of (raw prediction, outcome, weight)
    events: Callable  # raw, y, w -> one naive event per key
    keys: int = 1
    loss: str | None = None
    domain: str = "unit"

    @property
    def edges(self):
        return [float(e) for e in self.binning.fine_edges(self.domain)]

    @property
    def options(self):
        return {"claim": self.claim, "loss": self.loss}


LEVELS = (0.1, 0.25, 0.3, 0.9)
CUTS = (0.0, 0.1, 0.3, 0.9, 1.0)
QUANTILES = (0.1, 0.5, 0.9)

reals = st.integers(-9, 9).map(lambda i: i / 2)
labels = st.integers(0, 2)
simplex = st.sampled_from(((0.7, 0.2, 0.1), (0.1, 0.1, 0.8), (0.4, 0.4, 0.2), (1.0, 0.0, 0.0), (0.0, 0.5, 0.5)))
pairs = st.tuples(reals, st.integers(0, 8)).map(lambda a: (a[0], a[0] + a[1] / 2))


def weighted(raw, y):
    return st.tuples(raw, y, sts.weights)


def mean(binning, event=sts.events, claim=None, loss=None):
    return Kind(claim or Mean(), binning, event, naive.mean_events, loss=loss)


KINDS = {
    "width10": mean(EqualWidth(10)),
    "width25": mean(EqualWidth(25)),
    "mass": mean(UniformMass(4)),
    "logodds": mean(LogOdds(4)),
    "levels": mean(Levels(LEVELS)),
    "grid": mean(Grid(10)),
    "edges": mean(Edges(CUTS)),
    "binary": mean(EqualWidth(10), sts.binary_events, Mean("binary")),
    "log": mean(
        EqualWidth(10),
        st.tuples(sts.inner_probabilities, sts.unit, sts.weights),
        loss="log",
    ),
    "quantile": Kind(
        Quantile(0.9),
        Edges((-5.0, -1.0, 0.0, 2.0, 5.0)),
        weighted(reals, reals),
        lambda v, y, w: naive.quantile_events([0.9], [v], y, w),
        loss="pinball",
    ),
    "quantile-mass": Kind(
        Quantile(0.5),
        UniformMass(4),
        weighted(st.one_of(reals, st.floats(-1e12, 1e12), st.sampled_from((0.0, 5e-324, -1e-9))), reals),
        lambda v, y, w: naive.quantile_events([0.5], [v], y, w),
        domain="real",
    ),
    "quantiles": Kind(
        Quantile(QUANTILES),
        Levels((-2.0, 0.0, 2.0)),
        weighted(st.tuples(reals, reals, reals), reals),
        lambda v, y, w: naive.quantile_events(QUANTILES, v, y, w),
        keys=3,
    ),
    "interval": Kind(
        Interval(0.1, 0.9),
        Edges((0.0, 1.0, 2.0, 10.0)),
        weighted(pairs, reals),
        lambda b, y, w: naive.interval_events(0.1, 0.9, *b, y, w),
    ),
    "toplabel": Kind(TopLabel(), EqualWidth(10), weighted(simplex, labels), naive.top_label_events),
    "marginal": Kind(Marginal(3), EqualWidth(10), weighted(simplex, labels), naive.marginal_events, keys=3),
    "pit": Kind(
        PIT(QUANTILES),
        EqualWidth(10),
        st.tuples(sts.probabilities, st.just(0.0), sts.weights),
        lambda u, y, w: naive.pit_events(QUANTILES, u, w),
        keys=3,
    ),
}

SIZE, HALF_LIFE, PERIOD, PANES, STEP = 7, 5.0, 60.0, 6, 3.7


@dataclasses.dataclass(frozen=True)
class Window:
    make: Callable
    content: Callable  # n events -> [(index, factor)]
    faded: bool = False


def times(n: int, start: int = 0) -> list[float]:
    return [1000.0 + STEP * i for i in range(start, start + n)]


WINDOWS = {
    "cumulative": Window(Cumulative, lambda n: [(i, 1.0) for i in range(n)]),
    "revertible": Window(Revertible, lambda n: [(i, 1.0) for i in range(n)]),
    "sliding": Window(
        lambda b, **k: Sliding(b, SIZE, **k),
        lambda n: [(i, 1.0) for i in naive.tail(list(range(n)), SIZE)],
    ),
    "tumbling": Window(
        lambda b, **k: Tumbling(b, SIZE, **k),
        lambda n: [(i, 1.0) for i in naive.tumbling(list(range(n)), SIZE)],
    ),
    "fading": Window(
        lambda b, **k: Fading(b, HALF_LIFE, **k),
        lambda n: list(enumerate(naive.fade(n, HALF_LIFE))),
        faded=True,
    ),
    "timed": Window(
        lambda b, **k: Timed(b, PERIOD, panes=PANES, **k),
        lambda n: [(i, 1.0) for i in naive.timed(times(n), PERIOD, PANES)[0]],
    ),
}

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
every_window = pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
few = settings(max_examples=12)


def build(window: Window, kind: Kind, **options):
    return window.make(kind.binning, **{**kind.options, **options})


def feed(w, stream, cuts=None, start=0, key=None):
    """Feed a list of (raw, y, weight) in batches (default: one)."""
    for cut in cuts or [slice(0, len(stream))]:
        part = stream[cut]
        if not part:
            continue
        raw, y, weight = (list(column) for column in zip(*part))
        t = times(len(part), start + cut.start) if isinstance(w, Timed) else None
        w.update_many(raw, y, weight, key=None if key is None else key[cut], t=t)
    return w


def feed_one(w, raw, y, weight, index, key=0):
    clock = {"t": times(1, index)[0]} if isinstance(w, Timed) else {}
    w.update(raw, y, weight, key=key, **clock)


def row_function(kind: Kind) -> Callable:
    """The textbook row of a score: exact for equal widths, else between the edges the binning states.

    (That Grid, Levels and the fine grids state the right edges is tested in test_batch.)
    """
    if isinstance(kind.binning, EqualWidth):
        return lambda c: naive.width_row(c, kind.binning.n_bins)
    edges = kind.edges
    return lambda c: naive.edge_row(c, edges)


def naive_cells(kind: Kind, stream, content) -> np.ndarray:
    """(keys, rows, 8) sums of the events in content, without the ledger."""
    row = row_function(kind)
    groups = {}
    for i, factor in content:
        raw, y, weight = stream[i]
        for key, (c, claim, outcome, w) in enumerate(kind.events(raw, y, weight)):
            groups.setdefault((key, row(c)), []).append(((c, claim, outcome, w * factor), factor))
    out = np.zeros((kind.keys, len(kind.edges) - 1, 8))
    for place, group in groups.items():
        out[place] = naive.sums([event for event, _ in group])
        out[place][0] = math.fsum(factor for _, factor in group)  # a faded event counts as a part of one
    return out


def assert_cells(got, want, faded=False, atol=1e-300):
    """Counts exactly (unless faded), every other sum to 1e-12 relative: no sum has terms of two signs."""
    if not faded:
        np.testing.assert_array_equal(got[..., 0], want[..., 0])
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=atol)


def sums(window_or_snapshot) -> np.ndarray:
    return np.array(window_or_snapshot.cells)[:, :-1]


# ------------------------------------------------------------------------------ the laws


@every_window
@every_kind
@few
@given(data=st.data())
def test_window_holds_exactly_its_content(window, kind, data):
    stream = data.draw(sts.streams(kind.raw))
    w = feed(build(window, kind), stream, data.draw(sts.chunkings(len(stream))))
    assert_cells(sums(w), naive_cells(kind, stream, window.content(len(stream))), window.faded)


@every_window
@every_kind
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


@every_window
@every_kind
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


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@given(stream=sts.dirty_streams)
def test_one_by_one_is_one_batch_with_bad_events(window, stream):
    a, b = build(window, KINDS["width10"]), build(window, KINDS["width10"])
    feed(a, stream)
    for i, event in enumerate(stream):
        feed_one(b, *event, i)
    assert_cells(a.cells, b.cells, window.faded)


PLUG_IN = [
    "ece",
    "mce",
    "k1",
    "k2",
    "kinf",
    "l2_ce",
    "brier",
    "reliability_term",
    "resolution",
    "uncertainty",
    "within_variance",
    "within_covariance",
    "pa_ratio",
    "oe_ratio",
    "sharpness",
    "coverage",
]


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


@every_window
@every_kind
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


def restored(how: str, w):
    if how == "bytes":
        return streamcal.from_bytes(w.to_bytes())
    if how == "class":
        return type(w).from_bytes(w.to_bytes())
    return pickle.loads(pickle.dumps(w)) if how == "pickle" else copy.deepcopy(w)


@every_window
@every_kind
@pytest.mark.parametrize("how", ["bytes", "class", "pickle", "deepcopy"])
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


@every_window
@every_kind
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


huge = st.tuples(sts.probabilities, sts.unit, st.just(1e16))
one_row = st.tuples(st.sampled_from((0.41, 0.45, 0.5)), sts.unit, st.sampled_from((1.0, 1e9)))
mixed = st.tuples(st.sampled_from((0.3, 0.45, 0.5)), sts.binary, st.sampled_from((0.1, 0.3, 1.0, 1e16)))
one_row_after = st.tuples(st.sampled_from((0.42, 0.44, 0.49)), sts.unit, st.just(1.0))


@pytest.mark.parametrize("one", [False, True], ids=["batch", "one"])
@pytest.mark.parametrize("name", ["sliding", "tumbling", "timed"])
@pytest.mark.parametrize(
    "before, after",
    [(huge, sts.events), (one_row, one_row_after), (sts.events, sts.plain_events), (mixed, mixed)],
    ids=["huge", "one-row", "any", "mixed"],
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
@every_kind
@few
@given(data=st.data())
def test_a_batch_larger_than_the_window(window, kind, data):
    stream = data.draw(sts.streams(kind.raw, 40, min_size=SIZE + 1))
    before = data.draw(st.integers(0, 3))
    w = feed(build(window, kind), stream[:before])
    feed(w, stream[before:], start=before)
    assert_cells(sums(w), naive_cells(kind, stream, window.content(len(stream))), window.faded)


def large(flavour: str, n: int, seed: int = 5) -> list:
    """n events as lists of floats; "bad" has refused and clipped events at a few random places."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.4, 0.9, n)
    p[rng.integers(0, n, n // 20)] = rng.integers(0, 26, n // 20) / 25  # edges, ties, 0 and 1
    y = rng.random(n) if flavour == "real" else (rng.random(n) < p).astype(float)
    w = rng.choice([0.0, 1.0, 2.5, 1e3], n) if flavour in ("weighted", "bad") else np.ones(n)
    events = list(zip(p.tolist(), y.tolist(), w.tolist()))
    if flavour in ("bad", "some-bad"):
        for i in rng.integers(0, n, 12):
            events[i] = BAD[i % len(BAD)]
    return events


BAD = [
    (np.nan, 1.0, 1.0),
    (0.5, np.nan, 1.0),
    (1.0000005, 1.0, 1.0),
    (0.5, 1.0000001, 1.0),
    (-0.1, 1.0, 1.0),
    (0.5, 1.0, -1.0),
    (-5e-7, 0.0, 1.0),
    (np.inf, 0.0, 1.0),
    (0.5, 1.0, np.nan),
    (0.3, 0.5, 1.0),
]
FLAVOURS = ["binary", "real", "weighted", "some-bad", "bad"]


def admitted(stream):
    """(good events, index of each good event, number refused, number clipped)."""
    marks = [naive.admit(*e) for e in stream]
    good = [m[:3] if m else None for m in marks]
    return good, marks.count(None), sum(m[3] for m in marks if m)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("name", ["width10", "width25", "grid", "levels", "edges"])
@pytest.mark.parametrize("n", [511, 512, 513, 2100])
def test_large_batches_hold_what_small_ones_hold(flavour, name, n):
    kind, stream = KINDS[name], large(flavour, n)
    p, y, w = (np.array(column) for column in zip(*stream))
    window = Cumulative(kind.binning)
    window.update_many(p, y, None if flavour in ("binary", "real", "some-bad") and (w == 1).all() else w)
    good, refused, clipped = admitted(stream)
    kept = [(i, 1.0) for i, e in enumerate(good) if e]
    assert_cells(sums(window), naive_cells(kind, good, kept))
    assert window.snapshot().refused.item() == refused
    assert window.snapshot().clipped.item() == clipped


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("name", ["mass", "logodds"])
def test_large_batches_on_the_fine_grids(flavour, name):
    kind, stream = KINDS[name], large(flavour, 40_000)
    p, y, w = (np.array(column) for column in zip(*stream))
    window = Cumulative(kind.binning)
    window.update_many(p, y, w)
    good, refused, clipped = admitted(stream)
    kept = [(i, 1.0) for i, e in enumerate(good) if e]
    assert_cells(sums(window), naive_cells(kind, good, kept))
    assert window.snapshot().refused.item() == refused


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("name", ["width25", "levels", "mass"])
@pytest.mark.parametrize("keys", [2, 30])
def test_large_batches_of_several_keys(flavour, name, keys):
    kind, stream = KINDS[name], large(flavour, 2100)
    key = np.random.default_rng(6).integers(0, keys, len(stream))
    together = Cumulative(kind.binning, keys=keys)
    together.update_many(*(np.array(column) for column in zip(*stream)), key=key)
    good, _, _ = admitted(stream)
    for k in (0, keys - 1):
        kept = [(i, 1.0) for i, e in enumerate(good) if e and key[i] == k]
        assert_cells(sums(together)[k : k + 1], naive_cells(kind, good, kept))
        assert together.snapshot().refused[k] == sum(e is None and key[i] == k for i, e in enumerate(good))


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("keys", [1, 3])
def test_large_batches_with_log_loss(flavour, keys):
    """Its sum is finite or infinite by weight: certain misses are infinite, whatever else came."""
    kind, stream = KINDS["width25"], large(flavour, 2100)
    key = np.random.default_rng(6).integers(0, keys, len(stream))
    w = Cumulative(kind.binning, keys=keys, loss="log")
    w.update_many(*(np.array(column) for column in zip(*stream)), key=key)
    good, _, _ = admitted(stream)
    got = np.atleast_1d(w.get("log_loss"))
    for k in range(keys):
        mine = [e for i, e in enumerate(good) if e and key[i] == k]
        want = naive.log_loss([[(p, p, y, weight) for p, y, weight in mine]])
        assert got[k] == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("name", ["quantile", "quantiles", "interval", "toplabel", "marginal", "pit"])
def test_large_batches_of_other_claims(name):
    kind, rng = KINDS[name], np.random.default_rng(7)
    n = 1300
    lo = rng.integers(-9, 10, (n, 3)) / 2
    raw = {
        "quantile": np.clip(lo[:, 0], -5, 5),
        "quantiles": lo,
        "interval": np.column_stack((lo[:, 0], lo[:, 0] + rng.integers(0, 9, n) / 2)),
        "pit": rng.random(n),
    }.get(name, rng.dirichlet(np.ones(3), n))
    y = rng.integers(0, 3, n) if name in ("toplabel", "marginal") else rng.integers(-9, 10, n) / 2
    w = rng.choice([0.0, 1.0, 2.5], n)
    window = Cumulative(kind.binning, claim=kind.claim, loss=kind.loss)
    window.update_many(raw, y, w)
    stream = list(zip(raw.tolist(), y.tolist(), w.tolist()))
    assert_cells(sums(window), naive_cells(kind, stream, [(i, 1.0) for i in range(n)]))


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("size", [1, 100, 511, 1000])
def test_sliding_and_tumbling_in_large_batches(flavour, size):
    """Refused events hold a slot: the content is the admitted part of the last `size` events."""
    kind, stream = KINDS["width25"], large(flavour, 2300)
    good, _, _ = admitted(stream)
    n, order = len(stream), list(range(len(stream)))
    for make, content in ((Sliding, naive.tail(order, size)), (Tumbling, naive.tumbling(order, size))):
        w = make(kind.binning, size)
        for cut in (slice(0, 1), slice(1, 700), slice(700, 701), slice(701, n)):
            p, y, weight = (np.array(column) for column in zip(*stream[cut]))
            w.update_many(p, y, weight)
        assert_cells(sums(w), naive_cells(kind, good, [(i, 1.0) for i in content if good[i]]))
        assert w.snapshot().refused.item() == sum(good[i] is None for i in content)


@pytest.mark.parametrize("flavour", ["binary", "weighted"])
def test_fading_over_thousands_of_half_lives(flavour):
    """The growing weights are rescaled on the way: still the plain definition."""
    kind, stream = KINDS["width10"], large(flavour, 3000)
    w = Fading(kind.binning, 1.5)
    for cut in (slice(0, 1000), slice(1000, 1001), slice(1001, 3000)):
        w.update_many(*(np.array(column) for column in zip(*stream[cut])))
    tail = naive.tail(stream, 400)  # what is older weighs less than 2^-260
    want = naive_cells(kind, tail, list(enumerate(naive.fade(400, 1.5))))
    np.testing.assert_allclose(sums(w), want, rtol=1e-11, atol=1e-70)


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


# ------------------------------------------------------------------------------ tumbling, time


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


# ------------------------------------------------------------------------------ unlike things


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
        assert w._is_sound(w._buf)


def test_a_loss_too_large_to_add_leaves_no_trace():
    w = Sliding(Edges([-math.inf, math.inf]), 2, claim=Quantile(0.9), loss="pinball")
    for _ in range(3):
        w.update(-0.8e308, 0.9e308)
    assert w.get("pinball_loss") == math.inf
    for _ in range(3):
        w.update(1.0, 2.0)
    assert w.get("pinball_loss") == pytest.approx(0.9)


def test_a_fading_window_forgets():
    """After 500 half-lives neither a row nor an infinite loss is left of an event."""
    w = Fading(EqualWidth(10), 1.0, loss="log")
    w.update(0.0, 1)
    w.update_many([0.75] * 500, [1] * 500)
    assert w.report()["rows_used"] == 1
    assert w.get("log_loss") == pytest.approx(-math.log(0.75))
    assert w.get("mce") == pytest.approx(0.25)


def test_a_late_ring_costs_what_an_early_one_costs():
    """Rings are given with some to spare, and a document has none of the spare ones."""
    w = Sliding(EqualWidth(2), 10, keys=1000)
    for k in range(600):
        w.update(0.5, 1, 1.0, k)
    assert w.to_bytes() == type(w).from_bytes(w.to_bytes()).to_bytes()
    assert len(w.to_bytes()) < 8 * (w._layout.end + 600 * 30) + 1000


def test_snapshots_sum_and_never_give_more_than_they_hold():
    a, b = Cumulative(EqualWidth(4)), Cumulative(EqualWidth(4))
    a.update_many([0.1, 0.9], [0, 1])
    b.update(0.1, 1)
    assert sum([a.snapshot(), b.snapshot()]).count.sum() == 3
    with pytest.raises(ValueError, match="fewer events"):
        b.snapshot() - a.snapshot()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_datetime64_means_the_same_in_every_unit(unit):
    one, many, objects = (Timed(EqualWidth(2), 60) for _ in range(3))
    stamp = np.datetime64("2024-01-01T00:00:30", unit)
    one.update(0.5, 1, t=stamp)
    many.update_many([0.5], [1], t=np.array([stamp]))
    aware = datetime(2024, 1, 1, 0, 0, 30, tzinfo=UTC)
    objects.update_many([0.5], [1], t=np.array([aware], object))
    assert one.watermark == many.watermark == objects.watermark == 1704067230.0


def test_strict_timed_refuses_a_time_that_no_pane_has():
    w = Timed(EqualWidth(2), 10, strict=True)
    with pytest.raises(ValueError, match="index 1"):
        w.update_many([0.5, 0.5], [1, 1], t=[0.0, 1e300])
    assert w.snapshot().count.sum() == 0


def test_frozen_binnings_are_frozen():
    for b in (Edges([0.0, 0.5, 1.0]), Levels([0.2, 0.4])):
        with pytest.raises(ValueError):
            b.edges[1] = 0.1


def test_numpy_whole_numbers_are_whole_numbers():
    w = Sliding(EqualWidth(np.int64(5)), np.int32(10), keys=np.uint8(2))
    assert repr(w) == "Sliding(EqualWidth(n_bins=5), 10, keys=2)"
    assert type(w).from_bytes(w.to_bytes()).to_bytes() == w.to_bytes()
