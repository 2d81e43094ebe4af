"""Snapshot: a frozen, read-only copy of the sums with their edges. Everything that is read, is read from one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from streamcal.arrays import Array, check_whole
from streamcal.binning import N_BINS, Binning, equal_mass_groups
from streamcal.claims import Claim, Mean
from streamcal.logistic import UNCLIPPED, fit, logit, separable
from streamcal.state import Document, restorable
from streamcal.tally import (
    CLIPPED,
    COUNT,
    IMPOSSIBLE,
    INFINITE,
    LATE,
    LOSS,
    MEAN,
    ONES,
    REFUSED,
    WP,
    WPP,
    WPY,
    WW,
    WY,
    WYY,
    ZEROS,
    W,
)

Number: TypeAlias = float | Array
METRICS: dict[str, Callable[[Snapshot], Number]] = {}  # filled by @metric in metrics.py; whole as streamcal.METRICS
Reason: TypeAlias = "str | Callable[[Snapshot], str]"
UNDEFINED: dict[str, Reason] = {}  # why a metric can be nan although something was seen, also as a function of one key
FADED = (
    1e-16  # the part of a key's weight that an impossible event must have: what a window has faded to less is forgotten
)
DUST = 1e-12  # the part of a bin's weight below which what is left of it is rounding
# "report" and "reliability", filled by summary.py: both need the intervals, which stand above the sums.
READERS: dict[str, Callable[..., Any]] = {}


@restorable
@dataclass(frozen=True, eq=False)
class Snapshot(Document):
    """The sums of a window at one moment. ``cells`` (keys, bins + 1, 8), ``edges`` (bins + 1,) or (keys, bins + 1).

    Snapshots of the same binning, claim and loss add up (``+``) and can be taken away from each other (``-``);
    ``s[key]`` is one key. Arrays of bins have shape (keys, bins); a metric is one number per key.
    """

    cells: Array
    edges: Array
    binning: Binning
    claim: Claim = field(default_factory=Mean)
    loss: str | None = None
    coarse: bool = False

    def __post_init__(self) -> None:
        bins = (self.cells.shape[1],) if self.cells.ndim == 3 else ()
        if self.cells.ndim != 3 or self.cells.shape[2] != 8 or 0 in self.cells.shape:
            raise ValueError(f"cells must have shape (keys, bins + 1, 8), got {self.cells.shape}")
        if self.edges.shape not in (bins, self.cells.shape[:2]):
            raise ValueError(f"edges must have shape {bins} or {self.cells.shape[:2]}, got {self.edges.shape}")
        self.cells.setflags(write=False)
        self.edges.setflags(write=False)

    def __repr__(self) -> str:
        return f"<Snapshot of {self.keys} keys x {self.bins} bins, {self.binning!r}, count {self.cells[:, :-1, COUNT].sum():.0f}>"

    # -- sums add up -------------------------------------------------------------------------------------------------

    def _same_kind(self, other: Snapshot) -> None:
        for name in ("binning", "claim", "loss", "keys", "coarse"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"snapshots must share their {name}, got {mine!r} and {theirs!r}")
        if not np.array_equal(self.edges, other.edges):
            raise ValueError("snapshots must share their edges; add them before they are coarsened")

    def __add__(self, other: Snapshot) -> Snapshot:
        if not isinstance(other, Snapshot):
            return NotImplemented
        self._same_kind(other)
        return replace(self, cells=self.cells + other.cells)

    def __radd__(self, other: Any) -> Snapshot:
        return self if other == 0 else NotImplemented  # sum() starts with 0

    def __sub__(self, other: Snapshot) -> Snapshot:
        if not isinstance(other, Snapshot):
            return NotImplemented
        self._same_kind(other)
        left = self.cells - other.cells
        if (left[:, :-1, COUNT] < -1e-9 * (1.0 + self.count)).any():
            raise ValueError("a snapshot cannot be taken away from one that holds fewer events")
        left[:, :-1][left[:, :-1, COUNT] == 0] = 0.0  # an emptied bin holds nothing, not rounding dust
        return replace(self, cells=left)

    def __getitem__(self, key: int) -> Snapshot:
        if isinstance(key, bool) or not isinstance(key, int | np.integer) or not -self.keys <= key < self.keys:
            raise IndexError(f"key must be a whole number in 0..{self.keys - 1}, got {key!r}")
        k = key % self.keys
        edges = self.edges[k : k + 1] if self.edges.ndim == 2 else self.edges
        return replace(self, cells=self.cells[k : k + 1].copy(), edges=edges)

    # -- bins --------------------------------------------------------------------------------------------------------

    @property
    def keys(self) -> int:
        """How many streams are side by side in the cells."""
        return int(self.cells.shape[0])

    @property
    def bins(self) -> int:
        """How many bins each key has."""
        return int(self.cells.shape[1]) - 1

    @property
    def ledger(self) -> Array:
        """The last bin of each key, shape (keys, 8): REFUSED, CLIPPED, LATE, LOSS and so on, as tally names them."""
        return self.cells[:, -1]

    @property
    def count(self) -> Array:
        """Events per bin."""
        return self.cells[:, :-1, COUNT]

    @cached_property
    def columns(self) -> Array:
        """The eight columns without the ledger, each of them in one piece, shape (8, keys, bins): read many times."""
        columns: Array = np.ascontiguousarray(self.cells[:, :-1].transpose(2, 0, 1))
        columns.setflags(write=False)
        return columns

    @cached_property
    def weight(self) -> Array:
        """Summed weight per bin."""
        return np.asarray(self.columns[W])

    @property
    def refused(self) -> Array:
        """Bad events that were counted and not added, per key."""
        return self.ledger[:, REFUSED]

    @property
    def clipped(self) -> Array:
        """Scores within 1e-6 outside [0, 1] that were clipped and added, per key."""
        return self.ledger[:, CLIPPED]

    @property
    def late(self) -> Array:
        """Events that came after the lateness bound, counted and not added, per key."""
        return self.ledger[:, LATE]

    @cached_property
    def total(self) -> Array:
        """The eight columns summed over bins, shape (keys, 8)."""
        total = np.asarray(self.cells[:, :-1].sum(1))
        total.setflags(write=False)
        return total

    @property
    def is_certain(self) -> bool:
        """Whether nothing but 0 and 1 was predicted, as far as it is not told from rounding."""
        return self.claim.kind == MEAN and bool((self.total[:, WP] == self.total[:, WPP]).all())

    @property
    def is_swapped(self) -> bool:
        """Whether nothing but 0 and 1 was predicted, and something else came out: (y, p) in place of (p, y)."""
        return self.is_certain and bool((self.total[:, WY] > self.total[:, WYY]).any())

    @cached_property
    def share(self) -> Array:
        """Weight of each bin over the weight of its key; nan where the key has seen nothing."""
        total = self.weight.sum(-1, keepdims=True)
        return self.weight / np.where(total > 0, total, np.nan)

    def _per_weight(self, column: int) -> Array:
        return np.asarray(self.columns[column] / np.where(self.weight > 0, self.weight, np.nan))

    @cached_property
    def mean_p(self) -> Array:
        """Mean claim of each bin, nan in empty bins."""
        return self._per_weight(WP)

    @cached_property
    def mean_y(self) -> Array:
        """Mean outcome of each bin, nan in empty bins."""
        return self._per_weight(WY)

    @cached_property
    def gap(self) -> Array:
        """Mean outcome - mean claim of each bin, 0 in empty bins; positive: predicted too low."""
        return np.where(self.weight > 0, self.mean_y - self.mean_p, 0.0)

    @cached_property
    def effective(self) -> Array:
        """Effective sample size W^2 / WW of each bin (its count when all weights are equal), 0 in empty bins."""
        ww = self.columns[WW]
        return np.where(ww > 0, self.weight**2 / np.where(ww > 0, ww, 1.0), 0.0)

    def spread(self, column: int, mean: Array, other: Array) -> Array:
        """Second moment of a bin about its means, never below 0 by rounding where it is a variance."""
        return np.where(self.weight > 0, self._per_weight(column) - mean * other, 0.0)

    @cached_property
    def outcome_variance(self) -> Array:
        """Plug-in variance of the outcome within each bin (divided by n), 0 in empty bins."""
        return np.maximum(self.spread(WYY, self.mean_y, self.mean_y), 0.0)

    @cached_property
    def residual_variance(self) -> Array:
        """Sample variance (divided by n - 1) of outcome - claim within each bin, 0 where n < 2."""
        plug_in = (
            self.spread(WYY, self.mean_y, self.mean_y)
            + self.spread(WPP, self.mean_p, self.mean_p)
            - 2.0 * self.spread(WPY, self.mean_p, self.mean_y)
        )
        n = self.effective
        return np.where(n > 1.0 + 1e-9, np.maximum(plug_in, 0.0) * n / np.where(n > 1.0, n - 1.0, 1.0), 0.0)

    @cached_property
    def impossible(self) -> Array:
        """Events of infinite log loss per key: 0 was predicted for what came, or 1 for what did not."""
        seen = self.ledger[:, INFINITE] > FADED * self.weight.sum(-1)
        return np.where(seen, self.ledger[:, IMPOSSIBLE], 0.0)

    @cached_property
    def uncertain(self) -> Snapshot:
        """Without the predictions of exactly 0 or 1 that came true, from which no fit can learn: it gives them chance 1 anyway.

        Exact for weights that are equal within a bin. Those that came out otherwise stay: see :attr:`impossible`.
        """
        if not self.ledger[:, [ZEROS, ONES]].any():
            return self
        cells = self.cells.copy()
        for key, occupied in enumerate(self.weight > 0):
            bins = np.flatnonzero(occupied)
            # 0 lies in the lowest bin with events and adds to three sums only, 1 in the highest and adds its weight to the others
            for column, at, sums in ((ZEROS, bins[:1], [W]), (ONES, bins[-1:], [W, WP, WY, WPP, WPY, WYY])):
                gone = self.ledger[key, column]
                for bin in at.tolist() if gone > 0.0 else ():
                    cell = cells[key, bin]
                    if gone >= cell[W] * (1.0 - DUST):
                        cell[:] = 0.0
                    else:
                        cell[[COUNT, WW]] -= gone * (cell[[COUNT, WW]] / cell[W])
                        cell[sums] = np.maximum(cell[sums] - gone, 0.0)
        return replace(self, cells=cells)

    @cached_property
    def logistic(self) -> Array:
        """Intercept and slope of the logistic recalibration, then their standard errors, fitted once, shape (keys, 4).

        The intercept is that of slope 1; the slope has an intercept of its own. The errors are from the Fisher information
        at the effective sample size. Of :attr:`uncertain` events; nan where there is no fit, so where an event was impossible.
        """
        out, s = np.full((self.keys, 4), np.nan), self.uncertain
        for key in np.flatnonzero(self.impossible == 0.0).tolist():
            used = (s.weight[key] > 0) & (s.mean_p[key] > 0.0) & (s.mean_p[key] < 1.0)
            w, p, y = s.weight[key, used], s.mean_p[key, used], s.mean_y[key, used]
            events = s.effective[key, used].sum()
            if not events > 0 or not 0.0 < (w * y).sum() < w.sum():
                continue
            x, n = logit(p, UNCLIPPED), w * (events / w.sum())
            for place, fitted in enumerate((fit(x, y, n, slope=1.0), None if separable(x, y) else fit(x, y, n))):
                if fitted is not None:  # its first parameter and the standard error
                    out[key, place], out[key, 2 + place] = fitted[0][0], np.sqrt(fitted[1][0, 0])
        return out

    @property
    def mean_loss(self) -> Array:
        """Mean loss per key, inf where an event with weight has infinite loss, nan without ``loss=``."""
        weight = self.weight.sum(-1)
        if self.loss is None:
            return np.full(self.keys, np.nan)
        return np.where(
            self.ledger[:, INFINITE] > FADED * weight,
            np.inf,
            self.ledger[:, LOSS] / np.where(weight > 0, weight, np.nan),
        )

    # -- fewer bins --------------------------------------------------------------------------------------------------

    @cached_property
    def read(self) -> Snapshot:
        """The bins as metrics read them: a fine grid merged as its binning says, any other binning as it is."""
        if self.coarse or type(self.binning).groups is Binning.groups:
            return self
        groups = self.binning.groups(self._mass(), self._edges_2d())
        return self if groups is None else self._merge(groups, getattr(self.binning, "n_bins", self.bins))

    def coarsen(self, n: int) -> Snapshot:
        """At most ``n`` bins of as equal mass as whole bins allow."""
        check_whole("n", n, 1)
        if n >= self.bins:
            return self
        return self._merge(equal_mass_groups(self._mass(), n), n)

    def _mass(self) -> Array:
        weighted = self.weight.sum(-1, keepdims=True) > 0
        return np.where(weighted, self.weight, self.count)

    def _edges_2d(self) -> Array:
        return np.broadcast_to(self.edges, (self.keys, self.bins + 1))

    def _merge(self, groups: Any, n: int) -> Snapshot:
        cells, edges = np.zeros((self.keys, n + 1, 8)), np.empty((self.keys, n + 1))
        for key, (group, old) in enumerate(zip(groups, self._edges_2d(), strict=True)):
            ends = np.searchsorted(group, np.arange(n), "right")
            edges[key] = old[np.concatenate([[0], ends])]
            np.add.at(cells[key], group, self.cells[key, :-1])
        cells[:, -1] = self.ledger
        return replace(self, cells=cells, edges=edges, coarse=True)

    # -- numbers -----------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Number:
        """A metric by name: a float, or an array over keys if there are several."""
        if name not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {name!r}")
        return METRICS[name](self)

    def values(self, name: str) -> Array:
        """A metric by name, always as an array over keys."""
        return np.atleast_1d(np.asarray(self.get(name), dtype=np.float64))

    def reliability(self, level: float = 0.95) -> Any:
        """The occupied bins as plain dicts: lo, hi, count, weight, mean_p, mean_y, low, high (Wilson's interval).

        A list for one key, a list of lists for several.
        """
        return READERS["reliability"](self, level)

    def report(self, level: float = 0.95, *, anytime: bool = False) -> dict[str, Any]:
        """Every metric with its count, bins and sampling error, and the reliability bins, as one plain dict.

        With several keys: ``{"keys": [one such dict per key]}``. A metric that is nan says why. ``rejected`` names the
        tests that tell these events from a perfect model's (see :func:`streamcal.intervals.null_check`). ``errors`` says which
        of the errors hold for one look and which for all looks together. The latter are there with ``anytime=True``, to be asked
        for where the snapshot holds all events since a first one, as that of a Cumulative window does: ``anytime`` of the metrics
        k1 and l2_ce (see :func:`streamcal.confidence.anytime_k1`), and ``errors["p_value"]``.
        """
        return dict(READERS["report"](self, level, anytime))

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        config = {"binning": self.binning.declaration, "claim": self.claim.declaration, "loss": self.loss}
        return {**config, "coarse": self.coarse}, {"cells": self.cells, "edges": self.edges}

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Array]) -> Snapshot:
        binning, claim = Binning.declared(config["binning"]), Claim.declared(config["claim"])
        cells, edges, loss, coarse = arrays["cells"], arrays["edges"], config["loss"], config["coarse"]
        if loss not in (None, "log", "pinball") or not isinstance(coarse, bool) or not np.isfinite(cells).all():
            raise ValueError(f"a snapshot's loss, coarse or cells are not what they can be: {loss!r}, {coarse!r}")
        if not coarse and (  # as many bins as there are edges, before those of the binning are made
            edges.size != binning.plan(claim.domain)[N_BINS] + 1
            or not np.array_equal(edges, binning.fine_edges(claim.domain))
        ):
            raise ValueError(f"the edges are not those of {binning!r:.100}")
        return cls(cells, edges, binning, claim, loss, coarse)
