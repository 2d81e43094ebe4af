"""A model in a configuration: what its predictions claim, in which rows its events are counted, and with which weight."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from streamcal.binning import Binning, Edges, EqualWidth, Levels, UniformMass
from streamcal.claims import PIT, Claim, Interval, Marginal, Mean, Quantile, TopLabel
from streamcal.monitor.config.toml_tables import (
    LABEL,
    LEVEL,
    TEXT,
    TEXTS,
    TOLERANCE,
    Mistakes,
    entry,
    listed,
    needed,
    number,
    one_of,
    only_with,
    quoted,
    whole,
)

RESERVED = ("id", "t", "p", "y", "model", "version")  # keys of an event: no field of a segment, weight or raw score
DECILES = tuple(k / 10 for k in range(1, 10))


def log_odds_edges(bins: int) -> tuple[float, ...]:
    """Edges of rows of equal width in log odds: the first holds what is up to 1e-4, the last what is beyond 1 - 1e-4.

    Fixed rows, so that a segment takes 64 bytes for each; the fine grid of :class:`~streamcal.LogOdds` would take 127 kB.

    >>> [round(edge, 4) for edge in log_odds_edges(4)]
    [0.0, 0.0001, 0.5, 0.9999, 1.0]
    """
    far = math.log(1e4 - 1.0)
    inner = [0.0] if bins == 2 else [far * (2 * i / (bins - 2) - 1.0) for i in range(bins - 1)] if bins > 2 else []
    return (0.0, *(1.0 / (1.0 + math.exp(-x)) for x in inner), 1.0)


@dataclass(frozen=True)
class Model:
    """A model: what its predictions claim, and how its events are counted."""

    name: str
    versions: tuple[str, ...] = entry(TEXTS, ())
    claim: str = entry(one_of("mean", "quantile", "interval", "top_label", "marginal", "pit"), "mean")
    outcome: str = entry(one_of("binary", "unit"), "binary")
    pos_label: str | int | bool | None = entry(LABEL, None)
    negative_sampling_rate: float = entry(number("in (0, 1]", lambda x: 0.0 < x <= 1.0), 1.0)
    levels: tuple[float, ...] = entry(listed(LEVEL, "a list of numbers in (0, 1)"), ())
    lower: float | None = entry(LEVEL, None)
    upper: float | None = entry(LEVEL, None)
    classes: tuple[str, ...] = entry(TEXTS, ())
    weight: str | None = entry(TEXT, None)
    raw: str | None = entry(TEXT, None)
    tolerance: float = entry(TOLERANCE, 0.0)
    binning: str = entry(one_of("equal-width", "uniform-mass", "log-odds"), "")
    bins: int = entry(whole(1, 10_000), 15)
    edges: tuple[float, ...] = entry(listed(number("", lambda x: True), "a list of numbers"), ())

    @property
    def real(self) -> bool:
        """Whether scores are any numbers, not probabilities."""
        return self.claim in ("quantile", "interval")

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        goes = {
            **dict.fromkeys(("outcome", "pos_label", "negative_sampling_rate"), ("mean",)),
            **dict.fromkeys(("lower", "upper"), ("interval",)),
            **dict.fromkeys(("binning", "bins"), ("mean", "quantile", "interval", "top_label", "marginal")),
            "levels": ("quantile", "pit"),
            "edges": ("quantile", "interval"),
            "classes": ("top_label", "marginal"),
        }
        needs = {
            "quantile": ["levels"],
            "interval": ["lower", "upper"],
            "top_label": ["classes"],
            "marginal": ["classes"],
        }
        yield from only_with(given, "claim", self.claim, goes)
        yield from needed(given, "claim", self.claim, needs)
        if self.lower is not None and self.upper is not None and not self.lower < self.upper:
            yield "lower", f"must be below upper, got {self.lower} and {self.upper}"
        if len(self.classes) == 1:
            yield "classes", f"must hold at least two classes, got only {quoted(self.classes)}"
        if self.levels != tuple(sorted(self.levels)):
            yield "levels", f"must rise, got {list(self.levels)}"
        if self.edges != tuple(sorted(self.edges)):
            yield "edges", f"must rise, got {list(self.edges)}"
        if self.edges and "binning" in given:
            yield "binning", "goes only without edges"
        if self.real and "bins" in given and self.binning != "uniform-mass":
            yield (
                "bins",
                f'goes with binning = "uniform-mass" for claim = "{self.claim}"; edges = [...] gives rows of their own',
            )
        if self.real and self.binning not in ("", "uniform-mass"):
            yield "binning", f'must be "uniform-mass" for claim = "{self.claim}", got "{self.binning}"'
        if self.tolerance > 0.0 and self.claim == "pit":
            yield "tolerance", 'goes with any claim but "pit", whose detector knows none'
        if self.tolerance > 0.0 and self.negative_sampling_rate < 1.0:
            yield "tolerance", "must be 0 where negatives are down-sampled: a gap there is not the gap here"
        for key, field in (("weight", self.weight), ("raw", self.raw)):
            if field in RESERVED:
                yield key, f"must not be one of {', '.join(RESERVED)}, which mean something else, got {quoted([field])}"
        for key in {"pos_label", "negative_sampling_rate"} & given if self.outcome == "unit" else ():
            yield key, 'goes only with outcome = "binary", got outcome = "unit"'

    def settled(self) -> Model:
        """The same with the binning that is meant where none was given."""
        usual = "" if self.claim == "pit" or self.real else "equal-width"
        return replace(self, binning=self.binning or usual)

    def claims(self) -> Claim:
        """The claim that windows take."""
        levels = self.levels or DECILES
        made: dict[str, Any] = {
            "mean": lambda: Mean(self.outcome),
            "quantile": lambda: Quantile(levels if len(levels) > 1 else levels[0]),
            "interval": lambda: Interval(self.lower or 0.05, self.upper or 0.95),
            "top_label": TopLabel,
            "marginal": lambda: Marginal(len(self.classes)),
            "pit": lambda: PIT(levels),
        }
        return made[self.claim]()  # type: ignore[no-any-return]

    def rows(self) -> Binning:
        """The binning that windows take; that of "pit" has a row for each of its levels, of quantiles one between two edges."""
        if self.claim == "pit":
            return Levels(self.levels or DECILES)
        if self.real and self.binning != "uniform-mass":
            return Edges((-math.inf, *self.edges, math.inf))
        if self.binning == "uniform-mass":
            return UniformMass(self.bins)
        return Edges(log_odds_edges(self.bins)) if self.binning == "log-odds" else EqualWidth(self.bins)
