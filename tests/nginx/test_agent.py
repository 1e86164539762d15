"""The agent purges for who knows the secret, and does nothing for anybody else."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from nearcache.base.options import Secret
from nearcache.cli import main
from nearcache.errors import NginxError
from nearcache.lab.servers import end_process, free_port
from nearcache.nginx.agent.agent import Agent
from nearcache.nginx.agent.doorway import LARGEST_BODY
from nearcache.nginx.agent.guard import BELIEVED_S, Buckets, Guard, Refused
from nearcache.nginx.agent.hosts import PATH, RemoteAgent, Wanted
from nearcache.nginx.agent.signing import read_secret, read_signature, sign

from .agents import SECRET, remote, serving
from .conftest import PATIENCE_S, Nginx

Proxy = Callable[[str], Nginx]
NOW = 1_900_000_000.0


@pytest.fixture
def nginx(proxy: Proxy) -> Nginx:
    started = proxy("")
    for path in ("/a", "/b"):
        started.fill(path)
    return started


@pytest.fixture
def agent(nginx: Nginx) -> Iterator[Agent]:
    with serving(nginx) as agent:
        yield agent


def connected(server: Agent) -> socket.socket:
    return socket.create_connection(server.address, timeout=PATIENCE_S)


def post(
    server: Agent, body: bytes, headers: dict[str, str] | None = None, path: str = PATH
) -> tuple[int, dict[str, Any]]:
    connection = HTTPConnection(*server.address, timeout=PATIENCE_S)
    try:
        connection.request("POST", path, body, headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def signed(body: bytes, secret: bytes = SECRET, now: float | None = None) -> dict[str, str]:
    return {"Authorization": sign(secret, PATH, body, time.time() if now is None else now).header}


def test_who_knows_the_secret_purges(agent: Agent, nginx: Nginx) -> None:
    outcome = remote(agent).purge(Wanted(("/a", "/not-there")), PATIENCE_S)
    assert (outcome.state, outcome.files, outcome.error) == ("purged", 1, "")
    assert (nginx.get("/a").cache, nginx.get("/b").cache) == ("EXPIRED", "HIT")
    assert remote(agent).purge(Wanted(("/not-there",)), PATIENCE_S).state == "nothing"


def test_another_secret_purges_nothing(agent: Agent, nginx: Nginx) -> None:
    outcome = remote(agent, Secret(b"x" * 32)).purge(Wanted(("/a",)), PATIENCE_S)
    assert outcome.state == "failed"
    assert "not signed with the secret of this agent" in outcome.error
    assert nginx.get("/a").cache == "HIT"


def test_a_request_is_done_once(agent: Agent, nginx: Nginx) -> None:
    body = Wanted(("/a",)).to_json()
    headers = signed(body)
    assert post(agent, body, headers)[0] == 200
    nginx.fill("/a")
    status, facts = post(agent, body, headers)
    assert (status, facts["error"]) == (409, "this request was sent before")
    assert nginx.get("/a").cache == "HIT"


def test_half_a_character_is_answered_and_not_dropped(agent: Agent) -> None:
    for wanted in (Wanted(keys=("/\ud800",)), Wanted(("/\ud800",))):
        outcome = remote(agent).purge(wanted, PATIENCE_S)
        assert (outcome.state, "half a character" in outcome.error) == ("failed", True)


@pytest.mark.parametrize("off_s", [-BELIEVED_S - 5, BELIEVED_S + PATIENCE_S])
def test_a_request_of_another_time_is_refused(agent: Agent, off_s: float) -> None:
    body = Wanted(("/a",)).to_json()
    status, facts = post(agent, body, signed(body, now=time.time() + off_s))
    assert status == 403
    assert "the clocks differ" in facts["error"]


def test_a_body_that_was_changed_on_its_way_is_refused(agent: Agent, nginx: Nginx) -> None:
    body = Wanted(("/b",)).to_json()
    assert post(agent, body.replace(b"/b", b"/a"), signed(body))[0] == 401
    assert post(agent, body, {"Authorization": signed(body)["Authorization"] + "0"})[0] == 401
    assert post(agent, body)[0] == 401
    assert nginx.get("/a").cache == "HIT"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "the body is no JSON"),
        (b"[" * 100_000, "the body is no JSON"),
        (b"[]", "must be an object"),
        (b'{"match": "*"}', "must be an object of urls, keys"),
        (b'{"urls": []}', "name 1 to 1000"),
        (b'{"urls": "/a"}', "must be a list of texts"),
        (b'{"urls": [1]}', "must be a list of texts"),
        (b'{"urls": ["/a"], "how": "all"}', "soft or hard"),
        (json.dumps({"urls": ["/a"] * 1001}).encode(), "name 1 to 1000"),
    ],
)
def test_what_is_signed_and_makes_no_sense_is_refused(agent: Agent, body: bytes, said: str) -> None:
    status, facts = post(agent, body, signed(body))
    assert status == 400
    assert said in facts["error"]


def test_a_body_without_a_length_or_too_long_is_not_read(agent: Agent) -> None:
    for headers, status in (
        ("", b"411"),
        ("Content-Length: -1\r\n", b"411"),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"411"),
        (f"Content-Length: {LARGEST_BODY + 1}\r\n", b"413"),
        ("Content-Length: 99999999999999999999\r\n", b"413"),
    ):
        with connected(agent) as client:
            client.sendall(f"POST {PATH} HTTP/1.1\r\nHost: a\r\n{headers}\r\n".encode())
            assert client.recv(4096).split()[1] == status


def test_there_is_nothing_else_to_ask_for(agent: Agent) -> None:
    body = Wanted(("/a",)).to_json()
    assert post(agent, body, signed(body), "/keys")[0] == 404
    connection = HTTPConnection(*agent.address, timeout=PATIENCE_S)
    connection.request("GET", PATH)
    assert connection.getresponse().status == 405
    connection.close()


def test_an_answer_of_somebody_else_is_not_believed(agent: Agent) -> None:
    agent.guard.answer = lambda *_: "0" * 64  # type: ignore[method-assign]
    outcome = remote(agent).purge(Wanted(("/a",)), PATIENCE_S)
    assert outcome.state == "failed"
    assert "the answer is not signed with our secret" in outcome.error


def test_a_bucket_fills_again() -> None:
    now = [0.0]
    buckets = Buckets(lambda: now[0], rate=2, burst=3)
    assert [buckets.take("a") for _ in range(4)] == [True, True, True, False]
    assert buckets.take("b"), "each address has its own"
    now[0] = 1.0
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]


def test_what_was_signed_before_a_restart_is_refused() -> None:
    now = [NOW]
    body = b"x"
    signature = sign(SECRET, PATH, body, NOW)
    Guard(SECRET, lambda: now[0]).check(signature.header, PATH)
    now[0] += 0.002
    with pytest.raises(Refused, match="before this agent was started"):
        Guard(SECRET, lambda: now[0]).check(signature.header, PATH)


def test_nonces_are_forgotten_only_when_their_time_is_over() -> None:
    now = [NOW]
    guard = Guard(SECRET, lambda: now[0])
    for _ in range(300):
        now[0] += 1
        signature = sign(SECRET, PATH, b"", now[0])
        guard.check(signature.header, PATH)
        with pytest.raises(Refused, match="sent before"):
            guard.check(signature.header, PATH)
    assert len(guard._seen) <= 2 * BELIEVED_S + 2


@given(st.text(max_size=200))
def test_no_header_is_too_strange(header: str) -> None:
    guard = Guard(SECRET, lambda: NOW)
    with pytest.raises(Refused):
        guard.check(header, PATH)


@given(st.binary(max_size=300))
def test_no_body_is_too_strange(body: bytes) -> None:
    try:
        wanted = Wanted.from_json(body)
    except NginxError:
        return
    assert wanted.urls or wanted.keys


def test_a_signature_reads_back_as_it_was_made() -> None:
    signature = sign(SECRET, PATH, b"body", NOW)
    assert read_signature(signature.header) == signature


# -- the command


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_bytes(SECRET + b"\n")
    return path


def run_agent(*arguments: object) -> tuple[subprocess.Popen[str], str]:
    """The process and where it listens."""
    command = [sys.executable, "-m", "nearcache", "nginx", "agent", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    line = process.stderr.readline()
    found = re.search(r"at (http://\S+)", line)
    if not found:
        process.kill()
        raise AssertionError(line + process.stderr.read())
    return process, found[1]


def test_the_command_serves_until_a_signal_and_logs_each_purge(
    nginx: Nginx, secret_file: Path
) -> None:
    process, url = run_agent(
        "--cache", nginx.cache, "--secret-file", secret_file, "--bind", "127.0.0.1:0"
    )
    try:
        outcome = RemoteAgent(url, SECRET).purge(Wanted(("/a",), how="hard"), PATIENCE_S)
        assert (outcome.state, outcome.files) == ("purged", 1), outcome
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert process.stdout
        (line,) = process.stdout.read().splitlines()
        facts = json.loads(line)
        assert (facts["files"], facts["first"], facts["how"]) == (1, ["/a"], "hard")
        assert SECRET.decode() not in line
    finally:
        end_process(process)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
    assert nginx.get("/a").cache == "MISS"


def test_a_secret_that_others_may_read_is_refused(nginx: Nginx, secret_file: Path) -> None:
    def said() -> str:
        result = CliRunner().invoke(
            main,
            ["nginx", "agent", "--cache", str(nginx.cache), "--secret-file", str(secret_file)],
        )
        assert result.exit_code == 2
        assert SECRET.decode() not in result.output
        return result.output

    secret_file.chmod(0o640)
    assert f"is open to others; `chmod 600 {secret_file}`" in said()
    secret_file.chmod(0o600)
    secret_file.write_text("short")
    assert "has 5 bytes; it needs 32 or more" in said()
    secret_file.unlink()
    assert "openssl rand -hex 32" in said()
    secret_file.symlink_to("/etc/hostname")
    assert "cannot be read" in said()
    secret_file.unlink()
    os.mkfifo(secret_file, 0o600)
    assert "is not a regular file" in said()


def test_a_secret_is_read_without_its_line_end(secret_file: Path) -> None:
    secret = read_secret(secret_file)
    assert secret == SECRET
    assert repr(secret) == str(secret) == "<secret>"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--bind", "8765"], "is no address"),
        (["--bind", "127.0.0.1:99999"], "is no address"),
        (["--template", "{hots}"], "has {hots}"),
        (["--cache", "/etc"], "/etc is no cache of nginx"),
    ],
)
def test_a_wrong_command_is_one_line(
    nginx: Nginx, secret_file: Path, more: list[str], said: str
) -> None:
    words = ["nginx", "agent", "--cache", str(nginx.cache), "--secret-file", str(secret_file)]
    result = CliRunner().invoke(main, [*words, *more])
    assert result.exit_code == 2
    assert said in result.output
    assert len(result.output.splitlines()) == 1


def test_a_port_in_use_is_said(nginx: Nginx, secret_file: Path) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = taken.getsockname()[1]
        words = ["--secret-file", str(secret_file), "--bind", f"127.0.0.1:{port}"]
        result = CliRunner().invoke(main, ["nginx", "agent", "--cache", str(nginx.cache), *words])
    assert result.exit_code == 2
    assert "Address already in use" in result.output
