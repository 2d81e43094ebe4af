"""A Kafka topic as a source, one message one payload. Needs the extra ``kafka``."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any

from streamcal.monitor.sources.source import Messages, Outage, Source, decoded, encoded
from streamcal.reading import SourceError
from streamcal.reading.waiting import Stop

try:
    import confluent_kafka as ck
except ImportError:
    raise SourceError('Kafka needs a client: pip install "streamcal-engine[kafka]"') from None

DISCOVERY = 30.0  # seconds between two looks for new partitions
COMMITS = 1.0  # seconds between two commits to the group
SLICE = 0.25  # seconds of waiting at a time, to see whether somebody asked to stop
REFUSED = frozenset({"TOPIC_AUTHORIZATION_FAILED", "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"})
AWAY = frozenset({"_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_SSL"})
SETTINGS = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # so that what is no longer there is counted, not skipped silently
    "queued.max.messages.kbytes": 32 << 10,  # back-pressure: so much is fetched ahead
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1000,
    "log_level": 2,
}


class KafkaSource(Source):
    """The messages of all partitions of a topic; those of one partition in order.

    The offset is the truth, not the group: partitions are assigned at the offsets of the messages, and what was kept is
    committed to the group about once a second so that tools see the lag. So two monitors with one group both get
    everything. With no offset it starts at the first message that is there. Partitions that are added are found within
    30 s and read from their start.

    A message without a value is skipped (``null``). Where the offset is no longer there, because messages were deleted
    (``lost``), or because the topic is a new one or was cut (``restarts``), the partition is read from the first message that is
    there, and that is said. Brokers that are away, and a topic that is not there yet, are waited for.
    """

    def __init__(
        self,
        brokers: str,
        topic: str,
        group: str,
        stop: Stop | None = None,
        discovery: float = DISCOVERY,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.topic, self.stop, self.discovery = topic, stop or Stop(), discovery
        self.name = f"kafka {brokers}, topic {topic}"
        self.counts = {"null": 0, "lost": 0, "restarts": 0}
        self._outage = Outage(self.name)
        self._trouble: str | None = None
        own = {**SETTINGS, "bootstrap.servers": brokers, "group.id": group, "error_cb": self._heard}
        options = options or {}
        if taken := sorted(own.keys() & options.keys()):
            raise SourceError(f"{self.name}: options must not hold {', '.join(taken)}, which the source sets itself")
        if not group:
            raise SourceError(f"{self.name}: the group must have a name")  # the client would abort the process
        try:
            self._consumer = ck.Consumer({**options, **own}, logger=logging.getLogger(__name__))
        except (ck.KafkaException, ValueError) as error:
            raise SourceError(f"{self.name}: {error}") from None
        self._next: dict[int, int] = {}  # the offset to go on at, of each partition of which it is known
        self._assigned: set[int] = set()
        self._looked, self._committed = -discovery, 0.0
        self._kept: dict[int, int] = {}
        self._notes: list[str] = []

    def begin(self, offset: bytes | None) -> None:
        """Go to the place that messages gave; None: to the first messages. The brokers are asked when it is read."""
        if offset is None:
            return
        kept = decoded(offset, "kafka", self.name)
        if kept["topic"] != self.topic:  # the offsets of another topic would silently skip messages of this one
            raise SourceError(f"{self.name}: the offset is of the topic {kept['topic']}; give the source another name")
        self.counts.update(kept["counts"])
        self._next = {int(partition): place for partition, place in kept["next"].items()}

    def read(self, most: int, wait: float) -> Messages:
        """At most so many messages: what is there, or what comes within `wait` seconds."""
        payloads: list[bytes] = []
        places: list[str] = []
        for left in self.stop.tries(wait):
            self._look(min(left, 1.0))
            if self._assigned:
                self._take(most, min(left, SLICE), payloads, places)
            else:
                self._consumer.poll(0)
                self.stop.wait(min(left, 0.1))
            if payloads:
                break
        notes, self._notes = self._notes, []
        known = {str(partition): place for partition, place in sorted(self._next.items())}
        offset = encoded(kind="kafka", topic=self.topic, next=known, counts=self.counts)
        return Messages(payloads, places, offset, notes=notes)

    def acknowledge(self, messages: Messages) -> None:
        """Commit its offsets to the group, at most once a second; the last ones when it is closed."""
        self._kept = {int(p): place for p, place in decoded(messages.offset, "kafka", self.name)["next"].items()}
        if time.monotonic() - self._committed >= COMMITS:
            self._commit(asynchronous=True)

    @property
    def lag(self) -> int | None:
        """Messages that are there and not yet given, as far as the brokers have told; None if they have not."""
        lags = []
        for partition in self._assigned:
            with contextlib.suppress(ck.KafkaException):
                known = self._consumer.get_watermark_offsets(self._at(partition), cached=True)
                if known is not None and known[1] >= 0:
                    lags.append(max(0, known[1] - self._next.get(partition, max(known[0], 0))))
        return sum(lags) if lags else None

    @property
    def away(self) -> str:
        """Why the server gives nothing, as last heard of; "" while it answers."""
        return self._outage.why

    def close(self) -> None:
        """Commit what is not yet, and let go of the connection."""
        self._commit(asynchronous=False)
        self._consumer.close()

    def _at(self, partition: int, place: int = ck.OFFSET_BEGINNING) -> Any:
        return ck.TopicPartition(self.topic, partition, place)

    def _commit(self, asynchronous: bool) -> None:
        kept, self._kept = self._kept, {}
        self._committed = time.monotonic()
        if kept and not (self._outage.on and not asynchronous):
            commit: Any = self._consumer.commit
            with contextlib.suppress(ck.KafkaException):  # only tools read it
                commit(offsets=[self._at(*item) for item in kept.items()], asynchronous=asynchronous)

    def _heard(self, error: Any) -> None:
        """What the client says of its connections; called within poll and consume."""
        if error.name() in REFUSED or error.fatal():
            self._trouble = error.str()
        elif error.name() in AWAY:
            self._notes += self._outage.away(error.str())

    def _look(self, wait: float) -> None:
        """Look for partitions when it is time, and for the brokers while they are away."""
        if self._trouble:
            raise SourceError(f"{self.name}: {self._trouble}")
        now = time.monotonic()
        due = self.discovery if self._assigned else 0.0
        if now - self._looked < due and not self._outage.on:
            return
        try:
            about = self._consumer.list_topics(self.topic, timeout=max(wait, 0.05)).topics[self.topic]
        except ck.KafkaException as error:
            self._notes += self._outage.away(error.args[0].str())
            return
        self._looked = now
        if about.error is None:
            if new := {*about.partitions} - self._assigned:
                self._consumer.incremental_assign([self._at(p, self._next.get(p, ck.OFFSET_BEGINNING)) for p in new])
                self._assigned |= new
        elif about.error.name() in REFUSED:
            raise SourceError(f"{self.name}: {about.error.str()}")
        else:
            self._notes += self._outage.away(about.error.str())
            return
        self._notes += self._outage.back()

    def _take(self, most: int, wait: float, payloads: list[bytes], places: list[str]) -> None:
        first = self._consumer.poll(wait)
        if first is None:
            return
        others = self._consumer.consume(most - 1, 0) if most > 1 else []
        for message in (first, *others):
            error = message.error()
            if error is not None:
                self._complaint(error, message.partition() or 0)
                continue
            partition, place = message.partition() or 0, message.offset() or 0
            if place < self._next.get(partition, 0):
                continue  # fetched before the partition was set to another place
            self._next[partition] = place + 1
            data = message.value()
            if data is None:
                self.counts["null"] += 1
            else:
                payloads.append(data)
                places.append(f"{self.topic}[{partition}] offset {place}")

    def _complaint(self, error: Any, partition: int) -> None:
        if error.name() in REFUSED or error.fatal():
            raise SourceError(f"{self.name}: {error.str()}")
        if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            self._restart(partition)
        elif error.name() == "UNKNOWN_TOPIC_OR_PART":
            self._notes += self._outage.away(error.str())

    def _restart(self, partition: int) -> None:
        """Where the offset is no longer there: begin at the first message that is, and say what that means."""
        wanted = self._next.get(partition, 0)
        self._consumer.incremental_unassign([self._at(partition)])
        self._assigned.discard(partition)
        self._looked = -self.discovery  # it is assigned again at the next look
        try:
            low, high = self._consumer.get_watermark_offsets(self._at(partition), timeout=5.0)
        except ck.KafkaException:
            return  # once more, when the brokers answer
        where = f"{self.name}[{partition}]: offset {wanted} is no longer there"
        if wanted > high:
            self.counts["restarts"] += 1
            self._notes.append(f"{where}, the last is {high - 1}: a new topic; it is read from its start")
        elif wanted < low:
            self.counts["lost"] += low - wanted
            self._notes.append(f"{where}: {low - wanted} messages were deleted before they could be read")
        else:
            return  # it is there again
        self._next[partition] = low
