"""Two charts as plain SVG text: bars from zero, and latency by percentile.

No library and no script: the page must open from a mail attachment, offline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from nearcache.lab.verdict import us

COLOURS = {
    "memory": "#64748b",
    "shared memory": "#7c3aed",
    "files": "#b45309",
    "memcached": "#0f766e",
    "redis": "#dc2626",
    "django-redis": "#1d4ed8",
    "yours": "#be185d",
}
OTHER_COLOUR = "#475569"
LABEL_WIDTH, VALUE_WIDTH, ROW_HEIGHT = 200, 96, 22


@dataclass(frozen=True)
class Bar:
    """One line of a bar chart. ``low`` and ``high`` are the ends of its whisker."""

    name: str
    family: str
    value_ns: float
    low_ns: float | None = None
    high_ns: float | None = None
    faint: bool = False  # a twin, or what cannot be compared


@dataclass(frozen=True)
class Curve:
    """(percentile, nanoseconds), rising. Dashed if it goes over TCP."""

    name: str
    family: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def bars(title: str, rows: Sequence[Bar], width: int = 720) -> str:
    """Shorter is better; all from zero, so lengths are true."""
    longest = max((max(row.value_ns, row.high_ns or 0) for row in rows), default=1.0) or 1.0
    room = width - LABEL_WIDTH - VALUE_WIDTH
    height = len(rows) * ROW_HEIGHT + 26
    step = _nice_step(longest / 1000 / 4) * 1000
    parts = [_open(title, width, height)]
    tick = 0.0
    while tick <= longest:
        x = LABEL_WIDTH + room * tick / longest
        parts.append(_line(x, 0, x, height - 22, "grid"))
        parts.append(_text(x, height - 8, f"{tick / 1000:g}", "tick", "middle"))
        tick += step
    for number, row in enumerate(rows):
        parts.append(_bar(row, number * ROW_HEIGHT, room / longest))
    return "".join([*parts, "</svg>"])


def percentiles(title: str, curves: Sequence[Curve], width: int = 720, height: int = 330) -> str:
    """Both axes logarithmic: to the right the rarer, upward the slower."""
    values = [value for curve in curves for _, value in curve.points if value > 0]
    if not values:
        return ""
    low, high = math.log10(min(values)), math.log10(max(values) * 1.05)
    left, right, top, bottom = 62, width - 16, 10, height - 40
    deepest = max(_depth(rank) for curve in curves for rank, _ in curve.points)

    def x(rank: float) -> float:
        return left + (right - left) * _depth(rank) / (deepest or 1)

    def y(value: float) -> float:
        return bottom - (bottom - top) * (math.log10(value) - low) / ((high - low) or 1)

    parts = [_open(title, width, height)]
    for rank in (0, 50, 90, 99, 99.9, 99.99):
        if _depth(rank) <= deepest + 1e-9:
            parts.append(_line(x(rank), top, x(rank), bottom, "grid"))
            parts.append(_text(x(rank), bottom + 16, f"P{rank:g}", "tick", "middle"))
    for value in _log_ticks(low, high):
        parts.append(_line(left, y(value), right, y(value), "grid"))
        parts.append(_text(left - 6, y(value) + 4, f"{value / 1000:g}", "tick", "end"))
    parts.append(_text(left - 6, bottom + 32, "µs", "tick", "end"))
    for curve in curves:
        points = [(x(rank), y(value)) for rank, value in curve.points if value > 0]
        path = " ".join(f"{across:.1f},{up:.1f}" for across, up in points)
        dashes = ' stroke-dasharray="5 3"' if curve.dashed else ""
        parts.append(
            f'<polyline class="curve" data-name="{escape(curve.name)}" points="{path}" '
            f'stroke="{colour(curve.family)}"{dashes}><title>{escape(curve.name)}</title></polyline>'
        )
    return "".join([*parts, "</svg>"])


def colour(family: str) -> str:
    return COLOURS.get(family, OTHER_COLOUR)


def _bar(row: Bar, top: float, scale: float) -> str:
    middle = top + ROW_HEIGHT / 2
    length = max(1.0, row.value_ns * scale)
    faint = " faint" if row.faint else ""
    parts = [
        f'<g class="bar{faint}" data-name="{escape(row.name)}">',
        _text(LABEL_WIDTH - 8, middle + 4, row.name, "label", "end"),
        f'<rect x="{LABEL_WIDTH}" y="{top + 4:.1f}" width="{length:.1f}"',
        f' height="{ROW_HEIGHT - 8}" rx="2" fill="{colour(row.family)}"/>',
    ]
    end = LABEL_WIDTH + length
    if row.low_ns is not None and row.high_ns is not None:
        low, high = LABEL_WIDTH + row.low_ns * scale, LABEL_WIDTH + row.high_ns * scale
        parts.append(_line(low, middle, high, middle, "whisker"))
        parts += [_line(x, middle - 4, x, middle + 4, "whisker") for x in (low, high)]
        end = max(end, high)
    parts.append(_text(end + 6, middle + 4, us(row.value_ns), "value", "start"))
    return "".join([*parts, "</g>"])


def _open(title: str, width: int, height: float) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">'
    )


def _line(x1: float, y1: float, x2: float, y2: float, name: str) -> str:
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, name: str, anchor: str) -> str:
    return (
        f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _depth(rank: float) -> float:
    """How far right a percentile is drawn: equal steps for 90, 99, 99.9."""
    return -math.log10(max(1 - rank / 100, 1e-9))


def _log_ticks(low: float, high: float) -> list[float]:
    ticks = [
        factor * 10.0**power
        for power in range(math.floor(low), math.ceil(high) + 1)
        for factor in (1, 2, 5)
    ]
    return [tick for tick in ticks if low <= math.log10(tick) <= high]


def _nice_step(rough: float) -> float:
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next((f * power for f in (1, 2, 5, 10) if f * power >= rough), 10 * power)
