"""What only `pools` shows: who was served, how long they waited, and what they waited in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import cell_of, compared, measure_of, point_of
from nearcache.lab.judging.words import beside
from nearcache.lab.results.sample import Cell, Entry
from nearcache.lab.views import Views
from nearcache.lab.views.waits import Waits, curve, number, outcomes, percent
from nearcache.report.model import Chart, Line, Table
from nearcache.report.units import NOTHING, Scale, rate, scale_for, short

STYLES = ("greenlets", "threads", "tasks")
MANY = 0.5  # of the contenders without an answer: worth a sentence
SIZES = (1, 10, 100)


def views(analysis: Analysis) -> Views:
    payloads = list(analysis.sample.about["payloads"])
    parts: list[Table | Chart] = []
    for payload in payloads:
        parts.append(_served(analysis, payload))
        if analysis.sample.about["operations"].get("wait"):
            parts.append(_waits(analysis, payload))
    parts += [_ends(analysis, payloads), _waited_in(analysis)]
    if len(payloads) > 1:
        parts.append(_growth(analysis, payloads))
    sentences = [
        *_queues(analysis, payloads[-1]),
        *_without(analysis, payloads[-1]),
        *_leaders(analysis, payloads[-1]),
        *_shortfalls(analysis),
    ]
    return Views(sentences=sentences, parts=parts)


def _served(analysis: Analysis, payload: str) -> Table:
    served = [
        (entry, cell)
        for entry in _by_rate(analysis, payload)
        if (cell := cell_of(analysis, entry.name, "get", payload))
    ]
    names = [entry.name for entry, _ in served]
    waits = Waits.of((cell_of(analysis, name, "wait", payload) for name in names), 50, 99)
    cpu = {entry.name: measure_of(cell, "client CPU") for entry, cell in served}
    cpu_scale = scale_for("ns", (each for each in cpu.values() if each is not None))
    head = ["", "answers/s", "answered %", "without any %", "fairness", "of at most"]
    head += [f"wait P50 {waits.suffix}", f"P99 {waits.suffix}"]
    head += ["connections", f"CPU {cpu_scale.suffix}"]
    return Table(
        title=f"Who is served: {analysis.sample.about['payloads'][payload]}",
        head=head,
        rows=[
            [
                entry.name,
                *_row(analysis, entry, cell, payload, waits),
                _scaled(cpu_scale, cpu[entry.name]),
            ]
            for entry, cell in served
        ],
        note=(
            "answered: of the attempts that ended. without any: contenders that got no answer at "
            "all. fairness: Jain's index, and what it could be at most for so many answers. "
            "wait: all attempts, also those that failed or had not ended. CPU: of the client, "
            "per answer."
        ),
    )


def _row(analysis: Analysis, entry: Entry, cell: Cell, payload: str, waits: Waits) -> Sequence[str]:
    point = point_of(analysis, entry.name, "get", payload)
    wait = cell_of(analysis, entry.name, "wait", payload)
    return [
        "0" if point is None else short(1e9 / point),
        percent(measure_of(cell, "answered")),
        percent(measure_of(cell, "went without")),
        number(measure_of(cell, "fairness")),
        number(measure_of(cell, "fairest possible")),
        waits.text(wait, 50),
        waits.text(wait, 99),
        number(measure_of(cell, "connections")),
    ]


def _scaled(scale: Scale, value: float | None) -> str:
    return NOTHING if value is None else scale.text(value)


def _waits(analysis: Analysis, payload: str) -> Chart:
    cells = [
        (entry, cell)
        for entry in analysis.contenders
        if (cell := cell_of(analysis, entry.name, "wait", payload))
    ]
    title = f"How long an attempt takes: {analysis.sample.about['payloads'][payload]}"
    note = "An attempt that had not ended at the end of the round counts with the time it had."
    return curve(title, cells, note)


def _ends(analysis: Analysis, payloads: Sequence[str]) -> Table:
    rows = []
    for entry in analysis.contenders:
        for payload in payloads:
            cell = cell_of(analysis, entry.name, "get", payload)
            if cell:
                rows.append([entry.name, payload, f"{cell.hits:,}", outcomes(cell)])
    return Table(
        title="How attempts ended, all rounds together",
        head=["", "contenders", "answered", "otherwise"],
        rows=rows,
        text_columns=(0, 3),
    )


def _waited_in(analysis: Analysis) -> Table:
    """Read from the live pools."""
    rows = [
        [entry.name, *(entry.proof.get(name, NOTHING) for name in ("pool", "queue", "patch_all"))]
        for entry in analysis.contenders
    ]
    return Table(
        title="What contenders waited in, read from the live pool",
        head=["", "pool", "queue", "gevent"],
        rows=rows,
        text_columns=(0, 1, 2, 3),
        note="hiredis: " + _hiredis(analysis.contenders),
    )


def _hiredis(entries: Sequence[Entry]) -> str:
    by_parser: dict[str, list[str]] = {}
    for entry in entries:
        by_parser.setdefault(entry.proof.get("parser", "unknown parser"), []).append(entry.name)
    if len(by_parser) == 1:
        return f"all replies are parsed by {next(iter(by_parser))}."
    return "; ".join(f"{parser} for {', '.join(names)}" for parser, names in by_parser.items())


def _growth(analysis: Analysis, payloads: Sequence[str]) -> Chart:
    lines = []
    for entry in analysis.contenders:
        costs = {p: point_of(analysis, entry.name, "get", p) for p in payloads}
        points = [(float(p), 1e9 / cost) for p, cost in costs.items() if cost]
        lines.append(Line(name=entry.name, family=entry.family, points=points))
    return Chart(
        title="Answers per second as the crowd grows",
        x_title="contenders",
        y_title="answers/s",
        x_log=True,
        y_log=True,
        lines=lines,
    )


def _by_rate(analysis: Analysis, payload: str) -> list[Entry]:
    def cost(entry: Entry) -> float:
        point = point_of(analysis, entry.name, "get", payload)
        return float("inf") if point is None else point

    return sorted(analysis.contenders, key=cost)


def _queues(analysis: Analysis, payload: str) -> list[str]:
    """What patch_all() left, and what the article's change is worth: both from this run."""
    found: list[str] = []
    entries = analysis.sample.candidates
    for size in SIZES:
        patched = entries.get(f"greenlets-patched-{size}")
        if patched and patched.state == "measured" and not found:
            found.append(_patched(patched.proof))
    for size in SIZES:
        slow, fast = f"greenlets-stdlib-{size}", f"greenlets-gevent-{size}"
        if slow in entries and fast in entries:
            comparison = compared(analysis, slow, fast, "get", payload)
            if comparison:
                says = beside(*comparison, "gevent's")
                found.append(
                    f"{_connections(size)}, {payload} greenlets, patch_all(queue=False): "
                    f"time per answer of the standard library's queue: {says}."
                )
    return found


def _patched(proof: Mapping[str, str]) -> str:
    queue = proof.get("queue", "no queue")
    text = f"patch_all() of gevent {proof.get('gevent', '')} left the pool with a {queue}"
    if queue.startswith("gevent"):
        return f"{text}: passing queue_class=gevent.queue.LifoQueue changes nothing any more."
    return f"{text}: passing queue_class=gevent.queue.LifoQueue still changes the queue."


def _connections(size: int) -> str:
    return "1 connection" if size == 1 else f"{size} connections"


def _without(analysis: Analysis, payload: str) -> list[str]:
    shares = {}
    for entry in analysis.contenders:
        share = measure_of(cell_of(analysis, entry.name, "get", payload), "went without")
        if share is not None:
            shares[entry.name] = share
    starving = [name for name, share in shares.items() if share >= MANY]
    if not starving:
        return []
    least = min(shares[name] for name in starving)
    which = "every one measured" if len(starving) == len(shares) else ", ".join(starving)
    return [
        f"Of {payload} contenders, {percent(least)}% or more got no answer at all with {which}."
    ]


def _leaders(analysis: Analysis, payload: str) -> list[str]:
    """The most answers of each style, and how many times those of the next."""
    found = []
    for style in STYLES:
        field = [
            (entry, point)
            for entry in _by_rate(analysis, payload)
            if entry.name.startswith(style)
            and (point := point_of(analysis, entry.name, "get", payload)) is not None
        ]
        if len(field) < 2:
            continue
        (first, best), (second, _) = field[:2]
        comparison = compared(analysis, first.name, second.name, "get", payload)
        says = beside(*comparison, second.name) if comparison else ""
        found.append(f"{style}: most answers with {first.name}, {rate(best)}, {says}.")
    return found


def _shortfalls(analysis: Analysis) -> list[str]:
    said: dict[str, list[str]] = {}
    for entry in analysis.contenders:
        for ordered, present in entry.facts.items():
            said.setdefault(f"{ordered}: {present}", []).append(entry.name)
    return [f"{', '.join(names)}, {text}." for text, names in said.items()]
