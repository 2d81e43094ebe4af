"""A Redis stream as a source, one entry one payload. Needs the extra ``redis``."""

from __future__ import annotations

import json
from typing import Any

from streamcal.monitor.sources.source import Messages, Outage, Source, decoded, encoded
from streamcal.reading import SourceError
from streamcal.reading.lines import ROOM, Unreadable
from streamcal.reading.waiting import Stop

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError:
    raise SourceError('Redis needs a client: pip install "streamcal-engine[redis]"') from None

CONSUMER = "streamcal"
FIELD = b"data"
SLICE = 0.5  # seconds of blocking at a time, to see whether somebody asked to stop
PAUSE = 0.1
NEVER = Retry(NoBackoff(), 0)  # a client that asks again by itself loses what was in the answer that did not arrive
START = b"0-0"
AWAY = (redis.ConnectionError, redis.TimeoutError)
REFUSED = (redis.AuthenticationError, redis.exceptions.AuthorizationError)
PASSING = ("NOGROUP", "LOADING", "UNBLOCKED", "READONLY", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "no such key")
Entry = tuple[bytes, dict[bytes, bytes]]


class RedisSource(Source):
    """The entries of a stream, read through a consumer group that is made if it is missing.

    The offset is the truth: the group is set to it, entries up to it that are still pending are acknowledged and not
    given again, those after it come (again). So one monitor reads through a group, and whoever must not be disturbed
    takes another group. With no offset it starts at the first entry that is there.

    The payload is the field ``data``; if an entry has none, all its fields as one JSON object. Fields that are not
    UTF-8 are bad. A server that is away is waited for. ``lost``: entries that were trimmed or deleted before they
    could be read (told by Redis 7 or later); ``restarts``: how often the stream was a new one (deleted, or gone with
    a server that keeps nothing), which is then read from its start.
    """

    def __init__(self, url: str, stream: str, group: str, stop: Stop | None = None) -> None:
        self.stream, self.group, self.stop = stream, group, stop or Stop()
        try:
            self._server = redis.Redis.from_url(url, socket_timeout=10.0, socket_connect_timeout=2.0, retry=NEVER)
        except ValueError as error:
            raise SourceError(f"the url of the stream {stream}: {error}") from None
        self.name = f"redis {_host(self._server)}"
        self.counts = {"lost": 0, "restarts": 0}
        self._outage = Outage(self.name)
        self._last, self._kept = START, START
        self._read: int | None = None  # how many entries were ever added up to the last one; None: not known
        self._ready = False
        self._few = 16  # so many entries at a time, that a batch of large ones does not fill the memory
        self._lag: int | None = None
        self._notes: list[str] = []

    def begin(self, offset: bytes | None) -> None:
        """Go to the place that messages gave; None: to the first entry. The server is asked when it is read."""
        if offset is not None:
            kept = decoded(offset, "redis", f"{self.name}, stream {self.stream}")
            self.counts.update(kept["counts"])
            self._last = self._kept = kept["id"].encode()
            self._read = kept["read"]

    def read(self, most: int, wait: float) -> Messages:
        """At most so many entries: what is there, or what comes within `wait` seconds."""
        entries: list[Entry] = []
        for left in self.stop.tries(wait):
            try:
                entries = self._entries(most, min(left, SLICE))
                self._notes += self._outage.back()
            except redis.RedisError as error:
                self._failed(error)
                self.stop.wait(min(left, PAUSE))
            if entries:
                break
        return self._messages(entries)

    def acknowledge(self, messages: Messages) -> None:
        """XACK its entries. If the server is away, that is made up for when it is back."""
        if not messages.ids:
            return
        self._kept = messages.ids[-1]
        try:
            for start in range(0, len(messages.ids), 1000):
                self._server.xack(self.stream, self.group, *messages.ids[start : start + 1000])
        except redis.RedisError as error:
            self._failed(error)

    @property
    def lag(self) -> int | None:
        """Entries that are there and not yet given, as of the last read; None if Redis does not tell (before 7.0)."""
        return self._lag

    @property
    def away(self) -> str:
        """Why the server gives nothing, as last heard of; "" while it answers."""
        return self._outage.why

    def close(self) -> None:
        """Let go of the connection."""
        self._server.close()

    def _entries(self, most: int, wait: float) -> list[Entry]:
        if not self._ready:
            self._prepare()
            self._ready = True
        both = self._server.pipeline(transaction=True)  # together, so that nothing is trimmed between the two
        both.xinfo_stream(self.stream)
        count = ["COUNT", min(most, self._few)]
        self._ask(both, count)
        about, found = both.execute(raise_on_error=False)
        for answer in (about, found):
            if isinstance(answer, Exception):
                raise answer
        if self._account(about):
            return []
        if not found and wait > 0:
            found = self._ask(self._server, [*count, "BLOCK", max(1, round(wait * 1000))])
        entries = _flat(found)
        if entries:
            size = sum(len(value) for _, fields in entries for value in fields.values()) // len(entries)
            self._few = max(1, min(2 * self._few, ROOM // (size + 1)))
        return entries

    def _ask(self, server: Any, how: list[Any]) -> Any:
        return server.execute_command("XREADGROUP", "GROUP", self.group, CONSUMER, *how, "STREAMS", self.stream, ">")

    def _prepare(self) -> None:
        """The group stands at the offset, and what is pending up to there is acknowledged."""
        try:
            self._server.xgroup_create(self.stream, self.group, id=self._last, mkstream=True)
        except redis.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        self._account(self._server.xinfo_stream(self.stream))
        self._server.xgroup_setid(self.stream, self.group, self._last)
        while pending := self._server.xpending_range(self.stream, self.group, "-", self._kept, 1000):
            self._server.xack(self.stream, self.group, *(entry["message_id"] for entry in pending))

    def _account(self, about: dict[str, Any]) -> bool:
        """Whether the stream is a new one; counts entries that are gone and were not read."""
        added, length, first = about.get("entries-added"), about["length"], about["first-entry"]
        if _order(about["last-generated-id"]) < _order(self._last) or (added or 0) < (self._read or 0):
            self.counts["restarts"] += 1
            self._notes.append(f"{self.name}: the stream {self.stream} is a new one; it is read from its start")
            self._read = None if added is None else added - length
            if self._last != START:
                self._last = self._kept = START
                self._server.xgroup_setid(self.stream, self.group, START)
            return True
        if added is None:
            return False
        if self._read is None:
            self._read = added - length if self._last == START else None
        elif (first is None or _order(first[0]) > _order(self._last)) and (lost := added - length - self._read) > 0:
            self.counts["lost"] += lost
            self._read += lost
            gone = f"{lost} {'entry was' if lost == 1 else 'entries were'} trimmed from the stream {self.stream}"
            self._notes.append(f"{self.name}: {gone} before they could be read")
        self._lag = None if self._read is None else added - self._read
        return False

    def _failed(self, error: redis.RedisError) -> None:
        """Wait and begin again where that can help; SourceError where not."""
        self._ready = False  # what was on its way is lost with the connection: it is asked for again
        text = str(error)
        if isinstance(error, REFUSED):
            raise SourceError(f"{self.name}: {text}") from None
        if isinstance(error, AWAY) or text.startswith(PASSING):
            self._notes += self._outage.away(text)
            return
        raise SourceError(f"{self.name}, stream {self.stream}: {text}") from None

    def _messages(self, entries: list[Entry]) -> Messages:
        notes, self._notes = self._notes, []
        payloads: list[bytes] = []
        places: list[str] = []
        bad: list[Unreadable] = []
        for entry, fields in entries:
            place = f"{self.stream} id {entry.decode()}"
            data = _payload(fields)
            if data is None:
                bad.append(Unreadable(place, "fields that are not UTF-8", repr(fields).encode()[:1024]))
            else:
                payloads.append(data)
                places.append(place)
        if entries:
            self._last = entries[-1][0]
            self._read = None if self._read is None else self._read + len(entries)
            self._lag = None if self._lag is None else max(0, self._lag - len(entries))
        offset = encoded(kind="redis", id=self._last.decode(), read=self._read, counts=self.counts)
        return Messages(payloads, places, offset, False, bad, notes, tuple(entry for entry, _ in entries))


def _flat(found: Any) -> list[Entry]:
    """The entries in a reply of XREADGROUP about one stream: a mapping in protocol 3, else a list of streams, or nothing."""
    if isinstance(found, dict):
        return [entry for lists in found.values() for entries in lists for entry in entries]
    return [entry for _, entries in found or () for entry in entries]


def _payload(fields: dict[bytes, bytes]) -> bytes | None:
    if FIELD in fields:
        return fields[FIELD]
    try:
        return json.dumps({key.decode(): _value(value.decode()) for key, value in fields.items()}).encode()
    except UnicodeDecodeError:
        return None


def _value(text: str) -> str | float | int | bool | None:
    """A text that is a number, true, false or null in JSON is meant as one: Redis knows only texts."""
    try:
        found = json.loads(text, parse_constant=lambda name: text)
    except ValueError:
        return text
    return text if isinstance(found, dict | list) else found


def _order(entry: bytes | str) -> tuple[int, int]:
    """Ids compare as two numbers: 9-1 comes before 10-0."""
    text = entry.decode() if isinstance(entry, bytes) else entry
    time, _, count = text.partition("-")
    return int(time), int(count or 0)


def _host(server: redis.Redis) -> str:
    """Host and port, without a password."""
    about = server.connection_pool.connection_kwargs
    return str(about["path"]) if "path" in about else f"{about.get('host', 'localhost')}:{about.get('port', 6379)}"
