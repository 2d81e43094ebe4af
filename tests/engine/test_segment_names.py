"""One cap on segments: declared names first, then first come, first served, the rest is "other" and counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.segments import SegmentNames, free_name

names = st.lists(st.sampled_from(["", "at", "de", "ch", "other", "(other)", "(empty)"]), max_size=30)


@given(st.integers(0, 5), names)
def test_the_first_names_have_places_and_keep_them(cap, stream):
    segments = SegmentNames(cap)
    given_ = [segments.add(name) for name in stream]
    first = list(dict.fromkeys(stream))[:cap]
    assert segments.names == ["other", *first]
    assert given_ == [first.index(name) + 1 if name in first else 0 for name in stream]
    assert segments.numbers(stream).tolist() == given_
    assert len(segments) == len(first) + 1 and segments.is_full == (len(first) == cap)
    assert all((name in segments) == (number > 0) for name, number in zip(stream, given_))


@given(st.lists(st.sampled_from("abcdef"), max_size=4), names)
def test_declared_names_always_have_a_place(declared, stream):
    segments = SegmentNames(4, declared)
    for name in stream:
        segments.add(name)
    assert all(segments.numbers(declared) > 0)


def test_more_declared_names_than_places_are_refused():
    with pytest.raises(ValueError, match="cap must leave room for every declared name, got 1"):
        SegmentNames(1, ["at", "de"])


@given(st.integers(0, 3), st.lists(names, max_size=4))
def test_every_event_without_a_place_is_counted(cap, batches):
    segments, lost = SegmentNames(cap), 0
    for batch in batches:
        for name in batch:
            segments.add(name)
        numbers = segments.numbers(batch)
        segments.count(numbers)
        lost += numbers.tolist().count(0)
    assert segments.overflow == lost


@given(st.integers(0, 5), st.integers(0, 5), names, names)
def test_a_restored_one_goes_on_and_takes_no_place_away(cap, later, stream, more):
    segments, again = SegmentNames(cap), SegmentNames(later)
    for name in stream:
        segments.add(name)
    segments.count(segments.numbers(stream))
    again.take_over(segments.to_plain())
    assert (again.names, again.overflow) == (segments.names, segments.overflow)
    for name in more:
        again.add(name)
    assert again.names[: len(segments)] == segments.names
    assert len(again) - 1 <= max(later, len(segments) - 1)
    if later == cap:
        assert again.numbers(more).tolist() == [segments.add(name) for name in more]


@given(names)
def test_people_read_a_different_name_for_every_number(stream):
    segments = SegmentNames(5)
    for name in stream:
        segments.add(name)
    shown = [segments.shown(n) for n in range(len(segments))]
    assert len(set(shown)) == len(shown) and "" not in shown
    assert all(shown[n] == name for n, name in enumerate(segments.names) if n and name)


def test_a_name_that_is_taken_gets_brackets():
    assert free_name("other", {}) == "other"
    assert free_name("other", {"other": 0}) == "(other)"
    assert np.array_equal(SegmentNames(3, ["other"]).numbers(["other", "at"]), [1, 0])
    assert SegmentNames(3, ["other"]).shown(0) == "(other)"
