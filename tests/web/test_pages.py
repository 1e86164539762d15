"""The routes, who may use them, and what they answer, inside a project."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import caches
from django.test import Client, RequestFactory

from nearcache.base.options import option_fields
from nearcache.errors import OptionError
from nearcache.web import views
from nearcache.web.checks import check_settings
from nearcache.web.options import WebOptions, aliases_of, samples_directory, web_options
from nearcache.web.pages import _spread
from nearcache.web.summary import duration, size

from .conftest import locmem
from .faulty import MeetsOthers

Pages = Callable[..., Client]
HTML = {"headers": {"Accept": "text/html,*/*"}}


def summary(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.get("/cachelab/summary?format=json").content)
    return found


def lines(client: Client) -> dict[str, dict[str, Any]]:
    return {line["alias"]: line for line in summary(client)["aliases"]}


def test_every_hit_is_attempted_and_recorded_once(pages: Pages) -> None:
    client = pages()
    for _ in range(30):
        assert client.get("/cachelab/random").status_code == 200
    client.get("/cachelab/run/random")
    client.get("/cachelab/other")
    client.get("/cachelab/run/other")
    found = summary(client)
    assert (found["attempted"], found["recorded"], found["lost"]) == (33, 33, 0)
    per_alias = lines(client)
    assert sum(line["times"] + line["misses"] for line in per_alias.values()) == 33
    assert all(line["attempted"] > 1 for line in per_alias.values()), "both are drawn"


def test_first_reads_are_one_at_a_time_so_that_clients_are_imported_so(pages: Pages) -> None:
    client = pages({name: {"BACKEND": "tests.web.faulty.MeetsOthers"} for name in ("default", "b")})
    threads = [Thread(target=client.get, args=(f"/cachelab/{name}",)) for name in ("default", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not MeetsOthers.met
    assert summary(client)["recorded"] == 2


def test_the_answer_of_a_hit_is_the_mean_so_far_in_milliseconds(pages: Pages) -> None:
    client = pages()
    first = client.get("/cachelab/default")
    assert first.content == b"notyet\n", "there was nothing to read"
    assert first.headers["X-Cache-Outcome"] == "missed"
    answered_ms = [float(client.get("/cachelab/default").content) for _ in range(3)][-1]
    assert 0 < answered_ms == pytest.approx(lines(client)["default"]["average"] / 1e6, abs=1e-4)


def test_a_name_that_begins_like_another_is_not_that_other(pages: Pages) -> None:
    client = pages({"default": locmem("d"), "msgpack": locmem("m"), "msgpack_zlib": locmem("z")})
    for _ in range(3):
        client.get("/cachelab/msgpack_zlib")
    assert {name: line["attempted"] for name, line in lines(client).items()} == {
        "default": 0,
        "msgpack": 0,
        "msgpack_zlib": 3,
    }
    for path in ("msgpack_", "msgpack_zlib/", "run/", "summary_", "randomly"):
        assert client.get(f"/cachelab/{path}").status_code == 404


def test_an_alias_that_no_address_can_hold_plainly_is_read_through_its_link(pages: Pages) -> None:
    odd = "a b/c?d#e%f"
    client = pages({"default": locmem("d"), odd: locmem("o"), "summary": locmem("s")})
    page = client.get("/cachelab/", **HTML).content.decode()
    for link in re.findall(r'<li><a href="(run/[^"]+)"', page):
        assert client.get(f"/cachelab/{link}").status_code == 200
    assert {name: line["attempted"] for name, line in lines(client).items()} == {
        "default": 1,
        odd: 1,
        "summary": 1,
    }


def test_an_unknown_alias_is_told_the_nearest_name(pages: Pages) -> None:
    answer = pages().get("/cachelab/defualt")
    assert answer.status_code == 404
    assert answer.content == b"no cache named 'defualt'; did you mean 'default'?\n"


def test_only_the_aliases_of_the_setting_are_touched(pages: Pages) -> None:
    client = pages(NEARCACHE_WEB={"ALIASES": ["other"]})
    assert client.get("/cachelab/default").status_code == 404
    for _ in range(10):
        client.get("/cachelab/random")
    assert list(lines(client)) == ["other"]


def test_errors_and_wrong_answers_and_misses_are_shown_and_have_no_time(
    pages: Pages, caplog: pytest.LogCaptureFixture
) -> None:
    client = pages(
        {
            "default": locmem("a"),
            "fails": {"BACKEND": "tests.web.faulty.Fails"},
            "damages": {"BACKEND": "tests.web.faulty.Damages", "LOCATION": "damages"},
            "drops": {"BACKEND": "tests.web.faulty.Drops", "LOCATION": "drops"},
        }
    )
    for _ in range(3):
        failed = client.get("/cachelab/fails")
        damaged = client.get("/cachelab/damages")
        client.get("/cachelab/drops")
    assert (failed.status_code, failed.content) == (
        503,
        b"failed: ConnectionError: nobody listens\n",
    )
    assert damaged.status_code == 500
    assert damaged.content.startswith(b"wrong: ")
    found = lines(client)
    assert found["fails"]["errors"] == found["drops"]["misses"] == 3
    assert found["damages"]["wrong"] == 2, "the first found nothing to read"
    assert [found[name]["times"] for name in ("fails", "damages", "drops")] == [0, 0, 0]
    page = client.get("/cachelab/summary", **HTML).content.decode()
    assert "Not to be trusted: fails, damages" in page
    said = [record.getMessage() for record in caplog.records if record.name == "nearcache.web"]
    assert said.count("fails: ConnectionError: nobody listens") == 1, "once, not for every read"


def test_a_cache_is_written_by_chance_and_whenever_it_has_nothing(pages: Pages) -> None:
    client = pages(NEARCACHE_WEB={"WRITE_CHANCE": 0})
    for _ in range(5):
        client.get("/cachelab/default")
    line = lines(client)["default"]
    assert (line["misses"], line["writes"], line["times"]) == (1, 1, 4)


def test_the_first_reads_of_a_worker_are_apart(pages: Pages) -> None:
    client = pages(NEARCACHE_WEB={"WARM_UP": 4})
    for _ in range(9):
        client.get("/cachelab/default")
    line = lines(client)["default"]
    assert (line["attempted"], line["cold_times"], line["times"]) == (9, 3, 5)


def test_too_few_samples_are_not_yet_and_no_crash(pages: Pages) -> None:
    client = pages()
    for hits in range(12):
        text = client.get("/cachelab/summary").content.decode()
        page = client.get("/cachelab/summary", **HTML).content.decode()
        assert "not yet" in text
        assert "not yet" in page
        assert f"{hits} reads attempted" in text
        client.get("/cachelab/default")
    assert lines(client)["default"]["p90"] is not None
    assert lines(client)["default"]["p99"] is None


def test_no_sentence_names_a_winner_of_a_few_reads(pages: Pages) -> None:
    client = pages()
    for _ in range(45):
        client.post("/cachelab/default")
        client.post("/cachelab/other")
    page = client.get("/cachelab/summary", **HTML).content.decode()
    assert "Too few reads yet to compare anything" in page


def test_a_get_writes_to_no_cache_of_the_user_s(pages: Pages) -> None:
    client = pages(NEARCACHE_WEB={"PRIVATE": False})
    for path in ("random", "default", "run/other"):
        answer = client.get(f"/cachelab/{path}")
        assert (answer.headers["X-Cache-Outcome"], answer.status_code) == ("missed", 200)
        assert "a POST writes it" in answer.content.decode()
    assert all(not len(caches[alias]._cache) for alias in ("default", "other"))
    client.post("/cachelab/default")
    assert client.get("/cachelab/default").headers["X-Cache-Outcome"] == "done"


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_page_of_another_site_cannot_cause_a_hit(pages: Pages, method: str) -> None:
    client = pages(DEBUG=True)
    for path in ("random", "default", "run/random", "run/other"):
        headers = {"Sec-Fetch-Site": "cross-site"}
        assert getattr(client, method)(f"/cachelab/{path}", headers=headers).status_code == 403
    assert summary(client)["attempted"] == 0


def test_a_full_cache_that_culls_is_not_written(pages: Pages) -> None:
    full = locmem("full") | {"OPTIONS": {"MAX_ENTRIES": 20}}
    client = pages({"default": full}, NEARCACHE_WEB={"PRIVATE": False})
    for number in range(20):
        caches["default"].set(f"theirs:{number}", number)
    for _ in range(3):
        assert "push out others" in client.post("/cachelab/default").content.decode()
    assert [caches["default"].get(f"theirs:{n}") for n in range(20)] == list(range(20))


def test_the_text_is_the_seeds_table_and_bars_for_curl(pages: Pages) -> None:
    client = pages()
    for _ in range(20):
        client.get("/cachelab/default")
        client.get("/cachelab/other")
    answer = client.get("/cachelab/summary", headers={"Accept": "*/*"})
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    text = answer.content.decode()
    head = text.splitlines()[0].split()
    assert head[:3] == ["TIMES", "AVERAGE", "MEDIAN"]
    for word in ("P90", "P99", "MAX", "STDDEV", "MISSES", "ERRORS"):
        assert word in head
    for title in ("Best Averages", "Best Medians", "Best P90", "Best P99", "Size of Data Saved"):
        assert f"{title} (shorter better)\n{'#' * 79}\n" in text
    charts = text.split("Best Averages")[1].split("\n\n")[0].splitlines()[2:]
    widths = [line.count("█") for line in charts]
    assert widths == sorted(widths), "the shortest comes first"


@pytest.mark.parametrize(
    ("query", "accept", "kind"),
    [
        ("", "text/html", "text/html"),
        ("", "text/plain", "text/plain"),
        ("", "application/json", "application/json"),
        ("?format=json", "text/html", "application/json"),
        ("?format=text", "text/html", "text/plain"),
        ("?format=html", "*/*", "text/html"),
    ],
)
def test_the_form_is_what_was_asked_for(pages: Pages, query: str, accept: str, kind: str) -> None:
    answer = pages().get(f"/cachelab/summary{query}", headers={"Accept": accept})
    assert answer.headers["Content-Type"].startswith(kind)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Vary"] == "Accept"


def test_an_unknown_form_is_named(pages: Pages) -> None:
    assert pages().get("/cachelab/summary?format=xml").status_code == 400


def test_the_page_has_all_in_it_and_a_policy_that_allows_nothing_else(pages: Pages) -> None:
    answer = pages().get("/cachelab/summary", **HTML)
    page = answer.content.decode()
    for part in ("<table>", "Average", "Median", "P90", "P99", "Size of data saved"):
        assert part in page
    assert "http://" not in page
    assert "https://" not in page
    assert 'style="' not in page, "the policy forbids them"
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_names_are_escaped_on_the_page(pages: Pages) -> None:
    client = pages({"default": locmem("a"), "<b>&": locmem("b")})
    page = client.get("/cachelab/summary", **HTML).content.decode()
    assert "&lt;b&gt;&amp;" in page
    assert "<b>&" not in page


@pytest.mark.parametrize(
    ("shortest", "longest"),
    [(1, 1), (3_000_000, 3_000_000), (60, 9e10), (2.1e6, 4.9e6), (9e5, 2e8)],
)
def test_the_axis_of_the_spread_has_at_least_two_round_times(
    shortest: float, longest: float
) -> None:
    line = SimpleNamespace(alias="a", counts=[(shortest, 1), (longest, 1)], median=shortest)
    spread = _spread([line], {"a": 0})  # type: ignore[list-item]
    assert spread is not None
    places = [float(place.rstrip("%")) for place, _ in spread.ticks]
    assert len(places) >= 2
    assert all(0 <= place <= 100 for place in places)
    assert all(re.fullmatch(r"[125]0{0,2} (ns|µs|ms|s)", text) for _, text in spread.ticks)


def test_reset_takes_post_alone(pages: Pages) -> None:
    client = pages()
    client.get("/cachelab/default")
    refused = client.get("/cachelab/reset")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")
    assert summary(client)["attempted"] == 1
    assert client.post("/cachelab/reset").content == b"reset\n"
    assert summary(client)["attempted"] == 0
    client.get("/cachelab/default")
    back = client.post("/cachelab/reset", **HTML)
    assert (back.status_code, back.headers["Location"]) == (303, "summary")
    assert summary(client)["attempted"] == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://testserver"}, 200),
        ({}, 200),
    ],
)
def test_another_sites_page_cannot_reset(pages: Pages, headers: Any, status: int) -> None:
    assert pages().post("/cachelab/reset", headers=headers).status_code == status


def test_a_name_that_is_not_ours_is_refused_as_a_host(pages: Pages) -> None:
    # A page of another site may have its own name point at this host (DNS rebinding).
    for path in ("", "summary", "random", "default"):
        assert pages().get(f"/cachelab/{path}", headers={"Host": "evil.example"}).status_code == 400


def test_curl_resets_also_where_the_project_asks_for_tokens(pages: Pages) -> None:
    pages(MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"])
    curl = Client(enforce_csrf_checks=True)
    assert curl.post("/cachelab/reset").status_code == 200
    foreign = curl.post("/cachelab/reset", headers={"Origin": "http://evil.example"})
    assert foreign.status_code == 403
    assert "csrftoken" not in curl.get("/cachelab/summary", **HTML).cookies, "pages set no cookies"


@pytest.mark.parametrize(
    ("settings", "user", "status"),
    [
        ({}, None, 403),
        ({}, SimpleNamespace(is_active=True, is_staff=False), 403),
        ({}, SimpleNamespace(is_active=False, is_staff=True), 403),
        ({}, SimpleNamespace(is_active=True, is_staff=True), 200),
        ({"DEBUG": True}, None, 200),
        ({"NEARCACHE_WEB": {"ACCESS": "anyone"}}, None, 200),
    ],
)
def test_pages_are_for_staff_unless_told_otherwise(
    pages: Pages, settings: Any, user: Any, status: int
) -> None:
    pages(**{"NEARCACHE_WEB": {"ACCESS": "staff"}, **settings})
    request = RequestFactory().get("/cachelab/random")
    if user is not None:
        request.user = user
    assert views.run_random(request).status_code == status


def test_a_bad_setting_is_said_by_the_check_and_by_the_page(pages: Pages) -> None:
    client = pages(NEARCACHE_WEB={"WRITE_CHANCES": 1})
    (error,) = check_settings()
    assert error.id == "nearcache.web.E001"
    assert "did you mean 'WRITE_CHANCE'?" in error.msg
    answer = client.get("/cachelab/summary")
    assert (answer.status_code, b"did you mean" in answer.content) == (500, True)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"WRITE_CHANCE": 2}, "from 0 to 1"),
        ({"ALIASES": ["defualt"]}, "did you mean 'default'"),
        ({"PAYLOAD": "?"}, "must be one of"),
        ({"ACCESS": "everybody"}, "must be one of"),
        ({"DIRECTORY": "relative"}, "absolute"),
        ({"WARM_UP": -1}, "0 or more"),
    ],
)
def test_bad_values_say_what_is_right(pages: Pages, setting: Any, message: str) -> None:
    pages(NEARCACHE_WEB=setting)
    with pytest.raises(OptionError, match=message):
        web_options()


def test_the_checks_warn_of_what_cannot_work_or_is_wide_open(pages: Pages) -> None:
    caches = {"default": locmem("a"), "summary": locmem("b"), "with/slash": locmem("c")}
    pages(caches, NEARCACHE_WEB={"ACCESS": "staff"})
    assert [m.id for m in check_settings()] == [
        "nearcache.web.W001",
        "nearcache.web.W002",
    ]
    pages(MIDDLEWARE=["django.contrib.auth.middleware.AuthenticationMiddleware"])
    assert [m.id for m in check_settings()] == ["nearcache.web.W003"]
    pages(DEBUG=True)
    assert check_settings() == []


def test_an_alias_with_the_name_of_a_page_is_at_run(pages: Pages) -> None:
    client = pages({"default": locmem("a"), "summary": locmem("b")})
    assert client.get("/cachelab/run/summary").headers["X-Cache-Alias"] == "summary"


def test_other_settings_keep_their_samples_elsewhere(pages: Pages) -> None:
    def where() -> str:
        options = web_options()
        return samples_directory(options, aliases_of(options))[0].name

    pages()
    first = where()
    assert where() == first
    pages(NEARCACHE_WEB={"WRITE_CHANCE": 0.5})
    assert where() != first
    pages({"default": locmem("a"), "other": locmem("elsewhere")})
    assert where() not in (first, "")
    assert where().split("-")[0] == first.split("-")[0], "the same site"


def test_the_index_names_every_address(pages: Pages) -> None:
    client = pages()
    text = client.get("/cachelab/").content.decode()
    assert "http://testserver/cachelab/random\n" in text
    assert "http://testserver/cachelab/other\n" in text
    assert 'href="run/other"' in client.get("/cachelab/", **HTML).content.decode()


def test_numbers_are_written_with_three_digits_and_a_unit() -> None:
    assert [duration(ns) for ns in (None, 950, 1_234, 65_400, 1_234_567, 2e9)] == [
        "not yet", "950 ns", "1.23 µs", "65.4 µs", "1.23 ms", "2.00 s",
    ]  # fmt: skip
    assert [size(n) for n in (None, 17, 60_000, 9_021, 3_500_000)] == [
        "not yet", "17", "60K", "9.02K", "3.5M",
    ]  # fmt: skip


def test_every_option_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "web.md").read_text()
    for each in option_fields(WebOptions):
        facts = each.metadata
        assert f"| `{facts['name']}` | {facts['default']} | {facts['doc']} |" in page


def test_a_project_needs_nothing_of_the_lab_extra() -> None:
    script = (
        "import sys, django; from django.conf import settings; settings.configure();"
        "import nearcache.web.urls, nearcache.web.checks;"
        "print([m for m in ('hdrh', 'jinja2', 'redis', 'rich', 'click') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
