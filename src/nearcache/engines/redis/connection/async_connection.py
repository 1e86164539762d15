"""One connection per event loop and server, which carries the requests of all tasks.

redis-py connects; then its transport gets our protocol. A task puts its request on a list and
awaits a future. At the end of the loop's iteration one write sends the list. Replies come in the
order of the requests, and resolve the futures in that order.

    task -> unsent --flush, one write--> pending --reply--> its future
               \\__ connection lost ________/   again on a new one, or failed: see below

Replies never cross, because a connection that lost count is never used again:

    cancelled     the request keeps its place; its reply is read and dropped
    silence       a reply is due, and for ``read_timeout_s`` nothing came: the connection is
                  dropped, and every caller that waits gets ReplyTimeout
    lost          a request that was never written is sent on a new connection. So is, once, a
                  request that was written and may be repeated (READ, SAFE). ONCE gets
                  ConnectionFailed
    nonsense      bytes that are no RESP, or a reply that nobody asked for: as lost
    interrupted   a signal handler raised while the loop was in here: as lost, because nobody
                  knows which reply is next

An interrupt may also hit the first instruction of a callback, where nothing can catch it.
``_look_around`` makes good what that loses: a flush, the end of a connection, a timer.

Loops share nothing but the breaker. A connection has one timer, and a second one that looks around.
There is no task but the one that connects.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from nearcache.base.per_process import OfProcess
from nearcache.engines.redis.connection.async_wire import LOOK_S, PIECE, Request, Wire, connected
from nearcache.engines.redis.connection.breaker import Breaker, breaker_of
from nearcache.engines.redis.connection.event_loops import of_this_loop
from nearcache.engines.redis.contract import ONCE, Reply
from nearcache.engines.redis.protocol import faults
from nearcache.engines.redis.target.target import Address, Target
from nearcache.errors import ConnectionFailed, EngineError, EngineUnavailable, ReplyTimeout

COUNTS = ("async_connects", "async_writes", "async_replies", "async_timeouts", "async_retries")
MOST_UNSENT = 16 << 20
"""If more bytes than that wait to be written, callers wait before they ask."""


class AsyncConnection:
    """The asyncio half of :class:`~nearcache.engines.redis.contract.ServerConnection`.

    ``resolve`` gives the address before every connect, for a server that moves (a Sentinel's
    primary).
    """

    def __init__(
        self,
        target: Target,
        address: Address,
        *,
        resolve: Callable[[], Awaitable[Address]] | None = None,
    ) -> None:
        self.name = str(address)
        self.target = target
        self.address = address
        self.breaker: Breaker = breaker_of(target, address)
        self._resolve = resolve
        self.counts = dict.fromkeys(COUNTS, 0)
        self._by_loop: OfProcess[dict[int, weakref.ref[LoopConnection]]] = OfProcess(dict)

    async def ask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        line = self._line()
        if line.unsent_bytes > MOST_UNSENT:
            await line.room()
        return await line.ask(packed, safety, 0)

    async def ask_many(self, packed: bytes, count: int, safety: int = ONCE) -> list[Reply]:
        if not count:
            return []
        line = self._line()
        if line.unsent_bytes > MOST_UNSENT:
            await line.room()
        replies: list[Reply] = await line.ask(packed, safety, count)
        return replies

    def _line(self) -> LoopConnection:
        loop = asyncio.get_running_loop()
        by_loop = self._by_loop.here()
        reference = by_loop.get(id(loop))
        line = None if reference is None else reference()
        # An id is used again: it may be that of a new loop, and the entry a forgotten loop's.
        if line is None or line.loop is not loop:
            line = of_this_loop(("redis line", id(self)), lambda: LoopConnection(self, loop))
            by_loop[id(loop)] = weakref.ref(line, self._gone)
        return line

    def _gone(self, reference: weakref.ref[LoopConnection]) -> None:
        by_loop = self._by_loop.here()
        for identity, known in list(by_loop.items()):
            if known is reference:  # and not the entry of a new loop with the same id
                by_loop.pop(identity, None)

    def close(self) -> None:
        """Drops the connections of all loops; the next request makes new ones."""
        by_loop = self._by_loop.here()
        for identity, reference in list(by_loop.items()):
            line = reference()
            if line is None or line.loop.is_closed():
                by_loop.pop(identity, None)
                continue
            with contextlib.suppress(RuntimeError):  # its own thread closed it a moment ago
                line.loop.call_soon_threadsafe(line.drop)

    def close_idle(self) -> None:
        """Drops the connection of the running loop, unless a caller waits for it."""
        with contextlib.suppress(RuntimeError):  # no loop runs here
            line = self._line()
            if not line.is_busy:
                line.drop()

    async def place(self) -> Address:
        """The address to connect to now."""
        return self.address if self._resolve is None else await self._resolve()

    def stats(self) -> dict[str, int]:
        return dict(self.counts)


class LoopConnection:
    """The requests of one loop to one server, and the connection that there is now."""

    def __init__(self, owner: AsyncConnection, loop: asyncio.AbstractEventLoop) -> None:
        self.owner = owner
        self.loop = loop
        self.unsent: list[Request] = []
        self.unsent_bytes = 0
        self.wires: list[Wire] = []
        """All open wires. An interrupt may have torn a wire from the code that made it."""
        self._wire: Wire | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._flush_due = False
        self._watch: asyncio.TimerHandle | None = None
        self._crowd: list[asyncio.Future[None]] = []

    @property
    def connected(self) -> bool:
        return self._wire is not None

    @property
    def is_busy(self) -> bool:
        return bool(self.unsent or (self._wire is not None and self._wire.pending))

    def ask(self, packed: bytes, safety: int, count: int) -> asyncio.Future[Any]:
        """A future of the reply. Raises what the breaker raises (CircuitOpen)."""
        if self._wire is None:
            self.owner.breaker.check()
        # In this order: a caller that is interrupted in between has asked for nothing.
        if not self._flush_due:
            if self._watch is None:
                self._watch = self.loop.call_later(LOOK_S, self._look_around)
            self.loop.call_soon(self.flush)
            self._flush_due = True
        future = self.loop.create_future()
        self.unsent_bytes += len(packed)
        self.unsent.append((future, packed, safety, count, False))
        return future

    async def room(self) -> None:
        """Returns when no more than MOST_UNSENT waits to be written."""
        while self.unsent_bytes > MOST_UNSENT:
            turn = self.loop.create_future()
            self._crowd.append(turn)
            await turn

    def flush(self) -> None:
        """Writes what the connection takes; connects if there is none."""
        self._flush_due = False
        wire = self._wire
        if wire is None:
            self._connect_soon()
        elif self.unsent and wire.is_open():
            try:
                if wire.is_stale():
                    self.lost(wire, None)
                elif self.unsent_bytes <= PIECE:
                    wire.write(self.unsent)
                    self.unsent, self.unsent_bytes = [], 0
                else:
                    self._flush_pieces(wire)
            except BaseException:
                self.lost(wire, None)
                raise

    def _look_around(self) -> None:
        self._watch = None
        wire = self._wire
        if wire is not None:
            wire.look_around()
        if self.unsent:
            self.flush()
        if self.is_busy:
            self._watch = self.loop.call_later(LOOK_S, self._look_around)

    def _flush_pieces(self, wire: Wire) -> None:
        start = 0
        while start < len(self.unsent) and wire.is_open():
            end, size = start, 0
            while end < len(self.unsent) and (end == start or size < PIECE):
                size += len(self.unsent[end][1])
                end += 1
            wire.write(self.unsent[start:end])
            self.unsent_bytes -= size
            start = end
        del self.unsent[:start]
        self._wake_the_crowd()

    # ---- connecting

    def _connect_soon(self) -> None:
        if self.unsent and (self._connecting is None or self._connecting.done()):
            self._close_all()
            self._connecting = self.loop.create_task(self._connect())

    async def _connect(self) -> None:
        owner = self.owner
        try:
            wire = await connected(self)
        except Exception as error:  # noqa: BLE001 - whatever it is, all who wait get it
            self._connecting = None
            failure = faults.connecting(error, owner.target, owner.address)
            owner.breaker.failed(failure)
            self._fail_unsent(failure)
            owner.breaker.say()
        except BaseException:  # cancelled, or a signal handler raised
            self._connecting = None
            self._fail_unsent(ConnectionFailed(f"{owner.name}: cancelled while connecting"))
            raise
        else:
            self._connecting, self._wire = None, wire
            owner.counts["async_connects"] += 1
            self._drop_cancelled()
            self.flush()

    def _drop_cancelled(self) -> None:
        self._keep([each for each in self.unsent if not each[0].done()])
        self._wake_the_crowd()

    def _keep(self, unsent: list[Request]) -> None:
        self.unsent = unsent
        self.unsent_bytes = sum(len(each[1]) for each in unsent)

    # ---- losing

    def lost(self, wire: Wire, error: EngineUnavailable | None) -> None:
        """The connection is gone, or must go. Without ``error`` the server is not to blame.

        An interrupt may end this call anywhere: ``_look_around`` then calls it again.
        """
        wire.abandon()
        pending = wire.pending
        blame = error or ConnectionFailed(f"the connection to {self.owner.name} was closed")
        if wire is not self._wire:  # still shaking hands: all it carried was our PING
            self._fail(pending, blame)
            return
        if isinstance(blame, ReplyTimeout):
            self._fail(pending, blame)
            self._fail_unsent(blame)
        else:
            self._send_again(pending, blame)
        wire.pending = deque()
        self._wire = None
        if error is not None and pending:
            self.owner.breaker.failed(error)
        self._connect_soon()
        self.owner.breaker.say()

    def _send_again(self, pending: deque[Request], error: EngineUnavailable) -> None:
        again, failed = [], []
        for request in pending:
            future, packed, safety, count, before = request
            if safety == ONCE or before:
                failed.append(request)
            elif not future.done():
                again.append((future, packed, safety, count, True))
        self._fail(failed, error)
        self.owner.counts["async_retries"] += len(again)
        # A request that an interrupt left in both lists may have been written.
        written = {each[0] for each in pending}
        waiting = [each for each in self.unsent if each[0] not in written]
        # These are older than the requests that wait, so they stay before them.
        self._keep(again + waiting)

    def _fail(self, written: Iterable[Request], error: EngineError) -> None:
        for future, _, safety, _, _ in written:
            if not future.done():
                copy = faults.uncertain if safety == ONCE else faults.again
                future.set_exception(copy(error))

    def _fail_unsent(self, error: EngineError) -> None:
        requests, self.unsent, self.unsent_bytes = self.unsent, [], 0
        for request in requests:
            if not request[0].done():
                request[0].set_exception(faults.again(error))
        self._wake_the_crowd()

    def _wake_the_crowd(self) -> None:
        if self._crowd and self.unsent_bytes <= MOST_UNSENT:
            crowd, self._crowd = self._crowd, []
            for turn in crowd:
                if not turn.done():
                    turn.set_result(None)

    def drop(self) -> None:
        """Closes the connection. For callers that wait for a reply it is as if it were lost."""
        if self._wire is not None:
            self.lost(self._wire, None)

    async def at_loop_end(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        wire, self._wire = self._wire, None
        ended = ConnectionFailed(f"{self.owner.name}: the event loop ends")
        self._fail_unsent(ended)
        if self._watch is not None:
            self._watch.cancel()
        if wire is not None:
            self.lost(wire, ended)
            await asyncio.wait([wire.gone], timeout=1.0)
        self._close_all()

    def _close_all(self) -> None:
        for wire in list(self.wires):
            wire.abandon()
