"""Recalibrators: maps from predicted probabilities to better ones, one file per idea; batch (fit, predict) and online.

Read ``recalibrator`` and ``online`` first (what all of a family share), then ``platt``, ``beta``, ``temperature``, ``histogram``,
``isotonic``, ``scaling_binning`` (one map each), ``online_newton``, ``patching`` and ``online_patching``; ``guard`` mixes them,
and ``refit``, ``windowed``, ``multiclass``, ``grouped`` carry them; ``calibeating``, ``forecasting``, ``quantile_tracking``,
``multivalid`` are forecasters of their own; ``comparison`` is what their reports stand on.
"""

from streamcal.recalibrate.beta import BetaCalibration
from streamcal.recalibrate.calibeating import Calibeating, MixedForecaster
from streamcal.recalibrate.forecasting import AlmostOneStepAhead, FosterForecaster
from streamcal.recalibrate.guard import Guard
from streamcal.recalibrate.histogram import HistogramBinning, OnlineHistogram
from streamcal.recalibrate.isotonic import IsotonicCalibration, OnlineIsotonic
from streamcal.recalibrate.multiclass import MarginalCalibration, OnlineMarginal, TopLabelCalibration
from streamcal.recalibrate.multivalid import MultivalidMean, MultivalidQuantile
from streamcal.recalibrate.online import ONLINE, Online
from streamcal.recalibrate.online_newton import OnlineBeta, OnlinePlatt
from streamcal.recalibrate.online_patching import OnlinePatching, OnlineQuantilePatching
from streamcal.recalibrate.patching import OneShotPatching, Patching, QuantilePatching
from streamcal.recalibrate.platt import PlattScaling
from streamcal.recalibrate.quantile_tracking import QuantileTracker
from streamcal.recalibrate.recalibrator import RECALIBRATORS, Recalibrator
from streamcal.recalibrate.refit import Chain, Frozen, Refit
from streamcal.recalibrate.scaling_binning import ScalingBinning
from streamcal.recalibrate.temperature import TemperatureScaling

Marginal, TopLabel = MarginalCalibration, TopLabelCalibration  # as users know them; streamcal.Marginal is the claim

# Names side by side rather than a name a line.
# fmt: off
__all__ = [
    "ONLINE", "RECALIBRATORS", "AlmostOneStepAhead", "BetaCalibration", "Calibeating", "Chain", "FosterForecaster",
    "Frozen", "Guard", "HistogramBinning", "IsotonicCalibration", "Marginal", "MarginalCalibration",
    "MixedForecaster", "MultivalidMean", "MultivalidQuantile", "OneShotPatching", "Online", "OnlineBeta",
    "OnlineHistogram", "OnlineIsotonic", "OnlineMarginal", "OnlinePatching", "OnlinePlatt",
    "OnlineQuantilePatching", "Patching", "PlattScaling", "QuantilePatching", "QuantileTracker", "Recalibrator",
    "Refit", "ScalingBinning", "TemperatureScaling", "TopLabel", "TopLabelCalibration",
]
