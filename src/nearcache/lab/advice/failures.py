"""How a cache fails, from a sample of the drill, for a recommendation.

A cache that says "stored" while its server is away, and stores nothing, is not recommended.
Of those that are equally fast the one that fails better is taken. All else is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from nearcache.lab.experiments.drill.findings import SEVERITY, class_of, worst
from nearcache.lab.results.sample import Cell, Entry, Sample

# Faults of the server, not of what it is given: nobody chose them.
OF_SERVERS = ("stopped", "frozen", "password")
WEIGHED = ("get", "set")
HARMLESS = ("works", "evicts")


def drilled(drill: Sample, entry: Entry) -> str:
    """The candidate of the drill that is this one or has its backend; empty if none is."""
    if entry.name in drill.candidates:
        return entry.name
    backend = entry.recommended.get("BACKEND")
    same = (
        other.name
        for other in drill.candidates.values()
        # With options it may fail in another way than without.
        if other.recommended.get("BACKEND") == backend and not other.recommended.get("OPTIONS")
    )
    return next(same, "") if backend else ""


def lie(drill: Sample, entry: Entry) -> str:
    """Which untruth it tells about its server, if any."""
    for cell in _cells(drill, drilled(drill, entry)):
        if cell.payload in OF_SERVERS and cell.operation in WEIGHED:
            words = worst(cell.outcomes)
            if class_of(words) == "lies":
                title = drill.about["payloads"].get(cell.payload, cell.payload)
                return f'under the fault "{title}" its {cell.operation} {words}'
    return ""


def badness(drill: Sample | None, entry: Entry) -> int:
    """How bad the worst is that its server can make it do; 0 is best, and unknown is worst."""
    name = drilled(drill, entry) if drill else ""
    cells = [cell for cell in _cells(drill, name) if cell.payload in OF_SERVERS] if drill else []
    if not name or drill is None:
        return len(SEVERITY)
    if not cells:
        return 0  # it has no server
    worst_words = worst(words for cell in cells for words in cell.outcomes)
    return len(SEVERITY) - 1 - SEVERITY.index(class_of(worst_words))


def failures(drill: Sample, entry: Entry) -> list[str]:
    """What it does under each fault that it does not just survive: one sentence each."""
    by_fault: dict[str, dict[str, list[str]]] = {}
    for cell in _cells(drill, drilled(drill, entry)):
        words = worst(cell.outcomes)
        if class_of(words) not in HARMLESS and cell.payload != "none":
            by_fault.setdefault(cell.payload, {}).setdefault(words, []).append(cell.operation)
    titles = drill.about["payloads"]
    return [
        f"{titles.get(fault, fault)}: "
        + "; ".join(f"{', '.join(operations)} {words}" for words, operations in ends.items())
        + "."
        for fault, ends in by_fault.items()
    ]


def _cells(drill: Sample, name: str) -> Iterator[Cell]:
    return (c for c in drill.cells.values() if c.candidate == name and c.outcomes)
