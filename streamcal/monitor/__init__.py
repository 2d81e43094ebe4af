"""The monitor: predictions meet their delayed labels, windows and detectors read them, rules decide what is said.

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
    "Config": "config.config",
    "ConfigError": "config.config",
    "Monitor": "monitor",
    "MonitorWarning": "monitor",
    "StoreError": "store",
    "Taken": "monitor",
    "check": "config.config",
    "load": "config.config",
    "parse": "config.config",
}

__all__ = ["Config", "ConfigError", "Monitor", "MonitorWarning", "StoreError", "Taken", "check", "load", "parse"]


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
