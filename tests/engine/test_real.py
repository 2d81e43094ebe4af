"""The command on real predictions: games written to a file in two formats, and four years of census rows in Parquet.

Every test skips, with the reason, when its data is absent.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from streamcal.command.main import app

BINS = 15
ECE_OF_YEAR = {"2015": 0.006311118884, "2016": 0.010364567919, "2017": 0.011417088869, "2018": 0.012869623612}


def report(*args: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["report", *map(str, args), "--json"])
    assert result.exit_code == 0, result.output + result.stderr
    return dict(json.loads(result.stdout))


def write(path: Path, p: np.ndarray, y: np.ndarray) -> Path:
    """The events as CSV or JSON Lines, by the suffix; every float in its shortest exact form."""
    pairs = zip(p.tolist(), y.astype(int).tolist(), strict=True)
    if path.suffix == ".csv":
        path.write_text("p,y\n" + "".join(f"{a!r},{b}\n" for a, b in pairs))
    else:
        path.write_text("".join(json.dumps({"p": a, "y": b}) + "\n" for a, b in pairs))
    return path


def plain_bins(p: np.ndarray) -> np.ndarray:
    """Bin m holds (m/15, (m+1)/15] and bin 0 holds 0, by comparison with every edge."""
    return (p[:, None] > np.arange(1, BINS)[None, :] / BINS).sum(1)


def plain_ece(p: np.ndarray, y: np.ndarray) -> float:
    bins = plain_bins(p)
    gaps = [abs(y[bins == m].sum() - p[bins == m].sum()) for m in range(BINS)]
    return float(sum(gaps) / len(p))


# ---- win forecasts of two leagues


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize(("league", "events"), [("nba", 8886), ("mlb", 15_747)])
def test_games_are_counted_and_summed_as_they_are(games, tmp_path, league, events, form):
    p, y = games[league]
    found = report(write(tmp_path / f"games.{form}", p, y))
    assert found["source"]["format"] == form
    assert found["count"] == found["source"]["rows"] == events == len(p)
    assert found["refused"] == found["clipped"] == found["source"]["bad"]["cells"] == 0
    assert found["metrics"]["ece"]["value"] == pytest.approx(plain_ece(p, y), abs=1e-12)
    assert found["metrics"]["pa_ratio"]["value"] == pytest.approx(p.sum() / y.sum(), rel=1e-12)
    assert found["metrics"]["brier"]["value"] == pytest.approx(np.mean((p - y) ** 2), rel=1e-12)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_nba_games_are_biased(games, tmp_path, form):
    found = report(write(tmp_path / f"nba.{form}", *games["nba"]))
    low, high = found["metrics"]["k2_debiased"]["interval"]
    assert 0 < low < found["metrics"]["k2_debiased"]["value"] < high
    assert found["metrics"]["pa_ratio"]["value"] > 1
    assert found["metrics"]["ece"]["value"] > found["metrics"]["ece"]["null"][1]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_mlb_games_are_not_distinguishable_from_calibrated(games, tmp_path, form):
    found = report(write(tmp_path / f"mlb.{form}", *games["mlb"]))
    low, high = found["metrics"]["k2_debiased"]["interval"]
    assert low <= 0 <= high


@pytest.mark.parametrize("league", ["nba", "mlb"])
def test_both_formats_of_the_games_give_the_same_numbers(games, tmp_path, league):
    csv, jsonl = (report(write(tmp_path / f"games.{form}", *games[league])) for form in ("csv", "jsonl"))
    del csv["source"], jsonl["source"]
    assert csv == jsonl


# ---- who is employed, by year


@pytest.fixture(scope="session")
def employment() -> dict[str, np.ndarray]:
    """Predictions and outcomes of 2015-2018: two files hold predictions, one of them has its outcomes in a third."""
    pq = pytest.importorskip("pyarrow.parquet")
    spec = find_spec("nannyml")  # found, never imported
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("nannyml is not here: pip install --no-deps nannyml==0.13.1 (only its data is read)")
    folder = Path(spec.submodule_search_locations[0]) / "datasets" / "data"

    def read(name: str, *columns: str) -> dict[str, np.ndarray]:
        path = folder / f"employment_MA_{name}.pq"
        if not path.is_file():
            pytest.skip(f"this nannyml has no {path.name}")
        return {c: pq.read_table(path, columns=[c]).column(c).to_numpy() for c in columns}

    old = read("reference", "id", "year", "predicted_probability", "employed")
    new = read("analysis", "id", "year", "predicted_probability")
    target = read("analysis_target", "id", "employed")
    order = np.argsort(target["id"])
    place = order[np.searchsorted(target["id"], new["id"], sorter=order)]
    assert np.array_equal(target["id"][place], new["id"])  # every prediction found its own outcome
    new["employed"] = target["employed"][place]
    return {c: np.concatenate([old[c], new[c]]) for c in old}


@pytest.fixture(scope="session")
def by_year(employment, tmp_path_factory) -> dict[str, Any]:
    """What the command says of one Parquet file of all rows, ids and outcomes joined."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path_factory.mktemp("real") / "employment.parquet"
    pq.write_table(pa.table(employment), path)
    return report(path, "--p", "predicted_probability", "--y", "employed", "--segment", "year")


def test_employment_is_all_there(employment, by_year):
    assert by_year["count"] == by_year["source"]["rows"] == len(employment["id"]) == 68_785 + 208_892
    assert by_year["refused"] == by_year["source"]["missing"]["rows"] == by_year["source"]["bad"]["rows"] == 0
    assert {s["segment"] for s in by_year["segments"]} == set(ECE_OF_YEAR)
    assert sum(s["count"] for s in by_year["segments"]) == by_year["count"]


def test_employment_ece_of_each_year(employment, by_year):
    """The command, the figure on record, and plain numpy agree."""
    for part in by_year["segments"]:
        of = employment["year"] == int(part["segment"])
        want = plain_ece(employment["predicted_probability"][of], employment["employed"][of])
        assert part["count"] == of.sum()
        assert part["metrics"]["ece"]["value"] == pytest.approx(want, abs=1e-9)
        assert part["metrics"]["ece"]["value"] == pytest.approx(ECE_OF_YEAR[part["segment"]], abs=1e-9)
    want = plain_ece(employment["predicted_probability"], employment["employed"])
    assert by_year["metrics"]["ece"]["value"] == pytest.approx(want, abs=1e-9)


def test_employment_calibration_is_lost_year_by_year(by_year):
    """Not by chance: the debiased value leaves 0 behind after the first year."""
    parts = sorted(by_year["segments"], key=lambda s: int(s["segment"]))
    values = [s["metrics"]["ece"]["value"] for s in parts]
    assert values == sorted(values)
    assert values[-1] > 2 * values[0]
    intervals = [s["metrics"]["k2_debiased"]["interval"] for s in parts]
    assert intervals[0][0] < 0 < intervals[0][1]
    assert all(low > 0 for low, _ in intervals[1:])
    assert intervals[-1][0] > intervals[0][1]
