"""The savings ledger: what the cache saved and what it cost, in time, requests and bytes.

    NginxResult (one native pass) ──> Ledger (figures) ──> Page (what is said), JSON

Saved time is :mod:`nearcache.nginx.report.savings`. What hurts is counted beside it and not
subtracted: a wait at a lock is somebody's waiting, a saved second is the upstream's work.
What the log cannot tell is None here, and said; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nearcache.nginx.logs.served import served, served_bytes
from nearcache.nginx.report.savings import Saved, Savings
from nearcache.report.words import ratio

if TYPE_CHECKING:
    from nearcache._core import NginxResult, NginxTally

DAY_S = 86400
NEARLY_A_DAY_S = 20 * 3600  # from here on "a day" is no longer a guess
GROUPS_KEPT = 200  # in the ledger, those that count most
ELSEWHERE = "(no location)"


@dataclass(frozen=True)
class Account:
    """The figures of everything, or of one location or URL group."""

    name: str
    requests: int
    bytes: int
    served: int | None
    """From the cache, nobody waited for an upstream; None if the log does not say."""
    hit_ratio: float | None
    byte_hit_ratio: float | None
    cacheable: int | None
    cacheable_hit_ratio: float | None
    upstream_s: float | None
    """Spent upstream on what was not served from the cache."""
    saved: Saved | None


@dataclass(frozen=True)
class Status:
    """One cache status as nginx logs it; ``-``: no cache took part."""

    name: str
    requests: int
    bytes: int
    upstream_s: float | None


@dataclass(frozen=True)
class Hurt:
    """What the cache cost, or could not prevent."""

    lock_waits: int
    lock_wait_s: float
    stampede_fetches: int
    """Fetched although the same key was just being fetched."""
    stampede_s: float
    stale: int
    """Answers older than their time to live: STALE and UPDATING."""


@dataclass(frozen=True)
class Hour:
    start: str | None
    requests: int
    served: int | None
    saved_s: float | None


@dataclass(frozen=True)
class Ledger:
    total: Account
    span_s: float | None
    """From the first request to the last."""
    first: str | None
    last: str | None
    statuses: list[Status]
    hurt: Hurt | None
    locations: list[Account]
    groups: list[Account]
    """Those that count most, at most ``GROUPS_KEPT``."""
    groups_total: int
    hours: list[Hour]
    repeats: float | None
    """The share of requests that were not the first of their key: no cache can hit more often."""
    fetch_from: str | None
    borrowed: float
    """Of what was served, the share whose group was never fetched: priced as their location."""
    thin: float
    """Of what was served, the share of URLs that were fetched fewer than five times."""

    @property
    def per_day(self) -> float | None:
        """What to multiply with for a day; None if the log is too short to say."""
        if self.span_s is None or self.span_s < NEARLY_A_DAY_S:
            return None
        return DAY_S / self.span_s

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ledger(result: NginxResult) -> Ledger:
    """What one pass over the logs found, as a ledger."""
    total, says = result["total"], result["says"]
    tells_status = bool(says.get("cache_status"))
    savings = Savings(result) if tells_status and result["fetch_from"] else None
    if savings and not savings.known:
        savings = None
    first, last = result["first_us"], result["last_us"]
    everything = range(len(result["groups"]))
    accounts = Accounts(result, savings)
    total_served = served(total)
    return Ledger(
        total=accounts.of("", total, everything),
        span_s=None if first is None or last is None else (last - first) / 1e6,
        first=_moment(first),
        last=_moment(last),
        statuses=_statuses(result) if tells_status else [],
        hurt=_hurt(total) if tells_status else None,
        locations=accounts.of_locations() if len(result["locations"]) > 1 else [],
        groups=accounts.of_heaviest_groups(),
        groups_total=sum(1 for each in result["groups"] if each["requests"]),
        hours=[_hour(hour, savings, tells_status) for hour in result["hours"]],
        repeats=_repeats(result),
        fetch_from=result["fetch_from"],
        borrowed=(ratio(savings.borrowed_requests, total_served) or 0.0) if savings else 0.0,
        thin=(ratio(savings.thin_requests, total_served) or 0.0) if savings else 0.0,
    )


class Accounts:
    """Makes accounts of tallies."""

    def __init__(self, result: NginxResult, savings: Savings | None) -> None:
        self.result = result
        self.savings = savings
        self.tells_status = bool(result["says"].get("cache_status"))

    def of(self, name: str, tally: NginxTally, groups: Sequence[int]) -> Account:
        hits = served(tally) if self.tells_status else None
        cacheable = tally["cacheable"] if self.tells_status else None
        return Account(
            name=name,
            requests=tally["requests"],
            bytes=tally["bytes"],
            served=hits,
            hit_ratio=None if hits is None else ratio(hits, tally["requests"]),
            byte_hit_ratio=None if hits is None else ratio(served_bytes(tally), tally["bytes"]),
            cacheable=cacheable,
            cacheable_hit_ratio=ratio(hits, cacheable) if hits is not None and cacheable else None,
            upstream_s=self._upstream_s(tally),
            saved=self.savings.of_groups(groups) if self.savings else None,
        )

    def of_locations(self) -> list[Account]:
        members: dict[int, list[int]] = {}
        for number, group in enumerate(self.result["groups"]):
            members.setdefault(group["location"], []).append(number)
        found = [
            self.of(
                f"{each['kind'] or ''} {each['pattern']}".strip() if each["pattern"] else ELSEWHERE,
                each,
                members.get(number, []),
            )
            for number, each in enumerate(self.result["locations"])
            if each["requests"]
        ]
        return sorted(found, key=weight, reverse=True)

    def of_heaviest_groups(self) -> list[Account]:
        found = [
            self.of(each["name"], each, [number])
            for number, each in enumerate(self.result["groups"])
            if each["requests"]  # else all of it was left out, as asked
        ]
        return sorted(found, key=weight, reverse=True)[:GROUPS_KEPT]

    def _upstream_s(self, tally: NginxTally) -> float | None:
        return tally["upstream_us"] / 1e6 if self.result["says"].get("upstream_time") else None


def weight(account: Account) -> tuple[float, int]:
    """What makes a row come first: the time that is at stake, else requests."""
    saved = account.saved.seconds if account.saved else 0.0
    return saved + (account.upstream_s or 0.0), account.requests


def _statuses(result: NginxResult) -> list[Status]:
    tells = result["says"].get("upstream_time")
    found = [
        Status(
            name or "(not logged)",
            each["requests"],
            each["bytes"],
            each["upstream_us"] / 1e6 if tells else None,
        )
        for name, each in result["total"]["statuses"].items()
    ]
    return sorted(found, key=lambda status: status.requests, reverse=True)


def _hurt(total: NginxTally) -> Hurt:
    duplicates = total["why"].get("duplicate", {"requests": 0, "upstream_us": 0})
    statuses = total["statuses"]
    return Hurt(
        lock_waits=total["lock_waits"]["requests"],
        lock_wait_s=total["lock_waits"]["waited_us"] / 1e6,
        stampede_fetches=duplicates["requests"],
        stampede_s=duplicates["upstream_us"] / 1e6,
        stale=sum(statuses[each]["requests"] for each in ("STALE", "UPDATING") if each in statuses),
    )


def _hour(hour: Any, savings: Savings | None, tells_status: bool) -> Hour:
    start = hour["start_s"]
    return Hour(
        start=None if start is None else _moment(start * 1_000_000),
        requests=hour["requests"],
        served=served(hour) if tells_status else None,
        saved_s=savings.of_hour(hour["served"]) if savings else None,
    )


def _repeats(result: NginxResult) -> float | None:
    requests = result["total"]["requests"]
    if not requests or not result["says"].get("uri"):
        return None
    return max(0.0, 1 - result["keys"]["distinct"] / requests)


def _moment(us: int | None) -> str | None:
    """ISO 8601 in UTC, to the second."""
    return None if us is None else datetime.fromtimestamp(us // 1_000_000, UTC).isoformat()
