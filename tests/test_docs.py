"""Docs match the code; README says what works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.utils.module_loading import import_string

from nearcache.backends import SharedMemoryCache
from nearcache.options import option_fields
from scripts.generate_docs import pages

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["options.md", "cli.md"])
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == pages()[name], "run `make docs`"


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
