"""The processes of a round: workers that may be killed, and a checker that may not.

Each is a fork of the rig, which has imported everything and opened nothing: a worker that is
killed forty times a second cannot afford to start Python again. Each dies with the rig.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from tests.torture import values
from tests.torture.ledger import COUNTERS
from tests.torture.plan import THREADS_MAX, Plan
from tests.torture.stores import Stores
from tests.torture.values import Violation
from tests.torture.work import Operation, Owner, counter_key

PR_SET_PDEATHSIG = 1
FAULT = 3
CHECK_EVERY_S = 1.0
# Bounds that the store promises, by operation; then what a crowded machine may add, beyond the
# time that the kernel says this thread has waited for a processor: it does not know of a host
# that stops the processor itself.
BOUNDS_S = {"get": 0.0, "get_many": 0.0, "delete": 0.0}
BOUND_WRITE_S = 5.0
SLACK_S = 10.0


def fork(plan: Any, body: Callable[[], None]) -> int:
    """Starts a process that does ``body`` and dies with us; its pid."""
    parent = os.getpid()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = FAULT
    try:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            body()
            status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the rig must see it
        write_fault(plan)
    finally:
        os._exit(status)


def write_fault(plan: Any) -> None:
    """For the rig to find, whole at once."""
    name = f"{os.getpid()}-{threading.get_ident()}"
    draft = plan.directory / name
    draft.write_text(f"process {os.getpid()}\n{traceback.format_exc()}")
    draft.rename(plan.faults / name)


def seed(plan: Plan) -> None:
    """Puts the counters in place that nobody may lose."""
    engine = Stores(plan).roomy.engine
    for counter in range(COUNTERS):
        engine.set(counter_key("incr", counter), b"0", None)
        key = counter_key("cas", counter)
        engine.set(key, values.make(key.decode(), 0, 0, 10), None)


def worker(plan: Plan, number: int, life: int) -> None:
    """Works until it is killed, or the round is over."""
    role = plan.role(number)
    stores = Stores(plan)
    owners = [
        Owner(plan, stores, number * THREADS_MAX + thread, random.Random(f"{life} {thread}"))
        for thread in range(THREADS_MAX if role == "threads" else 1)
    ]
    others = [threading.Thread(target=_work, args=(plan, owner, role)) for owner in owners[1:]]
    for thread in others:
        thread.start()
    _work(plan, owners[0], role)
    for thread in others:
        thread.join()


def _work(plan: Plan, owner: Owner, role: str) -> None:
    try:
        while not plan.ledger.stop[0]:
            owner.work(role)
    except BaseException:  # noqa: BLE001 - as in `fork`, but in a thread
        write_fault(plan)
        os._exit(FAULT)


def checker(plan: Plan) -> None:
    """Reads, writes a little, and checks the stores; never killed, so its times count."""
    stores = Stores(plan)
    owner = Owner(plan, stores, plan.checker * THREADS_MAX, random.Random(plan.seed))
    operations, weights = owner.operations("checker")
    next_check_s = 0.0
    while not plan.ledger.stop[0]:
        for operation in owner.random.choices(operations, weights, k=50):
            _timed(owner, operation)
        if time.monotonic() > next_check_s:
            next_check_s = time.monotonic() + CHECK_EVERY_S
            check(stores)


def _timed(owner: Owner, operation: Operation) -> None:
    waited_s, started_s = _waited_for_cpu_s(), time.monotonic()
    owner.step(operation)
    took_s = time.monotonic() - started_s
    name = operation.__name__
    bound_s = BOUNDS_S.get(name, BOUND_WRITE_S * 20) + SLACK_S
    if took_s > bound_s:
        took_s -= _waited_for_cpu_s() - waited_s
        if took_s > bound_s:
            raise Violation(f"{name} took {took_s:.3f} s, not counting waits for a processor")


def _waited_for_cpu_s() -> float:
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1]) / 1e9


def check(stores: Stores) -> None:
    """The store's own look at itself. A shard whose owner is stopped is looked at next time."""
    for store in (stores.crowded, stores.roomy):
        faults = [fault for fault in store.engine.check() if "lock is busy" not in fault]
        stats = store.engine.stats()
        signs = ("damaged", "shard_resets", "unreachable")
        damage = {name: stats[name] for name in signs if stats[name]}
        if faults or damage:
            raise Violation(f"{store.name}: {faults} {damage}")


def inspect_at_the_end(plan: Plan) -> None:
    """A fresh process, after all others were killed at once: sound, warm and exact."""
    stores = Stores(plan)
    for store in (stores.crowded, stores.roomy):
        if faults := store.engine.check():
            raise Violation(f"{store.name}, after all: {faults}")
        for at in range(store.keys):
            store.read(at)
        if not len(store.engine):
            raise Violation(f"{store.name}: cold after a restart")
    check(stores)
    owner = Owner(plan, stores, 0, random.Random(plan.seed))
    for _ in range(20 * COUNTERS):
        owner.look_at_counters()
    owner.scan()
    plan.figures.write_text(json.dumps(figures(plan, stores)))


def figures(plan: Plan, stores: Stores) -> dict[str, int]:
    ledger = plan.ledger
    found = {name: sum(getattr(ledger, name)) for name in ("operations", "busy", "refused")}
    stats = {store.name: store.engine.stats() for store in (stores.crowded, stores.roomy)}
    for name, of_store in stats.items():
        found[f"owner deaths ({name})"] = of_store["owner_deaths"]
    evicted = ("evicted_small", "evicted_main", "evicted_index")
    return {**found, "evictions": sum(stats["crowded"][name] for name in evicted)}
