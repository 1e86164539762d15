"""What the user sees while a run goes on. On stderr, so that stdout stays the report."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class TerminalProgress:
    """A bar on a terminal; one line per round where there is none (a log, a pipe)."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[where]}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[what]}"),
            console=console,
            transient=True,
            # Drawn only when told to: a thread of its own would take time from what we measure.
            auto_refresh=False,
        )
        self._task = self._bar.add_task("run", total=None, where="starting", what="")
        self._where = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def repetition(self, number: int, of: int) -> None:
        self._where = f"processes {number} of {of}"
        self._say(f"{self._where}: starting", total=None)

    def round(self, number: int, of: int, visits: int) -> None:
        self._say(f"{self._where}, round {number} of at most {of}", total=visits)

    def step(self, what: str) -> None:
        if self._console.is_terminal:
            self._bar.update(self._task, advance=1, what=what)
            self._bar.refresh()

    def _say(self, where: str, total: int | None) -> None:
        if self._console.is_terminal:
            self._bar.reset(self._task, total=total, where=where, what="")
        else:
            self._console.print(where, highlight=False)
