"""The command `streamcal`: options in, exit codes out (`ending.EXIT_CODES`).

Only typer is imported here, so that --help answers at once; each command imports what it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from streamcal.command.ending import Command, about, complaint, open_streams, say
from streamcal.command.options import Job, WatchJob, asked

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
# What fit and apply take of a Job.
OF_MAPS = (
    *(
        "file",
        "p",
        "y",
        "weight",
        "pos_label",
        "neg_label",
        "missing",
        "top_label",
        "labels",
        "scale",
        "decimal",
        "bins",
        "binning",
        "form",
        "json",
    ),
    "max_bad",
)
SETTINGS = "; ".join(f"{method}: {', '.join(names)}" for method, names in METHODS.items() if names)

app = typer.Typer(
    cls=Command,
    help="Is a probability worth its name? Calibration of predictions in files and streams.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command()
@asked(Job)
def report(
    job: Job,
    plot: Annotated[str | None, typer.Option("--plot", help="Write a diagram to this .png or .svg.")] = None,
) -> int:
    """Read a table of predictions and outcomes, and say what the probabilities are worth."""
    from streamcal.command.report import run

    return run(job, plot)


@app.command()
@asked(WatchJob)
def watch(job: WatchJob) -> int:
    """Follow a growing file or a pipe: a line per closed window, and a summary at the end, on Ctrl-C and on SIGTERM.

    With --config: join predictions and delayed labels from any sources, by segments, with rules and alerts; goes on after
    a restart where it was.
    """
    if bool(job.file) == bool(job.config):
        return complaint("give a FILE or --config, and not both")
    if job.config:
        from streamcal.monitor import live

        return live.run(job.config, job.once, job.fail_on_alarm)
    from streamcal.command.watch import run

    return run(job)


@app.command()
@asked()
def check(file: Annotated[str, typer.Argument(help="A configuration of watch --config.", show_default=False)]) -> int:
    """Say what is wrong with a configuration, each mistake with its line; nothing that it names is opened."""
    from streamcal.monitor.config.config import check as mistakes

    found = mistakes(file)
    for line in found:
        say(f"{file}: {line}", error=True)
    if not found:
        say(f"{file} is right")
    return 2 if found else 0


@app.command()
@asked()
def status(
    file: Annotated[str, typer.Argument(help="A state file, or a configuration (.toml).", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    fail_on_firing: Annotated[bool, typer.Option("--fail-on-firing", help="Exit with 1 if a rule is firing.")] = False,
) -> int:
    """Say how a monitor stands, running or stopped: counters, windows, what is firing."""
    from streamcal.command import monitor

    return monitor.status(file, json, fail_on_firing)


@app.command()
@asked()
def replay(
    config: Annotated[str, typer.Argument(help="The configuration that the audit was written under.")],
    events: Annotated[
        str | None, typer.Option("--events", help="Recorded events. [record of the configuration]")
    ] = None,
    audit: Annotated[str | None, typer.Option("--audit", help="The audit. [audit of the configuration]")] = None,
) -> int:
    """Take recorded events again, and hold the decisions against the audit; exit code 1 if they differ."""
    from streamcal.command import monitor

    return monitor.again(config, events, audit)


@app.command()
@asked(Job, *OF_MAPS, "strict")
def fit(
    job: Job,
    out: Annotated[str, typer.Option("--out", "-o", help="File for the map.")],
    method: Annotated[str, typer.Option("--method", help=f"One of {', '.join(METHODS)}; sigmoid is platt.")] = "platt",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help=f"A setting, such as n_bins=20. {SETTINGS}.", show_default=False),
    ] = None,
) -> int:
    """Learn a map from a table's probabilities to better ones; show what it is worth on unseen rows.

    With --top-label: from the highest probability of each row to how often that class is right; apply it in the same way.

    --bins and --binning are those of the report, not of the map. Exit code 1 where the map makes unseen rows worse.
    """
    from streamcal.command import maps

    return maps.fit(job, method, maps.settings(settings or []), out)


@app.command()
@asked(Job, *OF_MAPS)
def apply(
    map_file: Annotated[str, typer.Argument(help="A map that fit has written.", show_default=False)],
    job: Job,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Write the table with one more column; - is stdout.")
    ] = None,
    column: Annotated[str, typer.Option("--column", help="Name of the new column.")] = "recalibrated",
) -> int:
    """Put a map's probabilities beside those of a table; compare them where there are outcomes.

    With --top-label the new column is the recalibrated probability of each row's most probable class.
    """
    from streamcal.command import maps

    with about(map_file):
        fitted = maps.load(map_file)
    return maps.apply(fitted, job, out, column)


@app.command()
@asked()
def demo(
    seed: Annotated[int, typer.Option("--seed", help="Order of the stream.")] = 0,
    out: Annotated[str, typer.Option("--out", help="The picture, .png or .svg.")] = "streamcal-demo.png",
) -> int:
    """Watch a model learn whose predictions are too extreme: no file and no download needed."""
    from streamcal.command.demo import run

    return run(seed, out)


@app.command()
@asked()
def warmup() -> int:
    """Compile the kernels and keep them in the cache, so that the next start is quick."""
    from streamcal.command.demo import warm

    return warm()


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            say(version("streamcal-engine"))
        except PackageNotFoundError:
            say("streamcal is not installed, only imported")
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
    open_streams()
    app()
