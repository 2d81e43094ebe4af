"""The sums of the rows since any moment, nearly: cumulative sums, and copies of them at moments ever further apart.

A copy is made every FINEST events. The copy at event t is kept on the level of the largest power of 2 that divides t, the last
two of each level: so of age a there is a copy within a quarter of a, or 16 events, for ages up to FINEST * 2^(levels - 1);
before that there is only the start of the run. Memory does not grow with the number of events.
"""

from __future__ import annotations

import numpy as np

from streamcal._jit import inlined
from streamcal.arrays import Array

FINEST = 16  # events
KEPT = 2  # copies per level
COUNT, CLAIMS, OUTCOMES = range(3)  # the sums of a row


def checkpoint_size(rows: int, levels: int) -> int:
    """How many numbers the copies take: the event, and the sums of each row."""
    return levels * KEPT * (1 + 3 * rows)


@inlined
def level_of(t: int, levels: int) -> int:
    """Level of the copy made at event t, a multiple of FINEST."""
    step, level = t // FINEST, 0
    while step % 2 == 0 and level < levels - 1:
        step //= 2
        level += 1
    return level


@inlined
def slot_of(t: int, levels: int) -> int:
    """Where the copy made at event t goes: over the older of its level."""
    level = level_of(t, levels)
    step = t // (FINEST << level)
    turn = step // 2 if level < levels - 1 else step  # all on the last level, only odd steps on the others
    return level * KEPT + turn % KEPT


def since(copies: Array, sums: Array, start: int) -> tuple[int, Array]:
    """(t, sums of the rows of all events after event t), for the copied t nearest to ``start``; t = 0 is the run's start.

    Of the events after ``start`` no more than a quarter are left out, so that something remains. ``copies`` has shape
    (slots, 1 + 3 * rows), ``sums`` (rows, 3).
    """
    kept = copies[copies[:, 0] > 0.0]
    at = np.concatenate([[0.0], kept[:, 0]])
    latest = start + (float(sums[:, COUNT].sum()) - start) / 4.0
    nearest = int(np.argmin(np.where(at <= latest, np.abs(at - start), np.inf)))
    before = np.zeros(sums.size) if nearest == 0 else kept[nearest - 1, 1:]
    return int(at[nearest]), sums - before.reshape(sums.shape)
