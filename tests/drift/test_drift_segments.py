"""Several classes and many segments: the textbook, one by one and many, documents, bad input, what is promised of all of them."""

from __future__ import annotations

import copy
import json
import math
import pickle

import naive_drift as naive
import numpy as np
import pytest
from conftest import some, wider
from hypothesis import given
from hypothesis import strategies as st
from strategies import probabilities, unit

from streamcal import from_bytes, top_label
from streamcal.drift import (
    CalibrationDrift,
    CalibrationTest,
    MarginalDrift,
    SegmentedDrift,
    SegmentedTest,
    TopLabelDrift,
)

NAMES = ["at", "de", "ch"]
events = st.lists(st.tuples(probabilities, unit, st.integers(0, 2)), max_size=50)


def mixed(n, seed=0, drifting=1, change=0, gap=0.2):
    """(p, y, segment): in one of three segments outcomes are ``gap`` rarer than claimed from ``change`` on."""
    rng = np.random.default_rng(seed)
    p, g = rng.uniform(0.25, 0.95, n), rng.integers(0, 3, n)
    q = np.where((g == drifting) & (np.arange(n) >= change), p - gap, p)
    return p, (rng.random(n) < q).astype(float), g


def class_events(n, k, seed=0, power=1.0):
    """Probabilities of k classes and labels drawn from them, raised to ``power``."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(k, 0.8), n)
    true = probs**power / (probs**power).sum(1, keepdims=True)
    return probs, (true.cumsum(1) < rng.random((n, 1))).sum(1).clip(0, k - 1)


# ---- segments


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("tolerance", [0.0, 0.02])
def test_the_evidence_of_segments_is_the_textbooks(share, tolerance):
    p, y, g = mixed(150)
    stream = list(zip(p.tolist(), y.tolist()))
    detector = SegmentedDrift(3, tolerance=tolerance, whole_share=share)
    detector.parts.arl[...] = 1e200
    own = {k: naive.log_esr([e for e, s in zip(stream, g) if s == k], tolerance) for k in range(3)}
    whole, count = naive.log_esr(stream, tolerance), dict.fromkeys(range(3), 0)
    for i, ((a, b), k) in enumerate(zip(stream, g.tolist())):
        detector.update(a, b, k)
        count[k] += 1
        each = [math.exp(own[s][count[s] - 1]) if count[s] else 0.0 for s in range(3)]
        assert detector.evidence == pytest.approx(share * math.exp(whole[i]) + (1 - share) * sum(each), rel=1e-9)
        assert detector.parts.each[k] == pytest.approx(each[k], rel=1e-9)


@given(events, st.sampled_from((1.0, 3.0, 30.0)), st.sampled_from((0.0, 0.5)), st.integers(0, 50))
def test_segments_many_and_one_by_one_are_the_same_to_the_last_bit(stream, arl, share, cut):
    p, y, g = np.array(stream).reshape(-1, 3).T
    one, many, named = (SegmentedDrift(s, arl, whole_share=share) for s in (3, 3, NAMES))
    alarms = []
    for i, (a, b, k) in enumerate(stream):
        one.update(a, b, k)
        named.update(a, b, NAMES[k])
        if one.drift_detected:
            alarms.append(i)
    cut = min(cut, len(stream))
    found = [*many.update_many(p[:cut], y[:cut], g[:cut]), *(cut + many.update_many(p[cut:], y[cut:], g[cut:]))]
    assert found == alarms
    assert one == many
    assert named._buf.tobytes() == one._buf.tobytes()
    again = SegmentedDrift(NAMES, arl, whole_share=share)
    assert again.update_many(p, y, [NAMES[int(k)] for k in g]).tolist() == alarms
    assert again == named


def test_one_segment_is_one_detector():
    p, y, _ = mixed(2000, drifting=0)
    one, other = SegmentedDrift(1, 500, whole_share=0.0), CalibrationDrift(500)
    assert one.update_many(p, y, np.zeros(2000)).tolist() == other.update_many(p, y).tolist()
    assert one.alarms > 0


def test_the_segments_that_drift_are_named():
    p, y, g = mixed(6000, change=3000, gap=0.3)
    detector = SegmentedDrift(NAMES)
    cut = 3000
    assert detector.update_many(p[:cut], y[:cut], [NAMES[k] for k in g[:cut]]).size == 0
    for a, b, k in zip(p[cut:], y[cut:], g[cut:]):
        detector.update(a, b, NAMES[k])
        if detector.drift_detected:
            break
    report = detector.report()
    assert report == detector.history()[-1]
    top = report["segments"][0]
    assert top["segment"] == "de" and top["direction"] == "too high" and top["gap"] < -0.15
    assert sum(s["share"] for s in report["segments"]) + report["whole"]["share"] == pytest.approx(1.0)
    of = np.flatnonzero(g[: report["event"] + 1] == 1)
    assert top["n"] == len(of) and abs(of[-top["last"]] - 3000) < 150
    assert [s["evidence"] for s in report["segments"]] == sorted(
        (s["evidence"] for s in report["segments"]), reverse=True
    )
    json.dumps(report, allow_nan=False)
    assert detector.parts.each[1] == top["evidence"]


@pytest.mark.statistical
@pytest.mark.jit
def test_a_segment_alone_and_all_together_are_found_about_as_soon_as_by_a_detector_of_their_own():
    """20 segments: the delay in a segment's own events, and that of a drift of all in all events; medians of 30."""
    alone, single, together, whole = [], [], [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        p, g = rng.beta(2, 2, 40_000), rng.integers(0, 20, 40_000)
        u = rng.random(p.size)
        odds = (p / (1 - p)) ** 0.5  # the forecasts are twice too sure
        bad = u < odds / (1 + odds)
        one = np.where(g == 3, bad, u < p)
        at = SegmentedDrift(20).update_many(p[:20_000], one[:20_000], g[:20_000])
        alone.append((g[: at[0]] == 3).sum() if at.size else 1000)
        single.append(CalibrationDrift().update_many(p[g == 3], bad[g == 3])[0])
        together.append(SegmentedDrift(20).update_many(p[:3000], bad[:3000], g[:3000])[0])
        whole.append(CalibrationDrift().update_many(p[:3000], bad[:3000])[0])
    assert np.median(alone) <= 1.3 * np.median(single) + 10
    assert np.median(together) <= 1.3 * np.median(whole) + 10


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_run_length_of_segments_is_that_of_all_events_together(share):
    """50 segments of very different size: mean of 600 runs within [.95, 1.35] of arl; standard error 4 %, of a quarter 8."""
    rng, n = np.random.default_rng(1), some(800_000)
    p, g = rng.beta(2, 2, n), np.minimum(rng.geometric(0.1, n) - 1, 49)
    alarms = SegmentedDrift(50, 1000, whole_share=share).update_many(p, rng.random(n) < p, g)
    assert len(alarms) >= some(500)
    assert 0.95 - wider(600) <= np.diff([-1, *alarms]).mean() / 1000 <= 1.35 + wider(600)


@pytest.mark.parametrize("make", [SegmentedDrift, SegmentedTest])
@pytest.mark.parametrize("bad", [3, -1, 0.5, math.nan, None, "at", "xx"])
def test_unknown_segments_and_bad_events_are_refused_and_change_nothing(make, bad):
    for segments, good in ((3, [0, 1]), (NAMES, ["at", "ch"])):
        if segments is NAMES and bad == "at":
            continue
        detector = make(segments)
        detector.update_many([0.2, 0.3], [1, 0], good)
        before = detector.to_bytes()
        with pytest.raises(ValueError, match=r"segment be (in 0..2|one of 'at', 'de', 'ch'), got 0.2, 1"):
            detector.update(0.2, 1, bad)
        with pytest.raises(ValueError, match=r"segment must be (in 0..2|one of).* at index 1"):
            detector.update_many([0.2, 0.3], [1, 0], np.array([good[0], bad], dtype=object))
        for p, y in ((math.nan, 1), (0.5, 2), (1.1, 0), (None, 1), (0.5, "x")):
            with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
                detector.update(p, y, good[0])
            with pytest.raises(ValueError, match="index 1|shape"):
                detector.update_many([0.5, p], [1, y], good)
        with pytest.raises(ValueError, match="segment must have shape"):
            detector.update_many([0.5, 0.5], [1, 1], good[:1])
        assert detector.to_bytes() == before


@pytest.mark.parametrize("segments", [0, -3, 2.5, None, True, [], ["a", "a"], ["a", 1], "abc", 2_000_000])
def test_segments_are_checked_at_construction(segments):
    for make in (SegmentedDrift, SegmentedTest):
        with pytest.raises(ValueError, match="segments must be"):
            make(segments)


def test_whole_share_is_checked():
    for share in (1.0, -0.1, math.nan, None):
        with pytest.raises(ValueError, match="whole_share must lie in"):
            SegmentedDrift(3, whole_share=share)


def test_what_was_impossible_in_a_segment_is_an_alarm_that_names_it():
    detector = SegmentedDrift(NAMES)
    detector.update(0.5, 1, "at")
    detector.update(0.0, 1, "ch")
    report = detector.report()
    assert detector.drift_detected and report["impossible"] and report["segments"][0]["segment"] == "ch"
    json.dumps(report, allow_nan=False)
    detector.update(0.5, 1, "at")
    assert not detector.drift_detected and detector.evidence < 2


@pytest.mark.parametrize("make", [SegmentedDrift, SegmentedTest])
@pytest.mark.parametrize("segments", [3, NAMES], ids=["number", "names"])
def test_restored_segments_go_on_bit_for_bit(make, segments):
    p, y, g = mixed(900, gap=0.25)
    names = g if segments == 3 else [NAMES[k] for k in g]
    whole = make(segments, **({"arl": 200} if make is SegmentedDrift else {}))
    whole.update_many(p[:450], y[:450], names[:450])
    copies = [from_bytes(whole.to_bytes()), copy.deepcopy(whole), pickle.loads(pickle.dumps(whole))]
    whole.update_many(p[450:], y[450:], names[450:])
    for other in copies:
        assert repr(other) == repr(whole) and other != whole
        for a, b, k in zip(p[450:], y[450:], names[450:]):
            other.update(a, b, k)
        assert other == whole and other.report() == whole.report()


def test_segments_that_were_not_seen_are_not_reported():
    detector, test = SegmentedDrift(1000), SegmentedTest(1000)
    assert detector.report()["segments"] == [] and detector.report()["whole"] is None
    for d in (detector, test):
        d.update(0.5, 1, 999)
    assert [s["segment"] for s in detector.report()["segments"]] == [999]
    assert test.rejected == [] and len(test.report()["segments"]) == 10
    json.dumps([detector.report(), test.report()], allow_nan=False)


# ---- the test of segments


def test_each_segment_has_a_test_of_its_own_and_rejections_are_the_textbooks():
    p, y, g = mixed(900, gap=0.25)
    test, alone = SegmentedTest(3, alpha=0.1), [CalibrationTest() for _ in range(3)]
    for a, b, k in zip(p.tolist(), y.tolist(), g.tolist()):
        test.update(a, b, k)
        alone[k].update(a, b)
        assert test.log_evidence.tolist() == [t.log_evidence for t in alone]
        e_values = [math.exp(x) for x in test.log_evidence]
        assert sorted(test.rejected) == naive.e_bh(e_values, 0.1)
    assert test.rejected == [1]
    report = test.report()
    assert report["segments"][0]["segment"] == 1 and report["segments"][0]["rejected"]
    assert report["segments"][0]["gap"] == pytest.approx((y - p)[g == 1].mean(), rel=1e-9)
    assert report["segments"][0]["events"] == (g == 1).sum()


@given(st.lists(st.floats(-20, 60), min_size=1, max_size=12), st.sampled_from((0.05, 0.2, 0.9)))
def test_rejections_are_e_benjamini_hochberg(logs, alpha):
    test = SegmentedTest(len(logs), alpha)
    test.parts.each[...] = logs
    assert sorted(test.rejected) == naive.e_bh([math.exp(x) for x in logs], alpha)


@pytest.mark.statistical
@pytest.mark.jit
def test_false_discoveries_are_at_most_alpha():
    """40 segments, 10 of them 15 points off: mean share of false rejections over 200 streams, each stopped when it looks best."""
    alpha, shares, power = 0.1, [], []
    for seed in range(some(200)):
        rng = np.random.default_rng(seed)
        test, worst = SegmentedTest(40, alpha), 0.0
        for _ in range(10):  # the one who looks picks the worst moment for us
            g = rng.integers(0, 40, 2000)
            p = rng.uniform(0.2, 0.95, 2000)
            test.update_many(p, rng.random(2000) < np.where(g < 10, p - 0.15, p), g)
            found = test.rejected
            worst = max(worst, sum(k >= 10 for k in found) / max(len(found), 1))
        shares.append(worst)
        power.append(sum(k < 10 for k in found) / 10)
    assert np.mean(shares) <= alpha + np.std(shares) * wider(200)
    assert np.mean(power) > 0.5


# ---- classes


@pytest.mark.parametrize("tolerance", [0.0, 0.02])
def test_the_evidence_of_classes_is_the_mean_of_the_textbooks(tolerance):
    probs, labels = class_events(150, 4)
    want = [
        naive.log_esr([(a, float(b == k)) for a, b in zip(probs[:, k].tolist(), labels)], tolerance) for k in range(4)
    ]
    detector = MarginalDrift(4, tolerance=tolerance)
    detector.parts.arl[...] = 1e200
    for i, (row, label) in enumerate(zip(probs, labels)):
        detector.update(row, label)
        assert detector.evidence == pytest.approx(np.mean([math.exp(w[i]) for w in want]), rel=1e-9)


def test_the_top_label_is_a_claim_like_any_other():
    probs, labels = class_events(3000, 5, power=0.6)
    one, many, plain = TopLabelDrift(), TopLabelDrift(), CalibrationDrift()
    conf, right = top_label(probs, labels)
    alarms = plain.update_many(conf, right)
    assert alarms.size and many.update_many(probs, labels).tolist() == alarms.tolist()
    for row, label in zip(probs.tolist(), labels.tolist()):
        one.update(row, label)
    assert one == many and many._buf.tobytes() == plain._buf.tobytes()
    assert many.report() == plain.report() and many != plain
    assert TopLabelDrift.from_bytes(many.to_bytes()) == many


@pytest.mark.parametrize("make", [lambda: MarginalDrift(5, 300), lambda: TopLabelDrift(300)], ids=["marginal", "top"])
def test_classes_many_and_one_by_one_are_the_same_to_the_last_bit(make):
    probs, labels = class_events(400, 5, power=0.5)
    one, many, halves = make(), make(), make()
    alarms = []
    for i, (row, label) in enumerate(zip(probs, labels)):
        one.update(row, int(label))
        if one.drift_detected:
            alarms.append(i)
    assert many.update_many(probs, labels).tolist() == alarms
    assert [*halves.update_many(probs[:99], labels[:99]), *(99 + halves.update_many(probs[99:], labels[99:]))] == alarms
    assert len(alarms) > 1 and one == many == halves
    for other in (from_bytes(one.to_bytes()), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert other == one and other.report() == one.report()


@pytest.mark.parametrize("make", [lambda: MarginalDrift(3), lambda: TopLabelDrift()], ids=["marginal", "top"])
@pytest.mark.parametrize(
    ("row", "label"),
    [
        ([0.2, 0.3, 0.5], 3),
        ([0.2, 0.3, 0.5], -1),
        ([0.2, 0.3, 0.5], 0.5),
        ([0.2, 0.3, 0.5], math.nan),
        ([0.2, 0.3, 0.5], None),
        ([0.2, 0.3, 1.1], 0),
        ([0.2, math.nan, 0.5], 0),
        ([0.2, None, 0.5], 0),
        (0.5, 0),
    ],
    ids=str,
)
def test_bad_rows_and_labels_are_refused_and_change_nothing(make, row, label):
    detector = make()
    detector.update([0.1, 0.1, 0.8], 2)
    before = detector.to_bytes()
    with pytest.raises(ValueError, match="must"):
        detector.update(row, label)
    with pytest.raises(ValueError, match="must"):
        detector.update_many(
            [[0.2, 0.3, 0.5], [0.1, 0.9, 0.0] if row == 0.5 else row], [0, label] if row != 0.5 else [0]
        )
    assert detector.to_bytes() == before


def test_the_class_that_drifts_is_named():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet([2, 2, 2, 2], 6000)
    true = probs.copy()
    true[3000:, 2] -= 0.6 * probs[3000:, 2]
    true[3000:, 3] += 0.6 * probs[3000:, 2]
    labels = (true.cumsum(1) < rng.random((6000, 1))).sum(1).clip(0, 3)
    detector = MarginalDrift(4)
    assert detector.update_many(probs[:3000], labels[:3000]).size == 0
    for row, label in zip(probs[3000:], labels[3000:]):
        detector.update(row, label)
        if detector.drift_detected:
            break
    report = detector.report()
    assert report["class"] in (2, 3) and {c["class"] for c in report["classes"][:2]} == {2, 3}
    assert {c["class"]: c["direction"] for c in report["classes"]}[2] == "too high"
    assert abs(report["onset"] - 3000) < 100 and report["window"] == [report["onset"], report["event"] + 1]
    json.dumps(report, allow_nan=False)
    assert MarginalDrift(4).report()["class"] is None and MarginalDrift(4).update_many([], []).size == 0


@pytest.mark.statistical
@pytest.mark.jit
def test_the_run_length_of_classes_is_what_was_asked_for():
    """Mean of 500 runs within [.95, 1.35] of arl; standard error 5 % (a quarter: 10). The classes of an event are dependent."""
    probs, labels = class_events(some(600_000), 5, seed=3)
    for detector in (MarginalDrift(5, 1000), TopLabelDrift(1000)):
        alarms = detector.update_many(probs, labels)
        assert len(alarms) > some(400)
        assert 0.95 - wider(500) <= np.diff([-1, *alarms]).mean() / 1000 <= 1.35 + wider(500)


def test_n_classes_is_checked():
    for n in (1, 0, 2.5, None, 10**6):
        with pytest.raises(ValueError, match="n_classes must be"):
            MarginalDrift(n)


def test_masked_values_are_no_events():
    hidden = np.ma.array([0.2, 0.8], mask=[True, False])
    for detector in (MarginalDrift(2), TopLabelDrift()):
        with pytest.raises(ValueError):
            detector.update(hidden, 1)
        assert detector.n == 0
    for detector in (SegmentedDrift(2), SegmentedTest(2)):
        with pytest.raises(ValueError, match="segment must be"):
            detector.update_many([0.5, 0.5], [1, 0], np.ma.array([0, 1], mask=[True, False]))
        assert detector.n == 0


@pytest.mark.parametrize("wrong", [3, math.nan, True, None])
def test_a_name_is_a_text_in_batches_too(wrong):
    names = ["a", "3", "nan", "True", "None"]
    for detector in (SegmentedDrift(names), SegmentedTest(names)):
        with pytest.raises(ValueError, match="segment"):
            detector.update_many([0.5, 0.5], [1, 0], ["a", wrong])
        with pytest.raises(ValueError, match="segment"):
            detector.update(0.5, 1, wrong)
        detector.update_many([0.5, 0.5], [1, 0], np.array(["a", "3"]))
        assert detector.n == 2


def test_no_events_change_nothing():
    for detector, empty in (
        (TopLabelDrift(), (np.empty((0, 3)), [])),
        (MarginalDrift(2), (np.empty((0, 2)), [])),
        (SegmentedDrift(2), ([], [], [])),
    ):
        assert detector.update_many(*empty).tolist() == [] and detector.n == 0
