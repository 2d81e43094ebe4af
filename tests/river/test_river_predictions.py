"""How the River metrics for classifiers read labels and predictions.

Which test covers which kind of field report (applies_to river-adapter, as far as it concerns metrics):

    numpy-bool-subtraction           test_numpy_s_true_and_false_are_true_and_false
    string-label-zero                test_text_where_true_or_false_is_meant_is_an_error
    none-label-counted-negative      test_a_missing_label_is_no_negative
    string-keys                      test_keys_of_another_kind_are_an_error_that_names_them
    cold-start-none                  test_a_prediction_that_says_nothing
    label-vs-dict                    test_a_label_in_place_of_a_prediction_is_an_error
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from river import metrics
from river_cases import name_of
from strategies import probabilities as unit

from streamcal import Levels, marginal_ce
from streamcal.river.metrics import ECE, MOST_CLASSES, MOST_LABELS, Brier, MarginalCE, TopLabelECE
from streamcal.river.predictions import alike, is_missing

nan = math.nan


class NotAvailable:
    """As pandas' NA: it cannot say whether it equals anything."""

    def __eq__(self, other):
        return self

    __ne__ = __eq__
    __hash__ = None

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


def claimed(y_pred, pos_val=True):
    """What probability a metric reads: the mean claim of its only event, nan if it was refused."""
    metric = ECE(pos_val=pos_val)
    metric.update(pos_val, y_pred)
    report = metric.report()
    assert report["count"] + report["refused"] == 1.0
    return report["mean_p"]


# ---------------------------------------------------------------------------- labels


@pytest.mark.parametrize("yes", [True, np.True_, 1, 1.0, np.int64(1), np.float32(1)], ids=name_of)
@pytest.mark.parametrize("no", [False, np.False_, 0, 0.0, np.int64(0), np.uint8(0)], ids=name_of)
def test_numpy_s_true_and_false_are_true_and_false(yes, no):
    for pos_val, p in ((True, 0.75), (np.True_, 0.75), (1, 0.75), (False, 0.25)):
        metric = Brier(pos_val=pos_val)
        for _ in range(2):  # the second time from memory
            metric.update(yes, {np.True_: 0.75, np.False_: 0.25})
            metric.update(no, {np.False_: 0.25, np.True_: 0.75})
            metric.update(yes, p)
            metric.update(np.bool_(bool(no)), np.float32(p))
        assert metric.get() == (0.25**2 + 0.75**2) / 2
        assert metric.report()["mean_y"] == 0.5


@pytest.mark.parametrize(
    "label", ["0", "1", "False", "True", "no", "", "nan", b"1", 2, -1, 0.5, (1,), [1]], ids=name_of
)
def test_text_where_true_or_false_is_meant_is_an_error(label):
    """River's LogLoss takes them all for positives: bool('0') is True."""
    theirs = metrics.LogLoss()
    theirs.update("0", {True: 0.9, False: 0.1})
    assert theirs.get() < 0.11
    metric = ECE()
    metric.update(True, 0.9)
    for update in (metric.update, metric.revert, ECE().update):
        with pytest.raises(ValueError, match="y_true must be a label like pos_val=True, got"):
            update(label, {True: 0.9, False: 0.1})
    assert metric.report()["count"] == 1.0


def test_text_is_fine_where_the_positive_label_is_text():
    metric = ECE(pos_val="1")
    metric.update("0", {"1": 0.9, "0": 0.1})
    assert metric.get() == 0.9
    for wrong in (True, 1, 0):
        with pytest.raises(ValueError, match="y_true must be a label like pos_val='1', got"):
            metric.update(wrong, 0.5)
    with pytest.raises(ValueError, match="say with pos_val which is positive"):
        ECE(pos_val=1).update("1", 0.5)


@pytest.mark.parametrize("label", [None, nan, np.float64("nan"), np.datetime64("NaT"), NotAvailable()], ids=name_of)
def test_a_missing_label_is_no_negative(label):
    """River's LogLoss counts it as one: 2.303 at .9."""
    for y_pred in (0.9, {True: 0.9, False: 0.1}):
        metric = ECE()
        metric.update(True, y_pred)
        metric.update(label, y_pred)
        assert metric.report()["count"] == 1.0
        assert metric.n_refused == 1.0
        assert metric.get() == pytest.approx(0.1)
        metric.revert(label, y_pred)
        assert metric.n_refused == 0.0
    for several in (TopLabelECE(), MarginalCE()):
        several.update(label, {True: 0.9, False: 0.1})
        assert several.n_refused == 1.0 and math.isnan(several.get())


def test_any_other_label_is_negative():
    metric = ECE(pos_val="spam")
    for label in ("ham", "eggs", "moss", "spam"):
        metric.update(label, 0.25)
    assert metric.get() == 0.0
    tuples = ECE(pos_val=("a", 1))
    tuples.update(("b", 1), 0.25)
    assert tuples.get() == 0.25
    numbers = ECE(pos_val=3)
    for label in (3, 4, 5, Fraction(1, 2)):
        numbers.update(label, 0.25)
    assert numbers.get() == 0.0


def test_labels_without_end_are_not_all_remembered():
    metric = ECE(pos_val=-1)
    for label in range(3 * MOST_LABELS):
        metric.update(label, 0.0)
    assert metric.report()["count"] == 3 * MOST_LABELS
    assert len(metric._outcomes) == MOST_LABELS


@pytest.mark.parametrize(
    ("a", "b", "yes"),
    [
        (True, False, True),
        (1, True, True),
        (2, True, False),
        (2, 1, True),
        (True, 2, True),
        (np.True_, 2, True),
        ("a", "b", True),
        (np.str_("a"), "b", True),
        ("1", 1, False),
        (1, "1", False),
        ((1,), "1", False),
        ("1", (1,), False),
        (b"1", "1", False),
        ((1,), (2,), True),
        (Decimal(1), 2, True),
    ],
)
def test_alike(a, b, yes):
    assert alike(a, b) is yes


def test_is_missing():
    assert all(map(is_missing, (None, nan, np.nan, Decimal("nan"), np.datetime64("NaT"), NotAvailable())))
    assert not any(map(is_missing, (0, False, "", "nan", (), {}, np.False_)))


# ---------------------------------------------------------------------------- predictions


@pytest.mark.parametrize(
    ("y_pred", "p"),
    [
        (0.3, 0.3),
        (1, 1.0),
        (True, 1.0),
        (np.float32(0.25), 0.25),
        (np.array(0.3), 0.3),
        (Fraction(1, 4), 0.25),
        ({True: 0.3, False: 0.7}, 0.3),
        ({False: 0.7, True: 0.3}, 0.3),
        ({1: 0.3, 0: 0.7}, 0.3),
        ({True: np.float32(0.25), False: np.float32(0.75)}, 0.25),
        ({True: Decimal("0.25"), False: Decimal("0.75")}, 0.25),
        ({True: 0.3}, 0.3),
        ({False: 0.25}, 0.75),
        ({False: 1.0}, 0.0),
        ({True: 0.0}, 0.0),
        ({False: 0.0}, 1.0),
        ({True: 0.0, False: 1.0}, 0.0),
        ({True: 1, False: 3}, 0.25),  # votes
        ({True: 3}, 1.0),
        ({False: 3}, 0.0),
        ({True: 0.1, False: 0.3}, 0.25),
        ({True: 1, False: 1}, 0.5),
        (Counter({True: 1, False: 3}), 0.25),
        (Counter({True: 0.3, False: 0.7}), 0.3),
        (Counter({True: 0.4}), 1.0),  # all the votes there are
        (Counter({False: 2}), 0.0),
        (OrderedDict({True: 0.3, False: 0.7}), 0.3),
        (defaultdict(float, {False: 0.7, True: 0.3}), 0.3),
        (defaultdict(float, {False: 0.25}), 0.75),
        ({True: 0.3, False: 0.7, "x": 5.0}, 0.3),
    ],
    ids=name_of,
)
def test_what_a_prediction_claims(y_pred, p):
    assert claimed(y_pred) == pytest.approx(p, abs=1e-12)
    if isinstance(y_pred, dict) and set(y_pred) <= {True, False}:
        assert claimed(y_pred, pos_val=False) == pytest.approx(1.0 - p, abs=1e-12)


def test_a_prediction_with_more_than_two_labels():
    for y_pred, p in (
        ({"a": 0.2, "b": 0.3, "c": 0.5}, 0.2),
        ({"b": 0.3, "c": 0.7}, 0.0),
        ({"a": 1, "b": 0, "c": 3}, 0.25),  # the first two sum to one, and are votes all the same
        ({"b": 0.3}, 0.7),
    ):
        assert claimed(y_pred, "a") == pytest.approx(p)
    metric = Brier(pos_val="a")
    metric.update("a", {"a": 1.0, "b": 0.0})
    metric.update("a", {"a": 1, "b": 0, "c": 3})
    assert metric.get() == 0.75**2 / 2


@pytest.mark.parametrize(
    "y_pred",
    [
        None,
        nan,
        {},
        Counter(),
        {True: None, False: None},
        {True: nan, False: 0.5},
        {True: 0.0, False: 0.0},
        {True: -0.5, False: 3.0},
        {True: math.inf, False: 1.0},
        {True: "0.9", False: "0.1"},
        1.5,
        -0.1,
        math.inf,
    ],
    ids=name_of,
)
def test_a_prediction_that_says_nothing(y_pred):
    """Refused and counted, never a probability: what a base model returns before it has learned."""
    metric = ECE(n_bins=4)
    metric.update(True, 0.75)
    metric.update(True, y_pred)
    assert metric.n_refused == 1.0
    assert metric.get() == 0.25
    metric.revert(True, y_pred)
    assert metric.n_refused == 0.0


@pytest.mark.parametrize(
    "y_pred",
    [{"a": 1, "b": 3, "c": -1}, {"a": 0.5, "b": 1.5, "c": -1.0}, {"b": 1.5, "c": -0.5}, {"a": -1}],
    ids=name_of,
)
def test_no_label_of_a_prediction_with_a_negative_value_is_taken(y_pred):
    assert math.isnan(claimed(y_pred, "a"))
    for several in (TopLabelECE(), MarginalCE(("a", "b", "c"))):
        several.update("a", y_pred)
        assert several.n_refused == 1.0
        assert math.isnan(several.get())


def test_rounding_of_float32_is_clipped_and_counted():
    metric = ECE()
    metric.update(True, {True: np.float32(1.0000002), False: np.float32(0.0)})
    metric.update(True, 1.0000002)
    assert metric.get() == 0.0
    assert metric.report()["clipped"] == 2.0


@pytest.mark.parametrize(
    "y_pred",
    [{"1": 0.9, "0": 0.1}, {"True": 0.9, "False": 0.1}, {2: 0.9, 3: 0.1}, {"spam": 1.0}, {None: 1.0}],
    ids=name_of,
)
def test_keys_of_another_kind_are_an_error_that_names_them(y_pred):
    """River's LogLoss finds no True in them and takes 0 for its probability: 34.5."""
    theirs = metrics.LogLoss()
    theirs.update(True, y_pred)
    assert theirs.get() > 34
    first = next(iter(y_pred))
    with pytest.raises(ValueError, match=rf"must have a key like pos_val=True, got the keys \[{first!r}"):
        ECE().update(True, y_pred)
    for several in (TopLabelECE(), MarginalCE()):
        with pytest.raises(ValueError, match="y_true must be a label like"):
            several.update(True if first != 2 else "2", y_pred)


@pytest.mark.parametrize(
    "label",
    ["path", "0.9", b"1", [0.1, 0.9], (0.1, 0.9), np.array([0.1, 0.9]), object()],
    ids=lambda v: type(v).__name__,
)
def test_a_label_in_place_of_a_prediction_is_an_error(label):
    for metric in (ECE(), ECE(pos_val="path"), ECE(pos_val=1)):
        metric.update(metric.pos_val, 0.5)
        with pytest.raises(ValueError, match="y_pred must be a probability, or a dict of them by label, got"):
            metric.update(metric.pos_val, label)
    for several in (TopLabelECE(), MarginalCE()):
        with pytest.raises(ValueError, match="y_pred must be a dict of probabilities by label, got"):
            several.update("path", label)


def test_a_defaultdict_is_not_filled():
    y_pred = defaultdict(float, {False: 0.25})
    for metric in (ECE(), TopLabelECE(), MarginalCE()):
        metric.update(True, y_pred)
        metric.update(True, y_pred)
        metric.revert(True, y_pred)
    assert y_pred == {False: 0.25}


numbers = st.one_of(unit, st.floats(-2, 4), st.integers(0, 3), st.sampled_from([None, nan, 1.0000005, np.float32(0.1)]))
complements = unit.map(lambda p: {True: p, False: 1.0 - p})
dicts = st.one_of(
    complements,
    st.dictionaries(st.sampled_from([True, False]), numbers),
    st.dictionaries(st.sampled_from([True, False, "x", 2]), numbers, min_size=1).map(lambda d: {True: 0.25, **d}),
    st.dictionaries(st.sampled_from([True, False]), st.integers(0, 5)).map(Counter),
)
texts = st.dictionaries(st.sampled_from(["a", "b", "c"]), numbers)
outcomes = st.sampled_from([True, False, 1, 0, np.True_, None, nan])
weights = st.sampled_from([1.0, 0.0, 2, 0.3, -1.0, nan, None])


@given(
    st.one_of(
        st.tuples(st.just(True), st.lists(st.tuples(outcomes, st.one_of(dicts, numbers), weights), max_size=20)),
        st.tuples(st.just(False), st.lists(st.tuples(outcomes, st.one_of(dicts, numbers), weights), max_size=20)),
        st.tuples(
            st.just("a"),
            st.lists(
                st.tuples(st.sampled_from(["a", "b", "c", None]), st.one_of(texts, numbers), weights), max_size=20
            ),
        ),
    ),
    st.sampled_from([{}, {"window_size": 3}, {"half_life": 2.0}]),
)
def test_the_short_way_is_the_long_way(stream, window):
    """update's short cut adds the same event as reading it with care, to the last bit; and revert takes that one back."""
    pos_val, events = stream
    short, long = ECE(pos_val=pos_val, **window), ECE(pos_val=pos_val, **window)
    for event in events:
        short.update(*event)
        long._read_and_update(*event)
        np.testing.assert_array_equal(short._window.cells, long._window.cells)
    if not window:
        for event in events:
            short.revert(*event)
        assert not short._window.cells[0, :-1].any() and short.n_refused == 0.0


# ---------------------------------------------------------------------------- several classes


def test_the_first_class_wins_a_tie():
    metric = TopLabelECE()
    metric.update("b", {"a": 0.4, "b": 0.4, "c": 0.2})
    assert metric.get() == pytest.approx(0.4)
    metric.revert("b", {"a": 0.4, "b": 0.4, "c": 0.2})
    metric.update("b", {"b": 0.4, "a": 0.4, "c": 0.2})
    assert metric.get() == pytest.approx(0.6)


def test_top_label_of_votes_and_of_unknown_labels():
    metric = TopLabelECE()
    metric.update("a", Counter({"a": 3, "b": 1}))
    assert metric.get() == 0.25
    metric.update("new", Counter({"a": 3, "b": 1}))  # a label that no prediction has named is a miss
    assert metric.get() == 0.25  # .75 claimed, half right
    metric.update("a", {})
    assert metric.n_refused == 1.0


def late_stream(n=60, seed=0):
    """Predictions and labels name a third and a fourth class only later on."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        names = "ab" if i < 20 else "abc" if i < 40 else "abcd"
        p = dict(zip(names, rng.dirichlet(np.ones(len(names))).tolist()))
        yield str(rng.choice(list("ab" if i < 15 else "abcd"))), p, float(rng.random())


@pytest.mark.parametrize("window", [{}, {"window_size": 30}, {"half_life": 20}], ids=str)
@pytest.mark.parametrize("norm", [1, 2])
def test_a_class_that_turns_up_late_was_there_from_the_start(window, norm):
    grown, declared = MarginalCE(norm=norm, **window), MarginalCE(("a", "b", "c", "d"), norm, **window)
    seen: set[str] = set()
    for y, p, w in late_stream():
        grown.update(y, p, w)
        declared.update(y, p, w)
        seen |= {y, *p}
        assert set(grown._windows) == seen
    assert grown.get() == declared.get()
    for label in "abcd":
        np.testing.assert_array_equal(grown._windows[label]._buf, declared._windows[label]._buf)


def test_a_grown_class_is_reverted_with_events_from_before_it_was_known():
    metric, events = MarginalCE(), list(late_stream())
    for event in events:
        metric.update(*event)
    for event in events[:45]:
        metric.revert(*event)
    fresh = MarginalCE(classes=("a", "b", "c", "d"))
    for event in events[45:]:
        fresh.update(*event)
    assert metric.get() == pytest.approx(fresh.get(), abs=1e-14)
    for event in events[45:]:
        metric.revert(*event)
    assert math.isnan(metric.get())


def test_marginal_ce_of_distinct_values_is_the_batch_function():
    rng = np.random.default_rng(2)
    rows = np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8], [0.6, 0.2, 0.2]])[rng.integers(3, size=200)]
    labels = rng.integers(3, size=200)
    for norm, debias in ((1, False), (2, False), (2, True)):
        metric = MarginalCE(norm=norm, debias=debias, binning=Levels(np.unique(rows)))
        for y, p in zip(labels.tolist(), rows.tolist()):
            metric.update(y, dict(enumerate(p)))
        assert metric.get() == pytest.approx(marginal_ce(rows, labels, norm=norm, debias=debias), abs=1e-12)


def test_a_label_outside_the_declared_classes_is_refused_and_counted():
    metric = MarginalCE(classes=("a", "b"))
    metric.update("a", {"a": 1.0, "b": 0.0})
    metric.update("c", {"a": 0.5, "c": 0.5})
    assert metric.get() == 0.0 and metric.n_refused == 1.0
    metric.update("a", {"a": 0.5, "c": 0.5})  # what else the model thinks of does not matter: b has 0
    assert metric.get() == pytest.approx(math.sqrt((0.5**2 / 2 + 0.0) / 2))
    assert set(metric.report()) == {"a", "b"}
    with pytest.raises(ValueError, match="y_true must be a label like 'a', got 1"):
        metric.update(1, {"a": 1.0})


def test_labels_without_end_are_no_classes():
    metric = MarginalCE(n_bins=1)
    for label in range(MOST_CLASSES):
        metric._windows[label] = metric._window  # as if seen: a thousand windows take a second
    with pytest.raises(ValueError, match="at most 1000 classes, got also"):
        metric.update(5000, {5000: 0.5, 1: 0.5})
    assert len(metric._windows) == MOST_CLASSES


@pytest.mark.parametrize("label", [np.array(True), np.array(1.0)])
def test_a_label_that_no_dict_can_have_as_a_key_is_taken_once(label):
    metric = ECE()
    metric.update(label, 0.5)
    metric.update(label, 0.5)
    assert metric.report()["count"] == 2.0 and metric.get() == 0.5
