"""What the user sees while a run goes on. On stderr, so that stdout stays the report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from nearcache.base.options import human_duration

Clock = Callable[[], float]


@dataclass
class Forecast:
    """How long a run will take yet, from how long its rounds took so far.

    No round is begun that would end after the plan's limit, except the first of every set
    of processes; these are the two bounds of the forecast.
    """

    limit_s: float
    clock: Clock = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self._since = self.clock()
        self._starts_s: list[float] = []
        self._rounds_s: list[float] = []
        self._repetition = self._repetitions = self._round = self._rounds = 0

    def repetition(self, number: int, of: int) -> None:
        self._finish()
        self._repetition, self._repetitions, self._round = number, of, 0

    def round(self, number: int, of: int) -> None:
        self._finish()
        self._round, self._rounds = number, of

    def _finish(self) -> None:
        now = self.clock()
        if self._repetition:
            (self._rounds_s if self._round else self._starts_s).append(now - self._since)
        self._since = now

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.began

    @property
    def left_s(self) -> float | None:
        """None until the first round is over: nothing is known before."""
        if not self._rounds_s:
            return None
        round_s, start_s = fmean(self._rounds_s), fmean(self._starts_s)
        rounds = self._rounds - self._round + 1 if self._round else self._rounds
        sets = self._repetitions - self._repetition
        since_s = self.clock() - self._since
        all_s = rounds * round_s + sets * (start_s + self._rounds * round_s) - since_s
        least_s = round_s + sets * (start_s + round_s) - since_s
        return max(0.0, min(all_s, max(least_s, self.limit_s - self.elapsed_s)))


class TerminalProgress:
    """A bar on a terminal; one line per round where there is none (a log, a pipe)."""

    def __init__(
        self, console: Console, title: str, limit_s: float, clock: Clock = time.monotonic
    ) -> None:
        self._console = console
        self._title = title
        self._forecast = Forecast(limit_s, clock)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description} {task.fields[where]}", markup=False),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[left]}", markup=False),
            TextColumn("{task.fields[what]}", style="dim", markup=False),
            console=console,
            transient=True,
            # Drawn only when told to: a thread of its own would take time from what we measure.
            auto_refresh=False,
        )
        self._task = self._bar.add_task(title, total=1, where="starting", what="", left="")
        self._where = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def repetition(self, number: int, of: int) -> None:
        self._forecast.repetition(number, of)
        self._where = f"processes {number} of {of}"
        self._say(f"{self._where}: starting")

    def round(self, number: int, of: int, visits: int) -> None:
        self._forecast.round(number, of)
        self._say(f"{self._where}, round {number} of at most {of}")

    def step(self, what: str) -> None:
        if self._console.is_terminal:
            self._draw(what=what)

    def _say(self, where: str) -> None:
        if self._console.is_terminal:
            self._draw(where=where, what="")
            return
        left = self._left()
        line = f"{self._title}: {where}" + (f", {left}" if left else "")
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _draw(self, **fields: Any) -> None:
        left_s, elapsed_s = self._forecast.left_s, self._forecast.elapsed_s
        share = elapsed_s / (elapsed_s + left_s) if left_s is not None and elapsed_s else 0
        self._bar.update(self._task, completed=share, left=self._left() or "", **fields)
        self._bar.refresh()

    def _left(self) -> str | None:
        left_s = self._forecast.left_s
        return None if left_s is None else f"about {duration(left_s)} left"


def duration(seconds: float) -> str:
    """``40 s``, ``3 min 20 s``: to five seconds, because it is a guess."""
    return human_duration(5000 * max(1, round(seconds / 5)))
