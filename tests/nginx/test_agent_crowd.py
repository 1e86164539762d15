"""Who knows no secret cannot keep the agent from purging; who gives up leaves nothing behind."""

from __future__ import annotations

import json
import logging
import resource
import shutil
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pytest

from bench import nginx_agent
from bench.nginx_doctor import Latencies, Sizes
from bench.nginx_page import line, section
from nearcache.base.options import Secret
from nearcache.lab.servers import end_process
from nearcache.nginx.agent import doorway
from nearcache.nginx.agent.agent import Agent
from nearcache.nginx.agent.doorway import LARGEST_BODY, LARGEST_HEAD, Limits
from nearcache.nginx.agent.guard import Buckets
from nearcache.nginx.agent.hosts import PATH, Outcome, RemoteAgent, Wanted
from nearcache.nginx.agent.signing import sign
from nearcache.nginx.cachedir.variants import VariantTable
from nearcache.nginx.purge.receipt import How

from .agents import SECRET, remote, serving
from .conftest import PATIENCE_S, Answer, Nginx, Upstream, wait_for
from .test_agent import Proxy, run_agent, secret_file

__all__ = ["secret_file"]
BODY = Wanted(("/a",)).to_json()


@pytest.fixture
def nginx(proxy: Proxy) -> Nginx:
    started = proxy("")
    started.fill("/a")
    return started


@pytest.fixture
def agent(nginx: Nginx) -> Iterator[Agent]:
    with serving(nginx) as agent:
        yield agent


def few(monkeypatch: pytest.MonkeyPatch, places: int = 8, slots: int = 4) -> None:
    monkeypatch.setattr(doorway, "limits", lambda: Limits(places, slots, 64))


def connected(agent: Agent, of: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(agent.address, PATIENCE_S, source_address=(of, 0))


def head(body: bytes, secret: bytes = SECRET, length: int | None = None) -> bytes:
    signature = sign(secret, PATH, body, time.time())
    length = len(body) if length is None else length
    return (
        f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n"
        f"Authorization: {signature.header}\r\n\r\n"
    ).encode()


def answered(client: socket.socket) -> tuple[int, str]:
    """The status, and the error or the state."""
    raw = b"".join(iter(lambda: client.recv(65536), b""))
    first, _, body = raw.partition(b"\r\n\r\n")
    facts = json.loads(body)
    return int(first.split()[1]), facts["error"] or facts.get("state", "")


def purged(agent: Agent, *urls: str) -> Outcome:
    return remote(agent).purge(Wanted(urls or ("/a", "/not-there")), PATIENCE_S)


# -- who does not sign


def test_idle_and_dripping_connections_keep_nobody_out(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than there are places, from the address of the site and from others."""
    stop = threading.Event()
    with ExitStack() as stack:
        for number in range(agent.doorway.limits.places + 100):
            client = stack.enter_context(connected(agent, f"127.0.0.{number % 5 + 1}"))
            client.sendall(b"POST /pur" if number % 2 else b"")
        drip = threading.Thread(target=_drip, args=(agent, stop), daemon=True)
        drip.start()
        outcomes = [purged(agent) for _ in range(50)]
        stop.set()
        drip.join(PATIENCE_S)
    assert {(each.state, each.error) for each in outcomes} <= {("purged", ""), ("nothing", "")}


def _drip(agent: Agent, stop: threading.Event) -> None:
    """A byte of a header to each connection, again and again; who is dropped comes again."""
    clients = [connected(agent) for _ in range(20)]
    while not stop.is_set():
        for at, client in enumerate(clients):
            try:
                client.sendall(b"a")
            except OSError:
                client.close()
                clients[at] = connected(agent)
    for client in clients:
        client.close()


def test_the_longest_waiting_of_the_largest_crowd_goes_first(
    nginx: Nginx, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(monkeypatch, places=8)
    with serving(nginx) as agent, ExitStack() as stack:

        def come(of: str) -> socket.socket:
            return stack.enter_context(connected(agent, of))

        def are_in(number: int) -> bool:
            return wait_for(lambda: len(agent.doorway.places) == number)

        one = come("127.0.0.2")
        assert are_in(1)
        crowd = [come("127.0.0.3") for _ in range(4)]
        assert are_in(5)
        crowd.append(come("127.0.0.3"))
        assert crowd[0].recv(1) == b"", "half of the places are enough for one address"
        others = [come(f"127.0.0.{4 + number}") for number in range(3)]
        assert are_in(8)
        others.append(come("127.0.0.9"))
        assert crowd[1].recv(1) == b""
        assert are_in(8)
        for each in (one, *others, *crowd[2:]):
            each.settimeout(0.0)
            with pytest.raises(BlockingIOError):
                each.recv(1)


def test_who_sends_no_head_in_time_is_dropped(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorway, "REQUEST_S", 0.1)
    with connected(agent) as client:
        client.sendall(b"POST /pur")
        assert client.recv(1) == b""
    assert wait_for(lambda: len(agent.doorway.places) == 0)


def test_no_byte_of_a_body_is_waited_for_unless_its_head_is_signed(agent: Agent) -> None:
    for secret, said in ((b"x" * 32, 401), (SECRET, 411)):
        with connected(agent) as client:
            lines = head(b"", secret, LARGEST_BODY)
            client.sendall(lines if said == 401 else lines.replace(b"Content-Length", b"X-Length"))
            assert answered(client)[0] == said


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (b"POST /purge HTTP/1.1\r\nA: " + b"b" * LARGEST_HEAD, 431),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"POST /purge\r\n\r\n", 400),
        (b"POST /purge HTTP/1.1\r\n folded\r\n\r\n", 400),
        (b"POST /purge HTTP/1.1\r\nContent-Length : 1\r\n\r\n", 400),
        (b"POST /purge HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        (b"POST /purge HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", 411),
        (b"GET /purge HTTP/1.1\r\n\r\n", 405),
        (b"POST //purge HTTP/1.1\r\n\r\n", 404),
    ],
)
def test_what_is_no_request_is_refused(agent: Agent, lines: bytes, status: int) -> None:
    with connected(agent) as client:
        client.sendall(lines)
        assert answered(client)[0] == status


def test_who_is_refused_too_often_is_not_answered_any_more(
    nginx: Nginx, caplog: pytest.LogCaptureFixture
) -> None:
    buckets = Buckets(lambda: 0.0, burst=2)
    stranger = Secret(b"x" * 32)
    with serving(nginx, buckets=buckets) as agent:
        errors = [
            remote(agent, stranger).purge(Wanted(("/a",)), PATIENCE_S).error for _ in range(4)
        ]
        assert purged(agent).state == "purged", "the same address, with the secret"
    assert ["not signed" in each for each in errors] == [True, True, False, False]
    refused = [each for each in caplog.messages if each.startswith("refused")]
    assert len(refused) == 2


def test_who_is_refused_is_told_so_although_it_has_more_to_send(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorway, "DRAIN_S", PATIENCE_S)
    with connected(agent) as client:
        client.sendall(head(BODY, b"x" * 32, LARGEST_BODY))
        assert client.recv(4096).startswith(b"HTTP/1.1 401 ")
        for _ in range(20):  # a connection that is reset breaks after some of them
            client.sendall(b"of" * 1000)
            time.sleep(0.005)
        assert client.recv(4096) == b""


# -- who signs, or has heard somebody sign


def test_a_head_that_was_heard_is_worth_nothing(agent: Agent, nginx: Nginx) -> None:
    heard = head(BODY)
    with connected(agent) as client:
        client.sendall(heard + BODY)
        assert answered(client) == (200, "purged")
    nginx.fill("/a")
    other = Wanted(("/a",), how="hard").to_json()
    for body in (BODY, other):
        with connected(agent) as client:
            client.sendall(heard + body)
            assert answered(client) == (409, "this request was sent before")
    with connected(agent) as client:
        client.sendall(head(BODY, length=len(other)) + other)
        assert answered(client) == (401, "the body is not the one that was signed")
    assert nginx.get("/a").cache == "HIT"


def test_signed_bodies_that_never_come_fill_half_of_the_slots(
    nginx: Nginx, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(monkeypatch, slots=4)
    with serving(nginx) as agent:
        with ExitStack() as stack:
            for _ in range(2):
                client = stack.enter_context(connected(agent))
                client.sendall(head(BODY) + BODY[:5])
            assert wait_for(lambda: len(agent.doorway.slots) == 2)
            assert "too many purges at once" in purged(agent).error
            with connected(agent, "127.0.0.2") as client:
                client.sendall(head(BODY) + BODY)
                assert answered(client) == (200, "purged")
        assert wait_for(lambda: len(agent.doorway.slots) == 0), "given back when they hang up"
        assert purged(agent).error == ""


def test_a_signed_body_has_its_time_too(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorway, "REQUEST_S", 0.1)
    with connected(agent) as client:
        client.sendall(head(BODY) + BODY[:5])
        assert client.recv(1) == b""
    assert wait_for(lambda: len(agent.doorway.slots) == 0)


def test_who_closes_his_side_is_answered(agent: Agent) -> None:
    with connected(agent) as client:
        client.sendall(head(BODY) + BODY)
        client.shutdown(socket.SHUT_WR)
        assert answered(client) == (200, "purged")


def test_a_body_may_come_byte_by_byte(agent: Agent) -> None:
    with connected(agent) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(request := head(BODY) + BODY)):
            client.sendall(request[at : at + 1])
        assert answered(client) == (200, "purged")


# -- who gives up


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that knows nothing yet."""
    monkeypatch.setattr(VariantTable, "_keep", lambda self: None)


@pytest.mark.parametrize("resets", [False, True])
def test_who_gives_up_leaves_no_traceback_and_no_wait(
    nginx: Nginx,
    cold: None,
    resets: bool,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.INFO)
    body = Wanted(("/not-there",)).to_json()
    with serving(nginx) as agent:
        table = agent.hosts[0].table
        assert table
        for _ in range(3):
            with connected(agent) as client:
                client.sendall(head(body) + body)
                assert wait_for(lambda: len(table._waiting) == 1)
                if resets:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert wait_for(lambda: len(table._waiting) == 0)
            assert wait_for(lambda: len(agent.doorway.slots) == 0)
        assert purged(agent, "/a").state == "purged", "what is stored needs no table"
    assert [each.levelname for each in caplog.records if each.levelno >= logging.ERROR] == []
    assert capfd.readouterr().err == ""


def test_purges_that_wait_leave_slots_for_those_that_need_not(
    nginx: Nginx, cold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(monkeypatch, slots=8)
    body = Wanted(("/not-there",)).to_json()
    with serving(nginx) as agent, ExitStack() as stack:
        table = agent.hosts[0].table
        assert table
        for _ in range(2):
            client = stack.enter_context(connected(agent))
            client.sendall(head(body) + body)
        assert wait_for(lambda: len(table._waiting) == 2)
        assert "the time was over" in purged(agent, "/not-there").error, "told at once"
        assert purged(agent, "/a").state == "purged"


def test_a_stop_answers_who_waits(nginx: Nginx, cold: None) -> None:
    body = Wanted(("/not-there",)).to_json()
    with serving(nginx) as agent, connected(agent) as client:
        client.sendall(head(body) + body)
        table = agent.hosts[0].table
        assert table
        assert wait_for(lambda: len(table._waiting) == 1)
        agent.stop()
        status, said = answered(client)
    assert (status, "the time was over" in said) == (200, True)


def test_a_purge_that_fails_unforeseen_is_answered(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(facts: object) -> None:
        raise ValueError("a full disk")

    agent.report = broken
    assert "the agent failed; its log says why" in purged(agent).error
    assert "a full disk" in caplog.text


# -- what is stored, and what is not


def test_of_what_is_not_stored_nothing_is_looked_through(
    agent: Agent, nginx: Nginx, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = agent.hosts[0].table
    assert table
    assert wait_for(lambda: table.is_warm)

    def never(*arguments: object) -> None:
        raise AssertionError("a scan")

    monkeypatch.setattr("nearcache.nginx.purge.purge.Purger._scan", never)
    monkeypatch.setattr(VariantTable, "_make", never)
    assert purged(agent, "/not-there").state == "nothing"
    assert purged(agent).files == 1


def test_variants_go_that_were_stored_right_before(
    agent: Agent, nginx: Nginx, upstream: Upstream
) -> None:
    upstream.script = lambda path, headers: Answer(b"x", headers={"Vary": "Accept-Encoding"})
    for turn in range(10):
        how: How = "hard" if turn % 2 else "soft"
        for sent in ("gzip", "br", "zstd"):
            nginx.fill("/v", {"Accept-Encoding": sent})
        outcome = remote(agent).purge(Wanted(("/v",), how=how), PATIENCE_S)
        assert (outcome.state, outcome.files) == ("purged", 3), turn
        for sent in ("gzip", "br", "zstd"):
            assert nginx.get("/v", {"Accept-Encoding": sent}).cache in ("MISS", "EXPIRED")


def test_levels_that_are_not_those_of_nginx_leave_nothing(nginx: Nginx, upstream: Upstream) -> None:
    upstream.script = lambda path, headers: Answer(b"x", headers={"Vary": "Accept-Encoding"})
    for sent in ("gzip", "br"):
        nginx.fill("/v", {"Accept-Encoding": sent})
    with serving(nginx, levels=(2, 2)) as agent:
        assert (purged(agent, "/v").files, purged(agent, "/a").files) == (2, 1)


def test_nginx_may_restart_and_the_cache_be_emptied(
    agent: Agent, nginx: Nginx, upstream: Upstream
) -> None:
    upstream.script = lambda path, headers: Answer(b"x", headers={"Vary": "Accept-Encoding"})

    def stored() -> None:
        for sent in ("gzip", "br", "zstd"):
            nginx.fill("/v", {"Accept-Encoding": sent})

    stored()
    nginx.restart()
    assert purged(agent, "/v").files == 3
    stored()
    nginx.stop()
    for level in nginx.cache.iterdir():
        shutil.rmtree(level)
    nginx.restart()
    stored()
    assert purged(agent, "/v").files == 3
    nginx.stop()
    shutil.rmtree(nginx.cache)
    assert "does not exist" in purged(agent, "/v").error
    nginx.restart()
    stored()
    assert purged(agent, "/v").files == 3


def test_a_cache_where_nothing_varies_needs_no_table(nginx: Nginx) -> None:
    with serving(nginx, varies=False) as agent:
        assert agent.hosts[0].table is None
        assert purged(agent, "/not-there").state == "nothing"
        assert purged(agent).files == 1


# -- the command


def test_thousands_of_connections_leave_a_descriptor_for_a_purge(
    nginx: Nginx, secret_file: Path
) -> None:
    """More than the process may open files."""
    words = ("--cache", nginx.cache, "--secret-file", secret_file, "--bind", "127.0.0.1:0")
    command = [sys.executable, "-m", "nearcache", "nginx", "agent", *map(str, words)]
    with limited(512):
        process, url = run_agent(*words)
    host, _, port = url.removeprefix("http://").partition(":")
    try:
        with ExitStack() as stack:
            for number in range(800):
                of = f"127.0.{number % 50}.2"
                stack.enter_context(
                    socket.create_connection((host, int(port)), PATIENCE_S, (of, 0))
                )
            for _ in range(20):
                outcome = RemoteAgent(url, SECRET).purge(Wanted(("/a", "/b")), PATIENCE_S)
                assert outcome.error == "", (outcome, command)
    finally:
        end_process(process)
        assert process.stderr
        assert process.stdout
        said = process.stderr.read()
        process.stderr.close()
        process.stdout.close()
    assert "Traceback" not in said
    assert "Too many open files" not in said


class limited:  # noqa: N801 - reads as a word of the with statement
    """Processes that are started inside may open so many files."""

    def __init__(self, files: int) -> None:
        self._files = files

    def __enter__(self) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._files, self._before[1]))

    def __exit__(self, *error: object) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, self._before)


def test_the_command_says_when_it_knows_the_variants(nginx: Nginx, secret_file: Path) -> None:
    process, _ = run_agent(
        "--cache", nginx.cache, "--secret-file", secret_file, "--bind", "127.0.0.1:0"
    )
    try:
        assert process.stderr
        assert "0 variants, found in" in process.stderr.readline()
    finally:
        end_process(process)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def test_addresses_of_one_ipv6_host_are_one() -> None:
    of = doorway._neighbourhood
    assert of("2001:db8::1") == of("2001:db8::ffff") != of("2001:db8:0:1::1")
    assert of("::ffff:10.0.0.1") != of("::ffff:10.0.0.2")
    assert of("10.0.0.1") == "10.0.0.1"


def test_the_bench_of_a_crowd_finds_no_purge_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small one, and nothing is said of its times."""
    monkeypatch.setattr(nginx_agent, "TIMEOUT_S", PATIENCE_S)
    *_, crowd = nginx_agent.rows(tmp_path, Sizes.quick())
    assert isinstance(crowd, Latencies)
    assert (crowd.failed, crowd.count) == (0, 100)
    assert "0 of 100 failed" in line(crowd)
    assert "**0** of 100 failed (promised 0)" in section([asdict(crowd)], "a machine")


def test_an_address_may_be_of_ipv6(nginx: Nginx) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with serving(nginx, address=("::1", 0)) as agent:
        url = f"http://[::1]:{agent.address[1]}"
        outcome = RemoteAgent(url, SECRET).purge(Wanted(("/a",)), PATIENCE_S)
        assert (outcome.state, outcome.error) == ("purged", "")
