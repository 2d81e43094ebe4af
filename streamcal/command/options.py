"""What a command that reads a table can be asked: each field of `Job` is one option, declared here and nowhere else.

Only typer is imported here, so that --help answers at once; each command imports what it runs.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, get_type_hints

import typer

from streamcal.reading import SourceError
from streamcal.reading.roles import Wanted


def option(flag: str, about: str, default: Any = None, **more: Any) -> Any:
    """A field of Job that is an option of the command line."""
    return field(default=default, metadata={"typer": typer.Option(flag, help=about, **more)})


@dataclass(frozen=True)
class Job:
    """What a command was asked to do with a table."""

    file: str = field(
        metadata={"typer": typer.Argument(help="CSV, JSON Lines or Parquet; - is standard input.", show_default=False)}
    )
    p: str | None = option("--p", "Column of the predicted probability. [p, or the only usual name]")
    y: str | None = option("--y", "Column of the outcome. [y, or the only usual name]")
    weight: str | None = option("--weight", "Column of the weight.")
    time: str | None = option("--time", "Column of the event time.")
    time_format: str | None = option(
        "--time-format",
        "iso, s, ms, us, ns or a pattern such as %d-%m-%Y, for the whole file. Naive times are UTC.",
    )
    segment: str | None = option("--segment", "Column whose values are reported one by one.")
    pos_label: str | None = option("--pos-label", "The outcome that counts as 1; all others are 0.")
    top_label: str | None = option(
        "--top-label",
        "Columns of the classes' probabilities, a,b,c or prefix*; y is then a column's name or index.",
    )
    bins: int = option("--bins", "Number of rows.", 15)
    binning: str = option("--binning", "equal-width, uniform-mass or log-odds (rare events).", "equal-width")
    form: str | None = option("--format", "csv, jsonl or parquet. [by the first bytes]")
    json: bool = option("--json", "Print JSON.", False)
    max_segments: int = option("--max-segments", 'Segments shown; the rest is "other".', 20, min=1)
    strict: bool = option("--strict", "Stop at the first cell that cannot be read.", False)
    fail_if: list[str] | None = option(  # noqa: RUF009 it is a field
        "--fail-if", 'A limit such as "ece > 0.05": exit code 1 when it is crossed. Repeatable.', show_default=False
    )
    max_bad: float = option("--max-bad", "Exit code 2 when a larger share of the rows is bad.", 0.9, min=0, max=1)

    @property
    def wanted(self) -> Wanted:
        """The columns that were asked for."""
        return Wanted(
            self.p, self.y, self.weight, self.time, self.segment, self.pos_label, self.time_format, self.top_label
        )


TYPES = get_type_hints(Job)
OPTIONS = {
    f.name: inspect.signature(Job).parameters[f.name].replace(annotation=Annotated[TYPES[f.name], f.metadata["typer"]])
    for f in fields(Job)
}
OF_EVENTS = tuple(OPTIONS)
OF_MAPS = ("file", "p", "y", "weight", "pos_label", "bins", "binning", "form", "json")


def asked(*names: str) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """A command of a function that returns an exit code; its parameter `job` becomes the options of these fields of Job."""

    def command_of(function: Callable[..., int]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**given: Any) -> None:
            file = given.get("file") or given.get("config") or ""
            if names:
                given["job"] = Job(**{"file": file, **{name: given.pop(name) for name in names}})
            with guarded(file):
                code = function(**given)
            raise typer.Exit(code)

        hints = get_type_hints(function, include_extras=True)
        shown: list[inspect.Parameter] = []
        for name, own in inspect.signature(function).parameters.items():
            shown += [OPTIONS[option] for option in names] if name == "job" else [own.replace(annotation=hints[name])]
        shown = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown]
        command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        return command

    return command_of


@contextmanager
def guarded(path: str = "") -> Iterator[None]:
    """Errors of the user's making become one line on stderr and exit code 2; a closed pipe becomes silence."""
    try:
        yield
        sys.stdout.flush()
    except SourceError as error:
        where = "" if not path or str(error).startswith("--") else f"{'standard input' if path == '-' else path}: "
        typer.echo(f"streamcal: {where}{error}", err=True)
        raise typer.Exit(2) from None
    except BrokenPipeError:  # our reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except OSError as error:
        typer.echo(f"streamcal: {path}: {error.strerror or error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
