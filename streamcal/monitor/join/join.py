"""The join: predictions wait for their labels by (model, version, id); nothing that came is uncounted.

The rules, one event after the other in the order in which they come; how they are cut into batches changes nothing.

*Time* is the largest event time seen, or what :meth:`Join.advance` said; it never goes back. It moves before its event
is looked at, and what falls due by then happens first. Moments at which something falls due are rounded up to a 64th of
their span (whole seconds if that is one or more): ``due`` of a prediction is ``t + ttl``, its ``ripe`` is ``t +
maturity`` but not after ``due``, and a held label waits until ``its t + hold``.

*A prediction* (t, p, w, segment)

1. with a value that is not allowed, or ``due`` already: **rejected** (reason ``late``; or the name of the field);
2. with the id of one that is not due yet: **duplicate** if all fields are equal, else **conflicting**. The first stays;
3. else it is open and **pending**. If a label was held for it, that label is looked at now;
4. at ``due`` it is forgotten, and **expired** if it has no label. A prediction that comes again after that is late: so
   none can ever count twice.

*A label* (t, y)

1. with a value that is not allowed: **rejected**;
2. without an open prediction: held, **pending**, until its hold ends: then, or at once if it has ended, **expired**;
3. the first of an open prediction: it is its outcome. From ``ripe`` on both are **joined** and the pair goes out with
   sign +1; before that both are **pending**: labels that come early (clicks, defaults) are seldom like those that come
   late;
4. the same outcome again: **duplicate**. Label times are not compared; the first one stays;
5. another outcome with a later label time: a correction. Of a pair that is out: the new label is **joined** and counted
   as corrected, the old pair goes out again with sign -1, all its values as they were, then the new one with +1. Of one
   that is not: the new label takes the place of the old one, which is **conflicting**;
6. another outcome with the same or an earlier label time: **conflicting**.

So each event is in exactly one counter (:class:`Counters`), and at any moment for each (model, version)
``predictions.joined == labels.joined - labels.corrected == number of +1 - number of -1 that went out``.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import pairwise, repeat
from typing import Any, TypeAlias

import numpy as np

from streamcal.arrays import Array, Ints
from streamcal.limits import LATEST, Flags, is_allowed
from streamcal.monitor.events import FIELDS, Events, Label, Row, all_rows, checked
from streamcal.monitor.join.pending import DUE, RIPE, SEQ, Counters, P, T, U, VersionState, W, Y, packed
from streamcal.monitor.join.rules import JoinRules, after
from streamcal.monitor.store import Store
from streamcal.times import LONGEST_SPAN

BLOCK = 1_000  # events taken together: what they touch stays in the processor's cache
FEW = 16  # events of a stream that are not worth the arrays
Group: TypeAlias = tuple[Events, Ints]  # events of one stream, and their places among all
SELDOM = 10  # where more than one of so many events are not usual, runs are too short to be worth it


class Join:
    """Pairs predictions with labels, by the rules at the top of the file; all settings are in seconds.

    An event more than ``ahead`` beyond the clock is rejected (reason ``ahead``): one time in milliseconds would else
    let everything expire. Set it only where something calls :meth:`advance`, and call that first: the first event is
    believed, and after a silence longer than ``ahead`` no event moves the clock. Other settings after a restart hold
    for new events; what is open keeps its moments.

    Not thread-safe. After an exception (a full disk) the store refuses to go on: make both anew from the file.

    >>> from streamcal.monitor.events import Label, Prediction
    >>> from streamcal.monitor.store import Store
    >>> join = Join(Store(), ttl=3600.0)
    >>> join.feed([Prediction("credit", "7", "a", 0.0, 0.8), Prediction("credit", "7", "b", 1.0, 0.3)])
    []
    >>> (joined,) = join.feed([Label("credit", "7", "a", 9.0, 1.0)])
    >>> joined.p.tolist(), joined.y.tolist(), joined.sign.tolist(), joined.moment.tolist()
    ([0.8], [1.0], [1.0], [9.0])
    >>> (joined,) = join.feed([Label("credit", "7", "a", 12.0, 0.0)])  # a correction
    >>> joined.p.tolist(), joined.y.tolist(), joined.sign.tolist()
    ([0.8, 0.8], [1.0, 0.0], [-1.0, 1.0])
    >>> join.advance(7200.0), join.predictions.joined, join.predictions.expired
    ([], 1, 1)
    """

    def __init__(
        self, store: Store, *, ttl: float, maturity: float = 0.0, hold: float = 0.0, ahead: float = math.inf
    ) -> None:
        spans = (("ttl", ttl, False), ("maturity", maturity, True), ("hold", hold, True))
        ttl, maturity, hold = (_span(*one) for one in spans)
        if maturity > ttl:
            raise ValueError(f"maturity must be at most ttl = {ttl!r}, got {maturity!r}")
        self.ahead = _number(ahead)
        if not self.ahead > 0.0:
            raise ValueError(f"ahead must be a number of seconds above 0, or inf, got {ahead!r}")
        self.store, self.state = store, store.load()
        self.rules = JoinRules(self.state, ttl, maturity, hold, self.ahead)

    @property
    def clock(self) -> float:
        """The largest time seen, -inf before the first."""
        return self.state.clock

    @property
    def numbered(self) -> int:
        """The last number that was given to a prediction or label: later ones have larger numbers."""
        return self.state.seq

    @property
    def predictions(self) -> Counters:
        """The counters of all predictions."""
        return sum((version.predictions for version in self.state.all), Counters())

    @property
    def labels(self) -> Counters:
        """The counters of all labels."""
        return sum((version.labels for version in self.state.all), Counters())

    def counters(self) -> dict[tuple[str, str], tuple[Counters, Counters]]:
        """Copies of the counters of predictions and of labels by (model, version), in the order in which they first came.

        Events whose model or version is no text are in those of ("", "").
        """
        return {(v.model, v.version): (v.predictions + Counters(), v.labels + Counters()) for v in self.state.all}

    def declare(self, model: str, version: str) -> None:
        """Know of a version before its first event, so that early labels for all versions of the model wait in it, too."""
        self.state.of(model, version)

    def feed(self, events: Events | Iterable[Row]) -> list[Events]:
        """Take events in order: the pairs that they joined, by (model, version), each in order. In the open transaction, or in
        its own.

        Rows are checked; what is not allowed is counted, not raised. TypeError, and nothing changed, if one is neither a
        Prediction nor a Label. Fastest with thousands at a time of a few models and versions, in any order.
        """
        if not isinstance(events, Events):
            rows = all_rows(events)
            if len(rows) < 2 * FEW:  # predictions and labels
                return self._batch(lambda: self.rules.take_each(map(checked, rows)))
            events = Events.of(rows)

        def take() -> None:
            for i in range(0, len(events), BLOCK):
                take_many(self.rules, events.part(slice(i, i + BLOCK)))

        return self._batch(take)

    def advance(self, now: float) -> list[Events]:
        """Move the clock: what ripened, as :meth:`feed` gives it. An earlier time changes nothing.

        ValueError if it is no time.
        """
        time = _number(now)
        if not is_allowed("t", time):
            raise ValueError(f"now must be a time in seconds, at most {LATEST:g} from 1970, got {now!r}")
        return self._batch(lambda: self.rules.move(time))

    def _batch(self, change: Callable[[], object]) -> list[Events]:
        """In the open transaction, or in its own: have what a change does kept, and hand out what it joined."""
        with nullcontext() if self.store.in_transaction else self.store.transaction():
            try:
                change()
                changes, joined = self.rules.end()
                self.store.write(changes, self.state.to_bytes())
            except BaseException as error:  # also a signal: nothing of half a batch may be kept
                self.store.refuse(
                    f"a batch was interrupted ({error!r:.200}); open it again, it is as the last good one left it"
                )
                raise
        return joined


def _span(name: str, value: float, zero: bool) -> float:
    span = _number(value)
    if not (1.0 <= span <= LONGEST_SPAN or (zero and span == 0.0)):
        allowed = f"{'0 or ' if zero else ''}in [1, {LONGEST_SPAN:g}]"
        raise ValueError(f"{name} must be a number of seconds, {allowed}, got {value!r}")
    return span


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


# -- the same for many events at once: what is usual in whole runs, the rest by the rules one by one ----------------------
#
# Usual is a prediction with an id that is neither open nor held, and a label that is the first of an open prediction. A run
# ends before an event that is not, and before the clock comes to a moment at which something falls due: no timer fires within
# a run, so the result is that of the rules one by one. tests/monitor/test_join.py holds both against each other.


def take_many(rules: JoinRules, events: Events) -> None:
    """Events in their order, by the rules."""
    groups = _groups(events) if len(events) >= FEW else []
    plan = _plan(rules, groups, len(events)) if groups and not _depend(rules, groups) else None
    if plan is None:
        for row, wrong in zip(events, events.wrong.tolist(), strict=True):
            rules.take(row, FIELDS[wrong])
    else:
        _in_runs(rules, events, *plan)


def _groups(events: Events) -> list[Group]:
    """The events of each stream and their places, the streams as they first come; none where that is not worth while."""
    n = len(events)
    if len(events.streams) == 1:
        return [(events, np.arange(n))]
    codes, first = np.unique(events.stream, return_index=True)
    if FEW * len(codes) > n:
        return []
    places = [np.flatnonzero(events.stream == code) for code in codes[np.argsort(first)].tolist()]
    return [(events.part(at), at) for at in places]


def _depend(rules: JoinRules, groups: list[Group]) -> bool:
    """Whether the groups mean something for each other: a version is new, or labels for one version and for all meet."""
    some: set[str] = set()
    every: set[str] = set()
    for events, _ in groups:
        kind, model, version = events.streams[int(events.stream[0])]
        if events.wrong.all():
            return True
        if kind is Label:
            (every if version is None else some).add(model)
        known = model in rules.state.of_model if version is None else (model, version) in rules.state.named
        if len(groups) > 1 and not known:
            return True
    return not some.isdisjoint(every)


def _plan(rules: JoinRules, groups: list[Group], n: int) -> tuple[Array, Flags, list[_Run]] | None:
    """The clock at each event, which are not usual, and who takes the usual ones; None if these are too few."""
    t, strange, clock = np.empty(n), np.zeros(n, dtype=np.bool_), rules.state.clock
    for events, at in groups:
        t[at] = np.where(events.wrong == 0, events.t, -math.inf)
    clocks = np.maximum.accumulate(np.maximum(t, clock))
    before = np.concatenate([[clock], clocks[:-1]])
    if rules.ahead < math.inf and ((t > before + rules.ahead) & (before > -math.inf)).any():
        return None
    sides: tuple[set[str], set[str]] = set(), set()
    for events, _ in groups:
        sides[events.streams[int(events.stream[0])].kind is Label].update(events.id)
    both = sides[0] & sides[1]  # ids that come as a prediction and as a label
    runs: list[_Run] = []
    for events, at in groups:
        is_label = events.streams[int(events.stream[0])].kind is Label
        runs.append((_Labels if is_label else _Predictions)(rules, events, at, clocks[at]))
        strange[at] = runs[-1].strange
        if both:
            strange[at] |= np.array([name in both for name in events.id])
    return None if SELDOM * strange.sum() > max(n, SELDOM) else (clocks, strange, runs)


def _in_runs(rules: JoinRules, events: Events, clocks: Array, strange: Flags, runs: list[_Run]) -> None:
    i, agenda = 0, rules.state.agenda
    for j in [*np.flatnonzero(strange).tolist(), len(events)]:
        while i < j:
            k = int(np.searchsorted(clocks, agenda[0][0])) if agenda and agenda[0][0] <= clocks[j - 1] else j
            if k <= i:  # the next event lets something fall due
                rules.move(float(clocks[i]))
                continue
            k = min(k, j)
            for run in runs:  # what they do themselves may fall due, too: always later than the event that does it
                moments = run.moments(*run.part(i, k))
                first = float(moments.min()) if len(moments) else math.inf
                k = k if clocks[k - 1] < first else int(np.searchsorted(clocks, first))
            for run in runs:
                run.take(*run.part(i, k))
            rules.move(float(clocks[k - 1]))
            i = k
        if j < len(events):
            rules.take(events.row(j), FIELDS[events.wrong[j]])
            i = j + 1


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


class _Run(ABC):
    """Events of one stream, their places among all, and the clock at each; ``strange``: those that are not usual."""

    def __init__(self, rules: JoinRules, events: Events, at: Ints, clocks: Array) -> None:
        self.rules, self.events, self.at, self.ids = rules, events, at, events.id
        self.strange: Flags = (events.wrong != 0) | _repeated(events.id)
        _, self.model, self.version = events.streams[int(events.stream[0])]

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
    def __init__(self, rules: JoinRules, events: Events, at: Ints, clocks: Array) -> None:
        super().__init__(rules, events, at, clocks)
        self.of = rules.state.of(self.model, self.version or "")
        p = events.p.reshape(len(events), -1)
        self.rows = np.empty((len(events), P + p.shape[1]))
        t = np.where(events.wrong == 0, events.t, 0.0)
        due = after(t + rules.ttl, rules.ttl_step)
        ripe = np.minimum(after(t + rules.maturity, rules.maturity_step), due) if rules.maturity else t
        for column, values in ((T, t), (W, events.w), (DUE, due), (RIPE, ripe)):
            self.rows[:, column] = values
        self.rows[:, Y : U + 1], self.rows[:, P:] = math.nan, p
        self.due, self.segment = due, list(map(sys.intern, events.segment))
        self.strange |= due <= clocks
        if not self.of.open.place.keys().isdisjoint(self.ids):
            self.strange |= self.of.open.places(self.ids) >= 0
        if not self.of.held.keys().isdisjoint(self.ids):
            self.strange |= np.array([name in self.of.held for name in self.ids], dtype=np.bool_)

    def moments(self, i: int, k: int) -> Array:
        return self.due[i:k]

    def take(self, i: int, k: int) -> None:
        if i == k:
            return
        ids, due = self.ids[i:k], self.due[i:k]
        self.rows[i:k, SEQ] = self.rules.next(k - i)
        self.of.open.add(ids, self.rows[i:k], self.segment[i:k])
        self.rules.changes.predictions.append(_prediction_rows(self.of.code, ids, self.rows[i:k], self.segment[i:k]))
        for a, b in pairwise([0, *(np.flatnonzero(np.diff(due)) + 1).tolist(), k - i]):
            self.rules.state.schedule(self.of, self.of.ending, float(due[a]), *ids[a:b])
        self.of.predictions.received += k - i
        self.of.predictions.pending += k - i


class _Found:
    """The predictions of a version that some labels may be for: their places, -1 where there is none, and their rows."""

    def __init__(self, of: VersionState, ids: list[str], clocks: Array) -> None:
        self.of, self.places = of, of.open.places(ids)
        self.there = self.places >= 0
        rows = of.open.table[self.places] if len(of.open.table) else np.zeros((len(ids), P))
        self.due, self.ripe, self.seq = rows[:, DUE], rows[:, RIPE], rows[:, SEQ]
        self.strange = self.there & ((rows[:, Y] == rows[:, Y]) | (self.due <= clocks))
        self.young = self.there & (self.ripe > clocks)


class _Labels(_Run):
    def __init__(self, rules: JoinRules, events: Events, at: Ints, clocks: Array) -> None:
        super().__init__(rules, events, at, clocks)
        found = [_Found(one, self.ids, clocks) for one in rules.state.addressed(self.model, self.version)]
        self.strange |= ~np.logical_or.reduce([one.there for one in found])
        for one in found:
            self.strange |= one.strange
        self.found = [one for one in found if one.there.any()]

    def moments(self, i: int, k: int) -> Array:
        return np.concatenate([np.empty(0), *(one.ripe[i:k][one.young[i:k]] for one in self.found)])

    def take(self, i: int, k: int) -> None:
        for one in self.found:
            which = i + np.flatnonzero(one.there[i:k])
            if len(which):
                self._settle(one, which)

    def _settle(self, one: _Found, which: Ints) -> None:
        """The first outcomes of some predictions of one version."""
        rules, of, n = self.rules, one.of, len(which)
        places, y, u = one.places[which], self.events.y[which], self.events.t[which]
        of.open.table[places, Y], of.open.table[places, U] = y, u
        rules.changes.outcomes.append(_outcome_rows(one.due[which], rules.next(n), one.seq[which], y, u))
        young = one.young[which]
        waiting = which[young]
        for i, ripe in zip(waiting.tolist(), one.ripe[waiting].tolist(), strict=True):
            rules.state.schedule(of, of.ripening, ripe, self.ids[i])
        out = which[~young] if len(waiting) else which
        if len(out):
            rules.send(of, [self.ids[i] for i in out.tolist()], one.places[out])
        for counters in (of.predictions, of.labels):
            counters.joined += len(out)
        of.labels.received += n
        of.labels.pending += len(waiting)
        of.predictions.pending -= len(out)


def _prediction_rows(code: int, ids: list[str], rows: Array, segment: list[str]) -> Iterator[tuple[Any, ...]]:
    """As :class:`Changes` has them; made only where a store asks."""
    t, w, due, ripe, _ = rows[:, :Y].T.tolist()
    p = rows[:, P].tolist() if rows.shape[1] == P + 1 else map(packed, rows[:, P:].tolist())
    seq = rows[:, SEQ].astype(np.int64).tolist()
    yield from zip(repeat(code), ids, t, p, w, segment, due, ripe, seq, strict=False)


def _outcome_rows(due: Array, seq: range, prediction: Array, y: Array, u: Array) -> Iterator[tuple[Any, ...]]:
    """As :class:`Changes` has them; made only where a store asks."""
    yield from zip(due.tolist(), seq, prediction.astype(np.int64).tolist(), y.tolist(), u.tolist(), strict=True)
