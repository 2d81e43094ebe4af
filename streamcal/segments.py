"""Which segments are told apart: a fixed number of names, each with a number that it keeps; all others are "other".

One rule for the command, the monitor and the detectors: declared names have their places from the start, then first
come, first served, up to the cap. A place is never taken away from who has it. What has no place shares number 0, and
how many events went there is counted, to be shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from streamcal.arrays import Ints, check_whole

OTHER = 0  # the number that all names without a place share
SHARED, UNNAMED = "other", "(empty)"  # what people read for that number, and for the name ""


class SegmentNames:
    """Names -> numbers 1, 2, ... up to ``cap``, in the order in which they came; 0 for a name that came too late.

    ``names`` lists them, number 0 first. ``overflow`` counts the events without a place (see :meth:`count`).
    ``declared``: names that have their places before anything comes, at most ``cap`` of them.

    >>> segments = SegmentNames(2, declared=["at"])
    >>> [segments.add(name) for name in ("de", "at", "ch")], segments.names
    ([2, 1, 0], ['other', 'at', 'de'])
    >>> numbers = segments.numbers(["ch", "at", "fr"])
    >>> segments.count(numbers)
    >>> numbers.tolist(), segments.overflow
    ([0, 1, 0], 2)
    """

    def __init__(self, cap: int, declared: Iterable[str] = (), other: str = SHARED) -> None:
        self.cap = check_whole("cap", cap, 0)
        self.names = [other]
        self.overflow = 0
        self._numbers: dict[str, int] = {}
        for name in declared:
            if name not in self._numbers and self.add(name) == OTHER:
                raise ValueError(f"cap must leave room for every declared name, got {cap} for {declared!r:.80}")

    def __len__(self) -> int:
        """How many numbers there are, that of the others included."""
        return len(self.names)

    def __contains__(self, name: str) -> bool:
        """Whether a name has a place of its own."""
        return name in self._numbers

    @property
    def is_full(self) -> bool:
        """Whether no name that is new gets a place any more."""
        return len(self._numbers) >= self.cap

    def add(self, name: str) -> int:
        """The number of a name; a new one is given a place if there is one left."""
        number = self._numbers.get(name, OTHER)
        if number == OTHER and not self.is_full:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number

    def numbers(self, names: Sequence[str]) -> Ints:
        """The numbers of n names, which are given no places here. Shape (n,)."""
        return np.fromiter(map(self._numbers.get, names, repeat(OTHER)), np.int64, len(names))

    def count(self, numbers: Ints) -> None:
        """Count the events of these numbers that share number 0."""
        self.overflow += int(np.count_nonzero(numbers == OTHER))

    def shown(self, number: int) -> str:
        """What people read for a number: the name; "(empty)" for "", "other" for number 0, in (more) brackets where taken."""
        if number != OTHER:
            return self.names[number] or free_name(UNNAMED, self._numbers)
        return free_name(self.names[OTHER], dict.fromkeys(self.shown(n) for n in range(1, len(self.names))))

    def to_plain(self) -> dict[str, Any]:
        """The names with places and the overflow as plain data; :meth:`take_over` reads it."""
        return {"names": self.names[1:], "overflow": self.overflow}

    def take_over(self, plain: Mapping[str, Any]) -> None:
        """Go on where :meth:`to_plain` was. Whoever had a place keeps it, also where the cap is smaller by now."""
        self.names[1:] = plain["names"]
        self._numbers = {name: number for number, name in enumerate(self.names[1:], 1)}
        self.overflow = plain["overflow"]


def free_name(name: str, taken: Mapping[str, object]) -> str:
    """The name, in as many brackets as it takes for no segment to have it.

    >>> free_name("other", {"other": 1, "(other)": 2})
    '((other))'
    """
    return free_name(f"({name})", taken) if name in taken else name
