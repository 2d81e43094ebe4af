"""`streamcal watch`: windows over a growing file or a pipe, a line for each that closes, a summary whenever it ends."""

from __future__ import annotations

import contextlib
import math
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streamcal.arrays import one_number
from streamcal.claims import top_label
from streamcal.command.ending import say
from streamcal.command.options import WatchJob
from streamcal.command.report import Reader, Reports, document, encode, lost, page
from streamcal.drift import CalibrationDrift, SegmentedDrift
from streamcal.drift.detector import finite, in_blocks
from streamcal.reading import SourceError, shown
from streamcal.reading.cells import EventBatch, Floats
from streamcal.reading.waiting import Patience, signals
from streamcal.reporting import text
from streamcal.reporting.sums import Sums, numbers_of
from streamcal.reporting.thresholds import Judged, exit_code
from streamcal.reporting.verdict import alarm_line, count, short, with_names
from streamcal.snapshot import Snapshot
from streamcal.times import span, utc

if TYPE_CHECKING:
    from rich.live import Live

NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
ALARM = ("arl", "tolerance")  # what --alarm may set


@dataclass(frozen=True)
class Closed:
    """A window that ended: its number, its ends in words, its sums, and why there is no verdict on it, if there is none.

    `complete` is false for the last, cut short.
    """

    number: int
    start: str
    end: str
    sums: Snapshot
    complete: bool = True
    refusal: str | None = None


class Windows:
    """Cuts a stream into windows, one after the other, and keeps the sum of all of them.

    A window holds ``size`` events, refused ones included; or, with ``of_time``, the events of ``size`` seconds, aligned to
    the epoch in UTC. A window of time closes when an event arrives that is `lateness` seconds past its end. An event of a
    closed window is late: counted, never added. Without a time column the time of arrival counts, and a window also closes
    when its time is over.
    """

    def __init__(self, reader: Reader, size: float, of_time: bool = False, lateness: float = 0.0) -> None:
        self.reader, self.size, self.of_time, self.lateness = reader, size, of_time, lateness
        self.arrival = of_time and reader.columns.time is None
        self.pending: dict[int, tuple[Sums, int]] = {}  # open windows by their place, with the events they hold
        self.refused: Counter[int] = Counter()  # rows that could not be read, by the place of the event before
        self.watermark = -math.inf if of_time else 0.0
        self.closed = self.late = 0
        self.total: Snapshot = reader.sums().snapshot()

    @property
    def newest(self) -> tuple[Sums, int]:
        """The newest open window, which is the one to show: its sums, and how many events it holds."""
        return self.pending[max(self.pending)] if self.pending else (self.reader.sums(), 0)

    @property
    def place(self) -> int:
        """The place of the newest window that is open, or opens with the next event."""
        started = 0 if math.isinf(self.watermark) else int(self.watermark // self.size)
        return max(self.pending, default=started)

    def feed(self, batch: EventBatch, now: float) -> Iterator[Closed]:
        """Take events that arrived `now`, and hand out each window that they complete."""
        n = len(batch)
        if not n:
            self.refused[self.place] += batch.bad_rows
            return
        if self.of_time:
            t = np.full(n, now) if batch.t is None else batch.t
            seen = np.maximum.accumulate(np.maximum(t, self.watermark))
        else:  # the time of an event is how many were before it, and time is as far as there are events
            t = self.watermark + np.arange(n)
            seen = t + 1.0
        place = np.floor(t / self.size)
        if batch.bad_after is not None:
            self.refused.update(np.maximum.accumulate(place)[np.maximum(batch.bad_after - 1, 0)].astype(int).tolist())
        on_time = place > self._over(seen) if self.of_time else np.ones(n, bool)
        self.late += n - int(on_time.sum())
        self.watermark = float(seen[-1])
        last = float(self._over(seen[-1:])[0])
        for here, part in self._cut(batch, place) if on_time.all() else self._cut(batch.part(on_time), place[on_time]):
            sums, held = self.pending.get(here) or (self.reader.sums(), 0)
            sums.add(part)
            self.pending[here] = sums, held + len(part)
            yield from self._close_to(min(here, last))
        yield from self._close_to(last)

    def _cut(self, batch: EventBatch, place: Floats) -> Iterator[tuple[int, EventBatch]]:
        """The events of each window, by the places of the windows."""
        if (np.diff(place) < 0).any():
            order = np.argsort(place, kind="stable")
            batch, place = batch.part(order), place[order]
        ends = np.flatnonzero(np.diff(place, append=math.inf)) + 1
        for first, end in pairwise([0, *ends.tolist()]):
            yield int(place[first]), batch.part(slice(first, end))

    def _over(self, t: Floats) -> Floats:
        """The last place whose window is over when the largest time is t."""
        return np.floor((t - self.lateness) / self.size) - 1.0

    def tick(self, now: float) -> Iterator[Closed]:
        """Hand out a window that ended because time went by."""
        return self._close_to(math.floor(now / self.size) - 1.0 if self.arrival else -math.inf)

    def rest(self) -> Iterator[Closed]:
        """The windows that are still open at the end."""
        return self._close_to(math.inf, complete=False)

    def _close_to(self, last: float, complete: bool = True) -> Iterator[Closed]:
        for place in sorted(p for p in self.pending if p <= last):
            of_window, held = self.pending.pop(place)
            sums = of_window.snapshot()
            self.total = self.total + sums
            self.closed += 1
            start = (
                place * self.size
            )  # the ends as ISO-8601 in UTC; of a number of events the first and the last, from 1
            first, end = (
                map(utc, (start, start + self.size)) if self.of_time else (f"{start + n:.0f}" for n in (1, held))
            )
            yield Closed(self.closed, first, end, sums, complete, self.refusal(place, held))
            del self.refused[place]

    def refusal(self, place: int, held: int) -> str | None:
        """Why there is no verdict on the window at a place that holds so many events; None where there is one."""
        refused = self.refused[place]
        labels = self.reader.reading.labels.problem(self.reader.job.max_bad)
        return labels or self.reader.too_many(refused, refused + held)


def _length(text: str) -> tuple[float, bool]:
    """A number, and whether it counts seconds: 10000 does not, 30m does. nan for anything else."""
    shown = text.strip().replace("_", "")
    if NUMBER.fullmatch(shown):
        return float(shown), False
    with contextlib.suppress(ValueError):
        return span(shown, largest="d"), True
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
    windows = Windows(reader, size, of_time, grace)
    if windows.arrival:
        reader.notes.append("no --time: the time of arrival counts")
    return windows


@dataclass(frozen=True)
class Wish:
    """What --alarm asks for: average run length to a false alarm in events, and the gap that is no reason for one."""

    arl: float = 20_000.0
    tolerance: float = 0.0
    fail: bool = False  # whether an alarm makes the exit code 1

    @classmethod
    def parse(cls, text: str, fail: bool = False) -> Wish:
        """SourceError when it is not arl=NUMBER, tolerance=NUMBER or both."""
        given: dict[str, float] = {}
        for part in text.split(","):
            name, _, value = (piece.strip() for piece in part.partition("="))
            if name not in ALARM or name in given or (number := one_number(value.replace("_", ""))) != number:
                raise SourceError(f'--alarm must look like "arl=20000" or "arl=20000,tolerance=0.02", got "{text}"')
            given[name] = number
        wish = cls(**given, fail=fail)
        try:
            CalibrationDrift(wish.arl, wish.tolerance)
        except ValueError as error:
            raise SourceError(f"--alarm: {error}") from None
        return wish


class Alarms:
    """Feeds a detector with every event of a table, and hands out a document for each alarm.

    With a column of segments it is a SegmentedDrift, which names them; those beyond the last place share one.
    """

    def __init__(self, reader: Reader, wish: Wish) -> None:
        self.names, self.wish = reader.names, wish
        of_segments = () if reader.columns.segment is None else (reader.names.cap + 1,)
        kind: Any = SegmentedDrift if of_segments else CalibrationDrift
        self.detector = kind(*of_segments, wish.arl, wish.tolerance)
        if reader.columns.weight is not None:
            reader.notes.append("--alarm takes no weights: every event counts once")

    def feed(self, batch: EventBatch) -> Iterator[dict[str, Any]]:
        """Take the events of a batch; a document for each alarm, in order."""
        p, y = top_label(batch.p, batch.y) if batch.p.ndim == 2 and len(batch) else (batch.p, batch.y)
        segment = numbers_of(batch, self.names)
        number = self.count
        for _, alarms in in_blocks(self.detector, p, y, *(() if segment is None else (segment,))):
            for i, report in alarms:
                number += 1
                at = None if batch.t is None else utc(float(batch.t[i]))
                yield with_names({"type": "alarm", "number": number, "time": at, **report}, self.names)

    def exit_code(self) -> int:
        """1 if there was an alarm that is to fail, 2 if nothing came that could be judged, else 0."""
        return 0 if not self.wish.fail else 1 if self.count else 0 if self.detector.n else 2

    @property
    def count(self) -> int:
        """Alarms so far."""
        return int(self.detector.alarms)


class Screen:
    """What is shown while it runs: lines of closed windows; on a terminal also the open window, redrawn."""

    def __init__(self, reader: Reader, windows: Windows, every: float | None, alarms: Alarms | None = None) -> None:
        self.reader, self.windows, self.every, self.alarms = reader, windows, every, alarms
        self.json = reader.job.json
        self.judged: list[Judged] = []
        self.refusals = 0  # windows without a verdict
        self.drawn, self.shown = time.monotonic(), (0, 0)
        self.live: Live | None = None
        if sys.stdout.isatty() and not self.json:
            from rich.console import Console
            from rich.live import Live

            self.live = Live(console=Console(), auto_refresh=False, transient=True, vertical_overflow="crop")

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def closed(self, closed: Closed) -> None:
        """Print a window that ended, and hold the limits against it."""
        answer = self.reader.answer(closed.sums, refusal=closed.refusal)
        self.refusals += closed.refusal is not None
        if closed.complete and closed.refusal is None:
            self.judged.extend(answer.judged)
        if self.json:
            place = {"type": "window", "number": closed.number, "start": closed.start, "end": closed.end}
            place |= {"complete": closed.complete, "late_so_far": self.windows.late}
            self._print(encode({**place, **answer.document()}))
        else:
            self._print(_line(closed, answer, self.windows.late))

    def alarmed(self, batch: EventBatch) -> None:
        """Show the detector the events of a batch, and print a line for each alarm; nothing while there can be no verdict."""
        if self.alarms is not None and self.reader.refusal(self.windows.late) is None:
            for said in self.alarms.feed(batch):
                self._print(encode(said) if self.json else alarm_line(said))

    def _print(self, *text: str) -> None:
        if self.live:
            self.live.console.print(shown.lines(*text), markup=False, highlight=False, soft_wrap=True)
        else:
            say(*text, flush=True)

    def refresh(self) -> None:
        """Redraw the open window when it is time; off a terminal only if --every was given."""
        wanted = self.live is not None or (self.every is not None and not self.json)
        if not wanted or time.monotonic() - self.drawn < (self.every or 1.0):
            return
        of_window, held = self.windows.newest
        now = (self.windows.closed, held)
        if now == self.shown:
            return
        sums = of_window.snapshot()
        answer = self.reader.answer(sums, refusal=self.windows.refusal(self.windows.place, held))
        if self.live:
            from rich.text import Text

            r, title = answer.report, f"window {self.windows.closed + 1}, open: {count(held)} events"
            lines = ["", title, "", *text.bins(r), "", lost(self.reader, r), answer.verdict]
            self.live.update(Text(shown.lines(*lines)), refresh=True)
        else:
            place = Closed(self.windows.closed + 1, "", "", sums, complete=False)
            self._print(_line(place, answer, self.windows.late))
        self.drawn, self.shown = time.monotonic(), now

    def finish(self) -> int:
        """The last window as far as it got, the summary of all events, and the exit code."""
        for closed in self.windows.rest():
            self.closed(closed)
        windows, alarms = self.windows, self.alarms
        refusal = self.reader.refusal(windows.late)
        answer = self.reader.answer(windows.total, anytime=True, refusal=refusal)
        if self.json:
            final = {"type": "final", "windows": windows.closed, "late_so_far": windows.late}
            if alarms is not None:
                final |= {"alarms": alarms.count, "evidence": finite(alarms.detector.evidence)}
            self._print(encode({**final, **document(self.reader, answer)}))
        else:
            lines = ["", f"all {windows.closed} windows", *page(self.reader, answer)]
            for limit in dict.fromkeys(j.limit for j in self.judged):  # the lines above are about all events together
                crossed = [j.crossed is True for j in self.judged if j.limit == limit]
                lines.append(f'limit "{limit}": crossed in {sum(crossed)} of {len(crossed)} complete windows')
            if self.refusals:
                lines.append(f"no verdict on {self.refusals} of {windows.closed} windows: see their lines")
            if windows.closed > 1:
                lines.append("each window above: for one look; alarms come from a detector (streamcal.drift)")
            if alarms is not None:
                seen, usual = count(alarms.detector.n), f"calibrated: one in {alarms.wish.arl:g}, or fewer"
                lines.append(
                    f"alarms: {alarms.count} in {seen} events ({usual}); evidence now {alarms.detector.evidence:.3g}"
                )
            if windows.late:
                lines.append(f"late events: {windows.late}")
            self._print(*lines)
        codes = (exit_code([*self.judged, *answer.judged]), 0 if alarms is None else alarms.exit_code())
        return self.reader.complain(refusal) or (1 if 1 in codes else max(codes))


def _line(closed: Closed, answer: Reports, late: int) -> str:
    r = answer.report
    ends = f" {closed.start} .. {closed.end}" if closed.end else ""
    parts = [f"window {closed.number}{ends}{'' if closed.complete else ' (open)'}", f"n {count(r['count'])}"]
    if answer.refusal is None:
        ece, k2 = (short(r["metrics"][m]["value"]) for m in ("ece", "k2_debiased"))
        parts += [f"mean p {short(r['mean_p'])} y {short(r['mean_y'])}", f"ece {ece}", f"k2 debiased {k2}"]
    parts += [f"late so far {late}"] if late else []
    parts += [f"{j.limit} CROSSED" for j in answer.judged if j.crossed]
    said = answer.verdict.partition(":")[0].partition(", ")[0].partition("; ")[0]
    parts.append(said if answer.refusal is None else answer.verdict)
    return "  ".join(parts)


def run(job: WatchJob) -> int:
    """Follow the table to its end, or until someone asks to stop; the exit code."""
    if job.alarm is None and job.fail_on_alarm:
        raise SourceError('--fail-on-alarm goes with an --alarm such as "arl=20000"')
    wish = None if job.alarm is None else Wish.parse(job.alarm, job.fail_on_alarm)
    patience = Patience(idle=math.inf if job.idle_exit is None else job.idle_exit)
    with signals(patience.stop):
        reader = Reader(job, follow=True, patience=patience)
        windows = windows_of(reader, job.window, job.lateness)
        alarms = None if wish is None else Alarms(reader, wish)
        with Screen(reader, windows, job.every, alarms) as screen:
            for batch in reader.batches():
                now = time.time()
                screen.alarmed(batch)
                for closed in (*windows.tick(now), *windows.feed(batch, now)):
                    screen.closed(closed)
                screen.refresh()
        return screen.finish()
