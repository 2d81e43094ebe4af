"""Real predictions with labels that come months later: the sums are those of the batch, at any moment."""

from __future__ import annotations

import numpy as np
import pytest
from live_employment import BEGIN, CONFIG, DAY, due, employment, figures, plain_ece, streams, write
from live_watch import Watch, lines

pytestmark = [pytest.mark.jit, pytest.mark.servers]  # whole processes, again and again


def watched(folder, every):
    """Half of the stream, then all of it; what is found is compared with the batch."""
    stream = streams(employment(every))
    (folder / "c.toml").write_text(CONFIG)
    middle, end = BEGIN[2017] + 31 * DAY, 1e12
    for begin, until in ((0.0, middle), (middle, end)):
        write(folder, stream, begin, until)
        with Watch(folder, "--once") as watch:
            assert watch.ended(600.0) == 0, watch.errors
        compare(folder, stream, until)
    return stream


def compare(folder, stream, until):
    found = figures(folder)
    predictions, labels = found["accounts"]
    there, labelled = stream.t < until, stream.first < until
    clock = max(time for said in (stream.predictions, stream.labels) for time, _ in said if time < until)
    assert predictions.received == there.sum() and predictions.adds_up and labels.adds_up
    assert predictions.joined == labelled.sum() == labels.joined - labels.corrected
    assert predictions.expired == (there & ~labelled & (due(stream.t) <= clock)).sum()
    assert predictions.pending == (there & ~labelled & (due(stream.t) > clock)).sum()
    assert labels.expired == labels.pending == labels.rejected == 0
    assert labels.received == sum(time < until for time, _ in stream.labels)
    if until > clock + DAY:  # all is there: the outcomes are the true ones
        assert labels.duplicate == stream.planted["twice"]
        assert labels.corrected + labels.conflicting == stream.planted["corrected"]
        assert predictions.expired + predictions.pending == stream.planted["never"]
        for year in (2015, 2016, 2017, 2018):
            of = labelled & (stream.year == year)
            count, ece, positive = found[f"year={year}"]
            assert (count, positive) == (of.sum(), pytest.approx(stream.y[of].sum(), rel=1e-12))
            assert ece == pytest.approx(plain_ece(stream.p[of], stream.y[of]), rel=1e-12, abs=1e-12)
    # what waits for its label is no negative: it is not in the sums at all
    assert found["all"][0] == labelled.sum()
    share = found["all"][2] / found["all"][0]
    assert share == pytest.approx(np.mean(stream.y[labelled]), abs=0.02)
    assert predictions.pending > 0.01 * predictions.received or until > clock + DAY


def test_a_part_of_four_years(tmp_path):
    watched(tmp_path, every=12)
    keys = [(line["time"], line["rule"]) for line in lines(tmp_path, "audit.jsonl")]
    assert len(set(keys)) == len(keys) > 1_000
