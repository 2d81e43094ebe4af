"""CalibrationDrift and CalibrationTest: the textbook, one by one and many, documents, bad input, reports."""

from __future__ import annotations

import copy
import json
import math
import pickle

import naive_drift as naive
import numpy as np
import pytest
from conftest import sized
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from strategies import probabilities, unit

from streamcal import from_bytes
from streamcal.drift import Bets, CalibrationDrift, CalibrationTest
from streamcal.drift.detector import REMEMBERED
from streamcal.drift.onset import bets_now
from streamcal.drift.shiryaev_roberts import A1, A2, BEGAN, COPIES, FINEST, BufferParts, M, R, exponentials, slot_of

CHOICES = [
    {},
    {"tolerance": 0.03},
    {"bets": Bets(slopes=(0.5, 4.0), shifts=(), stakes=(-1.0, 0.3, 1.0), bins=3)},
    {"bets": Bets(line_share=1.0, stakes=(), bins=1)},
    {"bets": Bets(line_share=0.0, slopes=(), shifts=(), bins=7), "tolerance": 0.2},
]
choices = pytest.mark.parametrize("arguments", CHOICES, ids=lambda a: repr(a)[:50])
events = st.lists(st.tuples(probabilities, unit), max_size=60)
tolerances = st.sampled_from((0.0, 0.02, 0.3))


def which(arguments):
    """The same bets for the textbook."""
    bets = arguments.get("bets", Bets())
    names = ("slopes", "shifts", "stakes", "bins", "line_share")
    return {"tolerance": arguments.get("tolerance", 0.0), **{n: getattr(bets, n) for n in names}}


def overconfident(n=3000, change=2000, slope=2.0, shift=0.0, seed=0):
    """Forecasts that are right until ``change`` and then sigmoid(slope * logit + shift) of the right ones."""
    rng = np.random.default_rng(seed)
    q = rng.beta(2, 2, n)
    y = (rng.random(n) < q).astype(float)
    z = np.log(q / (1 - q))
    return np.where(np.arange(n) < change, q, 1 / (1 + np.exp(-slope * z - shift))), y


def hard(n=150, seed=0):
    """Forecasts of all sizes, also 0, 1 and nearly so, with outcomes that do not go with them; no certain one fails."""
    rng = np.random.default_rng(seed)
    p = rng.choice([0.0, 1.0, 1e-300, 1e-12, 1e-9, 1 - 1e-9, 1 - 2**-53, 0.1, 0.3, 0.5, 1 / 3, 0.7, 0.9, 0.95], n)
    y = np.where((p == 0.0) | (p == 1.0), p, rng.choice([0.0, 1.0, 0.25], n))
    return p, np.where(p < 1e-8, 0.0, np.where(p > 1 - 1e-8, 1.0, y))


def one_by_one(detector, p, y):
    alarms = []
    for i, (a, b) in enumerate(zip(np.asarray(p).tolist(), np.asarray(y).tolist())):
        detector.update(a, b)
        if detector.drift_detected:
            alarms.append(i)
    return alarms


def one_by_one_until_alarm(detector, p, y):
    for i, (a, b) in enumerate(zip(p.tolist(), y.tolist())):
        detector.update(a, b)
        if detector.drift_detected:
            return i
    raise AssertionError("no alarm")


def patient(**arguments):
    """A detector that does not alarm, unless something impossible happens."""
    detector = CalibrationDrift(**arguments)
    detector.parts.arl[...] = 1e200
    return detector


# ---- the textbook


@choices
@pytest.mark.parametrize("stream", [overconfident(200, 50), hard(100)], ids=["too extreme", "hard"])
def test_the_evidence_is_the_textbooks(arguments, stream):
    p, y = stream
    want = naive.log_esr(list(zip(p.tolist(), y.tolist())), **which(arguments))
    detector = patient(**arguments)
    for a, b, log_evidence in zip(p.tolist(), y.tolist(), want):
        detector.update(a, b)
        assert naive.log(detector.evidence) == pytest.approx(log_evidence, abs=1e-9)


@given(events, tolerances)
def test_the_evidence_is_the_textbooks_on_anything(stream, tolerance):
    want = naive.log_esr(stream, tolerance)
    detector = patient(tolerance=tolerance)
    for (p, y), log_evidence in zip(stream, want):
        detector.update(p, y)
        if detector.drift_detected:
            assert log_evidence >= math.log(1e200)
            return
        assert naive.log(detector.evidence) == pytest.approx(log_evidence, abs=1e-9)


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_alarms_and_new_runs_are_the_textbooks(tolerance):
    p, y = overconfident(500, 100, slope=4.0)
    detector = CalibrationDrift(arl=150, tolerance=tolerance)
    alarms = detector.update_many(p, y)
    assert alarms.tolist() == naive.run(list(zip(p.tolist(), y.tolist())), 150, tolerance)
    assert len(alarms) > 2
    assert detector.alarms == len(alarms)
    assert detector.n == 500


def test_bins_that_are_touched_late_are_as_if_touched_at_every_event():
    """The plain way: all bets of all bins multiplied at every event, those of other bins by 1; moments of starts, not of ages."""
    (p, y), bins, stakes = overconfident(3000, 1000, 1.3), 10, naive.STAKES
    detector = patient()
    s, full = np.array(stakes), np.zeros((5, bins, 4))  # R, M, BEGAN, S1, S2
    for t, (a, b) in enumerate(zip(p.tolist(), y.tolist()), 1):
        x = np.ones((bins, 4))
        x[naive.bin_of(a, bins)] = 1 + s * (b - a)
        begins = full[1] <= 1.0
        full[2] = np.where(begins, t, full[2])
        full[1] = np.where(begins, 1.0, full[1]) * x
        for i, start in ((0, 1.0), (3, t), (4, t * t)):
            full[i] = (full[i] + start) * x
    detector.update_many(p, y)
    bets = bets_now(detector, detector.stream())
    own = bets.bin >= 0
    r, m, began, a1, a2 = bets.moments[:, own]
    for i, lazy in enumerate((r, m, began, t * r - a1, t * t * r - 2 * t * a1 + a2)):
        alive = np.ones(40, bool) if i in (0, 3, 4) else full[1].ravel() > 1.0  # a start that has lost is forgotten
        assert_allclose(lazy[alive], full[i].ravel()[alive], rtol=1e-10)
    assert alive.sum() > 10
    lines = float((bets.weight * bets.moments[R])[~own].sum())
    assert detector.evidence == pytest.approx(lines + full[0].sum() * 0.3 / 40, rel=1e-10)


def test_each_bets_best_start_and_moments_are_those_of_all_starts():
    p, y = overconfident(300, 150, 2.0)
    stream = list(zip(p.tolist(), y.tolist()))
    detector = patient()
    detector.update_many(p, y)
    bets = bets_now(detector, detector.stream())
    for k, (weight, kind, numbers) in enumerate(naive.bets()):
        logs = np.array(naive.products_of_starts(stream, kind, numbers))
        ages, stakes = np.arange(299, -1, -1), np.exp(logs)
        assert bets.weight[k] == pytest.approx(weight, rel=1e-12)
        assert_allclose(bets.moments[[R, A1, A2], k], [stakes @ ages**i for i in range(3)], rtol=1e-9)
        if logs.max() > 1e-9:
            assert math.log(bets.moments[M, k]) == pytest.approx(logs.max(), abs=1e-9)
            assert logs[int(bets.moments[BEGAN, k]) - 1] == pytest.approx(logs.max(), abs=1e-9)
        else:
            assert bets.moments[M, k] <= 1 + 1e-9


@choices
@pytest.mark.parametrize("stream", [overconfident(200, 50), hard(100)], ids=["too extreme", "hard"])
def test_the_wealth_is_the_textbooks(arguments, stream):
    if not Bets() or arguments.get("bets", Bets()).line_share in (0.0, 1.0):
        arguments = {**arguments, "bets": Bets(line_share=0.25)}
    p, y = stream
    want = naive.log_wealth(list(zip(p.tolist(), y.tolist())), **which(arguments))
    test = CalibrationTest(**arguments)
    for a, b, log_wealth in zip(p.tolist(), y.tolist(), want):
        test.update(a, b)
        assert test.log_evidence == pytest.approx(log_wealth, abs=1e-9)


def test_a_bet_that_fell_behind_by_a_thousand_orders_of_magnitude_comes_back():
    """Linear numbers would have lost it: 20,000 events for one side, then as many against it."""
    n = sized(20_000, 2_000)
    y = np.concatenate([np.tile([1.0, 0.0, 1.0], n // 3), np.tile([0.0, 1.0, 0.0], n // 3)])
    test = CalibrationTest(bets=Bets(slopes=(), shifts=(-0.2, 1.0, 3.0), bins=1, line_share=0.999))
    test.update_many(np.full(y.size, 0.5), y)
    lost = math.log(2 * naive.sigmoid(3.0)), math.log(2 * naive.sigmoid(-3.0))
    ones = int(y.sum())
    alone = [
        ones * math.log(2 * naive.sigmoid(b)) + (y.size - ones) * math.log(2 * naive.sigmoid(-b))
        for b in (-0.2, 1.0, 3.0)
    ]
    assert min(alone) < -n / 2 and lost[0] > 0 > lost[1]
    bins = [ones * math.log1p(s / 2) + (y.size - ones) * math.log1p(-s / 2) - math.log(4) for s in naive.STAKES]
    want = naive.log_sum([naive.log_sum([a + math.log(0.333) for a in alone]), naive.log_sum(bins) + math.log(0.001)])
    assert test.log_evidence == pytest.approx(want, abs=1e-6)


# ---- one by one and many


@given(events, tolerances, st.sampled_from((1.0, 2.0, 5.0, 40.0)), st.integers(0, 60))
def test_many_and_one_by_one_are_the_same_to_the_last_bit(stream, tolerance, arl, cut):
    p, y = np.array(stream).reshape(-1, 2).T
    one, many, halves = (CalibrationDrift(arl=arl, tolerance=tolerance) for _ in range(3))
    alarms = one_by_one(one, p, y)
    assert many.update_many(p, y).tolist() == alarms
    cut = min(cut, len(p))
    first, second = halves.update_many(p[:cut], y[:cut]), halves.update_many(p[cut:], y[cut:])
    assert [*first.tolist(), *(cut + second).tolist()] == alarms
    assert one == many == halves
    assert one.to_bytes() == many.to_bytes()
    assert (one.n, one.alarms, len(one.history())) == (len(p), len(alarms), min(len(alarms), REMEMBERED))


@given(events, tolerances)
def test_the_test_takes_many_as_one_by_one(stream, tolerance):
    p, y = np.array(stream).reshape(-1, 2).T
    one, many = CalibrationTest(tolerance=tolerance), CalibrationTest(tolerance=tolerance)
    for a, b in stream:
        one.update(a, b)
    many.update_many(p, y)
    assert one == many
    assert one.n == len(stream)


@given(events)
def test_p_values_never_rise_and_are_those_of_the_largest_evidence(stream):
    test, top = CalibrationTest(alpha=0.3), 0.0
    for p, y in stream:
        test.update(p, y)
        top = max(top, test.log_evidence)
        assert test.p_value == math.exp(-top)
        assert test.rejected == (top >= -math.log(0.3))


def test_update_many_returns_indices():
    detector = CalibrationDrift(arl=10)
    none = detector.update_many([], [])
    assert none.dtype == np.int64 and none.shape == (0,) and detector.n == 0
    alarms = detector.update_many(np.full(100, 0.9), np.zeros(100))
    assert alarms.dtype == np.int64 and len(alarms) > 5
    assert CalibrationDrift().update_many([0.5], [True]).tolist() == []


# ---- documents


@pytest.mark.parametrize("make", [CalibrationDrift, CalibrationTest])
@pytest.mark.parametrize(
    ("arguments", "cut"), list(zip([*CHOICES, {}], [0, 1, 15, 16, 17, 301])), ids=lambda a: repr(a)[:50]
)
def test_a_restored_one_goes_on_bit_for_bit(arguments, make, cut):
    p, y = overconfident(500, 150, 4.0)
    given_arl = {"arl": 100, "warning_arl": 50} if make is CalibrationDrift else {"alpha": 0.01}
    whole = make(**given_arl, **arguments)
    whole.update_many(p[:cut], y[:cut])
    copies = [from_bytes(whole.to_bytes()), make.from_bytes(whole.to_bytes()), copy.deepcopy(whole)]
    copies.append(pickle.loads(pickle.dumps(whole)))
    fresh = copies[0].to_bytes()
    whole.update_many(p[cut:], y[cut:])
    assert copies[0].to_bytes() == fresh, "a copy shares nothing"
    for other in copies:
        assert type(other) is make and repr(other) == repr(whole)
        assert (other == whole) == (cut == 500)
        one_by_one(other, p[cut:], y[cut:]) if make is CalibrationDrift else other.update_many(p[cut:], y[cut:])
        assert other == whole
        assert other.report() == whole.report()


def test_a_document_in_the_middle_of_an_alarm_still_says_so():
    detector = CalibrationDrift(arl=50)
    while not detector.drift_detected:
        detector.update(0.9, 0)
    other = from_bytes(detector.to_bytes())
    assert other.drift_detected and other.report() == detector.report() == other.history()[-1]
    for d in (detector, other):
        d.update(0.5, 1)
    assert other == detector and not other.drift_detected and other.report()["run"] == 1


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("n", -1.0),
        ("n", 0.5),
        ("alarms", 1e9),
        ("status", 7.0),
        ("arl", 3.0),
        ("kept", math.nan),
        ("bets", 3.0),
        ("streams", math.nan),
    ],
)
def test_documents_of_what_cannot_be_are_refused(part, value):
    detector = CalibrationDrift(arl=50)
    detector.update_many([0.5] * 30, [1, 0] * 15)
    config, arrays = copy.deepcopy(detector)._state()
    getattr(detector.parts, part)[...] = value
    with pytest.raises(ValueError, match="does not fit"):
        CalibrationDrift.from_bytes(detector.to_bytes())
    with pytest.raises(ValueError, match="does not fit"):
        CalibrationDrift._restore(config, {**arrays, "_buf": arrays["_buf"][:-1]})
    with pytest.raises(ValueError, match="history must be"):
        CalibrationDrift._restore({**config, "_remembered": [{}] * 30}, arrays)


def test_another_kind_is_refused_and_not_equal():
    with pytest.raises(ValueError, match="expected a CalibrationTest"):
        CalibrationTest.from_bytes(CalibrationDrift().to_bytes())
    assert CalibrationDrift() != CalibrationTest() and CalibrationDrift() != 3
    assert CalibrationDrift() == CalibrationDrift() != CalibrationDrift(arl=100)


def test_repr_says_what_is_not_the_default():
    assert repr(CalibrationDrift()) == "CalibrationDrift()"
    assert repr(CalibrationDrift(500, 0.02, warning_arl=40)) == (
        "CalibrationDrift(arl=500.0, tolerance=0.02, warning_arl=40.0)"
    )
    assert "bins=5" in repr(CalibrationTest(bets=Bets(bins=5)))


def test_the_state_is_small_and_does_not_grow():
    detector, rng = CalibrationDrift(), np.random.default_rng(0)
    assert detector._buf.nbytes < 16_000
    p = rng.beta(2, 2, 1000)
    detector.update_many(p, rng.random(1000) < p)
    size = len(detector.to_bytes())
    assert size < 16_000
    detector.update_many(p, rng.random(1000) < p)
    assert abs(len(detector.to_bytes()) - size) < 10  # the digits of its checksum
    for _ in range(4):
        detector.update_many(np.full(1000, 0.9), np.tile([0, 1], 500))
    assert detector.alarms > REMEMBERED == len(detector.history())
    assert len(detector.to_bytes()) < 16_000 + REMEMBERED * 3000
    assert len(CalibrationTest().to_bytes()) < 4_000


# ---- what is refused


BAD = [math.nan, math.inf, -math.inf, -0.1, 1.1, -2e-6, 1.000002, None, "high", [0.5], 1j]


@pytest.mark.parametrize("make", [CalibrationDrift, CalibrationTest])
@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_bad_events_are_named_and_change_nothing(make, bad):
    detector = make()
    detector.update_many([0.3, 0.4], [1, 0])
    before = detector.to_bytes()
    for event in ((bad, 1.0), (0.5, bad)):
        with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got"):
            detector.update(*event)
        assert detector.to_bytes() == before
    if isinstance(bad, list | complex):
        return
    for p, y in (([0.1, 0.2, bad], [1, 0, 1]), ([0.1, 0.2, 0.3], [1, 0, bad])):
        with pytest.raises(ValueError, match="at index 2"):
            detector.update_many(p, y)
        assert detector.to_bytes() == before


@pytest.mark.parametrize("make", [CalibrationDrift, CalibrationTest])
def test_outcomes_are_not_clipped_and_claims_only_a_little(make):
    one, other = make(), make()
    one.update_many([1 + 5e-7, -5e-7, 0.5], [1, 0, 1])
    other.update_many([1.0, 0.0, 0.5], [1, 0, 1])
    assert one == other
    one.update(1 + 5e-7, 1.0)
    other.update(1.0, 1.0)
    assert one == other
    for y in (1 + 5e-7, -1e-12):
        with pytest.raises(ValueError, match="must lie in"):
            one.update(0.5, y)


@pytest.mark.parametrize("make", [CalibrationDrift, CalibrationTest])
@pytest.mark.parametrize(("p", "y"), [([0.5], [1, 0]), (0.5, 1), ([[0.5]], [[1]]), ([0.5, 0.5], 1)])
def test_shapes_must_agree(make, p, y):
    with pytest.raises(ValueError, match="shape"):
        make().update_many(p, y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"arl": 0.5}, "arl must lie in"),
        ({"arl": math.nan}, "arl must lie in"),
        ({"arl": math.inf}, "arl must lie in"),
        ({"arl": "many"}, "arl must lie in"),
        ({"arl": 100, "warning_arl": 101}, r"warning_arl must lie in \[1, 100\]"),
        ({"arl": 100, "warning_arl": 0}, "warning_arl must lie in"),
        ({"tolerance": -0.1}, "tolerance must lie in"),
        ({"tolerance": 1.0}, "tolerance must lie in"),
        ({"tolerance": None}, "tolerance must lie in"),
        ({"bets": (0.5, 2.0)}, "bets must be Bets"),
        ({"bets": None}, "bets must be Bets"),
    ],
)
def test_settings_are_checked_at_construction(arguments, message):
    with pytest.raises(ValueError, match=message):
        CalibrationDrift(**arguments)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, math.nan, None, "small"])
def test_alpha_lies_between_0_and_1(alpha):
    with pytest.raises(ValueError, match="alpha must lie in"):
        CalibrationTest(alpha)


@pytest.mark.parametrize(
    "arguments",
    [
        {"slopes": (1.0,)},
        {"slopes": (0.0,)},
        {"slopes": (9.0,)},
        {"slopes": (0.5, 0.5)},
        {"slopes": "two"},
        {"slopes": 2.0},
        {"shifts": (0.0,)},
        {"shifts": (math.nan,)},
        {"shifts": (9.0,)},
        {"stakes": (1.5,)},
        {"stakes": (0.0,)},
        {"stakes": ()},
        {"stakes": [0.01 * i for i in range(1, 80)]},
        {"bins": 0},
        {"bins": 33},
        {"bins": 2.5},
        {"line_share": 1.1},
        {"line_share": math.nan},
        {"slopes": (), "shifts": ()},
    ],
    ids=repr,
)
def test_bets_that_are_none_are_refused(arguments):
    with pytest.raises(ValueError, match="must"):
        Bets(**arguments)


def test_the_stake_is_split_and_nothing_is_left_over():
    for bets in (Bets(), Bets(shifts=()), Bets(slopes=(), bins=32), Bets(line_share=0.0), Bets(line_share=1.0)):
        of = CalibrationDrift(bets=bets).parts
        assert of.weights.sum() + of.bin_weights.sum() * bets.bins == pytest.approx(1.0, rel=1e-12)
    assert from_bytes(Bets(bins=3).to_bytes()) == Bets(bins=3)


# ---- certain claims


@pytest.mark.parametrize(("p", "y"), [(0.0, 1.0), (1.0, 0.0), (0.0, 1e-9), (1.0, 0.999), (-5e-7, 1.0)])
def test_what_was_said_to_be_impossible_is_an_alarm_at_once(p, y):
    detector, test = CalibrationDrift(arl=1e15), CalibrationTest(alpha=1e-9)
    for d in (detector, test):
        d.update(0.5, 1)
        d.update(p, y)
    assert detector.drift_detected and detector.evidence == math.inf and detector.alarms == 1
    report = detector.report()
    assert report["impossible"] and report["event"] == 1 and "impossible" in report["text"]
    json.dumps([report, detector.history()], allow_nan=False)
    assert CalibrationDrift.from_bytes(detector.to_bytes()) == detector
    detector.update(0.5, 1)
    assert not detector.drift_detected and 0 < detector.evidence < 3
    assert test.rejected and test.p_value == 0.0 and test.report()["rejected_at"] == 1
    test.update(0.5, 1)
    assert test.log_evidence == math.inf and test.p_value == 0.0
    json.dumps(test.report(), allow_nan=False)
    assert CalibrationTest.from_bytes(test.to_bytes()) == test


def test_with_a_tolerance_nothing_is_impossible():
    detector, test = CalibrationDrift(tolerance=0.01), CalibrationTest(tolerance=0.01)
    for d in (detector, test):
        d.update(0.0, 1)
    assert 1 < detector.evidence < math.inf and not detector.report()["impossible"]
    assert 0 < test.log_evidence < math.inf
    detector.update_many(np.zeros(20), np.ones(20))
    assert detector.alarms > 0


def test_certain_claims_that_come_true_say_nothing():
    """Nothing is at stake: no evidence, however many; with a tolerance as little as by the textbook."""
    p = np.tile([0.0, 1.0], 1500)
    for tolerance in (0.0, 0.02):
        detector, test = CalibrationDrift(1000, tolerance), CalibrationTest(tolerance=tolerance)
        assert detector.update_many(p, p).size == 0
        report = detector.report()
        assert report["direction"] is report["onset"] is None and report["likelihood_ratio"] < 1 + 1e-9
        assert report["gap"] == 0.0 and report["slope"] is None
        test.update_many(p, p)
        assert -60 < test.log_evidence < 1e-6
        if tolerance == 0.0:
            assert detector.evidence == 0.0 and test.log_evidence > -1


# ---- reports


def test_before_any_event_there_is_nothing_to_say():
    detector = CalibrationDrift()
    assert (detector.n, detector.alarms, detector.evidence) == (0, 0, 0.0)
    assert not detector.drift_detected and not detector.warning_detected and detector.history() == []
    report = detector.report()
    for key in ("event", "direction", "onset", "onset_spread", "window", "gap", "slope", "k1", "mean_claim"):
        assert report[key] is None
    assert report["bins"] == [] and report["events"] == report["run"] == 0 and not report["alarm"]
    assert report["text"] == "no evidence against the predictions"
    json.dumps([report, CalibrationTest().report()], allow_nan=False)
    test = CalibrationTest()
    assert (test.n, test.log_evidence, test.p_value, test.rejected) == (0, 0.0, 1.0, False)


DRIFTS = [
    ((2.0, 0.0), "too extreme"),
    ((0.5, 0.0), "not extreme enough"),
    ((1.0, 0.8), "too high"),
    ((1.0, -0.8), "too low"),
]


@pytest.mark.parametrize(("line", "direction"), DRIFTS)
def test_a_report_says_what_happened(line, direction):
    p, y = overconfident(4000, 1000, *line, seed=5)
    detector = CalibrationDrift()
    alarm = one_by_one_until_alarm(detector, p, y)
    report = detector.report()
    assert report == detector.history()[0]
    assert report["event"] == alarm and report["alarm"] and report["evidence"] >= 20_000
    assert report["direction"] == direction == max(report["directions"], key=report["directions"].get)
    assert sum(report["directions"].values()) == pytest.approx(1.0)
    assert report["window"] == [report["onset"], alarm + 1]
    for onset in (report["onset"], report["onset_mean"]):
        assert abs(onset - 1000) < 3 * report["onset_spread"] + 30
    assert direction in report["text"] and str(report["onset"]) in report["text"]
    json.dumps(detector.history(), allow_nan=False)
    since = slice(report["sums_since"], alarm + 1)
    assert abs(report["sums_since"] - report["onset"]) <= max(FINEST, (alarm + 1 - report["onset"]) / 4)
    assert report["events"] == alarm + 1 - report["sums_since"]
    assert report["mean_claim"] == pytest.approx(p[since].mean(), rel=1e-9)
    assert report["mean_outcome"] == pytest.approx(y[since].mean(), rel=1e-9)
    bins = np.array([naive.bin_of(x, 10) for x in p[since]])
    gaps = [(y[since] - p[since])[bins == r].sum() for r in range(10)]
    assert report["k1"] == pytest.approx(np.abs(gaps).sum() / report["events"], rel=1e-9)
    assert report["k1"] > report["k1_by_chance"]
    assert [r["n"] for r in report["bins"]] == [n for n in np.bincount(bins, minlength=10).tolist() if n]
    for bin in report["bins"]:
        r = round(bin["bin"][0] * 10)
        assert bin["bin"] == [r / 10, (r + 1) / 10]
        assert bin["gap"] * bin["n"] == pytest.approx(gaps[r], abs=1e-9)
    if line[0] != 1.0:
        assert (report["slope"] < 1) == (line[0] > 1)
    else:
        assert (report["intercept"] < 0) == (line[1] > 0)


def test_a_single_bad_bin_is_named():
    rng = np.random.default_rng(1)
    p = rng.beta(2, 2, 6000)
    bad = (p > 0.7) & (p <= 0.8) & (np.arange(6000) >= 2000)
    detector = CalibrationDrift()
    one_by_one_until_alarm(detector, p, rng.random(6000) < np.where(bad, p - 0.3, p))
    report = detector.report()
    assert report["bin"] == [0.7, 0.8] and report["direction"] == "too high"
    worst = max(report["bins"], key=lambda r: abs(r["gap"]) * r["n"])
    assert worst["bin"] == [0.7, 0.8] and worst["gap"] < -0.15
    assert "in bin (0.7, 0.8]" in report["text"]


def test_warnings_come_before_alarms():
    p, y = overconfident(3000, 200)
    detector, seen = CalibrationDrift(arl=5000, warning_arl=700), []
    for a, b in zip(p.tolist(), y.tolist()):
        detector.update(a, b)
        assert detector.warning_detected == (700 <= detector.evidence < 5000)
        assert detector.drift_detected == (detector.evidence >= 5000)
        seen.append((detector.warning_detected, detector.drift_detected))
        if detector.drift_detected:
            break
    assert seen[-1] == (False, True) and any(w for w, _ in seen)
    assert CalibrationDrift(arl=5000).warning_arl == 500


def test_reading_changes_nothing_and_gives_copies():
    detector = CalibrationDrift(arl=50)
    detector.update_many([0.9] * 40, [0] * 40)
    before = detector.to_bytes()
    detector.report()["bins"].clear()
    detector.history()[0]["bins"].clear()
    detector.history().clear()
    assert detector.to_bytes() == before and detector.history()[0]["bins"]


def test_reset_forgets_the_evidence_and_keeps_the_counts():
    detector, other = CalibrationDrift(arl=50), CalibrationDrift(arl=50)
    alarms = detector.update_many([0.9] * 20, [0] * 20).size
    assert alarms > 0
    detector.reset()
    assert (detector.n, detector.alarms, detector.evidence) == (20, alarms, 0.0)
    assert not detector.drift_detected and not detector.warning_detected and detector.report()["run"] == 0
    assert len(detector.history()) == alarms
    for d in (detector, other):
        one_by_one(d, [0.3, 0.6, 0.7], [1, 0, 1])
    assert detector.evidence == other.evidence
    assert detector.report()["run"] == 3 and detector.report()["event"] == 22
    assert detector.report()["onset"] == other.report()["onset"] + 20


# ---- exponentials


@given(st.lists(st.floats(0.01, 8), min_size=1, max_size=9), st.floats(-20.8, 20.8))
def test_exponentials_are_those_of_the_library(slopes, z):
    out = np.empty(len(slopes))
    exponentials(np.array(slopes), z, out)
    for slope, found in zip(slopes, out.tolist()):
        assert found == pytest.approx(math.exp(slope * z), rel=1e-15)


# ---- sums since any moment


@pytest.mark.parametrize("levels", [1, 2, 5, 21])
def test_a_copy_is_near_every_moment(levels):
    kept = np.zeros(levels * COPIES)
    reach = FINEST << (levels - 1)
    for t in range(FINEST, 3000 * FINEST, FINEST):
        kept[slot_of(t, levels)] = t
        if t % (37 * FINEST) == 0:
            at = np.array([0.0, *kept[kept > 0]])
            for age in [1, 5, 16, 33, 100, *np.geomspace(10, t, 30).astype(int)]:
                if age <= min(t, reach):
                    assert np.abs(at - (t - age)).min() <= max(FINEST / 2, age / 4), (t, age)
    assert Bets().stream(levels).shapes["copies"] == (kept.size, 31)


def test_the_parts_of_a_stream_lie_side_by_side():
    """No number belongs to two parts or to none, and each part is where the kernels are told that it is."""
    for stream in (
        Bets().stream(21),
        Bets(bins=1, stakes=(), line_share=1.0).stream(8),
        BufferParts({"a": (), "b": (2, 3), "c": (0, 4)}),
    ):
        numbers = np.zeros(stream.size)
        for part in vars(stream.views(numbers)).values():
            part += 1.0
        assert (numbers == 1.0).all()
    detector = CalibrationDrift()
    of, stream = detector.parts, detector.stream()
    for name in ("bets", "bins", "binned", "sums"):
        stream.time[...] = 7.0
        getattr(stream, name)[...] = 8.0
        first = of.streams[0, int(getattr(of, f"at_{name}")) :]
        assert (first[: getattr(stream, name).size] == 8.0).all() and of.streams[0, 0] == 7.0
    assert (of.bets, of.bins, of.stakes, of.sums, of.levels, of.size) == (13, 10, 4, 30, 21, of.streams.size)


@pytest.mark.parametrize("p", [0.0, 1e-300, 1e-12, 1.0 - 2.0**-53, 1.0])
def test_a_sure_thing_that_comes_true_wins_nothing(p):
    """Where nothing is at stake there is no evidence, however many events, and no direction; next to nothing beside it."""
    detector = CalibrationDrift(arl=1000)
    n = sized(20_000, 2_000)
    assert detector.update_many(np.full(n, p), np.full(n, round(p))).size == 0
    assert detector.evidence <= 1.0 and detector.report()["direction"] is None
    if p in (0.0, 1.0):
        assert detector.evidence == 0.0


@pytest.mark.parametrize("tolerance", [0.0, 0.02])
def test_a_bet_that_cannot_win_has_no_start_and_the_one_away_from_the_end_keeps_its_own(tolerance):
    """g by bet: against the end that the tolerated interval reaches nothing is laid, away from it all of it."""
    for p, cannot, can in ((tolerance, -1.0, 1.0), (1.0 - tolerance, 1.0, -1.0)):
        detector = patient(tolerance=tolerance)
        detector.update(p, round(p))
        bets = bets_now(detector, detector.stream())
        lines = np.where(detector.parts.slopes != 1.0, 1.0 - detector.parts.slopes, np.log(detector.parts.odds))
        sign = np.concatenate([np.sign(lines * (1.0 if p < 0.5 else -1.0)), np.tile(naive.STAKES, 10)])
        sign[7:13] = np.sign(np.log(detector.parts.odds[7:]))  # shifts are the same at both ends
        r = bets.moments[R]
        assert (r[np.sign(sign) == cannot] == 0.0).all()
        assert ((r[np.sign(sign) == can] > 0.0) == (tolerance > 0.0)).all()


def test_claims_that_came_true_do_not_move_the_onset():
    """Certain claims before the change are no start: the onset is among the events that said something."""
    p, y = overconfident(600, 0, slope=4.0)
    detector = CalibrationDrift(1000)
    alarms = detector.update_many(np.concatenate([np.ones(5000), p]), np.concatenate([np.ones(5000), y]))
    alarm, found = int(alarms[0]), detector.history(len(alarms))[0]
    assert found["event"] == alarm < 5300
    assert 5000 <= found["onset"] < alarm and 5000 <= found["onset_mean"] < alarm


def test_outcomes_that_are_their_claims_name_no_direction():
    """A gap of 0 up to rounding, at claims where something is at stake: the evidence grows, and is against nothing."""
    rng = np.random.default_rng(0)
    p = rng.random(3000)
    detector = CalibrationDrift(1000)
    assert detector.update_many(p, p).size > 0
    for report in (*detector.history(), detector.report()):
        assert report["direction"] is None and report["onset"] is None
        assert report["text"] == "no evidence against the predictions"


def test_a_sentence_says_what_its_bin_says():
    """Bins off by turns: the strongest bet may be in a bin that is off the other way than all together."""
    rng = np.random.default_rng(0)
    n = sized(20_000, 6_000)
    p = rng.random(n)
    off = np.where((p * 10).astype(int) % 2 == 0, 0.2, -0.2)
    detector, texts = CalibrationDrift(arl=500), 0
    for a, b in zip(p.tolist(), (rng.random(n) < np.clip(p + off, 0, 1)).tolist()):
        detector.update(a, b)
        report = detector.report() if detector.drift_detected else {"text": ""}
        if "in bin" in report["text"]:
            (bin,) = [r for r in report["bins"] if r["bin"] == report["bin"]]
            assert ("too low in bin" in report["text"]) == (bin["gap"] > 0.0)
            texts += 1
    assert texts > n / 2_000


@pytest.mark.parametrize("history", [[1, 2], [{}], "none"])
def test_a_document_with_a_history_that_is_none(history):
    detector = CalibrationDrift(arl=3)
    detector.update_many([0.5] * 20, [1] * 20)
    detector._history = history
    with pytest.raises(ValueError, match="the history must be a list"):
        CalibrationDrift.from_bytes(detector.to_bytes())
