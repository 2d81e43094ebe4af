"""What every sink is: it takes alerts, says which are not yet told, and tells those that were saved."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from streamcal.monitor.sinks.append_file import AppendFiles, OutboxError
from streamcal.times import utc

Document = dict[str, Any]  # an alert, as rules.rule.alert_document makes it
UNDELIVERED = "undelivered.jsonl"  # dead letters of a sink that names no file for them


class Sink:
    """Tells alerts: ``offer`` one, ``save`` with the state those that are not yet told, ``deliver`` what was saved.

    A sink of one's own has only to :meth:`tell`: the alerts are kept until that returns, and after a kill they may be told
    again. ``name``: for what is said when it fails. ``saved``: what :meth:`save` gave at the last commit.
    """

    trouble = ""  # why its last attempt failed, where that is not an OutboxError of `deliver`

    def __init__(self, name: str, saved: Mapping[str, Any]) -> None:
        self.name = name
        self._alerts = [str(alert) for alert, *_ in saved.get("queue", ())]
        self._saved = len(self._alerts)
        self.changed = False  # since it was last saved

    def tell(self, alerts: Sequence[str]) -> None:
        """Tell these alerts, each a document in JSON. Whatever it raises, they are kept and told again."""
        raise NotImplementedError

    @property
    def undelivered(self) -> int:
        """How many alerts are not yet known to have been told."""
        return len(self._alerts)

    @property
    def dead(self) -> int | None:
        """How many alerts went to its dead letters; None: it has no such file."""
        return None

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

    def close(self, wait: float) -> None:
        """End what runs in the background, after at most ``wait`` seconds."""


class SinkTable(Protocol):
    """A table [sinks.NAME]: a frozen dataclass whose fields are its keys, made by ``entry``."""

    @property
    def name(self) -> str:
        """NAME."""

    def open(self, files: AppendFiles, saved: Mapping[str, Any]) -> Sink:
        """The sink, which goes on with what it saved last. OutboxError if it makes no sense. ``files``: lines for these."""


def dead_letter(sink: str, host: str, alert: Document, reason: str, attempts: int, now: float) -> bytes:
    """A line for the file of dead letters: which sink, why, and the alert itself."""
    about = {"sink": sink, "host": host, "reason": reason, "attempts": attempts, "at": utc(now)}
    return json.dumps({"type": "undelivered", **about, "alert": alert}, allow_nan=False).encode()
