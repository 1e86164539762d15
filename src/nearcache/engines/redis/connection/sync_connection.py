"""One connection that carries the requests of all threads and greenlets of the process.

The method is *flat combining*: a caller that finds nobody leading becomes the leader. The leader
sends all queued requests in one write, reads the replies and gives each caller its reply. When
the leader has its own reply, the first caller that waits becomes the leader. So no caller waits
for a free connection, many callers make a pipeline without asking for one, and a lone caller pays
one attribute more than a bare socket.

The state (:class:`.ConnectionState`) is changed only by single operations on dicts and deques,
which are atomic for threads and greenlets. There is no lock that an interrupt, a killed greenlet
or a fork could leave held.

    lead      a dict with one entry, the leader. ``setdefault`` takes it
    queue     requests that wait, first come first served. Any caller appends, the leader takes
    wake      a seat of each request, on which its caller sleeps

Rules:

L1  Only the leader touches the channel, and only the leader takes from the queue.
L2  A caller that appends to the queue tries to lead afterwards. A leader that stops looks at the
    queue afterwards. So no request is left behind.
L3  An exchange is kept in its channel (``channel.exchange``) while it is known how far it has
    come. Nothing else is sent or read on that channel before the exchange is over, so replies
    cannot cross. A channel is closed and never used again if it broke, or if it is not known how
    far its exchange has come. :meth:`SyncConnection._carry` gives each request of a finished
    exchange its reply. :meth:`SyncConnection._settle` decides about each request of a broken one.
L4  A caller that gives up sets ``abandoned`` before it reads ``lead``. A leader that hands on
    writes ``lead`` before it reads ``abandoned``. Both may see each other:
    :meth:`.Request.resign` says which of the two carries on.
L5  An interrupt may come between any two operations. Whatever it tears (settling, waking, handing
    on) is done again from its start, which does no harm. A leader that is interrupted once more
    may leave waiters behind: waiters look around every ``LOOK_S``. A leader that could not even
    set ``abandoned`` costs the waiters their time limit, and is deposed.

A request is sent twice only if that is allowed (``READ``, ``SAFE``), or if it certainly was not
carried out: none of its bytes had left, or the server had closed its end before they came there.
A request is repeated once, and not after a timeout, as its caller has waited long enough by then.

A leader that is interrupted (gevent.Timeout, KeyboardInterrupt) costs the other callers nothing.
Its exchange goes on: the first caller that waits for a reply of it becomes the leader, or else
the next caller that comes. That leader sends what had not left, reads the replies and gives them
to their owners. A reply whose owner is gone is dropped.

There are two exceptions: an interrupt in those few bytecodes of the short way after which nobody
can tell whether a reply was taken, and an interrupt in the Python reader. The next leader then
waits until the server has done what was on its way and has hung up, and connects after that.
Otherwise an old SET might be carried out after a newer SET, or a DEL, of the next connection.

A caller behind a large exchange waits as long as the bytes of that exchange flow, at the rate
that a channel asks for (64 KB per time limit).

A forked child starts anew at its first request, if not before. It has a new state and no
connection, and the parent's socket is put away there but not shut down. A connection whose leader
is stuck starts anew in the same way, as where the thread of a greenlet has ended.
"""

from __future__ import annotations

import atexit
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from nearcache.base.per_process import Mutex, generation, when_forked
from nearcache.engines.redis.connection.breaker import breaker_of
from nearcache.engines.redis.connection.channel import BUSY, IDLE_S, Channel, Exchange
from nearcache.engines.redis.connection.connect import READ_BYTES, connect
from nearcache.engines.redis.connection.connection_state import (
    CLOSED,
    ConnectionState,
    Request,
    gone,
    may_repeat,
    take,
)
from nearcache.engines.redis.connection.waiters import let_them_come, release_all
from nearcache.engines.redis.contract import ONCE, Reply
from nearcache.engines.redis.protocol import faults
from nearcache.engines.redis.protocol.resp import MORE, ProtocolError, make_reader
from nearcache.engines.redis.target.target import Address, Target
from nearcache.errors import ConnectionFailed, EngineError, ReplyTimeout

LOOK_S = 0.1
"""How long a waiter sleeps before it looks whether anybody leads still."""

_monotonic = time.monotonic


class SyncConnection:
    """See the head of this module; :class:`~nearcache.engines.redis.contract.ServerConnection` says
    what the methods promise.

    ``resolve`` gives the address before every connect, for a server that moves (a Sentinel's
    primary).
    """

    def __init__(
        self, target: Target, address: Address, *, resolve: Callable[[], Address] | None = None
    ) -> None:
        self.name = str(address)
        self.target = target
        self.address = address
        self.breaker = breaker_of(target, address)
        reader = type(make_reader(target.parser))
        self.reader_class = f"{reader.__module__}.{reader.__qualname__}"
        """The class that parses replies: ``hiredis.Reader``, or ours."""
        self._resolve = resolve
        # A caller in the queue may have to wait for an exchange to fail, and for a connect.
        self._wait_s = target.connect_timeout_s + target.read_timeout_s
        self._state = ConnectionState(generation())
        self._renewing = Mutex()
        self._counts = dict.fromkeys(("connects", "combined", "again", "abandoned", "deposed"), 0)
        _lines.add(self)

    # ---- asking

    def ask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        # The hot path, written out: alone, on a connection that was in use a moment ago.
        state = self._state
        if state.process != generation():
            state = self._start_anew(state)
        lead = state.lead
        me = [packed]
        sent = came = 0
        try:
            if lead.setdefault(0, me) is me:
                channel = state.channel
                now = _monotonic()
                if now < channel.fresh_until and self.breaker.quiet:
                    channel.fresh_until = BUSY
                    sent = channel.send(packed)
                    channel.step()
                    came = 1
                    reply = channel.gets()
                    if reply is MORE or sent != len(packed) or channel.has_data():
                        reply = channel.finish(packed, sent, reply)
                    channel.fresh_until = now + IDLE_S
                    if not state.queue:
                        del lead[0]
                        if not state.queue or lead.setdefault(0, me) is not me:  # L2
                            return reply
                    state.hand_on(me)
                    return reply
            return self._queue_up(state, me, Request(packed, 1, safety))[0]
        except BaseException as error:
            if lead.get(0) is not me:
                raise
            # After `step` nobody knows whether the reply was taken from the reader.
            known = 0 if came else sent
            return self._stumbled(state, me, Request(packed, 1, safety), sent, known, error)

    def ask_many(self, packed: bytes, count: int, safety: int = ONCE) -> list[Reply]:
        return self._queue_up(self._here(), None, Request(packed, count, safety))

    def _queue_up(self, state: ConnectionState, me: Any, request: Request) -> list[Reply]:
        """The replies. The next leader asks for them: this caller, if ``me`` leads."""
        if not self.breaker.quiet:
            self.breaker.check()
        lead = state.lead
        try:
            state.queue.append(request)
            if me is not None and lead.get(0) is me:
                lead[0] = request
            if lead.setdefault(0, request) is request and state.waking:  # L2
                # Greenlets that got replies in the last round will ask again in a moment. One that
                # finds its own reply at once would never let them run, and ask alone for ever.
                let_them_come()
            while not request.done:
                if lead.get(0) is request:
                    self._lead(state, request)
                else:
                    self._wait(state, request)
        except BaseException:
            self._give_up(state, request)
            raise
        finally:
            if self.breaker.unsaid:  # now that we lead no more
                self.breaker.say()
        return request.result()

    def _wait(self, state: ConnectionState, request: Request) -> None:
        """Returns when there is something to do, or raises ReplyTimeout."""
        leader, rounds = state.lead.get(0), state.rounds
        patience = _Patience(state, self._wait_s)
        while (left_s := patience.left_s()) > 0:
            if request.wake.acquire(timeout=min(left_s, LOOK_S)) or request.done:
                return
            now_leads = state.lead.setdefault(0, request)
            if now_leads is request or gone(now_leads, request):
                self._step_in(state, request)
                return
        if state.lead.get(0) is leader and state.rounds == rounds and patience.nothing_moves():
            self._depose(state)
        self._counts["abandoned"] += 1
        late = ReplyTimeout(
            f"{self.name}: no reply within {patience.waited_s():.3g} s, behind other commands of"
            " this process: find slow commands with SLOWLOG, or raise SOCKET_TIMEOUT"
        )
        raise faults.uncertain(late) if request.taken and request.safety == ONCE else late

    def _step_in(self, state: ConnectionState, request: Request) -> None:
        """Leads where nobody did: a leader was interrupted twice, and left us behind."""
        state.lead[0] = request
        if request.done:  # the old leader was just leaving
            state.hand_on(request)
        elif not state.carries(request) and request not in state.queue:
            state.queue.appendleft(request)  # its old leader was about to send it

    def _give_up(self, state: ConnectionState, request: Request) -> None:
        request.abandoned = True  # L4
        if state.lead.get(0) is request and request.resign(request):
            state.hand_on(request)

    # ---- leading

    def _lead(self, state: ConnectionState, request: Request) -> None:
        while not request.done:
            self._round(state)
        state.hand_on(request)

    def _round(self, state: ConnectionState) -> None:
        """One exchange: the commands of all in one write, their replies by few reads.

        Or the rest of an exchange that a leader was torn from.
        """
        batch: list[Request] = []
        self._here()  # in a forked child this makes the state dead
        state.rounds += 1
        try:
            if state.channel.exchange is None:
                self._begin(state, batch)
            self._carry(state)
        except BaseException as error:
            try:
                self._broke(state, batch, error)
            except BaseException:
                self._broke(state, batch, error)  # L5
                raise
            if not faults.is_own(error):
                raise
        else:
            if not self.breaker.quiet:
                self.breaker.succeeded()

    def _begin(self, state: ConnectionState, batch: list[Request]) -> None:
        """Makes an exchange of queued requests. Sends nothing of it yet."""
        if state.channel.fresh_until == BUSY:
            state.leave()
        take(state.queue, batch)
        if state.leaving is not CLOSED:
            state.leaving.drain()
            leaving, state.leaving = state.leaving, CLOSED
            leaving.close()
        channel = self._channel(state)
        for request in batch:
            request.taken = True
        if len(batch) == 1:
            data, count = batch[0].packed, batch[0].count
        else:
            data = b"".join([request.packed for request in batch])
            count = sum([request.count for request in batch])
        channel.exchange = Exchange(data, count, batch)

    def _carry(self, state: ConnectionState) -> None:
        """Brings the channel's exchange to its end, and gives each request its replies."""
        channel = state.channel
        channel.carry()
        exchange = channel.exchange
        batch, replies, at = exchange.batch, exchange.replies, 0
        for request in batch:
            request.settle(replies[at : at + request.count])
            at += request.count
        state.waking = release_all([request.wake for request in batch])
        channel.end(_monotonic() + IDLE_S)
        self._counts["combined"] += len(batch)

    def _broke(self, state: ConnectionState, batch: list[Request], error: BaseException) -> None:
        channel = state.channel
        exchange = channel.exchange
        if exchange is None:
            self._no_channel(state, batch, error)
        elif faults.is_own(error):
            self._settle(state, exchange.batch, exchange.replies, channel, channel.left(), error)
            state.drop()
        elif not channel.exact:
            self._settle(state, exchange.batch, exchange.replies, channel, channel.left(), error)
            state.leave()

    def _channel(self, state: ConnectionState) -> Channel:
        """The channel; a new one if there is none that can be used."""
        channel: Channel = state.channel
        if channel.usable() and not state.dead:
            return channel
        state.drop()
        self._check_alive(state)
        address = self._resolve() if self._resolve else self.address
        made = Channel(
            connect(self.target, address), self.target.read_timeout_s, self.target.protocol
        )
        self._counts["connects"] += 1
        state.channel = made
        self._check_alive(state)
        return made

    def _check_alive(self, state: ConnectionState) -> None:
        if state.dead:
            state.drop()
            raise ConnectionFailed(
                f"{self.name}: the connection was given up after a fork, or behind a stuck leader"
            )

    def _no_channel(
        self, state: ConnectionState, batch: list[Request], error: BaseException
    ) -> None:
        """No connection could be made. All callers that wait get the same error."""
        if not isinstance(error, EngineError):
            queued = set(state.queue)
            back = [each for each in batch if each not in queued and not each.done]
            state.queue.extendleft(reversed(back))
            release_all([each.wake for each in batch if each.done])
            return
        if not state.dead:
            self.breaker.failed(error)
        while state.queue:
            batch.append(state.queue[0])
            state.queue.popleft()
        for request in batch:
            request.settle([], faults.again(error))
        release_all([request.wake for request in batch])

    def _settle(
        self,
        state: ConnectionState,
        batch: Sequence[Request],
        replies: list[Reply],
        channel: Channel,
        sent: int,
        error: BaseException,
    ) -> None:
        """L3: decides about each request of an exchange that broke or was interrupted."""
        if isinstance(error, ProtocolError):
            replies = []  # if the server said too much, all of them may be shifted
        if faults.is_own(error):
            reason = faults.broken(error, self.name, self.target.read_timeout_s)
            self.breaker.failed(reason)
        else:
            reason = ConnectionFailed(
                f"{self.name}: the connection was dropped, as another caller was interrupted"
            )
        once = any(each.safety == ONCE and not each.done for each in batch)
        refused = bool(once and sent) and channel.refused(error)
        again = []
        queued = set(state.queue)
        at = start = 0
        for request in batch:
            end = at + request.count
            # If the batch was refused, the server did not read its last command to the end.
            left = start < sent and not (refused and request is batch[-1] and request.count == 1)
            if request in queued:
                request.again = True  # we were interrupted here before, and come again
            elif end <= len(replies):
                request.settle(replies[at:end])
            elif may_repeat(request, left, reason):
                again.append(request)
            else:
                once = left and request.safety == ONCE
                request.settle([], faults.uncertain(reason) if once else faults.again(reason))
            at, start = end, start + len(request.packed)
        self._counts["again"] += len(again)
        state.queue.extendleft(reversed(again))
        for request in again:
            request.again = True
        release_all([request.wake for request in batch if request.done])

    def _stumbled(
        self,
        state: ConnectionState,
        me: Any,
        request: Request,
        sent: int,
        known: int,
        error: BaseException,
    ) -> Reply:
        """What ``ask`` does after an error of its short way, where it leads."""
        try:
            if isinstance(error, EngineError):  # nothing was sent: the circuit is open
                raise error
            channel = state.channel
            if not faults.is_own(error):
                if channel is not CLOSED and not channel.tear(request.packed, known):
                    state.leave()
                raise error
            # An error of `send` itself leaves `sent` at 0; a TLS socket may have sent some of it.
            left = sent or channel.left() or int(not channel.kernel)
            self._settle(state, [request], [], channel, left, error)
            state.drop()
            state.lead[0] = request
            self._lead(state, request)
        except BaseException:
            self._give_up(state, request)
            if state.lead.get(0) is me:
                state.hand_on(me)
            raise
        finally:
            if self.breaker.unsaid:
                self.breaker.say()
        return request.result()[0]

    def _depose(self, state: ConnectionState) -> None:
        """Starts anew beside a leader that does nothing, and shuts that leader's channel down."""
        if self._state is state:
            self._state = ConnectionState(state.process)
            self._counts["deposed"] += 1
            state.dead = True
            state.channel.wake()

    # ---- the rest of the contract

    def close(self) -> None:
        """Drops the connection, or has it dropped when its exchange is over."""
        state, me = self._here(), [None]
        state.wish_to_close()
        try:
            if state.lead.setdefault(0, me) is me and state.torn() is None:
                state.close()
        finally:
            if state.lead.get(0) is me:
                state.hand_on(me)

    def stats(self) -> dict[str, int]:
        state = self._here()
        return {
            **self._counts,
            **self.breaker.stats(),
            "rounds": state.rounds,
            "open": int(state.channel is not CLOSED),
            "parser_hiredis": int(self.reader_class.startswith("hiredis.")),
        }

    def _here(self) -> ConnectionState:
        state = self._state
        return state if state.process == generation() else self._start_anew(state)

    def _start_anew(self, old: ConnectionState) -> ConnectionState:
        """In a forked child: the parent's connection and its callers are not ours."""
        with self._renewing.now():
            if self._state is old:
                self._state = ConnectionState(generation())
                # A copy of a greenlet may lead in the old state still, and go on to read.
                old.dead = True
                old.put_away()
            return self._state


class _Patience:
    """How long a caller waits for others: as long as bytes flow, but not for a trickle."""

    def __init__(self, state: ConnectionState, limit_s: float) -> None:
        self._state = state
        self._limit_s = limit_s
        self._began = self._flowed_at = _monotonic()
        self._seen = state.channel.moved
        self._come = 0

    def left_s(self) -> float:
        """Seconds until the wait ends, if nothing more moves."""
        now, moved = _monotonic(), self._state.channel.moved
        if moved != self._seen:  # `moved` begins anew with every connection
            self._come += moved - self._seen if moved > self._seen else moved
            self._seen, self._flowed_at = moved, now
        ends = self._began + self._limit_s * (1 + self._come / READ_BYTES)
        return min(ends, self._flowed_at + self._limit_s) - now

    def waited_s(self) -> float:
        return _monotonic() - self._began

    def nothing_moves(self) -> bool:
        return self._flowed_at + self._limit_s <= _monotonic()


_lines: weakref.WeakSet[SyncConnection] = weakref.WeakSet()


@when_forked
def _start_all_anew() -> None:
    for line in list(_lines):
        line._here()


def close_all() -> None:
    """Drops the connections of all lines."""
    for line in list(_lines):
        line.close()


atexit.register(close_all)
