"""Alerts from `streamcal watch` to a webhook that is down, slow, broken and back, while the monitor is killed in between."""

from __future__ import annotations

import contextlib
import json
import threading
import time

import pytest
from live_streams import planted
from live_watch import Watch, all_there, lines, transport, until
from test_webhook import Receiver, free_port

pytestmark = [pytest.mark.jit, pytest.mark.servers]  # whole processes, again and again

SINK = """
[sinks.ops]
type = "webhook"
url = "http://127.0.0.1:{port}/hook"
retries = {retries}
rate = 6000
timeout = "0.5s"
"""
SLOW = ("hang", 0.8)
STREAM = planted(4_000, seed=11)


def started(folder, port, retries):
    text = (folder / "c.toml").read_text()
    (folder / "c.toml").write_text(text + SINK.format(port=port, retries=retries))


def wanted(folder):
    """The keys of all alerts that were said: those in the alerts file."""
    return {f"{alert['id']}-{alert['kind']}" for alert in lines(folder, "alerts.jsonl")}


def test_every_alert_arrives_though_both_ends_fail(tmp_path):
    port = free_port()
    taken, stop = {}, threading.Event()

    def receiver():
        """Down, then up with trouble, down again, then up for good."""
        for script, seconds in (([500, SLOW, 503, "middle", 429, 200, 500], 3.0), ([500, 200, SLOW], 2.0), ([], 1e9)):
            if stop.wait(1.0):
                return
            with Receiver(script, port) as there:
                stop.wait(seconds)
                for key, body in there.taken:
                    taken.setdefault(key, []).append(body)

    with transport("file", tmp_path) as to:
        started(tmp_path, port, retries=100)
        thread = threading.Thread(target=receiver, daemon=True)
        thread.start()
        try:
            size = len(STREAM.rounds) // 3 + 1
            for n in range(3):
                with Watch(tmp_path) as watch:
                    for both in STREAM.rounds[n * size : (n + 1) * size]:
                        for side, messages in enumerate(both):
                            to.send(side, messages)
                    before = len(lines(tmp_path, "taken.jsonl"))
                    until(
                        lambda n=n, before=before: len(lines(tmp_path, "taken.jsonl")) > before or n == 2,
                        what="progress",
                    )
                    time.sleep(0.7)
                    if n < 2:
                        watch.kill()
                        continue
                    until(lambda: all_there(tmp_path, STREAM), what="the end of the stream")
                    until(lambda: delivered(tmp_path), within=60.0, what="delivery")
                    assert watch.stop() == 0, watch.errors
        finally:
            stop.set()
            thread.join()
    assert taken.keys() == wanted(tmp_path) and len(taken) > 10
    assert not (tmp_path / "undelivered.jsonl").exists()
    for key, bodies in taken.items():  # what came twice is the same, so that a receiver can tell
        assert all(body == bodies[0] for body in bodies), key
        assert f"{bodies[0]['id']}-{bodies[0]['kind']}" == key


def delivered(folder):
    from streamcal.monitor.store import Store

    with contextlib.suppress(Exception), Store(folder / "state.db", readonly=True) as store:
        head = json.loads((store.get("outbox") or b"{}").partition(b"\n")[0])
        return not head["sinks"]["ops"]["queue"]
    return False


def test_what_nobody_takes_is_in_the_dead_letters_once(tmp_path):
    """Nobody listens, or says no: each alert is one dead letter, also when the monitor was killed in between."""
    with transport("file", tmp_path) as to, Receiver([404] * 5) as no:
        started(tmp_path, no.server_port, retries=1)
        for side in (0, 1):
            to.send(side, [m for both in STREAM.rounds[:60] for m in both[side]])
        with Watch(tmp_path) as watch:
            until(lambda: lines(tmp_path, "undelivered.jsonl"), what="a dead letter")
            watch.kill()
        no.shutdown()
        no.server_close()
        for side in (0, 1):
            to.send(side, [m for both in STREAM.rounds[60:] for m in both[side]])
        with Watch(tmp_path) as watch:
            until(lambda: all_there(tmp_path, STREAM), what="the end of the stream")
            until(lambda: delivered(tmp_path), what="giving up")
            assert watch.stop() == 0, watch.errors
        letters = lines(tmp_path, "undelivered.jsonl")
        keys = [f"{letter['alert']['id']}-{letter['alert']['kind']}" for letter in letters]
        taken = {key for key, _ in no.taken}
        assert len(set(keys)) == len(keys) and {*keys} | taken == wanted(tmp_path)
        assert "/hook" not in (tmp_path / "undelivered.jsonl").read_text() + watch.errors
