"""Who is in the sums. Every window is one flat buffer, linear in its events; a new one is one file here."""

from streamcal.windows.cumulative import Cumulative
from streamcal.windows.fading import Fading
from streamcal.windows.revertible import Revertible
from streamcal.windows.sliding import Sliding
from streamcal.windows.timed import Timed
from streamcal.windows.tumbling import Tumbling
from streamcal.windows.window import Window

__all__ = ["Cumulative", "Fading", "Revertible", "Sliding", "Timed", "Tumbling", "Window"]
