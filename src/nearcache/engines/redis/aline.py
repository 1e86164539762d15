"""One connection per event loop and server, carrying the requests of all tasks.

redis-py connects; then its transport gets our protocol. Tasks put requests on a list and
await a future. At the end of the loop's iteration one write sends the list; replies come in
the order of requests and resolve the futures in that order.

    task -> unsent --flush, one write--> pending --reply--> its future
               \\__ connection lost ________/   again on a new one, or failed: see below

Replies never cross, because a connection that lost count is never used again:

    cancelled     the request stays in its place; its reply is read and dropped
    silence       nothing came for ``read_timeout_s`` while a reply is due: the connection is
                  dropped, and everybody who waits gets ReplyTimeout
    lost          what was never written is sent on a new connection, and so is, once, what
                  was written and may be repeated (READ, SAFE); ONCE gets ConnectionFailed
    nonsense      bytes that are no RESP, or a reply that nobody asked for: as lost

Nothing is shared between loops but the breaker. There is one timer per connection, and no
task but the one that connects.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from nearcache.engines.redis import connect, faults
from nearcache.engines.redis.breaker import Breaker, breaker_of
from nearcache.engines.redis.clients import async_connection
from nearcache.engines.redis.loops import of_this_loop
from nearcache.engines.redis.resp import (
    MORE,
    PUSHES,
    ProtocolError,
    make_reader,
    pack,
)
from nearcache.engines.redis.target import Address, Target
from nearcache.engines.redis.topology import ONCE, Reply
from nearcache.errors import ConnectionFailed, EngineError, EngineUnavailable, ReplyTimeout
from nearcache.process import OfProcess, generation, nowhere, when_forked

Request = tuple["asyncio.Future[Any]", bytes, int, int, bool]
"""Future, packed commands, safety, replies (0: one, and not in a list), sent before."""

PING = pack("PING")
COUNTS = ("async_connects", "async_writes", "async_replies", "async_timeouts", "async_retries")
MOST_UNSENT = 16 << 20
"""Bytes that wait to be written before callers wait as well."""
PIECE = 256 << 10
"""Bytes of requests joined to one write."""
IDLE_S = 0.1
"""A connection unused for longer is looked at before it is used."""


class AsyncLine:
    """The asyncio half of :class:`~nearcache.engines.redis.topology.Line`.

    ``resolve`` is asked for the address before every connect (a Sentinel's primary).
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
        self._by_loop: OfProcess[dict[int, weakref.ref[LoopLine]]] = OfProcess(dict)

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

    def _line(self) -> LoopLine:
        loop = asyncio.get_running_loop()
        by_loop = self._by_loop.here()
        reference = by_loop.get(id(loop))
        line = None if reference is None else reference()
        # Identities are used again: a new loop may stand where a forgotten one stood.
        if line is None or line.loop is not loop:
            line = of_this_loop(("redis line", id(self)), lambda: LoopLine(self, loop))
            by_loop[id(loop)] = weakref.ref(line, self._gone)
        return line

    def _gone(self, reference: weakref.ref[LoopLine]) -> None:
        by_loop = self._by_loop.here()
        for identity, known in list(by_loop.items()):
            if known is reference:  # not a new loop's that stands where this one stood
                by_loop.pop(identity, None)

    def close(self) -> None:
        """Drops the connections of all loops; the next request makes new ones."""
        by_loop = self._by_loop.here()
        for identity, reference in list(by_loop.items()):
            line = reference()
            if line is None or line.loop.is_closed():
                by_loop.pop(identity, None)
                continue
            with contextlib.suppress(RuntimeError):  # closed a moment ago, by its own thread
                line.loop.call_soon_threadsafe(line.drop)

    async def place(self) -> Address:
        """Where to connect to, now."""
        return self.address if self._resolve is None else await self._resolve()

    def stats(self) -> dict[str, int]:
        return dict(self.counts)


class LoopLine:
    """The requests of one loop to one server, and the connection of the moment."""

    def __init__(self, owner: AsyncLine, loop: asyncio.AbstractEventLoop) -> None:
        self.owner = owner
        self.loop = loop
        self.unsent: list[Request] = []
        self.unsent_bytes = 0
        self._wire: Wire | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._flush_due = False
        self._crowd: list[asyncio.Future[None]] = []

    @property
    def connected(self) -> bool:
        return self._wire is not None

    def ask(self, packed: bytes, safety: int, count: int) -> asyncio.Future[Any]:
        """A future of the reply. Raises CircuitOpen, or what the breaker has to say."""
        if self._wire is None:
            self.owner.breaker.check()
        future = self.loop.create_future()
        self.unsent.append((future, packed, safety, count, False))
        self.unsent_bytes += len(packed)
        if not self._flush_due:
            self._flush_due = True
            self.loop.call_soon(self.flush)
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
            if wire.is_stale():
                self.lost(wire, None)
            elif self.unsent_bytes <= PIECE:
                requests, self.unsent, self.unsent_bytes = self.unsent, [], 0
                wire.write(requests)
            else:
                self._flush_pieces(wire)

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
        if self._connecting is None and self.unsent:
            self._connecting = self.loop.create_task(self._connect())

    async def _connect(self) -> None:
        owner = self.owner
        try:
            wire = await connected(self)
        except asyncio.CancelledError:
            self._connecting = None
            self._fail_unsent(ConnectionFailed(f"{owner.name}: cancelled while connecting"))
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, all who wait are told
            self._connecting = None
            failure = faults.connecting(error, owner.target, owner.address)
            owner.breaker.failed(failure)
            self._fail_unsent(failure)
            owner.breaker.say()
        else:
            self._connecting, self._wire = None, wire
            owner.counts["async_connects"] += 1
            self._drop_cancelled()
            self.flush()

    def _drop_cancelled(self) -> None:
        self.unsent = [each for each in self.unsent if not each[0].done()]
        self.unsent_bytes = sum(len(each[1]) for each in self.unsent)
        self._wake_the_crowd()

    # ---- losing

    def lost(self, wire: Wire, error: EngineUnavailable | None) -> None:
        """The connection is gone, or must go. Without an error nobody is to blame."""
        wire.abandon()
        pending, wire.pending = wire.pending, deque()
        blame = error or ConnectionFailed(f"the connection to {self.owner.name} was closed")
        if wire is not self._wire:  # still shaking hands: all it carried was our PING
            self._fail(pending, blame)
            return
        self._wire = None
        if isinstance(blame, ReplyTimeout):
            self._fail(pending, blame)
            self._fail_unsent(blame)
        else:
            self._send_again(pending, blame)
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
        # They are older than those who wait, and stay before them.
        self.unsent = again + self.unsent
        self.unsent_bytes += sum(len(each[1]) for each in again)

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
        """Closes the connection; whoever waits for a reply is treated as when it is lost."""
        if self._wire is not None:
            self.lost(self._wire, None)

    async def at_loop_end(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        wire, self._wire = self._wire, None
        ended = ConnectionFailed(f"{self.owner.name}: the event loop ends")
        self._fail_unsent(ended)
        if wire is not None:
            self.lost(wire, ended)
            await asyncio.wait([wire.gone], timeout=1.0)


class Wire(asyncio.Protocol):
    """One connection, from its handshake to its end; it is never repaired."""

    def __init__(self, line: LoopLine, connection: Any) -> None:
        self.pending: deque[Request] = deque()
        self.gone: asyncio.Future[None] = line.loop.create_future()
        self._line = line
        self._process = generation()
        self._paused = self._dead = False
        # Out of redis-py's hands, which would close it. So would the writer, if it were collected.
        self._writer = connection._writer
        connection._reader = connection._writer = None
        self._transport: Any = self._writer.transport
        self.reader = make_reader(line.owner.target.parser)
        self._replies: list[Reply] = []
        self._counts = line.owner.counts
        self._breaker = line.owner.breaker
        self._timeout_s = line.owner.target.read_timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._now = line.loop.time
        self._since = self._now()
        self._buffered = 0
        self._transport.set_write_buffer_limits(high=PIECE)
        self._transport.set_protocol(self)
        _wires.add(self)

    # ---- out

    async def ping(self) -> Reply:
        """The reply to PING, which proves that somebody reads and answers there."""
        future = self._line.loop.create_future()
        self.write([(future, PING, ONCE, 0, False)])
        return await future

    def write(self, requests: list[Request]) -> None:
        if not self.pending:
            self._since = self._now()
            if self._timer is None:
                self._timer = self._line.loop.call_later(self._timeout_s, self._look)
        self.pending.extend(requests)
        self._counts["async_writes"] += 1
        if len(requests) == 1:
            self._transport.write(requests[0][1])
        else:
            self._transport.write(b"".join([request[1] for request in requests]))

    def pause_writing(self) -> None:
        self._paused = True
        self._buffered = self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._paused = False
        self._line.flush()

    def is_open(self) -> bool:
        """True if it takes writes: it has room, and is not about to be lost."""
        return not self._paused and not self._transport.is_closing()

    def is_stale(self) -> bool:
        """True if an unused connection was closed meanwhile, and the loop has not seen it yet.

        A loop that was kept busy writes before it reads, and the first request would be lost on
        a connection closed long ago.
        """
        if self.pending or self._now() - self._since < IDLE_S:
            return False
        poll = select.poll()
        try:
            poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        except (ValueError, OSError):  # closed
            return True
        return bool(poll.poll(0))

    # ---- in

    def data_received(self, data: bytes) -> None:
        if self._dead:
            return
        self._since = self._now()
        pending, before = self.pending, len(self.pending)
        try:
            self.reader.feed(data)
            self._give_out(self.reader.gets, pending)
        except ProtocolError as error:
            self._lost(error)
            return
        self._counts["async_replies"] += before - len(pending)
        if not self._breaker.quiet:
            self._breaker.succeeded()
            self._breaker.say()

    def _give_out(self, gets: Callable[[], Any], pending: deque[Request]) -> None:
        while (reply := gets()) is not MORE:
            if type(reply) in PUSHES:
                continue
            if not pending:
                raise ProtocolError("a reply that nobody asked for")
            future, _, _, count, _ = pending[0]
            if count:
                self._replies.append(reply)
                if len(self._replies) < count:
                    continue
                reply, self._replies = self._replies, []
            pending.popleft()
            if not future.done():  # not cancelled
                future.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
        if not self._dead:
            self._lost(error or EOFError())

    def _lost(self, error: Exception) -> None:
        self._line.lost(self, faults.broken(error, self._line.owner.name, self._timeout_s))

    # ---- time

    def _look(self) -> None:
        self._timer = None
        if not self.pending:
            return
        left_s = self._since + self._timeout_s - self._now()
        if left_s <= 0 and self._still_taken():
            left_s = self._timeout_s
        if left_s > 0:
            self._timer = self._line.loop.call_later(left_s, self._look)
            return
        self._counts["async_timeouts"] += 1
        self._lost(TimeoutError())

    def _still_taken(self) -> bool:
        """True if a large request is still being taken by the server, if slowly."""
        before, self._buffered = self._buffered, self._transport.get_write_buffer_size()
        return self._buffered < before

    def abandon(self) -> None:
        """Closes it; nothing that comes is looked at any more."""
        self._dead = True
        if self._timer is not None:
            self._timer.cancel()
        self._transport.abort()

    def put_away(self) -> None:
        """In a forked child, which may run a copy of the loop: it must not read the replies."""
        if self._process != generation():
            nowhere(self._transport.get_extra_info("socket").fileno())


_wires: weakref.WeakSet[Wire] = weakref.WeakSet()


@when_forked
def _put_away() -> None:
    for wire in list(_wires):
        wire.put_away()


async def connected(line: LoopLine) -> Wire:
    """A wire that has answered PING. Raises EngineError, with the foreign error as cause."""
    target, address = line.owner.target, line.owner.address
    try:
        async with asyncio.timeout(target.connect_timeout_s + target.read_timeout_s):
            address = await line.owner.place()
            return await _handshake(line, target, address)
    except Exception as error:  # noqa: BLE001 - all of them are mapped
        mapped = faults.connecting(error, target, address)
        raise await _found_out(mapped, target, address) from mapped.__cause__


async def _handshake(line: LoopLine, target: Target, address: Address) -> Wire:
    connection = async_connection(target, address)
    try:
        await connection.connect()
        wire = Wire(line, connection)
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    try:
        connect.check_pong(await wire.ping(), wire.reader, str(address))
    except BaseException:
        wire.abandon()
        raise
    return wire


async def _found_out(error: EngineError, target: Target, address: Address) -> EngineError:
    """The error, or a better one; looking may take a second, so it is done in a thread."""
    if not faults.is_mute(error):
        return error
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, connect.found_out, error, target, address)
