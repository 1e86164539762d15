"""A short round over Redis, and proof that its judge finds what is planted."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.redis.servers import Server, running
from tests.torture import values
from tests.torture.over_redis.plan import KEYS, RedisPlan
from tests.torture.over_redis.rig import OPTIONS
from tests.torture.over_redis.work import Owner
from tests.torture.over_redis.worker import open_cache
from tests.torture.values import Violation

SECONDS = 8.0
AT = 3


@pytest.mark.parametrize("over", ["redis", "sentinel"])
def test_a_round_finds_no_fault(over: str) -> None:
    # In a process of its own: what pytest has imported is not fit for gevent's patches.
    words = ["--over", over, "--seconds", str(SECONDS), "--workers", "4"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"operations over Redis [1-9]", done.stdout)


@pytest.fixture
def server(redis_directory: Path) -> Iterator[Server]:
    with running(redis_directory) as server:
        yield server


@pytest.fixture
def owner(server: Server, tmp_path: Path) -> Owner:
    plan = RedisPlan(tmp_path, f"unix://{server.path}", OPTIONS, workers=1, seed=1)
    return Owner(plan, open_cache(plan), 0, random.Random(1))


def write(owner: Owner, sequence: int, key: str | None = None) -> None:
    name = owner.name(AT)
    value = values.make(key or name, AT // KEYS, sequence, 300)
    owner.cache.set(name, value)


def acknowledge(owner: Owner, writes: int) -> None:
    for _ in range(writes):
        _, sequence = owner.begin(AT)
        write(owner, sequence)
        owner.claims.stored(AT, sequence, hold=True)


def read(owner: Owner) -> None:
    owner.read([AT], lambda names: {names[0]: owner.cache.get(names[0])})


def undelete(owner: Owner) -> None:
    owner.claims.gone(AT, owner.begin(AT)[1])
    write(owner, 3)


PLANTED: dict[str, Callable[[Owner], Any]] = {
    "foreign": lambda owner: write(owner, 3, key="another"),
    "none of our values": lambda owner: owner.cache.set(owner.name(AT), b"7"),
    "resurrected": lambda owner: write(owner, 2),
    "deleted or replaced": undelete,
    "from the future": lambda owner: write(owner, 4),
    "lost": lambda owner: owner.cache.delete(owner.name(AT)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_judge_finds(name: str, owner: Owner) -> None:
    acknowledge(owner, 3)
    read(owner)
    PLANTED[name](owner)
    with pytest.raises(Violation, match=name):
        read(owner)


@pytest.mark.parametrize("name", ["lost", "resurrected"])
def test_what_a_new_server_lost_is_no_fault(name: str, owner: Owner) -> None:
    acknowledge(owner, 3)
    PLANTED[name](owner)
    owner.ledger.epoch[0] += 2
    read(owner)


def test_a_reply_to_another_question_is_found(owner: Owner) -> None:
    with pytest.raises(Violation, match="asked for"):
        owner.read([AT], lambda names: {"another": b""})


def test_a_counter_that_went_back_is_found(owner: Owner) -> None:
    for _ in range(3):
        owner.incr()
    owner.cache.set(f"count:0:{owner.ledger.counter[0]}", 0)
    with pytest.raises(Violation, match="not between"):
        owner.incr()
