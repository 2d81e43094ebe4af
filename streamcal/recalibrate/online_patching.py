"""Patching while the events come: a bin that the window shows to be wrong is set to what really happened there.

::

    every so many events, one change at a time, the one that lowers the loss in the window most:
        a bin that is wrong, while the error of what is served > alpha:  serve what would have been right in the window
        a patched bin that is right again without its patch:             serve the raw forecasts (it has recovered)
    and write down what was changed, when, and on what evidence

One loop for means and for quantiles, as in :mod:`streamcal.recalibrate.patching`. A patch of a mean is a number that the bin
serves: the sums of the window tell its gap and squared error. A patch of a quantile is added to the forecasts of the bin: gap and
pinball loss are read from the events. A bin is wrong if its gap is significant: larger than noise explains. Without that the loop
would learn the noise of every bin, again and again; with it a calibrated stream is left alone.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, check_whole
from streamcal.binning import N_BINS, OUTSIDE, Edges, Grid, bin_of
from streamcal.claims import Claim, Mean, Quantile, check_level
from streamcal.confidence import anytime_radius
from streamcal.limits import HEAVIEST, unit
from streamcal.recalibrate.online import allowed, online
from streamcal.recalibrate.patching import FINEST, ROUNDING, check_alpha
from streamcal.recalibrate.quantile_tracking import FARTHEST, RealForecasts, real
from streamcal.recalibrate.windowed import FADING, Windowed, checked_window, scale_of, take_in
from streamcal.state import reserve
from streamcal.tally import AUX, CELLS, WP, WPP, WPY, WW, WY, W, admit
from streamcal.windows import Cumulative, Sliding, Window
from streamcal.windows.fading import FORGOTTEN
from streamcal.windows.sliding import FILLED, RING, STATES
from streamcal.windows.window import whole_between

# Behind the window's numbers, ours: the settings and counts, the patch of each bin (nan: none), the ring of the last notes, and
# at the very end how many numbers are ours. LEVEL is that of the quantile, nan for means.
KIND, ALPHA, DOUBT, EVERY, REMEMBER, LEVEL, TIME, MADE, PATCHES = range(9)
# A note in the ring: what was changed when, on what evidence, and what it did.
EVENT, BIN, VALUE, SAID, EFFECTIVE, MASS, GAP, RADIUS, DECREASE, BEFORE, AFTER, FIELDS = range(12)
MOST_REMEMBERED = 100_000  # notes of 88 bytes: 9 MB
STAYS, RECOVERED, WRONG = range(3)  # what verdict says of a bin


class OnlinePatch(NamedTuple):
    """One change of a level, with its evidence. ``str`` says it in one line.

    At ``time`` (events learned) ``level`` began to serve ``value`` (nan: the raw prediction again). In the window, ``events``
    (their effective number) with the share ``mass`` of its weight, it had ``said`` this on average, which was off by ``gap``;
    chance explains ``radius``. The change took ``decrease`` off the squared error in the window, and K2 from ``k2_before`` to
    ``k2_after``.
    """

    time: float
    level: float
    value: float
    said: float
    events: float
    mass: float
    gap: float
    radius: float
    decrease: float
    k2_before: float
    k2_after: float

    @property
    def was(self) -> float:
        """Mean outcome of the level in the window."""
        return self.said + self.gap

    @property
    def recovered(self) -> bool:
        """Whether a patch was taken back."""
        return math.isnan(self.value)

    def __str__(self) -> str:
        change = "recovered" if self.recovered else f"-> {self.value:.2f}"
        return (
            f"event {self.time:.0f}: level {self.level:g} {change} (said {self.said:.2f}, was {self.was:.2f} "
            f"+- {self.radius:.2f} in {self.events:.0f} events, K2 {self.k2_before:.4f} -> {self.k2_after:.4f})"
        )


class OnlineQuantilePatch(NamedTuple):
    """One change of a bin, with its evidence. ``str`` says it in one line.

    At ``time`` (events learned) the forecasts in (``low``, ``high``] began to be served with ``shift`` added (nan: none again).
    In the window, ``events`` (their effective number) with the share ``mass`` of its weight, what had been served ``covered``
    this share of the outcomes, which was off the level by ``gap``; chance explains ``radius``. The change took ``decrease`` off
    the pinball loss in the window, and Q2 from ``q2_before`` to ``q2_after``.
    """

    time: float
    low: float
    high: float
    shift: float
    covered: float
    events: float
    mass: float
    gap: float
    radius: float
    decrease: float
    q2_before: float
    q2_after: float

    @property
    def recovered(self) -> bool:
        """Whether a shift was taken back."""
        return math.isnan(self.shift)

    def __str__(self) -> str:
        change = "recovered" if self.recovered else f"shifted by {self.shift:+.3g}"
        return (
            f"event {self.time:.0f}: forecasts in ({self.low:g}, {self.high:g}] {change} (covered {self.covered:.2f}, not "
            f"{self.covered - self.gap:g} +- {self.radius:.2f}, in {self.events:.0f} events, "
            f"Q2 {self.q2_before:.4f} -> {self.q2_after:.4f})"
        )


@inlined
def ours(buf: Array) -> int:
    """Where our numbers begin."""
    return int(buf.shape[0]) - int(buf[-1])


@inlined
def bins_of(buf: Array) -> tuple[Array, Array]:
    """(sums of the bins, eight of each; their patches), views."""
    n, sums, patches = int(buf[N_BINS]), int(buf[CELLS]), ours(buf) + PATCHES
    return buf[sums : sums + 8 * n], buf[patches : patches + n]  # flat: another shape costs a call of numba's reshape


@inlined
def least_weight(buf: Array) -> float:
    """A bin with no more weight than this is not in the window: in a fading one old events leave traces."""
    return FORGOTTEN * scale_of(FADING, buf) if buf[ours(buf) + KIND] == FADING else 0.0


@inlined
def patched(x: float, patch: float, q: float) -> float:
    """What is served for the forecast x: a patch takes the place of a mean, and is added to a quantile."""
    if patch != patch:
        return x
    return patch if q != q else x + patch


@inlined
def gap_by_sums(bins: Array, b: int, patch: float) -> float:
    """Weight * gap of a bin of means, had it served this all through the window."""
    return float(bins[8 * b + WY] - (patch * bins[8 * b + W] if patch == patch else bins[8 * b + WP]))


@inlined
def squares_by_sums(bins: Array, b: int, patch: float) -> float:
    """Squared errors of a bin of means, had it served this all through the window; less sum w y^2, which nothing changes."""
    if patch == patch:
        return float(patch * (patch * bins[8 * b + W] - 2.0 * bins[8 * b + WY]))
    return float(bins[8 * b + WPP] - 2.0 * bins[8 * b + WPY])


@inlined
def ring_of(buf: Array) -> tuple[int, int]:
    """(where the events in a sliding window begin, where they end): forecast, outcome and weight of each, side by side."""
    state = 3 * int(buf[AUX]) - 2 * int(buf[CELLS])
    first = state + STATES
    return first, first + 3 * int(buf[state + FILLED]) if buf[state + RING] == 0.0 else first


@kernel
def find_gaps(buf: Array, served: Array, raw: Array) -> tuple[float, float]:
    """(K2 or Q2 of what is served, 0 if nothing weighs; weight of all bins). Writes weight * gap of served and raw forecasts."""
    (bins, patches), q, any_shift = bins_of(buf), buf[ours(buf) + LEVEL], False
    for b in range(patches.shape[0]):
        if q != q:
            served[b], raw[b] = gap_by_sums(bins, b, patches[b]), gap_by_sums(bins, b, np.nan)
        else:
            is_shifted = patches[b] == patches[b]
            served[b] = raw[b] = (0.0 if is_shifted else bins[8 * b + WY]) - q * bins[8 * b + W]
            any_shift |= is_shifted
    if any_shift:  # events are read, for both: the same outcomes have the same weight to the last bit
        first, end = ring_of(buf)
        for i in range(first, end, 3):
            b, v, hit, _clipped = admit(buf, buf[i], buf[i + 1], buf[i + 2])
            if b != OUTSIDE and patches[b] == patches[b]:
                served[b] += buf[i + 2] if buf[i + 1] <= v + patches[b] else 0.0
                raw[b] += buf[i + 2] * hit
    least, error, total = least_weight(buf), 0.0, 0.0
    for b in range(patches.shape[0]):
        if bins[8 * b + W] > least:
            error += served[b] * served[b] / bins[8 * b + W]
            total += bins[8 * b + W]
    return (error / total if total > 0.0 else 0.0), total


@inlined
def is_significant(gap: float, bins: Array, b: int, doubt: float) -> bool:
    """Whether a summed gap (weight * gap) exceeds the radius at the bin's effective number of events W^2 / WW."""
    return bool(
        abs(gap) > bins[8 * b + W] * anytime_radius(bins[8 * b + W] * bins[8 * b + W] / bins[8 * b + WW], doubt)
    )


@inlined
def verdict(gap: float, raw: float, bins: Array, b: int, is_patched: bool, too_wrong: bool, doubt: float) -> int:
    """What the summed gaps of what a bin serves, and of the raw forecasts in it, say about its patch: see the top of the file.

    A bin that has just been changed STAYS: it is patched only if raw forecasts are significantly off, else it recovers.
    """
    squares, no_better = bins[8 * b + WW], is_patched and abs(raw) <= abs(gap)
    # Squares of tiny weights are 0 in a float. Most bins are spared the logarithm: their gap is below the least possible radius.
    if squares <= 0.0 or not (no_better or 4.0 * gap * gap > doubt * squares):
        return STAYS
    if no_better and not is_significant(raw, bins, b, doubt):
        return RECOVERED
    return WRONG if too_wrong and is_significant(gap, bins, b, doubt) else STAYS


@kernel
def next_suspect(buf: Array, first: int) -> int:
    """The first bin of means from ``first`` on that :func:`verdict` spends a logarithm on; their number if there is none."""
    (bins, patches), least, doubt = bins_of(buf), least_weight(buf), buf[ours(buf) + DOUBT]
    for b in range(first, patches.shape[0]):
        if bins[8 * b + W] > least:
            gap = gap_by_sums(bins, b, patches[b])
            no_better = patches[b] == patches[b] and abs(gap_by_sums(bins, b, np.nan)) <= abs(gap)
            if no_better or 4.0 * gap * gap > doubt * bins[8 * b + WW]:
                return b
    return int(patches.shape[0])


@kernel
def may_any_change(buf: Array, first: int) -> bool:
    """Whether a bin of means from the suspect ``first`` on is to be patched or has recovered, by the sums alone.

    Without this look a stream that is wrong by less than can be told takes 1.6 times as long at m = 20, 4 times at m = 100.
    """
    (bins, patches), own, b, is_any_wrong = bins_of(buf), ours(buf), first, False
    while b < patches.shape[0]:
        gap, raw = gap_by_sums(bins, b, patches[b]), gap_by_sums(bins, b, np.nan)
        found = verdict(gap, raw, bins, b, patches[b] == patches[b], not is_any_wrong, buf[own + DOUBT])
        if found == RECOVERED:
            return True
        is_any_wrong |= found == WRONG
        b = next_suspect(buf, b + 1)
    least, error, total = least_weight(buf), 0.0, 0.0
    for b in range(patches.shape[0] if is_any_wrong else 0):  # a bin may be wrong while K2 is small: then it stays
        if bins[8 * b + W] > least:
            error += gap_by_sums(bins, b, patches[b]) ** 2 / bins[8 * b + W]
            total += bins[8 * b + W]
    return bool(error > buf[own + ALPHA] * total * (1.0 - ROUNDING))


@kernel
def best_shift(buf: Array, wanted: int, weight: float, q: float) -> float:
    """The least y - v of a bin in the window that, added to all its forecasts, covers the share ``q`` of its outcomes."""
    first, end = ring_of(buf)
    excess, place, n = np.empty((end - first) // 3), np.empty((end - first) // 3, np.int64), 0
    for i in range(first, end, 3):
        if buf[i + 2] > 0.0 and admit(buf, buf[i], buf[i + 1], buf[i + 2])[0] == wanted:
            excess[n], place[n] = buf[i + 1] - buf[i], i
            n += 1
    if n == 0:
        return np.nan  # only in a document that was tampered with
    reached, k, order = 0.0, 0, np.argsort(excess[:n], kind="mergesort")
    while k < n - 1 and (reached + buf[place[order[k]] + 2]) / weight < q:
        reached += buf[place[order[k]] + 2]
        k += 1
    return covering(buf[place[order[k]]], buf[place[order[k]] + 1])


@inlined
def covering(v: float, y: float) -> float:
    """y - v, an ulp or two more where v + (y - v) is rounded below y: the outcome that decides must be covered."""
    shift = min(max(y - v, -FARTHEST), FARTHEST)
    for _ in range(4):
        shift = np.nextafter(shift, np.inf) if v + shift < y else shift
    return min(shift, FARTHEST)


@kernel
def saved_by_shift(buf: Array, wanted: int, old: float, new: float, q: float) -> float:
    """What another shift takes off the summed pinball loss of a bin in the window."""
    (first, end), total = ring_of(buf), 0.0
    for i in range(first, end, 3):
        v, y, w = buf[i], buf[i + 1], buf[i + 2]
        if w > 0.0 and admit(buf, v, y, w)[0] == wanted:
            d, e = y - patched(v, old, q), y - patched(v, new, q)
            total += w * (max(q * d, (q - 1.0) * d) - max(q * e, (q - 1.0) * e))
    return total


@kernel
def best_change(buf: Array, served: Array, raw: Array, too_wrong: bool) -> tuple[int, float, float]:
    """(bin, its new patch, what that takes off the summed loss) of the best change; the last is 0 if there is none."""
    (bins, patches), own, least = bins_of(buf), ours(buf), least_weight(buf)
    q, doubt, best, best_patch, most = buf[own + LEVEL], buf[own + DOUBT], 0, np.nan, 0.0
    for b in range(patches.shape[0]):
        weight, old, new = bins[8 * b + W], patches[b], np.nan
        found = verdict(served[b], raw[b], bins, b, old == old, too_wrong, doubt) if weight > least else STAYS
        if found == STAYS:
            continue
        if q != q:
            new = min(max(bins[8 * b + WY] / weight, 0.0), 1.0) if found == WRONG else np.nan
            decrease = squares_by_sums(bins, b, old) - squares_by_sums(bins, b, new)
        else:
            new = best_shift(buf, b, weight, q) if found == WRONG else np.nan
            decrease = saved_by_shift(buf, b, old, new, q)
        if decrease > most:
            best, best_patch, most = b, new, decrease
    return best, best_patch, most


@kernel
def patch_bins(buf: Array) -> None:
    """The loop of this file. It changes a bin once at most, so it ends."""
    (bins, patches), own, q, n = bins_of(buf), ours(buf), buf[ours(buf) + LEVEL], int(buf[N_BINS])
    if q != q:
        first = next_suspect(buf, 0)  # mostly there is none, and then all is done
        if first == n or not may_any_change(buf, first):
            return
    gaps = np.empty((2, n))  # one allocation: it costs more than the sums of ten bins
    served, raw = gaps[0], gaps[1]
    error, total = find_gaps(buf, served, raw)
    for _ in range(n):
        b, patch, decrease = best_change(buf, served, raw, error > buf[own + ALPHA])
        if decrease <= 0.0:
            return
        weight = bins[8 * b + W]
        events, gap = weight * weight / bins[8 * b + WW], served[b] / weight
        oldest = own + PATCHES + n + FIELDS * (int(buf[own + MADE]) % int(buf[own + REMEMBER]))
        note = buf[oldest : oldest + FIELDS]
        note[EVENT], note[BIN], note[VALUE] = buf[own + TIME], b, patch
        note[SAID] = bins[8 * b + WY] / weight - gap if q != q else q + gap
        note[EFFECTIVE], note[MASS], note[GAP] = events, weight / total, gap
        note[RADIUS] = anytime_radius(events, buf[own + DOUBT])
        note[DECREASE], note[BEFORE] = decrease / total, error
        buf[own + MADE], patches[b] = buf[own + MADE] + 1.0, patch
        error, total = find_gaps(buf, served, raw)
        note[AFTER] = error


@inlined
def learn(buf: Array, own: int, kind: float, every: int, x: float, y: float, w: float) -> None:
    """Take in an event that is allowed and has weight; then patch, every so many events."""
    take_in(kind, buf, x, y, w)
    buf[own + TIME] += 1.0
    if int(buf[own + TIME]) % every == 0:
        patch_bins(buf)


@inlined
def served(buf: Array, x: float, q: float) -> float:
    """What is served for x; nan if x is not allowed."""
    x = unit(x) if q != q else (x if real(x) else np.nan)
    b = bin_of(buf, x) if x == x else OUTSIDE
    return float(patched(x, buf[ours(buf) + PATCHES + b], q) if b >= 0 else x)


@brief
def patching_learn(buf: Array, x: float, y: float, w: float) -> float:
    """Predict, and learn if w > 0; nan if the event is not allowed."""
    own, q = ours(buf), buf[ours(buf) + LEVEL]
    out = served(buf, x, q) if (allowed(y, w) if q != q else real(y) and 0.0 <= w <= HEAVIEST) else np.nan
    if out == out and w > 0.0:
        learn(buf, own, buf[own + KIND], int(buf[own + EVERY]), unit(x) if q != q else x, y, w)
    return out


@kernel
def _patching_run(buf: Array, x: Array, y: Array, w: Array, out: Array) -> None:
    own, q = ours(buf), buf[ours(buf) + LEVEL]
    kind, every = buf[own + KIND], int(buf[own + EVERY])  # read once: a tenth of the time
    for i in range(x.shape[0]):
        out[i] = served(buf, x[i], q)
        if w[i] > 0.0:
            learn(buf, own, kind, every, x[i], y[i], w[i])


class WithPatches(Windowed):
    """The settings, the patches of the bins, and the ring of the last ``remember`` changes."""

    alpha: float
    patches: Any
    history: Any
    _learn, _run = patching_learn, _patching_run
    span: ClassVar[tuple[float, float]]  # what a patch can be

    def _start(self, window: Window, claim: Claim, significance: float, every: int, remember: int) -> None:
        """Check what both are given, and begin without a patch: the last line of a constructor."""
        self.significance = check_level(significance, "significance")
        self.every = check_whole("every", every, 1)
        self.remember = check_whole("remember", remember, 1, MOST_REMEMBERED)
        self.window = checked_window(window, claim)
        bins = self.window.binning.fine_bins
        reserve(bins + FIELDS * self.remember)
        own = np.zeros(PATCHES + bins + FIELDS * self.remember + 1)
        own[ALPHA], own[DOUBT] = self.alpha, 2.0 * math.log(bins / self.significance)
        own[EVERY], own[REMEMBER], own[-1] = self.every, self.remember, own.size
        own[LEVEL] = claim.level if isinstance(claim, Quantile) else math.nan
        own[PATCHES : PATCHES + bins] = math.nan
        self._join(own[KIND + 1 :])

    @property
    def patches_made(self) -> int:
        """How many changes there have been since the start; :meth:`history` holds the last of them."""
        return int(self._own[MADE])

    def details(self) -> dict[str, Any]:
        """The levels that are patched now, how many changes there have been, and the last twenty in words."""
        said = {"patches": self.patches, "patches_made": self.patches_made}
        return {**super().details(), **said, "history": [str(h) for h in self.history()[-20:]]}

    @property
    def _error(self) -> float:
        return float(find_gaps(self._buf, *np.empty((2, self.window.binning.fine_bins)))[0])

    def _patch_values(self) -> list[float]:
        return list(self._own[PATCHES : PATCHES + self.window.binning.fine_bins].tolist())

    def _notes(self, own: Array) -> Array:
        """What the ring holds, oldest first, shape (notes, FIELDS)."""
        ring, made = own[PATCHES + self.window.binning.fine_bins : -1].reshape(self.remember, FIELDS), int(own[MADE])
        return np.roll(ring, -(made % self.remember), axis=0) if made > self.remember else ring[:made]

    def _is_sound(self, own: Array) -> bool:
        fixed, bins = [KIND, ALPHA, DOUBT, EVERY, REMEMBER, LEVEL, own.size - 1], self.window.binning.fine_bins
        same = np.array_equal(own[fixed], self._own[fixed], equal_nan=True)
        if not same or not whole_between(own[[TIME, MADE]], 0, 2**53):
            return False
        notes, (low, high) = self._notes(own), self.span
        values = np.concatenate([own[PATCHES : PATCHES + bins], notes[:, VALUE]])
        return (
            bool((np.isnan(values) | ((values >= low) & (values <= high))).all())
            and whole_between(notes[:, EVENT], 1, own[TIME])
            and whole_between(notes[:, BIN], 0, bins - 1)
            and bool(np.isfinite(np.delete(notes, VALUE, axis=1)).all())
        )


@online("patching")
class OnlinePatching(WithPatches):
    r"""Levels that are wrong serve their mean outcome until they are right again, and every change is written down.

    A prediction p belongs to the nearest level of 0, 1/m, ..., 1. A level serves p itself, or its patch. Over the events in the
    window, with W the weight of a level and n = W^2 / (sum of w^2) its effective number of events,

    .. math:: K_2 = \sum_{\text{levels}} \frac{W}{\sum W} g^2, \quad g = \bar y - \overline{\text{served}}, \qquad
              |g| > \frac1n \sqrt{\left(\frac n4 + \rho\right) \ln \frac{n/4 + \rho}{\rho\, a^2}}
              \text{: significant}, \quad a = \frac{\text{significance}}{m + 1}

    (rho: :func:`~streamcal.confidence.anytime_radius`). After each event, or ``every`` so many, as long as one of
    these lowers the squared error in the window, the one that lowers it most is done:
    *patch*: while K2 > alpha, a level whose gap is significant serves its mean outcome from now on;
    *recover*: at any K2, a patched level whose raw gap is not above its gap and not significant serves p again.

    ``m`` 1..1,000,000. ``alpha`` in [0, 1], default 1 / (4 m^2): half a step squared, as far as rounding to the levels moves a
    prediction. ``window``: a Cumulative, Sliding or Fading with ``Grid(m)``; default ``Cumulative(Grid(m))``, which forgets
    nothing; to follow drift take ``Sliding(Grid(m), 10_000)``. ``remember`` 1..100,000: how many changes history holds. ``w`` is
    a weight in all means; in the evidence a weight of 2 is one event, not two.

    Guaranteed: at each change the squared error in the window falls, by ``decrease``, and K2 does not rise; a level is changed
    at most once an event. With a Cumulative window and equal weights, where the mean of y given all the past is p: no level is
    ever patched, however long the stream, with probability 1 - significance. NOT guaranteed: K2 <= alpha (a gap that is not
    significant stays: K2 can stay at the mean of the radius squared); the same in a window that forgets, where each look can err
    (measured on uniform p, m = 20, alpha = 0: a false patch in 300,000 events at size 5,000, in a million at 10,000); that a
    patched level still ranks the predictions in it. A level that has left the window keeps its patch.

    Cost O(m) an event: at m = 100 some 0.2 to 0.3 us. The state is m + 11 ``remember`` numbers and the window. Source: Roth,
    Uncertain: Modern Topics in Uncertainty Estimation; Howard, Ramdas, McAuliffe, Sekhon 2021 (evidence); recovery is ours.

    >>> map = OnlinePatching(m=10)
    >>> _ = map.run([0.7] * 200, [1, 0] * 100)
    >>> for patch in map.history():
    ...     print(patch)
    event 96: level 0.7 -> 0.50 (said 0.70, was 0.50 +- 0.20 in 96 events, K2 0.0400 -> 0.0000)
    >>> map.predict_one(0.68), map.predict_one(0.6), map.patches
    (0.5, 0.6, {0.7: 0.5})
    """

    settings = ("m", "alpha", "window", "significance", "every", "remember")
    span = (0.0, 1.0)

    def __init__(
        self,
        m: int = 20,
        alpha: float | None = None,
        window: Window | None = None,
        significance: float = 0.05,
        every: int = 1,
        remember: int = 1000,
        level: float | None = None,
    ) -> None:
        if level is not None:
            raise ValueError(f"level must be None, got {level!r}: for quantile forecasts use OnlineQuantilePatching")
        self.m = check_whole("m", m, 1, FINEST)
        self.alpha = 1.0 / (4.0 * self.m**2) if alpha is None else check_alpha(alpha)
        window = Cumulative(Grid(self.m)) if window is None else window
        if getattr(window, "binning", None) != Grid(self.m):
            raise ValueError(f"window must be a window with the bins Grid({self.m}), got {window!r:.100}")
        self._start(window, Mean(), significance, every, remember)

    @property
    def k2(self) -> float:
        """K2 in the window of what is served now; 0 before any event."""
        return self._error

    @property
    def patches(self) -> dict[float, float]:
        """The levels that are patched now, and what they serve."""
        pairs = zip(Grid(self.m).levels.tolist(), self._patch_values(), strict=True)
        return {level: patch for level, patch in pairs if patch == patch}

    def history(self) -> list[OnlinePatch]:
        """The last ``remember`` changes, oldest first."""
        return [OnlinePatch(time, level / self.m, *rest) for time, level, *rest in self._notes(self._own).tolist()]


@online("quantile-patching")
class OnlineQuantilePatching(RealForecasts, WithPatches):
    r"""Bins of quantile forecasts whose coverage is wrong are shifted until they are right again; every change is written down.

    The bins are those of the window's binning: ``Levels`` (a forecast belongs to the nearest) or ``Edges`` from -inf to inf. A
    bin serves its forecasts v as they are, or v + s. With q = ``level``, over the events in the window, W the weight of a bin,

    .. math:: Q_2 = \sum_{\text{bins}} \frac{W}{\sum W} g^2, \quad g = P(y \le \text{served}) - q, \qquad
              s = \min \{ y_i - v_i : P(y \le v + y_i - v_i) \ge q \}

    Every ``every`` events, as long as one of these lowers the pinball loss in the window, the one that lowers it most is done:
    *patch*: while Q2 > alpha, a bin whose gap is significant (as in :class:`OnlinePatching`, at a = significance / bins) is
    shifted by s from now on; *recover*: at any Q2, a shifted bin whose raw gap is not above its gap and not significant serves v.
    In a bin of one level, v + s is the q-quantile of its outcomes: the textbook patch. In a wide bin the forecasts keep their
    differences.

    ``alpha`` in [0, 1], default 1e-4: one percentage point squared. ``window``: a ``Sliding`` with the claim ``Quantile(level)``,
    since a quantile needs the events themselves; default 5,000 events in one bin. v and y in [-1e100, 1e100]. ``remember`` and
    ``w`` as there.

    Guaranteed: at each change the pinball loss in the window falls, by ``decrease``; a bin is changed at most once a look. NOT
    guaranteed: Q2 <= alpha (a gap that is not significant stays, and where outcomes tie, one as large as the atom); that no
    right bin is ever patched: each look has error a a bin, and there are many looks.

    Cost O(1) an event; at a look O(bins), O(size) where a bin is shifted, O(size log size) where one changes. Source: Roth, as
    there; the shift and the recovery are ours.

    >>> map = OnlineQuantilePatching(0.5)
    >>> _ = map.run([0.0] * 200, [1, 2, 3, 4] * 50)
    >>> for patch in map.history():
    ...     print(patch)
    event 100: forecasts in (-inf, inf] shifted by +2 (covered 0.00, not 0.5 +- 0.15, in 100 events, Q2 0.2500 -> 0.0000)
    >>> map.predict_one(10.0), map.patches
    (12.0, {(-inf, inf): 2.0})
    """

    span = (-FARTHEST, FARTHEST)

    def __init__(
        self,
        level: float = 0.9,
        alpha: float = 1e-4,
        window: Sliding | None = None,
        significance: float = 0.05,
        every: int = 100,
        remember: int = 1000,
    ) -> None:
        self.level, self.alpha = check_level(level), check_alpha(alpha)
        claim = Quantile(self.level)
        window = Sliding(Edges([-math.inf, math.inf]), 5000, claim=claim) if window is None else window
        if not isinstance(window, Sliding):
            raise ValueError(f"window must be a Sliding: a quantile needs the events themselves, got {window!r:.100}")
        edges = window.binning.fine_edges("real")
        if window.binning.domain != "real" or not edges[0] == -math.inf or not edges[-1] == math.inf:
            raise ValueError(f"window must have Levels, or Edges from -inf to inf, got {window.binning!r:.100}")
        self._start(window, claim, significance, every, remember)

    @property
    def q2(self) -> float:
        """Q2 in the window of what is served now; 0 before any event."""
        return self._error

    @property
    def patches(self) -> dict[tuple[float, float], float]:
        """The bins (low, high] that are shifted now, and by how much."""
        edges = self.window.binning.edges.tolist()
        spans = zip(edges[:-1], edges[1:], self._patch_values(), strict=True)
        return {(low, high): shift for low, high, shift in spans if shift == shift}

    def history(self) -> list[OnlineQuantilePatch]:
        """The last ``remember`` changes, oldest first."""
        edges, notes = self.window.binning.edges.tolist(), self._notes(self._own).tolist()
        return [OnlineQuantilePatch(t, edges[int(r)], edges[int(r) + 1], *rest) for t, r, *rest in notes]
