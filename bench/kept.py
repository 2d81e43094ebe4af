"""Cells of a long measurement: each is measured once, kept in a file if one is given, and shown in a progress bar."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checks import Checks
from rich.progress import Progress
from tables import Console


@dataclass
class Kept:
    """Measured values by name. In ``file`` they survive an interruption: a name that is there is not measured again.

    The names of a quick run are its own. A change of what is measured needs a new file, or another name.
    """

    console: Console
    checks: Checks
    progress: Progress
    quick: bool = False
    file: Path | None = None
    cells: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file and self.file.is_file():
            self.cells = json.loads(self.file.read_text())

    def section(self, name: str, total: int) -> None:
        """The cells that follow belong to this bar."""
        self._task = self.progress.add_task(name, total=total)

    def __call__(self, name: str, measure: Callable[[], Any]) -> Any:
        """The value of this name as plain data: from the file if it is there, else measured and written."""
        key = f"quick, {name}" if self.quick else name
        if key not in self.cells:
            self.cells[key] = json.loads(json.dumps(measure()))
            self._write()
        self.progress.advance(self._task)
        return self.cells[key]

    def _write(self) -> None:
        if self.file:
            part = self.file.with_name(f"{self.file.name}.part")
            part.write_text(json.dumps(self.cells, indent=1))
            os.replace(part, self.file)
