"""Detectors: each bets against the claims of a stream, and its threshold is the average run length that it guarantees.

Names are loaded at first use: ``from streamcal.drift import CalibrationDrift``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamcal.drift.bets import Bets
    from streamcal.drift.calibration import CalibrationDrift
    from streamcal.drift.coverage import CoverageDrift
    from streamcal.drift.detector import Detector
    from streamcal.drift.multiclass import MarginalDrift, TopLabelDrift
    from streamcal.drift.pit import PITDrift, randomised_pit
    from streamcal.drift.segments import SegmentedDrift
    from streamcal.drift.segments_etest import SegmentedTest
    from streamcal.drift.sequential_test import CalibrationTest

PLACES = {
    "Bets": "bets",
    "CalibrationDrift": "calibration",
    "CalibrationTest": "sequential_test",
    "CoverageDrift": "coverage",
    "Detector": "detector",
    "MarginalDrift": "multiclass",
    "PITDrift": "pit",
    "SegmentedDrift": "segments",
    "SegmentedTest": "segments_etest",
    "TopLabelDrift": "multiclass",
    "randomised_pit": "pit",
}

__all__ = [
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
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
