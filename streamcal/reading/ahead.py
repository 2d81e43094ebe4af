"""Events far ahead of all others: held back until another message confirms the time.

One time in the wrong unit, or of a clock that is wrong, would else move time on alone, and make everything that follows late. An
event more than ``ahead`` beyond the newest time that counts is held, neither counted nor moving the clock, until a second message
lies within ``ahead`` of it or later; then it counts. The second message counts with it unless it lies so much further ahead
that it needs a witness of its own. A message that comes twice is no witness of itself.
"""

from __future__ import annotations

import math
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from streamcal.arrays import Array

T = TypeVar("T")
MOST = 1_000  # messages that are held: of more those that are farthest ahead are given up, and counted


class Held(NamedTuple, Generic[T]):
    """A message that is held: when it is of, what tells it from others, and what it is."""

    t: float
    key: str
    what: T


class Ahead(Generic[T]):
    """Messages in, those that count out, in order. ``clock``: the newest time that counts, -inf before the first.

    >>> guard = Ahead[str](3600.0)
    >>> guard.take(0.0, "a", "a"), guard.take(1e6, "b", "b"), guard.take(60.0, "c", "c")
    (['a'], [], ['c'])
    >>> guard.take(1e6 + 5.0, "d", "d"), guard.clock
    (['b', 'd'], 1000005.0)
    """

    def __init__(self, ahead: float, clock: float = -math.inf) -> None:
        self.ahead, self.clock = ahead, clock
        self.held: list[Held[T]] = []
        self.given_up = 0

    def is_near(self, t: float) -> bool:
        """Whether a time is not far ahead of all others."""
        return t <= self.clock + self.ahead or self.clock == -math.inf

    def are_near(self, t: Array) -> bool:
        """Whether each of some times in order is near, if those before it count."""
        if not len(t) or (self.clock > -math.inf and float(t.max()) <= self.clock + self.ahead):
            return True
        first = float(t[0]) if self.clock == -math.inf else self.clock
        before = np.maximum.accumulate(np.concatenate([[first], t[:-1]]))
        return bool((t <= before + self.ahead).all())

    def take(self, t: float, key: str, what: T) -> list[T]:
        """One message: what counts now, that was held or is this one."""
        if any(held.t == t and held.key == key for held in self.held):
            self.held.append(Held(t, key, what))  # the same again, or another part of it: with the first, or not at all
            return []
        found = [held for held in self.held if t >= held.t - self.ahead]
        near = self.is_near(t)
        if found:
            self.held = [held for held in self.held if t < held.t - self.ahead]
            jump = max(held.t for held in found) - self.clock
            self.clock = max(self.clock, *(held.t for held in found))
            near = t <= self.clock + max(self.ahead, jump)
        out = [held.what for held in found]
        if not near:
            self.held.append(Held(t, key, what))
            if len(self.held) > MOST:
                self.held.remove(max(self.held, key=lambda held: held.t))
                self.given_up += 1
            return out
        self.clock = max(self.clock, t)
        return [*out, what]

    def move(self, clock: float) -> list[T]:
        """Time that goes on without a message: what counts now."""
        self.clock = max(self.clock, clock)
        found = [held for held in self.held if self.clock >= held.t - self.ahead]
        self.held = [held for held in self.held if self.clock < held.t - self.ahead]
        self.clock = max([self.clock, *(held.t for held in found)])
        return [held.what for held in found]
