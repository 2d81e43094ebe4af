"""The rules of the join for many events at once: what is usual is taken in whole runs.

Usual is a prediction with an id that is neither open nor held, and a label that is the first of an open prediction. A run
ends before an event that is not, and before the clock comes to a moment at which something falls due: no timer fires within
a run, so the result is that of the rules one by one. tests/monitor/test_join.py holds both against each other.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any

import numpy as np

from streamcal.arrays import Array, Ints
from streamcal.limits import Flags
from streamcal.monitor.events import Events, Label, StreamKey
from streamcal.monitor.join.pending import DUE, RIPE, SEQ, JoinState, P, Spans, T, U, VersionState, W, Y, after, packed

FEW = 16  # events of a stream that are not worth the arrays
SELDOM = 10  # where more than one of so many events are not usual, runs are too short to be worth it


class _Run(ABC):
    """Events of one kind for one version, and their places among all; ``strange``: those that are not usual."""

    def __init__(self, state: JoinState, of: VersionState, events: Events, at: Ints) -> None:
        self.state, self.of, self.events, self.at = state, of, events, at

    def part(self, i: int, k: int) -> tuple[int, int]:
        """Where the events from i to k are in the columns."""
        first, last = np.searchsorted(self.at, (i, k)).tolist()
        return first, last

    @abstractmethod
    def moments(self, i: int, k: int) -> Array:
        """When something falls due if these are taken."""

    @abstractmethod
    def take(self, i: int, k: int) -> None:
        """Take usual events."""


class _Predictions(_Run):
    def __init__(
        self, state: JoinState, of: VersionState, events: Events, at: Ints, clocks: Array, spans: Spans
    ) -> None:
        super().__init__(state, of, events, at)
        p, t = events.p.reshape(len(events), -1), np.where(events.wrong == 0, events.t, 0.0)
        self.due = after(t + spans.ttl, spans.ttl)
        ripe = np.minimum(after(t + spans.maturity, spans.maturity), self.due) if spans.maturity else t
        self.rows = np.full((len(events), P + p.shape[1]), math.nan)
        for column, values in ((T, t), (W, events.w), (DUE, self.due), (RIPE, ripe)):
            self.rows[:, column] = values
        self.rows[:, P:] = p
        self.segment = list(map(sys.intern, events.segment))
        self.strange = self.due <= clocks
        if not of.open.place.keys().isdisjoint(events.id):
            self.strange |= of.open.places(events.id) >= 0
        if not of.held.keys().isdisjoint(events.id):
            self.strange |= np.array([name in of.held for name in events.id], dtype=np.bool_)

    def moments(self, i: int, k: int) -> Array:
        return self.due[i:k]

    def take(self, i: int, k: int) -> None:
        if i == k:
            return
        state, of, ids, due, rows, segment = (
            self.state, self.of, self.events.id[i:k], self.due[i:k], self.rows[i:k], self.segment[i:k],
        )  # fmt: skip
        rows[:, SEQ] = state.numbers(k - i)
        of.open.add(ids, rows, segment)
        state.changes.predictions.append(_prediction_rows(of.code, ids, rows, segment))
        for a, b in pairwise([0, *(np.flatnonzero(np.diff(due)) + 1).tolist(), k - i]):
            state.schedule(of, of.ending, float(due[a]), *ids[a:b])
        of.predictions.received += k - i
        of.predictions.pending += k - i


class _Labels(_Run):
    """``there``: those that have a prediction in this version."""

    def __init__(self, state: JoinState, of: VersionState, events: Events, at: Ints, clocks: Array) -> None:
        super().__init__(state, of, events, at)
        self.places = of.open.places(events.id)
        self.there = self.places >= 0
        rows = of.open.table[self.places] if len(of.open.table) else np.zeros((len(events), P))
        self.due, self.ripe, self.seq = rows[:, DUE], rows[:, RIPE], rows[:, SEQ]
        self.strange = self.there & ((rows[:, Y] == rows[:, Y]) | (self.due <= clocks))
        self.young = self.there & (self.ripe > clocks)

    def moments(self, i: int, k: int) -> Array:
        return self.ripe[i:k][self.young[i:k]]

    def take(self, i: int, k: int) -> None:
        which = i + np.flatnonzero(self.there[i:k])
        if not len(which):
            return
        state, of, ids, n = self.state, self.of, self.events.id, len(which)
        places, y, u = self.places[which], self.events.y[which], self.events.t[which]
        of.open.table[places, Y], of.open.table[places, U] = y, u
        state.changes.outcomes.append(_outcome_rows(self.due[which], state.numbers(n), self.seq[which], y, u))
        young = self.young[which]
        waiting, out = which[young], which[~young]
        for i, ripe in zip(waiting.tolist(), self.ripe[waiting].tolist(), strict=True):
            state.schedule(of, of.ripening, ripe, ids[i])
        if len(out):
            state.send(of, [ids[i] for i in out.tolist()], self.places[out])
        for counters in (of.predictions, of.labels):
            counters.joined += len(out)
        of.labels.received += n
        of.labels.pending += len(waiting)
        of.predictions.pending -= len(out)


@dataclass
class Runs:
    """The clock at each of some events, which of them are not usual, and who takes the others."""

    clocks: Array
    strange: Flags
    parts: list[_Run]
    agenda: list[tuple[float, int]]

    def take(self, i: int, j: int) -> int:
        """Take usual events from i on, to j at most: up to where something falls due."""
        clocks, agenda = self.clocks, self.agenda
        k = int(np.searchsorted(clocks, agenda[0][0])) if agenda and agenda[0][0] <= clocks[j - 1] else j
        if k <= i:
            return i
        k = min(k, j)
        for run in self.parts:  # what they do themselves may fall due, too: always later than the event that does it
            first = run.moments(*run.part(i, k)).min(initial=math.inf)
            k = k if clocks[k - 1] < first else int(np.searchsorted(clocks, first))
        for run in self.parts:
            run.take(*run.part(i, k))
        return k


def plan(state: JoinState, spans: Spans, events: Events) -> Runs | None:
    """How events are taken in runs; None if they must be taken one by one, or if runs are not worth it."""
    groups = _groups(state, events)
    if not groups:
        return None
    t = np.where(events.wrong == 0, events.t, -math.inf)
    clocks = np.maximum.accumulate(np.maximum(t, state.clock))
    before = np.concatenate([[state.clock], clocks[:-1]])
    if spans.ahead < math.inf and ((t > before + spans.ahead) & (before > -math.inf)).any():
        return None
    sides: tuple[set[str], set[str]] = set(), set()
    for key, some, _ in groups:
        sides[key.kind is Label].update(some.id)
    both = sides[0] & sides[1]  # ids that come as a prediction and as a label
    strange, parts = events.wrong != 0, list[_Run]()
    for (kind, model, version), some, at in groups:
        odd = _repeated(some.id)
        if both:
            odd |= np.array([name in both for name in some.id])
        if kind is Label:
            labels = [_Labels(state, of, some, at, clocks[at]) for of in state.addressed(model, version)]
            odd |= ~np.logical_or.reduce([one.there for one in labels])
            mine: list[Any] = [one for one in labels if one.there.any()]
        else:
            mine = [_Predictions(state, state.of(model, version or ""), some, at, clocks[at], spans)]
        parts += mine
        strange[at] |= np.logical_or.reduce([odd, *(one.strange for one in mine)])
    return None if SELDOM * strange.sum() > max(len(events), SELDOM) else Runs(clocks, strange, parts, state.agenda)


def _groups(state: JoinState, events: Events) -> list[tuple[StreamKey, Events, Ints]]:
    """The events of each stream and their places, the streams as they first come.

    None where that is not worth while, or where they mean something for each other: a version is new, or labels for one
    version and for all meet.
    """
    codes, first = np.unique(events.stream, return_index=True)
    codes, n = codes[np.argsort(first)], len(events)
    if len(codes) > 1 and FEW * len(codes) > n:
        return []
    places = [np.flatnonzero(events.stream == code) for code in codes]
    keys, addressed = [events.streams[code] for code in codes], dict[str, set[bool]]()
    for (kind, model, version), at in zip(keys, places, strict=True):
        if kind is Label:
            addressed.setdefault(model, set()).add(version is None)
        known = model in state.of_model if version is None else (model, version) in state.named
        if events.wrong[at].all() or (len(keys) > 1 and not known):
            return []
    if any(len(ways) > 1 for ways in addressed.values()):
        return []
    return [(key, events if len(at) == n else events.part(at), at) for key, at in zip(keys, places, strict=True)]


def _repeated(ids: list[str]) -> Flags:
    """Which ids were in the column before."""
    if len(set(ids)) == len(ids):
        return np.zeros(len(ids), dtype=np.bool_)
    first: dict[str, int] = {}
    return np.array([first.setdefault(name, i) < i for i, name in enumerate(ids)])


def _prediction_rows(code: int, ids: list[str], rows: Array, segment: list[str]) -> Iterator[tuple[Any, ...]]:
    """As :class:`Changes` has them; made only where a store asks."""
    t, w, due, ripe, _ = rows[:, :Y].T.tolist()
    p = rows[:, P].tolist() if rows.shape[1] == P + 1 else map(packed, rows[:, P:].tolist())
    seq = rows[:, SEQ].astype(np.int64).tolist()
    yield from zip(repeat(code), ids, t, p, w, segment, due, ripe, seq, strict=False)


def _outcome_rows(due: Array, seq: range, prediction: Array, y: Array, u: Array) -> Iterator[tuple[Any, ...]]:
    """As :class:`Changes` has them; made only where a store asks."""
    yield from zip(due.tolist(), seq, prediction.astype(np.int64).tolist(), y.tolist(), u.tolist(), strict=True)
