"""Why requests were not served from the cache, which, and the three changes that would buy most.

The reasons come from the native pass (``_core.NginxTally.why``). A change is proposed from
the figures, each with its gain and how certain that is:

    likely   the log was replayed with the change, through a model that gives what nginx logged;
             of several such changes each counts what those before it leave (``gains.py``)
    up to    a bound: so much was fetched, and some of it would still be. Where responses may
             not be stored, the bound is cut to the share of requests that were repeats, which
             no cache can beat

An "up to" counts a quarter when changes are put in order, so that a large hope does not
push aside a smaller certainty. The gain that is shown is never scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from nearcache.nginx.config.read.site import Site
from nearcache.nginx.logs.served import served
from nearcache.nginx.misses.gains import Gain, Gained
from nearcache.nginx.whatif.rules import Change as Rules

if TYPE_CHECKING:
    from nearcache._core import NginxResult

PROPOSED = 3
UP_TO_COUNTS = 0.25
WORTH_A_CHANGE = 0.005  # of all upstream time, or of all requests

REASONS: Mapping[str, str] = {
    "compulsory": "asked for the first time",
    "expired": "its time to live was over",
    "inactive": "not asked for within inactive=",
    "evicted": "gone while fresh: size or purge",
    "dropped": "gone while fresh: inactive, size",
    "fragmented": "cached under another spelling",
    "variant": "cached for other headers (Vary)",
    "duplicate": "another request was fetching it",
    "min_uses": "not asked for min_uses times yet",
    "never_stored": "asked for before, never stored",
    "set_cookie": "the response sets a cookie",
    "private": "Cache-Control: private",
    "no_store": "Cache-Control: no-store",
    "no_cache": "Cache-Control: no-cache",
    "vary": "Vary: * or too long",
    "status": "its status is not cached",
    "no_ttl": "nothing gives it a time to live",
    "method": "neither GET nor HEAD",
    "bypass": "cache_bypass",
    "authorization": "bypass, and sent Authorization",
    "no_cache_here": "no cache in its location",
    "unknown": "the log does not say",
}
"""In at most 32 columns, or the table does not fit 80."""


@dataclass(frozen=True)
class Reason:
    name: str
    says: str
    requests: int
    upstream_s: float | None


@dataclass(frozen=True)
class Change:
    """Something to change, and what it would buy."""

    reason: str
    do: str
    where: str
    """The URL group that has most of it, and its share; empty if there is none."""
    likely: bool
    """True: these fetches would not have been. False: at most so many."""
    gain_requests: int
    gain_s: float | None
    """Of likely ones: what those before it in the list leave."""
    but: str
    """What to look at first."""
    gain_is: str = "upstream time"
    """Or ``waiting``, of those who asked."""
    alone: Gain | None = None
    """What it would save without those before it; None: it was not replayed."""


@dataclass(frozen=True)
class Url:
    """A URL that was often missed. The true figures are at most ``error`` higher."""

    url: str
    host: str | None
    """None: the log does not say, or several hosts share its entry."""
    group: str
    requests: int
    upstream_s: float | None
    error: float
    """In seconds, or requests if the log has no times."""
    mostly: str


@dataclass(frozen=True)
class Misses:
    requests: int
    missed: int | None
    """Not served from the cache; None if the log does not say what was."""
    upstream_s: float | None
    reasons: list[Reason]
    changes: list[Change]
    top: list[Url]
    ranked_by: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


Replayer = Callable[[Mapping[str, Rules]], Sequence[Gained] | None]


def misses(result: NginxResult, site: Site, replayer: Replayer | None = None) -> Misses:
    """What one pass over the logs found about what was not served from the cache.

    Args:
        replayer: what changes save, of those that can be replayed (:func:`~.gains.gains`); None,
            and if it has no answer, then what they are named for is a bound.
    """
    has_times = bool(result["says"].get("upstream_time"))
    why = result["total"]["why"]
    reasons = [
        Reason(
            name=name,
            says=REASONS.get(name, name),
            requests=each["requests"],
            upstream_s=each["upstream_us"] / 1e6 if has_times else None,
        )
        for name, each in why.items()
    ]
    reasons.sort(key=lambda reason: (reason.upstream_s or 0.0, reason.requests), reverse=True)
    missed = sum(each["requests"] for each in why.values())
    return Misses(
        requests=result["total"]["requests"],
        missed=missed if result["says"]["cache_status"] else None,
        upstream_s=sum(each["upstream_us"] for each in why.values()) / 1e6 if has_times else None,
        reasons=reasons,
        changes=Proposals(result, site, has_times, replayer).best(),
        top=[_url(each, result, has_times) for each in result["top"]],
        ranked_by=result["ranked_by"],
    )


def _url(each: Any, result: NginxResult, has_times: bool) -> Url:
    in_time = result["ranked_by"] != "requests"
    return Url(
        url=each["url"],
        host=each["host"],
        group=result["groups"][each["group"]]["name"],
        requests=each["requests"],
        upstream_s=each["upstream_us"] / 1e6 if has_times else None,
        error=each["error"] / 1e6 if in_time else each["error"],
        mostly=max(each["why"], key=each["why"].__getitem__, default=""),
    )


@dataclass(frozen=True)
class Advice:
    """What can be done about a reason. ``{p}`` is proxy, uwsgi, fastcgi or scgi."""

    do: str
    only_repeats: bool = False
    but: str = ""


ADVICE: Mapping[str, Advice] = {
    "inactive": Advice(
        "raise inactive= of {p}_cache_path to the time to live",
        but="the cache grows on the disk; max_size= bounds it",
    ),
    "dropped": Advice(
        "raise inactive= of {p}_cache_path to the time to live, then max_size=",
        but="with --config it can be told which of the two it was",
    ),
    "evicted": Advice(
        "raise max_size= (or the size of keys_zone=) of {p}_cache_path",
        but="a purge looks the same in a log",
    ),
    "expired": Advice(
        "raise the time to live",
        but="answers get older; `nearcache nginx whatif --ttl` tells the price",
    ),
    "duplicate": Advice(
        "add `{p}_cache_lock on` for first fetches, and `{p}_cache_use_stale updating` with "
        "`{p}_cache_background_update on` for those of expired copies",
        but="at the lock requests wait for the first, up to {p}_cache_lock_timeout",
    ),
    "variant": Advice("send fewer names in Vary", but="what differs by a header must keep it"),
    "min_uses": Advice("lower {p}_cache_min_uses", but="more files are written"),
    "never_stored": Advice(
        "find out why it is not stored, or set {p}_cache_valid",
        but="log the headers: `nearcache nginx config` prints the log_format",
    ),
    "set_cookie": Advice(
        "do not set a cookie there (sessions, CSRF), or ignore and hide Set-Cookie in nginx",
        only_repeats=True,
        but="only where the answer is the same for everybody",
    ),
    "private": Advice(
        "let the application send `Cache-Control: public, max-age=...`",
        only_repeats=True,
        but="only where the answer is the same for everybody",
    ),
    "no_store": Advice(
        "let the application send `Cache-Control: public, max-age=...` and not no-store",
        only_repeats=True,
        but="only where the answer is the same for everybody",
    ),
    "no_cache": Advice(
        "let the application send `Cache-Control: max-age=...` and not no-cache",
        only_repeats=True,
        but="only where an older answer will do",
    ),
    "vary": Advice(
        "let the application send a short Vary: no *, no Cookie",
        only_repeats=True,
        but="only where the answer does not depend on it",
    ),
    "no_ttl": Advice(
        "give it a time to live: Cache-Control: max-age=... or {p}_cache_valid",
        only_repeats=True,
    ),
    "status": Advice(
        "cache errors briefly: `{p}_cache_valid 404 1m`",
        only_repeats=True,
        but="a page that appears later is missing for so long",
    ),
    "no_cache_here": Advice(
        "cache this location with {p}_cache",
        only_repeats=True,
        but="only where the answer is the same for everybody",
    ),
}

SPELLINGS: Mapping[str, str] = {
    "case": "spell the key in lower case",
    "order": "sort the arguments in the key",
    "tracking": "leave utm_*, fbclid and the like out of the key",
    "encoding": "decode and trim the key",
}
TRACKING = (
    "utm_*|fbclid|gclid|gclsrc|dclid|gbraid|wbraid|msclkid|mc_cid|mc_eid|yclid|igshid|igsh|twclid|"
    "ttclid|li_fat_id|srsltid|_ga|_gl|_hsenc|_hsmi"
)
"""What the log pass takes for tracking (``spelling.rs``)."""
KEY_RULES: Mapping[str, str] = {
    "case": "lower,lower-path",
    "order": "sort-args",
    "tracking": f"drop={TRACKING}",
    "encoding": "strip",
}
"""The same as SPELLINGS, in words of ``whatif --key``."""
SAME_ANSWER = "only where both spellings get the same answer; forward what you key"
SEVERAL_INACTIVE = (
    "locations have different inactive=: --host with a server that has one tells which it was"
)
LOCK_IS_ON = Advice(
    "add `{p}_cache_use_stale updating` with `{p}_cache_background_update on`, or raise "
    "{p}_cache_lock_timeout and {p}_cache_lock_age above the longest fetch",
    but="the lock is on already: it holds back no fetches of expired copies, and the others only "
    "until it times out",
)
MOST_REPLAYED = 4  # changes, those with the largest bounds: it takes about as many squared replays


class Proposals:
    """What could be changed, from the figures of one pass and of replays."""

    def __init__(
        self, result: NginxResult, site: Site, has_times: bool, replayer: Replayer | None
    ) -> None:
        self.result = result
        self.site = site
        self.has_times = has_times
        self.replayer = replayer
        requests = result["total"]["requests"]
        self.repeats = max(0.0, 1 - result["keys"]["distinct"] / requests) if requests else 0.0

    def best(self) -> list[Change]:
        bounds = {name: change for name, change in self._bounds() if self._counts(change)}
        waits = [change for change in self._needless_waits() if self._counts(change)]
        found = list(self._replayed(bounds))
        # One after the other, as they have what they have: none counts more than one before it.
        weights = list(accumulate(map(self._weight, found), min))
        for change in (*bounds.values(), *waits):
            found.append(change)
            weights.append(self._weight(change))
        order = sorted(range(len(weights)), key=weights.__getitem__, reverse=True)
        return [found[place] for place in order[:PROPOSED]]

    def _bounds(self) -> Iterator[tuple[str, Change]]:
        """By reason, or by spelling."""
        for name, why in self.result["total"]["why"].items():
            advice = ADVICE.get(name)
            if name == "duplicate" and self.site.lock:
                advice = LOCK_IS_ON
            if name == "dropped" and self.site.is_known and advice:
                advice = replace(advice, but=SEVERAL_INACTIVE)
            if advice:
                yield name, self._change(name, advice, why)
        for spelling, why in self.result["spellings"].items():
            do = SPELLINGS.get(spelling, spelling)
            yield spelling, self._change("fragmented", Advice(do, but=SAME_ANSWER), why)

    def _replayed(self, bounds: dict[str, Change]) -> Iterator[Change]:
        """Takes out of ``bounds`` what was replayed."""
        rules = {name: each for name in bounds if (each := self._rules(name))}
        largest = sorted(rules, key=lambda name: self._weight(bounds[name]), reverse=True)
        wanted = {name: rules[name] for name in largest[:MOST_REPLAYED]}
        gained = self.replayer(wanted) if self.replayer and wanted else None
        if gained is None:
            return
        changes = {name: bounds.pop(name) for name in wanted}
        for saved in gained:
            change = replace(
                changes[saved.name],
                likely=True,
                gain_requests=saved.more.requests,
                gain_s=saved.more.seconds if self.has_times else None,
                alone=saved.alone,
            )
            if self._counts(change):
                yield change

    def _rules(self, name: str) -> Rules | None:
        """What the model is to replay."""
        if name in KEY_RULES:
            return Rules(key=KEY_RULES[name])
        if name == "duplicate":
            return Rules(lock=True, background=True)
        if name == "min_uses":
            return Rules(min_uses=1)
        if name == "inactive":
            first, last = self.result["first_us"], self.result["last_us"]
            return Rules(inactive_s=((last or 0) - (first or 0)) / 1e6 + 1)
        return None

    def _change(self, name: str, advice: Advice, why: Any) -> Change:
        share = self.repeats if advice.only_repeats else 1.0
        prefix = self.site.prefix
        return Change(
            reason=name,
            do=advice.do.replace("{p}", prefix),
            where=self._where(name),
            likely=False,
            gain_requests=round(why["requests"] * share),
            gain_s=why["upstream_us"] / 1e6 * share if self.has_times else None,
            but=advice.but.replace("{p}", prefix),
        )

    def _needless_waits(self) -> Iterator[Change]:
        """A lock lets requests through one by one, also for what is never stored in the end."""
        waits = [
            (each["lock_waits"]["waited_us"], each["lock_waits"]["requests"], each["name"])
            for each in self.result["groups"]
            if each["lock_waits"]["requests"] and not served(each)
        ]
        if waits:
            prefix = self.site.prefix
            waited_us, _, name = max(waits)
            total_us = sum(each[0] for each in waits)
            yield Change(
                reason="lock_waits",
                do=f"take what is never stored out of {prefix}_cache (a location of its own, or "
                f"{prefix}_cache_bypass): its requests wait for each other at {prefix}_cache_lock",
                where=f"{name} ({waited_us / total_us:.0%} of it)",
                likely=True,
                gain_requests=sum(each[1] for each in waits),
                gain_s=total_us / 1e6,
                but="",
                gain_is="waiting",
            )

    def _where(self, reason: str) -> str:
        """The group with most of it. Of fragments, of all their spellings."""
        field = "upstream_us" if self.has_times else "requests"
        amounts = [
            (each["why"][reason][field], each["name"])  # type: ignore[literal-required]
            for each in self.result["groups"]
            if reason in each["why"]
        ]
        total = sum(amount for amount, _ in amounts)
        if not total or len(self.result["groups"]) < 2:
            return ""
        amount, name = max(amounts)
        return f"{name} ({amount / total:.0%} of it)"

    def _counts(self, change: Change) -> bool:
        total = self.result["total"]
        if change.gain_s is not None:
            return change.gain_s > WORTH_A_CHANGE * total["upstream_us"] / 1e6
        return change.gain_requests > WORTH_A_CHANGE * total["requests"]

    def _weight(self, change: Change) -> float:
        gain = change.gain_requests if change.gain_s is None else change.gain_s
        return gain * (1 if change.likely else UP_TO_COUNTS)
