"""`watch --alarm`: the detector's own alarms, with times and segments, as lines and as JSON, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from streamcal.command.main import app
from streamcal.command.watch import Wish
from streamcal.drift import CalibrationDrift, SegmentedDrift, TopLabelDrift
from streamcal.drift.detector import BLOCK
from streamcal.reading import SourceError
from streamcal.times import utc


def watch(*args: object) -> Any:
    return CliRunner().invoke(app, ["watch", *map(str, args), "--idle-exit", "0"])


def said(result: Any, kind: str) -> list[dict[str, Any]]:
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    return [d for d in documents if d["type"] == kind]


def stream(n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated up to event 2,000, then twice too sure."""
    rng = np.random.default_rng(3)
    p = rng.beta(2, 2, n).round(6)
    odds = (p / (1.0 - p)) ** np.where(np.arange(n) < 2000, 1.0, 0.4)
    return p, (rng.random(n) < odds / (1.0 + odds)).astype(float)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Times an hour apart; segment "b" has every third event."""
    path, (p, y) = tmp_path / "events.csv", stream()
    rows = [f"{a},{int(b)},{'abc'[i % 3]},{3600 * i}\n" for i, (a, b) in enumerate(zip(p.tolist(), y.tolist()))]
    path.write_text("p,y,s,t\n" + "".join(rows))
    return path


def test_the_alarms_are_those_of_the_detector(table: Path) -> None:
    detector = CalibrationDrift(arl=2_000)
    found = detector.update_many(*stream())
    assert found.size > 1
    alarms = said(watch(table, "--p", "p", "--y", "y", "--time", "t", "--alarm", "arl=2_000", "--json"), "alarm")
    assert [a["event"] for a in alarms] == found.tolist()
    assert [a["number"] for a in alarms] == list(range(1, found.size + 1))
    assert [a["time"] for a in alarms] == [utc(3600.0 * i) for i in found.tolist()]
    kept = [{k: v for k, v in a.items() if k not in ("type", "number", "time")} for a in alarms]
    assert kept == json.loads(json.dumps(detector.history()))


def test_the_summary_and_the_exit_code(table: Path) -> None:
    options = ("--p", "p", "--y", "y", "--alarm", "arl=2000")
    plain, failing = watch(table, *options), watch(table, *options, "--fail-on-alarm")
    assert (plain.exit_code, failing.exit_code) == (0, 1) and plain.stdout == failing.stdout
    lines = [line for line in plain.stdout.splitlines() if line.startswith("ALARM")]
    assert "ALARM 1 after 2,0" in lines[0] and "too extreme" in lines[0] and "slope 0." in lines[0]
    assert f"alarms: {len(lines)} in 4,000 events (calibrated: one in 2000, or fewer)" in plain.stdout
    (final,) = said(watch(table, *options, "--json"), "final")
    assert final["alarms"] == len(lines) and final["evidence"] > 0.0
    (quiet,) = said(watch(table, "--p", "p", "--y", "y", "--json"), "final")
    assert "alarms" not in quiet


def test_a_tolerated_gap_is_no_alarm(table: Path) -> None:
    options = ("--p", "p", "--y", "y", "--alarm", "arl=20000,tolerance=0.4", "--fail-on-alarm", "--json")
    result = watch(table, *options)
    assert result.exit_code == 0 and said(result, "alarm") == []


def test_segments_are_named(table: Path) -> None:
    p, y = stream()
    detector = SegmentedDrift(["other", "a", "b", "c"], arl=2_000)
    found = detector.update_many(p, y, [("a", "b", "c")[i % 3] for i in range(p.size)])
    result = watch(table, "--p", "p", "--y", "y", "--segment", "s", "--alarm", "arl=2000", "--json")
    alarms = said(result, "alarm")
    assert [a["event"] for a in alarms] == found.tolist()
    assert [[s["segment"] for s in a["segments"]] for a in alarms] == [
        [s["segment"] for s in h["segments"]] for h in detector.history()
    ]
    printed = watch(table, "--p", "p", "--y", "y", "--segment", "s", "--alarm", "arl=2000").stdout
    texts = [line.partition(": ")[2] for line in printed.splitlines() if line.startswith("ALARM")]
    assert texts == [a["text"] for a in alarms]
    assert all("of the evidence): predictions too extreme, of the last " in text for text in texts[:3])


def test_top_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    probs, label = rng.dirichlet([1, 1, 1], 2000).round(6), rng.integers(3, size=2000)
    probs[:, 2] = 1.0 - probs[:, 0] - probs[:, 1]
    path = tmp_path / "classes.csv"
    rows = [",".join(f"{v:.9f}" for v in row) + f",{int(k)}\n" for row, k in zip(probs, label)]
    path.write_text("c0,c1,c2,y\n" + "".join(rows))
    read = np.array([[float(f"{v:.9f}") for v in row] for row in probs])
    found = TopLabelDrift(arl=500).update_many(read, label)
    result = watch(path, "--top-label", "c0,c1,c2", "--y", "y", "--alarm", "arl=500", "--json")
    assert [a["event"] for a in said(result, "alarm")] == found.tolist() and found.size > 0


def test_more_alarms_than_the_detector_remembers(tmp_path: Path) -> None:
    """Each event was said to be impossible: every one of them is an alarm, though only the last have reports."""
    path = tmp_path / "impossible.csv"
    path.write_text("p,y\n" + "0,1\n" * (BLOCK + 50))
    result = watch(path, "--alarm", "arl=20000", "--json")
    alarms = said(result, "alarm")
    assert [a["event"] for a in alarms] == list(range(BLOCK + 50))
    assert [a["number"] for a in alarms] == list(range(1, BLOCK + 51))
    printed = watch(path, "--alarm", "arl=20000").stdout
    assert (
        f"ALARM {BLOCK + 50} after {BLOCK + 50:,} events: event {BLOCK + 49} was predicted to be impossible" in printed
    )


def test_weights_are_not_used_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "weights.csv"
    path.write_text("p,y,w\n" + "0.5,1,3\n" * 100)
    result = watch(path, "--weight", "w", "--alarm", "arl=1000")
    assert "--alarm takes no weights: every event counts once" in result.stdout
    assert "ALARM 1 after" in result.stdout


@pytest.mark.parametrize(
    "text", ["", "arl", "arl=", "arl=x", "arl=nan", "size=3", "arl=10,arl=20", "arl=10;tolerance=.1"]
)
def test_a_wish_that_cannot_be_read(text: str) -> None:
    with pytest.raises(SourceError, match="--alarm must look like"):
        Wish.parse(text)


def test_a_wish_that_is_not_allowed(table: Path) -> None:
    for options, message in (
        (("--alarm", "arl=0"), "--alarm: arl must lie in"),
        (("--alarm", "tolerance=1"), "--alarm: tolerance must lie in"),
        (("--fail-on-alarm",), "--fail-on-alarm goes with an --alarm"),
    ):
        result = watch(table, *options)
        assert result.exit_code == 2 and message in result.stderr
    assert Wish.parse("tolerance=0.02") == Wish(20_000.0, 0.02)


def test_segments_have_one_name_in_alarms_and_in_the_summary(tmp_path: Path) -> None:
    """An empty name beside a segment that is really called (empty)."""
    path = tmp_path / "names.csv"
    path.write_text("p,y,s\n" + "0.9,0,\n0.5,1,(empty)\n0.5,0,(empty)\n" * 60)
    result = watch(path, "--segment", "s", "--alarm", "arl=500", "--json")
    (final,) = said(result, "final")
    bad = [a["segments"][0]["segment"] for a in said(result, "alarm")]
    shown = {part["segment"]: part["mean_p"] for part in final["segments"]}
    assert set(bad) == {"((empty))"} and shown == pytest.approx({"((empty))": 0.9, "(empty)": 0.5})


def test_evidence_is_a_number_in_the_summary_and_nothing_is_no_success(tmp_path: Path) -> None:
    path = tmp_path / "sure.csv"
    path.write_text("p,y\n0,1\n")
    (final,) = said(watch(path, "--alarm", "arl=500", "--json"), "final")
    assert final["evidence"] > 1e300
    path.write_text("p,y\n,1\n")
    assert watch(path, "--alarm", "arl=500", "--fail-on-alarm", "--max-bad", "1").exit_code == 2
