"""Limits that a report must not cross, such as `ece > 0.05`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamcal import METRICS
from streamcal.reading import SourceError
from streamcal.reporting.verdict import count, short

SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


@dataclass(frozen=True)
class Limit:
    """A metric and the value it must not cross, such as `ece > 0.05`."""

    text: str
    metric: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        """SourceError when it is not METRIC SIGN NUMBER."""
        found = re.fullmatch(r"\s*(\w+)\s*(>=|<=|>|<)\s*(\S+)\s*", text)
        try:
            bound = float(found[3]) if found else math.nan
        except ValueError:
            bound = math.nan
        if found is None or not math.isfinite(bound):
            raise SourceError(f'--fail-if must look like "ece > 0.05" (signs > >= < <=; a finite number), got "{text}"')
        if found[1] not in METRICS:
            raise SourceError(f"--fail-if: no metric {found[1]!r}; the metrics are: {', '.join(METRICS)}")
        return cls(text.strip(), found[1], found[2], bound)

    def judge(self, report: Mapping[str, Any]) -> Judged:
        """The verdict on a report. A metric without a value is neither crossed nor fine: it has a reason."""
        found = report["metrics"][self.metric]
        value = found["value"]
        if math.isnan(value):  # infinity is a value: it can cross a limit
            return Judged(self.text, value, None, f"{self.metric} has no value: {found.get('reason', 'no events')}")
        left = count(found["left_out"]) if found.get("left_out") else ""
        about = f"{left} predictions of 0 or 1 that came true are left out" if left else None
        return Judged(self.text, value, bool(SIGNS[self.sign](value, self.bound)), about)


@dataclass(frozen=True)
class Judged:
    """A limit, the value it was held against, whether it was crossed (None: there was no value), and why or of what."""

    limit: str
    value: float
    crossed: bool | None
    reason: str | None = None

    def __str__(self) -> str:
        if self.crossed is None:
            return f'limit "{self.limit}": cannot be judged, {self.reason}'
        about = f" ({self.reason})" if self.reason else ""
        return f'limit "{self.limit}": {"CROSSED" if self.crossed else "held"}, at {short(self.value)}{about}'


def exit_code(judged: Iterable[Judged]) -> int:
    """1 when a limit was crossed; else 2 when one could not be judged (silence would look like success); else 0."""
    found = [j.crossed for j in judged]
    return 1 if True in found else 2 if None in found else 0
