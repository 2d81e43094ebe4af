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


class Stop:
    """A flag that a signal handler may set: an Event would wait for its own lock where it interrupts a wait."""

    def __init__(self) -> None:
        self.asked = False

    def set(self) -> None:
        """Ask to stop."""
        self.asked = True

    def is_set(self) -> bool:
        """Whether somebody asked."""
        return self.asked

    def wait(self, seconds: float) -> None:
        """Sleep so long, or until asked (looked at every twentieth of a second)."""
        end = time.monotonic() + seconds
        while not self.asked and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))


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
        return self.stop.is_set() or time.monotonic() - self.since > self.idle


@contextmanager
def signals(stop: Stop) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM asks the reading to stop, a second one is not caught.

    Only a flag is set: an exception could strike between an event's sums and its count. Outside of the main thread, where
    Python allows none, nothing is caught.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()
        for signum, handler in before.items():
            signal.signal(signum, handler)

    before = {signum: signal.signal(signum, ask) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
