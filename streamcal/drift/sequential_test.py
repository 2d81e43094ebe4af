"""Were these probabilities ever not calibrated? One answer for a whole stream, or for each of its segments, at any time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array
from streamcal.claims import check_level
from streamcal.drift import shiryaev_roberts as sr
from streamcal.drift.bets import DEFAULT, Bets, check_bets, check_tolerance
from streamcal.drift.detector import LARGEST, Bettor, probability_events
from streamcal.drift.onset import bin_reports, sizes
from streamcal.drift.segments import SEGMENTS, SHOWN, KnownSegments, is_segment, segment_events
from streamcal.drift.shiryaev_roberts import COUNT, OUTCOMES
from streamcal.limits import SWAPPED, unit, warn
from streamcal.state import restorable

TOP, CROSSED = range(2)  # where a stream begins: see wealth_parts
HUGE, LOG_HUGE = 1e100, 100.0 * math.log(10.0)  # far from the largest float: one event multiplies by 1e9 at most
BEHIND = 2.0  # what is that many powers of HUGE behind the largest adds nothing to its 16 digits


def wealth_parts(bets: Bets) -> sr.BufferParts:
    """The numbers of one test: bets that are laid once, so that no start but the first is kept.

    The largest log W so far; how many events it took until log W first reached its threshold (0: not yet); wealth and exponent of
    each line; log wealth of each bin; wealth and exponent of the stakes in each; sums. A wealth is its number times HUGE to the
    power of its exponent: none gets lost, however far it is behind.
    """
    lines, bins, stakes = len(bets.lines), bets.bins, len(bets.stakes)
    shapes: dict[str, tuple[int, ...]] = {"top": (), "crossed": (), "bets": (2, lines), "increments": (lines + stakes,)}
    return sr.BufferParts(
        {
            **shapes,
            "starts": (0,),
            "bins": (1, bins),
            "binned": (bins, 2, stakes),
            "sums": (3 * bins,),
            "copies": (0, 0),
        }
    )


@inlined
def grow(wealth: Array, power: Array, k: int, x: float) -> None:
    """Multiply a wealth, and move what is too large or too small for a float into its exponent."""
    wealth[k] *= x
    if wealth[k] > HUGE:
        wealth[k] /= HUGE
        power[k] += 1.0
    elif 0.0 < wealth[k] < 1.0 / HUGE:
        wealth[k] *= HUGE
        power[k] -= 1.0


@inlined
def log_sum(wealth: Array, power: Array, weights: Array) -> float:
    """Logarithm of the weighted sum of wealths; -inf if all are lost."""
    most, total = -math.inf, 0.0
    for k in range(wealth.shape[0]):
        if wealth[k] > 0.0 and power[k] > most:
            most = power[k]
    for k in range(wealth.shape[0]):
        if wealth[k] > 0.0 and power[k] >= most - BEHIND:
            total += weights[k] * (wealth[k] if power[k] == most else wealth[k] * HUGE ** (power[k] - most))
    return math.log(total) + most * LOG_HUGE if total > 0.0 else -math.inf


@inlined
def grow_all(bets: Array, x: Array, weights: Array) -> float:
    """Multiply bets (wealths, then exponents) by their increments; the logarithm of their weighted sum."""
    n = x.shape[0]
    for k in range(n):
        grow(bets[:n], bets[n : 2 * n], k, x[k])
    return log_sum(bets[:n], bets[n : 2 * n], weights)


@inlined
def line_wealth(buf: Array, s: Array, p: float, y: float) -> float:
    """Multiply the lines; the logarithm of their weighted sum."""
    n, first = int(buf[sr.BETS]), int(buf[sr.AT_BETS])
    x = s[first + 2 * n : first + 3 * n]
    sr.line_increments(buf, x, sr.line_odds(buf, x, p), p, y)
    return grow_all(s[first : first + 2 * n], x, buf[sr.LINES + 2 * n : sr.LINES + 3 * n])


@inlined
def bin_wealth(buf: Array, s: Array, p: float, y: float) -> float:
    """Take the event in its bin; the logarithm of the share of the bins times the product of their wealths."""
    n, bins, here, share = int(buf[sr.STAKES]), int(buf[sr.BINS]), int(buf[sr.AT_BINS]), buf[sr.BIN_SHARE]
    j = sr.bin_of(buf, p)
    sr.add(s[int(buf[sr.AT_SUMS]) :], j, p, y)
    if share <= 0.0:
        return -math.inf
    x, own, stakes = s[here - n : here], int(buf[sr.AT_BINNED]) + 2 * n * j, sr.LINES + 3 * int(buf[sr.BETS])
    for k in range(n):
        x[k] = sr.stake_increment(buf[stakes + k], p, y, buf[sr.TOLERATED])
    s[here + j] = grow_all(s[own : own + 2 * n], x, buf[stakes + n : stakes + 2 * n]) - math.log(share)
    total = math.log(share * bins)
    for i in range(bins):
        total += s[here + i]
    return total


@inlined
def log_add(a: float, b: float) -> float:
    """Logarithm of exp(a) + exp(b)."""
    low, high = min(a, b), max(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


@inlined
def wealth_after(buf: Array, s: Array, p: float, y: float, threshold: float) -> float:
    """Take an event (p and y in [0, 1]) into the test s: log W."""
    buf[sr.N] += 1.0
    buf[sr.RUN] += 1.0
    lines = line_wealth(buf, s, p, y) if buf[sr.BETS] > 0.0 else -math.inf
    now = log_add(lines, bin_wealth(buf, s, p, y))
    if s[TOP] == math.inf or sr.impossible(buf, p, y):
        now = math.inf
    s[TOP] = max(s[TOP], now)
    if now >= threshold and s[CROSSED] == 0.0:
        s[CROSSED] = buf[sr.N]
    return now


@inlined
def ever_take(buf: Array, p: float, y: float, g: int) -> None:
    """Take an event that is allowed: gathered are log W of each segment at its last event, then the test of each."""
    state, size = int(buf[sr.STATE]), int(buf[sr.SIZE])
    first = state + int(buf[state + SEGMENTS]) + g * size
    buf[sr.EVIDENCE] = buf[state + g] = wealth_after(buf, buf[first : first + size], p, y, buf[sr.OF_ARL])


@brief
def ever_one(buf: Array, p: float, y: float, g: float) -> int:
    """Take one event, or say that it is BAD."""
    p = unit(p)
    if not (p == p and 0.0 <= y <= 1.0 and is_segment(buf, g)):
        return sr.BAD
    ever_take(buf, p, y, int(g))
    return sr.QUIET


@kernel
def ever_many(buf: Array, p: Array, y: Array, segment: Array) -> None:
    """Take events that are allowed."""
    for i in range(p.shape[0]):
        ever_take(buf, p[i], y[i], int(segment[i]))


class SequentialTest(Bettor):
    """What both tests share: bets that are laid once, in each of ``n`` segments, and rejected at a level ``alpha``."""

    _one: ClassVar[Callable[..., int]] = ever_one
    _sample = (0.5, 1.0, 0.0)

    def _start(self, alpha: float, tolerance: float, bets: Bets, n: int) -> None:
        """Check the settings; every bet starts with a wealth of 1."""
        self.alpha, self.tolerance = check_level(alpha, "alpha"), check_tolerance(tolerance)
        self.bets = check_bets(bets)
        parts = wealth_parts(self.bets)
        constants = {**self.bets.constants(self.tolerance), "segments": n}
        self._lay_out(parts, constants, {"each": (n,), "streams": (n, parts.size)})
        self._buf[sr.OF_ARL] = -math.log(self.alpha)
        for k in range(n):
            self.stream(k).bets[0] = self.stream(k).binned[:, 0] = 1.0

    def _heading(self) -> dict[str, Any]:
        """How a report begins."""
        return {"n": self.n, "alpha": self.alpha, "tolerance": self.tolerance}

    def _sizes(self, k: int) -> dict[str, Any]:
        """What the sums of a stream say."""
        sums = self.stream(k).sums.reshape(-1, 3)
        (_, low, _), (many, high, _) = sums[[0, -1]]  # predictions of 0 and 1 only: they lie in the first and last bin
        if low == 0.0 and high == many and not sums[1:-1, COUNT].any() and sums[:, OUTCOMES].sum() % 1.0:
            warn(SWAPPED)
        return {**sizes(sums), "bins": bin_reports(sums)}


@restorable
class CalibrationTest(SequentialTest):
    r"""Whether probabilities were ever not calibrated, at level ``alpha`` in (0, 1), looked at whenever one likes.

    The same claim and bets as in :class:`~streamcal.drift.calibration.CalibrationDrift`, all laid once, at the first event:

    .. math:: W_t = s \sum_k w_k \prod_{i \le t} L_{k,i} + (1 - s) \prod_{\text{bins } r} \frac1J \sum_{j=1}^{J}
              \prod_{i \le t,\, p_i \in r} L_{j,i}

    with s the ``line_share`` of ``bets``. W is a nonnegative supermartingale if all claims are true, so the probability that it
    ever reaches 1 / alpha is at most alpha (Ville): ``rejected``. ``p_value`` = min(1, 1 / max W) is valid at any time,
    ``log_evidence`` = log W is the evidence now, 0.0 before any event, inf for good after a claim of 0 or 1 that came out
    otherwise (with ``tolerance`` 0). ``tolerance`` eps: gaps up to eps are no reason to reject.

    Before a late change W has lost what the bets lost on true claims, so that it answers "ever", slowly, and not "since when":
    use the detector for that. Memory: 2 kB, however many events. Bad events: ValueError, and nothing changed. Not thread-safe.
    Sources: Ville 1939; Arnold, Henzi, Ziegel 2023; Waudby-Smith, Ramdas 2024.

    >>> test = CalibrationTest(alpha=0.05)
    >>> test.update_many([0.9] * 40, [1, 0] * 20)
    >>> test.rejected, test.p_value < 1e-5
    (True, True)
    """

    settings: ClassVar[tuple[str, ...]] = ("alpha", "tolerance", "bets")

    def __init__(self, alpha: float = 0.05, tolerance: float = 0.0, bets: Bets = DEFAULT) -> None:
        self._start(alpha, tolerance, bets, 1)

    @property
    def log_evidence(self) -> float:
        """log W after the last event."""
        return float(self._buf[sr.EVIDENCE])

    @property
    def p_value(self) -> float:
        """min(1, 1 / max W) so far: valid whenever it is looked at; never rises."""
        return math.exp(-float(self.stream().top))

    @property
    def rejected(self) -> bool:
        """Whether W has ever reached 1 / alpha; it stays."""
        return bool(self.stream().crossed > 0.0)

    def update(self, p: float, y: float) -> None:
        """Take one event: the claim p in [0, 1] and its outcome y in [0, 1]. ValueError, and nothing changed, for any other."""
        self._take(p, y, 0.0, shown=(p, y))

    def update_many(self, p: npt.ArrayLike, y: npt.ArrayLike) -> None:
        """Take n events in order, both of shape (n,): the same as one by one.

        ValueError names the first that is not allowed; then none is taken.
        """
        claims, outcomes = probability_events(p, y)
        self._alone(ever_many, self._buf, claims, outcomes, np.zeros(claims.size))

    def report(self) -> dict[str, Any]:
        """What was found, as plain data.

        ``n``, ``alpha``, ``tolerance``, ``rejected``, ``rejected_at`` (index of the event, None: not rejected), ``log_evidence``,
        ``p_value``; of all events ``events``, ``mean_claim``, ``mean_outcome``, ``gap``, ``slope``, ``intercept``, ``k1``,
        ``k1_by_chance`` and ``bins``, as in the report of :class:`~streamcal.drift.calibration.CalibrationDrift`.
        """
        return {
            **self._heading(),
            "rejected": self.rejected,
            "rejected_at": int(self.stream().crossed) - 1 if self.rejected else None,
            "log_evidence": min(max(self.log_evidence, -LARGEST), LARGEST),
            "p_value": self.p_value,
            **self._sizes(0),
        }


@restorable
class SegmentedTest(SequentialTest):
    r"""In which of many segments were the probabilities ever not calibrated? False discovery rate at most ``alpha`` in (0, 1).

    Each segment has the wealth W of a :class:`CalibrationTest` of its own, an e-value at any moment. ``rejected`` are the k
    segments with the largest W, for the largest k of which

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

    def __init__(
        self, segments: int | Sequence[str], alpha: float = 0.05, tolerance: float = 0.0, bets: Bets = DEFAULT
    ) -> None:
        self._known = KnownSegments(segments)
        self.segments = self._known.given
        self._start(alpha, tolerance, bets, len(self._known.names))

    def update(self, p: float, y: float, segment: Any) -> None:
        """Take one event: claim and outcome in [0, 1], and its segment. ValueError, and nothing changed, for any other."""
        self._take(p, y, self._known.number(segment), shown=(p, y, segment))

    def _complaint(self, *event: Any) -> str:
        return self._known.complaint(*event)

    def update_many(self, p: npt.ArrayLike, y: npt.ArrayLike, segment: npt.ArrayLike) -> None:
        """Take n events in order, all of shape (n,). ValueError names the first that is not allowed; then none is taken."""
        self._alone(ever_many, self._buf, *segment_events(self._known, p, y, segment))

    @property
    def log_evidence(self) -> Array:
        """log W of each segment after its last event, shape (segments,)."""
        return np.array(self.parts.each)

    @property
    def rejected(self) -> list[Any]:
        """The segments rejected by e-Benjamini-Hochberg as of now, the strongest evidence first."""
        evidence, n = self.log_evidence, len(self._known.names)
        order = np.argsort(-evidence, kind="stable")
        enough = evidence[order] >= math.log(n / self.alpha) - np.log(np.arange(1, n + 1))
        # The largest k counts, also where a smaller one falls short: that is what makes it Benjamini-Hochberg.
        last = int(np.flatnonzero(enough)[-1]) + 1 if enough.any() else 0
        return [self._known.names[g] for g in order[:last].tolist()]

    def report(self) -> dict[str, Any]:
        """What was found, as plain data.

        ``n``, ``alpha``, ``tolerance``, ``rejected`` (names), and under ``segments`` those with the ten largest log W that are
        rejected, or would be next: ``segment``, ``log_evidence``, ``rejected``, and of all its events ``events``, ``mean_claim``,
        ``mean_outcome``, ``gap``, ``slope``, ``intercept``, ``k1``, ``k1_by_chance``, ``bins``.
        """
        evidence, rejected, said = self.log_evidence, self.rejected, []
        for g in np.argsort(-evidence, kind="stable")[:SHOWN].tolist():
            name = self._known.names[g]
            found = {"segment": name, "log_evidence": float(np.clip(evidence[g], -LARGEST, LARGEST))}
            said.append({**found, "rejected": name in rejected, **self._sizes(g)})
        return {**self._heading(), "rejected": rejected, "segments": said}
