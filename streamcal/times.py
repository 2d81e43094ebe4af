"""Spans and moments as people and programs write them -> seconds, and back: once for the whole house.

A time without a zone is refused, or declared to be UTC; never guessed. Which of the two holds is each door's own.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

import numpy as np

from streamcal.arrays import one_number
from streamcal.limits import LATEST

UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
NAIVE = ("refuse", "utc")
LONGEST_SPAN = 1e10  # seconds that something may wait in the join
_PART = r"(?:(\d+(?:\.\d+)?) ?{0})?"
_SPAN = re.compile(" ?".join(_PART.format(unit) for unit in UNITS), re.ASCII)


def span(text: Any, largest: str = "w") -> float:
    """Seconds of a span such as "90s", "15m", "1h 30m", "7d" or "2w": units from large to small, each at most once.

    ``largest``: the largest unit that a door knows. ValueError for anything else: also for a bare number, whose unit would
    have to be guessed.

    >>> span("1h 30m"), span("0.5d"), span("0s")
    (5400.0, 43200.0, 0.0)
    """
    found = _SPAN.fullmatch(text) if isinstance(text, str) and text.strip() else None
    if found is None or any(found.groups()[: [*UNITS].index(largest)]):
        raise ValueError(f'a span must look like "90s", "15m", "1h 30m", "7d" or "2w", got {text!r}')
    size = sum(float(n) * unit for n, unit in zip(found.groups(), UNITS.values(), strict=True) if n)
    if size > LATEST:
        raise ValueError(f"a span must be at most {LATEST:g} seconds, got {text!r}")
    return size


def moment(value: Any, naive: str = "refuse") -> float:
    """Seconds since 1970 UTC of an event's time: epoch seconds, ISO-8601 text, or a datetime.

    ``naive``: what to do with a time without a zone, "refuse" it or take it as "utc". ValueError for that, for anything
    else, and for numbers that are not finite or too large to be seconds (milliseconds are not guessed).

    >>> moment("2026-01-01T00:00:00+01:00"), moment("2026-01-01 00:00", naive="utc")
    (1767222000.0, 1767225600.0)
    """
    if naive not in NAIVE:
        raise ValueError(f'naive must be "refuse" or "utc", got {naive!r}')
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not -LATEST < value < LATEST:  # also nan
            raise ValueError(f"a time must be finite and in seconds (not milliseconds) since 1970, got {value!r}")
        return float(value)
    when = _calendar(value)
    if naive == "refuse" and not has_zone(when):
        raise ValueError(
            f'a time must name its zone, as in 2026-01-31T12:00:00Z, or naive_times be "utc", got {value!r}'
        )
    return stamp(when)


def has_zone(when: datetime) -> bool:
    """Whether it says of which zone it is."""
    return when.tzinfo is not None and when.utcoffset() is not None


def stamp(when: datetime) -> float:
    """Seconds since 1970 UTC; a datetime without a zone is taken as UTC."""
    return (when if has_zone(when) else when.replace(tzinfo=UTC)).timestamp()


def seconds(t: Any) -> Any:
    """Times as seconds since 1970 UTC: numbers as they are, aware datetimes, datetime64 (UTC). Naive datetimes raise.

    One time gives one number, an array one of its shape: nan for None, for NaT, and where it is masked.

    >>> seconds(np.array(["2026-01-01", "NaT"], "datetime64[D]")).tolist(), seconds(5)
    ([1767225600.0, nan], 5)
    """
    if isinstance(t, datetime):
        if not has_zone(t):
            raise ValueError(f"t must be aware of its time zone (or a number of seconds), got naive {t!r}")
        return stamp(t)
    if t is None or (np.ndim(t) == 0 and not isinstance(t, np.datetime64 | np.ndarray)):
        return t
    hidden = np.ma.getmaskarray(t) if isinstance(t, np.ma.MaskedArray) else None
    times = np.asarray(t)
    if times.dtype.kind == "M":
        stamps = times.astype("datetime64[us]")
        times = np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64) / 1e6)
    elif times.dtype.kind == "O":
        times = np.array([math.nan if v is None else one_number(seconds(v)) for v in times.tolist()])
    if hidden is not None:
        times = np.where(hidden, np.nan, times)
    return float(times) if times.ndim == 0 else times


def _calendar(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        if value.strip().isdigit():  # 20260131 is a date to some and an epoch to others
            raise ValueError
        return datetime.fromisoformat(value.strip())
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"a time must be epoch seconds, ISO-8601 text or a datetime, got {value!r}") from None


def shown_span(size: float) -> str:
    """A span as people write it.

    >>> shown_span(604800.0), shown_span(5400.0), shown_span(0.5)
    ('1w', '1h 30m', '0.5s')
    """
    parts, left = [], size
    for unit, seconds_of_it in UNITS.items():
        n = left // seconds_of_it if unit != "s" else left
        if n:
            parts.append(f"{n:g}{unit}")
            left -= n * seconds_of_it
    return " ".join(parts) or "0s"


def utc(t: float) -> str:
    """Seconds since 1970 as ISO-8601 in UTC; as a number where no calendar reaches.

    >>> utc(1767225600.0), utc(math.inf)
    ('2026-01-01T00:00:00Z', 'inf')
    """
    try:
        return datetime.fromtimestamp(t, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{t:g}"
