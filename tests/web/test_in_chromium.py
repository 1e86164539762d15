"""The summary in a real browser: refreshed without a reload, on a desk and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.conftest import need

from .browser import Browser
from .conftest import GUNICORN, Site, running

REFRESHED = "Number(document.body.dataset.refreshes || 0) >= "
LONGER_NAMES = (
    "document.querySelectorAll('tbody th, ul.bars .name')"
    ".forEach((name) => name.append('-a-rather-long-name'.repeat(6)))"
)
CUT_NAMES = (
    "[...document.querySelectorAll('ul.bars .name')]"
    ".filter((name) => name.scrollWidth > name.clientWidth).length"
)
# An answer has arrived, and its page gets it when it is handed over.
ANSWERS_WAIT = """
const plain = window.fetch, handed = new Promise((done) => { window.hand = done; });
window.fetch = async (...asked) => {
  const answer = await plain(...asked);
  window.arrived = true;
  await handed;
  return answer;
};
0"""
RECORDED = "document.querySelector('.tile b').textContent"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    need("chromium")
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    with running(directory, [*GUNICORN, "--worker-class", "gthread", "--threads", "4"]) as site:
        yield site


def test_new_samples_appear_without_a_reload(browser: Browser, site: Site) -> None:
    site.get("reset", "POST")
    browser.show(site.here + "summary")
    assert browser.value(RECORDED) == "0"
    browser.value("window.mark = document.querySelector('table'); 0")
    for _ in range(30):
        site.get("default")
        site.get("other")
    browser.until(f"{RECORDED} === '60'")
    assert browser.value("window.mark === document.querySelector('table')"), "altered in place"
    assert browser.value("document.querySelectorAll('tr[data-alias]').length") == 2
    medians = browser.value(
        "[...document.querySelectorAll('td[data-head=median]')].map((cell) => cell.textContent)"
    )
    assert all(text.endswith(("µs", "ms")) for text in medians), medians
    assert browser.value("document.querySelectorAll('.chart').length") == 6
    bars = "document.querySelectorAll('.chart .bar rect').length"
    assert browser.value(bars) == 8, "of a P99 thirty reads know nothing"
    assert browser.complaints() == []


def test_nothing_is_fetched_but_the_page_itself(browser: Browser, site: Site) -> None:
    browser.show(site.here + "summary")
    browser.until(REFRESHED + "1")
    fetched = {url for url in browser.requests() if not url.startswith("data:")}
    assert fetched == {site.here + "summary", site.here + "summary?format=fragment"}


def test_the_buttons_read_pause_and_reset(browser: Browser, site: Site) -> None:
    site.get("reset", "POST")
    browser.show(site.here + "summary")
    browser.value("document.getElementById('read').click()")
    browser.until(f"{RECORDED} === '100'")
    browser.value("document.getElementById('pause').click()")
    assert browser.value("document.getElementById('state').textContent") == "paused"
    browser.value("document.querySelector('form button').click()")
    browser.until(f"document.readyState === 'complete' && {RECORDED} === '0'")
    assert browser.value("location.pathname") == "/summary"


def test_numbers_that_arrive_after_a_pause_are_not_shown(browser: Browser, site: Site) -> None:
    site.get("reset", "POST")
    browser.show(site.here + "summary")
    browser.value(ANSWERS_WAIT)
    browser.until("window.arrived")
    site.get("default")
    browser.value("document.getElementById('pause').click()")
    browser.value("window.hand(); new Promise((done) => setTimeout(done, 100))")
    assert browser.value("document.getElementById('state').textContent") == "paused"
    browser.value("document.getElementById('pause').click()")
    browser.until(f"{RECORDED} === '1'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(browser: Browser, site: Site, scheme: str, tmp_path: Path) -> None:
    for page in ("summary", ""):
        browser.show(site.here + page, width=390, height=844, scheme=scheme)
        assert browser.value("document.documentElement.scrollWidth") == 390
    browser.show(site.here + "summary", width=390, height=844, scheme=scheme)
    browser.value(LONGER_NAMES)
    assert browser.value("document.documentElement.scrollWidth") == 390
    assert browser.value(CUT_NAMES) == 0
    browser.screenshot(tmp_path / "phone.png")
    assert (tmp_path / "phone.png").stat().st_size > 1000


def test_a_server_that_is_gone_is_said_and_the_numbers_stay(
    browser: Browser, tmp_path: Path
) -> None:
    with running(tmp_path, GUNICORN) as site:
        site.get("default")
        browser.show(site.here + "summary")
        browser.until(REFRESHED + "1")
    browser.until("document.getElementById('state').className.includes('broken')")
    assert browser.value(RECORDED) == "1"
