"""What the bets say at a read: in which direction, since when, in which rows and how big. Nothing here is done per event."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streamcal.arrays import Array
from streamcal.drift.bets import LINES, PLAN, ROWS, STAKES
from streamcal.drift.checkpoints import CLAIMS, COUNT, OUTCOMES, since
from streamcal.drift.mixture import FIRST, TIME, copies_at, rows_at, stakes_at, sums_at
from streamcal.logistic import MEAN_CLIP, fit, logit, separable

DIRECTIONS = ("overconfident", "underconfident", "too high", "too low")
OVER, UNDER, HIGH, LOW = range(4)


class Laid(NamedTuple):
    """All bets of one stream as they are now, one array each: direction, row (-1: all), weight, R, M, BEGAN, S1, S2."""

    direction: Array
    row: Array
    weight: Array
    r: Array
    m: Array
    began: Array
    s1: Array
    s2: Array


def laid(plan: Array, s: Array) -> Laid:
    """The bets of one stream, those in rows brought up to date."""
    lines, stakes, rows = int(plan[LINES]), int(plan[STAKES]), int(plan[ROWS])
    slopes, factors, line_weights = plan[PLAN : PLAN + 3 * lines].reshape(3, lines)
    stake, stake_weight = plan[PLAN + 3 * lines :].reshape(2, stakes)
    of_lines = s[FIRST : FIRST + 5 * lines].reshape(5, lines)
    in_rows = s[stakes_at(plan) : stakes_at(plan) + 5 * rows * stakes].reshape(rows, stakes, 5)
    touched = s[rows_at(plan) : rows_at(plan) + rows]
    of_rows = _up_to_date(in_rows, touched, s[TIME]).reshape(rows * stakes, 5).T
    shifted = np.where(factors < 1.0, HIGH, LOW)
    return Laid(
        np.concatenate([np.where(slopes < 1.0, OVER, np.where(slopes > 1.0, UNDER, shifted)), _tiled(stake, rows)]),
        np.concatenate([np.full(lines, -1), np.repeat(np.arange(rows), stakes)]),
        np.concatenate([line_weights, np.tile(stake_weight, rows)]),
        *np.concatenate([of_lines, of_rows], axis=1),
    )


def _tiled(stake: Array, rows: int) -> Array:
    """Direction of each bet in each row: a positive stake wins where outcomes are above the claims."""
    return np.tile(np.where(stake < 0.0, HIGH, LOW), rows)


def _up_to_date(bets: Array, touched: Array, t: float) -> Array:
    """Bets (rows, stakes, 5) with the starts of the events since their row was touched: each of them a stake of 1."""
    starts = t - touched
    sum1 = starts * (touched + 1.0 + t) / 2.0
    sum2 = (t * (t + 1.0) * (2.0 * t + 1.0) - touched * (touched + 1.0) * (2.0 * touched + 1.0)) / 6.0
    nothing = np.zeros_like(starts)
    return bets + np.stack([starts, nothing, nothing, sum1, sum2], axis=1)[:, None, :]


def reading(plan: Array, s: Array) -> dict[str, Any]:
    """What one stream shows: direction, onset and sizes. Events are counted from the start of the run, the first is 0."""
    bets = laid(plan, s)
    strength = bets.weight * np.where(bets.m > 1.0, bets.m, 0.0)
    best = int(strength.argmax()) if strength.size and strength.max() > 0.0 else -1
    begin, sums = _since(plan, s, 0 if best < 0 else int(bets.began[best]) - 1)
    said = {**_direction(plan, bets, strength, best), **_onset(bets, best), "sums_since": begin}
    return {**said, **sizes(sums), "rows": by_row(sums)}


def moved(found: dict[str, Any], before: int) -> dict[str, Any]:
    """A reading with its events counted from the first event ever, of which ``before`` came before this run."""
    counted = ("onset", "onset_mean", "sums_since")
    return {k: before + v if k in counted and v is not None else v for k, v in found.items()}


def _direction(plan: Array, bets: Laid, strength: Array, best: int) -> dict[str, Any]:
    """In words, and as shares of the evidence; the row if the strongest bet is one in a row."""
    total = float(strength.sum())
    of = np.array([strength[bets.direction == d].sum() for d in range(len(DIRECTIONS))])
    shares, row = of / total if total > 0.0 else of, int(bets.row[best]) if best >= 0 else -1
    return {
        "direction": DIRECTIONS[int(of.argmax())] if total > 0.0 else None,
        "directions": dict(zip(DIRECTIONS, shares.tolist(), strict=True)),
        "row": [float(row / plan[ROWS]), float((row + 1.0) / plan[ROWS])] if row >= 0 else None,
        "likelihood_ratio": float(bets.m[best]) if best >= 0 else 1.0,
        "strength": total,
    }


def _onset(bets: Laid, best: int) -> dict[str, Any]:
    """The most likely start under the strongest bet; mean and standard deviation of the start, all equally likely before."""
    if best < 0:
        return {"onset": None, "onset_mean": None, "onset_spread": None}
    mean = bets.s1[best] / bets.r[best]
    variance = max(bets.s2[best] / bets.r[best] - mean * mean, 0.0)
    return {"onset": int(bets.began[best]) - 1, "onset_mean": float(mean) - 1.0, "onset_spread": math.sqrt(variance)}


def _since(plan: Array, s: Array, start: int) -> tuple[int, Array]:
    """(event, sums of the rows from that event on), for the copy of the sums that is nearest to event ``start``."""
    rows, first = int(plan[ROWS]), sums_at(plan)
    return since(s[copies_at(plan) :].reshape(-1, 1 + 3 * rows), s[first : first + 3 * rows].reshape(rows, 3), start)


def sizes(sums: Array) -> dict[str, Any]:
    """How big the gaps are in the sums (rows, 3) of some events; None where there is nothing to say."""
    n, claims, outcomes = (float(x) for x in sums.sum(0))
    return {
        "events": int(n),
        "mean_claim": claims / n if n else None,
        "mean_outcome": outcomes / n if n else None,
        "gap": (outcomes - claims) / n if n else None,
        **_line(sums),
        **_k1(sums),
    }


def _k1(sums: Array) -> dict[str, float | None]:
    """Mean absolute gap over rows, and about what it would be by chance in as many events of true claims."""
    seen = sums[sums[:, COUNT] > 0.0]
    if not len(seen):
        return {"k1": None, "k1_by_chance": None}
    n, p = seen[:, COUNT], np.clip(seen[:, CLAIMS] / seen[:, COUNT], 0.0, 1.0)
    by_chance = np.sqrt(2.0 / math.pi * p * (1.0 - p) * n)
    return {
        "k1": float(np.abs(seen[:, OUTCOMES] - seen[:, CLAIMS]).sum() / n.sum()),
        "k1_by_chance": float(by_chance.sum() / n.sum()),
    }


def _line(sums: Array) -> dict[str, float | None]:
    """Slope and intercept of logit E[y] = slope * logit(p) + intercept, by maximum likelihood on the means of the rows."""
    seen = sums[sums[:, COUNT] > 0.0]
    nothing: dict[str, float | None] = {"slope": None, "intercept": None}
    if not 0.0 < seen[:, OUTCOMES].sum() < seen[:, COUNT].sum() or len(seen) < 2:
        return nothing
    n, y = seen[:, COUNT], seen[:, OUTCOMES] / seen[:, COUNT]
    x = logit(seen[:, CLAIMS] / n, MEAN_CLIP)
    if separable(x, y):
        return nothing
    found = fit(x, y, n)
    return nothing if found is None else {"slope": float(found[0][0]), "intercept": float(found[0][1])}


def by_row(sums: Array) -> list[dict[str, Any]]:
    """The rows that events have fallen into: bounds, events, means, gap."""
    out = []
    for j in np.flatnonzero(sums[:, COUNT] > 0.0).tolist():
        n, claims, outcomes = sums[j].tolist()
        means = {"mean_claim": claims / n, "mean_outcome": outcomes / n, "gap": (outcomes - claims) / n}
        out.append({"row": [j / len(sums), (j + 1) / len(sums)], "n": int(n), **means})
    return out
