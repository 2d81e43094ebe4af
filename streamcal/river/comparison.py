"""A pipeline over a dataset, once: what its classifier said and what recalibration made of it, side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from river import base, compose, stream

from streamcal.binning import EqualWidth
from streamcal.recalibrate import Online
from streamcal.river.classifier import RecalibratedClassifier
from streamcal.river.predictions import TRUTHS, is_missing, probabilities
from streamcal.snapshot import Snapshot
from streamcal.windows import Cumulative

NEAREST = 1e-15  # a probability nearer to 0 is read as this by the log loss
SHOWN = {"ece": "ECE", "k2_debiased": "k2, debiased", "log_loss": "log loss", "brier": "Brier score"}


class SideBySide(dict[str, Any]):
    """The result of :func:`compare`, a plain dict; ``print`` shows its table."""

    def __str__(self) -> str:
        lines = [f"{self['claim']}, {self['count']:,} labels", f"{'':<16}{'before':>12}{'after':>12}"]
        for name, shown in SHOWN.items():
            lines.append(f"{shown:<16}" + "".join(f"{self[when][name]:>12.5f}" for when in ("before", "after")))
        left_out = {name: self[name] for name in ("unpredicted", "unlabelled") if self[name]}
        return "\n".join(lines + [f"left out, {name}: {n:,}" for name, n in left_out.items()])


class Sums:
    """Raw (key 0) and recalibrated (key 1) probabilities of the same events."""

    def __init__(self, pos_val: Any) -> None:
        self.pos_val = pos_val
        self.classes: dict[Any, None] = {}  # in the order in which they came
        self.positive, self.top = (Cumulative(EqualWidth(15), keys=2, loss="log") for _ in range(2))
        self.weight, self.log_loss, self.brier = 0.0, [0.0, 0.0], [0.0, 0.0]

    def add(self, raw: Mapping[Any, float], served: Mapping[Any, float], y: Any, w: float) -> None:
        """Take one event in."""
        self.classes |= dict.fromkeys([*raw, *served, y])
        self.weight += w
        for key, probs in enumerate((raw, served)):
            best = max(probs, key=probs.__getitem__)
            self.positive.update(probs.get(self.pos_val, 0.0), y == self.pos_val, w, key)
            self.top.update(probs[best], best == y, w, key)
            of_label = probs.get(y, 0.0)
            self.log_loss[key] -= w * math.log(max(of_label, NEAREST))
            squares = sum(p * p for p in probs.values()) - of_label * of_label
            self.brier[key] += w * (squares + (1.0 - of_label) ** 2)

    @property
    def binary(self) -> bool:
        """Whether there are no labels but the positive one and one more."""
        return len(self.classes) <= 2 and self.pos_val in self.classes

    def report(self, key: int) -> dict[str, Any]:
        """streamcal's report of one forecaster, and the four numbers of the table."""
        weight = self.weight or math.nan
        window: Snapshot = (self.positive if self.binary else self.top).snapshot()[key]
        report = window.report()
        return {
            **report,
            "ece": report["metrics"]["ece"]["value"],
            "k2_debiased": report["metrics"]["k2_debiased"]["value"],
            "log_loss": self.log_loss[key] / weight,
            "brier": self.brier[key] / weight / (2.0 if self.binary else 1.0),
        }


def compare(
    model: Any,
    dataset: Any,
    moment: Any = None,
    delay: Any = None,
    recalibrator: Online | None = None,
    pos_val: Any = True,
) -> SideBySide:
    """Progressive validation of a classifier before and after recalibration: each forecast is made before its label is learned.

    ``model``: a RecalibratedClassifier, a pipeline that ends with one, or any other classifier, which is then wrapped with
    ``recalibrator`` (default: that of RecalibratedClassifier). It learns, in place. ``dataset``, ``moment`` and ``delay`` are
    those of River's ``progressive_val_score``: with a delay both forecasts are those of the moment of the question, and the
    label is learned when it comes, with the score that was served, also inside a pipeline: each event has its number as ``id``,
    if the dataset gives none. With labels ``pos_val`` and one other, the reports are those of the probability of
    ``pos_val``, with more classes those of the top label.

    Returns a dict: ``before`` and ``after`` (streamcal's report of the raw and of the recalibrated forecasts, with ``ece``,
    ``k2_debiased``, ``log_loss`` of the label, read as at least 1e-15, and ``brier``: with two classes of the positive one, else
    the sum over all), ``count``, ``claim``, ``model`` (the RecalibratedClassifier, with its own ``report()``), and what is
    in neither report: ``unpredicted`` (the classifier said nothing, as many do before they have learned) and ``unlabelled``
    (None or nan came). ``print`` shows a table. State: sums only, and the forecasts that wait for a label.

    >>> from river import datasets, naive_bayes
    >>> print(compare(naive_bayes.GaussianNB(), datasets.Phishing(), delay=100))
    probability of True, 1,150 labels
                          before       after
    ECE                  0.07740     0.04187
    k2, debiased         0.00803     0.00279
    log loss             0.56956     0.38283
    Brier score          0.09868     0.10031
    left out, unpredicted: 100
    """
    model, wrapper = _wrapped(model, recalibrator)
    sums, waiting, counts = Sums(pos_val), dict[int, Any](), {"unpredicted": 0, "unlabelled": 0}
    for i, x, y, *extra in stream.simulate_qa(dataset, moment, delay):
        options = {"id": i, **(extra[0] if extra else {})}
        w = options.pop("w", 1.0)
        if y is None and i not in waiting:
            waiting[i] = _both(model, wrapper, x, options)
            continue
        raw, served = waiting.pop(i)
        if is_missing(y):
            counts["unlabelled"] += 1
        elif not raw or any(map(math.isnan, raw.values())):
            counts["unpredicted"] += 1
        else:
            sums.add(raw, served, y, w)
        model.learn_one(x, y, w=w, **options)
    top = sums.top.snapshot()[0]
    return SideBySide(
        before=sums.report(0),
        after=sums.report(1),
        count=int(top.count.sum()),
        claim=f"probability of {pos_val!r}" if sums.binary else "top label",
        model=wrapper,
        **counts,
    )


def _wrapped(model: Any, recalibrator: Online | None) -> tuple[Any, RecalibratedClassifier]:
    """The model that is run, and the RecalibratedClassifier at its end."""
    last = model
    while isinstance(last, compose.Pipeline):
        last = last._last_step
    if not isinstance(last, base.Classifier):
        raise ValueError(f"model must be a classifier or a pipeline that ends with one, got {model!r:.200}")
    if not isinstance(last, RecalibratedClassifier):
        last = model = RecalibratedClassifier(model, recalibrator)
    elif recalibrator is not None:
        raise ValueError(
            f"the model has a recalibrator, {last.recalibrator!r}; leave recalibrator out, got {recalibrator!r}"
        )
    return model, last


def _both(model: Any, wrapper: RecalibratedClassifier, x: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """Probabilities by label: the classifier's own and the recalibrated ones."""
    served = model.predict_proba_one(x, **options)
    while isinstance(model, compose.Pipeline):
        x, model = model._transform_one(x, options)
    options = {name: option for name, option in options.items() if name != "id"}
    raw = probabilities(wrapper.classifier.predict_proba_one(x, **options))
    if len(raw) == 1 and isinstance(label := next(iter(raw)), TRUTHS):
        raw[not label] = 1.0 - raw[label]  # of two labels the one that is left out has the rest
    return raw, probabilities(served)
