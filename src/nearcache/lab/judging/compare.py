"""Two runs of one experiment, made at different times: what became slower, what changed?

Within a run, candidates are compared round by round, because rounds share the state of the
machine. Two runs share nothing, so here the medians are independent:

    ratio      median of all rounds after / the same before
    interval   from the bootstrap interval of either median by MOVER (Zou and Donner,
               Construction of confidence limits about effect measures, 2008), which adds
               their uncertainties and keeps their asymmetry
    floor      the coarser of the two runs' noise floors: their A/A twins
    p-values   from how far that interval reaches, by Student's t of the side with fewer rounds
    verdicts   Holm's over everything that is compared

What differs from one start of the machine to the next is in the interval only if each side
is several runs. Runs of unlike hardware are refused: their difference would look like one
of the code. A kernel, a Python or a library may differ, that is what one compares for; it
is listed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from nearcache.errors import LabError
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.comparisons import FEW_PAIRS
from nearcache.lab.results.sample import Entry, Sample
from nearcache.lab.statistics.bootstrap import Medians
from nearcache.lab.statistics.stats import ALPHA, Effect, Points, Verdict, interval_of, judge_family
from nearcache.lab.statistics.student import p_of_reach

# A difference in these makes another machine of it.
HARDWARE = ("cpu_model", "cpus", "memory_bytes", "architecture")
JITTERS = {"clock_overhead_ns"}  # measured anew by every run
OVERALL = "an average operation"


@dataclass(frozen=True)
class Change:
    """Something about the runs that is not the same."""

    what: str
    before: str
    after: str


@dataclass(frozen=True)
class Pair:
    """One candidate, before and after, in one cell or in an average operation."""

    candidate: str
    operation: str
    payload: str
    unit: str
    before: float
    after: float
    effect: Effect  # how many times the cost before is the cost after
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    """What may be said about two runs."""

    before: Analysis
    after: Analysis
    changes: Sequence[Change]
    overall: Sequence[Pair]  # by the mix, if the experiment has one
    cells: Sequence[Pair]
    not_compared: Sequence[str] = field(default_factory=tuple)  # who or what, and why

    @property
    def pairs(self) -> list[Pair]:
        return [*self.overall, *self.cells]

    def having(self, verdict: Verdict) -> list[Pair]:
        return [pair for pair in self.pairs if pair.verdict == verdict]

    @property
    def is_one_run(self) -> bool:
        """Is a run compared with itself?"""
        return bool(self.before.sample.about == self.after.sample.about)

    @property
    def single_runs(self) -> bool:
        """Is a side only one run, so that nothing is known of what differs between runs?"""
        return any("\n" not in side.sample.about["command"] for side in (self.before, self.after))


def compare(before: Sample, after: Sample, *, unlike_machines: bool = False) -> Comparison:
    """Pair what both runs measured.

    Raises:
        LabError: these are different experiments, unlike machines, or have nothing in common.
    """
    _refuse(before.about, after.about, unlike_machines)
    sides = Analysis(before), Analysis(after)
    found = [*_overall(*sides), *_cells(*sides)]
    if not found:
        void = next((finding for side in sides for finding in side.void_run), None)
        why = f", all is void: {void.text}" if void else ": they have no operation in common"
        raise LabError(f"nothing to compare{why}")
    pairs = _judged(sides, found)
    return Comparison(
        *sides,
        changes=list(changes(before, after)),
        overall=[pair for pair in pairs if pair.operation == OVERALL],
        cells=[pair for pair in pairs if pair.operation != OVERALL],
        not_compared=list(_left_out(*sides)),
    )


def _refuse(a: Mapping[str, Any], b: Mapping[str, Any], unlike_machines: bool) -> None:
    if a["experiment"] != b["experiment"]:
        raise LabError(f"these are different experiments: {a['experiment']}, {b['experiment']}")
    unlike = [name for name in HARDWARE if a["machine"].get(name) != b["machine"].get(name)]
    if unlike and not unlike_machines:
        name = unlike[0]
        raise LabError(
            f"these runs are from unlike machines ({name}: {a['machine'].get(name)} and "
            f"{b['machine'].get(name)}); --unlike-machines compares them all the same"
        )


@dataclass(frozen=True)
class _Found:
    """A pair that is not judged yet."""

    entry: Entry
    operation: str
    payload: str
    unit: str
    before: Points
    after: Points


def _overall(before: Analysis, after: Analysis) -> Iterator[_Found]:
    """By the mix, if both runs weighed the same operations on the same payloads."""
    alike = before.mix_shares == after.mix_shares
    payloads = [list(side.sample.about["payloads"]) for side in (before, after)]
    if not alike or payloads[0] != payloads[1]:
        return
    ranked = {rank.entry.name for rank in before.ranking}
    for rank in after.ranking:
        name = rank.entry.name
        if name in ranked:
            points = before.mix_points(name), after.mix_points(name)
            yield _Found(rank.entry, OVERALL, "", "ns", *points)


def _cells(before: Analysis, after: Analysis) -> Iterator[_Found]:
    for (name, operation, payload), cell in after.sample.cells.items():
        other = before.sample.cells.get((name, operation, payload))
        entry = after.sample.candidates[name]
        if other is None or entry.twin_of or not (cell.points and other.points):
            continue
        if not any(side.void(name, operation, payload) for side in (before, after)):
            yield _Found(entry, operation, payload, cell.unit, other.points, cell.points)


def _judged(sides: tuple[Analysis, Analysis], found: Sequence[_Found]) -> list[Pair]:
    floors = [
        max(side.floor_between(each.entry, operation=each.operation) for side in sides)
        for each in found
    ]
    effects = [
        independent_effect(each.after, each.before, floor)
        for each, floor in zip(found, floors, strict=True)
    ]
    verdicts = judge_family(effects, floors)
    return [
        Pair(
            candidate=each.entry.name,
            operation=each.operation,
            payload=each.payload,
            unit=each.unit,
            before=_level(each.before),
            after=_level(each.after),
            effect=effect,
            verdict=verdict,
        )
        for each, effect, verdict in zip(found, effects, verdicts, strict=True)
    ]


def independent_effect(a: Points, b: Points, floor: float) -> Effect:
    """How many times the cost of b is that of a, where no round of one belongs to one of the other.

    With few rounds the interval is at least as wide as the noise: two may agree by luck.
    """
    (low_a, middle_a, high_a), (low_b, middle_b, high_b) = _interval(a), _interval(b)
    difference = middle_a - middle_b
    down = math.hypot(middle_a - low_a, high_b - middle_b)
    up = math.hypot(high_a - middle_a, middle_b - low_b)
    rounds = min(_count(a), _count(b))
    if rounds < FEW_PAIRS:
        down, up = max(down, floor), max(up, floor)
    return Effect(
        log_ratio=difference,
        log_low=difference - down,
        log_high=difference + up,
        pairs=rounds,
        p=p_of_reach(difference, down if difference > 0 else up, rounds, ALPHA),
    )


def _interval(points: Points) -> tuple[float, float, float]:
    """The median of the logarithms, between the ends of its bootstrap interval."""
    groups = [[math.log(value) for value in rounds.values()] for rounds in points.values()]
    medians = Medians([group for group in groups if group])
    low, high = interval_of(medians, ALPHA)
    return low, medians.seen, high


def _level(points: Points) -> float:
    return median(value for rounds in points.values() for value in rounds.values())


def _count(points: Points) -> int:
    return sum(len(rounds) for rounds in points.values())


def changes(before: Sample, after: Sample) -> Iterator[Change]:
    """Everything about the two runs that could explain a difference, besides the code."""
    a, b = before.about, after.about
    for group in ("machine", "versions", "servers", "plan", "payloads", "mix"):
        yield from _differences(group, a[group], b[group])
    for name in ("baseline", "cpu"):
        yield from _differences("run", {name: a[name]}, {name: b[name]})
    found: dict[Change, list[str]] = {}
    for name, old in before.candidates.items():
        new = after.candidates.get(name)
        for group in ("proof", "options", "recommended") if new else ():
            for change in _differences(group, getattr(old, group), getattr(new, group)):
                found.setdefault(change, []).append(name)
    for change, names in found.items():
        yield replace(change, what=f"{change.what} of {', '.join(names)}")


def _differences(group: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Change]:
    for name in dict.fromkeys([*a, *b]):
        old, new = _lasting(a.get(name, "none")), _lasting(b.get(name, "none"))
        if old != new and name not in JITTERS:
            yield Change(f"{group}: {name}".replace("_", " "), old, new)


def _lasting(value: Any) -> str:
    """Without the directories and ports that are another in each run."""
    return re.sub(r":\d{4,5}\b", ":port", re.sub(r"\S*/nearcache-lab-[^/\s]+/", "", str(value)))


def _left_out(before: Analysis, after: Analysis) -> Iterator[str]:
    """Who is in one run only, and what is void."""
    for side, other, word in ((before, after, "before"), (after, before, "after")):
        names = {entry.name for entry in other.contenders}
        for entry in side.contenders:
            if entry.name not in names:
                yield f"{entry.name}: only {word}"
        by_rule: dict[str, list[str]] = {}
        for finding in side.findings:
            if finding.voids:
                by_rule.setdefault(finding.rule, []).append(str(finding))
        for rule, found in by_rule.items():
            count = f"{len(found)} times, first " if len(found) > 1 else ""
            yield f"void {word}: {rule}: {count}{found[0]}"
