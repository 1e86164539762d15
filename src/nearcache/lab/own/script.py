"""A recording turned into calls whose answers are known beforehand.

A recording says what was asked and whether it was there. Played against an empty cache,
reads that hit would miss, and a lifetime that ended would not have. So each key is played
under a name of its own for as long as its history holds together, and under another from
where it does not:

    hit, and nothing there    another name, whose value is stored before the clock starts
    miss, and something there it had expired or was evicted: another name, never stored

Every cache then gives the recorded hits and misses, whatever it evicts, and each answer
can be checked. Lifetimes and evictions themselves are not played.

Not played at all, and counted: calls that raised, ``clear``, and changes of versions.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nearcache.recording.trace import Outcome, Record

MANY = frozenset({"get_many", "set_many", "delete_many"})
COUNTING = frozenset({"incr", "decr"})
PLAYED = frozenset(
    {"get", "set", "add", "delete", "touch", "has_key", "incr", "decr", "get_or_set", *MANY}
)
UNKNOWN_BYTES = 100  # of a value whose size no call of the slice tells
UNKNOWN_SQUEEZED = 0.5
COUNTER_START = 1000


@dataclass(frozen=True)
class Spec:
    """A value: of this type and size, as compressible, and unlike that of any other version."""

    kind: str
    size: int
    squeezed: float
    version: int


@dataclass(frozen=True)
class Act:
    """One call: what is called with what, and the answer it must have."""

    time_ns: int
    operation: str
    names: tuple[str, ...]
    specs: tuple[Spec | None, ...]  # written; for reads, what must come back, None for a miss
    holds: bool = True  # whether there is something under the name; for counters and touch
    number: int = 0  # what a counter must say


@dataclass
class Held:
    """What is under one key at this point of its history."""

    generation: int = 0
    spec: Spec | None = None


@dataclass
class Script:
    acts: list[Act] = field(default_factory=list)
    stored_before: dict[str, Spec] = field(default_factory=dict)
    counters_before: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Every name that may hold something afterwards."""
        found = dict.fromkeys([*self.stored_before, *self.counters_before])
        for act in self.acts:
            found.update(dict.fromkeys(act.names))
        return list(found)

    @property
    def bytes_at_once(self) -> int:
        """What all its names may hold together: each at its largest."""
        largest: dict[str, int] = {name: spec.size for name, spec in self.stored_before.items()}
        for act in self.acts:
            for name, spec in zip(act.names, act.specs, strict=True):
                largest[name] = max(largest.get(name, 0), spec.size if spec else 0)
        return sum(largest.values())


def calls_of(records: Iterable[Record]) -> tuple[list[list[Record]], Counter[str]]:
    """Records by call, those that can be played; and what is left out, by reason."""
    calls: list[list[Record]] = []
    left_out: Counter[str] = Counter()
    for record in records:
        if record.operation not in PLAYED:
            left_out[record.operation] += 1
        elif record.outcome & Outcome.ERROR:
            left_out["calls that raised"] += 1
        elif calls and _same_call(calls[-1], record):
            calls[-1].append(record)
        else:
            calls.append([record])
    return calls, left_out


def _same_call(call: Sequence[Record], record: Record) -> bool:
    """Keys of one call are written one after the other, with one and the same latency."""
    first = call[0]
    return (
        record.operation in MANY
        and (first.operation, first.of, first.latency_ns)
        == (record.operation, record.of, record.latency_ns)
        and len(call) < record.of
    )


class Playwright:
    """Writes the script of some calls."""

    def __init__(self) -> None:
        self.script = Script()
        self._held: dict[int, Held] = {}
        self._counters: dict[int, int] = {}
        self._versions = self._numbers()

    def write(self, calls: Iterable[Sequence[Record]]) -> Script:
        for call in calls:
            self.script.acts.append(self._act(call))
        return self.script

    def _act(self, call: Sequence[Record]) -> Act:
        first = call[0]
        if first.operation in COUNTING:
            return self._count(first)
        pairs = [self._play(record) for record in call]
        return Act(
            first.time_ns,
            first.operation,
            tuple(name for name, _ in pairs),
            tuple(spec for _, spec in pairs),
            holds=not first.outcome & Outcome.REFUSED,
        )

    def _play(self, record: Record) -> tuple[str, Spec | None]:
        """(the name to use, what is written or must come back)."""
        operation = record.operation
        if operation in ("set", "set_many"):
            return self._stored(record)
        if operation == "add":
            if record.outcome & Outcome.REFUSED:
                name, _ = self._present(record)
                return name, self._spec(record)
            self._absent(record)
            return self._stored(record)
        if operation in ("delete", "delete_many"):
            return self._deleted(record)
        if operation == "touch":
            refused = record.outcome & Outcome.REFUSED
            return self._absent(record) if refused else self._present(record)
        if operation == "get_or_set" and not record.hit:
            self._absent(record)
            return self._stored(record)
        return self._present(record) if record.hit else self._absent(record)

    def _stored(self, record: Record) -> tuple[str, Spec]:
        held = self._held.setdefault(record.key, Held())
        held.spec = self._spec(record)
        return _name(record.key, held), held.spec

    def _present(self, record: Record) -> tuple[str, Spec]:
        held = self._held.get(record.key)
        if held is None or held.spec is None:
            held = Held(held.generation + 1 if held else 0, self._spec(record))
            self._held[record.key] = held
            assert held.spec
            self.script.stored_before[_name(record.key, held)] = held.spec
        assert held.spec
        return _name(record.key, held), held.spec

    def _absent(self, record: Record) -> tuple[str, None]:
        held = self._held.setdefault(record.key, Held())
        if held.spec is not None:
            held = self._held[record.key] = Held(held.generation + 1)
        return _name(record.key, held), None

    def _deleted(self, record: Record) -> tuple[str, None]:
        if record.outcome & Outcome.REFUSED:
            return self._absent(record)
        name, _ = self._present(record)
        self._held[record.key].spec = None
        return name, None

    def _count(self, record: Record) -> Act:
        """Counters are apart: what they hold is a number, and every answer is the next one."""
        if record.miss:
            name = f"{record.key:016x}.none"
            return Act(record.time_ns, record.operation, (name,), (None,), holds=False)
        name = f"{record.key:016x}.count"
        if record.key not in self._counters:
            self._counters[record.key] = COUNTER_START
            self.script.counters_before.append(name)
        self._counters[record.key] += 1 if record.operation == "incr" else -1
        number = self._counters[record.key]
        return Act(record.time_ns, record.operation, (name,), (None,), number=number)

    def _spec(self, record: Record) -> Spec:
        return Spec(
            kind=record.type,
            size=UNKNOWN_BYTES if record.size is None else record.size,
            squeezed=UNKNOWN_SQUEEZED if record.squeezed is None else record.squeezed,
            version=next(self._versions),
        )

    def _numbers(self) -> Iterator[int]:
        number = 0
        while True:
            number += 1
            yield number


def _name(key: int, held: Held) -> str:
    return f"{key:016x}.{held.generation}"


# -- values --------------------------------------------------------------------------------


class Values:
    """Makes values from specs: same spec, same value."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"{seed}:replay")
        self._noise = rng.randbytes(1 << 20)
        # Text of 64 letters holds 6 bits in 8: it cannot be squeezed below three quarters.
        self._text = self._noise.translate(bytes(LETTERS[i % 64] for i in range(256))).decode()

    def make(self, spec: Spec) -> Any:
        if spec.kind in ("int", "float"):
            return spec.version if spec.kind == "int" else spec.version / 7
        if spec.kind == "bool":
            return bool(spec.version % 2)
        if spec.kind in ("bytes", "bytearray", "memoryview"):
            return self._bytes(spec)
        if spec.kind in ("str", "SafeString"):
            return self._string(spec, spec.size, spec.version)
        return self._pieces(spec)

    def _bytes(self, spec: Spec) -> bytes:
        stamp = b"%d " % spec.version
        noisy = round(spec.squeezed * spec.size)
        body: bytes = self._slice(self._noise, spec.version, noisy)
        return (stamp + body).ljust(spec.size, b"-")[: max(1, spec.size)]

    def _string(self, spec: Spec, size: int, place: int) -> str:
        noisy = round(min(1.0, spec.squeezed / 0.75) * size)
        noise: str = self._slice(self._text, place, noisy)
        text = f"{spec.version} {noise}"
        return text.ljust(size, "-")[: max(1, size)]

    def _pieces(self, spec: Spec) -> list[str]:
        """For objects of any kind: as many short strings as are pickled to that size."""
        count = max(1, spec.size // PIECE_PICKLED)
        return [self._string(spec, PIECE_CHARS, spec.version + i * 97) for i in range(count)]

    def _slice(self, pool: Any, place: int, size: int) -> Any:
        start = place * 8191 % len(pool)
        found = pool[start : start + size]
        while len(found) < size:
            found += pool[: size - len(found)]
        return found


LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 e"
PIECE_CHARS = 40
PIECE_PICKLED = PIECE_CHARS + 3  # opcode, length, memo
