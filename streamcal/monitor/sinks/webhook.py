"""One alert as one HTTP request: what is in it, and what the answer means. When and how often: ``webhook_queue``.

=============  ==============================================================================================================
json           the document of the alert
slack          {"text": ...}, with ``&``, ``<`` and ``>`` escaped, for Slack and what takes the same (Mattermost, Rocket.Chat)
alertmanager   a list for ``POST /api/v2/alerts``: labels tell which alert it is, annotations what it says
=============  ==============================================================================================================

Alertmanager resolves an alert by itself when ``endsAt`` is over. As Prometheus does, a firing alert is therefore sent with an
``endsAt`` some minutes ahead and sent again every minute; one that resolves is sent with the moment when it did.

A url may be a secret, so no text from here holds more of it than the host.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import urllib3
from urllib3.util import Retry, Timeout, Url, make_headers, parse_url

from streamcal.monitor.sinks.append_file import OutboxError
from streamcal.monitor.sinks.outbox import Document
from streamcal.monitor.sinks.registry import ToWebhook
from streamcal.times import utc

_SILENT = threading.local()  # whether this thread is at work here, where urllib3 must not log: it logs whole urls
for _name in ("connectionpool", "connection", "poolmanager"):
    logging.getLogger(f"urllib3.{_name}").addFilter(lambda record: not getattr(_SILENT, "now", False))

NOTED = ("value", "low", "high", "count", "threshold", "about", "window", "id")
AGAIN = frozenset({408, 425, 429})  # of the 4xx: later it may be taken
LONGEST = 3_600.0  # seconds that a receiver may ask us to wait
TEXT = 4_000  # characters of a message for people


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
    """The receiver of one sink. OutboxError if its url is missing or none; ``url_env`` is read here, once.

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
            raise OutboxError(f"{where} must be set, and hold the url of the webhook")
    try:
        url = parse_url(text or "")
    except urllib3.exceptions.LocationParseError:
        url = Url()
    if url.scheme not in ("https", "http") or not url.host:
        raise OutboxError(f"{where} must hold a url that begins with https:// or http:// and names a host")
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
