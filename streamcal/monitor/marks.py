"""When the events were that a detector counts: so that an onset, which it knows as a number of events ago, has a date.

For each row (0: all events of a version, then its segments) the time of every 16th event is kept, of the last 2,048. An onset
up to 1,024 events ago is dated to within 16 events; of an older one the date of the oldest is known, before which it was.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamcal.arrays import Array, Ints

STEP, KEPT, BACK = 16, 128, 64  # events between two marks; marks kept; and how many of them back an onset is dated


class Marks:
    """Times by row and ordinal (the first event of a row is 1).

    >>> marks = Marks()
    >>> marks.add(np.array([0, 1, 0]), np.array([5.0, 6.0, 7.0])).tolist()
    [1, 1, 2]
    >>> marks.date(0, 2, now=2), marks.date(1, 1, now=1)
    ((5.0, True), (6.0, True))
    """

    def __init__(self) -> None:
        self.counts: Ints = np.zeros(0, np.int64)
        self.rings: Array = np.zeros((0, KEPT))

    def _widen(self, rows: int) -> None:
        more = max(rows, 2 * len(self.counts)) - len(self.counts)
        self.counts = np.concatenate([self.counts, np.zeros(more, np.int64)])
        self.rings = np.concatenate([self.rings, np.zeros((more, KEPT))])

    def add(self, rows: Ints, t: Array) -> Ints:
        """Events in order: the ordinal of each in its row. Shapes (n,)."""
        if not rows.size:
            return np.zeros(0, np.int64)
        if int(rows.max()) >= len(self.counts):
            self._widen(int(rows.max()) + 1)
        order = np.argsort(rows, kind="stable")
        sorted_rows = rows[order]
        first = np.searchsorted(sorted_rows, sorted_rows, side="left")
        ordinals = np.empty(rows.size, np.int64)
        ordinals[order] = self.counts[sorted_rows] + np.arange(rows.size) - first + 1
        marked = (ordinals - 1) % STEP == 0
        self.rings[rows[marked], (ordinals[marked] - 1) // STEP % KEPT] = t[marked]
        self.counts += np.bincount(rows, minlength=len(self.counts))
        return ordinals

    def date(self, row: int, ordinal: int, now: int) -> tuple[float, bool]:
        """The time of an event of a row as of its event ``now`` (at most 1,000 before its last); False: it was before that."""
        mark, newest = (max(ordinal, 1) - 1) // STEP, (now - 1) // STEP
        oldest = max(newest - BACK, 0)
        return float(self.rings[row, max(mark, oldest) % KEPT]), mark >= oldest

    def forget(self, row: int) -> None:
        """Begin anew in a row."""
        if row < len(self.counts):
            self.counts[row] = 0

    def to_plain(self) -> dict[str, Any]:
        """Everything as plain data; :meth:`take_over` reads it."""
        return {"counts": self.counts.tolist(), "rings": self.rings.astype("<f8").tobytes()}

    def take_over(self, plain: dict[str, Any]) -> None:
        """Go on where :meth:`to_plain` was."""
        self.counts = np.array(plain["counts"], np.int64)
        self.rings = np.frombuffer(plain["rings"], "<f8").reshape(-1, KEPT).copy()


def last_of(report: dict[str, Any]) -> int | None:
    """How many of the latest events are since the onset of a report; None where it names none."""
    if report.get("last") is not None:
        return int(report["last"])
    onset, event = report.get("onset"), report.get("event")
    return None if onset is None or event is None or math.isnan(onset) else int(event) - int(onset) + 1
