"""River's vocabulary: calibration metrics that are River metrics."""

from streamcal.river.interval_metrics import PIT, Q1, Coverage, IntervalScore, PinballLoss
from streamcal.river.metrics import (
    ECE,
    K1,
    K2,
    L2CE,
    MCE,
    Brier,
    BrierCalibration,
    BrierRefinement,
    NormalizedEntropy,
    PARatio,
)
from streamcal.river.multiclass_metrics import MarginalCE, TopLabelECE

__all__ = [
    "ECE",
    "K1",
    "K2",
    "L2CE",
    "MCE",
    "PIT",
    "Q1",
    "Brier",
    "BrierCalibration",
    "BrierRefinement",
    "Coverage",
    "IntervalScore",
    "MarginalCE",
    "NormalizedEntropy",
    "PARatio",
    "PinballLoss",
    "TopLabelECE",
]
