"""Many events at a time: the sums of 15 bins from arrays, against numpy and three peers, in nanoseconds an event.

python bench/bench_batch.py [--events 10000000]      (peers: pip install "streamcal-engine[bench]")
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ThreadPoolExecutor

# one thread for everything but the line that says two; polars reads this when it is imported
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import boost_histogram as bh
import duckdb
import numpy as np
import polars as pl
from rich.table import Table
from sklearn.calibration import calibration_curve
from tables import Console
from workloads import calibrated, interleaved

from streamcal import Cumulative, EqualWidth, LogOdds, UniformMass, ece

BINS = 15


def by_numpy(p, y, w=None):
    """Count (or weight), summed claim and summed outcome per bin, the usual way."""
    bins = np.clip(np.ceil(p * BINS).astype(np.int64) - 1, 0, BINS - 1)
    if w is None:
        return [np.bincount(bins, v, minlength=BINS) for v in (None, p, y)]
    return [np.bincount(bins, v, minlength=BINS) for v in (w, w * p, w * y)]


def by_boost(p, y, w=None):
    axis = bh.axis.Regular(BINS, 0, 1)
    sums = []
    for v in (w, p if w is None else w * p, y if w is None else w * y):
        h = bh.Histogram(axis, storage=bh.storage.Double())
        h.fill(p, weight=v)
        sums.append(h.view(flow=False))
    return sums


def by_polars(p, y):
    frame = pl.DataFrame({"p": p, "y": y})
    bin = (pl.col("p") * BINS).ceil().cast(pl.Int64).clip(1, BINS) - 1
    table = frame.group_by(bin.alias("bin")).agg(pl.len().alias("n"), pl.sum("p"), pl.sum("y")).sort("bin")
    return [table[c].to_numpy() for c in ("n", "p", "y")]


def by_duckdb(connection, p, y):
    frame = pl.DataFrame({"p": p, "y": y})  # noqa: F841 - duckdb reads it by its name
    query = (
        f"select greatest(ceil(p * {BINS})::int, 1) - 1 as k, count(*), sum(p), sum(y) from frame group by k order by k"
    )
    table = connection.sql(query).fetchnumpy()
    return [table[c] for c in list(table)[1:]]


def tally(binning, p, y, w=None):
    window = Cumulative(binning)
    window.update_many(p, y, w)
    return window.cells[0, :-1]


def two_threads(p, y):
    half = p.size // 2
    windows = [Cumulative(EqualWidth(BINS)) for _ in range(2)]
    parts = [(p[:half], y[:half]), (p[half:], y[half:])]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda pair: pair[0].update_many(*pair[1]), zip(windows, parts, strict=True)))
    return (windows[0] + windows[1]).cells[0, :-1]


def check(p, y, w, connection) -> None:
    """Every contender must have the same sums before anyone is timed (edges apart, where the usual rule is wrong)."""
    want, cells = by_numpy(p, y), tally(EqualWidth(BINS), p, y)
    for name, got in {
        "streamcal": [cells[:, 0], cells[:, 3], cells[:, 4]],
        "two threads": list(two_threads(p, y)[:, [0, 3, 4]].T),
        "boost-histogram": by_boost(p, y),
        "polars": by_polars(p, y),
        "duckdb": by_duckdb(connection, p, y),
    }.items():
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=2.0, err_msg=name)
    weighted = tally(EqualWidth(BINS), p, y, w)
    for a, b in zip(by_numpy(p, y, w), (weighted[:, 1], weighted[:, 3], weighted[:, 4]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=2.0)
    for binning in (UniformMass(BINS), LogOdds(BINS)):
        np.testing.assert_allclose(tally(binning, p, y).sum(0), cells.sum(0), rtol=1e-9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    n = parser.parse_args().events
    p, y = calibrated(n)
    rng = np.random.default_rng(1)
    real, w = rng.random(n), rng.random(n) * 2.0
    in_order, constant = np.sort(p), np.full(n, 0.37)
    connection = duckdb.connect()
    connection.execute("set threads to 1")
    check(p, y, w, connection)
    rows = {
        "floor: np.sum(p), np.sum(y)": lambda: (np.sum(p), np.sum(y)),
        "streamcal, 0/1 outcomes": lambda: tally(EqualWidth(BINS), p, y),
        "streamcal, 0/1 outcomes, sorted p": lambda: tally(EqualWidth(BINS), in_order, y),
        "streamcal, 0/1 outcomes, constant p": lambda: tally(EqualWidth(BINS), constant, y),
        "streamcal, 0/1 outcomes, two threads": lambda: two_threads(p, y),
        "streamcal, real outcomes": lambda: tally(EqualWidth(BINS), p, real),
        "streamcal, weighted": lambda: tally(EqualWidth(BINS), p, y, w),
        "streamcal, uniform-mass grid": lambda: tally(UniformMass(BINS), p, y),
        "streamcal, log-odds grid": lambda: tally(LogOdds(BINS), p, y),
        "numpy: ceil, clip, 3 bincount": lambda: by_numpy(p, y),
        "numpy, weighted": lambda: by_numpy(p, y, w),
        "boost-histogram, 3 fills": lambda: by_boost(p, y),
        "polars, 1 thread": lambda: by_polars(p, y),
        "duckdb, 1 thread": lambda: by_duckdb(connection, p, y),
    }
    seconds = interleaved(rows, repeat=5)
    reference = {"streamcal, weighted": seconds["numpy, weighted"]}
    table = Table(title=f"sums of {BINS} bins from {n:,} events")
    for column in ("what", "ns / event", "numpy / this"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, s in seconds.items():
        ratio = reference.get(name, seconds["numpy: ceil, clip, 3 bincount"]) / s
        table.add_row(name, f"{s / n * 1e9:.2f}", f"{ratio:.1f}")
    console = Console(width=100)
    console.print(table)
    pair = {"one": lambda: tally(EqualWidth(BINS), p, y), "two": lambda: two_threads(p, y)}
    one, two = interleaved(pair, repeat=15).values()
    console.print(f"two threads / one thread: {one / two:.2f} times as fast")
    against_scikit(console)


def against_scikit(console: Console) -> None:
    n = 1_000_000
    p, y = calibrated(n)
    true, predicted = calibration_curve(y, p, n_bins=BINS)
    count = np.bincount(np.clip(np.ceil(p * BINS).astype(int) - 1, 0, BINS - 1), minlength=BINS)
    assert abs(ece(p, y, BINS) - (count / n * np.abs(true - predicted)).sum()) < 1e-5
    contenders = {"ours": lambda: ece(p, y, BINS), "theirs": lambda: calibration_curve(y, p, n_bins=BINS)}
    ours, theirs = interleaved(contenders, repeat=15).values()
    console.print(
        f"ece of {n:,}: {ours * 1e3:.2f} ms; scikit-learn's calibration_curve {theirs * 1e3:.0f} ms, {theirs / ours:.0f} times"
    )


if __name__ == "__main__":
    main()
