"""Among processes: one computes, whoever asks; and if it is killed, another one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

PRELUDE = """
import os, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from django.conf import settings
settings.configure(CACHES={"default": {
    "BACKEND": sys.argv[1], "LOCATION": sys.argv[2],
    "OPTIONS": {"size": "4MB"} if "Shared" in sys.argv[1] else {"read_timeout": 60},
}})
from django.core.cache import cache, caches
log = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def computed():
    os.write(log, b"computed\\n")
def ready():
    print("ready", flush=True)
    sys.stdin.readline()
def everybody(work, count=10):
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: work(), range(count)))
"""


class Party:
    """Processes that share one cache, and a file that says how often they computed."""

    def __init__(self, backend: str, location: str, log: Path) -> None:
        self._arguments = (f"nearcache.backends.{backend}", location, str(log))
        self._log = log
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(code), *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def together(self, code: str, count: int = 4) -> list[str]:
        """What each printed; all go on from ``ready()`` at once."""
        processes = [self.start(code) for _ in range(count)]
        for process in processes:
            self.wait_for(process, "ready")
        for process in processes:
            self.let_go(process)
        return [self.result(process) for process in processes]

    @staticmethod
    def wait_for(process: subprocess.Popen[str], line: str) -> None:
        assert process.stdout
        said = process.stdout.readline().strip()
        assert said == line, process.communicate()[1]

    @staticmethod
    def let_go(process: subprocess.Popen[str]) -> None:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()

    @staticmethod
    def result(process: subprocess.Popen[str]) -> str:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return out.strip()

    @property
    def computed(self) -> int:
        return self._log.read_text().count("computed") if self._log.exists() else 0

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture(params=["SharedMemoryCache", "RedisCache"])
def party(request: pytest.FixtureRequest, private_path: Path, tmp_path: Path) -> Iterator[Party]:
    location = str(private_path / "cache")
    if request.param == "RedisCache":
        location = f"unix://{request.getfixturevalue('redis_server').path}"
    made = Party(request.param, location, tmp_path / "computed.log")
    yield made
    made.end()


def test_four_processes_of_ten_threads_compute_once(party: Party) -> None:
    code = """
    def compute():
        computed()
        time.sleep(0.2)
        return {"value": 1}
    cache.get("k")
    ready()
    values = everybody(lambda: caches["default"].get_or_set("k", compute))
    counters = cache.counters
    print(values == [{"value": 1}] * 10, counters.flight_leads, counters.flight_timeouts)
    """
    said = [line.split() for line in party.together(code)]
    assert party.computed == 1
    assert [all_right for all_right, _, _ in said] == ["True"] * 4
    assert sorted(leads for _, leads, _ in said) == ["0", "0", "0", "1"]
    assert {timeouts for _, _, timeouts in said} == {"0"}


def test_tasks_of_two_processes_compute_once(party: Party) -> None:
    code = """
    import asyncio
    async def compute():
        computed()
        await asyncio.sleep(0.2)
        return "value"
    async def main():
        await cache.aget("k")
        ready()
        print(set(await asyncio.gather(*(cache.aget_or_set("k", compute) for _ in range(50)))))
        await cache.aclose()
    asyncio.run(main())
    """
    assert party.together(code, 2) == ["{'value'}"] * 2
    assert party.computed == 1


def test_forty_callers_recompute_early_once_and_the_new_value_is_stored(party: Party) -> None:
    seed = """
    from nearcache.base.clock import FakeClock
    clock = FakeClock(time.time_ns() // 1_000_000)
    type(cache._connections[cache._alias]).clock = clock
    # It takes 20 s: 27 times that before the end, and so at once, is early.
    cache.get_or_set("k", lambda: clock.advance_ms(20_000) or "old", 300, early=True)
    """
    code = """
    type(cache._connections[cache._alias]).chance = staticmethod(lambda: 1 - 1e-12)
    def compute():
        computed()
        give_up_at = time.monotonic() + 60
        while open(sys.argv[3]).read().count("old") < 39:
            assert time.monotonic() < give_up_at, "the others do not go on with the old value"
            time.sleep(0.01)
        return "new"
    def one():
        value = caches["default"].get_or_set("k", compute, 300, early=True)
        os.write(log, f"{value}\\n".encode())
        return value
    cache.get("k")
    ready()
    print(everybody(one).count("new"))
    """
    party.result(party.start(seed))
    said = party.together(code)
    assert party.computed == 1
    assert sorted(said) == ["0", "0", "0", "1"]
    reader = party.start("print(cache.get_many(['k']))")
    assert party.result(reader) == "{'k': 'new'}"


def test_stale_values_are_refreshed_by_one_process(party: Party) -> None:
    seed = """
    cache.get_or_set("k", lambda: "old", 0.01, stale=600)
    time.sleep(0.1)
    """
    code = """
    def compute():
        computed()
        time.sleep(0.1)
        return "new"
    cache.get("k")
    ready()
    values = everybody(lambda: caches["default"].get_or_set("k", compute, 300, stale=600))
    print(*set(values))
    give_up_at = time.monotonic() + 60
    while cache.get("k") != "new":
        assert time.monotonic() < give_up_at
        time.sleep(0.005)
    """
    party.result(party.start(seed))
    assert set(party.together(code, 3)) <= {"old", "new", "old new", "new old"}
    assert party.computed == 1


LEADER = """
def compute():
    computed()
    print("computing", flush=True)
    time.sleep(60)
cache._connections[cache._alias].flight_lease_s = 0.5
"""


@pytest.mark.parametrize("extras", ["", ", early=True, stale=60, stale_on_error=60"])
def test_when_the_leader_is_killed_one_more_computes(party: Party, extras: str) -> None:
    leader = party.start(f"{LEADER}\ncache.get_or_set('k', compute, 300{extras})")
    party.wait_for(leader, "computing")
    follower = f"""
    def compute():
        computed()
        time.sleep(0.05)
        return "value"
    print("ready", flush=True)
    print(*set(everybody(lambda: caches["default"].get_or_set("k", compute, 300{extras}))))
    """
    followers = [party.start(follower) for _ in range(2)]
    for process in followers:
        party.wait_for(process, "ready")
    leader.kill()
    assert [party.result(process) for process in followers] == ["value"] * 2
    assert party.computed == 2


def test_a_computation_longer_than_the_lease_stays_the_only_one(party: Party) -> None:
    # The lease is renewed as long as the machine does not stop for two thirds of it.
    code = """
    cache._connections[cache._alias].flight_lease_s = 2.5
    def compute():
        computed()
        time.sleep(3.5)
        return "value"
    cache.get("k")
    ready()
    print(cache.get_or_set("k", compute))
    """
    assert party.together(code, 2) == ["value"] * 2
    assert party.computed == 1


def test_memoized_functions_are_one_function_in_all_processes(party: Party) -> None:
    code = """
    from nearcache.memoize import memoize
    @memoize(timeout=300)
    def total(shop, tags=frozenset(), **more):
        computed()
        time.sleep(0.05)
        return [shop, sorted(tags), more]
    ready()
    print(everybody(lambda: total("a", tags=frozenset("xyz"), b=1, a={"q": {1, 2}}))[0])
    """
    said = party.together(code, 2)
    assert len(set(said)) == 1
    assert party.computed == 1
