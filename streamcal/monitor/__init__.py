"""The monitor: messages become events; the join pairs predictions with labels; pairs go into windows and detectors per segment;
rules read them; sinks are told; one transaction keeps all of it.

The files, in the order in which an event meets them:

- ``config/``: the TOML file, one frozen dataclass for each of its tables;
- ``sources/``: messages in batches, with the offset to go on from; ``live.py`` runs them for the command;
- ``messages.py``: JSON objects and arrays become events, checked once; ``events.py``: the one column type of events;
- ``monitor.py``: the one class that users see: a batch is one transaction, cut where rules are due;
- ``join/``: predictions wait for their labels; its rules are at the top of ``join/join.py``;
- ``aggregates.py``: windows by version and segment; ``detectors.py``: bets against the claims, and their alarms;
- ``rules/``: what is past its threshold for how long, and what is said then; the audit and the window summary;
- ``sinks/``: the outbox, files, webhooks;
- ``store.py``: the transaction; ``journal.py``: sums written as what happened to them; ``replay.py``: the same again, compared.

Names are loaded at first use: ``from streamcal.monitor import Monitor``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamcal.monitor.config.config import Config, ConfigError, check, load, parse
    from streamcal.monitor.monitor import Monitor, MonitorWarning, Taken
    from streamcal.monitor.store import StoreError

PLACES = {
    "config.config": ("Config", "ConfigError", "check", "load", "parse"),
    "monitor": ("Monitor", "MonitorWarning", "Taken"),
    "store": ("StoreError",),
}

__all__ = ["Config", "ConfigError", "Monitor", "MonitorWarning", "StoreError", "Taken", "check", "load", "parse"]


def __getattr__(name: str) -> Any:
    for place, names in PLACES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{place}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
