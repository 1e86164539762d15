"""What was ordered and could not be measured: said first in every report, and by ``--strict``.

A line in a table of those that are missing is easily passed over. Where it is a whole family,
S3 for example, its reader learns first what this run does not answer, and what to install.
What nobody ordered is not missed here, nor what an interrupted run had no time for.
"""

from __future__ import annotations

from nearcache.lab.results.sample import Entry, Sample

ABSENT = ("missing", "failed")
MOST_REASONS = 2


def not_measured(sample: Sample) -> list[str]:
    """One sentence for each family of which nothing was measured."""
    if not sample.has_numbers:
        return []
    needed = _needed(sample)
    return [
        f"Not measured: {family} ({_why(entries)})."
        + (" Without it this run does not answer its question." if family in needed else "")
        for family, entries in _families(sample).items()
        if all(entry.state in ABSENT for entry in entries)
    ]


def unanswered(sample: Sample) -> str:
    """Why the question of this run has no answer at all; empty if it has one."""
    families = _families(sample)
    for family in _needed(sample):
        entries = families.get(family, [])
        if entries and all(entry.state in ABSENT for entry in entries):
            return f"no {family} was measured: {_why(entries)}"
    ordered = [entry for entries in families.values() for entry in entries]
    absent = [entry for entry in ordered if entry.state in ABSENT]
    if len(ordered) > 1 and len(ordered) - len(absent) < 2:
        return f"fewer than two of {len(ordered)} candidates were measured: {_why(absent)}"
    return ""


def _families(sample: Sample) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in sample.candidates.values():
        if entry.twin_of is None:
            found.setdefault(entry.family, []).append(entry)
    return found


def _needed(sample: Sample) -> tuple[str, ...]:
    from nearcache.lab.experiments.registry import EXPERIMENTS

    known = EXPERIMENTS.get(sample.about["experiment"])
    return tuple(known.compares) if known else ()


def _why(absent: list[Entry]) -> str:
    """The reasons, and what to install."""
    reasons = list(dict.fromkeys(map(_reason, absent)))
    if len(reasons) > MOST_REASONS:
        reasons[MOST_REASONS:] = ["and more, see below"]
    return "; ".join(reasons)


def _reason(entry: Entry) -> str:
    """Some end with what to install already."""
    is_said = not entry.install or entry.reason.endswith(entry.install)
    return entry.reason if is_said else f"{entry.reason}; {entry.install}"
