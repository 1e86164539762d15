"""What ``watch`` shows: a screen for people, a line for scripts, a summary for the end.

    rates          now and since the start, and the hit ratio over time
    response times as varnishhist draws them: ``|`` served from the cache, ``#`` not; over the
                   logarithm of time, each with a scale of its own, or few misses were not seen
    list           as varnishtop: what is missed most, lately

Fits 80 columns and 24 lines. Where there is less room the list gets shorter, then the
histogram goes, then columns from the right. What is in the log is made printable first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.text import Text

from nearcache.nginx.misses.misses import REASONS
from nearcache.nginx.watch.fading import DECADES, PER_DECADE, Amount
from nearcache.nginx.watch.watch import BY, Interval, Knows, Rates, Watch
from nearcache.report.model import Table
from nearcache.report.plain import cut, table_lines
from nearcache.report.plots import sparkline
from nearcache.report.words import NOTHING, count, duration, percent, plural, printable, ratio, size

HIT, NOT_HIT, FEW = "|", "#", "."
HISTOGRAM_HEIGHT = 18  # lines of a screen from which on there is room for it
LEAST_LIST = 4
DECADE_LABELS = ("1ms", "10ms", "100ms", "1s", "10s", "100s")
BELOW = "<1"
MOST_LINES = 200  # of a screen
SUMMARY_REASONS = 3
RATES_WIDTHS = (14, 9, 6, 12, 9, 9, 9)  # with their gaps: 80

LISTED = {
    "url": "missed URLs",
    "group": "URL groups",
    "status": "cache statuses",
    "reason": "why it missed",
}


@dataclass(frozen=True)
class Around:
    """What a screen shows beside the figures."""

    title: str
    """What is watched."""
    clock: str
    by: str
    notes: Sequence[str] = field(default_factory=list)
    """What a reader must know, the weightiest first."""
    keys: bool = True
    """Can keys be pressed?"""


def screen(watch: Watch, around: Around, width: int, height: int) -> Text:
    """The whole screen, at most ``width`` columns and ``height`` lines."""
    height = min(height, MOST_LINES)
    head = [
        _ends(f"nearcache nginx watch: {printable(around.title)}", around.clock, width, "bold"),
        *_rates(watch, width),
        _line(_totals(watch), width),
        _curve(watch, width),
    ]
    notes = [_line("; ".join(around.notes), width, "yellow")] if around.notes else []
    foot = [*notes, _line(_keys(around), width, "dim")]
    room = height - len(head) - len(foot)
    middle: list[Text] = []
    if height >= HISTOGRAM_HEIGHT:
        middle = list(_histogram(watch, width, 2 if height < 24 else 3 if height < 36 else 5))
        if room - len(middle) < LEAST_LIST + 1:
            middle = []
    listed = _list(watch, around.by, width, room - len(middle))
    lines = [*head, *middle, *listed]
    empty = [Text()] * max(0, height - len(lines) - len(foot))
    return Text("\n").join([*lines[: max(1, height - len(foot))], *empty, *foot][:height])


def _rates(watch: Watch, width: int) -> Iterator[Text]:
    names = ["", "requests", "hits", "of cacheable", "sent", "upstream", "saved"]
    # As wide as its figures may become, or columns would jump every second.
    head = [name.rjust(room) for name, room in zip(names, RATES_WIDTHS, strict=True)]
    rows = [
        [f"last {_span(watch.now.seconds)}", *_cells(watch.now.rates(watch.knows))],
        [f"all {_span(watch.since.seconds)}", *_cells(watch.since.rates(watch.knows))],
    ]
    drawn = table_lines(Table("", head, rows), width)
    yield Text(drawn[0], style="dim")
    yield from (_line(line, width) for line in drawn[1:])


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 59.5 else duration(seconds)


def _cells(rates: Rates) -> list[str]:
    return [
        per_second(rates.requests_per_s, ""),
        percent(rates.hit_ratio),
        percent(rates.cacheable_hit_ratio),
        NOTHING if rates.bytes_per_s is None else f"{size(rates.bytes_per_s)}/s",
        per_second(rates.upstream_s_per_s, " s"),
        per_second(rates.saved_s_per_s, " s"),
    ]


def per_second(rate: float | None, unit: str) -> str:
    """``1,234/s``, ``0.25 s/s``: three digits that matter are enough for what changes."""
    if rate is None:
        return NOTHING
    digits = 0 if rate >= 99.95 or not rate else 1 if rate >= 9.995 else 2
    return f"{rate:,.{digits}f}{unit}/s"


def _totals(watch: Watch) -> str:
    since, knows = watch.since, watch.knows
    parts = [plural(since.requests, "request")]
    if knows.status:
        parts.append(f"{count(since.served)} from the cache")
    if knows.prices:
        parts.append(f"saved {duration(since.saved_s)} upstream")
    if knows.upstream_time:
        parts.append(f"misses took {duration(since.upstream_s)}")
    return ", ".join(parts)


def _curve(watch: Watch, width: int) -> Text:
    if not watch.knows.status:
        return _line("hit ratio: this log does not tell", width, "dim")
    latest = f" {percent(watch.now.rates(watch.knows).hit_ratio)}"
    room = width - len("hit ratio ") - len(latest)
    values = list(watch.hit_ratios)[-max(1, room) :]
    # Full scale is 100 %: a curve of ratios that begins elsewhere makes mountains of molehills.
    curve = sparkline([1.0, *values])[1:]
    return _line(f"hit ratio {curve}{latest}", width, "green")


# -- response times


def _histogram(watch: Watch, width: int, rows: int) -> Iterator[Text]:
    if not watch.knows.request_time:
        return
    step = next((step for step in (1, 2, 7) if _columns(step) <= width), 0)
    if not step:
        return
    hits = _merged(watch.served_times.bins, step)
    misses = _merged(watch.missed_times.bins, step)
    yield Text()
    title = f"response time, lately: {HIT} from the cache, {NOT_HIT} not"
    yield _line(title, width, "dim")
    for row in reversed(range(rows)):
        yield _line(_bars(hits, row, rows, HIT), width, "green")
    yield _line(_axis(step), width, "dim")
    for row in range(rows):
        yield _line(_bars(misses, row, rows, NOT_HIT), width, "red")


def _columns(step: int) -> int:
    return PER_DECADE * DECADES // step + 2 + len(DECADE_LABELS[-1])


def _merged(bins: Sequence[float], step: int) -> list[float]:
    middle = bins[1:-1]
    merged = [sum(middle[place : place + step]) for place in range(0, len(middle), step)]
    return [bins[0], *merged, bins[-1]]


def _bars(bins: Sequence[float], row: int, rows: int, sign: str) -> str:
    """One row, counted from the axis. What is there at all is at least a dot."""
    top = max(bins)
    cells = []
    for each in bins:
        filled = each / top * rows if top else 0.0
        few = row == 0 and each > 0.05
        cells.append(sign if filled >= row + 0.5 else FEW if few else " ")
    return f"{cells[0]} {''.join(cells[1:])}".rstrip()


def _axis(step: int) -> str:
    decade = PER_DECADE // step
    labels = [f"+{label}" for label in DECADE_LABELS[:-1]]
    # A label that does not fit in its decade would shift the others.
    drawn = [(label if len(label) <= decade else "+").ljust(decade, "-") for label in labels]
    return f"{BELOW[0]} {''.join(drawn)}+{DECADE_LABELS[-1]}"


# -- the list


def _list(watch: Watch, by: str, width: int, room: int) -> list[Text]:
    if room < LEAST_LIST:
        return []
    lines = [Text(), _list_title(watch, by, width)]
    top = watch.top(by, room - 3)
    if not top:
        return [*lines, _line("nothing yet", width, "dim")]
    drawn = table_lines(_list_table(watch, by, top), width)
    lines.append(_line(drawn[0], width, "dim"))
    return lines + [_line(line, width) for line in drawn[1:]]


def _list_title(watch: Watch, by: str, width: int) -> Text:
    knows_time = watch.knows.upstream_time and by != "status"
    ranked = "upstream time" if knows_time else "requests"
    what = LISTED[by] if watch.knows.status or by != "url" else "URLs"
    return _ends(f"{what} by {ranked}, lately", _unlisted(watch, by), width, "bold")


def _unlisted(watch: Watch, by: str) -> str:
    """What the list has no names for, because memory is bounded."""
    fading = watch.lists[by]
    rest = fading.unlisted()
    share = ratio(rest.upstream_s, fading.total.upstream_s)
    if share is None:
        share = ratio(rest.requests, fading.total.requests)
    if not share or share < 0.0005:
        return ""
    return f"too many names: {percent(share)} of it is not listed"


def _list_table(watch: Watch, by: str, top: Sequence[tuple[str, Amount]]) -> Table:
    fading = watch.lists[by]
    rows = []
    for name, amount in top:
        upstream = per_second(ratio(amount.upstream_s, fading.seconds), " s")
        rows.append(
            [
                _shown(name, by),
                upstream if watch.knows.upstream_time else NOTHING,
                per_second(ratio(amount.requests, fading.seconds), ""),
                _last_cell(amount, fading.total, by, watch.knows),
            ]
        )
    last = {"url": "mostly", "group": "hits"}.get(by, "share")
    requests = "missed" if by in ("url", "reason") and watch.knows.status else "requests"
    return Table(
        title="",
        head=[by, "upstream", requests, last],
        rows=rows,
        text_columns=(0, 3) if by == "url" else (0,),
    )


def _shown(name: str, by: str) -> str:
    return REASONS.get(name, name) if by == "reason" else printable(name)


def _last_cell(amount: Amount, total: Amount, by: str, knows: Knows) -> str:
    if by == "url":
        return amount.mostly.replace("_", " ") if knows.status else NOTHING
    if by == "group":
        return percent(ratio(amount.served, amount.requests)) if knows.status else NOTHING
    if by == "reason" and knows.upstream_time:
        return percent(ratio(amount.upstream_s, total.upstream_s))
    return percent(ratio(amount.requests, total.requests))


def _keys(around: Around) -> str:
    if not around.keys:
        return "Ctrl-C quits"
    lists = " ".join(f"{name[0]} {name}" for name in BY)
    return f"keys: q quit, {lists}"


# -- lines of text


def _line(text: str, width: int, style: str = "") -> Text:
    return Text(cut(text, width), style=style, no_wrap=True, end="")


def _ends(left: str, right: str, width: int, style: str) -> Text:
    """Two texts at both ends of a line; the right one only if there is room."""
    gap = width - cell_len(left) - cell_len(right)
    if not right or gap < 2:
        return _line(left, width, style)
    return Text(left, style=style, end="").append(" " * gap + right, style="not bold dim")


# -- without a screen

HEAD = "time      requests/s  hits_%  cacheable_hits_%      bytes/s  upstream_s/s  saved_s/s  bad"


def plain(interval: Interval, watch: Watch, clock: str, bad: int) -> str:
    """One interval as a line of columns, for scripts: no units, ``-`` where nobody knows."""
    rates = interval.rates(watch.knows)
    return (
        f"{clock:8}  {_plain(rates.requests_per_s, 10, 1)}  {_percent(rates.hit_ratio, 6)}  "
        f"{_percent(rates.cacheable_hit_ratio, 16)}  {_plain(rates.bytes_per_s, 11, 0)}  "
        f"{_plain(rates.upstream_s_per_s, 12, 3)}  {_plain(rates.saved_s_per_s, 9, 3)}  {bad:3}"
    )


def _percent(share: float | None, room: int) -> str:
    return _plain(None if share is None else 100 * share, room, 1)


def _plain(number: float | None, room: int, digits: int) -> str:
    return f"{NOTHING if number is None else f'{number:.{digits}f}':>{room}}"


def summary(watch: Watch, title: str, notes: Sequence[str]) -> Iterator[str]:
    """What there was to see, when it is over."""
    since, knows = watch.since, watch.knows
    rates = since.rates(knows)
    yield f"Watched {printable(title)} for {_span(since.seconds)}: {_asked(watch, rates)}."
    if knows.prices:
        lent = watch.borrowed
        doubt = f" ({percent(lent)} of the answers at a price lent from their location)"
        yield (
            f"The cache saved {duration(since.saved_s)} of upstream time"
            f"{doubt if lent >= 0.001 else ''}; misses took {duration(since.upstream_s)}."
        )
    yield from _why(watch)
    yield from (f"{note[0].upper()}{note[1:]}." for note in notes)


def _asked(watch: Watch, rates: Rates) -> str:
    text = plural(watch.since.requests, "request")
    if rates.hit_ratio is not None:
        text += f", {percent(rates.hit_ratio)} from the cache"
    if rates.cacheable_hit_ratio is not None:
        text += f" ({percent(rates.cacheable_hit_ratio)} of what is cacheable)"
    return text


def _why(watch: Watch) -> Iterator[str]:
    if not watch.why or not watch.knows.status:
        return
    rank = watch.rank("reason")
    heaviest = sorted(watch.why.items(), key=lambda each: rank(each[1]), reverse=True)
    whole = sum(rank(amount)[0] for amount in watch.why.values())
    named = [
        f"{REASONS.get(name, name)} ({percent(ratio(rank(amount)[0], whole))})"
        for name, amount in heaviest[:SUMMARY_REASONS]
    ]
    of = "upstream time" if watch.knows.upstream_time else "requests"
    yield f"Misses by {of}: {'; '.join(named)}."
