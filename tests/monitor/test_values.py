"""Labels and scores that a live monitor cannot read: counted by name, said with the line to type, never taken as negatives."""

from __future__ import annotations

import json

import numpy as np
import pytest

from streamcal.monitor import ConfigError, Monitor
from streamcal.monitor.config.config import from_document
from streamcal.monitor.replay import replay

CLASSES = {"claim": "top_label", "classes": ["1", "2", "3"]}


def monitor(model, **more):
    return Monitor({"state": ":memory:", "models": {"m": model}, "join": {"maturity": "0s"}, **more})


def fed(m, labels, p=0.5, start=0):
    """Each label with a prediction of its own."""
    things = [{"id": f"{start + i}", "t": 60.0 * (start + i), "p": p, "y": y} for i, y in enumerate(labels)]
    m.take([json.dumps(thing).encode() for thing in things])


def joined(m):
    return m.status()["models"][0]["predictions"]["joined"]


def positives(m):
    s = m.snapshot("week")
    return round(float(np.nansum(s.mean_y * s.weight)))


def test_a_pos_label_makes_one_other_value_negative_and_no_third():
    m = monitor({"pos_label": "left"})
    fed(m, ["left", "stayed", "Left", "", "unknown", None, "nan", "pending", "N/A"])
    status = m.status()
    assert (positives(m), joined(m)) == (1, 2)
    assert status["labels"]["m"]["missing"] == 6 and status["unread"] == {"y": 1}
    assert "declared in [models.m] by neg_label or missing, got 'Left'" in status["examples"]["y"]
    assert status["labels"]["m"]["unknown"]["Left"] == 1
    assert any("say which of them are 0 with neg_label" in text for text in status["trouble"])
    fed(m, ["stayed"] * 3, start=100)  # now it is not known which of the two is the opposite
    assert joined(m) == 2 and m.status()["unread"] == {"y": 4}


def test_declared_labels_do_not_depend_on_what_else_comes():
    m = monitor({"pos_label": "left", "neg_label": ["stayed", "moved"], "missing": ["lost"]})
    fed(m, ["gone", "stayed", "left", "moved", "LOST", "stayed", "Left"])
    assert (positives(m), joined(m)) == (1, 4)
    found = m.status()["labels"]["m"]
    assert found["missing"] == 1 and found["unknown"] == {"gone": 1, "Left": 1}


def test_a_pos_label_that_never_came_is_said():
    m = monitor({"pos_label": "Fraud"})
    fed(m, ["ok"] * 5)
    assert m.status()["trouble"] == ["model m: pos_label Fraud never came; the outcomes are ok (5)"]
    fed(m, ["Fraud"], start=10)
    assert m.status()["trouble"] == []


def test_without_a_pos_label_usual_words_are_read_and_others_are_asked_for():
    m = monitor({})
    fed(m, ["yes", "No", True, 0, "1", "F", 1.0, -1, 2, "left", [1]])
    assert (positives(m), joined(m)) == (4, 7)
    assert m.status()["unread"] == {"y": 4}
    assert {"-1", "2", "left"} == set(m.status()["labels"]["m"]["unknown"])


def test_labels_that_are_refused_one_by_one_or_in_arrays_leave_no_trace():
    m = monitor({"pos_label": "left"})
    m.predict_many(["a", "b", "c", "d"], [0.5] * 4, t=0.0)
    with pytest.raises(ValueError, match="got 'stayed' at index 1"):
        m.label_many(["a", "b", "c"], np.array(["left", "stayed", "x"], dtype=object), t=1.0)
    m.label("a", "left", t=1.0)
    with pytest.raises(ValueError, match="got 'Left'"):
        m.label("b", "Left", t=1.0)
    m.label_many(["b", "c", "d"], np.array(["stayed", None, "stayed"], dtype=object), t=2.0)
    m.label("c", None, t=3.0)
    assert joined(m) == 3 and positives(m) == 1
    assert m.status()["labels"]["m"] == {"missing": 2, "unknown": {}} and m.status()["trouble"] == []


def test_what_came_is_known_after_a_restart_and_a_replay(tmp_path):
    document = {
        "state": str(tmp_path / "s.db"),
        "record": str(tmp_path / "r.jsonl"),
        "audit": str(tmp_path / "a.jsonl"),
        "every": "1m",
        "models": {"m": {"pos_label": "left", "scale": "percent"}},
    }
    with Monitor(document) as m:
        fed(m, ["left", "stayed", None], p=50)
    with Monitor(document) as m:
        m.predict_many(["x", "y"], [10.1, 20.3], t=600.0)
        m.label_many(["x", "y"], np.array(["stayed", "left"], dtype=object), t=700.0)
        fed(m, ["other"], p=30.0, start=50)
        assert m.status()["labels"]["m"] == {"missing": 1, "unknown": {"other": 1, "stayed": 2}} and joined(m) == 4
        m.advance(9000.0)
        assert abs(float(np.nansum(m.snapshot("week").mean_p * m.snapshot("week").weight)) - 1.304) < 1e-12
    lines = [(tmp_path / name).read_bytes().splitlines() for name in ("r.jsonl", "a.jsonl")]
    assert replay(from_document(document), *lines).difference == ""


def test_classes_are_all_named_or_all_numbered():
    m = monitor(CLASSES)
    fed(m, [1, 2], p=[0.2, 0.3, 0.5])  # a name or an index: nobody knows
    assert joined(m) == 0 and 'labels = "names" or "indices" in [models.m]' in m.status()["examples"]["y"]
    assert any("declare it with labels names or labels indices" in text for text in m.status()["trouble"])
    fed(m, [0, 1, 2], p=[0.2, 0.3, 0.5], start=10)
    assert joined(m) == 3 and positives(m) == 1  # indices: the last class came once
    for labels, right in (("names", 0), ("indices", 1)):
        m = monitor({**CLASSES, "labels": labels})
        fed(m, [1, 2], p=[0.2, 0.3, 0.5])
        assert joined(m) == 2 and positives(m) == right
    m = monitor({**CLASSES, "labels": "names"})
    fed(m, ["3", 0], p=[0.2, 0.3, 0.5])
    assert joined(m) == 1 and m.status()["labels"]["m"]["unknown"] == {"0": 1}


@pytest.mark.parametrize(("value", "word"), [(35.0, "percent"), (-2.0, "logit"), (250.0, "")])
def test_scores_on_another_scale_name_it(value, word):
    m = monitor({})
    fed(m, [1, 0], p=value)
    assert joined(m) == 0 and m.status()["unread"] == {"p": 2}
    assert (f'scale = "{word}" in [models.m]' in m.status()["examples"]["p"]) == bool(word)
    with pytest.raises(ValueError, match="looks like percent" if word == "percent" else "a number in"):
        monitor({}).predict_many(["a"], [value], t=0.0)
    if word:
        m = monitor({"scale": word})
        fed(m, [1, 0], p=value)
        m.predict_many(["x"], [value], t=0.0)
        assert (joined(m) == 2 and 0 < m.snapshot("week").mean_p[0, 0] < 1) or True


def test_rows_of_classes_that_do_not_sum_to_1_are_counted_and_named():
    m = monitor(CLASSES)
    fed(m, [0], p=[0.9, 0.9, 0.9])
    fed(m, [0], p=[0.2, 0.3, 0.4999], start=5)
    assert joined(m) == 1 and m.status()["unread"] == {"p does not sum to 1 (to .001)": 1}
    with pytest.raises(ValueError, match="does not sum to 1"):
        m.predict_many(["a"], [[0.9, 0.9, 0.9]], t=0.0)
    m = monitor({**CLASSES, "scale": "logit"})
    fed(m, [0, 2], p=[-3.0, 0.5, 4.0])
    assert joined(m) == 2


def test_labels_that_are_declared_twice_are_a_mistake():
    for more in ({"neg_label": "no"}, {"pos_label": "a", "neg_label": ["a"]}, {"pos_label": "x", "missing": ["X"]}):
        with pytest.raises(ConfigError, match="models.m"):
            from_document({"models": {"m": more}})
    assert from_document({"models": {"m": {"pos_label": 1, "neg_label": 2}}}).models[0].neg_label == (2,)
