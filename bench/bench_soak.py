"""A monitor that runs for long: does its memory stay flat, do its files stay small, does everything add up at the end?

    python bench/bench_soak.py [--events 20000000] [--batch 10000] [--folder DIR]

Predictions and labels by columns, through SQLite; 300 segments of different sizes of which 100 have sums of their own, and
whose traffic shifts all the time; two windows, a detector, three rules, an audit, an
evaluation each hour of the events. Labels come hours later, in another order; 3 % never come, 1 % come twice, 1 % are
corrected. The claims are right, so every alert is a false one. Reported: resident memory after each tenth of the events,
the bytes of the files, events a second.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from bench_monitor_quality import alarms_of, poisson_bound
from checks import Checks
from numpy.typing import NDArray
from tables import Console

from streamcal.monitor.monitor import Monitor

START, HOUR = 1_700_006_400.0, 3_600.0
SEGMENTS, CAP = 300, 100
NEVER, TWICE, CORRECTED = 0.03, 0.01, 0.01
MIX = 0x9E3779B97F4A7C15
Labels = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]


def config(folder: Path, ttl: float) -> dict[str, Any]:
    one = {"metric": "k1", "segments": "each", "above": 0.1}
    return {
        "state": str(folder / "state.db"),
        "audit": str(folder / "audit.jsonl"),
        "every": "1h",
        "models": {"m": {}},
        "join": {"ttl": f"{ttl:.0f}s", "hold": "1h"},
        "segments": {"fields": ["s"], "cap": CAP},
        "windows": {"recent": {"events": 1_000}, "day": {"time": "1d", "panes": 24}},
        "detectors": {"drift": {"arl": 1e6}},
        "rules": {
            "drift": {"alarm": "drift", "segments": "each"},
            "gap": {**one, "window": "day"},
            "lately": {**one, "window": "recent"},
        },
        "sinks": {"file": {"type": "file", "path": str(folder / "alerts.jsonl")}},
    }


def names(which: NDArray[np.int64]) -> list[str]:
    """Ids that look random."""
    return [f"{i * MIX & 0xFFFFFFFFFFFFFFFF:016x}" for i in which.tolist()]


@dataclass
class Planted:
    """What the stream holds, to be found in the counters."""

    predictions: int = 0
    labelled: int = 0
    twice: int = 0
    corrected: int = 0


@dataclass
class Source:
    """Batches of predictions, and of the labels that came meanwhile; ``late`` in batches is how late a label can be."""

    batch: int
    late: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    planted: Planted = field(default_factory=Planted)
    waiting: dict[int, list[Labels]] = field(default_factory=dict)

    def batches(self, number: int, seconds: float) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
        """A batch lasts so many seconds; after the last one all labels come that there are."""
        for k in range(number):
            i, p = np.arange(k * self.batch, (k + 1) * self.batch), self.rng.random(self.batch)
            t = START + seconds * (k + np.arange(self.batch) / self.batch)
            self.planted.predictions += self.batch
            s = (self.rng.zipf(1.3, self.batch) + 7 * k // 20) % SEGMENTS
            self.plan(k, i, (self.rng.random(self.batch) < p).astype(np.float64), seconds)
            made = {"ids": names(i), "p": p, "t": t, "segment": {"s": s.astype(str)}}
            yield made, self.due(k)
        for k in range(number, number + self.late + 2):
            yield {}, self.due(k)

    def plan(self, k: int, i: NDArray[np.int64], y: NDArray[np.float64], seconds: float) -> None:
        """When the labels of a batch come: at least a batch later, so behind their predictions."""
        chance = self.rng.random(i.size)
        wait = 1 + np.minimum(self.rng.exponential(self.late / 4, i.size), self.late - 1)
        known = chance >= NEVER
        self.planted.labelled += int(known.sum())
        twice, corrected = known & (chance < NEVER + TWICE), chance >= 1.0 - CORRECTED
        self.planted.twice += int(twice.sum())
        self.planted.corrected += int(corrected.sum())
        again = [(twice, y, 1), (corrected, 1.0 - y, 1)]
        for which, outcome, later in [(known, y, 0), *again]:
            batch = k + np.floor(wait).astype(np.int64) + later
            for b in np.unique(batch[which]).tolist():
                here = which & (batch == b)
                u = START + seconds * (b + self.rng.random(int(here.sum())))
                self.waiting.setdefault(b, []).append((i[here], outcome[here], u))

    def due(self, k: int) -> dict[str, Any] | None:
        if k not in self.waiting:
            return None
        i, y, u = (np.concatenate(column) for column in zip(*self.waiting.pop(k), strict=True))
        order = np.argsort(u, kind="stable")
        return {"ids": names(i[order]), "y": y[order], "t": u[order]}


def resident() -> float:
    """Bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * float(resource.getpagesize())


@dataclass
class Ran:
    """What was measured: seconds in the monitor, resident bytes after each tenth, and of the state's files, their peak."""

    seconds: float = 0.0
    memory: list[float] = field(default_factory=list)
    file: float = 0.0
    status: dict[str, Any] = field(default_factory=dict)
    planted: Planted = field(default_factory=Planted)
    audit: int = 0
    alarms: int = 0
    alerts: list[dict[str, Any]] = field(default_factory=list)


def soak(folder: Path, events: int, batch: int = 10_000, rate: float = 10.0) -> Ran:
    """About so many events (predictions and labels); ``rate`` predictions a second of stream time."""
    ran, seconds, number = Ran(), batch / rate, events // (2 * batch)
    late = max(min(int(20 * HOUR / seconds), number // 20), 1)
    source = Source(batch, late)
    ran.planted = source.planted
    with Monitor(config(folder, seconds * (late + 4))) as monitor:
        for k, (new, old) in enumerate(source.batches(number, seconds)):
            begun = time.perf_counter()
            if new:
                monitor.predict_many(**new)
            if old:
                monitor.label_many(**old)
            ran.seconds += time.perf_counter() - begun
            if k % (number // 10) == number // 10 - 1 and k < number:
                ran.memory.append(resident())
                ran.file = max(ran.file, sum(path.stat().st_size for path in folder.glob("state.db*")))
        monitor.advance(START + seconds * (number + 2 * late + 10))
        ran.status, ran.alarms = monitor.status(), alarms_of(monitor)
        sums = {name: monitor.snapshot("recent", segment=name).count.sum() for name in ("all", "other")}
    assert sums == {"all": 1_000, "other": 1_000}
    ran.audit = sum(1 for _ in (folder / "audit.jsonl").open("rb"))
    if (folder / "alerts.jsonl").exists():
        ran.alerts = [json.loads(line) for line in (folder / "alerts.jsonl").read_text().splitlines()]
    check(ran)
    return ran


def check(ran: Ran) -> None:
    """Everything that was planted is in the counters."""
    (account,) = ran.status["models"]
    predictions, labels, planted = account["predictions"], account["labels"], ran.planted
    assert predictions["received"] == planted.predictions
    assert predictions["joined"] == labels["joined"] - labels["corrected"] == planted.labelled
    assert predictions["expired"] == planted.predictions - planted.labelled and predictions["pending"] == 0
    assert labels["duplicate"] == planted.twice and labels["corrected"] == planted.corrected
    assert ran.status["segments"]["m"]["own"] == CAP and ran.status["segments"]["m"]["overflow"] > 0
    assert not ran.status["unread"] and not ran.status["trouble"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=20_000_000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--folder", help="where the files are made (default: the system's temporary folder)")
    wish = parser.parse_args()
    checks, console = Checks(), Console(width=110)
    with tempfile.TemporaryDirectory(dir=wish.folder) as folder:
        ran = soak(Path(folder), wish.events, wish.batch)
    labels = ran.status["models"][0]["labels"]["received"]
    events = ran.planted.predictions + labels
    tenths = ", ".join(f"{x / 1e6:.0f}" for x in ran.memory)
    console.print(f"{events:,} events in {ran.seconds:.0f} s: {events / ran.seconds:,.0f} a second")
    console.print(f"resident MB after each tenth: {tenths}; state's files at most {ran.file / 1e6:.0f} MB")
    console.print(f"{ran.audit:,} lines of audit; firing at the end: {len(ran.status['firing'])}")
    for alert in ran.alerts:
        console.print(alert["at"], alert["text"])
    promised = ran.planted.labelled / 1e6
    checks.add(f"alarms (claims are right; promised {promised:.1f})", ran.alarms, 0, poisson_bound(promised), ".0f")
    gaps = sum(alert["rule"] != "drift" for alert in ran.alerts)
    checks.add("alerts about k1", gaps, 0, 0, ".0f")
    checks.add("memory at the end, of that after a tenth", ran.memory[-1] / ran.memory[0], 0.0, 1.15)
    checks.add("events a second", events / ran.seconds, 60e3, form=",.0f")
    console.print(checks.table())
    raise SystemExit(not checks.hold)


if __name__ == "__main__":
    main()
