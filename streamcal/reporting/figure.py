"""The picture of a report: a reliability diagram over a histogram of the predictions, with matplotlib.

It has the scale of the diagram in plain text (``text.Axis``), so that both show the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamcal.reading import SourceError
from streamcal.reading.rewritten import replacing
from streamcal.reading.shown import shown
from streamcal.reporting.text import Axis, in_odds
from streamcal.reporting.verdict import Report


def picture_kind(path: str) -> str:
    """png or svg, by the end of the name; SourceError for another."""
    kind = path.rpartition(".")[2].lower()
    if kind not in ("png", "svg"):
        raise SourceError(f"--plot writes .png or .svg, got {path}")
    return kind


def _draw(upper: Any, lower: Any, occupied: Sequence[Report], odds: bool) -> None:
    """Observed against predicted, larger dots for more events, over a histogram of the predictions."""
    axis = Axis(occupied, odds)
    ends = (axis.low, axis.high)
    upper.plot(ends, ends, color="0.6", linewidth=1, label="calibrated")
    p, y = [r["mean_p"] for r in occupied], [r["mean_y"] for r in occupied]
    spread = [[max(r["mean_y"] - r["low"], 0) for r in occupied], [max(r["high"] - r["mean_y"], 0) for r in occupied]]
    upper.errorbar(p, y, spread, fmt="none", ecolor="0.7", linewidth=1, zorder=1)
    largest = max((r["weight"] for r in occupied), default=1.0) or 1.0
    upper.scatter(p, y, [8 + 72 * r["weight"] / largest for r in occupied], color="C0", zorder=2, label="bins, 95 %")
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
    """Write a reliability diagram over a histogram of the predictions. Needs matplotlib."""
    kind = picture_kind(path)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SourceError('--plot needs matplotlib: pip install "streamcal-engine[plot]"') from None
    occupied = [r for r in report["reliability"] if r["count"] > 0]
    if not occupied:
        raise SourceError("--plot: there are no events to draw")
    figure = Figure(figsize=(5.5, 6.5), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True, height_ratios=[4, 1])
    _draw(upper, lower, occupied, in_odds(report))
    upper.set(ylabel="observed")
    upper.set_title(shown(title), parse_math=False)  # a $ is a $
    lower.set(xlabel="predicted", ylabel="weight")
    with replacing(path, "--plot") as file:
        figure.savefig(file, format=kind, dpi=120)
