"""What all metrics here share: a streamcal window holds the events, the metric reads it."""

from __future__ import annotations

from typing import Any, TypeAlias

from river import metrics

from streamcal.arrays import check_whole
from streamcal.binning import Binning, EqualWidth, LogOdds, UniformMass
from streamcal.claims import Claim
from streamcal.windows import Fading, Revertible, Sliding

BINNINGS: dict[str, type[EqualWidth | UniformMass | LogOdds]] = {
    "equal-width": EqualWidth,
    "uniform-mass": UniformMass,
    "log-odds": LogOdds,
}
AnyWindow: TypeAlias = Revertible | Sliding | Fading


def rows_of(n_bins: int, binning: str | Binning | None, usual: str = "equal-width") -> Binning:
    """The binning that these parameters mean; ``n_bins`` counts unless ``binning`` is a Binning, which has its own rows.

    >>> rows_of(10, None), rows_of(10, "log-odds"), rows_of(10, EqualWidth(4))
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
    """A River metric over a window. Its value is nan until it has seen an event; a smaller value is better.

    An event that says nothing (a label or prediction that is None or nan, an empty dict), or that is not allowed (a
    probability outside [0, 1], a negative weight), is counted in ``n_refused`` and adds nothing; in a window of the metric's
    own it holds a place like any other.
    """

    _fmt = ",.6f"
    _window: AnyWindow
    window_size: int | None
    half_life: float | None

    def _event(self, y_true: Any, y_pred: Any) -> tuple[float, float]:
        """(score, outcome) as the window takes them; nan for what is missing."""
        raise AssertionError("each metric says what its events are")  # pragma: no cover

    def update(self, y_true: Any, y_pred: Any, w: float = 1.0) -> None:
        """Add an event."""
        self._window.update(*self._event(y_true, y_pred), w)

    def revert(self, y_true: Any, y_pred: Any, w: float = 1.0) -> None:
        """Take back an event, given as it was then. Exact; ValueError if there is no such event, or with a window of its own."""
        taken_back(self, self._window).revert(*self._event(y_true, y_pred), w)

    @property
    def bigger_is_better(self) -> bool:
        """False."""
        return False

    @property
    def n_refused(self) -> float:
        """How many events were refused; in a window of the metric's own, of those that are in it."""
        return float(self._window.snapshot().refused[0])

    def report(self) -> dict[str, Any]:
        """Counts, every metric of the window with its sampling error, and the reliability rows (see Snapshot.report)."""
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
