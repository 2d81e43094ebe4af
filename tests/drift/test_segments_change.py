"""Segments in one detector: new ones, what an alarm leaves, and what is still promised."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import some
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import probabilities, unit

from streamcal import from_bytes
from streamcal.drift import CalibrationDrift, SegmentedDrift

events = st.lists(st.tuples(probabilities, unit, st.integers(0, 2)), max_size=50)


def stream(n, segments, seed=0, gap=0.0):
    rng = np.random.default_rng(seed)
    p, g = rng.uniform(0.2, 0.9, n), rng.integers(0, segments, n)
    return p, (rng.random(n) < p - gap).astype(float), g


@settings(max_examples=40)
@given(events, events, st.sampled_from((3.0, 30.0, 1e6)), st.sampled_from((0.0, 0.5)), st.booleans(), st.integers(3, 7))
def test_a_widened_detector_had_its_segments_from_the_start(rows, later, arl, share, saved, many):
    """Up to the order of summation: evidence to 1e-12, all else to the last bit, unless that decides about an alarm."""
    names = list("abcdefg")[:many]
    for narrow_names, wide_names in ((3, many), (names[:3], names)):
        narrow, wide = (SegmentedDrift(s, arl, whole_share=share) for s in (narrow_names, wide_names))
        known = range(many) if narrow_names == 3 else names
        for a, b, k in rows:
            narrow.update(a, b, known[k])
            wide.update(a, b, known[k])
        before = narrow.to_bytes()
        widened = narrow.widened(wide_names)
        assert narrow.to_bytes() == before
        if saved:
            widened = from_bytes(widened.to_bytes())
        for i, (a, b, k) in enumerate(later):
            for detector in (widened, wide):
                detector.update(a, b, known[(k + i) % many])
        if abs(wide.evidence - arl) <= 1e-9 * arl:
            return
        assert widened.evidence == pytest.approx(wide.evidence, rel=1e-12, abs=1e-9)
        assert (widened.n, widened.alarms, repr(widened)) == (wide.n, wide.alarms, repr(wide))
        for part in ("each", "streams"):
            np.testing.assert_array_equal(getattr(widened.parts, part), getattr(wide.parts, part))
        assert [h["event"] for h in widened.history()] == [h["event"] for h in wide.history()]
        widened.parts.evidence[...] = wide.evidence
        assert widened.report()["text"] == wide.report()["text"]


@pytest.mark.parametrize(
    "had, given", [(3, 2), (3, ["a", "b", "c", "d"]), (["a", "b"], ["b", "a"]), (["a"], 4), (["a"], ["b", "c"])]
)
def test_segments_that_are_missing_are_named(had, given):
    detector = SegmentedDrift(had)
    with pytest.raises(ValueError, match=r"segments must begin with the \d that are there, got"):
        detector.widened(given)
    with pytest.raises(ValueError, match="segments must be their number or their distinct names"):
        detector.widened(0)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_state_with_infinite_evidence_can_be_read_again(share):
    """Something came that was said to be impossible, and then the process ended."""
    detector = SegmentedDrift(3, whole_share=share)
    detector.update(0.5, 1.0, 1)
    detector.update(0.0, 1.0, 0)
    assert detector.evidence == math.inf and detector.drift_detected
    again = from_bytes(detector.to_bytes())
    assert again == detector and again.widened(4).evidence == math.inf
    for one in (again, detector):
        one.update(0.4, 1.0, 2)
    assert again == detector and math.isfinite(again.evidence)


@pytest.mark.statistical
@pytest.mark.jit
def test_ten_thousand_segments_in_random_order():
    """Each event touches its own segment and the whole: the first 10 segments see what they would see alone."""
    p, y, g = stream(50_000, 10_000)
    detector = SegmentedDrift(10_000, 1e12)
    assert detector.update_many(p, y, g).size == 0
    for k in range(10):
        alone = CalibrationDrift(1e12)
        alone.update_many(p[g == k], y[g == k])
        assert detector.parts.each[k] == pytest.approx(alone.evidence, rel=1e-12)


# ---- what an alarm leaves


class Plain:
    """SegmentedDrift from detectors that know nothing of each other: evidence and alarms, by the rule in its docstring."""

    def __init__(self, segments, arl, share):
        self.arl, self.share, self.kept, self.alarmed = arl, share, 0.0, False
        self.each = [self.one() for _ in range(segments)]
        self.whole, self.evidence = self.one(), 0.0

    def one(self):
        """A detector with the starts of this threshold, that never alarms by itself."""
        detector = CalibrationDrift(self.arl)
        detector.parts.arl[...] = 1e200
        return detector

    def update(self, p, y, g):
        if self.alarmed:
            self.begin()
        self.each[g].update(p, y)
        self.whole.update(p, y)
        self.evidence = max(self.total() - self.kept, 0.0)
        self.alarmed = self.evidence >= self.arl

    def total(self):
        whole = self.share * self.whole.evidence if self.share else 0.0
        return whole + (1 - self.share) * sum(d.evidence for d in self.each)

    def begin(self):
        parts = [(1 - self.share) * d.evidence for d in self.each]
        least = min(max(parts), 0.1 * self.total())
        self.each = [self.one() if x >= least else d for d, x in zip(self.each, parts)]
        self.kept = sum(x for x in parts if x < least)
        self.whole = self.one()


@settings(max_examples=60)
@given(events, st.sampled_from((2.0, 3.0, 30.0)), st.sampled_from((0.0, 0.25, 0.5)), st.booleans())
def test_after_an_alarm_what_made_it_begins_anew_and_the_others_go_on(rows, arl, share, saved):
    detector, plain = SegmentedDrift(3, arl, whole_share=share), Plain(3, arl, share)
    for p, y, g in rows:
        detector.update(p, y, g)
        plain.update(p, y, g)
        if math.isinf(plain.evidence) or abs(plain.evidence - arl) <= 1e-9 * arl:
            return  # rounding decides about an alarm
        parts = sorted((1 - share) * d.evidence / (plain.total() or 1.0) for d in plain.each)
        if plain.alarmed and any(abs(x - least) < 1e-9 for x in parts for least in (0.1, parts[-1]) if x != parts[-1]):
            return  # or about who made it
        assert detector.drift_detected == plain.alarmed
        assert detector.evidence == pytest.approx(plain.evidence, rel=1e-9, abs=1e-9)
        if saved:
            detector = from_bytes(detector.to_bytes())
        for k in range(3):
            assert detector.parts.each[k] == pytest.approx(plain.each[k].evidence, rel=1e-9)


@pytest.mark.statistical
@pytest.mark.jit
def test_a_segment_that_is_wrong_all_the_time_does_not_hide_a_slower_one():
    """Segment 0 is turned round and alarms every 100 events of its own or so; the claims of segment 1 are a little too low.

    By itself segment 1 takes some hundred events (asserted); it must not take more than twice as many beside segment 0.
    """
    delays, alone = [], []
    for seed in range(9):
        rng = np.random.default_rng(seed)
        p, g = rng.beta(2, 2, 40_000), rng.integers(0, 10, 40_000)
        odds = p / (1 - p) * math.exp(0.7)
        q = np.where(g == 0, 1 - p, np.where(g == 1, odds / (1 + odds), p))
        y = (rng.random(p.size) < q).astype(float)
        detector, found = SegmentedDrift(10, 1e6), []
        while not found and detector.n < p.size:
            part = slice(detector.n, detector.n + 500)
            number = len(detector.update_many(p[part], y[part], g[part]))
            found = [
                report["event"]
                for report in detector.history(number)
                if any(s["segment"] == 1 and s["share"] >= 0.1 for s in report["segments"])
            ]
        assert found, f"seed {seed}: never found in {(g == 1).sum()} events"
        delays.append(int((g[: found[0]] == 1).sum()))
        alone.append(int(CalibrationDrift(2e6).update_many(p[g == 1], y[g == 1])[0]))
    assert 100 < np.median(alone) < 1000
    assert np.median(delays) <= 2.0 * np.median(alone), (delays, alone)


@pytest.mark.statistical
@pytest.mark.jit
def test_runs_after_an_alarm_that_left_something_are_no_shorter_than_promised():
    """Right claims, but 60 events in which segment 0 is turned round make the first alarm: the run behind it, mean of some."""
    runs = []
    for seed in range(some(300)):
        rng = np.random.default_rng(seed)
        detector = SegmentedDrift(20, 300)
        p, g = rng.beta(2, 2, 600), rng.integers(1, 20, 600)
        detector.update_many(p, rng.random(600) < p, g)  # the others gather something
        while not detector.drift_detected:
            a = rng.beta(2, 2)
            detector.update(a, float(rng.random() < 1 - a), 0)
        begun = detector.n
        for _ in range(30):  # cut at 3,000, which makes the mean smaller only
            p, g = rng.beta(2, 2, 100), rng.integers(0, 20, 100)
            found = detector.update_many(p, rng.random(100) < p, g)
            if found.size:
                break
        runs.append(detector.n - begun - 100 + found[0] + 1 if found.size else 3_000)
    assert np.mean(runs) >= 300 - 3 * np.std(runs) / math.sqrt(len(runs))
