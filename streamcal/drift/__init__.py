"""Detectors: each bets against the claims of a stream, and its threshold is the average run length that it guarantees.

To be read in this order: ``shiryaev_roberts`` (the accumulator and its kernels), ``bets`` (what is laid), ``detector`` (what all
share), ``calibration``, ``onset`` (what a report says), ``multiclass``, ``segments``, ``coverage``, ``pit``, ``sequential_test``.

Names are loaded at first use: ``from streamcal.drift import CalibrationDrift``. ``DETECTORS`` holds the family by name;
``@detector`` in ``detector`` adds one of your own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamcal.drift.bets import Bets
    from streamcal.drift.calibration import CalibrationDrift
    from streamcal.drift.coverage import CoverageDrift
    from streamcal.drift.detector import DETECTORS, Detector
    from streamcal.drift.multiclass import MarginalDrift, TopLabelDrift
    from streamcal.drift.pit import PITDrift, randomised_pit
    from streamcal.drift.segments import SegmentedDrift
    from streamcal.drift.sequential_test import CalibrationTest, SegmentedTest

PLACES = {
    "calibration": ("CalibrationDrift",),
    "segments": ("SegmentedDrift",),
    "multiclass": ("MarginalDrift", "TopLabelDrift"),
    "coverage": ("CoverageDrift",),
    "pit": ("PITDrift", "randomised_pit"),
    "sequential_test": ("CalibrationTest", "SegmentedTest"),
    "bets": ("Bets",),
    "detector": ("DETECTORS", "Detector"),
}

__all__ = [
    "DETECTORS",
    "Bets",
    "CalibrationDrift",
    "CalibrationTest",
    "CoverageDrift",
    "Detector",
    "MarginalDrift",
    "PITDrift",
    "SegmentedDrift",
    "SegmentedTest",
    "TopLabelDrift",
    "randomised_pit",
]


def __getattr__(name: str) -> Any:
    places = [place for place, names in PLACES.items() if name in names]
    if not places:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for place in PLACES if name == "DETECTORS" else places:  # the family is known when all its files are read
        module = import_module(f"{__name__}.{place}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
