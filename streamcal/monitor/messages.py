"""Messages as they come -> predictions and labels. What cannot be read is handed back with the reason, never dropped.

A payload is JSON: an object, a list of objects, ``{"events": [...]}``, or objects on lines of their own. An object is

=========  =========================================================================================================
key        meaning
=========  =========================================================================================================
id         what a prediction and its label share, text or a whole number; used once per model and version
t          when: seconds since 1970 UTC, or ISO-8601 text that names its zone
p          the prediction: a number; class probabilities as a list in the order of ``classes`` or an object by class;
           quantiles as a list in the order of ``levels``; an interval as [low, high]
y          the outcome: a number, or a label. With p in the same object: the label is known already
model      needed where the configuration has more than one
version    of a prediction: "" if it has none. A label without one is for every version of the model that has made a
           prediction of this id by then
=========  =========================================================================================================

besides the fields of segments, the weight and the raw prediction that the configuration names. A label that is missing (null, "",
"unknown", ...) is not a negative: it is counted as missing.
"""

from __future__ import annotations

import codecs
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, check_aligned, numbers
from streamcal.limits import LATEST, LONGEST, WORDS, first_refused, is_allowed, is_text
from streamcal.monitor.config.config import Config
from streamcal.monitor.config.settings import Model
from streamcal.monitor.events import Checked, Events, Label, Prediction, StreamKey
from streamcal.monitor.values import ModelValues
from streamcal.reading.roles import P_NAMES, Y_NAMES
from streamcal.times import moment, seconds

RAW = "/raw"  # behind the version of what was predicted before recalibration
LONGEST_VERSION = 500  # characters: with RAW it is still a text that may be stored
MOST_VERSIONS = 1_000  # of a model: more are a mistake in a message
LONGEST_SEGMENT = 950  # characters of its name, below LONGEST: who stores it may put a mark before it
NOBODY = ("", "", "")  # model, version and id where it is not known of which model or version an event is
MOST_UNREAD = 100  # parts of a message that are kept as they came; of more only the number
NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
SHOWN = 20  # keys of a message that are named
ID_NAMES = ("id", "request_id", "event_id", "impression_id", "prediction_id", "uuid", "key")
T_NAMES = ("t", "ts", "time", "timestamp", "event_time", "created_at", "datetime")
DEEP = 4  # lists in lists: deeper ones are no message that anybody sends

decode = msgspec.json.decode


class Unread(NamedTuple):
    """What could not be taken: the reason, what came, and of how many parts of a message this is said."""

    reason: str
    what: Any
    times: int = 1


def records(payload: bytes) -> tuple[list[dict[str, Any]], list[Unread]]:
    """The objects in a payload, and the parts of it that are none.

    >>> records(b'[{"id": 1}, 7]')
    ([{'id': 1}], [Unread(reason='not an object', what=7, times=1)])
    """
    text = payload.removeprefix(codecs.BOM_UTF8)
    try:
        found = _flat([decode(text)], DEEP)
    except NO_JSON as error:
        whole = [Unread(f"not JSON: {error}", payload)] if text.strip() else []
        found = _lines(text) if b"\n" in text.strip() else iter(whole)
    good: list[dict[str, Any]] = []
    bad: list[Unread] = []
    rest: Counter[str] = Counter()  # of a payload that is a million unreadable parts not each is held
    for one in found:
        if type(one) is dict:
            good.append(one)
            continue
        part = one if type(one) is Unread else Unread("not an object", one)
        if len(bad) < MOST_UNREAD:
            bad.append(part)
        else:
            rest[part.reason.partition(":")[0]] += 1
    return good, bad + [Unread(f"{why}: more of the same message", "", n) for why, n in rest.items()]


def _lines(text: bytes) -> Iterator[Any]:
    """What is in lines of JSON; an Unread for each that is none."""
    for line in io.BytesIO(text):
        if line.strip():
            try:
                yield from _flat([decode(line)], DEEP)
            except NO_JSON as error:
                yield Unread(f"not JSON: {error}", line)


def renamed(objects: Iterable[dict[str, Any]], fields: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Objects with our keys for those of a source, ``fields`` (ours, theirs); one of ours that is not there is not there.

    >>> renamed([{"key": "a1", "p": "paid"}], (("id", "key"), ("p", "score")))
    [{'key': 'a1', 'id': 'a1'}]
    """
    ours = dict.fromkeys(name for name, _ in fields)
    return [
        {key: value for key, value in thing.items() if key not in ours}
        | {name: thing[theirs] for name, theirs in fields if theirs in thing}
        for thing in objects
    ]


def _flat(things: Iterable[Any], depth: int) -> Iterable[Any]:
    """The things in lists, and in objects that have only "events"."""
    for thing in things:
        inner = thing["events"] if type(thing) is dict and list(thing) == ["events"] else thing
        if type(inner) is list and depth:
            yield from _flat(inner, depth - 1)
        else:
            yield thing


class Decoder:
    """Turns objects, or arrays, into events, as a configuration declares them.

    A value of an object that is not allowed does not hide: the event is made with nan (or no model) in its place, so that the
    join counts it as rejected under the name of the field, and it is handed back as unread, too. Of arrays all values are
    allowed, or a ValueError names the first that is not. ``labels``: those that came before, by model
    (:meth:`streamcal.monitor.values.ModelValues.document`).
    """

    def __init__(self, config: Config, labels: Mapping[str, Mapping[str, int]] | None = None) -> None:
        self.config = config
        self.models: Mapping[str, Model] = {model.name: model for model in config.models}
        self.only = config.models[0].name if len(config.models) == 1 else None
        self.values = {model.name: ModelValues(model, (labels or {}).get(model.name)) for model in config.models}
        self.versions: dict[str, dict[str, None]] = {m.name: dict.fromkeys(m.versions) for m in config.models}

    def known(self, name: str | None) -> Model:
        """The model of this name, or the only one. ValueError names those there are."""
        found = self.models.get(name or self.only or "")
        if found is None:
            raise ValueError(f"model must be one of {', '.join(self.models)}, got {name!r}")
        return found

    def moment(self, t: Any) -> float:
        """A time as seconds since 1970 UTC; ValueError if it is none."""
        return moment(t, self.config.naive_times)

    def times(self, objects: Sequence[dict[str, Any]]) -> list[float]:
        """The times of those that have one."""
        return [t for t, _ in map(self._time, objects) if t == t]

    # -- objects -------------------------------------------------------------------------------------------------------

    def read(self, objects: Iterable[dict[str, Any]]) -> tuple[list[Checked], list[Unread]]:
        """The rows of the events of objects in order, checked, and the objects that are not, or not wholly, allowed."""
        rows: list[Checked] = []
        unread: list[Unread] = []
        for thing in objects:
            reason = self._read(thing, rows)
            if reason:
                unread.append(Unread(reason, thing))
        return rows, unread

    def _read(self, thing: dict[str, Any], rows: list[Checked]) -> str:
        """Append the events of one object; the reason if a value is not allowed."""
        whose = thing.get("model", self.only)
        model = self.models.get(whose) if isinstance(whose, str) else None
        p, y = thing.get("p"), thing.get("y")
        if p is None and y is None:
            if "y" not in thing or model is None:
                return _keys(thing) if "y" not in thing else "y is null"
            self.values[model.name].outcome(None)
            return ""
        given, (t, why) = thing.get("id"), self._time(thing)
        given = str(given) if type(given) is int else given
        name = str.__str__(given) if is_text(given) else ""
        if model is None:
            rows.append((Label(*NOBODY, t, math.nan) if p is None else Prediction(*NOBODY, t, math.nan), "model"))
            return f"model must be one of {', '.join(self.models)}, got {whose!r}"
        reasons = [why]
        if not name:
            reasons.append(f"id must be a text of 1 to {LONGEST:,} characters or a whole number, got {given!r:.80}")
        wrong = "id" if not name else "t" if why else ""
        if p is not None:
            reasons.append(self._prediction(model, thing, name, t, wrong, rows))
        if y is not None or "y" in thing:
            reasons.append(self._label(model, thing, name, t, wrong, rows))
        return "; ".join(filter(None, reasons))

    def _time(self, thing: dict[str, Any]) -> tuple[float, str]:
        given = thing.get("t")
        if type(given) is float and -LATEST < given < LATEST:
            return given, ""
        try:
            return moment(given, self.config.naive_times), ""
        except ValueError as error:
            return math.nan, f"t: {error}"

    def _prediction(
        self, model: Model, thing: dict[str, Any], name: str, t: float, wrong: str, rows: list[Checked]
    ) -> str:
        version, settings = self.version(model, thing.get("version")), self.config.segments
        w: Any = thing.get(model.weight) if model.weight else 1.0
        segment = odd = why_odd = ""
        if settings is not None:
            segment = settings.named(tuple(there(thing.get(field)) for field in settings.fields))
            if not is_text(segment, LONGEST_SEGMENT):
                segment, odd, why_odd = "", "segment", _wrong_segment(segment)
        if type(w) not in (float, int) or not is_allowed("w", w):
            w, odd, why_odd = math.nan, "w", f"{model.weight} must be {WORDS['w']}"
        came = [("", thing["p"])]
        if model.raw and thing.get(model.raw) is not None:
            came.append((RAW, thing[model.raw]))
        reason = ""
        for mark, given in came:
            p, why = self.values[model.name].score(given)
            reason = reason or why or why_odd
            if version is None:
                rows.append((Prediction(*NOBODY, t, p), "version"))
            else:
                row = Prediction(model.name, version + mark, name, t, p, float(w), segment)
                rows.append((row, wrong or ("p" if why else odd)))
        if version is None:
            return reason or _no_version(model, thing.get("version"))
        if not reason and t == t:
            self.meet(model.name, *[version + mark for mark, _ in reversed(came)])
        return reason

    def _label(self, model: Model, thing: dict[str, Any], name: str, t: float, wrong: str, rows: list[Checked]) -> str:
        y, why = self.values[model.name].outcome(thing["y"])
        if y != y and not why:
            return ""  # not known yet: counted as missing
        given = thing.get("version")
        every = given is None and thing.get("p") is None
        version = None if every else self.version(model, given)
        if version is None and not every:
            rows.append((Label(*NOBODY, t, y), "model"))
            return why or _no_version(model, given)
        if not why and t == t:
            self.meet(model.name, version)
        rows += [(Label(model.name, v, name, t, y), wrong or ("y" if why else "")) for v in self.both(model, version)]
        return why

    # -- versions --------------------------------------------------------------------------------------------------------

    def version(self, model: Model, given: Any) -> str | None:
        """The version, None if it cannot be one."""
        if given is None:
            given = model.versions[0] if len(model.versions) == 1 else ""
        version = given if type(given) is str else str(given) if type(given) is int else None
        known = self.versions[model.name]
        if version is None or version in known:
            return version
        base = version.removesuffix(RAW) if model.raw else version
        fits = base in model.versions if model.versions else len(known) < MOST_VERSIONS
        return version if fits and is_text(version, LONGEST_VERSION) else None

    def meet(self, model: str, *versions: str | None) -> None:
        """Allowed events of these versions have come, by whatever door: from now on they are known."""
        known = self.versions.get(model, {})
        for version in versions:
            if version is not None:
                known[version] = None

    def both(self, model: Model, version: str | None) -> list[str | None]:
        """What a label is for: its version, and raw predictions beside if there have been any. None: every version."""
        raw = f"{version}{RAW}"
        return [version, raw] if version is not None and model.raw and raw in self.versions[model.name] else [version]

    # -- arrays --------------------------------------------------------------------------------------------------------

    def predictions(
        self,
        ids: Sequence[str | int],
        p: npt.ArrayLike,
        t: Any,
        model: str | None,
        version: str | None,
        segment: Mapping[str, Any] | None,
        w: npt.ArrayLike | None,
    ) -> Events:
        """Predictions as arrays, checked: see :meth:`streamcal.monitor.Monitor.predict_many`."""
        check_aligned(ids=ids, p=p, t=t, w=w, segment=segment)
        settings, names = self.known(model), _ids(ids)
        n, values = len(names), self.values[settings.name].scores(p, len(names))
        chosen = self._chosen(settings, version)
        if w is not None and not settings.weight:
            raise ValueError(
                f'w goes only with a model that declares its weight, as in weight = "amount", got {w!r:.80}'
            )
        weights = None if w is None else _each("w", numbers("w", w), n)
        times, segments = self._times(t, n), self._segments(segment, n)
        if n:
            self.meet(settings.name, chosen)
        return Events.alike(StreamKey(Prediction, settings.name, chosen), names, times, values, None, weights, segments)

    def labels(
        self, ids: Sequence[str | int], y: npt.ArrayLike, t: Any, model: str | None, version: str | None
    ) -> Events:
        """Outcomes as arrays, checked: see :meth:`streamcal.monitor.Monitor.label_many`."""
        check_aligned(ids=ids, y=y, t=t)
        settings, names = self.known(model), _ids(ids)
        given = np.asarray(y)
        if given.shape != (len(names),):
            raise ValueError(f"y must have shape ({len(names)},), one for each id, got {given.shape}")
        chosen = None if version is None else self._chosen(settings, version)
        times = self._times(t, len(names))
        values = self.values[settings.name].outcomes(given)
        if (missing := np.isnan(values)).any():
            names, times, values = [names[i] for i in np.flatnonzero(~missing)], times[~missing], values[~missing]
        if names:
            self.meet(settings.name, chosen)
        streams = [StreamKey(Label, settings.name, one) for one in self.both(settings, chosen)]
        events = Events.alike(streams[0], names, times, y=values)
        if len(streams) == 1:
            return events
        twice = events.part(np.repeat(np.arange(len(names)), 2))
        return replace(twice, streams=streams, stream=np.tile([0, 1], len(names)))

    def _chosen(self, model: Model, given: str | None) -> str:
        version = self.version(model, given)
        if version is None:
            raise ValueError(_no_version(model, given))
        return version

    def objects(
        self, events: Events, segment: Mapping[str, Any] | None = None, p: npt.ArrayLike | None = None
    ) -> Iterator[dict[str, Any]]:
        """The objects that are read as the same events; ``segment`` and ``p`` as they came with arrays."""
        kind, name, version = events.streams[0]
        model, fields = self.known(name), self.config.segments.fields if self.config.segments else ()
        given = None if p is None or model.scale == "unit" else np.asarray(p, np.float64).tolist()
        common = {"model": name} | ({} if version is None else {"version": version})
        columns = {field: _texts(segment.get(field)) for field in fields if field in segment} if segment else {}
        for i in range(0, len(events), len(events.streams)):
            row = events.row(i)
            if kind is Label:
                yield {**common, "id": row.id, "t": row.t, "y": self.values[name].label_of(row.y)}
                continue
            own = {field: column[i if len(column) > 1 else 0] for field, column in columns.items()}
            weight = {model.weight: row.w} if model.weight else {}
            yield {**own, **common, **weight, "id": row.id, "t": row.t, "p": given[i] if given else row.p}

    def _times(self, t: Any, n: int) -> Array:
        """Times as seconds, one for each event."""
        if isinstance(t, np.datetime64):
            t = float(seconds(t))
        if isinstance(t, str) or np.ndim(t) == 0:
            return np.full(n, self.moment(t.item() if isinstance(t, np.generic) else t))
        given = np.asarray(t)
        if given.dtype.kind in "OU":
            times = np.array([self.moment(value) for value in given.tolist()], np.float64)
        else:
            times = numbers("t", seconds(given))
        return _each("t", times, n)

    def _segments(self, given: Mapping[str, Any] | None, n: int) -> list[str]:
        """The names of segments, one for each event: a field holds one value for each, or one for all."""
        settings = self.config.segments
        if settings is None:
            return [""] * n
        columns = []
        for field in settings.fields:
            column = _texts((given or {}).get(field))
            if len(column) == 1:
                column *= n
            elif len(column) != n:
                raise ValueError(f"segment {field} must hold one value for each id, {n}, got {len(column)}")
            columns.append(column)
        values = list(zip(*columns, strict=True))
        named = {one: settings.named(one) for one in dict.fromkeys(values)}
        for name in named.values():
            if not is_text(name, LONGEST_SEGMENT):
                raise ValueError(_wrong_segment(name))
        return list(map(named.__getitem__, values))


def _keys(thing: Mapping[str, Any]) -> str:
    """What an object that is neither a prediction nor a label has and needs, and the line that would make it one."""
    theirs = [name for name in thing if isinstance(name, str)]
    usual = {"id": ID_NAMES, "t": T_NAMES, "p": P_NAMES, "y": Y_NAMES}
    found = {ours: [name for name in theirs if name.lower() in names] for ours, names in usual.items()}
    guess = ", ".join(f"{ours} = {msgspec.json.encode(some[0]).decode()}" for ours, some in found.items() if some)
    had = ", ".join(theirs[:SHOWN]) + (", ..." if len(theirs) > SHOWN else "")
    line = f"write fields = {{ {guess or 'p = ...'} }} in [sources.NAME]"
    return f"neither p nor y: the keys are {had or '(none)'}; needed are id, t, and p or y or both; {line}"


# -- one value, as a message has it --------------------------------------------------------------------------------------


def there(value: Any) -> Any:
    """The value of a field of a segment; empty if it is missing, as None or nan."""
    return "" if value is None or value != value else value


def told(segment: Mapping[str, Any], field: str) -> str | None:
    """The value of a field as text, None if there is none: what a record keeps is what was taken."""
    value = there(plain(segment.get(field)))
    return None if value == "" else str(value)


def whose(model: str | None, version: str | None) -> dict[str, Any]:
    """The keys of an object that say of which model and version it is, where that is said."""
    return {key: value for key, value in (("model", model), ("version", version)) if value is not None}


def plain(value: Any) -> Any:
    """Values of numpy as those of Python, the rest as they are."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) and value.dtype.kind != "M" else value


def one_of(what: str, name: str | None, there: list[str]) -> str:
    """The one of this name, or the only one. ValueError names what is there instead."""
    if name is None and len(there) == 1:
        return there[0]
    if name is None or name not in there:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, there[:20])) or 'none yet'}, got {name!r}")
    return name


def _wrong_segment(name: str) -> str:
    return f"segment must be a text of at most {LONGEST_SEGMENT} characters, got {name!r:.80}"


def _no_version(model: Model, given: Any) -> str:
    allowed = f"one of {', '.join(model.versions)}" if model.versions else f"text, at most {MOST_VERSIONS} of a model"
    return f"version must be {allowed}, got {given!r:.80}"


# -- arrays of them ------------------------------------------------------------------------------------------------------


def _ids(ids: Sequence[str | int]) -> list[str]:
    """Ids as texts."""
    if isinstance(ids, str | bytes) or not hasattr(ids, "__iter__") or getattr(ids, "ndim", 1) != 1:
        raise ValueError(f"ids must be a list of texts or whole numbers, got {ids!r:.80}")
    given: list[Any] = np.asarray(ids, dtype=object).tolist() if hasattr(ids, "dtype") else list(ids)
    found: list[str] = given
    if set(map(type, given)) != {str}:
        found = [str(name) if type(name) in (int, str) else "" for name in given]
    # all together, for speed: of ASCII every text can be written down
    plain = "".join(found).isascii() and (not found or 0 < min(map(len, found)) <= max(map(len, found)) <= LONGEST)
    bad = -1 if plain else next((i for i, name in enumerate(found) if not name or not is_text(name)), -1)
    if bad >= 0:
        raise ValueError(
            f"ids must be texts of 1 to {LONGEST:,} characters or whole numbers, got {given[bad]!r:.80} at index {bad}"
        )
    return found


def _each(name: str, values: Array, n: int) -> Array:
    """One value for each event: given so, or one for all. ValueError names the first that is not allowed."""
    i = first_refused(name, values)
    if i >= 0:
        raise ValueError(f"{name} must be {WORDS[name]}, got {values.reshape(-1)[i]!r} at index {i}")
    if values.ndim == 0:
        return np.full(n, float(values))
    if values.shape != (n,):
        raise ValueError(f"{name} must hold one value for each id, shape ({n},), got {values.shape}")
    return values


def _texts(values: Any) -> list[str]:
    """The values of a field as texts: one for each event, or one for all."""
    one = values is None or isinstance(values, str) or (not isinstance(values, list) and np.ndim(values) == 0)
    column = [values] if one else np.asarray(values, dtype=object).tolist()
    if set(map(type, column)) == {str}:
        return list(column)
    return [str(there(value.item() if isinstance(value, np.generic) else value)) for value in column]
