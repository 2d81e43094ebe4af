"""`streamcal fit` and `streamcal apply`: a map from a table's probabilities to better ones, kept in a file."""

from __future__ import annotations

import csv
import io
import itertools
import os
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from streamcal.batch import CalibrationWarning
from streamcal.binning import Binning
from streamcal.recalibrate import RECALIBRATORS, Recalibrator
from streamcal.serve import show
from streamcal.serve.cells import Floats, label, read, read_probabilities
from streamcal.serve.columns import SourceError, Wanted, check_present, choose
from streamcal.serve.formats import LOOK, Csv, Jsonl
from streamcal.serve.report import Answer, Job, Reader, encode, head
from streamcal.serve.sources import FORMATS, Parquet, sniff
from streamcal.serve.sums import binning_of
from streamcal.state import from_bytes
from streamcal.windows import Cumulative

CHUNK = 20_000  # rows written at a time
COMPARED = ("ece", "k2_debiased", "brier", "log_loss", "pa_ratio", "calibration_slope")
CROSSED = "each half of the rows, drawn with seed 0, by the map of the other half; the file holds the map of all rows"
BOM = b"\xef\xbb\xbf"
Chunk = tuple[Any, Sequence[Any], Sequence[Any] | None]  # rows as they are written again, predictions, outcomes


def fit(job: Job, method: str, options: Mapping[str, Any], out: str) -> int:
    """Fit a map on the whole table, write it, and show what it does to rows that it has not seen; the exit code."""
    make = _maker(method, options)
    reader = Reader(job)
    batches = [batch for batch in reader.batches(hurry=True) if len(batch)]
    if not batches:
        raise SourceError("there are no events to fit on")
    if code := reader.complain():
        return code
    p, y = (np.concatenate([getattr(batch, name) for batch in batches]) for name in ("p", "y"))
    w = None if batches[0].w is None else np.concatenate([batch.w for batch in batches if batch.w is not None])
    fitted, notes = _fitted(make, p, y, w)
    windows = [_window(reader.binning) for _ in range(2)]
    for window, values in zip(windows, (p, _cross_fitted(make, p, y, w)), strict=True):
        window.update_many(values, y, w)
    before, after = (window.snapshot().report() for window in windows)
    with replacing(out) as file:
        file.write(fitted.to_bytes())
    where = sys.stderr if out == "-" else sys.stdout
    if job.json:
        print(encode({"map": repr(fitted), "file": out, "notes": notes, **both(before, after)}), file=where)
        return 0
    last = [
        *textwrap.wrap(f"after: {CROSSED}", show.WIDTH),
        *(f"note: {note}" for note in notes),
        f"{fitted!r} -> {out}",
    ]
    print("\n".join([*head(reader, before), "", *compared(before, after), "", *last]), file=where)
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
    if method not in RECALIBRATORS:
        raise SourceError(f"--method must be one of {', '.join(RECALIBRATORS)}, got {method}")
    kind = RECALIBRATORS[method]
    unknown = [name for name in options if name not in kind.settings]
    if unknown:
        raise SourceError(f"--set {unknown[0]}: {method} takes {', '.join(kind.settings) or 'no settings'}")

    def make() -> Recalibrator:
        try:
            return kind(**options)
        except (TypeError, ValueError) as error:
            raise SourceError(f"--set: {error}") from None

    make()  # a bad setting is said before the table is read
    return make


def _fitted(make: Any, p: Floats, y: Floats, w: Floats | None) -> tuple[Recalibrator, list[str]]:
    """A fitted map and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        try:
            fitted = make().fit(p, y, w)
        except ValueError as error:
            raise SourceError(f"no map from {show.count(p.size)} events: {error}") from None
    return fitted, list(dict.fromkeys(str(warning.message) for warning in caught))


def _cross_fitted(make: Any, p: Floats, y: Floats, w: Floats | None) -> Floats:
    """Every event by the map of the other half of the events: what the map is worth on new ones.

    The halves are drawn, with seed 0: every other row would be one side only where a table lists both sides of each game.
    """
    out = p.copy()
    side = np.random.default_rng(0).permutation(p.size) % 2
    for here, there in ((side == 0, side == 1), (side == 1, side == 0)):
        if there.any() and (w is None or w[there].any()):
            out[here] = _fitted(make, p[there], y[there], None if w is None else w[there])[0].predict(p[here])
    return out


def _window(binning: Binning) -> Cumulative:
    return Cumulative(binning, loss="log")


def compared(before: show.Report, after: show.Report) -> list[str]:
    """The metrics before and after side by side, and both diagrams."""
    body = []
    for name in COMPARED:
        old, new = before["metrics"][name], after["metrics"][name]
        spans = ["{} .. {}".format(*map(show.short, m["interval"])) if "interval" in m else "" for m in (old, new)]
        body.append((name, show.short(old["value"]), spans[0], show.short(new["value"]), spans[1]))
    lines = show.table(("metric", "before", "interval", "after", "interval"), body)
    for title, report in (("before", before), ("after", after)):
        said = textwrap.wrap(f"{title}: {show.verdict(report)}", show.WIDTH)
        lines += ["", *said, *show.diagram(report, show.signs())]
    return lines


def both(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Both reports as JSON says them, with their verdicts."""
    return {"before": Answer(before, {}, ()).document(), "after": Answer(after, {}, ()).document()}


def apply(fitted: Recalibrator, job: Job, out: str | None, column: str) -> int:
    """Write the table with one more column; where there are outcomes, compare before and after. Returns 0."""
    binning = binning_of(job.binning, job.bins)
    table = open_table(job)
    if column in table.columns:
        raise SourceError(f"--column: there is a column {column!r} already")
    windows = _window(binning), _window(binning)
    meaning = lru_cache(4096, typed=True)(partial(label, pos_label=job.wanted.pos_label))
    lost = 0
    with nullcontext() if out is None else replacing(out) as file, table.writer(file, column) as write:
        for rows, p_cells, y_cells in table.chunks():
            p, bad = read_probabilities(p_cells)
            p[bad] = np.nan
            known = ~np.isnan(p)
            values = np.full(p.size, np.nan)
            values[known] = fitted.predict(p[known])
            lost += int((~known).sum())
            write(rows, values)
            if y_cells is not None:
                y, _ = read(y_cells, meaning)
                seen = known & ~np.isnan(y)
                for window, part in zip(windows, (p, values), strict=True):
                    window.update_many(part[seen], y[seen])
    _tell(job, out, lost, table.y, [window.snapshot().report() for window in windows])
    return 0


def _tell(job: Job, out: str | None, lost: int, y: str | None, reports: list[dict[str, Any]]) -> None:
    """What was done, on stderr where the table itself went to stdout."""
    where = sys.stderr if out == "-" else sys.stdout
    n = int(reports[0]["count"])
    if job.json:
        found = both(*reports) if n else {}
        print(encode({"file": out, "without_prediction": lost, "compared": n, **found}), file=where)
        return
    none = "no column of outcomes" if y is None else f"no usable outcome in column {y}, see --pos-label"
    lines = compared(*reports) if n else [f"{none}: nothing to compare"]
    note = [f"note: {show.count(lost)} rows have no usable prediction and stay empty"] if lost else []
    print("\n".join([*lines, *note]), file=where)


def load(path: str) -> Recalibrator:
    """The map in a file that `fit` wrote; SourceError for anything else."""
    try:
        fitted = from_bytes(Path(path).read_bytes())
    except ValueError as error:
        raise SourceError(str(error)) from None
    if not isinstance(fitted, Recalibrator):
        raise SourceError(f"holds a {type(fitted).__name__}, not a map of probabilities")
    try:
        fitted.predict([])
    except ValueError as error:
        raise SourceError(str(error)) from None
    return fitted


@contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """A file that is there whole or not at all: written beside its place, then moved. - is standard output.

    What is there and is no regular file, such as a pipe or /dev/null, is written to and never replaced.
    """
    if path == "-":
        yield sys.stdout.buffer
        return
    place = os.path.realpath(path)
    direct = os.path.exists(place) and not os.path.isfile(place)
    beside = place if direct else f"{place}.{os.getpid()}.part"
    try:
        file = open(beside, "wb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise SourceError(f"--out {path}: {error.strerror or error}") from None
    try:
        with file:
            yield file
        if not direct:
            os.replace(beside, place)
    except BaseException:
        if not direct:
            Path(beside).unlink(missing_ok=True)
        raise


def open_table(job: Job) -> Table:
    """The table in a file or a pipe, by its first bytes or as `job.form` says."""
    if job.form is not None and job.form not in FORMATS:
        raise SourceError(f"--format must be one of {', '.join(FORMATS)}, got {job.form}")
    data = sys.stdin.buffer if job.path == "-" else open(job.path, "rb")  # noqa: SIM115 - read until the process ends
    first = list(itertools.islice(data, 1 if job.form == "parquet" else LOOK))
    start = b"".join(first)
    if not start.strip(b"\xef\xbb\xbf\r\n\t "):
        raise SourceError("empty: there is nothing to read")
    form = job.form or sniff(start)
    if form == "parquet":
        if job.path == "-" or not data.seekable():
            raise SourceError("Parquet cannot be read from a pipe; give the file")
        return ParquetTable(job)
    if b"\0" in start:
        raise SourceError("not a text file; give CSV, JSON Lines or Parquet")
    lines = itertools.chain([first[0].removeprefix(BOM)], first[1:], data)
    return (CsvTable if form == "csv" else JsonTable)(job.wanted, start, lines)


class Table:
    """A table that is written again, all of it, with one more column."""

    def __init__(self, wanted: Wanted, columns: list[str]) -> None:
        self.columns = columns
        chosen, _ = choose(wanted, columns)
        self.p = chosen.p[0]
        self.y = chosen.y if wanted.y is not None or chosen.y in columns else None
        check_present([name for name in (self.p, self.y) if name is not None], columns)

    def chunks(self) -> Iterator[Chunk]:
        """Some rows at a time, with the cells of the prediction and of the outcome (None without such a column)."""
        every = self._rows()
        while rows := list(itertools.islice(every, CHUNK)):
            p = [cells.get(self.p) for _, cells in rows]
            yield [whole for whole, _ in rows], p, None if self.y is None else [cells.get(self.y) for _, cells in rows]

    def _rows(self) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        """Rows as they will be written again, and their cells by column."""
        raise AssertionError("each format has its rows")  # pragma: no cover

    @contextmanager
    def writer(self, file: IO[bytes] | None, column: str) -> Iterator[Any]:
        """A function of rows and their new values, nan as an empty cell or null; it does nothing without a file."""
        if file is None:
            yield lambda rows, values: None
            return
        file.write(self._begin(column))
        yield lambda rows, values: file.write(self._encode(rows, values, column))

    def _begin(self, column: str) -> bytes:
        return b""

    def _encode(self, rows: Any, values: Floats, column: str) -> bytes:
        raise AssertionError("each format writes in its own way")  # pragma: no cover


class CsvTable(Table):
    """CSV: a row with too few or too many cells gets an empty one, so that it stays as wrong as it was."""

    def __init__(self, wanted: Wanted, start: bytes, lines: Iterator[bytes]) -> None:
        self.mark = BOM if start.startswith(BOM) else b""
        self.end = "\r\n" if b"\r\n" in start else "\n"
        self.delimiter = Csv(start, arrow=False).delimiter
        blocks = iter(lambda: b"".join(itertools.islice(lines, LOOK)), b"")
        text = itertools.chain.from_iterable(
            io.StringIO(block.decode("utf-8", "surrogateescape"), newline="") for block in blocks
        )
        self.reader = csv.reader(text, delimiter=self.delimiter, skipinitialspace=True)
        self.header = next(filter(None, self.reader))
        super().__init__(wanted, [name.strip() for name in self.header])

    def _rows(self) -> Iterator[tuple[list[str], Mapping[str, str]]]:
        try:
            for row in filter(None, self.reader):
                if row != self.header:  # two files with the same header, one after the other
                    yield row, dict(zip(self.columns, row, strict=True)) if len(row) == len(self.header) else {}
        except csv.Error as error:
            raise SourceError(f"line {self.reader.line_num}: {error}") from None

    def _begin(self, column: str) -> bytes:
        return self.mark + self._text([[*self.header, column]])

    def _encode(self, rows: Sequence[list[str]], values: Floats, column: str) -> bytes:
        return self._text([*row, "" if v != v else repr(v)] for row, v in zip(rows, values.tolist(), strict=True))

    def _text(self, rows: Iterable[list[str]]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=self.delimiter, lineterminator=self.end).writerows(rows)
        return text.getvalue().encode("utf-8", "surrogateescape")


class JsonTable(Table):
    """JSON Lines: each line stays as it is, to the byte, with one more key at its end."""

    def __init__(self, wanted: Wanted, start: bytes, lines: Iterator[bytes]) -> None:
        self.lines = lines
        self.new: str | None = None
        super().__init__(wanted, Jsonl(start).columns)

    def _rows(self) -> Iterator[tuple[bytes, Mapping[str, Any]]]:
        decode = msgspec.json.Decoder().decode
        for number, line in enumerate(self.lines, 1):
            whole = line.strip()
            if whole:
                try:
                    found = decode(whole)
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    raise SourceError(f"line {number} is no JSON: {error}") from None
                if not isinstance(found, dict):
                    raise SourceError(f"line {number} is no JSON object")
                if self.new in found:
                    raise SourceError(f"--column: line {number} has a key {self.new!r} already")
                yield whole, found

    def _begin(self, column: str) -> bytes:
        self.new = column
        return b""

    def _encode(self, rows: Sequence[bytes], values: Floats, column: str) -> bytes:
        key = msgspec.json.encode(column)
        ends = (b"null" if v != v else repr(v).encode() for v in values.tolist())
        return b"".join(_with(row[:-1].rstrip(), key, end) for row, end in zip(rows, ends, strict=True))


def _with(start: bytes, key: bytes, value: bytes) -> bytes:
    return b"%b%b%b: %b}\n" % (start, b"" if start == b"{" else b", ", key, value)


class ParquetTable(Table):
    """Parquet: the same types and metadata, with one more column of doubles."""

    def __init__(self, job: Job) -> None:
        self.source = Parquet(job.path, CHUNK)
        super().__init__(job.wanted, self.source.columns)

    def chunks(self) -> Iterator[Chunk]:
        """See Table; the rows are record batches of Arrow."""
        import pyarrow

        batches = self.source.file.iter_batches(CHUNK)
        while True:
            try:
                batch = next(batches, None)
            except (pyarrow.ArrowException, OSError) as error:
                raise SourceError(f"the file is damaged: {str(error).partition(chr(10))[0]}") from None
            if batch is None:
                return
            y = None if self.y is None else batch.column(self.y).to_pylist()
            yield batch, batch.column(self.p).to_pylist(), y

    @contextmanager
    def writer(self, file: IO[bytes] | None, column: str) -> Iterator[Any]:
        """See Table."""
        if file is None:
            yield lambda rows, values: None
            return
        if file is sys.stdout.buffer:
            raise SourceError("--out -: Parquet goes to a file")
        import pyarrow
        import pyarrow.parquet as pq

        schema = self.source.file.schema_arrow.append(pyarrow.field(column, pyarrow.float64()))
        with pq.ParquetWriter(file, schema) as writer:
            yield lambda rows, values: writer.write_batch(
                pyarrow.record_batch([*rows.columns, pyarrow.array(values, mask=np.isnan(values))], schema=schema)
            )
