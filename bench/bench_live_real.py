"""Four years of census predictions through `streamcal watch`: two streams, labels up to 90 days late, doubled, wrong, missing.

    PYTHONPATH=.:tests python bench/bench_live_real.py [--every 1]

Counters must be as planted, the error of each year that of the batch to 1e-12, also in the middle of the stream, where labels
that are not yet there are pending; and the drift alert must fire.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from live_employment import figures
from live_watch import lines
from rich.table import Table
from tables import Console
from test_live_real import watched


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--every", type=int, default=1, help="take every so many rows")
    asked = options.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stream = watched(folder, asked.every)
        seconds = time.perf_counter() - start
        found, alerts = figures(folder), lines(folder, "alerts.jsonl")
    fired = [alert for alert in alerts if alert["kind"] == "firing"]
    assert fired, "no drift alert"
    predictions, labels = found["accounts"]
    table = Table(
        "year", "joined", "ece", "first alert", title=f"{predictions.received:,} predictions, {seconds:.0f} s"
    )
    for segment in sorted(name for name in found if name not in ("accounts", "all")):
        said = [alert["at"] for alert in fired if alert["segment"] == segment]
        table.add_row(segment, f"{found[segment][0]:,.0f}", f"{found[segment][1]:.6f}", said[0] if said else "-")
    said = [alert["at"] for alert in fired if alert["segment"] == "all"]
    table.add_row("all", f"{found['all'][0]:,.0f}", f"{found['all'][1]:.6f}", said[0] if said else "-")
    console = Console(width=140)
    console.print(table)
    console.print(f"planted {dict(stream.planted)}")
    console.print(
        f"labels: {labels.duplicate:,} duplicate, {labels.corrected:,} corrected, {labels.conflicting:,} replaced"
    )
    console.print(f"predictions: {predictions.expired:,} expired, {predictions.pending:,} pending")


if __name__ == "__main__":
    main()
