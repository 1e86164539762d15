"""``lab run backends --quick`` from the command line to its two files."""

from __future__ import annotations

import ast
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.reports.html import render
from nearcache.lab.results.sample import Sample, read_sample

from .calm_lab import calm_lab
from .conftest import calm, need, report_if_calm
from .schema import SCHEMA, faults
from .test_cli import lab_here


class Links(HTMLParser):
    """Everything the page would have to fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Sample, str]:
    """What was printed, the sample, and the page."""
    need("redis-server")
    out = tmp_path_factory.mktemp("lab")
    names = "filebased,redis-python-unix"
    result = calm_lab(
        "run", "backends", "--quick", "--payloads", "S,H", "--candidates", names,
        "--seed", "11", "--time-limit", "16", "--out", str(out),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    (path,) = Path(out).glob("*.json")
    page = path.with_suffix(".html")
    assert str(page) in result.stdout
    return result.stdout, read_sample(path), page.read_text()


def test_every_cell_of_every_candidate_was_measured(run: tuple[str, Sample, str]) -> None:
    _, sample, _ = run
    assert set(sample.candidates) == {
        "locmem", "locmem (twin)", "filebased", "redis-python-unix", "redis-python-unix (twin)",
    }  # fmt: skip
    for name in sample.candidates:
        for operation in ("get", "get_fresh", "set", "get_many", "delete"):
            for payload in ("S", "H"):
                assert sample.cells[name, operation, payload].count > 0
        for operation in ("incr", "miss"):
            assert sample.cells[name, operation, "-"].count > 0


def test_hits_misses_and_errors_are_separate(run: tuple[str, Sample, str]) -> None:
    _, sample, _ = run
    for cell in sample.cells.values():
        assert cell.errors == 0
        assert (cell.misses > 0) == (cell.operation == "miss")
    gets = sample.cells["redis-python-unix", "get", "S"]
    assert gets.hits == gets.calls


def test_the_file_says_how_to_repeat_the_run_and_on_what_it_was_made(
    run: tuple[str, Sample, str],
) -> None:
    _, sample, _ = run
    assert "lab run backends --quick" in sample.about["command"]
    assert "--seed 11" in sample.about["command"]
    assert sample.about["state"] == "complete"
    assert sample.about["versions"]["django"]
    assert sample.about["servers"]["redis"]
    assert sample.about["machine"]["kernel"]


def test_the_file_keeps_to_its_schema(run: tuple[str, Sample, str]) -> None:
    _, sample, _ = run
    assert faults(json.loads(sample.to_text()), SCHEMA) == []


def test_the_terminal_report_fits_its_width_and_has_its_parts(
    run: tuple[str, Sample, str],
) -> None:
    printed, sample, _ = run
    report = [line for line in printed.splitlines() if not line.startswith(("raw data", "page"))]
    assert max(map(len, report)) <= 100
    said = report_if_calm(sample)
    for part in ("median", "P99", "shorter better", "█", "Noise floor", "locmem (95 %)"):
        assert part in said


def test_it_ends_with_a_caches_block_that_python_can_read(run: tuple[str, Sample, str]) -> None:
    printed, sample, _ = run
    if Analysis(sample).void_run:  # on a machine that is too busy for anything to be ranked
        assert "This run answers nothing" in " ".join(printed.split())
        return
    block = re.search(r"^CACHES = (\{.*?^\})$", printed, re.DOTALL | re.MULTILINE)
    assert block
    caches = ast.literal_eval(block.group(1))
    assert caches["default"]["BACKEND"].startswith("django.core.cache.backends.")
    assert "{" not in caches["default"]["LOCATION"], "a placeholder was left"
    assert "nearcache-lab" not in str(caches), "a private address was recommended"


def test_the_page_needs_nothing_but_itself(run: tuple[str, Sample, str]) -> None:
    _, _, page = run
    links = Links()
    links.feed(page)
    assert links.found == []
    assert "url(" not in page
    assert "@import" not in page


def test_the_page_shows_what_the_terminal_shows(run: tuple[str, Sample, str]) -> None:
    _, sample, page = run
    assert page.count('class="sorts"') > 10
    for name in sample.candidates:
        assert name in page
    page = render(calm(sample))
    assert "CACHES = {" in page
    # Where ties are many it stands below the lead, indented.
    said = [line.strip() for line in report_if_calm(sample).splitlines()]
    first = next(line for line in said if line.startswith("An average operation here"))
    assert first[:50] in page


def test_a_report_can_be_printed_again_in_80_columns(
    run: tuple[str, Sample, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sample, _ = run
    path = tmp_path / "run.json"
    sample.write(path)
    monkeypatch.setenv("COLUMNS", "80")
    result = lab_here("report", str(path), "--operation", "set", "--payload", "H")
    assert result.returncode == 0, result.stderr
    assert "set: 10 kB HTML fragment (H), µs" in result.stdout


def test_an_alias_of_the_users_own_settings_is_measured_and_nothing_is_left_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    (tmp_path / "shopsettings.py").write_text(
        "SECRET_KEY = 'not-for-print'\n"
        "CACHES = {'default': {'BACKEND': 'django.core.cache.backends.dummy.DummyCache'},\n"
        "  'pages': {'BACKEND': 'django.core.cache.backends.filebased.FileBasedCache',\n"
        f"            'LOCATION': {str(cache)!r}}}}}\n"
    )
    monkeypatch.chdir(tmp_path)
    result = calm_lab(
        "run", "backends", "--quick", "--payloads", "S", "--settings", "shopsettings",
        "--operations", "get,set", "--alias", "pages,default", "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    (path,) = (tmp_path / "out").glob("*.json")
    sample = read_sample(path)
    assert sample.candidates["pages"].state == "measured"
    assert sample.candidates["pages"].proof["backend"].endswith("FileBasedCache")
    # A dummy keeps nothing; it would have won.
    assert sample.candidates["default"].state == "failed"
    assert not list(cache.glob("*.djcache"))
    assert "not-for-print" not in path.read_text()
