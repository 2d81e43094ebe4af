"""Which segments have sums of their own: those that came first, and in time those with most traffic; the rest are "other".

A segment is placed when its prediction comes, and what is kept with the prediction is its *tag*: the number of the placing
and the name. Numbers are never used again. So a pair that counted in one place is taken back from there, whatever has been
given to whom in between: a tag whose number holds no place any longer is found where its sums went, in "other".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from streamcal.arrays import Ints
from streamcal.monitor.config.settings import WHOLE, Segments

ALL, OTHER = 0, 1  # places; those of the segments follow
UNPLACED = "-"
PATIENCE = 20  # events for each place between two looks at who has most
CLEARLY = 2.0  # whoever takes a place must have so many times the events of who holds it
FEW = 8.0  # and so many more


class Places:
    """The places of one model: 0 is all events, 1 those of "other", and each segment with sums of its own has one.

    Without settings there is only place 0. ``changed`` counts how often a place was given.

    >>> places = Places(Segments(("country",), cap=1))
    >>> [places.tag("country=at"), places.tag("country=de"), places.tag("country=at")]
    ['1:country=at', '-:country=de', '1:country=at']
    >>> places.of(["1:country=at", "-:country=de"]).tolist(), places.names
    ([2, 1], ['all', 'other', 'country=at'])
    """

    def __init__(self, settings: Segments | None) -> None:
        self.settings = settings
        self.cap = settings.cap if settings else 0
        self.names = [WHOLE, settings.other] if settings else [WHOLE]
        self.numbers = [0, 0]  # of the placing that holds each place
        self.traffic = np.zeros(2)  # events joined lately in each place
        self.spare: dict[str, dict[str, float]] = {}  # the same, by version, of the most frequent ones without a place
        self.overflow = 0  # events that went to "other"
        self.given = 0  # placings so far
        self._foreign = False  # whether what is read from a journal is about segments by other fields
        self._tags: dict[str, str] = {}  # of the names that hold a place
        self._places: dict[str, int] = {}  # of their tags

    def __len__(self) -> int:
        return len(self.names)

    def tag(self, name: str) -> str:
        """What is to be kept with a prediction of this segment; it is given a place if one is free."""
        if self.settings is None:
            return ""
        found = self._tags.get(name)
        if found is None:
            if len(self.names) - 2 >= self.cap:
                return f"{UNPLACED}:{name}"
            found = self._place(name)
        return found

    def _place(self, name: str) -> str:
        """A new place for a segment: its tag."""
        self.names.append(name)
        self.numbers.append(0)
        self.traffic = np.append(self.traffic, 0.0)
        return self._give(len(self.names) - 1, name)

    def holds(self, name: str) -> bool:
        """Whether a segment has a place, so that :meth:`tag` changes nothing."""
        return name in self._tags or len(self.names) - 2 >= self.cap

    def _give(self, place: int, name: str) -> str:
        self.given += 1
        self.names[place], self.numbers[place] = name, self.given
        for counts in self.spare.values():
            counts.pop(name, None)
        tag = self._tags[name] = f"{self.given}:{name}"
        self._places[tag] = place
        return tag

    def of(self, tags: Sequence[str]) -> Ints:
        """The places of events with these tags: what is counted besides place 0. Shape (n,)."""
        if self.settings is None:
            return np.zeros(len(tags), dtype=np.int64)
        return np.fromiter(map(self._places.get, tags, repeat(OTHER)), np.int64, len(tags))

    def saw(self, version: str, tags: Sequence[str], places: Ints) -> None:
        """Count the traffic of events that joined."""
        if self.settings is None:
            return
        self.traffic += np.bincount(places, minlength=len(self.names))
        beyond = np.flatnonzero(places == OTHER).tolist()
        self.overflow += len(beyond)
        counts = self.spare.setdefault(version, {})
        most = 4 * max(self.cap, 64)
        for i in beyond:
            name = name_of(tags[i])
            if name in self._tags:
                continue  # predicted before it was given the place that it holds now
            counts[name] = counts.get(name, 0.0) + 1.0
            if len(counts) > most:
                counts = self.spare[version] = _frequent(counts)

    def turn(self, keep: Iterable[str] = (), cap: int | None = None) -> list[int]:
        """Give places to those without one that have clearly more traffic than who holds it: the places that changed hands.

        Only once PATIENCE events for each place have come; not those of the segments in ``keep`` (a rule is firing there).
        The traffic then counts half: what was long ago matters less. The caller moves the sums of these places to "other".
        ``cap``: what it was then, where a journal is read.
        """
        wanting = self._wanting()
        if not wanting or self.traffic.sum() < PATIENCE * max(self.cap if cap is None else cap, 1):
            return []
        kept = set(keep)
        holders = sorted((self.traffic[i], i) for i in range(2, len(self.names)) if self.names[i] not in kept)
        changed = []
        for (has, place), (name, wants) in zip(holders, wanting, strict=False):
            if wants < CLEARLY * has + FEW:
                break
            self._retire(place)
            self.traffic[OTHER], self.traffic[place] = self.traffic[OTHER] - wants, wants
            self._give(place, name)
            changed.append(place)
        self.traffic /= 2.0
        self.spare = {v: {name: n / 2.0 for name, n in counts.items()} for v, counts in self.spare.items()}
        return changed

    def _wanting(self) -> list[tuple[str, float]]:
        """Those without a place and their traffic, the most frequent first."""
        total: dict[str, float] = {}
        for counts in self.spare.values():
            for name, n in counts.items():
                total[name] = total.get(name, 0.0) + n
        return _by_traffic(total)

    def _retire(self, place: int) -> None:
        name = self.names[place]
        del self._places[self._tags.pop(name)]
        self.traffic[OTHER] += self.traffic[place]
        self.spare.setdefault("", {})[name] = float(self.traffic[place])

    def to_plain(self) -> dict[str, Any]:
        """Everything as plain data; :meth:`take_over` reads it."""
        return {
            "names": self.names[2:],
            "numbers": self.numbers[2:],
            "traffic": self.traffic.tolist(),
            "spare": self.spare,
            "overflow": self.overflow,
            "given": self.given,
        }

    def take_over(self, plain: dict[str, Any]) -> None:
        """Go on where :meth:`to_plain` was, also if the cap has changed: a smaller one holds for new segments only."""
        if self.settings is None:
            return self.begin_anew(plain["given"])
        for name, number in zip(plain["names"], plain["numbers"], strict=True):
            self.names.append(name)
            self.numbers.append(number)
            tag = self._tags[name] = f"{number}:{name}"
            self._places[tag] = len(self.names) - 1
        self.traffic, self.spare = np.array(plain["traffic"], np.float64), plain["spare"]
        self.overflow, self.given = plain["overflow"], plain["given"]
        return None

    def begin_anew(self, given: int) -> None:
        """Number on from where others were given: with other fields, no old tag means a new segment."""
        self.given, self._foreign = given, True

    def again(self, name: str) -> None:
        """A place was given to this name, under whatever cap; with other fields since then, only its number is used up."""
        if self._foreign or self.settings is None:
            self.given += 1
        elif name not in self._tags:
            self._place(name)

    def turned(self, keep: Sequence[str], cap: int, given: int) -> list[int]:
        """A turn has been, under this cap; ``given``: how many placings there were after it."""
        if not self._foreign and self.settings is not None:
            return self.turn(keep, cap)
        self.given = max(self.given, given)
        return []


def _by_traffic(counts: dict[str, float]) -> list[tuple[str, float]]:
    """Ties by name, so that a replay finds the same order."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _frequent(counts: dict[str, float]) -> dict[str, float]:
    """The more frequent half."""
    return dict(_by_traffic(counts)[: len(counts) // 2])


def name_of(tag: str) -> str:
    """The segment that a tag was made of."""
    return tag.partition(":")[2]
