"""The rules of the join, one event after the other: :mod:`streamcal.monitor.join.join` says what they are."""

from __future__ import annotations

import heapq
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import TypeVar

import numpy as np

from streamcal.arrays import Array, Ints
from streamcal.monitor.events import Checked, Events, Prediction, Row, padded
from streamcal.monitor.join.pending import DUE, RIPE, SEQ, Changes, JoinState, P, T, U, VersionState, W, Y, packed

Times = TypeVar("Times", float, Array)

STEPS = 64  # of a span: its ends are rounded up to one, so that few moments are kept and looked at


class JoinRules:
    """Takes one event at a time, and holds what has changed and gone out since the last :meth:`end`. Not thread-safe.

    ``state``: is changed. ``ttl``, ``maturity``, ``hold``, ``ahead``: in seconds, and checked already.
    """

    def __init__(self, state: JoinState, ttl: float, maturity: float, hold: float, ahead: float) -> None:
        self.state, self.ttl, self.maturity, self.hold, self.ahead = state, ttl, maturity, hold, ahead
        self.ttl_step, self.maturity_step, self.hold_step = map(_step, (ttl, maturity, hold))
        self.changes = Changes()
        # by the code of the version: ids, segments, rows of the table and the sign of pairs that went out together
        self.out: defaultdict[int, list[tuple[list[str], list[str], Array, float]]] = defaultdict(list)

    def end(self) -> tuple[Changes, list[Events]]:
        """What changed, and the pairs that went out by version, since the last time."""
        changes, joined = self.changes, [_pairs(self.state.all[code], self.out[code]) for code in sorted(self.out)]
        changes.clock, self.changes = self.state.clock, Changes()
        self.out.clear()
        return changes, joined

    def send(self, version: VersionState, ids: list[str], places: Ints | slice, sign: float = 1.0) -> None:
        """Pairs go out, as they are now."""
        pending = version.open
        self.out[version.code].append((ids, pending.segment[places].tolist(), pending.table[places].copy(), sign))

    def next(self, n: int = 1) -> range:
        """Numbers for so many rows."""
        first = self.state.seq + 1
        self.state.seq += n
        return range(first, first + n)

    def take_each(self, rows: Iterable[Checked]) -> None:
        """Events in order."""
        for row, wrong in rows:
            self.take(row, wrong[0] if wrong else "")

    def take(self, row: Row, wrong: str) -> None:
        """One event, and the first of its fields that is not allowed, "" if all are."""
        if isinstance(row, Prediction):
            version = self.state.of(row.model, row.version)
            self._predict(version, row, wrong or self.move(row.t, self.ahead))
            return
        wrong, versions = wrong or self.move(row.t, self.ahead), self.state.addressed(row.model, row.version)
        # a label for every version goes to those that have its prediction, if any has
        for version in [one for one in versions if row.id in one.open.place] or versions:
            version.labels.received += 1
            if wrong:
                version.labels.reject(wrong)
            else:
                self._label(version, row.id, row.y, row.t)

    def _predict(self, version: VersionState, row: Prediction, wrong: str) -> None:
        _, _, name, t, p, w, segment = row
        version.predictions.received += 1
        due = after(t + self.ttl, self.ttl_step)
        if wrong or due <= self.state.clock:
            version.predictions.reject(wrong or "late")
        elif name in version.open.place:
            same = version.open.is_same(row)
            version.predictions.duplicate += same
            version.predictions.conflicting += not same
        else:
            ripe = min(after(t + self.maturity, self.maturity_step), due) if self.maturity else t
            (seq,) = self.next()
            version.predictions.pending += 1
            scores = p if isinstance(p, tuple) else (p,)
            version.open.add_one(name, (t, w, due, ripe, seq, math.nan, math.nan, *scores), sys.intern(segment))
            self.changes.predictions.append([(version.code, name, t, packed(scores), w, segment, due, ripe, seq)])
            self.state.schedule(version, version.ending, due, name)
            if name in version.held:
                u, y, held_until, number = version.held.pop(name)
                version.labels.pending -= 1
                self.changes.found.append((held_until, number))
                self._label(version, name, y, u)

    def _label(self, version: VersionState, name: str, y: float, u: float) -> None:
        place = version.open.place.get(name)
        if place is None:
            self._hold(version, name, y, u)
            return
        row, here = version.open.table[place].tolist(), slice(place, place + 1)
        is_first, is_ripe = row[Y] != row[Y], row[RIPE] <= self.state.clock
        if not is_first and not self._is_newer(version, y, u, row[Y], row[U]):
            return
        if is_ripe and not is_first:  # the pair with the old outcome is out: it is taken back
            self.send(version, [name], here, -1.0)
        version.open.table[place, Y : U + 1] = y, u
        self.changes.outcomes.append([(row[DUE], *self.next(), int(row[SEQ]), y, u)])
        if is_ripe:
            self.send(version, [name], here)
            version.predictions.pending -= is_first
            version.predictions.joined += is_first
            version.labels.joined += 1
            version.labels.corrected += not is_first
        elif is_first:
            version.labels.pending += 1
            self.state.schedule(version, version.ripening, row[RIPE], name)
        else:
            version.labels.conflicting += 1

    def _is_newer(self, version: VersionState, y: float, u: float, old_y: float, old_u: float) -> bool:
        """Whether a label replaces the one that is there; if not, it is counted."""
        version.labels.duplicate += y == old_y
        version.labels.conflicting += y != old_y and u <= old_u
        return y != old_y and u > old_u

    def _hold(self, version: VersionState, name: str, y: float, u: float) -> None:
        """A label without its prediction: it waits, if its time to wait is not over."""
        old = version.held.get(name)
        if old is not None and not self._is_newer(version, y, u, old[1], old[0]):
            return
        due = after(u + self.hold, self.hold_step) if self.hold else -math.inf
        if due <= self.state.clock:
            version.labels.expired += 1
            return
        if old is None:
            version.labels.pending += 1
        else:
            version.labels.conflicting += 1
            self.changes.found.append(old[2:])
        (seq,) = self.next()
        version.held[name] = (u, y, due, seq)
        self.state.schedule(version, version.holding, due, name)
        self.changes.held.append((due, seq, version.code, name, u, y))

    # -- time ----------------------------------------------------------------------------------------------------------

    def move(self, t: float, ahead: float = math.inf) -> str:
        """Move the clock on to t; the reason if it is too far ahead."""
        state = self.state
        if t > state.clock:
            if t > state.clock + ahead and state.clock > -math.inf:
                return "ahead"
            state.clock = t
            while state.agenda and state.agenda[0][0] <= t:
                moment, code = heapq.heappop(state.agenda)
                self._fall_due(state.all[code], moment)
        return ""

    def _fall_due(self, version: VersionState, moment: float) -> None:
        """First what ripens, as a pair may ripen when it is forgotten."""
        if ripe := version.ripening.pop(moment, None):
            self.send(version, ripe, version.open.places(ripe))
            for counters in (version.predictions, version.labels):
                counters.pending -= len(ripe)
                counters.joined += len(ripe)
        if ended := version.ending.pop(moment, None):
            unlabelled = version.open.remove(ended)
            version.predictions.pending -= unlabelled
            version.predictions.expired += unlabelled
            self.changes.ended += len(ended)
        for name in version.holding.pop(moment, ()):
            # it may have found its prediction, or been replaced
            if name in version.held and version.held[name][2] == moment:
                del version.held[name]
                version.labels.pending -= 1
                version.labels.expired += 1
                self.changes.released += 1


def _pairs(version: VersionState, out: list[tuple[list[str], list[str], Array, float]]) -> Events:
    """What went out of a version."""
    ids, segments, tables, signs = zip(*out, strict=True)
    if len(tables) > 1:
        wide = max(rows.shape[1] for rows in tables)
        tables = (np.concatenate([padded(rows, wide) for rows in tables]),)
    columns = tables[0].T.copy()
    scores = columns[P:]
    while len(scores) > 1 and np.isnan(scores[-1]).all():  # wider than any of these: room for those of others
        scores = scores[:-1]
    p = scores[0] if len(scores) == 1 else scores.T.copy()
    sign = np.repeat(signs, list(map(len, ids)))
    times = columns[U], np.maximum(columns[U], columns[RIPE])
    texts = list(chain(*ids)), list(chain(*segments))
    whose = version.model, version.version
    return Events.pairs(*whose, *texts, columns[T], p, columns[Y], columns[W], *times, columns[SEQ], sign)


def after(moment: Times, step: float) -> Times:
    """The first multiple of a step after a moment."""
    return (moment // step + 1.0) * step


def _step(span: float) -> float:
    """A 64th of a span, in whole seconds if it is longer than one: they take little room in a file."""
    return float(math.ceil(span / STEPS)) if span > STEPS else span / STEPS
