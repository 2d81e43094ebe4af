"""The one outcome rule: which label is 1, which is 0, which is missing, and which is none of these.

For tables, pipes, live streams and arrays alike. Nothing depends on the order of what comes, nothing is guessed:

- Missing, in any case: the words of ``MISSING``, and those that the user adds.
- Without a ``pos_label``: 1/0, true/false, t/f, yes/no and y/n in any case. Anything else is *unknown*. -1 too: it means
  "unlabelled" to some and "negative" to others.
- With one: it is 1, and the only other value is 0. Of several others those are 0 that ``neg_label`` names; without it none is,
  and each is unknown. A value that differs from the ``pos_label`` by its case alone is never taken for its opposite.

What is unknown is counted by name and never taken as a negative.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from streamcal.arrays import Array, Ints, numbers
from streamcal.limits import warn

MISSING = frozenset({"", "null", "none", "nan", "na", "n/a", "<na>", "nat", "?", "unknown", "pending"})
ONE = frozenset({"1", "true", "t", "yes", "y"})
ZERO = frozenset({"0", "false", "f", "no", "n"})
HELD = 100  # unknown values that are told apart: a column of real numbers must not fill the memory
LONG = 200  # characters of a value that is told apart
SHOWN = 8  # values that a message names
UNKNOWN = math.inf  # the outcome of a value that is neither 1 nor 0 nor missing
REST_NAME = "\0others"  # no label can have it: a NUL
GONE, REST = 0, 1  # numbers of the missing values and of the unknown ones that have no number of their own


def text(cell: object) -> str:
    """A cell as the file shows it: JSON's true is 'true', 7 is '7', null is ''."""
    if isinstance(cell, str):
        return cell.strip()
    if cell is None:
        return ""
    return str(cell).lower() if isinstance(cell, bool | np.bool_) else str(cell)


def name_of(cell: object) -> str:
    """The value of a cell by name: a number by what it is worth (1.0 and 01 are 1), a missing one as ''.

    >>> name_of(1.0), name_of(" 01"), name_of(True), name_of("Left "), name_of(None)
    ('1', '1', 'true', 'Left', '')
    """
    shown = text(cell)
    try:
        number = float(shown)
    except ValueError:
        return shown
    if math.isnan(number):
        return ""
    return f"{number + 0.0:.0f}" if abs(number) < 2**53 and number == int(number) else repr(number)  # -0 is 0


def listed(counts: Mapping[str, int]) -> str:
    """Values and how often each came, the most frequent first: "-1 (3,250), 1 (750)"."""
    first = sorted(counts.items(), key=lambda found: (-found[1], found[0]))
    rest = sum(n for _, n in first[SHOWN:])
    return ", ".join(
        [*(f"{plain(name)} ({n:,})" for name, n in first[:SHOWN]), *([f"and {rest:,} more"] if rest else [])]
    )


def plain(name: str) -> str:
    """A value in a message: as it is where that can be read, else as Python would write it."""
    name = name if len(name) <= 40 else name[:37] + "..."
    return name if name.isprintable() and not set(name) & set(" ,()") else repr(name)


class Labels(ABC):
    """Labels by name, numbered and counted; what each of them means is said by a rule, :class:`Outcomes` or :class:`ClassLabels`.

    ``missing``: more words for a missing label. ``command``: whether messages name options of the command, --pos-label, or
    arguments and keys, pos_label.
    """

    def __init__(
        self, missing: Iterable[str], command: bool, declared: Iterable[str] = (), alias: Mapping[str, str] = {}
    ) -> None:
        self.command, self._alias = command, alias
        self.missing = frozenset(word.strip().casefold() for word in missing)
        self._names = ["", ""]  # by number, from 2 on
        self._numbers: dict[str, int] = {"": GONE}
        self._counted = np.zeros(2, np.int64)
        for name in declared:
            self._add(name)
        self._table = self._values()
        # typed: 1, 1.0 and True are one key to a plain cache, but not one text.
        self._number = lru_cache(4096, typed=True)(self._number_of)

    @abstractmethod
    def _is_declared(self, name: str) -> bool:
        """Whether the rule means something by this value, whatever else comes."""

    @abstractmethod
    def _values(self) -> Array:
        """The meaning of each value by its number."""

    @property
    def settled(self) -> bool:
        """Whether no later value can change what those mean that came so far, in a table that can be judged at all."""
        return True

    @abstractmethod
    def problem(self, allowed: float = 0.0) -> str | None:
        """Why these labels cannot be judged, and what settles it; None where they can. ``allowed``: the share of unknown ones."""

    def note(self) -> str | None:
        """What the labels were read as, where that is not plain."""
        return None

    def _say(self, what: str) -> str:
        return f"--{what.replace('_', '-')}" if self.command else what

    # -- values ------------------------------------------------------------------------------------------------------

    def numbers(self, cells: Sequence[object]) -> Ints:
        """The number of each cell's value; nothing is counted yet."""
        try:
            return np.fromiter(map(self._number, cells), np.int64, len(cells))
        except TypeError:  # a list of JSON or an array of Parquet, which no cache can hold
            return np.fromiter(map(self._number_of, cells), np.int64, len(cells))

    def outcomes(self, numbers: Ints) -> Array:
        """Meanings of values by their numbers, by all the values that came so far: nan if missing, else ``UNKNOWN``."""
        return self._table[numbers]

    def count(self, numbers: Ints, known: bool = False) -> bool:
        """Count values by their numbers. ``known``: only if none of them is unknown; whether they were counted."""
        counts = np.bincount(numbers, minlength=len(self._names))
        if known and counts[self._table == UNKNOWN].any():
            return False
        self._counted += counts
        return True

    def take(self, cell: object) -> float:
        """The meaning of one label, counted; nan if missing, else ``UNKNOWN``."""
        number = int(self.numbers([cell])[0])
        self._counted[number] += 1
        return float(self._table[number])

    def _number_of(self, cell: object) -> int:
        name = name_of(cell)
        name = self._alias.get(name, name)
        if name in self._numbers:
            return self._numbers[name]
        known, word = self._is_declared(name), name.casefold()
        if not known and (word in MISSING or word in self.missing):
            return GONE
        if not known and (len(self._names) > HELD or len(name) > LONG):
            return REST
        self._add(name)
        self._table = self._values()
        return self._numbers[name]

    def _add(self, name: str, n: int = 0) -> None:
        self._numbers[name] = len(self._names)
        self._names.append(name)
        self._counted = np.append(self._counted, n)

    @property
    def distinct(self) -> int:
        """How many values are told apart: with one more, those before may mean something else."""
        return len(self._names)

    # -- what came ---------------------------------------------------------------------------------------------------

    def came(self, *outcomes: float) -> dict[str, int]:
        """How often each value came, by name: all of them, or those of these outcomes; without the missing ones."""
        found = zip(self._names, self._counted.tolist(), self._table.tolist(), strict=True)
        return {name or "(other values)": n for name, n, v in [*found][1:] if n and (not outcomes or v in outcomes)}

    @property
    def absent(self) -> int:
        """How many labels were missing."""
        return int(self._counted[GONE])

    # -- of a stream that goes on ------------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, int]:
        """What came, by name, as plain data ("" counts the missing labels); :meth:`take_over` reads it."""
        named = dict(zip(self._names[2:], self._counted[2:].tolist(), strict=True))
        return {"": self.absent, REST_NAME: int(self._counted[REST]), **named}

    def take_over(self, plain: Mapping[str, int]) -> None:
        """Go on where :meth:`to_plain` was, also with other words declared: what came keeps its count, by name."""
        for name, n in plain.items():
            number = REST if name == REST_NAME else self._number(name)
            self._counted[number] += n


class Outcomes(Labels):
    """Labels -> 1, 0, missing or unknown, counted by name: the state of the outcome rule of one table or stream.

    ``pos_label``: the value that is 1. ``neg_label``: the value or values that are 0. ``missing``: more words for a missing
    label. ``command``: whether messages name options of the command, --pos-label, or arguments and keys, pos_label.

    >>> labels = Outcomes("left", missing=["lost"])
    >>> [labels.take(value) for value in ("left", "stayed", "", "LOST", "gone", "stayed")]
    [1.0, 0.0, nan, nan, inf, inf]
    >>> labels.problem()
    'beside pos_label left there are stayed (2), gone (1): say which of them are 0 with neg_label, which are missing with missing'
    """

    def __init__(
        self, pos_label: object = None, neg_label: object = None, missing: Iterable[str] = (), command: bool = False
    ) -> None:
        self.command = command
        # In Python True == 1: a pos_label that is a number or a bool means both ways of writing it.
        both = not isinstance(pos_label, str) and name_of(pos_label) in ("0", "1", "true", "false")
        self._alias = alias = {"true": "1", "false": "0"} if both else {}
        several = isinstance(neg_label, Iterable) and not isinstance(neg_label, str)
        given: list[object] = [] if neg_label is None else list(neg_label) if several else [neg_label]  # type: ignore[call-overload]
        self.pos = None if pos_label is None else self._declared("pos_label", pos_label)
        self.neg = frozenset(self._declared("neg_label", label) for label in given)
        words = {word.strip().casefold() for word in missing}
        if self.neg and self.pos is None:
            raise ValueError(f"{self._say('neg_label')} goes with {self._say('pos_label')}")
        for name in self._known():
            if name.casefold() in words or (name == self.pos and name in self.neg):
                raise ValueError(
                    f"the label {name!r} is declared twice: as {self._say('pos_label')}, neg_label or missing"
                )
        super().__init__(missing, command, self._known(), alias)

    def _declared(self, what: str, label: object) -> str:
        name = name_of(label)
        if not name:
            raise ValueError(f"{self._say(what)} must be a value that is there, got {label!r}")
        return self._alias.get(name, name)

    def _known(self) -> list[str]:
        return [*(() if self.pos is None else (self.pos,)), *sorted(self.neg)]

    def _is_declared(self, name: str) -> bool:
        word = name.casefold()
        return self.pos is None and (word in ONE or word in ZERO)

    def _values(self) -> Array:
        """The outcome of each value by its number."""
        names = self._names[2:]
        if self.pos is None:
            found = [1.0 if (w := name.casefold()) in ONE else 0.0 if w in ZERO else UNKNOWN for name in names]
        else:
            others = [name for name in names if name != self.pos and name not in self.neg]
            alone = not self.neg and len(others) == 1 and others[0].casefold() != self.pos.casefold()
            zero = others if alone else self.neg
            found = [1.0 if name == self.pos else 0.0 if name in zero else UNKNOWN for name in names]
        return np.array([math.nan, UNKNOWN, *found])

    def note(self) -> str | None:
        """What was read as 1 and as 0, where the labels were not these numbers."""
        one, zero = self.came(1.0), self.came(0.0)
        if self.pos is None and {*one, *zero} <= {"0", "1"}:
            return None
        said = [
            f"{listed(found)} {'is' if len(found) == 1 else 'are'} {v}" for v, found in ((1, one), (0, zero)) if found
        ]
        return f"outcomes: {'; '.join(said)}" if said else None

    def problem(self, allowed: float = 0.0) -> str | None:
        """Why these outcomes cannot be judged, and what settles it; None where they can.

        ``allowed``: the share of the labels that may be unknown where 1 and 0 both came.
        """
        every, unknown = self.came(), self.came(UNKNOWN)
        pos, neg, missing = map(self._say, ("pos_label", "neg_label", "missing"))
        settle = f"say which of them are 0 with {neg}, which are missing with {missing}"
        if self.pos is not None and every and self.pos not in every:
            return f"{pos} {plain(self.pos)} never came; the outcomes are {listed(every)}"
        if not unknown:
            return None
        if self.pos is not None and not self.neg:
            return f"beside {pos} {plain(self.pos)} there are {listed(unknown)}: {settle}"
        if sum(unknown.values()) <= allowed * sum(every.values()) and self.came(1.0) and self.came(0.0):
            return None
        if self.pos is not None:
            return f"beside {pos} and {neg} there are {listed(unknown)}: {settle}"
        return (
            f"the outcomes are {listed(every)}, and not 0/1, true/false or yes/no: say which is 1 with {pos}, which are 0 "
            f"with {neg}, which are missing with {missing}"
        )


class ClassLabels(Labels):
    """Labels of classes -> indices of classes: all of a table by name, or all by index, never some of each.

    A name is that of a column, or that without the ``prefix`` which all columns share. ``labels``: "names" or "indices" where
    it is declared; else what fits all labels. Where both fit and differ it is a question (:meth:`problem`).

    >>> labels = ClassLabels(["p_1", "p_2", "p_3"], "p_")
    >>> labels.outcomes(labels.numbers(["1", "2"])).tolist(), labels.settled
    ([0.0, 1.0], False)
    >>> labels.outcomes(labels.numbers(["0", "1", "2", "", "fox"])).tolist(), labels.settled
    ([0.0, 1.0, 2.0, nan, inf], True)
    """

    def __init__(
        self,
        names: Sequence[str],
        prefix: str = "",
        labels: str | None = None,
        missing: Iterable[str] = (),
        command: bool = False,
    ) -> None:
        self.declared, self.size = labels, len(names)
        self.places = {name_of(name.removeprefix(prefix)): i for i, name in enumerate(names)}
        self.places |= {name_of(name): i for i, name in enumerate(names)}
        super().__init__(missing, command)

    def _ways(self, name: str) -> tuple[float, float]:
        """The class of a value by name, and by index."""
        by_name = float(self.places.get(name, UNKNOWN))
        return by_name, float(name) if name.isdecimal() and int(name) < self.size else UNKNOWN

    def _is_declared(self, name: str) -> bool:
        return self._ways(name) != (UNKNOWN, UNKNOWN)

    def _fitting(self) -> tuple[list[str], list[str], list[str]]:
        """The values that fit as names only, as indices only, and both ways but not the same class."""
        found = {name: self._ways(name) for name in self._names[2:]}
        return (
            [name for name, (a, b) in found.items() if b == UNKNOWN != a],
            [name for name, (a, b) in found.items() if a == UNKNOWN != b],
            [name for name, (a, b) in found.items() if UNKNOWN != a != b != UNKNOWN],
        )

    @property
    def by_index(self) -> bool:
        """Whether labels are indices, as far as the values that came so far tell; else they are names."""
        names, indices, _ = self._fitting()
        return self.declared == "indices" or (self.declared is None and bool(indices) and not names)

    @property
    def settled(self) -> bool:
        """Whether no later value can change what those mean that came so far."""
        names, indices, both = self._fitting()
        return self.declared is not None or bool(names or indices) or not both

    def _values(self) -> Array:
        way = int(self.by_index)
        return np.array([math.nan, UNKNOWN, *(self._ways(name)[way] for name in self._names[2:])])

    def indices(self, classes: Array) -> Array:
        """What classes by name are by index, where each label fits both ways."""
        other = {self._ways(name)[0]: self._ways(name)[1] for name in self._names[2:]}
        return np.array([other[k] for k in classes.tolist()])

    def problem(self, allowed: float = 0.0) -> str | None:
        """Why these labels cannot be judged, and what settles it; None where they can. ``allowed``: the share of unknown ones."""
        every, unknown = self.came(), self.came(UNKNOWN)
        names, indices, both = ({name: every[name] for name in found if name in every} for found in self._fitting())
        settle = f"declare it with {self._say('labels')} names or {self._say('labels')} indices"
        if self.declared is None and names and indices:
            return f"the labels {listed(names)} are names of classes, and {listed(indices)} indices: {settle}"
        if self.declared is None and both and not indices and not names:
            return f"the labels {listed(both)} can be names of classes and indices: {settle}"
        if sum(unknown.values()) <= allowed * sum(every.values()):
            return None
        return f"the labels {listed(unknown)} are no classes; the classes are {', '.join(map(plain, self.places))}"


def outcome_numbers(y: Any, pos_label: object = None) -> Array:
    """A whole column of outcomes as numbers, its shape kept: numbers as they are, or 1 and 0 by the rule of :class:`Outcomes`.

    The rule reads what has a ``pos_label``, and what is no number; words that were read without one are said in a
    CalibrationWarning. ValueError for a missing outcome, with its index, and for outcomes that cannot be judged.

    >>> outcome_numbers([1, 0.25]).tolist(), outcome_numbers(["left", "stayed"], "left").tolist()
    ([1.0, 0.25], [1.0, 0.0])
    """
    found = np.empty(0)
    if pos_label is None:
        found = numbers("y", y).reshape(-1)
        if not np.isnan(found).any() or np.asarray(y).dtype.kind in "biuf":
            return found.reshape(np.shape(y))
    array = y if isinstance(y, np.ma.MaskedArray) else np.asarray(y, dtype=object)
    cells = array.reshape(-1).tolist()  # of a masked array None where it is masked
    rule = Outcomes(pos_label)
    values = rule.numbers(cells)
    rule.count(values)
    if (gone := np.flatnonzero(values == GONE)).size:
        raise ValueError(f"y must not be missing, got {cells[gone[0]]!r} at index {gone[0]}")
    outcomes = rule.outcomes(values)
    if problem := rule.problem():
        strange = np.flatnonzero((outcomes == UNKNOWN) & (np.isnan(found) if pos_label is None else True))
        where = f"y must be 1 or 0, got {cells[strange[0]]!r} at index {strange[0]}: " if strange.size else "y: "
        said = problem.partition(": say which")[0]
        raise ValueError(f"{where}{said}; say which is 1 with pos_label=, and leave out what is neither 1 nor 0")
    if pos_label is None and (note := rule.note()) is not None:
        warn(note)
    return outcomes.reshape(array.shape)
