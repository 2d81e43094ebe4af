"""Anything array-like -> float64, by position: what is not a number is nan, or named in an error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


def one_number(value: Any) -> float:
    """What ``float()`` makes of it, nan where it makes nothing."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def numbers(name: str, values: Any, *, strict: bool = False) -> Array:
    """Anything array-like as float64, shape kept; a masked value is nan.

    What is not a number is nan, or with ``strict`` a ValueError that names the first.
    """
    if isinstance(values, np.ma.MaskedArray):
        floating = values.dtype.kind in "biuf"
        values = np.ma.filled(values.astype(np.float64 if floating else object), np.nan)
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        return np.asarray(array, dtype=np.float64)
    if array.dtype.kind not in "OUS":
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}")
    out = np.array([one_number(v) for v in array.reshape(-1).tolist()], dtype=np.float64)
    if strict and (wrong := np.flatnonzero(np.isnan(out))).size:
        i = int(wrong[0])
        raise ValueError(f"{name} must hold numbers, got {array.reshape(-1)[i]!r} at index {i}")
    return out.reshape(array.shape)


def is_for_kernels(array: Any) -> bool:
    """Whether a kernel can read this array where it lies: float64, in one piece, writable, without a mask."""
    plain = isinstance(array, np.ndarray) and array.dtype == np.float64 and not isinstance(array, np.ma.MaskedArray)
    return bool(plain and array.flags.c_contiguous and array.flags.writeable)


def for_kernels(array: Array) -> Array:
    """The array, or a plain copy if a kernel could not read it where it lies."""
    return array if is_for_kernels(array) else np.array(array, dtype=np.float64)


def check_aligned(**columns: Any) -> None:
    """ValueError if the Series (or frames) among these columns are of unlike index or length; both of them are named.

    By position or by index would be two different questions. What has no index, such as an array, goes by position; None is no
    column, and a mapping holds columns of its own.

    >>> check_aligned(p=[0.5, 0.5], y=np.array([0, 1]), w=None)
    """
    named: dict[str, Any] = {}
    for name, column in columns.items():
        named |= (
            {f"{name} {field}": one for field, one in column.items()} if isinstance(column, Mapping) else {name: column}
        )
    first: tuple[str, Any] | None = None
    size: tuple[str, int] | None = None
    for name, column in named.items():
        index = getattr(column, "index", None)
        indexed = index is not None and not callable(index)  # the index of a list or an array of Arrow is a method
        if not indexed and not hasattr(column, "to_numpy"):
            continue
        if indexed and first is not None and not _alike(first[1], index):
            raise ValueError(
                f"{first[0]} and {name} must share one index, got {_shown(first[1])} and {_shown(index)}: align them first, as "
                f"in {name}.loc[{first[0]}.index], or pass {name}.to_numpy() to go by position"
            )
        if size is not None and size[1] != len(column):
            raise ValueError(f"{size[0]} and {name} must be of one length, got {size[1]:,} and {len(column):,}")
        first, size = (name, index) if indexed and first is None else first, size or (name, len(column))


def _alike(index: Any, other: Any) -> bool:
    return bool(index.equals(other)) if hasattr(index, "equals") else np.array_equal(index, other)


def _shown(index: Any) -> str:
    """The beginning of an index, and how long it is."""
    few = ", ".join(f"{label!r:.20}" for label in np.asarray(index)[:3].tolist())
    return f"[{few}{', ...' if len(index) > 3 else ''}] ({len(index):,})"


def check_flag(name: str, value: bool) -> bool:
    """``value`` as a bool; ValueError unless it is one: text such as "False" would be true."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_whole(name: str, value: int, low: int, high: int = 2**31 - 1) -> int:
    """``value`` as an int; ValueError unless it is a whole number in ``low..high``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        allowed = f"at least {low}" if high == 2**31 - 1 else f"in {low}..{high}"
        raise ValueError(f"{name} must be a whole number {allowed}, got {value!r}")
    return int(value)


def check_number(name: str, value: Any, low: float, high: float, *, open_below: bool = False) -> float:
    """``value`` as a float; ValueError unless it is a number in [low, high], or in (low, high]."""
    number = math.nan if isinstance(value, bool) else one_number(value)
    if not low <= number <= high or (open_below and number == low):
        raise ValueError(f"{name} must be a number in {'(' if open_below else '['}{low:g}, {high:g}], got {value!r}")
    return number
