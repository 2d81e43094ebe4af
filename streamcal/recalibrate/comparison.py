"""What a recalibrator did to the events that it has seen: raw and recalibrated forecasts side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from streamcal._jit import brief, kernel, lazily
from streamcal.arrays import Array
from streamcal.binning import Binning, Edges, EqualWidth
from streamcal.claims import Claim, Mean, claim_document, claim_from
from streamcal.rows import N_ROWS
from streamcal.snapshot import Snapshot
from streamcal.state import Document, restorable
from streamcal.tally import CELLS, COUNT, LOSS, W, add, add_many
from streamcal.windows import Cumulative
from streamcal.windows.window import NO_KEYS

# Behind the sums of both forecasts: of d = recalibrated - raw, and of the recalibrated forecast itself.
MOVED, SQUARE, LARGEST, SUM, SUM_SQUARE, OWN = range(6)
EVERY_NUMBER = Edges([-math.inf, math.inf])


@brief
def compare_one(buf: Array, p: float, q: float, y: float, w: float) -> int:
    """Add the raw forecast p to key 0, the recalibrated one q to key 1, and what lies between them."""
    first = int(buf[CELLS])
    add(buf, first, 0, p, y, w, 1.0)
    add(buf, first + 8 * (int(buf[N_ROWS]) + 1), 1, q, y, w, 1.0)
    own, d = buf.shape[0] - OWN, q - p
    buf[own + MOVED] += w * abs(d)
    buf[own + SQUARE] += w * d * d
    buf[own + LARGEST] = max(buf[own + LARGEST], abs(d) if w > 0.0 else 0.0)
    buf[own + SUM] += w * q
    buf[own + SUM_SQUARE] += w * q * q
    return 0


@kernel
def moved_many(own: Array, p: Array, q: Array, w: Array) -> None:
    """Add what lies between many raw and recalibrated forecasts."""
    moved, square, largest, total, total_square = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(p.shape[0]):
        d = abs(q[i] - p[i])
        moved += w[i] * d
        square += w[i] * d * d
        largest = max(largest, d if w[i] > 0.0 else 0.0)
        total += w[i] * q[i]
        total_square += w[i] * q[i] * q[i]
    own[MOVED] += moved
    own[SQUARE] += square
    own[LARGEST] = max(own[LARGEST], largest)
    own[SUM] += total
    own[SUM_SQUARE] += total_square


@restorable
class Comparison(Document):
    """Sums of the raw and of the recalibrated forecasts of the same events; of fixed size, however many there are.

    Probabilities are kept in 15 rows of equal width with their log loss; quantiles in one row with their pinball loss.
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
        first = int(self._buf[CELLS])
        weights = np.empty(0) if (w == 1.0).all() else w
        add_many(self._buf, first, p, y, weights, NO_KEYS)
        add_many(self._buf, first + 8 * (int(self._buf[N_ROWS]) + 1), q, y, weights, NO_KEYS)
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
        ledger = self.window.cells[:, -1, LOSS]
        return float(ledger[0]), float(ledger[1])

    def report(self) -> dict[str, Any]:
        """Both reports, and the size of the correction: mean, root mean square and largest; nan before any event.

        ``forecast`` has mean and standard deviation of the recalibrated forecasts: for a quantile of a score this is the
        width of what it covers, to be read beside the coverage.
        """
        own, weight = self._buf[-OWN:], float(self.window.cells[0, :-1, W].sum())
        mean, square, moved, squared = (own[[SUM, SUM_SQUARE, MOVED, SQUARE]] / (weight or math.nan)).tolist()
        return {
            "count": float(self.window.cells[0, :-1, COUNT].sum()),
            "before": self.before.report(),
            "after": self.after.report(),
            "correction": {
                "mean": moved,
                "root_mean_square": math.sqrt(squared),
                "largest": float(own[LARGEST]) if weight else math.nan,
            },
            "forecast": {"mean": mean, "standard_deviation": math.sqrt(max(square - mean * mean, 0.0))},
        }

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        _, arrays = self.window._state()
        return {"claim": claim_document(self.window.claim)}, {**arrays, "own": self._buf[-OWN:]}

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Array]) -> Comparison:
        made = cls(claim_from(config["claim"]))
        own = arrays["own"].reshape(-1)
        if own.size != OWN or not np.isfinite(own).all():
            raise ValueError(f"a comparison ends with {OWN} finite numbers, got {own}")
        made.window._take_over(arrays["buffer"].reshape(-1))
        made._join(made.window._buf, own)
        return made


lazily(Comparison, "_compare", compare_one, 0.5, 0.5, 1.0, 1.0)
