"""Where the join keeps what is open, in transactions that keep all or nothing, with documents under names; the one in memory.

Both are one small interface. What a batch changes, and whatever else the caller puts (sums, detector states, offsets of
the sources), is one transaction::

    with store.transaction():
        joined = join.feed(events)
        store.put("sums", window.to_bytes())
        store.put("offsets", b"...")

After any exception inside, nothing of it is in the file and the store refuses to go on: what the process has in memory
(the join, and the caller's sums) is ahead of the file, so all of it must be made anew from the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from streamcal.monitor.join.opened import Array, Record
from streamcal.monitor.join.pending import Books, Held

OWN = "join"  # the document that the join puts itself


class StoreError(Exception):
    """The store cannot be opened, read or written: the message says which file, why, and what to do."""


class Opened(NamedTuple):
    """Columns of new predictions: code of the book, ids, t, p (n,) or (n, classes), w, segments, due, ripe, seq."""

    book: int
    id: list[str]
    t: Array
    p: Array
    w: Array
    segment: list[str]
    due: Array
    ripe: Array
    seq: range


class Settled(NamedTuple):
    """Columns of first outcomes: due and number of the prediction, number of the outcome, y, u."""

    due: Array
    prediction: Array
    seq: range
    y: Array
    u: Array


@dataclass
class Changes:
    """What one batch changed. Predictions are (book, id, record), outcomes (due, seq, prediction's seq, y, u).

    ``opened`` and ``settled`` are more of them, as columns. Held labels are (book, id, label), those that found their
    prediction (due, seq). Everything due by ``clock`` is forgotten: ``ended`` predictions, ``released`` held labels.
    """

    clock: float
    predictions: list[tuple[int, str, Record]] = field(default_factory=list)
    outcomes: list[tuple[float, int, int, float, float]] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    held: list[tuple[int, str, Held]] = field(default_factory=list)
    found: list[tuple[float, int]] = field(default_factory=list)
    ended: int = 0
    released: int = 0


class Store(Protocol):
    """What the join needs of a place to keep things."""

    @property
    def in_transaction(self) -> bool:
        """Whether one is open."""

    def transaction(self) -> AbstractContextManager[None]:
        """All changes inside are kept together, or none is and the store refuses to go on. They do not nest."""

    def put(self, name: str, data: bytes) -> None:
        """Keep a document under a name; StoreError outside a transaction. The name "join" is taken."""

    def get(self, name: str) -> bytes | None:
        """The document of this name, None if there is none."""

    def names(self, prefix: str = "") -> list[str]:
        """The names of the documents that begin so, sorted; the join's own is not among them."""

    def drop(self, prefix: str) -> int:
        """Remove the documents whose names begin so; how many. StoreError outside a transaction."""

    def refuse(self, reason: str) -> None:
        """Go on no more: what is in memory and what is kept may differ. The open transaction will not be kept."""

    def load(self) -> Books:
        """The books as the last transaction left them."""

    def write(self, changes: Changes, own: bytes) -> None:
        """Keep what a batch changed, and the join's own document."""

    def close(self) -> None:
        """Let go of the file; nothing is lost."""


class Guarded:
    """The transaction of both stores: one at a time, and after a failed one no other."""

    def __init__(self, name: str) -> None:
        self._name, self._active, self._ended = name, False, ""

    @property
    def in_transaction(self) -> bool:
        """Whether one is open."""
        return self._active

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside are kept together; after an exception none is, and the store refuses to go on."""
        if self._active:
            raise StoreError(f"{self._name}: a transaction is open, and they do not nest")
        self._usable()
        self._begin()
        self._active = True
        try:
            yield
            self._usable()
            self._commit()
        except BaseException as error:
            self._ended = (
                self._ended
                or f"a transaction failed ({error!r:.200}); open it again, it is as the last good one left it"
            )
            self._rollback()
            raise
        finally:
            self._active = False

    def put(self, name: str, data: bytes) -> None:
        """Keep a document under a name. StoreError outside a transaction; ValueError for "join", which is taken."""
        if name == OWN:
            raise ValueError(f"the name {OWN!r} is taken by the join; give the document another one")
        if not isinstance(name, str) or not isinstance(data, bytes):
            raise ValueError(f"a document must be bytes under a text, got {type(data).__name__} under {name!r}")
        self._inside()
        self._put(name, data)

    def names(self, prefix: str = "") -> list[str]:
        """The names of the documents that begin so, sorted; the join's own is not among them."""
        self._usable()
        return [name for name in self._names(prefix) if name.startswith(prefix) and name != OWN]

    def drop(self, prefix: str) -> int:
        """Remove the documents whose names begin so, but the join's own; how many. StoreError outside a transaction."""
        self._inside()
        gone = self.names(prefix)
        self._remove(gone)
        return len(gone)

    def refuse(self, reason: str) -> None:
        """Go on no more: the open transaction will not be kept, and there will be no other."""
        self._ended = self._ended or reason

    def _usable(self) -> None:
        if self._ended:
            raise StoreError(f"{self._name}: {self._ended}")

    def _inside(self) -> None:
        self._usable()
        if not self._active:
            raise StoreError(f"{self._name}: there is no transaction to write in; use `with store.transaction():`")

    def _put(self, name: str, data: bytes) -> None:
        raise AssertionError("each store keeps documents its way")  # pragma: no cover

    def _names(self, prefix: str) -> list[str]:
        raise AssertionError("each store keeps documents its way")  # pragma: no cover

    def _remove(self, names: list[str]) -> None:
        raise AssertionError("each store keeps documents its way")  # pragma: no cover

    def _begin(self) -> None: ...

    def _commit(self) -> None: ...

    def _rollback(self) -> None: ...


class Memory(Guarded):
    """Keeps everything in this process, nothing on disk: for tests and pipes.

    A second join on the same store goes on where the first was. After a failed transaction what it held is lost.

    >>> store = Memory()
    >>> with store.transaction():
    ...     store.put("offsets", b"12")
    >>> store.get("offsets"), store.get("sums")
    (b'12', None)
    """

    def __init__(self) -> None:
        super().__init__("the store in memory")
        self._books, self._documents = Books(), dict[str, bytes]()

    def get(self, name: str) -> bytes | None:
        """The document of this name, None if there is none."""
        self._usable()
        return self._documents.get(name)

    def load(self) -> Books:
        """The books themselves: whoever changes them has kept them."""
        self._usable()
        return self._books

    def write(self, changes: Changes, own: bytes) -> None:
        """Nothing to do: the books are here. StoreError outside a transaction."""
        self._inside()

    def close(self) -> None:
        """Refuse to go on."""
        self._ended = self._ended or "it was closed"

    def _put(self, name: str, data: bytes) -> None:
        self._documents[name] = data

    def _names(self, prefix: str) -> list[str]:
        return sorted(self._documents)

    def _remove(self, names: list[str]) -> None:
        for name in names:
            del self._documents[name]

    def _rollback(self) -> None:
        self._ended += " (and in memory nothing is left)"
