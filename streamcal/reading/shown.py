r"""Text of others, for eyes: names of files, columns, segments and labels, cells, lines, messages of a server.

Whoever wrote it may clear a screen, set its title, hide a row or fake a verdict: no such character is printed as it is. One
rule for every place that prints. What a machine reads follows its own rules: JSON escapes the same characters as \uXXXX and so
stays the same JSON, XML (SVG, HTML) escapes its markup and cannot hold most of these characters at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# C0, DEL and C1 move the cursor or begin a sequence; U+061C, 200E-F, 202A-E and 2066-9 turn the direction of what follows;
# U+2028-9 end a line; the others are invisible, so that two names look the same. Half a surrogate is no text and cannot be
# written. U+200C-D stay: Persian and emoji need them.
HOSTILE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
WIDE = 200  # characters of a text of others in a message: enough to find it again


def _escaped(found: re.Match[str]) -> str:
    """As Python writes it: \\x1b, \\u202e."""
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown(text: object, width: int | None = WIDE) -> str:
    r"""A text of others inside of a line: on one line, no longer than this, and nothing in it moves or hides anything.

    >>> shown("a\x1b[2J\nnot calibrated"), shown("evil" * 99, 10)
    ('a\\x1b[2J\\x0anot calibrated', 'evilevi...')
    """
    whole = str(text)
    if width is None:
        return HOSTILE.sub(_escaped, whole)
    # cut before it is escaped, too: a cell may be a megabyte long
    safe = HOSTILE.sub(_escaped, whole[: width + 1])
    return safe if len(safe) <= width else safe[: width - 3] + "..."


def listed(names: Sequence[str], most: int = 20) -> str:
    """Names of others in a line, the first ones: a table may have a million columns.

    >>> listed(["p", "y", "seg"], most=2)
    'p, y and 1 more'
    """
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(shown(name, 60) for name in names[:most]) + rest


def lines(*whole: str) -> str:
    r"""Lines on their way to a terminal: each stays one, whatever is in it.

    >>> print(lines("one\nlimit held", "two\x1b[A"))
    one\x0alimit held
    two\x1b[A
    """
    return "\n".join(HOSTILE.sub(_escaped, line) for line in whole)


def in_json(document: str) -> str:
    r"""The same JSON, on one line, without a character that acts on a terminal: only its strings hold any.

    >>> print(in_json('{"segment": "\u202eevil"}'))
    {"segment": "\u202eevil"}
    """
    return document if document.isascii() and "\x7f" not in document else HOSTILE.sub(_units, document)


def _units(found: re.Match[str]) -> str:
    """The UTF-16 units of a character, as JSON names them."""
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
