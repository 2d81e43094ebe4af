"""Refit: any batch recalibrator from a window; Chain: one on top of another; OnlineMarginal: one for each class."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from conftest import sized
from hypothesis import given
from hypothesis import strategies as st

import streamcal
from streamcal import (
    Cumulative,
    EqualWidth,
    Fading,
    Grid,
    IsotonicCalibration,
    PlattScaling,
    Quantile,
    Sliding,
    Tumbling,
    UniformMass,
    from_bytes,
)
from streamcal.recalibrate import (
    RECALIBRATORS,
    Chain,
    Guard,
    OnlineHistogram,
    OnlineIsotonic,
    OnlineMarginal,
    OnlinePlatt,
    Refit,
)


def events(n=600, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return p, (rng.random(n) < p**2).astype(float)


# ------------------------------------------------------------------------------ refit


@pytest.mark.parametrize("name", RECALIBRATORS)
def test_a_sliding_window_is_fitted_to_its_events(name):
    """The map in force after t events is that of the last events before the last refit; before the first: none."""
    p, y = events(300)
    p = p.round(1)
    w = np.random.default_rng(1).integers(1, 3, 300).astype(float)
    kind = RECALIBRATORS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = Refit(kind(), Sliding(UniformMass(15), 90), every=70).run(p, y, w)
        assert out[:70].tolist() == p[:70].tolist()
        for start in (70, 140, 210, 280):
            part = slice(max(start - 90, 0), start)
            want = kind().fit(p[part], y[part], w[part]).predict(p[start : start + 70])
            assert out[start : start + 70].tolist() == want.tolist()


@pytest.mark.parametrize("window", [Cumulative(UniformMass(15, bits=7)), Fading(UniformMass(15, bits=7), 200)])
def test_other_windows_are_fitted_to_their_sums(window):
    p, y = events()
    refit = Refit(PlattScaling(), window, every=100)
    out = refit.run(p, y)
    one = from_bytes(window.to_bytes())
    for a, b in zip(p[:500], y[:500]):
        one.update(a, b)
    assert out[500:].tolist() == PlattScaling().fit_snapshot(one.snapshot()).predict(p[500:]).tolist()


def test_a_fit_that_fails_or_warns_does_not_stop_the_stream():
    refit = Refit(PlattScaling("hard"), Sliding(EqualWidth(15), 50), every=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refit.run(np.linspace(0.1, 0.9, 20), np.ones(20))
    assert "no best map found" in refit.note_ and refit.report()["note"] == refit.note_
    refit.run(*events(200))
    assert refit.note_ == "" and refit.report()["recalibrator"] == "PlattScaling(targets='hard')"
    thirds = Refit(streamcal.ScalingBinning(4, split=True), Cumulative(UniformMass(15)), every=10)
    out = thirds.run(*events(40))
    assert thirds.note_.startswith("not fitted: split=True needs the events") and thirds.recalibrator_ is None
    assert out.tolist() == events(40)[0].tolist()


def test_a_window_that_has_run_can_be_given_and_is_copied():
    window = Sliding(UniformMass(15), 1000)
    window.update_many(*events())
    before = window.to_bytes()
    refit = Refit(window=window, every=1)
    refit.learn_one(0.5, 1.0)
    assert refit.recalibrator_.slope_ != 1.0 and window.to_bytes() == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Refit(window=Tumbling(EqualWidth(5), 10)), "window must be one of Cumulative, Sliding, Fading"),
        (lambda: Refit(window=Cumulative(EqualWidth(5), keys=2)), "one key and the claim Mean"),
        (lambda: Refit(window=Cumulative(EqualWidth(5), claim=Quantile(0.5))), "one key and the claim Mean"),
        (lambda: Refit(every=0), "every must be a whole number at least 1"),
        (lambda: OnlineHistogram(UniformMass(15)), "window must be one of"),
        (lambda: OnlineHistogram(Cumulative(UniformMass(15))), "fixed bins.*use Refit"),
        (lambda: OnlineHistogram(Cumulative(EqualWidth(5), keys=2)), "one key"),
        (lambda: OnlineHistogram(prior=-1.0), r"prior must be a number of events in \[0, 1e9\], got -1.0"),
        (lambda: OnlineIsotonic(prior="x"), "prior must be"),
        (lambda: Chain(PlattScaling()), "first must be an online recalibrator"),
        (lambda: OnlineMarginal(n_classes=1), "n_classes must be a whole number at least 2"),
        (lambda: OnlineMarginal(PlattScaling()), "recalibrator must be an online recalibrator"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ------------------------------------------------------------------------------ read back from a window


windows = st.sampled_from(
    [Cumulative(EqualWidth(7)), Sliding(EqualWidth(7), 9), Fading(EqualWidth(7), 5.0), Cumulative(Grid(8))]
)
streams = st.lists(
    st.tuples(st.floats(0, 1), st.floats(0, 1), st.sampled_from([1.0, 2.0, 0.3])), min_size=1, max_size=40
)


@given(windows, streams, st.sampled_from([0.0, 1.0, 2.5]))
def test_histogram_is_the_mean_outcome_of_the_bin(window, stream, prior):
    p, y, w = np.array(stream).T
    recalibrator = OnlineHistogram(window, prior)
    recalibrator.run(p, y, w)
    plain = from_bytes(window.to_bytes())
    for event in stream:
        plain.update(*event)
    s, x = plain.snapshot(), 0.37
    bin = int(window.binning.bins([x])[0])
    weight, mean = s.weight[0, bin], s.mean_y[0, bin]
    want = x if weight == 0.0 else (weight * mean + prior * x) / (weight + prior)
    assert recalibrator.predict_one(x) == pytest.approx(want, rel=1e-9, abs=1e-12)


@given(windows, streams)
def test_isotonic_without_a_prior_is_the_fit_to_the_snapshot(window, stream):
    p, y, w = np.array(stream).T
    recalibrator = OnlineIsotonic(window, prior=0.0)
    recalibrator.run(p, y, w)
    plain = from_bytes(window.to_bytes())
    for event in stream:
        plain.update(*event)
    want = IsotonicCalibration().fit_snapshot(plain.snapshot())
    at = np.linspace(0, 1, 41)
    assert [recalibrator.predict_one(x) for x in at.tolist()] == pytest.approx(want.predict(at).tolist(), abs=1e-9)


@given(windows, streams, st.sampled_from([0.1, 1.0]))
def test_isotonic_is_monotone_and_its_prior_is_an_event_in_the_middle_of_each_bin(window, stream, prior):
    p, y, w = np.array(stream).T
    recalibrator = OnlineIsotonic(window, prior)
    recalibrator.run(p, y, w)
    at = np.linspace(0, 1, 41)
    out = np.array([recalibrator.predict_one(x) for x in at.tolist()])
    assert (np.diff(out) >= -1e-15).all()
    plain = from_bytes(window.to_bytes())
    for event in stream:
        plain.update(*event)
    s, edges = plain.snapshot(), window.binning.edges
    middle = window.binning.levels if isinstance(window.binning, Grid) else (edges[:-1] + edges[1:]) / 2
    weight, mean_p, mean_y = s.weight[0], np.nan_to_num(s.mean_p[0]), np.nan_to_num(s.mean_y[0])
    total = weight + prior
    x, z = (weight * mean_p + prior * middle) / total, (weight * mean_y + prior * middle) / total
    want = IsotonicCalibration().fit(np.clip(x, 0, 1), np.clip(z, 0, 1), total).predict(at)
    assert out == pytest.approx(want, abs=1e-9)


def test_a_sliding_histogram_forgets_and_a_cumulative_one_does_not():
    n = sized(2000, 1000)
    p, y = np.full(2 * n, 0.7), np.concatenate([np.zeros(n), np.ones(n)])
    slow, quick = OnlineHistogram(), OnlineHistogram(Sliding(EqualWidth(15), 500))
    slow.run(p, y)
    quick.run(p, y)
    assert slow.predict_one(0.7) == pytest.approx(0.5, abs=1e-3)
    assert quick.predict_one(0.7) > 0.99


# ------------------------------------------------------------------------------ chain and classes


def test_a_chain_is_one_after_the_other():
    p, y = events()
    first, second = OnlinePlatt(), OnlineHistogram()
    want = second.run(first.run(p, y), y)
    assert Chain(OnlinePlatt(), OnlineHistogram()).run(p, y).tolist() == want.tolist()


def class_events(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.ones(3), n)
    labels = (truth.cumsum(1) > rng.random((n, 1))).argmax(1)
    sharp = truth**2
    return sharp / sharp.sum(1, keepdims=True), labels


def test_every_class_has_its_own_and_rows_sum_to_one():
    probs, labels = class_events(sized(2000, 600))
    raw = OnlineMarginal(OnlinePlatt(), 3, renormalise=False)
    out = raw.run(probs, labels)
    for k in range(3):
        want = OnlinePlatt().run(np.ascontiguousarray(probs[:, k]), (labels == k).astype(float))
        assert out[:, k].tolist() == want.tolist()
    marginal = OnlineMarginal(OnlinePlatt(), 3)
    together = marginal.run(probs, labels)
    assert together == pytest.approx(out / out.sum(1, keepdims=True), abs=1e-12)
    one = OnlineMarginal(OnlinePlatt(), 3)
    for i in range(200):
        assert one.predict_one(probs[i]).tolist() == together[i].tolist()
        one.learn_one(probs[i], labels[i])
    restored = from_bytes(one.to_bytes())
    assert restored.run(probs[200:], labels[200:]).tolist() == together[200:].tolist()
    report = marginal.report()
    rows = np.arange(len(labels)), labels
    assert report["log_loss"]["before"] == pytest.approx(-np.log(probs[rows]).mean())
    assert report["log_loss"]["after"] == pytest.approx(-np.log(together[rows]).mean())
    assert report["log_loss"]["after"] < report["log_loss"]["before"]
    assert [c["count"] for c in report["classes"]] == [len(labels)] * 3
    guarded = OnlineMarginal(Guard(), 3)
    guarded.run(probs, labels)
    assert [e["expert"] for e in guarded.report()["classes"][2]["experts"]] == [
        "raw",
        "platt",
        "forgetting",
        "tracking",
    ]


def test_a_guard_for_each_class_does_no_harm():
    rng = np.random.default_rng(3)
    probs = rng.dirichlet(np.ones(3), 2000)
    labels = (probs.cumsum(1) > rng.random((2000, 1))).argmax(1)  # calibrated already
    marginal = OnlineMarginal(Guard(), 3, renormalise=False)
    marginal.run(probs, labels)
    for compared in marginal.compared:
        before, after = compared.losses()
        assert after - before <= np.log(4) + 1e-9


@pytest.mark.parametrize(
    ("probs", "label", "w", "message"),
    [
        ([0.5, 0.5], 0, 1.0, "probs must have 3 classes"),
        ([0.2, 0.3, np.nan], 0, 1.0, r"p must lie in \[0, 1\], got nan"),
        ([0.2, 0.3, 0.5], 3, 1.0, "labels must be class indices in 0..2, got 3"),
        ([0.2, 0.3, 0.5], None, 1.0, "labels must hold numbers"),
        ([0.2, 0.3, 0.5], 0, -1.0, "w must lie in"),
    ],
)
def test_bad_class_events_change_nothing(probs, label, w, message):
    marginal = OnlineMarginal(OnlinePlatt(), 3)
    before = marginal.to_bytes()
    with pytest.raises(ValueError, match=message):
        marginal.learn_one(probs, label, w)
    assert marginal.to_bytes() == before


def test_a_document_of_classes_that_does_not_fit():
    marginal = OnlineMarginal(OnlinePlatt(), 3)
    config, arrays = marginal._state()
    with pytest.raises(ValueError, match="parts are not those"):
        OnlineMarginal._restore({**config, "n_classes": 4}, arrays)
    with pytest.raises(ValueError, match="losses must be"):
        OnlineMarginal._restore(config, {**arrays, "_losses": np.full(3, np.nan)})


def test_refused_events_of_a_window_are_left_out_and_a_note_survives():
    p, y = events(900)
    window = Sliding(UniformMass(15), 1000)
    window.update(np.nan, 1)
    refit = Refit(PlattScaling(), window, every=100)
    refit.run(p, y)
    assert refit.note_ == "" and refit.recalibrator_ is not None
    failing = Refit(streamcal.ScalingBinning(4, split=True), Cumulative(UniformMass(15)), every=10)
    failing.run(p[:40], y[:40])
    assert from_bytes(failing.to_bytes()).note_ == failing.note_ != ""
    config, arrays = refit._state()
    for since in (np.nan, -1, 0.5, 100, True, None):
        with pytest.raises(ValueError, match="does not fit"):
            Refit._restore({**config, "_since": since}, arrays)


def test_what_was_served_is_judged_for_every_class():
    probs, labels = class_events(50)
    marginal = OnlineMarginal(OnlinePlatt(), 3)
    served = [marginal.predict_one(row) for row in probs]
    for row, label, was in zip(probs, labels, served):
        marginal.learn_one(row, label, served=was)
    rows = np.arange(50), labels
    assert marginal.report()["log_loss"]["after"] == pytest.approx(-np.log(np.array(served)[rows]).mean())
    with pytest.raises(ValueError, match="renormalise must be True or False"):
        OnlineMarginal(renormalise="False")
    config, arrays = marginal._state()
    with pytest.raises(ValueError, match="parts are not those"):
        OnlineMarginal._restore({**config, "n_classes": 2**31 - 1}, arrays)
