"""Where a monitor keeps its state: in one SQLite file that survives kill -9, or in memory; each batch is one transaction.

A transaction keeps all or nothing: what the join changed, and whatever else the caller puts (sums, detectors, offsets of the
sources)::

    with store.transaction():
        joined = join.feed(events)
        store.put("sums", window.to_bytes())
        store.put("offsets", b"...")

After any exception inside, nothing of it is in the file and the store refuses to go on: what the process has in memory
(the join, and the caller's sums) is ahead of the file, so all of it must be made anew from the file.

Why the file is fast with random ids: no row is ever looked up or changed in it. The join holds what is open in memory
too; the file has one row for each prediction and for each label, clustered by the moment at which they are forgotten.
So rows are appended at a few places, and forgotten as whole ranges. A table with an index on the id was measured at a
third of the speed: at a million random ids, every event of a batch dirties a page of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

from streamcal.monitor.join.pending import Changes, Counters, JoinState
from streamcal.reading.rewritten import PRIVATE, new_file

MEMORY = ":memory:"
OWN = "join"  # the document that the join puts itself
SCHEMA = 1  # PRAGMA user_version
APPLICATION = 0x53434A31  # PRAGMA application_id: "SCJ1"
NEEDED = (3, 37, 0)  # the first SQLite with STRICT tables
CHECKPOINT = 4_000  # pages of the write-ahead log, 16 MB: more would make a restart slow, fewer each batch
PATIENCE = 5.0  # seconds to wait for another process that has locked the file for a moment

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

PREDICTIONS = """
SELECT book, id, p, segment, due, t, w, due, coalesce(ripe, t), seq FROM prediction ORDER BY due, seq
"""

HELD = "SELECT book, id, t, y, due, seq FROM held ORDER BY seq"

OUTCOME = "INSERT INTO outcome VALUES (?, ?, ?, ?, ?)"

OUTCOMES = """
SELECT coalesce(p.book, 1 << 40), p.id, o.y, o.u FROM outcome o LEFT JOIN prediction p ON p.due = o.due AND p.seq =
o.prediction ORDER BY o.seq
"""

HINTS = {
    "SQLITE_READONLY": ": the file and its folder must be writable, as SQLite keeps a log beside the file",
    "SQLITE_CANTOPEN": ": its folder must exist and be writable",
    "SQLITE_FULL": ": nothing of this transaction was kept; make room, then open it again",
    "SQLITE_IOERR": ": nothing of this transaction was kept; look at the disk, then open it again",
    "SQLITE_BUSY": ": another process is writing into it; only one may",
    "SQLITE_NOTADB": ": give another path",
    "SQLITE_CORRUPT": ": the file is damaged; take it back from a copy",
}
HINTS_TO_READERS = {
    "SQLITE_CANTOPEN": ": it and the log beside it (-wal) must be readable; else copy both to where they are",
    "SQLITE_NOTADB": ": not the state of a monitor; give another path",
}


class StoreError(Exception):
    """The store cannot be opened, read or written: the message says which file, why, and what to do."""


class Store:
    """The state of a join, and documents under names. Not thread-safe.

    ``path``: of the file; a log lies beside it while it is open (WAL, synchronous=NORMAL). A power cut may lose the last
    transactions, whole; a killed process loses nothing that was committed. One process writes; others may read. What is open is
    also held in memory, about 0.4 kB for each prediction; opening reads all of it, about 4 s per million. ``":memory:"`` keeps
    everything in this process, nothing on disk: a second join on the same store goes on where the first was.

    ``readonly``: a look at the file as it was when it was opened, also while another process writes. Nothing is written, and
    no file is made beside it; a file that nobody has open may be on a read-only file system. As long as it is open the
    writer's log can only grow: close it soon.

    ``mode``: of the file, and of the log beside it, where it is made; one that is there keeps its own. No link is followed.

    ``largest``: bytes that the file may take; a batch that needs more fails as on a full disk.

    StoreError says what is wrong with the file: read-only, full disk, written by a newer streamcal, no store of ours, in use
    by another writer; and to a reader that a monitor began to write while a file that nobody had open was read.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store(folder.name + "/state.db")
    >>> with store.transaction():
    ...     store.put("offsets", b"12")
    >>> with Store(folder.name + "/state.db", readonly=True) as look:
    ...     look.names(), look.get("offsets"), look.counters()
    (['offsets'], b'12', {})
    >>> store.close()
    >>> Store().get("offsets")
    """

    def __init__(
        self,
        path: str | PathLike[str] = MEMORY,
        *,
        readonly: bool = False,
        largest: int | None = None,
        mode: int = PRIVATE,
    ) -> None:
        self._name, self._readonly = fspath(path), readonly
        self.in_transaction, self._ended = False, ""  # whether one is open; why there is no other one
        self._file: sqlite3.Connection | None = None
        self._unwatched: Path | None = None  # the log that a writer would make beside a file that is read without one
        if self._name == MEMORY:
            if readonly:
                raise ValueError("readonly goes with a file, not with a store in memory")
            self._name, self._join, self._documents = "the store in memory", JoinState(), dict[str, bytes]()
            return
        if sqlite3.sqlite_version_info < NEEDED:
            raise StoreError(f"SQLite must be at least 3.37, got {sqlite3.sqlite_version}")
        if not readonly:
            self._make(mode)
        self._file = self._connected()
        try:
            if readonly:
                self._rows("BEGIN")
            self._prepare(largest)
        except BaseException:
            self._file.close()
            raise

    # -- opening -------------------------------------------------------------------------------------------------------

    def _make(self, mode: int) -> None:
        """The file with this mode, if it is not there; SQLite gives the log beside it the same. StoreError for a link."""
        for name in (self._name, self._name + "-wal", self._name + "-shm"):
            if os.path.islink(name):
                raise StoreError(f"{name}: a link is not followed; give the path of the file itself")
        with contextlib.suppress(OSError):  # SQLite says what is wrong, if it is not there already
            os.close(new_file(self._name, mode))

    def _connected(self) -> sqlite3.Connection:
        name, path = self._name, Path(self._name)
        if self._readonly:
            for there, wrong in ((path.exists(), "there is no such file"), (path.is_file(), "not a file")):
                if not there:
                    raise StoreError(f"{name}: {wrong}; give the path that the configuration calls state")
            # Without a log nobody has it open: immutable, as a mere reader would else leave a log of its own behind, which
            # the monitor may not be allowed to write to. With one, it must be read too.
            log = Path(name + "-wal")
            self._unwatched = None if log.exists() else log
            name = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if self._unwatched else ''}"
        with self._explained():
            return sqlite3.connect(
                name, uri=self._readonly, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )

    def _prepare(self, largest: int | None) -> None:
        """Check that the file is ours, or make it ours if it is empty."""
        ours, version = self._one("PRAGMA application_id") == APPLICATION, self._one("PRAGMA user_version")
        if ours and version != SCHEMA:
            raise StoreError(
                f"{self._name}: its schema must have version {SCHEMA}, got {version}: of another streamcal"
            )
        if not ours and self._readonly:
            raise StoreError(f"{self._name}: not the state of a monitor; give another path")
        if not ours and (version or self._one("SELECT count(*) FROM sqlite_schema")):
            raise StoreError(f"{self._name}: an SQLite file of something else; give another path")
        if self._readonly:
            return
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", f"wal_autocheckpoint={CHECKPOINT}"):
            self._rows(f"PRAGMA {pragma}")
        if largest is not None:
            self._rows(f"PRAGMA max_page_count={largest // self._one('PRAGMA page_size')}")
        self._rows("BEGIN IMMEDIATE")
        self._rows(f"PRAGMA user_version={SCHEMA}")  # says now if the file cannot be written
        if ours:
            self._rows("ROLLBACK")  # a mere look into the file must not disturb who writes it
        else:
            for statement in TABLES.split(";")[:-1]:
                self._rows(statement)
            self._rows(f"PRAGMA application_id={APPLICATION}")
            self._rows("COMMIT")
        self._version, self._own = self._one("PRAGMA data_version"), self.get(OWN)

    # -- transactions --------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside are kept together; after an exception none is, and the store refuses to go on. They do not nest."""
        if self.in_transaction:
            raise StoreError(f"{self._name}: a transaction is open, and they do not nest")
        if self._readonly:
            raise StoreError(f"{self._name}: it was opened to be read only")
        self._usable()
        if self._file is not None:
            self._begin()
        self.in_transaction = True
        try:
            yield
            self._usable()
            if self._file is not None:
                self._rows("COMMIT")
        except BaseException as error:
            failed = f"a transaction failed ({error!r:.200}); open it again, it is as the last good one left it"
            self._ended = self._ended or failed
            if self._file is None:
                self._ended += " (and in memory nothing is left)"
            else:
                with contextlib.suppress(sqlite3.Error):  # after a full disk SQLite has already done it
                    self._file.execute("ROLLBACK")
            raise
        finally:
            self.in_transaction = False

    def _begin(self) -> None:
        self._rows("BEGIN IMMEDIATE")
        version = self._one("PRAGMA data_version")
        if version != self._version and self.get(OWN) != self._own:  # a checkpoint or a look from elsewhere is harmless
            self._rows("ROLLBACK")
            self._ended = "another process has written into it since it was opened; only one may"
            self._usable()
        self._version = version

    def refuse(self, reason: str) -> None:
        """Go on no more: the open transaction will not be kept, and there will be no other."""
        self._ended = self._ended or reason

    def _usable(self) -> None:
        if self._ended:
            raise StoreError(f"{self._name}: {self._ended}")

    def _inside(self) -> None:
        self._usable()
        if not self.in_transaction:
            raise StoreError(f"{self._name}: there is no transaction to write in; use `with store.transaction():`")

    # -- documents -----------------------------------------------------------------------------------------------------

    def put(self, name: str, data: bytes) -> None:
        """Keep a document under a name. StoreError outside a transaction; ValueError for "join", which is taken."""
        if name == OWN:
            raise ValueError(f"the name {OWN!r} is taken by the join; give the document another one")
        if not isinstance(name, str) or not isinstance(data, bytes):
            raise ValueError(f"a document must be bytes under a text, got {type(data).__name__} under {name!r}")
        self._inside()
        if self._file is None:
            self._documents[name] = data
        else:
            self._rows("INSERT OR REPLACE INTO document VALUES (?, ?)", name, data)

    def get(self, name: str) -> bytes | None:
        """The document of this name, None if there is none."""
        self._usable()
        if self._file is None:
            return self._documents.get(name)
        rows = self._rows("SELECT data FROM document WHERE name = ?", name)
        return bytes(rows[0][0]) if rows else None

    def names(self, prefix: str = "") -> list[str]:
        """The names of the documents that begin so, sorted; the join's own is not among them."""
        self._usable()
        if self._file is None:
            names = sorted(self._documents)
        else:  # in the order of the code points, as Python sorts
            names = [name for (name,) in self._rows("SELECT name FROM document WHERE name >= ? ORDER BY name", prefix)]
        return [name for name in names if name.startswith(prefix) and name != OWN]

    def drop(self, prefix: str) -> int:
        """Remove the documents whose names begin so, but the join's own; how many. StoreError outside a transaction."""
        self._inside()
        gone = self.names(prefix)
        for name in gone:
            if self._file is None:
                del self._documents[name]
            else:
                self._rows("DELETE FROM document WHERE name = ?", name)
        return len(gone)

    # -- the join ------------------------------------------------------------------------------------------------------

    @property
    def clock(self) -> float:
        """The largest time that the join has seen, -inf before the first."""
        return self._state().clock

    def counters(self) -> dict[tuple[str, str], tuple[Counters, Counters]]:
        """The counters of predictions and of labels by (model, version), in the order in which they first came."""
        return {(v.model, v.version): (v.predictions, v.labels) for v in self._state().all}

    def _state(self) -> JoinState:
        """The state of the join without what is open in it."""
        if self._file is None:
            return self._join
        own = self.get(OWN)
        try:
            return JoinState() if own is None else JoinState.from_bytes(own)
        except ValueError as error:
            raise StoreError(f"{self._name}: damaged: {error}") from None

    def load(self) -> JoinState:
        """The state of the join as the last transaction left it; in memory the state itself: whoever changes it has kept it.

        StoreError if rows and counters do not fit each other.
        """
        self._usable()
        state = self._state()
        if self._file is None:
            return state
        with self._explained():
            try:
                state.restore(*map(self._file.execute, (PREDICTIONS, OUTCOMES, HELD)))
            except (ValueError, LookupError, struct.error) as error:
                raise StoreError(f"{self._name}: damaged: {error!r}") from None
        for version in state.all:
            unlabelled = version.open.unsettled(state.clock)
            if unlabelled != version.predictions.pending:
                raise StoreError(f"{self._name}: damaged: {version.predictions.pending} pending, {unlabelled} rows")
        return state

    def write(self, changes: Changes, own: bytes) -> None:
        """Keep what a batch changed, and the join's own document. StoreError outside a transaction."""
        self._inside()
        if self._file is None:  # the state is here
            return
        with self._explained():
            self._file.executemany(PREDICTION, itertools.chain.from_iterable(changes.predictions))
            self._file.executemany(OUTCOME, itertools.chain.from_iterable(changes.outcomes))
            self._file.executemany("INSERT INTO held VALUES (?, ?, ?, ?, ?, ?)", changes.held)
            self._file.executemany("DELETE FROM held WHERE due = ? AND seq = ?", changes.found)
            for table, expected in (("prediction", changes.ended), ("held", changes.released)):
                if expected:
                    gone = self._file.execute(f"DELETE FROM {table} WHERE due <= ?", (changes.clock,)).rowcount
                    if gone != expected:
                        raise StoreError(
                            f"{self._name}: damaged: {expected} rows of {table} are due, but it has {gone}"
                        )
            if changes.ended:
                self._file.execute("DELETE FROM outcome WHERE due <= ?", (changes.clock,))
            self._rows("INSERT OR REPLACE INTO document VALUES (?, ?)", OWN, own)
            self._own = own

    def close(self) -> None:
        """Let go of the file; nothing that was committed is lost."""
        self._ended = self._ended or "it was closed"
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- SQLite --------------------------------------------------------------------------------------------------------

    def _rows(self, query: str, *values: str | bytes) -> list[Any]:
        assert self._file is not None
        with self._explained():
            rows = self._file.execute(query, values).fetchall()
        if self._unwatched is not None and self._unwatched.exists():
            raise StoreError(f"{self._name}: a monitor has begun to write into it; look again")
        return rows

    def _one(self, query: str) -> int:
        return int(self._rows(query)[0][0])

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors as a StoreError that names the file and says what to do."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if self.in_transaction:  # whoever swallows this must not commit what is half done
                self._ended = f"a transaction failed ({error}); open it again, it is as the last good one left it"
            hints = HINTS_TO_READERS if self._readonly else HINTS
            hint = next((text for start, text in hints.items() if name.startswith(start)), "")
            raise StoreError(f"{self._name}: {error}{hint}") from error
