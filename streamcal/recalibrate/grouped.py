"""What multivalid forecasters keep: sums for each bucket of forecasts in each of several declared groups of events."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamcal._jit import inlined
from streamcal.arrays import Array, check_aligned, check_whole
from streamcal.recalibrate.online import Compiled
from streamcal.recalibrate.quantile_tracking import COUNT, NEARLY, is_spread, mean_and_deviation, spread
from streamcal.state import reserve

# The buffer: the widths of all events (four numbers, see `spread`), settings, such four numbers for each group; then for each
# bucket and each group (the bins of the raw prediction count as groups) the excess V, then the weights N, then the pulls.
M, GROUPS, N_BINS, SEED, LEVEL, LOW, HIGH = range(4, 11)
HEAD = 11
ETA, FADING, STEEPEST = 0.5, 0.105, 300.0  # of the potential; STEEPEST: the largest exponent
MOST_GROUPS = 52  # a set of groups is a whole number below 2^52
MOST_BUCKETS, MOST_EVENTS = 1000, 2**53  # every bucket is looked at for each event; counts are exact up to here
ENOUGH = 200  # events of a bucket before a report judges it


@inlined
def pull_of(excess: float, weight: float) -> float:
    """How strongly the past of one bucket and group speaks for a lower forecast: the slope of its potential.

    The potential is 2 cosh(ETA V / F(N)) h(N). An event moves ETA V / F by z with |z| <= ETA / F(N) <= 1/2, where e^z <= 1 + z +
    0.595 z^2. For h(N) = exp(FADING / log2(N + 1)), h(0) = 1.28, there is 1 + 0.595 (ETA / F(N))^2 <= h(N) / h(N + 1): so the
    potential grows by no more than ETA times the excess of the event times this pull. Mixtures bring that to 0 in expectation.
    """
    bits = math.log2(weight + 2.0)
    scale = math.sqrt(weight + 1.0) * bits
    x = min(max(ETA * excess / scale, -STEEPEST), STEEPEST)
    return (math.exp(x) - math.exp(-x)) / scale * math.exp(FADING / bits)


@inlined
def pull(buf: Array, i: int, members: int, bin: int) -> float:
    """C of bucket i: the pulls of the groups that the event belongs to, and of the bin of its raw prediction, summed."""
    groups, stride = int(buf[GROUPS]), int(buf[GROUPS] + buf[N_BINS])
    at = HEAD + 4 * groups + (2 * int(buf[M]) + i) * stride
    total = buf[at + groups + bin] if bin >= 0 else 0.0
    for g in range(groups):
        if (members >> g) & 1:
            total += buf[at + g]
    return float(total)


@inlined
def take_in(buf: Array, bucket: int, members: int, bin: int, excess: float, w: float, width: float) -> None:
    """Add one event to the sums of its bucket in each of its groups."""
    groups = int(buf[GROUPS])
    spread(buf, 0, width, w)
    for g in range(groups):
        if (members >> g) & 1:
            spread(buf, HEAD + 4 * g, width, w)
            _add(buf, bucket, g, excess, w)
    if bin >= 0:
        _add(buf, bucket, groups + bin, excess, w)


@inlined
def _add(buf: Array, bucket: int, group: int, excess: float, w: float) -> None:
    groups, stride = int(buf[GROUPS]), int(buf[GROUPS] + buf[N_BINS])
    plane = int(buf[M]) * stride
    at = HEAD + 4 * groups + bucket * stride + group
    buf[at] += w * excess
    buf[at + plane] += w
    buf[at + 2 * plane] = pull_of(buf[at], buf[at + plane])


class Grouped(Compiled):
    """What those forecasters share: the buckets, the groups, and the report of each group.

    ``groups`` says how many there are; each event names those it belongs to. The kernels are those of :class:`Compiled` with one
    more number behind the event: the sum of 2^g over its groups g.
    """

    m: int
    groups: int
    seed: int
    sign: ClassVar[float]  # of the excess V as a gap: mean outcome - claim

    _sample = (0.5, 1.0, 1.0, 1.0)

    def predict_one(self, p: float, groups: Iterable[int] | None = None) -> float:
        """The forecast of an event that belongs to these ``groups``: some of 0..groups - 1; by default to the only one.

        ValueError if p or a group is not allowed, or there is no group.
        """
        return self._served(p, self._members(groups))

    def _served(self, p: float, members: float) -> float:
        q = self._forecast(p, members)
        if q != q:
            raise ValueError(self._complaint(p))
        return q

    def learn_one(
        self, p: float, y: float, w: float = 1.0, groups: Iterable[int] | None = None, *, served: float | None = None
    ) -> None:
        """Learn that the raw prediction ``p`` met the outcome ``y`` in these groups; ``w`` >= 0, and 0 changes nothing.

        ``served``: see :meth:`Online.learn_one`. ValueError, and nothing changed, if any of them is not allowed.
        """
        self._check_served(served)
        q = self._take(p, y, w, self._members(groups))
        if q != q:
            raise ValueError(self._complaint(p, y, w))
        self.compared.record(p, q if served is None else served, y, w)

    def run(
        self, p: npt.ArrayLike, y: npt.ArrayLike, w: npt.ArrayLike | None = None, groups: npt.ArrayLike | None = None
    ) -> Array:
        """See :meth:`Online.run`. ``groups``: booleans or 0 and 1, shape (n, groups); by default all belong to the only one."""
        check_aligned(p=p, y=y, w=w, groups=groups)
        scores, outcomes, weights = self._events(p, y, w)
        return self._alone(self._run_all, scores, outcomes, weights, self._members_of_all(groups, scores.size))

    def _members(self, groups: Iterable[int] | None) -> float:
        """The groups of one event as the sum of 2^g."""
        if groups is None and self.groups == 1:
            return 1.0
        members, most = 0, self.groups
        try:
            for g in groups:  # type: ignore[union-attr]
                members |= 1 << (g if type(g) is int and 0 <= g < most else check_whole("a group", g, 0, most - 1))
        except TypeError:
            members = 0
        if not members:
            raise ValueError(f"groups must name one or more of the groups 0..{most - 1}, got {groups!r}")
        return float(members)

    def _members_of_all(self, groups: npt.ArrayLike | None, n: int) -> Array:
        """The groups of n events, each as the sum of 2^g."""
        if groups is None and self.groups == 1:
            return np.ones(n)
        member = np.asarray(groups, dtype=object if np.ma.is_masked(groups) else None)
        if member.dtype.kind in "iuf" and bool(((member == 0) | (member == 1)).all()):
            member = member.astype(np.bool_)
        if member.dtype != np.bool_ or member.shape != (n, self.groups):
            got = "None" if groups is None else f"{member.dtype} of shape {member.shape}"
            raise ValueError(f"groups must be booleans (or 0 and 1) of shape ({n}, {self.groups}), got {got}")
        if (without := np.flatnonzero(~member.any(-1))).size:
            raise ValueError(f"groups must put every event into one or more groups, got none at index {without[0]}")
        return np.asarray(member @ 2.0 ** np.arange(self.groups))

    def _forecast(self, p: float, members: float | None = None) -> float:
        return self._take(p, 0.0, 0.0, members)

    def _take(self, p: float, y: float, w: float, members: float | None = None) -> float:
        members = self._members(None) if members is None else members
        try:
            return self._learn(self._buf, p, y, w, members)
        except (TypeError, ValueError, OverflowError):
            return math.nan

    def _pass(self, p: Array, y: Array, w: Array, members: Array | None = None) -> Array:
        members, out = self._members_of_all(None, p.size) if members is None else members, np.empty(p.size)
        self._run(self._buf, p, y, w, members, out)
        return out

    def _start(self, m: int, groups: int, seed: int, n_bins: int, scale: tuple[float, float, float]) -> None:
        self.m = check_whole("m", m, 1, MOST_BUCKETS)
        self.groups = check_whole("groups", groups, 1, MOST_GROUPS)
        self.seed = check_whole("seed", seed, 0, MOST_EVENTS)
        settings = [self.m, self.groups, n_bins, self.seed, *scale]
        sums = 4 * self.groups + 3 * self.m * (self.groups + n_bins)
        reserve(sums)
        self._begin(np.concatenate([np.zeros(4), settings, np.zeros(sums)]))

    def details(self) -> dict[str, Any]:
        """``groups``: what came out in each.

        ``scaled_gap`` is the absolute gap times the root of the summed weight n; ``largest_scaled_gap`` that of the worst bucket
        with n >= 200, nan if there is none. ``ends`` is the share of the weight whose bucket was the lowest or the highest there
        is: where much of it lies there, the range (low, high) is too narrow.
        """
        return {**super().details(), "groups": [self._group(g) for g in range(self.groups)]}

    @property
    def weights_(self) -> Array:
        """Summed weight of each group and bucket, shape (groups, m); bins of the raw prediction follow as further groups."""
        return np.array(self._planes(self._buf)[1].T)

    @property
    def gaps_(self) -> Array:
        """Mean outcome - claim of each group and bucket, shape of :attr:`weights_`; nan where nothing was seen."""
        excess, weight, _ = self._planes(self._buf)
        return np.asarray((self.sign * excess / np.where(weight > 0.0, weight, np.nan)).T)

    def _planes(self, buffer: Array) -> Array:
        """V, N and the pulls, shape (3, m, groups)."""
        return np.asarray(buffer[HEAD + 4 * self.groups :].reshape(3, self.m, -1))

    def _group(self, g: int) -> dict[str, Any]:
        four, (excess, weight, _) = self._buf[HEAD + 4 * g : HEAD + 4 * g + 4], self._planes(self._buf)[:, :, g]
        count, n, mean, squares = four.tolist()
        gap = self.sign * float(excess.sum()) / (n or math.nan)
        scaled = np.abs(excess[weight >= ENOUGH]) / np.sqrt(weight[weight >= ENOUGH])
        return {
            "count": count,
            "weight": n,
            **self._outcome(gap, mean_and_deviation(n, mean, squares)),
            "scaled_gap": abs(gap) * math.sqrt(n),
            "largest_scaled_gap": float(scaled.max()) if scaled.size else math.nan,
            "ends": [float(weight[end]) / (n or math.nan) for end in (0, -1)],
        }

    def _outcome(self, gap: float, widths: dict[str, float]) -> dict[str, Any]:
        """Gap and widths of a group, for the report."""
        raise AssertionError("each says what a gap is")  # pragma: no cover

    def _is_sound(self, buffer: Array) -> bool:
        """Our settings, a whole count, sums of that many events, and the pulls that follow from them."""
        if not np.isfinite(buffer).all() or (buffer[4:HEAD] != self._buf[4:HEAD]).any():
            return False
        fours = [buffer[:4], *buffer[HEAD : HEAD + 4 * self.groups].reshape(-1, 4)]
        excess, weight, pull = self._planes(buffer)
        # A pull that does not follow from its sums would be played for ever: events of other buckets do not touch it.
        if not all(map(is_spread, fours)) or buffer[COUNT] > MOST_EVENTS or (weight < 0.0).any():
            return False
        pairs = zip(excess.flat, weight.flat, strict=True)
        wanted = np.array([pull_of(v, n) for v, n in pairs]).reshape(pull.shape)
        return bool((np.abs(excess) <= weight * NEARLY).all() and np.allclose(pull, wanted, 1e-9, 1e-12))
