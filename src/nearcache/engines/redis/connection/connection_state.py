"""What the callers of a line share: requests, the leader, and the channel in use.

The head of :mod:`.sync_connection` has the rules L1 to L5, and their reasons.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from nearcache.engines.redis.connection.waiters import new_seat, release_all
from nearcache.engines.redis.contract import ONCE, Reply
from nearcache.errors import EngineError, ReplyTimeout

BATCH_COMMANDS = 1024
BATCH_BYTES = 32768
"""The most that one round takes, beyond its first request, so that no caller waits for long."""


class Request:
    """Commands of one caller, and their replies or their error."""

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
        """True for the first ``to`` that asks: it passes on a lead that this caller cannot use."""
        return self.turn.setdefault(0, to) is to

    def result(self) -> list[Reply]:
        error, self.error = self.error, None
        if error is None:
            return self.replies
        try:
            raise error
        finally:
            del error  # its traceback holds this frame, which would make a cycle


class _Closed:
    """Stands where there is no channel. It is never fresh, so that the short way is not taken."""

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
    """All of a line that a forked child has anew."""

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
        """Gives up a channel of which nobody knows how far it has come. It will be drained."""
        if self.channel is not CLOSED:
            self.leaving.close()
            self.leaving, self.channel = self.channel, CLOSED

    def close(self) -> None:
        self.drop()
        leaving, self.leaving = self.leaving, CLOSED
        leaving.close()

    def put_away(self) -> None:
        """In a forked child: the parent's channels are used no more, nor by copies of greenlets.

        The channels stay in place: a copy of a greenlet that leads must find its exchange there.
        """
        self.channel.put_away()
        self.leaving.put_away()

    def wish_to_close(self) -> None:
        """Has the channel closed once the exchange in it is over."""
        if self.channel is not CLOSED:
            self.channel.closing = True
            # Makes a leader on the short way hand on, and not just return (L2).
            nobody = Request(b"", 0, ONCE)
            nobody.abandoned = True
            self.queue.append(nobody)

    def hand_on(self, me: Any) -> None:
        """Lets the first caller that waits lead after ``me``. An interrupt is raised after that."""
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
        """The request that leads next, if any waits. Closes the channel if that was wished."""
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
        """True if the exchange in the channel is also for this request."""
        exchange = self.channel.exchange
        return exchange is not None and request in exchange.batch

    def torn(self) -> Request | None:
        """The first request that waits for a reply of an exchange that lost its leader."""
        exchange = self.channel.exchange
        if exchange is None:
            return None
        waiting = (each for each in exchange.batch if not each.done)
        return next((each for each in waiting if not each.abandoned), None)


def gone(leader: Any, to: Any) -> bool:
    """True if the leader was interrupted, and ``to`` leads in its place from now on."""
    if not isinstance(leader, Request) or leader.done:
        return False
    return leader.abandoned and leader.resign(to)


def take(queue: deque[Request], batch: list[Request]) -> None:
    """Moves the next round to ``batch``. An interrupt may leave one request in the queue, too."""
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
    """True if a request may be sent again, of which bytes ``left`` before the connection broke."""
    if request.again or isinstance(reason, ReplyTimeout):
        return False
    return request.safety != ONCE or not left
