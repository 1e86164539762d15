"""What an article published, and whether it still holds here, today.

A ratio measured years ago on another machine is not refuted by another number, only by
another answer. So a claim *holds* as long as today's interval comes within a quarter of it.
That there is no difference, today or then, needs more than not having seen one: an interval
that has no room for another answer. Else the word is *unclear*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.statistics.stats import LEAST_FLOOR, Effect, judge

if TYPE_CHECKING:
    from nearcache.lab.judging.analysis import Analysis

Word = Literal["holds", "smaller", "larger", "same", "reversed", "unclear", "not measured"]

NEAR = math.log(1.25)
WIDE = 2 * NEAR  # to either side; an interval beyond that says too little


@dataclass(frozen=True)
class ClaimResult:
    """One headline of an article beside today's number."""

    article: str
    text: str
    published: float  # how many times the cost of ``fast`` the article gave ``slow``
    slow: str
    fast: str
    operation: str
    payload: str
    effect: Effect | None  # today's: ratio, low, high
    word: Word
    why: str  # what is known about that word; why it was not measured
    asked: bool = True  # was all of it part of this run?


def answer(analysis: Analysis, claim: Mapping[str, Any]) -> ClaimResult:
    """The claim as the sample keeps it (the fields of model.Claim), answered."""
    cell = claim["operation"], claim["payload"]
    effect = analysis.compare(claim["slow"], claim["fast"], *cell)
    entries = [analysis.sample.candidates.get(claim[side]) for side in ("slow", "fast")]
    if effect is None:
        word: Word = "not measured"
        why = _why_not_compared(analysis, (claim["slow"], claim["fast"]), *cell)
    else:
        known = [entry for entry in entries if entry]
        floor = analysis.floor_between(*known, operation=cell[0])
        word = word_for(math.log(claim["ratio"]), effect, floor)
        why = claim["why"] if _explains(claim, word) else ""
    return ClaimResult(
        article=claim["article"],
        text=claim["text"],
        published=claim["ratio"],
        slow=claim["slow"],
        fast=claim["fast"],
        operation=cell[0],
        payload=cell[1],
        effect=effect,
        word=word,
        why=why,
        asked=all(entries) and _was_asked(analysis.sample.about, *cell),
    )


def _was_asked(about: Mapping[str, Any], operation: str, payload: str) -> bool:
    return operation in about["operations"] and payload in (NO_PAYLOAD, *about["payloads"])


def word_for(published: float, effect: Effect, floor: float = LEAST_FLOOR) -> Word:
    """How today's effect stands to a published log ratio; both of ``slow`` over ``fast``."""
    verdict = judge(effect, floor)
    was_same = abs(published) <= LEAST_FLOOR
    if verdict == "unclear":
        return "unclear"
    is_near = effect.log_low - NEAR <= published <= effect.log_high + NEAR
    if verdict == "same":
        if was_same:
            return "holds" if effect.log_low >= -NEAR and effect.log_high <= NEAR else "unclear"
        return "unclear" if is_near else "same"
    if was_same:
        return "larger"
    if (effect.log_ratio > 0) != (published > 0):
        return "reversed"
    if is_near:
        # What would agree with almost any number confirms none.
        return "holds" if effect.log_high - effect.log_low <= 2 * WIDE else "unclear"
    return "larger" if abs(effect.log_ratio) > abs(published) else "smaller"


def _explains(claim: Mapping[str, Any], word: Word) -> bool:
    """What is known may explain another answer than the one that was found."""
    return word in claim.get("explains", ()) if claim.get("explains") else word != "unclear"


def _why_not_compared(
    analysis: Analysis, names: tuple[str, str], operation: str, payload: str
) -> str:
    """What voids the run is said once, what is wrong with an arm of each."""
    if analysis.void_run:
        return "; ".join(dict.fromkeys(f"{f.text} ({f.rule})" for f in analysis.void_run))
    return "; ".join(filter(None, (_why_not(analysis, n, operation, payload) for n in names)))


def _why_not(analysis: Analysis, name: str, operation: str, payload: str) -> str:
    entry = analysis.sample.candidates.get(name)
    if entry is None:
        return f"{name} was not asked for"
    if entry.state != "measured":
        return f"{name}: {entry.state}" + (f": {entry.reason}" if entry.reason else "")
    if (name, operation, payload) not in analysis.sample.cells:
        return f"{name} did no {operation} of {payload}"
    void = analysis.void(name, operation, payload)
    return f"{name}: {void}" if void else ""
