"""The configuration of a monitor: one TOML file, checked as a whole before anything runs. All that can be said in it::

    state = "streamcal.db"          # what survives a restart: one SQLite file; ":memory:" survives nothing
    audit = "audit.jsonl"           # a line for each evaluation of a rule, appended; leave it out for none
    record = "taken.jsonl"          # every object that was taken, in order, appended: what a replay needs; leave it out for none
    every = "1m"                    # the rules are evaluated so often
    clock = "wall"                  # live: the wall clock moves time on, too; "events" (if nothing is said): only they do
    naive_times = "refuse"          # a time without a zone is refused, or taken as "utc"

    [models.churn]                  # one table per model; a name with other than letters, digits, - and _ in quotes
    versions = ["7", "8"]           # side by side on the same labels; leave it out for any that comes
    claim = "mean"                  # the prediction is a probability ("mean"), "quantile", "interval", "top_label",
                                    # "marginal" (class probabilities) or "pit"
    outcome = "binary"              # or "unit": outcomes are numbers in [0, 1]                       (mean)
    pos_label = "yes"               # the label that counts as 1; else labels are 0 and 1             (mean)
    weight = "amount"               # field of an event that holds its weight; else each counts 1
    raw = "raw"                     # field with the score before recalibration: a version "7/raw" beside each version "7"
    tolerance = 0.01                # a gap that is no reason for an alarm, in [0, 1)
    binning = "equal-width"         # 1 kB for each segment (and pane of a window); "log-odds" for rare events, of the same size;
    bins = 15                       # or "uniform-mass" (254 kB; of quantiles and intervals 410 kB)

    [models.clicks]
    negative_sampling_rate = 0.1    # share of the negatives that is in the stream: each counts 10    (mean)

    [models.demand]
    claim = "quantile"
    edges = [10.0, 100.0]           # rows by size of what is forecast (the width of an interval); else one row for all
    levels = [0.1, 0.5, 0.9]        # of the quantiles, or for "pit" where the transforms are held against the uniform

    [models.demand-range]
    claim = "interval"
    lower = 0.05                    # the interval runs from this quantile
    upper = 0.95                    # to this one

    [models.animals]
    claim = "top_label"
    classes = ["cat", "dog"]        # in the order of their probabilities (top_label, marginal)

    [join]
    ttl = "90d"                     # a prediction that has no label after so long has expired
    maturity = "1d"                 # a prediction counts once it is so old: its label could have arrived
    hold = "1d"                     # a label waits so long for its prediction
    ahead = "1h"                    # with clock = "wall": an event that is further ahead of it is refused

    [segments]
    fields = ["country", "tier"]    # a segment is a combination of values: "country=at,tier=gold"
    cap = 1000                      # so many are told apart in each model; the rest share one
    other = "other"                 # its name

    [windows.recent]
    events = 10_000                 # the last so many events of each segment

    [windows.week]
    time = "7d"                     # the events of so long a time, up to now
    panes = 60                      # by steps of a 60th of it
    by = "label"                    # at the time of its label, once it counts; or at that of its "prediction"

    [detectors.drift]               # bets against the claims of each model and version, and names the segments
    arl = 20_000                    # events to a false alarm, on average or more
    tolerance = 0.02                # else that of the model; not for "pit", nor where negatives are down-sampled
    models = ["churn", "demand"]    # else all

    [rules.miscalibrated]           # a metric in a window that is past a threshold
    metric = "k1"
    window = "recent"
    models = ["churn"]              # else all
    versions = ["7", "8"]           # else all, those of raw scores ("7/raw") too
    segments = "each"               # "all": the stream as a whole; "each" segment by itself; or a list of names
    above = 0.05                    # or below
    level = 0.99                    # the whole interval at this level is past it (for many segments 0.999); 0: the value is
    min_count = 500                 # with fewer events it is not judged
    for = "10m"                     # at every evaluation for so long
    clear = 0.04                    # resolved when the value is back here; else at the threshold
    cooldown = "6h"                 # after that, silent for so long
    severity = "critical"           # or "warning", "info"
    runbook = "https://wiki.example/calibration"
    sinks = ["ops"]                 # else all

    [rules.drift]                   # an alarm of a detector
    alarm = "drift"
    segments = "each"
    quiet = "7d"                    # resolved when no other came for so long

    [sinks.log]
    type = "stdout"                 # JSON, a line per alert

    [sinks.alerts]
    type = "file"
    path = "alerts.jsonl"

    [sinks.ops]
    type = "webhook"
    url = "https://alerts.example/api/v2/alerts"
    format = "alertmanager"         # or "slack", "json"
    retries = 8                     # with growing pauses; then the alert goes to the file of dead letters
    rate = 30                       # requests per minute at most
    timeout = "10s"
    dead_letters = "undelivered.jsonl"  # this is where they go if nothing is said

    [sinks.chat]
    type = "webhook"
    url_env = "CHAT_WEBHOOK"        # the environment variable that holds a secret url
    format = "slack"

    [sources.events]
    type = "file"
    path = "events.jsonl"           # followed as it grows and rotates
    dead_letters = "unreadable.jsonl"   # messages that can not be read

    [sources.pipe]
    type = "stdin"

    [sources.bus]
    type = "kafka"
    brokers = "localhost:9092"
    topic = "scores"
    group = "streamcal"

    [sources.bus.options]           # of the client (librdkafka); "env:NAME" is the value of an environment variable
    "security.protocol" = "SASL_SSL"
    "sasl.password" = "env:KAFKA_PASSWORD"

    [sources.queue]
    type = "redis"                  # the field "data" of each entry, or all fields as an object
    url = "redis://localhost:6379/0"
    stream = "scores"
    [sources.more]
    type = "redis"
    url_env = "REDIS_URL"           # the environment variable that holds a url with a password
    stream = "more"

Needed is one model. Without windows there is one of a week; without rules and detectors a detector with arl = 1e6, and a rule
about its alarms in each segment. Spans are text with a unit; paths are as seen from where the monitor runs. A rule holds for
each version of its models, and each of its segments, one at a time: see :mod:`streamcal.monitor.rules.rule` for when it fires.
It keeps its state under its name, also when its keys change.

>>> config = parse(EXAMPLE)
>>> [rule.name for rule in config.rules], config.join.ttl, config.windows[0].events
(['miscalibrated', 'drift'], 7776000.0, 10000)
>>> parse("[models.churn]\\n[windows.day]\\nevents = 0\\n")  # doctest: +IGNORE_EXCEPTION_DETAIL
Traceback (most recent call last):
ConfigError: line 3: windows.day.events must be a whole number in 1..100000000, got 0 (whole number)
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import normpath
from pathlib import Path as File
from textwrap import dedent
from typing import Any

from streamcal.monitor.config.fit import misfits
from streamcal.monitor.config.lines import Path, lines
from streamcal.monitor.config.settings import (
    EACH,
    METRICS_OF,
    WHOLE,
    Detector,
    Join,
    Model,
    Rule,
    Segments,
    Sink,
    Source,
    Window,
)
from streamcal.monitor.config.toml_tables import (
    TEXT,
    Finding,
    Findings,
    check_keys,
    digest,
    dotted,
    entry,
    keys_of,
    one_of,
    quoted,
    read_table,
    read_value,
    seconds,
    shown,
    suggestion,
)

EXAMPLE = dedent((__doc__ or "").partition("::\n")[2].partition("\nNeeded")[0])


class ConfigError(ValueError):
    """A configuration that is not right; ``findings`` holds what was found, each with its line."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("\n".join(map(str, findings)))
        self.findings = tuple(findings)


NAMED: Mapping[str, type[Any]] = {
    "models": Model,
    "windows": Window,
    "detectors": Detector,
    "rules": Rule,
    "sinks": Sink,
    "sources": Source,
}
SINGLE: Mapping[str, type[Any]] = {"join": Join, "segments": Segments}
STDOUT, USUAL = Sink("stdout", type="stdout"), Join()
WEEK, DRIFT = Window("week", time=7 * 86_400.0, panes=28), Detector("drift", arl=1e6)


@dataclass(frozen=True)
class Config:
    """A whole configuration, as :func:`load` and :func:`parse` give it; its parts are in
    :mod:`streamcal.monitor.config.settings`."""

    models: tuple[Model, ...]
    windows: tuple[Window, ...] = ()
    detectors: tuple[Detector, ...] = ()
    rules: tuple[Rule, ...] = ()
    sinks: tuple[Sink, ...] = (STDOUT,)
    sources: tuple[Source, ...] = ()
    join: Join = USUAL
    segments: Segments | None = None
    state: str = entry(TEXT, "streamcal.db")
    audit: str | None = entry(TEXT, None)
    record: str | None = entry(TEXT, None)
    every: float = entry(seconds(1.0, " of at least 1s"), 60.0)
    clock: str = entry(one_of("events", "wall"), "events")
    naive_times: str = entry(one_of("refuse", "utc"), "refuse")

    @property
    def hash(self) -> str:
        """:func:`~streamcal.monitor.config.settings.digest` of what decides: the same for two files that lead to the
        same decisions.

        So where alerts go, where events come from and what the files are called is not in it.
        """
        rules = tuple(replace(rule, sinks=(), runbook=None, severity="warning") for rule in self.rules)
        return digest(replace(self, rules=rules, sinks=(), sources=(), state="", audit=None, record=None))

    def of(self, rule: Rule) -> tuple[Model, ...]:
        """The models that a rule is about."""
        return tuple(m for m in self.models if not rule.models or m.name in rule.models)


def load(path: str | os.PathLike[str]) -> Config:
    """The configuration in a TOML file. ConfigError holds its mistakes, OSError says why the file cannot be read."""
    return parse(text_of(File(path).read_bytes()))


def text_of(raw: bytes) -> str:
    """The text of a file in UTF-8, with or without a byte order mark; ConfigError names the first line that is not."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([Finding(line, f"the file must be UTF-8, got byte 0x{raw[error.start]:02x}")]) from None


def parse(text: str) -> Config:
    """The configuration in the text of a TOML file. ConfigError holds its mistakes, each with its line."""
    try:
        return _read(tomllib.loads(text), Findings(lines(text)))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_syntax(str(error), text)]) from None
    except RecursionError:
        raise ConfigError([Finding(1, "the file must not be nested so deeply")]) from None


def from_document(document: Mapping[str, Any]) -> Config:
    """The configuration in a dict as tomllib gives it, for those who write theirs in Python. ConfigError without lines.

    >>> from_document({"models": {"churn": {"claim": "mean"}}}).models[0].name
    'churn'
    """
    return _read(dict(document), Findings({}))


def _syntax(message: str, text: str) -> Finding:
    """What tomllib complains about: its line is in the text of the error."""
    found = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    line = int(found[1]) if found and found[1] else text.count("\n") + 1
    column = f" (column {found[2]})" if found and found[2] else ""
    return Finding(line, f"this is not TOML: {message[: found.start()] if found else message}{column}")


def _read(document: dict[str, Any], findings: Findings) -> Config:
    check_keys(document, [*keys_of(Config), *SINGLE, *NAMED], (), findings)
    parts: dict[str, Any] = {kind: _named(kind, document.get(kind, {}), findings) for kind in NAMED}
    parts |= {key: read_table(cls, document[key], (key,), findings) for key, cls in SINGLE.items() if key in document}
    if not document.get("models"):
        findings.add(("models",), "at least one model is needed: a table such as [models.churn]")
    for kind in ("sinks", *_usual(document)):
        if not document.get(kind):
            del parts[kind]
    given = {key: value for key, value in document.items() if key in keys_of(Config)}
    config = read_table(Config, given, (), findings, **parts, **_usual(document))
    for rule in parts.get("rules", ()):
        _check_rule(rule, document, parts, findings)
    if config is not None and getattr(parts.get("join"), "ahead", None) is not None and config.clock != "wall":
        findings.add(("join", "ahead"), 'join.ahead goes only with clock = "wall"')
    if not findings.found:
        for path, text in misfits(parts["models"], parts.get("detectors", (DRIFT,)), parts.get("windows", (WEEK,))):
            findings.add(path, text)
    _check_files(config or Config((), **{k: parts[k] for k in ("sinks", "sources") if k in parts}), findings)
    if findings.found or config is None:
        raise ConfigError(findings.sorted())
    return config


def _usual(document: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """What is watched if nothing is said: a week, and an alarm of a detector, in each segment."""
    usual: dict[str, tuple[Any, ...]] = {}
    if not document.get("windows"):
        usual["windows"] = (WEEK,)
    if not document.get("rules") and not document.get("detectors"):
        usual["detectors"] = (DRIFT,)
        usual["rules"] = (Rule(DRIFT.name, alarm=DRIFT.name, segments=EACH if document.get("segments") else WHOLE),)
    return usual


def _named(kind: str, tables: Any, findings: Findings) -> tuple[Any, ...]:
    """The tables of one kind, those that are right."""
    if not isinstance(tables, dict):
        findings.add((kind,), f"{kind} must be tables with names, such as [{kind}.NAME], got {shown(tables)}")
        return ()
    made = [read_table(NAMED[kind], table, (kind, name), findings, name=name) for name, table in tables.items()]
    for name in tables:
        read_value(TEXT, name, (kind, name), findings)
    return tuple(part for part in made if part is not None)


def _check_rule(rule: Rule, document: Mapping[str, Any], parts: Mapping[str, Any], findings: Findings) -> None:
    """Whether what a rule names is there, and fits."""
    path: Path = ("rules", rule.name)
    there_are = {**document, "windows": document.get("windows") or {WEEK.name: {}}}
    asked = [("window", "windows", rule.window), ("alarm", "detectors", rule.alarm)]
    watched = {d.name: d.models for d in parts.get("detectors", ())}.get(rule.alarm or "")
    if watched and rule.models and not set(watched) & set(rule.models):
        findings.add(
            (*path, "alarm"), f"{dotted((*path, 'alarm'))}: detector {rule.alarm} watches only {quoted(watched)}"
        )
    asked += [("models", "models", name) for name in rule.models] + [("sinks", "sinks", name) for name in rule.sinks]
    for key, kind, name in asked:
        there = there_are.get(kind, {})
        if name is not None and isinstance(there, dict) and name not in there:
            near = suggestion(name, there)
            say = f"; {near}" if near else ""
            text = f'{dotted((*path, key))} names "{name}", but the {kind} are {quoted(there)}{say}'
            findings.add((*path, key), text)
    if rule.segments != WHOLE:
        _check_segments(rule, document, parts, findings)
    _check_fit(rule, parts, findings)


def _check_segments(rule: Rule, document: Mapping[str, Any], parts: Mapping[str, Any], findings: Findings) -> None:
    path, segments = ("rules", rule.name, "segments"), parts.get("segments")
    if "segments" not in document:
        findings.add(
            path, f'{dotted(path)} needs a table [segments] with fields = ["..."]; without it there is only "all"'
        )
    elif segments is not None and isinstance(rule.segments, tuple):
        for name in rule.segments:
            if name not in (WHOLE, segments.other) and not segments.may_be(name):
                like = segments.named(("...",) * len(segments.fields))
                say = f'a segment looks like "{like}", or is "{WHOLE}" or "{segments.other}"'
                findings.add(path, f'{dotted(path)} names "{name}", but {say}')


def _check_fit(rule: Rule, parts: Mapping[str, Any], findings: Findings) -> None:
    """Whether the metric is about the claims of the models, and its window large enough."""
    path: Path = ("rules", rule.name)
    claims = METRICS_OF.get(rule.metric or "")
    for model in parts["models"]:
        if claims and model.claim not in claims and (not rule.models or model.name in rule.models):
            text = f'is about claims that are {quoted(claims)}, but model "{model.name}" has claim = "{model.claim}"'
            say = "; say which models this rule is about" if not rule.models else ""
            findings.add((*path, "metric"), f'{dotted((*path, "metric"))} = "{rule.metric}" {text}{say}')
    for window in parts.get("windows", (WEEK,)):
        if window.name == rule.window and window.events is not None and window.events < rule.min_count:
            held = f'{rule.min_count} is never reached: window "{window.name}" holds {window.events} events'
            findings.add((*path, "min_count"), f"{dotted((*path, 'min_count'))} = {held}")


def _check_files(config: Config, findings: Findings) -> None:
    """No file is written, or written and read, by two."""
    files: list[tuple[Path, str | None, bool]] = [
        ((key,), getattr(config, key), False) for key in ("state", "audit", "record")
    ]
    for kind, parts in (("sinks", config.sinks), ("sources", config.sources)):
        files += [((kind, part.name, "path"), part.path, False) for part in parts]
        files += [((kind, part.name, "dead_letters"), part.dead_letters, True) for part in parts if part.lettered]
    seen: dict[str, tuple[Path, bool]] = {}
    for path, name, shared in files:
        if name is None or name == ":memory:":
            continue
        other, also = seen.setdefault(normpath(name), (path, shared))
        if other != path and not (shared and also and other[0] == path[0]):
            findings.add(path, f'{dotted(path)} must not be the file of {dotted(other)}, got "{name}" for both')
