"""Revertible: what has been taken back leaves no trace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from streamcal import Cumulative, EqualWidth, Marginal, Quantile, Revertible, UniformMass, from_bytes
from streamcal.windows import Sliding

B = EqualWidth(7)
events = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.sampled_from([0.0, 0.3, 1.0, 1e9, 1e-9])), max_size=40)


def fed(window, rows):
    for row in rows:
        window.update(*row)
    return window


@given(events, events, st.randoms())
def test_what_stays_is_what_was_not_taken_back(stays, goes, random):
    window = Revertible(B, loss="log")
    order = [*((row, 1) for row in stays), *((row, 1) for row in goes)]
    random.shuffle(order)
    fed(window, [row for row, _ in order])
    random.shuffle(goes)
    for row in goes:
        window.revert(*row)
    want = fed(Cumulative(B, loss="log"), stays).cells
    scale = max([1.0, *(w for _, _, w in [*stays, *goes])])
    assert_allclose(window.cells, want, rtol=1e-12, atol=1e-20 * scale * scale)
    assert np.array_equal(window.cells[0, :, 0] == 0.0, want[0, :, 0] == 0.0)


@given(st.integers(1, 12), events)
def test_a_window_that_someone_else_keeps_is_a_sliding_one(size, rows):
    window, sliding = Revertible(B), Sliding(B, size)
    for i, row in enumerate(rows):
        window.update(*row)
        sliding.update(*row)
        if i >= size:
            window.revert(*rows[i - size])
        assert_allclose(window.cells, sliding.cells, rtol=1e-12, atol=1e-12)


@pytest.mark.jit
def test_a_million_events_come_and_go():
    rng = np.random.default_rng(0)
    p, w = rng.random(1_000_000), rng.choice([1.0, 1e-6, 1e6], 1_000_000)
    y = (rng.random(p.size) < p).astype(float)
    window = Revertible(B)
    for i, row in enumerate(zip(p.tolist(), y.tolist(), w.tolist())):
        window.update(*row)
        if i >= 10:
            window.revert(p[i - 10], y[i - 10], w[i - 10])
    want = fed(Cumulative(B), zip(p[-10:], y[-10:], w[-10:]))
    assert_allclose(window.cells, want.cells, rtol=1e-12)


def test_many_at_once_and_documents():
    rows = np.random.default_rng(0).random((50, 3))
    window = Revertible(B)
    window.update_many(*rows.T)
    assert_allclose(window.cells, fed(Revertible(B), rows.tolist()).cells, rtol=1e-13)
    again = from_bytes(window.to_bytes())
    for one in (window, again):
        for row in rows[:49].tolist():
            one.revert(*row)
    assert again.to_bytes() == window.to_bytes()
    assert_allclose(again.cells, fed(Cumulative(B), rows[49:].tolist()).cells, rtol=1e-12)


def test_refused_events_come_back_too():
    window = Revertible(B)
    window.update(0.5, None)
    window.update(2.0, 1.0)
    assert window.snapshot().refused.tolist() == [2.0]
    window.revert(2.0, 1.0)
    assert window.snapshot().refused.tolist() == [1.0]
    window.revert(0.5, None)
    with pytest.raises(ValueError, match="no such event"):
        window.revert(0.5, None)


def test_what_is_not_there_cannot_be_taken_back():
    window = Revertible(B)
    window.update(0.5, 1.0)
    before = window.to_bytes()
    with pytest.raises(ValueError, match=r"no such event to take back: 0.9, 1.0, 1.0"):
        window.revert(0.9, 1.0)
    with pytest.raises(ValueError, match=r"key must be a whole number in 0..0, got 1"):
        window.revert(0.5, 1.0, key=1)
    assert window.to_bytes() == before


def test_claims_of_several_keys_and_quantiles():
    window = Revertible(B, claim=Marginal(3), keys=2)
    window.update([0.2, 0.3, 0.5], 1, key=1)
    window.update([0.1, 0.8, 0.1], 2, key=1)
    window.revert([0.2, 0.3, 0.5], 1, key=1)
    want = Cumulative(B, claim=Marginal(3), keys=2)
    want.update([0.1, 0.8, 0.1], 2, key=1)
    assert_allclose(window.cells, want.cells)
    with pytest.raises(ValueError, match="no such event"):
        window.revert([0.2, 0.3, 0.5], 1, key=0)
    quantiles = Revertible(UniformMass(5), claim=Quantile(0.9), loss="pinball")
    quantiles.update(1.0, 2.0)
    quantiles.update(3.0, 2.0)
    quantiles.revert(1.0, 2.0)
    assert quantiles.get("coverage") == 1.0
