"""Raw prediction -> events: what a forecast claims, and whether it came true.

An event is (score, claim, outcome, weight). Each class here says how a raw prediction and a raw outcome become one
event, or several: then each goes to a key of its own. A missing part (None, nan) spoils the whole raw event: it is
refused under every key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, check_aligned, check_whole, numbers, one_number
from streamcal.limits import SUM_TOLERANCE, is_distribution
from streamcal.state import Declared, reserve, restorable
from streamcal.tally import GIVEN, MEAN, QUANTILE


def check_level(level: float, name: str = "level") -> float:
    """Raise unless 0 < level < 1."""
    value = one_number(level)
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie in (0, 1), got {level!r}")
    return value


def _matrix(name: str, raw: Any, width: int | None) -> Array:
    array = numbers(name, raw)
    if array.ndim != 2 or (width is not None and array.shape[1] != width):
        raise ValueError(f"{name} must have shape (n, {width or 'classes'}), got {array.shape}")
    return array


class Claim(Declared):
    """What all claims share: ``kind`` for the kernels, ``domain`` of the scores, ``levels`` claimed per key."""

    kind: ClassVar[int] = MEAN
    domain: ClassVar[str] = "unit"
    plain: ClassVar[bool] = True  # whether raw predictions and outcomes are numbers that need no conversion

    @property
    def levels(self) -> tuple[float, ...]:
        """What each key claims; nan: the score itself."""
        return (math.nan,)

    @property
    def width(self) -> int:
        """How many events, each under its own key, one raw prediction makes."""
        return len(self.levels)

    @property
    def scalar(self) -> bool:
        """Whether a raw prediction and outcome are two numbers that a kernel takes as they are."""
        return self.plain and self.width == 1

    def events(self, raw: Any, y: Any) -> tuple[Array, Array]:
        """(scores, outcomes) of n raw predictions, each of shape (n,), or (n, width) with several keys."""
        return numbers("p", raw), numbers("y", y)


@restorable
@dataclass(frozen=True)
class Mean(Claim):
    """A probability (or a mean in [0, 1]): score = claim = p, outcome = y in [0, 1].

    ``outcome="binary"`` refuses outcomes other than 0 and 1.
    """

    outcome: str = "unit"

    def __post_init__(self) -> None:
        if self.outcome not in ("unit", "binary"):
            raise ValueError(f"outcome must be 'unit' or 'binary', got {self.outcome!r}")


@restorable
@dataclass(frozen=True, init=False)
class Quantile(Claim):
    """A quantile forecast v at ``level``: score = v, claim = level, outcome = 1[y <= v]. First v, then y: a window cannot tell.

    Several levels: raw predictions of shape (n, levels), one key per level.
    """

    level: float | tuple[float, ...]
    kind: ClassVar[int] = QUANTILE
    domain: ClassVar[str] = "real"

    def __init__(self, level: float | Sequence[float]) -> None:
        checked: float | tuple[float, ...]
        checked = tuple(map(check_level, level)) if isinstance(level, Sequence | np.ndarray) else check_level(level)
        if checked == ():
            raise ValueError("level must hold at least one number in (0, 1), got none")
        object.__setattr__(self, "level", checked)

    @property
    def levels(self) -> tuple[float, ...]:
        """See :attr:`Claim.levels`."""
        return self.level if isinstance(self.level, tuple) else (self.level,)

    @property
    def scalar(self) -> bool:
        """See :attr:`Claim.scalar`."""
        return not isinstance(self.level, tuple)

    def events(self, raw: Any, y: Any) -> tuple[Array, Array]:
        """See :meth:`Claim.events`."""
        outcome = numbers("y", y)
        if self.scalar:
            return numbers("v", raw), outcome
        v = _matrix("v", raw, self.width)
        v = np.where(np.isfinite(v).all(-1, keepdims=True), v, np.nan)
        return v, np.repeat(outcome[:, None], self.width, axis=1)


@restorable
@dataclass(frozen=True)
class Interval(Claim):
    """A central interval (lo, hi) between two quantile levels: score = its width, claim = upper - lower,
    outcome = 1[lo <= y <= hi]. Bins by width show whether narrow intervals are the too extreme ones.
    """

    lower: float
    upper: float
    kind: ClassVar[int] = GIVEN
    domain: ClassVar[str] = "real"
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            object.__setattr__(self, name, check_level(getattr(self, name), name))
        if not self.lower < self.upper:
            raise ValueError(f"lower must be below upper, got {self.lower} and {self.upper}")

    @property
    def levels(self) -> tuple[float, ...]:
        """See :attr:`Claim.levels`."""
        return (self.upper - self.lower,)

    def events(self, raw: Any, y: Any) -> tuple[Array, Array]:
        """See :meth:`Claim.events`; an interval with lo > hi is refused."""
        bounds, outcome = _matrix("interval", raw, 2), numbers("y", y)
        low, high = bounds[:, 0], bounds[:, 1]
        whole = np.isfinite(low) & np.isfinite(high) & np.isfinite(outcome) & (low <= high)
        inside = (low <= outcome) & (outcome <= high)
        width = np.subtract(high, low, out=np.full(low.shape, np.nan), where=whole)
        return width, np.where(whole, inside, np.nan)


@restorable
@dataclass(frozen=True)
class TopLabel(Claim):
    """Class probabilities and a class index: score = claim = the highest probability, outcome = 1[its class is right]."""

    plain: ClassVar[bool] = False

    def events(self, raw: Any, y: Any) -> tuple[Array, Array]:
        """See :meth:`Claim.events`."""
        probs, labels = _classes(raw, y)
        return top_scores(probs, labels)


@restorable
@dataclass(frozen=True)
class Marginal(Claim):
    """Class probabilities and a class index, one key per class: score = claim = p_k, outcome = 1[y = k]."""

    n_classes: int
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_classes", check_whole("n_classes", self.n_classes, 2))

    @property
    def levels(self) -> tuple[float, ...]:
        """See :attr:`Claim.levels`."""
        reserve(self.n_classes)
        return (math.nan,) * self.n_classes

    def events(self, raw: Any, y: Any) -> tuple[Array, Array]:
        """See :meth:`Claim.events`."""
        probs, labels = _classes(raw, y, self.n_classes)
        hit = (labels[:, None] == np.arange(self.n_classes)).astype(np.float64)
        hit[np.isnan(labels)] = np.nan
        return probs, hit


@restorable
@dataclass(frozen=True, init=False)
class PIT(Claim):
    """Probability integral transforms u = F(y), uniform if the forecasts are right: one key per level q,
    score = claim = q, outcome = 1[u <= q]. The raw outcome is not used: u already holds it.
    """

    at: tuple[float, ...]
    plain: ClassVar[bool] = False

    def __init__(self, levels: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)) -> None:
        object.__setattr__(self, "at", tuple(map(check_level, levels)))
        if not self.at:
            raise ValueError("levels must hold at least one number in (0, 1), got none")

    @property
    def levels(self) -> tuple[float, ...]:
        """See :attr:`Claim.levels`."""
        return self.at

    def events(self, raw: Any, y: Any) -> tuple[Array, Array]:
        """See :meth:`Claim.events`."""
        u = numbers("u", raw)[:, None]
        inside = (u <= np.array(self.at)).astype(np.float64)
        scores = np.broadcast_to(np.array(self.at), inside.shape)
        outcomes = np.where((u >= 0.0) & (u <= 1.0), inside, np.nan)
        return (scores, outcomes) if self.width > 1 else (scores[:, 0], outcomes[:, 0])


def _classes(raw: Any, y: Any, width: int | None = None) -> tuple[Array, Array]:
    """Probabilities and class indices; a row or label that is not what it should be becomes nan as a whole."""
    probs, labels = _matrix("probs", raw, width), numbers("labels", y)
    classes = probs.shape[1]
    known = (labels == np.floor(labels)) & (labels >= 0) & (labels < classes)
    probs = np.where(is_distribution(probs)[:, None], probs, np.nan)
    return probs, np.where(known, labels, np.nan)


def top_scores(probs: Array, labels: Array) -> tuple[Array, Array]:
    """(confidence, correct) of checked class probabilities; the first class wins a tie."""
    if not len(probs):
        return np.empty(0), np.empty(0)
    best = probs.argmax(-1)
    correct = np.where(np.isnan(labels), np.nan, (best == labels).astype(np.float64))
    return probs.max(-1), correct


def labelled(probs: npt.ArrayLike, labels: npt.ArrayLike, least: int = 0) -> tuple[Array, Array]:
    """(probabilities, class indices). ValueError for the first label or row that is not allowed, and for fewer classes than
    ``least``.
    """
    check_aligned(probs=probs, labels=labels)
    given, wanted = numbers("probs", probs, strict=True), numbers("labels", labels, strict=True)
    if given.ndim != 2 or wanted.shape != given.shape[:1]:
        raise ValueError(f"probs must have shape (n, classes) and labels (n,), got {given.shape} and {wanted.shape}")
    check_whole("classes", given.shape[1], least)
    checked, known = _classes(given, wanted)
    if (bad := np.flatnonzero(np.isnan(known))).size:
        i = int(bad[0])
        raise ValueError(f"labels must be class indices in 0..{given.shape[1] - 1}, got {wanted[i]} at index {i}")
    if (bad := np.flatnonzero(np.isnan(checked).any(-1))).size:
        row = given[bad[0]].tolist()
        said = f"got {row!r:.200}, which sums to {sum(row):g}, at index {bad[0]}"
        raise ValueError(f"probs must lie in [0, 1] and each row sum to 1 (to {SUM_TOLERANCE:g}), {said}")
    return checked, known


def top_label(probs: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Array, Array]:
    """(confidence, correct): the highest class probability of each row, and 1.0 where that class is the label.

    ``probs`` has shape (n, classes), ``labels`` holds class indices. The first class wins a tie. ValueError names the
    first label or row that is not allowed. Empty input gives two empty arrays. Source: Guo et al. 2017.

    >>> top_label([[0.2, 0.8], [0.6, 0.4]], [1, 1])
    (array([0.8, 0.6]), array([1., 0.]))
    """
    return top_scores(*labelled(probs, labels))
