"""The tables of a configuration, one frozen dataclass each. What each key means: :mod:`streamcal.monitor.config.config`.

They are plain data: spans in seconds, lists as tuples, nothing looked up or opened. Values are checked where a file is read,
not where an object is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamcal.intervals import INTERVALS
from streamcal.monitor.config.model import DECILES as DECILES
from streamcal.monitor.config.model import RESERVED
from streamcal.monitor.config.model import Model as Model
from streamcal.monitor.config.toml_tables import (
    OPTIONS,
    POSITIVE,
    TEXT,
    TEXTS,
    TOLERANCE,
    Kind,
    Mistakes,
    entry,
    link,
    needed,
    number,
    one_of,
    only_with,
    quoted,
    seconds,
    suggestion,
    whole,
)
from streamcal.snapshot import METRICS
from streamcal.times import LONGEST_SPAN, shown_span

WHOLE, EACH = "all", "each"
PROBABILITIES = ("mean", "top_label", "marginal")
METRICS_OF: Mapping[str, tuple[str, ...]] = {  # the claims that a metric is about, where not all
    **dict.fromkeys(("q1", "q2", "qinf", "pinball_loss"), ("quantile",)),
    **dict.fromkeys(("log_loss", "normalized_entropy"), PROBABILITIES),
    **dict.fromkeys(("calibration_intercept", "calibration_slope", "spiegelhalter_z"), PROBABILITIES),
}


def _segments(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
        raise ValueError
    if isinstance(value, str):
        if value not in (WHOLE, EACH):
            raise ValueError(suggestion(value, (WHOLE, EACH)))
        return value
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Join:
    """How long predictions and labels wait for each other, in seconds."""

    ttl: float = entry(seconds(1.0, " of at least 1s"), 90 * 86_400.0)
    maturity: float = entry(seconds(), 0.0)
    hold: float = entry(seconds(), 86_400.0)
    ahead: float | None = entry(seconds(1.0, " of at least 1s"), None)

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        if self.maturity > self.ttl:
            yield (
                "maturity",
                f"must be at most ttl, or nothing ever counts, got {shown_span(self.maturity)} and {shown_span(self.ttl)}",
            )
        for key, value in (("ttl", self.ttl), ("hold", self.hold)):
            if value > LONGEST_SPAN:
                yield key, f"must be at most {LONGEST_SPAN:g} seconds, got {value:g}s"


@dataclass(frozen=True)
class Segments:
    """The fields of an event that make its segment, and how many segments are told apart."""

    fields: tuple[str, ...] = entry(TEXTS)
    cap: int = entry(whole(1, 1_000_000), 1000)
    other: str = entry(TEXT, "other")

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        for field in self.fields:
            if field in RESERVED:
                yield (
                    "fields",
                    f"must not hold one of {', '.join(RESERVED)}, which mean something else, got {quoted([field])}",
                )
        if self.other in (WHOLE, EACH) or "=" in self.other:
            yield "other", f'must not be "{WHOLE}" or "{EACH}" and hold no "=", got "{self.other}"'

    def named(self, values: tuple[Any, ...]) -> str:
        r"""The name of the segment with these values, one per field. Different values give different names.

        >>> Segments(("country", "tier")).named(("at", "a,b"))
        'country=at,tier=a\\,b'
        """
        pairs = zip(self.fields, map(_escaped, values), strict=True)
        return ",".join(f"{_escaped(field)}={value}" for field, value in pairs)

    def may_be(self, name: str) -> bool:
        """Whether a segment can have this name.

        >>> Segments(("country", "tier")).may_be("country=at,tier=gold"), Segments(("country", "tier")).may_be("country=at")
        (True, False)
        """
        any_value = r"(?:[^\\,=]|\\.)*"
        return (
            re.fullmatch(",".join(f"{re.escape(_escaped(f))}={any_value}" for f in self.fields), name, re.DOTALL)
            is not None
        )


def _escaped(value: Any) -> str:
    return str(value).replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


@dataclass(frozen=True)
class Window:
    """The last so many events, or the events of so long a time."""

    name: str
    events: int | None = entry(whole(1, 100_000_000), None)
    time: float | None = entry(seconds(1.0, " of at least 1s"), None)
    panes: int = entry(whole(1, 100_000), 60)
    by: str = entry(one_of("label", "prediction"), "label")

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        if (self.events is None) == (self.time is None):
            yield "", f"must have either events or time, got {'both' if self.events else 'neither'}"
        if self.time is None:
            yield from ((key, "goes only with time") for key in sorted({"by", "panes"} & given))


@dataclass(frozen=True)
class Detector:
    """Bets against the claims: alarms when they are no longer true."""

    name: str
    arl: float = entry(number("in [1, 1e15]", lambda x: 1.0 <= x <= 1e15), 20_000.0)
    tolerance: float | None = entry(TOLERANCE, None)
    models: tuple[str, ...] = entry(TEXTS, ())

    def watches(self, model: Model) -> bool:
        """Whether it bets against the claims of a model."""
        return not self.models or model.name in self.models

    def tolerated(self, model: Model) -> float:
        """The gap that is no reason for an alarm: its own, else that of the model."""
        return model.tolerance if self.tolerance is None else self.tolerance


OF_METRIC = ("window", "above", "below", "level", "min_count", "for", "clear")


@dataclass(frozen=True)
class Rule:
    """When to say what to whom: see :mod:`streamcal.monitor.rules.rule`."""

    name: str
    metric: str | None = entry(TEXT, None)
    alarm: str | None = entry(TEXT, None)
    window: str | None = entry(TEXT, None)
    models: tuple[str, ...] = entry(TEXTS, ())
    segments: str | tuple[str, ...] = entry(Kind('"all", "each" or a list of names of segments', _segments), WHOLE)
    above: float | None = entry(number("", lambda x: True), None)
    below: float | None = entry(number("", lambda x: True), None)
    level: float = entry(number("in [0, 1)", lambda x: 0.0 <= x < 1.0), 0.95)
    min_count: int = entry(whole(1, 2**53), 100)
    lasting: float = entry(seconds(), 0.0, key="for")
    clear: float | None = entry(number("", lambda x: True), None)
    cooldown: float = entry(seconds(), 0.0)
    quiet: float = entry(seconds(1.0, " of at least 1s"), 7 * 86_400.0)
    versions: tuple[str, ...] = entry(TEXTS, ())
    severity: str = entry(one_of("info", "warning", "critical"), "warning")
    runbook: str | None = entry(link("https://", "http://"), None)
    sinks: tuple[str, ...] = entry(TEXTS, ())

    @property
    def sign(self) -> float:
        """+1 where above the threshold is past it, -1 where below it is."""
        return -1.0 if self.above is None else 1.0

    @property
    def threshold(self) -> float | None:
        """What is compared; None for an alarm."""
        return self.below if self.above is None else self.above

    @property
    def cleared(self) -> float | None:
        """Where a firing rule resolves: ``clear``, else the threshold."""
        return self.threshold if self.clear is None else self.clear

    def settled(self) -> Rule:
        """The same with the value at which it resolves."""
        return replace(self, clear=self.cleared)

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        if (self.metric is None) == (self.alarm is None):
            yield "", f"must have either metric or alarm, got {'both' if self.metric else 'neither'}"
        elif self.metric is None:
            yield from ((key, "goes only with metric, not with alarm") for key in OF_METRIC if key in given)
        else:
            yield from self._of_metric(self.metric, given)

    def _of_metric(self, metric: str, given: frozenset[str]) -> Mistakes:
        if "quiet" in given:
            yield "quiet", "goes only with alarm, not with metric"
        if self.window is None:
            yield "window", "lacks the key window, which a rule with metric needs"
        if metric not in METRICS:
            near = suggestion(metric, METRICS)
            yield "metric", f'must be one of {", ".join(METRICS)}, got "{metric}"{near and "; " + near}'
        elif self.level > 0.0 and metric not in INTERVALS:
            has = ", ".join(sorted(INTERVALS))
            yield "metric", f'= "{metric}" has no interval: write level = 0 to compare its value, or take one of {has}'
        if (self.above is None) == (self.below is None):
            yield "", f"must have either above or below, got {'neither' if self.above is None else 'both'}"
        elif self.clear is not None and self.sign * self.clear > self.sign * (self.threshold or 0.0):
            side = "at most above" if self.sign > 0 else "at least below"
            yield "clear", f"must be {side} = {self.threshold:g}, got {self.clear:g}"


@dataclass(frozen=True)
class Sink:
    """Where alerts go."""

    name: str
    type: str = entry(one_of("stdout", "file", "webhook"))
    path: str | None = entry(TEXT, None)
    url: str | None = entry(link("https://", "http://"), None)
    url_env: str | None = entry(TEXT, None)
    format: str = entry(one_of("alertmanager", "slack", "json"), "json")
    retries: int = entry(whole(0, 100), 8)
    rate: float = entry(POSITIVE, 60.0)
    timeout: float = entry(seconds(0.1, " of at least 0.1s"), 10.0)
    dead_letters: str = entry(TEXT, "undelivered.jsonl")

    @property
    def lettered(self) -> bool:
        """Whether it has dead letters."""
        return self.type == "webhook"

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        of_webhook = ("url", "url_env", "format", "retries", "rate", "timeout", "dead_letters")
        goes = {"path": ("file",), **dict.fromkeys(of_webhook, ("webhook",))}
        yield from only_with(given, "type", self.type, goes)
        yield from needed(given, "type", self.type, {"file": ["path"]})
        if self.type == "webhook" and (self.url is None) == (self.url_env is None):
            yield "", f"must have either url or url_env, got {'both' if self.url else 'neither'}"


@dataclass(frozen=True)
class Source:
    """Where predictions and labels come from."""

    name: str
    type: str = entry(one_of("file", "stdin", "kafka", "redis"))
    path: str | None = entry(TEXT, None)
    brokers: str | None = entry(TEXT, None)
    topic: str | None = entry(TEXT, None)
    url: str | None = entry(link("redis://", "rediss://", "unix://"), None)
    url_env: str | None = entry(TEXT, None)
    stream: str | None = entry(TEXT, None)
    group: str = entry(TEXT, "streamcal")
    options: tuple[tuple[str, Any], ...] = entry(OPTIONS, ())
    dead_letters: str | None = entry(TEXT, None)

    @property
    def lettered(self) -> bool:
        """Whether it has dead letters."""
        return self.dead_letters is not None

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        needs = {"file": ["path"], "kafka": ["brokers", "topic"], "redis": ["stream"]}
        goes: dict[str, tuple[str, ...]] = {key: (kind,) for kind, keys in needs.items() for key in keys}
        goes |= {"group": ("kafka", "redis"), "url": ("redis",), "url_env": ("redis",), "options": ("kafka",)}
        yield from only_with(given, "type", self.type, goes)
        yield from needed(given, "type", self.type, needs)
        if self.type == "redis" and (self.url is None) == (self.url_env is None):
            yield "", f"must have either url or url_env, got {'both' if self.url else 'neither'}"
