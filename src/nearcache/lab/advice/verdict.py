"""What to use, and why: one sentence and a ``CACHES`` block, made from the data alone.

Speed is compared only among caches that do the same job. A cache that every process
keeps for itself cannot replace one that they share, however fast it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from nearcache.lab.advice.admission import types_refusal
from nearcache.lab.advice.unmeasured import not_measured
from nearcache.lab.judging.analysis import Analysis, Rank
from nearcache.lab.judging.comparisons import FEW_PAIRS
from nearcache.lab.judging.ties import least_surprising
from nearcache.lab.judging.words import LOUD_FLOOR, beside
from nearcache.lab.results.sample import Cell
from nearcache.lab.statistics.stats import TOO_NOISY
from nearcache.report.units import us
from nearcache.report.words import plural

KEPT_COPY_RATIO = 1.5
# Rules that void nothing and are still worth a warning where they are broken.
LOUD_RULES = frozenset({"the machine was idle before", "A/A twins set the floor"})


@dataclass(frozen=True)
class Recommendation:
    sentences: list[str]
    caches_block: str  # empty if nothing can be recommended
    warnings: list[str] = field(default_factory=list)
    chosen: str = ""


def recommend(analysis: Analysis) -> Recommendation:
    if analysis.void_run or not _is_of_caches(analysis):
        return Recommendation([], "", warnings_of(analysis))  # why it is void is said first of all
    known = [rank for rank in analysis.ranking if rank.entry.recommendable]
    against = {rank.entry.name: types_refusal(analysis, rank.entry) for rank in known}
    usable = [rank for rank in known if not against[rank.entry.name]]
    shared = [rank for rank in usable if rank.entry.reach != "process"]
    remote = [rank for rank in usable if rank.entry.reach == "network"]
    warnings = warnings_of(analysis)
    if not shared:
        return Recommendation([_nothing(analysis), *_private(usable)], "", warnings)
    every = [rank for rank in analysis.ranking if rank.entry.reach != "process"]
    winner, text = _first(analysis, shared, every, "all processes of this host share")
    sentences = [text, *_kept_copies(analysis, winner)]
    if remote:
        every = [rank for rank in every if rank.entry.reach == "network"]
        far, text = _first(analysis, remote, every, "several hosts can share")
        sentences += [text] if far is not winner else []
    sentences += _private(usable)
    sentences += _put_aside(winner, known, against)
    sentences.append(f"An average operation here is {describe_mix(analysis)}.")
    return Recommendation(sentences, caches_block(winner), warnings, winner.entry.name)


def _is_of_caches(analysis: Analysis) -> bool:
    """Are these aliases of which one could be chosen? Pools and servers have a mix as well."""
    entries = [entry for entry in analysis.sample.candidates.values() if entry.recommendable]
    return bool(analysis.mix_shares) and any(e.recommended or e.family == "yours" for e in entries)


def void_run(analysis: Analysis) -> list[str]:
    """One sentence, if nothing of this run is an answer."""
    if not analysis.void_run:
        return []
    reasons = "; ".join(f"{f.text} ({f.rule})" for f in analysis.void_run)
    return [f"This run answers nothing: {reasons}. Nothing of it is ranked or recommended."]


def opening(analysis: Analysis) -> list[str]:
    """What every report begins with: that the run answers nothing, or what it leaves out."""
    return [*void_run(analysis), *not_measured(analysis.sample)]


def _nothing(analysis: Analysis) -> str:
    """Why nothing is recommended."""
    shared = [(e, why) for e, why in analysis.unranked if e.recommendable and e.reach != "process"]
    if shared:
        reasons = "; ".join(f"{entry.name}: {why}" for entry, why in shared[:3])
        return f"No cache that processes share has a rank ({reasons})."
    return "No cache that processes share was measured, so there is nothing to recommend."


def caches_block(rank: Rank) -> str:
    entry = rank.entry
    if not entry.recommended:
        return f"# Keep the entry {entry.name!r} of your CACHES as it is."
    remarks = [f"# {line}" for line in dict.fromkeys([*entry.needs, entry.note]) if line]
    return "\n".join([*remarks, f"CACHES = {literal({'default': entry.recommended})}"])


def literal(value: Any, indent: str = "") -> str:
    """A Python literal laid out as a formatter would."""
    if not isinstance(value, dict):
        return json.dumps(value) if isinstance(value, str) else repr(value)
    inner = indent + "    "
    lines = [f'{inner}"{key}": {literal(item, inner)},' for key, item in value.items()]
    return "\n".join(["{", *lines, indent + "}"])


def describe_mix(analysis: Analysis) -> str:
    shares = ", ".join(f"{share:.0%} {name}" for name, share in analysis.mix_shares.items())
    count = len(analysis.sample.about["payloads"])
    return f"{shares}; geometric mean over {count} payload{'s' if count > 1 else ''}"


def _first(analysis: Analysis, field: list[Rank], every: list[Rank], job: str) -> tuple[Rank, str]:
    """Who to take for a job, and why. ``every``: also those who may not be recommended."""
    winner, why = least_surprising(analysis, field)
    fastest = field[0]
    # Who is before it is faster.
    tied = analysis.tied_with(fastest, every[every.index(fastest) :])
    verb = "is the only one" if len(field) == 1 else "is fastest"
    if winner is not fastest:
        verb = f"is taken: it cannot be told from the fastest ({fastest.entry.name}), and {why}"
    count = f"Of the {len(field)} measured"
    if len(every) > len(field):
        count = f"Of the {len(field)} that may be recommended, of {len(every)} measured"
    text = (
        f"{count} that {job}, {winner.entry.name} {verb}: "
        f"{us(winner.cost_ns)} µs for an average operation"
    )
    if winner.effect:
        text += f", {beside(winner.effect, winner.verdict, analysis.baseline)}"
    others = [rank for rank in tied if rank is not winner]
    if others:
        names = ", ".join(rank.entry.name for rank in others)
        those = "these" if len(others) > 1 else "this"
        return winner, f"{text}. This run cannot tell {those} from {_it(winner, fastest)}: {names}."
    slower = [rank for rank in field if rank not in (winner, fastest)]
    if slower:
        text += f"; next is {slower[0].entry.name} with {us(slower[0].cost_ns)} µs"
    return winner, text + "."


def _it(winner: Rank, fastest: Rank) -> str:
    return "it" if winner is fastest else "the fastest either"


def _kept_copies(analysis: Analysis, rank: Rank) -> list[str]:
    """Say so when the first read of a value costs much more than the next ones."""
    name = rank.entry.name
    for payload, title in analysis.sample.about["payloads"].items():
        again = analysis.sample.cells.get((name, "get", payload))
        fresh = analysis.sample.cells.get((name, "get_fresh", payload))
        voids = [analysis.void(name, operation, payload) for operation in ("get", "get_fresh")]
        if again and fresh and again.count and fresh.count and not any(voids):
            first_ns, next_ns = median(_points(fresh)), median(_points(again))
            if first_ns > KEPT_COPY_RATIO * next_ns:
                text = (
                    f"{name} keeps what it has decoded: reading a {title} that another process "
                    f"has just written takes {us(first_ns)} µs, reading it again "
                    f"{us(next_ns)} µs."
                )
                return [text]
    return []


def _points(cell: Cell) -> list[float]:
    return [value for rounds in cell.points.values() for value in rounds.values()]


def _put_aside(winner: Rank, known: list[Rank], against: Mapping[str, str]) -> list[str]:
    """Who is faster, and is not recommended for what it does to values."""
    faster = known[: known.index(winner)]
    return [
        f"{rank.entry.name} took {us(rank.cost_ns)} µs, but {against[rank.entry.name]}."
        for rank in faster
        if against[rank.entry.name]
    ]


def _private(usable: list[Rank]) -> list[str]:
    return [
        f"{rank.entry.name} took {us(rank.cost_ns)} µs, but each process has its own: "
        "a value set in one worker is a miss in the others, and memory multiplies."
        for rank in usable
        if rank.entry.reach == "process"
    ]


def warnings_of(analysis: Analysis) -> list[str]:
    about = analysis.sample.about
    found = []
    if about["state"] == "interrupted":
        found.append("The run was interrupted; these are the rounds that were complete.")
    for kind, floor in analysis.floors.items():
        if floor > LOUD_FLOOR:
            found.append(
                f"Noisy: one and the same {'server' if kind == 'server' else 'in-process'} arm "
                f"under two names differed by {_apart(floor)}. Measure again on a quiet "
                "machine before you act on small differences."
            )
    rounds = len(analysis.sample.rounds)
    if 0 < rounds < FEW_PAIRS:
        found.append(
            f"Only {plural(rounds, 'round')} fitted into the time: no interval and no verdict "
            f"with fewer than {FEW_PAIRS}. Give it more time."
        )
    found += [
        f"{finding.text[0].upper()}{finding.text[1:]}."
        for finding in analysis.findings
        if finding.scope == "run" and (finding.voids or finding.rule in LOUD_RULES)
    ]
    return found


def _apart(floor: float) -> str:
    return "more than a factor of 2" if floor > TOO_NOISY else f"{math.expm1(floor):.0%}"
