"""The console of every bench: what it prints as a table can be kept as Markdown, which is how bench/README.md is made."""

from __future__ import annotations

import io
import os
from typing import Any

import rich.console
from rich.table import Table
from rich.text import Text


def plain(cell: Any) -> str:
    """A cell without its markup, as it may stand in a table of Markdown."""
    text = Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)
    return text.replace("|", "\\|")


def markdown(table: Table) -> str:
    """The table as Markdown, its title above it."""
    out = io.StringIO()
    if table.title:
        out.write(f"{plain(table.title)}\n\n")
    heads = [plain(column.header) for column in table.columns]
    marks = ["--:" if column.justify == "right" else "---" for column in table.columns]
    body = zip(*([plain(cell) for cell in column.cells] for column in table.columns), strict=True)
    for cells in (heads, marks, *body):
        out.write(f"| {' | '.join(cells)} |\n" if cells is not marks else f"|{'|'.join(cells)}|\n")
    return out.getvalue()


class Console(rich.console.Console):
    """A console of rich; tables are also added to the file that BENCH_TABLES names."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*objects, **options)
        kept = os.environ.get("BENCH_TABLES")
        if kept and not self.stderr:
            with open(kept, "a") as file:
                file.writelines(f"{markdown(thing)}\n" for thing in objects if isinstance(thing, Table))
