"""One server, for plain calls and for coroutines: two lines, one breaker, one set of figures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nearcache.engines.redis.connection.async_connection import AsyncConnection
from nearcache.engines.redis.connection.sync_connection import SyncConnection
from nearcache.engines.redis.target.target import Address, Target


class SharedConnections:
    """All of :class:`~nearcache.engines.redis.contract.ServerConnection`. Making one connects to
    nothing.

    ``resolve`` and ``aresolve`` give the address before every connect, for servers that move (a
    Sentinel's primary). The name and the breaker stay those of ``address``.
    """

    def __init__(
        self,
        target: Target,
        address: Address,
        *,
        resolve: Callable[[], Address] | None = None,
        aresolve: Callable[[], Awaitable[Address]] | None = None,
    ) -> None:
        self.name = str(address)
        self.target = target
        self.address = address
        self._line = SyncConnection(target, address, resolve=resolve)
        self._aline = AsyncConnection(target, address, resolve=aresolve)
        self.breaker = self._line.breaker
        self.reader_class = self._line.reader_class
        # The lines' own methods. One more call would take a tenth of the way to the server.
        self.ask = self._line.ask
        self.ask_many = self._line.ask_many
        self.aask = self._aline.ask
        self.aask_many = self._aline.ask_many

    def close(self) -> None:
        self._line.close()
        self._aline.close()

    def close_idle(self) -> None:
        """Drops the connection of threads, and that of the running loop, unless in use."""
        self._line.close()
        self._aline.close_idle()

    def stats(self) -> dict[str, int]:
        return self._line.stats() | self._aline.stats()
