"""The store of samples: nothing is lost, whoever counts, dies or resets."""

from __future__ import annotations

import os
import random
import shutil
import signal
import statistics
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from nearcache.errors import LabError
from nearcache.web.buckets import (
    BUCKETS,
    GREATEST_NS,
    bucket_of,
    middle_ns,
    percentile_ns,
    stdev_ns,
)
from nearcache.web.samples import MAGIC_WORD, SampleStore, forget_former

NAMES = ["a", "b"]


@pytest.fixture
def store(private_path: Path) -> SampleStore:
    return SampleStore(private_path / "samples", NAMES)


def again(store: SampleStore) -> SampleStore:
    """The same store as another worker opens it."""
    return SampleStore(store.directory, store.names)


def in_child(work: Callable[[], None]) -> int:
    """Run this in a forked process; returns its id at once."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def count(store: SampleStore, name: str, times: int) -> None:
    for ns in range(times):
        store.end(store.begin(name), "done", ns)


def test_every_bucket_is_where_the_one_before_it_ends_and_within_a_hundredth() -> None:
    rng = random.Random(1)
    for ns in [*range(4096), *(rng.randrange(GREATEST_NS) for _ in range(5000)), GREATEST_NS]:
        assert abs(middle_ns(bucket_of(ns)) - ns) <= 0.008 * ns
        assert bucket_of(ns) - bucket_of(max(0, ns - 1)) in (0, 1)
    assert bucket_of(GREATEST_NS) == bucket_of(10 * GREATEST_NS) == BUCKETS - 1


def test_percentiles_and_deviation_are_those_of_the_values() -> None:
    rng = random.Random(2)
    values = sorted(int(rng.lognormvariate(11, 1)) for _ in range(2000))
    counts = [0] * BUCKETS
    for ns in values:
        counts[bucket_of(ns)] += 1
    for rank in (1, 50, 90, 99, 100):
        exact = values[max(0, -(-len(values) * rank // 100) - 1)]
        assert percentile_ns(counts, rank) == pytest.approx(exact, rel=0.01)
    assert stdev_ns(counts) == pytest.approx(statistics.stdev(values), rel=0.01)


def test_threads_and_processes_count_at_once_and_nothing_is_lost(store: SampleStore) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # as many changes of thread in the middle of things as can be

    def four_threads() -> None:
        threads = [threading.Thread(target=count, args=(store, "a", 500)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    try:
        children = [in_child(four_threads) for _ in range(3)]
        four_threads()
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
    finally:
        sys.setswitchinterval(before)
    found = store.totals()["a"]
    assert found.attempted == found.done == sum(found.counts) == 4 * 4 * 500
    assert found.sum_ns == 16 * sum(range(500))
    assert (found.max_ns, found.under_way, found.lost) == (499, 0, 0)


def test_a_killed_worker_leaves_its_samples_and_what_it_had_under_way_is_lost(
    store: SampleStore,
) -> None:
    reading, writing = os.pipe()

    def work() -> None:
        count(store, "a", 7)
        store.begin("a")
        os.write(writing, b"!")
        signal.pause()

    child = in_child(work)
    os.read(reading, 1)
    alive = store.totals()["a"]
    assert (alive.done, alive.under_way, alive.lost) == (7, 1, 0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    dead = store.totals()["a"]
    assert (dead.attempted, dead.done, dead.under_way, dead.lost) == (8, 7, 0, 1)
    assert store.totals()["a"].lost == 1, "only once"


def test_a_slot_is_taken_over_so_restarts_make_no_more_files(store: SampleStore) -> None:
    for _ in range(5):
        os.waitpid(in_child(lambda: count(store, "b", 3)), 0)
    assert sorted(path.name for path in store.directory.iterdir()) == ["control", "slot-000"]
    assert store.totals()["b"].done == 15


def test_a_child_counts_apart_and_does_not_keep_its_parents_slot(store: SampleStore) -> None:
    count(store, "a", 1)
    (counted, tell), (told, leave) = os.pipe(), os.pipe()

    def count_and_stay() -> None:
        count(store, "a", 1)
        os.write(tell, b"!")
        os.read(told, 1)

    def parent_that_forks() -> None:
        count(store, "a", 1)
        in_child(count_and_stay)  # and is gone before it

    os.waitpid(in_child(parent_that_forks), 0)
    os.close(tell)  # so that a child that died is noticed
    assert os.read(counted, 1) == b"!"
    count(again(store), "a", 1)
    os.write(leave, b"!")
    assert store.totals()["a"].done == 4
    slots = sorted(path.name for path in store.directory.glob("slot-*"))
    assert slots == ["slot-000", "slot-001", "slot-002"], "the one that is gone left its own"


def test_a_reset_empties_all_workers_and_forgets_what_is_under_way(store: SampleStore) -> None:
    other = again(store)
    count(store, "a", 5)
    count(other, "a", 5)
    open_one = store.begin("a")
    other.reset()
    assert store.totals()["a"].attempted == 0
    store.end(open_one, "done", 1)
    assert store.totals()["a"].attempted == 0
    count(store, "a", 2)
    found = other.totals()["a"]
    assert (found.attempted, found.done, sum(found.counts), found.sum_ns) == (2, 2, 2, 1)
    assert other.mean_ns("a") == 0.5
    assert other.mean_ns("b") is None


def test_outcomes_are_apart_and_have_no_time(store: SampleStore) -> None:
    for outcome in ("missed", "failed", "wrong"):
        store.end(store.begin("a"), outcome, 1000)  # type: ignore[arg-type]
    found = store.totals()["a"]
    assert (found.missed, found.failed, found.wrong) == (1, 1, 1)
    assert (found.attempted, found.under_way, sum(found.counts), found.sum_ns) == (3, 0, 0, 0)


def test_a_foreign_file_is_refused_by_name(store: SampleStore) -> None:
    count(store, "a", 1)
    assert store._control is not None
    store._control[MAGIC_WORD] = 17
    with pytest.raises(LabError, match=r"control is not a file of samples; remove .*samples"):
        again(store).totals()


def test_a_directory_that_was_removed_under_a_running_worker_is_said(store: SampleStore) -> None:
    count(store, "a", 1)
    shutil.rmtree(store.directory)
    with pytest.raises(LabError, match=r"is gone .*restart the web server"):
        store.totals()


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(LabError, match="of this user alone"):
        SampleStore(tmp_path / "open", NAMES).begin("a")


def test_what_former_settings_left_is_removed_unless_a_worker_lives(private_path: Path) -> None:
    stores = {}
    for name in ("site-now", "site-left", "site-lives", "other-left"):
        stores[name] = SampleStore(private_path / name, NAMES)
        os.waitpid(in_child(lambda name=name: count(stores[name], "a", 1)), 0)
    stores["site-lives"].begin("a")
    forget_former(private_path / "site-now", "site-")
    assert len(list(private_path.iterdir())) == 4, "all are too young"
    for store in stores.values():
        os.utime(store.directory, (1, 1))
    forget_former(private_path / "site-now", "site-")
    left = sorted(path.name for path in private_path.iterdir())
    assert left == ["other-left", "site-lives", "site-now"]
