"""The same events again: does the audit say what they really lead to?

A line of the audit says after how many events, at what time, under which configuration its decision was made. A replay takes
the recorded events in their order with nothing kept and nobody told, evaluates at the same moments, and holds its lines
against those of the audit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from streamcal.monitor.config.config import Config
from streamcal.monitor.messages import records
from streamcal.monitor.monitor import CLOCK, Monitor
from streamcal.monitor.sinks.outbox import Outbox

AUDIT = "audit"
AT_ONCE = 1_000  # objects taken in one transaction
EVENTS = 4  # of one object at most: prediction and label, each also raw
Line = dict[str, Any]


class Needed(msgspec.Struct):
    """What every line of an audit has."""

    config: Any
    rule: str
    model: str
    version: str
    at: str
    taken: float
    time: float


class Overheard(Outbox):
    """Stands where the outbox is: it keeps the lines of the audit, and says nothing to anybody."""

    def __init__(self) -> None:
        super().__init__(())
        self.lines: list[Line] = []

    def append(self, path: str, lines: list[bytes], durable: bool = False) -> None:
        """Lines for a file."""
        if path == AUDIT:
            self.lines += [msgspec.json.decode(line) for line in lines]

    def alert(self, document: Line, sinks: tuple[str, ...] = ()) -> None:
        """An alert: it follows from the lines."""


@dataclass(frozen=True)
class Replayed:
    """How far it went: events taken, moments and lines that were the same; the first difference in words, "" if there is none."""

    events: int
    moments: int
    lines: int
    difference: str = ""


class ReplayError(Exception):
    """A replay that cannot be: the audit is of another configuration, or is none."""


def replay(
    config: Config,
    objects: Iterable[bytes],
    audit: Iterable[bytes],
    step: Callable[[int], None] = lambda taken: None,
) -> Replayed:
    """Take the recorded objects (lines of JSON), and compare with the lines of an audit. ``step`` hears of the progress.

    ReplayError if the audit was written under another configuration. Lines later than the end of the events are a difference.
    """
    heard = Overheard()
    monitor = Monitor(replace(config, state=":memory:", audit=AUDIT, record=None, sinks=(), sources=()), outbox=heard)
    things = _things(objects)
    moments, compared, difference = 0, 0, ""
    for said in _evaluations(_lines(audit, config.hash)):
        taken, at = said[0]["taken"], said[0]["time"]
        if _go(monitor, things, heard, taken, at):
            difference = _difference(said, heard.lines)
        else:
            difference = f"the events end after {monitor.taken}, but the audit goes on after {taken}"
        if difference:
            break
        moments, compared = moments + 1, compared + len(said)
        heard.lines = []
        step(monitor.taken)
    else:
        while not heard.lines and _take(monitor, things, AT_ONCE):
            pass
        if heard.lines:
            difference = f"the audit ends, but the events go on to an evaluation at {heard.lines[0]['at']}"
    return Replayed(monitor.taken, moments, compared, difference)


def _things(objects: Iterable[bytes]) -> Iterator[dict[str, Any] | float]:
    """What was recorded: objects, and moments to which the clock moved without one."""
    for line in objects:
        things = records(line)[0]
        if len(things) == 1 and isinstance(things[0].get(CLOCK), int | float):
            yield float(things[0][CLOCK])
        else:
            yield from things


def _take(monitor: Monitor, things: Iterator[dict[str, Any] | float], most: int) -> bool:
    """Take up to so many objects, and the moment that follows them if one comes first; False if there is nothing more."""
    some: list[dict[str, Any]] = []
    for thing in itertools.islice(things, most):
        if isinstance(thing, float):
            monitor.take_objects(some)
            monitor.advance(thing)
            return True
        some.append(thing)
    monitor.take_objects(some)
    return bool(some)


def _go(monitor: Monitor, things: Iterator[dict[str, Any] | float], heard: Overheard, taken: int, at: float) -> bool:
    """Take events up to a number of them, and evaluate; False if they end before.

    An event beyond the moment of an evaluation brings it about by itself.
    """
    while monitor.taken < taken and not heard.lines:
        if not _take(monitor, things, min(AT_ONCE, max((taken - monitor.taken - monitor.held) // EVENTS, 1))):
            return False
    if not heard.lines:
        (monitor.evaluate if at < monitor.boundary else monitor.advance)(at)
    return True


def _evaluations(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines of one evaluation after the other: each has one of a rule, a model and a version."""
    for _, group in itertools.groupby(lines, key=lambda line: (line["taken"], line["time"])):
        said: dict[tuple[str, ...], Line] = {}
        for line in group:
            what = (line["rule"], line["model"], line["version"])
            if what in said:
                yield list(said.values())
                said = {}
            said[what] = line
        yield list(said.values())


def _lines(audit: Iterable[bytes], digest: str) -> Iterator[Line]:
    for number, text in enumerate(audit, 1):
        try:
            line = msgspec.json.decode(text)
            was = msgspec.convert(line, Needed).config
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ReplayError(f"line {number} of the audit is none: {text[:80]!r}") from None
        if was != digest:
            raise ReplayError(
                f"line {number} of the audit was written under configuration {was}, this one is {digest}: a replay needs "
                "the configuration as it was, from the first event on"
            )
        yield line


def _difference(expected: list[Line], found: list[Line]) -> str:
    """The first thing that is not the same, in words."""
    for line, other in itertools.zip_longest(expected, found):
        if line is None or other is None:
            side, one = ("the replay", other) if line is None else ("the audit", line)
            return f"at {one['at']}: only {side} has rule {one['rule']} for {one['model']} {one['version']}"
        for key in sorted({*line, *other} - {"config"}):
            if line.get(key) != other.get(key):
                was, now = (str(x.get(key))[:200] for x in (line, other))
                return f"at {line['at']}, rule {line['rule']}: {key} was {was}, in the replay {now}"
    return ""
