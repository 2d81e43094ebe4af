"""What the join remembers of each (model, version): open predictions, held labels, what falls due when, and counters."""

from __future__ import annotations

import heapq
import itertools
import math
import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, Ints
from streamcal.monitor.events import Events, Pair, Prediction, StreamKey, padded, score_column

# A label without its prediction: (t, y, due, seq).
Held: TypeAlias = tuple[float, float, float, int]
Times = TypeVar("Times", float, Array)
Timers: TypeAlias = dict[float, list[str]]  # a moment -> the ids to which something happens then

VERSION = 1  # of the document
FIRST = 1_024  # rows of a new table; it doubles when it is full
STEPS = 64  # of a span: its ends are rounded up to one, so that few moments are kept and looked at
AT_ONCE = 50_000  # rows of a store that are put back together: more would only take more memory
# The columns of an open prediction: its time and weight, when it is forgotten, from when on it counts, its number; outcome and
# time of its label, nan before that; from P on its score, with nan behind one of fewer numbers than others have.
T: Final = 0
W: Final = 1
DUE: Final = 2
RIPE: Final = 3
SEQ: Final = 4
Y: Final = 5
U: Final = 6
P: Final = 7


class Spans(NamedTuple):
    """The settings of a join, in seconds."""

    ttl: float
    maturity: float
    hold: float
    ahead: float


@dataclass
class Counters:
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

    >>> Counters(received=3, joined=1, pending=1, reasons={"late": 1}).adds_up
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

    def __add__(self, other: Counters) -> Counters:
        """Both together."""
        a, b = self.reasons, other.reasons
        reasons = {reason: a.get(reason, 0) + b.get(reason, 0) for reason in {**a, **b}}
        sums = {name: value + getattr(other, name) for name, value in vars(self).items() if name != "reasons"}
        return Counters(**sums, reasons=reasons)


class Pending:
    """Open predictions by id: ``place`` is the row of each in the ``table``, ``segment`` the segment of each row.

    A label with a random id costs what it takes to fetch its id and its row from memory, so a row is one block of 64 bytes
    and a batch of rows is one indexing; with a tuple of floats for each prediction it was measured at three times that.

    >>> pending = Pending()
    >>> pending.add(["a"], np.array([[0.0, 1.0, 64.0, 0.0, 1.0, np.nan, np.nan, 0.8]]), ["DE"])
    >>> pending.places(["a", "b"]).tolist(), float(pending.table[pending.place["a"], P])
    ([1023, -1], 0.8)
    """

    def __init__(self) -> None:
        self.place: dict[str, int] = {}
        self.free: list[int] = []
        self.table: Array = np.empty((0, P + 1))
        self.segment: npt.NDArray[np.object_] = np.empty(0, dtype=object)

    def places(self, ids: list[str]) -> Ints:
        """The rows of ids in the table, -1 for one that is not open."""
        place = self.place
        return np.fromiter([place.get(name, -1) for name in ids], np.int64, len(ids))

    def add(self, ids: list[str], rows: Array, segment: list[str]) -> None:
        """Open new ids, none twice."""
        wide = self._make_room(len(ids), rows.shape[1])
        places = self.free[len(self.free) - len(ids) :]
        del self.free[len(self.free) - len(ids) :]
        self.place.update(zip(ids, places, strict=True))
        at = np.array(places, np.int64)
        self.table[at] = padded(rows, wide)
        self.segment[at] = segment

    def add_one(self, name: str, row: tuple[float, ...], segment: str) -> None:
        """Open a new id: without arrays, which cost more than all else."""
        wide = self.table.shape[1]
        if not self.free or len(row) > wide:
            wide = self._make_room(1, len(row))
        place = self.place[name] = self.free.pop()
        self.table[place] = row if len(row) == wide else (*row, *[math.nan] * (wide - len(row)))
        self.segment[place] = segment

    def _make_room(self, n: int, wide: int) -> int:
        """Free places for so many rows of so many numbers; how many numbers the table has now."""
        wide = max(wide, self.table.shape[1])
        self.table = padded(self.table, wide)
        while len(self.free) < n:
            size = len(self.table)
            more = max(FIRST, size)
            self.table = np.concatenate([self.table, np.zeros((more, wide))])
            self.segment = np.concatenate([self.segment, np.full(more, "", dtype=object)])
            self.free += range(size, size + more)
        return wide

    def is_same(self, new: Prediction) -> bool:
        """Whether the open prediction of this id has the same time, weight, score and segment."""
        place = self.place[new.id]
        row, scores = self.table[place].tolist(), new.p if isinstance(new.p, tuple) else (new.p,)
        old = row[T], row[W], tuple(p for p in row[P:] if p == p), self.segment[place]
        return bool(old == (new.t, new.w, scores, new.segment))

    def remove(self, ids: list[str]) -> int:
        """Forget open ids; how many of them had no outcome."""
        places = list(map(self.place.pop, ids))
        self.free += places
        return int(np.isnan(self.table[places, Y]).sum())

    def unsettled(self, clock: float) -> int:
        """How many have no outcome, or one that does not count yet."""
        rows = self.table[np.fromiter(self.place.values(), np.int64, len(self.place))]
        return int((np.isnan(rows[:, Y]) | (rows[:, RIPE] > clock)).sum())


@dataclass
class Changes:
    """What one batch changed: rows for the tables of a store.

    ``predictions`` are blocks of rows (code of the version, id, t, p, w, segment, due, ripe, seq), ``outcomes`` blocks of rows
    (due, seq, the prediction's seq, y, u); a p of several numbers is their bytes; blocks are made only where a store asks.
    ``held`` labels are (due, seq, code, id, t, y), those that ``found`` their prediction (due, seq). Everything due by ``clock``
    is forgotten: ``ended`` predictions, ``released`` held labels.
    """

    clock: float = -math.inf
    predictions: list[Iterable[tuple[Any, ...]]] = field(default_factory=list)
    outcomes: list[Iterable[tuple[Any, ...]]] = field(default_factory=list)
    held: list[tuple[float, int, int, str, float, float]] = field(default_factory=list)
    found: list[tuple[float, int]] = field(default_factory=list)
    ended: int = 0
    released: int = 0


def after(moment: Times, span: float) -> Times:
    """The first 64th of a span after a moment; in whole seconds if that is longer than one: they take little room in a file."""
    step = float(math.ceil(span / STEPS)) if span > STEPS else span / STEPS
    return (moment // step + 1.0) * step


def packed(scores: Iterable[float]) -> float | bytes:
    """A score as a store keeps it: a number, or the bytes of several."""
    several = [p for p in scores if p == p]
    return several[0] if len(several) == 1 else struct.pack(f"<{len(several)}d", *several)


class VersionState:
    """Everything about one (model, version); ``code`` is its number. Not thread-safe."""

    def __init__(self, model: str, version: str, code: int) -> None:
        self.model, self.version, self.code = model, version, code
        self.open = Pending()
        self.held: dict[str, Held] = {}
        self.ending: Timers = {}
        self.ripening: Timers = {}
        self.holding: Timers = {}
        self.predictions, self.labels = Counters(), Counters()


class JoinState:
    """All versions, the clock, the agenda (which version has something to do when), and what came of a batch so far.

    >>> state = JoinState()
    >>> state.of("credit", "7").code, state.clock
    (0, -inf)
    >>> JoinState.from_bytes(state.to_bytes()).all[0].model
    'credit'
    """

    def __init__(self) -> None:
        self.clock = -math.inf
        self.seq = 0  # one number for every row that was ever written
        self.all: list[VersionState] = []
        self.named: dict[tuple[str, str], VersionState] = {}
        self.of_model: dict[str, list[VersionState]] = {}
        self.agenda: list[tuple[float, int]] = []  # a heap of (moment, code of the version)
        self.changes = Changes()
        # by the code of the version: ids, segments, rows of the table and the sign of pairs that went out together
        self.out: defaultdict[int, list[tuple[list[str], list[str], Array, float]]] = defaultdict(list)

    def of(self, model: str, version: str) -> VersionState:
        """The state of this model and version; a new one if there is none."""
        found = self.named.get((model, version))
        if found is None:
            found = self.named[model, version] = VersionState(model, version, len(self.all))
            self.all.append(found)
            self.of_model.setdefault(model, []).append(found)
        return found

    def addressed(self, model: str, version: str | None) -> list[VersionState]:
        """Where labels for a version go, or for all of the model: the one without a name where there is none yet."""
        return [self.of(model, version)] if version is not None else self.of_model.get(model) or [self.of(model, "")]

    def schedule(self, version: VersionState, timers: Timers, moment: float, *ids: str) -> None:
        """Note that something happens to these ids of a version at a moment."""
        due = timers.get(moment)
        if due is None:
            due = timers[moment] = []
            heapq.heappush(self.agenda, (moment, version.code))
        due.extend(ids)

    def number(self) -> int:
        """A number for a row."""
        self.seq += 1
        return self.seq

    def numbers(self, n: int) -> range:
        """Numbers for so many rows."""
        self.seq += n
        return range(self.seq - n + 1, self.seq + 1)

    def send(self, version: VersionState, ids: list[str], places: Ints | slice, sign: float = 1.0) -> None:
        """Pairs go out, as they are now."""
        pending = version.open
        self.out[version.code].append((ids, pending.segment[places].tolist(), pending.table[places].copy(), sign))

    def end(self) -> tuple[Changes, list[Events]]:
        """What changed, and the pairs that went out by version, since the last time."""
        changes, joined = self.changes, [_pairs(self.all[code], self.out[code]) for code in sorted(self.out)]
        changes.clock, self.changes = self.clock, Changes()
        self.out.clear()
        return changes, joined

    # -- the document, and what a store puts back ----------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Clock and counters as JSON; the open predictions and held labels are rows of the store."""
        versions = [
            {"model": v.model, "version": v.version, "predictions": v.predictions, "labels": v.labels} for v in self.all
        ]
        clock = None if self.clock == -math.inf else self.clock
        return msgspec.json.encode({"join": VERSION, "clock": clock, "seq": self.seq, "books": versions})

    @classmethod
    def from_bytes(cls, data: bytes) -> JoinState:
        """The state that :meth:`to_bytes` wrote, without its rows. ValueError if the bytes are something else."""
        state = cls()
        try:
            document = msgspec.json.decode(data)
            if document["join"] != VERSION:
                raise ValueError(f"the join's document must have version {VERSION}, got {document['join']!r}")
            state.clock = -math.inf if document["clock"] is None else float(document["clock"])
            state.seq = int(document["seq"])
            for kept in document["books"]:
                version = state.of(kept["model"], kept["version"])
                version.predictions, version.labels = Counters(**kept["predictions"]), Counters(**kept["labels"])
        except (LookupError, TypeError, AttributeError, UnicodeDecodeError, msgspec.MsgspecError) as error:
            raise ValueError(f"not a document of the join: {error!r}, it begins with {data[:20]!r}") from None
        return state

    def restore(
        self,
        predictions: Iterable[tuple[Any, ...]],
        outcomes: Iterable[tuple[int, str, float, float]],
        held: Iterable[tuple[Any, ...]],
    ) -> None:
        """Put rows back, each in the order in which they came: the order of what is still to come is the same too.

        Predictions (code, id, p, segment, due, t, w, due, ripe, seq); outcomes (code, id, y, u), of which the last of a
        prediction stands; held labels (code, id, t, y, due, seq). LookupError if something belongs to nothing.
        """
        predictions, segments = iter(predictions), dict[str, str]()
        while some := list(itertools.islice(predictions, AT_ONCE)):
            self._reopen(some, segments)
        for code, name, y, u in outcomes:
            version = self.all[code]
            row = version.open.table[version.open.place[name]]
            if math.isnan(row[Y]) and row[RIPE] > self.clock:
                self.schedule(version, version.ripening, float(row[RIPE]), name)
            row[Y], row[U] = y, u
        for code, name, *label in held:
            version = self.all[code]
            version.held[name] = (label[0], label[1], label[2], label[3])
            self.schedule(version, version.holding, label[2], name)

    def _reopen(self, rows: list[tuple[Any, ...]], segments: dict[str, str]) -> None:
        """Open predictions as a store kept them; ``segments``: each text once."""
        by_version: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for code, *row in rows:
            by_version[code].append(tuple(row))
        for code, some in by_version.items():
            version = self.all[code]
            ids, ps, names, dues, *columns = zip(*some, strict=True)
            p = score_column([struct.unpack(f"<{len(p) // 8}d", p) if isinstance(p, bytes) else p for p in ps])
            table = np.column_stack([np.array(columns).T, np.full((len(ids), 2), math.nan), p])
            version.open.add(list(ids), table, [segments.setdefault(name, name) for name in names])
            for due, name in zip(dues, ids, strict=True):
                self.schedule(version, version.ending, due, name)


def _pairs(version: VersionState, out: list[tuple[list[str], list[str], Array, float]]) -> Events:
    """What went out of a version."""
    ids, segments, tables, signs = zip(*out, strict=True)
    wide = max(rows.shape[1] for rows in tables)
    columns = np.concatenate([padded(rows, wide) for rows in tables]).T.copy()
    scores = columns[P:]
    while len(scores) > 1 and np.isnan(scores[-1]).all():  # wider than any of these: room for those of others
        scores = scores[:-1]
    p = scores[0] if len(scores) == 1 else scores.T.copy()
    moment, sign = np.maximum(columns[U], columns[RIPE]), np.repeat(signs, list(map(len, ids)))
    for column in (columns, p, moment, sign):
        column.flags.writeable = False
    key, texts = StreamKey(Pair, version.model, version.version), list(itertools.chain(*segments))
    more = columns[U], moment, columns[SEQ], sign
    return Events.alike(key, list(itertools.chain(*ids)), columns[T], p, columns[Y], columns[W], texts, *more)
