"""A classifier around a classifier: its probabilities are recalibrated while it learns."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from river import base
from river.utils import dataframe

from streamcal.arrays import one_number
from streamcal.limits import TOLERANCE
from streamcal.recalibrate import Online, Recalibrator, Refit
from streamcal.recalibrate.guard import ServedGuard
from streamcal.recalibrate.multiclass import ClassMaps
from streamcal.recalibrate.online import check_online
from streamcal.river.predictions import HIGH, LOW, TRUTHS, is_missing, probabilities, probability
from streamcal.river.wrapper import RecalibratingWrapper, ids_of, rows_of, series_of

UNKNOWN = (math.nan, math.nan)  # a defaultdict would make up what is asked for
NEVER_FOUND = 100  # labels after which a wrapper warns that none of them met its score: enough to be no coincidence
TWO = {False: 0, True: 1}  # outcome of each label of a binary problem; 1, 0 and numpy's are equal to them


class RecalibratedClassifier(RecalibratingWrapper, base.Wrapper[base.Classifier], base.Classifier):
    r"""A classifier whose probabilities are recalibrated online, on the scores that it served before it saw their labels.

    With two classes (a binary classifier, or labels that are bools) the probability of True is recalibrated and that of False is
    the rest; else each class on (p_k, 1[y = k]), the rows brought to a sum of one. A class that is new starts with the identity.

    - ``classifier``: any River classifier with ``predict_proba_one``, or a pipeline that ends with one.
    - ``recalibrator``: any of streamcal's online recalibrators of probabilities, copied for each class; a batch one is put into
      ``Refit(recalibrator)`` (refitted on the last 5,000 events every 500). Default: a guard of the raw scores and three online
      Platt maps, which can hardly be worse than raw (:class:`~streamcal.recalibrate.guard.ServedGuard` says what it promises).
    - ``memory``: at most so many scores wait for their label, the oldest go first (:class:`~streamcal.river.served.Served` says
      how large they are); 0 remembers none.

    Which score is learned from. A label is learned with the score that was *served* for its x, if that is remembered: by ``id``
    if one was given to ``predict_proba_one(x, id=...)`` and ``learn_one(x, y, id=...)``, else by the features of x. Else the
    classifier, before it learns, predicts x again: with late labels that is another score than the one that was served, and the
    map is learned for the wrong one. Inside a pipeline x comes scaled by what the scaler has seen by then, so that it is never
    found again: put the pipeline into the wrapper, or give ids (River's evaluation passes them on from (x, y, {"id": ...})).
    Served scores do not always win: where only the share of positives moves and labels are late, they are about a model that has
    since caught up, and ``memory=0`` can be better.

    Counted: labels learned with the served score (``served``), with a new one (``repredicted``); scores dropped before a label
    came (``forgotten``), still waiting (``waiting``); labels that are None or nan, which nobody learns (``refused``); predictions
    of the classifier that are no probabilities (``unusable``): they are served as they are, or as equal shares if it said
    nothing, and not recalibrated.

    Before anything is learned, the probabilities are those of the classifier. All labels known so far have one: a binary
    classifier both from the first call, another none ({}, and ``predict_one`` None) until it names one or one was learned.
    Votes are divided by their sum. Predicting changes no answer (but a label that is named for the first time is in all later
    ones), and what was served is noted, also in copies and pickles. ``w=`` weighs an event for both (for the classifier if it
    takes weights). ``learn_many``, ``predict_proba_many`` and ``predict_many`` are there where the classifier has them.
    :meth:`report`: what was served, before and after.

    >>> from river import datasets, metrics, naive_bayes
    >>> model, raw, recalibrated = RecalibratedClassifier(naive_bayes.GaussianNB()), metrics.LogLoss(), metrics.LogLoss()
    >>> for x, y in datasets.Phishing():
    ...     raw.update(y, model.classifier.predict_proba_one(x))
    ...     recalibrated.update(y, model.predict_proba_one(x))
    ...     model.learn_one(x, y)
    >>> round(raw.get(), 3), round(recalibrated.get(), 3), model.served, model.repredicted
    (0.615, 0.37, 1249, 1)
    """

    def __init__(
        self, classifier: Any, recalibrator: Online | Recalibrator | None = None, memory: int = 10_000
    ) -> None:
        self.classifier, self.recalibrator, self.memory = classifier, recalibrator, memory
        if not isinstance(classifier, base.Classifier):
            raise ValueError(
                f"classifier must be a River classifier, or a pipeline that ends with one, got {classifier!r:.80}"
            )
        self._maps = _new_maps(recalibrator)
        self._start(memory, self._maps.heaviest)
        self._index: dict[Any, int] = {}  # number of each label
        self._two: bool | None = None  # None: nobody knows yet
        if not classifier._multiclass:
            self._begin(True)

    @property
    def _wrapped_model(self) -> Any:
        return self.classifier

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from river import linear_model, tree

        yield {"classifier": linear_model.LogisticRegression()}
        yield {"classifier": tree.HoeffdingTreeClassifier()}

    def report(self) -> dict[str, Any]:
        """What was served before and after recalibration, for each class (the positive one of two), and the counts.

        ``classes``: by label what :meth:`Online.report` says; ``log_loss``: mean log loss of the labels.
        """
        found = self._maps.report()
        labels = [True] if self._two else list(self._index)
        return {**found, "classes": dict(zip(labels, found["classes"], strict=True)), "counts": self.counts}

    # -- one at a time -----------------------------------------------------------------------------------------------

    def predict_proba_one(self, x: Any, *, id: Hashable | None = None, **kwargs: Any) -> dict[Any, float]:
        """Recalibrated probabilities by label; they are remembered for the label of x, or of ``id``."""
        said = self.classifier.predict_proba_one(x, **kwargs)
        return self._pair(said, x, id) if self._two else self._row(said, x, id)

    def predict_one(self, x: Any, *, id: Hashable | None = None, **kwargs: Any) -> Any:
        """The label of the largest recalibrated probability; None while there is none."""
        answer = self.predict_proba_one(x, id=id, **kwargs)
        return max(answer, key=answer.__getitem__) if answer else None

    def _weight(self, w: Any) -> float:
        weight = one_number(w)
        if not 0.0 <= weight <= self._maps.heaviest:
            raise ValueError(f"w must lie in [0, {self._maps.heaviest:g}] for {self._maps!r}, got {w!r}")
        return weight

    def _learn(self, x: Any, outcome: int, w: float, id: Hashable | None) -> None:
        if slot := self._waiting.take(x, id):
            self._maps.learn(slot, outcome, w)
        else:
            self._learn_again(x, outcome, w)

    def _learn_again(self, x: Any, label: int, w: float) -> None:
        """Serve x once more, in slot 0, to nobody, and learn that, if the classifier said something to learn from.

        Its label is late by all the scores that wait: taken for one that came at once, it would be trusted too much.
        """
        self.repredicted += 1
        if (
            self.repredicted == NEVER_FOUND
            and 10 * max(self.served, self.unusable) < NEVER_FOUND <= self.served + self.waiting
        ):
            warnings.warn(
                f"no served score was found again for the first {NEVER_FOUND} labels, so the map is learned on scores that "
                "nobody was given: put the whole pipeline into the wrapper, or give ids",
                stacklevel=4,
            )
        unusable, said = self.unusable, self.classifier.predict_proba_one(x)
        if self._two:
            self._pair(said, x, None, keep=False)
        else:
            self._row(said, x, None, keep=False)
        if self.unusable == unusable:
            self._maps.learn(0, label, w, len(self._waiting))

    # -- labels ------------------------------------------------------------------------------------------------------

    def _begin(self, two: bool) -> None:
        """From now on it is known whether there are two classes, or any number."""
        self._two = two
        if two:
            self._index = dict(TWO)
            self._maps.grow()

    def _outcome(self, y: Any) -> int | None:
        """Number of a label; None if it is missing, which is counted."""
        if y in self._index:
            return self._index[y]
        if is_missing(y):
            self.refused += 1
            return None
        if self._two is None:
            self._begin(isinstance(y, TRUTHS))
        if not self._two:
            twin = next((label for label in self._index if str(label) == str(y)), None)
            if twin is not None:
                raise ValueError(f"labels must differ as texts too, got {y!r} ({type(y).__name__}) beside {twin!r}")
            self._index[y] = len(self._index)
            self._maps.grow()
        elif y not in self._index:
            raise ValueError(f"labels must be False or True here (0 and 1 are), got {y!r:.80}")
        return self._index[y]

    # -- probabilities -----------------------------------------------------------------------------------------------

    def _pair(self, said: Any, x: Any, id: Hashable | None, keep: bool = True) -> dict[Any, float]:
        """Recalibrated probabilities of two classes; ``keep``: remember them for the label."""
        try:
            p, other = (said[True], said[False]) if type(said) is dict else UNKNOWN
            fair = LOW < p + other < HIGH and 0.0 <= p <= 1.0 and 0.0 <= other <= 1.0
        except (KeyError, TypeError):
            fair = False
        if not fair:
            p = _clipped(probability(said, True))
            other = 1.0 - p
            if p != p:
                return self._as_it_is(said)
        q = self._maps.serve_two(p, self._waiting.remember(x, id) if keep else 0)
        return {False: float(other), True: float(p)} if q == p else {False: 1.0 - q, True: q}

    def _row(self, said: Any, x: Any, id: Hashable | None, keep: bool = True) -> dict[Any, float]:
        """Recalibrated probabilities of any number of classes; ``keep``: remember them for the label."""
        if self._two is None and said:
            two = all(isinstance(label, TRUTHS) for label in said)
            self._begin(two)
            if two:
                return self._pair(said, x, id, keep)
        shares = probabilities(said)
        for label in shares:
            if label not in self._index:
                self._outcome(label)
        scores = [_clipped(shares.get(label, 0.0)) for label in self._index]
        if not shares or any(p != p for p in scores):
            return self._as_it_is(said)
        row = self._maps.serve_row(scores, self._waiting.remember(x, id) if keep else 0)
        return dict(zip(self._index, row, strict=True))

    def _as_it_is(self, said: Any) -> dict[Any, float]:
        """An answer that can not be recalibrated; equal shares of the known labels if nothing was said."""
        self.unusable += 1
        labels = sorted(self._index) if self._two else list(self._index)
        if not said or not any(said.values()):
            return {label: 1.0 / len(labels) for label in labels}
        return {label: one_number(said.get(label, math.nan)) for label in [*labels, *said]}

    # -- mini-batches ------------------------------------------------------------------------------------------------

    @property
    def predict_proba_many(self) -> Callable[..., Any]:
        """``predict_proba_many(X)``: recalibrated probabilities, a dataframe of the kind of X; ``id``: a sequence of ids.

        Each call remembers every row, also one that waits already.
        """
        self.classifier.predict_proba_many  # noqa: B018
        return self._predict_proba_many

    @property
    def predict_many(self) -> Callable[..., Any]:
        """``predict_many(X)``: the labels of the largest recalibrated probabilities, a series of the kind of X."""
        self.classifier.predict_proba_many  # noqa: B018
        return self._predict_many

    def _served_many(self, X: Any, id: Any, **kwargs: Any) -> tuple[Any, list[dict[Any, float]]]:
        """The classifier's dataframe, and the recalibrated probabilities of each row."""
        xs = rows_of(X)
        ids, said = ids_of(id, len(xs)), self.classifier.predict_proba_many(X, **kwargs)
        named = rows_of(said) or [{}] * len(xs)
        labels = {str(label): label for label in self._index}  # only pandas has columns that are no text
        if xs and not all(str(name) in labels for name in named[0]):
            labels |= {str(label): label for label in self.classifier.predict_proba_one(xs[0])}
        rows = [{labels.get(str(name), name): p for name, p in row.items()} for row in named]
        # asked anew for each row: the first can tell that there are two classes
        return said, [
            (self._pair if self._two else self._row)(row, x, which) for row, x, which in zip(rows, xs, ids, strict=True)
        ]

    def _predict_proba_many(self, X: Any, *, id: Any = None, **kwargs: Any) -> Any:
        said, rows = self._served_many(X, id, **kwargs)
        labels = list(dict.fromkeys(label for row in rows for label in row))
        columns = {label: [row.get(label, 0.0) for row in rows] for label in labels}
        return dataframe.to_native_frame(columns, like=dataframe.into_frame(said)) if labels else said

    def _predict_many(self, X: Any, *, id: Any = None, **kwargs: Any) -> Any:
        said, rows = self._served_many(X, id, **kwargs)
        return series_of([max(row, key=row.__getitem__) if row else None for row in rows], self._y_name, said)


def _new_maps(recalibrator: Any) -> ServedGuard | ClassMaps:
    """The default, or copies of the given one for each class; ValueError if it is no recalibrator of probabilities."""
    if recalibrator is None:
        return ServedGuard()
    batch = isinstance(recalibrator, Recalibrator)
    return ClassMaps(check_online("recalibrator", Refit(recalibrator) if batch else recalibrator))


def _clipped(p: Any) -> float:
    """A probability; nan if it is further than 1e-6 outside of [0, 1]."""
    p = one_number(p)
    return min(max(p, 0.0), 1.0) if -TOLERANCE <= p <= 1.0 + TOLERANCE else math.nan
