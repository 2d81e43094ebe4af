"""What the bets say at a read: in which direction, since when, in which bins and how big. Nothing here is done per event."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from streamcal.arrays import Array
from streamcal.drift.detector import Bettor, Detector, finite
from streamcal.drift.shiryaev_roberts import A1, A2, BEGAN, CLAIMS, COUNT, EVEN, OUTCOMES, M, R, bins_now, sums_since
from streamcal.logistic import MEAN_CLIP, fit, logit, separable

TOO_EXTREME, NOT_EXTREME_ENOUGH = "too extreme", "not extreme enough"  # the words for people, of verdicts too
DIRECTIONS = (TOO_EXTREME, NOT_EXTREME_ENOUGH, "too high", "too low")
OVER, UNDER, HIGH, LOW = range(4)


def moments(r: float, a1: float, a2: float) -> tuple[float, float]:
    """Mean age and standard deviation of the start of a bet, all starts equally likely before."""
    age = a1 / r
    return float(age), math.sqrt(max(float(a2 / r - age * age), 0.0))


# ---- bets against probabilities


class BetsNow(NamedTuple):
    """All bets of one stream as they are now, one array each: direction, bin (-1: all), weight, and R, M, BEGAN, A1, A2."""

    direction: Array
    bin: Array
    weight: Array
    moments: Array  # (5, bets)


def bets_now(detector: Bettor, stream: SimpleNamespace) -> BetsNow:
    """The bets of one stream, those in bins brought up to date."""
    of, (bins, stakes, _) = detector.parts, stream.binned.shape
    binned = bins_now(stream.binned, stream.bins, of.bin_stakes, stream.laid, float(stream.time))
    shifted = np.where(of.odds < 1.0, HIGH, LOW)
    lines = np.where(of.slopes < 1.0, OVER, np.where(of.slopes > 1.0, UNDER, shifted))
    in_bin = np.where(of.bin_stakes < 0.0, HIGH, LOW)  # a positive stake wins where outcomes are above the claims
    return BetsNow(
        np.concatenate([lines, np.tile(in_bin, bins)]),
        np.concatenate([np.full(lines.size, -1), np.repeat(np.arange(bins), stakes)]),
        np.concatenate([of.weights, np.tile(of.bin_weights, bins)]),
        np.concatenate([stream.bets, binned.reshape(-1, len(stream.bets)).T], axis=1),
    )


def stream_report(detector: Bettor, stream: SimpleNamespace, before: int = 0) -> dict[str, Any]:
    """What one stream shows: direction, onset and sizes. Events are counted from 0 on, ``before`` of them before this stream."""
    bets, t = bets_now(detector, stream), int(stream.time)
    likelihood = bets.moments[M]
    strength = bets.weight * np.where((likelihood > EVEN) & (bets.moments[R] > 0.0), likelihood, 0.0)
    best = int(strength.argmax()) if strength.size and strength.max() > 0.0 else -1
    found: dict[str, Any] = {"onset": None, "onset_mean": None, "onset_spread": None}
    start = 0
    if best >= 0:
        age, spread = moments(*bets.moments[[R, A1, A2], best])
        start = int(bets.moments[BEGAN, best]) - 1
        found = {"onset": before + start, "onset_mean": before + (t - 1 - age), "onset_spread": spread}
    since, sums = sums_since(stream.copies, stream.sums, start, t)
    by_bin = sums.reshape(-1, 3)
    said = {**_direction(bets, strength, best, len(by_bin)), **found, "sums_since": before + since}
    return {**said, **sizes(by_bin), "bins": bin_reports(by_bin)}


def _direction(bets: BetsNow, strength: Array, best: int, bins: int) -> dict[str, Any]:
    """In words, and as shares of the evidence; the bin if the strongest bet is one in a bin."""
    total = float(strength.sum())
    of = np.array([strength[bets.direction == d].sum() for d in range(len(DIRECTIONS))])
    shares, at = of / total if total > 0.0 else of, int(bets.bin[best]) if best >= 0 else -1
    return {
        "direction": DIRECTIONS[int(of.argmax())] if total > 0.0 else None,
        "directions": dict(zip(DIRECTIONS, shares.tolist(), strict=True)),
        "bin": [at / bins, (at + 1) / bins] if at >= 0 else None,
        "likelihood_ratio": float(bets.moments[M, best]) if best >= 0 else 1.0,
        "strength": total,
    }


def sizes(sums: Array) -> dict[str, Any]:
    """How big the gaps are in the sums (bins, 3) of some events; None where there is nothing to say."""
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
    """Mean absolute gap over bins, and about what it would be by chance in as many events of true claims."""
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
    """Slope and intercept of logit E[y] = slope * logit(p) + intercept, by maximum likelihood on the means of the bins."""
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


def bin_reports(sums: Array) -> list[dict[str, Any]]:
    """The bins that events have fallen into: bounds, events, means, gap."""
    out = []
    for j in np.flatnonzero(sums[:, COUNT] > 0.0).tolist():
        n, claims, outcomes = sums[j].tolist()
        means = {"mean_claim": claims / n, "mean_outcome": outcomes / n, "gap": (outcomes - claims) / n}
        out.append({"bin": [j / len(sums), (j + 1) / len(sums)], "n": int(n), **means})
    return out


# ---- bets that every event touches: densities of PITs, coverage by cells


def onset_report(detector: Detector, leaning: Mapping[str, Array]) -> tuple[dict[str, Any], int, Array]:
    """How such a report begins; the bet that holds most of the evidence (-1: nothing speaks against the claims); its sums.

    ``leaning``: how each bet leans in each direction, each pair of opposites together; a bet that leans in several is split in
    proportion. The sums are those of the events from ``sums_since`` on, the nearest one before which a copy was made.
    """
    of, stream, n = detector.parts, detector.stream(), detector.n
    before, t, held = int(of.before), int(stream.time), of.weights * stream.bets[R]
    best = int(np.argmax(held))
    r, m, began, a1, a2 = stream.bets[:, best]
    found: dict[str, Any] = {"onset": None, "onset_mean": None, "onset_spread": None, "window": None}
    since, sums, shares, ratio = t, np.zeros(stream.sums.size), np.zeros(held.size), 1.0
    if m > EVEN:
        (age, spread), onset, ratio = moments(r, a1, a2), before + int(began) - 1, float(m)
        found = {"onset": onset, "onset_mean": before + t - 1 - age, "onset_spread": spread, "window": [onset, n]}
        since, sums = sums_since(stream.copies, stream.sums, int(began) - 1, t)
        shares = held / held.sum()
    leans = np.maximum(list(leaning.values()), 0.0)
    whole = leans.sum(0)
    each = (np.divide(leans, whole, out=np.zeros_like(leans), where=whole > 0.0) @ shares).tolist()
    net = [share - each[i ^ 1] for i, share in enumerate(each)]
    said = {
        **detector._heading(),
        "direction": list(leaning)[int(np.argmax(net))] if m > EVEN else None,
        "directions": dict(zip(leaning, each, strict=True)),
        "likelihood_ratio": finite(ratio),
        **found,
        "sums_since": before + since,
    }
    return said, best if m > EVEN else -1, sums
