"""Documents of every kind: read in a process that knows nothing yet, and refused or safe whatever stands in them."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
import time
import tracemalloc
from typing import Any

import documents_cases as cases
import numpy as np
import pytest

import streamcal as sc
from streamcal import drift, state
from streamcal.state import KINDS

pytestmark = pytest.mark.filterwarnings("ignore::streamcal.CalibrationWarning")
FRESH = """
import pickle, sys, streamcal
documents, pickles = pickle.load(sys.stdin.buffer)
read = {name: streamcal.from_bytes(data).to_bytes() for name, data in documents.items()}
unpickled = {name: pickle.loads(data).to_bytes() for name, data in pickles.items()}
pickle.dump((read, unpickled), sys.stdout.buffer)
"""


def test_there_is_a_document_of_every_kind():
    assert set(cases.KINDS) == {name for name, place in KINDS.items() if isinstance(place, str)}


def test_every_kind_is_read_in_a_process_that_imported_only_streamcal():
    documents = {name: cases.document(name) for name in cases.ALL}
    pickles = {name: pickle.dumps(sc.from_bytes(data)) for name, data in documents.items()}
    sent = pickle.dumps((documents, pickles))
    out = subprocess.run([sys.executable, "-c", FRESH], input=sent, stdout=subprocess.PIPE, check=True)
    assert pickle.loads(out.stdout) == (documents, documents)


@pytest.mark.parametrize("name", cases.ALL)
def test_what_is_read_goes_on_as_the_one_that_was_written(name):
    read, copied = (sc.from_bytes(cases.document(name)) for _ in range(2))
    cases.use(read)
    cases.use(copied)
    assert read.to_bytes() == copied.to_bytes()


@pytest.mark.parametrize("data", ["abc", 10**9, None, 1.5, [1], object()])
def test_what_is_not_bytes_is_a_value_error(data):
    with pytest.raises(ValueError, match=r"must be bytes, got .*read a file with 'rb'"):
        sc.from_bytes(data)


# -- what a stranger can write ------------------------------------------------------------------------------------------


def document(kind: bytes, config: bytes, arrays: bytes = b"[]", body: bytes = b"") -> bytes:
    """A document with a right checksum over any text."""
    text = b'{"streamcal": 1, "kind": "%b", "config": %b, "arrays": %b' % (kind, config, arrays)
    return text + state._seal(text, body) + b"\n" + body


def hostile(n: int) -> dict[str, bytes]:
    """Documents of about n bytes that ask for more than they hold, or are parsed into much more."""
    listed = {
        "empty": "[],",
        "dicts": '{"a":1},',
        "text": '"ab",',
        "whole": "999,",
        "short": "0.1, ",
        "wide": '"a\u20ac",',
    }
    filled = {name: b"[%b0]" % (unit.encode() * (n // len(unit))) for name, unit in listed.items()}
    filled["parts"] = b"[%b0]" % (b'{"kind":"Mean","config":{"arguments":[]}},' * (n // 42))
    filled["keys"] = b"{%b}" % b",".join(b'"%08d":1' % i for i in range(n // 13))
    text = b'{"arguments": ["%b%b"]}'
    config = {kind: cases.document(kind).split(b'"config": ')[1].split(b', "arrays": ')[0] for kind in ("Snapshot",)}
    return {
        **{f"levels of {name}": document(b"Levels", b'{"arguments": [%b]}' % some) for name, some in filled.items()},
        **{f"experts of {name}": document(b"Guard", b'{"experts": %b}' % some) for name, some in filled.items()},
        "a long word": document(b"Mean", text % (b"", b"a" * n)),
        "a long word with an emoji": document(b"Mean", text % ("\U0001f600".encode(), b"a" * n)),
        "a long word with an emoji in ASCII": document(b"Mean", text % (b"\\ud83d\\ude00", b"a" * n)),
        "a long kind": document(b"a" * n, b"{}"),
        "nested lists": document(b"Mean", b"[" * (n // 2) + b"]" * (n // 2)),
        "nested parts": document(
            b"Chain", b'{"first":{"kind":"Chain","config":' * (n // 40) + b"{}" + b"}}" * (n // 40)
        ),
        "a long number": document(b"EqualWidth", b'{"arguments": [%b]}' % (b"9" * n)),
        "many arrays": document(
            b"Guard",
            b"{}",
            b"[%b]" % b",".join(b'{"name":"%06d","shape":[]}' % i for i in range(n // 36)),
            bytes(n // 36 * 8),
        ),
        "many axes": document(b"Guard", b"{}", b'[{"name":"a","shape":[%b0]}]' % (b"1073741824," * (n // 11))),
        "long axes": document(b"Guard", b"{}", b'[{"name":"a","shape":[%b]}]' % b",".join([b"9" * 4000] * 8)),
        "no line": bytes(n),
        "a snapshot of many bins": document(
            b"Snapshot",
            config["Snapshot"].replace(b"[5]", b"[300000000]"),
            b'[{"name": "cells", "shape": [1, 2, 8]}, {"name": "edges", "shape": [2]}]',
            bytes(144),
        ),
    }


@pytest.mark.parametrize("n", [20_000, 400_000])
def test_no_document_takes_more_memory_than_ten_times_its_length_or_more_than_linear_time(n):
    for name in cases.ALL:
        sc.from_bytes(cases.document(name))  # classes are loaded
    for name, data in hostile(n).items():
        began, said = time.process_time(), ""
        try:
            sc.from_bytes(data)  # short lists of numbers are levels, all others are refused
        except ValueError as error:
            said = str(error)
        took = time.process_time() - began
        assert len(said) < 2_000 and (said or name.startswith("levels")), name
        assert took < 0.2 + 1e-6 * len(data), (name, took)  # a word of JSON takes some 20 ns a byte
        assert peak_of(data) <= 10 * len(data) + 2**20, name


def peak_of(data: bytes) -> int:
    """Bytes that reading a document takes at most, whether it is refused or not."""
    tracemalloc.start()
    try:
        with contextlib.suppress(ValueError):
            sc.from_bytes(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def large() -> dict[str, Any]:
    """Honest things with much in their line, or much behind it."""
    chain, marginal, platt = sc.OnlinePlatt(), cases.ALL["MarginalCalibration"](), cases.ALL["PlattScaling"]()
    for _ in range(12):
        chain = sc.Chain(chain, sc.OnlinePlatt())
    marginal.n_classes_, marginal.recalibrators_ = 2_000, [platt] * 2_000
    return {
        "classes": marginal,
        "nested": chain,
        "levels": sc.Levels(np.arange(50_000.0)),
        "experts": sc.Guard([sc.OnlinePlatt() for _ in range(40)], names=[f"e{i}" for i in range(40)]),
        "online classes": sc.OnlineMarginal(sc.Chain(), 20),
        "names": drift.SegmentedTest([f"s\u00e9gment {i}" for i in range(1_000)]),
        "levels of a forecaster": sc.FosterForecaster(200_000),
        "a window in a map": sc.OnlineHistogram(sc.Cumulative(sc.EqualWidth(5_000))),
    }


def test_an_honest_document_is_read_in_that_memory_too():
    for name, thing in large().items():
        data = thing.to_bytes()
        assert sc.from_bytes(data).to_bytes() == data, name
        assert peak_of(data) <= 10 * len(data) + 2**20, name


def test_reading_nested_parts_copies_none_of_them():
    """Each constructor copies what it is given: nested d deep that would be 2^d copies."""
    times = []
    for depth in (5, 10, 20):
        chain = sc.OnlinePlatt()
        for _ in range(depth):
            chain = sc.Chain(chain)
        data, began = chain.to_bytes(), time.process_time()
        sc.from_bytes(data)
        times.append(time.process_time() - began)
    assert times[-1] < 16 * times[0] + 0.1
