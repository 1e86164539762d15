"""Samples of ``codecs`` and ``backends`` without a run, for what is decided by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nearcache.lab.base.messages import Phase
from nearcache.lab.experiments.backends.plan import BACKENDS
from nearcache.lab.experiments.codecs.plan import CODECS
from nearcache.lab.results.sample import Sample
from nearcache.lab.runner.laboratory import RunOptions, new_sample, prepare
from nearcache.lab.timers.link import Link

HERE = Link(30_000, 2e9)
BASE, PLAIN, ZLIB, JSON = (
    "django-redis-pickle", "nearcache-auto", "nearcache-auto-zlib", "nearcache-orjson",
)  # fmt: skip
MSGPACK, EXACT = "nearcache-msgpack", "nearcache-exact"
NAMES = (BASE, PLAIN, ZLIB, JSON, MSGPACK, EXACT)
SIZES = {"S": 120, "T": 10_000, "D": 20_000}
LIBRARY_NS = {"django-redis": 60_000, "nearcache redis": 10_000}
ALL_KEPT = {"keeps": "str, tuple, Decimal", "changes": "", "refuses": ""}
FACTS = {
    BASE: {**ALL_KEPT, "read by": "Python only", "planted pickle": "its code ran"},
    PLAIN: {**ALL_KEPT, "read by": "nearcache only", "planted pickle": "its code ran"},
    ZLIB: {**ALL_KEPT, "read by": "nearcache only", "planted pickle": "its code ran"},
    JSON: {
        "keeps": "str",
        "changes": "tuple becomes list",
        "refuses": "Decimal refused: TypeError",
        "read by": "any language: JSON, a header byte in front",
        "planted pickle": "its code did not run",
    },
    MSGPACK: {
        "keeps": "str, tuple, Decimal",
        "changes": "",
        "refuses": "enum refused: TypeError",
        "read by": "any language: MessagePack",
        "planted pickle": "its code did not run",
    },
    EXACT: {
        "keeps": "str, tuple, Decimal",
        "changes": "",
        "refuses": "enum refused: TypeError",
        "read by": "nearcache only",
        "planted pickle": "its code did not run",
    },
}
# ns for each byte: to decode, to unpack
DECODE_NS = {BASE: 5.0, PLAIN: 4.0, ZLIB: 4.0, JSON: 1.0, MSGPACK: 6.0, EXACT: 5.0}
ZLIB_NS, ZLIB_SHARE = 5.0, 0.25


def _complete(sample: Sample) -> Sample:
    sample.about |= {"seconds": 1.0, "state": "complete", "load_before": 0.0}
    for entry in sample.candidates.values():
        entry.state = "measured"
    return sample


def _add(sample: Sample, name: str, operation: str, payload: str, ns: float, **seen: Any) -> None:
    cell = sample.cell(name, operation, payload)
    for repetition in range(3):
        for number in range(4):
            near = ns * (1 + 0.001 * ((number + repetition) % 3 - 1))
            phase = Phase(operation, calls=11, hits=11, **seen)
            phase.samples.extend([round(near)] * 11)
            cell.add_phase(repetition, number, phase)


def stored_bytes(name: str, payload: str) -> float:
    packed = name == ZLIB and payload == "D"
    return SIZES[payload] * (ZLIB_SHARE if packed else 1.0)


def codecs_sample(
    names: Sequence[str] = NAMES,
    twin_factor: float = 1.0,
    facts: Mapping[str, Mapping[str, str]] = FACTS,
) -> Sample:
    """Costs that follow the model of breakeven.py exactly, so that its answers are known."""
    order = prepare(
        CODECS, RunOptions(plan="quick", candidates=names, payloads=list(SIZES), seed=1)
    )
    sample = _complete(new_sample(order, "made up"))
    for name, entry in sample.candidates.items():
        own = entry.twin_of or name
        entry.facts = dict(facts[own])
        factor = twin_factor if entry.twin_of else 1.0
        _add(sample, name, "ping", "-", HERE.rtt_ns,
             measures={"bandwidth": (HERE.bytes_per_s, "bytes/s")})  # fmt: skip
        for payload in SIZES:
            size = stored_bytes(own, payload)
            _add(sample, name, "size", payload, size,
                 measures={"pickled": (SIZES[payload], "bytes")})  # fmt: skip
            alone = SIZES[payload] * (DECODE_NS[own] + (ZLIB_NS if own == ZLIB else 0))
            for operation, part in (("get", "decode"), ("set", "encode")):
                cost_ns = LIBRARY_NS[entry.family] + alone + HERE.way_ns(size + 60)
                _add(sample, name, operation, payload, cost_ns * factor,
                     measures={"wire": (size + 60, "bytes")},
                     parts={part: alone, "server": 2000.0})  # fmt: skip
    return sample


def backends_sample(costs_us: Mapping[str, float]) -> Sample:
    order = prepare(
        BACKENDS, RunOptions(plan="quick", candidates=list(costs_us), payloads=["S"], seed=1)
    )
    sample = _complete(new_sample(order, "made up"))
    for name, entry in sample.candidates.items():
        cost_us = {"locmem": 2.0, **costs_us}[entry.twin_of or name]
        for operation in ("get", "get_fresh", "set", "delete"):
            _add(sample, name, operation, "S", cost_us * 1000)
    return sample
