"""The rules of the join, one event after the other: :mod:`streamcal.monitor.join.join` says what they are.

A :class:`Pairing` holds the books, and what has changed and gone out since the last :meth:`Pairing.end`.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import TypeVar

from streamcal.monitor.events import (
    Event,
    Joined,
    Label,
    Prediction,
    mended_label,
    mended_prediction,
    piece_of,
    plain_label,
    plain_prediction,
)
from streamcal.monitor.join.opened import DUE, RIPE, SEQ, Array, P, Piece, Record, U, Y
from streamcal.monitor.join.pending import Book, Books
from streamcal.monitor.store import Changes

Times = TypeVar("Times", float, Array)

STEPS = 64  # of a span: its ends are rounded up to one


class Pairing:
    """Takes one event at a time; its spans are in seconds, and checked already. Not thread-safe."""

    def __init__(self, books: Books, ttl: float, maturity: float, hold: float, ahead: float) -> None:
        self.books, self.ttl, self.maturity, self.hold, self.ahead = books, ttl, maturity, hold, ahead
        self.ttl_step, self.maturity_step, self.hold_step = map(_step, (ttl, maturity, hold))
        self._begin()

    def _begin(self) -> None:
        """No changes yet."""
        self.changes = Changes(self.books.clock)
        self.out: defaultdict[int, list[Piece | tuple[float, str, Record]]] = defaultdict(list)

    def end(self) -> tuple[Changes, list[Joined]]:
        """What changed, and what was joined, since the last time."""
        changes, out, books = self.changes, self.out, self.books.all
        changes.clock = self.books.clock
        self._begin()
        return changes, [Joined(books[code].model, books[code].version, _pieces(out[code])) for code in sorted(out)]

    def take(self, event: Event) -> None:
        """Any event."""
        if isinstance(event, Prediction):
            self._predict(event)
        else:
            self._label(event)

    def _predict(self, event: Prediction) -> None:
        event, reason = (event, "") if plain_prediction(event) else mended_prediction(event)
        model, version, name, t, p, w, segment = event
        book = self.books.of(model, version)
        book.predictions.received += 1
        reason = reason or self.move(t, self.ahead)
        due = after(t + self.ttl, self.ttl_step)
        if reason or due <= self.books.clock:
            book.predictions.reject(reason or "late")
        elif name in book.open:
            same = book.open[name][:4] == (t, p, w, segment)
            book.predictions.duplicate += same
            book.predictions.conflicting += not same
        else:
            ripe = min(after(t + self.maturity, self.maturity_step), due) if self.maturity else t
            self._open(book, name, (t, p, w, sys.intern(segment), due, ripe, self._next(), None, None))

    def _open(self, book: Book, name: str, record: Record) -> None:
        """Open a prediction; a label that was held for it is its outcome."""
        book.open[name] = record
        book.predictions.pending += 1
        self.books.appoint(book, book.ending, record[DUE], name)
        self.changes.predictions.append((book.code, name, record))
        if book.held and name in book.held:
            u, y, due, seq = book.held.pop(name)
            book.labels.pending -= 1
            self.changes.found.append((due, seq))
            self._settle(book, name, record, y, u)

    def _label(self, event: Label) -> None:
        event, reason = (event, "") if plain_label(event) else mended_label(event)
        model, version, name, u, y = event
        reason = reason or self.move(u, self.ahead)
        for book in self.addressed(model, version, name):
            book.labels.received += 1
            if reason:
                book.labels.reject(reason)
            else:
                self._outcome(book, name, y, u)

    def addressed(self, model: str, version: str | None, name: str) -> list[Book]:
        """The books that a label goes to: that of its version, or all of its model where the id is open, else all."""
        if version is not None:
            return [self.books.of(model, version)]
        books = self.books.of_model.get(model) or [self.books.of(model, "")]
        return [book for book in books if name in book.open] or books

    def _outcome(self, book: Book, name: str, y: float, u: float) -> None:
        record = book.open.get(name)
        if record is None:
            self._hold(book, name, y, u)
        elif record[Y] is None:
            self._settle(book, name, record, y, u)
        elif self._is_newer(book, y, u, record[Y], record[U]):
            self._correct(book, name, record, y, u)

    def _is_newer(self, book: Book, y: float, u: float, old_y: float | None, old_u: float | None) -> bool:
        """Whether a label replaces the one that is there; if not, it is counted."""
        if y == old_y:
            book.labels.duplicate += 1
            return False
        newer = old_u is None or u > old_u
        book.labels.conflicting += not newer
        return newer

    def _settle(self, book: Book, name: str, record: Record, y: float, u: float) -> None:
        """The first outcome of a prediction: out at once if it is ripe."""
        record = self._note(book, name, record, y, u)
        book.labels.pending += 1
        if record[RIPE] <= self.books.clock:
            self._count(book, name, record)
        else:
            self.books.appoint(book, book.ripening, record[RIPE], name)

    def _count(self, book: Book, name: str, record: Record) -> None:
        """Send out a pair: from now on both of its sides are joined."""
        self.out[book.code].append((1.0, name, record))
        for account in (book.predictions, book.labels):
            account.pending -= 1
            account.joined += 1

    def _correct(self, book: Book, name: str, record: Record, y: float, u: float) -> None:
        """Another outcome: if the old one is out, take it back."""
        new = self._note(book, name, record, y, u)
        if record[RIPE] <= self.books.clock:
            self.out[book.code] += [(-1.0, name, record), (1.0, name, new)]
            book.labels.joined += 1
            book.labels.corrected += 1
        else:
            book.labels.conflicting += 1

    def _note(self, book: Book, name: str, record: Record, y: float, u: float) -> Record:
        """Keep an outcome with its prediction."""
        book.open.settle(name, y, u)
        self.changes.outcomes.append((record[DUE], self._next(), record[SEQ], y, u))
        return (*record[:Y], y, u)

    def _hold(self, book: Book, name: str, y: float, u: float) -> None:
        """A label without its prediction: it waits, if its time to wait is not over."""
        old = book.held.get(name)
        if old is not None and not self._is_newer(book, y, u, old[1], old[0]):
            return
        due = after(u + self.hold, self.hold_step) if self.hold else -math.inf
        if due <= self.books.clock:
            book.labels.expired += 1
            return
        if old is None:
            book.labels.pending += 1
        else:
            book.labels.conflicting += 1
            self.changes.found.append(old[2:])
        label = book.held[name] = (u, y, due, self._next())
        self.books.appoint(book, book.holding, due, name)
        self.changes.held.append((book.code, name, label))

    def _next(self) -> int:
        self.books.seq += 1
        return self.books.seq

    # -- time ----------------------------------------------------------------------------------------------------------

    def move(self, t: float, ahead: float = math.inf) -> str:
        """Move the clock on to t; the reason if it is too far ahead."""
        books = self.books
        if t > books.clock:
            if t > books.clock + ahead and books.clock > -math.inf:
                return "ahead"
            books.clock = t
            while books.agenda and books.agenda[0][0] <= t:
                moment, code = heapq.heappop(books.agenda)
                self._fall_due(books.all[code], moment)
        return ""

    def _fall_due(self, book: Book, moment: float) -> None:
        """First what ripens, as a pair may ripen when it is forgotten."""
        if ripe := book.ripening.pop(moment, None):
            self.out[book.code] += book.open.pieces(ripe, book.open.places(ripe))
            for account in (book.predictions, book.labels):
                account.pending -= len(ripe)
                account.joined += len(ripe)
        if ended := book.ending.pop(moment, None):
            unlabelled = book.open.remove(ended)
            book.predictions.pending -= unlabelled
            book.predictions.expired += unlabelled
            self.changes.ended += len(ended)
        for name in book.holding.pop(moment, ()):
            if name in book.held and book.held[name][2] == moment:  # it may have found its prediction, or been replaced
                del book.held[name]
                book.labels.pending -= 1
                book.labels.expired += 1
                self.changes.released += 1


def after(moment: Times, step: float) -> Times:
    """The first multiple of a step after a moment."""
    return (moment // step + 1.0) * step


def _pieces(out: Sequence[Piece | tuple[float, str, Record]]) -> list[Piece]:
    """What went out, with neighbours that went out by themselves as one piece."""
    pieces: list[Piece] = []
    for shape, some in groupby(out, _shape):
        if shape is None:
            pieces += [piece for piece in some if isinstance(piece, Piece)]
        else:
            pieces.append(piece_of([pair for pair in some if not isinstance(pair, Piece)]))
    return pieces


def _shape(out: Piece | tuple[float, str, Record]) -> int | None:
    """How many classes a pair's score has, 0 for a number; None for a piece."""
    if isinstance(out, Piece):
        return None
    p = out[2][P]
    return len(p) if isinstance(p, tuple) else 0


def _step(span: float) -> float:
    """A 64th of a span, in whole seconds if it is longer than one: they take little room in a file."""
    return float(math.ceil(span / STEPS)) if span > STEPS else span / STEPS
