"""PITDrift: an alarm when distribution forecasts stop being right, with a guaranteed average run length."""

from __future__ import annotations

import itertools
import math
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, Ints, check_aligned, check_whole, numbers
from streamcal.binning import uniform_bin
from streamcal.claims import Claim
from streamcal.drift import shiryaev_roberts as sr
from streamcal.drift.detector import Detector, detector
from streamcal.drift.onset import onset_report
from streamcal.limits import TOLERANCE, unit
from streamcal.recalibrate.forecasting import uniform

# Powers of u are multiples of one: a single one is worked out per event. These were found by simulation.
STEP, MULTIPLES = 0.13, (-3, -2, -1, 0, 1, 3, 5)
SHAPES = tuple(1.0 + STEP * m for m in MULTIPLES)
SIDE, DENSITIES = len(SHAPES), len(SHAPES) ** 2
CELLS = 20  # of the histogram: twentieths, so that "the outer tenth" is the two outer cells
FIRST_POWER, SECOND_POWER, PIT_SUMS = CELLS, CELLS + 1, CELLS + 2
COPY_LEVELS = 20  # sums back to any moment in the last 8 million events, else to the start of the run
LEAST = 1e-9  # densities that grow without bound are taken here: u = 0 is strong evidence and not infinite
MOST = LEAST**-STEP
# The constants in the buffer: the seed, then scale and weight of each density
SEED, SCALES, WEIGHTS = sr.FIRST, sr.FIRST + 1, sr.FIRST + 1 + DENSITIES
PLACES = np.array(list(itertools.product(range(SIDE), range(SIDE))))
LOGS = np.log(list(itertools.product(SHAPES, SHAPES))).T  # of a and b of each bet
LEANING = {
    "too narrow": -LOGS[0] - LOGS[1],
    "too wide": LOGS[0] + LOGS[1],
    "biased up": LOGS[1] - LOGS[0],
    "biased down": LOGS[0] - LOGS[1],
}
MEANING = {
    "too narrow": "outcomes fall into the tails too often",
    "too wide": "outcomes fall into the middle too often",
    "biased up": "outcomes lie lower than forecast",
    "biased down": "outcomes lie higher than forecast",
}


def beta_constants(seed: int) -> dict[str, npt.ArrayLike]:
    """The constants of the bets: Beta densities over all pairs of SHAPES; those of spread or bias alone weigh double.

    Beta(1, 1) is no bet: its weight is 0. Scales 1 / B(a, b) are rounded down, so that no expectation is above 1.
    """
    i, j = PLACES.T
    weights = 1.0 + ((i == j) | (i + j == SIDE - 1))
    weights[DENSITIES // 2] = 0.0  # Beta(1, 1), in the middle of the list
    logs = [math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) for a, b in itertools.product(SHAPES, SHAPES)]
    scales = [math.floor(1e13 * math.exp(x)) / 1e13 for x in logs]
    return {"seed": float(seed), "scales": scales, "weights": weights / weights.sum()}


@inlined
def powers(x: float) -> tuple[float, float, float, float, float, float, float]:
    """x to the powers of the bets: where they grow without bound, as of LEAST, which is never more."""
    rising = x**STEP
    falling = 1.0 / rising if x > LEAST else MOST
    cube = rising * rising * rising
    return falling * falling * falling, falling * falling, falling, 1.0, rising, cube, cube * rising * rising


@inlined
def take(buf: Array, lower: float, upper: float) -> int:
    """Take an event that is allowed: a PIT anywhere between ``lower`` and ``upper``."""
    sr.count_event(buf)
    u = drawn(buf[SEED], buf[sr.N] - 1.0, lower, upper)
    s, first = buf[int(buf[sr.STATE]) :], int(buf[sr.AT_BETS])
    s[sr.TIME] += 1.0
    bets, x = s[first : first + sr.MOMENTS * DENSITIES], s[first + sr.MOMENTS * DENSITIES : first + 6 * DENSITIES]
    left, right = powers(u), powers(1.0 - u)
    for i in range(SIDE):
        for j in range(SIDE):
            x[SIDE * i + j] = buf[SCALES + SIDE * i + j] * (left[i] * right[j])
    sr.accumulate(bets, x, s[sr.TIME], 1.0)
    sums = s[int(buf[sr.AT_SUMS]) :]
    sums[int(uniform_bin(u, CELLS, 0.0, 1.0, 0.0, CELLS, CELLS - 1.0))] += 1.0
    sums[FIRST_POWER] += u
    sums[SECOND_POWER] += u * u
    sr.keep_copy(buf, s)
    return sr.judge(buf, sr.weighted(buf[WEIGHTS : WEIGHTS + DENSITIES], bets[:DENSITIES]))


@inlined
def drawn(seed: float, index: float, lower: float, upper: float) -> float:
    """A number between ``lower`` and ``upper`` that depends on the seed and the number of the event only."""
    return lower + uniform(seed, index) * (upper - lower) if upper > lower else lower


@brief
def pit_one(buf: Array, lower: float, upper: float) -> int:
    """Take one event, or say that it is BAD."""
    low, high = unit(lower), unit(upper)  # nan where it is not allowed, and then the comparison is false
    return take(buf, low, high) if high >= low - TOLERANCE else sr.BAD


@kernel
def pit_many(buf: Array, first: int, lower: Array, upper: Array) -> int:
    """Take events from ``first`` on: the index of the first that alarms, or their number."""
    for i in range(first, lower.shape[0]):
        if take(buf, lower[i], upper[i]) == sr.ALARMED:
            return i
    return int(lower.shape[0])


@kernel
def draw_many(seed: float, lower: Array, upper: Array, out: Array) -> None:
    """A draw for every event, numbered from 0 on."""
    for i in range(lower.shape[0]):
        out[i] = drawn(seed, float(i), lower[i], upper[i])


@detector("pit", "pit")
class PITDrift(Detector):
    r"""Alarms when distribution forecasts are no longer right. ``arl``: events to a false alarm on average, in [1, 1e15].

    A forecast with distribution function F claims that u = F(y), its probability integral transform (PIT), is uniform on [0, 1]
    whatever came before. Bets with Beta densities look for another distribution of u:

    .. math:: L = \frac{u^{a-1} (1-u)^{b-1}}{B(a, b)}, \qquad a, b \in \{.61, .74, .87, 1, 1.13, 1.39, 1.65\}

    without a = b = 1. The evidence, what ``arl`` guarantees, runs and ``warning_arl``: as in
    :class:`~streamcal.drift.calibration.CalibrationDrift`.

    ``update(u)`` takes one PIT, ``update_many(u)`` an array of shape (n,). For discrete outcomes (counts, rounded values, atoms
    at 0) give two numbers, ``update(below, upto)``: the forecast's probability of a smaller outcome, F(y-), and of one up to y,
    F(y). The PIT is then drawn between them, by ``seed`` and the number of the event only: the same again every time
    (:func:`randomised_pit`).

    u must lie in [0, 1] (1e-6 outside is clipped, as rounding can be) and ``upto`` may not lie below ``below``; anything else,
    nan too, raises ValueError and changes nothing. u = 0 or 1 counts as strong evidence, not as infinite: densities that grow
    without bound are taken at 1e-9.

    Limits: no promise how soon a change is found, and none that a claim which is wrong in a way that leaves the PIT uniform on
    average and in order (a forecast that ignores what could be known) is found at all. Even a small lasting error alarms in the
    end. The draws promise nothing against a forecaster that knows the seed. Events must come in the order in which the forecasts
    were made, each forecast before its outcome. The state takes 11 kB, whatever the number of events. Not thread-safe.

    Measured at ``arl=20_000``, normal forecasts, change after 2,000 right ones, median delay: outcomes that spread 1.25 times as
    far as forecast 121 events, 1.5 times 44, .8 times 177; shifted by .25 standard deviations 204, by .5 58. Average run length
    1.28 times ``arl`` at 1,000.

    Sources: Dawid 1984; Diebold, Gunther, Tay 1998; for discrete outcomes Smith 1985 and Czado, Gneiting, Held 2009; Shin,
    Ramdas, Rinaldo 2024 (e-detectors). The bets are ours, by simulation.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> drift = PITDrift(arl=20_000)
    >>> alarms = drift.update_many(np.concatenate([rng.random(2000), rng.beta(0.7, 0.7, 500)]))  # from event 2000 on too narrow
    >>> first = drift.history()[0]
    >>> int(alarms[0]) == first["event"], first["direction"]
    (True, 'too narrow')
    """

    settings: ClassVar[tuple[str, ...]] = ("arl", "warning_arl", "seed")
    _one = pit_one
    _many = pit_many
    _sample = (0.25, 0.75)

    def __init__(self, arl: float = 20_000, warning_arl: float | None = None, *, seed: int = 0) -> None:
        self.seed = check_whole("seed", seed, 0)
        stream = sr.stream_parts(DENSITIES, PIT_SUMS, COPY_LEVELS)
        self._lay_out(stream, beta_constants(self.seed), {"streams": (1, stream.size)})
        self._begin(arl, warning_arl)

    @classmethod
    def for_claim(cls, claim: Claim, arl: float, tolerance: float) -> Self:
        """It knows no tolerance."""
        return cls(arl)

    def update(self, u: float, upto: float | None = None) -> None:
        """Take one PIT, or of a discrete outcome F(y-) and F(y); ValueError, and nothing changed, if it is not allowed."""
        low, high = (u, u) if upto is None else (u, upto)
        self._take(low, high)

    def update_many(self, u: npt.ArrayLike, upto: npt.ArrayLike | None = None) -> Ints:
        """Take n events in order: the indices of those that alarmed."""
        return self._take_many(*pit_events(u, upto))

    def report(self) -> dict[str, Any]:
        """What the evidence says: see :meth:`Detector.report`.

        The directions are "too narrow", "too wide", "biased up" (outcomes lie lower than forecast) and "biased down". The sizes,
        of the PITs: their ``mean`` (right: .5) and ``sd`` (right: .289), counts in 20 equal cells ``histogram`` (right:
        ``expected`` in each).
        """
        said, _, sums = onset_report(self, LEANING)
        said |= pit_sums(sums)
        return {**said, "text": sentence(said)}

    def _complaint(self, *event: Any) -> str:
        low, high = event
        return complaint(low, None if low is high else high)


def sentence(report: dict[str, Any]) -> str:
    """A report in one sentence."""
    if report["direction"] is None:
        return "no evidence against the forecasts"
    tails = (report["histogram"][0] + report["histogram"][-1]) / report["events"]
    return (
        f"forecasts {report['direction']} ({MEANING[report['direction']]}) since event {report['onset']} "
        f"(+- {report['onset_spread']:.0f}): from event {report['sums_since']} on {report['events']} PITs have mean "
        f"{report['mean']:.3f} (right: 0.500) and {tails:.1%} in the outer tenth (right: 10.0%)"
    )


def pit_sums(sums: Array) -> dict[str, Any]:
    """Mean, standard deviation (None without events) and histogram of PITs."""
    cells = sums[:CELLS]
    n = float(cells.sum())
    mean = float(sums[FIRST_POWER]) / n if n else None
    sd = math.sqrt(max(float(sums[SECOND_POWER]) / n - mean**2, 0.0)) if mean is not None else None
    return {"events": int(n), "mean": mean, "sd": sd, "histogram": [int(c) for c in cells], "expected": n / CELLS}


def pit_events(u: npt.ArrayLike, upto: npt.ArrayLike | None) -> tuple[Array, Array]:
    """(lower, upper) as contiguous arrays of shape (n,), clipped; ValueError names the first event that is not allowed."""
    check_aligned(u=u, upto=upto)
    lower = numbers("u", u, strict=True)
    upper = lower if upto is None else numbers("upto", upto, strict=True)
    if lower.ndim != 1 or upper.shape != lower.shape:
        shapes = f"{lower.shape}" if upto is None else f"{lower.shape} and {upper.shape}"
        raise ValueError(f"u, and upto if it is given, must have shape (n,), got {shapes}")
    allowed = (lower >= -TOLERANCE) & (upper <= 1.0 + TOLERANCE) & (upper >= lower - TOLERANCE)
    allowed &= (lower <= 1.0 + TOLERANCE) & (upper >= -TOLERANCE)
    if not allowed.all():
        i = int(np.argmin(allowed))
        raise ValueError(f"{complaint(float(lower[i]), None if upto is None else float(upper[i]))} at index {i}")
    return np.ascontiguousarray(np.clip(lower, 0.0, 1.0)), np.ascontiguousarray(np.clip(upper, 0.0, 1.0))


def complaint(u: Any, upto: Any) -> str:
    """What is allowed and what came."""
    if upto is None:
        return f"u must lie in [0, 1], got {u!r}"
    return f"F(y-) and F(y) must lie in [0, 1], the first not above the second, got {u!r} and {upto!r}"


def randomised_pit(below: npt.ArrayLike, upto: npt.ArrayLike, seed: int = 0) -> Array:
    """PITs of discrete outcomes, in [0, 1], shape (n,): drawn between F(y-) and F(y), uniform if the forecasts are right.

    .. math:: u_i = F_i(y_i-) + V_i \\, (F_i(y_i) - F_i(y_i-))

    ``below`` is the forecast's probability of an outcome smaller than y, ``upto`` of one up to y, both of shape (n,) in [0, 1].
    The draws V_i depend on ``seed`` and i only: the same again every time, and the same as in ``PITDrift(seed=seed)`` from its
    first event on. No events give an empty array. ValueError names the first event that is not allowed. Another seed gives other
    PITs: choose one beforehand. Sources: Smith 1985; Czado, Gneiting, Held 2009 (a histogram without draws).

    >>> randomised_pit([0.2, 0.5], [0.5, 0.5]).round(3)
    array([0.204, 0.5  ])
    """
    check_whole("seed", seed, 0)
    lower, upper = pit_events(below, upto)
    out = np.empty(lower.size)
    draw_many(float(seed), lower, upper, out)
    return out
