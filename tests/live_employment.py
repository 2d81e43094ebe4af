"""Four years of who is employed, as two streams: predictions, and their labels 1 to 90 days later, as untidy as in life.

The data are read from the files of nannyml by path; who asks for them is skipped where they are not.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DAY = 86_400.0
BEGIN = {2015: 1_420_070_400.0, 2016: 1_451_606_400.0, 2017: 1_483_228_800.0, 2018: 1_514_764_800.0}
TTL = 100 * DAY
CONFIG = """
state = "state.db"
audit = "audit.jsonl"
every = "1d"
[models.employment]
[join]
ttl = "100d"
ahead = "100d"
hold = "20d"
[segments]
fields = ["year"]
[windows.ever]
time = "3650d"
panes = 2
by = "prediction"
[detectors.drift]
arl = 1e6
[rules.drift]
alarm = "drift"
[rules.drift-of-year]
alarm = "drift"
segments = "each"
[sinks.file]
type = "file"
path = "alerts.jsonl"
[sources.predictions]
type = "file"
path = "predictions.jsonl"
[sources.labels]
type = "file"
path = "labels.jsonl"
"""


def employment(every: int = 1) -> dict[str, np.ndarray]:
    """Columns year, p, y of every so many rows, in the order of years."""
    pq = pytest.importorskip("pyarrow.parquet")
    spec = find_spec("nannyml")  # found, never imported
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("nannyml is not here: pip install --no-deps nannyml==0.13.1 (only its data is read)")
    folder = Path(spec.submodule_search_locations[0]) / "datasets" / "data"
    old = pq.read_table(folder / "employment_MA_reference.pq")
    new = pq.read_table(folder / "employment_MA_analysis.pq")
    outcome = pq.read_table(folder / "employment_MA_analysis_target.pq")
    known = dict(zip(outcome["id"].to_pylist(), outcome["employed"].to_pylist(), strict=True))
    y = np.array([*old["employed"].to_pylist(), *(known[i] for i in new["id"].to_pylist())], float)
    p, year = (
        np.concatenate([old[c].to_numpy(), new[c].to_numpy()]).astype(float) for c in ("predicted_probability", "year")
    )
    order = np.argsort(year, kind="stable")[::every]
    return {"year": year[order].astype(int), "p": p[order], "y": y[order]}


@dataclass
class Streams:
    """Lines of both files by the time at which they come, and what they are made of."""

    predictions: list[tuple[float, str]]
    labels: list[tuple[float, str]]
    t: np.ndarray
    p: np.ndarray
    y: np.ndarray
    year: np.ndarray
    first: np.ndarray  # time of the first label, inf where there is none
    planted: Counter[str]


def streams(data: dict[str, np.ndarray], seed: int = 0) -> Streams:
    """5 % of the labels come twice, 1 % are wrong at first, 2 % never come; all of them shuffled within some days."""
    rng, n = np.random.default_rng(seed), len(data["p"])
    start = np.array([BEGIN[y] for y in data["year"].tolist()])
    within = np.concatenate([np.arange(k) / k for k in np.unique(data["year"], return_counts=True)[1]])
    t = np.round(start + within * 364 * DAY, 3)
    u = np.round(t + rng.uniform(1.0, 90.0, n) * DAY, 3)
    fate = rng.choice(["twice", "corrected", "never", "once"], n, p=[0.05, 0.01, 0.02, 0.92])
    labels: list[tuple[float, str]] = []
    for i, (what, at, y) in enumerate(zip(fate.tolist(), u.tolist(), data["y"].astype(int).tolist(), strict=True)):
        for late, outcome in _labels(what, y):
            labels.append((at + late, json.dumps({"id": i, "y": outcome, "t": at + late})))
    shuffled = np.argsort([at for at, _ in labels] + rng.uniform(0.0, 5.0 * DAY, len(labels)))
    labels = [labels[k] for k in shuffled.tolist()]
    rows = zip(data["p"].tolist(), t.tolist(), data["year"].tolist(), strict=True)
    predictions = [(at, json.dumps({"id": i, "p": p, "t": at, "year": y})) for i, (p, at, y) in enumerate(rows)]
    u[fate == "never"] = math.inf
    return Streams(predictions, labels, t, data["p"], data["y"], data["year"], u, Counter(fate.tolist()))


def _labels(what: str, y: int) -> list[tuple[float, int]]:
    """Delays after the first label, and outcomes."""
    if what == "never":
        return []
    return [(0.0, 1 - y), (4 * DAY, y)] if what == "corrected" else [(0.0, y), (DAY, y)][: 1 + (what == "twice")]


def write(folder: Path, stream: Streams, begin: float, end: float) -> None:
    """Append what comes in a span of time."""
    for name, said in (("predictions.jsonl", stream.predictions), ("labels.jsonl", stream.labels)):
        with open(folder / name, "a") as file:
            file.writelines(line + "\n" for at, line in said if begin <= at < end)


def due(t: np.ndarray) -> np.ndarray:
    """When a prediction without a label expires."""
    step = math.ceil(TTL / 64)
    return ((t + TTL) // step + 1.0) * step


def plain_ece(p: np.ndarray, y: np.ndarray) -> float:
    """15 bins of equal width, (a, b]."""
    bins = (p[:, None] > np.arange(1, 15)[None, :] / 15).sum(1)
    return float(np.abs(np.bincount(bins, y - p)).sum() / len(p))


def figures(folder: Path) -> dict[str, Any]:
    """Counts and ECE of each year and of all, from the state file; and the accounts."""
    import os

    from streamcal.metrics import ece
    from streamcal.monitor.monitor import Monitor

    here = Path.cwd()
    os.chdir(folder)
    try:
        monitor = Monitor("c.toml")
    finally:
        os.chdir(here)
    found: dict[str, Any] = {}
    names = monitor.aggregates["employment"].names
    for segment in [name for name in names if name != "other"]:
        s = monitor.snapshot("ever", segment=segment)
        found[segment] = (float(s.count.sum()), float(ece(s)), float((s.mean_y * s.weight)[s.weight > 0].sum()))
    (found["accounts"],) = monitor.store.counters().values()
    monitor.store.close()
    return found
