"""The source of a Redis stream against a real server: nothing lost, nothing twice, from any offset that was kept."""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

redis = pytest.importorskip("redis", reason="the extra redis is not installed")
from live_reader import killed  # noqa: E402

from streamcal.monitor.sources.redis import RedisSource  # noqa: E402
from streamcal.monitor.sources.registry import FromRedis  # noqa: E402
from streamcal.reading import SourceError  # noqa: E402
from streamcal.reading.waiting import Stop  # noqa: E402

ROOT = Path(__file__).parents[2]
SERVER = shutil.which("redis-server")
pytestmark = [pytest.mark.servers, pytest.mark.skipif(SERVER is None, reason="redis-server is not installed")]


class Server:
    """A redis-server on loopback that can be killed and started again; `durable` keeps what it has on disk."""

    def __init__(self, folder, durable=False, password=None):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        durably = ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
        protected = ["--requirepass", password] if password else []
        self.command = [SERVER, "--port", str(self.port), "--dir", str(folder), "--save", "", *durably, *protected]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = redis.Redis(port=self.port, password=password)
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        for _ in range(200):
            try:
                self.client.ping()
                return
            except redis.ConnectionError:
                time.sleep(0.05)
        raise AssertionError("redis-server does not answer")

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    yield server
    server.kill()


def started(server, offset=None, stop=None):
    source = FromRedis("queue", url=server.url, stream="scores", group="g").open(True, stop)
    source.begin(offset)
    return source


def add(server, numbers):
    pipe = server.client.pipeline(transaction=False)
    for k in numbers:
        pipe.xadd("scores", {"data": b"%d" % k})
    return pipe.execute()


def rest(source, most=100):
    got = []
    while (batch := source.read(most, 0)).payloads:
        got += batch.payloads
        source.acknowledge(batch)
    return [int(x) for x in got]


def test_entries_come_in_order_with_their_ids(server):
    ids = add(server, range(5))
    source = started(server)
    assert isinstance(source, RedisSource)
    batch = source.read(3, 5)
    assert batch.payloads == [b"0", b"1", b"2"] and not batch.ended
    assert batch.places == [f"scores id {i.decode()}" for i in ids[:3]]
    assert source.lag == 2
    assert server.client.xpending("scores", "g")["pending"] == 3
    source.acknowledge(batch)
    assert server.client.xpending("scores", "g")["pending"] == 0
    assert rest(source) == [3, 4] and source.lag == 0
    source.close()


def test_the_group_is_made_also_before_the_stream_is_there(server):
    source = started(server)
    assert source.read(5, 0).payloads == []
    timer = threading.Timer(0.3, add, (server, [7]))
    timer.start()
    start = time.monotonic()
    assert source.read(5, 20).payloads == [b"7"]
    timer.join()
    assert time.monotonic() - start < 10


def test_an_entry_without_data_is_all_its_fields(server):
    server.client.xadd("scores", {"id": "a1", "p": "0.25", "größe": "XL", "code": "007", "y": "null", "z": "NaN"})
    server.client.xadd("scores", {"p": b"\xff"})
    server.client.xadd("scores", {"data": b"\xff", "p": "1"})
    batch = started(server).read(5, 5)
    assert json.loads(batch.payloads[0]) == {
        "id": "a1", "p": 0.25, "größe": "XL", "code": "007", "y": None, "z": "NaN"}  # fmt: skip
    assert batch.payloads[1:] == [b"\xff"], "what data holds is for others to judge"
    assert "UTF-8" in batch.bad[0].why and b"xff" in batch.bad[0].start


def test_the_offset_is_the_truth(server):
    """Whatever the group says: entries up to the offset are acknowledged, those after it are given, again if need be."""
    add(server, range(10))
    source = started(server)
    kept = source.read(3, 5)
    source.read(4, 5)  # given and not kept
    source.close()
    assert server.client.xpending("scores", "g")["pending"] == 7
    source = started(server, kept.offset)
    assert source.read(2, 5).payloads == [b"3", b"4"]
    assert server.client.xpending_range("scores", "g", "-", kept.ids[-1], 10) == []
    assert rest(source) == [5, 6, 7, 8, 9]
    server.client.xgroup_setid("scores", "g", "$")
    assert rest(started(server, kept.offset)) == list(range(3, 10))
    server.client.xgroup_destroy("scores", "g")
    assert rest(started(server, kept.offset)) == list(range(3, 10))
    assert rest(started(server)) == list(range(10)), "no offset: from the start"


def test_many_pending_entries_are_acknowledged(server):
    add(server, range(3500))
    source = started(server)
    taken = 0
    while taken < 3400:
        batch = source.read(3400 - taken, 5)
        taken += len(batch.payloads)
    again = started(server, batch.offset)
    assert rest_of(again) == [b"%d" % k for k in range(3400, 3500)]
    assert server.client.xpending("scores", "g")["pending"] == 100


def test_large_ids(server):
    top = 2**64 - 1
    for entry in ("5-0", f"{top - 1}-{top}", f"{top}-0", f"{top}-{top}"):
        server.client.xadd("scores", {"data": entry}, id=entry)
    source = started(server)
    first = source.read(2, 5)
    assert rest_of(source) == [f"{top}-0".encode(), f"{top}-{top}".encode()]
    assert rest_of(started(server, first.offset)) == [f"{top}-0".encode(), f"{top}-{top}".encode()]
    assert source.counts == {"lost": 0, "restarts": 0}


def rest_of(source):
    got = []
    while (batch := source.read(1, 0)).payloads:
        got += batch.payloads
    return got


def test_trimmed_entries_that_were_never_read_are_counted(server):
    add(server, range(10))
    server.client.xtrim("scores", maxlen=8, approximate=False)  # before anybody came: not its loss
    source = started(server)
    batch = source.read(3, 5)
    assert batch.payloads == [b"2", b"3", b"4"] and source.counts["lost"] == 0
    add(server, range(10, 20))
    server.client.xtrim("scores", maxlen=4, approximate=False)
    for reader in (source, started(server, batch.offset)):
        after = reader.read(2, 5)
        assert after.payloads == [b"16", b"17"]
        assert reader.counts == {"lost": 11, "restarts": 0} and "11 entries were trimmed" in after.notes[0]
        assert json.loads(after.offset)["counts"]["lost"] == 11
        assert reader.read(2, 5).payloads == [b"18", b"19"] and reader.counts["lost"] == 11
    server.client.xtrim("scores", maxlen=0, approximate=False)
    assert reader.read(2, 0).payloads == [] and reader.counts["lost"] == 11, "these were read"
    add(server, [20, 21])
    server.client.xtrim("scores", maxlen=0, approximate=False)
    assert reader.read(2, 0).payloads == [] and reader.counts["lost"] == 13


def test_large_entries_come_in_small_blocks(server):
    for k in range(60):
        server.client.xadd("scores", {"data": b"%d" % k + bytes(1_000_000)})
    source, sizes = started(server), []
    while (batch := source.read(1000, 0)).payloads:
        sizes.append(len(batch.payloads))
    assert sum(sizes) == 60 and max(sizes) <= 16


@pytest.mark.parametrize("query", ["", "?protocol=2", "?protocol=3"])
def test_both_protocols(server, query):
    ids = add(server, range(4))
    source = RedisSource(server.url + query, "scores", "g")
    source.begin(None)
    batch = source.read(2, 5)
    assert batch.payloads == [b"0", b"1"] and batch.ids == tuple(ids[:2])
    source.acknowledge(batch)
    assert rest(source) == [2, 3]
    timer = threading.Timer(0.2, add, (server, [4]))
    timer.start()
    assert source.read(2, 20).payloads == [b"4"]
    timer.join()
    again = RedisSource(server.url + query, "scores", "g")
    again.begin(batch.offset)
    assert rest(again) == [2, 3, 4] and again.counts == {"lost": 0, "restarts": 0}


def test_deleted_entries_that_were_read_are_no_loss(server):
    ids = add(server, range(10))
    source = started(server)
    batch = source.read(6, 5)
    server.client.xdel("scores", *ids[1:4])
    assert source.read(2, 5).payloads == [b"6", b"7"] and source.counts["lost"] == 0
    server.client.xdel("scores", *ids[:8])
    assert rest(source) == [8, 9] and source.counts["lost"] == 0
    assert rest(started(server, batch.offset)) == [8, 9]


def test_a_stream_that_is_a_new_one_is_read_from_its_start(server):
    add(server, range(5))
    source = started(server)
    batch = source.read(10, 5)
    server.client.delete("scores")
    server.client.xadd("scores", {"data": "90"}, id="1-1")
    for reader in (source, started(server, batch.offset)):
        assert reader.read(5, 5).payloads == [b"90"]
        assert reader.counts == {"lost": 0, "restarts": 1}


def test_a_server_that_keeps_its_data_is_waited_for(tmp_path):
    server = Server(tmp_path, durable=True)
    try:
        add(server, range(5))
        source = started(server)
        source._outage.patience = 0.3
        first = source.read(2, 5)
        server.kill()
        said = []
        for _ in range(6):
            batch = source.read(5, 0.2)
            said += batch.notes
            assert batch.payloads == [] and batch.offset == first.offset
        assert len(said) == 1 and "no answer" in said[0] and str(server.port) in said[0]
        source.acknowledge(first)  # must not raise: it is made up for
        server.start()
        batch = source.read(10, 10)
        assert batch.payloads == [b"2", b"3", b"4"] and "answers again" in batch.notes[0]
        assert server.client.xpending_range("scores", "g", "-", first.ids[-1], 10) == []
    finally:
        server.kill()


def test_a_server_that_forgets_is_gone_on_with(server):
    add(server, range(5))
    source = started(server)
    source.read(5, 5)
    server.kill()
    assert source.read(5, 0.2).payloads == []
    server.start()
    add(server, [5, 6])
    got = []
    for _ in range(20):
        got += source.read(5, 0.5).payloads
        if got:
            break
    assert got == [b"5", b"6"]


def test_it_stops_waiting_when_asked(server):
    stop = Stop()
    source = started(server, stop=stop)
    threading.Timer(0.2, stop.set).start()
    start = time.monotonic()
    assert source.read(5, 60).payloads == []
    assert time.monotonic() - start < 5


def test_what_waiting_does_not_mend_is_an_error_without_secrets(tmp_path, server):
    server.client.set("scores", "text")
    with pytest.raises(SourceError, match=r"stream scores: WRONGTYPE"):
        started(server).read(5, 1)
    closed = Server(tmp_path, password="right-secret")
    try:
        for login in ("", ":wrong-secret@"):
            url = f"redis://{login}127.0.0.1:{closed.port}/0"
            source = RedisSource(url, "scores", "g")
            source.begin(None)
            with pytest.raises(SourceError) as caught:
                source.read(5, 1)
            assert "secret" not in str(caught.value) and str(closed.port) in str(caught.value)
        source = RedisSource(f"redis://:right-secret@127.0.0.1:{closed.port}/0", "scores", "g")
        source.begin(None)
        assert source.read(5, 0).payloads == []
    finally:
        closed.kill()
    with pytest.raises(SourceError, match="the url of the stream"):
        RedisSource("http://x", "scores", "g")


def test_restart_at_any_block_with_offsets_kept_or_lost(server):
    """Blocks are kept or lost at random, readers end at random: what was kept is every entry once."""
    rng = random.Random(7)
    kept: list[int] = []
    offset, written = None, 0
    source = started(server)
    for _ in range(300):
        add(server, range(written, written + (n := rng.randrange(5))))
        written += n
        batch = source.read(rng.randrange(1, 9), 0)
        if rng.random() < 0.7:
            kept += [int(x) for x in batch.payloads]
            offset = batch.offset
            if rng.random() < 0.7:
                source.acknowledge(batch)
            if rng.random() < 0.8:
                continue
        source.close()
        source = started(server, offset)
    kept += rest(source)
    assert kept == list(range(written)) and written > 300
    assert source.counts == {"lost": 0, "restarts": 0}


def test_reader_and_server_killed_at_any_moment(tmp_path):
    """A real process that is killed, and a durable server too."""
    server, written = Server(tmp_path, durable=True), 0

    def write():
        nonlocal written
        add(server, range(written, written + 50))
        written += 50
        time.sleep(0.01)

    def end_server(turn):
        if turn % 2:
            server.kill()
            server.start()
            time.sleep(0.5)

    try:
        offset, got = killed(tmp_path, "RedisSource", (server.url, "scores", "g"), write, end_server)
        assert got + rest(started(server, offset)) == list(range(written))
    finally:
        server.kill()
