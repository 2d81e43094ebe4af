"""Online recalibrators: four streams that drift or do not, adversaries, patches, quantiles, real forecasts, and the cost.

    python bench/bench_online.py [--data FOLDER] [--streams 10] [--seeds 20]

FOLDER holds games_nba_mlb.npz ({nba,mlb}_games_{prob,outcome}: forecasts of fivethirtyeight, from
https://github.com/fivethirtyeight/checking-our-work-data, CC BY 4.0) and soccer_odds.npz (probs (n, 3), labels: bookmakers' odds,
https://github.com/iredchuk/soccer-bookmaker-odds, MIT), each in the order of time; the employment forecasts are read from an
installed nannyml (only its data). What is not there is left out. Exits with 1 if a figure misses its bound.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from checks import Checks
from online_adversaries import ADVERSARIES, foil, game
from online_streams import STREAMS
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tables import Console

from streamcal import EqualWidth, Grid, PlattScaling, Sliding, UniformMass, ece, k2
from streamcal.confidence import anytime_radius
from streamcal.recalibrate import (
    AlmostOneStepAhead,
    Calibeating,
    Chain,
    FosterForecaster,
    Guard,
    MultivalidQuantile,
    Online,
    OnlineBeta,
    OnlineHistogram,
    OnlineIsotonic,
    OnlineMarginal,
    OnlinePatching,
    OnlinePlatt,
    QuantileTracker,
    Refit,
)

Array = np.ndarray
SKIP = 1000  # events before the errors of a stream are taken
HORIZONS = (1000, 8000, 64_000)
COLUMNS = {
    "raw": None,
    "Platt, first 1,000": None,
    "OnlinePlatt": lambda: OnlinePlatt(),
    "forgetting .999": lambda: OnlinePlatt(forgetting=0.999),
    "tracking": lambda: Chain(OnlinePlatt(), Calibeating(EqualWidth(10))),
    "hedging": lambda: Chain(OnlinePlatt(), Calibeating(EqualWidth(10), method="hedging")),
    "guard": lambda: Guard(
        [OnlinePlatt(), OnlinePlatt(forgetting=0.999), Chain(OnlinePlatt(), Calibeating(EqualWidth(10)))]
    ),
}
EXPERTS = ("raw", "OnlinePlatt", "forgetting .999", "tracking")


def brier(q: Array, y: Array) -> float:
    return float(((q - y) ** 2).mean())


def log_loss(q: Array, y: Array) -> float:
    """Summed, of forecasts read as at least 1e-15 from 0 and 1 as the guard does."""
    inner = np.clip(q, 1e-15, 1.0 - 1e-15)
    return float(-(y * np.log(inner) + (1.0 - y) * np.log1p(-inner)).sum())


def forecasts(name: str, p: Array, y: Array) -> Array:
    if name == "raw":
        return p
    if name == "Platt, first 1,000":
        return PlattScaling().fit(p[:SKIP], y[:SKIP]).predict(p)
    return COLUMNS[name]().run(p, y)


def measure_streams(seeds: int, progress: Progress) -> dict[str, Array]:
    """(column, ECE and Brier) of each stream, mean over seeds."""
    found, task = {}, progress.add_task("streams", total=seeds * len(STREAMS))
    for stream, make in STREAMS.items():
        total = np.zeros((len(COLUMNS), 2))
        for seed in range(seeds):
            p, y = make(seed)
            for i, name in enumerate(COLUMNS):
                q = forecasts(name, p, y)[SKIP:]
                total[i] += ece(q, y[SKIP:], 10), brier(q, y[SKIP:])
            progress.advance(task)
        found[stream] = total / seeds
    return found


def report_streams(found: dict[str, Array], checks: Checks, console: Console) -> None:
    table = Table("stream", *COLUMNS, title=f"ECE (10 bins) / Brier score after {SKIP:,} of 20,000 events")
    for stream, values in found.items():
        table.add_row(stream, *(f"{e:.4f} / {b:.4f}" for e, b in values))
    console.print(table)
    place = {name: i for i, name in enumerate(COLUMNS)}
    checks.add(
        "abrupt drift: ECE of forgetting .999", found["abrupt drift"][place["forgetting .999"], 0], 0, 0.015, ".4f"
    )
    checks.add("not Platt's shape: ECE of tracking", found["not Platt's shape"][place["tracking"], 0], 0, 0.015, ".4f")
    for stream, values in found.items():
        best = min(values[place[name], 1] for name in EXPERTS)
        checks.add(
            f"{stream}: Brier of the guard over its best expert", values[place["guard"], 1] - best, -1, 0.003, ".4f"
        )


def regret(p: Array, y: Array) -> float:
    """Log loss of OnlinePlatt over that of the best fixed map of its family, in nats."""
    edge = math.log(0.99 / 0.01)
    z = np.clip(np.log(p) - np.log1p(-p), -edge, edge)
    beyond = np.log(p) - np.log1p(-p) - z
    theta = np.array([1.0, 0.0])
    x = np.stack([z, np.ones_like(z)])
    for _ in range(50):
        q = 1.0 / (1.0 + np.exp(-(theta @ x + beyond)))
        step = np.linalg.solve((x * (q * (1.0 - q))) @ x.T, x @ (q - y))
        theta = theta - step
    return log_loss(OnlinePlatt().run(p, y), y) - log_loss(1.0 / (1.0 + np.exp(-(theta @ x + beyond))), y)


def report_regret(seeds: int, checks: Checks, progress: Progress) -> None:
    task, total = progress.add_task("regret", total=seeds), 0.0
    for seed in range(seeds):
        p, y = STREAMS["iid too extreme"](seed)
        total += regret(p[:10_000], y[:10_000])
        progress.advance(task)
    checks.add("OnlinePlatt: regret to the best fixed map, 10,000 events, nats", total / seeds, -math.inf, 25, ".1f")


def k1_by_value(q: Array, y: Array) -> float:
    values, place = np.unique(q, return_inverse=True)
    return float(np.abs(np.bincount(place, y - q, values.size)).sum() / q.size)


def report_adversaries(seeds: int, checks: Checks, console: Console, progress: Progress) -> None:
    table = Table("adversary", *(f"T = {t:,}" for t in HORIZONS), "slope", title="FosterForecaster: K1, mean of seeds")
    table.add_row("bound 1.5 T^(-1/3)", *(f"{1.5 * t ** (-1 / 3):.4f}" for t in HORIZONS), "-0.333")
    task = progress.add_task("adversaries", total=len(ADVERSARIES) * len(HORIZONS) * seeds)
    for adversary in ADVERSARIES:
        means = []
        for t in HORIZONS:
            values = []
            for seed in range(seeds):
                values.append(
                    k1_by_value(*game(FosterForecaster(round(t ** (1 / 3)), seed), adversary, np.full(t, 0.5)))
                )
                progress.advance(task)
            means.append(float(np.mean(values)))
            checks.add(f"Foster, {adversary}, T = {t:,}: K1", means[-1], 0, 1.5 * t ** (-1 / 3), ".4f")
        slope = float(np.polyfit(np.log(HORIZONS), np.log(means), 1)[0])
        checks.add(f"Foster, {adversary}: slope", slope, -0.45, -0.30)
        table.add_row(adversary, *(f"{m:.4f}" for m in means), f"{slope:.3f}")
    foils = [k1_by_value(*foil(round(t ** (1 / 3)), t)) for t in HORIZONS]
    table.add_row("foil: running means without chance", *(f"{v:.4f}" for v in foils), "")
    checks.add("foil: K1 at T = 64,000 (about a half)", foils[-1], 0.45, 0.6, ".4f")
    console.print(table)
    ahead = AlmostOneStepAhead(1000)
    game(ahead, "expectation", np.full(1_000_000, 0.5))
    checks.add("AlmostOneStepAhead, T = 1e6: distance to calibration", ahead.shadow_distance, 0, 2001, ".0f")


def three_levels(seed: int) -> tuple[Array, Array]:
    """Calibrated forecasts of five levels, of which .2, .7 and .8 are off from 20,000 on; .2 and .7 until 60,000."""
    rng, n = np.random.default_rng(seed), 100_000
    p, t = rng.choice([0.2, 0.4, 0.6, 0.7, 0.8], n), np.arange(n)
    truth = p.copy()
    for level, rate, last in ((0.2, 0.5, 60_000), (0.7, 0.4, 60_000), (0.8, 0.5, n)):
        truth[(p == level) & (t >= 20_000) & (t < last)] = rate
    return p, (rng.random(n) < truth).astype(float)


def report_patching(checks: Checks, console: Console) -> None:
    """alpha: what the confidence radius leaves on three levels of five, and the noise of five means."""
    size = 10_000
    alpha = 0.6 * anytime_radius(size / 5, 2 * math.log(21 / 0.05)) ** 2 + 5 / (4 * size)
    p, y = three_levels(0)
    patching, over = OnlinePatching(alpha=alpha, window=Sliding(Grid(20), size)), []
    for i in range(0, p.size, 100):
        patching.run(p[i : i + 100], y[i : i + 100])
        over += [i + 100] if patching.k2 > alpha else []
    console.print(f"{patching}: .2, .7 and .8 go wrong at 20,000, .2 and .7 are right again at 60,000")
    for patch in patching.history():
        console.print(f"  {patch}", highlight=False)
    console.print(f"  live at the end: {patching.patches}", highlight=False)
    late = [t for t in over if 23_000 < t <= 60_000 or t > 63_000]
    checks.add("patching: looks at which K2 > alpha, 3,000 events after a change or later", len(late), 0, 0, ".0f")
    named = {patch.level for patch in patching.history()}
    checks.add("patching: levels in the history (the three that were planted)", len(named), 3, 3, ".0f")
    checks.add("patching: of which planted", len(named & {0.2, 0.7, 0.8}), 3, 3, ".0f")
    checks.add("patching: live at the end", len(patching.patches), 1, 1, ".0f")
    calibrated = np.random.default_rng(1)
    p, rises = calibrated.random((5, 100_000)), []
    for row in p:
        y = (calibrated.random(row.size) < row).astype(float)
        rises.append(brier(OnlinePatching(alpha=0.0, window=Sliding(Grid(20), size)).run(row, y), y) - brier(row, y))
    limit = 20 / (6 * 100_000) + 2 * float(np.std(rises, ddof=1)) / math.sqrt(5)
    checks.add("patching, calibrated stream: rise of Brier, 1e-6", 1e6 * float(np.mean(rises)), -math.inf, 1e6 * limit)


def report_quantiles(checks: Checks, console: Console) -> None:
    n = 20_000
    table = Table(
        "stream", "method", "coverage", "width", "|coverage - .9| sqrt(n), worst group", title=f"quantile .9, T = {n:,}"
    )
    for stream, bound in (("iid", 0.01), ("drift", 0.015)):
        rng = np.random.default_rng(0)
        group = rng.integers(0, 2, n)
        scale = (0.1 + 0.2 * group) * (1.0 + (np.arange(n) / n if stream == "drift" else 0.0))
        scores = np.abs(rng.normal(size=n)) * scale
        base = np.zeros(n)
        groups = np.stack([np.ones(n, bool), group == 1], 1)
        multivalid = MultivalidQuantile(0.9, m=40, groups=2, low=0.0, high=2.0)
        made = {
            "multivalid": multivalid.run(base, scores, groups=groups),
            "tracker": QuantileTracker(0.9, lr=0.02).run(base, scores),
        }
        for name, q in made.items():
            covered = scores <= q
            worst = max(abs(covered[group == g].mean() - 0.9) * math.sqrt((group == g).sum()) for g in (0, 1))
            table.add_row(stream, name, f"{covered.mean():.4f}", f"{q.mean():.4f}", f"{worst:.2f}")
            if name == "multivalid":
                checks.add(f"multivalid, {stream}: |coverage - .9|", abs(covered.mean() - 0.9), 0, bound, ".4f")
                checks.add(f"multivalid, {stream}: worst group", worst, 0, 3.5)
    console.print(table)


def employment() -> tuple[Array, Array] | None:
    """Forecasts and outcomes of 2015 to 2018 in the order of time, or None where nannyml is not installed."""
    spec = find_spec("nannyml")
    if spec is None or not spec.submodule_search_locations:
        return None
    import pyarrow.parquet as pq

    folder = Path(spec.submodule_search_locations[0]) / "datasets" / "data"
    read = lambda name, *columns: pq.read_table(folder / f"employment_MA_{name}.pq", columns=list(columns)).to_pydict()  # noqa: E731
    old = read("reference", "id", "year", "predicted_probability", "employed")
    new = read("analysis", "id", "year", "predicted_probability")
    target = dict(zip(*read("analysis_target", "id", "employed").values(), strict=True))
    new["employed"] = [target[i] for i in new["id"]]
    year, p, y = (np.array(old[c] + new[c], dtype=float) for c in ("year", "predicted_probability", "employed"))
    order = np.argsort(year, kind="stable")
    return p[order], y[order]


def real_streams(folder: Path | None) -> dict[str, tuple[Array, Array]]:
    found = {}
    if folder and (folder / "games_nba_mlb.npz").is_file():
        with np.load(folder / "games_nba_mlb.npz") as f:
            for league in ("nba", "mlb"):
                found[league.upper()] = (
                    f[f"{league}_games_prob"].astype(float),
                    f[f"{league}_games_outcome"].astype(float),
                )
    jobs = employment()
    return {**found, **({"employment": jobs} if jobs else {})}


def report_real(folder: Path | None, checks: Checks, console: Console) -> None:
    columns = (
        "stream",
        "events",
        "forecast",
        "log loss",
        "Brier",
        "ECE15",
        "debiased k2, 1e-4",
        "guard's excess, nats",
    )
    table = Table(*columns, title="real forecasts, each made before its outcome was seen")
    for name, (p, y) in real_streams(folder).items():
        guard = Guard()
        made = {"raw": p, "OnlinePlatt": OnlinePlatt().run(p, y), "guard": guard.run(p, y)}
        error = {}
        for forecast, q in made.items():
            error[forecast] = k2(q, y, binning=UniformMass(15), debias=True)
            excess = f"{log_loss(q, y) - log_loss(p, y):+.1f}" if forecast == "guard" else ""
            numbers = (log_loss(q, y) / p.size, brier(q, y), ece(q, y), 1e4 * error[forecast])
            table.add_row(name, f"{p.size:,}", forecast, *(f"{v:.4f}" for v in numbers), excess)
        over = log_loss(made["guard"], y) - log_loss(p, y)
        if name == "MLB":
            checks.add("MLB: guard's log loss over the raw one's (at most ln 4)", over, -math.inf, math.log(4))
        else:
            checks.add(f"{name}: guard's log loss under the raw one's, nats", -over, 0)
            checks.add(f"{name}: fall of debiased k2, 1e-4", 1e4 * (error["raw"] - error["guard"]), 0)
    if table.row_count:
        console.print(table)
    if folder and (folder / "soccer_odds.npz").is_file():
        report_soccer(folder / "soccer_odds.npz", checks, console)


def report_soccer(path: Path, checks: Checks, console: Console) -> None:
    with np.load(path) as f:
        probs, labels = f["probs"].astype(float), f["labels"].astype(int)
    marginal = OnlineMarginal(Guard(), probs.shape[1], renormalise=False)
    marginal.run(probs, labels)
    table = Table(
        "class",
        "log loss, raw",
        "guarded",
        "debiased k2 raw, 1e-4",
        "guarded",
        title=f"soccer odds, {len(labels):,} games",
    )
    for k, compared in enumerate(marginal.compared):
        before, after = compared.losses()
        reports = [s.report()["metrics"]["k2_debiased"]["value"] * 1e4 for s in (compared.before, compared.after)]
        table.add_row(str(k), f"{before:.1f}", f"{after:.1f}", *(f"{v:.3f}" for v in reports))
        checks.add(
            f"soccer, class {k}: guard's log loss over the raw one's (at most ln 4)",
            after - before,
            -math.inf,
            math.log(4),
        )
    console.print(table)


SPEED: dict[str, tuple[Online, float | None]] = {
    "OnlineHistogram": (OnlineHistogram(), 30),
    "Calibeating": (Calibeating(), 30),
    "OnlinePlatt": (OnlinePlatt(), 250),
    "OnlineBeta": (OnlineBeta(), None),
    "OnlineIsotonic, 101 bins": (OnlineIsotonic(), None),
    "FosterForecaster, m = 100": (FosterForecaster(100), 400),
    "AlmostOneStepAhead, m = 1,000": (AlmostOneStepAhead(1000), None),
    "OnlinePatching, m = 100, sliding 10,000": (OnlinePatching(m=100, window=Sliding(Grid(100), 10_000)), 400),
    "Guard of 4": (Guard(), 1000),
    "Refit of Platt every 500": (Refit(), None),
    "QuantileTracker": (QuantileTracker(), None),
    "MultivalidQuantile, m = 40": (MultivalidQuantile(), None),
}


def fresh(one: Online) -> Online:
    return type(one).from_bytes(one.to_bytes())


def report_speed(checks: Checks, console: Console, progress: Progress) -> None:
    rng, n, few = np.random.default_rng(0), 200_000, 20_000
    p = rng.random(n)
    y, w = (rng.random(n) < p**1.5).astype(float), np.ones(n)
    table = Table(
        "what", "pass, ns", "run with its report, ns", "one by one, ns", "state, kB", title="per event, best of 5"
    )
    task = progress.add_task("speed", total=len(SPEED))
    for name, (one, bound) in SPEED.items():
        a, b = fresh(one), fresh(one)
        q = a.run(p[:500], y[:500])
        assert q.tolist() == [step(b, *event) for event in zip(p[:500].tolist(), y[:500].tolist(), strict=True)]
        seconds = [math.inf] * 3
        for _ in range(5):
            made = fresh(one)
            seconds[0] = min(seconds[0], clock(lambda made=made: made._pass(p, y, w)) / n)
            made = fresh(one)
            seconds[1] = min(seconds[1], clock(lambda made=made: made.run(p, y)) / n)
            made, events = fresh(one), list(zip(p[:few].tolist(), y[:few].tolist(), strict=True))
            seconds[2] = min(seconds[2], clock(lambda made=made, events=events: [step(made, *e) for e in events]) / few)
        table.add_row(name, *(f"{1e9 * s:,.0f}" for s in seconds), f"{len(made.to_bytes()) / 1000:.1f}")
        if bound:
            checks.add(f"{name}: ns per event of a pass", 1e9 * seconds[0], 0, bound, ".0f")
        if name in ("OnlinePlatt", "OnlineHistogram"):
            checks.add(f"{name}: predict_one and learn_one, ns", 1e9 * seconds[2], 0, 1500, ".0f")
        progress.advance(task)
    console.print(table)


def step(one: Online, p: float, y: float) -> float:
    q = one.predict_one(p)
    one.learn_one(p, y)
    return q


def clock(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with games_nba_mlb.npz and soccer_odds.npz")
    parser.add_argument("--streams", type=int, default=10, help="seeds of each stream")
    parser.add_argument("--seeds", type=int, default=20, help="seeds of each game against an adversary")
    args = parser.parse_args()
    console, checks = Console(width=170), Checks()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        report_speed(checks, console, progress)
        report_streams(measure_streams(args.streams, progress), checks, console)
        report_regret(args.streams, checks, progress)
        report_adversaries(args.seeds, checks, console, progress)
    report_patching(checks, console)
    report_quantiles(checks, console)
    report_real(args.data, checks, console)
    console.print(checks.table())
    return 0 if checks.hold else 1


if __name__ == "__main__":
    sys.exit(main())
