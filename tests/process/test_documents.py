"""Documents of every kind: read in a process that knows nothing yet, and refused or safe whatever stands in them."""

from __future__ import annotations

import pickle
import subprocess
import sys

import documents_cases as cases
import pytest

import streamcal as sc
from streamcal.state import KINDS

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
