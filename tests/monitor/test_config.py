"""Configuration files: what is said in them, and every kind of mistake with its line."""

from __future__ import annotations

import dataclasses
import pickle
import re
import tomllib
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcal
from streamcal.intervals import INTERVALS
from streamcal.monitor import check
from streamcal.monitor.config import EXAMPLE
from streamcal.monitor.config.config import NAMED, SINGLE, Config, ConfigError, from_document, load, parse
from streamcal.monitor.config.settings import Rule, Segments
from streamcal.monitor.config.toml_tables import digest, keys_of, lines
from streamcal.monitor.sinks.registry import ToStdout
from streamcal.monitor.sources.registry import FromFile, FromKafka, FromRedis, FromStdin
from streamcal.times import moment, span, utc

SOUND = """\
[models.churn]
versions = ["7", "8"]

[segments]
fields = ["country"]

[windows.day]
events = 1000

[detectors.drift]

[sinks.ops]
type = "webhook"
url = "https://alerts.example/x"

[rules.gap]
metric = "k1"
window = "day"
above = 0.05
"""


def findings(text: str) -> list[tuple[int, str]]:
    with pytest.raises(ConfigError) as error:
        parse(text)
    return [(f.line, f.text) for f in error.value.findings]


# -- what is right --------------------------------------------------------------------------------------------------------


def test_the_example_shows_every_key():
    document = tomllib.loads(EXAMPLE)
    assert set(document) == {*keys_of(Config), *NAMED, *SINGLE}
    for kind, cls in NAMED.items():
        shown = {key for table in document[kind].values() for key in table}
        assert shown | ({"below"} if kind == "rules" else set()) == set(keys_of(cls))
    for key, cls in SINGLE.items():
        assert set(document[key]) == set(keys_of(cls))


def test_what_the_example_says():
    config = parse(EXAMPLE)
    rule, drift = config.rules
    assert (rule.lasting, rule.cooldown, rule.above, rule.clear, rule.level) == (600.0, 21600.0, 0.05, 0.04, 0.99)
    assert (drift.alarm, drift.quiet, drift.segments) == ("drift", 604800.0, "each")
    assert [m.name for m in config.of(rule)] == ["churn"] and config.of(drift) == config.models
    assert config.join.maturity == 86400.0 and config.segments.fields == ("country", "tier")
    assert list(map(type, config.sources)) == [FromFile, FromStdin, FromKafka, FromRedis, FromRedis]
    assert dict(config.sources[2].options)["sasl.password"] == "env:KAFKA_PASSWORD"
    assert config.detectors[0].tolerated(config.models[0]) == 0.02


def test_the_least_that_is_needed():
    config = parse("[models.churn]")
    assert (config.every, config.naive_times, config.segments, config.clock) == (60.0, "refuse", None, "events")
    assert [(w.name, w.time) for w in config.windows] == [("week", 7 * 86_400.0)]
    assert [(r.alarm, r.segments) for r in config.rules] == [(d.name, "all") for d in config.detectors]
    assert (
        parse("[models.churn]\n[detectors.mine]").rules
        == ()
        == parse("[models.churn]\n[rules]\n[detectors.mine]").rules
    )
    assert parse('[models.churn]\n[segments]\nfields = ["country"]').rules[0].segments == "each"
    assert list(map(type, config.sinks)) == [ToStdout]
    assert parse(SOUND).rules[0].clear == 0.05
    assert parse(SOUND).detectors[0].tolerated(dataclasses.replace(config.models[0], tolerance=0.1)) == 0.1


def test_claims_and_binnings_are_those_of_windows():
    models = {m.name: m for m in parse(EXAMPLE).models}
    assert models["churn"].claims() == streamcal.Mean("binary")
    assert models["demand"].claims() == streamcal.Quantile((0.1, 0.5, 0.9))
    assert models["demand-range"].claims() == streamcal.Interval(0.05, 0.95)
    assert models["animals"].claims() == streamcal.TopLabel()
    more = parse(
        '[models.a]\nclaim = "pit"\n[models.b]\nclaim = "marginal"\nclasses = ["x", "y", "z"]\nbinning = "log-odds"\n'
        '[models.c]\nclaim = "quantile"\nlevels = [0.9]\n[models.d]\noutcome = "unit"\nbinning = "uniform-mass"\nbins = 7\n'
    )
    made = {m.name: (m.claims(), m.window_binning()) for m in (*more.models, *models.values())}
    assert made["a"][0] == streamcal.PIT() and made["b"][0] == streamcal.Marginal(3)
    assert made["c"][0] == streamcal.Quantile(0.9) and made["d"][0] == streamcal.Mean("unit")
    edges = np.array(made["b"][1].given)
    assert len(edges) == 16 and np.ptp(np.diff(np.log(edges[1:-1] / (1 - edges[1:-1])))) < 1e-9  # equal in log odds
    assert repr(made["d"][1]) == repr(streamcal.UniformMass(7))
    assert repr(made["churn"][1]) == repr(streamcal.EqualWidth(15))
    for claim, binning in made.values():  # a window of each takes events
        window = streamcal.Cumulative(binning, claim=claim, keys=claim.width)
        width = {"TopLabel": 2, "Interval": 2}.get(type(claim).__name__, 1 if claim.scalar else claim.width)
        width = 1 if isinstance(claim, streamcal.PIT) else width
        raw = np.full(3, 0.5) if width == 1 else np.full((3, width), 1.0 / width)
        window.update_many(raw, [0, 1, 1])
        assert window.snapshot().count.sum() == 3 * claim.width


def test_metrics_with_an_interval_are_metrics_and_have_one():
    assert set(streamcal.METRICS) >= set(INTERVALS)
    window = streamcal.Cumulative(streamcal.EqualWidth(5))
    window.update_many(np.linspace(0.05, 0.95, 400), np.random.default_rng(0).random(400) < 0.5)
    quantile = streamcal.Cumulative(streamcal.Edges(np.linspace(0, 1, 4)), claim=streamcal.Quantile(0.9))
    quantile.update_many(np.linspace(0.1, 0.9, 400), np.random.default_rng(0).random(400))
    for name, bounds in INTERVALS.items():
        s = (quantile if name == "q1" else window).snapshot()
        low, high = bounds(s, 0.95)
        assert low[0] <= s.values(name)[0] <= high[0] and low[0] < high[0], name


def test_windows_files_are_read_too(tmp_path):
    path = tmp_path / "streamcal.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SOUND.replace("\n", "\r\n").encode())
    assert load(path) == parse(SOUND) and check(path) == []
    path.write_bytes(SOUND.replace("above", "abov").replace("\n", "\r\n").encode())
    assert [text.partition(":")[0] for text in check(path)] == ["line 19"]


def test_a_config_is_plain_frozen_data():
    config = parse(EXAMPLE)
    assert pickle.loads(pickle.dumps(config)) == config and hash(config) == hash(parse(EXAMPLE))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.rules[0].above = 1.0
    assert from_document(tomllib.loads(EXAMPLE)) == config


# -- the hash -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        ("events = 1000", "events = 1_000   # so many"),
        ("[detectors.drift]", "[detectors.drift]\narl = 20000"),
        ("[detectors.drift]", '[join]\nttl = "2160h"\n[detectors.drift]'),
        ("above = 0.05", "above = 5e-2\nclear = 0.05"),
        ('metric = "k1"\nwindow = "day"', 'window = "day"\nmetric = "k1"'),
        ("versions", 'binning = "equal-width"\nversions'),
    ],
)
def test_the_hash_is_the_same_for_the_same_meaning(change):
    changed = SOUND.replace(*change)
    assert changed != SOUND and parse(changed).hash == parse(SOUND).hash


def test_the_order_of_tables_does_not_change_the_hash():
    tables = SOUND.split("\n\n")
    text = "\n".join(reversed(tables))
    assert len(tables) == 6 and text.startswith("[rules") and parse(text).hash == parse(SOUND).hash


@pytest.mark.parametrize(
    "change",
    [
        ("1000", "1001"),
        ("0.05", "0.050000000000000003"),
        ("above", "level = 0.9\nabove"),
        ("churn", "chum"),
        ('"7", "8"', '"8", "7"'),
        ("versions", "pos_label = true\nversions"),
        ("[models", 'every = "2m"\n[models'),
    ],
)
def test_the_hash_is_another_for_another_meaning(change):
    changed = SOUND.replace(*change)
    same = parse(changed) == parse(SOUND)
    assert same == (change[0] == "0.05") and (parse(changed).hash == parse(SOUND).hash) == same


def test_where_alerts_go_and_events_come_from_decides_nothing():
    told = SOUND.replace("[models", 'audit = "a.jsonl"\nstate = "b.db"\n[models', 1).replace(
        "above", 'severity = "info"\nabove'
    )
    assert parse(told) != parse(SOUND) and parse(told).hash == parse(SOUND).hash


def test_a_part_has_a_hash_of_its_own():
    one, two = parse(SOUND), parse(SOUND.replace("above = 0.05", "above = 0.07"))
    assert digest((one.models[0], one.windows[0])) == digest((two.models[0], two.windows[0]))
    assert digest(one.rules[0]) != digest(two.rules[0])
    assert digest(dataclasses.replace(one.models[0], bins=20)) != digest(one.models[0])


# -- mistakes, each with its line -----------------------------------------------------------------------------------------

MODEL, SEGMENTS, WINDOW, DETECTOR, SINK, RULE = (SOUND[: SOUND.index(f"[{t}")].count("\n") + 1 for t in
    ("models", "segments", "windows", "detectors", "sinks", "rules"))  # fmt: skip
END = SOUND.count("\n") + 1

# (what is replaced, by what, the line, what is said)
MISTAKES = [
    # TOML itself
    ("above = 0.05", "above = ", RULE + 3, "this is not TOML: Invalid value (column 9)"),
    ("above = 0.05\n", "above = [0.05", RULE + 3, "this is not TOML: Unclosed array"),
    ("above = 0.05", "above = 0.05\nabove = 0.06", RULE + 4, "this is not TOML: Cannot overwrite a value"),
    ("[windows.day]", "[models.churn]", WINDOW, "this is not TOML: Cannot declare ('models', 'churn') twice"),
    # keys and their types
    ("above", "abov", RULE + 3, 'unknown key rules.gap.abov; did you mean "above"? Allowed: metric, alarm, window, models,'),
    ("above = 0.05", "above = 0.05\ncool-down = '1h'", RULE + 4, 'rules.gap.cool-down; did you mean "cooldown"?'),
    ("above = 0.05", "above = 0.05\nzzz = 1", RULE + 4, "unknown key rules.gap.zzz; allowed: metric, alarm,"),
    ("[segments]", "[segment]", SEGMENTS, 'unknown key segment; did you mean "segments"? Allowed: state, audit, record,'),
    ("[models.churn]", "evry = '1m'\n[models.churn]", 1, 'unknown key evry; did you mean "every"?'),
    ("above = 0.05", 'above = "0.05"', RULE + 3, 'rules.gap.above must be a number, got "0.05" (text)'),
    ("above = 0.05", "above = true", RULE + 3, "rules.gap.above must be a number, got true (true or false)"),
    ("above = 0.05", "above = nan", RULE + 3, "rules.gap.above must be a number, got nan (number)"),
    ("above = 0.05", "above = inf", RULE + 3, "rules.gap.above must be a number, got inf (number)"),
    ("above = 0.05", "above = 2026-01-01", RULE + 3, "rules.gap.above must be a number, got 2026-01-01 (date or time)"),
    ("above = 0.05", "above = {x = 1}", RULE + 3, "rules.gap.above must be a number, got a table"),
    ("above = 0.05", f"above = 1{'0' * 400}", RULE + 3, "rules.gap.above must be a number, got 1000"),
    ("1000", "1000.0", WINDOW + 1, "windows.day.events must be a whole number in 1..100000000, got 1000.0 (number)"),
    ("1000", "true", WINDOW + 1, "windows.day.events must be a whole number in 1..100000000, got true"),
    ("1000", "-5", WINDOW + 1, "windows.day.events must be a whole number in 1..100000000, got -5 (whole number)"),
    ("events = 1000", "time = 24", WINDOW + 1, 'windows.day.time must be a span such as "90s", "15m", "1h 30m" or "7d"'),
    ("events = 1000", 'time = "24"', WINDOW + 1, 'or "7d" of at least 1s, got "24" (text)'),
    ("events = 1000", 'time = "0s"', WINDOW + 1, 'or "7d" of at least 1s, got "0s" (text)'),
    ("events = 1000", 'time = "1m 1h"', WINDOW + 1, 'got "1m 1h" (text)'),
    ('"webhook"', '"webhok"', SINK + 1, '"webhook", got "webhok" (text); did you mean "webhook"?'),
    ('"webhook"', "3", SINK + 1, 'sinks.ops.type must be one of "stdout", "file", "webhook", got 3 (whole number)'),
    ('"webhook"', "[]", SINK + 1, 'sinks.ops.type must be one of "stdout", "file", "webhook", got [] (list)'),
    ("https://alerts", "alerts", SINK + 2, "sinks.ops.url must be a link that starts with https:// or http://, got"),
    ('["7", "8"]', '["7", 8]', MODEL + 1, "models.churn.versions[2] must be text that is not empty"),
    ('["7", "8"]', '[\n"7",\n"",\n]', MODEL + 3, "models.churn.versions[2] must be text that is not empty"),
    ('["7", "8"]', '["7", "7"]', MODEL + 1, 'models.churn.versions must not hold anything twice, got "7" (text) again'),
    ('["7", "8"]', "[]", MODEL + 1, 'models.churn.versions must be a list of texts such as ["a", "b"], got [] (list)'),
    ('["7", "8"]', '"7"', MODEL + 1, 'models.churn.versions must be a list of texts such as ["a", "b"], got "7" (text)'),
    ('["country"]', '["a b "]', SEGMENTS + 1, "segments.fields[1] must be text that is not empty, without blanks at its"),
    ('fields = ["country"]', "cap = 3", SEGMENTS, "segments lacks the key fields, which must be a list of texts"),
    ('type = "webhook"\n', "", SINK, 'sinks.ops lacks the key type, which must be one of "stdout", "file", "webhook"'),
    # tables
    ("[rules.gap]", "[[rules]]", RULE, "rules must be tables with names, such as [rules.NAME], got"),
    ("[rules.gap]", "[rules]", RULE + 1, 'rules.metric must be a table, written [rules.metric], got "k1" (text)'),
    ("[segments]", "[[segments]]", SEGMENTS, "segments must be a table, written [segments], got"),
    ("[models.churn]", "[model.churn]", 1, 'unknown key model; did you mean "models"?'),
    ("[models.churn]", '[models." churn"]', 1, 'models." churn" must be text that is not empty, without blanks'),
    ("[models.churn]", "models = 3\n[mode.churn]", 1, "models must be tables with names, such as [models.NAME], got 3"),
    # models
    ("versions", 'claim = "quantile"\nversions', MODEL, 'models.churn lacks the key levels, which claim = "quantile" needs'),
    ("versions", 'claim = "interval"\nlower = 0.1\nversions', MODEL, 'lacks the key upper, which claim = "interval" needs'),
    ("versions", 'claim = "marginal"\nversions', MODEL, 'lacks the key classes, which claim = "marginal" needs'),
    ("versions", "levels = [0.5]\nversions", MODEL + 1,
     'models.churn.levels goes only with claim = "quantile" or "pit", got claim = "mean"'),
    ("versions", 'claim = "pit"\nbins = 3\nversions', MODEL + 2, "models.churn.bins goes only with claim ="),
    ("versions", 'claim = "quantile"\nlevels = [\n0.5,\n0.1]\nversions', MODEL + 2, "levels must rise, got [0.5, 0.1]"),
    ("versions", 'claim = "quantile"\nlevels = [\n0.5,\n1.0]\nversions', MODEL + 4, "levels[2] must be a number in (0, 1)"),
    ("versions", 'claim = "interval"\nlower = 0.9\nupper = 0.1\nversions', MODEL + 2, "must be below upper, got 0.9 and 0.1"),
    ("versions", 'claim = "top_label"\nclasses = ["a"]\nversions', MODEL + 2, 'must hold at least two classes, got only "a"'),
    ("versions", 'claim = "quantile"\nlevels = [0.5]\nbinning = "log-odds"\nversions', MODEL + 3,
     'models.churn.binning must be "uniform-mass" for claim = "quantile", got "log-odds"'),
    ("versions", 'outcome = "unit"\npos_label = 1\nversions', MODEL + 2, 'goes only with outcome = "binary"'),
    ("versions", "pos_label = 1.5\nversions", MODEL + 1, "pos_label must be text, a whole number, true or false, got 1.5"),
    ("versions", "negative_sampling_rate = 0\nversions", MODEL + 1, "negative_sampling_rate must be a number in (0, 1]"),
    ("versions", "tolerance = 1\nversions", MODEL + 1, "models.churn.tolerance must be a number in [0, 1), got 1"),
    ("versions", 'claim = "mean value"\nversions', MODEL + 1, '"marginal", "pit", got "mean value" (text)'),
    # join, segments, windows, detectors
    ("[detectors.drift]", '[join]\nttl = "1d"\nmaturity = "2d"', DETECTOR + 2,
     "join.maturity must be at most ttl, or nothing ever counts, got 2d and 1d"),
    ("[windows.day]", 'other = "all"\n[windows.day]', WINDOW, 'segments.other must not be "all" or "each" and hold no "="'),
    ("[windows.day]", "cap = 0\n[windows.day]", WINDOW, "segments.cap must be a whole number in 1..1000000, got 0"),
    ("events = 1000", "", WINDOW, "windows.day must have either events or time, got neither"),
    ("events = 1000", 'events = 1000\ntime = "1d"', WINDOW, "windows.day must have either events or time, got both"),
    ("events = 1000", "events = 1000\npanes = 3", WINDOW + 2, "windows.day.panes goes only with time"),
    ("events = 1000", 'events = 1000\nby = "prediction"', WINDOW + 2, "by goes only with time"),
    ("[detectors.drift]", "[detectors.drift]\narl = 0.5", DETECTOR + 1, "detectors.drift.arl must be a number in [1, 1e15]"),
    # rules
    ('metric = "k1"\n', "", RULE, "rules.gap must have either metric or alarm, got neither"),
    ('metric = "k1"', 'metric = "k1"\nalarm = "drift"', RULE, "rules.gap must have either metric or alarm, got both"),
    ('window = "day"\n', "", RULE, "rules.gap lacks the key window, which a rule with metric needs"),
    ("above = 0.05", "", RULE, "rules.gap must have either above or below, got neither"),
    ("above = 0.05", "above = 0.05\nbelow = 0.01", RULE, "rules.gap must have either above or below, got both"),
    ('"k1"', '"k3"', RULE + 1, 'rules.gap.metric must be one of'),
    ('"k1"', '"kinf"', RULE + 1, 'rules.gap.metric = "kinf" has no interval: write level = 0 to compare its value, or'),
    ('"k1"', '"q1"', RULE + 1, 'rules.gap.metric = "q1" is about claims that are "quantile", but model "churn" has claim ='),
    ("above = 0.05", "above = 0.05\nclear = 0.06", RULE + 4, "rules.gap.clear must be at most above = 0.05, got 0.06"),
    ("above = 0.05", "below = 0.05\nclear = 0.04", RULE + 4, "rules.gap.clear must be at least below = 0.05, got 0.04"),
    ("above = 0.05", "above = 0.05\nlevel = 1", RULE + 4, "rules.gap.level must be a number in [0, 1), got 1"),
    ("above = 0.05", "above = 0.05\nlevel = 95", RULE + 4, "rules.gap.level must be a number in [0, 1), got 95"),
    ("above = 0.05", "above = 0.05\nmin_count = 1001", RULE + 4,
     'rules.gap.min_count = 1001 is never reached: window "day" holds 1000 events'),
    ("above = 0.05", "above = 0.05\nquiet = '1h'", RULE + 4, "rules.gap.quiet goes only with alarm, not with metric"),
    ('metric = "k1"\nwindow = "day"', 'alarm = "drift"', RULE + 2, "rules.gap.above goes only with metric, not with alarm"),
    ('metric = "k1"\nwindow = "day"\nabove = 0.05', 'alarm = "drift"\nfor = "1m"', RULE + 2, "for goes only with metric"),
    ("above = 0.05", 'above = 0.05\nseverity = "page"', RULE + 4, 'must be one of "info", "warning", "critical", got "page"'),
    ("above = 0.05", 'above = 0.05\nrunbook = "wiki/x"', RULE + 4, "rules.gap.runbook must be a link that starts with https"),
    ('"day"', '"dya"', RULE + 2, 'rules.gap.window names "dya", but the windows are "day"; did you mean "day"?'),
    ('metric = "k1"\nwindow = "day"\nabove = 0.05', 'alarm = "draft"', RULE + 1,
     'rules.gap.alarm names "draft", but the detectors are "drift"; did you mean "drift"?'),
    ("above = 0.05", 'above = 0.05\nsinks = ["op"]', RULE + 4, 'rules.gap.sinks names "op", but the sinks are "ops"; did'),
    ("above = 0.05", 'above = 0.05\nmodels = ["x"]', RULE + 4, 'rules.gap.models names "x", but the models are "churn"'),
    ("above = 0.05", 'above = 0.05\nsegments = "eech"', RULE + 4,
     'segments must be "all", "each" or a list of names of segments, got "eech" (text); did you mean "each"?'),
    ("above = 0.05", "above = 0.05\nsegments = []", RULE + 4, '"all", "each" or a list of names of segments, got []'),
    ("above = 0.05", 'above = 0.05\nsegments = ["at"]', RULE + 4,
     'names "at", but a segment looks like "country=...", or is "all" or "other"'),
    # sinks and sources
    ('url = "https://alerts.example/x"', "", SINK, "sinks.ops must have either url or url_env, got neither"),
    ('url = "', 'url_env = "X"\nurl = "', SINK, "sinks.ops must have either url or url_env, got both"),
    ('url = "', 'path = "x"\nurl = "', SINK + 2, 'sinks.ops.path goes only with type = "file", got type = "webhook"'),
    ('"webhook"', '"file"', SINK, 'sinks.ops lacks the key path, which type = "file" needs'),
    ('url = "', 'retries = 1000\nurl = "', SINK + 2, "sinks.ops.retries must be a whole number in 0..100, got 1000"),
    ('url = "', 'rate = 0\nurl = "', SINK + 2, "sinks.ops.rate must be a number above 0, got 0"),
    ('url = "', 'dead_letters = "./streamcal.db"\nurl = "', SINK + 2,
     'sinks.ops.dead_letters must not be the file of state, got "./streamcal.db" for both'),
    ("[rules.gap]", '[sources.a]\ntype = "kafka"\ntopic = "t"\n[rules.gap]', RULE,
     'sources.a lacks the key brokers, which type = "kafka" needs'),
    ("[rules.gap]", '[sources.a]\ntype = "redis"\nstream = "t"\nurl = "http://x"\n[rules.gap]', RULE + 3,
     "sources.a.url must be a link that starts with redis:// or rediss:// or unix://"),
    ("[rules.gap]", '[sources.a]\ntype = "stdin"\ngroup = "g"\n[rules.gap]', RULE + 2,
     'sources.a.group goes only with type = "kafka" or "redis", got type = "stdin"'),
    ("[models.churn]", 'audit = "streamcal.db"\n[models.churn]', 1, "audit must not be the file of state"),
    ("[models.churn]", 'naive_times = "local"\n[models.churn]', 1, 'naive_times must be one of "refuse", "utc", got "local"'),
    ("[models.churn]", 'every = "0.5s"\n[models.churn]', 1, 'every must be a span such as "90s"'),
]  # fmt: skip


@pytest.mark.parametrize("old, new, line, said", MISTAKES, ids=lambda v: str(v)[:40])
def test_a_mistake_has_its_line(old, new, line, said):
    assert SOUND.count(old) >= 1
    found = findings(SOUND.replace(old, new, 1))
    assert any(at == line and said in text for at, text in found), found


@pytest.mark.parametrize("old, new", [m[:2] for m in MISTAKES], ids=lambda v: str(v)[:40])
def test_without_lines_the_same_is_said(old, new):
    text = SOUND.replace(old, new, 1)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    with pytest.raises(ConfigError) as error:
        from_document(document)
    assert sorted(f.text for f in error.value.findings) == sorted(text for _, text in findings(text))
    assert "line" not in str(error.value).split(":")[0]


def test_segments_of_a_rule_need_segments():
    text = SOUND.replace('[segments]\nfields = ["country"]\n', "\n\n") + 'segments = "each"\n'
    assert findings(text) == [
        (END, 'rules.gap.segments needs a table [segments] with fields = ["..."]; without it there is only "all"')
    ]


def test_all_mistakes_are_found_at_once_in_the_order_of_the_file():
    text = SOUND.replace("versions", "version").replace("1000", "0").replace("0.05", "'x'").replace('"day"', '"dy"')
    assert [line for line, _ in findings(text)] == [MODEL + 1, WINDOW + 1, RULE + 3]


def test_what_is_just_allowed():
    rule = parse(SOUND.replace("above = 0.05", "below = 0.05\nclear = 0.06\nmin_count = 1000")).rules[0]
    assert (rule.threshold, rule.clear, rule.sign, rule.min_count) == (0.05, 0.06, -1.0, 1000)
    assert parse(SOUND.replace("above = 0.05", "above = 0\nclear = 0\nlevel = 0")).rules[0].cleared == 0.0
    names = ("all", "other", "country=at", "country=")
    text = f'{SOUND}segments = ["all", "other", "country=at", "country=", "all"]'
    assert parse(text).rules[0].segments == names


def test_a_model_is_needed():
    assert findings("") == [(0, "at least one model is needed: a table such as [models.churn]")]
    assert findings("[models]") == [(1, "at least one model is needed: a table such as [models.churn]")]


def test_a_metric_that_is_not_about_all_models_names_its_models():
    text = SOUND.replace('"k1"', '"q1"') + '[models.q]\nclaim = "quantile"\nlevels = [0.5]\n'
    assert [line for line, _ in findings(text)] == [RULE + 1]
    parse(text.replace("above", 'models = ["q"]\nabove'))


def test_files_are_shared_only_as_dead_letters_of_the_same_kind():
    two = '[sinks.a]\ntype = "webhook"\nurl = "http://a"\n[sinks.b]\ntype = "webhook"\nurl = "http://b"\n[models.m]\n'
    parse(two)
    assert findings(two + '[sources.f]\ntype = "file"\npath = "x/../undelivered.jsonl"\n')[0][0] == 10
    assert findings('state = "a"\n[models.m]\n[sinks.a]\ntype = "file"\npath = "./a"')[0][0] == 5
    parse('state = ":memory:"\naudit = ":memory:"\n[models.m]')


@pytest.mark.parametrize(
    "raw, said",
    [
        (b"[models.churn]\na = '\xe4'", "line 2: the file must be UTF-8, got byte 0xe4"),
        (b"a\x00b", "line 1: this is not TOML"),
        (b"a = " + b"[" * 100_000, "line 1: "),
        (b"a = " + b"[" * 300 + b"]" * 300, "line 1: "),
        (b"[a.b]\nc = 1\rd = 2", "line 2: this is not TOML"),
    ],
)
def test_check_answers_whatever_is_in_the_file(tmp_path, raw, said):
    (tmp_path / "x.toml").write_bytes(raw)
    assert any(text.startswith(said) for text in check(tmp_path / "x.toml"))


def test_check_of_what_is_no_file(tmp_path):
    assert check(tmp_path) == [f"{tmp_path} cannot be read: Is a directory"]
    assert check(str(tmp_path / "no.toml")) == [f"{tmp_path / 'no.toml'} cannot be read: No such file or directory"]


@given(st.text(st.characters(codec="utf-8"), max_size=60), st.integers(0, len(SOUND)))
def test_text_put_anywhere_is_right_or_a_list_of_mistakes(text, at):
    try:
        parse(SOUND[:at] + text + SOUND[at:])
    except ConfigError as error:
        assert error.findings and all(0 <= f.line <= (SOUND + text).count("\n") + 1 for f in error.findings)


json_like = st.recursive(
    st.one_of(st.integers(-3, 2**70), st.floats(), st.text(max_size=5), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)
all_keys = sorted(
    {key for cls in (*NAMED.values(), *SINGLE.values(), Config) for key in keys_of(cls)} | {*NAMED, *SINGLE}
)


@given(st.sampled_from(sorted(tomllib.loads(EXAMPLE))), st.sampled_from(all_keys), json_like, st.integers(0, 2))
def test_any_value_anywhere_is_right_or_a_list_of_mistakes(top, key, value, depth):
    document = tomllib.loads(EXAMPLE)
    place = document
    for _ in range(depth):
        inner = [v for v in place.values() if isinstance(v, dict)] if place is not document else [place[top]]
        place = next((v for v in inner if isinstance(v, dict)), place)
    place[key] = value
    try:
        config = from_document(document)
    except ConfigError as error:
        assert error.findings
    else:
        assert len(config.hash) == 16


# -- lines ----------------------------------------------------------------------------------------------------------------


def paths(value, path=()):
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*path, key)
        yield from paths(part, (*path, key))


ODD = '''\
a.b."c d" = [ # ] comment "
  1, [2, # x
  3], {x = 1, y.z = [4]}, 1979-05-27 07:32:00,
  """ml ] \\""" still
  here""""", 'lit\\',
  \'\'\'
x = 5
[no]\'\'\'
]
"q.\\u0041" = "a # b = c [x]"   # "

[ t . u ]   # [x]
k = {}
[[arr]]
n = 1
[[arr.inner]]
m = """
"""
[[arr.inner]]
[arr.sub]
deep.er = 1
[[arr]]
[arr.sub]
deep.er = \'\'\'a\'\'\'\'
'''


def test_every_path_has_its_line():
    document, found = tomllib.loads(ODD), lines(ODD)
    assert set(paths(document)) == set(found)
    assert {p: found[p] for p in found if p[0] in ("a", "q.A", "t")} == {
        ("a",): 1, ("a", "b"): 1, ("a", "b", "c d"): 1, ("a", "b", "c d", 0): 2, ("a", "b", "c d", 1): 2,
        ("a", "b", "c d", 1, 0): 2, ("a", "b", "c d", 1, 1): 3, ("a", "b", "c d", 2): 3, ("a", "b", "c d", 2, "x"): 3,
        ("a", "b", "c d", 2, "y"): 3, ("a", "b", "c d", 2, "y", "z"): 3, ("a", "b", "c d", 2, "y", "z", 0): 3,
        ("a", "b", "c d", 3): 3, ("a", "b", "c d", 4): 4, ("a", "b", "c d", 5): 5, ("a", "b", "c d", 6): 6,
        ("q.A",): 10, ("t",): 12, ("t", "u"): 12, ("t", "u", "k"): 13,
    }  # fmt: skip
    arrays = {p: n for p, n in found.items() if p[0] == "arr" and p[-1] in (0, 1, "er", "m", "n")}
    assert arrays == {
        ("arr", 0): 14, ("arr", 0, "n"): 15, ("arr", 0, "inner", 0): 16, ("arr", 0, "inner", 0, "m"): 17,
        ("arr", 0, "inner", 1): 19, ("arr", 0, "sub", "deep", "er"): 21, ("arr", 1): 22, ("arr", 1, "sub", "deep", "er"): 24,
    }  # fmt: skip


scalars = st.sampled_from(
    ["1", "-0.5e3", "true", "inf", "1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", '"a"', "'#'", '"\\"]"', "0x1F",
     '"""\n\n"""', "'''\n]'''", '""', "''", '"""x"""""', '"""\\\n  y"""']
)  # fmt: skip
gaps = st.sampled_from(["", " ", "\n", ' # ]}" x\n', "\t"])


@st.composite
def arrays_of(draw, inner):
    parts = draw(st.lists(inner, max_size=4))
    text = "[" + draw(gaps)
    for i, part in enumerate(parts):
        comma = draw(gaps) + "," + draw(gaps) if i < len(parts) - 1 or draw(st.booleans()) else draw(gaps)
        text += part + comma
    return text + draw(gaps) + "]"


keys = st.sampled_from(["a", "b-1", "7", '"x.y"', "'q'", "a.b", 'c . "d e"', '""'])
tables = st.lists(st.tuples(st.sampled_from(["k", "l", '"m n"']), scalars), unique_by=lambda t: t[0], max_size=3).map(
    lambda pairs: "{" + ", ".join(f"{k} = {v}" for k, v in pairs) + "}"
)
toml_values = st.recursive(st.one_of(scalars, tables), arrays_of, max_leaves=8)
statements = st.one_of(
    st.tuples(keys, toml_values).map(lambda kv: f"{kv[0]} = {kv[1]}"),
    st.sampled_from(["t", "t.u", '"v w"', "x.'y'"]).map(lambda k: f"[{k}]"),
    st.sampled_from(["arr", "arr.in", "brr . c"]).map(lambda k: f"[[ {k} ]]"),
    st.sampled_from(["", "# x = [", "   "]),
)


@given(st.lists(statements, max_size=8))
def test_the_paths_are_those_of_the_document(parts):
    good, begins, n = "", [], 1
    for part in parts:  # those that fit together
        try:
            tomllib.loads(good + part + "\n")
        except tomllib.TOMLDecodeError:
            continue
        before = set(lines(good))
        good += part + "\n"
        new = {p: line for p, line in lines(good).items() if p not in before}
        end = good.count("\n")
        assert all(n <= line <= end for line in new.values())
        begins.append(new)
        n = end + 1
    assert set(lines(good)) == set(paths(tomllib.loads(good)))


# -- times ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "5",
        "s",
        "-5s",
        "5 m s",
        "1h1h",
        "5m1h",
        "1,5h",
        "1e3s",
        "5S",
        "٥s",
        "5s\n",
        "nan",
        5,
        None,
        True,
        "9" * 400 + "w",
    ],
)
def test_what_is_no_span(text):
    with pytest.raises(ValueError, match="a span must"):
        span(text)


@given(st.tuples(*[st.integers(0, 500)] * 5), st.booleans())
def test_a_span_is_the_sum_of_its_parts(parts, spaced):
    text = (" " if spaced else "").join(f"{n}{unit}" for n, unit in zip(parts, "wdhms"))
    assert span(text) == sum(n * s for n, s in zip(parts, (604800, 86400, 3600, 60, 1)))


@pytest.mark.parametrize(
    "value, said",
    [
        ("2026-01-01T00:00:00", "must name its zone"),
        ("2026-01-01", "must name its zone"),
        (datetime(2026, 1, 1), "must name its zone"),
        (1767225600000, "not milliseconds"),
        (float("nan"), "must be finite"),
        (True, "must be epoch seconds"),
        (None, "must be epoch seconds"),
        ("20260101", "must be epoch seconds"),
        ("01-09-2018", "must be epoch seconds"),
        ("", "must be epoch seconds"),
    ],
)
def test_a_time_is_refused_rather_than_guessed(value, said):
    with pytest.raises(ValueError, match=said):
        moment(value)


@given(st.integers(-62_000_000_000, 99_999_999_999))
def test_a_moment_is_what_utc_wrote(seconds):
    assert moment(utc(float(seconds))) == seconds == moment(utc(float(seconds)).removesuffix("Z"), naive="utc")


def test_times_in_other_forms():
    east = datetime.fromisoformat("2026-01-01T00:00:00+09:00")
    assert moment(east) == moment("2025-12-31T15:00:00Z") == moment(1767193200) == 1767193200.0
    assert moment(datetime(2026, 1, 1), naive="utc") == 1767225600.0
    assert (utc(1e18), utc(float("nan"))) == ("1e+18", "nan")


def test_naive_is_a_choice_of_two():
    with pytest.raises(ValueError, match='naive must be "refuse" or "utc", got \'local\''):
        moment(0, naive="local")


# -- names of segments ----------------------------------------------------------------------------------------------------

pieces = st.text(st.sampled_from("ab,=\\ "), max_size=4)


@given(st.tuples(pieces, pieces), st.tuples(pieces, pieces))
def test_different_segments_have_different_names(one, other):
    segments = Segments(("x", "y,="))
    assert (segments.named(one) == segments.named(other)) == (one == other)
    assert segments.may_be(segments.named(one)) and segments.named(one) not in ("all", "each", "other")


def test_rule_made_by_hand_resolves_at_its_threshold():
    assert Rule("r", metric="k1", below=0.5).cleared == 0.5


MISFITS = [  # what is accepted key by key, and can not be run
    ('claim = "interval"\nlower = 0.05\nupper = 0.95', "[detectors.d]\ntolerance = 0.999", "does not fit model m"),
    ('claim = "pit"', "[detectors.d]\ntolerance = 0.1", "transforms know none"),
    ("negative_sampling_rate = 0.5", "[detectors.d]\ntolerance = 0.1", "does not go with model m"),
    ('binning = "uniform-mass"\nbins = 10000', "", "MB for each segment of model m"),
    ("negative_sampling_rate = 0.5\ntolerance = 0.1", "", "must be 0 where negatives are down-sampled"),
    ('claim = "pit"\ntolerance = 0.1', "", 'goes with any claim but "pit"'),
    ('weight = "p"', "", "must not be one of id, t, p, y, model, version"),
    ("", '[segments]\nfields = ["version"]', "must not hold one of id, t, p, y"),
    ("", '[join]\nhold = "20000w"', "join.hold must be at most 1e+10 seconds"),
    ('claim = "quantile"\nlevels = [0.5]\nbins = 3', "", 'bins goes with binning = "uniform-mass"'),
    ('claim = "quantile"\nlevels = [0.5]\nedges = [2, 1]', "", "edges must rise"),
]


@pytest.mark.parametrize(("model", "rest", "said"), MISFITS)
def test_what_can_not_be_run_is_not_accepted(model, rest, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse(f"[models.m]\n{model}\n{rest}\n")


def test_detectors_may_watch_some_models():
    two = "[models.a]\n[models.b]\nclaim = 'pit'\n[detectors.d]\nmodels = ['a']\ntolerance = 0.1\n"
    assert [d.watches(m) for d in parse(two).detectors for m in parse(two).models] == [True, False]
    with pytest.raises(ConfigError, match='detector d watches only "a"'):
        parse(two + "[rules.r]\nalarm = 'd'\nmodels = ['b']\n")
