"""Figures that are held against a bound, and the table that says which of them hold."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from rich.table import Table


@dataclass
class Checks:
    """Every figure with a bound, in the order in which it was measured."""

    rows: list[tuple[str, str, str, bool]] = field(default_factory=list)

    def add(self, what: str, value: float, low: float, high: float = np.inf, form: str = ".2f") -> None:
        bound = f">= {low:{form}}" if high == np.inf else f"{low:{form}} .. {high:{form}}"
        self.rows.append((what, f"{value:{form}}", bound, bool(low <= value <= high)))

    @property
    def hold(self) -> bool:
        return all(row[-1] for row in self.rows)

    def table(self) -> Table:
        table = Table("figure", "measured", "bound", "holds", title="acceptance")
        for what, value, bound, holds in self.rows:
            table.add_row(what, value, bound, "yes" if holds else "[bold red]NO[/]")
        return table
