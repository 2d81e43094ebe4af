"""Whatever stands in a document, it is refused, or is a thing that can be used: no signal, no other error, no time, no memory.

For every kind 2,000 documents: whole numbers of the config by extreme ones, bits, cuts, lengths, parts of other kinds, numbers
of the arrays; most of them with a checksum that is right. All are read, and used where they were accepted, in one forked child
with a limit on its memory and its time.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import resource
import struct
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import documents_cases as cases
import numpy as np
import pytest
from conftest import QUARTER

import streamcal as sc
from streamcal.state import _seal

EXTREME = (2**31 - 1, 10**8, -1, 0, 2**63, 2**53 + 1)
OTHER: tuple[Any, ...] = (None, True, "x", [], {}, 1e308, -0.5, 0.5, 1e-300, [1, 2], {"kind": "Mean"}, "inf", 3)
NASTY = (np.nan, np.inf, -np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 7.0, 1e3, 1e9, -1e18, 2.0**53, 1e300, -1e300, 5e-324)
DOCUMENTS = 2_000  # a kind
SLOWEST = 1.0  # seconds of CPU for one document, to read it and to use it
ROOM = (
    2**28
)  # bytes that all of it may take besides what the process has: an array of 10**8 numbers is three times as much
REPORTED = 16  # accepted documents, of which one is asked for its report: it takes 20 ms


def sealed(header: Any, body: bytes) -> bytes:
    text = json.dumps(header, ensure_ascii=False).encode()[:-1]
    return text + _seal(text, body) + b"\n" + body


def opened(data: bytes) -> tuple[dict[str, Any], bytes]:
    line, _, body = data.partition(b"\n")
    header = json.loads(line)
    del header["crc32"]
    return header, body


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every place in plain data that holds no list and no dict, and what it holds."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*at, key))
    if not isinstance(value, dict | list):
        yield at, value


def changed(header: dict[str, Any], at: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The header with something else at a place of it."""
    copy = json.loads(json.dumps(header))
    inner = copy
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return copy


def extremes(rng: random.Random, name: str, most: int) -> list[bytes]:
    """Every whole number of the config, and of the shapes, by extreme ones; of reports of alarms so many as there is room for."""
    header, body = opened(cases.document(name))
    whole = [at for at, value in places(header) if type(value) is int and at != ("streamcal",)]
    pairs = [(at, extreme) for at in whole for extreme in EXTREME]
    if len(pairs) > most:
        pairs = [pair for pair in pairs if "_remembered" not in pair[0]]
        pairs = rng.sample(pairs, min(most, len(pairs)))
    return [sealed(changed(header, *pair), body) for pair in pairs]


def mutant(rng: random.Random, name: str) -> bytes:
    """One of the other ways."""
    data = cases.document(name)
    header, body = opened(data)
    way = rng.randrange(8)
    if way == 0:  # a bit
        i = rng.randrange(8 * len(data))
        return data[: i // 8] + bytes([data[i // 8] ^ (1 << i % 8)]) + data[i // 8 + 1 :]
    if way == 1:  # a cut, or something in between
        a, b = sorted(rng.choices(range(len(data) + 1), k=2))
        return rng.choice((data[:a], data[a:], data[:a] + data[b:], data + data[a:b], data[:b] + data[a:]))
    if way == 2:  # another length of an array, or of all
        many = 8 * rng.choice((-3, -1, 1, 2, 8))
        longer = body + bytes(many) if many > 0 else body[:many]
        if header["arrays"]:
            one = rng.choice(header["arrays"])
            one["shape"] = rng.choice(
                ([len(longer) // 8], [], [*one["shape"], 1], [n + many // 8 for n in one["shape"]], [-1, -8])
            )
        return sealed(header, longer)
    if way == 3:  # a part of another kind
        other, its = opened(cases.document(rng.choice(list(cases.ALL))))
        key = rng.choice(("kind", "config", "arrays"))
        return sealed({**header, key: other[key]}, rng.choice((body, its)))
    if way == 4:  # something else at a place of the header
        at, _ = rng.choice(list(places(header)))
        value = rng.choice((*OTHER, *EXTREME, rng.choice(list(places(header)))[1]))
        header = changed(header, at, value)
        return sealed(header, body)
    numbers = np.frombuffer(body, "<f8").copy()
    if not numbers.size:
        return sealed(changed(header, ("config",), rng.choice(OTHER)), body)
    for _ in range(rng.choice((1, 1, 2, 5))):
        i = rng.randrange(numbers.size)
        if way == 5:  # any bits
            numbers[i] = struct.unpack("<d", rng.randbytes(8))[0]
        elif way == 6:
            numbers[i] = rng.choice(NASTY)
        else:  # nearly what it was
            numbers[i] = rng.choice(
                (
                    numbers[i] + 1.0,
                    numbers[i] - 1.0,
                    -numbers[i],
                    numbers[i] * 2.0,
                    numbers[rng.randrange(numbers.size)],
                )
            )
    return sealed(header, numbers.tobytes())


def documents(name: str, n: int) -> Iterator[bytes]:
    """So many documents of a kind, the same in every run."""
    rng = random.Random(f"documents of {name}")
    first = extremes(rng, name, n // 2)
    yield from first
    for _ in range(n - len(first)):
        yield mutant(rng, name)


def tried(data: bytes, whole: bool) -> str:
    """What came of it: "" (refused), "read", or what must not be."""
    try:
        thing = sc.from_bytes(data)
    except ValueError as error:
        return f"no memory: {error}" if "MemoryError" in str(error) else ""
    try:
        cases.use(thing, whole)
    except (
        ValueError,
        MemoryError,
    ):  # a window of 10**8 events a key is one that its config asks for, when its first event comes
        pass
    return "read"


def attacked(names: list[str], n: int, progress: int) -> dict[str, Any]:
    """Try all documents; what must not be is named with its document, by kind and number."""
    found: dict[str, Any] = {"wrong": [], "read": 0, "refused": 0, "kinds": {}}
    for name in names:
        read = 0
        for i, data in enumerate(documents(name, n)):
            os.pwrite(progress, f"{name} {i}".ljust(80).encode(), 0)
            began = time.process_time()
            try:
                came = tried(data, read % REPORTED == 0)
            except Exception as error:
                came = f"{type(error).__name__}: {error}"
            took = time.process_time() - began
            read += came == "read"
            if came not in ("", "read") or took > SLOWEST:
                found["wrong"].append((name, i, f"{came:.300}", round(took, 2)))
        found["kinds"][name] = read
    return found


def in_a_child(names: list[str], n: int, seconds: int, folder: Any) -> dict[str, Any]:
    """:func:`attacked` in a child with limits; a signal is an error that names the document."""
    path = folder / "found"
    with (folder / "progress").open("wb+") as progress:
        child = os.fork()
        if child == 0:
            try:
                taken = int(re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]
                resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))
                resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    path.write_bytes(pickle.dumps(attacked(names, n, progress.fileno())))
            finally:
                os._exit(0 if path.exists() else 1)
        _, status = os.waitpid(child, 0)
        at = os.pread(progress.fileno(), 80, 0).decode().strip()
    assert status == 0, f"ended by {os.waitstatus_to_exitcode(status)} at {at}"
    found = pickle.loads(path.read_bytes())
    assert isinstance(found, dict)
    return found


def attack(n: int, seconds: int, folder: Any) -> None:
    for name in cases.ALL:  # kernels are compiled, classes loaded
        cases.use(sc.from_bytes(cases.document(name)))
    found = in_a_child(list(cases.ALL), n, seconds, folder)
    assert not found["wrong"], found["wrong"][:20]
    never = [name for name, read in found["kinds"].items() if not read]
    assert not never, f"none of these was ever accepted, so that nothing was tried on them: {never}"


pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc as Linux has them"),
    pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning"),
]


def test_some_documents_of_every_kind(tmp_path):
    """125 a kind: 13 s. A document takes 1.6 ms, all 2,000 of each of the 66 things 200 s."""
    attack(DOCUMENTS // 16, 120, tmp_path)


@pytest.mark.statistical
def test_documents_of_every_kind(tmp_path):
    attack(DOCUMENTS // (4 if QUARTER else 1), 900, tmp_path)
