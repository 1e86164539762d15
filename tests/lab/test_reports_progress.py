"""What is said while a run goes on; time comes from outside."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from nearcache.lab.reports.progress import Forecast, TerminalProgress, duration


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_nothing_is_forecast_before_a_round_is_over() -> None:
    forecast = Forecast(60, Clock())
    forecast.repetition(1, 2)
    forecast.round(1, 4)
    assert forecast.left_s is None


def test_the_rest_is_rounds_and_starts_as_long_as_those_before() -> None:
    clock = Clock()
    forecast = Forecast(1000, clock)
    forecast.repetition(1, 2)
    clock.now_s += 5
    for number in (1, 2, 3):
        forecast.round(number, 4)
        clock.now_s += 10
    forecast.round(4, 4)
    # One round here, then a start of 5 s and four rounds of 10.
    assert forecast.left_s == pytest.approx(55)
    clock.now_s += 4
    assert forecast.left_s == pytest.approx(51)


def test_the_limit_of_the_plan_bounds_it_from_above_and_what_is_always_done_from_below() -> None:
    clock = Clock()
    forecast = Forecast(20, clock)
    forecast.repetition(1, 2)
    forecast.round(1, 100)
    clock.now_s += 10
    forecast.round(2, 100)
    assert forecast.left_s == pytest.approx(20), "a round here and one of the second processes"
    clock.now_s += 500
    assert forecast.left_s == 0


def test_a_pipe_gets_one_line_for_each_round_with_the_experiment_and_the_time_left() -> None:
    file, clock = StringIO(), Clock()
    progress = TerminalProgress(Console(file=file), "backends (2 of 3)", 60, clock)
    with progress:
        progress.repetition(1, 1)
        progress.step("starting locmem")
        for number in (1, 2):
            progress.round(number, 3, 8)
            progress.step("locmem, payload S")
            clock.now_s += 12
    assert file.getvalue().splitlines() == [
        "backends (2 of 3): processes 1 of 1: starting",
        "backends (2 of 3): processes 1 of 1, round 1 of at most 3",
        "backends (2 of 3): processes 1 of 1, round 2 of at most 3, about 25 s left",
    ]


def test_a_terminal_gets_one_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    file, clock = StringIO(), Clock()
    console = Console(file=file, force_terminal=True, width=120, legacy_windows=False)
    with TerminalProgress(console, "backends", 60, clock) as progress:
        progress.repetition(1, 1)
        progress.round(1, 2, 8)
        clock.now_s += 30
        progress.round(2, 2, 8)
        progress.step("[red]alias[/red], payload S")
    text = file.getvalue()
    assert "round 2 of at most 2" in text
    assert "about 30 s left" in text
    assert "[red]alias[/red]" in text, "names are no markup"


def test_times_are_rounded_as_guesses_are() -> None:
    assert [duration(s) for s in (0, 3, 42, 60, 119, 200)] == [
        "5 s", "5 s", "40 s", "1 min", "2 min", "3 min 20 s",
    ]  # fmt: skip
