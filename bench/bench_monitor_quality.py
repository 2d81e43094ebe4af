"""What a monitor says about a healthy stream, and about one with faults in it: false alerts against the promise, delays,
names.

    python bench/bench_monitor_quality.py [--seeds 5] [--days 100] [--events 10000]

A stream has 50 segments of different sizes (the largest has a fifth of the traffic, the smallest one in a thousand), a case
mix that goes with the hour, the weekday and the season, and labels that come hours to weeks later. Predictions and labels
are taken as they come, an hour at a time.

1. Healthy, with what a configuration means if it says nothing of windows, detectors and rules: an alarm of a version may
   come once in arl = 1e6 events on average, or more rarely. Counted over all seeds, against what a Poisson number with the
   promised mean exceeds once in a thousand.
2. Three faults in the middle of the stream, each in one segment: claims that are too extreme, too low, and turned round.
   Each must be found and the right segment named. An alert that names a segment whose claims are right is a false one: no
   more of them than promised, as in 1. (An alert about "all" is right: three segments of the stream are wrong.)
3. A rule about k1 with its interval in each segment: alerts about healthy segments, and about segments whose true k1 is
   exactly at the threshold, which is where a wrong alert is easiest.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from checks import Checks
from numpy.typing import NDArray
from rich.table import Table
from tables import Console

from streamcal.monitor.monitor import Monitor

Array = NDArray[np.float64]
START, DAY, HOUR = 1_700_006_400.0, 86_400.0, 3_600.0  # midnight
SEGMENTS, ARL = 50, 1e6
FAULTS = {3: "too extreme", 6: "too low", 9: "turned round"}  # segment: what is wrong with its claims
QUIET = {"sinks": {"none": {"type": "file", "path": os.path.join(tempfile.mkdtemp(), "alerts.jsonl")}}}
USUAL: dict[str, Any] = {
    "state": ":memory:",
    "every": "1h",
    "models": {"m": {}},
    "segments": {"fields": ["s"]},
    **QUIET,
}


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


@dataclass(frozen=True)
class Stream:
    """Events by the time of the prediction ``t``; ``u`` is when the label comes, ``q`` the true chance behind the claim ``p``."""

    t: Array
    u: Array
    p: Array
    q: Array
    y: Array
    segment: NDArray[np.str_]


def sizes() -> Array:
    """Shares of the segments, the largest first."""
    share = 1.0 / np.arange(1.0, SEGMENTS + 1.0) ** 1.1
    return share / share.sum()


def stream(seed: int, days: float, per_day: int, faults: Mapping[int, str] | None = None, gap: float = 0.0) -> Stream:
    """``faults`` begin in the middle; ``gap`` is the true k1 of all segments: every bin is off by so much, up or down."""
    rng = np.random.default_rng(seed)
    n = int(days * per_day)
    t = START + np.sort(rng.random(n)) * days * DAY
    s = rng.choice(SEGMENTS, n, p=sizes())
    level, week, hard = rng.normal(-0.5, 0.8, SEGMENTS), rng.normal(0.0, 0.5, SEGMENTS), rng.uniform(0.6, 1.6, SEGMENTS)
    cycle = 0.4 * np.sin(2 * np.pi * t / DAY) + 0.5 * np.sin(2 * np.pi * (t - START) / (100 * DAY))
    z = level[s] + week[s] * np.sin(2 * np.pi * t / (7 * DAY)) + cycle + hard[s] * rng.normal(size=n)
    p = sigmoid(z)
    bin = np.floor(p * 15)  # of the usual binning: up in the first, down in the last, so all stays in [0, 1]
    q = p + gap * np.where((bin % 2 == 0) & (bin < 14), 1.0, -1.0)
    late = t >= START + days * DAY / 2
    for which, kind in (faults or {}).items():
        here = late & (s == which)
        wrong = {"too extreme": sigmoid(z / 2.0), "too low": sigmoid(z + 0.7), "turned round": 1.0 - p}[kind]
        q = np.where(here, wrong, q)
    y = (rng.random(n) < q).astype(np.float64)
    return Stream(t, t + HOUR * np.exp(rng.normal(2.5, 1.2, n)), p, q, y, np.char.add("s", s.astype(str)))


@dataclass
class Found:
    """What came of a stream: alerts in order, alarms of the detectors, joined events, and seconds of work."""

    alerts: list[dict[str, Any]] = field(default_factory=list)
    alarms: int = 0  # also those that came while a rule was firing already
    joined: int = 0
    seconds: float = 0.0

    def firing(self, rule: str | None = None) -> list[dict[str, Any]]:
        return [a for a in self.alerts if a["kind"] == "firing" and rule in (None, a["rule"])]


def watch(document: Mapping[str, Any], events: Stream) -> Found:
    """A monitor takes the stream as it comes, an hour at a time; at the end all labels that came by then are counted."""
    found, begun = Found(), time.perf_counter()
    order = np.argsort(events.u, kind="stable")
    hours = np.arange(START, events.t[-1] + HOUR, HOUR)
    made, known = np.searchsorted(events.t, hours), np.searchsorted(events.u[order], hours)
    with Monitor(document) as monitor:
        for i in range(hours.size - 1):
            new, old = slice(made[i], made[i + 1]), order[known[i] : known[i + 1]]
            ids = np.arange(new.start, new.stop)
            found.alerts += monitor.predict_many(
                ids, events.p[new], t=events.t[new], segment={"s": events.segment[new]}
            )
            found.alerts += monitor.label_many(old, events.y[old], t=events.u[old])
        (account,) = monitor.status()["models"]
        found.alarms = alarms_of(monitor)
    found.joined = account["predictions"]["joined"]
    found.seconds = time.perf_counter() - begun
    assert found.joined == known[-1], (found.joined, known[-1])
    return found


def alarms_of(monitor: Monitor) -> int:
    """How often the detectors have alarmed."""
    return sum(own.detector.alarms for of in monitor.aggregates.values() for own in of.detectors.values())


def poisson_bound(mean: float, chance: float = 1e-3) -> int:
    """What a Poisson number exceeds with at most this chance."""
    k, term, left = 0, math.exp(-mean), 1.0 - math.exp(-mean)
    while left > chance:
        k += 1
        term *= mean / k
        left -= term
    return k


@dataclass(frozen=True)
class Hit:
    """A fault that was found: events of its segment, and days, from where it began to the first alert that names it."""

    segment: str
    kind: str
    events: int
    days: float
    text: str


def hits(events: Stream, alerts: list[dict[str, Any]], faults: Mapping[int, str], days: float) -> list[Hit]:
    """The first alert that names each of the faulty segments, also beside another."""
    found, begin = [], START + days * DAY / 2
    for which, kind in faults.items():
        name = f"s={'s' + str(which)}"
        first = next((a for a in alerts if name == a["segment"] or name in a.get("also", ())), None)
        if first is not None:
            at = np.datetime64(first["at"].removesuffix("Z")).astype("datetime64[us]").astype(float) / 1e6
            seen = (events.segment == f"s{which}") & (events.t >= begin) & (events.u <= at)
            found.append(Hit(name, kind, int(seen.sum()), (at - begin) / DAY, first["text"]))
    return found


def named(alerts: list[dict[str, Any]]) -> set[str]:
    """Every segment that an alert names."""
    return {a["segment"] for a in alerts} | {s for a in alerts for s in a.get("also", ())}


def gap_rules(above: float) -> dict[str, Any]:
    """A rule about k1 at two levels."""
    one = {"metric": "k1", "window": "week", "segments": "each", "above": above}
    return {**USUAL, "rules": {"k1 at .95": {**one, "level": 0.95}, "k1 at .999": {**one, "level": 0.999}}}


def healthy(wish: argparse.Namespace, checks: Checks, console: Console) -> None:
    alarms = alerts = joined = 0
    for seed in range(wish.seeds):
        found = watch(USUAL, stream(seed, wish.days, wish.events))
        alarms, alerts, joined = alarms + found.alarms, alerts + len(found.firing()), joined + found.joined
    promised = joined / ARL
    console.print(
        f"healthy: promised {promised:.2f} alarms or fewer in {joined:,} events, counted {alarms}: {alerts} alerts"
    )
    checks.add("false alarms by the usual rules, all seeds", alarms, 0, poisson_bound(promised), ".0f")


def faulty(wish: argparse.Namespace, checks: Checks, console: Console) -> None:
    table = Table("seed", "segment", "fault", "its events", "days", title="faults from the middle on: found after")
    right, joined, others = 0, 0, []
    for seed in range(wish.seeds):
        events = stream(seed, wish.days, wish.events, FAULTS)
        watched = watch(USUAL, events)
        alerts, joined = watched.firing(), joined + watched.joined
        found = hits(events, alerts, FAULTS, wish.days)
        right += len(found)
        others += [a for a in alerts if named([a]) - {"all", *(f"s=s{which}" for which in FAULTS)}]
        for hit in found:
            table.add_row(str(seed), hit.segment, hit.kind, f"{hit.events:,}", f"{hit.days:.2f}")
    console.print(table)
    for alert in others:
        console.print(f"about claims that are right: {alert['text']}")
    checks.add("faults found", right, len(FAULTS) * wish.seeds, len(FAULTS) * wish.seeds, ".0f")
    checks.add("alerts that name another segment", len(others), 0, poisson_bound(joined / ARL), ".0f")


def rules(wish: argparse.Namespace, checks: Checks, console: Console) -> None:
    table = Table("claims", "true k1", "rule", "alerts", "segments", "of them", title="rules about k1 above 0.05")
    for claims, gap in (("right", 0.0), ("off by the threshold", 0.05)):
        total: dict[str, list[float]] = {}
        for seed in range(wish.seeds):
            found = watch(gap_rules(0.05), stream(seed, wish.days, wish.events, gap=gap))
            for rule in gap_rules(0.05)["rules"]:
                alerts = found.firing(rule)
                total.setdefault(rule, []).append(len(alerts))
                total.setdefault(rule + " segments", []).append(len(named(alerts)))
        for rule in gap_rules(0.05)["rules"]:
            count, segments = sum(total[rule]), sum(total[rule + " segments"])
            table.add_row(claims, f"{gap:g}", rule, f"{count:.0f}", f"{segments:.0f}", str(SEGMENTS * wish.seeds))
            if gap == 0.0:
                checks.add(f"false alerts of {rule}, claims right", count, 0, 0, ".0f")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--days", type=float, default=100.0)
    parser.add_argument("--events", type=int, default=10_000, help="a day")
    parser.add_argument("--parts", default="healthy,faulty,rules")
    wish = parser.parse_args()
    checks, console = Checks(), Console(width=110)
    parts = {"healthy": healthy, "faulty": faulty, "rules": rules}
    for part in wish.parts.split(","):
        parts[part](wish, checks, console)
    console.print(checks.table())
    raise SystemExit(not checks.hold)


if __name__ == "__main__":
    main()
