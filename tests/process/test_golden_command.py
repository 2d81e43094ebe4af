"""Golden output of the command on small files: what each call prints, its exit code, and the files that it writes.

tests/golden/command holds the tables that go in, and in `expected/` a file for each case. Floats: see golden_expectations.py.

    python tests/process/test_golden_command.py              # writes the expectations of all cases anew
    python tests/process/test_golden_command.py watch-time   # of these cases only
    python tests/process/test_golden_command.py --inputs     # the tables too (only to add one: old ones stay as they are)

To write them anew is to say that users shall get something else: look at `git diff tests/golden` before it is committed.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from golden_expectations import (
    GOLDEN,
    WRITTEN_BY,
    demand,
    differences_of_text,
    document,
    fingerprint,
    inside,
    is_exact,
    streamcal,
)

pytestmark = pytest.mark.jit
HERE = GOLDEN / "command"
WRONG = """every = "1m"
[models.churn]
claim = "men"
tresh = 1
[windows.day]
events = 0
[rules.gap]
metric = "k3"
window = "week"
abov = 0.05
[sinks.ops]
type = "webhook"
"""
# the calls of each case, one after the other in one folder
CASES: dict[str, list[str]] = {
    "report": ["report events.csv"],
    "report-json": ["report events.csv --json"],
    "report-segments": ["report events.csv --segment country --max-segments 3 --bins 6"],
    "report-mass": ["report events.csv --binning uniform-mass --bins 5 --weight w --json"],
    "report-log-odds": ["report events.csv --binning log-odds --bins 7"],
    "report-limits": ['report events.csv --fail-if ece>0.01 --fail-if brier<0.1 --fail-if "k2_debiased > 0.5"'],
    "report-strict": ["report bad.csv --strict", "report bad.csv", "report bad.csv --max-bad 0.1", "report no.csv"],
    "report-classes": ["report classes.jsonl --top-label cat,dog,eel --y kind", "report classes.jsonl --top-label c*"],
    "report-label": ["report labels.csv --p score --y outcome --pos-label yes --time at --segment plan"],
    "watch-count": ["watch events.csv --window 200 --idle-exit 0.1"],
    "watch-json": ["watch events.csv --window 250 --idle-exit 0.1 --json --fail-if ece>0.1"],
    "watch-time": ["watch labels.csv --p score --y outcome --pos-label yes --time at --window 2h --lateness 1h"],
    "watch-alarm": ["watch events.csv --window 300 --idle-exit 0.1 --alarm arl=300,tolerance=0.01 --fail-on-alarm"],
    "check": ["check wrong.toml", "check right.toml"],
    "usage": [
        "watch",
        "report events.csv --bins 0",
        "fit events.csv -o m --method plat",
        "status no.db",
        "apply no events.csv",
    ],
    **{
        f"fit-{method}": [
            f"fit events.csv -o map --method {method}",
            "apply map events.csv -o wide.csv --bins 6",
            "apply map more.jsonl --p p -o wide.jsonl --column q --json",
        ]
        for method in ("platt", "beta", "temperature", "isotonic", "histogram", "scaling-binning", "patching")
    },
    "fit-settings": [
        "fit events.csv -o map --method histogram --set n_bins=4 --set binning=equal-width --weight w --json",
        "fit events.csv -o map --method one-shot-patching --set levels=20",
        "apply map more.jsonl",
    ],
}
CASES["watch-time"][0] += " --idle-exit 0.1 --max-bad 0.1"


def write_inputs() -> None:
    """Tables of a model that is too sure, some with cells that cannot be read."""
    rng = random.Random(11)
    HERE.mkdir(exist_ok=True)

    def event() -> tuple[float, int]:
        p = round(rng.random(), 3)
        return p, int(rng.random() < (0.25 + 0.5 * p if rng.random() < 0.7 else p))

    def table(name: str, lines: list[str]) -> None:
        (HERE / name).write_text("\n".join(lines) + "\n")

    rows = []
    for _ in range(700):
        p, y = event()
        rows.append(f"{p},{y},{rng.choice(['at', 'de', 'ch', 'fr', 'it'])},{rng.randrange(1, 4)}")
    table("events.csv", ["p,y,country,w", *rows])
    wrong = ["x,1,at,1", "0.5,,de,1", "1.5,0,ch,1", "0.4,2,fr,1", "0.3,1,it,-1", "0.2,1", "nan,0,at,1"]
    table("bad.csv", ["p,y,country,w", *rows[:20], *wrong, *rows[20:60]])
    labels = []
    for i in range(300):
        p, y = event()
        minute = 3 * i - (150 if i % 29 == 11 else 0)
        at = f"2026-03-{1 + max(minute, 0) // 1440:02d}T{max(minute, 0) // 60 % 24:02d}:{max(minute, 0) % 60:02d}:00Z"
        labels.append(f"{at},{p},{'yes' if y else 'no'},{rng.choice(['free', 'gold'])}")
    table("labels.csv", ["at,score,outcome,plan", *labels])
    table("more.jsonl", [json.dumps(dict(zip(("p", "y"), event()), note=f"é{i}")) for i in range(60)])
    classes = []
    for _ in range(200):
        x = [0.05 + rng.random() for _ in range(3)]
        p = [round(v / sum(x), 4) for v in x]
        classes.append(json.dumps({**dict(zip(("cat", "dog", "eel"), p)), "kind": rng.choice(("cat", "dog", "eel"))}))
    table("classes.jsonl", classes)
    (HERE / "wrong.toml").write_text(WRONG)
    (HERE / "right.toml").write_text('[models.churn]\n[sinks.log]\ntype = "stdout"\n')


def play(name: str, folder: Path) -> str:
    """What the calls of a case print, and the files that they leave."""
    tables = {path.name for path in HERE.iterdir() if path.is_file()}
    for table in tables:
        shutil.copy(HERE / table, folder)
    lines = []
    with inside(folder):
        for call in CASES[name]:
            code, out, err = streamcal(*_words(call))
            lines += [f"$ streamcal {call}", *out.splitlines(), *(f"stderr: {line}" for line in err.splitlines())]
            lines.append(f"exit code {code}")
        for path in sorted(Path().iterdir()):
            if path.name in tables or not path.is_file():
                continue
            data = path.read_bytes()
            lines.append(f"# {path.name}")
            text = json.dumps(document(data)) if data.startswith(b'{"streamcal":') else data.decode()
            kept = text.splitlines()
            lines += kept if len(kept) <= 12 else [*kept[:12], f"... {len(kept)} lines"]
    return "\n".join(lines) + "\n"


def _words(call: str) -> list[str]:
    return [word.strip('"') for word in call.replace('"k2_debiased > 0.5"', "k2_debiased>0.5").split()]


@pytest.mark.parametrize("name", CASES)
def test_the_command_says_and_writes_the_same(name, tmp_path):
    want = (HERE / "expected" / f"{name}.txt").read_bytes().decode()
    found = differences_of_text(want, play(name, tmp_path), is_exact(), name)
    demand(found, f"tests/process/test_golden_command.py {name}")


def main(args: list[str]) -> None:
    if "--inputs" in args:
        write_inputs()
    (HERE / "expected").mkdir(exist_ok=True)
    for name in [name for name in args if not name.startswith("--")] or list(CASES):
        with tempfile.TemporaryDirectory() as folder:
            text = play(name, Path(folder))
        (HERE / "expected" / f"{name}.txt").write_bytes(text.encode())
        print(f"{name}: {len(text):,} characters")
    WRITTEN_BY.write_text(json.dumps(fingerprint(), indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
