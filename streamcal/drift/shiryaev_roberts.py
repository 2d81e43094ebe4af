"""Bets that every event touches, summed over all starts (e-SR), and the sums of the events since any moment, nearly.

Of each bet five numbers are kept: R, what a stake of 1 laid before every event has become in all; M, the largest of these (the
running maximum likelihood over the starts), and the event BEGAN before which it was laid; A1 = sum of age * stake and A2 = sum of
age^2 * stake, the moments of the start, where a stake laid before the last event has age 0. Events are counted within the run,
from 1 on. Ages and not starts, since the second moment of starts after 10^8 events has no digits left for their spread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from streamcal._jit import inlined
from streamcal.arrays import Array
from streamcal.drift.checkpoints import FINEST, KEPT, slot_of
from streamcal.drift.detector import BEFORE, RUN, STATE, Detector, finite

# What a run has gathered: R, M, BEGAN, A1, A2 of all bets and their last FACTOR; the sums; the copies of the sums.
R, M, BEGAN, A1, A2, FACTOR = range(6)
LEVELS = 20  # of copies: up to FINEST * 2^21 events old, 3e7


def stakes_size(bets: int, sums: int) -> int:
    """How many numbers a run gathers."""
    return 6 * bets + sums + LEVELS * KEPT * (1 + sums)


@inlined
def factors_of(s: Array, bets: int) -> Array:
    """Where the factors of an event are put before :func:`multiply`."""
    return s[FACTOR * bets : (FACTOR + 1) * bets]


@inlined
def multiply(s: Array, weights: Array, t: float) -> float:
    """Open every bet anew before event t of the run, multiply all by their factors; the weighted sum over all starts."""
    n = weights.shape[0]
    r, m, began, a1, a2, x = s[:n], s[n : 2 * n], s[2 * n : 3 * n], s[3 * n : 4 * n], s[4 * n : 5 * n], s[5 * n : 6 * n]
    for k in range(n):
        a2[k] = (a2[k] + 2.0 * a1[k] + r[k]) * x[k]
        a1[k] = (a1[k] + r[k]) * x[k]
        r[k] = (r[k] + 1.0) * x[k]
    for k in range(n):
        began[k] = t if m[k] <= 1.0 else began[k]
        m[k] = (1.0 if m[k] <= 1.0 else m[k]) * x[k]
    return weighted(weights, r)


@inlined
def weighted(weights: Array, r: Array) -> float:
    """Sum of weight * R in four parts, so that one addition need not wait for the last."""
    n, a, b, c, d = weights.shape[0], 0.0, 0.0, 0.0, 0.0
    fours = n - n % 4
    for k in range(0, fours, 4):
        a += weights[k] * r[k]
        b += weights[k + 1] * r[k + 1]
        c += weights[k + 2] * r[k + 2]
        d += weights[k + 3] * r[k + 3]
    for k in range(fours, n):
        a += weights[k] * r[k]
    return (a + b) + (c + d)


@inlined
def keep_copy(s: Array, bets: int, sums: int, t: float) -> None:
    """Copy the sums after event t of the run, if it is time for a copy."""
    if int(t) % FINEST == 0:
        first = 6 * bets
        to = first + sums + slot_of(int(t), LEVELS) * (1 + sums)
        s[to] = t
        for c in range(sums):
            s[to + 1 + c] = s[first + c]


class Onset(NamedTuple):
    """When what the evidence speaks of began. Events are counted from the start, the first has index 0."""

    event: int | None  # the first of the likeliest stretch; None where nothing speaks against the claims
    mean: float | None  # mean and standard deviation of the start, all starts equally likely before
    spread: float | None
    likelihood_ratio: float  # of the bet that says so, from ``event`` on
    since: int  # the sums begin with this event: the nearest one before which a copy was made
    sums: Array  # of the events from there on
    shares: (
        Array  # what each bet holds of the evidence; they add up to 1, all 0 where nothing speaks against the claims
    )


def onset(buf: Array, weights: Array, sums: int) -> Onset:
    """The onset by the bet that holds most of the evidence, from a detector's buffer."""
    n, run, before = weights.size, int(buf[RUN]), int(buf[BEFORE])
    s = buf[int(buf[STATE]) :]
    r, m, began, a1, a2 = s[: 5 * n].reshape(5, n)
    held = weights * r
    k = int(np.argmax(held))
    if not m[k] > 1.0:
        return Onset(None, None, None, 1.0, before + run, np.zeros(sums), np.zeros(n))
    age = float(a1[k] / r[k])
    spread = math.sqrt(max(float(a2[k] / r[k]) - age * age, 0.0))
    gathered, copies = s[6 * n : 6 * n + sums], s[6 * n + sums :].reshape(-1, 1 + sums)
    first, counted = sums_since(copies, gathered, int(began[k]) - 1, run)
    event, mean = before + int(began[k]) - 1, before + run - 1 - age
    return Onset(event, mean, spread, float(m[k]), before + first, counted, held / held.sum())


def about(detector: Detector, found: Onset, of: Mapping[str, float]) -> dict[str, Any]:
    """What every such report begins with; ``of``: share of the evidence of each direction, each pair of opposites together."""
    n, names = detector.n, list(of)
    net = [of[name] - of[names[i ^ 1]] for i, name in enumerate(names)]
    return {
        "event": n - 1 if n else None,
        "alarm": detector.drift_detected,
        "evidence": finite(detector.evidence),
        "arl": detector.arl,
        "run": int(detector._buf[RUN]),
        "direction": names[int(np.argmax(net))] if found.event is not None else None,
        "directions": dict(of),
        "likelihood_ratio": finite(found.likelihood_ratio),
        "onset": found.event,
        "onset_mean": found.mean,
        "onset_spread": found.spread,
        "window": None if found.event is None else [found.event, n],
        "sums_since": found.since,
    }


def sums_since(copies: Array, gathered: Array, start: int, run: int) -> tuple[int, Array]:
    """(t, sums of all events after event t), for the copied t nearest to ``start`` but no later than a quarter of its age on.

    Later there might be few events left, or none. t = 0 is the start of the run.
    """
    at = copies[:, 0]
    kept = copies[(at > 0.0) & (at <= start + (run - start) / 4.0)]
    known = np.concatenate([np.zeros((1, copies.shape[1])), kept])
    nearest = known[np.argmin(np.abs(known[:, 0] - start))]
    return int(nearest[0]), gathered - nearest[1:]


def directions_of(shares: Array, leaning: Mapping[str, Array]) -> dict[str, float]:
    """Share of the evidence of each direction: a bet that leans in several is split in proportion."""
    leans = np.maximum(list(leaning.values()), 0.0)
    whole = leans.sum(0)
    parts = np.divide(leans, whole, out=np.zeros_like(leans), where=whole > 0.0)
    return dict(zip(leaning, (parts @ shares).tolist(), strict=True))
