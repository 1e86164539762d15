"""How much memory do many small values take as keys of their own, and how much in hashes?

Seed 002 stored a million integer keys in Redis, plainly and in hashes of so many fields
each, saw memory jump at "more than 502" fields, raised the limit and came down to 12 MB. It
asked what the catch is (it had no way to measure CPU), whether a large limit allocates
memory in advance, and wished that Redis told when a threshold is crossed.

Every cell here has a fresh server of its own: loaded through pipelines, weighed (used memory
less that of the empty server, dataset, resident), asked for the encoding of its keys, then
read and overwritten at random through pipelines, every answer checked. Both limits are read
from the server under whatever name it knows (``hash-max-listpack-*``, ``hash-max-ziplist-*``),
and the buckets around them follow from that. CPU comes from the server's own count
(``INFO commandstats``), so that network and client are not in it. How a hash changes its
encoding is tried out field by field, and printed as what happened.

A bucket is one key: it expires as a whole (unless the server has HEXPIRE), is evicted as a whole,
and lives on one node of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from nearcache.lab.arms.candidates import HIREDIS
from nearcache.lab.base.model import DIFFERS, Candidate, Claim, Experiment, Operation, Plan


@dataclass(frozen=True, kw_only=True)
class Data:
    """What is stored in one cell, whatever the layout."""

    count: int  # integer ids
    remainder: bool = False  # the field is id % bucket and not the whole id
    over_value_limit: int | None = None  # bytes of a value beyond the server's limit for values
    shuffled: bool = False  # one HSET for each id, in random order
    layouts: tuple[str, ...] = ()  # these only; all, if empty


FEW = ("plain", "bucket-100", "bucket-limit")
DATA = {
    "1M": Data(count=1_000_000),
    "100k": Data(count=100_000),
    "rest": Data(count=100_000, remainder=True),
    "random": Data(count=50_000, shuffled=True),
    "v-1": Data(count=20_000, over_value_limit=-1, layouts=FEW),
    "v": Data(count=20_000, over_value_limit=0, layouts=FEW),
    "v+1": Data(count=20_000, over_value_limit=1, layouts=FEW),
}
# The first is what the tables and curves are about.
FULL_DATA = ("1M", "100k", "rest", "random", "v-1", "v", "v+1")
QUICK_DATA = ("100k", "rest", "v", "v+1")


def _bucket(size: str, raised_to: int = 0) -> Candidate:
    """``size`` is a number, or ``limit`` and what is added to it."""
    name = f"bucket-{size}" + (f"-of-{raised_to}" if raised_to else "")
    title = f"hashes of {size} fields" + (f", limit raised to {raised_to:,}" if raised_to else "")
    return Candidate(
        name=name,
        title=title,
        family="raised limit" if raised_to else "hashes",
        reach="network",
        options={"bucket": size, "entries_limit": raised_to},
        needs=(HIREDIS,),
        servers=("redis",),
        recommendable=False,
    )


PLAIN = Candidate(
    name="plain",
    title="one key each, SET and GET",
    family="plain",
    reach="network",
    options={"bucket": "", "entries_limit": 0},
    needs=(HIREDIS,),
    servers=("redis",),
    recommendable=False,
)
SIZES = (
    "10", "50", "100", "200", "400", "500", "limit-1", "limit", "limit+1",
    "600", "1000", "2000", "5000",
)  # fmt: skip

HASHES = Experiment(
    name="hashes",
    question="How much memory do a million small values take, as keys and in hashes?",
    candidates=(
        PLAIN,
        *(_bucket(size) for size in SIZES),
        # What Instagram and the article did, and the article's question about early allocation.
        _bucket("1000", raised_to=1024),
        _bucket("100", raised_to=10_000),
    ),
    payloads={
        "1M": "a million ids, the whole id as field",
        "100k": "100,000 ids, the whole id as field",
        "rest": "100,000 ids, the remainder as field",
        "random": "50,000 ids one by one in random order",
        "v-1": "20,000 ids, values one byte below the limit",
        "v": "20,000 ids, values as long as the limit",
        "v+1": "20,000 ids, values one byte above the limit",
    },
    operations=(
        Operation(name="memory", title="used memory per id, less the empty server", unit="bytes"),
        Operation(name="read", title="GET or HGET of a random id, in pipelines of 100"),
        Operation(name="write", title="SET or HSET of a random id, in pipelines of 100"),
        Operation(name="server_read", title="the server's own time for one GET or HGET"),
        Operation(name="server_write", title="the server's own time for one SET or HSET"),
    ),
    baseline="plain",
    twins=("plain",),
    arm="nearcache.lab.experiments.hashes.arm.HashesArm",
    plans={
        "full": Plan(
            repetitions=1,
            rounds=6,
            phase_ms=100,
            time_limit_s=420,
            payloads=FULL_DATA,
        ),
        "quick": Plan(
            repetitions=1,
            rounds=3,
            phase_ms=20,
            time_limit_s=40,
            payloads=QUICK_DATA,
        ),
    },
    # Bytes an id are the same for a million and for what every plan measures.
    claims=(
        Claim(
            article="002",
            text="Instagram: a million keys take 70 MB, in hashes of 1,000 they take 16 MB",
            ratio=70 / 16,
            slow="plain",
            fast="bucket-1000-of-1024",
            operation="memory",
            payload="100k",
            why="keys, values and allocators differ; Redis 2 had zipmaps",
            explains=DIFFERS,
        ),
        Claim(
            article="002",
            text="up to ten times less memory, on average five times (Redis's documentation)",
            ratio=5.0,
            slow="plain",
            fast="bucket-limit",
            operation="memory",
            payload="100k",
            why="the shorter key and value are, the more of a plain key is overhead",
            explains=DIFFERS,
        ),
    ),
    cannot_answer=(
        "Your keys and values: length decides. A value that looks like an integer is kept as one.",
        "A server that is fragmented after weeks: each cell has a new one.",
        "Eviction and expiry: a hash goes as a whole.",
    ),
    views="nearcache.lab.experiments.hashes.findings",
)
