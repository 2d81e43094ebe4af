"""Which events are in the sums: every window is one flat buffer, linear in its events; a new one is one file here.

Read window.py first (the doors for one event and for many), then cumulative.py (the least a window can be), sliding.py and
timed.py (events that leave), fading.py and tumbling.py; revertible.py last, which lets the caller say what leaves.
"""

from streamcal.windows.cumulative import Cumulative
from streamcal.windows.fading import Fading
from streamcal.windows.revertible import Revertible
from streamcal.windows.sliding import Sliding
from streamcal.windows.timed import Timed
from streamcal.windows.tumbling import Tumbling
from streamcal.windows.window import Window

__all__ = ["Cumulative", "Fading", "Revertible", "Sliding", "Timed", "Tumbling", "Window"]
