"""Calibration metrics of classifiers: River metrics that read a window's sums.

The binary ones take the same parameters (see :class:`ECE`) and probabilities as River's classifiers give them: a float, or a dict
by label, also empty, unnormalised (votes, a Counter) or without one of the labels. :class:`TopLabelECE` and :class:`MarginalCE`
take dicts with any number of classes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeAlias

from river import base, metrics

from streamcal import METRICS
from streamcal.arrays import check_flag, check_whole
from streamcal.binning import BINNINGS, Binning
from streamcal.claims import Claim
from streamcal.river.predictions import HIGH, LOW, alike, is_missing, outcome, probabilities, probability
from streamcal.windows import Fading, Revertible, Sliding

AnyWindow: TypeAlias = Revertible | Sliding | Fading
MOST_LABELS = 100  # labels whose outcome is remembered; with more of them the others are read anew each time
MOST_CLASSES = 1000  # with more of them a label is an id or a number to be predicted
NOBODY = object()  # a class that no prediction names, and that is never true


def binning_of(n_bins: int, binning: str | Binning | None, usual: str = "equal-width") -> Binning:
    """The binning that these parameters mean; ``n_bins`` counts unless ``binning`` is a Binning, which has its own bins.

    >>> from streamcal.binning import EqualWidth
    >>> binning_of(10, None), binning_of(10, "log-odds"), binning_of(10, EqualWidth(4))
    (EqualWidth(n_bins=10), LogOdds(n_bins=10, bits=None), EqualWidth(n_bins=4))
    """
    if isinstance(binning, Binning):
        return binning
    name = usual if binning is None else binning
    if not isinstance(name, str) or name not in BINNINGS:
        raise ValueError(f"binning must be None, {', '.join(map(repr, BINNINGS))} or a Binning, got {binning!r}")
    return BINNINGS[name](n_bins)


def window_of(
    binning: Binning,
    window_size: int | None,
    half_life: float | None,
    claim: Claim | None = None,
    loss: str | None = None,
) -> AnyWindow:
    """The window that these parameters mean: the last events, all of them fading, or all until they are reverted."""
    if window_size is not None and half_life is not None:
        raise ValueError(f"give window_size or half_life, not both, got {window_size!r} and {half_life!r}")
    if window_size is not None:
        return Sliding(binning, check_whole("window_size", window_size, 1), claim=claim, loss=loss)
    if half_life is not None:
        return Fading(binning, half_life, claim=claim, loss=loss)
    return Revertible(binning, claim=claim, loss=loss)


class Windowed(metrics.base.Metric):
    """A River metric over a window: ``_event`` says what it adds, ``_reads`` which number of the window it is.

    Its value is nan until it has seen an event; a smaller one is better. An event that says nothing (a label or prediction that
    is None or nan, an empty dict), or that is not allowed (a probability outside [0, 1], a negative weight), is counted in
    ``n_refused`` and adds nothing; in a window of the metric's own it holds a place like any other.
    """

    _fmt = ",.6f"
    _reads: str = "ece"
    _loss: ClassVar[str | None] = None
    _window: AnyWindow
    window_size: int | None
    half_life: float | None

    def _event(self, y_true: Any, y_pred: Any) -> tuple[float, float]:
        """(score, outcome) as the window takes them; nan for what is missing."""
        raise AssertionError("each reads predictions in its own way")  # pragma: no cover

    def update(self, y_true: Any, y_pred: Any, w: float = 1.0) -> None:
        """Add an event."""
        self._window.update(*self._event(y_true, y_pred), w)

    def revert(self, y_true: Any, y_pred: Any, w: float = 1.0) -> None:
        """Take back an event, given as it was then. Exact; ValueError if there is no such event, or with a window of its own."""
        taken_back(self, self._window).revert(*self._event(y_true, y_pred), w)

    def get(self) -> float:
        """The value now, nan if nothing was seen."""
        return float(self._window.get(self._reads))

    @property
    def bigger_is_better(self) -> bool:
        """False."""
        return False

    @property
    def n_refused(self) -> float:
        """How many events were refused; in a window of the metric's own, of those that are in it."""
        return float(self._window.snapshot().refused[0])

    def report(self) -> dict[str, Any]:
        """Counts, every metric of the window with its sampling error, and the reliability bins (see Snapshot.report)."""
        return self._window.report()


def taken_back(metric: Any, window: AnyWindow) -> Revertible:
    """The window if events can be taken back from it, else a ValueError that says what to leave out."""
    if isinstance(window, Revertible):
        return window
    own = "half_life" if metric.window_size is None else "window_size"
    name, value = type(metric).__name__, getattr(metric, own)
    raise ValueError(
        f"{name}({own}={value!r}) lets go of events by itself and cannot revert; for utils.Rolling leave {own} out"
    )


class Binned(Windowed):
    """A metric of probabilities, by bins."""

    def __init__(
        self,
        n_bins: int = 15,
        binning: str | Binning | None = None,
        window_size: int | None = None,
        half_life: float | None = None,
    ) -> None:
        self.n_bins, self.binning, self.window_size, self.half_life = n_bins, binning, window_size, half_life
        self._window = window_of(binning_of(n_bins, binning), window_size, half_life, loss=self._loss)

    @property
    def requires_labels(self) -> bool:
        """False: probabilities."""
        return False


class BinaryCalibration(Binned, metrics.base.BinaryMetric):
    """What the metrics of two classes share; they differ in what they read from the window."""

    def __init__(
        self,
        n_bins: int = 15,
        binning: str | Binning | None = None,
        window_size: int | None = None,
        half_life: float | None = None,
        pos_val: Any = True,
    ) -> None:
        super().__init__(n_bins, binning, window_size, half_life)
        self.pos_val = pos_val
        self._outcomes: dict[Any, float] = {}  # of labels that were seen
        self._short: Any = None  # what update needs for a usual event, once it has seen one

    def update(self, y_true: Any, y_pred: Any, w: float = 1.0) -> None:
        """Add an event: ``y_pred`` the probability of ``pos_val`` or a dict of probabilities, ``w`` in [0, 1e100]."""
        # One call into compiled code for what most events look like. Any surprise goes the long way round, which gives a
        # usual event the same numbers (test_the_short_way_is_the_long_way).
        try:
            pos, other, only_two, outcomes, one, buf = self._short
            if y_pred.__class__ is dict:
                p = y_pred[pos]
                if not (LOW < p + y_pred[other] < HIGH and (only_two or len(y_pred) == 2)):
                    raise ValueError
            elif y_pred.__class__ is float:
                p = y_pred
            else:
                raise TypeError
            one(buf, p, outcomes[y_true], w, 0.0)
        except (KeyError, TypeError, ValueError, OverflowError):
            self._read_and_update(y_true, y_pred, w)

    def _read_and_update(self, y_true: Any, y_pred: Any, w: float) -> None:
        """Any event. The window's compiled entry is there when it has taken one."""
        p, y = self._event(y_true, y_pred)
        self._window.update(p, y, w)
        if not math.isnan(y) and len(self._outcomes) < MOST_LABELS:
            with suppress(TypeError):  # a label that no dict can have as a key
                self._outcomes[y_true] = y
        two_keys = isinstance(y_pred, dict) and len(y_pred) == 2 and self.pos_val in y_pred
        if self._short is None or two_keys:
            pos, only_two = self.pos_val, isinstance(self.pos_val, bool)
            other = not pos if only_two else next((key for key in y_pred if key != pos), None) if two_keys else None
            self._short = pos, other, only_two, self._outcomes, type(self._window)._one, self._window._buf

    def _event(self, y_true: Any, y_pred: Any) -> tuple[float, float]:
        p = probability(y_pred, self.pos_val)
        try:
            return p, self._outcomes[y_true]
        except (KeyError, TypeError):
            return p, outcome(y_true, self.pos_val)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_short": None}  # compiled entries cannot be pickled

    def clone(self, new_params: dict[str, Any] | None = None, include_attributes: bool = False) -> Any:
        """A new metric with the same parameters, or those of ``new_params``; ``include_attributes``: also what it has seen."""
        made = super().clone(new_params, include_attributes)
        made._short = None  # River copies attribute by attribute: this one would go on with the old window's sums
        return made


class ECE(BinaryCalibration):
    r"""Expected calibration error: :math:`\sum_r \frac{W_r}{W} |\bar y_r - \bar p_r|`, in [0, 1]; nan if nothing was seen.

    Biased upwards for few events: a perfect model shows .12 at 100 events in 15 bins, .038 at 1,000; ``report()`` has
    what a perfect model would show, and a debiased value. Source: Naeini, Cooper, Hauskrecht 2015; Guo et al. 2017.

    Parameters
    ----------
    n_bins
        Number of bins.
    binning
        None or "equal-width", "uniform-mass", "log-odds" (rare events), or a :class:`streamcal.binning.Binning`, such as
        ``Levels([0.1, 0.5])``, whose own bins count. Binnings are frozen and hold no data.
    window_size
        Only the last so many events count (24 bytes each).
    half_life
        An event that lies so many events back counts half.
    pos_val
        The positive label: that of the probabilities, and the key looked up in dicts. With true/false labels 0, 1 and
        numpy's are as good; all others are negative if they are like ``pos_val`` (text, a number), and an error if not.

    Without ``window_size`` and ``half_life`` all events count, and can be reverted (exactly): ``utils.Rolling(ECE, 100)``.

    Examples
    --------
    >>> from streamcal import ece
    >>> metric = ECE(n_bins=5)
    >>> y_pred = [0.95, 0.90, 0.85, 0.60, 0.55, 0.30]
    >>> for yt, yp in zip([True, False, True, True, False, False], y_pred):
    ...     metric.update(yt, {True: yp, False: 1 - yp})
    >>> metric
    ECE: 0.191667
    >>> metric.update(None, 0.5)
    >>> metric.get() == ece(y_pred, [1, 0, 1, 1, 0, 0], 5), metric.n_refused
    (True, 1.0)
    """


class MCE(BinaryCalibration):
    r"""Maximum calibration error: :math:`\max_r |\bar y_r - \bar p_r|`, in [0, 1]; nan if nothing was seen.

    One event in a bin is enough to make it large. Parameters as in :class:`ECE`.

    >>> metric = MCE()
    >>> metric.update(True, 0.75)
    >>> metric
    MCE: 0.25
    """

    _reads = "mce"


class K1(BinaryCalibration):
    r"""Mean absolute calibration gap: :math:`\sum_r \frac{W_r}{W} |\bar y_r - \bar p_r|` in [0, 1]; nan if nothing was seen.

    Of the bins: the ECE, as long as the bins are not the distinct predicted values (``binning=Levels(...)``), for which it
    is defined. Parameters as in :class:`ECE`. Source: Roth, Uncertain.

    >>> metric = K1()
    >>> metric.update(True, 0.75)
    >>> metric
    K1: 0.25
    """

    _reads = "k1"


class K2(BinaryCalibration):
    r"""Mean squared calibration gap: :math:`\sum_r \frac{W_r}{W} (\bar y_r - \bar p_r)^2` in [0, 1]; nan if nothing was seen.

    Not rooted, too high by about B/(6n) for B bins; with ``debias`` without that bias, signed, and nan until a bin holds two
    events. Other parameters as in :class:`ECE`. Source: Roth, Uncertain; Kumar, Liang, Ma 2019.

    >>> metric = K2()
    >>> metric.update(True, 0.75)
    >>> metric
    K2: 0.0625
    """

    _fmt = ",.8f"
    _plain: ClassVar[str] = "k2"

    def __init__(
        self,
        n_bins: int = 15,
        binning: str | Binning | None = None,
        window_size: int | None = None,
        half_life: float | None = None,
        pos_val: Any = True,
        debias: bool = False,
    ) -> None:
        super().__init__(n_bins, binning, window_size, half_life, pos_val)
        self.debias = debias
        self._reads = self._plain + "_debiased" * check_flag("debias", debias)


class L2CE(K2):
    """L2 calibration error, the root of :class:`K2` (0 where the debiased square is negative), in [0, 1]; nan likewise.

    Parameters as in :class:`K2`. Source: Kumar, Liang, Ma 2019.

    >>> metric = L2CE()
    >>> metric.update(True, 0.75)
    >>> metric
    L2CE: 0.25
    """

    _fmt = ",.6f"
    _plain = "l2_ce"


class Brier(BinaryCalibration):
    """Brier score, the mean of (p - y)^2 in [0, 1]; nan if nothing was seen. Exact whatever the bins.

    :class:`BrierCalibration` and :class:`BrierRefinement` over the same bins add up to it. Parameters as in :class:`ECE`.
    Source: Brier 1950.

    >>> metric = Brier()
    >>> metric.update(True, 0.5)
    >>> metric
    Brier: 0.25
    """

    _reads = "brier"


class BrierCalibration(BinaryCalibration):
    """The part of the Brier score that recalibrating the bins would take off it: K2 of the bins, in [0, 1].

    nan if nothing was seen. Too high by about B/(6n), like :class:`K2`. Parameters as in :class:`ECE`. Source: Murphy 1973.

    >>> metric = BrierCalibration()
    >>> metric.update(True, 0.5)
    >>> metric
    BrierCalibration: 0.25
    """

    _fmt = ",.8f"
    _reads = "reliability_term"


class BrierRefinement(BinaryCalibration):
    """The part of the Brier score that recalibrating the bins would leave; nan if nothing was seen.

    Brier score - :class:`BrierCalibration` = uncertainty - resolution + what varies within the bins: the mean variance of
    y - p within a bin, in [0, 1]. Parameters as in :class:`ECE`. Source: Murphy 1973; Stephenson, Coelho, Jolliffe 2008.

    >>> metric = BrierRefinement()
    >>> for outcome in (True, True, True, False):
    ...     metric.update(outcome, 0.5)
    >>> metric
    BrierRefinement: 0.1875
    """

    def get(self) -> float:
        """The value now, nan if nothing was seen."""
        s = self._window.snapshot()
        return max(float(METRICS["brier"](s)) - float(METRICS["reliability_term"](s)), 0.0)  # not below by rounding


class PARatio(BinaryCalibration):
    """Predicted over actual, sum p / sum y: 1 right on average, above 1 predicted too high; inf without a positive outcome.

    nan if nothing was seen, or all is 0. Better is nearer to 1, by the absolute logarithm: that is what ``is_better_than``
    and ``>`` compare; ``bigger_is_better`` has no answer for it and says False. Parameters as in :class:`ECE`.

    >>> metric = PARatio()
    >>> metric.update(True, 0.5)
    >>> metric
    PARatio: 0.5
    """

    _reads = "pa_ratio"

    def is_better_than(self, other: Any) -> bool:
        """Whether this ratio is nearer to 1; never if one of the two is undefined."""
        return _from_one(self.get()) < _from_one(other.get())


def _from_one(ratio: float) -> float:
    return abs(math.log(ratio)) if ratio > 0.0 else math.inf if ratio == 0.0 else math.nan


class NormalizedEntropy(BinaryCalibration):
    r"""Log loss over the entropy of the base rate: below 1 better than always saying the base rate.

    .. math:: \frac{-\frac1W \sum_i w_i \left[y_i \ln p_i + (1 - y_i) \ln(1 - p_i)\right]}
                   {-\bar y \ln \bar y - (1 - \bar y) \ln(1 - \bar y)}, \qquad \bar y = \frac1W \sum_i w_i y_i

    0 is perfect; inf if p = 0 met a positive or p = 1 a negative (no hidden epsilon, unlike River's LogLoss); nan if nothing
    was seen or all outcomes are equal. The base rate is that of the window. Parameters as in :class:`ECE`. Source: He et
    al. 2014.

    >>> metric = NormalizedEntropy()
    >>> metric.update(True, 0.5)
    >>> metric.update(False, 0.5)
    >>> metric
    NormalizedEntropy: 1.
    """

    _reads = "normalized_entropy"
    _loss = "log"


class OfProbabilities(Binned, metrics.base.MultiClassMetric):
    """What the metrics of any number of classes share: they take dicts of probabilities."""

    def works_with(self, model: Any) -> bool:
        """Whether a model is a classifier: clusterers give no probabilities."""
        return isinstance(model, base.Classifier)


class TopLabelECE(OfProbabilities):
    """ECE of the highest probability against whether its class was right, in [0, 1]; nan if nothing was seen.

    ``y_pred`` is a dict of probabilities by class, also empty (refused and counted) or unnormalised (votes). The first
    class wins a tie. A label that the dict does not have is a miss, unless it is of another kind (text among numbers): a
    ValueError. Parameters as in :class:`ECE`. Source: Guo et al. 2017.

    >>> metric = TopLabelECE()
    >>> metric.update("b", {"a": 0.2, "b": 0.7, "c": 0.1})
    >>> metric
    TopLabelECE: 0.3
    """

    def _event(self, y_true: Any, y_pred: Any) -> tuple[float, float]:
        p = probabilities(y_pred)
        if not p or is_missing(y_true):
            return math.nan, math.nan
        top = max(p, key=p.__getitem__)
        _check_alike(y_true, top)
        return p[top], float(y_true == top)


def _check_alike(y_true: Any, known: Any) -> None:
    if not alike(y_true, known):
        raise ValueError(f"y_true must be a label like {known!r}, got {y_true!r}")


class MarginalCE(OfProbabilities):
    r"""Marginal calibration error :math:`(\frac1K \sum_k CE_k^{norm})^{1/norm}` over K classes, in [0, 1]; nan if nothing was
    seen.

    CE_k is the L1 error of (p_k, 1[y = k]) for ``norm=1``, the L2 error for ``norm=2``; with ``debias`` (norm 2 only) the
    signed debiased squares are averaged, and the mean clipped at 0 once. A class that a prediction leaves out has
    probability 0. Source: Kumar, Liang, Ma 2019.

    Parameters
    ----------
    classes
        The classes to average over: an event with another label is refused and counted. None: those named so far by a
        label or a prediction, at most 1,000. One that turns up late counts as if it had been there from the start, with
        probability 0 until then (exactly); one that was seen stays, also when all its events were reverted or forgotten.
    norm, debias
        See above.
    n_bins, binning, window_size, half_life
        As in :class:`ECE`; a window per class.

    >>> metric = MarginalCE(norm=1)
    >>> metric.update("b", {"a": 0.2, "b": 0.7, "c": 0.1})
    >>> metric
    MarginalCE: 0.2
    """

    def __init__(
        self,
        classes: Sequence[Hashable] | None = None,
        norm: int = 2,
        debias: bool = False,
        n_bins: int = 15,
        binning: str | Binning | None = None,
        window_size: int | None = None,
        half_life: float | None = None,
    ) -> None:
        # the window of the base is that of a class that nobody has named: a new class begins with a copy of it
        super().__init__(n_bins, binning, window_size, half_life)
        self.classes, self.norm, self.debias = classes, norm, debias
        if norm not in (1, 2) or (check_flag("debias", debias) and norm != 2):
            raise ValueError(f"norm must be 1 or 2, and 2 with debias, got {norm!r}")
        if classes is not None and (isinstance(classes, str) or not 2 <= len(set(classes)) == len(classes)):
            raise ValueError(f"classes must be None or at least two different labels, got {classes!r:.200}")
        self._windows: dict[Hashable, AnyWindow] = {label: copy.deepcopy(self._window) for label in classes or ()}

    def update(self, y_true: Any, y_pred: Any, w: float = 1.0) -> None:
        """Add an event to the window of every class: ``y_pred`` a dict of probabilities by class."""
        p = self._probabilities(y_true, y_pred)
        if p and self.classes is None:
            new = [label for label in dict.fromkeys((*p, y_true)) if label not in self._windows]
            if len(self._windows) + len(new) > MOST_CLASSES:
                raise ValueError(f"there must be at most {MOST_CLASSES} classes, got also {new!r:.80}")
            self._windows |= {label: copy.deepcopy(self._window) for label in new}
        for window, event in self._events(p, y_true):
            window.update(*event, w)

    def revert(self, y_true: Any, y_pred: Any, w: float = 1.0) -> None:
        """Take back an event, given as it was then. Exact; ValueError if there is no such event, or with a window of its own."""
        for window, event in self._events(self._probabilities(y_true, y_pred), y_true):
            taken_back(self, window).revert(*event, w)

    def _probabilities(self, y_true: Any, y_pred: Any) -> dict[Hashable, float]:
        """Probabilities by class, none if the event must be refused."""
        p = probabilities(y_pred)
        if not p or is_missing(y_true):
            return {}
        _check_alike(y_true, next(iter(self._windows or p)))
        _check_alike(y_true, next(iter(p)))
        return {} if self.classes is not None and y_true not in self._windows else p

    def _events(self, p: dict[Hashable, float], y_true: Any) -> Iterator[tuple[AnyWindow, tuple[float, float]]]:
        """The window of each class, and (probability, outcome) of it; both nan if the event must be refused."""
        for label, window in (*self._windows.items(), (NOBODY, self._window)):
            yield window, (p.get(label, 0.0), float(label == y_true)) if p else (math.nan, math.nan)

    def get(self) -> float:
        """The value now, nan if nothing was seen."""
        if not self._windows:
            return math.nan
        name = "k1" if self.norm == 1 else "k2_debiased" if self.debias else "k2"
        mean = sum(float(window.get(name)) for window in self._windows.values()) / len(self._windows)
        return mean if self.norm == 1 or math.isnan(mean) else math.sqrt(max(mean, 0.0))

    def report(self) -> dict[Any, Any]:
        """The report of each class by its label (see Snapshot.report)."""
        return {label: window.report() for label, window in self._windows.items()}
