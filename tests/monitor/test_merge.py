"""Several sources in one order, killed between any two batches: each message is taken once, whatever a source gives next time."""

from __future__ import annotations

import json
import random
import time

from hypothesis import given
from hypothesis import strategies as st

from streamcal.monitor.sources.merge import PATIENCE, Merge, Stream
from streamcal.monitor.sources.registry import FromStdin
from streamcal.monitor.sources.source import Messages
from streamcal.reading.lines import Unreadable


class Lanes:
    """A source of several partitions: how they are mixed, and cut into batches, is another thing each time."""

    lag: int | None = 0

    def __init__(self, lanes, rng, gone=False):
        self.lanes, self.rng, self.gone = lanes, rng, gone
        self.next = [0] * len(lanes)
        self.acknowledged = None

    def begin(self, offset):
        if offset is not None:
            self.next = json.loads(offset)

    def read(self, most, wait):
        payloads, bad = [], []
        for _ in range(self.rng.randrange(min(most, 6) + 1)):
            left = [i for i, lane in enumerate(self.lanes) if self.next[i] < len(lane)]
            if not left:
                break
            i = self.rng.choice(left)
            thing = self.lanes[i][self.next[i]]
            self.next[i] += 1
            if thing["bad"]:
                bad.append(Unreadable("there", "bad", b"%d" % thing["id"]))
            else:
                payloads.append(json.dumps(thing).encode())
        ended = all(n == len(lane) for n, lane in zip(self.next, self.lanes))
        return Messages(payloads, ["here"] * len(payloads), json.dumps(self.next).encode(), ended, bad)

    def acknowledge(self, batch):
        self.acknowledged = batch.offset

    def close(self):
        pass


def times(objects):
    return [thing["t"] for thing in objects]


@given(st.integers(1, 3), st.integers(0, 2**32), st.integers(1, 8), st.floats(0.0, 0.9))
def test_each_message_is_taken_once_whenever_it_is_killed(sources, seed, most, deadly):
    rng = random.Random(seed)
    lanes = [
        [
            [
                {"id": rng.randrange(10**9), "t": float(k), "s": s, "lane": i, "k": k, "bad": rng.random() < 0.1}
                for k in range(rng.randrange(12))
            ]
            for i in range(3)
        ]
        for s in range(sources)
    ]
    kept, taken, lost = {}, [], []

    def started():
        return Merge([Stream(FromStdin(f"s{s}"), Lanes(lanes[s], rng), kept.get) for s in range(sources)], times)

    merge, kills = started(), 0
    while not merge.ended:
        batch = merge.next(most, 0.0)
        if kills < 30 and rng.random() < deadly:
            merge, kills = started(), kills + 1
            continue
        assert len(batch.origins) == len(batch.objects)
        taken += batch.objects
        lost += [int(part.what) for _, _, part in batch.lost]
        kept.update(batch.documents)
        merge.committed()
    for s in range(sources):
        for i, lane in enumerate(lanes[s]):
            got = [thing["k"] for thing in taken if (thing["s"], thing["lane"]) == (s, i)]
            assert got == [thing["k"] for thing in lane if not thing["bad"]]
        assert kept.get(f"messages/s{s}", b"") == b""  # nothing of the messages stays behind
        offset = kept.get(f"offset/s{s}")
        assert offset is None or json.loads(json.loads(offset)["after"]) == list(map(len, lanes[s]))
    assert sorted(lost) == sorted(thing["id"] for s in lanes for lane in s for thing in lane if thing["bad"])


class Pipe(Lanes):
    """What was read from it is gone."""

    def begin(self, offset):
        pass


def test_what_was_read_from_a_pipe_and_kept_is_not_read_from_it_again():
    things = [{"id": k, "t": float(k), "bad": False} for k in range(10)]
    kept, taken = {}, []
    old = Lanes([things[:5]], random.Random(4))
    for pipe in (old, Pipe([things[5:]], random.Random(4))):  # after a restart the writer goes on
        other = Lanes([[{"id": -1, "t": 1.5, "bad": False}]], random.Random(0))
        streams = [Stream(FromStdin("pipe"), pipe, kept.get), Stream(FromStdin("file"), other, kept.get)]
        merge = Merge(streams, times)
        while not merge.ended:
            batch = merge.next(2, 0.0)
            taken += [thing["id"] for thing in batch.objects if thing["id"] >= 0]
            kept.update(batch.documents)
            merge.committed()
            if pipe is old and len(taken) >= 2:
                break
    read = [thing["id"] for thing in things[: old.next[0]]]
    assert taken == [*read, *range(5, 10)]


class Slow(Lanes):
    """Gives nothing for a while, and does not say whether there is something."""

    def __init__(self, lanes, rng, until):
        super().__init__(lanes, rng)
        self.until = until

    @property
    def lag(self):
        return None

    def read(self, most, wait):
        time.sleep(wait)
        return super().read(most, wait) if time.monotonic() >= self.until else Messages([], [], b"[0]")


def order(until):
    """In which order a fast source of labels and a slow one of predictions are taken, and how long that takes."""
    start = time.monotonic()
    labels = Lanes([[{"id": "label", "t": 5.0 + k, "bad": False} for k in range(5)]], random.Random(1))
    slow = Slow([[{"id": "prediction", "t": 1.0, "bad": False}]], random.Random(1), start + until)
    merge = Merge([Stream(FromStdin("a"), labels, {}.get), Stream(FromStdin("b"), slow, {}.get)], times)
    taken = []
    while len(taken) < 6 and not merge.ended and time.monotonic() < start + 10.0:
        taken += [thing["id"] for thing in merge.next(10, 0.02).objects]
        merge.committed()
    return taken, time.monotonic() - start


def test_a_source_that_may_have_more_is_waited_for_but_not_for_ever():
    """Labels that are taken before their predictions, only since a broker was slow to answer, would wait and expire."""
    taken, _ = order(0.3)
    assert taken == ["prediction"] + 5 * ["label"]
    taken, seconds = order(PATIENCE + 0.5)
    assert taken == 5 * ["label"] + ["prediction"] and seconds < PATIENCE + 2.0


def test_a_source_that_is_up_to_date_holds_up_nothing():
    empty = Lanes([[]], random.Random(1))
    empty.read = lambda most, wait: Messages([], [], b"[0]")
    full = Lanes([[{"id": k, "t": 1.0, "bad": False} for k in range(50)]], random.Random(1))
    merge = Merge([Stream(FromStdin("a"), full, {}.get), Stream(FromStdin("b"), empty, {}.get)], times)
    start, taken = time.monotonic(), 0
    while taken < 50:
        taken += len(merge.next(10, 0.2).objects)
        merge.committed()
    assert time.monotonic() - start < 0.5
