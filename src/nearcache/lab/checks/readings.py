"""What is checked on the comparisons: how firm are they? None of this voids a number."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nearcache.lab.checks.findings import Outcome, Problem
from nearcache.lab.results.sample import Cell
from nearcache.lab.statistics.stats import LEAST_FLOOR
from nearcache.lab.statistics.steadiness import Course, classify, together

if TYPE_CHECKING:
    from nearcache.lab.judging.analysis import Analysis

UNSETTLED: tuple[Course, ...] = ("slowdown", "no steady state", "inconsistent")


def course_of(cell: Cell, floor: float = LEAST_FLOOR) -> Course:
    """How the first round of a cell went, in all of its processes."""
    return together([classify(course.blocks, floor) for course in cell.courses.values()])


def settles(analysis: Analysis) -> Outcome | None:
    """Flat, warm-up, slowdown, no steady state: which cells never came to rest?"""
    entries = analysis.sample.candidates
    courses = {
        key: course_of(cell, analysis.floor_between(entries[key[0]], operation=key[1]))
        for key, cell in analysis.sample.cells.items()
    }
    known = Counter(course for course in courses.values() if course != "too short")
    if not known:
        return None
    problems = [
        Problem(f"{course}; its distribution says more than its median", *key)
        for key, course in courses.items()
        if course in UNSETTLED
    ]
    return Outcome(
        ", ".join(f"{count} {course}" for course, count in known.most_common()), problems
    )


def chop_decides_nothing(analysis: Analysis) -> Outcome | None:
    """The verdict beside the baseline with 0, 1, 10 samples left out, and with as many as found."""
    looked = 0
    problems = []
    for operation, payload in analysis.cell_names:
        for row in analysis.rows(operation, payload):
            if row.effect is None or not row.cell.chopped:
                continue
            looked += 1
            name = row.entry.name
            if not analysis.chop_may_matter(name, analysis.baseline, operation, payload):
                continue
            found = analysis.chop_sensitivity(name, analysis.baseline, operation, payload)
            if found.changes:
                words = ", ".join(f"{chop}: {word}" for chop, word in found.verdicts.items())
                problems.append(Problem(f"by samples left out, {words}", name, operation, payload))
    if not looked:
        return None
    return Outcome(f"{looked} verdicts are the same with 0, 1 or 10 samples left out", problems)


def second_method(analysis: Analysis) -> Outcome | None:
    """Do signed ranks find the differences that the bootstrap finds?"""
    checked = 0
    problems = []
    for operation, payload in analysis.cell_names:
        for row in analysis.rows(operation, payload):
            effect = row.effect
            if effect is None or effect.check_p is None or row.verdict in (None, "same"):
                continue
            checked += 1
            if row.verdict != "unclear" and effect.check_agrees is False:
                text = (
                    f"called {row.verdict}, but signed ranks do not agree (p {effect.check_p:.2g})"
                )
                problems.append(Problem(text, row.entry.name, operation, payload))
    if not checked:
        return None
    return Outcome(f"signed ranks agree on {checked} differences", problems)
