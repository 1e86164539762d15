"""The rules of the lab, as a table, and the badge that shows which of them a run kept.

Two kinds. *Evidence* is checked on the sample alone, before anything is compared; some of
these rules void what breaks them: it is printed grey, has no rank, and is never recommended.
*Readings* are checked on the comparisons; they say how firm the numbers are, and void nothing.

The numbers are those of the method in docs/lab.md. A rule is not applicable where a run has
nothing it could look at: a closed loop has no generator that could be late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nearcache.lab.checks import evidence, readings
from nearcache.lab.checks.findings import Check, Finding, Outcome
from nearcache.lab.results.sample import Sample

if TYPE_CHECKING:
    from nearcache.lab.judging.analysis import Analysis


@dataclass(frozen=True)
class Rule:
    """Evidence: a check of a sample."""

    number: int
    name: str
    check: Callable[[Sample], Outcome | None]
    voids: bool = False


@dataclass(frozen=True)
class Reading:
    """A check of what was compared."""

    number: int
    name: str
    check: Callable[[Analysis], Outcome | None]
    voids: bool = False


RULES: tuple[Rule, ...] = (
    Rule(1, "every answer is verified", evidence.answers, voids=True),
    Rule(1, "every candidate does what was asked", evidence.candidates, voids=True),
    Rule(2, "keys stored are keys sent", evidence.keys, voids=True),
    Rule(2, "calls attempted are calls recorded", evidence.accounts, voids=True),
    Rule(2, "hits, misses and errors are apart", evidence.kinds_of_answers, voids=True),
    Rule(6, "the generator keeps up", evidence.generator, voids=True),
    Rule(7, "all get the same load", evidence.one_rate, voids=True),
    Rule(8, "the treatment is proven", evidence.same_treatment, voids=True),
    Rule(9, "client and server have cores of their own", evidence.own_cores),
    Rule(10, "rounds are interleaved at random", evidence.order, voids=True),
    Rule(10, "the machine does not drift", evidence.drift, voids=True),
    Rule(11, "A/A twins set the floor", evidence.twins),
    Rule(13, "fresh processes", evidence.processes),
    Rule(13, "no time is stolen", evidence.steal, voids=True),
    Rule(13, "nothing swaps", evidence.swap, voids=True),
    Rule(13, "the machine was idle before", evidence.load_before),
    Rule(13, "the clock of the CPU stands still", evidence.governor),
    Rule(14, "the lab itself costs little", evidence.overhead),
    Rule(18, "percentiles have their samples", evidence.percentiles),
    Rule(22, "versions are the same throughout", evidence.same_versions, voids=True),
    Rule(22, "it can be repeated", evidence.can_be_repeated),
)

READINGS: tuple[Reading, ...] = (
    Reading(12, "it settles", readings.settles),
    Reading(12, "what is left out as warm-up decides nothing", readings.chop_decides_nothing),
    Reading(19, "a second method agrees", readings.second_method),
)


def examine(sample: Sample) -> list[Finding]:
    """Every broken rule of evidence, wherever it is broken."""
    outcomes = ((rule, rule.check(sample)) for rule in RULES)
    return [finding for rule, outcome in outcomes for finding in _findings(rule, outcome)]


def badge(analysis: Analysis) -> list[Check]:
    """All rules in the order of their numbers, each passed, failed or not applicable."""
    checks = [_check(rule, rule.check(analysis.sample)) for rule in RULES]
    checks += [_check(reading, reading.check(analysis)) for reading in READINGS]
    return sorted(checks, key=lambda check: check.number)


def voided(sample: Sample) -> list[Finding]:
    """What ``--strict`` refuses: findings that make numbers void."""
    return [finding for finding in examine(sample) if finding.voids]


def _findings(rule: Rule | Reading, outcome: Outcome | None) -> Sequence[Finding]:
    if outcome is None:
        return ()
    return [
        Finding(rule.name, p.text, rule.voids, p.candidate, p.operation, p.payload)
        for p in outcome.problems
    ]


def _check(rule: Rule | Reading, outcome: Outcome | None) -> Check:
    if outcome is None:
        return Check(rule.number, rule.name, "not applicable", "", rule.voids)
    found = _findings(rule, outcome)
    if not found:
        return Check(rule.number, rule.name, "passed", outcome.evidence, rule.voids)
    more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
    return Check(rule.number, rule.name, "failed", f"{found[0]}{more}", rule.voids)
