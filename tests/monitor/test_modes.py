"""Files that a monitor makes are for their owner alone, those that are there keep their mode, and no link is followed."""

from __future__ import annotations

import json
import os
import stat

import pytest

from streamcal.monitor import ConfigError, Monitor
from streamcal.monitor.config.config import from_document
from streamcal.monitor.store import Store, StoreError

NAMES = ("s.db", "s.db-wal", "s.db-shm", "audit.jsonl", "taken.jsonl", "alerts.jsonl", "dead.jsonl")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o027)
    yield
    os.umask(before)


def written(**more):
    """A monitor that has written each of its files, while it is open."""
    source = {"type": "file", "path": "in.jsonl", "dead_letters": "dead.jsonl"}
    document = {"state": "s.db", "audit": "audit.jsonl", "record": "taken.jsonl", "models": {"m": {}}, **more}
    alerts = {"type": "file", "path": "alerts.jsonl"}
    monitor = Monitor(document | {"sources": {"in": source}, "sinks": {"alerts": alerts}})
    things = [json.dumps({"id": str(i), "p": 0.5, "y": 1, "t": 60.0 * i}).encode() for i in range(3)]
    monitor.take([*things, b'{"id": "x"}', b'{"id": "y"}'])
    return monitor


def modes():
    return {name: stat.S_IMODE(os.stat(name).st_mode) for name in NAMES}


@pytest.mark.parametrize("mode", [None, "0640", "666"])
def test_what_is_made_has_the_mode_that_is_declared_whatever_the_umask(mode):
    monitor = written(files={} if mode is None else {"mode": mode})
    assert modes() == dict.fromkeys(NAMES, int(mode or "0600", 8))
    monitor.close()


def test_what_is_there_keeps_its_mode():
    for name in NAMES[:1] + NAMES[3:]:
        with open(name, "w"):
            os.chmod(name, 0o644)
    written().close()
    assert {stat.S_IMODE(os.stat(name).st_mode) for name in NAMES[:1] + NAMES[3:]} == {0o644}


@pytest.mark.parametrize("name", NAMES)
def test_no_link_is_followed(name):
    with open("victim", "w") as victim:
        victim.write("kept")
    os.symlink("victim", name)
    if name.startswith("s.db"):
        with pytest.raises(StoreError, match="a link is not followed"):
            written()
    else:
        with pytest.warns(UserWarning, match="a link is not followed"):
            monitor = written()
        assert any("a link is not followed" in text for text in monitor.status()["trouble"])
        os.remove(name)
        monitor.close()  # what was kept for it is written now
        assert os.stat(name).st_size
    with open("victim") as victim:
        assert victim.read() == "kept"


def test_a_mode_that_locks_the_owner_out_is_a_mistake():
    for mode in ("0440", "0800", 416, "64"):
        with pytest.raises(ConfigError, match='files.mode must be a text of octal digits such as "0640"'):
            from_document({"models": {"m": {}}, "files": {"mode": mode}})


def test_a_second_close_is_silent_also_after_a_batch_that_was_not_kept():
    monitor = Monitor({"state": "s.db", "models": {"m": {}}})
    monitor.close()
    monitor.close()
    monitor = Monitor({"state": "s.db", "models": {"m": {}}}, store=Store("s.db"))
    monitor.store.refuse("as after a full disk")
    with pytest.raises(StoreError):
        monitor.close()
    monitor.close()
