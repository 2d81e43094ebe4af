"""Webhooks against real receivers that are down, slow, broken, busy and back; and against a real Alertmanager."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import some
from hypothesis import given
from hypothesis import strategies as st
from test_outbox import document

from streamcal.monitor.sinks.outbox import Outbox, OutboxError
from streamcal.monitor.sinks.registry import ToStdout, ToWebhook
from streamcal.monitor.sinks.webhook import LONGEST, Pace, Webhook, alertmanager, payload
from streamcal.monitor.store import Store

FAST = {"pause": 0.02, "resend": 60.0}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Receiver(ThreadingHTTPServer):
    """Answers as it is told, request by request, then 200; ``seen`` holds (moment, key, body, status) of all requests."""

    daemon_threads, allow_reuse_address = True, True

    def __init__(self, script=(), port=0):
        super().__init__(("127.0.0.1", port), _Answering)
        self.script, self.seen, self.lock = list(script), [], threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/hook"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request, address):
        pass  # it was told to break off

    @property
    def taken(self):
        return [(key, body) for _, key, body, status in list(self.seen) if status == 200]

    @property
    def keys(self):
        return Counter(key for key, _ in self.taken)

    def __exit__(self, *args):
        self.shutdown()
        self.server_close()


class _Answering(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            step = self.server.script.pop(0) if self.server.script else 200
            step = step(body) if callable(step) else step
            status, headers = step if isinstance(step, tuple) else (step, {})
            self.server.seen.append((time.monotonic(), self.headers["Idempotency-Key"], body, status))
        if status == "hang":
            time.sleep(headers)
        if status == "middle":
            self.wfile.write(b"HTTP/1.1 2")
        if status == "after":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Le")
        if isinstance(status, int):
            text = headers.pop("text", "") if isinstance(headers, dict) else ""
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())
        self.close_connection = True

    def log_message(self, *args):
        pass


def hook(url, tmp_path, **values):
    values = {"rate": 60_000.0, "timeout": 1.0, "dead_letters": str(tmp_path / "dead.jsonl")} | values
    return ToWebhook("ops", url=url, **values)


def until(true, wait=10.0):
    end = time.monotonic() + wait
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def go(outbox):
    outbox.to_bytes()
    outbox.deliver(time.time())


def settle(outbox, wait=10.0):
    """Wait until nothing is on its way, then write the dead letters."""
    until(lambda: not any(outbox.undelivered.values()), wait)
    go(outbox)
    outbox.close(1.0)


def dead_letters(tmp_path):
    path = tmp_path / "dead.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def key_of(alert):
    return f"{alert['id']}-{alert['kind']}"


# ---- what is sent


def test_json_is_the_document(tmp_path):
    with Receiver() as receiver:
        outbox = Outbox((hook(receiver.url, tmp_path, **FAST),))
        outbox.alert(document())
        go(outbox)
        settle(outbox)
        assert receiver.taken == [(key_of(document()), document())]


def test_slack_escapes_what_it_reads_as_markup_and_links_the_runbook():
    sent = payload("slack", document(segment="a<!channel>&b"), 0.0, 0.0)
    assert list(sent) == ["text"] and "segment a&lt;!channel&gt;&amp;b:" in sent["text"]
    assert sent["text"].endswith("\n<https://wiki.example/1|runbook>")
    assert "runbook" not in payload("slack", document() | {"runbook": None}, 0.0, 0.0)["text"]
    assert len(payload("slack", document(segment="<" * 9000) | {"runbook": None}, 0.0, 0.0)["text"]) <= 4 * 4000


def test_alertmanager_gets_labels_annotations_and_times():
    fired = alertmanager(document(), 1000.0, 240.0)
    assert fired["labels"] == {
        "alertname": "gap",
        "severity": "warning",
        "model": "churn",
        "version": "7",
        "segment": "country=at",
        "rule": "gap",
    }
    notes = fired["annotations"]
    assert notes["summary"] == document()["text"] and notes["runbook_url"] == "https://wiki.example/1"
    assert notes["value"] == "0.09" and notes["count"] == "900" and all(isinstance(v, str) for v in notes.values())
    assert (fired["startsAt"], fired["endsAt"]) == ("1970-01-01T00:00:00Z", "1970-01-01T00:20:40Z")
    resolved = alertmanager(document(kind="resolved", at=900.0), 1000.0, 240.0)
    assert resolved["labels"] == fired["labels"] and resolved["endsAt"] == "1970-01-01T00:15:00Z"
    bare = alertmanager(document() | {"value": None, "runbook": None}, 1000.0, 240.0)["annotations"]
    assert "value" not in bare and "runbook_url" not in bare


def test_times_of_the_future_are_now_for_alertmanager():
    late = document(kind="resolved", at=5000.0) | {"since": "1970-01-01T01:00:00Z"}
    sent = alertmanager(late, 1000.0, 240.0)
    assert sent["startsAt"] == sent["endsAt"] == "1970-01-01T00:16:40Z"
    assert alertmanager(document() | {"since": "inf"}, 1000.0, 240.0)["startsAt"] == "1970-01-01T00:16:40Z"


# ---- receivers in trouble


BAD = (500, 503, 408, 425, 429, ("close", None), ("middle", None))


@pytest.mark.parametrize("bad", [*BAD, (302, {"Location": "http://127.0.0.1/"}), 400, 401, 404, 413])
def test_what_may_pass_is_tried_again_and_what_will_not_is_a_dead_letter_at_once(bad, tmp_path):
    script = [(*bad,) if isinstance(bad, tuple) else (bad, {"text": "no such alert"})]
    with Receiver(script) as receiver:
        outbox = Outbox((hook(receiver.url, tmp_path, **FAST),))
        outbox.alert(document())
        go(outbox)
        settle(outbox)
        if bad in BAD:
            assert [key for _, key, *_ in receiver.seen] == [key_of(document())] * 2
            assert len(receiver.taken) == 1 and outbox.dead == {"ops": 0} and not dead_letters(tmp_path)
            return
        (letter,) = dead_letters(tmp_path)
        assert len(receiver.seen) == 1 and not receiver.taken and outbox.dead == {"ops": 1}
        assert letter["alert"] == document() and letter["attempts"] == 1 and letter["sink"] == "ops"
        assert letter["reason"].startswith(f"answered {bad if isinstance(bad, int) else bad[0]} ")
        assert isinstance(bad, tuple) or letter["reason"].endswith(": no such alert")


def test_the_status_counts_whatever_becomes_of_the_rest(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    with Receiver([("after", None)]) as receiver:
        outbox = Outbox((hook(receiver.url, tmp_path, **FAST),))
        outbox.alert(document())
        go(outbox)
        settle(outbox)
        assert len(receiver.seen) == 1 and outbox.dead == {"ops": 0}
    assert "hook" not in caplog.text  # urllib3 warns of broken headers, with the whole url


def test_after_all_retries_it_is_a_dead_letter(tmp_path):
    with Receiver([500] * 3) as receiver:
        outbox = Outbox((hook(receiver.url, tmp_path, retries=2, **FAST),))
        outbox.alert(document())
        go(outbox)
        settle(outbox)
        (letter,) = dead_letters(tmp_path)
        assert len(receiver.seen) == letter["attempts"] == 3 and "500" in letter["reason"]
        assert "500" in outbox.troubles["ops"]


@given(script=st.lists(st.sampled_from([200, *BAD, ("hang", 0.25), (429, {"Retry-After": "0"}), 404]), max_size=40))
def test_every_alert_arrives_once_or_is_a_dead_letter(script, tmp_path_factory):
    folder, alerts = (
        tmp_path_factory.mktemp("hook"),
        [document(n, kind) for n in range(6) for kind in ("firing", "resolved")],
    )
    with Receiver([(*s,) if isinstance(s, tuple) else s for s in script]) as receiver:
        outbox = Outbox((hook(receiver.url, folder, retries=3, timeout=0.1, pause=0.001),))
        for alert in alerts:
            outbox.alert(alert)
        go(outbox)
        settle(outbox, 30.0)
        dead = Counter(key_of(letter["alert"]) for letter in dead_letters(folder))
        assert receiver.keys + dead == Counter(map(key_of, alerts))
        assert outbox.dead == {"ops": len(dead)}


def test_down_then_back(tmp_path):
    port = free_port()
    outbox = Outbox((hook(f"http://127.0.0.1:{port}/x", tmp_path, retries=50, pause=0.02),))
    for n in range(5):
        outbox.alert(document(n))
    go(outbox)
    until(lambda: "onnection" in outbox.troubles.get("ops", ""))
    assert outbox.undelivered == {"ops": 5}
    with Receiver(port=port) as receiver:
        settle(outbox)
        assert receiver.keys == Counter(key_of(document(n)) for n in range(5)) and not dead_letters(tmp_path)


def test_a_slow_receiver_holds_up_nothing(tmp_path):
    with Receiver([("hang", 2.0)] * 3) as receiver:
        outbox = Outbox((hook(receiver.url, tmp_path, timeout=30.0, **FAST), ToStdout("log")))
        outbox.alert(document(1), ("ops",))
        go(outbox)
        until(lambda: receiver.seen)
        start = time.monotonic()
        outbox.alert(document(2), ("ops",))
        go(outbox)
        assert outbox.undelivered["ops"] == 2 and time.monotonic() - start < 0.5
        outbox.close(0.1)
        assert time.monotonic() - start < 1.0
        assert outbox.undelivered["ops"] == 2  # still saved


def test_a_time_out_is_respected(tmp_path):
    with Receiver([("hang", 5.0)]) as receiver:
        outbox = Outbox((hook(receiver.url, tmp_path, timeout=0.2, **FAST),))
        outbox.alert(document())
        go(outbox)
        settle(outbox, 3.0)
        assert 0.2 <= receiver.seen[1][0] - receiver.seen[0][0] < 2.0


@pytest.mark.parametrize("header", ["1", lambda: formatdate(time.time() + 2, usegmt=True)])
def test_retry_after_is_respected_by_all_alerts_of_the_sink(header, tmp_path):
    with Receiver([(429, {"Retry-After": header() if callable(header) else header})]) as receiver:
        outbox = Outbox((hook(receiver.url, tmp_path, **FAST),))
        outbox.alert(document(1))
        outbox.alert(document(2))
        go(outbox)
        settle(outbox)
        first, *others = [moment for moment, *_ in receiver.seen]
        assert len(others) == 2 and min(others) - first >= 0.95


def test_of_one_id_firing_comes_before_resolved_and_others_do_not_wait(tmp_path):
    alerts = [document(1), document(1, "resolved"), document(2)]
    alerts[1]["id"] = alerts[0]["id"]
    first = lambda body: 500 if body["id"] == alerts[0]["id"] else 200  # noqa: E731
    with Receiver([first] * 3) as receiver:
        outbox = Outbox((hook(receiver.url, tmp_path, pause=0.1),))
        for alert in alerts:
            outbox.alert(alert)
        go(outbox)
        settle(outbox)
        assert [key for key, _ in receiver.taken] == [key_of(alerts[k]) for k in (2, 0, 1)]


# ---- restarts, limits


def test_nothing_is_sent_before_it_is_saved(tmp_path):
    with Receiver() as receiver:
        outbox = Outbox((hook(receiver.url, tmp_path, **FAST),))
        outbox.alert(document(1))
        outbox.to_bytes()
        outbox.alert(document(2))
        outbox.deliver(time.time())
        until(lambda: receiver.seen)
        time.sleep(0.1)
        outbox.deliver(time.time())
        time.sleep(0.1)
        assert receiver.keys == {key_of(document(1)): 1} and outbox.undelivered == {"ops": 1}
        go(outbox)
        settle(outbox)
        assert receiver.keys == {key_of(document(1)): 1, key_of(document(2)): 1}


def test_a_restart_goes_on_with_what_was_saved_and_the_same_keys(tmp_path):
    with Receiver([500]) as receiver:
        sink = hook(receiver.url, tmp_path, pause=3.0)
        outbox = Outbox((sink,))
        for n in range(3):
            outbox.alert(document(n))
        go(outbox)
        until(lambda: outbox.undelivered == {"ops": 1})
        outbox.close(1.0)
        state = outbox.to_bytes()
        ((_, attempts, due),) = json.loads(state.partition(b"\n")[0])["sinks"]["ops"]["queue"]
        assert attempts == 1 and 0.0 < due - time.time() <= 3.0
        later = Outbox((sink,), state)
        later.deliver(time.time())
        time.sleep(0.1)
        assert later.undelivered == {"ops": 1}  # its moment has not come
        later.deliver(time.time() + 10.0)
        settle(later)
        assert receiver.keys == Counter(key_of(document(n)) for n in range(3))


def test_a_clock_that_has_gone_back_does_not_stop_it(tmp_path):
    with Receiver([500]) as receiver:
        sink = hook(receiver.url, tmp_path, pause=0.5)
        outbox = Outbox((sink,))
        outbox.alert(document())
        outbox.to_bytes()
        outbox.deliver(1e10)
        until(lambda: outbox.changed)
        outbox.close(0.0)
        later = Outbox((sink,), outbox.to_bytes())
        later.deliver(time.time())
        settle(later)
        assert receiver.keys == {key_of(document()): 1}


def test_the_time_of_day_may_jump_while_it_runs(tmp_path):
    with Receiver() as receiver:
        outbox = Outbox((hook(receiver.url, tmp_path, rate=60.0, **FAST),))
        for n, now in enumerate((2e9, 1e9, 3e9)):
            outbox.alert(document(n))
            outbox.to_bytes()
            outbox.deliver(now)
            until(lambda: len(receiver.seen) == n + 1)  # noqa: B023
        outbox.close(1.0)


def test_too_many_are_dead_letters_the_oldest_first(tmp_path):
    outbox = Outbox((hook(f"http://127.0.0.1:{free_port()}/x", tmp_path, limit=5),))
    for n in range(12):
        outbox.alert(document(n))
    assert outbox.undelivered == {"ops": 5} and outbox.dead == {"ops": 7}
    state = outbox.to_bytes()
    outbox.deliver(time.time())
    outbox.close(0.0)
    assert [letter["alert"] for letter in dead_letters(tmp_path)] == [document(n) for n in range(7)]
    later = Outbox((hook("http://127.0.0.1/x", tmp_path),), state)
    assert later.undelivered == {"ops": 5} and later.dead == {"ops": 7}
    later.deliver(time.time())
    later.close(0.0)
    assert len(dead_letters(tmp_path)) == 7  # not again


def test_alerts_of_a_sink_that_was_taken_out_are_dead_letters(tmp_path):
    outbox = Outbox((hook("http://127.0.0.1:1/x", tmp_path),))
    outbox.alert(document())
    later = Outbox((ToStdout("log"),), outbox.to_bytes())
    go(later)
    (letter,) = dead_letters(tmp_path)
    assert letter["alert"] == document() and letter["reason"] == "the sink is no longer in the configuration"


def test_the_rate_is_not_passed(tmp_path):
    with Receiver() as receiver:
        outbox = Outbox((hook(receiver.url, tmp_path, rate=3.0, **FAST),))
        for n in range(5):
            outbox.alert(document(n))
        go(outbox)
        until(lambda: len(receiver.seen) == 3)
        time.sleep(0.2)
        assert len(receiver.seen) == 3
        start = time.monotonic()
        outbox.close(5.0)
        assert time.monotonic() - start < 1.0 and outbox.undelivered == {"ops": 2}


@given(st.floats(0.01, 200.0), st.lists(st.floats(0.0, 40.0), max_size=300))
def test_no_minute_holds_more_requests_than_the_rate(rate, pauses):
    pace, now, taken = Pace(rate), 0.0, []
    for pause in pauses:
        now = pace.free(now + pause)
        pace.take(now)
        taken.append(now)
    most, span = (int(rate), 60.0) if rate >= 1.0 else (1, 60.0 / rate)
    for start in taken:
        assert sum(start <= t < start + span * (1.0 - 1e-9) for t in taken) <= max(most, 1) + (rate % 1.0 > 0.0)


CHILD = """
import sys, time
from streamcal.monitor.sinks.outbox import Outbox
from streamcal.monitor.store import Store
from test_webhook import document, hook
from pathlib import Path

folder, url, most = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = Store(folder / "state.db")
outbox, n = Outbox((hook(url, folder, retries=100, pause=0.01),), store.get("outbox")), int(store.get("n") or 0)
print("ready", flush=True)
while most < 0 or n < most:
    with store.transaction():
        outbox.alert(document(n))
        n += 1
        store.put("n", b"%d" % n)
        store.put("outbox", outbox.to_bytes())
    outbox.deliver(time.time())
    time.sleep(0.002)
while sum(outbox.undelivered.values()):
    time.sleep(0.01)
outbox.close(1.0)
with store.transaction():
    store.put("outbox", outbox.to_bytes())
"""


@pytest.mark.servers
def test_killed_at_random_moments_every_alert_arrives(tmp_path):
    (tmp_path / "child.py").write_text(CHILD)
    path = os.pathsep.join(str(Path(__file__).parents[up]) for up in range(3))
    draw, busy = random.Random(2), random.Random(3)
    with Receiver([busy.choice([200, 200, 500, ("close", None)]) for _ in range(300)]) as receiver:
        command = [sys.executable, str(tmp_path / "child.py"), str(tmp_path), receiver.url]
        for _ in range(some(8)):
            with subprocess.Popen(
                [*command, "-1"], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}
            ) as child:
                assert child.stdout.readline() == b"ready\n"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(draw.uniform(0.0, 0.2))
                child.kill()
        store = Store(tmp_path / "state.db")
        most = int(store.get("n")) + 1
        store.close()
        subprocess.run([*command, str(most)], check=True, timeout=120, env=os.environ | {"PYTHONPATH": path})
        assert set(receiver.keys) == {key_of(document(n)) for n in range(most)}  # after a kill one may come again
        assert sum(receiver.keys.values()) - most <= most / 2 and not dead_letters(tmp_path)


# ---- secrets and urls


def test_no_text_holds_the_secret(tmp_path, caplog, monkeypatch):
    secret = "T0123456/B99/abcdefghijklmnop"
    caplog.set_level(logging.DEBUG)
    with Receiver([(404, {"text": f"no /services/{secret} here, nor abcdefghijklmnop"})]) as receiver:
        url = receiver.url.replace("/hook", f"/services/{secret}?token=sesame-open")
        monkeypatch.setenv("HOOK", url.replace("http://", "http://joe:password1@"))
        outbox = Outbox((hook(None, tmp_path, url_env="HOOK", retries=1, **FAST),))
        outbox.alert(document(1))
        go(outbox)
        settle(outbox)
    outbox = Outbox((hook(url, tmp_path, retries=1, **FAST),))  # down now
    outbox.alert(document(2))
    go(outbox)
    settle(outbox)
    texts = (tmp_path / "dead.jsonl").read_text() + caplog.text + str(outbox.troubles) + repr(outbox.to_bytes())
    assert "answered 404 Not Found: no *** here" in texts and "127.0.0.1" in texts
    for part in (secret, "abcdefghijklmnop", "T0123456", "sesame", "password1"):
        assert part not in texts


def test_a_password_in_the_url_is_sent_as_basic_authentication(tmp_path):
    got = []
    with Receiver() as receiver:
        receiver.RequestHandlerClass = type(
            "H", (_Answering,), {"do_POST": lambda h: (got.append(h.headers), _Answering.do_POST(h))}
        )
        outbox = Outbox((hook(receiver.url.replace("http://", "http://joe:pass@"), tmp_path, **FAST),))
        outbox.alert(document())
        go(outbox)
        settle(outbox)
    assert got[0]["Authorization"] == "Basic am9lOnBhc3M=" and got[0]["Content-Type"] == "application/json"


@pytest.mark.parametrize("value", [None, "", "ftp://x/y-secret", "https://", "y-secret", "http://[y-secret"])
def test_an_environment_variable_must_hold_a_url(value, tmp_path, monkeypatch):
    monkeypatch.delenv("HOOK", raising=False)
    if value is not None:
        monkeypatch.setenv("HOOK", value)
    with pytest.raises(OutboxError, match=r"sinks\.ops\.url_env: the environment variable HOOK must") as error:
        Outbox((hook(None, tmp_path, url_env="HOOK"),))
    assert "secret" not in str(error.value) and error.value.__suppress_context__ | (error.value.__context__ is None)


@pytest.mark.parametrize("header", ["soon", "-5", "9" * 400, "inf", "Thu, 99 Foo 2026"])
def test_nonsense_in_retry_after_is_none(header, tmp_path):
    with Receiver([(503, {"Retry-After": header})]) as receiver:
        answer = Webhook(hook(receiver.url, tmp_path)).post({}, "key")
        assert not answer.delivered and answer.again and 0.0 <= answer.after <= LONGEST


# ---- Alertmanager: what stands is sent again


def test_what_is_firing_is_sent_again_until_it_resolves(tmp_path):
    with Receiver() as receiver:
        sink = hook(receiver.url, tmp_path, format="alertmanager", resend=0.2)
        outbox = Outbox((sink,))
        outbox.alert(document(1))
        outbox.alert(document(2))
        go(outbox)
        until(lambda: sum(len(body) == 2 for _, body in receiver.taken) >= 2)
        later = Outbox((sink,), outbox.to_bytes())
        outbox.close(1.0)
        count = len(receiver.taken)
        later.deliver(time.time())  # after a restart it goes on
        until(lambda: len(receiver.taken) >= count + 3)
        resolved = document(1, "resolved") | {"id": document(1)["id"]}
        later.alert(resolved)
        go(later)
        settle(later)
        until(lambda: key_of(resolved) in receiver.keys)
        again = [body for key, body in receiver.taken if key is None]
        assert all(one["endsAt"] > one["startsAt"] for body in again for one in body)
        assert later.firing == {"ops": [document(2)]}
        state = later.to_bytes()
        assert Outbox((sink,), state).firing == later.firing
        assert Outbox((hook(receiver.url, tmp_path),), state).firing == {"ops": None}  # no longer an Alertmanager


def test_many_that_stand_take_turns(tmp_path):
    with Receiver() as receiver:
        outbox = Outbox((hook(receiver.url, tmp_path, format="alertmanager", rate=1e6, resend=1.0),))
        for n in range(600):  # two requests of 500 reach them all
            outbox.alert(document(1, segment=f"n={n}"))
        go(outbox)
        until(lambda: not outbox.undelivered["ops"], 60.0)
        start = len(receiver.taken)
        until(lambda: len(receiver.taken) >= start + 3)
        again = [body for key, body in receiver.taken[start:] if key is None][:2]
        assert all(len(body) == 500 for body in again)
        assert len({one["labels"]["segment"] for body in again for one in body}) == 600
        outbox.close(0.0)


def test_what_stands_does_not_starve_what_is_new_nor_the_other_way_round(tmp_path):
    with Receiver() as receiver:
        outbox = Outbox((hook(receiver.url, tmp_path, format="alertmanager", resend=1e-9),))
        for n in range(20):
            outbox.alert(document(n))
        go(outbox)
        until(lambda: not outbox.undelivered["ops"])
        outbox.close(0.0)
        kinds = [key is None for key, _ in receiver.taken][1:39]
        assert kinds == [True, False] * 19


@pytest.fixture
def real(tmp_path):
    """A real Alertmanager that tells a receiver what it thinks: (its url, the receiver)."""
    binary = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if binary is None:
        pytest.skip("needs Alertmanager: apt-get install prometheus-alertmanager")
    with Receiver() as receiver:
        url = f"http://127.0.0.1:{free_port()}"
        route = "{receiver: r, group_by: [model], group_wait: 50ms, group_interval: 200ms, repeat_interval: 1h}"
        to = f"[{{name: r, webhook_configs: [{{url: '{receiver.url}', send_resolved: true}}]}}]"
        (tmp_path / "am.yml").write_text(f"route: {route}\nreceivers: {to}\n")
        flags = [f"--config.file={tmp_path}/am.yml", f"--storage.path={tmp_path}/am", f"--web.listen-address={url[7:]}"]
        with subprocess.Popen([binary, *flags, "--cluster.listen-address="], stderr=subprocess.DEVNULL) as process:
            try:
                until(lambda: alerts_of(url) == [], 20.0)
                yield url, receiver
            finally:
                process.kill()


def alerts_of(url):
    try:
        with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=5.0) as answer:
            return json.load(answer)
    except OSError:
        return None


@pytest.mark.servers
def test_a_real_alertmanager_shows_it_firing_keeps_it_and_resolves_it(real, tmp_path):
    url, told = real
    outbox = Outbox((hook(f"{url}/api/v2/alerts", tmp_path, format="alertmanager", resend=0.5),))
    fired = document(at=time.time() - 5.0) | {"id": "one"}
    outbox.alert(fired)
    go(outbox)
    until(lambda: alerts_of(url))
    (shown,) = alerts_of(url)
    assert shown["status"]["state"] == "active" and shown["labels"]["segment"] == "country=at"
    assert shown["annotations"]["summary"] == fired["text"]
    time.sleep(3.0)  # its first endsAt is over: it stands as it was sent again
    assert len(alerts_of(url)) == 1
    outbox.alert(document(kind="resolved", at=time.time()) | {"id": "one"})
    go(outbox)
    until(lambda: alerts_of(url) == [])
    until(lambda: [body["status"] for _, body in told.taken] == ["firing", "resolved"], 20.0)
    settle(outbox)
    assert not dead_letters(tmp_path)


@pytest.mark.servers
def test_a_real_alertmanager_resolves_it_by_itself_when_nobody_says_it_again(real, tmp_path):
    url, _ = real
    outbox = Outbox((hook(f"{url}/api/v2/alerts", tmp_path, format="alertmanager", resend=0.5),))
    outbox.alert(document())
    go(outbox)
    until(lambda: alerts_of(url))
    outbox.close(0.0)
    until(lambda: alerts_of(url) == [], 15.0)
