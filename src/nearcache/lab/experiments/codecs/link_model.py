"""Which codec would win on another network: a model, and how far it is from the truth here.

    cost of a call = own + way(bytes)
    way(bytes)     = round trip + bytes / bandwidth, and a slow start (see link.py)
    own            = what was measured here, minus the way here: client, codec, server

Bytes are what the server counted for a call. The model knows nothing of lost packets, of
other traffic, of a server whose CPU is full, and of TLS; all of these favour fewer bytes.

How good it is, is asked where the truth is known: each measured call is predicted from
encoding or decoding timed alone, from what the same library adds to *other* payloads, and
from the way here (:func:`misses`). The map is exact here by construction; that is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from nearcache.lab.base.model import NO_PAYLOAD
from nearcache.lab.judging.analysis import Analysis
from nearcache.lab.judging.reading import cell_of, measure_of, point_of
from nearcache.lab.results.sample import Cell, Entry
from nearcache.lab.statistics.stats import LEAST_FLOOR
from nearcache.lab.timers.link import Link

ALONE = {"get": "decode", "set": "encode"}
# In this order the simplest of those that are equally fast is taken.
SIMPLEST = ("none", "lz4", "zstd", "zlib", "gzip", "dict", "lzma")


@dataclass(frozen=True)
class Arm:
    """One codec on one payload. ``own_ns`` and ``wire_bytes`` by operation."""

    entry: Entry
    payload: str
    own_ns: Mapping[str, float]
    wire_bytes: Mapping[str, float]

    def cost_ns(self, link: Link, shares: Mapping[str, float]) -> float:
        """Of an average operation, over that link."""
        return sum(
            share * (self.own_ns[operation] + link.way_ns(self.wire_bytes[operation]))
            for operation, share in shares.items()
        )

    @property
    def compressor(self) -> str:
        return str(self.entry.options.get("compressor", "none"))

    @property
    def steps(self) -> int:
        """How much there is to it: less is simpler."""
        return SIMPLEST.index(self.compressor) if self.compressor in SIMPLEST else len(SIMPLEST)


def measured_link(analysis: Analysis) -> Link | None:
    """The way to the server of this run, as all its candidates found it."""
    cells = [cell_of(analysis, entry.name, "ping", NO_PAYLOAD) for entry in analysis.measured]
    rates = [rate for cell in cells if (rate := measure_of(cell, "bandwidth"))]
    rtts = [point_of(analysis, entry.name, "ping", NO_PAYLOAD) for entry in analysis.measured]
    known = [rtt for rtt in rtts if rtt is not None]
    return Link(median(known), median(rates)) if known and rates else None


def arms(analysis: Analysis, payload: str, here: Link) -> list[Arm]:
    """All codecs that bring this payload back as it was, with what they cost; none void."""
    found = (_arm(analysis, entry, payload, here) for entry in analysis.contenders)
    return [arm for arm in found if arm is not None]


def _arm(analysis: Analysis, entry: Entry, payload: str, here: Link) -> Arm | None:
    own_ns, wire_bytes = {}, {}
    for operation in analysis.mix_shares:
        point = point_of(analysis, entry.name, operation, payload)
        wire = measure_of(cell_of(analysis, entry.name, operation, payload), "wire")
        if point is None or wire is None or analysis.void(entry.name, operation, payload):
            return None
        own_ns[operation] = max(0.0, point - here.way_ns(wire))
        wire_bytes[operation] = wire
    return Arm(entry, payload, own_ns, wire_bytes)


def one_family(analysis: Analysis, arms: Sequence[Arm]) -> list[Arm]:
    """Those of one library, for a map of codecs and not of libraries: that of the fastest.

    Only what one could run: no parser that is there for comparison.
    """
    usable = [arm for arm in arms if arm.entry.recommendable or arm.compressor == "dict"]
    families = [rank.entry.family for rank in analysis.ranking] + [a.entry.family for a in usable]
    return [arm for arm in usable if arm.entry.family == families[0]]


def tied(
    arms: Sequence[Arm], link: Link, shares: Mapping[str, float], floor: float = LEAST_FLOOR
) -> list[Arm]:
    """Those within ``floor`` (a log ratio) of the fastest over that link, the simplest first."""
    costs = {arm.entry.name: arm.cost_ns(link, shares) for arm in arms}
    limit = min(costs.values()) * math.exp(floor)
    found = [arm for arm in arms if costs[arm.entry.name] <= limit]
    return sorted(found, key=lambda arm: (arm.steps, costs[arm.entry.name]))


def break_even_bytes_per_s(packed: Arm, plain: Arm, shares: Mapping[str, float]) -> float:
    """Below this bandwidth ``packed`` is the faster one; 0: nowhere, inf: everywhere."""
    slower_ns = sum(share * (packed.own_ns[op] - plain.own_ns[op]) for op, share in shares.items())
    saved_bytes = sum(
        share * (plain.wire_bytes[op] - packed.wire_bytes[op]) for op, share in shares.items()
    )
    if saved_bytes <= 0:
        return 0.0
    return math.inf if slower_ns <= 0 else saved_bytes / slower_ns * 1e9


@dataclass(frozen=True)
class Miss:
    """A measured call, and what the model said."""

    candidate: str
    operation: str
    payload: str
    ratio: float  # predicted / measured

    @property
    def size(self) -> float:
        return abs(math.log(self.ratio))


def misses(analysis: Analysis, here: Link) -> list[Miss]:
    """Every measured call beside its prediction from parts that were measured apart."""
    found = []
    for operation, part in ALONE.items():
        added = _added_by_library(analysis, here, operation, part)
        for (name, payload), (measured, _) in added.items():
            entry = analysis.sample.candidates[name]
            others = [
                rest
                for (other, elsewhere), (_, rest) in added.items()
                if elsewhere != payload and analysis.sample.candidates[other].family == entry.family
            ]
            cell = analysis.sample.cells[name, operation, payload]
            if others:
                own = cell.parts[part].median + median(others)
                predicted = own + here.way_ns(measure_of(cell, "wire") or 0)
                found.append(Miss(name, operation, payload, max(1.0, predicted) / measured))
    return found


def _added_by_library(
    analysis: Analysis, here: Link, operation: str, part: str
) -> dict[tuple[str, str], tuple[float, float]]:
    """(candidate, payload) -> measured ns, and what is neither codec nor way."""
    found = {}
    for entry in analysis.contenders:
        for payload in analysis.sample.about["payloads"]:
            cell: Cell | None = cell_of(analysis, entry.name, operation, payload)
            point = point_of(analysis, entry.name, operation, payload)
            wire = measure_of(cell, "wire")
            if cell and point is not None and wire is not None and part in cell.parts:
                rest = point - here.way_ns(wire) - cell.parts[part].median
                found[entry.name, payload] = (point, rest)
    return found
