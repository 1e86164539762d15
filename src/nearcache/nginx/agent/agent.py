"""A small HTTP endpoint that purges the caches of its host, for sites on other hosts.

    POST /purge     {"urls": [...], "keys": [...], "how": "soft"}, signed (signing.py)
    200             {"state": "purged", "files": 3, "error": ""}, signed
    4xx, 5xx        {"error": "..."}

It can do nothing else: no listing, no patterns, no reading. What guards it, in this order:

    places          many for who has not signed yet, so that nobody can keep others out (doorway.py)
    signature       of the head, before a byte of the body is read (signing.py)
    time, nonce     within 30 s of this clock, after the start, and never twice (guard.py)
    slots           for purges at once; of one address half of them
    size            a body of at most 1 MiB, its length said beforehand

An address that is refused often gets no answers and no lines of log any more.

One thread speaks with all clients, and a thread for each slot purges: in microseconds, as
variants are known (cachedir/variants.py). It speaks no TLS. Bind it to loopback or a private
network; where that is shared, put nginx with TLS before it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from nearcache.base.options import Secret
from nearcache.errors import NginxError
from nearcache.nginx.agent.doorway import Doorway, Request
from nearcache.nginx.agent.guard import Buckets, Guard
from nearcache.nginx.agent.hosts import LocalCache, Outcome, State, Wanted

logger = logging.getLogger("nearcache.nginx.agent")

LOGGED = 20  # URLs and keys of one request
PURGE_S = 60.0  # in all caches
BACKLOG = 4096  # connections that the kernel keeps until they are accepted, if it allows so many
STOP_S = 5.0  # for purges that run when it is stopped

Answer = tuple[int, dict[str, Any]]


class Agent:
    """Listens from the beginning, and serves until :meth:`stop`. Use as a context manager."""

    def __init__(
        self,
        address: tuple[str, int],
        hosts: Sequence[LocalCache],
        secret: Secret,
        report: Callable[[dict[str, Any]], None] | None = None,
        *,
        buckets: Buckets | None = None,
    ) -> None:
        """
        Args:
            address: host and port; port 0 takes a free one.
            report: is told each purge, in threads.
        Raises:
            OSError: the address is not to be had.
        """
        self.hosts = hosts
        self.guard = Guard(secret)
        self.doorway = Doorway(self.guard, buckets or Buckets(), self._take)
        self.report = report
        is_ipv6 = ":" in address[0]
        self._socket = socket.create_server(
            address,
            family=socket.AF_INET6 if is_ipv6 else socket.AF_INET,
            dualstack_ipv6=is_ipv6 and socket.has_dualstack_ipv6(),
        )
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._threads = ThreadPoolExecutor(self.doorway.limits.slots, "nearcache-purge")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._is_stopping = False
        self._purging: set[asyncio.Future[Answer]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """After :meth:`serve` has returned."""
        self._socket.close()
        self._threads.shutdown(cancel_futures=True)
        for host in self.hosts:
            host.close()

    def serve(self) -> None:
        """Returns after :meth:`stop`, when purges that ran have been answered."""
        for host in self.hosts:
            # Half of the slots of one address: a purge that need not wait finds one.
            host.keep_table(self.doorway.limits.slots // 4)
        asyncio.run(self._serve())

    def stop(self) -> None:
        """From any thread, or a signal handler."""
        is_first, self._is_stopping = not self._is_stopping, True
        if is_first and self._loop:
            self._loop.call_soon_threadsafe(self._stopped.set)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._is_stopping:
            return
        server = await self._loop.create_server(
            self.doorway.connection, sock=self._socket, backlog=self.doorway.limits.at_once
        )
        self._socket.listen(BACKLOG)  # accepted are fewer at once, as each takes a descriptor
        await self._stopped.wait()
        server.close()
        if self._purging:
            await asyncio.wait(self._purging, timeout=STOP_S)
        self.doorway.close()

    def purge(self, wanted: Wanted, is_wanted: Callable[[], bool] = lambda: True) -> Outcome:
        """On all caches of this host, one after the other."""
        until = time.monotonic() + PURGE_S
        outcomes = [host.purge(wanted, until - time.monotonic(), is_wanted) for host in self.hosts]
        errors = [f"{each.host}: {each.error}" for each in outcomes if each.error]
        files = sum(each.files for each in outcomes)
        state: State = "failed" if errors else "purged" if files else "nothing"
        return Outcome("", state, files, "; ".join(errors))

    def _take(self, request: Request) -> None:
        assert self._loop

        def answer(done: asyncio.Future[Answer]) -> None:
            self._purging.discard(done)
            self.doorway.answer(request, *done.result())

        purging = self._loop.run_in_executor(self._threads, self._purged, request)
        purging.add_done_callback(answer)
        self._purging.add(purging)

    def _purged(self, request: Request) -> Answer:
        """In a thread."""
        try:
            wanted = Wanted.from_json(request.body)
        except NginxError as error:
            return 400, {"error": str(error)}
        try:
            outcome = self.purge(wanted, lambda: request.is_awaited and not self._is_stopping)
            facts = {"state": outcome.state, "files": outcome.files, "error": outcome.error}
            self._tell(request, wanted, facts)
        except Exception:
            logger.exception("a request of %s failed", request.connection.address)
            return 500, {"error": "the agent failed; its log says why"}
        return 200, facts

    def _tell(self, request: Request, wanted: Wanted, facts: dict[str, Any]) -> None:
        words = (*wanted.urls, *wanted.keys)
        asked = {
            "from": request.connection.address,
            "asked": len(words),
            "first": words[:LOGGED],
            "how": wanted.how,
        }
        if self.report:
            self.report(asked | facts)
