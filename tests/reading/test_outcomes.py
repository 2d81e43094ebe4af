"""The one outcome rule: what is 1, 0, missing, or nothing that anybody may guess."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.reading.outcomes import MISSING, ONE, UNKNOWN, ZERO, Outcomes, name_of

GONE = math.nan


def taken(values: list[Any], **declared: Any) -> list[float]:
    """All values, by the rule that knows all of them."""
    rule = Outcomes(**declared)
    numbers = rule.numbers(values)
    rule.count(numbers)
    return rule.outcomes(numbers).tolist()


def refused(values: list[Any], allowed: float = 0.0, **declared: Any) -> str:
    rule = Outcomes(**declared)
    rule.count(rule.numbers(values))
    return rule.problem(allowed) or ""


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "0", " 1.0", "00", 1, 0, 1.0, True, False, np.True_], [1, 0, 1, 0, 1, 0, 1, 1, 0, 1]),
        (["true", "FALSE", "T", "f", "Yes", "nO", "Y", "n"], [1, 0, 1, 0, 1, 0, 1, 0]),
        (
            ["", None, "NULL", "None", "nan", math.nan, "Na", "n/A", "<NA>", "NaT", "?", "Unknown", "PENDING"],
            [GONE] * 13,
        ),
        (["-1", "2", "0.5", "left", "ja", -1, 1e300, "inf"], [UNKNOWN] * 8),
    ],
)
def test_without_a_declaration(values: list[Any], expected: list[float]) -> None:
    assert repr(taken(values)) == repr([float(v) for v in expected])


@pytest.mark.parametrize(
    ("declared", "values", "expected"),
    [
        ({"pos_label": "left"}, ["left", "stayed", "left ", "stayed", "?"], [1, 0, 1, 0, GONE]),
        ({"pos_label": "1"}, ["1", "0", "?", "1.0", 1, 0.0], [1, 0, GONE, 1, 1, 0]),
        ({"pos_label": "2"}, ["2", "1", 2.0], [1, 0, 1]),
        ({"pos_label": "0"}, ["0", "1", "-0"], [1, 0, 1]),
        ({"pos_label": True}, [True, False, 1, 0], [1, 0, 1, 0]),
        ({"pos_label": 1}, [True, False, "1", 0.0], [1, 0, 1, 0]),
        ({"pos_label": "unknown"}, ["unknown", "known", "?"], [1, 0, GONE]),  # declared before it is missing
        ({"pos_label": "a"}, ["a", "b", "c"], [1, UNKNOWN, UNKNOWN]),  # none of several is a negative
        ({"pos_label": "a", "neg_label": "b"}, ["a", "b", "c", "A", "B"], [1, 0, UNKNOWN, UNKNOWN, UNKNOWN]),
        ({"pos_label": "a", "neg_label": ["b", "c"]}, ["a", "b", "c"], [1, 0, 0]),
        ({"pos_label": "a", "missing": ["lost", "-9"]}, ["a", "Lost", -9.0, "-9", "b"], [1, GONE, GONE, GONE, 0]),
        ({"pos_label": "Yes"}, ["Yes", "yes"], [1, UNKNOWN]),  # the other case is not the opposite
        ({"missing": ["-1"]}, [1, -1, 0], [1, GONE, 0]),
    ],
)
def test_declared(declared: dict[str, Any], values: list[Any], expected: list[float]) -> None:
    assert repr(taken(values, **declared)) == repr([float(v) for v in expected])


def test_nine_labels_of_a_monitor() -> None:
    """Fault 7: 1 positive, 1 negative, 1 refused by name, 6 missing."""
    values = ["left", "stayed", "Left", "", "unknown", "null", "nan", "pending", "N/A"]
    assert Counter(map(repr, taken(values, pos_label="left", neg_label="stayed"))) == {
        "nan": 6,
        "1.0": 1,
        "0.0": 1,
        "inf": 1,
    }
    rule = Outcomes("left", "stayed")
    assert Counter(repr(rule.take(value)) for value in values) == {"nan": 6, "1.0": 1, "0.0": 1, "inf": 1}
    assert (rule.came(1.0), rule.came(0.0), rule.came(UNKNOWN), rule.absent) == (
        {"left": 1},
        {"stayed": 1},
        {"Left": 1},
        6,
    )


@pytest.mark.parametrize(
    ("values", "declared", "said"),
    [
        (
            [-1] * 3 + [1],
            {},
            "the outcomes are -1 (3), 1 (1), and not 0/1, true/false or yes/no: say which is 1 with pos_label",
        ),
        (["1", "2"], {}, "the outcomes are 1 (1), 2 (1)"),
        (["left", "stayed", "left"], {}, "left (2), stayed (1)"),
        (["yes", "no"], {"pos_label": "Yes"}, "pos_label Yes never came; the outcomes are no (1), yes (1)"),
        (["fraud", "ok"], {"pos_label": "Fraud", "command": True}, "--pos-label Fraud never came"),
        (["Yes", "yes"], {"pos_label": "Yes"}, "beside pos_label Yes there are yes (1)"),
        (
            ["a", "b", "c", "c"],
            {"pos_label": "a", "command": True},
            "there are c (2), b (1): say which of them are 0 with --neg-l",
        ),
        (["a", "b", "c"], {"pos_label": "a", "neg_label": "b"}, "beside pos_label and neg_label there are c (1)"),
        (["1"] * 999 + ["-1"], {}, "-1 (1)"),  # 1 in 1,000, but no 0 came: it may be the negative
        (["a\x1b[2J", "b"], {}, r"'a\x1b[2J' (1)"),
    ],
)
def test_what_is_not_clear_is_a_question(values: list[Any], declared: dict[str, Any], said: str) -> None:
    assert said in refused(values, 0.01, **declared)


@pytest.mark.parametrize(
    ("values", "declared"),
    [
        ([], {}),
        ([], {"pos_label": "a"}),
        (["", None], {"pos_label": "a"}),
        ([0, 0, 0], {}),
        (["no"] * 3, {}),
        (["a", "b", "?"], {"pos_label": "a"}),
        (["1", "0"] * 50 + ["typo"], {}),  # below the share that is allowed
        (["a", "b"] * 50 + ["typo"], {"pos_label": "a", "neg_label": "b"}),
    ],
)
def test_what_is_clear_is_none(values: list[Any], declared: dict[str, Any]) -> None:
    assert not refused(values, 0.01, **declared)


def test_what_became_1_is_said() -> None:
    rule = Outcomes()
    assert rule.note() is None
    rule.count(rule.numbers(["1", "0", 1.0]))
    assert rule.note() is None
    rule.count(rule.numbers(["Yes", "yes", "no", "no"]))
    assert rule.note() == "outcomes: 1 (2), Yes (1), yes (1) are 1; no (2), 0 (1) are 0"
    rule = Outcomes("left")
    rule.count(rule.numbers(["left", "stayed", "stayed"]))
    assert rule.note() == "outcomes: left (1) is 1; stayed (2) is 0"


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"neg_label": "a"}, "neg_label goes with pos_label"),
        ({"pos_label": ""}, "pos_label must be a value that is there"),
        ({"pos_label": "a", "neg_label": ["b", math.nan]}, "neg_label must be a value that is there"),
        ({"pos_label": "a", "neg_label": "a"}, "declared twice"),
        ({"pos_label": 1, "neg_label": True}, "declared twice"),
        ({"pos_label": "a", "missing": ["A"]}, "declared twice"),
    ],
)
def test_declarations_that_contradict_themselves(declared: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Outcomes(**declared)


def test_a_column_of_numbers_does_not_fill_the_memory() -> None:
    rule = Outcomes()
    values = [i / 7 for i in range(2, 5000)] + ["x" * 10_000_000, "Yes", "no"]
    numbers = rule.numbers(values)
    rule.count(numbers)
    assert rule.outcomes(numbers).tolist()[-3:] == [UNKNOWN, 1.0, 0.0]
    assert len(rule.to_plain()) < 120
    assert sum(rule.came(UNKNOWN).values()) == len(values) - 2 - sum(i % 7 == 0 and i / 7 == 1 for i in range(2, 5000))


LABELS = st.sampled_from(
    ["1", "0", 1, 0.0, True, False, "yes", "No", "left", "Left", "stayed", -1, "?", None, "2", "lost"]
)
DECLARED = st.fixed_dictionaries(
    {
        "pos_label": st.sampled_from([None, "left", "1", 1, "2", "yes"]),
        "neg_label": st.sampled_from([None, "stayed", ["stayed", "0"]]),
        "missing": st.sampled_from([(), ("lost",)]),
    }
).filter(lambda declared: declared["pos_label"] is not None or declared["neg_label"] is None)


def naive(values: list[Any], pos_label: Any, neg_label: Any, missing: Any) -> list[float]:
    """The rule as a sentence, of a column that is there as a whole."""

    def name(value: Any) -> str:
        shown = name_of(value)
        python = pos_label is not None and not isinstance(pos_label, str)
        return {"true": "1", "false": "0"}.get(shown, shown) if python else shown

    negatives = {None: [], "stayed": ["stayed"]}.get(neg_label if not isinstance(neg_label, list) else "", neg_label)
    present = [name(v) for v in values if name(v).lower() not in {*MISSING, *missing}]
    others = set(present) - {str(pos_label)}
    if pos_label is not None and not negatives and len(others) == 1 and others != {"Left"}:
        negatives = [*others]
    found = []
    for value in map(name, values):
        if value.lower() in {*MISSING, *missing}:
            found.append(math.nan)
        elif pos_label is None:
            found.append(1.0 if value.lower() in ONE else 0.0 if value.lower() in ZERO else UNKNOWN)
        else:
            found.append(1.0 if value == str(pos_label) else 0.0 if value in negatives else UNKNOWN)
    return found


@given(st.lists(LABELS, max_size=8), DECLARED, st.randoms(use_true_random=False))
def test_the_rule_is_its_twin_in_any_order_and_in_any_pieces(
    values: list[Any], declared: dict[str, Any], random: Any
) -> None:
    rule, pieces = Outcomes(**declared), Outcomes(**declared)
    numbers = rule.numbers(values)
    rule.count(numbers)
    for value in random.sample(values, len(values)):
        pieces.take(value)
    assert repr(rule.outcomes(numbers).tolist()) == repr(naive(values, **declared))
    assert (rule.problem(0.01), rule.note(), rule.came()) == (pieces.problem(0.01), pieces.note(), pieces.came())


@given(st.lists(LABELS, max_size=8), st.lists(LABELS, max_size=8), DECLARED)
def test_a_stream_goes_on_after_a_restart(before: list[Any], after: list[Any], declared: dict[str, Any]) -> None:
    one = Outcomes(**declared)
    first = Outcomes(**declared)
    for value in before:
        one.take(value)
        first.take(value)
    second = Outcomes(**declared)
    second.take_over(first.to_plain())
    assert [repr(one.take(value)) for value in after] == [repr(second.take(value)) for value in after]
    assert one.to_plain() == second.to_plain()
