"""The TOML file that says what is watched: a frozen dataclass for each of its tables, all mistakes found at once, with lines.

In this order: ``toml_tables`` (tables -> dataclasses), ``settings`` (models, join, segments, windows, detectors, rules),
``config`` (the whole file, and what must fit together in it). The tables of sources and sinks are in
:mod:`streamcal.monitor.sources.registry` and :mod:`streamcal.monitor.sinks.registry`. All that can be said in the file::

    state = "streamcal.db"          # what survives a restart: one SQLite file; ":memory:" survives nothing
    audit = "audit.jsonl"           # a line for each evaluation of a rule, appended; leave it out for none
    record = "taken.jsonl"          # every object that was taken, in order, appended: what a replay needs; leave it out for none
    every = "1m"                    # the rules are evaluated so often
    clock = "wall"                  # live: the wall clock moves time on, too; "events" (if nothing is said): only they do
    naive_times = "refuse"          # a time without a zone is refused, or taken as "utc"
    max_unread = 0.01               # an alert where a larger share of a source's messages cannot be read; exit code 6 of --once

    [models.churn]                  # one table per model; a name with other than letters, digits, - and _ in quotes
    versions = ["7", "8"]           # side by side on the same labels; leave it out for any that comes
    claim = "mean"                  # the prediction is a probability ("mean"), "quantile", "interval", "top_label",
                                    # "marginal" (class probabilities) or "pit"
    outcome = "binary"              # or "unit": outcomes are numbers in [0, 1]                       (mean)
    pos_label = "yes"               # the label that counts as 1; else 1/0, true/false, yes/no are read  (mean)
    neg_label = ["no", "moved"]     # those that count as 0; else the only other one, and of several none  (mean)
    missing = ["lost"]              # more words for a label that is not known, beside null, "", "unknown", "?", ...
    scale = "unit"                  # of probabilities; or "percent" or "logit"
    weight = "amount"               # field of an event that holds its weight; else each counts 1
    raw = "raw"                     # field with the score before recalibration: a version "7/raw" beside each version "7"
    tolerance = 0.01                # a gap that is no reason for an alarm, in [0, 1)
    binning = "equal-width"         # 1 kB for each segment (and pane of a window); "log-odds" for rare events, of the same size;
    bins = 15                       # or "uniform-mass" (254 kB; of quantiles and intervals 410 kB)

    [models.clicks]
    negative_sampling_rate = 0.1    # share of the negatives that is in the stream: each counts 10    (mean)

    [models.demand]
    claim = "quantile"
    edges = [10.0, 100.0]           # bins by size of what is forecast (the width of an interval); else one bin for all
    levels = [0.1, 0.5, 0.9]        # of the quantiles, or for "pit" where the transforms are held against the uniform

    [models.demand-range]
    claim = "interval"
    lower = 0.05                    # the interval runs from this quantile
    upper = 0.95                    # to this one

    [models.animals]
    claim = "top_label"
    classes = ["cat", "dog"]        # in the order of their probabilities (top_label, marginal)
    labels = "names"                # all labels are names of classes, or all "indices"; else as they fit

    [join]
    ttl = "90d"                     # a prediction that has no label after so long has expired
    maturity = "1d"                 # a prediction counts once it is so old: its label could have arrived
    hold = "1d"                     # a label waits so long for its prediction
    ahead = "1h"                    # an event further beyond all others is held until another message confirms its time

    [segments]
    fields = ["country", "tier"]    # a segment is a combination of values: "country=at,tier=gold"
    cap = 1000                      # so many are told apart in each model; the rest share one
    other = "other"                 # its name

    [files]
    mode = "0640"                   # of each file that is made; 0600 if nothing is said. No link is followed

    [windows.recent]
    events = 10_000                 # the last so many events of each segment

    [windows.week]
    time = "7d"                     # the events of so long a time, up to now
    panes = 60                      # by steps of a 60th of it
    by = "label"                    # at the time of its label, once it counts; or at that of its "prediction"

    [detectors.drift]               # bets against the claims of each model and version, and names the segments
    arl = 20_000                    # events to a false alarm, on average or more
    tolerance = 0.02                # else that of the model; not for "pit", nor where negatives are down-sampled
    models = ["churn", "demand"]    # else all

    [rules.not_calibrated]          # a metric in a window that is past a threshold
    metric = "k1"
    window = "recent"
    models = ["churn"]              # else all
    versions = ["7", "8"]           # else all, those of raw scores ("7/raw") too
    segments = "each"               # "all": the stream as a whole; "each" segment by itself; or a list of names
    above = 0.05                    # or below
    level = 0.99                    # the whole interval at this level is past it (for many segments 0.999); 0: the value is
    min_count = 500                 # with fewer events it is not judged
    for = "10m"                     # at every evaluation for so long
    clear = 0.04                    # resolved when the value is back here; else at the threshold
    cooldown = "6h"                 # after that, silent for so long
    severity = "critical"           # or "warning", "info"
    runbook = "https://wiki.example/calibration"
    sinks = ["ops"]                 # else all

    [rules.drift]                   # an alarm of a detector
    alarm = "drift"
    segments = "each"
    quiet = "7d"                    # resolved when no other came for so long

    [sinks.log]
    type = "stdout"                 # JSON, a line per alert

    [sinks.alerts]
    type = "file"
    path = "alerts.jsonl"

    [sinks.ops]
    type = "webhook"
    url = "https://alerts.example/api/v2/alerts"
    format = "alertmanager"         # or "slack", "json"
    retries = 8                     # with growing pauses; then the alert goes to the file of dead letters
    rate = 30                       # requests per minute at most
    timeout = "10s"
    dead_letters = "undelivered.jsonl"  # this is where they go if nothing is said

    [sinks.chat]
    type = "webhook"
    url_env = "CHAT_WEBHOOK"        # the environment variable that holds a secret url
    format = "slack"

    [sources.events]
    type = "file"
    path = "${LOGS:-.}/events-*.jsonl"  # followed as it grows and rotates; of a pattern all files, in order of name
    fields = {id = "request_id", t = "ts", p = "score"}  # our keys of an event, and the keys that messages have for them
    max_unread = 0.05               # else that above
    dead_letters = "unreadable.jsonl"   # messages that can not be read

    [sources.pipe]
    type = "stdin"

    [sources.bus]
    type = "kafka"
    brokers = "localhost:9092"
    topic = "scores"
    group = "streamcal"

    [sources.bus.options]           # of the client (librdkafka); "env:NAME" is the value of an environment variable
    "security.protocol" = "SASL_SSL"
    "sasl.password" = "env:KAFKA_PASSWORD"

    [sources.queue]
    type = "redis"                  # the field "data" of each entry, or all fields as an object
    url = "redis://localhost:6379/0"
    stream = "scores"
    [sources.more]
    type = "redis"
    url_env = "REDIS_URL"           # the environment variable that holds a url with a password
    stream = "more"

Needed is one model. Without windows there is one of a week; without rules and detectors a detector with arl = 1e6, and a rule
about its alarms in each segment. Spans are text with a unit; paths are as seen from where the monitor runs. In every text
${NAME} is the environment variable of this name, ${NAME:-text} the text where there is none. A rule holds for
each version of its models, and each of its segments, one at a time: see :mod:`streamcal.monitor.rules.rule` for when it fires.
It keeps its state under its name, also when its keys change.

>>> from streamcal.monitor.config.config import parse
>>> config = parse(EXAMPLE)
>>> [rule.name for rule in config.rules], config.join.ttl, config.windows[0].events
(['not_calibrated', 'drift'], 7776000.0, 10000)
>>> parse("[models.churn]\\n[windows.day]\\nevents = 0\\n")  # doctest: +IGNORE_EXCEPTION_DETAIL
Traceback (most recent call last):
ConfigError: line 3: windows.day.events must be a whole number in 1..100000000, got 0 (whole number)
"""

from textwrap import dedent

EXAMPLE = dedent((__doc__ or "").partition("::\n")[2].partition("\nNeeded")[0])
