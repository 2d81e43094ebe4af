"""The sums behind a command: one window with a key per segment, and how segments come together again."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce

import numpy as np

from streamcal.binning import Binning, EqualWidth, LogOdds, UniformMass
from streamcal.claims import Mean, TopLabel
from streamcal.reading import SourceError
from streamcal.reading.cells import Batch, Codes
from streamcal.reading.roles import Columns
from streamcal.snapshot import Snapshot
from streamcal.windows import Cumulative

BINNINGS: dict[str, type[EqualWidth | UniformMass | LogOdds]] = {
    "equal-width": EqualWidth,
    "uniform-mass": UniformMass,
    "log-odds": LogOdds,
}
HELD = 1000  # segments that are told apart while a table streams by
BUDGET = 64 << 20  # bytes for the sums of all segments: fine grids hold fewer of them
OTHER, UNNAMED = "other", "(empty)"


def binning_of(name: str, bins: int) -> Binning:
    """A binning by its name at the command line."""
    if name not in BINNINGS:
        raise SourceError(f"--binning must be one of {', '.join(BINNINGS)}, got {name}")
    try:
        return BINNINGS[name](bins)
    except ValueError as error:
        raise SourceError(f"--bins: {error}") from None


class Keys:
    """Names of segments -> keys of a window, first come first served; those beyond the last place share key 0."""

    def __init__(self, binning: Binning, segmented: bool) -> None:
        rows = len(binning.fine_edges())
        self.places = min(HELD, max(BUDGET // (rows * 64), 2)) if segmented else 0
        self.names: dict[str, int] = {}

    @property
    def keys(self) -> int:
        """How many keys a window needs; key 0 is the one that is shared."""
        return self.places + 1

    def of(self, batch: Batch) -> Codes | None:
        """The key of each event; None where there are no segments."""
        if batch.segment is None:
            return None
        table = [self._key(name) for name in batch.segments]
        return np.array(table, np.int64)[batch.segment]

    def _key(self, name: str) -> int:
        if name not in self.names and len(self.names) < self.places:
            self.names[name] = len(self.names) + 1
        return self.names.get(name, 0)


class Sums:
    """The sums of a table or of one window of it, per segment."""

    def __init__(self, columns: Columns, binning: Binning, keys: Keys, strict: bool = False) -> None:
        self.keys = keys
        claim = TopLabel() if columns.classes else Mean()
        loss = None if columns.classes else "log"
        self.window = Cumulative(binning, keys=keys.keys, claim=claim, loss=loss, strict=strict)

    def add(self, batch: Batch) -> None:
        """Add the events of a batch."""
        if not len(batch):
            return
        try:
            self.window.update_many(batch.p, batch.y, batch.w, key=self.keys.of(batch))
        except ValueError as error:  # only with strict; the index is one of this batch
            raise SourceError(f"{str(error).partition(' at index')[0]} (--strict)") from None

    def snapshot(self) -> Snapshot:
        """A frozen copy of the sums of all segments."""
        return self.window.snapshot()


def whole(sums: Snapshot, keys: Keys) -> Snapshot:
    """All segments together."""
    return reduce(operator.add, (sums[k] for k in range(len(keys.names) + 1)))


def by_segment(sums: Snapshot, keys: Keys, most: int) -> dict[str, Snapshot]:
    """The `most` segments with most events, largest first, and all others together as "other"."""
    counts = np.asarray(sums.count).sum(-1).reshape(-1) + np.asarray(sums.refused).reshape(-1)
    ranked = sorted(keys.names, key=lambda name: -counts[keys.names[name]])
    seen = [name for name in ranked if counts[keys.names[name]] > 0]
    unnamed = free_name(UNNAMED, keys.names)
    found = {name or unnamed: sums[keys.names[name]] for name in seen[:most]}
    rest = [sums[keys.names[name]] for name in seen[most:]] + ([sums[0]] if counts[0] > 0 else [])
    if rest:
        found[free_name(OTHER, found)] = reduce(operator.add, rest)
    return found


def free_name(name: str, taken: Mapping[str, object]) -> str:
    """A name that no segment has."""
    return free_name(f"({name})", taken) if name in taken else name
