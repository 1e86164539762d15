"""The rows of the agent: purges of a large cache, beside connections that are only in the way.

    table    the process starts, and knows all variants: until it says so
    quiet    one URL from Python, with a table that is warm: stored, and not
    crowd    100 purges a second of URLs that are not stored, through the agent, while idle and
             dripping connections hang, some from the address of the site; who is dropped comes
             again at once

A purge of the crowd counts from the moment at which it should have begun. One that is refused, or
not answered in time, is counted as failed. All processes share one core.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import quantiles
from typing import Self

from bench.measure import Arm
from bench.nginx_doctor import NEARCACHE, Latencies, Row, Sizes, Took, arms_of, warmed
from bench.nginx_input import LEVELS, fill, url_of, varied
from nearcache.base.options import Secret
from nearcache.lab.servers import end_process, free_port
from nearcache.nginx.agent.hosts import LocalCache, RemoteAgent, Wanted

TEMPLATE = "{scheme}://{host}{uri}"
PURGES_PER_S = 100
TIMEOUT_S = 2.0  # the default of a site
IDLE, DRIPPING = 100, 100
DRIP_S = 0.2
VARIES_EACH = 20  # so many files for each that is a variant
# What the project promises.
UNKNOWN_S = 0.005

Purge = Callable[[str], None]


def rows(where: Path, sizes: Sizes) -> Iterator[Row]:
    table = f"agent: a cache of {sizes.agent_entries:,} files"
    root, secret = where / "agent-cache", where / "agent-secret"
    root.mkdir()
    fill(root, sizes.agent_entries, VARIES_EACH)
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    try:
        yield from quiet_rows(table, root, sizes)
        with agent(root, secret) as (remote, warm_s):
            yield Took(table, "the table of variants", warm_s, warm_s, warm_s, sizes.agent_entries)
            check_variants_go(remote)
            yield crowd(table, remote, sizes)
    finally:
        shutil.rmtree(root)
        secret.unlink()


def quiet_rows(table: str, root: Path, sizes: Sizes) -> Iterator[Row]:
    cache = LocalCache(root, LEVELS, (TEMPLATE,))
    cache.keep_table()
    try:
        assert cache.purge(Wanted(("https://example.com/",)), 3600).state == "nothing", "not warm"
        stored = range(0, sizes.purges * VARIES_EACH, VARIES_EACH)  # without variants
        unknown = range(sizes.agent_entries, sizes.agent_entries + sizes.purges)
        arms = {
            "one stored URL": each_of(cache, stored, "purged"),
            "one that is not stored": each_of(cache, unknown, "nothing"),
        }
        promised = {"one that is not stored": 1 / UNKNOWN_S}
        yield from arms_of(table, warmed(arms, sizes), 1, promised)
    finally:
        cache.close()


def each_of(cache: LocalCache, numbers: range, state: str) -> Arm:
    """How long a purge of one of these takes."""

    def take() -> float:
        began = time.perf_counter_ns()
        states = {cache.purge(Wanted((url_of(number),)), 60).state for number in numbers}
        took_ns = time.perf_counter_ns() - began
        assert states == {state}, states
        return took_ns / len(numbers)

    return take


@contextmanager
def agent(root: Path, secret: Path) -> Iterator[tuple[RemoteAgent, float]]:
    """An agent in a process of its own, and how long it took until its table was there."""
    port = free_port()
    words = ("--cache", root, "--secret-file", secret, "--bind", f"127.0.0.1:{port}")
    more = ("--levels", "1:2", "--template", TEMPLATE)
    command = [*NEARCACHE, "agent", *map(str, (*words, *more))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert process.stderr
        assert process.stderr.readline().startswith(b"purging")
        began = time.monotonic()
        said = process.stderr.readline()
        assert b"found in" in said, said
        yield (
            RemoteAgent(f"http://127.0.0.1:{port}", Secret(secret.read_bytes())),
            (time.monotonic() - began),
        )
    finally:
        end_process(process)
        if process.stderr:
            process.stderr.close()


def check_variants_go(remote: RemoteAgent) -> None:
    outcome = remote.purge(Wanted((url_of(varied(VARIES_EACH - 1)),)), TIMEOUT_S)
    assert (outcome.state, outcome.files) == ("purged", 2), outcome


def crowd(table: str, remote: RemoteAgent, sizes: Sizes) -> Latencies:
    """Purges at a fixed rate, whatever the agent does."""
    count = PURGES_PER_S * sizes.agent_seconds
    with Hanging(remote) as hanging, ThreadPoolExecutor(PURGES_PER_S) as threads:
        began = time.perf_counter() + 0.1
        asked = []
        for number in range(count):
            due = began + number / PURGES_PER_S
            time.sleep(max(0.0, due - time.perf_counter()))
            asked.append(threads.submit(purge, remote, sizes.agent_entries + number, due))
        took = [each.result() for each in asked]
        dropped = hanging.dropped
    good = [seconds for seconds in took if seconds is not None]
    cuts = quantiles(good or [0.0, 0.0], n=100, method="inclusive")
    name = (
        f"{PURGES_PER_S} purges a second for {sizes.agent_seconds} s of what is not stored, beside"
        f" {IDLE} idle and {DRIPPING} dripping connections ({dropped} times dropped)"
    )
    failed = len(took) - len(good)
    return Latencies(table, name, count, failed, cuts[49], cuts[98], max(good, default=0.0))


def purge(remote: RemoteAgent, number: int, due: float) -> float | None:
    """Seconds from when it should have begun; None if it failed."""
    outcome = remote.purge(Wanted((url_of(number),)), TIMEOUT_S)
    if outcome.state != "nothing":
        print(f"  {outcome.error}", file=sys.stderr)
        return None
    return time.perf_counter() - due


class Hanging:
    """Connections that send nothing, or a byte of a header now and then, as long as it lasts."""

    def __init__(self, remote: RemoteAgent) -> None:
        host, _, port = remote.name.removeprefix("http://").partition(":")
        self._address = host, int(port)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hang)
        self.dropped = 0

    def __enter__(self) -> Self:
        self._clients = [self._come(number) for number in range(IDLE + DRIPPING)]
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        for client in self._clients:
            client.close()

    def _come(self, number: int) -> socket.socket:
        # Half of them from where the site is.
        of = f"127.0.0.{1 if number % 2 else 2 + number % 20}"
        client = socket.create_connection(self._address, source_address=(of, 0))
        client.setblocking(False)
        if number >= IDLE:
            client.send(b"POST /purge HTTP/1.1\r\nA: ")
        return client

    def _hang(self) -> None:
        while not self._over.wait(DRIP_S):
            for number, client in enumerate(self._clients):
                try:
                    if number >= IDLE:
                        client.send(b"a")
                    with suppress(BlockingIOError):
                        client.recv(1)
                        raise ConnectionError
                except OSError:
                    client.close()
                    self.dropped += 1
                    self._clients[number] = self._come(number)
