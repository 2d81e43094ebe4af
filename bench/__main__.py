"""python bench [NAME] [--quick] [--write] [options of the workload]

Without a name: the table of workloads. Each runs in a process of its own, asserts its answer before it prints a time, and ends
with 1 if a figure misses its bound. --quick: small numbers, to see that it works; bounds are for the full ones. --write: put the
tables that were printed into bench/README.md, under the workload's name.
"""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

BENCH = Path(__file__).parent


@dataclass(frozen=True)
class Workload:
    """A script of this folder, what it measures, and the options of a quick run."""

    script: str
    what: str
    quick: str = ""


WORKLOADS = {
    "update": Workload("bench_update", "one update from Python, against River", "--events 5000"),
    "batch": Workload("bench_batch", "sums of 15 bins from arrays, against numpy and peers", "--events 200000"),
    "command": Workload("bench_command", "report and watch, start-up included", "--rows 100000 --events 100000"),
    "recalibrate": Workload(
        "bench_recalibrate", "fits of a million events, against peers", "--events 20000 --repeat 1"
    ),
    "paper": Workload("bench_paper", "the published figures of scaling-binning", "--repetitions 3"),
    "online": Workload(
        "bench_online", "online recalibrators: drift, adversaries, real forecasts", "--streams 1 --seeds 2"
    ),
    "river": Workload("bench_river", "River's classifiers before and after recalibration", "--orders 1 --most 300"),
    "river-cost": Workload("bench_river_cost", "what the River adapters cost", "--events 2000 --long 5000 --rounds 1"),
    "river-late": Workload("river_streams", "late labels: the served score, or the model asked again", "--seeds 1"),
    "river-intervals": Workload("river_late_regressors", "intervals of regressors with late labels", "--seeds 1"),
    "drift": Workload("bench_drift", "run lengths and delays of detectors, beside River's", "--quick"),
    "monitor": Workload("bench_monitor", "the join under load", "--open 5000 --events 5000 --batch 1000"),
    "load": Workload("bench_monitor_load", "a whole monitor under load", "--open 5000 --events 5000 --segments 200"),
    "alerts": Workload(
        "bench_monitor_quality", "false alerts and delays of a monitor", "--seeds 1 --days 5 --events 2000"
    ),
    "soak": Workload("bench_soak", "twenty million events: memory, files, sums", "--events 200000"),
    "sources": Workload("bench_feeds", "messages a second of each source", "--lines 20000 --messages 5000"),
    "kill": Workload("bench_kill", "killed with SIGKILL at random moments", "--kills 2 --ids 4000 --kinds file"),
    "employment": Workload("bench_live_real", "four years of real predictions as two streams", "--every 50"),
    "walks": Workload("walks", "through how many files and functions one event goes"),
}


def listed() -> Table:
    """The workloads."""
    table = Table("name", "what", title="python bench NAME [--quick] [--write]")
    for name, workload in WORKLOADS.items():
        table.add_row(name, workload.what)
    return table


def write(name: str, tables: str, command: str) -> None:
    """Replace what bench/README.md holds between the marks of this name."""
    readme = BENCH / "README.md"
    text = readme.read_text()
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if begin not in text:
        text += f"\n## {name}: {WORKLOADS[name].what}\n\n{begin}{end}\n"
    before, rest = text.split(begin, 1)
    after = rest.split(end, 1)[1]
    readme.write_text(f"{before}{begin}`{command}`, {dt.date.today()}.\n\n{tables}{end}{after}")


def run(name: str, options: list[str], keep: bool) -> int:
    """Run a workload in a process of its own; its exit code."""
    path = os.pathsep.join([str(BENCH.parent), str(BENCH.parent / "tests"), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        tables = Path(folder, "tables.md")
        env = os.environ | {"PYTHONPATH": path, "BENCH_TABLES": str(tables)}
        code = subprocess.run([sys.executable, BENCH / f"{WORKLOADS[name].script}.py", *options], env=env).returncode
        if keep and tables.exists():
            write(name, tables.read_text(), " ".join(["python bench", name, *options]))
    return code


def main(args: list[str]) -> int:
    if not args or args[0] not in WORKLOADS:
        Console().print(listed())
        return 0 if not args or args[0] in ("-h", "--help") else 2
    name, *options = args
    keep, quick = "--write" in options, "--quick" in options
    options = [option for option in options if option not in ("--write", "--quick")]
    return run(name, [*(WORKLOADS[name].quick.split() if quick else []), *options], keep)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
