"""The house rules that a machine can check: who may import whom, sizes, public names, README's Python runs."""

from __future__ import annotations

import ast
import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import streamcal

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "streamcal").rglob("*.py"))
FLOORS = [
    "_jit",
    "state",
    "arrays",
    "limits",
    "times",
    "segments",
    "logistic",
    "binning",
    "rows",
    "tally",
    "claims",
    "snapshot",
    "metrics",
    "intervals",
    "confidence",
    "summary",
    "windows",
    "batch",
    "recalibrate",
    "drift",
    "reading",
    "reporting",
    "monitor",
    "sklearn",
    "river",
    "command",
]
ADAPTERS_ONLY = {
    "river",
    "sklearn",
    "scipy",
    "pandas",
    "pyspark",
    "pyarrow",
    "matplotlib",
    "typer",
    "rich",
    "msgspec",
    "urllib3",
}
TO_WRITE_AND_SEND = {
    "monitor": {"msgspec", "urllib3"},
    "reading": {"pyarrow", "msgspec"},
}  # what a room may import besides
FORBIDDEN = {"utils", "util", "base", "common", "core", "helpers", "misc", "manager", "handler"}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports_of(path: Path) -> set[str]:
    """Modules that a file imports when it is imported (not those inside functions or for type checking)."""
    found = set()
    for node in tree_of(path).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room_of(path: Path) -> str:
    return path.relative_to(ROOT / "streamcal").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_imports_only_rooms_below_it(path):
    room = room_of(path)
    if room == "__init__":
        return
    for name in imports_of(path):
        if name.startswith("streamcal.") and name.split(".")[1] in FLOORS:
            assert FLOORS.index(name.split(".")[1]) <= FLOORS.index(room), f"{path.name} imports {name}"
        if room not in ("command", "reporting", "sklearn", "river"):  # adapters
            assert name.split(".")[0] not in ADAPTERS_ONLY - TO_WRITE_AND_SEND.get(room, set()), (
                f"{path.name} imports {name}"
            )
        if room != "_jit":
            assert not name.startswith(("numba", "llvmlite")), f"{path.name} imports {name}"


def test_there_are_no_import_cycles():
    modules = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in FILES}
    edges = {m: {n for n in imports_of(p) if n in modules and n != m} for m, p in modules.items()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module not in done:
            for other in edges[module]:
                visit(other, (*path, module))
            done.add(module)

    for module in modules:
        visit(module, ())


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_are_short(path):
    assert path.stem not in FORBIDDEN
    assert len(path.read_text().splitlines()) <= 600
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            size = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            assert size <= 50, f"{node.name} has {size} lines"


def test_public_names_are_frozen():
    """A change here is a change of the interface: it belongs into the change log."""
    names = {n for n in vars(streamcal) if not n.startswith("_")}
    modules = {p.stem if p.stem != "__init__" else p.parent.name for p in FILES}
    assert sorted(streamcal.__all__) == sorted(names - modules | (set(streamcal.__all__) & modules))
    promised = [
        "bin_index",
        "reliability",
        "ece",
        "mce",
        "k1",
        "k2",
        "kinf",
        "l2_ce",
        "brier",
        "murphy",
        "pa_ratio",
        "q1",
        "q2",
        "qinf",
        "top_label",
        "marginal_ce",
        "pinball_loss",
        "EqualWidth",
        "UniformMass",
        "LogOdds",
        "Levels",
        "Grid",
        "Edges",
        "Cumulative",
        "Sliding",
        "Tumbling",
        "Fading",
        "Timed",
        "Mean",
        "Quantile",
        "Interval",
        "TopLabel",
        "Marginal",
        "PIT",
        "Snapshot",
        "METRICS",
        "from_bytes",
    ]
    assert set(promised) <= set(streamcal.__all__)


def test_import_is_light():
    """``import streamcal`` loads numba and numpy (and what they load) and nothing that takes seconds."""
    code = (
        "import sys, numpy, numba; before = set(sys.modules); import streamcal; "
        "new = {m.split('.')[0] for m in set(sys.modules) - before}; "
        "print(sorted(new & {'river', 'scipy', 'pandas', 'matplotlib', 'pyarrow', 'typer', 'rich', 'sklearn'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_the_python_in_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks, "README shows no Python"
    namespace: dict[str, object] = {}
    for block in blocks:
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, namespace, "README", "README.md", 0)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            runner.run(test, clear_globs=False)
            assert runner.failures == 0
            namespace = test.globs
        else:
            exec(compile(block, "README.md", "exec"), namespace)
