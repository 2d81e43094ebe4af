"""Columns through the join: what is usual is done for a whole stretch at once, the rest event by event, in order.

Usual is a prediction with an id that is neither open nor held, and a label that is the first of an open prediction. A
stretch ends before an event that is not, and before the clock comes to a moment at which something falls due: so nothing
happens inside it, and what it does is what :class:`Pairing` would do one by one. ``tests/test_join.py`` holds both
against each other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from streamcal.monitor.events import Event
from streamcal.monitor.join.opened import DUE, RIPE, SEQ, Array, Indices, U, Y
from streamcal.monitor.join.pending import Book
from streamcal.monitor.join.rules import Pairing, after
from streamcal.monitor.store import Opened, Settled
from streamcal.monitor.stretches import Flags, Labels, Predictions

SELDOM = 10  # where more than one of so many events are not usual, stretches are too short to be worth it
Group: TypeAlias = tuple[Predictions | Labels, Indices]  # columns, and their places among all events


def take_many(pairing: Pairing, groups: list[Group], event: Callable[[int], Event]) -> None:
    """Events in their order, each in one of the groups; ``event`` gives one of them by itself. By the rules."""
    n = sum(len(at) for _, at in groups)
    prepared = None if _entangled(pairing, groups) else _prepared(pairing, groups, n)
    if prepared is None:
        for i in range(n):
            pairing.take(event(i))
    else:
        _in_stretches(pairing, *prepared, event)


def _entangled(pairing: Pairing, groups: list[Group]) -> bool:
    """Whether the groups mean something for each other: a book is made, or labels for one version and for all meet."""
    books, some, every = pairing.books, set(), set()
    for columns, _ in groups:
        if not columns.good.any():
            return True
        if len(groups) > 1:
            if columns.version is None:
                every.add(columns.model)
                known = columns.model in books.of_model
            else:
                known = (columns.model, columns.version) in books.named
                if isinstance(columns, Labels):
                    some.add(columns.model)
            if not known:
                return True
    return not some.isdisjoint(every)


def _prepared(pairing: Pairing, groups: list[Group], n: int) -> tuple[Array, Flags, list[_Opening | _Settling]] | None:
    """The clock at each event, which are not usual, and who does the usual ones; None if these are too few."""
    t, strange, clock = np.empty(n), np.zeros(n, dtype=np.bool_), pairing.books.clock
    for columns, at in groups:
        t[at], strange[at] = np.where(columns.good, columns.t, -math.inf), ~columns.good
    run = np.maximum.accumulate(np.maximum(t, clock))
    before = np.concatenate([[clock], run[:-1]])
    if pairing.ahead < math.inf and ((t > before + pairing.ahead) & (before > -math.inf)).any():
        return None
    strange |= _on_both_sides(groups, n)
    workers: list[_Opening | _Settling] = []
    for columns, at in groups:
        worker: _Opening | _Settling
        if isinstance(columns, Predictions):
            worker = _Opening(pairing, columns, at, run[at])
        else:
            worker = _Settling(pairing, columns, at, run[at])
        strange[at] |= worker.strange
        workers.append(worker)
    return None if SELDOM * strange.sum() > max(n, SELDOM) else (run, strange, workers)


def _on_both_sides(groups: list[Group], n: int) -> Flags:
    """Which events have an id that comes as a prediction and as a label."""
    sides: tuple[set[str], set[str]] = set(), set()
    for columns, _ in groups:
        sides[isinstance(columns, Labels)].update(columns.names)
    both, met = sides[0] & sides[1], np.zeros(n, dtype=np.bool_)
    for columns, at in groups if both else ():
        met[at] = [name in both for name in columns.names]
    return met


def _in_stretches(
    pairing: Pairing, run: Array, strange: Flags, workers: list[_Opening | _Settling], event: Callable[[int], Event]
) -> None:
    i, agenda = 0, pairing.books.agenda
    for j in [*np.flatnonzero(strange).tolist(), len(run)]:
        while i < j:
            k = int(np.searchsorted(run, agenda[0][0])) if agenda and agenda[0][0] <= run[j - 1] else j
            if k <= i:  # the next event lets something fall due
                pairing.move(float(run[i]))
                continue
            k = _calm(run, i, min(k, j), workers)
            for worker in workers:
                worker.do(*worker.part(i, k))
            pairing.move(float(run[k - 1]))
            i = k
        if j < len(run):
            pairing.take(event(j))
            i = j + 1


def _calm(run: Array, i: int, k: int, workers: list[_Opening | _Settling]) -> int:
    """The end of a stretch in which no new appointment falls due. It is not empty: each is later than its own event."""
    for worker in workers:
        moments = worker.moments(*worker.part(i, k))
        first = float(moments.min()) if len(moments) else math.inf
        k = k if run[k - 1] < first else int(np.searchsorted(run, first))
    return k


def _repeated(ids: list[str]) -> Flags:
    """Which ids were in the column before."""
    again = np.zeros(len(ids), dtype=np.bool_)
    if len(set(ids)) == len(ids):
        return again
    seen: set[str] = set()
    for i, name in enumerate(ids):
        again[i] = name in seen
        seen.add(name)
    return again


def _met_before(book: Book, ids: list[str]) -> Flags:
    """Which ids are open or held in the book, or were in the column before."""
    met = _repeated(ids)
    if not book.open.isdisjoint(ids):
        met |= book.open.places(ids) >= 0
    if not book.held.keys().isdisjoint(ids):
        met |= np.array([name in book.held for name in ids], dtype=np.bool_)
    return met


class _Worker:
    """Some columns, their places among all events, and the clock at each; ``strange``: what is not usual."""

    def __init__(self, pairing: Pairing, columns: Predictions | Labels, at: Indices, run: Array) -> None:
        self.pairing, self.ids, self.at, self.run = pairing, columns.names, at, run
        self.strange = ~columns.good

    def part(self, i: int, k: int) -> tuple[int, int]:
        """Where the events from i to k are in the columns."""
        first, last = np.searchsorted(self.at, (i, k)).tolist()
        return first, last


class _Opening(_Worker):
    """Opens predictions, some at a time."""

    def __init__(self, pairing: Pairing, columns: Predictions, at: Indices, run: Array) -> None:
        super().__init__(pairing, columns, at, run)
        self.book = pairing.books.of(columns.model, columns.version)
        self.t, self.p = np.where(columns.good, columns.t, 0.0), columns.p
        self.due = after(self.t + pairing.ttl, pairing.ttl_step)
        ripe = after(self.t + pairing.maturity, pairing.maturity_step) if pairing.maturity else self.t
        self.ripe = np.minimum(ripe, self.due)
        self.w = np.ones(len(run)) if columns.w is None else columns.w
        self.segment = list(map(sys.intern, map(str, columns.segment)))
        self.strange |= (self.due <= run) | _met_before(self.book, self.ids)

    def moments(self, i: int, k: int) -> Array:
        """When something falls due if these are taken."""
        return self.due[i:k]

    def do(self, i: int, k: int) -> None:
        """Take a stretch of usual predictions."""
        if i == k:
            return
        book, books, part = self.book, self.pairing.books, slice(i, k)
        seq = range(books.seq + 1, books.seq + 1 + k - i)
        books.seq += k - i
        ids, due, ripe, segment = self.ids[part], self.due[part], self.ripe[part], self.segment[part]
        t, p, w = self.t[part], self.p[part], self.w[part]
        book.open.add(ids, (t, w, due, ripe, seq), p, segment)
        self.pairing.changes.opened.append(Opened(book.code, ids, t, p, w, segment, due, ripe, seq))
        for a, b in pairwise([0, *(np.flatnonzero(np.diff(due)) + 1).tolist(), k - i]):
            books.appoint(book, book.ending, float(due[a]), *ids[a:b])
        book.predictions.received += k - i
        book.predictions.pending += k - i


class _Found:
    """The predictions of a book that a column of labels may be for: ``due`` is nan where there is none."""

    def __init__(self, book: Book, ids: list[str]) -> None:
        self.book, self.places = book, book.open.places(ids)
        self.there = self.places >= 0
        if len(book.open):
            rows = np.where(self.there[:, None], book.open.table[self.places], math.nan)
            self.due, self.ripe, self.seq, self.labelled = (
                rows[:, DUE],
                rows[:, RIPE],
                rows[:, SEQ],
                rows[:, Y] == rows[:, Y],
            )
        else:
            self.due = self.ripe = self.seq = np.full(len(ids), math.nan)
            self.labelled = np.zeros(len(ids), dtype=np.bool_)


class _Settling(_Worker):
    """Gives open predictions their first outcomes, some at a time."""

    def __init__(self, pairing: Pairing, columns: Labels, at: Indices, run: Array) -> None:
        super().__init__(pairing, columns, at, run)
        self.y, self.u = columns.y, columns.t
        found = [_Found(book, self.ids) for book in self._addressed(columns)]
        nowhere = np.ones(len(run), dtype=np.bool_)
        for one in found:
            self.strange |= one.labelled | (one.due <= run)
            nowhere &= ~one.there
        self.strange |= nowhere | _repeated(self.ids)
        self.found = [one for one in found if one.there.any()]
        self.young = [one.ripe > run for one in self.found]

    def _addressed(self, columns: Labels) -> list[Book]:
        books = self.pairing.books
        if columns.version is None:
            return books.of_model.get(columns.model) or [books.of(columns.model, "")]
        return [books.of(columns.model, columns.version)]

    def moments(self, i: int, k: int) -> Array:
        """When something falls due if these are taken."""
        young = [one.ripe[i:k][young[i:k]] for one, young in zip(self.found, self.young, strict=True)]
        return np.concatenate([*young, np.empty(0)])

    def do(self, i: int, k: int) -> None:
        """Take a stretch of usual labels."""
        for one, young in zip(self.found, self.young, strict=True):
            which = i + np.flatnonzero(one.there[i:k])
            if len(which):
                self._settle(one, which, young)

    def _settle(self, one: _Found, which: Indices, young: Flags) -> None:
        """The outcomes of some labels in one book."""
        books, book, n = self.pairing.books, one.book, len(which)
        places, y, u = one.places[which], self.y[which], self.u[which]
        seq = range(books.seq + 1, books.seq + 1 + n)
        books.seq += n
        book.open.table[places, Y], book.open.table[places, U] = y, u
        self.pairing.changes.settled.append(Settled(one.due[which], one.seq[which], seq, y, u))
        waiting = which[young[which]]
        for i, ripe in zip(waiting.tolist(), one.ripe[waiting].tolist(), strict=True):
            books.appoint(book, book.ripening, ripe, self.ids[i])
        out = which[~young[which]] if len(waiting) else which
        if len(out):
            ids = [self.ids[i] for i in out.tolist()]
            self.pairing.out[book.code] += book.open.pieces(ids, one.places[out])
        _count(book, n, len(waiting))


def _count(book: Book, n: int, waiting: int) -> None:
    """Into the accounts: n predictions have their first label, and some of the pairs wait until they are ripe."""
    for account in (book.predictions, book.labels):
        account.joined += n - waiting
    book.labels.received += n
    book.labels.pending += waiting
    book.predictions.pending -= n - waiting
