"""Two threads in one window, detector or recalibrator: the second is told so, and nothing is damaged. Over all members."""

from __future__ import annotations

import functools
import sys
import threading
import time

import numpy as np
import pytest

from streamcal import EqualWidth, drift, windows
from streamcal.drift import CalibrationTest, CoverageDrift, MarginalDrift, SegmentedDrift, SegmentedTest
from streamcal.recalibrate import ONLINE
from streamcal.recalibrate.multiclass import OnlineMarginal

FAR = 1e15
RNG = np.random.default_rng(0)
N = 400_000  # a kernel of some ms
P = RNG.random(N)
Y = (RNG.random(N) < P).astype(float)
TIMES, GROUPS = np.arange(N) / 10.0, RNG.integers(0, 3, N)
ROWS = np.stack([P / 2, (1 - P) / 2, np.full(N, 0.5)], 1)


def windows_of_each_kind():
    binning = EqualWidth(10)
    made = {
        "cumulative": windows.Cumulative(binning),
        "fading": windows.Fading(binning, 1000.0),
        "revertible": windows.Revertible(binning),
        "sliding": windows.Sliding(binning, 300_000),
        "timed": windows.Timed(binning, 1000.0),
        "tumbling": windows.Tumbling(binning, 300_000),
    }
    return {
        name: (w, functools.partial(w.update_many, t=TIMES) if name == "timed" else w.update_many)
        for name, w in made.items()
    }


def detectors_of_each_kind():
    made = {name: kind(FAR) for name, kind in drift.DETECTORS.items() if name in ("calibration", "pit")}
    made |= {
        "coverage": CoverageDrift(0.7, FAR),
        "marginal": MarginalDrift(3, FAR),
        "segmented": SegmentedDrift(3, FAR),
    }
    made |= {"top_label": drift.DETECTORS["top_label"](FAR), "test": CalibrationTest(), "tests": SegmentedTest(3)}
    return {name: (d, d.update_many) for name, d in made.items()}


def recalibrators_of_each_kind():
    made = {name: kind() for name, kind in ONLINE.items()}
    made["marginal of platt"] = OnlineMarginal(ONLINE["platt"](), 3)
    return {name: (one, one.run) for name, one in made.items()}


def events(name):
    """What many events of this member are, in order."""
    if name in ("marginal", "marginal of platt", "top_label"):
        return ROWS, GROUPS.astype(float)
    if name in ("segmented", "tests"):
        return P, Y, GROUPS
    return (P,) if name == "pit" else (P, Y)


MEMBERS = {
    **{f"window {k}": (windows_of_each_kind, k) for k in windows_of_each_kind()},
    **{f"detector {k}": (detectors_of_each_kind, k) for k in detectors_of_each_kind()},
    **{f"recalibrator {k}": (recalibrators_of_each_kind, k) for k in recalibrators_of_each_kind()},
}


def test_the_families_are_complete():
    of = {type(made()[k][0]) for made, k in MEMBERS.values()}
    assert set(drift.DETECTORS.values()) | set(ONLINE.values()) <= of
    assert {getattr(windows, name) for name in windows.__all__} - of <= {windows.Window}


def second_caller(one, many, arrays, few, extra):
    """What the second caller got while a thread was in ``many(*arrays)``, and what that thread got: errors, or None."""
    got, old = [None, None], sys.getswitchinterval()

    def first():
        try:
            many(*arrays)
        except Exception as error:
            got[1] = error

    thread = threading.Thread(target=first)
    sys.setswitchinterval(1e-5)
    try:
        thread.start()
        while not one._busy and thread.is_alive():
            time.sleep(0)
        try:
            many.func(*few, **extra) if extra else many(*few)
        except RuntimeError as error:
            got[0] = error
    finally:
        sys.setswitchinterval(old)
        thread.join()
    return got


@pytest.mark.jit
@pytest.mark.parametrize("name", MEMBERS)
def test_a_second_caller_is_told_and_nothing_is_damaged(name):
    """The thread may be through before the second caller comes: then once more, from the start."""
    made, kind = MEMBERS[name]
    short = 2_000 if any(slow in name for slow in ("patching", "isotonic", "refit")) else N
    arrays = tuple(a[:short] for a in events(kind))
    few = tuple(a[:5] for a in arrays)
    for _ in range(20):
        (one, many), (alone, same) = made()[kind], made()[kind]
        extra = {"t": TIMES[:5]} if kind == "timed" else {}
        if extra:
            many, same = (functools.partial(w.update_many, t=TIMES[:short]) for w in (one, alone))
        for call in (many, same):  # the kernels are compiled
            call.func(*few, **extra) if extra else call(*few)
        refused, failed = second_caller(one, many, arrays, few, extra)
        if refused:
            break
    assert "one window a thread, then `+`" in str(refused)
    assert failed is None and not one._busy
    same(*arrays)
    assert one.to_bytes() == alone.to_bytes()


def test_an_error_in_a_batch_leaves_nothing_closed():
    window = windows.Cumulative(EqualWidth(3), strict=True)
    for _ in range(2):
        with pytest.raises(ValueError, match="must be in"):
            window.update_many([0.5, 2.0], [1.0, 1.0])
    window.update_many([0.5], [1.0])
    assert window.snapshot().count.sum() == 1.0
