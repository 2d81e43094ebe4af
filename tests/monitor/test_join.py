"""The join against its plain twin, the laws of its accounts, and files that break."""

from __future__ import annotations

import contextlib
import itertools
import math
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from naive_join import NaiveJoin

from streamcal import EqualWidth
from streamcal.monitor.events import FIELDS, Events, Label, Prediction, StreamKey, checked, checked_rows
from streamcal.monitor.join import join as door
from streamcal.monitor.join import runs as vectorised
from streamcal.monitor.join.join import Join
from streamcal.monitor.join.pending import SEQ, Counters, JoinState, P, after
from streamcal.monitor.store import Store, StoreError
from streamcal.windows import Revertible

SELDOM, FEW = vectorised.SELDOM, vectorised.FEW
ROOT = Path(__file__).parents[2]
FATES = ("received", "joined", "pending", "expired", "rejected", "duplicate", "conflicting", "corrected")


def told(counters: Counters) -> dict[str, int]:
    return {name: getattr(counters, name) for name in FATES}


def pairs(parts: list[Events]) -> list[tuple]:
    """Joined events as the twin writes them."""
    return [
        (pair.sign, (pair.model, pair.version, pair.id), (pair.t, pair.p, pair.w, pair.segment), pair.y, pair.u)
        for part in parts
        for pair in part
    ]


def by_model(rows: list[tuple]) -> dict[tuple[str, str], list[tuple]]:
    out: dict[tuple[str, str], list[tuple]] = {}
    for row in rows:
        out.setdefault(row[1][:2], []).append(row)
    return out


def apply(twin: NaiveJoin, event) -> None:
    if isinstance(event, Prediction):
        twin.predict(event[:3], *event[3:])
    else:
        twin.label(event[:3], event.t, event.y)


# -- strategies: few ids, few values and times, so that everything that can meet does
# ---------------------------------------

NAMES = st.tuples(st.sampled_from(["m", "n"]), st.sampled_from(["1", "1", "2"]), st.sampled_from(["a", "b", "c", "é"]))
STEP = st.sampled_from([-150.0, -30.0, -7.5, -1.0, 0.0, 0.0, 0.5, 1.0, 3.0, 20.0, 70.0, 130.0, 400.0])
SCORES = st.sampled_from([0.0, 0.25, 0.8, 0.8, math.nan])
OUTCOMES = st.sampled_from([0.0, 1.0, 1.0, 2.0, math.nan])


@st.composite
def spans(draw):
    """Settings of a join: grids of whole seconds and of fractions, with and without each feature."""
    ttl = draw(st.sampled_from([1.0, 50.0, 64.0, 100.0, 128.5]))
    maturity = draw(st.sampled_from([0.0, 0.0, max(ttl / 4, 1.0), max(ttl - 0.5, 1.0)]))
    hold = draw(st.sampled_from([0.0, 10.0, 100.0]))
    return {
        "ttl": ttl,
        "maturity": maturity,
        "hold": hold,
        "ahead": draw(st.sampled_from([math.inf, math.inf, 20.0, 130.0])),
    }


def events_of(names, scores, outcomes):
    """Lists of (kind, names, step of time, other fields)."""
    weights, segments = st.sampled_from([1.0, 1.0, 2.0]), st.sampled_from(["", "DE"])
    prediction = st.tuples(st.just(Prediction), names, STEP, scores, weights, segments)
    for_all = names.map(lambda name: (name[0], None, name[2]))
    return st.lists(prediction | st.tuples(st.just(Label), names | for_all, STEP, outcomes), max_size=20)


def columns_of(model, version, ids, t, p, w=None, segment=""):
    """Checked predictions."""
    segment = [segment] * len(ids) if isinstance(segment, str) else segment
    t, p, w = (None if column is None else np.asarray(column, np.float64) for column in (t, p, w))
    return Events.alike(StreamKey(Prediction, model, version), ids, t, p, None, w, segment)


def labels_of(model, version, ids, t, y):
    """Checked labels."""
    t, y = np.asarray(t, np.float64), np.asarray(y, np.float64)
    return Events.alike(StreamKey(Label, model, version), ids, t, y=y)


def in_columns(join, events):
    """Fed as columns of the same kind, model and version."""
    alike = itertools.groupby(events, lambda e: (type(e), e.model, e.version))
    return [part for _, some in alike for part in join.feed(Events.of(checked_rows(some)))]


def one_by_one(join, events):
    return [part for event in events for part in join.feed([event])]


WAYS = [Join.feed, in_columns, one_by_one]


class Machine(RuleBasedStateMachine):
    """Events, redeliveries, time jumps, restarts (with other settings), failed transactions, in any order."""

    def make(self):
        raise AssertionError("each store says how it is made and opened again")

    @initialize(spans=spans(), start=st.sampled_from([0.0, 1.7e9, -5e3]), eager=st.booleans())
    def begin(self, spans, start, eager):
        vectorised.SELDOM, vectorised.FEW, door.FEW = (0, 1, 1) if eager else (SELDOM, FEW, FEW)
        self.twin, self.t, self.sent, self.rows = NaiveJoin(**spans), start, [], []
        self.seen, self.left, self.signs = 0, Counter(), Counter()
        self.spans, self.store = spans, self.make()
        self.join, self.way = Join(self.store, **spans), Join.feed

    @rule(way=st.sampled_from(WAYS))
    def another_way(self, way):
        self.way = way

    def teardown(self):
        vectorised.SELDOM, vectorised.FEW, door.FEW = SELDOM, FEW, FEW

    def feed(self, events):
        for event in events:
            apply(self.twin, event)
        self.sent += events
        self.went_out(pairs(self.way(self.join, events)))

    def went_out(self, rows):
        self.rows += rows
        for sign, *pair in rows:
            self.left[tuple(pair)] += int(sign)
            assert self.left[tuple(pair)] >= 0  # nothing is taken back before it was given
            self.signs[pair[0][:2]] += int(sign)

    def predictions(self, drawn):
        return [Prediction(*name, self.t + step, p, w, g) for name, step, p, w, g in drawn]

    clean = events_of(
        NAMES.filter(lambda name: name[2] != "é"), st.sampled_from([0.0, 0.8]), st.sampled_from([0.0, 1.0])
    )
    events = st.one_of(clean, clean, events_of(NAMES, SCORES, OUTCOMES))

    @rule(drawn=events)
    def batch(self, drawn):
        self.feed([kind(*name, self.t + step, *rest) for kind, name, step, *rest in drawn])

    @rule(name=NAMES, delay=st.sampled_from([0.0, 1.0, 20.0]), y=OUTCOMES)
    def pair_and_correction(self, name, delay, y):
        p = Prediction(*name, self.t, 0.25)
        self.feed([p, Label(*name, self.t + delay, 1.0), Label(*name, self.t + delay + 1.0, y)])

    @rule(data=st.data(), n=st.integers(8, 24), every=st.booleans())
    def woven(self, data, n, every):
        """New predictions of two versions and labels for what is open, in random order, with a few that are odd."""
        base, rng = len(self.sent), data.draw(st.randoms(use_true_random=False))
        times = [self.t + s for s in data.draw(st.lists(STEP, min_size=n, max_size=n))]
        events = [Prediction("m", rng.choice("12"), f"{base}{i}", t, 0.5) for i, t in enumerate(times)]
        known = [e for e in self.sent if isinstance(e, Prediction) and e.model == "m"][-n:]
        events += [Label("m", None if every else e.version, e.id, rng.choice(times), 1.0) for e in known]
        rng.shuffle(events)
        self.feed(events)

    @rule(ids=st.permutations("abcdefgh"), steps=st.lists(STEP, min_size=8, max_size=8), every=st.booleans())
    def runs(self, ids, steps, every):
        """New predictions, in one version or two, then their labels in another order: what is usual."""
        base = len(self.sent)
        new = [
            [Prediction("m", v, f"{base}{i}", self.t + s, 0.5) for i, s in zip(ids, steps)] for v in "12"[: 1 + every]
        ]
        version = None if every else "1"
        labels = [Label("m", version, e.id, self.t + abs(s) / 4, 1.0) for e, s in zip(sorted(new[0]), steps)]
        self.feed([*itertools.chain(*new), *labels])

    @rule(name=NAMES, steps=st.lists(st.sampled_from([0.0, 0.5, 9.0, 40.0]), min_size=2, max_size=3), cut=st.booleans())
    def labels_first(self, name, steps, cut):
        """A label that waits, others that take its place, then perhaps the end of the first one's time."""
        labels = [Label(*name, self.t + sum(steps[: i + 1]), float(i)) for i in range(len(steps))]
        for some in [[label] for label in labels] if cut else [labels]:
            self.feed(some)
        self.t += steps[0]

    @rule(data=st.data())
    def again(self, data):
        """What was sent comes again, as it was."""
        if self.sent:
            self.feed(data.draw(st.lists(st.sampled_from(self.sent), max_size=5)))

    @rule(step=STEP)
    def time_goes_on(self, step):
        self.t += max(step, 0.0)

    @rule(step=STEP)
    def advance(self, step):
        self.twin.advance(self.t + step)
        self.went_out(pairs(self.join.advance(self.t + step)))

    @rule(spans=st.none() | spans())
    def restart(self, spans):
        self.spans = spans or self.spans
        self.store = self.make()
        self.join = Join(self.store, **self.spans)
        for name, value in self.spans.items():
            setattr(self.twin, name, value)

    @invariant()
    def as_the_twin(self):
        assert self.join.clock == self.twin.clock
        fresh, theirs = self.rows[self.seen :], self.twin.out[self.seen :]  # nothing that went out before can change
        assert by_model(fresh) == by_model(theirs)
        self.seen += len(fresh)

    @invariant()
    def accounts(self):
        predictions, labels = self.join.predictions, self.join.labels
        assert told(predictions) == self.twin.account("predictions")
        assert told(labels) == self.twin.account("labels")
        assert predictions.adds_up and labels.adds_up
        for key, (mine, theirs) in self.join.counters().items():
            assert mine.adds_up and theirs.adds_up
            assert mine.joined == theirs.joined - theirs.corrected == self.signs[key]

    @invariant()
    def what_went_out_is_the_batch_computation(self):
        """Adding and taking back leaves each joined prediction once, with its newest outcome."""
        now = [
            (e["key"], e["what"], e["label"]["y"], e["label"]["t"])
            for e in self.twin.predictions
            if e["fate"] == "joined"
        ]
        assert +self.left == Counter(now)


class InMemory(Machine):
    def make(self):
        return getattr(self, "store", None) or Store()


class InFile(Machine):
    def make(self):
        if hasattr(self, "store"):
            self.store.close()
        else:
            self.folder = tempfile.TemporaryDirectory()
        return Store(Path(self.folder.name) / "state.db")

    @rule(drawn=Machine.events)
    def fail(self, drawn):
        """A transaction that fails leaves nothing; the file is opened again."""
        events = [kind(*name, self.t + step, *rest) for kind, name, step, *rest in drawn]
        with pytest.raises(KeyError), self.store.transaction():
            self.join.feed(events)
            self.store.put("sums", b"lost")
            raise KeyError
        with pytest.raises(StoreError, match="open it again"):
            self.join.advance(0.0)
        self.restart(None)
        assert self.store.get("sums") is None

    def teardown(self):
        super().teardown()
        if hasattr(self, "folder"):
            self.store.close()
            self.folder.cleanup()


TestInMemory, TestInFile = InMemory.TestCase, InFile.TestCase
TestInMemory.settings = settings(max_examples=150, stateful_step_count=30)
TestInFile.settings = settings(max_examples=40, stateful_step_count=25)


# -- laws
# ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    made = Store() if request.param == "memory" else Store(tmp_path / "state.db")
    yield made
    made.close()


CUTS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(WAYS)), max_size=4)


@pytest.fixture
def eager(monkeypatch):
    """However few events are usual, those that are go through the runs."""
    monkeypatch.setattr(vectorised, "SELDOM", 0)
    monkeypatch.setattr(vectorised, "FEW", 1)
    monkeypatch.setattr(door, "FEW", 1)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kept", [False, True], ids=["memory", "file"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(Machine.events, min_size=1, max_size=2), cuts=CUTS, spans=spans())
def test_how_events_are_cut_into_batches_and_columns_changes_nothing(kept, drawn, cuts, spans):
    events = [kind(*name, 1000.0 + step, *rest) for kind, name, step, *rest in itertools.chain(*drawn)]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "s.db") if kept else Store()
        whole, cut = Join(Store(), **spans), Join(store, **spans)
        rows, first = [], 0
        for last, way in [*sorted(cuts, key=lambda cut: cut[0]), (len(events), in_columns)]:
            rows += pairs(way(cut, events[first:last]))
            first = max(first, last)
        assert by_model(rows) == by_model(pairs(one_by_one(whole, events)))
        assert cut.counters() == whole.counters() and cut.clock == whole.clock
        assert books_of(cut) == books_of(whole)
        store.close()
        if kept:
            store = Store(Path(folder) / "s.db")
            assert books_of(Join(store, **spans)) == books_of(cut)
            store.close()


def books_of(join):
    """What the join remembers, without the numbers of the rows: only their order means something."""
    return [
        (
            book.model,
            book.version,
            {name: (repr(row[:SEQ] + row[SEQ + 1 :]), book.open.segment[place]) for name, place, row in rows_of(book)},
            [name for name, _, row in sorted(rows_of(book), key=lambda named: named[2][SEQ])],
            {name: label[:3] for name, label in book.held.items()},
            {m: sorted(names) for m, names in book.ending.items()},
            dict(book.ripening),
        )
        for book in join.state.all
    ]


def rows_of(book):
    """Id, place and row of what is open; the row without room for scores of more numbers."""
    for name, place in book.open.place.items():
        row = book.open.table[place].tolist()
        yield name, place, [*row[:P], *(p for p in row[P:] if p == p)]


def test_sums_after_corrections_equal_the_batch_computation(store):
    """Every third outcome is corrected, some twice: the window's sums are those of the last outcomes, to 1e-12."""
    rng = np.random.default_rng(5)
    n, join, window = 2_000, Join(store, ttl=1e6), Revertible(EqualWidth(10))
    p, w, y = rng.random(n), rng.integers(1, 4, n) / 2, rng.integers(0, 2, n).astype(float)
    events = [Prediction("m", "1", str(i), 0.0, float(p[i]), float(w[i])) for i in range(n)]
    for time_, some in ((1.0, range(n)), (2.0, range(0, n, 3)), (3.0, range(0, n, 6))):
        for i in some:
            y[i] = y[i] if time_ == 1.0 else 1.0 - y[i]
            events.append(Label("m", "1", str(i), time_, float(y[i])))
    for first in range(0, len(events), 700):
        for part in join.feed(events[first : first + 700]):
            for pair in part:
                (window.update if pair.sign > 0 else window.revert)(pair.p, pair.y, pair.w)
    batch = Revertible(EqualWidth(10))
    batch.update_many(p, y, w)
    np.testing.assert_allclose(window.snapshot().cells, batch.snapshot().cells, rtol=0, atol=1e-12)
    assert join.labels.corrected == len(range(0, n, 3)) + len(range(0, n, 6))


def test_either_side_may_come_first(store):
    join = Join(store, ttl=100.0, hold=50.0)
    assert join.feed([Label("m", "1", "a", 5.0, 1.0)]) == []
    assert (join.labels.pending, join.predictions.pending) == (1, 0)
    (part,) = join.feed([Prediction("m", "1", "a", 3.0, 0.5)])
    assert pairs([part]) == [(1.0, ("m", "1", "a"), (3.0, 0.5, 1.0, ""), 1.0, 5.0)]


def test_versions_and_models_are_apart(store):
    join = Join(store, ttl=100.0, hold=50.0)
    parts = join.feed(
        [Prediction("m", version, "a", 0.0, 0.5) for version in "12"] + [Label(m, "1", "a", 0.0, 1.0) for m in "mn"]
    )
    assert [(part.model, part.version, len(part)) for part in parts] == [("m", "1", 1)]
    assert [(a.pending, b.pending) for a, b in join.counters().values()] == [(0, 0), (1, 0), (0, 1)]


def test_a_label_without_its_prediction_is_held_for_a_time_then_counted(store):
    join = Join(store, ttl=100.0, hold=64.0)
    join.feed([Label("m", "1", "a", 0.0, 1.0)])
    join.advance(64.5)
    assert (join.labels.pending, join.labels.expired) == (1, 0)
    join.advance(65.0)  # the moment after the 64th second
    assert (join.labels.pending, join.labels.expired) == (0, 1)


@pytest.mark.parametrize("restart", [False, True])
def test_a_held_label_that_takes_the_place_of_another_has_its_own_time(tmp_path, restart):
    store = Store(tmp_path / "s.db")
    join = Join(store, ttl=100.0, hold=64.0)
    join.feed([Label("m", "1", "a", 0.0, 1.0), Label("m", "1", "a", 10.0, 0.0), Label("m", "1", "a", 5.0, 1.0)])
    assert (join.labels.pending, join.labels.conflicting) == (1, 2)
    if restart:
        store.close()
        store = Store(tmp_path / "s.db")
        join = Join(store, ttl=100.0, hold=64.0)
    join.advance(70.0)
    assert (join.labels.pending, join.labels.expired) == (1, 0)
    (part,) = join.feed([Prediction("m", "1", "a", 70.0, 0.5)])
    assert (part.y.tolist(), part.u.tolist()) == ([0.0], [10.0])
    join.advance(1e3)
    assert sql(tmp_path / "s.db", "SELECT count(*) FROM held") == [(0,)]


def test_early_labels_wait_until_their_predictions_are_ripe(store):
    """Fast positives do not count before the slow negatives could have come."""
    join = Join(store, ttl=1000.0, maturity=64.0)
    events = [Prediction("m", "1", f"{i}", 0.0, 0.5) for i in range(4)]
    assert join.feed([*events, Label("m", "1", "1", 5.0, 1.0), Label("m", "1", "3", 6.0, 1.0)]) == []
    assert (join.predictions.pending, join.labels.pending, join.labels.joined) == (4, 2, 0)
    assert join.feed([Label("m", "1", "3", 7.0, 0.0)]) == []  # a correction of what is not out yet
    assert (join.labels.pending, join.labels.conflicting) == (2, 1)
    (part,) = join.advance(65.0)
    assert (part.id, part.y.tolist(), part.sign.tolist()) == (["1", "3"], [1.0, 0.0], [1.0, 1.0])
    (part,) = join.feed([Label("m", "1", "0", 66.0, 0.0)])
    assert (part.id, join.predictions.pending, join.predictions.joined) == (["0"], 1, 3)


def test_a_prediction_ripens_at_the_latest_when_it_is_forgotten(store):
    """The grids of the two spans differ: without a bound the pair would be lost here."""
    join = Join(store, ttl=128.5, maturity=128.0)
    for name in "ab":
        join.feed([Prediction("m", "1", name, 6.2, 0.5), Label("m", "1", name, 6.2, 1.0)])
    assert [part.id for part in join.advance(135.0)] == [["a", "b"]] and join.predictions.joined == 2


def test_what_ripens_together_goes_out_in_the_order_of_the_labels_after_a_restart_too(tmp_path):
    store = Store(tmp_path / "s.db")
    first, second = (
        Prediction("m", "1", "a", 3.4, 0.5),
        Prediction("m", "1", "b", 3.6, 0.5),
    )  # ripe at 132, due at 132 and 135
    events = [
        first,
        second,
        Label("m", "1", "b", 1.0, 1.0),
        Label("m", "1", "a", 2.0, 1.0),
        Label("m", "1", "b", 3.0, 0.0),
    ]
    Join(store, ttl=128.5, maturity=128.0).feed(events)
    store.close()
    again, whole = Join(Store(tmp_path / "s.db"), ttl=128.5), Join(Store(), ttl=128.5, maturity=128.0)
    whole.feed(events)
    for join in (again, whole):
        assert join.advance(131.0) == [] and [part.id for part in join.advance(132.0)] == [["b", "a"]]


def test_a_prediction_that_comes_again_after_its_end_does_not_count_again(store):
    join, event = Join(store, ttl=64.0), Prediction("m", "1", "a", 0.0, 0.5)
    join.feed([event, Label("m", "1", "a", 1.0, 1.0)])
    assert join.advance(65.0) == [] and join.feed([event, Label("m", "1", "a", 1.0, 1.0)]) == []
    assert join.predictions.reasons == {"late": 1} and join.labels.expired == 1


def test_one_time_far_ahead_does_not_let_everything_expire(store):
    join, late = Join(store, ttl=1e5, ahead=3600.0), 1.7e9 + 3600.0
    join.feed([Prediction("m", "1", "a", 1.7e9, 0.5), Prediction("m", "1", "b", math.nextafter(late, math.inf), 0.5)])
    assert join.clock == 1.7e9 and join.predictions.reasons == {"ahead": 1} and join.predictions.pending == 1
    join.feed([Prediction("m", "1", "b", late, 0.5), Label("m", "1", "b", late + 3601.0, 1.0)])
    assert join.clock == late and join.labels.reasons == {"ahead": 1} and join.predictions.pending == 2


def test_several_classes_survive_a_restart(tmp_path):
    store = Store(tmp_path / "s.db")
    Join(store, ttl=64.0).feed([Prediction("m", "1", "a", 0.0, (0.1, 0.2, 0.7), 1.0, "DE")])
    store.close()
    (part,) = Join(Store(tmp_path / "s.db"), ttl=64.0).feed([Label("m", "1", "a", 1.0, 2.0)])
    assert part.p.tolist() == [[0.1, 0.2, 0.7]] and part.segment == ["DE"] and part.t.tolist() == [0.0]


# -- values
# ----------------------------------------------------------------------------------------------------------------

GOOD = Prediction("m", "1", "a", 0.0, 0.5)
BAD = [
    (GOOD._replace(p=math.nan), "p"),
    (GOOD._replace(p=math.inf), "p"),
    (GOOD._replace(p=None), "p"),
    (GOOD._replace(p="0.5"), "p"),
    (GOOD._replace(p=True), "p"),
    (GOOD._replace(p=()), "p"),
    (GOOD._replace(p=(0.5, math.nan)), "p"),
    (GOOD._replace(p=10**400), "p"),
    (GOOD._replace(t=math.nan), "t"),
    (GOOD._replace(t=1.7e12), "t"),
    (GOOD._replace(t=None), "t"),
    (GOOD._replace(w=-1.0), "w"),
    (GOOD._replace(w=math.inf), "w"),
    (GOOD._replace(w=2e100), "w"),
    (GOOD._replace(t=-1.7e12), "t"),
    (GOOD._replace(id=""), "id"),
    (GOOD._replace(id=7), "id"),
    (GOOD._replace(id="a\ud800"), "id"),
    (GOOD._replace(id="a" * 1001), "id"),
    (GOOD._replace(segment=None), "segment"),
    (GOOD._replace(segment="\udfff"), "segment"),
    (GOOD._replace(model=None), "model"),
    (GOOD._replace(model=["m"]), "model"),
    (GOOD._replace(version=3), "version"),
    (Label("m", "1", "a", 0.0, math.nan), "y"),
    (Label("m", "1", "a", 0.0, None), "y"),
    (Label("m", "1", "a", 0.0, "1"), "y"),
    (Label("m", "1", "a", math.inf, 1.0), "t"),
    (Label("m", "1", "", 0.0, 1.0), "id"),
    (Label(None, "1", "a", 0.0, 1.0), "model"),
]


@pytest.mark.parametrize("event, reason", BAD, ids=lambda v: v if isinstance(v, str) else "")
def test_a_bad_value_is_counted_and_changes_nothing_else(tmp_path, event, reason):
    store = Store(tmp_path / "s.db")
    join = Join(store, ttl=64.0, hold=64.0)
    assert join.feed([GOOD._replace(id="z", t=-5.0), event]) == []
    account = join.predictions if isinstance(event, Prediction) else join.labels
    assert account.reasons == {reason: 1} and account.adds_up and join.clock == -5.0
    store.close()
    assert Join(Store(tmp_path / "s.db"), ttl=64.0).counters() == join.counters()


TEXTS = ["é", "日本", "\0", "a\0b", "' OR 1=1 --", " ", "\n", "\U0001f600" * 250, "x" * 1000]


@pytest.mark.parametrize("name", TEXTS)
def test_any_text_is_an_id(tmp_path, name):
    store = Store(tmp_path / "s.db")
    Join(store, ttl=64.0).feed([Prediction(name, name, name, 0.0, 0.5, 1.0, name)])
    store.close()
    (part,) = Join(Store(tmp_path / "s.db"), ttl=64.0).feed([Label(name, name, name, 1.0, 1.0)])
    assert pairs([part]) == [(1.0, (name, name, name), (0.0, 0.5, 1.0, name), 1.0, 1.0)]


def test_numbers_of_other_kinds_are_numbers(store):
    join = Join(store, ttl=64)
    (part,) = join.feed(
        [Prediction("m", "1", "a", np.int64(3), np.float32(0.5), 1), Label("m", "1", "a", 4, np.int8(1))]
        + [Prediction("m", "1", "b", 3, [0.5, 0.5]), Prediction("m", "1", "c", 3, np.array([0.5, 0.5]))]
    )
    assert pairs([part]) == [(1.0, ("m", "1", "a"), (3.0, 0.5, 1.0, ""), 1.0, 4.0)]
    assert join.predictions.pending == 2


ANYTHING = st.one_of(
    st.floats(),
    st.integers(),
    st.text(max_size=3),
    st.none(),
    st.booleans(),
    st.just("x" * 1001),
    st.lists(st.floats()),
)


TYPED = [*[st.text()] * 3, *[st.floats()] * 3, st.text()]


def is_plain(event, wrong):
    """Allowed values are those that came, as texts and floats; to check them again changes nothing, nor does a quick look."""
    plain, fields = checked(event)
    assert fields == wrong and set(wrong) <= set(FIELDS[1:])
    ((quick, first),) = checked_rows([event])
    assert first == [*wrong, ""][0] and (wrong or quick == plain)
    if not wrong:
        assert checked(plain) == (plain, ())
        assert {type(v) for v in plain if not isinstance(v, tuple)} <= {str, float, type(None)}
        assert all(a == b for a, b in zip(plain, event) if isinstance(a, str | float) and isinstance(b, str | float))


@given(st.builds(Prediction, *[ANYTHING] * 7) | st.builds(Prediction, *TYPED))
def test_a_prediction_is_counted_under_the_first_field_that_is_not_allowed(event):
    wrong = checked(event)[1]
    is_plain(event, wrong)
    join = Join(Store(), ttl=64.0)
    join.feed([event])
    assert join.predictions.adds_up and join.predictions.reasons == ({wrong[0]: 1} if wrong else {})


@given(st.builds(Label, *[ANYTHING] * 5) | st.builds(Label, *TYPED[:5]))
def test_a_label_is_counted_under_the_first_field_that_is_not_allowed(event):
    wrong = checked(event)[1]
    is_plain(event, wrong)
    join = Join(Store(), ttl=64.0)
    join.feed([event])
    assert join.labels.adds_up and join.labels.reasons == ({wrong[0]: 1} if wrong else {})


@pytest.mark.parametrize(
    "spans, text",
    [
        ({"ttl": 0.0}, "ttl must be a number of seconds, in"),
        ({"ttl": math.nan}, "got nan"),
        ({"ttl": True}, "got True"),
        ({"ttl": "60"}, "got '60'"),
        ({"ttl": 1e11}, "got 100000000000"),
        ({"ttl": 60.0, "maturity": 61.0}, "maturity must be at most ttl = 60.0, got 61.0"),
        ({"ttl": 60.0, "hold": 0.5}, "hold must be a number of seconds, 0 or in"),
        ({"ttl": 60.0, "ahead": 0.0}, "ahead must be"),
    ],
)
def test_settings_that_are_not_allowed(spans, text):
    with pytest.raises(ValueError, match=text):
        Join(Store(), **spans)


def test_something_else_than_an_event_is_a_type_error_and_changes_nothing(store):
    join = Join(store, ttl=64.0)
    with pytest.raises(TypeError, match="must be Prediction or Label, got tuple"):
        join.feed([GOOD, tuple(GOOD)])
    assert join.predictions.received == 0 and join.feed([GOOD]) == []
    with pytest.raises(ValueError, match="now must be a time"):
        join.advance(math.nan)


# -- transactions and files
# ------------------------------------------------------------------------------------------------


def test_documents_are_kept_with_the_batch(store):
    with store.transaction():
        Join(store, ttl=64.0).feed([GOOD])
        store.put("offsets", b"1")
        store.put("offsets", b"2")
    assert (store.get("offsets"), store.get("sums")) == (b"2", None)
    with pytest.raises(StoreError, match="no transaction to write in"):
        store.put("offsets", b"3")
    with pytest.raises(ValueError, match="'join' is taken"), store.transaction():
        store.put("join", b"")


def test_documents_are_bytes_and_transactions_do_not_nest(tmp_path):
    store = Store()
    with pytest.raises(ValueError, match="must be bytes under a text, got str"), store.transaction():
        store.put("sums", "text")
    store = Store(tmp_path / "s.db")
    with pytest.raises(StoreError, match="do not nest"), store.transaction(), store.transaction():
        pass


def test_a_closed_store_says_so(store):
    join = Join(store, ttl=64.0)
    store.close()
    with pytest.raises(StoreError, match="it was closed"):
        join.feed([GOOD])
    with pytest.raises(StoreError, match="it was closed"):
        store.get("sums")


def sql(path, statement):
    """What a statement says that another process would give to the file."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        return file.execute(statement).fetchall()


def events(n, first=0):
    return [Prediction("m", "1", f"{i:036d}", float(i), 0.5) for i in range(first, first + n)]


def test_a_full_disk_is_a_clear_error_and_nothing_is_lost(tmp_path):
    store = Store(tmp_path / "s.db")
    join = Join(store, ttl=1e6)
    join.feed(events(100))
    store.close()
    store = Store(tmp_path / "s.db", largest=(tmp_path / "s.db").stat().st_size + 5 * 4096)
    join = Join(store, ttl=1e6)
    with pytest.raises(
        StoreError, match=r"s\.db: database or disk is full: nothing of this transaction was kept; make room"
    ):
        join.feed(events(5_000, 100))
    with pytest.raises(StoreError, match="open it again"):
        join.feed(events(1, 100))
    store.close()
    again = Join(Store(tmp_path / "s.db"), ttl=1e6)
    assert again.predictions.pending == again.predictions.received == 100
    again.feed(events(5_000, 100))
    assert again.predictions.pending == 5_100


FILLS = """
import resource, signal, sys
from streamcal.monitor.events import Prediction
from streamcal.monitor.join.join import Join
from streamcal.monitor.store import Store, StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
join = Join(Store(sys.argv[1]), ttl=1e6)
try:
    for i in range(1000):
        join.feed([Prediction("m", "1", f"{i}-{k}", float(i), 0.5) for k in range(100)])
        print(i + 1, flush=True)
except StoreError as error:
    print(error)
"""


def test_a_file_that_the_system_does_not_let_grow(tmp_path):
    """The write itself fails, below SQLite."""
    out = run(FILLS, tmp_path / "s.db").splitlines()
    assert "nothing of this transaction was kept" in out[-1] and len(out) > 2
    again = Join(Store(tmp_path / "s.db"), ttl=1e6)
    assert again.predictions.pending == again.predictions.received == 100 * int(out[-2])


def run(code, *arguments, **how):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, **how
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


OPENS = """
import os, sys
from streamcal.monitor.store import Store, StoreError
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    Store(sys.argv[1])
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("folder_too", [False, True])
def test_a_file_that_can_only_be_read(folder_too):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.db"
        Store(path).close()
        path.chmod(0o444)
        Path(folder).chmod(0o555 if folder_too else 0o777)
        assert f"{path}: attempt to write a readonly database: the file and its folder must be writable" in run(
            OPENS, path
        )
        Path(folder).chmod(0o755)


def test_files_that_are_something_else(tmp_path):
    (tmp_path / "text.db").write_text("p,y\n0.5,1\n" * 100)
    with pytest.raises(StoreError, match="file is not a database: give another path"):
        Store(tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE prices (x)")
    with pytest.raises(StoreError, match="an SQLite file of something else; give another path"):
        Store(tmp_path / "other.db")
    with pytest.raises(StoreError, match="unable to open database file: its folder must exist"):
        Store(tmp_path / "none" / "s.db")
    assert sqlite3.connect(tmp_path / "other.db").execute("SELECT count(*) FROM prices").fetchone() == (0,)


def test_a_newer_schema_is_refused(tmp_path):
    store = Store(tmp_path / "s.db")
    store.close()
    sql(tmp_path / "s.db", "PRAGMA user_version = 2")
    with pytest.raises(StoreError, match="schema must have version 1, got 2"):
        Store(tmp_path / "s.db")


def test_a_newer_document_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must have version 1, got 2"):
        JoinState.from_bytes(b'{"join": 2}')
    with pytest.raises(ValueError, match="not a document of the join"):
        JoinState.from_bytes(b"[]")


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM prediction WHERE seq = 1",
        "DELETE FROM document",
        "UPDATE outcome SET prediction = 77",
        "UPDATE document SET data = x'00'",
    ],
)
def test_rows_and_counters_that_do_not_fit_are_refused(tmp_path, damage):
    store = Store(tmp_path / "s.db")
    Join(store, ttl=64.0).feed([GOOD, GOOD._replace(id="b"), Label("m", "1", "b", 0.0, 1.0)])
    store.close()
    sql(tmp_path / "s.db", damage)
    with pytest.raises(StoreError, match="damaged"):
        Join(Store(tmp_path / "s.db"), ttl=64.0)


@pytest.mark.parametrize("table", ["prediction", "held"])
def test_a_row_that_is_missing_when_it_is_due_is_noticed(tmp_path, table):
    store = Store(tmp_path / "s.db")
    join = Join(store, ttl=64.0, hold=64.0)
    join.feed([GOOD, Label("m", "1", "b", 0.0, 1.0)])
    sql(tmp_path / "s.db", f"DELETE FROM {table}")
    with pytest.raises(StoreError, match=f"damaged: 1 rows of {table} are due, but it has 0"):
        join.advance(1e3)


def test_an_error_that_the_caller_swallows_does_not_let_half_a_batch_through(tmp_path):
    store = Store(tmp_path / "s.db")
    join = Join(store, ttl=1e6)
    join.feed(events(10))
    store.close()
    store = Store(tmp_path / "s.db", largest=(tmp_path / "s.db").stat().st_size + 2 * 4096)
    join = Join(store, ttl=1e6)
    with pytest.raises(StoreError, match="open it again"), store.transaction(), pytest.raises(StoreError, match="full"):
        join.feed(events(5_000, 10))
    store.close()
    assert Join(Store(tmp_path / "s.db"), ttl=1e6).predictions.received == 10


def test_two_writers_are_refused(tmp_path):
    one, two = Store(tmp_path / "s.db"), Store(tmp_path / "s.db")
    join = Join(two, ttl=64.0)
    Join(one, ttl=64.0).feed([GOOD])
    Store(tmp_path / "s.db").close()  # to open it is not to write, and to tidy up its log changes nothing
    sql(tmp_path / "s.db", "PRAGMA wal_checkpoint(TRUNCATE)")
    Join(one, ttl=64.0).feed([GOOD])
    with pytest.raises(StoreError, match="another process has written into it"):
        join.feed([GOOD])
    assert Join(Store(tmp_path / "s.db"), ttl=64.0).predictions.received == 2


def test_the_file_can_be_read_while_it_is_written(tmp_path):
    store = Store(tmp_path / "s.db")
    join = Join(store, ttl=64.0)
    reader = sqlite3.connect(f"file:{tmp_path / 's.db'}?mode=ro", uri=True)
    with store.transaction():
        join.feed([GOOD])
        assert reader.execute("SELECT count(*) FROM prediction").fetchone() == (0,)
    assert reader.execute("SELECT count(*) FROM prediction").fetchone() == (1,)


def test_what_is_forgotten_leaves_the_file(tmp_path):
    store = Store(tmp_path / "s.db")
    join = Join(store, ttl=64.0, hold=64.0)
    for i in range(60):
        some = events(50, 50 * i)
        join.feed(
            [*some, *[Label("m", "1", e.id, e.t, 1.0) for e in some[::2]], Label("m", "1", f"x{i}", 50.0 * i, 0.0)]
        )
    join.advance(1e6)
    for table in ("prediction", "outcome", "held"):
        assert sql(tmp_path / "s.db", f"SELECT count(*) FROM {table}") == [(0,)]
    assert (join.predictions.joined, join.predictions.expired, join.labels.expired) == (1500, 1500, 60)


KILLED = """
import sys
from streamcal.monitor.events import Label, Prediction
from streamcal.monitor.join.join import Join
from streamcal.monitor.store import Store
store = Store(sys.argv[1])
join = Join(store, ttl=500.0, hold=50.0)
done = int(store.get("offsets") or b"0")
total = int(store.get("sums") or b"0")
print("ready", flush=True)
for i in range(done, 10**9, 20):
    with store.transaction():
        numbers = range(i, i + 20)
        batch = [Prediction("m", "1", str(n), float(n), 0.5) for n in numbers]
        batch += [Label("m", "1", str(n - 100), float(n), 1.0) for n in numbers]
        total += sum(len(part) for part in join.feed(batch))
        store.put("sums", str(total).encode())
        store.put("offsets", str(i + 20).encode())
    print(end=".", flush=True)
"""


def test_kill_9_loses_nothing_and_counts_nothing_twice(tmp_path):
    path, rng, before = tmp_path / "s.db", np.random.default_rng(1), 0
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, cwd=ROOT) as child:
            assert child.stdout.readline() == b"ready\n"
            assert child.stdout.read(1) == b"."  # however busy the machine is, something has been done
            time.sleep(0.2 * rng.random())
            child.send_signal(signal.SIGKILL)
        store = Store(path)
        join, done = Join(store, ttl=500.0, hold=50.0), int(store.get("offsets"))
        predictions, labels = told(join.predictions), told(join.labels)
        store.close()
        assert predictions["received"] == labels["received"] == done > before
        assert predictions["joined"] == labels["joined"] == int(store_sum(path)) == done - 100
        assert join.predictions.adds_up and join.labels.adds_up
        before = done


def store_sum(path):
    store = Store(path)
    total = store.get("sums")
    store.close()
    return total


# -- documents by the beginning of their names, and looks from outside
# ---------------------------------------------------------------------


def test_documents_are_dropped_by_the_beginning_of_their_names(store):
    join, odd = (
        Join(store, ttl=64.0),
        ["", "j", "jo", "join/1", "journal/1", "journal/2\U0010ffff", "journal/\0", "z", "é"],
    )
    with store.transaction():
        join.feed([GOOD])
        for name in odd:
            store.put(name, name.encode())
    assert store.names() == sorted(odd) and store.names("journal/") == [
        "journal/\0",
        "journal/1",
        "journal/2\U0010ffff",
    ]
    with store.transaction():
        assert (store.drop("journal/"), store.drop("journal/"), store.drop("j"), store.drop("%")) == (3, 0, 3, 0)
    assert store.names() == ["", "z", "é"] and store.get("journal/1") is None and store.get("z") == b"z"
    with store.transaction():
        assert store.drop("") == 3
    assert store.names() == [] and join.feed([GOOD]) == []  # the join's own document is not among them
    assert join.predictions.duplicate == 1
    with pytest.raises(StoreError, match="no transaction to write in"):
        store.drop("z")


def test_what_is_dropped_in_a_transaction_that_fails_is_still_there(tmp_path):
    store = Store(tmp_path / "s.db")
    with store.transaction():
        store.put("journal/1", b"1")
    with pytest.raises(KeyError), store.transaction():
        store.drop("journal/")
        raise KeyError
    store.close()
    assert Store(tmp_path / "s.db").names() == ["journal/1"]


def test_an_interrupt_that_the_caller_swallows_does_not_let_half_a_batch_through(store, monkeypatch):
    """A signal comes while a batch is joined: the transaction around it must not keep the offsets alone."""
    join = Join(store, ttl=64.0)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(join, "_move", interrupt)
    with pytest.raises(StoreError, match="a batch was interrupted"), store.transaction():
        with pytest.raises(KeyboardInterrupt):
            join.feed([GOOD])
        store.put("offsets", b"1")


def look(path):
    with Store(path, readonly=True) as look:
        return look.names(), look.counters(), look.clock


def test_a_look_at_a_file_that_nobody_has_open_leaves_no_trace(tmp_path):
    store = Store(tmp_path / "s.db")
    join = Join(store, ttl=64.0)
    with store.transaction():
        join.feed([GOOD])
        store.put("status", b"{}")
    store.close()
    assert look(tmp_path / "s.db") == (["status"], join.counters(), 0.0)
    assert [p.name for p in tmp_path.iterdir()] == ["s.db"]


LOOKS = """
import os, sys
from streamcal.monitor.store import Store
if os.geteuid() == 0:
    os.seteuid(65534)
with Store(sys.argv[1], readonly=True) as look:
    print(look.names(), *(a.pending for a, b in look.counters().values()))
"""


@pytest.mark.parametrize("state", ["closed", "open", "killed"])
def test_a_look_from_a_process_that_may_not_write(state):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a?b#c%41.db"  # nothing of this may be taken for a part of a URI
        code = WRITES.format(end={"closed": "store.close()", "open": "time.sleep(60)", "killed": "os._exit(9)"}[state])
        with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, cwd=ROOT) as child:
            assert child.stdout.readline() == b"ready\n"
            if state != "open":
                child.wait()
            for beside in Path(folder).iterdir():
                beside.chmod(0o444)
            Path(folder).chmod(0o555)
            assert run(LOOKS, path) == "['journal/1'] 1\n"
            Path(folder).chmod(0o755)
            child.kill()


WRITES = """
import os, sys, time
from streamcal.monitor.events import Prediction
from streamcal.monitor.join.join import Join
from streamcal.monitor.store import Store
store = Store(sys.argv[1])
join = Join(store, ttl=64.0)
with store.transaction():
    join.feed([Prediction("m", "1", "a", 0.0, 0.5)])
    store.put("journal/1", b"1")
print("ready", flush=True)
{end}
"""


def test_a_look_while_another_process_writes_sees_whole_transactions(tmp_path):
    """The documents of a look belong together, whatever is committed in the meantime."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "s.db")], stdout=subprocess.PIPE, cwd=ROOT
    ) as child:
        assert child.stdout.readline() == b"ready\n"
        seen = set()
        while len(seen) < 20:
            with Store(tmp_path / "s.db", readonly=True) as look:
                done = int(look.get("offsets") or b"0")
                time.sleep(0.002)
                ((predictions, labels),) = look.counters().values() or ((Counters(), Counters()),)
                assert predictions.received == labels.received == done and predictions.adds_up
                seen.add(done)
        assert child.poll() is None
        child.kill()


def test_a_look_says_so_if_a_monitor_begins_to_write_meanwhile(tmp_path):
    Store(tmp_path / "s.db").close()
    with Store(tmp_path / "s.db", readonly=True) as look:
        store = Store(tmp_path / "s.db")
        with pytest.raises(StoreError, match="has begun to write into it; look again"):
            look.get("status")
        store.close()


def test_a_look_at_something_else(tmp_path):
    with pytest.raises(StoreError, match=r"none\.db: there is no such file"):
        Store(tmp_path / "none.db", readonly=True)
    with pytest.raises(StoreError, match="not a file"):
        Store(tmp_path, readonly=True)
    (tmp_path / "text.db").write_text("p,y\n0.5,1\n" * 100)
    with pytest.raises(StoreError, match="file is not a database: not the state of a monitor"):
        Store(tmp_path / "text.db", readonly=True)
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreError, match="not the state of a monitor"):
        Store(tmp_path / "empty.db", readonly=True)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE prices (x)")
    with pytest.raises(StoreError, match="not the state of a monitor"):
        Store(tmp_path / "other.db", readonly=True)
    Store(tmp_path / "new.db").close()
    sql(tmp_path / "new.db", "PRAGMA user_version = 2")
    with pytest.raises(StoreError, match="must have version 1, got 2"):
        Store(tmp_path / "new.db", readonly=True)
    assert not list(tmp_path.glob("*-wal"))


# -- columns, and labels for all versions
# ---------------------------------------------------------------------------------------------------------


def test_a_label_for_every_version_goes_where_its_id_is_open(store):
    join = Join(store, ttl=100.0, hold=50.0)
    for version in "12":
        join.feed(
            columns_of("m", version, ["a", "b"][: int(version)], [0.0, 0.0][: int(version)], [0.5, 0.6][: int(version)])
        )
    parts = join.feed(labels_of("m", None, ["b", "a", "c"], [1.0, 1.0, 1.0], [1.0, 0.0, 1.0]))
    assert [(part.version, part.id) for part in parts] == [("1", ["a"]), ("2", ["b", "a"])]
    assert [labels.pending for _, labels in join.counters().values()] == [1, 1]  # c waits in both
    (part,) = join.feed([Prediction("m", "2", "c", 2.0, 0.5)])
    assert (part.version, part.id) == ("2", ["c"]) and [b.pending for _, b in join.counters().values()] == [1, 0]


def test_a_label_for_every_version_of_a_model_that_has_none(store):
    join = Join(store, ttl=100.0, hold=50.0)
    join.feed([Label("m", None, "a", 0.0, 1.0), Label("m", None, "a", 1.0, math.nan)])
    join.feed([Label(None, None, "a", 0.0, 1.0), Label("m", 3, "a", 0.0, 1.0), Prediction("m", None, "a", 0.0, 0.5)])
    (none, nothing) = join.counters().items()
    assert none[0] == ("m", "") and none[1][1] == Counters(received=2, pending=1, reasons={"y": 1})
    assert nothing[0] == ("", "") and nothing[1][1].reasons == {"model": 1, "version": 1}
    assert nothing[1][0].reasons == {"version": 1}


def test_a_joined_pair_counts_when_it_is_ripe(store):
    join = Join(store, ttl=1000.0, maturity=64.0)
    ids = [f"{i}" for i in range(20)]
    assert join.feed(columns_of("m", "1", ids, np.zeros(20), np.full((20, 3), 0.5), np.arange(20), ids)) == []
    assert join.feed(labels_of("m", "1", ids[::2], np.full(10, 5.0), np.ones(10))) == []
    (ripened,) = join.advance(65.0)
    (late,) = join.feed(labels_of("m", "1", ids[1::2], np.full(10, 70.0), np.ones(10)))
    (again,) = join.feed([Label("m", "1", "4", 80.0, 0.0)])
    assert ripened.moment.tolist() == [65.0] * 10 and late.moment.tolist() == [70.0] * 10
    assert again.moment.tolist() == [65.0, 80.0] and again.sign.tolist() == [-1.0, 1.0]
    assert again.w.tolist() == [4.0, 4.0] and again.segment == ["4", "4"]
    assert [(part.sign < 0.0).any() for part in (ripened, late, again)] == [False, False, True]
    assert late.p.shape == (10, 3)
    with pytest.raises(ValueError, match="read-only"):
        late.p[0] = 1.0


ODD_IDS = st.sampled_from(["", "x" * 1001, "a\ud800", 7, None, ["a"], np.str_("np"), "é"])


@pytest.mark.usefixtures("eager")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ids=st.lists(st.sampled_from("abcdefgh") | ODD_IDS, min_size=1, max_size=30),
    segment=st.lists(st.sampled_from(["", "DE", "\udfff", None]), min_size=30, max_size=30)
    | st.sampled_from(["", None]),
    names=st.tuples(st.sampled_from(["m", "m", None, "x" * 1001]), st.sampled_from(["1", None, 3])),
    data=st.data(),
)
def test_values_of_columns_that_are_not_allowed_are_counted_as_those_of_events(ids, segment, names, data):
    n = len(ids)
    reals = st.sampled_from([0.0, 0.5, 1.0, 1.0, 1.0, math.nan, math.inf, -math.inf, 2e11, -1.0])
    t, p, w, y = (data.draw(st.lists(reals, min_size=n, max_size=n)) for _ in range(4))
    whole, cut = Join(Store(), ttl=100.0, hold=5.0), Join(Store(), ttl=100.0, hold=5.0)
    tags = segment[:n] if isinstance(segment, list) else [segment] * n
    rows = pairs(one_by_one(whole, [Prediction(*names, *row) for row in zip(ids, t, p, w, tags)]))
    rows += pairs(one_by_one(whole, [Label(*names, *row) for row in zip(ids, t, y)]))
    mine = pairs(cut.feed([Prediction(*names, *row) for row in zip(ids, t, p, w, tags)]))
    mine += pairs(cut.feed([Label(*names, *row) for row in zip(ids, t, y)]))
    assert by_model(mine) == by_model(rows) and cut.counters() == whole.counters() and books_of(cut) == books_of(whole)


@pytest.mark.parametrize("kind", [np.float32, np.int16, np.uint64, np.float16])
def test_columns_of_other_kinds_of_numbers(kind):
    join = Join(Store(), ttl=100.0)
    ids = np.array([f"{i}" for i in range(20)])
    t, p, w = np.arange(20, dtype=kind), np.ones(20, dtype=kind), np.full(20, 2, dtype=kind)
    join.feed([Prediction("m", "1", *row) for row in zip(ids, t, p, w)])
    u, y = np.full(20, 30, dtype=kind), np.zeros(20, dtype=kind)
    (part,) = join.feed([Label("m", "1", *row) for row in zip(ids[::-1], u, y)])
    assert pairs([part])[0] == (1.0, ("m", "1", "19"), (19.0, 1.0, 2.0, ""), 0.0, 30.0)
    assert {type(value) for pair in part for value in pair} == {float, str}


def test_the_grid_of_columns_is_that_of_events():
    """numpy's division of floats with floor is Python's, to the last bit."""
    rng = np.random.default_rng(3)
    for step in [1.0, 3.0, 1.1 / 64, 0.78125, 1e10 / 64, *rng.uniform(1 / 64, 1e3, 20)]:
        moments = np.concatenate([rng.uniform(-1e11, 1e11, 500), rng.integers(-1000, 1000, 500) * step])
        span = 64.0 * float(step)
        assert after(moments, span).tolist() == [after(moment, span) for moment in moments.tolist()]


WOVEN = st.lists(
    st.tuples(
        st.sampled_from([("p", "1"), ("p", "2"), ("y", "1"), ("y", "2"), ("y", None)]),
        st.sampled_from("abcdefgh"),
        st.sampled_from([-3.0, 0.0, 0.0, 0.5, 1.0, 3.0, 20.0, 70.0]),
        st.sampled_from([0.0, 1.0]),
    ),
    min_size=4,
    max_size=40,
)


@pytest.mark.usefixtures("eager")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=400, deadline=None)
@given(drawn=WOVEN, labels=st.sampled_from([("1", "2"), (None,), ("1", None)]), spans=spans(), classes=st.booleans())
def test_predictions_and_labels_woven_into_each_other(drawn, labels, spans, classes):
    """All values are good and all books are there: nothing keeps the events from being taken together."""
    start = [Prediction("m", version, name, 99.5, 0.5) for version in "12" for name in "abc"]
    events = []
    for (side, version), name, step, y in drawn:
        if side == "p":
            p = (0.5, 0.25, 0.25)[: 2 + int(step) % 2] if classes else 0.5
            events.append(Prediction("m", version, name, 100.0 + step, p))
        elif version in labels:
            events.append(Label("m", version, name, 100.0 + step, y))
    whole, cut = Join(Store(), **spans), Join(Store(), **spans)
    rows, mine = pairs(one_by_one(whole, start)), pairs(cut.feed(start))
    rows, mine = rows + pairs(one_by_one(whole, events)), mine + pairs(cut.feed(events))
    rows, mine = rows + pairs(whole.advance(1e4)), mine + pairs(cut.advance(1e4))
    assert by_model(mine) == by_model(rows) and cut.counters() == whole.counters() and books_of(cut) == books_of(whole)


@pytest.mark.parametrize("ttl, maturity, size", [(10.0, 0.0, 100), (20.0, 6.0, 20), (8.0, 7.5, 40)])
def test_what_falls_due_inside_a_column_does_so_at_its_moment(store, ttl, maturity, size):
    """Predictions ripen, and are forgotten, while others of the same column are taken."""
    n, join, twin = 400, Join(store, ttl=ttl, maturity=maturity), NaiveJoin(ttl, maturity)
    ids, t, rows = [f"{i}" for i in range(n)], np.arange(n) / 4.0, []
    for i in range(0, n, size):
        part = slice(i, i + size)
        rows += pairs(join.feed(columns_of("m", "1", ids[part], t[part], np.full(size, 0.5))))
        # every other label is for a prediction of the column before, and so for one that may be ripe already
        labels = [ids[max(k - size * (k % 2), 0)] for k in range(i, i + size)]
        rows += pairs(join.feed(labels_of("m", "1", labels, t[part] + 5.0, np.ones(size))))
        for name, moment in zip(ids[part], t[part].tolist()):
            twin.predict(("m", "1", name), moment, 0.5, 1.0, "")
        for name, moment in zip(labels, t[part].tolist()):
            twin.label(("m", "1", name), moment + 5.0, 1.0)
        assert told(join.predictions) == twin.account("predictions") and told(join.labels) == twin.account("labels")
    assert rows == twin.out and len(rows) > 50


def test_numbers_of_classes_that_differ_are_no_poison(store):
    """Each pair has its own number of classes; in the column there is nan behind fewer ones."""
    join, ids = Join(store, ttl=100.0), [f"{i}" for i in range(40)]
    join.feed(columns_of("m", "1", ids[:20], np.zeros(20), np.full((20, 3), 0.5)))
    join.feed(columns_of("m", "1", ids[20:30], np.zeros(10), np.full((10, 5), 0.25)))
    join.feed(columns_of("m", "1", ids[30:], np.zeros(10), np.full(10, 0.75)))
    (part,) = join.feed(labels_of("m", "1", ids[::-1], np.ones(40), np.ones(40)))
    assert [pair.p for pair in part] == [0.75] * 10 + [(0.25,) * 5] * 10 + [(0.5,) * 3] * 20
    assert part.y.tolist() == [1.0] * 40
    assert part.p.shape == (40, 5) and np.isnan(part.p).sum(1).tolist() == [4] * 10 + [0] * 10 + [2] * 20


def test_a_pair_that_ripens_inside_the_column_of_its_label_goes_out_in_between(store):
    join = Join(store, ttl=1000.0, maturity=64.0)
    join.feed(columns_of("m", "1", ["old", "older", "young"], [-70.0, -80.0, 0.0], [0.5, 0.5, 0.5]))
    (part,) = join.feed(labels_of("m", "1", ["young", "old", "older"], [1.0, 2.0, 100.0], [1.0, 1.0, 1.0]))
    assert part.id == ["old", "young", "older"] and part.moment.tolist() == [2.0, 65.0, 100.0]
