"""Replies never cross, whatever happens to connections, tasks and the server.

Two loops in two threads, 120 tasks each, on one server. Meanwhile connections are killed,
tasks are cancelled at random moments, and the server stands still for longer than the read
timeout. Every reply names the request it belongs to.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from nearcache.engines.redis.connection.async_connection import AsyncConnection
from nearcache.engines.redis.contract import ONCE, READ, SAFE
from nearcache.engines.redis.protocol.resp import ErrorReply, pack
from nearcache.engines.redis.target.target import Address, Target
from nearcache.errors import EngineUnavailable
from tests.redis.servers import Server

TASKS = 120
READ_TIMEOUT_S = 0.25
KILLS = 40
STOPS = 3


class Crowd:
    """The tasks of one loop, and what they saw."""

    def __init__(self, number: int, line: AsyncConnection) -> None:
        self.number = number
        self.line = line
        self.random = random.Random(number)
        self.seen: collections.Counter[str] = collections.Counter()
        self.crossed: list[Any] = []
        self.over = threading.Event()

    def run(self) -> None:
        asyncio.run(self._all())

    async def _all(self) -> None:
        tasks = {asyncio.create_task(self._work(f"{self.number}-{each}")) for each in range(TASKS)}
        while not self.over.is_set():
            await asyncio.sleep(0.003)
            victim = self.random.choice(sorted(tasks, key=id))
            tasks.remove(victim)
            victim.cancel()
            name = f"{self.number}-again-{self.seen['cancelled']}"
            tasks.add(asyncio.create_task(self._work(name)))
            self.seen["cancelled"] += 1
        await asyncio.gather(*tasks)
        # Afterwards everything is as if nothing had been; but a slow host may time out.
        replies: list[Any] = []
        while not replies:
            with contextlib.suppress(EngineUnavailable):
                replies = await self._echoes(500)
        assert replies == [b"%d" % number for number in range(500)]

    async def _echoes(self, count: int) -> list[Any]:
        asked = [asyncio.ensure_future(self.line.ask(pack("ECHO", n))) for n in range(count)]
        try:
            return await asyncio.gather(*asked)
        finally:
            await asyncio.gather(*asked, return_exceptions=True)

    async def _work(self, name: str) -> None:
        steps = (self._echo, self._own_value, self._many, self._count)
        turn = 0
        while not self.over.is_set():
            turn += 1
            try:
                await self.random.choice(steps)(f"{name}-{turn}")
            except EngineUnavailable as error:
                self.seen[type(error).__name__] += 1
                await asyncio.sleep(0.002)

    async def _echo(self, token: str) -> None:
        self._check(await self.line.ask(pack("ECHO", token), None, READ), token.encode())

    async def _own_value(self, token: str) -> None:
        value = token.encode() * self.random.choice((1, 10, 2000))
        assert await self.line.ask(pack("SET", token, value, "EX", 60), None, SAFE) == b"OK"
        self._check(await self.line.ask(pack("GET", token), None, READ), value)

    async def _many(self, token: str) -> None:
        tokens = [f"{token}.{each}".encode() for each in range(self.random.randrange(1, 20))]
        packed = b"".join(pack("ECHO", each) for each in tokens)
        self._check(await self.line.ask_many(packed, len(tokens), READ), tokens)

    async def _count(self, token: str) -> None:
        self.seen["asked"] += 1
        reply = await self.line.ask(pack("INCR", "counter"), None, ONCE)
        assert not isinstance(reply, ErrorReply)
        self.seen["acknowledged"] += 1

    def _check(self, reply: Any, expected: Any) -> None:
        self.seen["checked"] += 1
        if reply != expected:
            self.crossed.append((reply, expected))


def test_no_reply_is_ever_another_s(server: Server) -> None:
    address = Address(path=server.path)
    target = Target(
        addresses=(address,),
        read_timeout_s=READ_TIMEOUT_S,
        breaker_failures=0,
        connection_kwargs=(("client_name", "crowd"),),
    )
    line = AsyncConnection(target, address)
    crowds = [Crowd(number, line) for number in range(2)]
    threads = [threading.Thread(target=crowd.run) for crowd in crowds]
    for thread in threads:
        thread.start()
    try:
        _disturb(server, lambda: _is_rough(crowds, line))
    finally:
        for crowd in crowds:
            crowd.over.set()
        for thread in threads:
            thread.join()

    seen = sum((crowd.seen for crowd in crowds), collections.Counter())
    assert [crowd.crossed for crowd in crowds] == [[], []]
    with server.client() as client:
        counted = int(client.get("counter"))
    assert seen["acknowledged"] <= counted <= seen["asked"], seen


def _is_rough(crowds: list[Crowd], line: AsyncConnection) -> bool:
    """Otherwise that nothing crossed says nothing."""
    wanted = {"cancelled": 100, "checked": 2000, "ReplyTimeout": 0, "ConnectionFailed": 0}
    return (
        all(sum(crowd.seen[name] for crowd in crowds) > most for name, most in wanted.items())
        and line.counts["async_connects"] > KILLS / 2
        and line.counts["async_retries"] > 0
    )


def _disturb(server: Server, is_enough: Callable[[], bool]) -> None:
    """So many kills at least, and as many more as a slow host needs."""
    killed, number, give_up_at = 0, 0, time.monotonic() + 90
    with server.client() as client:
        while number < KILLS or killed < KILLS or not is_enough():
            assert time.monotonic() < give_up_at, "it never became rough"
            for each in client.client_list():
                if each["name"] == "crowd":
                    killed += client.client_kill_filter(_id=each["id"])
            time.sleep(0.03)
            if number % (KILLS // STOPS) == 5:
                server.pause()
                time.sleep(READ_TIMEOUT_S * 1.6)
                server.resume()
            number += 1
