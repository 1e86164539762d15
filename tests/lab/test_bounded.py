"""A run may take hours: what the lab keeps does not grow with the samples it has taken."""

from __future__ import annotations

import gc
import random
import tracemalloc
from array import array
from collections.abc import Callable

from django.core.cache.backends.locmem import LocMemCache

from nearcache.lab.base.messages import Phase, Visit
from nearcache.lab.proofs.companion import SameProcess
from nearcache.lab.results.sample import Cell
from nearcache.lab.runner.interleaving import Interleaving
from nearcache.lab.timers.operations import Visitor, VisitTools
from nearcache.lab.workloads import PAYLOADS


def growth_bytes(step: Callable[[int], object], first: int, then: int) -> int:
    """How much more memory is held after ``then`` more steps."""
    for number in range(first):
        step(number)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(first, first + then):
            step(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_a_worker_holds_nothing_of_its_earlier_visits() -> None:
    def open_cache() -> LocMemCache:
        return LocMemCache("bounded", {"OPTIONS": {"MAX_ENTRIES": 10_000}})

    tools = VisitTools(open_cache(), SameProcess(open_cache), "lab", None)
    payload = PAYLOADS["S"](1)
    operations = ["get", "set", "get_many", "get_fresh", "delete", "miss", "incr", "get_at_50"]

    def visit(number: int) -> None:
        lowest = {"get_per_s": 20_000.0}
        asked = Visit("S", operations, f"0:{number}", 300_000, lowest=lowest)
        phases = Visitor(tools, payload, asked).run().phases
        assert {phase.operation for phase in phases} == set(operations)

    assert growth_bytes(visit, 3, 10) < 50_000


def test_a_cell_grows_by_its_rounds_and_not_by_its_samples() -> None:
    rng = random.Random(1)
    cell = Cell("a", "get", "S")

    def add(number: int) -> None:
        samples = array("Q", (rng.randrange(1000, 2000) for _ in range(500)))
        cell.add_phase(0, number, Phase("get", samples=samples, calls=500))

    # A point and three chopped ones for each round; the samples alone were 400 kB.
    assert growth_bytes(add, 3, 100) < 100_000  # other threads allocate, too
    assert cell.count + cell.warm_up == 103 * 500


def test_the_order_of_a_long_run_is_kept_as_a_digest() -> None:
    order = Interleaving(random.Random(1))

    def visit(number: int) -> None:
        for place, name in enumerate(order.shuffled(["a", "b", "c"])):
            order.visited(name, "S", place / 2)

    # All threads of the process are counted; 15,000 visits kept would be a megabyte.
    assert growth_bytes(visit, 10, 5000) < 50_000
    summary = order.summary()
    assert summary["visits"] == 3 * 5010
    assert all(0.45 < place < 0.55 for place, _ in summary["places"].values())
