"""The charts of a view as plain SVG text, for readers without scripts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from nearcache.lab.reports.colours import PALETTE
from nearcache.report.model import Chart, Line
from nearcache.report.units import short


def curves(chart: Chart, colours: Mapping[str, str], width: int = 760, height: int = 320) -> str:
    """A chart of a view, drawn once; the script draws it again with a cursor."""
    axes = Axes.of(chart, (64, width - 14), (12, height - 44))
    if axes is None:
        return ""
    parts = [_open(chart.title, width, height)]
    for x in axes.x_ticks():
        parts += [_line(axes.x(x), 12, axes.x(x), height - 44, "grid")]
        parts += [_text(axes.x(x), height - 28, short(x), "tick", "middle")]
    for y in axes.y_ticks():
        parts += [_line(64, axes.y(y), width - 14, axes.y(y), "grid")]
        parts += [_text(58, axes.y(y) + 4, short(y), "tick", "end")]
    parts.append(_text(width - 14, height - 8, chart.x_title, "tick", "end"))
    parts.append(_text(68, 22, chart.y_title, "tick"))
    for mark in chart.marks:
        if axes.holds(mark.x):
            parts.append(_line(axes.x(mark.x), 12, axes.x(mark.x), height - 44, "mark"))
            parts.append(_text(axes.x(mark.x) + 5, 36, mark.text, "tick"))
    for number, line in enumerate(chart.lines):
        colour = colours.get(line.name) or PALETTE[number % len(PALETTE)]
        parts.append(_curve(chart, axes, line, colour))
    return "".join([*parts, "</svg>"])


def _curve(chart: Chart, axes: Axes, line: Line, colour: str) -> str:
    points = [(axes.x(x), axes.y(y)) for x, y in chart.drawable(line)]
    title = f"<title>{escape(line.name)}</title>"
    if line.dots:
        spots = (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in points)
        return f"<g>{title}{''.join(spots)}</g>"
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="5 3"' if line.dashed else ""
    return f'<polyline class="curve" points="{path}" stroke="{colour}"{dashes}>{title}</polyline>'


Pair = tuple[float, float]


@dataclass(frozen=True)
class Axes:
    """From the units of a chart to places in its drawing."""

    x_log: bool
    y_log: bool
    x_range: Pair  # as drawn: logarithms where an axis is logarithmic
    y_range: Pair
    across: Pair
    down: Pair

    @classmethod
    def of(cls, chart: Chart, across: Pair, down: Pair) -> Axes | None:
        """None if there is nothing that these axes can show."""
        spots = [
            (_place(x, chart.x_log), _place(y, chart.y_log))
            for line in chart.lines
            for x, y in chart.drawable(line)
        ]
        if not spots:
            return None
        xs, ys = zip(*spots, strict=True)
        return cls(chart.x_log, chart.y_log, _ends(xs), _ends(ys), across, down)

    def x(self, value: float) -> float:
        return _scaled(_place(value, self.x_log), self.x_range, self.across)

    def y(self, value: float) -> float:
        return _scaled(_place(value, self.y_log), self.y_range, (self.down[1], self.down[0]))

    def holds(self, x: float) -> bool:
        if x <= 0 and self.x_log:
            return False
        return self.x_range[0] <= _place(x, self.x_log) <= self.x_range[1]

    def x_ticks(self) -> list[float]:
        return _ticks(self.x_range, self.x_log)

    def y_ticks(self) -> list[float]:
        return _ticks(self.y_range, self.y_log)


def _place(value: float, is_log: bool) -> float:
    return math.log10(value) if is_log else value


def _ends(values: Sequence[float]) -> Pair:
    low, high = min(values), max(values)
    room = (high - low) * 0.03 or abs(high) * 0.1 or 1
    return low - room, high + room


def _scaled(value: float, found: Pair, wanted: Pair) -> float:
    share = (value - found[0]) / (found[1] - found[0])
    return wanted[0] + share * (wanted[1] - wanted[0])


def _ticks(ends: Pair, is_log: bool) -> list[float]:
    low, high = ends
    if not is_log:
        step = _nice_step((high - low) / 5)
        first = math.ceil(low / step)
        return [step * number for number in range(first, math.floor(high / step) + 1)]
    factors = (1, 2, 5) if high - low < 3 else (1,)
    powers = range(math.floor(low), math.ceil(high) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    return [tick for tick in ticks if low <= math.log10(tick) <= high]


def _nice_step(rough: float) -> float:
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next((f * power for f in (1, 2, 5, 10) if f * power >= rough), 10 * power)


def _open(title: str, width: int, height: float) -> str:
    return (
        f'<svg class="static" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg">'
    )


def _line(x1: float, y1: float, x2: float, y2: float, name: str) -> str:
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, name: str, anchor: str = "start") -> str:
    return (
        f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )
