"""What came from each source and could not be read: counted by reason, and told as an alert where it is too much.

Data that are refused because of their value make a biased sample of the rest. So beside the rules of the configuration there is
one about each source, ``max_unread``: more than this share of its last messages could not be read. It looks once a transaction,
and its times are those of the wall clock, as what cannot be read has none. Events that are pushed have the source "".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from streamcal.monitor.config.config import Config
from streamcal.monitor.config.settings import Rule
from streamcal.monitor.rules.rule import FIRING, RESOLVED, Alert, Evaluation, alert_document
from streamcal.reporting.verdict import count
from streamcal.times import utc

BLOCK = (
    1_000  # messages: the share is that of the last one to two blocks, so that it forgets, and one bad batch is seen
)
FEWEST = 100  # messages: of fewer one bad one would be a large share
REASONS = 20  # that are told apart, in status and in messages: more would be texts of strangers
OTHER = "other reasons"
LONGEST = 500  # characters of an example
RULE = "max_unread"


class SourceFlow:
    """Of one source: messages and unread ones, of the block before, of this one, of this run, and since the state began."""

    def __init__(self, name: str, allowed: float, kept: Mapping[str, Any] | None = None) -> None:
        self.name, self.allowed = name, allowed
        kept = kept or {"blocks": [0, 0, 0, 0], "came": 0, "unread": 0, "since": None, "episode": 0}
        self.blocks: list[int] = list(kept["blocks"])
        self.came, self.unread = int(kept["came"]), int(kept["unread"])
        self.since: float | None = kept["since"]
        self.episode = int(kept["episode"])
        self.run = [0, 0]

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        own = {"blocks": self.blocks, "came": self.came, "unread": self.unread}
        return {**own, "since": self.since, "episode": self.episode}

    def take(self, came: int, unread: int, now: float) -> tuple[str, Evaluation] | None:
        """Some messages more, so many of them unread; whether there is something to tell: FIRING or RESOLVED."""
        self.came, self.unread = self.came + came, self.unread + unread
        self.run = [self.run[0] + came, self.run[1] + unread]
        self.blocks[2:] = self.blocks[2] + came, self.blocks[3] + unread
        all_, bad = self.blocks[0] + self.blocks[2], self.blocks[1] + self.blocks[3]
        if self.blocks[2] >= BLOCK:
            self.blocks = [*self.blocks[2:], 0, 0]
        seen = Evaluation(bad / max(all_, 1), events=float(all_))
        if self.since is None and self.over(all_, bad):
            self.since, self.episode = now, self.episode + 1
            return FIRING, seen
        if self.since is not None and all_ >= FEWEST and not self.over(all_, bad):
            return RESOLVED, seen
        return None

    def over(self, came: int, unread: int) -> bool:
        """Whether so many unread messages of so many are too many."""
        return unread > self.allowed * max(came, FEWEST)


def _about(name: str) -> str:
    """What stands for a segment in alerts about a source."""
    return f"source={name}" if name else "source"


def flow_status(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What :meth:`Flow.document` gave as a status shows it: unread by reason, an example of each, of each source how much came.

    ``firing``: the sources of which too much cannot be read, as :func:`~streamcal.monitor.rules.evaluation.firing` lists rules.
    """
    place = {"rule": RULE, "model": "", "version": ""}
    found = [(_about(name), of["since"]) for name, of in kept["sources"].items() if of["since"] is not None]
    fires = [{**place, "segment": about, "since": utc(since)} for about, since in found]
    sources = {name: {key: of[key] for key in ("came", "unread")} for name, of in kept["sources"].items()}
    return {"unread": kept["unread"], "examples": kept["examples"], "sources": sources, "firing": fires}


class Flow:
    """All sources of a monitor. ``kept``: what ``document`` gave."""

    def __init__(self, config: Config, kept: Mapping[str, Any] | None = None) -> None:
        kept = kept or {"sources": {}, "unread": {}, "examples": {}}
        self.unread: dict[str, int] = dict(kept["unread"])  # by reason
        self.examples: dict[str, str] = dict(kept["examples"])  # the whole of each reason, as it came last
        self.sources = {"": SourceFlow("", config.max_unread, kept["sources"].get(""))}
        for table in config.sources:
            allowed = config.max_unread if table.max_unread is None else table.max_unread
            self.sources[table.name] = SourceFlow(table.name, allowed, kept["sources"].get(table.name))

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        sources = {name: of.document() for name, of in self.sources.items() if of.came}
        return {"sources": sources, "unread": self.unread, "examples": self.examples}

    def take(self, came: Mapping[str, int], unread: Iterable[tuple[str, str, int]], now: float) -> list[dict[str, Any]]:
        """Messages that came by source, and for those that could not be read source, reason and how many: alerts to tell."""
        bad: Counter[str] = Counter()
        reasons: dict[str, Counter[str]] = {}
        for name, reason, times in unread:
            short = reason.partition(":")[0].partition(" must")[0]
            short = short if short in self.unread or len(self.unread) < REASONS else OTHER
            self.unread[short] = self.unread.get(short, 0) + times
            self.examples[short] = reason[:LONGEST]
            bad[name] += times
            reasons.setdefault(name, Counter())[short] += times
        alerts = []
        for name in {**came, **bad}:
            of = self.sources[name]
            told = of.take(came.get(name, 0), bad[name], now)
            if told is not None:
                alerts.append(self._alert(of, *told, reasons.get(name, Counter()), now))
        return alerts

    def _alert(self, of: SourceFlow, kind: str, seen: Evaluation, why: Counter[str], now: float) -> dict[str, Any]:
        since = now if of.since is None else of.since
        alert = Alert(kind, of.episode, since, now, seen)
        document = alert_document(
            Rule(RULE, metric="unread", above=of.allowed, clear=of.allowed), alert, "", "", _about(of.name)
        )
        head = f"{kind.upper()} ({document['severity']}) {RULE}: source {of.name or 'of pushed events'}"
        share = f"{seen.value:.3g} of the last {count(int(seen.events))} messages could not be read"
        if kind == RESOLVED:
            of.since = None
            return {**document, "source": of.name, "text": f"{head}: {share}, no more than {of.allowed:g}"}
        return {**document, "source": of.name, "text": f"{head}: {share}: {self.words(why)}"}

    def words(self, why: Mapping[str, int]) -> str:
        """Reasons with how often; the most frequent comes last, and in full."""
        ordered = sorted(why, key=why.__getitem__)
        return ", ".join(
            f"{count(why[short])} {self.examples[short] if short == ordered[-1] else short}" for short in ordered
        )

    def refused(self) -> list[str]:
        """For each source of this run of which too much was unread, or nothing taken: what to say."""
        said = []
        for of in self.sources.values():
            came, unread = of.run
            if unread and (unread == came or unread > of.allowed * came):
                share = f"{count(unread)} of {count(came)} messages of source {of.name} could not be read"
                said.append(f"{share}, more than max_unread = {of.allowed:g}: {self.words(self.unread)}")
        return said
