"""What is to be said and is not yet known to have been said: alerts for the sinks, and lines for files.

It is part of the state. What happens in a batch goes into the outbox, the outbox into the same transaction, and only what was
committed goes out::

    with store.transaction():
        ...
        outbox.alert(document)
        outbox.append("audit.jsonl", lines)
        store.put("outbox", outbox.to_bytes())
    outbox.deliver(now)

Killed at any moment, and made anew from what was last committed, this is what comes out:

========  ====================================================================================================================
a file    each line exactly once, whole and in order (:mod:`streamcal.monitor.sinks.append_file`)
stdout    each line at least once: printed again if the kill came before the next transaction
webhook   each alert until the receiver has taken it, with retries, else in the file of dead letters
          (:mod:`streamcal.monitor.sinks.webhook_queue`); after a kill it may come again, with the same ``Idempotency-Key``
========  ====================================================================================================================

``changed`` says that the state is not what was last saved: that there is more to deliver, or that something has been
delivered. A process that has nothing else to do saves it now and then, and at its end::

    outbox.close(wait=5.0)
    with store.transaction():
        store.put("outbox", outbox.to_bytes())
    outbox.deliver(now)
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from streamcal.monitor.config.settings import Sink
from streamcal.monitor.sinks.append_file import Appended, OutboxError, Place, place_of
from streamcal.monitor.sinks.webhook import Document, check_document, payload
from streamcal.monitor.sinks.webhook_queue import PAUSE, Courier, Delivery, dead_letter

VERSION = 1
LIMIT = 10_000  # undelivered alerts of one webhook
RESEND = 60.0  # seconds after which Alertmanager hears again of an alert that is firing


class Outbox:
    r"""Says what was committed. Not thread-safe itself; webhooks have a thread each and never hold up the stream.

    ``saved``: what ``to_bytes`` gave at the last commit, None at the first start. Alerts for a sink that is no longer there go
    to its dead letters. ``pause``: seconds before the first new attempt of a webhook, doubled from one to the next. ``seed``: of
    the jitter in it. OutboxError for a webhook without a url, and for ``saved`` that is no state of an outbox.

    >>> outbox = Outbox((Sink("log", "stdout"),))
    >>> outbox.alert(dict.fromkeys(("id", "rule", "severity", "model", "version", "segment", "since", "at", "text"), "x")
    ...              | {"kind": "firing"})
    >>> outbox.undelivered, len(outbox.to_bytes()) > 0
    ({'log': 1}, True)
    >>> outbox.deliver(0.0)
    {"id": "x", "rule": "x", "severity": "x", "model": "x", "version": "x", "segment": "x", "since": "x", "at": "x", "text": "x", "kind": "firing"}
    >>> outbox.undelivered
    {'log': 0}
    """  # noqa: E501

    def __init__(
        self,
        sinks: tuple[Sink, ...],
        saved: bytes | None = None,
        *,
        seed: int = 0,
        limit: int = LIMIT,
        pause: float = PAUSE,
        resend: float = RESEND,
    ) -> None:
        self._sinks = {sink.name: sink for sink in sinks}
        state = {"files": [], "prints": [], "couriers": {}} if saved is None else _read(saved)
        self._files = {place.path: Appended(place, lines) for place, lines in state["files"]}
        self._prints: list[tuple[str, str]] = [(name, line) for name, line in state["prints"]]
        self._printable, self._changed = len(self._prints), False
        self._couriers: dict[str, Courier] = {}
        couriers = state["couriers"]
        for sink in sinks:
            if sink.type == "webhook":
                was = couriers.pop(sink.name, {})
                self._couriers[sink.name] = Courier(sink, was, seed=seed, limit=limit, pause=pause, resend=resend)
        for name, left in couriers.items():
            self._bury(name, left)

    def _bury(self, name: str, left: dict[str, Any]) -> None:
        """The alerts of a sink that is no longer in the configuration, to its dead letters."""
        for entry in left["queue"]:
            letter = dead_letter(name, "", Delivery(*entry), "the sink is no longer in the configuration", time.time())
            self.append(left["dead_letters"], [letter], durable=True)

    def alert(self, document: Document, sinks: tuple[str, ...] = ()) -> None:
        """Queue an alert (:func:`streamcal.monitor.rules.rule.alert_document`) for the sinks of these names; no names: for all.

        ValueError for a sink that is not there, and for what is not the document of an alert.
        """
        check_document(document)
        unknown = [name for name in sinks if name not in self._sinks]
        if unknown:
            raise ValueError(f"sinks must be of {', '.join(self._sinks)}, got {', '.join(unknown)}")
        line = json.dumps(document, allow_nan=False)
        for name in dict.fromkeys(sinks or self._sinks):
            self._queue(self._sinks[name], document, line)

    def _queue(self, sink: Sink, document: Document, line: str) -> None:
        if sink.type == "webhook":
            payload(sink.format, document, 0.0, 0.0)  # what can not be said is refused here, not in the thread
            self._couriers[sink.name].offer(line)
        elif sink.type == "file":
            self.append(sink.path or "", [line.encode()], durable=True)
        else:
            self._prints.append((sink.name, line))
            self._changed = True

    def append(self, path: str, lines: list[bytes], durable: bool = False) -> None:
        """Lines, without their line feed, for the end of a file. With ``durable`` they are there also after a power cut.

        That costs a few milliseconds for each ``deliver`` with lines for this file. ValueError for an empty line or a line feed.
        """
        if path not in self._files:
            self._files[path] = Appended(place_of(path))
        self._files[path].add(lines, durable)

    @property
    def changed(self) -> bool:
        """Whether the state is another than was last saved."""
        parts: list[Appended | Courier] = [*self._files.values(), *self._couriers.values()]
        return self._changed or any(part.changed for part in parts)

    def to_bytes(self) -> bytes:
        """The state, to be committed now: only what is in here is delivered. A line of JSON, then the lines of the files."""
        couriers = {}
        for name, courier in self._couriers.items():
            state, dead = courier.state()
            path = self._sinks[name].dead_letters
            couriers[name] = {**state, "dead_letters": path}
            if dead:
                self.append(path, dead, durable=True)
        lines = [file.lines for file in self._files.values()]
        files = [(*file.place, len(own)) for file, own in zip(self._files.values(), lines, strict=True)]
        for file in self._files.values():
            file.saved()
        self._printable, self._changed = len(self._prints), False
        head = {"outbox": VERSION, "files": files, "prints": self._prints, "couriers": couriers}
        return b"\n".join((json.dumps(head, allow_nan=False).encode(), b"".join(lines)))

    def deliver(self, now: float) -> None:
        """After the commit: write files, print, let webhooks go. ``now``: the time of day, seconds since 1970 UTC.

        OutboxError if a file or stdout did not take its lines, once all others have had theirs. They are kept.
        """
        wrong: list[str] = []
        for say in (*(file.write for file in self._files.values()), self._print):
            try:
                say()
            except OutboxError as error:
                wrong.append(str(error))
        for courier in self._couriers.values():
            courier.go(now)
        if wrong:
            raise OutboxError("; ".join(wrong))

    def _print(self) -> None:
        if not self._printable:
            return
        try:
            for _, line in self._prints[: self._printable]:
                sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except (OSError, ValueError) as error:  # a broken pipe; a closed file
            raise OutboxError(f"stdout: {error}; {len(self._prints)} alerts for it are kept") from error
        del self._prints[: self._printable]
        self._printable, self._changed = 0, True

    @property
    def undelivered(self) -> dict[str, int]:
        """For each sink, how many alerts are not yet known to have been said."""
        return {name: self._undelivered(sink) for name, sink in self._sinks.items()}

    def _undelivered(self, sink: Sink) -> int:
        if sink.type == "webhook":
            return self._couriers[sink.name].undelivered
        if sink.type == "file":
            file = self._files.get(sink.path or "")
            return file.pending if file else 0
        return sum(1 for name, _ in self._prints if name == sink.name)

    @property
    def dead(self) -> dict[str, int]:
        """For each webhook, how many alerts have gone to its dead letters since the state began."""
        return {name: courier.buried for name, courier in self._couriers.items()}

    @property
    def standing(self) -> dict[str, list[Document]]:
        """For each webhook, the firing alerts that Alertmanager is told again and again, until they resolve.

        One that nothing will ever resolve (its rule was taken out) stands until it is given to ``alert`` as resolved.
        """
        return {name: courier.standing for name, courier in self._couriers.items()}

    @property
    def troubles(self) -> dict[str, str]:
        """For each webhook whose last request failed, why; without secrets."""
        return {name: courier.trouble for name, courier in self._couriers.items() if courier.trouble}

    def close(self, wait: float) -> None:
        """End the threads, once what is due is sent or ``wait`` seconds are over. What is left is in ``to_bytes``."""
        end = time.monotonic() + wait
        for courier in self._couriers.values():
            courier.close(max(end - time.monotonic(), 0.0))


def _read(saved: bytes) -> dict[str, Any]:
    try:
        head, _, lines = saved.partition(b"\n")
        state = json.loads(head)
        if state["outbox"] != VERSION or sum(file[-1] for file in state["files"]) != len(lines):
            raise ValueError(f"its version must be {VERSION}, and its lines complete")
        files = []
        for *place, size in state["files"]:
            files.append((Place(*place), lines[:size]))
            lines = lines[size:]
    except (ValueError, LookupError, TypeError) as error:
        raise OutboxError(f"the saved state of the outbox can not be read: {error!r}") from None
    return {**state, "files": files}
