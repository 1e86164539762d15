"""A sample, judged: rows to print, floors, ties and the overall order.

Everything a report says comes from here, so that two reports cannot disagree.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property

from nearcache.lab.model import NO_PAYLOAD
from nearcache.lab.sample import Cell, Entry, Sample, Summary, summarize
from nearcache.lab.stats import (
    LEAST_FLOOR,
    Effect,
    Points,
    Verdict,
    effect_of,
    geometric_mean,
    judge,
    noise_floor,
)

# Below these counts a percentile is a guess, and is printed grey.
FEW_PAIRS = 6  # fewer rounds than this give a bootstrap too little to draw from
P90_NEEDS, P99_NEEDS = 100, 1000


@dataclass(frozen=True)
class Row:
    """One candidate in one cell, beside the baseline."""

    entry: Entry
    cell: Cell
    summary: Summary
    effect: Effect | None  # against the baseline; None for the baseline itself
    verdict: Verdict | None

    @property
    def p90_is_firm(self) -> bool:
        return self.summary.count >= P90_NEEDS

    @property
    def p99_is_firm(self) -> bool:
        return self.summary.count >= P99_NEEDS


@dataclass(frozen=True)
class Rank:
    """One candidate in the overall order."""

    entry: Entry
    cost_ns: float  # of an average operation of the mix
    effect: Effect | None  # against the baseline
    verdict: Verdict | None


@dataclass(frozen=True)
class Contrast:
    """Two candidates that differ in one thing: how much longer ``a`` takes than ``b``."""

    a: Entry
    b: Entry
    effect: Effect
    verdict: Verdict


class Analysis:
    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.baseline: str = sample.about["baseline"]
        self.resamples: int = sample.about["plan"]["resamples"]
        self.rng = random.Random(sample.about["seed"])

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
    def cell_names(self) -> list[tuple[str, str]]:
        """(operation, payload), in the order in which they were asked for."""
        about = self.sample.about
        names = [
            (name, payload)
            for name, operation in about["operations"].items()
            for payload in ([NO_PAYLOAD] if operation["payload_free"] else about["payloads"])
        ]
        present = {(cell.operation, cell.payload) for cell in self.sample.cells.values()}
        return [name for name in names if name in present]

    @cached_property
    def floors(self) -> dict[str, float]:
        """Log ratio below which nothing is a finding, for each kind of store."""
        by_kind: dict[str, list[Effect]] = {}
        for twin in self.measured:
            if twin.twin_of:
                by_kind.setdefault(kind_of(twin), []).extend(self._twin_effects(twin))
        return {kind: noise_floor(effects) for kind, effects in by_kind.items()}

    def floor_between(self, *entries: Entry) -> float:
        """The coarser floor of those that are compared; the coarsest if one has no twin."""
        coarsest = max(self.floors.values(), default=LEAST_FLOOR)
        return max(self.floors.get(kind_of(entry), coarsest) for entry in entries)

    def rows(self, operation: str, payload: str) -> list[Row]:
        """All measured candidates of one cell, fastest median first."""
        return self._rows[operation, payload]

    @cached_property
    def _rows(self) -> dict[tuple[str, str], list[Row]]:
        return {name: self._make_rows(*name) for name in self.cell_names}

    def _make_rows(self, operation: str, payload: str) -> list[Row]:
        rows = []
        baseline = self.sample.cells.get((self.baseline, operation, payload))
        base = self.sample.candidates[self.baseline]
        for entry in self.measured:
            cell = self.sample.cells.get((entry.name, operation, payload))
            if cell is None or not cell.count:
                continue
            effect, verdict = None, None
            if baseline is not None and entry.name != self.baseline:
                effect, verdict = self._compare(entry, base, cell.points, baseline.points)
            rows.append(Row(entry, cell, summarize(cell), effect, verdict))
        return sorted(rows, key=lambda row: row.summary.median)

    def _compare(
        self, a: Entry, b: Entry, points_a: Points, points_b: Points
    ) -> tuple[Effect | None, Verdict | None]:
        effect = effect_of(points_a, points_b, self.resamples, self.rng)
        if effect is None:
            return None, None
        floor = self.floor_between(a, b)
        if effect.pairs < FEW_PAIRS:
            effect = effect.widened(floor)
        return effect, judge(effect, floor)

    def _twin_effects(self, twin: Entry) -> list[Effect]:
        effects = []
        for operation, payload in self.cell_names:
            own = self.sample.cells.get((twin.name, operation, payload))
            other = self.sample.cells.get((twin.twin_of or "", operation, payload))
            if own and other:
                # Only the size matters here, so a few draws do.
                effect = effect_of(own.points, other.points, 20, self.rng)
                effects += [effect] if effect else []
        return effects

    @cached_property
    def ranking(self) -> list[Rank]:
        """All contenders by what an average operation of the mix costs."""
        ranks = []
        baseline = self.mix_points(self.baseline)
        for entry in self.contenders:
            points = self.mix_points(entry.name)
            values = [value for rounds in points.values() for value in rounds.values()]
            if not values:
                continue
            effect, verdict = None, None
            if entry.name != self.baseline and baseline:
                base = self.sample.candidates[self.baseline]
                effect, verdict = self._compare(entry, base, points, baseline)
            ranks.append(Rank(entry, sorted(values)[len(values) // 2], effect, verdict))
        return sorted(ranks, key=lambda rank: rank.cost_ns)

    def mix_points(self, name: str) -> dict[int, dict[int, float]]:
        """Repetition -> round -> ns of an average operation, geometric over payloads."""
        shares = self.mix_shares
        payloads = list(self.sample.about["payloads"])
        found = {
            payload: {op: self.sample.cells.get((name, op, payload)) for op in shares}
            for payload in payloads
        }
        complete = {
            payload: {op: cell for op, cell in cells.items() if cell and cell.count}
            for payload, cells in found.items()
        }
        if not shares or any(len(cells) < len(shares) for cells in complete.values()):
            return {}
        points: dict[int, dict[int, float]] = {}
        some = next(iter(next(iter(complete.values())).values()))
        for repetition, rounds in some.points.items():
            for number in rounds:
                costs = [_mixed(c, shares, repetition, number) for c in complete.values()]
                if all(cost is not None for cost in costs):
                    known = [cost for cost in costs if cost is not None]
                    points.setdefault(repetition, {})[number] = geometric_mean(known)
        return points

    @cached_property
    def mix_shares(self) -> dict[str, float]:
        """The weights of those operations of the mix that were measured; they sum to 1."""
        mix: dict[str, float] = self.sample.about["mix"]
        asked = {op: share for op, share in mix.items() if op in self.sample.about["operations"]}
        total = sum(asked.values())
        return {operation: share / total for operation, share in asked.items()}

    def tied_with(self, leader: Rank, field: list[Rank]) -> list[Rank]:
        """Those of ``field`` that this run cannot call slower than ``leader``."""
        base = self.mix_points(leader.entry.name)
        tied = []
        for rank in field:
            if rank is leader:
                continue
            points = self.mix_points(rank.entry.name)
            _, verdict = self._compare(rank.entry, leader.entry, points, base)
            if verdict != "slower":
                tied.append(rank)
        return tied

    @cached_property
    def contrasts(self) -> dict[str, list[Contrast]]:
        """The experiment's own questions, as far as both sides were measured."""
        found: dict[str, list[Contrast]] = {}
        present = {entry.name: entry for entry in self.contenders}
        for title, pairs in self.sample.about["contrasts"].items():
            for a, b in pairs:
                if a in present and b in present:
                    points = self.mix_points(a), self.mix_points(b)
                    effect, verdict = self._compare(present[a], present[b], *points)
                    if effect and verdict:
                        contrast = Contrast(present[a], present[b], effect, verdict)
                        found.setdefault(title, []).append(contrast)
        return found


def kind_of(entry: Entry) -> str:
    """What the noise depends on: is another process asked, or not?"""
    return "server" if entry.server or entry.family == "yours" else "process"


def _mixed(
    cells: dict[str, Cell], shares: dict[str, float], repetition: int, number: int
) -> float | None:
    total = 0.0
    for operation, share in shares.items():
        value = cells[operation].points.get(repetition, {}).get(number)
        if value is None:
            return None
        total += share * value
    return total
