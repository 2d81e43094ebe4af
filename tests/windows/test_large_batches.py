"""Large batches, which go through the fast kernels, hold what small ones hold."""

from __future__ import annotations

import naive
import numpy as np
import pytest
import strategies as sts
from hypothesis import given
from hypothesis import strategies as st
from windows_cases import KINDS, SIZE, assert_cells, build, every_part, feed, few, naive_cells, sums

from streamcal import Cumulative, Fading, Sliding, Tumbling


@every_part
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
