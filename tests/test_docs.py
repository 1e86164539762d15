"""Docs match the code; README says what works."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from django.utils.module_loading import import_string

from nearcache.backends import SharedMemoryCache
from nearcache.base.options import option_fields
from nearcache.lab.experiments.registry import EXPERIMENTS
from nearcache.lab.reports.markdown import escape
from nearcache.lab.results.machine import describe_machine
from scripts.experiments_page import words_of
from scripts.generate_docs import PAGES
from scripts.results_page import keep, results_page

from .lab.made_up import PLAN, crowd, fill, measured, sizes

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), "run `make docs`"


def test_every_experiment_is_documented_with_its_own_words_and_all_of_its_claims() -> None:
    page, results = PAGES["experiments.md"](), results_page(ROOT / "no-results")
    assert "No results are kept yet" in results
    for name, experiment in EXPERIMENTS.items():
        assert f"## {name}\n\n{words_of(experiment)[0]}" in page
        for each in experiment.candidates:
            assert f"| {escape(each.name)} | {escape(each.title)} |" in page
        for claim in experiment.claims:
            assert escape(claim.text) in page
            assert escape(claim.text) in results


def test_results_say_machine_groups_and_what_became_of_the_seeds_claims(tmp_path: Path) -> None:
    crowd(4).write(tmp_path / "run.json")
    sizes().write(tmp_path / "other.json")
    (kept, other) = sorted(keep(tmp_path, tmp_path / "kept"))
    assert kept.name == "made-up-crowd.json.gz"
    assert other.stat().st_size < 20_000
    page = results_page(tmp_path / "kept")
    assert page == results_page(tmp_path / "kept"), "the same samples make the same page"
    assert "No results are kept" not in page
    assert "## made-up-sizes" in page
    assert describe_machine()["kernel"] in page
    assert "| 2 | serializer0-compressor2 |" in page
    # A claim of an experiment that the registry knows, answered by a sample of it.
    claimed = next(e for e in EXPERIMENTS.values() if e.claims and not e.contrasts)
    sample = measured(replace(claimed, plans={"full": PLAN}))
    claim = claimed.claims[0]
    costs = {claim.fast: 1000.0, claim.slow: 1000.0 * claim.ratio}
    fill(sample, costs, claim.operation, claim.payload)
    sample.write(tmp_path / "claimed.json")
    keep(tmp_path, tmp_path / "kept")
    (line,) = (
        line
        for line in results_page(tmp_path / "kept").splitlines()
        if escape(claim.text) in line and line.endswith(f"| {claimed.name} |")
    )
    assert "| holds |" in line


def test_every_option_is_documented_in_a_sentence() -> None:
    for each in option_fields(SharedMemoryCache.options_class):
        assert each.metadata["doc"].endswith(".")


def test_every_caches_example_of_the_readme_is_accepted() -> None:
    blocks = re.findall(
        r"```python\n(CACHES = .*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert len(blocks) >= 3
    for block in blocks:
        names: dict[str, dict[str, dict[str, object]]] = {}
        exec(block, names)
        for settings in names["CACHES"].values():
            location = str(settings.pop("LOCATION", ""))
            backend = str(settings.pop("BACKEND"))
            assert backend.startswith("nearcache.backends.")
            import_string(backend)(location, settings)


def test_no_link_within_the_docs_is_broken() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
