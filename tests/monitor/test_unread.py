"""What cannot be read is never a good end: exit code 6 with the reason, alerts while it runs, names of fields, patterns."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import time
from pathlib import Path

import pytest

from streamcal.command.monitor import _status
from streamcal.monitor import ConfigError, Monitor, check, live, parse
from streamcal.monitor.messages import MOST_UNREAD, records
from streamcal.monitor.sources.glob import GlobSource
from streamcal.monitor.store import Store

BASE = 'state = "s.db"\n[models.m]\n[sinks.none]\ntype = "file"\npath = "alerts.jsonl"\n'
PREDICTIONS = BASE + '[sources.predictions]\ntype = "file"\npath = "pred.jsonl"\n'
FOREIGN = [{"request_id": f"a{i}", "score": 0.5, "outcome": i % 2, "ts": 1.77e9 + i} for i in range(40)]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def written(path, things, how="w"):
    with open(path, how) as file:
        file.writelines(json.dumps(thing) + "\n" for thing in things)


def once(text, capfd):
    with open("c.toml", "w") as file:
        file.write(text)
    return live.run("c.toml", once=True, fail_on_alert=False), capfd.readouterr().err


def ours(n, start=0):
    return [{"id": f"a{i}", "t": 1.77e9 + i, "p": 0.5, "y": i % 2} for i in range(start, start + n)]


# -- the end of --once -----------------------------------------------------------------------------------------------


def test_messages_with_other_names_are_6_and_the_line_to_type_reads_them_all(capfd):
    written("pred.jsonl", FOREIGN)
    code, said = once(PREDICTIONS, capfd)
    line = 'fields = { id = "request_id", t = "ts", p = "score", y = "outcome" }'
    assert code == 6 and "40 of 40" in said and line in said
    assert "the keys are request_id, score, outcome, ts; needed are id, t, and p or y or both" in said
    os.remove("s.db")
    code, said = once(f"{PREDICTIONS}{line}\n", capfd)
    assert code == 0 and "predictions 40 (40 joined)" in said and "unread 0" in said
    assert once(f"{PREDICTIONS}{line}\n", capfd)[0] == 0  # nothing new is no fault


def test_a_share_of_unread_messages_that_is_too_large_is_6(capfd):
    for bad, code in ((2, 0), (3, 6)):  # of 200 and some
        written("pred.jsonl", ours(200))
        written("pred.jsonl", [{"id": f"b{i}", "p": 7, "t": 1.77e9} for i in range(bad)], "a")
        assert once(PREDICTIONS, capfd)[0] == code
        assert once(PREDICTIONS.replace("[models", "max_unread = 0.5\n[models"), capfd)[0] == 0
        os.remove("s.db")
    assert once(PREDICTIONS + "max_unread = 0.5\n", capfd)[0] == 0


@pytest.mark.parametrize("path", ["labels.jsonl", "lab*.jsonl"])
def test_a_source_that_is_not_there_or_has_vanished_is_6_and_the_others_are_read(path, capfd):
    text = f'{PREDICTIONS}[sources.labels]\ntype = "file"\npath = "{path}"\n'
    written("pred.jsonl", ours(20))
    code, said = once(text, capfd)
    assert code == 6 and "labels" in said and "predictions 20" in said
    written("labels.jsonl", ours(5))
    assert once(text, capfd)[0] == 0
    os.remove("labels.jsonl")
    code, said = once(text, capfd)
    assert code == 6 and "source labels is not there" in said


@pytest.mark.servers
def test_a_server_that_never_answers_is_6(capfd):
    pytest.importorskip("redis")
    code, said = once(f'{BASE}[sources.q]\ntype = "redis"\nurl = "redis://127.0.0.1:1/0"\nstream = "s"\n', capfd)
    assert code == 6 and "source q is away" in said


# -- while it runs ---------------------------------------------------------------------------------------------------


def pushed(monitor, things):
    return monitor.take([json.dumps(thing).encode() for thing in things]).alerts


def test_too_much_that_cannot_be_read_is_an_alert_and_resolves_over_a_restart():
    document = {"state": "s.db", "models": {"m": {}}, "sinks": {"none": {"type": "file", "path": "alerts.jsonl"}}}
    with Monitor(document) as monitor:
        assert pushed(monitor, [*ours(50), {"id": "x"}]) == []  # one of a few is no share
        (alert,) = pushed(monitor, FOREIGN[:5])
        assert (alert["kind"], alert["rule"]) == ("firing", "max_unread") and "neither p nor y" in alert["text"]
        assert alert["count"] == 56 and 'p = "score"' in alert["text"] and pushed(monitor, FOREIGN[:5]) == []
        status = monitor.status()
        assert status["unread"] == {"neither p nor y": 11} and status["sources"][""] == {"came": 61, "unread": 11}
        with Store("s.db", readonly=True) as store:
            seen = _status(store)  # before the first evaluation
        assert all(seen[key] == status[key] for key in ("unread", "examples", "sources", "firing"))
        assert [found["rule"] for found in status["firing"]] == ["max_unread"] and monitor.firing == 1
    with Monitor(document) as monitor:
        assert monitor.firing == 1 and "request_id" in monitor.status()["examples"]["neither p nor y"]
        told = [alert for k in range(30) for alert in pushed(monitor, ours(100, 100 * k))]
        assert [alert["kind"] for alert in told if alert["rule"] == "max_unread"] == ["resolved"]
        assert monitor.firing == 0
    said = [json.loads(line) for line in Path("alerts.jsonl").read_text().splitlines()]
    assert [alert["kind"] for alert in said if alert["rule"] == "max_unread"] == ["firing", "resolved"]


def test_reasons_are_bounded_and_a_million_unreadable_lines_are_counted_and_few_kept():
    start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    good, bad = records(b'{"id": "a"}\n' + b"x\n" * 1_000_000)
    used = time.process_time() - start
    assert len(good) == 1 and len(bad) == MOST_UNREAD + 1 and sum(part.times for part in bad) == 1_000_000
    assert used < 8.0 and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000  # kB; it took 393 MB
    assert sum(part.times for part in records(json.dumps(list(range(5_000))).encode())[1]) == 5_000
    with Monitor({"state": ":memory:", "models": {"m": {}}}) as monitor:
        assert monitor.take([b"x\n" * 5_000]).unread == 5_000
        assert monitor.status()["unread"] == {"not JSON": 5_000}


# -- the environment -------------------------------------------------------------------------------------------------


def test_the_environment_is_filled_into_every_text(monkeypatch):
    monkeypatch.setenv("LOGS", "/var/logs")
    monkeypatch.setenv("EMPTY", "")
    config = parse(
        'state = "${LOGS}/s.db"\naudit = "${EMPTY:-a}.jsonl"\nrecord = "$${LOGS}"\n[models.m]\nversions = ["${NONE:-7}"]\n'
        '[sources.k]\ntype = "${KIND:-kafka}"\nbrokers = "${LOGS}:1"\ntopic = "t"\noptions = {"sasl.username" = "${LOGS}"}\n'
    )
    assert (config.state, config.audit, config.record) == ("/var/logs/s.db", "a.jsonl", "${LOGS}")
    assert config.models[0].versions == ("7",) and config.sources[0].options == (("sasl.username", "/var/logs"),)


def test_a_variable_that_is_not_there_is_a_mistake_with_its_line():
    with open("c.toml", "w") as file:
        file.write(
            '[models.m]\n[sources.a]\ntype = "file"\npath = "${NO_SUCH}/a"\n[sources.b]\ntype = "file"\npath = "${x"\n'
        )
    first, second = check("c.toml")
    assert first.startswith("line 4: sources.a.path names the environment variable NO_SUCH, which is not set")
    assert second.startswith("line 7: sources.b.path must be written ${NAME}")


def test_keys_that_are_none_of_an_event_and_files_that_a_pattern_matches_are_mistakes():
    text = '[models.m]\n[sources.a]\ntype = "file"\npath = "*.jsonl"\ndead_letters = "x/../bad.jsonl"\nfields = {idd = "k"}\n'
    with pytest.raises(ConfigError) as error:
        parse(text)
    assert "sources.a.fields.idd must be a key of an event" in str(error.value) and 'did you mean "id"' in str(
        error.value
    )
    with pytest.raises(ConfigError, match=r"dead_letters must not be a file that sources.a.path matches"):
        parse(text.replace("idd", "id"))
    with pytest.raises(ConfigError, match="fields must be a table"):
        parse(text.replace('"k"', '"=1"'))  # constants are for later


# -- patterns --------------------------------------------------------------------------------------------------------


class Reader:
    """Reads a pattern, as often as asked in a new process: from the offset alone."""

    def __init__(self, pattern, follow=True):
        self.pattern, self.follow, self.offset, self.notes = pattern, follow, None, []

    def read(self, anew=True):
        source = GlobSource(self.pattern, self.follow)
        source.begin(self.offset)
        got, self.notes = [], []
        while (batch := source.read(3, 0)).payloads or batch.bad:
            self.offset = batch.offset
            got += batch.payloads
            self.notes += batch.notes
        self.offset = batch.offset
        assert source.lag == 0
        source.close()
        return got


def lines(*names):
    return [f'{{"line": "{name} that is long enough to be known"}}'.encode() for name in names]


def put(path, *names, how="ab"):
    with (gzip.open if path.endswith(".gz") else open)(path, how) as file:
        file.writelines(line + b"\n" for line in lines(*names))


def test_files_are_read_in_order_of_name_each_once_and_what_is_added():
    put("e-2.jsonl", "c", "d")
    put("e-1.jsonl.gz", "a", "b")
    reader = Reader("e-*.jsonl*")
    assert reader.read() == lines("a", "b", "c", "d") and reader.read() == []
    put("e-2.jsonl", "e")
    put("e-0.jsonl", "later")
    assert reader.read() == lines("later", "e") and reader.read() == []
    assert Reader("e-*.jsonl*", follow=False).read() == lines("later", "a", "b", "c", "d", "e")


@pytest.mark.parametrize("pattern", ["e.json*", "*.jsonl"])
def test_rotation_takes_nothing_and_gives_nothing_twice(pattern):
    reader = Reader(pattern)
    put("e.jsonl", "a", "b")
    assert reader.read() == lines("a", "b")
    put("e.jsonl", "c")
    os.rename("e.jsonl", "e.jsonl.1")  # with a line that was not read
    put("e.jsonl", "d")
    assert sorted(reader.read()) == lines("c", "d")
    os.rename("e.jsonl.1", "e.jsonl.2")
    os.rename("e.jsonl", "e.jsonl.1")
    put("e.jsonl", "e")
    assert reader.read() == lines("e")
    shutil.copy("e.jsonl", "e.jsonl.3")  # copytruncate
    os.truncate("e.jsonl", 0)
    put("e.jsonl", "f")
    assert reader.read() == lines("f") and any("cut or written anew" in note for note in reader.notes)
    put("e.jsonl.1.gz", "d")  # packed
    os.remove("e.jsonl.1")
    assert reader.read() == []


def test_a_last_line_without_an_end_waits_for_it_where_files_grow():
    with open("e1", "w") as file:
        file.write("[1]\n[2")
    reader, last = Reader("e?"), Reader("e?", follow=False)
    assert reader.read() == [b"[1]"] and last.read() == [b"[1]", b"[2"]
    with open("e1", "a") as file:
        file.write("]\n")
    assert reader.read() == [b"[2]"]


def test_a_file_of_the_very_name_is_no_pattern_and_a_source_may_become_a_pattern(capfd):
    written("e[1].jsonl", ours(3))
    one = f'{BASE}[sources.s]\ntype = "file"\npath = "e[1].jsonl"\n'
    assert once(one, capfd)[0] == 0
    written("e[2].jsonl", ours(2, 3))
    code, said = once(one.replace("e[1].jsonl", "e*.jsonl"), capfd)
    assert code == 0 and "predictions 5 (5 joined)" in said
