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
a file    each line exactly once, whole and in order (:class:`AppendFile`)
stdout    each line at least once: printed again if the kill came before the next transaction
webhook   each alert until the receiver has taken it, with retries, else in the file of dead letters
          (:mod:`streamcal.monitor.sinks.webhook`); after a kill it may come again, with the same ``Idempotency-Key``
========  ====================================================================================================================

``changed`` says that the state is not what was last saved: that there is more to deliver, or that something has been
delivered. A process that has nothing else to do saves and delivers now and then, and at its end after ``close``.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import FileIO
from typing import Any, NamedTuple, Protocol

from streamcal.reading.rewritten import PRIVATE, new_file
from streamcal.times import utc

Document = dict[str, Any]  # an alert, as rules.rule.alert_document makes it
UNDELIVERED = "undelivered.jsonl"  # dead letters of a sink that names no file for them

VERSION = 2  # of the saved state
LINK = "a link is not followed; name the file itself"
NEEDED = ("id", "kind", "rule", "severity", "model", "version", "segment", "since", "at", "text")


class OutboxError(Exception):
    """Something could not be said: the message names the file or sink, says why, and that nothing is lost."""


class UrlError(OutboxError):
    """The configuration or its environment names no url: nothing is wrong with a file."""


class Place(NamedTuple):
    """Where lines go on: behind byte ``at`` of the file."""

    path: str
    at: int
    durable: bool = False


def place_of(path: str, durable: bool = False) -> Place:
    """The end of a file as it is now, its beginning where there is none or one cannot look."""
    try:
        return Place(path, os.stat(path).st_size, durable)
    except OSError:
        return Place(path, 0, durable)


class AppendFile:
    """Lines for one file: ``add``, then ``saved`` once they are in the transaction, then ``write``. Not thread-safe.

    What is still to be written is part of the state that a transaction saves, together with the place in the file where it
    begins. So a line is written only after it was saved, and only at its place; after a kill the saved lines are held against
    what stands at that place: what is there is not written again, what is torn is completed.

    Where somebody else changed the file (rotated or truncated it, or wrote into it), so that it is shorter or something else
    stands there, the place is no longer ours: the lines go to the end of the file as it is now, once that new place has been
    saved too. Nothing is ever overwritten. Exact for a killed process, and one writer per file. A line that was written but not
    yet saved as such when both a kill and a rotation come is in both files. After a power cut the last lines may be there twice;
    with ``durable`` none is missing.

    ``place`` and ``lines`` are its whole state. An empty file, or none, is where the first line goes; the folder must exist.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = AppendFile(place_of(folder.name + "/audit.jsonl"))
    >>> file.add([b"one", b"two"])
    >>> file.write()  # nothing: they are not yet saved
    >>> state = file.place, file.lines
    >>> file.saved()
    >>> file.write()
    >>> AppendFile(*state).write()  # as after a kill before the next transaction: the same bytes at the same place
    >>> open(folder.name + "/audit.jsonl").read()
    'one\\ntwo\\n'
    """

    def __init__(self, place: Place, lines: bytes = b"") -> None:
        self.place = place
        self._lines = bytearray(lines)
        self._ready = len(lines)  # so many bytes are in the state as it was last saved
        self.changed = False  # since then

    @property
    def lines(self) -> bytes:
        """What is not yet known to be in the file."""
        return bytes(self._lines)

    @property
    def pending(self) -> int:
        """So many lines are not yet written."""
        return self._lines.lstrip(b"\n").count(b"\n")

    def add(self, lines: list[bytes], durable: bool = False) -> None:
        """More lines, without their end; ValueError for one that is empty or holds a line feed."""
        for line in lines:
            if not line or b"\n" in line:
                raise ValueError(f"a line for {self.place.path} must hold bytes and no line feed, got {line[:100]!r}")
        self.place = self.place._replace(durable=self.place.durable or durable)
        self._lines += b"".join(line + b"\n" for line in lines)
        self.changed |= bool(lines)

    def saved(self) -> None:
        """``place`` and ``lines``, as they are, are about to be committed."""
        self._ready, self.changed = len(self._lines), False

    def write(self, mode: int = PRIVATE) -> None:
        """Write what was saved, into a file of this mode where there is none. OutboxError if the file does not take it.

        It stays then, and a later call goes on where it was. If the place is no longer ours nothing is written, there is a new
        place, and ``changed`` says that it must be saved.
        """
        if not self._ready:
            return
        try:
            with open(self.place.path, "r+b", buffering=0, opener=partial(_made, mode=mode)) as file:
                self._write(file)
        except OSError as error:
            kept = f"{self.pending} lines for it are kept, and written as soon as it takes them"
            why = LINK if os.path.islink(self.place.path) else error.strerror or error
            raise OutboxError(f"{self.place.path}: {why}; {kept}") from error

    def _write(self, file: FileIO) -> None:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OutboxError(f"{self.place.path}: must be an ordinary file, which lines can be added to exactly once")
        due = bytes(self._lines[: self._ready])
        done = self._there(file, found.st_size, due)
        if done is None:
            self._move(file, found.st_size)
            return
        file.seek(self.place.at + done)
        rest = memoryview(due)[done:]
        while rest:
            rest = rest[file.write(rest) :]
        if self.place.durable:
            os.fsync(file.fileno())
        self.place = self.place._replace(at=self.place.at + len(due))
        del self._lines[: self._ready]
        self._ready, self.changed = 0, True

    def _there(self, file: FileIO, size: int, due: bytes) -> int | None:
        """So many bytes of what is due are at its place already; None if the place is not ours any more."""
        at = self.place.at
        if size < at:
            return None
        file.seek(max(at - 1, 0))
        there = file.read(len(due) + min(at, 1))
        if at and there[:1] != b"\n" and not due.startswith(b"\n"):  # would be glued to the line before
            return None
        there = there[min(at, 1) :]
        return len(there) if due.startswith(there) else None

    def _move(self, file: FileIO, size: int) -> None:
        """To the end of the file, on a line of its own, once that has been saved."""
        file.seek(max(size - 1, 0))
        glue = b"" if file.read(1) in (b"", b"\n") else b"\n"
        self._lines = bytearray(glue + self._lines.lstrip(b"\n"))
        self.place = self.place._replace(at=size)
        self._ready, self.changed = 0, True


def _made(path: str, flags: int, mode: int) -> int:
    """An open file, made with this mode if it is not there. OSError for a link: where it leads may be decided by others."""
    if os.path.islink(path):
        raise OSError(LINK)
    flags |= getattr(os, "O_NOFOLLOW", 0)
    with contextlib.suppress(FileExistsError):
        return new_file(path, mode, flags)
    return os.open(path, flags)


class AppendFiles(dict[str, AppendFile]):
    """The files of an outbox by their paths; one begins with its first lines. ``mode``: of those that are made."""

    mode = PRIVATE

    def append(self, path: str, lines: list[bytes], durable: bool = False) -> None:
        """Lines for the end of a file: as :meth:`AppendFile.add`."""
        if path not in self:
            self[path] = AppendFile(place_of(path))
        self[path].add(lines, durable)


class Sink(ABC):
    """Tells alerts: ``offer`` one, ``save`` with the state those that are not yet told, ``deliver`` what was saved.

    A sink of one's own has only to :meth:`tell`: the alerts are kept until that returns, and after a kill they may be told
    again. ``name``: for what is said when it fails. ``saved``: what :meth:`save` gave at the last commit.
    """

    trouble = ""  # why its last attempt failed, where that is not an OutboxError of `deliver`
    dead: int | None = None  # how many alerts went to its dead letters; None: it has no such file

    def __init__(self, name: str, saved: Mapping[str, Any]) -> None:
        self.name = name
        self._alerts = [str(alert) for alert, *_ in saved.get("queue", ())]
        self._saved = len(self._alerts)
        self.changed = False  # since it was last saved

    @abstractmethod
    def tell(self, alerts: Sequence[str]) -> None:
        """Tell these alerts, each a document in JSON. Whatever it raises, they are kept and told again."""

    @property
    def undelivered(self) -> int:
        """How many alerts are not yet known to have been told."""
        return len(self._alerts)

    @property
    def firing(self) -> list[Document] | None:
        """The alerts that it tells again and again until they resolve; None: it tells each once."""
        return None

    def offer(self, alert: str) -> None:
        """Take an alert, a document in JSON. ValueError for one that cannot be said in its form."""
        self._alerts.append(alert)
        self.changed = True

    def save(self) -> dict[str, Any]:
        """The state as JSON data, which is about to be committed."""
        self._saved, self.changed = len(self._alerts), False
        return {"queue": [[alert] for alert in self._alerts]}

    def deliver(self, now: float) -> None:
        """Tell what was saved; ``now`` is the time of day. OutboxError if that fails; nothing is lost."""
        if not self._saved:
            return
        try:
            self.tell(self._alerts[: self._saved])
        except Exception as error:  # of whatever kind: the stream must go on
            raise OutboxError(f"{self.name}: {error}; {len(self._alerts)} alerts for it are kept") from error
        del self._alerts[: self._saved]
        self._saved, self.changed = 0, True

    def close(self, wait: float) -> None:  # noqa: B027 most have nothing to end
        """End what runs in the background, after at most ``wait`` seconds."""


class SinkTable(Protocol):
    """A table [sinks.NAME]: a frozen dataclass whose fields are its keys, made by ``entry``."""

    @property
    def name(self) -> str:
        """NAME."""

    def open(self, files: AppendFiles, saved: Mapping[str, Any]) -> Sink:
        """The sink, which goes on with what it saved last. OutboxError if it makes no sense. ``files``: lines for these."""


class Outbox:
    r"""Says what was committed. Not thread-safe itself; webhooks have a thread each and never hold up the stream.

    ``tables``: of the sinks. ``mode``: of files that are made. ``saved``: what ``to_bytes`` gave at the last commit, None at the first start. Alerts for a sink
    that is no longer there go to its dead letters. OutboxError for a webhook without a url, and for ``saved`` that is no state
    of an outbox.

    >>> from streamcal.monitor.sinks.registry import ToStdout
    >>> outbox = Outbox((ToStdout("log"),))
    >>> outbox.alert(dict.fromkeys(("id", "rule", "severity", "model", "version", "segment", "since", "at", "text"), "x")
    ...              | {"kind": "firing"})
    >>> outbox.undelivered, len(outbox.to_bytes()) > 0
    ({'log': 1}, True)
    >>> outbox.deliver(0.0)
    {"id": "x", "rule": "x", "severity": "x", "model": "x", "version": "x", "segment": "x", "since": "x", "at": "x", "text": "x", "kind": "firing"}
    >>> outbox.undelivered
    {'log': 0}
    """  # noqa: E501

    def __init__(self, tables: Sequence[SinkTable], saved: bytes | None = None, mode: int = PRIVATE) -> None:
        self._files, states = (AppendFiles(), {}) if saved is None else _read(saved)
        self._files.mode = mode
        self._sinks = {table.name: table.open(self._files, states.pop(table.name, {})) for table in tables}
        for name, left in states.items():
            for alert, *tried in left["queue"]:
                reason, attempt = "the sink is no longer in the configuration", tried[0] if tried else 0
                letter = dead_letter(name, "", json.loads(alert), reason, attempt, time.time())
                self._files.append(left.get("dead_letters", UNDELIVERED), [letter], durable=True)

    def alert(self, document: Document, sinks: tuple[str, ...] = ()) -> None:
        """Queue an alert (:func:`streamcal.monitor.rules.rule.alert_document`) for the sinks of these names; no names: for all.

        ValueError for a sink that is not there, and for what is not the document of an alert.
        """
        lacking = [key for key in NEEDED if not isinstance(document.get(key), str)]
        if lacking or document["kind"] not in ("firing", "resolved"):
            wrong = ", ".join(lacking) or f"kind {document['kind']!r}"
            must = f"an alert must be a document of rules.alert_document, with texts {NEEDED}"
            raise ValueError(f"{must}; not right: {wrong}")
        if unknown := [name for name in sinks if name not in self._sinks]:
            raise ValueError(f"sinks must be of {', '.join(self._sinks)}, got {', '.join(unknown)}")
        alert = json.dumps(document, allow_nan=False)
        for name in dict.fromkeys(sinks or self._sinks):
            self._sinks[name].offer(alert)

    def append(self, path: str, lines: list[bytes], durable: bool = False) -> None:
        """Lines, without their line feed, for the end of a file. With ``durable`` they are there also after a power cut.

        That costs a few milliseconds for each ``deliver`` with lines for this file. ValueError for an empty line or a line feed.
        """
        self._files.append(path, lines, durable)

    @property
    def changed(self) -> bool:
        """Whether the state is another than was last saved."""
        return any(file.changed for file in self._files.values()) or any(sink.changed for sink in self._sinks.values())

    def to_bytes(self) -> bytes:
        """The state, to be committed now: only what is in here is delivered. A line of JSON, then the lines of the files."""
        sinks = {name: sink.save() for name, sink in self._sinks.items()}  # first, as dead letters go into the files
        lines = [file.lines for file in self._files.values()]
        files = [(*file.place, len(own)) for file, own in zip(self._files.values(), lines, strict=True)]
        for file in self._files.values():
            file.saved()
        head = {"outbox": VERSION, "files": files, "sinks": sinks}
        return b"\n".join((json.dumps(head, allow_nan=False).encode(), b"".join(lines)))

    def deliver(self, now: float) -> None:
        """After the commit: write files, print, let webhooks go. ``now``: the time of day, seconds since 1970 UTC.

        OutboxError if a file or stdout did not take its lines, once all others have had theirs. They are kept.
        """
        wrong: list[str] = []
        due: list[Callable[[], None]] = [partial(file.write, self._files.mode) for file in self._files.values()]
        due += [partial(sink.deliver, now) for sink in self._sinks.values()]
        for deliver in due:
            try:
                deliver()
            except OutboxError as error:
                wrong.append(str(error))
        if wrong:
            raise OutboxError("; ".join(wrong))

    @property
    def undelivered(self) -> dict[str, int]:
        """For each sink, how many alerts are not yet known to have been said."""
        return {name: sink.undelivered for name, sink in self._sinks.items()}

    @property
    def dead(self) -> dict[str, int]:
        """For each sink with dead letters, how many alerts have gone there since the state began."""
        return {name: sink.dead for name, sink in self._sinks.items() if sink.dead is not None}

    @property
    def firing(self) -> dict[str, list[Document] | None]:
        """For each sink, the firing alerts that it tells again and again (Alertmanager) until they resolve; None: once.

        One that nothing will ever resolve (its rule was taken out) stays until it is given to ``alert`` as resolved.
        """
        return {name: sink.firing for name, sink in self._sinks.items()}

    @property
    def troubles(self) -> dict[str, str]:
        """For each webhook whose last request failed, why; without secrets."""
        return {name: sink.trouble for name, sink in self._sinks.items() if sink.trouble}

    def close(self, wait: float) -> None:
        """End the threads, once what is due is sent or ``wait`` seconds are over. What is left is in ``to_bytes``."""
        end = time.monotonic() + wait
        for sink in self._sinks.values():
            sink.close(max(end - time.monotonic(), 0.0))


def _read(saved: bytes) -> tuple[AppendFiles, dict[str, Any]]:
    """The files with their lines, and the states of the sinks."""
    try:
        head, _, lines = saved.partition(b"\n")
        state = json.loads(head)
        if state["outbox"] != VERSION or sum(file[-1] for file in state["files"]) != len(lines):
            raise ValueError(f"its version must be {VERSION}, and its lines complete")
        files = AppendFiles()
        for path, *place, size in state["files"]:
            files[path], lines = AppendFile(Place(path, *place), lines[:size]), lines[size:]
        return files, dict(state["sinks"])
    except (ValueError, LookupError, TypeError) as error:
        raise OutboxError(f"the saved state of the outbox can not be read: {error!r}") from None


def dead_letter(sink: str, host: str, alert: Document, reason: str, attempts: int, now: float) -> bytes:
    """A line for the file of dead letters: which sink, why, and the alert itself."""
    about = {"sink": sink, "host": host, "reason": reason, "attempts": attempts, "at": utc(now)}
    return json.dumps({"type": "undelivered", **about, "alert": alert}, allow_nan=False).encode()
