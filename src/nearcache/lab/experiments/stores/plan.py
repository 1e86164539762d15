"""How much faster is Redis than PostgreSQL at JSON blobs, and what is the rest of the time?

Seed 002 (2019) logged both whenever its live application read or wrote both: 16 times for
reads, 20 for writes, 14 without model instances. It could not say how much of that was the
database, the driver or the ORM; both got other bytes (JSONField here, zlib and msgpack there); and
one of the two promised that writes are on the disk.

Here everybody gets the same JSON, in three sizes, and returns Python's dicts and lists, which
are compared with what was written. The layers are taken off one at a time: model instance,
values_list, psycopg with the statement as text, psycopg with a prepared one; then the type of the
column. Every row says what becomes of an acknowledged write, and that is asked from the server
on another connection and tried: for PostgreSQL, whether the log was flushed when a commit
returned. So likes can be compared with likes: Redis that fsyncs every write with a logged
table, Redis that keeps nothing with an UNLOGGED one. Files lie on a disk, not on tmpfs,
where an fsync is free; what an fsync takes there is measured beside every write.

``first`` connects and reads once. Without CONN_MAX_AGE that is what every request of a Django
site pays, and what the article's application may have paid. ``both`` does what that application
did, in random order, and shows both parts.
"""

from __future__ import annotations

from typing import Any

from nearcache.lab.arms.candidates import DJANGO_REDIS, HIREDIS, REDIS_PY
from nearcache.lab.base.model import (
    DIFFERS,
    Candidate,
    Claim,
    Experiment,
    Operation,
    Plan,
    Requirement,
    ServerName,
)
from nearcache.lab.workloads.blobs import BLOBS

PSYCOPG = Requirement(module="psycopg", install="pip install 'psycopg[binary]'")
MSGPACK = Requirement(module="msgpack", install="pip install msgpack")
DATABASE_CACHE = "django.core.cache.backends.db.DatabaseCache"
DJANGO_CACHE = "django.core.cache.backends.redis.RedisCache"
# As in the article: django-redis with zlib and msgpack.
ARTICLES_CACHE = {
    "BACKEND": "django_redis.cache.RedisCache",
    "LOCATION": "unix://{redis_socket}?db=0",
    "TIMEOUT": 500,
    "OPTIONS": {
        "COMPRESSOR": "django_redis.compressors.zlib.ZlibCompressor",
        "SERIALIZER": "django_redis.serializers.msgpack.MSGPackSerializer",
    },
}


def _postgres(name: str, title: str, note: str = "", **options: Any) -> Candidate:
    return Candidate(
        name=name,
        title=title,
        family="PostgreSQL",
        reach="network",
        options=options,
        needs=(PSYCOPG,),
        servers=("postgres",),
        note=note,
        recommendable=False,
    )


def _driver(name: str, title: str, note: str = "", **options: Any) -> Candidate:
    return _postgres(name, title, note, store="driver", driver=options)


def _redis(name: str, title: str, server: ServerName, appendfsync: str, note: str) -> Candidate:
    socket = f"{server.replace('-', '_')}_socket"
    return Candidate(
        name=name,
        title=title,
        family="Redis",
        reach="network",
        options={"store": "redis", "socket": socket, "appendfsync": appendfsync},
        needs=(REDIS_PY, HIREDIS),
        servers=(server,),
        note=note,
        recommendable=False,
    )


def _redis_cache(
    name: str, title: str, cache: dict[str, Any], needs: tuple[Requirement, ...], packs: bool
) -> Candidate:
    return Candidate(
        name=name,
        title=title,
        family="Redis",
        reach="network",
        options={
            "store": "redis-cache",
            "socket": "redis_socket",
            "appendfsync": "",
            "cache": cache,
            "packs": packs,
        },
        needs=(*needs, HIREDIS),
        servers=("redis",),
        recommendable=False,
    )


CANDIDATES = (
    _postgres(
        "pg-orm",
        "Django ORM: a model instance, jsonb",
        "the article's model; an indexed number stands for its foreign key",
        store="orm",
    ),
    _postgres(
        "pg-values",
        "Django ORM: values_list into a dataclass, jsonb",
        "writes are those of pg-orm",
        store="values",
    ),
    _driver("pg-text-protocol", "psycopg, statement sent as text each time, jsonb", prepared=False),
    _driver("pg-prepared", "psycopg, prepared statement, jsonb"),
    _driver("pg-json", "psycopg, prepared, json", column="json"),
    _driver("pg-text", "psycopg, prepared, text", column="text"),
    _driver("pg-bytea", "psycopg, prepared, bytea", column="bytea"),
    _driver("pg-async", "psycopg, prepared, jsonb, synchronous_commit=off",
            synchronous_commit="off"),
    _driver("pg-unlogged", "psycopg, prepared, jsonb, UNLOGGED table", unlogged=True),
    _postgres(
        "pg-cache",
        "Django's DatabaseCache on PostgreSQL",
        "a set is COUNT, SELECT and INSERT in a transaction; the value is base64 of a pickle",
        store="database-cache",
        cache={"BACKEND": DATABASE_CACHE},
    ),
    _redis("redis-always", "redis-py, appendfsync always", "redis-always", "always", ""),
    _redis("redis-everysec", "redis-py, appendfsync everysec", "redis-everysec", "everysec", ""),
    _redis("redis-os", "redis-py, appendfsync no", "redis-os", "no", ""),
    _redis("redis-memory", "redis-py, nothing is written down", "redis", "", ""),
    _redis_cache(
        "redis-cache",
        "Django's RedisCache, nothing is written down",
        {"BACKEND": DJANGO_CACHE, "LOCATION": "unix://{redis_socket}?db=0"},
        (REDIS_PY,),
        packs=False,
    ),
    _redis_cache(
        "redis-seed",
        "django-redis with zlib and msgpack, as in the article",
        ARTICLES_CACHE,
        (DJANGO_REDIS, MSGPACK),
        packs=True,
    ),
    Candidate(
        name="both",
        title="the ORM and django-redis, as the article's application read and wrote both",
        family="both",
        reach="network",
        options={
            "store": "both",
            "parts": {"PostgreSQL": "orm", "Redis": "redis-cache"},
            "socket": "redis_socket",
            "appendfsync": "",
            "cache": ARTICLES_CACHE,
            "packs": True,
        },
        needs=(PSYCOPG, DJANGO_REDIS, MSGPACK, HIREDIS),
        servers=("postgres", "redis"),
        recommendable=False,
    ),
)  # fmt: skip
WHY_LESS = (
    "both on one machine, one connection kept open; the article's laptop may have connected anew "
    "for each request, as Django does without CONN_MAX_AGE: see the operation first"
)

STORES = Experiment(
    name="stores",
    question="How much faster is Redis than PostgreSQL at storing and reading JSON?",
    candidates=CANDIDATES,
    payloads={name: blob.title for name, blob in BLOBS.items()},
    operations=(
        Operation(name="read", title="read one value into Python's dicts and lists"),
        Operation(name="write", title="store a new value, committed"),
        Operation(name="first", title="connect, and read 1 kB", payload_free=True),
    ),
    baseline="pg-orm",
    twins=("pg-prepared", "pg-orm"),
    arm="nearcache.lab.experiments.stores.arm.StoresArm",
    # "Reads happen 10x more than writes", the article hopes.
    mix={"read": 10 / 11, "write": 1 / 11},
    plans={
        "full": Plan(repetitions=4, rounds=8, phase_ms=15, time_limit_s=150),
        "quick": Plan(
            repetitions=2,
            rounds=5,
            phase_ms=8,
            time_limit_s=34,
            payloads=("1k", "10k"),
            candidates=(
                "pg-orm",
                "pg-values",
                "pg-prepared",
                "pg-async",
                "pg-unlogged",
                "pg-cache",
                "redis-always",
                "redis-everysec",
                "redis-memory",
                "redis-seed",
            ),
        ),
    },
    contrasts={
        "model instance or values_list": (("pg-orm", "pg-values"),),
        "the ORM or the driver": (("pg-orm", "pg-prepared"), ("pg-values", "pg-prepared")),
        "statement as text or prepared": (("pg-text-protocol", "pg-prepared"),),
        "type of the column": (
            ("pg-prepared", "pg-json"),
            ("pg-json", "pg-text"),
            ("pg-text", "pg-bytea"),
        ),
        "Django's cache in PostgreSQL or a statement of one's own": (("pg-cache", "pg-prepared"),),
        "equally durable: on the disk when the write returns": (("pg-prepared", "redis-always"),),
        "equally durable: the last moments may be lost": (("pg-async", "redis-everysec"),),
        "equally durable: gone after a crash": (("pg-unlogged", "redis-memory"),),
    },
    claims=(
        Claim(
            article="002",
            text="Redis is 16 times faster at reading these JSON blobs (medians)",
            ratio=8.66 / 0.53,
            slow="pg-orm",
            fast="redis-seed",
            operation="read",
            payload="10k",
            why=WHY_LESS,
            explains=("same", "smaller"),
        ),
        Claim(
            article="002",
            text="14 times, where Django reads by values_list instead of a model instance",
            ratio=14.0,
            slow="pg-values",
            fast="redis-seed",
            operation="read",
            payload="10k",
            why=WHY_LESS,
            explains=("same", "smaller"),
        ),
        Claim(
            article="002",
            text="Redis is 20 times faster at writing them (medians)",
            ratio=8.59 / 0.44,
            slow="pg-orm",
            fast="redis-seed",
            operation="write",
            payload="10k",
            why="one of the two waits for a disk, so the ratio is mostly that disk's",
            explains=DIFFERS,
        ),
    ),
    cannot_answer=(
        "Data that does not fit into memory: the article's table had 3 GB; all is warm here.",
        "Many clients at once: commits that wait together share an fsync, which one client cannot.",
        "A network: both servers are on this host, so what a round trip adds is not here.",
        "What else PostgreSQL does with the data: queries, joins, one transaction with the rest.",
    ),
    compares=("PostgreSQL", "Redis"),
    views="nearcache.lab.experiments.stores.findings",
)
