"""A rig that never finds anything proves nothing: it must find what is planted."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.torture import values, worker
from tests.torture.plan import MIB, Plan
from tests.torture.rig import Fault, Rig
from tests.torture.stores import Store, Stores
from tests.torture.values import Violation
from tests.torture.work import Owner

AT = 2  # an even key: the engine's face


@pytest.fixture
def plan(memory_path: Path) -> Plan:
    plan = Plan(memory_path, MIB, workers=2, seed=1)
    plan.faults.mkdir()
    return plan


@pytest.fixture
def roomy(plan: Plan) -> Store:
    worker.seed(plan)
    return Stores(plan).roomy


def write(store: Store, sequence: int, key: str | None = None) -> bytes:
    value = values.make(key or store.key(AT), AT // store.keys_per_owner, sequence, 500)
    store.engine.set(store.key(AT).encode(), value, None)
    return value


def claim(store: Store, writes: int = 1) -> None:
    for _ in range(writes):
        sequence = store.claims.begin(AT)
        write(store, sequence)
        store.claims.stored(AT, sequence, hold=True)


def test_a_right_value_is_right(roomy: Store) -> None:
    claim(roomy, 3)
    roomy.read(AT)
    roomy.read_many([AT])


def flip(store: Store) -> None:
    value = bytearray(write(store, 3))
    value[100] ^= 1
    store.engine.set(store.key(AT).encode(), bytes(value), None)


def delete_and_write_again(store: Store) -> None:
    store.claims.gone(AT, store.claims.begin(AT))
    write(store, 3)


PLANTED: dict[str, Callable[[Store], Any]] = {
    "torn": flip,
    "foreign": lambda store: write(store, 3, key=store.key(AT + 2)),
    "none of our values": lambda store: store.engine.set(store.key(AT).encode(), b"7", None),
    "resurrected": lambda store: write(store, 2),
    "deleted or replaced": delete_and_write_again,
    "from the future": lambda store: write(store, 4),
    "lost": lambda store: store.engine.delete(store.key(AT).encode()),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_wrong_value_is_found(roomy: Store, name: str) -> None:
    claim(roomy, 3)
    PLANTED[name](roomy)
    with pytest.raises(Violation, match=name):
        roomy.read(AT)


@pytest.mark.parametrize("engine_adds", [0, 2])
def test_a_lost_or_doubled_increment_is_found(plan: Plan, roomy: Store, engine_adds: int) -> None:
    owner = owner_of(plan, roomy)
    for counter in range(8):
        plan.ledger.incr.begin(0, counter)
        roomy.engine.incr(b"incr%d" % counter, engine_adds)
        plan.ledger.incr.done(0, counter)
    with pytest.raises(Violation, match="incr counter"):
        owner.look_at_counters()


def test_an_item_that_a_scan_does_not_show_is_found(plan: Plan, roomy: Store) -> None:
    claim(roomy)
    owner = owner_of(plan, roomy)
    owner.scan()
    blind = SimpleNamespace(scan=lambda cursor, limit: (0, []))
    roomy.engine = blind
    with pytest.raises(Violation, match="a scan showed it 0 times"):
        owner.scan()


def owner_of(plan: Plan, store: Store) -> Owner:
    stores: Any = SimpleNamespace(crowded=store, roomy=store)
    return Owner(plan, stores, 0, random.Random(1))


def crash() -> None:
    faulthandler.disable()  # pytest's; this crash is no news
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (crash, "ended with -11"),
        (lambda: os._exit(0), "ended by itself"),
    ],
    ids=["an error", "a crash", "an early end"],
)
def test_a_worker_that_ends_by_itself_is_found(
    plan: Plan, eventually: Callable[..., None], body: Callable[[], None], says: str
) -> None:
    rig = Rig(plan)
    rig.fork(body)

    found: list[str] = []

    def look() -> list[str]:
        try:
            rig.look()
        except Fault as fault:
            found.append(str(fault))
        return found

    eventually(look)
    assert says in found[0]
