"""The contract of every recalibrator: each test runs over streamcal.recalibrate.RECALIBRATORS, and over CASES of settings.

Which test covers which kind of field report (applies_to recalibrator):

    output-above-one                 test_outputs_never_pass_one
    empty-bin-division               test_scores_far_from_the_sample_get_a_number
    silent-noop                      test_an_overconfident_model_is_repaired
    two-of-three-classes             there: test_multiclass.py
    missing-class-zero-proba         there: test_multiclass.py
    calib-set-fewer-classes          there: test_multiclass.py
    unsigned-label-overflow          test_labels_of_any_number_type
    isotonic-inf                     test_scores_closer_than_1e_15
    isotonic-zero-weight-loop        test_no_weight_is_absence
    isotonic-changes-auc             test_strict_isotonic_keeps_the_order
    platt-exp-overflow               test_extreme_probabilities
    weights-ignored-path             test_integer_weights_are_repetition
    temperature-diverges             test_temperature_stays_bounded
    constant-scores                  test_constant_scores_become_the_base_rate
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import math
import pickle
import pkgutil
import re

import numpy as np
import pytest
import strategies as sts
from conftest import shared
from hypothesis import given, settings
from typer.testing import CliRunner

import streamcal.recalibrate
from streamcal import Cumulative, EqualWidth, OnlinePlatt, PlattScaling, Quantile, UniformMass, from_bytes, k2
from streamcal.command.main import app
from streamcal.recalibrate import RECALIBRATORS, Recalibrator
from streamcal.recalibrate.recalibrator import recalibrator
from streamcal.state import KINDS

for found in pkgutil.iter_modules(streamcal.recalibrate.__path__):
    importlib.import_module(f"streamcal.recalibrate.{found.name}")

# bins of few events and one-class samples warn, as they should; RuntimeWarning stays an error
pytestmark = pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")

# settings besides the defaults: (name, arguments)
SETTINGS = [
    ("platt", {"targets": "hard"}),
    ("beta", {"variant": "am"}),
    ("beta", {"variant": "ab"}),
    ("isotonic", {"strict": True}),
    ("histogram", {"binning": "equal-width"}),
    ("scaling-binning", {"targets": "hard"}),
    ("scaling-binning", {"split": True}),
    ("patching", {"levels": 100, "alpha": 1e-4}),
    ("patching", {"significance": 0.05}),
    ("one-shot-patching", {"levels": 100}),
]
CASES = [(name, {}) for name in RECALIBRATORS] + [case for case in SETTINGS if case[0] in RECALIBRATORS]
IDS = [name + "".join(f"-{k}={v}" for k, v in arguments.items()) for name, arguments in CASES]
SMOOTH = ("platt", "temperature", "beta")  # maps that do not jump


@pytest.fixture(params=CASES, ids=IDS)
def case(request):
    return request.param


@pytest.fixture
def make(case):
    """A fresh, unfitted recalibrator at each call."""
    return lambda: RECALIBRATORS[case[0]](**case[1])


@pytest.fixture
def by_event(case):
    """Skips what cannot hold where each of three parts needs an event."""
    if case[1].get("split"):
        pytest.skip("the three-way split refuses fewer than three events")


@pytest.fixture
def by_position(case):
    """Skips what cannot hold where events are dealt to three parts by their position."""
    if case[1].get("split"):
        pytest.skip("the three-way split deals events by position: said in its docstring")


def overconfident(n=6000, seed=0, levels=True):
    """(p, y) of a model whose logits are 2.5 times too large; p on 50 levels .01, .03 ... .99 or continuous."""
    rng = np.random.default_rng(seed)
    z = 2.5 * rng.normal(0.0, 1.0, n)
    p = 1.0 / (1.0 + np.exp(-z))
    if levels:
        p = (np.floor(p * 50) + 0.5) / 50
        z = np.log(p / (1.0 - p))
    return p, (rng.random(n) < 1.0 / (1.0 + np.exp(-z / 2.5))).astype(float)


PROBE = np.array([0.0, 1e-300, 1e-9, 0.01, 0.27, 0.5, 0.501, 0.77, 0.99, 1.0 - 1e-16, 1.0])


def probe(made):
    return made.predict(np.r_[PROBE, overconfident(200, seed=9)[0]])


def close(a, b, tolerance=1e-9):
    np.testing.assert_allclose(probe(a), probe(b), rtol=0.0, atol=tolerance)


# ---------------------------------------------------------------------------- what it does


def test_an_overconfident_model_is_repaired(make):
    """On events that were not learned from: the debiased squared error falls to less than a third."""
    made = make().fit(*overconfident())
    p, y = overconfident(seed=1)
    before, after = (k2(q, y, binning=UniformMass(15), debias=True) for q in (p, made.predict(p)))
    assert before > 0.01
    assert after < before / 3


def test_constant_scores_become_the_base_rate(make, case):
    """Smoothed targets move it by at most 1/n; a grid of levels by half its step; Platt's slope 0 gives no other."""
    n = 1000
    y = np.arange(n) % 10 < 6
    step = 0.5 / case[1]["levels"] if "levels" in case[1] else 0.0
    # a split learns the rate from the third of the events that the map is fitted on
    noise = 4 * math.sqrt(0.24 / 334) if case[1].get("split") else 0.0
    out = make().fit([0.7] * n, y).predict([0.7])
    assert abs(out[0] - 0.6) <= 1.0 / n + step + noise + 1e-6


@pytest.mark.parametrize("y", [0.0, 1.0])
@pytest.mark.parametrize("p", [(0.2, 0.4, 0.4, 0.9), (0.0, 1.0, 0.5, 0.5), (0.0,) * 4, (1.0,) * 4, (0.5,) * 4])
def test_one_class_gives_numbers(make, p, y):
    out = probe(make().fit(p, [y] * 4))
    assert ((out >= 0.0) & (out <= 1.0)).all()


@pytest.mark.parametrize("y", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("p", [0.0, 1e-300, 0.5, 0.8, 1.0 - 1e-16, 1.0])
def test_a_single_event_gives_numbers(make, by_event, p, y):
    out = probe(make().fit([p], [y]))
    assert ((out >= 0.0) & (out <= 1.0)).all()


def test_extreme_probabilities(make):
    """RuntimeWarning is an error in this suite: nothing overflows, nothing divides by zero."""
    p = np.array([0.0, 5e-324, 1e-300, 1e-16, 0.5, 1.0 - 1e-16, 1.0, 1.0, 0.0])
    for y in ([0, 0, 1, 0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0, 0, 0, 1]):
        out = probe(make().fit(p, y))
        assert ((out >= 0.0) & (out <= 1.0)).all()


@settings(max_examples=15)
@given(events=sts.streams(min_size=1))
@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
def test_any_events_give_numbers(name, arguments, events):
    p, y, w = map(np.array, zip(*events))
    if np.count_nonzero(w) >= (3 if "split" in arguments else 1):
        out = probe(RECALIBRATORS[name](**arguments).fit(p, y, w))
        assert ((out >= 0.0) & (out <= 1.0)).all()


def test_outputs_never_pass_one(make):
    """Weighted means of ones and of zeros: a sum of tenths is 0.9999999999999999 or 1.0000000000000002."""
    p = np.linspace(0.0, 1.0, 77)
    for y in (np.ones(77), np.zeros(77), (p > 0.5).astype(float)):
        out = make().fit(p, y, np.full(77, 0.1)).predict(p)
        assert out.min() >= 0.0 and out.max() <= 1.0


def test_scores_far_from_the_sample_get_a_number(make):
    """Bins, levels and knots between .05 and .95 saw nothing."""
    out = make().fit([0.05, 0.95] * 40, [0, 1, 1, 1] * 20).predict(np.linspace(0.0, 1.0, 201))
    assert np.isfinite(out).all()


def test_scores_closer_than_1e_15(make):
    p = 0.3 + np.arange(6) * 5.6e-17
    out = make().fit(np.r_[p, 0.5, 0.5], [0, 1, 0, 1, 1, 0, 1, 0]).predict(np.r_[p, 0.3, 0.4])
    assert ((out >= 0.0) & (out <= 1.0)).all()


# ---------------------------------------------------------------------------- laws of fit


def test_the_order_of_the_sample_does_not_matter(make, by_position):
    p, y = overconfident(1000)
    order = np.random.default_rng(2).permutation(p.size)
    close(make().fit(p, y), make().fit(p[order], y[order]))


def test_integer_weights_are_repetition(make, by_position):
    for p, y in (overconfident(400), overconfident(400, levels=False)):
        w = np.random.default_rng(3).integers(1, 5, p.size)
        close(make().fit(p, y, w), make().fit(np.repeat(p, w), np.repeat(y, w)))


def test_ties_are_summed(make, by_position):
    """Two events of one score are one of twice the weight and their mean outcome."""
    p = np.repeat(np.linspace(0.05, 0.95, 40), 2)
    y = np.random.default_rng(4).choice([0.0, 0.25, 1.0], 80)
    close(make().fit(p, y), make().fit(p[::2], (y[::2] + y[1::2]) / 2.0, np.full(40, 2.0)))


def test_no_weight_is_absence(make):
    """Field report isotonic-zero-weight-loop: zero weights in the middle of 60 events."""
    p, y = overconfident(60, levels=False)
    order = np.argsort(p)
    p, y, w = p[order], y[order], np.ones(60)
    w[5:8] = 0.0
    close(make().fit(p, y, w), make().fit(p[w > 0], y[w > 0]), 0.0)


def test_weights_of_one_are_no_weights(make):
    p, y = overconfident(500)
    close(make().fit(p, y), make().fit(p, y, np.ones(500)), 0.0)


def test_a_second_fit_forgets_the_first(make):
    p, y = overconfident(800)
    made = make().fit(1.0 - p[:300], y[:300]).fit(p, y)
    assert made.to_bytes() == make().fit(p, y).to_bytes()


def test_fit_returns_itself(make):
    made = make()
    assert made.fit([0.2, 0.7, 0.7], [0, 1, 0]) is made


def test_labels_of_any_number_type(make):
    """Field report unsigned-label-overflow: 0 and 1 are the same in every type."""
    p, y = overconfident(300)
    wanted = make().fit(p, y).to_bytes()
    for kind in (bool, np.uint8, np.uint64, np.int8, np.float32, object):
        assert make().fit(p, y.astype(kind)).to_bytes() == wanted
    assert make().fit(p.tolist(), y.astype(int).tolist()).to_bytes() == wanted


def test_float32_is_read_as_it_is(make):
    p, y = overconfident(300, levels=False)
    small = p.astype(np.float32)
    made = make().fit(small, y.astype(np.float32))
    assert made.to_bytes() == make().fit(small.astype(float), y).to_bytes()
    assert made.predict(small).dtype == np.float64
    assert made.predict(small).tolist() == made.predict(small.astype(float)).tolist()


# ---------------------------------------------------------------------------- laws of predict


def test_predict_is_pure(make):
    p, y = overconfident(500)
    made = make().fit(p, y)
    before, first = made.to_bytes(), probe(made)
    made.predict([0.1, 0.9])
    assert probe(made).tolist() == first.tolist()
    assert made.to_bytes() == before
    assert [made.predict([v])[0] for v in PROBE] == pytest.approx(made.predict(PROBE).tolist(), abs=1e-15)


def test_the_answer_is_the_callers(make):
    """Writing into a prediction changes nothing in the map."""
    made = make().fit(*overconfident(500))
    first = made.predict(PROBE)
    kept = first.copy()
    first[:] = -1.0
    assert made.predict(PROBE).tolist() == kept.tolist()


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 1, 3), (0,), (0, 3)])
def test_the_shape_is_kept(make, shape):
    made = make().fit(*overconfident(500))
    p = np.random.default_rng(6).random(shape)
    out = made.predict(p)
    assert np.shape(out) == shape and np.asarray(out).dtype == np.float64
    assert np.ravel(out).tolist() == made.predict(np.ravel(p)).tolist()


def test_inputs_are_left_alone(make):
    """Read-only, strided and reversed arrays give what plain ones do."""
    p, y = overconfident(600)
    w = np.arange(600) % 3.0
    wanted = make().fit(p, y, w)
    kept = [a.copy() for a in (p, y, w)]
    for a in (p, y, w):
        a.setflags(write=False)
    assert make().fit(p, y, w).to_bytes() == wanted.to_bytes()
    assert all(np.array_equal(a, b) for a, b in zip((p, y, w), kept))
    wide = np.stack([p, y, w], 1)
    assert make().fit(wide[:, 0], wide[:, 1], wide[:, 2]).to_bytes() == wanted.to_bytes()
    assert make().fit(*(a[::-1].copy()[::-1] for a in (p, y, w))).to_bytes() == wanted.to_bytes()
    assert wanted.predict(p[::-2]).tolist() == wanted.predict(p)[::-2].tolist()


# ---------------------------------------------------------------------------- state


def test_the_map_survives_every_copy(make):
    made = make().fit(*overconfident(700))
    wanted = probe(made).tolist()
    for other in (
        from_bytes(made.to_bytes()),
        type(made).from_bytes(made.to_bytes()),
        pickle.loads(pickle.dumps(made)),
        copy.deepcopy(made),
        copy.copy(made),
    ):
        assert type(other) is type(made)
        assert all(np.shape(getattr(other, name)) == np.shape(getattr(made, name)) for name in made.fitted)
        assert probe(other).tolist() == wanted
        assert other.to_bytes() == made.to_bytes()
        assert repr(other) == repr(made)


def test_settings_survive_without_a_fit(make, case):
    other = from_bytes(make().to_bytes())
    assert repr(other) == repr(make())
    assert all(getattr(other, k) == v for k, v in case[1].items())
    with pytest.raises(ValueError, match="not fitted"):
        other.predict([0.5])


def test_the_repr_is_python(make):
    assert repr(eval(repr(make()), {type(make()).__name__: type(make())})) == repr(make())


# ---------------------------------------------------------------------------- what is refused


def test_predict_before_fit(make):
    with pytest.raises(ValueError, match=f"{type(make()).__name__} is not fitted"):
        make().predict([0.5])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1, 1.1, 1.00001, None, "high"])
def test_bad_values_are_named_by_their_place(make, bad):
    good = [0.2, 0.4, 0.6, 0.8]
    made = make().fit(good, [0, 1, 0, 1])
    before = made.to_bytes()
    spoiled = [0.2, 0.4, bad, 0.8]
    with pytest.raises(ValueError, match="p must .* at index 2"):
        made.predict(spoiled)
    with pytest.raises(ValueError, match="p must .* at index 2"):
        made.fit(spoiled, [0, 1, 0, 1])
    with pytest.raises(ValueError, match="y must .* at index 2"):
        made.fit(good, spoiled)
    assert made.to_bytes() == before


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, None])
def test_bad_weights_are_named_by_their_place(make, bad):
    with pytest.raises(ValueError, match="sample_weight must .* at index 1"):
        make().fit([0.2, 0.4], [0, 1], [1.0, bad])


def test_nothing_to_learn_from(make):
    for p, y, w in (([], [], None), ([0.5], [1], [0.0])):
        with pytest.raises(ValueError, match="at least one event"):
            make().fit(p, y, w)
    with pytest.raises(ValueError, match=r"shape \(n,\)"):
        make().fit([0.5, 0.6], [1])
    with pytest.raises(ValueError, match=r"shape \(n,\)"):
        make().fit([[0.5, 0.6]], [[1, 0]])


def test_float32_dust_outside_is_clipped(make):
    made = make().fit([0.2, 0.4, 1.0000005], [0, 1, 1])
    assert made.predict([-5e-7, 1.0000005]).tolist() == made.predict([0.0, 1.0]).tolist()


# ---------------------------------------------------------------------------- one of somebody's own


class LeastSquares(Recalibrator):
    """The line of least squared error."""

    fitted = ("a_", "b_")

    def _fit(self, p, y, w):
        share = w / w.sum()
        middle, mean = float(share @ p), float(share @ y)
        spread = float(share @ (p - middle) ** 2)
        self.b_ = float(share @ ((p - middle) * (y - mean))) / spread if spread > 1e-20 else 0.0
        self.a_ = mean - self.b_ * middle

    def _predict(self, p):
        return self.a_ + self.b_ * p


@pytest.fixture
def outsider():
    yield recalibrator("least-squares")(LeastSquares)
    del RECALIBRATORS["least-squares"], KINDS["LeastSquares"]


def laws():
    """The tests of this file that run over RECALIBRATORS and ask for nothing else."""
    tests = [(name, f) for name, f in globals().items() if name.startswith("test_")]
    return {name: f for name, f in tests if list(inspect.signature(f).parameters) == ["make"]}


def test_one_from_outside_keeps_the_contract(outsider):
    assert len(laws()) >= 15
    for law in laws().values():
        law(RECALIBRATORS["least-squares"])


def test_one_from_outside_is_in_the_command(outsider, tmp_path):
    p, y = overconfident(500)
    data, out = tmp_path / "data.csv", tmp_path / "map.cal"
    data.write_text("p,y\n" + "".join(f"{a},{b:.0f}\n" for a, b in zip(p.tolist(), y.tolist())))
    result = CliRunner().invoke(app, ["fit", str(data), "--method", "least-squares", "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert probe(from_bytes(out.read_bytes())).tolist() == probe(LeastSquares().fit(p, y)).tolist()
    refused = CliRunner().invoke(app, ["fit", str(data), "--method", "least", "-o", str(out)])
    assert refused.exit_code == 2 and "least-squares, got least" in refused.stderr


class Plain(PlattScaling):
    """Arguments passed on."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)


class Slow(OnlinePlatt):
    """An argument of its own."""

    def __init__(self, rate=0.01):
        super().__init__(forgetting=1.0 - rate)


class Own(Recalibrator):
    """An argument that it does not keep under its name."""

    def __init__(self, k=3):
        self._k = k


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Plain(targets="hard"), repr(PlattScaling(targets="hard")).replace("PlattScaling", "Plain")),
        (Slow, "Slow(forgetting=0.99, beta=1.0, prior=10.0, clip=0.01, radius=100.0)"),
        (Own, "Own()"),
    ],
    ids=["passed on", "its own", "not kept"],
)
def test_a_class_made_from_ours_may_have_other_arguments(made, said):
    assert repr(made()) == said


# ---------------------------------------------------------------------------- from a window


def snapshot_of(p, y, w=None):
    window = Cumulative(UniformMass(15, bits=7))
    window.update_many(p, y, w)
    return window.snapshot()


def test_a_window_that_parts_the_levels_is_the_sample(make, case, by_position):
    """Every level has a bin of its own; mean claims differ from the levels by rounding only, hence 1e-9.

    An edge on a tied score would send that score to either bin. Patching without a grid merges a patched level with
    one that happens to be its very value, so there only what it promises is the same: K2 at the end.
    """
    p, y = overconfident()
    w = np.random.default_rng(7).integers(1, 4, p.size).astype(float)
    a, b = make().fit(p, y, w), make().fit_snapshot(snapshot_of(p, y, w))
    if case[0] == "patching":
        assert max(a.k2_after_, b.k2_after_) <= max(a.alpha, a.k2_before_ if a.significance else 0.0)
        assert np.abs(a.predict(p) - b.predict(p)).mean() <= 0.01
        return
    np.testing.assert_allclose(a.predict(p), b.predict(p), rtol=0.0, atol=1e-9)


@pytest.mark.jit
def test_a_fine_grid_is_close_to_the_sample(make, case, by_position):
    """Continuous scores: a bin is 1/128 wide relative to min(p, 1 - p), so within it a logit moves by 1/64 at most.

    A smooth map sees only the second order of that: 1e-4 (measured 2e-5). A map with steps may put a step one bin
    further, where it is wrong by a step: less than .005 on average (measured .0014). Patching has no such limit: its
    levels are the distinct scores, and a window makes bins of them; it must then be better than on scores that come
    once each.
    """
    p, y = overconfident(20_000, levels=False)
    made = make().fit_snapshot(snapshot_of(p, y))
    if "patching" in case[0]:
        test_p, test_y = overconfident(20_000, seed=1, levels=False)
        loss = [float(((m.predict(test_p) - test_y) ** 2).mean()) for m in (made, make().fit(p, y))]
        assert loss[0] <= loss[1] + 1e-3
        return
    moved = np.abs(made.predict(p) - make().fit(p, y).predict(p))
    assert moved.mean() <= 0.005
    if case[0] in SMOOTH:
        assert moved.max() <= 1e-4


def test_a_window_of_several_keys_is_refused(make, by_position):
    window = Cumulative(UniformMass(15), keys=2)
    window.update(0.4, 1, key=1)
    with pytest.raises(ValueError, match="one key, got 2"):
        make().fit_snapshot(window.snapshot())


def test_an_empty_window_is_refused(make, by_position):
    with pytest.raises(ValueError, match="at least one event"):
        make().fit_snapshot(Cumulative(UniformMass(15)).snapshot())


# ---------------------------------------------------------------------------- field reports of one kind of map


@pytest.mark.skipif("isotonic" not in RECALIBRATORS, reason="needs isotonic")
def test_strict_isotonic_keeps_the_order():
    """Field report isotonic-changes-auc: no two scores become equal."""
    p, y = overconfident(400, levels=False)
    out = RECALIBRATORS["isotonic"](strict=True).fit(p, y).predict(np.sort(p))
    assert (np.diff(out) > 0.0).all()


def test_temperature_stays_bounded():
    """Field report temperature-diverges; test_temperature.py has the rest."""
    p, y = overconfident(400)
    made = RECALIBRATORS["temperature"]().fit(1.0 - p, y)
    assert (made.temperature_, made.converged_) == (50.0, 0.0)


# ---------------------------------------------------------------------------- the table above


def table() -> dict[str, str]:
    return dict(re.findall(r"^    ([\w-]+) +(test_\w+|there)", __doc__, re.MULTILINE))


def test_every_kind_of_field_report_has_a_test():
    path = shared() / "cases" / "field_reports.jsonl"
    if not path.is_file():
        pytest.skip("field_reports.jsonl is not here: set STREAMCAL_SHARED to the folder that holds it")
    reports = [json.loads(line) for line in path.read_text().splitlines()]
    assert {r["kind"] for r in reports if r["applies_to"] == "recalibrator"} <= set(table())


def test_every_test_of_the_table_is_here():
    for kind, name in table().items():
        assert name == "there" or callable(globals()[name]), kind


@pytest.mark.parametrize("name", RECALIBRATORS)
def test_only_snapshots_of_probabilities_are_learned_from(name):
    quantiles = Cumulative(UniformMass(15), claim=Quantile(0.9))
    quantiles.update_many(np.linspace(0.1, 0.9, 50), np.linspace(0.0, 1.0, 50))
    with pytest.raises(ValueError, match=r"the claim Quantile\(level=0.9\)"):
        RECALIBRATORS[name]().fit_snapshot(quantiles.snapshot())
    with pytest.raises(ValueError, match=r"takes a Snapshot: window.snapshot\(\), got a Cumulative"):
        RECALIBRATORS[name]().fit_snapshot(Cumulative(UniformMass(15)))


DAMAGE = {
    "nan": lambda a: a * np.nan,
    "longer": lambda a: np.append(a, 0.5),
    "square": lambda a: a.reshape(1, -1, 1),
    "far": lambda a: a + 1e9,
    "backwards": lambda a: a.reshape(-1)[::-1] - 1e-3,
}


@pytest.mark.parametrize("name", RECALIBRATORS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_fitted_values_that_fit_cannot_have_made_are_refused_or_harmless(name, damage):
    """A document with a right checksum can still hold anything: no kernel may read beyond an array, no output be nan."""
    p = np.tile(np.linspace(0.05, 0.95, 10), 30)
    y = (np.random.default_rng(0).random(300) < p) * 1.0
    kind, fitted = RECALIBRATORS[name], RECALIBRATORS[name]().fit(p, y)
    config, arrays = fitted._state()
    for key in arrays:
        with pytest.raises(KeyError):
            kind._restore(dict(config), {k: a for k, a in arrays.items() if k != key})
        try:
            restored = kind._restore(dict(config), {**arrays, key: DAMAGE[damage](arrays[key])})
        except ValueError:
            continue
        assert damage in ("far", "backwards", "square"), (key, damage)
        out = restored.predict(np.linspace(0, 1, 101))
        assert ((out >= 0.0) & (out <= 1.0)).all()


@pytest.mark.parametrize("name", RECALIBRATORS)
def test_the_difference_of_two_snapshots_can_be_learned_from(name):
    """Fractional weights round, so that a mean outcome can pass 1 by dust."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        window = Cumulative(EqualWidth(10))
        window.update_many(rng.random(200), rng.integers(0, 2, 200), rng.exponential(size=200))
        before = window.snapshot()
        window.update_many(rng.random(30), rng.integers(0, 2, 30), rng.exponential(size=30))
        assert np.isfinite(RECALIBRATORS[name]().fit_snapshot(window.snapshot() - before).predict([0.5])).all()


@pytest.mark.parametrize("dtype", [object, str, float])
def test_a_masked_value_is_never_read(dtype):
    p, y = np.linspace(0.1, 0.9, 20), np.arange(20) % 2.0
    hidden = np.ma.masked_array(p.astype(dtype), mask=np.arange(20) == 3)
    with pytest.raises(ValueError, match=r"index 3|p must lie in"):
        RECALIBRATORS["platt"]().fit(hidden, y)
    with pytest.raises(ValueError, match=r"index 3|y must lie in"):
        RECALIBRATORS["platt"]().fit(p, np.ma.masked_array(y.astype(dtype), mask=np.arange(20) == 3))
