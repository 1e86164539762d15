"""Rounds of which other guests had much are left out, counted and shown; too many void the run."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from nearcache.lab import machine
from nearcache.lab.analysis import Analysis
from nearcache.lab.candidates import LOCMEM
from nearcache.lab.driver import measure
from nearcache.lab.experiments.backends import BACKENDS
from nearcache.lab.laboratory import Wish, new_sample, prepare
from nearcache.lab.merging import merge
from nearcache.lab.messages import Phase, Visited
from nearcache.lab.model import Plan
from nearcache.lab.reports import tables
from nearcache.lab.rules import badge, voided
from nearcache.lab.sample import Sample
from nearcache.lab.stolen import Pressure, Rounds, steal_share

from .conftest import Silent
from .made import experiment, sample_of, steady

At = tuple[int, int]


def pressures(shares: list[float]) -> Callable[[], Pressure]:
    """A machine of which other guests take these shares, one between any two looks of a round."""

    def look() -> Iterator[Pressure]:
        steal = everything = 0
        for share in shares:
            yield {"steal_ticks": steal, "all_ticks": everything}
            steal, everything = steal + int(1000 * share), everything + 1000
            yield {"steal_ticks": steal, "all_ticks": everything}

    looks = look()
    return lambda: next(looks)


def kept_of(shares: list[float]) -> tuple[list[int], dict[str, object]]:
    kept: list[int] = []

    def record(_name: str, _payload: str, _visited: Visited, at: At) -> None:
        kept.append(at[1])

    rounds = Rounds(record, pressures(shares))
    for number in range(len(shares)):
        with rounds.round():
            rounds.take("a", "S", Visited([Phase("get", samples=array("Q", [1]))]), (0, number))
    return kept, rounds.close()


def test_a_round_with_much_stolen_time_is_discarded_and_counted() -> None:
    kept, about = kept_of([0.0, 0.01, 0.08, 0.0])
    assert kept == [0, 1, 3]
    assert about["discarded_rounds"] == 1
    assert about["steal_rounds"] == [0.0, 0.01, 0.08, 0.0]


def test_where_it_would_be_more_than_a_third_everything_is_kept_to_be_seen() -> None:
    kept, about = kept_of([0.05, 0.0, 0.08, 0.0])
    assert sorted(kept) == [0, 1, 2, 3]
    assert about["discarded_rounds"] == 0


def test_a_round_that_is_interrupted_keeps_what_it_has() -> None:
    kept: list[str] = []
    rounds = Rounds(lambda name, *_: kept.append(name), pressures([0.0, 0.0]))
    with suppress(KeyboardInterrupt), rounds.round():
        rounds.take("a", "S", Visited([]), (0, 0))
        raise KeyboardInterrupt
    with rounds.round():
        pass  # interrupted before anybody answered: no round
    assert kept == ["a"]
    assert rounds.close()["steal_rounds"] == [0.0]


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


def with_rounds(shares: list[float], discarded: int) -> Sample:
    sample = sample_of(experiment("a", "b", mix={"get": 1.0}), steady({"a": 1e3, "b": 2e3}))
    sample.about |= {"steal_rounds": shares, "discarded_rounds": discarded, "steal_share": 0.02}
    return sample


def said_of(sample: Sample) -> tuple[str, str]:
    (check,) = [c for c in badge(Analysis(sample)) if c.name == "no time is stolen"]
    return check.status, check.text


def test_few_discarded_rounds_leave_a_run_that_counts_and_the_report_shows_them() -> None:
    sample = with_rounds([0.0] * 20 + [0.2], discarded=1)
    assert not voided(sample)
    status, text = said_of(sample)
    assert status == "passed"
    assert text.startswith("in 1 of 21 rounds the hypervisor gave more than 2%")
    assert "were discarded, and of the rest it gave at most 0.0%" in text
    assert said_of(with_rounds([0.0, 0.01], 0))[1].endswith("other guests at most 1.0% of a round")
    assert "1 more discarded: time was stolen" in tables.rounds_line(Analysis(sample))


def test_more_than_a_third_voids_the_run() -> None:
    sample = with_rounds([0.0] * 12 + [0.2] * 8, discarded=0)
    assert [finding.rule for finding in voided(sample)] == ["no time is stolen"]
    assert said_of(sample)[1].endswith("in 8 of 20 rounds the hypervisor gave more than 2% of the "
                                       "time to other guests, up to 20.0%")  # fmt: skip


def test_merged_runs_are_judged_by_the_rounds_of_both() -> None:
    bad, good = with_rounds([0.2, 0.2, 0.0], 0), with_rounds([0.0] * 9, 0)
    merged = merge([good, bad])
    assert len(merged.about["steal_rounds"]) == 12
    assert not voided(merged)


def measured(shares: Callable[[], float]) -> Sample:
    """A real run on a machine that loses as much time in each round as ``shares`` says."""
    steal = everything = 0

    def look() -> Pressure:
        nonlocal steal, everything
        steal, everything = steal + int(1000 * shares()), everything + 1000
        return {"load": 0.1, "swapped_pages": 0, "steal_ticks": steal, "all_ticks": everything}

    plan = Plan(repetitions=1, rounds=4, phase_ms=0.3, time_limit_s=30)
    locmem = next(c for c in BACKENDS.candidates if c.settings == LOCMEM.settings)
    asked = BACKENDS.__class__(**{**vars(BACKENDS), "candidates": [locmem], "plans": {"t": plan}})
    order = prepare(asked, Wish(plan="t", payloads=("S",), operations=("get", "set"), seed=7))
    sample = new_sample(order, "a test")
    measure(order, sample, Silent(), lambda _: None, look)
    return sample


def test_a_run_leaves_out_the_round_in_which_time_was_stolen() -> None:
    # One look before the run, two for each round, one after: the fifth ends the second round.
    looks = iter([0, 0, 0, 0, 0.3, 0, 0, 0, 0, 0])
    sample = measured(lambda: next(looks))
    assert sample.about["discarded_rounds"] == 1
    assert {number for _, number in sample.rounds} == {0, 2, 3}
    cell = sample.cells["locmem", "get", "S"]
    assert set(cell.points[0]) == {0, 2, 3}
    assert not [finding for finding in voided(sample) if finding.rule == "no time is stolen"]


def test_a_run_on_a_machine_without_time_has_grey_numbers_and_says_why() -> None:
    sample = measured(lambda: random.Random(1).uniform(0.1, 0.3))
    assert len(sample.rounds) == 4
    assert sample.about["discarded_rounds"] == 0
    assert "no time is stolen" in {finding.rule for finding in voided(sample)}
    assert Analysis(sample).ranking == []
