"""Tables that cannot be read, or can be read in two ways: a question and exit code 2 in place of a verdict, never a traceback.

Each case is a table and what the command says of it; the cases that are clear stand among them and end with 0. All of them
as a file and through a pipe, by `report`; those of the outcomes and scores by `watch`, `fit` and `apply` too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from streamcal.command.main import app
from streamcal.recalibrate import PlattScaling
from streamcal.reporting.text import WIDTH, wrapped

RNG = np.random.default_rng(7)
N = 400
T = RNG.beta(0.6, 2.5, N)  # what is true, as in the cases of the fault list
Y = (RNG.random(N) < T).astype(int)
P = T.round(4)


def table(p: Iterable[Any] = P, y: Iterable[Any] = Y, head: str = "p,y", *more: Iterable[Any]) -> bytes:
    rows = zip(p, y, *more, strict=True)
    return "\n".join([head, *(",".join(map(str, row)) for row in rows), ""]).encode()


def named(one: Any, zero: Any) -> list[Any]:
    return [one if y else zero for y in Y]


def some(share: float, odd: Any, column: Iterable[Any] = Y) -> list[Any]:
    """The column with this share of other values, spread over it."""
    every = round(1 / share)
    return [odd if i % every == every // 2 else value for i, value in enumerate(column)]


def jsonl(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def classes(names: tuple[str, ...], labels: tuple[Any, ...], scale: float = 1.0) -> bytes:
    """Three classes, right 80 % of the time, with probability .8."""
    best = RNG.integers(0, 3, N)
    label = np.where(RNG.random(N) < 0.8, best, (best + 1) % 3)
    p = np.where(best[:, None] == np.arange(3), 0.8, 0.1) * scale
    rows = [",".join([*map(str, row), str(labels[k])]) for row, k in zip(p.round(3).tolist(), label, strict=True)]
    return "\n".join([",".join([*names, "y"]), *rows, ""]).encode()


def one_sided(labels: tuple[Any, Any]) -> bytes:
    rows = ["p_1,p_2,p_3,y", *(f".1,.8,.1,{labels[i % 2]}" for i in range(N))]
    return "\n".join([*rows, ""]).encode()


TIMES = [1_770_000_000 + 60 * i for i in range(N)]
LOGITS = np.log(np.clip(T, 1e-9, 1) / (1 - T)).round(4)
TOP = ("--top-label", "p_*")
TIMED = ("--time", "t")
# name: table, options, exit code, a piece of what is said (stdout and stderr)
CASES: dict[str, tuple[bytes, tuple[str, ...], int, str]] = {
    # -- outcomes
    "0 and 1": (table(), (), 0, "calibrated as far as"),
    "-1 and 1": (table(y=named(1, -1)), (), 2, "-1 ("),
    "-1 and 1, said": (table(y=named(1, -1)), ("--pos-label", "1"), 0, "is 1; -1 ("),
    "-1 for unlabelled": (table(y=some(0.2, -1)), ("--missing", "-1"), 0, "calibrated as far as"),
    "0, 1 and -1": (table(y=some(0.2, -1)), (), 2, "which are missing with --missing"),
    "1 and 2": (table(y=named(2, 1)), (), 2, "say which is 1 with --pos-label"),
    "only 1 and a rare -1": (table(y=some(0.005, -1, [1] * N)), (), 2, "-1 (2)"),
    "yes and no": (table(y=named("yes", "no")), (), 0, "outcomes: yes ("),
    "Y and N": (table(y=named("Y", "N")), (), 0, "outcomes: Y ("),
    "t and f": (table(y=named("t", "f")), (), 0, "outcomes: t ("),
    "TRUE and False": (table(y=named("TRUE", "False")), (), 0, "outcomes: TRUE ("),
    "left and stayed": (table(y=named("left", "stayed")), (), 2, "stayed ("),
    "left and stayed, said": (table(y=named("left", "stayed")), ("--pos-label", "left"), 0, "left ("),
    "click and no click": (table(y=named("click", "no click")), (), 2, "'no click' ("),
    "ja and nein": (table(y=named("ja", "nein")), (), 2, "--pos-label"),
    "pos-label of another case": (table(y=named("yes", "no")), ("--pos-label", "Yes"), 2, "--pos-label Yes never came"),
    "pos-label that never comes": (table(y=named("ok", "bad")), ("--pos-label", "fraud"), 2, "the outcomes are bad ("),
    "? for unknown": (table(y=some(0.3, "?")), ("--pos-label", "1"), 0, "y 133"),
    "pending for unknown": (table(y=some(0.3, "Pending")), (), 0, "missing 133 (y 133)"),
    "all kinds of missing": (table(y=some(0.5, "N/A", some(0.25, "<NA>"))), (), 0, "missing"),
    "three outcomes": (table(y=some(0.1, "Left", named("left", "stayed"))), ("--pos-label", "left"), 2, "--neg-label"),
    "three outcomes, said": (
        table(y=some(0.1, "moved", named("left", "stayed"))),
        ("--pos-label", "left", "--neg-label", "stayed", "--neg-label", "moved"),
        0,
        "left (",
    ),
    "a third that is refused": (
        table(y=some(0.1, "moved", named("left", "stayed"))),
        ("--pos-label", "left", "--neg-label", "stayed"),
        2,
        "moved (40)",
    ),
    "neg-label alone": (table(), ("--neg-label", "0"), 2, "--neg-label goes with --pos-label"),
    "fractions as outcomes": (table(y=P), (), 2, "and not 0/1"),
    "swapped columns": (table(), ("--p", "y", "--y", "p"), 2, "and not 0/1"),
    "one typo in 400": (table(y=some(0.0025, "O")), (), 0, "bad cells 1"),
    "typos beyond the share": (table(y=some(0.02, "O")), (), 2, "O (8)"),
    "no label yet": (table(y=[""] * N), (), 2, "cannot be judged: no events: 400 outcomes missing"),
    "all labels words": (table(y=["maybe"] * N), (), 2, "maybe (400)"),
    # -- scores
    "percent": (table((100 * P).round(2)), (), 2, "looks like percent: --scale percent"),
    "percent, said": (table((100 * P).round(2)), ("--scale", "percent"), 0, "calibrated as far as"),
    "a few above 1": (
        table([1.7 if i % 30 == 0 else p for i, p in enumerate(P)]),
        (),
        2,
        "most within; if all are percent",
    ),
    "percent signs": (table([f"{100 * p:.2f}%" for p in P]), (), 2, "percent signs: --scale percent"),
    "percent signs, said": (table([f"{100 * p:.2f}%" for p in P]), ("--scale", "percent"), 0, "calibrated as far as"),
    "logits": (table(LOGITS), (), 2, "looks like logits: --scale logit"),
    "logits, said": (table(LOGITS), ("--scale", "logit"), 0, "calibrated as far as"),
    "a thousand points": (table((1000 * P).round(1)), (), 2, "above 100"),
    "unknown scale": (table(), ("--scale", "per mille"), 2, "--scale must be one of unit percent logit"),
    "a few outside": (table(some(0.0025, 1.5, P)), (), 0, "column p: '1.5'"),
    "decimal comma": (table([f'"{p}"'.replace(".", ",") for p in P]), (), 2, "--decimal ,"),
    "decimal comma, said": (table([f'"{p}"'.replace(".", ",") for p in P]), ("--decimal", ","), 0, "calibrated as far"),
    "semicolons and commas": (table(P, Y).replace(b",", b";").replace(b".", b","), (), 2, "--decimal ,"),
    "semicolons and commas, said": (
        table(P, Y).replace(b",", b";").replace(b".", b","),
        ("--decimal", ","),
        0,
        "calibra",
    ),
    "commas without quotes": (table(P, Y).replace(b".", b","), (), 2, "cells instead of 2"),
    "words as scores": (table(some(0.1, "high", P)), (), 2, "'high'"),
    "no score at all": (table(["n/a"] * N), (), 2, "cannot be judged: no events: 400 predictions missing"),
    "neither": (
        table([*P[:9], *[""] * (N - 9)], [*[""] * 9, *Y[9:]]),
        (),
        2,
        "no events: 9 outcomes missing, 391 pred",
    ),
    "no weight": (table(P, Y, "p,y,w", [""] * N), ("--weight", "w"), 2, "no events: 400 weights missing"),
    "no time": (table(P, Y, "p,y,t", [""] * N), TIMED, 2, "no events: 400 times missing"),
    "all refused, as allowed": (table([7] * N), ("--max-bad", "1"), 2, "no events: 400 lines refused"),
    # -- classes
    "p_1 .. p_3 and 0 .. 2": (classes(("p_1", "p_2", "p_3"), (0, 1, 2)), TOP, 0, "calibrated as far as"),
    "p_1 .. p_3 and 1 .. 3": (classes(("p_1", "p_2", "p_3"), (1, 2, 3)), TOP, 0, "calibrated as far as"),
    "p_1 .. p_3 and 1, 2": (one_sided((1, 2)), TOP, 2, "--labels names or --labels indices"),
    "p_1 .. p_3 and 1, 2, said": (one_sided((1, 2)), (*TOP, "--labels", "indices"), 0, "not calibrated"),
    "names and indices mixed": (classes(("p_a", "p_b", "p_c"), ("a", "b", 2)), TOP, 2, "are names of classes, and 2 ("),
    "classes that are none": (classes(("p_a", "p_b", "p_c"), ("x", "y", "z")), TOP, 2, "are no classes"),
    "rows that sum to 1.5": (classes(("p_a", "p_b", "p_c"), ("a", "b", "c"), 1.2), TOP, 2, "do not sum to 1"),
    "two of three classes": (classes(("p_a", "p_b", "q"), ("a", "b", "a")), TOP, 2, "do not sum to 1"),
    "classes in percent": (classes(("p_a", "p_b", "p_c"), ("a", "b", "c"), 100), TOP, 2, "looks like percent"),
    # -- columns
    "no header": (table().split(b"\n", 1)[1], (), 2, "is there no header?"),
    "no header, columns named": (
        table().split(b"\n", 1)[1],
        ("--p", "score", "--y", "label"),
        2,
        "is there no header?",
    ),
    "scikit-learn's names": (table(head="y_proba,y_true"), (), 0, "--p y_proba taken"),
    "names of ads": (table(head="pctr,clicked"), (), 0, "--y clicked taken"),
    "two scores": (table(P, Y, "pctr,click,pcvr", P), (), 2, "several columns could be p: pctr, pcvr"),
    "two outcomes": (table(P, Y, "score,click,conversion", Y), (), 2, "several columns could be y: click, conversion"),
    "unusual names": (table(head="chance,won"), (), 2, "say which it is with --p"),
    "a column twice": (table(P, Y, "p,y,p", P), (), 2, "appears 2 times"),
    # -- times
    "days since 1970": (
        table(P, Y, "p,y,t", [20_000 + i // 9 for i in range(N)]),
        TIMED,
        0,
        "days are --time-format d",
    ),
    "days, said": (table(P, Y, "p,y,t", [20_000] * N), (*TIMED, "--time-format", "d"), 0, "2024-10-04"),
    "milliseconds": (table(P, Y, "p,y,t", [1000 * t for t in TIMES]), TIMED, 2, "--time-format ms, us or ns"),
    "some milliseconds": (
        table(P, Y, "p,y,t", some(0.05, TIMES[0] * 1000, TIMES)),
        TIMED,
        2,
        "column t: '1770000000000'",
    ),
    "some zeros for times": (table(P, Y, "p,y,t", some(0.05, 0, TIMES)), TIMED, 2, "column t: '0'"),
    "day first": (table(P, Y, "p,y,t", ["01-09-2018"] * N), TIMED, 2, "say what it is with --time-format"),
    # -- the file
    "empty": (b"", (), 2, "empty"),
    "a header alone": (b"p,y\n", (), 2, "no rows"),
    "UTF-16": (table().decode().encode("utf-16"), (), 2, "UTF-16"),
    "zeros": (b"p,y\n0.5,1\n\0\0\0\n", (), 2, "not a text file"),
    "ragged": (table(P, some(0.1, "1,1")), (), 2, "3 cells instead of 2"),
    "JSON, half of it broken": (
        jsonl({"p": p, "y": int(y)} for p, y in zip(P, Y, strict=True)) + b"{\n" * N,
        (),
        2,
        "no",
    ),
    "JSON with -1": (jsonl({"p": p, "y": int(2 * y - 1)} for p, y in zip(P, Y, strict=True)), (), 2, "-1 ("),
    "JSON with true": (jsonl({"p": p, "y": bool(y)} for p, y in zip(P, Y, strict=True)), (), 0, "true ("),
    "JSON without labels": (jsonl({"p": p} for p in P), (), 2, "no column 'y'"),
}


def call(*args: object, stdin: bytes | None = None) -> Any:
    return CliRunner().invoke(app, [str(a) for a in args], input=stdin)


def flat(result: Any) -> str:
    return " ".join((result.stdout + " " + result.stderr).split())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("piped", [False, True], ids=["file", "pipe"])
def test_report(name: str, piped: bool, tmp_path: Path) -> None:
    data, options, code, said = CASES[name]
    path = tmp_path / "in"
    path.write_bytes(data)
    result = call("report", "-", *options, stdin=data) if piped else call("report", path, *options)
    assert (result.exit_code, said in flat(result)) == (code, True), flat(result)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if code:
        assert not {"ece", "calibrated:"} & {*result.stdout.split()}
    if code and result.stdout:
        for typed in re.findall(r"--[a-z-]+ [^ ,;:)]+", said):
            assert typed in result.stdout, "broken at the end of a line"
        found = json.loads(call("report", path, *options, "--json").stdout)
        assert found["verdict"].startswith("cannot be judged: ")
        assert "metrics" not in found


# Those that are about the values of one score and one outcome: every command reads them, and none judges.
BEFORE_CLASSES = [*CASES][: [*CASES].index("p_1 .. p_3 and 0 .. 2")]
READ = [name for name in BEFORE_CLASSES if name != "unknown scale" and "no events" not in CASES[name][3]]


@pytest.fixture(scope="module")
def map_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("map") / "map.cal"
    path.write_bytes(PlattScaling().fit(P, Y).to_bytes())
    return path


@pytest.mark.parametrize("name", READ)
def test_watch_fit_and_apply(name: str, map_file: Path, tmp_path: Path) -> None:
    data, options, code, said = CASES[name]
    path, out = tmp_path / "in.csv", tmp_path / "map.cal"
    path.write_bytes(data)
    watched = call("watch", path, *options, "--window", N // 4, "--idle-exit", 0, "--fail-if", "ece > 0.9")
    fitted = call("fit", path, *options, "-o", out)
    applied = call("apply", map_file, path, *options, "-o", tmp_path / "new.csv")
    calls: dict[str, Callable[[], Any]] = {"watch": lambda: watched, "fit": lambda: fitted, "apply": lambda: applied}
    if name != "commas without quotes":  # whose rows are ragged: apply sees that they have no prediction
        for command, of in calls.items():
            harmful = (
                command == "fit" and code == 0 and of().exit_code == 1
            )  # these predictions are calibrated: no map helps
            assert (of().exit_code, code == 0 or said in flat(of())) == (int(harmful) or code, True), (
                command,
                flat(of()),
            )
    assert out.exists() == (code == 0)
    if code:
        assert not {"ece", "calibrated:"} & {*watched.stdout.split()}
        assert "ece" not in applied.stdout


@pytest.mark.parametrize("name", [name for name in BEFORE_CLASSES if "no events" in CASES[name][3]])
@pytest.mark.parametrize("piped", [False, True], ids=["file", "pipe"])
def test_no_event_is_no_success(name: str, piped: bool, map_file: Path, tmp_path: Path) -> None:
    """Nothing was refused, and nothing can be judged: as text, as JSON, by `watch` in all; `apply` has nothing to compare."""
    data, options, code, said = CASES[name]
    path, out = tmp_path / "in.csv", tmp_path / "map.cal"
    path.write_bytes(data)
    file, stdin = ("-", data) if piped else (path, None)
    watched = [call("watch", file, *options, "--idle-exit", 0, *more, stdin=stdin) for more in ((), ("--json",))]
    options = tuple(option for option in options if option not in TIMED)  # fit has no --time
    fitted = [call("fit", file, *options, "-o", out, *more, stdin=stdin) for more in ((), ("--json",))]
    for result in (*watched, *(() if name == "no time" else fitted)):
        assert (result.exit_code, said in flat(result)) == (code, True), flat(result)
    final = json.loads(watched[1].stdout.splitlines()[-1])
    assert (final["type"], final["count"], said in final["verdict"]) == ("final", 0, True)
    assert out.exists() == (name == "no time")
    if name in ("no label yet", "no score at all", "neither", "no weight"):
        applied = call("apply", map_file, file, *options, "-o", tmp_path / "new.csv", stdin=stdin)
        assert (applied.exit_code, "nothing to compare" in applied.stdout) == (0, True)


@pytest.mark.parametrize(
    "typed",
    ["--scale percent", "--max-bad 0.01", "--pos-label 'no click at all'", '--pos-label "it\'s"', "--neg-label 0"],
)
def test_an_option_stays_with_its_value(typed: str) -> None:
    """Wherever the line ends: what is to be typed stands on one line, and no word is lost."""
    for words in range(40):
        sentence = f"{'ab ' * words}say {typed}, or the next-best thing, {'which follows ' * 9}{typed}"
        lines = wrapped(sentence, "  ")
        assert sum(line.count(typed) for line in lines) == 2
        assert " ".join(map(str.strip, lines)) == sentence
        assert max(map(len, lines)) <= WIDTH


def test_a_window_is_refused_by_itself(tmp_path: Path) -> None:
    """Two bad cells of 400 lie in one window of 50: the others are judged, that one is not; the exit code follows the whole."""
    y: list[Any] = Y.tolist()
    y[120] = y[130] = "O"
    path = tmp_path / "in.csv"
    path.write_bytes(table(y=y))
    for arguments in ((), ("--json",)):
        result = call("watch", path, "--window", 50, "--idle-exit", 0, *arguments)
        lines = [line for line in result.stdout.splitlines() if line.startswith(("window", '{"type":"window"'))]
        assert ["refused (allowed" in line for line in lines] == [False, False, True, False, False, False, False, False]
        assert result.exit_code == 0
        assert arguments or "no verdict on 1 of 8 windows" in result.stdout
    limited = call("watch", path, "--window", 50, "--idle-exit", 0, "--fail-if", "ece > 0.9")
    assert (limited.exit_code, "crossed in 0 of 6 complete windows" in limited.stdout) == (0, True)
    assert call("watch", path, "--window", 50, "--idle-exit", 0, "--max-bad", 0.004).exit_code == 2
    assert call("report", path).exit_code == 0


def test_windows_of_time_count_the_cells_between_their_events(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    rows = [f"{P[i]},{'O' if 100 <= i < 105 else Y[i]},{60 * i}" for i in range(N)]
    path.write_text("\n".join(["p,y,t", *rows, ""]))
    result = call("watch", path, "--time", "t", "--window", "1h", "--idle-exit", 0, "--max-bad", 0.05)
    verdicts = ["5 of 60 lines refused" in line for line in result.stdout.splitlines() if line.startswith("window")]
    assert verdicts == [False, True, False, False, False, False, False]
    assert result.exit_code == 0  # 5 of 400 in all


def test_late_rows_are_refused_rows(tmp_path: Path) -> None:
    """Fault 48: 480 of 600 late rows, and a verdict on the rest."""
    path = tmp_path / "in.csv"
    times = [60 * i + (86_400 if i == 120 else 0) for i in range(N)]
    path.write_bytes(table(P, Y, "p,y,t", times))
    result = call("watch", path, "--time", "t", "--window", "1h", "--lateness", "5m", "--idle-exit", 0)
    assert result.exit_code == 2
    assert "279 of 400 lines refused" in flat(result)


def test_alarms_are_no_way_round(tmp_path: Path) -> None:
    """A detector that saw only the outcomes which could be read would name a direction."""
    path = tmp_path / "in.csv"
    path.write_bytes(table(y=named(1, -1)))
    result = call("watch", path, "--alarm", "arl=100", "--idle-exit", 0)
    assert (result.exit_code, "ALARM" in result.stdout) == (2, False)


@pytest.mark.parametrize("order", ["first", "last"])
def test_the_order_of_lines_does_not_matter(order: str, tmp_path: Path) -> None:
    """What a label means is not decided by the labels above it, also through a pipe in pieces."""
    rows = [f"0.5,{y}" for y in ["left", "stayed"] * 50]
    odd = ["0.5,moved"]
    for name, lines in {"first": odd + rows, "last": rows + odd}.items():
        if name == order:
            data = "\n".join(["p,y", *lines, ""]).encode()
    result = call("report", "-", "--pos-label", "left", stdin=data)
    assert result.exit_code == 2
    assert "stayed (50), moved (1)" in flat(result)


def test_a_label_far_down_tells_that_all_are_indices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes wait until a label says whether they are names or indices: also over blocks, with and without that label."""
    from streamcal.reading import tables

    monkeypatch.setattr(tables, "BLOCK", 64)
    monkeypatch.setattr("streamcal.reading.tables.open_source.__kwdefaults__", {**_defaults(), "block": 64})
    path = tmp_path / "in.csv"
    rows = [f".1,.8,.1,{1 if i % 5 else 2}" for i in range(N)]
    path.write_text("\n".join(["p_1,p_2,p_3,y", *rows, ".1,.8,.1,0", ""]))
    found = json.loads(call("report", path, *TOP, "--json").stdout)
    assert (found["count"], found["mean_y"]) == (N + 1, pytest.approx(320 / 401))
    path.write_text("\n".join(["p_1,p_2,p_3,y", *rows, ".1,.8,.1,3", ""]))
    found = json.loads(call("report", path, *TOP, "--json").stdout)
    assert found["mean_y"] == pytest.approx(80 / 401)
    path.write_text("\n".join(["p_1,p_2,p_3,y", *rows, ""]))
    assert "--labels names or --labels indices" in call("report", path, *TOP).stderr


def _defaults() -> dict[str, Any]:
    from streamcal.reading.tables import open_source

    return dict(open_source.__kwdefaults__ or {})


def test_segments_have_their_own_losses(tmp_path: Path) -> None:
    """Fault 49: all labels of c are missing, and c is in the list."""
    path = tmp_path / "in.csv"
    segment = ["abc"[i % 3] for i in range(N)]
    y = ["" if s == "c" else "O" if i == 3 else int(v) for i, (s, v) in enumerate(zip(segment, Y, strict=True))]
    path.write_bytes(table(P, y, "p,y,s", segment))
    found = json.loads(call("report", path, "--segment", "s", "--json").stdout)
    losses = {part["segment"]: (part["count"], part["missing"], part["bad"]) for part in found["segments"]}
    assert losses == {"a": (133, 0, 1), "b": (133, 0, 0), "c": (0, 133, 0)}
    shown = call("report", path, "--segment", "s").stdout
    assert "segment  events  missing  bad" in shown
    assert "c             0      133    0" in shown


def test_scales_are_the_same_numbers(tmp_path: Path) -> None:
    """Percent and logits, read by --scale, are the probabilities themselves; logits of classes go through softmax."""
    path = tmp_path / "in.csv"
    inner = np.clip(P, 1e-4, 1 - 1e-4)
    path.write_bytes(table(inner.tolist()))
    expected = json.loads(call("report", path, "--json").stdout)["metrics"]
    for scale, p in (("percent", 100 * inner), ("logit", np.log(inner / (1 - inner)))):
        path.write_bytes(table([repr(float(v)) for v in p]))
        found = json.loads(call("report", path, "--scale", scale, "--json").stdout)["metrics"]
        for name in ("ece", "brier", "log_loss"):
            assert found[name]["value"] == pytest.approx(expected[name]["value"], rel=1e-9), (scale, name)
    z = np.log(np.array([0.2, 0.5, 0.3])) + 7
    path.write_text(
        "p_a,p_b,p_c,y\n" + f"{z[0]!r},{z[1]!r},{z[2]!r},b\n".replace("np.float64(", "").replace(")", "") * 10
    )
    found = json.loads(call("report", path, *TOP, "--scale", "logit", "--json").stdout)
    assert math.isclose(found["mean_p"], 0.5, rel_tol=1e-12)
