"""Numbers for eyes: tables and a reliability diagram in plain text of 80 columns, and a picture if matplotlib is there."""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamcal.serve.columns import SourceError

if TYPE_CHECKING:
    from streamcal.serve.report import Answer, Judged, Reader

Report = Mapping[str, Any]
WIDTH = 80
SCALE = 50  # characters between 0 and the right end of the diagram
UNICODE = {"claimed": "○", "observed": "●", "both": "◉", "line": "─", "frame": "│"}
ASCII = {"claimed": "o", "observed": "x", "both": "*", "line": "-", "frame": "|"}
OTHER_KIND = "the window was "  # how the reason begins when a metric needs another claim or loss


def short(value: float) -> str:
    """A number in at most 7 characters or so: 0.0412, 1.23e-05, nan."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1 else f"{value:.4g}"


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
            f"{r['mean_y'] - r['mean_p']:+.4f}",
            f"{short(r['low'])} .. {short(r['high'])}",
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
    end = _nice(max(max(r["high"], r["mean_p"], r["mean_y"]) for r in occupied))
    legend = f"{signs['claimed']} claimed   {signs['observed']} happened   {signs['line'] * 3} 95 % interval"
    names = [f"{r['lo']:.3g} - {r['hi']:.3g}" for r in occupied]
    width = max(map(len, names))
    ticks = "".join(f"{end * k / 5:.3g}".ljust(SCALE // 5) for k in range(6)).rstrip()
    lines = [f"{' ' * width}  {legend}", f"{' ' * width}  {ticks}"]
    for name, row in zip(names, occupied, strict=True):
        lines.append(f"{name.ljust(width)} {signs['frame']}{_strip(row, end, signs)}{signs['frame']}")
    return lines


def _nice(value: float) -> float:
    """The right end of the scale: 1, or less where everything happens close to 0."""
    if not 0 < value < 0.5:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(unit * k for k in (1, 2, 5, 10) if unit * k >= value)


def _strip(row: Report, end: float, signs: Mapping[str, str]) -> str:
    def place(value: float) -> int:
        return min(max(round(value / end * SCALE), 0), SCALE)

    cells = [" "] * (SCALE + 1)
    for i in range(place(row["low"]), place(row["high"]) + 1):
        cells[i] = signs["line"]
    claimed, observed = place(row["mean_p"]), place(row["mean_y"])
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


def verdict(report: Report) -> str:
    """One sentence: whether the claims can be told from calibrated ones, and in which direction they are off."""
    if not report["count"]:
        return "nothing to judge: no events"
    k2 = report["metrics"]["k2_debiased"]
    low, high = k2.get("interval", (math.nan, math.nan))
    if math.isnan(low):
        return f"too few events to judge at n = {count(report['count'])}: {k2.get('reason', 'no interval')}"
    if low <= 0:
        limit = f", a root-mean-square gap above {short(math.sqrt(high))} is unlikely" if high > 0 else ""
        return f"not distinguishable from calibrated at n = {count(report['count'])}{limit}"
    return f"miscalibrated: {_direction(report)} (debiased k2 {short(k2['value'])}, interval {_span((low, high))})"


def _direction(report: Report) -> str:
    p, y = report["mean_p"], report["mean_y"]
    noise = math.sqrt(max(y * (1 - y), 0.0) / max(report["effective"], 1.0))
    if abs(p - y) > 2 * noise:
        return f"claims too {'much' if p > y else 'little'}, {p:.3f} claimed and {y:.3f} happened"
    slope = report["metrics"]["calibration_slope"]["value"]
    if math.isnan(slope) or abs(slope - 1) < 0.02:
        return f"right on average ({y:.3f}) but not row by row"
    if slope < 1:
        return f"too extreme (slope {slope:.2f}): claims too much where it is sure of yes, too little where it is sure of no"
    return f"too timid (slope {slope:.2f}): the truth lies further from the middle than the claims"


def page(reader: Reader, answer: Answer) -> list[str]:
    """Everything that `report` prints, and `watch` at its end."""
    report = answer.report
    parts = [head(reader, report)]
    if report["count"]:
        parts += [rows(report), diagram(report, signs()), metrics(report)]
    if answer.segments:
        parts.append(segments(answer.segments))
    parts.append([*map(limit, answer.judged), *textwrap.wrap(verdict(report), WIDTH)])
    return [line for part in parts if part for line in ("", *part)][1:]


def signs() -> Mapping[str, str]:
    """The signs of the diagram that standard output can show."""
    try:
        "".join(UNICODE.values()).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return UNICODE


def head(reader: Reader, report: Report) -> list[str]:
    """Where the events came from, and what did not become one."""
    came, c = reader.intake, reader.columns
    name = "standard input" if reader.job.path == "-" else reader.job.path
    lines = [f"{name}: {count(report['count'])} events in {count(came.rows)} {reader.source.unit}s"]
    taken = [", ".join(c.p), c.y, *(f"{role} {v}" for role, v in (("weight", c.weight), ("time", c.time)) if v)]
    lines += textwrap.wrap(f"columns: p {taken[0]}; y {'; '.join(taken[1:])}", WIDTH, subsequent_indent="  ")
    lines += [f"note: {note}" for note in reader.notes]
    if came.span:
        lines.append(f"time: {came.span[0]} .. {came.span[1]}")
    lines.append(lost(reader, report))
    lines += [f"  bad: {reader.named(bad)}" for bad in came.bad[:5]]
    if came.bad_cells > 5:
        lines.append(f"  and {count(came.bad_cells - 5)} more")
    return lines


def lost(reader: Reader, report: Report) -> str:
    """Rows that are not events, by the reason."""
    came = reader.intake
    where = ", ".join(f"{name} {count(n)}" for name, n in came.missing.items())
    missing = f"{count(came.missing_rows)} ({where})" if where else "0"
    late = f"   late {count(report['late'])}" if report["late"] else ""
    refused = f"{count(report['refused'])}{' (p outside [0, 1], or a weight below 0)' if report['refused'] else ''}"
    clipped = f"   clipped {count(report['clipped'])}" if report["clipped"] else ""
    return f"missing {missing}   bad cells {count(came.bad_cells)}   refused {refused}{clipped}{late}"


def limit(judged: Judged) -> str:
    """One line per --fail-if."""
    if judged.crossed is None:
        return f'limit "{judged.limit}": cannot be judged, {judged.reason}'
    return f'limit "{judged.limit}": {"CROSSED" if judged.crossed else "held"}, at {short(judged.value)}'


def picture_kind(path: str) -> str:
    """png or svg, by the end of the name; SourceError for another."""
    kind = path.rpartition(".")[2].lower()
    if kind not in ("png", "svg"):
        raise SourceError(f"--plot writes .png or .svg, got {path}")
    return kind


def plot(report: Report, path: str, title: str) -> None:
    """Write a reliability diagram over a histogram of the claims. Needs matplotlib."""
    kind = picture_kind(path)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SourceError('--plot needs matplotlib: pip install "streamcal-engine[plot]"') from None
    occupied = [r for r in report["reliability"] if r["count"] > 0]
    figure = Figure(figsize=(5.5, 6.5), layout="constrained")
    axes = figure.subplots(2, sharex=True, height_ratios=[4, 1])
    axes[0].plot([0, 1], [0, 1], color="0.6", linewidth=1, label="calibrated")
    p, y = [r["mean_p"] for r in occupied], [r["mean_y"] for r in occupied]
    spread = [[max(r["mean_y"] - r["low"], 0) for r in occupied], [max(r["high"] - r["mean_y"], 0) for r in occupied]]
    axes[0].errorbar(p, y, spread, fmt="o-", color="C0", ecolor="0.4", markersize=4, linewidth=1, label="happened, 95 %")
    axes[0].set(ylabel="what happened", title=title, xlim=(0, 1), ylim=(0, 1))
    axes[0].legend(loc="upper left", frameon=False)
    axes[1].bar([r["lo"] for r in occupied], [r["weight"] for r in occupied], [r["hi"] - r["lo"] for r in occupied], align="edge")
    axes[1].set(xlabel="what was claimed", ylabel="events")
    try:
        figure.savefig(path, format=kind, dpi=120)
    except OSError as error:
        raise SourceError(f"cannot write {path}: {error.strerror}") from None
