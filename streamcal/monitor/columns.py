"""Many predictions or labels as arrays: checked as a whole, so that all are taken, or a ValueError names the first bad one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, numbers
from streamcal.monitor.config.config import Config
from streamcal.monitor.config.settings import Model, Segments
from streamcal.monitor.events import LONGEST, Joined, text
from streamcal.monitor.join.join import Join
from streamcal.monitor.messages import LONGEST_SEGMENT, Intake, bounds, outcome, score, there
from streamcal.times import moment, seconds


@dataclass(frozen=True)
class Columns:
    """Rows of one model: predictions ``p`` (n,) or (n, k) with weights and segments, or outcomes ``y`` (n,)."""

    model: str
    version: str | None
    ids: list[str]
    t: Array
    p: Array | None = None
    y: Array | None = None
    w: Array | None = None
    segment: Sequence[str] | str = ""

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, first: int, stop: int) -> Columns:
        """Rows from the first up to another."""
        rows = slice(first, stop)
        p, y, w = (None if column is None else column[rows] for column in (self.p, self.y, self.w))
        segment = self.segment if isinstance(self.segment, str) else self.segment[rows]
        return Columns(self.model, self.version, self.ids[rows], self.t[rows], p, y, w, segment)

    def tagged(self, tag: Callable[[str, str], str]) -> Columns:
        """With the tags of segments in place of their names."""
        if self.p is None:
            return self
        if isinstance(self.segment, str):
            return replace(self, segment=tag(self.model, self.segment))
        tags = {name: tag(self.model, name) for name in dict.fromkeys(self.segment)}
        return replace(self, segment=list(map(tags.__getitem__, self.segment)))

    def feed(self, join: Join) -> list[Joined]:
        """Give them to a join."""
        if self.p is None:
            assert self.y is not None
            return join.feed_labels(self.model, self.version, self.ids, self.t, self.y)
        return join.feed_predictions(self.model, self.version or "", self.ids, self.t, self.p, self.w, self.segment)

    def objects(self, intake: Intake, segment: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
        """As the objects of messages."""
        settings = intake.known(self.model)
        common = {"model": self.model} | ({} if self.version is None else {"version": self.version})
        name, values = ("y", self.y) if self.p is None else ("p", self.p)
        names = intake.config.segments.fields if intake.config.segments else ()
        fields = {key: _texts(value) for key, value in (segment or {}).items() if key in names}
        assert values is not None
        shown = values.tolist() if self.p is not None else [_label_of(settings, y) for y in values.tolist()]
        for i, (id_, t, value) in enumerate(zip(self.ids, self.t.tolist(), shown, strict=True)):
            own = {key: column[i if len(column) > 1 else 0] for key, column in fields.items()}
            weight = (
                {settings.weight: 1.0 if self.w is None else float(self.w[i])}
                if settings.weight and self.p is not None
                else {}
            )
            yield {**own, **common, **weight, "id": id_, "t": t, name: value}


def _texts(values: Any) -> list[str]:
    """The values of a field as texts: one for each event, or one for all."""
    one = values is None or isinstance(values, str) or np.ndim(values) == 0
    column = [values] if one else np.asarray(values, dtype=object).tolist()
    return [str(there(value.item() if isinstance(value, np.generic) else value)) for value in column]


def _label_of(model: Model, y: float) -> Any:
    """An outcome as a label that :func:`outcome` reads as this number."""
    if model.classes:
        return model.classes[int(y)]
    if model.pos_label is None:
        return y
    negative = f"not {model.pos_label}" if isinstance(model.pos_label, str) else int(model.pos_label) + 1
    return model.pos_label if y == 1.0 else negative


def prediction_columns(
    intake: Intake,
    ids: Sequence[str | int],
    p: npt.ArrayLike,
    t: Any,
    model: str | None,
    version: str | None,
    segment: Mapping[str, Any] | None,
    w: npt.ArrayLike | None,
) -> Columns:
    """Checked predictions."""
    settings = intake.known(model)
    names = _ids(ids)
    values = _scores(settings, p, len(names))
    chosen = intake.version(settings, version)
    if chosen is None:
        raise ValueError(f"version must be one of {', '.join(settings.versions)}, got {version!r}")
    if w is not None and not settings.weight:
        raise ValueError(f'w goes only with a model that declares its weight, as in weight = "amount", got {w!r:.80}')
    weights = None if w is None else _each("w", numbers("w", w), len(names))
    if weights is not None:
        _first_bad("w", (weights >= 0.0) & (weights <= 1e100), "a weight in [0, 1e100]", weights)
    times = _times(t, len(names), intake.config.naive_times)
    return Columns(
        settings.name, chosen, names, times, values, None, weights, _segments(intake.config, segment, len(names))
    )


def label_columns(
    intake: Intake, ids: Sequence[str | int], y: npt.ArrayLike, t: Any, model: str | None, version: str | None
) -> Columns:
    """Checked outcomes."""
    settings = intake.known(model)
    names = _ids(ids)
    given = np.asarray(y)
    if given.shape != (len(names),):
        raise ValueError(f"y must have shape ({len(names)},), one for each id, got {given.shape}")
    values = _outcomes(settings, given)
    chosen = None if version is None else intake.version(settings, version)
    if version is not None and chosen is None:
        raise ValueError(f"version must be one of {', '.join(settings.versions)}, got {version!r}")
    return Columns(settings.name, chosen, names, _times(t, len(names), intake.config.naive_times), y=values)


def _ids(ids: Sequence[str | int]) -> list[str]:
    """Ids as texts."""
    if isinstance(ids, str | bytes) or not hasattr(ids, "__iter__") or getattr(ids, "ndim", 1) != 1:
        raise ValueError(f"ids must be a list of texts or whole numbers, got {ids!r:.80}")
    given: list[Any] = np.asarray(ids, dtype=object).tolist() if hasattr(ids, "dtype") else list(ids)
    found: list[str] = given
    if set(map(type, given)) != {str}:
        found = [str(name) if type(name) in (int, str) else "" for name in given]
    plain = "".join(found).isascii() and (not found or 0 < min(map(len, found)) <= max(map(len, found)) <= LONGEST)
    bad = -1 if plain else next((i for i, name in enumerate(found) if not text(name)), -1)
    if bad >= 0:
        raise ValueError(
            f"ids must be texts of 1 to 1,000 characters or whole numbers, got {given[bad]!r:.80} at index {bad}"
        )
    return found


def _times(t: Any, n: int, naive: str) -> Array:
    """Times as seconds, one for each row."""
    if isinstance(t, np.datetime64):
        t = float(seconds(t))
    if isinstance(t, str) or np.ndim(t) == 0:
        return np.full(n, moment(t.item() if isinstance(t, np.generic) else t, naive))
    given = np.asarray(t)
    if given.dtype.kind in "OU":
        times = np.array([moment(value, naive) for value in given.tolist()], np.float64)
    else:
        times = numbers("t", seconds(given))
    _first_bad("t", np.abs(times) < 1e11, "a time in seconds since 1970", times)
    return _each("t", times, n)


def _each(name: str, values: Array, n: int) -> Array:
    """One value for each row: given so, or one for all."""
    if values.ndim == 0:
        return np.full(n, float(values))
    if values.shape != (n,):
        raise ValueError(f"{name} must hold one value for each id, shape ({n},), got {values.shape}")
    return values


def _first_bad(name: str, good: Any, allowed: str, values: Any) -> None:
    bad = np.flatnonzero(~np.asarray(good))
    if bad.size:
        raise ValueError(f"{name} must be {allowed}, got {values[bad[0]]!r} at index {bad[0]}")


def _scores(model: Model, p: npt.ArrayLike, n: int) -> Array:
    """Predictions, each allowed as in a message."""
    values = numbers("p", p)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape[:1] != (n,) or values.ndim > 2:
        raise ValueError(f"p must hold one prediction for each id, shape ({n},) or ({n}, k), got {values.shape}")
    if n == 0:
        return values
    _, why = score(model, values[0].tolist())
    _, low, high = bounds(model)
    good = ((values >= low) & (values <= high)).reshape(n, -1).all(-1)
    if model.claim == "interval" and values.ndim == 2:
        good &= values[:, 0] <= values[:, -1]
    if why or not good.all():
        i = 0 if why else int(np.flatnonzero(~good)[0])
        raise ValueError(f"{score(model, values[i].tolist())[1]} at index {i}")
    return values


def _outcomes(model: Model, given: Any) -> Array:
    """Outcomes as numbers: by the distinct values where there are few."""
    if model.claim in ("quantile", "interval", "pit") or (model.outcome == "unit" and model.claim == "mean"):
        values = numbers("y", given)
        for i in np.flatnonzero(~np.isfinite(values))[:1].tolist():
            raise ValueError(f"y must be a finite number, got {values[i]!r} at index {i}")
        if model.claim == "mean":
            _first_bad("y", (values >= 0.0) & (values <= 1.0), "in [0, 1]", values)
        return values
    codes: dict[Any, float] = {}
    for i, value in enumerate(values := given.tolist()):
        if value not in codes or value is True or value is False:  # 1 and True are one key, and may mean two labels
            codes[value], why = outcome(model, value)
            if why:
                raise ValueError(f"{why} at index {i}")
    return np.array([codes[value] for value in values], np.float64)


def _segments(config: Config, given: Mapping[str, Any] | None, n: int) -> Sequence[str] | str:
    """The names of segments: one for each row, or one for all."""
    settings = config.segments
    if settings is None:
        return ""
    columns = []
    for field in settings.fields:
        values = (given or {}).get(field)
        one = values is None or isinstance(values, str) or (not isinstance(values, list) and np.ndim(values) == 0)
        column = [values] if one else np.asarray(values, dtype=object).tolist()
        if not one and len(column) != n:
            raise ValueError(f"segment {field} must hold one value for each id, {n}, got {len(column)}")
        columns.append(column if set(map(type, column)) == {str} else [str(there(v)) for v in column])
    if all(len(column) == 1 for column in columns) and n != 1:
        return _named(settings, tuple(column[0] for column in columns))
    rows = list(zip(*(column * n if len(column) == 1 and n != 1 else column for column in columns), strict=True))
    named = {row: _named(settings, row) for row in dict.fromkeys(rows)}
    return list(map(named.__getitem__, rows))


def _named(settings: Segments, values: tuple[Any, ...]) -> str:
    name = settings.named(values)
    if text(name, LONGEST_SEGMENT) is None:
        raise ValueError(f"segment must be a text of at most {LONGEST_SEGMENT} characters, got {name!r:.80}")
    return name
