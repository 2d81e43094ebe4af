"""What all online recalibrators share: predict one, learn one, a whole stream in one pass, the comparison, the document."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamcal._jit import inlined, lazily
from streamcal.arrays import Array, check_aligned, numbers, one_number
from streamcal.claims import Claim, Mean
from streamcal.limits import HEAVIEST, is_allowed, warn_if_swapped
from streamcal.recalibrate.comparison import Comparison
from streamcal.recalibrate.recalibrator import Fitted, registering
from streamcal.state import own_copy

ONLINE: dict[str, type[Online]] = {}  # by command-line name; filled by @online


class Online(Fitted):
    """A recalibrator that learns from one event at a time: ``predict_one(p)``, later ``learn_one(p, y)``.

    Before any event it gives the prediction back as it is, or what its docstring declares. ``predict_one`` changes nothing:
    asking twice gives the same answer, also where it is drawn. :meth:`run` is the prequential pass over many events: predict,
    then learn, in order; the same as one by one to the last bit. An event that is not allowed raises and changes nothing.

    With delayed labels, learn in the order in which the labels come, and pass the forecast that was ``served``, so that
    :meth:`report` judges that one and not what would be forecast by now. What a docstring promises of forecasts it promises for
    labels that come before the next forecast.

    ``settings`` names the constructor's arguments, ``fitted`` the attributes that hold what was learned. Not thread-safe: a
    second thread in :meth:`run` meanwhile gets a RuntimeError.

    One of your own says what it forecasts and how it learns (both give nan for what is not allowed), and ``restorable`` makes it
    known to copies and documents:

    >>> import copy
    >>> from streamcal.state import restorable
    >>> @restorable
    ... class Shrunk(Online):
    ...     def __init__(self, by=0.8):
    ...         self.by = by
    ...         self._compare()
    ...     def _forecast(self, p):
    ...         return 0.5 + self.by * (p - 0.5) if 0.0 <= p <= 1.0 else math.nan
    ...     def _take(self, p, y, w):
    ...         return self._forecast(p) if allowed(y, w) else math.nan
    >>> Shrunk().run([0.9, 0.2], [1, 0]).tolist(), copy.deepcopy(Shrunk(by=0.5))
    ([0.8200000000000001, 0.26], Shrunk(by=0.5))
    """

    fitted: ClassVar[tuple[str, ...]] = ("compared",)
    heaviest: float = HEAVIEST  # the largest weight that may be learned
    _bounds: ClassVar[tuple[str, str]] = ("p", "y")  # of predictions and outcomes, by their names in streamcal.limits
    compared: Comparison

    def predict_one(self, p: float) -> float:
        """The recalibrated prediction of one raw prediction in [0, 1]; ValueError for any other.

        Up to 1e-6 outside is clipped, as a sum of float32 outputs can be.
        """
        q = self._forecast(p)
        if q != q:
            raise ValueError(self._complaint(p))
        return q

    def learn_one(self, p: float, y: float, w: float = 1.0, *, served: float | None = None) -> None:
        """Learn that the raw prediction ``p`` met the outcome ``y`` in [0, 1]; ``w`` >= 0, and 0 changes nothing.

        With quantile forecasts p and y are any numbers within +-1e100.
        ``served``: the forecast that was given out, if it is not what ``predict_one(p)`` gives now (delayed labels); it goes
        into the report, and into nothing else but the weights of a :class:`Guard`. ValueError, and nothing changed, if any of
        them is not allowed.
        """
        self._check_served(served)
        q = self._take(p, y, w) if served is None else self._take_served(p, y, w, served)
        if q != q:
            raise ValueError(self._complaint(p, y, w))
        self.compared.record(p, q if served is None else served, y, w)

    def _check_served(self, served: float | None) -> None:
        if served is not None and not is_allowed(self._bounds[0], one_number(served)):
            raise ValueError(f"served must be a forecast as {type(self).__name__} makes them, got {served!r}")

    def run(self, p: npt.ArrayLike, y: npt.ArrayLike, w: npt.ArrayLike | None = None) -> Array:
        """Predict and then learn each of n events in order: the n predictions, each made before its outcome was seen.

        The same as ``predict_one`` and ``learn_one`` one by one, to the last bit (the sums of :meth:`report`: up to
        rounding). ValueError names the first event that is not allowed; then none is learned.
        """
        return self._alone(self._run_all, *self._events(p, y, w))

    def _run_all(self, p: Array, y: Array, w: Array, *groups: Array) -> Array:
        out = self._pass(p, y, w, *groups)
        self.compared.record_many(p, out, y, w)
        return out

    def report(self) -> dict[str, Any]:
        """Every metric of the raw forecasts ("before") and of the recalibrated ones ("after"), and how far apart they are."""
        return {"map": repr(self), **self.compared.report(), **self.details()}

    def details(self) -> dict[str, Any]:
        """What this kind has to say besides: see the keys in its docstring."""
        return {}

    def _compare(self) -> None:
        """Start with nothing seen: the last line of a constructor."""
        self.compared = Comparison(self._claim())

    def _forecast(self, p: float) -> float:
        """The recalibrated prediction, nan if p is not allowed."""
        return self._take(p, 0.0, 0.0)

    def _take(self, p: float, y: float, w: float) -> float:
        """Learn one event; its prediction as it was before that, nan (and nothing learned) if the event is not allowed."""
        raise AssertionError("each learns in its own way")  # pragma: no cover

    def _serve(self, p: float) -> float:
        """The same as ``_forecast``, to be given to ``_take_served`` with the outcome."""
        return self._forecast(p)

    def _take_served(self, p: float, y: float, w: float, served: float) -> float:
        """Learn one event whose forecast was served a while ago."""
        return self._take(p, y, w)

    def _pass(self, p: Array, y: Array, w: Array) -> Array:
        """Predict and learn many events that are allowed, in order."""
        return np.array([self._take(*event) for event in zip(p.tolist(), y.tolist(), w.tolist(), strict=True)])

    def _claim(self) -> Claim:
        """What the forecasts are."""
        return Mean()

    def _complaint(self, p: Any, *event: Any) -> str:
        """What is allowed and what came: a prediction alone, or with its outcome and weight."""
        if not event:
            return f"p must lie in [0, 1], got {p!r}"
        came = ", ".join(map(repr, (p, *event)))
        return f"p and y must lie in [0, 1] and the weight in [0, {self.heaviest:g}], got {came}"

    def _events(self, p: npt.ArrayLike, y: npt.ArrayLike, w: npt.ArrayLike | None) -> tuple[Array, Array, Array]:
        """(p, y, w) as contiguous arrays of shape (n,); ValueError names the first event that is not allowed."""
        check_aligned(p=p, y=y, w=w)
        scores, outcomes = numbers("p", p, strict=True), numbers("y", y, strict=True)
        weights = np.ones(scores.shape) if w is None else numbers("w", w, strict=True)
        if scores.ndim != 1 or outcomes.shape != scores.shape or weights.shape != scores.shape:
            raise ValueError(f"p, y and w must have shape (n,), got {scores.shape}, {outcomes.shape}, {weights.shape}")
        for i in np.flatnonzero(
            ~self._allowed(scores, outcomes, weights)
        ).tolist():  # the first of them, if there is one
            raise ValueError(f"{self._complaint(*(float(a[i]) for a in (scores, outcomes, weights)))} at index {i}")
        if self._bounds[0] == "p":
            warn_if_swapped(scores, outcomes)
            scores = np.clip(scores, 0.0, 1.0)
        return tuple(np.require(a, np.float64, ["C", "W"]) for a in (scores, outcomes, weights))  # type: ignore[return-value]

    def _allowed(self, p: Array, y: Array, w: Array) -> npt.NDArray[np.bool_]:
        """Which events may be learned."""
        score, outcome = self._bounds
        return np.asarray(is_allowed(score, p) & is_allowed(outcome, y) & (w >= 0.0) & (w <= self.heaviest))

    def __repr__(self) -> str:
        """Only what differs from the defaults: in a guard of four it is the name of an expert."""
        usual = {name: parameter.default for name, parameter in inspect.signature(type(self)).parameters.items()}
        said = [f"{s}={getattr(self, s)!r}" for s in self.settings if getattr(self, s) != usual.get(s)]
        return f"{type(self).__name__}({', '.join(said)})"

    def _go_on(self, fitted: dict[str, Any]) -> None:
        compared, claim = fitted["compared"], self.compared.window.claim
        if not isinstance(compared, Comparison) or compared.window.claim != claim:
            raise ValueError(f"the document of a {type(self).__name__} holds the comparison of its forecasts")
        super()._go_on(fitted)


def part(place: Callable[[Any], slice], said: str) -> Any:
    """A fitted attribute that is a part of the buffer; setting it copies numbers into the buffer."""

    def put(one: Any, numbers: Array) -> None:
        one._buf[place(one)] = numbers.reshape(-1)

    return property(lambda one: one._buf[place(one)], put, doc=said)


class Compiled(Online):
    """An online recalibrator whose whole state is one float64 buffer, and which learns in kernels.

    ``_learn(buf, p, y, w)`` is the kernel of one event (``brief``): it returns the prediction, nan if the event is not allowed,
    and at weight 0 learns nothing; ``_run(buf, p, y, w, out)`` is the loop over many that are allowed.
    """

    _learn: ClassVar[Callable[..., float]]
    _run: ClassVar[Callable[..., None]]
    _sample: ClassVar[tuple[float, ...]] = (0.5, 1.0, 1.0)  # an event with which the compiled kernel is tried
    fitted = ("compared", "_buf")
    _buf: Array

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """At the first event of the first of a kind, its kernel is compiled and the entry kept on the class."""
        super().__init_subclass__(**kwargs)
        if "_learn" in cls.__dict__:
            lazily(cls, "_learn", cls.__dict__["_learn"], *cls._sample)
            cls._run = staticmethod(cls.__dict__["_run"])

    def _begin(self, buf: Array) -> None:
        """Start from this buffer: the last line of a constructor."""
        self._buf = buf
        self._compare()

    def _forecast(self, p: float) -> float:
        try:  # the compiled entry converts what it is given: None, a text or a huge int raise there
            return self._learn(self._buf, p, 0.0, 0.0)
        except (TypeError, ValueError, OverflowError):
            return math.nan

    def _take(self, p: float, y: float, w: float) -> float:
        try:
            return self._learn(self._buf, p, y, w)
        except (TypeError, ValueError, OverflowError):
            return math.nan

    def _pass(self, p: Array, y: Array, w: Array) -> Array:
        out = np.empty(p.size)
        self._run(self._buf, p, y, w, out)
        return out

    def _go_on(self, fitted: dict[str, Any]) -> None:
        fitted["_buf"] = buffer = fitted["_buf"].reshape(-1)
        if buffer.size != self._buf.size or not self._is_sound(buffer):
            raise ValueError(f"the buffer of {buffer.size} numbers does not fit {self!r:.200}")
        super()._go_on(fitted)

    def _is_sound(self, buffer: Array) -> bool:
        """Whether a buffer of the right size holds nothing that this could not have written."""
        return bool(np.isfinite(buffer).all())


online = registering(ONLINE)


def check_online(name: str, given: Any) -> Any:
    """A copy of an online recalibrator of probabilities; ValueError for anything else."""
    if not isinstance(given, Online):
        hint = "; put it into Refit(...) or, fitted, into Frozen(...)" if hasattr(given, "fit") else ""
        allowed = "an online recalibrator such as OnlinePlatt() (of your own: a subclass of Online)"
        raise ValueError(f"{name} must be {allowed}, got {given!r:.80}{hint}")
    if given._claim() != Mean():  # a quantile is no probability that could be combined or served as one
        raise ValueError(f"{name} must recalibrate probabilities, got {given!r:.80}")
    if getattr(given, "groups", 1) != 1:  # the groups of an event are not handed on to it
        raise ValueError(f"{name} must do without groups, got {given!r:.80}")
    return own_copy(given)  # it goes on learning here: the given one, and others made of it, must not


@inlined
def allowed(y: float, w: float) -> bool:
    """Whether an outcome and a weight may be learned."""
    return 0.0 <= y <= 1.0 and 0.0 <= w <= HEAVIEST
