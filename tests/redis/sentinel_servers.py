"""Three sentinels with a primary and a replica, on free loopback ports.

They are told of each other in their files, so that nobody waits for their gossip.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nearcache.engines.redis.target.target import Address
from nearcache.lab.servers import free_port
from tests.redis.servers import Server, replicated, wait_for

SERVICE = "mine"
DOWN_AFTER_MS = 60_000
"""So long that nobody is thought dead on a host that stands still now and then."""
FAILOVER_S = 300
"""A failover that was asked for, and asked for again, is had by then."""


@dataclass
class Sentinels:
    """``servers`` are the primary and its replica at the start. Not mended after a failover:

    a sentinel looks at its replicas every ten seconds, and a new trio starts in a tenth of one.
    """

    servers: list[Server]
    sentinels: list[Server] = field(default_factory=list)
    password: str = ""

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(Address(host="127.0.0.1", port=each.port) for each in self.sentinels)

    def ask(self, sentinel: Server, *words: Any) -> Any:
        return sentinel.ask(*words, password=self.password or None)

    def primary(self) -> Server:
        """Whom all sentinels name."""
        names = {
            tuple(self.ask(each, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE))
            for each in self.sentinels
            if not each.dead
        }
        assert len(names) == 1, names
        port = int(names.pop()[1])
        return next(each for each in self.servers if each.port == port)

    def replica(self) -> Server:
        primary = self.primary()
        return next(each for each in self.servers if each is not primary)

    def fail_over(self) -> None:
        """Promotes the replica, with everybody alive; returns when all sentinels name it."""
        before = self.primary()
        wait_for(lambda: self._asked_until(before), "failover", FAILOVER_S)

    def watch_closely(self) -> None:
        """From now on a primary that is killed is replaced soon."""
        for each in self.sentinels:
            self.ask(each, "SENTINEL", "SET", SERVICE, "down-after-milliseconds", 500)

    def wait_for_another(self, before: Server) -> None:
        wait_for(lambda: self._agreed(before), "failover", 60)

    def _asked_until(self, before: Server) -> bool:
        """True if another is the primary; else asks, unless a failover is under way.

        A sentinel refuses to begin one while the replica answers late, and gives one up that takes
        longer than ``failover-timeout``: either is dropped, and nobody else asks again.
        """
        first = self.sentinels[0]
        known = flat_dict(self.ask(first, "SENTINEL", "MASTER", SERVICE))
        if known["flags"] == "master" and int(known["port"]) == before.port:
            self.ask(first, "SENTINEL", "FAILOVER", SERVICE)
        return self._agreed(before)

    def _agreed(self, before: Server | None = None) -> bool:
        """True if all sentinels name one primary, and not that one."""
        try:
            return self.primary() is not before
        except AssertionError:
            return False

    def healthy(self) -> bool:
        return self._agreed() and all(map(self._sees_all_well, self.sentinels))

    def _sees_all_well(self, sentinel: Server) -> bool:
        seen = [
            flat_dict(self.ask(sentinel, "SENTINEL", "MASTER", SERVICE)),
            *map(flat_dict, self.ask(sentinel, "SENTINEL", "REPLICAS", SERVICE)),
        ]
        return [each["flags"] for each in seen] == ["master", "slave"]


def flat_dict(reply: list[str]) -> dict[str, str]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


@contextlib.contextmanager
def running_sentinels(directory: Path, *, password: str = "", **fields: Any) -> Iterator[Sentinels]:
    with replicated(directory, **fields) as servers, contextlib.ExitStack() as stack:
        made = Sentinels(servers, password=password)
        ports = [free_port() for _ in range(3)]
        ids = [secrets.token_hex(20) for _ in range(3)]
        for port in ports:
            config = directory / f"sentinel-{port}.conf"
            config.write_text(_config(servers, ports, ids, port, password))
            sentinel = Server(directory, ("--sentinel",), port=port, config=config, **fields)
            made.sentinels.append(sentinel)
            sentinel.start()
            stack.callback(sentinel.kill)
        for sentinel in made.sentinels:
            sentinel.wait_ready(password=password or None)
        wait_for(made.healthy, "the sentinels agree")
        yield made


def _config(
    servers: list[Server], ports: list[int], ids: list[str], mine: int, password: str
) -> str:
    lines = [
        f"sentinel myid {ids[ports.index(mine)]}",
        f"sentinel monitor {SERVICE} 127.0.0.1 {servers[0].port} 2",
        f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
        f"sentinel failover-timeout {SERVICE} 4000",
        f"sentinel known-replica {SERVICE} 127.0.0.1 {servers[1].port}",
    ]
    lines += [
        f"sentinel known-sentinel {SERVICE} 127.0.0.1 {port} {name}"
        for port, name in zip(ports, ids, strict=True)
        if port != mine
    ]
    if password:
        lines += [f"requirepass {password}", f"sentinel sentinel-pass {password}"]
    return "\n".join(lines) + "\n"
