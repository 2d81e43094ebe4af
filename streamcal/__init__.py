"""streamcal: an online streaming calibration engine.

When the model says 80 %, is it right 80 % of the time, now, on this segment, and if not, since when, and what do we do?
"""

from streamcal.batch import (
    CalibrationWarning,
    Murphy,
    bin_index,
    brier,
    calibration_intercept,
    calibration_slope,
    ece,
    k1,
    k2,
    kinf,
    l2_ce,
    log_loss,
    marginal_ce,
    mce,
    murphy,
    oe_ratio,
    pa_ratio,
    pinball_loss,
    q1,
    q2,
    qinf,
    reliability,
    spiegelhalter_z,
)
from streamcal.binning import Edges, EqualWidth, Grid, Levels, LogOdds, UniformMass
from streamcal.claims import PIT, Interval, Marginal, Mean, Quantile, TopLabel, top_label
from streamcal.metrics import metric
from streamcal.snapshot import METRICS, Snapshot
from streamcal.state import from_bytes
from streamcal.windows import Cumulative, Fading, Sliding, Timed, Tumbling

__version__ = "0.1.0"

__all__ = [
    "METRICS",
    "PIT",
    "CalibrationWarning",
    "Cumulative",
    "Edges",
    "EqualWidth",
    "Fading",
    "Grid",
    "Interval",
    "Levels",
    "LogOdds",
    "Marginal",
    "Mean",
    "Murphy",
    "Quantile",
    "Sliding",
    "Snapshot",
    "Timed",
    "TopLabel",
    "Tumbling",
    "UniformMass",
    "bin_index",
    "brier",
    "calibration_intercept",
    "calibration_slope",
    "ece",
    "from_bytes",
    "k1",
    "k2",
    "kinf",
    "l2_ce",
    "log_loss",
    "marginal_ce",
    "mce",
    "metric",
    "murphy",
    "oe_ratio",
    "pa_ratio",
    "pinball_loss",
    "q1",
    "q2",
    "qinf",
    "reliability",
    "spiegelhalter_z",
    "top_label",
]
