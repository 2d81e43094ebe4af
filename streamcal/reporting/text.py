"""Numbers for eyes: tables and a reliability diagram in plain text, and a picture if matplotlib is there."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamcal.reading import SourceError

Report = Mapping[str, Any]
WIDTH = 80
SCALE = 50  # characters between 0 and the right end of the diagram
UNICODE = {"claimed": "○", "observed": "●", "both": "◉", "line": "─", "frame": "│"}
ASCII = {"claimed": "o", "observed": "x", "both": "*", "line": "-", "frame": "|"}
OTHER_KIND = "the window was "  # how the reason begins when a metric needs another claim or loss


def short(value: float) -> str:
    """A number in at most 8 characters or so: 0.5712, 0.0412, 1.23e-05, nan."""
    return f"{value:.4f}" if 0.1 <= abs(value) < 1 else f"{value:.3g}" if abs(value) < 0.1 else f"{value:.4g}"


def _coarse(value: float) -> str:
    return "0" if abs(value) < 1e-12 else f"{value:.3f}" if 0.1 <= value < 1 else f"{value:.2g}"


def count(value: float) -> str:
    """12,345."""
    return f"{value:,.0f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns two spaces apart; the first one aligned to the left, the others to the right."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return [_joined(line, widths) for line in lines]


def _joined(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
    return "  ".join([line[0].ljust(widths[0]), *cells[1:]]).rstrip()


def rows(report: Report) -> list[str]:
    """The table of occupied rows: how often, what was claimed, what happened, and how sure that is."""
    total = report["weight"] or math.nan
    body = [
        (
            f"{r['lo']:.3g} - {r['hi']:.3g}",
            count(r["count"]),
            f"{r['weight'] / total:.1%}",
            short(r["mean_p"]),
            short(r["mean_y"]),
            f"{r['mean_y'] - r['mean_p']:+.2g}",
            f"{_coarse(r['low'])} .. {_coarse(r['high'])}",
        )
        for r in report["reliability"]
        if r["count"] > 0
    ]
    return table(("row", "events", "share", "mean p", "mean y", "gap", "mean y, 95 %"), body)


def diagram(report: Report, signs: Mapping[str, str] = UNICODE) -> list[str]:
    """Per row the place of what was claimed and of what happened with its interval, on a common scale."""
    occupied = [r for r in report["reliability"] if r["count"] > 0]
    if not occupied:
        return []
    axis = Axis(occupied, in_odds(report))
    legend = f"{signs['claimed']} claimed   {signs['observed']} happened   {signs['line'] * 3} 95 % interval"
    names = [f"{r['lo']:.3g} - {r['hi']:.3g}" for r in occupied]
    width = max(map(len, names))
    lines = [f"{' ' * width}  {legend}", f"{' ' * width}  {axis.labels()}"]
    for name, row in zip(names, occupied, strict=True):
        lines.append(f"{name.ljust(width)} {signs['frame']}{_strip(row, axis, signs)}{signs['frame']}")
    return lines


def in_odds(report: Report) -> bool:
    """Whether the rows are as wide as each other in log-odds, and so must be the scale."""
    return str(report.get("binning", "")).startswith("LogOdds")


class Axis:
    """The scale of a diagram: from 0 to 1, or less where all is close to 0; in log-odds between two powers of ten."""

    def __init__(self, occupied: Sequence[Report], odds: bool) -> None:
        self.odds = odds
        values = [v for r in occupied for v in (r["mean_p"], r["mean_y"]) if 0 < v < 1] or [0.5]
        if odds:
            self.low, self.high = _decade_below(0.99 * min(values)), 1 - _decade_below(1 - max(values))
        else:
            self.low, self.high = 0.0, _nice(max(max(r["high"], r["mean_p"], r["mean_y"]) for r in occupied))

    def place(self, value: float) -> int:
        """0 .. SCALE."""
        low, high, value = map(_logit, (self.low, self.high, value)) if self.odds else (self.low, self.high, value)
        return min(max(round((value - low) / (high - low) * SCALE), 0), SCALE)

    def labels(self) -> str:
        """The line of numbers above the diagram."""
        line = ""
        for value in self._ticks():
            start = self.place(value)
            if not line or start > len(line):
                line = line.ljust(start) + f"{value:.6g}"
        return line

    def _ticks(self) -> list[float]:
        if not self.odds:
            return [self.high * k / 5 for k in range(6)]
        powers = [10.0**-k for k in range(12, 0, -1)]
        ticks = [*powers, 0.5, *(1 - power for power in reversed(powers))]
        return [tick for tick in ticks if self.low * 0.999 <= tick <= self.high * 1.001]


def _logit(value: float) -> float:
    value = min(max(value, 1e-12), 1 - 1e-12)
    return math.log(value / (1 - value))


def _decade_below(value: float) -> float:
    """The next of .01, .1, .5, .9, .99 and so on that is not above."""
    if value <= 0.5:
        return float(10.0 ** math.floor(math.log10(value)))
    power = float(10.0 ** math.ceil(math.log10(1 - value)))
    return 1 - power if power < 0.5 else 0.5


def _nice(value: float) -> float:
    if not 0 < value < 0.5:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(unit * k for k in (1, 2, 5, 10) if unit * k >= value)


def _strip(row: Report, axis: Axis, signs: Mapping[str, str]) -> str:
    cells = [" "] * (SCALE + 1)
    for i in range(axis.place(row["low"]), axis.place(row["high"]) + 1):
        cells[i] = signs["line"]
    claimed, observed = axis.place(row["mean_p"]), axis.place(row["mean_y"])
    cells[observed] = signs["observed"]
    cells[claimed] = signs["both"] if claimed == observed else signs["claimed"]
    return "".join(cells)


def metrics(report: Report) -> list[str]:
    """Each metric with its interval, and what a perfect model would show where that is known.

    Metrics that a window of another kind would have are left out; one that has no value on these events says why.
    """
    named = report["metrics"].items()
    body = [
        (name, short(m["value"]), _span(m.get("interval")), _span(m.get("null")))
        for name, m in named
        if not math.isnan(m["value"])
    ]
    reasons = {name: m.get("reason", "") for name, m in named if math.isnan(m["value"])}
    why = [f"{name}: no value, {reason}" for name, reason in reasons.items() if not reason.startswith(OTHER_KIND)]
    return [*table(("metric", "value", "interval", "if calibrated"), body), *why]


def _span(pair: Sequence[float] | None) -> str:
    return f"{short(pair[0])} .. {short(pair[1])}" if pair is not None else ""


def errors(report: Report) -> list[str]:
    """What the intervals above promise, and those that may be looked at again and again."""
    said, level = report["errors"], f"{100 * report['errors']['level']:g} %"
    lines = [f'for one look at these events: the {level} intervals above, and "if calibrated"']
    spans = [f"{name} {_span(m['anytime'])}" for name, m in report["metrics"].items() if "anytime" in m]
    if not spans:
        return lines + textwrap.wrap(f"for many looks: {said['all_looks']}", WIDTH)
    p = said["p_value"]
    found = (
        f"for many looks since the first event: {', '.join(spans)} ({level}), p-value {short(p) if p else '< 1e-300'}"
    )
    return lines + textwrap.wrap(found, WIDTH, subsequent_indent="  ")


def segments(reports: Mapping[str, Report]) -> list[str]:
    """One line per segment."""
    body = [
        (
            name if len(name) <= 20 else name[:17] + "...",
            count(r["count"]),
            short(r["mean_p"]),
            short(r["mean_y"]),
            *(short(r["metrics"][m]["value"]) for m in ("pa_ratio", "ece", "k2_debiased")),
            _span(r["metrics"]["k2_debiased"].get("interval")),
        )
        for name, r in reports.items()
    ]
    return table(("segment", "events", "mean p", "mean y", "p/a", "ece", "k2 deb.", "its interval"), body)


OFFSET = 0.25  # the share of k2 from which on an offset of the mean is the headline
CROWDED = 0.9  # the share of one row from which on the rows tell little


def verdict(report: Report) -> str:
    """One sentence: whether the claims can be told from calibrated ones, and in which direction they are off."""
    if not report["count"]:
        return "nothing to judge: no events"
    n, rejected = f"n = {count(report['count'])}", report["rejected"]
    if rejected:
        return f"miscalibrated: {_direction(report, rejected)} ({_evidence(report)})"
    return f"not distinguishable from calibrated at {n}{_limit(report)}{_crowded(report)}"


def _evidence(report: Report) -> str:
    k2 = report["metrics"]["k2_debiased"]
    interval = f", interval {_span(k2['interval'])}" if "interval" in k2 else ""
    return f"{', '.join(report['rejected'])} beyond chance; debiased k2 {short(k2['value'])}{interval}"


def _limit(report: Report) -> str:
    """How large a gap could still hide, where the rows tell."""
    high = report["metrics"]["k2_debiased"].get("interval", (math.nan, math.nan))[1]
    if not high > 0 or _crowded(report):
        return ""
    return f", a root-mean-square gap above {short(math.sqrt(high))} is unlikely"


def _crowded(report: Report) -> str:
    """A hint where nearly all events share a row, so that little but their mean was tested."""
    largest = max((r["weight"] for r in report["reliability"]), default=0.0)
    spread = report["metrics"]["sharpness"]["value"] > 0
    if not spread or largest < CROWDED * report["weight"] or not report["binning"].startswith("EqualWidth"):
        return ""
    return f"; {largest / report['weight']:.0%} of the weight is in one row: --binning log-odds tells more"


def _direction(report: Report, rejected: Sequence[str]) -> str:
    p, y = report["mean_p"], report["mean_y"]
    tilted = "tilt" in rejected and (p - y) ** 2 < OFFSET * report["metrics"]["k2"]["value"]
    if "mean" in rejected and not tilted:
        return f"claims too {'much' if p > y else 'little'}, {short(p)} claimed and {short(y)} happened"
    if "tilt" not in rejected:
        return f"right on average ({short(y)}) but not row by row"
    slope = report["metrics"]["calibration_slope"]["value"]
    low, high = report["metrics"]["calibration_slope"].get("interval", (slope, slope))
    if math.isinf(report["metrics"]["log_loss"]["value"]) and low <= 1.0 <= high:
        return "what it called certain or impossible turned out otherwise"
    if slope < 1:
        return f"too extreme (slope {slope:.2f}): its high claims are too high and its low ones too low"
    return f"too timid (slope {slope:.2f}): its high claims are too low and its low ones too high"


def signs() -> Mapping[str, str]:
    """The signs of the diagram that standard output can show."""
    try:
        "".join(UNICODE.values()).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return UNICODE


def picture_kind(path: str) -> str:
    """png or svg, by the end of the name; SourceError for another."""
    kind = path.rpartition(".")[2].lower()
    if kind not in ("png", "svg"):
        raise SourceError(f"--plot writes .png or .svg, got {path}")
    return kind


def _draw(upper: Any, lower: Any, occupied: Sequence[Report], odds: bool) -> None:
    """Outcomes against claims, larger dots for more events, over a histogram of the claims."""
    axis = Axis(occupied, odds)
    ends = (axis.low, axis.high)
    upper.plot(ends, ends, color="0.6", linewidth=1, label="calibrated")
    p, y = [r["mean_p"] for r in occupied], [r["mean_y"] for r in occupied]
    spread = [[max(r["mean_y"] - r["low"], 0) for r in occupied], [max(r["high"] - r["mean_y"], 0) for r in occupied]]
    upper.errorbar(p, y, spread, fmt="none", ecolor="0.7", linewidth=1, zorder=1)
    largest = max((r["weight"] for r in occupied), default=1.0) or 1.0
    upper.scatter(p, y, [8 + 72 * r["weight"] / largest for r in occupied], color="C0", zorder=2, label="rows, 95 %")
    if odds:
        upper.set_xscale("logit", nonpositive="clip")
        upper.set_yscale("logit", nonpositive="clip")
    upper.set(xlim=ends, ylim=ends)
    upper.legend(loc="upper left", frameon=False)
    lower.bar(
        [r["lo"] for r in occupied],
        [r["weight"] for r in occupied],
        [r["hi"] - r["lo"] for r in occupied],
        align="edge",
    )


def plot(report: Report, path: str, title: str) -> None:
    """Write a reliability diagram over a histogram of the claims. Needs matplotlib."""
    kind = picture_kind(path)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SourceError('--plot needs matplotlib: pip install "streamcal-engine[plot]"') from None
    figure = Figure(figsize=(5.5, 6.5), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True, height_ratios=[4, 1])
    _draw(upper, lower, [r for r in report["reliability"] if r["count"] > 0], in_odds(report))
    upper.set(ylabel="what happened", title=title)
    lower.set(xlabel="what was claimed", ylabel="weight")
    try:
        figure.savefig(path, format=kind, dpi=120)
    except OSError as error:
        raise SourceError(f"cannot write {path}: {error.strerror}") from None
