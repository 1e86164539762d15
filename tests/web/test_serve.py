"""``nearcache lab serve``: starts, answers, refuses, and leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearcache.lab.servers import free_port
from nearcache.web.serving import served_candidates
from tests.lab.conftest import need
from tests.lab.test_cli import LAB, descendants, environment, is_alive, lab, left_behind


@contextmanager
def serving(*words: str, cwd: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The running command and its address."""
    port = free_port()
    process = subprocess.Popen(
        [*LAB, "serve", "--port", str(port), "--workers", "2", *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment(),
    )
    try:
        assert process.stdout
        while "Ctrl-C ends them" not in (line := process.stdout.readline()):
            assert line, "it ended"
        yield process, f"http://127.0.0.1:{port}/"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def get(url: str, method: str = "GET", **headers: str) -> str:
    request = urllib.request.Request(url, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        body: bytes = answer.read()
    return body.decode()


def test_candidates_are_served_with_private_servers_until_ctrl_c(
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    need("redis-server")
    with serving("--aliases", "locmem,shm,redis-hiredis-unix") as (process, here):
        for _ in range(12):
            get(here + "random")
        found = json.loads(get(here + "summary?format=json"))
        assert [line["alias"] for line in found["aliases"]] == [
            "locmem", "shm", "redis-hiredis-unix",
        ]  # fmt: skip
        assert found["attempted"] == found["recorded"] == 12
        with pytest.raises(urllib.error.HTTPError, match="400"):
            get(here + "summary", Host="evil.example")
        # Redis, and gunicorn with two workers, of which it starts one after the other.
        eventually(lambda: len(descendants(process.pid)) >= 4)
        helpers = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert process.returncode == 130
        eventually(lambda: not [pid for pid in helpers if is_alive(pid)])
        assert not left_behind(process.pid)


def test_a_users_own_caches_are_served_and_nothing_else_of_the_site(tmp_path: Path) -> None:
    (tmp_path / "shopsettings.py").write_text(
        "SECRET_KEY = 'not-for-print'\n"
        "MIDDLEWARE = ['shop.Nothing']\n"
        "ROOT_URLCONF = 'shop.nothing'\n"
        "CACHES = {'default': {'BACKEND': 'django.core.cache.backends.dummy.DummyCache'},\n"
        "  'pages': {'BACKEND': 'django.core.cache.backends.filebased.FileBasedCache',\n"
        f"            'LOCATION': {str(tmp_path / 'cache')!r}}}}}\n"
    )
    with serving("--settings", "shopsettings", "--aliases", "pages", cwd=tmp_path) as (_, here):
        assert "a POST writes it" in get(here + "pages")
        get(here + "pages", method="POST")
        assert float(get(here + "random")) > 0
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(here + "default")
    assert list((tmp_path / "cache").glob("*.djcache"))


def test_if_it_is_killed_its_servers_go_too(
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    with serving("--aliases", "locmem") as (process, _):
        helpers = descendants(process.pid)
        process.kill()
        eventually(lambda: not [pid for pid in helpers if is_alive(pid)])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bind", "0.0.0.0"], "other hosts reach 0.0.0.0, and nobody is asked who he is"),
        (["--bind", "localhost"], "--bind takes an IP address, not 'localhost'"),
        (["--aliases", "locmen"], "did you mean 'locmem'?"),
        (["--payload", "Z"], "no payload named 'Z'"),
        (["--settings", "no.such"], "settings module 'no.such' does not import"),
        (["--redis-server", "/bin/false", "--aliases", "redis-hiredis-unix"], "did not start"),
    ],
)
def test_a_bad_request_is_one_line_and_exit_code_2(words: list[str], said: str) -> None:
    result = lab("serve", "--port", "0", *words)
    assert result.returncode == 2
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_port_that_is_taken_is_said() -> None:
    with serving("--aliases", "locmem") as (_, here):
        port = here.rsplit(":", 1)[1].strip("/")
        result = lab("serve", "--port", port)
        assert result.returncode == 2
        assert f"cannot listen on 127.0.0.1:{port}" in result.stderr


def test_what_needs_a_process_of_its_own_is_not_served_beside_others() -> None:
    names = served_candidates()
    assert {"locmem", "shm", "redis-hiredis-unix"} <= set(names)
    assert not [name for name, candidate in names.items() if candidate.hides]
