"""Beginnings: where a cold start goes, how long until hot, who computed what, shared or not."""

from __future__ import annotations

from collections.abc import Sequence

from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import cell_of, measure_of, point_of
from nearcache.lab.results.sample import Cell, Entry
from nearcache.lab.views import Views
from nearcache.report.model import Table
from nearcache.report.units import NOTHING, quantity, short

PARTS = ("Python", "Django", "backend and client", "first get")
MEMORY = {"memory_small": "1 kB values", "memory_large": "200 kB values"}
PRELOADED = {
    "after_fork": "preloaded, after the fork",
    "after_reads": "after reading",
    "after_writes": "after writing a tenth",
}
STORED_BYTES = 16_000_000
HELPED = 0.5  # requests compute less than this share of what they did without filling
PROCESSES = 4  # a master and three workers


def views(analysis: Analysis) -> Views:
    entries = analysis.contenders
    tables = (
        _cold(analysis, entries),
        _refills(analysis, entries),
        _filling(analysis, entries),
        _memory(analysis, entries),
    )
    sentences = [
        *_cold_sentence(analysis, entries),
        *_first_against_steady(analysis, entries),
        *_private_is_late(analysis, entries),
        *_stampede(analysis, entries),
        *_fill_helps(analysis, entries),
        *_preload(analysis),
    ]
    return Views(sentences=sentences, parts=[table for table in tables if table.rows])


# -- tables ----------------------------------------------------------------------------------------


def _cold(analysis: Analysis, entries: Sequence[Entry]) -> Table:
    rows = []
    for entry in entries:
        cell = cell_of(analysis, entry.name, "cold", NO_PAYLOAD)
        if cell is None:
            continue
        steady = _point(analysis, entry, "steady_get")
        first = _point(analysis, entry, "first_get")
        ratio = first / steady if first and steady else None
        star = "*" if cell_is_empty(analysis, entry) else ""
        rows.append(
            [
                entry.name,
                _ns(_point(analysis, entry, "cold")),
                *(_ns(_part(cell, part)) + (star if part == PARTS[-1] else "") for part in PARTS),
                _ns(_point(analysis, entry, "first_miss")),
                _ns(steady),
                NOTHING if ratio is None else short(ratio),
            ]
        )
    return Table(
        title="A new process, until its first get is answered",
        head=["", "in all", *PARTS, "first miss", "steady get", "first / steady"],
        rows=rows,
        note="* nothing is there yet: a new process of this cache begins empty.",
    )


def _refills(analysis: Analysis, entries: Sequence[Entry]) -> Table:
    rows = []
    for payload in analysis.sample.about["payloads"]:
        for entry in entries:
            cell = cell_of(analysis, entry.name, "computed", payload)
            if cell is None:
                continue
            rows.append(
                [
                    payload,
                    entry.name,
                    *(_hot(analysis, entry, name, payload) for name in ("hot90", "hot99")),
                    *(
                        _count(measure_of(cell, name))
                        for name in ("requests", "keys computed", "computations", "by requests")
                    ),
                    short(point_of(analysis, entry.name, "computed", payload) or 0),
                    _ns(measure_of(cell, "request, P99")),
                ]
            )
    about = analysis.sample.about["payloads"]
    return Table(
        title="From an empty cache, under traffic",
        head=[
            "", "", "90 % hot", "99 % hot", "requests", "keys", "computed", "by requests", "each",
            "P99",
        ],
        rows=rows,
        text_columns=(0, 1),
        note="; ".join(f"{name}: {title}" for name, title in about.items())
        + ". P99: of requests, from when they were due.",
    )  # fmt: skip


def _filling(analysis: Analysis, entries: Sequence[Entry]) -> Table:
    rows = []
    for entry in entries:
        many, one = (_point(analysis, entry, name) for name in ("fill_many", "fill_one"))
        if many and one:
            thousand = quantity(1000 * many, "ns")
            rows.append([entry.name, _ns(many), _ns(one), thousand, short(one / many)])
    return Table(
        title="Filling",
        head=["", "a key of set_many", "a key by set", "1,000 by set_many", "set / set_many"],
        rows=rows,
    )


def _memory(analysis: Analysis, entries: Sequence[Entry]) -> Table:
    rows = []
    for operation, title in MEMORY.items():
        for entry in entries:
            cell = cell_of(analysis, entry.name, operation, NO_PAYLOAD)
            if cell is not None:
                seen = [measure_of(cell, name) for name in PRELOADED]
                own = _point(analysis, entry, operation)
                rows.append([title, entry.name, _bytes(own), *(_bytes(each) for each in seen)])
    return Table(
        title=f"Memory of {PROCESSES} processes for {quantity(STORED_BYTES, 'bytes')} of values",
        head=["", "", "each fills its own", *PRELOADED.values()],
        rows=rows,
        text_columns=(0, 1),
        note="PSS of a master and three workers, less the same with an empty cache; pages that "
        "processes share count once.",
    )


# -- sentences -------------------------------------------------------------------------------------


def _cold_sentence(analysis: Analysis, entries: Sequence[Entry]) -> list[str]:
    costs = {
        entry.name: _point(analysis, entry, "cold") or 0.0
        for entry in entries
        if _point(analysis, entry, "cold")
    }
    if len(costs) < 2:
        return []
    first, last = min(costs, key=costs.__getitem__), max(costs, key=costs.__getitem__)
    cell = cell_of(analysis, last, "cold", NO_PAYLOAD)
    own = sum(_part(cell, part) or 0.0 for part in PARTS[2:]) if cell else 0.0
    span = f"{quantity(costs[first], 'ns')} ({first}) to {quantity(costs[last], 'ns')} ({last}"
    text = f"A new process gets its first answer after {span}, of which backend, client and first"
    return [f"{text} get take {quantity(own, 'ns')})."]


def _first_against_steady(analysis: Analysis, entries: Sequence[Entry]) -> list[str]:
    ratios = {}
    for entry in entries:
        first, steady = (_point(analysis, entry, name) for name in ("first_get", "steady_get"))
        if first and steady and not cell_is_empty(analysis, entry):
            ratios[entry.name] = first / steady
    if not ratios:
        return []
    worst = max(ratios, key=ratios.__getitem__)
    text = f"The first get of a process costs up to {short(ratios[worst])} times a later one"
    return [f"{text} ({worst}): imports and the connection are in it."]


def _private_is_late(analysis: Analysis, entries: Sequence[Entry]) -> list[str]:
    """What a cache in each process costs the backend after a restart."""
    private = [entry for entry in entries if entry.reach == "process"]
    shared = {
        entry.name: cost
        for entry in entries
        if entry.reach != "process"
        and (cost := point_of(analysis, entry.name, "computed", "traffic")) is not None
    }
    sentences = []
    for entry in private:
        own = point_of(analysis, entry.name, "computed", "traffic")
        if own is not None and shared:
            least, most = min(shared.values()), max(shared.values())
            span = (
                short(least) if short(least) == short(most) else f"{short(least)} to {short(most)}"
            )
            sentences.append(
                f"After a restart {entry.name} computes each key {short(own)} times, because every "
                f"process has to; shared caches {span} times."
            )
    return sentences


def _stampede(analysis: Analysis, entries: Sequence[Entry]) -> list[str]:
    sentences = []
    for entry in entries:
        alone = cell_of(analysis, entry.name, "computed", "traffic")
        protected = cell_of(analysis, entry.name, "computed", "protected")
        if alone is None or protected is None:
            continue
        counts = [
            (measure_of(cell, "computations"), measure_of(cell, "keys computed"))
            for cell in (alone, protected)
        ]
        texts = [f"{_count(all_)} computations for {_count(keys)} keys" for all_, keys in counts]
        sentences.append(f"{entry.name}: {texts[0]} by hand, {texts[1]} with get_or_set.")
    return sentences


def _fill_helps(analysis: Analysis, entries: Sequence[Entry]) -> list[str]:
    """What is left to compute for requests when a command has filled the cache before?"""
    hot, cold = [], []
    for entry in entries:
        cells = [cell_of(analysis, entry.name, "computed", name) for name in ("traffic", "fill")]
        alone, left = (measure_of(cell, "by requests") for cell in cells)
        if alone is None or left is None:
            continue
        slow = [quantity(measure_of(cell, "request, P99") or 0.0, "ns") for cell in cells]
        left_over = f"{_count(left)} instead of {_count(alone)} computations"
        text = f"{entry.name} ({left_over}; P99 of requests {slow[1]}, without it {slow[0]})"
        if left < HELPED * alone:
            hot.append(text)
        else:
            cold.append(f"{entry.name} ({_count(left)} instead of {_count(alone)} computations)")
    sentences = []
    if hot:
        sentences.append(
            f"A filling command spares the requests their computing: {', '.join(hot)}."
        )
    if cold:
        text = "It does not reach those who answer requests with"
        sentences.append(f"{text} {', '.join(cold)}: each process has its own cache.")
    return sentences


def _preload(analysis: Analysis) -> list[str]:
    """The question of the article: LocMemCache and --preload, is the memory shared?"""
    sentences = []
    for operation, title in MEMORY.items():
        cell = cell_of(analysis, "locmem", operation, NO_PAYLOAD)
        seen = [measure_of(cell, name) for name in PRELOADED]
        own = point_of(analysis, "locmem", operation, NO_PAYLOAD)
        if own is None or None in seen:
            continue
        forked, read, written = (_bytes(each) for each in seen)
        text = (
            f"LocMemCache with --preload, {title}: {forked} after the fork, {read} when all have "
            f"read, {written} when all have written a tenth; each its own: {_bytes(own)}."
        )
        shared = point_of(analysis, "shm", operation, NO_PAYLOAD)
        text += f" SharedMemoryCache: {_bytes(shared)}." if shared is not None else ""
        sentences.append(text)
    return sentences


# -- numbers ---------------------------------------------------------------------------------------


def cell_is_empty(analysis: Analysis, entry: Entry) -> bool:
    """Did the first get of a new process find nothing, because each process has its own?"""
    cell = cell_of(analysis, entry.name, "first_get", NO_PAYLOAD)
    return cell is not None and bool(cell.outcomes)


def _point(
    analysis: Analysis, entry: Entry, operation: str, payload: str = NO_PAYLOAD
) -> float | None:
    return point_of(analysis, entry.name, operation, payload)


def _part(cell: Cell, name: str) -> float | None:
    series = cell.parts.get(name)
    return series.median if series and series.points else None


def _hot(analysis: Analysis, entry: Entry, operation: str, payload: str) -> str:
    cell = cell_of(analysis, entry.name, operation, payload)
    if cell is None:
        return NOTHING
    late = sum(cell.outcomes.values())
    text = _or_never(_point(analysis, entry, operation, payload))
    return f"{text} ({late} x not)" if late and cell.points else text


def _or_never(value: float | None) -> str:
    return "not" if value is None else quantity(value, "ns")


def _ns(value: float | None) -> str:
    return NOTHING if value is None else quantity(value, "ns")


def _bytes(value: float | None) -> str:
    return NOTHING if value is None else quantity(value, "bytes")


def _count(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"
