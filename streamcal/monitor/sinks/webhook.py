"""Alerts for one webhook: what a request holds and what its answer means, and the queue of those that are on their way.

=============  ==============================================================================================================
json           the document of the alert
slack          {"text": ...}, with ``&``, ``<`` and ``>`` escaped, for Slack and what takes the same (Mattermost, Rocket.Chat)
alertmanager   a list for ``POST /api/v2/alerts``: labels tell which alert it is, annotations what it says
=============  ==============================================================================================================

Alertmanager resolves an alert by itself when ``endsAt`` is over. As Prometheus does, a firing alert is therefore sent with an
``endsAt`` some minutes ahead and sent again every minute; one that resolves is sent with the moment when it did.

An alert is sent once it was saved, and is out of the queue when the receiver has answered 2xx. So after a kill it may be
sent again, with the same ``Idempotency-Key``: its id and kind. Two alerts with the same id keep their order; others do not
wait for one that has trouble.

==================================  =========================================================================================
no connection, time-out, broken     again after 1, 2, 4, ... times ``pause`` seconds, at most 600, of which jitter takes up to
off, 5xx, 408, 425, 429             half; not before ``Retry-After``, for which the whole sink waits (at most an hour)
more than ``retries`` of these      to the dead letters
any other answer                    to the dead letters at once, with what it said
more than ``limit`` in the queue    the oldest to the dead letters
==================================  =========================================================================================

A url may be a secret, so no text from here holds more of it than the host.
"""

from __future__ import annotations

import json
import logging
import math
import os
import random
import re
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import urllib3
from urllib3.util import Retry, Timeout, Url, make_headers, parse_url

from streamcal.monitor.sinks.outbox import AppendFiles, Document, Sink, UrlError, dead_letter
from streamcal.monitor.sinks.registry import ToWebhook
from streamcal.times import utc

_SILENT = threading.local()  # whether this thread is at work here, where urllib3 must not log: it logs whole urls
for _name in ("connectionpool", "connection", "poolmanager"):
    logging.getLogger(f"urllib3.{_name}").addFilter(lambda record: not getattr(_SILENT, "now", False))

NOTED = ("value", "low", "high", "count", "threshold", "about", "window", "id")
AGAIN = frozenset({408, 425, 429})  # of the 4xx: later it may be taken
LONGEST = 3_600.0  # seconds that a receiver may ask us to wait
TEXT = 4_000  # characters of a message for people
CAP = 600.0  # seconds between two attempts at most: so late an alert still comes after an outage has ended
LIFES = 4  # a firing alert in Alertmanager outlives so many times that it was not sent again: as with Prometheus
CHUNK = 500  # alerts sent again in one request at most: half a MB


class Answer(NamedTuple):
    """What came of a request: delivered, or why not and whether to try again, not before ``after`` seconds."""

    delivered: bool
    text: str = ""
    again: bool = True
    after: float = 0.0


def payload(form: str, document: Document, now: float, life: float) -> Any:
    """What is sent, as JSON data. ``now`` and ``life``: a firing alert stands until ``now + life`` in Alertmanager.

    >>> alert = {"text": "share of a<b & c", "runbook": "https://wiki.example/1"}
    >>> payload("slack", alert, 0.0, 240.0)
    {'text': 'share of a&lt;b &amp; c\\n<https://wiki.example/1|runbook>'}
    """
    if form == "alertmanager":
        return [alertmanager(document, now, life)]
    if form == "slack":
        link = document.get("runbook")
        more = f"\n<{_escaped(link).replace('|', '%7C')}|runbook>" if link else ""
        return {"text": _escaped(document["text"][:TEXT]) + more}
    return document


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def alertmanager(document: Document, now: float, life: float) -> Document:
    """One alert of Alertmanager's list. Times that lie ahead of ``now`` are taken as now: it would refuse them.

    >>> keys = ("id", "rule", "severity", "model", "version", "segment", "at", "text")
    >>> alert = dict.fromkeys(keys, "x") | {"kind": "firing", "since": "2026-01-01T00:00:00Z"}
    >>> found = alertmanager(alert, 1767225660.0, 240.0)
    >>> found["startsAt"], found["endsAt"]
    ('2026-01-01T00:00:00Z', '2026-01-01T00:05:00Z')
    """
    labels = {key: document[key] for key in ("severity", "model", "version", "segment", "rule")}
    given = {key: document[key] for key in NOTED if document.get(key) is not None}
    notes = {key: f"{value:.10g}" if isinstance(value, float) else str(value) for key, value in given.items()}
    runbook = {"runbook_url": document["runbook"]} if document.get("runbook") else {}
    starts = _time(document["since"], now)
    ends = now + life if document["kind"] == "firing" else max(_time(document["at"], now), starts)
    return {
        "labels": {"alertname": document["rule"], **labels},
        "annotations": {"summary": document["text"][:TEXT], **runbook, **notes},
        "startsAt": utc(starts),
        "endsAt": utc(ends),
    }


def _time(text: str, now: float) -> float:
    try:
        return min(datetime.fromisoformat(text).timestamp(), now)
    except ValueError:  # no calendar reaches it
        return now


class Webhook:
    """The receiver of one sink. UrlError if its url is missing or none; ``url_env`` is read here, once.

    Certificates are checked, redirections not followed (the url would go to somebody else), no proxy is used.
    """

    def __init__(self, table: ToWebhook) -> None:
        self._table = table
        self._url = _url_of(table)
        self.host = self._url.netloc or ""
        self._secrets = _secrets(self._url)
        auth = make_headers(basic_auth=self._url.auth) if self._url.auth else {}
        self._headers = {**auth, "Content-Type": "application/json", "User-Agent": "streamcal"}
        self._pool = urllib3.PoolManager(num_pools=1, maxsize=1, retries=False)

    def post(self, data: Any, key: str | None) -> Answer:
        """Send it, with the key by which a receiver knows it again. Whatever goes wrong is in the answer.

        The status is what counts: with 200 it is delivered, also if the rest of what the receiver says is broken off.
        """
        headers = self._headers | ({"Idempotency-Key": key} if key else {})
        url, timeout = self._url._replace(auth=None, fragment=None).url, Timeout(total=self._table.timeout)
        _SILENT.now = True
        try:
            body = json.dumps(data, allow_nan=False).encode()
            once = partial(self._pool.request, redirect=False, retries=False, preload_content=False)
            answer = once("POST", url, body=body, headers=headers, timeout=timeout)
            try:
                return self._read(answer)
            finally:
                answer.close()
        except Exception as error:  # also of a kind that nobody thought of: the thread must go on
            return Answer(False, self._without_secrets(f"{type(error).__name__}: {error}"))
        finally:
            _SILENT.now = False

    def _read(self, answer: urllib3.BaseHTTPResponse) -> Answer:
        text = _text_of(answer)
        if 200 <= answer.status < 300:
            return Answer(True)
        again = answer.status in AGAIN or answer.status >= 500
        text = self._without_secrets(f"answered {answer.status} {answer.reason or ''}: {text}".rstrip(": "))
        return Answer(False, text, again, _after(answer.headers.get("Retry-After")) if again else 0.0)

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text[:1_000]

    def close(self) -> None:
        """Let go of the connection."""
        self._pool.clear()


def _url_of(table: ToWebhook) -> Url:
    where = f"sinks.{table.name}.url"
    text = table.url
    if table.url_env is not None:
        where = f"sinks.{table.name}.url_env: the environment variable {table.url_env}"
        text = os.environ.get(table.url_env, "").strip()
        if not text:
            raise UrlError(f"{where} must be set, and hold the url of the webhook")
    try:
        url = parse_url(text or "")
    except urllib3.exceptions.LocationParseError:
        url = Url()
    if url.scheme not in ("https", "http") or not url.host:
        raise UrlError(f"{where} must hold a url that begins with https:// or http:// and names a host")
    return url


def _secrets(url: Url) -> tuple[str, ...]:
    """Parts of a url that no text may hold, the longest first: the path with its query, and what in it or in front is long."""
    parts = re.split(r"[/?&=:]", f"{url.request_uri}:{url.auth or ''}")
    found = {url.request_uri, url.path or "", url.auth or ""} | {part for part in parts if len(part) >= 8}
    return tuple(sorted((part for part in found if len(part) > 1), key=len, reverse=True))


def _text_of(answer: urllib3.BaseHTTPResponse) -> str:
    """The beginning of what it says; the status is known also if that breaks off."""
    try:
        return answer.read1(1_000).decode(errors="replace").strip() if isinstance(answer, urllib3.HTTPResponse) else ""
    except Exception as error:
        return type(error).__name__


def _after(header: str | None) -> float:
    """Seconds of a Retry-After, a number or a date; 0 for none or nonsense."""
    try:
        return min(Retry(0).parse_retry_after(header), LONGEST) if header else 0.0
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return 0.0


@dataclass(eq=False)
class Queued:
    """An alert that is not yet delivered, as JSON: how often it was tried, and the moment from which it may be again."""

    text: str  # written once, as the state is again and again
    attempts: int = 0
    due: float = 0.0
    saved: bool = True  # it is in the state
    committed: bool = True  # which has been committed: it may be sent

    def __post_init__(self) -> None:
        self.document: Document = json.loads(self.text)


class Pace:
    """So many requests per minute at most: ``free(now)`` is the first moment at which one more is allowed.

    >>> pace = Pace(2.0)
    >>> for now in (0.0, 1.0):
    ...     pace.take(now)
    >>> pace.free(1.0), pace.free(61.0)
    (60.0, 61.0)
    """

    def __init__(self, rate: float) -> None:
        most = max(1, math.floor(rate))
        self._span = 60.0 * most / rate
        self._taken: deque[float] = deque(maxlen=most)

    def take(self, now: float) -> None:
        """A request goes out."""
        self._taken.append(now)

    def free(self, now: float) -> float:
        """``now``, or later."""
        full = len(self._taken) == self._taken.maxlen
        return max(now, self._taken[0] + self._span) if full else now


class WebhookQueue(Sink):
    """One webhook. Everything here may be called while its thread runs.

    The thread begins with the first :meth:`deliver`, and takes its time of day from there.
    """

    def __init__(self, table: ToWebhook, files: AppendFiles, saved: Mapping[str, Any]) -> None:
        super().__init__(table.name, {})
        self.dead: int = saved.get("dead", 0)  # since the state began
        self._table, self._files, self._webhook = table, files, Webhook(table)
        self._random = random.Random(f"{table.seed} {table.name}")
        self._pace = Pace(table.rate)
        self._queue = [Queued(*entry) for entry in saved.get("queue", ())]
        firing = saved.get("firing", ()) if table.format == "alertmanager" else ()
        self._firing: dict[str, Document] = {document["id"]: document for document in firing}
        self._letters: list[bytes] = []  # dead letters, to be saved
        self._sent: Queued | None = None  # the one that is on its way
        self._ahead = time.time() - time.monotonic()  # of the time of day, until the first `deliver` says it
        self._hold = self._again = 0.0  # until when all wait; when to send again what fires
        self._repeated = False  # what fires was sent again last: now others go first
        self._closing: float | None = None
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None

    # -- for the outbox ------------------------------------------------------------------------------------------------

    @property
    def undelivered(self) -> int:
        """How many alerts wait."""
        with self._news:
            return len(self._queue)

    @property
    def firing(self) -> list[Document] | None:
        """Alerts that are firing in Alertmanager, as far as we know."""
        with self._news:
            return list(self._firing.values()) if self._table.format == "alertmanager" else None

    def offer(self, alert: str) -> None:
        """One more alert; what can not be said is refused here, not in the thread."""
        payload(self._table.format, json.loads(alert), 0.0, 0.0)
        self.tell([alert])

    def tell(self, alerts: Sequence[str]) -> None:
        """More alerts for the queue; what is over the limit goes to the dead letters, the oldest first."""
        with self._news:
            self.changed = True
            for alert in alerts:
                self._queue.append(Queued(alert, saved=False, committed=False))
                if len(self._queue) > self._table.limit:
                    oldest = self._queue[self._queue[0] is self._sent]
                    self._give_up(oldest, f"more than {self._table.limit} alerts were undelivered")

    def save(self) -> dict[str, Any]:
        """The state as JSON data; dead letters go to their file, to be saved with it."""
        with self._news:
            for one in self._queue:
                one.saved = True
            queue = [[one.text, one.attempts, one.due] for one in self._queue]
            letters, self._letters, self.changed = self._letters, [], False
            state = {"queue": queue, "firing": list(self._firing.values()), "dead": self.dead}
        if letters:
            self._files.append(self._table.dead_letters, letters, durable=True)
        return {**state, "dead_letters": self._table.dead_letters}

    def deliver(self, now: float) -> None:
        """What was saved may be sent; ``now`` is the time of day, in seconds since 1970 UTC."""
        with self._news:
            fresh = [one for one in self._queue if one.saved and not one.committed]
            for one in fresh:
                one.committed = True
            before, self._ahead = self._ahead, now - time.monotonic()
            if self._thread is None and self._closing is None and (self._ready() or self._firing):
                self._thread = threading.Thread(target=self._run, name=f"webhook {self.name}", daemon=True)
                self._thread.start()
            if fresh or abs(before - self._ahead) > 1.0:  # else it knows when to wake
                self._news.notify()

    def close(self, wait: float) -> None:
        """Send what is due, for at most ``wait`` seconds; then the thread ends, also in the midst of a request."""
        with self._news:
            self._closing = time.monotonic() + wait
            self._news.notify()
        if self._thread is not None:
            self._thread.join(wait)
        if self._thread is None or not self._thread.is_alive():
            self._webhook.close()

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return time.monotonic() + self._ahead

    def _run(self) -> None:
        while True:
            with self._news:
                one = self._next()
                self._sent = one if isinstance(one, Queued) else None
                now = self._now()
                self._pace.take(time.monotonic())
                if isinstance(one, list):
                    self._turn(one, now)
            if one is None:
                return
            end, form = LIFES * self._table.resend, self._table.format
            if isinstance(one, list):  # one that fails is not urgent: there is a next time
                answer = self._webhook.post([alertmanager(document, now, end) for document in one], None)
            else:
                key = f"{one.document['id']}-{one.document['kind']}"
                answer = self._webhook.post(payload(form, one.document, now, end), key)
            with self._news:
                self.trouble = answer.text
                if answer.after:
                    self._hold = self._now() + answer.after
                if isinstance(one, Queued):
                    self._settle(one, answer)

    def _next(self) -> Queued | list[Document] | None:
        """Wait for what is to be sent; None: no more."""
        while True:
            now = self._now()
            moment, one = self._earliest(now)
            real = time.monotonic()  # the rate holds also where the time of day jumps
            moment = max(moment, now + (self._pace.free(real) - real), _near(self._hold, now))
            ended = self._closing is not None and (moment > now or real >= self._closing)
            if ended or moment <= now:
                return None if ended else one
            self._news.wait(min(moment - now, LONGEST))

    def _ready(self) -> list[Queued]:
        """What may be sent, if its moment has come: of each id the first."""
        first: dict[str, Queued] = {}
        for one in self._queue:
            if one.committed:
                first.setdefault(one.document["id"], one)
        return list(first.values())

    def _earliest(self, now: float) -> tuple[float, Queued | list[Document]]:
        """What comes next, and when: what fires, but not twice while others are due."""
        one = min(self._ready(), key=lambda one: one.due, default=None)
        due = math.inf if one is None else _near(one.due, now)
        again = _near(self._again, now) if self._firing else math.inf
        if one is not None and (due < again if max(due, again) > now else self._repeated):
            return due, one
        return again, list(self._firing.values())[:CHUNK]

    def _turn(self, firing: list[Document], now: float) -> None:
        """With many that fire, a part of them is sent again at a time, so that each has its turn once in ``resend`` seconds."""
        self._repeated, self._again = True, now + self._table.resend * len(firing) / max(len(self._firing), 1)
        for document in firing:
            self._firing[document["id"]] = self._firing.pop(document["id"])

    def _settle(self, one: Queued, answer: Answer) -> None:
        """What the answer means for the alert."""
        self._sent, self._repeated, self.changed, now = None, False, True, self._now()
        one.attempts += 1
        given_up = not answer.delivered and one.attempts > self._table.retries
        if (answer.delivered or (answer.again and given_up)) and self._table.format == "alertmanager":
            self._firing.pop(one.document["id"], None)
            if one.document["kind"] == "firing":  # until it resolves; also one that could not be delivered for long
                self._again = self._again if self._firing else now + self._table.resend
                self._firing[one.document["id"]] = one.document
        if answer.delivered:
            self._queue.remove(one)
        elif given_up or not answer.again:
            self._give_up(one, answer.text)
        else:
            pause = min(CAP, self._table.pause * 2.0 ** min(one.attempts - 1, 60)) * self._random.uniform(0.5, 1.0)
            one.due = now + max(pause, answer.after)

    def _give_up(self, one: Queued, reason: str) -> None:
        """To the dead letters."""
        self._queue.remove(one)
        if one.document["kind"] == "resolved":
            self._firing.pop(one.document["id"], None)
        self.dead += 1
        self._letters.append(
            dead_letter(self.name, self._webhook.host, one.document, reason, one.attempts, self._now())
        )


def _near(moment: float, now: float) -> float:
    """The moment; now, if it is hours away: then it is of a clock that has gone back since."""
    return moment if moment < now + 2.0 * LONGEST else now
