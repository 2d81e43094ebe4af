"""The store in one SQLite file, which survives kill -9.

Why the file is fast with random ids: no row is ever looked up or changed in it. The join holds what is open in memory
too; the file has one row for each prediction and for each label, clustered by the moment at which they are forgotten.
So rows are appended at a few places, and forgotten as whole ranges. A table with an index on the id was measured at a
third of the speed: at a million random ids, every event of a batch dirties a page of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any

import numpy as np

from streamcal.monitor.join.opened import WEIGHT, P, Record, Score, T, Y
from streamcal.monitor.join.pending import Books, Held
from streamcal.monitor.store import OWN, Changes, Guarded, Settled, StoreError

SCHEMA = 1  # PRAGMA user_version
APPLICATION = 0x53434A31  # PRAGMA application_id: "SCJ1"
NEEDED = (3, 37, 0)  # STRICT tables
CHECKPOINT = 4_000  # pages of the write-ahead log

TABLES = """
CREATE TABLE prediction (
    due REAL NOT NULL, seq INTEGER NOT NULL, book INTEGER NOT NULL, id TEXT NOT NULL, t REAL NOT NULL, p ANY NOT NULL,
    w REAL NOT NULL, segment TEXT NOT NULL, ripe REAL, PRIMARY KEY (due, seq)) STRICT, WITHOUT ROWID;
CREATE TABLE outcome (
    due REAL NOT NULL, seq INTEGER NOT NULL, prediction INTEGER NOT NULL, y REAL NOT NULL, u REAL NOT NULL,
    PRIMARY KEY (due, seq)) STRICT, WITHOUT ROWID;
CREATE TABLE held (
    due REAL NOT NULL, seq INTEGER NOT NULL, book INTEGER NOT NULL, id TEXT NOT NULL, t REAL NOT NULL, y REAL NOT NULL,
    PRIMARY KEY (due, seq)) STRICT, WITHOUT ROWID;
CREATE TABLE document (name TEXT NOT NULL PRIMARY KEY, data BLOB NOT NULL) STRICT, WITHOUT ROWID;
"""

PREDICTION = """
INSERT INTO prediction (book, id, t, p, w, segment, due, ripe, seq) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, nullif(?8, ?3), ?9)
"""

OUTCOME = "INSERT INTO outcome VALUES (?, ?, ?, ?, ?)"

OUTCOMES = """
SELECT coalesce(p.book, 1 << 40), p.id, o.y, o.u FROM outcome o LEFT JOIN prediction p ON p.due = o.due AND p.seq =
o.prediction ORDER BY o.seq
"""


class SQLite(Guarded):
    """Keeps everything in one file (and, while it is open, a log beside it): WAL, synchronous=NORMAL.

    A power cut may lose the last transactions, whole; a killed process loses nothing that was committed. One process
    writes; others may read. StoreError says what is wrong with the file: read-only, full disk, written by a newer
    streamcal, no store of ours, in use by another writer. Not thread-safe. Limits: what is open is also held in memory,
    about 0.4 kB for each prediction; opening reads all of it, about 4 s per million.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = SQLite(folder.name + "/state.db")
    >>> with store.transaction():
    ...     store.put("offsets", b"12")
    >>> store.close()
    >>> SQLite(folder.name + "/state.db").get("offsets")
    b'12'
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        super().__init__(fspath(path))
        if sqlite3.sqlite_version_info < NEEDED:
            raise StoreError(f"SQLite must be at least 3.37, got {sqlite3.sqlite_version}")
        with self._explained():
            self._file = sqlite3.connect(self._name, timeout=5.0, isolation_level=None, check_same_thread=False)
        try:
            with self._explained():
                self._prepare()
        except BaseException:
            self._file.close()
            raise

    def _prepare(self) -> None:
        """Check that the file is ours, or make it ours if it is empty."""
        (version,), (application,) = self._one("PRAGMA user_version"), self._one("PRAGMA application_id")
        (tables,) = self._one("SELECT count(*) FROM sqlite_schema")
        if application != APPLICATION and (tables or version):
            raise StoreError(f"{self._name}: an SQLite file of something else; give another path")
        if application == APPLICATION and version != SCHEMA:
            raise StoreError(
                f"{self._name}: its schema must have version {SCHEMA}, got {version}: of another streamcal"
            )
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", f"wal_autocheckpoint={CHECKPOINT}"):
            self._file.execute(f"PRAGMA {pragma}")
        self._file.execute("BEGIN IMMEDIATE")
        self._file.execute(f"PRAGMA user_version={SCHEMA}")  # says now if the file cannot be written
        if application == APPLICATION:
            self._file.execute("ROLLBACK")  # a mere look into the file must not disturb who writes it
        else:
            for statement in TABLES.split(";")[:-1]:
                self._file.execute(statement)
            self._file.execute(f"PRAGMA application_id={APPLICATION}")
            self._file.execute("COMMIT")
        (self._version,) = self._one("PRAGMA data_version")
        self._own = self._read(OWN)

    def get(self, name: str) -> bytes | None:
        """The document of this name, None if there is none."""
        self._usable()
        with self._explained():
            return self._read(name)

    def _read(self, name: str) -> bytes | None:
        row = self._file.execute("SELECT data FROM document WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def load(self) -> Books:
        """The books as the last transaction left them. StoreError if rows and counters do not fit each other."""
        own = self.get(OWN)
        with self._explained():
            try:
                books = Books() if own is None else Books.from_bytes(own)
                books.restore(self._predictions(), self._outcomes(), self._held())
            except (ValueError, LookupError, struct.error) as error:
                raise StoreError(f"{self._name}: damaged: {error!r}") from None
        for book in books.all:
            unlabelled = book.open.unsettled(books.clock)
            if unlabelled != book.predictions.pending:
                raise StoreError(f"{self._name}: damaged: {book.predictions.pending} pending, {unlabelled} rows")
        return books

    def _predictions(self) -> Iterator[tuple[int, str, Record]]:
        segments: dict[str, str] = {}
        rows = self._file.execute("SELECT book, id, t, p, w, segment, due, ripe, seq FROM prediction ORDER BY due, seq")
        for book, name, t, p, w, segment, due, ripe, seq in rows:
            segment, ripe = segments.setdefault(segment, segment), t if ripe is None else ripe
            yield book, name, (t, _score(p), w, segment, due, ripe, seq, None, None)

    def _outcomes(self) -> Iterator[tuple[int, str, float, float]]:
        return self._file.execute(OUTCOMES)

    def _held(self) -> Iterator[tuple[int, str, Held]]:
        for book, name, *label in self._file.execute("SELECT book, id, t, y, due, seq FROM held ORDER BY seq"):
            yield book, name, (label[0], label[1], label[2], label[3])

    def write(self, changes: Changes, own: bytes) -> None:
        """Keep what a batch changed. StoreError outside a transaction."""
        self._inside()
        held = [(due, seq, book, name, t, y) for book, name, (t, y, due, seq) in changes.held]
        with self._explained():
            self._file.executemany(PREDICTION, _prediction_rows(changes))
            self._file.executemany(OUTCOME, itertools.chain(changes.outcomes, *map(_outcome_rows, changes.settled)))
            self._file.executemany("INSERT INTO held VALUES (?, ?, ?, ?, ?, ?)", held)
            self._file.executemany("DELETE FROM held WHERE due = ? AND seq = ?", changes.found)
            self._forget(changes)
            self._put(OWN, own)
            self._own = own

    def _forget(self, changes: Changes) -> None:
        for table, expected in (("prediction", changes.ended), ("held", changes.released)):
            if expected:
                gone = self._file.execute(f"DELETE FROM {table} WHERE due <= ?", (changes.clock,)).rowcount
                if gone != expected:
                    raise StoreError(f"{self._name}: damaged: {expected} rows of {table} are due, but it has {gone}")
        if changes.ended:
            self._file.execute("DELETE FROM outcome WHERE due <= ?", (changes.clock,))

    def close(self) -> None:
        """Let go of the file; nothing that was committed is lost."""
        self._ended = self._ended or "it was closed"
        self._file.close()

    def _put(self, name: str, data: bytes) -> None:
        with self._explained():
            self._file.execute("INSERT OR REPLACE INTO document VALUES (?, ?)", (name, data))

    def _names(self, prefix: str) -> list[str]:
        with self._explained():  # in the order of the code points, as Python sorts
            rows = self._file.execute("SELECT name FROM document WHERE name >= ? ORDER BY name", (prefix,))
            return [name for (name,) in rows]

    def _remove(self, names: list[str]) -> None:
        with self._explained():
            self._file.executemany("DELETE FROM document WHERE name = ?", ((name,) for name in names))

    def _begin(self) -> None:
        with self._explained():
            self._file.execute("BEGIN IMMEDIATE")
            (version,) = self._one("PRAGMA data_version")
            if (
                version != self._version and self._read(OWN) != self._own
            ):  # a checkpoint or a look from elsewhere is harmless
                self._file.execute("ROLLBACK")
                self._ended = "another process has written into it since it was opened; only one may"
                self._usable()
            self._version = version

    def _commit(self) -> None:
        with self._explained():
            self._file.execute("COMMIT")

    def _rollback(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # after a full disk SQLite has already done it
            self._file.execute("ROLLBACK")

    def _one(self, query: str) -> tuple[int, ...]:
        return tuple(self._file.execute(query).fetchone())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors as a StoreError that names the file and says what to do."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if self._active:  # whoever swallows this must not commit what is half done
                self._ended = f"a transaction failed ({error}); open it again, it is as the last good one left it"
            hint = next((text for start, text in HINTS.items() if name.startswith(start)), "")
            raise StoreError(f"{self._name}: {error}{hint}") from error


HINTS = {
    "SQLITE_READONLY": ": the file and its folder must be writable, as SQLite keeps a log beside the file",
    "SQLITE_CANTOPEN": ": its folder must exist and be writable",
    "SQLITE_FULL": ": nothing of this transaction was kept; make room, then open it again",
    "SQLITE_IOERR": ": nothing of this transaction was kept; look at the disk, then open it again",
    "SQLITE_BUSY": ": another process is writing into it; only one may",
    "SQLITE_NOTADB": ": give another path",
    "SQLITE_CORRUPT": ": the file is damaged; take it back from a copy",
}


def _prediction_rows(changes: Changes) -> Iterator[tuple[Any, ...]]:
    """In the order of PREDICTION."""
    for book, name, record in changes.predictions:
        yield book, name, record[T], _cell(record[P]), *record[WEIGHT:Y]
    for new in changes.opened:
        t, w, due, ripe = (column.tolist() for column in (new.t, new.w, new.due, new.ripe))
        p = new.p.tolist() if new.p.ndim == 1 else map(_cell, map(tuple, new.p.tolist()))
        yield from zip(itertools.repeat(new.book), new.id, t, p, w, new.segment, due, ripe, new.seq, strict=False)


def _outcome_rows(settled: Settled) -> Iterator[tuple[Any, ...]]:
    due, prediction, seq, y, u = settled
    return zip(due.tolist(), seq, prediction.astype(np.int64).tolist(), y.tolist(), u.tolist(), strict=True)


def _cell(p: Score) -> float | bytes:
    """A score for its column: the probabilities of several classes are float64 one after the other."""
    return p if isinstance(p, float) else struct.pack(f"<{len(p)}d", *p)


def _score(cell: float | bytes) -> Score:
    return cell if isinstance(cell, float) else struct.unpack(f"<{len(cell) // 8}d", cell)
