"""What holds for every detector and test of the family: the run clock, documents with other numbers, one of your own."""

from __future__ import annotations

import json
import math
from functools import cache

import numpy as np
import pytest
from conftest import sized
from hypothesis import given, settings
from hypothesis import strategies as st

import streamcal.drift
from streamcal import PIT, Interval, Marginal, Mean, Quantile, TopLabel, from_bytes
from streamcal.drift import (
    DETECTORS,
    CalibrationDrift,
    CalibrationTest,
    CoverageDrift,
    Detector,
    MarginalDrift,
    PITDrift,
    SegmentedDrift,
    SegmentedTest,
    TopLabelDrift,
)
from streamcal.drift.detector import detector, probability_events
from streamcal.drift.onset import onset_report
from streamcal.drift.shiryaev_roberts import (
    BAD,
    FINEST,
    STATE,
    TOUCHED,
    accumulate,
    count_event,
    judge,
    keep_copy,
    slot_of,
    stream_parts,
)
from streamcal.state import KINDS

FAR = 1e15  # no alarm


def late_drift(n, wrong=120):
    """Events of every kind, whose claims are right but in the last ``wrong`` events."""
    rng = np.random.default_rng(1)
    p, late = rng.beta(2, 2, n), np.arange(n) >= n - wrong
    y = (rng.random(n) < np.where(late, 0.35 * p, p)).astype(float)
    u = np.where(late, rng.random(n) ** 1.6, rng.random(n))
    rows = rng.dirichlet([1, 1, 1], n)
    labels = (rows.cumsum(1) < rng.random((n, 1))).sum(1).clip(0, 2)
    labels[late] = rng.integers(0, 3, wrong)
    return p, y, u, rows, labels


P, Y, U, ROWS, LABELS = late_drift(sized(2000, 600))
G = np.random.default_rng(2).integers(0, 3, P.size)
CLAIMED = np.tile([0.3, 0.7], (P.size, 1))
MEMBERS = {
    "calibration": (lambda arl=FAR: CalibrationDrift(arl), (P, Y)),
    "calibration, tolerance": (lambda arl=FAR: CalibrationDrift(arl, 0.02), (P, Y)),
    "top_label": (lambda arl=FAR: TopLabelDrift(arl), (ROWS, LABELS)),
    "marginal": (lambda arl=FAR: MarginalDrift(3, arl), (ROWS, LABELS)),
    "segmented": (lambda arl=FAR: SegmentedDrift(3, arl), (P, Y, G)),
    "coverage": (lambda arl=FAR: CoverageDrift(0.7, arl), (CLAIMED[:, 1], U)),
    "coverage, levels": (lambda arl=FAR: CoverageDrift((0.3, 0.7), arl), (CLAIMED, U)),
    "coverage, interval": (lambda arl=FAR: CoverageDrift(0.4, arl, interval=True), (CLAIMED, U)),
    "pit": (lambda arl=FAR: PITDrift(arl), (U,)),
}
TESTS = {"test": (CalibrationTest, (P, Y)), "tests of segments": (lambda: SegmentedTest(3), (P, Y, G))}
members = pytest.mark.parametrize("name", MEMBERS)


def streams_of(found):
    return [found.stream(k) for k in range(len(found.parts.streams))]


def at_clock(found, clock):
    """A detector as if so many events had come before, which left no evidence."""
    found.parts.n[...] = found.parts.run[...] = clock
    for stream in streams_of(found):
        stream.time[...] = stream.bins[TOUCHED] = clock
        if clock:
            stream.copies[slot_of(clock // FINEST * FINEST, len(stream.copies) // 2), 0] = clock // FINEST * FINEST
    return found


def test_the_family_is_complete():
    assert {name.split(",")[0] for name in MEMBERS} == set(DETECTORS)
    assert {DETECTORS[name.split(",")[0]] for name in MEMBERS} == {type(make()) for make, _ in MEMBERS.values()}


# ---- the run clock

COUNTED = ("event", "onset", "onset_mean", "sums_since", "run", "window")  # these are counted from the first event


def shifted(report, clock, inside=False):
    """A report with its events counted from ``clock`` on; those within a segment are counted there."""
    if isinstance(report, list):
        return [shifted(part, clock, inside) for part in report]
    if not isinstance(report, dict):
        return report
    out = {key: shifted(value, clock, key in ("segments", "whole")) for key, value in report.items() if key != "text"}
    for key in COUNTED:
        if out.get(key) is not None:
            out[key] = [x - clock for x in out[key]] if key == "window" else out[key] - clock
    for key in ("n",) if inside else ():
        out[key] -= clock
    return out


@members
def test_the_same_report_at_any_run_clock(name):
    """Moments of starts and not of ages had a spread of 35.8 in place of 31.6 at a clock of 10^9.

    At a clock of 2^30 the same copies of the sums are kept, so that the whole report is the same. The mean onset is a float that
    is counted from the first event, so that of its digits 10^9 takes nine.
    """
    make, events = MEMBERS[name]
    base = at_clock(make(), 0)
    base.update_many(*events)
    want = base.report()
    assert base.alarms == 0 and {**want, **(want.get("whole") or {})}["onset"] is not None
    for clock in (10**7, 10**8, 10**9, 2**30):
        found = at_clock(make(), clock)
        found.update_many(*events)
        assert_same(shifted(found.report(), clock), want, whole=clock == 2**30)


SINCE = {
    "sums_since",
    "events",
    "mean_claim",
    "mean_outcome",
    "gap",
    "slope",
    "intercept",
    "k1",
    "k1_by_chance",
    "bins",
}
SINCE |= {"mean", "sd", "histogram", "expected", "coverage", "below", "above"}


def assert_same(found, want, whole):
    """The same to the last bit, without what the copies of the sums say if not ``whole``."""
    if isinstance(want, dict):
        for key in want.keys() - {"text"} - (set() if whole else SINCE):
            if key == "onset_mean":
                assert found[key] == pytest.approx(want[key], abs=1e-6)
            else:
                assert_same(found[key], want[key], whole)
    elif isinstance(want, list):
        assert len(found) == len(want)
        for one, two in zip(found, want):
            assert_same(one, two, whole)
    else:
        assert found == want


# ---- documents: the checksum is right, the numbers are others


@cache
def document_of(name, fill):
    """What a detector or test writes down after so many events."""
    make, events = {**MEMBERS, **TESTS}[name]
    found = make()
    found.update_many(*(e[:fill] for e in events))
    return found.to_bytes()


@settings(max_examples=300)
@given(
    st.sampled_from([*MEMBERS, *TESTS]),
    st.sampled_from((0, 100, 1000)),
    st.lists(st.tuples(st.integers(0, 2**31), st.binary(min_size=8, max_size=8)), min_size=1, max_size=4),
    st.sampled_from(("one number", "one byte", "a power of two")),
)
def test_a_document_with_other_numbers_is_refused_or_goes_on(name, fill, changes, how):
    """Whatever a document holds whose checksum is right: a ValueError, or a thing that takes events and can be looked at.

    Without the JIT a kernel that reads beside its buffer is an IndexError here, and with it the end of the process.
    """
    found, (_, events) = from_bytes(document_of(name, fill)), {**MEMBERS, **TESTS}[name]
    numbers = found._buf.view(np.uint8).reshape(-1, 8)
    for place, value in changes:
        i = place % len(numbers)
        if how == "one number":
            numbers[i] = np.frombuffer(value, np.uint8)
        elif how == "one byte":
            numbers[i, value[0] % 8] ^= value[1]
        else:
            found._buf[i] = math.ldexp(1.0, value[0] % 100)
    try:
        again = from_bytes(found.to_bytes())
    except ValueError:
        return
    for call in (
        again.report,
        lambda: again.update_many(*(e[-40:] for e in events)),
        again.report,
        lambda: again.rejected,
    ):
        with np.errstate(all="ignore"):
            try:
                call()
            except (ValueError, OverflowError, ZeroDivisionError, AttributeError, np.linalg.LinAlgError):
                pass
    assert again.n >= 0


@given(st.sampled_from([*MEMBERS, *TESTS]), st.data())
def test_a_document_with_a_byte_flipped_is_refused(name, data):
    document = bytearray(document_of(name, 60))
    document[data.draw(st.integers(0, len(document) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError):
        from_bytes(bytes(document))


# ---- a family that is open


@pytest.mark.parametrize(
    ("claim", "kind", "made"),
    [
        (
            Mean(),
            "mean",
            ("CalibrationDrift(arl=900.0, tolerance=0.02)", "SegmentedDrift(segments=1, arl=900.0, tolerance=0.02)"),
        ),
        (Mean(), "mean", ("CalibrationDrift(arl=900.0, tolerance=0.02)",)),
        (Mean(), "mean", ("SegmentedDrift(segments=1, arl=900.0, tolerance=0.02)",)),
        (TopLabel(), "top_label", ("TopLabelDrift(arl=900.0, tolerance=0.02)",)),
        (Marginal(4), "marginal", ("MarginalDrift(n_classes=4, arl=900.0, tolerance=0.02)",)),
        (Quantile(0.9), "quantile", ("CoverageDrift(level=0.9, arl=900.0, tolerance=0.02)",)),
        (Quantile((0.1, 0.9)), "quantile", ("CoverageDrift(level=(0.1, 0.9), arl=900.0, tolerance=0.02)",)),
        (Interval(0.25, 0.75), "interval", ("CoverageDrift(level=0.5, arl=900.0, tolerance=0.02, interval=True)",)),
        (PIT(), "pit", ("PITDrift(arl=900.0)",)),
    ],
    ids=str,
)
def test_every_claim_has_its_detectors(claim, kind, made):
    assert set(made) <= {repr(cls.for_claim(claim, 900, 0.02)) for cls in DETECTORS.values() if kind in cls.claims}


def test_a_detector_of_ones_own_is_one_class():
    """One bet, that outcomes come half as far from the claims: in plain Python, with the family's accumulator and onset."""
    parts = stream_parts(bets=1, sums=1, levels=4)

    @detector("halfway", "mean")
    class HalfwayDrift(Detector):
        settings = ("arl",)

        def __init__(self, arl=20_000.0, tolerance=0.0):
            self._lay_out(parts, {"weights": [1.0]}, {"streams": (1, parts.size)})
            self._begin(arl, None)

        def _one(buf, p, y):
            if not 0.0 <= p <= 1.0 or not 0.0 <= y <= 1.0:
                return BAD
            count_event(buf)
            numbers = buf[int(buf[STATE]) :]
            stream = parts.views(numbers)
            stream.time += 1.0
            stream.increments[0] = 1.0 - 0.5 * (y - p)
            accumulate(stream.bets.reshape(-1), stream.increments, float(stream.time), 1.0)
            stream.sums[0] += y - p
            keep_copy(buf, numbers)
            return judge(buf, float(stream.bets[0, 0]))

        def update(self, p, y):
            self._take(p, y)

        def update_many(self, p, y):
            return self._take_many(*probability_events(p, y))

        def report(self):
            return onset_report(self, {"too high": np.ones(1), "too low": -np.ones(1)})[0]

    try:
        assert streamcal.drift.DETECTORS["halfway"] is HalfwayDrift
        one, many = HalfwayDrift.for_claim(Mean(), 20_000, 0.0), HalfwayDrift()
        alarms = many.update_many(P, Y)
        for p, y in zip(P.tolist(), Y.tolist()):
            one.update(p, y)
        assert alarms.size and one == many == from_bytes(one.to_bytes())
        report = many.history()[0]
        assert report["direction"] == "too high" and P.size - 300 < report["onset"] < P.size and report["alarm"]
        json.dumps(report, allow_nan=False)
        with pytest.raises(ValueError, match="must lie in"):
            one.update(2.0, 1.0)
    finally:
        del DETECTORS["halfway"], KINDS["HalfwayDrift"]
