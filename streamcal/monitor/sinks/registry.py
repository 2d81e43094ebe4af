"""The types of sinks: ``SINKS`` has for each word of the key ``type`` the table of the configuration, which opens it.

A type of one's own is a class that tells alerts (:class:`~streamcal.monitor.sinks.outbox.Sink` keeps them until then), and a
table::

    class Pager(Sink):
        def tell(self, alerts: Sequence[str]) -> None: ...

    @dataclass(frozen=True)
    class ToPager:                        # [sinks.NAME] with type = "pager"
        name: str
        number: str = entry(TEXT)

        def open(self, files: AppendFiles, saved: Mapping[str, Any]) -> Sink:
            return Pager(self.name, saved)

    SINKS["pager"] = ToPager              # before the configuration is read
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamcal.monitor.config.toml_tables import (
    FILE,
    POSITIVE,
    SHARED_FILE,
    TEXT,
    Mistakes,
    either,
    entry,
    link,
    one_of,
    seconds,
    whole,
)
from streamcal.monitor.sinks.outbox import UNDELIVERED, AppendFiles, Sink


@dataclass(frozen=True)
class ToStdout:
    """JSON on standard output, a line per alert."""

    name: str

    def open(self, files: AppendFiles, saved: Mapping[str, Any]) -> Sink:
        """The sink."""
        return StdoutSink("stdout", saved)


class StdoutSink(Sink):
    """Prints."""

    def tell(self, alerts: Sequence[str]) -> None:
        """A line each."""
        sys.stdout.write("".join(alert + "\n" for alert in alerts))
        sys.stdout.flush()


@dataclass(frozen=True)
class ToFile:
    """JSON at the end of a file, a line per alert."""

    name: str
    path: str = entry(FILE)

    def open(self, files: AppendFiles, saved: Mapping[str, Any]) -> Sink:
        """The sink."""
        return FileSink(self.path, files, saved)


class FileSink(Sink):
    """Appends by way of the outbox's files, so that each line is there exactly once; it keeps nothing itself."""

    def __init__(self, path: str, files: AppendFiles, saved: Mapping[str, Any]) -> None:
        super().__init__(path, {})
        self._files = files
        if left := [alert for alert, *_ in saved.get("queue", ())]:  # of a sink of this name that was of another type
            self.tell(left)

    def offer(self, alert: str) -> None:
        """To the file at once, so that it is saved there."""
        self.tell([alert])

    def tell(self, alerts: Sequence[str]) -> None:
        """Append them, so that they are there also after a power cut."""
        self._files.append(self.name, [alert.encode() for alert in alerts], durable=True)

    @property
    def undelivered(self) -> int:
        """How many lines are not yet written."""
        return self._files[self.name].pending if self.name in self._files else 0


@dataclass(frozen=True)
class ToWebhook:
    """A request to a URL for each alert."""

    name: str
    url: str | None = entry(link("https://", "http://"), None)
    url_env: str | None = entry(TEXT, None)
    format: str = entry(one_of(("alertmanager", "slack", "json")), "json")
    retries: int = entry(whole(0, 100), 8)
    rate: float = entry(POSITIVE, 60.0)
    timeout: float = entry(seconds(0.1, " of at least 0.1s"), 10.0)
    dead_letters: str = entry(SHARED_FILE, UNDELIVERED)
    # no keys of the file:
    pause: float = 2.0  # seconds before the first new attempt: a receiver that restarts takes about so long
    resend: float = 60.0  # seconds after which Alertmanager hears again of a firing alert: as often as from Prometheus
    limit: int = 10_000  # undelivered alerts: some MB of state, which is written anew with each of them
    seed: int = 0  # of the jitter in the pauses

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        return either(url=self.url, url_env=self.url_env)

    def open(self, files: AppendFiles, saved: Mapping[str, Any]) -> Sink:
        """The sink. OutboxError if there is no url, or none that can be one."""
        from streamcal.monitor.sinks.webhook import WebhookQueue

        return WebhookQueue(self, files, saved)


SINKS: dict[str, type[Any]] = {"stdout": ToStdout, "file": ToFile, "webhook": ToWebhook}
