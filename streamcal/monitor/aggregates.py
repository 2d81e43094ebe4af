"""The sums of one model: for each version and segment a slot, in every window one array of all slots, and the detectors.

A micro-batch of joined events is one kernel call per window, however many segments it is about: each event goes to the slot
of all events of its version, and to that of its segment. A correction is taken back from where it was counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from streamcal.arrays import Array, Ints
from streamcal.monitor.config.settings import Detector, Model, Segments, Window
from streamcal.monitor.config.toml_tables import digest
from streamcal.monitor.detectors import Alarm, Wager
from streamcal.monitor.events import Joined
from streamcal.monitor.segments import ALL, OTHER, Places
from streamcal.monitor.stamps import Stamps
from streamcal.snapshot import Snapshot
from streamcal.state import from_bytes
from streamcal.windows import Sliding, Timed

FIRST_KEYS = 2  # of a window; then twice as many whenever there are too few
BY_LABEL = "label"
Sums: TypeAlias = Sliding | Timed


class Counted(NamedTuple):
    """Joined events of one version as columns of n: what is kept in the journal, and all that a bank needs.

    ``p`` has shape (n,) or (n, k); ``w`` is not negative; where ``sign`` is -1 the event was counted before, and the next one
    is the same with its new outcome. ``seq`` is the number of the prediction.
    """

    version: str
    tags: Sequence[str]
    p: Array
    y: Array
    w: Array
    sign: Array
    t: Array
    moment: Array
    seq: Array

    def __len__(self) -> int:
        return len(self.tags)

    def part(self, rows: Any) -> Counted:
        """Those at these places, a slice or an array."""
        tags = self.tags[rows] if isinstance(rows, slice) else [self.tags[i] for i in rows.tolist()]
        return Counted(self.version, tags, *(column[rows] for column in self[2:]))

    def with_negatives(self, rate: float) -> Counted:
        """The same where only this share of the negatives came: each weighs so much more."""
        w = np.where(self.y == 0.0, self.w / rate, self.w)
        return Counted(self.version, self.tags, self.p, self.y, w, *self[5:])


def counted(joined: Joined) -> Counted:
    """The columns of what a join handed out."""
    sign = joined.sign
    return Counted(
        joined.version,
        joined.segment,
        joined.p,
        joined.y,
        sign * joined.weight,
        sign,
        joined.t,
        joined.moment,
        joined.seq,
    )


class Bank:
    """Windows and detectors of one model. What it is fed with in the same order it holds, to the last bit, in any process."""

    def __init__(
        self,
        model: Model,
        windows: Sequence[Window],
        detectors: Sequence[Detector],
        segments: Segments | None,
        losses: Mapping[str, str] | None = None,
    ) -> None:
        self.model, self.claim = model, model.claims()
        self.settings = {window.name: window for window in windows}
        self.losses = dict(losses or {})
        self.places = Places(segments)
        self.windows: dict[str, Sums] = {name: self._new(window) for name, window in self.settings.items()}
        self.stamps = {name: Stamps(w.events) for name, w in self.settings.items() if w.events is not None}
        self.slots: list[tuple[str, int]] = []  # version and place of each
        self.wagers: dict[tuple[str, str], Wager] = {}  # by name of the detector and version
        self.detectors = {detector.name: detector for detector in detectors}
        self.alarms: list[Alarm] = []  # since the last turn
        self.since: dict[str, float] = {}  # when windows and detectors began anew: what counted before is not theirs
        self._tables: dict[str, Ints] = {}  # of each version: place -> slot, -1 where there is none

    def _new(self, window: Window) -> Sums:
        rows, loss = self.model.rows(), self.losses.get(window.name)
        if window.events is not None:
            return Sliding(rows, window.events, keys=FIRST_KEYS, claim=self.claim, loss=loss)
        assert window.time is not None
        return Timed(rows, window.time, window.panes, window.time, keys=FIRST_KEYS, claim=self.claim, loss=loss)

    # -- slots ---------------------------------------------------------------------------------------------------------

    @property
    def versions(self) -> list[str]:
        """Versions that have had an event, in the order in which they came."""
        return list(self._tables)

    def table(self, version: str) -> Ints:
        """The slot of each place of a version, -1 where nothing has come. Shape (places,)."""
        known = self._tables.get(version, np.empty(0, np.int64))
        if known.size < len(self.places):
            known = np.concatenate([known, np.full(len(self.places) - known.size, -1)])
        return known

    def _slots_of(self, version: str, places: Ints) -> Ints:
        """Where events go: the slots of their places, given out as needed."""
        table = self.table(version)
        wanted = np.union1d([ALL], places[table[places] < 0])
        for place in wanted[table[wanted] < 0].tolist():
            table[place] = len(self.slots)
            self.slots.append((version, place))
        self._tables[version] = table
        for name, window in self.windows.items():
            if window.keys < len(self.slots):
                self.windows[name] = window.widened(max(2 * window.keys, len(self.slots)))
        return table[places]

    # -- events --------------------------------------------------------------------------------------------------------

    def take(self, events: Counted) -> None:
        """Count joined events in order."""
        if not len(events):
            return
        places = self.places.of(events.tags)
        slots = self._slots_of(events.version, places)
        if self.model.negative_sampling_rate < 1.0:
            events = events.with_negatives(self.model.negative_sampling_rate)
        back = np.flatnonzero(events.sign < 0.0)
        fresh = np.ones(len(events), bool)
        fresh[back], fresh[back + 1] = False, False
        first = 0
        for i in back.tolist():
            self._add(events, slots, slice(first, i))
            self._correct(events, int(slots[i]), i)
            first = i + 2
        self._add(events, slots, slice(first, len(events)))
        if back.size:
            events, places = events.part(np.flatnonzero(fresh)), places[fresh]
        self.places.saw(events.version, events.tags, places)
        self._bet(events, places)

    def _add(self, events: Counted, slots: Ints, rows: slice) -> None:
        """Events that count for the first time."""
        if rows.start == rows.stop:
            return
        whole = self._tables[events.version][ALL]
        p, y, w, key = events.p[rows], events.y[rows], events.w[rows], slots[rows]
        times = {BY_LABEL: events.moment[rows], "prediction": events.t[rows], "": events.seq[rows]}
        if self.places.settings is not None:  # for the version as a whole, and for the segment
            p, y, w = np.concatenate([p, p]), np.concatenate([y, y]), np.concatenate([w, w])
            key = np.concatenate([np.full(key.size, whole), key])
            times = {by: np.concatenate([t, t]) for by, t in times.items()}
        for name, window in self.windows.items():
            columns = (p, y, w, key, times[self.settings[name].by], times[""])
            late = times[BY_LABEL] <= self.since.get(f"window/{name}", -math.inf)
            if late.any():
                columns = tuple(column[~late] for column in columns)  # type: ignore[assignment]
            if isinstance(window, Timed):
                window.update_many(*columns[:3], key=columns[3], t=columns[4])
            else:
                window.update_many(*columns[:3], key=columns[3])
                self.stamps[name].add(columns[3], columns[5])

    def _correct(self, events: Counted, slot: int, i: int) -> None:
        """An event that counted with one outcome, and now with another: rows i and i + 1."""
        old, new = events.part(slice(i, i + 1)), events.part(slice(i + 1, i + 2))
        for key in dict.fromkeys((int(self._tables[events.version][ALL]), slot)):
            for name, window in self.windows.items():
                since = self.since.get(f"window/{name}", -math.inf)
                if isinstance(window, Timed):
                    by = "moment" if self.settings[name].by == BY_LABEL else "t"
                    if old.moment[0] > since:
                        window.take_back_many(old.p, old.y, old.w, key=[key], t=getattr(old, by))
                    if new.moment[0] > since:
                        window.update_many(new.p, new.y, new.w, key=[key], t=getattr(new, by))
                elif old.moment[0] > since:
                    ages = self.stamps[name].ages(key, float(old.seq[0]))
                    window.correct(old.p[0], old.y[0], new.y[0], old.w[0], key, new_w=new.w[0], ages=ages)

    def _bet(self, events: Counted, places: Ints) -> None:
        """The detectors see each event once, with its first outcome: a bet cannot be taken back."""
        for name, detector in self.detectors.items():
            wager = self.wagers.get((name, events.version))
            if wager is None:
                wager = self.wagers[name, events.version] = Wager(
                    self.model, detector, self.places.settings is not None
                )
            mine = events.moment > self.since.get(f"detector/{name}", -math.inf)
            p, y, t, where = events.p, events.y, events.t, places
            if not mine.all():
                p, y, t, where = p[mine], y[mine], t[mine], where[mine]
            self.alarms += wager.take(p, y, t, where - OTHER, events.version, len(self.places) - OTHER)

    def turn(self, keep: Sequence[str] = ()) -> list[str]:
        """An evaluation has been: its alarms are told, and places may change hands (:meth:`Places.turn`). Who lost one.

        The sums of a segment that loses its place go to "other", in windows of a time; in those of a number of events, where
        an event has its order, they are dropped.
        """
        before = list(self.places.names)
        changed = self.places.turn(keep)
        self._turned(changed)
        return [before[place] for place in changed]

    def turned(self, keep: Sequence[str], cap: int, given: int) -> None:
        """A turn has been, as a journal says (:meth:`Places.turned`)."""
        self._turned(self.places.turned(keep, cap, given))

    def _turned(self, places: Sequence[int]) -> None:
        self.alarms = []
        for place in places:
            for version in self.versions:
                self._clear(version, place)

    def _clear(self, version: str, place: int) -> None:
        slot = int(self.table(version)[place])
        if slot < 0:
            return
        (other,) = self._slots_of(version, np.array([OTHER])).tolist()
        for window in self.windows.values():
            if isinstance(window, Timed):
                window.merge_key(slot, other)
            window.empty(slot)
        for stamps in self.stamps.values():
            stamps.empty(slot)
        for (_, owner), wager in self.wagers.items():
            if owner == version:
                wager.forget(place - OTHER)

    # -- reading -------------------------------------------------------------------------------------------------------

    def snapshot(self, window: str, now: float) -> Snapshot:
        """The sums of all slots (and more) in a window as of a moment: by prediction time, of the last prediction that counts."""
        sums = self.windows[window]
        if isinstance(sums, Timed) and self.settings[window].by == BY_LABEL:
            return sums.snapshot(now)
        return sums.snapshot()

    def of(self, window: str, version: str, place: int, now: float) -> Snapshot:
        """The sums of one version at one place; empty where nothing has come."""
        slot, sums = int(self.table(version)[place]), self.windows[window]
        empty = slot < 0
        if isinstance(sums, Timed):
            s = sums.snapshot_of(max(slot, 0), now if self.settings[window].by == BY_LABEL else None)
        else:
            whole, width = sums.snapshot(), self.claim.width
            first = max(slot, 0) * width
            s = Snapshot(whole.cells[first : first + width].copy(), whole.edges, whole.binning, whole.claim, whole.loss)
        return Snapshot(np.zeros_like(s.cells), s.edges, s.binning, s.claim, s.loss) if empty else s

    def bounds(self, window: str, now: float) -> tuple[float | None, float | None]:
        """From when to when the events of a window are, None for one of a number of events."""
        settings, sums = self.settings[window], self.windows[window]
        if not isinstance(sums, Timed) or settings.time is None:
            return None, None
        end = now if settings.by == BY_LABEL else sums.watermark
        pane = settings.time / settings.panes
        return ((end // pane + 1) - settings.panes) * pane, end

    # -- documents -----------------------------------------------------------------------------------------------------

    def marks(self) -> dict[str, str]:
        """What must be the same for sums to be continued: a digest for each window and detector."""
        fields = self.places.settings.fields if self.places.settings else ()
        counted = replace(self.model, versions=(), raw=None, tolerance=0.0)  # what says how an event is counted
        judged = replace(self.model, versions=(), raw=None)
        windows = {
            f"window/{name}": digest((counted, w, fields, self.losses.get(name, "")))
            for name, w in self.settings.items()
        }
        detectors = {f"detector/{name}": digest((judged, d, fields)) for name, d in self.detectors.items()}
        return {**windows, **detectors}

    def to_plain(self) -> dict[str, Any]:
        """Everything as plain data and bytes; :meth:`take_over` reads it."""
        return {
            "marks": self.marks(),
            "fields": list(self.places.settings.fields) if self.places.settings else [],
            "places": self.places.to_plain(),
            "since": self.since,
            "slots": self.slots,
            "windows": {name: window.to_bytes() for name, window in self.windows.items()},
            "stamps": {name: stamps.to_plain() for name, stamps in self.stamps.items()},
            "wagers": [[*key, wager.to_bytes(), wager.marks.to_plain()] for key, wager in self.wagers.items()],
            "alarms": [alarm.to_plain() for alarm in self.alarms],
        }

    def begin_anew(self, given: int, clock: float) -> None:
        """Nothing that counted up to a moment is here, and so many placings have been."""
        self.places.begin_anew(given)
        self.since = dict.fromkeys(self.marks(), clock)

    def take_over(self, plain: dict[str, Any], clock: float) -> list[str]:
        """Go on where :meth:`to_plain` was; what begins anew, since its settings are others, in words.

        That holds what counts after the moment ``clock``: a correction of what counted before it has nothing to take back.
        """
        fields = list(self.places.settings.fields) if self.places.settings else []
        if fields != plain["fields"]:
            self.begin_anew(plain["places"]["given"], clock)
            return [f"model {self.model.name}: the fields of segments are others, so all its sums begin anew"]
        self.places.take_over(plain["places"])
        for slot, (version, place) in enumerate(plain["slots"]):
            table = self.table(version)
            table[place] = slot
            self._tables[version] = table
        self.slots = [(version, place) for version, place in plain["slots"]]
        marks = self.marks()
        same = {name for name, mark in marks.items() if plain["marks"].get(name) == mark}
        self.since = {name: since for name, since in plain["since"].items() if name in same}
        self.since |= dict.fromkeys((name for name in marks if name not in same), clock)
        for name in self.windows:
            if f"window/{name}" in same:
                window = from_bytes(plain["windows"][name])
                self.windows[name] = window
                if name in self.stamps:
                    self.stamps[name].take_over(plain["stamps"][name])
            self.windows[name] = self.windows[name].widened(max(self.windows[name].keys, len(self.slots)))
        for name, version, data, dates in plain["wagers"]:
            if f"detector/{name}" in same:
                settings = self.detectors[name]
                self.wagers[name, version] = Wager.from_bytes(
                    self.model, settings, self.places.settings is not None, data
                )
                self.wagers[name, version].marks.take_over(dates)
        self.alarms = [a for a in map(Alarm.from_plain, plain["alarms"]) if f"detector/{a.detector}" in same]
        return [f"model {self.model.name}: {name.replace('/', ' ')} begins anew" for name in marks if name not in same]
