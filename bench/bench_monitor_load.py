"""A whole monitor under load: joined events a second, 10,000 segments, evaluations, bytes in memory and on disk, restarts.

    python bench/bench_monitor_load.py [--open 1000000] [--events 200000] [--segments 10000] [--parts columns,...]

Each part asserts its answers before its figures are shown, and its figures are held against their bounds:

- ``columns``: predictions and labels by ``predict_many`` and ``label_many``, random UUIDs, in batches of 10,000 and 1,000,
  in memory and through SQLite with so many predictions open: with one window, and with 50 segments, two windows, a
  detector and two rules. One prediction and its label are one joined event, in two transactions.
- ``payloads``: the same as JSON messages of one event each, by ``take``.
- ``counting``: joined events in batches of 1,000 for random segments, windows of 1,000 events and of 24 panes; with a detector.
- ``memory``: resident bytes per 1,000 segments: the windows by themselves, and the detector.
- ``evaluation``: five rules about every segment, two windows; with and without the audit.
- ``restart``: through SQLite: the time to open the file, and of a checkpoint.

The bare join has a bench of its own, bench_monitor.py.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from checks import Checks
from rich.table import Table
from tables import Console

from streamcal import Cumulative, EqualWidth
from streamcal.monitor.aggregates import Aggregates
from streamcal.monitor.config.config import from_document
from streamcal.monitor.events import Events, Pair, StreamKey
from streamcal.monitor.monitor import Monitor
from streamcal.tally import WY

START = 1_700_006_400.0
RATE = 100.0  # predictions a second of stream time
COUNTRIES = np.array([f"c{i}" for i in range(50)])
RECENT, DAY = {"events": 1000}, {"time": "1d", "panes": 24}


def document(state: Path | str, rich: bool, ttl: float, folder: Path) -> dict[str, Any]:
    """A configuration with one window, or with all that is usual."""
    sinks = {"file": {"type": "file", "path": str(folder / "alerts.jsonl")}}
    plain = {"state": str(state), "every": "1m", "models": {"m": {}}, "join": {"ttl": f"{ttl:.0f}s"}, "sinks": sinks}
    gap = {"metric": "k1", "window": "day", "segments": "each", "above": 0.1}
    full = {
        "segments": {"fields": ["country"]},
        "windows": {"recent": {"events": 10_000}, "day": DAY},
        "detectors": {"drift": {"arl": 1e6}},
        "rules": {"drift": {"alarm": "drift", "segments": "each"}, "gap": gap},
    }
    return plain | full if rich else plain | {"windows": {"day": DAY}, "rules": {"gap": {**gap, "segments": "all"}}}


@dataclass
class Load:
    """Predictions in the order of their times and labels for random open ones; the first ``spared`` get none, and expire."""

    spared: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    made: int = 0
    open: list[tuple[str, float]] = field(default_factory=list)
    outcomes: float = 0.0

    def predictions(self, n: int) -> dict[str, Any]:
        ids = [str(uuid.UUID(bytes=self.rng.bytes(16))) for _ in range(n)]
        p, t = self.rng.random(n), START + (self.made + np.arange(n)) / RATE
        skip = max(self.spared - self.made, 0)
        self.open += zip(ids[skip:], p.tolist()[skip:], strict=True)
        self.made += n
        return {"ids": ids, "p": p, "t": t, "segment": {"country": COUNTRIES[self.rng.integers(0, 50, n)]}}

    def labels(self, n: int) -> dict[str, Any]:
        ids, y = [], []
        for place in self.rng.integers(0, len(self.open) - n, n).tolist():
            (name, p), self.open[place] = self.open[place], self.open[-1]
            self.open.pop()
            ids.append(name[:-1] + name[-1:])  # a label comes with a text of its own
            y.append(float(self.rng.random() < p))
        self.outcomes += sum(y)
        return {"ids": ids, "y": np.array(y), "t": START + self.made / RATE}


def messages(columns: dict[str, Any]) -> list[bytes]:
    """The same as JSON, one event in each."""
    fields = {name: np.asarray(column).tolist() for name, column in columns.items() if name not in ("segment", "ids")}
    n = len(columns["ids"])
    rows = {name: column if isinstance(column, list) else [column] * n for name, column in fields.items()}
    rows |= {"id": columns["ids"]} | {name: column.tolist() for name, column in columns.get("segment", {}).items()}
    return [json.dumps(dict(zip(rows, row, strict=True))).encode() for row in zip(*rows.values(), strict=True)]


Step = Callable[[], Any]


def spared(wish: argparse.Namespace) -> int:
    """As many expire as come: those must never get a label."""
    return 2 * wish.events + 2_000


def steps(monitor: Monitor, load: Load, events: int, batch: int, payloads: bool) -> Iterator[list[Step]]:
    for _ in range(events // batch):
        new, old = load.predictions(batch), load.labels(batch)
        if payloads:
            sent, settled = messages(new), messages(old)
            yield [lambda sent=sent: monitor.take(sent), lambda settled=settled: monitor.take(settled)]
        else:
            yield [lambda new=new: monitor.predict_many(**new), lambda old=old: monitor.label_many(**old)]


def run(monitor: Monitor, load: Load, events: int, batch: int, payloads: bool = False) -> float:
    """Seconds of all steps; the making of the events is not in them."""
    seconds, before = 0.0, monitor.status()["models"][0]["predictions"]
    for some in steps(monitor, load, events, batch, payloads):
        begun = time.perf_counter()
        for step in some:
            step()
        seconds += time.perf_counter() - begun
    (account,) = monitor.status()["models"]
    assert account["predictions"]["joined"] - before["joined"] == events // batch * batch
    assert account["labels"]["joined"] == account["predictions"]["joined"] and not monitor.status()["unread"]
    return seconds


def opened(load: Load, config: dict[str, Any], n: int) -> Monitor:
    """A monitor with so many open predictions, warm."""
    monitor = Monitor(config)
    while load.made < n:
        monitor.predict_many(**load.predictions(min(50_000, n - load.made)))
    for _ in range(2):
        monitor.predict_many(**load.predictions(1_000))
        monitor.label_many(**load.labels(1_000))
    monitor.evaluate()
    gc.collect()
    gc.freeze()  # what is open is no garbage: a process of its own would do this too
    return monitor


def throughput(wish: argparse.Namespace, checks: Checks, console: Console, payloads: bool = False) -> None:
    table = Table("way", "store", "batch", "joined/s", "us each", title=f"{wish.open:,} open")
    bounds = {("memory", False): 250e3, ("memory", True): 100e3, ("sqlite", False): 60e3, ("sqlite", True): 60e3}
    for store in ("memory", "sqlite"):
        for rich in (True,) if payloads else (False, True):
            for batch in (1_000,) if payloads else (10_000, 1_000):
                with tempfile.TemporaryDirectory(dir=wish.folder) as name:
                    folder, n = Path(name), wish.open + spared(wish)
                    state = folder / "state.db" if store == "sqlite" else ":memory:"
                    load = Load(spared(wish))
                    monitor = opened(load, document(state, rich, n / RATE, folder), n)
                    seconds = run(monitor, load, wish.events, batch, payloads)
                    counted = monitor.snapshot("day", version="")
                    assert counted.count.sum() == monitor.status()["models"][0]["predictions"]["joined"]
                    assert abs(counted.columns[WY].sum() - load.outcomes) < 1e-6
                    monitor.close()
                    gc.unfreeze()
                way = ("JSON, " if payloads else "") + ("all that is usual" if rich else "one window")
                rate = wish.events / seconds
                table.add_row(way, store, f"{batch:,}", f"{rate:,.0f}", f"{1e6 / rate:.2f}")
                if batch == 10_000 or payloads:
                    low = 20e3 if payloads else bounds[store, rich]
                    checks.add(f"joined/s, {way}, {store}, batches of {batch:,}", rate, low, form=",.0f")
    console.print(table)


def columns(wish: argparse.Namespace, checks: Checks, console: Console) -> None:
    throughput(wish, checks, console)


def payloads(wish: argparse.Namespace, checks: Checks, console: Console) -> None:
    throughput(wish, checks, console, payloads=True)


def resident() -> float:
    """Bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * float(resource.getpagesize())


def aggregates_of(segments: int, detector: bool, windows: dict[str, Any]) -> tuple[Aggregates, list[str]]:
    detectors = {"detectors": {"drift": {"arl": 1e6}}} if detector else {"rules": {}}
    given = {"models": {"m": {}}, "segments": {"fields": ["s"], "cap": segments}, "windows": windows, **detectors}
    config = from_document(given)
    made = Aggregates(config.models[0], config.windows, config.detectors if detector else (), config.segments)
    names = [f"s={i}" for i in range(segments)]
    for name in names:
        made.place(name, 0.0)
    return made, names


def batch_of(rng: np.random.Generator, names: list[str], which: np.ndarray, t: float) -> Events:
    p, one = rng.random(which.size), np.ones(which.size)
    y = (rng.random(which.size) < p).astype(np.float64)
    segment = [names[i] for i in which.tolist()]
    return Events.alike(
        StreamKey(Pair, "m", "1"), [], t * one, p, y, one, segment, t * one, t * one, one.copy(), one.copy()
    )


def counting(wish: argparse.Namespace, checks: Checks, console: Console) -> None:
    for detector in (False, True):
        made, names = aggregates_of(wish.segments, detector, {"recent": RECENT, "day": DAY})
        rng, n = np.random.default_rng(0), wish.segments
        made.take(batch_of(rng, names, np.arange(n), START))
        batches = [batch_of(rng, names, rng.integers(0, n, 1_000), START + 400.0 * i) for i in range(200)]
        begun = time.perf_counter()
        for some in batches:
            made.take(some)
        rate = 200_000 / (time.perf_counter() - begun)
        place, plain = made.names.index(names[0]), Cumulative(EqualWidth(15))
        for some in batches:
            here = np.array([name == names[0] for name in some.segment])
            plain.update_many(some.p[here], some.y[here])
        assert made.snapshot_of("day", "1", 0, START + 80_000.0).count.sum() == 200_000 + n
        here = min(plain.snapshot().count.sum() + 1, RECENT["events"])
        assert made.snapshot_of("recent", "1", place, 0.0).count.sum() == here
        name = f"joined/s, counting in {n:,} segments{', detector' if detector else ''}"
        checks.add(name, rate, 200e3, form=",.0f")
        console.print(f"{name}: {rate:,.0f}")


def taken(window: dict[str, Any], detector: bool) -> float:
    """Resident bytes of full windows of 4,000 segments, by segment."""
    rng, n = np.random.default_rng(0), 4_000
    warm, names = aggregates_of(1, detector, {"w": window})
    warm.take(batch_of(rng, names, np.zeros(1, np.int64), START))
    gc.collect()
    before = resident()
    made, names = aggregates_of(n, detector, {"w": window})
    for some in range(4):
        made.take(batch_of(rng, names, np.arange(n), START + some))
    return (resident() - before) / n


def memory(wish: argparse.Namespace, checks: Checks, console: Console) -> None:
    hour, most = {"time": "1h"}, {"1,000 events": 44.0, "24 panes": 20.0, "60 panes": 44.0, "detector": 10.0}
    found: dict[str, float] = {}
    for name, window, detector in [
        ("1,000 events", RECENT, False),
        ("24 panes", DAY, False),
        ("60 panes", hour, False),
        ("detector", DAY, True),
    ]:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:  # nothing freed before is used again
            found[name] = fresh.submit(taken, window, detector).result() / 1e3
    found["detector"] -= found["24 panes"]
    for name, megabytes in found.items():
        console.print(f"{name}: {megabytes:.1f} MB per 1,000 segments")
        checks.add(f"MB per 1,000 segments, {name}", megabytes, 0.1, most[name], ".1f")


def evaluation(wish: argparse.Namespace, checks: Checks, console: Console) -> None:
    def rule(metric: str, window: str, above: float) -> dict[str, Any]:
        return {"metric": metric, "window": window, "segments": "each", "above": above}

    five = {"a": rule("k1", "recent", 0.9), "b": rule("k1", "day", 0.9), "c": rule("brier", "recent", 0.9)}
    five |= {"d": rule("k2_debiased", "day", 0.9), "drift": {"alarm": "drift", "segments": "each"}}
    n = wish.segments
    for audited in (False, True):
        with tempfile.TemporaryDirectory(dir=wish.folder) as folder:
            given: dict[str, Any] = {"state": ":memory:", "every": "1h", "models": {"m": {}}, "rules": five}
            given |= {"segments": {"fields": ["s"], "cap": n}, "windows": {"recent": RECENT, "day": DAY}}
            given |= {"detectors": {"drift": {"arl": 1e6}}}
            given |= {"sinks": {"file": {"type": "file", "path": f"{folder}/alerts.jsonl"}}}
            monitor = Monitor(given | ({"audit": f"{folder}/audit.jsonl"} if audited else {}))
            rng = np.random.default_rng(0)
            for i in range(110):
                which, p = rng.permutation(n), rng.random(n)
                ids, t = np.arange(i * n, (i + 1) * n), START + 10.0 * i
                monitor.predict_many(ids, p, t=t, segment={"s": which.astype(str)})
                monitor.label_many(ids, rng.random(n) < p, t=t)
            times = []
            for _ in range(5):
                begun = time.perf_counter()
                monitor.evaluate()
                times.append(time.perf_counter() - begun)
            if audited:
                lines = [json.loads(line) for line in Path(folder, "audit.jsonl").read_text().splitlines()]
                assert [line["rule"] for line in lines[-5:]] == list(five)
                assert all(set(line["count"]) == {110.0} for line in lines[-5:-1])
            monitor.close()
        name = f"ms to evaluate 5 rules, {n:,} segments{', audit' if audited else ''}"
        checks.add(name, 1e3 * min(times), 0.0, 250.0, ".0f")
        console.print(f"{name}: {1e3 * min(times):.0f}")


def restart(wish: argparse.Namespace, checks: Checks, console: Console) -> None:
    with tempfile.TemporaryDirectory(dir=wish.folder) as name:
        folder, load, n = Path(name), Load(spared(wish)), wish.open + spared(wish)
        config = document(folder / "state.db", True, n / RATE, folder)
        monitor = opened(load, config, n)
        run(monitor, load, wish.events, 10_000)
        begun = time.perf_counter()
        with monitor.store.transaction():
            monitor.journal.checkpoint()
        checkpoint = time.perf_counter() - begun
        run(monitor, load, wish.events // 2, 10_000)
        plain = monitor.aggregates["m"].to_plain()
        monitor.store.close()  # as after a kill: nothing is written whole
        gc.unfreeze()
        size = sum(path.stat().st_size for path in folder.glob("state.db*"))
        begun = time.perf_counter()
        again = Monitor(config)
        opening = time.perf_counter() - begun
        assert again.aggregates["m"].to_plain() == plain
        pending = again.status()["models"][0]["predictions"]["pending"]
        again.close()
    console.print(f"{pending:,} open: file {size / 1e6:.0f} MB, restart {opening:.2f} s, checkpoint {checkpoint:.3f} s")
    checks.add("MB of all files per million open", size / pending, 0.0, 200.0, ".0f")
    checks.add("seconds to restart", opening, 0.0, 10.0)
    checks.add("seconds of a checkpoint", checkpoint, 0.0, 1.0, ".3f")


def main() -> None:
    parts = {p.__name__: p for p in (columns, payloads, counting, memory, evaluation, restart)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--open", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--parts", default=",".join(parts))
    parser.add_argument("--folder", help="where files are made (default: the system's temporary folder)")
    wish = parser.parse_args()
    checks, console = Checks(), Console(width=110)
    for part in wish.parts.split(","):
        parts[part](wish, checks, console)
    console.print(checks.table())
    raise SystemExit(not checks.hold)


if __name__ == "__main__":
    main()
