"""A signal handler raises, wherever the event loop is in here: no reply crosses, nobody hangs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from nearcache.engines.redis.connection import async_connection, async_wire
from nearcache.engines.redis.connection.async_connection import AsyncConnection
from nearcache.engines.redis.contract import ONCE, READ
from nearcache.engines.redis.protocol.resp import pack
from nearcache.errors import EngineUnavailable
from tests.interrupted import Interrupt
from tests.redis.async_connections import kill, line_of
from tests.redis.servers import Server

HANGS_S = 20.0
"""Several of the line's own time limits."""


class Late(Exception): ...


class Stop(BaseException): ...


class Callers:
    """Tasks that ask at once, are interrupted once, and go on."""

    def __init__(self, line: AsyncConnection, kind: type[BaseException]) -> None:
        self.faults: list[object] = []
        self.asked = self.acknowledged = 0
        self._line = line
        self._kind = kind

    async def all(self, interrupt: Interrupt, state: str, server: Server) -> None:
        if state != "connecting":
            await self._answered(b"warm")
        steps = [*map(self._echo, (b"a", b"b", b"c")), self._incr(), self._incr()]
        if state == "lost":
            steps.insert(0, self._blocked())
        with interrupt.under_way():
            first = [asyncio.create_task(each) for each in map(self._safely, steps)]
            await asyncio.wait(first, timeout=0.02)
            if state == "lost":
                kill(server)
                await asyncio.wait(first, timeout=0.02)
        later = [asyncio.create_task(self._safely(self._echo(b"%d" % n))) for n in range(3)]
        _, hanging = await asyncio.wait([*first, *later], timeout=HANGS_S)
        self.faults += hanging
        await asyncio.wait_for(self._answered(b"last"), HANGS_S)

    async def _safely(self, step: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(EngineUnavailable, self._kind):
            await step

    async def _answered(self, word: bytes) -> None:
        """Asks until it is answered: a server that is short of CPU can be too late."""
        while True:
            with contextlib.suppress(EngineUnavailable):
                return await self._echo(word)

    async def _echo(self, word: bytes) -> None:
        reply = await self._line.ask(pack(b"ECHO", word), None, READ)
        if reply != word:
            self.faults.append((word, reply))

    async def _blocked(self) -> None:
        await self._line.ask(pack(b"BLPOP", b"nothing", b"9"), None, ONCE)

    async def _incr(self) -> None:
        self.asked += 1
        await self._line.ask(pack(b"INCR", b"n"), None, ONCE)
        self.acknowledged += 1


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <coroutine")
@pytest.mark.parametrize(
    ("kind", "state"),
    [(Late, "connecting"), (Stop, "connecting"), (Late, "connected"), (Stop, "lost")],
)
def test_at_every_place(
    kind: type[BaseException], state: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_connection, "LOOK_S", 0.05)
    monkeypatch.setattr(async_wire, "LOOK_S", 0.05)
    monkeypatch.setattr(logging.getLogger("asyncio"), "disabled", True)  # it tells of each
    with server.client() as client:
        for number in itertools.count(1):
            interrupt = Interrupt(number, kind(), {async_connection.__file__, async_wire.__file__})
            line = line_of(server, read_timeout_s=0.3, connect_timeout_s=0.3)
            callers = Callers(line, kind)
            client.delete("n")
            asyncio.run(callers.all(interrupt, state, server))
            assert not callers.faults, interrupt.where
            count = int(client.get("n") or 0)
            assert callers.acknowledged <= count <= callers.asked, interrupt.where
            if not interrupt.where:
                break
    assert number > 50
