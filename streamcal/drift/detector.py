"""What all detectors share: one buffer changed by kernels, alarms, reports, the document, and the registry of the family.

A detector bets against the claims. Each bet multiplies its stake by an increment whose expectation is at most 1 if the claims are
true, and a new bet of stake 1 is laid before every event. So the sum of all bets minus the number of events is a supermartingale,
and the run length until that sum reaches ``arl`` is at least ``arl`` on average: whatever the forecasts are and however they are
chosen. Source: Shin, Ramdas, Rinaldo 2024 (e-detectors).

A buffer holds, one behind the other: the numbers of the run (``RUN_PARTS``), how its streams are laid out, the constants of the
kind (its bets), and what a run has gathered: all 0.0 when a run begins.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from streamcal._jit import lazily
from streamcal.arrays import Array, Ints, check_aligned, numbers, one_number
from streamcal.claims import Claim
from streamcal.drift import shiryaev_roberts as sr
from streamcal.drift.bets import Bets, check_bets, check_tolerance
from streamcal.limits import is_allowed, warn_if_swapped
from streamcal.state import Described, reserve, restorable

REMEMBERED = 20  # reports of the last alarms: each takes some kB in a document
BLOCK = 1_000  # events between two looks: a detector keeps the reports of all alarms of its last call, then only of 20
MOST_ARL = 1e15  # evidence grows beyond the threshold by at most what one event multiplies: the sums stay finite
LARGEST = float(np.finfo(np.float64).max)  # what JSON can hold in the place of infinity
D = TypeVar("D", bound="type[Detector]")
DETECTORS: dict[str, type[Detector]] = {}  # by name; filled by @detector


class Bettor(Described, ABC):
    """One float64 buffer that kernels change, made of ``settings`` (the constructor's arguments); a document, a copy, a pickle.

    ``_one(buf, *event)`` takes one event and returns BAD (and changes nothing) if it is not allowed; all its scalars are floats.
    It is called by its compiled entry; ``_sample`` is an allowed event to try that entry with. Not thread-safe: a second thread
    in ``update_many`` meanwhile gets a RuntimeError.
    """

    fitted: ClassVar[tuple[str, ...]] = ("_buf",)
    _one: ClassVar[Callable[..., int]]
    _sample: ClassVar[tuple[float, ...]] = (0.5, 1.0)
    _buf: Array
    _whole: sr.BufferParts
    _stream: sr.BufferParts

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """At the first event of the first of a kind, its kernel is compiled and its entry kept on the class."""
        super().__init_subclass__(**kwargs)
        if "_one" in cls.__dict__:
            lazily(cls, "_one", cls.__dict__["_one"], *cls._sample)

    def _lay_out(
        self, stream: sr.BufferParts, constants: Mapping[str, npt.ArrayLike], gathered: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Make the buffer: the constants by their names, and behind them zeros for what is gathered, in these shapes."""
        given = {**sr.stream_constants(stream), **constants}
        shapes = {name: np.shape(value) for name, value in given.items()}
        self._stream, self._whole = stream, sr.BufferParts({**sr.RUN_PARTS.shapes, **shapes, **gathered})
        reserve(self._whole.size)
        self._buf = np.zeros(self._whole.size)
        parts = self.parts
        for name, value in given.items():
            getattr(parts, name)[...] = value
        parts.state[...] = self._whole.at[next(iter(gathered))]

    @property
    def parts(self) -> SimpleNamespace:
        """The parts of the buffer by their names, as views: for reports and tests. Writing into them changes the state."""
        return self._whole.views(self._buf)

    def stream(self, index: int = 0) -> SimpleNamespace:
        """The parts of one stream by their names, as views: of a class or a segment, of all of them behind the last."""
        return self._stream.views(self.parts.streams[index])

    @property
    def n(self) -> int:
        """Events since the start; nothing sets it back."""
        return int(self._buf[sr.N])

    def _take(self, *event: Any, shown: tuple[Any, ...] | None = None) -> None:
        """Take one event; ValueError about what is ``shown`` (or the event), and nothing changed, if it is not allowed.

        A kind may call its kernel itself, and :meth:`_answer` only if the status is not QUIET.
        """
        try:
            status = self._one(self._buf, *event)
        except (TypeError, ValueError, OverflowError):
            status = sr.BAD
        if status != sr.QUIET:
            self._answer(status, *(shown or event))

    def _answer(self, status: int, *event: Any) -> None:
        """What is to be done after an event that was not QUIET."""
        if status == sr.BAD:
            raise ValueError(self._complaint(*event))

    def _complaint(self, *event: Any) -> str:
        """What is allowed and what came."""
        return f"p and y must lie in [0, 1], got {', '.join(map(repr, event))}"

    def __repr__(self) -> str:
        """Only what differs from the defaults."""
        usual = {name: parameter.default for name, parameter in inspect.signature(type(self)).parameters.items()}
        if hasattr(self, "arl"):
            usual["warning_arl"] = self.arl / 10.0  # what follows from arl is no setting of its own
        said = [f"{s}={v!r}" for s in self.settings if (v := getattr(self, s)) != usual.get(s)]
        return f"{type(self).__name__}({', '.join(said)})"

    def __eq__(self, other: object) -> bool:
        """The same settings and the same state to the last bit."""
        return type(other) is type(self) and isinstance(other, Bettor) and other.to_bytes() == self.to_bytes()

    __hash__ = None  # type: ignore[assignment]

    def _go_on(self, fitted: dict[str, Any]) -> None:
        fitted["_buf"] = buffer = fitted["_buf"].reshape(-1)
        if buffer.size != self._buf.size or not self._is_sound(buffer):
            raise ValueError(f"the buffer of {buffer.size} numbers does not fit {self!r:.200}")
        super()._go_on(fitted)

    def _is_sound(self, buffer: Array) -> bool:
        """Whether the constants, on which the kernels rely, are those of this; whether the counts of a buffer go together.

        What a run has gathered has passed the checksum, and whatever it is, a kernel takes it:
        test_a_document_with_other_numbers_is_refused_or_goes_on. A report counts with it, so that counts, sums and moments of
        starts are finite, while evidence may be infinite.
        """
        fixed, counts = (
            np.r_[sr.OF_ARL : sr.KEPT, sr.RUN_PARTS.size : int(self._buf[sr.STATE])],
            buffer[[sr.N, sr.RUN, sr.BEFORE, sr.ALARMS]],
        )
        return (
            np.array_equal(buffer[fixed], self._buf[fixed])
            and not np.isnan(buffer).any()
            and bool(((counts >= 0.0) & (counts <= buffer[sr.N]) & (counts == np.floor(counts))).all())
            and buffer[sr.RUN] + buffer[sr.BEFORE] == buffer[sr.N] <= 2.0**53
            and buffer[sr.STATUS] in (sr.QUIET, sr.WARNED, sr.ALARMED)
            and all(bool((np.abs(numbers) <= 2.0**53).all()) for numbers in self._counted(buffer))
        )

    def _counted(self, buffer: Array) -> Iterator[Array]:
        """Of every stream what is counted: events, sums with their copies, and before which event a bet's best start lies."""
        streams, at, shapes = self._whole.views(buffer).streams, self._stream.at, self._stream.shapes
        yield from (streams[:, at[name]] for name in ("time", "crossed") if name in at)
        yield streams[:, at["sums"] :]
        if shapes["bets"][0] == sr.MOMENTS:
            first, n = at["bets"] + sr.BEGAN * shapes["bets"][1], shapes["bets"][1]
            yield streams[:, first : first + n]
            yield streams[:, at["binned"] + sr.BEGAN : at["sums"] : sr.MOMENTS]


class Detector(Bettor):
    """Bets against the claims, and alarms when the claims have lost too much: ``update`` one event, ``update_many`` many.

    ``arl`` is the threshold, and the average number of events until a false alarm is at least that. A new run begins with the
    event after an alarm. ``update_many`` is the same as ``update`` one by one to the last bit; it returns the indices in 0..n-1
    of the events that alarmed, int64, empty if none; a ValueError names the first event that is not allowed, and then none is
    taken. A kind of detector

    - makes its buffer in the constructor: ``self._lay_out(stream, constants, gathered)``, then
      ``self._begin(arl, warning_arl)``;
    - has ``_one(buf, *event)``, a ``brief`` kernel: check the event (or BAD), ``count_event(buf)``, multiply the bets,
      ``return judge(buf, sum)``;
    - may have ``_many(buf, first, *arrays)``, a ``kernel`` that takes checked events from index ``first`` on and returns the
      index of the first that alarms, or their number: without it ``_one`` is called for each;
    - has ``update`` that calls ``self._take(*event)``, ``update_many`` that checks and calls ``self._take_many(*arrays)``;
    - has ``report()``, which reads the buffer: after an alarm all is still as the alarm left it;
    - is decorated with ``@detector(name, *claims)``.
    """

    fitted = ("_buf", "_remembered")
    claims: ClassVar[tuple[str, ...]] = ()
    segmented: ClassVar[bool] = False  # whether update takes the segment of an event too
    _many: ClassVar[Callable[..., int] | None] = None
    arl: float
    warning_arl: float
    _history: list[dict[str, Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """The kernel of many events is called as it is."""
        super().__init_subclass__(**kwargs)
        if "_many" in cls.__dict__:
            cls._many = staticmethod(cls.__dict__["_many"])

    @classmethod
    def for_claim(cls, claim: Claim, arl: float, tolerance: float) -> Self:
        """The detector that bets against a claim of one of the kinds in ``claims``; of segments there is one."""
        return cls(arl=arl, tolerance=tolerance)  # type: ignore[call-arg]  # what most of the family take

    def _begin(self, arl: float, warning_arl: float | None) -> None:
        """Check the thresholds, and begin."""
        self.arl = check_arl("arl", arl, MOST_ARL)
        usual = self.arl / 10.0
        self.warning_arl = usual if warning_arl in (None, usual) else check_arl("warning_arl", warning_arl, self.arl)
        parts = self.parts
        parts.arl[...], parts.warning_arl[...] = self.arl, self.warning_arl
        self._history = []

    @property
    def alarms(self) -> int:
        """How many alarms so far."""
        return int(self._buf[sr.ALARMS])

    @property
    def evidence(self) -> float:
        """The statistic after the last event, in events (it is compared with ``arl``): 0.0 at the start, never nan.

        On an alarm it is the value that crossed; inf if something happened that the claims said could not.
        """
        return float(self._buf[sr.EVIDENCE])

    @property
    def drift_detected(self) -> bool:
        """Whether the last event alarmed."""
        return bool(self._buf[sr.STATUS] == sr.ALARMED)

    @property
    def warning_detected(self) -> bool:
        """Whether the evidence after the last event is at ``warning_arl`` or above, but did not alarm."""
        return bool(self._buf[sr.STATUS] == sr.WARNED)

    @abstractmethod
    def report(self) -> dict[str, Any]:
        """What the evidence says, as plain data: of the alarm if the last event alarmed, else of the evidence so far.

        - ``event`` (index of the last event, from 0), ``alarm``, ``evidence``, ``arl``, ``run`` (events of this run), and
          ``tolerance`` where there is one;
        - ``direction``: in which the claims are wrong, in words (None: no evidence); ``directions``: the share of the evidence of
          each; ``likelihood_ratio`` of the strongest bet, from its best start on;
        - ``onset`` (the most likely first event of the drift), ``onset_mean`` and ``onset_spread`` (mean and standard deviation
          of the start under the strongest bet, all starts equally likely before), ``window`` [onset, n]: the events to refit on;
        - ``sums_since`` (off by a quarter of its age, or 16 events): of the ``events`` from there on what each kind says below,
          None where there is nothing to say;
        - ``text``: the same in one sentence.

        The sizes are those of the events that made the alarm, so they are too large on average: judge a repair on later events.
        An onset lies in the run, that is after the last alarm: of an error that goes on it tells only since when in this run. The
        spread is no confidence interval: the true onset was within two of them in 60 % (slow alarms) to 90 % (fast) of runs of
        PITDrift, and the onset of a change that takes thousands of events to show is a rough guess.
        """

    def _heading(self) -> dict[str, Any]:
        """How a report begins."""
        return {
            "event": self.n - 1 if self.n else None,
            "alarm": self.drift_detected,
            "evidence": finite(self.evidence),
            "arl": self.arl,
            "run": int(self._buf[sr.RUN]),
        }

    def history(self, newest: int = REMEMBERED) -> list[dict[str, Any]]:
        """The reports of the last alarms, oldest first: 20, or ``newest``; more than 20 only of the last call."""
        return copy.deepcopy(self._history[max(len(self._history) - newest, 0) :])

    def reset(self) -> None:
        """Forget the evidence, keep ``n`` and ``alarms``: for when the model was changed."""
        sr.restart(self._buf)

    def _answer(self, status: int, *event: Any) -> None:
        super()._answer(status, *event)
        if status == sr.ALARMED:
            self._history = [*self._history, self.report()][-REMEMBERED:]

    def _take_many(self, *arrays: Array) -> Ints:
        """Take checked events in order: the indices of those that alarmed. RuntimeError while another thread does."""
        return self._alone(self._take_all, *arrays)

    def _take_all(self, *arrays: Array) -> Ints:
        n, first, alarmed, reports, many = arrays[0].shape[0], 0, [], [], self._many or self._one_by_one
        while (first := many(self._buf, first, *arrays)) < n:
            alarmed.append(first)
            reports.append(self.report())
            first += 1
        if reports:
            self._history = [*self._history, *reports][-max(REMEMBERED, len(reports)) :]
        return np.array(alarmed, dtype=np.int64)

    def _one_by_one(self, buf: Array, first: int, *arrays: Array) -> int:
        """As ``_many``, for a kind that has none."""
        for i in range(first, len(arrays[0])):
            if self._one(buf, *(float(a[i]) for a in arrays)) == sr.ALARMED:
                return i
        return len(arrays[0])

    @property
    def _remembered(self) -> list[dict[str, Any]]:
        return self._history[-REMEMBERED:]

    @_remembered.setter
    def _remembered(self, history: Any) -> None:
        known = isinstance(history, list) and all(isinstance(h, dict) and "event" in h for h in history)
        if not known or len(history) > min(REMEMBERED, self.alarms):
            raise ValueError(f"the history must be a list of at most {REMEMBERED} reports, got {history!r:.200}")
        self._history = history


class ProbabilityDetector(Detector):
    """Has the bets of :class:`~streamcal.drift.bets.Bets`, in one stream or in many."""

    tolerance: float
    bets: Bets

    def _lay(
        self,
        arl: float,
        tolerance: float,
        bets: Bets,
        warning_arl: float | None,
        levels: int,
        streams: int = 1,
        constants: Mapping[str, npt.ArrayLike] = MappingProxyType({}),
        gathered: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ) -> None:
        """Check the settings, make the buffer and begin; ``levels`` of copies of the sums in each of ``streams``."""
        self.tolerance, self.bets = check_tolerance(tolerance), check_bets(bets)
        stream = self.bets.stream(levels)
        of_bets = self.bets.constants(self.tolerance, weighing_of(arl))
        self._lay_out(stream, {**of_bets, **constants}, {**gathered, "streams": (streams, stream.size)})
        self._begin(arl, warning_arl)

    def _answer(self, status: int, *event: Any) -> None:
        super()._answer(status, *event)
        if (
            status == sr.ALARMED and self.n == self.alarms == 2
        ):  # only what could not happen alarms so, also (y, p) for (p, y)
            warn_if_swapped(*(np.array([one_number(value)]) for value in event[:2]))

    def _heading(self) -> dict[str, Any]:
        return {**super()._heading(), "impossible": self.evidence > LARGEST, "tolerance": self.tolerance}


def detector(name: str, *claims: str) -> Callable[[D], D]:
    """Class decorator: a detector known to :func:`streamcal.from_bytes`, and by ``name`` to whoever looks for one for a claim.

    ``claims``: the kinds of claims that it bets against, of "mean", "top_label", "marginal", "quantile", "interval", "pit". A
    name that is taken is replaced.
    """

    def register(cls: D) -> D:
        cls.claims = claims
        DETECTORS[name] = cls
        return restorable(cls)

    return register


def check_arl(name: str, arl: Any, most: float) -> float:
    """An average run length in events, in [1, most]."""
    value = one_number(arl)
    if not 1.0 <= value <= most:
        raise ValueError(f"{name} must lie in [1, {most:g}] events, got {arl!r}")
    return value


def weighing_of(arl: Any) -> float:
    """How starts are weighed at a threshold that is still to be checked."""
    return sr.weighing(check_arl("arl", arl, MOST_ARL))


def finite(evidence: float) -> float:
    """Evidence for a report: infinite evidence as the largest number that JSON can hold."""
    return min(float(evidence), LARGEST)


def probability_events(p: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, Array]:
    """(p, y) as contiguous arrays of shape (n,), p clipped; ValueError names the first event that is not allowed."""
    check_aligned(p=p, y=y)
    claims, outcomes = numbers("p", p, strict=True), numbers("y", y, strict=True)
    if claims.ndim != 1 or outcomes.shape != claims.shape:
        raise ValueError(f"p and y must have shape (n,), got {claims.shape} and {outcomes.shape}")
    allowed = is_allowed("p", claims) & is_allowed("y", outcomes)
    if not allowed.all():
        i = int(np.argmin(allowed))
        raise ValueError(f"p and y must lie in [0, 1], got {float(claims[i])!r}, {float(outcomes[i])!r} at index {i}")
    warn_if_swapped(claims, outcomes)
    clipped = np.ascontiguousarray(np.clip(claims, 0.0, 1.0))  # for another layout the kernels would be compiled anew
    return clipped, np.ascontiguousarray(outcomes)


def in_blocks(detector: Any, *arrays: Any) -> Iterator[tuple[slice, list[tuple[int, dict[str, Any]]]]]:
    """Show events to a detector, in order. Of each block: where it is, and the alarms in it as (index, report).

    ``arrays``: what its ``update_many`` takes, each of n events.

    >>> from streamcal.drift import CalibrationDrift
    >>> import numpy as np
    >>> impossible = in_blocks(CalibrationDrift(), np.zeros(1_500), np.ones(1_500))
    >>> [(block.start, len(alarms), alarms[0][0], alarms[0][1]["event"]) for block, alarms in impossible]
    [(0, 1000, 0, 0), (1000, 500, 1000, 1000)]
    """
    for first in range(0, len(arrays[0]), BLOCK):
        block = slice(first, first + BLOCK)
        found = detector.update_many(*(array[block] for array in arrays))
        yield block, list(zip((first + found).tolist(), detector.history(len(found)), strict=True))
