"""Until when to wait for more: a flag that a signal sets, and patience."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any


class Stop:
    """A flag that a signal handler may set: an Event would wait for its own lock where it interrupts a wait."""

    asked = False

    def set(self) -> None:
        """Ask to stop."""
        self.asked = True

    def wait(self, seconds: float) -> None:
        """Sleep so long, or until asked (looked at every twentieth of a second)."""
        end = time.monotonic() + seconds
        while not self.asked and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))

    def tries(self, seconds: float) -> Iterator[float]:
        """The seconds that are left, again and again, at least once, until they are over or somebody asked."""
        end = time.monotonic() + seconds
        yield seconds
        while not self.asked and (left := end - time.monotonic()) > 0:
            yield left


@dataclass
class Patience:
    """How long to wait for more: until `stop` is set, or nothing came for `idle` seconds."""

    stop: Stop = field(default_factory=Stop)
    idle: float = math.inf
    poll: float = 0.1
    since: float = field(default_factory=time.monotonic)

    def fed(self) -> None:
        """Something came."""
        self.since = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether to stop waiting."""
        return self.stop.asked or time.monotonic() - self.since > self.idle


@contextmanager
def signals(stop: Stop) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM asks the reading to stop, a second one is not caught.

    Only a flag is set: an exception could strike between an event's sums and its count. Outside of the main thread, where
    Python allows none, nothing is caught.
    """
    before: dict[int, Any] = {}

    def restore() -> None:
        for signum, handler in before.items():
            signal.signal(signum, handler)

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()
        restore()

    if threading.current_thread() is threading.main_thread():
        before = {signum: signal.signal(signum, ask) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        restore()


@contextmanager
def stopped_as_errors() -> Iterator[None]:
    """SIGTERM and SIGHUP end what runs as an exception does, so that what is half written can go; the exit code is the shell's.

    Only where they would end the process without a word: a signal that is ignored (nohup) or caught stays so.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    ends = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    inside = threading.current_thread() is threading.main_thread()
    taken = [number for number in ends if inside and signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
