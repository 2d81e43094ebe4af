"""Spans and moments as people write them -> seconds. A time without a zone is refused, or declared to be UTC; never guessed."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
NAIVE = ("refuse", "utc")
LONGEST_SPAN = 1e10  # seconds that something may wait in the join
LATEST = 1e11  # seconds: the year 5138; a larger "epoch" counts milliseconds or less
_PART = r"(?:(\d+(?:\.\d+)?) ?{0})?"
_SPAN = re.compile(" ?".join(_PART.format(unit) for unit in UNITS), re.ASCII)


def span(text: Any) -> float:
    """Seconds of a span such as "90s", "15m", "1h 30m", "7d" or "2w": units from large to small, each at most once.

    ValueError for anything else: also for a bare number, whose unit would have to be guessed.

    >>> span("1h 30m"), span("0.5d"), span("0s")
    (5400.0, 43200.0, 0.0)
    """
    found = _SPAN.fullmatch(text) if isinstance(text, str) and text.strip() else None
    if found is None:
        raise ValueError(f'a span must look like "90s", "15m", "1h 30m", "7d" or "2w", got {text!r}')
    seconds = sum(float(n) * unit for n, unit in zip(found.groups(), UNITS.values(), strict=True) if n)
    if seconds > LATEST:
        raise ValueError(f"a span must be at most {LATEST:g} seconds, got {text!r}")
    return seconds


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
        return _epoch(value)
    when = _calendar(value)
    if when.tzinfo is not None and when.utcoffset() is not None:
        return when.timestamp()
    if naive == "refuse":
        raise ValueError(
            f'a time must name its zone, as in 2026-01-31T12:00:00Z, or naive_times be "utc", got {value!r}'
        )
    return when.replace(tzinfo=UTC).timestamp()


def _epoch(value: float) -> float:
    if not -LATEST < value < LATEST:  # also nan
        raise ValueError(f"a time must be finite and in seconds (not milliseconds) since 1970, got {value!r}")
    return float(value)


def _calendar(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        if value.strip().isdigit():  # 20260131 is a date to some and an epoch to others
            raise ValueError
        return datetime.fromisoformat(value.strip())
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"a time must be epoch seconds, ISO-8601 text or a datetime, got {value!r}") from None


def shown_span(seconds: float) -> str:
    """A span as people write it.

    >>> shown_span(604800.0), shown_span(5400.0), shown_span(0.5)
    ('1w', '1h 30m', '0.5s')
    """
    parts, left = [], seconds
    for unit, size in UNITS.items():
        n = left // size if unit != "s" else left
        if n:
            parts.append(f"{n:g}{unit}")
            left -= n * size
    return " ".join(parts) or "0s"


def utc(seconds: float) -> str:
    """ISO-8601 in UTC, as in the audit; as a number where no calendar reaches.

    >>> utc(1767225600.0), utc(math.inf)
    ('2026-01-01T00:00:00Z', 'inf')
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}" if not math.isnan(seconds) else "nan"
