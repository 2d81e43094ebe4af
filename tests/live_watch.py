"""`streamcal watch --config` as a process, what feeds it, and whether all that was planted came of it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from live_streams import Message, Planted, counted, key, planted, sums

from streamcal.monitor.config.config import load
from streamcal.monitor.monitor import CLOCK, Monitor
from streamcal.monitor.store import Store, StoreError
from streamcal.tally import COUNT, WP, WY

ROOT = Path(__file__).parents[1]
CODE = "from streamcal.command.main import main; main()"
COMMON = """
state = "state.db"
audit = "audit.jsonl"
record = "taken.jsonl"
every = "10m"
max_unread = 1
[models.churn]
[join]
ahead = "3000d"
ttl = "3000d"
hold = "3000d"
[segments]
fields = ["country"]
[windows.ever]
time = "3650d"
panes = 5
[windows.predicted]
time = "3650d"
panes = 5
by = "prediction"
[windows.recent]
events = 20_000
[detectors.drift]
arl = 100_000
[rules.drift]
alarm = "drift"
segments = "each"
quiet = "2h"
[rules.gap]
metric = "k1"
window = "recent"
segments = "each"
above = 0.06
level = 0.0
min_count = 200
[sinks.out]
type = "stdout"
[sinks.file]
type = "file"
path = "alerts.jsonl"
"""


def command(*args: str) -> list[str]:
    return [sys.executable, "-c", CODE, *args]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


class Watch:
    """A monitor as a process of its own, in a folder; what it prints goes into files there."""

    def __init__(self, folder: Path, *more: str, limit: Callable[[], None] | None = None) -> None:
        self.folder = folder
        with open(folder / "out", "ab") as out, open(folder / "err", "ab") as err:
            self.process = subprocess.Popen(
                command("watch", "--config", "c.toml", *more),
                cwd=folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                preexec_fn=limit,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.ended()

    def ended(self, within: float = 120.0) -> int:
        return self.process.wait(within)

    @property
    def errors(self) -> str:
        return (self.folder / "err").read_text()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.kill()


def streamcal(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Another command, to its end."""
    return subprocess.run(
        command(*args), cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


def until(condition: Callable[[], Any], within: float = 60.0, what: str = "it") -> Any:
    """Wait for something to be so."""
    end = time.monotonic() + within
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen within {within:g} s")
        time.sleep(0.02)
    return found


def accounts(folder: Path) -> dict[tuple[str, str], tuple[Counter[str], Counter[str]]]:
    """The counters in the state file, in the words of the planted stream; also while it is written."""
    with contextlib.suppress(StoreError), Store(folder / "state.db", readonly=True) as store:
        return {name: (counted(p, False), counted(y, True)) for name, (p, y) in store.counters().items()}
    return {}


def wanted(stream: Planted) -> dict[tuple[str, str], tuple[Counter[str], Counter[str]]]:
    return {("churn", version): (side.predictions, side.labels) for version, side in stream.sides.items()}


def all_there(folder: Path, stream: Planted) -> bool:
    """Whether as many events were received as were planted."""
    found = accounts(folder)
    return found.keys() == wanted(stream).keys() and all(
        found[name][side]["received"] >= goal[side]["received"]
        for name, goal in wanted(stream).items()
        for side in (0, 1)
    )


# ---- what feeds it


class Files:
    """Two files that grow."""

    def __init__(self, folder: Path) -> None:
        self.files = [(folder / f"{name}.jsonl").open("ab", buffering=0) for name in ("predictions", "labels")]
        self.config = "".join(
            f'[sources.{name}]\ntype = "file"\npath = "{name}.jsonl"\ndead_letters = "dead_{name}.jsonl"\n'
            for name in ("predictions", "labels")
        )

    def send(self, side: int, messages: list[Message]) -> None:
        self.files[side].write(b"".join(payload + b"\n" for _, payload in messages))

    def close(self) -> None:
        for file in self.files:
            file.close()


class Streams:
    """Two Redis streams."""

    def __init__(self, folder: Path) -> None:
        from test_source_redis import Server

        self.server = Server(folder)
        self.config = "".join(
            f'[sources.{name}]\ntype = "redis"\nurl = "{self.server.url}"\nstream = "{name}"\n'
            f'dead_letters = "dead_{name}.jsonl"\n'
            for name in ("predictions", "labels")
        )

    def send(self, side: int, messages: list[Message]) -> None:
        pipe = self.server.client.pipeline(transaction=False)
        for _, payload in messages:
            pipe.xadd(("predictions", "labels")[side], {"data": payload})
        pipe.execute()

    def close(self) -> None:
        self.server.kill()


class Topics:
    """Two topics of two partitions each; what belongs together is in the same."""

    def __init__(self, folder: Path) -> None:
        import confluent_kafka
        from test_source_kafka import Broker

        self.broker = Broker()
        for name in ("predictions", "labels"):
            self.broker.create(2, name)
        self.producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.broker.address, "log_level": 2, "linger.ms": 1}
        )
        self.config = "".join(
            f'[sources.{name}]\ntype = "kafka"\nbrokers = "{self.broker.address}"\ntopic = "{name}"\n'
            f'dead_letters = "dead_{name}.jsonl"\n'
            for name in ("predictions", "labels")
        )

    def send(self, side: int, messages: list[Message]) -> None:
        for order, payload in messages:
            self.producer.produce(("predictions", "labels")[side], payload, partition=int(order) % 2)
        self.producer.flush(20)

    def close(self) -> None:
        self.broker.kill()


TRANSPORTS: dict[str, Callable[[Path], Any]] = {"file": Files, "redis": Streams, "kafka": Topics}


@contextlib.contextmanager
def transport(kind: str, folder: Path) -> Iterator[Any]:
    made = TRANSPORTS[kind](folder)
    (folder / "c.toml").write_text(COMMON + made.config)
    try:
        yield made
    finally:
        made.close()


class Writer(threading.Thread):
    """Writes the rounds of a stream, each some milliseconds after the one before."""

    def __init__(self, to: Any, stream: Planted, pause: float) -> None:
        super().__init__(daemon=True)
        self.to, self.stream, self.pause = to, stream, pause
        self.error: BaseException | None = None
        self.hurry = threading.Event()

    def run(self) -> None:
        try:
            for both in self.stream.rounds:
                for side, messages in enumerate(both):
                    self.to.send(side, messages)
                self.hurry.wait(self.pause)
        except BaseException as error:
            self.error = error


# ---- killed


def killed(kind: str, folder: Path, kills: int, ids: int, pause: float, seed: int, per_round: int = 40) -> Planted:
    """Watch a stream, and be killed so many times while it is written; then to the end of it, and look at everything."""
    stream, rng = planted(ids, seed, per_round), random.Random(seed)
    with transport(kind, folder) as to:
        writer = Writer(to, stream, pause)
        writer.start()
        for _ in range(kills):
            with Watch(folder) as watch:
                before = _size(folder)
                until(lambda before=before: _size(folder) > before or not writer.is_alive(), what="progress")
                time.sleep(rng.random() ** 2 * 0.6)
                assert watch.process.poll() is None, watch.errors
                watch.kill()
        writer.hurry.set()
        with Watch(folder) as watch:
            writer.join()
            assert writer.error is None, writer.error
            with contextlib.suppress(AssertionError):  # what differs is said below
                until(lambda: all_there(folder, stream) or watch.process.poll() is not None, 120.0)
            time.sleep(0.5)
            assert watch.stop() == 0, watch.errors
            assert "Traceback" not in watch.errors, watch.errors
    check(folder, stream)
    return stream


def _size(folder: Path) -> int:
    file = folder / "taken.jsonl"
    return file.stat().st_size if file.exists() else 0


def lines(folder: Path, *names: str) -> list[Any]:
    """The lines of files, those that are there."""
    files = [folder / name for name in names]
    return [json.loads(line) for file in files if file.exists() for line in file.read_bytes().splitlines()]


def check(folder: Path, stream: Planted) -> None:
    """Nothing is lost and nothing is counted twice, anywhere."""
    check_counts(folder, stream)
    check_sums(folder, stream)
    taken = [line for line in lines(folder, "taken.jsonl") if list(line) != [CLOCK]]  # besides moments of the clock
    assert Counter(map(key, taken)) == stream.objects
    letters = Counter(key(letter["what"]) for letter in lines(folder, "dead_predictions.jsonl", "dead_labels.jsonl"))
    assert letters == stream.letters
    check_said(folder)


def check_counts(folder: Path, stream: Planted) -> None:
    assert (found := accounts(folder)) == wanted(stream), f"{found} instead of {wanted(stream)}"
    with Store(folder / "state.db", readonly=True) as store:
        for p, y in store.counters().values():
            assert p.adds_up and y.adds_up and p.joined == y.joined - y.corrected


def check_sums(folder: Path, stream: Planted) -> None:
    """Every window of every version and segment holds what a batch computation gives."""
    config = load(folder / "c.toml")
    here = Path.cwd()
    os.chdir(folder)  # the paths of the configuration are as seen from there
    try:
        monitor = Monitor(config)
    finally:
        os.chdir(here)
    try:
        for version, side in stream.sides.items():
            every = [pair for pairs in side.pairs.values() for pair in pairs]
            for segment, pairs in {**side.pairs, "all": every}.items():
                for window in ("ever", "predicted", "recent"):
                    if window == "recent" and len(pairs) > 20_000:
                        continue
                    cells = monitor.snapshot(window, version=version, segment=segment).cells[0, :-1]
                    found, goal = cells[:, [COUNT, WP, WY]], sums(pairs)
                    assert np.array_equal(found[:, [0, 2]], goal[:, [0, 2]]), (window, version, segment)
                    assert np.allclose(found[:, 1], goal[:, 1], rtol=1e-12, atol=0.0), (window, version, segment)
    finally:
        monitor.store.close()


def check_said(folder: Path) -> None:
    """Alerts and audit are those that the events lead to, each exactly once."""
    said = lines(folder, "alerts.jsonl")
    assert len({(alert["id"], alert["kind"]) for alert in said}) == len(said)
    heard = {(alert["id"], alert["kind"]) for alert in lines(folder, "out")}
    assert heard == {(alert["id"], alert["kind"]) for alert in said}  # each at least once
    audit = lines(folder, "audit.jsonl")
    keys = [(line["time"], line["rule"], line["model"], line["version"]) for line in audit]
    assert len(set(keys)) == len(keys) and audit
    again = streamcal(folder, "replay", "c.toml")
    assert (again.returncode, again.stderr) == (0, ""), again.stdout + again.stderr
    assert f"{len(audit):,} lines" in again.stdout
    assert said == again_said(folder) != []


def again_said(folder: Path) -> list[Any]:
    """The alerts of the same events taken in memory, in one process, without a kill."""
    import tomllib

    document = tomllib.loads((folder / "c.toml").read_text())
    for name in ("audit", "record", "sinks", "sources"):
        document.pop(name, None)
    document["state"], document["sinks"] = ":memory:", {"none": {"type": "file", "path": os.devnull}}
    monitor = Monitor(document)
    alerts = []
    payloads = (folder / "taken.jsonl").read_bytes().splitlines()
    with contextlib.suppress(Exception), _quiet():
        for i in range(0, len(payloads), 1000):
            alerts += monitor.take(payloads[i : i + 1000]).alerts
    return json.loads(json.dumps(alerts))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
