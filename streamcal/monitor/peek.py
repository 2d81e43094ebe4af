"""A look into the file of a monitor, running or not: it only reads."""

from __future__ import annotations

import sqlite3
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streamcal.monitor.join.pending import Account, Books
from streamcal.monitor.sqlite import APPLICATION, SCHEMA
from streamcal.monitor.store import OWN, StoreError

HINTS = {
    "SQLITE_CANTOPEN": ": it and the log beside it (-wal) must be readable; else copy both to where they are",
    "SQLITE_NOTADB": ": not the state of a monitor; give another path",
}


class Peek:
    """Documents and accounts of a state file as they were when it was opened, also while another process writes.

    Nothing is written, and no file is made beside it; a file that nobody has open may be on a read-only file system. As
    long as it is open the writer's log can only grow: close it soon. StoreError if there is no such file, it is of
    something else or of another version, or if a monitor began to write while a file that nobody had open was read
    (then look again).

    >>> import tempfile
    >>> from streamcal.monitor.sqlite import SQLite
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = SQLite(folder.name + "/state.db")
    >>> with store.transaction():
    ...     store.put("status", b"{}")
    >>> with Peek(folder.name + "/state.db") as peek:
    ...     peek.names(), peek.get("status"), peek.accounts()
    (['status'], b'{}', {})
    >>> store.close()
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._name = fspath(path)
        if not Path(path).exists():
            raise StoreError(f"{self._name}: there is no such file; give the path that the configuration calls state")
        if not Path(path).is_file():
            raise StoreError(f"{self._name}: not a file; give the path that the configuration calls state")
        self._log = Path(self._name + "-wal")
        # Without a log nobody has it open: immutable, as a mere reader would else leave a log of its own behind, which
        # the monitor may not be allowed to write to. With one, it must be read too.
        self._alone = not self._log.exists()
        uri = f"{Path(path).absolute().as_uri()}?mode=ro{'&immutable=1' if self._alone else ''}"
        try:
            self._file = sqlite3.connect(uri, uri=True, timeout=5.0, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"{self._name}: {error}") from None
        try:
            self._check()
        except BaseException:
            self._file.close()
            raise

    def _check(self) -> None:
        """Begin the look, and see whether the file is ours."""
        self._rows("BEGIN")
        ((application,),), ((version,),) = self._rows("PRAGMA application_id"), self._rows("PRAGMA user_version")
        if application != APPLICATION:
            raise StoreError(f"{self._name}: not the state of a monitor; give another path")
        if version != SCHEMA:
            raise StoreError(
                f"{self._name}: its schema must have version {SCHEMA}, got {version}: of another streamcal"
            )

    def get(self, name: str) -> bytes | None:
        """The document of this name, None if there is none."""
        rows = self._rows("SELECT data FROM document WHERE name = ?", name)
        return bytes(rows[0][0]) if rows else None

    def names(self, prefix: str = "") -> list[str]:
        """The names of the documents that begin so, sorted; the join's own is not among them."""
        rows = self._rows("SELECT name FROM document WHERE name >= ? ORDER BY name", prefix)
        return [name for (name,) in rows if name.startswith(prefix) and name != OWN]

    @property
    def clock(self) -> float:
        """The largest time that the join has seen, -inf before the first."""
        return self._books().clock

    def accounts(self) -> dict[tuple[str, str], tuple[Account, Account]]:
        """The accounts of predictions and of labels by (model, version), in the order in which they first came."""
        return {(book.model, book.version): (book.predictions, book.labels) for book in self._books().all}

    def _books(self) -> Books:
        data = self.get(OWN)
        try:
            return Books() if data is None else Books.from_bytes(data)
        except ValueError as error:
            raise StoreError(f"{self._name}: damaged: {error}") from None

    def _rows(self, query: str, *values: str) -> list[Any]:
        try:
            rows = self._file.execute(query, values).fetchall()
        except sqlite3.Error as error:
            hint = HINTS.get(getattr(error, "sqlite_errorname", ""), "")
            raise StoreError(f"{self._name}: {error}{hint}") from None
        if self._alone and self._log.exists():
            raise StoreError(f"{self._name}: a monitor has begun to write into it; look again")
        return rows

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
