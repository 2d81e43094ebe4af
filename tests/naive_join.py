"""The join in the plainest way: every event is kept with its fate, and every question walks over all of them."""

from __future__ import annotations

import math

STEPS = 64


def after(moment, span):
    """The first grid point after a moment; the grid is a 64th of the span, whole seconds if that is more than one."""
    step = math.ceil(span / STEPS) if span > STEPS else span / STEPS
    return (math.floor(moment / step) + 1) * step


class NaiveJoin:
    """Lists of dicts. A fate is one of the counters of the account; all that is open or held is looked through at every event."""

    def __init__(self, ttl, maturity=0.0, hold=0.0, ahead=math.inf):
        self.ttl, self.maturity, self.hold, self.ahead = ttl, maturity, hold, ahead
        self.clock = -math.inf
        self.predictions, self.labels, self.out = [], [], []
        self.opened, self.held, self.settled = (
            [],
            [],
            0,
        )  # of the predictions and labels; how many predictions have had one
        self.known = []  # models and versions, in the order in which they came

    # what is known: predictions that are not forgotten, labels that wait

    def open(self, key):
        return next((e for e in self.opened if e["key"] == key), None)

    def waiting(self, key):
        return next((e for e in self.held if e["key"] == key), None)

    def advance(self, now):
        if now <= self.clock:
            return
        self.clock = now
        moments = sorted({m for e in self.opened for m in (e["ripe"], e["due"])} | {e["until"] for e in self.held})
        for moment in moments:
            if moment <= now:
                self.at(moment)

    def at(self, moment):
        ripe = [e for e in self.opened if e["label"] and e["fate"] == "pending" and e["ripe"] <= moment]
        for event in sorted(ripe, key=lambda e: e["settled"]):
            self.pair(event)
        for event in [e for e in self.opened if e["due"] <= moment]:
            self.opened.remove(event)
            if event["fate"] == "pending":
                event["fate"] = "expired"
        for label in [e for e in self.held if e["until"] <= moment]:
            self.held.remove(label)
            label["fate"] = "expired"

    def too_far(self, t):
        return self.clock > -math.inf and t > self.clock + self.ahead

    def know(self, key):
        if key[:2] not in self.known:
            self.known.append(key[:2])

    def predict(self, key, t, p, w, segment):
        self.know(key)
        event = {"key": key, "what": (t, p, w, segment), "label": None, "fate": None}
        self.predictions.append(event)
        if not math.isfinite(p) or self.too_far(t):
            event["fate"] = "rejected"
            return
        self.advance(t)
        event["due"] = after(t + self.ttl, self.ttl)
        event["ripe"] = min(after(t + self.maturity, self.maturity), event["due"]) if self.maturity else t
        if event["due"] <= self.clock:
            event["fate"] = "rejected"
        elif known := self.open(key):
            event["fate"] = "duplicate" if known["what"] == event["what"] else "conflicting"
        else:
            event["fate"] = "pending"
            self.opened.append(event)
            if held := self.waiting(key):
                self.held.remove(held)
                self.settle(event, held)

    def label(self, key, t, y):
        """A version of None: to the accounts of the model in which the id is open, else all, else that of no version."""
        if key[1] is None:
            if math.isfinite(y) and not self.too_far(t):
                self.advance(t)
            versions = [v for m, v in self.known if m == key[0]] or [""]
            where = [v for v in versions if self.open((key[0], v, key[2]))] or versions
            for version in where:
                self.label((key[0], version, key[2]), t, y)
            return
        self.know(key)
        label = {"key": key, "t": t, "y": y, "fate": None, "corrected": False}
        self.labels.append(label)
        if not math.isfinite(y) or self.too_far(t):
            label["fate"] = "rejected"
            return
        self.advance(t)
        event = self.open(key)
        there = event["label"] if event else self.waiting(key)
        if there and y == there["y"]:
            label["fate"] = "duplicate"
        elif there and t <= there["t"]:
            label["fate"] = "conflicting"
        elif event is None:
            self.wait(label, there)
        elif there is None:
            self.settle(event, label)
        elif event["fate"] == "joined":
            self.out.append((-1.0, event["key"], event["what"], there["y"], there["t"]))
            event["label"], label["corrected"] = label, True
            self.pair(event)
        else:
            there["fate"], label["fate"], event["label"] = "conflicting", "pending", label

    def wait(self, label, there):
        label["until"] = after(label["t"] + self.hold, self.hold) if self.hold else -math.inf
        if label["until"] <= self.clock:
            label["fate"] = "expired"
            return
        label["fate"] = "pending"
        if there:
            self.held.remove(there)
            there["fate"] = "conflicting"
        self.held.append(label)

    def settle(self, event, label):
        event["label"], label["fate"] = label, "pending"
        event["settled"], self.settled = self.settled, self.settled + 1
        if event["ripe"] <= self.clock:
            self.pair(event)

    def pair(self, event):
        label = event["label"]
        event["fate"] = label["fate"] = "joined"
        self.out.append((1.0, event["key"], event["what"], label["y"], label["t"]))

    # what can be asked

    def account(self, side):
        events = getattr(self, side)
        fates = [e["fate"] for e in events]
        names = ("joined", "pending", "expired", "rejected", "duplicate", "conflicting")
        corrected = sum(e["corrected"] for e in events) if side == "labels" else 0
        return {"received": len(events), "corrected": corrected, **{name: fates.count(name) for name in names}}
