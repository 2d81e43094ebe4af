"""PITDrift: the textbook twin, run lengths, delays, discrete outcomes, refusals, the document."""

from __future__ import annotations

import copy
import json
import math
import pickle
from statistics import NormalDist

import naive_pit
import numpy as np
import pytest
from conftest import some, wider
from hypothesis import given
from hypothesis import strategies as st

from streamcal import from_bytes
from streamcal.drift.pit import PITDrift, randomised_pit

CDF = np.vectorize(NormalDist().cdf)
NU = 2000


def fed(u, upto=None, **settings):
    drift = PITDrift(**settings)
    drift.update_many(u, upto)
    return drift


def run_lengths(alarms):
    return np.diff(np.concatenate([[-1], alarms]))


def poisson_cdf(k, mean):
    """P(Y <= k) for k = -1, 0, 1, ..., from the sum of its terms."""
    terms = [math.exp(-mean) * mean**i / math.factorial(i) for i in range(60)]
    table = np.concatenate([[0.0], np.minimum(np.cumsum(terms), 1.0)])
    return table[np.minimum(np.asarray(k) + 1, 60)]


def poisson(rng, n, said, true):
    """(F(y-), F(y)) of outcomes with another mean than was said."""
    y = rng.poisson(true, n)
    return poisson_cdf(y - 1, said), poisson_cdf(y, said)


def changed(rng, shift, sd, after=8000, nu=NU):
    """PITs of standard normal forecasts, right for ``nu`` events."""
    return np.concatenate([rng.random(nu), CDF(shift + sd * rng.normal(size=after))])


# ---------------------------------------------------------------------------- the textbook


@given(st.lists(st.floats(0, 1), min_size=1, max_size=25))
def test_the_evidence_is_that_of_the_textbook(us):
    """A few exact zeros are enough to pass any threshold: then a new run begins, in both."""
    weights, logs = naive_pit.pit_logs(us)
    alarms, start = naive_pit.alarms(weights, logs, 1e15)
    if alarms and alarms[-1] == len(us) - 1:  # the value that crossed
        start = alarms[-2] + 1 if len(alarms) > 1 else 0
    drift = fed(us, arl=1e15)
    assert drift.alarms == len(alarms)
    assert drift.evidence == pytest.approx(naive_pit.evidence(weights, [x[start:] for x in logs]), rel=1e-9)


@pytest.mark.parametrize("low", [0.5, 1.0, 2.0])
def test_evidence_onset_and_spread_of_a_longer_stream_are_those_of_the_textbook(low):
    rng = np.random.default_rng(3)
    us = np.concatenate([rng.random(80), rng.beta(low, 0.6, 40)]).tolist()
    weights, logs = naive_pit.pit_logs(us)
    drift = fed(us, arl=1e15)
    assert drift.evidence == pytest.approx(naive_pit.evidence(weights, logs), rel=1e-9)
    start, ratio, mean, spread = naive_pit.strongest(weights, logs)
    report = drift.report()
    assert (report["onset"], report["window"]) == (start, [start, 120])
    assert report["likelihood_ratio"] == pytest.approx(ratio, rel=1e-9)
    assert report["onset_mean"] == pytest.approx(mean, rel=1e-9)
    assert report["onset_spread"] == pytest.approx(spread, rel=1e-7)


def test_it_alarms_and_begins_anew_where_the_textbook_does():
    us = np.random.default_rng(4).beta(0.6, 0.6, 300).tolist()
    alarms, start = naive_pit.alarms(*naive_pit.pit_logs(us), 30.0)
    drift = PITDrift(arl=30)
    assert len(alarms) > 5
    assert drift.update_many(us).tolist() == alarms
    assert (drift.alarms, drift.n, drift.report()["run"]) == (len(alarms), 300, 300 - start)
    assert drift.history()[-1]["event"] == alarms[-1]


@given(st.one_of(st.floats(0, 1), st.floats(0, 1e-8), st.floats(0, 1e-8).map(lambda x: 1.0 - x)))
def test_no_bet_pays_more_than_its_density(u):
    """So that no expectation is above 1, whatever happens near 0 and 1.

    The powers here and there may differ in their last bit, which counts |log u| times.
    """
    with np.errstate(divide="ignore"):
        logs = [abs(float(x)) for x in np.log([u, 1.0 - u]) if math.isfinite(x)]
    rounding = 1e-14 + 4 * 2.0**-52 * sum(logs)
    drift = fed([u])
    paid = drift.stream().increments
    for x, (a, b) in zip(paid, [(a, b) for a in naive_pit.SHAPES for b in naive_pit.SHAPES]):
        with np.errstate(divide="ignore"):
            log_density = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
            log_density += 0.0 if a == 1 else (a - 1) * float(np.log(u))
            log_density += 0.0 if b == 1 else (b - 1) * float(np.log(1.0 - u))
        assert x <= (math.exp(log_density) if log_density < 700 else math.inf) * (1 + rounding)


def test_the_weights_add_up_and_uniform_is_no_bet():
    weights = PITDrift().parts.weights
    assert weights.sum() == pytest.approx(1.0, abs=1e-15)
    assert np.flatnonzero(weights == 0.0).tolist() == [24]


# ---------------------------------------------------------------------------- run lengths


def calibrated(rng, n):
    p = rng.beta(0.5, 0.5, n)
    y = rng.random(n) < p
    means = 3.0 + 2.0 * np.sin(np.arange(3000) / 3000 * 2 * math.pi)
    tables = np.array([poisson_cdf(np.arange(-1, 60), m) for m in means])  # of a wave of 3,000 events
    rows = np.arange(n) % 3000
    counts = rng.poisson(means[rows])
    return {
        "continuous": (rng.random(n), None),
        "counts": poisson(rng, n, 2.0, 2.0),
        "rare counts": poisson(rng, n, 0.001, 0.001),
        "yes or no": (np.where(y, 1.0 - p, 0.0), np.where(y, 1.0, 1.0 - p)),
        "counts of a wave": (tables[rows, counts], tables[rows, counts + 1]),
    }


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("stream", ["continuous", "counts", "rare counts", "yes or no", "counts of a wave"])
def test_the_run_length_on_right_forecasts_is_at_least_arl(stream):
    """About 1,500 runs: standard error about 33 events (66 of a quarter), so that 950 is 10 of them below what is expected."""
    u, upto = calibrated(np.random.default_rng(21), some(1_900_000))[stream]
    runs = run_lengths(PITDrift(arl=1000).update_many(u, upto))
    assert len(runs) > some(1000)
    assert 950 - 1000 * wider(1500) <= runs.mean() <= 1400 + 1000 * wider(1500)


@pytest.mark.statistical
@pytest.mark.jit
def test_forecasts_chosen_from_the_evidence_do_not_shorten_the_run():
    rng, drift, events, runs = np.random.default_rng(5), PITDrift(arl=300, seed=9), 0, some(400)
    while drift.alarms < runs:
        p = 0.02 if drift.evidence > 30 else 0.5 if drift.evidence > 5 else 0.9
        y = rng.random() < p
        drift.update(*((1.0 - p, 1.0) if y else (0.0, 1.0 - p)))
        events += 1
    assert events / runs >= (0.95 - wider(400)) * 300


# ---------------------------------------------------------------------------- delays


def delays(shift, sd, runs=400, seed=0):
    """(delay, report of the alarm) of the first alarm after the change; (8000, None) where none came."""
    rng, out = np.random.default_rng(seed), []
    for _ in range(runs):
        u = changed(rng, shift, sd)
        drift = fed(u[:NU])
        alarms = copy.deepcopy(drift).update_many(u[NU:])
        if not alarms.size:
            out.append((8000, None))
            continue
        drift.update_many(u[NU : NU + alarms[0] + 1])
        out.append((int(alarms[0]) + 1, drift.report()))
    return out


# the change, the largest median delay, what is to be said of it, and how often at least
CHANGES = [
    (0.0, 1.1, 720, "too narrow", 0.90),
    (0.0, 1.25, 150, "too narrow", 0.93),
    (0.0, 1.5, 50, "too narrow", 0.93),
    (0.0, 0.8, 210, "too wide", 0.97),
    (0.1, 1.0, 1345, "biased down", 0.80),
    (0.25, 1.0, 250, "biased down", 0.91),
    (0.5, 1.0, 75, "biased down", 0.95),
    (-0.25, 1.0, 250, "biased up", 0.91),
]


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize(("shift", "sd", "most", "direction", "often"), CHANGES)
def test_delay_direction_and_onset(shift, sd, most, direction, often):
    """400 runs: the standard error of a share of .95 is .011, that of a median delay about 4 %."""
    found = delays(shift, sd)
    delay = np.median([t for t, _ in found])
    assert delay <= most
    reports = [r for _, r in found if r is not None]
    assert np.mean([r["direction"] == direction for r in reports]) >= often
    error = np.median([abs(r["onset"] - NU) for r in reports])
    assert error <= 100 + 0.15 * delay
    spread = np.median([r["onset_spread"] for r in reports])
    assert error / 3 <= spread <= delay  # neither boasting nor empty


@pytest.mark.jit
def test_no_past_is_needed():
    """The same delay when the change comes after 100 events."""
    rng = np.random.default_rng(1)
    found = [PITDrift().update_many(changed(rng, 0.0, 1.25, 3000, 100)) for _ in range(200)]
    assert np.median([a[0] - 99 for a in found]) <= 150


@pytest.mark.statistical
@pytest.mark.jit
def test_rare_events_raise_no_more_alarms_than_promised():
    """A stable rate of 1 in 1,000, 5,000 events: 97 of 100 such streams set off a detector that trusts the normal law."""
    rng, fired, streams = np.random.default_rng(2), 0, some(100)
    for seed in range(streams):
        y = rng.random(5000) < 0.001
        fired += PITDrift(seed=seed).update_many(np.where(y, 0.999, 0.0), np.where(y, 1.0, 0.999)).size > 0
    assert fired <= 0.22 * streams + 2 * 0.42 * math.sqrt(streams)  # 1 - exp(-5000 / 20000) and two standard errors


# ---------------------------------------------------------------------------- discrete outcomes


def test_draws_are_uniform_if_the_forecasts_are_right():
    u = randomised_pit(*poisson(np.random.default_rng(6), 20_000, 1.5, 1.5), seed=3)
    counts = np.histogram(u, 20, (0, 1))[0]
    assert ((counts - 1000.0) ** 2 / 1000.0).sum() < 43.8  # chi square with 19 degrees of freedom, 1 in 1,000


def test_draws_lie_between_and_come_from_the_seed_alone():
    below, upto = poisson(np.random.default_rng(7), 500, 1.5, 1.5)
    u = randomised_pit(below, upto, seed=1)
    assert ((below <= u) & (u <= upto)).all()
    assert u.tolist() == randomised_pit(below, upto, seed=1).tolist()
    assert u.tolist() != randomised_pit(below, upto, seed=2).tolist()
    assert randomised_pit(below, upto, seed=1)[:10].tolist() == randomised_pit(below[:10], upto[:10], seed=1).tolist()


def test_the_detector_draws_the_same():
    below, upto = poisson(np.random.default_rng(8), 700, 1.5, 2.5)
    drawn = fed(randomised_pit(below, upto, seed=4), seed=4, arl=100)
    whole = fed(below, upto, seed=4, arl=100)
    assert whole == drawn
    assert whole.alarms > 3
    assert fed(below, upto, seed=5, arl=100) != whole


@pytest.mark.jit
def test_counts_of_another_mean_alarm():
    rng = np.random.default_rng(9)
    for true, direction in ((2.5, "biased down"), (1.5, "biased up")):
        found = []
        for seed in range(40):
            drift = PITDrift(seed=seed)
            alarms = drift.update_many(*poisson(rng, 3000, 2.0, true))
            found.append((alarms[0], drift.history()[0]["direction"]))
        assert np.median([t for t, _ in found]) <= 400
        assert np.mean([d == direction for _, d in found]) >= 0.8


# ---------------------------------------------------------------------------- one by one, many, documents


def test_one_by_one_and_many_are_the_same_to_the_last_bit():
    rng = np.random.default_rng(10)
    u = np.concatenate([rng.random(100), rng.beta(0.4, 0.4, 200), [0.0, 1.0, 1e-12]])
    many, parts, single = PITDrift(arl=200), PITDrift(arl=200), PITDrift(arl=200)
    alarms = many.update_many(u)
    cut = int(alarms[0]) + 1
    assert (parts.update_many(u[:cut]).tolist() + (cut + parts.update_many(u[cut:])).tolist()) == alarms.tolist()
    hits = []
    for i, x in enumerate(u.tolist()):
        single.update(x)
        if single.drift_detected:
            hits.append(i)
    assert hits == alarms.tolist()
    assert many.to_bytes() == parts.to_bytes() == single.to_bytes()


def test_one_by_one_and_many_draw_the_same():
    below, upto = poisson(np.random.default_rng(11), 300, 1.0, 1.6)
    many, single = fed(below, upto, arl=50, seed=3), PITDrift(arl=50, seed=3)
    for pair in zip(below.tolist(), upto.tolist()):
        single.update(*pair)
    assert single == many


@pytest.mark.parametrize("fill", [0, 50, 222])
def test_a_restored_one_goes_on_bit_for_bit(fill):
    u = np.random.default_rng(12).beta(0.6, 0.7, 400)
    whole = fed(u[:fill], arl=100, warning_arl=20, seed=2)
    others = [from_bytes(whole.to_bytes()), copy.deepcopy(whole), pickle.loads(pickle.dumps(whole))]
    want = whole.update_many(u[fill:]).tolist()
    for other in others:
        assert repr(other) == repr(whole)
        assert other.update_many(u[fill:]).tolist() == want
        assert other == whole


def test_the_state_is_small_and_does_not_grow():
    drift = PITDrift()
    size = drift._buf.nbytes
    drift.update_many(np.random.default_rng(13).random(5_000))
    assert drift._buf.nbytes == size < 16_000
    assert len(PITDrift().to_bytes()) < 16_000


@pytest.mark.parametrize(("part", "value"), [("scales", 2.0), ("weights", math.nan), ("n", 1.5)])
def test_a_damaged_document_is_refused(part, value):
    drift = fed([0.1, 0.9])
    getattr(drift.parts, part)[...] = value
    with pytest.raises(ValueError, match="does not fit"):
        PITDrift.from_bytes(drift.to_bytes())


# ---------------------------------------------------------------------------- reports


def test_before_any_event_there_is_nothing_to_say():
    drift = PITDrift()
    report = drift.report()
    assert (drift.evidence, drift.n, drift.alarms) == (0.0, 0, 0)
    assert not drift.drift_detected and not drift.warning_detected
    assert report["event"] is report["onset"] is report["window"] is report["direction"] is report["mean"] is None
    assert (report["events"], sum(report["histogram"])) == (0, 0)
    assert "no evidence" in report["text"]
    assert drift.history() == []


def test_the_histogram_holds_the_events_since_the_onset():
    rng = np.random.default_rng(14)
    u = np.concatenate([rng.random(NU), rng.beta(0.4, 0.4, 300)])
    drift = PITDrift()
    last = int(drift.update_many(u)[0])
    report = drift.history()[0]
    since = u[report["sums_since"] : last + 1]
    assert abs(report["sums_since"] - report["onset"]) <= (last - report["onset"]) / 4 + 16
    assert report["events"] == len(since) == sum(report["histogram"])
    # bin m holds (m/20, (m+1)/20]
    assert report["histogram"] == np.bincount(np.maximum(np.ceil(since * 20) - 1, 0).astype(int), minlength=20).tolist()
    assert report["mean"] == pytest.approx(since.mean(), abs=1e-9)
    assert report["sd"] == pytest.approx(since.std(), abs=1e-9)
    assert report["direction"] == "too narrow" and "tails" in report["text"]
    assert sum(report["directions"].values()) == pytest.approx(1.0)
    json.dumps(report, allow_nan=False)


def test_an_alarm_can_be_read_until_the_next_event():
    drift = PITDrift(arl=50)
    while not drift.drift_detected:
        drift.update(0.999)
    report = drift.report()
    assert report["alarm"] and report["direction"] == "biased down" and report == drift.history()[-1]
    drift.update(0.5)
    assert drift.report()["run"] == 1 and not drift.drift_detected and drift.alarms == 1
    drift.reset()
    assert (drift.n, drift.alarms, drift.evidence) == (report["event"] + 2, 1, 0.0)


def test_it_warns_first():
    drift, seen = PITDrift(arl=1000, warning_arl=20), []
    while not drift.drift_detected:
        drift.update(0.999)
        seen.append((drift.warning_detected, drift.evidence >= 20 and not drift.drift_detected))
    assert any(w for w, _ in seen) and all(w == e for w, e in seen)


# ---------------------------------------------------------------------------- what is refused

BAD = [math.nan, -0.1, 1.1, math.inf, -math.inf, None, "x", 1j, [0.5], b"", 10**400]


@pytest.mark.parametrize("u", BAD)
def test_a_bad_event_is_refused_and_changes_nothing(u):
    drift = fed([0.2, 0.7])
    before = drift.to_bytes()
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        drift.update(u)
    if u is not None:
        with pytest.raises(ValueError, match="not above"):
            drift.update(0.5, u)
    if not isinstance(u, list):
        with pytest.raises(ValueError):
            drift.update_many([0.5, u, 0.5])
    assert drift.to_bytes() == before


def test_the_first_bad_event_is_named():
    drift = PITDrift()
    with pytest.raises(ValueError, match="got 1.5 at index 1"):
        drift.update_many([0.1, 1.5, math.nan])
    with pytest.raises(ValueError, match="got 0.6 and 0.5 at index 2"):
        drift.update_many([0.1, 0.5, 0.6], [0.1, 0.5, 0.5])
    with pytest.raises(ValueError, match="shape"):
        drift.update_many([[0.1]])
    with pytest.raises(ValueError, match="shape"):
        drift.update_many([0.1, 0.2], [0.3])
    assert drift == PITDrift()


def test_one_event_with_its_ends_swapped_is_refused():
    drift = PITDrift()
    with pytest.raises(ValueError, match=r"not above the second, got 0.6 and 0.5"):
        drift.update(0.6, 0.5)
    assert drift == PITDrift()


def test_rounding_outside_is_clipped():
    drift = PITDrift(arl=1e15)
    drift.update(-1e-7)
    drift.update(0.5, 0.5 - 1e-9)
    assert drift.update_many([1 + 1e-7]).size == 0
    assert drift.report()["run"] == 3 and drift == fed([0.0, 0.5, 1.0], arl=1e15)


def test_no_events_change_nothing():
    drift = fed([0.3])
    before = drift.to_bytes()
    assert drift.update_many([]).tolist() == [] and drift.update_many([], []).dtype == np.int64
    assert drift.to_bytes() == before
    assert randomised_pit([], []).shape == (0,)


@pytest.mark.parametrize(
    "settings", [{"arl": 0.5}, {"arl": math.nan}, {"arl": None}, {"seed": -1}, {"seed": 1.5}, {"warning_arl": 1e6}]
)
def test_settings_that_are_not_allowed(settings):
    with pytest.raises(ValueError, match="must"):
        PITDrift(**settings)
