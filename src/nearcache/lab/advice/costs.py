"""What a cache costs, from the prices a user gives and from what was measured.

    memory    bytes in the store per byte of application data, times the price of a GB
    CPU       nanoseconds of client and server per operation, times the price of a vCPU

No price is built in: they differ by contract, place and day. What the user gave is
printed with the day it was given. A GB is 10^9 bytes and a month 730 hours, as on bills.
What a backend spends waiting costs nothing here; latency is in the other tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from nearcache.lab.base.prices import Prices
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.results.sample import Cell, Entry
from nearcache.lab.views import Views
from nearcache.report.model import Table
from nearcache.report.units import NOTHING

HOURS_A_MONTH = 730
NS_AN_HOUR = 3600e9
MILLION = 1e6
LEAST_OF_MIX = 0.5
SMALLEST_SHORT = 1e-3  # below, three digits would need an exponent
COUNTED = (
    "A GB is one of your data, counted as pickled values. Replicas, spare servers and the network "
    "are not in it."
)
WITH_CPU = "CPU is that of client and server for an average operation."
WITHOUT_CPU = "Processor time is not measured here: lab run backends does that."
CPU_MEASURES = ("client_cpu", "server_cpu")


@dataclass(frozen=True)
class Cost:
    """One candidate. None where something was not measured or has no price."""

    entry: Entry
    stored_per_byte: float | None  # bytes in the store for one byte of application data
    gb_month: float | None  # of application data
    cpu_ns: float | None  # client and server, per operation
    server_known: bool
    million: float | None  # operations
    month: float | None  # at the user's rate
    vcpus: float | None  # kept busy at the user's rate


def prices_of(about: Mapping[str, Any]) -> Prices | None:
    given = about.get("prices")
    return Prices(**given) if given else None


def costs(analysis: Analysis, prices: Prices) -> list[Cost]:
    """One for each candidate that has something to say, cheapest per operation first."""
    found = [_cost(analysis, entry, prices) for entry in analysis.contenders]
    known = [cost for cost in found if cost.stored_per_byte is not None or cost.cpu_ns is not None]
    return sorted(known, key=lambda cost: (cost.cpu_ns is None, cost.cpu_ns or 0.0))


def _cost(analysis: Analysis, entry: Entry, prices: Prices) -> Cost:
    ratio = _stored_per_byte(entry, analysis.sample.about.get("payload_bytes", {}))
    cpu_ns, server_known = _cpu_ns(analysis, entry)
    hour, rate = prices.vcpu_hour, prices.requests_per_second
    million = None if cpu_ns is None or hour is None else cpu_ns * MILLION / NS_AN_HOUR * hour
    vcpus = None if cpu_ns is None or rate is None else cpu_ns * rate / 1e9
    month = None if vcpus is None or hour is None else vcpus * HOURS_A_MONTH * hour
    gb_month = None if ratio is None or prices.gb_month is None else ratio * prices.gb_month
    return Cost(entry, ratio, gb_month, cpu_ns, server_known, million, month, vcpus)


def _stored_per_byte(entry: Entry, application: Mapping[str, float]) -> float | None:
    """Over all payloads together: one of each is as much data as they say."""
    both = [
        (entry.stored[name][0], application[name]) for name in application if name in entry.stored
    ]
    held = sum(size for _, size in both)
    return sum(stored for stored, _ in both) / held if held else None


def _cpu_ns(analysis: Analysis, entry: Entry) -> tuple[float | None, bool]:
    """(client and server CPU of an average operation, whether the server is in it).

    Over those operations of the mix whose CPU was measured, if they are most of it.
    """
    total, known, server_known = 0.0, 0.0, False
    for operation, share in analysis.mix_shares.items():
        cells = [
            cell
            for cell in analysis.sample.cells.values()
            if (cell.candidate, cell.operation) == (entry.name, operation)
            and not analysis.void(entry.name, operation, cell.payload)
        ]
        spent = [ns for cell in cells if (ns := _cell_cpu_ns(cell)) is not None]
        if spent:
            server_known |= any("server_cpu" in cell.measures for cell in cells)
            total += share * fmean(spent)
            known += share
    return (total / known, server_known) if known > LEAST_OF_MIX else (None, False)


def _cell_cpu_ns(cell: Cell) -> float | None:
    found = [cell.measures[name].median for name in CPU_MEASURES if name in cell.measures]
    return sum(found) if "client_cpu" in cell.measures else None


def views(analysis: Analysis) -> Views:
    """The table of costs; nothing without prices."""
    prices = prices_of(analysis.sample.about)
    if prices is None:
        return Views()
    found = costs(analysis, prices)
    if not found:
        return Views(sentences=("Nothing was measured that these prices could be applied to.",))
    return Views(parts=(_table(found, prices),))


def _table(found: Sequence[Cost], prices: Prices) -> Table:
    has_cpu = any(cost.cpu_ns is not None for cost in found)
    head = ["", "stored/data"]
    head += ["GB a month"] if prices.gb_month is not None else []
    if has_cpu:
        head += ["CPU µs"]
        head += ["million ops"] if prices.vcpu_hour is not None else []
        head += ["vCPUs", "a month"] if prices.requests_per_second is not None else []
    rows = [_row(cost, prices)[: len(head)] for cost in found]
    return Table(title=_title(prices), head=head, rows=rows, note=_note(found, has_cpu))


def _title(prices: Prices) -> str:
    given = []
    if prices.gb_month is not None:
        given.append(f"{prices.gb_month:g} for a GB and month")
    if prices.vcpu_hour is not None:
        given.append(f"{prices.vcpu_hour:g} for a vCPU and hour")
    if prices.requests_per_second is not None:
        given.append(f"{prices.requests_per_second:,.0f} operations a second")
    return f"Costs, by what you gave on {prices.given_on}: {', '.join(given)}"


def _row(cost: Cost, prices: Prices) -> list[str]:
    row = [cost.entry.name, _number(cost.stored_per_byte)]
    row += [_number(cost.gb_month)] if prices.gb_month is not None else []
    row += [_number(None if cost.cpu_ns is None else cost.cpu_ns / 1000)]
    row += [_number(cost.million)] if prices.vcpu_hour is not None else []
    if prices.requests_per_second is not None:
        row += [_number(cost.vcpus), _number(cost.month)]
    return row


def _number(value: float | None) -> str:
    if value is None:
        return NOTHING
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= SMALLEST_SHORT else f"{value:.6f}"


def _asks(entry: Entry) -> bool:
    """Whether a server answers; of the user's own caches the socket tells."""
    return entry.server is not None or "socket" in entry.proof


def _note(found: Sequence[Cost], has_cpu: bool) -> str:
    notes = [COUNTED, WITH_CPU if has_cpu else WITHOUT_CPU]
    private = [cost.entry.name for cost in found if cost.entry.reach == "process"]
    if private:
        notes.append(f"{', '.join(private)}: times the number of processes, as each has its own.")
    blind = [cost.entry.name for cost in found if _asks(cost.entry) and not cost.server_known]
    if blind and has_cpu:
        notes.append(f"Without the server's CPU, which was not measured: {', '.join(blind)}.")
    return " ".join(notes)
