"""streamcal: an online streaming calibration engine.

When the model says 80 %, is it right 80 % of the time, now, on this segment, and if not, since when, and what do we do?
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Module -> the public names that come from it, at their first use: numpy and numba are loaded when they are needed.
_PLACES = {
    "batch": "Murphy bin_index brier calibration_intercept calibration_slope ece k1 k2 kinf "
    "l2_ce log_loss marginal_ce mce murphy oe_ratio pa_ratio pinball_loss q1 q2 qinf reliability "
    "spiegelhalter_z",
    "binning": "Edges EqualWidth Grid Levels LogOdds UniformMass",
    "claims": "PIT Interval Marginal Mean Quantile TopLabel top_label",
    "limits": "CalibrationWarning",
    "metrics": "metric",
    "recalibrate": "ONLINE RECALIBRATORS AlmostOneStepAhead BetaCalibration Calibeating Chain FosterForecaster Frozen "
    "Guard HistogramBinning IsotonicCalibration MixedForecaster MultivalidMean MultivalidQuantile "
    "OneShotPatching Online OnlineBeta OnlineHistogram OnlineIsotonic OnlineMarginal OnlinePatching "
    "OnlinePlatt OnlineQuantilePatching Patching PlattScaling QuantilePatching QuantileTracker Refit "
    "ScalingBinning TemperatureScaling",
    # a snapshot with the metrics and intervals that read it: they stand above it
    "summary": "METRICS Snapshot",
    "state": "from_bytes",
    "windows": "Cumulative Fading Revertible Sliding Timed Tumbling",
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names.split()}

__version__ = "0.1.0"

# Names side by side rather than a name a line.
# fmt: off
# isort: off
__all__ = [
    "METRICS", "ONLINE", "PIT", "RECALIBRATORS", "AlmostOneStepAhead", "BetaCalibration", "Calibeating",
    "CalibrationWarning", "Chain", "Cumulative", "Edges", "EqualWidth", "Fading", "FosterForecaster", "Frozen",
    "Grid", "Guard", "HistogramBinning", "Interval", "IsotonicCalibration", "Levels", "LogOdds", "Marginal", "Mean",
    "MixedForecaster", "MultivalidMean", "MultivalidQuantile", "Murphy", "OneShotPatching", "Online", "OnlineBeta",
    "OnlineHistogram", "OnlineIsotonic", "OnlineMarginal", "OnlinePatching", "OnlinePlatt", "OnlineQuantilePatching",
    "Patching", "PlattScaling", "Quantile", "QuantilePatching", "QuantileTracker", "Refit", "Revertible",
    "ScalingBinning", "Sliding", "Snapshot", "TemperatureScaling", "Timed", "TopLabel", "Tumbling", "UniformMass",
    "bin_index", "brier", "calibration_intercept", "calibration_slope", "ece", "from_bytes", "k1", "k2", "kinf",
    "l2_ce", "log_loss", "marginal_ce", "mce", "metric", "murphy", "oe_ratio", "pa_ratio", "pinball_loss", "q1", "q2",
    "qinf", "reliability", "spiegelhalter_z", "top_label",
]

if TYPE_CHECKING:
    from streamcal.batch import (
        Murphy, bin_index, brier, calibration_intercept, calibration_slope, ece, k1, k2, kinf,
        l2_ce, log_loss, marginal_ce, mce, murphy, oe_ratio, pa_ratio, pinball_loss, q1, q2, qinf, reliability,
        spiegelhalter_z,
    )
    from streamcal.binning import Edges, EqualWidth, Grid, Levels, LogOdds, UniformMass
    from streamcal.claims import PIT, Interval, Marginal, Mean, Quantile, TopLabel, top_label
    from streamcal.limits import CalibrationWarning
    from streamcal.metrics import metric
    from streamcal.recalibrate import (
        ONLINE, RECALIBRATORS, AlmostOneStepAhead, BetaCalibration, Calibeating, Chain, FosterForecaster, Frozen,
        Guard, HistogramBinning, IsotonicCalibration, MixedForecaster, MultivalidMean, MultivalidQuantile,
        OneShotPatching, Online, OnlineBeta, OnlineHistogram, OnlineIsotonic, OnlineMarginal, OnlinePatching,
        OnlinePlatt, OnlineQuantilePatching, Patching, PlattScaling, QuantilePatching, QuantileTracker, Refit,
        ScalingBinning, TemperatureScaling,
    )
    from streamcal.snapshot import METRICS, Snapshot
    from streamcal.state import from_bytes
    from streamcal.windows import Cumulative, Fading, Revertible, Sliding, Timed, Tumbling
else:

    def __getattr__(name: str) -> Any:
        if name in _PLACES:
            return import_module(f"streamcal.{name}")
        if name not in _MODULES:
            raise AttributeError(f"module 'streamcal' has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(f"streamcal.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return [*__all__, *_PLACES, "__version__"]
