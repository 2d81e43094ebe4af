"""How things stood at the last evaluation: for each window and version the numbers that a person looks at first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from streamcal.monitor.join.pending import Account
from streamcal.monitor.rules.evaluation import Readings, States
from streamcal.monitor.rules.rule import FIRING
from streamcal.monitor.segments import ALL
from streamcal.times import utc

SHOWN = ("ece", "k2_debiased", "brier", "pa_ratio")
SHOWN_REAL = ("q1", "qinf")


@dataclass(frozen=True)
class Standing:
    """When it was, and a row for each model, version and window: count, mean claim and outcome, metrics (None: undefined)."""

    at: str | None = None
    windows: list[dict[str, Any]] = field(default_factory=list)


def standing(readings: Mapping[str, Readings], at: float) -> Standing:
    """The rows of all banks."""
    rows = []
    for name, reading in readings.items():
        for version in reading.bank.versions:
            where = {"model": name, "version": version}
            rows += [{**where, **_row(reading, window, version)} for window in reading.bank.windows]
    return Standing(utc(at), rows)


def _row(reading: Readings, window: str, version: str) -> dict[str, Any]:
    own = reading.bank.of(window, version, ALL, reading.now)
    names = SHOWN_REAL if reading.bank.claim.domain == "real" else SHOWN
    claim, outcome = (float(np.nansum(mean * own.share)) / own.keys for mean in (own.mean_p, own.mean_y))
    worst = {name: max(own.values(name).tolist(), key=lambda x: -math.inf if math.isnan(x) else x) for name in names}
    numbers = {"mean_claim": claim, "mean_outcome": outcome, **worst}
    shown = {n: x if math.isfinite(x) else None for n, x in numbers.items()}
    return {"window": window, "count": float(own.count.sum()) / own.keys, **shown}


def counters(account: Account) -> dict[str, Any]:
    """An account as plain data, with what was rejected for which reason."""
    return {**asdict(account), "rejected": account.rejected}


def firing(states: States) -> list[dict[str, Any]]:
    """Every rule that is firing: about what, and since when."""
    return [
        {"rule": rule, "model": model, "version": version, "segment": segment, "since": utc(state.since or 0.0)}
        for (rule, model, version), of in states.items()
        for segment, state in of.items()
        if state.phase == FIRING
    ]
