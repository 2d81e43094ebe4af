"""What all windows share: the buffer, the doors for one event and for many, reading, and the state document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamcal._jit import entry
from streamcal.arrays import Array, Ints, check_same_index, check_whole, numbers
from streamcal.binning import Binning, EqualWidth, binning_document, binning_from
from streamcal.claims import PIT, Claim, Mean, claim_document, claim_from
from streamcal.rows import EDGES, N_ROWS
from streamcal.snapshot import Number, Snapshot
from streamcal.state import Document
from streamcal.tally import (
    BINARY,
    CELLS,
    CLAIM,
    HEAD,
    KEYS,
    LEVELS,
    LOG_LOSS,
    LOSS_KIND,
    NO_LOSS,
    NOT_SCALAR,
    PINBALL,
    QUANTILE,
    STATE,
    STRICT,
    VECTOR,
    first_bad,
)

LOSSES = {None: NO_LOSS, "log": LOG_LOSS, "pinball": PINBALL}
NONE, NO_KEYS = np.empty(0), np.empty(0, np.int64)
CHUNK = 2**18  # events converted to float64 at a time

Piece = tuple[Array, Array, Array, Ints, Array]  # scores, outcomes, weights (or none), keys (or none), times (or none)


class Window(Document):
    """Base of the windows. Not thread-safe: give each thread its own and add the snapshots."""

    _kernel: ClassVar[Callable[..., int]]
    _one: ClassVar[Callable[..., int]]

    _holds_all: ClassVar[bool] = False  # every event since the first: then there are errors that hold at any time
    _smallest: ClassVar[tuple[Any, ...]] = ()  # arguments behind the binning that make a small window of this kind

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """At the first event of the first window of a kind, its kernel is compiled and its entry kept on the class."""
        super().__init_subclass__(**kwargs)

        def first(buf: Array, *event: Any) -> int:
            sample = (0.5, 1.0, 1.0, 0.0, *([0.0] * (len(event) - 4)))
            small = cls(EqualWidth(1), *cls._smallest)
            cls._one = staticmethod(entry(cls._kernel, small._buf, *sample))
            return cls._one(buf, *event)

        cls._one = staticmethod(first)

    def __init__(
        self,
        binning: Binning,
        *,
        keys: int = 1,
        claim: Claim | None = None,
        loss: str | None = None,
        strict: bool = False,
    ) -> None:
        claim = Mean() if claim is None else claim
        if not isinstance(binning, Binning):
            raise ValueError(f"binning must be a Binning such as EqualWidth(15), got {binning!r}")
        if not isinstance(claim, Claim):
            raise ValueError(f"claim must be a Claim such as Mean() or Quantile(0.9), got {claim!r}")
        _check_loss(loss, claim)
        self.binning, self.claim, self.loss, self.strict = binning, claim, loss, bool(strict)
        self.keys = check_whole("keys", keys, 1)
        self._lay_out(binning.plan(claim.domain))

    # -- the buffer --------------------------------------------------------------------------------------------------

    def _lay_out(self, plan: Array) -> None:
        """Header, edges (if the rule looks them up), levels, cells, and what the window itself needs."""
        levels = np.tile(self.claim.levels, self.keys)
        edges = plan[int(plan[EDGES]) :] if plan[EDGES] else NONE
        start = HEAD + edges.size + levels.size
        start += -start % 8
        self._rows = int(plan[N_ROWS])
        self._block = 8 * (self._rows + 1)
        self._all_keys = levels.size
        cells = self._panes() * self._all_keys * self._block
        self._buf = np.zeros(start + cells + self._extra(cells))
        self._buf[: EDGES + 1] = plan[: EDGES + 1]
        self._buf[EDGES] = HEAD if edges.size else 0
        self._buf[HEAD : HEAD + edges.size] = edges
        self._buf[HEAD + edges.size : HEAD + edges.size + levels.size] = levels
        self._buf[KEYS], self._buf[CLAIM] = levels.size, self.claim.kind
        self._buf[BINARY] = getattr(self.claim, "outcome", "") == "binary"
        self._buf[LOSS_KIND], self._buf[STRICT] = LOSSES[self.loss], self.strict
        self._buf[LEVELS], self._buf[CELLS] = HEAD + edges.size, start
        self._buf[VECTOR] = not self.claim.scalar
        self._settle(start + cells)

    def _panes(self) -> int:
        """How many sets of cells there are."""
        return 1

    def _extra(self, cells: int) -> int:
        """How many numbers the window needs behind its cells."""
        return 0

    def _settle(self, aux: int) -> None:
        """Write the window's own settings into the header; its own numbers begin at ``aux``."""

    def _cells_at(self, start: int) -> Array:
        size = self._all_keys * self._block
        return self._buf[start : start + size].reshape(self._all_keys, self._rows + 1, 8)

    def _of_keys(self, start: int, sets: int, size: int) -> Array:
        """A view of the buffer from ``start`` on, shape (sets, keys, size)."""
        return self._buf[start : start + sets * self._all_keys * size].reshape(sets, self._all_keys, size)

    def _by_key(self) -> list[Array]:
        """Views of all that the window keeps of each key, each of shape (sets, keys, numbers)."""
        return [self._of_keys(int(self._buf[CELLS]), self._panes(), self._block)]

    @property
    def cells(self) -> Array:
        """The sums of what is in the window now, a copy of shape (keys, rows + 1, 8)."""
        return self._cells_at(int(self._buf[CELLS])).copy()

    # -- one event ---------------------------------------------------------------------------------------------------

    def update(self, p: Any, y: Any, w: float = 1.0, key: int = 0) -> None:
        """Add one event. A bad one is counted as refused and changes nothing else; with ``strict`` it raises ValueError.

        ``p`` and ``y`` are read like ``float()`` reads them; ``key`` must lie in 0..keys - 1.
        """
        try:
            status = self._one(self._buf, p, y, w, key)
        except (TypeError, ValueError, OverflowError):
            status = NOT_SCALAR
        if status:
            self._not_added(status, p, y, w, key)

    def _not_added(self, status: int, p: Any, y: Any, w: Any, key: Any, t: Any = None) -> None:
        """What to do when the kernel did not take an event as it came."""
        if status == NOT_SCALAR:
            self.update_many([p], [y], [w], key=[key], t=None if t is None else [t])
        elif status < 0:
            raise ValueError(f"key must be a whole number in 0..{self.keys - 1}, got {key!r}")
        elif self.strict:
            raise ValueError(self._complaint(p, y, w))

    def _complaint(self, p: Any, y: Any, w: Any, where: str = "") -> str:
        outcome = "finite" if self.claim.kind == QUANTILE else "0 or 1" if self._buf[BINARY] else "in [0, 1]"
        score = "in [0, 1]" if self.claim.domain == "unit" else "finite"
        return (
            f"the prediction must be {score} and on a row of {self.binning!r:.60}, the outcome {outcome}, "
            f"the weight in [0, 1e100], got {p!r}, {y!r}, {w!r}{where}"
        )

    # -- many events -------------------------------------------------------------------------------------------------

    def update_many(self, p: Any, y: Any, w: Any = None, *, key: Any = None, t: Any = None) -> None:
        """Add many events in order: arrays, lists, Series, any real dtype; they are only read.

        ``p`` has shape (n,), or (n, k) for claims about vectors; ``w`` (n,) or None for 1; ``key`` (n,) whole numbers or
        None for 0. The same as :meth:`update` one by one up to rounding. ValueError if shapes differ, if two Series
        carry different indexes, if a key is out of range, or with ``strict`` if any event is bad; then none is added.
        """
        if t is not None:
            raise ValueError(f"{type(self).__name__} takes no times; Timed does")
        self._take(p, y, w, key, None)

    def _take(self, p: Any, y: Any, w: Any, key: Any, t: Array | None) -> None:
        check_same_index(p, y, w, key)
        keys = self._whole_keys(key, len(p) if np.ndim(p) else 0)
        pieces = list(self._pieces(p, y, w, keys, t)) if self.strict else self._pieces(p, y, w, keys, t)
        if self.strict:
            self._refuse_all(list(pieces))
        for piece in pieces:
            self._add(*piece)

    def _refuse_all(self, pieces: list[Piece]) -> None:
        """Raise if any event of a strict window's batch is bad, before any is added."""
        seen = 0
        for p, y, w, _, _ in pieces:
            i = first_bad(self._buf, p, y, w)
            if i >= 0:
                weight = w[i] if w.size else 1.0
                where = f" at index {(seen + i) // self.claim.width}"
                raise ValueError(self._complaint(float(p[i]), float(y[i]), float(weight), where))
            seen += p.size

    def _pieces(self, p: Any, y: Any, w: Any, key: Ints, t: Array | None) -> Iterator[Piece]:
        """Events as contiguous float64 arrays, converted CHUNK at a time where they are not."""
        if y is None and not isinstance(self.claim, PIT):
            raise ValueError("y must hold one outcome per prediction, got None")
        p, y = _array(p), _array(p if y is None else y)
        w = None if w is None else _array(w)
        if p.ndim == 0:
            raise ValueError(f"predictions must be an array of one per event, got {p!r:.80}; update takes one event")
        n = len(p)
        for name, v in (("y", y), ("w", w), ("t", t)):
            if v is not None and v.shape != (n,):
                raise ValueError(f"{name} must hold one value per prediction, shape ({n},), got {v.shape}")
        step = max(n, 1) if all(map(_as_it_is, (p, y))) and (w is None or _as_it_is(w)) and self.claim.scalar else CHUNK
        for low in range(0, n, step):
            part = slice(low, low + step)
            scores, outcomes = self.claim.events(p[part], y[part])
            shape = (len(scores),) if self.claim.width == 1 else (len(scores), self.claim.width)
            if scores.shape != shape or outcomes.shape != shape:
                raise ValueError(f"predictions and outcomes must be one per event, got {np.shape(p)} and {np.shape(y)}")
            yield self._spread(scores, outcomes, NONE if w is None else numbers("w", w[part]), key[part], t, part)

    def _spread(self, p: Array, y: Array, w: Array, key: Ints, t: Array | None, part: slice) -> Piece:
        """One event per key of the claim, side by side."""
        width, times = self.claim.width, NONE if t is None else t[part]
        if width > 1:
            n = len(p)
            key = np.repeat(key if key.size else np.zeros(n, np.int64), width) * width + np.tile(np.arange(width), n)
            p, y, w, times = p.reshape(-1), y.reshape(-1), np.repeat(w, width), np.repeat(times, width)
        return _own(p), _own(y), _own(w), np.ascontiguousarray(key), _own(times)

    def _whole_keys(self, key: Any, n: int) -> Ints:
        """Keys of n events as int64, none when all are 0."""
        if key is None:
            return NO_KEYS
        if np.ma.is_masked(key) or np.shape(key) != (n,):
            raise ValueError(
                f"key must hold one whole number per event, shape ({n},) and not masked, got {np.shape(key)}"
            )
        given = np.asarray(key)
        number = given.dtype.kind in "iu" or (given.dtype.kind == "f" and bool(np.isfinite(given).all()))
        whole = given.astype(np.int64) if number else NO_KEYS
        if not np.array_equal(whole, given) or (whole.size and not 0 <= whole.min() <= whole.max() < self.keys):
            raise ValueError(f"key must hold whole numbers in 0..{self.keys - 1}, got {key!r:.80}")
        return whole if self._all_keys > 1 else NO_KEYS

    def _add(self, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
        raise AssertionError("each window adds in its own way")  # pragma: no cover

    # -- reading -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """A frozen copy of the sums as they are now."""
        return self._frozen(self.cells)

    def _frozen(self, cells: Array) -> Snapshot:
        return Snapshot(cells, self.binning.fine_edges(self.claim.domain), self.binning, self.claim, self.loss)

    def get(self, name: str) -> Number:
        """A metric of :data:`streamcal.METRICS` by name: a float, or an array over keys if there are several."""
        return self.snapshot().get(name)

    def report(self) -> dict[str, Any]:
        """Every metric with its sampling error and the reliability rows, as one plain dict (see Snapshot.report)."""
        return {"window": repr(self), **self.snapshot().report(anytime=self._holds_all)}

    def __repr__(self) -> str:
        size = "".join(f", {v!r}" for v in self._arguments().values())
        extra = "".join(
            f", {name}={value!r}"
            for name, value, usual in (
                ("keys", self.keys, 1),
                ("claim", self.claim, Mean()),
                ("loss", self.loss, None),
                ("strict", self.strict, False),
            )
            if value != usual
        )
        return f"{type(self).__name__}({self.binning!r}{size}{extra})"

    # -- keys that come and go ---------------------------------------------------------------------------------------

    def widened(self, keys: int) -> Self:
        """A new window with ``keys`` keys (ValueError for fewer): the old ones keep all, to the last bit, new ones are empty.

        From then on it behaves as a window that had so many keys from the start.

        >>> from streamcal import EqualWidth, Sliding
        >>> window = Sliding(EqualWidth(1), 10)
        >>> window.update(0.5, 1)
        >>> window.widened(3).snapshot().count.tolist()
        [[1.0], [0.0], [0.0]]
        """
        check_whole("keys", keys, self.keys)
        same: dict[str, Any] = {**self._arguments(), "claim": self.claim, "loss": self.loss, "strict": self.strict}
        wide = type(self)(self.binning, keys=keys, **same)
        wide._make_room_for(self)
        for old, new in zip(self._by_key(), wide._by_key(), strict=True):
            new[:, : self._all_keys] = old
        wide._buf[STATE] = self._buf[STATE]
        return wide

    def _make_room_for(self, other: Self) -> None:
        """Take over what another window of this kind keeps behind its keys' numbers, before those come."""

    def empty(self, key: int = 0) -> None:
        """Forget all of one key (in 0..keys - 1), as if none of its events had come. The others, and time, stay as they are.

        >>> from streamcal import Cumulative, EqualWidth
        >>> window = Cumulative(EqualWidth(1), keys=2)
        >>> window.update_many([0.5, 0.5], [1, 0], key=[0, 1])
        >>> window.empty(0)
        >>> window.snapshot().count.tolist()
        [[0.0], [1.0]]
        """
        places = self._places(key)
        for numbers_of_keys in self._by_key():
            numbers_of_keys[:, places] = 0.0

    def _places(self, key: int, name: str = "key") -> slice:
        """The places of a key in the buffer: one for each level of its claim."""
        k = check_whole(name, key, 0, self.keys - 1)
        return slice(k * self.claim.width, (k + 1) * self.claim.width)

    # -- state -------------------------------------------------------------------------------------------------------

    def _arguments(self) -> dict[str, Any]:
        """The arguments of the constructor that only this kind of window has."""
        return {}

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        config = {
            "binning": binning_document(self.binning),
            **self._arguments(),
            "keys": self.keys,
            "claim": claim_document(self.claim),
            "loss": self.loss,
            "strict": self.strict,
        }
        return config, {"buffer": self._buf}

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Array]) -> Any:
        config = {**config, "binning": binning_from(config["binning"]), "claim": claim_from(config["claim"])}
        buffer = arrays["buffer"].reshape(-1)
        rows = int(config["binning"].plan(config["claim"].domain)[N_ROWS])
        if buffer.size < 8 * rows * config["claim"].width * check_whole("keys", config["keys"], 1):
            raise ValueError(f"a buffer of {buffer.size} numbers is too small for the document's config")
        window = cls(**config)
        window._take_over(buffer)
        return window

    def _take_over(self, buffer: Array) -> None:
        """Go on with a restored buffer. A kernel trusts it, so its layout must be the one that the config makes."""
        cells = int(self._buf[CELLS])
        fixed = np.arange(cells) != STATE
        same = self._may_have(buffer.size) and np.array_equal(
            buffer[:cells][fixed], self._buf[:cells][fixed], equal_nan=True
        )
        if not same or not self._is_sound(buffer):
            raise ValueError(f"the buffer of {buffer.size} numbers does not fit the config of {self!r:.200}")
        self._buf = buffer

    def _may_have(self, size: int) -> bool:
        """Whether a buffer of this window can have so many numbers."""
        return size == self._buf.size

    def _is_sound(self, buffer: Array) -> bool:
        """Whether a buffer of the right size holds nothing that this window could not have written."""
        return bool(np.isfinite(buffer[int(self._buf[CELLS]) :]).all())


def whole_between(values: Array, low: float, high: float) -> bool:
    """Whether all are whole numbers in low..high."""
    return bool(((values >= low) & (values <= high) & (values == np.floor(values))).all())


def _check_loss(loss: str | None, claim: Claim) -> None:
    """Raise unless the loss is known and fits the claim."""
    if loss not in LOSSES:
        raise ValueError(f"loss must be None, 'log' or 'pinball', got {loss!r}")
    if (loss == "log" and claim.domain != "unit") or (loss == "pinball" and claim.kind != QUANTILE):
        raise ValueError(f"loss={loss!r} does not fit {claim!r}: 'log' is for probabilities, 'pinball' for quantiles")


def _array(values: Any) -> Any:
    """An array by position: a masked array keeps its mask, a Series loses its index."""
    return values if isinstance(values, np.ndarray) else np.asarray(values)


def _as_it_is(array: Any) -> bool:
    """Whether a kernel can read this array where it lies."""
    plain = isinstance(array, np.ndarray) and array.dtype == np.float64
    return bool(
        plain and array.flags.c_contiguous and array.flags.writeable and not isinstance(array, np.ma.MaskedArray)
    )


def _own(array: Array) -> Array:
    """The array, or a plain copy if a kernel could not read it where it lies."""
    return array if _as_it_is(array) else np.array(array, dtype=np.float64)
