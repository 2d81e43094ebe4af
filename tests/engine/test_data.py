"""Published figures on real predictions; every test skips when the shared data is absent."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from streamcal import (
    Cumulative,
    EqualWidth,
    LogOdds,
    Marginal,
    Sliding,
    TopLabel,
    UniformMass,
    ece,
    l2_ce,
    marginal_ce,
    top_label,
)


def test_cifar_top_label_ece(cifar):
    conf, correct = top_label(*cifar)
    assert ece(conf, correct, 15) == pytest.approx(0.039780066857, abs=1e-9)


def test_cifar_top_label_window(cifar):
    w = Cumulative(EqualWidth(15), claim=TopLabel())
    w.update_many(*cifar)
    assert w.get("ece") == pytest.approx(0.039780066857, abs=1e-9)


def test_cifar_marginal_ece(cifar):
    probs, labels = cifar
    mean = np.mean([ece(probs[:, k], labels == k, 15) for k in range(10)])
    assert mean == pytest.approx(0.008836746006, abs=1e-9)
    assert marginal_ce(probs, labels, norm=1, binning=EqualWidth(15)) == pytest.approx(0.008836746006, abs=1e-9)
    w = Cumulative(EqualWidth(15), claim=Marginal(10))
    w.update_many(probs, labels)
    assert w.get("ece").mean() == pytest.approx(0.008836746006, abs=1e-9)


def test_cifar_debiased_l2(cifar):
    conf, correct = top_label(*cifar)
    got = l2_ce(conf, correct, binning=UniformMass(15), debias=True)
    assert got == pytest.approx(0.077682035652, abs=1e-9)


def test_cifar_float32_is_read_as_the_numbers_it_holds(cifar):
    probs, labels = cifar
    conf, correct = top_label(probs.astype(np.float32), labels.astype(np.uint8))
    assert ece(conf, correct, 15) == pytest.approx(0.039780066857, abs=1e-9)


@pytest.mark.parametrize("binning", [EqualWidth(15), UniformMass(15), LogOdds(15)])
def test_nba_is_biased(games, binning):
    w = Cumulative(binning)
    w.update_many(*games["nba"])
    report = w.report()
    low, _ = report["metrics"]["k2_debiased"]["interval"]
    assert low > 0
    assert report["metrics"]["pa_ratio"]["value"] > 1
    assert report["metrics"]["ece"]["value"] > report["metrics"]["ece"]["null"][1]


@pytest.mark.parametrize("binning", [EqualWidth(15), UniformMass(15), LogOdds(15)])
def test_mlb_is_not_distinguishable_from_calibrated(games, binning):
    w = Cumulative(binning)
    w.update_many(*games["mlb"])
    low, high = w.report()["metrics"]["k2_debiased"]["interval"]
    assert low <= 0 <= high


def test_a_sliding_window_over_the_season_is_its_last_games(games):
    p, y = games["nba"]
    w = Sliding(EqualWidth(15), 1000)
    for a, b in zip(p[:3000].tolist(), y[:3000].tolist()):
        w.update(a, b)
    fresh = Cumulative(EqualWidth(15))
    fresh.update_many(p[2000:3000], y[2000:3000])
    np.testing.assert_allclose(w.cells, fresh.cells, rtol=1e-12)


def test_soccer_draws_are_hardly_ever_the_top_label(shared_file):
    """The keys of one window are the classes: the means of each are those of its own column."""
    with np.load(shared_file("data/soccer_odds.npz")) as f:
        probs, labels = f["probs"], f["labels"].astype(int)
    w = Cumulative(EqualWidth(15), claim=Marginal(3))
    w.update_many(probs, labels)
    np.testing.assert_allclose(w.get("coverage"), [np.mean(labels == k) for k in range(3)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = marginal_ce(probs, labels, norm=1, binning=EqualWidth(15))
    assert w.get("ece").mean() == pytest.approx(got, abs=1e-12)
