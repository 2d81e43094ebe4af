"""What every source is: pulled in batches of messages, each with the place to go on from, acknowledged once it is kept."""

from __future__ import annotations

import contextlib
import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from streamcal.reading import SourceError
from streamcal.reading.lines import Unreadable

PATIENCE = 3.0  # seconds: a server that is away for less is not worth a word


@dataclass(frozen=True, slots=True)
class Messages:
    """What a read gives. It may be empty; its offset may be new nevertheless.

    ``offset`` (JSON) is where to go on after all of it: keep it in the transaction that keeps what the payloads did.
    ``places`` say where each payload came from, ``notes`` what happened on the way, both for people. ``ended``: no more
    will come. ``ids`` are for acknowledging.
    """

    payloads: list[bytes]
    places: list[str]
    offset: bytes
    ended: bool = False
    bad: list[Unreadable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ids: tuple[bytes, ...] = ()


class Source(ABC):
    """A stream of messages that is pulled; a source of one's own has to :meth:`begin` and :meth:`read`. Not thread-safe.

    Nothing is lost and nothing is given twice, whenever the process ends, if it begins at the offset of the last messages
    whose effects were kept. SourceError where waiting would not help.
    """

    @abstractmethod
    def begin(self, offset: bytes | None) -> None:
        """Go to the place that a batch of messages gave; None: to the start. Once, before the first read."""

    @abstractmethod
    def read(self, most: int, wait: float) -> Messages:
        """At most so many messages: what is there, or the first that come within `wait` seconds."""

    def acknowledge(self, messages: Messages) -> None:  # noqa: B027 a source may keep no account of its readers
        """Tell the server that the offset of the messages is kept: each batch of them, in order."""

    @property
    def lag(self) -> int | None:
        """How much is there and not yet given: bytes of files, else messages; None if that is not known."""
        return None

    @property
    def away(self) -> str:
        """Why its server gives nothing, as last heard of; "" while it answers."""
        return ""

    def close(self) -> None:  # noqa: B027 nor need it hold anything
        """Let go of files and connections."""


def encoded(**place: Any) -> bytes:
    """An offset as bytes: `kind`, and whatever says where to go on."""
    return json.dumps(place, separators=(",", ":")).encode()


def decoded(offset: bytes, kind: str, name: str) -> dict[str, Any]:
    """An offset of this kind of source from its bytes. SourceError if it is of another.

    >>> decoded(b'{"kind":"file","place":3}', "file", "events.jsonl")["place"]
    3
    """
    found = None
    with contextlib.suppress(ValueError):
        found = json.loads(offset)
    if not isinstance(found, dict) or found.get("kind") != kind:
        raise SourceError(f"{name}: the offset must be of a source of type {kind}, got {offset[:80]!r}")
    return found


class Outage:
    """Says once that a server does not answer, after some seconds, and once that it does again."""

    def __init__(self, name: str, patience: float = PATIENCE) -> None:
        self.name, self.patience = name, patience
        self._since: float | None = None
        self._said = False
        self.why = ""  # the server was away when last heard of; "" if it was not

    @property
    def on(self) -> bool:
        """Whether the server was away when last heard of."""
        return self._since is not None

    def away(self, why: str) -> list[str]:
        """It does not answer; what to say about that now."""
        self._since, self.why = time.monotonic() if self._since is None else self._since, why
        if self._said or (silent := time.monotonic() - self._since) < self.patience:
            return []
        self._said = True
        return [f"{self.name}: no answer for {silent:.0f} s, still trying: {why}"]

    def back(self) -> list[str]:
        """It answers; what to say about that now."""
        said, since = self._said, self._since
        self._said, self._since, self.why = False, None, ""
        return [f"{self.name}: answers again after {time.monotonic() - since:.0f} s"] if said and since else []
