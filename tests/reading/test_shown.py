"""Text of others: no character of it acts on a terminal, wherever it is cut, and JSON stays the same JSON."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from streamcal.reading.shown import HOSTILE, in_json, lines, listed, shown

# Of the characters that are not drawn those of Unicode's classes Cc, Cf, Cs, Zl and Zp act on what is drawn; these may stay:
DRAWN = "\u200c\u200d"  # joiners that letters of Persian and emoji need
HOSTILE_TEXT = st.text(
    st.sampled_from("ab\x00\x07\x1b\x7f\x9b\u061c\u200f\u2028\u202e\u2066\ufeff\ud800\U000e0041\n\r\té")
)


def test_every_character_that_acts_is_hostile() -> None:
    """Held against the tables of Unicode: marks of direction, controls, halves of surrogates, ends of lines, tags."""
    for code in range(0x110000):
        sign, kind = chr(code), unicodedata.category(chr(code))
        acts = kind in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(sign) in (
            *("LRE", "RLE", "LRO", "RLO", "PDF"),
            *("LRI", "RLI", "FSI", "PDI", "BN"),
        )
        if acts and sign not in DRAWN and kind != "Cn":
            assert HOSTILE.match(sign), hex(code)
        if kind[0] in "LMNPS":
            assert not HOSTILE.match(sign), hex(code)


@given(HOSTILE_TEXT, st.integers(10, 30))
def test_shown_is_one_line_of_at_most_so_many_characters(text: str, width: int) -> None:
    safe = shown(text, width)
    assert not HOSTILE.search(safe) and len(safe) <= width
    if not HOSTILE.search(text) and len(text) <= width:
        assert safe == text


@given(st.lists(HOSTILE_TEXT, min_size=1, max_size=4))
def test_a_line_stays_one(text: list[str]) -> None:
    page = lines(*text)
    assert page.count("\n") == len(text) - 1
    assert not HOSTILE.search(page.replace("\n", ""))


@given(st.text(st.characters(exclude_categories=["Cs"])) | HOSTILE_TEXT)
def test_json_stays_the_same_json(text: str) -> None:
    document = json.dumps({"segment": text}, ensure_ascii=False)
    safe = in_json(document)
    assert json.loads(safe) == json.loads(document)
    assert not HOSTILE.search(safe)


def test_a_megabyte_costs_what_is_shown_of_it() -> None:
    assert shown("\x1b" * 10_000_000, 20) == "\\x1b\\x1b\\x1b\\x1b\\..."
    assert listed([f"c{i}" for i in range(1_000_000)], 2) == "c0, c1 and 999,998 more"
