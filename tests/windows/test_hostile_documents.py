"""A document with a checksum that fits and any number in its buffer: refused, or a window that stays within its buffer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from windows_cases import KINDS, WINDOWS, build, feed, feed_one

import streamcal

NASTY = (
    math.nan,
    math.inf,
    -math.inf,
    -1.0,
    -0.0,
    0.5,
    1.0,
    2.0,
    3.0,
    7.0,
    8.0,
    1e3,
    1e9,
    -1e18,
    2.0**53,
    1e300,
    5e-324,
)
PAD = 50_000  # numbers beside the buffer that no kernel may touch


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("part", ["header", "cells", "own"])
@settings(max_examples=40)
@given(data=st.data())
def test_a_document_with_any_number_in_it_is_refused_or_safe(name, part, data):
    stream = [(i % 11 / 11, float(i % 2), 1.0 + i % 3) for i in range(10)]
    window = feed(build(WINDOWS[name], KINDS["width10"], keys=2), stream, key=[0, 1] * 5)
    layout, (config, arrays) = window._layout, window._state()
    buffer = arrays["buffer"].copy()
    ends = {
        "header": (0, layout.start),
        "cells": (layout.start, layout.own_start),
        "own": (layout.own_start, buffer.size),
    }
    first, last = ends[part]
    if first == last:
        return  # a window without numbers of its own
    for _ in range(data.draw(st.integers(1, 2))):
        buffer[data.draw(st.integers(first, last - 1))] = data.draw(st.sampled_from(NASTY))
    window._state = lambda: (config, {"buffer": buffer})
    try:
        again = streamcal.from_bytes(window.to_bytes())
    except ValueError:
        return
    size = again._buf.size
    padded = np.full(size + 2 * PAD, 0.777)
    padded[PAD : PAD + size] = again._buf
    again._buf = padded[PAD : PAD + size]
    with np.errstate(all="ignore"):
        for i, event in enumerate(stream):
            feed_one(again, *event, 20 + i, i % 2)
        feed(again, stream, start=40, key=[1, 0] * 5)
        assert again.snapshot().cells.shape == window.snapshot().cells.shape
        assert type(again.widened(3)) is type(window)
    assert (padded[:PAD] == 0.777).all() and (padded[PAD + size :] == 0.777).all()
