"""Old names of what is in binning.py; goes when nobody imports it any more."""

from streamcal.binning import (
    DENOMINATOR,
    DYADIC,
    EDGES,
    N_BINS,
    OFFSET,
    OUTSIDE,
    RULE,
    SCALE,
    SEARCH,
    SHIFT,
    SIGNED,
    STEP,
    UNIFORM,
    bin_of,
    bins_of,
    dyadic_bin,
    plan_of,
    search_bin,
    signed_bin,
    uniform_bin,
)

N_ROWS, row, rows_of, dyadic_row = N_BINS, bin_of, bins_of, dyadic_bin
search_row, signed_row, uniform_row = search_bin, signed_bin, uniform_bin

__all__ = [
    "DENOMINATOR",
    "DYADIC",
    "EDGES",
    "N_ROWS",
    "OFFSET",
    "OUTSIDE",
    "RULE",
    "SCALE",
    "SEARCH",
    "SHIFT",
    "SIGNED",
    "STEP",
    "UNIFORM",
    "dyadic_row",
    "plan_of",
    "row",
    "rows_of",
    "search_row",
    "signed_row",
    "uniform_row",
]
