"""In which of many segments was a claim ever wrong: a test in each, and the false discovery rate of those that it names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array
from streamcal.claims import check_level
from streamcal.drift.bets import DEFAULT, Bets, check_bets, check_tolerance
from streamcal.drift.detector import BAD, HEAD, LARGEST, QUIET, RUN, STATE, Bettor, N
from streamcal.drift.onset import by_row, sizes
from streamcal.drift.segments import SEGMENTS, SHOWN, SIZE, Segments, is_segment, segment_events
from streamcal.drift.sequential_test import OWN as EVER_OWN
from streamcal.drift.sequential_test import begin, ever_size, wealth_after
from streamcal.state import restorable
from streamcal.tally import unit

# Gathered are log W of each segment at its last event, then the numbers of each (as in etest.py). The plan is behind two numbers.
TEST_OWN = 2


@inlined
def numbers_of(buf: Array, g: int) -> Array:
    """The numbers of one segment."""
    n, size = int(buf[HEAD + SEGMENTS]), int(buf[HEAD + SIZE])
    first = int(buf[STATE]) + n + g * size
    return buf[first : first + size]


@inlined
def ever_segment_take(buf: Array, p: float, y: float, g: int) -> None:
    """Take an event that is allowed."""
    buf[N] += 1.0
    buf[RUN] += 1.0
    first = int(buf[STATE])
    buf[first + g] = wealth_after(buf[HEAD + TEST_OWN : first], numbers_of(buf, g), p, y, math.inf, buf[N])


@brief
def ever_segment_one(buf: Array, p: float, y: float, g: float) -> int:
    """Take one event, or say that it is BAD."""
    p = unit(p)
    if not (p == p and 0.0 <= y <= 1.0 and is_segment(buf, g)):
        return BAD
    ever_segment_take(buf, p, y, int(g))
    return QUIET


@kernel
def ever_segment_many(buf: Array, p: Array, y: Array, segment: Array) -> None:
    """Take events that are allowed."""
    for i in range(p.shape[0]):
        ever_segment_take(buf, p[i], y[i], int(segment[i]))


@restorable
class SegmentedTest(Bettor):
    r"""In which of many segments were the probabilities ever miscalibrated? False discovery rate at most ``alpha`` in (0, 1).

    Each segment has the wealth W of a :class:`~streamcal.drift.sequential_test.CalibrationTest` of its own, an
    e-value at any moment.
    ``rejected`` are the k segments with the largest W, for the largest k of which

    .. math:: W_{(k)} \ge \frac{\text{number of segments}}{\alpha\, k}

    (e-Benjamini-Hochberg). Looked at once, at a moment that may be chosen from all that was seen before, the expected share of
    segments that are calibrated among those rejected is at most alpha, whatever the segments have to do with each other, if the
    claims of those are true given the past of all segments. Not guaranteed: the same for all segments that were rejected at any
    of several looks. ``segments``: their number, or a list of their names. ``tolerance``, ``bets``, bad events: as in
    CalibrationTest. Memory: 2 kB per segment. Not thread-safe. Sources: Wang, Ramdas 2022; Xu, Wang, Ramdas 2021.

    >>> test = SegmentedTest(["at", "de"], alpha=0.05)
    >>> test.update_many([0.5] * 200, [1, 0, 1, 1] * 50, ["at", "de"] * 100)
    >>> test.rejected
    ['at']
    """

    settings: ClassVar[tuple[str, ...]] = ("segments", "alpha", "tolerance", "bets")
    _one: ClassVar[Callable[..., int]] = ever_segment_one
    _sample = (0.5, 1.0, 0.0)

    def __init__(
        self, segments: int | Sequence[str], alpha: float = 0.05, tolerance: float = 0.0, bets: Bets = DEFAULT
    ) -> None:
        self._known = Segments(segments)
        self.segments = self._known.given
        self.alpha = check_level(alpha, "alpha")
        self.tolerance = check_tolerance(tolerance)
        self.bets = check_bets(bets)
        n, plan = len(self._known.names), self.bets.plan(self.tolerance, 0)
        one = np.zeros(ever_size(len(self.bets.lines), len(self.bets.stakes), self.bets.rows))
        begin(plan, one)
        head = np.zeros(HEAD)
        head[STATE] = HEAD + TEST_OWN + plan.size
        self._buf = np.concatenate([head, [n, one.size], plan, np.zeros(n), np.tile(one, n)])

    def update(self, p: float, y: float, segment: Any) -> None:
        """Take one event: claim and outcome in [0, 1], and its segment. ValueError, and nothing changed, for any other."""
        try:
            self._status(p, y, self._known.number(segment))
        except ValueError:
            raise ValueError(self._known.complaint(p, y, segment)) from None

    def update_many(self, p: npt.ArrayLike, y: npt.ArrayLike, segment: npt.ArrayLike) -> None:
        """Take n events in order, all of shape (n,). ValueError names the first that is not allowed; then none is taken."""
        ever_segment_many(self._buf, *segment_events(self._known, p, y, segment))

    @property
    def log_evidence(self) -> Array:
        """log W of each segment after its last event, shape (segments,)."""
        first = int(self._buf[STATE])
        return self._buf[first : first + len(self._known.names)].copy()

    @property
    def rejected(self) -> list[Any]:
        """The segments rejected by e-Benjamini-Hochberg as of now, the strongest evidence first."""
        evidence, n = self.log_evidence, len(self._known.names)
        order = np.argsort(-evidence, kind="stable")
        enough = evidence[order] >= math.log(n / self.alpha) - np.log(np.arange(1, n + 1))
        last = int(np.flatnonzero(enough)[-1]) + 1 if enough.any() else 0
        return [self._known.names[g] for g in order[:last].tolist()]

    def report(self) -> dict[str, Any]:
        """What was found, as plain data.

        ``n``, ``alpha``, ``tolerance``, ``rejected`` (names), and under ``segments`` those with the ten largest log W that are
        rejected, or would be next: ``segment``, ``log_evidence``, ``rejected``, and of all its events ``events``, ``mean_claim``,
        ``mean_outcome``, ``gap``, ``slope``, ``intercept``, ``k1``, ``k1_by_chance``, ``rows``.
        """
        evidence, rejected = self.log_evidence, set(self.rejected)
        top = np.argsort(-evidence, kind="stable")[:SHOWN].tolist()
        said = [self._of(g, float(evidence[g]), self._known.names[g] in rejected) for g in top]
        heading = {"n": self.n, "alpha": self.alpha, "tolerance": self.tolerance, "rejected": self.rejected}
        return {**heading, "segments": said}

    def _of(self, g: int, evidence: float, rejected: bool) -> dict[str, Any]:
        rows = self.bets.rows
        first = EVER_OWN + 3 * len(self.bets.lines) + rows
        sums = numbers_of(self._buf, g)[first : first + 3 * rows].reshape(rows, 3)
        found = {"segment": self._known.names[g], "log_evidence": min(max(evidence, -LARGEST), LARGEST)}
        return {**found, "rejected": rejected, **sizes(sums), "rows": by_row(sums)}
