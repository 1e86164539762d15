"""The primary of a service, wherever the sentinels say it is.

A request goes to the line of the server that leads now. The sentinels, asked one after the other,
name that server. The server itself confirms it (``ROLE``): a server that led before, and does not
know yet that it was replaced, gets no writes. The sentinels are asked

    by the first request
    before every connect     a failover closes the old connection
    after READONLY           the server did nothing, so the request goes to the new primary
    after a failure          but not for every request of an outage: see :mod:`.topology_refresh`

The rule of :mod:`~nearcache.engines.redis.contract` says which requests may be sent again. No
request waits for a failover: until the sentinels agree on a new primary, requests fail at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from nearcache.base.clock import Clock
from nearcache.base.sans_io import Flow, call, twins
from nearcache.engines.redis.contract import ONCE, SAFE, Reply, ServerConnection
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
    ServerMisconfigured,
    ServerNotReady,
)

EVERY_S = 0.1
"""The shortest time between two rounds of questions to the sentinels."""
REPLICAS_EVERY_S = 5.0
TRIES = 3
"""How many primaries one request is sent to, one after the other."""
ROLE = pack(b"ROLE")


class Elsewhere(EngineUnavailable):
    """The sentinels name another server by now. Nothing was sent to the old one."""


class SentinelPrimary:
    """:class:`~nearcache.engines.redis.contract.ServerConnection` to the server that leads. Seconds
    are float."""

    engine = None  # the flows here ask lines

    def __init__(self, target: Target, clock: Clock) -> None:
        self.name = f"{target.sentinel_service} of {', '.join(map(str, target.addresses))}"
        self._target = target
        self.clock = clock
        self._service = target.sentinel_service.encode()
        theirs = sentinel_target(target)
        self._sentinels = [SharedConnections(theirs, address) for address in target.addresses]
        # An open circuit must not keep us from asking for the role: the answer may close it.
        self._probe_target = replace(target, breaker_failures=0)
        # A server keeps its line for good: the line has connections in every loop.
        self._lines: dict[Address, SharedConnections] = {}
        self._probes: dict[Address, SharedConnections] = {}
        self._replicas_known: dict[Address, SharedConnections] = {}
        self._line: SharedConnections | None = None
        self._replica_lines: list[SharedConnections] = []
        self._confirmed: tuple[Address | None, float] = (None, 0.0)
        limit_s = len(self._sentinels) * (target.connect_timeout_s + target.read_timeout_s) + 1
        self._refresh = Refresh(self._locate, clock, every_s=EVERY_S, limit_s=limit_s)
        self._replica_refresh = Refresh(
            self._locate, clock, every_s=REPLICAS_EVERY_S, limit_s=limit_s
        )
        self._counts = {"sentinel_asked": 0, "failovers": 0}

    # ---- asking

    def ask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        line = self._line
        if line is None:
            return self._followed("ask", packed, key, safety)
        try:
            reply = line.ask(packed, key, safety)
        except EngineUnavailable as error:
            return self._followed("ask", packed, key, safety, line, error)
        if reply.__class__ is ErrorReply and reply.code == "READONLY":
            return self._followed("ask", packed, key, safety, line, reply)
        return reply

    async def aask(self, packed: bytes, key: bytes | None = None, safety: int = ONCE) -> Reply:
        line = self._line
        if line is None:
            return await self._afollowed("ask", packed, key, safety)
        try:
            reply = await line.aask(packed, key, safety)
        except EngineUnavailable as error:
            return await self._afollowed("ask", packed, key, safety, line, error)
        if reply.__class__ is ErrorReply and reply.code == "READONLY":
            return await self._afollowed("ask", packed, key, safety, line, reply)
        return reply

    def _ask_many(self, packed: bytes, count: int, safety: int = ONCE) -> Flow[list[Reply]]:
        replies: list[Reply] = yield from self._follow("ask_many", packed, count, safety)
        return replies

    ask_many, aask_many = twins(_ask_many)

    def _follow(
        self,
        method: str,
        packed: bytes,
        what: Any,
        safety: int,
        line: SharedConnections | None = None,
        failure: Any = None,
    ) -> Flow[Any]:
        """The reply of the server that leads.

        ``failure`` is the error, or the error reply, that the caller had from ``line``.
        """
        for _ in range(TRIES):
            if failure is not None:
                yield from self._leave(line, failure, safety)
            line = yield from self._leader()
            try:
                reply = yield call(line, method, packed, what, safety)
            except EngineUnavailable as error:
                failure = error
            else:
                failure = _read_only(reply, safety)
                if failure is None:
                    return reply
        raise error_of(failure) if isinstance(failure, ErrorReply) else failure

    _followed, _afollowed = twins(_follow)

    def _leave(self, line: SharedConnections | None, failure: Any, safety: int) -> Flow[None]:
        """Returns if there is another primary by now, and the request may be sent to it."""
        if not isinstance(failure, ErrorReply):
            if safety == ONCE and failure.uncertain:
                raise failure
        elif line is not None:
            line.close()  # so the server is asked for its role again before it is used
        # No `raise ... from`: either error may have been raised while the other was handled.
        refused: Any = failure
        if self._line is line:
            try:
                yield from self._refresh.after(self._refresh.number)
            except EngineUnavailable as error:
                refused = error if isinstance(failure, ErrorReply) else failure
        if self._line is line:
            raise error_of(refused) if isinstance(refused, ErrorReply) else refused

    def _leader(self) -> Flow[SharedConnections]:
        if self._line is None:
            yield from self._refresh.first()
        if self._line is None:
            raise ConnectionFailed(f"no sentinel has said yet where {self.name} is")
        return self._line

    # ---- finding

    def _locate(self) -> Flow[None]:
        """Puts the line of the primary in place. Raises EngineError."""
        address = yield from self._named()
        self._lead(address)

    def _lead(self, address: Address) -> None:
        line = self._lines.get(address)
        if line is None:
            line = self._lines.setdefault(address, self._line_to(address))
        before, self._line = self._line, line
        if before is not None and before is not line:
            self._counts["failovers"] += 1
            before.close()

    def _line_to(self, address: Address) -> SharedConnections:
        place, aplace = partial(self._place, address), partial(self._aplace, address)
        return SharedConnections(self._target, address, resolve=place, aresolve=aplace)

    def _still(self, address: Address) -> Flow[Address]:
        """The address, if the primary is there still. Raises Elsewhere, and what asking raises."""
        known, until_s = self._confirmed
        if known == address and self.clock.monotonic_s() < until_s:
            return address
        now = yield from self._named()
        if now != address:
            self._lead(now)
            raise Elsewhere(
                f"{address} no longer leads {self._target.sentinel_service}: {now} does"
            )
        return address

    _place, _aplace = twins(_still)

    def _named(self) -> Flow[Address]:
        """The address that a sentinel names, of a server that says itself that it leads."""
        self._counts["sentinel_asked"] += 1
        unheard: list[EngineError] = []
        refused: dict[Address, EngineError] = {}
        for sentinel in list(self._sentinels):
            try:
                address = yield from self._named_by(sentinel)
            except EngineError as error:
                unheard.append(error)
                continue
            try:
                if address not in refused:
                    yield from self._check_role(address)
                    self._trust(sentinel, address)
                    return address
            except EngineError as error:
                refused[address] = error
        raise self._nobody(unheard, list(refused.values()))

    def _trust(self, sentinel: SharedConnections, address: Address) -> None:
        self._confirmed = (address, self.clock.monotonic_s() + EVERY_S)
        # This sentinel is asked first from now on: the others may be cut off.
        self._sentinels = sorted(self._sentinels, key=lambda each: each is not sentinel)

    def _named_by(self, sentinel: SharedConnections) -> Flow[Address]:
        words = [pack(b"SENTINEL", b"MASTER", self._service)]
        if self._target.read_replicas:
            words.append(pack(b"SENTINEL", b"REPLICAS", self._service))
        replies = yield call(sentinel, "ask_many", b"".join(words), len(words), SAFE)
        if isinstance(replies[0], ErrorReply):
            if "no such master" in str(replies[0]).lower():
                raise ServerMisconfigured(
                    f"the sentinel {sentinel.name} knows no service"
                    f" {self._target.sentinel_service!r}: check LOCATION"
                )
            raise error_of(replies[0])
        state = _fields(replies[0])
        if {"s_down", "o_down"} & set(state.get("flags", "").split(",")):
            raise ServerNotReady(f"the sentinel {sentinel.name} knows no living primary")
        if len(replies) > 1 and not isinstance(replies[1], ErrorReply):
            self._note_replicas(map(_fields, replies[1]))
        return self._place_of(state)

    def _place_of(self, state: dict[str, str]) -> Address:
        host, port = state["ip"], int(state["port"])
        if self._target.address_remap is not None:
            host, port = self._target.address_remap((host, port))
        return Address(host=host, port=port)

    def _note_replicas(self, states: Any) -> None:
        usable = [each for each in states if not DOWN & set(each.get("flags", "").split(","))]
        self._replica_lines = [
            _kept(self._replicas_known, self._target, self._place_of(state)) for state in usable
        ]

    def _check_role(self, address: Address) -> Flow[None]:
        probe = _kept(self._probes, self._probe_target, address)
        try:
            role = yield call(probe, "ask", ROLE, None, SAFE)
        finally:
            probe.close_idle()  # other loops may be asking on connections of their own
        # An error reply (no right to ROLE) is let pass: a replica says READONLY to the first write.
        if not isinstance(role, ErrorReply) and role[0] != b"master":
            raise ServerNotReady(
                f"the sentinels name {address} as primary of {self._target.sentinel_service},"
                " which is a replica: a failover is under way"
            )

    def _nobody(self, unheard: list[EngineError], refused: list[EngineError]) -> EngineError:
        """The error that says most."""
        for kind in (EngineConfiguration, ServerNotReady):
            for each in [*refused, *unheard]:
                if isinstance(each, kind):
                    return each
        if refused:
            return refused[-1]
        said = "; ".join(map(str, unheard))
        error = ConnectionFailed(
            f"no sentinel of {self._target.sentinel_service} can be reached: {said}"
        )
        error.__cause__ = unheard[-1]
        return error

    # ---- the rest of the contract

    def replicas(self) -> Sequence[ServerConnection]:
        """Lines to the replicas that the sentinels named last."""
        return self._replica_lines

    def _look_again(self) -> Flow[None]:
        """Asks for the replicas anew, because one failed; every ``REPLICAS_EVERY_S`` at most."""
        with contextlib.suppress(EngineError):
            yield from self._replica_refresh.after(self._replica_refresh.number)

    look_again, alook_again = twins(_look_again)

    def close(self) -> None:
        for line in [*self._lines.values(), *self._sentinels, *self._replica_lines]:
            line.close()

    def stats(self) -> dict[str, int]:
        line = self._line
        return {**(line.stats() if line is not None else {}), **self._counts}


DOWN = {"s_down", "o_down", "disconnected"}


def sentinel_target(target: Target) -> Target:
    """How the sentinels themselves are reached."""
    kwargs = dict(target.sentinel_kwargs)
    return replace(
        target,
        kind="standalone",
        database=0,
        username=target.sentinel_username,
        password=target.sentinel_password,
        tls=bool(kwargs.pop("ssl", False)),
        connection_kwargs=tuple(sorted(kwargs.items())),
    )


def _read_only(reply: Any, safety: int) -> ErrorReply | None:
    """The READONLY among the replies, if there is one."""
    if not isinstance(reply, list):
        return reply if _is_read_only(reply) else None
    refused = [each for each in reply if _is_read_only(each)]
    if refused and safety == ONCE and len(refused) < len(reply):
        raise error_of(refused[0])  # the other commands were carried out
    return refused[0] if refused else None


def _is_read_only(reply: Any) -> bool:
    return isinstance(reply, ErrorReply) and reply.code == "READONLY"


def _kept(
    lines: dict[Address, SharedConnections], target: Target, address: Address
) -> SharedConnections:
    if address not in lines:
        lines.setdefault(address, SharedConnections(target, address))
    return lines[address]


def _fields(reply: Any) -> dict[str, str]:
    """A flat list of RESP2, or a map of RESP3, as a dict of text."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): value.decode() for name, value in pairs}
