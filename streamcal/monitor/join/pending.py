"""What the join remembers: a book for each (model, version), with open predictions, held labels and accounts."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from streamcal.monitor.join.opened import DUE, RIPE, Open, Record, Y
from streamcal.monitor.join.opened import Score as Score

# A label without its prediction: (t, y, due, seq).
Held: TypeAlias = tuple[float, float, float, int]
Wheel: TypeAlias = dict[float, list[str]]  # a moment -> the ids that have an appointment then

VERSION = 1


@dataclass
class Account:
    """Where every event of one side went. Whole numbers; between two calls of the join they always add up:

    ``received == joined + pending + expired + rejected + duplicate + conflicting``.

    ============== ================================================ =================================================
    counter        predictions                                      labels
    ============== ================================================ =================================================
    joined         with a label, and counted                        counted; ``corrected`` of them replaced another
    pending        no label yet, or too young to count              no prediction yet, or its prediction is too young
    expired        no label until the ttl ended                     no prediction until the hold ended
    rejected       a value that is not allowed, or too late         a value that is not allowed
    duplicate      the same id with the same content                the same id with the same outcome
    conflicting    the same id with other content: the first stays  another outcome for the id that never counted
    ============== ================================================ =================================================

    >>> Account(received=3, joined=1, pending=1, reasons={"late": 1}).adds_up
    True
    """

    received: int = 0
    joined: int = 0
    pending: int = 0
    expired: int = 0
    duplicate: int = 0
    conflicting: int = 0
    corrected: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def rejected(self) -> int:
        """Events that were refused, for any reason; ``reasons`` says how many for which."""
        return sum(self.reasons.values())

    @property
    def adds_up(self) -> bool:
        """Whether every event received is in exactly one counter."""
        rest = self.pending + self.expired + self.rejected + self.duplicate + self.conflicting
        return self.received == self.joined + rest

    def reject(self, reason: str) -> None:
        """Count one refused event."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def __add__(self, other: Account) -> Account:
        """Both together."""
        mine, theirs = asdict(self), asdict(other)
        a, b = mine.pop("reasons"), theirs.pop("reasons")
        reasons = {r: a.get(r, 0) + b.get(r, 0) for r in {**a, **b}}
        return Account(**{name: mine[name] + theirs[name] for name in mine}, reasons=reasons)


class Book:
    """Everything about one (model, version). Not thread-safe."""

    __slots__ = (
        "code", "ending", "held", "holding", "labels", "model", "open", "predictions", "ripening", "version",
    )  # fmt: skip

    def __init__(self, model: str, version: str, code: int) -> None:
        self.model, self.version, self.code = model, version, code
        self.open = Open()
        self.held: dict[str, Held] = {}
        self.ending: Wheel = {}
        self.ripening: Wheel = {}
        self.holding: Wheel = {}
        self.predictions, self.labels = Account(), Account()


class Books:
    """All books, the clock, and the agenda: which book has something to do when.

    >>> books = Books()
    >>> books.of("credit", "7").code, books.clock
    (0, -inf)
    >>> Books.from_bytes(books.to_bytes()).all[0].model
    'credit'
    """

    def __init__(self) -> None:
        self.clock = -math.inf
        self.seq = 0  # one number for every row that was ever written
        self.all: list[Book] = []
        self.named: dict[tuple[str, str], Book] = {}
        self.of_model: dict[str, list[Book]] = {}
        self.agenda: list[tuple[float, int]] = []  # a heap of (moment, code of the book)

    def of(self, model: str, version: str) -> Book:
        """The book of this model and version; a new one if there is none."""
        book = self.named.get((model, version))
        if book is None:
            book = self.named[model, version] = Book(model, version, len(self.all))
            self.all.append(book)
            self.of_model.setdefault(model, []).append(book)
        return book

    def appoint(self, book: Book, wheel: Wheel, moment: float, *names: str) -> None:
        """Note that something happens to these ids of a book at a moment."""
        lane = wheel.get(moment)
        if lane is None:
            lane = wheel[moment] = []
            heapq.heappush(self.agenda, (moment, book.code))
        lane.extend(names)

    # -- the document, and what a store puts back ----------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Clock and accounts as JSON; the open predictions and held labels are rows of the store."""
        books = [
            {"model": b.model, "version": b.version, "predictions": vars(b.predictions), "labels": vars(b.labels)}
            for b in self.all
        ]
        clock = None if self.clock == -math.inf else self.clock
        return json.dumps({"join": VERSION, "clock": clock, "seq": self.seq, "books": books}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Books:
        """The books that :meth:`to_bytes` wrote, without their rows. ValueError if the bytes are something else."""
        try:
            document = json.loads(data)
            version = document["join"]
            if version != VERSION:
                raise ValueError(f"the join's document must have version {VERSION}, got {version!r}")
            return cls._read(document)
        except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"not a document of the join: {error!r}, it begins with {data[:20]!r}") from None

    @classmethod
    def _read(cls, document: dict[str, Any]) -> Books:
        books = cls()
        books.clock = -math.inf if document["clock"] is None else float(document["clock"])
        books.seq = int(document["seq"])
        for said in document["books"]:
            book = books.of(said["model"], said["version"])
            book.predictions, book.labels = Account(**said["predictions"]), Account(**said["labels"])
        return books

    def restore(
        self,
        predictions: Iterable[tuple[int, str, Record]],
        outcomes: Iterable[tuple[int, str, float, float]],
        held: Iterable[tuple[int, str, Held]],
    ) -> None:
        """Put rows back, each in the order in which they came: the order of what is still to come is the same too.

        An outcome is (code, id, y, u), and the last of a prediction stands. LookupError if something belongs to
        nothing.
        """
        for code, name, record in predictions:
            book = self.all[code]
            book.open[name] = record
            self.appoint(book, book.ending, record[DUE], name)
        for code, name, y, u in outcomes:
            book = self.all[code]
            record = book.open[name]
            if record[Y] is None and record[RIPE] > self.clock:
                self.appoint(book, book.ripening, record[RIPE], name)
            book.open.settle(name, y, u)
        for code, name, label in held:
            book = self.all[code]
            book.held[name] = label
            self.appoint(book, book.holding, label[2], name)
