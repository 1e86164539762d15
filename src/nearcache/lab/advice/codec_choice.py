"""How values should be written: the codec of ``codecs`` that is fastest where it will run.

The cost of each is what it took here, moved to the given link by the model of link_model.py.
Candidates that may not be recommended were put aside before (admission.py). Of those that
the run cannot tell apart, one that stores much less is taken, else the simplest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nearcache.lab.advice.admission import (
    Needs,
    codec_refusal,
    is_about_types,
    kept_types,
    own_payloads,
    types_are_known,
)
from nearcache.lab.experiments.codecs.break_even import bits_per_s, model_sentences
from nearcache.lab.experiments.codecs.link_model import Arm, arms, measured_link
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import point_of
from nearcache.lab.results.sample import Entry
from nearcache.lab.statistics.stats import geometric_mean
from nearcache.lab.timers.link import Link
from nearcache.lab.workloads.fidelity import EXACT, fates_in
from nearcache.report.units import quantity

MUCH_SMALLER = 0.8  # of the bytes of the simplest: worth a compressor that costs no time
STEP = 0.8  # from one bandwidth or round trip to the next, when looking for a change
STEPS = 40


@dataclass
class Choice:
    """A codec that was chosen, and what is to be said about it."""

    entry: Entry
    reasons: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)


def choose_codec(
    analysis: Analysis, needs: Needs, backend: str, lies: Mapping[str, str]
) -> tuple[Choice | None, dict[str, str]]:
    """The choice among the candidates of this backend (of all, if empty), and who was put aside.

    ``lies``: candidates that are put aside already, and why.
    """
    here = measured_link(analysis)
    entries = [
        entry
        for entry in analysis.sample.candidates.values()
        if entry.twin_of is None and backend in ("", entry.recommended.get("BACKEND"))
    ]
    if here is None or not entries:
        return None, {}
    why_not = {e.name: codec_refusal(analysis, e, needs) or lies.get(e.name, "") for e in entries}
    against = {name: why for name, why in why_not.items() if why}
    known = _Field(analysis, needs, [e for e in entries if e.name not in against], here)
    link = _link(needs, here)
    costs = known.costs(link)
    if not costs:
        return None, against
    choice = Choice(known.best(costs))
    choice.reasons = _reasons(known, choice.entry, costs[choice.entry.name], link)
    barred = [entry for entry in entries if is_about_types(against.get(entry.name, ""))]
    choice.changes = [
        *_other_links(known, choice.entry, link),
        *_faster_but_barred(known, choice.entry, barred, against, link),
        *_smaller(known, choice.entry, costs),
    ]
    return choice, against


def _link(needs: Needs, here: Link) -> Link:
    if needs.rtt_ns is None and needs.bytes_per_s is None:
        return here
    return Link(
        needs.rtt_ns or here.rtt_ns, needs.bytes_per_s or here.bytes_per_s, starts_slowly=True
    )


class _Field:
    """Those who may be chosen, and what they cost and store."""

    def __init__(
        self, analysis: Analysis, needs: Needs, entries: Sequence[Entry], here: Link
    ) -> None:
        self.analysis = analysis
        self.needs = needs
        self.payloads = _payloads(analysis, needs)
        self.arms = {payload: arms(analysis, payload, here) for payload in self.payloads}
        self.entries = entries

    def costs(self, link: Link) -> dict[str, float]:
        """ns of an average operation over ``link``; of those measured with all payloads."""
        names = {entry.name for entry in self.entries}
        found: dict[str, list[float]] = {}
        for arm in (arm for known in self.arms.values() for arm in known):
            if arm.entry.name in names:
                cost_ns = arm.cost_ns(link, self.analysis.mix_shares)
                found.setdefault(arm.entry.name, []).append(max(1.0, cost_ns))
        complete = len(self.payloads)
        return {n: geometric_mean(each) for n, each in found.items() if len(each) == complete}

    def best(self, costs: Mapping[str, float]) -> Entry:
        known = [entry for entry in self.entries if entry.name in costs]
        limit = min(costs.values()) * math.exp(self.analysis.floor_between(*known))
        near = [entry for entry in known if costs[entry.name] <= limit]
        simplest = min(near, key=lambda entry: (_steps(entry), costs[entry.name]))
        smallest = min(near, key=self.share)
        saves = self.share(smallest) < MUCH_SMALLER * self.share(simplest)
        return smallest if saves else simplest

    def share(self, entry: Entry) -> float:
        """Bytes of its stored values beside the baseline's, over the payloads that count."""
        shares = []
        for payload in self.payloads:
            own = point_of(self.analysis, entry.name, "size", payload)
            base = point_of(self.analysis, self.analysis.baseline, "size", payload)
            if own and base:
                shares.append(own / base)
        return geometric_mean(shares) if shares else 1.0


def _payloads(analysis: Analysis, needs: Needs) -> list[str]:
    """Those that count: the user's own if there are any; the one nearest to a given size."""
    known = own_payloads(analysis) or list(analysis.sample.about["payloads"])
    if needs.size_bytes is None:
        return known
    wanted = needs.size_bytes

    def distance(payload: str) -> float:
        size = point_of(analysis, analysis.baseline, "size", payload)
        return abs(math.log(size / wanted)) if size else math.inf

    return [min(known, key=distance)]


def _steps(entry: Entry) -> int:
    return Arm(entry, "", {}, {}).steps


# -- what is said -------------------------------------------------------------------------------


def _reasons(field: _Field, entry: Entry, cost_ns: float, link: Link) -> list[str]:
    told = link.starts_slowly
    where = "as you said" if told else "as measured here, within one machine"
    text = (
        f"{entry.name} writes the values: {quantity(cost_ns, 'ns')} for an average operation over "
        f"a round trip of {quantity(link.rtt_ns, 'ns')} at {bits_per_s(link.bytes_per_s)} "
        f"({where}), and {field.share(entry):.0%} of the bytes of {field.analysis.baseline}."
    )
    how_good = model_sentences(field.analysis)[1:2] if told else []
    return [text, _say_types(field.analysis, entry), _say_readers(entry), *how_good]


def _say_types(analysis: Analysis, entry: Entry) -> str:
    if types_are_known(analysis):
        own = own_payloads(analysis)
        tried = [entry.facts.get(f"tried {payload}", "") for payload in own]
        types = {name for p in own for name in entry.facts.get(f"types in {p}", "").split(", ")}
        text = f"Your own values come back as what they were ({', '.join(filter(None, tried))})"
        return f"{text}. They hold: {', '.join(sorted(filter(None, types)))}."
    fates = fates_in(entry.facts)
    refused = [name for name, fate in fates.items() if fate != EXACT]
    text = f"{kept_types(entry)} of {len(fates)} types that were tried come back as what they were"
    if refused:
        text += f"; for {', '.join(refused)} it raises an error, and it changes nothing"
    if count := analysis.sample.about.get("undecoded"):
        text += f". All of them count, as {count} of your values were not decoded"
    return f"{text}."


def _say_readers(entry: Entry) -> str:
    text = f"Its bytes are read by: {entry.facts.get('read by', 'not tried')}"
    if entry.facts.get("planted pickle") == "its code ran":
        text += (
            ". A pickle that somebody puts into the store runs its code when it is read: nobody "
            "but the site may write there"
        )
    return f"{text}."


def _other_links(field: _Field, chosen: Entry, link: Link) -> list[str]:
    """At which bandwidth, and at which round trip, another one would be taken."""
    sentences = []
    for n in range(1, STEPS):
        rate = link.bytes_per_s * STEP**n
        best = field.best(field.costs(Link(link.rtt_ns, rate, starts_slowly=True)))
        if best is not chosen:
            sentences.append(f"On a link below {bits_per_s(rate)}: {best.name}.")
            break
    for n in range(1, STEPS):
        rtt_ns = link.rtt_ns / STEP**n
        best = field.best(field.costs(Link(rtt_ns, link.bytes_per_s, starts_slowly=True)))
        if best is not chosen:
            longer = quantity(rtt_ns, "ns")
            sentences.append(f"With a round trip of {longer} or more: {best.name}.")
            break
    return sentences


def _faster_but_barred(
    field: _Field, chosen: Entry, barred: Sequence[Entry], against: Mapping[str, str], link: Link
) -> list[str]:
    """Who would be faster with some payload, and is put aside for what it does to types."""
    names = {entry.name for entry in barred}
    floor = math.exp(-field.analysis.floor_between(chosen))
    for payload, known in field.arms.items():
        costs = {arm.entry.name: arm.cost_ns(link, field.analysis.mix_shares) for arm in known}
        own_ns = costs.get(chosen.name, 0.0)
        faster = [name for name in costs if name in names and costs[name] < own_ns * floor]
        if faster:
            best = min(faster, key=lambda name: costs[name])
            title = field.analysis.sample.about["payloads"][payload]
            sentence = (
                f"If all your values are like {title}: {best} takes "
                f"{costs[best] / own_ns:.0%} of the time there, but {against[best]}. Your own "
                "values decide that: lab run codecs --data DIR."
            )
            return [sentence]
    return []


def _smaller(field: _Field, chosen: Entry, costs: Mapping[str, float]) -> list[str]:
    """Who stores much less, and what that costs."""
    known = [entry for entry in field.entries if entry.name in costs]
    smallest = min(known, key=field.share)
    if field.share(smallest) >= MUCH_SMALLER * field.share(chosen):
        return []
    times = costs[smallest.name] / costs[chosen.name]
    sentence = (
        f"If memory is dearer than time: {smallest.name} stores {field.share(smallest):.0%} of the "
        f"bytes of {field.analysis.baseline}, at {times:.2f} times the time."
    )
    return [sentence]
