"""One event at a time from Python, against River, and the size of a sliding window's state.

python bench/bench_update.py [--events 200000]
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.table import Table
from river import metrics, utils
from tables import Console
from workloads import calibrated, interleaved

from streamcal import Cumulative, EqualWidth, Fading, Sliding, Timed, Tumbling, ece

SIZE = 1000


def passes(p: list[float], y: list[int]) -> dict:
    """One pass over the stream per contender: each makes its object anew and returns it."""
    labels = [bool(v) for v in y]

    def streamcal(make):
        def run():
            window = make()
            update = window.update
            for a, b in zip(p, y, strict=True):
                update(a, b)
            return window

        return run

    def timed():
        window = Timed(EqualWidth(15), period=60.0)
        update = window.update
        for i, (a, b) in enumerate(zip(p, y, strict=True)):
            update(a, b, t=i * 0.001)
        return window

    def river(make):
        def run():
            metric = make()
            update = metric.update
            for a, b in zip(p, labels, strict=True):
                update(b, a)
            return metric

        return run

    return {
        "Cumulative": streamcal(lambda: Cumulative(EqualWidth(15))),
        f"Sliding({SIZE})": streamcal(lambda: Sliding(EqualWidth(15), SIZE)),
        f"Tumbling({SIZE})": streamcal(lambda: Tumbling(EqualWidth(15), SIZE)),
        f"Fading({SIZE})": streamcal(lambda: Fading(EqualWidth(15), SIZE)),
        "Timed(60 s)": timed,
        "Cumulative, log loss": streamcal(lambda: Cumulative(EqualWidth(15), loss="log")),
        "river LogLoss": river(metrics.LogLoss),
        f"river Rolling(LogLoss, {SIZE})": river(lambda: utils.Rolling(metrics.LogLoss(), SIZE)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    n = parser.parse_args().events
    p, y = calibrated(n)
    runs = passes(p.tolist(), y.astype(int).tolist())
    assert abs(runs["Cumulative"]().get("ece") - ece(p, y)) < 1e-12
    assert abs(runs[f"Sliding({SIZE})"]().get("ece") - ece(p[-SIZE:], y[-SIZE:])) < 1e-12
    loss = runs["Cumulative, log loss"]().get("log_loss")
    assert abs(loss - runs["river LogLoss"]().get()) < 1e-9
    seconds = interleaved(runs)
    table = Table(title=f"one update from Python, {n:,} events, nanoseconds")
    for column in ("what", "ns", "x river LogLoss", "x Rolling(LogLoss)"):
        table.add_column(column, justify="left" if column == "what" else "right")
    plain, rolling = seconds["river LogLoss"], seconds[f"river Rolling(LogLoss, {SIZE})"]
    for name, s in seconds.items():
        table.add_row(name, f"{s / n * 1e9:.0f}", f"{s / plain:.2f}", f"{s / rolling:.2f}")
    console = Console(width=100)
    console.print(table)
    for size in (1000, 100_000):
        window = Sliding(EqualWidth(15), size)
        window.update_many(np.full(2 * size, 0.5), np.zeros(2 * size))
        console.print(f"Sliding(EqualWidth(15), {size:,}): {len(window.to_bytes()) / size:.1f} bytes of state an event")


if __name__ == "__main__":
    main()
