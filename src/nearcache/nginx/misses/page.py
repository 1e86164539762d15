"""Misses in words and tables. Not here: any figure (``misses.py``)."""

from __future__ import annotations

from collections.abc import Iterator

from nearcache.nginx.misses.gains import Gain
from nearcache.nginx.misses.misses import Change, Misses
from nearcache.report.model import Page, Points, Table
from nearcache.report.words import count, duration, percent, plural, printable, ratio


def page(found: Misses, rows: int) -> Page:
    """What is said about misses, with so many URLs."""
    if found.missed is None:
        silent = "This log does not say what came from the cache, so not what missed it either."
        return Page("misses", [silent], [*_top_table(found, rows)])
    return Page(
        title="misses",
        sentences=[_first(found)],
        parts=[*_why_table(found), *_changes(found), *_top_table(found, rows)],
    )


def _first(found: Misses) -> str:
    requests = plural(found.requests, "request")
    if not found.missed:
        return f"Nothing was missed: all {requests} came from the cache."
    missed = percent(ratio(found.missed, found.requests))
    spent = f", which took {duration(found.upstream_s)} upstream" if found.upstream_s else ""
    return f"{count(found.missed)} of {requests} ({missed}) did not come from the cache{spent}."


def _why_table(found: Misses) -> Iterator[Table]:
    if not found.reasons:
        return
    by_time = bool(found.upstream_s)
    whole = found.upstream_s if by_time else found.missed
    weights = [(each.upstream_s or 0.0) if by_time else each.requests for each in found.reasons]
    yield Table(
        title="Why",
        head=["reason", "", "upstream", "share", "requests"],
        text_columns=(0, 1),
        rows=[
            [
                each.name,
                each.says,
                duration(each.upstream_s),
                percent(ratio(weight, whole or 0)),
                count(each.requests),
            ]
            for each, weight in zip(found.reasons, weights, strict=True)
        ],
        bars=[ratio(weight, max(weights)) or 0.0 for weight in weights],
    )


def _changes(found: Misses) -> Iterator[Points]:
    if found.changes:
        yield Points(
            title="What would buy most",
            points=[_change_text(change) for change in found.changes],
        )


def _change_text(change: Change) -> str:
    gain = _gain_text(Gain(change.gain_requests, change.gain_s), f" of {change.gain_is}")
    certain = "Likely" if change.likely else "Up to"
    more = ""
    if change.alone and change.alone.requests != change.gain_requests:
        more = f" more (alone {_gain_text(change.alone)})"
    where = f", most of it at {printable(change.where)}" if change.where else ""
    but = f" But: {change.but}." if change.but else ""
    return f"{certain} {gain}{more}: {change.do}{where}.{but}"


def _gain_text(gain: Gain, of: str = "") -> str:
    requests = plural(gain.requests, "request")
    return requests if gain.seconds is None else f"{duration(gain.seconds)}{of}, {requests}"


def _top_table(found: Misses, rows: int) -> Iterator[Table]:
    if not found.top or not rows:
        return
    knows = found.missed is not None
    shown = found.top[:rows]
    several = len({each.host for each in found.top if each.host}) > 1
    names = [printable(f"{each.host or ''}{each.url}" if several else each.url) for each in shown]
    if not knows:
        title, head = "URLs asked for most", ["url", "requests"]
        cells = [[name, count(each.requests)] for name, each in zip(names, shown, strict=True)]
    else:
        title, head = "Missed URLs, heaviest first", ["url", "upstream", "missed", "mostly"]
        cells = [
            [name, duration(each.upstream_s), count(each.requests), each.mostly]
            for name, each in zip(names, shown, strict=True)
        ]
    rest = len(found.top) - len(shown)
    note = f"--top shows {rest} more" if rest else ""
    yield Table(title, head, cells, note, text_columns=(0, 3))
