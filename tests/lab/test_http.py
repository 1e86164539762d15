"""One endpoint behind real servers: who answers is proven, answers are checked, nothing is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearcache.lab import servers as lab_servers
from nearcache.lab.arms.candidates import choose, fill
from nearcache.lab.base.arm import Unavailable
from nearcache.lab.base.messages import Phase, Setup, Visit, Visited
from nearcache.lab.base.model import Candidate, Plan
from nearcache.lab.endpoint.songs import SONGS, Songs
from nearcache.lab.experiments.http import arm as arm_module
from nearcache.lab.experiments.http.arm import CAPACITY, CLIENTS, HttpArm
from nearcache.lab.experiments.http.findings import views
from nearcache.lab.experiments.http.plan import HTTP
from nearcache.lab.load.http_client import (
    Answer,
    BadAnswer,
    Connections,
    closed_loop,
    open_loop,
    request,
)
from nearcache.lab.load.open_loop import OpenLoop
from nearcache.lab.load.wrk import Wrk, find_wrk
from nearcache.lab.proofs.proof import TreatmentNotApplied
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.driver import measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.lab.servers.web import nginx_config
from nearcache.report.model import Table

from .conftest import Silent, need
from .made import Quiet

TINY = Plan(repetitions=1, rounds=1, phase_ms=80, time_limit_s=40)
OPERATIONS = [operation.name for operation in HTTP.operations]
RATES = ("at_30", "at_50", "at_70", "at_90")


def candidate(name: str) -> Candidate:
    return choose(HTTP.candidates, [name])[0]


PLANTED = (
    replace(
        candidate("uncached"),
        name="says-nginx",
        options={**candidate("uncached").options, "answers": "nginx"},
    ),
    replace(
        candidate("locmem"),
        name="keeps-nothing",
        settings={"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
    ),
)


@pytest.fixture(scope="module")
def sample() -> Sample:
    need("nginx", "wrk")
    arms = ["uncached", "uncached-direct", "locmem", "nginx-cache-lock"]
    known = (*choose(HTTP.candidates, [*arms, "uwsgi-cache"]), *PLANTED)
    experiment = replace(HTTP, candidates=known, plans={"tiny": TINY}, twins=("nginx-cache-lock",))
    wanted = RunOptions(plan="tiny", payloads=["zipf", "single"], seed=7)
    order = prepare(experiment, wanted)
    found = new_sample(order, "a test")
    measure(order, found, Silent(), lambda sample: None)
    return found


def test_every_arm_is_measured_and_every_answer_is_right(sample: Sample) -> None:
    planted = {each.name for each in PLANTED}
    for name, entry in sample.candidates.items():
        if name in planted:
            continue
        assert entry.state == "measured", entry.reason
        for operation in OPERATIONS:
            payload = "-" if operation in ("cold", "expired", "stampede") else "zipf"
            cell = sample.cells[name, operation, payload]
            # Of a rate that a busy machine can serve, none may be due in so short a phase.
            assert cell.points or operation in RATES
            assert cell.hits == cell.calls
            assert not cell.errors
        assert any(sample.cells[name, rate, "zipf"].calls for rate in RATES)
        assert sample.cells[name, "capacity", "single"].points
        assert (name, "at_50", "single") not in sample.cells


def test_who_answered_is_proven_and_counted(sample: Sample) -> None:
    for name in ("uncached", "uncached-direct", "locmem", "nginx-cache-lock", "uwsgi-cache"):
        share = sample.cells[name, "capacity", "zipf"].measures["hit share"].median
        assert share == (0 if name.startswith("uncached") else 1)
        assert sample.candidates[name].proof["answers"] == candidate(name).options["answers"]
    assert sample.candidates["uncached-direct"].proof["server"].startswith("gunicorn, Django")
    assert "uwsgi" in sample.candidates["uwsgi-cache"].proof["server"]
    assert sample.candidates["locmem"].proof["backend"].endswith("LocMemCache")
    proof = sample.candidates["uncached"].proof
    assert proof["cores"] == "shared cores" or proof["cores"].startswith("servers on CPU")
    assert proof["driven by"].startswith("wrk ")


def test_arms_that_are_not_what_they_say_are_out(sample: Sample) -> None:
    wanted = {"says-nginx": "nginx", "keeps-nothing": "Django's cache"}
    for name, who in wanted.items():
        entry = sample.candidates[name]
        assert entry.state == "failed"
        assert f"should come from {who}, and came from the view (200)" in entry.reason


def test_all_arms_were_offered_the_same_load_and_all_of_it_is_accounted_for(
    sample: Sample,
) -> None:
    for operation in RATES:
        cells = [c for c in sample.cells.values() if c.operation == operation]
        assert len({cell.measures["offered_rate"].median for cell in cells}) == 1
        for cell in cells:
            assert cell.count + cell.warm_up == cell.calls
            assert {"late_share", "generator_cpu", "dropped_share"} <= set(cell.measures)


def test_a_lock_lets_one_compute_and_without_it_all_do(sample: Sample) -> None:
    def computed(name: str) -> float:
        return sample.cells[name, "stampede", "-"].points[0][0]

    assert computed("uncached") == 16
    assert computed("nginx-cache-lock") == 1
    assert computed("uwsgi-cache") > 1


def test_the_report_says_what_was_seen(sample: Sample) -> None:
    found = views(Quiet(sample))
    said = " ".join(found.sentences)
    assert "What 16 ask for at once is computed once with nginx-cache-lock" in said
    assert "16 times with uncached" in said
    assert "Driven by wrk" in said
    assert "nginx kept its answers on tmpfs." in said
    titles = [part.title for part in found.parts]
    for title in ("Requests a second", "ms from when a request was due", "What is not warm"):
        assert any(each.startswith(title) for each in titles)
    served = next(p for p in found.parts if isinstance(p, Table) and p.title.startswith("Requests"))
    assert {row[0] for row in served.rows} >= {"uncached", "locmem", "uwsgi-cache"}
    assert all(len(row) == len(served.head) for row in served.rows)


def test_what_nginx_keeps_is_weighed(sample: Sample) -> None:
    size, how = sample.candidates["uwsgi-cache"].stored["zipf"]
    assert size > 300
    assert "tmpfs" in how


# -- one arm in this process -----------------------------------------------------------------


@contextmanager
def arm(name: str, **changes: Any) -> Iterator[HttpArm]:
    """An arm of its own; its servers are gone afterwards, and so is its place on one CPU."""
    before = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory(prefix="nc-http-") as directory:
        arm = candidate(name)
        arm = replace(arm, settings=fill(arm.settings, {"shm_path": f"{directory}/cache"}))
        setup = Setup(
            candidate=replace(arm, **changes),
            arm=HTTP.arm,
            places={},
            directory=directory,
            namespace="test",
            seed=3,
            server_version="",
            cpu=max(before),
        )
        made = HttpArm(setup)
        try:
            yield made
        finally:
            made.end()
            os.sched_setaffinity(0, before)


def visit(made: HttpArm, payload: str, operations: Sequence[str], **more: Any) -> Visited:
    wanted = {"round_id": "0:1", "phase_ns": 80_000_000, **more}
    return made.visit(Visit(payload=payload, operations=operations, **wanted))


def phase(visited: Visited, operation: str) -> Phase:
    return next(each for each in visited.phases if each.operation == operation)


def test_without_wrk_our_own_client_drives_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    need("nginx")
    monkeypatch.setattr(arm_module, "find_wrk", lambda: None)
    with arm("nginx-cache") as made:
        assert made.begin()["driven by"] == "our own client"
        served = phase(visit(made, "single", ["capacity"]), "capacity")
        assert served.point
        assert served.measures["hit share"][0] == 1
        assert "generator_cpu" in served.measures


def test_every_other_request_of_the_tail_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    need("nginx", "wrk")
    with arm("nginx-cache") as made:
        made.begin()
        found = visit(made, "tail", ["capacity", "at_50"], lowest={CAPACITY: 400.0})
        # When its time is over, wrk leaves up to CLIENTS requests without an answer.
        for operation, rest in (("capacity", CLIENTS), ("at_50", 0)):
            seen = phase(found, operation)
            hits = round(seen.measures["hit share"][0] * seen.calls)
            assert seen.calls
            assert abs(hits - (seen.calls - hits)) <= 1 + rest


def test_an_answer_of_another_song_is_refused_by_both_generators() -> None:
    need("nginx", "wrk")
    with arm("uncached") as made:
        made.begin()
        made.bodies = [Songs(99).body(song) for song in range(SONGS)]
        with pytest.raises(BadAnswer, match="with a body that no URL has"):
            visit(made, "zipf", ["capacity"])
        with pytest.raises(BadAnswer, match="another body than that of song"):
            visit(made, "zipf", ["cold"])


def test_a_cache_that_loses_what_was_warm_is_noticed_while_it_is_timed() -> None:
    need("nginx", "wrk")
    with arm("nginx-cache") as made:
        made.begin()
        assert made.site.cache_directory
        for kept in made.site.cache_directory.rglob("*"):
            if kept.is_file():
                kept.unlink()
        made.site.app.process.send_signal(signal.SIGSTOP)  # nobody can fill it again
        try:
            with pytest.raises((TreatmentNotApplied, BadAnswer)):
                visit(made, "zipf", ["capacity"])
        finally:
            made.site.app.process.send_signal(signal.SIGCONT)


def test_a_missing_program_is_a_line_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    which = lab_servers.shutil.which
    monkeypatch.setattr(
        lab_servers.shutil, "which", lambda name: None if "nginx" in name else which(name)
    )
    with arm("nginx-cache") as made, pytest.raises(Unavailable, match="nginx") as missing:
        made.begin()
    assert missing.value.install == "apt install nginx-light"


def test_nothing_is_left_when_the_worker_is_killed(
    short_path: Path, eventually: Callable[[Callable[[], object]], None]
) -> None:
    need("nginx")
    script = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tests.lab.test_http import arm
with arm("uwsgi-cache") as made:
    made.begin()
    pids = [s.process.pid for s in made.servers.running.values()]
    print(*pids, flush=True)
    time.sleep(60)
"""
    worker = subprocess.Popen(
        [sys.executable, "-c", script, str(Path(__file__).parents[2])],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(short_path)},
    )  # fmt: skip
    with worker:
        assert worker.stdout
        pids = [int(pid) for pid in worker.stdout.readline().split()]
        assert len(pids) == 2, "uWSGI and nginx"
        worker.kill()
    eventually(lambda: not [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()])


# -- the client ----------------------------------------------------------------------------------


class Scripted:
    """A server that answers every connection with the same bytes, once it may."""

    def __init__(self, answer: bytes, may: threading.Event | None = None) -> None:
        self.answer = answer
        self.may = may
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # The client may hang up while something is still on its way to it.
        with connection, suppress(OSError):
            while connection.recv(65536):
                if self.may:
                    self.may.wait(10)
                connection.sendall(self.answer)
                if b"close" in self.answer:
                    return


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    made: list[Scripted] = []

    def make(*arguments: Any) -> Scripted:
        made.append(Scripted(*arguments))
        return made[-1]

    yield make
    for server in made:
        server.socket.close()


OK = b"HTTP/1.1 200 OK\r\nX-Cache-Status: HIT\r\nContent-Length: 2\r\n\r\nhi"


def accept_all(_number: int, _answer: Answer) -> None:
    pass


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nhi", "without a length"),
        (OK + b"more", "more came than one answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nx: close\r\n\r\nhi", "closed the connection"),
    ],
)
def test_what_is_no_whole_answer_is_an_error(
    scripted: Callable[..., Scripted], answer: bytes, message: str
) -> None:
    connections = Connections(scripted(answer).port)
    with pytest.raises(BadAnswer, match=message):
        connections.get("/")
    connections.close()


def test_headers_are_found_whatever_their_case(scripted: Callable[..., Scripted]) -> None:
    connections = Connections(scripted(OK).port)
    answer = connections.get("/")
    assert answer.header(b"x-cache-status") == answer.header(b"X-CACHE-Status") == "HIT"
    assert answer.header(b"x-cache") == ""
    assert (answer.status, answer.body) == (200, b"hi")
    connections.close()


def test_what_is_due_is_answered_or_dropped_and_counted(
    scripted: Callable[..., Scripted],
) -> None:
    connections = Connections(scripted(OK).port, most=2)
    load = OpenLoop(1000)
    due = array("Q", [0, 0, 0, 1000, 2_000_000])
    cpu = open_loop(connections, load, due, [request("/")] * 5, accept_all, give_up_ns=10**10)
    assert (load.begun, load.dropped, len(load.response_ns)) == (5, 0, 5)
    assert len(connections.all) == 2
    assert all(r >= s for r, s in zip(load.response_ns, load.service_ns, strict=True))
    assert 0 <= cpu <= 1
    connections.close()


def test_a_server_that_stops_answering_makes_the_rest_dropped(
    scripted: Callable[..., Scripted], eventually: Callable[[Callable[[], object]], None]
) -> None:
    may = threading.Event()
    connections = Connections(scripted(OK, may).port, most=1)
    load = OpenLoop(1000)

    def answer_when_the_rest_is_dropped() -> None:
        eventually(lambda: load.dropped)
        may.set()

    answering = threading.Thread(target=answer_when_the_rest_is_dropped)
    answering.start()
    open_loop(connections, load, [0, 0, 0], [request("/")] * 3, accept_all, give_up_ns=50_000_000)
    answering.join()
    assert (load.begun, load.dropped) == (1, 2)
    assert load.response_ns[0] >= 50_000_000
    connections.close()


def test_a_closed_loop_counts_what_it_got(scripted: Callable[..., Scripted]) -> None:
    connections = Connections(scripted(OK).port)
    seen: list[int] = []
    answers, wall_ns, _ = closed_loop(
        connections, 3, lambda _: request("/"), lambda n, _: seen.append(n), 20_000_000
    )
    assert answers == len(seen) == len(set(seen)) >= 3
    assert wall_ns >= 20_000_000
    connections.close()


def test_wrk_that_reaches_nobody_is_an_error(tmp_path: Path) -> None:
    need("wrk")
    port = lab_servers.free_port()
    wrk = Wrk(find_wrk() or "", tmp_path, port, None)
    with pytest.raises(BadAnswer, match="wrk gave no result, it said: unable to connect"):
        wrk.drive(["/"], [b"x"], 2, 200_000_000)


NOT_READY = """
if mkdir begun 2>/dev/null; then
    exec sleep 60  # until a SIGINT ends it without a word
fi
"""
FALLS_ASLEEP = """
trap 'told=$((told + 1))' INT
until [ "$told" = 2 ]; do sleep 0.02; done
"""


@pytest.mark.parametrize("begins", [NOT_READY, FALLS_ASLEEP])
def test_a_wrk_that_missed_the_signal_to_end_is_told_again(tmp_path: Path, begins: str) -> None:
    result = '{"answers": 1, "us": 1000, "broken": 0, "unknown": 0, "status": 0, "hits": 1}'
    slow = tmp_path / "wrk"
    slow.write_text(f"#!/bin/sh\ncd {tmp_path}\n{begins}\nprintf '\\nRESULT %s\\n' '{result}'\n")
    slow.chmod(0o755)
    assert Wrk(str(slow), tmp_path, 1, None).drive(["/"], [b"x"], 2, 100_000_000).answers == 1


# -- data and configuration ----------------------------------------------------------------------


def test_songs_are_the_same_for_a_seed_and_each_has_its_own_answer() -> None:
    bodies = [Songs(1).body(song) for song in range(SONGS)]
    assert bodies == [Songs(1).body(song) for song in range(SONGS)]
    assert len(set(bodies)) == SONGS
    assert not set(bodies) & {Songs(2).body(song) for song in range(SONGS)}
    assert all(b"\n" not in body for body in bodies), "wrk reads one from a line"


def test_nginx_keeps_nothing_unless_it_is_to_and_tells_urls_apart() -> None:
    for server in ("gunicorn", "uwsgi"):
        passes = nginx_config(1, Path("/s"), server, "pass")  # type: ignore[arg-type]
        assert "_cache " not in passes
        assert "_cache_" not in passes.replace("upstream_cache_status", "")
        keeps = nginx_config(1, Path("/s"), server, "cache-lock")  # type: ignore[arg-type]
        assert "_cache_key $scheme$host$request_uri;" in keeps
        assert "_cache_lock on;" in keeps
        assert "listen 127.0.0.1:1 " in keeps
        assert "$$" not in keeps
