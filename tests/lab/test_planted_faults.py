"""A fast wrong answer must never get a number: each planted fault ends its candidate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nearcache.lab.arms.candidates import CANDIDATES, HIREDIS, LOCMEM, REDIS_PY, choose
from nearcache.lab.base.model import Candidate
from nearcache.lab.results.sample import Sample
from tests.needs import need_package

from .conftest import RunTiny
from .private_servers import port_of_nobody


def planted(name: str) -> Candidate:
    settings = {**LOCMEM.settings, "BACKEND": f"tests.lab.faulty.{name}"}
    return replace(LOCMEM, name=name, title=name, settings=settings)


def without_server(name: str, nobody: int) -> Candidate:
    """A candidate for a server, at a port where nobody listens."""
    (candidate,) = choose(CANDIDATES, [name])
    settings = {**candidate.settings, "LOCATION": f"127.0.0.1:{nobody}"}
    return replace(candidate, settings=settings, servers=())


def assert_failed(sample: Sample, name: str, reason: str) -> None:
    entry = sample.candidates[name]
    assert entry.state == "failed"
    assert reason in entry.reason
    assert not [cell for cell in sample.cells if cell[0] == name], "its numbers are void"


def test_faults_are_caught_and_named_and_the_others_are_measured(run_tiny: RunTiny) -> None:
    reasons = {
        "DropsSomeSets": "keys of payload S are not there right after they were set",
        "KeepsStaleCopies": "stale: an older version of this key",
        "StaleAfterTheCanary": "get_fresh of payload S: stale",
        "SwapsKeys": "get_many of payload S: foreign",
        "Damages": "damaged",
        "ForgetsToDelete": "keys still answer after they were deleted",
        "CountsTwice": "which is not the next number",
    }
    sample = run_tiny([planted(name) for name in reasons])
    for name, reason in reasons.items():
        assert_failed(sample, name, reason)
    assert sample.candidates["locmem"].state == "measured"
    assert sample.cells["locmem", "get", "S"].hits > 0


def test_a_memcached_where_nobody_listens_fails_with_the_reason(run_tiny: RunTiny) -> None:
    need_package("pymemcache", "memcache")
    names = ["pymemcache-tcp", "python-memcached-tcp"]
    with port_of_nobody() as nobody:
        sample = run_tiny([without_server(name, nobody) for name in names])
    assert_failed(sample, "pymemcache-tcp", "ConnectionRefusedError")
    # This client raises nothing at all: it answers None, as for a miss, and fast.
    assert_failed(sample, "python-memcached-tcp", "nobody listens at this address")


def test_a_package_that_does_not_import_is_named_with_what_to_install(run_tiny: RunTiny) -> None:
    absent = replace(HIREDIS, module="no_such_package", install="pip install no-such-package")
    sample = run_tiny([replace(LOCMEM, name="absent", needs=(absent,))])
    assert sample.candidates["absent"].state == "missing"
    assert sample.candidates["absent"].install == "pip install no-such-package"


@pytest.mark.usefixtures("redis_server")
def test_a_parser_that_is_not_the_one_ordered_fails_its_candidate(run_tiny: RunTiny) -> None:
    need_package("hiredis")
    c_parser, python_parser = choose(CANDIDATES, ["redis-hiredis-unix", "redis-python-unix"])
    sample = run_tiny(
        [
            # Without the package redis-py falls back in silence ...
            replace(c_parser, hides=("hiredis",), needs=(REDIS_PY,)),
            # ... and with it, it is used although nobody asked.
            replace(python_parser, hides=()),
        ]
    )
    assert_failed(sample, "redis-hiredis-unix", "replies are parsed by")
    assert_failed(sample, "redis-python-unix", "replies are parsed by")


@pytest.mark.usefixtures("redis_server")
def test_a_socket_of_the_wrong_kind_fails_its_candidate(run_tiny: RunTiny) -> None:
    tcp, unix = choose(CANDIDATES, ["redis-python-unix", "redis-python-tcp"])
    sample = run_tiny([replace(unix, settings=tcp.settings)])
    assert_failed(sample, unix.name, "not tcp")
