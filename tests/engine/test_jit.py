"""The compiler's room: cache or no cache, the short cut past the dispatcher and its fall-back, the intrinsics' twins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import Cumulative, EqualWidth, _jit
from streamcal.windows.cumulative import cumulative_one

finite = st.floats(-1e6, 1e6)


def test_a_kernel_compiles_without_a_cache_where_none_can_be_written(monkeypatch):
    """numba raises at decoration when neither the package's folder nor a cache home is writable."""
    asked: list[bool] = []

    def njit(**options: Any):
        asked.append(options.get("cache", False))
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(_jit.numba, "njit", njit)
    for decorator in (_jit.kernel, _jit.brief, _jit.inlined):
        assert decorator(abs)(-3) == 3
    assert asked == [True, False] * 3


class Pretender:
    """A dispatcher whose entry does something else than it does."""

    def __init__(self, entry: Any) -> None:
        self.overloads = {"sample": SimpleNamespace(entry_point=entry)}

    def __call__(self, buffer: np.ndarray, x: float) -> int:
        buffer[0] += x
        return 0


def wrong_sum(buffer: np.ndarray, x: float) -> int:
    buffer[0] += x + 1
    return 0


def wrong_status(buffer: np.ndarray, x: float) -> int:
    buffer[0] += x
    return 1


def broken(buffer: np.ndarray, x: float) -> int:
    raise SystemError("bad argument")


@pytest.mark.parametrize("entry", [wrong_sum, wrong_status, broken, None])
def test_an_entry_that_differs_in_anything_is_not_taken(entry):
    buffer = np.zeros(3)
    call = _jit.entry(Pretender(entry), buffer, 0.5)
    assert not buffer.any(), "the self-test runs on copies"
    call(buffer, np.float32(2.0))
    assert buffer[0] == 2.0


def test_the_door_behind_the_short_cut_reads_scalars_like_float():
    """Without numba's entry, update must mean the same: None and words are refused, a numeric text is a number."""
    window = Cumulative(EqualWidth(4))
    careful = _jit._converting(cumulative_one)
    assert careful(window._buf, "0.3", np.bool_(True), 1, 0) == 0
    assert window.snapshot().count.tolist() == [[0, 1, 0, 0]]
    with pytest.raises(TypeError):
        careful(window._buf, None, 1, 1, 0)
    with pytest.raises(ValueError):
        careful(window._buf, "high", 1, 1, 0)


@_jit.kernel
def bits(x):
    return _jit.float_bits(x)


@_jit.kernel
def four(sums, i, a, b, c, d):
    _jit.add_four(sums, np.uint64(i), a, b, c, d)


@_jit.kernel
def four_exactly(sums, i, e, a, b, c, d):
    _jit.add_four_exactly(sums, np.uint64(i), np.uint64(e), a, b, c, d)


@given(st.floats(allow_nan=False))
def test_float_bits_is_its_twin(x):
    assert bits(x) == _jit._float_bits(x)


@given(st.lists(finite, min_size=8, max_size=8), st.lists(finite, min_size=4, max_size=4))
def test_vector_additions_are_their_twins(start, terms):
    for fast, twin, places in ((four, _jit._add_four, (2,)), (four_exactly, _jit._add_four_exactly, (0, 4))):
        one, other = np.array(start), np.array(start)
        fast(one, *places, *terms)
        twin(other, *places, *terms)
        assert one.tobytes() == other.tobytes()


def test_an_exact_sum_gives_back_what_a_huge_term_covered():
    sums = np.zeros(8)
    for x in (1.0, 1e16, 3.0, -1e16, -3.0):
        four_exactly(sums, 0, 4, x, x, x, x)
    assert sums.tolist() == [1.0] * 4 + [0.0] * 4
