"""How every command begins and ends: three standard streams at the start; at the end one exit code, and at most one line.

An exit code is read by cron, CI and supervisors: 1 must mean a limit or an alarm and nothing else, so whatever else goes wrong is
2 (theirs: usage, configuration, input) or 70 (ours). A traceback is for us: STREAMCAL_DEBUG=1 shows it.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

from streamcal.reading import SourceError
from streamcal.reading.shown import lines, shown

EXIT_CODES = {
    0: "ended as asked",
    1: "an alert, an alarm or a limit (only where asked for), or a replay that differs",
    2: "usage, configuration or input; a full disk; an output that is closed",
    4: "the state is locked, damaged or newer, or a file of a monitor cannot be written",
    6: "watch --config --once: a source did not answer or vanished, or too much was unread",
    70: "an error of streamcal's own: one line, the traceback with STREAMCAL_DEBUG=1",
    130: "Ctrl-C",
}
DEBUG = "STREAMCAL_DEBUG"
OF_SOURCES = (errno.EPIPE, errno.ESHUTDOWN)  # how a reader that has seen enough is told


class Command(TyperGroup):
    """The group of all commands: whatever comes out of one of them ends here."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **extra: Any) -> Any:
        """Run the command that the arguments name, and exit with its code."""
        try:
            given = list(sys.argv[1:] if args is None else args)
            with self.make_context("streamcal", given) as context:
                self.invoke(context)
            code = 0
        except SystemExit as error:  # a signal that asked to stop
            code = error.code if isinstance(error.code, int) else 70
        except BaseException as error:
            code = ended(error)
        sys.exit(flushed(code))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The table of exit codes, below the commands."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


def ended(error: BaseException) -> int:
    """The exit code of whatever ended a command, said in one line on standard error."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return 130
    if isinstance(error, OSError) and error.errno in OF_SOURCES:
        return 0
    if os.environ.get(DEBUG):
        with suppress(OSError, ValueError):
            traceback.print_exception(error)
    if isinstance(error, SourceError):
        first, *more = map(str, error.args)
        return complaint(f"{shown(error.where)}: {first}" if error.where else first, *more, code=error.code)
    if isinstance(error, OSError):
        return complaint(
            ": ".join(shown(part) for part in (error.filename, error.strerror or error) if part is not None)
        )
    if isinstance(error, MemoryError):
        return complaint(f"not enough memory: {error}".removesuffix(": "))
    if hasattr(error, "format_message"):  # of typer: an option that does not exist, a number that is none
        context: Any = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            say(*context.get_help().splitlines(), error=True)
            return 2
        said = shown(error.format_message()).removesuffix(".")
        return complaint(f"{said}; see {getattr(context, 'command_path', 'streamcal')} --help")
    return complaint(f"internal error: {shown(f'{type(error).__name__}: {error}')} ({DEBUG}=1 shows where)", code=70)


def complaint(first: str, *more: str, code: int = 2) -> int:
    """A line on standard error (of a configuration one for each mistake), and the exit code that goes with it."""
    say(f"streamcal: {first}", *more, error=True)
    return code


def say(*text: str, error: bool = False, flush: bool = False) -> None:
    """Print lines: the only way to a terminal, and no text of others acts there. SourceError if standard output takes none."""
    with suppress(*(OSError, ValueError) if error else ()), writing():
        print(lines(*text), file=sys.stderr if error else sys.stdout, flush=flush)


@contextmanager
def writing() -> Iterator[None]:
    """What goes wrong inside of it goes wrong with standard output."""
    try:
        yield
    except BrokenPipeError:  # our reader, such as head, has seen enough
        raise
    except OSError as error:
        raise output_error(error) from None


def output_error(error: OSError) -> SourceError:
    """A full disk behind a redirection, say."""
    return SourceError(f"standard output: {error.strerror or error}")


def flushed(code: int) -> int:
    """The exit code, once all that was said is on its way. A stream that takes nothing is let go: Python tries again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            _to_nowhere(stream)
            if stream is sys.stdout and code != 70 and not isinstance(error, BrokenPipeError):
                code = max(code, ended(output_error(error) if isinstance(error, OSError) else error))
    return code


def _to_nowhere(stream: TextIO) -> None:
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def open_streams() -> None:
    """Give each standard stream that is closed a place (services and cron close them), and none may end the run by a letter.

    A free descriptor 0, 1 or 2 would be that of the next file: what a library then writes to "standard error" would be in it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free is this one
    # sys.stdin stays None: what is asked to read it says that it is closed
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def about(path: str) -> Iterator[None]:
    """What goes wrong inside of it is about this file, unless it says more exactly what it is about."""
    try:
        yield
    except SourceError as error:
        if path and not error.where and not str(error).startswith(("--", "standard output")):
            error.where = "standard input" if path == "-" else path
        raise
    except OSError as error:
        if error.errno in OF_SOURCES or error.filename is not None:
            raise
        with about(path):
            raise SourceError(error.strerror or str(error)) from error
