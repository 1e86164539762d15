"""The ``warmup`` experiment: who is hot when, who computed what, what is shared after a fork."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing.context import ForkProcess
from typing import Any

import pytest

from nearcache.lab.arms.candidates import LOCMEM
from nearcache.lab.base.arm import WrongAnswer
from nearcache.lab.base.messages import Phase
from nearcache.lab.base.model import NO_PAYLOAD, Plan
from nearcache.lab.experiments.warmup.findings import views
from nearcache.lab.experiments.warmup.plan import WARMUP
from nearcache.lab.experiments.warmup.refill import (
    KEYS,
    Refill,
    Request,
    plan_of,
    refill,
)
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.driver import measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.report.model import Table

from .conftest import Silent, need
from .made import Quiet

# A round ends when the cache is hot, however slow the machine is; this limit only bounds it.
TINY = Plan(repetitions=1, rounds=1, phase_ms=20_000, time_limit_s=3600)


@pytest.fixture(scope="module")
def sample() -> Sample:
    need("redis-server")
    wrong = replace(
        LOCMEM,
        name="wrong",
        settings={**LOCMEM.settings, "BACKEND": "tests.lab.faulty_warmup.AnswersForAnotherKey"},
    )
    experiment = replace(WARMUP, candidates=[*WARMUP.candidates, wrong], plans={"tiny": TINY})
    names = ["locmem", "shm", "redis-hiredis-unix", "wrong"]
    order = prepare(experiment, RunOptions(plan="tiny", candidates=names, seed=7))
    order = replace(order, candidates=[c for c in order.candidates if not c.twin_of])
    sample = new_sample(order, "a test")
    measure(order, sample, Silent(), lambda sample: None)
    return sample


def test_a_cold_start_is_measured_with_its_parts(sample: Sample) -> None:
    for name in ("locmem", "shm", "redis-hiredis-unix"):
        assert sample.candidates[name].state == "measured", sample.candidates[name].reason
        cold = sample.cells[name, "cold", NO_PAYLOAD]
        assert list(cold.parts) == ["Python", "Django", "backend and client", "first get"]
        parts_ns = sum(series.median for series in cold.parts.values())
        assert cold.points[0][0] == pytest.approx(parts_ns, rel=0.001)
        assert sample.cells[name, "steady_get", NO_PAYLOAD].hits > 0
    assert sample.cells["locmem", "first_get", NO_PAYLOAD].outcomes, "a new process has nothing"
    assert sample.cells["shm", "first_get", NO_PAYLOAD].hits == 1


def test_shared_caches_compute_less_than_one_in_each_process(sample: Sample) -> None:
    computed = {
        name: sample.cells[name, "computed", "traffic"].measures["computations"].median
        for name in ("locmem", "shm")
    }
    assert computed["locmem"] > computed["shm"]


def test_get_or_set_computes_each_key_once(sample: Sample) -> None:
    cell = sample.cells["shm", "computed", "protected"]
    assert cell.points[0][0] == 1
    assert ("redis-hiredis-unix", "computed", "protected") not in sample.cells


def test_a_filling_command_reaches_shared_caches_only(sample: Sample) -> None:
    by_requests = {
        name: sample.cells[name, "computed", "fill"].measures["by requests"].median
        for name in ("locmem", "shm", "redis-hiredis-unix")
    }
    assert by_requests["shm"] == by_requests["redis-hiredis-unix"] == 0
    assert by_requests["locmem"] > 0


def test_memory_is_told_for_what_lives_in_the_processes(sample: Sample) -> None:
    # Three copies against one, and what each process keeps decoded of it: more of small values.
    for operation, times in (("memory_small", 1.2), ("memory_large", 1.5)):
        locmem = sample.cells["locmem", operation, NO_PAYLOAD]
        assert set(locmem.measures) == {"after_fork", "after_reads", "after_writes"}
        shm = sample.cells["shm", operation, NO_PAYLOAD]
        assert locmem.points[0][0] > times * shm.points[0][0]
        assert ("redis-hiredis-unix", operation, NO_PAYLOAD) not in sample.cells


def test_an_answer_for_another_key_voids_the_candidate(sample: Sample) -> None:
    entry = sample.candidates["wrong"]
    assert entry.state == "failed"
    assert not [key for key in sample.cells if key[0] == "wrong"]


def test_the_views_of_the_run_answer_the_comments(sample: Sample) -> None:
    shown = views(Quiet(sample))
    text = " ".join(shown.sentences)
    assert "because every process has to; shared caches" in text
    assert "with get_or_set." in text
    assert "LocMemCache with --preload, 200 kB values" in text
    assert "It does not reach those who answer requests with locmem" in text
    for part in shown.parts:
        assert isinstance(part, Table)
        assert all(len(row) == len(part.head) for row in part.rows), part.title


def requests(*computed: bool) -> list[Request]:
    return [Request(10 * n, 10 * n + 5, n % 3, each) for n, each in enumerate(computed)]


def test_hot_is_when_enough_of_the_last_requests_computed_nothing() -> None:
    found = Refill(requests(True, True, False, False, True, False, False, False, False))
    assert found.hot_ns(4, 1.0) == 85
    assert found.hot_ns(4, 0.5) == 35
    assert found.hot_ns(10, 0.1) is None, "fewer requests than the window say nothing"
    assert Refill(found.requests, filling_ns=1000).hot_ns(4, 1.0) == 1085


def test_answers_count_in_the_order_in_which_they_were_given() -> None:
    late = Request(0, 1000, 0, computed=True)
    assert Refill([late, *requests(False, False, False)]).hot_ns(3, 1.0) == 25


def test_computations_are_counted_with_those_of_the_filling_command() -> None:
    found = Refill(requests(True, True, True, True), filled=[0, 7])
    assert (found.computations, found.keys_computed) == (6, 4)


def test_all_candidates_of_a_round_get_the_same_requests() -> None:
    plans = [plan_of(random.Random("1:round"), 0.5) for _ in range(2)]
    assert plans[0] == plans[1] != plan_of(random.Random("2:round"), 0.5)
    counts = [sum(each.key == key for each in plans[0]) for key in range(KEYS)]
    assert counts[0] > 3 * sum(counts[50:60]) / 10, "the first key is the most wanted"


class Dict(dict[str, Any]):
    """A cache of one process, as small as can be."""

    def set(self, key: str, value: Any, timeout: float) -> None:
        self[key] = value


class Confused(Dict):
    def get(self, key: str) -> Any:  # type: ignore[override]
        return next(iter(self.values()), None)


class Raises(Dict):
    def get(self, key: str) -> Any:  # type: ignore[override]
        raise ConnectionError("the server is gone")


@pytest.mark.parametrize(("cache", "said"), [(Confused, "was answered"), (Raises, "is gone")])
def test_a_wrong_answer_under_traffic_ends_the_round(cache: Any, said: str) -> None:
    shared = cache()
    with pytest.raises(WrongAnswer, match=said):
        refill(lambda: shared, "traffic", "p", 5, random.Random(1))


def test_the_web_processes_end_by_themselves_when_the_round_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = []
    kill = ForkProcess.kill

    def killed(process: ForkProcess) -> None:
        ends.append(process.exitcode)
        kill(process)

    monkeypatch.setattr(ForkProcess, "kill", killed)
    shared = Dict()
    refill(lambda: shared, "traffic", "p", 20, random.Random(1))
    assert ends == [0, 0]


def test_a_round_that_does_not_get_hot_ends_in_time() -> None:
    class Forgets(Dict):
        def set(self, key: str, value: Any, timeout: float) -> None:
            pass

    started = time.monotonic()
    found = refill(Forgets, "traffic", "p", 0.4, random.Random(1))
    assert found.hot_ns(100, 0.9) is None
    assert time.monotonic() - started < 30


FOOTPRINT = """
from nearcache.lab.experiments.warmup import memory

class Store(dict):
    def set(self, key, value, timeout):
        self[key] = value

memory.TOTAL_BYTES = 4_000_000
store = Store()  # each process has its own copy of it after the fork
seen = memory.footprint(lambda: store, "p", 200_000)
print(*map(int, vars(seen).values()), memory.pss_bytes())
"""


def test_the_footprint_of_copies_is_that_of_all_processes() -> None:
    # In a new process, as in a worker: a heap full of holes would take the values for nothing.
    done = subprocess.run(
        [sys.executable, "-c", FOOTPRINT], capture_output=True, text=True, check=True
    )
    each_its_own, after_fork, _, after_writes, pss = map(int, done.stdout.split())
    assert 0.7 * 12_000_000 < each_its_own < 1.5 * 12_000_000
    assert 0.7 * 4_000_000 < after_fork < 1.5 * 4_000_000
    assert after_fork <= after_writes
    assert pss > 1_000_000


def made_up() -> Sample:
    experiment = replace(WARMUP, plans={"tiny": TINY})
    wanted = RunOptions(plan="tiny", candidates=["locmem", "shm"], seed=1)
    sample = new_sample(prepare(experiment, wanted), "made up")
    for name, entry in sample.candidates.items():
        entry.state = "measured"
        is_private = (entry.twin_of or name) == "locmem"
        for payload, by_requests in (("traffic", 200 if is_private else 110), ("fill", 0)):
            left = 200 if is_private else by_requests
            phase = Phase("computed", point=left / 100, calls=1)
            phase.measures = {
                "computations": (left, "count"),
                "keys computed": (100, "count"),
                "by requests": (left, "count"),
                "request, P99": (2e7 if left else 1e6, "ns"),
            }
            sample.cell(name, "computed", payload).add_phase(0, 0, phase)
    return sample


def test_the_sentences_follow_the_numbers() -> None:
    text = " ".join(views(Analysis(made_up())).sentences)
    assert "After a restart locmem computes each key 2.00 times" in text
    assert "shared caches 1.10 times" in text
    assert "spares the requests their computing: shm (0 instead of 110 computations; P99" in text
    assert "1.00 ms, without it 20.0 ms)" in text
    assert "locmem (200 instead of 200 computations): each process has its own cache." in text
