"""`streamcal fit` and `streamcal apply`, as a user meets them: files in, a map and a wider table out."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import streamcal
from streamcal import Cumulative, EqualWidth, LogOdds, from_bytes
from streamcal.command import main as cli
from streamcal.command import maps
from streamcal.command.main import app
from streamcal.reading import SourceError
from streamcal.reading import rewritten as tables
from streamcal.recalibrate import RECALIBRATORS, PlattScaling

COMMAND = [sys.executable, "-c", "from streamcal.command.main import main; main()"]
P = [0.1, 0.5, 0.9]


def call(*args: object, stdin: bytes | None = None) -> Any:
    return CliRunner().invoke(app, [str(a) for a in args], input=stdin)


def run(*args: object, stdin: bytes | None = None) -> Any:
    result = call(*args, stdin=stdin)
    assert result.exit_code == 0, result.output + result.stderr
    return result


def refused(*args: object, stdin: bytes | None = None) -> str:
    """What the command says on stderr, in one line, when it exits with 2."""
    result = call(*args, stdin=stdin)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return str(result.stderr)


def strict(text: str) -> dict[str, Any]:
    return dict(json.loads(text, parse_constant=_not_json))


def _not_json(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def sample(n: int = 1200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Predictions that claim too much: y happens with probability p^2."""
    rng = np.random.default_rng(seed)
    p = rng.random(n).round(4)
    return p, (rng.random(n) < p**2).astype(float)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    p, y = sample()
    path = tmp_path / "in.csv"
    path.write_text("p,y\n" + "".join(f"{a},{b:g}\n" for a, b in zip(p.tolist(), y.tolist(), strict=True)))
    return path


@pytest.fixture
def platt() -> PlattScaling:
    return PlattScaling().fit(*sample())


@pytest.fixture
def map_file(tmp_path: Path, platt: PlattScaling) -> Path:
    path = tmp_path / "map.cal"
    path.write_bytes(platt.to_bytes())
    return path


def rows_of(text: str, delimiter: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


# ---- fit


@pytest.mark.parametrize("method", sorted(RECALIBRATORS))
def test_every_method_gives_a_map_that_reloads(method: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "map.cal"
    # A patch for each of 1,136 values does harm, and so says the exit code.
    assert call("fit", data, "--method", method, "-o", out).exit_code == int("patching" in method)
    fitted = streamcal.from_bytes(out.read_bytes())
    p, y = sample()
    np.testing.assert_array_equal(fitted.predict(p), RECALIBRATORS[method]().fit(p, y).predict(p))
    header = strict(out.read_bytes().split(b"\n", 1)[0].decode())
    assert (header["streamcal"], header["kind"]) == (1, type(fitted).__name__)
    assert list(header["config"]) == list(fitted.settings)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "map.cal"]
    run("apply", out, data)


@pytest.mark.parametrize(("binning", "kind"), [("equal-width", EqualWidth), ("log-odds", LogOdds)])
def test_before_and_after_are_the_librarys_numbers(binning: str, kind: Any, data: Path, tmp_path: Path) -> None:
    """After: each half, drawn with seed 0, by the map that was fitted on the other."""
    arguments = ("--binning", binning, "--bins", 12, "--set", "n_bins=20", "--method", "histogram", "--json")
    found = strict(run("fit", data, "-o", tmp_path / "map.cal", *arguments).stdout)
    p, y = sample()
    side = np.random.default_rng(0).permutation(p.size) % 2
    after = np.empty_like(p)
    for here in (0, 1):
        fitted = RECALIBRATORS["histogram"](n_bins=20).fit(p[side != here], y[side != here])  # type: ignore[call-arg]
        after[side == here] = fitted.predict(p[side == here])
    for name, values in (("before", p), ("after", after)):
        window = Cumulative(kind(12), loss="log")
        window.update_many(values, y)
        metrics = found[name]["metrics"]
        for metric in ("ece", "k2_debiased", "brier"):
            assert metrics[metric]["value"] == pytest.approx(window.get(metric), rel=1e-9)
    # a bin that never saw an outcome claims 0, and one happened: strict JSON has a reason instead of a number
    assert found["after"]["metrics"]["log_loss"] == {
        **found["after"]["metrics"]["log_loss"],
        "value": None,
        "reason": "infinite",
    }
    assert found["after"]["metrics"]["brier"]["value"] < found["before"]["metrics"]["brier"]["value"]


def test_settings_reach_the_map(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "map.cal"
    run("fit", data, "--method", "scaling-binning", "--set", "n_bins=20", "--set", "targets = hard", "-o", out)
    fitted = streamcal.from_bytes(out.read_bytes())
    assert (fitted.n_bins, fitted.targets, fitted.levels_.size) == (20, "hard", 20)
    run("fit", data, "--method", "patching", "--set", "alpha=0.01", "--set", "levels=30", "-o", out)
    assert streamcal.from_bytes(out.read_bytes()).levels == 30
    run("fit", data, "--method", "scaling-binning", "--set", "split=true", "--set", "n_bins=3", "-o", out)
    assert streamcal.from_bytes(out.read_bytes()).split is True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--method", "plat"), "--method must be one of platt, beta"),
        (("--set", "n_bins=20"), "--set n_bins: platt takes targets"),
        (("--set", "targets"), "--set takes name=value, got targets"),
        (("--set", "targets=soft"), "--set: targets must"),
        (("--method", "histogram", "--set", "n_bins=twenty"), "--set: n_bins must"),
        (("--method", "histogram", "--set", "n_bins=0"), "--set: n_bins must"),
        (("--method", "patching", "--set", "levels=[1]"), "--set: levels must"),
        (("--method", "isotonic", "--set", "n=1"), "isotonic takes strict"),
        (("--bins", "0"), "--bins: "),
        (("--p", "q"), "no column 'q'"),
    ],
)
def test_what_fit_refuses(arguments: tuple[str, ...], said: str, data: Path, tmp_path: Path) -> None:
    assert said in refused("fit", data, *arguments, "-o", tmp_path / "map.cal")
    assert not (tmp_path / "map.cal").exists()


def test_fit_needs_sound_events(tmp_path: Path) -> None:
    out = tmp_path / "map.cal"
    assert "cannot be judged: no events: no lines" in refused("fit", "-", "-o", out, stdin=b"p,y\n")
    assert "cannot be judged: 1 of 1 lines refused" in refused("fit", "-", "-o", out, stdin=b"p,y\nx,1\n")
    assert "19 of 20 lines refused" in refused("fit", "-", "-o", out, stdin=b"p,y\n.5,1\n" + b"x,1\n" * 19)
    assert "(--strict)" in refused("fit", "-", "--strict", "-o", out, stdin=b"p,y\n.5,1\nx,1\n")
    weightless = b"p,y,w\n.5,1,0\n.4,0,0\n"
    assert "positive weight" in refused("fit", "-", "--weight", "w", "-o", out, stdin=weightless)
    split = ("--method", "scaling-binning", "--set", "split=true")
    assert "at least 3 events" in refused("fit", "-", *split, "-o", out, stdin=b"p,y\n.5,1\n.4,0\n.3,0\n")
    assert not out.exists()


@pytest.mark.parametrize("method", sorted(RECALIBRATORS))
def test_few_events_and_one_class_are_no_traceback(method: str, tmp_path: Path) -> None:
    for text in (b"p,y\n.5,1\n", b"p,y\n.5,1\n.6,1\n.7,1\n", b"p,y\n0,1\n1,0\n"):
        result = call("fit", "-", "--method", method, "-o", tmp_path / "map.cal", "--json", stdin=text)
        assert result.exit_code == 0, result.stderr
        strict(result.stdout)


def test_weights_count(tmp_path: Path) -> None:
    p, y = sample(300)
    w = np.arange(300) % 3
    text = "p,y,n\n" + "".join(f"{a},{b:g},{c}\n" for a, b, c in zip(p.tolist(), y.tolist(), w.tolist(), strict=True))
    found = strict(run("fit", "-", "--weight", "n", "-o", tmp_path / "map.cal", "--json", stdin=text.encode()).stdout)
    fitted = streamcal.from_bytes((tmp_path / "map.cal").read_bytes())
    np.testing.assert_allclose(fitted.predict(P), PlattScaling().fit(p.repeat(w), y.repeat(w)).predict(P), rtol=1e-9)
    assert found["before"]["weight"] == w.sum()


def test_the_halves_are_not_every_other_row(tmp_path: Path) -> None:
    """A table that lists the winner and the loser of each game: every other row would hold one class alone."""
    rng = np.random.default_rng(3)
    p = rng.uniform(0.5, 1.0, 500)
    text = "p,y\n" + "".join(f"{a:.3f},1\n{1 - a:.3f},0\n" for a in p.tolist())
    after = strict(run("fit", "-", "-o", tmp_path / "m", "--json", stdin=text.encode()).stdout)["after"]
    assert after["metrics"]["brier"]["value"] < 0.05


def test_fit_shows_both_diagrams_and_the_warning(data: Path, tmp_path: Path) -> None:
    shown = run("fit", data, "--method", "scaling-binning", "--set", "n_bins=50", "-o", tmp_path / "m.cal").stdout
    for text in (
        "1,200 events in 1,200 lines",
        "before: not calibrated",
        "after: ",
        "calibration_slope",
        "note: 50 bins",
    ):
        assert text in shown
    assert shown.count("○ predicted") == 2
    assert "each half of the rows" in " ".join(shown.split())
    assert all(len(line) <= 80 for line in shown.splitlines()[1:] if not line.startswith(("note: ", "ScalingBinning")))


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_fit_reads_every_kind_of_file(form: str, data: Path, tmp_path: Path) -> None:
    p, y = sample()
    path = tmp_path / f"in.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps({"p": a, "y": b}) + "\n" for a, b in zip(p.tolist(), y.tolist())))
    if form == "parquet":
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.table({"p": p, "y": y}), path)
    run("fit", path, "-o", tmp_path / "map.cal")
    assert (tmp_path / "map.cal").read_bytes() == PlattScaling().fit(p, y).to_bytes()


def test_a_map_goes_to_standard_output(data: Path) -> None:
    done = subprocess.run([*COMMAND, "fit", str(data), "-o", "-"], capture_output=True, check=True)
    assert done.stdout == PlattScaling().fit(*sample()).to_bytes()
    assert b"before: not calibrated" in done.stderr


# ---- apply: CSV


def test_apply_adds_a_column_and_keeps_the_others(map_file: Path, platt: PlattScaling, tmp_path: Path) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text('id,p,y,note\n007,0.1,0,"a, ""b"""\n008,0.5,1,"two\nlines"\n009,0.9,1,\n')
    result = run("apply", map_file, source, "-o", out)
    header, *rows = rows_of(out.read_bytes().decode())
    assert header == ["id", "p", "y", "note", "recalibrated"]
    assert [row[:4] for row in rows] == [
        ["007", "0.1", "0", 'a, "b"'],
        ["008", "0.5", "1", "two\nlines"],
        ["009", "0.9", "1", ""],
    ]
    assert [float(row[4]) for row in rows] == platt.predict(P).tolist()
    assert "before: " in result.stdout
    assert "after: " in result.stdout


def test_semicolons_marks_line_ends_and_foreign_bytes_stay(map_file: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_bytes(b"\xef\xbb\xbfp;y;caf\xe9\r\n0.5;1;\xff\r\n0.5;0;\xc3\xa9\r\n")
    run("apply", map_file, source, "-o", out, "--column", "q")
    lines = out.read_bytes().split(b"\r\n")
    assert lines[0] == b"\xef\xbb\xbfp;y;caf\xe9;q"
    assert lines[1].startswith(b"0.5;1;\xff;0.")
    assert lines[2].startswith(b"0.5;0;\xc3\xa9;0.")
    assert len(lines) == 4


def test_what_is_no_probability_gets_an_empty_cell(map_file: Path, tmp_path: Path) -> None:
    """Bad, missing, out of range, ragged: the row stays, ragged rows as ragged as they were."""
    text = b"p,y\n0.5,1\nx,1\n,0\n1.5,1\nNA,1\n0.5\n0.5,1,7\np,y\n\n0.5,maybe\n"
    out = tmp_path / "out.csv"
    assert "4 of 6 predictions refused" in refused("apply", map_file, "-", "-o", out, stdin=text)
    assert not out.exists()
    found = strict(run("apply", map_file, "-", "-o", out, "--json", "--max-bad", 1, stdin=text).stdout)
    _, good, *bad, last = rows_of(out.read_text())
    assert bad == [["x", "1", ""], ["", "0", ""], ["1.5", "1", ""], ["NA", "1", ""], ["0.5", ""], ["0.5", "1", "7", ""]]
    assert good[2] == last[2] != ""
    assert (found["without_prediction"], found["compared"]) == (6, 1)


def test_apply_compares_what_the_map_did(data: Path, map_file: Path, platt: PlattScaling) -> None:
    found = strict(run("apply", map_file, data, "--json").stdout)
    p, y = sample()
    assert found["compared"] == p.size
    assert found["file"] is None
    for name, values in (("before", p), ("after", platt.predict(p))):
        window = Cumulative(EqualWidth(15), loss="log")
        window.update_many(values, y)
        assert found[name]["metrics"]["ece"]["value"] == pytest.approx(window.get("ece"), rel=1e-9)


def test_more_than_one_chunk(map_file: Path, platt: PlattScaling, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tables, "CHUNK", 7)
    p = np.arange(50) / 50
    text = "p,y\n" + "".join(f"{a},1\n" for a in p.tolist())
    found = strict(run("apply", map_file, "-", "-o", tmp_path / "o", "--json", stdin=text.encode()).stdout)
    assert found["compared"] == 50
    assert [float(r[2]) for r in rows_of((tmp_path / "o").read_text())[1:]] == platt.predict(p).tolist()


def test_quoted_lines_over_the_edge_of_a_block(map_file: Path, tmp_path: Path) -> None:
    """1000 lines are decoded at a time; a cell of three lines lies across each edge somewhere."""
    notes = [f"{i}\n\r\n{i}" for i in range(1500)]
    text = "p,note\n" + "".join(f'0.5,"{note}"\n' for note in notes)
    run("apply", map_file, "-", "-o", tmp_path / "o", stdin=text.encode())
    assert [row[1] for row in rows_of((tmp_path / "o").read_bytes().decode())[1:]] == notes


def test_apply_without_outcomes(map_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    result = run("apply", map_file, "-", "-o", out, stdin=b"score\n0.5\n\n0.6\n")
    assert "no column of outcomes: nothing to compare" in result.stdout
    assert [len(row) for row in rows_of(out.read_text())] == [2, 2, 2]
    found = strict(run("apply", map_file, "-", "--json", stdin=b"p\n0.5\n").stdout)
    assert (found["file"], found["rows"], found["without_prediction"], found["compared"]) == (None, 1, 0, 0)
    words = call("apply", map_file, "-", "-o", out, stdin=b"p,y\n0.5,home\n.4,away\n")
    assert (words.exit_code, "--pos-label" in words.stderr, "2 rows, 0 compared" in words.stdout) == (2, True, True)
    assert len(rows_of(out.read_text())) == 3  # the predictions are sound: the table is there
    named = run("apply", map_file, "-", "--pos-label", "home", "--json", stdin=b"p,y\n0.5,home\n.4,away\n")
    assert strict(named.stdout)["before"]["mean_y"] == 0.5


def test_apply_onto_its_own_input(data: Path, map_file: Path) -> None:
    run("apply", map_file, data, "-o", data)
    assert rows_of(data.read_text())[0] == ["p", "y", "recalibrated"]
    assert len(rows_of(data.read_text())) == 1201


@pytest.mark.parametrize(
    "text", [b"p,y\n0.5,1\n", b'{"p": 0.5, "y": 1}\n', b'{"p": 0.5, "y": 1, "pad": "' + b"x" * 300_000 + b'"}\n']
)
def test_pipes_in_and_out(text: bytes, map_file: Path, platt: PlattScaling) -> None:
    command = [*COMMAND, "apply", str(map_file), "-", "-o", "-", "--json"]
    done = subprocess.run(command, input=text, capture_output=True, check=True)
    assert strict(done.stderr.decode())["compared"] == 1
    value = repr(platt.predict([0.5]).item()).encode()
    assert value in done.stdout
    assert done.stdout.count(b"\n") == text.count(b"\n")


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
def test_a_reader_that_leaves_is_no_error(map_file: Path, tmp_path: Path) -> None:
    source = tmp_path / "long.csv"
    source.write_text("p,y\n" + "0.5,1\n" * 60_000)
    pipe = subprocess.PIPE
    process = subprocess.Popen([*COMMAND, "apply", str(map_file), str(source), "-o", "-"], stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(60) == 0
    assert b"Traceback" not in errors


# ---- apply: JSON Lines


def test_json_lines_stay_as_they_are(map_file: Path, platt: PlattScaling, tmp_path: Path) -> None:
    """To the byte: order, nested values, the way that numbers and letters are written."""
    lines = [
        b'{"z": {"b": [1, {"a": null}]}, "p": 0.5, "y": 1, "n": 12345678901234567890123, "f": 1.10}',
        b'{"p":"0.5","y":false,"s":"\\u00e9 \xc3\xa9"}',
        b'{"p": null, "y": 1}',
        b"{}",
        b'{"y": 1, "p": true}',
    ]
    out = tmp_path / "out.jsonl"
    source = b"\xef\xbb\xbf" + lines[0] + b"\r\n\n" + b"\n".join(lines[1:])
    found = strict(
        run("apply", map_file, "-", "-o", out, "--json", "--column", 'r"1', "--max-bad", 1, stdin=source).stdout
    )
    got = out.read_bytes().splitlines()
    assert [line.startswith(old[:-1]) for line, old in zip(got, lines, strict=True)] == [True] * 5
    new = [json.loads(line)['r"1'] for line in got]
    assert new[:2] == [platt.predict([0.5]).item()] * 2
    assert new[2:] == [None, None, None]
    assert got[3] == b'{"r\\"1": null}'
    assert (found["without_prediction"], found["compared"]) == (3, 2)


def test_json_lines_that_are_no_objects_stay_as_they_are_and_are_counted(map_file: Path, tmp_path: Path) -> None:
    """As in a report, which counts them and goes on; a CSV row of the wrong length stays as wrong as it was too."""
    broken = [b'{"p":', b"[1]", b'{"p": 0.5, "s": "\xff"}', b"null"]
    out = tmp_path / "out.jsonl"
    source = b'{"p": 0.5}\n' + b"\n".join(broken) + b'\n{"p": 0.5}\n'
    found = strict(run("apply", map_file, "-", "-o", out, "--json", "--max-bad", 1, stdin=source).stdout)
    assert out.read_bytes().splitlines()[1:-1] == broken
    assert found["without_prediction"] == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"q": 0.5}\n', "no column 'p'"),
        (b'{"p": 0.5}\n' * 2000 + b'{"p": 0.5, "recalibrated": 1}\n', "line 2001 has a key 'recalibrated' already"),
        (b'{"p": 0.5}\n{"recalibrated": 1}\n', "there is a column 'recalibrated' already"),
        (b'[{"p": 0.5}', "the JSON array does not end"),
    ],
)
def test_json_lines_that_are_refused(text: bytes, said: str, map_file: Path, tmp_path: Path) -> None:
    assert said in refused("apply", map_file, "-", "-o", tmp_path / "out", stdin=text)
    assert [path.name for path in tmp_path.iterdir()] == ["map.cal"]


# ---- apply: Parquet


def test_parquet_keeps_types_and_metadata(map_file: Path, platt: PlattScaling, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "id": pa.array([1, None, 3, 4], pa.int8()),
        "p": pa.array([0.1, None, 7.0, 0.9], pa.float32()),
        "tags": pa.array([["a"], [], None, ["b", "c"]]),
        "kind": pa.array(["x", "y", "x", None]).dictionary_encode(),
        "y": pa.array([False, True, True, True]),
    }
    table = pa.table(columns).replace_schema_metadata({"who": "me"})
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(table, source)
    found = strict(run("apply", map_file, source, "-o", out, "--json", "--max-bad", 0.5).stdout)
    wider = pq.read_table(out)
    assert wider.schema.metadata[b"who"] == b"me"
    assert wider.drop_columns(["recalibrated"]).equals(table)
    expected = platt.predict(np.array([0.1, 0.9], np.float32).astype(float)).tolist()
    assert wider["recalibrated"].to_pylist() == [expected[0], None, None, expected[1]]
    assert (found["without_prediction"], found["compared"]) == (2, 2)
    assert strict(run("apply", map_file, source, "--json", "--max-bad", 0.5).stdout)["compared"] == 2


def test_parquet_in_chunks(map_file: Path, platt: PlattScaling, tmp_path: Path, monkeypatch: Any) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(tables, "CHUNK", 7)
    p = np.arange(50) / 50
    pq.write_table(pa.table({"p": p}), tmp_path / "in.parquet", row_group_size=20)
    assert "no column of outcomes" in run("apply", map_file, tmp_path / "in.parquet", "-o", tmp_path / "o").stdout
    assert pq.read_table(tmp_path / "o")["recalibrated"].to_pylist() == platt.predict(p).tolist()


def test_parquet_that_is_refused(map_file: Path, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    source, out = tmp_path / "in.parquet", tmp_path / "out"
    pq.write_table(pa.table({"p": np.random.default_rng(0).random(50_000)}), source, compression="none")
    assert "Parquet goes to a file" in refused("apply", map_file, source, "-o", "-")
    assert "already" in refused("apply", map_file, source, "-o", out, "--column", "p")
    assert "from a pipe" in refused("apply", map_file, "-", stdin=source.read_bytes())
    whole = bytearray(source.read_bytes())
    whole[4:2000] = bytes(1996)
    source.write_bytes(whole)
    assert "damaged" in refused("apply", map_file, source, "-o", out)
    source.write_bytes(b"PAR1 and no more")
    assert "not a Parquet file" in refused("apply", map_file, source, "-o", out)
    assert not out.exists()
    assert not list(tmp_path.glob("*.part"))


# ---- what apply refuses


def test_maps_that_are_none(data: Path, map_file: Path, tmp_path: Path) -> None:
    other, out = tmp_path / "other", tmp_path / "out"
    assert "other: No such file" in refused("apply", other, data, "-o", out)
    assert "Is a directory" in refused("apply", tmp_path, data, "-o", out)
    assert "in.csv: not a streamcal document" in refused("apply", data, data, "-o", out)
    other.write_bytes(Cumulative(EqualWidth(5)).to_bytes())
    assert "other: holds a Cumulative, not a map of probabilities" in refused("apply", other, data, "-o", out)
    other.write_bytes(PlattScaling().to_bytes())
    assert "not fitted" in refused("apply", other, data, "-o", out)
    whole = map_file.read_bytes()
    for damaged in (whole[:-1], whole[:20], whole + b"x", whole.replace(b"smooth", b"hard")):
        other.write_bytes(damaged)
        assert "other: " in refused("apply", other, data, "-o", out)
    other.write_bytes(whole.replace(b'"streamcal": 1', b'"streamcal": 2'))
    assert "version" in refused("apply", other, data, "-o", out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (b"", (), "standard input: empty"),
        (b"p,y\n.5,1\n", ("--column", "y"), "there is a column 'y' already"),
        (b"q,y\n.5,1\n", (), "no column 'p'"),
        (b"p,p\n.5,1\n", (), "appears 2 times"),
        (b"p\n.5\n", ("--y", "out"), "no column 'out'"),
        (b"p\n.5\n", ("--format", "xml"), "--format must be"),
        (b"p\n.5\n", ("--binning", "x"), "--binning must be"),
        (b"p,y\r.5,1\r", (), "carriage returns"),
        (b"p\0,y\n", (), "not a text file"),
    ],
)
def test_tables_that_are_refused(text: bytes, arguments: tuple[str, ...], said: str, map_file: Path) -> None:
    out = map_file.with_name("out")
    assert said in refused("apply", map_file, "-", "-o", out, *arguments, stdin=text)
    assert [path.name for path in map_file.parent.iterdir()] == ["map.cal"]


def test_what_was_there_stays_where_the_new_file_fails(map_file: Path, tmp_path: Path, data: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("precious")
    text = b'{"p": 0.5}\n' * 50_000 + b'{"recalibrated": 1}'
    assert "line 50001" in refused("apply", map_file, "-", "-o", out, stdin=text)
    assert out.read_text() == "precious"
    assert not list(tmp_path.glob("*.part"))
    assert "No such file" in refused("apply", map_file, data, "-o", tmp_path / "nowhere" / "out")
    assert "--out" in refused("apply", map_file, data, "-o", tmp_path)
    assert "in.csv2: No such file" in refused("apply", map_file, f"{data}2", "-o", out)


def test_replacing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(KeyboardInterrupt), tables.replacing(str(path)) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with tables.replacing(str(path)) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole"


@pytest.mark.skipif(os.name == "nt", reason="links and devices of Unix")
def test_links_and_pipes_are_not_replaced(tmp_path: Path) -> None:
    path, link, pipe = tmp_path / "x", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(path)
    with tables.replacing(str(link)) as file:
        file.write(b"whole")
    assert link.is_symlink()
    assert path.read_bytes() == b"whole"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with tables.replacing(str(pipe)) as file:
        file.write(b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    assert not list(tmp_path.glob("*.part"))


def test_help_and_settings() -> None:
    for command in ("fit", "apply"):
        assert command in run("--help").stdout
        run(command, "--help")
    assert maps.settings(["a=1", "b=x", "c=null", "d="]) == {"a": 1, "b": "x", "c": None, "d": ""}
    with pytest.raises(SourceError):
        maps.settings(["a"])


def test_the_help_names_every_method_and_its_settings() -> None:
    assert {name: kind.settings for name, kind in RECALIBRATORS.items()} == cli.METHODS


def test_a_map_that_does_harm_is_said_to(tmp_path: Path) -> None:
    """Continuous scores are one level each: patching learns the outcomes by heart."""
    rng = np.random.default_rng(0)
    p = rng.random(400)
    y = (rng.random(400) < p).astype(int)
    text = "p,y\n" + "".join(f"{a},{b}\n" for a, b in zip(p.tolist(), y.tolist(), strict=True))
    result = call("fit", "-", "--method", "one-shot-patching", "-o", tmp_path / "m", stdin=text.encode())
    assert result.exit_code == 1  # by more than chance
    found = result.stdout
    assert "note: on rows it has not seen the map does harm: brier rises from" in " ".join(found.split())
    assert "levels hold 1 events each" in " ".join(found.split())
    aside = call("fit", "-", "--method", "one-shot-patching", "-o", tmp_path / "m", "--json", stdin=text.encode())
    assert aside.exit_code == 1
    assert "the map does harm" in str(strict(aside.stdout)["notes"])
    found = run("fit", "-", "--method", "platt", "-o", tmp_path / "m", "--json", stdin=text.encode()).stdout
    assert strict(found)["source"]["rows"] == 400


def test_apply_takes_weights_and_counts_what_it_could_not_compare(map_file: Path, tmp_path: Path) -> None:
    rows = ["p,y,w", ".2,0,2", ".3,1,1", ",1,1", ".4,,1", ".4,7,1", ".5,1,-1", ".5,1,"]
    text = "\n".join(rows).encode() + b"\n"
    found = strict(
        run(
            "apply", map_file, "-", "-o", tmp_path / "o.csv", "--weight", "w", "--json", "--max-bad", 0.5, stdin=text
        ).stdout
    )
    counted = {"rows": 7, "compared": 2, "without_prediction": 1, "without_outcome": 2, "without_weight": 2}
    assert {name: found[name] for name in counted} == counted
    assert found["before"]["weight"] == 3.0
    shown = run("apply", map_file, "-", "-o", tmp_path / "o.csv", "--max-bad", 0.5, stdin=text).stdout
    assert "7 rows, 4 compared; 1 no usable prediction, 2 no usable outcome" in shown


@pytest.mark.parametrize(("name", "form"), [("o.parquet", "csv"), ("o.jsonl", "csv"), ("o.csv", "jsonl")])
def test_a_name_that_promises_another_format_is_refused(name: str, form: str, map_file: Path, tmp_path: Path) -> None:
    text = b"p,y\n.5,1\n" if form == "csv" else b'{"p": 0.5}\n'
    assert f"the table is {form} and stays so" in refused("apply", map_file, "-", "-o", tmp_path / name, stdin=text)
    assert not (tmp_path / name).exists()


def test_outcomes_that_are_words_lead_to_pos_label(tmp_path: Path) -> None:
    text = b"p,y\n.5,home\n.6,away\n"
    said = refused("fit", "-", "-o", tmp_path / "m", stdin=text)
    assert "line 2" in said and "home" in said and "--pos-label" in said


def test_names_of_scikit_learn(data: Path, tmp_path: Path) -> None:
    """Fault 30: sigmoid and quantile are taken as names."""
    run("fit", data, "--method", "sigmoid", "-o", tmp_path / "a")
    run("fit", data, "--method", "platt", "-o", tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    shown = [
        run("report", data, "--binning", name).stdout for name in ("quantile", "uniform-mass", "uniform", "equal-width")
    ]
    assert shown[0] == shown[1] != shown[2] == shown[3]


def classes(n: int = 900) -> tuple[np.ndarray, np.ndarray]:
    """Three classes whose highest probability claims too much."""
    rng = np.random.default_rng(5)
    p = rng.dirichlet([0.6] * 3, n)
    p = np.round(p, 6)
    p[:, 0] += 1 - p.sum(-1)
    flat = p**0.4 / (p**0.4).sum(-1, keepdims=True)
    return p, (rng.random(n)[:, None] > flat.cumsum(-1)).sum(-1).clip(0, 2)


@pytest.mark.parametrize("names", [("a", "b", "c"), ("1", "2", "3")])
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_the_top_label_is_fitted_and_applied(names: tuple[str, ...], form: str, tmp_path: Path) -> None:
    """The map of (highest probability, correct), and one more column: that probability by the map."""
    p, label = classes()
    rows = [
        {**{f"p_{name}": float(v) for name, v in zip(names, row, strict=True)}, "y": names[k]}
        for row, k in zip(p, label, strict=True)
    ]
    table, out, m = tmp_path / f"t.{form}", tmp_path / f"o.{form}", tmp_path / "m"
    if form == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist(rows), table)
    elif form == "jsonl":
        table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        table.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows), ""]))
    said = strict(run("fit", table, "--top-label", "p_*", "-o", m, "--json").stdout)
    confidence, correct = streamcal.top_label(p, label)
    expected = PlattScaling().fit(confidence, correct)
    np.testing.assert_array_equal(from_bytes(m.read_bytes()).predict(P), expected.predict(P))
    applied = strict(run("apply", m, table, "--top-label", "p_*", "-o", out, "--json").stdout)
    assert applied["compared"] == len(rows)
    for found, values in (("before", confidence), ("after", expected.predict(confidence))):
        assert applied[found]["metrics"]["ece"]["value"] == pytest.approx(streamcal.ece(values, correct), rel=1e-9)
        assert applied[found]["mean_y"] == pytest.approx(correct.mean(), rel=1e-9)
    assert said["before"]["metrics"]["brier"]["value"] == pytest.approx(applied["before"]["metrics"]["brier"]["value"])
    if form == "parquet":
        new = pq.read_table(out).column("recalibrated").to_pylist()
    elif form == "jsonl":
        new = [json.loads(line)["recalibrated"] for line in out.read_text().splitlines()]
    else:
        new = [float(row["recalibrated"]) for row in csv.DictReader(out.open())]
    np.testing.assert_array_equal(new, expected.predict(confidence))


def test_labels_of_classes_wait_in_apply_too(map_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 and 2 are names or indices of p_0 .. p_2 shifted by one: a label far down tells, and what came before follows it."""
    monkeypatch.setattr(tables, "CHUNK", 10)
    rows = [f".1,.8,.1,{1 if i % 4 else 2}" for i in range(100)]
    for last, correct in (("0", 75), ("3", 25)):
        text = "\n".join(["p_1,p_2,p_3,y", *rows, f".8,.1,.1,{last}", ""]).encode()
        found = strict(run("apply", map_file, "-", "--top-label", "p_*", "--json", stdin=text).stdout)
        assert found["before"]["mean_y"] == pytest.approx((correct + (last == "0")) / 101)
    text = "\n".join(["p_1,p_2,p_3,y", *rows, ""]).encode()
    result = call("apply", map_file, "-", "--top-label", "p_*", stdin=text)
    assert (result.exit_code, "--labels names" in result.stderr) == (2, True)
    run("apply", map_file, "-", "--top-label", "p_*", "--labels", "names", stdin=text)
    bad = "\n".join(["p_1,p_2,p_3,y", *[".1,.8,.3,3"] * 50, *[".1,.8,.1,3"] * 50, ""]).encode()
    result = call("apply", map_file, "-", "--top-label", "p_*", "-o", tmp_path / "o", stdin=bad)
    assert (result.exit_code, (tmp_path / "o").exists()) == (2, False)
    assert "50 of 100 predictions refused" in result.stderr and "sum to 1.2" in result.stderr


def test_settings_alone_move_the_default_alpha(tmp_path: Path) -> None:
    text = ("p,y\n" + ".2,0\n.2,1\n.7,1\n.7,0\n" * 30).encode()
    run("fit", "-", "--method", "patching", "--set", "levels=20", "-o", tmp_path / "m", stdin=text)


def test_what_report_reads_apply_reads_too(map_file: Path, tmp_path: Path) -> None:
    """Blank lines first, a wide cell, a mark in the middle of concatenated files, a line nested too deeply to read."""
    deep = b'{"p": 0.5, "y": 1, "c": ' + b"[" * 3000 + b"]" * 3000 + b"}"
    tables = {
        "wide.csv": (b'p,y,s\n.5,1,a\n.5,1,"' + b"x" * 140_000 + b'"\n', 2),
        "blank.csv": (b"\n" * 1500 + b"p,y\n.5,1\n", 1),
        "blank.jsonl": (b"\n" * 1500 + b'{"p": 0.5, "y": 1}\n', 1),
        "marks.jsonl": (b'\xef\xbb\xbf{"p": 0.5, "y": 1}\n\xef\xbb\xbf{"p": 0.5, "y": 1}\n', 2),
        "deep.jsonl": (b'{"p": 0.5, "y": 1}\n' + deep + b"\n", 1),
    }
    for name, (text, n) in tables.items():
        (tmp_path / name).write_bytes(text)
        found = strict(run("report", tmp_path / name, "--json", "--max-bad", 1).stdout)
        out = tmp_path / f"new-{name}"
        applied = strict(run("apply", map_file, tmp_path / name, "-o", out, "--json", "--max-bad", 1).stdout)
        assert (found["count"], applied["compared"]) == (n, n), name


def test_a_private_table_stays_private(map_file: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_bytes(b"p,y\n.5,1\n")
    table.chmod(0o600)
    run("apply", map_file, table, "-o", table)
    assert table.stat().st_mode & 0o777 == 0o600


def test_the_map_does_not_take_the_place_of_the_table(data: Path) -> None:
    before = data.read_bytes()
    assert "that is the table itself" in refused("fit", data, "-o", data)
    assert data.read_bytes() == before


def test_names_that_are_no_text(data: Path, map_file: Path, tmp_path: Path) -> None:
    assert "--column must be printable" in refused("apply", map_file, data, "--column", "a\udcff")
    out = os.fsdecode(os.fsencode(tmp_path) + b"/m\xff")
    found = strict(run("fit", data, "-o", out, "--json").stdout)
    assert "udcff" in found["file"]
    assert "there is a column" in refused("apply", map_file, data, "--column", " p")


def test_flags_are_read_as_python_and_json_write_them(data: Path, tmp_path: Path) -> None:
    for text, value in (("False", False), ("false", False), ("True", True)):
        run("fit", data, "--method", "scaling-binning", "--set", f"split={text}", "-o", tmp_path / "m")
        assert from_bytes((tmp_path / "m").read_bytes()).split is value
    assert "must be True or False, got 'no'" in refused(
        "fit", data, "--method", "isotonic", "--set", "strict=no", "-o", tmp_path / "m"
    )


def test_a_map_that_never_ends_is_refused():
    with pytest.raises(SourceError, match="over 100,000,000 bytes, which no map has"):
        maps.load("/dev/zero")
