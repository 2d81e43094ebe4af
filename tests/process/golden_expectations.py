"""Golden expectations: how they are kept, shown and compared, and the command as it is called inside this process.

What is compared exactly, and what is not: on the machine that wrote the expectations (same processor, numpy, numba and JIT:
`FINGERPRINT` below, kept in tests/golden/written_by.json) everything is compared to the last bit. Elsewhere floats may differ
by `REL`, as exp and log may round otherwise there, and the hashes of arrays are not looked at; all else is compared exactly.
`STREAMCAL_GOLDEN=exact` or `=close` chooses one of the two.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import math
import os
import platform
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the package of this tree, whatever is installed
GOLDEN = ROOT / "tests" / "golden"
WRITTEN_BY = GOLDEN / "written_by.json"
REL = 1e-9  # of floats, on another machine
SHORT = 24  # numbers of an array that are shown one by one
MOST_SHOWN = 12  # differences in a message


def fingerprint() -> dict[str, str]:
    """What the last bit of a float may depend on."""
    import numba

    processor = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "processor": processor or platform.processor(),
        "machine": platform.machine(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "jit": os.environ.get("NUMBA_DISABLE_JIT", "0") or "0",
    }


def is_exact() -> bool:
    """Whether floats are compared to the last bit."""
    asked = os.environ.get("STREAMCAL_GOLDEN")
    if asked is None:
        return WRITTEN_BY.is_file() and json.loads(WRITTEN_BY.read_text()) == fingerprint()
    return asked == "exact"


# -- the command -------------------------------------------------------------------------------------------------------


def command_main() -> Any:
    """The function that the installed `streamcal` calls: the one that pyproject.toml of this tree names."""
    place = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["streamcal"]
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """In a folder, so that all paths are relative."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def heard() -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """What is said on stdout and on stderr meanwhile."""
    both = io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(b, encoding="utf-8", write_through=True) for b in both]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            yield both
        finally:
            for stream in streams:
                stream.flush()
    for stream in streams:
        stream.detach()


def streamcal(*args: str) -> tuple[int, str, str]:
    """The command in this process: exit code, stdout, stderr."""
    before, sys.argv = sys.argv, ["streamcal", *args]
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"  # whatever terminal the tests run in
    code: Any = 0
    try:
        with heard() as (out, err):
            try:
                command_main()()
            except SystemExit as end:
                code = end.code or 0
    finally:
        sys.argv = before
        del os.environ["COLUMNS"]
        os.environ |= {} if columns is None else {"COLUMNS": columns}
    return int(code), out.getvalue().decode(), err.getvalue().decode()


# -- as readable data --------------------------------------------------------------------------------------------------


def plain(thing: Any) -> Any:
    """JSON data that holds every float to its last bit."""
    if isinstance(thing, dict):
        return {str(key): plain(value) for key, value in thing.items()}
    if hasattr(thing, "_asdict"):
        return plain(thing._asdict())
    if isinstance(thing, list | tuple):
        return [plain(value) for value in thing]
    if isinstance(thing, np.ndarray):
        return plain(thing.tolist())
    if isinstance(thing, np.generic):
        return plain(thing.item())
    return thing if isinstance(thing, str | int | float | bool | None) else repr(thing)


def array_in_short(values: np.ndarray) -> Any:
    """A short array as it is; of a long one its size, its hash and some sums that name what has changed."""
    flat = np.asarray(values, np.float64).reshape(-1)
    if flat.size <= SHORT:
        return flat.tolist()
    finite = np.where(np.isfinite(flat), flat, 0.0)
    place = np.arange(1, flat.size + 1) / flat.size
    return {
        "size": flat.size,
        "nan or infinite": int((~np.isfinite(flat)).sum()),
        "not 0": int((flat != 0).sum()),
        "sum": math.fsum(finite),
        "sum of sizes": math.fsum(np.abs(finite)),
        "sum by place": math.fsum(finite * place),
        "sha256": hashlib.sha256(flat.astype("<f8").tobytes()).hexdigest()[:16],
    }


def in_short(thing: Any, most: int = 4) -> Any:
    """The same with long lists of tables, such as a history, as their first and last ones, their number and a hash."""
    if isinstance(thing, dict):
        return {key: in_short(value, most) for key, value in thing.items()}
    if not isinstance(thing, list):
        return thing
    short = [in_short(value, most) for value in thing]
    if len(thing) <= most or not all(isinstance(value, dict) for value in thing):
        return short
    text = json.dumps(thing).encode()
    ends = {"first": short[0], "second": short[1], "last": short[-1]}
    return {"number": len(thing), **ends, "sha256": hashlib.sha256(text).hexdigest()[:16]}


def document(data: bytes) -> dict[str, Any]:
    """A document of streamcal (a line of JSON, then float64) without its checksum."""
    line, _, body = data.partition(b"\n")
    header = json.loads(line)
    header.pop("crc32")
    start, arrays = 0, {}
    for entry in header.pop("arrays"):
        size = math.prod(entry["shape"])
        values = np.frombuffer(body, "<f8", size, start)
        arrays[entry["name"]] = {"shape": entry["shape"], "values": array_in_short(values)}
        start += 8 * size
    return {**header, "arrays": arrays}


def blob(data: bytes) -> Any:
    """What a state file holds under a name: a document, JSON with or without lines behind it, or msgpack; else a hash."""
    if data.startswith(b'{"streamcal":'):
        return {"document": document(data)}
    head, _, rest = data.partition(b"\n")
    with contextlib.suppress(ValueError):
        found = json.loads(head)
        return {"json": found, "rest": rest.decode("utf-8", "backslashreplace")} if rest else found
    with contextlib.suppress(ValueError, msgspec.MsgspecError):
        return unpacked(msgspec.msgpack.decode(data))
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()[:16]}


def unpacked(thing: Any) -> Any:
    """Plain data with bytes in it; bytes are a document, float64 or uint32."""
    if isinstance(thing, dict):
        return {str(key): unpacked(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [unpacked(value) for value in thing]
    if not isinstance(thing, bytes):
        return plain(thing)
    if thing.startswith(b'{"streamcal":'):
        return {"document": document(thing)}
    if len(thing) % 8 == 0:
        values = np.abs(np.frombuffer(thing, "<f8"))
        if ((values == 0) | ~np.isfinite(values) | ((values > 1e-200) & (values < 1e200))).all():
            return {"float64": array_in_short(np.frombuffer(thing, "<f8"))}
    if len(thing) % 4 == 0:
        return {"uint32": array_in_short(np.frombuffer(thing, "<u4"))}
    return {"bytes": len(thing), "sha256": hashlib.sha256(thing).hexdigest()[:16]}


# -- kept and compared -------------------------------------------------------------------------------------------------


def as_text(things: dict[str, Any]) -> str:
    """One JSON object, a line for each of its keys: a change shows as the lines of what has changed."""
    lines = (f"{json.dumps(name)}: {json.dumps(plain(thing))}" for name, thing in things.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def differences(want: Any, got: Any, exact: bool, at: str = "") -> list[str]:
    """Where two pieces of JSON data are not the same."""
    if isinstance(want, dict) and isinstance(got, dict):
        found = [f"{at}: only expected: {key}" for key in want if key not in got]
        found += [f"{at}: not expected: {key}" for key in got if key not in want]
        for key in want:
            if key in got and (exact or key != "sha256"):
                found += differences(want[key], got[key], exact, f"{at}.{key}")
        return found
    if isinstance(want, list) and isinstance(got, list):
        found = [] if len(want) == len(got) else [f"{at}: {len(want)} expected, {len(got)} found"]
        for i, (a, b) in enumerate(zip(want, got, strict=False)):
            found += differences(a, b, exact, f"{at}[{i}]")
        return found
    if type(want) is float and type(got) is float and not exact:
        same = math.isclose(want, got, rel_tol=REL, abs_tol=1e-12) or (want != want and got != got)
    else:
        same = (type(want) is type(got) and want == got) or (want != want and got != got)
    return [] if same else [f"{at}: expected {str(want)[:300]!r}, found {str(got)[:300]!r}"]


def _line(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def differences_of_text(want: str, got: str, exact: bool, name: str) -> list[str]:
    """The same line by line; a line of JSON is compared as that."""
    if want == got:
        return []
    with contextlib.suppress(ValueError):
        return differences(json.loads(want), json.loads(got), exact, name)
    a, b = want.splitlines(), got.splitlines()
    found = [] if len(a) == len(b) else [f"{name}: {len(a)} lines expected, {len(b)} found"]
    for i, (one, other) in enumerate(zip(a, b, strict=False), 1):
        found += differences(_line(one), _line(other), exact, f"{name}, line {i}")
    return found or ([] if not exact else [f"{name}: the same data, but written otherwise"])


def demand(found: list[str], again: str) -> None:
    """Nothing differs; else say what, and how the expectations are written anew where that is meant."""
    more = f"\n... and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    said = "\n".join(found[:MOST_SHOWN])
    assert not found, f"{said}{more}\nIf this change is meant: python {again}"
