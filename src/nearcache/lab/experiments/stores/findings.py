"""Stores of JSON: what is promised, what each layer costs, like compared with like."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import cell_of, compared, measure_of, point_of, verdict_of
from nearcache.lab.judging.words import beside, span
from nearcache.lab.results.sample import Entry
from nearcache.lab.statistics.stats import Effect, Verdict
from nearcache.lab.views import Views
from nearcache.lab.workloads.blobs import BLOBS
from nearcache.report.model import Chart, Line, Table
from nearcache.report.units import NOTHING, quantity

FSYNC = "an fsync of 8 kB beside it"
DECODING = "JSON to Python"
ARTICLES_READ_NS = 8.66e6
# What promises the same: how, PostgreSQL, Redis.
LIKE_WITH_LIKE = (
    ("on the disk when the write returns", "pg-prepared", "redis-always"),
    ("the last moments may be lost", "pg-async", "redis-everysec"),
    ("gone after a crash", "pg-unlogged", "redis-memory"),
)
LAYERS = (
    ("model instance", "pg-orm", "pg-values"),
    ("building the query, and the ORM's way to the driver", "pg-values", "pg-text-protocol"),
    ("the statement is parsed and planned anew", "pg-text-protocol", "pg-prepared"),
)


def views(analysis: Analysis) -> Views:
    payload = _middle(analysis)
    parts = [_promises(analysis, payload), _evidence(analysis), _like_with_like(analysis)]
    layers = _layers(analysis, payload)
    if layers.rows:
        parts.append(layers)
    sentences = [
        *_alike(analysis, payload),
        *_fsync(analysis, payload),
        *_first(analysis),
        *_orm_share(analysis, payload),
        *_both(analysis, payload),
    ]
    charts = [_by_size(analysis, operation) for operation in ("read", "write")]
    return Views(sentences=sentences, parts=[*parts, *(c for c in charts if c.lines)])


def _promises(analysis: Analysis, payload: str) -> Table:
    rows = [
        [
            entry.name,
            _time(point_of(analysis, entry.name, "read", payload)),
            _time(point_of(analysis, entry.name, "write", payload)),
            entry.facts.get("durability", NOTHING),
        ]
        for entry in _by_promise(analysis)
    ]
    places = {e.facts["its files lie on"] for e in analysis.contenders if _is_on_disk(e)}
    return Table(
        title=f"What becomes of a write that was acknowledged, {_title(analysis, payload)}",
        head=["", "read", "write", "promise"],
        rows=rows,
        text_columns=(0, 3),
        note=f"Files lie on {', '.join(sorted(places)) or 'no disk'}. Whether that disk keeps its "
        "word when the power goes is not tried.",
    )


def _evidence(analysis: Analysis) -> Table:
    rows = [
        [
            entry.name,
            entry.facts.get("as the server says", NOTHING),
            entry.facts.get("seen", NOTHING),
        ]
        for entry in _by_promise(analysis)
    ]
    return Table(
        title="How one knows: asked and seen on another connection",
        head=["", "as the server says", "seen"],
        rows=rows,
        text_columns=(0, 1, 2),
    )


def _like_with_like(analysis: Analysis) -> Table:
    rows = []
    for _, postgres, redis in LIKE_WITH_LIKE:
        for payload in analysis.sample.about["payloads"]:
            words = [_words(analysis, postgres, redis, op, payload) for op in ("read", "write")]
            if any(word != NOTHING for word in words):
                rows.append([f"{postgres} / {redis}", payload, *words])
    promises = "; ".join(f"{postgres}: {promise}" for promise, postgres, _ in LIKE_WITH_LIKE)
    return Table(
        title="Like with like: how many times Redis' time PostgreSQL takes (95 %)",
        head=["", "", "read", "write"],
        rows=rows,
        text_columns=(0, 1),
        note=f"Both of a pair promise the same. {promises}.",
    )


def _layers(analysis: Analysis, payload: str) -> Table:
    """Differences of medians, from the model instance down to the JSON itself."""
    rows = []
    for what, upper, lower in LAYERS:
        costs = [point_of(analysis, name, "read", payload) for name in (upper, lower)]
        if costs[0] is not None and costs[1] is not None:
            found = compared(analysis, upper, lower, "read", payload)
            sure = found is not None and found[1] in ("faster", "slower")
            # A layer takes no negative time: what is in the noise has no number.
            difference = _time(costs[0] - costs[1]) if sure and costs[0] > costs[1] else NOTHING
            rows.append([what, f"{upper} - {lower}", difference, "" if sure else "in the noise"])
    whole = point_of(analysis, "pg-prepared", "read", payload)
    decoding = _decoding(analysis, "pg-prepared", payload)
    if whole is not None and decoding is not None:
        rows.append(["server, socket and driver", "pg-prepared", _time(whole - decoding), ""])
        rows.append([DECODING, "json.loads", _time(decoding), ""])
    return Table(
        title=f"A read of {_title(analysis, payload)} by the ORM, taken apart",
        head=["", "from", "takes", ""],
        rows=rows,
        text_columns=(0, 1, 3),
    )


def _by_size(analysis: Analysis, operation: str) -> Chart:
    lines = []
    for entry in analysis.contenders:
        points = [
            (float(BLOBS[payload].size_bytes), cost)
            for payload in analysis.sample.about["payloads"]
            if (cost := point_of(analysis, entry.name, operation, payload)) is not None
        ]
        if len(points) > 1:
            microseconds = [(size, cost / 1000) for size, cost in points]
            lines.append(Line(name=entry.name, points=microseconds, family=entry.family))
    return Chart(
        title=f"One {operation} by size of the JSON",
        x_title="bytes of JSON",
        y_title="\N{MICRO SIGN}s",
        lines=lines,
        x_log=True,
        y_log=True,
    )


def _alike(analysis: Analysis, payload: str) -> list[str]:
    sentences = []
    for promise, postgres, redis in LIKE_WITH_LIKE:
        words = []
        for operation in ("read", "write"):
            found = compared(analysis, postgres, redis, operation, payload)
            if found:
                words.append(f"a {operation} by {postgres} {_says(*found, redis)}")
        if words:
            sentences.append(f"Where both promise the same ({promise}): {', '.join(words)}.")
    return sentences


def _fsync(analysis: Analysis, payload: str) -> list[str]:
    fsyncs = [
        value
        for entry in analysis.contenders
        if (value := measure_of(cell_of(analysis, entry.name, "write", payload), FSYNC))
    ]
    durable = [
        f"{name} {quantity(cost, 'ns')}"
        for name in ("pg-prepared", "redis-always", "pg-orm")
        if (cost := point_of(analysis, name, "write", payload)) is not None
    ]
    if not fsyncs or not durable:
        return []
    took = quantity(median(fsyncs), "ns")
    text = f"An fsync of 8 kB takes {took} on this disk, and a durable write waits for one"
    return [f"{text}: {', '.join(durable)}."]


def _first(analysis: Analysis) -> list[str]:
    sentences = []
    smallest = next(iter(analysis.sample.about["payloads"]))
    for name in ("pg-orm", "redis-seed"):
        first = point_of(analysis, name, "first", NO_PAYLOAD)
        kept = point_of(analysis, name, "read", smallest)
        if first is not None and kept is not None:
            sentences.append(
                f"{name} takes {quantity(first, 'ns')} to connect and read, and "
                f"{quantity(kept, 'ns')} to read where it is connected already"
            )
    if not sentences:
        return []
    text = "; ".join(sentences)
    if "pg-orm" in text:
        text += (
            f". Without CONN_MAX_AGE Django connects for every request; the article's median read "
            f"from PostgreSQL was {quantity(ARTICLES_READ_NS, 'ns')}"
        )
    return [f"{text}."]


def _orm_share(analysis: Analysis, payload: str) -> list[str]:
    costs = {
        name: point_of(analysis, name, "read", payload)
        for name in ("pg-orm", "pg-values", "pg-prepared")
    }
    orm, values, driver = costs.values()
    if orm is None or driver is None:
        return []
    if verdict_of(analysis, "pg-orm", "pg-prepared", "read", payload) != "slower":
        return []
    share = 1 - driver / orm
    text = f"A read by the ORM ({_title(analysis, payload)}) takes {quantity(orm, 'ns')}, by a "
    text += f"prepared statement without the ORM {quantity(driver, 'ns')}: {share:.0%} less"
    found = compared(analysis, "pg-orm", "pg-values", "read", payload)
    if values is not None and found:
        text += f"; with a model instance it {_says(*found, 'values_list')}"
    return [f"{text}."]


def _both(analysis: Analysis, payload: str) -> list[str]:
    cell = cell_of(analysis, "both", "read", payload)
    if cell is None or not cell.parts:
        return []
    parts = {name: series.median for name, series in cell.parts.items()}
    said = ", ".join(f"{name} {quantity(cost, 'ns')}" for name, cost in parts.items())
    ratio = parts["PostgreSQL"] / parts["Redis"] if parts.get("Redis") else 0
    text = "Read from both at once, in random order, as the article's application did"
    return [f"{text}: {said} on average, {ratio:.1f} to 1."]


def _says(effect: Effect, verdict: Verdict, other: str) -> str:
    return f"{'took' if verdict == 'slower' else 'was'} {beside(effect, verdict, other)}"


def _words(analysis: Analysis, a: str, b: str, operation: str, payload: str) -> str:
    found = compared(analysis, a, b, operation, payload)
    if found is None:
        return NOTHING
    effect, verdict = found
    if verdict == "same":
        return "same"
    mark = "?" if verdict == "unclear" else ""
    return f"{effect.ratio:.2f}{mark} {span(effect)}"


def _decoding(analysis: Analysis, name: str, payload: str) -> float | None:
    cell = cell_of(analysis, name, "read", payload)
    series = cell.parts.get(DECODING) if cell else None
    return series.median if series else None


def _middle(analysis: Analysis) -> str:
    """The size nearest to the article's: 10 kB where it was measured."""
    names: Sequence[str] = list(analysis.sample.about["payloads"])
    return "10k" if "10k" in names else names[0]


def _title(analysis: Analysis, payload: str) -> str:
    return str(analysis.sample.about["payloads"][payload])


def _by_promise(analysis: Analysis) -> list[Entry]:
    return sorted(analysis.contenders, key=lambda e: (e.facts.get("durability", ""), e.name))


def _is_on_disk(entry: Entry) -> bool:
    return entry.facts.get("its files lie on", "no disk") != "no disk"


def _time(cost_ns: float | None) -> str:
    return NOTHING if cost_ns is None else quantity(cost_ns, "ns")
