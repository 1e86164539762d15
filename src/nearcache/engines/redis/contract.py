"""THE CONTRACT of topologies: which server takes a request.

A request is a packed command (:mod:`.protocol.resp`), the key that routes it, and its *safety*.
The safety says whether the request may be repeated:

    READ   changes nothing. It may be sent again, and to a replica if the user asked for that
    SAFE   may be sent again, whatever others did in between: reads that must not come from a
           replica, and scripts of locks, which know a caller that asks a second time
    ONCE   must not be repeated once it may have been carried out. That is all that writes: the
           second of two equal SETs could undo a DEL or a newer SET that came between the two

An error reply is returned, as a :class:`~nearcache.engines.redis.protocol.resp.ErrorReply`. The
engine raises it, after it has called ``told``. A topology follows MOVED and ASK, and never returns
them. It follows READONLY where sentinels know the primary. A request that gets no answer raises
:class:`~nearcache.errors.EngineUnavailable`, within the timeouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from nearcache.engines.redis.protocol.resp import ErrorReply
from nearcache.engines.redis.target.target import Target

READ, SAFE, ONCE = 0, 1, 2

Reply = Any
"""bytes, int, None, list, ErrorReply; with RESP3 also float, bool, dict and set."""


class ServerConnection(Protocol):
    """One server, through one connection of this process that many callers share."""

    name: str
    """``host:port`` or the socket's path, for messages and stats."""
    reader_class: str
    """The class that parses replies: ``hiredis.Reader``, or ours."""

    def ask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        """The reply to one command. ``key`` makes no difference here."""

    def ask_many(self, packed: bytes, count: int, safety: int = ONCE) -> list[Reply]:
        """The replies to ``count`` commands in one write."""

    async def aask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply: ...

    async def aask_many(self, packed: bytes, count: int, safety: int = ONCE) -> list[Reply]: ...

    def close(self) -> None:
        """Drops the connections. The next request makes new ones."""

    def stats(self) -> dict[str, int]: ...


class Topology(Protocol):
    """All servers of a target. Making one connects to nothing.

    A topology with one primary has ``ask_many`` and ``aask_many`` of a line as well.
    """

    target: Target
    sharded: bool
    """True where keys live on several servers, and one command may not name two of them."""

    def ask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        """The reply to one command. Without a key any primary is asked."""

    def ask_each(self, requests: Sequence[tuple[bytes, bytes]], safety: int = ONCE) -> list[Reply]:
        """The replies to (packed command, key) pairs, in their order: one write per server."""

    def primaries(self) -> list[ServerConnection]:
        """The lines to all primaries, for SCAN, DBSIZE and FLUSHDB."""

    def server_of(self, key: bytes) -> str:
        """The name of the server that has the key; empty if it is not known. Asks nobody."""

    async def aask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply: ...

    async def aask_each(
        self, requests: Sequence[tuple[bytes, bytes]], safety: int = ONCE
    ) -> list[Reply]: ...

    async def aprimaries(self) -> list[ServerConnection]: ...

    def told(self, reply: ErrorReply) -> None:
        """The caller is about to raise an error reply.

        After READONLY the next request connects anew, because a failover may have moved the name in
        the settings to another server.
        """

    def client(self) -> Any:
        """A redis-py client (Redis or RedisCluster) over the bounded pool of this process."""

    def aclient(self) -> Any:
        """A redis.asyncio client for the running loop."""

    def close(self) -> None: ...

    def stats(self) -> dict[str, int]: ...
