"""Events far ahead of all others: none moves time alone, and none is lost; the guard beside its rule, one by one."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamcal.reading.ahead import MOST, Ahead

HOUR = 3600.0
TIMES = st.lists(st.integers(-6, 40).map(lambda k: k * HOUR / 2), max_size=25)


def fed(times, ahead=HOUR, keys=None):
    guard = Ahead(ahead)
    return guard, [guard.take(t, str(i if keys is None else keys[i]), i) for i, t in enumerate(times)]


def test_one_message_far_ahead_is_held_until_a_second_is_near_it_or_later():
    for second in (2e6 - HOUR, 2e6 + HOUR, 2e6 + 1e6):
        guard, out = fed([0.0, 2e6, 60.0, second, 61.0])
        assert out == [[0], [], [2], [1, 3], [4]] and guard.clock == max(2e6, second) and not guard.held
    guard, out = fed([0.0, 2e6, 60.0, 2e6 - HOUR - 1.0])
    assert out == [[0], [], [2], []] and len(guard.held) == 2 and guard.clock == 60.0
    assert guard.move(2e6 - 2 * HOUR - 1.0) == [3] and guard.move(2e6 - HOUR) == [1]


def test_a_witness_much_farther_ahead_needs_one_itself():
    guard, out = fed([0.0, 86_400.0, 1e9, 86_401.0])  # a day later, then a time that is wrong
    assert out == [[0], [], [1], [3]] and [held.what for held in guard.held] == [2]


def test_a_message_is_no_witness_of_itself():
    guard, out = fed([0.0, 2e6, 2e6, 2e6 + 1.0], keys="abbc")
    assert out == [[0], [], [], [1, 2, 3]]


def test_many_that_are_held_are_bounded():
    guard, _ = fed([0.0, *(1e9 - 3 * HOUR * k for k in range(MOST + 7))])
    assert len(guard.held) == MOST and guard.given_up == 7


@given(TIMES)
def test_nothing_is_lost_and_nothing_twice_and_time_never_jumps_alone(times):
    guard, out = fed(times)
    given_ = [i for some in out for i in some]
    assert sorted([*given_, *(held.what for held in guard.held)]) == list(range(len(times)))
    assert guard.clock == max((times[i] for i in given_), default=-math.inf)
    for i in given_[1:]:  # of each that was far ahead of all before it there is another one near it or later
        before = max(times[j] for j in given_[: given_.index(i)])
        if times[i] > before + HOUR:
            assert sum(t >= times[i] - HOUR for t in times) >= 2


@given(TIMES, st.integers(-2, 30))
def test_whether_all_are_near_is_that_of_one_after_the_other(times, clock):
    for start in (-math.inf, clock * HOUR):
        guard = Ahead(HOUR, start)
        whole = guard.are_near(np.array(times, np.float64))
        assert whole == all(guard.take(t, str(i), i) == [i] for i, t in enumerate(times))
