"""What two candidates may be compared by, and what the comparison says.

The floor of noise, the verdicts of a family, and what is void, so that no report compares
what broke a rule. analysis.py makes tables and orders of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.checks.findings import Finding
from nearcache.lab.checks.rules import examine
from nearcache.lab.results.sample import Cell, Entry, Sample, kind_of
from nearcache.lab.statistics.stats import (
    LEAST_FLOOR,
    LEAST_PAIRS,
    Effect,
    Points,
    Shift,
    Verdict,
    effect_of,
    floor_of,
    judge,
    judge_family,
    paired_log_ratios,
    shift_of,
)

FEW_PAIRS = LEAST_PAIRS
# Of a twin in one operation, before it has a floor of its own. Two processes are one
# difference between processes: an interval that draws from them does not know how far they vary.
FLOOR_ROUNDS, FLOOR_PROCESSES = 12, 3
AUTO = "auto"  # the chop that was found, beside those that are always the same
CHOP_MATTERS = LEAST_FLOOR  # a ratio that moves by less turns no verdict worth the name


@dataclass(frozen=True)
class ChopSensitivity:
    """What a comparison would have said with another number of samples left out."""

    effects: Mapping[str, Effect]  # "0", "1", "10" and "auto"
    verdicts: Mapping[str, Verdict]

    @property
    def changes(self) -> bool:
        return len(set(self.verdicts.values())) > 1


class Comparisons:
    """A sample, and what its rules allow to be said about two of its candidates."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.baseline: str = sample.about["baseline"]

    @property
    def measured(self) -> list[Entry]:
        return [entry for entry in self.sample.candidates.values() if entry.state == "measured"]

    @property
    def contenders(self) -> list[Entry]:
        return [entry for entry in self.measured if entry.twin_of is None]

    @property
    def absent(self) -> list[Entry]:
        """What is not in the tables, each with its reason."""
        return [e for e in self.sample.candidates.values() if e.state in ("missing", "failed")]

    @cached_property
    def findings(self) -> list[Finding]:
        """Every broken rule of evidence."""
        return examine(self.sample)

    @cached_property
    def void_run(self) -> list[Finding]:
        """Why nothing of this run is ranked; empty if it is."""
        return [finding for finding in self.findings if finding.voids and finding.scope == "run"]

    def void(self, candidate: str, operation: str = "", payload: str = "") -> str:
        """Why the numbers of a candidate, or of one of its cells, are void; empty if not."""
        concerned = (
            f for f in self._voiding.get(candidate, ()) if f.concerns(candidate, operation, payload)
        )
        return next((f"{f.text} ({f.rule})" for f in [*self.void_run, *concerned]), "")

    @cached_property
    def _voiding(self) -> dict[str, list[Finding]]:
        found: dict[str, list[Finding]] = {}
        for finding in self.findings:
            if finding.voids and finding.candidate:
                found.setdefault(finding.candidate, []).append(finding)
        return found

    @cached_property
    def cell_names(self) -> list[tuple[str, str]]:
        """(operation, payload) of all that was done, in the order in which it was asked for.

        Some have no rows: nobody got an answer there, and :meth:`outcomes` says how it ended.
        """
        about = self.sample.about
        names = [
            (name, payload)
            for name, operation in about["operations"].items()
            for payload in ([NO_PAYLOAD] if operation["payload_free"] else about["payloads"])
        ]
        present = {key[1:] for key, cell in self.sample.cells.items() if cell.has_anything}
        return [name for name in names if name in present]

    def outcomes(self, operation: str, payload: str) -> list[tuple[Entry, Cell]]:
        """Who ended otherwise, in one operation: ``Cell.outcomes`` says how, and how often."""
        pairs = (
            (entry, self.sample.cells.get((entry.name, operation, payload)))
            for entry in self.measured
        )
        return [(entry, cell) for entry, cell in pairs if cell is not None and cell.outcomes]

    @cached_property
    def floors(self) -> dict[str, float]:
        """Log ratio below which nothing is a finding, for each kind of store; not of bytes."""
        by_kind: dict[str, list[float]] = {}
        timed = [name for name in self.sample.about["operations"] if not self._is_bytes(name)]
        for twin in self.measured:
            if twin.twin_of:
                by_kind.setdefault(kind_of(twin), []).extend(self._twin_ratios(twin, timed))
        return {kind: floor_of(ratios) for kind, ratios in by_kind.items()}

    @cached_property
    def operation_floors(self) -> dict[tuple[str, str], float]:
        """The same for one operation of a kind of store, where its twin has rounds enough.

        It is not how far the two were apart, which is little by luck now and then, but the far
        end of that difference's interval; of the payloads the worst.
        """
        found: dict[tuple[str, str], list[Effect | None]] = {}
        for twin in self.measured:
            for name, operation, payload in self.sample.cells:
                if twin.twin_of and name == twin.name:
                    effect = self._twin_effect(twin, operation, payload)
                    found.setdefault((kind_of(twin), operation), []).append(effect)
        return self._floors_of_bytes() | {
            where: max(LEAST_FLOOR, *(_far_end(effect) for effect in effects if effect))
            for where, effects in found.items()
            if all(effects)
        }

    def _floors_of_bytes(self) -> dict[tuple[str, str], float]:
        """Noise of the clock is none of a size: how far apart the twins' own sizes were."""
        found: dict[tuple[str, str], list[float]] = {}
        for twin in self.measured:
            for operation in filter(self._is_bytes, self.sample.about["operations"]):
                if twin.twin_of:
                    known = found.setdefault((kind_of(twin), operation), [])
                    known += self._twin_ratios(twin, [operation])
        return {where: floor_of(ratios) for where, ratios in found.items() if ratios}

    def floor_between(self, *entries: Entry, operation: str = "") -> float:
        """The coarser floor of those that are compared; the coarsest if one has no twin."""
        return max(self._floor(kind_of(entry), operation) for entry in entries)

    def _floor(self, kind: str, operation: str) -> float:
        if kind not in self.floors:
            return max(self.floors.values(), default=LEAST_FLOOR)
        return self.operation_floors.get((kind, operation), self.floors[kind])

    @property
    def baseline_entry(self) -> Entry:
        return self.sample.candidates[self.baseline]

    def judge_all(
        self, family: Sequence[tuple[Entry, Entry, Points, Points]], operation: str = ""
    ) -> list[tuple[Effect, Verdict] | None]:
        """Comparisons that are read together: Holm's p decides what is called a difference.

        Without an ``operation`` they are of several, and the floor is that of all.
        """
        floors = [self.floor_between(a, b, operation=operation) for a, b, _, _ in family]
        effects = [
            _effect(of_a, of_b, floor)
            for (_, _, of_a, of_b), floor in zip(family, floors, strict=True)
        ]
        known = [i for i, effect in enumerate(effects) if effect is not None]
        verdicts = judge_family(
            [effect for effect in effects if effect is not None], [floors[i] for i in known]
        )
        by_place = dict(zip(known, verdicts, strict=True))
        return [
            (effect, by_place[i]) if effect is not None else None
            for i, effect in enumerate(effects)
        ]

    def _twin_effect(self, twin: Entry, operation: str, payload: str) -> Effect | None:
        """How far apart two names were in one cell; None if too few rounds say so."""
        own = self.sample.cells[twin.name, operation, payload]
        other = self.sample.cells.get((twin.twin_of or "", operation, payload))
        if other is None or len(own.points.keys() & other.points.keys()) < FLOOR_PROCESSES:
            return None
        effect = effect_of(own.points, other.points)
        return effect if effect and effect.pairs >= FLOOR_ROUNDS else None

    def _is_bytes(self, operation: str) -> bool:
        return bool(self.sample.about["operations"][operation]["unit"] == "bytes")

    def _twin_ratios(self, twin: Entry, operations: Sequence[str]) -> list[float]:
        """How far apart the two names of one configuration were, cell by cell."""
        ratios = []
        for operation, payload in self.cell_names:
            if operation not in operations:
                continue
            own = self.sample.cells.get((twin.name, operation, payload))
            other = self.sample.cells.get((twin.twin_of or "", operation, payload))
            if own and other:
                found = [r for group in paired_log_ratios(own.points, other.points) for r in group]
                ratios += [median(found)] if found else []
        return ratios

    def judged(
        self, a: Entry, b: Entry, of_a: Points, of_b: Points
    ) -> tuple[Effect, Verdict] | None:
        """One comparison that stands alone; None if no round has both."""
        return self.judge_all([(a, b, of_a, of_b)])[0]

    def compare(self, a: str, b: str, operation: str, payload: str) -> Effect | None:
        """How many times the cost of b is that of a; None if either is missing or void."""
        cells = [self.sample.cells.get((name, operation, payload)) for name in (a, b)]
        if any(self.void(name, operation, payload) for name in (a, b)) or not all(cells):
            return None
        entries = [self.sample.candidates[name] for name in (a, b)]
        first, second = (cell.points for cell in cells if cell)
        return _effect(first, second, self.floor_between(*entries, operation=operation))

    def shift(self, a: str, b: str, operation: str, payload: str) -> Shift | None:
        """By how much a costs more than b, in the operation's unit (Hodges-Lehmann)."""
        cells = [self.sample.cells.get((name, operation, payload)) for name in (a, b)]
        first, second = (cell.points if cell else {} for cell in cells)
        return shift_of(first, second)

    def chop_sensitivity(self, a: str, b: str, operation: str, payload: str) -> ChopSensitivity:
        """The comparison of a and b with 0, 1, 10 samples of each round left out, and "auto"."""
        entries = self.sample.candidates[a], self.sample.candidates[b]
        effects: dict[str, Effect] = {}
        floor = self.floor_between(*entries, operation=operation)
        for chop, (of_a, of_b) in self._chopped(a, b, operation, payload).items():
            effect = _effect(of_a, of_b, floor)
            if effect is not None:
                effects[chop] = effect
        return ChopSensitivity(effects, {chop: judge(e, floor) for chop, e in effects.items()})

    def chop_may_matter(self, a: str, b: str, operation: str, payload: str) -> bool:
        """A quick look: does the ratio move at all with what is left out?"""
        ratios = []
        for of_a, of_b in self._chopped(a, b, operation, payload).values():
            found = [ratio for group in paired_log_ratios(of_a, of_b) for ratio in group]
            ratios += [median(found)] if found else []
        return bool(ratios) and max(ratios) - min(ratios) > CHOP_MATTERS

    def _chopped(
        self, a: str, b: str, operation: str, payload: str
    ) -> dict[str, tuple[Points, Points]]:
        first, second = (self.sample.cells.get((name, operation, payload)) for name in (a, b))
        if first is None or second is None:
            return {}
        both = [chop for chop in first.chopped if chop in second.chopped]
        found: dict[str, tuple[Points, Points]] = {
            chop: (first.chopped[chop], second.chopped[chop]) for chop in both
        }
        return {**found, AUTO: (first.points, second.points)}


def _effect(a: Points, b: Points, floor: float) -> Effect | None:
    effect = effect_of(a, b)
    return effect.widened(floor) if effect and effect.pairs < FEW_PAIRS else effect


def _far_end(effect: Effect) -> float:
    return max(abs(effect.log_low), abs(effect.log_high))
