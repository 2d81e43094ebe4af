"""The command from start to exit: rows a second, start-up included, and the most memory that was resident.

    python bench/bench_command.py [--rows 10000000] [--events 6000000] [--repeat 1]      (needs pyarrow: the extra arrow)

The data is made in a temporary folder, by a process of its own: on Linux a child inherits the peak memory of its parent.
Every run is asked for --json, so that its answer can be checked; text takes about as long.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from tables import Console

COMMAND = [sys.executable, "-c", "from streamcal.command.main import main; main()"]
CHUNK = 500_000
WINDOW = 10_000


@dataclass
class Run:
    """One child that ended: its seconds on the wall, its seconds of both cores, its peak in bytes, what it printed."""

    seconds: float
    cpu: float
    peak: int
    printed: str


# ---- the data: p with all digits of a float64, y 0 or 1


def make(form: str, path: Path, n: int, line: Connection) -> None:
    """Write n events, tell how many are done, and at the end what the answer must be. Runs in its own process."""
    import numpy as np
    from workloads import calibrated

    from streamcal import ece

    p, y = calibrated(n)
    p = p**1.1  # a little underconfident, so that there is an error to find
    write = {"csv": write_csv, "parquet": write_parquet, "jsonl": write_jsonl}[form]
    parts = [(p[i : i + CHUNK], y[i : i + CHUNK].astype(np.int8)) for i in range(0, n, CHUNK)]
    for done, _ in enumerate(write(path, parts), 1):
        line.send(min(done * CHUNK, n))
    line.send((ece(p, y), ece(p[:WINDOW], y[:WINDOW])))


def write_csv(path: Path, parts: list[Any]) -> Iterator[None]:
    import pyarrow as pa
    from pyarrow import csv

    with csv.CSVWriter(path, pa.schema({"p": pa.float64(), "y": pa.int8()})) as file:
        for p, y in parts:
            yield file.write_table(pa.table({"p": p, "y": y}))


def write_parquet(path: Path, parts: list[Any]) -> Iterator[None]:
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetWriter(path, pa.schema({"p": pa.float64(), "y": pa.int8()})) as file:
        for p, y in parts:
            yield file.write_table(pa.table({"p": p, "y": y}))


def write_jsonl(path: Path, parts: list[Any]) -> Iterator[None]:
    import msgspec

    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        for p, y in parts:
            pairs = zip(p.tolist(), y.tolist(), strict=True)
            yield file.write(encoder.encode_lines([{"p": a, "y": b} for a, b in pairs]))


def made(form: str, path: Path, n: int, progress: Progress) -> tuple[float, float]:
    """Have n events written; ece of all of them and of the first window."""
    task = progress.add_task(f"writing {form}", total=n)
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    maker = context.Process(target=make, args=(form, path, n, theirs))
    maker.start()
    theirs.close()
    while isinstance(news := mine.recv(), int):
        progress.update(task, completed=news)
    maker.join()
    return news


# ---- the runs


def run(arguments: list[str], piped: Path | None = None) -> Run:
    """Start the command, with `cat` in front of it if something is piped in, and wait for it."""
    with tempfile.TemporaryFile("w+") as out:
        start = time.perf_counter()
        cat = subprocess.Popen(["cat", piped], stdout=subprocess.PIPE) if piped else None
        child = subprocess.Popen([*COMMAND, *arguments], stdin=cat and cat.stdout, stdout=out)
        if cat and cat.stdout:
            cat.stdout.close()
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0 and not (cat and cat.wait()), f"streamcal {' '.join(arguments)} failed"
        out.seek(0)
        unit = 1 if sys.platform == "darwin" else 1024
        return Run(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * unit, out.read())


def check_report(printed: str, n: int, answer: tuple[float, float]) -> None:
    found = json.loads(printed)
    assert found["count"] == found["source"]["rows"] == n, found["source"]
    assert found["refused"] == found["source"]["bad"]["cells"] == 0, found["source"]
    assert abs(found["metrics"]["ece"]["value"] - answer[0]) < 1e-9, (found["metrics"]["ece"], answer)


def check_watch(printed: str, n: int, answer: tuple[float, float]) -> None:
    *windows, final = printed.splitlines()
    check_report(final, n, answer)
    counts = [json.loads(window)["count"] for window in windows]
    assert counts == [WINDOW] * (n // WINDOW) + ([n % WINDOW] if n % WINDOW else []), counts[-3:]
    assert abs(json.loads(windows[0])["metrics"]["ece"]["value"] - answer[1]) < 1e-9, answer


def measure(form: str, folder: Path, n: int, repeat: int, progress: Progress) -> Run:
    """The fastest of ``repeat`` runs over n events of a format; every one of them must give the right answer."""
    path = folder / f"events.{form}"
    answer = made(form, path, n, progress)
    task = progress.add_task(f"reading {form}", total=repeat)
    runs = []
    for _ in range(repeat):
        if form == "jsonl":
            runs.append(run(["watch", "-", "--window", str(WINDOW), "--json"], piped=path))
            check_watch(runs[-1].printed, n, answer)
        else:
            runs.append(run(["report", str(path), "--json"]))
            check_report(runs[-1].printed, n, answer)
        progress.advance(task)
    path.unlink()
    return min(runs, key=lambda r: r.seconds)


def start_up(folder: Path) -> Run:
    """One row, after the kernels are in the cache."""
    path = folder / "one.csv"
    path.write_text("p,y\n0.5,1\n")
    run(["warmup"])
    return run(["report", str(path), "--json"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of CSV and of Parquet")
    parser.add_argument("--events", type=int, default=6_000_000, help="of JSON Lines")
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    console = Console(width=100)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    jobs = {
        f"cat jsonl | streamcal watch - --window {WINDOW}": ("jsonl", given.events),
        "streamcal report csv (arrow)": ("csv", given.rows),
        "streamcal report parquet": ("parquet", given.rows),
    }
    with tempfile.TemporaryDirectory() as name, Progress(*columns, console=console, refresh_per_second=2) as progress:
        runs = {"start-up: streamcal report, one row": (1, start_up(Path(name)))}
        for what, (form, n) in jobs.items():
            runs[what] = n, measure(form, Path(name), n, given.repeat, progress)
    show(console, runs)


def show(console: Console, runs: dict[str, tuple[int, Run]]) -> None:
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert own < min(r.peak for _, r in runs.values()), "the bench itself is larger than its children"
    table = Table(title="the command, start-up included")
    for column in ("what", "rows", "s", "cpu s", "rows / s", "peak MB"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for what, (n, r) in runs.items():
        rate = f"{n / r.seconds:,.0f}" if n > 1 else ""
        table.add_row(what, f"{n:,}", f"{r.seconds:.2f}", f"{r.cpu:.2f}", rate, f"{r.peak / 1e6:.0f}")
    console.print(table)
    load = ", ".join(f"{v:.2f}" for v in os.getloadavg())
    console.print(f"load average {load} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
