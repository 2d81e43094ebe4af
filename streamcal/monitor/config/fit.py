"""Whether what a configuration names fits together: detectors and claims, windows and the memory that they take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamcal.binning import N_BINS
from streamcal.monitor.config.lines import Path
from streamcal.monitor.config.settings import Detector, Model, Window
from streamcal.monitor.config.toml_tables import dotted
from streamcal.monitor.detectors import ModelDetector

LARGEST_SLOT = 64 << 20  # bytes
NO_TOLERANCE = "transforms know none, and where negatives are down-sampled a gap is not the gap of the claims"


def misfits(
    models: Sequence[Model], detectors: Sequence[Detector], windows: Sequence[Window]
) -> Iterator[tuple[Path, str]]:
    """What does not fit: the place in the configuration and what is wrong there."""
    for model in models:
        for detector in filter(lambda one: one.watches(model), detectors):
            yield from _of_detector(model, detector)
        for window in windows:
            size, path = bytes_of(model, window), ("windows", window.name)
            if size > LARGEST_SLOT:
                text = f"{dotted(path)} takes {size / 2**20:,.0f} MB for each segment of model {model.name}"
                yield path, f"{text}, at most {LARGEST_SLOT >> 20} MB make sense: take fewer panes, events or rows"


def _of_detector(model: Model, detector: Detector) -> Iterator[tuple[Path, str]]:
    path: Path = ("detectors", detector.name)
    if detector.tolerance and (model.claim == "pit" or model.negative_sampling_rate < 1.0):
        path = (*path, "tolerance")
        yield path, f"{dotted(path)} does not go with model {model.name}: {NO_TOLERANCE}"
        return
    try:
        ModelDetector(model, detector, segmented=False)
    except ValueError as error:
        yield path, f"{dotted(path)} does not fit model {model.name}: {error}"


def bytes_of(model: Model, window: Window) -> int:
    """How much memory a window takes for each segment of a model, and for each version as a whole.

    >>> churn = Model("churn").settled()
    >>> bytes_of(churn, Window("week", time=604800.0, panes=28)), bytes_of(churn, Window("last", events=1000))
    (28672, 35072)
    """
    claim = model.claims()
    rows = 64 * (int(model.rows().plan(claim.domain)[N_BINS]) + 1)
    return claim.width * (rows * window.panes if window.events is None else 3 * rows + 32 * window.events)
