"""The sums of one model: in every window one array with a slot for each version and segment, and the detectors.

A micro-batch of joined events is one kernel call per window for all events of their version, and one for their segments,
however many these are. A correction is taken back from where it was counted.

A *place* says which events of a version a slot holds: 0 all of them, 1 those of "other", and each segment with sums of its own
has one. A segment is given its place when its first prediction comes, and keeps it. A pair whose prediction came before its
segment had a place (the cap was smaller then, the fields were others, the model was not there) counts in "other", and is taken
back from there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec
import numpy as np

from streamcal.arrays import Array, Ints
from streamcal.monitor.config.config import Config
from streamcal.monitor.config.settings import WHOLE, DetectorTable, Model, Segments, WindowTable
from streamcal.monitor.config.toml_tables import digest
from streamcal.monitor.detectors import Alarm, ModelDetector, Rings
from streamcal.monitor.events import Events
from streamcal.segments import SegmentNames
from streamcal.snapshot import Snapshot
from streamcal.state import from_bytes
from streamcal.windows import Sliding, Timed

ALL, OTHER = 0, 1  # places; those of the segments follow
FIRST_KEYS = 2  # of a window; then twice as many whenever there are too few
BY_LABEL = "label"
LOSSES = {"log_loss": "log", "normalized_entropy": "log", "pinball_loss": "pinball"}  # metrics that need one
Sums: TypeAlias = Sliding | Timed


class Aggregates:
    """Windows and detectors of one model. What is fed in the same order gives the same, to the last bit, in any process."""

    def __init__(
        self,
        model: Model,
        windows: Sequence[WindowTable],
        detectors: Sequence[DetectorTable],
        segments: Segments | None,
        losses: Mapping[str, str] | None = None,
    ) -> None:
        self.model, self.claim = model, model.claims()
        self.settings = {window.name: window for window in windows}
        self.losses = dict(losses or {})
        self.fields = segments.fields if segments else ()
        self.cap = segments.cap if segments else 0
        self.segments = SegmentNames(segments.cap, other=segments.other) if segments else None
        self.first_numbers = [0.0, 0.0]  # of the predictions that count at each place: those before count in "other"
        self.windows: dict[str, Sums] = {name: self._new(window) for name, window in self.settings.items()}
        # which event is which in a window of the last events, so that a correction finds its own, or none
        self.numbers = {name: Rings(w.events) for name, w in self.settings.items() if w.events is not None}
        self.slots: list[tuple[str, int]] = []  # version and place of each
        self.detectors: dict[tuple[str, str], ModelDetector] = {}  # by name and version
        self.detector_settings = {detector.name: detector for detector in detectors}
        self.alarms: list[Alarm] = []  # since the last evaluation
        self.since: dict[str, float] = {}  # when windows and detectors began anew: what counted before is not theirs
        self._tables: dict[str, Ints] = {}  # of each version: place -> slot, -1 where there is none

    @classmethod
    def of(cls, config: Config, model: Model) -> Aggregates:
        """Those of a model in a configuration: losses are summed where a rule asks for them."""
        rules = [rule for rule in config.rules if model in config.of(rule)]
        losses = {r.window: LOSSES[r.metric] for r in rules if r.window and r.metric in LOSSES}
        detectors = [detector for detector in config.detectors if detector.watches(model)]
        return cls(model, config.windows, detectors, config.segments, losses)

    def _new(self, window: WindowTable) -> Sums:
        binning, loss = self.model.window_binning(), self.losses.get(window.name)
        if window.events is not None:
            return Sliding(binning, window.events, keys=FIRST_KEYS, claim=self.claim, loss=loss)
        assert window.time is not None
        return Timed(binning, window.time, window.panes, window.time, keys=FIRST_KEYS, claim=self.claim, loss=loss)

    # -- segments ------------------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """What each place is called: "all", "other", and the segments in the order in which they were given theirs."""
        return [WHOLE, *self.segments.names] if self.segments else [WHOLE]

    def wants_place(self, segment: str) -> bool:
        """Whether a segment has no place and there is one left."""
        return self.segments is not None and not self.segments.is_full and segment not in self.segments

    def place(self, segment: str, number: float) -> None:
        """Give a segment a place, whatever the cap, for predictions with a larger number than this."""
        if self.segments is None or segment in self.segments:
            return
        self.segments.cap = max(self.segments.cap, len(self.segments))
        self.segments.add(segment)
        self.first_numbers.append(number)

    def places_of(self, segments: Sequence[str], numbers: Array) -> Ints:
        """Where events are counted besides place 0, by their segments and the numbers of their predictions. Shape (n,)."""
        if self.segments is None:
            return np.zeros(len(segments), np.int64)
        places = self.segments.numbers(segments) + OTHER
        if numbers.min(initial=math.inf) <= max(self.first_numbers):
            places[numbers <= np.array(self.first_numbers)[places]] = OTHER
        return places

    # -- slots ---------------------------------------------------------------------------------------------------------

    @property
    def versions(self) -> list[str]:
        """Versions that have had an event, in the order in which they came."""
        return list(self._tables)

    def table(self, version: str) -> Ints:
        """The slot of each place of a version, -1 where nothing has come. Shape (places,)."""
        known, places = self._tables.get(version, np.empty(0, np.int64)), len(self.first_numbers)
        return np.concatenate([known, np.full(places - known.size, -1)]) if known.size < places else known

    def _slots_of(self, version: str, places: Ints) -> Ints:
        """Where events go, given out as needed: the slot of all events of a version, and those of the places besides.

        Shape (2, n), or (1, n) without segments.
        """
        table = self.table(version)
        for place in sorted({ALL, *places.tolist()}):
            if table[place] < 0:
                table[place] = len(self.slots)
                self.slots.append((version, place))
        self._tables[version] = table
        for name, window in self.windows.items():
            if window.keys < len(self.slots):
                self.windows[name] = window.widened(max(2 * window.keys, len(self.slots)))
        every = np.full(len(places), table[ALL])
        return every[None] if self.segments is None else np.stack([every, table[places]])

    # -- events --------------------------------------------------------------------------------------------------------

    def take(self, events: Events) -> None:
        """Count joined events in order."""
        if not len(events):
            return
        places = self.places_of(events.segment, events.seq)
        slots = self._slots_of(events.version, places)
        rate = self.model.negative_sampling_rate
        if rate < 1.0:  # only this share of the negatives came: each weighs so much more
            events = replace(events, w=np.where(events.y == 0.0, events.w / rate, events.w))
        first, fresh = 0, np.ones(len(events), bool)
        for i in np.flatnonzero(events.sign < 0.0).tolist():
            self._add(events, slots, slice(first, i))
            self._correct(events.part(slice(i, i + 1)), events.part(slice(i + 1, i + 2)), slots[:, i])
            fresh[i : i + 2] = False
            first = i + 2
        self._add(events, slots, slice(first, len(events)))
        if first:
            events, places = events.part(np.flatnonzero(fresh)), places[fresh]
        if self.segments is not None:
            self.segments.count(places - OTHER)
        self._detect(events, places - OTHER)

    def _add(self, events: Events, slots: Ints, part: slice) -> None:
        """Events that count for the first time: for the version as a whole, and for their segments."""
        if part.start == part.stop:
            return
        # one call with each event twice costs less than two, up to batches of 10,000
        keys, columns = slots[:, part].reshape(-1), (events.p, events.y, events.w, events.seq, events.t, events.moment)
        every = [np.concatenate([column[part]] * len(slots)) for column in columns]
        for name, window in self.windows.items():
            of = every[-1] > self.since.get(f"window/{name}", -math.inf)
            key, (p, y, w, seq, t, moment) = keys[of], (column[of] for column in every)
            if isinstance(window, Timed):
                window.add_checked(p, y, w, key, moment if self.settings[name].by == BY_LABEL else t)
            else:
                window.add_checked(p, y, w, key)
                self.numbers[name].add(key, seq)

    def _correct(self, old: Events, new: Events, slots: Ints) -> None:
        """An event that counted with one outcome, and now with another."""
        for name, window in self.windows.items():
            since, by = self.since.get(f"window/{name}", -math.inf), self.settings[name].by
            for key in dict.fromkeys(slots.tolist()):
                if not isinstance(window, Timed):
                    if old.moment[0] > since:
                        ages = self.numbers[name].ages(key, float(old.seq[0]))
                        window.correct(old.p[0], old.y[0], new.y[0], old.w[0], key, new_w=new.w[0], ages=ages)
                    continue
                if old.moment[0] > since:
                    window.take_back_many(old.p, old.y, old.w, key=[key], t=old.moment if by == BY_LABEL else old.t)
                if new.moment[0] > since:
                    window.update_many(new.p, new.y, new.w, key=[key], t=new.moment if by == BY_LABEL else new.t)

    def _detect(self, events: Events, segment: Ints) -> None:
        """The detectors see each event once, with its first outcome: a bet cannot be taken back."""
        for name, settings in self.detector_settings.items():
            detector = self.detectors.get((name, events.version))
            if detector is None:
                detector = ModelDetector(self.model, settings, self.segments is not None)
                self.detectors[name, events.version] = detector
            of = events.moment > self.since.get(f"detector/{name}", -math.inf)
            p, y, t = (column[of] for column in (events.p, events.y, events.t))
            places = len(self.first_numbers) - OTHER
            self.alarms += detector.take(p, y, t, segment[of], events.version, places)

    # -- reading -------------------------------------------------------------------------------------------------------

    def snapshot(self, window: str, now: float) -> Snapshot:
        """The sums of all slots (and more) in a window as of a moment: by prediction time, of the last prediction that counts."""
        sums = self.windows[window]
        if isinstance(sums, Timed) and self.settings[window].by == BY_LABEL:
            return sums.snapshot(now)
        return sums.snapshot()

    def snapshot_of(self, window: str, version: str, place: int, now: float) -> Snapshot:
        """The sums of one version at one place; empty where nothing has come."""
        slot, sums, width = int(self.table(version)[place]), self.windows[window], self.claim.width
        if isinstance(sums, Timed):
            s = sums.snapshot_of(max(slot, 0), now if self.settings[window].by == BY_LABEL else None)
        else:
            s = sums.snapshot()
            s = replace(s, cells=s.cells[max(slot, 0) * width :][:width].copy())
        return replace(s, cells=np.zeros_like(s.cells)) if slot < 0 else s

    def bounds(self, window: str, now: float) -> tuple[float | None, float | None]:
        """From when to when the events of a window are, None for one of a number of events."""
        settings, sums = self.settings[window], self.windows[window]
        if not isinstance(sums, Timed) or settings.time is None:
            return None, None
        end = now if settings.by == BY_LABEL else sums.watermark
        pane = settings.time / settings.panes
        return ((end // pane + 1) - settings.panes) * pane, end

    def status(self) -> dict[str, int]:
        """How many segments have sums of their own, how many may, and how many events went to "other"."""
        own, overflow = (len(self.segments) - 1, self.segments.overflow) if self.segments else (0, 0)
        return {"own": own, "cap": self.cap, "overflow": overflow}

    # -- documents -----------------------------------------------------------------------------------------------------

    def digests(self) -> dict[str, str]:
        """What must be the same for sums to be continued, of each window and detector."""
        counted = replace(self.model, versions=(), raw=None, tolerance=0.0)  # what says how an event is counted
        judged = replace(self.model, versions=(), raw=None)
        windows = {
            f"window/{name}": digest((counted, w, self.fields, self.losses.get(name, "")))
            for name, w in self.settings.items()
        }
        detectors = {f"detector/{name}": digest((judged, d, self.fields)) for name, d in self.detector_settings.items()}
        return {**windows, **detectors}

    def to_plain(self) -> dict[str, Any]:
        """Everything as plain data and bytes; :meth:`take_over` reads it."""
        return {
            "digests": self.digests(),
            "fields": list(self.fields),
            "segments": self.segments.to_plain() if self.segments else {},
            "first_numbers": self.first_numbers,
            "since": self.since,
            "slots": self.slots,
            "windows": {name: window.to_bytes() for name, window in self.windows.items()},
            # where the next number of a ring goes: all that its counts are needed for
            "numbers": {
                name: {"rings": ring.to_plain()["rings"], "next": (ring.counts % ring.rings.shape[1]).tolist()}
                for name, ring in self.numbers.items()
            },
            "detectors": [[*key, detector.to_plain()] for key, detector in self.detectors.items()],
            "alarms": [*self.alarms],
        }

    def begin_anew(self, clock: float) -> None:
        """Nothing that counted up to this moment is here."""
        self.since = dict.fromkeys(self.digests(), clock)

    def take_over(self, plain: dict[str, Any], clock: float) -> list[str]:
        """Go on where :meth:`to_plain` was; what begins anew, since its settings are others, in words.

        What begins anew holds what counts after the moment ``clock``: a correction of what counted before it has nothing to
        take back.
        """
        if list(self.fields) != plain["fields"]:
            self.begin_anew(clock)
            return [f"model {self.model.name}: the fields of segments are others, so all its sums begin anew"]
        if self.segments is not None:
            self.segments.take_over(plain["segments"])
        self.first_numbers = list(plain["first_numbers"])
        self.slots = [(version, place) for version, place in plain["slots"]]
        for slot, (version, place) in enumerate(self.slots):
            self._tables[version] = self.table(version)
            self._tables[version][place] = slot
        digests = self.digests()
        same = {name for name, mark in digests.items() if plain["digests"].get(name) == mark}
        self.since = {name: since for name, since in plain["since"].items() if name in same}
        self.since |= dict.fromkeys((name for name in digests if name not in same), clock)
        for name in self.windows:
            if f"window/{name}" in same:
                self.windows[name] = from_bytes(plain["windows"][name])
                if name in self.numbers:
                    ring = plain["numbers"][name]
                    self.numbers[name].take_over({"rings": ring["rings"], "counts": ring["next"]})
            self.windows[name] = self.windows[name].widened(max(self.windows[name].keys, len(self.slots)))
        for name, version, state in plain["detectors"]:
            if f"detector/{name}" in same:
                detector = ModelDetector(self.model, self.detector_settings[name], self.segments is not None)
                detector.take_over(state)
                self.detectors[name, version] = detector
        alarms = msgspec.convert(plain["alarms"], list[Alarm])
        self.alarms = [alarm for alarm in alarms if f"detector/{alarm.detector}" in same]
        return [
            f"model {self.model.name}: {name.replace('/', ' ')} begins anew" for name in digests if name not in same
        ]
