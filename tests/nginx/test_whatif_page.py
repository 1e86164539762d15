"""whatif: what is learned of lifetimes that nobody says, curves, and the page they are drawn on."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from tests.needs import need

from .test_whatif import FORMAT, ask, asked, line, made_log
from .traffic import read_terminal


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return made_log(tmp_path / "access.log")


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_lifetime_that_nobody_says_is_learned_from_hits_and_expired_copies(log: Path) -> None:
    options = (log, "--format", FORMAT, "--inactive-now", "1d", "--ttl", "5s,10m")
    learned, told = asked(*options), asked(*options, "--ttl-now", "60s")
    assert learned["ttl_s"] == learned["learned"]["ttl_s"] == 60
    assert learned["learned"]["contradicting"] == 0
    assert told["learned"] is None, "there is nothing to learn"
    for ours, theirs in zip(learned["forecasts"], told["forecasts"], strict=True):
        assert ours["hit_ratio"] == theirs["hit_ratio"]
        assert ours["error"] == theirs["error"] + learned["learned"]["error"]


def test_what_fits_as_well_is_said_and_counts_as_error(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    # Asked for after 10 s, which is fresh, and after 100 s, which is not: 10 to 99 s all fit.
    lines = []
    for round_ in range(100):
        at = 100 * round_
        lines += [line(at, "EXPIRED" if round_ else "MISS", "/"), line(at + 10, "HIT", "/")]
    log.write_text("".join(lines))
    result = ask(log, "--format", FORMAT, "--inactive-now", "1d", "--ttl", "1h", "--anyway")
    assert "Nothing says how long responses live today" in words(result.output)
    assert "1 min, and all from 10.0 s to 1 min 39 s fit as well" in words(result.output)


def test_where_nothing_expires_a_lifetime_is_at_least_the_oldest_hit(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    lines = [line(at, "MISS" if at < 9 else "HIT", f"/{at % 9}") for at in range(900)]
    log.write_text("".join(lines))
    found = asked(log, "--format", FORMAT, "--inactive-now", "1d", "--ttl", "5s")
    assert found["learned"]["most_s"] is None
    assert found["learned"]["least_s"] == 891
    assert found["backtest"]["agreement"] == 1.0
    assert found["learned"]["error"] == 0.0


def test_several_lifetimes_contradict_what_is_learned_and_refuse(tmp_path: Path) -> None:
    short = made_log(tmp_path / "short.log", ttl_s=5, requests=2000).read_text()
    long = made_log(tmp_path / "long.log", ttl_s=300, requests=2000).read_text()
    log = tmp_path / "access.log"
    log.write_text("".join(sorted((short + long.replace("/s?", "/t?")).splitlines(True))))
    result = ask(log, "--format", FORMAT, "--inactive-now", "1d", "--ttl", "1h")
    assert result.exit_code == 1
    assert re.search(r"of known age, \d+\.\d% say otherwise", words(result.output))
    assert "No forecasts: the model does not reproduce this log" in words(result.output)


def test_a_lifetime_that_cannot_be_learned_is_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text("".join(line(at, "MISS", f"/{at % 9}") for at in range(900)))
    result = ask(log, "--format", FORMAT, "--inactive-now", "1d", "--ttl", "1h")
    assert result.exit_code == 1
    assert "nothing says how long responses live today" in words(result.output)
    assert "--ttl-now" in result.output


def test_what_is_never_stored_stays_so_under_a_learned_lifetime(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    lines = []
    for at in range(600):
        kept = "MISS" if at == 0 else "EXPIRED" if at % 61 == 0 else "HIT"
        lines += [line(at, kept, "/kept"), line(at + 0.5, "MISS", "/private")]
    log.write_text("".join(lines))
    found = asked(log, "--format", FORMAT, "--inactive-now", "1d", "--ttl", "2h")
    assert found["learned"]["ttl_s"] == 60
    assert found["backtest"]["agreement"] == 1.0


def test_curves_are_plain_data_with_the_error_and_the_price(log: Path) -> None:
    found = asked(log, "--format", FORMAT, "--inactive-now", "1d", "--ttl-now", "60s", "--curves")
    ttl, sizes, lengths = found["curves"]
    assert [each["axis"] for each in found["curves"]] == ["ttl_s", "max_size_bytes", "max_length"]
    ratios = [point["hit_ratio"] for point in ttl["points"]]
    assert ratios == sorted(ratios)
    assert ttl["today"] == 60
    today = next(point for point in ttl["points"] if point["value"] == 60)
    assert today["hit_ratio"] == found["today"]["hit_ratio"], "a curve goes through what is"
    assert all(point["error"] is not None for point in ttl["points"])
    assert len(sizes["points"]) >= 2
    assert sizes["points"][-1]["hit_ratio"] == found["today"]["hit_ratio"]
    assert lengths["points"][-1]["hit_ratio"] == found["today"]["hit_ratio"]
    assert lengths["points"][-1]["value"] <= 14, "no value is longer"


def test_curves_can_be_read_in_a_terminal(log: Path) -> None:
    result = ask(log, "--format", FORMAT, "--inactive-now", "1d", "--ttl-now", "60s", "--curves")
    assert result.exit_code == 0
    assert "Hit ratio over time to live" in result.output
    assert re.search(r"^1m \(today\) +\d", result.output, re.MULTILINE)
    assert max(map(len, result.output.splitlines())) <= 80


# Writes what was drawn, and what failed, where the test can read it.
WITNESS = """
const seen = [];
addEventListener("error", event => seen.push("ERROR " + event.message));
addEventListener("securitypolicyviolation", event => seen.push("BLOCKED " + event.blockedURI));
addEventListener("load", () => {
  for (const figure of document.querySelectorAll("figure")) {
    const box = figure.querySelector("canvas").getBoundingClientRect();
    seen.push(box.width > 200 && box.height > 200 ? "drawn" : "small");
  }
  seen.push("wide " + (document.documentElement.scrollWidth > innerWidth));
  document.title = seen.join("; ");
});
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_draws_the_page_without_an_error_or_a_violation(
    log: Path, tmp_path: Path, width: int
) -> None:
    need("chromium")
    path = tmp_path / "whatif.html"
    evil = "drop=</script><script>alert(1)</script>"
    result = ask(
        log, "--format", FORMAT, "--inactive-now", "1d", "--ttl", "5s", "--key", evil,
        "--html", path,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Hit ratio over" not in result.output, "curves are for the page, unless asked for"
    text = path.read_text()
    assert "<script>alert" not in text
    assert not re.search(r"(src|href)=", text)
    digest = b64encode(sha256(WITNESS.encode()).digest()).decode()
    text = text.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    path.write_text(text.replace("<style>", f"<script>{WITNESS}</script><style>", 1))
    dump = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
         f"--window-size={width},3000", f"--user-data-dir={tmp_path}/profile", f"file://{path}"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    title = dump.partition("<title>")[2].partition("</title>")[0]
    assert title.split("; ") == ["drawn", "drawn", "drawn", "wide false"]


def test_a_terminal_shows_how_far_the_replays_are(log: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [
        sys.executable, "-m", "nearcache", "nginx", "whatif", str(log), "--format", FORMAT,
        "--inactive-now", "1d", "--ttl-now", "60s", "--curves",
    ]  # fmt: skip
    output = tmp_path / "output"
    environment = {**os.environ, "TERM": "xterm"}
    with (
        output.open("wb") as file,
        subprocess.Popen(command, stdout=file, stderr=theirs, env=environment),
    ):
        os.close(theirs)
        shown = read_terminal(ours)
    assert "replaying" in shown
    assert "replaying" not in output.read_text()
