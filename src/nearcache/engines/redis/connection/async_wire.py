"""One connection of an event loop: what is written, and whose reply is next.

:mod:`.async_connection` says what becomes of the requests when the connection is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nearcache.base.per_process import generation, nowhere, when_forked
from nearcache.engines.redis.connection import connect
from nearcache.engines.redis.connection.clients import async_connection
from nearcache.engines.redis.contract import ONCE, Reply
from nearcache.engines.redis.protocol import faults
from nearcache.engines.redis.protocol.resp import (
    MORE,
    PUSHES,
    ProtocolError,
    make_reader,
    pack,
)
from nearcache.engines.redis.target.target import Address, Target
from nearcache.errors import EngineError

if TYPE_CHECKING:
    from nearcache.engines.redis.connection.async_connection import LoopConnection

Request = tuple["asyncio.Future[Any]", bytes, int, int, bool]
"""Future, packed commands, safety, replies (0: one, and not in a list), sent before."""

PING = pack("PING")
PIECE = 256 << 10
"""Bytes of requests joined to one write."""
LOOK_S = 1.0
"""While a caller waits, the loop looks so often whether an interrupt has lost something."""
IDLE_S = 0.1
"""A connection that was unused for longer is looked at before it is used."""


class Wire(asyncio.Protocol):
    """One connection, from its handshake to its end; it is never repaired."""

    def __init__(self, line: LoopConnection, connection: Any) -> None:
        self.pending: deque[Request] = deque()
        self.gone: asyncio.Future[None] = line.loop.create_future()
        self._line = line
        self._process = generation()
        self._paused = self._dead = False
        self._timer: asyncio.TimerHandle | None = None
        # Taken from redis-py, which would close the transport. A collected writer would, too.
        self._writer = connection._writer
        connection._reader = connection._writer = None
        self._transport: Any = self._writer.transport
        line.wires.append(self)
        self.reader = make_reader(line.owner.target.parser)
        self._replies: list[Reply] = []
        self._counts = line.owner.counts
        self._breaker = line.owner.breaker
        self._timeout_s = line.owner.target.read_timeout_s
        self._now = line.loop.time
        self._since = self._now()
        self._buffered = 0
        self._transport.set_write_buffer_limits(high=PIECE)
        self._transport.set_protocol(self)
        _wires.add(self)

    # ---- out

    async def ping(self) -> Reply:
        """The reply to PING, which proves that a server reads and answers there."""
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
        """True if it takes writes: it has room, and is not about to close."""
        return not self._paused and not self._transport.is_closing()

    def is_stale(self) -> bool:
        """True if an unused connection was closed meanwhile, and the loop has not seen it yet.

        A loop that was kept busy writes before it reads. Without this look it would lose the first
        request on a connection that was closed long ago.
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
        try:
            self._since = self._now()
            pending, before = self.pending, len(self.pending)
            self.reader.feed(data)
            self._give_out(self.reader.gets, pending)
        except ProtocolError as error:
            self._lost(error)
            return
        except BaseException:
            self._line.lost(self, None)
            raise
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
            if not future.done():  # not cancelled
                future.set_result(reply)
            pending.popleft()  # only now: an interrupt must not leave a future that nobody resolves

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

    def look_around(self) -> None:
        """Does what should have been done by now, because an interrupt may have lost it."""
        if self._transport.is_closing():
            self._line.lost(self, None)
        elif self._timer is not None and self._timer.when() < self._now() - LOOK_S:
            self._timer.cancel()  # it may only be late, because the loop was busy
            self._look()
        elif self._paused and not self._transport.get_write_buffer_size():
            self._paused = False

    def _still_taken(self) -> bool:
        """True if the server still takes a large request, however slowly."""
        before, self._buffered = self._buffered, self._transport.get_write_buffer_size()
        return self._buffered < before

    def abandon(self) -> None:
        """Closes the connection. Whatever still comes is dropped."""
        self._dead = True
        if self._timer is not None:
            self._timer.cancel()
        self._transport.abort()
        with contextlib.suppress(ValueError):  # an earlier call removed it
            self._line.wires.remove(self)

    def put_away(self) -> None:
        """In a forked child: a copy of the loop, if it runs there, must not read the replies."""
        if self._process != generation():
            nowhere(self._transport.get_extra_info("socket").fileno())


_wires: weakref.WeakSet[Wire] = weakref.WeakSet()


@when_forked
def _put_away() -> None:
    for wire in list(_wires):
        wire.put_away()


async def connected(line: LoopConnection) -> Wire:
    """A wire that has answered PING. Raises EngineError, with the foreign error as cause."""
    target, address = line.owner.target, line.owner.address
    try:
        async with asyncio.timeout(target.connect_timeout_s + target.read_timeout_s):
            address = await line.owner.place()
            return await _handshake(line, target, address)
    except Exception as error:  # noqa: BLE001 - all of them are mapped
        mapped = faults.connecting(error, target, address)
        raise await _found_out(mapped, target, address) from mapped.__cause__


async def _handshake(line: LoopConnection, target: Target, address: Address) -> Wire:
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
    """The error, or one that says more. To find out may take a second, so a thread does it."""
    if not faults.is_mute(error):
        return error
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, connect.found_out, error, target, address)
