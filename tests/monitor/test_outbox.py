"""Lines in files exactly once, whatever happens in between; what is printed; the state of the outbox."""

from __future__ import annotations

import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import some
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamcal.monitor.config.settings import Rule
from streamcal.monitor.rules.rule import Alert, Evaluation, alert_document
from streamcal.monitor.sinks.outbox import AppendFile, Outbox, OutboxError, Place, place_of
from streamcal.monitor.sinks.registry import ToFile, ToStdout
from streamcal.monitor.store import Store

STDOUT, FILE = ToStdout("log"), "alerts.jsonl"


def document(episode=1, kind="firing", segment="country=at", at=600.0):
    rule = Rule("gap", metric="k1", window="day", above=0.05, runbook="https://wiki.example/1")
    return alert_document(rule, Alert(kind, episode, 0.0, at, Evaluation(0.09, 0.07, 0.11, 900)), "churn", "7", segment)


def saved_and_written(outbox, now=0.0):
    outbox.to_bytes()
    outbox.deliver(now)


class Twin:
    """An appended file with its history: what was committed, and the files that were rotated away."""

    def __init__(self, folder, initial):
        self.path = f"{folder}/lines"
        self.committed, self.fresh, self.count, self.rotated, self.theirs = [], [], 0, [], initial
        if initial:
            Path(self.path).write_bytes(initial)
        self.file = AppendFile(place_of(self.path))
        self.state = self.file.place, b""

    def add(self, sizes):
        lines = []
        for size in sizes:
            self.count += 1
            lines.append(b"%d:" % self.count + b"x" * size)
        self.file.add(lines)
        self.fresh += lines

    def commit(self, _=None):
        self.state = self.file.place, self.file.lines
        self.file.saved()
        self.committed, self.fresh = self.committed + self.fresh, []

    def write(self, _=None):
        self.file.write()

    def crash(self, share):
        """In the midst of a write: so much of what it would have written is there."""
        size = os.path.getsize(self.path) if os.path.exists(self.path) else 0
        self.file.write()
        if os.path.exists(self.path):
            os.truncate(self.path, size + int(share * (os.path.getsize(self.path) - size)))
        self.file, self.fresh = AppendFile(*self.state), []

    def rename(self, _):
        if os.path.exists(self.path):
            self.rotated.append(f"{self.path}.{len(self.rotated)}")
            os.rename(self.path, self.rotated[-1])

    def copytruncate(self, _):
        if os.path.exists(self.path):
            self.rotated.append(f"{self.path}.{len(self.rotated)}")
            shutil.copy(self.path, self.rotated[-1])
            os.truncate(self.path, 0)

    def foreign(self, text):
        self.theirs += text
        with open(self.path, "ab") as f:
            f.write(text)

    def content(self):
        return Path(self.path).read_bytes() if os.path.exists(self.path) else b""

    def finish(self):
        for _ in range(3):  # the second and third only where the place has moved
            self.commit()
            self.write()
        assert self.file.lines == b"" and self.file.pending == 0


SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=4)
OURS = [
    st.tuples(st.just("add"), SIZES),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("write"), st.none()),
]
CRASH = [st.tuples(st.just("crash"), st.sampled_from([0.0, 0.3, 0.7, 1.0]) | st.floats(0, 1))]
OTHERS = [
    st.tuples(st.just("rename"), st.none()),
    st.tuples(st.just("copytruncate"), st.none()),
    st.tuples(st.just("foreign"), st.sampled_from([b"y\n", b"half", b"\n", b"y" * 200 + b"\n"])),
]


@given(st.lists(st.one_of(OURS + CRASH), max_size=40), st.sampled_from([b"", b"before\n"]))
@settings(max_examples=300)
def test_a_line_is_there_exactly_once_whatever_byte_it_crashes_at(steps, initial):
    with tempfile.TemporaryDirectory() as folder:
        twin = Twin(folder, initial)
        for name, value in steps:
            getattr(twin, name)(value)
            assert (initial + b"".join(line + b"\n" for line in twin.committed)).startswith(twin.content())
        twin.finish()
        assert twin.content() == initial + b"".join(line + b"\n" for line in twin.committed)


@given(st.lists(st.one_of(OURS + OTHERS), max_size=40), st.sampled_from([b"", b"before\n", b"half"]))
@example([("add", [1]), ("commit", None), ("write", None), ("foreign", b"half"), ("add", [1])], b"half")
@settings(max_examples=300)
def test_rotated_or_touched_by_others_each_line_is_there_exactly_once(steps, initial):
    with tempfile.TemporaryDirectory() as folder:
        twin = Twin(folder, initial)
        for name, value in steps:
            getattr(twin, name)(value)
        twin.finish()
        lines = b"\n".join([*(Path(path).read_bytes() for path in twin.rotated), twin.content()]).split(b"\n")
        assert [line for line in lines if b":" in line] == twin.committed
        kept = b"".join(line for line in lines if b":" not in line)
        assert kept == twin.theirs.replace(b"\n", b"")  # nothing of theirs was overwritten


@given(st.lists(st.one_of(OURS + CRASH + OTHERS), max_size=40))
@settings(max_examples=300)
def test_rotated_and_crashed_no_line_is_lost(steps):
    with tempfile.TemporaryDirectory() as folder:
        twin = Twin(folder, b"")
        for name, value in steps:
            getattr(twin, name)(value)
        twin.finish()
        lines = set(b"\n".join([*(Path(path).read_bytes() for path in twin.rotated), twin.content()]).split(b"\n"))
        assert lines.issuperset(twin.committed)


def test_what_was_not_saved_is_not_written(tmp_path):
    path = str(tmp_path / "audit.jsonl")
    outbox = Outbox(())
    outbox.append(path, [b"one"])
    outbox.deliver(0.0)
    assert not os.path.exists(path)
    outbox.to_bytes()
    outbox.append(path, [b"two"])
    outbox.deliver(0.0)
    assert Path(path).read_bytes() == b"one\n"
    saved_and_written(outbox)
    assert Path(path).read_bytes() == b"one\ntwo\n"


def test_changed_says_when_there_is_something_to_save(tmp_path):
    outbox = Outbox((STDOUT, ToFile("alerts", path=str(tmp_path / FILE))))
    assert not outbox.changed
    outbox.alert(document(), ("alerts",))
    assert outbox.changed and outbox.undelivered == {"log": 0, "alerts": 1}
    outbox.to_bytes()
    assert not outbox.changed
    outbox.deliver(0.0)
    assert outbox.changed and outbox.undelivered == {"log": 0, "alerts": 0}
    assert not Outbox((STDOUT,), outbox.to_bytes()).changed


def test_an_alert_goes_to_the_sinks_that_are_named_or_to_all(tmp_path, capsys):
    outbox = Outbox((STDOUT, ToFile("alerts", path=str(tmp_path / FILE))))
    outbox.alert(document(1))
    outbox.alert(document(2), ("alerts", "alerts"))
    saved_and_written(outbox)
    assert [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()] == [document(1), document(2)]
    assert json.loads(capsys.readouterr().out) == document(1)


def test_a_wrong_sink_or_document_or_line_is_refused():
    outbox = Outbox((STDOUT,))
    with pytest.raises(ValueError, match=r"sinks must be of log, got ops"):
        outbox.alert(document(), ("ops",))
    with pytest.raises(ValueError, match="not right: severity"):
        outbox.alert({k: v for k, v in document().items() if k != "severity"})
    with pytest.raises(ValueError, match="kind 'gone'"):
        outbox.alert(document() | {"kind": "gone"})
    for line in (b"", b"one\ntwo"):
        with pytest.raises(ValueError, match="must hold bytes and no line feed"):
            outbox.append("audit.jsonl", [b"good", line])
    assert outbox.undelivered == {"log": 0}
    outbox.deliver(0.0)
    assert not os.path.exists("audit.jsonl")


def test_printed_at_least_once_and_kept_when_the_pipe_is_broken(capsys, monkeypatch):
    outbox = Outbox((STDOUT,))
    outbox.alert(document(1))
    state = outbox.to_bytes()
    read, write = os.pipe()
    os.close(read)
    with monkeypatch.context() as patch, pytest.raises(OutboxError, match=r"stdout: .*Broken pipe.*1 alerts"):
        patch.setattr(sys, "stdout", io.TextIOWrapper(os.fdopen(write, "wb", buffering=0), write_through=True))
        outbox.deliver(0.0)
    assert outbox.undelivered == {"log": 1}
    outbox.deliver(0.0)
    assert outbox.undelivered == {"log": 0}
    Outbox((STDOUT,), state).deliver(0.0)  # killed before the next transaction
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [document(1)] * 2


@pytest.mark.parametrize("saved", [b"", b"{}\n", b"nonsense", b'{"outbox": 1, "files": [], "sinks": {}}\n', b"[1]\n"])
def test_a_state_that_is_none_is_refused(saved):
    with pytest.raises(OutboxError, match="can not be read"):
        Outbox((), saved)


def test_a_state_that_was_cut_is_refused(tmp_path):
    outbox = Outbox(())
    outbox.append(str(tmp_path / "x"), [b"one"])
    with pytest.raises(OutboxError, match="lines complete"):
        Outbox((), outbox.to_bytes()[:-1])


def test_lines_may_be_any_bytes(tmp_path):
    line = bytes(set(range(256)) - {10})
    outbox = Outbox(())
    outbox.append(str(tmp_path / "x"), [line])
    Outbox((), outbox.to_bytes()).deliver(0.0)
    assert (tmp_path / "x").read_bytes() == line + b"\n"


def test_a_file_that_fails_is_named_others_get_theirs_and_nothing_is_lost(tmp_path):
    good, missing, folder = tmp_path / "good", tmp_path / "no" / "audit", tmp_path / "folder"
    folder.mkdir()
    outbox = Outbox(())
    for path in (missing, folder, good):
        outbox.append(str(path), [b"one"])
    outbox.to_bytes()
    with pytest.raises(OutboxError) as error:
        outbox.deliver(0.0)
    assert f"{missing}: No such file" in str(error.value) and f"{folder}: Is a directory; 1 lines" in str(error.value)
    assert good.read_bytes() == b"one\n"
    missing.parent.mkdir()
    folder.rmdir()
    for _ in range(2):
        saved_and_written(outbox)
    assert missing.read_bytes() == folder.read_bytes() == b"one\n"


@contextmanager
def without_rights():
    """As a user who is not root, where this is root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_permission_denied_names_the_file_and_keeps_the_lines():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "audit"
        path.write_bytes(b"old\n")
        path.chmod(0o444)
        outbox = Outbox(())
        outbox.append(str(path), [b"one"])
        outbox.to_bytes()
        with without_rights(), pytest.raises(OutboxError, match=r"audit: Permission denied; 1 lines for it are kept"):
            outbox.deliver(0.0)
        assert path.read_bytes() == b"old\n"
        path.chmod(0o644)
        outbox.deliver(0.0)
        assert path.read_bytes() == b"old\none\n"


@contextmanager
def files_no_larger_than(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_may_not_grow_is_torn_then_completed(tmp_path):
    path = tmp_path / "audit"
    outbox = Outbox(())
    outbox.append(str(path), [b"a" * 600, b"b" * 600])
    state = outbox.to_bytes()
    with files_no_larger_than(1000), pytest.raises(OutboxError, match="audit: File too large; 2 lines"):
        outbox.deliver(0.0)
    assert path.read_bytes() == b"a" * 600 + b"\n" + b"b" * 399
    outbox.append(str(path), [b"c"])
    for one in (Outbox((), state), outbox, outbox):  # also by another process from the saved state
        one.to_bytes()
        one.deliver(0.0)
    assert path.read_bytes() == b"a" * 600 + b"\n" + b"b" * 600 + b"\nc\n"


def test_a_full_disk_keeps_the_lines(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("a small disk can only be mounted by root")
    try:
        outbox = Outbox(())
        outbox.append(str(disk / "audit"), [b"x" * 1000] * 30, durable=True)
        outbox.to_bytes()
        with pytest.raises(OutboxError, match="audit: No space left on device; 30 lines"):
            outbox.deliver(0.0)
        subprocess.run(["mount", "-o", "remount,size=64k", disk], check=True)
        outbox.deliver(0.0)
        assert (disk / "audit").read_bytes() == (b"x" * 1000 + b"\n") * 30
    finally:
        subprocess.run(["umount", disk], check=True)


def test_only_ordinary_files_are_taken(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", str(tmp_path / "pipe")):
        outbox = Outbox(())
        outbox.append(path, [b"one"])
        outbox.to_bytes()
        with pytest.raises(OutboxError, match=f"{path}: must be an ordinary file"):
            outbox.deliver(0.0)


def test_a_place_before_the_line_ends_is_not_glued(tmp_path):
    path = tmp_path / "audit"
    path.write_bytes(b"half")
    file = AppendFile(Place(str(path), 4), b"one\n")
    file.write()
    assert path.read_bytes() == b"half" and file.changed
    file.saved()
    file.write()
    assert path.read_bytes() == b"half\none\n"


def test_a_place_behind_the_end_leaves_no_hole(tmp_path):
    path = tmp_path / "audit"
    path.write_bytes(b"2")
    file = AppendFile(Place(str(path), 4), b"\none\n")
    for _ in range(2):
        file.write()
        file.saved()
    assert path.read_bytes() == b"2\none\n"


def test_a_new_place_is_saved_before_anything_is_written_there(tmp_path):
    path = tmp_path / "audit"
    outbox = Outbox(())
    outbox.append(str(path), [b"one"])
    saved_and_written(outbox)
    outbox.append(str(path), [b"two"])
    before = outbox.to_bytes()
    path.write_bytes(b"x\n")  # truncated, and another has written
    for one in (outbox, Outbox((), before)):
        one.deliver(0.0)
        one.deliver(0.0)
        assert path.read_bytes() == b"x\n" and one.changed
    state = outbox.to_bytes()
    for one in (outbox, Outbox((), state), Outbox((), state)):  # killed after the write, before the next transaction
        one.deliver(0.0)
        assert path.read_bytes() == b"x\ntwo\n"


def test_a_copy_in_its_place_is_as_good_as_the_file(tmp_path):
    path = tmp_path / "audit"
    outbox = Outbox(())
    outbox.append(str(path), [b"one"])
    state = outbox.to_bytes()
    outbox.deliver(0.0)
    shutil.copy(path, tmp_path / "copy")
    os.replace(tmp_path / "copy", path)  # as an editor does
    Outbox((), state).deliver(0.0)
    assert path.read_bytes() == b"one\n"


CHILD = """
import os, sys
from streamcal.monitor.sinks.outbox import Outbox
from streamcal.monitor.sinks.registry import ToFile
from streamcal.monitor.store import Store
from test_outbox import document

folder, most = sys.argv[1], int(sys.argv[2])
store = Store(folder + "/state.db")
sinks = (ToFile("alerts", path=folder + "/alerts.jsonl"),)
outbox, n = Outbox(sinks, store.get("outbox")), int(store.get("n") or 0)
print("ready", flush=True)
while most < 0 or n < most:
    with store.transaction():
        outbox.append(folder + "/audit", [b"%d " % (n * 3 + k) + b"x" * 200_000 for k in range(3)])
        outbox.alert(document(n))
        n += 1
        store.put("n", b"%d" % n)
        store.put("outbox", outbox.to_bytes())
    print("committed", flush=True)
    outbox.deliver(0.0)
with store.transaction():
    store.put("outbox", outbox.to_bytes())
outbox.deliver(0.0)
"""


@pytest.mark.servers
def test_killed_at_random_moments_each_line_is_there_once(tmp_path):
    (tmp_path / "child.py").write_text(CHILD)
    path = os.pathsep.join(str(Path(__file__).parents[up]) for up in range(3))
    command = [sys.executable, str(tmp_path / "child.py"), str(tmp_path)]
    draw, begun = random.Random(1), []
    kills = (2, 1, 0, 1, 0, 1, 2, 1)[: some(8)]
    for commits in kills:
        with subprocess.Popen([*command, "-1"], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}) as child:
            assert child.stdout.readline() == b"ready\n"
            for _ in range(commits):  # however slow the machine is, it gets on between the kills
                assert child.stdout.readline() == b"committed\n"
            try:
                child.wait(draw.uniform(0.0, 0.06))
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
        store = Store(tmp_path / "state.db")
        begun.append(int(store.get("n") or 0))
        store.close()
    most = begun[-1] + 1
    subprocess.run([*command, str(most)], check=True, capture_output=True, env=os.environ | {"PYTHONPATH": path})
    with open(tmp_path / "audit", "rb") as f:
        assert f.read() == b"".join(b"%d " % k + b"x" * 200_000 + b"\n" for k in range(3 * most))
    alerts = [json.loads(line) for line in (tmp_path / "alerts.jsonl").read_text().splitlines()]
    assert alerts == [document(n) for n in range(most)]
    assert most > sum(kills)  # it did get on between the kills
