"""The one set of bounds: what is allowed alone is allowed in a column and in a kernel, and nothing else is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import Cumulative, Edges, EqualWidth, Quantile
from streamcal.limits import BOUNDS, HEAVIEST, LONGEST, TOLERANCE, WORDS, first_refused, is_allowed, is_text, unit

INSIDE, OUTSIDE = [], []
for what, (low, high) in BOUNDS.items():
    INSIDE += [(what, v) for v in (low, high, (low + high) / 2.0)]
    OUTSIDE += [(what, v) for v in (math.nextafter(low, -math.inf), math.nextafter(high, math.inf), math.inf, math.nan)]


def test_both_ends_are_allowed_and_their_neighbours_are_not():
    assert all(is_allowed(what, value) for what, value in INSIDE)
    assert not any(is_allowed(what, value) for what, value in OUTSIDE)
    assert set(WORDS) == set(BOUNDS)
    assert WORDS["w"] == "a weight in [0, 1e100]"


@given(st.sampled_from(sorted(BOUNDS)), st.lists(st.floats(width=64), max_size=8))
def test_a_column_is_allowed_as_its_values_are(what, values):
    column = np.array(values)
    allowed = [bool(is_allowed(what, v)) for v in values]
    assert is_allowed(what, column).tolist() == allowed
    assert first_refused(what, column) == (allowed.index(False) if False in allowed else -1)


@given(st.one_of(st.floats(-2 * TOLERANCE, 1 + 2 * TOLERANCE), st.floats()))
def test_a_kernel_reads_a_probability_as_python_does(p):
    read = unit(p)
    assert bool(is_allowed("p", p)) == (read == read)
    assert math.isnan(read) or read == min(max(p, 0.0), 1.0)


@pytest.mark.parametrize("weight", [HEAVIEST, math.nextafter(HEAVIEST, math.inf), -5e-324, 0.0])
def test_a_window_takes_just_the_weights_that_are_allowed_and_its_sums_stay_finite(weight):
    for window, event in (
        (Cumulative(EqualWidth(2)), (0.7, 1.0)),
        (Cumulative(Edges([0, 9]), claim=Quantile(0.9)), (3, 1)),
    ):
        window.update(*event, weight)
        window.update(*event, weight)
        assert (window.snapshot().refused[0] == 0) == is_allowed("w", weight)
        assert np.isfinite(window.cells).all()


def test_a_text_can_be_written_down_and_is_not_too_long():
    assert is_text("a" * LONGEST) and is_text("")
    assert not any(map(is_text, ("a" * (LONGEST + 1), "\ud800", b"a", None, 1)))
    assert is_text("a" * (LONGEST + 1), longest=LONGEST + 1)
