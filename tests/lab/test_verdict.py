"""The sentence, the block and the warnings say what the numbers say, and nothing else."""

from __future__ import annotations

import random
from io import StringIO

from rich.console import Console

from nearcache.lab.advice.verdict import caches_block, recommend
from nearcache.lab.experiments.backends.plan import BACKENDS
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.words import beside
from nearcache.lab.reports.html import render
from nearcache.lab.reports.terminal import print_report
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.report.units import short, us

NAMES = ["diskcache", "filebased", "pymemcache-tcp", "python-memcached-unix"]


def made_up(medians_us: dict[str, float], noise: float = 0.01, **about: object) -> Sample:
    """A sample whose candidates take these times for everything; twins as their originals."""
    order = prepare(BACKENDS, RunOptions(plan="quick", candidates=NAMES, payloads=["S"], seed=1))
    sample = new_sample(order, "made up")
    sample.about |= {"seconds": 1.0, "state": "complete", **about}
    rng = random.Random(4)
    for name, entry in sample.candidates.items():
        middle_us = medians_us.get(entry.twin_of or name)
        if middle_us is None:
            entry.state, entry.reason = "missing", "not part of this story"
            continue
        entry.state = "measured"
        for operation in ("get", "get_fresh", "set", "delete"):
            for repetition in range(3):
                for number in range(4):
                    center = 1000 * middle_us * (1 + rng.uniform(-noise, noise))
                    samples = [int(center * (0.9 + 0.02 * i)) for i in range(11)]
                    cell = sample.cell(name, operation, "S")
                    cell.add_round(repetition, number, samples)
                    cell.calls += len(samples)
    return sample


def test_the_fastest_shared_cache_wins_and_not_the_private_one() -> None:
    sample = made_up({"locmem": 2, "diskcache": 6, "filebased": 12, "pymemcache-tcp": 30})
    advice = recommend(Analysis(sample))
    assert advice.chosen == "diskcache"
    assert "diskcache is fastest: " in advice.sentences[0]
    assert "times the time of locmem" in advice.sentences[0]
    assert "next is filebased with 1" in advice.sentences[0]
    assert "pymemcache-tcp is the only one" in advice.sentences[1]
    assert "each process has its own" in advice.sentences[2]
    assert "90% get, 9% set, 1% delete" in advice.sentences[3]


def test_what_cannot_be_told_apart_is_said_to_be_tied() -> None:
    sample = made_up({"locmem": 2, "filebased": 6, "diskcache": 6.05})
    advice = recommend(Analysis(sample))
    assert "This run cannot tell this from it: diskcache." in advice.sentences[0]


def test_of_those_that_are_tied_the_one_with_fewer_packages_is_taken_and_it_says_why() -> None:
    sample = made_up({"locmem": 2, "diskcache": 6, "filebased": 6.05})
    advice = recommend(Analysis(sample))
    assert advice.chosen == "filebased"
    said = "filebased is taken: it cannot be told from the fastest (diskcache), and it does without"
    assert f"{said} diskcache: 6.0" in advice.sentences[0]


def test_who_looks_much_slower_is_not_taken_however_little_this_run_can_tell() -> None:
    sample = made_up({"locmem": 2, "diskcache": 6, "filebased": 9})
    for name, cell in sample.cells.items():
        if name[0] == "locmem (twin)":
            for rounds in cell.points.values():
                rounds.update({number: value * 2 for number, value in rounds.items()})
    analysis = Analysis(sample)
    fastest, slower = (r for r in analysis.ranking if r.entry.name != "locmem")
    assert analysis.tied_with(fastest, [fastest, slower]) == [slower]
    assert recommend(analysis).chosen == "diskcache"


def test_what_exists_only_for_comparison_is_never_recommended() -> None:
    sample = made_up({"locmem": 20, "python-memcached-unix": 1, "filebased": 12})
    assert recommend(Analysis(sample)).chosen == "filebased"


def test_a_faster_one_is_called_faster() -> None:
    sample = made_up({"locmem": 20, "diskcache": 2})
    assert "times as fast as locmem" in recommend(Analysis(sample)).sentences[0]


def test_without_a_shared_cache_nothing_is_recommended() -> None:
    advice = recommend(Analysis(made_up({"locmem": 2})))
    assert advice.caches_block == ""
    assert "nothing to recommend" in advice.sentences[0]


def test_a_cache_that_keeps_copies_is_said_to_do_so() -> None:
    sample = made_up({"locmem": 2, "diskcache": 6})
    fresh = sample.cells["diskcache", "get_fresh", "S"]
    fresh.histograms.clear()
    fresh.points.clear()
    fresh.count = fresh.sum = fresh.sum_squares = 0
    fresh.add_round(0, 0, [18_000] * 20)
    fresh.calls = 20
    assert any("keeps what it has decoded" in s for s in recommend(Analysis(sample)).sentences)


def test_loud_noise_an_interruption_and_a_busy_machine_are_said_first() -> None:
    times = {"locmem": 2.0, "diskcache": 6.0}
    sample = made_up(times, 0.6, state="interrupted", load_before=3.0, steal_share=0.05)
    said = " ".join(recommend(Analysis(sample)).warnings)
    for part in ("interrupted", "Noisy", "busy", "other guests"):
        assert part in said
    assert not recommend(Analysis(made_up(times, load_before=0.1))).warnings


def test_twins_set_the_floor_of_their_own_kind() -> None:
    sample = made_up({"locmem": 2, "pymemcache-tcp": 30, "diskcache": 6}, noise=0.001)
    twin = sample.cells["pymemcache-tcp (twin)", "get", "S"]
    for rounds in twin.points.values():
        rounds.update({number: value * 1.5 for number, value in rounds.items()})
    floors = Analysis(sample).floors
    assert floors["process"] < 0.04
    assert floors["server"] > 0.3


def test_pairs_that_differ_in_one_thing_are_set_side_by_side() -> None:
    sample = made_up({"locmem": 2, "diskcache": 6, "filebased": 12})
    sample.about["contrasts"] = {
        "this or that": [["diskcache", "filebased"], ["diskcache", "locmem"]],
        "not measured": [["diskcache", "pymemcache-tcp"]],
    }
    assert list(Analysis(sample).contrasts) == ["this or that"]
    faster, slower = Analysis(sample).contrasts["this or that"]
    assert beside(faster.effect, faster.verdict, "filebased").startswith(("2.0", "1.9"))
    assert beside(faster.effect, faster.verdict, "filebased").endswith("as fast as filebased")
    assert beside(slower.effect, slower.verdict, "locmem").endswith("the time of locmem")


def test_the_block_names_what_to_install() -> None:
    sample = made_up({"locmem": 20, "diskcache": 2})
    rank = Analysis(sample).ranking[0]
    assert caches_block(rank).startswith("# pip install diskcache\n")


def test_reports_of_a_run_without_any_number_still_say_why() -> None:
    sample = made_up({})
    analysis = Analysis(sample)
    assert "not part of this story" in render(analysis)
    console = Console(width=80, file=StringIO())
    print_report(analysis, console)
    assert isinstance(console.file, StringIO)
    assert "not part of this story" in console.file.getvalue()


def test_numbers_have_three_digits_at_every_size() -> None:
    assert [short(x) for x in (0, 0.0123, 0.123, 1.234, 12.34, 123.4, 1234.0, 12345.0)] == [
        "0", "0.012", "0.123", "1.23", "12.3", "123", "1234", "12,345",
    ]  # fmt: skip
    assert us(1500) == "1.50"


def test_the_count_and_the_ties_include_who_may_not_be_recommended() -> None:
    sample = made_up({"locmem": 2, "pymemcache-tcp": 6, "python-memcached-unix": 6.05})
    sample.candidates["python-memcached-unix"].recommendable = False
    first = recommend(Analysis(sample)).sentences[0]
    assert "Of the 1 that may be recommended, of 2 measured that all processes" in first
    assert "cannot tell this from it: python-memcached-unix." in first
