"""Numbers for eyes: tables and a reliability diagram in plain text."""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from streamcal.logistic import logit
from streamcal.reading.shown import shown
from streamcal.reporting.verdict import Report, coarse, count, short, span_text

WIDTH = 80  # characters of a line: what a terminal has where nobody says otherwise
# An option of the command with the word behind it, in quotes or not: to be typed, so on one line.
TYPED = re.compile(r"--[a-z][a-z-]*(?: (?:'[^']*'|\"[^\"]*\"|\S+))?")
SCALE = 50  # characters between 0 and the right end of the diagram
UNICODE = {"predicted": "○", "observed": "●", "both": "◉", "line": "─", "frame": "│"}
ASCII = {"predicted": "o", "observed": "x", "both": "*", "line": "-", "frame": "|"}
OTHER_KIND = "the window was "  # how the reason begins when a metric needs another claim or loss


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Roles two spaces apart; the first one aligned to the left, the others to the right."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    pairs = ((first, zip(rest, widths[1:], strict=True)) for first, *rest in lines)
    return [
        "  ".join([first.ljust(widths[0]), *(cell.rjust(width) for cell, width in rest)]).rstrip()
        for first, rest in pairs
    ]


def bins(report: Report) -> list[str]:
    """The table of occupied bins: how often, what was predicted and observed, and how certain the observed is."""
    total = report["weight"] or math.nan
    body = [
        (
            f"{r['lo']:.3g} - {r['hi']:.3g}",
            count(r["count"]),
            f"{r['weight'] / total:.1%}",
            short(r["mean_p"]),
            short(r["mean_y"]),
            f"{r['mean_y'] - r['mean_p']:+.2g}",
            f"{coarse(r['low'])} .. {coarse(r['high'])}",
        )
        for r in report["reliability"]
        if r["count"] > 0
    ]
    return table(("bin", "events", "share", "mean p", "mean y", "gap", "mean y, 95 %"), body)


def diagram(report: Report, signs: Mapping[str, str] = UNICODE) -> list[str]:
    """Per bin the place of what was predicted and of what was observed with its interval, on a common scale."""
    occupied = [r for r in report["reliability"] if r["count"] > 0]
    if not occupied:
        return []
    axis = Axis(occupied, in_odds(report))
    legend = f"{signs['predicted']} predicted   {signs['observed']} observed   {signs['line'] * 3} 95 % interval"
    names = [f"{r['lo']:.3g} - {r['hi']:.3g}" for r in occupied]
    width = max(map(len, names))
    lines = [f"{' ' * width}  {legend}", f"{' ' * width}  {axis.labels()}"]
    for name, bin in zip(names, occupied, strict=True):
        lines.append(f"{name.ljust(width)} {signs['frame']}{_strip(bin, axis, signs)}{signs['frame']}")
    return lines


def in_odds(report: Report) -> bool:
    """Whether the bins are as wide as each other in log-odds, and so must be the scale."""
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
        low, high = self.low, self.high
        if self.odds:
            low, high, value = logit([low, high, value]).tolist()
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


def _strip(bin: Report, axis: Axis, signs: Mapping[str, str]) -> str:
    cells = [" "] * (SCALE + 1)
    for i in range(axis.place(bin["low"]), axis.place(bin["high"]) + 1):
        cells[i] = signs["line"]
    predicted, observed = axis.place(bin["mean_p"]), axis.place(bin["mean_y"])
    cells[observed] = signs["observed"]
    cells[predicted] = signs["both"] if predicted == observed else signs["predicted"]
    return "".join(cells)


def wrapped(sentence: str, indent: str = "") -> list[str]:
    """A sentence in lines; none ends inside of an option, or between an option and its value.

    >>> wrapped("the scores of this table lie outside [0, 1]: looks like percent: say --scale percent")
    ['the scores of this table lie outside [0, 1]: looks like percent: say', '--scale percent']
    """
    held = TYPED.sub(lambda typed: typed[0].replace(" ", "\0"), sentence)  # a NUL is no space to textwrap
    return [
        line.replace("\0", " ") for line in textwrap.wrap(held, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    ]


def metrics(report: Report) -> list[str]:
    """Each metric with its interval, and what a perfect model would show where that is known.

    Metrics that a window of another kind would have are left out; one that has no value on these events says why.
    """
    named = report["metrics"].items()
    body = [
        (name, short(m["value"]), span_text(m.get("interval")), span_text(m.get("null")))
        for name, m in named
        if not math.isnan(m["value"])
    ]
    reasons = {name: m.get("reason", "") for name, m in named if math.isnan(m["value"])}
    why = [f"{name}: no value, {reason}" for name, reason in reasons.items() if not reason.startswith(OTHER_KIND)]
    left = [
        f"{name}: of {count(m['count'])} events; {count(m['left_out'])} predictions of 0 or 1 that came true are left out"
        for name, m in named
        if m.get("left_out")
    ]
    return [*table(("metric", "value", "interval", "if calibrated"), body), *left, *why]


def errors(report: Report) -> list[str]:
    """What the intervals above promise, and those that may be looked at again and again."""
    said, level = report["errors"], f"{100 * report['errors']['level']:g} %"
    lines = [f'for one look at these events: the {level} intervals above, and "if calibrated"']
    spans = [f"{name} {span_text(m['anytime'])}" for name, m in report["metrics"].items() if "anytime" in m]
    if not spans:
        return lines + wrapped(f"for many looks: {said['all_looks']}")
    p = said["p_value"]
    found = (
        f"for many looks since the first event: {', '.join(spans)} ({level}), p-value {short(p) if p else '< 1e-300'}"
    )
    return lines + wrapped(found, "  ")


def segments(reports: Mapping[str, Report]) -> list[str]:
    """One line per segment; rows missing and bad where there are some."""
    losses = [name for name in ("missing", "bad") if any(r.get(name) for r in reports.values())]
    body = [
        (
            shown(name, 20),
            count(r["count"]),
            *(count(r[name]) for name in losses),
            short(r["mean_p"]),
            short(r["mean_y"]),
            *(short(r["metrics"][m]["value"]) for m in ("pa_ratio", "ece", "k2_debiased")),
            span_text(r["metrics"]["k2_debiased"].get("interval")),
        )
        for name, r in reports.items()
    ]
    return table(("segment", "events", *losses, "mean p", "mean y", "p/a", "ece", "k2 deb.", "its interval"), body)


def signs() -> Mapping[str, str]:
    """The signs of the diagram that standard output can show."""
    try:
        "".join(UNICODE.values()).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return UNICODE
