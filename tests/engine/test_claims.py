"""Raw predictions become events: quantiles, intervals, top labels, margins and PIT values."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import (
    PIT,
    Cumulative,
    Edges,
    EqualWidth,
    Interval,
    Levels,
    Marginal,
    Mean,
    Quantile,
    Sliding,
    TopLabel,
    ece,
    k1,
    pinball_loss,
    q1,
    q2,
    qinf,
    top_label,
)

reals = st.integers(-6, 6).map(lambda i: i / 2)
EDGES = Edges((-3.0, -1.0, 0.0, 1.5, 3.0))
CUTS = [-3.0, -1.0, 0.0, 1.5, 3.0]


@given(v=st.lists(reals, min_size=1, max_size=30), data=st.data())
def test_k_over_a_quantile_claim_is_q(v, data):
    """One code path: the numbers of a window of quantile claims are those of q1, q2, qinf."""
    y = data.draw(st.lists(reals, min_size=len(v), max_size=len(v)))
    for level in (0.1, 0.5, 0.9):
        w = Cumulative(EDGES, claim=Quantile(level), loss="pinball")
        w.update_many(v, y)
        assert w.get("k1") == q1(v, y, level, binning=EDGES)
        assert w.get("k2") == q2(v, y, level, binning=EDGES)
        assert w.get("kinf") == qinf(v, y, level, binning=EDGES)
        assert w.get("pinball_loss") == pytest.approx(pinball_loss(v, y, level), abs=1e-12)
        covered = sum(b <= a for a, b in zip(v, y)) / len(v)
        assert w.get("coverage") == pytest.approx(covered, abs=1e-15)


@given(v=st.lists(reals, min_size=1, max_size=30), data=st.data())
def test_quantile_events_against_the_definition(v, data):
    y = data.draw(st.lists(reals, min_size=len(v), max_size=len(v)))
    w = Cumulative(EDGES, claim=Quantile(0.9))
    w.update_many(v, y)
    events = [e for a, b in zip(v, y) for e in naive.quantile_events([0.9], [a], b)]
    bins = naive.split(events, lambda c: naive.edge_bin(c, CUTS), 4)
    assert w.get("k1") == pytest.approx(naive.q1(bins), abs=1e-12)
    assert w.get("k2") == pytest.approx(naive.q2(bins), abs=1e-12)


@given(stream=st.lists(st.tuples(st.tuples(reals, reals, reals), reals), min_size=1, max_size=20))
def test_a_sequence_of_levels_is_one_key_per_level(stream):
    levels = (0.1, 0.5, 0.9)
    raw, y = zip(*stream)
    together = Cumulative(Levels((-1.0, 0.0, 1.0)), claim=Quantile(levels))
    together.update_many(np.array(raw), y)
    assert together.cells.shape[0] == 3
    for k, level in enumerate(levels):
        alone = Cumulative(Levels((-1.0, 0.0, 1.0)), claim=Quantile(level))
        alone.update_many([r[k] for r in raw], y)
        np.testing.assert_array_equal(together.cells[k], alone.cells[0])
        assert together.get("k1")[k] == alone.get("k1")


@given(stream=st.lists(st.tuples(reals, st.integers(0, 6).map(lambda i: i / 2), reals), min_size=1, max_size=25))
def test_interval_is_scored_by_its_width_and_claims_its_nominal_level(stream):
    edges = [0.0, 0.5, 1.0, 2.0, 10.0]
    raw = np.array([(lo, lo + width) for lo, width, _ in stream])
    y = [b for *_, b in stream]
    w = Cumulative(Edges(edges), claim=Interval(0.05, 0.95))
    w.update_many(raw, y)
    events = [e for (lo, hi), b in zip(raw, y) for e in naive.interval_events(0.05, 0.95, lo, hi, b)]
    bins = naive.split(events, lambda c: naive.edge_bin(c, edges), 4)
    assert w.snapshot().mean_p[w.snapshot().count > 0] == pytest.approx(0.9, abs=1e-12)
    assert w.get("k1") == pytest.approx(naive.k1(bins), abs=1e-12)
    assert w.get("coverage") == pytest.approx(naive.coverage(bins), abs=1e-12)


probs = st.sampled_from(((0.7, 0.2, 0.1), (0.1, 0.1, 0.8), (0.4, 0.4, 0.2), (0.0, 0.5, 0.5)))
labelled = st.lists(st.tuples(probs, st.integers(0, 2)), min_size=1, max_size=25)


@given(stream=labelled)
def test_top_label_window_is_ece_of_top_label(stream):
    raw, y = zip(*stream)
    w = Cumulative(EqualWidth(10), claim=TopLabel())
    w.update_many(np.array(raw), y)
    conf, correct = top_label(np.array(raw), y)
    assert w.get("ece") == ece(conf, correct, 10)
    events = [e for a, b in stream for e in naive.top_label_events(a, b)]
    bins = naive.split(events, lambda c: naive.width_bin(c, 10), 10)
    assert w.get("ece") == pytest.approx(naive.ece(bins), abs=1e-12)


@given(stream=labelled)
def test_marginal_window_has_one_key_per_class(stream):
    raw, y = zip(*stream)
    w = Cumulative(EqualWidth(10), claim=Marginal(3))
    w.update_many(np.array(raw), y)
    for k in range(3):
        column = [a[k] for a in raw]
        assert w.get("k1")[k] == k1(column, [float(b == k) for b in y], binning=EqualWidth(10))


def test_an_absent_class_keeps_its_key():
    w = Cumulative(EqualWidth(10), claim=Marginal(3))
    w.update_many([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1]], [0, 0])
    assert w.cells.shape[0] == 3
    assert w.get("coverage")[2] == 0.0 and w.get("k1")[2] == pytest.approx(0.1)


@given(u=st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_pit_claims_its_level_and_counts_what_lies_below(u):
    levels = (0.1, 0.5, 0.9)
    for y in (None, [0.0] * len(u)):
        w = Cumulative(EqualWidth(10), claim=PIT(levels))
        w.update_many(u, y)
        np.testing.assert_allclose(w.get("coverage"), [sum(x <= q for x in u) / len(u) for q in levels], atol=1e-12)
        s = w.snapshot()
        np.testing.assert_allclose(s.cells[:, :-1, 3].sum(-1), np.array(levels) * len(u), rtol=1e-12)


def test_pit_of_a_calibrated_forecast_is_calibrated():
    """n = 20,000 uniform u: the coverage of each level within 4 standard errors."""
    u = np.random.default_rng(3).random(20_000)
    w = Cumulative(EqualWidth(10), claim=PIT())
    w.update_many(u, None)
    levels = np.arange(1, 10) / 10
    error = np.abs(w.get("coverage") - levels)
    assert (error < 4 * np.sqrt(levels * (1 - levels) / 20_000)).all()


# ------------------------------------------------------------------------------ refusals

BAD = {
    "quantile-nan": (Quantile(0.9), EDGES, math.nan, 1.0),
    "quantile-inf": (Quantile(0.9), EDGES, math.inf, 1.0),
    "quantile-y-nan": (Quantile(0.9), EDGES, 0.0, math.nan),
    "quantile-y-none": (Quantile(0.9), EDGES, 0.0, None),
    "quantile-outside": (Quantile(0.9), EDGES, 50.0, 1.0),
    "quantiles-one-nan": (Quantile((0.1, 0.9)), EDGES, (0.0, math.nan), 1.0),
    "interval-lo-nan": (Interval(0.1, 0.9), EDGES, (math.nan, 1.0), 0.5),
    "interval-hi-nan": (Interval(0.1, 0.9), EDGES, (0.0, math.nan), 0.5),
    "interval-y-nan": (Interval(0.1, 0.9), EDGES, (0.0, 1.0), math.nan),
    "toplabel-nan": (TopLabel(), EqualWidth(5), (0.7, math.nan, 0.1), 0),
    "toplabel-first-nan": (TopLabel(), EqualWidth(5), (math.nan, 0.9, 0.1), 1),
    "toplabel-y-nan": (TopLabel(), EqualWidth(5), (0.7, 0.2, 0.1), math.nan),
    "toplabel-y-outside": (TopLabel(), EqualWidth(5), (0.7, 0.2, 0.1), 3),
    "toplabel-y-half": (TopLabel(), EqualWidth(5), (0.7, 0.2, 0.1), 0.5),
    "marginal-nan": (Marginal(3), EqualWidth(5), (0.7, math.nan, 0.1), 0),
    "toplabel-negative": (TopLabel(), EqualWidth(5), (0.7, -0.1, 0.4), 0),
    "toplabel-above-one": (TopLabel(), EqualWidth(5), (0.7, 1.5, 0.4), 0),
    "marginal-negative": (Marginal(3), EqualWidth(5), (0.5, 0.6, -0.1), 0),
    "marginal-above-one": (Marginal(3), EqualWidth(5), (0.5, 1.5, 0.1), 0),
    "marginal-inf": (Marginal(3), EqualWidth(5), (0.5, 0.5, math.inf), 0),
    "quantiles-one-inf": (Quantile((0.1, 0.9)), EDGES, (-math.inf, 0.0), 1.0),
    "marginal-y-outside": (Marginal(3), EqualWidth(5), (0.7, 0.2, 0.1), 3),
    "marginal-y-none": (Marginal(3), EqualWidth(5), (0.7, 0.2, 0.1), None),
    "pit-nan": (PIT((0.1, 0.9)), EqualWidth(5), math.nan, None),
    "pit-outside": (PIT((0.1, 0.9)), EqualWidth(5), 1.5, None),
    "mean-binary-half": (Mean("binary"), EqualWidth(5), 0.5, 0.5),
}


@pytest.mark.parametrize("one", [True, False], ids=["one", "batch"])
@pytest.mark.parametrize("claim, binning, raw, y", BAD.values(), ids=BAD)
def test_a_bad_part_removes_the_case_from_every_key(claim, binning, raw, y, one):
    w = Cumulative(binning, claim=claim)
    if one:
        w.update(raw, y)
    else:
        w.update_many([raw], None if y is None and isinstance(claim, PIT) else [y])
    s = w.snapshot()
    assert s.count.sum() == 0
    assert (s.refused == 1).all()


@pytest.mark.parametrize("claim, binning, raw, y", BAD.values(), ids=BAD)
def test_strict_names_the_refusal(claim, binning, raw, y):
    w = Cumulative(binning, claim=claim, strict=True)
    with pytest.raises(ValueError):
        w.update(raw, y)
    assert w.snapshot().count.sum() == 0


def test_a_wrong_number_of_columns_raises_or_is_refused_never_counted():
    for claim, raw in ((Marginal(3), [[0.5, 0.5]]), (Quantile((0.1, 0.9)), [[0.5]])):
        w = Cumulative(EqualWidth(5) if isinstance(claim, Marginal) else EDGES, claim=claim)
        with pytest.raises(ValueError):
            w.update_many(raw, [0])
        assert w.snapshot().count.sum() == 0


def test_claims_are_values():
    for a, b in (
        (Mean(), Mean("unit")),
        (Quantile(0.9), Quantile(0.9)),
        (Quantile((0.1, 0.9)), Quantile([0.1, 0.9])),
        (Interval(0.1, 0.9), Interval(0.1, 0.9)),
        (Marginal(3), Marginal(3)),
        (TopLabel(), TopLabel()),
    ):
        assert a == b and hash(a) == hash(b)
    assert Quantile(0.9) != Quantile(0.8) and Mean() != Mean("binary")


def test_sliding_windows_take_quantiles_too():
    w = Sliding(EDGES, 10, claim=Quantile(0.9))
    v = [float(i % 5 - 2) for i in range(40)]
    y = [float(i % 3 - 1) for i in range(40)]
    w.update_many(v, y)
    assert w.get("k1") == pytest.approx(q1(v[-10:], y[-10:], 0.9, binning=EDGES), abs=1e-12)
