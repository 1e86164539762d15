"""What a cache costs: the arithmetic, and that nothing is made up where nothing was measured."""

from __future__ import annotations

import pytest

from nearcache.errors import LabError
from nearcache.lab.advice.costs import costs, views
from nearcache.lab.base.prices import Prices
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.reports.parts import views_of
from nearcache.lab.results.sample import Sample
from nearcache.report.model import Table

from .made_up import candidate, experiment, fill, measured

PRICES = Prices(gb_month=4.0, vcpu_hour=0.036, requests_per_second=1000.0, given_on="2025-01-02")


def made(server_cpu: bool = True) -> Sample:
    everybody = [
        candidate("cheap", servers=("redis",)),
        candidate("dear", servers=("redis",)),
        candidate("private", reach="process"),
    ]
    sample = measured(experiment("backends", everybody, mix={"get": 0.9, "set": 0.1}))
    for name, factor in (("cheap", 1.0), ("dear", 10.0)):
        sample.candidates[name].stored = {"S": (200.0 * factor, "x"), "F": (400.0 * factor, "x")}
        for operation, client in (("get", 10_000.0), ("set", 60_000.0)):
            seen = {"client_cpu": (client * factor, "ns")}
            if server_cpu:
                seen["server_cpu"] = (10_000.0 * factor, "ns")
            for payload in ("S", "F"):
                fill(sample, {name: 1000 * factor}, operation, payload, measures=seen)
    fill(sample, {"private": 500}, "get", "S")
    sample.about["payload_bytes"] = {"S": 100.0, "F": 400.0}
    sample.about["prices"] = vars(PRICES)
    return sample


def test_memory_is_priced_by_the_bytes_in_the_store() -> None:
    cheap = costs(Analysis(made()), PRICES)[0]
    assert cheap.entry.name == "cheap"
    assert cheap.stored_per_byte == pytest.approx(600 / 500)
    assert cheap.gb_month == pytest.approx(4.0 * 600 / 500)


def test_operations_are_priced_by_the_cpu_of_client_and_server() -> None:
    cheap = costs(Analysis(made()), PRICES)[0]
    assert cheap.cpu_ns == pytest.approx(0.9 * 20_000 + 0.1 * 70_000)
    assert cheap.million == pytest.approx(25e-6 * 1e6 / 3600 * 0.036)
    assert cheap.vcpus == pytest.approx(0.025)
    assert cheap.month == pytest.approx(0.025 * 730 * 0.036)


def test_what_was_not_measured_has_no_cost() -> None:
    found = {cost.entry.name: cost for cost in costs(Analysis(made()), PRICES)}
    assert "private" not in found
    assert found["cheap"].server_known
    (table,) = views(Analysis(made(server_cpu=False))).parts
    assert isinstance(table, Table)
    assert "Without the server's CPU" in table.note


def test_the_server_of_an_alias_of_the_users_is_not_counted_as_free() -> None:
    sample = made(server_cpu=False)
    for name, proof in (("cheap", {"socket": "unix /run/redis"}), ("dear", {})):
        sample.candidates[name].server = None
        sample.candidates[name].proof = proof
    (table,) = views(Analysis(sample)).parts
    assert isinstance(table, Table)
    assert table.note.endswith("Without the server's CPU, which was not measured: cheap.")


def test_where_no_processor_time_was_measured_the_table_is_of_memory_alone() -> None:
    sample = made()
    for cell in sample.cells.values():
        cell.measures.clear()
    (table,) = views(Analysis(sample)).parts
    assert isinstance(table, Table)
    assert list(table.head) == ["", "stored/data", "GB a month"]
    assert all(len(row) == len(table.head) for row in table.rows)
    assert "lab run backends" in table.note


def test_the_table_shows_only_what_has_a_price() -> None:
    sample = made()
    sample.about["prices"] = vars(Prices(gb_month=4.0, given_on="2025-01-02"))
    (table,) = views(Analysis(sample)).parts
    assert isinstance(table, Table)
    assert list(table.head) == ["", "stored/data", "GB a month", "CPU µs"]
    assert "2025-01-02" in table.title
    assert all(len(row) == len(table.head) for row in table.rows)


def test_without_prices_there_is_no_table_and_with_them_any_report_has_it() -> None:
    sample = made()
    assert any("Costs" in part.title for part in views_of(Analysis(sample)).parts)
    del sample.about["prices"]
    assert not views_of(Analysis(sample)).parts


def test_prices_that_mean_nothing_are_refused() -> None:
    with pytest.raises(LabError, match="from 0"):
        Prices(gb_month=float("nan"))
    with pytest.raises(LabError, match="--price-vcpu-hour"):
        Prices(requests_per_second=5.0)
    assert not Prices(given_on="today")
