"""The contract of every online recalibrator: each test runs over streamcal.recalibrate.ONLINE, and over CASES of settings."""

from __future__ import annotations

import copy
import functools
import importlib
import math
import pickle
import pkgutil
import threading

import numpy as np
import pytest
from conftest import sized
from hypothesis import given
from hypothesis import strategies as st

import streamcal.recalibrate
from streamcal import Cumulative, EqualWidth, Fading, Grid, IsotonicCalibration, Sliding, UniformMass, from_bytes
from streamcal.recalibrate import (
    ONLINE,
    Chain,
    Guard,
    MultivalidMean,
    OnlineMarginal,
    OnlinePlatt,
    PlattScaling,
    QuantileTracker,
    Refit,
)
from streamcal.state import restorable, to_bytes

for found in pkgutil.iter_modules(streamcal.recalibrate.__path__):
    importlib.import_module(f"streamcal.recalibrate.{found.name}")

# settings besides the defaults: (name, arguments)
SETTINGS = [
    ("histogram", {"window": Sliding(EqualWidth(7), 40)}),
    ("histogram", {"window": Fading(EqualWidth(7), 30), "prior": 0.0}),
    ("isotonic", {"window": Sliding(Grid(20), 40), "prior": 0.5}),
    ("isotonic", {"window": Fading(EqualWidth(15), 30)}),
    ("platt", {"forgetting": 0.99}),
    ("beta", {"forgetting": 0.99}),
    ("calibeating", {"method": "hedging"}),
    ("foster", {"m": 7, "seed": 3}),
    ("guard", {"share": 0.01}),
    ("guard", {"raw_weight": 0.9, "names": ["a", "b", "c"]}),
    ("guard", {"experts": [OnlinePlatt(), OnlinePlatt()], "max_weight": 1e100}),
    ("refit", {"recalibrator": IsotonicCalibration(), "every": 7}),
    ("refit", {"window": Cumulative(UniformMass(15, bits=7)), "every": 7}),
    ("refit", {"window": Fading(UniformMass(15, bits=7), 100), "every": 13}),
    ("patching", {"window": Sliding(Grid(20), 60), "m": 20}),
    ("patching", {"window": Fading(Grid(20), 50), "m": 20}),
]
CASES = [(name, {}) for name in ONLINE] + SETTINGS
# these play their own forecast, whatever the raw one is
OWN = {"foster", "almost-one-step-ahead", "mixed", "multivalid-mean", "multivalid-quantile"}
REAL = {
    "quantile-tracker",
    "multivalid-quantile",
    "quantile-patching",
}  # forecasts of quantiles: predictions and outcomes are real numbers
cases = pytest.mark.parametrize(("name", "arguments"), CASES, ids=lambda v: v if isinstance(v, str) else repr(v)[:60])


def made(name, arguments):
    return ONLINE[name](**copy.deepcopy(arguments))


def events(name, n=150, seed=0):
    rng = np.random.default_rng(seed)
    p = np.concatenate([[0.0, 1.0, 0.5, 0.3, 0.3], rng.random(n - 5)])
    return p, (rng.normal(p) if name in REAL else (rng.random(n) < p**1.7).astype(float))


def run(name, arguments):
    """One that has learned :func:`events`, restored from its document; made once."""
    return from_bytes(document(name, CASES.index((name, arguments))))


@functools.cache
def document(name, place):
    recalibrator = made(name, CASES[place][1])
    recalibrator.run(*events(name))
    return recalibrator.to_bytes()


def one_by_one(recalibrator, p, y, w):
    out = []
    for a, b, c in zip(p.tolist(), y.tolist(), w.tolist(), strict=True):
        out.append(recalibrator.predict_one(a))
        recalibrator.learn_one(a, b, c)
    return out


def learned(recalibrator):
    """Its state, without the sums of the comparison."""
    _, arrays = recalibrator._state()
    return {name: a.tobytes() for name, a in arrays.items() if not name.startswith("compared/")}


@cases
def test_before_any_event_the_prediction_stays_as_it_is(name, arguments):
    recalibrator = made(name, arguments)
    if name in OWN or arguments.get("method") == "hedging":
        assert 0.0 <= recalibrator.predict_one(0.0 if name in REAL else 0.3) <= 1.0
        return
    for p in (0.0, 1e-9, 0.1, 0.25, 0.77, 1.0):
        assert recalibrator.predict_one(p) == pytest.approx(p, abs=2e-15)


@cases
def test_one_by_one_and_in_one_pass_are_the_same_to_the_last_bit(name, arguments):
    (p, y), w = events(name), np.random.default_rng(1).integers(0, 2, 150) + 0.0
    a, b, c, cut = made(name, arguments), made(name, arguments), made(name, arguments), 70
    want = a.run(p, y, w).tolist()
    assert want == one_by_one(b, p, y, w)
    assert learned(a) == learned(b)
    assert np.concatenate([c.run(p[:cut], y[:cut], w[:cut]), c.run(p[cut:], y[cut:], w[cut:])]).tolist() == want
    for before, after in ((a.compared, b.compared), (c.compared, b.compared)):
        assert before._buf == pytest.approx(after._buf, rel=1e-12, abs=1e-12, nan_ok=True)


@cases
def test_predicting_changes_nothing(name, arguments):
    recalibrator = run(name, arguments)
    before = recalibrator.to_bytes()
    first = [recalibrator.predict_one(a) for a in (0.0, 0.2, 0.9, 1.0)]
    assert [recalibrator.predict_one(a) for a in (0.0, 0.2, 0.9, 1.0)] == first
    assert recalibrator.to_bytes() == before


@cases
def test_a_restored_one_goes_on_bit_for_bit(name, arguments):
    whole, (p, y) = made(name, arguments), events(name)
    whole.run(p[:80], y[:80])
    copies = [from_bytes(whole.to_bytes()), copy.deepcopy(whole), pickle.loads(pickle.dumps(whole))]
    want = whole.run(p[80:], y[80:]).tolist()
    for restored in copies:
        assert repr(restored) == repr(whole)
        assert restored.run(p[80:], y[80:]).tolist() == want
        assert restored.to_bytes() == whole.to_bytes()


@cases
def test_a_copy_shares_nothing(name, arguments):
    one = run(name, arguments)
    other = copy.deepcopy(one)
    before = one.to_bytes()
    other.run(*events(name))
    assert one.to_bytes() == before


@cases
def test_forecasts_of_probabilities_stay_in_the_unit_interval(name, arguments):
    recalibrator, n = made(name, arguments), sized(400, 150)
    rng = np.random.default_rng(2)
    p = rng.choice([0.0, 1e-300, 1e-9, 0.5, 1 - 1e-16, 1.0], n)
    y = (p < 0.5).astype(float)  # as wrong as can be
    out = recalibrator.run(p, y)
    assert np.isfinite(out).all()
    if name not in REAL:
        assert ((out >= 0.0) & (out <= 1.0)).all()


@cases
@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.5, 1.5, "x", None, [0.5]])
def test_what_is_not_allowed_is_refused_and_changes_nothing(name, arguments, bad):
    recalibrator = run(name, arguments)
    before = recalibrator.to_bytes()
    real = name in REAL and bad in (-0.5, 1.5)
    calls = [
        *([] if real else [lambda: recalibrator.predict_one(bad)]),
        *([] if real else [lambda: recalibrator.learn_one(bad, 1.0)]),
        *([] if real else [lambda: recalibrator.learn_one(0.5, bad)]),
        *([] if bad == 1.5 else [lambda: recalibrator.learn_one(0.5, 1.0, bad)]),
        *([] if real or bad == [0.5] else [lambda: recalibrator.run([0.1, 0.2, bad], [1, 0, 1])]),
        *([] if real or bad == [0.5] else [lambda: recalibrator.run([0.1, 0.2, 0.3], [1, 0, bad])]),
        *([] if bad in (1.5, [0.5]) else [lambda: recalibrator.run([0.1, 0.2], [1, 0], [1, bad])]),
        lambda: recalibrator.run([0.1, 0.2], [1]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"must"):
            call()
        assert recalibrator.to_bytes() == before


@cases
def test_no_weight_is_absence(name, arguments):
    (p, y), w = events(name), np.ones(150)
    w[::3] = 0.0
    a, b = made(name, arguments), made(name, arguments)
    a.run(p, y, w)
    b.run(p[w > 0], y[w > 0])
    assert a.to_bytes() == b.to_bytes()
    before = a.to_bytes()
    a.learn_one(0.4, 1.0, 0.0)
    a.run([0.4], [1.0], [0.0])
    assert a.to_bytes() == before


@cases
def test_the_state_does_not_grow(name, arguments):
    recalibrator, (p, y) = run(name, arguments), events(name)
    size = len(recalibrator.to_bytes())
    for _ in range(sized(5, 2)):
        recalibrator.run(p, y)
    assert abs(len(recalibrator.to_bytes()) - size) < 2048  # numbers of a window that was not full, digits of a header


@cases
def test_the_report_compares_before_and_after(name, arguments):
    recalibrator, (p, y) = made(name, arguments), events(name, 150)
    out = recalibrator.run(p, y)
    report = recalibrator.report()
    assert report["count"] == report["before"]["count"] == report["after"]["count"] == 150
    assert report["correction"]["mean"] == pytest.approx(np.abs(out - p).mean())
    assert report["correction"]["root_mean_square"] == pytest.approx(np.sqrt(((out - p) ** 2).mean()))
    assert report["correction"]["largest"] == pytest.approx(np.abs(out - p).max())
    assert report["forecast"]["mean"] == pytest.approx(out.mean())
    assert report["forecast"]["standard_deviation"] == pytest.approx(out.std(), abs=1e-7)
    if name not in REAL:
        brier = report["after"]["metrics"]["brier"]["value"]
        assert brier == pytest.approx(((out - y) ** 2).mean())
        assert report["before"]["metrics"]["brier"]["value"] == pytest.approx(((p - y) ** 2).mean())
    assert type(recalibrator).__name__ in report["map"]


@cases
def test_a_document_that_does_not_fit_is_refused(name, arguments):
    recalibrator = run(name, arguments)
    data = recalibrator.to_bytes()
    with pytest.raises(ValueError, match="damaged"):
        from_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    config, arrays = recalibrator._state()
    for key in arrays:
        for change in (lambda a: a.reshape(-1)[:-1], lambda a: np.append(a, 0.0), lambda a: a * np.nan):
            broken = {**arrays, key: change(arrays[key])}
            if not np.array_equal(broken[key], arrays[key], equal_nan=True):
                with pytest.raises((ValueError, KeyError, TypeError, IndexError)):
                    type(recalibrator)._restore(copy.deepcopy(config), broken)
        with pytest.raises((ValueError, KeyError)):
            type(recalibrator)._restore(copy.deepcopy(config), {k: a for k, a in arrays.items() if k != key})


@pytest.mark.parametrize("name", ONLINE)
def test_every_public_thing_says_what_it_is(name):
    kind = ONLINE[name]
    assert ">>>" in kind.__doc__
    assert kind().to_bytes() == from_bytes(kind().to_bytes()).to_bytes()


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30), st.sampled_from(list(ONLINE)))
def test_fractional_outcomes(pairs, name):
    recalibrator = ONLINE[name]()
    p, y = np.array(pairs).T
    out = recalibrator.run(p, y)
    assert np.isfinite(out).all()


def test_kernels_of_several_recalibrators_run_in_threads():
    p, y = events("platt", 2000)
    want, got = OnlinePlatt().run(p, y).tolist(), {}
    threads = [threading.Thread(target=lambda i=i: got.update({i: OnlinePlatt().run(p, y).tolist()})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(got[i] == want for i in range(4))


def test_series_masks_and_other_types():
    p, y = events("platt", 60)
    want = OnlinePlatt().run(p, y).tolist()
    assert OnlinePlatt().run(p.tolist(), y.astype(bool).tolist()).tolist() == want
    assert OnlinePlatt().run(p[::-1][::-1], y.astype(np.uint8)).tolist() == want
    with pytest.raises(ValueError, match="must"):
        OnlinePlatt().run(np.ma.masked_array(p, mask=np.arange(60) == 3), y)
    recalibrator = OnlinePlatt()
    recalibrator.learn_one(np.float32(0.25), np.bool_(True), np.int64(2))
    assert 0.25 < recalibrator.predict_one(np.float64(0.25)) < 1.0
    assert recalibrator.predict_one(1.0 + 5e-7) == recalibrator.predict_one(1.0)


def test_experts_and_parts_are_copied():
    expert = OnlinePlatt()
    guard = Guard([expert])
    guard.learn_one(0.9, 0.0)
    assert expert.predict_one(0.9) == 0.9
    with pytest.raises(ValueError, match="online recalibrator"):
        Guard([PlattScaling()])
    with pytest.raises(ValueError, match="must be a Recalibrator"):
        Refit(OnlinePlatt())


@cases
def test_the_report_judges_what_was_served(name, arguments):
    """With delayed labels the forecast of then is not the forecast of now: the state is the same, the report is not."""
    (p, y), delay = events(name), 20
    late, plain, served = made(name, arguments), made(name, arguments), []
    for i, a in enumerate(p.tolist()):
        served.append(late.predict_one(a))
        if i >= delay:
            late.learn_one(p[i - delay], y[i - delay], served=served[i - delay])
            plain.learn_one(p[i - delay], y[i - delay])
    assert learned(late) == learned(plain)
    assert late.report()["forecast"]["mean"] == pytest.approx(np.mean(served[:-delay]))
    for bad in (math.nan, "x", [0.5], 1e300):
        before = late.to_bytes()
        with pytest.raises(ValueError, match="served must be a forecast"):
            late.learn_one(0.5, 1.0, served=bad)
        assert late.to_bytes() == before


@cases
def test_numbers_of_its_own_that_are_not_the_settings_are_refused_or_harmless(name, arguments):
    """A document with a right checksum can hold anything: no hang, no crash, nothing but numbers served."""
    recalibrator = run(name, arguments)
    config, arrays = recalibrator._state()
    values, turn = (-3.5, 1e308, 0.5, -1.0, 2.0**40), 0
    for key, array in arrays.items():
        flat = array.reshape(-1)
        for place in sorted({0, 1, 2, 3, flat.size // 2, flat.size - 1} & set(range(flat.size))):
            # What is learned meets every value in every place, the sums of comparisons each value in some places.
            each = values if "compared" not in key else (values[turn % 5], values[(turn + 2) % 5])
            turn += 1
            for value in each:
                broken = flat.copy()
                broken[place] = value
                try:
                    restored = type(recalibrator)._restore(copy.deepcopy(config), {**arrays, key: broken})
                except (ValueError, KeyError, OverflowError, MemoryError):
                    continue
                for x in (0.0, 0.1, 0.5, 1.0):
                    try:
                        out = restored.predict_one(x)
                    except ValueError:
                        continue  # nan, said so
                    assert np.isfinite(out)
                    assert name in REAL or 0.0 <= out <= 1.0


@pytest.mark.parametrize("ratio", [1e10, 1e16, 1e20, 1e30])
@pytest.mark.parametrize("name", ONLINE)
def test_weights_of_very_unlike_size_leave_a_state_that_can_be_restored(name, ratio):
    heavy = {"max_weight": 1e100} if name == "guard" else {}
    if name == "guard":
        heavy["experts"] = [OnlinePlatt()]
    for order in ((1.0, ratio), (ratio, 1.0)):
        recalibrator = ONLINE[name](**heavy)
        for y in (1, 0, 1, 1, 0):
            for w in order:
                recalibrator.learn_one(0.09 + 0.7 * y, y, w)
        assert from_bytes(recalibrator.to_bytes()).to_bytes() == recalibrator.to_bytes()
        recalibrator.report()


def test_what_is_nested_is_copied_once():
    """A chain of chains: 2^40 copies would never end."""
    chain = OnlinePlatt()
    for _ in range(40):
        chain = Chain(chain, OnlinePlatt())
    chain.learn_one(0.9, 0)
    assert copy.deepcopy(chain).predict_one(0.9) == chain.predict_one(0.9)


def test_a_weight_is_allowed_only_if_every_part_allows_it():
    heavy = Guard([OnlinePlatt()], max_weight=10.0)
    with pytest.raises(ValueError, match="max_weight must be at most that of every expert"):
        Guard([Guard([OnlinePlatt()])], max_weight=10.0)
    assert Guard([heavy], max_weight=10.0).heaviest == 10.0
    for one, w in ((Chain(Guard(), OnlinePlatt()), 5.0), (Chain(OnlinePlatt(), heavy), 11.0)):
        before = one.to_bytes()
        for call in (lambda one=one, w=w: one.learn_one(0.5, 1, w), lambda one=one, w=w: one.run([0.5], [1], [w])):
            with pytest.raises(ValueError, match="the weight in"):
                call()
        assert one.to_bytes() == before
    light = Guard([OnlinePlatt()], max_weight=0.5)
    light.learn_one(0.4, 1, 0.3, served=0.4)
    marginal = OnlineMarginal(Guard(), 2)
    with pytest.raises(ValueError, match=r"w must lie in \[0, 1\], got 1000"):
        marginal.learn_one([0.5, 0.5], 0, 1000.0)


def test_parts_that_need_groups_are_refused():
    for call in (lambda: Guard([OnlinePlatt(), MultivalidMean(groups=2)]), lambda: Chain(MultivalidMean(groups=2))):
        with pytest.raises(ValueError, match="must do without groups"):
            call()
    with pytest.raises(ValueError, match="must recalibrate probabilities"):
        Chain(QuantileTracker(), OnlinePlatt())


def test_quantiles_far_from_zero_have_their_spread():
    rng = np.random.default_rng(0)
    v = 1e9 + rng.normal(size=2000)
    tracker = QuantileTracker(0.9)
    out = np.concatenate([tracker.run(v[:1000], v[:1000] + rng.normal(size=1000)), tracker.run(v[1000:], v[1000:])])
    tracker.learn_one(v[0], v[0], served=out[0])
    want = np.append(out, out[0])
    assert tracker.report()["forecast"]["standard_deviation"] == pytest.approx(want.std(), rel=1e-6)


def test_a_forecast_that_learned_is_never_quite_sure():
    one, k = OnlinePlatt(clip=1e-12), 0
    for k in range(200):
        one.learn_one(*((1 - 1e-12, 1) if k % 2 else (0.3, 0)))
    assert one.predict_one(1 - 1e-12) < 1.0


class Untold(PlattScaling):
    """A kind of somebody's own that is not known to from_bytes."""


def test_a_kind_of_ones_own_is_told_how_to_be_known():
    for do in (to_bytes, copy.deepcopy, pickle.dumps):
        with pytest.raises(
            ValueError, match=r"Untold is not known to from_bytes.*decorate the class with .*restorable"
        ):
            do(Untold())
    with pytest.raises(ValueError, match="the name PlattScaling is taken by"):
        restorable(type("PlattScaling", (PlattScaling,), {"__module__": "mine"}))
