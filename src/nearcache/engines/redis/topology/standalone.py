"""One server; or a primary with replicas, named in the settings or by sentinels.

    one server        the methods of the topology are those of its line
    with replicas     reads go to the replicas in turn, if the user asked for that. If a replica
                      is down or not in step, the primary is asked, and that is counted
    with sentinels    the primary is a line that finds its server: :mod:`.sentinel`

Whatever is not READ goes to the primary: counters, locks and scripts too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from nearcache.base.clock import Clock, SystemClock
from nearcache.base.sans_io import Flow, call, twins
from nearcache.engines.redis.connection import clients
from nearcache.engines.redis.contract import ONCE, READ, Reply, ServerConnection
from nearcache.engines.redis.protocol.resp import ErrorReply
from nearcache.engines.redis.target.target import Target
from nearcache.engines.redis.topology.sentinel import SentinelPrimary
from nearcache.engines.redis.topology.server import SharedConnections
from nearcache.errors import EngineUnavailable

NOT_IN_STEP = ("LOADING", "MASTERDOWN")
"""What a replica replies that cannot answer now."""


class Standalone:
    """:class:`~nearcache.engines.redis.contract.Topology` of everything that has one primary."""

    sharded = False

    def __init__(self, target: Target, clock: Clock | None = None) -> None:
        self.target = target
        clock = clock or SystemClock()
        self._others: list[SharedConnections] = []
        self.primary: Any
        if target.kind == "sentinel":
            self.primary = SentinelPrimary(target, clock)
        else:
            self.primary = SharedConnections(target, target.addresses[0])
            self._others = [SharedConnections(target, address) for address in target.replicas]
        line: Any = self.primary
        if target.read_replicas:
            line = ReplicaReads(self.primary, self._others, clock)
        self._line = line
        # The line's own methods. One more call would take a tenth of the way to the server.
        self.ask, self.aask = line.ask, line.aask
        self.ask_many, self.aask_many = line.ask_many, line.aask_many

    def ask_each(self, requests: Sequence[tuple[bytes, bytes]], safety: int = ONCE) -> list[Reply]:
        packed = b"".join([request[0] for request in requests])
        replies: list[Reply] = self.ask_many(packed, len(requests), safety)
        return replies

    async def aask_each(
        self, requests: Sequence[tuple[bytes, bytes]], safety: int = ONCE
    ) -> list[Reply]:
        packed = b"".join([request[0] for request in requests])
        replies: list[Reply] = await self.aask_many(packed, len(requests), safety)
        return replies

    def primaries(self) -> list[ServerConnection]:
        return [self.primary]

    async def aprimaries(self) -> list[ServerConnection]:
        return [self.primary]

    def server_of(self, key: bytes) -> str:
        return str(self.primary.name)

    def told(self, reply: ErrorReply) -> None:
        """The caller is about to raise an error reply.

        After READONLY the connection is closed. A failover may have moved the name in the
        settings to another server, and an open connection would stay at the old primary.
        """
        if reply.code == "READONLY":
            self.primary.close()

    def client(self) -> Any:
        return clients.client(self.target)

    def aclient(self) -> Any:
        return clients.aclient(self.target)

    def close(self) -> None:
        for line in [self.primary, *self._others]:
            line.close()

    def stats(self) -> dict[str, int]:
        found: dict[str, int] = dict(self._line.stats())
        return found


class ReplicaReads:
    """A line whose reads go to replicas in turn, and to the primary where a replica fails."""

    engine = None  # the flows here ask lines

    def __init__(self, primary: Any, replicas: Sequence[ServerConnection], clock: Clock) -> None:
        self.clock = clock
        self.name = primary.name
        self._primary = primary
        self._known = replicas
        # Sentinels know the replicas better than the settings do.
        self._by_sentinels = isinstance(primary, SentinelPrimary)
        self._turn = itertools.count()
        self._counts = {"replica_reads": 0, "replica_fallbacks": 0}

    def ask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        if safety == READ and (line := self._next()) is not None:
            try:
                reply = line.ask(packed, key, READ)
                if not _refused(reply):
                    return reply
            except EngineUnavailable:
                pass
            self._fell_back()
        return self._primary.ask(packed, key, safety)

    async def aask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        if safety == READ and (line := self._next()) is not None:
            try:
                reply = await line.aask(packed, key, READ)
                if not _refused(reply):
                    return reply
            except EngineUnavailable:
                pass
            await self._afell_back()
        return await self._primary.aask(packed, key, safety)

    def _ask_many(self, packed: bytes, count: int, safety: int = ONCE) -> Flow[list[Reply]]:
        replies: list[Reply]
        if safety == READ and (line := self._next()) is not None:
            try:
                replies = yield call(line, "ask_many", packed, count, READ)
                if not any(map(_refused, replies)):
                    return replies
            except EngineUnavailable:
                pass
            yield from self._note_fallback()
        replies = yield call(self._primary, "ask_many", packed, count, safety)
        return replies

    ask_many, aask_many = twins(_ask_many)

    def _next(self) -> ServerConnection | None:
        replicas = self._primary.replicas() if self._by_sentinels else self._known
        if not replicas:
            return None
        self._counts["replica_reads"] += 1
        return replicas[next(self._turn) % len(replicas)]

    def _note_fallback(self) -> Flow[None]:
        self._counts["replica_fallbacks"] += 1
        if self._by_sentinels:
            yield call(self._primary, "look_again")

    _fell_back, _afell_back = twins(_note_fallback)

    def close(self) -> None:
        self._primary.close()

    def stats(self) -> dict[str, int]:
        return {**self._primary.stats(), **self._counts}


def _refused(reply: Reply) -> bool:
    return isinstance(reply, ErrorReply) and reply.code in NOT_IN_STEP
