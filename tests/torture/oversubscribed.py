"""``python -m tests.torture.oversubscribed``: far more busy writers than processors.

An owner of a shard's lock loses its processor inside now and then, for as long as all the others
take their turns. It lives and will go on, so nobody who waits for it may be refused; exits 1 if
anybody is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearcache.engines.shm import Home, open_store

MIB = 1 << 20
VALUE = bytes(200)  # about a session
KEYS = 500  # of each process


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture.oversubscribed", description=__doc__
    )
    parser.add_argument("--processes", type=int, default=40)
    parser.add_argument("--sets", type=int, default=10_000_000, help="of all processes together")
    parser.add_argument("--size", type=int, default=8, help="of the store, in MiB")
    asked = parser.parse_args()
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="nearcache-torture-", dir=memory) as directory:
        base = str(Path(directory) / "cache")
        found = load(base, asked.size * MIB, asked.processes, asked.sets // asked.processes)
    print(json.dumps(found))
    return 1 if found["refused"] else 0


def load(base: str, size_bytes: int, processes: int, sets: int) -> dict[str, Any]:
    """Each process writes so often; what became of it."""
    engine = open_store(Home(base, size_bytes=size_bytes))
    started_s = time.monotonic()
    ends = [forked(lambda number=number: work(engine, number, sets)) for number in range(processes)]
    results = [end() for end in ends]
    stats = engine.stats()
    return {
        "processes": processes,
        "sets": processes * sets,
        "refused": sum(result["refused"] for result in results),
        "dropped_busy": stats["dropped_busy"],
        "waits": stats["waits"],
        "longest_ms": max(result["longest_ms"] for result in results),
        "seconds": round(time.monotonic() - started_s, 1),
    }


def work(engine: Any, number: int, sets: int) -> dict[str, Any]:
    keys = [b"session %d of %d" % (key, number) for key in range(KEYS)]
    refused, longest_ns, before_ns = 0, 0, time.perf_counter_ns()
    for at in range(sets):
        refused += not engine.set(keys[at % KEYS], VALUE, None)
        now_ns = time.perf_counter_ns()
        longest_ns, before_ns = max(longest_ns, now_ns - before_ns), now_ns
    return {"refused": refused, "longest_ms": longest_ns / 1e6}


def forked(body: Callable[[], Any]) -> Callable[[], Any]:
    """Runs ``body`` in a child; what to call for its result."""
    read_fd, write_fd = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.write(write_fd, json.dumps(body()).encode())
            status = 0
        except BaseException:  # noqa: BLE001 - the parent sees that there is no result
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write_fd)

    def result() -> Any:
        with open(read_fd, "rb") as pipe:
            told = pipe.read()
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"a writer ended with {status}"
        return json.loads(told)

    return result


if __name__ == "__main__":
    sys.exit(main())
