"""The model of a link, its judgement of itself, and the map it draws."""

from __future__ import annotations

import math

import pytest

from nearcache.lab.experiments.codecs.break_even import (
    bits_per_s,
    grids,
    model_sentences,
    plain_twin,
    threshold_sentences,
    thresholds,
)
from nearcache.lab.experiments.codecs.link_model import (
    arms,
    break_even_bytes_per_s,
    measured_link,
    misses,
    tied,
)
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.timers.link import FIRST_WINDOW_BYTES, Link

from .codecs_made_up import BASE, HERE, PLAIN, SIZES, ZLIB, codecs_sample

GIGABIT = 1e9 / 8


def test_a_call_takes_its_round_trip_and_its_bytes() -> None:
    assert Link(1000.0, 1e9).way_ns(500) == pytest.approx(1500)


def test_an_idle_connection_waits_once_for_every_window_it_has_to_open() -> None:
    link = Link(1e6, GIGABIT, starts_slowly=True)
    stream_ns = FIRST_WINDOW_BYTES / GIGABIT * 1e9
    assert link.way_ns(FIRST_WINDOW_BYTES) == pytest.approx(1e6 + stream_ns)
    # One byte more, and the sender has to hear from the receiver first.
    assert link.way_ns(FIRST_WINDOW_BYTES + 1) == pytest.approx(2e6, rel=0.001)
    # Windows of 1, 2 and 4: three waits for a fourth flight.
    assert link.way_ns(7 * FIRST_WINDOW_BYTES + 1) == pytest.approx(4e6, rel=0.001)


def test_a_pipe_that_is_full_makes_nobody_wait() -> None:
    narrow = Link(1e6, 1e5, starts_slowly=True)  # a window takes longer than the round trip
    assert narrow.way_ns(10**6) == pytest.approx(1e6 + 10**6 / 1e5 * 1e9)


def test_the_link_is_read_from_what_all_candidates_measured() -> None:
    link = measured_link(Analysis(codecs_sample()))
    assert link is not None
    assert link.rtt_ns == pytest.approx(HERE.rtt_ns, rel=0.02)
    assert link.bytes_per_s == HERE.bytes_per_s


def test_here_the_model_says_what_was_measured() -> None:
    analysis = Analysis(codecs_sample())
    here = measured_link(analysis)
    assert here
    for arm in arms(analysis, "D", here):
        name = arm.entry.name
        rows = {row.entry.name: row.cost for row in analysis.rows("get", "D")}
        assert arm.own_ns["get"] + here.way_ns(arm.wire_bytes["get"]) == pytest.approx(rows[name])


def test_a_narrow_link_favours_the_compressor_and_a_wide_one_does_not() -> None:
    analysis = Analysis(codecs_sample())
    here = measured_link(analysis)
    assert here
    field = [arm for arm in arms(analysis, "D", here) if arm.entry.name in (PLAIN, ZLIB)]
    shares = analysis.mix_shares
    assert tied(field, Link(HERE.rtt_ns, 1e6), shares)[0].entry.name == ZLIB
    assert tied(field, Link(HERE.rtt_ns, 1e10), shares)[0].entry.name == PLAIN
    plain, packed = sorted(field, key=lambda arm: arm.entry.name != PLAIN)
    edge = break_even_bytes_per_s(packed, plain, shares)
    for factor, first in ((0.9, ZLIB), (1.1, PLAIN)):
        link = Link(HERE.rtt_ns, edge * factor)
        assert min(field, key=lambda arm: arm.cost_ns(link, shares)).entry.name == first


def test_of_those_that_are_equally_fast_the_simplest_comes_first() -> None:
    analysis = Analysis(codecs_sample())
    here = measured_link(analysis)
    assert here
    far = Link(1e9, 1e9)  # a second: all the rest is nothing
    found = tied(arms(analysis, "D", here), far, analysis.mix_shares)
    assert len(found) == len(arms(analysis, "D", here))
    assert found[0].compressor == "none"


def test_the_model_is_asked_for_what_is_known() -> None:
    analysis = Analysis(codecs_sample())
    here = measured_link(analysis)
    assert here
    good = misses(analysis, here)
    assert good
    assert max(miss.size for miss in good) < math.log(1.1)
    # A library that adds another amount for each payload is one the model does not know.
    sample = codecs_sample()
    for cell in sample.cells.values():
        if cell.operation == "get" and cell.payload == "D":
            for rounds in cell.points.values():
                rounds.update({number: value * 3 for number, value in rounds.items()})
    bad = Analysis(sample)
    assert max(miss.size for miss in misses(bad, here)) > math.log(1.5)
    assert "the worst is" in model_sentences(bad)[1]


def test_the_map_has_a_word_for_every_field_and_marks_the_reader() -> None:
    sample = codecs_sample((BASE, PLAIN, ZLIB))
    found = {grid.title: grid for grid in grids(Analysis(sample))}
    grid = found["Which codec for 20 kB JSON document (D), of nearcache redis"]
    assert len(grid.words) == len(grid.rows)
    assert {len(row) for row in grid.words} == {len(grid.columns)}
    assert grid.words[0][0] == "auto-zlib"
    assert grid.words[0][-1] == "auto"
    assert grid.words[-1][-1] == "auto-zlib", "it fits into the first window, and saves a flight"
    small = found["Which codec for small dict (S), of nearcache redis"]
    assert small.words[-1][-1] == "any", "over 20 ms nobody can tell them apart"
    assert grid.here == (0, len(grid.columns) - 1)
    sample.about["link"] = {"rtt_ns": 1e6, "bytes_per_s": 1.25e7}
    assert grids(Analysis(sample))[0].here == (2, 1)


def test_a_noisy_run_gets_no_map_but_is_told_so() -> None:
    analysis = Analysis(codecs_sample(twin_factor=1.6))
    assert grids(analysis) == []
    assert any("No map is drawn" in sentence for sentence in model_sentences(analysis))


def test_thresholds_are_beside_the_same_serializer() -> None:
    analysis = Analysis(codecs_sample())
    assert plain_twin(analysis, ZLIB) == PLAIN
    assert plain_twin(analysis, PLAIN) is None
    table = thresholds(analysis)
    assert table
    row = next(row for row in table.rows if row[0] == ZLIB)
    assert dict(zip(table.head, row, strict=True))["T"] == "never", (
        f"{SIZES['T']} stays {SIZES['T']}"
    )


def test_a_table_of_thresholds_has_no_empty_row_or_column() -> None:
    sample = codecs_sample()
    for key in [key for key in sample.cells if key[0] == ZLIB and key[2] == "S"]:
        del sample.cells[key]
    analysis = Analysis(sample)
    table = thresholds(analysis)
    assert table
    assert table.head == ["", "T", "D"]
    assert [row[0] for row in table.rows] == [ZLIB]
    assert threshold_sentences(analysis) == []


def test_where_no_compressor_pays_or_nothing_is_known_there_is_a_sentence_and_no_table() -> None:
    unknown = codecs_sample()
    for key in [key for key in unknown.cells if key[0] == ZLIB]:
        del unknown.cells[key]
    never = codecs_sample()
    for key in [key for key in never.cells if key[2] == "D"]:
        del never.cells[key]
    for sample, said in ((unknown, "is not known: of no pair"), (never, "pays at no bandwidth")):
        analysis = Analysis(sample)
        assert thresholds(analysis) is None
        (sentence,) = threshold_sentences(analysis)
        assert said in sentence
    without = Analysis(codecs_sample((BASE, PLAIN)))
    assert thresholds(without) is None
    assert threshold_sentences(without) == []


def test_bandwidth_is_written_as_networks_are_sold() -> None:
    assert [bits_per_s(rate) for rate in (125, 1.25e6, GIGABIT)] == [
        "1 kbit/s", "10 Mbit/s", "1 Gbit/s",
    ]  # fmt: skip
