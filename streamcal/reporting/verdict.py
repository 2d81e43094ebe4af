"""The words for people, once: numbers as text, the verdict on a report in one sentence, the line of an alarm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from streamcal.drift.onset import NOT_EXTREME_ENOUGH, TOO_EXTREME
from streamcal.drift.segments import segments_in_words
from streamcal.segments import SegmentNames

Report = Mapping[str, Any]
OFFSET = 0.25  # the share of k2 from which on an offset of the mean is the headline
CROWDED = 0.9  # the share of one bin from which on the bins tell little


def short(value: float) -> str:
    """A number in at most 8 characters or so: 0.5712, 0.0412, 1.23e-05, nan."""
    return f"{value:.4f}" if 0.1 <= abs(value) < 1 else f"{value:.3g}" if abs(value) < 0.1 else f"{value:.4g}"


def coarse(value: float) -> str:
    """A number of two or three digits."""
    return "0" if abs(value) < 1e-12 else f"{value:.3f}" if 0.1 <= value < 1 else f"{value:.2g}"


def count(value: float) -> str:
    """12,345."""
    return f"{value:,.0f}"


def span_text(pair: Sequence[float] | None) -> str:
    """An interval; empty where there is none."""
    return f"{short(pair[0])} .. {short(pair[1])}" if pair is not None else ""


def verdict(report: Report) -> str:
    """One sentence: whether the predictions can be told from calibrated ones, and in which direction they are off."""
    if not report["count"]:
        return "cannot be judged: no events"
    n, rejected = f"n = {count(report['count'])}", report["rejected"]
    if rejected:
        return f"not calibrated: {_direction(report, rejected)} ({_evidence(report)})"
    return f"calibrated as far as {n} can tell{_limit(report)}{_crowded(report)}"


def _evidence(report: Report) -> str:
    k2 = report["metrics"]["k2_debiased"]
    interval = f", interval {span_text(k2['interval'])}" if "interval" in k2 else ""
    return f"{', '.join(report['rejected'])} beyond chance; debiased k2 {short(k2['value'])}{interval}"


def _limit(report: Report) -> str:
    """How large a gap could still hide, where the bins tell."""
    high = report["metrics"]["k2_debiased"].get("interval", (math.nan, math.nan))[1]
    if not high > 0 or _crowded(report):
        return ""
    return f", a root-mean-square gap above {short(math.sqrt(high))} is unlikely"


def _crowded(report: Report) -> str:
    """A hint where nearly all events share a bin, so that little but their mean was tested."""
    largest = max((r["weight"] for r in report["reliability"]), default=0.0)
    spread = report["metrics"]["sharpness"]["value"] > 0
    if not spread or largest < CROWDED * report["weight"] or not report["binning"].startswith("EqualWidth"):
        return ""
    return f"; {largest / report['weight']:.0%} of the weight is in one bin: --binning log-odds tells more"


def _direction(report: Report, rejected: Sequence[str]) -> str:
    p, y = report["mean_p"], report["mean_y"]
    tilted = "spread" in rejected and (p - y) ** 2 < OFFSET * report["metrics"]["k2"]["value"]
    if "mean" in rejected and not tilted:
        return f"too {'high' if p > y else 'low'}: {short(p)} predicted, {short(y)} observed"
    if "spread" not in rejected:
        return f"right on average ({short(y)}) but not bin by bin"
    slope = report["metrics"]["calibration_slope"]["value"]
    low, high = report["metrics"]["calibration_slope"].get("interval", (slope, slope))
    if report["metrics"]["impossible"]["value"] > 0 and not (
        high < 1.0 or low > 1.0
    ):  # there is no slope then, or no clear one
        return "what was predicted as certain or impossible turned out otherwise"
    if slope < 1:
        return f"{TOO_EXTREME} (slope {slope:.2f}): its high predictions are too high and its low ones too low"
    return f"{NOT_EXTREME_ENOUGH} (slope {slope:.2f}): its high predictions are too low and its low ones too high"


def with_names(report: dict[str, Any], names: SegmentNames) -> dict[str, Any]:
    """A report whose segments, if it has some, have their names in place of their numbers."""
    if "segments" not in report:
        return report
    segments = [{**part, "segment": names.shown(int(part["segment"]))} for part in report["segments"]]
    found = {**report, "segments": segments}
    return {**found, "text": segments_in_words(found)}


def alarm_line(alarm: dict[str, Any]) -> str:
    """An alarm for eyes: one line."""
    when = f", {alarm['time']}" if alarm["time"] else ""
    return f"ALARM {alarm['number']} after {count(alarm['event'] + 1)} events{when}: {alarm['text']}"
