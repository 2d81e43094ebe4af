"""`streamcal watch --config`: sources -> monitor -> sinks, until it is asked to stop."""

from __future__ import annotations

import gc
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from streamcal.monitor.config.config import Config, ConfigError, load
from streamcal.monitor.monitor import Monitor, MonitorWarning
from streamcal.monitor.sinks.append_file import OutboxError
from streamcal.monitor.sources.merge import Merge, Stream
from streamcal.monitor.sources.registry import open_feed
from streamcal.monitor.store import StoreError
from streamcal.reading import SourceError
from streamcal.reading.waiting import Stop, signals
from streamcal.reporting.verdict import count

if TYPE_CHECKING:
    from rich.live import Live as Screen

BATCH = 10_000  # payloads of one transaction at most
WAIT = 0.2  # seconds to wait for more where nothing came, shared by all feeds
PATIENCE = 3.0  # seconds without anything, after which --once has read all that a server has
TICK = 1.0  # seconds between two looks at the wall clock, and two lines on a terminal


def configured(path: str) -> Config:
    """The configuration in a file; SourceError says all that is wrong with it."""
    try:
        return load(path)
    except ConfigError as error:
        raise SourceError("\n".join(["this configuration is not right", *map(str, error.findings)])) from None


class Live:
    """Takes what the sources give, in batches, until they end or someone asks to stop."""

    def __init__(self, config: Config, monitor: Monitor, follow: bool, stop: Stop) -> None:
        self.config, self.monitor, self.stop = config, monitor, stop
        streams = [Stream(source, open_feed(source, follow, stop), monitor.kept) for source in config.sources]
        self.merge = Merge(streams, monitor.times)
        self.alerts, self.ticked, self.said = 0, time.monotonic(), ""
        self.follow, self.came = follow, time.monotonic()

    def run(self) -> None:
        """Until all sources have ended, or someone asks to stop."""
        wait = 0.0
        while not self.stop.is_set() and not self.merge.ended:
            batch = self.merge.batch(BATCH, wait)
            for stream in self.merge.streams:
                for note in stream.notes:
                    say(f"source {stream.source.name}: {note}")
                stream.notes.clear()
            if batch:
                taken = self.monitor.take_objects(batch.objects, batch.lost, batch.documents, batch.origins)
                self._heard(taken.alerts)
            self.merge.committed()
            wait = 0.0 if batch.objects else WAIT
            self.came = time.monotonic() if batch else self.came
            self.tick(idle=not batch)
            if not self.follow and not self.merge.behind and time.monotonic() - self.came > PATIENCE:
                break  # servers have given all that they had

    def _heard(self, alerts: list[dict[str, Any]]) -> None:
        self.alerts += sum(alert["kind"] == "firing" for alert in alerts)

    def tick(self, idle: bool) -> None:
        """Let the wall clock move time, keep what the webhooks have done, and try again what a file did not take.

        The wall clock counts only where all that is there has been read: what waits is not late.
        """
        now = time.monotonic()
        if now - self.ticked < TICK:
            return
        self.ticked = now
        if self.config.clock == "wall" and idle and not self.merge.behind:
            self._heard(self.monitor.advance(time.time()))
        elif idle and self.monitor.pending_delivery:
            self._heard(self.monitor.flush())
        trouble = self.monitor.trouble
        if trouble and trouble != self.said:
            say(trouble)
        self.said = trouble

    def close(self) -> None:
        """Let go of the sources."""
        for stream in self.merge.streams:
            stream.feed.close()

    def line(self) -> str:
        """How it stands, for a terminal."""
        lags = [f"{s.source.name} {'ended' if s.ended else _behind(s.feed.lag)}" for s in self.merge.streams]
        return "  ".join([f"{count(self.monitor.taken)} events", *lags, f"{self.monitor.firing} firing"])


def _behind(lag: int | None) -> str:
    return "" if lag is None else f"{count(lag)} behind" if lag else "up to date"


def say(text: str) -> None:
    """A word to whoever runs this; standard output is for alerts."""
    print(f"streamcal: {text}", file=sys.stderr, flush=True)


@contextmanager
def shown(live: Live) -> Iterator[None]:
    """On a terminal a line that is redrawn while it runs."""
    if not sys.stderr.isatty():
        yield
        return
    with _screen() as screen:
        plain, drawn = live.tick, [0.0]

        def tick(idle: bool) -> None:
            plain(idle)
            if time.monotonic() - drawn[0] >= TICK:
                screen.update(live.line(), refresh=True)
                drawn[0] = time.monotonic()

        live.tick = tick  # type: ignore[method-assign]
        yield


def _screen() -> Screen:
    from rich.console import Console
    from rich.live import Live as Screen

    return Screen(console=Console(stderr=True), auto_refresh=False, transient=True)


def run(path: str, once: bool, fail_on_alert: bool) -> int:
    """Watch what a configuration says; the exit code. With ``once`` files are read to their end, and not followed."""
    config = configured(path)
    if not config.sources:
        raise SourceError("nothing to watch: the configuration has no [sources.NAME]")
    stop = Stop()
    main = threading.current_thread() is threading.main_thread()
    caught: AbstractContextManager[None] = signals(stop) if main else nullcontext()
    try:
        with caught, warnings.catch_warnings():
            warnings.simplefilter("ignore", MonitorWarning)  # it is said in tick
            with Monitor(config) as monitor:
                alerts = _watched(config, monitor, once, stop)
                closing: dict[str, Any] = monitor.status()
        say(ended(closing))
    except (StoreError, OutboxError) as error:
        raise SourceError(str(error)) from None
    return 1 if fail_on_alert and alerts else 0


def _watched(config: Config, monitor: Monitor, once: bool, stop: Stop) -> int:
    for note in monitor.notes:
        say(note)
    gc.freeze()  # what is open is many small tuples: no need to look through them again and again
    live = Live(config, monitor, not once, stop)
    say(f"watching {', '.join(source.name for source in config.sources)}; state in {config.state}")
    try:
        with shown(live):
            live.run()
    finally:
        live.close()
    return live.alerts


def ended(status: dict[str, Any]) -> str:
    """What came and what became of it, in a line."""
    sides = []
    for side in ("predictions", "labels"):
        total: dict[str, int] = {}
        for model in status["models"]:
            for key, n in model[side].items():
                if isinstance(n, int):
                    total[key] = total.get(key, 0) + n
        parts = [f"{count(n)} {key}" for key, n in total.items() if n and key != "received"]
        sides.append(f"{side} {count(total.get('received', 0))}" + (f" ({', '.join(parts)})" if parts else ""))
    unread = sum(status["unread"].values())
    return ", ".join([*sides, f"unread {count(unread)}", f"firing {len(status['firing'])}"])
