"""`streamcal watch --config`: sources -> monitor -> sinks, until it is asked to stop."""

from __future__ import annotations

import gc
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from streamcal.monitor.config.config import Config, ConfigError, load
from streamcal.monitor.monitor import Monitor, MonitorWarning
from streamcal.monitor.sinks.outbox import OutboxError, UrlError
from streamcal.monitor.sources.merge import Merge, Stream
from streamcal.monitor.sources.registry import SourceTable
from streamcal.monitor.store import StoreError
from streamcal.reading import AwayError, SourceError
from streamcal.reading.shown import lines
from streamcal.reading.waiting import Stop, signals
from streamcal.reporting.verdict import count

BATCH = 10_000  # messages of one transaction at most: larger ones are no faster, and are done again after a kill
WAIT = 0.2  # seconds to wait for more where nothing came, shared by all sources: a stop is heeded so soon
PATIENCE = 3.0  # seconds without anything, after which --once has read all that a server has: brokers answer within one
UNREAD = 6  # exit code of --once: a source was not there, or too much of what came could not be read
TICK = 1.0  # seconds between two looks at the wall clock, and two lines on a terminal: people read no faster


def configured(path: str) -> Config:
    """The configuration in a file; SourceError says all that is wrong with it."""
    try:
        return load(path)
    except ConfigError as error:
        raise SourceError("this configuration is not right", *map(str, error.findings)) from None


class StateError(SourceError):
    """The state, or a file that a monitor must write, is not to be had: locked, damaged, newer, full."""

    code = 4


class Live:
    """Takes what the sources give, in batches, until they end or someone asks to stop."""

    def __init__(self, config: Config, monitor: Monitor, follow: bool, stop: Stop) -> None:
        self.config, self.monitor, self.follow, self.stop = config, monitor, follow, stop
        self.away: list[str] = []  # what to say of sources that are not there, where they are not waited for
        streams = [stream for table in config.sources if (stream := self._stream(table)) is not None]
        self.merge = Merge(streams, monitor.times)
        self.screen: Callable[[str], None] | None = None  # where a line says how it stands
        self.alerts = 0
        self._ticked = self._came = time.monotonic()
        self._said, self._late = "", late_of(monitor)

    def _stream(self, table: SourceTable) -> Stream | None:
        """A source as it is read; None where it is not there, and is not waited for."""
        source = table.open(self.follow, self.stop)
        try:
            return Stream(table, source, self.monitor.kept)
        except AwayError as error:
            self.away.append(f"source {table.name} is not there: {error}")
            source.close()
            return None

    @property
    def unread(self) -> list[str]:
        """Why what was read to the end is no answer: sources that were away, and messages that could not be read."""
        gone = [(stream.table.name, why) for stream in self.merge.streams if (why := stream.source.away)]
        came, late = sum(of.run[0] for of in self.monitor.flow.sources.values()), late_of(self.monitor) - self._late
        untimely = f"{count(late)} of {count(came)} messages came late, and {count(self.monitor.held)} are held"
        times = [f"{untimely}: {'; '.join(self.monitor.status()['notes'])}"]
        times = times if late + self.monitor.held > self.config.max_unread * came > 0 else []
        return [
            *self.away,
            *(f"source {name} is away: {why}" for name, why in gone),
            *self.monitor.flow.refused(),
            *times,
        ]

    def run(self) -> None:
        """Until all sources have ended, or someone asks to stop."""
        wait = 0.0
        while not self.stop.asked and not self.merge.ended:
            merged = self.merge.next(BATCH, wait)
            for stream in self.merge.streams:
                for note in stream.notes:
                    say(f"source {stream.table.name}: {note}")
                stream.notes.clear()
            came = bool(merged.objects or merged.lost or merged.documents)
            if came:
                taken = self.monitor.take_objects(merged.objects, merged.lost, merged.documents, merged.origins)
                self._count(taken.alerts)
            self.merge.committed()
            wait = 0.0 if merged.objects else WAIT
            now = time.monotonic()
            self._came = now if came else self._came
            if now - self._ticked >= TICK:
                self._ticked = now
                self._tick(idle=not came)
            if not self.follow and not self.merge.behind and now - self._came > PATIENCE:
                break  # servers have given all that they had

    def _count(self, alerts: list[dict[str, Any]]) -> None:
        self.alerts += sum(alert["kind"] == "firing" for alert in alerts)

    def _tick(self, idle: bool) -> None:
        """Let the wall clock move time, keep what the webhooks have done, and try again what a file did not take.

        The wall clock counts only where all that is there has been read: what waits is not late.
        """
        if self.config.clock == "wall" and idle and not self.merge.behind:
            self._count(self.monitor.advance(time.time()))
        elif idle and self.monitor.pending_delivery:
            self._count(self.monitor.flush())
        trouble = self.monitor.trouble
        if trouble and trouble != self._said:
            say(trouble)
        self._said = trouble
        if self.screen is not None:
            self.screen(self.line())

    def line(self) -> str:
        """How it stands, for a terminal."""
        parts = [f"{count(self.monitor.taken)} events"]
        for stream in self.merge.streams:
            lag = stream.source.lag
            behind = "" if lag is None else f"{count(lag)} behind" if lag else "up to date"
            parts.append(f"{stream.table.name} {'ended' if stream.ended else behind}")
        return "  ".join([*parts, f"{self.monitor.firing} firing"])

    @contextmanager
    def shown(self) -> Iterator[None]:
        """While it runs: on a terminal a line that is redrawn; at the end it lets go of the sources."""
        try:
            if not sys.stderr.isatty():
                yield
                return
            from rich.console import Console
            from rich.live import Live as Screen

            with Screen(console=Console(stderr=True), auto_refresh=False, transient=True) as screen:
                self.screen = partial(screen.update, refresh=True)
                yield
        finally:
            for stream in self.merge.streams:
                stream.source.close()


def late_of(monitor: Monitor) -> int:
    """How many predictions came too late to count."""
    return sum(model["predictions"]["reasons"].get("late", 0) for model in monitor.status()["models"])


def say(text: str) -> None:
    """A word to whoever runs this; standard output is for alerts."""
    print(lines(f"streamcal: {text}"), file=sys.stderr, flush=True)


def run(path: str, once: bool, fail_on_alert: bool) -> int:
    """Watch what a configuration says; the exit code. With ``once`` files are read to their end, and not followed.

    Then the code is 6 where that is no answer: a source is not there, or too much could not be read.
    """
    config = configured(path)
    if not config.sources:
        raise SourceError("nothing to watch: the configuration has no [sources.NAME]")
    stop = Stop()
    try:
        with signals(stop), warnings.catch_warnings():
            warnings.simplefilter("ignore", MonitorWarning)  # the loop says it
            with Monitor(config) as monitor:
                for note in monitor.notes:
                    say(note)
                gc.freeze()  # what is open is many small tuples: no need to look through them again and again
                live = Live(config, monitor, not once, stop)
                say(f"watching {', '.join(table.name for table in config.sources)}; state in {config.state}")
                with live.shown():
                    live.run()
                    unread = live.unread if once else []
                closing = monitor.status()
        say(ended(closing))
        for reason in unread:
            say(reason)
    except UrlError as error:
        raise SourceError(str(error)) from None
    except (StoreError, OutboxError) as error:
        raise StateError(str(error)) from None
    return UNREAD if unread else 1 if fail_on_alert and live.alerts else 0


def ended(status: dict[str, Any]) -> str:
    """What came and what became of it, in a line."""
    sides = []
    for side in ("predictions", "labels"):
        total: Counter[str] = Counter()
        for model in status["models"]:
            total.update({key: n for key, n in model[side].items() if isinstance(n, int)})
        received = count(total.pop("received", 0))
        parts = [f"{count(n)} {key}" for key, n in total.items() if n]
        sides.append(f"{side} {received}" + (f" ({', '.join(parts)})" if parts else ""))
    unread = sum(status["unread"].values())
    return ", ".join([*sides, f"unread {count(unread)}", f"firing {len(status['firing'])}"])
