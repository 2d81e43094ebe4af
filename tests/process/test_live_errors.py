"""`streamcal watch --config` where something is wrong: a clear word, exit code 2, nothing damaged, and it goes on afterwards."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import time

import pytest
from live_streams import planted
from live_watch import COMMON, Watch, accounts, check, lines, transport, until, wanted
from typer.testing import CliRunner

from streamcal.command.main import app

pytestmark = pytest.mark.servers  # whole processes, seconds each

SOURCE = '[sources.events]\ntype = "file"\npath = "events.jsonl"\n'
EVENTS = [{"id": i, "p": 0.25, "y": 0, "t": 1e9 + i, "country": "at"} for i in range(2_000)]


def watch(folder, *args):
    """The command in this process, in a folder; it must not end with anything but an exit code."""
    here = os.getcwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(app, ["watch", "--config", "c.toml", *args])
    finally:
        os.chdir(here)
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.stderr
    return result


def refused(folder, *args, code=2):
    """What it says to exit code 2: usage, configuration, input; or 4: the state."""
    result = watch(folder, *args)
    assert result.exit_code == code, result.stdout + result.stderr
    assert result.stderr.startswith("streamcal: ")
    return result.stderr


def with_events(folder):
    (folder / "c.toml").write_text(COMMON + SOURCE)
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    return folder


@pytest.fixture
def folder(tmp_path):
    return with_events(tmp_path)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A folder in which the events were taken."""
    folder = with_events(tmp_path_factory.mktemp("once"))
    watch(folder, "--once")
    return folder


@pytest.fixture
def taken(once, tmp_path):
    """A copy of it, to be damaged."""
    return shutil.copytree(once, tmp_path, dirs_exist_ok=True)


def configured(folder, text):
    (folder / "c.toml").write_text(text)


def joined(folder):
    return accounts(folder)["churn", ""][0]["joined"]


# ---- configurations


def test_all_that_is_wrong_with_a_configuration_is_said_and_nothing_is_made(folder):
    configured(folder, COMMON.replace('every = "10m"', 'every = "10 parsecs"').replace("above = 0.06", "abov = 0.06"))
    said = refused(folder, "--once")
    assert "line 5" in said and "10 parsecs" in said and "abov" in said
    here = os.getcwd()
    os.chdir(folder)
    try:
        check = CliRunner().invoke(app, ["check", "c.toml"])
    finally:
        os.chdir(here)
    assert check.exit_code == 2 and "10 parsecs" in check.stderr and "abov" in check.stderr
    assert sorted(p.name for p in folder.iterdir()) == ["c.toml", "events.jsonl"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no [sources.NAME]"),
        ('[sources.events]\ntype = "file"\npath = "nowhere.jsonl"\n', "nowhere.jsonl"),
        ('[sources.events]\ntype = "file"\npath = "."\n', "Is a directory"),
        (SOURCE + '[sinks.chat]\ntype = "webhook"\nurl_env = "THERE_IS_NO_SUCH_URL"\n', "THERE_IS_NO_SUCH_URL"),
        (SOURCE.replace("events.jsonl", "wide.jsonl"), "UTF-16"),
        (SOURCE.replace("events.jsonl", "half.gz"), "not complete"),
    ],
)
def test_sources_and_sinks_that_cannot_be(folder, text, said):
    (folder / "wide.jsonl").write_text("{}\n", encoding="utf-16")
    (folder / "half.gz").write_bytes(b"\x1f\x8b\x08\x00aaaaaaaaaaaa")
    configured(folder, COMMON + text)
    assert said in refused(folder, "--once", code=6 if "nowhere" in said else 2)


def test_a_configuration_that_is_not_there_or_no_text(folder):
    configured(folder, "")
    (folder / "c.toml").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in refused(folder, "--once")
    (folder / "c.toml").unlink()
    assert "No such file" in refused(folder, "--once")


def test_fail_on_alarm_and_what_is_watched_without_alarm(folder):
    assert watch(folder, "--once", "--fail-on-alarm").exit_code == 1  # p = .25 where nothing ever happens
    assert watch(folder, "--once", "--fail-on-alarm").exit_code == 0  # nothing new


# ---- the state


@pytest.mark.parametrize("kind", ["text", "folder", "of something else", "no folder"])
def test_a_state_that_is_none_is_left_as_it_is(folder, kind):
    state = folder / "state.db"
    if kind == "text":
        state.write_text("this is not a state\n" * 100)
    elif kind == "folder":
        state.mkdir()
    elif kind == "no folder":
        configured(folder, COMMON.replace("state.db", "nowhere/state.db") + SOURCE)
    else:
        with sqlite3.connect(state) as other:
            other.execute("CREATE TABLE mine (x)")
        other.close()
    before = state.read_bytes() if state.is_file() else None
    assert "state.db" in refused(folder, "--once", code=4)
    assert before is None or state.read_bytes() == before


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_state_is_either_noticed_or_harmless(taken, seed):
    """Bytes somewhere in the file are overwritten: never a traceback, whatever it is."""
    state, rng = taken / "state.db", random.Random(seed)
    data = bytearray(state.read_bytes())
    for _ in range(30):
        at = rng.randrange(100, len(data) - 64)
        data[at : at + rng.randrange(1, 64)] = rng.randbytes(32)
    state.write_bytes(data[: rng.randrange(1, len(data))] if seed % 4 == 0 else data)
    with open(taken / "events.jsonl", "a") as file:
        file.write(json.dumps(EVENTS[0] | {"id": "new", "t": 1.1e9}) + "\n")
    result = watch(taken, "--once")
    assert result.exit_code in (0, 4), result.stderr
    if result.exit_code:
        assert "state.db" in result.stderr


@pytest.mark.parametrize("name", ["checkpoint", "monitor", "rules", "outbox", "offset/events", "join"])
@pytest.mark.parametrize("data", [b"", b"{}", b"\x93\x01", b"[[1]]", b"null"])
def test_documents_that_are_damaged_are_noticed(taken, name, data):
    with sqlite3.connect(taken / "state.db") as file:
        file.execute("UPDATE document SET data = ? WHERE name = ?", (data, name))
    file.close()
    result = watch(taken, "--once")
    assert result.exit_code in (0, 4), result.stderr
    if result.exit_code:
        assert any(word in result.stderr for word in ("state.db", "offset", "outbox"))


def test_of_two_monitors_with_one_state_one_ends(tmp_path):
    stream = planted(600, seed=7)
    with transport("file", tmp_path) as to:
        for side in (0, 1):
            to.send(side, stream.rounds[0][side])
        (other := tmp_path / "other").mkdir()
        with Watch(tmp_path) as first:
            until(lambda: accounts(tmp_path), what="a state")
            for name in ("c.toml", "predictions.jsonl", "labels.jsonl", "state.db", "state.db-wal", "alerts.jsonl"):
                (other / name).symlink_to(tmp_path / name)
            text = (tmp_path / "c.toml").read_text().replace('state = "state.db"', f'state = "{tmp_path}/state.db"')
            (other / "c.toml").unlink()
            (other / "c.toml").write_text(text)
            with Watch(other) as second:
                time.sleep(3.0)
                for both in stream.rounds[1:]:
                    for side, messages in enumerate(both):
                        to.send(side, messages)
                    time.sleep(0.05)
                until(lambda: None not in (first.process.poll(), second.process.poll()) or _one(first, second))
                (loser, winner) = (first, second) if first.process.poll() is not None else (second, first)
                assert loser.ended() == 4 and "only one may" in loser.errors and "Traceback" not in loser.errors
                until(lambda: accounts(tmp_path) == wanted(stream), what="the end")
                assert winner.stop(signal.SIGTERM) == 0, winner.errors


def _one(first, second):
    return (first.process.poll() is None) != (second.process.poll() is None)


# ---- no room


def limited(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.parametrize("size", [40_000, 300_000])
def test_a_state_that_cannot_grow_ends_it_and_with_room_it_goes_on(tmp_path, size):
    """What a full disk does to the state file, and to whatever else comes first."""
    stream = planted(600, seed=8)
    with transport("file", tmp_path) as to:
        for side in (0, 1):
            to.send(side, [m for both in stream.rounds for m in both[side]])
    common = (tmp_path / "c.toml").read_text()
    (tmp_path / "c.toml").write_text(common)
    with Watch(tmp_path, "--once", limit=limited(size)) as small:
        assert small.ended() == 4, small.errors
    assert "state.db" in small.errors and "Traceback" not in small.errors
    with Watch(tmp_path, "--once") as large:
        assert large.ended() == 0, large.errors
    check(tmp_path, stream)


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_alerts_for_a_full_disk_are_kept_and_written_later(folder, disk):
    fill = disk / "fill"
    with pytest.raises(OSError), open(fill, "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    configured(folder, COMMON.replace('"alerts.jsonl"', '"disk/alerts.jsonl"') + SOURCE)
    with Watch(folder) as live:
        until(lambda: "disk/alerts.jsonl" in live.errors, what="a word about it")
        assert "No space left" in live.errors and "kept" in live.errors
        with open(folder / "events.jsonl", "a") as file:
            file.write("".join(json.dumps(e | {"id": f"b{e['id']}", "t": e["t"] + 5000.0}) + "\n" for e in EVENTS))
        until(lambda: joined(folder) == 4_000, what="going on")
        fill.unlink()
        until(lambda: lines(folder, "disk/alerts.jsonl") == lines(folder, "out") != [], what="the alerts")
        assert live.stop() == 0, live.errors


def test_a_state_on_a_disk_that_can_only_be_read(folder, disk):
    configured(folder, COMMON.replace('"state.db"', '"disk/state.db"') + SOURCE)
    assert watch(folder, "--once").exit_code == 0
    with open(folder / "events.jsonl", "a") as file:
        file.write(json.dumps(EVENTS[0] | {"id": "new", "t": 1.1e9}) + "\n")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    said = refused(folder, "--once", code=4)
    assert "disk/state.db" in said and "writable" in said
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    assert watch(folder, "--once").exit_code == 0
    (folder / "state.db").symlink_to(disk / "state.db")
    assert joined(folder) == 2_001


def test_a_folder_that_is_missing_for_alerts_is_waited_for(folder):
    configured(folder, COMMON.replace('"alerts.jsonl"', '"later/alerts.jsonl"') + SOURCE)
    with Watch(folder) as live:
        until(lambda: "later/alerts.jsonl" in live.errors, what="a word about it")
        (folder / "later").mkdir()
        until(lambda: lines(folder, "later/alerts.jsonl"), what="the alerts")
        assert live.stop() == 0, live.errors


@pytest.mark.servers
def test_once_ends_where_a_server_has_no_more(folder):
    """Not only where files end; and it says so at the start what it watches."""
    pytest.importorskip("redis")
    from test_source_redis import SERVER, Server

    if SERVER is None:
        pytest.skip("redis-server is not installed")
    server = Server(folder)
    try:
        configured(folder, COMMON + f'[sources.q]\ntype = "redis"\nurl = "{server.url}"\nstream = "s"\n')
        for event in EVENTS[:50]:
            server.client.xadd("s", {"data": json.dumps(event)})
        result = watch(folder, "--once")
        assert result.exit_code == 0 and "watching q" in result.stderr and joined(folder) == 50
    finally:
        server.kill()
