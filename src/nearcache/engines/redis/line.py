"""One connection that carries all threads and greenlets of the process.

By *flat combining*: whoever finds the line free leads. A leader sends what everybody has queued
in one write, reads the replies and hands them out; once it has its own, the first who waits
leads on. So nobody waits for a connection while there is one, a crowd pipelines without
asking, and somebody who is alone pays for one attribute more than a bare socket.

State, all of it changed by single operations on dicts and deques, which are atomic for threads
and greenlets. There is no lock that an interrupt, a killed greenlet or a fork could leave held.

    lead      a dict with one entry: who leads. ``setdefault`` takes it
    queue     requests that wait, first come first served. Anybody appends, the leader takes
    wake      a seat per request, to sleep on

What must hold:

L1  Only the leader touches the channel, and takes from the queue.
L2  Whoever appends to the queue tries to lead afterwards; whoever stops leading looks at the
    queue afterwards. So no request is left behind.
L3  A channel whose exchange did not end as it should is closed, never used again: replies
    cannot cross. What the exchange was for is settled by :meth:`SharedLine._settle` alone.
L4  Who gives up says ``abandoned`` first and looks at ``lead`` then; who hands on writes
    ``lead`` first and looks at ``abandoned`` then. Both may see the other: :meth:`resign` says
    which of them carries on.
L5  An interrupt may come between any two operations. What it tears is done again from its start,
    which does no harm: settling, waking, handing on. Interrupted once more, a leader may leave
    waiters behind; they look around every ``LOOK_S``. Only a leader that could not even say
    ``abandoned`` costs them their time limit, and is deposed.

A request is sent twice only if it may be (``READ``, ``SAFE``), or if not a byte of it had left;
once, and not after a timeout, as its caller has waited long enough by then.

Who interrupts a leader (gevent.Timeout, KeyboardInterrupt) costs the connection, and commands
may still be on their way in it. The next leader first waits until the server has done them
and hung up. Otherwise an old SET might be carried out after a newer one, or a DEL, of the
next connection. If the server does not hang up in time, a SAFE request is not repeated either.

A forked child starts anew: other state, no connection, the parent's socket closed here and not
shut down. The same happens to a line whose leader is stuck, as a greenlet is whose thread ended.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Callable
from typing import Any

from nearcache.engines.redis import faults
from nearcache.engines.redis.breaker import breaker_of
from nearcache.engines.redis.channel import BUSY, IDLE_S, Channel
from nearcache.engines.redis.connect import connect
from nearcache.engines.redis.resp import MORE, ProtocolError, make_reader
from nearcache.engines.redis.seats import let_them_come, release_all
from nearcache.engines.redis.station import CLOSED, Request, Station, gone, may_repeat, take
from nearcache.engines.redis.target import Address, Target
from nearcache.engines.redis.topology import ONCE, SAFE, Reply
from nearcache.errors import ConnectionFailed, EngineError, ReplyTimeout

LOOK_S = 0.1
"""How long a waiter sleeps before it looks whether anybody leads still."""

_monotonic = time.monotonic


class SharedLine:
    """See the head of this module; :class:`~.topology.Line` says what the methods promise.

    ``resolve`` is asked for the address before every connect (a Sentinel's primary).
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
        """Which parser is in use: ``hiredis.Reader``, or ours."""
        self._resolve = resolve
        # Somebody in the queue may have to wait for an exchange to fail and for a connect.
        self._wait_s = target.connect_timeout_s + target.read_timeout_s
        self._station = Station()
        self._counts = dict.fromkeys(("connects", "combined", "again", "abandoned", "deposed"), 0)
        _lines.add(self)

    # ---- asking

    def ask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        # The hot path, written out: alone, on a connection that was in use a moment ago.
        station = self._station
        lead = station.lead
        me = [packed]
        sent = 0
        try:
            if lead.setdefault(0, me) is me:
                channel = station.channel
                now = _monotonic()
                if now < channel.fresh_until and self.breaker.quiet:
                    channel.fresh_until = BUSY
                    sent = channel.send(packed)
                    channel.feed(channel.recv(65536))
                    reply = channel.gets()
                    if reply is MORE or sent != len(packed) or channel.has_data():
                        reply = channel.finish(packed, sent, reply)
                    channel.fresh_until = now + IDLE_S
                    if not station.queue:
                        del lead[0]
                        if not station.queue or lead.setdefault(0, me) is not me:  # L2
                            return reply
                    station.hand_on(me)
                    return reply
            return self._queue_up(station, me, Request(packed, 1, safety))[0]
        except BaseException as error:
            if lead.get(0) is not me:
                raise
            return self._stumbled(station, me, Request(packed, 1, safety), sent, error)

    def ask_many(self, packed: bytes, count: int, safety: int = ONCE) -> list[Reply]:
        return self._queue_up(self._station, None, Request(packed, count, safety))

    def _queue_up(self, station: Station, me: Any, request: Request) -> list[Reply]:
        """The replies, asked for by whoever leads next; that is us if ``me`` leads."""
        if not self.breaker.quiet:
            self.breaker.check()
        lead = station.lead
        try:
            station.queue.append(request)
            if me is not None and lead.get(0) is me:
                lead[0] = request
            if lead.setdefault(0, request) is request and station.waking:  # L2
                # Greenlets with replies of the last round will ask again in a moment. A greenlet
                # that finds its own reply at once would never let them, and ask alone for ever.
                let_them_come()
            while not request.done:
                if lead.get(0) is request:
                    self._lead(station, request)
                else:
                    self._wait(station, request)
        except BaseException:
            self._give_up(station, request)
            raise
        return request.result()

    def _wait(self, station: Station, request: Request) -> None:
        """Returns when there is something to do, or raises ReplyTimeout."""
        leader, rounds = station.lead.get(0), station.rounds
        received = station.channel.received
        late_at = _monotonic() + self._wait_s
        while (left_s := late_at - _monotonic()) > 0:
            if request.wake.acquire(timeout=min(left_s, LOOK_S)) or request.done:
                return
            now_leads = station.lead.setdefault(0, request)
            if now_leads is request or gone(now_leads, request):
                self._step_in(station, request)
                return
        stuck = station.lead.get(0) is leader and station.rounds == rounds
        if stuck and station.channel.received == received:
            self._depose(station)
        self._counts["abandoned"] += 1
        late = ReplyTimeout(
            f"{self.name}: no reply within {self._wait_s:g} s, behind other commands of this"
            " process: find slow commands with SLOWLOG, or raise SOCKET_TIMEOUT"
        )
        raise faults.uncertain(late) if request.taken and request.safety == ONCE else late

    def _step_in(self, station: Station, request: Request) -> None:
        """Leads where nobody did: a leader was interrupted twice, and left us behind."""
        station.lead[0] = request
        if request.done:  # or it was just leaving
            station.hand_on(request)
        elif request not in station.queue:
            self._settle(station, [request], [], int(request.taken), KeyboardInterrupt())

    def _give_up(self, station: Station, request: Request) -> None:
        request.abandoned = True  # L4
        if station.lead.get(0) is request and request.resign(request):
            station.hand_on(request)

    # ---- leading

    def _lead(self, station: Station, request: Request) -> None:
        while not request.done:
            self._round(station)
        station.hand_on(request)

    def _round(self, station: Station) -> None:
        """Everybody's commands in one write, everybody's replies from as few reads as it takes."""
        batch: list[Request] = []
        replies: list[Reply] = []
        station.rounds += 1
        channel = CLOSED
        try:
            if station.channel.fresh_until == BUSY:
                station.leave()
            take(station.queue, batch)
            if station.leaving is not CLOSED:
                batch = self._drain(station, batch)
            channel = self._channel(station)
            for request in batch:
                request.taken = True
            data = b"".join([request.packed for request in batch])
            channel.exchange(data, sum([request.count for request in batch]), replies)
            at = 0
            for request in batch:
                request.settle(replies[at : at + request.count])
                at += request.count
            station.waking = release_all([request.wake for request in batch])
        except BaseException as error:
            try:
                self._broke(station, channel, batch, replies, error)
            except BaseException:
                self._broke(station, channel, batch, replies, error)  # L5
                raise
            if not isinstance(error, BROKEN):
                raise
        else:
            self._counts["combined"] += len(batch)
            if not self.breaker.quiet:
                self.breaker.succeeded()

    def _broke(
        self,
        station: Station,
        channel: Any,
        batch: list[Request],
        replies: list[Reply],
        error: BaseException,
    ) -> None:
        if channel is CLOSED:
            self._no_channel(station, batch, error)
            return
        if station.channel is channel:
            station.drop() if isinstance(error, BROKEN) else station.leave()
        self._settle(station, batch, replies, channel.sent, error)

    def _drain(self, station: Station, batch: list[Request]) -> list[Request]:
        """Ends the connection that a leader was torn from; what can still be asked of the batch."""
        drained = station.leaving.drain()
        leaving, station.leaving = station.leaving, CLOSED
        leaving.close()
        if drained:
            return batch
        reason = ReplyTimeout(f"{self.name}: a dropped connection did not end in time")
        lost = [each for each in (*batch, *station.queue) if each.again and each.safety == SAFE]
        for request in lost:
            request.settle([], faults.uncertain(reason))
            request.abandoned = True
        release_all([request.wake for request in lost])
        return [request for request in batch if not request.done]

    def _channel(self, station: Station) -> Channel:
        """The connection, made if there is none that can be used."""
        now = _monotonic()
        channel: Channel = station.channel
        if channel.usable(now) and not station.dead:
            channel.touch(now)
            return channel
        station.drop()
        self._check_alive(station)
        address = self._resolve() if self._resolve else self.address
        made = Channel(
            connect(self.target, address), self.target.read_timeout_s, self.target.protocol
        )
        self._counts["connects"] += 1
        station.channel = made
        self._check_alive(station)
        return made

    def _check_alive(self, station: Station) -> None:
        if station.dead:
            station.drop()
            raise ConnectionFailed(f"{self.name}: the connection was given up, as by a fork")

    def _no_channel(self, station: Station, batch: list[Request], error: BaseException) -> None:
        """No connection could be made: the same for all who wait, as it is for those to come."""
        if not isinstance(error, EngineError):
            queued = set(station.queue)
            back = [each for each in batch if each not in queued and not each.done]
            station.queue.extendleft(reversed(back))
            release_all([each.wake for each in batch if each.done])
            return
        if not station.dead:
            self.breaker.failed(error)
        while station.queue:
            batch.append(station.queue[0])
            station.queue.popleft()
        for request in batch:
            request.settle([], faults.again(error))
        release_all([request.wake for request in batch])

    def _settle(
        self,
        station: Station,
        batch: list[Request],
        replies: list[Reply],
        sent: int,
        error: BaseException,
    ) -> None:
        """L3: what becomes of each request of an exchange that broke or was interrupted."""
        if isinstance(error, ProtocolError):
            replies = []  # a server that said too much may have shifted all of them
        if isinstance(error, BROKEN):
            reason = faults.broken(error, self.name, self.target.read_timeout_s)
            self.breaker.failed(reason)
        else:
            reason = ConnectionFailed(
                f"{self.name}: the connection was dropped, as another caller was interrupted"
            )
        again = []
        queued = set(station.queue)
        at = start = 0
        for request in batch:
            end = at + request.count
            left = start < sent
            if request in queued:
                request.again = True  # we were interrupted here, and come again
            elif end <= len(replies):
                request.settle(replies[at:end])
            elif may_repeat(request, left, reason):
                again.append(request)
            else:
                once = left and request.safety == ONCE
                request.settle([], faults.uncertain(reason) if once else faults.again(reason))
            at, start = end, start + len(request.packed)
        self._counts["again"] += len(again)
        station.queue.extendleft(reversed(again))
        for request in again:
            request.again = True
        release_all([request.wake for request in batch if request.done])

    def _stumbled(
        self, station: Station, me: Any, request: Request, sent: int, error: BaseException
    ) -> Reply:
        """What ``ask`` does after an error of its short way, while it leads."""
        try:
            if isinstance(error, EngineError):  # nothing was sent: the circuit is open
                raise error
            channel = station.channel
            if not isinstance(error, BROKEN):
                station.leave()
                raise error
            station.drop()
            # An error of `send` itself leaves `sent` at 0; a TLS socket may have sent some of it.
            self._settle(station, [request], [], sent or int(not channel.kernel), error)
            station.lead[0] = request
            self._lead(station, request)
        except BaseException:
            self._give_up(station, request)
            if station.lead.get(0) is me:
                station.hand_on(me)
            raise
        return request.result()[0]

    def _depose(self, station: Station) -> None:
        """Starts anew beside a leader that does nothing; it finds its connection closed."""
        if self._station is station:
            self._station = Station()
            self._counts["deposed"] += 1
            station.dead = True
            station.channel.wake()

    # ---- the rest of the contract

    def close(self) -> None:
        """Drops the connection; if it is in use, as soon as it is not."""
        station, me = self._station, [None]
        station.channel.closing = True
        try:
            if station.lead.setdefault(0, me) is me:
                station.close()
        finally:
            if station.lead.get(0) is me:
                station.hand_on(me)

    def stats(self) -> dict[str, int]:
        station = self._station
        return {
            **self._counts,
            **self.breaker.stats(),
            "rounds": station.rounds,
            "open": int(station.channel is not CLOSED),
            "parser_hiredis": int(self.reader_class.startswith("hiredis.")),
        }

    def _start_anew(self) -> None:
        """In a forked child: the parent's connection and its callers are not ours."""
        old, self._station = self._station, Station()
        old.dead = True
        old.close()


BROKEN = (OSError, EOFError, ProtocolError, EngineError)
"""What a connection raises by itself. Anything else interrupted its user (gevent.Timeout)."""


_lines: weakref.WeakSet[SharedLine] = weakref.WeakSet()


def _start_all_anew() -> None:
    for line in list(_lines):
        line._start_anew()


def close_all() -> None:
    """Drops the connections of all lines."""
    for line in list(_lines):
        line.close()


os.register_at_fork(after_in_child=_start_all_anew)
atexit.register(close_all)
