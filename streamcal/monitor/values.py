"""The values of a model as they come: what a prediction and a label mean, by the rules that hold for tables too.

Labels: the one outcome rule (:mod:`streamcal.reading.outcomes`), while a stream goes on. Each value that is neither 1, 0 nor
missing is counted by name, and none of them is taken as a negative before the configuration declares it. Scores: the ``scale``
of the configuration, bounds, and rows of class probabilities that sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streamcal.arrays import Array, numbers
from streamcal.limits import BOUNDS, LARGEST, SUM_TOLERANCE, is_allowed, is_distribution
from streamcal.monitor.config.settings import Model
from streamcal.monitor.events import Score
from streamcal.reading.cells import Scores
from streamcal.reading.outcomes import UNKNOWN, ClassLabels, Labels, Outcomes

MOST_KNOWN = 10_000  # values whose meaning is kept: more are numbers, not labels
ALONE = "missing"  # of labels that are numbers: the only one that is counted


class ModelValues:
    """Scores and labels of one model while they come. ``kept``: what :meth:`document` gave.

    >>> values = ModelValues(Model("churn", pos_label="left"))
    >>> [values.outcome(label)[0] for label in ("left", "stayed", None, "Left")]
    [1.0, 0.0, nan, nan]
    >>> values.status()["unknown"], values.status()["missing"]
    ({'stayed': 1, 'Left': 1}, 1)
    """

    def __init__(self, model: Model, kept: Mapping[str, int] | None = None) -> None:
        self.model = model
        self.missing = 0  # of labels that are numbers
        self.labels = rule_of(model)
        self.scales = Scores(model.scale)
        self._known: dict[tuple[type, Any], tuple[float, str, int]] = {}  # what labels mean that came before
        self._more: dict[int, int] = {}  # how often each came by its number, which the rule has not counted yet
        if self.labels is None:
            self.missing = (kept or {}).get(ALONE, 0)
        else:
            self.labels.take_over(kept or {})

    # -- labels --------------------------------------------------------------------------------------------------------

    def outcome(self, given: Any) -> tuple[float, str]:
        """A label as a number, counted: nan if it is missing; nan and the reason if it is not allowed."""
        if self.labels is None:
            return self._number(given)
        try:
            found = self._known.get((type(given), given))
        except TypeError:  # a list or an object: no label at all, which says nothing about the others
            return math.nan, f"y must be {self._allowed(self.labels)}, got {given!r:.80}"
        if found is None:
            found = self._meaning(self.labels, given)
        self._more[found[2]] = self._more.get(found[2], 0) + 1
        return found[:2]

    def _meaning(self, rule: Labels, given: Any) -> tuple[float, str, int]:
        before = rule.distinct
        number = int(rule.numbers([given])[0])
        y, why = float(rule.outcomes(np.array([number]))[0]), ""
        if y == y and (y == UNKNOWN or not rule.settled):
            y, why = math.nan, f"y must be {self._allowed(rule)}, got {given!r:.80}"
        if rule.distinct > before or len(self._known) > MOST_KNOWN:
            self._known.clear()
        self._known[type(given), given] = y, why, number
        return y, why, number

    def _allowed(self, rule: Labels) -> str:
        model = self.model
        if model.classes:
            way = "" if rule.settled else f'; declare labels = "names" or "indices" in [models.{model.name}]'
            return f"one of {', '.join(model.classes)}, all by name or all by index{way}"
        declare = f"declared in [models.{model.name}]"
        if model.pos_label is None:
            return f"0/1, true/false or yes/no, or {declare} by pos_label, neg_label and missing"
        others = "" if model.neg_label else ", or the only other value there is"
        return f"pos_label {model.pos_label!r}{others}, or {declare} by neg_label or missing"

    def _number(self, given: Any) -> tuple[float, str]:
        """A label of a model whose outcomes are numbers."""
        if given is None:
            self.missing += 1
            return math.nan, ""
        number = float(given) if type(given) in (int, float) and -LARGEST <= given <= LARGEST else math.nan
        if self.model.claim != "mean":
            good, allowed = math.isfinite(number), "a finite number"
        else:
            number = float(given) if type(given) is bool else number
            good, allowed = 0.0 <= number <= 1.0, "in [0, 1]"
        return (number, "") if good else (math.nan, f"y must be {allowed}, got {given!r:.80}")

    def outcomes(self, given: Any) -> Array:
        """Labels of an array as numbers, counted: nan if missing. ValueError names the first that is not allowed."""
        if self.labels is None:
            values = numbers("y", given)
            good = is_allowed("y" if self.model.claim == "mean" else "v", values)
            if not good.all():
                i = int(good.argmin())
                raise ValueError(f"{self._number(values[i].item())[1]} at index {i}")
            return values
        labels = given.tolist()
        found = self.labels.numbers(labels)
        y = self.labels.outcomes(found)
        bad = ~np.isnan(y) & ((y == UNKNOWN) | (not self.labels.settled))
        if bad.any():
            i, allowed = int(bad.argmax()), self._allowed(self.labels)
            self.forget()
            raise ValueError(f"y must be {allowed}, got {labels[i]!r:.80} at index {i}")
        self.labels.count(found)
        self._known.clear()
        return y

    def forget(self, given: Any = None) -> None:
        """Values that were looked at and not taken, and one that was counted and is not taken after all, never came."""
        if self.labels is not None:
            if isinstance(given, str | int | float):  # what else may come is no label, and was not counted
                number = int(self.labels.numbers([given])[0])
                self._more[number] = self._more.get(number, 0) - 1
            plain = {name: n for name, n in self.document().items() if n > 0}
            self.labels = rule_of(self.model)
            assert self.labels is not None
            self.labels.take_over(plain)
            self._known.clear()

    def label_of(self, y: float) -> Any:
        """An outcome as a label that :meth:`outcome` reads as this number."""
        model, rule = self.model, self.labels
        if isinstance(rule, ClassLabels):
            return int(y) if rule.by_index else model.classes[int(y)]
        if model.pos_label is None or rule is None:
            return y
        return model.pos_label if y == 1.0 else next(iter([*model.neg_label, *rule.came(0.0)]))

    def document(self) -> dict[str, int]:
        """What came, by name, as plain data."""
        if self.labels is None:
            return {ALONE: self.missing}
        for number, n in self._more.items():
            self.labels.count(np.repeat(number, n))
        self._more.clear()
        return self.labels.to_plain()

    def status(self) -> dict[str, Any]:
        """How many labels are missing, and those by name that are neither 1, 0 nor a class."""
        kept = self.document()
        if self.labels is None:
            return {"missing": kept[ALONE], "unknown": {}}
        return {"missing": self.labels.absent, "unknown": self.labels.came(UNKNOWN)}

    def problem(self, allowed: float) -> str | None:
        """What is wrong with the labels that came, and what settles it, where more than this share is not known."""
        self.document()
        found = None if self.labels is None else self.labels.problem(allowed)
        return found and f"model {self.model.name}: {found}"

    # -- scores --------------------------------------------------------------------------------------------------------

    def score(self, given: Any) -> tuple[Score, str]:
        """A prediction as a number or a tuple of them; nan and the reason if it is not allowed."""
        model = self.model
        wanted, low, high, words = wanted_of(model)
        values = given
        if wanted > 1 and isinstance(given, dict) and model.classes:
            values = [given.get(name) for name in model.classes] if set(given) <= set(model.classes) else None
        several = list(values) if isinstance(values, list | tuple) else [values]
        usual = len(several) == wanted and all(type(v) in (float, int) and -LARGEST <= v <= LARGEST for v in several)
        if usual and model.scale != "unit":
            row = np.array(several, np.float64)
            several = self.scales.scaled(row[None] if wanted > 1 else row).reshape(-1).tolist()
        good = usual and all(low <= v <= high for v in several)
        if not good or (model.claim == "interval" and several[0] > several[1]):
            return math.nan, f"p must be {words}, got {given!r:.80}{self._looks_like(several) if usual else ''}"
        if model.classes and abs(sum(several) - 1.0) > SUM_TOLERANCE:
            return math.nan, f"p does not sum to 1 (to .001): got {given!r:.80}"
        return (float(several[0]) if wanted == 1 else tuple(map(float, several))), ""

    def _looks_like(self, values: list[float]) -> str:
        """The scale of scores that are no probabilities, by all of these so far, and the line to type; "" where none fits."""
        seen, model = self.scales, self.model
        seen.look([], np.array(values, np.float64), [])
        word = "logit" if seen.negative else "" if seen.large else "percent"
        if model.real or model.claim == "pit" or model.scale != "unit" or not word or not seen.outside:
            return ""
        return f': looks like {word}: write scale = "{word}" in [models.{model.name}]'

    def scores(self, p: npt.ArrayLike, n: int) -> Array:
        """Predictions of an array, each allowed as in a message. ValueError names the first that is not."""
        values, model = numbers("p", p), self.model
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.shape[:1] != (n,) or values.ndim > 2:
            raise ValueError(f"p must hold one prediction for each id, shape ({n},) or ({n}, k), got {values.shape}")
        if n == 0:
            return values
        scaled = self.scales.scaled(values)
        columns, (wanted, low, high, _) = scaled.reshape(n, -1), wanted_of(model)
        good = ((columns >= low) & (columns <= high)).all(-1) & (columns.shape[1] == wanted)
        if model.claim == "interval":
            good &= columns[:, 0] <= columns[:, -1]
        if model.classes:
            good &= is_distribution(columns)
        if not good.all():
            i = int(good.argmin())
            raise ValueError(f"{self.score(values[i].tolist())[1]} at index {i}")
        return scaled


def rule_of(model: Model) -> Labels | None:
    """The rule by which labels of a model are read; None where they are numbers."""
    if model.classes:
        return ClassLabels(model.classes, labels=model.labels, missing=model.missing)
    if model.claim == "mean" and model.outcome == "binary":
        return Outcomes(model.pos_label, model.neg_label or None, model.missing)
    return None


def wanted_of(model: Model) -> tuple[int, float, float, str]:
    """How many numbers a prediction is, between what they lie, and that in words."""
    if model.classes:
        return len(model.classes), *BOUNDS["p"], f"{len(model.classes)} probabilities, of {', '.join(model.classes)}"
    if model.claim == "quantile":
        levels = ", ".join(map(str, model.levels))
        return len(model.levels), *BOUNDS["v"], f"{len(model.levels)} finite numbers, the quantiles at {levels}"
    if model.claim == "interval":
        return 2, *BOUNDS["v"], "[low, high]"
    return 1, *((0.0, 1.0) if model.claim == "pit" else BOUNDS["p"]), "a number in [0, 1]"
