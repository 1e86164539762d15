"""Who may be recommended at all: what is void, private, unproven or changes types may not.

Speed is not asked here. :func:`refusal` gives the reason against a candidate, in words
for the report, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from nearcache.lab.base.model import Reach
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import point_of
from nearcache.lab.results.sample import Entry
from nearcache.lab.workloads import PAYLOADS
from nearcache.lab.workloads.fidelity import EXACT, fates_in

REACHES: tuple[Reach, ...] = ("process", "host", "network")
# Even pickle behind django-redis refuses these. To change them is held against a codec.
RARE = frozenset({"int subclass"})


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a cache must do, whatever it costs. The link is where it will run."""

    reach: Reach = "host"
    rtt_ns: float | None = None  # as measured, if None
    bytes_per_s: float | None = None
    size_bytes: float | None = None  # of a usual value; all payloads count, if None
    json: bool = False  # other programs read it as JSON
    portable: bool = False  # other languages read it, in whatever format
    no_pickle: bool = False  # nothing that is read may run code

    @property
    def of_codec(self) -> bool:
        """Whether anything is asked of how values are written."""
        return self.json or self.portable or self.no_pickle


def refusal(analysis: Analysis, entry: Entry, needs: Needs) -> str:
    """Why this candidate is not recommended; empty if it may be."""
    if entry.state in ("missing", "failed"):
        return f"{entry.state}: {entry.reason}"
    if void := analysis.void(entry.name):
        return f"its numbers are void: {void}"
    if not entry.recommendable:
        return entry.note or "it is there for comparison only"
    if REACHES.index(entry.reach) < REACHES.index(needs.reach):
        return "each process has its own" if entry.reach == "process" else "only one host sees it"
    return ""


def is_about_types(why: str) -> bool:
    """Whether a refusal is for what becomes of values, so that other values may undo it."""
    return why.startswith(("it changes types", "it refuses types", "your values do not"))


def codec_refusal(analysis: Analysis, entry: Entry, needs: Needs) -> str:
    """The same for a candidate of ``codecs``, whose way of writing values was looked at."""
    return (
        refusal(analysis, entry, needs)
        or ("" if fates_in(entry.facts) else "what becomes of types was not tried")
        or types_refusal(analysis, entry, may_refuse=needs.of_codec)
        or reader_refusal(entry, needs)
    )


def own_payloads(analysis: Analysis) -> list[str]:
    """The payloads of a sample that are the user's own values."""
    about = analysis.sample.about
    return [name for name in about["payloads"] if about.get("own_data") and name not in PAYLOADS]


def types_are_known(analysis: Analysis) -> bool:
    """Whether the values measured are the user's own, and were seen as what they are."""
    return bool(own_payloads(analysis)) and not analysis.sample.about.get("undecoded")


def types_refusal(analysis: Analysis, entry: Entry, *, may_refuse: bool = False) -> str:
    """What it does to values. The user's own decide, where all were decoded; else all types.

    ``may_refuse``: a TypeError for some types is a price that was asked for. To change them
    never is.
    """
    own = (_value_refusal(analysis, entry, name) for name in own_payloads(analysis))
    if (why := next(filter(None, own), "")) or types_are_known(analysis):
        return why
    fates = fates_in(entry.facts)
    changed = [name for name, fate in fates.items() if fate.startswith("becomes")]
    refused = [name for name, fate in fates.items() if fate.startswith("refused")]
    if changed:
        return f"it changes types: {_some(changed)}"
    if not may_refuse and (common := [name for name in refused if name not in RARE]):
        return f"it refuses types: {_some(common)}"
    return ""


def _value_refusal(analysis: Analysis, entry: Entry, payload: str) -> str:
    """The user's own values decide: has each come back as what it was?"""
    said = entry.facts.get(f"stored {payload}", "")
    if said.startswith("not: "):
        return f"your values do not come back ({payload}: {said.removeprefix('not: ')})"
    for operation in analysis.mix_shares:
        if point_of(analysis, entry.name, operation, payload) is None:
            return f"it has no {operation} of your values ({payload})"
    return ""


def reader_refusal(entry: Entry, needs: Needs) -> str:
    """Why its bytes are not for those who have to read them."""
    readers = entry.facts.get("read by", "")
    if needs.json and "JSON" not in readers:
        return f"it is not JSON: {readers or 'unknown'}"
    if needs.portable and not readers.startswith("any language"):
        return f"other languages cannot read it: {readers or 'unknown'}"
    if needs.no_pickle and entry.facts.get("planted pickle") != "its code did not run":
        return "a pickle planted in the store runs its code"
    return ""


def _some(names: list[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def kept_types(entry: Entry) -> int:
    """How many of the types that were tried came back as what they were."""
    return sum(fate == EXACT for fate in fates_in(entry.facts).values())
