"""The alerts of one webhook on their way: a queue, and a thread that sends them while the stream goes on.

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
"""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from streamcal.monitor.config.settings import Sink
from streamcal.monitor.sinks.webhook import LONGEST, Answer, Document, Webhook, alertmanager, payload
from streamcal.times import utc

PAUSE = 2.0  # seconds before the first new attempt
CAP = 600.0  # seconds between two attempts, at most
LIFES = 4  # a firing alert in Alertmanager outlives so many times that it was not sent again
CHUNK = 500  # alerts sent again in one request, at most


@dataclass
class Delivery:
    """An alert that is not yet delivered, as JSON: how often it was tried, and the moment from which it may be again."""

    text: str  # written once, as the state is again and again
    attempts: int = 0
    due: float = 0.0

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


class Courier:
    """One webhook. Everything here may be called while its thread runs.

    ``offer`` an alert; ``state`` is what a transaction saves; ``go`` after it. The thread begins with the first ``go``, takes
    its time of day from there, and draws jitter from ``seed``.
    """

    def __init__(
        self, sink: Sink, state: dict[str, Any], *, seed: int, limit: int, pause: float, resend: float
    ) -> None:
        self._sink, self._limit, self._pause, self._resend = sink, limit, pause, resend
        self._webhook = Webhook(sink)
        self._random = random.Random(f"{seed} {sink.name}")
        self._pace = Pace(sink.rate)
        self._queue = [Delivery(*entry) for entry in state.get("queue", [])]
        stood = state.get("standing", []) if sink.format == "alertmanager" else []
        self._standing = {document["id"]: document for document in stood}  # firing in Alertmanager
        self._dead: list[bytes] = []
        self._sent: Delivery | None = None
        self._fresh = self._unsaved = 0  # so many at the end of the queue are not yet to be sent, or not yet saved
        self._ahead = time.time() - time.monotonic()  # of the time of day, until the first `go` says it
        self._hold = self._again = 0.0  # until when all wait; when to send again what stands
        self._turn = False  # what stands was sent last: now others go first
        self._closing: float | None = None
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self.changed, self.trouble, self.buried = False, "", int(state.get("buried", 0))

    @property
    def undelivered(self) -> int:
        """So many alerts wait."""
        with self._news:
            return len(self._queue)

    @property
    def standing(self) -> list[Document]:
        """Alerts that are firing in Alertmanager, as far as we know."""
        with self._news:
            return list(self._standing.values())

    def offer(self, text: str) -> None:
        """One more alert, its document as JSON; what is over the limit goes to the dead letters, the oldest first."""
        with self._news:
            self._queue.append(Delivery(text))
            self._fresh, self._unsaved, self.changed = self._fresh + 1, self._unsaved + 1, True
            if len(self._queue) > self._limit:
                oldest = self._queue[self._queue[0] is self._sent]
                self._bury(oldest, f"more than {self._limit} alerts were undelivered")

    def state(self) -> tuple[dict[str, Any], list[bytes]]:
        """What is to be saved, as JSON data, and lines that are to be saved with it, for the file of dead letters."""
        with self._news:
            queue = [[one.text, one.attempts, one.due] for one in self._queue]
            dead, self._dead = self._dead, []
            self._unsaved, self.changed = 0, False
            return {"queue": queue, "standing": list(self._standing.values()), "buried": self.buried}, dead

    def go(self, now: float) -> None:
        """What was saved may be sent; ``now`` is the time of day, in seconds since 1970 UTC."""
        with self._news:
            before = self._fresh, self._ahead
            self._fresh, self._ahead = self._unsaved, now - time.monotonic()
            if self._thread is None and self._closing is None and (self._ready() or self._standing):
                self._thread = threading.Thread(target=self._run, name=f"webhook {self._sink.name}", daemon=True)
                self._thread.start()
            if before[0] > self._fresh or abs(before[1] - self._ahead) > 1.0:  # else it knows when to wake
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

    def _now(self) -> float:
        return time.monotonic() + self._ahead

    def _ready(self) -> list[Delivery]:
        """What may be sent, if its moment has come: of each id the first."""
        first: dict[str, Delivery] = {}
        for one in self._queue[: len(self._queue) - self._fresh]:
            first.setdefault(one.document["id"], one)
        return list(first.values())

    def _run(self) -> None:
        while True:
            with self._news:
                one = self._next()
                self._sent = one if isinstance(one, Delivery) else None
            if one is None:
                return
            if isinstance(one, Delivery):
                self._send(one)
            else:
                self._send_again(one)

    def _next(self) -> Delivery | list[Document] | None:
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

    def _earliest(self, now: float) -> tuple[float, Delivery | list[Document]]:
        """What comes next, and when: what stands first, but not twice while others are due."""
        one = min(self._ready(), key=lambda one: one.due, default=None)
        due = math.inf if one is None else _near(one.due, now)
        again = _near(self._again, now) if self._standing else math.inf
        if one is not None and (due < again if max(due, again) > now else self._turn):
            return due, one
        return again, list(self._standing.values())[:CHUNK]

    def _send(self, one: Delivery) -> None:
        with self._news:
            now = self._now()
            self._pace.take(time.monotonic())
        data = payload(self._sink.format, one.document, now, LIFES * self._resend)
        answer = self._webhook.post(data, f"{one.document['id']}-{one.document['kind']}")
        with self._news:
            self._sent, self.trouble, self._turn = None, answer.text, False
            self._settle(one, answer)

    def _settle(self, one: Delivery, answer: Answer) -> None:
        """What the answer means for the alert."""
        self.changed, now = True, self._now()
        one.attempts += 1
        given_up = not answer.delivered and one.attempts > self._sink.retries
        if answer.delivered or (answer.again and given_up):
            self._stand(one.document, now)
        if answer.delivered:
            self._remove(one)
        elif given_up or not answer.again:
            self._bury(one, answer.text)
        else:
            pause = min(CAP, self._pause * 2.0 ** min(one.attempts - 1, 60)) * self._random.uniform(0.5, 1.0)
            one.due = now + max(pause, answer.after)
        if answer.after:
            self._hold = now + answer.after

    def _stand(self, document: Document, now: float) -> None:
        """A firing alert stands in Alertmanager until it resolves; also one that could not be delivered for long."""
        if self._sink.format != "alertmanager":
            return
        self._standing.pop(document["id"], None)
        if document["kind"] == "firing":
            self._again = self._again if self._standing else now + self._resend
            self._standing[document["id"]] = document

    def _remove(self, one: Delivery) -> None:
        at = next(k for k, other in enumerate(self._queue) if other is one)
        fresh = at >= len(self._queue) - self._fresh
        unsaved = at >= len(self._queue) - self._unsaved
        del self._queue[at]
        self._fresh, self._unsaved = self._fresh - fresh, self._unsaved - unsaved

    def _bury(self, one: Delivery, reason: str) -> None:
        self._remove(one)
        if one.document["kind"] == "resolved":
            self._standing.pop(one.document["id"], None)
        self.buried += 1
        self._dead.append(dead_letter(self._sink.name, self._webhook.host, one, reason, self._now()))

    def _send_again(self, standing: list[Document]) -> None:
        """Firing alerts once more, so that they stay; one that fails is not urgent, there is a next time.

        With many, a part of them at a time, so that each has its turn once in ``resend`` seconds.
        """
        with self._news:
            now = self._now()
            self._pace.take(time.monotonic())
            self._turn, self._again = True, now + self._resend * len(standing) / max(len(self._standing), 1)
            for document in standing:
                self._standing[document["id"]] = self._standing.pop(document["id"])
        data = [alertmanager(document, now, LIFES * self._resend) for document in standing]
        answer = self._webhook.post(data, None)
        with self._news:
            self.trouble = answer.text
            if answer.after:
                self._hold = now + answer.after


def _near(moment: float, now: float) -> float:
    """The moment; now, if it is hours away: then it is of a clock that has gone back since."""
    return moment if moment < now + 2.0 * LONGEST else now


def dead_letter(sink: str, host: str, one: Delivery, reason: str, now: float) -> bytes:
    """A line for the file of dead letters: which sink, why, and the alert itself."""
    about = {
        "type": "undelivered",
        "sink": sink,
        "host": host,
        "reason": reason,
        "attempts": one.attempts,
        "at": utc(now),
    }
    return json.dumps({**about, "alert": one.document}, allow_nan=False).encode()
