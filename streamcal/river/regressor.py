"""A regressor around a regressor: bounded means that are right on average, quantiles and intervals that cover as said."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from river import base, conf

from streamcal.arrays import check_number, one_number
from streamcal.limits import LARGEST
from streamcal.recalibrate import Online
from streamcal.recalibrate.guard import ServedGuard
from streamcal.recalibrate.multiclass import ClassMaps
from streamcal.recalibrate.online import check_online
from streamcal.river.residuals import IntervalResiduals, QuantileResiduals
from streamcal.river.wrapper import RecalibratingWrapper, ids_of, rows_of, series_of, values_of


class MeanMap:
    """A forecast of a mean in [low, high], scaled to [0, 1], through the map of a probability, and back.

    The default is that of :class:`RecalibratedClassifier`, so that ``low=0, high=1`` and targets 0 and 1 give its numbers.
    """

    def __init__(self, recalibrator: Online | None, low: float, high: float) -> None:
        self.low, self.high = (check_number(n, x, -LARGEST, LARGEST) for n, x in (("low", low), ("high", high)))
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got {low!r} and {high!r}")
        default = recalibrator is None
        self.map = ServedGuard() if default else ClassMaps(check_online("recalibrator", recalibrator))
        self.map.grow()
        self.heaviest = self.map.heaviest

    def _share(self, v: float) -> float:
        return min(max((v - self.low) / (self.high - self.low), 0.0), 1.0)

    def serve(self, v: float, slot: int) -> float:
        """The recalibrated mean; what it was made of is kept in this slot. A forecast outside of [low, high]: the nearer end."""
        q = self.map.serve_two(self._share(v), slot)
        return min(max(self.low + (self.high - self.low) * q, self.low), self.high)

    def learn(self, slot: int, y: float, w: float, late: int) -> None:
        """Learn that y in [low, high] came where this slot was served."""
        self.map.learn(slot, self._share(y), w, late)

    def report(self) -> dict[str, Any]:
        """That of the map, on the scale [0, 1]; ``log_loss`` of what was served, and of each expert, per unit of weight.

        Targets between 0 and 1 have one too, y ln(1 / q) + (1 - y) ln(1 / (1 - q)), which no forecast brings to 0.
        """
        found = self.map.report()
        (only,) = found.pop("classes")
        if isinstance(self.map, ClassMaps) and "experts" in only:
            weight = float(self.map.losses[0]) or math.nan
            only = {**only, "experts": [{**one, "log_loss": one["log_loss"] / weight} for one in only["experts"]]}
        return {**only, **found}


class RecalibratedRegressor(RecalibratingWrapper, base.Wrapper[base.Regressor], base.Regressor):
    r"""A regressor whose forecasts are recalibrated while it learns. Exactly one of three things is asked for.

    A bounded mean (``low=, high=``): ``predict_one(x)`` is the forecast scaled to [0, 1], through ``recalibrator``, and scaled
    back: always in [low, high]. A quantile (``level=``): the base forecasts it (say, it minimises pinball loss) and
    ``predict_one(x)`` is that forecast plus an offset. An interval (``interval=``): ``predict_one(x, with_interval=True)`` is a
    river.conf.Interval about the base forecast, which ``predict_one(x)`` gives as it is. The last two learn from residuals
    y - v in units of their running scale s, a fading mean absolute residual:

    .. math:: \text{quantile} = v + s\, o, \qquad \text{interval} = [\, v - s\, o_-,\; v + s\, o_+ \,]

    - ``regressor``: any River regressor, or a pipeline that ends with one: the base.
    - ``recalibrator``: of a bounded mean, any of streamcal's online ones of probabilities, copied. Default: the guard that
      RecalibratedClassifier has (:class:`~streamcal.recalibrate.guard.ServedGuard`); with ``low=0, high=1`` and targets 0 and 1
      the same scores give the same numbers there and here, to the last bit.
    - ``low``, ``high``: between which the targets lie; a target outside is learned by the base alone.
    - ``level``: of the quantile, in (0, 1).
    - ``interval``: the nominal coverage, in (0, 1).
    - ``method``: "tracker": each offset o is a QuantileTracker; "multivalid": a MultivalidQuantile, which needs some thousand
      events (measured: coverage within .04 of nominal at T = 5,000, .02 at 40,000), the tracker some hundred.
    - ``symmetric``: one offset for both ends of an interval.
    - ``lr``: step of a tracker, in scales.
    - ``half_life``: of the running scale, in events.
    - ``m``, ``span``, ``seed``: of "multivalid": so many buckets within ``span`` scales of the start, and its draws. Quantile
      offsets start at 0, interval offsets at those of normal residuals, where "multivalid" begins ``span`` further out.
    - ``memory``: at most so many forecasts wait for their target.

    Guarantee (tracker, weights 1): let residuals be within b scales of the start. Over the T events after the first residual
    other than 0, each end is missed with frequency :math:`\alpha` up to (b + lr) / (lr T), whatever the data; :math:`\alpha` is
    1 - level, or (1 - interval) / 2 for each end, or 1 - interval for both together if symmetric. As s is known before y, this
    is the tracker's theorem. Ends that cross are swapped, which can only cover more. NOT guaranteed: coverage given x or
    over a part of the stream; a small width: :meth:`report` has both, for the normal interval ("before") and the served one.

    Before any event a mean or quantile comes back as the base gave it, and an interval is [v, v].

    A target is learned with what was *served* for its x, found by ``id=`` or by its features, as in
    :class:`~streamcal.river.classifier.RecalibratedClassifier` (inside a pipeline: ids, or put the pipeline into this); else the
    base, before it learns, predicts x again, which with late targets is another forecast.

    Late targets (tracker): an end moves by whether what was *served* was missed, in steps of lr / (1 + d / 5) for a target that
    comes d targets late (d: how many were learned since its forecast; at least their fading mean, so that a mini-batch counts
    as one). Guaranteed, with weights 1 and all T targets d late, whatever the data: each served end is missed with frequency
    :math:`\alpha` up to (b + 5 lr)(1 + d / 5) / (lr T); with other delays frequencies weighted by the steps are, up to (b + the
    steps of the targets that are on their way at once) / (sum of all steps).
    NOT guaranteed: anything to speak of before T is some hundred d. Until then the intervals stay near the normal ones at the
    running scale, which is as old as the targets are late (measured: coverage at least that of those or .9, whichever is lower,
    less .015; in blocks of 500 events less .06); coverage of what is served before the first target comes ([v, v]), or after a
    change before its targets do; anything for "multivalid", which learns late targets as if each had been served just before.

    Counted: targets learned as served (``served``) or as predicted again (``repredicted``), forecasts that wait (``waiting``) or
    were dropped (``forgotten``); targets that are None, nan, infinite or no numbers, which nobody learns (``refused``); targets
    outside of [low, high] (``outside``) and those whose forecast is no number within 1e100 (``unusable``), which the base learns
    alone; such a forecast is given back as it is. ``w=`` weighs an event for both, for the base if it takes weights.
    ``learn_many`` and ``predict_many`` are there where the base has them.

    River's evaluation never asks for intervals: in ``progressive_val_score`` Coverage would judge the base forecast as if it were
    a quantile. Write the loop, as below. For a bounded mean with an interval put one into the other.

    Source: Gibbs, Candes 2021 (tracker); Bastani, Gupta, Jung, Noarov, Ramalingam, Roth 2022 (multivalid). The rule for late
    targets is ours, after Joulani, Gyorgy, Szepesvari 2013.

    >>> from river import datasets, linear_model, preprocessing
    >>> from streamcal.river import Coverage
    >>> model = preprocessing.StandardScaler() | linear_model.LinearRegression(intercept_lr=0.1)
    >>> model = RecalibratedRegressor(model, interval=0.9)
    >>> metric = Coverage(level=0.9)
    >>> for x, y in datasets.TrumpApproval():
    ...     metric.update(y, model.predict_one(x, with_interval=True))
    ...     model.learn_one(x, y)
    >>> round(metric.get(), 2)
    0.9
    >>> {name: round(value, 2) for name, value in model.report()["coverage"].items()}
    {'before': 0.94, 'after': 0.9, 'nominal': 0.9}
    """

    counted = (*RecalibratingWrapper.counted[:-1], "outside", "unusable")

    def __init__(
        self,
        regressor: Any,
        recalibrator: Online | None = None,
        low: float | None = None,
        high: float | None = None,
        level: float | None = None,
        interval: float | None = None,
        method: str = "tracker",
        symmetric: bool = False,
        lr: float = 0.1,
        half_life: float = 50.0,
        m: int = 40,
        span: float = 4.0,
        seed: int = 0,
        memory: int = 10_000,
    ) -> None:
        self.regressor, self.recalibrator, self.memory = regressor, recalibrator, memory
        self.low, self.high, self.level, self.interval = low, high, level, interval
        self.method, self.symmetric, self.lr, self.half_life = method, symmetric, lr, half_life
        self.m, self.span, self.seed = m, span, seed
        if not isinstance(regressor, base.Regressor):
            raise ValueError(
                f"regressor must be a River regressor, or a pipeline that ends with one, got {regressor!r:.80}"
            )
        self._map = self._new_map()
        self._start(memory, self._map.heaviest)
        self.outside = 0

    def _new_map(self) -> MeanMap | QuantileResiduals | IntervalResiduals:
        bounded = self.low is not None and self.high is not None
        if [bounded, self.level is not None, self.interval is not None].count(True) != 1 or bounded != (
            self.low is not None or self.high is not None
        ):
            given = {name: getattr(self, name) for name in ("low", "high", "level", "interval")}
            raise ValueError(f"give exactly one of low= and high= together, level=, or interval=, got {given}")
        if self.low is not None and self.high is not None:
            return MeanMap(self.recalibrator, self.low, self.high)
        if self.recalibrator is not None:
            raise ValueError(f"recalibrator goes with low= and high= only, got {self.recalibrator!r:.80}")
        offset = {name: getattr(self, name) for name in ("method", "lr", "m", "span", "seed")}
        if self.level is not None:
            return QuantileResiduals(self.level, self.half_life, **offset)
        assert self.interval is not None
        return IntervalResiduals(self.interval, self.half_life, self.symmetric, **offset)

    @property
    def _wrapped_model(self) -> Any:
        return self.regressor

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from river import linear_model, preprocessing

        for given in ({"interval": 0.9}, {"level": 0.9}, {"low": 0.0, "high": 100.0}):
            yield {"regressor": preprocessing.StandardScaler() | linear_model.LinearRegression(), **given}

    def predict_one(self, x: Any, with_interval: bool = False, *, id: Hashable | None = None, **kwargs: Any) -> Any:
        """The recalibrated mean or quantile; with ``interval=`` the base forecast, or the interval about it.

        It is remembered for the target of x, or of ``id``.
        """
        about = isinstance(self._map, IntervalResiduals)
        if with_interval and not about:
            raise ValueError("with_interval=True needs interval=, the nominal coverage, got None")
        raw = self.regressor.predict_one(x, **kwargs)
        v = one_number(raw)
        if not abs(v) <= LARGEST:
            return conf.Interval(v, v) if with_interval else raw
        served: Any = self._map.serve(v, self._waiting.remember(x, id))
        if with_interval:
            return conf.Interval(*served)
        return v if about else served

    def _label(self, y: Any) -> float:
        return one_number(y)

    def _outcome(self, y: float) -> float | None:
        if math.isfinite(y):
            return y
        self.refused += 1
        return None

    def _weight(self, w: Any) -> float:
        return check_number("w", w, 0.0, self._map.heaviest)

    def _learn(self, x: Any, outcome: float, w: float, id: Hashable | None) -> None:
        """Let the map learn, if it can: what was served for x, else what would be served now (to nobody: slot 0)."""
        slot, late, usable = self._waiting.take(x, id), 0, True
        if not slot:
            self.repredicted += 1
            v, late = one_number(self.regressor.predict_one(x)), len(self._waiting)
            usable = abs(v) <= LARGEST
            if usable:
                self._map.serve(v, 0)
        if not usable or abs(outcome) > LARGEST:
            self.unusable += 1
        elif not self._map.low <= outcome <= self._map.high:
            self.outside += 1
        else:
            self._map.learn(slot, outcome, w, late)

    @property
    def predict_many(self) -> Callable[..., Any]:
        """``predict_many(X)``: what predict_one gives for each row, a series of the kind of X; each row is remembered."""
        self.regressor.predict_many  # noqa: B018
        return self._predict_many

    def _predict_many(self, X: Any, *, id: Any = None, **kwargs: Any) -> Any:
        ids = ids_of(id, len(X))
        raw = self.regressor.predict_many(X, **kwargs)
        about, served = isinstance(self._map, IntervalResiduals), values_of(raw)
        for i, (x, which) in enumerate(zip(rows_of(X), ids, strict=True)):
            v = one_number(served[i])
            if abs(v) <= LARGEST:
                q = self._map.serve(v, self._waiting.remember(x, which))
                served[i] = v if about else q
        return series_of(served, getattr(raw, "name", None), X)

    def report(self) -> dict[str, Any]:
        """What recalibration did: ``before`` and ``after``, ``coverage`` beside ``width``, and the ``counts``.

        Intervals: mean coverage, width and interval score of the normal interval at the running scale ("before") and of the
        served one. Quantiles: streamcal's report of the base's forecasts and of the served ones, and ``moved``, what was added on
        average. Both: ``scale``, ``lateness`` of the targets (a fading mean), and ``ends``: how far each end was from the base
        forecast, ``offset`` in scales, from its ``start``. Means: streamcal's report on the scale [0, 1]; ``log_loss``: means,
        also of the ``experts`` of a guard, whose ``excess`` and ``bound`` are sums. ``refused``, ``outside`` and ``unusable``
        events are in none of them.
        """
        return {**self._map.report(), "counts": self.counts}
