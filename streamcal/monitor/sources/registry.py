"""The types of sources: ``SOURCES`` has for each word of the key ``type`` the table of the configuration, which opens it.

A type of one's own is a class that gives messages (:class:`~streamcal.monitor.sources.source.Source`), and a table::

    @dataclass(frozen=True)
    class FromTicks(SourceTable):         # [sources.NAME] with type = "ticks"
        port: int = entry(whole(1, 65535))

        def open(self, follow: bool, stop: Stop) -> Source:
            return TicksSource(self.port, stop)

    SOURCES["ticks"] = FromTicks          # before the configuration is read

Clients of servers are imported by ``open``, so that a configuration can be read without them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any

from streamcal.monitor.config.toml_tables import (
    FIELDS,
    FILE,
    OPTIONS,
    SHARE,
    SHARED_FILE,
    TEXT,
    Mistakes,
    either,
    entry,
    link,
)
from streamcal.monitor.sources.file import FileSource, PipeSource
from streamcal.monitor.sources.glob import GlobSource, is_pattern
from streamcal.monitor.sources.source import Source
from streamcal.reading import SourceError
from streamcal.reading.waiting import Stop

ENV = "env:"


@dataclass(frozen=True)
class SourceTable(ABC):
    """A table [sources.NAME]: a frozen dataclass whose fields are its keys, made by ``entry``; these every source has.

    ``fields``: our keys of an event, each with the key that the messages of this source have for it. ``max_unread``: the share
    of messages that may be unreadable, else that of the whole configuration. ``dead_letters``: the file for those.
    """

    name: str
    _: KW_ONLY
    fields: tuple[tuple[str, str], ...] = entry(FIELDS, ())
    max_unread: float | None = entry(SHARE, None)
    dead_letters: str | None = entry(SHARED_FILE, None)

    @abstractmethod
    def open(self, follow: bool, stop: Stop) -> Source:
        """The source, not yet begun; with ``follow`` it goes on at the end of what is there.

        SourceError if an extra is not installed, or the address makes no sense; a server that does not answer is waited for
        in ``read``.
        """


@dataclass(frozen=True)
class FromFile(SourceTable):
    """A file, followed as it grows and rotates, or a named pipe; or all files whose names fit a pattern with * ? [."""

    path: str = entry(FILE)

    def open(self, follow: bool, stop: Stop) -> Source:
        """A file that is a named pipe is read as one; a name with * in it is a pattern where there is no such file."""
        if is_pattern(self.path):
            return GlobSource(self.path, follow, stop)
        mode = 0
        with contextlib.suppress(OSError):  # the source will say so
            mode = os.stat(self.path).st_mode
        pipe = self.path == "-" or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
        return PipeSource(self.path, stop) if pipe else FileSource(self.path, follow, stop)


@dataclass(frozen=True)
class FromStdin(SourceTable):
    """Standard input."""

    def open(self, follow: bool, stop: Stop) -> Source:
        """To its end, whether it is followed or not."""
        return PipeSource("-", stop)


@dataclass(frozen=True)
class FromKafka(SourceTable):
    """A topic of Kafka."""

    brokers: str = entry(TEXT)
    topic: str = entry(TEXT)
    group: str = entry(TEXT, "streamcal")
    options: tuple[tuple[str, Any], ...] = entry(OPTIONS, ())

    def open(self, follow: bool, stop: Stop) -> Source:
        """Options that name an environment variable have its value."""
        from streamcal.monitor.sources.kafka import KafkaSource

        options = {key: _secret(value) for key, value in self.options}
        return KafkaSource(self.brokers, self.topic, self.group, stop, options=options)


@dataclass(frozen=True)
class FromRedis(SourceTable):
    """A stream of Redis."""

    _: KW_ONLY
    url: str | None = entry(link("redis://", "rediss://", "unix://"), None)
    url_env: str | None = entry(TEXT, None)
    stream: str = entry(TEXT)
    group: str = entry(TEXT, "streamcal")

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        return either(url=self.url, url_env=self.url_env)

    def open(self, follow: bool, stop: Stop) -> Source:
        """A url of which the environment variable is named is read there."""
        from streamcal.monitor.sources.redis import RedisSource

        url = _secret(f"{ENV}{self.url_env}") if self.url_env else self.url
        return RedisSource(url or "", self.stream, self.group, stop)


SOURCES: dict[str, type[Any]] = {"file": FromFile, "stdin": FromStdin, "kafka": FromKafka, "redis": FromRedis}


def _secret(value: Any) -> Any:
    """A value, or that of the environment variable it names. SourceError if that is not set."""
    if not isinstance(value, str) or not value.startswith(ENV):
        return value
    name = value.removeprefix(ENV)
    if name not in os.environ:
        raise SourceError(f"the environment variable {name} must be set, as the configuration names it")
    return os.environ[name]
