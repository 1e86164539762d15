"""``nearcache nginx queries``: the report of seed 002, to the letter, and what lies behind it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import pytest

from .conftest import StartNginx, Upstream
from .traffic import ask, run, run_json, run_piped, site

LINE = '1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET {} HTTP/1.1" 200 12 "-" "x"\n'

SEED = """\
POINT: 7
Sum show 75646 32.2%
Sum rest 159321 67.8%

POINT: 8
Sum show 83702 35.6%
Sum rest 151265 64.4%

POINT: 9
Sum show 90870 38.7%
Sum rest 144097 61.3%

POINT: 10
Sum show 98384 41.9%
Sum rest 136583 58.1%

POINT: 11
Sum show 106093 45.2%
Sum rest 128874 54.8%

POINT: 12
Sum show 113905 48.5%
Sum rest 121062 51.5%
"""
SEED_BY_LENGTH = {7: 75646, 8: 8056, 9: 7168, 10: 7514, 11: 7709, 12: 7812, 13: 121062}


def test_the_seeds_own_numbers_give_the_seeds_own_report() -> None:
    log = "".join(
        LINE.format(f"/api/search?q={'a' * length}") * many
        for length, many in SEED_BY_LENGTH.items()
    )
    assert run_piped(log.encode(), "queries", "-") == SEED


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Searches of many lengths, some with escapes, some without an argument."""
    chance = random.Random(2)
    words = ["a", "ab", "Beyoncé", "naïve & b", "one two three", "x" * 30, "日本", "50%"]
    lines = [LINE.format(f"/api/search?page=1&q={quote(chance.choice(words))}") for _ in range(300)]
    path = tmp_path / "access.log"
    path.write_text("".join(lines) + LINE.format("/api/search") + LINE.format("/song/1234/x"))
    return path


def test_characters_are_counted_as_people_do(log: Path) -> None:
    found = run_json("queries", log, "--points", "1-40")
    lengths = dict(found["by_length"])
    assert set(lengths) == {1, 2, 3, 7, 9, 13, 30}
    assert found["requests"] == 300
    assert found["absent"] == 2
    assert found["points"][6]["length"] == 7
    assert found["points"][6]["show"] == lengths[1] + lengths[2] + lengths[3] + lengths[7]


def test_what_is_possible_is_requests_less_one_fetch_for_each_value(log: Path) -> None:
    found = run_json("queries", log)
    everything = found["reaches"][-1]
    assert everything["requests"] == 300
    assert everything["distinct"] == found["distinct"] == 8
    assert everything["hit_ratio"] == pytest.approx(292 / 300)
    short = next(each for each in found["reaches"] if each["length"] == 9)
    values = Counter(line.split("q=")[1].split(" ")[0] for line in log.read_text().split("\n")
                     if "q=" in line)  # fmt: skip
    long = values[quote("one two three")] + values["x" * 30]
    assert short["requests"] == 300 - long
    assert short["distinct"] == 6


def test_any_argument_or_part_of_the_path_can_be_asked_for(log: Path) -> None:
    assert run_json("queries", log, "--arg", "page")["by_length"] == [[1, 300]]
    part = run_json("queries", log, "--path-part", 2, "--points", "4,6")
    assert part["by_length"] == [[4, 1], [6, 301]]
    under = run_json("queries", log, "--path-part", 2, "--under", "/song/")
    assert under["by_length"] == [[4, 1]]
    assert "has an argument nothing" in run("queries", log, "--arg", "nothing", code=2)
    assert "not both" in run("queries", log, "--arg", "q", "--path-part", 1, code=2)
    for wrong in ("x", "7-", "1-99999", "", "9-7"):
        assert "--points" in run("queries", log, "--points", wrong, code=2), wrong


def test_more_is_said_below_and_only_when_asked_for(log: Path) -> None:
    plain = run("queries", log)
    more = run("queries", log, "--more")
    assert more.startswith(plain)
    assert plain.endswith("%\n")
    assert "possible hits" in more
    assert "█" in more
    assert max(map(len, more.splitlines())) <= 80
    run("queries", log, "--html", log.with_suffix(".html"))
    assert "possible hits" in log.with_suffix(".html").read_text()


def test_hits_of_a_real_nginx_are_counted_by_length(
    start_nginx: StartNginx, upstream: Upstream
) -> None:
    nginx = site(start_nginx, upstream)
    ask(nginx, ["/s?q=ab", "/s?q=ab", "/s?q=ab", "/s?q=abcdefghijkl", "/s"])
    found = run_json("queries", nginx.directory / "json.log", "--points", "9")
    nine, everything = found["reaches"]
    assert (nine["requests"], nine["served"], nine["repeats"]) == (3, 2, 2)
    assert (everything["requests"], everything["served"]) == (4, 2)
    assert found["points"] == [{"length": 9, "show": 3, "rest": 1}]
    assert nine["upstream_s"] >= 0


def test_json_and_html_do_not_silence_each_other(log: Path, tmp_path: Path) -> None:
    for verb in ("queries", "report", "misses"):
        page = tmp_path / f"{verb}.html"
        assert run_json(verb, log, "--html", page)["verb"] == verb
        assert "</html>" in page.read_text()


def test_an_argument_that_nobody_sent_is_no_answer_in_json_either(log: Path) -> None:
    for options in (["--arg", "nobody"], ["--under", "/nowhere"]):
        for as_json in ([], ["--json"]):
            said = run("queries", log, *options, *as_json, code=2)
            assert "none of 302 lines has an argument" in said
    assert "under /nowhere" in run("queries", log, "--under", "/nowhere", code=2)
