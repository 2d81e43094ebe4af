"""The join under load: joined events a second with a million predictions open, in memory and through SQLite; bytes on
disk.

    python bench/bench_monitor.py [--open 1000000] [--events 300000] [--batch 10000] [--ways columns,events] [--folder DIR]

The ids are random UUIDs. Every step is one batch of as many new predictions as labels for random open ones, in one
transaction, with a document of 100 kB beside them; time goes on, so predictions are forgotten at the same pace. What is
measured is the whole step: checks, join, commit, and the columns of what was joined. The sums of what came out are held
against the plan.

Ways: ``columns`` (arrays), ``events`` (objects, predictions first), ``mixed`` (objects, in random order), ``both``
(arrays; champion and challenger share each label, which then joins twice), ``classes`` (arrays; five probabilities),
``texts`` (arrays; the ids are not ASCII).
"""

from __future__ import annotations

import argparse
import gc
import resource
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table
from tables import Console

from streamcal.monitor.events import Events, Label, Prediction, Row, StreamKey
from streamcal.monitor.join.join import Join
from streamcal.monitor.store import Store

START = 1_700_000_000.0
RATE = 100.0  # predictions a second of stream time
DOCUMENT = bytes(100_000)
SEGMENT = "country=DE"
Step = Callable[[Join], list[Events]]


@dataclass
class Load:
    """Predictions in the order of their times, labels for random ones; the first ``spared`` get none, and expire."""

    spared: int
    way: str = "columns"
    seed: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.made = 0
        self.open: list[tuple[str, float]] = []
        self.total = 0.0
        self.versions = ("7", "8") if self.way == "both" else ("7",)

    def _name(self) -> str:
        return str(uuid.UUID(bytes=self.rng.bytes(16))) + ("é" if self.way == "texts" else "")

    def predictions(self, n: int) -> tuple[list[str], np.ndarray, np.ndarray]:
        p = self.rng.random(n)
        ids, t = [self._name() for _ in range(n)], START + (self.made + np.arange(n)) / RATE
        spared = max(self.spared - self.made, 0)
        self.open += zip(ids[spared:], p.tolist()[spared:], strict=True)
        self.made += n
        return ids, t, p

    def labels(self, n: int) -> tuple[list[str], np.ndarray, np.ndarray]:
        """For random open predictions, swapped out of the list; the outcome is 1 where p is at least 1/2."""
        ids, y = [], []
        for place in self.rng.integers(0, len(self.open) - n, n).tolist():
            (name, p), self.open[place] = self.open[place], self.open[-1]
            self.open.pop()
            ids.append(name[:-1] + name[-1:])  # a label comes with a text of its own
            y.append(float(p >= 0.5))
            self.total += p * len(self.versions)
        return ids, np.full(n, START + self.made / RATE), np.array(y)

    def opens(self, n: int) -> Step:
        """New predictions, as a step."""
        ids, t, p = self.predictions(n)
        if self.way in ("events", "mixed"):
            made = self.objects(Prediction, ids, t, p)
            return lambda join: join.feed(made)
        scores = np.stack([p, *[(1.0 - p) / 4] * 4], axis=1) if self.way == "classes" else p

        def step(join: Join) -> list[Events]:
            new = [
                Events.alike(StreamKey(Prediction, "credit", v), ids, t, scores, segment=[SEGMENT] * n)
                for v in self.versions
            ]
            return [joined for events in new for joined in join.feed(events)]

        return step

    def objects(self, kind: type[Row], *columns: list[str] | np.ndarray) -> list[Row]:
        ids, t, value = (list(column) if isinstance(column, list) else column.tolist() for column in columns)
        rest = (1.0, SEGMENT) if kind is Prediction else ()
        return [kind("credit", "7", *row, *rest) for row in zip(ids, t, value, strict=True)]

    def settles(self, n: int) -> Step:
        """Labels, as a step."""
        ids, t, y = self.labels(n)
        version = None if self.way == "both" else "7"
        return lambda join: join.feed(Events.alike(StreamKey(Label, "credit", version), ids, t, y=y))

    def steps(self, events: int, batch: int) -> Iterator[list[Step]]:
        for _ in range(events // batch):
            if self.way in ("events", "mixed"):
                old, new = self.labels(batch), self.predictions(batch)  # so none comes before its prediction
                made = self.objects(Prediction, *new) + self.objects(Label, *old)
                order = self.rng.permutation(len(made)) if self.way == "mixed" else range(len(made))
                mixed = [made[i] for i in order]
                yield [lambda join, mixed=mixed: join.feed(mixed)]
            else:
                yield [self.opens(batch), self.settles(batch)]


def fill(join: Join, load: Load, n: int) -> None:
    """Open so many predictions."""
    while load.made < n:
        load.opens(min(50_000, n - load.made))(join)


def run(store: Store, load: Load, join: Join, events: int, batch: int) -> tuple[float, float]:
    """Seconds of all steps on the wall, and of the processor; the making of the events is not in them."""
    seconds, busy, joined, total = 0.0, 0.0, 0, 0.0
    for steps in load.steps(events, batch):
        start, begun = time.perf_counter(), time.process_time()
        with store.transaction():
            for step in steps:
                for part in step(join):
                    columns = part.p, part.y, part.w, part.sign, part.moment, part.segment
                    joined += len(part)
                    total += float(columns[0].reshape(len(part), -1)[:, 0].sum())
            store.put("sums", DOCUMENT)
        seconds += time.perf_counter() - start
        busy += time.process_time() - begun
    assert join.predictions.expired > 0.8 * events
    assert joined == events // batch * batch * len(load.versions) == join.predictions.joined == join.labels.joined
    assert abs(total - load.total) <= 1e-9 * total
    assert join.predictions.adds_up and join.labels.adds_up
    return seconds, busy


def on_disk(path: Path) -> float:
    """Bytes of the file when all of its log has been taken over."""
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return float(path.stat().st_size)


def labelled_on_disk(path: Path, load: Load, join: Join) -> float:
    """Bytes that a label adds to the file, measured by giving 100,000 to what is open, or all there are."""
    before, n = on_disk(path), min(100_000, len(load.open) // 2)
    load.settles(n)(join)
    return (on_disk(path) - before) / n / len(load.versions)


def resident() -> float:
    """Bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * float(resource.getpagesize())


def measure(wish: argparse.Namespace, way: str, name: str, folder: Path) -> list[str]:
    """One row of the table."""
    filled = wish.open + wish.events  # as many are labelled or expire as come, so --open of them wait at the end
    ttl, path = filled / RATE, folder / f"{way}.db"
    before = resident()
    store = Store() if name == "memory" else Store(path)
    load, join = Load(wish.events, way), Join(store, ttl=ttl)
    fill(join, load, filled)
    taken = resident() - before - 72.0 * len(load.open)  # the load's own list; ids and p belong to the join
    gc.freeze()  # what is open is no garbage: a process of its own would do this too
    size = on_disk(path) if name == "sqlite" else 0.0
    seconds, busy = run(store, load, join, wish.events, wish.batch)
    versions, accounts, opening, label = len(load.versions), join.counters(), 0.0, 0.0
    pending, n = join.predictions.pending, wish.events // wish.batch * wish.batch * versions
    if name == "sqlite":
        store.close()
        start = time.perf_counter()
        store = Store(path)
        join = Join(store, ttl=ttl)
        opening = time.perf_counter() - start
        assert join.counters() == accounts
        label = labelled_on_disk(path, load, join)
    store.close()
    gc.unfreeze()
    rates = [f"{n / seconds:,.0f}", f"{seconds / n * 1e6:.2f}", f"{busy / n * 1e6:.2f}", f"{pending:,}"]
    sizes = [f"{size / filled / versions:.0f}", f"{label:.0f}", f"{taken / filled / versions:.0f}", f"{opening:.2f}"]
    return [way, name, *rates, *sizes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--open", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--ways", default="columns,events")
    parser.add_argument("--stores", default="memory,sqlite")
    parser.add_argument("--folder", help="where the file is made (default: the system's temporary folder)")
    wish = parser.parse_args()
    table = Table("way", "store", "joined/s", "us each", "us of CPU", "open", "file B", "label B", "memory B", "open s")
    with tempfile.TemporaryDirectory(dir=wish.folder) as folder:
        for way in wish.ways.split(","):
            for name in wish.stores.split(","):
                gc.collect()
                table.add_row(*measure(wish, way, name, Path(folder)))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
