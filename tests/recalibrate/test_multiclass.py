"""Recalibrators of class probabilities: one map per class, and the top label's."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcal
from streamcal import Cumulative, EqualWidth, from_bytes
from streamcal.recalibrate import Marginal, MarginalCalibration, TopLabel, TopLabelCalibration
from streamcal.recalibrate.histogram import HistogramBinning
from streamcal.recalibrate.isotonic import IsotonicCalibration
from streamcal.recalibrate.platt import PlattScaling
from streamcal.recalibrate.scaling_binning import ScalingBinning

pytestmark = pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")
INNER = [PlattScaling(), IsotonicCalibration(), HistogramBinning(5), ScalingBinning(4)]


def sample(n: int = 300, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Overconfident class probabilities and labels from softer ones."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    probs, true = (np.exp(s * z) / np.exp(s * z).sum(1, keepdims=True) for s in (1.0, 0.5))
    return probs, np.array([rng.choice(classes, p=row) for row in true])


# ------------------------------------------------------------------------------ one map per class


@pytest.mark.parametrize("inner", INNER, ids=repr)
def test_each_class_has_the_map_of_its_own_column(inner):
    probs, labels = sample()
    fitted = Marginal(inner, renormalise=False).fit(probs, labels)
    for k in range(4):
        want = copy.deepcopy(inner).fit(probs[:, k], labels == k).predict(probs[:, k])
        assert fitted.predict(probs)[:, k].tolist() == want.tolist()
    rows = Marginal(inner).fit(probs, labels).predict(probs)
    raw = fitted.predict(probs)
    np.testing.assert_allclose(rows.sum(1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(rows * raw.sum(1, keepdims=True), raw, rtol=1e-9, atol=1e-12)


def test_it_helps_an_overconfident_classifier():
    probs, labels = sample(3000)
    held, wanted = sample(3000, seed=1)
    hit = np.eye(4)[wanted]
    fitted = Marginal(PlattScaling()).fit(probs, labels)
    assert ((fitted.predict(held) - hit) ** 2).sum(1).mean() < 0.95 * ((held - hit) ** 2).sum(1).mean()


def test_the_given_recalibrator_is_left_alone():
    inner = HistogramBinning(3)
    probs, labels = sample()
    Marginal(inner).fit(probs, labels)
    TopLabel(inner).fit(probs, labels)
    assert not hasattr(inner, "levels_")


def test_a_calibration_set_with_two_of_three_classes_keeps_three_columns():
    """two-of-three-classes, calib-set-fewer-classes, missing-class-zero-proba: the unseen class keeps its raw p."""
    probs = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.5, 0.3, 0.2], [0.2, 0.7, 0.1]])
    fitted = Marginal(PlattScaling(), renormalise=False).fit(probs, [0, 1, 0, 1])
    out = fitted.predict(probs)
    assert out.shape == (4, 3)
    assert out[:, 2].tolist() == probs[:, 2].tolist()
    assert [m is None for m in fitted.recalibrators_] == [False, False, True]
    rows = Marginal(PlattScaling()).fit(probs, [0, 1, 0, 1]).predict(probs)
    assert (rows[:, 2] > 0).all()
    assert rows.sum(1) == pytest.approx(1.0)


def test_the_first_class_may_be_the_one_unseen():
    probs, _ = sample(50, classes=3)
    out = Marginal(HistogramBinning(2), renormalise=False).fit(probs, np.full(50, 2)).predict(probs)
    assert out[:, :2].tolist() == probs[:, :2].tolist()
    assert (out[:, 2] == 1.0).all()


def test_a_class_without_weight_is_unseen():
    probs, labels = sample(100)
    w = (labels != 3).astype(float)
    fitted = Marginal(PlattScaling(), renormalise=False).fit(probs, labels, w)
    assert fitted.recalibrators_[3] is None
    assert fitted.predict(probs)[:, 3].tolist() == probs[:, 3].tolist()


@pytest.mark.parametrize("kind", [Marginal, TopLabel])
def test_a_weight_is_that_many_copies(kind):
    probs, labels = sample(60)
    w = np.random.default_rng(2).integers(0, 4, 60)
    weighted = kind(HistogramBinning(3)).fit(probs, labels, w)
    copied = kind(HistogramBinning(3)).fit(np.repeat(probs, w, 0), np.repeat(labels, w))
    np.testing.assert_allclose(weighted.predict(probs), copied.predict(probs), rtol=0, atol=1e-12)


def test_a_row_of_zeros_becomes_uniform():
    probs = np.array([[0.9, 0.1], [0.1, 0.9], [0.2, 0.8]])
    fitted = Marginal(HistogramBinning(1)).fit(probs, [0, 1, 1])
    fitted.recalibrators_ = [copy.deepcopy(m) for m in fitted.recalibrators_]
    for m in fitted.recalibrators_:
        m.levels_ = np.zeros(1)
    assert fitted.predict([[0.3, 0.7]]).tolist() == [[0.5, 0.5]]


def test_from_a_window_with_one_key_per_class():
    probs, labels = sample(2000)
    window = Cumulative(EqualWidth(1000), claim=streamcal.Marginal(4))
    window.update_many(probs, labels)
    got = Marginal(PlattScaling()).fit_snapshot(window.snapshot()).predict(probs)
    assert np.abs(got - Marginal(PlattScaling()).fit(probs, labels).predict(probs)).max() < 0.01
    few = Cumulative(EqualWidth(10), claim=streamcal.Marginal(3))
    few.update_many(np.full((5, 3), 1 / 3), [0, 1, 1, 0, 1])
    assert Marginal(PlattScaling()).fit_snapshot(few.snapshot()).recalibrators_[2] is None


def test_a_snapshot_of_one_key_or_of_nothing_is_refused():
    empty = Cumulative(EqualWidth(10), claim=streamcal.Marginal(3)).snapshot()
    for other in (Cumulative(EqualWidth(10)).snapshot(), Cumulative(EqualWidth(10), keys=3).snapshot(), empty[0]):
        with pytest.raises(ValueError, match="claim Marginal"):
            Marginal(PlattScaling()).fit_snapshot(other)
    with pytest.raises(ValueError, match="at least one event"):
        Marginal(PlattScaling()).fit_snapshot(empty)
    with pytest.raises(ValueError, match="takes a Snapshot"):
        Marginal(PlattScaling()).fit_snapshot(Cumulative(EqualWidth(10)))
    with pytest.raises(ValueError, match=r"claim TopLabel\(\)"):
        TopLabel(PlattScaling()).fit_snapshot(Cumulative(EqualWidth(10)).snapshot(), 3)


def test_one_segment_of_a_window_of_class_probabilities():
    probs, labels = sample()
    segment = np.arange(len(labels)) % 2
    window = Cumulative(EqualWidth(50), claim=streamcal.Marginal(probs.shape[1]), keys=2)
    window.update_many(probs, labels, key=segment)
    for key in (0, 1):
        alone = Cumulative(EqualWidth(50), claim=streamcal.Marginal(probs.shape[1]))
        alone.update_many(probs[segment == key], labels[segment == key])
        want = Marginal(PlattScaling()).fit_snapshot(alone.snapshot()).predict(probs)
        got = Marginal(PlattScaling()).fit_snapshot(window.snapshot(), key=key).predict(probs)
        assert np.abs(got - want).max() < 1e-9
    with pytest.raises(ValueError, match="key must be a whole number in 0..1"):
        Marginal(PlattScaling()).fit_snapshot(window.snapshot(), key=2)


# ------------------------------------------------------------------------------ top label


@pytest.mark.parametrize("inner", INNER, ids=repr)
def test_the_confidence_is_mapped_by_whether_the_top_class_is_right(inner):
    probs, labels = sample()
    fitted = TopLabel(inner).fit(probs, labels)
    want = copy.deepcopy(inner).fit(probs.max(1), probs.argmax(1) == labels).predict(probs.max(1))
    assert fitted.predict(probs).tolist() == want.tolist()


@given(st.lists(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=3, max_size=3), min_size=1, max_size=8))
def test_transform_sets_the_top_class_and_shares_the_rest(rows):
    probs, labels = sample(200, classes=3)
    fitted = TopLabel(HistogramBinning(5)).fit(probs, labels)
    out, confidence = fitted.transform(rows), fitted.predict(rows)
    for before, after, c in zip(rows, out, confidence):
        top = before.index(max(before))
        rest = sum(before) - before[top]
        for k in range(3):
            share = before[k] / rest if rest else 1 / 2
            assert after[k] == pytest.approx(c if k == top else (1 - c) * share, abs=1e-12)
        assert after.sum() == pytest.approx(1.0)


def test_top_label_from_a_window():
    probs, labels = sample(2000)
    window = Cumulative(EqualWidth(1000), claim=streamcal.TopLabel())
    window.update_many(probs, labels)
    got = TopLabel(PlattScaling()).fit_snapshot(window.snapshot(), n_classes=4).predict(probs)
    assert np.abs(got - TopLabel(PlattScaling()).fit(probs, labels).predict(probs)).max() < 0.01


# ------------------------------------------------------------------------------ both


@pytest.mark.parametrize("inner", INNER, ids=repr)
@pytest.mark.parametrize("kind", [Marginal, TopLabel])
@pytest.mark.parametrize(
    "travel", [lambda m: from_bytes(m.to_bytes()), copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_state_round_trip(kind, inner, travel):
    probs, labels = sample(100)
    labels[labels == 3] = 0  # class 3 is unseen
    fitted = kind(inner).fit(probs, labels)
    again = travel(fitted)
    assert again.predict(probs).tolist() == fitted.predict(probs).tolist()
    assert again.to_bytes() == fitted.to_bytes()
    assert repr(again) == repr(fitted)
    unfitted = travel(kind(inner))
    assert repr(unfitted) == repr(kind(inner))
    with pytest.raises(ValueError, match="not fitted"):
        unfitted.predict(probs)


def test_settings_travel():
    assert from_bytes(Marginal(HistogramBinning(7), renormalise=False).to_bytes()).renormalise is False
    assert from_bytes(TopLabel(HistogramBinning(7)).to_bytes()).recalibrator.n_bins == 7


def test_a_document_of_an_unknown_inner_kind_is_refused(monkeypatch):
    data = Marginal(PlattScaling()).to_bytes()
    monkeypatch.delitem(streamcal.state.KINDS, "PlattScaling")
    with pytest.raises(ValueError, match="a part of an unknown kind: 'PlattScaling'"):
        from_bytes(data)


def test_the_claims_of_the_same_name_can_still_be_read():
    """A document says its kind by the class's name: the recalibrators must not take those of the claims."""
    assert (Marginal, TopLabel) == (MarginalCalibration, TopLabelCalibration)
    assert from_bytes(streamcal.Marginal(3).to_bytes()) == streamcal.Marginal(3)
    assert from_bytes(streamcal.TopLabel().to_bytes()) == streamcal.TopLabel()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int64, np.float64, object])
def test_labels_of_any_number_type(dtype):
    """unsigned-label-overflow: labels are read as numbers, never negated as unsigned ones."""
    probs, labels = sample(100)
    want = Marginal(PlattScaling()).fit(probs, labels).predict(probs)
    assert Marginal(PlattScaling()).fit(probs.tolist(), labels.astype(dtype)).predict(probs).tolist() == want.tolist()


@pytest.mark.parametrize("kind", [Marginal, TopLabel])
@pytest.mark.parametrize(
    "probs, labels, weights, message",
    [
        ([0.5, 0.5], [0, 1], None, "shape"),
        ([[0.5], [0.5]], [0, 0], None, "two classes"),
        ([[0.5, 0.5]], [2], None, r"0..1, got 2.0 at index 0"),
        ([[0.5, 0.5]], [-1], None, r"0..1, got -1.0"),
        ([[0.5, 0.5]], [0.5], None, r"0..1, got 0.5"),
        ([[0.5, 0.5]], [None], None, "labels must hold numbers"),
        ([[0.5, 0.5]], [0, 1], None, "labels must have shape"),
        ([[0.5, 1.5]], [0], None, r"p must lie in \[0, 1\], got 1.5"),
        ([[0.5, float("nan")]], [0], None, r"got nan"),
        ([[0.5, 0.5]], [0], [0.0], "at least one event"),
        ([[0.5, 0.5]], [0], [-1.0], "sample_weight must lie"),
        ([[0.5, 0.5]], [0], [float("nan")], "sample_weight must lie"),
        ([[0.5, 0.5]], [0], [1.0, 1.0], "sample_weight must have shape"),
        (np.empty((0, 3)), [], None, "at least one event"),
    ],
)
def test_bad_input_is_named(kind, probs, labels, weights, message):
    model = kind(PlattScaling())
    with pytest.raises(ValueError, match=message):
        model.fit(probs, labels, weights)
    with pytest.raises(ValueError, match="not fitted"):
        model.predict(probs)


@pytest.mark.parametrize("kind", [Marginal, TopLabel])
def test_unlike_indexes_are_refused(kind):
    class Series(np.ndarray):
        index: np.ndarray

    probs, labels = (np.array(a).view(Series) for a in sample(10))
    probs.index, labels.index = np.arange(10), np.arange(10)[::-1]
    with pytest.raises(ValueError, match="share one index"):
        kind(PlattScaling()).fit(probs, labels)


@pytest.mark.parametrize("kind", [Marginal, TopLabel])
def test_another_width_is_refused(kind):
    probs, labels = sample(50)
    fitted = kind(PlattScaling()).fit(probs, labels)
    with pytest.raises(ValueError, match=r"shape \(n, 4\), got \(50, 3\)"):
        fitted.predict(probs[:, :3])
    assert len(fitted.predict(np.empty((0, 4)))) == 0


@pytest.mark.parametrize("kind", [Marginal, TopLabel])
@pytest.mark.parametrize("inner", [PlattScaling, "platt", None])
def test_only_recalibrators_are_wrapped(kind, inner):
    with pytest.raises(ValueError, match="must be a Recalibrator"):
        kind(inner)


@pytest.mark.parametrize("made", [Marginal(PlattScaling()), TopLabel(PlattScaling())])
def test_documents_with_maps_that_are_none(made):
    probs, labels = sample()
    fitted = copy.deepcopy(made).fit(probs, labels)
    config, arrays = fitted._state()
    name, foreign = made.fitted[0], {"kind": "EqualWidth", "config": {"arguments": [3]}}
    maps = config[name]
    for other in ([], maps[:-1], [foreign] * len(maps)) if isinstance(made, Marginal) else ([], [maps] * 2, foreign):
        with pytest.raises(ValueError, match="maps are not those"):
            type(made)._restore({**config, name: other}, arrays)
    if isinstance(made, TopLabel):
        with pytest.raises(ValueError, match="cannot be None"):
            type(made)._restore({**config, name: None}, arrays)


def test_renormalise_is_a_switch():
    with pytest.raises(ValueError, match="renormalise must be True or False, got 'False'"):
        Marginal(PlattScaling(), renormalise="False")
