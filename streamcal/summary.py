"""Snapshot -> plain data: the reliability table, and a report of every metric with its sampling error.

This stands above the sums, their metrics and both kinds of intervals, and gives :meth:`Snapshot.report` and
:meth:`Snapshot.reliability` what they read with.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import streamcal.metrics  # noqa: F401 it fills METRICS, which every report goes through
from streamcal.arrays import Array
from streamcal.confidence import anytime_k1, anytime_l2_ce, anytime_p_value
from streamcal.intervals import INTERVALS, null_check, wilson
from streamcal.snapshot import METRICS, READERS, UNDEFINED, Snapshot
from streamcal.tally import COUNT, QUANTILE, WP, WW, WY, W

# Of the uncertain events only: what they say of predictions of 0 and 1 that came true is nothing.
FITTED = ("calibration_intercept", "calibration_slope", "spiegelhalter_z")
SHOWN = ("k2_debiased", "calibration_intercept", "calibration_slope")  # the metrics whose interval is in a report
ONE_LOOK = (
    "low and high (Wilson, each bin alone), interval (normal approximation), null and rejected (resampled): for one look at "
    "these events, not for the first crossing among many looks"
)
ALL_LOOKS = (
    "anytime of k1 and l2_ce, and p_value: for all looks together, however many, if nothing has left since the first event and "
    "claims, weights, bins and the choice of events did not know the outcomes"
)
NO_LOOKS = "none: for a moving window nothing holds over many looks; alarms come from a detector (streamcal.drift)"


def reliability(s: Snapshot, level: float = 0.95) -> Any:
    """See :meth:`Snapshot.reliability`."""
    s = s.read
    low, high = wilson(s.mean_y, s.effective, level)
    edges = np.broadcast_to(s.edges, (s.keys, s.bins + 1))
    names = ("lo", "hi", "count", "weight", "mean_p", "mean_y", "low", "high")
    columns = (edges[:, :-1], edges[:, 1:], s.count, s.weight, s.mean_p, s.mean_y, low, high)
    tables = []
    for key in range(s.keys):
        seen = s.count[key] > 0
        lines = zip(*(column[key, seen].tolist() for column in columns), strict=True)
        tables.append([dict(zip(names, line, strict=True)) for line in lines])
    return tables[0] if s.keys == 1 else tables


def report(s: Snapshot, level: float = 0.95, anytime: bool = False) -> dict[str, Any]:
    """See :meth:`Snapshot.report`."""
    if s.keys > 1:
        return {"keys": [report(s[k], level, anytime) for k in range(s.keys)]}
    total, used = s.total[0], int((s.read.count[0] > 0).sum())
    mean = total[[WP, WY]] / total[W] if total[W] > 0 else [math.nan, math.nan]
    bands, rejected = null_check(s, level)
    metrics = _metrics(s, level, used, bands)
    return {
        "binning": repr(s.binning),
        "claim": repr(s.claim),
        "count": float(total[COUNT]),
        "weight": float(total[W]),
        "effective": float(total[W] ** 2 / total[WW]) if total[WW] > 0 else 0.0,
        "refused": float(s.refused[0]),
        "clipped": float(s.clipped[0]),
        "late": float(s.late[0]),
        "bins_used": used,
        "mean_p": float(mean[0]),
        "mean_y": float(mean[1]),
        "rejected": list(rejected[0]),
        "errors": _errors(s, level, metrics, anytime),
        "metrics": metrics,
        "reliability": reliability(s, level),
    }


def _metrics(s: Snapshot, level: float, used: int, bands: dict[str, Array]) -> dict[str, dict[str, Any]]:
    count, table = float(s.total[0, COUNT]), {}
    fitted = float(s.uncertain.total[0, COUNT])
    for name in METRICS:
        value = float(s.values(name)[0])
        line: dict[str, Any] = {"value": value, "count": count, "bins": used}
        if name in FITTED and fitted < count:
            line |= {"count": fitted, "left_out": count - fitted}
        if name == "impossible":
            line["events"] = float(s.impossible[0])
        if math.isnan(value):
            reason = UNDEFINED.get(name, "undefined here") if count else "nothing seen"
            line["reason"] = reason if isinstance(reason, str) else reason(s)
        table[name] = line
    if not count:
        return table
    for name in SHOWN:
        interval = [float(bound[0]) for bound in INTERVALS[name](s, level)]
        if not math.isnan(interval[0]):
            table[name]["interval"] = interval
    if s.claim.kind == QUANTILE:
        bands |= {"q1": bands["k1"], "q2": bands["k2"], "qinf": bands["kinf"]}
    for name, band in bands.items():
        table[name]["null"] = band[0].tolist()
    return table


def _errors(s: Snapshot, level: float, metrics: dict[str, dict[str, Any]], anytime: bool) -> dict[str, Any]:
    """What the errors in a report promise; those that hold at any time are put beside their metrics."""
    found: dict[str, Any] = {"level": level, "one_look": ONE_LOOK, "all_looks": NO_LOOKS}
    if not anytime:
        return found
    if s.read is not s or s.coarse:
        return {**found, "all_looks": f"none: the bins of {s.binning!r} are cut by the events in them"}
    for name, bounds in (("k1", anytime_k1(s, level)), ("l2_ce", anytime_l2_ce(s, level))):
        for metric in (name, "q1") if s.claim.kind == QUANTILE and name == "k1" else (name,):
            if not math.isnan(bounds[0][0]):
                metrics[metric]["anytime"] = [float(bound[0]) for bound in bounds]
    return {**found, "all_looks": ALL_LOOKS, "p_value": float(anytime_p_value(s)[0])}


READERS["report"], READERS["reliability"] = report, reliability
