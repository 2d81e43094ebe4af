"""Tables in, batches out: what a cell means, in every format and on every path."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal.reading import SourceError, formats, lines
from streamcal.reading.cells import Clock, EventBatch, number
from streamcal.reading.formats import Csv, Format, Jsonl, blocks
from streamcal.reading.roles import Roles, Wanted, choose
from streamcal.reading.tables import ahead, open_source
from streamcal.reading.waiting import Patience, Stop

PLAIN = Roles(("p",), "y")


def batches(path: Path, columns: Roles = PLAIN, **options: Any) -> list[EventBatch]:
    return list(open_source(str(path), **options).batches(columns))


def events(found: list[EventBatch]) -> list[tuple[float, ...]]:
    return [(float(p), float(y)) for b in found for p, y in zip(b.p, b.y, strict=True)]


def write(tmp_path: Path, data: bytes | str, name: str = "in.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.fixture(params=[True, False], ids=["arrow", "plain"])
def arrow(request: pytest.FixtureRequest) -> bool:
    if request.param:
        pytest.importorskip("pyarrow")
    return bool(request.param)


# ---- CSV: the ways in which a file differs from the one in the manual


@pytest.mark.parametrize(
    "data",
    [
        b"p,y\n0.25,1\n0.5,0\n",
        b"\xef\xbb\xbfp,y\n0.25,1\n0.5,0\n",
        b"p,y\r\n0.25,1\r\n0.5,0\r\n",
        b"p,y\n0.25,1\n0.5,0",
        b" p , y \n 0.25 ,\t1 \n0.5, 0\n",
        b"\n\np,y\n\n0.25,1\n\n0.5,0\n\n",
        b"p;y\n0.25;1\n0.5;0\n",
        b"p\ty\n0.25\t1\n0.5\t0\n",
        b'"p","y"\n"0.25","1"\n"0.5","0"\n',
        b'p, "y"\n0.25, "1"\n0.5, "0"\n',
        b"y,id,p\n1,007,0.25\n0,008,.5\n",
        b"p,y\n0.25,true\n0.5,False\n",
        b"p,y\n2.5e-1,TRUE\n5E-1,0.0\n",
        b"p,y\n+.25,1.0\n0.5,false\np,y\n",
    ],
)
def test_csv_shapes_that_mean_the_same(tmp_path: Path, data: bytes, arrow: bool) -> None:
    found = batches(write(tmp_path, data), arrow=arrow)
    assert events(found) == [(0.25, 1.0), (0.5, 0.0)]
    assert sum(b.rows for b in found) == 2


def test_empty_cells_are_missing_not_negative(tmp_path: Path, arrow: bool) -> None:
    """Field report csv-empty-int: an empty cell is a missing value, neither an error nor a zero."""
    data = "p,y,w\n0.1,,1\n,1,1\n0.3,1,\n0.4,None,1\n0.5,nan,1\nNaN,0,1\nnull,null,1\n0.8,NA,1\n0.9,0,2\n"
    (batch,) = batches(write(tmp_path, data), Roles(("p",), "y", weight="w"), arrow=arrow)
    assert events([batch]) == [(0.9, 0.0)]
    assert list(batch.w or ()) == [2.0]
    assert (batch.missing_rows, batch.bad_cells, batch.rows) == (8, 0, 9)
    assert batch.missing == {"p": 3, "y": 5, "w": 1}


def test_bad_cells_are_named_by_line_column_and_value(tmp_path: Path, arrow: bool) -> None:
    data = 'p,y,note\n0.1,1,"two\nlines"\n\nhigh,0,\n0.3,maybe,\n0.4,1\n0.5,2,x\n0.6,1,last\n'
    (batch,) = batches(write(tmp_path, data), arrow=arrow)
    assert events([batch]) == [(0.1, 1.0), (0.6, 1.0)]
    assert [(b.line, b.column, b.value) for b in batch.bad] == [
        (5, "p", "high"),
        (6, "y", "maybe"),
        (7, None, "2 cells instead of 3"),
        (8, "y", "2"),
    ]
    assert (batch.bad_cells, batch.bad_rows, batch.rows) == (4, 4, 6)


def test_lines_stay_right_in_later_blocks(tmp_path: Path, arrow: bool) -> None:
    rows = [f"0.{i % 9}1,{i % 2}" for i in range(500)]
    rows[137], rows[498] = "oops,1", "0.5,maybe"
    found = batches(write(tmp_path, "\n".join(["p,y", *rows])), block=64, arrow=arrow)
    assert len(found) > 10
    assert [(b.line, b.column, b.value) for f in found for b in f.bad] == [(139, "p", "oops"), (500, "y", "maybe")]


@pytest.mark.parametrize("block", [1, 7, 16, 64, 1 << 20])
def test_a_quoted_newline_never_splits_a_record(tmp_path: Path, block: int) -> None:
    data = 'note,p,y\n"a\n\nb",0.1,1\n"say ""x\n""",0.2,0\nit is 5" long,0.3,1\n, 0.4,0\n"c\r\n,d",0.5,1\n'
    found = batches(write(tmp_path, data), block=block)
    assert events(found) == [(0.1, 1.0), (0.2, 0.0), (0.3, 1.0), (0.4, 0.0), (0.5, 1.0)]
    assert sum(b.bad_cells for b in found) == 0


def test_a_quote_that_never_closes_does_not_swallow_memory(tmp_path: Path) -> None:
    data = 'note,p,y\n"open,0.1,1\n' + "x,0.2,1\n" * 400_000
    found = batches(write(tmp_path, data), block=1 << 18)
    assert sum(b.bad_rows for b in found) > 0
    assert sum(len(b) for b in found) > 100_000


def test_segments_are_text(tmp_path: Path, arrow: bool) -> None:
    data = "p,y,id\n0.1,1,007\n0.2,0,7\n0.3,1, 007 \n0.4,1,\n0.5,0,None\n"
    (batch,) = batches(write(tmp_path, data), Roles(("p",), "y", segment="id"), arrow=arrow)
    assert batch.segment is not None
    assert [batch.segments[i] for i in batch.segment] == ["007", "7", "007", "", "None"]


@pytest.mark.parametrize(
    ("pos_label", "cells", "expected"),
    [
        ("yes", ["yes", "no", " yes ", "no"], [1, 0, 1, 0]),
        ("2", ["2", "2.0", "1", "1.0"], [1, 1, 0, 0]),
        ("1", ["1", "1.0", "?", "0"], [1, 1, 0]),
        ("0", ["0", "1", "-0", "0.0"], [1, 0, 1, 1]),
    ],
)
def test_pos_label(tmp_path: Path, arrow: bool, pos_label: str, cells: list[str], expected: list[int]) -> None:
    data = "p,y\n" + "".join(f"0.5,{c}\n" for c in cells)
    (batch,) = batches(write(tmp_path, data), Roles(("p",), "y", pos_label=pos_label), arrow=arrow)
    assert batch.y.tolist() == expected


def test_top_label_takes_a_name_or_an_index(tmp_path: Path, arrow: bool) -> None:
    data = "p_cat,p_dog,y\n0.9,0.1,p_cat\n0.2,0.8,dog\n0.4,0.6,p_dog\n0.5,0.5,fox\n,0.5,cat\n"
    source = open_source(str(write(tmp_path, data)), arrow=arrow)
    columns, _ = choose(Wanted(top_label="p_*"), source.columns)
    (batch,) = source.batches(columns)
    assert batch.p.tolist() == [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]
    assert batch.y.tolist() == [0, 1, 1]
    assert [(b.line, b.value) for b in batch.bad] == [(5, "fox")]
    assert batch.missing == {"p_cat": 1}
    path = write(tmp_path, "p_1,p_2,p_3,y\n.2,.5,.3,1\n.2,.5,.3,2\n.2,.5,.3,0\n")
    (batch,) = open_source(str(path), arrow=arrow).batches(
        choose(Wanted(top_label="p_*"), ["p_1", "p_2", "p_3", "y"])[0]
    )
    assert (batch.y.tolist(), batch.provisional) == ([1, 2, 0], False)


# ---- times


@pytest.mark.parametrize(
    ("cells", "form", "expected"),
    [
        (["1970-01-02", "1970-01-02T00:00:01"], None, [86400.0, 86401.0]),
        (["1970-01-01 01:00:00Z", "1970-01-01T01:00:00+02:00"], None, [3600.0, -3600.0]),
        (["1970-01-01T00:00:00.5", "1970-01-01T00:00:00.123456789"], None, [0.5, 0.123456]),
        (["12.5", "1e3"], None, [12.5, 1000.0]),
        (["1500", " 2500 "], "ms", [1.5, 2.5]),
        (["02-01-1970", "03-01-1970"], "%d-%m-%Y", [86400.0, 172800.0]),
    ],
)
def test_times(tmp_path: Path, arrow: bool, cells: list[str], form: str | None, expected: list[float]) -> None:
    data = "p,y,t\n" + "".join(f"0.5,1,{c}\n" for c in cells)
    (batch,) = batches(write(tmp_path, data), Roles(("p",), "y", time="t", time_format=form), arrow=arrow)
    assert batch.t is not None
    assert batch.t.tolist() == expected


def test_day_and_month_are_never_guessed(tmp_path: Path, arrow: bool) -> None:
    """Field report day-month-swap: one format for the whole file or an error, no row is read by its own guess."""
    path = write(tmp_path, "p,y,t\n0.5,1,01-09-2018\n0.5,1,13-09-2018\n")
    with pytest.raises(SourceError, match=r"01-09-2018.*--time-format"):
        batches(path, Roles(("p",), "y", time="t"), arrow=arrow)
    (batch,) = batches(path, Roles(("p",), "y", time="t", time_format="%m-%d-%Y"), arrow=arrow)
    assert batch.t is not None
    assert len(batch.t) == 1
    assert [(b.line, b.column, b.value) for b in batch.bad] == [(3, "t", "13-09-2018")]


def test_a_time_in_another_format_is_a_bad_cell(tmp_path: Path, arrow: bool) -> None:
    data = "p,y,t\n0.5,1,2018-09-01\n0.5,1,1535760000\n0.5,1,01-09-2018\n0.5,1,\n"
    (batch,) = batches(write(tmp_path, data), Roles(("p",), "y", time="t"), arrow=arrow)
    assert [b.line for b in batch.bad] == [3, 4]
    assert batch.missing == {"t": 1}


def test_milliseconds_are_not_taken_for_seconds() -> None:
    with pytest.raises(SourceError, match="--time-format ms"):
        Clock().settle(["1535760000000"])
    with pytest.raises(SourceError, match="--time-format must be"):
        Clock("day first")


# ---- the fast paths are the plain path

CELLS = st.sampled_from(
    [
        *"01",
        "0.5",
        " 0.25",
        ".5",
        "1e-3",
        "1e400",
        "-0",
        "nan",
        "NaN",
        "nan(1)",
        "inf",
        "",
        " ",
        "None",
        "null",
        "NA",
        "true",
        "False",
        "TRUE",
        "007",
        "x",
        "0x1",
        "1_0",
        "٥",
        "a b",
        "1\r",
        "\t1",
        "2018-09-01",
        "2018-09-01T10:00:00",
        "2018-09-01T10:00:00Z",
        "20180901",
        "2018-09-01T10:00:60",
        "2018-W01-1",
        "1535760000",
        "01-09-2018",
        'a"b',
        '"',
        "p",
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.lists(CELLS, min_size=4, max_size=4), min_size=1, max_size=6),
    ragged=st.booleans(),
    quoting=st.sampled_from([csv.QUOTE_NONE, csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    end=st.sampled_from(["\n", "\r\n"]),
    pos_label=st.sampled_from([None, "1", "x"]),
)
def test_arrow_is_the_plain_path(
    rows: list[list[str]], ragged: bool, quoting: Any, end: str, pos_label: str | None
) -> None:
    pytest.importorskip("pyarrow")
    if ragged:
        rows[-1] = rows[-1][:3]
    out = io.StringIO()
    if quoting == csv.QUOTE_NONE:
        out.write("".join(",".join(row) + end for row in rows))
    else:
        csv.writer(out, quoting=quoting, lineterminator=end).writerows(rows)
    columns = Roles(("p",), "y", time="t", segment="s", pos_label=pos_label)
    outcomes = [_outcome(arrow, out.getvalue().encode(), columns) for arrow in (True, False)]
    assert outcomes[0] == outcomes[1]


def _outcome(arrow: bool, block: bytes, columns: Roles) -> object:
    parser = Csv(b"p,y,t,s\n", arrow)
    parser.begin(columns)
    try:
        return _flat(parser.parse(block, 2))
    except SourceError as error:
        return str(error)


def _flat(batch: EventBatch) -> tuple[object, ...]:
    assert batch.t is not None
    assert batch.segment is not None
    names = [batch.segments[i] for i in batch.segment]
    return (
        *(repr(a.tolist()) for a in (batch.p, batch.y, batch.t)),
        names,
        dict(batch.missing),
        batch.missing_rows,
        batch.bad,
        batch.bad_rows,
    )


def test_the_arrow_path_is_really_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    path = write(tmp_path, "p,y,t,s\n0.5,1,2018-09-01,007\n0.5,,2018-09-02T10:00:00,x\n")
    monkeypatch.setattr(Csv, "plain", None)
    (batch,) = batches(path, Roles(("p",), "y", time="t", segment="s"))
    assert len(batch) == 1
    assert batch.missing == {"y": 1}


JSON_NUMBERS = st.integers(-2, 2) | st.sampled_from([0.0, 0.5, 1.0, 1e30, 10**30])
JSON_TEXTS = st.sampled_from(["1", "true", "0.5", "", "x", "2018-09-01", "None"])
JSON_CELLS = st.none() | st.booleans() | JSON_NUMBERS | JSON_TEXTS | st.lists(st.integers(0, 1), max_size=1)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys("pyts", JSON_CELLS)), min_size=1, max_size=5),
    st.booleans(),
)
def test_msgspec_is_the_plain_path(rows: list[dict[str, Any]], broken: bool) -> None:
    block = "".join(json.dumps(row) + "\n" for row in rows).encode() + (b'{"p": 0.5' if broken else b"")
    outcomes = []
    for path in ("parse", "plain"):
        parser = Jsonl(block)
        parser.begin(Roles(("p",), "y", time="t", segment="s"))
        try:
            outcomes.append(_flat(getattr(parser, path)(block, 1)))
        except SourceError as error:
            outcomes.append((str(error),))
    assert outcomes[0] == outcomes[1]


# ---- JSON Lines


def test_jsonl_with_wrong_types(tmp_path: Path) -> None:
    lines = [
        '{"p": 0.1, "y": true}',
        '{"p": "0.2", "y": "0"}',
        '{"p": true, "y": 1}',
        '{"p": 0.4, "y": null}',
        '{"y": 1}',
    ]
    lines += ['{"p": [0.5], "y": 1}', "[1, 2]", "{oops", "", '{"p": 1, "y": 1.0, "extra": {"a": 1}}']
    (batch,) = batches(write(tmp_path, "\n".join([*lines, ""]), "in.jsonl"))
    assert events([batch]) == [(0.1, 1.0), (0.2, 0.0), (1.0, 1.0)]
    assert [(b.line, b.column, b.value) for b in batch.bad] == [
        (3, "p", "true"),
        (6, "p", "[0.5]"),
        (7, None, "not a JSON object: [1, 2]"),
        (8, None, "not a JSON object: {oops"),
    ]
    assert batch.missing == {"p": 1, "y": 1}


def test_jsonl_segments_print_as_they_are(tmp_path: Path) -> None:
    lines = [json.dumps({"p": 0.5, "y": 1, "s": s}) for s in ("007", 7, 7.5, True, None, 10**20)]
    (batch,) = batches(write(tmp_path, "\n".join([*lines, ""])), Roles(("p",), "y", segment="s"))
    assert batch.segment is not None
    assert [batch.segments[i] for i in batch.segment] == ["007", "7", "7.5", "true", "", str(10**20)]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_what_has_no_lines_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    monkeypatch.setattr("streamcal.reading.tables.HOPELESS", 1 << 10)
    source = open_source(str(write(tmp_path, b"p,y\n0.1,1\n" + b"x" * 5000 + end)), follow=True, block=16)
    got = source.batches(PLAIN)
    assert events([next(got)]) == [(0.1, 1.0)]
    with pytest.raises(SourceError, match="line 3 is longer"):
        list(got)


@pytest.mark.parametrize("text", [b"p,y", b'{"p": 0.5, "y": 1}'])
def test_a_followed_line_without_an_end_is_no_event_but_has_columns(tmp_path: Path, text: bytes) -> None:
    source = open_source(str(write(tmp_path, text)), follow=True, patience=Patience(idle=0.3))
    assert events(list(source.batches(PLAIN))) == []


def test_a_line_that_grows_keeps_patience(tmp_path: Path) -> None:
    path = write(tmp_path, b"p,y\n")
    source = open_source(str(path), follow=True, patience=Patience(idle=0.6, poll=0.05))
    with open(path, "ab", buffering=0) as file:
        for i, batch in enumerate(source.batches(PLAIN)):
            if i < 20:
                file.write(b"0.25,1\n"[i // 3 : i // 3 + 1] if i % 3 == 0 else b"")
            if len(batch.p):
                return
    raise AssertionError("it did not wait for the end of the line")


def test_a_key_that_never_comes_is_a_missing_column(tmp_path: Path) -> None:
    path = write(tmp_path, '{"score": 0.5, "y": 1}\n' * 5)
    with pytest.raises(SourceError, match="no column 'p'; the columns are: score, y"):
        batches(path)


def test_a_key_that_comes_late_is_no_error(tmp_path: Path) -> None:
    path = write(tmp_path, '{"p": 0.5}\n{"p": 0.25, "y": 1}\n')
    (batch,) = batches(path, block=8)[-1:]
    assert events([batch]) == [(0.25, 1.0)]


# ---- Parquet


def test_parquet_types(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    stamps = pa.array([0, 1_500_000, 2_000_000, None], pa.timestamp("us", "Europe/Paris"))
    table = pa.table(
        {
            "y": pa.array([True, False, None, True]),
            "p": pa.array([0.25, 0.5, 0.75, 1.0], pa.float32()),
            "t": stamps,
            "s": pa.array(["007", "b", "b", None]).dictionary_encode(),
            "w": pa.array([1, 2, 3, 4], pa.int8()),
        }
    )
    path = tmp_path / "in.parquet"
    pq.write_table(table, path)
    columns = Roles(("p",), "y", weight="w", time="t", segment="s")
    (batch,) = batches(path, columns)
    assert events([batch]) == [(0.25, 1.0), (0.5, 0.0)]
    assert batch.t is not None
    assert batch.t.tolist() == [0.0, 1.5]
    assert batch.missing == {"y": 1, "t": 1}
    assert batch.segments[:2] == ("007", "b")


def test_parquet_of_text_names_the_row(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "in.pq"
    pq.write_table(pa.table({"p": ["0.5", "high", ""], "y": ["true", "0", "1"]}), path)
    (batch,) = batches(path)
    assert events([batch]) == [(0.5, 1.0)]
    assert batch.missing == {"p": 1}
    assert [(b.line, b.column, b.value) for b in batch.bad] == [(2, "p", "high")]
    with pytest.raises(SourceError, match="no column 'q'; the columns are: p, y"):
        batches(path, Roles(("q",), "y"))


def test_a_broken_parquet_file_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(SourceError, match="not a Parquet file"):
        open_source(str(write(tmp_path, b"PAR1 and nothing else")))


# ---- columns


@pytest.mark.parametrize(
    ("there", "taken", "notes"),
    [
        (["y", "p", "prob"], ("p", "y"), []),
        (["id", "Probability", "target"], ("Probability", "target"), ["--p Probability taken", "--y target taken"]),
        (["a", "b"], ("p", "y"), []),
    ],
)
def test_usual_names(there: list[str], taken: tuple[str, str], notes: list[str]) -> None:
    columns, said = choose(Wanted(), there)
    assert (columns.p[0], columns.y) == taken
    assert said == notes


def test_several_usual_names_are_a_question() -> None:
    with pytest.raises(SourceError, match="prob, score; choose one with --p"):
        choose(Wanted(), ["prob", "score", "y"])


@pytest.mark.parametrize("wanted", [Wanted(top_label="q*"), Wanted(top_label="a"), Wanted(top_label="a,b", p="a")])
def test_top_label_needs_columns(wanted: Wanted) -> None:
    with pytest.raises(SourceError, match="--top-label"):
        choose(wanted, ["a", "b", "y"])


def test_missing_column_lists_and_suggests(tmp_path: Path) -> None:
    path = write(tmp_path, "id,prob,label\n1,0.5,1\n")
    with pytest.raises(
        SourceError, match=r"no column 'porb' \(did you mean 'prob'\?\); the columns are: id, prob, label"
    ):
        batches(path, Roles(("porb",), "label"))


def test_a_doubled_column_is_ambiguous_only_if_wanted(tmp_path: Path, arrow: bool) -> None:
    path = write(tmp_path, "a,p,a,y\n1,0.5,2,1\n")
    assert events(batches(path, arrow=arrow)) == [(0.5, 1.0)]
    with pytest.raises(SourceError, match="'a' appears 2 times"):
        batches(path, Roles(("a",), "y"))


# ---- what cannot be read


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\xef\xbb\xbf \r\n", "empty"),
        ("p,y\n".encode("utf-16"), "UTF-16"),
        (b"\x1f\x8b\x08", "gzip file is damaged or not complete"),
        (b'[{"p": 1}', "array does not end"),
        (b"p,y\r0.5,1\r", "carriage returns"),
    ],
)
def test_unreadable(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        open_source(str(write(tmp_path, data)))


def test_no_such_file_and_folders(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        open_source(str(tmp_path / "gone.csv"))
    with pytest.raises(SourceError, match="directory"):
        open_source(str(tmp_path))
    with pytest.raises(SourceError, match="--format must be one of"):
        open_source(str(write(tmp_path, "p,y\n")), "xml")


@given(st.lists(st.binary(max_size=12), max_size=8))
def test_blocks_lose_nothing_and_count_lines(chunks: list[bytes]) -> None:
    cut = [*blocks(iter(chunks), lambda data: data.rfind(b"\n") + 1, 1, lambda: True)]
    whole = b"".join(chunks)
    assert b"".join(block for block, _ in cut).rstrip() == whole.rstrip()
    place = 0
    for block, line in cut:
        assert line == 1 + whole[:place].count(b"\n")
        place += len(block)


def test_numbers_refuse_the_rest() -> None:
    for cell, decimal in ((True, "."), ("x", "."), ("0,5", "."), ("0.5", ","), ("1.000,5", ",")):
        with pytest.raises(ValueError):
            number(cell, decimal)
    assert (number("0,5", ","), number(0.5, ","), number("5", ",")) == (0.5, 0.5, 5.0)


# ---- growing files and pipes


def collect(source: Format, into: list[tuple[float, ...]]) -> threading.Thread:
    def run() -> None:
        for batch in source.batches(PLAIN):
            into.extend(events([batch]))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.01)


@pytest.fixture
def patience() -> Iterator[Patience]:
    waiting = Patience(poll=0.01)
    yield waiting
    waiting.stop.set()


def test_a_growing_file_waits_for_the_end_of_the_line(tmp_path: Path, patience: Patience) -> None:
    path = write(tmp_path, "p,y\n0.1,1\n0.2")
    got: list[tuple[float, ...]] = []
    thread = collect(open_source(str(path), follow=True, patience=patience), got)
    until(lambda: len(got) == 1)
    with path.open("a") as file:
        file.write("5,0\n0.3,1\n0.4")
    until(lambda: len(got) == 3)
    patience.stop.set()
    thread.join(20)
    assert got == [(0.1, 1.0), (0.25, 0.0), (0.3, 1.0)]


def test_a_rotated_file_is_followed(tmp_path: Path, patience: Patience) -> None:
    path = write(tmp_path, "p,y\n0.1,1\n")
    got: list[tuple[float, ...]] = []
    collect(open_source(str(path), follow=True, patience=patience), got)
    until(lambda: len(got) == 1)
    fresh = write(tmp_path, "p,y\n0.2,1\n", "new.csv")
    os.replace(fresh, path)
    until(lambda: len(got) == 2)
    path.write_text("p,y\n.3,1\n")  # shorter than what was read
    until(lambda: len(got) == 3)
    assert got == [(0.1, 1.0), (0.2, 1.0), (0.3, 1.0)]


def test_idle_ends_the_wait(tmp_path: Path) -> None:
    path = write(tmp_path, "p,y\n0.1,1\n")
    source = open_source(str(path), follow=True, patience=Patience(idle=0.05, poll=0.01))
    assert events(list(source.batches(PLAIN))) == [(0.1, 1.0)]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are a thing of Unix")
def test_a_slow_pipe_is_read_at_once(tmp_path: Path, patience: Patience) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got: list[tuple[float, ...]] = []
    writer = threading.Thread(target=lambda: opened.append(path.open("w", buffering=1)), daemon=True)
    opened: list[Any] = []
    writer.start()
    source: list[Format] = []
    reader = threading.Thread(target=lambda: source.append(open_source(str(path), patience=patience)), daemon=True)
    reader.start()
    until(lambda: opened)
    opened[0].write("p,y\n0.1,1\n")
    until(lambda: source)
    thread = collect(source[0], got)
    until(lambda: len(got) == 1)
    opened[0].write("0.2,0\n0.3")
    until(lambda: len(got) == 2)
    opened[0].write(",1")
    opened[0].close()
    thread.join(20)
    assert got == [(0.1, 1.0), (0.2, 0.0), (0.3, 1.0)]


# ---- what is not installed, and what breaks on the way


def test_csv_does_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "streamcal.reading.arrow", None)
    monkeypatch.delattr("streamcal.reading.arrow", raising=False)
    path = write(tmp_path, "p,y\n0.1,1\n")
    parser = Csv(path.read_bytes())
    parser.begin(PLAIN)
    assert parser.fast is None
    assert events(batches(path)) == [(0.1, 1.0)]


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SourceError, match=re.escape('pip install "streamcal-engine[arrow]"')):
        open_source(str(write(tmp_path, b"PAR1")))


def test_a_damaged_parquet_file_is_one_line(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "in.pq"
    pq.write_table(pa.table({"p": [0.1, 0.2] * 5000, "y": [0, 1] * 5000}), path)
    data = bytearray(path.read_bytes())
    data[4:200] = b"\xff" * 196
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"^the file is damaged: [^\n]*$"):
        batches(path)


def test_a_pipe_that_breaks_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(lines, "reader", broken)
    with pytest.raises(SourceError, match="Input/output error"):
        open_source("-")


def test_parquet_through_a_pipe_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "reader", lambda path: io.BytesIO(b"PAR1\n").read)
    with pytest.raises(SourceError, match="give the file"):
        open_source("-")


def test_what_has_no_lines_is_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "HOPELESS", 1 << 10)
    monkeypatch.setattr(formats, "LONGEST", 1 << 9)
    path = write(tmp_path, b"p,y\n" + b"x" * 5000)
    with pytest.raises(SourceError, match="line 2 is longer"):
        batches(path, block=256)


def test_a_key_that_never_comes_ends_a_long_stream(tmp_path: Path) -> None:
    path = write(tmp_path, '{"p": 0.5, "z": 1}\n' * 5000)
    source = open_source(str(path), block=4096)
    found: list[EventBatch] = []
    with pytest.raises(SourceError, match="no column 'y'; the columns are: p, z"):
        found.extend(source.batches(PLAIN))
    assert 0 < sum(batch.rows for batch in found) < 2000


def test_reading_ahead_changes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "p,y\n" + "".join(f"0.{i},1\n" for i in range(1, 200)) + "0.5,0")
    plain = batches(path, block=100)
    assert events([*ahead(open_source(str(path), block=100).batches(PLAIN))]) == events(plain)
    with pytest.raises(SourceError, match="no column"):
        list(ahead(open_source(str(path)).batches(Roles(("q",), "y"))))


def test_a_signal_in_the_middle_of_a_wait_stops_it() -> None:
    """With a threading.Event the handler would wait for ever for the lock of the wait that it interrupted."""
    stop = Stop()
    before = signal.signal(signal.SIGALRM, lambda number, frame: stop.set())
    try:
        for _ in range(200):
            stop.asked = False
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
            stop.wait(10.0)
            assert stop.asked
    finally:
        signal.signal(signal.SIGALRM, before)
