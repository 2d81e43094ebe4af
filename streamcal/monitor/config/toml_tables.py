"""Tables of a TOML file -> frozen dataclasses: mistakes are gathered, each with its line, what is allowed and what came.

A dataclass is the description of a table: its fields are the keys, made by :func:`entry` with the kind of value each takes.
Where it has ``mistakes(given)``, that says what is wrong between its values; ``settled()`` fills in what follows from others.
What is wrong between values is looked for once each value of the table is right by itself: no mistake is told twice over.

In this order: kinds of values, findings, tables, the lines of a text, the digest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from streamcal.limits import LATEST
from streamcal.times import span

Path: TypeAlias = tuple[str | int, ...]
Mistakes: TypeAlias = Iterable[tuple[str, str]]
Keys: TypeAlias = Mapping[str, Sequence[str]]
Table: TypeAlias = (
    type[Any] | Mapping[str, type[Any]]
)  # a dataclass, or those of a family by the value of the key "type"
Field: TypeAlias = dataclasses.Field[Any]
TYPES = {bool: "true or false", int: "whole number", float: "number", str: "text", list: "list", dict: "table"}
HUGE = 1e300  # no number may be so large: sums and products of two that are smaller are finite, and so are their texts


# -- kinds of values -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of value: what is allowed, in words after "must be", and ``read``, which raises ValueError for anything else.

    With ``each`` the value is a list of at least one such, no two equal. ``file``: it names a file that is written; a "shared"
    one may be that of several keys of the same name.
    """

    what: str
    read: Callable[[Any], Any] = lambda value: value
    each: Kind | None = None
    file: str = ""


def entry(
    kind: Kind, default: Any = dataclasses.MISSING, key: str = "", goes: Sequence[str] = (), needed: Sequence[str] = ()
) -> Any:
    """A field of a table: its kind, its default (none: the key is required) and its key, if that is not the field's name.

    ``goes`` and ``needed``: the values of another key with which alone it makes sense, and those with which it must be there.
    """
    return dataclasses.field(default=default, metadata={"kind": kind, "key": key, "goes": goes, "needed": needed})


def number(what: str, bounds: Meta) -> Kind:
    """A number, whole or not, within bounds that are finite."""
    kind: Any = Annotated[float, bounds]
    return Kind(f"a number{what and ' ' + what}", lambda value: msgspec.convert(value, kind))


def whole(low: int, high: int) -> Kind:
    """A whole number in low..high."""
    kind: Any = Annotated[int, Meta(ge=low, le=high)]
    return Kind(f"a whole number in {low}..{high}", lambda value: msgspec.convert(value, kind))


def one_of(names: Iterable[str]) -> Kind:
    """One of these words; a misspelt one gets a suggestion."""
    names = tuple(names)

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(suggestion(value, names))
        return str(value)

    return Kind(f"one of {quoted(names)}", read)


def seconds(low: float = 0.0, what: str = "") -> Kind:
    """A span such as "15m", as seconds, of at least ``low``."""
    what = f'a span such as "90s", "15m", "1h 30m" or "7d"{what}'
    return Kind(what, lambda value: _only(found := span(value), low <= found < LATEST))


def link(*schemes: str) -> Kind:
    """A URL of one of these schemes."""

    def read(value: Any) -> Any:
        _text(value)
        return _only(value, " " not in value and any(value.startswith(s) and value != s for s in schemes))

    return Kind(f"a link that starts with {' or '.join(schemes)}", read)


def _only(value: Any, allowed: bool) -> Any:
    if not allowed:
        raise ValueError
    return value


def _text(value: Any) -> Any:
    return _only(value, isinstance(value, str) and value == value.strip() != "" and value.isprintable())


def _labels(value: Any) -> tuple[str | int | bool, ...]:
    several = msgspec.convert(value if isinstance(value, list) else [value], list[str | int | bool])
    return tuple(_only(several, bool(several)))


def _mode(value: Any) -> int:
    mode = int(_only(value, isinstance(value, str) and re.fullmatch("0?[0-7]{3}", value) is not None), 8)
    return int(_only(mode, mode & 0o600 == 0o600))


def _fields(value: Any) -> tuple[tuple[str, str], ...]:
    found = msgspec.convert(_only(value, bool(value)), dict[str, str])
    _only(value, all(theirs and not theirs.startswith("=") for theirs in found.values()))
    return tuple(sorted(found.items()))


def _options(value: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(msgspec.convert(_only(value, bool(value)), dict[str, str | int | float | bool]).items()))


TEXT = Kind("text that is not empty, without blanks at its ends", _text)
FILE, SHARED_FILE = dataclasses.replace(TEXT, file="own"), dataclasses.replace(TEXT, file="shared")
TEXTS = Kind('a list of texts such as ["a", "b"]', each=TEXT)
LEVEL = number("in (0, 1)", Meta(gt=0.0, lt=1.0))
POSITIVE = number("above 0", Meta(gt=0.0, lt=HUGE))
TOLERANCE = number("in [0, 1)", Meta(ge=0.0, lt=1.0))
SHARE = number("in [0, 1]", Meta(ge=0.0, le=1.0))
ANY = number("", Meta(gt=-HUGE, lt=HUGE))
LABEL = Kind("text, a whole number, true or false", lambda value: msgspec.convert(value, str | int | bool))
FIELDS = Kind('a table of keys of our events and the keys of messages, { id = "request_id", t = "ts" }', _fields)
LABELS = Kind("a label or a list of them: texts, whole numbers, true or false", _labels)
MODE = Kind('a text of octal digits such as "0640", by which its owner may read and write', _mode)
OPTIONS = Kind("a table of texts, numbers, true or false", _options)


# -- findings ------------------------------------------------------------------------------------------------------------


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

    def about(self, path: Path, text: str) -> None:
        """A mistake at this path, whose text goes on behind its name."""
        self.add(path, f"{dotted(path)} {text}")

    def add(self, path: Path, text: str) -> None:
        """A mistake at this path, or at what is nearest around it."""
        at = next((self.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.lines), 0)
        self.found.append(Finding(at, text))


def quoted(names: Iterable[str]) -> str:
    """Names as a list to read."""
    return ", ".join(f'"{name}"' for name in names) or "(none)"


def suggestion(name: Any, names: Iterable[str]) -> str:
    """``did you mean "above"?`` where a name is near to one of those that there are, else "".

    >>> suggestion("Treshold", ["severity", "threshold"]), suggestion("xyz", ["threshold"])
    ('did you mean "threshold"?', '')
    """
    forms = {n.lower(): n for n in names}
    said = str(name).strip().lower()
    near = get_close_matches(said.replace("-", "_"), forms, n=1) or get_close_matches(said, forms, n=1)
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


# -- tables --------------------------------------------------------------------------------------------------------------


def filled(value: Any) -> Any:
    """A value with the environment in its texts: of ${NAME} its variable, of ${NAME:-text} the text where that is not set.

    ValueError names a variable that is not there. $${NAME} stands for ${NAME} itself.

    >>> filled(["${NO_SUCH_FOLDER:-/var/lib}/main.db", "$${HOME}", 7])
    ['/var/lib/main.db', '${HOME}', 7]
    """
    if isinstance(value, dict):
        return {key: filled(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner) for inner in value]
    return _VARIABLE.sub(_variable, value) if isinstance(value, str) and "${" in value else value


_VARIABLE = re.compile(r"\$?\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\})?")


def _variable(found: re.Match[str]) -> str:
    name, default = found[1], found[3]
    if found[0].startswith("$$"):
        return found[0][1:]
    if name is None:
        raise Unset("must be written ${NAME} or ${NAME:-text}; $${ stands for ${ itself")
    if found[2] is not None:
        return os.environ.get(name) or default  # as in a shell, also where the variable is empty
    if name not in os.environ:
        raise Unset(f"names the environment variable {name}, which is not set; ${{{name}:-text}} would be text then")
    return os.environ[name]


class Unset(ValueError):
    """A variable that is not there; the text says which."""


def read_value(kind: Kind, value: Any, path: Path, findings: Findings) -> Any:
    """What a kind makes of a value, in which the environment is filled; None and a finding where it is not allowed."""
    try:
        if kind.each is None:
            return kind.read(filled(value))
        if not isinstance(value, list) or not value:
            raise ValueError
    except Unset as error:
        return findings.about(path, str(error))
    except (ValueError, TypeError) as error:
        hint = f"; {error}" if str(error).startswith("did you") else ""
        findings.about(path, f"must be {kind.what}, got {shown(value)}{hint}")
        return None
    taken: list[Any] = []
    for i, element in enumerate(value):
        read = read_value(kind.each, element, (*path, i), findings)
        if read is not None and read in taken:
            findings.add((*path, i), f"{dotted(path)} must not hold anything twice, got {shown(element)} again")
        taken.append(read)
    return tuple(taken)


def check_keys(table: Mapping[str, Any], allowed: Iterable[str], path: Path, findings: Findings) -> None:
    """A finding for each key that there is not, with a suggestion."""
    allowed = tuple(allowed)
    for key in table:
        if key not in allowed:
            near = suggestion(key, allowed)
            say = f"{near} Allowed: " if near else "allowed: "
            findings.add((*path, key), f"unknown key {dotted((*path, key))}; {say}{', '.join(allowed)}")


def keys_of(table: Table) -> dict[str, Field]:
    """The keys of a table and their fields; of a family of tables the key ``type``, and those of each of them.

    A key of a family that several tables have stands where it stands in each: behind what is in front of it anywhere.
    """
    if not isinstance(table, Mapping):
        return {f.metadata["key"] or f.name: f for f in dataclasses.fields(table) if "kind" in f.metadata}
    order: list[str] = []
    fields: dict[str, Field] = {}
    for own in map(keys_of, table.values()):
        at = len(order)
        for key in reversed(own):
            if key in order:
                at = order.index(key)
            else:
                order.insert(at, key)
        fields = own | fields
    kind = entry(one_of(table))
    kind.name = "type"
    return {"type": kind, **{key: fields[key] for key in order}}


def read_table(cls: Table, table: Any, path: Path, findings: Findings, **known: Any) -> Any:
    """The dataclass of a table, None where anything is wrong; ``known`` are fields that are not keys, such as its name.

    Of a family the key ``type`` chooses the dataclass, and the other keys must be of that one.
    """
    before = len(findings.found)
    if not isinstance(table, dict):
        findings.about(path, f"must be a table, written [{dotted(path)}], got {shown(table)}")
        return None
    fields, family = keys_of(cls), cls if isinstance(cls, Mapping) else {}
    check_keys(table, fields, path, findings)
    word = str(table.get("type"))
    with contextlib.suppress(ValueError):  # which is said below
        word = filled(word)
    own = keys_of(family[word]) if word in family else fields
    values = dict(known)
    for key, field in (fields | own).items():
        if key in table:
            values[field.name] = read_value(field.metadata["kind"], table[key], (*path, key), findings)
        elif field.default is dataclasses.MISSING and (key == "type" or not family):
            findings.about(path, f"lacks the key {key}, which must be {field.metadata['kind'].what}")
    if len(findings.found) > before:
        return None
    mistakes: list[tuple[str, str]] = []
    if family:
        goes = {key: [name for name in family if key in keys_of(family[name])] for key in fields if key != "type"}
        needs = [key for key, field in own.items() if field.default is dataclasses.MISSING]
        mistakes += chosen(table, "type", values.pop("type"), goes, needs)
        names = {field.name for field in own.values()} | set(known)
        values = {**dict.fromkeys(needs), **{name: values[name] for name in names & set(values)}}
    made: Any = (cls if isinstance(cls, type) else cls[word])(**values)
    mistakes += made.mistakes(frozenset(table)) if hasattr(made, "mistakes") else ()
    for key, text in mistakes:
        findings.about((*path, key) if key in table else path, text)
    if mistakes:
        return None
    return made.settled() if hasattr(made, "settled") else made


def chosen(given: Iterable[str], choice: str, value: Any, goes: Keys, needs: Iterable[str]) -> Mistakes:
    """Mistakes of keys that go only with other values of ``choice`` than this one, and of those that this one needs."""
    for key in given:
        if key in goes and value not in goes[key]:
            fits = " or ".join(f'"{other}"' for other in goes[key])
            yield key, f'goes only with {choice} = {fits}, got {choice} = "{value}"'
    for key in needs:
        if key not in given:
            yield key, f'lacks the key {key}, which {choice} = "{value}" needs'


def either(**two: Any) -> Mistakes:
    """A mistake unless just one of two keys is given."""
    (key, value), (other, another) = two.items()
    if (value is None) == (another is None):
        yield "", f"must have either {key} or {other}, got {'neither' if value is None else 'both'}"


# -- lines ---------------------------------------------------------------------------------------------------------------


_BLANK, _QUOTED = r"(?P<blank>(?:\s|#[^\n]*)+)", r"""  "(?:\\.|[^"\\])*" | '[^']*' """.replace(" ", "")
_LONG = r"""  \"{3}(?:\\.|[^\\])*?\"{3}(?!") | '{3}.*?'{3}(?!') """.replace(" ", "")
_HEAD = re.compile(
    rf"""{_BLANK}|(?P<head>\[(?:{_QUOTED}|[^]"'])*]]?)|(?P<shut>}})|,|(?P<key>(?:{_QUOTED}|[^="'])+=\s*)"""
)
_BARE = r"{\s*}|[^],}#\n]+"  # numbers, booleans, dates (which may hold a space), and a table without keys
_VALUE = re.compile(
    rf"{_BLANK}|(?P<open>\[|{{(?!\s*}}))|(?P<shut>[]}}])|,|(?P<value>{_LONG}|{_QUOTED}|{_BARE})", re.DOTALL
)
_OWN = "\0 its line"  # below each header: a key that nobody writes


def lines(text: str) -> dict[Path, int]:
    """The line, from 1, of each table, key and array element: by its path, such as ("rules", "gap", "above").

    ``text`` must be valid TOML; what it gives for other text is undefined. The text is read with the number of its line in
    place of each value, at the beginning of each array and below each header.

    >>> lines('a = 1\\n[b]\\nc.d = [\\n 5,\\n 6]')
    {('a',): 1, ('b',): 2, ('b', 'c'): 3, ('b', 'c', 'd'): 3, ('b', 'c', 'd', 0): 4, ('b', 'c', 'd', 1): 5}
    """
    numbered, line, at, inside, kind = "", 1, 0, "", None  # inside: the brackets that are open
    while at < len(text):
        found = (_VALUE if kind == "key" or inside[-1:] == "[" else _HEAD).match(text, at)
        assert found is not None, "not valid TOML"
        kind, token, at = found.lastgroup, found[0], found.end()
        inside = inside[:-1] if kind == "shut" else inside + token * (kind == "open")
        beside = {
            "value": str(line),
            "open": f"[{line}," if token == "[" else token,
            "head": f'{token}\n"\\u0000 its line" = {line}',
        }
        numbered += beside.get(kind or "", token)
        line += token.count("\n")
    places: dict[Path, int] = {}
    for key, value in tomllib.loads(numbered).items():
        _place(value, (key,), places)
    return places


def _place(value: Any, path: Path, places: dict[Path, int]) -> int:
    """Where a value begins, which goes into ``places``, and all that is in it: with the first of these, or its own number."""
    places[path] = value
    if not isinstance(value, int):
        inner = value.items() if isinstance(value, dict) else enumerate(value, -isinstance(value[0], int))
        places[path] = min(part if key in (-1, _OWN) else _place(part, (*path, key), places) for key, part in inner)
    return places[path]


# -- digest --------------------------------------------------------------------------------------------------------------


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
    continued where ``digest((model, window))`` is the same.

    >>> from streamcal.monitor.config.settings import WindowTable
    >>> digest(WindowTable("day", time=86400.0)), digest(WindowTable("day", time=86400.0, panes=61))
    ('1dcb61058c485e50', 'b35ed3ada1b0f39e')
    """
    text = json.dumps(plain(thing), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
