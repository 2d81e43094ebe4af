"""`streamcal report`: a table in, an answer out, as text for eyes and as JSON for programs."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from streamcal.command.options import Job
from streamcal.reading import SourceError
from streamcal.reading.cells import NAMED, BadCell, EventBatch
from streamcal.reading.roles import choose
from streamcal.reading.tables import ahead, open_source
from streamcal.reading.waiting import Patience
from streamcal.reporting import figure, text
from streamcal.reporting.sums import Sums, binning_of, by_segment, segment_names, whole
from streamcal.reporting.thresholds import Judged, Limit, exit_code
from streamcal.reporting.verdict import Report, count, verdict
from streamcal.snapshot import Snapshot
from streamcal.times import utc


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
        self.names = segment_names(self.binning, self.columns.segment is not None)
        self.counts = ReadCounts()

    def sums(self) -> Sums:
        """Sums with nothing in them yet."""
        return Sums(self.columns, self.binning, self.names, self.job.strict)

    def batches(self, hurry: bool = False) -> Iterator[EventBatch]:
        """Batches, counted; SourceError at the first bad cell when that was asked for. `hurry` reads one ahead."""
        batches = self.source.batches(self.columns)
        for batch in ahead(batches) if hurry else batches:
            self.counts.take(batch)
            if batch.bad and self.job.strict:
                raise SourceError(f"{self.named(batch.bad[0])} (--strict)")
            yield batch

    def named(self, bad: BadCell) -> str:
        """A bad cell, by its line or, in Parquet, by its row."""
        return str(bad).replace("line", self.source.unit, 1)

    def complain(self) -> int:
        """Exit code 2, and a line on stderr, where a larger share of the rows than `max_bad` is bad; else 0."""
        came = self.counts
        if came.bad_rows <= self.job.max_bad * came.rows:
            return 0
        what = f"{count(came.bad_rows)} of {count(came.rows)} {self.source.unit}s cannot be read"
        print(f"streamcal: {self.job.file}: {what} (allowed: --max-bad {self.job.max_bad:g})", file=sys.stderr)
        return 2

    def answer(self, sums: Snapshot, anytime: bool = False) -> Reports:
        """Reports on the sums, whole and per segment, and the verdict of each limit; ``anytime``: of all events so far."""
        report = whole(sums, self.names).report(anytime=anytime)
        parts = by_segment(sums, self.names, self.job.max_segments) if self.columns.segment else {}
        judged = tuple(limit.judge(report) for limit in self.limits)
        return Reports(report, {name: part.report(anytime=anytime) for name, part in parts.items()}, judged)


@dataclass(frozen=True)
class Reports:
    """What the sums say: `report()` of all events and of each segment, and the limits held against the former."""

    report: dict[str, Any]
    segments: dict[str, dict[str, Any]]
    judged: tuple[Judged, ...]

    def document(self) -> dict[str, Any]:
        """As JSON says it: the report's own names, with the verdict, the limits and the segments added."""
        found = {**_explained(self.report), "verdict": verdict(self.report)}
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
    if report["count"]:
        parts += [text.bins(report), text.diagram(report, text.signs()), text.metrics(report), text.errors(report)]
    if answer.segments:
        parts.append(text.segments(answer.segments))
    parts.append([*map(str, answer.judged), *textwrap.wrap(verdict(report), text.WIDTH)])
    return [line for part in parts if part for line in ("", *part)][1:]


def head(reader: Reader, report: Report) -> list[str]:
    """Where the events came from, and what did not become one."""
    came, c = reader.counts, reader.columns
    name = "standard input" if reader.job.file == "-" else reader.job.file
    lines = [f"{name}: {count(report['count'])} events in {count(came.rows)} {reader.source.unit}s"]
    taken = [", ".join(c.p), c.y, *(f"{role} {v}" for role, v in (("weight", c.weight), ("time", c.time)) if v)]
    lines += textwrap.wrap(f"columns: p {taken[0]}; y {'; '.join(taken[1:])}", text.WIDTH, subsequent_indent="  ")
    lines += [f"note: {note}" for note in reader.notes]
    if c.pos_label is not None and report["count"] and not report["mean_y"]:
        lines.append(f"note: no outcome equals --pos-label {c.pos_label}")
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
    where = ", ".join(f"{name} {count(n)}" for name, n in came.missing.items())
    missing = f"{count(came.missing_rows)} ({where})" if where else "0"
    late = f"   late {count(report['late'])}" if report["late"] else ""
    why = " (p outside [0, 1], or a weight below 0)" if report["refused"] else ""
    refused = count(report["refused"]) + why
    clipped = f"   clipped {count(report['clipped'])}" if report["clipped"] else ""
    return f"missing {missing}   bad cells {count(came.bad_cells)}   refused {refused}{clipped}{late}"


def encode(document: Mapping[str, Any]) -> str:
    """Strict JSON on one line."""
    return msgspec.json.encode(plain(document)).decode()


def document(reader: Reader, answer: Reports) -> dict[str, Any]:
    """The whole answer as JSON says it."""
    c = reader.columns
    columns = {"p": list(c.p), "y": c.y, "weight": c.weight, "time": c.time, "segment": c.segment}
    source = {"file": reader.job.file, "format": reader.source.name, "columns": columns, **reader.counts.document()}
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
    answer = reader.answer(sums.snapshot(), anytime=True)
    if job.json:
        print(encode(document(reader, answer)))
    else:
        print("\n".join(page(reader, answer)))
    if plot is not None:
        figure.plot(answer.report, plot, job.file)
        print(f"diagram: {plot}", file=sys.stderr)
    return reader.complain() or exit_code(answer.judged)
