"""A format of one's own, from outside the package: one class, and its line in the registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamcal.command.main import app
from streamcal.reading.cells import EventBatch, Reading
from streamcal.reading.formats import FORMATS, TextFormat
from streamcal.reading.roles import Roles


class Ltsv(TextFormat):
    """Labelled values: `p:0.25<tab>y:1`."""

    def __init__(self, head: bytes) -> None:
        self.columns = list(self.cells(head.split(b"\n")[0]))

    @classmethod
    def begins(cls, head: bytes) -> bool:
        return b":" in head.split(b"\t")[0] and not head.startswith(b"{")

    @staticmethod
    def cells(line: bytes) -> dict[str, str]:
        return dict(cell.split(":", 1) for cell in line.decode().split("\t"))

    def begin(self, columns: Roles) -> None:
        self.reading = Reading(columns)

    def parse(self, block: bytes, line: int) -> EventBatch:
        rows = [self.cells(text) for text in block.splitlines()]
        names = self.reading.columns.names
        return self.reading.batch(
            {name: [row.get(name) for row in rows] for name in names}, range(line, line + len(rows))
        )


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setitem(FORMATS, "ltsv", Ltsv)
    rows = [(i % 10 / 10 + 0.05, i % 3 // 2) for i in range(300)]
    csv, ltsv = tmp_path / "in.csv", tmp_path / "in.ltsv"
    csv.write_text("p,y\n" + "".join(f"{p},{y}\n" for p, y in rows) + "high,1\n")
    ltsv.write_text("".join(f"p:{p}\ty:{y}\n" for p, y in rows) + "p:high\ty:1\n")
    return csv, ltsv


@pytest.mark.parametrize("options", [(), ("--format", "ltsv")])
def test_it_is_found_and_read_like_any_other(paths: tuple[Path, Path], options: tuple[str, ...]) -> None:
    csv, ltsv = (
        json.loads(CliRunner().invoke(app, ["report", str(path), "--json", *more]).stdout)
        for path, more in zip(paths, ((), options), strict=True)
    )
    source = ltsv.pop("source")
    assert source["format"] == "ltsv" and source["columns"]["p"] == ["p"]
    assert source["bad"]["first"] == [{"line": 301, "column": "p", "value": "high"}]
    csv.pop("source")
    assert ltsv == csv


def test_it_is_watched_and_named(paths: tuple[Path, Path]) -> None:
    watched = CliRunner().invoke(app, ["watch", str(paths[1]), "--window", "100", "--idle-exit", "0"])
    assert watched.exit_code == 0 and watched.stdout.count("\nwindow ") == 2
    refused = CliRunner().invoke(app, ["report", str(paths[1]), "--format", "xml"])
    assert "--format must be one of csv, jsonl, json, parquet, arrow, ltsv, got xml" in refused.stderr
