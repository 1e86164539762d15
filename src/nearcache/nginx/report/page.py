"""The ledger in words and tables. The first sentence is the answer to seed 002:

"says how much my uwsgi_cache is hurting or saving me"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from nearcache.nginx.inspect.inspection import Inspection
from nearcache.nginx.inspect.ram import keys_zone_bytes
from nearcache.nginx.report.ledger import Account, Hour, Ledger
from nearcache.nginx.report.savings import FEW
from nearcache.report.model import Page, Part, Sparks, Table
from nearcache.report.words import NOTHING, count, duration, percent, plural, printable, ratio, size

NOT_A_CACHE = ("-", "(not logged)")
WORTH_SAYING = 0.01


def page(found: Ledger, cache_name: str, rows: int) -> Page:
    """What is said: ``cache_name`` is ``uwsgi_cache``, or ``cache`` if that is not known."""
    parts: list[Part] = []
    if found.statuses:
        parts.append(_statuses(found))
    if found.hurt and found.total.served is not None:
        parts.append(_hurt(found))
    for title, accounts, of in (
        ("By location", found.locations, len(found.locations)),
        ("By URL group", found.groups, found.groups_total),
    ):
        if accounts and rows:
            parts.append(_accounts(title, accounts[:rows], found, of))
    parts += _hours(found)
    return Page(
        title="report",
        sentences=[answer(found, cache_name), *_more(found)],
        parts=parts,
        notes=list(_notes(found)),
    )


def answer(found: Ledger, cache_name: str) -> str:
    """The first sentence."""
    total = found.total
    if not total.requests:
        return "There were no requests."
    if total.served is None:
        of = plural(total.requests, "request")
        return f"This log does not say what came from the cache: of {of} {_repeated(found)}."
    if not any(each.name not in NOT_A_CACHE for each in found.statuses):
        return (
            f"No cache took part in any of these {plural(total.requests, 'request')}; "
            f"{_repeated(found)}."
        )
    if not total.served:
        return (
            f"Your {cache_name} saves nothing: none of {plural(total.requests, 'request')} was "
            f"answered from it{_costing(found)}."
        )
    if total.saved is None:
        return (
            f"Your {cache_name} answered {count(total.served)} of "
            f"{plural(total.requests, 'request')} ({percent(total.hit_ratio)}){_costing(found)}; "
            f"how much time that saves {_why_no_time(found)}."
        )
    times = found.per_day or 1.0
    when = " a day" if found.per_day else f" in the {duration(found.span_s)} of this log"
    saved = total.saved
    return (
        f"Your {cache_name} is saving {duration(saved.seconds * times)} of upstream time{when}"
        f" ({duration(saved.low_s * times)} to {duration(saved.high_s * times)})"
        f"{_costing(found)}."
    )


def _repeated(found: Ledger) -> str:
    if found.repeats is None:
        return "nothing more can be told"
    return (
        f"{percent(found.repeats)} repeat an earlier one, and no cache could answer more than those"
    )


def _why_no_time(found: Ledger) -> str:
    if found.fetch_from is None:
        return "this log cannot tell"
    return "nobody knows, for nothing was fetched while it was written"


def _costing(found: Ledger) -> str:
    """The end of the first sentence."""
    times = found.per_day or 1.0
    if not found.hurt or not found.hurt.lock_waits:
        return ""
    return f", and costs {duration(found.hurt.lock_wait_s * times)} of waiting at its locks"


def _more(found: Ledger) -> Iterator[str]:
    total = found.total
    if found.hurt and total.saved and found.hurt.lock_wait_s > total.saved.seconds:
        yield (
            "That is more than it saves: `nearcache nginx misses` says what waits, and what to do."
        )
    if total.requests:
        yield f"{plural(total.requests, 'request')}, {size(total.bytes)} sent{_between(found)}."
    if total.hit_ratio is not None and total.served:
        cacheable = (
            f" and {percent(total.cacheable_hit_ratio)} of the requests that may be cached"
            if total.cacheable
            else ""
        )
        yield (
            f"From the cache came {percent(total.hit_ratio)} of the requests, "
            f"{percent(total.byte_hit_ratio)} of the bytes{cacheable}."
        )


def _between(found: Ledger) -> str:
    if not found.first or found.span_s is None:
        return ""
    return f" in {duration(found.span_s)}, from {_local(found.first)} to {_local(found.last)}"


def _statuses(found: Ledger) -> Table:
    return Table(
        title="What nginx says of its cache",
        head=["status", "requests", "share", "bytes", "upstream"],
        rows=[
            [
                printable(each.name),
                count(each.requests),
                percent(ratio(each.requests, found.total.requests)),
                size(each.bytes),
                duration(each.upstream_s),
            ]
            for each in found.statuses
        ],
    )


def _hurt(found: Ledger) -> Table:
    hurt = found.hurt
    assert hurt is not None
    return Table(
        title="What hurts",
        head=["", "requests", "time"],
        rows=[
            _hurting("waited at a lock for another's fetch", hurt.lock_waits, hurt.lock_wait_s),
            _hurting("fetched beside another (stampede)", hurt.stampede_fetches, hurt.stampede_s),
            _hurting("got an answer past its time to live", hurt.stale, None),
        ],
    )


def _hurting(what: str, requests: int, seconds: float | None) -> list[str]:
    return [what, count(requests), duration(seconds)]


def _accounts(title: str, accounts: Sequence[Account], found: Ledger, of: int) -> Table:
    more = of - len(accounts)
    head = ["", "requests"]
    if found.total.served is not None:
        head += ["hits"]
    if found.total.saved:
        head += ["saved", "95 %"]
    if found.total.upstream_s is not None:
        head += ["upstream"]
    return Table(
        title=title,
        head=[*head, "bytes"],
        rows=[list(_account(each, found)) for each in accounts],
        note=f"--top shows {more:,} more" if more else "",
    )


def _account(each: Account, found: Ledger) -> Iterator[str]:
    yield printable(each.name)
    yield count(each.requests)
    if found.total.served is not None:
        yield percent(each.hit_ratio)
    if found.total.saved:
        saved = each.saved
        yield duration(saved.seconds) if saved and saved.seconds else NOTHING
        yield _interval(each)
    if found.total.upstream_s is not None:
        yield duration(each.upstream_s)
    yield size(each.bytes)


def _interval(each: Account) -> str:
    """How far the middle may be off: seldom alike to both sides, and never below nothing."""
    if not each.saved or not each.saved.seconds:
        return NOTHING
    saved = each.saved
    low, high = (saved.low_s / saved.seconds - 1, saved.high_s / saved.seconds - 1)
    return f"{low:+.0%} {high:+.0%}"


def held(seen: Inspection) -> Table:
    """What a cache directory holds."""
    return Table(
        title="What the cache holds",
        head=["", seen.root],
        rows=[
            ["entries", count(seen.entries)],
            ["on the disk", size(seen.disk_bytes)],
            ["RAM", seen.ram.sentence],
            ["keys_zone it needs", size(keys_zone_bytes(seen.census.entries))],
        ],
        note="`nearcache nginx inspect` says more.",
        text_columns=(0, 1),
    )


def _hours(found: Ledger) -> Iterator[Sparks]:
    hours = [hour for hour in found.hours if hour.start is not None]
    if len(hours) < 2:
        return
    left, right = _local(hours[0].start), _local(hours[-1].start)
    yield Sparks("Requests by hour", [hour.requests for hour in hours], left, right)
    if found.total.served:
        ratios = [None if not hour.requests else _hit_ratio(hour) for hour in hours]
        top = max(value for value in ratios if value is not None)
        title = f"Hit ratio by hour (up to {percent(top)})"
        yield Sparks(title, ratios, left, right, shown=percent)
    if found.total.saved:
        saved = [hour.saved_s or 0.0 for hour in hours]
        title = f"Upstream time saved by hour (up to {duration(max(saved))})"
        yield Sparks(title, saved, left, right, shown=duration)


def _hit_ratio(hour: Hour) -> float:
    return (hour.served or 0) / hour.requests


def _notes(found: Ledger) -> Iterator[str]:
    if found.total.saved and found.fetch_from == "request_time":
        yield (
            "the log has no $upstream_response_time: $request_time of the fetches is taken, which "
            "has the client's own slowness in it"
        )
    if found.total.saved and found.borrowed > WORTH_SAYING:
        yield (
            f"{percent(found.borrowed)} of the hits are of URL groups that were never fetched in "
            "this log: they count with the mean of their location"
        )
    if found.total.saved and found.thin > WORTH_SAYING:
        yield (
            f"{percent(found.thin)} of the hits are of URLs with fewer than {FEW} fetches: "
            "what they saved is a rough figure"
        )
    stale = found.hurt.stale if found.hurt else 0
    if found.total.saved and found.total.served and stale > WORTH_SAYING * found.total.served:
        yield (
            f"{percent(ratio(stale, found.total.served))} of the hits were stale: nobody waited "
            "for them, but if nginx fetched in the background no log shows that time"
        )


def _local(moment: str | None) -> str:
    """In this machine's time zone, as its logs have it."""
    if moment is None:
        return NOTHING
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M")
