"""Sources: payloads a second of each kind, in batches of 1,000 and 10,000, against servers on loopback that this starts.

    PYTHONPATH=.:tests python bench/bench_feeds.py [--lines 1000000] [--messages 200000]

A payload is one event of about 100 bytes; "x 100" is 100 of them in one message. Every payload is counted
before a figure is shown. What sends them to a server is not in the time.
"""

from __future__ import annotations

import argparse
import gzip
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
from rich.table import Table
from tables import Console
from test_source_kafka import Broker
from test_source_redis import Server

from streamcal.monitor.sources.file import FileSource, PipeSource
from streamcal.monitor.sources.kafka import KafkaSource
from streamcal.monitor.sources.redis import RedisSource
from streamcal.monitor.sources.source import Source

EVENT = b'{"model":"churn","p":0.123456,"t":1700000000.5,"country":"at","tier":"gold","id":"%024d"}'


def measured(table: Table, what: str, source: Source, count: int, most: int) -> None:
    source.begin(None)
    start, cpu, got, bytes_ = time.perf_counter(), time.process_time(), 0, 0
    while got < count:
        batch = source.read(most, 10.0)
        assert batch.payloads, f"{what}: {count - got} of {count} are missing"
        got += len(batch.payloads)
        bytes_ += sum(map(len, batch.payloads))
        source.acknowledge(batch)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    assert got == count and not source.read(1, 0.0).payloads
    source.close()
    figures = (f"{got / seconds:,.0f}", f"{bytes_ / seconds / 1e6:,.0f}", f"{cpu / got * 1e6:.2f}")
    table.add_row(what, f"{most:,}", *figures)


def files(table: Table, folder: Path, count: int) -> None:
    path = folder / "events.jsonl"
    text = b"".join(EVENT % k + b"\n" for k in range(count))
    path.write_bytes(text)
    (folder / "events.jsonl.gz").write_bytes(gzip.compress(text, 1))
    for most in (1000, 10_000):
        measured(table, "file", FileSource(str(path), True), count, most)
    measured(table, "file in gzip", FileSource(f"{path}.gz", False), count, 10_000)
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=(text,), daemon=True).start()
    measured(table, "pipe", PipeSource(str(pipe)), count, 10_000)


def redis(table: Table, folder: Path, count: int, payload: Callable[[int], bytes], name: str) -> None:
    server = Server(folder)
    try:
        pipe = server.client.pipeline(transaction=False)
        for k in range(count):
            pipe.xadd("scores", {"data": payload(k)})
            if k % 5000 == 4999:
                pipe.execute()
        pipe.execute()
        for most in (1000, 10_000):
            measured(table, f"redis{name}", RedisSource(server.url, "scores", f"g{most}"), count, most)
    finally:
        server.kill()


def kafka(table: Table, count: int, payload: Callable[[int], bytes], name: str) -> None:
    broker = Broker()
    try:
        broker.create(4)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 50, "log_level": 2})
        for k in range(count):
            producer.produce("scores", payload(k), partition=k % 4)
            if k % 5000 == 4999:
                producer.flush(60)
        assert producer.flush(60) == 0
        for most in (1000, 10_000):
            measured(table, f"kafka{name}", KafkaSource(broker.address, "scores", "g"), count, most)
    finally:
        broker.kill()


def batch(k: int) -> bytes:
    return b"[" + b",".join(EVENT % (100 * k + j) for j in range(100)) + b"]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--messages", type=int, default=200_000)
    given = parser.parse_args()
    table = Table("source", "most", "payloads/s", "MB/s", "cpu us/payload", title="sources")
    with tempfile.TemporaryDirectory() as folder:
        files(table, Path(folder), given.lines)
        for count, payload, name in ((given.messages, EVENT.__mod__, ""), (given.messages // 10, batch, " x 100")):
            redis(table, Path(folder), count, payload, name)
            kafka(table, count, payload, name)
    Console().print(table)


if __name__ == "__main__":
    main()
