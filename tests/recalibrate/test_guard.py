"""A guard is never more than ln K nats worse than any of its experts, whatever the data."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest
from conftest import sized
from hypothesis import given
from hypothesis import strategies as st

from streamcal import IsotonicCalibration, PlattScaling, Sliding, UniformMass, from_bytes
from streamcal.recalibrate import (
    Calibeating,
    Chain,
    FosterForecaster,
    Frozen,
    Guard,
    OnlineHistogram,
    OnlineIsotonic,
    OnlinePlatt,
    QuantileTracker,
    Refit,
)
from streamcal.recalibrate.guard import Weights

streams = st.lists(
    st.tuples(st.sampled_from([0.0, 1e-9, 0.1, 0.3, 0.5, 0.8, 0.99, 1.0]), st.sampled_from([0.0, 1.0, 0.4])),
    min_size=1,
    max_size=60,
)
experts = st.lists(
    st.sampled_from([OnlinePlatt(), OnlinePlatt(forgetting=0.9), OnlineHistogram(), Calibeating(), OnlineIsotonic()]),
    min_size=1,
    max_size=4,
)


def log_losses(q, y, w=1.0):
    """Log loss of each event, of forecasts read as at least 1e-15 from 0 and 1."""
    inner = np.clip(q, 1e-15, 1.0 - 1e-15)
    return w * -(y * np.log(inner) + (1.0 - y) * np.log1p(-inner))


def alone(expert, p, y, w=None):
    return from_bytes(expert.to_bytes()).run(p, y, w)


@given(streams, experts)
def test_the_excess_over_every_expert_is_at_most_ln_k_at_every_time(stream, given_experts):
    p, y = np.array(stream).T
    guard = Guard(given_experts)
    own = np.cumsum(log_losses(guard.run(p, y), y))
    for forecasts in [p, *(alone(expert, p, y) for expert in given_experts)]:
        assert (own - np.cumsum(log_losses(forecasts, y)) <= math.log(len(given_experts) + 1) + 1e-9).all()


@given(streams, experts, st.floats(1e-4, 0.5), st.data())
def test_fixed_share_is_near_every_sequence_of_experts(stream, given_experts, share, data):
    p, y = np.array(stream).T
    k, n = len(given_experts) + 1, p.size
    losses = np.array([log_losses(q, y) for q in [p, *(alone(expert, p, y) for expert in given_experts)]])
    path = np.array(data.draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)))
    changes = int((np.diff(path) != 0).sum())
    own = log_losses(Guard(given_experts, share=share).run(p, y), y).sum()
    stay = (n - 1 - changes) * math.log(1.0 / (1.0 - share + share / k))
    bound = math.log(k) + changes * math.log(k / share) + stay
    assert own - losses[path, np.arange(n)].sum() <= bound + 1e-9
    best = losses.sum(1).min()
    assert own - best <= math.log(k) + (n - 1) * math.log(1.0 / (1.0 - share + share / k)) + 1e-9


@given(streams, st.lists(st.floats(0.0, 3.0), min_size=60, max_size=60))
def test_weights_up_to_the_largest_cost_that_many_times_ln_k(stream, weights):
    (p, y), w = np.array(stream).T, np.array(weights[: len(stream)])
    given_experts = [OnlinePlatt(), OnlineHistogram()]
    own = log_losses(Guard(given_experts, max_weight=3.0).run(p, y, w), y, w).sum()
    for forecasts in [p, *(alone(expert, p, y, w) for expert in given_experts)]:
        assert own - log_losses(forecasts, y, w).sum() <= 3.0 * math.log(3) + 1e-9


@given(streams, experts, st.sampled_from([0.0, 0.01]))
def test_the_textbook_mixture(stream, given_experts, share):
    p, y = np.array(stream).T
    forecasts = np.array([p, *(alone(expert, p, y) for expert in given_experts)]).T
    want = naive.mixture(forecasts.tolist(), y.tolist(), share)
    assert Guard(given_experts, share=share).run(p, y) == pytest.approx(want, abs=1e-9)


def test_weights_and_losses_are_visible():
    rng = np.random.default_rng(0)
    p = rng.random(3000)
    y = (rng.random(3000) < p**2).astype(float)
    guard = Guard([OnlinePlatt(), OnlinePlatt(), FosterForecaster()])
    out = guard.run(p, y)
    assert list(guard.weights) == ["raw", "OnlinePlatt()", "OnlinePlatt() #2", "FosterForecaster()"]
    assert list(Guard().weights) == ["raw", "platt", "forgetting", "tracking"]
    assert list(Guard([OnlinePlatt()], names=["mine"]).losses) == ["raw", "mine", "guard"]
    assert sum(guard.weights.values()) == pytest.approx(1.0)
    assert guard.weights["OnlinePlatt()"] == pytest.approx(0.5, abs=1e-6)
    assert guard.losses["raw"] == pytest.approx(log_losses(p, y).sum())
    assert guard.losses["guard"] == pytest.approx(log_losses(out, y).sum())
    report = guard.report()
    assert [e["bound"] for e in report["experts"]] == pytest.approx([math.log(4)] * 4)
    assert [e["expert"] for e in report["experts"]] == list(guard.weights)
    assert all(e["excess"] <= e["bound"] + 1e-9 for e in report["experts"])
    shared = Guard(share=0.1)
    shared.run(p[:100], y[:100])
    want = math.log(4) - 99 * math.log(0.9 + 0.1 / 4)
    assert [e["bound"] for e in shared.report()["experts"]] == pytest.approx([want] * 4)


def test_an_expert_that_was_hopeless_for_long_can_come_back():
    """Weights live as logarithms: one that fell to e^-2000 is not lost."""
    n = sized(2000, 1000)  # zeros and then ones; a weight falls by .9 nats at each
    y, p = np.repeat([0.0, 1.0, 1.0, 1.0], n), np.full(4 * n, 0.6)
    guard = Guard([OnlineHistogram(prior=1e9)])  # the raw forecast again, by another name
    chain = Guard([Chain(OnlinePlatt(), OnlineHistogram())])
    for one in (guard, chain):
        own = np.cumsum(log_losses(one.run(p, y), y))
        assert (own - np.cumsum(log_losses(p, y)) <= math.log(2) + 1e-9).all()


def test_a_raw_forecast_that_was_sure_and_wrong():
    guard = Guard()
    guard.learn_one(0.0, 1.0)
    assert guard.losses["raw"] == pytest.approx(-math.log(1e-15))
    assert 0.0 < guard.predict_one(0.0) < 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Guard([]), "at least one online recalibrator"),
        (lambda: Guard(OnlinePlatt()), "experts must be a list"),
        (lambda: Guard([QuantileTracker()]), "every expert must recalibrate probabilities"),
        (lambda: Guard([PlattScaling()]), r"put it into Refit\(...\) or, fitted, into Frozen"),
        (lambda: Guard([OnlinePlatt()], names=["raw"]), "names must hold 1 different names, not raw or guard"),
        (lambda: Guard(names=["a", "b"]), "names must hold 3"),
        (lambda: Guard(raw_weight=1.0), r"raw_weight must lie in \(0, 1\)"),
        (lambda: Guard(clip=0.5), r"clip must lie in \[1e-15, 0.1\]"),
        (lambda: Guard().predict_one(1.5), r"^p must lie in \[0, 1\], got 1.5$"),
        (lambda: Guard(share=1.0), r"share must lie in \[0, 1\), got 1.0"),
        (lambda: Guard(share=-0.1), "share must lie in"),
        (lambda: Guard(max_weight=0.0), "max_weight must lie in"),
        (lambda: Guard([0.5]), "every expert must be an online recalibrator"),
        (lambda: Guard().learn_one(0.5, 1.0, 1.5), r"the weight in \[0, 1\], got 0.5, 1.0, 1.5"),
        (lambda: Guard().run([0.5], [1.0], [1.5]), "at index 0"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_documents_that_no_guard_wrote():
    guard = Guard()
    guard.learn_one(0.5, 1.0)
    config, arrays = guard._state()
    for view, at, value in (
        ("settings", 0, 9.0),
        ("settings", 1, 0.5),
        ("settings", 2, 2.0),
        ("settings", 3, 0.01),
        ("start", 0, 0.5),
        ("weights", 1, 2.0),
        ("logs", 0, 1.0),
        ("logs", 0, math.inf),
        ("losses", 0, math.nan),
    ):
        broken = arrays["_learned"].copy()
        getattr(Weights(broken, 4), view)[at] = value
        with pytest.raises(ValueError, match="do not fit"):
            Guard._restore(config, {**arrays, "_learned": broken})


@pytest.mark.statistical
@pytest.mark.jit
def test_a_million_events_keep_the_bound():
    rng = np.random.default_rng(1)
    p = rng.random(1_000_000)
    y = (rng.random(1_000_000) < np.where(np.arange(1_000_000) < 500_000, p, 1 - p)).astype(float)
    given_experts = [OnlinePlatt(), OnlinePlatt(forgetting=0.99)]
    own = np.cumsum(log_losses(Guard(given_experts).run(p, y), y))
    for forecasts in [p, *(alone(expert, p, y) for expert in given_experts)]:
        assert (own - np.cumsum(log_losses(forecasts, y))).max() <= math.log(3) + 1e-6  # rounding of 1e6 sums of 1e6


@given(streams, experts, st.floats(0.01, 0.99))
def test_a_raw_weight_bounds_the_harm(stream, given_experts, raw_weight):
    p, y = np.array(stream).T
    own = np.cumsum(log_losses(Guard(given_experts, raw_weight=raw_weight).run(p, y), y))
    assert (own - np.cumsum(log_losses(p, y)) <= -math.log(raw_weight) + 1e-9).all()
    other = (1.0 - raw_weight) / len(given_experts)
    for expert in given_experts:
        assert (own - np.cumsum(log_losses(alone(expert, p, y), y)) <= -math.log(other) + 1e-9).all()


def test_a_raw_weight_keeps_the_first_forecasts_near():
    rng = np.random.default_rng(0)
    p = rng.random(300)
    y = (rng.random(300) < p).astype(float)
    moved = [np.abs(Guard(raw_weight=r).run(p, y) - p).max() for r in (0.25, 0.9, 0.999)]
    assert moved[2] < moved[1] < moved[0]


def test_a_clip_keeps_an_expert_that_was_sure_and_wrong():
    """An isotonic map says exactly 0 where nothing has come true yet; with a clip that is no death sentence."""
    rng = np.random.default_rng(0)
    p = rng.random(sized(20_000, 3_000))
    y = (rng.random(p.size) < 0.03 + 0.94 * p).astype(float)
    expert = Refit(IsotonicCalibration(), Sliding(UniformMass(15), 500), every=100)
    name = "isotonic"
    harsh, mild = Guard([expert], names=[name]), Guard([expert], names=[name], clip=0.02)
    harsh.run(p, y)
    mild.run(p, y)
    assert mild.losses[name] < harsh.losses[name]
    own = np.cumsum(log_losses(Guard([expert], clip=0.02).run(p, y), y))
    clipped = np.clip(alone(expert, p, y), 0.02, 0.98)
    for forecasts in (p, clipped):
        assert (own - np.cumsum(log_losses(forecasts, y)) <= math.log(2) + 1e-9).all()


def test_a_map_in_production_can_be_guarded():
    rng = np.random.default_rng(0)
    p = rng.random(4000)
    y = (rng.random(4000) < p**2).astype(float)
    fitted = PlattScaling().fit(p[:1000], y[:1000])
    guard = Guard([Frozen(fitted)])
    out = guard.run(p[1000:], y[1000:])
    assert guard.weights["Frozen(recalibrator=PlattScaling(targets='smooth'))"] > 0.99
    assert out[-1] == pytest.approx(fitted.predict(p[-1:])[0], abs=1e-6)
    one = Frozen(fitted)
    assert one.predict_one(0.3) == fitted.predict([0.3])[0]
    one.learn_one(0.3, 1.0)
    again = from_bytes(one.to_bytes())
    assert again.report()["count"] == 1.0 and again.predict_one(0.3) == one.predict_one(0.3)
    with pytest.raises(ValueError, match="not fitted"):
        Frozen(PlattScaling())
    with pytest.raises(ValueError, match="fitted Recalibrator"):
        Frozen(OnlinePlatt())
    for bad in (math.nan, None, 2.0):
        with pytest.raises(ValueError, match="must lie in"):
            one.predict_one(bad)
        with pytest.raises(ValueError, match="must lie in"):
            one.learn_one(0.5, bad)


def test_names_stay_as_they_are_given():
    guard = Guard([OnlinePlatt(), OnlinePlatt(forgetting=0.9)], names=["a #2", "a"])
    guard.learn_one(0.3, 1)
    assert list(guard.weights) == ["raw", "a #2", "a"] and sum(guard.weights.values()) == pytest.approx(1.0)
    assert len(guard.report()["experts"]) == 3
