"""The tables of a configuration, one frozen dataclass each. What each key means: :mod:`streamcal.monitor.config`.

They are plain data: spans in seconds, lists as tuples, nothing looked up or opened. Values are checked where a file is read,
not where an object is made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from msgspec import Meta

from streamcal import METRICS
from streamcal.binning import BINNINGS, Binning, Edges, EqualWidth, Levels, UniformMass
from streamcal.claims import PIT, Claim, Interval, Marginal, Mean, Quantile, TopLabel
from streamcal.intervals import INTERVALS
from streamcal.monitor.config.toml_tables import (
    ANY,
    LABEL,
    LABELS,
    LEVEL,
    MODE,
    TEXT,
    TEXTS,
    TOLERANCE,
    Kind,
    Mistakes,
    chosen,
    either,
    entry,
    keys_of,
    link,
    number,
    one_of,
    quoted,
    seconds,
    suggestion,
    whole,
)
from streamcal.reading.outcomes import Outcomes
from streamcal.reading.rewritten import PRIVATE
from streamcal.reading.roles import SCALES
from streamcal.times import LONGEST_SPAN, shown_span

WHOLE, EACH = "all", "each"
RESERVED = ("id", "t", "p", "y", "model", "version")  # keys of an event: no field of a segment, weight or raw score
DECILES = tuple(k / 10 for k in range(1, 10))
PROBABILITIES = ("mean", "top_label", "marginal")
BINNED = ("mean", "quantile", "interval", "top_label", "marginal")
METRICS_OF: Mapping[str, tuple[str, ...]] = {  # the claims that a metric is about, where not all
    **dict.fromkeys(("q1", "q2", "qinf", "pinball_loss"), ("quantile",)),
    **dict.fromkeys(("impossible", "log_loss", "normalized_entropy"), PROBABILITIES),
    **dict.fromkeys(("calibration_intercept", "calibration_slope", "spiegelhalter_z"), PROBABILITIES),
}


def reserved(key: str, verb: str, *names: str | None) -> Mistakes:
    """A mistake for each of these names of fields that is a key of every event."""
    for name in names:
        if name in RESERVED:
            yield key, f"must not {verb} one of {', '.join(RESERVED)}, which mean something else, got {quoted([name])}"


def log_odds_edges(bins: int) -> tuple[float, ...]:
    """Edges of bins of equal width in log odds: the first holds what is up to 1e-4, the last what is beyond 1 - 1e-4.

    Fixed bins, so that a segment takes 64 bytes for each; the fine grid of :class:`~streamcal.LogOdds` would take 127 kB.

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
    claim: str = entry(one_of(("mean", "quantile", "interval", "top_label", "marginal", "pit")), "mean")
    outcome: str = entry(one_of(("binary", "unit")), "binary", goes=("mean",))
    pos_label: str | int | bool | None = entry(LABEL, None, goes=("mean",))
    neg_label: tuple[str | int | bool, ...] = entry(LABELS, (), goes=("mean",))
    missing: tuple[str, ...] = entry(TEXTS, ())
    labels: str | None = entry(one_of(("names", "indices")), None, goes=("top_label", "marginal"))
    scale: str = entry(one_of(SCALES), "unit", goes=PROBABILITIES)
    negative_sampling_rate: float = entry(number("in (0, 1]", Meta(gt=0.0, le=1.0)), 1.0, goes=("mean",))
    levels: tuple[float, ...] = entry(
        Kind("a list of numbers in (0, 1)", each=LEVEL), (), goes=("quantile", "pit"), needed=("quantile",)
    )
    lower: float | None = entry(LEVEL, None, goes=("interval",), needed=("interval",))
    upper: float | None = entry(LEVEL, None, goes=("interval",), needed=("interval",))
    classes: tuple[str, ...] = entry(TEXTS, (), goes=("top_label", "marginal"), needed=("top_label", "marginal"))
    weight: str | None = entry(TEXT, None)
    raw: str | None = entry(TEXT, None)
    tolerance: float = entry(TOLERANCE, 0.0)
    binning: str = entry(one_of(tuple(BINNINGS)), "", goes=BINNED)
    bins: int = entry(whole(1, 10_000), 15, goes=BINNED)
    edges: tuple[float, ...] = entry(Kind("a list of numbers", each=ANY), (), goes=("quantile", "interval"))

    @property
    def real(self) -> bool:
        """Whether scores are any numbers, not probabilities."""
        return self.claim in ("quantile", "interval")

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        fields = keys_of(Model)
        goes = {key: field.metadata["goes"] for key, field in fields.items() if field.metadata["goes"]}
        needs = [key for key, field in fields.items() if self.claim in field.metadata["needed"]]
        yield from chosen(given, "claim", self.claim, goes, needs)
        if self.lower is not None and self.upper is not None and not self.lower < self.upper:
            yield "lower", f"must be below upper, got {self.lower} and {self.upper}"
        if len(self.classes) == 1:
            yield "classes", f"must hold at least two classes, got only {quoted(self.classes)}"
        for key, values in (("levels", self.levels), ("edges", self.edges)):
            if values != tuple(sorted(values)):
                yield key, f"must rise, got {list(values)}"
        if self.edges and "binning" in given:
            yield "binning", "goes only without edges"
        if self.real and "bins" in given and self.binning != "uniform-mass":
            own = "edges = [...] gives bins of their own"
            yield "bins", f'goes with binning = "uniform-mass" for claim = "{self.claim}"; {own}'
        if self.real and self.binning not in ("", "uniform-mass"):
            yield "binning", f'must be "uniform-mass" for claim = "{self.claim}", got "{self.binning}"'
        if self.tolerance > 0.0 and self.claim == "pit":
            yield "tolerance", 'goes with any claim but "pit", whose detector knows none'
        if self.tolerance > 0.0 and self.negative_sampling_rate < 1.0:
            yield "tolerance", "must be 0 where negatives are down-sampled: a gap there is not the gap here"
        yield from reserved("weight", "be", self.weight)
        yield from reserved("raw", "be", self.raw)
        try:
            Outcomes(self.pos_label, self.neg_label or None, self.missing)
        except ValueError as error:
            yield "neg_label" if self.neg_label else "pos_label", f"is not right: {error}"
        for key in ("pos_label", "neg_label", "negative_sampling_rate") if self.outcome == "unit" else ():
            if key in given:
                yield key, 'goes only with outcome = "binary", got outcome = "unit"'

    def settled(self) -> Model:
        """The same with the binning that is meant where none was given."""
        usual = "" if self.claim == "pit" or self.real else "equal-width"
        return replace(self, binning=self.binning or usual)

    def claims(self) -> Claim:
        """The claim that windows take."""
        levels = self.levels or DECILES
        made: dict[str, Callable[[], Claim]] = {
            "mean": lambda: Mean(self.outcome),
            "quantile": lambda: Quantile(levels if len(levels) > 1 else levels[0]),
            "interval": lambda: Interval(self.lower or 0.05, self.upper or 0.95),
            "top_label": TopLabel,
            "marginal": lambda: Marginal(len(self.classes)),
            "pit": lambda: PIT(levels),
        }
        return made[self.claim]()

    def window_binning(self) -> Binning:
        """The binning that windows take; that of "pit" has a bin for each of its levels, of quantiles one between two edges."""
        if self.claim == "pit":
            return Levels(self.levels or DECILES)
        if self.real and self.binning != "uniform-mass":
            return Edges((-math.inf, *self.edges, math.inf))
        if self.binning == "uniform-mass":
            return UniformMass(self.bins)
        return Edges(log_odds_edges(self.bins)) if self.binning == "log-odds" else EqualWidth(self.bins)


def _segments(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
        raise ValueError
    if isinstance(value, str):
        if value not in (WHOLE, EACH):
            raise ValueError(suggestion(value, (WHOLE, EACH)))
        return value
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class JoinTable:
    """How long predictions and labels wait for each other, in seconds."""

    ttl: float = entry(seconds(1.0, " of at least 1s"), 90 * 86_400.0)
    maturity: float = entry(seconds(), 0.0)
    hold: float = entry(seconds(), 86_400.0)
    ahead: float = entry(seconds(1.0, " of at least 1s"), 3600.0)

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        if self.maturity > self.ttl:
            two = f"{shown_span(self.maturity)} and {shown_span(self.ttl)}"
            yield "maturity", f"must be at most ttl, or nothing ever counts, got {two}"
        for key, value in (("ttl", self.ttl), ("hold", self.hold)):
            if value > LONGEST_SPAN:
                yield key, f"must be at most {LONGEST_SPAN:g} seconds, got {value:g}s"


@dataclass(frozen=True)
class Segments:
    """The fields of an event that make its segment, and how many segments are told apart."""

    fields: tuple[str, ...] = entry(TEXTS)
    cap: int = entry(whole(1, 1_000_000), 1000)
    other: str = entry(TEXT, "other")

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        yield from reserved("fields", "hold", *self.fields)
        if self.other in (WHOLE, EACH) or "=" in self.other:
            yield "other", f'must not be "{WHOLE}" or "{EACH}" and hold no "=", got "{self.other}"'

    def named(self, values: tuple[Any, ...]) -> str:
        r"""The name of the segment with these values, one per field. Different values give different names.

        >>> Segments(("country", "tier")).named(("at", "a,b"))
        'country=at,tier=a\\,b'
        """
        pairs = zip(self.fields, map(_escaped, values), strict=True)
        return ",".join(f"{_escaped(field)}={value}" for field, value in pairs)

    def may_be(self, name: str) -> bool:
        """Whether a segment can have this name.

        >>> Segments(("country", "tier")).may_be("country=at,tier=gold"), Segments(("country", "tier")).may_be("country=at")
        (True, False)
        """
        pattern = ",".join(rf"{re.escape(_escaped(field))}=(?:[^\\,=]|\\.)*" for field in self.fields)
        return re.fullmatch(pattern, name, re.DOTALL) is not None


def _escaped(value: Any) -> str:
    return str(value).replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


@dataclass(frozen=True)
class FilesTable:
    """What holds for every file that is written: the state and its log, audit, record, dead letters, alerts."""

    mode: int = entry(MODE, PRIVATE)


@dataclass(frozen=True)
class WindowTable:
    """The last so many events, or the events of so long a time."""

    name: str
    events: int | None = entry(whole(1, 100_000_000), None)
    time: float | None = entry(seconds(1.0, " of at least 1s"), None)
    panes: int = entry(whole(1, 100_000), 60)
    by: str = entry(one_of(("label", "prediction")), "label")

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        yield from either(events=self.events, time=self.time)
        if self.time is None:
            yield from ((key, "goes only with time") for key in sorted({"by", "panes"} & given))


@dataclass(frozen=True)
class DetectorTable:
    """Bets against the claims: alarms when they are no longer true."""

    name: str
    arl: float = entry(number("in [1, 1e15]", Meta(ge=1.0, le=1e15)), 20_000.0)
    tolerance: float | None = entry(TOLERANCE, None)
    models: tuple[str, ...] = entry(TEXTS, ())

    def watches(self, model: Model) -> bool:
        """Whether it bets against the claims of a model."""
        return not self.models or model.name in self.models

    def tolerated(self, model: Model) -> float:
        """The gap that is no reason for an alarm: its own, else that of the model."""
        return model.tolerance if self.tolerance is None else self.tolerance


OF_METRIC = ("window", "above", "below", "level", "min_count", "for", "clear")


@dataclass(frozen=True)
class Rule:
    """When to say what to whom: see :mod:`streamcal.monitor.rules.rule`."""

    name: str
    metric: str | None = entry(TEXT, None)
    alarm: str | None = entry(TEXT, None)
    window: str | None = entry(TEXT, None)
    models: tuple[str, ...] = entry(TEXTS, ())
    segments: str | tuple[str, ...] = entry(Kind('"all", "each" or a list of names of segments', _segments), WHOLE)
    above: float | None = entry(ANY, None)
    below: float | None = entry(ANY, None)
    level: float = entry(TOLERANCE, 0.95)
    min_count: int = entry(whole(1, 2**53), 100)
    lasting: float = entry(seconds(), 0.0, key="for")
    clear: float | None = entry(ANY, None)
    cooldown: float = entry(seconds(), 0.0)
    quiet: float = entry(seconds(1.0, " of at least 1s"), 7 * 86_400.0)
    versions: tuple[str, ...] = entry(TEXTS, ())
    severity: str = entry(one_of(("info", "warning", "critical")), "warning")
    runbook: str | None = entry(link("https://", "http://"), None)
    sinks: tuple[str, ...] = entry(TEXTS, ())

    @property
    def sign(self) -> float:
        """+1 where above the threshold is past it, -1 where below it is."""
        return -1.0 if self.above is None else 1.0

    @property
    def threshold(self) -> float | None:
        """What is compared; None for an alarm."""
        return self.below if self.above is None else self.above

    @property
    def cleared(self) -> float | None:
        """Where a firing rule resolves: ``clear``, else the threshold."""
        return self.threshold if self.clear is None else self.clear

    def settled(self) -> Rule:
        """The same with the value at which it resolves."""
        return replace(self, clear=self.cleared)

    def mistakes(self, given: frozenset[str]) -> Mistakes:
        """What is wrong between its values."""
        if wrong := tuple(either(metric=self.metric, alarm=self.alarm)):
            yield from wrong
        elif self.metric is None:
            yield from ((key, "goes only with metric, not with alarm") for key in OF_METRIC if key in given)
        else:
            yield from self._of_metric(self.metric, given)

    def _of_metric(self, metric: str, given: frozenset[str]) -> Mistakes:
        if "quiet" in given:
            yield "quiet", "goes only with alarm, not with metric"
        if self.window is None:
            yield "window", "lacks the key window, which a rule with metric needs"
        if metric not in METRICS:
            near = suggestion(metric, METRICS)
            yield "metric", f'must be one of {", ".join(METRICS)}, got "{metric}"{near and "; " + near}'
        elif self.level > 0.0 and metric not in INTERVALS:
            has = ", ".join(sorted(INTERVALS))
            yield "metric", f'= "{metric}" has no interval: write level = 0 to compare its value, or take one of {has}'
        if wrong := tuple(either(above=self.above, below=self.below)):
            yield from wrong
        elif self.clear is not None and self.sign * self.clear > self.sign * (self.threshold or 0.0):
            side = "at most above" if self.sign > 0 else "at least below"
            yield "clear", f"must be {side} = {self.threshold:g}, got {self.clear:g}"
