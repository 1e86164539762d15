"""Purge from a Django site: after the commit, on all hosts at once, in a bounded time.

    from nearcache.nginx import purge_url

    def save_article(article):
        article.save()
        purge_url(article.get_absolute_url())

Why after the commit: purged before, the page could be asked for and stored again from what
the database still says; and a transaction that is rolled back changed nothing.

A host that cannot be reached, or a secret that cannot be read, never breaks the request, unless
``raise_errors`` asks for it: the result says it, a counter counts it, and the log says once that it
began and once that it is over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Literal

from asgiref.sync import sync_to_async
from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS, transaction
from django.utils.encoding import iri_to_uri

from nearcache.base.per_process import Mutex
from nearcache.errors import NginxError
from nearcache.nginx.agent.hosts import MOST_WORDS, Host, Outcome, Wanted
from nearcache.nginx.django.settings import NAME, PurgeOptions, purge_options
from nearcache.nginx.purge.receipt import How

logger = logging.getLogger("nearcache.nginx")


NO_HOSTS = (
    f"{NAME} names no cache and no agent, so nothing was purged; write it into the settings of "
    "this process (manage.py check shows what is wrong with it)"
)


class PurgeFailed(NginxError):
    """A purge that was asked to raise did not succeed on all hosts; ``result`` has the outcomes."""

    def __init__(self, result: PurgeResult) -> None:
        failed = [each for each in result.outcomes if each.state == "failed"]
        said = "; ".join(f"{each.host}: {each.error}" for each in failed)
        super().__init__(said if result.outcomes else NO_HOSTS)
        self.result = result


@dataclass
class PurgeResult:
    """What became of one call. Filled after the commit; then ``state`` is ``"done"``."""

    urls: tuple[str, ...]
    state: Literal["waiting", "done"] = "waiting"
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Done, on one host at least, and none failed."""
        is_done = self.state == "done" and bool(self.outcomes)
        return is_done and all(each.state != "failed" for each in self.outcomes)

    @property
    def reason(self) -> str:
        """What went wrong, in words; empty while it waits, and if nothing did."""
        return "" if self.ok or self.state == "waiting" else str(PurgeFailed(self))

    @property
    def files(self) -> int:
        return sum(each.files for each in self.outcomes)


def purge_url(
    url: str,
    *,
    using: str = DEFAULT_DB_ALIAS,
    how: How | None = None,
    raise_errors: bool = False,
) -> PurgeResult:
    """Purge one URL; see :func:`purge_urls`."""
    return purge_urls([url], using=using, how=how, raise_errors=raise_errors)


def purge_urls(
    urls: Iterable[str],
    *,
    using: str = DEFAULT_DB_ALIAS,
    how: How | None = None,
    raise_errors: bool = False,
) -> PurgeResult:
    """Purge URLs from all caches that ``NEARCACHE_NGINX`` names, with all their variants.

    Inside of a transaction it happens after the commit, and never if there is none; else at once.

    Args:
        urls: whole URLs, or paths of the site whose address is ``base``.
        using: the database whose transaction counts.
        how: ``"soft"`` or ``"hard"`` instead of what the settings say.
        raise_errors: raise :class:`PurgeFailed` if a host failed, or none is in the settings.
            After a commit that means: out of the ``atomic`` block that was committed.

    Raises:
        OptionError: the settings are wrong (``manage.py check`` finds it).
        NginxError: ``urls`` is one text.
    """
    site = _site()
    result = PurgeResult(_texts(urls))
    wanted = site.wanted(result.urls, how)
    _after_commit(lambda: site.run(wanted, result, raise_errors), using)
    return result


async def apurge_url(
    url: str,
    *,
    using: str = DEFAULT_DB_ALIAS,
    how: How | None = None,
    raise_errors: bool = False,
) -> PurgeResult:
    """:func:`purge_url` for coroutines."""
    return await apurge_urls([url], using=using, how=how, raise_errors=raise_errors)


async def apurge_urls(
    urls: Iterable[str],
    *,
    using: str = DEFAULT_DB_ALIAS,
    how: How | None = None,
    raise_errors: bool = False,
) -> PurgeResult:
    """:func:`purge_urls` for coroutines: other tasks and the database's thread go on meanwhile."""
    site = _site()
    result = PurgeResult(_texts(urls))
    wanted = site.wanted(result.urls, how)

    def run() -> None:
        site.run(wanted, result, raise_errors)

    # In the thread of the database: only there it is known if a transaction is open.
    if await sync_to_async(_is_open)(using):
        await sync_to_async(_after_commit)(run, using)
    else:
        await asyncio.to_thread(run)
    return result


def purge_stats() -> dict[str, dict[str, int]]:
    """By host: how many purges ended as ``purged``, ``nothing`` and ``failed`` in this process."""
    return {name: dict(counts) for name, counts in _site().counts.items()}


def _texts(urls: Iterable[str]) -> tuple[str, ...]:
    if isinstance(urls, str):  # its characters would be URLs, "/" among them
        raise NginxError(f"purge_urls got one text; write purge_url({urls!r})")
    return tuple(map(str, urls))  # what reverse_lazy() gives is none yet


def _is_open(using: str) -> bool:
    """Is there anything that a commit could be waited for?"""
    connection = transaction.get_connection(using)
    # Django's on_commit would connect to the database to find out that nothing is open.
    return connection.in_atomic_block or connection.connection is not None


def _after_commit(run: Callable[[], None], using: str) -> None:
    if _is_open(using):
        transaction.on_commit(run, using=using)
    else:
        run()


class Site:
    """The hosts of one configuration, in one process."""

    def __init__(self, options: PurgeOptions) -> None:
        self.options = options
        self.hosts = options.hosts()
        self.counts: dict[str, Counter[str]] = {host.name: Counter() for host in self.hosts}
        self._down: set[str] = set()
        self._said = False
        self._mutex = Mutex()

    def wanted(self, urls: tuple[str, ...], how: How | None) -> list[Wanted]:
        """In parts that an agent takes."""
        whole = tuple(self._whole(url) for url in urls)
        chosen: How = how or ("hard" if self.options.how == "hard" else "soft")
        return [
            Wanted(whole[at : at + MOST_WORDS], (), chosen, self.options.forbid_stale)
            for at in range(0, len(whole), MOST_WORDS)
        ]

    def run(self, wanted: list[Wanted], result: PurgeResult, raise_errors: bool) -> None:
        began = time.monotonic()
        try:
            result.outcomes = self._outcomes(wanted, began + self.options.timeout_s)
        except Exception as error:  # noqa: BLE001 - it would end somebody's commit
            result.outcomes = [_broken(host, error) for host in self.hosts]
        result.seconds = time.monotonic() - began
        result.state = "done"
        for outcome in result.outcomes:
            self._note(outcome)
        if not self.hosts:
            self._say_that_nobody_is_asked()
        if raise_errors and not result.ok:
            raise PurgeFailed(result)

    def _outcomes(self, wanted: list[Wanted], until: float) -> list[Outcome]:
        if len(self.hosts) == 1 and not self.options.agents:
            # One directory needs no thread: it looks at the time by itself.
            return [_on(self.hosts[0], wanted, until)]
        # Threads of this call: kept ones would have to survive forks, and are not dearer than
        # the connections that they make.
        pool = ThreadPoolExecutor(max(1, len(self.hosts)), thread_name_prefix="nearcache-purge")
        asked = [(host, pool.submit(_on, host, wanted, until)) for host in self.hosts]
        wait([future for _, future in asked], max(0.0, until - time.monotonic()))
        pool.shutdown(wait=False, cancel_futures=True)
        return [_result_of(host, future, self.options.timeout_s) for host, future in asked]

    def _whole(self, url: str) -> str:
        # As Django writes them into a Location, and browsers send them: /ü is /%C3%BC.
        sent = iri_to_uri(url)
        return self.options.base + sent if sent.startswith("/") and self.options.base else sent

    def _say_that_nobody_is_asked(self) -> None:
        with self._mutex.now():
            is_news, self._said = not self._said, True
        if is_news:
            logger.error("%s. Said once.", NO_HOSTS)

    def _note(self, outcome: Outcome) -> None:
        """Count it; log it if it is news."""
        failed = outcome.state == "failed"
        with self._mutex.now():
            self.counts[outcome.host][outcome.state] += 1
            is_news = failed != (outcome.host in self._down)
            (self._down.add if failed else self._down.discard)(outcome.host)
        if is_news and failed:
            logger.error(
                "%s: a purge failed: %s; what it has stays until it expires. Said once.",
                outcome.host,
                outcome.error,
            )
        elif is_news:
            logger.info("%s: purges succeed again", outcome.host)


def _on(host: Host, wanted: list[Wanted], until: float) -> Outcome:
    """All parts on one host, as one outcome."""
    whole = Outcome(host.name, "nothing")
    for part in wanted:
        left_s = until - time.monotonic()
        if left_s <= 0:
            return replace(whole, state="failed", error="the time was over before all was purged")
        outcome = host.purge(part, left_s)
        state = "failed" if "failed" in (whole.state, outcome.state) else outcome.state
        if state == "nothing":
            state = whole.state
        whole = Outcome(
            host.name,
            state,
            whole.files + outcome.files,
            whole.error or outcome.error,
            whole.seconds + outcome.seconds,
        )
    return whole


def _result_of(host: Host, future: Future[Outcome], timeout_s: float) -> Outcome:
    if not future.done() or future.cancelled():
        said = f"no answer within {timeout_s:g} s (timeout_s)"
        return Outcome(host.name, "failed", error=said, seconds=timeout_s)
    error = future.exception()
    return _broken(host, error) if error else future.result()


def _broken(host: Host, error: BaseException) -> Outcome:
    """What nobody has thought of: no thread to be had, a text that cannot be encoded."""
    return Outcome(host.name, "failed", error=f"{type(error).__name__}: {error}")


_made: Site | None = None
_making = Mutex()


def _site() -> Site:
    global _made  # noqa: PLW0603 - the one of this process
    if _made is None:
        with _making.now():
            _made = _made or Site(purge_options())
    return _made


def _forget(setting: str, **_: object) -> None:
    global _made  # noqa: PLW0603
    if setting == NAME:
        _made = None


setting_changed.connect(_forget)
