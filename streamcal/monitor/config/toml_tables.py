"""Tables of a TOML file -> frozen dataclasses: mistakes are gathered, each with its line, what is allowed and what came.

A dataclass is the description of a table: its fields are the keys, made by :func:`entry` with the kind of value each takes.
Where it has ``mistakes(given)``, that says what is wrong between its values; ``settled()`` fills in what follows from others.
What is wrong between values is looked for once each value of the table is right by itself: no mistake is told twice over.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from streamcal.limits import LATEST
from streamcal.monitor.config.lines import Path
from streamcal.times import span

T = TypeVar("T")
TYPES = {bool: "true or false", int: "whole number", float: "number", str: "text", list: "list", dict: "table"}
Mistakes = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Finding:
    """One mistake: the line (0 where there is none, as for a file that is not there) and what is wrong."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


class Findings:
    """Collects mistakes by path; ``lines`` says where each path stands."""

    def __init__(self, lines: Mapping[Path, int]) -> None:
        self.lines = lines
        self.found: list[Finding] = []

    def add(self, path: Path, text: str) -> None:
        """A mistake at this path, or at what is nearest around it."""
        at = next((self.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.lines), 0)
        self.found.append(Finding(at, text))

    def sorted(self) -> tuple[Finding, ...]:
        """In the order of the file."""
        return tuple(sorted(self.found, key=lambda f: f.line))


@dataclass(frozen=True)
class Kind:
    """A kind of value: what is allowed, in words after "must be", and ``read``, which raises ValueError for anything else.

    With ``each`` the value is a list of at least one such, no two equal.
    """

    what: str
    read: Callable[[Any], Any] = lambda value: value
    each: Kind | None = None


def entry(kind: Kind, default: Any = dataclasses.MISSING, key: str = "") -> Any:
    """A field of a table: its kind, its default (none: the key is required) and its key, if that is not the field's name."""
    return dataclasses.field(default=default, metadata={"kind": kind, "key": key})


def _demand(good: bool) -> None:
    if not good:
        raise ValueError


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_text(value: Any) -> str:
    _demand(isinstance(value, str) and value == value.strip() != "" and value.isprintable())
    return str(value)


def number(what: str, allowed: Callable[[float], bool]) -> Kind:
    """A finite number, whole or not, for which ``allowed`` holds."""

    def read(value: Any) -> float:
        _demand(_is_number(value) and abs(value) < 1e300 and allowed(float(value)))
        return float(value)

    return Kind(f"a number{what and ' ' + what}", read)


def whole(low: int, high: int) -> Kind:
    """A whole number in low..high."""

    def read(value: Any) -> int:
        _demand(_is_number(value) and isinstance(value, int) and low <= value <= high)
        return int(value)

    return Kind(f"a whole number in {low}..{high}", read)


def one_of(*names: str) -> Kind:
    """One of these words; a misspelt one gets a suggestion."""

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(suggestion(value, names))
        return str(value)

    return Kind(f"one of {quoted(names)}", read)


def seconds(low: float = 0.0, what: str = "") -> Kind:
    """A span such as "15m", as seconds, of at least (0) or more than (above 0) ``low``."""

    def read(value: Any) -> float:
        found = span(value)
        _demand(low <= found < LATEST)
        return found

    return Kind(f'a span such as "90s", "15m", "1h 30m" or "7d"{what}', read)


def link(*schemes: str) -> Kind:
    """A URL of one of these schemes."""

    def read(value: Any) -> str:
        text = _read_text(value)
        _demand(any(text.startswith(s) and len(text) > len(s) for s in schemes) and " " not in text)
        return text

    return Kind(f"a link that starts with {' or '.join(schemes)}", read)


def listed(kind: Kind, what: str) -> Kind:
    """A list of at least one of a kind, all different, as a tuple."""
    return Kind(what, each=kind)


TEXT = Kind("text that is not empty, without blanks at its ends", _read_text)
LEVEL = number("in (0, 1)", lambda x: 0.0 < x < 1.0)


def quoted(names: Iterable[str]) -> str:
    """Names as a list to read."""
    return ", ".join(f'"{name}"' for name in names) or "(none)"


def suggestion(name: Any, names: Iterable[str]) -> str:
    """``did you mean "above"?`` where a name is near to one of those that there are, else "".

    >>> suggestion("Treshold", ["severity", "threshold"]), suggestion("xyz", ["threshold"])
    ('did you mean "threshold"?', '')
    """
    forms = {n.lower(): n for n in names}
    near = get_close_matches(str(name).strip().lower().replace("-", "_"), forms, n=1)
    near = near or get_close_matches(str(name).strip().lower(), forms, n=1)
    return f'did you mean "{forms[near[0]]}"?' if near else ""


def shown(value: Any) -> str:
    """A value with the word for its type, short."""
    text = quoted([value]) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    word = TYPES.get(type(value), "date or time")
    return f"a {word}" if isinstance(value, dict) else f"{text} ({word})"


def dotted(path: Sequence[str | int]) -> str:
    """A path as TOML writes it; elements of a list count from 1.

    >>> dotted(("rules", "too high", "sinks", 0))
    'rules."too high".sinks[1]'
    """
    out = ""
    for part in path:
        bare = isinstance(part, str) and part.isascii() and part.replace("_", "").replace("-", "").isalnum()
        out += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if bare else f'."{part}"'
    return out.removeprefix(".")


def read_value(kind: Kind, value: Any, path: Path, findings: Findings) -> Any:
    """What a kind makes of a value; None and a finding where it is not allowed."""
    if kind.each is not None:
        return _read_list(kind, kind.each, value, path, findings)
    try:
        return kind.read(value)
    except (ValueError, TypeError) as error:
        hint = f"; {error}" if str(error).startswith("did you") else ""
        findings.add(path, f"{dotted(path)} must be {kind.what}, got {shown(value)}{hint}")
        return None


def _read_list(kind: Kind, each: Kind, value: Any, path: Path, findings: Findings) -> Any:
    if not isinstance(value, list) or not value:
        findings.add(path, f"{dotted(path)} must be {kind.what}, got {shown(value)}")
        return None
    taken: list[Any] = []
    for i, element in enumerate(value):
        read = read_value(each, element, (*path, i), findings)
        if read is not None and read in taken:
            findings.add((*path, i), f"{dotted(path)} must not hold anything twice, got {shown(element)} again")
        taken.append(read)
    return tuple(taken)


def keys_of(cls: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """The keys of a table and their fields."""
    return {f.metadata["key"] or f.name: f for f in dataclasses.fields(cls) if "kind" in f.metadata}


def check_keys(table: Mapping[str, Any], allowed: Iterable[str], path: Path, findings: Findings) -> None:
    """A finding for each key that there is not, with a suggestion."""
    allowed = tuple(allowed)
    for key in table:
        if key not in allowed:
            near = suggestion(key, allowed)
            say = f"{near} Allowed: " if near else "allowed: "
            findings.add((*path, key), f"unknown key {dotted((*path, key))}; {say}{', '.join(allowed)}")


def is_table(value: Any, path: Path, findings: Findings) -> bool:
    """Whether it is a table; a finding if not."""
    if not isinstance(value, dict):
        findings.add(path, f"{dotted(path)} must be a table, written [{dotted(path)}], got {shown(value)}")
    return isinstance(value, dict)


def read_table(cls: type[T], table: Any, path: Path, findings: Findings, **known: Any) -> T | None:
    """The dataclass of a table, None where anything is wrong; ``known`` are fields that are not keys, such as its name."""
    before = len(findings.found)
    if not is_table(table, path, findings):
        return None
    keys = keys_of(cls)
    check_keys(table, keys, path, findings)
    values = dict(known)
    for key, field in keys.items():
        if key in table:
            values[field.name] = read_value(field.metadata["kind"], table[key], (*path, key), findings)
        elif field.default is dataclasses.MISSING:
            findings.add(path, f"{dotted(path)} lacks the key {key}, which must be {field.metadata['kind'].what}")
    if len(findings.found) > before:
        return None
    made: Any = cls(**values)
    for key, text in made.mistakes(frozenset(table)) if hasattr(made, "mistakes") else ():
        at = (*path, key) if key in table else path
        findings.add(at, f"{dotted(at)} {text}")
    if len(findings.found) > before:
        return None
    return made.settled() if hasattr(made, "settled") else made  # type: ignore[no-any-return]


def only_with(given: Iterable[str], choice: str, chosen: Any, goes: Mapping[str, Sequence[str]]) -> Mistakes:
    """A mistake for each given key that goes only with other values of ``choice`` than the chosen one."""
    for key in given:
        if key in goes and chosen not in goes[key]:
            fits = " or ".join(f'"{value}"' for value in goes[key])
            yield key, f'goes only with {choice} = {fits}, got {choice} = "{chosen}"'


def needed(given: Iterable[str], choice: str, chosen: Any, needs: Mapping[str, Sequence[str]]) -> Mistakes:
    """A mistake for each key that the chosen value of ``choice`` needs and that is not given."""
    for key in needs.get(chosen, ()):
        if key not in given:
            yield key, f'lacks the key {key}, which {choice} = "{chosen}" needs'


def _read_label(value: Any) -> Any:
    if not isinstance(value, str | int):
        raise ValueError
    return value


def _read_options(value: Any) -> Any:
    plain_ones = isinstance(value, dict) and all(isinstance(v, str | int | float) for v in value.values())
    if not value or not plain_ones:
        raise ValueError
    return tuple(sorted(value.items()))


TEXTS = listed(TEXT, 'a list of texts such as ["a", "b"]')
POSITIVE = number("above 0", lambda x: x > 0.0)
TOLERANCE = number("in [0, 1)", lambda x: 0.0 <= x < 1.0)
LABEL = Kind("text, a whole number, true or false", _read_label)
OPTIONS = Kind("a table of texts, numbers, true or false", _read_options)


def plain(thing: Any) -> Any:
    """Configuration as JSON data in one canonical form: named tables by name, so that their order does not count."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return {f.name: plain(getattr(thing, f.name)) for f in dataclasses.fields(thing)}
    if isinstance(thing, tuple | list):
        named = all(hasattr(part, "name") for part in thing)
        return [plain(part) for part in (sorted(thing, key=lambda part: part.name) if named else thing)]
    return thing if not isinstance(thing, float) or math.isfinite(thing) else str(thing)


def digest(thing: Any) -> str:
    """A hash of configuration, 16 hex digits: equal where it means the same, defaults filled in, in whatever order it is written.

    Of a whole :class:`~streamcal.monitor.config.config.Config`, or of any part: sums of a model in a window may be
    continued where
    ``digest((model, window))`` is the same.

    >>> from streamcal.monitor.config.settings import Window
    >>> digest(Window("day", time=86400.0)), digest(Window("day", time=86400.0, panes=61))
    ('1dcb61058c485e50', 'b35ed3ada1b0f39e')
    """
    text = json.dumps(plain(thing), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
