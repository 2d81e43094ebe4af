"""A stream with everything in it that happens in life, and what must have come of it, counted in plain Python.

Champion "7" and challenger "8" predict every id; labels are delayed, some never come, some come twice, some are corrected,
some contradict what is known, some are of nobody; some messages hold several events and some hold none. What is counted does
not depend on which of the two sources is read first: where it would, only the sum of both counters is looked at.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

START, STEP = 1_700_000_000.0, 30.0
COUNTRIES = ("at", "ch", "de", "fr", "it")
BINS = 15

Message = tuple[str, bytes]  # whose order must be kept, and the payload


@dataclass
class Side:
    """What one version must have counted."""

    predictions: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    pairs: dict[str, list[tuple[float, float]]] = field(
        default_factory=dict
    )  # (p, y) that count in the end, by segment


@dataclass
class Planted:
    """Rounds of (predictions, labels) as they are written, and what must come of all of them."""

    rounds: list[tuple[list[Message], list[Message]]]
    sides: dict[str, Side]
    letters: Counter[str]
    objects: Counter[str]

    @property
    def count(self) -> int:
        return sum(len(p) + len(y) for p, y in self.rounds)


def planted(ids: int, seed: int = 0, per_round: int = 40) -> Planted:
    """So many ids, 30 seconds apart."""
    return _Planting(random.Random(seed)).plant(ids, per_round)


def key(thing: Any) -> str:
    """An object as text that is equal where it is."""
    return json.dumps(thing, sort_keys=True)


class _Planting:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sides = {"7": Side(), "8": Side()}
        self.letters: Counter[str] = Counter()
        self.objects: Counter[str] = Counter()
        self.predictions: list[tuple[float, Message]] = []
        self.labels: list[tuple[float, Message]] = []

    def plant(self, ids: int, per_round: int) -> Planted:
        for i in range(ids):
            self._one(i, i / ids)
        self.predictions.sort(key=lambda said: said[0])
        self.labels.sort(key=lambda said: said[0])
        rounds, first, end = [], 0, 0
        for at in range(0, len(self.predictions), per_round):
            part = self.predictions[at : at + per_round]
            last = at + per_round >= len(self.predictions)
            while end < len(self.labels) and (last or self.labels[end][0] <= part[-1][0]):
                end += 1
            rounds.append(([m for _, m in part], [m for _, m in self.labels[first:end]]))
            first = end
        return Planted(rounds, self.sides, self.letters, self.objects)

    def _say(self, side: list[tuple[float, Message]], t: float, order: str, things: list[Any]) -> None:
        """One message, in one of the ways to write it."""
        self.objects.update(map(key, things))
        text: Any = things[0] if len(things) == 1 and self.rng.random() < 0.7 else things
        side.append((t, (order, json.dumps(text).encode())))
        if isinstance(text, list) and self.rng.random() < 0.5:
            side[-1] = (t, (order, json.dumps({"events": text}).encode()))

    def _one(self, i: int, how_far: float) -> None:
        rng, t = self.rng, START + STEP * i
        country, p = rng.choice(COUNTRIES), round(rng.betavariate(2, 3), 6)
        q = min(1.0, 1.7 * p) if country == "fr" and how_far > 0.4 else p
        y = int(rng.random() < q)
        scores = {"7": p, "8": round(p**1.3, 6)}
        event = {"id": f"é{i}" if i % 50 == 0 else i, "t": t, "country": country}
        things = [{**event, "p": score, "version": version} for version, score in scores.items()]
        self._say(self.predictions, t, str(i), things)
        for side in self.sides.values():
            side.predictions.update(received=1)
        if rng.random() < 0.03:
            again = dict(things[0], p=round(p * 0.99, 6)) if rng.random() < 0.5 and p > 0.01 else things[0]
            self._say(self.predictions, t + 60.0, str(i), [again])
            self.sides["7"].predictions.update(["received", "duplicate" if again == things[0] else "conflicting"])
        final = self._labels(i, event["id"], t, y)
        for version, side in self.sides.items():
            side.predictions.update(["pending" if final is None else "joined"])
            if final is not None:
                side.pairs.setdefault(f"country={country}", []).append((scores[version], float(final)))
        if i % 97 == 7:
            self._rubbish(i, t)

    def _labels(self, i: int, name: Any, t: float, y: int) -> int | None:
        """The labels of one id: the outcome that stands in the end, None if there is none."""
        rng = self.rng
        if rng.random() < 0.03:
            return None
        u = t + 20.0 + rng.expovariate(1 / 1800.0)
        self._label(i, u, {"id": name, "y": y, "t": u}, "joined")
        if rng.random() < 0.05:
            self._label(i, u + 300.0, {"id": name, "y": y, "t": u + 300.0}, "duplicate")
        if rng.random() < 0.01:  # another outcome, but an older one
            self._label(i, u + 600.0, {"id": name, "y": 1 - y, "t": u - 10.0}, "replaced")
        if rng.random() < 0.03:
            self._label(i, u + 7200.0, {"id": name, "y": 1 - y, "t": u + 7200.0}, "replaced")
            return 1 - y
        return y

    def _label(self, i: int, at: float, thing: dict[str, Any], what: str) -> None:
        self._say(self.labels, at, str(i), [thing])
        for side in self.sides.values():
            side.labels.update(["received", what])

    def _rubbish(self, i: int, t: float) -> None:
        """What cannot be read, or holds a value that is not allowed."""
        of_predictions = [b'{"id": 1, "p"', b"\xff\xfe", b'"text"', b"[[3]]"]
        payload = self.rng.choice(of_predictions)
        wanted = {b"[[3]]": 3, b'"text"': "text"}.get(payload, payload.decode("utf-8", "backslashreplace"))
        self.predictions.append((t, (str(i), payload)))
        self.letters[key(wanted)] += 1
        for version, bad in (("7", {"p": 1.7}), ("8", {"p": 0.5, "t": "yesterday"})):
            thing = {"id": f"bad{i}", "version": version, "t": t, "country": "at", **bad}
            self._say(self.predictions, t, str(i), [thing])
            self.letters[key(thing)] += 1
            self.sides[version].predictions.update(["received", f"rejected {'t' if 't' in bad else 'p'}"])
        for y in (None, "maybe"):
            thing = {"id": f"bad{i}", "t": t + 900.0, "y": y}
            self._say(self.labels, t + 900.0, str(i), [thing])
            if y is not None:  # what is no label is no event, and nothing to complain of
                self.letters[key(thing)] += 1
                for side in self.sides.values():
                    side.labels.update(["received", "rejected y"])
        self._label(i, t + 950.0, {"id": f"nobody{i}", "t": t + 950.0, "y": 1}, "pending")


def counted(account: Any, labels: bool) -> Counter[str]:
    """An account of the monitor in the words of :class:`Side`."""
    names = ("received", "joined", "pending", "expired", "duplicate", "conflicting")
    found = Counter({name: getattr(account, name) for name in names})
    found.update({f"rejected {reason}": n for reason, n in account.reasons.items()})
    if labels:  # a label that takes the place of another: corrected, or conflicting if that one had not counted yet
        found["joined"] -= account.corrected
        found["replaced"] = account.corrected + found.pop("conflicting")
    return +found


def sums(pairs: list[tuple[float, float]]) -> np.ndarray:
    """Events, summed p and summed y of each bin, (bins, 3): bin m holds (m/15, (m + 1)/15], bin 0 also 0."""
    p, y = np.array(pairs).reshape(-1, 2).T
    bin = (p[:, None] > np.arange(1, BINS)[None, :] / BINS).sum(1)
    return np.stack([np.bincount(bin, x, BINS) for x in (np.ones_like(p), p, y)], axis=1)
