"""Servers that fork, each in the ways it can: every answer is checked in the worker that got it."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.needs import need, need_package
from tests.site.servers import Server, Site

APP = "tests.forks.app:application"
CLIENTS = 4
ANSWERS = 5
"""Of each worker."""


def uwsgi(*options: str) -> Server:
    program = str(Path(sys.executable).with_name("uwsgi"))
    common = ("--http-socket=127.0.0.1:{port}", "--master", "--processes=2", "--die-on-term")
    more = ("--need-app", "--disable-logging", "--module=" + APP)
    return Server((program, *common, *more, *options), "pyuwsgi")


def gunicorn(*options: str) -> Server:
    common = ("--bind=127.0.0.1:{port}", "--workers=2", "--preload", "--log-level=warning")
    needs = "gevent" if "--worker-class=gevent" in options else "gunicorn"
    return Server((sys.executable, "-m", "gunicorn", *common, *options, APP), needs)


UWSGI = [
    [option for option in options if option]
    for options in product(("", "--lazy-apps"), ("", "--threads=4"), ("", "--py-call-osafterfork"))
]
SERVERS = {" ".join(("uwsgi", *options)): uwsgi(*options) for options in UWSGI} | {
    "gunicorn sync": gunicorn(),
    "gunicorn gthread": gunicorn("--threads=4"),
    "gunicorn gevent": gunicorn("--worker-class=gevent"),
}


@pytest.mark.parametrize("name", SERVERS)
def test_each_worker_gets_its_own_answers(
    name: str, tmp_path: Path, redis_settings: dict[str, Any], shm_settings: dict[str, Any]
) -> None:
    server = SERVERS[name]
    if sys.version_info >= (3, 13) and "--py-call-osafterfork" in name:
        pytest.skip("uWSGI's hook aborts any application there: it unlocks what it has not locked")
    need(server.command[0])
    need_package(server.needs)
    site = Site(server, tmp_path, {"caches": {"redis": redis_settings, "shm": shm_settings}})
    site.start()
    try:
        site.wait_ready()
        answered: Counter[int] = Counter()

        def ask_until_all_have_answered() -> None:
            while len(answered) < 2 or min(answered.values()) < ANSWERS:
                told = site.ask("GET", "/", {}).told
                assert told, site.log.read_text()[-3000:]
                assert not told["wrong"], told["wrong"]
                answered[told["pid"]] += 1

        with ThreadPoolExecutor(CLIENTS) as clients:
            asked = [clients.submit(ask_until_all_have_answered) for _ in range(CLIENTS)]
        for each in asked:
            each.result()
        assert answered.keys() <= site.workers()
    finally:
        site.end()
