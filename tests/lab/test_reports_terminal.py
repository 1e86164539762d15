"""The terminal report of every shape of experiment: it fits, names units, says what is void."""

from __future__ import annotations

import re
from functools import cache
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from nearcache.lab.experiments import registry as experiments
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.words import TIMES, TO
from nearcache.lab.reports.parts import views_of
from nearcache.lab.reports.terminal import print_report
from nearcache.lab.results.sample import Sample
from nearcache.lab.views import Views
from nearcache.report.plots import LEVELS

from .made_up import HOSTILE, candidate, crowd, endings, experiment, fill, measured, rates, sizes


@cache
def forty() -> Sample:
    """Made once; nobody changes it."""
    return crowd(40)


SHAPES = {"crowd": forty, "rates": rates, "sizes": sizes, "endings": endings}


def printed(sample: Sample, width: int = 100, colours: bool = False, **asked: Any) -> str:
    file = StringIO()
    system = "standard" if colours else None
    console = Console(width=width, file=file, color_system=system, force_terminal=colours)
    print_report(Analysis(sample), console, **asked)
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_report_fits_and_nothing_in_it_is_cut_off(shape: str, width: int) -> None:
    sample = SHAPES[shape]()
    text = printed(sample, width)
    assert max(map(len, text.splitlines())) <= width
    for name, entry in sample.candidates.items():
        if not entry.twin_of:
            assert name in text


def test_forty_candidates_have_bars_of_one_scale_groups_and_parts() -> None:
    text = printed(forty())
    bars = re.findall(r"^serializer\d-compressor\d +(█+\S?) ([\d.]+) µs$", text, re.MULTILINE)
    assert len(bars) == 40
    lengths = [len(blocks) for blocks, _ in bars]
    assert lengths == sorted(lengths), "shorter is better, and the shortest comes first"
    assert "Groups that this run can tell apart\n  1. serializer0-compressor0, serializer0-" in text
    assert "█ encode  ▓ wait  ▒ decode" in text


def test_the_overview_names_the_unit_of_each_column_and_says_how_to_see_the_rest() -> None:
    text = printed(crowd(6))
    head = text[text.index("Median of the rounds") :].splitlines()[1:4]
    assert head[0].split() == ["get", "get", "set", "set"]
    assert head[1].split() == ["S", "F", "S", "F"]
    assert head[2].split() == ["µs", "µs", "µs", "ms"]
    assert "lab report FILE --operation O --payload P" in text


def test_the_course_of_the_rounds_is_drawn_beside_the_numbers() -> None:
    lines = [line for line in printed(crowd(4)).splitlines() if "serializer0-compressor1" in line]
    assert any(set(line) & set(LEVELS[:-1]) for line in lines)


def test_a_throughput_is_printed_as_a_rate_beside_the_time_it_is_kept_as() -> None:
    text = printed(rates())
    assert "rate," in text
    assert "20.0 µs = 50.0 k/s" in text
    assert "timeout 33.3%" in text
    assert "fairness" in text
    assert "0.930" in text


def test_bytes_without_samples_have_a_table_and_bars_of_their_own() -> None:
    text = printed(sizes())
    assert re.search(r"^hash-5000 +█+\S? 45.0 B$", text, re.MULTILINE)
    section = text[text.index("bytes per key: a million keys (M), B") :]
    assert "median" not in section.splitlines()[1], "rounds of one number have no percentiles"


def test_what_has_no_answers_has_its_endings_and_no_verdict() -> None:
    text = printed(endings())
    assert "raises ConnectionError 90.0%, blocks 10.0%" in text
    assert "nothing to recommend" not in text
    assert "CACHES" not in text


def test_a_claim_says_then_now_and_why() -> None:
    text = printed(crowd(4))
    assert "001: the second takes 16.7 times as long\n  the article said 16.7" in text
    here = f"here 1.00{TIMES} (1.00{TO}1.00): no difference. Known: both run the same code now."
    assert here in text


def test_the_badge_counts_the_rules_and_says_which_are_not_kept() -> None:
    text = printed(crowd(4))
    assert re.search(r"^\d+ of \d+ rules of evidence hold\.$", text, re.MULTILINE)
    assert "not kept: fresh processes: 3 sets of fresh processes, 5 are wanted" in text


def test_what_is_void_is_grey_says_why_and_has_no_ratio() -> None:
    sample = crowd(4)
    sample.about["steal_share"] = 0.2
    text = printed(sample)
    assert "VOID: no time is stolen" in text
    assert "void: the hypervisor gave 20.0%" in text.replace("\n", " ")
    assert "An average operation" not in text
    rows = re.findall(r"^serializer0-compressor1 +\(.*$", text, re.MULTILINE)
    assert rows
    assert all("void" in row for row in rows[1:2])


def test_names_with_markup_in_them_are_printed_as_they_are() -> None:
    sample = measured(experiment("made-up-hostile", [candidate("plain"), candidate(HOSTILE)]))
    fill(sample, {"plain": 1000, HOSTILE: 2000})
    assert HOSTILE[:20] in printed(sample, colours=True)


def test_a_view_that_fails_says_so_and_takes_nothing_else_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sample = sizes()
    broken = SimpleNamespace(name="made-up-sizes", compares=(), views=f"{__name__}.no_such_module")
    monkeypatch.setitem(experiments.EXPERIMENTS, "made-up-sizes", broken)  # type: ignore[arg-type]
    text = printed(sample)
    assert "What only made-up-sizes shows cannot be drawn: ModuleNotFoundError" in text
    assert "hash-5000" in text
    assert views_of(Analysis(endings())) == Views(), "it is no experiment of the registry"
