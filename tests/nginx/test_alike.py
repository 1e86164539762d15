"""Several logs at once: those of one format are read, and what is left out is said."""

from __future__ import annotations

import fcntl
import gzip
import re
import signal
import subprocess
import sys
import termios
from array import array
from pathlib import Path
from typing import IO

import pytest
from click.testing import CliRunner, Result

from nearcache.cli import main
from nearcache.nginx.logs.alike import open_logs
from nearcache.nginx.logs.files import Logs

from .conftest import PATIENCE_S, wait_for

COMBINED = '192.0.2.1 - - [21/Nov/2026:10:00:{:02} +0000] "GET /a HTTP/1.1" 200 5 "-" "-"\n'
JSON = (
    '{{"msec":"1795255200.{:03}","status":"200","request_uri":"/a","upstream_cache_status":"HIT"}}'
    "\n"
)
MORE = JSON.replace('"status"', '"host":"a","status"')


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """What a team has in /var/log/nginx: one site logged twice, another, and something else."""
    (tmp_path / "all.log").write_text("".join(COMBINED.format(n) for n in range(20)))
    (tmp_path / "cache.log.1").write_text("".join(JSON.format(n) for n in range(10)))
    (tmp_path / "cache.log").write_text("".join(MORE.format(n) for n in range(10, 20)))
    (tmp_path / "worker.log").write_text("*** Starting uWSGI ***\n")
    (tmp_path / "new.log").touch()
    return tmp_path


def report(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["nginx", "report", *map(str, arguments)])


def says(result: Result, text: str) -> bool:
    """However lines and long paths are broken."""
    return "".join(text.split()) in "".join(result.output.split())


def test_of_several_formats_the_one_that_says_most_is_read(logs: Path) -> None:
    result = report(logs)
    assert result.exit_code == 0, result.output
    assert says(result, "answered 20 of 20 requests"), result.output
    assert says(
        result, "all.log is left out: its format is combined, and json of the others says more"
    ), result.output
    assert says(result, "worker.log is left out: no known format fits it"), result.output
    assert not says(result, "not counted")


def test_a_forecast_is_made_from_these_logs_too(logs: Path) -> None:
    result = CliRunner().invoke(main, ["nginx", "whatif", str(logs), "--anyway", "--ttl", "1h"])
    assert says(result, "all.log is left out"), result.output


def test_a_log_that_was_named_and_left_out_is_the_exit_code(logs: Path) -> None:
    result = report(logs / "all.log", logs / "cache.log")
    assert result.exit_code == 1
    assert says(result, "all.log is left out"), result.output
    assert report("--format", "combined", logs / "all.log", logs / "cache.log").exit_code == 0


def test_logs_that_the_configuration_names_are_chosen_alike(logs: Path) -> None:
    configuration = logs / "nginx.conf"
    configuration.write_text(
        f"""http {{
            log_format j escape=json '{{"msec":"$msec","status":"$status",'
                '"request_uri":"$request_uri","upstream_cache_status":"$upstream_cache_status"}}';
            server {{
                access_log {logs}/all.log; access_log {logs}/cache.log j;
                access_log logs/$host.log; access_log syslog:server=a; location / {{ }}
            }} }}"""
    )
    result = report("--config", configuration)
    assert says(result, "answered 10 of 10 requests"), result.output
    assert says(result, "all.log is left out"), result.output
    assert says(result, "logs/$host.log is not read: name the files that it stands for"), (
        result.output
    )
    configuration.write_text("http { access_log logs/a.log; }")
    refused = report("--config", configuration)
    assert refused.exit_code == 2
    assert "logs to logs/a.log, and only nginx knows which files these are" in refused.output


def test_logs_of_one_format_are_all_read(logs: Path) -> None:
    (logs / "other.log").write_text(COMBINED.format(1))
    names = [str(logs / name) for name in ("all.log", "other.log", "new.log")]
    assert sorted(open_logs(names, None, {}).names) == sorted(names)


def test_nothing_is_taken_out_of_pipes_to_look_at_it(logs: Path) -> None:
    log = f"<(cat {logs}/all.log)"
    command = f"{sys.executable} -m nearcache nginx report {log} {log}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "of 40 requests" in done.stdout, done.stderr


def test_a_log_that_is_just_being_packed_is_read_once(tmp_path: Path) -> None:
    plain, packed = tmp_path / "access.log.1", tmp_path / "access.log.1.gz"
    plain.write_text("".join(COMBINED.format(n) for n in range(20)))
    packed.write_bytes(gzip.compress(plain.read_bytes())[:100])
    logs = Logs([str(packed), str(plain)])
    assert logs.names == [str(plain)]
    assert logs.notes == [f"{packed} is {plain}, packed: read once"]
    # The same name, and another log: of the time before.
    packed.write_bytes(gzip.compress(COMBINED.format(59).encode()))
    assert len(Logs([str(packed), str(plain)]).names) == 2


@pytest.mark.parametrize("log", ["all.log", "cache.log"])
def test_a_key_that_the_log_has_not_is_refused_and_not_ignored(log: str, logs: Path) -> None:
    result = report("--key", "$my_key", logs / log)
    assert result.exit_code == 2
    assert says(result, "--key my_key"), result.output


def test_ctrl_c_shows_what_was_read_by_then(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nearcache", "nginx", "report", "-"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    assert process.stdin
    lines = "".join(JSON.format(n) for n in range(40)).encode()
    for _ in range(2):  # who reads the second part has counted the first
        process.stdin.write(lines)
        assert wait_for(lambda: not unread(process.stdin))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert re.search(rb"answered (40|80) of \1 requests", out)
    assert b"interrupted after" in err


def unread(pipe: IO[bytes] | None) -> int:
    """How many bytes nobody has taken out of a pipe yet."""
    assert pipe
    waiting = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0]
