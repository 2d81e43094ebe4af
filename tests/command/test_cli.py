"""The command, as a user meets it: real files, real pipes, exit codes, signals."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from streamcal.command.main import app
from streamcal.command.options import Job
from streamcal.command.report import Reader, plain
from streamcal.command.watch import Windows, windows_of
from streamcal.reading import SourceError
from streamcal.reading.cells import EventBatch
from streamcal.reading.roles import Roles
from streamcal.reporting.sums import Sums, binning_of, by_segment, whole
from streamcal.reporting.text import ASCII, UNICODE, diagram
from streamcal.reporting.thresholds import Limit
from streamcal.reporting.verdict import short, verdict
from streamcal.segments import SegmentNames
from streamcal.tally import WP
from streamcal.times import utc

COMMAND = [sys.executable, "-c", "from streamcal.command.main import main; main()"]


def call(*args: object, stdin: bytes | None = None) -> Any:
    return CliRunner().invoke(app, [str(a) for a in args], input=stdin)


def answer(*args: object, stdin: bytes | None = None) -> dict[str, Any]:
    result = call(*args, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output + result.stderr
    return dict(json.loads(result.stdout, parse_constant=_not_json))


def _not_json(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def sample(n: int, shift: float = 0.0, seed: int = 0) -> tuple[list[float], list[int]]:
    rng = np.random.default_rng(seed)
    p = rng.random(n).round(4)
    return p.tolist(), (rng.random(n) < np.clip(p - shift, 0, 1)).astype(int).tolist()


def csv_of(path: Path, n: int = 2000, shift: float = 0.0, head: str = "p,y") -> Path:
    p, y = sample(n, shift)
    path.write_text(head + "\n" + "".join(f"{a},{b}\n" for a, b in zip(p, y, strict=True)))
    return path


# ---- report


def test_report_is_the_arithmetic_of_the_table(tmp_path: Path) -> None:
    """Hand-made: ece = (3 * |1/3 - .9| + 1 * |0 - .1|) / 4, p/a ratio = (.9 * 3 + .1) / 1."""
    path = tmp_path / "in.csv"
    path.write_text("p,y\n0.9,1\n0.9,0\n0.9,0\n0.1,0\n")
    found = answer("report", path, "--bins", 2)
    assert found["count"] == 4
    assert found["source"]["rows"] == 4
    assert found["metrics"]["ece"]["value"] == pytest.approx((1.7 + 0.1) / 4)
    assert found["metrics"]["pa_ratio"]["value"] == pytest.approx(2.8)
    assert [(r["lo"], r["count"]) for r in found["reliability"]] == [(0.0, 1), (0.5, 3)]


def test_every_format_gives_the_same_numbers(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    p, y = sample(3000, 0.05)
    csv_of(tmp_path / "a.csv", 3000, 0.05)
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"y": bool(b), "p": a}) + "\n" for a, b in zip(p, y, strict=True))
    )
    pq.write_table(pa.table({"p": p, "y": y}), tmp_path / "a.parquet")
    found = [answer("report", tmp_path / name) for name in ("a.csv", "a.jsonl", "a.parquet")]
    found.append(answer("report", "-", stdin=(tmp_path / "a.csv").read_bytes()))
    found.append(answer("report", "-", stdin=(tmp_path / "a.jsonl").read_bytes()))
    for other in found[1:]:
        assert other["metrics"] == found[0]["metrics"]
        assert other["reliability"] == found[0]["reliability"]


def test_the_printed_report_fits_80_columns(tmp_path: Path) -> None:
    result = call("report", csv_of(tmp_path / "in.csv", shift=0.1), "--fail-if", "ece > 0.5")
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines()[1:])) <= 80
    assert "\x1b" not in result.stdout
    for word in (
        "2,000 events in 2,000 lines",
        "ece",
        "k2_debiased",
        "held, at",
        "too high: ",
        UNICODE["observed"],
    ):
        assert word in result.stdout


def test_the_report_says_which_errors_hold_for_one_look_and_which_for_many(tmp_path: Path) -> None:
    path = csv_of(tmp_path / "in.csv", shift=0.1)
    printed = call("report", path).stdout
    assert 'for one look at these events: the 95 % intervals above, and "if calibrated"' in printed
    found = answer("report", path)
    low, high = found["metrics"]["k1"]["anytime"]
    assert 0 < low < found["metrics"]["k1"]["value"] < high
    assert f"for many looks since the first event: k1 {short(low)} .. {short(high)}" in printed
    assert found["errors"]["p_value"] < 0.01 and "all looks together" in found["errors"]["all_looks"]
    mass = call("report", path, "--binning", "uniform-mass").stdout
    assert "for many looks: none: the bins of UniformMass" in mass and "cut by the events" in " ".join(mass.split())


def test_windows_of_watch_are_for_one_look_and_its_summary_for_many() -> None:
    *windows, final = objects(call("watch", "-", "--json", "--window", 100, stdin=stream(250)).stdout)
    for w in windows:
        assert w["errors"]["all_looks"].startswith("none") and "anytime" not in w["metrics"]["k1"]
        assert "streamcal.drift" in w["errors"]["all_looks"] and "p_value" not in w["errors"]
    assert len(final["metrics"]["k1"]["anytime"]) == 2 and 0 < final["errors"]["p_value"] <= 1
    printed = call("watch", "-", "--window", 100, stdin=stream(250)).stdout
    assert "for many looks since the first event: k1" in printed
    assert "each window above: for one look; alarms come from a detector" in printed


def test_usual_names_are_taken_and_said(tmp_path: Path) -> None:
    result = call("report", csv_of(tmp_path / "in.csv", head="score,target"))
    assert "note: --p score taken" in result.stdout
    assert "note: --y target taken" in result.stdout


def test_weights_time_and_segments(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text(
        "s,t,w,p,y\n007,2020-01-01,2,0.5,1\n7,2020-01-03,1,0.5,0\n007,2020-01-02,1,0.25,1\n,2020-01-02,1,0.25,1\n"
    )
    found = answer("report", path, "--weight", "w", "--time", "t", "--segment", "s")
    assert found["weight"] == 5
    assert found["mean_p"] == pytest.approx(0.4)
    assert found["source"]["span"] == ["2020-01-01T00:00:00Z", "2020-01-03T00:00:00Z"]
    assert [(s["segment"], s["count"], s["weight"]) for s in found["segments"]] == [
        ("007", 2, 3),
        ("7", 1, 1),
        ("(empty)", 1, 1),
    ]


def test_segments_beyond_the_cap_are_other(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("s,p,y\n" + "".join(f"s{i % (1 + i % 7)},0.5,{i % 2}\n" for i in range(700)))
    found = answer("report", path, "--segment", "s", "--max-segments", 2)
    counts = {s["segment"]: s["count"] for s in found["segments"]}
    assert list(counts) == ["s0", "s1", "other"]
    assert sum(counts.values()) == found["count"] == 700
    everything = answer("report", path, "--segment", "s")
    assert len(everything["segments"]) == 7
    assert everything["metrics"] == found["metrics"]


def test_segments_beyond_the_keys_are_other_too() -> None:
    columns = Roles(("p",), "y", segment="s")
    segments = SegmentNames(3)
    sums = Sums(columns, binning_of("equal-width", 15), segments)
    names = ("a", "other", "c", "d", "e")
    sums.add(EventBatch(np.full(6, 0.5), np.ones(6), segment=np.array([0, 1, 2, 3, 4, 4]), segments=names))
    lost = np.array([[0, 0], [0, 1], [2, 0], [0, 0]])
    parts = by_segment(sums.snapshot(), segments, 2, lost)
    assert {name: (float(part.count.sum()), *missed.values()) for name, (part, missed) in parts.items()} == {
        "a": (1, 0, 1),
        "other": (1, 2, 0),
        "(other)": (4, 0, 0),
    }
    assert float(whole(sums.snapshot(), segments).count.sum()) == 6


def test_top_label(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("p_a,p_b,p_c,y\n0.8,0.1,0.1,a\n0.2,0.7,0.1,p_a\n0.1,0.3,0.6,c\n0.3,0.3,0.4,z\n")
    found = answer("report", path, "--top-label", "p_*", "--max-bad", 1)
    assert found["count"] == 3
    assert found["mean_p"] == pytest.approx(0.7)
    assert found["mean_y"] == pytest.approx(2 / 3)
    assert found["source"]["bad"]["first"] == [{"line": 5, "column": "y", "value": "z"}]


@pytest.mark.parametrize("binning", ["equal-width", "uniform-mass", "log-odds"])
def test_binnings(tmp_path: Path, binning: str) -> None:
    found = answer("report", csv_of(tmp_path / "in.csv"), "--binning", binning, "--bins", 5)
    assert 1 < len(found["reliability"]) <= 5
    assert sum(r["count"] for r in found["reliability"]) == 2000


def test_plot_writes_both_kinds(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = csv_of(tmp_path / "in.csv")
    for name, start in (("out.png", b"\x89PNG"), ("out.svg", b"<?xml")):
        assert call("report", path, "--plot", tmp_path / name).exit_code == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    assert call("report", path, "--plot", tmp_path / "out.gif").exit_code == 2
    assert call("report", path, "--plot", tmp_path / "no" / "such.png").exit_code == 2


# ---- what goes wrong


def test_empty_cells_are_counted_as_missing(tmp_path: Path) -> None:
    """Field report csv-empty-int: '' is a missing value: no error, and no negative label."""
    path = tmp_path / "in.csv"
    path.write_text("p,y\n0.5,\n,1\n0.5,1\n")
    found = answer("report", path)
    assert found["count"] == 1
    assert found["mean_y"] == 1
    assert found["source"]["missing"] == {"rows": 2, "cells": {"p": 1, "y": 1}}


def test_times_have_one_format_or_none(tmp_path: Path) -> None:
    """Field report day-month-swap: 01-09-2018 is refused until the user says what it means."""
    path = tmp_path / "in.csv"
    path.write_text("p,y,t\n0.5,1,01-09-2018\n0.5,1,13-09-2018\n")
    result = call("report", path, "--time", "t")
    assert result.exit_code == 2
    assert "01-09-2018" in result.stderr
    assert "--time-format" in result.stderr
    found = answer("report", path, "--time", "t", "--time-format", "%d-%m-%Y")
    assert found["source"]["span"] == ["2018-09-01T00:00:00Z", "2018-09-13T00:00:00Z"]
    swapped = answer("report", path, "--time", "t", "--time-format", "%m-%d-%Y", "--max-bad", 1)
    assert swapped["source"]["bad"]["first"] == [{"line": 3, "column": "t", "value": "13-09-2018"}]


def test_swapped_columns_do_not_pass(tmp_path: Path) -> None:
    """Field report wrong-prob-column, of its kind: probabilities in place of labels are bad cells, not labels."""
    result = call("report", csv_of(tmp_path / "in.csv", 50), "--p", "y", "--y", "p")
    assert "bad cells 50" in result.stdout
    assert "line 2, column p" in result.stdout


def test_values_the_engine_would_refuse_are_named(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("p,y\n0.5,1\n1.5,1\ninf,0\n-0.1,0\n1.0000001,1\n")
    found = answer("report", path, "--max-bad", 1)
    assert (found["count"], found["refused"], found["clipped"]) == (2, 0, 1)
    assert [(bad["line"], bad["value"]) for bad in found["source"]["bad"]["first"]] == [
        (3, "1.5"),
        (4, "inf"),
        (5, "-0.1"),
    ]
    assert call("report", path, "--strict").exit_code == 2


def test_strict_stops_at_the_first_bad_cell(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("p,y\n0.5,1\n0.5,maybe\nhigh,0\n.5,0\n")
    assert call("report", path, "--max-bad", 1).exit_code == 0
    result = call("report", path, "--strict")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"streamcal: {path}: line 3, column y: 'maybe' (--strict)\n"


@pytest.mark.parametrize(
    ("data", "args", "message"),
    [
        ("", [], "empty"),
        ("p,y\n", [], "no rows"),
        (
            "prob_a,y\n1,1\n",
            ["--p", "prob_b"],
            "no column 'prob_b' (did you mean 'prob_a'?); the columns are: prob_a, y",
        ),
        ("p,y\n1,1\n", ["--segment", "s"], "the columns are: p, y"),
        ("p,y\n1,1\n", ["--binning", "fancy"], "--binning must be one of"),
        ("p,y\n1,1\n", ["--bins", "0"], "--bins"),
        ("p,y\n1,1\n", ["--format", "xml"], "--format must be one of"),
        ("p,y\n1,1\n", ["--fail-if", "ece above 3"], "--fail-if must look like"),
        ("p,y\n1,1\n", ["--fail-if", "ecu > 3"], "the metrics are: ece, mce"),
        ("p,y\n1,1\n", ["--time-format", "fancy"], "--time-format must be"),
    ],
)
def test_usage_and_input_errors_are_one_line_and_exit_2(
    tmp_path: Path, data: str, args: list[str], message: str
) -> None:
    path = tmp_path / "in.csv"
    path.write_text(data)
    result = call("report", path, *args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


def test_no_such_file() -> None:
    result = call("report", "gone.csv")
    assert result.exit_code == 2
    assert result.stderr == "streamcal: gone.csv: No such file or directory\n"


@pytest.mark.parametrize(
    ("limit", "code"), [("ece > 0.9", 0), ("ece > 0.01", 1), ("pa_ratio>1.3", 1), ("brier >= 0", 1)]
)
def test_fail_if(tmp_path: Path, limit: str, code: int) -> None:
    result = call("report", csv_of(tmp_path / "in.csv", shift=0.15), "--fail-if", limit, "--fail-if", "ece > 0.99")
    assert result.exit_code == code
    assert ("CROSSED" in result.stdout) == (code == 1)


def test_a_limit_without_a_value_is_not_fine(tmp_path: Path) -> None:
    path = csv_of(tmp_path / "in.csv", 20)
    result = call("report", path, "--fail-if", "pinball_loss > 1")
    assert result.exit_code == 2
    assert "cannot be judged" in result.stdout
    assert call("report", path, "--fail-if", "pinball_loss > 1", "--fail-if", "brier > 0").exit_code == 1
    both = call("report", path, "--json", "--fail-if", "pinball_loss > 1")
    (judged,) = json.loads(both.stdout, parse_constant=_not_json)["limits"]
    assert judged["crossed"] is None
    assert judged["value"] is None
    assert judged["reason"]


@pytest.mark.parametrize("text", ["", "ece", "ece >", "> 1", "ece > x", "ece > nan", "ece = 1"])
def test_limits_that_are_none(text: str) -> None:
    with pytest.raises(SourceError, match="must look like"):
        Limit.parse(text)


def test_json_is_strict_and_says_why_there_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("p,y\n1,0\n")
    metrics = answer("report", path)["metrics"]
    for name, found in metrics.items():
        assert found["value"] is not None or found.get("reason"), name
    assert plain({"a": [np.float64("nan"), math.inf, np.int64(3), (True, None)]}) == {
        "a": [None, None, 3, [True, None]]
    }


# ---- the sentence and the diagram


@pytest.mark.parametrize(
    ("bend", "words"),
    [
        (lambda p: p, "calibrated as far as n = "),
        (lambda p: np.clip(p - 0.1, 0, 1), "too high: "),
        (lambda p: np.clip(p + 0.1, 0, 1), "too low: "),
        (lambda p: 0.5 + (p - 0.5) / 2, "too extreme"),
        (lambda p: np.clip(0.5 + (p - 0.5) * 1.8, 0, 1), "not extreme enough"),
    ],
)
def test_verdict(tmp_path: Path, bend: Callable[[Any], Any], words: str) -> None:
    rng = np.random.default_rng(3)
    p = rng.random(20_000)
    path = tmp_path / "in.csv"
    np.savetxt(
        path,
        np.column_stack([p, rng.random(p.size) < bend(p)]),
        ["%.6f", "%d"],
        delimiter=",",
        header="p,y",
        comments="",
    )
    assert words in answer("report", path)["verdict"]


def test_verdict_on_nothing() -> None:
    assert verdict({"count": 0}) == "cannot be judged: no events"


def test_diagram_places_claims_and_outcomes() -> None:
    bin = {"lo": 0, "hi": 0.5, "count": 4, "weight": 4.0, "mean_p": 0.2, "mean_y": 0.6, "low": 0.5, "high": 0.8}
    line = diagram({"reliability": [bin, {**bin, "mean_p": 0.6}]})[2:]
    assert line[0] == "0 - 0.5 │" + " " * 10 + "○" + " " * 14 + "─" * 5 + "●" + "─" * 10 + " " * 10 + "│"
    assert line[1].count("◉") == 1
    assert diagram({"reliability": []}) == []


def test_diagram_in_log_odds_spreads_rare_events(tmp_path: Path) -> None:
    bins = [
        {"lo": lo, "hi": lo * 10, "count": 9, "weight": 9.0, "mean_p": lo * 2, "mean_y": lo, "low": 0, "high": lo * 5}
        for lo in (1.1e-4, 1e-3, 1e-2)
    ]
    report = {"reliability": bins, "binning": "LogOdds(15)"}
    ticks, *lines = diagram(report)[1:]
    assert ticks.split() == ["0.0001", "0.001", "0.01", "0.1"]
    assert len({line.index("○") - line.index("│") for line in lines}) == 3
    linear = diagram({**report, "binning": "EqualWidth(15)"}, ASCII)[2:]
    assert linear[0].count("*") == 1
    assert all(line.isascii() for line in linear)


def test_narrow_terminals_get_ascii(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    path = csv_of(tmp_path / "in.csv", 100)
    done = subprocess.run([*COMMAND, "report", str(path)], capture_output=True, env=env, check=True)
    assert b"o predicted   x observed" in done.stdout
    assert done.stdout.isascii()


def test_the_printed_report_names_what_was_lost(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    lines = [f"bad{i},1,s" for i in range(7)] + [
        "2,1,s",
        "1.0000001,1,a segment of a very long name",
        ",1,s",
        "0.5,1,s",
    ]
    path.write_text("p,y,s\n" + "\n".join(lines) + "\n")
    output = call("report", path, "--segment", "s", "--max-bad", 1).stdout
    for text in ("missing 1 (p 1)", "bad cells 8", "clipped 1", "line 2, column p: 'bad0'"):
        assert text in output
    assert "and 3 more" in output
    assert "a segment of a ve..." in output
    assert output.endswith("calibrated as far as n = 2 can tell\n")


def test_plot_without_matplotlib_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = call("report", csv_of(tmp_path / "in.csv", 10), "--plot", tmp_path / "x.png")
    assert result.exit_code == 2
    assert 'pip install "streamcal-engine[plot]"' in result.stderr
    assert "no picture: it needs matplotlib" in call("demo", "--out", tmp_path / "x.png").stdout


# ---- watch


@given(
    st.lists(st.integers(-30, 30), min_size=1, max_size=25), st.lists(st.integers(1, 9), min_size=1), st.integers(1, 12)
)
def test_time_windows_are_the_naive_ones(reader: Reader, times: list[int], sizes: list[int], period: int) -> None:
    naive: dict[float, int] = {}
    late = 0
    for t in times:
        if not naive or t // period >= max(naive):
            naive[t // period] = naive.get(t // period, 0) + 1
        else:
            late += 1
    windows = Windows(reader, period, of_time=True)
    closed = [c for batch in _cut(times, sizes) for c in windows.feed(batch, 0.0)] + [*windows.rest()]
    assert [float(c.sums.count.sum()) for c in closed] == list(naive.values())
    assert [c.start for c in closed] == [utc(place * period) for place in naive]
    assert (windows.late, float(windows.total.count.sum())) == (late, len(times) - late)


@given(st.integers(0, 40), st.lists(st.integers(1, 9), min_size=1), st.integers(1, 12))
def test_count_windows_are_the_naive_ones(reader: Reader, n: int, sizes: list[int], size: int) -> None:
    windows = Windows(reader, size)
    closed = [c for batch in _cut([*range(n)], sizes) for c in windows.feed(batch, 0.0)]
    slices = [[*range(n)][i : i + size] for i in range(0, n - size + 1, size)]
    assert [float(c.sums.total[0, WP]) for c in closed] == pytest.approx([sum(s) / 100 for s in slices])
    assert windows.newest[1] == n % size


def _cut(times: list[int], sizes: list[int]) -> Iterator[EventBatch]:
    t = np.array(times, float)
    while len(t):
        n = sizes.pop() if sizes else len(t)
        yield EventBatch(np.abs(t[:n]) / 100, np.ones(len(t[:n])), t=t[:n])
        t = t[n:]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(Job(str(csv_of(tmp_path_factory.mktemp("reader") / "in.csv", 5))))


def stream(n: int, start: int = 0) -> bytes:
    p, y = sample(start + n, 0.1)
    lines = [json.dumps({"p": p[i], "y": y[i], "t": 60.0 * i}) for i in range(start, start + n)]
    return ("\n".join(lines) + "\n").encode()


def objects(output: str) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=_not_json) for line in output.splitlines()]


def test_watch_cuts_a_pipe_into_windows() -> None:
    result = call("watch", "-", "--json", "--window", 100, stdin=stream(250))
    assert result.exit_code == 0, result.stderr
    *windows, final = objects(result.stdout)
    assert [(w["number"], w["start"], w["end"], w["count"], w["complete"]) for w in windows] == [
        (1, "1", "100", 100, True),
        (2, "101", "200", 100, True),
        (3, "201", "250", 50, False),
    ]
    whole_file = answer("report", "-", stdin=stream(250))
    assert final["type"] == "final"
    assert final["windows"] == 3
    assert final["count"] == 250
    assert final["metrics"]["ece"]["value"] == pytest.approx(whole_file["metrics"]["ece"]["value"])


def test_watch_prints_a_line_per_window_and_a_summary() -> None:
    result = call("watch", "-", "--window", 100, stdin=stream(250))
    lines = [line for line in result.stdout.splitlines() if line.startswith("window")]
    assert len(lines) == 3
    assert "n 100" in lines[0]
    assert "(open)" in lines[2]
    assert "250 events in 250 lines" in result.stdout
    assert "\x1b" not in result.stdout


def test_watch_by_event_time_counts_late_events() -> None:
    data = stream(180) + stream(5)
    result = call("watch", "-", "--json", "--window", "1h", "--time", "t", stdin=data)
    *windows, final = objects(result.stdout)
    assert [(w["start"], w["count"]) for w in windows] == [(f"1970-01-01T0{i}:00:00Z", 60) for i in range(3)]
    assert final["count"] == 180
    assert final["late_so_far"] == 5
    assert final["source"]["rows"] == 185


def test_watch_without_times_takes_the_arrival_and_says_so() -> None:
    result = call("watch", "-", "--window", "365d", stdin=stream(10))
    assert "the time of arrival counts" in result.stdout
    assert "10 events" in result.stdout


def test_arrival_windows_close_when_time_goes_by(tmp_path: Path) -> None:
    reader = Reader(Job(str(csv_of(tmp_path / "in.csv", 10))))
    windows = windows_of(reader, "10s")
    assert windows.of_time and windows.arrival
    (batch,) = reader.batches()
    assert [*windows.feed(batch, 101.0), *windows.tick(109.0)] == []
    (closed,) = windows.tick(110.0)
    assert (closed.start, closed.end) == ("1970-01-01T00:01:40Z", "1970-01-01T00:01:50Z")
    assert closed.sums.count.sum() == 10
    assert [*windows.tick(130.0)] == []


@pytest.mark.parametrize("length", ["0", "-5", "1.5", "1w", "", "h", "ten"])
def test_window_lengths_that_are_none(tmp_path: Path, length: str) -> None:
    result = call("watch", csv_of(tmp_path / "in.csv", 10), "--idle-exit", 0, f"--window={length}")
    assert result.exit_code == 2
    assert "--window must be" in result.stderr


def test_watch_fails_on_a_crossed_window() -> None:
    assert call("watch", "-", "--window", 100, "--fail-if", "ece > 0.9", stdin=stream(250)).exit_code == 0
    result = call("watch", "-", "--window", 100, "--fail-if", "ece > 0.02", stdin=stream(250))
    assert result.exit_code == 1
    assert "ece > 0.02 CROSSED" in result.stdout


def test_watch_segments() -> None:
    data = b"".join(b'{"p": 0.5, "y": %d, "s": "%s"}\n' % (i % 2, b"ab"[i % 2 : i % 2 + 1]) for i in range(20))
    *windows, final = objects(call("watch", "-", "--json", "--window", 10, "--segment", "s", stdin=data).stdout)
    assert [[(s["segment"], s["count"], s["mean_y"]) for s in w["segments"]] for w in windows] == [
        [("a", 5, 0), ("b", 5, 1)]
    ] * 2
    assert [s["count"] for s in final["segments"]] == [10, 10]


def test_watch_strict_and_empty() -> None:
    assert call("watch", "-", "--strict", stdin=b"p,y\nx,1\n").exit_code == 2
    assert "empty" in call("watch", "-", stdin=b"").stderr


def test_watch_idle_exit(tmp_path: Path) -> None:
    path = csv_of(tmp_path / "in.csv", 30)
    *_, final = objects(call("watch", path, "--json", "--idle-exit", 0.2).stdout)
    assert final["count"] == 30


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_summary(tmp_path: Path, signum: signal.Signals) -> None:
    path = tmp_path / "live.jsonl"
    path.write_bytes(stream(150))
    process = _start("watch", path, "--json", "--window", 100)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["count"] == 100
        with path.open("ab") as file:
            file.write(stream(60, 150) + b'{"p": 0.')
        assert json.loads(process.stdout.readline())["number"] == 2
        process.send_signal(signum)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    *_, final = objects(output)
    assert process.returncode == 0
    assert errors == ""
    assert final["type"] == "final"
    assert final["count"] == 210
    assert final["source"]["bad"]["cells"] == 0


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_a_silent_pipe_can_be_left(tmp_path: Path) -> None:
    process = _start("watch", "-", "--json", "--window", 10)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(stream(15).decode())
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["count"] == 10
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        *_, final = objects(process.stdout.read())
    finally:
        process.kill()
    assert process.returncode == 0
    assert final["count"] == 15


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    path = csv_of(tmp_path / "in.csv", 30)
    process = subprocess.Popen([*COMMAND, "report", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(60) == 0
    assert errors == b""


def _start(*args: object) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([*COMMAND, *map(str, args)], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.skipif(os.name == "nt", reason="terminals of Unix")
def test_watch_draws_on_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    path.write_bytes(stream(150))
    ours, theirs = os.openpty()
    command = [*COMMAND, "watch", str(path), "--window", "100", "--every", "0.05"]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    try:
        seen = _read_until(ours, b"open: 50 events", b"")
        process.send_signal(signal.SIGINT)
        seen = _read_until(ours, None, seen)
    finally:
        process.kill()
    assert b"\x1b[" in seen
    assert b"150 events in 150 lines" in seen
    assert b"calibrated" in seen
    assert b"window 1 1 .. 100" in seen


def _read_until(terminal: int, text: bytes | None, seen: bytes) -> bytes:
    """What was seen before and since, until `text` is in it or the program ends; a minute without a word is a failure."""
    while text is None or text not in seen:
        assert select.select([terminal], [], [], 60)[0], f"nothing came, waiting for {text!r} after {seen[-300:]!r}"
        try:
            seen += os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            break
    return seen


def test_every_prints_the_open_window_off_a_terminal(tmp_path: Path) -> None:
    path = csv_of(tmp_path / "in.csv", 30)
    output = call("watch", path, "--every", 0.05, "--idle-exit", 0.5).stdout
    assert output.count("window 1 (open)") == 1
    assert output.count("window 1 1 .. 30 (open)") == 1


# ---- the rest


def test_version_and_help() -> None:
    assert call("--version").exit_code == 0
    for command in ("report", "watch", "demo", "warmup"):
        assert command in call("--help").stdout
        assert call(command, "--help").exit_code == 0
    assert call("report", "x", "--no-such-option").exit_code == 2


def test_the_command_imports_nothing_heavy() -> None:
    heavy = ("river", "pyarrow", "matplotlib", "rich", "pandas", "scipy.special")
    code = f"import sys, streamcal.command.main; sys.exit([m for m in {heavy!r} if m in sys.modules] or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_warmup() -> None:
    result = call("warmup")
    assert result.exit_code == 0
    assert "8/8 maps" in result.stdout


def test_demo(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "demo.svg"
    result = call("demo", "--out", picture, "--seed", 1)
    assert result.exit_code == 0, result.output
    assert "2,310 events" in result.stdout
    assert "not calibrated: " in result.stdout
    assert picture.stat().st_size > 1000
    assert call("demo", "--out", "x.gif").exit_code == 2


def test_late_events_wait_as_long_as_asked(tmp_path: Path) -> None:
    """An event that is late for its window by less than --lateness is in it; without, it is counted as late."""
    path = tmp_path / "in.csv"
    rows = [(10, 0.2), (3700, 0.3), (50, 0.4), (7300, 0.5), (3800, 0.6), (14500, 0.7), (20, 0.8)]
    path.write_text("p,y,t\n" + "".join(f"{p},1,{t}\n" for t, p in rows))
    arguments = ("watch", path, "--time", "t", "--window", "1h", "--json", "--idle-exit", "0")

    def counts(*more: str) -> tuple[list[float], int]:
        lines = [json.loads(line) for line in call(*arguments, *more).stdout.splitlines()]
        return [line["count"] for line in lines if line["type"] == "window"], lines[-1]["late_so_far"]

    assert counts() == ([1, 1, 1, 1], 3)
    assert counts("--lateness", "1h") == ([2, 2, 1, 1], 1)
    assert counts("--lateness", "1d") == ([3, 2, 1, 1], 0)
    assert call("watch", path, "--window", "100", "--lateness", "1h").exit_code == 2
    assert call(*arguments, "--lateness", "soon").exit_code == 2


def test_a_table_of_mostly_bad_rows_does_not_pass(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("p,y\n0.5,1\nx,1\n,1\n0.5,0\n0.5,maybe\n")
    result = call("report", path, "--fail-if", "ece > 0.9", "--max-bad", "0.5")
    assert result.exit_code == 0
    result = call("report", path, "--max-bad", "0.3")
    assert result.exit_code == 2
    assert "2 of 4 lines refused" in result.stderr
    assert "ece" not in result.stdout
    path.write_text("p,y\n" + "x,1\n" * 19 + "0.5,0\n")
    assert call("report", path, "--fail-if", "ece > 0.9").exit_code == 2


def test_one_column_has_one_role_and_text_is_text(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("p,y\n0.5,1\n")
    assert "cannot be both" in call("report", path, "--y", "p").stderr
    path.write_text("chance,y\n0.5,1\n")
    assert "say which it is with --p" in call("report", path).stderr
    path.write_bytes(b"PK\x03\x04\0\0\n\0")
    assert "not a text file" in call("report", path).stderr


def test_a_positive_label_that_never_occurs_is_said(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("p,y\n0.5,yes\n0.4,no\n")
    result = call("report", path, "--pos-label", "si")
    assert "--pos-label si never came; the outcomes are no (1), yes (1)" in result.stderr
    assert result.exit_code == 2


def test_bins_that_tell_nothing_are_said(tmp_path: Path) -> None:
    """Rare events in bins of equal width: only the mean is tested, and the verdict says so."""
    path = tmp_path / "in.csv"
    path.write_text("p,y\n" + "".join(f"{0.0005 + i / 1e6:.6f},{int(i % 1000 == 0)}\n" for i in range(2000)))
    verdict = call("report", path).stdout.splitlines()
    assert any("--binning log-odds" in line for line in verdict)
    assert not any("is unlikely" in line for line in verdict)


def test_crossings_of_windows_are_counted_apart(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("p,y\n" + "0.9,1\n" * 10 + "0.9,0\n" * 10 + "0.9,1\n" * 80)
    result = call("watch", path, "--window", "10", "--fail-if", "ece > 0.5", "--idle-exit", "0")
    assert 'limit "ece > 0.5": crossed in 1 of 10 complete windows' in result.stdout
    assert result.exit_code == 1
