"""A table that is written again with one more column, and a file that is there whole or not at all."""

from __future__ import annotations

import csv
import errno
import io
import itertools
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from streamcal.reading import SourceError
from streamcal.reading.cells import Floats
from streamcal.reading.formats import FORMATS, Csv, JsonArray, Jsonl, Parquet, blocks, damaged
from streamcal.reading.lines import BOM
from streamcal.reading.roles import Wanted, check_present, choose
from streamcal.reading.shown import shown
from streamcal.reading.tables import opened
from streamcal.reading.waiting import stopped_as_errors

PRIVATE = 0o600  # of new files: ids, scores and segments are nobody's business but their owner's
CHUNK = 20_000  # rows written at a time
# how a disk says that it is full, or a limit that it is reached
OF_WRITING = {getattr(errno, name) for name in ("ENOSPC", "EFBIG", "EDQUOT", "EROFS", "EIO") if hasattr(errno, name)}
Chunk = tuple[
    Any, Mapping[str, Sequence[Any]]
]  # rows as they are written again, and the cells of p, y and weight by column
ENDS = {"csv": "csv", "tsv": "csv", "jsonl": "jsonl", "ndjson": "jsonl", "json": "jsonl", "parquet": "parquet"}


@contextmanager
def replacing(path: str, option: str = "--out") -> Iterator[IO[bytes]]:
    """A file that is there whole or not at all: written beside its place, then moved. - is standard output.

    A new one is for its owner alone (0600), one that is there keeps its mode. What is there and is no regular file, such as a
    pipe or /dev/null, is written to and never replaced. A signal that ends the run takes away what is half written.
    """
    if path == "-":
        if getattr(sys.stdout, "name", "") == os.devnull:  # where `open_streams` leads what nobody reads
            raise SourceError(f"{option} -: standard output is closed")
        yield sys.stdout.buffer
        return
    place = os.path.realpath(path)
    direct = os.path.exists(place) and not os.path.isfile(place)
    folder, name = os.path.split(place)
    # nobody can have planted this name; cut, as a name of 255 bytes would leave no room
    beside = place if direct else os.path.join(folder, f"{name[:40]}.{secrets.token_hex(8)}.part")
    file = None
    try:
        with stopped_as_errors():
            file = open(place, "wb") if direct else _new(beside, place)  # noqa: SIM115 - closed below
            with file:
                yield file
            if not direct:
                os.replace(beside, place)
    except OSError as error:
        if error.errno in OF_WRITING or file is None:
            raise SourceError(f"{option} {shown(path)}: {error.strerror or error}") from None
        raise
    finally:
        if not direct:  # after the move nothing is there
            Path(beside).unlink(missing_ok=True)


def _new(path: str, like: str) -> IO[bytes]:
    """A file that was not there, nor a link, with the mode of another one, if that is there."""
    mode = stat.S_IMODE(os.stat(like).st_mode) if os.path.exists(like) else PRIVATE
    return open(new_file(path, mode), "wb")


def new_file(path: str, mode: int = PRIVATE, flags: int = os.O_WRONLY) -> int:
    """The descriptor of a file that was not there, nor a link, with just this mode, whatever the umask."""
    flags |= os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, mode)
    if hasattr(os, "fchmod"):  # before anything is in it
        os.fchmod(descriptor, mode)
    return descriptor


def open_table(path: str, form: str | None, wanted: Wanted, out: str | None = None) -> Table:
    """The table in a file or a pipe, by its first bytes or as `form` says; SourceError if `out` is named otherwise."""
    kind, start, pieces = opened(path, form)
    form = next(name for name, of in FORMATS.items() if of is kind)
    written = "jsonl" if kind is JsonArray else form  # an array is written as lines
    if ENDS.get((out or "").rpartition(".")[2].lower(), written) != written:
        raise SourceError(f"--out {shown(out)}: the table is {written} and stays so; give it a name that says so")
    if kind is Parquet:
        return ParquetTable(wanted, path)
    if form not in TABLES:
        raise SourceError(f"apply writes {', '.join(TABLES)} and parquet, not {form}")
    return TABLES[form](wanted, start, itertools.chain([start], pieces))


class Table:
    """A table that is written again, all of it, with one more column."""

    def __init__(self, wanted: Wanted, columns: list[str]) -> None:
        self.columns = columns
        self.chosen, _ = choose(wanted, columns)
        chosen = self.chosen
        y = (chosen.y,) if wanted.y is not None or chosen.y in columns else ()
        weight = () if wanted.weight is None else (wanted.weight,)
        self.needed = tuple(dict.fromkeys((*chosen.p, *y, *weight)))
        check_present(self.needed, columns)

    def chunks(self) -> Iterator[Chunk]:
        """Some rows at a time, with the cells of each column that is needed."""
        every = self._rows()
        while rows := list(itertools.islice(every, CHUNK)):
            cells = {name: [found.get(name) for _, found in rows] for name in self.needed}
            yield [whole for whole, _ in rows], cells

    def _rows(self) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        """Rows as they will be written again, and their cells by column."""
        raise AssertionError("each format has its rows")  # pragma: no cover

    @contextmanager
    def writer(self, file: IO[bytes], column: str) -> Iterator[Any]:
        """A function that writes rows and their new values, nan as an empty cell or null."""
        file.write(self._begin(column))
        yield lambda rows, values: file.write(self._encode(rows, values, column))

    def _begin(self, column: str) -> bytes:
        return b""

    def _encode(self, rows: Any, values: Floats, column: str) -> bytes:
        raise AssertionError("each format writes in its own way")  # pragma: no cover


class CsvTable(Table):
    """CSV: a row with too few or too many cells gets an empty one, so that it stays as wrong as it was."""

    def __init__(self, wanted: Wanted, start: bytes, pieces: Iterator[bytes]) -> None:
        self.mark = BOM if start.startswith(BOM) else b""
        self.end = "\r\n" if b"\r\n" in start else "\n"
        self.source = Csv(start, arrow=False, errors="surrogateescape")
        self.header, self.delimiter = self.source.header, self.source.records.delimiter
        next(pieces)
        self.blocks = blocks(
            itertools.chain([start[self.source.taken :]], pieces), self.source.cut, self.source.first_line, lambda: True
        )
        super().__init__(wanted, self.source.columns)

    def _rows(self) -> Iterator[tuple[list[str], Mapping[str, str]]]:
        for block, line in self.blocks:
            for at, row, broken in self.source.records.rows(block.decode("utf-8", self.source.errors)):
                if broken:  # what it was meant to be cannot be written again
                    raise SourceError(f"line {line + at}: a quote that is never closed")
                if row and row != self.header:  # two files with the same header, one after the other
                    ragged = {self.chosen.p[0]: f"{len(row)} cells"}  # no number: refused, and never missing
                    yield row, dict(zip(self.columns, row, strict=True)) if len(row) == len(self.header) else ragged

    def _begin(self, column: str) -> bytes:
        return self.mark + self._text([[*self.header, column]])

    def _encode(self, rows: Sequence[list[str]], values: Floats, column: str) -> bytes:
        return self._text([*row, "" if v != v else repr(v)] for row, v in zip(rows, values.tolist(), strict=True))

    def _text(self, rows: Iterable[list[str]]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=self.delimiter, lineterminator=self.end).writerows(rows)
        return text.getvalue().encode("utf-8", "surrogateescape")


class JsonTable(Table):
    """JSON Lines: each line stays as it is, to the byte, with one more key at its end; one that is no object only stays."""

    def __init__(self, wanted: Wanted, start: bytes, pieces: Iterator[bytes]) -> None:
        self.source, self.pieces = Jsonl(start), pieces
        self.new: str | None = None
        super().__init__(wanted, self.source.columns)

    def _rows(self) -> Iterator[tuple[tuple[bytes, bool], Mapping[str, Any]]]:
        for block, first in blocks(self.pieces, self.source.cut, 1, lambda: True):
            for number, line in enumerate(block.split(b"\n"), first):
                if whole := line.removeprefix(BOM).strip():
                    found = self.source.object(whole)
                    if found is not None and self.new in found:
                        raise SourceError(f"--column: line {number} has a key {self.new!r} already")
                    yield (whole, found is not None), {self.chosen.p[0]: "no object"} if found is None else found

    def _begin(self, column: str) -> bytes:
        self.new = column
        return b""

    def _encode(self, rows: Sequence[tuple[bytes, bool]], values: Floats, column: str) -> bytes:
        key = msgspec.json.encode(column)
        written = []
        for (line, is_object), value in zip(rows, values.tolist(), strict=True):
            if is_object:
                start, shown = line[:-1].rstrip(), b"null" if value != value else repr(value).encode()
                line = b"%b%b%b: %b}" % (start, b"" if start == b"{" else b", ", key, shown)
            written.append(line + b"\n")
        return b"".join(written)


TABLES: dict[str, Callable[[Wanted, bytes, Iterator[bytes]], Table]] = {
    "csv": CsvTable,
    "jsonl": JsonTable,
    "json": JsonTable,
}


class ParquetTable(Table):
    """Parquet: the same types and metadata, with one more column of doubles."""

    def __init__(self, wanted: Wanted, path: str) -> None:
        self.source = Parquet(path)
        super().__init__(wanted, self.source.columns)

    def chunks(self) -> Iterator[Chunk]:
        """See Table; the rows are record batches of Arrow."""
        import pyarrow

        try:
            for batch in self.source.tables(CHUNK):
                yield batch, {name: batch.column(name).to_pylist() for name in self.needed}
        except (pyarrow.ArrowException, OSError) as error:
            raise damaged(error) from None

    @contextmanager
    def writer(self, file: IO[bytes], column: str) -> Iterator[Any]:
        """See Table."""
        if file is sys.stdout.buffer:
            raise SourceError("--out -: Parquet goes to a file")
        import pyarrow
        import pyarrow.parquet as pq

        schema = self.source.schema.append(pyarrow.field(column, pyarrow.float64()))
        with pq.ParquetWriter(file, schema) as writer:
            yield lambda rows, values: writer.write_batch(
                pyarrow.record_batch([*rows.columns, pyarrow.array(values, mask=np.isnan(values))], schema=schema)
            )
