"""What a River label or prediction says: outcomes, probabilities, quantiles and intervals, or a plain error."""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from streamcal.arrays import one_number
from streamcal.limits import TOLERANCE
from streamcal.reading.outcomes import MISSING

LOW, HIGH = 1.0 - TOLERANCE, 1.0 + TOLERANCE  # probabilities that sum to this are taken as they are
DICTS = (dict, Mapping)
TRUTHS = (bool, np.bool_)
NUMBERS = (int, float, np.bool_, numbers.Number)  # the usual ones first: the last is slow to ask


def is_missing(value: Any) -> bool:
    """Whether a label or prediction is None, nan, or what pandas writes for them.

    >>> is_missing(None), is_missing(float("nan")), is_missing(False)
    (True, True, False)
    """
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas' NA cannot even say whether it equals itself
        return True
    except ValueError:  # an array
        return False


def alike(label: Any, other: Any) -> bool:
    """Whether both can be labels of one problem: both true/false (0 and 1 are), both numbers, both text, or both neither.

    >>> alike(0, True), alike("0", True), alike(2, True), alike(2, 1), alike("ham", "spam")
    (True, False, False, True, True)
    """
    if isinstance(other, TRUTHS):
        return isinstance(label, NUMBERS) and bool(label == 0 or label == 1)
    for kind in (NUMBERS, str):
        if isinstance(other, kind) or isinstance(label, kind):
            return isinstance(other, kind) and isinstance(label, kind)
    return True


def outcome(y_true: Any, pos_val: Any) -> float:
    """1.0 for the positive label, 0.0 for another one like it, nan for a missing one: None, nan, or a word such as "" or "?".

    ValueError for any other: text where true/false is expected would else count as a negative, or as a positive. So would
    text that differs from ``pos_val`` by its case alone.

    >>> outcome(True, True), outcome("ham", "spam"), outcome(None, True), outcome("N/A", "spam")
    (1.0, 0.0, nan, nan)
    """
    if is_missing(y_true):
        return math.nan
    if y_true == pos_val:
        return 1.0
    if isinstance(y_true, str) and isinstance(pos_val, str):
        word = y_true.strip().casefold()
        if word in MISSING:
            return math.nan
        if word == pos_val.strip().casefold():
            raise ValueError(f"y_true must be pos_val={pos_val!r} or another label, got {y_true!r}: is it the same?")
    if alike(y_true, pos_val):
        return 0.0
    raise ValueError(
        f"y_true must be a label like pos_val={pos_val!r}, got {y_true!r}; say with pos_val which is positive"
    )


def total_of(y_pred: Mapping[Any, Any]) -> Any:
    """Sum of a prediction's values: 1 if they are probabilities; nan if one is no number."""
    try:
        return sum(y_pred.values())
    except TypeError:
        return math.nan


def scale_of(y_pred: Mapping[Any, Any]) -> float:
    """What a prediction's values must be divided by to be probabilities; nan if they are none whatever one does.

    1 where they sum to 1, or for a single key of a plain dict with a value up to 1: the rest belongs to labels that it
    leaves out. Else their sum: votes, which is what a Counter holds.

    >>> scale_of({0: 0.25, 1: 0.75}), scale_of({1: 0.3}), scale_of({0: 1, 1: 3}), scale_of({0: -1, 1: 3})
    (1.0, 1.0, 4.0, nan)
    """
    total = one_number(total_of(y_pred))
    if not 0.0 <= total < math.inf or min(y_pred.values()) < -2.0 * TOLERANCE:  # then the other one of two is refused
        return math.nan
    alone = len(y_pred) == 1 and not isinstance(y_pred, Counter) and total <= 1.0
    if LOW < total < HIGH or alone:
        return 1.0
    return total or math.nan


def probability(y_pred: Any, pos_val: Any) -> float:
    """Probability that a prediction gives to ``pos_val``; nan if it says nothing (None, nan, an empty dict, no votes).

    A number is that probability. A key that a dict leaves out has the rest of a single other key, else 0. ValueError if
    its keys are of another kind than ``pos_val``, or for a label in place of a prediction. Beside both true and false no
    other key counts.

    >>> probability(0.3, True), probability({False: 0.75}, True), probability({"a": 3, "b": 1}, "b"), probability({}, True)
    (0.3, 0.25, 0.25, nan)
    """
    if not isinstance(y_pred, DICTS):
        return _number(y_pred, "a probability, or a dict of them by label")
    if not y_pred:
        return math.nan
    if len(y_pred) > 2 and isinstance(pos_val, TRUTHS) and True in y_pred and False in y_pred:
        y_pred = {True: y_pred[True], False: y_pred[False]}
    scale = scale_of(y_pred)
    if pos_val in y_pred:
        return one_number(y_pred[pos_val]) / scale
    if not any(alike(key, pos_val) for key in y_pred):
        raise ValueError(f"y_pred must have a key like pos_val={pos_val!r}, got the keys {list(y_pred)!r:.200}")
    if len(y_pred) == 1 and scale == 1.0:
        return 1.0 - one_number(total_of(y_pred))
    return 0.0 / scale


def probabilities(y_pred: Any) -> dict[Hashable, float]:
    """Probability of each label that a prediction names; none if it says nothing. A single key keeps what it has.

    >>> probabilities({"a": 3, "b": 1}), probabilities(None)
    ({'a': 0.75, 'b': 0.25}, {})
    """
    if not isinstance(y_pred, DICTS):
        if is_missing(y_pred):
            return {}
        raise ValueError(f"y_pred must be a dict of probabilities by label, got {y_pred!r:.80}")
    scale = scale_of(y_pred) if y_pred else math.nan
    p = {label: one_number(v) / scale for label, v in y_pred.items()}
    return p if all(-TOLERANCE <= v <= HIGH for v in p.values()) else {}  # all of them or none


def interval(y_pred: Any) -> tuple[float, float] | None:
    """The two ends of an interval (a pair, or anything with ``lower`` and ``upper``), None for anything else.

    >>> interval((1, 2)), interval(1.5)
    ((1.0, 2.0), None)
    """
    if isinstance(y_pred, tuple | list) and len(y_pred) == 2:
        return one_number(y_pred[0]), one_number(y_pred[1])
    if hasattr(y_pred, "lower") and hasattr(y_pred, "upper") and not isinstance(y_pred, str | bytes):
        return one_number(y_pred.lower), one_number(y_pred.upper)
    return None


def quantile(y_pred: Any, level: float) -> float:
    """A quantile forecast: the number itself, or the value at ``level`` (to 1e-9) of a dict by level; nan if missing.

    >>> quantile(3, 0.9), quantile({0.1: 1.0, 0.9: 5.0}, 0.9)
    (3.0, 5.0)
    """
    if isinstance(y_pred, DICTS):
        if not y_pred:
            return math.nan
        at = next((key for key in y_pred if abs(one_number(key) - level) < 1e-9 and alike(key, level)), None)
        if at is None:
            raise ValueError(f"y_pred must hold the level {level:.9g}, got the keys {list(y_pred)!r:.200}")
        return one_number(y_pred[at])
    return _number(y_pred, "a number, or a dict of numbers by level")


def _number(y_pred: Any, allowed: str) -> float:
    if is_missing(y_pred):
        return math.nan
    try:
        if isinstance(y_pred, str | bytes):
            raise TypeError
        return float(y_pred)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"y_pred must be {allowed}, got {y_pred!r:.80}") from None
