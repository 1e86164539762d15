"""A cluster: 16,384 slots on several primaries, found and followed.

A request goes to the line of the server that has the slot of its key. What becomes of the request
depends on the reply:

    MOVED         another server has the slot for good. The request goes there, and the map is
                  asked for anew
    ASK           the slot is being moved, and this key has arrived: the request goes there, once
    TRYAGAIN      the keys of one command are on both sides of a move: the request is sent again
                  after a pause
    CLUSTERDOWN   slots have no server, as in a failover: the request is sent again after a pause
    no answer     the map is asked for anew. If another server has the slot by now, it is asked

After the first four the server has done nothing, so even a request that must not be repeated is
sent again. After no answer the rule of :mod:`~nearcache.engines.redis.contract` holds. A request
waits ``WAIT_S`` at most. In an outage longer than that no request waits: all fail at once, until
the servers agree.

``ask_each`` makes one write per server, and follows each reply by itself. Coroutines ask all
servers at once. Threads ask one server after the other, a round trip each.

Source: the Redis cluster specification.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from binascii import crc_hqx
from collections.abc import Sequence
from typing import Any, NamedTuple

from nearcache.base.clock import Clock, SystemClock
from nearcache.base.sans_io import Flow, Pause, call, twins
from nearcache.engines.redis.connection import clients
from nearcache.engines.redis.contract import ONCE, READ, SAFE, Reply, ServerConnection
from nearcache.engines.redis.protocol.faults import error_of
from nearcache.engines.redis.protocol.resp import ErrorReply, pack
from nearcache.engines.redis.target.target import Address, Target
from nearcache.engines.redis.topology.server import SharedConnections
from nearcache.engines.redis.topology.topology_refresh import Refresh
from nearcache.errors import (
    ConnectionFailed,
    EngineConfiguration,
    EngineError,
    EngineUnavailable,
)

SLOTS = 16384
EVERY_S = 0.1
"""The shortest time between two questions for the map."""
WAIT_S = 1.0
"""The longest time that a request waits for slots to be served or moved."""
PAUSE_S = 0.02
ROUNDS = 16 + int(WAIT_S / PAUSE_S)
"""How often a request is sent at most."""
ASKING = pack(b"ASKING")
READONLY = pack(b"READONLY")
SLOT_MAP = pack(b"CLUSTER", b"SLOTS")
WAITED_FOR = frozenset(("TRYAGAIN", "CLUSTERDOWN"))
FOLLOWED = WAITED_FOR | {"MOVED", "ASK"}
MAP_IS_OLD = frozenset(("MOVED", "CLUSTERDOWN"))
NOT_IN_STEP = FOLLOWED | {"LOADING", "MASTERDOWN"}
"""What a replica replies that cannot answer now. Its primary is asked instead."""
COUNTS = ("moves", "asks", "waits", "maps", "replica_reads", "replica_fallbacks")


def slot_of(key: bytes) -> int:
    """The slot of a key, or of what stands in its first pair of braces."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) & 16383


class _Todo(NamedTuple):
    """A request that has no answer yet. Without ``line`` it goes to the server of its slot."""

    number: int
    packed: bytes
    slot: int
    line: SharedConnections | None = None
    prefix: bytes = b""
    """ASKING or READONLY: written before the request, with a reply of its own."""


class _Batch(NamedTuple):
    """The requests that one server gets in one write."""

    line: SharedConnections
    todo: list[_Todo]


Outcome = list[Reply] | EngineUnavailable
"""The replies of one server, or why there are none."""


class _Round(NamedTuple):
    """What is left to do after every server was asked once."""

    todo: list[_Todo]
    lost: list[tuple[_Batch, EngineUnavailable]]
    waits: list[ErrorReply]
    moved: bool


class Cluster:
    """:class:`~nearcache.engines.redis.contract.Topology` over slots."""

    sharded = True
    engine = None  # the flows here ask lines

    def __init__(self, target: Target, clock: Clock | None = None) -> None:
        self.target = target
        self.clock = clock or SystemClock()
        # A server keeps its line for good: the line has connections in every loop.
        self._lines: dict[Address, SharedConnections] = {}
        self._slots: list[SharedConnections | None] = [None] * SLOTS
        self._primaries: list[SharedConnections] = []
        self._replicas: dict[SharedConnections, list[SharedConnections]] = {}
        self._turn = itertools.count()
        limit_s = len(target.addresses) * (target.connect_timeout_s + target.read_timeout_s) + 1
        self._refresh = Refresh(self._ask_for_map, self.clock, every_s=EVERY_S, limit_s=limit_s)
        self._down_since_s = self._down_seen_s = float("-inf")
        self._counts = dict.fromkeys(COUNTS, 0)
        if target.read_replicas:
            self.ask, self.aask = self._read, self._aread  # type: ignore[method-assign]

    # ---- one request

    def ask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        slot = -1 if key is None else slot_of(key)
        line = self._slots[slot]
        if line is None:
            return self._one(packed, slot, safety)
        try:
            reply = line.ask(packed, key, safety)
        except EngineUnavailable as error:
            return self._one(packed, slot, safety, line, error)
        if reply.__class__ is ErrorReply and reply.code in FOLLOWED:
            return self._one(packed, slot, safety, line, [reply])
        return reply

    async def aask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        slot = -1 if key is None else slot_of(key)
        line = self._slots[slot]
        if line is None:
            return await self._aone(packed, slot, safety)
        try:
            reply = await line.aask(packed, key, safety)
        except EngineUnavailable as error:
            return await self._aone(packed, slot, safety, line, error)
        if reply.__class__ is ErrorReply and reply.code in FOLLOWED:
            return await self._aone(packed, slot, safety, line, [reply])
        return reply

    def _settled_one(
        self,
        packed: bytes,
        slot: int,
        safety: int,
        line: SharedConnections | None = None,
        outcome: Outcome | None = None,
    ) -> Flow[Reply]:
        todo = _Todo(0, packed, slot)
        known = [] if line is None or outcome is None else [(_Batch(line, [todo]), outcome)]
        replies = yield from self._settled([todo], safety, known)
        return replies[0]

    _one, _aone = twins(_settled_one)

    # ---- several

    def _ask_each(
        self, requests: Sequence[tuple[bytes, bytes]], safety: int = ONCE
    ) -> Flow[list[Reply]]:
        todo = [_Todo(at, packed, slot_of(key)) for at, (packed, key) in enumerate(requests)]
        if safety == READ and self.target.read_replicas:
            yield from self._refresh.first()
            todo = list(map(self._from_replica, todo))
        return (yield from self._settled(todo, safety))

    ask_each, aask_each = twins(_ask_each)

    def server_of(self, key: bytes) -> str:
        line = self._slots[slot_of(key)]
        return line.name if line else ""

    # ---- following

    def _settled(
        self, todo: list[_Todo], safety: int, known: Sequence[tuple[_Batch, Outcome]] = ()
    ) -> Flow[list[Reply]]:
        """The replies to all requests, in their order.

        ``known`` are outcomes that the caller has already. Raises EngineUnavailable, and whatever a
        line raises.
        """
        replies: list[Reply] = [None] * len(todo)
        until_s = self.clock.monotonic_s() + WAIT_S
        asked = self._refresh.number
        for _ in range(ROUNDS):
            if not known:
                yield from self._refresh.first()
                batches = self._batches(todo)
                outcomes = yield call(self, "send", batches, safety)
                known = list(zip(batches, outcomes, strict=True))
            todo, lost, waits, moved = self._sorted(known, replies)
            known = ()
            if lost or moved:
                yield from self._look(asked)
                asked = self._refresh.number
            todo += self._elsewhere(lost, safety)
            if not todo:
                return replies
            if waits:
                self._check_patience(waits[0], until_s)
                yield Pause(PAUSE_S)
        raise ConnectionFailed("the cluster sent a request from server to server, in circles")

    def _batches(self, todo: list[_Todo]) -> list[_Batch]:
        found: dict[SharedConnections, _Batch] = {}
        for each in todo:
            line = each.line or self._slots[each.slot]
            if line is None:
                raise ConnectionFailed(f"no server of the cluster has slot {each.slot}")
            batch = found.get(line)
            if batch is None:
                batch = found[line] = _Batch(line, [])
            batch.todo.append(each)
        return list(found.values())

    def _sorted(self, known: Sequence[tuple[_Batch, Outcome]], replies: list[Reply]) -> _Round:
        """Puts replies into their places; returns what becomes of the other requests."""
        left = _Round([], [], [], False)
        for batch, outcome in known:
            if isinstance(outcome, EngineUnavailable):
                of_replica = [each for each in batch.todo if each.prefix is READONLY]
                left.todo.extend(map(self._from_primary, of_replica))
                rest = [each for each in batch.todo if each.prefix is not READONLY]
                left.lost.extend([(batch._replace(todo=rest), outcome)] if rest else [])
                continue
            for each, reply in zip(batch.todo, outcome, strict=True):
                if not isinstance(reply, ErrorReply) or reply.code not in NOT_IN_STEP:
                    replies[each.number] = reply
                elif each.prefix is READONLY:
                    left.todo.append(self._from_primary(each))
                elif reply.code not in FOLLOWED:
                    replies[each.number] = reply
                else:
                    left.todo.append(self._redirected(each, reply, batch.line))
                    left.waits.extend([reply] if reply.code in WAITED_FOR else [])
                    left = left._replace(moved=left.moved or reply.code in MAP_IS_OLD)
        return left

    def _redirected(self, each: _Todo, reply: ErrorReply, said_by: SharedConnections) -> _Todo:
        if reply.code == "TRYAGAIN":  # that server may have both keys in a moment
            self._counts["waits"] += 1
            return each
        if reply.code == "CLUSTERDOWN":  # another server may have the slot in a moment
            self._counts["waits"] += 1
            return each._replace(line=None, prefix=b"")
        _, slot, place = str(reply).split(" ")[:3]
        host, _, port = place.rpartition(":")
        line = self._line_to(host, int(port), said_by.address)
        if reply.code == "ASK":
            self._counts["asks"] += 1
            return each._replace(line=line, prefix=ASKING)
        self._counts["moves"] += 1
        self._slots[int(slot)] = line
        return each._replace(line=line, prefix=b"")

    def _look(self, asked: int) -> Flow[None]:
        """Asks for the map, unless it is newer than ``asked``. If nobody answers, the map stays."""
        with contextlib.suppress(EngineUnavailable):
            yield from self._refresh.after(asked)

    def _elsewhere(
        self, lost: Sequence[tuple[_Batch, EngineUnavailable]], safety: int
    ) -> list[_Todo]:
        """The requests that got no answer, to be sent to the servers that have their slots by now.

        Raises the error of a request that must not be sent again, or has no other server.
        """
        todo = []
        for batch, error in lost:
            for each in batch.todo:
                if self._slots[each.slot] is batch.line or (safety == ONCE and error.uncertain):
                    raise error
                todo.append(each._replace(line=None, prefix=b""))
        return todo

    def _check_patience(self, reply: ErrorReply, until_s: float) -> None:
        """Raises if this request, or the requests before it, waited for long enough."""
        now_s = self.clock.monotonic_s()
        if reply.code == "CLUSTERDOWN":
            if now_s - self._down_seen_s > WAIT_S:  # another outage
                self._down_since_s = now_s
            self._down_seen_s = now_s
            until_s = min(until_s, self._down_since_s + WAIT_S)
        if now_s >= until_s:
            raise error_of(reply)

    # ---- sending

    def send(self, batches: Sequence[_Batch], safety: int) -> list[Outcome]:
        """What each server replied, or why it did not. Asks one server after the other."""
        outcomes: list[Outcome] = []
        for batch in batches:
            packed, count = _written(batch)
            try:
                outcomes.append(_answers(batch, batch.line.ask_many(packed, count, safety)))
            except EngineUnavailable as error:
                outcomes.append(error)
        return outcomes

    async def asend(self, batches: Sequence[_Batch], safety: int) -> list[Outcome]:
        """:meth:`send`, which asks all servers at once."""
        if len(batches) == 1:
            return [await self._asend_one(batches[0], safety)]
        tasks = [asyncio.ensure_future(self._asend_one(each, safety)) for each in batches]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _asend_one(self, batch: _Batch, safety: int) -> Outcome:
        packed, count = _written(batch)
        try:
            return _answers(batch, await batch.line.aask_many(packed, count, safety))
        except EngineUnavailable as error:
            return error

    # ---- replicas

    def _read(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        reads = safety == READ and key is not None
        line = self._replica_of(slot_of(key)) if reads else None  # type: ignore[arg-type]
        if line is not None:
            try:
                # A connection serves reads of a replica once it has said READONLY.
                reply = line.ask_many(READONLY + packed, 2, READ)[1]
                if not _not_in_step(reply):
                    return reply
            except EngineUnavailable:
                pass
            self._counts["replica_fallbacks"] += 1
        return Cluster.ask(self, packed, key, safety)

    async def _aread(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        reads = safety == READ and key is not None
        line = self._replica_of(slot_of(key)) if reads else None  # type: ignore[arg-type]
        if line is not None:
            try:
                reply = (await line.aask_many(READONLY + packed, 2, READ))[1]
                if not _not_in_step(reply):
                    return reply
            except EngineUnavailable:
                pass
            self._counts["replica_fallbacks"] += 1
        return await Cluster.aask(self, packed, key, safety)

    def _from_replica(self, each: _Todo) -> _Todo:
        line = self._replica_of(each.slot)
        return each if line is None else each._replace(line=line, prefix=READONLY)

    def _from_primary(self, each: _Todo) -> _Todo:
        self._counts["replica_fallbacks"] += 1
        return each._replace(line=None, prefix=b"")

    def _replica_of(self, slot: int) -> SharedConnections | None:
        primary = self._slots[slot]
        replicas = self._replicas.get(primary) if primary is not None else None
        if not replicas:
            return None
        self._counts["replica_reads"] += 1
        return replicas[next(self._turn) % len(replicas)]

    # ---- the map

    def _ask_for_map(self) -> Flow[None]:
        """Asks one server after the other. Servers that failed lately are asked last."""
        known, first = self._primaries, next(self._turn) % max(len(self._primaries), 1)
        seeds = [self._line_to(each.host, each.port) for each in self.target.addresses]
        # Primaries first, because there are connections to them already.
        lines = dict.fromkeys([*known[first:], *known[:first], *self._lines.values(), *seeds])
        failures: list[EngineError] = []
        for line in sorted(lines, key=lambda each: not each.breaker.quiet):
            try:
                reply = yield call(line, "ask", SLOT_MAP, None, SAFE)
            except EngineError as error:
                failures.append(error)
                continue
            if isinstance(reply, ErrorReply):
                failures.append(error_of(reply))
            elif reply:
                self._put(reply, line.address)
                return
            else:
                failures.append(ConnectionFailed(f"{line.name} knows of no slots"))
        settings = [each for each in failures if isinstance(each, EngineConfiguration)]
        said = "; ".join(map(str, failures))
        raise settings[0] if settings else ConnectionFailed(f"no node of the cluster: {said}")

    def _put(self, reply: list[Any], said_by: Address) -> None:
        """Makes the reply to CLUSTER SLOTS the map."""
        slots: list[SharedConnections | None] = [None] * SLOTS
        replicas: dict[SharedConnections, list[SharedConnections]] = {}
        for first, last, *places in sorted(reply, key=lambda each: int(each[0])):
            # "?" stands for a node that does not know its own address.
            lines = [
                self._line_to(place[0], place[1], said_by) for place in places if place[0] != b"?"
            ]
            if lines:
                slots[first : last + 1] = [lines[0]] * (last + 1 - first)
                replicas.setdefault(lines[0], lines[1:])
        gone = set(self._lines.values()) - set(replicas).union(*replicas.values())
        self._slots, self._replicas, self._primaries = slots, replicas, list(replicas)
        self._counts["maps"] += 1
        for line in gone:
            line.close()

    def _line_to(
        self, host: bytes | str | None, port: int, said_by: Address | None = None
    ) -> SharedConnections:
        name = host.decode() if isinstance(host, bytes) else host or ""
        if not name and said_by is not None:  # no name means: the server that was asked
            name = said_by.host
        if said_by is not None and self.target.address_remap is not None:
            name, port = self.target.address_remap((name, port))
        address = Address(host=name, port=port)
        line = self._lines.get(address)
        return line or self._lines.setdefault(address, SharedConnections(self.target, address))

    # ---- the rest of the contract

    def _all_primaries(self) -> Flow[list[ServerConnection]]:
        """In the order of their slots, which a failover leaves as it is."""
        yield from self._refresh.first()
        return list(self._primaries)

    primaries, aprimaries = twins(_all_primaries)

    def told(self, reply: ErrorReply) -> None:
        """Nothing to do: replies that tell of a wrong map are followed, and never raised."""

    def client(self) -> Any:
        return clients.client(self.target)

    def aclient(self) -> Any:
        return clients.aclient(self.target)

    def close(self) -> None:
        for line in list(self._lines.values()):
            line.close()

    def stats(self) -> dict[str, int]:
        total = {"servers": len(self._lines), **self._counts}
        for line in list(self._lines.values()):
            for name, number in line.stats().items():
                total[name] = total.get(name, 0) + number
        return total


def _written(batch: _Batch) -> tuple[bytes, int]:
    """All commands as one write, and how many there are."""
    todo = batch.todo
    prefixed = sum([1 for each in todo if each.prefix])
    return b"".join([each.prefix + each.packed for each in todo]), len(todo) + prefixed


def _answers(batch: _Batch, replies: list[Reply]) -> list[Reply]:
    """The replies without those to prefixes."""
    if len(replies) == len(batch.todo):
        return replies
    said, answers = iter(replies), []
    for each in batch.todo:
        if each.prefix:
            next(said)
        answers.append(next(said))
    return answers


def _not_in_step(reply: Reply) -> bool:
    return isinstance(reply, ErrorReply) and reply.code in NOT_IN_STEP
