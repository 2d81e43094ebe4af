"""Recalibrators of the reference implementation that goes with Kumar, Liang, Ma (2019).

What they compute, found from their numbers: ``HistogramCalibrator`` is uniform-mass binning with edges at midpoints and an
empty bin at its midpoint; ``PlattBinnerCalibrator`` is Platt scaling on hard targets, then uniform-mass bins of its outputs
with the mean output as level, all on the same data. Its optimiser stops early, so its values (IMPRECISE) are up to 5e-6 off
the optimum: ours are judged by the exact ones in ``extra``. Two WRONG cases: nan indexes past the last bin there, and a
sample without the first or last class fails an assertion.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import shared

from streamcal import k2
from streamcal.logistic import sigmoid
from streamcal.recalibrate import Marginal, TopLabel
from streamcal.recalibrate.histogram import HistogramBinning
from streamcal.recalibrate.scaling_binning import ScalingBinning

pytestmark = pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")


def read_cases() -> list[dict]:
    path = shared() / "cases" / "paper_cases.json"
    return json.loads(path.read_text())["cases"] if path.is_file() else []


def cases(function: str, verdict: str, on_data: bool = False):
    found = [
        pytest.param(c, id=c["id"])
        for c in read_cases()
        if (c["function"], c["verdict"], isinstance(c["inputs"], str)) == (function, verdict, on_data)
    ]
    return found or [pytest.param(None, marks=pytest.mark.skip(reason="paper_cases.json is not here"))]


def arrays(case: dict) -> list[np.ndarray]:
    return [np.array(case["inputs"][k], dtype=float) for k in ("probs", "labels", "query") if k in case["inputs"]]


def column(case: dict, cifar) -> tuple[np.ndarray, np.ndarray]:
    probs, labels = cifar
    assert case["args"]["train_rows"] == "0:1000"
    return probs[:, case["args"]["column"]], (labels == case["args"]["column"]).astype(float)


def summary(out: np.ndarray, y: np.ndarray) -> list[float]:
    return [out.mean(), ((out - y) ** 2).mean(), k2(out, y), k2(out, y, debias=True)]


@pytest.mark.parametrize("case", cases("HistogramCalibrator", "OK"))
def test_histogram(case):
    p, y, query = arrays(case)
    fitted = HistogramBinning(case["args"]["num_bins"]).fit(p, y)
    np.testing.assert_allclose(fitted.predict(query), case["expected"], rtol=0, atol=1e-12)
    inner = fitted.edges_[1:-1]
    np.testing.assert_allclose(inner, case["extra"]["edges"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(fitted.levels_, case["extra"]["means"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", cases("HistogramCalibrator", "WRONG"))
def test_histogram_refuses_nan(case):
    fitted = HistogramBinning(2).fit(case["inputs"]["probs"], case["inputs"]["labels"])
    with pytest.raises(ValueError, match="p must"):
        fitted.predict([float(q) for q in case["inputs"]["query"]])
    assert fitted.predict(1.0000001) == 1.0  # a float32 sum: clipped


@pytest.mark.parametrize("case", cases("HistogramCalibrator", "OK", on_data=True))
def test_histogram_on_cifar(case, cifar):
    p, y = column(case, cifar)
    fitted = HistogramBinning(case["args"]["num_bins"]).fit(p[:1000], y[:1000])
    np.testing.assert_allclose(fitted.edges_[1:-1], case["extra"]["edges"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(fitted.levels_, case["extra"]["means"], rtol=0, atol=1e-12)
    out = fitted.predict(p)
    np.testing.assert_allclose(out[:10], case["extra"]["first10"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(summary(out, y), case["expected"], rtol=0, atol=case["tol"])


@pytest.mark.parametrize("case", cases("PlattBinnerCalibrator", "IMPRECISE"))
def test_scaling_binning(case):
    p, y, query = arrays(case)
    fitted = ScalingBinning(case["args"]["num_bins"], targets="hard").fit(p, y)
    exact = case["extra"]
    assert (fitted.slope_, fitted.intercept_) == pytest.approx((exact["a"], exact["b"]), abs=1e-9)
    np.testing.assert_allclose(sigmoid(fitted.edges_[1:-1]), exact["edges_exact"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(fitted.levels_, exact["levels_exact"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(fitted.predict(query), exact["exact_own"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(fitted.predict(query), case["expected"], rtol=0, atol=case["tol"])


@pytest.mark.parametrize("case", cases("PlattBinnerCalibrator", "IMPRECISE", on_data=True))
def test_scaling_binning_on_cifar(case, cifar):
    p, y = column(case, cifar)
    fitted = ScalingBinning(case["args"]["num_bins"], targets="hard").fit(p[:1000], y[:1000])
    exact = case["extra"]
    assert (fitted.slope_, fitted.intercept_) == pytest.approx((exact["exact_a"], exact["exact_b"]), abs=1e-7)
    out = fitted.predict(p)
    np.testing.assert_allclose(out[:10], exact["exact_first10"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(summary(out, y)[:2], exact["exact_summary"], rtol=0, atol=1e-8)
    np.testing.assert_allclose(summary(out, y), case["expected"], rtol=0, atol=case["tol"])
    error = fitted.calibration_error(p, y)
    assert (error.plug_in, error.debiased) == pytest.approx(tuple(case["expected"][2:]), abs=1e-5)


@pytest.mark.parametrize("case", cases("HistogramTopCalibrator", "OK"))
def test_top_label(case):
    probs, labels, query = arrays(case)
    fitted = TopLabel(HistogramBinning(case["args"]["num_bins"])).fit(probs, labels)
    np.testing.assert_allclose(fitted.predict(query), case["expected"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", cases("HistogramMarginalCalibrator", "WRONG"))
def test_marginal_without_a_class_is_right_here(case):
    probs, labels = arrays(case)
    fitted = Marginal(HistogramBinning(case["args"]["num_bins"]), renormalise=False).fit(probs, labels)
    want = [HistogramBinning(2).fit(probs[:, k], labels == k).predict(probs[:, k]) for k in range(2)]
    np.testing.assert_allclose(fitted.predict(probs), np.stack([*want, probs[:, 2]], 1), rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------ copied: no file needed

P24 = [
    *(0.298, 0.759, 0.619, 0.949, 0.5, 0.964, 0.473, 0.308, 0.861, 0.027, 0.853, 0.905),
    *(0.571, 0.044, 0.934, 0.99, 0.454, 0.659, 0.895, 0.593, 0.414, 0.694, 0.848, 0.057),
]
Y24 = [0, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1]
TIED = [0.1] * 5 + [0.3] * 7 + [0.5] * 6 + [0.7] * 5 + [0.9] * 7
TIED_Y = [0] * 11 + [1] * 15 + [0] + [1] * 3


def test_copied_histogram():
    fitted = HistogramBinning(4).fit(P24, Y24)
    assert fitted.edges_ == pytest.approx([0.0, 0.434, 0.639, 0.878, 1.0], abs=1e-12)
    assert fitted.levels_ == pytest.approx([1 / 2, 5 / 6, 1, 5 / 6], abs=1e-12)


def test_copied_histogram_with_ties_and_an_empty_bin():
    fitted = HistogramBinning(5).fit(TIED, TIED_Y)
    assert fitted.edges_ == pytest.approx([0.0, 0.3, 0.4, 0.6, 0.9, 1.0], abs=1e-12)
    assert fitted.levels_ == pytest.approx([1 / 12, 0.35, 1.0, 11 / 12, 0.95], abs=1e-12)


def test_copied_scaling_binning_with_ties():
    """An edge is the midpoint of two outputs, and so is the level of an empty bin: 0.41488 between 0.32785 and 0.50191."""
    fitted = ScalingBinning(20, targets="hard").fit(TIED, TIED_Y)
    assert (fitted.slope_, fitted.intercept_) == pytest.approx((1.7151747742014818, 0.7353313602524287), abs=1e-9)
    edges = [0.04594427607, 0.32784841055, 0.50191126068, 0.67597411083, 0.78759739430, 0.89922067770, 0.94413831689]
    assert sigmoid(fitted.edges_[1:-1]) == pytest.approx([*edges, 0.98905595602], abs=1e-9)
    levels = [0.04594427607, 0.32784841055, 0.41487983560, 0.67597411083, 0.73178575256, 0.89922067770, 0.92167949733]
    assert fitted.levels_ == pytest.approx([*levels, 0.98905595602, 0.99452797801], abs=1e-9)
