"""How far one event walks through the code: files, functions and calls, counted while the code runs (kernels as plain Python).

    PYTHONPATH=. python bench/walks.py [--list WALK] [--files]

Every walk is taken once to load and warm what it needs, and then once while it is traced. *Functions* are distinct ones of
streamcal; comprehensions and lambdas count for the function that they stand in. *Moves* are calls from a file into another.

``prediction`` and ``label``: one line of a file source through the loop of `watch --config` up to the committed transaction, with
a SQLite state, a segment, two windows, a rule and a detector; ``plain``: with a source and a model only, so that the detector is
all there is. ``CalibrationDrift``, ``Sliding``: one ``update(p, y)``. ``ece``: three events. The last column: files before the
first kernel.
"""

from __future__ import annotations

import os

os.environ["NUMBA_DISABLE_JIT"] = "1"  # before streamcal is imported: a compiled kernel has no calls to count

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numba
from rich.table import Table
from tables import Console

KERNELS: set[CodeType] = set()


def njit(**options: Any) -> Callable[[Any], Any]:
    """In the place of numba's: a kernel stays the function that it is, and is known as one."""
    return lambda function: KERNELS.add(function.__code__) or function


numba.njit = njit

import streamcal  # noqa: E402
from streamcal.monitor.config.config import load  # noqa: E402
from streamcal.monitor.live import Live  # noqa: E402
from streamcal.monitor.monitor import Monitor  # noqa: E402
from streamcal.reading.waiting import Stop  # noqa: E402

PACKAGE = str(Path(streamcal.__file__).parent) + os.sep
INNER = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<lambda>")
WATCHED = ("monitor/", "reading/")  # the rooms with a bound of their own
PLAIN = """
state = "state.db"
[sources.file]
type = "file"
path = "events.jsonl"
[models.credit]
"""
WHOLE = """
[segments]
fields = ["country"]
[windows.day]
time = "1d"
[windows.last]
events = 1000
[rules.spread]
metric = "ece"
window = "day"
above = 0.1
[detectors.drift]
arl = 10000
"""


class Walk:
    """The calls of streamcal's functions while something runs."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.calls: list[CodeType] = []
        self.moves = 0
        before = sys.getprofile()
        sys.setprofile(self._seen)
        try:
            run()
        finally:
            sys.setprofile(before)

    def _seen(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name not in INNER:
            self.calls.append(code)
            caller = frame.f_back.f_code.co_filename if frame.f_back else ""
            self.moves += caller.startswith(PACKAGE) and caller != code.co_filename

    @property
    def functions(self) -> Counter[tuple[str, str]]:
        """How often each function was called, by file and name."""
        return Counter((file_of(code), code.co_qualname) for code in self.calls)

    @property
    def files(self) -> Counter[str]:
        """How often functions of each file were called."""
        return Counter(map(file_of, self.calls))

    def row(self, name: str) -> list[str]:
        watched = sum(file.startswith(WATCHED) for file in self.files)
        first = next((i for i, code in enumerate(self.calls) if code in KERNELS), len(self.calls))
        before = len(set(map(file_of, self.calls[:first])))
        figures = (len(self.files), watched, len(self.functions), len(self.calls), self.moves, before)
        return [name, *map(str, figures)]


def file_of(code: CodeType) -> str:
    return code.co_filename.removeprefix(PACKAGE)


# -- one line through the monitor ----------------------------------------------------------------------------------------


class OnceRound(Stop):
    """Asks the loop to stop after one round."""

    rounds = 0

    @property
    def asked(self) -> bool:  # type: ignore[override]
        self.rounds += 1
        return self.rounds > 1


def line(number: int, **fields: Any) -> str:
    return json.dumps({"id": f"a{number}", "t": 1.7e9 + number, "country": "at", **fields}) + "\n"


def monitored(text: str, folder: Path) -> dict[str, Walk]:
    """A prediction and its label, after the same of others."""
    folder.mkdir()
    (folder / "watch.toml").write_text(text)
    os.chdir(folder)
    path = folder / "events.jsonl"
    path.write_text("".join(line(i, p=0.5) + line(i, y=i % 2) for i in range(40)))
    config = load("watch.toml")
    walks = {}
    with Monitor(config) as monitor, contextlib.redirect_stderr(io.StringIO()):
        live = Live(config, monitor, True, Stop())

        def one_round() -> None:
            live.stop = OnceRound()
            live.run()

        for _ in range(3):
            one_round()
        for number in (40, 41):  # the second time nothing is new
            for name, fields in (("prediction", {"p": 0.82}), ("label", {"y": 1})):
                before = monitor.status()["taken"]
                with path.open("a") as file:
                    file.write(line(number, **fields))
                walks[name] = Walk(one_round)
                assert monitor.status()["taken"] == before + 1, "the line was not taken in this round"
        for stream in live.merge.streams:
            stream.source.close()
        assert monitor.status()["models"][0]["predictions"]["joined"] == 42
    return walks


# -- the others ----------------------------------------------------------------------------------------------------------


def warmed(run: Callable[[], Any]) -> Walk:
    run()
    run()
    return Walk(run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="WALK", help="the functions of one walk, in the order of their first calls")
    parser.add_argument("--files", action="store_true", help="the files of each walk, and the functions called in each")
    wish = parser.parse_args()
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        walks = monitored(PLAIN + WHOLE, Path(folder, "whole"))
        walks |= {f"plain {name}": walk for name, walk in monitored(PLAIN, Path(folder, "plain")).items()}
        os.chdir(home)
    drift = streamcal.drift.CalibrationDrift()
    sliding = streamcal.Sliding(streamcal.EqualWidth(10), 100)
    walks["CalibrationDrift"] = warmed(lambda: drift.update(0.82, 1))
    walks["Sliding"] = warmed(lambda: sliding.update(0.82, 1))
    walks["ece"] = warmed(lambda: streamcal.ece([0.8, 0.3, 0.5], [1, 0, 1]))
    if wish.list:
        walk = walks[wish.list]
        for file, name in dict.fromkeys((file_of(code), code.co_qualname) for code in walk.calls):
            print(f"{walk.functions[file, name]:4} {file:36} {name}")
        return
    table = Table("walk", "files", "in monitor/, reading/", "functions", "calls", "moves", "before")
    for name, walk in walks.items():
        table.add_row(*walk.row(name))
    Console(width=110).print(table)
    for name, walk in walks.items() if wish.files else ():
        print(name, *(f"{file}:{len({c for c in walk.calls if file_of(c) == file})}" for file in walk.files))


if __name__ == "__main__":
    main()
