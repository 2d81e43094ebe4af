"""How every command ends: one exit code of the table, at most one line, whatever happens to the streams, the disk or to us."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamcal.command import report
from streamcal.command.ending import EXIT_CODES
from streamcal.command.main import app
from streamcal.reading import SourceError
from streamcal.reading.rewritten import replacing
from streamcal.recalibrate import PlattScaling

UNIX = pytest.mark.skipif(os.name == "nt", reason="streams and signals of Unix")
ROWS = "p,y\n" + "".join(f"{i % 10 / 10 + 0.05:.2f},{i % 3 // 2}\n" for i in range(300))


def call(*args: object, stdin: bytes | None = None) -> Any:
    return CliRunner().invoke(app, [str(a) for a in args], input=stdin)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(ROWS)
    Path("platt.cal").write_bytes(PlattScaling().fit([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1]).to_bytes())
    Path("c.toml").write_text(
        'state = "s.db"\n[models.m]\n[sources.e]\ntype = "file"\npath = "e.jsonl"\n[sinks.out]\ntype = "stdout"\n'
    )
    Path("e.jsonl").write_text('{"id": 1, "t": 1, "p": 0.5, "y": 1}\n')
    return tmp_path


def test_the_table_is_what_help_prints() -> None:
    words = " ".join(call("--help").stdout.split())
    for code, meaning in EXIT_CODES.items():
        assert f" {code} {meaning}" in words


# ---- closed streams: each command in one process, the streams closed before Python starts

EACH = """
import sys
from streamcal.command.main import main
codes = []
for line in open("commands"):
    sys.argv = ["streamcal", *line.split()]
    try:
        main()
    except SystemExit as error:
        codes.append(str(error.code))
open("codes", "w").write(" ".join(codes))
"""
COMMANDS = {  # the codes where standard input, where standard output is closed; nothing changes where standard error is
    "report t.csv": (0, 0),
    "report -": (2, 2),
    "report nothing.csv": (2, 2),
    "watch - --window 10": (2, 2),
    "watch t.csv --idle-exit 0": (0, 0),
    "watch --config c.toml --once": (0, 0),
    "fit t.csv -o new.cal": (0, 0),
    "fit t.csv -o -": (0, 2),
    "apply platt.cal t.csv -o -": (0, 2),
    "apply platt.cal -": (2, 2),
    "check c.toml": (0, 0),
    "status c.toml": (0, 0),
    "report t.csv --zzz": (2, 2),
    "--help": (0, 0),
}


@UNIX
@pytest.mark.parametrize(
    ("closed", "which"), [("<&-", 0), (">&-", 1), ("2>&-", 0), ("<&- >&- 2>&-", 1)], ids=["in", "out", "error", "all"]
)
def test_closed_streams_neither_hang_nor_look_like_a_limit(folder: Path, closed: str, which: int) -> None:
    Path("commands").write_text("\n".join(COMMANDS))
    Path("each.py").write_text(EACH)
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" each.py {closed}', sys.executable],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = dict(zip(COMMANDS, map(int, Path("codes").read_text().split()), strict=True))
    assert found == {command: codes[which] for command, codes in COMMANDS.items()}
    assert b"Traceback" not in done.stderr
    assert Path("t.csv").read_text() == ROWS  # nothing was written into a file by a number of its stream


@UNIX
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is always full")
@pytest.mark.parametrize("command", ["check c.toml", "apply platt.cal t.csv -o -"])
def test_a_full_disk_behind_a_redirection_is_a_line_and_2(folder: Path, command: str) -> None:
    code = "from streamcal.command.main import main; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "No space left on device" in done.stderr


@UNIX
@pytest.mark.parametrize(
    "command", ["apply platt.cal t.csv -o out.csv", "fit t.csv -o out.csv", "report t.csv --plot out.svg"]
)
def test_a_full_disk_leaves_no_half_file(folder: Path, command: str) -> None:
    import resource

    if "--plot" in command:
        pytest.importorskip("matplotlib")
    Path("out.csv").write_text("precious")
    before, limits = sorted(os.listdir()), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))  # bytes: as a full disk, but for this process alone
    try:
        result = call(*command.split())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    option = "--plot out.svg" if "--plot" in command else "--out out.csv"
    assert (result.exit_code, result.stderr) == (2, f"streamcal: {option}: File too large\n")
    assert sorted(os.listdir()) == before and Path("out.csv").read_text() == "precious"


# ---- whatever comes out of a command


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (TypeError("a\x1b[2J\nb"), 70, "internal error: TypeError: a\\x1b[2J\\x0ab (STREAMCAL_DEBUG=1 shows where)"),
        (RecursionError("deep"), 70, "internal error: RecursionError: deep (STREAMCAL_DEBUG=1 shows where)"),
        (MemoryError(), 2, "not enough memory"),
        (MemoryError("Unable to allocate 8 GB"), 2, "not enough memory: Unable to allocate 8 GB"),
        (OSError(5, "Input/output error"), 2, "t.csv: Input/output error"),
        (FileNotFoundError(2, "No such file or directory", "x\x07"), 2, "x\\x07: No such file or directory"),
        (SourceError("one", "two\nthree"), 2, "t.csv: one\ntwo\\x0athree"),
        (KeyboardInterrupt(), 130, None),
        (BrokenPipeError(32, "Broken pipe"), 0, None),
        (SystemExit(143), 143, None),
    ],
)
def test_what_comes_out_becomes_a_code_and_a_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str | None
) -> None:
    def run(*_: object) -> int:
        raise error

    monkeypatch.setattr(report, "run", run)  # an error of ours cannot be had for real: it would be mended
    monkeypatch.delenv("STREAMCAL_DEBUG", raising=False)
    result = call("report", "t.csv")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == ("" if said is None else f"streamcal: {said}\n")
    monkeypatch.setenv("STREAMCAL_DEBUG", "1")
    shown = call("report", "t.csv")
    assert shown.exit_code == code
    assert ("Traceback" in shown.stderr) == (said is not None)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("report", "Missing argument 'file'; see streamcal report --help"),
        ("report t.csv --zzz", "No such option: --zzz; see streamcal report --help"),
        ("nothing", "No such command 'nothing'; see streamcal --help"),
        ("report t.csv x\x1b", "Got unexpected extra argument(s) (x\\x1b); see streamcal report --help"),
        ("report t.csv --bins 100001", "t.csv: --bins: at most 100,000, got 100,001"),
    ],
)
def test_usage_is_one_line_and_2(folder: Path, command: str, said: str) -> None:
    result = call(*command.split(" "))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.removeprefix("streamcal: ").removeprefix("t.csv: ").strip() == said.removeprefix("t.csv: ")


@pytest.mark.parametrize("limit", ["ece > 1e400", "ece > inf", "log_loss >= -Infinity", "ece > nan"])
def test_a_limit_that_nothing_can_cross_is_refused(folder: Path, limit: str) -> None:
    result = call("report", "t.csv", "--fail-if", limit)
    assert result.exit_code == 2 and "a finite number" in result.stderr


# ---- files that are there whole or not at all


@UNIX
def test_a_new_file_is_private_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        for name, mode in (("new", None), ("old", 0o640), ("wide", 0o666), ("closed", 0o400)):
            path = tmp_path / name
            if mode is not None:
                path.write_text("old")
                path.chmod(mode)
            with replacing(str(path)) as file:
                beside = [p for p in tmp_path.iterdir() if p.suffix == ".part"]
                assert [p.stat().st_mode & 0o777 for p in beside] == [mode or 0o600]  # before anything is in it
                file.write(b"new")
            assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", mode or 0o600)
    finally:
        os.umask(before)


@UNIX
def test_a_link_that_lies_in_wait_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name cannot be foreseen; if it could be, the file would be refused."""
    victim, out = tmp_path / "victim", tmp_path / "map.cal"
    victim.write_text("precious")
    monkeypatch.setattr("secrets.token_hex", lambda n: "foreseen")
    (tmp_path / "map.cal.foreseen.part").symlink_to(victim)
    with pytest.raises(SourceError, match="--out .*map.cal: File exists"), replacing(str(out)) as file:
        file.write(b"new")
    assert victim.read_text() == "precious" and not out.exists()


def test_a_name_as_long_as_the_system_allows(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    with replacing(str(path)) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


HALF = """
import sys
from streamcal.reading.rewritten import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("written", flush=True)
    sys.stdin.read()
"""


@UNIX
@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", -signal.SIGINT)])
def test_a_signal_leaves_no_half_file(tmp_path: Path, number: str, code: int) -> None:
    (tmp_path / "out").write_text("precious")
    process = subprocess.Popen(
        [sys.executable, "-c", HALF, str(tmp_path / "out")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"written\n"
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(getattr(signal, number))
        assert process.wait(60) == code
    finally:
        process.kill()
        process.communicate()
    assert [p.name for p in tmp_path.iterdir()] == ["out"] and (tmp_path / "out").read_text() == "precious"


@UNIX
def test_ctrl_c_in_apply_is_130_and_leaves_no_half_file(folder: Path) -> None:
    code = "from streamcal.command.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "apply", "platt.cal", "-", "-o", "out.csv"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    try:
        assert process.stdin is not None
        process.stdin.write(ROWS.encode() * 200)  # more than what is looked at for columns
        process.stdin.flush()
        for _ in itertools.takewhile(lambda _: not list(folder.glob("*.part")), range(600)):
            time.sleep(0.05)
        assert list(folder.glob("*.part"))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, errors) == (130, b"")
    assert not list(folder.glob("out*"))
