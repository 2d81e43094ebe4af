"""What a command that reads a table can be asked: each field of `Job` is one option, declared here and nowhere else.

Only typer is imported here, so that --help answers at once; each command imports what it runs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, get_type_hints

import typer

from streamcal.command.ending import about
from streamcal.reading.roles import P_NAMES, Y_NAMES, Wanted


def option(flag: str, about: str, default: Any = None, **more: Any) -> Any:
    """A field that is an option of the command line; without a flag an argument."""
    shown = typer.Option(flag, help=about, **more) if flag else typer.Argument(help=about, show_default=False)
    return field(default=default, metadata={"typer": shown})


@dataclass(frozen=True)
class Job:
    """What a command was asked to do with a table."""

    file: str = option(
        "",
        "CSV, JSON Lines, a JSON array, Parquet or Arrow, also packed (gzip, bzip2, zstd); - is standard input.",
        MISSING,
    )
    p: str | None = option(
        "--p", f"Column of the predicted probability. [p, or the only one of {', '.join(P_NAMES[1:])}]"
    )
    y: str | None = option("--y", f"Column of the outcome. [y, or the only one of {', '.join(Y_NAMES[1:])}]")
    weight: str | None = option("--weight", "Column of the weight.")
    time: str | None = option("--time", "Column of the event time.")
    time_format: str | None = option(
        "--time-format",
        "iso, s, ms, us, ns, d (days since 1970) or a pattern such as %d-%m-%Y, for the whole file. Naive times are UTC.",
    )
    segment: str | None = option("--segment", "Column whose values are reported one by one.")
    pos_label: str | None = option(
        "--pos-label", "The outcome that is 1; the only other one is 0. [1, true, t, yes or y, in any case]"
    )
    neg_label: list[str] | None = option(  # noqa: RUF009 it is a field
        "--neg-label",
        "An outcome that is 0, where there are several beside --pos-label; what is neither is refused. Repeatable.",
        show_default=False,
    )
    missing: list[str] | None = option(  # noqa: RUF009 it is a field
        "--missing",
        "One more word for an outcome that is not known. Repeatable. [empty, null, none, nan, na, n/a, <na>, nat, ?, unknown, "
        "pending]",
        show_default=False,
    )
    top_label: str | None = option(
        "--top-label",
        "Columns of the classes' probabilities, a,b,c or prefix*; y is then a column's name or index.",
    )
    labels: str | None = option("--labels", "With --top-label: names or indices. [what fits all labels]")
    scale: str = option("--scale", "What the scores are: unit (0 to 1), percent or logit.", "unit")
    decimal: str = option("--decimal", "The decimal sign of numbers, . or a comma.", ".")
    bins: int = option("--bins", "Number of bins.", 15)
    binning: str = option(
        "--binning", "equal-width (uniform), uniform-mass (quantile) or log-odds (rare events).", "equal-width"
    )
    form: str | None = option("--format", "csv, jsonl, json, parquet or arrow. [by the first bytes]")
    json: bool = option("--json", "Print JSON.", False)
    max_segments: int = option("--max-segments", 'Segments shown; the rest is "other".', 20, min=1)
    strict: bool = option("--strict", "Stop at the first cell that cannot be read.", False)
    fail_if: list[str] | None = option(  # noqa: RUF009 it is a field
        "--fail-if", 'A limit such as "ece > 0.05": exit code 1 when it is crossed. Repeatable.', show_default=False
    )
    max_bad: float = option(
        "--max-bad",
        "No verdict and exit code 2 when a larger share of the rows was refused; missing ones do not count.",
        0.01,
        min=0,
        max=1,
    )

    @property
    def wanted(self) -> Wanted:
        """The columns that were asked for."""
        given = {f.name: getattr(self, f.name) for f in fields(Wanted)}
        return Wanted(**{**given, "neg_label": tuple(self.neg_label or ()), "missing": tuple(self.missing or ())})


@dataclass(frozen=True)
class WatchJob(Job):
    """What `watch` was asked to do: with a table, or with all that a configuration names."""

    file: str = option("", "CSV or JSON Lines; - is standard input. Or --config.", "")
    config: str | None = option(
        "--config", "Run a monitor: the other options but --once and --fail-on-alarm are in this file."
    )
    once: bool = option("--once", "With --config: read files to their end and stop.", False)
    window: str = option("--window", "Length of a window: 10000 events, or 30m, 1h, 1d of time.", "10000")
    lateness: str = option("--lateness", "How much longer a window of time waits for late events: 30m, 2h.", "0s")
    every: float | None = option("--every", "Seconds between two looks at the open window.", min=0.05)
    idle_exit: float | None = option("--idle-exit", "Stop when nothing came for so many seconds.", min=0)
    alarm: str | None = option(
        "--alarm", "Alarm on drift, at most once in arl events if all is well: arl=20000,tolerance=0.02."
    )
    fail_on_alarm: bool = option("--fail-on-alarm", "Exit with 1 if there was an alarm.", False)


def asked(job: type[Job] | None = None, *names: str) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """A command of a function that returns an exit code.

    Its parameter `job` becomes the options that are the fields of this class: all of them, or those of these names.
    """
    wanted = {f.name: f for f in (fields(job) if job else ()) if not names or f.name in names}
    types = get_type_hints(job) if job else {}
    of_job = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if f.default is MISSING else f.default,
            annotation=Annotated[types[name], f.metadata["typer"]],
        )
        for name, f in wanted.items()
    ]

    def command_of(function: Callable[..., int]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**given: Any) -> None:
            file = given.get("file") or given.get("config") or ""
            if job:
                given["job"] = job(**{name: given.pop(name) for name in wanted})
            with about(file):
                code = function(**given)
            raise typer.Exit(code)

        hints = get_type_hints(function, include_extras=True)
        shown: list[inspect.Parameter] = []
        for name, own in inspect.signature(function).parameters.items():
            keyword = own.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            shown += of_job if name == "job" else [keyword]
        command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        return command

    return command_of
