"""``/summary`` for a terminal: the articles' table and bars, with what they left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nearcache.report.plots import bar
from nearcache.web.summary import CHARTS, NOT_YET, Line, Summary, Value, in_order, size

RULE_WIDTH = 79
COLUMN = 11
HEADS = ("TIMES", "AVERAGE", "MEDIAN", "P90", "P99", "MAX", "STDDEV", "MISSES", "ERRORS", "WRONG")


def as_text(summary: Summary) -> str:
    width = max([len(line.alias) for line in summary.lines] + [12])
    lines = [" " * width + "".join(head.rjust(COLUMN) for head in HEADS)]
    lines += [_row(line, width) for line in summary.lines]
    for _, title, value in CHARTS:
        written = size if title.startswith("Size") else _ms
        lines += ["", *_bars(title, summary.lines, value, written)]
    return "\n".join([*lines, "", *_notes(summary), ""])


def _row(line: Line, width: int) -> str:
    times = (line.average, line.median, line.p90, line.p99, line.max, line.stdev)
    counts = (line.misses, line.errors, line.wrong)
    cells = [str(line.times), *map(_ms, times), *map(str, counts)]
    return line.alias.ljust(width) + "".join(cell.rjust(COLUMN) for cell in cells)


def _ms(ns: float | None) -> str:
    # The articles had three decimals; a cache in the same process takes less than the last of them.
    return NOT_YET if ns is None else f"{ns / 1e6:.4f}ms" if ns < 1e5 else f"{ns / 1e6:.3f}ms"


def _bars(
    title: str, lines: Sequence[Line], value: Value, written: Callable[[float | None], str]
) -> list[str]:
    """From zero, the shortest first; where nothing is known there is no bar."""
    known, missing = in_order(lines, value)
    longest = max([found for found, _ in known], default=0.0) or 1.0
    drawn = [(found / longest, written(found), name) for found, name in known]
    drawn += [(0.0, NOT_YET, alias) for alias in missing]
    values, names = max(len(row[1]) for row in drawn), max(len(row[2]) for row in drawn)
    room = max(10, RULE_WIDTH - values - names - 4)
    return [
        f"{title} (shorter better)",
        "#" * RULE_WIDTH,
        *(f"{bar(share, room):<{room}}  {text:>{values}}  {name}" for share, text, name in drawn),
    ]


def _notes(summary: Summary) -> list[str]:
    cold = sum(line.cold_times for line in summary.lines)
    lost = f", {summary.lost} lost with a worker that was killed" if summary.lost else ""
    width = max(len(line.alias) for line in summary.lines)
    heads = "FIRST READS".rjust(13) + "MEDIAN".rjust(COLUMN) + "WRITES".rjust(COLUMN)
    heads += "MEDIAN".rjust(COLUMN) + "ERRORS".rjust(COLUMN)
    return [
        f"{summary.attempted} reads attempted, {summary.recorded} recorded{lost}.",
        f"Every value: {summary.payload}.",
        f"Not above: writes, and the first {summary.warm_up} reads of a worker, {cold}:",
        " " * width + heads,
        *(_note(line, width) for line in summary.lines),
    ]


def _note(line: Line, width: int) -> str:
    cells = [_ms(line.cold_median), str(line.writes), _ms(line.write_median)]
    cells += [str(line.write_errors)]
    first = str(line.cold_times).rjust(13)
    return line.alias.ljust(width) + first + "".join(cell.rjust(COLUMN) for cell in cells)
