"""Mini-batches of any dataframe that River takes (pandas, polars, pyarrow, ...) as rows, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import narwhals.stable.v2 as nw
from river.utils import dataframe


def rows_of(X: Any) -> list[Any]:
    """The rows of a dataframe as dicts by column, or the values of a series (texts, say).

    Every nan in them is the same object, so that equal rows are equal.
    """
    wrapped = nw.from_native(X, eager_only=True, allow_series=True)
    if isinstance(wrapped, nw.Series):
        return wrapped.to_list()
    rows = wrapped.iter_rows(named=True)
    return [{k: math.nan if isinstance(v, float) and v != v else v for k, v in row.items()} for row in rows]


def values_of(y: Any) -> list[Any]:
    """The values of a series."""
    return dataframe.into_series(y).to_list()


def kept(thing: Any, which: Sequence[bool]) -> Any:
    """The rows for which ``which`` is true."""
    return nw.from_native(thing, eager_only=True, allow_series=True).filter(list(which)).to_native()


def frame_of(rows: Sequence[dict[Any, float]], labels: Sequence[Any], like: Any) -> Any:
    """Probabilities by label as a dataframe of the kind of ``like``, with its index if it has one."""
    columns = {label: [row.get(label, 0.0) for row in rows] for label in labels}
    return dataframe.to_native_frame(columns, like=dataframe.into_frame(like))


def series_of(values: Sequence[Any], name: str | None, like: Any) -> Any:
    """Values as a series of the kind of ``like``, with its index if it has one."""
    return dataframe.to_native_series(values, name=name, like=dataframe.into_frame(like))


def ids_of(given: Any, n: int) -> Sequence[Any]:
    """An id for each of n rows, None where there are none."""
    ids = [None] * n if given is None else list(given)
    if len(ids) != n:
        raise ValueError(f"id must name each of {n} rows, got {len(ids)} ids")
    return ids


def check_lengths(X: Sequence[Any], y: Sequence[Any], w: Sequence[Any]) -> None:
    """ValueError unless all have as many rows."""
    if not len(X) == len(y) == len(w):
        raise ValueError(f"X, y and w must have as many rows, got {len(X)}, {len(y)} and {len(w)}")
