"""Golden runs: whole runs of the monitor, kept with all that they said; every one must come out the same for ever.

Each folder of tests/golden/runs is a run: what goes in (`config.toml`, and the messages of each source, or `calls.jsonl` for
the monitor in Python), and in `expected/` what came out: stdout and stderr of each command, alerts, audit, dead letters,
`streamcal status` as text and as JSON, `streamcal replay`, and the rows of the state file. What depends on the moment or the
disk is left out by `NORMAL` below. Floats: see golden_expectations.py.

    python tests/process/test_golden_runs.py              # writes the expectations of all runs anew
    python tests/process/test_golden_runs.py churn pit    # of these runs only
    python tests/process/test_golden_runs.py --inputs     # the inputs too (only to add a run: old inputs stay as they are)

To write them anew is to say that users shall get something else: look at `git diff tests/golden` before it is committed.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden_expectations import (
    GOLDEN,
    WRITTEN_BY,
    blob,
    demand,
    differences_of_text,
    fingerprint,
    heard,
    inside,
    is_exact,
    plain,
    streamcal,
)

RUNS = GOLDEN / "runs"
START = 1_700_000_100.0  # not a multiple of any `every`
# where a file was found and when it was written; how a file on disk is marked in the offset of its source
NORMAL = [(re.compile(r'(\\*"(?:inode|device|written|mtime)\\*": ?)-?\d+'), r"\g<1>0")]
FILES = (
    "alerts.jsonl",
    "audit.jsonl",
    "letters.jsonl",
    "undelivered.jsonl",
)  # that a run may write, besides the record

# -- inputs ------------------------------------------------------------------------------------------------------------


class Life:
    """Messages as they come in life, in the order of their arrival: each (arrival, source, object or bytes)."""

    def __init__(self, seed: int, n: int, step: float = 60.0) -> None:
        self.rng, self.n, self.step = random.Random(seed), n, step
        self.said: list[tuple[float, str, Any]] = []

    def say(self, at: float, thing: Any, source: str = "events") -> None:
        self.said.append((at, source, thing))

    def delay(self, mean: float) -> float:
        """A multiple of a second, mostly short, seldom long."""
        x = self.rng.random()
        return float(int(mean * (0.1 + 3.0 * x**4)))

    def label(self, i: int, t: float, y: Any, other: Any, source: str = "events", **more: Any) -> None:
        """The outcome of a prediction at t: once, never, twice, early, contradicted, corrected, or far too late."""
        rng, label = self.rng, {"id": f"e{i}", **more}
        u, fate = t + self.delay(1800.0), rng.random()
        if fate < 0.04:
            return  # never: it will expire
        if fate < 0.06:
            u = t + 9.5 * 3600.0  # behind the time to live
        if fate > 0.97:
            self.say(t - 120.0, {**label, "t": t - 120.0, "y": y}, source)  # before its prediction
            return
        self.say(u, {**label, "t": u, "y": y}, source)
        if 0.06 <= fate < 0.10:
            self.say(u + 300.0, {**label, "t": u + 300.0, "y": y}, source)  # again
        elif fate < 0.14:
            self.say(u + 3600.0, {**label, "t": u + 3600.0, "y": other}, source)  # corrected
        elif fate < 0.16:
            self.say(u + 60.0, {**label, "t": u - 30.0, "y": other}, source)  # contradicted by an older one

    def strangers(self, i: int, t: float, bad: list[dict[str, Any]], source: str = "events", **more: Any) -> None:
        """Labels of nobody, events that are too late, and what cannot be read."""
        if i % 41 == 7:
            self.say(t, {"id": f"nobody{i}", "t": t, **bad[-1], **more}, source)
        if i % 59 == 11:
            self.say(t, {"id": f"late{i}", "t": t - 30 * 3600.0, **bad[0], **more}, source)
        if i % 37 == 5:
            self.say(t, self.rng.choice([b'{"id": 1, "p"', b"\xff\xfe", b'"text"', b"[[3]]", b"not JSON"]), source)
        if i % 31 == 3:
            self.say(t, {"id": f"bad{i}", "t": t, **self.rng.choice(bad[1:-1]), **more}, source)
        if i % 101 == 13:
            wrong = self.rng.choice([{"t": "yesterday"}, {"id": None}, {"model": "other"}])
            self.say(t, {"id": f"worse{i}", "t": t, **bad[0], **more, **wrong}, source)

    def files(self) -> dict[str, bytes]:
        """The text of each source; now and then several objects are one message."""
        lines: dict[str, list[bytes]] = {}
        for _, source, thing in sorted(self.said, key=lambda said: said[0]):
            text = thing if isinstance(thing, bytes) else json.dumps(thing).encode()
            last = lines.setdefault(source, [])
            if not isinstance(thing, bytes) and last and last[-1].startswith(b'{"id"') and self.rng.random() < 0.1:
                together = last.pop() + b", " + text
                text = b"[" + together + b"]" if self.rng.random() < 0.5 else b'{"events": [' + together + b"]}"
            last.append(text)
        return {f"{source}.jsonl": b"".join(line + b"\n" for line in of) for source, of in lines.items()}


def churn() -> dict[str, bytes]:
    life = Life(1, 600)
    rng = life.rng
    for i in range(life.n):
        t, p = START + life.step * i, round(0.02 + 0.96 * rng.random(), 4)
        country = rng.choice(("at", "at", "at", "de", "de", "ch", "fr", "it"))
        truth = min(1.0, 1.6 * p) if country == "de" and i > 300 else p
        yes = rng.random() < truth
        y, other = ("left", "stayed") if yes else ("stayed", "left")
        event = {"id": f"e{i}", "t": t, "country": country}
        for version, score in (("7", p), ("8", round(p * p, 4))):
            if version == "7" or i % 3:
                life.say(t, {**event, "p": score, "version": version})
        if rng.random() < 0.03:
            life.say(t + 5.0, {**event, "p": rng.choice((p, 0.5)), "version": "7"})
        life.label(i, t, y, other, **({"version": "7"} if i % 13 == 0 else {}))
        life.strangers(i, t, [{"p": 0.5}, {"p": 1.7}, {"p": "x"}, {"p": [0.5]}, {"y": None}, {"y": [1]}, {"y": "left"}])
    return life.files()


def demand_of_a_shop() -> dict[str, bytes]:
    life = Life(2, 500, 120.0)
    rng = life.rng
    for i in range(life.n):
        t, size = START + life.step * i, round(5.0 + 60.0 * rng.random(), 2)
        spread = 1.0 if i < 280 else 2.5
        y = round(size * (1.0 + spread * 0.4 * (rng.random() - 0.5)), 2)
        p = [round(size * f, 2) for f in (0.84, 1.0, 1.16)]
        life.say(t, {"id": f"e{i}", "t": t, "p": p, "shop": rng.choice(("n", "s"))})
        life.label(i, t, y, round(y + 3.0, 2))
        life.strangers(i, t, [{"p": [1.0, 2.0, 3.0]}, {"p": [3.0, 2.0, 1.0]}, {"p": 2.0}, {"y": "many"}, {"y": 7.5}])
    return life.files()


def ranges() -> dict[str, bytes]:
    """Predictions and labels are files of their own."""
    life = Life(3, 500, 90.0)
    rng = life.rng
    for i in range(life.n):
        t, middle = START + life.step * i, round(100.0 * rng.random(), 2)
        half = 4.0 + 8.0 * round(rng.random(), 2)
        y = middle + half * (rng.random() - 0.5) * (2.5 if i < 250 else 4.5)
        ends = [round(middle - half, 2), round(middle + half, 2)]
        life.say(t, {"id": f"e{i}", "t": t, "p": ends, "w": 1.0 + i % 3}, "predictions")
        life.label(i, t, round(y, 2), round(y + 5.0, 2), "labels")
        if i % 83 == 17:
            life.say(t, {"id": f"bad{i}", "t": t, "p": [ends[1], ends[0]], "w": 1.0}, "predictions")
            life.say(t, {"id": f"bad{i}w", "t": t, "p": ends, "w": -1.0}, "predictions")
            life.say(t, b'{"id": "cut', "labels")
            life.say(t, {"id": f"nobody{i}", "t": t, "y": 3.0}, "labels")
    return life.files()


def animals() -> dict[str, bytes]:
    life = Life(4, 450, 120.0)
    rng, names = life.rng, ("cat", "dog", "eel")
    for i in range(life.n):
        t, x = START + life.step * i, [0.05 + rng.random() for _ in names]
        p = [round(v / sum(x), 4) for v in x]
        p[2] = round(1.0 - p[0] - p[1], 4)
        draw, sharp = rng.random(), (1.0 if i < 240 else 0.0)
        truth = [sharp * v + (1.0 - sharp) / 3.0 for v in p]
        k = 0 if draw < truth[0] else 1 if draw < truth[0] + truth[1] else 2
        model = "top" if i % 2 else "all"
        event = {"id": f"e{i}", "t": t, "model": model, "place": "sea" if i % 5 == 0 else "land"}
        score = dict(zip(names, p)) if i % 7 == 0 else p
        if model == "top":
            score = {"p": score, "raw": [round(1 / 3, 4)] * 2 + [0.3334]} if i % 4 == 1 else {"p": score}
        else:
            score = {"p": score, "y": names[k]} if i % 8 == 0 else {"p": score}
        life.say(t, {**event, **score})
        if "y" not in score:
            life.label(i, t, names[k] if i % 3 else k, names[(k + 1) % 3], model=model)
        bad = [{"p": p}, {"p": [0.5, 0.5]}, {"p": [0.9, 0.9, 0.9]}, {"p": {"cow": 1.0}}, {"y": "cow"}, {"y": "cat"}]
        life.strangers(i, t, bad, model=model)
    return life.files()


def transforms() -> dict[str, bytes]:
    life = Life(5, 600, 300.0)
    rng = life.rng
    for i in range(life.n):
        t, u = START + life.step * i, rng.random()
        u = u if i < 300 else 0.5 + 0.6 * (u - 0.5)
        stamp = t if i % 2 else f"2023-11-{14 + int((t - 1_699_920_000) // 86_400):02d}T" + _clock(t)
        life.say(t, {"id": i, "t": stamp, "p": round(u, 6)})
        if i % 20:
            life.say(t + 600.0, {"id": i, "t": t + 600.0, "y": round(rng.random() * 10, 3)})
        if i % 90 == 33:
            life.say(t, {"id": f"x{i}", "t": "2023-11-20T10:00:00", "p": 0.5})
    return life.files()


def _clock(t: float) -> str:
    s = int(t % 86_400)
    return f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}Z"


def calls() -> dict[str, bytes]:
    """What a program calls, in the order of time: a line for each call, (name, positional, keywords)."""
    rng, said = random.Random(6), []
    for part in range(40):
        t, ids = START + 1800.0 * part, [f"b{part}-{k}" for k in range(12)]
        p = [round(0.001 + 0.3 * rng.random() ** 3, 5) for _ in ids]
        y = [int(rng.random() < (q if part < 20 else min(1.0, 6 * q))) for q in p]
        plan = [rng.choice(("free", "gold")) for _ in ids]
        amount = [float(1 + k % 3) for k in range(12)]
        if part % 3 == 1:
            said.append(("predict_many", [ids, p], {"t": t, "segment": {"plan": plan}, "w": amount, "version": "a"}))
            said.append(("predict_many", [ids, [q / 2 for q in p]], {"t": t, "version": "a/raw", "w": amount}))
            said.append(("label_many", [ids, y], {"t": t + 600.0, "version": "a"}))
        elif part % 3 == 0:
            for a, b, c, d, w in zip(ids, p, y, plan, amount):
                more = {"t": t, "segment": {"plan": d}, "w": w, "raw": b / 3, "version": "a"}
                said.append(("predict", [a, b], more))
                said.append(("label", [a, c], {"t": t + 60.0}))
            said.append(("flush", [], {}))
        else:
            fields = zip(ids, p, y, plan, amount)
            things = [
                {"id": a, "t": t, "p": b, "y": c, "plan": d, "amount": w, "version": "b"} for a, b, c, d, w in fields
            ]
            said.append(("take", [[json.dumps(things), "no JSON"]], {}))
        if part % 7 == 6:
            said.append(("advance", [t + 1500.0], {}))
        if part % 9 == 8:
            said.append(("evaluate", [], {}))
        if part % 13 == 12:
            said.append(("restart", [], {}))
    said.append(("label_many", [["b0-1", "b0-2"], [1, 1]], {"t": START + 73_000.0, "version": "a"}))
    said.append(("advance", [START + 200_000.0], {}))
    return {"calls.jsonl": b"".join(json.dumps(call).encode() + b"\n" for call in said)}


COMMON = 'state = "state.db"\nmax_unread = 1\naudit = "audit.jsonl"\nrecord = "taken.jsonl"\n'
SINKS = '[sinks.out]\ntype = "stdout"\n[sinks.file]\ntype = "file"\npath = "alerts.jsonl"\n'
EVENTS = '[sources.events]\ntype = "file"\npath = "events.jsonl"\ndead_letters = "letters.jsonl"\n'
CONFIGS = {
    "churn": COMMON
    + """every = "30m"
clock = "events"
[models.churn]
pos_label = "left"
neg_label = "stayed"
bins = 10
[join]
ahead = "3650d"
ttl = "8h"
hold = "2h"
maturity = "5m"
[segments]
fields = ["country"]
cap = 3
[windows.last]
events = 120
[windows.hours]
time = "6h"
panes = 6
[windows.made]
time = "4h"
panes = 4
by = "prediction"
[detectors.drift]
arl = 300
[rules.drift]
alarm = "drift"
segments = "each"
quiet = "3h"
cooldown = "1h"
severity = "critical"
runbook = "https://wiki.example/calibration"
[rules.gap]
metric = "k1"
window = "hours"
segments = "each"
above = 0.2
clear = 0.15
level = 0
min_count = 20
for = "1h"
[rules.sure]
metric = "k2_debiased"
window = "last"
versions = ["8"]
above = 0.005
level = 0.9
min_count = 50
severity = "info"
[rules.many]
metric = "oe_ratio"
window = "made"
segments = ["country=at", "other"]
below = 0.9
level = 0
min_count = 10
cooldown = "2h"
"""
    + SINKS
    + EVENTS,
    "quantile": COMMON
    + """every = "1h"
[models.demand]
claim = "quantile"
levels = [0.1, 0.5, 0.9]
edges = [20.0, 40.0]
tolerance = 0.02
[join]
ahead = "3650d"
ttl = "8h"
hold = "1h"
[segments]
fields = ["shop"]
[windows.last]
events = 150
[windows.day]
time = "1d"
panes = 12
[detectors.drift]
arl = 1000
[rules.drift]
alarm = "drift"
segments = "each"
quiet = "6h"
[rules.loss]
metric = "pinball_loss"
window = "last"
above = 2.0
level = 0
min_count = 40
[rules.quantiles]
metric = "q1"
window = "day"
segments = "each"
above = 0.1
level = 0
min_count = 30
"""
    + SINKS
    + EVENTS,
    "interval": COMMON
    + """every = "45m"
[models.range]
claim = "interval"
lower = 0.1
upper = 0.9
edges = [12.0, 18.0]
weight = "w"
[join]
ahead = "3650d"
ttl = "8h"
hold = "90m"
maturity = "10m"
[windows.last]
events = 100
[windows.hours]
time = "8h"
panes = 16
by = "prediction"
[detectors.narrow]
arl = 2000
tolerance = 0.01
[rules.narrow]
alarm = "narrow"
quiet = "4h"
[rules.coverage]
metric = "coverage"
window = "last"
below = 0.7
level = 0
min_count = 30
"""
    + SINKS
    + """[sources.predictions]
type = "file"
path = "predictions.jsonl"
dead_letters = "letters.jsonl"
[sources.labels]
type = "file"
path = "labels.jsonl"
dead_letters = "letters.jsonl"
""",
    "classes": COMMON
    + """every = "1h"
naive_times = "utc"
[models.top]
claim = "top_label"
classes = ["cat", "dog", "eel"]
raw = "raw"
bins = 6
[models.all]
claim = "marginal"
classes = ["cat", "dog", "eel"]
bins = 5
[join]
ahead = "3650d"
ttl = "8h"
[segments]
fields = ["place"]
[windows.last]
events = 80
[windows.hours]
time = "10h"
panes = 5
[detectors.drift]
arl = 5000
[detectors.top]
arl = 500
models = ["top"]
[rules.drift]
alarm = "drift"
quiet = "6h"
[rules.top]
alarm = "top"
models = ["top"]
segments = "each"
quiet = "5h"
[rules.loss]
metric = "brier"
window = "last"
above = 0.25
level = 0
min_count = 30
[rules.ece]
metric = "ece"
models = ["all"]
window = "hours"
above = 0.12
level = 0
min_count = 40
"""
    + SINKS
    + EVENTS,
    "pit": 'state = "state.db"\naudit = "audit.jsonl"\nrecord = "taken.jsonl"\nevery = "6h"\n[models.weather]\nclaim = "pit"\n'
    + "levels = [0.1, 0.25, 0.5, 0.75, 0.9]\n[join]\nahead = '3650d'\nttl = '1d'\n[detectors.drift]\narl = 800\n[rules.drift]\n"
    + 'alarm = "drift"\nquiet = "12h"\n[windows.days]\ntime = "2d"\n'
    + SINKS
    + EVENTS,
    "calls": COMMON
    + """every = "1h"
[models.fraud]
negative_sampling_rate = 0.25
weight = "amount"
raw = "raw"
binning = "log-odds"
bins = 8
[join]
ahead = "3650d"
ttl = "12h"
[segments]
fields = ["plan"]
[windows.last]
events = 100
[windows.day]
time = "1d"
panes = 24
[detectors.drift]
arl = 500
[rules.drift]
alarm = "drift"
segments = "each"
quiet = "8h"
[rules.ratio]
metric = "pa_ratio"
window = "day"
segments = "each"
below = 0.5
level = 0
min_count = 20
[rules.slope]
metric = "calibration_slope"
window = "day"
below = 0.5
level = 0.9
min_count = 40
[rules.log]
metric = "log_loss"
window = "last"
above = 0.4
level = 0
min_count = 20
"""
    + SINKS,
}
# the same monitor under another configuration from its second part on: what begins anew, what is watched no more
CONFIGS["changed"] = CONFIGS["churn"].replace("cap = 3", "cap = 2")
CHANGES = [
    ("events = 120", "events = 90"),
    ("arl = 300", "arl = 200"),
    ('[rules.gap]\nmetric = "k1"\nwindow = "hours"', '[rules.other]\nmetric = "ece"\nwindow = "hours"'),
    ("above = 0.005", "above = 0.05"),
]
MAKERS: dict[str, Callable[[], dict[str, bytes]]] = {
    "churn": churn,
    "quantile": demand_of_a_shop,
    "interval": ranges,
    "classes": animals,
    "pit": transforms,
    "calls": calls,
    "changed": churn,
}
CUTS = {"churn": 2, "quantile": 3, "classes": 2, "changed": 2}  # in so many parts, with a restart between them


def changed(text: str) -> str:
    for was, becomes in CHANGES:
        assert was in text, was
        text = text.replace(was, becomes)
    return text


def write_inputs(name: str) -> None:
    folder = RUNS / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(CONFIGS[name])
    if name == "changed":
        (folder / "config2.toml").write_text(changed(CONFIGS[name]))
        return  # its messages are those of churn
    for file, data in MAKERS[name]().items():
        (folder / file).write_bytes(data)


# -- a run -------------------------------------------------------------------------------------------------------------


def play(name: str, folder: Path, parts: int = 1) -> dict[str, str]:
    """A run in an empty folder: what came out, by name."""
    source = RUNS / name
    said: dict[str, str] = {}
    with inside(folder):
        Path("config.toml").write_text((source / "config.toml").read_text())
        if name == "calls":
            said["called.jsonl"] = _called((source / "calls.jsonl").read_text())
        else:
            _watched(name, source if name != "changed" else RUNS / "churn", parts, said)
        for json_or_not in ([], ["--json"]):
            said["status.json" if json_or_not else "status.txt"] = _run("status", "config.toml", *json_or_not)
        if name != "changed":  # a replay needs one configuration
            said["replay.txt"] = _run("replay", "config.toml")
        for file in FILES:
            if Path(file).exists():
                said[file] = Path(file).read_bytes().decode("utf-8", "backslashreplace")
        record = Path("taken.jsonl").read_bytes()
        said["taken.txt"] = f"{record.count(10)} lines, sha256 {hashlib.sha256(record).hexdigest()}\n"
        said["state.jsonl"] = rows_of("state.db")
    for pattern, becomes in NORMAL:
        said = {file: pattern.sub(becomes, text) for file, text in said.items()}
    return said


def _run(*args: str) -> str:
    code, out, err = streamcal(*args)
    return out + "".join(f"stderr: {line}\n" for line in err.splitlines()) + (f"exit code {code}\n" if code else "")


def _watched(name: str, source: Path, parts: int, said: dict[str, str]) -> None:
    files = {path.name: path.read_bytes().splitlines(keepends=True) for path in sorted(source.glob("*.jsonl"))}
    for part in range(parts):
        if part and name == "changed":
            Path("config.toml").write_text((RUNS / name / "config2.toml").read_text())
        for file, lines in files.items():
            with open(file, "ab") as out:
                out.writelines(lines[len(lines) * part // parts : len(lines) * (part + 1) // parts])
        said["watch.txt"] = said.get("watch.txt", "") + _run("watch", "--config", "config.toml", "--once")


def _called(text: str) -> str:
    """What each call of the monitor in Python gave, where it gave anything; the reports at the end."""
    from streamcal.monitor import Monitor

    lines = []
    monitor = Monitor("config.toml")
    with heard() as (out, _):
        for number, line in enumerate(text.splitlines(), 1):
            name, args, keywords = json.loads(line)
            if name == "restart":
                monitor.close()
                monitor = Monitor("config.toml")
                continue
            args = [[payload.encode() for payload in args[0]]] if name == "take" else args
            found = getattr(monitor, name)(*args, **keywords)
            if found and found != ([], 0):
                lines.append({"call": number, "found": found})
        for window in ("last", "day"):
            for segment in ("all", "plan=gold"):
                report = monitor.report(window, version="a", segment=segment)
                lines.append({"window": window, "segment": segment, "report": report})
        lines.append({"status": monitor.status(), "clock": monitor.clock, "notes": monitor.notes})
        monitor.close()
    lines.append({"stdout": out.getvalue().decode().splitlines()})
    return "".join(json.dumps(plain(line)) + "\n" for line in lines)


def rows_of(path: str) -> str:
    """Every row of every table of a state file, in the order of its key; documents as data that can be read."""
    file = sqlite3.connect(path)
    lines = []
    for (table,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall():
        names = [column[1] for column in file.execute(f"PRAGMA table_info({table})")]
        for row in file.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall():
            shown = [blob(value) if isinstance(value, bytes) else value for value in row]
            lines.append(json.dumps({"table": table, **dict(zip(names, shown))}))
    file.close()
    return "".join(line + "\n" for line in lines)


# -- tests -------------------------------------------------------------------------------------------------------------


def expected(name: str) -> dict[str, str]:
    """What came out of a run, by name."""
    return {path.name: path.read_bytes().decode() for path in sorted((RUNS / name / "expected").iterdir())}


def unlike(name: str, there: dict[str, str], got: dict[str, str]) -> list[str]:
    """Where a run came out otherwise."""
    exact, found = is_exact(), []
    for file in sorted({*there, *got}):
        if file not in there or file not in got:
            found.append(f"{file}: {'not expected' if file in got else 'expected'}")
        else:
            found += differences_of_text(there[file], got[file], exact, f"{name}/{file}")
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_a_run_comes_out_as_it_always_did(name, tmp_path):
    got = play(name, tmp_path, CUTS.get(name, 1))
    demand(unlike(name, expected(name), got), f"tests/process/test_golden_runs.py {name}")


@pytest.mark.parametrize("name", ["churn", "quantile", "classes"])
def test_a_run_without_a_restart_says_and_decides_the_same(name, tmp_path):
    """Alerts, audit, dead letters, record, and what status shows, are those of the run that was cut.

    In each batch what is no JSON comes first in the dead letters; segments of the audit stand in the order of their places,
    and what is firing in that in which it began since the last start: there the order is not looked at.
    """
    same = ("alerts.jsonl", "audit.jsonl", "letters.jsonl", "taken.txt", "status.json", "status.txt", "replay.txt")

    def ordered(said: dict[str, str]) -> dict[str, str]:
        lines = {file: [_sorted(line) for line in said[file].splitlines()] for file in same}
        lines["letters.jsonl"].sort()
        lines["status.txt"].sort()
        status = json.loads(said["status.json"])
        status["firing"].sort(key=json.dumps)
        lines["status.json"] = [json.dumps(status, sort_keys=True)]
        return {file: "\n".join(of) for file, of in lines.items()}

    demand(
        unlike(name, ordered(expected(name)), ordered(play(name, tmp_path))),
        f"tests/process/test_golden_runs.py {name}",
    )


def _sorted(line: str) -> str:
    return json.dumps(json.loads(line), sort_keys=True) if line.startswith("{") else line


def test_the_runs_hold_what_they_are_for():
    """A safety net with holes would be none: what must occur in the runs occurs in them."""
    texts = {name: expected(name) for name in CONFIGS}
    for name in CONFIGS:
        kinds = {json.loads(line)["kind"] for line in texts[name]["alerts.jsonl"].splitlines()}
        assert kinds >= ({"firing", "resolved"} if name != "pit" else {"firing"}), (name, kinds)
    status = json.loads(texts["churn"]["status.json"])
    assert {model["version"] for model in status["models"]} >= {"7", "8"}
    side, labels = status["models"][0]["predictions"], status["models"][0]["labels"]
    assert min(side[key] for key in ("joined", "expired", "duplicate", "conflicting")) > 0
    assert any("late" in model["predictions"]["reasons"] for model in status["models"])
    assert min(labels[key] for key in ("joined", "expired", "duplicate", "conflicting", "corrected")) > 0
    assert status["segments"]["churn"]["overflow"] > 0 and len(status["unread"]) > 3
    assert all(name in texts["churn"] for name in ("letters.jsonl", "audit.jsonl"))
    assert "begin" in texts["changed"]["watch.txt"] and "no longer watched" in texts["changed"]["alerts.jsonl"]
    assert all("the same decisions" in text["replay.txt"] for name, text in texts.items() if name != "changed")


# -- written anew ------------------------------------------------------------------------------------------------------


def main(args: list[str]) -> None:
    names = [name for name in args if not name.startswith("--")] or list(CONFIGS)
    for name in names:
        if "--inputs" in args:
            write_inputs(name)
        with tempfile.TemporaryDirectory() as folder:
            said = play(name, Path(folder), CUTS.get(name, 1))
        folder_of = RUNS / name / "expected"
        folder_of.mkdir(exist_ok=True)
        for path in folder_of.iterdir():
            path.unlink()
        for file, text in said.items():
            (folder_of / file).write_bytes(text.encode())
        print(f"{name}: {sum(map(len, said.values())):,} characters")
    WRITTEN_BY.write_text(json.dumps(fingerprint(), indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
