"""Rotation while nobody looks, through both doors that follow files: `watch FILE` and a source of the monitor."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streamcal.monitor.sources.file import FileSource
from streamcal.reading.roles import Roles
from streamcal.reading.tables import open_source
from streamcal.reading.waiting import Patience

Look = Callable[[], list[float]]


def command(path: Path) -> Look:
    """The predictions that `watch FILE` sees at each look."""
    source = open_source(str(path), follow=True, patience=Patience(poll=0.001))
    batches = source.batches(Roles(("p",), "y"))

    def look() -> list[float]:
        seen: list[float] = []
        silent = 0
        while silent < 2:
            batch = next(batches)
            silent = 0 if len(batch) else silent + 1
            seen += batch.p.tolist()
        return seen

    return look


def monitor(path: Path) -> Look:
    """The predictions that a source of the monitor sees at each look."""
    source = FileSource(str(path), True)
    source.begin(None)

    def look() -> list[float]:
        seen: list[float] = []
        while payloads := source.read(2, 0).payloads:
            seen += [json.loads(payload)["p"] for payload in payloads]
        return seen

    return look


def write(path: Path, *ps: float) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps({"p": p, "y": 1, "note": "a line that is long enough"}) + "\n" for p in ps)


@pytest.fixture(params=[command, monitor])
def door(request: pytest.FixtureRequest) -> Callable[[Path], Look]:
    found: Callable[[Path], Look] = request.param
    return found


def test_what_was_written_before_a_rotation_and_between_two_is_read(
    tmp_path: Path, door: Callable[[Path], Look]
) -> None:
    path = tmp_path / "events.jsonl"
    write(path, 0.1)
    look = door(path)
    assert look() == [0.1]
    write(path, 0.2, 0.3)
    path.rename(tmp_path / "events.jsonl.2")
    write(path, 0.4)
    os.utime(path, ns=(2**61, 2**61))  # the second rotation is later than the clock of the file system can be coarse
    path.rename(tmp_path / "events.jsonl.1")
    write(path, 0.5)
    assert look() == [0.2, 0.3, 0.4, 0.5]


def test_a_copy_that_was_made_before_the_cut_is_read_to_its_end(tmp_path: Path, door: Callable[[Path], Look]) -> None:
    path = tmp_path / "events.jsonl"
    write(path, 0.1)
    look = door(path)
    assert look() == [0.1]
    write(path, 0.2)
    shutil.copyfile(path, tmp_path / "events.jsonl.1")
    os.truncate(path, 0)
    write(path, 0.3)
    assert look() == [0.2, 0.3]


def test_a_line_that_never_ended_does_not_run_into_the_next_file(tmp_path: Path, door: Callable[[Path], Look]) -> None:
    path = tmp_path / "events.jsonl"
    write(path, 0.1)
    look = door(path)
    assert look() == [0.1]
    with path.open("a") as file:
        file.write('{"p": 0.2, "y": 1}')
    path.rename(tmp_path / "events.jsonl.1")
    write(path, 0.3)
    assert look() == [0.2, 0.3]
