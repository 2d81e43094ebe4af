"""Drift detectors: how rarely they alarm where nothing is wrong, and how soon after a change, ours beside River's and dummies.

    python bench/bench_drift.py [--data FOLDER] [--keep FILE] [--figure FILE] [--quick]

All at an EQUAL measured run length on a calibrated Beta(2,2) stream: River's detectors get the parameter with which they alarm as
rarely as ours at arl 20,000 (bisection, to 5 to 15 %: the slower, the rougher; standard errors are in the tables). Delays are in
events from the change on: median (p90), and the share missed within 20,000; who alarmed before the change begins anew there.
Where runs have heavy tails (DDM: an alarm within hundreds of events or hardly ever) there is no equal mean: "not equal", and
the row of changes "none" and the last row of the delays show how often it alarms for nothing.

--keep: finished cells stay in this JSON file and are not measured again, so an interrupted run goes on; delete it after a change
of the code. --figure: the delays side by side (SVG or PNG). --quick: about a minute, three of River's detectors, tuned to 30 %
and in few runs; ours as always. FOLDER holds games_nba_mlb.npz (see bench_online.py). Exits with 1 if a figure misses its bound.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from bench_online import clock, real_streams
from checks import Checks
from drift_harness import Delays, chosen_run_length, delays, run_length
from drift_rivals import PIT_RIVALS, QUICK, RIVALS, Column, columns, dummies
from drift_streams import CALIBRATED, CHANGES, QUIET, SHIFTS, Stream, covered, given, uniform
from kept import Kept
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tables import Console

from streamcal.drift import CalibrationDrift, CalibrationTest
from streamcal.drift.coverage import CoverageDrift
from streamcal.drift.pit import PITDrift

ARL, HORIZON, CALM = 20_000, 20_000, CALIBRATED["Beta(2,2)"]
OURS, OURS_PIT, CHOSEN = "CalibrationDrift", "PITDrift", "chosen from the statistic"
# median delay of 200 runs at arl 20,000, change after 2,000 events; after 200 within 25 % of that; and what is to be reported
BOUNDS = {
    "too extreme 1.25": (1000, "too extreme"),
    "too extreme 1.5": (360, "too extreme"),
    "too extreme 2": (125, "too extreme"),
    "too extreme 3": (52, "too extreme"),
    "not extreme enough .6": (480, "not extreme enough"),
    "too high .5": (285, "too high"),
    "too high 1": (95, "too high"),
    "one bin .3": (550, "too high"),
}
COVERAGES = {0.05: 0.1, 0.5: 0.6, 0.9: 0.8, 0.99: 0.97}


def number(x: float) -> str:
    return "-" if math.isinf(x) else f"{x:,.0f}"


def of_delays(found: Delays) -> dict[str, Any]:
    return {
        "median": found.median,
        "p90": found.p90,
        "missed": found.missed,
        "early": found.early,
        "within": [found.within(1000), found.within(5000)],
    }


def delay_text(cell: dict[str, Any]) -> str:
    missed = f"\n{cell['missed']:.0%} missed" if cell["missed"] else ""
    return f"{number(cell['median'])} ({number(cell['p90'])}){missed}"


def heads(detectors: dict[str, Column]) -> list[str]:
    """Names, with the run lengths at which they are compared."""
    lengths = {name: f"[{number(c.length['mean'])}{'' if c.equal else ', not equal'}]" for name, c in detectors.items()}
    return [f"{name.replace(', ', ',' + chr(10))}\n{length}" for name, length in lengths.items()]


# ---- nothing is wrong


def ever(stream: Stream, alpha: float, runs: int) -> float:
    """Share of streams of 20,000 events on which the test ever rejects."""
    rejected = 0
    for run in range(runs):
        test = CalibrationTest(alpha)
        test.update_many(*stream(np.arange(20_000), np.random.default_rng([2, run])))
        rejected += test.rejected
    return rejected / runs


def report_run_lengths(kept: Kept) -> None:
    """Ours at arl 1,000; Ville's bound of the test over 20,000 events."""
    make, alpha, runs = lambda: CalibrationDrift(arl=1000), 0.05, 200 if kept.quick else 600
    title = f"arl 1,000, 1,500 runs; the test over 20,000 events, {runs} streams"
    table = Table("calibrated stream", "run length / arl", "se", "P(test at .05 ever rejects)", title=title)
    kept.section("run lengths", 2 * len(CALIBRATED) + 1)
    for name, stream in CALIBRATED.items():
        found = kept(f"arl 1000, {name}", lambda s=stream: asdict(run_length(make, s, 1500, seed=1)))
        share = kept(f"ever, {name}", lambda s=stream: ever(s, alpha, runs))
        kept.checks.add(f"{name}: run length / arl", found["mean"] / 1000, 0.95, 1.35, ".3f")
        most = alpha + 2.0 * math.sqrt(alpha * (1.0 - alpha) / runs)
        kept.checks.add(f"{name}: P(test at .05 ever rejects)", share, 0.0, most, ".3f")
        table.add_row(name, f"{found['mean'] / 1000:.3f}", f"{found['se'] / 1000:.3f}", f"{share:.3f}")
    found = kept(f"arl 1000, {CHOSEN}", lambda: asdict(chosen_run_length(make, runs=1500, seed=1)))
    kept.checks.add(f"{CHOSEN}: run length / arl", found["mean"] / 1000, 0.95, 1.35, ".3f")
    table.add_row(CHOSEN, f"{found['mean'] / 1000:.3f}", f"{found['se'] / 1000:.3f}", "")
    kept.console.print(table)


def report_tuned(kept: Kept, detectors: dict[str, Column]) -> None:
    """The same parameters on other calibrated streams: only ours promise anything there."""
    title = "run length (standard error) on calibrated streams, all tuned on the first"
    table = Table("detector", "parameter", *CALIBRATED, "false alarms per 100,000: most", title=title)
    kept.section("other calibrated streams", len(detectors) * (len(CALIBRATED) - 1))
    for name, column in detectors.items():
        runs = 400 if name == OURS else 10 if kept.quick else column.runs // 2
        lengths = [column.length]
        for other in list(CALIBRATED)[1:]:
            measure = lambda s=CALIBRATED[other]: asdict(run_length(column.make, s, runs, 5, 3.0 * ARL * runs))  # noqa: B023, E731
            lengths.append(kept(f"tuned, {name}, {other}", measure))
            if name == OURS:
                share, se = lengths[-1]["mean"] / ARL, lengths[-1]["se"] / ARL
                kept.checks.add(f"{other}: run length / arl at 20,000, + 2 se", share + 2.0 * se, 1.0, form=".3f")
        texts = [f"{number(x['mean'])} ({number(x['se'])})" if x["runs"] else f"> {x['events']:,}" for x in lengths]
        table.add_row(name, f"{column.parameter:.4g}", *texts, f"{1e5 / min(x['mean'] for x in lengths):.0f}")
    kept.console.print(table)


def report_quiet(kept: Kept, detectors: dict[str, Column]) -> None:
    """Calibrated before and after: whoever alarms has found something else than miscalibration."""
    title = "calibrated before and after: alarms within 1,000 / 5,000 events of the change, % of runs"
    table = Table("change after 2,000", *heads(detectors), title=title)
    kept.section("quiet changes", len(QUIET) * len(detectors))
    for change, stream in QUIET.items():
        texts = []
        for name, column in detectors.items():
            runs = 300 if name == OURS else column.runs
            measure = lambda c=column, s=stream, r=runs: of_delays(delays(c.make, CALM, s, 2000, 5000, r, seed=7))  # noqa: E731
            soon, late = (100.0 * share for share in kept(f"quiet, {name}, {change}", measure)["within"])
            texts.append(f"{soon:.0f} / {late:.0f}")
            if name == OURS:
                kept.checks.add(f"{change}, but calibrated: alarms within 5,000, %", late, 0, 27, ".1f")
            if name == "ADWIN, sq. error" and change != "none":
                kept.checks.add(f"{change}: those of ADWIN on squared error (foil), %", late, 100, 100, ".1f")
        table.add_row(change, *texts)
    left = math.exp(-5000 / detectors[OURS].length["mean"])
    kept.console.print(table, f"{1 - left:.0%} of runs without memory end within 5,000 events", highlight=False)


# ---- something is wrong


def report_delays(kept: Kept, detectors: dict[str, Column], at: int, factor: float) -> None:
    """Every change for every detector, the change after ``at`` calibrated events."""
    title = "delay in events: median (p90), share missed; in brackets the run length"
    table = Table(f"change after {at:,}", *heads(detectors), title=title)
    kept.section(f"delays, {at:,}", (len(CHANGES) + 1) * len(detectors))
    for change, stream in CHANGES.items():
        texts = []
        for name, column in detectors.items():
            measure = lambda c=column, s=stream: of_delays(delays(c.make, CALM, s, at, HORIZON, c.runs, seed=6))  # noqa: E731
            cell = kept(f"delay, {name}, {change}, {at}", measure)
            texts.append(delay_text(cell))
            if name == OURS and change in BOUNDS:
                most = BOUNDS[change][0] * factor
                kept.checks.add(f"{change}, after {at:,}: median delay", cell["median"], 0, most, ".0f")
        table.add_row(change, *texts)
    change, runs = next(iter(CHANGES)), {name: c.runs for name, c in detectors.items()}
    early = [kept(f"delay, {name}, {change}, {at}", dict)["early"] / runs[name] for name in detectors]
    table.add_row("alarms before the change, per run", *(f"{e:.2f}" for e in early))
    kept.console.print(table)


def onsets(stream: Stream) -> dict[str, Any]:
    """Median delay, absolute errors of the onset, directions. A report counts events from the start of its detector."""
    note = lambda d: [d.history()[0][k] for k in ("event", "onset", "direction")]  # noqa: E731
    found = delays(lambda: CalibrationDrift(ARL), CALM, stream, 2000, HORIZON, 200, 8, note)
    there = found.delays[np.isfinite(found.delays)].tolist()
    errors = [abs((d - 1) - (event - onset)) for d, (event, onset, _) in zip(there, found.noted, strict=True)]
    return {"median": found.median, "error": float(np.median(errors)), "said": [n[2] for n in found.noted]}


def report_onsets(kept: Kept) -> None:
    """What the report at the alarm says of direction and onset; overconfidence 2 has bounds."""
    columns = ("change", "median delay", "onset: median |error|", "100 + 15 % of the delay", "direction right")
    table = Table(*columns, title="what the report says at the alarm, 200 runs")
    kept.section("reports", len(BOUNDS))
    for change, (_, direction) in BOUNDS.items():
        cell = kept(f"onset, {change}", lambda s=CHANGES[change]: onsets(s))
        right, most = float(np.mean([d == direction for d in cell["said"]])), 100 + 0.15 * cell["median"]
        table.add_row(change, number(cell["median"]), number(cell["error"]), number(most), f"{right:.1%}")
        if change == "too extreme 2":
            kept.checks.add(f"{change}: onset, median |error|", cell["error"], 0, most, ".0f")
            kept.checks.add(f"{change}: direction right", right, 0.95, 1.0, ".3f")
    kept.console.print(table)


# ---- PIT and coverage


def report_pit(kept: Kept) -> None:
    kept.section("PIT", 2 + len(PIT_RIVALS) + len(SHIFTS) * (1 + len(PIT_RIVALS)))
    found = kept("arl 1000, PITDrift", lambda: asdict(run_length(lambda: PITDrift(1000), uniform, 1500, seed=9)))
    kept.checks.add("PITDrift: run length / arl", found["mean"] / 1000, 0.95, math.inf, ".3f")
    detectors = columns(kept, OURS_PIT, Column(lambda: PITDrift(ARL), {}, 200, ARL), PIT_RIVALS, uniform)
    table = Table("change after 2,000", *heads(detectors), title="PIT, delay in events: median (p90), share missed")
    for change, stream in SHIFTS.items():
        texts = []
        for name, column in detectors.items():
            measure = lambda c=column, s=stream: of_delays(delays(c.make, uniform, s, 2000, HORIZON, c.runs, seed=10))  # noqa: E731
            cell = kept(f"delay, {name}, {change}", measure)
            texts.append(delay_text(cell))
            if name == OURS_PIT and change == "sd x1.25":
                kept.checks.add("PITDrift, sd x1.25: median delay", cell["median"], 0, 150, ".0f")
        table.add_row(change, *texts)
    kept.console.print(table)


def coverage_runs(level: float) -> dict[str, Any]:
    return asdict(run_length(lambda: CoverageDrift(level, arl=1000), covered(level), 1500, seed=11))


def coverage_delays(level: float, seen: float) -> dict[str, Any]:
    return of_delays(delays(lambda: CoverageDrift(level, ARL), covered(level), covered(seen), seed=12))


def report_coverage(kept: Kept) -> None:
    table = Table("level", "run length / arl (se)", "seen after 2,000", "delay: median (p90)", title="CoverageDrift")
    kept.section("coverage", 2 * len(COVERAGES))
    for q, seen in COVERAGES.items():
        found = kept(f"arl 1000, CoverageDrift({q})", lambda q=q: coverage_runs(q))
        cell = kept(f"delay, CoverageDrift({q})", lambda q=q, seen=seen: coverage_delays(q, seen))
        kept.checks.add(f"CoverageDrift({q:g}): run length / arl", found["mean"] / 1000, 0.95, math.inf, ".3f")
        length = f"{found['mean'] / 1000:.3f} ({found['se'] / 1000:.3f})"
        table.add_row(f"{q:g}", length, f"{seen:g}", delay_text(cell))
    kept.console.print(table)


# ---- real streams and speed


def report_real(kept: Kept, folder: Path | None, detectors: dict[str, Column]) -> None:
    streams = real_streams(folder)
    table = Table("stream", "events", *heads(detectors), "ours, tolerance .02", title="alarms on real forecasts")
    kept.section("real streams", len(streams) * len(detectors))
    for name, (p, y) in streams.items():
        counts = []
        for rival, column in detectors.items():
            measure = lambda c=column, p=p, y=y: run_length(c.make, given(p, y), p.size, most=p.size).runs  # noqa: E731
            counts.append(kept(f"real, {name}, {rival}", measure))
        lenient = CalibrationDrift(ARL, tolerance=0.02)
        tolerated = lenient.update_many(p, y).size
        table.add_row(name, f"{p.size:,}", *(f"{c:,}" for c in counts), f"{tolerated:,}")
        kept.checks.add(f"{name}: alarms at arl 20,000", counts[0], *((0, 0) if name == "MLB" else (1,)), form=".0f")
        if name == "MLB":
            kept.checks.add(f"{name}: alarms with tolerance .02", tolerated, 0, 0, ".0f")
        show_reports(kept, name, p, y)
        show_reports(kept, f"{name}, tolerance .02", p, y, 0.02)
    if table.row_count:
        kept.console.print(table)


def show_reports(kept: Kept, name: str, p: np.ndarray, y: np.ndarray, tolerance: float = 0.0, most: int = 3) -> None:
    """The first alarms of a stream in words."""
    detector, at = CalibrationDrift(ARL, tolerance), 0
    while at < p.size and detector.alarms < most:
        detector.update_many(p[at : at + 1000], y[at : at + 1000])
        at += 1000
    for report in detector.history()[:most]:
        when = f"event {report['event']:,} ({report['event'] / p.size:.0%} of the stream)"
        kept.console.print(f"  {name}, {when}: {report['text']}", highlight=False)


def report_speed(kept: Kept) -> None:
    """On a calibrated stream and a threshold that is not reached: alarms are rare, a report costs half a millisecond."""
    n, few, far = 20_000, 4_000, 1e14
    rng = np.random.default_rng(13)
    (u,) = uniform(np.arange(n), rng)
    kinds = {
        OURS: (lambda: CalibrationDrift(far), CALM(np.arange(n), rng)),
        OURS_PIT: (lambda: PITDrift(far), (u,)),
        "CoverageDrift(.9)": (lambda: CoverageDrift(0.9, far), (np.full(n, 0.9), u)),
    }
    table = Table("detector", "update_many, ns", "update, ns", "state, bytes", title="per event, best of 40")
    for name, (make, events) in kinds.items():
        seconds, pairs = [math.inf] * 2, list(zip(*(e[:few].tolist() for e in events), strict=True))
        for _ in range(40):
            a, b = make(), make()
            seconds[0] = min(seconds[0], clock(lambda a=a, events=events: a.update_many(*events)) / n)
            seconds[1] = min(seconds[1], clock(lambda b=b, pairs=pairs: [b.update(*e) for e in pairs]) / few)
        sizes = [len(d.to_bytes()) for d in (make(), a)]
        table.add_row(name, *(f"{1e9 * s:.0f}" for s in seconds), f"{sizes[1]:,}")
        kept.checks.add(f"{name}: state, bytes", sizes[1], 0, 16_000, ".0f")
        kept.checks.add(f"{name}: growth in {n:,} events but for digits, bytes", sizes[1] - sizes[0], -99, 99, ".0f")
        if name == OURS:
            kept.checks.add(f"{name}: update_many, ns per event", 1e9 * seconds[0], 0, 150, ".0f")
            kept.checks.add(f"{name}: update, ns per event", 1e9 * seconds[1], 0, 600, ".0f")
    kept.console.print(table)


def draw(kept: Kept, detectors: dict[str, Column], path: Path) -> None:
    """Median delays side by side; hollow marks at the edge: most runs missed the change. Only those of equal run length."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "streamcal"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 6.5), layout="constrained")
    rows = np.arange(len(CHANGES))[::-1]
    kept.section("figure", len(detectors) * len(CHANGES))
    for i, name in enumerate(detectors):
        medians = np.array([kept(f"delay, {name}, {c}, 2000", dict)["median"] for c in CHANGES])
        seen, place = np.isfinite(medians), rows + 0.36 - 0.72 * i / max(len(detectors) - 1, 1)
        marks = {"edgecolors": f"C{i}", "marker": "D" if name == OURS else "o", "s": 42 if name == OURS else 22}
        axes.scatter(medians[seen], place[seen], label=name, facecolors=f"C{i}", zorder=3, **marks)
        axes.scatter(np.full((~seen).sum(), 1.2 * HORIZON), place[~seen], facecolors="none", **marks)
    axes.set(
        xscale="log", yticks=rows, yticklabels=list(CHANGES), xlabel="events from the change to the alarm (median)"
    )
    axes.set_title(
        f"delay at a run length of {number(detectors[OURS].length['mean'])}; hollow: most runs missed", size=10
    )
    axes.hlines(rows[:-1] - 0.5, 0, 1, transform=axes.get_yaxis_transform(), color="0.85", linewidth=0.8)
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def measure(kept: Kept, folder: Path | None, figure: Path | None) -> None:
    report_speed(kept)
    report_run_lengths(kept)
    rivals = {name: one for name, one in RIVALS.items() if not kept.quick or name in QUICK}
    kept.section("equal run lengths", 1 + len(rivals))
    detectors = columns(kept, OURS, Column(lambda: CalibrationDrift(ARL), {}, 200, ARL), rivals, CALM)
    report_tuned(kept, detectors)
    beside = {**detectors, **dummies(detectors[OURS].length["mean"])}
    report_quiet(kept, beside)
    report_delays(kept, beside, 2000, 1.0)
    report_delays(kept, {n: c for n, c in detectors.items() if n == OURS or n.startswith("ADWIN")}, 200, 1.25)
    report_onsets(kept)
    report_pit(kept)
    report_coverage(kept)
    report_real(kept, folder, detectors)
    if figure:
        draw(kept, {name: column for name, column in detectors.items() if column.equal}, figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with games_nba_mlb.npz")
    parser.add_argument("--keep", type=Path, help="JSON file in which finished cells are kept")
    parser.add_argument("--figure", type=Path, help="SVG or PNG to draw the delays to")
    parser.add_argument("--quick", action="store_true", help="about a minute")
    args = parser.parse_args()
    console, checks = Console(width=240), Checks()
    shown = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*shown, console=Console(stderr=True), transient=True) as progress:
        measure(Kept(console, checks, progress, args.quick, args.keep), args.data, args.figure)
    console.print(checks.table())
    return 0 if checks.hold else 1


if __name__ == "__main__":
    sys.exit(main())
