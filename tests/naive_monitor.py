"""The monitor in the plainest way: objects -> a naive join -> lists of the pairs that count, looked through at every question.

What it leaves to others: rules (tests/monitor/test_rules.py has their twin). The first ``cap`` segments have sums of their own,
and the others share one.
"""

from __future__ import annotations

import math

import naive
import numpy as np
from naive_join import NaiveJoin, after

from streamcal import Cumulative

nan = math.nan


def number(x):
    return type(x) in (int, float)


def finite(x):
    return number(x) and math.isfinite(x)


def probability(x):
    return number(x) and -1e-6 <= x <= 1 + 1e-6


def good_p(model, p):
    """The prediction as a number or a tuple, None if it is not allowed."""
    claim = model.claim
    if claim in ("mean", "pit"):
        return float(p) if number(p) and (probability(p) if claim == "mean" else 0 <= p <= 1) else None
    if claim in ("top_label", "marginal"):
        if isinstance(p, dict):
            p = [p.get(c) for c in model.classes] if set(p) == set(model.classes) else None
        ok = isinstance(p, list) and len(p) == len(model.classes) and all(map(probability, p))
        return tuple(map(float, p)) if ok else None
    if claim == "quantile" and len(model.levels) == 1:
        return float(p) if finite(p) else None
    wanted = 2 if claim == "interval" else len(model.levels)
    ok = isinstance(p, list) and len(p) == wanted and all(map(finite, p)) and (claim != "interval" or p[0] <= p[1])
    return tuple(map(float, p)) if ok else None


def good_y(model, y):
    """The outcome as a number, None if it is not allowed."""
    if model.classes:
        return float(model.classes.index(y)) if y in model.classes else None
    if model.pos_label is not None:
        return float(y == model.pos_label) if isinstance(y, str) == isinstance(model.pos_label, str) else None
    if model.claim != "mean":
        return float(y) if finite(y) else None
    if isinstance(y, bool):
        return float(y)
    ok = number(y) and (y in (0, 1) if model.outcome == "binary" else 0 <= y <= 1)
    return float(y) if ok else None


class Finite(NaiveJoin):
    """With predictions of several numbers, and refused events marked by None."""

    def predict(self, key, t, p, w, segment):
        several = p if isinstance(p, tuple) else (p,)
        bad = p is None or t is None or not all(map(math.isfinite, several))
        super().predict(key, t, nan if bad else Whole(p), w, segment)

    def label(self, key, t, y):
        super().label(key, t, nan if y is None or t is None else y)

    def of(self, key, side):
        """The account of one model and version."""
        fates = [e["fate"] for e in getattr(self, side) if e["key"][:2] == key]
        names = ("joined", "pending", "expired", "rejected", "duplicate", "conflicting")
        corrected = sum(e["key"][:2] == key and e["corrected"] for e in self.labels) if side == "labels" else 0
        return {"received": len(fates), "corrected": corrected, **{name: fates.count(name) for name in names}}


class Whole:
    """A prediction of one or several finite numbers, for a join that asks only whether it is finite."""

    def __init__(self, p):
        self.p = p

    def __float__(self):
        return 0.0

    def __eq__(self, other):
        return self.p == other.p

    __hash__ = None


class NaiveMonitor:
    """Takes objects of messages one by one; ``config`` is only read for what was declared."""

    def __init__(self, config):
        self.config = config
        self.models = {m.name: m for m in config.models}
        self.only = config.models[0].name if len(config.models) == 1 else None
        j = config.join
        self.join = Finite(j.ttl, j.maturity, j.hold)
        self.versions = {
            m.name: [v + end for v in m.versions for end in ("", "/raw")[: 1 + bool(m.raw)]] for m in config.models
        }
        self.join.known = [(name, version) for name, versions in self.versions.items() for version in versions]
        self.seen = 0  # of what the join has handed out
        self.taken = self.unread = 0
        self.pairs = {m: [] for m in self.models}  # that count, in order, each as it is now
        self.first = {m: [] for m in self.models}  # with their first outcome
        self.rings = {}  # (model, version, place, window) -> raw events
        self.marks = {}  # (model, window) -> the largest time counted
        self.places = {m: [] for m in self.models}

    # -- objects -> events ---------------------------------------------------------------------------------------------

    def take(self, thing):
        name = thing.get("model", self.only)
        p, y, t = thing.get("p"), thing.get("y"), thing.get("t")
        if p is None and y is None:
            self.unread += 1
            return
        t = float(t) if number(t) and -1e11 < t < 1e11 else None
        model = self.models.get(name) if isinstance(name, str) else None
        id_ = thing.get("id")
        id_ = str(id_) if type(id_) is int else id_ if isinstance(id_, str) and id_ else None
        if model is None:
            self.event("predict" if p is not None else "label", ("", "", id_), t, None)
            self.unread += 1
            return
        bad = t is None or id_ is None
        if p is not None:
            bad |= self.prediction(model, thing, id_, t)
        if y is not None:
            bad |= self.label(model, thing, id_, t, p is not None)
        self.unread += bad

    def version(self, model, given):
        if given is None:
            given = model.versions[0] if len(model.versions) == 1 else ""
        version = str(given) if type(given) in (str, int) else None
        base = version.removesuffix("/raw") if version is not None and model.raw else version
        if version is None or (model.versions and base not in model.versions):
            return None
        if version not in self.versions[model.name]:
            self.versions[model.name].append(version)
        return version

    def prediction(self, model, thing, id_, t):
        version, p = self.version(model, thing.get("version")), good_p(model, thing["p"])
        w = thing.get(model.weight) if model.weight else 1.0
        w = float(w) if number(w) and 0 <= w <= 1e100 else None
        rows = [(version, p)]
        if model.raw and thing.get(model.raw) is not None:
            raw = None if version is None else self.version(model, version + "/raw")
            rows.append((raw, good_p(model, thing[model.raw])))
        for v, value in rows:
            key = ("", "", id_) if v is None else (model.name, v, id_)
            bad = None in (v, value, w, id_, t)
            segment = "" if bad else self.place(model.name, thing)
            self.event("predict", key, t, None if bad else value, w or 0.0, segment)
        return version is None or w is None or any(value is None for _, value in rows)

    def label(self, model, thing, id_, t, here):
        given, y = thing.get("version"), good_y(model, thing["y"])
        if given is None and not here:
            self.event("label", (model.name, None, id_), t, None if id_ is None else y)
            return y is None
        version = self.version(model, given)
        if version is None:
            self.event("label", ("", "", id_), t, None)
            return True
        both = model.raw and version + "/raw" in self.versions[model.name]
        for v in (version, version + "/raw") if both else (version,):
            self.event("label", (model.name, v, id_), t, None if id_ is None else y)
        return y is None

    def segment(self, thing):
        fields = self.config.segments.fields
        return self.config.segments.named(tuple("" if thing.get(f) is None else thing[f] for f in fields))

    def place(self, model, thing):
        """The name of the place of a prediction."""
        if self.config.segments is None:
            return ""
        name, there = self.segment(thing), self.places[model]
        if name not in there and len(there) < self.config.segments.cap:
            there.append(name)
        return name if name in there else self.config.segments.other

    def event(self, kind, key, t, value, *more):
        self.taken += 1
        if kind == "predict":
            w, segment = more or (1.0, "")
            self.join.predict(key, t, value, w, segment)
        else:
            self.join.label(key, t, value)
        self.count()

    def advance(self, now):
        self.join.advance(now)
        self.count()

    # -- counting ------------------------------------------------------------------------------------------------------

    def count(self):
        fresh, self.seen = self.join.out[self.seen :], len(self.join.out)
        fresh = iter(fresh)
        for sign, key, what, y, u in fresh:
            if sign > 0:
                self.add(key, what, y, u)
            else:
                _, _, _, new_y, new_u = next(fresh)
                self.correct(key, what, (y, u), (new_y, new_u))

    def pair(self, key, what, y, u):
        """A pair as it counts: weights of down-sampled negatives, and the moment from which it counts."""
        t, p, w, segment = what
        model, j = self.models[key[0]], self.config.join
        due = after(t + j.ttl, j.ttl)
        ripe = min(after(t + j.maturity, j.maturity), due) if j.maturity else t
        rate = model.negative_sampling_rate
        return {
            "key": key, "t": t, "p": p.p, "y": y, "w": w / rate if y == 0 and rate < 1 else w, "segment": segment,
            "moment": max(u, ripe),
        }  # fmt: skip

    def times(self, pair):
        for window in self.config.windows:
            if window.time is not None:
                at = pair["moment"] if window.by == "label" else pair["t"]
                where = (pair["key"][0], window.name)
                self.marks[where] = max(self.marks.get(where, -math.inf), at)

    def slots(self, pair):
        for place in ["all", pair["segment"]] if pair["segment"] else ["all"]:
            for window in self.config.windows:
                if window.events is not None:
                    yield self.rings.setdefault((*pair["key"][:2], place, window.name), []), window.events

    def add(self, key, what, y, u):
        pair = self.pair(key, what, y, u)
        self.pairs[key[0]].append(pair)
        self.first[key[0]].append(pair)
        self.times(pair)
        for ring, size in self.slots(pair):
            ring.append(pair)
            ring[:] = naive.tail(ring, size)

    def correct(self, key, what, old, new):
        was, now = self.pair(key, what, *old), self.pair(key, what, *new)
        of = self.pairs[key[0]]
        of[max(i for i, pair in enumerate(of) if pair["key"] == key)] = now  # in its place
        self.times(now)
        for ring, _ in self.slots(was):
            ring[:] = [now if pair["key"] == key else pair for pair in ring]

    # -- questions -----------------------------------------------------------------------------------------------------

    def inside(self, model, version, place, window, now):
        """The pairs that a window holds at a moment."""
        if window.events is not None:
            return self.rings.get((model, version, place, window.name), [])
        mark = self.marks.get((model, window.name), -math.inf)
        width = window.time / window.panes
        end = max(mark, now) if window.by == "label" else mark
        when = "moment" if window.by == "label" else "t"
        return [
            pair
            for pair in self.pairs[model]
            if pair["key"][1] == version
            and place in ("all", pair["segment"])
            and naive.pane(pair[when], width) > naive.pane(end, width) - window.panes
        ]

    def cells(self, model, version, place, window, now, loss=None):
        """Their sums, all computed at once."""
        settings = self.models[model]
        whole = Cumulative(settings.window_binning(), claim=settings.claims(), loss=loss)
        pairs = self.inside(model, version, place, window, now)
        if pairs:
            columns = [np.array([pair[name] for pair in pairs]) for name in ("p", "y", "w")]
            whole.update_many(*columns)
        return whole.cells

    def bets(self, model, version):
        """The pairs of a version with their first outcomes, in order."""
        return [pair for pair in self.first[model] if pair["key"][1] == version]
