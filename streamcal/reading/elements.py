"""One JSON array, in pieces -> its elements, each on a line of its own, so that JSON Lines reads them; only the last is held."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from streamcal.reading import SourceError
from streamcal.reading.lines import BOM
from streamcal.reading.records import HOPELESS

# what gives an array its structure; a text in quotes is one token, and group 1 is empty where its end is yet to come
TOKENS = re.compile(rb'[\[\]{},]|"[^"\\]*(?:\\.[^"\\]*)*("?)', re.DOTALL)
OPENING, CLOSING = frozenset(b"[{"), frozenset(b"]}")
SHOWN = 200  # bytes that are kept of what stands behind the array


def elements(pieces: Iterator[bytes], is_whole: Callable[[], bool] = lambda: True) -> Iterator[bytes]:
    r"""Lines, as many at once as a piece completes. SourceError if the array does not end, though the text does (``is_whole``).

    >>> list(elements(iter([b'[{"a": "]"},', b'{"a":\n [1]}, 7]'])))
    [b'{"a": "]"}\n', b'{"a":  [1]}\n7\n']
    """
    array = Array()
    for piece in pieces:
        yield array.add(piece)
    if array.behind:  # another array, say: it is no object, and is counted as one line that cannot be read
        yield array.behind.replace(b"\n", b" ")[:SHOWN] + b"\n"
    if array.depth and is_whole():
        raise SourceError("the JSON array does not end; is the file cut?")


class Array:
    """How far an array was read: ``depth`` of brackets, 1 outside of all elements, 0 behind its end."""

    def __init__(self) -> None:
        self.depth, self.behind = -1, b""  # -1: not yet begun
        self._held = b""  # from the start of the element on
        self._at = 0  # what of it was looked at
        self._count = 0

    def add(self, piece: bytes) -> bytes:
        """The elements that a piece completes, each with a line feed behind it."""
        if self.depth == 0:
            self.behind = (self.behind + piece.strip())[: SHOWN + 1]
            return b""
        data, found = self._held + piece, []
        if self.depth < 0:
            data = data.removeprefix(BOM).lstrip()
            if not data:
                return b""
            if not data.startswith(b"["):
                raise SourceError("not a JSON array")
            self.depth = 0
        start, self._at = 0, self._at
        for token in TOKENS.finditer(data, self._at):
            sign = data[token.start()]
            if sign in OPENING:
                self.depth += 1
                start = token.end() if self.depth == 1 else start
            elif sign in CLOSING or (sign == 0x2C and self.depth == 1):
                self.depth -= sign != 0x2C
                if self.depth == 1 and sign != 0x2C:
                    continue
                if self.depth <= 1:
                    found.append(self._element(data[start : token.start()], self.depth == 0))
                    start = token.end()
                if self.depth == 0:
                    self.behind = data[start:].strip()[: SHOWN + 1]
                    self._held, self._at = b"", 0
                    return b"".join(found)
            elif not token[1] and sign == 0x22:
                self._held, self._at = data[start:], token.start() - start
                break
        else:
            self._held, self._at = data[start:], len(data) - start
        if len(self._held) > HOPELESS:
            raise SourceError(f"row {self._count + 1} is longer than {HOPELESS >> 20} MB; is this JSON?")
        return b"".join(found)

    def _element(self, text: bytes, is_last: bool) -> bytes:
        """An element on one line: a line feed stands between its tokens, if anywhere. Nothing between two commas is none."""
        text = text.strip().replace(b"\r", b" ").replace(b"\n", b" ")
        if not text and is_last:
            return b""  # of an empty array, or behind a last comma
        self._count += 1
        return (text or b"null") + b"\n"
