"""The rig of a round over Redis: workers are killed and stopped, and the server has its troubles.

    cut       all connections are cut by the server (CLIENT KILL)
    freeze    the server is stopped for a while (SIGSTOP), and goes on
    replace   the server is killed and started empty; or, with Sentinels, its replica is promoted

Only the last loses what was acknowledged: it is a new epoch of the plan's ledger.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import redis

from tests.redis.sentinel_servers import FAILOVER_S, SERVICE, Sentinels, running_sentinels
from tests.redis.servers import Server, in_step, running, wait_for
from tests.torture.over_redis import worker
from tests.torture.over_redis.plan import RedisPlan
from tests.torture.rig import Rig

OPTIONS = {"read_timeout": 0.5, "connect_timeout": 0.5, "breaker_pause": 0.1}
CUT_S = (0.2, 1.5)
FREEZE_S = (3.0, 8.0)
FROZEN_S = (0.05, 2.0)
REPLACE_S = (6.0, 12.0)


class RedisRig(Rig):
    """A rig whose workers ask one server, which is replaced by ``replace``."""

    pause_s = (0.05, 0.5)
    crew = worker

    def __init__(self, plan: RedisPlan, servers: list[Server], replace: Callable[[], None]) -> None:
        super().__init__(plan)
        self.servers, self.replaces = servers, replace
        self.frozen: set[int] = set()

    def torture(self, until_s: float, progress: Callable[[str], None]) -> None:
        for spread, trouble in (
            (CUT_S, self.cut),
            (FREEZE_S, self.freeze),
            (REPLACE_S, self.replace),
        ):
            self.at(self.random.uniform(*spread), partial(self.trouble, spread, trouble))
        try:
            super().torture(until_s, progress)
        finally:
            for place in list(self.frozen):
                self.thaw(place)

    def trouble(self, spread: tuple[float, float], act: Callable[[], None]) -> None:
        act()
        self.counts[act.__name__] += 1
        self.at(self.random.uniform(*spread), partial(self.trouble, spread, act))

    def cut(self) -> None:
        for place, server in enumerate(self.servers):
            if place not in self.frozen:
                with contextlib.suppress(redis.RedisError):
                    server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def freeze(self) -> None:
        place = self.random.randrange(len(self.servers))
        if place not in self.frozen:
            self.frozen.add(place)
            self.servers[place].pause()
            self.at(self.random.uniform(*FROZEN_S), partial(self.thaw, place))

    def thaw(self, place: int) -> None:
        if place in self.frozen:
            self.frozen.discard(place)
            self.servers[place].resume()

    def replace(self) -> None:
        for place in list(self.frozen):
            self.thaw(place)
        epoch = self.plan.ledger.epoch
        epoch[0] += 1
        self.replaces()
        epoch[0] += 1


@contextlib.contextmanager
def restarted(directory: Path, workers: int, seed: int) -> Iterator[RedisRig]:
    """One server, which is killed and comes back empty."""
    with running(directory) as server:

        def restart() -> None:
            server.kill()
            server.start()
            server.wait_ready()

        plan = RedisPlan(directory, f"unix://{server.path}", OPTIONS, workers, seed)
        yield RedisRig(plan, [server], restart)


@contextlib.contextmanager
def failed_over(directory: Path, workers: int, seed: int) -> Iterator[RedisRig]:
    """A primary and a replica that change places."""
    with running_sentinels(directory) as sentinels:
        at = ",".join(f"127.0.0.1:{each.port}" for each in sentinels.sentinels)
        plan = RedisPlan(directory, f"redis+sentinel://{at}/{SERVICE}/0", OPTIONS, workers, seed)
        yield RedisRig(plan, sentinels.servers, partial(promote, sentinels))


def promote(sentinels: Sentinels) -> None:
    """Unless the sentinels have not yet seen the replica come back from the last time.

    Until the old primary has become a replica it takes writes, acknowledges and loses them.
    """
    if sentinels.healthy():
        before = sentinels.primary()
        sentinels.fail_over()
        wait_for(
            lambda: before.ask("ROLE")[0] == "slave" and in_step(before),
            "the new replica",
            FAILOVER_S,
        )
