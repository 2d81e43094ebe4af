"""`streamcal fit` and `streamcal apply`: a map from a table's probabilities to better ones, kept in a file."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import msgspec
import numpy as np

from streamcal.binning import Binning
from streamcal.claims import top_label
from streamcal.command.ending import complaint, say
from streamcal.command.options import Job
from streamcal.command.report import UNSETTLED, Reader, Reports, encode, head
from streamcal.limits import CalibrationWarning
from streamcal.reading import SourceError
from streamcal.reading.cells import Codes, Floats, Reading, Scores, number, read_numbers
from streamcal.reading.outcomes import UNKNOWN
from streamcal.reading.outcomes import text as text_of
from streamcal.reading.rewritten import open_table, replacing
from streamcal.reading.roles import Roles
from streamcal.reading.shown import shown
from streamcal.recalibrate import RECALIBRATORS, Recalibrator
from streamcal.reporting import text
from streamcal.reporting.sums import binning_of
from streamcal.reporting.verdict import Report, count, short, verdict
from streamcal.state import from_bytes
from streamcal.windows import Cumulative

ENOUGH = 30  # rows from which on a mean is close enough to normal for its standard error to tell
OTHER_NAMES = {"sigmoid": "platt"}  # scikit-learn's
LARGEST = 10**8  # bytes of a map: one of 100,000 classes has a quarter
WORSE = 1e-6  # a loss that rises by more than this part is worse
COMPARED = ("ece", "k2_debiased", "brier", "log_loss", "pa_ratio", "calibration_slope")
CROSSED = "each half of the rows, drawn with seed 0, by the map of the other half; the file holds the map of all rows"


def fit(job: Job, method: str, options: Mapping[str, Any], out: str) -> int:
    """Fit a map on the whole table, write it, and show what it does to rows that it has not seen; the exit code."""
    make = _maker(method, options)
    if out != "-" and os.path.exists(out) and os.path.exists(job.file) and os.path.samefile(out, job.file):
        raise SourceError(f"--out {out}: that is the table itself")
    reader = Reader(job)
    batches = [batch for batch in reader.batches(hurry=True) if len(batch)]
    if not batches:  # the first cells that could not be read say best why
        bad = [reader.named(bad) for bad in reader.counts.bad[:3]]
        raise SourceError("; ".join([f"cannot be judged: {reader.refusal()}", *bad]))
    if code := reader.complain(reader.refusal()):
        return code
    p, y = (np.concatenate([getattr(batch, name) for batch in batches]) for name in ("p", "y"))
    if p.ndim == 2:
        p, y = top_label(p, y)
    w = None if batches[0].w is None else np.concatenate([batch.w for batch in batches if batch.w is not None])
    fitted, notes = _fitted(make, p, y, w)
    seen = Applied(reader.binning, reader.columns)
    unseen = _cross_fitted(make, p, y, w)
    seen.add(p, unseen, y, w)
    harmful = harms(p, unseen, y, w)
    before, after = seen.reports()
    notes += worse(before, after)
    with replacing(out) as file:
        file.write(fitted.to_bytes())
    aside = out == "-"  # standard output is for the file
    if job.json:
        source = {"rows": reader.counts.rows, **reader.counts.document()}
        said = {"map": repr(fitted), "file": out, "notes": notes, "after_is": CROSSED, "source": source}
        say(encode({**said, **both(before, after)}), error=aside)
    else:
        last = [*text.wrapped(f"after: {CROSSED}"), *(f"note: {note}" for note in notes), f"{fitted!r} -> {out}"]
        say(*head(reader, before), "", *compared(before, after), "", *last, error=aside)
    return int(harmful)


def harms(p: Floats, unseen: Floats, y: Floats, w: Floats | None) -> bool:
    """Whether a map makes the Brier score of rows that it has not seen worse by more than chance: two standard errors."""
    w = np.ones(p.size) if w is None else w
    rise = (unseen - y) ** 2 - (p - y) ** 2
    mean = float(w @ rise) / float(w.sum())
    return p.size >= ENOUGH and mean * float(w.sum()) > 2.0 * float(np.sqrt((w * w) @ (rise - mean) ** 2))


def worse(before: Report, after: Report) -> list[str]:
    """A note where the map does harm on rows that it has not seen."""
    said = []
    for name in ("brier", "log_loss"):
        old, new = before["metrics"][name]["value"], after["metrics"][name]["value"]
        if new > old * (1.0 + WORSE):
            said.append(f"{name} rises from {short(old)} to {short(new)}")
    return [f"on rows it has not seen the map does harm: {', '.join(said)}"] if said else []


def settings(texts: Sequence[str]) -> dict[str, Any]:
    """n_bins=20 and the like as keyword arguments: JSON where it is JSON, else text."""
    found: dict[str, Any] = {}
    for setting in texts:
        name, equals, value = setting.partition("=")
        if not equals:
            raise SourceError(f"--set takes name=value, got {setting}")
        value = value.strip()
        found[name.strip()] = value
        with suppress(msgspec.MsgspecError):
            found[name.strip()] = msgspec.json.decode(value.lower() if value.lower() in ("true", "false") else value)
    return found


def _maker(method: str, options: Mapping[str, Any]) -> Any:
    method = OTHER_NAMES.get(method, method)
    if method not in RECALIBRATORS:
        raise SourceError(f"--method must be one of {', '.join(RECALIBRATORS)}, got {method}")
    kind = RECALIBRATORS[method]
    unknown = [name for name in options if name not in kind.settings]
    if unknown:
        raise SourceError(f"--set {unknown[0]}: {method} takes {', '.join(kind.settings) or 'no settings'}")

    def make() -> Recalibrator:
        try:
            return kind(**options)
        except (TypeError, ValueError) as error:
            raise SourceError(f"--set: {error}") from None

    make()  # a bad setting is said before the table is read
    return make


def _fitted(make: Any, p: Floats, y: Floats, w: Floats | None) -> tuple[Recalibrator, list[str]]:
    """A fitted map and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        try:
            fitted = make().fit(p, y, w)
        except (ValueError, MemoryError) as error:
            raise SourceError(f"no map from {count(p.size)} events: {error}") from None
    return fitted, list(dict.fromkeys(str(warning.message) for warning in caught))


def _cross_fitted(make: Any, p: Floats, y: Floats, w: Floats | None) -> Floats:
    """Every event by the map of the other half of the events: what the map is worth on new ones.

    The halves are drawn, with seed 0: every other row would be one side only where a table lists both sides of each game.
    """
    out = p.copy()
    side = np.random.default_rng(0).permutation(p.size) % 2
    for here, there in ((side == 0, side == 1), (side == 1, side == 0)):
        if there.any() and (w is None or w[there].any()):
            out[here] = _fitted(make, p[there], y[there], None if w is None else w[there])[0].predict(p[here])
    return out


def compared(before: Report, after: Report) -> list[str]:
    """The metrics before and after side by side, and both diagrams."""
    body = []
    for name in COMPARED:
        old, new = before["metrics"][name], after["metrics"][name]
        body.append((name, *(part for m in (old, new) for part in (short(m["value"]), _span(m)))))
    lines = text.table(("metric", "before", "interval", "after", "interval"), body)
    for title, report in (("before", before), ("after", after)):
        said = text.wrapped(f"{title}: {verdict(report)}")
        lines += ["", *said, *text.diagram(report, text.signs())]
    return lines


def _span(metric: Mapping[str, Any]) -> str:
    """The interval, or in brackets what a perfect model would text."""
    if "interval" in metric:
        return "{} .. {}".format(*map(short, metric["interval"]))
    return "({} .. {})".format(*map(short, metric["null"])) if "null" in metric else ""


def both(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Both reports as JSON says them, with their verdicts."""
    return {"before": Reports(before, {}, ()).document(), "after": Reports(after, {}, ()).document()}


def apply(fitted: Recalibrator, job: Job, out: str | None, column: str) -> int:
    """Write the table with one more column; where there are outcomes, compare before and after. Returns 0.

    With --top-label the new column is the recalibrated probability of the most probable class.
    """
    binning = binning_of(job.binning, job.bins)
    table = open_table(job.file, job.form, job.wanted, out)
    if not column.strip().isprintable():
        raise SourceError(f"--column must be printable text, got {column!r}")
    if column.strip() in table.columns:
        raise SourceError(f"--column: there is a column {column!r} already")
    seen = Applied(binning, table.chosen)
    with ExitStack() as stack:
        write = None if out is None else stack.enter_context(table.writer(stack.enter_context(replacing(out)), column))
        for rows, cells in table.chunks():
            p, best = seen.scores_of(cells)
            known = ~np.isnan(p)
            values = np.full(p.size, np.nan)
            values[known] = fitted.predict(p[known])
            if write is not None:
                write(rows, values)
            seen.take(p, best, values, cells)
        seen.settle()
        if refusal := seen.refusal(job.max_bad, of_scores=True):  # before the table is in its place
            raise SourceError(refusal)
    refusal = seen.refusal(job.max_bad)
    _tell(job, out, seen, table.chosen.y if table.chosen.y in table.needed else None, refusal)
    if refusal is not None:
        return complaint(f"{shown(job.file)}: cannot be compared: {refusal}")
    return 0


class Applied:
    """What a map was applied to: rows without a usable prediction, outcome or weight, and the rest before and after."""

    def __init__(self, binning: Binning, columns: Roles) -> None:
        self.windows = Cumulative(binning, loss="log"), Cumulative(binning, loss="log")
        self.reading = Reading(columns)
        self.rows = 0
        self.without = {"prediction": 0, "outcome": 0, "weight": 0}
        self.refused = {"prediction": 0, "outcome": 0, "weight": 0}  # those of them that are not missing
        self.first: dict[str, str] = {}  # of them
        self.held: list[tuple[Any, ...]] = []  # rows whose labels may be names of classes or indices, until one tells

    def scores_of(self, cells: Mapping[str, Sequence[object]]) -> tuple[Floats, Codes]:
        """The predictions of some rows, nan where there is none, and which class they are for: the most probable one."""
        columns = [cells[name] for name in self.reading.columns.p]
        p, wrong, unlike = self.reading.scores.read(columns)
        first: dict[int, object] = {}  # of the bad rows the cell that made them so
        for column, bad in zip(columns, wrong, strict=True):
            first = {**{i: column[i] for i in bad}, **first}
        first |= {i: f"probabilities sum to {p[i].sum():.4g}" for i in unlike}
        self._refuse("prediction", first, [*first])
        p[[*first]] = np.nan
        if p.ndim == 1:
            return p, np.zeros(p.size, np.int64)
        return p.max(-1), p.argmax(-1)

    def _refuse(self, name: str, cells: Sequence[object] | Mapping[int, object], bad: Sequence[int]) -> None:
        self.refused[name] += len(bad)
        if bad and name not in self.first:
            self.first[name] = repr(text_of(cells[min(bad)])[:40])

    def take(self, p: Floats, best: Codes, values: Floats, cells: Mapping[str, Sequence[Any]]) -> None:
        """Count some rows, and compare those that have all they need."""
        self.rows += p.size
        self.without["prediction"] += int(np.isnan(p).sum())
        labels, c = self.reading.labels, self.reading.columns
        if c.y not in cells:
            return
        numbers = labels.numbers(cells[c.y])
        labels.count(numbers)
        y = labels.outcomes(numbers)
        unknown = np.flatnonzero(y == UNKNOWN).tolist()
        self._refuse("outcome", cells[c.y], unknown)
        w, bad = np.ones(p.size), list[int]()
        if c.weight is not None:
            w, bad = read_numbers(cells[c.weight], "w", partial(number, decimal=c.decimal), c.decimal)
            self._refuse("weight", cells[c.weight], bad)
        w[bad], y[unknown] = np.nan, np.nan
        for name, found in (("outcome", y), ("weight", w)):
            self.without[name] += int(np.isnan(found).sum())
        used = ~np.isnan(p + y + w)
        self.held.append((p[used], values[used], numbers[used], best[used], w[used]))
        if labels.settled:
            self.settle()
        elif sum(len(part[0]) for part in self.held) > UNSETTLED:
            raise SourceError(labels.problem() or "labels are names or indices: see --labels")

    def settle(self) -> None:
        """Compare the rows that are held: what their labels mean is known by now, or never will be."""
        for p, values, numbers, best, w in self.held:
            y = self.reading.labels.outcomes(numbers)
            self.add(p, values, (y == best).astype(float) if self.reading.columns.classes else y, w)
        self.held.clear()

    def refusal(self, allowed: float, of_scores: bool = False) -> str | None:
        """Why the predictions cannot be used (`of_scores`), or nothing can be compared; None where they can."""
        looks = self.reading.scores if of_scores else self.reading.labels
        for name in ("prediction",) if of_scores else ("outcome", "weight"):
            refused, known = self.refused[name], self.rows - self.without[name] + self.refused[name]
            said = looks.problem(allowed, known) if isinstance(looks, Scores) else looks.problem(allowed)
            if said is not None or refused > allowed * known:
                many = f"{count(refused)} of {count(known)} {name}s refused (allowed: --max-bad {allowed:g})"
                many += f", the first {self.first[name]}" if name in self.first else ""
                return f"{said}; {many}" if said else many
        return None

    def add(self, before: Floats, after: Floats, y: Floats, w: Floats | None) -> None:
        """Compare events."""
        for window, values in zip(self.windows, (before, after), strict=True):
            window.update_many(values, y, w)

    def reports(self) -> list[dict[str, Any]]:
        """Before and after."""
        return [window.snapshot().report() for window in self.windows]


def _tell(job: Job, out: str | None, seen: Applied, y: str | None, refusal: str | None) -> None:
    """What was done, on stderr where the table itself went to stdout."""
    aside = out == "-"  # standard output is for the file
    reports = seen.reports()
    n = int(reports[0]["count"]) if refusal is None else 0
    if job.json:
        found = both(*reports) if n else {}
        without = {f"without_{name}": lost for name, lost in seen.without.items()}
        say(encode({"file": out, "rows": seen.rows, **without, "compared": n, **found}), error=aside)
        return
    none = "no column of outcomes" if y is None else f"no usable outcome in column {y}"
    lines = compared(*reports) if n else [f"{none}: nothing to compare"]
    lost = ", ".join(f"{count(lost)} no usable {name}" for name, lost in seen.without.items() if lost)
    came = f"{count(seen.rows)} rows, {count(n)} compared{'; ' if lost else ''}{lost}"
    say(*lines, "", came, error=aside)


def load(path: str) -> Recalibrator:
    """The map in a file that `fit` wrote; SourceError for anything else."""
    try:
        with open(path, "rb") as file:  # a pipe is read too, a device without an end not to it
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise SourceError(f"over {LARGEST:,} bytes, which no map has")
        fitted = from_bytes(data)
        if not isinstance(fitted, Recalibrator):
            raise SourceError(f"holds a {type(fitted).__name__}, not a map of probabilities")
        fitted.predict([])
    except ValueError as error:
        raise SourceError(str(error)) from None
    return fitted
