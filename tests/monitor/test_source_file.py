"""Sources of files and pipes: every line once, in order, whatever happens to the file and whenever the reader ends."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from live_reader import killed

from streamcal.monitor.sources.file import FileSource, PipeSource
from streamcal.monitor.sources.registry import FromFile, FromKafka, FromRedis, FromStdin
from streamcal.monitor.sources.source import Outage, decoded
from streamcal.reading import SourceError
from streamcal.reading.lines import Lines, Long, payloads
from streamcal.reading.waiting import Stop

ROOT = Path(__file__).parents[2]


def started(path, follow=True, offset=None, **more):
    source = FileSource(str(path), follow, **more)
    source.begin(offset)
    return source


def rest(source, most=1000):
    """All payloads that there are now, and the last batch."""
    got, batch = [], source.read(most, 0)
    got += batch.payloads
    while batch.payloads or batch.bad:
        batch = source.read(most, 0)
        got += batch.payloads
    return got, batch


def append(path, data):
    with open(path, "ab") as file:
        file.write(data)


# lines


@given(
    st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\0", b"\n")), max_size=30),
    st.integers(1, 5),
    st.integers(1, 8),
    st.integers(1, 40),
)
def test_lines_are_those_of_split_however_the_bytes_come(pieces, most, longest, room):
    whole = b"".join(pieces)
    expected = whole.split(b"\n")
    last = expected.pop()
    expected += [last] if last else []
    lines, got = Lines(longest=longest), []
    for piece in pieces:
        lines.add(piece)
        while taken := lines.take(most, room):
            assert len(taken) <= most and (len(taken) == 1 or sum(map(len, taken)) <= room)
            got += taken
            assert lines.place == sum(map(len, got)) + len(got)
            if not isinstance(taken[-1], Long):
                assert whole[: lines.place].endswith(lines.tail)
    lines.end()
    while taken := lines.take(most, room):
        got += taken
    assert [len(x) for x in got] == [len(x) for x in expected]
    for item, line in zip(got, expected):
        assert isinstance(item, Long) == (len(line) > longest)
        assert (item.start if isinstance(item, Long) else item) == line
    assert (lines.place, lines.line) == (len(whole), len(expected))


def test_a_line_without_an_end_does_not_fill_the_memory():
    lines = Lines(longest=1000)
    for _ in range(10_000):
        lines.add(b"x" * 777)
    assert sum(map(len, lines._parts)) <= 1024
    lines.add(b"\nok\n")
    long, ok = lines.take(5)
    assert len(long) == 7_770_000 and ok == b"ok" and long.start == b"x" * 1024


def test_payloads_leave_out_blank_lines_and_marks_of_encoding():
    lines = Lines(longest=98)
    lines.add(b"\n".join([b"\xef\xbb\xbf{}\r", b"", b" \r", b"x" * 99, b"\xef\xbb\xbf2", b"later"]))
    given, places, bad = payloads(lines, 9, "f")
    assert (given, places) == ([b"{}", b"\xef\xbb\xbf2"], ["f line 1", "f line 5"])
    assert [(b.place, b.start) for b in bad] == [("f line 4", b"x" * 99)] and "99 bytes" in bad[0].why


# files


def test_a_file_is_read_to_its_end_in_blocks(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\xef\xbb\xbf{1}\r\n\n{2}\n{3}")
    source = started(path, follow=False)
    first = source.read(3, 0)
    assert first.payloads == [b"{1}", b"{2}"] and first.places == [f"{path} line 1", f"{path} line 3"]
    assert not first.ended
    second = source.read(3, 0)
    assert second.payloads == [b"{3}"] and second.ended, "an unfinished last line counts in a file that is complete"
    again = started(path, follow=False, offset=second.offset).read(3, 0)
    assert again.payloads == [] and again.ended


def test_an_empty_file_ends_at_once_and_a_missing_one_is_an_error(tmp_path):
    path = tmp_path / "events.jsonl"
    with pytest.raises(SourceError, match="No such file"):
        started(path, follow=False)
    path.touch()
    assert started(path, follow=False).read(5, 10).ended


def test_a_missing_file_is_waited_for(tmp_path):
    path = tmp_path / "events.jsonl"
    source = started(path)
    assert "waiting" in source.read(5, 0).notes[0]
    assert source.read(5, 0).notes == []
    path.write_bytes(b"1\n")
    assert source.read(5, 0).payloads == [b"1"]


def test_a_half_written_line_waits(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"one\ntw")
    source = started(path)
    batch = source.read(5, 0)
    assert batch.payloads == [b"one"] and source.lag == 2
    assert source.read(5, 0).payloads == []
    append(path, b"o\n")
    assert source.read(5, 0).payloads == [b"two"]
    assert started(path, offset=batch.offset).read(5, 0).payloads == [b"two"]


def test_what_comes_while_it_waits_is_given_at_once(tmp_path):
    path = tmp_path / "events.jsonl"
    path.touch()
    source = started(path)
    threading.Timer(0.3, append, (path, b"x\n")).start()
    start = time.monotonic()
    assert source.read(5, 20).payloads == [b"x"]
    assert time.monotonic() - start < 10


def test_it_stops_waiting_when_asked(tmp_path):
    (tmp_path / "f").touch()
    stop = Stop()
    source = started(tmp_path / "f", stop=stop)
    threading.Timer(0.2, stop.set).start()
    start = time.monotonic()
    assert source.read(5, 60).payloads == []
    assert time.monotonic() - start < 10


def test_rotation_reads_the_rest_first_also_what_comes_late(tmp_path):
    path, old = tmp_path / "events.jsonl", tmp_path / "events.jsonl.1"
    path.write_bytes(b"1\n")
    source = started(path)
    assert rest(source)[0] == [b"1"]
    path.rename(old)
    path.touch()  # as logrotate's `create` does: the writer goes over to it later
    append(old, b"2\n")
    assert rest(source)[0] == [b"2"]
    append(old, b"3\nlast")
    append(path, b"4\n")
    got, batch = rest(source)
    assert got == [b"3", b"last", b"4"]
    assert json.loads(batch.offset)["mark"]["inode"] == path.stat().st_ino


@pytest.mark.parametrize("name", ["events.jsonl.1", "events.jsonl-20261130", "kept"])
def test_rotation_while_nobody_looked(tmp_path, name):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"1\n2\n3\n")
    source = started(path)
    offset = source.read(1, 0).offset
    source.close()
    path.rename(tmp_path / name)
    append(path, b"4\n")
    source = started(path, offset=offset)
    batch = source.read(10, 0)
    assert batch.payloads == [b"2", b"3"] and batch.places == [f"{tmp_path / name} line {k}" for k in (2, 3)]
    batch = source.read(10, 0)
    assert batch.payloads == [b"4"] and batch.places == [f"{path} line 1"] and "rotated" in batch.notes[0]
    assert source.counts == {"restarts": 0}


def test_a_rotated_file_that_was_packed_meanwhile_is_found_by_what_is_in_it(tmp_path):
    path = tmp_path / "events.jsonl"
    lines = [b"line %030d" % k for k in range(100)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    offset = started(path).read(40, 0).offset
    (tmp_path / "events.jsonl.2.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    path.write_bytes(b"new\n")
    assert rest(started(path, offset=offset))[0] == [*lines[40:], b"new"]


def test_copytruncate_is_found_in_the_copy(tmp_path):
    path, copy = tmp_path / "events.jsonl", tmp_path / "events.jsonl.1"
    lines = [b"line %030d" % k for k in range(10)]
    path.write_bytes(b"\n".join(lines[:5]) + b"\n")
    source = started(path)
    assert source.read(3, 0).payloads == lines[:3]
    append(path, b"\n".join(lines[5:]) + b"\n")
    shutil.copyfile(path, copy)
    os.truncate(path, 0)
    append(path, b"new\n")
    assert rest(source)[0] == [*lines[3:], b"new"]
    assert source.counts == {"restarts": 0}


@pytest.mark.parametrize("new", [b"", b"9\n", b"a long new line, longer than what was there before\n"])
def test_a_cut_or_rewritten_file_is_read_from_its_start_and_that_is_said(tmp_path, new):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"1\n2\n3\n")
    source = started(path)
    got, batch = rest(source)
    path.write_bytes(new)
    for reader in (started(path, offset=batch.offset), source):
        batch = reader.read(5, 0)
        assert batch.payloads == new.splitlines()
        assert reader.counts == {"restarts": 1} and "up to line 3" in batch.notes[0]
        assert json.loads(batch.offset)["counts"] == {"restarts": 1}


def test_a_file_that_comes_back_under_another_inode_goes_on(tmp_path):
    path = tmp_path / "events.jsonl"
    lines = [b"line %030d" % k for k in range(10)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    offset = started(path).read(4, 0).offset
    shutil.copyfile(path, tmp_path / "copy")
    (tmp_path / "copy").replace(path)
    assert rest(started(path, offset=offset))[0] == lines[4:]


def test_a_source_that_is_given_another_file_starts_at_its_start_and_says_so(tmp_path):
    path, other = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    path.write_bytes(b"1\n2\n3\n")
    offset = started(path).read(2, 0).offset
    (tmp_path / "new.jsonl.1").write_bytes(b"not asked for\n")
    other.write_bytes(b"8\n9\n")
    source = started(other, offset=offset)
    batch = source.read(5, 0)
    assert batch.payloads == [b"8", b"9"] and source.counts == {"restarts": 1} and len(batch.notes) == 1


def test_a_source_whose_file_has_moved_goes_on(tmp_path):
    path, other = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    lines = [b"line %030d" % k for k in range(10)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    offset = started(path).read(4, 0).offset
    path.rename(other)
    assert rest(started(other, offset=offset))[0] == lines[4:]


def test_files_beside_that_are_no_use_are_passed_over(tmp_path):
    path = tmp_path / "events.jsonl"
    lines = [b"line %030d" % k for k in range(10)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    offset = started(path).read(4, 0).offset
    path.rename(tmp_path / "events.jsonl.5")
    (tmp_path / "events.jsonl.4").mkdir()
    (tmp_path / "events.jsonl.1.gz").write_bytes(gzip.compress(b"x" * 100_000)[:60])
    os.utime(tmp_path / "events.jsonl.1.gz", (1, 1))
    (tmp_path / "events.jsonl.dead").write_bytes(b"not a rotated file\n")
    os.mkfifo(tmp_path / "events.jsonl.2")
    before = len(os.listdir("/proc/self/fd"))
    source = started(path, offset=offset)
    assert rest(source)[0] == lines[4:]
    path.write_bytes(b"new\n")
    assert rest(source)[0] == [b"new"]
    source.close()
    (tmp_path / "events.jsonl.5").unlink()
    source = started(path, offset=offset)  # looks at all of them for what was in the one that is gone
    assert rest(source)[0] == [b"new"] and source.counts == {"restarts": 1}
    source.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_the_file_is_gone_the_first_one_written_since_comes_next(tmp_path):
    path = tmp_path / "events.jsonl"
    for k, name in enumerate(("events.jsonl.3", "events.jsonl", "events.jsonl.2", "events.jsonl.1")):
        (tmp_path / name).write_bytes(b"line %030d\n" % k)
        os.utime(tmp_path / name, (k, k))
    offset = started(path).read(4, 0).offset
    path.unlink()
    source = started(path, offset=offset)
    assert rest(source)[0] == [b"line %030d" % k for k in (2, 3)]
    path.write_bytes(b"line 4\n")
    assert rest(source)[0] == [b"line 4"] and source.counts == {"restarts": 1}


def test_a_file_that_was_read_and_is_being_packed_is_not_read_again(tmp_path):
    """logrotate packs the file before last at the moment of the rotation: until that is done, its time is now."""
    path, old, older = (tmp_path / f"events.jsonl{end}" for end in ("", ".1", ".2"))
    for file, text in ((older, b"1\n"), (old, b"2\n"), (path, b"")):
        file.write_bytes(text * 20)
    os.utime(older, (1, 1))
    source = FileSource(str(path), True)
    source.begin(None)
    append(path, b"3\n" * 20)
    assert len(rest(source)[0]) == 20
    older.rename(tmp_path / "events.jsonl.3")
    old.rename(older)
    path.rename(old)
    path.write_bytes(b"4\n")
    (tmp_path / "events.jsonl.2.gz").write_bytes(gzip.compress(b"2\n" * 20)[:-9])
    assert rest(source)[0] == [b"4"]


def test_a_writer_that_goes_on_at_its_old_place_after_the_cut(tmp_path):
    path = tmp_path / "f"
    with open(path, "wb", buffering=0) as file:
        file.write(b"1\n")
        source = started(path)
        assert source.read(5, 0).payloads == [b"1"]
        os.truncate(path, 0)
        file.write(b"22\n")
        assert path.read_bytes() == b"\0\0" + b"22\n"
        assert source.read(5, 0).payloads == [b"22"]


def test_a_line_that_is_too_long_is_bad_and_the_rest_goes_on(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"1\n" + b"x" * 5000 + b"\n2\n" + b"y" * 3000)
    source = started(path, follow=False, longest=2000)
    batch = source.read(10, 0)
    assert batch.payloads == [b"1", b"2"] and [b.place for b in batch.bad] == [f"{path} line 2"]
    assert batch.bad[0].start == b"x" * 1024 and "5000 bytes" in batch.bad[0].why
    batch = source.read(10, 0)
    assert [b.place for b in batch.bad] == [f"{path} line 4"] and batch.ended
    assert started(path, offset=batch.offset, longest=2000).read(5, 0).bad == []


def test_gzip_is_read_to_its_end_and_gone_on_with(tmp_path):
    path = tmp_path / "events.jsonl.gz"
    lines = [b"%d" % k for k in range(50_000)]
    path.write_bytes(gzip.compress(b"\n".join(lines)))
    source = started(path)
    batch = source.read(20_000, 0)
    assert source.lag is None
    got, last = rest(started(path, offset=batch.offset), most=7000)
    assert batch.payloads + got == lines and last.ended


def test_a_damaged_gzip_file_is_an_error_after_what_is_good(tmp_path):
    path = tmp_path / "events.jsonl.gz"
    path.write_bytes(gzip.compress(os.urandom(3_000_000).hex().encode())[:-2000])
    with pytest.raises(SourceError, match="damaged or not complete"):
        rest(started(path))


def test_what_cannot_be_read_is_an_error_that_names_it(tmp_path):
    (tmp_path / "wide").write_bytes("{}".encode("utf-16"))
    with pytest.raises(SourceError, match=r"wide: the text is UTF-16"):
        rest(started(tmp_path / "wide"))
    with pytest.raises(SourceError, match="directory"):
        started(tmp_path)
    for offset in (b"{}", b"?", b'{"kind":"redis"}', b"[1]"):
        with pytest.raises(SourceError, match="must be of a source of type file"):
            started(tmp_path / "wide", offset=offset)


def test_files_are_let_go(tmp_path):
    path = tmp_path / "f"
    before = len(os.listdir("/proc/self/fd"))
    path.write_bytes(b"a line of more than thirty-two bytes, 0\n")
    source = started(path)
    for k in range(1, 20):
        rest(source)
        path.rename(tmp_path / f"f.{100 - k}")
        path.write_bytes(b"a line of more than thirty-two bytes, %d\n" % k)
        source = started(path, offset=source.read(5, 0).offset) if k % 3 == 0 and not source.close() else source
    source.close()
    assert len(os.listdir("/proc/self/fd")) == before


class Rotated(RuleBasedStateMachine):
    """A writer that rotates, cuts and packs, a reader that is killed and begins at what was kept: against the list of lines."""

    @initialize()
    def start(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "events.jsonl")
        self.clock = 10**18
        self.number = self.rotations = 0
        self.lines: list[bytes] = []
        self.part = b""
        self.size = 0
        Path(self.path).touch()
        self.tick(self.path)
        self.kept: list[bytes] = []
        self.source = FileSource(self.path, True)
        self.source.begin(None)
        self.offset = self.source.read(1, 0).offset

    def teardown(self):
        if hasattr(self, "source"):
            self.everything_comes_once_in_order()
            self.source.close()
            self.folder.cleanup()

    def tick(self, path):
        """Files are written at times that differ, as on a clock that is finer than the writer."""
        self.clock += 10**9
        os.utime(path, ns=(self.clock, self.clock))

    def text(self):
        self.number += 1
        return b"%040d" % self.number

    @rule(count=st.integers(1, 5), end=st.sampled_from([b"\n", b"\r\n", b"\n\n"]), part=st.integers(0, 39))
    def write(self, count, end, part):
        new = [self.text() for _ in range(count)]
        begun = self.text()[:part]
        data = b"".join(line + end for line in new) + begun
        append(self.path, data)
        self.lines += [self.part + new[0], *new[1:]]
        self.part = begun
        self.size += len(data)
        self.tick(self.path)

    @rule(most=st.integers(1, 6), keep=st.booleans())
    def read(self, most, keep):
        batch = self.source.read(most, 0)
        assert len(batch.payloads) <= most
        if keep:
            self.keep(batch)
        else:
            self.killed()

    def keep(self, batch):
        self.kept += batch.payloads
        self.offset = batch.offset

    @rule()
    def killed(self):
        self.source.close()
        self.source = FileSource(self.path, True)
        self.source.begin(self.offset)

    def rotated(self):
        if self.part:  # nobody will finish it
            self.lines.append(self.part)
        self.part, self.size = b"", 0
        self.rotations += 1

    @precondition(lambda self: self.size > 0)
    @rule(create=st.booleans())
    def rename(self, create):
        os.rename(self.path, f"{self.path}.{self.rotations:04d}")
        self.rotated()
        if create:
            Path(self.path).touch()
            self.tick(self.path)

    @precondition(lambda self: self.size > 0)
    @rule()
    def copy_and_truncate(self):
        copy = f"{self.path}.{self.rotations:04d}"
        self.keep(self.source.read(1, 0))  # a file that was never seen with something in it can not be known again
        shutil.copyfile(self.path, copy)
        self.tick(copy)
        os.truncate(self.path, 0)
        self.tick(self.path)
        self.rotated()

    @precondition(lambda self: self.rotations > 0)
    @rule()
    def pack(self):
        """As gzip does: with the time of the file that is packed."""
        plain = f"{self.path}.{self.rotations - 1:04d}"
        if os.path.exists(plain):
            seen = os.stat(plain)
            Path(plain + ".gz").write_bytes(gzip.compress(Path(plain).read_bytes()))
            os.utime(plain + ".gz", ns=(seen.st_mtime_ns, seen.st_mtime_ns))
            os.unlink(plain)

    @rule()
    def everything_comes_once_in_order(self):
        if self.size == 0:  # until the new file is in use, the old one may go on
            append(self.path, line := self.text() + b"\n")
            self.lines.append(line[:-1])
            self.size = len(line)
            self.tick(self.path)
        before = None
        while before != self.offset:
            before = self.offset
            self.keep(self.source.read(7, 0))
        assert self.kept == self.lines
        assert self.source.counts == {"restarts": 0}


TestRotated = Rotated.TestCase
TestRotated.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_killed_while_it_reads_a_file_that_is_written_and_rotated(tmp_path):
    """A real process that is killed at any moment."""
    path, written = tmp_path / "events.jsonl", 0

    def write():
        nonlocal written
        with open(path, "ab") as file:
            for _ in range(40):
                file.write(b"%040d\n" % written)
                written += 1
        if written % 1000 == 0 and (tmp_path / "kept").exists():
            path.rename(tmp_path / f"events.jsonl.{written:09d}")
        time.sleep(0.01)

    offset, kept = killed(tmp_path, "FileSource", (str(path), True), write)
    append(path, b"%040d\n" % written)
    got, _ = rest(started(path, offset=offset))
    assert written > 1000, "the test must rotate"
    assert kept + [int(x) for x in got] == list(range(written + 1))


# pipes


def test_a_named_pipe_is_read_and_numbers_go_on(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    source = FromFile("events", path=str(path)).open(False, Stop())
    assert isinstance(source, PipeSource) and source.lag is None
    source.begin(b'{"kind":"pipe","line":10}')
    assert source.read(5, 0.01).payloads == []
    with open(path, "wb", buffering=0) as pipe:
        pipe.write(b"1\n2\n3")
        batch = source.read(5, 20)
        assert batch.payloads == [b"1", b"2"] and batch.places == [f"{path} line 11", f"{path} line 12"]
        assert not batch.ended
        pipe.write(b"3\n4")
        assert source.read(5, 20).payloads == [b"33"]
    batch = source.read(5, 20)
    assert batch.payloads == [b"4"] and batch.ended and json.loads(batch.offset)["line"] == 14
    source.acknowledge(batch)
    source.close()


def test_stdin_is_read_line_by_line_and_the_writer_waits():
    code = (
        "import sys, time; from streamcal.monitor.sources.file import PipeSource\n"
        "f = PipeSource('-', longest=1000); f.begin(None); n = bad = 0\n"
        "time.sleep(.5)\n"
        "while True:\n"
        "    b = f.read(1000, 5); n += len(b.payloads); bad += len(b.bad)\n"
        "    assert f.pipe.arrived.qsize() <= 64\n"
        "    if b.ended: break\n"
        "print(n, bad, b.places[-1])"
    )
    text = b"".join(b"%d\n" % k for k in range(500_000)) + b"x" * 40_000_000 + b"\nlast"
    out = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, check=True, cwd=ROOT)
    assert out.stdout.split() == [b"500001", b"1", b"stdin", b"line", b"500002"]


def test_a_pipe_that_cannot_be_opened_is_an_error(tmp_path):
    source = PipeSource(str(tmp_path / "nothing"))
    source.begin(None)
    with pytest.raises(SourceError, match="No such file"):
        source.read(5, 5)


# the way in


def test_a_source_opens_its_feed(tmp_path):
    source = FromFile("events", path=str(tmp_path / "x")).open(True, Stop())
    assert isinstance(source, FileSource) and source.follow
    assert isinstance(FromStdin("events").open(False, Stop()), PipeSource)


@pytest.mark.parametrize(("kind", "package"), [("kafka", "confluent_kafka"), ("redis", "redis")])
def test_a_missing_extra_says_what_to_install(kind, package):
    keys = {"kafka": {"brokers": "a", "topic": "b"}, "redis": {"url": "redis://a", "stream": "b"}}[kind]
    table = {"type": kind, **keys}
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from streamcal.monitor.config.config import from_document; from streamcal.reading import SourceError\n"
        f"source, = from_document({{'models': {{'m': {{}}}}, 'sources': {{'s': {table}}}}}).sources\n"
        "try: source.open(True, None)\n"
        "except SourceError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert f'pip install "streamcal-engine[{kind}]"' in out.stdout


def test_an_outage_is_said_once_after_some_seconds_and_once_when_it_is_over():
    outage = Outage("redis a:1", patience=0.05)
    assert outage.away("refused") == [] and outage.on
    time.sleep(0.06)
    assert outage.away("refused")[0].startswith("redis a:1: no answer for 0 s")
    assert outage.away("refused") == []
    assert "answers again" in outage.back()[0] and not outage.on
    assert outage.away("refused") == [] and outage.back() == [], "a short one is not worth a word"


def test_tries_go_on_until_time_is_over_and_at_least_once():
    assert list(Stop().tries(0)) == [0.0]
    start = time.monotonic()
    assert len([time.sleep(0.03) for _ in Stop().tries(0.1)]) >= 3
    assert 0.1 <= time.monotonic() - start < 5
    assert decoded(b'{"kind":"a"}', "a", "x") == {"kind": "a"}


def test_secrets_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("REDIS_AT", "redis://:secret@127.0.0.1:1/0")
    monkeypatch.delenv("NOT_SET", raising=False)
    pytest.importorskip("redis")
    FromRedis("q", url_env="REDIS_AT", stream="s").open(False, Stop()).close()
    with pytest.raises(SourceError, match="environment variable NOT_SET must be set"):
        FromRedis("q", url_env="NOT_SET", stream="s").open(False, Stop())
    pytest.importorskip("confluent_kafka")
    kafka = FromKafka("b", brokers="127.0.0.1:1", topic="t", options=(("sasl.password", "env:NOT_SET"),))
    with pytest.raises(SourceError, match="NOT_SET"):
        kafka.open(False, Stop())
    for options, said in (
        ((("enable.auto.commit", True),), "must not hold enable.auto.commit"),
        ((("no.such", 1),), "no.such"),
    ):
        with pytest.raises(SourceError, match=said):
            dataclasses.replace(kafka, options=options).open(False, Stop())
