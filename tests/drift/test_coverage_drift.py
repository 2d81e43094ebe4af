"""CoverageDrift: the textbook twin, run lengths, delays, tolerance, "at least", refusals, the document."""

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
from streamcal.drift.bets import coverage_bets, exact_factors, factors
from streamcal.drift.coverage import CoverageDrift

NU = 2000
MANY = tuple(k / 24 for k in range(1, 24))
LEVELS = [0.05, 0.5, 0.9, 0.99, (0.05, 0.95), (0.1, 0.5, 0.9), tuple(k / 10 for k in range(1, 10)), MANY]
CDF, INVERSE = np.vectorize(NormalDist().cdf), np.vectorize(NormalDist().inv_cdf)


def fed(v, y, level, **settings):
    drift = CoverageDrift(level, **settings)
    drift.update_many(v, y)
    return drift


def claimed(level, n):
    """Forecasts of uniform outcomes: each quantile is its level."""
    return np.full(n, level) if np.ndim(level) == 0 else np.tile(level, (n, 1))


def run_lengths(alarms):
    return np.diff(np.concatenate([[-1], alarms]))


# ---------------------------------------------------------------------------- the textbook


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_evidence_onset_and_spread_are_those_of_the_textbook(level):
    levels = np.atleast_1d(level).tolist()
    y = np.concatenate([np.random.default_rng(0).random(100), np.random.default_rng(1).random(40) ** 1.6]).tolist()
    cells = [naive_pit.cell(levels, x) for x in y]
    weights, logs = naive_pit.coverage_logs(levels, cells)
    drift = fed(claimed(level, len(y)), y, level, arl=1e15)
    assert drift.evidence == pytest.approx(naive_pit.evidence(weights, logs), rel=1e-9)
    start, ratio, mean, spread = naive_pit.strongest(weights, logs)
    report = drift.report()
    if ratio > 1.0:
        assert (report["onset"], report["window"]) == (start, [start, 140])
        assert report["likelihood_ratio"] == pytest.approx(ratio, rel=1e-9)
        assert report["onset_mean"] == pytest.approx(mean, rel=1e-9)
        assert report["onset_spread"] == pytest.approx(spread, rel=1e-7)
    else:
        assert report["onset"] is report["window"] is None


def test_an_interval_is_one_level():
    y = np.random.default_rng(2).normal(0, 1.4, 120).tolist()
    cells = [naive_pit.interval_cell((-1.0, 1.2), x) for x in y]
    drift = fed(np.tile([-1.0, 1.2], (120, 1)), y, 0.7, interval=True, arl=1e15)
    assert drift.evidence == pytest.approx(naive_pit.evidence(*naive_pit.coverage_logs([0.7], cells)), rel=1e-9)


@pytest.mark.parametrize("level", [0.9, (0.1, 0.5, 0.9)])
def test_it_alarms_and_begins_anew_where_the_textbook_does(level):
    y = (np.random.default_rng(3).random(250) ** 2).tolist()
    levels = np.atleast_1d(level).tolist()
    logs = naive_pit.coverage_logs(levels, [naive_pit.cell(levels, x) for x in y])
    alarms, start = naive_pit.alarms(*logs, 25.0)
    drift = CoverageDrift(level, arl=25)
    assert len(alarms) > 3
    assert drift.update_many(claimed(level, 250), y).tolist() == alarms
    assert (drift.alarms, drift.n, drift.report()["run"]) == (len(alarms), 250, 250 - start)


unit = st.floats(0.001, 0.999)
several = st.lists(unit, min_size=1, max_size=23, unique_by=lambda q: round(q, 4)).map(sorted)


@given(several, st.sampled_from([0.0, 0.01, 0.1, 0.4]), st.booleans(), st.randoms(use_true_random=False))
def test_no_bet_wins_on_average_while_the_claim_is_true(levels, tolerance, at_least, random):
    """For true levels anywhere that is tolerated, also at its corners: expectation at most 1, no factor below 0."""
    q = np.array(levels)
    try:
        bets = coverage_bets(q, tolerance, at_least, False)
    except ValueError:
        return
    pays = factors(bets.stakes, q, tolerance)
    assert (pays >= 0.0).all() and bets.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert len(bets.weights) == len(bets.stakes)
    offsets = [random.choice((-tolerance, tolerance, random.uniform(-tolerance, tolerance))) for _ in levels]
    more = random.random() * 0.5 if at_least else 0.0
    true = np.maximum.accumulate(np.clip(q + offsets + more, 0.0, 1.0))
    inside = (true >= q - tolerance) if at_least else (np.abs(true - q) <= tolerance + 1e-15)
    if inside.all():
        assert (pays @ np.diff(true, prepend=0.0, append=1.0)).max() <= 1.0 + 1e-11


@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.1, 0.3])
@pytest.mark.parametrize("level", [(0.5, 0.9921875), (0.05, 0.95), (0.01, 0.5, 0.99), MANY], ids=str)
def test_stakes_are_cut_and_no_factor_is_lifted(level, tolerance):
    """Lifting a negative factor to 0 gave an expectation of 1.03 at (.5, .992) with a tolerance of .1."""
    q = np.array(level)
    bets = coverage_bets(q, tolerance, False, False)
    assert exact_factors(bets.stakes, q, tolerance).min() >= -1e-12
    pays = factors(bets.stakes, q, tolerance)
    for offset in (-tolerance, tolerance):
        true = np.clip(q + offset, 0.0, 1.0)
        assert (pays @ np.diff(true, prepend=0.0, append=1.0)).max() <= 1.0 + 1e-11


# ---------------------------------------------------------------------------- run lengths


def staked(level, arl=1000):
    """The least that is laid on an event: evidence less what was laid is a martingale, so runs may be longer by its inverse."""
    q = np.asarray(level)
    return min(1.0, float((arl / 20 * q * (1 - q)).min()))


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_the_run_length_on_right_quantiles_is_at_least_arl(level):
    """About 900 runs or more: a standard error of 35 events, with 1,080 to 1,130 expected; of a quarter of them 70."""
    n = some(1_000_000)
    runs = run_lengths(
        CoverageDrift(level, arl=1000).update_many(claimed(level, n), np.random.default_rng(4).random(n))
    )
    assert len(runs) > some(700) * staked(level)
    assert 950 - 1000 * wider(900) <= runs.mean() <= (1350 + 1000 * wider(900)) / staked(level)


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("level", [0.05, 0.9, 0.99])
def test_the_run_length_on_right_intervals_is_at_least_arl(level):
    rng, n = np.random.default_rng(5), some(1_000_000)
    low = rng.random(n) * (1.0 - level)  # split between the ends anew for every event
    runs = run_lengths(
        CoverageDrift(level, 1000, interval=True).update_many(np.stack([low, low + level], 1), rng.random(n))
    )
    assert 950 - 1000 * wider(900) <= runs.mean() <= (1350 + 1000 * wider(900)) / staked(level)


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize("off", [-0.03, 0.03])
@pytest.mark.parametrize("level", [0.1, 0.9, (0.1, 0.5, 0.9)], ids=str)
def test_what_is_tolerated_alarms_no_sooner_than_arl(level, off):
    n = some(500_000)
    drift = CoverageDrift(level, 1000, tolerance=0.03)
    runs = run_lengths(drift.update_many(claimed(np.array(level) + off, n), np.random.default_rng(6).random(n)))
    assert not runs.size or runs.mean() >= 950 - 1000 * wider(450)
    strict = CoverageDrift(level, 1000).update_many(
        claimed(np.array(level) + off, n), np.random.default_rng(6).random(n)
    )
    assert run_lengths(strict).mean() <= 700
    worse = drift.update_many(claimed(np.array(level) + 3 * off, n // 10), np.random.default_rng(7).random(n // 10))
    assert run_lengths(worse).mean() <= 700


@pytest.mark.jit
def test_at_least_is_silent_where_more_is_covered_and_alarms_where_less_is():
    rng = np.random.default_rng(8)
    y = rng.integers(0, 5, 200_000)  # ties: the right quantile at .5 is 2 and covers .6
    assert CoverageDrift(0.5).update_many(np.full(y.size, 2.0), y).size > 100
    assert CoverageDrift(0.5, at_least=True).update_many(np.full(y.size, 2.0), y).size == 0
    below = CoverageDrift(0.5, at_least=True)
    assert below.update_many(np.full(5000, 1.0), y[:5000])[0] <= 400
    assert below.history()[0]["direction"] == "too low"
    exact = run_lengths(CoverageDrift(0.9, 1000, at_least=True).update_many(np.full(y.size, 0.9), rng.random(y.size)))
    assert exact.mean() >= 950


@pytest.mark.statistical
@pytest.mark.jit
def test_forecasts_chosen_from_the_evidence_do_not_shorten_the_run():
    rng, drift, events, runs = np.random.default_rng(9), CoverageDrift(0.9, 200), 0, some(400)
    while drift.alarms < runs:
        scale = 10.0 if drift.evidence > 20 else 1.0
        drift.update(1.2815515655446004 * scale, scale * rng.normal())
        events += 1
    assert events / runs >= (0.95 - wider(400)) * 200


# ---------------------------------------------------------------------------- delays


def seen(level, coverage):
    """Uniform outcomes, moved so that a quantile at ``level`` covers ``coverage`` of them."""

    def moved(u):
        inside = u < coverage
        return np.where(inside, level * u / coverage, level + (1 - level) * (u - coverage) / (1 - coverage))

    return moved


def normal(shift, sd):
    """Outcomes whose normal forecasts are off, on the scale on which right ones are uniform."""
    return lambda u: CDF(shift + sd * INVERSE(u))


def first_alarms(level, change, runs, forecast=None, **settings):
    """(median delay, by how much its bound is wider, reports) of the first alarms after the change, in ``some(runs)`` runs."""
    rng, delays, reports = np.random.default_rng(10), [], []
    for _ in range(some(runs)):
        y = np.concatenate([rng.random(NU), change(rng.random(5000))])
        v = claimed(level if forecast is None else forecast, y.size)
        drift = fed(v[:NU], y[:NU], level, **settings)
        alarms = copy.deepcopy(drift).update_many(v[NU:], y[NU:])
        delays.append(int(alarms[0]) + 1 if alarms.size else 5000)
        drift.update_many(v[NU : NU + delays[-1]], y[NU : NU + delays[-1]])
        reports.append(drift.report())
    return float(np.median(delays)), 1.25 * float(np.std(delays)) * wider(runs), reports


def at_least(share, runs):
    """Of ``some(runs)`` runs."""
    return share - math.sqrt(share * (1.0 - share)) * wider(runs)


# level, coverage seen, the largest median delay, direction
PLAIN = [
    (0.05, 0.02, 480, "too low"),
    (0.05, 0.1, 300, "too high"),
    (0.5, 0.4, 330, "too low"),
    (0.5, 0.6, 330, "too high"),
    (0.9, 0.8, 155, "too low"),
    (0.9, 0.85, 480, "too low"),
    (0.9, 0.95, 360, "too high"),
    (0.99, 0.95, 210, "too low"),
    (0.99, 0.97, 430, "too low"),
]


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize(("level", "coverage", "most", "direction"), PLAIN)
def test_delay_direction_and_onset_of_one_level(level, coverage, most, direction):
    delay, by_chance, reports = first_alarms(level, seen(level, coverage), 200)
    assert delay <= most + by_chance
    assert np.mean([r["direction"] == direction for r in reports]) >= at_least(0.97, 200)
    error = np.median([abs(r["onset"] - NU) for r in reports])
    assert error <= 100 + 0.15 * delay
    assert np.median([abs(r["coverage"][0]["observed"] - coverage) for r in reports]) <= 0.05


# change of normal forecasts, direction; largest median delays of the interval at .9, levels (.05, .95) and the nine deciles
NORMAL = [
    (0.0, 1.25, "too narrow", 210, 245, 250),
    (0.0, 1.5, "too narrow", 80, 90, 105),
    (0.0, 0.8, "too wide", 270, 310, 260),
    (0.25, 1.0, "too low", None, 560, 260),
    (-0.25, 1.0, "too high", None, 560, 260),
]


@pytest.mark.statistical
@pytest.mark.jit
@pytest.mark.parametrize(("shift", "sd", "direction", "interval", "ends", "deciles"), NORMAL)
def test_delay_and_direction_of_several_levels_and_intervals(shift, sd, direction, interval, ends, deciles):
    change = normal(shift, sd)
    for level, most in (((0.05, 0.95), ends), (tuple(k / 10 for k in range(1, 10)), deciles)):
        delay, by_chance, reports = first_alarms(level, change, 100)
        assert delay <= most + by_chance
        assert np.mean([r["direction"] == direction for r in reports]) >= at_least(0.75, 100)
    if interval is not None:  # an interval is no wiser about where its outcomes lie
        delay, by_chance, reports = first_alarms(0.9, change, 100, forecast=(0.05, 0.95), interval=True)
        assert delay <= interval + by_chance
        assert np.mean([r["direction"] == direction for r in reports]) >= at_least(0.97, 100)


# ---------------------------------------------------------------------------- one by one, many, documents

KINDS = [
    (0.9, {}),
    (0.9, {"interval": True}),
    ((0.1, 0.9), {}),
    ((0.1, 0.5, 0.9), {"tolerance": 0.02}),
    (0.8, {"at_least": True}),
]
kinds = pytest.mark.parametrize(("level", "settings"), KINDS, ids=str)


def stream(level, settings, n=300, seed=11):
    rng = np.random.default_rng(seed)
    if settings.get("interval"):
        return np.sort(rng.normal(size=(n, 2)), 1), rng.normal(size=n)
    width = np.shape(level)
    return np.sort(rng.normal(0.3, 1, (n, *width)), -1) if width else rng.normal(0.3, 1, n), rng.normal(size=n)


@kinds
def test_one_by_one_and_many_are_the_same_to_the_last_bit(level, settings):
    v, y = stream(level, settings)
    many, single = fed(v, y, level, arl=40, **settings), CoverageDrift(level, arl=40, **settings)
    hits = []
    for i, (a, b) in enumerate(zip(v.tolist(), y.tolist())):
        single.update(a, b)
        if single.drift_detected:
            hits.append(i)
    assert len(hits) > 2
    assert CoverageDrift(level, arl=40, **settings).update_many(v, y).tolist() == hits
    assert many.to_bytes() == single.to_bytes()


@kinds
def test_a_restored_one_goes_on_bit_for_bit(level, settings):
    v, y = stream(level, settings)
    whole = fed(v[:130], y[:130], level, arl=60, warning_arl=9, **settings)
    others = [from_bytes(whole.to_bytes()), copy.deepcopy(whole), pickle.loads(pickle.dumps(whole))]
    want = whole.update_many(v[130:], y[130:]).tolist()
    for other in others:
        assert repr(other) == repr(whole)
        assert other.update_many(v[130:], y[130:]).tolist() == want
        assert other == whole


def test_the_state_is_small_and_does_not_grow():
    for level in LEVELS:
        drift = CoverageDrift(level)
        size = drift._buf.nbytes
        drift.update_many(claimed(level, 2_000), np.random.default_rng(12).random(2_000))
        assert drift._buf.nbytes == size < 16_000


def test_edges_belong_inside():
    """y <= v is covered, and so are both ends of an interval."""
    at = fed([0.5, 0.5], [0.5, 0.5], 0.9)
    assert at == fed([0.5, 0.5], [0.4, -1e300], 0.9)
    ends = fed([[0.0, 1.0]] * 3, [0.0, 1.0, 0.5], 0.9, interval=True)
    assert ends == fed([[0.0, 1.0]] * 3, [0.1, 0.2, 0.3], 0.9, interval=True)
    assert fed([[1.0, 2.0]], [1.0], (0.1, 0.9)) == fed([[1.0, 2.0]], [0.0], (0.1, 0.9))
    assert fed([[1.0, 2.0]], [2.0], (0.1, 0.9)) == fed([[1.0, 2.0]], [1.5], (0.1, 0.9))


@pytest.mark.parametrize("settings", [{"level": (0.1, 0.5, 0.9)}, {"level": 0.8, "interval": True}], ids=str)
@pytest.mark.parametrize("y", [0.0, 1.0, 2.0, 3.0, 4.0])
def test_edges_one_by_one_are_those_of_many(settings, y):
    v = [1.0, 3.0] if "interval" in settings else [1.0, 2.0, 3.0]
    single, many = CoverageDrift(**settings), CoverageDrift(**settings)
    single.update(v, y)
    many.update_many([v], [y])
    assert single == many


def test_infinite_quantiles_and_equal_ones_are_allowed():
    drift = CoverageDrift((0.1, 0.9))
    drift.update([-math.inf, math.inf], 0.0)
    assert drift.update_many([[-math.inf, math.inf], [1.0, 1.0]], [0.0, 1.0]).size == 0
    assert drift.n == 3
    assert fed([math.inf], [1.0], 0.9).n == fed([[-math.inf, 1.0]], [1.0], 0.9, interval=True).n == 1


# ---------------------------------------------------------------------------- reports


@kinds
def test_before_any_event_there_is_nothing_to_say(level, settings):
    drift = CoverageDrift(level, **settings)
    report = drift.report()
    assert (drift.evidence, drift.n, drift.alarms) == (0.0, 0, 0)
    assert report["event"] is report["onset"] is report["window"] is report["direction"] is None
    assert report["events"] == 0 and report["coverage"][0]["observed"] is None
    assert "no evidence" in report["text"]
    json.dumps(report, allow_nan=False)


def test_a_report_says_what_was_claimed_and_seen_since_the_onset():
    rng = np.random.default_rng(13)
    y = np.concatenate([rng.random(NU), rng.random(600) * 1.3 - 0.15])
    v = np.tile([0.05, 0.95], (y.size, 1))
    drift = CoverageDrift(0.9, interval=True)
    last = int(drift.update_many(v, y)[0])
    report = drift.history()[0]
    since = y[report["sums_since"] : last + 1]
    assert report["events"] == len(since)
    assert report["coverage"][0]["predicted"] == 0.9
    assert report["coverage"][0]["observed"] == pytest.approx(((since >= 0.05) & (since <= 0.95)).mean(), abs=1e-12)
    assert report["below"] == pytest.approx((since < 0.05).mean(), abs=1e-12)
    assert report["above"] == pytest.approx((since > 0.95).mean(), abs=1e-12)
    assert (report["direction"], report["level"]) == ("too narrow", 0.9)
    json.dumps(report, allow_nan=False)


def test_a_report_names_the_level_that_is_off():
    """Only the median is too low: 30 % of the outcomes moved from just below it to just above."""
    rng = np.random.default_rng(14)
    y = rng.random(3000)
    y[(y > 0.35) & (y < 0.5) & (np.arange(3000) >= NU)] += 0.15
    drift = CoverageDrift((0.1, 0.3, 0.5, 0.7, 0.9))
    drift.update_many(claimed(drift.level, 3000), y)
    report = next(r for r in drift.history() if r["event"] >= NU)
    assert (report["level"], report["direction"]) == (0.5, "too low")
    worst = min(report["coverage"], key=lambda row: row["gap"])
    assert worst["predicted"] == 0.5 and worst["observed"] == pytest.approx(0.35, abs=0.1)
    seen_of = [row["observed"] for row in report["coverage"]]
    assert seen_of == sorted(seen_of)


def test_an_alarm_can_be_read_until_the_next_event():
    drift = CoverageDrift(0.9, 50, warning_arl=5)
    warned = False
    while not drift.drift_detected:
        drift.update(0.0, 1.0)
        warned |= drift.warning_detected
    report = drift.report()
    assert warned and report["alarm"] and report["direction"] == "too low" and report == drift.history()[-1]
    drift.update(0.0, 1.0)
    assert drift.report()["run"] == 1 and drift.alarms == 1
    drift.reset()
    assert (drift.n, drift.alarms, drift.evidence) == (report["event"] + 2, 1, 0.0)


# ---------------------------------------------------------------------------- what is refused

ODD = [
    (math.nan, 0.5),
    (0.5, math.nan),
    (0.5, math.inf),
    (None, 0.5),
    (0.5, None),
    ("x", 0.5),
    (1j, 0.5),
    ([0.5, 0.6], 0.5),
]
ODD_PAIRS = [
    ([0.6, 0.5], 0.5),
    ([math.nan, 0.5], 0.5),
    ([0.5, math.nan], 0.5),
    ([0.5], 0.5),
    ([0.1, 0.2, 0.3], 0.2),
    (0.5, 0.5),
]
ODD_PAIRS += [(None, 0.5), ([0.1, None], 0.5), ([0.1, 0.9], -math.inf), ([0.1, 0.9], "y")]


@pytest.mark.parametrize(("v", "y"), ODD, ids=str)
def test_a_bad_event_of_one_level_is_refused_and_changes_nothing(v, y):
    drift = fed([0.5], [0.4], 0.9)
    before = drift.to_bytes()
    with pytest.raises(ValueError, match="v must be a number and y be a finite number, got"):
        drift.update(v, y)
    if not isinstance(v, list):
        with pytest.raises(ValueError):
            drift.update_many([0.5, v], [0.5, y])
    assert drift.to_bytes() == before


@pytest.mark.parametrize(("v", "y"), ODD_PAIRS, ids=str)
@pytest.mark.parametrize(("level", "settings"), [((0.1, 0.9), {}), (0.8, {"interval": True})], ids=str)
def test_a_bad_event_of_two_ends_is_refused_and_changes_nothing(level, settings, v, y):
    drift = fed([[0.5, 0.6]], [0.4], level, **settings)
    before = drift.to_bytes()
    with pytest.raises(ValueError, match="v must hold"):
        drift.update(v, y)
    with pytest.raises(ValueError):
        drift.update_many([[0.5, 0.6], v], [0.5, y])
    assert drift.to_bytes() == before


def test_crossed_quantiles_in_the_middle_are_refused():
    drift = CoverageDrift((0.1, 0.5, 0.9))
    with pytest.raises(ValueError, match="increasing order"):
        drift.update([0.1, 0.9, 0.5], 0.2)
    with pytest.raises(ValueError, match="at index 1"):
        drift.update_many([[0.1, 0.5, 0.9], [0.5, 0.4, 0.9]], [0.2, 0.2])
    with pytest.raises(ValueError, match="at index 0"):
        drift.update_many([[0.1, math.nan, 0.9]], [0.2])
    assert drift.n == 0


def test_shapes_are_named():
    with pytest.raises(ValueError, match=r"v must have shape \(n,\)"):
        CoverageDrift(0.9).update_many([[0.5]], [0.5])
    with pytest.raises(ValueError, match=r"v must have shape \(n, 2\)"):
        CoverageDrift((0.1, 0.9)).update_many([0.5], [0.5])
    with pytest.raises(ValueError, match=r"\(n, 2\)"):
        CoverageDrift(0.9, interval=True).update_many(np.zeros((3, 2)), [0.5])


def test_no_events_change_nothing():
    for level, settings, empty in ((0.9, {}, ()), ((0.1, 0.9), {}, (2,)), (0.9, {"interval": True}, (2,))):
        drift = CoverageDrift(level, **settings)
        alarms = drift.update_many(np.zeros((0, *empty)), [])
        assert alarms.tolist() == [] and alarms.dtype == np.int64
        assert drift == CoverageDrift(level, **settings)


UNFIT = [
    {"level": 0.0},
    {"level": 1.0},
    {"level": math.nan},
    {"level": None},
    {"level": "0.9x"},
    {"level": []},
    {"level": [0.9]},
    {"level": [0.9, 0.1]},
    {"level": [0.1, 0.1]},
    {"level": [0.1, 1.0]},
    {"level": np.linspace(0.01, 0.99, 24)},
    {"level": (0.1, 0.9), "interval": True},
    {"level": 0.9, "interval": "no"},
    {"level": 0.9, "tolerance": -0.1},
    {"level": 0.9, "tolerance": 0.95},
    {"level": 0.9, "arl": 0},
    {"level": 0.9, "warning_arl": 1e9},
]


@pytest.mark.parametrize("settings", UNFIT, ids=str)
def test_settings_that_are_not_allowed(settings):
    with pytest.raises(ValueError, match="must"):
        CoverageDrift(**settings)


@pytest.mark.parametrize("drift", [CoverageDrift(0.9), CoverageDrift(0.9, interval=True), CoverageDrift([0.1, 0.9])])
def test_no_events_change_nothing_and_text_is_no_forecast(drift):
    assert drift.update_many([], []).tolist() == [] and drift.n == 0
    for v in ("12", b"12", {1.0: 2.0, 3.0: 4.0}, {1.0, 2.0}):
        with pytest.raises(ValueError, match="v must"):
            drift.update(v, 1.5)
    assert drift.n == 0
