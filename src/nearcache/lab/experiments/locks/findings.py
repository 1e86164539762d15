"""What only `locks` shows: what a call costs on top, who waits, and what is left by the dead."""

from __future__ import annotations

from collections.abc import Callable

from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.experiments.locks.arm import RECOVERY_S
from nearcache.lab.experiments.locks.rules import (
    AFTER_CLEAR,
    AFTER_FLUSH,
    ONE_LOCK,
    SAME_ARGUMENTS,
    SAME_CALL,
    STILL_HELD,
    TWO_LOCKS,
    UNTOLD,
)
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import cell_of, compared, measure_of, point_of
from nearcache.lab.judging.words import beside
from nearcache.lab.results.sample import Cell, Entry, summarize
from nearcache.lab.views import Views
from nearcache.lab.views.waits import Waits, curve, number, outcomes, percent
from nearcache.report.model import Chart, Table
from nearcache.report.units import MICRO, NOTHING, quantity, short, us
from nearcache.report.words import plural

ARTICLES_DECORATOR = "seed-decorator"


def views(analysis: Analysis) -> Views:
    bare = analysis.baseline
    about = analysis.sample.about
    parts: list[Table | Chart] = []
    sentences: list[str] = []
    if {"call", "view"} & about["operations"].keys():
        parts.append(_alone(analysis, bare))
        sentences += _on_top(analysis, bare)
    if "turn" in about["operations"]:
        parts += [_turns(analysis, payload) for payload in about["payloads"]]
    if "wait" in about["operations"]:
        parts += [_waits(analysis, bare, payload) for payload in about["payloads"]]
    if "recover" in about["operations"]:
        parts.append(_crash(analysis, bare))
        sentences += _lost(analysis)
    parts.append(_rules(analysis, bare))
    sentences += [*_shared(analysis), *_emptied(analysis), *_counting(analysis, bare)]
    return Views(sentences=sentences, parts=parts)


def _lockers(analysis: Analysis, bare: str) -> list[Entry]:
    return [entry for entry in analysis.contenders if entry.name != bare]


def _alone(analysis: Analysis, bare: str) -> Table:
    rows = [
        [
            entry.name,
            *_costs(analysis, bare, entry.name, "call"),
            *_costs(analysis, bare, entry.name, "view"),
        ]
        for entry in analysis.contenders
    ]
    return Table(
        title=f"Nobody else there: {MICRO}s per call, and on top of the bare one",
        head=["", "function", "on top", "article's view", "on top", "times"],
        rows=rows,
        note="function: empty. article's view: by Django's WSGI handler, no server, no middleware.",
    )


def _costs(analysis: Analysis, bare: str, name: str, operation: str) -> list[str]:
    own = point_of(analysis, name, operation, NO_PAYLOAD)
    without = point_of(analysis, bare, operation, NO_PAYLOAD)
    if own is None or without is None:
        found = [NOTHING, NOTHING]
    else:
        found = [us(own), NOTHING if name == bare else us(max(0.0, own - without))]
    if operation == "view":
        found.append(NOTHING if own is None or without is None else short(own / without))
    return found


def _turns(analysis: Analysis, payload: str) -> Table:
    cells = [
        (entry, cell)
        for entry in analysis.contenders
        if (cell := cell_of(analysis, entry.name, "turn", payload))
    ]
    cells.sort(key=lambda pair: point_of(analysis, pair[0].name, "turn", payload) or float("inf"))
    waits = Waits.of((cell_of(analysis, e.name, "wait", payload) for e, _ in cells), 50, 99)
    return Table(
        title=f"One lock, {analysis.sample.about['payloads'][payload]}, each holds it for 1 ms",
        head=["", "turns/s", f"wait P50 {waits.suffix}", f"P99 {waits.suffix}",
              f"max {waits.suffix}", "fairness", "nobody inside %", f"CPU {MICRO}s",
              "inside at once"],
        rows=[[entry.name, *_turn(analysis, entry, cell, payload, waits)] for entry, cell in cells],
        note="nobody inside: of the time, though somebody wanted in. CPU: of all contenders, "
        "per turn. inside at once: the most that were seen; more than one voids a lock.",
    )  # fmt: skip


def _turn(analysis: Analysis, entry: Entry, cell: Cell, payload: str, waits: Waits) -> list[str]:
    point = point_of(analysis, entry.name, "turn", payload)
    wait = cell_of(analysis, entry.name, "wait", payload)
    cpu = measure_of(cell, "CPU of a turn")
    return [
        "0" if point is None else short(1e9 / point),
        *(waits.text(wait, rank) for rank in (50, 99, 100)),
        number(measure_of(cell, "fairness")),
        percent(measure_of(cell, "nobody inside")),
        NOTHING if cpu is None else us(cpu),
        number(measure_of(cell, "inside at once")),
    ]


def _waits(analysis: Analysis, bare: str, payload: str) -> Chart:
    cells = [
        (entry, cell)
        for entry in _lockers(analysis, bare)
        if (cell := cell_of(analysis, entry.name, "wait", payload))
    ]
    return curve(f"How long they wait: {analysis.sample.about['payloads'][payload]}", cells)


def _crash(analysis: Analysis, bare: str) -> Table:
    rows = []
    for entry in _lockers(analysis, bare):
        cell = cell_of(analysis, entry.name, "recover", NO_PAYLOAD)
        if cell:
            median = short(summarize(cell).median / 1e6) if cell.count else NOTHING
            worst = short(cell.max / 1e6) if cell.count else NOTHING
            timeout = entry.options.get("timeout_s")
            limit = NOTHING if timeout is None else quantity(timeout * 1e9, "ns")
            rows.append([entry.name, f"{cell.calls}", median, worst, outcomes(cell), limit])
    return Table(
        title="The holder is killed: until the next one is in",
        head=["", "tries", "median ms", "max ms", "otherwise", "timeout"],
        rows=rows,
        text_columns=(0, 4),
        note="Where a lock has a timeout it is what one waits for: another timeout, another time.",
    )


def _rules(analysis: Analysis, bare: str) -> Table:
    names = (SAME_ARGUMENTS, SAME_CALL, AFTER_CLEAR, AFTER_FLUSH)
    return Table(
        title="Which calls share a lock, and what becomes of it when the cache is emptied",
        head=["", *names],
        rows=[
            [entry.name, *(entry.facts.get(name, NOTHING) for name in names)]
            for entry in _lockers(analysis, bare)
        ],
        text_columns=(0, 1, 2, 3, 4),
    )


def _on_top(analysis: Analysis, bare: str) -> list[str]:
    """What the article's decorator adds to its own view, in time and beside the bare view."""
    found = []
    for entry in _lockers(analysis, bare):
        own = point_of(analysis, entry.name, "view", NO_PAYLOAD)
        without = point_of(analysis, bare, "view", NO_PAYLOAD)
        comparison = compared(analysis, entry.name, bare, "view", NO_PAYLOAD)
        if entry.name == ARTICLES_DECORATOR and own and without and comparison:
            added = quantity(max(0.0, own - without), "ns")
            found.append(
                f"The article's view, alone: {entry.name} adds {added} to a request of "
                f"{quantity(without, 'ns')}: {beside(*comparison, bare)}. A view that does "
                "something has the same time added."
            )
    return found


def _lost(analysis: Analysis) -> list[str]:
    never = [
        f"{entry.name} ({plural(cell.calls, 'try', 'tries')})"
        for entry in analysis.contenders
        if (cell := cell_of(analysis, entry.name, "recover", NO_PAYLOAD)) and not cell.count
    ]
    if not never:
        return []
    limit = quantity(RECOVERY_S * 1e9, "ns")
    return [f"After a holder was killed nobody got the lock of {', '.join(never)} within {limit}."]


def _shared(analysis: Analysis) -> list[str]:
    found = []
    for entry in analysis.contenders:
        if entry.facts.get(SAME_ARGUMENTS) == ONE_LOCK:
            found.append(f"{entry.name}: two functions with equal arguments wait for each other.")
        if entry.facts.get(SAME_CALL) == TWO_LOCKS:
            found.append(
                f"{entry.name}: f(1) and f(argument=1) are one call and two locks: "
                "they do not exclude each other."
            )
    return found


def _emptied(analysis: Analysis) -> list[str]:
    found = []
    for what in (AFTER_CLEAR, AFTER_FLUSH):
        kept = _with_fact(analysis, what, lambda fact: fact == STILL_HELD)
        lost = _with_fact(analysis, what, lambda fact: fact != STILL_HELD)
        untold = _with_fact(analysis, what, lambda fact: fact == UNTOLD)
        if lost:
            text = f"A{what[1:]} a second one comes in with {', '.join(lost)}"
            if kept:
                text += f", and not with {', '.join(kept)}"
            if untold:
                text += f"; the holder of {', '.join(untold)} is never told"
            found.append(text + ".")
    return found


def _with_fact(analysis: Analysis, name: str, wanted: Callable[[str], bool]) -> list[str]:
    return [
        entry.name
        for entry in analysis.contenders
        if name in entry.facts and wanted(entry.facts[name])
    ]


def _counting(analysis: Analysis, bare: str) -> list[str]:
    """The control: without a lock they must be seen to meet."""
    for payload, title in analysis.sample.about["payloads"].items():
        cell = cell_of(analysis, bare, "turn", payload)
        most, seen = measure_of(cell, "inside at once"), measure_of(cell, "saw another inside")
        if most is None or seen is None:
            continue
        text = (
            f"Without a lock up to {most:.0f} of {title} were inside at once, and "
            f"{percent(seen)}% of turns saw another: the counting that found never more than one "
            "with a lock can see two."
        )
        return [text]
    return []
