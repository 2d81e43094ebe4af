"""What all windows share: the buffer, the doors for one event and for many, reading, and the state document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self, TypeAlias, TypedDict

import numpy as np

from streamcal._jit import lazily
from streamcal.arrays import Array, Ints, check_aligned, check_whole, for_kernels, is_for_kernels, numbers
from streamcal.binning import N_BINS, Binning, EqualWidth
from streamcal.claims import PIT, Claim, Mean
from streamcal.limits import SWAPPED, warn
from streamcal.snapshot import Number, Snapshot
from streamcal.state import Document, reserve
from streamcal.summary import report
from streamcal.tally import (
    AUX,
    BINARY,
    CLAIM,
    COUNT,
    LATE,
    LOG_LOSS,
    LOSS_KIND,
    NO_LOSS,
    NOT_SCALAR,
    PARAMETER,
    PINBALL,
    QUANTILE,
    REFUSED,
    STATE,
    STRICT,
    VECTOR,
    Layout,
    first_bad,
)

LOSSES = {None: NO_LOSS, "log": LOG_LOSS, "pinball": PINBALL}
NONE, NO_KEYS = np.empty(0), np.empty(0, np.int64)
MOST = 2.0**53  # events: beyond it a float64 counts no further
CHUNK = 2**18  # events converted to float64 at a time: a long column of another type needs no copy of the whole

# scores, outcomes, weights (or none), keys (or none), times (or none), as kernels read them
EventArrays: TypeAlias = tuple[Array, Array, Array, Ints, Array]


class Options(TypedDict, total=False):
    """What every window takes besides its binning and what makes its kind: see :class:`Window`."""

    keys: int
    claim: Claim | None
    loss: str | None
    strict: bool


class Window(Document):
    """Base of the windows. Not thread-safe: give each thread its own and add the snapshots.

    A second thread in :meth:`update_many` meanwhile gets a RuntimeError; :meth:`update` and reading are not watched.

    ``binning``: the bins of the scores. ``keys``: how many streams have sums of their own, side by side. ``claim``: what an
    event means, by default Mean(). ``loss``: "log" or "pinball" sums that loss too. ``strict``: whether a bad event raises
    ValueError in place of being counted as refused. All but ``binning`` by name.
    """

    _kernel: ClassVar[Callable[..., int]]  # one event into the buffer
    _one: ClassVar[Callable[..., int]]  # the same by its entry
    _event: ClassVar[tuple[float, ...]] = (0.5, 1.0, 1.0, 0.0)  # p, y, w, key: to test the entry with
    _smallest: ClassVar[tuple[Any, ...]] = ()  # arguments behind the binning that make a small window of this kind
    settings: ClassVar[tuple[str, ...]] = ()  # the arguments of the constructor that only this kind has
    _holds_all: ClassVar[bool] = False  # every event since the first: then there are errors that hold at any time
    _sets: int = 1  # of cells
    _counted: ClassVar[slice] = slice(None)  # the sets whose counts are whole numbers
    _own: int = 0  # other numbers for each key

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """The kernel of a kind is compiled at the first event of its first window, and tested on a small one."""
        super().__init_subclass__(**kwargs)
        lazily(cls, "_one", cls._kernel, *cls._event, sample=lambda: cls(EqualWidth(1), *cls._smallest)._buf)

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
        if loss not in LOSSES:
            raise ValueError(f"loss must be None, 'log' or 'pinball', got {loss!r}")
        if (loss == "log" and claim.domain != "unit") or (loss == "pinball" and claim.kind != QUANTILE):
            raise ValueError(
                f"loss={loss!r} does not fit {claim!r}: 'log' is for probabilities, 'pinball' for quantiles"
            )
        self.binning, self.claim, self.loss, self.strict = binning, claim, loss, bool(strict)
        self.keys = check_whole("keys", keys, 1)
        plan = binning.plan(claim.domain)
        reserve(self.keys * claim.width * (8 * self._sets * (int(plan[N_BINS]) + 1) + self._own))
        levels = np.tile(claim.levels, self.keys)  # the keys in the buffer: those of the claim for each of ours
        self._layout = Layout(plan, levels, self._sets, self._own)
        self._buf = self._layout.new()
        self._buf[CLAIM], self._buf[BINARY] = claim.kind, getattr(claim, "outcome", "") == "binary"
        self._buf[LOSS_KIND], self._buf[STRICT], self._buf[VECTOR] = LOSSES[loss], self.strict, not claim.scalar
        self._may_be_swapped = True
        self._begin()

    def _begin(self) -> None:
        """Write the window's own settings into the header, and where its numbers behind the sums of now begin."""
        values = list(self._arguments().values())
        self._buf[PARAMETER : PARAMETER + len(values)] = values
        if self._own or type(self)._sets > 1:
            self._buf[AUX] = self._layout.behind

    @property
    def cells(self) -> Array:
        """The sums of what is in the window now, a copy of shape (keys, bins + 1, 8)."""
        return np.array(self._layout.cells(self._buf)[0])

    # -- one event ---------------------------------------------------------------------------------------------------

    def update(self, p: Any, y: Any, w: float = 1.0, key: int = 0) -> None:
        """Add one event. A bad one is counted as refused and changes nothing else; with ``strict`` it raises ValueError.

        ``p`` and ``y`` are read like ``float()`` reads them; ``key`` must lie in 0..keys - 1.
        """
        try:
            status = self._one(self._buf, p, y, w, key)
        except (TypeError, ValueError, OverflowError):  # no number: the door for many says what it is, or counts it
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
            f"the prediction must be {score} and in a bin of {self.binning!r:.60}, the outcome {outcome}, "
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
        self._update_many(p, y, w, key, None)

    def _update_many(self, p: Any, y: Any, w: Any, key: Any, t: Array | None) -> None:
        events = self._events(p, y, w, key, t)
        if self.strict:  # all or nothing: every event is looked at before one is added
            events = iter(checked := list(events))
            self._refuse_all(checked)
        self._alone(self._add_all, events)

    def _add_all(self, events: Iterable[EventArrays]) -> None:
        for some in events:
            self._add(*some)

    def add_checked(self, p: Array, y: Array, w: Array, key: Ints, t: Array = NONE) -> None:
        """:meth:`update_many` for arrays of float64 of their own, and keys that are there: they are not looked at again."""
        vector = self._buf[VECTOR] != 0.0
        events = self._converted(p, y, w, key, t if t.size else None, slice(None)) if vector else (p, y, w, key, t)
        self._alone(self._add, *events)

    def _refuse_all(self, events: list[EventArrays]) -> None:
        """Raise if any event of a strict window's batch is bad, before any is added."""
        seen = 0
        for p, y, w, _, _ in events:
            i = first_bad(self._buf, p, y, w)
            if i >= 0:
                weight = w[i] if w.size else 1.0
                where = f" at index {(seen + i) // self.claim.width}"
                raise ValueError(self._complaint(float(p[i]), float(y[i]), float(weight), where))
            seen += p.size

    def _events(self, p: Any, y: Any, w: Any, key: Any, t: Array | None) -> Iterator[EventArrays]:
        """Raw events as kernels read them: as they are where that is possible, else converted CHUNK at a time."""
        check_aligned(p=p, y=y, w=w, key=key)
        keys = self._whole_keys(key, len(p) if np.ndim(p) else 0)
        if y is None and not isinstance(self.claim, PIT):
            raise ValueError("y must hold one outcome per prediction, got None")
        p, y, w = (
            v if v is None or isinstance(v, np.ndarray) else np.asarray(v) for v in (p, p if y is None else y, w)
        )
        if p.ndim == 0:
            raise ValueError(f"predictions must be an array of one per event, got {p!r:.80}; update takes one event")
        n = len(p)
        for name, v in (("y", y), ("w", w), ("t", t)):
            if v is not None and v.shape != (n,):
                raise ValueError(f"{name} must hold one value per prediction, shape ({n},), got {v.shape}")
        if self.claim.scalar and p.ndim == 1 and all(is_for_kernels(v) for v in (p, y, w) if v is not None):
            return iter([(p, y, NONE if w is None else w, keys, NONE if t is None else for_kernels(t))])
        return (self._converted(p, y, w, keys, t, slice(i, i + CHUNK)) for i in range(0, n, CHUNK))

    def _converted(self, p: Any, y: Any, w: Any, key: Ints, t: Array | None, part: slice) -> EventArrays:
        """Some raw events as kernels read them, one event per key of the claim, side by side."""
        width, (scores, outcomes) = self.claim.width, self.claim.events(p[part], y[part])
        n, key, times = len(scores), key[part], NONE if t is None else t[part]
        weights = NONE if w is None else numbers("w", w[part])
        if not scores.shape == outcomes.shape == ((n,) if width == 1 else (n, width)):
            raise ValueError(f"predictions and outcomes must be one per event, got {np.shape(p)} and {np.shape(y)}")
        if width > 1:
            key = np.repeat(key if key.size else np.zeros(n, np.int64), width) * width + np.tile(np.arange(width), n)
            weights, times = np.repeat(weights, width), np.repeat(times, width)
        scores, outcomes, weights, times = map(for_kernels, (scores.reshape(-1), outcomes.reshape(-1), weights, times))
        return scores, outcomes, weights, np.ascontiguousarray(key), times

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
        return whole if self._layout.keys > 1 else NO_KEYS

    def _add(self, p: Array, y: Array, w: Array, key: Ints, t: Array) -> None:
        raise AssertionError("each window adds in its own way")  # pragma: no cover

    # -- reading -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """A frozen copy of the sums as they are now."""
        return self._frozen(self.cells)

    def _frozen(self, cells: Array) -> Snapshot:
        s = Snapshot(cells, self.binning.fine_edges(self.claim.domain), self.binning, self.claim, self.loss)
        if self._may_be_swapped:  # until something besides 0 and 1 was predicted, or it is said
            swapped = s.is_swapped
            self._may_be_swapped = s.is_certain and not swapped
            if swapped:
                warn(SWAPPED)
        return s

    def get(self, name: str) -> Number:
        """A metric of :data:`streamcal.METRICS` by name: a float, or an array over keys if there are several."""
        return self.snapshot().get(name)

    def report(self) -> dict[str, Any]:
        """Every metric with its sampling error and the reliability bins, as one plain dict (see Snapshot.report)."""
        return {"window": repr(self), **report(self.snapshot(), anytime=self._holds_all)}

    def __repr__(self) -> str:
        usual = {"keys": 1, "claim": Mean(), "loss": None, "strict": False}
        size = "".join(f", {v!r}" for v in self._arguments().values())
        extra = "".join(f", {name}={getattr(self, name)!r}" for name, v in usual.items() if getattr(self, name) != v)
        return f"{type(self).__name__}({self.binning!r}{size}{extra})"

    # -- more keys ----------------------------------------------------------------------------------------------------

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
        wide._buf = np.concatenate([wide._buf[: wide._layout.end], self._buf[self._layout.end :]])
        for old, new in zip(self._layout.by_key(self._buf), wide._layout.by_key(wide._buf), strict=True):
            new[:, : self._layout.keys] = old
        wide._buf[STATE] = self._buf[STATE]
        return wide

    def _places(self, key: int) -> slice:
        """The places of a key in the buffer: one for each level of its claim."""
        k = check_whole("key", key, 0, self.keys - 1)
        return slice(k * self.claim.width, (k + 1) * self.claim.width)

    # -- state -------------------------------------------------------------------------------------------------------

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.settings}

    def _state(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        config = {
            "binning": self.binning.declaration,
            **self._arguments(),
            "keys": self.keys,
            "claim": self.claim.declaration,
            "loss": self.loss,
            "strict": self.strict,
        }
        return config, {"buffer": self._buf}

    @classmethod
    def _restore(cls, config: dict[str, Any], arrays: dict[str, Array]) -> Any:
        config = {**config, "binning": Binning.declared(config["binning"]), "claim": Claim.declared(config["claim"])}
        window = cls(**config)
        window._take_over(arrays["buffer"].reshape(-1))
        return window

    def _take_over(self, buffer: Array) -> None:
        """Go on with a restored buffer. A kernel trusts its header and the window's own numbers, so these must be sound."""
        if not (self._may_have(buffer.size) and self._is_sound(buffer)):
            raise ValueError(f"the buffer of {buffer.size} numbers does not fit the config of {self!r:.200}")
        self._buf = buffer

    def _is_sound(self, buffer: Array) -> bool:
        """Whether a buffer of the right size has the header that follows from the config, and sums and counters that can be."""
        header, own = self._buf[: self._layout.start].copy(), self._layout.own(buffer)
        header[STATE] = buffer[STATE]
        same = np.array_equal(buffer[: self._layout.start], header, equal_nan=True)
        counters = all(whole_between(own[:, i], *ends) for i, ends in enumerate(self._own_bounds(buffer)))
        cells = self._layout.cells(buffer)
        counts = cells[self._counted]
        whole = whole_between(counts[:, :, :-1, COUNT], 0, MOST) and whole_between(
            counts[:, :, -1, : LATE + 1], 0, MOST
        )
        return same and counters and whole and bool(np.isfinite(cells).all() and (cells[:, :, :-1, COUNT] >= 0.0).all())

    def _may_have(self, size: int) -> bool:
        """Whether a buffer of this window can have so many numbers."""
        return size == self._buf.size

    def _own_bounds(self, buffer: Array) -> tuple[tuple[float, float], ...]:
        """Between what each of the window's own numbers of a key lies, all of them whole numbers."""
        return ()


def whole_between(values: Array, low: float, high: float) -> bool:
    """Whether all are whole numbers in low..high."""
    return bool(((values >= low) & (values <= high) & (values == np.floor(values))).all())


def events_of(cells: Array) -> Array:
    """How many events came into each key of each set of cells, refused ones too: shape (sets, keys)."""
    return np.asarray(cells[:, :, :-1, COUNT].sum(-1) + cells[:, :, -1, REFUSED])
