"""What only ``backends`` shows: latency at fixed rates, and why pairs differ or do not."""

from __future__ import annotations

from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.judging.analysis import Analysis, Row
from nearcache.lab.judging.explain import explanations
from nearcache.lab.load.fixed_rate import PREFIX, SHARES
from nearcache.lab.results.sample import Cell, distribution_of
from nearcache.lab.views import Views
from nearcache.report.model import Chart, Grey, Line, Table
from nearcache.report.units import NOTHING, quantity, scale_for

RANKS = (50, 99)
QUEUE = 1.5  # responses longer than this many calls have waited for their turn


def views(analysis: Analysis) -> Views:
    rows = {share: _rows(analysis, share) for share in SHARES}
    measured = {share: found for share, found in rows.items() if found}
    parts = (_table(analysis, measured), _chart(measured)) if measured else ()
    return Views(sentences=[*_queueing(measured), *explanations(analysis)], parts=parts)


def _rows(analysis: Analysis, share: int) -> list[Row]:
    name = (f"{PREFIX}{share}", NO_PAYLOAD)
    if name not in analysis.cell_names:
        return []
    return [row for row in analysis.rows(*name) if row.cell.count and not row.entry.twin_of]


def _rate(row: Row) -> float:
    return row.cell.measures["offered_rate"].median


def _table(analysis: Analysis, rows: dict[int, list[Row]]) -> Table:
    """P50 and P99 of the response at each rate, and the service time they contain."""
    cells: dict[str, dict[int, Row]] = {}
    for share, found in rows.items():
        for row in found:
            cells.setdefault(row.entry.name, {})[share] = row
    scale = scale_for("ns", [row.cost for found in rows.values() for row in found])
    head = [""]
    for share, found in rows.items():
        head += [f"{share} %\n{quantity(_rate(found[0]), '1/s')}\nP50", "\n\nP99"]
    texts = []
    for name, by_share in cells.items():
        line = [name]
        for share in rows:
            line += _both(by_share.get(share), scale.text)
        texts.append(line)
    payload = next(iter(analysis.sample.about["payloads"].values()), "")
    return Table(
        title=f"get when it is due, {payload}: response time, {scale.suffix}",
        head=head,
        rows=texts,
        note="from the moment a get was due to its answer, at shares of what the slowest of all "
        "can do; grey: too few samples beyond it, or too many that the generator began late",
    )


def _both(row: Row | None, text: object) -> list[str]:
    if row is None:
        return [Grey(NOTHING), Grey(NOTHING)]
    assert callable(text)
    p50, p99 = (text(value) for value in _percentiles(row.cell))
    if row.void:
        return [Grey(p50), Grey(p99)]
    return [p50, p99 if row.p99_is_firm else Grey(p99)]


def _percentiles(cell: Cell) -> list[float]:
    found = distribution_of(cell)
    return [found.percentile(rank) for rank in RANKS]


def _chart(rows: dict[int, list[Row]]) -> Chart:
    points: dict[str, list[tuple[float, float]]] = {}
    families: dict[str, str] = {}
    for found in rows.values():
        for row in found:
            if not row.void:
                points.setdefault(row.entry.name, []).append((_rate(row), row.cost / 1000))
                families[row.entry.name] = row.entry.family
    return Chart(
        title="Response time of a get when it is due, median, by load",
        x_title="gets a second",
        y_title="µs",
        lines=[
            Line(name=name, points=sorted(found), family=families[name])
            for name, found in points.items()
        ],
        y_log=True,
    )


def _queueing(rows: dict[int, list[Row]]) -> list[str]:
    """Who waits longest for its turn at the highest rate, beside the time of the call itself."""
    highest = rows.get(max(rows, default=0), [])
    waits = [
        (row.cost / row.cell.measures["service_time"].median, row)
        for row in highest
        if not row.void and "service_time" in row.cell.measures
    ]
    if not waits:
        return []
    factor, row = max(waits, key=lambda pair: pair[0])
    rate = quantity(_rate(row), "1/s")
    if factor < QUEUE:
        text = f"At the highest rate, {rate}, nobody's calls queue: the median response is at most"
        return [f"{text} {factor:.2f} times the call itself."]
    text = f"At {rate}, calls to {row.entry.name} queue: the median response is"
    return [f"{text} {factor:.1f} times the call itself."]
