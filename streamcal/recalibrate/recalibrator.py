"""What all recalibrators share: fit, predict, the checks of their input, the state document."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, check_aligned, numbers
from streamcal.limits import HEAVIEST, is_allowed, warn_if_swapped
from streamcal.reading.outcomes import outcome_numbers
from streamcal.snapshot import Snapshot
from streamcal.state import Described, restorable
from streamcal.tally import MEAN

C = TypeVar("C", bound=type[Any])
RECALIBRATORS: dict[str, type[Recalibrator]] = {}  # by command-line name; filled by @recalibrator


class Fitted(Described):
    """What has settings, and attributes that came since.

    Settings are the constructor's arguments, unless a class names others. One of somebody's own names its ``settings``, or has
    those of the class that it is made from, whatever its arguments are.
    """

    _fit_call: ClassVar[str] = "fit(p, y)"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        ours = cls.__module__.startswith("streamcal.")
        if ours and "__init__" in cls.__dict__ and "settings" not in cls.__dict__:
            cls.settings = tuple(inspect.signature(cls).parameters)

    def _check_fitted(self) -> None:
        if self.fitted and not hasattr(self, self.fitted[0]):
            raise ValueError(f"{type(self).__name__} is not fitted; call {self._fit_call} first")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{s}={getattr(self, s)!r}' for s in self.settings)})"


class Recalibrator(Fitted):
    """A map from predicted probabilities to better ones: ``fit(p, y)``, then ``predict(p)``.

    ``settings`` names the constructor's arguments, ``fitted`` the attributes (arrays, floats or flags, with a trailing
    underscore) that ``fit`` makes. Refitting forgets what was. predict never changes anything.
    """

    def fit(
        self,
        p: npt.ArrayLike,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
        *,
        pos_label: object = None,
    ) -> Self:
        """Learn the map from n predictions in [0, 1] and outcomes in [0, 1]; a weight of 2 is the event twice.

        ``pos_label``: the outcome that is 1, where outcomes are other labels. Returns self. ValueError names the first value
        that is not allowed; no event (or no weight) at all is an error.
        """
        events = checked_events(p, y, sample_weight, pos_label)
        warn_if_swapped(*events[:2])
        self._fit(*events)
        return self

    def _fit(self, p: Array, y: Array, w: Array) -> None:
        raise AssertionError("each recalibrator learns in its own way")  # pragma: no cover

    def fit_snapshot(self, snapshot: Snapshot) -> Self:
        """Learn the map from the bins of a window: each bin counts as its weight at its mean claim and mean outcome.

        ValueError unless the window has one key and its claims are probabilities.
        """
        check_snapshot(snapshot)
        if snapshot.keys != 1:
            raise ValueError(f"a recalibrator learns from one key, got {snapshot.keys}; take snapshot[key]")
        self._fit(*checked_events(*events_of(snapshot)))
        return self

    def predict(self, p: npt.ArrayLike) -> Array:
        """Recalibrated probabilities in [0, 1], shape of ``p`` kept. ValueError before fit, or for p outside [0, 1]."""
        self._check_fitted()
        scores = checked_scores(p)
        out = self._predict(scores.reshape(-1)).reshape(scores.shape)
        return np.clip(out, 0.0, 1.0)  # rounding may leave the interval by an ulp

    def _predict(self, p: Array) -> Array:
        raise AssertionError("each recalibrator predicts in its own way")  # pragma: no cover

    def _go_on(self, fitted: dict[str, Any]) -> None:
        super()._go_on(fitted)
        if not self._is_sound():
            raise ValueError(f"these fitted values are none that a {type(self).__name__} can have: {fitted!r:.200}")

    def _is_sound(self) -> bool:
        """Whether the fitted values are some that fit could have made: a kernel trusts them."""
        values = [getattr(self, name) for name in self.fitted]
        return all(isinstance(value, float) and math.isfinite(value) for value in values)


def rises(values: Any) -> bool:
    """Whether a fitted value is an array of one strictly increasing number or more."""
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.size > 0 and bool((np.diff(values) > 0).all())


def are_levels(values: Any, size: int) -> bool:
    """Whether a fitted value is an array of so many numbers in [0, 1]."""
    flat = isinstance(values, np.ndarray) and values.shape == (size,)
    return flat and bool(((values >= 0.0) & (values <= 1.0)).all())


def are_steps(edges: Any, levels: Any, ends: tuple[float, float]) -> bool:
    """Whether these are the edges of bins from one end to the other, and a level in [0, 1] for each bin."""
    fits = rises(edges) and edges.size > 1 and (edges[0], edges[-1]) == ends
    return fits and are_levels(levels, edges.size - 1)


def events_of(snapshot: Snapshot) -> tuple[Array, Array, Array]:
    """(mean claim, mean outcome, weight) of the occupied bins of a snapshot of one key; clipped: sums round."""
    used = snapshot.weight[0] > 0
    # A weighted mean of numbers up to 1 can come out an ulp above 1, which fit would refuse.
    mean_p, mean_y = np.clip([snapshot.mean_p[0, used], snapshot.mean_y[0, used]], 0.0, 1.0)
    return mean_p, mean_y, snapshot.weight[0, used]


def check_snapshot(snapshot: Any) -> None:
    """ValueError unless it is the snapshot of a window whose scores are the probabilities that it claims."""
    if not isinstance(snapshot, Snapshot):
        raise ValueError(f"fit_snapshot takes a Snapshot: window.snapshot(), got a {type(snapshot).__name__}")
    if snapshot.claim.kind != MEAN:
        raise ValueError(f"a recalibrator of probabilities cannot learn from the claim {snapshot.claim!r}")


def registering(known: dict[str, Any]) -> Callable[[str], Callable[[C], C]]:
    """A class decorator with a name: known to from_bytes, and by the name to the command and the contract tests."""

    def named(name: str) -> Callable[[C], C]:
        def register(cls: C) -> C:
            known[name] = cls
            return restorable(cls)

        return register

    return named


recalibrator = registering(RECALIBRATORS)


def checked(name: str, must: str, values: Array, good: npt.NDArray[np.bool_]) -> Array:
    """``values``; ValueError that names the first that is not ``good``."""
    if (bad := np.flatnonzero(~good.reshape(-1))).size:
        raise ValueError(f"{name} must {must}, got {values.reshape(-1)[bad[0]]} at index {bad[0]}")
    return values


def within(name: str, values: Array, high: float) -> Array:
    """``values``; ValueError that names the first outside [0, high]."""
    return checked(name, f"lie in [0, {high:g}]", values, (values >= 0.0) & (values <= high))


def checked_scores(p: npt.ArrayLike) -> Array:
    """Predictions as float64 in [0, 1], any shape; within 1e-6 outside they are clipped, further out is a ValueError."""
    scores = numbers("p", p, strict=True)
    return np.clip(checked("p", "lie in [0, 1]", scores, is_allowed("p", scores)), 0.0, 1.0)


def checked_events(
    p: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None, pos_label: object = None
) -> tuple[Array, Array, Array]:
    """(p, y, w) of shape (n,), those without weight left out; ValueError names the first value that is not allowed."""
    check_aligned(p=p, y=y, sample_weight=sample_weight)
    return aligned("p", checked_scores(p), within("y", outcome_numbers(y, pos_label), 1.0), sample_weight)


def aligned(name: str, scores: Array, y: Array, sample_weight: npt.ArrayLike | None) -> tuple[Array, Array, Array]:
    """Scores and outcomes that have been checked, with their weights, of shape (n,); those without weight left out."""
    given = np.ones_like(scores) if sample_weight is None else numbers("sample_weight", sample_weight, strict=True)
    w = within("sample_weight", given, HEAVIEST)
    for other, values in (("y", y), ("sample_weight", w)):
        if scores.ndim != 1 or values.shape != scores.shape:
            raise ValueError(f"{name} and {other} must both have shape (n,), got {scores.shape} and {values.shape}")
    used = w > 0
    if not used.any():
        raise ValueError(f"fit needs at least one event of positive weight, got {scores.size} events")
    # Most samples have no weight 0: then nothing is copied.
    return (scores, y, w) if used.all() else (scores[used], y[used], w[used])
