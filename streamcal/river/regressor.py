"""A regressor around a regressor: bounded means that are right on average, quantiles and intervals that cover as said."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from numbers import Real
from typing import Any

from river import base, conf

from streamcal.arrays import one_number
from streamcal.recalibrate import Guard, Online
from streamcal.recalibrate.online import check_online
from streamcal.recalibrate.quantile_tracking import LARGEST, check_number
from streamcal.river.classifier import takes_weights
from streamcal.river.frames import check_lengths, ids_of, kept, rows_of, series_of, values_of
from streamcal.river.residuals import IntervalResiduals, QuantileResiduals
from streamcal.river.served import Served


class MeanMap:
    """A forecast of a mean in [low, high], scaled to [0, 1], through an online recalibrator, and back."""

    def __init__(self, recalibrator: Online | None, low: float, high: float) -> None:
        self.low, self.high = (check_number(n, x, -LARGEST, LARGEST) for n, x in (("low", low), ("high", high)))
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got {low!r} and {high!r}")
        self.map = Guard() if recalibrator is None else check_online("recalibrator", recalibrator)
        self.heaviest = self.map.heaviest

    def _share(self, v: float) -> float:
        return min(max((v - self.low) / (self.high - self.low), 0.0), 1.0)

    def serve(self, v: float) -> tuple[float, float, float]:
        """(share of v, its recalibrated share, the recalibrated mean): a slip that goes to :meth:`learn` with the outcome.

        A forecast outside of [low, high] is read as the nearer end.
        """
        p = self._share(v)
        q = self.map.predict_one(p)
        return p, q, min(max(self.low + (self.high - self.low) * q, self.low), self.high)

    def learn(self, slip: tuple[float, float, float], y: float, w: float) -> None:
        """Learn that y in [low, high] came where this was served."""
        p, q, _ = slip
        self.map._take(p, self._share(y), w)
        self.map.compared.record(p, q, self._share(y), w)

    def report(self) -> dict[str, Any]:
        """That of the recalibrator, on the scale [0, 1]; ``log_loss`` of what was served, and of each expert, per unit of weight.

        Targets between 0 and 1 have one too, y ln(1 / q) + (1 - y) ln(1 / (1 - q)), which no forecast brings to 0.
        """
        said, compared = self.map.report(), self.map.compared
        before, after = compared.before, compared.after
        if isinstance(self.map, Guard):
            weight = float(before.weight.sum()) or math.nan
            said["experts"] = [{**one, "log_loss": one["log_loss"] / weight} for one in said["experts"]]
        return {**said, "log_loss": {"before": float(before.get("log_loss")), "after": float(after.get("log_loss"))}}


class RecalibratedRegressor(base.Wrapper[base.Regressor], base.Regressor):
    r"""A regressor whose forecasts are recalibrated while it learns. Exactly one of three things is asked for.

    ``low=, high=``: the target is bounded, the base forecasts its mean. ``predict_one(x)`` is the forecast scaled to [0, 1],
    through ``recalibrator`` (any of streamcal's online ones, copied; default Guard()), and scaled back: always in [low, high].

    ``level=``: the base forecasts this quantile (say, it minimises pinball loss). ``predict_one(x)`` is that forecast plus an
    offset. ``interval=``: the nominal coverage of ``predict_one(x, with_interval=True)``, a river.conf.Interval about the base
    forecast, which ``predict_one(x)`` gives as it is. Both learn from residuals y - v in units of their running scale s, a
    mean absolute residual that fades with ``half_life`` events:

    .. math:: \text{quantile} = v + s\, o, \qquad \text{interval} = [\, v - s\, o_-,\; v + s\, o_+ \,]

    ``method="tracker"``: each offset o is a QuantileTracker with step ``lr`` (in scales); "multivalid": a MultivalidQuantile of
    ``m`` buckets within ``span`` scales of its start, with ``seed``. Quantile offsets start at 0, interval offsets at those of
    normal residuals, where "multivalid" begins ``span`` further out; it needs some thousand events (measured: coverage within
    .04 of nominal at T = 5,000, .02 at 40,000), the tracker some hundred. ``symmetric=True``: one offset for both ends.

    Guarantee (tracker, weights 1): let residuals be within b scales of the start. Over the T events after the first residual
    other than 0, each end is missed with frequency :math:`\alpha` up to (b + lr) / (lr T), whatever the data; :math:`\alpha` is
    1 - level, or (1 - interval) / 2 for each end, or 1 - interval for both together if symmetric. As s is known before y, this
    is the tracker's theorem. Ends that cross are swapped, which can only cover more. NOT guaranteed: coverage given x or
    over a part of the stream; a small width: :meth:`report` has both, for the normal interval ("before") and the served one.

    Before any event a mean or quantile comes back as the base gave it, and an interval is [v, v].

    A target is learned with what was *served* for its x, found by ``id=`` or by its features while at most ``memory`` wait, as in
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
    alone; such a forecast is given back as it is. ``w=`` weighs an event for both, for the base if it takes weights; Guard()
    takes weights up to 1. ``learn_many`` and ``predict_many`` are there where the base has them.

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
        self.regressor = regressor
        self.recalibrator = recalibrator
        self.low = low
        self.high = high
        self.level = level
        self.interval = interval
        self.method = method
        self.symmetric = symmetric
        self.lr = lr
        self.half_life = half_life
        self.m = m
        self.span = span
        self.seed = seed
        self.memory = memory
        if not isinstance(regressor, base.Regressor):
            raise ValueError(
                f"regressor must be a River regressor, or a pipeline that ends with one, got {regressor!r:.80}"
            )
        self._map = self._new_map()
        self._waiting = Served(memory)
        self._slips: list[Any] = [None]  # what was served, by place
        self._takes_weights = takes_weights(regressor.learn_one)
        self.repredicted = self.refused = self.outside = self.unusable = 0

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

    @property
    def served(self) -> int:
        """Targets that were learned with what was served for them."""
        return self._waiting.found

    @property
    def forgotten(self) -> int:
        """Forecasts that were dropped before their target came."""
        return self._waiting.forgotten

    @property
    def waiting(self) -> int:
        """Forecasts that wait for their target."""
        return len(self._waiting)

    def predict_one(self, x: Any, with_interval: bool = False, *, id: Hashable | None = None, **kwargs: Any) -> Any:
        """The recalibrated mean or quantile; with ``interval=`` the base forecast, or the interval about it.

        It is remembered for the target of x, or of ``id``.
        """
        about = isinstance(self._map, IntervalResiduals)
        if with_interval and not about:
            raise ValueError("with_interval=True needs interval=, the nominal coverage, got None")
        said = self.regressor.predict_one(x, **kwargs)
        slip = self._serve(said, x, id)
        if with_interval:
            return conf.Interval(*(slip[-2:] if slip else [one_number(said)] * 2))
        return slip[0 if about else -1] if slip else said

    def _serve(self, said: Any, x: Any, id: Hashable | None) -> Any:
        """What is served for this base forecast, noted down for the target; None if it is not a number."""
        v = one_number(said)
        if not abs(v) <= LARGEST:
            return None
        slip, place = self._map.serve(v), self._waiting.remember(x, id)
        if place == len(self._slips):
            self._slips.append(slip)
        elif place:
            self._slips[place] = slip
        return slip

    def learn_one(self, x: Any, y: Any, *, w: float = 1.0, id: Hashable | None = None, **kwargs: Any) -> None:
        """Learn the target of x: first the map, with what was served, then the base.

        ValueError, and nothing is learned, if w is no weight (>= 0, up to what the map takes; 0 changes no map).
        """
        target = one_number(y)
        if not math.isfinite(target):
            self.refused += 1
            self._waiting.drop(x, id)
            return
        if w != 1.0:
            w = check_number("w", w, 0.0, self._map.heaviest)
            if self._takes_weights:
                kwargs["w"] = w
        self._learn(x, target, w, id)
        self.regressor.learn_one(x, target, **kwargs)

    def _learn(self, x: Any, y: float, w: float, id: Hashable | None) -> None:
        """Let the map learn, if it can."""
        place = self._waiting.take(x, id)
        slip = self._slips[place] if place else self._predicted_again(x)
        if slip is None or abs(y) > LARGEST:
            self.unusable += 1
        elif isinstance(self._map, MeanMap) and not self._map.low <= y <= self._map.high:
            self.outside += 1
        else:
            self._map.learn(slip, y, w)

    def _predicted_again(self, x: Any) -> Any:
        """What would be served now; None if the base does not forecast a number."""
        self.repredicted += 1
        v = one_number(self.regressor.predict_one(x))
        return self._map.serve(v) if abs(v) <= LARGEST else None

    @property
    def learn_many(self) -> Callable[..., None]:
        """``learn_many(X, y)``: as learn_one row by row for the map; then the base learns all rows at once.

        Rows whose target is missing are left out. ``w``: one weight, or a series of them; ``id``: a sequence of ids.
        """
        self.regressor.learn_many  # noqa: B018 - AttributeError if it has none
        return self._learn_many

    @property
    def predict_many(self) -> Callable[..., Any]:
        """``predict_many(X)``: what predict_one gives for each row, a series of the kind of X; each row is remembered."""
        self.regressor.predict_many  # noqa: B018
        return self._predict_many

    def _learn_many(self, X: Any, y: Any, *, w: Any = 1.0, id: Any = None, **kwargs: Any) -> None:
        xs, targets, one = rows_of(X), [one_number(v) for v in values_of(y)], isinstance(w, Real)
        weights = [check_number("w", v, 0.0, self._map.heaviest) for v in ([w] * len(xs) if one else values_of(w))]
        ids = ids_of(id, len(xs))
        check_lengths(xs, targets, weights)
        known = [math.isfinite(target) for target in targets]
        self.refused += known.count(False)
        for x, target, weight, which, known_one in zip(xs, targets, weights, ids, known, strict=True):
            if known_one:
                self._learn(x, target, weight, which)
            else:
                self._waiting.drop(x, which)
        if not all(known):
            name = getattr(y, "name", None)
            X, w = kept(X, known), w if one else kept(w, known)
            y = series_of([v for v, here in zip(targets, known, strict=True) if here], name, X)
        if not (one and w == 1.0) and takes_weights(self.regressor.learn_many):
            kwargs["w"] = w
        if any(known):
            self.regressor.learn_many(X, y, **kwargs)

    def _predict_many(self, X: Any, *, id: Any = None, **kwargs: Any) -> Any:
        ids = ids_of(id, len(X))
        said = self.regressor.predict_many(X, **kwargs)
        about, values = isinstance(self._map, IntervalResiduals), values_of(said)
        slips = [self._serve(v, x, which) for v, x, which in zip(values, rows_of(X), ids, strict=True)]
        served = [slip[0 if about else -1] if slip else v for slip, v in zip(slips, values, strict=True)]
        return series_of(served, getattr(said, "name", None), X)

    def report(self) -> dict[str, Any]:
        """What recalibration did: ``before`` and ``after``, ``coverage`` beside ``width``, and the ``counts``.

        Intervals: mean coverage, width and interval score of the normal interval at the running scale ("before") and of the
        served one. Quantiles: streamcal's report of the base's forecasts and of the served ones, and ``moved``, what was added on
        average. Both: ``scale``, ``lateness`` of the targets (a fading mean), and ``ends``: how far each end was from the base
        forecast, ``offset`` in scales, from its ``start``. Means: streamcal's report on the scale [0, 1]; ``log_loss``: means,
        also of the ``experts`` of a guard, whose ``excess`` and ``bound`` are sums. ``refused``, ``outside`` and ``unusable``
        events are in none of them.
        """
        names = ("served", "repredicted", "forgotten", "waiting", "refused", "outside", "unusable")
        return {**self._map.report(), "counts": {name: getattr(self, name) for name in names}}
