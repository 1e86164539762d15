"""A Django site purges after the commit, on all hosts, and never breaks a request for it."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core import checks
from django.db import connection, transaction
from django.test import override_settings
from django.utils.functional import lazystr

from nearcache.base.options import Secret
from nearcache.errors import NginxError, OptionError
from nearcache.nginx import (
    PurgeFailed,
    PurgeResult,
    apurge_url,
    purge_stats,
    purge_url,
    purge_urls,
)
from nearcache.nginx.agent.agent import Agent
from nearcache.nginx.agent.hosts import LocalCache
from nearcache.nginx.django.settings import PurgeOptions, check_settings

from .conftest import PATIENCE_S, Answer, Nginx, Upstream

Proxy = Callable[[str], Nginx]
SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def _every_answer_is_new(upstream: Upstream) -> None:
    numbers = count(1)
    upstream.script = lambda path, headers: Answer(f"{path} {next(numbers)}".encode())


@pytest.fixture
def nginx(proxy: Proxy) -> Iterator[Nginx]:
    """One host, whose cache the settings name."""
    started = proxy("")
    started.fill("/a")
    started.fill("/b")
    with configured(caches=[{"path": str(started.cache)}]):
        yield started
    connection.close()


@pytest.fixture
def hosts(proxy: Proxy) -> Iterator[Sequence[tuple[Nginx, Agent]]]:
    """Two hosts, each with an nginx and an agent; the settings name both."""
    started = []
    for _ in range(2):
        nginx = proxy("")
        nginx.fill("/a")
        agent = Agent(("127.0.0.1", 0), [LocalCache(nginx.cache)], Secret(SECRET.encode()))
        thread = threading.Thread(target=agent.serve, daemon=True)
        thread.start()
        started.append((nginx, agent, thread))
    hosts = [(nginx, agent) for nginx, agent, _ in started]
    with configured(agents=[url(agent) for _, agent in hosts], secret=SECRET):
        yield hosts
    for _, agent, thread in started:
        agent.stop()
        thread.join(PATIENCE_S)
        agent.close()


def url(agent: Agent) -> str:
    return f"http://127.0.0.1:{agent.address[1]}"


def configured(**settings: Any) -> override_settings:
    if settings:
        settings = {"timeout_s": PATIENCE_S} | settings
    return override_settings(NEARCACHE_NGINX=settings)


def test_outside_of_a_transaction_it_happens_at_once(nginx: Nginx) -> None:
    result = purge_url("/a")
    assert (result.state, result.ok, result.files) == ("done", True, 1)
    assert [each.host for each in result.outcomes] == [str(nginx.cache)]
    assert (nginx.get("/a").cache, nginx.get("/b").cache) == ("EXPIRED", "HIT")


def test_in_a_transaction_it_waits_for_the_commit(nginx: Nginx) -> None:
    with transaction.atomic():
        with transaction.atomic():
            result = purge_urls(["/a", "/b"])
        assert (result.state, result.ok) == ("waiting", False)
        assert nginx.get("/a").cache == "HIT"
    assert (result.state, result.files) == ("done", 2)
    assert nginx.get("/a").cache == "EXPIRED"


def test_a_transaction_that_is_rolled_back_purges_nothing(nginx: Nginx) -> None:
    results: list[PurgeResult] = []

    def save() -> None:
        with transaction.atomic():
            results.append(purge_url("/a"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        save()
    assert results[0].state == "waiting"
    assert nginx.get("/a").cache == "HIT"


def test_a_site_without_a_database_purges_too(nginx: Nginx) -> None:
    script = (
        "from django.conf import settings\n"
        f"settings.configure(NEARCACHE_NGINX={{'caches': [{str(nginx.cache)!r}]}})\n"
        "from nearcache.nginx import purge_url\n"
        "print(purge_url('/a').files)"
    )
    assert printed(script) == "1"
    assert nginx.get("/a").cache == "EXPIRED"


def test_hard_is_said_in_the_settings_or_in_the_call(nginx: Nginx) -> None:
    assert purge_url("/a", how="hard").files == 1
    assert nginx.get("/a").cache == "MISS"
    with configured(caches=[str(nginx.cache)], how="hard"):
        assert purge_url("/b").files == 1
    assert nginx.get("/b").cache == "MISS"


def test_a_path_is_one_of_the_site_whose_address_is_said(
    start_nginx: Callable[..., Nginx], upstream: Upstream
) -> None:
    nginx = start_nginx(
        http="proxy_cache_path {cache} levels=1:2 keys_zone=z:1m;",
        server=f"location / {{ proxy_pass http://127.0.0.1:{upstream.port}; proxy_cache z;"
        "proxy_cache_valid 1h; proxy_cache_key $scheme$host$request_uri;"
        "add_header X-Cache $upstream_cache_status; }",
    )
    host = {"Host": "example.com"}
    nginx.fill("/a", host)
    cache = {"path": str(nginx.cache), "levels": "1:2", "key": "{scheme}{host}{uri}"}
    with configured(caches=[cache | {"varies": False}], base="http://example.com"):
        assert purge_url("/a").files == 1
        assert purge_url("http://example.com/not-there").ok
    with configured(caches=[cache]):
        failed = purge_url("/a")
    assert "has no scheme and host" in failed.outcomes[0].error
    assert nginx.get("/a", host).cache == "EXPIRED"


def test_all_hosts_are_purged_at_once(hosts: Sequence[tuple[Nginx, Agent]]) -> None:
    result = purge_url("/a")
    assert [(each.state, each.files) for each in result.outcomes] == [("purged", 1)] * 2
    assert [nginx.get("/a").cache for nginx, _ in hosts] == ["EXPIRED"] * 2


def test_a_host_that_is_away_breaks_nothing_and_is_said_once(
    hosts: Sequence[tuple[Nginx, Agent]], closed_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    (nginx, alive), _ = hosts
    away = f"http://127.0.0.1:{closed_port}"
    with configured(agents=[url(alive), away], secret=SECRET):
        results = [purge_url("/a") for _ in range(3)]
        assert [each.state for each in results[0].outcomes] == ["purged", "failed"]
        assert not results[0].ok
        assert nginx.get("/a").cache == "EXPIRED"
        assert purge_stats()[away] == {"failed": 3}
        assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1
        with pytest.raises(PurgeFailed, match="no answer") as raised:
            purge_url("/a", raise_errors=True)
        assert raised.value.result.outcomes[0].state in ("purged", "nothing")


def test_a_host_that_comes_back_is_said_too(nginx: Nginx, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nearcache.nginx")
    away = nginx.cache.rename(nginx.cache.with_name("away"))
    assert not purge_url("/a").ok
    away.rename(nginx.cache)
    assert purge_url("/a").ok
    said = [record.getMessage() for record in caplog.records if record.name == "nearcache.nginx"]
    assert "does not exist" in said[0]
    assert said[1].endswith("purges succeed again")
    assert len(said) == 2


def test_a_host_that_does_not_answer_takes_no_longer_than_was_said(nginx: Nginx) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        agent = f"http://127.0.0.1:{silent.getsockname()[1]}"
        caches = [str(nginx.cache)]
        for timeout_s in (0.3, 3, 30):  # longer only where our own part is not done by then
            with configured(caches=caches, agents=[agent], secret=SECRET, timeout_s=timeout_s):
                result = purge_url("/a")
            if result.outcomes[0].state == "purged":
                break
    assert [each.state for each in result.outcomes] == ["purged", "failed"]
    assert re.search("timed out|no answer within [0-9.]+ s", result.outcomes[1].error)


def test_coroutines_wait_without_blocking_the_loop(hosts: Sequence[tuple[Nginx, Agent]]) -> None:
    async def main() -> tuple[PurgeResult, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        ticking = asyncio.create_task(tick())
        result = await apurge_url("/a")
        ticking.cancel()
        return result, ticks

    result, ticks = asyncio.run(main())
    assert (result.ok, result.files) == (True, 2)
    assert ticks > 0


def test_a_coroutine_under_a_transaction_waits_for_its_commit(nginx: Nginx) -> None:
    with transaction.atomic():
        result = async_to_sync(apurge_url)("/a")
        assert result.state == "waiting"
        assert nginx.get("/a").cache == "HIT"
    assert result.files == 1


def test_a_cache_that_is_empty_yet_is_no_failure(tmp_path: Path) -> None:
    for known in ({}, {"levels": "1:2"}, {"levels": "1:2", "key": "{uri}"}):
        with configured(caches=[{"path": str(tmp_path)} | known]):
            assert [each.state for each in purge_url("/a").outcomes] == ["nothing"]


def test_without_settings_nothing_happens_and_check_says_so() -> None:
    with configured():
        assert not purge_url("https://example.com/").ok
        assert [message.id for message in check_settings()] == ["nearcache.nginx.W001"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cache": []}, "did you mean 'caches'?"),
        ({"caches": "/var"}, "must be a list"),
        ({"caches": [{"path": "relative"}]}, "write an absolute one"),
        ({"caches": [{"path": "/x", "level": "1:2"}]}, "holds 'level'"),
        ({"caches": [{"path": "/x", "levels": "3"}]}, "up to three of 1 or 2"),
        ({"caches": [{"path": "/x", "key": "{hots}{uri}"}]}, "has {hots}"),
        ({"caches": ["/x"], "timeout_s": 0}, "above 0"),
        ({"caches": ["/x"], "how": "gentle"}, "must be one of 'soft', 'hard'"),
        ({"caches": ["/x"], "base": "example.com"}, "must be the address of the site"),
        ({"agents": ["http://10.0.0.1:1"]}, "need a secret"),
        ({"agents": ["10.0.0.1:1"], "secret": SECRET}, "is no agent"),
        ({"agents": ["http://10.0.0.1:1"], "secret": "short"}, "it needs 32 or more"),
        ({"secret": SECRET, "secret_file": "/x"}, "write one of them"),
    ],
)
def test_wrong_settings_are_found_by_check_and_never_print_the_secret(
    settings: dict[str, Any], said: str
) -> None:
    with configured(**settings):
        (error,) = check_settings()
        assert isinstance(error, checks.Error)
        assert said in error.msg
        assert SECRET not in error.msg
        assert "short" not in error.msg or "short" in said
        with pytest.raises(OptionError):
            purge_url("/a")


def test_options_do_not_show_the_secret() -> None:
    options = PurgeOptions.parse({"agents": ["http://10.0.0.1:1"], "secret": SECRET})
    assert SECRET not in repr(options)
    assert "<secret>" in repr(options)


def test_an_agent_out_on_the_internet_needs_tls() -> None:
    for address, warned in (
        ("http://8.8.8.8:1", True),
        ("http://purge.example.com", True),
        ("https://purge.example.com", False),
        ("http://10.1.2.3:1", False),
        ("http://web1:8765", False),
        ("http://[fd00::1]:1", False),
    ):
        with configured(agents=[address], secret=SECRET):
            found = [message.id for message in check_settings()]
        assert found == (["nearcache.nginx.W002"] if warned else []), address


def test_a_secret_that_cannot_be_read_breaks_no_commit_and_heals_without_a_restart(
    hosts: Sequence[tuple[Nginx, Agent]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (_, agent), _ = hosts
    path = tmp_path / "secret"
    with configured(agents=[url(agent)], secret_file=str(path)):
        for breaks in (lambda: None, path.touch, path.unlink, path.mkdir):
            breaks()
            with transaction.atomic():
                result = purge_url("/a")
            assert [each.state for each in result.outcomes] == ["failed"]
            assert f"the secret {path}" in result.outcomes[0].error
            assert [message.id for message in check_settings()] == ["nearcache.nginx.W003"]
        assert purge_stats()[url(agent)] == {"failed": 4}
        assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1
        path.rmdir()
        path.write_text(SECRET)
        path.chmod(0o600)
        assert check_settings() == []
        assert purge_url("/a").files == 1
    connection.close()


def test_whatever_happens_in_a_purge_breaks_no_commit(nginx: Nginx) -> None:
    with transaction.atomic():
        result = purge_urls(["/a"], how="Hard")  # type: ignore[arg-type]
    assert (result.ok, result.outcomes[0].state) == (False, "failed")
    assert result.outcomes[0].error == "KeyError: 'Hard'"


def test_an_address_in_any_script_is_purged_as_browsers_send_it(nginx: Nginx) -> None:
    nginx.fill("/caf%C3%A9%20noir?q=%E2%82%AC")
    assert purge_url("/café noir?q=€").files == 1
    assert purge_url("/caf%C3%A9%20noir?q=%E2%82%AC").ok
    assert nginx.get("/caf%C3%A9%20noir?q=%E2%82%AC").cache == "EXPIRED"


def test_a_page_whose_key_has_the_decoded_path_is_purged(proxy: Callable[[str], Nginx]) -> None:
    nginx = proxy("proxy_cache_key $scheme$host$uri$is_args$args;")
    with configured(caches=[str(nginx.cache)]):
        for path in ("/page/caf%C3%A9", "/page/caf%C3%A9?a=%C3%A9", "/other"):
            nginx.fill(path)
        for path in ("/page/caf%C3%A9", "/page/café?a=é"):
            assert purge_url(f"http://127.0.0.1{path}").files == 1
        assert nginx.get("/page/caf%C3%A9").cache == "EXPIRED"
        assert nginx.get("/page/caf%C3%A9?a=%C3%A9").cache == "EXPIRED"
        assert nginx.get("/other").cache == "HIT"


def test_one_text_is_not_taken_for_many_urls(nginx: Nginx) -> None:
    with pytest.raises(NginxError, match=r"purge_url\('/a'\)"):
        purge_urls("/a")
    assert purge_url(lazystr("/a")).files == 1


def test_manage_py_check_looks_at_the_settings_of_the_app() -> None:
    script = (
        "import django; from django.conf import settings; from django.core import checks\n"
        "settings.configure(NEARCACHE_NGINX={'cache': []}, INSTALLED_APPS=['nearcache.nginx'])\n"
        "django.setup(); print([message.id for message in checks.run_checks()])"
    )
    assert printed(script) == "['nearcache.nginx.E001']"


def test_the_doctor_is_imported_without_django_or_its_settings() -> None:
    script = (
        "import sys, nearcache.nginx\n"
        "import nearcache.nginx.purge.purge, nearcache.nginx.agent.agent\n"
        "print([m for m in ('django', 'redis', 'nearcache.lab') if m in sys.modules])"
    )
    assert printed(script) == "[]"


def printed(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("settings", [{}, {"base": "https://example.com"}])
def test_who_names_no_cache_and_no_agent_is_told_that_nothing_was_purged(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with configured(**settings):
        results = [purge_url("https://example.com/a") for _ in range(2)]
        assert [(each.state, each.ok, each.files) for each in results] == [("done", False, 0)] * 2
        assert "names no cache and no agent" in results[0].reason
        assert [r.levelno for r in caplog.records if "no cache" in r.getMessage()] == [
            logging.ERROR
        ]
        for call in (purge_url, async_to_sync(apurge_url)):
            with pytest.raises(PurgeFailed, match="NEARCACHE_NGINX names no cache and no agent"):
                call("https://example.com/a", raise_errors=True)
    connection.close()


@override_settings()
def test_a_purge_without_the_setting_is_not_ok_either() -> None:
    from django.conf import settings

    with configured():
        del settings.NEARCACHE_NGINX
        result = purge_url("https://example.com/a")
    assert not result.ok
    assert "nothing was purged" in result.reason


def test_a_purge_that_went_well_has_no_reason_to_tell(nginx: Nginx) -> None:
    assert purge_url("/a").reason == ""
