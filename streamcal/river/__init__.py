"""River's vocabulary: calibration metrics, recalibrated classifiers and regressors beside the raw ones, drift detectors.

Read ``metrics`` and ``interval_metrics``; ``served`` (what was served, until its label comes), ``predictions`` (what models
answer), ``wrapper`` (what both adapters share), ``classifier``, ``residuals`` and ``regressor``; ``comparison``; ``drift``.
"""

from streamcal.river.classifier import RecalibratedClassifier
from streamcal.river.comparison import compare
from streamcal.river.drift import CalibrationDriftDetector, CoverageDriftDetector, TopLabelDriftDetector
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
    MarginalCE,
    NormalizedEntropy,
    PARatio,
    TopLabelECE,
)
from streamcal.river.regressor import RecalibratedRegressor

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
    "CalibrationDriftDetector",
    "Coverage",
    "CoverageDriftDetector",
    "IntervalScore",
    "MarginalCE",
    "NormalizedEntropy",
    "PARatio",
    "PinballLoss",
    "RecalibratedClassifier",
    "RecalibratedRegressor",
    "TopLabelDriftDetector",
    "TopLabelECE",
    "compare",
]
