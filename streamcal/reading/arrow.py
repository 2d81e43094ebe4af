"""Columns of Arrow -> arrays, for Parquet and for the fast path of CSV. Everything here may decline, with None.

A block that is declined goes through the plain path of its format, cell by cell: the meaning is written once (`cells`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from streamcal.limits import LATEST
from streamcal.reading import cells
from streamcal.reading.cells import UNITS, Clock, Codes, EventBatch, Floats, Reading
from streamcal.reading.outcomes import MISSING, Labels, text
from streamcal.reading.roles import Roles

NULLS = sorted({case(word) for word in MISSING for case in (str.lower, str.upper, str.title)} | {"NaN"})


class CsvBlocks:
    """Blocks of CSV without quotes, stray carriage returns and bad cells -> batches; None for any other block.

    `places` are the indices of the wanted columns, `width` is the number of all columns.
    """

    def __init__(self, reading: Reading, places: Mapping[str, int], width: int, delimiter: str) -> None:
        self.reading, self.places = reading, places
        self.types = _types(reading.columns)
        self.names = [f"c{i}" for i in range(width)]  # those of the header may be doubled
        self.parse = pcsv.ParseOptions(delimiter=delimiter, quote_char=False)
        self.convert = pcsv.ConvertOptions(
            include_columns=[f"c{i}" for i in places.values()],
            column_types={f"c{places[name]}": kind for name, kind in (self.types or {}).items()},
            null_values=NULLS,
            decimal_point=reading.columns.decimal,
            strings_can_be_null=False,
        )

    def __call__(self, block: bytes) -> EventBatch | None:
        """The batch of a block, or None."""
        stray = b'"' in block or b"\0" in block or block.count(b"\r") != block.count(b"\r\n")
        if stray or self.types is None:
            return None
        options = pcsv.ReadOptions(column_names=self.names, block_size=len(block) + 1)
        try:
            table = pcsv.read_csv(pa.BufferReader(block), options, self.parse, self.convert)
        except pa.ArrowException:
            return None
        columns = {name: _one(table.column(f"c{i}")) for name, i in self.places.items()}
        for name, kind in self.types.items():  # Arrow reads nan(x) as a number, float() does not
            if kind == pa.float64() and pc.any(pc.is_nan(columns[name])).as_py():
                return None
        return batch(self.reading, columns)


def _types(columns: Roles) -> dict[str, Any] | None:
    """The type of each column; None where one column would need two."""
    if (numeric := columns.numeric) is None:
        return None
    text_type = pa.dictionary(pa.int32(), pa.string())
    types = {name: pa.float64() if name in numeric else text_type for name in columns.names}
    if columns.time is not None and columns.time not in (columns.y, columns.segment):
        types[columns.time] = pa.string()
    return types


def _one(column: Any) -> Any:
    """A chunked column as one array."""
    joined = column.combine_chunks()
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def batch(reading: Reading, columns: dict[str, Any]) -> EventBatch | None:
    """Arrow arrays by column name -> EventBatch; None where a cell is bad or of a type with no plain meaning here."""
    labels, times = partial(_labels, rule=reading.labels), partial(_times, clock=reading.clock)
    try:
        return reading.quick(columns, labels, _numbers, times, _segments)
    except pa.ArrowException:
        return None


def _numbers(column: Any) -> Floats | None:
    """float64 with nan for null; None for what is not a number."""
    kind = column.type
    types = pa.types
    if not (types.is_floating(kind) or types.is_integer(kind) or types.is_decimal(kind) or types.is_null(kind)):
        return None
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(values, np.float64)


def _encoded(column: Any) -> tuple[list[object], Codes]:
    """The distinct values and an index per row; -1 for null."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    indices = encoded.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(-1)
    return encoded.dictionary.to_pylist(), indices.to_numpy()


def _labels(column: Any, rule: Labels) -> Codes:
    """Each distinct value is looked at once."""
    values, indices = _encoded(column)
    return rule.numbers([*values, None])[indices]


def _segments(column: Any) -> tuple[Codes, tuple[str, ...]]:
    values, indices = _encoded(column)
    names: dict[str, int] = {}
    table = [names.setdefault(text(value), len(names)) for value in [*values, None]]
    return np.array(table, np.int64)[indices], tuple(names)


def _times(column: Any, clock: Clock) -> Floats | None:
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _typed_times(column)
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if not clock.settled:
        clock.settle(column.to_pylist())
    if clock.form in UNITS:
        return _epoch(column, clock)
    quick = _iso(column) if clock.form == "iso" and pa.types.is_string(column.type) else None
    if quick is not None:
        return quick
    values, bad = cells.read(column.to_pylist(), clock)
    return None if bad else values


def _typed_times(column: Any) -> Floats:
    """Seconds since epoch of timestamps (naive = UTC) and dates."""
    naive = column.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(column.type) and column.type.tz else column
    stamps = naive.cast(pa.timestamp("us"), safe=False)
    return np.asarray(stamps.cast(pa.int64()).to_numpy(zero_copy_only=False) / 1e6, np.float64)


def _epoch(column: Any, clock: Clock) -> Floats | None:
    if pa.types.is_string(column.type):
        if clock.decimal != ".":
            return None
        column = pc.utf8_trim_whitespace(column)
        column = pc.if_else(pc.is_in(column, pa.array(NULLS)), None, column).cast(pa.float64())
    values = _numbers(column)
    if values is None or np.isnan(values).sum() != column.null_count:
        return None
    seconds = values / UNITS[clock.form or "s"]
    wrong = (seconds < clock.low) | (seconds > LATEST)
    return None if wrong.any() else seconds


def _iso(column: Any) -> Floats | None:
    """Arrow's own reading of ISO-8601, ten times faster than Python's; None where a cell is not all of one shape."""
    for zone in (None, "UTC"):
        try:
            return _typed_times(column.cast(pa.timestamp("us", zone)))
        except pa.ArrowException:
            continue
    return None
