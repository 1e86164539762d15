"""The rows of the nginx doctor, as lines of a terminal and as Markdown.

docs/benchmarks-nginx.md is made by `python -m bench --only nginx --page FILE`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from bench.nginx_accuracy import Accuracy
from bench.nginx_doctor import Latencies, Missing, Ratio, Row

HEAD = """# Benchmarks of the nginx doctor

Made by `python -m bench --only nginx --page docs/benchmarks-nginx.md`; do not edit. These are
figures of one machine; the same with `--log FILE` measures yours, on lines of your log.

Method: everything on one core, all arms of a table in turns in random order, nine rounds after one
for nothing; medians with their 95 % bootstrap interval, and ratios of the same rounds. All files
are in memory (tmpfs), so no disk is measured. Every answer is checked: lines read, requests
replayed, the entry gone. Nothing asks a network or a database of places.

Accuracy: nine real nginx get one load at the same moments (`bench/nginx_accuracy.py`): today's, one
without a cache, and one for each rule. From today's log alone it is said what the cache saves, what
changes would save and what hit ratio rules would bring; *real* is what the others then did. Seconds
saved are real as the times that nginx without a cache took for the requests that were hits.
`python -m bench --only accuracy` makes this table alone, in half a minute.

Log: `nearcache nginx report --json` and GoAccess (`--log-format=COMBINED --no-global-config
--no-progress -o FILE.json`) are whole processes, with Python's start in ours. They answer other
questions: GoAccess counts visitors, referrers, browsers and systems, ours URL groups, repeats and
the heaviest URLs; both read every line. Few lines repeated have few URLs, which suits both.
`wc -l` is what reading alone costs. GoAccess is Debian's package.

Replay: a log that was read is replayed under three sets of rules, each by one call from Python;
reading the log for it is a row of its own.

Purge: one URL that is known, of a directory as nginx fills it. "Python" is `Purger.purge_key` with
known `levels`; the processes include Python's start, which is a row of its own. `purge URL` first
learns from the directory how keys are made. "find, grep, rm" is
`find DIR -type f -print0 | xargs -0 grep -lFx 'KEY: URL' | xargs rm`; where the directory is not in
memory, it takes what the disk takes.

Agent: a cache of which one file in twenty is a variant. One URL is purged from Python with a table
that is warm. Then an agent is started, and purges come at a fixed rate, each counted from when it
should have begun; idle connections send nothing, dripping ones a byte of a header five times a
second, half of them from the address of the site, and who is dropped comes again at once. Clients,
agent and connections share the core.
"""
NO_FIGURES = "No figures are kept here yet: run the command above on a machine that is idle."


def line(row: Row | Accuracy) -> str:
    """For a terminal."""
    match row:
        case Accuracy():
            forecast, real, error = _accuracy(dataclasses.asdict(row))
            return f"  {row.name:<44} {forecast:>28} {real:>16} {error:>14}"
        case Missing():
            return f"  NOT MEASURED: {row.missing}"
        case Ratio():
            promised = f"  promised {row.promised:g}" if row.promised else ""
            below = "  BELOW" if row.ratio < row.promised else ""
            times = f"{row.ratio:.2f}x ({row.low:.2f}-{row.high:.2f})"
            return f"  {row.against} over {row.name}: {times}{promised}{below}"
        case Latencies():
            said = f"P50 {_time(row.p50)}, P99 {_time(row.p99)}, longest {_time(row.longest)}"
            below = "  BELOW" if row.failed else ""
            return f"  {row.name}: {row.failed} of {row.count:,} failed  promised 0{below}; {said}"
    each = f"{row.per_second:,.0f}/s" if row.count > 1 else ""
    interval = f"({_time(row.low)}-{_time(row.high)})"
    promised = f"  promised {_promise(row.at_least, row.count)}" if row.at_least else ""
    below = "  BELOW" if row.per_second < row.at_least else ""
    shown = f"  {row.name:<28} {_time(row.seconds):>8} {interval:<20} {each:>13}{promised}{below}"
    return shown.rstrip()


def section(results: Sequence[Mapping[str, Any]], machine: str) -> str:
    """Head and tables. ``results`` are rows as dicts; without any, it says so."""
    tables = groupby(results, lambda row: row["table"])
    drawn = [text for table, found in tables for text in _table(table, list(found))]
    return "\n".join([HEAD, machine, *drawn] if drawn else [HEAD, NO_FIGURES, ""])


def _table(table: str, found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"## {table[0].upper()}{table[1:]}\n"
    yield from (f"Not measured: {row['missing']}\n" for row in found if "missing" in row)
    if "forecast" in found[0]:
        yield "| | forecast | real | error |"
        yield "|---|---:|---:|---:|"
        yield from (f"| {row['name']} | {' | '.join(_accuracy(row))} |" for row in found)
        yield ""
        return
    yield "| | median | 95 % | per second | promised |"
    yield "|---|---:|---|---:|---:|"
    yield from (_cells(row) for row in found if "seconds" in row)
    yield ""
    for row in found:
        if "ratio" in row:
            promised = f"; promised {row['promised']:g}" if row["promised"] else ""
            interval = f"{row['low']:.2f}\u2013{row['high']:.2f}"
            times = f"**{row['ratio']:.2f}** times ({interval}{promised})"
            yield f"- {row['against']}, over {row['name']}: {times}."
        if "p99" in row:
            cuts = ", ".join(
                f"{name} {_time(row[which])}"
                for name, which in (("P50", "p50"), ("P99", "p99"), ("longest", "longest"))
            )
            failed = f"**{row['failed']}** of {row['count']:,} failed (promised 0)"
            yield f"- {row['name']}: {failed}; {cuts}."
    yield ""


def _cells(row: Mapping[str, Any]) -> str:
    count, at_least = row["count"], row["at_least"]
    each = f"{count / row['seconds']:,.0f}" if count > 1 else ""
    interval = f"{_time(row['low'])}\u2013{_time(row['high'])}"
    promised = _promise(at_least, count) if at_least else ""
    return f"| {row['name']} | {_time(row['seconds'])} | {interval} | {each} | {promised} |"


def _accuracy(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Forecast, real, error. The error of a share is in points."""
    unit, forecast, real = row["unit"], row["forecast"], row["real"]
    digits = 0 if unit == "requests" else 1
    shown = [f"{each:,.{digits}f} {unit}" for each in (forecast, real)]
    if row["low"] is not None:
        shown[0] += f" ({row['low']:,.{digits}f} to {row['high']:,.{digits}f})"
    if unit == "%":
        return shown[0], shown[1], f"{forecast - real:+.2f} points"
    return shown[0], shown[1], f"{forecast / real - 1:+.1%}" if real else "?"


def _promise(per_second: float, count: int) -> str:
    return f"{per_second:,.0f}/s" if count > 1 else f"{_time(1 / per_second)}"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
