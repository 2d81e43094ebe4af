"""The outcome rule at the doors that take whole columns: every batch function with outcomes, every batch recalibrator."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import streamcal.batch
from streamcal.limits import CalibrationWarning
from streamcal.recalibrate import RECALIBRATORS

RNG = np.random.default_rng(3)
P = np.repeat([0.1, 0.3, 0.6, 0.9], 30)
Y = (RNG.random(P.size) < P).astype(float)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: function
    for name, function in inspect.getmembers(streamcal.batch, inspect.isfunction)
    if "pos_label" in inspect.signature(function).parameters
    and name not in ("tally", "outcome_numbers", "_columns", "_loss")
}
DOORS: dict[str, Callable[..., Any]] = {
    **FUNCTIONS,
    **{
        f"fit {name}": lambda p, y, kind=kind, **more: kind().fit(p, y, **more).predict(P)
        for name, kind in RECALIBRATORS.items()
    },
}


def words(one: Any, zero: Any) -> list[Any]:
    return [one if y else zero for y in Y]


def call(name: str, *columns: Any, **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return np.asarray(DOORS[name](*columns, **more))


def test_all_functions_of_a_probability_and_an_outcome_are_here() -> None:
    taking = {"ece", "mce", "k1", "k2", "kinf", "l2_ce", "brier", "murphy", "pa_ratio", "oe_ratio", "log_loss"}
    assert {*FUNCTIONS} == taking | {"calibration_slope", "calibration_intercept", "spiegelhalter_z"}


@pytest.mark.parametrize("name", DOORS)
def test_labels_are_their_numbers(name: str) -> None:
    expected = call(name, P, Y)
    for y, pos in (
        (words("left", "stayed"), "left"),
        (np.array(words("left", "stayed")), "left"),
        (words(2, 1), 2),
        (words(1, -1), 1),
        (np.array(words(1, -1)), 1),
        (np.array(words(True, False)), True),
        (np.array(words(True, False)), 1),
    ):
        assert np.array_equal(call(name, P, y, pos_label=pos), expected)
    assert np.array_equal(call(name, P, words(1, 0), pos_label=0), call(name, P, 1 - Y))
    assert np.array_equal(call(name, P, words("Yes", "no")), expected)


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize(
    ("y", "more", "said"),
    [
        (words(1, -1), {}, "y must .*-1"),
        (words("left", "stayed"), {}, "the outcomes are .*left .*say which is 1 with pos_label="),
        (words("yes", "no"), {"pos_label": "Yes"}, "pos_label Yes never came; the outcomes are"),
        (["moved", *words("left", "stayed")[1:]], {"pos_label": "left"}, "'moved'|'stayed'"),
        (["?", *words(1, 0)[1:]], {"pos_label": 1}, r"y must not be missing, got '\?' at index 0"),
        (["", *words("1", "0")[1:]], {}, "y must not be missing, got '' at index 0"),
    ],
)
def test_what_is_not_clear_is_an_error(name: str, y: list[Any], more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call(name, P, y, **more)


def test_numbers_beyond_0_and_1_name_the_option() -> None:
    with pytest.raises(ValueError, match="pos_label="):
        streamcal.ece(P, words(1, -1))


def test_words_are_read_with_a_word() -> None:
    with pytest.warns(CalibrationWarning, match="outcomes: yes .* is 1; no .* is 0"):
        streamcal.ece(P, words("yes", "no"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        streamcal.ece(P, words("yes", "no"), pos_label="yes")
        streamcal.ece(P, words("1", "0"))
        streamcal.ece(P, words(True, False))
        assert math.isclose(streamcal.ece([0.5, 0.5], [0.25, 0.75]), 0.0, abs_tol=1e-12)  # outcomes may be shares


def test_river_reads_missing_words_and_never_the_other_case() -> None:
    """Fault 7: "" was a negative in River's metrics and detector."""
    river = pytest.importorskip("streamcal.river")
    metric, detector = river.Brier(pos_val="left"), river.CalibrationDriftDetector(arl=1000, pos_val="left")
    for label in ["left", "stayed"] * 4 + ["", "?", "N/A", "unknown", None, math.nan]:
        metric.update(label, 0.25)
        detector.update(label, 0.25)
    assert (metric.report()["count"], metric.report()["refused"]) == (8, 6)
    assert metric.get() == pytest.approx((0.75**2 + 0.25**2) / 2)
    for update in (metric.update, detector.update):
        with pytest.raises(ValueError, match="is it the same"):
            update("Left", 0.25)
