"""Several runs of one experiment on one machine as one sample: repetitions side by side.

Unlike machines, experiments and versions refuse, because their difference would look like a
result. Of two runs the conditions are those of the worse.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nearcache.errors import LabError
from nearcache.lab.results.machine import IDENTITY
from nearcache.lab.results.sample import Sample


def merge(samples: Iterable[Sample]) -> Sample:
    """One sample of several runs. Refuses what must not be put together."""
    first, *others = samples
    for other in others:
        _refuse_unlike(first.about, other.about)
        offset = 1 + max((r for cell in first.cells.values() for r in cell.points), default=0)
        for key, cell in other.cells.items():
            first.cell(*key).absorb(cell, offset)
        _merge_candidates(first, other)
        first.about["command"] += f"\n{other.about['command']}"
        first.about["seconds"] += other.about["seconds"]
        first.about["servers"] = other.about["servers"] | first.about["servers"]
        _merge_conditions(first.about, other.about)
    return first


def _merge_candidates(ours: Sample, theirs: Sample) -> None:
    for name, entry in theirs.candidates.items():
        known = ours.candidates.setdefault(name, entry)
        if entry.state == "failed":
            # A wrong answer voids all numbers of a candidate, whenever it was given.
            known.state, known.reason = entry.state, entry.reason
        elif known.state not in ("measured", "failed") and entry.state == "measured":
            ours.candidates[name] = entry
    for name, entry in ours.candidates.items():
        if entry.state == "failed":
            ours.drop(name)


def _merge_conditions(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Of two runs the worse: a rule that one of them broke is broken."""
    for name in ("steal_share", "load_before", "swapped_pages"):
        if name in theirs:
            ours[name] = max(ours.get(name, 0), theirs[name])
    if "steal_visits" in ours and "steal_visits" in theirs:
        known = ours["steal_visits"]
        ours["steal_visits"] = known | {
            name: [sum(both) for both in zip(counts, known.get(name, (0, 0, 0)), strict=True)]
            for name, counts in theirs["steal_visits"].items()
        }
    if theirs["state"] != "complete":
        ours["state"] = theirs["state"]
    if "changed" in theirs:
        ours["changed"] = {**ours.get("changed", {}), **theirs["changed"]}
    if "versions_after" in theirs:
        ours["versions_after"] = theirs["versions_after"]
    if "order" in ours and "order" in theirs:
        _merge_orders(ours["order"], theirs["order"])


def _merge_orders(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    ours["visits"] += theirs["visits"]
    ours["digests"] = [*ours["digests"], *theirs["digests"]]
    for name, (place, visits) in theirs["places"].items():
        own_place, own_visits = ours["places"].get(name, (0.0, 0))
        total = own_visits + visits
        mean = (own_place * own_visits + place * visits) / total
        ours["places"] = {**ours["places"], name: (mean, total)}


def _refuse_unlike(a: dict[str, Any], b: dict[str, Any]) -> None:
    if a["experiment"] != b["experiment"]:
        raise LabError(f"these are different experiments: {a['experiment']}, {b['experiment']}")
    for name in IDENTITY:
        if a["machine"][name] != b["machine"][name]:
            raise LabError(
                f"these runs are from unlike machines ({name}: {a['machine'][name]} and "
                f"{b['machine'][name]}); report them one by one"
            )
    both = a["servers"].keys() & b["servers"].keys()  # a run of few candidates starts few
    if a["versions"] != b["versions"] or any(a["servers"][n] != b["servers"][n] for n in both):
        raise LabError("these runs used other versions of libraries or servers; report them alone")
