"""What a recording says: how a site uses its cache, from a sample of its keys.

Counts and bytes of the sample are divided by its share. Hit ratios, lifetimes, sizes and
popularity need no scaling: whole keys are in the sample, with all of their calls.

How much memory which hit ratio takes comes from reuse distances: how many bytes of other
keys were asked for between two requests of one key (Mattson et al., 1970; of a sample of
keys, scaled up: SHARDS, Waldspurger et al., FAST '15). It is that of an LRU that is as
large as said; lifetimes are not looked at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from nearcache.recording.trace import Outcome, Record, Recording

READS = frozenset({"get", "get_many", "get_or_set", "has_key"})
LIFETIMES_S = {"under 1 min": 60, "under 1 h": 3600, "under 1 day": 86400, "longer": math.inf}
CACHE_SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0)  # of the working set
LEAST_RANKS = 10  # for a popularity exponent


@dataclass
class Group:
    """Calls of one operation, or of one kind of keys."""

    name: str
    calls: int = 0
    hits: int = 0
    misses: int = 0
    errors: int = 0
    sizes: list[int] = field(default_factory=list)
    latencies_ns: list[int] = field(default_factory=list)
    keys: set[int] = field(default_factory=set)

    def add(self, record: Record) -> None:
        self.calls += 1
        self.hits += record.hit
        self.misses += record.miss
        self.errors += bool(record.outcome & Outcome.ERROR)
        self.keys.add(record.key)
        self.latencies_ns.append(record.latency_ns)
        if record.size is not None:
            self.sizes.append(record.size)

    @property
    def hit_ratio(self) -> float | None:
        answers = self.hits + self.misses
        return self.hits / answers if answers else None


@dataclass
class Portrait:
    """A recording, summed up."""

    recording: Recording
    operations: dict[str, Group] = field(default_factory=dict)
    prefixes: dict[str, Group] = field(default_factory=dict)
    lifetimes: Counter[str] = field(default_factory=Counter)
    squeezed: list[float] = field(default_factory=list)
    requests: Counter[int] = field(default_factory=Counter)  # reads, by key
    last_size: dict[int, int] = field(default_factory=dict)
    awaited: int = 0
    curve: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def calls(self) -> int:
        return sum(group.calls for group in self.operations.values())

    @property
    def working_set(self) -> tuple[float, float]:
        """(keys, bytes), of the whole site."""
        share = self.recording.share
        keys = set().union(*(group.keys for group in self.operations.values()))
        return len(keys) / share, sum(self.last_size.values()) / share

    @property
    def one_hit_share(self) -> float | None:
        """Of the keys that were asked for, those that were so once."""
        if not self.requests:
            return None
        return sum(count == 1 for count in self.requests.values()) / len(self.requests)

    def top_share(self, part: float) -> float | None:
        """Which share of requests the most popular ``part`` of the keys got."""
        if not self.requests:
            return None
        counts = sorted(self.requests.values(), reverse=True)
        top = counts[: max(1, round(part * len(counts)))]
        return sum(top) / sum(counts)

    @property
    def skew(self) -> float | None:
        """The exponent of Zipf's law that fits the counts best; 0 is no skew."""
        counts = sorted(self.requests.values(), reverse=True)
        ranks = [(math.log(rank), math.log(n)) for rank, n in enumerate(counts, 1) if n > 1]
        if len(ranks) < LEAST_RANKS:
            return None
        mean_x = sum(x for x, _ in ranks) / len(ranks)
        mean_y = sum(y for _, y in ranks) / len(ranks)
        spread = sum((x - mean_x) ** 2 for x, _ in ranks)
        return -sum((x - mean_x) * (y - mean_y) for x, y in ranks) / spread


def portrait(recording: Recording) -> Portrait:
    found = Portrait(recording)
    reads: list[int] = []  # keys
    for record in recording:
        if record.operation == "clear":
            continue
        for groups, name in (
            (found.operations, record.operation),
            (found.prefixes, record.prefix),
        ):
            groups.setdefault(name, Group(name)).add(record)
        _note(found, record)
        if record.operation in READS:
            found.requests[record.key] += 1
            reads.append(record.key)
    # A key's first read is a miss, which does not say how large the value will be.
    sizes = found.last_size
    found.curve = hit_ratio_curve([(key, sizes.get(key, 0)) for key in reads], recording.share)
    return found


def _note(found: Portrait, record: Record) -> None:
    found.awaited += bool(record.outcome & Outcome.ASYNC)
    if record.size is not None:
        found.last_size[record.key] = record.size
    if record.squeezed is not None:
        found.squeezed.append(record.squeezed)
    if record.ttl_ms is None:
        found.lifetimes["never expires"] += 1
    elif record.ttl_ms:
        seconds = record.ttl_ms / 1000
        found.lifetimes[next(name for name, most in LIFETIMES_S.items() if seconds < most)] += 1


def hit_ratio_curve(
    reads: Sequence[tuple[int, int]], share: float
) -> list[tuple[float, float, float]]:
    """(share of the working set, its bytes at the site, hit ratio of an LRU that large)."""
    distances = reuse_distances(reads)
    sizes = dict(reads)
    whole = sum(sizes.values())
    if not whole:
        return []
    known = sorted(distance for distance in distances if distance is not None)
    points = []
    for part in CACHE_SHARES:
        fits = sum(distance <= part * whole for distance in known)
        points.append((part, part * whole / share, fits / len(reads)))
    return points


def reuse_distances(reads: Sequence[tuple[int, int]]) -> list[int | None]:
    """For each read: bytes of all keys read since that key's last read, itself included.

    None for a key's first read. A Fenwick tree over time holds every key's size at the time
    of its last read, so that a sum over an interval takes log n steps.
    """
    tree = [0] * (len(reads) + 1)

    def add(place: int, amount: int) -> None:
        while place < len(tree):
            tree[place] += amount
            place += place & -place

    def until(place: int) -> int:
        total = 0
        while place:
            total += tree[place]
            place -= place & -place
        return total

    last: dict[int, tuple[int, int]] = {}
    found: list[int | None] = []
    for now, (key, size) in enumerate(reads, 1):
        before = last.get(key)
        if before is None:
            found.append(None)
        else:
            then, held = before
            found.append(until(now - 1) - until(then) + size)
            add(then, -held)
        add(now, size)
        last[key] = (now, size)
    return found
