"""From a table of the configuration to a feed."""

from __future__ import annotations

import os
import stat
from typing import Any

from streamcal.monitor.config.settings import Source
from streamcal.monitor.sources.file import FileFeed, PipeFeed
from streamcal.monitor.sources.source import Feed
from streamcal.reading import SourceError
from streamcal.reading.waiting import Stop

ENV = "env:"


def open_feed(source: Source, follow: bool, stop: Stop | None = None) -> Feed:
    """The feed that a source names, not yet begun. `follow`: a file is read on as it grows, else to its end.

    A file that is a named pipe is read as one. `stop` ends waiting. SourceError if an extra is not installed, or the
    address makes no sense; a server that does not answer is waited for in `read`.
    """
    stop = stop or Stop()
    if source.type == "kafka":
        from streamcal.monitor.sources.kafka import KafkaFeed

        options = {name: _secret(value) for name, value in source.options}
        return KafkaFeed(source.brokers or "", source.topic or "", source.group, stop, options=options)
    if source.type == "redis":
        from streamcal.monitor.sources.redis import RedisFeed

        url = _secret(f"{ENV}{source.url_env}") if source.url_env else source.url
        return RedisFeed(url or "", source.stream or "", source.group, stop)
    path = "-" if source.type == "stdin" else source.path or ""
    return PipeFeed(path, stop) if path == "-" or _is_pipe(path) else FileFeed(path, follow, stop)


def _secret(value: Any) -> Any:
    """A value, or that of the environment variable it names. SourceError if that is not set."""
    if not isinstance(value, str) or not value.startswith(ENV):
        return value
    name = value.removeprefix(ENV)
    if name not in os.environ:
        raise SourceError(f"the environment variable {name} must be set, as the configuration names it")
    return os.environ[name]


def _is_pipe(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:  # the feed will say so
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
