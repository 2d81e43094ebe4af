"""One versioned document <-> any object here: a line of JSON that a person can read, then plain arrays. No pickle.

::

    {"streamcal": 1, "kind": "Sliding", "config": {...}, "arrays": [{"name": "buffer", "shape": [88]}], "crc32": 1}

The arrays follow as little-endian float64 in that order. A document of a newer version, of an unknown kind, or damaged
in any byte is refused.

A document can come from a stranger. Reading it takes time in proportion to its length, and at most 10 times its length and
1 MB of memory, whatever its numbers say: what a constructor makes by its settings is held against the document first
(:func:`reserve`), and what a document holds is not copied again (:func:`own_copy`).
"""

from __future__ import annotations

import copy
import json
import math
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np

from streamcal.arrays import Array

VERSION = 1
# Kind -> where its class is: a class is loaded when the first document of its kind is read or written. A kind of somebody's
# own is here as the class itself, from :func:`restorable` on.
KINDS: dict[str, str | type[Any]] = {
    name: f"streamcal.{module}:{name}"
    for module, names in {
        "binning": "Edges EqualWidth Grid Levels LogOdds UniformMass",
        "claims": "PIT Interval Marginal Mean Quantile TopLabel",
        "drift.bets": "Bets",
        "drift.calibration": "CalibrationDrift",
        "drift.coverage": "CoverageDrift",
        "drift.multiclass": "MarginalDrift TopLabelDrift",
        "drift.pit": "PITDrift",
        "drift.segments": "SegmentedDrift",
        "drift.sequential_test": "CalibrationTest SegmentedTest",
        "recalibrate.beta": "BetaCalibration",
        "recalibrate.calibeating": "Calibeating MixedForecaster",
        "recalibrate.comparison": "Comparison",
        "recalibrate.forecasting": "AlmostOneStepAhead FosterForecaster",
        "recalibrate.guard": "Guard",
        "recalibrate.histogram": "HistogramBinning OnlineHistogram",
        "recalibrate.isotonic": "IsotonicCalibration OnlineIsotonic",
        "recalibrate.multiclass": "MarginalCalibration OnlineMarginal TopLabelCalibration",
        "recalibrate.multivalid": "MultivalidMean MultivalidQuantile",
        "recalibrate.online_newton": "OnlineBeta OnlinePlatt",
        "recalibrate.online_patching": "OnlinePatching OnlineQuantilePatching",
        "recalibrate.patching": "OneShotPatching Patching QuantilePatching",
        "recalibrate.platt": "PlattScaling",
        "recalibrate.quantile_tracking": "QuantileTracker",
        "recalibrate.refit": "Chain Frozen Refit",
        "recalibrate.scaling_binning": "ScalingBinning",
        "recalibrate.temperature": "TemperatureScaling",
        "snapshot": "Snapshot",
        "windows.cumulative": "Cumulative",
        "windows.fading": "Fading",
        "windows.revertible": "Revertible",
        "windows.sliding": "Sliding",
        "windows.timed": "Timed",
        "windows.tumbling": "Tumbling",
    }.items()
    for name in names.split()
}
MOST_AXES = 8  # of an array: a cell table has three
# What constructors may make while a document is read, in its length and besides: its own arrays once more, those of a window in a
# map twice; then what is small whatever the settings are. With the arrays and the header it stays below 10 times and 1 MB.
TIMES, BESIDES = 4, 2**18
WIDEST = re.compile(rb"[\xf0-\xff]")  # how an emoji begins
HEADER = 10  # times its length may the line take as plain data: a map of 5,000 classes takes 8


C = TypeVar("C", bound=type[Any])
T = TypeVar("T")


class _Reading(threading.local):
    """What constructors may still make, in bytes, while a document is read in this thread."""

    left: float = math.inf


_reading = _Reading()


@contextmanager
def _at_most(size: float) -> Iterator[None]:
    """Read a document, or one within one: what the inner takes, the outer has no longer."""
    before, given = _reading.left, min(_reading.left, size)
    _reading.left = given
    try:
        yield
    finally:
        _reading.left = before - (given - _reading.left)


def reserve(numbers: int) -> None:
    """Called before an array is made whose size follows from settings: ValueError where a document is read that is too small.

    Otherwise nothing: who makes an object by its constructor may make it as large as he likes.
    """
    _reading.left -= 8 * numbers
    if _reading.left < 0:
        raise ValueError(f"the document is too small for what its config asks for: {numbers:,} numbers more")


def own_copy(thing: T) -> T:
    """A copy of what a constructor was given; the thing itself where it comes from a document: nobody else holds it."""
    return copy.deepcopy(thing) if _reading.left == math.inf else thing


def restorable(cls: C) -> C:
    """Class decorator: :func:`from_bytes` knows how to read this kind; one of your own needs a name that is not taken here."""
    name, place = cls.__name__, f"{cls.__module__}:{cls.__name__}"
    known = KINDS.get(name, place)
    taken = known if isinstance(known, str) else f"{known.__module__}:{name}"
    if taken != place:
        raise ValueError(f"the name {name} is taken by {taken.partition(':')[0]}; give the class another one")
    if not isinstance(known, str) or name not in KINDS:
        KINDS[name] = cls
    return cls


def _class_of(kind: Any) -> Any:
    """The class of a kind, None if there is none."""
    known = KINDS.get(kind) if isinstance(kind, str) else None
    if not isinstance(known, str):
        return known
    module, _, name = known.partition(":")
    before, _reading.left = _reading.left, math.inf  # what a module makes when it is loaded is no part of a document
    try:
        return getattr(import_module(module), name)
    finally:
        _reading.left = before


def _kind_of(thing: Document) -> str:
    """Its name, by which :func:`from_bytes` finds its class: written down for any other, it could not be read."""
    kind = type(thing).__name__
    if _class_of(kind) is not type(thing):
        raise ValueError(
            f"{kind} is not known to from_bytes, so it can not be written down, pickled or copied: "
            "decorate the class with streamcal.state.restorable"
        )
    return kind


def to_bytes(thing: Document) -> bytes:
    """The document of an object."""
    config, arrays = thing._state()
    flat = {name: np.asarray(a, dtype="<f8", order="C") for name, a in arrays.items()}
    body = b"".join(a.tobytes() for a in flat.values())
    text = _text(
        {
            "streamcal": VERSION,
            "kind": _kind_of(thing),
            "config": config,
            "arrays": [{"name": name, "shape": list(a.shape)} for name, a in flat.items()],
        }
    )
    return text[:-1] + _seal(text[:-1], body) + b"\n" + body


def _text(header: dict[str, Any]) -> bytes:
    return json.dumps(header, allow_nan=False, ensure_ascii=False).encode()


def _seal(text: bytes | memoryview, body: bytes | memoryview) -> bytes:
    """How the line of a document ends: with the checksum of all before it and behind the line."""
    return b', "crc32": %d}' % zlib.crc32(body, zlib.crc32(b"}", zlib.crc32(text)))


def from_bytes(data: bytes) -> Any:
    """The object that :func:`to_bytes` wrote down; it goes on bit for bit where that one was.

    ValueError if the bytes are not a document, are damaged or cut short, or come from a newer streamcal.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ValueError(f"a document must be bytes, got {data!r:.40} ({type(data).__name__}); read a file with 'rb'")
    data = bytes(data)
    reserve(len(data) // 8)  # of a document within one: somebody's constructor copies what it is given
    header, body = _opened(data)
    cls = _class_of(header.get("kind"))
    if cls is None:
        raise ValueError(
            f"kind must be one of {', '.join(sorted(KINDS))}, got {header.get('kind')!r:.80}; "
            "load the module of a kind of your own first"
        )
    with _at_most(TIMES * len(data) + BESIDES):
        try:
            return cls._restore(header["config"], _arrays(header["arrays"], body))
        except ValueError as error:
            wrong = str(error)
            if len(wrong) < 500:  # characters: more than any value that is not a mistake makes of it
                raise
        except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError) as error:
            wrong = repr(error)
    raise ValueError(f"the document's config or arrays are not those of a {header['kind']}: {wrong:.200}")


def _opened(data: bytes) -> tuple[dict[str, Any], memoryview]:
    """The line of a document as plain data, and what is behind it; ValueError unless both are as they were written."""
    end = data.find(b"\n")
    line, body = (data, memoryview(b"")) if end < 0 else (data[:end], memoryview(data)[end + 1 :])
    if _size_of(line) > HEADER * len(line) + TIMES * len(body) + BESIDES:
        raise ValueError(f"not a streamcal document: its line of {len(line):,} characters holds too many parts")
    try:
        header = json.loads(line, parse_constant=_refuse)
        version, _ = header["streamcal"], header.pop("crc32")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"not a streamcal document: it begins with {data[:20]!r}") from None
    if version != VERSION or isinstance(version, bool):
        raise ValueError(f"version must be {VERSION}, got {version!r:.80}: written by another streamcal")
    sealed = max(line.rfind(b', "crc32": '), 0)
    if line[sealed:] != _seal(memoryview(line)[:sealed], body):
        raise ValueError("the document is damaged: its checksum does not match")
    return header, body


def _size_of(line: bytes) -> int:
    """Bytes that the line of a document takes as plain data, rather too many: it is counted before it is read.

    A dict, a list, an element with the number that is made of it, half a text, a key that is there once (others are one text).
    """
    keys, usual = line.count(b'":'), sum(line.count(b'"%b":' % key) for key in (b"name", b"shape", b"kind", b"config"))
    parts = 150 * line.count(b"{") + 72 * line.count(b"[") + 64 * line.count(b",") + 28 * line.count(b'"')
    # One character beyond ASCII makes all of its text 2 bytes each, an emoji 4.
    widest = b"\\ud" in line.lower() or (not line.isascii() and WIDEST.search(line))
    return parts - 56 * usual + 200 * (keys - usual) + (12 if widest else 0 if line.isascii() else 6) * len(line)


def _refuse(constant: str) -> Any:
    raise ValueError(f"JSON has no {constant}")


def _arrays(table: list[dict[str, Any]], body: memoryview) -> dict[str, Array]:
    """The arrays by name. A shape is looked at before anything is multiplied or made."""
    out: dict[str, Array] = {}
    start = 0
    table.reverse()
    while table:  # what has been read is let go: of many small arrays the table is what is large
        entry = table.pop()
        name, shape, size = entry["name"], entry["shape"], 1
        if not isinstance(shape, list) or len(shape) > MOST_AXES or not isinstance(name, str) or name in out:
            raise ValueError(
                f"an array has a name of its own and at most {MOST_AXES} axes, got {name!r:.80}, {shape!r:.80}"
            )
        for n in shape:
            if type(n) is not int or not 0 <= n < 2**31:
                raise ValueError(f"a shape must be whole numbers, got {shape!r:.80}")
            size *= n
        if 8 * size > len(body) - start:
            raise ValueError(f"the arrays are longer than the document: {name!r:.80} has the shape {shape!r:.80}")
        flat = np.frombuffer(body, "<f8", size, start)
        out[name] = flat.astype(np.float64).reshape(shape) if shape else flat[0]
        start += 8 * size
    if start != len(body):
        raise ValueError(f"the document has {len(body) - start} bytes that belong to nothing")
    return out


def _part(name: str, value: Any) -> tuple[Any, dict[str, Array]]:
    """A value as plain data, and the arrays of the documents in it under names that begin with ``name``."""
    if isinstance(value, list | tuple):
        each = [_part(f"{name}/{i}", part) for i, part in enumerate(value)]
        return [config for config, _ in each], {place: a for _, arrays in each for place, a in arrays.items()}
    if not hasattr(value, "_state"):
        return value, {}
    config, arrays = value._state()
    return {"kind": _kind_of(value), "config": config}, {f"{name}/{own}": array for own, array in arrays.items()}


def _part_from(document: Any, arrays: Mapping[str, Array]) -> Any:
    """The value that :func:`_part` wrote down; the names of its arrays without the part's own."""
    if isinstance(document, list) and any(isinstance(part, list | dict) for part in document):
        _, inner = _by_place(arrays)
        return [_part_from(part, inner.get(str(i), {})) for i, part in enumerate(document)]
    if not isinstance(document, dict) or "kind" not in document:
        return document
    cls = _class_of(document["kind"])
    if cls is None:
        raise ValueError(f"the document holds a part of an unknown kind: {document['kind']!r:.80}")
    return cls._restore(document["config"], dict(arrays))


def _by_place(arrays: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, dict[str, Array]]]:
    """The arrays of a document itself, and those of each of its parts: each name is looked at once on every level."""
    here: dict[str, Array] = {}
    inner: dict[str, dict[str, Array]] = {}
    for name, array in arrays.items():
        place, below, rest = name.partition("/")
        if below:
            inner.setdefault(place, {})[rest] = array
        else:
            here[name] = array
    return here, inner


class Document:
    """Mixin: to_bytes, from_bytes, pickle, copy and deepcopy, all through the one document; and one caller at a time."""

    _busy = False

    def _alone(self, call: Callable[..., T], *args: Any) -> T:
        """``call(*args)``, which changes this without the interpreter lock: a second caller meanwhile gets a RuntimeError.

        No lock of its own: the interpreter changes threads neither between the look and the mark nor while it marks.
        """
        if self._busy:
            raise RuntimeError(
                f"{self!r:.80} is taking events in another thread: one window a thread, then `+` (a detector or a "
                "recalibrator is for one stream, in one thread)"
            )
        self._busy = True
        try:
            return call(*args)
        finally:
            self._busy = False

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        raise AssertionError("each kind says what it is made of")  # pragma: no cover

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Array]) -> Any:
        raise AssertionError("each kind knows how it is made")  # pragma: no cover

    def to_bytes(self) -> bytes:
        """This object as one versioned document (see :mod:`streamcal.state`)."""
        return to_bytes(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Any:
        """The object that :meth:`to_bytes` wrote down. ValueError if it is of another kind, damaged, or newer."""
        thing = from_bytes(data)
        if not isinstance(thing, cls):
            raise ValueError(f"expected a {cls.__name__}, got a {type(thing).__name__}")
        return thing

    def __reduce__(self) -> tuple[Any, ...]:
        return from_bytes, (self.to_bytes(),)


class Declared(Document):
    """A frozen dataclass that is its arguments: a binning, a claim. Inside another document it is a ``declaration``."""

    @property
    def declaration(self) -> dict[str, Any]:
        """Its kind and arguments as plain data."""
        arguments = [getattr(self, each.name) for each in fields(cast(Any, self)) if each.init]
        for i, value in enumerate(arguments):
            if isinstance(value, tuple):  # JSON has no infinity: an open end is written as "inf"
                arguments[i] = [v if math.isfinite(v) else str(v) for v in value]
        return {"kind": type(self).__name__, "arguments": arguments}

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        return {"arguments": self.declaration["arguments"]}, {}

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Array]) -> Self:
        return cls(*config["arguments"])

    @classmethod
    def declared(cls, document: dict[str, Any]) -> Self:
        """The one of a family that a ``declaration`` is of."""
        known = _class_of(document["kind"])
        if not (isinstance(known, type) and issubclass(known, cls)):
            family = [kind for kind, place in KINDS.items() if str(place).startswith(f"{cls.__module__}:")]
            raise ValueError(f"{cls.__name__.lower()} must be one of {', '.join(family)}, got {document['kind']!r:.80}")
        return known(*document["arguments"])


class Described(Document):
    """A document by description: the attributes ``settings``, which the constructor takes, and ``fitted``, what came since.

    A setting is plain data, a document, or a list of documents. What is fitted may be a number (a flag is one) or an array
    besides, and may be missing as a whole. A document with a right checksum can hold anything: the constructor checks the
    settings, and :meth:`_go_on` whatever would let a kernel read or write beyond an array, or serve what is no number.
    """

    settings: ClassVar[tuple[str, ...]] = ()
    fitted: ClassVar[tuple[str, ...]] = ()

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        config: dict[str, Any] = {}
        arrays: dict[str, Array] = {}
        for name in (*self.settings, *self.fitted):
            if not hasattr(self, name):
                continue
            value = getattr(self, name)
            if name in self.fitted and isinstance(value, bool | float | np.ndarray):
                arrays[name] = np.asarray(value, np.float64)
            else:
                config[name], parts = _part(name, value)
                arrays |= parts
        return config, arrays

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Array]) -> Any:
        here, inner = _by_place(arrays)
        values = {name: _part_from(value, inner.get(name, {})) for name, value in config.items()}
        made = cls(**{name: values.pop(name) for name in cls.settings})
        values |= {name: array if array.ndim else float(array) for name, array in here.items()}
        if values:
            made._go_on(values)
        return made

    def _go_on(self, fitted: dict[str, Any]) -> None:
        """Take over what is fitted; ValueError if it holds what cannot be."""
        for name in self.fitted:
            setattr(self, name, fitted[name])
