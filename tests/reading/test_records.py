"""Quotes that are never closed, arrays of JSON, packed files: every line and every element is accounted for, in linear time."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.reading import SourceError
from streamcal.reading.cells import EventBatch
from streamcal.reading.elements import elements
from streamcal.reading.formats import Csv, JsonArray
from streamcal.reading.packed import Unpacked
from streamcal.reading.records import LONGEST, CsvRecords
from streamcal.reading.roles import Roles
from streamcal.reading.tables import open_source

PLAIN = Roles(("p",), "y")


def batches(path: Path, **options: Any) -> list[EventBatch]:
    return list(open_source(str(path), **options).batches(PLAIN))


def accounted(found: list[EventBatch]) -> tuple[int, int, int]:
    """Events, missing rows, bad rows."""
    return sum(map(len, found)), sum(b.missing_rows for b in found), sum(b.bad_rows for b in found)


# ---- quotes


@given(
    st.lists(
        st.sampled_from(["0.5,1,a", "0.5,0,", '0.5,1,"quoted, here"', '0.5,0,"say ""no"""', '0.5,1,6" long']),
        min_size=1,
    ),
    st.data(),
)
def test_every_line_is_accounted_for_wherever_a_quote_is_lost(lines: list[str], data: st.DataObject) -> None:
    """One quote more somewhere, in front of a cell or inside of one: no line but its own is lost."""
    lost = data.draw(st.integers(0, len(lines) - 1))
    cells = lines[lost].split(",", 2)
    cell = data.draw(st.integers(0, 2))
    cells[cell] = '"' + cells[cell] if data.draw(st.booleans()) else cells[cell] + '"'
    lines[lost] = ",".join(cells)
    text = "p,y,note\n" + "\n".join(lines) + "\n"
    source = Csv(text.encode(), arrow=False)
    source.begin(PLAIN)
    block = text.encode()[source.taken :]
    whole = source.cut(block)
    found = [source.parse(part, source.first_line) for part in (block[:whole], block[whole:]) if part]
    events, missing, bad = accounted(found)
    assert events + missing + bad == len(lines)
    assert bad <= 1
    assert all(b.line in (lost + 2, lost + 2 - block[:whole].count(b"\n")) for batch in found for b in batch.bad)


@given(st.lists(st.lists(st.text(st.sampled_from('ab",\n ')), min_size=2, max_size=3), min_size=1, max_size=6))
def test_records_are_those_of_the_csv_module_where_all_quotes_are_closed(rows: list[list[str]]) -> None:
    """Written by Python's csv module, with ends of lines inside of cells: read as it reads them."""
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    found = [*CsvRecords(",").rows(file.getvalue())]
    assert [row for _, row, _ in found] == rows and not any(broken for *_, broken in found)
    starts = [sum("".join(row).count("\n") + 1 for row in rows[:i]) for i in range(len(rows))]
    assert [line for line, *_ in found] == starts


@given(st.text(st.sampled_from('a",\n '), max_size=60))
def test_records_are_all_of_a_text(text: str) -> None:
    """Whatever the quotes: records in order, none twice, none lost; those that are whole close each of their quotes."""
    found = [*CsvRecords(",").split(text)]
    assert "".join(record for _, record, _ in found) == text
    lines = 0
    for line, record, is_whole in found:
        assert line == lines
        lines += record.count("\n")
        assert is_whole or record.count("\n") <= 1
    rows = [*CsvRecords(",").rows(text)]
    assert [line for line, *_ in rows] == [line for line, *_ in found]
    assert [broken for *_, broken in rows] == ["" if is_whole else record for _, record, is_whole in found]


def test_a_quote_that_is_never_closed_costs_its_own_line(tmp_path: Path) -> None:
    """The case of A4: 200,011 rows, of which one is bad."""
    path = tmp_path / "q.csv"
    path.write_text("p,y,seg\n" + "0.5,1,a\n" * 10 + '0.5,1,"b\n' + "0.5,1,a\n" * 200_000)
    for options in ({}, {"block": 1 << 16}, {"arrow": False}):
        found = batches(path, **options)
        assert accounted(found) == (200_010, 0, 1)
        (bad,) = (b for batch in found for b in batch.bad)
        assert (bad.line, bad.value) == (12, 'a quote that is never closed: 0.5,1,"b\n')


@pytest.mark.parametrize(
    "line",
    ['x","y,1\n', '0.5,1,"b\n', '"\n', '","\n', '0.5,"1\n"",\n', '"" ,"\n', '0.5,1," ""\n'],
)
def test_time_is_linear_in_the_quotes_that_are_lost(line: str) -> None:
    """Each line alone could open a record that goes to the end: looked through once, not once a line."""

    def seconds(n: int) -> float:
        text, best = line * n, float("inf")
        for _ in range(3):
            start = time.process_time()
            assert "".join(record for _, record, _ in CsvRecords(",").split(text)) == text
            best = min(best, time.process_time() - start)
        return best

    assert seconds(40_000) < 8 * seconds(10_000) + 0.05  # quadratic would be 16


def test_a_header_with_a_quote_that_is_never_closed(tmp_path: Path) -> None:
    """It was a traceback of the csv module, or a table of one column."""
    for more in (10, LONGEST):
        path = tmp_path / "q.csv"
        path.write_text('p,y,"seg\n' + "0.5,1,a\n" * more)
        with pytest.raises(SourceError, match="line 1, the header: a quote that is never closed"):
            open_source(str(path))
    path.write_text('\n\n"p","y","a\nb"\n0.5,1,a\n')
    assert accounted(batches(path)) == (1, 0, 0)


# ---- arrays of JSON

OBJECTS = st.dictionaries(
    st.sampled_from(["p", "y", "note"]), st.sampled_from([0.5, 1, 'a]}"\\', "[{", None, [1, {"b": "}"}], {}])
)


@given(st.lists(OBJECTS | st.integers(0, 9), max_size=6), st.sampled_from([None, 1]), st.integers(1, 9))
def test_elements_are_those_of_the_array(things: list[Any], indent: int | None, size: int) -> None:
    """Written by Python's json module, in pieces of any size."""
    text = json.dumps(things, indent=indent).encode()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    found = b"".join(elements(iter(pieces)))
    assert [json.loads(line) for line in found.splitlines()] == things
    if things:
        with pytest.raises(SourceError, match="does not end"):
            list(elements(iter([text.rstrip()[:-1]])))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b'[{"p": 0.5, "y": 1}, 7, null, {"p": 0.25, "y": 0}]', (2, 0, 2)),
        (b'\xef\xbb\xbf \n[\n {"p": 0.5, "y": null},\n {"p": 0.5,\n  "y": 1}\n,]\n', (1, 1, 0)),
        (b'[{"p": 0.5, "y": 1},,{"p": 0.25, "y": 0}]', (2, 0, 1)),
        (b'[{"p": 0.5, "y": 1}]\n[{"p": 0.25, "y": 0}]\n', (1, 0, 1)),
    ],
)
def test_an_array_is_a_table_whose_rows_are_its_elements(
    tmp_path: Path, text: bytes, rows: tuple[int, int, int]
) -> None:
    path = tmp_path / "in.json"
    path.write_bytes(text)
    source = open_source(str(path))
    assert (source.name, source.unit, type(source)) == ("json", "row", JsonArray)
    assert accounted(list(source.batches(PLAIN))) == rows


def test_an_array_without_a_line_feed_is_read_a_piece_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text(json.dumps([{"id": i, "p": 0.5, "y": i % 2} for i in range(20_000)]))
    found = batches(path, block=1 << 16)
    assert accounted(found) == (20_000, 0, 0) and len(found) > 5


# ---- packed files

TEXT = b"p,y\n" + b"0.5,1\n0.25,0\n" * 5000


def zst(data: bytes) -> bytes:
    return bytes(pytest.importorskip("pyarrow").compress(data, codec="zstd", asbytes=True))


PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "zst": zst}


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("end", ["csv", "json"])
def test_packed_files_are_read(tmp_path: Path, name: str, end: str) -> None:
    text = TEXT if end == "csv" else json.dumps([{"p": 0.5, "y": 1}, {"p": 0.25, "y": 0}] * 5000).encode()
    path = tmp_path / f"in.{end}.{name}"
    path.write_bytes(PACKERS[name](text[:30_000]) + PACKERS[name](text[30_000:]))  # two, one behind the other
    assert accounted(batches(path)) == (10_000, 0, 0)
    whole = path.read_bytes()
    for wrong in (whole[: len(whole) // 3], whole[:40] + bytes(20) + whole[60:]):
        path.write_bytes(wrong)
        with pytest.raises(SourceError, match="file is damaged or not complete"):
            batches(path)


@pytest.mark.parametrize("name", PACKERS)
def test_a_packed_file_can_be_sought(tmp_path: Path, name: str) -> None:
    path = tmp_path / "in"
    path.write_bytes(PACKERS[name](TEXT))
    with open(path, "rb") as raw:
        file = Unpacked(raw, {"gz": "gzip", "bz2": "bzip2", "zst": "zstd"}[name])
        for place, size in ((50_000, 10), (3, 7), (0, 4), (70_000, 100), (len(TEXT), 5), (1, 1)):
            file.seek(place)
            assert file.read(size) == TEXT[place : place + size]


def test_a_small_packed_file_with_very_much_in_it_is_never_whole_in_memory(tmp_path: Path) -> None:
    """1 GB of one line in 1 MB: given up at the longest line."""
    path = tmp_path / "in.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(64):
            file.write(b"a" * (1 << 20))
    with pytest.raises(SourceError, match="line 1 is longer than 16 MB"):
        open_source(str(path))


# ---- Arrow


@pytest.mark.parametrize("form", ["file", "stream", "feather"])
def test_arrow_files_are_read(tmp_path: Path, form: str) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather

    table, path = pa.table({"id": range(1000), "y": [0, 1] * 500, "p": [0.25, None] * 500}), tmp_path / "in"
    if form == "feather":
        feather.write_feather(table, str(path))
    else:
        kind = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
        with kind(str(path), table.schema) as writer:
            writer.write_table(table, 300)
    source = open_source(str(path))
    assert (source.name, source.columns) == ("arrow", ["id", "y", "p"])
    assert accounted(list(source.batches(PLAIN))) == (500, 500, 0)
    whole = path.read_bytes()
    for wrong in (whole[:200], whole[: len(whole) - 2000]):
        path.write_bytes(wrong)
        with pytest.raises(SourceError, match="damaged|not an Arrow file"):
            batches(path)


def test_offsets_of_a_stranger_are_checked(tmp_path: Path) -> None:
    """Arrow would read beyond the buffer of a column of text whose offsets are wrong."""
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "in.arrow"
    table = pa.table({"p": [0.5, 0.25], "y": ["0", "1"]})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    offsets = b"".join(n.to_bytes(4, "little") for n in (0, 1, 2))
    whole = path.read_bytes()
    assert accounted(batches(path)) == (2, 0, 0) and whole.count(offsets) == 1
    path.write_bytes(whole.replace(offsets, offsets[:8] + (1 << 30).to_bytes(4, "little")))
    with pytest.raises(SourceError, match="damaged"):
        batches(path)
