"""The whole configuration: read from its file, and what must fit together in it. Its keys: :mod:`streamcal.monitor.config`."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cached_property
from glob import has_magic
from os.path import abspath, normpath
from pathlib import Path as File
from typing import Any

from streamcal.binning import N_BINS
from streamcal.monitor.config.settings import (
    EACH,
    METRICS_OF,
    RESERVED,
    WHOLE,
    DetectorTable,
    FilesTable,
    JoinTable,
    Model,
    Rule,
    Segments,
    WindowTable,
)
from streamcal.monitor.config.toml_tables import (
    FILE,
    SHARE,
    TEXT,
    Finding,
    Findings,
    Path,
    Table,
    check_keys,
    digest,
    dotted,
    entry,
    keys_of,
    lines,
    one_of,
    plain,
    quoted,
    read_table,
    read_value,
    seconds,
    shown,
    suggestion,
)
from streamcal.monitor.detectors import ModelDetector
from streamcal.monitor.sinks.outbox import SinkTable
from streamcal.monitor.sinks.registry import SINKS, ToStdout
from streamcal.monitor.sources.registry import SOURCES, SourceTable

NOT_DECIDING = (
    "max_unread",
    "files",
)  # keys that lead to other alerts about the feed, or files, not to other decisions
LARGEST_SLOT = 64 << 20  # bytes of a window for one segment: 64 GB for a thousand of them
NO_TOLERANCE = "transforms know none, and where negatives are down-sampled a gap is not the gap of the claims"


class ConfigError(ValueError):
    """A configuration that is not right; ``findings`` holds what was found, each with its line."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("\n".join(map(str, findings)))
        self.findings = tuple(findings)


NAMED: Mapping[str, Table] = {
    "models": Model,
    "windows": WindowTable,
    "detectors": DetectorTable,
    "rules": Rule,
    "sinks": SINKS,
    "sources": SOURCES,
}
SINGLE: Mapping[str, type[Any]] = {"join": JoinTable, "segments": Segments, "files": FilesTable}
WEEK, DRIFT = {"week": {"time": "7d", "panes": 28}}, {"drift": {"arl": 1e6}}  # what is watched if nothing is said
STDOUT, JOIN, FILES = ToStdout("stdout"), JoinTable(), FilesTable()


@dataclass(frozen=True)
class Config:
    """A whole configuration, as :func:`load` and :func:`parse` give it; its parts are in
    :mod:`streamcal.monitor.config.settings`."""

    models: tuple[Model, ...]
    windows: tuple[WindowTable, ...] = ()
    detectors: tuple[DetectorTable, ...] = ()
    rules: tuple[Rule, ...] = ()
    sinks: tuple[SinkTable, ...] = (STDOUT,)
    sources: tuple[SourceTable, ...] = ()
    join: JoinTable = JOIN
    segments: Segments | None = None
    files: FilesTable = FILES
    state: str = entry(FILE, "streamcal.db")
    audit: str | None = entry(FILE, None)
    record: str | None = entry(FILE, None)
    every: float = entry(seconds(1.0, " of at least 1s"), 60.0)
    clock: str = entry(one_of(("events", "wall")), "events")
    naive_times: str = entry(one_of(("refuse", "utc")), "refuse")
    max_unread: float = entry(SHARE, 0.01)

    @cached_property
    def hash(self) -> str:
        """:func:`~streamcal.monitor.config.settings.digest` of what decides: the same for two files that lead to the
        same decisions.

        So where alerts go, where events come from and what the files are called is not in it.
        """
        rules = tuple(replace(rule, sinks=(), runbook=None, severity="warning") for rule in self.rules)
        told = replace(self, rules=rules, sinks=(), sources=(), state="", audit=None, record=None)
        return digest({key: value for key, value in plain(told).items() if key not in NOT_DECIDING})

    def of(self, rule: Rule) -> tuple[Model, ...]:
        """The models that a rule is about."""
        return tuple(m for m in self.models if not rule.models or m.name in rule.models)


def load(path: str | os.PathLike[str]) -> Config:
    """The configuration in a TOML file. ConfigError holds its mistakes, OSError says why the file cannot be read.

    The file is UTF-8, with or without a byte order mark.
    """
    raw = File(path).read_bytes()
    try:
        return parse(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([Finding(line, f"the file must be UTF-8, got byte 0x{raw[error.start]:02x}")]) from None


def check(path: str | os.PathLike[str]) -> list[str]:
    """What is wrong with the file, a line of text per mistake in the order of the file; empty when it is right.

    Each begins with its line, as in ``line 7: unknown key rules.gap.abov; did you mean "above"? Allowed: ...``, where it has
    one. Between the keys of a table, and from a rule to what it names, is looked once each of its keys is right: correcting
    one mistake may show another. A file that cannot be read is one mistake. Nothing that the file names is opened.

    >>> check("no such file.toml")
    ['no such file.toml cannot be read: No such file or directory']
    """
    try:
        load(path)
    except ConfigError as error:
        return [str(finding) for finding in error.findings]
    except OSError as error:
        return [f"{os.fspath(path)} cannot be read: {error.strerror or error}"]
    return []


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
    if document.get("windows", {}) == {}:
        document["windows"] = WEEK
    if document.get("rules", {}) == {} == document.get("detectors", {}):
        segments = EACH if document.get("segments") else WHOLE
        document |= {"detectors": DRIFT, "rules": {"drift": {"alarm": "drift", "segments": segments}}}
    parts: dict[str, Any] = {kind: _named(kind, document.get(kind, {}), findings) for kind in NAMED}
    parts["sinks"] = parts["sinks"] or (STDOUT,)
    parts |= {key: read_table(cls, document[key], (key,), findings) for key, cls in SINGLE.items() if key in document}
    if not document.get("models"):
        findings.add(("models",), "at least one model is needed: a table such as [models.churn]")
    given = {key: value for key, value in document.items() if key in keys_of(Config)}
    config: Config | None = read_table(Config, given, (), findings, **parts)
    for rule in parts["rules"]:
        _check_rule(rule, document, parts, findings)
    if not findings.found:
        _check_models(parts["models"], parts["detectors"], parts["windows"], findings)
    _check_fields(parts, findings)
    _check_files(config or Config((), sinks=parts["sinks"], sources=parts["sources"]), findings)
    if findings.found or config is None:
        raise ConfigError(sorted(findings.found, key=lambda finding: finding.line))
    return config


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
    """Whether what a rule names is there, and fits: the metric to the claims of the models, and the window large enough."""
    path: Path = ("rules", rule.name)
    watched = {d.name: d.models for d in parts["detectors"]}.get(rule.alarm or "")
    if watched and rule.models and not set(watched) & set(rule.models):
        text = f"{dotted((*path, 'alarm'))}: detector {rule.alarm} watches only {quoted(watched)}"
        findings.add((*path, "alarm"), text)
    asked = [("window", "windows", rule.window), ("alarm", "detectors", rule.alarm)]
    asked += [(kind, kind, name) for kind in ("models", "sinks") for name in getattr(rule, kind)]
    for key, kind, name in asked:
        there = document.get(kind, {})
        if name is not None and isinstance(there, dict) and name not in there:
            say = f"; {near}" if (near := suggestion(name, there)) else ""
            findings.about((*path, key), f'names "{name}", but the {kind} are {quoted(there)}{say}')
    segments, at = parts.get("segments"), (*path, "segments")
    if rule.segments != WHOLE and "segments" not in document:
        findings.about(at, 'needs a table [segments] with fields = ["..."]; without it there is only "all"')
    elif segments is not None and isinstance(rule.segments, tuple):
        for name in rule.segments:
            if name not in (WHOLE, segments.other) and not segments.may_be(name):
                like = segments.named(("...",) * len(segments.fields))
                say = f'a segment looks like "{like}", or is "{WHOLE}" or "{segments.other}"'
                findings.about(at, f'names "{name}", but {say}')
    claims = METRICS_OF.get(rule.metric or "")
    for model in parts["models"]:
        if claims and model.claim not in claims and (not rule.models or model.name in rule.models):
            text = f'is about claims that are {quoted(claims)}, but model "{model.name}" has claim = "{model.claim}"'
            say = "; say which models this rule is about" if not rule.models else ""
            findings.about((*path, "metric"), f'= "{rule.metric}" {text}{say}')
    for window in parts["windows"]:
        if window.name == rule.window and window.events is not None and window.events < rule.min_count:
            held = f'{rule.min_count} is never reached: window "{window.name}" holds {window.events} events'
            findings.about((*path, "min_count"), f"= {held}")


def _check_fields(parts: Mapping[str, Any], findings: Findings) -> None:
    """Whether the keys that sources rename are those of an event."""
    more = [*(segments.fields if (segments := parts.get("segments")) else ())]
    more += [name for model in parts["models"] for name in (model.weight, model.raw) if name]
    for source in parts["sources"]:
        for ours in {ours for ours, _ in source.fields} - {*RESERVED, *more}:
            near = suggestion(ours, (*RESERVED, *more))
            text = f"must be a key of an event, one of {', '.join((*RESERVED, *more))}{near and '; ' + near}"
            findings.about(("sources", source.name, "fields", ours), text)


def _check_files(config: Config, findings: Findings) -> None:
    """No file is written, or written and read, by two."""
    seen: dict[str, tuple[Path, bool]] = {}
    tables: dict[Path, Sequence[Any]] = {(): (config,), ("sinks",): config.sinks, ("sources",): config.sources}
    for of, parts in tables.items():
        files: list[tuple[bool, Path, str | None]] = [
            (file == "shared", (*of, part.name, key) if of else (key,), getattr(part, field.name))
            for part in parts
            for key, field in keys_of(type(part)).items()
            if (file := field.metadata["kind"].file)
        ]
        for shared, path, name in sorted(files, key=lambda file: file[0]):
            if name is None or name == ":memory:":
                continue
            other, also = seen.setdefault(normpath(name), (path, shared))
            if other != path and not (shared and also and other[0] == path[0]):
                findings.about(path, f'must not be the file of {dotted(other)}, got "{name}" for both')
    for source in config.sources:
        pattern = getattr(source, "path", "")
        for name, (path, _) in seen.items() if has_magic(pattern) else ():
            if name != normpath(pattern) and fnmatch(abspath(name), abspath(pattern)):
                findings.about(path, f'must not be a file that sources.{source.name}.path matches, got "{name}"')


def _check_models(models: Sequence[Model], detectors: Any, windows: Any, findings: Findings) -> None:
    """Whether detectors know what the models claim, and the memory that windows take."""
    for model in models:
        for detector in filter(lambda one: one.watches(model), detectors):
            path: Path = ("detectors", detector.name)
            try:
                if detector.tolerance and (model.claim == "pit" or model.negative_sampling_rate < 1.0):
                    findings.about((*path, "tolerance"), f"does not go with model {model.name}: {NO_TOLERANCE}")
                else:
                    ModelDetector(model, detector, segmented=False)
            except ValueError as error:
                findings.about(path, f"does not fit model {model.name}: {error}")
        for window in windows:
            if (size := bytes_of(model, window)) > LARGEST_SLOT:
                text = f"takes {size / 2**20:,.0f} MB for each segment of model {model.name}"
                most = f"at most {LARGEST_SLOT >> 20} MB make sense: take fewer panes, events or bins"
                findings.about(("windows", window.name), f"{text}, {most}")


def bytes_of(model: Model, window: WindowTable) -> int:
    """How much memory a window takes for each segment of a model, and for each version as a whole.

    >>> churn = Model("churn").settled()
    >>> bytes_of(churn, WindowTable("week", time=604800.0, panes=28)), bytes_of(churn, WindowTable("last", events=1000))
    (28672, 35072)
    """
    claim = model.claims()
    bins = 64 * (int(model.window_binning().plan(claim.domain)[N_BINS]) + 1)
    return claim.width * (bins * window.panes if window.events is None else 3 * bins + 32 * window.events)
