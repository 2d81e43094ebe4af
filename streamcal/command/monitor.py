"""`streamcal status` and `streamcal replay`: what a state file says, and whether an audit is true."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from streamcal.command.ending import say
from streamcal.command.report import encode
from streamcal.monitor.live import StateError, configured
from streamcal.monitor.replay import ReplayError, replay
from streamcal.monitor.rules.evaluation import counters
from streamcal.monitor.rules.flow import RULE, flow_status
from streamcal.monitor.store import Store, StoreError
from streamcal.reading import SourceError
from streamcal.reading.shown import lines, shown
from streamcal.reporting.verdict import count, short
from streamcal.times import utc

OWN = ("config", "taken", "unread", "examples", "sources", "held", "notes", "trouble")  # as they are now
WIDE = 160  # columns where no terminal says how many
SIDES = ("predictions", "labels")
PLACE = ["model", "version", "window"]
COUNTERS = ("received", "joined", "pending", "expired", "rejected", "duplicate", "conflicting", "corrected")


def status(path: str, json: bool, fail_on_firing: bool) -> int:
    """Print what is in the state file (or in that of a configuration); 1 if something fires and that is to fail."""
    state = configured(path).state if path.endswith(".toml") else path
    try:
        with Store(state, readonly=True) as store:
            found = _status(store)
    except StoreError as error:
        raise StateError(str(error)) from None
    if json:
        say(encode(found))
    else:
        _print(found)
    return 1 if fail_on_firing and found["firing"] else 0


def _status(store: Store) -> dict[str, Any]:
    """The document of the last evaluation, with the counters as they are now."""
    said = msgspec.json.decode(store.get("status") or b"{}")
    own = msgspec.json.decode(store.get("monitor") or b"{}")
    clock = store.clock
    usual: dict[str, Any] = {"type": "status", "evaluated": None, "windows": [], "firing": []}
    usual |= {"undelivered": {}, "segments": {}}
    now = {"clock": utc(clock) if abs(clock) < float("inf") else None, "models": counters(store.counters())}
    own |= flow_status(own.pop("flow")) if "flow" in own else {}
    fires = [*own.pop("firing", []), *(one for one in said.pop("firing", []) if one["rule"] != RULE)]
    trouble = [text for text in said.pop("trouble", []) if text not in said.get("notes", [])] + own.get("notes", [])
    own |= {"held": len(own.get("held", [])), "trouble": trouble}
    own = {key: own[key] for key in OWN if key in own}
    return {**usual, **said, **own, **now, "firing": fires}


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDE)
    said: list[Any] = [f"clock {found['clock'] or 'not started'}   {count(found.get('taken', 0))} events"]
    if unread := found.get("unread"):
        said.append("unread: " + ", ".join(f"{count(n)} {reason}" for reason, n in unread.items()))
        said += [f"  as in: {example}" for example in found.get("examples", {}).values()]
    for model in found["models"]:
        whose = f"{model['model']} {model['version']}".strip() or "no model"
        said += [f"{whose}: {side} {_counted(model[side])}" for side in SIDES]
    if found["windows"]:
        values = ("count", "mean_claim", "mean_outcome", "ece", "k2_debiased", "brier", "pa_ratio", "q1", "qinf")
        names = [*PLACE, *(name for name in values if any(name in row for row in found["windows"]))]
        said += [f"as of {found['evaluated']}", _table(names, found["windows"])]
    for name, n in found["segments"].items():
        if n["cap"]:
            own = f"{name}: {n['own']} of at most {n['cap']} segments have sums of their own"
            said.append(f"{own}, {count(n['overflow'])} events in other")
    if left := [f"{n} to {name}" for name, n in found["undelivered"].items() if n]:
        said.append("not yet delivered: " + ", ".join(left))
    said += found.get("trouble", [])
    for firing in found["firing"]:
        where = ", ".join(f"{key} {firing[key]}" for key in ("model", "version", "segment") if firing[key])
        said.append(f"FIRING {firing['rule']}: {where}, since {firing['since']}")
    for part in said if found["firing"] else [*said, "nothing is firing"]:
        console.print(lines(part) if isinstance(part, str) else part, markup=False)


def _counted(side: dict[str, Any]) -> str:
    """The counters that are not 0; what was rejected by reason."""
    parts = [f"{count(side[name])} {name}" for name in COUNTERS if side[name] or name == "received"]
    reasons = ", ".join(f"{reason} {count(n)}" for reason, n in side["reasons"].items())
    return ", ".join(parts) + (f" (rejected for {reasons})" if reasons else "")


def _word(value: Any) -> str:
    if isinstance(value, float):
        return count(value) if value.is_integer() and abs(value) >= 10 else short(value)
    return "-" if value is None else str(value)


def _table(names: list[str], rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in PLACE else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(shown(_word(row.get(name)))) for name in names))
    return table


def again(path: str, events: str | None, audit: str | None) -> int:
    """Replay recorded events, and print whether the audit is the same; 1 if it is not."""
    config = configured(path)
    events, audit = events or config.record, audit or config.audit
    if events is None or audit is None:
        lacking, option = ("record", "events") if events is None else ("audit", "audit")
        raise SourceError(f"the configuration names no {lacking}; give --{option} FILE")
    try:
        with open(events, "rb") as taken, open(audit, "rb") as said:
            found = replay(config, filter(bytes.strip, taken), filter(bytes.strip, said))
    except ReplayError as error:
        raise SourceError(str(error)) from None
    seen = f"{count(found.events)} events, {count(found.moments)} evaluations, {count(found.lines)} lines of the audit"
    if found.difference:
        say(f"NOT the same after {seen}: {found.difference}")
        return 1
    say(f"the same decisions: {seen}")
    return 0
