"""The house rules that a machine can check: who may import whom, sizes, names, comments, public names, README's Python runs.

Counted as the survey of the house counts. ``PENDING`` holds what does not keep a rule yet; it may only shrink.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import streamcal

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "streamcal"
FILES = sorted(HOUSE.rglob("*.py"))
TEXTS = {path: path.read_text() for path in FILES}
TREES = {path: ast.parse(text) for path, text in TEXTS.items()}
NAMES = {path: str(path.relative_to(HOUSE)) for path in FILES}
TOTAL = 31_100  # lines of streamcal/: lowered as rooms get smaller, to 24,500
# Each room may import what stands before it here. command is the last: it alone may import adapters, the page and the exporter.
FLOORS = re.findall(
    r"\w+",
    "_jit arrays state limits times segments logistic reading binning tally claims snapshot metrics intervals confidence summary "
    "windows batch scores recalibrate drift reporting monitor page prometheus sklearn river spark sql frames command",
)
ADAPTERS = {"river", "sklearn", "spark", "sql", "frames", "prometheus", "page"}
FOREIGN = {
    "river",
    "sklearn",
    "scipy",
    "pandas",
    "polars",
    "duckdb",
    "pyspark",
    "pyarrow",
    "matplotlib",
    "typer",
    "rich",
}
FOREIGN |= {"msgspec", "urllib3", "confluent_kafka", "redis"}
# What a room that is no adapter may import besides numpy and the standard library.
ALLOWED = {
    "monitor": {"msgspec", "urllib3", "confluent_kafka", "redis"},
    "reading": {"pyarrow", "msgspec"},
    "command": FOREIGN,
    "reporting": {"rich", "matplotlib"},
}
FORBIDDEN = {"utils", "util", "base", "common", "core", "helpers", "misc", "manager", "handler"}
MEMBERS = {"windows/cumulative.py"}  # of a family, each a public class with a file of its own: these may be short
COMMENTED = ("drift", "monitor", "windows", "recalibrate")  # rooms with kernels or concurrency
PENDING: dict[str, set[str]] = {}


def room_of(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def imported(nodes) -> set[str]:
    """Full names of what these import statements import."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def at_import(tree: ast.Module) -> list[ast.stmt]:
    """Statements of the module itself, those under TYPE_CHECKING included, without those inside functions."""
    return [*tree.body, *(inner for node in tree.body if isinstance(node, ast.If) for inner in node.body)]


def upward_imports() -> set[str]:
    """Imports of a room that stands above, wherever in the file they are."""
    found = set()
    for path, tree in TREES.items():
        room = room_of(path)
        for name in imported(ast.walk(tree)):
            parts = name.split(".")
            if room != "__init__" and parts[0] == "streamcal" and len(parts) > 1 and parts[1] in FLOORS:
                below = FLOORS.index(parts[1]) <= FLOORS.index(room)
                adapter = parts[1] in ADAPTERS and room not in {*ADAPTERS, "command"}
                found |= set() if below and not adapter else {f"{NAMES[path]} imports {name}"}
    return found


def foreign_imports() -> set[str]:
    found = set()
    for path, tree in TREES.items():
        room = room_of(path)
        for name in imported(tree.body):
            foreign = name.split(".")[0] in FOREIGN - ALLOWED.get(room, set()) and room not in ADAPTERS
            numba = name.startswith(("numba", "llvmlite")) and room != "_jit"
            found |= {f"{NAMES[path]} imports {name}"} if foreign or numba else set()
    return found


def cycles() -> set[str]:
    modules = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in FILES}
    leaves = {m for m, p in modules.items() if p.name != "__init__.py"}
    edges = {m: imported(at_import(TREES[p])) & leaves - {m} for m, p in modules.items()}
    found: set[str] = set()
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        if module in path:
            found.add(" -> ".join((*path[path.index(module) :], module)))
        elif module not in done:
            for other in sorted(edges[module]):
                visit(other, (*path, module))
            done.add(module)

    for module in modules:
        visit(module, ())
    return found


def sizes() -> set[str]:
    """Files that are too long, or too short to be a room of their own."""
    found = set()
    for path, text in TEXTS.items():
        n, short = text.count("\n"), path.name in ("__init__.py", "__main__.py") or NAMES[path] in MEMBERS
        found |= {NAMES[path]} if n > 600 or (n < 60 and not short) else set()
    return found


def long_functions() -> set[str]:
    found = set()
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                size = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                found |= {f"{NAMES[path]}: {node.name}"} if size > 50 else set()
    return found


def classes_twice() -> set[str]:
    places = defaultdict(list)
    for path, tree in TREES.items():
        if room_of(path) not in ADAPTERS:  # those speak the words of their hosts
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(NAMES[path])
    return {name for name, at in places.items() if len(at) > 1}


def renamed_to_themselves() -> set[str]:
    return {
        f"{NAMES[path]}: {alias.name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }


def is_comment(line: str) -> bool:
    return bool(re.match(r"\s*# (?!type:|noqa|pragma)|.*\s# (?!type:|noqa|pragma)", line))


def rooms_without_reasons() -> set[str]:
    """Rooms of which less than 3 % of the lines are comments."""
    lines = {room: [x for p in FILES if room_of(p) == room for x in TEXTS[p].splitlines()] for room in COMMENTED}
    return {room for room, text in lines.items() if sum(map(is_comment, text)) < 0.03 * len(text)}


def is_number(node: ast.expr) -> bool:
    """Whether it is written with numbers alone, and not just 0 or 1."""
    inner = [n for n in ast.walk(node) if not isinstance(n, ast.operator | ast.unaryop | ast.expr_context)]
    plain = all(isinstance(n, ast.Constant | ast.BinOp | ast.UnaryOp | ast.Tuple) for n in inner)
    values = [n.value for n in inner if isinstance(n, ast.Constant)]
    return plain and all(type(v) in (int, float) for v in values) and not set(values) <= {0, 1}


def bare_constants() -> set[str]:
    """Numbers with a name of their own and no comment beside or above them (or above the block of lines they stand in)."""
    found = set()
    for path, tree in TREES.items():
        lines = TEXTS[path].splitlines()
        for node in tree.body:
            target = (
                node.targets[0]
                if isinstance(node, ast.Assign)
                else node.target
                if isinstance(node, ast.AnnAssign)
                else None
            )
            if target is None or node.value is None or not is_number(node.value):
                continue
            first = node.lineno - 1
            while first > 0 and lines[first - 1].strip() and not is_comment(lines[first - 1]):
                first -= 1  # up to the comment or the empty line above the block
            around = [*lines[max(first - 1, 0) : first], *lines[node.lineno - 1 : node.end_lineno]]
            found |= set() if any(map(is_comment, around)) else {f"{NAMES[path]}: {ast.unparse(target)}"}
    return found


RULES = (
    upward_imports,
    foreign_imports,
    cycles,
    sizes,
    long_functions,
    classes_twice,
    renamed_to_themselves,
    rooms_without_reasons,
    bare_constants,
)


@functools.cache
def broken(rule) -> frozenset[str]:
    """Where the rule is not kept."""
    return frozenset(rule())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_its_rule(rule):
    found = broken(rule) - PENDING.get(rule.__name__, set())
    assert not found, f"{rule.__name__}: {sorted(found)}"


def test_no_exception_is_kept_longer_than_it_is_needed():
    stale = {rule.__name__: PENDING[rule.__name__] - broken(rule) for rule in RULES if rule.__name__ in PENDING}
    assert not any(stale.values()), f"take these out of PENDING: {stale}"


def test_the_house_does_not_grow():
    assert sum(text.count("\n") for text in TEXTS.values()) <= TOTAL


def test_no_file_is_named_for_anything():
    assert not {NAMES[path] for path in FILES if path.stem in FORBIDDEN}


def test_no_public_name_is_a_module():
    """Taken twice in a fresh process: a lazy name must not turn into the module of the same name."""
    code = (
        "import importlib, sys, types\n"
        "for name in sys.argv[1:]:\n"
        "    package = importlib.import_module(name)\n"
        "    for public in [*package.__all__, *package.__all__]:\n"
        "        if isinstance(getattr(package, public), types.ModuleType): print(f'{name}.{public}')\n"
    )
    packages = [
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in FILES
        if path.name == "__init__.py" and "__all__" in TEXTS[path]
    ]
    out = subprocess.run([sys.executable, "-c", code, *packages], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout == ""


def test_public_names_are_frozen():
    """A change here is a change of the interface: it belongs into the change log."""
    typed = [node for node in at_import(TREES[HOUSE / "__init__.py"]) if isinstance(node, ast.ImportFrom)]
    typed_names = {alias.name: getattr(streamcal, alias.name) for node in typed for alias in node.names}
    loaded = {name: getattr(streamcal, name) for name in streamcal.__all__}
    assert typed_names.items() >= loaded.items()
    assert sorted(streamcal.__all__) == sorted(name for names in streamcal._PLACES.values() for name in names.split())
    for node in typed:
        if node.module.startswith("streamcal."):
            module = importlib.import_module(node.module)
            assert all(loaded[alias.name] is getattr(module, alias.name) for alias in node.names)
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
    """``import streamcal`` loads nothing; its names load numba and numpy (and what they load), nothing that takes seconds."""
    code = (
        "import sys, streamcal; print(sorted({'numpy', 'numba'} & set(sys.modules))); "
        "import numpy, numba; before = set(sys.modules); from streamcal import *; "
        "new = {m.split('.')[0] for m in set(sys.modules) - before}; "
        "print(sorted(new & {'river', 'scipy', 'pandas', 'matplotlib', 'pyarrow', 'typer', 'rich', 'sklearn'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.split() == ["[]", "[]"]


def test_a_name_is_taken_before_its_class_is_loaded():
    code = "from streamcal.state import restorable; restorable(type('Sliding', (), {}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert "the name Sliding is taken by streamcal.windows.sliding" in out.stderr


def test_the_python_in_readme_runs():
    """As one program, in a process of its own: it adds a metric, which no other test may see."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks and not any(">>>" in block for block in blocks)
    done = subprocess.run([sys.executable, "-"], input="\n".join(blocks), capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
