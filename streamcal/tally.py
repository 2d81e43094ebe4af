r"""Bin -> sums: the layout of a window's buffer and the kernels that add an event to it.

A prediction is a **claim** about an outcome. A **binning** turns its score into a bin. A **tally** adds the event to
plain sums in that bin. A **window** decides which events are in the sums; a **metric** reads the sums; a
**recalibrator** reads them back as a map; a **detector** bets against the claims; a **monitor** ties them to delayed
labels, segments and alerts. Windows are linear and metrics are read-only: so everything merges, expires, fades,
checkpoints and scales out.

One window is one flat float64 buffer (see :class:`Layout`). Cells have shape (keys, bins + 1, 8); the last bin of a key is
its ledger.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from streamcal._jit import add_four, inlined, kernel
from streamcal.arrays import Array, Ints
from streamcal.binning import (
    DENOMINATOR,
    DYADIC,
    EDGES,
    N_BINS,
    OFFSET,
    OUTSIDE,
    RULE,
    SCALE,
    SHIFT,
    STEP,
    UNIFORM,
    bin_of,
    dyadic_bin,
    uniform_bin,
)
from streamcal.limits import HEAVIEST, TOLERANCE, Flags

Cells: TypeAlias = npt.NDArray[np.int32]

COUNT, W, WW, WP, WY, WPP, WPY, WYY = range(8)
# in the ledger: counts of bad events, the summed loss, and what predictions of exactly 0 and 1 came to: weight and count of the
# events whose loss is infinite, and the weights of zeros and of ones that came true, from which no fit can learn
REFUSED, CLIPPED, LATE, LOSS, INFINITE, IMPOSSIBLE, ZEROS, ONES = range(8)

# The header: behind the eight numbers of the plan the settings. LEVELS, CELLS and AUX say where the levels, the cells, and what
# lies behind the first set of cells begin; PARAMETER, SECOND, THIRD and STATE belong to the kind of window.
KEYS, CLAIM, BINARY, LOSS_KIND, STRICT, LEVELS, CELLS, AUX, PARAMETER, SECOND, THIRD, STATE, VECTOR = range(8, 21)
HEAD = 24  # three cache lines

MEAN, QUANTILE, GIVEN = range(3)  # what a raw event means, see claims.py
NO_LOSS, LOG_LOSS, PINBALL = range(3)

LARGEST_LOSS = 1e280  # a larger one counts as infinite: sums must stay finite
BLOCK = 512  # events at a time: a constant trip count, so that LLVM vectorises the loop over bins
COPIES = 4  # of the sums, so that equal bins one after the other do not wait for each other
FOUR, EIGHT = np.uint64(4), np.uint64(8)  # unsigned places: no test for a negative index in the inner loop
BAD_KEY, NO_RING, NOT_SCALAR = -1, -2, -3  # what a kernel says when it did not take an event


class Layout:
    """Where the numbers of a window lie in its buffer, and views of them.

    The header (HEAD numbers), the edges if the rule looks them up, the level that each key claims (nan: the score is the
    claim), then, from a cache line on, ``sets`` sets of cells, and behind them ``own`` numbers of the window for each key.
    """

    def __init__(self, plan: Array, levels: Array, sets: int = 1, own: int = 0) -> None:
        edges = plan[int(plan[EDGES]) :] if plan[EDGES] else plan[:0]
        at = HEAD + edges.size
        self.keys, self.bins = levels.size, int(plan[N_BINS])
        self.block = 8 * (self.bins + 1)  # numbers of one key in one set of cells
        self.start = at + levels.size + -(at + levels.size) % 8
        self.behind = self.start + self.keys * self.block
        self.own_start = self.start + sets * self.keys * self.block
        self.end = self.own_start + self.keys * own
        self.header = np.zeros(self.start)
        self.header[:EDGES] = plan[:EDGES]
        self.header[EDGES] = HEAD if edges.size else 0
        self.header[[KEYS, LEVELS, CELLS]] = self.keys, at, self.start
        self.header[HEAD:at], self.header[at : at + self.keys] = edges, levels

    def new(self) -> Array:
        """A buffer of a window that has seen nothing."""
        return np.concatenate([self.header, np.zeros(self.end - self.start)])

    def cells(self, buf: Array) -> Array:
        """All sets of cells: a view of shape (sets, keys, bins + 1, 8)."""
        return buf[self.start : self.own_start].reshape(-1, self.keys, self.bins + 1, 8)

    def own(self, buf: Array) -> Array:
        """The window's own numbers: a view of shape (keys, own)."""
        return buf[self.own_start : self.end].reshape(self.keys, -1)

    def by_key(self, buf: Array) -> tuple[Array, Array]:
        """Views of all numbers of each key, with the keys as second axis."""
        return self.cells(buf), self.own(buf)[None]


@inlined
def block_of(buf: Array) -> int:
    """How many numbers the cells of one key are, its ledger included."""
    return 8 * (int(buf[N_BINS]) + 1)


@inlined
def cells_of(buf: Array, key: int) -> int:
    """Where the cells of a key begin."""
    return int(buf[CELLS]) + key * block_of(buf)


@inlined
def key_of(buf: Array, key: float) -> int:
    """A key as an index; NOT_SCALAR or BAD_KEY, both negative, where a kernel cannot take the event."""
    if buf[VECTOR] != 0.0:
        return NOT_SCALAR
    return int(key) if 0.0 <= key < buf[KEYS] and key == math.floor(key) else BAD_KEY


@inlined
def weight_at(w: Array, i: int) -> float:
    """The weight of event i; no weights: 1."""
    return float(w[i]) if w.shape[0] else 1.0


@inlined
def key_at(key: Ints, i: int) -> int:
    """The key of event i; no keys: 0."""
    return key[i] if key.shape[0] else 0


@inlined
def admit(buf: Array, p: float, y: float, w: float) -> tuple[int, float, float, bool]:
    """(bin, score, outcome, clipped) of a raw event; the bin is OUTSIDE if the event must be refused."""
    clipped = False
    claim = int(buf[CLAIM])
    if not 0.0 <= w <= HEAVIEST:
        return OUTSIDE, p, y, clipped
    if claim == MEAN:
        if not 0.0 <= p <= 1.0:
            if not -TOLERANCE <= p <= 1.0 + TOLERANCE:
                return OUTSIDE, p, y, clipped
            p = 0.0 if p < 0.0 else 1.0
            clipped = True
    elif not -math.inf < p < math.inf:
        return OUTSIDE, p, y, clipped
    if claim == QUANTILE:
        if not -math.inf < y < math.inf:
            return OUTSIDE, p, y, clipped
        outcome = 1.0 if y <= p else 0.0
    else:
        if not 0.0 <= y <= 1.0 or (buf[BINARY] != 0.0 and y != 0.0 and y != 1.0):
            return OUTSIDE, p, y, clipped
        outcome = y
    return bin_of(buf, p), p, outcome, clipped


@inlined
def is_unwanted(buf: Array, p: float, y: float, w: float) -> bool:
    """Whether a strict window must not even count this event."""
    return buf[STRICT] != 0.0 and admit(buf, p, y, w)[0] == OUTSIDE


@inlined
def loss_of(buf: Array, p: float, y: float, claim: float) -> float:
    """Log loss of a probability, or pinball loss of a quantile forecast; infinite where it truly is."""
    if buf[LOSS_KIND] == LOG_LOSS:
        loss = 0.0
        if y > 0.0:
            loss -= y * math.log(p) if p > 0.0 else -math.inf
        if y < 1.0:
            loss -= (1.0 - y) * math.log1p(-p) if p < 1.0 else -math.inf
        return loss
    return (y - p) * claim if y >= p else (p - y) * (1.0 - claim)


@inlined
def claim_at(buf: Array, key: int, score: float) -> float:
    """What an event under this key claims: the level of the key, or the score itself."""
    level = buf[int(buf[LEVELS]) + key]
    return float(score if math.isnan(level) else level)


@inlined
def loss_at(buf: Array, p: float, y: float, claim: float, w: float) -> tuple[int, float]:
    """(column of the ledger, what the loss of an event adds to it); the column is OUTSIDE where no loss is kept."""
    if buf[LOSS_KIND] == NO_LOSS or not w > 0.0:
        return OUTSIDE, 0.0
    loss = w * loss_of(buf, p, y, claim)
    if loss < LARGEST_LOSS:
        return LOSS, loss
    return (OUTSIDE if buf[LOSS_KIND] == LOG_LOSS else INFINITE), w  # an infinite log loss is found by certain_at


@inlined
def certain_at(buf: Array, p: float, y: float, w: float) -> int:
    """IMPOSSIBLE, ZEROS or ONES for a prediction of exactly 0 or 1 by what came of it, OUTSIDE for any other."""
    if (p > 0.0 and p < 1.0) or buf[CLAIM] != MEAN or not w > 0.0:
        return OUTSIDE
    if y != p:
        return IMPOSSIBLE
    return ZEROS if p == 0.0 else ONES


@inlined
def add_certain(buf: Array, ledger: int, column: int, w: float, n: float) -> None:
    """Add n events of weight w in all to a ledger, in the column that :func:`certain_at` says."""
    if column == IMPOSSIBLE:
        buf[ledger + IMPOSSIBLE] += n
        buf[ledger + INFINITE] += w
    elif column != OUTSIDE:
        buf[ledger + column] += w


@inlined
def add(buf: Array, base: int, key: int, p: float, y: float, w: float, scale: float) -> int:
    """Add one event to the cells of ``key`` that start at ``base``; ``scale`` is 1 but in a fading window.

    Returns 0, or 1 if the event was refused (and then, unless strict, counted in the ledger).
    """
    r, score, outcome, clipped = admit(buf, p, y, w)
    ledger = base + 8 * int(buf[N_BINS])
    if r == OUTSIDE:
        if buf[STRICT] == 0.0:
            buf[ledger + REFUSED] += scale
        return 1
    claim = claim_at(buf, key, score)
    w *= scale
    i, wp, wy = np.uint64(base + 8 * r), w * claim, w * outcome
    add_four(buf, i, scale, w, w * w, wp)
    add_four(buf, i + FOUR, wy, wp * claim, wp * outcome, wy * outcome)
    if clipped:
        buf[ledger + CLIPPED] += scale
    column, loss = loss_at(buf, score, y, claim, w)
    if column != OUTSIDE:
        buf[ledger + column] += loss
    add_certain(buf, ledger, certain_at(buf, score, y, w), w, scale)
    return 0


@kernel
def first_bad(buf: Array, p: Array, y: Array, w: Array) -> int:
    """Index of the first event that would be refused, -1 if none."""
    for i in range(p.shape[0]):
        if admit(buf, p[i], y[i], weight_at(w, i))[0] == OUTSIDE:
            return i
    return -1


def add_many(buf: Array, base: int, p: Array, y: Array, w: Array, key: Ints) -> None:
    """Add many events: the same as :func:`add` one by one, up to the order of summation. Empty w: ones; empty key: 0.

    Plain probabilities on a computed grid go through a fast kernel BLOCK events at a time; it passes over a block that
    holds anything unusual. Those blocks, and what is left at the end, are added one by one. (A Python function, so that
    a process compiles only the kernels it needs.)
    """
    n = p.shape[0]
    if n < BLOCK or buf[CLAIM] != MEAN or buf[RULE] not in (UNIFORM, DYADIC):
        _add_one_by_one(buf, base, p, y, w, key, 0, n)
        return
    odd = np.empty(n // BLOCK, np.bool_)
    if key.shape[0] == 0 and n >= 8 * buf[N_BINS]:
        _add_blocks(buf, base, p, y, w, odd)
    else:
        _add_keyed_blocks(buf, base, p, y, w, key, odd)
    if buf[LOSS_KIND] != NO_LOSS:
        _add_losses(buf, base, p, y, w, key, odd)
    for block in np.flatnonzero(odd).tolist():
        _add_one_by_one(buf, base, p, y, w, key, block * BLOCK, (block + 1) * BLOCK)
    if odd.size * BLOCK < n:
        _add_one_by_one(buf, base, p, y, w, key, odd.size * BLOCK, n)


@kernel
def _add_blocks(buf: Array, base: int, p: Array, y: Array, w: Array, odd: Flags) -> None:
    """The fast path for one key; says in ``odd`` which blocks it passed over.

    Bins first, then the scatter into COPIES interleaved sets of sums, so that equal bins one after the other do not wait for each
    other. 0/1 outcomes with weight 1 need three sums (1, p, p^2) in the cell 2 * bin + y.
    """
    n_bins = int(buf[N_BINS])
    binary = np.zeros(2 * n_bins * COPIES * 4)
    real = np.zeros(n_bins * COPIES * 8)
    cells, no_keys = np.empty(BLOCK, np.int32), np.empty(0, np.int64)
    for block in range(odd.shape[0]):
        low = block * BLOCK
        some_p, some_y = p[low : low + BLOCK], y[low : low + BLOCK]
        some_w = w[low : low + BLOCK] if w.shape[0] else w
        fractions, bad, certain = _cells_of_block(buf, some_p, some_y, some_w, cells)
        odd[block] = bad > 0
        if bad:
            continue
        if certain:
            _add_certain_of_block(buf, base, some_p, some_y, some_w, no_keys)
        if w.shape[0]:
            _scatter_weighted(real, cells, some_p, some_y, some_w)
        elif fractions:
            _scatter_real(real, cells, some_p, some_y)
        else:
            _scatter_binary(binary, cells, some_p)
    _fold(buf, base, binary, real, w.shape[0] == 0)


@kernel
def _add_keyed_blocks(buf: Array, base: int, p: Array, y: Array, w: Array, key: Ints, odd: Flags) -> None:
    """The fast path where events go to many keys, or to more bins than there are events: straight into the cells."""
    size = np.uint64(8 * (int(buf[N_BINS]) + 1))
    cells = np.empty(BLOCK, np.int32)
    for block in range(odd.shape[0]):
        low = block * BLOCK
        some_w = w[low : low + BLOCK] if w.shape[0] else w
        some_p, some_y, some_key = p[low : low + BLOCK], y[low : low + BLOCK], key[low : low + BLOCK]
        _, bad, certain = _cells_of_block(buf, some_p, some_y, some_w, cells)
        odd[block] = bad > 0
        if bad:
            continue
        if certain:
            _add_certain_of_block(buf, base, some_p, some_y, some_w, some_key)
        for i in range(BLOCK):
            s = np.uint64(base) + np.uint64(cells[i] >> 1) * EIGHT
            if key.shape[0]:
                s += np.uint64(key[low + i]) * size
            c, o, v = p[low + i], y[low + i], w[low + i] if w.shape[0] else 1.0
            vc, vo = v * c, v * o
            add_four(buf, s, 1.0, v, v * v, vc)
            add_four(buf, s + FOUR, vo, vc * c, vc * o, vo * o)


@kernel
def _add_losses(buf: Array, base: int, p: Array, y: Array, w: Array, key: Ints, odd: Flags) -> None:
    """Add the losses of the blocks that a fast path took to the ledgers."""
    size = block_of(buf)
    for i in range(odd.shape[0] * BLOCK):
        if odd[i // BLOCK]:
            continue
        column, loss = loss_at(buf, p[i], y[i], p[i], weight_at(w, i))
        if column != OUTSIDE:
            buf[base + (key_at(key, i) + 1) * size - 8 + column] += loss


@kernel
def _add_one_by_one(buf: Array, base: int, p: Array, y: Array, w: Array, key: Ints, low: int, high: int) -> None:
    size = block_of(buf)
    for i in range(low, high):
        k = key_at(key, i)
        add(buf, base + k * size, k, p[i], y[i], weight_at(w, i), 1.0)


@kernel
def _cells_of_block(buf: Array, p: Array, y: Array, w: Array, cells: Cells) -> tuple[int, int, int]:
    """Writes 2 * bin + [y is 1] of each event, without branches; counts outcomes that are not 0/1, bad values, certain ones."""
    fractions, bad, certain, inside = 0, 0, 0, 0
    if buf[RULE] == UNIFORM:
        scale, shift, step, offset, den = buf[SCALE], buf[SHIFT], buf[STEP], buf[OFFSET], buf[DENOMINATOR]
        last = buf[N_BINS] - 1.0
        for i in range(BLOCK):
            c, o = p[i], y[i]
            cells[i] = np.int32(
                2.0 * uniform_bin(c, scale, shift, step, offset, den, last) + (1.0 if o == 1.0 else 0.0)
            )
            fractions += not (o == 0.0 or o == 1.0)
            inside += c > 0.0 and c < 1.0
    else:
        bits, origin, half = int(buf[SCALE]), int(buf[SHIFT]), int(buf[STEP])
        for i in range(BLOCK):
            c, o = p[i], y[i]
            cells[i] = np.int32(2 * dyadic_bin(c, bits, origin, half) + (1 if o == 1.0 else 0))
            fractions += not (o == 0.0 or o == 1.0)
            inside += c > 0.0 and c < 1.0
    if fractions:
        for i in range(BLOCK):
            bad += not (y[i] >= 0.0 and y[i] <= 1.0)
        bad += buf[BINARY] != 0.0
    for i in range(w.shape[0]):
        bad += not (w[i] >= 0.0 and w[i] <= HEAVIEST)
    if inside < BLOCK:
        for i in range(BLOCK):
            bad += not (p[i] >= 0.0 and p[i] <= 1.0)
            certain += (p[i] == 0.0) | (p[i] == 1.0)
    return fractions, bad, certain


@kernel
def _add_certain_of_block(buf: Array, base: int, p: Array, y: Array, w: Array, key: Ints) -> None:
    """Add to the ledgers what predictions of exactly 0 or 1 came to, in a block that a fast path takes."""
    size = block_of(buf)
    if key.shape[0] == 0 and w.shape[0] == 0:  # without branches: scores of trees are full of them
        certain, zeros, ones = 0, 0, 0
        for i in range(BLOCK):
            certain += (p[i] == 0.0) | (p[i] == 1.0)
            zeros += (p[i] == 0.0) & (y[i] == 0.0)
            ones += (p[i] == 1.0) & (y[i] == 1.0)
        ledger = base + size - 8
        add_certain(buf, ledger, ZEROS, float(zeros), 0.0)
        add_certain(buf, ledger, ONES, float(ones), 0.0)
        add_certain(buf, ledger, IMPOSSIBLE, float(certain - zeros - ones), float(certain - zeros - ones))
        return
    for i in range(BLOCK):
        if p[i] == 0.0 or p[i] == 1.0:
            weight = weight_at(w, i)
            column = certain_at(buf, p[i], y[i], weight)
            add_certain(buf, base + (key_at(key, i) + 1) * size - 8, column, weight, 1.0)


@kernel
def _scatter_binary(sums: Array, cells: Cells, p: Array) -> None:
    for i in range(0, BLOCK, COPIES):
        for j in range(COPIES):  # a constant trip count: unrolled
            s, c = np.uint64(cells[i + j]) * FOUR + np.uint64(j), p[i + j]
            add_four(sums, s * FOUR, 1.0, c, c * c, 0.0)


@kernel
def _scatter_real(sums: Array, cells: Cells, p: Array, y: Array) -> None:
    for i in range(0, BLOCK, COPIES):
        for j in range(COPIES):
            s, c, o = np.uint64(cells[i + j] >> 1) * FOUR + np.uint64(j), p[i + j], y[i + j]
            add_four(sums, s * EIGHT, 1.0, 0.0, 0.0, c)
            add_four(sums, s * EIGHT + FOUR, o, c * c, c * o, o * o)


@kernel
def _scatter_weighted(sums: Array, cells: Cells, p: Array, y: Array, w: Array) -> None:
    for i in range(0, BLOCK, COPIES):
        for j in range(COPIES):
            s, c, o, v = np.uint64(cells[i + j] >> 1) * FOUR + np.uint64(j), p[i + j], y[i + j], w[i + j]
            vc, vo = v * c, v * o
            add_four(sums, s * EIGHT, 1.0, v, v * v, vc)
            add_four(sums, s * EIGHT + FOUR, vo, vc * c, vc * o, vo * o)


@kernel
def _fold(buf: Array, base: int, binary: Array, real: Array, unweighted: bool) -> None:
    """Add the copies' sums to the cells."""
    n_bins = int(buf[N_BINS])
    for s in range(n_bins * COPIES):
        i = base + 8 * (s // COPIES)
        for column in range(8):
            buf[i + column] += real[8 * s + column]
        if unweighted:
            buf[i + W] += real[8 * s]
            buf[i + WW] += real[8 * s]
    for s in range(2 * n_bins * COPIES):
        y, i = float((s // COPIES) & 1), base + 8 * (s // (2 * COPIES))
        n, sum_p, sum_pp = binary[4 * s], binary[4 * s + 1], binary[4 * s + 2]
        buf[i + COUNT] += n
        buf[i + W] += n
        buf[i + WW] += n
        buf[i + WP] += sum_p
        buf[i + WY] += y * n
        buf[i + WPP] += sum_pp
        buf[i + WPY] += y * sum_p
        buf[i + WYY] += y * n
