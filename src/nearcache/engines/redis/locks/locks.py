"""Named locks over Redis: one round trip to acquire, one to release, a queue in between.

:mod:`.lock_scripts` is what happens on the server. :mod:`.wake_ups` is how waiters are woken.

Every request may be repeated. The topology repeats it while it can. When an answer got lost for
good, the renewer (:mod:`nearcache.coordination.lock_renewal`) undoes what the server may have given
out, because nobody else would know of it.

A waiter asks again at least every ``ASK_AGAIN_S``, and when the holder's time runs out, woken or
not. So each of these costs less than a second: a wake-up that got lost, a holder that was killed,
a first waiter that was killed, a server that came back empty.

Redis does not notice that a client's process is gone. So a lock made without a time has
``lock_ttl_ms`` here, and is renewed like any other.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

from nearcache.base.per_process import OfProcess, chance, unique_number
from nearcache.base.sans_io import Flow, Host, call, twins
from nearcache.coordination.lock_attempts import LEAVE_AGAIN_S, may_have_happened
from nearcache.coordination.lock_renewal import renewer_of
from nearcache.engines.redis.contract import SAFE, Reply, Topology
from nearcache.engines.redis.locks.lock_scripts import (
    ACQUIRE,
    LATE,
    LEAVE,
    OUTLIVES_MS,
    RELEASE,
    RENEW,
    TAKE_MS,
    WAIT,
    lock_key,
)
from nearcache.engines.redis.locks.wake_ups import WakeUps
from nearcache.engines.redis.protocol.faults import error_of
from nearcache.engines.redis.protocol.resp import ErrorReply, pack
from nearcache.engines.redis.protocol.scripts import Script, Word, not_compiled, unknown
from nearcache.errors import EngineUnavailable, ReplyTimeout

ASK_AGAIN_S = 0.5
RAN_OUT_S = (0.002, 0.020)
"""A waiter asks when the holder's time is over, and a random while between these two later."""
LATE_TRIES = 3
LEAST_PATIENCE_S = 1.0

if TYPE_CHECKING:
    Base = Host
else:
    Base = object


class RedisLocks(Base):
    """The lock methods of :class:`~nearcache.engines.contract.Engine`, and their ``a`` twins."""

    lock_ttl_ms = 30_000

    topology: Topology
    _flagged = True
    _ahead_ms: dict[str, float]
    """How far the clock of each server is ahead of our monotonic one, by its last reply."""
    _bells: OfProcess[WakeUps]

    @functools.cached_property
    def _patience_s(self) -> float:
        """How long a caller may wait for a reply."""
        target = self.topology.target
        return max(target.connect_timeout_s + target.read_timeout_s, LEAST_PATIENCE_S)

    def lock_ticket(self) -> int:
        """A number that no other caller has: what it got can be given up without its answer."""
        return unique_number()

    def lock_server(self, name: bytes) -> str:
        """The name of the server that has the lock: each server has a renewer of its own."""
        topology = self.topology
        return topology.server_of(lock_key(name) if topology.sharded else name)

    def _lock_acquire(
        self, name: bytes, ttl_ms: int, ticket: int | None = None
    ) -> Flow[int | None]:
        mine = ticket or self.lock_ticket()
        try:
            token, _ = yield from self._timely(ACQUIRE, name, mine, ttl_ms + OUTLIVES_MS)
        except BaseException as error:
            if ticket is None:  # a caller with a ticket of its own gives it up itself
                self._leave_later(name, mine, ttl_ms, error)
            raise
        return int(token) or None

    lock_acquire, alock_acquire = twins(_lock_acquire)

    def _lock_renew(self, name: bytes, token: int, ttl_ms: int) -> Flow[bool]:
        return bool((yield from self._lock_script(RENEW, name, token, ttl_ms + OUTLIVES_MS)))

    lock_renew, alock_renew = twins(_lock_renew)

    def _lock_release(self, name: bytes, token: int) -> Flow[bool]:
        return bool((yield from self._lock_script(RELEASE, name, token)))

    lock_release, alock_release = twins(_lock_release)

    def _lock_wait(
        self, name: bytes, ticket: int | None, ttl_ms: int, wait_ms: int
    ) -> Flow[tuple[int | None, int | None]]:
        bells = self._bells.here()
        mine = ticket or self.lock_ticket()
        asking = WAIT, name, mine, ttl_ms + OUTLIVES_MS, bells.channel
        # The bell hangs before the server is asked: a ring in between would not be heard.
        bell = bells.hang(mine)
        try:
            reply = yield from self._timely(*asking)
            if not reply[0] and wait_ms:
                bells.listen()
                if (yield call(bell, "heard", _pause_s(bells, wait_ms, reply[1]))):
                    reply = yield from self._asked_again(reply, *asking)
        except BaseException as error:
            if ticket is None:  # a caller with a ticket of its own gives it up itself
                self._leave_later(name, mine, ttl_ms, error)
            raise
        finally:
            bells.take_down(mine)
        token = reply[0]
        return (token, None) if token else (None, mine)

    lock_wait, alock_wait = twins(_lock_wait)

    def _asked_again(self, reply: Any, *asking: Any) -> Flow[Any]:
        """The reply to a waiter that has a place; the last ``reply`` while the server is away.

        So the waiter keeps its place. It asks anew with the same ticket, and decides how long an
        outage may last.
        """
        try:
            return (yield from self._timely(*asking))
        except EngineUnavailable:
            return reply

    def _lock_leave(self, name: bytes, ticket: int) -> Flow[None]:
        yield from self._lock_script(LEAVE, name, ticket)

    lock_leave, alock_leave = twins(_lock_leave)

    # -- the steps ---------------------------------------------------------------------------

    def _timely(self, script: Script, name: bytes, *arguments: Word) -> Flow[Any]:
        """The reply of a script that gives something out only while its caller waits."""
        server, patience_s = self.lock_server(name), self._patience_s
        for _ in range(LATE_TRIES):
            now_ms, ahead_ms = time.monotonic() * 1000, self._ahead_ms.get(server)
            until = 0 if ahead_ms is None else int(now_ms + ahead_ms + patience_s * 1000)
            reply = yield from self._lock_script(script, name, *arguments, until)
            # Too little by the time that the reply took to come, which is on the safe side.
            self._ahead_ms[server] = reply[-1] - time.monotonic() * 1000
            if reply[0] != LATE:
                return reply
        raise ReplyTimeout(
            f"requests for a lock came later than {patience_s:g} s, {LATE_TRIES} times: the server"
            " or this host stands still for that long"
        )

    def _lock_script(self, script: Script, name: bytes, *arguments: Word) -> Flow[Reply]:
        if not self._flagged:
            script = script.unflagged
        key = lock_key(name)
        packed = pack(b"EVALSHA", script.sha1, 1, key, *arguments)
        reply = yield call(self.topology, "ask", packed, key, SAFE)
        if not isinstance(reply, ErrorReply):
            return reply
        if unknown(reply):
            packed = script.in_full([key], arguments)
            reply = yield call(self.topology, "ask", packed, key, SAFE)
        if self._flagged and not_compiled(reply):
            self._flagged = False
            return (yield from self._lock_script(script, name, *arguments))
        if isinstance(reply, ErrorReply):
            raise error_of(reply, packed)
        return reply

    lock_script, alock_script = twins(_lock_script)

    def _leave_later(self, name: bytes, ticket: int, ttl_ms: int, error: BaseException) -> None:
        """Undoes what a request may have done, or may do yet, when its answer got lost."""
        if not may_have_happened(error):
            return
        # Twice: the request may be on its way still, and LEAVE overtake it on another connection.
        for after_s in (0.0, LEAVE_AGAIN_S):
            renewer_of(self, name).later(
                lambda: self.lock_leave(name, ticket), ttl_ms / 1000, after_s
            )


def _pause_s(bells: WakeUps, wait_ms: int, left_ms: float) -> float:
    """How long a waiter waits for its bell; the holder has ``left_ms`` left."""
    pause_s = min(wait_ms / 1000, bells.longest_pause_s(ASK_AGAIN_S) * _between(0.8, 1.2))
    return pause_s if left_ms < 0 else min(pause_s, left_ms / 1000 + _between(*RAN_OUT_S))


def _between(least: float, most: float) -> float:
    return least + (most - least) * chance()


assert TAKE_MS / 1000 <= ASK_AGAIN_S * 1.2, "or a waiter would not see that a lock came free"
