"""Wake-ups for the callers of this process that wait for a named lock.

The process listens to one Pub/Sub channel with a name of its own, on one connection of the bounded
pool, in one daemon thread (greenlet). Each waiter (a thread, a greenlet or a task) waits for its
*bell*. The connection is made when the first caller has to wait, and given back when nobody has
waited for ``IDLE_S``. A Pub/Sub message reaches the subscribers of every node of a cluster.

Messages may get lost, because Redis keeps none for a client that is not connected. So a waiter also
asks again without a ring, at least every :meth:`WakeUps.longest_pause_s`. That pause is short while
nobody listens, and long while the connection stands. When the connection is made, all bells ring
once.

*Rejected:* a list per waiter and BLPOP. It takes a connection for every waiter, 5,000 greenlets
included, and a push to a waiter that has just died leaves a list behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from typing import Any

import redis

from nearcache.base.threads import Sole
from nearcache.engines.redis.connection.waiters import new_seat
from nearcache.engines.redis.contract import Topology
from nearcache.engines.redis.protocol.faults import error_of
from nearcache.engines.redis.protocol.resp import MORE, ErrorReply, ProtocolError, make_reader, pack
from nearcache.errors import EngineError

logger = logging.getLogger("nearcache.redis")

CHANNELS = b"nearcache:woken:"
IDLE_S = 30.0
LOOK_S = 1.0
SILENT_S = 5.0
"""After so long without a message a PING asks whether the connection still stands."""
READ_BYTES = 65536
PING = pack(b"PING")
FIRST_PAUSE_S = 0.005
RETRY_S = (0.05, 2.0)


class Bell:
    """What one waiter waits for."""

    # Most bells are never waited for, because the lock was free: a bell gets a seat only then.
    # A caller that sets one of the two looks at the other afterwards, so that no ring is lost.
    __slots__ = ("_rung", "_wake")

    def __init__(self) -> None:
        self._rung = False
        self._wake: Callable[[], object] | None = None

    def ring(self) -> None:
        self._rung = True
        wake = self._wake
        if wake is not None:
            with contextlib.suppress(RuntimeError):  # it rang before, or its loop is closed
                wake()

    def heard(self, seconds: float) -> bool:
        """True if it rang within that time, or before."""
        seat = new_seat()
        self._wake = seat.release
        return self._rung or bool(seat.acquire(timeout=seconds))

    async def aheard(self, seconds: float) -> bool:
        """:meth:`heard` for a task."""
        loop, rung = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(rung.set)
        if self._rung:
            return True
        try:
            async with asyncio.timeout(seconds):
                await rung.wait()
        except TimeoutError:
            return False
        return True


class WakeUps:
    """All bells of this process, for one topology. Making one connects to nothing."""

    def __init__(self, topology: Topology) -> None:
        self.channel = CHANNELS + os.urandom(9).hex().encode()
        self._topology = topology
        self._hanging: dict[int, Bell] = {}
        self._serving = Sole(self._serve, "nearcache-bells")
        self._standing = False
        self._told = False
        self._deaf_since_s = 0.0
        self._used_at_s = 0.0

    def hang(self, ticket: int) -> Bell:
        """A bell that rings when the lock comes to that ticket."""
        bell = self._hanging[ticket] = Bell()
        return bell

    def take_down(self, ticket: int) -> None:
        self._hanging.pop(ticket, None)

    def listen(self) -> None:
        """Makes sure that a thread rings the bells. Does not wait for that thread."""
        self._used_at_s = time.monotonic()
        if self._serving.who:
            return
        self._deaf_since_s = self._used_at_s
        try:
            self._serving.begin()
        except RuntimeError as error:  # no thread: waiters ask without a ring
            self._deafened(error)

    def longest_pause_s(self, usual_s: float) -> float:
        """How long a waiter waits for its bell before it asks again."""
        if self._standing:
            return usual_s
        deaf_s = time.monotonic() - self._deaf_since_s
        return min(usual_s, FIRST_PAUSE_S + deaf_s / 2)

    def _serve(self, me: object) -> None:
        pause_s = RETRY_S[0]
        while self._serving.is_done_by(me) and not self._ends(me):
            try:
                self._hear()
            except (redis.RedisError, EngineError, ProtocolError, OSError) as error:
                pause_s = RETRY_S[0] if self._standing else min(2 * pause_s, RETRY_S[1])
                self._deafened(error)
                time.sleep(pause_s)

    def _hear(self) -> None:
        with contextlib.closing(self._topology.client().pubsub()) as subscription:
            subscription.subscribe(self.channel)  # sends it; the reply is ours to read
            # Read here, and not by redis-py, which needs three times as long for a message.
            sock, reader = subscription.connection._sock, make_reader()
            sock.settimeout(LOOK_S)
            heard_at_s, asked = time.monotonic(), False
            while self._needed():
                try:
                    received = sock.recv(READ_BYTES)
                except TimeoutError:
                    silent_s = time.monotonic() - heard_at_s
                    if silent_s > 2 * SILENT_S:
                        raise redis.ConnectionError("the Pub/Sub connection is silent") from None
                    if silent_s > SILENT_S and not asked:
                        sock.sendall(PING)
                        asked = True
                    continue
                if not received:
                    raise redis.ConnectionError("the server closed the Pub/Sub connection")
                heard_at_s, asked = time.monotonic(), False
                reader.feed(received)
                while (message := reader.gets()) is not MORE:
                    self._take(message)

    def _take(self, message: Any) -> None:
        if isinstance(message, ErrorReply):
            raise error_of(message)
        if message[0] == b"message":
            bell = self._hanging.get(int(message[2]))
            if bell is not None:
                bell.ring()
        elif message[0] == b"subscribe":
            self._standing, self._told = True, False
            # Messages before this one are lost, so each waiter asks once more.
            for bell in list(self._hanging.values()):
                bell.ring()

    def _deafened(self, error: Exception) -> None:
        if self._standing:
            self._standing, self._deaf_since_s = False, time.monotonic()
        if not self._told:  # once per change of state
            self._told = True
            logger.warning("no wake-ups for locks, so waiters notice a free one late: %s", error)

    def _needed(self) -> bool:
        return bool(self._hanging) or time.monotonic() - self._used_at_s < IDLE_S

    def _ends(self, me: object) -> bool:
        if self._needed():
            return False
        self._standing = False
        self._serving.leave()
        # A caller that came meanwhile saw this thread, and began no other.
        return not (self._needed() and self._serving.is_done_by(me))
