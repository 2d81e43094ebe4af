"""QuantileTracker: its bound on any stream, an adversary's too, the integral term, the report and the state."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import Quantile, from_bytes
from streamcal.recalibrate.online import ONLINE
from streamcal.recalibrate.quantile_tracking import EXCESS, OFFSET, QuantileTracker

levels = st.floats(0.01, 0.99)
rates = st.sampled_from((0.003, 0.05, 0.5, 3.0))
scores = st.one_of(st.floats(-1.0, 1.0), st.sampled_from((-1.0, 0.0, 1.0)))
integrators = st.one_of(st.none(), st.tuples(st.sampled_from((0.01, 1.0, 50.0)), st.sampled_from((0.01, 0.2, 2.0))))
real_events = st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.sampled_from((0.0, 1.0, 1.0, 0.3, 4.0)))


def naive(level, lr, integrator, events):
    """The definition, line by line: all forecasts, and S at the end."""
    offset = s = t = 0.0
    forecasts = []
    for v, y, w in events:
        q = v + offset
        if integrator is not None:
            gain, span = integrator
            angle = s * math.log(t + 1.0) / (span * (t + 1.0))
            q = v + (offset + gain * math.tan(min(max(angle, -math.pi / 2), math.pi / 2)))
        forecasts.append(q)
        step = w * ((y > q) - (1.0 - level))
        offset, s, t = offset + lr * step, s + step, t + w
    return forecasts, s


@given(levels, rates, integrators, st.lists(real_events, max_size=40))
def test_it_is_its_definition(level, lr, integrator, events):
    tracker = QuantileTracker(level, lr, integrator)
    forecasts, s = naive(level, lr, integrator, events)
    v, y, w = np.array(events).reshape(-1, 3).T
    assert tracker.run(v, y, w).tolist() == pytest.approx(forecasts, rel=1e-13, abs=1e-13)
    assert tracker._buf[EXCESS] == pytest.approx(s, rel=1e-12, abs=1e-12)


def play(tracker, level, choose, steps):
    """(mean errors - alpha summed, after each step) against outcomes chosen when the forecast is known."""
    total, path = 0.0, []
    for t in range(steps):
        q = tracker.predict_one(0.0)
        y = choose(t, q)
        tracker.learn_one(0.0, y)
        total += (y > q) - (1.0 - level)
        path.append(total)
    return path


def assert_bound(path, lr, b):
    for t, total in enumerate(path, 1):
        assert abs(total) / t <= (b + lr) / (lr * t)


@given(levels, rates, integrators, st.floats(0.01, 3.0), st.lists(scores, min_size=1, max_size=200))
def test_the_error_rate_bound_on_any_stream(level, lr, integrator, b, stream):
    tracker = QuantileTracker(level, lr, integrator)
    assert_bound(play(tracker, level, lambda t, q: b * stream[t], len(stream)), lr, b)


@given(levels, rates, integrators, st.floats(0.01, 3.0), st.lists(st.booleans(), min_size=1, max_size=200))
def test_the_error_rate_bound_against_who_saw_the_forecast(level, lr, integrator, b, misses):
    """Wherever a score in [-b, b] can do it, there is a miss where the adversary wants one, and a hit where not."""
    tracker = QuantileTracker(level, lr, integrator)

    def choose(t, q):
        just_above = min(max(math.nextafter(q, math.inf), -b), b)
        return just_above if misses[t] else max(min(q, b), -b)

    assert_bound(play(tracker, level, choose, len(misses)), lr, b)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_the_bound_is_nearly_reached(level):
    """An offset just below b is missed once more: b + level * lr of the b + lr that are allowed."""
    lr = 0.05
    b = math.nextafter(20 * lr * level, math.inf) * (1 + 1e-9)
    path = play(QuantileTracker(level, lr), level, lambda t, q: b, 21)
    assert 0.99 * (b + lr * level) / lr <= path[-1] <= (b + lr) / lr


@given(levels, rates, st.lists(st.tuples(scores, st.floats(0.01, 5.0)), min_size=1, max_size=100))
def test_the_bound_with_weights(level, lr, stream):
    y, w = np.array(stream).T
    q = QuantileTracker(level, lr).run(np.zeros(y.size), y, w)
    total = np.cumsum(w * ((y > q) - (1.0 - level)))
    assert (np.abs(total) <= (1.0 + lr * np.maximum.accumulate(w)) / lr * (1 + 1e-12)).all()


@given(
    levels,
    st.sampled_from((1e-9, 0.05)),
    st.sampled_from((0.01, 1.0)),
    st.sampled_from((0.02, 0.2, 1.0)),
    st.lists(st.sampled_from((-5.0, -1.0, 0.0, 1.0, 5.0, math.inf, -math.inf)), min_size=3, max_size=300),
)
def test_the_integral_term_has_a_bound_of_its_own(level, lr, gain, span, wishes):
    """Also with no lr to speak of, jumps of the scale, and an adversary (inf: a miss if 5 can do it, -inf: a hit)."""
    tracker = QuantileTracker(level, lr, (gain, span))

    def choose(t, q):
        if math.isinf(wishes[t]):
            q = min(max(q, -5.0), 5.0)
            return min(math.nextafter(q, math.inf), 5.0) if wishes[t] > 0 else q
        return wishes[t]

    path = play(tracker, level, choose, len(wishes))
    for t, total in enumerate(path, 1):
        if t >= 3:
            assert abs(total) <= math.pi / 2 * span * (t + 1) / math.log(t + 1) + 1


@pytest.mark.statistical
@pytest.mark.jit
def test_the_integral_bound_on_long_streams():
    rng = np.random.default_rng(5)
    y = np.concatenate([rng.random(20_000), 5 * rng.random(20_000), rng.normal(0, 0.1, 20_000)])
    for level, span in ((0.9, 0.05), (0.5, 0.5), (0.99, 2.0)):
        q = QuantileTracker(level, 1e-6, (1.0, span)).run(np.zeros(y.size), y)
        total, t = np.cumsum((y > q) - (1 - level)), np.arange(1, y.size + 1)
        bound = np.pi / 2 * span * (t + 1) / np.log(t + 1) + 1
        assert (np.abs(total) <= bound)[2:].all()


@given(
    st.sampled_from((1e-100, 1.0, 1e100)),
    st.sampled_from((None, (1e-100, 1e-100), (1e100, 1e-100), (1e100, 1e100), (1.0, 1e-300))),
    st.lists(
        st.tuples(*[st.sampled_from((-1e100, -1.0, 0.0, 1.0, 1e100))] * 2, st.sampled_from((1e-300, 1.0, 1e100))),
        max_size=30,
    ),
)
def test_forecasts_are_finite_whatever_the_numbers(lr, integrator, events):
    tracker = QuantileTracker(0.9, lr, integrator)
    for v, y, w in events:
        tracker.learn_one(v, y, w)
        assert math.isfinite(tracker.predict_one(v))
    assert np.isfinite(tracker._buf).all()
    assert from_bytes(tracker.to_bytes()).to_bytes() == tracker.to_bytes()
    report = tracker.report()
    assert not events or math.isfinite(report["width"]["mean"] + report["width"]["standard_deviation"])


def test_a_miss_and_a_hit():
    tracker = QuantileTracker(0.75, lr=0.4)
    assert tracker.predict_one() == 0.0
    assert tracker.predict_one(-7.25) == -7.25
    tracker.learn_one(2.0, 3.0)
    assert tracker.predict_one() == 0.4 * 0.75
    tracker.learn_one(2.0, 2.0, 2.0)
    assert tracker.predict_one() == pytest.approx(0.4 * 0.75 - 2 * 0.4 * 0.25)
    tracker.learn_one(2.0, 2.0 + tracker.predict_one())  # an outcome on the forecast is covered
    assert tracker.predict_one() == pytest.approx(0.0, abs=1e-15)


def test_the_integral_term_is_in_the_offset():
    tracker = QuantileTracker(0.9, 0.1, (2.0, 0.5))
    tracker.learn_one(0.0, 1.0)
    expected = 0.09 + 2.0 * math.tan(0.9 * math.log(2.0) / (0.5 * 2.0))
    assert tracker.predict_one() == pytest.approx(expected, rel=1e-12)
    assert tracker._buf[OFFSET] == pytest.approx(0.09)
    assert tracker.integrator == (2.0, 0.5)


def test_where_the_integral_term_saturates():
    """The float below pi/2: all outcomes up to 1.6e16 K_I are covered, as the bound needs, and the forecast is a number."""
    tracker = QuantileTracker(0.9, 1e-9, (1.0, 1e-6))
    tracker.learn_one(0.0, 1.0)
    assert 1.6e16 < tracker.predict_one() < 1.7e16


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1.0001e100, None, "x"])
def test_what_is_no_number_is_refused(bad):
    tracker = QuantileTracker()
    tracker.learn_one(5.0, -3.0)
    before = tracker.to_bytes()
    for call in (
        lambda: tracker.predict_one(bad),
        lambda: tracker.learn_one(bad, 1.0),
        lambda: tracker.learn_one(1.0, bad),
        lambda: tracker.learn_one(1.0, 1.0, bad),
        lambda: tracker.run([1.0, bad], [2.0, 2.0]),
        lambda: tracker.run([1.0, 2.0], [2.0, bad]),
    ):
        with pytest.raises(ValueError):
            call()
        assert tracker.to_bytes() == before
    with pytest.raises(ValueError, match=r"v and y must lie in \[-1e100, 1e100\].* at index 1"):
        tracker.run([1.0, math.nan], [2.0, 2.0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"level": 1.0}, "level must lie"),
        ({"lr": 0.0}, r"lr must be a number in \(0, 1e\+100\], got 0.0"),
        ({"lr": math.nan}, "lr must"),
        ({"lr": True}, "lr must"),
        ({"integrator": 1.0}, "integrator must be None or two numbers"),
        ({"integrator": (1.0,)}, "integrator must"),
        ({"integrator": "ab"}, "integrator must"),
        ({"integrator": (1.0, 0.0)}, "K_I and C must"),
        ({"integrator": (-1.0, 1.0)}, "K_I and C must"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        QuantileTracker(**settings)


def test_coverage_is_reported_beside_the_width():
    rng = np.random.default_rng(0)
    v = rng.normal(size=20_000)
    y = v + rng.normal(size=20_000)
    tracker = QuantileTracker(0.9, lr=0.02)
    q = tracker.run(v, y)
    report = tracker.report()
    assert report["coverage"] == {
        "before": pytest.approx(np.mean(y <= v)),
        "after": pytest.approx(np.mean(y <= q)),
        "nominal": 0.9,
    }
    assert report["width"]["mean"] == pytest.approx((q - v).mean(), rel=1e-12)
    assert report["width"]["standard_deviation"] == pytest.approx((q - v).std(), rel=1e-9)
    assert report["count"] == 20_000
    losses = [report[side]["metrics"]["pinball_loss"]["value"] for side in ("before", "after")]
    assert losses[1] < losses[0]
    assert tracker.compared.window.claim == Quantile(0.9)
    assert report["before"]["bins_used"] == 1


@pytest.mark.jit
def test_a_large_lr_covers_with_useless_forecasts():
    """The reason why coverage is not to be read alone: both cover, one with forecasts that swing over the range of y."""
    y = np.random.default_rng(1).normal(size=20_000)
    small, large = QuantileTracker(0.9, lr=0.02), QuantileTracker(0.9, lr=20.0)
    for tracker in (small, large):
        tracker.run(np.zeros(y.size), y)
        assert abs(tracker.report()["coverage"]["after"] - 0.9) < 0.005
    widths = [tracker.report()["width"]["standard_deviation"] for tracker in (small, large)]
    assert widths[0] < 0.2 and widths[1] > 5.0
    losses = [tracker.report()["after"]["metrics"]["pinball_loss"]["value"] for tracker in (small, large)]
    assert losses[1] > 5 * losses[0]


def test_the_width_of_large_numbers_does_not_cancel():
    tracker = QuantileTracker(0.5, lr=1.0)
    y = 1e9 + np.random.default_rng(2).normal(size=1000)
    tracker._buf[OFFSET] = 1e9
    q = tracker.run(np.zeros(1000), y)
    assert tracker.report()["width"]["standard_deviation"] == pytest.approx(q.std(), rel=1e-6)


def test_nothing_seen():
    report = QuantileTracker().report()
    assert math.isnan(report["width"]["mean"]) and math.isnan(report["width"]["standard_deviation"])
    assert math.isnan(report["coverage"]["after"]) and report["coverage"]["nominal"] == 0.9


@pytest.mark.parametrize("integrator", [None, (0.5, 0.25)])
def test_the_document_keeps_the_settings(integrator):
    tracker = QuantileTracker(0.8, 0.1, integrator)
    tracker.run([0.0, 1.0, 2.0], [1.0, 0.0, 5.0])
    again = from_bytes(tracker.to_bytes())
    assert repr(again) == repr(tracker) and again.integrator == integrator
    assert again.predict_one(0.3) == tracker.predict_one(0.3)
    assert ONLINE["quantile-tracker"] is QuantileTracker


@pytest.mark.parametrize(
    ("place", "value"),
    [(OFFSET, 1e300), (OFFSET, math.nan), (0, 1.5), (0, -1.0), (1, 0.0), (3, -1.0), (EXCESS, 9.0), (6, 0.5), (7, 9.0)],
)
def test_a_document_with_other_numbers_is_refused(place, value):
    tracker = QuantileTracker()
    tracker.run([0.0, 0.0], [1.0, 2.0])
    tracker._buf[place] = value
    with pytest.raises(ValueError, match="does not fit"):
        from_bytes(tracker.to_bytes())
