"""Which column plays which role, and what to say when it is not there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches

from streamcal.reading import SourceError
from streamcal.reading.shown import listed

CLOSE = 1_000  # columns among which one with a like name is looked for: a comparison costs about 20 us
P_NAMES = (
    *(
        "p",
        "prob",
        "score",
        "probability",
        "prediction",
        "y_prob",
        "y_proba",
        "y_pred_proba",
        "pred",
        "proba",
        "proba_1",
    ),
    *("p_1", "pctr", "pcvr", "pd", "forecast", "confidence"),
)
Y_NAMES = (
    *("y", "label", "target", "outcome", "y_true", "actual", "observed", "click", "clicked", "conversion", "converted"),
    *("default", "event", "class"),
)
SCALES = ("unit", "percent", "logit")
LABELS = ("names", "indices")


@dataclass(frozen=True, kw_only=True)
class Meanings:
    """What the user declared about the cells of a table: see ``outcomes`` and ``cells``."""

    pos_label: str | None = None
    neg_label: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    labels: str | None = None
    scale: str = "unit"
    decimal: str = "."
    time_format: str | None = None

    def __post_init__(self) -> None:
        """SourceError for what cannot be meant."""
        for option, value, allowed in (
            ("scale", self.scale, SCALES),
            ("decimal", self.decimal, (".", ",")),
            ("labels", self.labels or LABELS[0], LABELS),
        ):
            if value not in allowed:
                raise SourceError(f"--{option} must be one of {' '.join(allowed)}, got {value!r}")


@dataclass(frozen=True)
class Roles(Meanings):
    """The roles of a table's columns. Several `p` columns are the classes of a top-label claim."""

    p: tuple[str, ...]
    y: str
    weight: str | None = None
    time: str | None = None
    segment: str | None = None
    prefix: str = ""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; empty for a single probability."""
        return self.p if len(self.p) > 1 else ()

    @property
    def names(self) -> tuple[str, ...]:
        """The wanted columns, each once, in the order of their roles."""
        roles = (*self.p, self.y, self.weight, self.time, self.segment)
        return tuple(dict.fromkeys(name for name in roles if name is not None))

    @property
    def numeric(self) -> frozenset[str] | None:
        """The columns that hold only numbers; None where one has another role too."""
        found = frozenset(name for name in (*self.p, self.weight) if name is not None)
        return None if found & {self.y, self.time, self.segment} else found


@dataclass(frozen=True)
class Wanted(Meanings):
    """What the user asked for, before anyone looked at the table."""

    p: str | None = None
    y: str | None = None
    weight: str | None = None
    time: str | None = None
    segment: str | None = None
    top_label: str | None = None


def missing_column(name: str, there: Sequence[str]) -> SourceError:
    """The error that names the columns there are, and the nearest one; or says that the first line is one of data."""
    near = get_close_matches(name, there[:CLOSE], n=1) or [c for c in there if c.strip().lower() == name.lower()]
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    say = f"; say which it is with --{name}" if name in (P_NAMES[0], Y_NAMES[0]) else ""
    if any(map(_is_number, there)):
        say = "; is there no header? put one above the first line: (echo p,y; cat FILE) | streamcal report -"
    return SourceError(f"no column {name!r}{hint}; the columns are: {listed(there)}{say}")


def _is_number(name: str) -> bool:
    try:
        return math.isfinite(float(name.replace(",", ".").rstrip("%")))
    except ValueError:
        return False


def check_present(names: Sequence[str], there: Sequence[str]) -> None:
    """Raise for the first name that is not a column, or is one twice."""
    for name in names:
        if name not in there:
            raise missing_column(name, there)
        if there.count(name) > 1:
            raise SourceError(f"column {name!r} appears {there.count(name)} times; rename all but one")


def choose(wanted: Wanted, there: Sequence[str]) -> tuple[Roles, list[str]]:
    """Roles for a table with the columns `there`, and a note for each name that was not asked for by name.

    Without `--p` the column p is taken, else the only one of P_NAMES that is there; likewise y.
    The names are not checked: a stream of JSON may bring a column later.
    """
    notes: list[str] = []
    p, prefix = _classes(wanted, there) if wanted.top_label else ((_pick(wanted.p, P_NAMES, there, notes),), "")
    y = _pick(wanted.y, Y_NAMES, there, notes)
    if y in p:
        raise SourceError(f"column {y!r} cannot be both the prediction and the outcome; see --p and --y")
    declared = {f.name: getattr(wanted, f.name) for f in fields(Meanings)}
    return Roles(p, y, wanted.weight, wanted.time, wanted.segment, prefix, **declared), notes


def _pick(asked: str | None, usual: Sequence[str], there: Sequence[str], notes: list[str]) -> str:
    if asked is not None:
        return asked
    if usual[0] in there:
        return usual[0]
    found = [name for name in there if name.strip().lower() in usual]
    if len(found) > 1:
        raise SourceError(f"several columns could be {usual[0]}: {listed(found)}; choose one with --{usual[0]}")
    if not found:
        return usual[0]
    notes.append(f"--{usual[0]} {found[0]} taken")
    return found[0]


def _classes(wanted: Wanted, there: Sequence[str]) -> tuple[tuple[str, ...], str]:
    pattern = wanted.top_label or ""
    if wanted.p is not None or wanted.pos_label is not None:
        raise SourceError("--top-label names the probabilities of all classes; it goes without --p and --pos-label")
    if pattern.endswith("*"):
        prefix = pattern[:-1]
        names = tuple(name for name in there if name.startswith(prefix) and name != wanted.y)
    else:
        prefix, names = "", tuple(name.strip() for name in pattern.split(","))
    if len(names) < 2:
        raise SourceError(
            f"--top-label {pattern} needs at least two columns, found {len(names)}; the columns are: {listed(there)}"
        )
    return names, prefix
