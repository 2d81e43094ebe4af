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

import heapq
import math
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import numpy as np

from streamcal.limits import LATEST, is_allowed
from streamcal.monitor.events import BLOCK, FIELDS, Checked, Events, Label, Prediction, Row, checked_rows
from streamcal.monitor.join.pending import DUE, RIPE, SEQ, Counters, Spans, U, VersionState, Y, after, packed
from streamcal.monitor.join.runs import FEW, Runs, plan
from streamcal.monitor.store import Store
from streamcal.times import LONGEST_SPAN


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
        self.spans = Spans(
            _span("ttl", ttl), _span("maturity", maturity, True), _span("hold", hold, True), _number(ahead)
        )
        if self.spans.maturity > self.spans.ttl:
            raise ValueError(f"maturity must be at most ttl = {self.spans.ttl!r}, got {maturity!r}")
        if not self.spans.ahead > 0.0:
            raise ValueError(f"ahead must be a number of seconds above 0, or inf, got {ahead!r}")
        self.store, self.state = store, store.load()

    @property
    def clock(self) -> float:
        """The largest time seen, -inf before the first."""
        return self.state.clock

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
        if isinstance(events, Events):
            n, blocks = len(events), (events.part(slice(i, i + BLOCK)) for i in range(0, len(events), BLOCK))
            return self._batch(lambda: self._take_blocks([events] if n <= BLOCK else blocks))
        rows = list(events)
        strange = set(map(type, rows)) - {Prediction, Label}
        if strange:
            raise TypeError(f"events must be Prediction or Label, got {', '.join(sorted(s.__name__ for s in strange))}")
        if len(rows) < 2 * FEW:  # predictions and labels: arrays cost more
            return self._batch(lambda: self._take_each(checked_rows(rows)))
        made = (Events.of_rows(rows[i : i + BLOCK]) for i in range(0, len(rows), BLOCK))
        return self._batch(lambda: self._take_blocks(made))

    def advance(self, now: float) -> list[Events]:
        """Move the clock: what ripened, as :meth:`feed` gives it. An earlier time changes nothing.

        ValueError if it is no time.
        """
        time = _number(now)
        if not is_allowed("t", time):
            raise ValueError(f"now must be a time in seconds, at most {LATEST:g} from 1970, got {now!r}")
        return self._batch(lambda: self._move(time))

    def _batch(self, change: Callable[[], object]) -> list[Events]:
        """In the open transaction, or in its own: have what a change does kept, and hand out what it joined."""
        with nullcontext() if self.store.in_transaction else self.store.transaction():
            try:
                change()
                changes, joined = self.state.end()
                self.store.write(changes, self.state.to_bytes())
            except BaseException as error:  # also a signal: nothing of half a batch may be kept
                self.store.refuse(
                    f"a batch was interrupted ({error!r:.200}); open it again, it is as the last good one left it"
                )
                raise
        return joined

    # -- many events: what is usual in whole runs, the rest one by one -----------------------------------------------------

    def _take_blocks(self, blocks: Iterable[Events]) -> None:
        for block in blocks:
            runs = plan(self.state, self.spans, block) if len(block) >= FEW else None
            if runs is None:
                self._take_each(zip(block, map(FIELDS.__getitem__, block.wrong.tolist()), strict=True))
            else:
                self._in_runs(block, runs)

    def _in_runs(self, events: Events, runs: Runs) -> None:
        i = 0
        for j in [*np.flatnonzero(runs.strange).tolist(), len(events)]:
            while i < j:
                k = runs.take(i, j)
                self._move(float(runs.clocks[max(k - 1, i)]))  # if k is i, the next event lets something fall due
                i = k
            if j < len(events):
                self._take(events.row(j), FIELDS[events.wrong[j]])
                i = j + 1

    def _take_each(self, rows: Iterable[Checked]) -> None:
        for row, wrong in rows:
            self._take(row, wrong)

    # -- one event ---------------------------------------------------------------------------------------------------------

    def _take(self, row: Row, wrong: str) -> None:
        """One event, and the first of its fields that is not allowed, "" if all are."""
        wrong = wrong or self._move(row.t, self.spans.ahead)
        if isinstance(row, Prediction):
            self._predict(self.state.of(row.model, row.version), row, wrong)
            return
        versions = self.state.addressed(row.model, row.version)
        if len(versions) > 1:  # a label for every version goes to those that have its prediction, if any has
            versions = [one for one in versions if row.id in one.open.place] or versions
        for version in versions:
            version.labels.received += 1
            if wrong:
                version.labels.reject(wrong)
            else:
                self._label(version, row.id, row.y, row.t)

    def _predict(self, version: VersionState, row: Prediction, wrong: str) -> None:
        _, _, name, t, p, w, segment = row
        version.predictions.received += 1
        due = after(t + self.spans.ttl, self.spans.ttl)
        if wrong or due <= self.state.clock:
            version.predictions.reject(wrong or "late")
        elif name in version.open.place:
            same = version.open.is_same(row)
            version.predictions.duplicate += same
            version.predictions.conflicting += not same
        else:
            maturity = self.spans.maturity
            ripe = min(after(t + maturity, maturity), due) if maturity else t
            seq = self.state.number()
            version.predictions.pending += 1
            scores = p if isinstance(p, tuple) else (p,)
            version.open.add_one(name, (t, w, due, ripe, seq, math.nan, math.nan, *scores), sys.intern(segment))
            kept = version.code, name, t, packed(scores) if len(scores) > 1 else p, w, segment, due, ripe, seq
            self.state.changes.predictions.append([kept])
            self.state.schedule(version, version.ending, due, name)
            if name in version.held:
                u, y, held_until, number = version.held.pop(name)
                version.labels.pending -= 1
                self.state.changes.found.append((held_until, number))
                self._label(version, name, y, u)

    def _label(self, version: VersionState, name: str, y: float, u: float) -> None:
        place = version.open.place.get(name)
        if place is None:
            self._hold(version, name, y, u)
            return
        row, here = version.open.table[place].tolist(), slice(place, place + 1)
        is_first, is_ripe = row[Y] != row[Y], row[RIPE] <= self.state.clock
        if not is_first and not _is_newer(version, y, u, row[Y], row[U]):
            return
        if is_ripe and not is_first:  # the pair with the old outcome is out: it is taken back
            self.state.send(version, [name], here, -1.0)
        version.open.table[place, Y : U + 1] = y, u
        self.state.changes.outcomes.append([(row[DUE], self.state.number(), int(row[SEQ]), y, u)])
        if is_ripe:
            self.state.send(version, [name], here)
            version.predictions.pending -= is_first
            version.predictions.joined += is_first
            version.labels.joined += 1
            version.labels.corrected += not is_first
        elif is_first:
            version.labels.pending += 1
            self.state.schedule(version, version.ripening, row[RIPE], name)
        else:
            version.labels.conflicting += 1

    def _hold(self, version: VersionState, name: str, y: float, u: float) -> None:
        """A label without its prediction: it waits, if its time to wait is not over."""
        old, hold = version.held.get(name), self.spans.hold
        if old is not None and not _is_newer(version, y, u, old[1], old[0]):
            return
        due = after(u + hold, hold) if hold else -math.inf
        if due <= self.state.clock:
            version.labels.expired += 1
            return
        if old is None:
            version.labels.pending += 1
        else:
            version.labels.conflicting += 1
            self.state.changes.found.append(old[2:])
        seq = self.state.number()
        version.held[name] = (u, y, due, seq)
        self.state.schedule(version, version.holding, due, name)
        self.state.changes.held.append((due, seq, version.code, name, u, y))

    # -- time --------------------------------------------------------------------------------------------------------------

    def _move(self, t: float, ahead: float = math.inf) -> str:
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
            self.state.send(version, ripe, version.open.places(ripe))
            for counters in (version.predictions, version.labels):
                counters.pending -= len(ripe)
                counters.joined += len(ripe)
        if ended := version.ending.pop(moment, None):
            unlabelled = version.open.remove(ended)
            version.predictions.pending -= unlabelled
            version.predictions.expired += unlabelled
            self.state.changes.ended += len(ended)
        for name in version.holding.pop(moment, ()):
            # it may have found its prediction, or been replaced
            if name in version.held and version.held[name][2] == moment:
                del version.held[name]
                version.labels.pending -= 1
                version.labels.expired += 1
                self.state.changes.released += 1


def _is_newer(version: VersionState, y: float, u: float, old_y: float, old_u: float) -> bool:
    """Whether a label replaces the one that is there; if not, it is counted."""
    version.labels.duplicate += y == old_y
    version.labels.conflicting += y != old_y and u <= old_u
    return y != old_y and u > old_u


def _span(name: str, value: float, zero: bool = False) -> float:
    span = _number(value)
    if not (1.0 <= span <= LONGEST_SPAN or (zero and span == 0.0)):
        allowed = f"{'0 or ' if zero else ''}in [1, {LONGEST_SPAN:g}]"
        raise ValueError(f"{name} must be a number of seconds, {allowed}, got {value!r}")
    return span


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
