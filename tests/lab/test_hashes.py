"""The ``hashes`` experiment on real servers: what it weighs, what it tries, what it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nearcache.lab.base.arm import Unavailable, WrongAnswer
from nearcache.lab.base.messages import Phase, Setup, Visit
from nearcache.lab.base.model import Candidate, Plan
from nearcache.lab.experiments.hashes import arm as arm_module
from nearcache.lab.experiments.hashes.arm import HashesArm, Limits, Wire, bucket_of
from nearcache.lab.experiments.hashes.findings import front, knee, views
from nearcache.lab.experiments.hashes.plan import DATA, HASHES, Data
from nearcache.lab.experiments.hashes.rules import try_rules
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.driver import measure
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.lab.servers.own import OwnServer
from nearcache.report.model import Chart, Table
from tests.needs import missing

from .conftest import Silent, need

NEWER = Path(__file__).parents[2] / ".cache" / "newer-redis" / "valkey-server"
TINY = Plan(repetitions=1, rounds=1, phase_ms=1, time_limit_s=30)


def candidate(name: str) -> Candidate:
    return next(each for each in HASHES.candidates if each.name == name)


def setup_for(directory: Path, name: str = "plain", **binaries: str) -> Setup:
    return Setup(candidate(name), "", {}, str(directory), "n", 1, "", cpu=0, binaries=binaries)


@pytest.fixture(params=["system", "newer"])
def server(request: pytest.FixtureRequest, short_path: Path) -> Iterator[OwnServer]:
    need("redis-server")
    binaries = {}
    if request.param == "newer":
        if not NEWER.exists():
            missing("there is no newer server; `make newer-redis`")
        binaries = {"redis": str(NEWER)}
    with OwnServer(setup_for(short_path, **binaries), "redis") as own:
        yield own


@pytest.fixture
def few_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same kinds of data, small enough for a test."""
    for name, data in DATA.items():
        monkeypatch.setitem(DATA, name, replace(data, count=2600))


def test_limits_and_rules_are_what_the_server_says_and_does(server: OwnServer) -> None:
    with Wire(server.socket) as wire:
        limits = Limits.of(wire)
        assert limits.entries_name == "hash-max-listpack-entries"
        rules = try_rules(wire, limits)
    assert rules["rule: 512 fields, then one more"].startswith("listpack of ")
    assert "then hashtable" in rules["rule: 512 fields, then one more"]
    assert rules["rule: back to 512 fields by HDEL"].startswith("hashtable")
    assert rules["rule: a value of 64 bytes, then of 65"] == "listpack, then hashtable"
    raised = rules["rule: the limit is raised by CONFIG SET"]
    assert raised == "hashtable, and hashtable after one more HSET"
    assert rules["rule: DUMP and RESTORE after that"].startswith("listpack")
    assert rules["rule: the limit is lowered, then one HSET"] == "listpack, then hashtable"
    assert "microseconds" in rules["rule: the HSET that converts"]


def test_names_of_older_servers_are_understood() -> None:
    class Old:
        def ask(self, *command: Any) -> list[bytes]:
            assert command == ("CONFIG", "GET", "hash-max-*")
            return [b"hash-max-ziplist-value", b"64", b"hash-max-ziplist-entries", b"128"]

    limits = Limits.of(Old())  # type: ignore[arg-type]
    assert (limits.entries, limits.value) == (128, 64)
    assert limits.entries_name == "hash-max-ziplist-entries"


@pytest.mark.parametrize(
    ("size", "fields"), [("", 0), ("500", 500), ("limit", 128), ("limit+1", 129), ("limit-1", 127)]
)
def test_buckets_follow_the_limit_of_the_server(size: str, fields: int) -> None:
    assert bucket_of(size, 128) == fields


@pytest.mark.usefixtures("few_ids")
def test_a_layout_that_is_kept_otherwise_than_the_limits_imply_is_refused(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("redis-server")
    arm = HashesArm(setup_for(short_path, "bucket-limit+1"))
    arm.begin()
    assert arm.bucket == arm.limits.entries + 1
    # Planted: somebody believes that the limit is higher than it is.
    arm.limits = replace(arm.limits, entries=1000)
    with pytest.raises(WrongAnswer, match=r"513 fields are .*hashtable.*, not listpack"):
        arm.visit(Visit("100k", ["memory"], "r", phase_ns=1000))


@pytest.mark.usefixtures("few_ids")
def test_a_value_that_is_not_what_was_stored_is_refused(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("redis-server")
    arm = HashesArm(setup_for(short_path, "bucket-10"))
    arm.begin()
    read = arm_module.Layout.read

    def shifted(layout: Any, number: int) -> Any:
        return read(layout, number + 1)

    monkeypatch.setattr(arm_module.Layout, "read", shifted)
    with pytest.raises(WrongAnswer, match="id 1"):
        arm.visit(Visit("100k", ["read"], "r", phase_ns=1000))


def test_a_server_that_is_not_installed_is_missing_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="redis-server or valkey-server is not installed"):
        HashesArm(setup_for(tmp_path)).begin()


def test_every_id_is_stored_whatever_the_layout(server: OwnServer) -> None:
    ids = range(1_000_000, 1_001_234)
    for bucket, remainder, shuffled in ((0, False, False), (100, True, False), (7, False, True)):
        data = Data(count=len(ids), remainder=remainder, shuffled=shuffled)
        layout = arm_module.Layout(bucket, data, 0)
        with Wire(server.socket) as wire:
            wire.ask("FLUSHALL")
            for commands in layout.loading(ids):
                wire.many(commands)
            replies = wire.many([layout.read(number) for number in ids])
        assert [reply.decode() for reply in replies] == [layout.value(n) for n in ids]


@pytest.fixture(scope="module")
def sample() -> Sample:
    """A real run, small: the children of the lab read the numbers of ids from here."""
    need("redis-server")
    names = ["bucket-10", "bucket-limit", "bucket-limit+1", "bucket-1000-of-1024"]
    order = prepare(
        replace(HASHES, plans={"tiny": TINY}),
        RunOptions(plan="tiny", candidates=names, payloads=["v", "v+1"], seed=7),
    )
    sample = new_sample(order, "a test")
    measure(order, sample, Silent(), lambda sample: None)
    return sample


def test_a_run_weighs_reads_and_writes_every_layout(sample: Sample) -> None:
    for name in ("plain", "bucket-limit"):
        assert sample.candidates[name].state == "measured", sample.candidates[name].reason
        for operation in ("read", "write"):
            assert sample.cells[name, operation, "v"].count > 0
        for operation in ("memory", "server_read", "server_write"):
            assert sample.cells[name, operation, "v"].points
    weights = {
        name: sample.cells[name, "memory", "v"].points[0][0] for name in ("plain", "bucket-limit")
    }
    assert weights["bucket-limit"] < weights["plain"]
    assert ("bucket-10", "memory", "v") not in sample.cells, "only a few layouts have these values"


def test_the_proof_has_server_allocator_and_limits(sample: Sample) -> None:
    proof = sample.candidates["bucket-limit"].proof
    assert proof["limits"] == "hash-max-listpack-entries 512, hash-max-listpack-value 64"
    assert proof["command"] == "HSET, 512 fields a hash"
    assert sample.candidates["plain"].facts["rule: DUMP and RESTORE after that"]


def test_values_above_the_limit_make_hash_tables(sample: Sample) -> None:
    facts = sample.candidates["bucket-limit"].facts
    assert facts["encoding, v"] == "listpack 100%"
    assert facts["encoding, v+1"] == "hashtable 100%"


BYTES = {  # name -> fields, bytes an id, the server's ns for a read, encoding
    "plain": (0, 70.0, 500, "int 100%"),
    "bucket-10": (10, 21.0, 520, "listpack 100%"),
    "bucket-100": (100, 14.0, 1200, "listpack 100%"),
    "bucket-500": (500, 13.0, 5000, "listpack 100%"),
    "bucket-limit": (512, 12.0, 5200, "listpack 100%"),
    "bucket-limit+1": (513, 80.0, 600, "hashtable 100%"),
    "bucket-1000": (1000, 72.0, 610, "hashtable 100%"),
    "bucket-1000-of-1024": (1000, 12.5, 9900, "listpack 100%"),
    "bucket-100-of-10000": (100, 14.0, 1200, "listpack 100%"),
}


def made_up() -> Sample:
    experiment = replace(HASHES, plans={"tiny": TINY})
    wanted = RunOptions(plan="tiny", candidates=list(BYTES), payloads=["100k"], seed=1)
    sample = new_sample(prepare(experiment, wanted), "made up")
    for name, entry in sample.candidates.items():
        fields, weight, read_ns, encoding = BYTES[entry.twin_of or name]
        entry.state = "measured"
        entry.facts = {
            "bucket": str(fields),
            "encoding, 100k": encoding,
            "encoding, v+1": "hashtable",
        }
        entry.proof = {"limits": "hash-max-listpack-entries 512"}
        memory = Phase("memory", point=weight, calls=1)
        memory.measures = {"ids": (100_000, "count"), "at 10,000 ids": (1e6, "bytes")}
        sample.cell(name, "memory", "100k").add_phase(0, 0, memory)
        for operation, ns in (("server_read", read_ns), ("server_write", 2 * read_ns)):
            phase = Phase(operation, point=ns, calls=1)
            sample.cell(name, operation, "100k").add_phase(0, 0, phase)
    sample.candidates["plain"].facts |= {
        "rule: back to 512 fields by HDEL": "hashtable of 32,872 bytes",
        "rule: the limit is raised by CONFIG SET": "hashtable, and hashtable after one more HSET",
        "rule: DUMP and RESTORE after that": "listpack of 10,288 bytes",
        "rule: expiry of single fields (HEXPIRE)": "yes, as hashtable",
    }
    return sample


def test_the_sentences_answer_what_the_seed_asked() -> None:
    shown = views(Analysis(made_up()))
    text = " ".join(shown.sentences)
    assert "7.00 MB as keys of their own and 1.20 MB in hashes of 512 fields: 5.83 times" in text
    assert "The jump is between 512 fields (12.0 bytes an id, listpack 100%) and 513" in text
    assert "So 512 still fit, and the 502 of the article was no threshold." in text
    assert "a large limit allocates nothing in advance" in text
    assert "hashes of 1,000 fields take 1.25 MB instead of 7.20 MB" in text
    assert "a read is 500 ns for a plain key, 520 ns in hashes of 10 and 5.20" in text
    assert "The knee is at 100 fields: 512 save 2.00 bytes an id more" in text
    assert "Conversion is one-way" in text
    assert "CONFIG SET converts nothing that is stored; DUMP and RESTORE REPLACE do." in text
    assert "saves nothing: it takes 14% more" in text
    assert "A field that expires by itself (HEXPIRE) makes its hash a hash table." in text


def test_the_tables_and_curves_hold_every_layout() -> None:
    shown = views(Analysis(made_up()))
    table = shown.parts[0]
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows][:2] == ["plain", "bucket-10"]
    assert all(len(row) == len(table.head) for row in table.rows)
    charts = {part.title: part for part in shown.parts if isinstance(part, Chart)}
    by_size = charts["Used memory by the size of a hash"]
    assert [(mark.x, mark.text) for mark in by_size.marks] == [(512, "limit"), (100, "knee")]
    assert {line.name for line in charts["Used memory while it grows"].lines} == {
        "plain", "bucket-1000", "bucket-500", "bucket-1000-of-1024",
    }  # fmt: skip


def test_a_sample_without_numbers_has_no_views() -> None:
    experiment = replace(HASHES, plans={"tiny": TINY})
    order = prepare(experiment, RunOptions(plan="tiny", candidates=["bucket-10"], seed=1))
    shown = views(Analysis(new_sample(order, "nothing")))
    assert (shown.sentences, shown.parts) == ((), ())


def test_the_knee_is_where_the_curve_turns() -> None:
    assert knee([(1, 100), (10, 20), (100, 15), (1000, 14)]) == 10
    assert knee([(1, 100), (10, 60), (100, 20)]) is None  # a straight line turns nowhere
    assert knee([(1, 100), (10, 20)]) is None


def test_the_front_holds_what_nothing_beats() -> None:
    assert front([(1, 10), (2, 12), (3, 5), (4, 6)]) == [(1, 10), (3, 5)]
