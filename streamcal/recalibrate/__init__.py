"""Recalibrators: maps from predicted probabilities to better ones, one file per idea."""

from streamcal.recalibrate.beta import BetaCalibration
from streamcal.recalibrate.histogram import HistogramBinning
from streamcal.recalibrate.isotonic import IsotonicCalibration
from streamcal.recalibrate.multiclass import MarginalCalibration, TopLabelCalibration
from streamcal.recalibrate.patching import OneShotPatching, Patching
from streamcal.recalibrate.platt import PlattScaling
from streamcal.recalibrate.quantile_patching import QuantilePatching
from streamcal.recalibrate.recalibrator import RECALIBRATORS, Recalibrator
from streamcal.recalibrate.scaling_binning import ScalingBinning
from streamcal.recalibrate.temperature import TemperatureScaling

Marginal, TopLabel = MarginalCalibration, TopLabelCalibration

__all__ = [
    "RECALIBRATORS",
    "BetaCalibration",
    "HistogramBinning",
    "IsotonicCalibration",
    "Marginal",
    "MarginalCalibration",
    "OneShotPatching",
    "Patching",
    "PlattScaling",
    "QuantilePatching",
    "Recalibrator",
    "ScalingBinning",
    "TemperatureScaling",
    "TopLabel",
    "TopLabelCalibration",
]
