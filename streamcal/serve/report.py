"""From batches to an answer: the sums of a table, whole and per segment, and the limits they must not cross."""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import msgspec
import numpy as np

from streamcal.binning import Binning, EqualWidth, LogOdds, UniformMass
from streamcal.claims import Mean, TopLabel
from streamcal.serve import show
from streamcal.serve.cells import NAMED, Bad, Batch, Codes
from streamcal.serve.columns import Columns, SourceError, Wanted, choose
from streamcal.serve.sources import Patience, Source, ahead, open_source
from streamcal.snapshot import METRICS, Snapshot
from streamcal.windows import Cumulative

BINNINGS: dict[str, type[EqualWidth | UniformMass | LogOdds]] = {
    "equal-width": EqualWidth,
    "uniform-mass": UniformMass,
    "log-odds": LogOdds,
}
HELD = 1000  # segments that are told apart while a table streams by
BUDGET = 64 << 20  # bytes for the sums of all segments: fine grids hold fewer of them
OTHER, UNNAMED = "other", "(empty)"


def binning_of(name: str, bins: int) -> Binning:
    """A binning by its name at the command line."""
    if name not in BINNINGS:
        raise SourceError(f"--binning must be one of {', '.join(BINNINGS)}, got {name}")
    try:
        return BINNINGS[name](bins)
    except ValueError as error:
        raise SourceError(f"--bins: {error}") from None


@dataclass
class Intake:
    """What came in besides events: rows read, missing and bad cells, the span of time."""

    rows: int = 0
    missing_rows: int = 0
    bad_rows: int = 0
    bad_cells: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    bad: list[Bad] = field(default_factory=list)
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
        return (iso(self.first), iso(self.last)) if self.first <= self.last else None

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


def iso(t: float) -> str:
    """Seconds since epoch as ISO-8601 in UTC; as a number where no calendar reaches."""
    try:
        return datetime.fromtimestamp(t, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{t:g}"


class Keys:
    """Names of segments -> keys of a window, first come first served; those beyond the last place share key 0."""

    def __init__(self, binning: Binning, segmented: bool) -> None:
        rows = len(binning.fine_edges())
        self.places = min(HELD, max(BUDGET // (rows * 64), 2)) if segmented else 0
        self.names: dict[str, int] = {}

    @property
    def keys(self) -> int:
        """How many keys a window needs; key 0 is the one that is shared."""
        return self.places + 1

    def of(self, batch: Batch) -> Codes | None:
        """The key of each event; None where there are no segments."""
        if batch.segment is None:
            return None
        table = [self._key(name) for name in batch.segments]
        return np.array(table, np.int64)[batch.segment]

    def _key(self, name: str) -> int:
        if name not in self.names and len(self.names) < self.places:
            self.names[name] = len(self.names) + 1
        return self.names.get(name, 0)


class Sums:
    """The sums of a table or of one window of it, per segment."""

    def __init__(self, columns: Columns, binning: Binning, keys: Keys, strict: bool = False) -> None:
        self.keys = keys
        claim = TopLabel() if columns.classes else Mean()
        loss = None if columns.classes else "log"
        self.window = Cumulative(binning, keys=keys.keys, claim=claim, loss=loss, strict=strict)

    def add(self, batch: Batch) -> None:
        """Add the events of a batch."""
        if not len(batch):
            return
        try:
            self.window.update_many(batch.p, batch.y, batch.w, key=self.keys.of(batch))
        except ValueError as error:  # only with strict
            raise SourceError(str(error)) from None

    def snapshot(self) -> Snapshot:
        """A frozen copy of the sums of all segments."""
        return self.window.snapshot()


def whole(sums: Snapshot, keys: Keys) -> Snapshot:
    """All segments together."""
    return reduce(operator.add, (sums[k] for k in range(len(keys.names) + 1)))


def by_segment(sums: Snapshot, keys: Keys, most: int) -> dict[str, Snapshot]:
    """The `most` segments with most events, largest first, and all others together as "other"."""
    counts = np.asarray(sums.count).sum(-1).reshape(-1) + np.asarray(sums.refused).reshape(-1)
    ranked = sorted(keys.names, key=lambda name: -counts[keys.names[name]])
    seen = [name for name in ranked if counts[keys.names[name]] > 0]
    found = {name or UNNAMED: sums[keys.names[name]] for name in seen[:most]}
    rest = [sums[keys.names[name]] for name in seen[most:]] + ([sums[0]] if counts[0] > 0 else [])
    if rest:
        found[_free(OTHER, found)] = reduce(operator.add, rest)
    return found


def _free(name: str, taken: Mapping[str, object]) -> str:
    """A name that no segment has."""
    return _free(f"({name})", taken) if name in taken else name


@dataclass(frozen=True)
class Limit:
    """A metric and the value it must not cross, such as `ece > 0.05`."""

    text: str
    metric: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        """SourceError when it is not METRIC SIGN NUMBER."""
        found = re.fullmatch(r"\s*(\w+)\s*(>=|<=|>|<)\s*(\S+)\s*", text)
        try:
            bound = float(found[3]) if found else math.nan
        except ValueError:
            bound = math.nan
        if found is None or math.isnan(bound):
            raise SourceError(f'--fail-if must look like "ece > 0.05" (signs > >= < <=), got "{text}"')
        if found[1] not in METRICS:
            raise SourceError(f"--fail-if: no metric {found[1]!r}; the metrics are: {', '.join(METRICS)}")
        return cls(text.strip(), found[1], found[2], bound)

    def judge(self, report: Mapping[str, Any]) -> Judged:
        """The verdict on a report. A metric without a value is neither crossed nor fine: it has a reason."""
        found = report["metrics"][self.metric]
        if math.isnan(found["value"]):  # infinity is a value: it can cross a limit
            reason = f"{self.metric} has no value: {found.get('reason', 'no events')}"
            return Judged(self.text, found["value"], None, reason)
        return Judged(self.text, found["value"], bool(SIGNS[self.sign](found["value"], self.bound)))


@dataclass(frozen=True)
class Judged:
    """A limit, the value it was held against, and whether it was crossed (None: there was no value)."""

    limit: str
    value: float
    crossed: bool | None
    reason: str | None = None


def exit_code(judged: Iterable[Judged]) -> int:
    """1 when a limit was crossed; else 2 when one could not be judged (silence would look like success); else 0."""
    found = [j.crossed for j in judged]
    return 1 if True in found else 2 if None in found else 0


SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def plain(value: Any) -> Any:
    """What strict JSON can hold: nan and infinity become null, numpy's numbers become Python's."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Job:
    """What a command was asked to do with a table."""

    path: str
    form: str | None
    wanted: Wanted
    binning: str = "equal-width"
    bins: int = 15
    max_segments: int = 20
    strict: bool = False
    json: bool = False
    fail_if: tuple[str, ...] = ()


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

    def named(self, bad: Bad) -> str:
        """A bad cell, by its line or, in Parquet, by its row."""
        return str(bad).replace("line", self.source.unit, 1)

    def answer(self, sums: Snapshot) -> Answer:
        """Reports on the sums, whole and per segment, and the verdict of each limit."""
        report = whole(sums, self.keys).report()
        parts = by_segment(sums, self.keys, self.job.max_segments) if self.columns.segment else {}
        judged = tuple(limit.judge(report) for limit in self.limits)
        return Answer(report, {name: part.report() for name, part in parts.items()}, judged)


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
    answer = reader.answer(sums.snapshot())
    if job.json:
        print(encode(document(reader, answer)))
    else:
        print("\n".join(show.page(reader, answer)))
    if plot is not None:
        show.plot(answer.report, plot, job.path)
        print(f"diagram: {plot}", file=sys.stderr)
    return exit_code(answer.judged)
