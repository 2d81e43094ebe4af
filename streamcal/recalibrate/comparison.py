"""What a recalibrator did to the events that it has seen: raw and recalibrated forecasts side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from streamcal._jit import brief, inlined, kernel, lazily
from streamcal.arrays import Array
from streamcal.binning import N_BINS, Binning, Edges, EqualWidth
from streamcal.claims import Claim, Mean
from streamcal.limits import SWAPPED, warn
from streamcal.snapshot import Snapshot
from streamcal.state import Document, restorable
from streamcal.tally import CELLS, CLAIM, COUNT, LOSS, add, add_many
from streamcal.tally import MEAN as PROBABILITY
from streamcal.windows import Cumulative
from streamcal.windows.window import NO_KEYS

# Behind the sums of both forecasts: of d = recalibrated - raw, and of the recalibrated forecast itself.
MOVED, SQUARE, LARGEST, WEIGHT, SPREAD, MEAN, OWN = range(7)
EVERY_NUMBER = Edges([-math.inf, math.inf])  # one bin: quantiles are compared by coverage and loss, not by their size


@brief
def compare_one(buf: Array, p: float, q: float, y: float, w: float) -> int:
    """Add the raw forecast p to key 0, the recalibrated one q to key 1, and what lies between them."""
    if not w > 0.0:
        return 0
    # A prediction of 1 + 1e-7 was allowed and served as 1: it is compared as that.
    if buf[CLAIM] == PROBABILITY:
        p, q = min(max(p, 0.0), 1.0), min(max(q, 0.0), 1.0)
    first = int(buf[CELLS])
    add(buf, first, 0, p, y, w, 1.0)
    add(buf, first + 8 * (int(buf[N_BINS]) + 1), 1, q, y, w, 1.0)
    own, d = buf.shape[0] - OWN, q - p
    buf[own + MOVED] += w * abs(d)
    buf[own + SQUARE] += w * d * d
    buf[own + LARGEST] = max(buf[own + LARGEST], abs(d))
    merge(buf[own:], w, q, 0.0)
    return 0


@inlined
def merge(own: Array, weight: float, mean: float, spread: float) -> None:
    """Join the mean, and the summed squares around it, of other forecasts (Chan, Golub, LeVeque 1979: plain squares cancel)."""
    both, d = own[WEIGHT] + weight, mean - own[MEAN]
    own[SPREAD] += spread + d * d * (own[WEIGHT] / both) * weight
    own[MEAN] += d * (weight / both)
    own[WEIGHT] = both


@kernel
def moved_many(own: Array, p: Array, q: Array, w: Array) -> None:
    """Add what lies between many raw and recalibrated forecasts of some weight."""
    moved, square, largest, total, weight, spread = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(p.shape[0]):
        d = abs(q[i] - p[i])
        moved += w[i] * d
        square += w[i] * d * d
        largest = max(largest, d)
        total += w[i] * q[i]
        weight += w[i]
    own[MOVED] += moved
    own[SQUARE] += square
    own[LARGEST] = max(own[LARGEST], largest)
    if weight > 0.0:
        mean = total / weight
        for i in range(p.shape[0]):
            spread += w[i] * (q[i] - mean) * (q[i] - mean)
        merge(own, weight, mean, spread)


@restorable
class Comparison(Document):
    """Sums of the raw and of the recalibrated forecasts of the same events; of fixed size, however many there are.

    Probabilities are kept in 15 bins of equal width with their log loss; quantiles in one bin with their pinball loss.
    """

    _compare: ClassVar[Callable[..., int]]

    def __init__(self, claim: Claim | None = None) -> None:
        claim = Mean() if claim is None else claim
        real = claim.domain == "real"
        binning: Binning = EVERY_NUMBER if real else EqualWidth(15)
        self.window = Cumulative(binning, keys=2, claim=claim, loss="pinball" if real else "log")
        self._join(self.window._buf, np.zeros(OWN))

    def _join(self, sums: Array, own: Array) -> None:
        self._buf = np.concatenate([sums, own])
        self.window._buf = self._buf[: sums.size]

    def record(self, p: float, q: float, y: float, w: float) -> None:
        """Add one event whose raw forecast was p and recalibrated one q; all are finite and have been checked."""
        self._compare(self._buf, p, q, y, w)

    def record_many(self, p: Array, q: Array, y: Array, w: Array) -> None:
        """Add many events; the sums are those of :meth:`record` one by one up to rounding."""
        if not (w > 0.0).all():
            p, q, y, w = (np.ascontiguousarray(a[w > 0.0]) for a in (p, q, y, w))
        first = int(self._buf[CELLS])
        weights = np.empty(0) if (w == 1.0).all() else w  # without weights the tally keeps fewer sums
        add_many(self._buf, first, p, y, weights, NO_KEYS)
        add_many(self._buf, first + 8 * (int(self._buf[N_BINS]) + 1), q, y, weights, NO_KEYS)
        moved_many(self._buf[-OWN:], p, q, w)

    @property
    def before(self) -> Snapshot:
        """The raw forecasts."""
        return self.window.snapshot()[0]

    @property
    def after(self) -> Snapshot:
        """The recalibrated forecasts."""
        return self.window.snapshot()[1]

    def losses(self) -> tuple[float, float]:
        """Summed loss (log or pinball) of the raw and of the recalibrated forecasts."""
        before, after = self.window.cells[:, -1, LOSS].tolist()
        return before, after

    def report(self) -> dict[str, Any]:
        """Both reports, and the size of the correction: mean, root mean square and largest; nan before any event.

        ``forecast`` has mean and standard deviation of the recalibrated forecasts: for a quantile of a score this is the
        width of what it covers, to be read beside the coverage.
        """
        if (before := self.before).is_swapped:
            warn(SWAPPED)
        own = self._buf[-OWN:]
        weight = float(own[WEIGHT]) or math.nan  # nan + 0 * nan: what was never seen is not 0
        moved, squared, spread = (own[[MOVED, SQUARE, SPREAD]] / weight).tolist()
        return {
            "count": float(self.window.cells[0, :-1, COUNT].sum()),
            "before": before.report(anytime=True),
            "after": self.after.report(anytime=True),
            "correction": {
                "mean": moved,
                "root_mean_square": math.sqrt(squared),
                "largest": float(own[LARGEST]) + 0.0 * weight,
            },
            "forecast": {"mean": float(own[MEAN]) + 0.0 * weight, "standard_deviation": math.sqrt(spread)},
        }

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        _, arrays = self.window._state()
        return {"claim": self.window.claim.declaration}, {**arrays, "own": self._buf[-OWN:]}

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Array]) -> Comparison:
        made = cls(Claim.declared(config["claim"]))
        own = arrays["own"].reshape(-1)
        if own.size != OWN or not np.isfinite(own).all() or (own[:MEAN] < 0.0).any():
            raise ValueError(f"a comparison ends with {OWN} finite numbers, all but the mean at least 0, got {own}")
        made.window._take_over(arrays["buffer"].reshape(-1))
        made._join(made.window._buf, own)
        return made


lazily(Comparison, "_compare", compare_one, 0.5, 0.5, 1.0, 1.0)
