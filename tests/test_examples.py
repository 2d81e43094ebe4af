"""Each example runs from a clean process, stays short, and says what it is there to say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
TELLING = {
    "checkpoint.py": r"^sliding .* bit for bit as uninterrupted: True$",
    "monitor.py": r"(?s)^day 2\d: FIRING \(warning\) drift: model churn, segment country=ch: .*^replayed 80.* same decisions$",
    "quantiles.py": r"^ +0\.9 +0\.\d+ .* off$",
    "repair.py": r"^  event \d+: level 0\.7 recovered",
    "river_delayed.py": r"^16 hours +0\.07\d 0\.\d+ +0\.07\d 0\.\d+ +0\.10\d 0\.\d+$",
    "river_pipeline.py": r"(?s)^plain$.* ECE: 0\.09\d+   alarms: 39$.*^recalibrated$.* ECE: 0\.03\d+   alarms: \d$"
    r".*every alarm$.* LogLoss: 0\.58\d+ ",
    "river_quantiles.py": r"^TrumpApproval  tracked +0\.(89|90)\d ",
    "segments.py": r"(?s)^be .* off \(k2, mean, spread\)$.*^all +60000 +\d\.\d+ .* calibrated as far as n = 60,000 can tell$",
    "sliding.py": r"^seen to be off, events after the change: Sliding\(2000\) \d+, Fading\(1000\) \d+, Timed\(2000 s\) \d+$",
}


def printed(name: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(TELLING)


@pytest.mark.parametrize("name", TELLING)
def test_example_is_short(name):
    assert len((EXAMPLES / name).read_text().splitlines()) <= 60


@pytest.mark.parametrize("name", TELLING)
def test_example_says_it(name):
    assert re.search(TELLING[name], printed(name), re.MULTILINE)
