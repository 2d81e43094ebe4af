"""`streamcal fit` and `streamcal apply`: a map from a table's probabilities to better ones, kept in a file."""

from __future__ import annotations

import csv
import io
import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from streamcal.binning import Binning
from streamcal.recalibrate import RECALIBRATORS, Recalibrator
from streamcal.serve import show
from streamcal.serve.cells import Floats, Meaning, label, read, read_probabilities
from streamcal.serve.columns import Y_NAMES, SourceError, Wanted, choose, missing_column
from streamcal.serve.formats import Csv
from streamcal.serve.report import Job, Reader, encode, head
from streamcal.serve.sources import sniff
from streamcal.serve.sums import binning_of
from streamcal.state import from_bytes
from streamcal.windows import Cumulative

CHUNK = 20_000  # rows written at a time
COMPARED = ("ece", "k2_debiased", "brier", "log_loss", "pa_ratio", "calibration_slope")
Row = tuple[Any, Mapping[str, Any]]  # as it will be written again, and its cells by column


def fit(job: Job, method: str, options: Mapping[str, Any], out: str) -> int:
    """Fit a map on the whole table, write it, and show what it does to rows that it has not seen."""
    if method not in RECALIBRATORS:
        raise SourceError(f"--method must be one of {', '.join(RECALIBRATORS)}, got {method}")
    reader = Reader(job)
    batches = [batch for batch in reader.batches(hurry=True) if len(batch)]
    if not batches:
        raise SourceError("there are no events to fit on")
    p, y = (np.concatenate([getattr(batch, name) for batch in batches]) for name in ("p", "y"))
    w = None if batches[0].w is None else np.concatenate([batch.w for batch in batches if batch.w is not None])
    make = _maker(method, options)
    fitted = make().fit(p, y, w)
    with replacing(out) as file:
        file.write(fitted.to_bytes())
    before, after = (_tally(reader.binning, v, y, w) for v in (p, _cross_fitted(make, p, y, w)))
    if job.json:
        print(encode({"map": repr(fitted), "file": out, "before": before, "after": after}))
        return 0
    print("\n".join([*head(reader, before), "", *compared(before, after), "", f"{fitted!r} -> {out}"]))
    print("after: each half of the rows by the map of the other half; the file holds the map of all rows")
    return 0


def settings(texts: Sequence[str]) -> dict[str, Any]:
    """n_bins=20 and the like as keyword arguments: JSON where it is JSON, else text."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise SourceError(f"--set takes name=value, got {text}")
        try:
            found[name.strip()] = msgspec.json.decode(value)
        except msgspec.MsgspecError:
            found[name.strip()] = value.strip()
    return found


def _maker(method: str, options: Mapping[str, Any]) -> Any:
    kind = RECALIBRATORS[method]
    unknown = [name for name in options if name not in kind.settings]
    if unknown:
        raise SourceError(f"--set {unknown[0]}: {method} takes {', '.join(kind.settings) or 'no settings'}")

    def make() -> Recalibrator:
        try:
            return kind(**options)
        except (TypeError, ValueError) as error:
            raise SourceError(f"--set: {error}") from None

    return make


def _cross_fitted(make: Any, p: Floats, y: Floats, w: Floats | None) -> Floats:
    """Every event by the map of the other half of the events: what the map is worth on new ones."""
    out = np.empty_like(p)
    halves = [np.arange(p.size) % 2 == side for side in (0, 1)]
    for here, there in (halves, halves[::-1]):
        if here.any() and there.any():
            out[here] = make().fit(p[there], y[there], None if w is None else w[there]).predict(p[here])
        else:
            out[here] = p[here]
    return out


def _tally(binning: Binning, p: Floats, y: Floats, w: Floats | None) -> dict[str, Any]:
    window = Cumulative(binning, loss="log")
    window.update_many(p, y, w)
    return window.snapshot().report()


def compared(before: show.Report, after: show.Report) -> list[str]:
    """The metrics before and after side by side, and both diagrams."""
    body = []
    for name in COMPARED:
        old, new = before["metrics"][name], after["metrics"][name]
        spans = ["{} .. {}".format(*map(show.short, m["interval"])) if "interval" in m else "" for m in (old, new)]
        body.append((name, show.short(old["value"]), spans[0], show.short(new["value"]), spans[1]))
    lines = show.table(("metric", "before", "interval", "after", "interval"), body)
    for title, report in (("before", before), ("after", after)):
        lines += ["", f"{title}: {show.verdict(report)}", *show.diagram(report, show.signs())]
    return lines


def apply(map_path: str, job: Job, out: str | None, column: str) -> int:
    """Write the table with one more column; where there are outcomes, compare before and after."""
    fitted = load(map_path)
    table = Table(job.path, job.form, job.wanted)
    if column in table.columns:
        raise SourceError(f"--column: there is a column {column!r} already")
    old: list[Floats] = []
    new: list[Floats] = []
    ys: list[Floats] = []
    lost = 0
    with table.writer(out, column) as write:
        for rows in table.chunks():
            p, bad = read_probabilities([cells.get(table.p) for _, cells in rows])
            p[bad] = np.nan
            known = ~np.isnan(p)
            values = np.full(p.size, np.nan)
            values[known] = fitted.predict(p[known])
            lost += int((~known).sum())
            write([whole for whole, _ in rows], values)
            if table.y is not None:
                y, _ = read([cells.get(table.y) for _, cells in rows], table.label)
                seen = known & ~np.isnan(y)
                for kept, part in ((old, p), (new, values), (ys, y)):
                    kept.append(part[seen])
    _tell(job, out, lost, *(np.concatenate(part) if part else np.empty(0) for part in (old, new, ys)))
    return 0


def _tell(job: Job, out: str | None, lost: int, p: Floats, recalibrated: Floats, y: Floats) -> None:
    """What was done, on stderr where the table itself went to stdout."""
    binning = binning_of(job.binning, job.bins)
    reports = [_tally(binning, v, y, None) for v in (p, recalibrated)]
    where = sys.stderr if out == "-" else sys.stdout
    if job.json:
        found = dict(zip(("before", "after"), reports, strict=True)) if y.size else {}
        print(encode({"file": out, "without_prediction": lost, "compared": int(y.size), **found}), file=where)
        return
    lines = compared(*reports) if y.size else ["no outcomes: nothing to compare"]
    note = [f"{show.count(lost)} rows have no usable prediction and stay empty"] if lost else []
    print("\n".join([*lines, *note]), file=where)


def load(path: str) -> Recalibrator:
    """The map in a file that `fit` wrote."""
    try:
        fitted = from_bytes(Path(path).read_bytes())
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise SourceError(f"{path}: {error}") from None
    if not isinstance(fitted, Recalibrator):
        raise SourceError(f"{path} holds a {type(fitted).__name__}, not a map of probabilities")
    return fitted


@contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """A file that is there whole or not at all: written beside its place, then moved."""
    beside = f"{path}.part"
    try:
        with open(beside, "wb") as file:
            yield file
        os.replace(beside, path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


class Table:
    """A table that is written again row by row: all its columns, and one more."""

    def __init__(self, path: str, form: str | None, wanted: Wanted) -> None:
        data = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115 - read until the process ends
        first = data.peek(1 << 16) if isinstance(data, io.BufferedReader) else b""
        if not first.strip(b"\xef\xbb\xbf\r\n\t "):
            raise SourceError("empty: there is nothing to read")
        self.form = form or sniff(first)
        if self.form == "parquet":
            raise SourceError("apply reads CSV and JSON Lines; a Parquet file is one call of predict away in Python")
        self.text = io.TextIOWrapper(data, "utf-8-sig", "replace", newline="")
        self.columns = self._begin(first)
        columns, _ = choose(wanted, self.columns)
        self.p = columns.p[0]
        outcome = columns.y if wanted.y is not None or columns.y in (*self.columns, *Y_NAMES[1:]) else None
        for name in filter(None, (self.p, outcome)):
            if self.form == "csv" and name not in self.columns:
                raise missing_column(name, self.columns)
        self.y = outcome
        self.label: Meaning = lambda cell: label(cell, wanted.pos_label)

    def _begin(self, first: bytes) -> list[str]:
        if self.form == "jsonl":
            return list(msgspec.json.decode(first.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0]))
        self.delimiter = Csv(first, arrow=False).delimiter
        self.rows = csv.reader(self.text, delimiter=self.delimiter, skipinitialspace=True)
        self.header = next(filter(None, self.rows))
        return [name.strip() for name in self.header]

    def chunks(self) -> Iterator[list[Row]]:
        """CHUNK rows at a time."""
        rows = self._csv_rows() if self.form == "csv" else self._json_rows()
        while some := list(itertools.islice(rows, CHUNK)):
            yield some

    def _csv_rows(self) -> Iterator[Row]:
        for row in filter(None, self.rows):
            yield row, dict(zip(self.columns, row, strict=False))

    def _json_rows(self) -> Iterator[Row]:
        for number, line in enumerate(self.text, 1):
            if line.strip():
                try:
                    found = msgspec.json.decode(line)
                except msgspec.MsgspecError as error:
                    raise SourceError(f"line {number} is no JSON: {error}") from None
                yield found, found if isinstance(found, dict) else {}

    @contextmanager
    def writer(self, out: str | None, column: str) -> Iterator[Any]:
        """A function that writes rows with their new values, nan as an empty cell or null; nowhere without `out`."""
        if out is None:
            yield lambda rows, values: None
            return
        with open(os.dup(sys.stdout.fileno()), "wb") if out == "-" else replacing(out) as file:
            text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
            write = self._csv_writer(text, column) if self.form == "csv" else _json_writer(text, column)
            yield write
            text.flush()
            text.detach()

    def _csv_writer(self, text: IO[str], column: str) -> Any:
        writer = csv.writer(text, delimiter=self.delimiter, lineterminator="\n")
        writer.writerow([*self.header, column])

        def write(rows: Sequence[list[str]], values: Floats) -> None:
            width = len(self.header)
            writer.writerows(
                [*row[:width], *[""] * (width - len(row)), "" if v != v else repr(v)]
                for row, v in zip(rows, values.tolist(), strict=True)
            )

        return write


def _json_writer(text: IO[str], column: str) -> Any:
    encoder = msgspec.json.Encoder()

    def write(rows: Sequence[Any], values: Floats) -> None:
        for row, v in zip(rows, values.tolist(), strict=True):
            text.write(
                encoder.encode({**row, column: None if v != v else v} if isinstance(row, dict) else row).decode() + "\n"
            )

    return write
