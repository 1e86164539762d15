"""Charts in characters: sparklines, bar, stacked bar, and curves over one axis.

Plain text in, plain text out, so that they read the same in a log, in Markdown and in a
terminal without colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeVar

from nearcache.report.model import Chart, Line
from nearcache.report.units import short

LEVELS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉"
FILLS = "█▓▒░▚▞▤▥"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
LEAST_SWING = math.log(1.1)  # noise of a percent must not look like an earthquake

Number = TypeVar("Number", float, float | None)


def sparkline(values: Sequence[float | None]) -> str:
    """From zero to the largest; a dot where there is nothing to show."""
    top = max((value for value in values if value is not None), default=0)
    shares = [value / top if value and top else value for value in values]
    return "".join("·" if share is None else _level(share) for share in shares)


def swings(values: Sequence[float], width: int, swing: float = LEAST_SWING) -> str:
    """The course of ``values`` around their median; the full height is ``swing`` both ways.

    ``swing`` is a log ratio: give the largest of a table, and its lines can be compared.
    """
    if not values:
        return ""
    middle = median(values)
    return "".join(
        _level((math.log(value / middle) / swing + 1) / 2 if value > 0 and middle > 0 else 0)
        for value in resampled(values, width, median)
    )


def _level(share: float) -> str:
    return LEVELS[min(7, max(0, int(8 * share)))]


def resampled(
    values: Sequence[Number], room: int, middle: Callable[[Sequence[Number]], Number]
) -> Sequence[Number]:
    """``values``, or where there are more than ``room`` the ``middle`` of as many runs of them."""
    if len(values) <= room:
        return values
    ends = [round(place * len(values) / room) for place in range(room + 1)]
    return [middle(values[begin:end]) for begin, end in pairwise(ends)]


def swing_of(many: Sequence[Sequence[float]]) -> float:
    """How far all but the wildest of these leave their medians, as a log ratio."""
    sizes = sorted(
        abs(math.log(value / median(values)))
        for values in many
        for value in values
        if value > 0 and median(values) > 0
    )
    return max(LEAST_SWING, sizes[int(0.98 * (len(sizes) - 1))]) if sizes else LEAST_SWING


def bar(share: float, room: int) -> str:
    """At most ``room`` characters, to an eighth of one; what is not zero is seen to exist."""
    eighths = max(1 if share > 0 else 0, round(8 * room * min(1.0, share)))
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def stacked(parts: Mapping[str, float], longest: float, room: int, order: Sequence[str]) -> str:
    """One bar of several parts, each with the fill of its place in ``order``."""
    text, shown, total = "", 0, 0.0
    for number, name in enumerate(order):
        total += max(0.0, parts.get(name, 0.0))
        ends = round(room * total / longest) if longest else 0
        text += FILLS[number % len(FILLS)] * (ends - shown)
        shown = max(shown, ends)
    return text


def plot(chart: Chart, width: int, height: int = 14) -> list[str]:
    """A chart as lines of text: one letter for each curve, dots between its points."""
    curves = [line for line in chart.lines if chart.drawable(line)]
    if not curves:
        return ["(no points)"]
    xs = [_place(x, chart.x_log) for line in curves for x, _ in chart.drawable(line)]
    ys = [_place(y, chart.y_log) for line in curves for _, y in chart.drawable(line)]
    xs += [_place(mark.x, chart.x_log) for mark in chart.marks if mark.x > 0 or not chart.x_log]
    x_range, y_range = (min(xs), max(xs)), (min(ys), max(ys))
    edge = max(len(short(_value(y, chart.y_log))) for y in y_range) + 1
    canvas = [[" "] * (width - edge - 1) for _ in range(height)]
    _draw_marks(canvas, chart, x_range)
    for letter, line in zip(LETTERS, curves, strict=False):
        _draw_curve(canvas, chart, line, letter, x_range, y_range)
    return [
        *_with_axes(canvas, chart, edge, x_range, y_range),
        *_legend(curves, width),
        *[f"{MARK} {mark.text}" for mark in chart.marks],
    ]


MARK = "┊"
Range = tuple[float, float]
Canvas = list[list[str]]


def _draw_marks(canvas: Canvas, chart: Chart, x_range: Range) -> None:
    for mark in chart.marks:
        if mark.x > 0 or not chart.x_log:
            column = _scaled(_place(mark.x, chart.x_log), x_range, len(canvas[0]))
            for row in canvas:
                row[column] = MARK


def _draw_curve(
    canvas: Canvas, chart: Chart, line: Line, letter: str, x_range: Range, y_range: Range
) -> None:
    spots = [
        (
            _scaled(_place(x, chart.x_log), x_range, len(canvas[0])),
            len(canvas) - 1 - _scaled(_place(y, chart.y_log), y_range, len(canvas)),
        )
        for x, y in chart.drawable(line)
    ]
    for (x0, y0), (x1, y1) in [] if line.dots else pairwise(spots):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(1, steps):
            x, y = round(x0 + (x1 - x0) * step / steps), round(y0 + (y1 - y0) * step / steps)
            if canvas[y][x] in (" ", MARK):
                canvas[y][x] = "·"
    for x, y in spots:
        canvas[y][x] = letter


def _with_axes(
    canvas: Canvas, chart: Chart, edge: int, x_range: Range, y_range: Range
) -> list[str]:
    lines = [chart.y_title + (" (log)" if chart.y_log else "")]
    for number, row in enumerate(canvas):
        share = 1 - number / (len(canvas) - 1)
        named = number in (0, len(canvas) // 2, len(canvas) - 1)
        at = y_range[0] + share * (y_range[1] - y_range[0])
        label = short(_value(at, chart.y_log)) if named else ""
        lines.append(f"{label:>{edge}}│{''.join(row).rstrip()}")
    room = len(canvas[0])
    first, last = (short(_value(x, chart.x_log)) for x in x_range)
    title = chart.x_title + (" (log)" if chart.x_log else "")
    middle = f"{title:^{max(0, room - len(first) - len(last))}}"
    return [*lines, " " * edge + "└" + "─" * room, " " * (edge + 1) + first + middle + last]


def _legend(curves: Sequence[Line], width: int) -> list[str]:
    """Letters and names, as many in a line as fit."""
    lines = [""]
    for letter, line in zip(LETTERS, curves, strict=False):
        entry = f"{letter} {line.name}"
        if lines[-1] and len(lines[-1]) + len(entry) + 3 > width:
            lines.append("")
        lines[-1] += f"   {entry}" if lines[-1] else entry
    return lines


def _place(value: float, is_log: bool) -> float:
    return math.log10(value) if is_log else value


def _value(place: float, is_log: bool) -> float:
    return 10**place if is_log else place


def _scaled(value: float, ends: Range, count: int) -> int:
    low, high = ends
    return round((value - low) / (high - low) * (count - 1)) if high > low else 0
