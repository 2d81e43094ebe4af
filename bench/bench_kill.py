"""`streamcal watch` killed with SIGKILL at random moments of its work: what came of a planted stream, against the batch truth.

    PYTHONPATH=.:tests python bench/bench_kill.py [--kills 30] [--kinds file redis kafka] [--seed 0]

Two sources (predictions, and labels that are late, doubled, corrected, contradicting, of nobody, or rubbish) are written all
the while. At the end: counters and sums of every version and segment, the record, the dead letters, alerts and audit each
exactly once, and `streamcal replay` says the same. Anything else is an AssertionError that says where.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from live_watch import killed, lines
from rich.table import Table
from tables import Console


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--kills", type=int, default=30)
    options.add_argument("--ids", type=int, default=40_000)
    options.add_argument("--kinds", nargs="+", default=["file", "redis", "kafka"])
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    columns = ("source", "kills", "messages", "events", "evaluations", "alerts", "dead letters", "lost", "twice", "s")
    table = Table(*columns, title="killed with SIGKILL, then compared with the batch truth")
    for kind in asked.kinds:
        start, folder = time.perf_counter(), Path(tempfile.mkdtemp())  # it stays there for a look if something is wrong
        stream = killed(kind, folder, asked.kills, asked.ids, pause=0.025, seed=asked.seed, per_round=10)
        audit = {line["time"] for line in lines(folder, "audit.jsonl")}
        figures = (stream.count, sum(stream.objects.values()), len(audit))
        said = (len(lines(folder, "alerts.jsonl")), sum(stream.letters.values()), 0, 0)
        shutil.rmtree(folder)
        seconds = time.perf_counter() - start
        table.add_row(kind, str(asked.kills), *(f"{n:,}" for n in (*figures, *said)), f"{seconds:.0f}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
