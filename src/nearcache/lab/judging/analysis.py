"""A sample, judged: rows to print, floors, ties, claims and the overall order.

Everything a report says comes from here, so that two reports cannot disagree. What breaks a
rule that voids (rules.py) still has its row, with the reason in ``void``; it is compared
with nothing and has no rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import TypeVar

from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.checks.firm import is_firm
from nearcache.lab.judging.claims import ClaimResult, answer
from nearcache.lab.judging.comparisons import Comparisons
from nearcache.lab.results.sample import Cell, Entry, Summary, summarize
from nearcache.lab.statistics.stats import Effect, Points, Verdict, geometric_mean


@dataclass(frozen=True)
class Row:
    """One candidate in one cell, beside the baseline."""

    entry: Entry
    cell: Cell
    summary: Summary  # of samples, or of the rounds if there are none (its count is 0 then)
    effect: Effect | None  # against the baseline; None for the baseline itself
    verdict: Verdict | None
    cost: float = 0.0  # the median of its rounds, which it is ordered by; less is better
    void: str = ""  # why its numbers are void; grey

    @property
    def p90_is_firm(self) -> bool:
        return is_firm(self.cell, 90)

    @property
    def p99_is_firm(self) -> bool:
        return is_firm(self.cell, 99)


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


class Analysis(Comparisons):
    """All that a report shows of one sample."""

    def rows(self, operation: str, payload: str) -> list[Row]:
        """All measured candidates of one cell, cheapest first; void ones last."""
        return self._rows[operation, payload]

    @cached_property
    def _rows(self) -> dict[tuple[str, str], list[Row]]:
        return {name: self._make_rows(*name) for name in self.cell_names}

    def _make_rows(self, operation: str, payload: str) -> list[Row]:
        found = [
            (entry, cell, self.void(entry.name, operation, payload))
            for entry in self.measured
            if (cell := self.sample.cells.get((entry.name, operation, payload))) and cell.points
        ]
        base = next((c for e, c, void in found if e.name == self.baseline and not void), None)
        compared = [e for e, _, void in found if base and not void and e.name != self.baseline]
        cells = {entry.name: cell for entry, cell, _ in found}
        judged = self.judge_all(
            [(e, self.baseline_entry, cells[e.name].points, base.points) for e in compared]
            if base
            else [],
            operation,
        )
        verdicts = dict(zip([e.name for e in compared], judged, strict=True))
        rows = [
            self._row(entry, cell, void, verdicts.get(entry.name)) for entry, cell, void in found
        ]
        return sorted(rows, key=lambda row: (bool(row.void), row.cost))

    def _row(
        self, entry: Entry, cell: Cell, void: str, judged: tuple[Effect, Verdict] | None
    ) -> Row:
        summary = summarize(cell)
        effect, verdict = judged or (None, None)
        return Row(entry, cell, summary, effect, verdict, _median_point(cell.points), void)

    @cached_property
    def ranking(self) -> list[Rank]:
        """All contenders by what an average operation of the mix costs; none that is void."""
        base = self.mix_points(self.baseline)
        points = {
            entry.name: found
            for entry in self.contenders
            if (found := self.mix_points(entry.name)) and not self._mix_void(entry.name)
        }
        others = [e for e in self.contenders if e.name in points and e.name != self.baseline]
        compared = others if self.baseline in points else []
        judged = self.judge_all([(e, self.baseline_entry, points[e.name], base) for e in compared])
        by_name = dict(zip([e.name for e in compared], judged, strict=True))
        ranks = []
        for entry in self.contenders:
            if entry.name in points:
                effect, verdict = by_name.get(entry.name) or (None, None)
                ranks.append(Rank(entry, _median_point(points[entry.name]), effect, verdict))
        return sorted(ranks, key=lambda rank: rank.cost_ns)

    @cached_property
    def unranked(self) -> list[tuple[Entry, str]]:
        """Who was measured and has no rank although there is an order, and why."""
        if not self.mix_shares:
            return []
        ranked = {rank.entry.name for rank in self.ranking}
        return [
            (entry, self._mix_void(entry.name) or self._mix_gap(entry.name))
            for entry in self.contenders
            if entry.name not in ranked
        ]

    def _mix_gap(self, name: str) -> str:
        """Where a candidate has no time although the mix weighs it, and how calls ended there."""
        for operation, payload in self._mix_cells:
            cell = self.sample.cells.get((name, operation, payload))
            if cell is None or not cell.points:
                ended = ", ".join(cell.outcomes) if cell else ""
                return f"no time for {operation} {payload}".removesuffix(NO_PAYLOAD).strip() + (
                    f": {ended}" if ended else ""
                )
        return "no round in which it did all that the mix weighs"

    def _mix_void(self, name: str) -> str:
        return next(filter(None, (self.void(name, *cell) for cell in self._mix_cells)), "")

    @cached_property
    def _mix_cells(self) -> list[tuple[str, str]]:
        return [name for name in self.cell_names if name[0] in self.mix_shares]

    def mix_points(self, name: str) -> dict[int, dict[int, float]]:
        """Repetition -> round -> ns of an average operation, geometric over payloads."""
        shares = self.mix_shares
        payloads = list(self.sample.about["payloads"])
        complete = {payload: self._mix_row(name, payload) for payload in payloads}
        if not shares or any(len(cells) < len(shares) for cells in complete.values()):
            return {}
        points: dict[int, dict[int, float]] = {}
        some = next(iter(next(iter(complete.values())).values()))
        for repetition, rounds in some.points.items():
            for number in rounds:
                costs = [_mixed(c, shares, repetition, number) for c in complete.values()]
                known = [cost for cost in costs if cost is not None]
                if len(known) == len(costs):
                    points.setdefault(repetition, {})[number] = geometric_mean(known)
        return points

    def _mix_row(self, name: str, payload: str) -> dict[str, Cell]:
        """The cells of one payload that the mix weighs; some operations know no payload."""
        found = {}
        for operation in self.mix_shares:
            free = self.sample.about["operations"][operation]["payload_free"]
            cell = self.sample.cells.get((name, operation, NO_PAYLOAD if free else payload))
            if cell and cell.points:
                found[operation] = cell
        return found

    @cached_property
    def mix_shares(self) -> dict[str, float]:
        """The weights of those operations of the mix that were measured; they sum to 1."""
        mix: dict[str, float] = self.sample.about["mix"]
        asked = {op: share for op, share in mix.items() if op in self.sample.about["operations"]}
        total = sum(asked.values())
        return {operation: share / total for operation, share in asked.items()}

    def tied_with(self, leader: Rank, field: list[Rank]) -> list[Rank]:
        """Those of ``field`` that this run cannot call slower than ``leader``."""
        others = [rank for rank in field if rank is not leader]
        base = self.mix_points(leader.entry.name)
        judged = self.judge_all(
            [(r.entry, leader.entry, self.mix_points(r.entry.name), base) for r in others]
        )
        return [
            rank
            for rank, found in zip(others, judged, strict=True)
            if found is None or found[1] != "slower"
        ]

    def tie_groups(self) -> list[list[Rank]]:
        """The ranking as groups: nobody in one is proven slower than its first.

        Places 1 to n would claim an order within a group that this run has not seen.
        """
        groups: list[list[Rank]] = []
        rest = list(self.ranking)
        while rest:
            tied = self.tied_with(rest[0], rest)
            groups.append(_until_slower(rest, [rank.entry.name for rank in tied]))
            rest = rest[len(groups[-1]) :]
        return groups

    def tied_rows(self, operation: str, payload: str) -> list[list[Row]]:
        """The same for the rows of one cell. Void rows and twins are in no group."""
        rest = [r for r in self.rows(operation, payload) if not r.void and not r.entry.twin_of]
        groups: list[list[Row]] = []
        while rest:
            leader, *others = rest
            judged = self.judge_all(
                [(row.entry, leader.entry, row.cell.points, leader.cell.points) for row in others],
                operation,
            )
            tied = [
                row.entry.name
                for row, found in zip(others, judged, strict=True)
                if found is None or found[1] != "slower"
            ]
            groups.append(_until_slower(rest, tied))
            rest = rest[len(groups[-1]) :]
        return groups

    @cached_property
    def contrasts(self) -> dict[str, list[Contrast]]:
        """The experiment's own questions, as far as both sides were measured; none is void."""
        present = {entry.name: entry for entry in self.contenders}
        asked = [
            (title, present[a], present[b], *self.common_points(a, b))
            for title, pairs in self.sample.about["contrasts"].items()
            for a, b in pairs
            if a in present and b in present
        ]
        judged = self.judge_all([question[1:] for question in asked])
        found: dict[str, list[Contrast]] = {}
        for (title, a, b, _, _), answered in zip(asked, judged, strict=True):
            if answered is not None:
                found.setdefault(title, []).append(Contrast(a, b, *answered))
        return found

    def common_points(self, a: str, b: str) -> tuple[Points, Points]:
        """What to compare two candidates by: the mix, or without one all they both did.

        Without a mix every operation counts alike: the geometric mean over all cells of both.
        """
        if self.mix_shares:
            voids = self._mix_void(a) or self._mix_void(b)
            return ({}, {}) if voids else (self.mix_points(a), self.mix_points(b))
        names = [
            name for name in self.cell_names if not (self.void(a, *name) or self.void(b, *name))
        ]
        cells = [[self.sample.cells.get((who, *name)) for who in (a, b)] for name in names]
        both = [(first, second) for first, second in cells if first and second]
        return _mean_points([first for first, _ in both]), _mean_points([s for _, s in both])

    def claims(self) -> list[ClaimResult]:
        """What the articles published, beside what this run finds."""
        return [answer(self, claim) for claim in self.sample.about["claims"]]


Thing = TypeVar("Thing", Rank, Row)


def _until_slower(rest: list[Thing], tied: Sequence[str]) -> list[Thing]:
    """The first and those right behind it that are tied with it."""
    end = 1
    while end < len(rest) and rest[end].entry.name in tied:
        end += 1
    return rest[:end]


def _median_point(points: Points) -> float:
    return median(value for rounds in points.values() for value in rounds.values())


def _mean_points(cells: Sequence[Cell]) -> dict[int, dict[int, float]]:
    """The geometric mean of several cells, in the rounds that all of them have."""
    if not cells:
        return {}
    found: dict[int, dict[int, float]] = {}
    for repetition, rounds in cells[0].points.items():
        for number in rounds:
            values = [cell.points.get(repetition, {}).get(number) for cell in cells]
            known = [math.log(value) for value in values if value is not None]
            if len(known) == len(cells):
                found.setdefault(repetition, {})[number] = math.exp(fmean(known))
    return found


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
