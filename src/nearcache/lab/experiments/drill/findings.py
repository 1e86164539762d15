"""Which backend does what under which fault: a map of the worst, then word by word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import cell_of, measure_of
from nearcache.lab.results.sample import Cell, Entry
from nearcache.lab.views import Views
from nearcache.report.model import Chart, Grid, Table
from nearcache.report.units import NOTHING, quantity

# The worst first, as the head of plan.py explains.
SEVERITY = ("lies", "blocks", "silent", "misleads", "told", "raises", "evicts", "works")
RECOVERY = "recovery"
WORKS = "works"
CONTROL = "none"


def views(analysis: Analysis) -> Views:
    entries = analysis.contenders
    if not entries:
        return Views()
    faults = [fault for fault in _faults(analysis) if fault != CONTROL]
    tables = [_table(analysis, entries, fault) for fault in faults]
    recoveries = _recoveries(analysis, entries)
    sentences = [
        *_control(analysis, entries),
        *_liars(analysis, entries, faults),
        *_blockers(analysis, entries, faults),
        *_slow_to_return(analysis, entries),
        *_honest(analysis, entries, faults),
    ]
    parts: list[Table | Chart | Grid] = [_map(analysis, entries, faults)]
    parts += [table for table in [*tables, recoveries] if table.rows]
    return Views(sentences=sentences, parts=parts)


def class_of(words: str) -> str:
    """How bad an outcome is: one of SEVERITY."""
    for prefix, kind in (("lies", "lies"), ("blocks", "blocks"), ("not within", "blocks")):
        if words.startswith(prefix):
            return kind
    words = words.partition(" (")[0]
    if words.endswith("no such key"):
        return "misleads"
    if words.startswith("raises"):
        return "raises"
    is_told = words.endswith((", logs", ", warns"))
    if words.startswith("drops") or (is_told and words.startswith(("misses", "says"))):
        return "told"
    if words == "silent miss" or (words.startswith("says") and not words.endswith(", gone")):
        return "silent"
    return "evicts" if words.startswith(("evicted", "says False, gone")) else "works"


def worst(words: Iterable[str]) -> str:
    return min(words, key=lambda each: SEVERITY.index(class_of(each)))


def _map(analysis: Analysis, entries: Sequence[Entry], faults: Sequence[str]) -> Grid:
    words = [
        [_worst_class(analysis, entry.name, fault) or NOTHING for fault in faults]
        for entry in entries
    ]
    return Grid(
        title="The worst that happened",
        x_title="fault",
        y_title="backend",
        columns=faults,
        rows=[entry.name for entry in entries],
        words=words,
        note="From bad to good: "
        + ", ".join(SEVERITY)
        + f". {NOTHING}: there is nothing to break.",
    )


def _table(analysis: Analysis, entries: Sequence[Entry], fault: str) -> Table:
    rows = [row for entry in entries for row in _rows(analysis, entry.name, fault)]
    return Table(
        title=f"{fault}: {analysis.sample.about['payloads'][fault]}",
        head=["", "operations", "what happened", "the caller knew after"],
        rows=rows,
        text_columns=(0, 1, 2),
    )


def _rows(analysis: Analysis, name: str, fault: str) -> list[list[str]]:
    """One for everything that happened to this backend, the worst first."""
    found: dict[str, list[tuple[str, Cell]]] = {}
    for operation in analysis.sample.about["operations"]:
        cell = cell_of(analysis, name, operation, fault)
        if operation != RECOVERY and cell is not None:
            found.setdefault(_words_of(cell), []).append((operation, cell))
    rows: list[list[str]] = []
    for words in sorted(found, key=lambda each: SEVERITY.index(class_of(each))):
        waits = [_ns(cell) for _, cell in found[words] if cell.points]
        operations = ", ".join(operation for operation, _ in found[words])
        wait = quantity(max(waits), "ns") if waits else NOTHING
        rows.append([name if not rows else "", operations, words, wait])
    return rows


def _recoveries(analysis: Analysis, entries: Sequence[Entry]) -> Table:
    faults = [
        fault
        for fault in _faults(analysis)
        if any(cell_of(analysis, entry.name, RECOVERY, fault) for entry in entries)
    ]
    rows = []
    for entry in entries:
        cells = [cell_of(analysis, entry.name, RECOVERY, fault) for fault in faults]
        if any(cells):
            rows.append([entry.name, *(_recovery_text(cell) for cell in cells)])
    return Table(
        title="When the server is back: how long until a process that met the fault gets through",
        head=["", *faults],
        rows=rows,
        text_columns=tuple(range(len(faults) + 1)),
    )


def outcomes_of(cell: Cell | None) -> dict[str, int]:
    """How often it ended how; what went as it should included."""
    if cell is None:
        return {}
    return {**cell.outcomes, WORKS: cell.hits} if cell.hits else cell.outcomes


def _words_of(cell: Cell) -> str:
    """The worst outcome, and how often if there were others."""
    outcomes = outcomes_of(cell)
    words, times = worst(outcomes), sum(outcomes.values())
    return words if outcomes[words] == times else f"{words} ({outcomes[words]} of {times})"


def _recovery_text(cell: Cell | None) -> str:
    if cell is None or not cell.points:
        return _words_of(cell) if cell else NOTHING
    failed = measure_of(cell, "failures before")
    text = quantity(_ns(cell), "ns")
    return f"{text}, {failed:.0f} failed before" if failed else f"{text}, at once"


def _ns(cell: Cell) -> float:
    return max(value for rounds in cell.points.values() for value in rounds.values())


def _control(analysis: Analysis, entries: Sequence[Entry]) -> list[str]:
    """Whoever fails without a fault has not been drilled but found broken."""
    broken = [
        f"{entry.name} ({words})"
        for entry in entries
        for words in _words(analysis, entry.name, CONTROL)
        if class_of(words) != "works"
    ]
    return [f"Not in order even without a fault: {', '.join(broken)}."] if broken else []


def _liars(analysis: Analysis, entries: Sequence[Entry], faults: Sequence[str]) -> list[str]:
    titles = analysis.sample.about["payloads"]
    sentences = []
    for entry in entries:
        found = [
            f"{fault} ({', '.join(operations)})"
            for fault in faults
            if (operations := _operations_of(analysis, entry.name, fault, "lies"))
        ]
        if found:
            text = f"{entry.name} lies: it gives no sign that nothing was done under"
            sentences.append(f"{text} {'; '.join(found)}.")
    seen = [f for f in faults if any(_words(analysis, entry.name, f) for entry in entries)]
    if not sentences and seen:
        drilled = ", ".join(titles[fault] for fault in seen)
        sentences.append(f"No backend lied under these faults: {drilled}.")
    return sentences


def _blockers(analysis: Analysis, entries: Sequence[Entry], faults: Sequence[str]) -> list[str]:
    sentences = []
    for fault in faults:
        names = [e.name for e in entries if _operations_of(analysis, e.name, fault, "blocks")]
        if names:
            limit = quantity(1e6 * analysis.sample.about["plan"]["phase_ms"], "ns")
            title = analysis.sample.about["payloads"][fault]
            sentences.append(
                f"{fault} ({title}): more than {limit} without an answer from {', '.join(names)}."
            )
    return sentences


def _slow_to_return(analysis: Analysis, entries: Sequence[Entry]) -> list[str]:
    sentences = []
    for fault in _faults(analysis):
        late = []
        for entry in entries:
            cell = cell_of(analysis, entry.name, RECOVERY, fault)
            if cell and any(class_of(words) == "blocks" for words in cell.outcomes):
                late.append(f"{entry.name} ({_words_of(cell)})")
        if late:
            title = analysis.sample.about["payloads"][fault]
            text = f"After the end of this fault ({title}) these did not come back"
            sentences.append(f"{text}: {', '.join(late)}.")
    return sentences


def _honest(analysis: Analysis, entries: Sequence[Entry], faults: Sequence[str]) -> list[str]:
    """Who neither lied, blocked nor kept silent under any fault."""
    bad = set(SEVERITY[: SEVERITY.index("told")])
    names = [
        entry.name
        for entry in entries
        if (seen := [w for fault in faults for w in _words(analysis, entry.name, fault)])
        and not bad & {class_of(words) for words in seen}
    ]
    return [f"Always told the truth, in time: {', '.join(names)}."] if names else []


def _worst_class(analysis: Analysis, name: str, fault: str) -> str:
    found = _words(analysis, name, fault)
    return class_of(worst(found)) if found else ""


def _operations_of(analysis: Analysis, name: str, fault: str, kind: str) -> list[str]:
    return [
        operation
        for operation in analysis.sample.about["operations"]
        if operation != RECOVERY
        and (cell := cell_of(analysis, name, operation, fault)) is not None
        and any(class_of(words) == kind for words in cell.outcomes)
    ]


def _words(analysis: Analysis, name: str, fault: str) -> list[str]:
    return [
        words
        for operation in analysis.sample.about["operations"]
        if operation != RECOVERY and (cell := cell_of(analysis, name, operation, fault)) is not None
        for words in outcomes_of(cell)
    ]


def _faults(analysis: Analysis) -> list[str]:
    return list(analysis.sample.about["payloads"])
