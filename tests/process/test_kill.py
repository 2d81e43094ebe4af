"""kill -9 in the middle of the work, with every kind of source: nothing is lost and nothing is counted twice."""

from __future__ import annotations

import pytest
from conftest import some
from live_watch import killed

pytestmark = [pytest.mark.jit, pytest.mark.servers]  # whole processes, again and again


@pytest.mark.parametrize("kind", ["file", "redis", "kafka"])
def test_killed_at_random_moments(kind, tmp_path):
    killed(kind, tmp_path, kills=some(12), ids=3_000, pause=0.02, seed=1, per_round=10)
