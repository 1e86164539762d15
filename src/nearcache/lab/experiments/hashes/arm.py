"""A layout of many small values in Redis: loaded into a new server, weighed, then read.

    plain     SET media:1155315 939
    bucket-B  HSET media:<id // B> <id or id % B> 939

One visit is one server's life. The client is a socket and hiredis, so that a million
commands take seconds, and every reply is looked at.
"""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns as clock
from typing import Any, Self

from nearcache.lab.base.arm import Arm, WrongAnswer
from nearcache.lab.base.messages import Phase, Setup, Visit, Visited
from nearcache.lab.experiments.hashes.plan import DATA, Data
from nearcache.lab.servers.own import OwnServer

FIRST_ID = 1_000_000  # so that all ids have seven digits
PIPELINE = 100  # commands between two timestamps
CHUNK = 1000  # ids of one write while loading
GROWTH_STEPS = 10
GROWTH_LEAST = 10_000
CENSUS = 100  # keys whose encoding is asked for
TIMEOUT_S = 30.0
COMPACT = ("listpack", "ziplist", "zipmap")


class Wire:
    """Commands in, replies out, as many at a time as one likes."""

    def __init__(self, path: str) -> None:
        import hiredis

        self._pack = hiredis.pack_command
        self._reader = hiredis.Reader()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.connect(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def many(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The replies, in order. Raises WrongAnswer if one is an error."""
        self._socket.sendall(b"".join([self._pack(command) for command in commands]))
        replies: list[Any] = []
        while len(replies) < len(commands):
            reply = self._reader.gets()
            if reply is False:
                data = self._socket.recv(1 << 16)
                if not data:
                    raise WrongAnswer("the server closed the connection")
                self._reader.feed(data)
                continue
            if isinstance(reply, Exception):
                raise WrongAnswer(f"{commands[len(replies)][0]}: {reply}")
            replies.append(reply)
        return replies

    def ask(self, *command: Any) -> Any:
        return self.many([command])[0]

    def info(self, section: str) -> dict[str, str]:
        lines = self.ask("INFO", section).decode().split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line)


@dataclass(frozen=True)
class Limits:
    """What a hash may have and stay compact, and what this server calls the two settings."""

    entries: int
    value: int
    entries_name: str
    value_name: str

    @classmethod
    def of(cls, wire: Wire) -> Limits:
        words = [word.decode() for word in wire.ask("CONFIG", "GET", "hash-max-*")]
        found = dict(zip(words[::2], words[1::2], strict=True))
        # Redis 7 answers to the old names too; its own come first.
        for kind in ("listpack", "ziplist", "zipmap"):
            entries, value = f"hash-max-{kind}-entries", f"hash-max-{kind}-value"
            if entries in found and value in found:
                return cls(int(found[entries]), int(found[value]), entries, value)
        raise WrongAnswer(f"the server names no limits for hashes (it knows {sorted(found)})")


@dataclass(frozen=True)
class Layout:
    """Where an id is kept. ``bucket`` is 0 for a key of its own."""

    bucket: int
    data: Data
    value_bytes: int  # 0: a number of up to eight digits

    def key(self, number: int) -> str:
        return f"media:{number // self.bucket if self.bucket else number}"

    def field(self, number: int) -> int:
        return number % self.bucket if self.data.remainder else number

    def value(self, number: int) -> str:
        if not self.value_bytes:
            return str(number * 2_654_435_761 % 10**8)
        return (f"{number}-" * (1 + self.value_bytes // 8))[: self.value_bytes]

    def write(self, number: int) -> tuple[Any, ...]:
        if not self.bucket:
            return ("SET", self.key(number), self.value(number))
        return ("HSET", self.key(number), self.field(number), self.value(number))

    def read(self, number: int) -> tuple[Any, ...]:
        if not self.bucket:
            return ("GET", self.key(number))
        return ("HGET", self.key(number), self.field(number))

    def loading(self, ids: Sequence[int]) -> Iterator[list[tuple[Any, ...]]]:
        """Commands that store these ids, about CHUNK ids at a time."""
        if not self.bucket or self.data.shuffled:
            for start in range(0, len(ids), CHUNK):
                yield [self.write(number) for number in ids[start : start + CHUNK]]
            return
        batch: list[tuple[Any, ...]] = []
        ready = 0
        for fields in self._by_bucket(ids):
            words = [word for n in fields for word in (self.field(n), self.value(n))]
            batch.append(("HSET", self.key(fields[0]), *words))
            ready += len(fields)
            if ready >= CHUNK:
                yield batch
                batch, ready = [], 0
        if batch:
            yield batch

    def _by_bucket(self, ids: Sequence[int]) -> Iterator[Sequence[int]]:
        start = 0
        while start < len(ids):
            room = self.bucket - ids[start] % self.bucket
            yield ids[start : start + room]
            start += room


class HashesArm(Arm):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.limits = Limits(0, 0, "", "")
        self.bucket = 0
        self.has_tried_rules = False
        self.rng = random.Random(f"{setup.seed}:hashes")

    def begin(self) -> Mapping[str, str]:
        with OwnServer(self.setup, "redis") as server, Wire(server.socket) as wire:
            self.limits = Limits.of(wire)
            about = wire.info("server") | wire.info("memory")
        self.bucket = bucket_of(self.candidate.options["bucket"], self.limits.entries)
        return {
            "server": about.get("server_name", "redis") + " "
            + about.get("valkey_version", about["redis_version"]),
            "allocator": about.get("mem_allocator", "not shown"),
            "limits": f"{self.limits.entries_name} {self.limits.entries}, "
            f"{self.limits.value_name} {self.limits.value}",
            "command": "SET" if not self.bucket else f"HSET, {self.bucket} fields a hash",
        }  # fmt: skip

    def visit(self, visit: Visit) -> Visited:
        if visit.learning:
            # Every cell has a new server, so there is nothing to warm up.
            return Visited(phases=[], facts=self._rules())
        data = DATA[visit.payload]
        name = self.candidate.twin_of or self.candidate.name
        if data.layouts and name not in data.layouts:
            return Visited(phases=[])
        if data.remainder and not self.bucket:
            return Visited(phases=[])  # a key of its own has no field
        layout = Layout(self.bucket, data, self._value_bytes(data))
        with OwnServer(self.setup, "redis") as server:
            found = Cell(self, layout, server, visit).run()
        found.facts["bucket"] = str(self.bucket)
        return found

    def _rules(self) -> dict[str, str]:
        """How a hash changes its encoding; tried once, by the baseline."""
        if self.bucket or self.candidate.twin_of or self.has_tried_rules:
            return {}
        from nearcache.lab.experiments.hashes.rules import try_rules

        self.has_tried_rules = True
        with OwnServer(self.setup, "redis") as server, Wire(server.socket) as wire:
            return try_rules(wire, self.limits)

    def _value_bytes(self, data: Data) -> int:
        return 0 if data.over_value_limit is None else self.limits.value + data.over_value_limit

    def expected_encoding(self, layout: Layout) -> tuple[str, ...]:
        limit = self.candidate.options["entries_limit"] or self.limits.entries
        fits = layout.bucket <= limit and layout.value_bytes <= self.limits.value
        return COMPACT if fits else ("hashtable",)


class Cell:
    """One layout of one kind of data in one new server."""

    def __init__(self, arm: HashesArm, layout: Layout, server: OwnServer, visit: Visit):
        self.arm = arm
        self.layout = layout
        self.server = server
        self.visit = visit
        self.rng = arm.rng
        self.ids = range(FIRST_ID, FIRST_ID + layout.data.count)
        self.result = Visited(phases=[])

    def run(self) -> Visited:
        self._raise_limit()
        empty = self._weight()
        growth, load_s = self._load(empty["used_memory"])
        full = self._weight()
        if "memory" in self.visit.operations:
            self._memory(empty, full, growth, load_s)
        with Wire(self.server.socket) as wire:
            self.result.facts[f"encoding, {self.visit.payload}"] = self._census(wire)
            # Writes first: the reads then show that nothing was harmed.
            self._access(wire, "write", self.layout.write, _check_nothing)
            self._access(wire, "read", self.layout.read, self._check_reads)
        return self.result

    def _raise_limit(self) -> None:
        raised = self.arm.candidate.options["entries_limit"]
        if not raised:
            return
        with Wire(self.server.socket) as wire:
            wire.ask("CONFIG", "SET", self.arm.limits.entries_name, raised)
            if Limits.of(wire).entries != raised:
                raise WrongAnswer(f"the limit was set to {raised}, and the server has another")

    def _load(self, empty: float) -> tuple[dict[int, float], float]:
        """Store everything. Returns what it weighed on the way, and the seconds it took."""
        growth: dict[int, float] = {}
        step = max(GROWTH_LEAST, len(self.ids) // GROWTH_STEPS)
        ids: Sequence[int] = self.ids
        if self.layout.data.shuffled:
            ids = self.rng.sample(self.ids, len(self.ids))
        spent_ns = 0
        with Wire(self.server.socket) as wire:
            for start in range(0, len(ids), step):
                part = ids[start : start + step]
                began = clock()
                for commands in self.layout.loading(part):
                    wire.many(commands)
                spent_ns += clock() - began
                growth[start + len(part)] = float(wire.info("memory")["used_memory"]) - empty
        return growth, spent_ns / 1e9

    def _weight(self) -> dict[str, float]:
        """By a new connection, so that no buffer of the loading one is weighed."""
        with Wire(self.server.socket) as wire:
            found = wire.info("memory")
        names = ("used_memory", "used_memory_rss", "used_memory_dataset")
        return {name: float(found[name]) for name in names if name in found}

    def _memory(
        self,
        empty: Mapping[str, float],
        full: Mapping[str, float],
        growth: Mapping[int, float],
        load_s: float,
    ) -> None:
        count = len(self.ids)
        per_id = {name: (full[name] - empty[name]) / count for name in full}
        phase = Phase("memory", point=per_id["used_memory"], calls=count)
        for name, title in (("used_memory_dataset", "dataset"), ("used_memory_rss", "resident")):
            if name in per_id:
                phase.measures[title] = (per_id[name], "bytes")
        phase.measures["ids"] = (count, "count")
        phase.measures["loading, per id"] = (1e9 * load_s / count, "ns")
        for at, weight in growth.items():
            phase.measures[f"at {at:,} ids"] = (weight, "bytes")
        self.result.phases.append(phase)

    def _census(self, wire: Wire) -> str:
        """Which encoding the keys have. Raises if it is not the one that the limits imply."""
        size = self.layout.bucket or 1
        # Only buckets that are full: the first and the last may be cut off.
        full = range(-(-self.ids.start // size), self.ids.stop // size)
        chosen = [size * number for number in self.rng.sample(full, min(CENSUS, len(full)))]
        asked = [("OBJECT", "ENCODING", self.layout.key(number)) for number in chosen]
        seen = Counter(reply.decode() for reply in wire.many(asked))
        if self.layout.bucket:
            expected = self.arm.expected_encoding(self.layout)
            if not set(seen) <= set(expected):
                raise WrongAnswer(
                    f"hashes of {self.layout.bucket} fields are {dict(seen)}, not {expected[0]}"
                )
        return ", ".join(f"{name} {times / len(chosen):.0%}" for name, times in seen.items())

    def _access(self, wire: Wire, name: str, command: Any, check: Any) -> None:
        """Random ids through pipelines, then what the server says it took for them."""
        wanted = {name, f"server_{name}"} & set(self.visit.operations)
        if not wanted:
            return
        wire.ask("CONFIG", "RESETSTAT")
        phase = Phase(name, batch=PIPELINE)
        cpu = self._cpu_s(wire)
        spent = 0
        while spent < self.visit.phase_ns:
            numbers = self.rng.choices(self.ids, k=PIPELINE)
            commands = [command(number) for number in numbers]
            start = clock()
            replies = wire.many(commands)
            elapsed = clock() - start
            check(numbers, replies)
            phase.samples.append(elapsed // PIPELINE)
            phase.calls += PIPELINE
            spent += elapsed
        phase.hits = phase.calls
        cpu_ns = 1e9 * (self._cpu_s(wire) - cpu) / phase.calls
        phase.measures["server CPU with its network"] = (cpu_ns, "ns")
        own = Phase(f"server_{name}", point=self._own_ns(wire, commands[0][0]), calls=phase.calls)
        if name == "read" and self.layout.bucket:
            own.measures = self._by_position(wire)
        self.result.phases += [each for each in (phase, own) if each.operation in wanted]

    def _by_position(self, wire: Wire) -> dict[str, tuple[float, str]]:
        """The server's time for the first and for the last field of its hash."""
        size = self.layout.bucket
        found = {}
        for name, offset in (("first field", 0), ("last field", size - 1)):
            wire.ask("CONFIG", "RESETSTAT")
            for _ in range(10):
                starts = self.rng.choices(self.ids, k=PIPELINE)
                numbers = [n - n % size + offset for n in starts]
                wire.many([self.layout.read(number) for number in numbers])
            found[name] = (self._own_ns(wire, "HGET"), "ns")
        return found

    def _check_reads(self, numbers: Sequence[int], replies: Sequence[bytes | None]) -> None:
        for number, reply in zip(numbers, replies, strict=True):
            if reply is None or reply.decode() != self.layout.value(number):
                raise WrongAnswer(f"id {number} is {reply!r}, not {self.layout.value(number)!r}")

    def _cpu_s(self, wire: Wire) -> float:
        found = wire.info("cpu")
        return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])

    def _own_ns(self, wire: Wire, command: str) -> float:
        """Its mean time for this command, by its own clock, without reading and answering."""
        text = wire.info("commandstats")[f"cmdstat_{command.lower()}"]
        numbers = dict(pair.split("=", 1) for pair in text.split(","))
        return 1000 * float(numbers["usec"]) / float(numbers["calls"])


def _check_nothing(numbers: Sequence[int], replies: Sequence[Any]) -> None:
    """Writes answer OK or 0; whether they did it is seen when the ids are read."""


def bucket_of(size: str, limit: int) -> int:
    """``"500"``, ``"limit"`` or ``"limit+1"`` as a number of fields; nothing is a plain key."""
    if not size.startswith("limit"):
        return int(size or 0)
    return limit + int(size.removeprefix("limit") or 0)
