"""A codec on Redis: a cache alias, with its stored bytes in sight.

To what an alias is asked anyway this adds, for every candidate: the form of what it
stores, read raw by a second, plain client; which types come back as what they were; the
bytes on the wire, counted by the server; and encoding and decoding timed alone, on the
very functions that ``set`` and ``get`` call.

A payload that a serializer changes or refuses is not an error of the run. It is an
outcome, has no time, and so cannot win.
"""

from __future__ import annotations

import pickle
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from nearcache.lab.arms.alias import AliasArm
from nearcache.lab.base.messages import Phase, Setup, Visit, Visited
from nearcache.lab.own.guard import OwnRedis, bare
from nearcache.lab.proofs.companion import TIMEOUT_S
from nearcache.lab.proofs.proof import TreatmentNotApplied
from nearcache.lab.proofs.stored import Meter
from nearcache.lab.proofs.stored_form import StoredForm, form_of
from nearcache.lab.timers.link import bytes_per_s, ping
from nearcache.lab.timers.operations import Visitor, VisitTools
from nearcache.lab.timers.traffic import Counters, Traffic
from nearcache.lab.workloads import PAYLOADS
from nearcache.lab.workloads.fidelity import (
    EXACT,
    facts_of,
    fate_of,
    runs_planted_code,
    try_types,
    types_in,
)
from nearcache.lab.workloads.growing import grow

DICTIONARY = "values.dict"
PROTOCOL = pickle.HIGHEST_PROTOCOL
# A codec does not care how many keys there are, and large values take long.
MOST_KEYS, LEAST_KEYS, KEYS_BYTES = 10, 2, 400_000
ALONE_NS = 1_000_000  # for timing encode or decode alone
TRYING_S = 2.0  # for the values of one payload, where they are many
PROOF_PAYLOAD = "D"  # compresses, and all serializers take it

Encode = Callable[[Any], Any]
Decode = Callable[[bytes], Any]


class CodecArm(AliasArm):
    """One serializer, compressor and parser, on Redis."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.plain: Any = None  # a client that knows nothing of codecs
        self.dictionary: bytes | None = None
        self.fates: dict[str, str] = {}
        self.facts: dict[str, str] = {}

    def begin(self) -> Mapping[str, str]:
        for module in self.candidate.options.get("without", ()):
            sys.modules[module] = None  # type: ignore[assignment] # Python's way: it is not there
        if self.candidate.options.get("compressor") == "dict":
            self.dictionary = self._train()
        proof = super().begin()
        self.plain = self._plain_client()
        return {**proof, **self._prove_codec()}

    def visit(self, visit: Visit) -> Visited:
        payload = self.payload(visit.payload)
        self.demand_room(payload.key_count, payload.bytes_at_once)
        if visit.payload not in self.fates:
            self._try(visit.payload, payload)
        if self.fates[visit.payload] == EXACT:
            visited = self._measure(payload, visit)
        else:
            visited = Visited(self._unfit(visit))
        if "ping" in visit.operations:
            visited.phases.append(self._ping())
        if "grow" in visit.operations and self.candidate.options.get("grows"):
            visited.phases.append(self._grow(visit))
        visited.facts = dict(self.facts)
        return visited

    # -- proof -----------------------------------------------------------------------------

    def _train(self) -> bytes:
        from nearcache.lab.workloads.dictionaries import train_on_other_values

        dictionary = train_on_other_values(self.candidate.options["serializer"], self.setup.seed)
        Path(self.setup.directory, DICTIONARY).write_bytes(dictionary)
        return dictionary

    def _plain_client(self) -> Any:
        import redis

        location = self.candidate.settings.get("LOCATION", "")
        first = location if isinstance(location, str) else location[0]
        if not str(first).startswith(("redis://", "rediss://", "unix://")):
            raise TreatmentNotApplied(
                "codecs are compared on Redis, and this alias has no LOCATION that is one; "
                "leave it out (--alias)"
            )
        given = {name.lower(): v for name, v in self.candidate.settings.get("OPTIONS", {}).items()}
        login = {name: given[name] for name in ("username", "password", "db") if name in given}
        client = redis.Redis.from_url(first, **login)
        return OwnRedis(client, self.setup.namespace) if self.is_own else client

    def _prove_codec(self) -> dict[str, str]:
        """Write a value through the alias, and look at its bytes from outside."""
        key = f"{self.setup.namespace}:form"
        self.cache.set(key, self.payload(PROOF_PAYLOAD).make(key, 1), TIMEOUT_S)
        form = self._form(key)
        self.cache.delete(key)
        self._demand("serializer", form.serializer, self.candidate.options.get("form"))
        self._demand("compressor", form.compressor, self.candidate.options.get("compressor"))
        self.facts["read by"] = form.readers
        return {"stored as": str(form), **self._classes(), **self._libraries()}

    def _demand(self, aspect: str, found: str, ordered: str | None) -> None:
        if ordered and found != ordered:
            raise TreatmentNotApplied(f"stored bytes have {aspect} {found}, not {ordered}")

    def _form(self, key: str) -> StoredForm:
        raw = self.plain.get(str(self.cache.make_key(key)))
        cache = bare(self.cache)
        ours = type(cache).__module__.startswith("nearcache.")
        compat = ours and getattr(cache.options, "compat", "none") != "none"
        return form_of(raw, has_header=ours and not compat, dictionary=self.dictionary)

    def _classes(self) -> dict[str, str]:
        """The live objects that encode, with what they are set to."""
        cache = bare(self.cache)
        client: Any = getattr(cache, "client", None)
        if hasattr(client, "_compressor"):
            used = client._compressor
            settings = {name: getattr(used, name, None) for name in ("preset", "min_length")}
            said = ", ".join(f"{k} {v}" for k, v in settings.items() if v is not None)
            compressor = type(used).__name__ + (f" ({said})" if said else "")
            return {"serializer": type(client._serializer).__name__, "compressor": compressor}
        codec = getattr(getattr(cache, "codec", None), "inner", None)
        if packing := getattr(codec, "packing", None):
            level = cache.options.compress_level
            said = "default level" if level is None else f"level {level}"
            return {"compressor": f"{said}, from {packing.min_bytes} bytes"}
        return {}

    def _libraries(self) -> dict[str, str]:
        """Whether a library that changes speed and not bytes was there."""
        wanted = self.candidate.options.get("library")
        if wanted and sys.modules.get(wanted) is None:
            raise TreatmentNotApplied(f"{wanted} was to be used and was not imported")
        for module in self.candidate.options.get("without", ()):
            if sys.modules.get(module) is not None:
                raise TreatmentNotApplied(f"{module} was imported although it was to be absent")
        return {"library": wanted} if wanted else {}

    # -- outcomes ---------------------------------------------------------------------------

    def _try(self, letter: str, payload: Any) -> None:
        """Does this payload come back as it was? With the first one, do all types?"""
        key = f"{self.setup.namespace}:fate"
        if not self.fates:
            self._try_types(key)
        # A user's values differ from each other: one that comes back says little of the next.
        values = payload.every_value() if letter not in PAYLOADS else [payload.make(key, 1)]
        tried, self.fates[letter] = self._fate_of_all(key, values)
        if len(values) > 1:
            self.facts[f"tried {letter}"] = f"{tried} of {len(values)} values"
        if letter not in PAYLOADS:  # of the user's own, nobody knows what is in them
            found = set().union(*map(types_in, values))
            self.facts[f"types in {letter}"] = ", ".join(sorted(found))
        self.facts[f"stored {letter}"] = self._how_stored(key, letter, values[0])

    def _fate_of_all(self, key: str, values: Sequence[Any]) -> tuple[int, str]:
        """How many were tried, and the first fate that is not exact; those of new types first."""
        deadline = time.monotonic() + TRYING_S
        first_of = {frozenset(types_in(value)): at for at, value in enumerate(reversed(values))}
        firsts = {len(values) - 1 - at for at in first_of.values()}
        order = [*sorted(firsts), *(at for at in range(len(values)) if at not in firsts)]
        for tried, at in enumerate(order, start=1):
            fate = fate_of(self.cache, key, values[at])
            if fate != EXACT or time.monotonic() > deadline:
                return tried, fate
        return len(order), EXACT

    def _how_stored(self, key: str, letter: str, value: Any) -> str:
        if self.fates[letter] != EXACT:
            return f"not: {self.fates[letter]}"
        self.cache.set(key, value, TIMEOUT_S)
        form = self._form(key)
        self.cache.delete(key)
        return str(form)

    def _try_types(self, key: str) -> None:
        if not self.is_own:
            from django.apps import apps

            apps.set_installed_apps(["django.contrib.contenttypes"])
        self.facts |= facts_of(try_types(self.cache, key))
        if not self.is_own:  # nobody plants a pickle in a user's server, not even we
            ran = runs_planted_code(self.cache, self._write_raw, key)
            self.facts["planted pickle"] = "its code ran" if ran else "its code did not run"

    def _write_raw(self, key: str, raw: bytes) -> None:
        self.plain.set(str(self.cache.make_key(key)), raw, ex=60)

    def _unfit(self, visit: Visit) -> list[Phase]:
        fate = self.fates[visit.payload]
        refused = int(fate.startswith("refused"))
        return [
            Phase(operation, calls=1, refused=refused, outcomes={fate: 1})
            for operation in ("set", "get")
            if operation in visit.operations
        ]

    # -- measuring --------------------------------------------------------------------------

    def _measure(self, payload: Any, visit: Visit) -> Visited:
        meter = None
        if visit.learning:
            meter = Meter(self.candidate, self.cache, Path(self.setup.directory))
        tools = VisitTools(self.cache, self.companion, self.setup.namespace, meter)
        return CodecVisitor(self, tools, payload, visit).run()

    def _ping(self) -> Phase:
        phase = Phase("ping")
        phase.samples = ping(self.plain)
        phase.calls = phase.hits = len(phase.samples)
        key = f"{self.setup.namespace}:large"
        rate = bytes_per_s(self.plain, key, median(phase.samples))
        phase.measures["bandwidth"] = (rate, "bytes/s")
        return phase

    def _grow(self, visit: Visit) -> Phase:
        key = f"{self.setup.namespace}:{visit.round_id}:benchmarking"
        grown = grow(self.open_cache, key)
        size = self.plain.strlen(str(self.cache.make_key(key)))
        self.cache.delete(key)
        return Phase(
            "grow",
            calls=grown.attempted,
            outcomes={"update lost": grown.lost},
            measures={
                "entries": (grown.kept, "count"),
                "size": (size, "bytes"),
                "read": (grown.read_ns, "ns"),
            },
        )


class CodecVisitor(Visitor):
    """Sets and gets as for any cache, and what they are made of."""

    def __init__(self, arm: CodecArm, tools: VisitTools, payload: Any, visit: Visit) -> None:
        super().__init__(tools, payload, visit)
        self.arm = arm
        differing = self.keys if payload.values_differ else self.keys[:1]
        self.pickled_bytes = fmean(_pickled(payload.make(key, 1)) for key in differing)
        if not payload.values_differ:
            fitting = int(KEYS_BYTES // self.pickled_bytes)
            self.keys = self.keys[: max(LEAST_KEYS, min(MOST_KEYS, fitting))]
        self.versions = dict.fromkeys(self.keys, 0)
        self.encode, self.decode = coders(bare(self.cache))

    def run(self) -> Visited:
        self._counted(self._set, "set")
        self._demand_everything_is_stored()
        self._measure_stored()
        self._size()
        self._counted(self._get, "get")
        key, value = self._middle()
        raw = self.arm.plain.get(self._raw_key(key))
        self._part("set", "encode", self.encode, value)
        self._part("get", "decode", self.decode, raw)
        self._delete()
        self.result.phases = [p for p in self.result.phases if p.operation != "delete"]
        self._refuse_losses()
        return self.result

    def _middle(self) -> tuple[str, Any]:
        """The value of middling size and its key: the same value for all candidates."""
        stored = [(key, self.payload.make(key, self.versions[key])) for key in self.keys]
        if self.payload.values_differ:
            stored.sort(key=lambda pair: _pickled(pair[1]))
            return stored[len(stored) // 2]
        return stored[0]

    def _size(self) -> None:
        """Mean bytes of the stored values, and of the same as bare pickles, to compare with."""
        plain, phase = self.arm.plain, self._phase("size")
        phase.batch = 1
        phase.samples = array("Q", (plain.strlen(self._raw_key(key)) for key in self.keys))
        phase.calls = len(self.keys)
        phase.point = fmean(phase.samples)
        phase.measures["pickled"] = (self.pickled_bytes, "bytes")

    def _counted(self, measure: Callable[[], None], operation: str) -> None:
        counters = Counters(self.arm.plain) if not self.arm.is_own else None
        measure()
        traffic = counters.since(operation) if counters else None
        if traffic:
            self._add_traffic(self._done(operation), traffic)

    def _add_traffic(self, phase: Phase, traffic: Traffic) -> None:
        phase.measures["wire"] = (traffic.bytes, "bytes")
        phase.parts["server"] = traffic.server_ns

    def _part(self, operation: str, part: str, work: Callable[[Any], Any] | None, on: Any) -> None:
        if work is not None:
            self._done(operation).parts[part] = alone_ns(work, on)

    def _done(self, operation: str) -> Phase:
        return next(phase for phase in self.result.phases if phase.operation == operation)

    def _raw_key(self, key: str) -> str:
        return str(self.cache.make_key(key))


def _pickled(value: Any) -> int:
    return len(pickle.dumps(value, PROTOCOL))


def coders(cache: Any) -> tuple[Encode | None, Decode | None]:
    """What ``set`` and ``get`` of this cache call to encode and decode; None where unknown."""
    if hasattr(cache, "_set_command"):  # nearcache: packs the command as well
        return lambda value: cache._set_command("k", value, TIMEOUT_S, None, False), (
            lambda raw: cache._value(raw, None)
        )
    client: Any = getattr(cache, "client", None)
    if hasattr(client, "encode") and hasattr(client, "decode"):  # django-redis
        return client.encode, client.decode
    serializer = getattr(getattr(cache, "_cache", None), "_serializer", None)
    if serializer is not None:  # Django's own
        return serializer.dumps, serializer.loads
    return None, None


def alone_ns(work: Callable[[Any], Any], on: Any) -> float:
    """The median ns of calling ``work``, with nothing else between the timestamps."""
    clock = time.perf_counter_ns
    times: list[int] = []
    spent_ns = 0
    while spent_ns < ALONE_NS:
        start = clock()
        work(on)
        times.append(clock() - start)
        spent_ns += times[-1]
    return float(median(times))
