"""A log as it is written: what the cache does now and did since the start, and what is missed.

    NginxLog.take_recent() ──> Watch.take() ──> Interval  (one look, exactly)
                                           ├──> window, since: sums of intervals
                                           └──> Fading sums by URL, group, status, reason

Seconds saved are those of the ledger (``report/savings.py``): what the cache answered, at the
price that an answer of its URL group has by all fetches that were read so far. A price that becomes
better known changes what was saved since the start, not what was shown as saved a moment ago.

Not here: time (intervals say how long they were), files, terminals (``screen.py``).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from math import exp
from typing import TYPE_CHECKING, Any

from nearcache.nginx.logs.served import served
from nearcache.nginx.watch.fading import (
    Amount,
    Fading,
    FadingTimes,
    Rank,
    by_requests,
    by_upstream,
)
from nearcache.report.words import ratio

if TYPE_CHECKING:
    from nearcache._core import NginxRecent, NginxTop

BY = ("url", "group", "status", "reason")
"""What can be listed: missed URLs, URL groups, cache statuses, reasons of misses."""
HISTORY = 600  # intervals that the curve remembers
UNKNOWN_STATUS = "(not logged)"


@dataclass(frozen=True)
class Knows:
    """What this log can tell at all."""

    status: bool = False
    upstream_time: bool = False
    request_time: bool = False
    bytes: bool = False
    prices: bool = False
    """Was anything fetched yet? Else nobody knows what a hit saves."""


@dataclass(frozen=True)
class Interval:
    """Sums over some seconds. What the log cannot tell is 0 here, and None in :meth:`rates`."""

    seconds: float = 0.0
    requests: int = 0
    served: int = 0
    cacheable: int = 0
    bytes: int = 0
    upstream_s: float = 0.0
    """Spent upstream on what was not served from the cache."""
    saved_s: float = 0.0

    def __add__(self, other: Interval) -> Interval:
        sums = (getattr(self, each.name) + getattr(other, each.name) for each in fields(self))
        return Interval(*sums)

    def rates(self, knows: Knows) -> Rates:
        hits = self.served if knows.status else None
        return Rates(
            requests_per_s=self._per_s(self.requests),
            hit_ratio=None if hits is None else ratio(hits, self.requests),
            cacheable_hit_ratio=None if hits is None else ratio(hits, self.cacheable),
            bytes_per_s=self._per_s(self.bytes) if knows.bytes else None,
            upstream_s_per_s=self._per_s(self.upstream_s) if knows.upstream_time else None,
            saved_s_per_s=self._per_s(self.saved_s) if knows.prices else None,
        )

    def _per_s(self, amount: float) -> float | None:
        return ratio(amount, self.seconds)


@dataclass(frozen=True)
class Rates:
    """None where nobody knows."""

    requests_per_s: float | None
    hit_ratio: float | None
    cacheable_hit_ratio: float | None
    bytes_per_s: float | None
    upstream_s_per_s: float | None
    """Seconds of upstream time a second: how many of its workers are busy with misses."""
    saved_s_per_s: float | None


class Prices:
    """What an answer of each URL group saves. All fetches that were ever read count."""

    def __init__(self) -> None:
        self._prices: list[tuple[float, bool]] = []

    @property
    def are_known(self) -> bool:
        """False if nothing was fetched."""
        return not all(is_lent for _, is_lent in self._prices)

    def learn(self, news: NginxRecent) -> None:
        self._prices = news["prices_us"]

    def is_borrowed(self, group: int) -> bool:
        return self._prices[group][1]

    def saved_s(self, served_by_group: Iterable[tuple[int, int]]) -> float:
        """Of (number of the group, answers from the cache)."""
        return sum(many * self._prices[group][0] / 1e6 for group, many in served_by_group)


@dataclass
class Watch:
    """What is shown of a log that is watched. Bounded in memory, however long.

    Args:
        window_s: what "now" is, and how slowly lists forget.
    """

    window_s: float
    knows: Knows = Knows()
    lines: int = 0
    bad: int = 0
    key_rate: float = 1.0
    window: deque[Interval] = field(default_factory=deque)
    hit_ratios: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY))
    """Of each interval, the newest last; None where nothing was asked for."""
    why: dict[str, Amount] = field(default_factory=dict)
    """Since the start."""
    learned: int = 0
    """Lines from before the start: they count nowhere but in prices and in the past of keys."""

    def __post_init__(self) -> None:
        self.lists = {name: Fading(self.window_s) for name in BY}
        self.served_times, self.missed_times = FadingTimes(), FadingTimes()
        self._prices = Prices()
        self._sums = Interval()
        self._served: Counter[int] = Counter()  # by group
        self._bad_before = 0
        self._hosts: set[str] = set()  # of missed URLs; two are enough to tell them apart

    def learn(self, news: NginxRecent) -> None:
        """Takes what was in the log before the start."""
        self._prices.learn(news)
        self._note(news)
        self._note_hosts(news)
        self.learned, self._bad_before = news["lines"], news["bad"]
        self.lines = self.bad = 0

    def take_backlog(self, news: NginxRecent) -> None:
        """Takes what was in the log at the start, and counts: it lasted as long as it says."""
        first, last = news["first_us"], news["last_us"]
        self._count(news, 0.0 if first is None or last is None else (last - first) / 1e6)

    def take(self, news: NginxRecent, seconds: float) -> Interval:
        """Takes what came in the last so many seconds."""
        interval = self._count(news, seconds)
        self.window.append(interval)
        while self.now.seconds - self.window[0].seconds >= self.window_s:
            self.window.popleft()
        self._note_hosts(news)
        known = self.knows.status
        self.hit_ratios.append(ratio(interval.served, interval.requests) if known else None)
        self._fade(seconds)
        self._list(news)
        return interval

    @property
    def now(self) -> Interval:
        """The sums of the window."""
        return sum(self.window, Interval())

    @property
    def since(self) -> Interval:
        """The sums since the start, at the prices of now."""
        return self._sums + Interval(saved_s=self._prices.saved_s(self._served.items()))

    @property
    def borrowed(self) -> float:
        """Of the answers from the cache, the share whose price is that of their location."""
        lent = [many for group, many in self._served.items() if self._prices.is_borrowed(group)]
        return ratio(sum(lent), self._sums.served) or 0.0

    def rank(self, by: str) -> Rank:
        return by_upstream if self.knows.upstream_time and by != "status" else by_requests

    def top(self, by: str, count: int) -> list[tuple[str, Amount]]:
        return self.lists[by].top(count, self.rank(by))

    def _count(self, news: NginxRecent, seconds: float) -> Interval:
        self._prices.learn(news)
        self._note(news)
        answers = [(each["number"], served(each)) for each in news["groups"] if served(each)]
        for group, many in answers:
            self._served[group] += many
        for reason, amount in _reasons(news["total"]["why"]).items():
            self.why.setdefault(reason, Amount()).add(amount)
        total = news["total"]
        sums = Interval(
            seconds=seconds,
            requests=total["requests"],
            served=served(total),
            cacheable=total["cacheable"],
            bytes=total["bytes"],
            upstream_s=total["upstream_us"] / 1e6,
        )
        self._sums += sums
        return sums + Interval(saved_s=self._prices.saved_s(answers))

    def _note(self, news: NginxRecent) -> None:
        says = news["says"]
        self.lines = news["lines"] - self.learned
        self.bad = news["bad"] - self._bad_before
        self.key_rate = news["key_rate"]
        self.knows = Knows(
            status=says["cache_status"],
            upstream_time=says["upstream_time"],
            request_time=says["request_time"],
            bytes=says["bytes"],
            prices=says["cache_status"] and self._prices.are_known,
        )

    def _note_hosts(self, news: NginxRecent) -> None:
        for each in news["top"]:
            if each["host"] and len(self._hosts) < 2:
                self._hosts.add(each["host"])

    def _url(self, entry: NginxTop) -> str:
        """With its host as soon as there are several; one entry of all hosts has none."""
        host = entry["host"] if len(self._hosts) > 1 else None
        return f"{host or ''}{entry['url']}"

    def _fade(self, seconds: float) -> None:
        for each in self.lists.values():
            each.fade(seconds)
        for times in (self.served_times, self.missed_times):
            times.fade(exp(-seconds / self.window_s))

    def _list(self, news: NginxRecent) -> None:
        self.served_times.add(news["served_took_us"])
        self.missed_times.add(news["missed_took_us"])
        reasons = _reasons(news["total"]["why"])
        missed = Amount()
        for amount in reasons.values():
            missed.add(amount)
        self._add("url", ((self._url(each), _of_url(each)) for each in news["top"]), missed)
        groups = [(each["name"], _of_group(each)) for each in news["groups"]]
        everything = _of_group(news["total"])
        self._add("group", groups, everything)
        self._add("status", _statuses(news), everything)
        self._add("reason", reasons.items(), missed)

    def _add(self, by: str, amounts: Iterable[tuple[str, Amount]], total: Amount) -> None:
        fading = self.lists[by]
        for name, amount in amounts:
            fading.add(name, amount)
        fading.total.add(total)
        fading.cut(self.rank(by))

    def as_json(self, interval: Interval, by: str, count: int) -> dict[str, Any]:
        """One look, for machines: rates and ratios where they are known, else null."""
        listed = self.lists[by]
        return {
            "interval": self._figures(interval),
            "window": self._figures(self.now),
            "since_start": self._figures(self.since),
            "why": {name: _plain(amount) for name, amount in self.why.items()},
            "by": by,
            "top": [
                {"name": name} | _rates_of(amount, listed.seconds) | {"mostly": amount.mostly}
                for name, amount in self.top(by, count)
            ],
            "not_listed": _rates_of(listed.unlisted(), listed.seconds)
            | {"names_dropped": listed.dropped},
        }

    def _figures(self, sums: Interval) -> dict[str, Any]:
        """With null for what the log cannot tell."""
        silent = {
            "served": not self.knows.status,
            "cacheable": not self.knows.status,
            "bytes": not self.knows.bytes,
            "upstream_s": not self.knows.upstream_time,
            "saved_s": not self.knows.prices,
        }
        known = {name: None if silent.get(name) else each for name, each in asdict(sums).items()}
        return known | asdict(sums.rates(self.knows))


def _reasons(why: Mapping[str, Any]) -> dict[str, Amount]:
    return {
        name: Amount(requests=each["requests"], upstream_s=each["upstream_us"] / 1e6)
        for name, each in why.items()
    }


def _of_url(entry: NginxTop) -> Amount:
    return Amount(
        requests=entry["requests"],
        upstream_s=entry["upstream_us"] / 1e6,
        mostly=max(entry["why"], key=entry["why"].__getitem__, default=""),
    )


def _of_group(tally: Any) -> Amount:
    why = tally["why"]
    return Amount(
        requests=tally["requests"],
        served=served(tally),
        upstream_s=tally["upstream_us"] / 1e6,
        mostly=max(why, key=lambda name: why[name]["upstream_us"], default=""),
    )


def _statuses(news: NginxRecent) -> list[tuple[str, Amount]]:
    return [
        (
            name or UNKNOWN_STATUS,
            Amount(requests=each["requests"], upstream_s=each["upstream_us"] / 1e6),
        )
        for name, each in news["total"]["statuses"].items()
    ]


def _rates_of(amount: Amount, seconds: float) -> dict[str, float]:
    return {
        "requests_per_s": amount.requests / seconds if seconds else 0.0,
        "upstream_s_per_s": amount.upstream_s / seconds if seconds else 0.0,
    }


def _plain(amount: Amount) -> dict[str, float]:
    return {"requests": amount.requests, "upstream_s": amount.upstream_s}
