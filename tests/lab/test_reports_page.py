"""The page: one file, no network, safe with any names in it, readable without its scripts."""

from __future__ import annotations

import json
import re
import subprocess
from base64 import b64encode
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.reports.colours import PALETTE
from nearcache.lab.reports.html import render
from nearcache.lab.reports.page_data import RANKS
from nearcache.lab.results.sample import Sample
from nearcache.lab.views import Views
from nearcache.report.html import HERE
from nearcache.report.model import Chart, Grid, Line, Table

from .conftest import need
from .made_up import HOSTILE, candidate, crowd, endings, experiment, fill, measured, rates, sizes

MOST_BYTES = 1_500_000
CARDS = ("#ffffff", "#161d27")  # of style.css


class Page(HTMLParser):
    """What a browser would make of it: tags, texts, what it would fetch, what is in scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.handlers: list[str] = []
        self.scripts: list[str] = []
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag == "script":
            self.scripts.append("")
        known = dict(attrs)
        if known.get("http-equiv") == "Content-Security-Policy":
            self.policy = known["content"] or ""

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":  # type: ignore[attr-defined]
            self.scripts[-1] += data


@cache
def forty() -> str:
    return render(Analysis(crowd(40)))


def hostile() -> Sample:
    """Every text that a sample may bring along is an attack."""
    everybody = [candidate("plain"), candidate(HOSTILE, family=HOSTILE, note=HOSTILE)]
    asked = experiment(
        "made-up-hostile", everybody, question=HOSTILE, payloads={"S": HOSTILE},
        cannot_answer=[HOSTILE], contrasts={HOSTILE: [("plain", HOSTILE)]}, mix={"get": 1.0},
    )  # fmt: skip
    sample = measured(asked)
    costs = {"plain": 1000.0, HOSTILE: 2000.0}
    fill(sample, costs, measures={HOSTILE: (1.0, "ns")}, parts={HOSTILE: 5.0})
    fill(sample, costs, "set", outcomes={HOSTILE: 3})
    sample.about |= {"command": HOSTILE, "versions": {HOSTILE: HOSTILE}, "state": HOSTILE}
    sample.candidates[HOSTILE].proof = {HOSTILE: HOSTILE}
    sample.candidates[HOSTILE].facts = {HOSTILE: HOSTILE}
    return sample


def data_of(page: Page) -> dict[str, object]:
    found: dict[str, object] = json.loads(page.scripts[0])
    return found


@pytest.mark.parametrize("make", [rates, sizes, endings])
def test_every_shape_of_experiment_has_a_page(make: object) -> None:
    assert callable(make)
    sample = make()
    text = render(Analysis(sample))
    for name in sample.candidates:
        assert name in text


def test_forty_candidates_fit_into_a_page_that_can_be_mailed() -> None:
    assert len(forty().encode()) < MOST_BYTES


def test_the_page_needs_nothing_but_itself_and_forbids_the_rest() -> None:
    page = Page(forty())
    assert page.fetched == []
    assert "@import" not in forty()
    assert not re.search(r"url\((?!#)", forty())
    assert page.policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in page.policy.partition("script-src")[2].partition(";")[0]


def test_the_policy_allows_these_scripts_and_no_other() -> None:
    page = Page(forty())
    allowed = set(re.findall(r"sha256-([^']+)", page.policy))
    code = page.scripts[1:]
    assert {b64encode(sha256(script.encode()).digest()).decode() for script in code} == allowed
    assert len(code) == 4


def test_hostile_names_stay_text_wherever_they_stand() -> None:
    text = render(Analysis(hostile()))
    page = Page(text)
    assert page.tags.count("script") == 5, "the data and four scripts of our own"
    assert "<script>alert" not in text
    assert "<b>[red]" not in text
    assert page.handlers == []
    names = [each["name"] for each in data_of(page)["candidates"]]  # type: ignore[attr-defined]
    assert HOSTILE in names, "it came through unchanged all the same"


def test_the_tables_hold_what_the_charts_show() -> None:
    sample = crowd(4)
    text = render(Analysis(sample))
    without_scripts = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    (row,) = (
        row
        for row in Analysis(sample).rows("get", "S")
        if row.entry.name == "serializer0-compressor2"
    )
    cells = re.findall(r'<tr data-name="serializer0-compressor2">.*?</tr>', without_scripts)
    assert f"{row.cost / 1000:.2f}" in cells[0]
    assert "1.20 (1.20" in cells[0]
    assert "What the articles said" in without_scripts
    assert "rules of evidence hold" in without_scripts


def test_the_data_has_curves_histograms_rounds_the_cut_and_parts() -> None:
    data = data_of(Page(render(Analysis(crowd(4)))))
    (first, *_) = data["sheets"]  # type: ignore[misc]
    for row in first["rows"]:
        assert len(row["points"]) == 12
        assert row["sets"] == [4, 4, 4]
        assert sorted(row["curve"]) == row["curve"]
        assert len(row["curve"]) <= len(RANKS)
        assert sum(row["bins"]) == pytest.approx(1, abs=0.02)
        assert 0 < row["cut"] < len(row["course"])
        assert set(row["parts"]) == {"encode", "wait", "decode"}
    ratios = [row["ratio"] for row in first["rows"] if "ratio" in row]
    assert all(low <= middle <= high for middle, low, high in ratios)


def test_views_are_drawn_with_and_without_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    chart = Chart(
        title="A curve", x_title="entries", y_title="bytes", x_log=True,
        lines=[
            Line(name=HOSTILE, points=[(1, 2), (10, 3)]),
            Line(name="dots", points=[(5, 5)], dots=True),
        ],
    )  # fmt: skip
    grid = Grid(
        title="A map", x_title="x", y_title="y", columns=["one"], rows=["two"],
        words=[[HOSTILE]], here=(0, 0),
    )  # fmt: skip
    table = Table(title="A table", head=["", "n\nB"], rows=[["x", "1"]], note="noted")
    views = Views(sentences=["A finding."], parts=[chart, grid, table])
    monkeypatch.setattr("nearcache.lab.reports.html.views_of", lambda analysis: views)
    text = render(Analysis(sizes()))
    page = Page(text)
    assert "<polyline" in text
    assert "<circle" in text
    assert 'class="here"' in text
    assert "n<br>B" in text
    assert "A finding." in text
    assert page.tags.count("script") == 5
    assert data_of(page)["charts"][0]["lines"][0]["points"] == [[1, 2], [10, 3]]  # type: ignore[index]


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    return (max(map(luminance, (one, other))) + 0.05) / (min(map(luminance, (one, other))) + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_of_many_candidates_those_shown_first_are_told_apart_on_light_and_dark() -> None:
    data = data_of(Page(forty()))
    order: list[int] = data["order"]  # type: ignore[assignment]
    colours = [each["colour"] for each in data["candidates"]]  # type: ignore[attr-defined]
    first = [colours[number] for number in order[:8]]
    assert set(first) <= set(PALETTE)
    assert len(set(first)) == 8
    assert min(contrast(colour, ground) for colour in PALETTE for ground in CARDS) >= 3
    assert min(contrast(colour, ground) for colour in colours for ground in CARDS) >= 2


def test_what_is_void_is_grey_on_the_page() -> None:
    sample = crowd(4)
    sample.about["steal_share"] = 0.2
    text = render(Analysis(sample))
    assert '<td class="grey">void</td>' in text
    assert "void: no time is stolen" in text


# Clicks every tab and writes what was drawn, and what failed, where the test can read it.
CLICKER = """
const seen = [];
addEventListener("error", event => seen.push("ERROR " + event.message));
addEventListener("securitypolicyviolation", event => seen.push("BLOCKED " + event.blockedURI));
addEventListener("load", () => {
  for (const button of document.querySelectorAll("#tabs button")) {
    button.click();
    const chart = document.getElementById("chart");
    const drawn = ["canvas", "svg", ".stack"].filter(what => chart.querySelector(what));
    seen.push(button.dataset.tab + " " + drawn.join(","));
  }
  seen.push("ticks " + (logTicks(200, 240).length > 2));
  seen.push("wide " + (document.documentElement.scrollWidth > innerWidth));
  document.title = seen.join("; ");
});
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_draws_every_chart_without_an_error_or_a_violation(
    width: int, tmp_path: Path
) -> None:
    need("chromium")
    digest = b64encode(sha256(CLICKER.encode()).digest()).decode()
    text = forty().replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    path = tmp_path / "page.html"
    path.write_text(text.replace("<style>", f"<script>{CLICKER}</script><style>", 1))
    dump = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-first-run", "--dump-dom",
         f"--window-size={width},3000", f"--user-data-dir={tmp_path}/profile", f"file://{path}"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    title = dump.partition("<title>")[2].partition("</title>")[0]
    assert title.split("; ") == [
        "ratio svg", "spread canvas", "time canvas", "size svg", "parts .stack",
        "ticks true", "wide false",
    ]  # fmt: skip


def test_the_licence_of_what_is_inlined_is_shipped_beside_it() -> None:
    directory = HERE / "charts/uplot"
    assert "Leon Sorokin" in (directory / "LICENSE").read_text()
    assert "1.6.32" in (directory / "README.md").read_text()
    assert "</script" not in (directory / "uPlot.iife.min.js").read_text()
