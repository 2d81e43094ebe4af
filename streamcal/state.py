"""One versioned document <-> any object here: a line of JSON that a person can read, then plain arrays. No pickle.

::

    {"streamcal": 1, "kind": "Sliding", "config": {...}, "arrays": [{"name": "buffer", "shape": [88]}], "crc32": 1}

The arrays follow as little-endian float64 in that order. A document of a newer version, of an unknown kind, or damaged
in any byte is refused.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np

from streamcal.arrays import Array

VERSION = 1
KINDS: dict[str, Callable[[dict[str, Any], dict[str, Array]], Any]] = {}


C = TypeVar("C", bound=type[Any])


def restorable(cls: C) -> C:
    """Class decorator: :func:`from_bytes` knows how to read this kind; one of your own needs a name that is not taken here."""
    if not cls.__module__.startswith("streamcal."):
        _know_all()  # a name can be taken by a class that is not loaded yet
    known = _class_of(cls.__name__)
    if known is not None and known.__module__ != cls.__module__:
        raise ValueError(f"the name {cls.__name__} is taken by {known.__module__}; give the class another one")
    KINDS[cls.__name__] = cls._restore
    return cls


def _know_all() -> None:
    """Load every public name, and with them every kind: names are loaded at their first use, documents may be read before."""
    for package in map(import_module, ("streamcal", "streamcal.drift")):
        for name in package.__all__:
            getattr(package, name)


def _class_of(kind: str) -> Any:
    return getattr(KINDS.get(kind), "__self__", None)


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
    header = {
        "streamcal": VERSION,
        "kind": _kind_of(thing),
        "config": config,
        "arrays": [{"name": name, "shape": list(a.shape)} for name, a in flat.items()],
    }
    header["crc32"] = zlib.crc32(body, zlib.crc32(_text(header)))
    return _text(header) + b"\n" + body


def _text(header: dict[str, Any]) -> bytes:
    return json.dumps(header, allow_nan=False, ensure_ascii=False).encode()


def from_bytes(data: bytes) -> Any:
    """The object that :func:`to_bytes` wrote down; it goes on bit for bit where that one was.

    ValueError if the bytes are not a document, are damaged or cut short, or come from a newer streamcal.
    """
    line, _, body = bytes(data).partition(b"\n")
    try:
        header = json.loads(line)
        version, crc = header["streamcal"], header.pop("crc32")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"not a streamcal document: it begins with {bytes(data[:20])!r}") from None
    if version != VERSION or isinstance(version, bool):
        raise ValueError(f"version must be {VERSION}, got {version!r}: written by another streamcal")
    if zlib.crc32(body, zlib.crc32(_text(header))) != crc:
        raise ValueError("the document is damaged: its checksum does not match")
    if header.get("kind") not in [*KINDS]:  # in a list, since it can be what has no hash
        _know_all()
    if not isinstance(header.get("kind"), str) or header["kind"] not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(sorted(KINDS))}, got {header.get('kind')!r}")
    try:
        return KINDS[header["kind"]](header["config"], _arrays(header["arrays"], body))
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(f"the document's config or arrays are not those of a {header['kind']}: {error!r}") from None


def _arrays(table: list[dict[str, Any]], body: bytes) -> dict[str, Array]:
    out, start = {}, 0
    for entry in table:
        size = math.prod(entry["shape"])
        if not all(isinstance(n, int) and n >= 0 for n in entry["shape"]) or start + 8 * size > len(body):
            raise ValueError(f"the arrays are longer than the document, or have no shape: {entry['shape']}")
        flat = np.frombuffer(body, "<f8", size, start).astype(np.float64)
        out[entry["name"]] = flat.reshape(entry["shape"])
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


def _part_from(name: str, document: Any, arrays: Mapping[str, Array]) -> Any:
    """The value that :func:`_part` wrote down."""
    if isinstance(document, list):
        return [_part_from(f"{name}/{i}", part, arrays) for i, part in enumerate(document)]
    if not isinstance(document, dict) or "kind" not in document:
        return document
    own = {place[len(name) + 1 :]: array for place, array in arrays.items() if place.startswith(f"{name}/")}
    if document["kind"] not in KINDS:
        _know_all()
    return KINDS[document["kind"]](document["config"], own)


class Document:
    """Mixin: to_bytes, from_bytes, pickle, copy and deepcopy, all through the one document."""

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
        family = {kind: known for kind in KINDS if issubclass(known := _class_of(kind), cls)}
        if document["kind"] not in family:
            raise ValueError(f"{cls.__name__.lower()} must be one of {', '.join(family)}, got {document['kind']!r}")
        return cast(Self, family[document["kind"]](*document["arguments"]))


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
        values = {name: _part_from(name, value, arrays) for name, value in config.items()}
        made = cls._made({name: values.pop(name) for name in cls.settings})
        values |= {name: array if array.ndim else float(array) for name, array in arrays.items() if "/" not in name}
        if values:
            made._go_on(values)
        return made

    @classmethod
    def _made(cls, settings: dict[str, Any]) -> Any:
        return cls(**settings)

    def _go_on(self, fitted: dict[str, Any]) -> None:
        """Take over what is fitted; ValueError if it holds what cannot be."""
        for name in self.fitted:
            setattr(self, name, fitted[name])
