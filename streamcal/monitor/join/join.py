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

So each event is in exactly one counter of its account (:class:`Account`), and at any moment for each (model, version)
``predictions.joined == labels.joined - labels.corrected == number of +1 - number of -1 that went out``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from streamcal.monitor.events import FARTHEST, Event, Joined, Label, Prediction
from streamcal.monitor.join.bulk import take_many
from streamcal.monitor.join.pending import Account
from streamcal.monitor.join.rules import Pairing
from streamcal.monitor.store import Store
from streamcal.monitor.stretches import Labels, Predictions, groups_of, labels, predictions
from streamcal.times import LONGEST_SPAN

BLOCK = 1_000  # events of a column at a time: what they touch stays in the processor's cache


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
    >>> len(join.feed([Prediction("credit", "7", "a", 0.0, 0.8), Prediction("credit", "7", "b", 1.0, 0.3)]))
    0
    >>> (joined,) = join.feed([Label("credit", "7", "a", 9.0, 1.0)])
    >>> joined.p.tolist(), joined.y.tolist(), joined.weight.tolist()
    ([0.8], [1.0], [1.0])
    >>> (joined,) = join.feed([Label("credit", "7", "a", 12.0, 0.0)])  # a correction
    >>> joined.p.tolist(), joined.y.tolist(), joined.weight.tolist()
    ([0.8, 0.8], [1.0, 0.0], [-1.0, 1.0])
    >>> join.advance(7200.0), join.predictions.joined, join.predictions.expired
    ([], 1, 1)
    """

    def __init__(
        self, store: Store, *, ttl: float, maturity: float = 0.0, hold: float = 0.0, ahead: float = math.inf
    ) -> None:
        self.ttl = _span("ttl", ttl)
        self.maturity = _span("maturity", maturity, zero=True)
        self.hold = _span("hold", hold, zero=True)
        if self.maturity > self.ttl:
            raise ValueError(f"maturity must be at most ttl = {ttl!r}, got {maturity!r}")
        self.ahead = _number(ahead)
        if not self.ahead > 0.0:
            raise ValueError(f"ahead must be a number of seconds above 0, or inf, got {ahead!r}")
        self.store, self._books = store, store.load()
        self._pairing = Pairing(self._books, self.ttl, self.maturity, self.hold, self.ahead)

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def clock(self) -> float:
        """The largest time seen, -inf before the first."""
        return self._books.clock

    @property
    def numbered(self) -> int:
        """The last number that was given to a prediction or label: later ones have larger numbers."""
        return self._books.seq

    @property
    def predictions(self) -> Account:
        """The account of all predictions."""
        return sum((book.predictions for book in self._books.all), Account())

    @property
    def labels(self) -> Account:
        """The account of all labels."""
        return sum((book.labels for book in self._books.all), Account())

    def declare(self, model: str, version: str) -> None:
        """Know of a version before its first event, so that early labels for all versions of the model wait in it, too."""
        self._pairing.books.of(model, version)

    def accounts(self) -> dict[tuple[str, str], tuple[Account, Account]]:
        """Copies of the accounts of predictions and of labels by (model, version), in the order in which they first
        came.

        Events whose model or version is no text are in those of ("", "").
        """
        return {(b.model, b.version): (b.predictions + Account(), b.labels + Account()) for b in self._books.all}

    # -- events --------------------------------------------------------------------------------------------------------

    def feed(self, events: Iterable[Event]) -> list[Joined]:
        """Take events in order: what they joined, by (model, version), each in order. In the open transaction, or in
        its own.

        Bad values are counted, not raised. TypeError, and nothing changed, if one is neither a Prediction nor a Label.
        Fastest with thousands at a time of a few models and versions, in any order.
        """
        events = events if isinstance(events, list) else list(events)
        strange = set(map(type, events)) - {Prediction, Label}
        if strange:
            raise TypeError(f"events must be Prediction or Label, got {', '.join(sorted(s.__name__ for s in strange))}")
        with self._batch():
            for i in range(0, len(events), BLOCK):
                self._take_events(events[i : i + BLOCK])
            return self._end()

    def feed_predictions(
        self,
        model: str,
        version: str,
        ids: Sequence[str],
        t: ArrayLike,
        p: ArrayLike,
        w: ArrayLike | None = None,
        segment: Sequence[str] | str = "",
    ) -> list[Joined]:
        """Columns of n predictions: t, p (n,) or (n, classes), w; as :meth:`feed` would take them one after the other.

        ValueError, and nothing changed, if a column holds no numbers or is not of this length; w None: each weighs 1.
        """
        columns = predictions(model, version, ids, t, p, w, segment)
        with self._batch():
            self._take(columns)
            return self._end()

    def feed_labels(
        self, model: str, version: str | None, ids: Sequence[str], t: ArrayLike, y: ArrayLike
    ) -> list[Joined]:
        """Columns of n labels: t, y; as :meth:`feed` would take them one after the other.

        ValueError, and nothing changed, if a column holds no numbers or is not of this length.
        """
        columns = labels(model, version, ids, t, y)
        with self._batch():
            self._take(columns)
            return self._end()

    def advance(self, now: float) -> list[Joined]:
        """Move the clock: what ripened, as :meth:`feed` gives it. An earlier time changes nothing.

        ValueError if it is no time.
        """
        time = _number(now)
        if not -FARTHEST <= time <= FARTHEST:
            raise ValueError(f"now must be a time in seconds, at most {FARTHEST:g} from 1970, got {now!r}")
        with self._batch():
            self._pairing.move(time)
            return self._end()

    @contextmanager
    def _batch(self) -> Iterator[None]:
        """In the open transaction, or in its own. If it is interrupted, nothing of it may be kept."""
        with nullcontext() if self.store.in_transaction else self.store.transaction():
            try:
                yield
            except BaseException as error:
                self.store.refuse(
                    f"a batch was interrupted ({error!r:.200}); open it again, it is as the last good one left it"
                )
                raise

    def _take(self, columns: Predictions | Labels) -> None:
        for i in range(0, len(columns.id), BLOCK):
            part = columns.part(i, i + BLOCK)
            take_many(self._pairing, [(part, np.arange(len(part.id)))], part.event)

    def _take_events(self, events: list[Event]) -> None:
        groups = groups_of(events)
        if groups is None:
            for event in events:
                self._pairing.take(event)
        else:
            take_many(self._pairing, groups, events.__getitem__)

    def _end(self) -> list[Joined]:
        """Have the changes kept, and hand out what was joined."""
        changes, joined = self._pairing.end()
        self.store.write(changes, self._books.to_bytes())
        return joined


def _span(name: str, value: float, *, zero: bool = False) -> float:
    span = _number(value)
    if not (1.0 <= span <= LONGEST_SPAN or (zero and span == 0.0)):
        allowed = f"{'0 or ' if zero else ''}in [1, {LONGEST_SPAN:g}]"
        raise ValueError(f"{name} must be a number of seconds, {allowed}, got {value!r}")
    return span


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
