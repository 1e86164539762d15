"""Every candidate shows what it really is, read from live objects."""

from __future__ import annotations

import subprocess
import sys

import pytest
from django.core.cache.backends.locmem import LocMemCache

from nearcache.lab.arms.candidates import CANDIDATES, LOCMEM, choose
from nearcache.lab.proofs.proof import TreatmentNotApplied, prove_treatment
from nearcache.lab.results.sample import Sample
from tests.needs import need_package

from .conftest import make_run_tiny, need

SEALED = """
import sys
from nearcache.lab.proofs.seal_off import seal_off
seal_off(["hiredis"])
try:
    import hiredis
except ModuleNotFoundError:
    print("absent", end=" ")
import redis
print(redis.connection.DefaultParser.__name__, "hiredis" in sys.modules)
"""


def test_a_sealed_off_hiredis_is_absent_from_its_process() -> None:
    need_package("redis")
    result = subprocess.run([sys.executable, "-c", SEALED], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    absent, parser, imported = result.stdout.split()
    assert absent == "absent"
    assert "hiredis" not in parser.lower()
    assert imported == "False"


@pytest.fixture(scope="module")
def sample() -> Sample:
    need("redis-server", "memcached")
    need_package("hiredis", "pymemcache")
    names = ["redis-hiredis-unix", "redis-python-tcp", "pymemcache-unix", "pymemcache-tcp"]
    names += ["nearcache-redis-hiredis-unix", "nearcache-redis-python-tcp"]
    return make_run_tiny()(choose(CANDIDATES, names), payloads=("S", "X"))


def test_all_candidates_were_measured(sample: Sample) -> None:
    assert {entry.state for entry in sample.candidates.values()} == {"measured"}


@pytest.mark.parametrize("name", ["redis-hiredis-unix", "nearcache-redis-hiredis-unix"])
def test_hiredis_parses_where_it_was_ordered(sample: Sample, name: str) -> None:
    proof = sample.candidates[name].proof
    assert "hiredis" in proof["parser"].lower()
    assert proof["hiredis"] == "imported"


@pytest.mark.parametrize("name", ["redis-python-tcp", "nearcache-redis-python-tcp"])
def test_python_parses_where_hiredis_was_hidden(sample: Sample, name: str) -> None:
    proof = sample.candidates[name].proof
    assert "hiredis" not in proof["parser"].lower()
    assert proof["hiredis"] == "absent"


def test_sockets_are_of_the_kind_in_the_name(sample: Sample) -> None:
    for name, entry in sample.candidates.items():
        for kind in ("unix", "tcp"):
            if f"-{kind}" in name:
                assert entry.proof["socket"].startswith(kind)


def test_the_server_says_its_version(sample: Sample) -> None:
    assert sample.candidates["pymemcache-tcp"].proof["server"].startswith("memcached-tcp ")
    assert set(sample.about["servers"]) == {"redis", "memcached-unix", "memcached-tcp"}


def test_a_value_that_the_store_refuses_is_counted_as_refused(sample: Sample) -> None:
    cell = sample.cells["pymemcache-unix", "set", "X"]
    assert cell.refused > 0
    assert cell.count == 0
    assert ("pymemcache-unix", "get", "X") not in sample.cells
    assert sample.cells["redis-python-tcp", "get", "X"].hits > 0


def test_stored_bytes_come_from_the_store(sample: Sample) -> None:
    size, how = sample.candidates["redis-hiredis-unix"].stored["S"]
    assert how == "MEMORY USAGE"
    assert 120 < size < 1000
    size, how = sample.candidates["pymemcache-unix"].stored["S"]
    assert how == "stats bytes"
    assert 120 < size < 1000


def test_a_backend_of_the_same_name_from_elsewhere_is_not_the_one_ordered() -> None:
    ordered, another = LocMemCache("", {}), type("LocMemCache", (LocMemCache,), {})("", {})
    assert prove_treatment(LOCMEM, ordered, [], "")["backend"].startswith("django.")
    with pytest.raises(TreatmentNotApplied, match=r"test_treatment\.LocMemCache, not django\."):
        prove_treatment(LOCMEM, another, [], "")


def test_twins_are_there_for_both_kinds_of_store(sample: Sample) -> None:
    twins = {entry.twin_of for entry in sample.candidates.values() if entry.twin_of}
    assert twins == {"locmem", "redis-hiredis-unix"}
