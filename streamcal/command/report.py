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

from streamcal.reading import SourceError
from streamcal.reading.cells import NAMED, BadCell, Batch
from streamcal.reading.roles import Job, choose
from streamcal.reading.tables import Source, ahead, open_source
from streamcal.reading.waiting import Patience
from streamcal.reporting import text as show
from streamcal.reporting.limits import Judged, Limit, exit_code
from streamcal.reporting.sums import Keys, Sums, binning_of, by_segment, whole
from streamcal.snapshot import Snapshot
from streamcal.times import utc


@dataclass
class Intake:
    """What came in besides events: rows read, missing and bad cells, the span of time."""

    rows: int = 0
    missing_rows: int = 0
    bad_rows: int = 0
    bad_cells: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    bad: list[BadCell] = field(default_factory=list)
    first: float = math.inf
    last: float = -math.inf

    def take(self, batch: Batch) -> None:
        """Count a batch."""
        self.rows += batch.rows
        self.missing_rows += batch.missing_rows
        self.bad_rows += batch.bad_rows
        self.bad_cells += batch.bad_cells
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
        return {
            "rows": self.rows,
            "missing": {"rows": self.missing_rows, "cells": self.missing},
            "bad": {
                "rows": self.bad_rows,
                "cells": self.bad_cells,
                "first": [{"line": b.line, "column": b.column, "value": b.value} for b in self.bad],
            },
            "span": self.span,
        }


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
        self.limits = [Limit.parse(text) for text in job.fail_if]
        self.binning = binning_of(job.binning, job.bins)
        self.source: Source = open_source(job.path, job.form, follow=follow, patience=patience)
        self.columns, self.notes = choose(job.wanted, self.source.columns)
        self.keys = Keys(self.binning, self.columns.segment is not None)
        self.intake = Intake()

    def sums(self) -> Sums:
        """Sums with nothing in them yet."""
        return Sums(self.columns, self.binning, self.keys, self.job.strict)

    def batches(self, hurry: bool = False) -> Iterator[Batch]:
        """Batches, counted; SourceError at the first bad cell when that was asked for. `hurry` reads one ahead."""
        batches = self.source.batches(self.columns)
        for batch in ahead(batches) if hurry else batches:
            self.intake.take(batch)
            if batch.bad and self.job.strict:
                raise SourceError(f"{self.named(batch.bad[0])} (--strict)")
            yield batch

    def named(self, bad: BadCell) -> str:
        """A bad cell, by its line or, in Parquet, by its row."""
        return str(bad).replace("line", self.source.unit, 1)

    def complain(self) -> int:
        """Exit code 2, and a line on stderr, where a larger share of the rows than `max_bad` is bad; else 0."""
        came = self.intake
        if came.bad_rows <= self.job.max_bad * came.rows:
            return 0
        what = f"{show.count(came.bad_rows)} of {show.count(came.rows)} {self.source.unit}s cannot be read"
        print(f"streamcal: {self.job.path}: {what} (allowed: --max-bad {self.job.max_bad:g})", file=sys.stderr)
        return 2

    def answer(self, sums: Snapshot, anytime: bool = False) -> Answer:
        """Reports on the sums, whole and per segment, and the verdict of each limit; ``anytime``: of all events so far."""
        report = whole(sums, self.keys).report(anytime=anytime)
        parts = by_segment(sums, self.keys, self.job.max_segments) if self.columns.segment else {}
        judged = tuple(limit.judge(report) for limit in self.limits)
        return Answer(report, {name: part.report(anytime=anytime) for name, part in parts.items()}, judged)


@dataclass(frozen=True)
class Answer:
    """What the sums say: `report()` of all events and of each segment, and the limits held against the former."""

    report: dict[str, Any]
    segments: dict[str, dict[str, Any]]
    judged: tuple[Judged, ...]

    def document(self) -> dict[str, Any]:
        """As JSON says it: the report's own names, with the verdict, the limits and the segments added."""
        found = {**_explained(self.report), "verdict": show.verdict(self.report)}
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


def page(reader: Reader, answer: Answer) -> list[str]:
    """Everything that `report` prints, and `watch` at its end."""
    report = answer.report
    parts = [head(reader, report)]
    if report["count"]:
        parts += [show.rows(report), show.diagram(report, show.signs()), show.metrics(report), show.errors(report)]
    if answer.segments:
        parts.append(show.segments(answer.segments))
    parts.append([*map(str, answer.judged), *textwrap.wrap(show.verdict(report), show.WIDTH)])
    return [line for part in parts if part for line in ("", *part)][1:]


def head(reader: Reader, report: show.Report) -> list[str]:
    """Where the events came from, and what did not become one."""
    came, c = reader.intake, reader.columns
    name = "standard input" if reader.job.path == "-" else reader.job.path
    lines = [f"{name}: {show.count(report['count'])} events in {show.count(came.rows)} {reader.source.unit}s"]
    taken = [", ".join(c.p), c.y, *(f"{role} {v}" for role, v in (("weight", c.weight), ("time", c.time)) if v)]
    lines += textwrap.wrap(f"columns: p {taken[0]}; y {'; '.join(taken[1:])}", show.WIDTH, subsequent_indent="  ")
    lines += [f"note: {note}" for note in reader.notes]
    if c.pos_label is not None and report["count"] and not report["mean_y"]:
        lines.append(f"note: no outcome equals --pos-label {c.pos_label}")
    if came.span:
        lines.append(f"time: {came.span[0]} .. {came.span[1]}")
    lines.append(lost(reader, report))
    lines += [f"  bad: {reader.named(bad)}" for bad in came.bad[:5]]
    if came.bad_cells > 5:
        lines.append(f"  and {show.count(came.bad_cells - 5)} more")
    return lines


def lost(reader: Reader, report: show.Report) -> str:
    """Rows that are not events, by the reason."""
    came = reader.intake
    where = ", ".join(f"{name} {show.count(n)}" for name, n in came.missing.items())
    missing = f"{show.count(came.missing_rows)} ({where})" if where else "0"
    late = f"   late {show.count(report['late'])}" if report["late"] else ""
    why = " (p outside [0, 1], or a weight below 0)" if report["refused"] else ""
    refused = show.count(report["refused"]) + why
    clipped = f"   clipped {show.count(report['clipped'])}" if report["clipped"] else ""
    return f"missing {missing}   bad cells {show.count(came.bad_cells)}   refused {refused}{clipped}{late}"


def encode(document: Mapping[str, Any]) -> str:
    """Strict JSON on one line."""
    return msgspec.json.encode(plain(document)).decode()


def document(reader: Reader, answer: Answer) -> dict[str, Any]:
    """The whole answer as JSON says it."""
    c = reader.columns
    columns = {"p": list(c.p), "y": c.y, "weight": c.weight, "time": c.time, "segment": c.segment}
    source = {"file": reader.job.path, "format": reader.source.format, "columns": columns, **reader.intake.document()}
    return {"source": source, **answer.document()}


def run(job: Job, plot: str | None = None) -> int:
    """Read the table, print the answer; the exit code."""
    if plot is not None:
        show.picture_kind(plot)
    reader = Reader(job)
    sums = reader.sums()
    for batch in reader.batches(hurry=True):
        sums.add(batch)
    if not reader.intake.rows:
        raise SourceError("there are columns but no rows")
    answer = reader.answer(sums.snapshot(), anytime=True)
    if job.json:
        print(encode(document(reader, answer)))
    else:
        print("\n".join(page(reader, answer)))
    if plot is not None:
        show.plot(answer.report, plot, job.path)
        print(f"diagram: {plot}", file=sys.stderr)
    return reader.complain() or exit_code(answer.judged)
