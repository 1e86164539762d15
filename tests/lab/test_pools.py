"""Crowds: who was served and in what they waited, and every way to fool oneself about it."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from dataclasses import replace

import pytest

from nearcache.lab.arms import crowd_styles
from nearcache.lab.arms.candidates import choose
from nearcache.lab.arms.crowd_styles import NeverEnded, Rounds, Threads, Times
from nearcache.lab.base.arm import WrongAnswer
from nearcache.lab.base.model import Candidate, Plan
from nearcache.lab.experiments.pools.arm import encoded, phases_of, shortfall
from nearcache.lab.experiments.pools.findings import views
from nearcache.lab.experiments.pools.plan import POOLS
from nearcache.lab.results.sample import Cell, Sample
from nearcache.lab.runner.driver import measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.lab.statistics.fairness import fairest, jain
from nearcache.lab.views.waits import Waits
from nearcache.report.model import Grey, Table
from nearcache.report.units import NOTHING
from tests.needs import need_package

from .conftest import Silent, need
from .made import Quiet

# More rounds than one, of a tenth of a second each: a host may take as much away. And no limit
# that a slow machine meets, which would leave rounds out.
TINY = Plan(repetitions=1, rounds=4, phase_ms=400, time_limit_s=3600)
MEASURED = (
    "greenlets-patched-10",
    "greenlets-stdlib-10",
    "greenlets-gevent-10",
    "greenlets-nonblocking-10",
    "threads-nearcache",
    "tasks-redis-py-10",
)


def run(candidates: Sequence[Candidate], payloads: Sequence[str]) -> Sample:
    known = choose(POOLS.candidates, [POOLS.baseline])
    known += [c for c in candidates if c.name != POOLS.baseline]
    experiment = replace(
        POOLS, candidates=known, plans={"tiny": TINY}, payloads={"40": "40 contenders"}
    )
    order = prepare(experiment, RunOptions(plan="tiny", payloads=payloads, seed=7))
    sample = new_sample(order, "a test")
    measure(order, sample, Silent(), lambda sample: None)
    return sample


@pytest.fixture(scope="module")
def sample() -> Sample:
    need("redis-server")
    need_package("gevent", "hiredis", "redis")
    planted = choose(POOLS.candidates, ["greenlets-django-redis-10"])[0]
    # django-redis takes no queue_class, so the order cannot have been carried out.
    ignored = replace(
        planted, name="ignored", options={**planted.options, "queue": "gevent"}, twin_of=None
    )
    absent = replace(
        planted, name="absent", needs=(replace(planted.needs[0], module="no_such_package"),)
    )
    return run([*choose(POOLS.candidates, MEASURED), ignored, absent], ["40"])


def test_every_style_is_measured_and_every_answer_checked(sample: Sample) -> None:
    reasons = {name: sample.candidates[name].reason for name in MEASURED}
    assert {sample.candidates[name].state for name in MEASURED} == {"measured"}, reasons
    for name in MEASURED:
        cell = sample.cells[name, "get", "40"]
        assert cell.hits > 0
        assert cell.count == cell.hits
        assert cell.measures["contenders"].median == 40


def test_the_queue_is_the_one_ordered_and_read_from_the_live_pool(sample: Sample) -> None:
    proofs = {name: sample.candidates[name].proof for name in MEASURED}
    assert proofs["greenlets-stdlib-10"]["queue"] == "queue.LifoQueue"
    assert proofs["greenlets-stdlib-10"]["lock of the queue"].startswith("gevent.")
    assert proofs["greenlets-gevent-10"]["queue"].startswith("gevent.")
    # gevent before 25.4.1 would leave the standard library's: a finding, never an error.
    assert proofs["greenlets-patched-10"]["queue"].endswith("LifoQueue")
    assert "queue" not in proofs["greenlets-nonblocking-10"]
    assert "hiredis" in proofs["tasks-redis-py-10"]["parser"].lower()


def test_greenlets_were_patched_before_anything_was_imported(sample: Sample) -> None:
    proof = sample.candidates["greenlets-stdlib-10"].proof
    assert proof["imported before the patch"].startswith("none")
    assert "socket" in proof["patched modules"]
    assert "queue" not in proof["patched modules"]
    assert "queue" in sample.candidates["greenlets-patched-10"].proof["patched modules"]
    assert "patched modules" not in sample.candidates["threads-nearcache"].proof


def test_a_queue_that_was_ordered_and_ignored_ends_its_candidate(sample: Sample) -> None:
    entry = sample.candidates["ignored"]
    assert entry.state == "failed"
    assert "the pool waits on a queue.LifoQueue, not on gevent's" in entry.reason


def test_a_package_that_is_absent_is_a_line_and_not_the_end(sample: Sample) -> None:
    assert sample.candidates["absent"].state == "missing"


def test_connections_are_counted_by_the_server(sample: Sample) -> None:
    def connections(name: str) -> float:
        return sample.cells[name, "get", "40"].measures["connections"].median

    assert connections("greenlets-stdlib-10") == 10
    assert connections("threads-nearcache") == 1


def test_a_pool_that_refuses_is_seen_to_refuse(sample: Sample) -> None:
    outcomes = sample.cells["greenlets-nonblocking-10", "get", "40"].outcomes
    assert outcomes["refused: too many connections"] > 0


def test_views_show_who_was_served_and_say_which_queue_was_left(sample: Sample) -> None:
    shown = views(Quiet(sample))
    assert any("patch_all() of gevent" in sentence for sentence in shown.sentences)
    tables = [part for part in shown.parts if isinstance(part, Table)]
    for table in tables:
        assert all(len(row) == len(table.head) for row in table.rows)
    served = next(table for table in tables if table.title.startswith("Who is served"))
    assert {row[0] for row in served.rows} == set(MEASURED)
    (waited_in,) = (table for table in tables if "waited in" in table.title)
    assert ["greenlets-stdlib-10", "redis.connection.BlockingConnectionPool", "queue.LifoQueue",
            "patch_all(queue=False)"] in [list(row) for row in waited_in.rows]  # fmt: skip


class Crossed:
    """Hands every caller the reply to the one before."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def fill(self, values: dict[str, str]) -> None:
        self.values.update(values)

    def get(self, key: str) -> str:
        keys = list(self.values)
        return self.values[keys[keys.index(key) - 1]]


class Hangs(Crossed):
    """Nobody is answered until the test is over."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()

    def get(self, key: str) -> str:
        self.over.wait(60)
        return self.values[key]


class Clock:
    """Stands still until told, so that everybody has asked before the deadline."""

    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(crowd_styles, "clock", clock)
    return clock


@pytest.mark.usefixtures("clock")
def test_a_reply_to_somebody_else_voids_the_crowd() -> None:
    with pytest.raises(WrongAnswer, match="not its own value"):
        Rounds(Threads(), server_pid=1).round(Crossed(), 4, Times(0.01, 0.05))  # type: ignore[arg-type]


def test_contenders_that_hang_are_an_error_and_not_a_slow_round(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(crowd_styles, "GRACE_S", 0.05)
    client = Hangs()
    with pytest.raises(NeverEnded, match="3 of 3 contenders had not ended"):
        Rounds(Threads(), server_pid=1).round(client, 3, Times(0.01, 0.05))  # type: ignore[arg-type]
    clock.now_ns = 10**18
    client.over.set()


def test_fairness_is_one_if_all_get_the_same_and_one_nth_if_one_gets_all() -> None:
    assert jain([5, 5, 5, 5]) == 1
    assert jain([12, 0, 0, 0]) == 0.25
    assert jain([0, 0]) == 0
    assert fairest(2, 4) == 0.5
    assert fairest(8, 4) == 1


def found(answered: int, failed: int, unfinished: int) -> dict[str, object]:
    return {
        "contenders": 2,
        "never_ran": 0,
        "elapsed_ns": 1_000_000,
        "answers": [answered, 0],
        "errors": {"timeout in the pool": failed} if failed else {},
        "cpu_share": 0.5,
        "server_cpu_share": 0.25,
        "counts": [answered, failed, unfinished],
        "answered_ns": [1000] * min(answered, 3),
        "failed_ns": [2000] * min(failed, 3),
        "unfinished_ns": [3000] * unfinished,
    }


def test_a_round_counts_as_wall_time_per_answer_and_says_where_it_went() -> None:
    get, wait = phases_of(found(answered=100, failed=50, unfinished=2), connections=7)
    assert get.point == 10_000
    assert get.parts == {"client CPU": 5000, "server CPU": 2500, "neither": 2500}
    assert get.outcomes == {"timeout in the pool": 50, "unfinished": 2}
    assert get.measures["answered"] == (100 / 150, "share")
    assert get.measures["went without"] == (0.5, "share")
    assert wait.point == pytest.approx(1000, rel=0.001), "most were answered after 1000 ns"


def test_a_round_without_an_answer_has_no_speed() -> None:
    get, wait = phases_of(found(answered=0, failed=5, unfinished=1), connections=1)
    assert get.point is None
    assert not get.histogram
    assert wait.histogram


def test_thinned_waits_count_as_many_as_there_were() -> None:
    from hdrh.histogram import HdrHistogram

    kept = crowd_styles.thinned(array("Q", range(1, 100_001)))
    assert len(kept) <= crowd_styles.MOST_SENT
    histogram = HdrHistogram.decode(encoded([(kept, 100_000), ([7], 3)]))
    assert histogram.get_total_count() == 100_003
    assert abs(histogram.get_value_at_percentile(50) / 50_000 - 1) < 0.01


def test_a_crowd_that_was_too_small_says_so() -> None:
    assert shortfall(100, 100) == {}
    assert "500 threads only" in shortfall(5000, 500)["5000 contenders"]
    assert "the machine starts no more" in shortfall(400, 123)["400 contenders"]


def waits_of(*nanoseconds: int) -> Cell:
    cell = Cell("a", "wait", "40")
    cell.add_round(0, 0, nanoseconds)
    return cell


def test_waits_have_one_scale_and_those_of_too_few_answers_are_grey() -> None:
    few, many = waits_of(3_200), waits_of(*range(1_000, 1_001_000, 1_000))
    waits = Waits.of([few, many, None], 50, 99)
    assert waits.suffix == "µs"
    assert [waits.text(many, rank) for rank in (50, 99, 100)] == ["500", "990", "1000"]
    assert not any(isinstance(waits.text(many, rank), Grey) for rank in (50, 99, 100))
    assert waits.text(few, 50) == "3.20"
    assert isinstance(waits.text(few, 50), Grey)
    assert not isinstance(waits.text(few, 100), Grey), "the largest is what was seen"
    assert waits.text(None, 50) == NOTHING
