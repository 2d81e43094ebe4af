"""Rows of class probabilities sum to 1, up to .001, at every door that takes them: batch, windows, detectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamcal import Cumulative, EqualWidth, Marginal, TopLabel, marginal_ce, top_label
from streamcal.drift import MarginalDrift, TopLabelDrift

DOORS: dict[str, Callable[[Any], Any]] = {
    "top_label": lambda p: top_label(p, [0, 1]),
    "marginal_ce": lambda p: marginal_ce(p, [0, 1], binning=EqualWidth(5)),
    "strict top label": lambda p: Cumulative(EqualWidth(5), claim=TopLabel(), strict=True).update_many(p, [0, 1]),
    "strict marginal": lambda p: Cumulative(EqualWidth(5), claim=Marginal(3), strict=True).update_many(p, [0, 1]),
    "TopLabelDrift": lambda p: TopLabelDrift(arl=1000).update_many(p, [0, 1]),
    "MarginalDrift": lambda p: MarginalDrift(3, arl=1000).update_many(p, [0, 1]),
}
GOOD = [[0.2, 0.3, 0.5], [0.3333, 0.3333, 0.3333]]


@pytest.mark.parametrize("door", DOORS)
def test_rows_that_do_not_sum_to_1_are_refused(door: str) -> None:
    DOORS[door](GOOD)
    for row in ([0.9, 0.9, 0.9], [0.2, 0.3, 0.498], [0.0, 0.0, 0.0]):
        with pytest.raises(ValueError, match="at index 1"):
            DOORS[door]([GOOD[0], row])


@pytest.mark.parametrize("claim", [TopLabel(), Marginal(3)])
def test_windows_count_them(claim: Any) -> None:
    keys = len(claim.levels)
    window = Cumulative(EqualWidth(5), claim=claim)
    window.update_many([*GOOD, [0.9, 0.9, 0.9]], [0, 1, 2])
    s = window.snapshot()
    assert np.asarray(s.count).sum(-1).tolist() == [2.0] * keys
    assert np.asarray(s.refused).tolist() == [1.0] * keys
