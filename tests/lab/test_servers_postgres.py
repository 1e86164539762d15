"""The lab's own PostgreSQL: private, durable, not root's, and gone with the lab."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nearcache.errors import LabError
from nearcache.lab import servers as servers_module
from nearcache.lab.base.directories import disk_parent, mount_of
from nearcache.lab.servers import Running, ServerMissing, postgres
from nearcache.lab.servers.postgres import connection_string, django_database
from tests.needs import need_package

from .private_servers import need_server, some_servers
from .test_cli import is_alive

psycopg = need_package("psycopg")

STARTS_AND_WAITS = """
import sys, time
from nearcache.lab.base.directories import private_directory
from nearcache.lab.servers import Servers
servers = Servers(private_directory(), None)
running = servers.start("postgres")
print(running.process.pid, running.places["postgres_host"], servers.directory, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    need_server("postgres")
    with some_servers() as servers:
        yield servers.start("postgres")


def test_it_answers_on_its_socket_and_says_its_version(running: Running) -> None:
    with psycopg.connect(connection_string(running.places)) as connection:
        (version,) = connection.execute("SHOW server_version").fetchone()
    assert running.version == version


def test_it_keeps_the_settings_that_make_it_durable(running: Running) -> None:
    with psycopg.connect(connection_string(running.places)) as connection:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            assert connection.execute(f"SHOW {name}").fetchone() == ("on",)


def test_nobody_can_reach_it_by_tcp_or_enter_its_directory(running: Running) -> None:
    with psycopg.connect(connection_string(running.places)) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
    assert Path(running.places["postgres_host"]).stat().st_mode & 0o077 == 0


def test_it_is_not_roots(running: Running) -> None:
    owner = Path(f"/proc/{running.process.pid}").stat().st_uid
    assert owner != 0
    assert Path(running.places["postgres_host"]).stat().st_uid == owner


def test_its_files_lie_on_a_disk_if_there_is_one(running: Running) -> None:
    assert running.places["postgres_mount"] == str(mount_of(disk_parent()))
    if not mount_of(Path("/var/tmp")).in_memory:
        assert "tmpfs" not in running.places["postgres_mount"]


def test_django_can_use_it_as_it_is(running: Running) -> None:
    found = django_database(running.places)
    assert found["HOST"] == running.places["postgres_host"]
    assert found["CONN_MAX_AGE"] is None


def test_it_stops_at_once_although_somebody_is_connected_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need_server("postgres")
    monkeypatch.setattr(servers_module, "STOP_TIMEOUT_S", 60)  # a busy disk takes its time
    with some_servers() as servers:
        running = servers.start("postgres")
        connection = psycopg.connect(connection_string(running.places))
    # It was asked to leave fast: 0 is a clean shutdown, and not the end of our patience.
    assert running.process.returncode == 0
    assert not Path(running.places["postgres_host"]).parent.exists()
    connection.close()


def test_it_ends_when_the_lab_is_killed_outright(
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    need_server("postgres")
    lab = subprocess.Popen(
        [sys.executable, "-c", STARTS_AND_WAITS],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with lab:
        assert lab.stdout is not None
        pid, host, directory = lab.stdout.readline().split()
        lab.send_signal(signal.SIGKILL)
    eventually(lambda: not is_alive(int(pid)))
    outer = Path(host).parent

    def is_tidied() -> bool:
        """What the killed one left behind goes when the next one comes."""
        with some_servers() as servers:
            servers.directory_in(outer.parent)
        return not outer.exists() and not Path(directory).exists()

    eventually(is_tidied)  # another lab of this machine may be at it in the same moment


def test_without_it_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "WHERE_DEBIAN_KEEPS_IT", tmp_path)
    with (
        some_servers() as servers,
        pytest.raises(ServerMissing, match="apt install postgresql"),
    ):
        servers.start("postgres")


def test_a_program_that_is_no_postgres_is_told_of_in_a_line(tmp_path: Path) -> None:
    for name in ("postgres", "initdb"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho no such thing >&2; exit 1\n")
        program.chmod(0o755)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)  # another user must get there
    with (
        some_servers(postgres=str(tmp_path / "postgres")) as servers,
        pytest.raises(LabError, match=r"initdb failed \(.*\); run it by hand"),
    ):
        servers.start("postgres")
