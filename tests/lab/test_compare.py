"""Two runs: what became slower is found, what is noise is not, and unlike things are refused."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from nearcache.errors import LabError
from nearcache.lab.checks.findings import Finding
from nearcache.lab.judging.compare import (
    OVERALL,
    Comparison,
    _left_out,
    compare,
    independent_effect,
)
from nearcache.lab.reports.compared import render_html, render_markdown, summary
from nearcache.lab.results.merging import merge
from nearcache.lab.results.sample import Sample
from nearcache.lab.statistics.stats import LEAST_FLOOR

from .made_up import HOSTILE, crowd, endings, rates, sizes
from .test_cli import lab_here

CHANGED = "serializer0-compressor2"
Factor = Callable[[str, str], float]


def again(factor: Factor, count: int = 4, noise: float = 0.01, seed: int = 5) -> Sample:
    """Another run: every cell costs this many times what it did, give or take the noise."""
    sample = crowd(count, seed=seed)
    rng = random.Random(seed)
    for (name, operation, _), cell in sample.cells.items():
        change = factor(sample.candidates[name].twin_of or name, operation)
        for rounds in cell.points.values():
            for number in rounds:
                rounds[number] *= change * (1 + rng.uniform(-noise, noise))
    return sample


def same(_name: str, _operation: str) -> float:
    return 1.0


def found_in(comparison: Comparison, name: str, operation: str) -> list[str]:
    return [
        pair.verdict
        for pair in comparison.pairs
        if pair.candidate == name and pair.operation == operation
    ]


def test_what_became_slower_is_found_and_nothing_else() -> None:
    after = again(lambda name, operation: 1.3 if (name, operation) == (CHANGED, "get") else 1.0)
    comparison = compare(crowd(4), after)
    assert found_in(comparison, CHANGED, "get") == ["slower", "slower"]
    assert found_in(comparison, CHANGED, OVERALL) == ["slower"]
    slower = comparison.having("slower")
    assert {pair.candidate for pair in slower} == {CHANGED}
    (pair,) = (pair for pair in slower if (pair.operation, pair.payload) == ("get", "S"))
    assert pair.effect.low < 1.3 < pair.effect.high
    assert pair.after / pair.before == pytest.approx(1.3, rel=0.02)
    assert f"Worst: {CHANGED}" in " ".join(summary(comparison))


def test_what_became_faster_is_not_called_slower() -> None:
    comparison = compare(crowd(4), again(lambda name, _: 0.7 if name == CHANGED else 1.0))
    assert not comparison.having("slower")
    assert {pair.candidate for pair in comparison.having("faster")} == {CHANGED}


def test_a_run_beside_itself_is_the_same_everywhere() -> None:
    comparison = compare(crowd(4), crowd(4))
    assert {pair.verdict for pair in comparison.pairs} == {"same"}
    assert not comparison.changes


@pytest.mark.parametrize("seed", range(5))
def test_forty_candidates_of_nothing_but_noise_have_no_finding(seed: int) -> None:
    comparison = compare(crowd(10), again(same, count=10, noise=0.05, seed=seed))
    assert not comparison.having("slower")
    assert not comparison.having("faster")


def test_the_coarser_noise_floor_of_both_runs_counts() -> None:
    after = again(lambda name, _: 1.2 if name == CHANGED else 1.0)
    for (name, operation, payload), cell in after.cells.items():
        if name.endswith("(twin)"):
            for rounds in cell.points.values():
                rounds.update({number: value * 1.5 for number, value in rounds.items()})
        assert operation
        assert payload
    assert compare(crowd(4), again(lambda n, _: 1.2 if n == CHANGED else 1.0)).having("slower")
    assert not compare(crowd(4), after).having("slower")


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(2)
    held = 0
    for _ in range(200):
        a, b = (
            {
                repetition: {number: math.exp(rng.gauss(0, 0.05)) for number in range(8)}
                for repetition in range(5)
            }
            for _ in range(2)
        )
        effect = independent_effect(a, b, LEAST_FLOOR)
        held += effect.log_low <= 0 <= effect.log_high
    assert held >= 186, "of 200 at 95 %, give or take two standard deviations and a little"


def test_what_differs_between_runs_widens_the_interval_of_several() -> None:
    def runs(*factors: float) -> Sample:
        return merge([again(lambda *_, f=factor: f, seed=7, noise=0) for factor in factors])

    single = compare(runs(1.0), runs(1.0))
    several = compare(runs(0.9, 1.0, 1.1), runs(0.9, 1.0, 1.1))
    width = [
        max(pair.effect.log_high - pair.effect.log_low for pair in comparison.cells)
        for comparison in (single, several)
    ]
    assert width[1] > 2 * width[0]
    assert single.single_runs
    assert not several.single_runs
    assert "single run" in " ".join(summary(single))


def test_it_says_what_else_changed_and_leaves_out_ports_and_directories() -> None:
    before, after = crowd(4), again(same)
    after.about["machine"] = {**after.about["machine"], "kernel": "9.9", "clock_overhead_ns": 999}
    after.about["versions"] = {**after.about["versions"], "redis": "99.1"}
    after.about["plan"] = {**after.about["plan"], "rounds": 77}
    for sample, port in ((before, 40001), (after, 40002)):
        proof = {"socket": f"tcp 127.0.0.1:{port}", "file": f"/dev/shm/nearcache-lab-{port}-x/db"}
        sample.candidates[CHANGED].proof |= proof
    after.candidates[CHANGED].proof["parser"] = "another"
    changes = {
        change.what: (change.before, change.after) for change in compare(before, after).changes
    }
    assert changes["machine: kernel"][1] == "9.9"
    assert changes["versions: redis"][1] == "99.1"
    assert changes["plan: rounds"] == ("4", "77")
    assert changes[f"proof: parser of {CHANGED}"] == ("none", "another")
    assert len(changes) == 4


@pytest.mark.parametrize("name", ["cpu_model", "cpus", "memory_bytes", "architecture"])
def test_unlike_machines_are_refused_unless_asked_for(name: str) -> None:
    after = again(same)
    after.about["machine"] = {**after.about["machine"], name: "another"}
    with pytest.raises(LabError, match=f"unlike machines .{name}: .*--unlike-machines"):
        compare(crowd(4), after)
    assert compare(crowd(4), after, unlike_machines=True).changes


def test_who_is_in_one_run_only_is_not_compared_but_named() -> None:
    after = again(same, count=5)
    comparison = compare(crowd(4), after)
    assert "serializer1-compressor0: only after" in comparison.not_compared
    names = {pair.candidate for pair in comparison.pairs}
    assert "serializer1-compressor0" not in names
    assert not any("twin" in name for name in names)


def test_what_is_void_is_not_compared_and_the_reason_is_given() -> None:
    after = again(same)
    after.about["steal_share"] = 0.2
    with pytest.raises(LabError, match="nothing to compare, all is void: the hypervisor gave 20"):
        compare(crowd(4), after)


def test_other_experiments_and_runs_without_anything_in_common_are_refused() -> None:
    with pytest.raises(LabError, match="different experiments: made-up-crowd, made-up-rates"):
        compare(crowd(4), rates())
    with pytest.raises(LabError, match="nothing to compare"):
        compare(endings(), endings())


@pytest.mark.parametrize("make", [rates, sizes])
def test_rates_and_bytes_are_compared_in_their_units(make: Callable[[], Sample]) -> None:
    comparison = compare(make(), make())
    assert comparison.cells
    assert {pair.verdict for pair in comparison.pairs} == {"same"}


def test_its_page_is_tables_without_a_script_and_names_stay_text() -> None:
    before, after = crowd(4), again(same)
    after.about["versions"] = {HOSTILE: "1"}
    text = render_html(compare(before, after))
    assert "<script" not in text
    assert "default-src 'none'" in text
    assert "An average operation" in text
    assert CHANGED in render_markdown(compare(before, after))


def test_the_command_exits_1_if_something_became_slower_and_0_if_not(tmp_path: Path) -> None:
    crowd(4).write(tmp_path / "old.json")
    again(lambda name, _: 1.4 if name == CHANGED else 1.0).write(tmp_path / "new.json")
    paths = str(tmp_path / "old.json"), str(tmp_path / "new.json")
    page = tmp_path / "x.html"
    worse = lab_here("compare", *paths, "--html", str(page))
    assert worse.returncode == 1, worse.stderr
    assert "SLOWER" in worse.stdout
    assert max(map(len, worse.stdout.splitlines())) <= 100
    assert "SLOWER" in page.read_text()
    better = lab_here("compare", *reversed(paths), "--markdown", "-")
    assert better.returncode == 0, better.stderr
    assert better.stdout.startswith("# made-up-crowd: ")


def test_directories_are_compared_by_the_experiments_both_have(tmp_path: Path) -> None:
    for side in ("old", "new"):
        (tmp_path / side).mkdir()
        crowd(2).write(tmp_path / side / "crowd.json")
    rates().write(tmp_path / "new" / "rates.json")
    result = lab_here("compare", str(tmp_path / "old"), str(tmp_path / "new"))
    assert result.returncode == 0, result.stderr
    assert "made-up-crowd" in result.stdout
    assert "made-up-rates" not in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("{tmp}/a.json {tmp}/b.json", "these are different experiments: made-up-crowd, made-up-"),
        ("{tmp}/a.json {tmp}/none.json", "cannot be read"),
        ("{tmp}/a.json {tmp}/other.json", "these runs are from unlike machines (cpus: "),
        ("{tmp}/a.json", "Missing argument"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_line_and_exit_code_2(
    words: str, said: str, tmp_path: Path
) -> None:
    sample = crowd(2)
    sample.write(tmp_path / "a.json")
    sample.about["machine"]["cpus"] = 4096
    sample.write(tmp_path / "other.json")
    rates().write(tmp_path / "b.json")
    result = lab_here("compare", *words.format(tmp=tmp_path).split())
    assert result.returncode == 2
    assert said in result.stderr.strip().splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_a_run_against_itself_is_noticed() -> None:
    sample = rates()
    assert "one and the same run" in summary(compare(sample, sample))[0]


def test_what_is_void_is_counted_by_rule() -> None:
    broken = [Finding("a rule", "why", True, "x", "get", str(i)) for i in range(9)]
    side = SimpleNamespace(contenders=[], findings=broken)
    lines = list(_left_out(side, side))  # type: ignore[arg-type]
    assert lines == [
        f"void {word}: a rule: 9 times, first x get 0: why" for word in ("before", "after")
    ]
