"""River's drift detectors: the same alarms as streamcal's, in River's order of arguments; what says nothing is counted.

Which test covers which kind of field report (applies_to detector, as far as it concerns the adapters):

    orientation-doc                  test_the_order_is_that_of_metrics
    none-label-counted-negative      test_what_says_nothing_is_counted_and_moves_nothing
"""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from river import base, checks, conf, datasets, drift, naive_bayes

from streamcal.drift import CalibrationDrift, CoverageDrift, TopLabelDrift
from streamcal.river import CalibrationDriftDetector, CoverageDriftDetector, TopLabelDriftDetector

DETECTORS = (CalibrationDriftDetector, TopLabelDriftDetector, CoverageDriftDetector)


def alarms_of(detector, events):
    found = []
    for i, (y, said) in enumerate(events):
        detector.update(y, said)
        if detector.drift_detected:
            found.append(i)
    return found


def binary(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    return p, rng.random(n) < p**2


@pytest.mark.parametrize("pos_val", [True, 1, "yes"])
def test_the_alarms_are_those_of_streamcal(pos_val):
    p, y = binary()
    other = "no" if pos_val == "yes" else not pos_val
    events = [(pos_val if b else other, {pos_val: a, other: 1 - a}) for a, b in zip(p.tolist(), y)]
    detector, own = CalibrationDriftDetector(arl=500, pos_val=pos_val), CalibrationDrift(arl=500)
    found = alarms_of(detector, events)
    assert found == own.update_many(p, y).tolist() and len(found) == detector.n_detections > 3
    assert detector.report() == {**own.report(), "refused": 0} and detector.evidence == own.evidence


def test_top_label_and_coverage_are_those_of_streamcal():
    rng = np.random.default_rng(1)
    probs, label = rng.dirichlet([1, 1, 1], 1000), rng.integers(3, size=1000)
    events = [(int(k), dict(enumerate(row))) for row, k in zip(probs.tolist(), label)]
    own = TopLabelDrift(arl=200).update_many(probs, label).tolist()
    assert alarms_of(TopLabelDriftDetector(arl=200), events) == own and own
    y = rng.normal(0, 2, 1000)
    narrow = [(v, conf.Interval(lower=-1.6, upper=1.6)) for v in y.tolist()]
    own = CoverageDrift(0.9, 200, interval=True).update_many(np.tile([-1.6, 1.6], (1000, 1)), y).tolist()
    assert alarms_of(CoverageDriftDetector(0.9, arl=200), narrow) == own and own
    own = CoverageDrift(0.9, 200).update_many(np.full(1000, 1.3), y).tolist()
    assert alarms_of(CoverageDriftDetector(0.9, 200, interval=False), [(v, {0.9: 1.3}) for v in y]) == own and own


def test_the_order_is_that_of_metrics():
    """Label first: a probability in its place is an error or no label, never a silent swap."""
    detector = CalibrationDriftDetector()
    with pytest.raises(ValueError, match="y_true must be a label like"):
        detector.update(0.7, True)
    with pytest.raises(ValueError, match="y_pred must be an interval"):
        CoverageDriftDetector().update(1.0, 0.5)


@pytest.mark.parametrize(
    ("detector", "event"),
    [
        (CalibrationDriftDetector(), (None, 0.5)),
        (CalibrationDriftDetector(), (True, None)),
        (CalibrationDriftDetector(), (math.nan, {True: 0.5})),
        (CalibrationDriftDetector(), (True, {})),
        (CalibrationDriftDetector(), (True, 1.5)),
        (TopLabelDriftDetector(), (None, {"a": 1.0})),
        (TopLabelDriftDetector(), ("a", {})),
        (CoverageDriftDetector(), (None, (0, 1))),
        (CoverageDriftDetector(), (1.0, None)),
        (CoverageDriftDetector(), (1.0, (2, 1))),
        (CoverageDriftDetector(), (1.0, (math.nan, 1))),
    ],
)
def test_what_says_nothing_is_counted_and_moves_nothing(detector, event):
    detector = detector.clone()
    detector.update(*event)
    assert (detector.refused, detector.detector.n, detector.evidence) == (1, 0, 0.0)
    assert not detector.drift_detected and detector.report()["refused"] == 1


def test_events_are_counted_without_those_that_were_refused():
    """So a caller who keeps only those can cut by the window."""
    p, y = binary()
    whole, holed = CalibrationDriftDetector(arl=2_000), CalibrationDriftDetector(arl=2_000)
    alarms_of(whole, zip(y, p.tolist()))
    alarms_of(holed, [event for b, a in zip(y, p.tolist()) for event in ((b, a), (None, a))])
    assert holed.refused == p.size and holed.history() == whole.history() != []


def test_a_refused_event_after_an_alarm_is_no_alarm():
    detector = CalibrationDriftDetector()
    detector.update(True, 0.0)
    assert detector.drift_detected and detector.n_detections == 1
    detector.update(None, 0.5)
    assert not detector.drift_detected and detector.n_detections == 1


@pytest.mark.parametrize("kind", DETECTORS)
def test_they_are_river_s(kind):
    detector = kind(arl=1_000)
    assert isinstance(detector, base.DriftAndWarningDetector)
    general = (
        "check_repr",
        "check_str",
        "check_pickling",
        "check_clone",
        "check_doc",
        "check_mutable",
        "check_get_params",
    )
    ran = 0
    for check in checks.yield_checks(detector):
        if getattr(check, "__name__", "").startswith(general):
            check(detector.clone())
            ran += 1
    assert ran >= 4 and detector.clone().arl == 1_000


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))])
def test_copies_go_on_alike(copied):
    p, y = binary()
    detector = CalibrationDriftDetector(arl=500)
    alarms_of(detector, zip(y[:1500], p[:1500].tolist()))
    other = copied(detector)
    rest = list(zip(y[1500:], p[1500:].tolist()))
    assert alarms_of(detector, rest) == alarms_of(other, rest) and detector.report() == other.report()


def test_a_model_is_reset_on_alarm():
    """The recipe of the README: overconfident naive Bayes is found, and only it: the case mix may move as it likes."""
    detector, found = CalibrationDriftDetector(arl=5_000), []
    model = naive_bayes.GaussianNB()
    for i, (x, y) in enumerate(datasets.Phishing()):
        detector.update(y, model.predict_proba_one(x))
        if detector.drift_detected:
            said = detector.report()  # a certain prediction that comes out otherwise needs no direction
            found.append((i, "impossible" if said["impossible"] else said["direction"]))
        model.learn_one(x, y)
    assert found and {direction for _, direction in found} <= {"impossible", "too extreme", "too low", "too high"}
    rng, quiet, adwin = np.random.default_rng(0), CalibrationDriftDetector(arl=50_000), drift.ADWIN()
    moved = False
    for i in range(4000):
        p = float(rng.beta(2, 2) if i < 2000 else rng.beta(1, 9))
        y = bool(rng.random() < p)
        quiet.update(y, p)
        adwin.update((y - p) ** 2)
        moved |= adwin.drift_detected
    assert quiet.n_detections == 0 and moved
