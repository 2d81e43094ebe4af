"""Many segments (countries, tenants, model versions): one detector for all that names those that drift."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, Ints, check_aligned, numbers, one_number
from streamcal.claims import Claim
from streamcal.drift import shiryaev_roberts as sr
from streamcal.drift.bets import DEFAULT, Bets
from streamcal.drift.calibration import in_numbers
from streamcal.drift.detector import LARGEST, ProbabilityDetector, detector, probability_events
from streamcal.drift.onset import stream_report
from streamcal.limits import unit
from streamcal.state import reserve

LEVELS = 8  # of copies per segment: sums back to any moment in its last 2,048 events, else to the start of the run
# Events after which the sum over segments is taken anew, however many they are: widening changes nothing
RESUMMED = 4096
NAMED = 0.1  # of the evidence: segments with less are not named in the text
SHOWN = 10  # segments in a report: with NAMED no more can have made an alarm
MOST = 1_000_000  # segments: 7 GB
# The last constants are the share of the whole and the number of segments. A run gathers the sum over segments, the evidence of
# each segment and (last) of the whole, then the stream of each.
WHOLE_SHARE, SEGMENTS = -2, -1  # from STATE


@inlined
def made_alarm(buf: Array) -> float:
    """What the evidence of a segment must be at least to have made the alarm: a tenth of all, or the most there is."""
    first = int(buf[sr.STATE])
    n, share = int(buf[first + SEGMENTS]), buf[first + WHOLE_SHARE]
    return float(min(buf[first + 1 : first + n + 1].max(), NAMED * (buf[sr.EVIDENCE] + buf[sr.KEPT]) / (1.0 - share)))


@inlined
def restart_what_alarmed(buf: Array) -> None:
    """Begin a run after an alarm: what made it begins anew, and so does the whole; the other segments go on."""
    first, size = int(buf[sr.STATE]), int(buf[sr.SIZE])
    n, share = int(buf[first + SEGMENTS]), buf[first + WHOLE_SHARE]
    each, streams = buf[first + 1 : first + n + 2], buf[first + n + 2 :]
    least = made_alarm(buf)
    for g in range(n + 1):
        if g == n or each[g] >= least:
            each[g] = 0.0
            streams[g * size : (g + 1) * size] = 0.0
    buf[first] = each[:n].sum()
    buf[sr.KEPT] = (1.0 - share) * buf[first]
    buf[sr.BEFORE], buf[sr.RUN], buf[sr.EVIDENCE], buf[sr.STATUS] = buf[sr.N], 0.0, 0.0, sr.QUIET


@inlined
def segment_take(buf: Array, p: float, y: float, g: int) -> int:
    """Take an event that is allowed: only its segment, and the whole, are touched."""
    if buf[sr.STATUS] == sr.ALARMED:
        restart_what_alarmed(buf)
    buf[sr.N] += 1.0
    buf[sr.RUN] += 1.0
    first, size = int(buf[sr.STATE]), int(buf[sr.SIZE])
    n, share = int(buf[first + SEGMENTS]), buf[first + WHOLE_SHARE]
    each, streams = buf[first + 1 : first + n + 2], buf[first + n + 2 :]
    old, each[g] = each[g], sr.probability_event(buf, streams[g * size : (g + 1) * size], p, y)
    buf[first] += each[g] - old
    if int(buf[sr.RUN]) % RESUMMED == 0:  # what rounding has left in the sum goes
        buf[first] = each[:n].sum()
    if share > 0.0:
        each[n] = sr.probability_event(buf, streams[n * size : (n + 1) * size], p, y)
    return sr.judge(buf, max(share * each[n] + (1.0 - share) * buf[first] - buf[sr.KEPT], 0.0))


@inlined
def is_segment(buf: Array, g: float) -> bool:
    """Whether a number is the index of a segment."""
    return bool(0.0 <= g < buf[int(buf[sr.STATE]) + SEGMENTS] and g == math.floor(g))


@brief
def segment_one(buf: Array, p: float, y: float, g: float) -> int:
    """Take one event, or say that it is BAD."""
    p = unit(p)
    return segment_take(buf, p, y, int(g)) if p == p and 0.0 <= y <= 1.0 and is_segment(buf, g) else sr.BAD


@kernel
def segment_many(buf: Array, first: int, p: Array, y: Array, segment: Array) -> int:
    """Take events from ``first`` on: the index of the first that alarms, or their number."""
    for i in range(first, p.shape[0]):
        if segment_take(buf, p[i], y[i], int(segment[i])) == sr.ALARMED:
            return i
    return int(p.shape[0])


class KnownSegments:
    """The names of the segments: 0..n-1, or words."""

    def __init__(self, segments: Any) -> None:
        whole = isinstance(segments, int | np.integer) and not isinstance(segments, bool)
        if whole:
            self.given: int | list[str] = int(segments)
            reserve(20 * min(max(self.given, 0), MOST))  # an int in a list and in a dict
            self.names: list[Any] = list(range(max(self.given, 0))) if self.given <= MOST else []
        else:
            self.given = self.names = list(segments) if isinstance(segments, list | tuple) else []
        text = whole or all(isinstance(s, str) for s in self.names)
        if not 1 <= len(self.names) <= MOST or not text or len(set(self.names)) != len(self.names):
            raise ValueError(f"segments must be their number or their distinct names (text), got {segments!r:.80}")
        self.index = {name: i for i, name in enumerate(self.names)}

    def number(self, segment: Any) -> float:
        """The index of a segment, nan if there is none of that name."""
        if isinstance(segment, str) and isinstance(self.given, list):
            return float(self.index.get(segment, math.nan))
        return math.nan if isinstance(self.given, list) else one_number(segment)

    def numbers(self, segment: Any, n: int) -> Array:
        """The indices of n segments; ValueError names the first that is unknown."""
        values = np.asarray(segment) if hasattr(segment, "dtype") else np.asarray(list(segment), dtype=object)
        if isinstance(segment, np.ma.MaskedArray):
            values = np.ma.filled(segment.astype(object), None)
        if values.shape != (n,):
            raise ValueError(f"segment must have shape ({n},) as p and y, got {values.shape}")
        if isinstance(self.given, int) and values.dtype.kind in "biuf":
            found = numbers("segment", values)
        else:
            found = np.array([self.number(s) for s in values.tolist()], dtype=np.float64)
        known = (found >= 0.0) & (found < len(self.names)) & (found == np.floor(found))
        if not known.all():
            i = int(np.argmin(known))
            raise ValueError(f"segment must be {self.wanted}, got {values[i]!r} at index {i}")
        return np.ascontiguousarray(found)

    @property
    def wanted(self) -> str:
        """What a segment must be."""
        if isinstance(self.given, int):
            return f"in 0..{self.given - 1}"
        return f"one of {', '.join(map(repr, self.names[:10]))}{', ...' if len(self.names) > 10 else ''}"

    def complaint(self, p: Any, y: Any, segment: Any) -> str:
        """What is allowed and what came."""
        return f"p and y must lie in [0, 1] and segment be {self.wanted}, got {p!r}, {y!r}, {segment!r}"


def segment_events(known: KnownSegments, p: Any, y: Any, segment: Any) -> tuple[Array, Array, Array]:
    """Checked events: p, y and the index of the segment."""
    check_aligned(p=p, y=y, segment=segment)
    claims, outcomes = probability_events(p, y)
    return claims, outcomes, known.numbers(segment, claims.size)


@detector("segmented", "mean", "top_label", "marginal")
class SegmentedDrift(ProbabilityDetector):
    r"""Alarms when the probabilities in any of many segments are no longer calibrated, and names the segments.

    ``segments``: their number (segments are then 0, 1, ...) or a list of their names. Each segment g has the bets of
    :class:`~streamcal.drift.calibration.CalibrationDrift`, laid anew before each of its own events, and all events together have
    them too, with the share ``whole_share`` in [0, 1) of the stake:

    .. math:: \text{evidence} = s\,R^{\text{whole}} + (1 - s) \sum_g R^{(g)}

    Every event adds at most 1 to the expectation of this sum if the claims are true given the past of all segments and the
    segment of the event. So a false alarm comes after ``arl`` events, of all segments together, on average, or later: for any
    number of segments, whatever they have to do with each other, and however the order in which they come is chosen. An event
    touches the numbers of its own segment and of the whole. A segment that drifts alone alarms about as soon, in its own events,
    as with a detector of its own at threshold arl / (1 - s); a drift of all segments as one detector of all at arl / s.

    After an alarm the segments that made it (those with a tenth of the evidence, or the most) begin anew, and so does the whole.
    The others go on, so that a segment that is wrong all the time does not hide one that is slower; but what they had by then is
    no evidence in the new run:

    .. math:: \text{evidence} = s\,R^{\text{whole}} + (1 - s) \Big( \sum_g R^{(g)} - \sum_{g\ \text{going on}} R^{(g)}_0 \Big)

    It begins at 0 (and is never less), and every event adds at most 1 to its expectation as before: each run is ``arl`` events or
    longer on average.

    ``tolerance``, certain claims, bad events, what is not guaranteed: as in CalibrationDrift. Memory: 7 kB per segment. Not
    thread-safe. Source: Shin, Ramdas, Rinaldo 2024.

    >>> detector = SegmentedDrift(["at", "de", "ch"], arl=1000)
    >>> alarms = detector.update_many([0.5] * 300, [1, 0, 0, 1, 1, 1] * 50, ["at", "de", "ch"] * 100)
    >>> alarms.size > 0, [(s["segment"], s["direction"]) for s in detector.history()[0]["segments"][:1]]
    (True, [('at', 'too low')])
    """

    segmented: ClassVar[bool] = True
    settings: ClassVar[tuple[str, ...]] = ("segments", "arl", "tolerance", "bets", "warning_arl", "whole_share")
    _one: ClassVar[Callable[..., int]] = segment_one
    _many: ClassVar[Callable[..., int]] = segment_many
    _sample = (0.5, 1.0, 0.0)

    def __init__(
        self,
        segments: int | Sequence[str],
        arl: float = 20_000,
        tolerance: float = 0.0,
        bets: Bets = DEFAULT,
        warning_arl: float | None = None,
        whole_share: float = 0.5,
    ) -> None:
        self._known = KnownSegments(segments)
        self.segments = self._known.given
        self.whole_share = one_number(whole_share)
        if not 0.0 <= self.whole_share < 1.0:
            raise ValueError(f"whole_share must lie in [0, 1), got {whole_share!r}")
        n = len(self._known.names)
        constants = {"whole_share": self.whole_share, "segments": n}
        self._lay(arl, tolerance, bets, warning_arl, LEVELS, n + 1, constants, {"total": (), "each": (n + 1,)})

    @classmethod
    def for_claim(cls, claim: Claim, arl: float, tolerance: float) -> Self:
        """Of one segment: more are added as they come (:meth:`widened`)."""
        return cls(1, arl, tolerance)

    def update(self, p: float, y: float, segment: Any) -> None:
        """Take one event: claim and outcome in [0, 1], and its segment. ValueError, and nothing changed, for any other."""
        try:
            status = self._one(self._buf, p, y, self._known.number(segment))
        except (TypeError, ValueError, OverflowError):
            status = sr.BAD
        if status != sr.QUIET:
            self._answer(status, p, y, segment)

    def update_many(self, p: npt.ArrayLike, y: npt.ArrayLike, segment: npt.ArrayLike) -> Ints:
        """Take n events in order, all of shape (n,): the indices of those that alarmed, one kernel call up to each."""
        return self._take_many(*segment_events(self._known, p, y, segment))

    def _complaint(self, *event: Any) -> str:
        return self._known.complaint(*event)

    def widened(self, segments: int | Sequence[str]) -> Self:
        """A new detector with more segments in the same state: a larger number, or a list that begins with the names there are.

        It goes on as one that had them from the start (up to the order of summation): evidence is a sum over segments, and a
        segment without events has none. So the guarantee holds as before. ValueError if a segment is missing.

        >>> detector = SegmentedDrift(["at", "de"])
        >>> detector.update(0.5, 1, "at")
        >>> wide = detector.widened(["at", "de", "ch"])
        >>> wide.evidence == detector.evidence, wide.n
        (True, 1)
        """
        wide = type(self)(segments, **{s: getattr(self, s) for s in self.settings[1:]})
        n = len(self._known.names)
        if wide._known.names[:n] != self._known.names:
            raise ValueError(f"segments must begin with the {n} that are there, got {segments!r:.80}")
        wide._buf[: sr.OF_ARL], wide._buf[sr.KEPT] = self._buf[: sr.OF_ARL], self._buf[sr.KEPT]
        old, new = self.parts, wide.parts
        new.total[...], new.each[:n], new.each[-1] = old.total, old.each[:-1], old.each[-1]
        new.streams[:n], new.streams[-1] = old.streams[:-1], old.streams[-1]
        wide._history = self.history()
        return wide

    def report(self) -> dict[str, Any]:
        """What the evidence says: how it begins and ``text`` (which segments made the evidence) as in :meth:`Detector.report`.

        ``segments``: the ten with the largest evidence that have had events, each with ``segment``, ``evidence``, ``share`` (of
        all evidence), ``n`` (its events since it began anew), ``last`` (how many of its latest events to refit on: those since
        the onset), and ``direction``, ``likelihood_ratio``, ``onset``, ``gap`` and the other keys of CalibrationDrift, where
        events are counted within the segment since then, from 0; ``whole``: the same of all events together (None if whole_share
        is 0).
        """
        n, each, streams = len(self._known.names), self.parts.each, self.parts.streams
        seen = np.flatnonzero(streams[:n, sr.TIME] > 0.0)
        top = seen[np.argsort(-each[seen], kind="stable")][:SHOWN].tolist()
        shares = np.full(n + 1, 1.0 - self.whole_share)
        shares[n] = self.whole_share
        said = [{"segment": self._known.names[g], **self._of(each[g], shares[g], g)} for g in top]
        whole = self._of(each[n], shares[n], n) if self.whole_share > 0.0 and len(seen) else None
        found = {**self._heading(), "segments": said, "whole": whole}
        return {**found, "text": segments_in_words(found)}

    def _of(self, evidence: float, weight: float, g: int) -> dict[str, Any]:
        """What one segment shows, or (the last) the whole."""
        total, stream = self.evidence + float(self._buf[sr.KEPT]), self.stream(g)
        n, found = int(stream.time), stream_report(self, stream)
        share = float(weight * evidence / total) if 0.0 < total <= LARGEST else float(evidence > LARGEST)
        last = None if found["onset"] is None else n - found["onset"]
        return {"evidence": min(float(evidence), LARGEST), "share": share, "n": n, "last": last, **found}


def segments_in_words(report: dict[str, Any]) -> str:
    """Which segments made the evidence of a report, or that it was all of them together."""
    said = [
        f"{part['segment']} ({part['share']:.0%} of the evidence): {part_in_words(part)}"
        for part in report["segments"]
        if part["share"] >= NAMED
    ]
    whole = report["whole"]
    if whole is not None and whole["share"] > max((part["share"] for part in report["segments"]), default=0.0):
        said = [f"all segments together ({whole['share']:.0%} of the evidence): {part_in_words(whole)}", *said]
    return "; ".join(said) or "no evidence against the predictions"


def part_in_words(part: dict[str, Any]) -> str:
    """What the evidence of one segment, or of the whole, says."""
    if part["direction"] is None or part["mean_claim"] is None:
        return "something came that was predicted to be impossible"
    return f"predictions {part['direction']}, of the last {part['last']:,} events there; {in_numbers(part, part['direction'])}"
