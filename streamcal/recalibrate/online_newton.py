"""Online Platt scaling and online beta scaling: logistic regression by an online Newton step per event."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from streamcal._jit import brief, inlined, kernel
from streamcal.arrays import Array, check_number
from streamcal.limits import HEAVIEST, unit
from streamcal.logistic import CLIP, chance, log_odds
from streamcal.recalibrate.online import Compiled, allowed, online

# The buffer: events learned, five settings, three coefficients, and the upper triangle of sum(w g g^T), row by row.
COUNT, FORGETTING, BETA, PRIOR, INNER, RADIUS, THETA, SUMS = 0, 1, 2, 3, 4, 5, 6, 9
SIZE = 15
LIMITS = {  # of the settings: within them A can be inverted and no step leaves the range of doubles
    "forgetting": (0.5, 1.0),
    "beta": (1e-3, 1e3),
    "prior": (1e-6, 1e9),
    "clip": (1e-12, 0.4),
    "radius": (2.0, 1e6),
}
EPSILON = 1e-14  # of a diagonal entry: below this a pivot is rounding
HALVINGS, CLOSE = 200, 1e-12  # of a bisection; how near to the radius (relative) its end must come
SUREST = 1.0 - 2.0**-53  # the largest double below 1
LARGEST = 1e4  # bound of |features|^2 for every clip
NEARLY = 1.0 + 1e-6  # for comparisons of rounded sums


@inlined
def _forecast(buf: Array, p: float, x0: float, x1: float, x2: float) -> float:
    """sigmoid(theta . x + offset); p itself before any event, so that no rounding shows."""
    if buf[COUNT] == 0.0:
        return p
    # The offset, with coefficient one: by how much the log-odds of p lie beyond those of the clip.
    beyond = 0.0 if buf[INNER] <= p <= 1.0 - buf[INNER] else log_odds(p, CLIP) - log_odds(p, buf[INNER])
    z = buf[THETA] * x0 + buf[THETA + 1] * x1 + buf[THETA + 2] * x2 + beyond
    return min(chance(z), SUREST)  # at 1.0 the loss would be infinite


@inlined
def _newton_step(buf: Array, g0: float, g1: float, g2: float, w: float) -> None:
    """Take in one gradient: the sums first, then theta -= (w / beta) A^-1 g with A = prior I + sums, then the projection."""
    f = buf[FORGETTING]  # the prior is not in the sums, so it is not forgotten
    buf[SUMS] = f * buf[SUMS] + w * g0 * g0
    buf[SUMS + 1] = f * buf[SUMS + 1] + w * g0 * g1
    buf[SUMS + 2] = f * buf[SUMS + 2] + w * g0 * g2
    buf[SUMS + 3] = f * buf[SUMS + 3] + w * g1 * g1
    buf[SUMS + 4] = f * buf[SUMS + 4] + w * g1 * g2
    buf[SUMS + 5] = f * buf[SUMS + 5] + w * g2 * g2
    d0, d1, d2 = _solved(buf, 0.0, g0, g1, g2)
    rate, radius = w / buf[BETA], buf[RADIUS]
    t0, t1, t2 = buf[THETA] - rate * d0, buf[THETA + 1] - rate * d1, buf[THETA + 2] - rate * d2
    if t0 * t0 + t1 * t1 + t2 * t2 > radius * radius:
        t0, t1, t2 = projected(buf, t0, t1, t2)
    buf[THETA], buf[THETA + 1], buf[THETA + 2] = t0, t1, t2
    buf[COUNT] += 1.0


@inlined
def _solved(buf: Array, mu: float, v0: float, v1: float, v2: float) -> tuple[float, float, float]:
    """x of (A + mu I) x = v, by elimination from the last row up: the constant is the largest feature where rounding matters.

    A - prior I has no negative eigenvalue, so no pivot is below prior + mu. Where sums of huge weights leave nothing of the
    prior, a pivot can come out as rounding, of either sign: hence the floors.
    """
    least = buf[PRIOR] + mu
    a00, a01, a02 = buf[SUMS] + least, buf[SUMS + 1], buf[SUMS + 2]
    a11, a12, a22 = buf[SUMS + 3] + least, buf[SUMS + 4], buf[SUMS + 5] + least
    l0, l1 = a02 / a22, a12 / a22
    b11 = max(a11 - l1 * a12, least, EPSILON * a11)
    b01 = a01 - l0 * a12
    l2 = b01 / b11
    c00 = max(a00 - l0 * a02 - l2 * b01, least, EPSILON * a00)
    u1 = v1 - l1 * v2
    x0 = (v0 - l0 * v2 - l2 * u1) / c00
    x1 = u1 / b11 - l2 * x0
    return x0, x1, v2 / a22 - l0 * x0 - l1 * x1


@kernel
def projected(buf: Array, t0: float, t1: float, t2: float) -> tuple[float, float, float]:
    """The point of the ball |x| <= radius nearest to t in the norm of A: (A + mu I) x = A t with the mu > 0 of |x| = radius.

    |x| falls in mu, and is below the radius at twice |A t| / radius: bisection. The end that is kept lies in the ball.
    """
    prior, radius = buf[PRIOR], buf[RADIUS]
    v0 = (buf[SUMS] + prior) * t0 + buf[SUMS + 1] * t1 + buf[SUMS + 2] * t2
    v1 = buf[SUMS + 1] * t0 + (buf[SUMS + 3] + prior) * t1 + buf[SUMS + 4] * t2
    v2 = buf[SUMS + 2] * t0 + buf[SUMS + 4] * t1 + (buf[SUMS + 5] + prior) * t2
    low, high = 0.0, 2.0 * (abs(v0) + abs(v1) + abs(v2)) / radius
    for _ in range(HALVINGS):
        mu = 0.5 * (low + high)
        x0, x1, x2 = _solved(buf, mu, v0, v1, v2)
        length = math.sqrt(x0 * x0 + x1 * x1 + x2 * x2)
        if length > radius:
            low = mu
        else:
            high = mu
            if length >= (1.0 - CLOSE) * radius:
                break
    return _solved(buf, high, v0, v1, v2)


@inlined
def _platt_event(buf: Array, p: float, y: float, w: float) -> float:
    x = log_odds(p, buf[INNER])
    q = _forecast(buf, p, x, 1.0, 0.0)  # the third feature is 0: its coefficient stays 0
    if w > 0.0:
        _newton_step(buf, (q - y) * x, q - y, 0.0, w)
    return q


@inlined
def _beta_event(buf: Array, p: float, y: float, w: float) -> float:
    inner = min(max(p, buf[INNER]), 1.0 - buf[INNER])
    x0, x1 = math.log(inner), -math.log1p(-inner)
    q = _forecast(buf, p, x0, x1, 1.0)
    if w > 0.0:
        _newton_step(buf, (q - y) * x0, (q - y) * x1, q - y, w)
    return q


@brief
def platt_learn(buf: Array, p: float, y: float, w: float) -> float:
    """Predict, and learn if w > 0: see :class:`OnlinePlatt`; nan if the event is not allowed."""
    p = unit(p)
    return _platt_event(buf, p, y, w) if p == p and allowed(y, w) else np.nan


@kernel
def _platt_run(buf: Array, p: Array, y: Array, w: Array, out: Array) -> None:
    for i in range(p.shape[0]):
        out[i] = _platt_event(buf, p[i], y[i], w[i])


@brief
def beta_learn(buf: Array, p: float, y: float, w: float) -> float:
    """Predict, and learn if w > 0: see :class:`OnlineBeta`; nan if the event is not allowed."""
    p = unit(p)
    return _beta_event(buf, p, y, w) if p == p and allowed(y, w) else np.nan


@kernel
def _beta_run(buf: Array, p: Array, y: Array, w: Array, out: Array) -> None:
    for i in range(p.shape[0]):
        out[i] = _beta_event(buf, p[i], y[i], w[i])


class OnlineNewton(Compiled):
    """What both share: the settings, the start and the buffer of 15 numbers."""

    prior: float
    radius: float
    start: ClassVar[tuple[float, float, float]]

    def __init__(
        self, forgetting: float = 1.0, beta: float = 1.0, prior: float = 10.0, clip: float = 0.01, radius: float = 100.0
    ) -> None:
        given = dict(zip(self.settings, (forgetting, beta, prior, clip, radius), strict=True))
        for name, value in given.items():
            setattr(self, name, check_number(name, value, *LIMITS[name]))
        buf = np.zeros(SIZE)
        buf[FORGETTING:THETA] = [getattr(self, name) for name in self.settings]
        buf[THETA:SUMS] = self.start
        self._begin(buf)

    @property
    def curvature_(self) -> Array:
        """A, the matrix of the step, shape (3, 3): ``prior`` on the diagonal plus the (faded) sum of w g g^T."""
        upper = np.zeros((3, 3))
        upper[np.triu_indices(3)] = self._buf[SUMS:]
        return np.asarray(upper + np.triu(upper, 1).T + self.prior * np.eye(3))

    def _is_sound(self, buffer: Array) -> bool:
        """Our settings, a whole count, coefficients in the ball and the sums of that many events; no event: the start."""
        count, sums = buffer[COUNT], buffer[SUMS:]
        if not np.isfinite(buffer).all() or (buffer[FORGETTING:THETA] != self._buf[FORGETTING:THETA]).any():
            return False
        if count == 0.0:
            return bool((sums == 0.0).all() and tuple(buffer[THETA:SUMS]) == self.start)
        # An event adds w g g^T with |g|^2 at most that of the features: larger sums were never written by one.
        if not 0.0 < count <= 2.0**53 or count % 1.0 or np.abs(sums).max() > HEAVIEST * LARGEST * count:
            return False
        s00, s01, s02, s11, s12, s22 = sums.tolist()
        # Sums of w g g^T have no negative eigenvalue, and the elimination divides by pivots that rely on it.
        minors = (s00 * s11, s01), (s00 * s22, s02), (s11 * s22, s12)
        positive = min(s00, s11, s22) >= 0.0 and all(b * b <= a * NEARLY for a, b in minors)
        return bool(positive and math.hypot(*buffer[THETA:SUMS].tolist()) <= self.radius * NEARLY)


def coefficient(k: int, said: str) -> Any:
    """A property that reads one of theta, and says this of it."""
    return property(lambda self: float(self._buf[THETA + k]), doc=said)


@online("platt")
class OnlinePlatt(OnlineNewton):
    r"""p -> sigmoid(``slope_`` x + ``intercept_`` + o): logistic regression on the log-odds x, one online Newton step per event.

    .. math:: g = (q - y) \begin{pmatrix} x \\ 1 \end{pmatrix}, \quad A \leftarrow f (A - A_0) + A_0 + w \, g g^\top, \quad
              \theta \leftarrow \Pi \left( \theta - \tfrac{w}{\beta} A^{-1} g \right), \quad A_0 = \text{prior} \cdot I

    x is logit(p) with p clipped to [clip, 1 - clip], which bounds g, and o = logit(p clipped to 1e-12) - x: beyond the clip the
    map goes on with slope 1 in log-odds, so that rare-event predictions keep their order (the paper clips them together); a
    wrong slope out there is not repaired: lower ``clip`` if many predictions lie there. theta starts at (1, 0), the identity;
    before any event p comes back as it is, to the last bit.

    - ``forgetting`` f, 0.5 to 1: 1 remembers all events alike, 0.999 follows drift with a memory of about 1,000 events.
    - ``beta``, 1e-3 to 1e3: one over the length of a step. ``prior``, 1e-6 to 1e9: how stiff the start is, in units of A.
    - ``clip``, 1e-12 to 0.4, a probability. ``radius``, 2 to 1e6: theta stays in the ball of this radius, by the projection Pi
      in the norm of A.

    A weight enters A and the step: w events at once up to a term of w^2, so for weights of the size of 1 or below. Weights that
    are all c act as weights 1 with prior / c. An event forgets once, whatever its weight; of weight 0, not at all.

    Guaranteed, for any sequence of p in [1e-12, 1 - 1e-12] and y, weights 1 and f = 1: after T events the log loss exceeds that
    of any fixed theta* in the ball (same x and o) by at most, in nats and with k = 2 features,

    .. math:: \tfrac{\beta}{2} \left( \text{prior} \, |\theta^* - \theta_1|^2 + \sum_t (g_t \cdot (\theta_t - \theta^*))^2 \right)
              + \tfrac{k}{2 \beta} \ln \left( 1 + \tfrac{1}{k \, \text{prior}} \sum_t |g_t|^2 \right)

    Hazan's theorem removes the middle term, for a beta far below 1 (half the smaller of 1 / (4 G D) and the exp-concavity).
    The default is not that small: 12 nats at 10,000 and 14 at 100,000 iid events (means of 10 streams) are measured, not proved.
    NOT guaranteed: that the slope stays positive, calibration where the truth is not of this form, a bound when forgetting.
    O(1) per event, 15 numbers. Source: Gupta, Ramdas 2023; Hazan, Agarwal, Kale 2007. Forgetting and the offset o are ours.

    >>> map = OnlinePlatt()
    >>> map.predict_one(0.9)
    0.9
    >>> _ = map.run([0.9, 0.1] * 200, [1, 0, 1, 0, 0, 1, 1, 0] * 50)
    >>> round(map.predict_one(0.9), 2), round(map.slope_, 2), round(map.intercept_, 2)
    (0.77, 0.54, 0.01)
    """

    start = (1.0, 0.0, 0.0)
    _learn, _run = platt_learn, _platt_run

    slope_ = coefficient(0, "Coefficient of the log-odds.")
    intercept_ = coefficient(1, "Constant, in log-odds.")


@online("beta")
class OnlineBeta(OnlineNewton):
    r"""p -> sigmoid(``a_`` ln p - ``b_`` ln(1 - p) + ``c_`` + o): the ends bend on their own, one online Newton step per event.

    As :class:`OnlinePlatt` with the features (ln p, -ln(1 - p), 1) of p clipped to [clip, 1 - clip] and k = 3: the same step,
    offset o beyond the clip, settings, weights and bound. theta starts at (1, 1, 0), the identity. One more coefficient to
    learn costs about 6 nats more of log loss (18 at 10,000 iid events of Platt's form, the mean of 10 streams). NOT guaranteed:
    that a and b stay positive; unlike :class:`BetaCalibration` nothing here keeps the map rising.
    O(1) per event, 15 numbers. Source: Kull, Silva Filho, Flach 2017; Gupta, Ramdas 2023.

    >>> map = OnlineBeta()
    >>> map.predict_one(0.9)
    0.9
    >>> _ = map.run([0.9, 0.1] * 200, [1, 0, 1, 0, 0, 1, 1, 0] * 50)
    >>> round(map.predict_one(0.9), 2), round(map.predict_one(0.1), 2)
    (0.77, 0.23)
    """

    start = (1.0, 1.0, 0.0)
    _learn, _run = beta_learn, _beta_run

    a_ = coefficient(0, "Coefficient of ln p.")
    b_ = coefficient(1, "Coefficient of -ln(1 - p).")
    c_ = coefficient(2, "Constant, in log-odds.")
