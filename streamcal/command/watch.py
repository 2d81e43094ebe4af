"""`streamcal watch`: windows over a growing file or a pipe, a line for each that closes, a summary whenever it ends."""

from __future__ import annotations

import math
import re
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streamcal.command.alarms import Alarms, Wish, line
from streamcal.command.report import Answer, Reader, document, encode, lost, page
from streamcal.drift.detector import finite
from streamcal.reading import SourceError
from streamcal.reading.cells import Batch, Floats
from streamcal.reading.roles import Job
from streamcal.reading.waiting import Patience, signals
from streamcal.reporting import text as show
from streamcal.reporting.limits import Judged, exit_code
from streamcal.reporting.sums import Sums
from streamcal.snapshot import Snapshot
from streamcal.times import span, utc

if TYPE_CHECKING:
    from rich.live import Live

NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


@dataclass(frozen=True)
class Closed:
    """A window that ended: its number, its ends in words, its sums. `complete` is false for the last, cut short."""

    number: int
    start: str
    end: str
    sums: Snapshot
    complete: bool = True


class Windows(ABC):
    """Cuts a stream of batches into windows, one after the other, and keeps the sum of all of them."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.open: Sums = reader.sums()
        self.held = self.closed = self.late = 0
        self.total: Snapshot = self.open.snapshot()

    @abstractmethod
    def feed(self, batch: Batch, now: float) -> Iterator[Closed]:
        """Take events that arrived `now`, and hand out each window that they complete."""

    def tick(self, now: float) -> Iterator[Closed]:
        """Hand out a window that ended because time went by."""
        yield from ()

    @abstractmethod
    def ends(self) -> tuple[str, str]:
        """Where the open window starts and ends, in words."""

    def add(self, batch: Batch) -> None:
        """Events of the open window."""
        self.open.add(batch)
        self.held += len(batch)

    def rest(self) -> Iterator[Closed]:
        """The window that is still open at the end, if it holds anything."""
        if self.held:
            yield self.close(complete=False)

    def close(self, complete: bool = True) -> Closed:
        """End the open window and start the next."""
        sums = self.open.snapshot()
        self.total = self.total + sums
        self.closed += 1
        closed = Closed(self.closed, *self.ends(), sums, complete)
        self.open, self.held = self.reader.sums(), 0
        return closed


class ByCount(Windows):
    """A window holds `size` events, refused ones included."""

    def __init__(self, reader: Reader, size: int) -> None:
        super().__init__(reader)
        self.size = size
        self.before = 0

    def feed(self, batch: Batch, now: float) -> Iterator[Closed]:
        """Take events, and hand out each window that they complete."""
        while len(batch):
            room = self.size - self.held
            self.add(batch.part(slice(room)))
            batch = batch.part(slice(room, None))
            if self.held == self.size:
                yield self.close()

    def ends(self) -> tuple[str, str]:
        """First and last event, counted from 1."""
        return str((self.closed - 1) * self.size + 1), str((self.closed - 1) * self.size + self.held)


class ByTime(Windows):
    """A window holds the events of `period` seconds, aligned to the epoch in UTC.

    It closes when an event arrives that is `lateness` seconds past its end. An event of a closed window is late: counted,
    never added. Without a time column the time of arrival counts, and a window also closes when its time is over.
    """

    def __init__(self, reader: Reader, period: float, lateness: float = 0.0) -> None:
        super().__init__(reader)
        self.period, self.lateness = period, lateness
        self.pending: dict[int, tuple[Sums, int]] = {}  # open windows by their place, with the events they hold
        self.place, self.watermark = 0, -math.inf
        self.arrival = reader.columns.time is None

    def feed(self, batch: Batch, now: float) -> Iterator[Closed]:
        """Take events, and hand out each window that they complete."""
        if not len(batch):
            return
        t = np.full(len(batch), now) if batch.t is None else batch.t
        seen = np.maximum.accumulate(np.maximum(t, self.watermark))
        place = np.floor(t / self.period)
        on_time = place > self._over(seen)
        self.late += int((~on_time).sum())
        for here in np.unique(place[on_time]).tolist():
            self._add_to(int(here), batch.part(on_time & (place == here)))
        self.watermark = float(seen[-1])
        yield from self._close_to(float(self._over(seen[-1:])[0]))

    def _over(self, t: Floats) -> Floats:
        """The last place whose window is over when the largest time is t."""
        return np.floor((t - self.lateness) / self.period) - 1.0

    def _add_to(self, place: int, batch: Batch) -> None:
        sums, held = self.pending.get(place) or (self.reader.sums(), 0)
        sums.add(batch)
        self.pending[place] = (sums, held + len(batch))
        self._look_at(max(self.pending))

    def _look_at(self, place: int) -> None:
        """The newest open window is the one that is shown."""
        self.place = place
        self.open, self.held = self.pending.get(place) or (self.reader.sums(), 0)

    def tick(self, now: float) -> Iterator[Closed]:
        """Hand out a window that ended because time went by."""
        if self.arrival:
            yield from self._close_to(math.floor(now / self.period) - 1.0)

    def _close_to(self, last: float, complete: bool = True) -> Iterator[Closed]:
        for place in sorted(p for p in self.pending if p <= last):
            self._look_at(place)
            del self.pending[place]
            yield self.close(complete)
        if self.pending:
            self._look_at(max(self.pending))

    def rest(self) -> Iterator[Closed]:
        """The windows that are still open at the end."""
        yield from self._close_to(math.inf, complete=False)

    def ends(self) -> tuple[str, str]:
        """Start and end as ISO-8601 in UTC."""
        return utc(self.place * self.period), utc((self.place + 1) * self.period)


def _length(text: str) -> tuple[float, bool]:
    """A number, and whether it counts seconds: 10000 does not, 30m does. nan for anything else."""
    shown = text.strip().replace("_", "")
    if NUMBER.fullmatch(shown):
        return float(shown), False
    try:
        return span(shown, largest="d"), True
    except ValueError:
        return math.nan, False


def windows_of(reader: Reader, length: str, lateness: str = "0s") -> Windows:
    """Windows of a number of events (10000) or of a time (30s, 5m, 1h, 1d), open `lateness` longer."""
    (size, of_time), (grace, in_seconds) = _length(length), _length(lateness)
    if not size > 0 or not (of_time or size.is_integer()):
        raise SourceError(
            f"--window must be a number of events such as 10000, or a time such as 30m, 1h, 1d; got {length}"
        )
    if grace != 0 and not (grace > 0 and in_seconds and of_time):
        raise SourceError(f"--lateness is a time such as 30m or 2h, and goes with a --window of time; got {lateness}")
    if not of_time:
        return ByCount(reader, int(size))
    windows = ByTime(reader, size, grace)
    if windows.arrival:
        reader.notes.append("no --time: the time of arrival counts")
    return windows


class Screen:
    """What is shown while it runs: lines of closed windows; on a terminal also the open window, redrawn."""

    def __init__(self, reader: Reader, windows: Windows, every: float | None, alarms: Alarms | None = None) -> None:
        self.reader, self.windows, self.every, self.alarms = reader, windows, every, alarms
        self.json = reader.job.json
        self.judged: list[Judged] = []
        self.drawn, self.shown = time.monotonic(), (0, 0)
        self.live = _live() if sys.stdout.isatty() and not self.json else None

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def closed(self, closed: Closed) -> None:
        """Print a window that ended, and hold the limits against it."""
        answer = self.reader.answer(closed.sums)
        if closed.complete:
            self.judged.extend(answer.judged)
        line = encode(self._document(closed, answer)) if self.json else _line(closed, answer, self.windows.late)
        self._print(line)

    def alarmed(self, batch: Batch) -> None:
        """Show the detector the events of a batch, and print a line for each alarm."""
        if self.alarms is not None:
            for said in self.alarms.feed(batch):
                self._print(encode(said) if self.json else line(said))

    def _document(self, closed: Closed, answer: Answer) -> dict[str, Any]:
        place = {"type": "window", "number": closed.number, "start": closed.start, "end": closed.end}
        return {**place, "complete": closed.complete, "late_so_far": self.windows.late, **answer.document()}

    def _print(self, line: str) -> None:
        if self.live:
            self.live.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, flush=True)

    def refresh(self) -> None:
        """Redraw the open window when it is time; off a terminal only if --every was given."""
        wanted = self.live is not None or (self.every is not None and not self.json)
        now = (self.windows.closed, self.windows.held)
        if not wanted or now == self.shown or time.monotonic() - self.drawn < (self.every or 1.0):
            return
        sums = self.windows.open.snapshot()
        answer = self.reader.answer(sums)
        if self.live:
            from rich.text import Text

            self.live.update(Text("\n".join(self._table(answer))), refresh=True)
        else:
            place = Closed(self.windows.closed + 1, "", "", sums, complete=False)
            self._print(_line(place, answer, self.windows.late))
        self.drawn, self.shown = time.monotonic(), now

    def _table(self, answer: Answer) -> list[str]:
        r = answer.report
        title = f"window {self.windows.closed + 1}, open: {show.count(self.windows.held)} events"
        return ["", title, "", *show.rows(r), "", lost(self.reader, r), show.verdict(r)]

    def finish(self) -> int:
        """The last window as far as it got, the summary of all events, and the exit code."""
        for closed in self.windows.rest():
            self.closed(closed)
        answer = self.reader.answer(self.windows.total, anytime=True)
        if self.json:
            count = {"type": "final", "windows": self.windows.closed, "late_so_far": self.windows.late}
            if self.alarms is not None:
                count |= {"alarms": self.alarms.count, "evidence": finite(self.alarms.detector.evidence)}
            self._print(encode({**count, **document(self.reader, answer)}))
        else:
            lines = ["", f"all {self.windows.closed} windows", *page(self.reader, answer), *self._crossings()]
            if self.windows.closed > 1:
                lines.append("each window above: for one look; alarms come from a detector (streamcal.drift)")
            if self.alarms is not None:
                lines.append(self.alarms.summary())
            self._print("\n".join(lines + ([f"late events: {self.windows.late}"] if self.windows.late else [])))
        limits = exit_code([*self.judged, *answer.judged])
        alarms = 0 if self.alarms is None else self.alarms.exit_code()
        return self.reader.complain() or (1 if 1 in (limits, alarms) else max(limits, alarms))

    def _crossings(self) -> list[str]:
        """How many complete windows crossed each limit; the lines above are about all events together."""
        texts = dict.fromkeys(j.limit for j in self.judged)
        found = {text: [j.crossed for j in self.judged if j.limit == text] for text in texts}
        return [
            f'limit "{text}": crossed in {sum(x is True for x in c)} of {len(c)} complete windows'
            for text, c in found.items()
        ]


def _live() -> Live:
    from rich.console import Console
    from rich.live import Live

    return Live(console=Console(), auto_refresh=False, transient=True, vertical_overflow="crop")


def _line(closed: Closed, answer: Answer, late: int) -> str:
    r = answer.report
    ece, k2 = (show.short(r["metrics"][m]["value"]) for m in ("ece", "k2_debiased"))
    ends = f" {closed.start} .. {closed.end}" if closed.end else ""
    parts = [
        f"window {closed.number}{ends}{'' if closed.complete else ' (open)'}",
        f"n {show.count(r['count'])}",
        f"mean p {show.short(r['mean_p'])} y {show.short(r['mean_y'])}",
        f"ece {ece}",
        f"k2 debiased {k2}",
        *([f"late so far {late}"] if late else []),
        *(f"{j.limit} CROSSED" for j in answer.judged if j.crossed),
        show.verdict(r).partition(":")[0].partition(" at n")[0],
    ]
    return "  ".join(parts)


def run(
    job: Job,
    length: str,
    every: float | None,
    idle: float | None,
    lateness: str = "0s",
    wish: Wish | None = None,
) -> int:
    """Follow the table to its end, or until someone asks to stop; the exit code."""
    patience = Patience(idle=math.inf if idle is None else idle)
    main = threading.current_thread() is threading.main_thread()
    caught: AbstractContextManager[None] = signals(patience.stop) if main else nullcontext()
    with caught:
        reader = Reader(job, follow=True, patience=patience)
        windows = windows_of(reader, length, lateness)
        alarms = None if wish is None else Alarms(reader, wish)
        with Screen(reader, windows, every, alarms) as screen:
            for batch in reader.batches():
                now = time.time()
                screen.alarmed(batch)
                for closed in (*windows.tick(now), *windows.feed(batch, now)):
                    screen.closed(closed)
                screen.refresh()
        return screen.finish()
