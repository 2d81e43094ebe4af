"""A source and a sink of one's own: one class each, and a table of the TOML file that is its dataclass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from streamcal.monitor import ConfigError, Monitor, live, load, parse
from streamcal.monitor.config.toml_tables import TEXT, TEXTS, entry, whole
from streamcal.monitor.sinks.outbox import Outbox, Sink
from streamcal.monitor.sinks.registry import SINKS
from streamcal.monitor.sources.registry import SOURCES, SourceTable
from streamcal.monitor.sources.source import Messages, Source

TOLD = []  # what pagers were told: (number, alert)


class Numbers(Source):
    """Predictions that are all too high, and their labels."""

    def __init__(self, count):
        self.count, self.next, self.acknowledged = count, 0, []

    def begin(self, offset):
        self.next = int(offset or 0)

    def read(self, most, wait):
        first, self.next = self.next, min(self.next + min(most, 7), self.count)
        things = [json.dumps([{"id": k, "t": 60.0 * k, "p": 0.9, "y": 0}]).encode() for k in range(first, self.next)]
        things += [b"rubbish"] * (first == 0)
        places = [f"number {k}" for k in range(len(things))]
        return Messages(things, places, str(self.next).encode(), ended=self.next == self.count)


@dataclass(frozen=True)
class FromNumbers(SourceTable):
    count: int = entry(whole(1, 1000))

    def open(self, follow, stop):
        return Numbers(self.count)


class Pager(Sink):
    down = False

    def __init__(self, table, saved):
        super().__init__(f"pager {table.number}", saved)
        self.number = table.number

    def tell(self, alerts):
        if Pager.down:
            raise OSError("no line")
        TOLD.extend((self.number, json.loads(alert)) for alert in alerts)


@dataclass(frozen=True)
class ToPager:
    name: str
    number: str = entry(TEXT)
    quiet: tuple[str, ...] = entry(TEXTS, ())

    def open(self, files, saved):
        return Pager(self, saved)


@pytest.fixture(autouse=True)
def registered(monkeypatch, tmp_path):
    monkeypatch.setitem(SOURCES, "numbers", FromNumbers)
    monkeypatch.setitem(SINKS, "pager", ToPager)
    monkeypatch.chdir(tmp_path)
    TOLD.clear()
    monkeypatch.setattr(Pager, "down", False)


CONFIG = """
[models.m]
[windows.w]
events = 100
[rules.r]
metric = "k1"
window = "w"
above = 0.5
level = 0
min_count = 10
[sources.all]
type = "numbers"
count = 60
max_unread = 0.05
dead_letters = "letters.jsonl"
[sinks.ops]
type = "pager"
number = "0699"
"""


def test_both_run_from_a_file_as_watch_once_does(tmp_path, capfd):
    (tmp_path / "c.toml").write_text(CONFIG)
    assert load("c.toml").sources == (FromNumbers("all", count=60, max_unread=0.05, dead_letters="letters.jsonl"),)
    assert live.run("c.toml", once=True, fail_on_alert=True) == 1
    ((number, alert),) = TOLD
    assert (number, alert["kind"], alert["rule"]) == ("0699", "firing", "r")
    (letter,) = map(json.loads, (tmp_path / "letters.jsonl").read_text().splitlines())
    assert (letter["source"], letter["place"], letter["what"]) == ("all", "number 7", "rubbish")
    assert "predictions 60" in capfd.readouterr().err
    assert live.run("c.toml", once=True, fail_on_alert=True) == 0, "it goes on at its offset, where there is no more"
    assert len(TOLD) == 1
    with Monitor("c.toml") as monitor:
        assert monitor.status()["taken"] == 120 and monitor.status()["undelivered"] == {"ops": 0}


def test_their_keys_are_checked_as_those_of_all_others():
    def mistakes(old, new):
        with pytest.raises(ConfigError) as error:
            parse(CONFIG.replace(old, new))
        return [finding.text for finding in error.value.findings]

    assert mistakes("count = 60", "count = 0") == [
        "sources.all.count must be a whole number in 1..1000, got 0 (whole number)"
    ]
    assert mistakes("count = 60\n", "") == ['sources.all lacks the key count, which type = "numbers" needs']
    assert mistakes('"pager"', '"pger"') == [
        'sinks.ops.type must be one of "stdout", "file", "webhook", "pager", got "pger" (text); did you mean "pager"?'
    ]
    assert mistakes('number = "0699"', 'number = "0"\nurl = "http://x"') == [
        'sinks.ops.url goes only with type = "webhook", got type = "pager"'
    ]
    assert mistakes("number =", "numer =") == [
        'unknown key sinks.ops.numer; did you mean "number"? Allowed: type, path, url, url_env, format, retries, rate, '
        "timeout, dead_letters, number, quiet"
    ]
    assert mistakes('"letters.jsonl"', '"streamcal.db"') == [
        'sources.all.dead_letters must not be the file of state, got "streamcal.db" for both'
    ]


def alert(number):
    texts = ("id", "rule", "severity", "model", "version", "segment", "since", "at", "text")
    return dict.fromkeys(texts, f"{number}") | {"kind": "firing"}


def test_a_sink_that_fails_keeps_its_alerts_and_one_that_is_gone_leaves_them_to_its_dead_letters(tmp_path):
    outbox, Pager.down = Outbox((ToPager("ops", number="1"),)), True
    outbox.alert(alert(1))
    with pytest.raises(Exception, match="pager 1: no line; 1 alerts for it are kept"):
        saved(outbox)
    again = Outbox((ToPager("ops", number="2"),), outbox.to_bytes())
    again.alert(alert(2))
    state, Pager.down = again.to_bytes(), False
    again.deliver(0.0)
    assert [(number, said["id"]) for number, said in TOLD] == [("2", "1"), ("2", "2")] and again.undelivered == {
        "ops": 0
    }
    without = Outbox((), state)
    saved(without)
    letters = [json.loads(line) for line in (tmp_path / "undelivered.jsonl").read_text().splitlines()]
    assert [letter["alert"]["id"] for letter in letters] == ["1", "2"]


def saved(outbox):
    outbox.to_bytes()
    outbox.deliver(0.0)


def test_clients_of_servers_are_not_imported_to_read_a_configuration():
    code = (
        "import sys; from streamcal.monitor import parse; parse('[models.m]')\n"
        "print(sorted({'urllib3', 'redis', 'confluent_kafka'} & {*sys.modules}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert out.stdout.strip() == "[]"
