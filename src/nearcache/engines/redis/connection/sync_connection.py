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
L3  An exchange of which it is known how far it has come is kept in its channel
    (``channel.exchange``), and nothing else is sent or read there before it is over: replies
    cannot cross. A channel that broke, or of which that is not known, is closed and never
    used again. What an exchange was for is settled by :meth:`SharedLine._carry`, or, if it
    broke, by :meth:`SharedLine._settle`.
L4  Who gives up says ``abandoned`` first and looks at ``lead`` then; who hands on writes
    ``lead`` first and looks at ``abandoned`` then. Both may see the other: :meth:`resign` says
    which of them carries on.
L5  An interrupt may come between any two operations. What it tears is done again from its start,
    which does no harm: settling, waking, handing on. Interrupted once more, a leader may leave
    waiters behind; they look around every ``LOOK_S``. Only a leader that could not even say
    ``abandoned`` costs them their time limit, and is deposed.

A request is sent twice only if it may be (``READ``, ``SAFE``), or if it certainly was not
carried out: not a byte of it had left, or the server's end was closed before it came there.
Once, and not after a timeout, as its caller has waited long enough by then.

Who is interrupted while it leads (gevent.Timeout, KeyboardInterrupt) costs nobody anything: the
exchange goes on behind it. The first who waits for a reply of it leads on, else whoever comes
next; it sends what had not left, reads the replies and hands them to their owners. A reply
whose owner is gone is dropped.

That cannot be where an interrupt hit the few bytecodes of the short way at which nobody can
tell whether a reply was taken, or the Python reader. Then the next leader waits until the
server has done what was on its way and has hung up, before it connects anew. Otherwise an old
SET might be carried out after a newer one, or a DEL, of the next connection.

Who waits behind a large exchange waits as long as its bytes flow, at the rate that a channel
asks for (64 KB per time limit).

A forked child starts anew, at its first request if not before: other state, no connection, the
parent's socket put away here and not shut down. The same happens to a line whose leader is
stuck, as a greenlet is whose thread ended.
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
    Request,
    Station,
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


class SharedLine:
    """See the head of this module; :class:`~nearcache.engines.redis.contract.Line` says what the
    methods promise.

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
        self._station = Station(generation())
        self._renewing = Mutex()
        self._counts = dict.fromkeys(("connects", "combined", "again", "abandoned", "deposed"), 0)
        _lines.add(self)

    # ---- asking

    def ask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        # The hot path, written out: alone, on a connection that was in use a moment ago.
        station = self._station
        if station.process != generation():
            station = self._start_anew(station)
        lead = station.lead
        me = [packed]
        sent = came = 0
        try:
            if lead.setdefault(0, me) is me:
                channel = station.channel
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
            # Once the reader was asked, nobody knows whether the reply was taken from it.
            known = 0 if came else sent
            return self._stumbled(station, me, Request(packed, 1, safety), sent, known, error)

    def ask_many(self, packed: bytes, count: int, safety: int = ONCE) -> list[Reply]:
        return self._queue_up(self._here(), None, Request(packed, count, safety))

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
        finally:
            if self.breaker.unsaid:  # now that we lead no more
                self.breaker.say()
        return request.result()

    def _wait(self, station: Station, request: Request) -> None:
        """Returns when there is something to do, or raises ReplyTimeout."""
        leader, rounds = station.lead.get(0), station.rounds
        patience = _Patience(station, self._wait_s)
        while (left_s := patience.left_s()) > 0:
            if request.wake.acquire(timeout=min(left_s, LOOK_S)) or request.done:
                return
            now_leads = station.lead.setdefault(0, request)
            if now_leads is request or gone(now_leads, request):
                self._step_in(station, request)
                return
        if station.lead.get(0) is leader and station.rounds == rounds and patience.nothing_moves():
            self._depose(station)
        self._counts["abandoned"] += 1
        late = ReplyTimeout(
            f"{self.name}: no reply within {patience.waited_s():.3g} s, behind other commands of"
            " this process: find slow commands with SLOWLOG, or raise SOCKET_TIMEOUT"
        )
        raise faults.uncertain(late) if request.taken and request.safety == ONCE else late

    def _step_in(self, station: Station, request: Request) -> None:
        """Leads where nobody did: a leader was interrupted twice, and left us behind."""
        station.lead[0] = request
        if request.done:  # or it was just leaving
            station.hand_on(request)
        elif not station.carries(request) and request not in station.queue:
            station.queue.appendleft(request)  # it was about to be sent

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
        """Everybody's commands in one write, everybody's replies from as few reads as it takes.

        Or the rest of that, where a leader was torn from it.
        """
        batch: list[Request] = []
        self._here()  # in a forked child the station is dead from now on
        station.rounds += 1
        try:
            if station.channel.exchange is None:
                self._begin(station, batch)
            self._carry(station)
        except BaseException as error:
            try:
                self._broke(station, batch, error)
            except BaseException:
                self._broke(station, batch, error)  # L5
                raise
            if not faults.is_own(error):
                raise
        else:
            if not self.breaker.quiet:
                self.breaker.succeeded()

    def _begin(self, station: Station, batch: list[Request]) -> None:
        """Makes the next exchange of what is queued; nothing of it has left yet."""
        if station.channel.fresh_until == BUSY:
            station.leave()
        take(station.queue, batch)
        if station.leaving is not CLOSED:
            station.leaving.drain()
            leaving, station.leaving = station.leaving, CLOSED
            leaving.close()
        channel = self._channel(station)
        for request in batch:
            request.taken = True
        if len(batch) == 1:
            data, count = batch[0].packed, batch[0].count
        else:
            data = b"".join([request.packed for request in batch])
            count = sum([request.count for request in batch])
        channel.exchange = Exchange(data, count, batch)

    def _carry(self, station: Station) -> None:
        """Brings the channel's exchange to its end, and everybody the replies."""
        channel = station.channel
        channel.carry()
        exchange = channel.exchange
        batch, replies, at = exchange.batch, exchange.replies, 0
        for request in batch:
            request.settle(replies[at : at + request.count])
            at += request.count
        station.waking = release_all([request.wake for request in batch])
        channel.end(_monotonic() + IDLE_S)
        self._counts["combined"] += len(batch)

    def _broke(self, station: Station, batch: list[Request], error: BaseException) -> None:
        channel = station.channel
        exchange = channel.exchange
        if exchange is None:
            self._no_channel(station, batch, error)
        elif faults.is_own(error):
            self._settle(station, exchange.batch, exchange.replies, channel, channel.left(), error)
            station.drop()
        elif not channel.exact:
            self._settle(station, exchange.batch, exchange.replies, channel, channel.left(), error)
            station.leave()

    def _channel(self, station: Station) -> Channel:
        """The connection, made if there is none that can be used."""
        channel: Channel = station.channel
        if channel.usable() and not station.dead:
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
        batch: Sequence[Request],
        replies: list[Reply],
        channel: Channel,
        sent: int,
        error: BaseException,
    ) -> None:
        """L3: what becomes of each request of an exchange that broke or was interrupted."""
        if isinstance(error, ProtocolError):
            replies = []  # a server that said too much may have shifted all of them
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
        queued = set(station.queue)
        at = start = 0
        for request in batch:
            end = at + request.count
            # Of what was refused, the last command was not read to its end.
            left = start < sent and not (refused and request is batch[-1] and request.count == 1)
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
        self,
        station: Station,
        me: Any,
        request: Request,
        sent: int,
        known: int,
        error: BaseException,
    ) -> Reply:
        """What ``ask`` does after an error of its short way, while it leads."""
        try:
            if isinstance(error, EngineError):  # nothing was sent: the circuit is open
                raise error
            channel = station.channel
            if not faults.is_own(error):
                if channel is not CLOSED and not channel.tear(request.packed, known):
                    station.leave()
                raise error
            # An error of `send` itself leaves `sent` at 0; a TLS socket may have sent some of it.
            left = sent or channel.left() or int(not channel.kernel)
            self._settle(station, [request], [], channel, left, error)
            station.drop()
            station.lead[0] = request
            self._lead(station, request)
        except BaseException:
            self._give_up(station, request)
            if station.lead.get(0) is me:
                station.hand_on(me)
            raise
        finally:
            if self.breaker.unsaid:
                self.breaker.say()
        return request.result()[0]

    def _depose(self, station: Station) -> None:
        """Starts anew beside a leader that does nothing; it finds its connection closed."""
        if self._station is station:
            self._station = Station(station.process)
            self._counts["deposed"] += 1
            station.dead = True
            station.channel.wake()

    # ---- the rest of the contract

    def close(self) -> None:
        """Drops the connection; if it is in use, as soon as it is not."""
        station, me = self._here(), [None]
        station.wish_to_close()
        try:
            if station.lead.setdefault(0, me) is me and station.torn() is None:
                station.close()
        finally:
            if station.lead.get(0) is me:
                station.hand_on(me)

    def stats(self) -> dict[str, int]:
        station = self._here()
        return {
            **self._counts,
            **self.breaker.stats(),
            "rounds": station.rounds,
            "open": int(station.channel is not CLOSED),
            "parser_hiredis": int(self.reader_class.startswith("hiredis.")),
        }

    def _here(self) -> Station:
        station = self._station
        return station if station.process == generation() else self._start_anew(station)

    def _start_anew(self, old: Station) -> Station:
        """In a forked child: the parent's connection and its callers are not ours."""
        with self._renewing.now():
            if self._station is old:
                self._station = Station(generation())
                # A copy of a greenlet may lead there still, and go on to read.
                old.dead = True
                old.put_away()
            return self._station


class _Patience:
    """How long one waits for others: as long as bytes flow, but not for a trickle."""

    def __init__(self, station: Station, limit_s: float) -> None:
        self._station = station
        self._limit_s = limit_s
        self._began = self._flowed_at = _monotonic()
        self._seen = station.channel.moved
        self._come = 0

    def left_s(self) -> float:
        """Seconds until it ends, if nothing more moves."""
        now, moved = _monotonic(), self._station.channel.moved
        if moved != self._seen:  # it begins anew with every connection
            self._come += moved - self._seen if moved > self._seen else moved
            self._seen, self._flowed_at = moved, now
        ends = self._began + self._limit_s * (1 + self._come / READ_BYTES)
        return min(ends, self._flowed_at + self._limit_s) - now

    def waited_s(self) -> float:
        return _monotonic() - self._began

    def nothing_moves(self) -> bool:
        return self._flowed_at + self._limit_s <= _monotonic()


_lines: weakref.WeakSet[SharedLine] = weakref.WeakSet()


@when_forked
def _start_all_anew() -> None:
    for line in list(_lines):
        line._here()


def close_all() -> None:
    """Drops the connections of all lines."""
    for line in list(_lines):
        line.close()


atexit.register(close_all)
