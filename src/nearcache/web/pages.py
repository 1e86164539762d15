"""Pages as HTML: complete in one answer, nothing to fetch, readable without scripts.

Templates are read by an engine of our own, so that no setting of the project (loaders,
Jinja, context processors) matters. Style and script are inside the page, and the policy
that is sent along names their hashes: nothing else may run, or be fetched.

Bars are SVG with widths in percent: no style attributes, which the policy forbids.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template import Context, Engine

from nearcache.report.html import hash_source
from nearcache.report.units import quantity
from nearcache.web.summary import CHARTS, Line, Summary, Value, duration, in_order

FILES = Path(__file__).parent / "pages"
COLOURS = 10  # page.css has so many
CURVE_STEPS, CURVE_HEIGHT = 80, 20.0
LEAST_DECADES = 0.8  # of an axis of times: so long a piece has two round numbers at least


@dataclass(frozen=True, kw_only=True)
class Cell:
    head: str
    text: str
    is_open: bool = False  # nothing to say (yet): drawn softly
    is_bad: bool = False


@dataclass(frozen=True, kw_only=True)
class Bar:
    alias: str
    colour: int
    percent: str  # of the longest
    value: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Bars from zero, the shortest first."""

    title: str
    bars: Sequence[Bar]
    missing: Sequence[str]  # aliases with too few samples
    scale: str  # what a full bar stands for


@dataclass(frozen=True, kw_only=True)
class Curve:
    """How the reads of one alias are spread over time, on a logarithmic axis."""

    alias: str
    colour: int
    path: str
    median_percent: str


@dataclass(frozen=True, kw_only=True)
class Spread:
    curves: Sequence[Curve]
    ticks: Sequence[tuple[str, str]]  # (percent, label)


def summary_page(summary: Summary) -> HttpResponse:
    return _answer("summary.html", _summary_context(summary))


def summary_fragment(summary: Summary) -> HttpResponse:
    """What changes of the page, for its script."""
    return _answer("live.html", _summary_context(summary))


def index_page(request: HttpRequest, aliases: Sequence[str]) -> HttpResponse:
    return _answer("index.html", {"aliases": aliases, "here": request.build_absolute_uri(".")})


def _answer(template: str, context: dict[str, Any]) -> HttpResponse:
    made = _engine().get_template(template)
    answer = HttpResponse(made.render(Context({**_inlined(), **context})))
    answer.headers["Content-Security-Policy"] = _policy()
    return answer


@cache
def _engine() -> Engine:
    return Engine(dirs=[str(FILES)], autoescape=True, string_if_invalid="")


@cache
def _inlined() -> dict[str, str]:
    return {name: (FILES / f"page.{name}").read_text() for name in ("css", "js")}


@cache
def _policy() -> str:
    style, script = (hash_source(_inlined()[name]) for name in ("css", "js"))
    return (
        f"default-src 'none'; style-src {style}; script-src {script}; connect-src 'self'; "
        "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def _summary_context(summary: Summary) -> dict[str, Any]:
    colours = {line.alias: i % COLOURS for i, line in enumerate(summary.lines)}
    return {
        "summary": summary,
        "rows": [_row(line, colours[line.alias]) for line in summary.lines],
        "charts": [_chart(title, value, summary.lines, colours) for title, _, value in CHARTS],
        "spread": _spread(summary.lines, colours),
        "recorded": f"{summary.recorded:,}",
        "attempted": f"{summary.attempted:,}",
        "wrong": sum(line.wrong for line in summary.lines),
        "errors": sum(line.errors + line.write_errors for line in summary.lines),
        "misses": sum(line.misses for line in summary.lines),
        "cold": sum(line.cold_times for line in summary.lines),
    }


def _row(line: Line, colour: int) -> dict[str, Any]:
    errors = line.errors + line.write_errors
    cells = [
        Cell(head="times", text=f"{line.times:,}"),
        _time("average", line.average),
        _time("median", line.median),
        _time("P90", line.p90),
        _time("P99", line.p99),
        _time("max", line.max),
        _time("std dev", line.stdev),
        Cell(head="misses", text=f"{line.misses:,}", is_open=not line.misses),
        Cell(head="errors", text=f"{errors:,}", is_open=not errors, is_bad=errors > 0),
        Cell(head="wrong", text=f"{line.wrong:,}", is_open=not line.wrong, is_bad=line.wrong > 0),
        _time("first reads", line.cold_median),
        _time("writes", line.write_median),
    ]
    return {"alias": line.alias, "colour": colour, "cells": cells}


def _time(head: str, ns: float | None) -> Cell:
    return Cell(head=head, text=duration(ns), is_open=ns is None)


def _chart(title: str, value: Value, lines: Sequence[Line], colours: dict[str, int]) -> Chart:
    unit = "bytes" if title.startswith("Size") else "ns"
    known, missing = in_order(lines, value)
    longest = max([found for found, _ in known], default=0.0) or 1.0
    return Chart(
        title=title,
        bars=[
            Bar(
                alias=alias,
                colour=colours[alias],
                percent=f"{max(0.4, 100 * found / longest):.2f}%",
                value=quantity(found, unit),
            )
            for found, alias in known
        ],
        missing=missing,
        scale=quantity(longest, unit),
    )


def _spread(lines: Sequence[Line], colours: dict[str, int]) -> Spread | None:
    """All reads of all aliases between the same two ends; None if there are none."""
    times = [ns for line in lines for ns, _ in line.counts]
    if not times:
        return None
    low, high = math.log10(max(1.0, min(times))), math.log10(max(1.0, *times))
    room = max(0.05, (LEAST_DECADES - (high - low)) / 2)
    low, high = low - room, high + room

    def across(ns: float) -> float:
        return (math.log10(max(1.0, ns)) - low) / (high - low)

    return Spread(
        curves=[
            Curve(
                alias=line.alias,
                colour=colours[line.alias],
                path=_path([(across(ns), n) for ns, n in line.counts]),
                median_percent=f"{100 * across(line.median):.2f}%",
            )
            for line in lines
            if line.median is not None
        ],
        ticks=[(f"{100 * across(ns):.2f}%", _round_time(ns)) for ns in _round_times(low, high)],
    )


def _round_times(low: float, high: float) -> list[int]:
    """In ns, between these logarithms: powers of ten, or steps between where they are few."""
    factors = (1, 2, 5) if high - low < 2 else (1,)
    powers = range(max(0, math.floor(low)), math.floor(high) + 1)
    times = [factor * 10**power for power in powers for factor in factors]
    return [ns for ns in times if low <= math.log10(ns) <= high]


def _path(points: Sequence[tuple[float, int]]) -> str:
    """An area over 0..100: how many reads fell into each step, the most being full height."""
    steps = [0] * CURVE_STEPS
    for x, n in points:
        steps[min(CURVE_STEPS - 1, int(x * CURVE_STEPS))] += n
    highest = max(steps)
    width = 100 / CURVE_STEPS
    corners = [
        f"L{i * width:.2f},{y:.2f}L{(i + 1) * width:.2f},{y:.2f}"
        for i, n in enumerate(steps)
        for y in [CURVE_HEIGHT * (1 - n / highest)]
    ]
    return f"M0,{CURVE_HEIGHT:g}{''.join(corners)}L100,{CURVE_HEIGHT:g}Z"


def _round_time(ns: int) -> str:
    thousands = (len(str(ns)) - 1) // 3
    return f"{ns // 1000**thousands} {('ns', 'µs', 'ms', 's')[thousands]}"
