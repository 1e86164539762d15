"""What to run: one ``CACHES`` entry from several samples, why, and what would change it.

    backends   who answers fastest, of those that reach far enough     -> BACKEND, LOCATION
    codecs     how values are written, for the link they will travel    -> OPTIONS
    drill      what it does when its server fails    -> breaks ties; liars are put aside

First everything is put aside that may not be recommended at all (admission.py), then the
fastest is taken. Of those that this run cannot tell apart, the backend with the fewest
surprises (ties.py); the codec that stores much less, else the simplest. Nothing is measured
here, and no address of a private server gets into the block: a sample keeps the ordinary
ones beside them (``Entry.recommended``).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from nearcache.lab.advice.admission import (
    Needs,
    is_about_types,
    reader_refusal,
    refusal,
    types_refusal,
)
from nearcache.lab.advice.codec_choice import Choice, choose_codec
from nearcache.lab.advice.failures import badness, drilled, failures, lie
from nearcache.lab.advice.verdict import describe_mix, literal, warnings_of
from nearcache.lab.judging.analysis import Analysis, Rank
from nearcache.lab.judging.ties import least_surprising
from nearcache.lab.judging.words import beside
from nearcache.lab.results.sample import Entry, Sample
from nearcache.report.units import quantity

TAKES_CODEC = ("nearcache.", "django_redis.")
KEPT = "How it writes values is kept too. What was measured of that: lab recommend FILE of codecs."
SHARED_MEMORY = "nearcache.backends.SharedMemoryCache"
PROGRAMS = {
    "redis": ("redis-server", "valkey-server"),
    "memcached-unix": ("memcached",),
    "memcached-tcp": ("memcached",),
    "postgres": ("postgres",),
}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was measured; any of it may be missing."""

    backends: Analysis | None = None
    codecs: Analysis | None = None
    drill: Sample | None = None


@dataclass(kw_only=True)
class Advice:
    """A recommendation, or why there is none."""

    caches: dict[str, Any] = field(default_factory=dict)  # empty if nothing is recommended
    block: str = ""
    chosen: list[str] = field(default_factory=list)  # names of candidates
    reasons: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)  # what would change its mind
    refused: dict[str, str] = field(default_factory=dict)  # candidate -> why not
    warnings: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"format": 1, **vars(self)}


def advise(evidence: Evidence, needs: Needs) -> Advice:
    """The best that this evidence allows for these needs."""
    advice = Advice()
    for analysis in (evidence.backends, evidence.codecs):
        if analysis:
            name = analysis.sample.about["experiment"]
            advice.warnings += [f"{name}: {line}" for line in warnings_of(analysis)]
    backend = _choose_backend(evidence, needs, advice) if evidence.backends else None
    # How an alias of the user's writes is in its own settings, which are kept as they are.
    is_kept = backend is not None and not backend.recommended
    asks = evidence.codecs is not None and not is_kept
    codec = _choose_codec(evidence, needs, backend, advice) if asks else None
    if is_kept and evidence.codecs:
        advice.changes.append(KEPT)
    if backend is None and codec is None:
        advice.reasons.append("Nothing that was measured may be recommended for this.")
        return advice
    if codec is None and (_wants_codec(needs, backend) or _is_barred(evidence, backend, advice)):
        # Who would be first is no reason for nothing.
        advice.reasons = ["No way of writing values that was measured fits these needs."]
        advice.changes = _would_fit(evidence.codecs, needs, advice)
        advice.chosen.clear()
        return advice
    _write_block(advice, backend, codec, needs)
    for entry in [entry for entry in (backend, codec and codec.entry) if entry][:1]:
        _say_failures(advice, evidence.drill, entry)
        _say_server(advice, entry)
    return advice


# -- the backend --------------------------------------------------------------------------------


def _choose_backend(evidence: Evidence, needs: Needs, advice: Advice) -> Entry | None:
    analysis = evidence.backends
    assert analysis
    for entry in analysis.sample.candidates.values():
        if entry.twin_of is None and (why := _backend_refusal(analysis, entry, needs)):
            advice.refused[entry.name] = why
    advice.refused |= _lies(analysis, evidence.drill)
    field = [rank for rank in analysis.ranking if rank.entry.name not in advice.refused]
    if not field:
        return None
    winner, why = least_surprising(analysis, field, lambda entry: badness(evidence.drill, entry))
    advice.chosen.append(winner.entry.name)
    advice.reasons.append(_speed_of_backend(analysis, winner, why, field, needs))
    advice.changes += _other_reaches(analysis, winner, needs)
    return winner.entry


def _backend_refusal(analysis: Analysis, entry: Entry, needs: Needs) -> str:
    if why := refusal(analysis, entry, needs) or types_refusal(analysis, entry):
        return why
    backend = str(entry.recommended.get("BACKEND", ""))
    if needs.of_codec and not entry.recommended:
        return "how your alias writes values was not looked at"
    if needs.of_codec and not backend.startswith(TAKES_CODEC):
        return "how it writes values cannot be chosen"
    if (needs.json or needs.portable) and backend == SHARED_MEMORY:
        return "no other program reads it"
    unranked = {other.name: why for other, why in analysis.unranked}
    return unranked.get(entry.name, "")


def _speed_of_backend(
    analysis: Analysis, winner: Rank, why: str, field: Sequence[Rank], needs: Needs
) -> str:
    who = "all processes of a host" if needs.reach == "host" else "several hosts"
    first = field[0]
    place = "is first" if winner is first else f"cannot be told from the first ({first.entry.name})"
    count = f"of the {len(field)} that {who} can share and that may be recommended"
    if len(field) == 1:
        place, count = "is the only one", f"that {who} can share and that may be recommended"
    text = (
        f"{winner.entry.name} {place} {count}: "
        f"{quantity(winner.cost_ns, 'ns')} for an average operation ({describe_mix(analysis)})"
    )
    if winner.effect:
        text += f", {beside(winner.effect, winner.verdict, analysis.baseline)}"
    if winner is not first:
        return f"{text}, and {why}."
    if tied := analysis.tied_with(winner, list(field)):
        text += f". This run cannot tell it from {', '.join(rank.entry.name for rank in tied)}"
    elif len(field) > 1:
        text += f"; next is {field[1].entry.name} with {quantity(field[1].cost_ns, 'ns')}"
    return f"{text}."


def _other_reaches(analysis: Analysis, winner: Rank, needs: Needs) -> list[str]:
    """Who would be first if more, or fewer, had to see the cache."""
    found = []
    for reach, condition in (
        ("network", "If several hosts must share it (--reach network)"),
        ("host", "If one host is enough (--reach host)"),
    ):
        if reach == needs.reach:
            continue
        other = Needs(reach=reach)  # type: ignore[arg-type]
        field = [r for r in analysis.ranking if not _backend_refusal(analysis, r.entry, other)]
        if field and field[0].entry.name != winner.entry.name:
            cost = quantity(field[0].cost_ns, "ns")
            found.append(f"{condition}: {field[0].entry.name}, {cost}.")
    return found


def _choose_codec(
    evidence: Evidence, needs: Needs, backend: Entry | None, advice: Advice
) -> Choice | None:
    """How the chosen backend should write; any backend of the codecs if none was chosen."""
    analysis = evidence.codecs
    assert analysis
    used = str(backend.recommended.get("BACKEND", "")) if backend else ""
    choice, against = choose_codec(analysis, needs, used, _lies(analysis, evidence.drill))
    advice.refused |= against
    if choice:
        advice.chosen.append(choice.entry.name)
        advice.reasons += choice.reasons
        advice.changes += choice.changes
    return choice


def _lies(analysis: Analysis, drill: Sample | None) -> dict[str, str]:
    """Who says what is not so while its server is away, and how."""
    if drill is None:
        return {}
    said = {name: lie(drill, entry) for name, entry in analysis.sample.candidates.items()}
    return {name: f"it lies about its server: {how}" for name, how in said.items() if how}


def _wants_codec(needs: Needs, backend: Entry | None) -> bool:
    return needs.of_codec and not _plain_codec(backend, needs)


def _is_barred(evidence: Evidence, backend: Entry | None, advice: Advice) -> bool:
    """Did every codec of this backend do something to values? Then so does its own."""
    if evidence.codecs is None or backend is None:
        return False
    used = backend.recommended.get("BACKEND")
    entries = evidence.codecs.sample.candidates.values()
    known = [
        e.name for e in entries if e.name in advice.refused and e.recommended.get("BACKEND") == used
    ]
    return any(is_about_types(advice.refused[name]) for name in known)


def _would_fit(codecs: Analysis | None, needs: Needs, advice: Advice) -> list[str]:
    """Who can be read as needed, and is put aside only for what it does to types."""
    if codecs is None:
        return ["How values are written was not measured: lab run codecs."]
    fitting = [
        entry.name
        for entry in codecs.contenders
        if entry.recommendable and entry.name in advice.refused and not reader_refusal(entry, needs)
    ]
    if not fitting:
        return []
    names = ", ".join(f"{name} ({advice.refused[name]})" for name in fitting)
    return [
        f"If your own values come back from them, which lab run codecs --data DIR tries: {names}."
    ]


# -- the block ----------------------------------------------------------------------------------


def _plain_codec(backend: Entry | None, needs: Needs) -> dict[str, Any]:
    """What fits the needs without a measurement: shared memory is read by nobody else."""
    is_shared = backend is not None and backend.recommended.get("BACKEND") == SHARED_MEMORY
    if is_shared and needs.no_pickle and not (needs.json or needs.portable):
        return {"serializer": "exact"}
    return {}


def _write_block(advice: Advice, backend: Entry | None, codec: Choice | None, needs: Needs) -> None:
    entry = backend or (codec.entry if codec else None)
    assert entry is not None
    if not entry.recommended:
        advice.block = f"# Keep the entry {entry.name!r} of your CACHES as it is."
        return
    settings = deepcopy(entry.recommended)
    own = dict(codec.entry.recommended.get("OPTIONS", {})) if codec else {}
    options = {**settings.pop("OPTIONS", {}), **own, **_plain_codec(backend, needs)}
    if options.get("serializer") == "auto":
        del options["serializer"]  # its default
    if options:
        settings["OPTIONS"] = options
    advice.caches = {"default": settings}
    used = [entry, codec.entry] if codec else [entry]
    remarks = dict.fromkeys(line for each in used for line in (*each.needs, each.note) if line)
    lines = [*(f"# {line}" for line in remarks), f"CACHES = {literal(advice.caches)}"]
    advice.block = "\n".join(lines)


def _say_failures(advice: Advice, drill: Sample | None, entry: Entry) -> None:
    """How it ends when its server fails, in the words of the drill."""
    ends = failures(drill, entry) if drill else []
    if ends:
        advice.reasons.append(f"Under faults (lab run drill): {' '.join(ends)}")
    elif drill is None or not drilled(drill, entry):
        advice.changes.append(
            "How it fails was not tried (lab run drill): whether it raises, blocks or misses when "
            "its server is away."
        )
    else:
        advice.reasons.append("No fault of the drill makes it fail (lab run drill).")


def _say_server(advice: Advice, entry: Entry) -> None:
    names = PROGRAMS.get(entry.server or "")
    if not names:
        return
    found = next(filter(None, map(shutil.which, names)), None)
    where = f"is on this machine ({found})" if found else "is not on this machine: install it"
    advice.reasons.append(f"It needs a server; {names[0]} {where}.")
