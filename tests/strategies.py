"""Shared Hypothesis strategies: numbers, events, streams, and ways to cut a stream into batches."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import strategies as st

NASTY_BINS = (2, 3, 5, 7, 10, 15, 20, 25, 29, 41, 50, 100)


def _edge(k: int, m: int, side: int) -> float:
    """k/m (side 0) or its float neighbour below (-1) or above (1), inside [0, 1]."""
    k %= m + 1
    edge = k / m
    return min(max(edge if not side else math.nextafter(edge, side * math.inf), 0.0), 1.0)


# edges k/M of usual bin counts, and both float neighbours of each
edges = st.builds(_edge, st.integers(0, 100), st.sampled_from(NASTY_BINS), st.sampled_from((-1, 0, 1)))
corners = st.sampled_from((0.0, -0.0, 1.0, 0.5, 5e-324, 1e-310, 1e-16, 1 - 2**-53, 2**-1074, 0.1, 0.3, 0.1 + 0.2))
float32s = st.floats(0, 1, width=32)
ties = st.sampled_from((0.1, 0.25, 0.3, 0.6, 0.9))

probabilities = st.one_of(st.floats(0, 1), edges, corners, float32s, ties)
inner_probabilities = st.floats(0.001, 0.999)

binary = st.sampled_from((0.0, 1.0))
unit = st.one_of(binary, st.floats(0, 1).map(lambda y: round(y, 6)))

integer_weights = st.integers(0, 5).map(float)
weights = st.one_of(st.just(1.0), integer_weights, st.floats(1e-3, 1e3))

events = st.tuples(probabilities, unit, weights)
binary_events = st.tuples(probabilities, binary, weights)
plain_events = st.tuples(probabilities, binary, st.just(1.0))

bad_events = st.sampled_from(
    (
        (math.nan, 1.0, 1.0),
        (math.inf, 1.0, 1.0),
        (-math.inf, 0.0, 1.0),
        (-0.1, 1.0, 1.0),
        (1.1, 0.0, 1.0),
        (1.000002, 1.0, 1.0),
        (0.5, math.nan, 1.0),
        (0.5, 2.0, 1.0),
        (0.5, -1.0, 1.0),
        (0.5, 1.0000001, 1.0),
        (0.5, -1e-9, 1.0),
        (0.5, math.inf, 1.0),
        (0.5, 1.0, -1.0),
        (0.5, 1.0, math.nan),
        (0.5, 1.0, math.inf),
        (None, 1.0, 1.0),
        (0.5, None, 1.0),
    )
)
clipped_events = st.sampled_from(((1.0000005, 1.0, 1.0), (-5e-7, 0.0, 2.0)))


def streams(event=events, max_size: int = 30, min_size: int = 0):
    return st.lists(event, min_size=min_size, max_size=max_size)


# good events with refused and clipped ones among them
dirty_streams = streams(st.one_of(events, events, bad_events, clipped_events))


@st.composite
def chunkings(draw, n: int):
    """How n events are cut into batches: a list of slices that covers them in order."""
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=5)))
    return [slice(a, b) for a, b in zip([0, *cuts], [*cuts, n])]


@st.composite
def times(draw, n: int, step: float = 3.0):
    """n event times that mostly rise, with ties and steps back."""
    steps = draw(st.lists(st.floats(-step, 3 * step).map(lambda s: round(s, 2)), min_size=n, max_size=n))
    t = np.cumsum(steps) + 1000.0
    return [round(float(x), 2) for x in t]


def pairwise(cases, *aspects):
    """As few of the cases as keep every pair of values of two aspects (functions of a case) that some case has."""
    cases = list(cases)
    pairs = [set(itertools.combinations(enumerate(aspect(case) for aspect in aspects), 2)) for case in cases]
    left, chosen = set().union(*pairs), []
    while left:
        best = max(range(len(cases)), key=lambda i: len(pairs[i] & left))  # of equals the first: always the same cases
        chosen.append(best)
        left -= pairs[best]
    return [cases[i] for i in sorted(chosen)]
