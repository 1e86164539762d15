"""The ``stores`` experiment: the same JSON everywhere, durability asked and seen."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from nearcache.lab.experiments.stores.findings import LIKE_WITH_LIKE, views
from nearcache.lab.experiments.stores.plan import STORES
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Sample
from nearcache.lab.workloads.blobs import BLOBS
from nearcache.report.model import Chart, Table
from tests.needs import need_package

from .conftest import need
from .made_up import fill, measured
from .private_servers import need_server
from .tiny import assert_failed, candidate_of, run_of

NAMES = [
    "pg-orm", "pg-values", "pg-text-protocol", "pg-prepared", "pg-bytea", "pg-async",
    "pg-unlogged", "pg-cache", "redis-always", "redis-everysec", "redis-memory", "redis-cache",
    "redis-seed", "both",
]  # fmt: skip
PROMISES = {
    "pg-orm": "on the disk when the write returns",
    "pg-prepared": "on the disk when the write returns",
    "pg-async": "the last moments before a crash may be lost",
    "pg-unlogged": "emptied after a crash",
    "redis-always": "on the disk when the write returns",
    "redis-everysec": "the last second or two before a crash may be lost",
    "redis-memory": "gone with the process",
}


FAULTY = [
    *(
        candidate_of(STORES, "redis-memory", name, fault=name)
        for name in ("Damaging", "Swapping", "Dropping", "Clinging")
    ),
    candidate_of(STORES, "redis-always", "not-always", appendfsync="everysec"),
    candidate_of(STORES, "redis-memory", "not-kept", appendfsync="always"),
    candidate_of(STORES, "pg-prepared", "not-on", driver={"synchronous_commit": "local"}),
]


@pytest.fixture(scope="module")
def sample() -> Sample:
    """The experiment, and beside it candidates with something wrong."""
    need("redis-server")
    need_server("postgres")
    need_package("psycopg", "django_redis", "msgpack")
    experiment = replace(STORES, arm="tests.lab.faulty_stores.FaultyArm")
    return run_of(experiment, NAMES, FAULTY, payloads=["1k"])


def test_every_store_is_measured_and_every_value_compared(sample: Sample) -> None:
    for name in NAMES:
        assert sample.candidates[name].state == "measured", sample.candidates[name]
        for operation, payload in (("read", "1k"), ("write", "1k"), ("first", "-")):
            cell = sample.cells[name, operation, payload]
            assert cell.hits == cell.calls > 0


@pytest.mark.parametrize(("name", "promise"), PROMISES.items())
def test_every_row_says_what_becomes_of_a_write(sample: Sample, name: str, promise: str) -> None:
    assert sample.candidates[name].facts["durability"] == promise


def test_durable_commits_were_seen_in_the_flushed_log(sample: Sample) -> None:
    for name in ("pg-orm", "pg-prepared", "pg-cache"):
        assert sample.candidates[name].facts["seen"].startswith("10 of 10 commits")


def test_the_file_that_redis_appends_to_grew(sample: Sample) -> None:
    for name in ("redis-always", "redis-everysec"):
        assert "the append-only file grew by" in sample.candidates[name].facts["seen"]
    assert sample.candidates["redis-memory"].facts["seen"] == "no file"


def test_the_servers_say_their_settings_themselves(sample: Sample) -> None:
    said = {name: sample.candidates[name].facts["as the server says"] for name in PROMISES}
    assert "synchronous_commit=off" in said["pg-async"]
    assert "UNLOGGED" in said["pg-unlogged"]
    assert "appendfsync=always" in said["redis-always"]
    assert "appendonly=no" in said["redis-memory"]


def test_columns_and_statements_are_what_was_ordered(sample: Sample) -> None:
    proof = {name: sample.candidates[name].proof for name in NAMES}
    assert proof["pg-prepared"]["column"] == "jsonb"
    assert proof["pg-bytea"]["column"] == "bytea"
    assert proof["pg-prepared"]["statements"] == "prepared on the server"
    assert proof["pg-text-protocol"]["statements"] == "sent as text each time"
    assert proof["redis-seed"]["packed by"] == "MSGPackSerializer, ZlibCompressor"


def test_a_disk_was_asked_what_an_fsync_costs(sample: Sample) -> None:
    cell = sample.cells["pg-prepared", "write", "1k"]
    assert cell.measures["an fsync of 8 kB beside it"].median > 0


def test_both_are_read_at_once_and_shown_apart(sample: Sample) -> None:
    parts = sample.cells["both", "read", "1k"].parts
    assert set(parts) == {"PostgreSQL", "Redis"}


def test_damaged_foreign_dropped_and_undying_values_are_caught(sample: Sample) -> None:
    assert_failed(sample, "Damaging", "damaged")
    assert_failed(sample, "Swapping", "foreign")
    assert_failed(sample, "Dropping", "TypeError")  # another connection finds nothing
    assert_failed(sample, "Clinging", "still answers after the store was emptied")


def test_a_store_that_promises_other_than_its_name_is_out(sample: Sample) -> None:
    assert_failed(sample, "not-always", "appendfsync=always, save='', not 'everysec'")
    assert_failed(sample, "not-kept", "appendonly=no")
    assert_failed(sample, "not-on", "synchronous_commit=local")
    assert sample.candidates["pg-orm"].state == "measured"


def test_sizes_are_what_they_are_called() -> None:
    for name, blob in BLOBS.items():
        for seed in (1, 2):
            size = len(json.dumps(blob(seed).make("nearcache-lab:0123456789ab:17", 1)))
            assert size == pytest.approx(blob.size_bytes, rel=0.12), name


def made_up(**factors: float) -> Analysis:
    sample = measured(replace(STORES, claims=()))
    costs = {name: 1e5 * factors.get(name.replace("-", "_"), 1.0) for name in NAMES}
    for operation in ("read", "write"):
        for payload in BLOBS:
            fill(sample, costs, operation, payload)
    fill(sample, costs, "first", "-")
    for name, promise in PROMISES.items():
        sample.candidates[name].facts = {"durability": promise, "its files lie on": "ext4 (/)"}
    return Analysis(sample)


def test_equally_durable_stores_are_set_side_by_side() -> None:
    found = views(made_up(pg_prepared=3.0, redis_always=1.0))
    (table,) = [p for p in found.parts if isinstance(p, Table) and "Like with like" in p.title]
    assert {row[0] for row in table.rows} == {f"{a} / {b}" for _, a, b in LIKE_WITH_LIKE}
    durable = next(row for row in table.rows if row[:2] == ["pg-prepared / redis-always", "10k"])
    assert durable[2].startswith(("2.9", "3.0"))
    assert any("a write by pg-prepared took" in sentence for sentence in found.sentences)


def test_what_is_the_same_is_called_the_same() -> None:
    found = views(made_up())
    sentences = [line for line in found.sentences if "redis-always" in line]
    assert not any("times" in sentence for sentence in sentences)


def test_a_read_by_the_orm_is_taken_apart() -> None:
    found = views(made_up(pg_orm=8.0, pg_values=6.0, pg_text_protocol=2.0, pg_prepared=1.0))
    (table,) = [p for p in found.parts if isinstance(p, Table) and "taken apart" in p.title]
    assert [row[1] for row in table.rows[:3]] == [
        "pg-orm - pg-values", "pg-values - pg-text-protocol", "pg-text-protocol - pg-prepared",
    ]  # fmt: skip
    assert any("statement without the ORM" in sentence for sentence in found.sentences)


def test_time_is_drawn_over_size() -> None:
    charts = [part for part in views(made_up()).parts if isinstance(part, Chart)]
    assert {chart.title for chart in charts} == {
        "One read by size of the JSON", "One write by size of the JSON",
    }  # fmt: skip
    assert [x for x, _ in charts[0].lines[0].points] == [1e3, 1e4, 1e5]


def test_a_server_that_is_not_there_takes_only_its_own_candidates_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    need("redis-server")
    redis_server = shutil.which("redis-server")
    assert redis_server
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("nearcache.lab.servers.postgres.WHERE_DEBIAN_KEEPS_IT", tmp_path)
    names = ["pg-prepared", "redis-memory"]
    sample = run_of(STORES, names, payloads=["1k"], binaries={"redis": redis_server})
    assert sample.candidates["pg-prepared"].state == "missing"
    assert "apt install postgresql" in sample.candidates["pg-prepared"].install
    assert sample.candidates["redis-memory"].state == "measured"
