"""The harness on detectors whose run lengths and delays are known: coins, counters, thresholds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from drift_harness import (
    Delays,
    RunLength,
    chosen_run_length,
    delays,
    every,
    never,
    one_by_one,
    run_length,
    tune,
    watch,
)
from drift_streams import (
    CALIBRATED,
    CHANGES,
    QUIET,
    SHIFTS,
    beta,
    by_turns,
    calibrated,
    covered,
    distorted,
    given,
    normal_pits,
    off,
    one_bin,
    seasonal,
    uniform,
)

from streamcal.drift import CalibrationDrift


def above(level):
    """Alarms at a number above the level: a coin, of which uniform numbers are the tosses."""
    return lambda: lambda u: int((u > level).argmax()) if (u > level).any() else -1


def numbered(t, rng):
    """Events that are their own numbers."""
    return (t.astype(float),)


def zeros(t, rng):
    return (np.zeros(t.size),)


def ones(t, rng):
    return (np.ones(t.size),)


class Counting:
    """Alarms at every n-th event; remembers what it was updated with."""

    def __init__(self, n):
        self.n, self.seen, self.drift_detected, self.alarms = n, [], False, []

    def update(self, *event):
        self.seen.append(event)
        self.drift_detected = len(self.seen) % self.n == 0
        if self.drift_detected:
            self.alarms.append(len(self.seen) - 1)


class CountingMany(Counting):
    """The same, and takes what comes behind an alarm too, as ours do."""

    def update_many(self, x):
        start, before = len(self.seen), len(self.alarms)
        for value in x.tolist():
            self.update(value)
        return np.array(self.alarms[before:], dtype=np.int64) - start

    def history(self):
        return [{"event": a} for a in self.alarms]


# ---- kinds of detectors


def test_all_kinds_of_detectors_are_watched_alike():
    makes = (every(300), lambda: CountingMany(300), lambda: one_by_one(Counting(300)))
    for make in makes:
        assert run_length(make, zeros, 20) == RunLength(300.0, 0.0, 20, 6000)
    ours = lambda: one_by_one(CalibrationDrift(arl=60))  # noqa: E731
    assert run_length(ours, CALIBRATED["Beta(2,2)"], 30) == run_length(
        lambda: CalibrationDrift(arl=60), CALIBRATED["Beta(2,2)"], 30
    )


def test_what_is_no_detector_is_refused():
    with pytest.raises(ValueError, match="update_many"):
        watch(0.5)
    with pytest.raises(ValueError, match=r"n must be"):
        every(0)


def test_one_by_one_stops_at_the_alarm_and_shows_the_value():
    counting = Counting(3)
    first = one_by_one(counting, lambda p, y: y - p)
    assert first(np.array([0.25, 0.5]), np.array([1.0, 0.0])) == -1
    assert first(np.array([0.75, 0.5]), np.array([1.0, 0.0])) == 0
    assert counting.seen == [(0.75,), (-0.5,), (0.25,)]
    pairs = Counting(5)
    assert one_by_one(pairs)(np.array([0.25, 0.5]), np.array([1.0, 0.0])) == -1
    assert pairs.seen == [(0.25, 1.0), (0.5, 0.0)]


# ---- run lengths


@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 8192, 10_001])
def test_every_nth_event_has_run_length_n(n):
    found = run_length(every(n), zeros, 7)
    assert (found.mean, found.se, found.runs, found.events) == (n, 0.0, 7, 7 * n)
    assert found.per_100_000 == pytest.approx(1e5 / n)


@pytest.mark.parametrize("rate", [0.5, 0.02, 0.0005])
def test_a_coin_has_geometric_run_lengths(rate):
    """Mean 1 / rate and standard deviation sqrt(1 - rate) / rate; 4 standard errors."""
    found = run_length(above(1.0 - rate), uniform, 900, seed=3)
    assert abs(found.mean - 1 / rate) < 4 * math.sqrt(1 - rate) / rate / 30
    assert found.se == pytest.approx(math.sqrt(1 - rate) / rate / 30, rel=0.25)  # heavy tail: its own error is 5 %
    assert found.mean == found.events / 900


def test_runs_begin_behind_the_alarm_of_the_one_before():
    """Every event is seen once and in order, by one detector only."""
    seen = []

    def make():
        def first(x):
            i = int((x % 1000 == 999).argmax()) if (x % 1000 == 999).any() else -1
            seen.extend(x[: i + 1 if i >= 0 else None].tolist())
            return i

        return first

    assert run_length(make, numbered, 25).mean == 1000.0
    assert seen == list(range(25_000))


def test_a_run_without_an_alarm_counts_its_events():
    assert run_length(never, zeros, 3, most=5000) == RunLength(math.inf, math.inf, 0, 5000)
    assert run_length(never, zeros, 3, most=5000).per_100_000 == 0.0
    found = run_length(every(400), zeros, 100, most=1000)
    assert (found.mean, found.runs, found.events) == (500.0, 2, 1000)
    assert found.se == 500.0 / math.sqrt(2)
    one = run_length(every(400), zeros, 1)
    assert (one.mean, one.se) == (400.0, math.inf)


def test_a_cut_off_coin_is_not_biased():
    """Events over alarms, whatever the cut: 4 standard errors of 500 alarms."""
    found = run_length(above(0.99), uniform, 10_000, most=50_000)
    assert abs(found.mean - 100) < 4 * 100 / math.sqrt(500)


def test_the_same_seed_gives_the_same_and_another_gives_another():
    same = [run_length(above(0.99), uniform, 50, seed=5) for _ in range(2)]
    assert same[0] == same[1] != run_length(above(0.99), uniform, 50, seed=6)
    pair = [delays(above(0.99), zeros, uniform, 100, 5000, 20, seed=5).delays.tolist() for _ in range(2)]
    assert pair[0] == pair[1] != delays(above(0.99), zeros, uniform, 100, 5000, 20, seed=6).delays.tolist()


def test_claims_chosen_from_the_statistic_are_true_and_see_it():
    shares, claims = [], []

    def choose(share, p):
        shares.append(share)
        claims.append(p)
        return 0.5

    class Half:
        """Evidence counts up, an alarm at 10."""

        arl, evidence, drift_detected, ups = 10, 0, False, []

        def update(self, p, y):
            assert p == 0.5
            self.ups.append(y)
            self.evidence += 1
            self.drift_detected = self.evidence == self.arl

    found = chosen_run_length(Half, choose, runs=100)
    assert found == RunLength(10.0, 0.0, 100, 1000)
    assert shares == [i / 10 for i in range(10)] * 100
    assert abs(np.mean(Half.ups) - 0.5) < 4 * 0.5 / math.sqrt(1000)
    assert 0.2 < np.std(claims) < 0.25  # drawn: Beta(2, 2) has .224
    cut = chosen_run_length(Half, choose, runs=10**6, most=9000)
    assert (cut.runs, cut.events) == (1638, 2 * 8192)


# ---- delays


def test_a_jump_is_found_at_its_first_event():
    found = delays(above(0.5), zeros, ones, at=1000, horizon=100, runs=3)
    assert found.delays.tolist() == [1.0, 1.0, 1.0]
    assert (found.median, found.p90, found.missed, found.early, found.noted) == (1.0, 1.0, 0.0, 0, [])


@pytest.mark.parametrize("make", [every(700), lambda: CountingMany(700), lambda: one_by_one(Counting(700))])
@pytest.mark.parametrize(
    ("at", "delay", "early"), [(0, 700, 0), (1, 699, 0), (699, 1, 0), (700, 700, 1), (2000, 100, 2)]
)
def test_every_nth_has_the_delay_that_is_left(make, at, delay, early):
    """After an early alarm a new detector goes on from there."""
    found = delays(make, zeros, zeros, at=at, horizon=20_000, runs=2)
    assert found.delays.tolist() == [delay] * 2
    assert found.early == 2 * early


@pytest.mark.parametrize(("horizon", "missed"), [(100, 0.0), (99, 1.0)])
def test_a_delay_is_missed_behind_the_horizon(horizon, missed):
    found = delays(every(2100), zeros, zeros, at=2000, horizon=horizon, runs=4)
    assert found.missed == missed
    assert found.median == (math.inf if missed else 100.0)
    many = delays(lambda: CountingMany(2100), zeros, zeros, at=2000, horizon=horizon, runs=4)
    assert many.delays.tolist() == found.delays.tolist()


def test_a_coin_has_geometric_delays():
    """Median of a geometric law: log 2 / rate; a share of exp(-rate * horizon) is missed."""
    rate, runs = 0.01, 2000
    found = delays(above(1 - rate), uniform, uniform, at=50, horizon=200, runs=runs)
    left = (1 - rate) ** 200
    assert abs(found.missed - left) < 4 * math.sqrt(left * (1 - left) / runs)
    assert abs(found.within(math.log(2) / rate) - 0.5) < 4 * 0.5 / math.sqrt(runs) + rate
    assert abs(found.early / runs - 0.5) < 4 * math.sqrt(0.5 / runs)


def test_quantiles_of_delays_are_those_of_runs():
    found = Delays(np.array([5.0, 1.0, math.inf, 3.0]), 0)
    assert [found.quantile(q) for q in (0.01, 0.25, 0.26, 0.5, 0.75, 0.76, 1.0)] == [1, 1, 3, 3, 5, math.inf, math.inf]
    assert (found.median, found.p90, found.missed) == (3.0, math.inf, 0.25)
    assert [found.within(d) for d in (0, 1, 4, 1e9)] == [0.0, 0.25, 0.5, 0.75]


def test_the_events_do_not_depend_on_the_detector():
    """Common draws: a run shows the same events to every detector, however many it takes at a time."""
    shown = []

    def make():
        seen = []
        shown.append(seen)
        return lambda u: seen.extend(u.tolist()) or -1

    delays(make, zeros, uniform, at=10, horizon=1000, runs=2, seed=4)
    delays(make, zeros, uniform, at=10, horizon=300, runs=2, seed=4)
    assert shown[0][:310] == shown[2] and shown[1][:310] == shown[3]
    assert shown[0][10:] != shown[1][10:]
    assert [len(s) for s in shown] == [1010, 1010, 310, 310]


def test_numbers_of_events_go_on_through_the_change():
    seen = []
    delays(lambda: lambda t: seen.extend(t.tolist()) or -1, numbered, numbered, at=300, horizon=9000, runs=1)
    assert seen == list(range(9300))


def test_notes_are_taken_of_the_detector_that_alarmed():
    note = lambda detector: detector.history()[0]["event"]  # noqa: E731
    found = delays(lambda: CountingMany(1100), zeros, zeros, at=1000, horizon=500, runs=2, note=note)
    assert found.noted == [1099, 1099]
    late = delays(lambda: CountingMany(1100), zeros, zeros, at=1000, horizon=50, runs=2, note=note)
    assert late.noted == []


@pytest.mark.parametrize("wrong", [{"at": -1}, {"horizon": 0}, {"runs": 0}, {"runs": 1.5}])
def test_numbers_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        delays(never, zeros, zeros, **wrong)
    with pytest.raises(ValueError, match="runs"):
        run_length(never, zeros, 0)
    with pytest.raises(ValueError, match="runs"):
        chosen_run_length(never, runs=0)


# ---- equal run length


@pytest.mark.parametrize("between", [(1e-1, 1e-5), (1.0, 1e-9)])
def test_a_coin_is_tuned_to_its_rate(between):
    """Run length 1 / rate. The measured one is within precision of the target, and it is measured again on other draws."""
    found = tune(lambda rate: above(1 - rate), 250.0, uniform, between, precision=0.05, seed=1)
    assert 1 / found.parameter == pytest.approx(250, rel=4 * 0.05)
    assert found.reached and found.target == 250.0
    assert found.run_length.runs == 400 and found.run_length.se == pytest.approx(12.5, rel=0.3)
    assert found == tune(lambda rate: above(1 - rate), 250.0, uniform, between, precision=0.05, seed=1)


def test_a_counter_is_tuned_exactly():
    found = tune(lambda n: every(round(n)), 1000.0, zeros, (1.0, 1e5), precision=0.01)
    assert round(found.parameter) == pytest.approx(1000, rel=0.005)
    assert found.run_length.se == 0.0


def test_a_detector_that_cannot_be_that_rare_says_so():
    found = tune(lambda n: every(min(round(n), 50)), 1000.0, zeros, (1.0, 1e5), precision=0.1)
    assert not found.reached and found.run_length.mean == 50.0
    silent = tune(lambda n: never, 100.0, zeros, (1.0, 1e5), precision=0.1)
    assert not silent.reached and silent.run_length.mean == math.inf


@pytest.mark.parametrize("wrong", [{"between": (0.0, 1.0)}, {"precision": 1.0}, {"target": 0.5}])
def test_a_search_that_makes_no_sense_is_refused(wrong):
    said = {"target": 10.0, "between": (1.0, 2.0), **wrong}
    with pytest.raises(ValueError, match="between must be above 0"):
        tune(lambda n: never, stream=zeros, **said)


# ---- field report f1-of-always-fire


def f1(alarms, drifts, tolerance):
    """As detectors are often scored: a drift is found by an alarm within so many events behind it."""
    found = sum(any(d <= a < d + tolerance for a in alarms) for d in drifts)
    hits = sum(any(d <= a < d + tolerance for d in drifts) for a in alarms)
    precision, recall = hits / len(alarms), found / len(drifts)
    return 2 * precision * recall / max(precision + recall, 1e-9)


def test_dummies_show_what_the_measure_gives_away():
    """Alarm every 100 events: its F1 rises tenfold with the density of drifts; its run length and delay stay what they are."""
    n, scores = 20_000, []
    for count in (5, 50):
        drifts = np.linspace(0, n, count, endpoint=False) + 37
        scores.append(f1(range(99, n, 100), drifts, 100))
    assert scores[0] < 0.06 and scores[1] > 0.35
    assert run_length(every(100), CALIBRATED["Beta(2,2)"], 20).mean == 100.0
    for at in (1000, 3000):
        found = delays(every(100), CALIBRATED["Beta(2,2)"], CHANGES["too extreme 2"], at, 500, 5)
        assert found.median == 100.0 and found.early == 5 * at / 100
    assert delays(every(1), CALIBRATED["Beta(2,2)"], CHANGES["too extreme 2"], 50, 500, 5).median == 1.0
    assert delays(never, CALIBRATED["Beta(2,2)"], CHANGES["too extreme 2"], 50, 500, 5).missed == 1.0


# ---- streams


@pytest.mark.parametrize("name", [*CALIBRATED, *(f"quiet {q}" for q in QUIET)])
def test_calibrated_streams_are(name):
    """In ten bins the gap is within 4.5 standard errors of nothing."""
    stream = QUIET[name.removeprefix("quiet ")] if name.startswith("quiet ") else CALIBRATED[name]
    p, y = stream(np.arange(40_000), np.random.default_rng(1))
    for m in range(10):
        bin = (p > m / 10) & (p <= (m + 1) / 10)
        se = math.sqrt((p[bin] * (1 - p[bin])).sum())
        assert abs((y[bin] - p[bin]).sum()) <= 4.5 * se + 1e-9


def fitted(p, y):
    """Slope and intercept of the outcomes on the log odds of the claims, by Newton steps."""
    x, theta = np.stack([np.log(p) - np.log1p(-p), np.ones_like(p)]), np.array([1.0, 0.0])
    for _ in range(30):
        q = 1 / (1 + np.exp(-theta @ x))
        theta -= np.linalg.solve((x * (q * (1 - q))) @ x.T, x @ (q - y))
    return theta


@pytest.mark.parametrize(("slope", "shift"), [(1.0, 0.0), (2.0, 0.0), (0.6, 0.0), (1.0, 0.5), (1.5, -1.0)])
def test_distorted_claims_are_undone_by_their_inverse(slope, shift):
    """logit(q) = (logit(p) - shift) / slope; 4 % is over 4 standard errors of 100,000 events."""
    p, y = distorted(beta(2, 2), slope, shift)(np.arange(100_000), np.random.default_rng(2))
    assert fitted(p, y) == pytest.approx([1 / slope, -shift / slope], abs=0.04)


def test_gaps_are_in_their_bins_only():
    p, y = off(beta(1, 1), one_bin(7, -0.3))(np.arange(100_000), np.random.default_rng(3))
    for m in range(10):
        bin = (p > m / 10) & (p <= (m + 1) / 10)
        assert (y[bin] - p[bin]).mean() == pytest.approx(-0.3 if m == 7 else 0.0, abs=0.025)
    p, y = off(lambda t, rng: np.tile([0.7, 0.8, 0.1, 0.05], 1000), [0.0] * 7 + [-9.0, 0.0, 0.0])(
        np.arange(4000), np.random.default_rng(3)
    )
    assert y[p == 0.8].sum() == 0 and y[p == 0.7].mean() > 0.6  # bins are closed above; what falls below 0 is cut


def test_seasons_and_turns_go_by_the_numbers_of_the_events():
    rng = np.random.default_rng(4)
    t = np.arange(70_000)
    base = seasonal(period=700)(t, rng).reshape(-1, 700).mean(0)
    assert base[100:250].min() > 0.55 and base[450:600].max() < 0.25
    assert (by_turns(lambda t, rng: np.zeros(t.size), lambda t, rng: np.ones(t.size), 3)(t[4:12], rng)).tolist() == [
        1, 1, 0, 0, 0, 1, 1, 1
    ]  # fmt: skip


def test_pits_of_right_forecasts_are_uniform_and_others_are_not():
    (u,) = normal_pits()(np.arange(20_000), np.random.default_rng(5))
    assert np.abs(np.sort(u) - (np.arange(20_000) + 0.5) / 20_000).max() < 1.95 / math.sqrt(20_000)  # Kolmogorov, .001
    for name, stream in SHIFTS.items():
        (u,) = stream(np.arange(20_000), np.random.default_rng(6))
        assert np.abs(np.sort(u) - (np.arange(20_000) + 0.5) / 20_000).max() > 1.95 / math.sqrt(20_000), name


@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_quantiles_cover_what_is_asked(share):
    v, y = covered(share)(np.arange(50_000), np.random.default_rng(7))
    assert (y <= v).mean() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 50_000))


def test_a_given_stream_is_measured_to_its_end():
    for n in (100, 8192, 20_000):
        seen = []
        found = run_length(
            lambda seen=seen: lambda p, y: seen.extend(p.tolist()) or -1, given(np.arange(n), np.zeros(n)), 5, most=n
        )
        assert (found.runs, found.events) == (0, n) and seen == list(range(n))
    assert run_length(every(30), given(np.zeros(100)), 1000, most=100) == RunLength.of([30] * 3, 10)


def test_streams_depend_on_the_generator_only():
    for stream in itertools.chain(CALIBRATED.values(), CHANGES.values(), SHIFTS.values(), [calibrated(beta(2, 2))]):
        one, two = (stream(np.arange(100), np.random.default_rng(8)) for _ in range(2))
        assert all((a == b).all() for a, b in zip(one, two))
