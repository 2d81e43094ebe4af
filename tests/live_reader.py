"""A reader of a source in a process of its own, killed at any moment; what it keeps is one file that is replaced whole."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CODE = """
import json, os
from streamcal.monitor.sources.{module} import {kind}
path = {kept!r}
kept = json.load(open(path)) if os.path.exists(path) else dict(offset=None, got=[])
source = {kind}(*{arguments!r})
source.begin(kept["offset"] and kept["offset"].encode())
while True:
    batch = source.read(40, 1)
    kept["offset"] = batch.offset.decode()
    kept["got"] += [int(x) for x in batch.payloads]
    with open(path + ".new", "w") as file:
        json.dump(kept, file)
    os.replace(path + ".new", path)
    source.acknowledge(batch)
"""


def killed(
    folder: Path,
    source: str,
    arguments: tuple[Any, ...],
    write: Callable[[], None],
    before_kill: Callable[[int], None] = lambda turn: None,
) -> tuple[bytes, list[int]]:
    """Read while ``write`` is called again and again, and be killed, four times: the offset and the numbers that were kept."""
    kept, module = folder / "kept", source.removesuffix("Source").lower()
    code = CODE.format(module=module, kind=source, kept=str(kept), arguments=arguments)
    for turn in range(4):
        reader = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
        end = time.monotonic() + 1.0 + 0.17 * turn
        while time.monotonic() < end or (not kept.exists() and time.monotonic() < end + 60):  # a start may take long
            write()
        before_kill(turn)
        reader.kill()
        reader.wait()
    state = json.loads(kept.read_text())
    assert state["got"], "the test must read before it is killed"
    return state["offset"].encode(), state["got"]
