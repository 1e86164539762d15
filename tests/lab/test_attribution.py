"""Where the time goes: parts that add up, a bare socket that finds what was stored, sentences."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from nearcache.lab.arms.candidates import CANDIDATES, LOCMEM, choose, fill
from nearcache.lab.base.directories import private_directory
from nearcache.lab.base.messages import Phase
from nearcache.lab.base.model import Candidate
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.explain import explain_one, explanations
from nearcache.lab.results.sample import Cell, Sample
from nearcache.lab.servers import Servers
from nearcache.lab.servers.wire import RedisWire, WireBroken, wire_of
from nearcache.lab.timers.timed import Budget, calibrate, time_calls
from tests.needs import need_package

from .conftest import need
from .made import experiment, phase, sample_of
from .test_planted_conditions import SHORT, run

NAMES = ("redis-hiredis-unix", "redis-python-tcp", "pymemcache-unix", "pymemcache-tcp")


@pytest.fixture(scope="module")
def measured() -> Sample:
    """One real run of caches of every kind."""
    need("redis-server", "memcached")
    names = ["redis-python-unix", "pymemcache-unix", "pylibmc-unix", "filebased", "shm"]
    odd = {**LOCMEM.settings, "BACKEND": "tests.lab.faulty.HasNoKeys"}
    hidden = replace(LOCMEM, name="hidden", settings=odd)
    return run([LOCMEM, *choose(CANDIDATES, names), hidden], replace(SHORT, rounds=2))


def parts_of(cell: Cell) -> dict[str, float]:
    return {name: series.median for name, series in cell.parts.items()}


@pytest.mark.parametrize(
    ("name", "operation", "parts"),
    [
        ("locmem", "get", {"key", "decode", "client", "rest"}),
        ("filebased", "set", {"key", "encode", "client", "rest"}),
        ("shm", "get", {"client", "rest"}),  # one native call: its key cannot be timed alone
        ("redis-python-unix", "get", {"key", "decode", "client", "network", "server", "rest"}),
        ("redis-python-unix", "set", {"key", "encode", "client", "network", "server", "rest"}),
        ("pymemcache-unix", "get", {"key", "decode", "client", "network and server", "rest"}),
        ("pylibmc-unix", "get", {"key", "client", "network and server", "rest"}),
    ],
)
def test_a_get_and_a_set_are_taken_apart_as_far_as_can_be_seen(
    measured: Sample, name: str, operation: str, parts: set[str]
) -> None:
    (candidate,) = choose(CANDIDATES, [name])
    need_package(*(requirement.module for requirement in candidate.needs))
    assert measured.candidates[name].state == "measured", measured.candidates[name].reason
    cell = measured.cells[name, operation, "S"]
    found = parts_of(cell)
    assert found.keys() == parts
    assert all(cost >= 0 for cost in found.values())
    assert found.get("key", 1) > 0
    # Once in each process, in its first round: it costs the other rounds nothing.
    assert all(len(series.points[0]) == 1 for series in cell.parts.values())


def test_a_cache_that_cannot_be_taken_apart_is_measured_all_the_same(measured: Sample) -> None:
    entry = measured.candidates["hidden"]
    assert entry.state == "measured"
    assert entry.facts["where the time goes"] == "not seen: TypeError: this one has no keys"
    assert not measured.cells["hidden", "get", "S"].parts


def test_cpu_times_of_both_processes_are_measured_for_each_operation(measured: Sample) -> None:
    for name in ("redis-python-unix", "pymemcache-unix"):
        measures = measured.cells[name, "get", "S"].measures
        assert measures["client_cpu"].unit == "ns"
        assert measures["client_cpu"].median > 0
        assert measures["server_cpu"].median > 0
    assert "server_cpu" not in measured.cells["locmem", "get", "S"].measures


def test_nothing_of_it_is_left_behind_and_the_samples_know_nothing_of_it(measured: Sample) -> None:
    cell = measured.cells["redis-python-unix", "get", "S"]
    assert cell.calls == cell.count + cell.warm_up
    assert cell.hits == cell.calls


@pytest.fixture
def servers() -> Iterator[Servers]:
    need("redis-server", "memcached")
    directory = private_directory()
    with Servers(directory, None) as running:
        for name in ("redis", "memcached-unix", "memcached-tcp"):
            running.start(name)  # type: ignore[arg-type]
        yield running
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


def placed(servers: Servers, name: str) -> Candidate:
    (candidate,) = choose(CANDIDATES, [name])
    return replace(candidate, settings=fill(candidate.settings, servers.places()))


def test_a_bare_socket_reads_what_it_stored_from_servers_of_every_kind(servers: Servers) -> None:
    for name in NAMES:
        wire = wire_of(placed(servers, name))
        assert wire is not None
        with wire:
            assert wire.get(b"key") is None
            wire.set(b"key", b"a\r\nvalue" * 1000)
            assert wire.get(b"key") == b"a\r\nvalue" * 1000
            assert Path(f"/proc/{wire.process_id()}").exists()
            assert wire.cpu_ns() > 0  # type: ignore[operator]
            wire.delete(b"key")
            assert wire.get(b"key") is None


def test_a_redis_says_how_long_it_was_busy_and_in_which_database_a_key_lies(
    servers: Servers,
) -> None:
    candidate = placed(servers, "redis-python-unix")
    other = {**candidate.settings, "LOCATION": candidate.settings["LOCATION"][:-1] + "5"}
    first, second = wire_of(candidate), wire_of(replace(candidate, settings=other))
    assert first is not None
    assert second is not None
    with first, second:
        first.set(b"key", b"value" * 100_000)
        assert first.busy_ns() > 0  # type: ignore[operator]
        assert second.get(b"key") is None
        assert isinstance(second, RedisWire)
        with pytest.raises(WireBroken, match="unknown command"):
            second._ask(b"NOSUCH")


def test_nobody_elses_server_is_asked() -> None:
    assert wire_of(LOCMEM) is None
    (redis,) = choose(CANDIDATES, ["redis-python-unix"])
    assert wire_of(replace(redis, settings_module="mysite.settings")) is None


def test_the_timed_loop_makes_all_calls_in_batches_and_checks_each_answer() -> None:
    seen = []
    calls = ((i,) for i in range(7))
    samples, made = time_calls(
        lambda i: i * i, calls, 3, Budget(0, 0), lambda asked, answer: seen.append((asked, answer))
    )
    assert len(samples) == 3
    assert made == 7
    assert seen == [((i,), i * i) for i in range(7)]


def test_an_endless_loop_ends_with_its_budget_but_not_before_its_least() -> None:
    def forever() -> Iterator[tuple[int]]:
        while True:
            yield (1,)

    _, made = time_calls(lambda _: None, forever(), 1, Budget(0, 100, at_least=5))
    assert made == 5
    _, made = time_calls(lambda _: None, forever(), 1, Budget(10**12, 100, at_least=5))
    assert made == 100


def test_the_loop_itself_is_measured() -> None:
    cost = calibrate()
    assert cost["call_ns"] > 0
    assert cost["batched_ns"] > 0


# -- sentences, on numbers made up ------------------------------------------------------------


def taken_apart(
    costs: Mapping[str, dict[str, float]], noise: float = 0.005
) -> Callable[[str, int, int], Phase]:
    rng = random.Random(1)
    return lambda name, _repetition, _number: phase(
        sum(costs[name].values()), rng, noise, parts=costs[name]
    )


SLOW = {"key": 1000.0, "decode": 2000.0, "client": 30_000.0, "network": 10_000.0, "rest": 0.0}


def explained(other: dict[str, float]) -> str:
    asked = experiment("a", "b", contrasts={"which": (("a", "b"),)})
    analysis = Analysis(sample_of(asked, taken_apart({"a": SLOW, "b": other})))
    (sentence,) = explanations(analysis)
    return sentence


def test_what_made_the_difference_is_named_with_its_size() -> None:
    text = explained({**SLOW, "client": 20_000.0})
    assert text.startswith("a was slower than b in get of a small thing by ")
    assert "most of the difference is the client's own code (10.0 µs of 43.0 µs)" in text


def test_why_there_is_no_difference_is_said_too() -> None:
    text = explained({**SLOW, "decode": 1990.0})
    assert "a was not told apart from b" in text
    assert "of its 43.0 µs, most is the client's own code (70%)" in text
    assert "decoding, differs by 10.0 ns" in text


def test_parts_that_contradict_the_samples_explain_nothing() -> None:
    asked = experiment("a", "b", contrasts={"which": (("a", "b"),)})
    sample = sample_of(asked, taken_apart({"a": SLOW, "b": {**SLOW, "client": 20_000.0}}))
    for series in sample.cells["a", "get", "S"].parts.values():
        for rounds in series.points.values():
            rounds.update(dict.fromkeys(rounds, 1.0))
    (text,) = explanations(Analysis(sample))
    assert "do not show where" in text


def test_one_candidate_is_described_by_its_largest_parts() -> None:
    analysis = Analysis(sample_of(experiment("a", "b"), taken_apart({"a": SLOW, "b": SLOW})))
    text = explain_one(analysis, "a", "get", "S")
    assert text == (
        "a, get of a small thing: 70% the client's own code, 23% the way to the server and back."
    )
    assert explain_one(analysis, "nobody", "get", "S") == ""
