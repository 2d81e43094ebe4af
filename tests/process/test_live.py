"""`streamcal watch --config` as its user meets it: rotation, signals, status, a reader that goes away, the wall clock."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from live_streams import START, planted
from live_watch import (
    COMMON,
    Watch,
    accounts,
    check,
    command,
    environment,
    lines,
    streamcal,
    transport,
    until,
)

pytestmark = pytest.mark.servers  # whole processes, seconds each

SOURCE = '[sources.events]\ntype = "file"\npath = "events.jsonl"\n'


def taken(folder):
    file = folder / "taken.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


class Written:
    """A planted stream that is written a part at a time; how many objects have been written."""

    def __init__(self, to, stream, parts):
        self.to, self.objects, size = to, 0, -(-len(stream.rounds) // parts)
        self.parts = [stream.rounds[i : i + size] for i in range(0, len(stream.rounds), size)]

    def write(self, folder, wait=True):
        for both in self.parts.pop(0):
            for side, messages in enumerate(both):
                self.to.send(side, messages)
                self.objects += sum(map(_objects, messages))
        if wait:
            until(lambda: taken(folder) >= self.objects, what=f"the {self.objects}th object")


def _objects(message):
    try:
        found = json.loads(message[1])
    except ValueError:
        return 0
    things = found["events"] if isinstance(found, dict) and "events" in found else found
    things = things if isinstance(things, list) else [things]
    return sum(isinstance(thing, dict) for thing in things)


def rotate(folder, to, packed=False):
    """Rename and create, as logrotate does."""
    for side, name in enumerate(("predictions", "labels")):
        path = folder / f"{name}.jsonl"
        for old in (2, 1):
            for end in ("", ".gz"):
                if (was := folder / f"{name}.jsonl.{old}{end}").exists():
                    was.rename(folder / f"{name}.jsonl.{old + 1}{end}")
        rotated = folder / f"{name}.jsonl.1"
        path.rename(rotated)
        to.files[side].close()
        to.files[side] = open(path, "ab", buffering=0)  # noqa: SIM115
        if packed:
            with gzip.open(f"{rotated}.gz", "wb") as file:
                file.write(rotated.read_bytes())
            rotated.unlink()


def test_files_rotate_while_it_runs_and_while_it_does_not_and_both_signals_end_it_well(tmp_path):
    stream = planted(1_200, seed=3)
    with transport("file", tmp_path) as to:
        text = Written(to, stream, 8)
        with Watch(tmp_path) as watch:
            text.write(tmp_path)
            rotate(tmp_path, to)
            text.write(tmp_path)
            text.write(tmp_path, wait=False)
            rotate(tmp_path, to)  # with or without having been read
            text.write(tmp_path)
            assert watch.stop(signal.SIGTERM) == 0, watch.errors
        text.write(tmp_path, wait=False)
        rotate(tmp_path, to)
        text.write(tmp_path, wait=False)
        rotate(tmp_path, to, packed=True)
        with Watch(tmp_path) as watch:
            text.write(tmp_path)
            for name in ("predictions", "labels"):  # copytruncate
                path = tmp_path / f"{name}.jsonl"
                shutil.copy(path, f"{path}.9")
                os.truncate(path, 0)
            time.sleep(0.5)
            text.write(tmp_path)
            assert watch.stop(signal.SIGINT) == 0, watch.errors
    assert "rotated" in watch.errors and "Traceback" not in watch.errors
    check(tmp_path, stream)


def test_once_reads_to_the_end_and_ends_by_itself_and_again_does_nothing(tmp_path):
    stream = planted(1_000, seed=4)
    with transport("file", tmp_path) as to:
        Written(to, stream, 1).write(tmp_path, wait=False)
    for n in range(2):
        with Watch(tmp_path, "--once", *(["--fail-on-alarm"] if n else [])) as watch:
            assert watch.ended() == 0, watch.errors  # the second time there was no new alarm
        if not n:
            before = {name: (tmp_path / name).read_bytes() for name in ("alerts.jsonl", "audit.jsonl", "taken.jsonl")}
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    check(tmp_path, stream)


def test_nothing_to_do_takes_no_time_and_status_says_how_it_stands(tmp_path):
    stream = planted(1_000, seed=5)
    with transport("file", tmp_path) as to, Watch(tmp_path) as watch:
        Written(to, stream, 1).write(tmp_path)
        until(lambda: accounts(tmp_path), what="a state")
        ticks, start = _ticks(watch), time.monotonic()
        running = streamcal(tmp_path, "status", "state.db", "--json")
        human = streamcal(tmp_path, "status", "c.toml")
        time.sleep(max(0.0, start + 3.0 - time.monotonic()))
        used = (_ticks(watch) - ticks) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - start)
        assert used < 0.15, f"{used:.0%} of a processor while nothing comes"
        assert watch.stop() == 0
    stopped = streamcal(tmp_path, "status", "c.toml", "--json")
    assert (running.returncode, human.returncode, stopped.returncode) == (0, 0, 0), running.stderr + human.stderr
    first, last = json.loads(running.stdout), json.loads(stopped.stdout)
    assert first["models"] == last["models"] and first["clock"] == last["clock"]
    assert [m["version"] for m in last["models"]] == ["7", "8"]
    for found in (first, last):
        for model in found["models"]:
            side = stream.sides[model["version"]]
            assert model["predictions"]["joined"] == side.predictions["joined"]
            assert model["labels"]["received"] == side.labels["received"]
    assert last["undelivered"] == {"out": 0, "file": 0}
    assert "churn 7: predictions" in human.stdout and "rejected for p" in human.stdout
    fires = streamcal(tmp_path, "status", "state.db", "--fail-on-firing")
    assert fires.returncode == bool(last["firing"]) and ("FIRING" in fires.stdout) == bool(last["firing"])


def _ticks(watch):
    fields = Path(f"/proc/{watch.process.pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_reader_that_goes_away_ends_no_monitor(tmp_path):
    """`| head -1`: no traceback, the alerts go on to the file, and what stdout did not take is not kept for ever."""
    stream = planted(6_000, seed=6)
    with transport("file", tmp_path) as to:
        Written(to, stream, 1).write(tmp_path, wait=False)
    with open(tmp_path / "err", "wb") as err:
        shell = subprocess.Popen(
            command("watch", "--config", "c.toml", "--once"),
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=err,
        )
        assert json.loads(shell.stdout.readline())["kind"] == "firing"
        shell.stdout.close()
        assert shell.wait(120) == 0
    errors = (tmp_path / "err").read_text()
    assert "Traceback" not in errors and "Exception ignored" not in errors and "Broken pipe" in errors
    said = lines(tmp_path, "alerts.jsonl")
    assert len(said) > 1 and Counter((a["id"], a["kind"]) for a in said).most_common(1)[0][1] == 1


def test_the_wall_clock_moves_time_and_holds_the_future(tmp_path):
    common = COMMON.replace('every = "10m"', 'every = "1s"\nclock = "wall"').replace('ttl = "3000d"', 'ttl = "3s"')
    common = common.replace('hold = "3000d"', 'hold = "3s"').replace('ahead = "3000d"', 'ahead = "1h"')
    (tmp_path / "c.toml").write_text(common + SOURCE)
    now = time.time()
    things = [
        {"id": "a", "p": 0.5, "t": now, "country": "at"},
        {"id": "b", "p": 0.5, "t": now + 7200.0, "country": "at"},
        {"id": "c", "p": 0.5, "t": START, "country": "at"},
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(thing) + "\n" for thing in things))
    with Watch(tmp_path) as watch:
        found = until(
            lambda: (a := accounts(tmp_path).get(("churn", ""))) and a[0]["expired"] and a[0],
            what="an expired prediction",
        )
        assert found == Counter({"received": 2, "expired": 1, "rejected late": 1})
        first = json.loads(streamcal(tmp_path, "status", "state.db", "--json").stdout)
        second = until(
            lambda: (s := json.loads(streamcal(tmp_path, "status", "state.db", "--json").stdout)) != first and s,
            what="time",
        )
        assert second["clock"] > first["clock"] and second["evaluated"] >= first["evaluated"]
        assert watch.stop() == 0, watch.errors
