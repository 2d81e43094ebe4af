"""`streamcal report`: a table in, an answer out, as text for eyes and as JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from streamcal.command.ending import complaint, say
from streamcal.command.options import Job
from streamcal.reading import SourceError
from streamcal.reading.cells import EMPTY, NAMED, BadCell, EventBatch
from streamcal.reading.outcomes import ClassLabels
from streamcal.reading.roles import choose
from streamcal.reading.shown import in_json, listed, shown
from streamcal.reading.tables import ahead, open_source
from streamcal.reading.waiting import Patience
from streamcal.reporting import figure, text
from streamcal.reporting.sums import Sums, binning_of, by_segment, segment_names, whole
from streamcal.reporting.thresholds import Judged, Limit, exit_code
from streamcal.reporting.verdict import Report, count, verdict
from streamcal.snapshot import Snapshot
from streamcal.times import utc

UNSETTLED = (
    2_000_000  # events that wait for a label to tell whether labels are names or indices: more would fill the memory
)
DAYS = 3_650, 100_000  # numbers that are days since 1980 .. 2243, and hours of 1970 in seconds


@dataclass
class ReadCounts:
    """What came in besides events: rows read, missing and bad cells, the span of time."""

    rows: int = 0
    missing_rows: int = 0
    bad_rows: int = 0
    bad_cells: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    bad: list[BadCell] = field(default_factory=list)
    first: float = math.inf
    last: float = -math.inf

    def take(self, batch: EventBatch) -> None:
        """Count a batch."""
        for what in ("rows", "missing_rows", "bad_rows", "bad_cells"):
            setattr(self, what, getattr(self, what) + getattr(batch, what))
        for name, n in batch.missing.items():
            self.missing[name] = self.missing.get(name, 0) + n
        self.bad.extend(batch.bad[: NAMED - len(self.bad)])
        if batch.t is not None and len(batch):
            self.first = min(self.first, float(batch.t.min()))
            self.last = max(self.last, float(batch.t.max()))

    @property
    def span(self) -> tuple[str, str] | None:
        """First and last event time as ISO-8601 in UTC; None without times."""
        return (utc(self.first), utc(self.last)) if self.first <= self.last else None

    def document(self) -> dict[str, Any]:
        """As JSON says it."""
        first = [vars(bad) for bad in self.bad]
        bad = {"rows": self.bad_rows, "cells": self.bad_cells, "first": first}
        missing = {"rows": self.missing_rows, "cells": self.missing}
        return {"rows": self.rows, "missing": missing, "bad": bad, "span": self.span}


def plain(value: Any) -> Any:
    """What strict JSON can hold: nan and infinity become null, numpy's numbers become Python's."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, str):  # a name of a file or column may hold bytes that are no text
        return value.encode("utf-8", "backslashreplace").decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Reader:
    """A table on its way through: opens it, gives columns their roles, counts what comes."""

    def __init__(self, job: Job, *, follow: bool = False, patience: Patience | None = None) -> None:
        self.job = job
        self.limits = [Limit.parse(limit) for limit in job.fail_if or ()]
        self.binning = binning_of(job.binning, job.bins)
        self.source = open_source(job.file, job.form, follow=follow, patience=patience)
        self.columns, self.notes = choose(job.wanted, self.source.columns)
        self.reading = self.source.meaning(self.columns)
        self.names = segment_names(self.binning, self.columns.segment is not None)
        self.counts = ReadCounts()
        self.lost = np.zeros((self.names.cap + 1, 2), np.int64)  # rows missing and bad of each segment

    def sums(self) -> Sums:
        """Sums with nothing in them yet."""
        return Sums(self.columns, self.binning, self.names, self.job.strict)

    def batches(self, hurry: bool = False) -> Iterator[EventBatch]:
        """Batches, counted; SourceError at the first bad cell when that was asked for. `hurry` reads one ahead.

        Those whose labels could be names of classes or indices wait until a label tells, or the end comes.
        """
        batches = self.source.batches(self.columns)
        held: list[EventBatch] = []
        for batch in ahead(batches) if hurry else batches:
            self.counts.take(batch)
            for name, rows in batch.lost.items():
                self.lost[self.names.add(name)] += rows
            if batch.bad and self.job.strict:
                raise SourceError(f"{self.named(batch.bad[0])} (--strict)")
            if batch.provisional:
                held.append(batch)
                if sum(map(len, held)) > UNSETTLED:
                    raise SourceError(self.reading.labels.problem() or "labels are names or indices: see --labels")
                yield EMPTY
                continue
            yield from self._settled(held)
            held = []
            yield batch
        yield from self._settled(held)

    def _settled(self, held: list[EventBatch]) -> list[EventBatch]:
        labels = self.reading.labels if held else None
        if isinstance(labels, ClassLabels) and labels.by_index:
            return [replace(batch, y=labels.indices(batch.y)) for batch in held]
        return held

    def named(self, bad: BadCell) -> str:
        """A bad cell, by its line or, in Parquet, by its row."""
        return str(bad).replace("line", self.source.unit, 1)

    def refusal(self, late: int = 0) -> str | None:
        """Why there is no verdict on what came so far, how often, and the line to type; None where there may be one.

        `late` rows count as refused. What is missing does not count, however much it is.
        """
        came = self.counts
        known = came.rows - came.missing_rows
        reasons = self.reading.problems(self.job.max_bad, known)
        if too_many := self.too_many(came.bad_rows + late, known):
            first = "" if reasons or not came.bad else f", the first in {self.named(came.bad[0])}"
            reasons.append(f"{too_many}{first}")
        if not reasons and known == came.bad_rows:
            reasons.append(self.no_events())
        return "; ".join(reasons) or None

    def no_events(self) -> str:
        """What is missing or was refused in a table without events, by the roles of its columns."""
        c, lost = self.columns, self.counts.missing
        roles = {"outcomes": (c.y,), "predictions": c.p, "weights": (c.weight,), "times": (c.time,)}
        found = {role: sum(lost.get(name or "", 0) for name in names) for role, names in roles.items()}
        said = [f"{count(n)} {role if n > 1 else role[:-1]} missing" for role, n in found.items() if n]
        if n := self.counts.bad_rows:
            said.append(f"{count(n)} {self.source.unit}{'s' if n > 1 else ''} refused")
        return f"no events: {', '.join(said) or f'no {self.source.unit}s'}"

    def too_many(self, refused: int, known: int) -> str | None:
        """How many rows were refused, where that is a larger share of those that are not missing than `max_bad`."""
        if refused <= self.job.max_bad * known:
            return None
        return (
            f"{count(refused)} of {count(known)} {self.source.unit}s refused (allowed: --max-bad {self.job.max_bad:g})"
        )

    def complain(self, refusal: str | None) -> int:
        """Exit code 2, and a line on stderr, where there is no verdict; else 0."""
        if refusal is None:
            return 0
        name = "standard input" if self.job.file == "-" else shown(self.job.file)
        return complaint(f"{name}: cannot be judged: {refusal}")

    def answer(self, sums: Snapshot, anytime: bool = False, refusal: str | None = None) -> Reports:
        """Reports on the sums, whole and per segment, and the verdict of each limit; ``anytime``: of all events so far."""
        report = whole(sums, self.names).report(anytime=anytime)
        if refusal is not None:
            return Reports(
                report, {}, tuple(Judged(limit.text, math.nan, None, "see above") for limit in self.limits), refusal
            )
        lost = self.lost if anytime else np.zeros_like(self.lost)  # of a window nobody knows
        parts = by_segment(sums, self.names, self.job.max_segments, lost) if self.columns.segment else {}
        judged = tuple(limit.judge(report) for limit in self.limits)
        segments = {name: {**part.report(anytime=anytime), **missed} for name, (part, missed) in parts.items()}
        return Reports(report, segments, judged)

    def said(self) -> list[str]:
        """Notes on what was read, and how."""
        reading, came = self.reading, self.counts
        note = reading.labels.note()
        notes = [*self.notes, *([] if note is None else [note])]
        if reading.clock.form == "s" and DAYS[0] <= came.first <= came.last < DAYS[1]:
            notes.append(
                f"times lie between {came.first:g} and {came.last:g}: read as seconds; days are --time-format d"
            )
        return notes


@dataclass(frozen=True)
class Reports:
    """What the sums say: `report()` of all events and of each segment, and the limits held against the former."""

    report: dict[str, Any]
    segments: dict[str, dict[str, Any]]
    judged: tuple[Judged, ...]
    refusal: str | None = None

    @property
    def verdict(self) -> str:
        """The verdict on all events, or why there is none."""
        return verdict(self.report) if self.refusal is None else f"cannot be judged: {self.refusal}"

    def document(self) -> dict[str, Any]:
        """As JSON says it: the report's own names, with the verdict, the limits and the segments added."""
        if self.refusal is not None:
            return {"count": self.report["count"], "verdict": self.verdict, "refusal": self.refusal}
        found = {**_explained(self.report), "verdict": self.verdict}
        if self.judged:
            found["limits"] = [vars(j) for j in self.judged]
        if self.segments:
            found["segments"] = [{"segment": name, **_explained(part)} for name, part in self.segments.items()]
        return found


def _explained(report: dict[str, Any]) -> dict[str, Any]:
    """The report with a reason beside infinite values too, which JSON cannot hold."""
    infinite = {
        name: {**found, "reason": "infinite"} for name, found in report["metrics"].items() if math.isinf(found["value"])
    }
    return {**report, "metrics": {**report["metrics"], **infinite}}


def page(reader: Reader, answer: Reports) -> list[str]:
    """Everything that `report` prints, and `watch` at its end."""
    report = answer.report
    parts = [head(reader, report)]
    if report["count"] and answer.refusal is None:
        parts += [text.bins(report), text.diagram(report, text.signs()), text.metrics(report), text.errors(report)]
    if answer.segments:
        parts.append(text.segments(answer.segments))
    parts.append([*map(str, answer.judged), *text.wrapped(answer.verdict)])
    return [line for part in parts if part for line in ("", *part)][1:]


def head(reader: Reader, report: Report) -> list[str]:
    """Where the events came from, and what did not become one."""
    came, c = reader.counts, reader.columns
    name = "standard input" if reader.job.file == "-" else shown(reader.job.file)
    lines = [f"{name}: {count(report['count'])} events in {count(came.rows)} {reader.source.unit}s"]
    rest = (f"{role} {shown(v)}" for role, v in (("weight", c.weight), ("time", c.time)) if v)
    taken = [listed(c.p), shown(c.y), *rest]
    lines += text.wrapped(f"columns: p {taken[0]}; y {'; '.join(taken[1:])}", "  ")
    lines += [f"note: {note}" for note in reader.said()]
    if came.span:
        lines.append(f"time: {came.span[0]} .. {came.span[1]}")
    lines.append(lost(reader, report))
    lines += [f"  bad: {reader.named(bad)}" for bad in came.bad[:5]]
    if came.bad_cells > 5:
        lines.append(f"  and {count(came.bad_cells - 5)} more")
    return lines


def lost(reader: Reader, report: Report) -> str:
    """Rows that are not events, by the reason."""
    came = reader.counts
    where = ", ".join(f"{shown(name)} {count(n)}" for name, n in came.missing.items())
    missing = f"{count(came.missing_rows)} ({where})" if where else "0"
    late = f"   late {count(report['late'])}" if report["late"] else ""
    why = " (p outside [0, 1], or a weight below 0)" if report["refused"] else ""
    refused = count(report["refused"]) + why
    clipped = f"   clipped {count(report['clipped'])}" if report["clipped"] else ""
    return f"missing {missing}   bad cells {count(came.bad_cells)}   refused {refused}{clipped}{late}"


def encode(document: Mapping[str, Any]) -> str:
    """Strict JSON on one line."""
    return in_json(msgspec.json.encode(plain(document)).decode())


def document(reader: Reader, answer: Reports) -> dict[str, Any]:
    """The whole answer as JSON says it."""
    c = reader.columns
    columns = {"p": list(c.p), "y": c.y, "weight": c.weight, "time": c.time, "segment": c.segment}
    source = {"file": reader.job.file, "format": reader.source.name, "columns": columns, **reader.counts.document()}
    source["notes"] = reader.said()
    return {"source": source, **answer.document()}


def run(job: Job, plot: str | None = None) -> int:
    """Read the table, print the answer; the exit code."""
    if plot is not None:
        figure.picture_kind(plot)
    reader = Reader(job)
    sums = reader.sums()
    for batch in reader.batches(hurry=True):
        sums.add(batch)
    if not reader.counts.rows:
        raise SourceError("there are columns but no rows")
    refusal = reader.refusal()
    answer = reader.answer(sums.snapshot(), anytime=True, refusal=refusal)
    if job.json:
        say(encode(document(reader, answer)))
    else:
        say(*page(reader, answer))
    if plot is not None and refusal is None:
        figure.plot(answer.report, plot, job.file)
        say(f"diagram: {shown(plot)}", error=True)
    return reader.complain(refusal) or exit_code(answer.judged)
