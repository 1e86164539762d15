"""What the callers of a line share: requests, who leads, and the channel in use.

Rules L1 to L5, and why, are at the head of :mod:`.sync_connection`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from nearcache.engines.redis.connection.waiters import new_seat, release_all
from nearcache.engines.redis.contract import ONCE, Reply
from nearcache.errors import EngineError, ReplyTimeout

BATCH_COMMANDS = 1024
BATCH_BYTES = 32768
"""One round takes no more than that, but at least one request: nobody waits for long."""


class Request:
    """Commands of one caller, and how it went."""

    __slots__ = (
        "abandoned",
        "again",
        "count",
        "done",
        "error",
        "packed",
        "replies",
        "safety",
        "taken",
        "turn",
        "wake",
    )

    def __init__(self, packed: bytes, count: int, safety: int) -> None:
        self.packed = packed
        self.count = count
        self.safety = safety
        self.replies: list[Reply] = []
        self.error: EngineError | None = None
        self.done = self.abandoned = self.again = self.taken = False
        self.turn: dict[int, Any] = {}
        self.wake = new_seat()

    def settle(self, replies: list[Reply], error: EngineError | None = None) -> None:
        self.replies, self.error = replies, error
        self.done = True

    def resign(self, to: Any) -> bool:
        """True for the first who asks: it passes on a lead that nobody here will use."""
        return self.turn.setdefault(0, to) is to

    def result(self) -> list[Reply]:
        error, self.error = self.error, None
        if error is None:
            return self.replies
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: a cycle for the collector


class _Closed:
    """Where there is no channel: never fresh, so that the short way is not taken."""

    fresh_until = float("-inf")
    exchange = None
    moved = 0
    closing = False

    def usable(self) -> bool:
        return False

    def drain(self) -> bool:
        return True

    def close(self) -> None: ...

    def put_away(self) -> None: ...

    def wake(self) -> None: ...


CLOSED: Any = _Closed()


class ConnectionState:
    """Everything of a line that a fork renews."""

    __slots__ = ("channel", "dead", "lead", "leaving", "process", "queue", "rounds", "waking")

    def __init__(self, process: int) -> None:
        self.process = process
        self.lead: dict[int, Any] = {}
        self.queue: deque[Request] = deque()
        self.channel: Any = CLOSED
        self.leaving: Any = CLOSED
        self.waking: list[Any] = []
        self.rounds = 0
        self.dead = False

    def drop(self) -> None:
        channel, self.channel = self.channel, CLOSED
        channel.close()

    def leave(self) -> None:
        """Gives up a channel of which nobody knows how far it has come; it will be drained."""
        if self.channel is not CLOSED:
            self.leaving.close()
            self.leaving, self.channel = self.channel, CLOSED

    def close(self) -> None:
        self.drop()
        leaving, self.leaving = self.leaving, CLOSED
        leaving.close()

    def put_away(self) -> None:
        """In a forked child: the parent's channels are used no more here, nor by copies.

        They stay where they are: a copy of a greenlet that leads must find its exchange there.
        """
        self.channel.put_away()
        self.leaving.put_away()

    def wish_to_close(self) -> None:
        """The channel of now is used no more, once the exchange in it is over."""
        if self.channel is not CLOSED:
            self.channel.closing = True
            # Makes whoever leads on the short way hand on, and not just go (L2).
            nobody = Request(b"", 0, ONCE)
            nobody.abandoned = True
            self.queue.append(nobody)

    def hand_on(self, me: Any) -> None:
        """The first who waits leads on; ``me`` leads until now. Interrupts are raised after it."""
        try:
            self._hand_on(me, me)
        except BaseException:
            leader = self.lead.setdefault(0, me)
            if leader is me or gone(leader, me):
                self._hand_on(leader, me)
            elif isinstance(leader, Request):
                release_all([leader.wake])  # perhaps again
            raise

    def _hand_on(self, me: Any, first: Any) -> None:
        lead = self.lead
        while True:
            following = self._following()
            if following is None:
                del lead[0]
                if not self.queue or lead.setdefault(0, me) is not me:  # L2
                    return
            else:
                me = lead[0] = following
                if not me.abandoned:
                    release_all([me.wake])
                    return
                if not me.resign(first):  # L4
                    return

    def _following(self) -> Request | None:
        """Who leads next, if anybody waits; the channel is closed now, if that was wished."""
        if self.channel.exchange is not None and (torn := self.torn()) is not None:
            return torn
        if self.channel.closing:
            self.drop()
        while self.queue:
            if not self.queue[0].abandoned:
                return self.queue[0]
            self.queue.popleft()
        return None

    def carries(self, request: Request) -> bool:
        """Whether the exchange in the channel is also for this one."""
        exchange = self.channel.exchange
        return exchange is not None and request in exchange.batch

    def torn(self) -> Request | None:
        """The first who waits for a reply of an exchange that its leader was torn from."""
        exchange = self.channel.exchange
        if exchange is None:
            return None
        waiting = (each for each in exchange.batch if not each.done)
        return next((each for each in waiting if not each.abandoned), None)


def gone(leader: Any, to: Any) -> bool:
    """True if the leader was interrupted and is led for by ``to`` from now on."""
    if not isinstance(leader, Request) or leader.done:
        return False
    return leader.abandoned and leader.resign(to)


def take(queue: deque[Request], batch: list[Request]) -> None:
    """Moves the next round from the queue; an interrupt may leave one request in both."""
    commands = size = 0
    while queue:
        request = queue[0]
        commands += request.count
        size += len(request.packed)
        if batch and (commands > BATCH_COMMANDS or size > BATCH_BYTES):
            break
        if not request.abandoned and not request.done:
            batch.append(request)
        queue.popleft()


def may_repeat(request: Request, left: bool, reason: EngineError) -> bool:
    if request.again or isinstance(reason, ReplyTimeout):
        return False
    return request.safety != ONCE or not left
