"""`--alarm arl=20000,tolerance=0.02`: a detector beside the windows, and a line for each change it finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streamcal.arrays import one_number
from streamcal.claims import top_label
from streamcal.command.report import Reader
from streamcal.drift import CalibrationDrift, SegmentedDrift
from streamcal.drift.segments import segments_in_words
from streamcal.reading import SourceError
from streamcal.reading.cells import Batch
from streamcal.reporting.sums import OTHER, UNNAMED, free_name
from streamcal.reporting.text import count
from streamcal.times import utc

NAMES = ("arl", "tolerance")
BLOCK = 1_000  # events between two looks: the detector remembers its last 20 reports, an alarm beyond those has none


@dataclass(frozen=True)
class Wish:
    """What --alarm asks for: average run length to a false alarm in events, and the gap that is no reason for one."""

    arl: float = 20_000.0
    tolerance: float = 0.0
    fail: bool = False  # whether an alarm makes the exit code 1

    @classmethod
    def parse(cls, text: str, fail: bool = False) -> Wish:
        """SourceError when it is not arl=NUMBER, tolerance=NUMBER or both."""
        given: dict[str, float] = {}
        for part in text.split(","):
            name, _, value = (piece.strip() for piece in part.partition("="))
            if name not in NAMES or name in given or (number := one_number(value.replace("_", ""))) != number:
                raise SourceError(f'--alarm must look like "arl=20000" or "arl=20000,tolerance=0.02", got "{text}"')
            given[name] = number
        wish = cls(**given, fail=fail)
        try:
            CalibrationDrift(wish.arl, wish.tolerance)
        except ValueError as error:
            raise SourceError(f"--alarm: {error}") from None
        return wish


def wished(text: str | None, fail: bool) -> Wish | None:
    """What --alarm and --fail-on-alarm ask for together."""
    if text is None:
        if fail:
            raise SourceError('--fail-on-alarm goes with an --alarm such as "arl=20000"')
        return None
    return Wish.parse(text, fail)


class Alarms:
    """Feeds a detector with every event of a table, and hands out a document for each alarm.

    With a column of segments it is a SegmentedDrift, which names them; those beyond the last place share one.
    """

    def __init__(self, reader: Reader, wish: Wish) -> None:
        self.reader, self.wish, self.taken = reader, wish, 0
        segmented = reader.columns.segment is not None
        self.detector: Any = (
            SegmentedDrift(reader.keys.keys, wish.arl, wish.tolerance)
            if segmented
            else CalibrationDrift(wish.arl, wish.tolerance)
        )
        if reader.columns.weight is not None:
            reader.notes.append("--alarm takes no weights: every event counts once")

    def feed(self, batch: Batch) -> Iterator[dict[str, Any]]:
        """Take the events of a batch; a document for each alarm, in order."""
        if not len(batch):
            return
        p, y = top_label(batch.p, batch.y) if batch.p.ndim == 2 else (batch.p, batch.y)
        key = self.reader.keys.of(batch)
        for first in range(0, len(batch), BLOCK):
            some = slice(first, first + BLOCK)
            where = () if key is None else (key[some],)
            found = self.detector.update_many(p[some], y[some], *where).tolist()
            reports = self.detector.history()[-len(found) :] if found else []
            bare = [{"alarm": True, "event": self.taken + i} for i in found[: len(found) - len(reports)]]
            earlier = self.count - len(found)
            for number, (i, report) in enumerate(zip(found, [*bare, *reports], strict=True), earlier + 1):
                at = None if batch.t is None else utc(float(batch.t[first + i]))
                yield self._named({"type": "alarm", "number": number, "time": at, **report})
            self.taken += len(y[some])

    def _named(self, said: dict[str, Any]) -> dict[str, Any]:
        """A report whose segments have their names."""
        if "segments" not in said:
            return said
        taken = self.reader.keys.names
        names = {key: name or free_name(UNNAMED, taken) for name, key in taken.items()}
        other = free_name(OTHER, dict.fromkeys(names.values()))
        segments = [{**part, "segment": names.get(int(part["segment"]), other)} for part in said["segments"]]
        named = {**said, "segments": segments}
        return {**named, "text": segments_in_words(named)}

    def exit_code(self) -> int:
        """1 if there was an alarm that is to fail, 2 if nothing came that could be judged, else 0."""
        if not self.wish.fail:
            return 0
        return 1 if self.count else 0 if self.detector.n else 2

    @property
    def count(self) -> int:
        """Alarms so far."""
        return int(self.detector.alarms)

    def summary(self) -> str:
        """How it ended, in one line."""
        seen, now = count(self.detector.n), f"{self.detector.evidence:.3g}"
        return f"alarms: {self.count} in {seen} events (calibrated: one in {self.wish.arl:g}, or fewer); evidence now {now}"


def line(said: dict[str, Any]) -> str:
    """An alarm for eyes: one line."""
    when = f", {said['time']}" if said["time"] else ""
    return f"ALARM {said['number']} after {count(said['event'] + 1)} events{when}: {said.get('text', 'see the alarms after it')}"
