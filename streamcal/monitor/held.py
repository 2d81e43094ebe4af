"""Events far ahead of all others, which are held until another message confirms their time; and what came late.

The rule is that of tables, :mod:`streamcal.reading.ahead`. What is held is part of the state: it is neither counted nor moves the
clock, also over a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamcal.monitor.config.config import Config
from streamcal.monitor.events import FIELDS, Checked, Events, row_from
from streamcal.monitor.join.pending import Counters
from streamcal.reading.ahead import MOST, Ahead, Held
from streamcal.reporting.verdict import count
from streamcal.times import shown_span, utc

FEWEST = 100  # predictions: of fewer one late one would be a large share


class HeldEvents:
    """The events of a monitor that are held. ``document``: as plain data, which :meth:`restore` reads.

    >>> from streamcal.monitor.events import Prediction, checked_rows
    >>> held = HeldEvents(3600.0)
    >>> rows = [Prediction("m", "", name, t, 0.5) for name, t in (("a", 0.0), ("b", 9e6), ("c", 60.0))]
    >>> [row.id for row in held.witnessed(Events.of(checked_rows(rows)), 0.0)], len(held)
    (['a', 'c'], 1)
    """

    def __init__(self, ahead: float) -> None:
        self.guard = Ahead[Checked](ahead)

    def __len__(self) -> int:
        return len(self.guard.held)

    def witnessed(self, events: Events, clock: float) -> Events:
        """Events as they count, where the newest time that counts is ``clock``: some are held, some that were held come."""
        guard = self.guard
        guard.clock = clock
        if not guard.held and guard.are_near(events.t[events.wrong == 0]):
            return events
        rows: list[Checked] = []
        for row, code in zip(events, events.wrong.tolist(), strict=True):
            rows += [(row, FIELDS[code])] if code else guard.take(row.t, f"{row.model}/{row.id}", (row, ""))
        return Events.of(rows)

    def moved(self, clock: float) -> Events:
        """Time has gone on without a message: the events that count now."""
        return Events.of(self.guard.move(clock))

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        held = [[held.t, held.key, list(held.what[0])] for held in self.guard.held]
        return {"held": held, "given_up": self.guard.given_up}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on where :meth:`document` was."""
        self.guard.held = [Held(t, key, (row_from(row), "")) for t, key, row in kept["held"]]
        self.guard.given_up = kept["given_up"]

    def notes(self, config: Config, predictions: Counters) -> list[str]:
        """What is wrong with the times of events, for people: those that are held, and a share that came late."""
        guard, said = self.guard, []
        if guard.held:
            first, span = guard.held[0], shown_span(guard.ahead)
            what = f"{count(len(guard.held))} events lie more than join.ahead = {span} beyond all others"
            of = f"the first: {first.what[0].id!r:.80} of {utc(first.t)}"
            said.append(f"{what}, and are held until another message confirms their time; {of}")
        if guard.given_up:
            what = "events far ahead of all others were given up"
            said.append(f"{count(guard.given_up)} {what}: more than {MOST:,} were held")
        late, received = predictions.reasons.get("late", 0), predictions.received
        if late > config.max_unread * max(received, FEWEST):
            ttl = f"they were older than join.ttl = {shown_span(config.join.ttl)} by the newest event"
            said.append(f"{count(late)} of {count(received)} predictions came late: {ttl}")
        return said
