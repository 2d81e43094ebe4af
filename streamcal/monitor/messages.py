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

besides the fields of segments, the weight and the raw prediction that the configuration names. A label that is null is not a
negative: with p it means that none is known yet, alone it is refused.
"""

from __future__ import annotations

import codecs
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from streamcal.monitor.config.config import Config
from streamcal.monitor.config.settings import Model
from streamcal.monitor.events import LONGEST, Event, Label, Prediction, text
from streamcal.monitor.join.pending import Score
from streamcal.times import moment

RAW = "/raw"  # behind the version of what was predicted before recalibration
LONGEST_VERSION = 500  # characters
MOST_VERSIONS = 1_000  # of a model: more are a mistake in a message
DEEP = 4  # lists in lists
LONGEST_SEGMENT = 950  # characters of its name: with the number of its place it is as long as a text may be

decode = msgspec.json.decode


class Unread(NamedTuple):
    """What could not be taken: the reason, and what came."""

    reason: str
    what: Any


def records(payload: bytes) -> tuple[list[dict[str, Any]], list[Unread]]:
    """The objects in a payload, and the parts of it that are none.

    >>> records(b'[{"id": 1}, 7]')
    ([{'id': 1}], [Unread(reason='not an object', what=7)])
    """
    try:
        found = [decode(payload.removeprefix(codecs.BOM_UTF8))]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        lines = [line for line in payload.splitlines() if line.strip()]
        if len(lines) < 2:
            return [], [Unread(f"not JSON: {error}", payload)] if payload.strip() else []
        parts = [records(line) for line in lines]
        return list(itertools.chain(*(good for good, _ in parts))), list(itertools.chain(*(bad for _, bad in parts)))
    flat = list(_flat(found, DEEP))
    return [o for o in flat if type(o) is dict], [Unread("not an object", o) for o in flat if type(o) is not dict]


def _flat(things: Iterable[Any], depth: int) -> Iterable[Any]:
    """The things in lists, and in objects that have only "events"."""
    for thing in things:
        inner = thing["events"] if type(thing) is dict and list(thing) == ["events"] else thing
        if type(inner) is list and depth:
            yield from _flat(inner, depth - 1)
        else:
            yield thing


class Intake:
    """Turns objects into events, as a configuration declares them.

    A value that is not allowed does not hide: the event is made with nan (or no model) in its place, so that the join counts
    it as rejected under the name of the field, and it is handed back as unread, too.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.models: Mapping[str, Model] = {model.name: model for model in config.models}
        self.only = config.models[0].name if len(config.models) == 1 else None
        self.versions: dict[str, dict[str, None]] = {m.name: dict.fromkeys(m.versions) for m in config.models}

    def read(self, objects: Sequence[dict[str, Any]]) -> tuple[list[Event], list[Unread]]:
        """The events of objects in order, and those that are not, or not wholly, allowed."""
        events: list[Event] = []
        unread: list[Unread] = []
        for thing in objects:
            try:
                reason = self._read(thing, events)
            except Refused as refused:
                reason = str(refused)
            if reason:
                unread.append(Unread(reason, thing))
        return events, unread

    def _read(self, thing: dict[str, Any], events: list[Event]) -> str:
        """Append the events of one object; the reason if a value is not allowed."""
        name = thing.get("model", self.only)
        model = self.models.get(name) if isinstance(name, str) else None
        p, y = thing.get("p"), thing.get("y")
        if p is None and y is None:
            raise Refused("neither p nor y" if "y" not in thing else "y is null")
        t, why = self._time(thing)
        if model is None:
            kind = Prediction if p is not None else Label
            events.append(kind(None, None, _name(thing), t, math.nan))  # type: ignore[arg-type]
            return f"model must be one of {', '.join(self.models)}, got {name!r}"
        reasons = [why, _wrong_id(thing)]
        if p is not None:
            reasons.append(self._prediction(model, thing, t, events))
        if y is not None:
            reasons.append(self._label(model, thing, t, events, p is not None))
        return "; ".join(reason for reason in reasons if reason)

    def _time(self, thing: dict[str, Any]) -> tuple[float, str]:
        given = thing.get("t")
        if type(given) is float and -1e11 < given < 1e11:
            return given, ""
        try:
            return moment(given, self.config.naive_times), ""
        except ValueError as error:
            return math.nan, f"t: {error}"

    # -- predictions ---------------------------------------------------------------------------------------------------

    def _prediction(self, model: Model, thing: dict[str, Any], t: float, events: list[Event]) -> str:
        version = self.version(model, thing.get("version"))
        p, why = score(model, thing["p"])
        w = thing.get(model.weight, math.nan) if model.weight else 1.0
        w = _finite(w)
        why = why or ("" if 0.0 <= w <= 1e100 else f"{model.weight} must be a weight in [0, 1e100]")
        segment = self.segment(thing)
        why = why or _wrong_segment(segment)
        events.append(Prediction(model.name, version, _name(thing), t, p, w, segment))  # type: ignore[arg-type]
        if model.raw and thing.get(model.raw) is not None:
            raw, also = score(model, thing[model.raw])
            why = why or also
            raw_version = None if version is None else version + RAW
            events.append(Prediction(model.name, raw_version, _name(thing), t, raw, w, segment))  # type: ignore[arg-type]
            if raw_version is not None and not why and t == t:
                self.met(model, raw_version)
        if version is not None and not why and t == t:
            self.met(model, version)
        return why or ("" if version is not None else _no_version(model, thing))

    def segment(self, thing: Mapping[str, Any]) -> str:
        """The name of the segment of an object; a field that is not there, null or nan is empty."""
        settings = self.config.segments
        if settings is None:
            return ""
        return settings.named(tuple(there(thing.get(field)) for field in settings.fields))

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
        return version if fits and text(version, LONGEST_VERSION) is not None else None

    def met(self, model: Model, version: str) -> None:
        """An event of this version is allowed: it counts among the versions that there are."""
        self.versions[model.name][version] = None

    # -- labels --------------------------------------------------------------------------------------------------------

    def _label(self, model: Model, thing: dict[str, Any], t: float, events: list[Event], here: bool) -> str:
        y, why = outcome(model, thing["y"])
        given, name = thing.get("version"), _name(thing)
        if given is None and not here:
            events.append(Label(model.name, None, name, t, y))
            return why
        version = self.version(model, given)
        if version is None:
            events.append(Label(None, None, name, t, y))  # type: ignore[arg-type]
            return why or _no_version(model, thing)
        events.append(Label(model.name, version, name, t, y))
        if not why and t == t:
            self.met(model, version)
        if model.raw and version + RAW in self.versions[model.name]:
            events.append(Label(model.name, version + RAW, name, t, y))
        return why


class Refused(Exception):
    """An object that is no event at all."""


def _name(thing: Mapping[str, Any]) -> Any:
    """The id: whole numbers as text; anything else is left for the join to reject."""
    name = thing.get("id")
    return str(name) if type(name) is int else name


def there(value: Any) -> Any:
    """The value of a field of a segment; empty if it is missing, as None or nan."""
    return "" if value is None or value != value else value


def _wrong_id(thing: Mapping[str, Any]) -> str:
    given = _name(thing)
    if text(given):
        return ""
    return f"id must be a text of 1 to {LONGEST:,} characters or a whole number, got {given!r:.80}"


def _wrong_segment(name: str) -> str:
    if text(name, LONGEST_SEGMENT) is not None:
        return ""
    return f"segment must be a text of at most {LONGEST_SEGMENT} characters, got {name!r:.80}"


def _no_version(model: Model, thing: Mapping[str, Any]) -> str:
    allowed = f"one of {', '.join(model.versions)}" if model.versions else f"text, at most {MOST_VERSIONS} of a model"
    return f"version must be {allowed}, got {thing.get('version')!r:.80}"


def score(model: Model, given: Any) -> tuple[Score, str]:
    """A prediction as a number or a tuple of them; nan and the reason if it is not allowed."""
    wanted, low, high = bounds(model)
    values = given
    if wanted > 1 and isinstance(given, dict) and model.classes:
        values = [given.get(name) for name in model.classes] if set(given) <= set(model.classes) else None
    if wanted == 1 and isinstance(given, list | tuple) and len(given) == 1:
        values = given[0]
    several = list(values) if isinstance(values, list | tuple) else [values]
    good = all(type(v) in (float, int) and low <= v <= high for v in several) and len(several) == wanted
    if good and model.claim == "interval":
        good = several[0] <= several[1]
    if not good:
        return math.nan, f"p must be {_allowed(model, wanted)}, got {given!r:.80}"
    return (float(several[0]) if wanted == 1 else tuple(map(float, several))), ""


def bounds(model: Model) -> tuple[int, float, float]:
    """How many numbers a prediction is, and between what they lie."""
    if model.claim in ("top_label", "marginal"):
        return len(model.classes), -1e-6, 1.0 + 1e-6
    if model.claim == "interval":
        return 2, -1e300, 1e300
    if model.claim == "quantile":
        return len(model.levels), -1e300, 1e300
    return 1, -1e-6 if model.claim == "mean" else 0.0, 1.0 + 1e-6 if model.claim == "mean" else 1.0


def _allowed(model: Model, wanted: int) -> str:
    what = {
        "top_label": f"{wanted} probabilities, of {', '.join(model.classes)}",
        "marginal": f"{wanted} probabilities, of {', '.join(model.classes)}",
        "interval": "[low, high]",
        "quantile": f"{wanted} finite numbers, the quantiles at {', '.join(map(str, model.levels))}",
    }
    return what.get(model.claim, "a number in [0, 1]")


def _finite(given: Any) -> float:
    """A number as a float, nan if it is none or too large."""
    return float(given) if type(given) in (int, float) and abs(given) < 1e300 else math.nan


def outcome(model: Model, given: Any) -> tuple[float, str]:
    """An outcome as a number; nan and the reason if it is not allowed."""
    if model.classes:
        if type(given) is str and given in model.classes:
            return float(model.classes.index(given)), ""
        if type(given) in (int, float) and given in range(len(model.classes)) and str(given) not in model.classes:
            return float(given), ""
        return math.nan, f"y must be one of {', '.join(model.classes)}, got {given!r:.80}"
    if model.pos_label is not None:
        alike = isinstance(given, str if isinstance(model.pos_label, str) else int | float) and given == given
        wanted = f"y must be a label such as {model.pos_label!r}"
        return (float(given == model.pos_label), "") if alike else (math.nan, f"{wanted}, got {given!r:.80}")
    if type(given) is bool and model.claim == "mean":
        return float(given), ""
    number = _finite(given)
    if model.claim != "mean":
        return (number, "") if math.isfinite(number) else (math.nan, f"y must be a finite number, got {given!r:.80}")
    if (number in (0.0, 1.0)) if model.outcome == "binary" else (0.0 <= number <= 1.0):
        return number, ""
    allowed = "0 or 1 (or declare pos_label)" if model.outcome == "binary" else "in [0, 1]"
    return math.nan, f"y must be {allowed}, got {given!r:.80}"
