"""The ``objects`` experiment: no number without a canary, requests counted, distance added."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace

import pytest

from nearcache.lab.base.model import Candidate
from nearcache.lab.experiments.objects.distance import Distance
from nearcache.lab.experiments.objects.findings import MAKING, REQUESTS, views
from nearcache.lab.experiments.objects.plan import OBJECTS
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Sample
from nearcache.report.model import Chart, Table
from tests.needs import need_package

from .conftest import need
from .made import Quiet
from .made_up import fill, measured
from .private_servers import need_server, port_of_nobody
from .tiny import assert_failed, candidate_of, run_of

NAMES = [
    "pylibmc", "pymemcache", "python-memcached", "redis", "s3", "s3-seed", "s3-culling", "s3-1ms",
]  # fmt: skip


def faulty(nobody: int) -> list[Candidate]:
    return [
        candidate_of(OBJECTS, "python-memcached", "nobody-silent", port=nobody),
        candidate_of(OBJECTS, "pymemcache", "nobody-loud", port=nobody),
        candidate_of(OBJECTS, "s3", "nobody-s3", port=nobody),
        *(
            candidate_of(OBJECTS, "pymemcache", fault, fault=fault)
            for fault in ("SilentAfterTheCanary", "Remembers", "ForgetsToDelete")
        ),
    ]


@pytest.fixture(scope="module")
def sample() -> Sample:
    """The experiment, and beside it candidates with something wrong."""
    need("memcached", "redis-server")
    need_server("s3")
    need_package("boto3", "pylibmc", "pymemcache", "memcache")
    experiment = replace(OBJECTS, arm="tests.lab.faulty_objects.FaultyArm")
    with port_of_nobody() as nobody:
        return run_of(experiment, NAMES, faulty(nobody))


def test_all_are_measured_and_all_answers_verified(sample: Sample) -> None:
    for name in NAMES:
        assert sample.candidates[name].state == "measured", sample.candidates[name]
        for operation in ("set", "get", "delete"):
            cell = sample.cells[name, operation, "S"]
            assert cell.hits == cell.calls > 0


def test_sets_that_reach_nobody_never_get_a_number(sample: Sample) -> None:
    # The article's mistake: this client answers 0, raises nothing, and is fast.
    assert_failed(sample, "nobody-silent", "not stored, and no error was raised")
    assert_failed(sample, "nobody-loud", "ConnectionRefusedError")
    assert_failed(sample, "nobody-s3", "Could not connect to the endpoint")


def test_faults_that_begin_after_the_canary_are_caught_as_well(sample: Sample) -> None:
    assert_failed(sample, "SilentAfterTheCanary", "get: it is not there")
    assert_failed(sample, "Remembers", "get: stale")
    assert_failed(sample, "ForgetsToDelete", "still answers after it was deleted")


def test_requests_are_counted(sample: Sample) -> None:
    def requests(name: str, operation: str) -> float:
        return sample.cells[name, operation, "S"].measures[REQUESTS].median

    for name in NAMES:
        for operation in ("set", "get", "delete"):
            expected = 2 if (name, operation) == ("s3-culling", "set") else 1
            assert requests(name, operation) == expected, (name, operation)


def test_the_report_says_which_s3_it_was_and_where_it_lies(sample: Sample) -> None:
    facts = sample.candidates["s3"].facts
    assert facts["S3 server"] == sample.about["servers"]["s3"]
    assert any(facts["S3 server"] in sentence for sentence in views(Quiet(sample)).sentences)


def test_what_a_new_client_costs_stands_apart(sample: Sample) -> None:
    cell = sample.cells["s3", "first", "-"]
    assert 0 < cell.measures[MAKING].median < cell.max


def test_a_millisecond_of_distance_is_added_to_every_answer(sample: Sample) -> None:
    # No round trip can be shorter than what was added to it.
    assert sample.cells["s3-1ms", "get", "S"].min >= 1_000_000
    assert sample.candidates["s3-1ms"].proof["address"] != sample.candidates["s3"].proof["address"]


def test_distance_keeps_bytes_and_their_order_and_delays_both_ways() -> None:
    with socket.create_server(("127.0.0.1", 0)) as echo:
        threading.Thread(target=_echo_once, args=(echo,), daemon=True).start()
        distance = Distance(echo.getsockname()[1], round_trip_ms=20)
        try:
            with socket.create_connection(("127.0.0.1", distance.port), timeout=10) as near:
                sent = b"".join(number.to_bytes(4) for number in range(100_000))
                start = time.perf_counter()
                near.sendall(sent[:4])
                assert near.recv(4) == sent[:4]
                assert time.perf_counter() - start >= 0.020
                threading.Thread(target=near.sendall, args=(sent,), daemon=True).start()
                assert _received(near, len(sent)) == sent
        finally:
            distance.end()


def _echo_once(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)


def _received(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += connection.recv(65536)
    return found


def made_up(costs_us: dict[str, float]) -> Analysis:
    sample = measured(replace(OBJECTS, claims=()))
    costs = {name: cost * 1000 for name, cost in costs_us.items()}
    for operation in ("set", "get", "delete"):
        fill(sample, costs, operation, "S", measures={REQUESTS: (1.0, "")})
    return Analysis(sample)


COSTS_US = {
    "pylibmc": 30.0, "redis": 60.0, "s3": 3000.0, "s3-seed": 3000.0, "s3-culling": 6000.0,
    "pylibmc-10ms": 10_030.0, "s3-10ms": 23_000.0,
}  # fmt: skip


def test_the_seeds_text_and_its_table_stand_beside_what_is_measured() -> None:
    said = " ".join(views(made_up(COSTS_US)).sentences)
    assert "a set in S3 took" in said
    assert "198\N{EN DASH}231" in said
    assert "the article's text says 10" in said


def test_round_trips_follow_from_what_distance_adds() -> None:
    said = " ".join(views(made_up(COSTS_US)).sentences)
    assert "set by s3 2.0" in said
    assert "set by pylibmc 1.0" in said


def test_costs_are_drawn_over_distance() -> None:
    found = views(made_up(COSTS_US))
    (chart,) = [part for part in found.parts if isinstance(part, Chart)]
    lines = {line.name: line.points for line in chart.lines}
    assert [x for x, _ in lines["get by s3"]] == [0.0, 10.0]
    (table,) = [part for part in found.parts if isinstance(part, Table)]
    assert next(row for row in table.rows if row[0] == "redis")[1:4] == ["1.00", "1.00", "1.00"]


def test_without_s3_the_others_are_still_shown() -> None:
    found = views(made_up({"pylibmc": 30.0, "redis": 60.0}))
    assert not any("S3" in sentence for sentence in found.sentences)
    assert len(found.parts) == 1
