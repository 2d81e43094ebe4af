"""The command `streamcal`: options in, exit codes out. 0 fine, 1 a limit crossed, 2 the input or the usage is wrong.

Only typer is imported here, so that --help answers at once; each command imports what it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from streamcal.reading import SourceError
from streamcal.reading.roles import Wanted

# the registry of recalibrators, written down here because asking it costs the import of numba; a test compares the two
METHODS = {
    "platt": ("targets",),
    "beta": ("variant",),
    "temperature": (),
    "isotonic": ("strict",),
    "histogram": ("n_bins", "binning"),
    "scaling-binning": ("n_bins", "split", "targets", "seed"),
    "patching": ("alpha", "levels", "significance"),
    "one-shot-patching": ("levels",),
}
SETTINGS = "; ".join(f"{method}: {', '.join(names)}" for method, names in METHODS.items() if names)

app = typer.Typer(
    help="Is a probability worth its name? Calibration of predictions in files and streams.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

File = Annotated[str, typer.Argument(help="CSV, JSON Lines or Parquet; - is standard input.", show_default=False)]
P = Annotated[str | None, typer.Option("--p", help="Column of the predicted probability. [p, or the only usual name]")]
Y = Annotated[str | None, typer.Option("--y", help="Column of the outcome. [y, or the only usual name]")]
Weight = Annotated[str | None, typer.Option("--weight", help="Column of the weight.")]
Time = Annotated[str | None, typer.Option("--time", help="Column of the event time.")]
TimeFormat = Annotated[
    str | None,
    typer.Option(
        "--time-format",
        help="iso, s, ms, us, ns or a pattern such as %d-%m-%Y, for the whole file. Naive times are UTC.",
    ),
]
Segment = Annotated[str | None, typer.Option("--segment", help="Column whose values are reported one by one.")]
PosLabel = Annotated[str | None, typer.Option("--pos-label", help="The outcome that counts as 1; all others are 0.")]
TopLabel = Annotated[
    str | None,
    typer.Option(
        "--top-label",
        help="Columns of the classes' probabilities, a,b,c or prefix*; y is then a column's name or index.",
    ),
]
Bins = Annotated[int, typer.Option("--bins", help="Number of rows.")]
BinningName = Annotated[str, typer.Option("--binning", help="equal-width, uniform-mass or log-odds (rare events).")]
Form = Annotated[str | None, typer.Option("--format", help="csv, jsonl or parquet. [by the first bytes]")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MaxSegments = Annotated[int, typer.Option("--max-segments", min=1, help='Segments shown; the rest is "other".')]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first cell that cannot be read.")]
MaxBad = Annotated[
    float, typer.Option("--max-bad", min=0, max=1, help="Exit code 2 when a larger share of the rows is bad.")
]
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        help='A limit such as "ece > 0.05": exit code 1 when it is crossed. Repeatable.',
        show_default=False,
    ),
]


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


@app.command()
def report(
    file: File,
    p: P = None,
    y: Y = None,
    weight: Weight = None,
    time: Time = None,
    time_format: TimeFormat = None,
    segment: Segment = None,
    pos_label: PosLabel = None,
    top_label: TopLabel = None,
    bins: Bins = 15,
    binning: BinningName = "equal-width",
    form: Form = None,
    json: Json = False,
    plot: Annotated[str | None, typer.Option("--plot", help="Write a diagram to this .png or .svg.")] = None,
    max_segments: MaxSegments = 20,
    strict: Strict = False,
    fail_if: FailIf = None,
    max_bad: MaxBad = 0.9,
) -> None:
    """Read a table of predictions and outcomes, and say what the probabilities are worth."""
    wanted = Wanted(p, y, weight, time, segment, pos_label, time_format, top_label)
    with guarded(file):
        from streamcal.command.report import run
        from streamcal.reading.roles import Job

        job = Job(file, form, wanted, binning, bins, max_segments, strict, json, tuple(fail_if or ()), max_bad)
        code = run(job, plot)
    raise typer.Exit(code)


@app.command()
def watch(
    file: Annotated[
        str | None, typer.Argument(help="CSV or JSON Lines; - is standard input. Or --config.", show_default=False)
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config", help="Run a monitor: the other options but --once and --fail-on-alarm are in this file."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="With --config: read files to their end and stop.")] = False,
    p: P = None,
    y: Y = None,
    weight: Weight = None,
    time: Time = None,
    time_format: TimeFormat = None,
    segment: Segment = None,
    pos_label: PosLabel = None,
    top_label: TopLabel = None,
    bins: Bins = 15,
    binning: BinningName = "equal-width",
    form: Form = None,
    json: Json = False,
    window: Annotated[
        str, typer.Option("--window", help="Length of a window: 10000 events, or 30m, 1h, 1d of time.")
    ] = "10000",
    lateness: Annotated[
        str, typer.Option("--lateness", help="How much longer a window of time waits for late events: 30m, 2h.")
    ] = "0s",
    every: Annotated[
        float | None, typer.Option("--every", min=0.05, help="Seconds between two looks at the open window.")
    ] = None,
    idle_exit: Annotated[
        float | None, typer.Option("--idle-exit", min=0, help="Stop when nothing came for so many seconds.")
    ] = None,
    alarm: Annotated[
        str | None,
        typer.Option(
            "--alarm", help="Alarm on drift, at most once in arl events if all is well: arl=20000,tolerance=0.02."
        ),
    ] = None,
    fail_on_alarm: Annotated[bool, typer.Option("--fail-on-alarm", help="Exit with 1 if there was an alarm.")] = False,
    max_segments: MaxSegments = 20,
    strict: Strict = False,
    fail_if: FailIf = None,
    max_bad: MaxBad = 0.9,
) -> None:
    """Follow a growing file or a pipe: a line per closed window, and a summary at the end, on Ctrl-C and on SIGTERM.

    With --config: join predictions and delayed labels from any sources, by segments, with rules and alerts; goes on after
    a restart where it was.
    """
    if (file is None) == (config is None):
        typer.echo("streamcal: give a FILE or --config, and not both", err=True)
        raise typer.Exit(2)
    if config is not None:
        with guarded(config):
            from streamcal.monitor import live

            code = live.run(config, once, fail_on_alarm)
        raise typer.Exit(code)
    assert file is not None
    wanted = Wanted(p, y, weight, time, segment, pos_label, time_format, top_label)
    with guarded(file):
        from streamcal.command.alarms import wished
        from streamcal.command.watch import run
        from streamcal.reading.roles import Job

        job = Job(file, form, wanted, binning, bins, max_segments, strict, json, tuple(fail_if or ()), max_bad)
        code = run(job, window, every, idle_exit, lateness, wished(alarm, fail_on_alarm))
    raise typer.Exit(code)


@app.command()
def check(file: Annotated[str, typer.Argument(help="A configuration of watch --config.", show_default=False)]) -> None:
    """Say what is wrong with a configuration, each mistake with its line; nothing that it names is opened."""
    with guarded(file):
        from streamcal.monitor.config.check import check as mistakes

        found = mistakes(file)
        for line in found:
            typer.echo(f"{file}: {line}", err=True)
        if not found:
            typer.echo(f"{file} is right")
    raise typer.Exit(2 if found else 0)


@app.command()
def status(
    file: Annotated[str, typer.Argument(help="A state file, or a configuration (.toml).", show_default=False)],
    json: Json = False,
    fail_on_firing: Annotated[bool, typer.Option("--fail-on-firing", help="Exit with 1 if a rule is firing.")] = False,
) -> None:
    """Say how a monitor stands, running or stopped: counters, windows, what is firing."""
    with guarded(file):
        from streamcal.command import monitor

        code = monitor.status(file, json, fail_on_firing)
    raise typer.Exit(code)


@app.command()
def replay(
    config: Annotated[str, typer.Argument(help="The configuration that the audit was written under.")],
    events: Annotated[
        str | None, typer.Option("--events", help="Recorded events. [record of the configuration]")
    ] = None,
    audit: Annotated[str | None, typer.Option("--audit", help="The audit. [audit of the configuration]")] = None,
) -> None:
    """Take recorded events again, and hold the decisions against the audit; exit code 1 if they differ."""
    with guarded(config):
        from streamcal.command import monitor

        code = monitor.again(config, events, audit)
    raise typer.Exit(code)


@app.command()
def fit(
    file: File,
    out: Annotated[str, typer.Option("--out", "-o", help="File for the map.")],
    method: Annotated[str, typer.Option("--method", help=f"One of {', '.join(METHODS)}.")] = "platt",
    p: P = None,
    y: Y = None,
    weight: Weight = None,
    pos_label: PosLabel = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help=f"A setting, such as n_bins=20. {SETTINGS}.", show_default=False),
    ] = None,
    bins: Bins = 15,
    binning: BinningName = "equal-width",
    form: Form = None,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """Learn a map from a table's probabilities (of one class) to better ones; show what it is worth on unseen rows.

    --bins and --binning are those of the report, not of the map.
    """
    with guarded(file):
        from streamcal.command import maps
        from streamcal.reading.roles import Job

        job = Job(file, form, Wanted(p, y, weight, pos_label=pos_label), binning, bins, strict=strict, json=json)
        code = maps.fit(job, method, maps.settings(settings or []), out)
    raise typer.Exit(code)


@app.command()
def apply(
    map_file: Annotated[str, typer.Argument(help="A map that fit has written.", show_default=False)],
    file: File,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Write the table with one more column; - is stdout.")
    ] = None,
    column: Annotated[str, typer.Option("--column", help="Name of the new column.")] = "recalibrated",
    p: P = None,
    y: Y = None,
    weight: Weight = None,
    pos_label: PosLabel = None,
    bins: Bins = 15,
    binning: BinningName = "equal-width",
    form: Form = None,
    json: Json = False,
) -> None:
    """Put a map's probabilities beside those of a table; compare them where there are outcomes."""
    with guarded(map_file):
        from streamcal.command import maps
        from streamcal.reading.roles import Job

        fitted = maps.load(map_file)
    with guarded(file):
        maps.apply(
            fitted, Job(file, form, Wanted(p, y, weight, pos_label=pos_label), binning, bins, json=json), out, column
        )


@app.command()
def demo(
    seed: Annotated[int, typer.Option("--seed", help="Order of the stream.")] = 0,
    out: Annotated[str, typer.Option("--out", help="The picture, .png or .svg.")] = "streamcal-demo.png",
) -> None:
    """Watch a model learn and be too sure of itself: no file and no download needed."""
    with guarded():
        from streamcal.command.demo import run

        run(seed, out)


@app.command()
def warmup() -> None:
    """Compile the kernels and keep them in the cache, so that the next start is quick."""
    with guarded():
        from streamcal.command.demo import warm

        warm()


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(version("streamcal-engine"))
        except PackageNotFoundError:
            typer.echo("streamcal is not installed, only imported")
        raise typer.Exit(0)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point `streamcal`."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a segment's name must not end the run on a narrow terminal
    app()
