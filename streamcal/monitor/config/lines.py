"""On which line of a TOML file a table, key or element stands: the parser of the standard library does not say."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]

_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_KEY = re.compile(r"""\s*([A-Za-z0-9_-]+|"(?:\\.|[^"\\])*"|'[^']*')\s*""")
_TEXT = re.compile(
    r'''"""(?:\\.|[^\\])*?"""(?!")|\'\'\'.*?\'\'\'(?!\')|"(?:\\.|[^"\\])*"|'[^']*\'''',
    re.DOTALL,
)
_BARE = re.compile(r"[^,\]}#\n]+")  # numbers, booleans, dates (which may hold a space)


def lines(text: str) -> dict[Path, int]:
    """The line, from 1, of each table, key and array element: by its path, such as ("rules", "gap", "above").

    ``text`` must be valid TOML; what it gives for other text is undefined.

    >>> lines('a = 1\\n[b]\\nc.d = [\\n 5,\\n 6]')
    {('a',): 1, ('b',): 2, ('b', 'c'): 3, ('b', 'c', 'd'): 3, ('b', 'c', 'd', 0): 4, ('b', 'c', 'd', 1): 5}
    """
    return _Scan(text).found


class _Scan:
    """One pass over the text; ``at`` is where it is."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.ends = [i for i, c in enumerate(text) if c == "\n"]
        self.found: dict[Path, int] = {}
        self.lengths: dict[Path, int] = {}  # of arrays of tables, so far
        table: Path = ()
        while self._next():
            if self._next() == "[":
                table = self._header()
            else:
                self._pair(table)

    def _next(self) -> str:
        """The next character that means something, "" at the end."""
        self._take(_BLANK)
        return self.text[self.at : self.at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        assert found is not None, "not valid TOML"
        self.at = found.end()
        return found[found.re.groups]

    def _mark(self, path: Path, start: int) -> None:
        self.found.setdefault(path, bisect_left(self.ends, start) + 1)

    def _keys(self) -> list[str]:
        keys = [self._key()]
        while self.text[self.at] == ".":
            self.at += 1
            keys.append(self._key())
        return keys

    def _key(self) -> str:
        raw = self._take(_KEY)
        return str(tomllib.loads(f"k = {raw}")["k"]) if raw[0] in "\"'" else raw

    def _header(self) -> Path:
        """[a.b] or [[a.b]]: the path of the table that begins."""
        start, many = self.at, self.text.startswith("[[", self.at)
        self.at += 1 + many
        path: Path = ()
        *parents, last = self._keys()
        for key in parents:
            path = self._into((*path, key), start)
        path = (*path, last)
        if many:
            self._mark(path, start)
            self.lengths[path] = self.lengths.get(path, 0) + 1
        path = self._into(path, start)
        self.at += 1 + many
        return path

    def _into(self, path: Path, start: int) -> Path:
        """The path itself, or that of the last table if it is an array of tables."""
        self._mark(path, start)
        if path in self.lengths:
            path = (*path, self.lengths[path] - 1)
            self._mark(path, start)
        return path

    def _pair(self, table: Path) -> None:
        start = self.at
        for key in self._keys():
            table = (*table, key)
            self._mark(table, start)
        self.at += 1
        self._value(table)

    def _value(self, path: Path) -> None:
        first = self._next()
        if first in "[{":
            self._inside(path, first)
        else:
            self._take(_TEXT if first in "\"'" else _BARE)

    def _inside(self, path: Path, bracket: str) -> None:
        """The elements of an array or the pairs of an inline table."""
        self.at += 1
        n = 0
        while (following := self._next()) not in "]}":
            if following == ",":
                self.at += 1
            elif bracket == "{":
                self._pair(path)
            else:
                self._mark((*path, n), self.at)
                self._value((*path, n))
                n += 1
        self.at += 1
