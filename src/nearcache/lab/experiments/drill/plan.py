"""What does a cache do when its server is stopped, frozen or full, or gets what it cannot keep?

Seed 004 published timings of a Memcached that stored nothing: access was not configured,
every set failed, and nobody was told. This experiment asks every backend for what it does
then, one operation at a time, and looks afterwards at what is really stored.

Each candidate has a server of its own, which is stopped, frozen (SIGSTOP), filled or given
another password. Each operation runs in a process of its own that has used the cache before
and is killed if it does not answer in time, so nothing that hangs can hang the lab. Then the
server comes back, and one more process, which has met the fault too, tries until it works.

What can come out, the worst first; the order of the report is this one:

    lies      says that it is done, or says nothing, and it is not done
    blocks    no answer within the limit of the plan (phase_ms)
    silent    answers as if there were no such key, and nobody is told of the fault
    misleads  raises, and blames something else: "no such key"
    told      does not do it, and says so in the log or by a warning
    raises    an exception that names the cause
    evicts    the value was pushed out, which is what a full cache is for
    works     done and verified

No answer is what Django's ``set`` always gives, so a ``set`` that comes back without an
exception promises that the value is stored. Nothing is ranked by speed. Times are how long the
caller had to wait to be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nearcache.lab.arms.candidates import (
    DISKCACHE,
    DJANGO_REDIS,
    DJANGO_REDIS_BACKEND,
    PLAIN_BACKEND,
    PLAIN_NOTE,
    PYLIBMC,
    PYLIBMC_BACKEND,
    PYMEMCACHE,
    PYMEMCACHE_BACKEND,
    PYTHON_MEMCACHED,
    REDIS_PY,
    SHARED_MEMORY,
)
from nearcache.lab.base.model import Candidate, Experiment, Operation, Plan, Requirement

OF_SERVERS = ("stopped", "frozen", "full")
OF_VALUES = ("2MB", "unpicklable")
OF_KEYS = ("long-key", "space-key", "newline-key")
EVERYWHERE = ("none", *OF_VALUES, *OF_KEYS)
PASSWORD = "lab-drill"  # noqa: S105 - of a server that lives for a minute

REDIS_LOCATION = f"redis://:{PASSWORD}@127.0.0.1:{{drill_port}}/0"
MEMCACHED_LOCATION = "127.0.0.1:{drill_port}"


def _redis(name: str, backend: str, needs: Requirement, title: str, **options: Any) -> Candidate:
    settings: dict[str, Any] = {"BACKEND": backend, "LOCATION": REDIS_LOCATION}
    return Candidate(
        name=name,
        title=title,
        family=name.partition("-ignore")[0].partition("-miss")[0],
        reach="network",
        settings={**settings, "OPTIONS": options} if options else settings,
        options={"server": "redis", "faults": [*EVERYWHERE, *OF_SERVERS, "password"]},
        needs=(needs, REDIS_PY),
        servers=("redis",),
        recommendable=False,
    )


def _memcached(name: str, backend: str, needs: Requirement, note: str = "") -> Candidate:
    return Candidate(
        name=name,
        title=f"Memcached by {name}",
        family="memcached",
        reach="network",
        settings={"BACKEND": backend, "LOCATION": MEMCACHED_LOCATION},
        options={"server": "memcached", "faults": [*EVERYWHERE, *OF_SERVERS]},
        needs=(needs,),
        servers=("memcached-tcp",),
        note=note,
        recommendable=False,
    )


def _serverless(
    name: str,
    title: str,
    settings: Mapping[str, Any],
    small: Mapping[str, Any],
    needs: Sequence[Requirement] = (),
) -> Candidate:
    """``small`` is the same cache with little room, for the fault ``full``."""
    return Candidate(
        name=name,
        title=title,
        family="memory" if name == "locmem" else "shared memory" if name == "shm" else "files",
        reach="process" if name == "locmem" else "host",
        settings=settings,
        options={"server": "", "faults": [*EVERYWHERE, "full"], "small": small},
        needs=tuple(needs),
        recommendable=False,
    )


LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "drill"}
FILES = {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": "{dir}/f"}
DATABASE = {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "drill"}
SHM = {"BACKEND": "nearcache.backends.SharedMemoryCache", "LOCATION": "{shm_path}"}
DISK = {"BACKEND": "diskcache.DjangoCache", "LOCATION": "{dir}/d"}

DRILL = Experiment(
    name="drill",
    question="What does each cache do when its server is away, or gets what it cannot keep?",
    candidates=(
        _redis("redis", DJANGO_REDIS_BACKEND, REDIS_PY, "Django's RedisCache"),
        _redis("django-redis", "django_redis.cache.RedisCache", DJANGO_REDIS, "django-redis"),
        _redis(
            "django-redis-ignore",
            "django_redis.cache.RedisCache",
            DJANGO_REDIS,
            "django-redis, IGNORE_EXCEPTIONS",
            IGNORE_EXCEPTIONS=True,
        ),
        _redis(
            "nearcache-redis", "nearcache.backends.RedisCache", REDIS_PY, "nearcache RedisCache"
        ),
        _redis(
            "nearcache-redis-miss",
            "nearcache.backends.RedisCache",
            REDIS_PY,
            'nearcache RedisCache, on_error="miss"',
            on_error="miss",
        ),
        _memcached("pymemcache", PYMEMCACHE_BACKEND, PYMEMCACHE),
        _memcached("pylibmc", PYLIBMC_BACKEND, PYLIBMC),
        _memcached("python-memcached", PLAIN_BACKEND, PYTHON_MEMCACHED, PLAIN_NOTE),
        _serverless("locmem", "LocMemCache", LOCMEM, LOCMEM),
        _serverless(
            "shm",
            "SharedMemoryCache",
            SHM,
            {**SHM, "LOCATION": "{shm_path}-small", "OPTIONS": {"size": "1MiB"}},
            [SHARED_MEMORY],
        ),
        _serverless("filebased", "FileBasedCache", FILES, FILES),
        _serverless("database-sqlite", "DatabaseCache, SQLite", DATABASE, DATABASE),
        _serverless(
            "diskcache",
            "DiskCache",
            DISK,
            {**DISK, "LOCATION": "{dir}/small", "OPTIONS": {"size_limit": 1_000_000}},
            [DISKCACHE],
        ),
    ),
    payloads={
        "none": "no fault",
        "stopped": "the server is gone",
        "frozen": "the server takes connections and does not answer",
        "full": "the store is full",
        "password": "the server has another password",
        "2MB": "a value of 2 MB",
        "unpicklable": "a value that cannot be pickled",
        "long-key": "a key of 300 bytes",
        "space-key": "a key with a space",
        "newline-key": "a key with a line break",
    },
    operations=(
        Operation(name="get", ranked=False),
        Operation(name="set", ranked=False),
        Operation(name="add", ranked=False),
        Operation(name="delete", ranked=False),
        Operation(name="incr", ranked=False),
        Operation(name="recovery", title="from the return of the server to the first success"),
    ),
    baseline="redis",
    twins=("locmem", "redis"),
    arm="nearcache.lab.experiments.drill.arm.DrillArm",
    plans={
        # phase_ms is how long an operation may take before it is said to block.
        "full": Plan(repetitions=1, rounds=1, phase_ms=6000, time_limit_s=150),
        "quick": Plan(repetitions=1, rounds=1, phase_ms=1000, time_limit_s=45),
    },
    cannot_answer=(
        "Networks that lose packets, and servers behind a proxy or a sentinel.",
        "Time-outs of your own: each backend has its defaults here.",
        "A full disk: files and the database lie in memory here, and only their own limits count.",
    ),
    views="nearcache.lab.experiments.drill.findings",
)
