"""Visits that other guests had much of are repeated or left out; too many void a candidate."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain, count, repeat

import pytest

from nearcache.lab.arms.candidates import LOCMEM
from nearcache.lab.base.messages import Phase, Visited
from nearcache.lab.base.model import Plan
from nearcache.lab.checks.rules import badge, voided
from nearcache.lab.experiments.backends.plan import BACKENDS
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.reports import tables
from nearcache.lab.results import machine
from nearcache.lab.results.merging import merge
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.driver import measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.lab.timers.stolen import HELD_MOST, Pressure, StolenTime, steal_share

from .conftest import Silent
from .made import experiment, sample_of, steady


def machine_losing(shares: Iterable[float]) -> Callable[[], Pressure]:
    """A machine of which other guests take these shares, one between any two looks."""
    left = iter(shares)
    steal = everything = 0

    def look() -> Pressure:
        nonlocal steal, everything
        steal, everything = steal + int(1000 * next(left)), everything + 1000
        return {"load": 0.1, "swapped_pages": 0, "steal_ticks": steal, "all_ticks": everything}

    return look


def kept_of(attempts: list[list[float]]) -> tuple[list[tuple[int, int]], dict[str, object]]:
    """For each visit what its attempts lose. Which visits were kept, and by which attempt."""
    kept: list[tuple[int, int]] = []
    # Nothing is lost between the end of one attempt and the start of the next.
    looks = [share for visit in attempts for lost in visit for share in (0.0, lost)]

    def record(_name: str, _payload: str, visited: Visited, at: tuple[int, int]) -> None:
        kept.append((at[1], int(visited.phases[0].samples[0])))

    stolen = StolenTime(record, machine_losing(looks))
    for number in range(len(attempts)):
        answer, share = stolen.ask("a", lambda attempt: attempt)
        visited = Visited([Phase("get", samples=array("Q", [answer]))])
        stolen.take(("a", "S", visited, (0, number)), share)
    return kept, stolen.close()


def test_a_visit_that_was_stolen_from_is_made_again() -> None:
    kept, about = kept_of([[0.0], [0.01], [0.08, 0.0], [0.0]])
    assert kept == [(0, 0), (1, 0), (2, 1), (3, 0)]
    assert about["steal_visits"] == {"a": [4, 1, 0]}
    assert about["steal_share"] == pytest.approx(0.01 / 4)


def test_stolen_from_twice_it_is_left_out_and_counted() -> None:
    kept, about = kept_of([[0.0], [0.01], [0.08, 0.06], [0.0]])
    assert kept == [(0, 0), (1, 0), (3, 0)]
    assert about["steal_visits"] == {"a": [4, 1, 1]}


def test_where_it_would_be_more_than_a_third_everything_is_kept_to_be_seen() -> None:
    kept, about = kept_of([[0.06, 0.06], [0.0], [0.08, 0.07], [0.0]])
    assert sorted(number for number, _ in kept) == [0, 1, 2, 3]
    assert about["steal_visits"] == {"a": [4, 2, 2]}


def test_what_is_kept_for_that_is_bounded() -> None:
    kept, about = kept_of([[0.06, 0.06]] * (HELD_MOST + 5))
    assert len(kept) == HELD_MOST
    assert about["steal_visits"] == {"a": [HELD_MOST + 5] * 3}


def test_the_cpu_that_measures_counts_for_itself_and_a_single_tick_does_not() -> None:
    none = {"steal_ticks": 0, "all_ticks": 0, "cpu_steal_ticks": 0, "cpu_all_ticks": 0}
    many = {"steal_ticks": 10, "all_ticks": 6400, "cpu_steal_ticks": 10, "cpu_all_ticks": 100}
    assert steal_share(none, many) == pytest.approx(0.1)
    assert steal_share(none, {**many, "steal_ticks": 1, "cpu_steal_ticks": 1}) == 0
    assert steal_share(none, none) == 0


def test_the_kernel_is_asked_for_the_measuring_cpu_and_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpu = machine.measuring_cpu()
    stat = f"cpu  10 0 10 70 0 0 0 10 0 0\ncpu{cpu} 1 0 1 3 0 0 0 5 0 0\nintr 1 2\n"
    monkeypatch.setattr(machine, "_read", lambda path: stat if path == "/proc/stat" else "")
    found = machine.pressure()
    assert (found["steal_ticks"], found["all_ticks"]) == (10, 100)
    assert (found["cpu_steal_ticks"], found["cpu_all_ticks"]) == (5, 10)
    monkeypatch.setattr(machine, "_read", lambda _path: "")
    assert machine.pressure()["all_ticks"] == 0


def with_visits(visits: dict[str, list[int]]) -> Sample:
    sample = sample_of(experiment("a", "b", mix={"get": 1.0}), steady({"a": 1e3, "b": 2e3}))
    sample.about |= {"steal_visits": visits, "steal_share": 0.004}
    return sample


def said_of(sample: Sample) -> tuple[str, str]:
    (check,) = [c for c in badge(Analysis(sample)) if c.name == "no time is stolen"]
    return check.status, check.text


def test_few_visits_left_out_leave_a_run_that_counts_and_the_report_shows_them() -> None:
    sample = with_visits({"a": [20, 5, 2], "b": [20, 1, 0]})
    assert not voided(sample)
    status, text = said_of(sample)
    assert status == "passed"
    assert text.startswith("the hypervisor gave other guests 0.4% of a visit; of 40 visits, ")
    assert text.endswith("6 with more than 5% were made again and 2 left out")
    assert said_of(with_visits({"a": [9, 0, 0]}))[1].endswith("other guests 0.4% of a visit")
    assert "2 visits left out: time was stolen" in tables.rounds_line(Analysis(sample))


def test_more_than_a_third_voids_that_candidate_and_no_other() -> None:
    sample = with_visits({"a": [20, 5, 1], "b": [20, 12, 8]})
    assert [(f.rule, f.candidate) for f in voided(sample)] == [("no time is stolen", "b")]
    assert "in 8 of 20 visits it took more than 5%, twice" in said_of(sample)[1]


def test_merged_runs_are_judged_by_the_visits_of_both() -> None:
    bad, good = with_visits({"a": [3, 2, 2]}), with_visits({"a": [9, 0, 0], "b": [9, 1, 0]})
    merged = merge([good, bad])
    assert merged.about["steal_visits"] == {"a": [12, 2, 2], "b": [9, 1, 0]}
    assert not voided(merged)


def measured(shares: Iterable[float]) -> Sample:
    """A real run of locmem and its twin on a machine that loses such shares."""
    plan = Plan(repetitions=1, rounds=4, phase_ms=0.3, time_limit_s=3600)
    locmem = next(c for c in BACKENDS.candidates if c.settings == LOCMEM.settings)
    asked = replace(BACKENDS, candidates=[locmem], plans={"t": plan})
    order = prepare(asked, RunOptions(plan="t", payloads=("S",), operations=("get", "set"), seed=7))
    sample = new_sample(order, "a test")
    measure(order, sample, Silent(), lambda _: None, machine_losing(shares))
    return sample


def test_a_run_loses_the_pair_of_a_visit_in_which_time_was_stolen_twice() -> None:
    # One look before the run, two for each visit of which there are two a round. The fourth
    # visit, in the second round, has two attempts.
    sample = measured(chain([0.0] * 8, [0.3, 0.0, 0.3], repeat(0.0)))
    counts = sample.about["steal_visits"]
    assert sorted(counts.values()) == [[4, 0, 0], [4, 1, 1]]
    for name, (_, _, left_out) in counts.items():
        cell = sample.cells[name, "get", "S"]
        assert set(cell.points[0]) == ({0, 2, 3} if left_out else {0, 1, 2, 3})
    assert not [finding for finding in voided(sample) if finding.rule == "no time is stolen"]


def test_a_run_on_a_machine_without_time_has_grey_numbers_and_says_why() -> None:
    rng = random.Random(1)
    sample = measured(rng.uniform(0.1, 0.3) for _ in count())
    assert len(sample.rounds) == 4
    assert {counts[2] for counts in sample.about["steal_visits"].values()} == {4}
    assert "no time is stolen" in {finding.rule for finding in voided(sample)}
    assert Analysis(sample).ranking == []
