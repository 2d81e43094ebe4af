"""State documents: files of every released version are read for ever, damaged ones are refused.

``python tests/test_state.py`` writes the golden files of the current version (once, when it is released).
"""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import streamcal as sc

GOLDEN = Path(__file__).parents[1] / "golden"


def specimens() -> dict[str, object]:
    """One window of each kind in mid-stream, and the other things that have documents."""
    rng = np.random.default_rng(7)
    p = rng.random(200).round(3)
    y, w, key = (rng.random(200) < p).astype(float), rng.integers(1, 4, 200).astype(float), rng.integers(0, 2, 200)
    made = {
        "cumulative": sc.Cumulative(sc.EqualWidth(5), keys=2, loss="log"),
        "mass": sc.Cumulative(sc.UniformMass(4, bits=1), keys=2),
        "sliding": sc.Sliding(sc.Levels([0.1, 0.5, 0.9]), 30, keys=2),
        "tumbling": sc.Tumbling(sc.Grid(4), 30, keys=2, claim=sc.Mean("binary")),
        "fading": sc.Fading(sc.LogOdds(5, bits=1), 25.5, keys=2),
        "timed": sc.Timed(sc.EqualWidth(4), 60, panes=6, lateness=5, keys=2, strict=True),
    }
    for name, window in made.items():
        t = np.arange(200.0) if name == "timed" else None
        window.update_many(p, y, w, key=key, t=t)
        if name != "timed":
            window.update(float("nan"), 1)
    quantiles = sc.Sliding(sc.Edges([-np.inf, 0.0, np.inf]), 20, claim=sc.Quantile([0.1, 0.9]), loss="pinball")
    quantiles.update_many(np.sort(rng.normal(size=(50, 2))), rng.normal(size=50))
    return {
        **made,
        "quantiles": quantiles,
        "snapshot": made["sliding"].snapshot(),
        "binning": sc.Edges([0.0, 0.3, 1.0]),
    }


def numbers(thing: object) -> dict[str, list[float]]:
    """Every metric, as plain data (nan and inf as text)."""
    if isinstance(thing, sc.Edges):
        return {"edges": thing.edges.tolist()}
    snapshot = thing if isinstance(thing, sc.Snapshot) else thing.snapshot()
    return {name: [v if np.isfinite(v) else str(v) for v in snapshot.values(name).tolist()] for name in sc.METRICS}


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/*.streamcal")), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_golden_files_are_read_and_mean_the_same(path):
    thing = sc.from_bytes(path.read_bytes())
    want = json.loads((path.parent / "expected.json").read_text())[path.stem]
    got = numbers(thing)
    for name, values in want.items():
        np.testing.assert_allclose(
            np.array(got[name], float), np.array(values, float), rtol=1e-9, atol=1e-12, err_msg=name
        )


def test_there_is_a_golden_file_of_every_kind():
    assert {p.stem for p in GOLDEN.glob("0.1.0/*.streamcal")} >= set(specimens())


@pytest.mark.parametrize("name", specimens())
def test_documents_pickle_and_copies_are_the_same_thing(name):
    thing = specimens()[name]
    document = thing.to_bytes()
    for other in (sc.from_bytes(document), pickle.loads(pickle.dumps(thing)), copy.deepcopy(thing), copy.copy(thing)):
        assert type(other) is type(thing)
        assert other.to_bytes() == document
    assert type(thing).from_bytes(document).to_bytes() == document


def test_the_header_is_a_line_that_a_person_can_read():
    line = specimens()["sliding"].to_bytes().split(b"\n")[0].decode()
    header = json.loads(line)
    assert header["kind"] == "Sliding"
    assert header["config"]["size"] == 30
    assert header["config"]["binning"] == {"kind": "Levels", "arguments": [[0.1, 0.5, 0.9]]}


def test_any_damaged_byte_is_refused():
    document = sc.Cumulative(sc.EqualWidth(2)).to_bytes()
    for i in range(len(document)):
        damaged = bytearray(document)
        damaged[i] ^= 0x11
        with pytest.raises(ValueError):
            sc.from_bytes(bytes(damaged))


@pytest.mark.parametrize("cut", [0, 1, 10, 200, -1, -8])
def test_a_document_cut_short_is_refused(cut):
    document = specimens()["cumulative"].to_bytes()
    with pytest.raises(ValueError):
        sc.from_bytes(document[:cut])


def resealed(document: bytes, **changes: object) -> bytes:
    """The document with another header and a checksum that fits it."""
    import zlib

    line, _, body = document.partition(b"\n")
    header = {**json.loads(line), **changes}
    del header["crc32"]
    text = json.dumps(header, ensure_ascii=False).encode()
    header["crc32"] = zlib.crc32(body, zlib.crc32(text))
    return json.dumps(header, ensure_ascii=False).encode() + b"\n" + body


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"streamcal": 2}, "version must be 1, got 2"),
        ({"kind": "Oracle"}, "kind must be one of .*, got 'Oracle'"),
        ({"config": {}}, "config"),
        ({"arrays": []}, "belong to nothing"),
        ({"arrays": [{"name": "buffer", "shape": [3]}]}, "belong to nothing"),
    ],
)
def test_what_is_not_known_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        sc.from_bytes(resealed(sc.Cumulative(sc.EqualWidth(2)).to_bytes(), **changes))


def test_a_buffer_that_does_not_fit_its_config_is_refused():
    """A kernel trusts the header of its buffer: one that disagrees with the config must never get there."""
    other = json.loads(sc.Sliding(sc.EqualWidth(3), 4).to_bytes().split(b"\n")[0])["config"]
    with pytest.raises(ValueError, match="buffer"):
        sc.from_bytes(resealed(sc.Sliding(sc.EqualWidth(2), 5).to_bytes(), config=other))


@pytest.mark.parametrize("shape", [[-1], [10**30], [2.5], "x", [[1]], [56, 2]])
def test_shapes_that_no_document_has_are_refused(shape):
    document = sc.Cumulative(sc.EqualWidth(2)).to_bytes()
    with pytest.raises(ValueError):
        sc.from_bytes(resealed(document, arrays=[{"name": "buffer", "shape": shape}]))


def tampered(window, place, value):
    """The window's document with one number of its buffer changed, and a checksum that fits."""
    window._buf[place] = value
    return window.to_bytes()


@pytest.mark.parametrize("value", [1e8, 4.5, np.nan, -2.0, 2.0, np.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_ring_that_lies_elsewhere_is_refused(which, value):
    """A kernel would read and write there."""
    window = sc.Sliding(sc.EqualWidth(2), 5)
    window.update_many([0.1] * 7, [1] * 7)
    state = window._layout.own_start
    if which == 1 and value == 2.0:
        return  # where it is
    config, arrays = window._state()
    arrays["buffer"][state + which] = value
    window._state = lambda: (config, arrays)  # the document is written as it is
    with pytest.raises(ValueError, match="does not fit"):
        sc.from_bytes(window.to_bytes())


def first_counts(window):
    """Where the counts of the bins of key 0 lie, then how many of its events were refused."""
    first, block = window._layout.start, window._layout.block
    return [*range(first, first + block - 8, 8), first + block - 8]


@pytest.mark.parametrize("change", [1.0, -1.0, 0.5, 1e9, "moved"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: sc.Sliding(sc.EqualWidth(2), 5),
        lambda: sc.Sliding(sc.EqualWidth(2), 50),
        lambda: sc.Tumbling(sc.EqualWidth(2), 5),
        lambda: sc.Tumbling(sc.EqualWidth(2), 50, keys=2),
        lambda: sc.Cumulative(sc.EqualWidth(2)),
        lambda: sc.Revertible(sc.EqualWidth(2)),
        lambda: sc.Timed(sc.EqualWidth(2), 10, 2),
    ],
    ids=["Sliding", "Sliding begun", "Tumbling", "Tumbling begun", "Cumulative", "Revertible", "Timed"],
)
def test_counts_that_do_not_agree_with_the_events_are_refused(make, change):
    """What is once too often in the sums of a window that forgets would stay for ever."""
    window = make()
    window.update_many(
        [0.1, 0.7, 0.8, 2.0, 0.9, 0.2, 0.7], [1] * 7, **({"t": [0.0] * 7} if isinstance(window, sc.Timed) else {})
    )
    assert sc.from_bytes(window.to_bytes()).to_bytes() == window.to_bytes()
    lower, *_, refused = first_counts(window)
    if change == "moved":
        window._buf[refused] += 1.0
    window._buf[lower] += -1.0 if change == "moved" else change
    only_whole = not isinstance(window, sc.Sliding | sc.Tumbling) and change != 0.5
    if (isinstance(window, sc.Tumbling) and change == "moved") or (only_whole and window._buf[lower] >= 0.0):
        sc.from_bytes(window.to_bytes())  # as good as any: it keeps no events
        return
    with pytest.raises(ValueError, match="does not fit"):
        sc.from_bytes(window.to_bytes())


@pytest.mark.parametrize("column", range(8))
def test_a_sum_that_is_not_that_of_the_events_in_the_ring_is_refused(column):
    window = sc.Sliding(sc.EqualWidth(2), 5, loss="log")
    window.update_many([0.1, 0.7, 0.8, 0.3, 0.9, 0.2, 0.7], [1] * 7, [1, 2, 3, 4, 5, 6, 7])
    sc.from_bytes(window.to_bytes())
    window._buf[window._layout.start + 8 + column] += 1e-6
    with pytest.raises(ValueError, match="does not fit"):
        sc.from_bytes(window.to_bytes())


@pytest.mark.parametrize("change", ["last", "number", "place"])
def test_rings_that_the_next_key_or_event_would_overwrite_are_refused(change):
    window = sc.Sliding(sc.EqualWidth(2), 5, keys=3)
    window.update_many([0.1, 0.7, 0.8], [1] * 3, key=[0, 0, 1])
    own = window._layout.own(window._buf)
    if change == "number":
        own[0, 0], own[1, 0] = 1.0, 0.0  # another order is as good as any, if the events are there
        rings = window._rings
        rings[[0, 1]] = rings[[1, 0]]
        assert sc.from_bytes(window.to_bytes()).snapshot().count.tolist() == window.snapshot().count.tolist()
        own[0, 0] = 2.0
    elif change == "last":
        own[2, 2] = 1.0  # an event, and no ring
    else:
        own[0, 1] = 1.0
    with pytest.raises(ValueError, match="does not fit"):
        sc.from_bytes(window.to_bytes())


@pytest.mark.parametrize("value", [4.5, np.nan, -1e18, 7.0, np.inf])
@pytest.mark.parametrize(
    "window",
    [sc.Tumbling(sc.EqualWidth(2), 6), sc.Fading(sc.EqualWidth(2), 0.02)],
    ids=lambda w: type(w).__name__,
)
def test_a_counter_that_cannot_be_is_refused(window, value):
    window = sc.from_bytes(window.to_bytes())
    place = window._layout.own_start
    with pytest.raises(ValueError, match="does not fit"):
        sc.from_bytes(tampered(window, place, value))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_watermark_that_cannot_be_is_refused(value):
    from streamcal.tally import STATE

    with pytest.raises(ValueError, match="does not fit"):
        sc.from_bytes(tampered(sc.Timed(sc.EqualWidth(2), 60), STATE, value))


@pytest.mark.parametrize("offset", [0, 1])
def test_edges_levels_and_cells_that_the_config_does_not_make_are_refused(offset):
    from streamcal.tally import HEAD

    window = sc.Cumulative(sc.Edges([0.0, 0.4, 1.0]))
    place = (HEAD + 1, window._layout.start)[offset]
    with pytest.raises(ValueError, match="does not fit"):
        sc.from_bytes(tampered(window, place, (0.3, np.nan)[offset]))


def test_a_small_document_of_a_huge_window_is_refused_at_once():
    document = sc.Cumulative(sc.EqualWidth(2)).to_bytes()
    config = json.loads(document.split(b"\n")[0])["config"]
    with pytest.raises(ValueError, match="too small"):
        sc.from_bytes(resealed(document, config={**config, "keys": 2**31 - 1}))


@pytest.mark.parametrize("data", [b"[" * 100_000, b"", b"{}", b'{"streamcal": true, "crc32": 1}', b"\x00" * 9])
def test_what_is_no_document_is_refused(data):
    with pytest.raises(ValueError):
        sc.from_bytes(data)


def test_a_document_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="expected a Sliding, got a Cumulative"):
        sc.Sliding.from_bytes(sc.Cumulative(sc.EqualWidth(2)).to_bytes())


if __name__ == "__main__":
    folder = GOLDEN / sc.__version__
    folder.mkdir(exist_ok=True)
    for name, thing in specimens().items():
        (folder / f"{name}.streamcal").write_bytes(thing.to_bytes())
    expected = {name: numbers(thing) for name, thing in specimens().items()}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
