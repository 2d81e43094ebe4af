"""Names and lines of strangers at the places that print: nothing acts on a terminal, and no line of theirs is one of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamcal.command.main import app
from streamcal.reading.shown import HOSTILE

EVIL = "\x1b[2J\x07\x9b\u202e\u2028\nFORGED: limit held"
ROWS = [(i % 10 / 10 + 0.05, i % 3 // 2, f"{EVIL}{i % 3}") for i in range(300)]


def harmless(*args: object, codes: tuple[int, ...] = (0,), shows: bool = True) -> str:
    """What a command prints, looked through."""
    result = CliRunner().invoke(app, [str(a) for a in args])
    said = result.stdout + result.stderr
    assert result.exit_code in codes, said
    assert not HOSTILE.search(said.replace("\n", "")), ascii(HOSTILE.search(said.replace("\n", "")))
    assert not any(line.startswith("FORGED") for line in said.splitlines()), said
    assert ("\\x1b" in said or "\\u001b" in said) == shows, said  # the name was printed, and is harmless
    return said


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    quoted = EVIL.replace('"', '""')
    rows = "".join(f'{p},{y},"{segment}"\n' for p, y, segment in ROWS)
    Path(f"t{EVIL[:5]}.csv").write_text(f'p,y,"{quoted}"\n{rows}')
    Path("bad.jsonl").write_text(
        "".join(json.dumps({"p": p, "y": y}) + "\n" for p, y, _ in ROWS) + EVIL.replace("\n", "") + "\n"
    )
    return tmp_path


@pytest.mark.skipif(os.name == "nt", reason="names of Unix")
def test_no_command_prints_what_acts_on_a_terminal(folder: Path) -> None:
    table, column = f"t{EVIL[:5]}.csv", EVIL
    harmless("report", table, "--segment", column)
    found = json.loads(harmless("report", table, "--segment", column, "--json"))
    assert sorted(part["segment"] for part in found["segments"]) == sorted(
        {segment for *_, segment in ROWS}
    )  # the same JSON
    harmless("report", table, "--p", "nothing", codes=(2,))
    harmless("report", table, "--p", column, codes=(2,))
    harmless("report", table, "--y", column, codes=(2,))
    harmless("report", table, "--fail-if", EVIL, codes=(2,))
    harmless("report", "bad.jsonl", "--max-bad", 0.5)
    harmless("report", "bad.jsonl", "--strict", codes=(2,))
    harmless("report", f"nothing{EVIL}", codes=(2,))
    for json_too in ((), ("--json",)):
        harmless(
            "watch", table, "--segment", column, "--idle-exit", 0, "--window", 100, "--alarm", "arl=100", *json_too
        )
    harmless("fit", table, "-o", f"map{EVIL[:3]}.cal")
    harmless("apply", f"map{EVIL[:3]}.cal", table, shows=False)  # names nothing
    harmless("apply", f"map{EVIL[:3]}.cal", table, "-o", f"no{EVIL}/folder/x", codes=(2,))
    harmless("check", f"nothing{EVIL}.toml", codes=(2,))
    harmless("status", f"nothing{EVIL}.db", codes=(2, 4))


@pytest.mark.skipif(os.name == "nt", reason="names of Unix")
def test_a_configuration_with_hostile_text_is_refused_harmlessly(folder: Path) -> None:
    Path("c.toml").write_text('[models."a\\u001b[2J\\nFORGED"]\nnothing = 1\n')
    harmless("check", "c.toml", codes=(2,))
    harmless("watch", "--config", "c.toml", "--once", codes=(2,))
    harmless("status", "c.toml", codes=(2,))


# ---- systems that have not all of Unix

LESS = """
import os, signal, sys
del signal.SIGHUP, os.O_NOFOLLOW, os.fchmod
from streamcal.command.main import main
for line in (["fit", "t.csv", "-o", "m.cal"], ["apply", "m.cal", "t.csv", "-o", "out.csv"],
             ["watch", "t.csv", "--idle-exit", "0"],
             ["check", "c.toml"], ["watch", "--config", "c.toml", "--once"], ["status", "c.toml"]):
    sys.argv = ["streamcal", *line]
    try:
        main()
    except SystemExit as error:
        assert error.code == 0, (line, error.code)
"""


@pytest.mark.skipif(os.name == "nt", reason="takes away what Unix has")
def test_the_command_works_without_sighup_nofollow_and_fchmod(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("p,y\n" + "".join(f"{p},{y}\n" for p, y, _ in ROWS))
    (tmp_path / "e.jsonl").write_text('{"id": 1, "t": 1, "p": 0.5, "y": 1}\n')
    (tmp_path / "c.toml").write_text('state = "s.db"\n[models.m]\n[sources.e]\ntype = "file"\npath = "e.jsonl"\n')
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", LESS], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.csv").exists() and not list(tmp_path.glob("*.part"))
