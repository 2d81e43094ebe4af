"""`streamcal demo` and `streamcal warmup`: a real model that is too extreme, and the kernels compiled ahead.

The model is River's Gaussian naive Bayes on the image segments that River bundles (2,310 rows, 7 classes). It treats
correlated measurements as independent evidence, so its top probability is close to 1 whether it is right or wrong.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from streamcal.binning import EqualWidth
from streamcal.claims import Mean, TopLabel
from streamcal.command.ending import say
from streamcal.reading import SourceError
from streamcal.recalibrate import ONLINE, RECALIBRATORS
from streamcal.reporting import figure, text
from streamcal.reporting.verdict import count, verdict
from streamcal.windows import Cumulative, Sliding

LAST = 500  # events of the sliding window: a fifth of the stream, enough to see it change


def served(seed: int) -> Iterator[tuple[list[float], int]]:
    """(probability of each class, index of the true one), each predicted before the model learns from it."""
    datasets, naive_bayes = (import_module(f"river.{name}") for name in ("datasets", "naive_bayes"))
    rows: Any = list(datasets.ImageSegments())
    random.Random(seed).shuffle(rows)
    classes = sorted({label for _, label in rows})
    model = naive_bayes.GaussianNB()
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        rows = track(rows, "learning", console=Console(stderr=True), transient=True)
    for x, label in rows:
        probability = model.predict_proba_one(x) or dict.fromkeys(classes, 1 / len(classes))
        yield [probability.get(name, 0.0) for name in classes], classes.index(label)
        model.learn_one(x, label)


def run(seed: int, out: str) -> int:
    """Learn, count, and say what is wrong; 0."""
    figure.picture_kind(out)
    say("River's GaussianNB learns 7 kinds of image segments, and predicts each before it sees the answer.")
    started = time.perf_counter()
    everything = Cumulative(EqualWidth(15), claim=TopLabel())
    last = Sliding(EqualWidth(15), LAST, claim=TopLabel())
    for probabilities, label in served(seed):
        everything.update(probabilities, label)
        last.update(probabilities, label)
    report = everything.report()
    say(f"{count(report['count'])} events in {time.perf_counter() - started:.1f} s", "")
    tables = text.bins(report), text.diagram(report, text.signs()), text.metrics(report), text.errors(report)
    top, recent = report["reliability"][-1], last.report()
    words = [
        f"It predicts {report['mean_p']:.1%} and is right {report['mean_y']:.1%} of the time.",
        f"Of the {count(top['count'])} answers predicted with over {top['lo']:.0%}, {1 - top['mean_y']:.1%} are wrong.",
        f"In the last {LAST} events it predicts {recent['mean_p']:.1%} and is right {recent['mean_y']:.1%} of the time.",
        f"Verdict: {verdict(report)}",
    ]
    for part in (*tables, words):
        say(*part, "")
    try:
        figure.plot(report, out, "GaussianNB on image segments: top label")
        say(f"picture: {out}")
    except SourceError as error:
        say(f"no picture: {error}".replace("--plot", "it"))
    return 0


def warm() -> int:
    """Run each kernel that the command needs once, so that numba compiles and caches it; 0."""
    rng = np.random.default_rng(0)
    started = time.perf_counter()
    steps = [*_steps(rng.random(4096), rng.random(4096))]
    for done, (name, step) in enumerate(steps, 1):
        step()
        say(f"{done}/{len(steps)} {name}: {time.perf_counter() - started:.1f} s", flush=True)
    return 0


def _steps(p: Any, u: Any) -> Iterator[tuple[str, Any]]:
    y, w, key = (u < p).astype(float), u + 0.5, (u * 3).astype(int)
    window = Cumulative(EqualWidth(15), keys=3, claim=Mean(), loss="log")
    plain = Cumulative(EqualWidth(15))
    probs = np.column_stack([p, 1 - p])
    yield "one event", lambda: plain.update(0.5, 1.0)
    yield "many events", lambda: plain.update_many(p, y)
    yield "weights", lambda: plain.update_many(p, u, w)
    yield "segments", lambda: window.update_many(p, y, w, key=key)
    yield "classes", lambda: Cumulative(EqualWidth(15), claim=TopLabel()).update_many(probs, y)
    yield "reports", lambda: (plain.report(), window.report())
    yield "online", lambda: [_one_and_many(kind(), p, y).size for kind in ONLINE.values()]
    yield "maps", lambda: [kind().fit(p.round(2), y).predict(p) for kind in RECALIBRATORS.values()]


def _one_and_many(recalibrator: Any, p: Any, y: Any) -> Any:
    recalibrator.learn_one(0.5, recalibrator.predict_one(0.5) > 0.5)
    return recalibrator.run(p, y)
