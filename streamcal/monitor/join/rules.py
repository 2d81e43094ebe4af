"""The rules of the join, one event after the other: :mod:`streamcal.monitor.join.join` says what they are."""

from __future__ import annotations

import heapq
import math
import sys
from collections import defaultdict
from itertools import chain
from typing import TypeVar

import numpy as np

from streamcal.arrays import Array, Ints
from streamcal.monitor.events import FIELDS, Events, Label, padded
from streamcal.monitor.join.pending import DUE, RIPE, SEQ, Changes, JoinState, P, T, U, VersionState, W, Y

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

    def send(self, version: VersionState, ids: list[str], places: Ints | list[int], sign: float = 1.0) -> None:
        """Pairs go out, as they are now."""
        pending = version.open
        self.out[version.code].append((ids, pending.segment[places].tolist(), pending.table[places], sign))

    def next(self, n: int = 1) -> range:
        """Numbers for so many rows."""
        first = self.state.seq + 1
        self.state.seq += n
        return range(first, first + n)

    def take(self, events: Events, i: int) -> None:
        """One of some events."""
        kind, model, version = events.streams[events.stream[i]]
        wrong, name, t = FIELDS[events.wrong[i]], events.id[i], float(events.t[i])
        if kind is not Label:
            self._predict(self.state.of(model, version or ""), events, i, wrong or self.move(t, self.ahead))
            return
        wrong, versions = wrong or self.move(t, self.ahead), self.state.addressed(model, version)
        # a label for every version goes to those that have its prediction, if any has
        for addressed in [one for one in versions if name in one.open.place] or versions:
            addressed.labels.received += 1
            if wrong:
                addressed.labels.reject(wrong)
            else:
                self._label(addressed, name, float(events.y[i]), t)

    # -- predictions ---------------------------------------------------------------------------------------------------

    def _predict(self, version: VersionState, events: Events, i: int, wrong: str) -> None:
        counters, name, t = version.predictions, events.id[i], float(events.t[i])
        counters.received += 1
        due = after(t + self.ttl, self.ttl_step)
        if wrong or due <= self.state.clock:
            counters.reject(wrong or "late")
            return
        ripe = min(after(t + self.maturity, self.maturity_step), due) if self.maturity else t
        p = events.p[i : i + 1].reshape(1, -1)
        row = np.concatenate([[[t, events.w[i], due, ripe, 0.0, math.nan, math.nan]], p], axis=1)
        if name in version.open.place:
            same = version.open.is_same(name, row, events.segment[i])
            counters.duplicate += same
            counters.conflicting += not same
            return
        (row[0, SEQ],) = self.next()
        counters.pending += 1
        self.open(version, [name], row, [sys.intern(events.segment[i])])
        self.state.schedule(version, version.ending, due, name)
        if name in version.held:
            u, y, held_until, seq = version.held.pop(name)
            version.labels.pending -= 1
            self.changes.found.append((held_until, seq))
            self._settle(version, name, y, u)

    def open(self, version: VersionState, ids: list[str], rows: Array, segment: list[str]) -> None:
        """New predictions."""
        version.open.add(ids, rows, segment)
        self.changes.predictions.append((version.code, ids, rows, segment))

    # -- labels --------------------------------------------------------------------------------------------------------

    def _label(self, version: VersionState, name: str, y: float, u: float) -> None:
        place = version.open.place.get(name)
        if place is None:
            self._hold(version, name, y, u)
            return
        old_y, old_u = version.open.table[place, Y : U + 1].tolist()
        if old_y != old_y:
            self._settle(version, name, y, u)
        elif self._is_newer(version, y, u, old_y, old_u):
            self._correct(version, name, place, y, u)

    def _is_newer(self, version: VersionState, y: float, u: float, old_y: float, old_u: float) -> bool:
        """Whether a label replaces the one that is there; if not, it is counted."""
        version.labels.duplicate += y == old_y
        version.labels.conflicting += y != old_y and u <= old_u
        return y != old_y and u > old_u

    def _settle(self, version: VersionState, name: str, y: float, u: float) -> None:
        """The first outcome of a prediction: out at once if it is ripe."""
        place = version.open.place[name]
        ripe = self._note(version, place, y, u)
        if ripe <= self.state.clock:
            self.send(version, [name], [place])
            version.predictions.pending -= 1
            version.predictions.joined += 1
            version.labels.joined += 1
        else:
            version.labels.pending += 1
            self.state.schedule(version, version.ripening, ripe, name)

    def _correct(self, version: VersionState, name: str, place: int, y: float, u: float) -> None:
        """Another outcome: if the old one is out, take it back."""
        if version.open.table[place, RIPE] > self.state.clock:
            self._note(version, place, y, u)
            version.labels.conflicting += 1
            return
        self.send(version, [name], [place], -1.0)
        self._note(version, place, y, u)
        self.send(version, [name], [place])
        version.labels.joined += 1
        version.labels.corrected += 1

    def _note(self, version: VersionState, place: int, y: float, u: float) -> float:
        """Keep an outcome with its prediction, which is ripe at the moment that is returned."""
        row = version.open.table[place]
        row[Y], row[U] = y, u
        self.changes.outcomes.append([(float(row[DUE]), *self.next(), int(row[SEQ]), y, u)])
        return float(row[RIPE])

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
    wide = max(rows.shape[1] for rows in tables)
    columns = np.concatenate([padded(rows, wide) for rows in tables]).T.copy()
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
