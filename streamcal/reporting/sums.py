"""The sums behind a report: one window with a key per segment, and how segments come together again."""

from __future__ import annotations

import operator
from functools import reduce

import numpy as np

from streamcal.binning import BINNINGS, Binning
from streamcal.claims import Mean, TopLabel
from streamcal.reading import SourceError
from streamcal.reading.cells import Codes, EventBatch
from streamcal.reading.roles import Roles
from streamcal.segments import SHARED, SegmentNames, free_name
from streamcal.snapshot import Snapshot
from streamcal.windows import Cumulative

MOST_BINS = 100_000  # bins of a report: more are finer than scores of five digits, and nobody reads as many lines
HELD = 1000  # segments that are told apart while a table streams by
BUDGET = 64 << 20  # bytes for the sums of all segments: fine grids hold fewer of them


def binning_of(name: str, bins: int) -> Binning:
    """A binning by its name at the command line, also scikit-learn's."""
    name = {"quantile": "uniform-mass", "uniform": "equal-width"}.get(name, name)
    if name not in BINNINGS:
        raise SourceError(f"--binning must be one of {', '.join(BINNINGS)}, got {name}")
    if bins > MOST_BINS:
        raise SourceError(f"--bins: at most {MOST_BINS:,}, got {bins:,}")
    try:
        return BINNINGS[name](bins)
    except ValueError as error:
        raise SourceError(f"--bins: {error}") from None


def segment_names(binning: Binning, segmented: bool) -> SegmentNames:
    """The segments of a table that are told apart, none yet; without segments number 0 is all there is."""
    cell_bytes = 64 * len(binning.fine_edges())
    return SegmentNames(min(HELD, max(BUDGET // cell_bytes, 2)) if segmented else 0)


def numbers_of(batch: EventBatch, names: SegmentNames) -> Codes | None:
    """The number of each event's segment; None where there are no segments."""
    if batch.segment is None:
        return None
    return np.array([names.add(name) for name in batch.segments], np.int64)[batch.segment]


class Sums:
    """The sums of a table or of one window of it, per segment."""

    def __init__(self, roles: Roles, binning: Binning, names: SegmentNames, strict: bool = False) -> None:
        self.names = names
        claim = TopLabel() if roles.classes else Mean()
        loss = None if roles.classes else "log"
        self.window = Cumulative(binning, keys=names.cap + 1, claim=claim, loss=loss, strict=strict)

    def add(self, batch: EventBatch) -> None:
        """Add the events of a batch."""
        if not len(batch):
            return
        try:
            self.window.update_many(batch.p, batch.y, batch.w, key=numbers_of(batch, self.names))
        except ValueError as error:  # only with strict; the index is one of this batch
            raise SourceError(f"{str(error).partition(' at index')[0]} (--strict)") from None

    def snapshot(self) -> Snapshot:
        """A frozen copy of the sums of all segments."""
        return self.window.snapshot()


def whole(sums: Snapshot, names: SegmentNames) -> Snapshot:
    """All segments together."""
    return reduce(operator.add, (sums[number] for number in range(len(names))))


def by_segment(
    sums: Snapshot, names: SegmentNames, most: int, lost: Codes
) -> dict[str, tuple[Snapshot, dict[str, int]]]:
    """The `most` segments with most rows, largest first, and all others together as "other": sums, and rows missing and bad.

    `lost`: rows missing and bad of each number; a segment that has no others is a segment too.
    """
    rows = np.asarray(sums.count).sum(-1).reshape(-1) + np.asarray(sums.refused).reshape(-1) + lost.sum(-1)
    seen = sorted((n for n in range(1, len(names)) if rows[n] > 0), key=lambda n: -rows[n])
    groups = {names.shown(number): [number] for number in seen[:most]}
    if rest := [number for number in (*seen[most:], 0) if rows[number] > 0]:
        groups[free_name(SHARED, groups)] = rest
    return {
        name: (
            reduce(operator.add, (sums[n] for n in numbers)),
            dict(zip(("missing", "bad"), lost[numbers].sum(0).tolist(), strict=True)),
        )
        for name, numbers in groups.items()
    }
