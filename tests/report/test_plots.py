"""Charts in characters."""

from __future__ import annotations

from nearcache.report.model import Chart, Line, Mark
from nearcache.report.plots import LEVELS, bar, plot, sparkline, stacked, swings


def test_a_chart_has_its_curves_marks_axes_and_legend() -> None:
    lines = [
        Line(name="plain", points=[(10, 70), (1000, 70)]),
        Line(name="hash", points=[(0, 5), (10, 30), (1000, 18)]),
    ]
    chart = Chart(
        title="Bytes", x_title="entries", y_title="bytes per key", lines=lines, x_log=True,
        marks=[Mark(x=100, text="the threshold")],
    )  # fmt: skip
    text = "\n".join(plot(chart, 80))
    assert "bytes per key" in text
    assert "entries (log)" in text
    assert "a plain   b hash" in text
    assert "┊ the threshold" in text
    assert text.count("b") > 2, "zero has no place on a logarithm, the other points have"
    assert plot(Chart(title="", x_title="", y_title="", lines=[]), 80) == ["(no points)"]


def test_a_sparkline_shows_noise_as_noise_and_a_jump_as_a_jump() -> None:
    calm = swings([100, 101, 99, 100], 4)
    assert len(set(calm)) <= 2
    jump = swings([100, 100, 100, 150], 4)
    assert jump[-1] == LEVELS[-1]
    assert len(swings(list(range(1, 200)), 10)) == 10
    assert swings([], 10) == ""


def test_a_sparkline_from_zero_leaves_a_dot_where_nothing_is_known() -> None:
    assert sparkline([0, 4, None, 8]) == "▁▅·█"


def test_bars_and_stacks_are_true_to_scale() -> None:
    assert bar(1, 20) == "█" * 20
    assert bar(0.5, 20) == "█" * 10
    assert bar(0.0001, 20), "what exists is seen"
    assert bar(0, 20) == ""
    drawn = stacked({"a": 5, "b": 2.5, "c": 2.5}, 10, 20, ["a", "b", "c"])
    assert drawn == "█" * 10 + "▓" * 5 + "▒" * 5
