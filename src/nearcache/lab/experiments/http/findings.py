"""What only `http` shows: who answered, latency as the load grows, crowds, and what was proven."""

from __future__ import annotations

from collections.abc import Sequence

from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import cell_of, compared, measure_of, point_of
from nearcache.lab.judging.words import beside
from nearcache.lab.results.sample import Cell, Entry, distribution_of
from nearcache.lab.views import Views
from nearcache.lab.views.waits import curve, ms, percent
from nearcache.report.model import Chart, Line, Table
from nearcache.report.units import NOTHING, quantity, rate, short
from nearcache.report.words import listed

RATES = ("at_30", "at_50", "at_70", "at_90")
HIGHEST = RATES[-1]
LOCK_WAIT_NS = 400e6  # a crowd that waits longer than this has waited for nginx to look again


def views(analysis: Analysis) -> Views:
    payloads = list(analysis.sample.about["payloads"])
    parts: list[Table | Chart] = [_served(analysis, payloads)]
    for payload in payloads:
        if any(_at(analysis, entry, name, payload) for entry in _arms(analysis) for name in RATES):
            parts += [_latencies(analysis, payload), _growth(analysis, payload)]
            parts.append(_distribution(analysis, payload))
    parts += [_seldom(analysis), _proven(analysis)]
    sentences = [
        *_capacities(analysis, payloads),
        *_nginx_beside_django(analysis, payloads),
        *_at_highest(analysis, payloads),
        *_crowds(analysis),
        *_conditions(analysis),
    ]
    return Views(sentences=sentences, parts=parts)


def _arms(analysis: Analysis) -> list[Entry]:
    return list(analysis.contenders)


def _by_capacity(analysis: Analysis, payload: str) -> list[tuple[Entry, float]]:
    """(arm, ns per request), the one that serves most first."""
    found = [
        (entry, point)
        for entry in _arms(analysis)
        if (point := point_of(analysis, entry.name, "capacity", payload))
    ]
    return sorted(found, key=lambda pair: pair[1])


def _answers(entry: Entry) -> str:
    return str(entry.options.get("answers", ""))


# -- tables and charts ---------------------------------------------------------------------------


def _served(analysis: Analysis, payloads: Sequence[str]) -> Table:
    rows = []
    order = dict.fromkeys(
        e.name for payload in payloads for e, _ in _by_capacity(analysis, payload)
    )
    for name in order:
        row = [name, _answers(analysis.sample.candidates[name])]
        for payload in payloads:
            cell = cell_of(analysis, name, "capacity", payload)
            point = point_of(analysis, name, "capacity", payload)
            base = point_of(analysis, analysis.baseline, "capacity", payload)
            row += [
                NOTHING if point is None else short(1e9 / point),
                NOTHING if point is None or base is None else short(base / point),
                percent(measure_of(cell, "hit share")),
            ]
        rows.append(row)
    heads = [[f"{p} /s", f"x {analysis.baseline}", "hits %"] for p in payloads]
    return Table(
        title="Requests a second, as many as one core serves",
        head=["", "answered by", *(head for group in heads for head in group)],
        rows=rows,
        text_columns=(0, 1),
    )


def _latencies(analysis: Analysis, payload: str) -> Table:
    rows = []
    for entry in _arms(analysis):
        cells = [_at(analysis, entry, name, payload) for name in RATES]
        if any(cells):
            late = [measure_of(cell, "late_share") for cell in cells]
            worst = max((share for share in late if share is not None), default=None)
            row = [entry.name, *(ms(cell, rank) for cell in cells for rank in (50, 99))]
            rows.append([*row, percent(worst)])
    offered = [_offered(analysis, name, payload) for name in RATES]
    head = [f"{text} {each}" for text in offered for each in ("P50", "P99")]
    return Table(
        title=f"ms from when a request was due: {analysis.sample.about['payloads'][payload]}",
        head=["", *head, "late %"],
        rows=rows,
        note=(
            "The rates are 30, 50, 70 and 90 % of what the slowest arm can serve. late: requests "
            "that the generator sent more than 0.5 ms too late, at its worst rate."
        ),
    )


def _offered(analysis: Analysis, name: str, payload: str) -> str:
    for entry in _arms(analysis):
        found = measure_of(_at(analysis, entry, name, payload), "offered_rate")
        if found is not None:
            return f"{short(found)}/s"
    return name


def _growth(analysis: Analysis, payload: str) -> Chart:
    lines = []
    for entry in _arms(analysis):
        points = [
            (offered, distribution_of(cell).percentile(50) / 1e6)
            for name in RATES
            if (cell := _at(analysis, entry, name, payload)) and cell.count
            if (offered := measure_of(cell, "offered_rate"))
        ]
        lines.append(Line(name=entry.name, family=entry.family, points=points))
    return Chart(
        title=f"Median as the load grows: {analysis.sample.about['payloads'][payload]}",
        x_title="requests/s that were due",
        y_title="ms from when it was due, log",
        y_log=True,
        lines=lines,
    )


def _distribution(analysis: Analysis, payload: str) -> Chart:
    cells = [
        (entry, cell)
        for entry in _arms(analysis)
        if (cell := _at(analysis, entry, HIGHEST, payload))
    ]
    return curve("Answers at 90 % of what the slowest can serve", cells, "From when they were due.")


def _seldom(analysis: Analysis) -> Table:
    rows = []
    for entry in _arms(analysis):
        crowd = cell_of(analysis, entry.name, "stampede", "-")
        until = measure_of(crowd, "until all have it")
        computed = point_of(analysis, entry.name, "stampede", "-")
        rows.append(
            [
                entry.name,
                ms(cell_of(analysis, entry.name, "cold", "-"), 50),
                ms(cell_of(analysis, entry.name, "expired", "-"), 50),
                NOTHING if computed is None else f"{computed:g}",
                NOTHING if until is None else short(until / 1e6),
            ]
        )
    return Table(
        title="What is not warm",
        head=["", "first request ms", "expired ms", "computed for 16", "until all have it ms"],
        rows=rows,
        note=(
            "computed for 16: how often the view ran when 16 asked at once for one URL that nobody "
            "had asked for, by its own count. It then waits 30 ms for somebody else."
        ),
    )


def _proven(analysis: Analysis) -> Table:
    names = ("server", "backend")
    rows = [
        [entry.name, *(entry.proof.get(name, NOTHING) for name in names)]
        for entry in _arms(analysis)
    ]
    return Table(
        title="What answered, asked of the servers",
        head=["", "servers", "Django's cache"],
        rows=rows,
        text_columns=(0, 1, 2),
    )


# -- sentences -----------------------------------------------------------------------------------


def _capacities(analysis: Analysis, payloads: Sequence[str]) -> list[str]:
    found = []
    for payload in payloads:
        order = _by_capacity(analysis, payload)
        if not order or order[0][0].name == analysis.baseline:
            continue
        entry, point = order[0]
        says = _beside(analysis, entry.name, analysis.baseline, "capacity", payload)
        title = analysis.sample.about["payloads"][payload]
        found.append(f"{title}: most requests with {entry.name}, {rate(point)}, {says}.")
    return found


def _nginx_beside_django(analysis: Analysis, payloads: Sequence[str]) -> list[str]:
    """The best of one kind beside the best of the other."""
    found = []
    for payload in payloads:
        order = _by_capacity(analysis, payload)
        nginx = next((e.name for e, _ in order if _answers(e) == "nginx"), None)
        django = next((e.name for e, _ in order if _answers(e) == "Django's cache"), None)
        if nginx and django:
            says = _beside(analysis, nginx, django, "capacity", payload)
            found.append(
                f"{payload}: nginx's best, {nginx}, beside Django's best, {django}: {says}."
            )
    return found


def _at_highest(analysis: Analysis, payloads: Sequence[str]) -> list[str]:
    found = []
    for payload in payloads:
        told = [
            f"{entry.name} {quantity(distribution_of(cell).percentile(50), 'ns')}"
            for entry in _arms(analysis)
            if (cell := _at(analysis, entry, HIGHEST, payload)) and cell.count
        ]
        if told:
            offered = _offered(analysis, HIGHEST, payload)
            found.append(
                f"{payload}: at {offered} the median, from when it was due: {listed(told)}."
            )
    return found


def _crowds(analysis: Analysis) -> list[str]:
    by_count: dict[str, list[str]] = {}
    waited = []
    for entry in _arms(analysis):
        computed = point_of(analysis, entry.name, "stampede", "-")
        cell = cell_of(analysis, entry.name, "stampede", "-")
        until = measure_of(cell, "until all have it")
        if computed is not None:
            by_count.setdefault(f"{computed:g}", []).append(entry.name)
        if computed == 1 and until is not None and until > LOCK_WAIT_NS:
            waited.append(f"{entry.name} ({quantity(until, 'ns')})")
    if not by_count:
        return []
    ordered = sorted(by_count.items(), key=lambda item: float(item[0]))
    told = [f"{_times(count)} with {', '.join(names)}" for count, names in ordered]
    found = [f"What 16 ask for at once is computed {'; '.join(told)}."]
    if waited:
        found.append(
            f"Computed once, and the crowd waited long: {', '.join(waited)}. nginx looks every "
            "half second whether the lock is free."
        )
    return found


def _times(count: str) -> str:
    return {"1": "once", "2": "twice"}.get(count, f"{count} times")


def _conditions(analysis: Analysis) -> list[str]:
    cores = {entry.proof.get("cores", "") for entry in _arms(analysis)} - {""}
    drivers = {entry.proof.get("driven by", "") for entry in _arms(analysis)} - {""}
    found = [f"Driven by {driver}; {', '.join(sorted(cores))}." for driver in sorted(drivers)]
    if any(_answers(entry) == "nginx" for entry in _arms(analysis)):
        found.append("nginx kept its answers on tmpfs.")
    return found


def _beside(analysis: Analysis, a: str, b: str, operation: str, payload: str) -> str:
    comparison = compared(analysis, a, b, operation, payload)
    return beside(*comparison, b) if comparison else f"not compared with {b}"


def _at(analysis: Analysis, entry: Entry, operation: str, payload: str) -> Cell | None:
    return cell_of(analysis, entry.name, operation, payload)
