"""Everything the lab can measure, one entry each.

Strings in ``settings`` may hold these placeholders; the driver fills in private
addresses and the verdict ordinary ones (``EXAMPLE_PLACES``):

    {dir}               a directory of this candidate  {shm_path}  a file in it
    {redis_socket}      path of the unix socket        {redis_port}
    {memcached_socket}  path of the unix socket        {memcached_port}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from nearcache.errors import LabError
from nearcache.lab.base.model import Candidate, ParserKind, Requirement, SocketKind

# LocMem, files and the database keep 300 entries unless told otherwise, and quietly
# drop the rest: their gets would turn into misses and look fast.
ROOMY = {"MAX_ENTRIES": 1_000_000}

REDIS_PY = Requirement(module="redis", install="pip install redis")
OUR_REDIS = Requirement(module="redis", install="pip install nearcache redis")
HIREDIS = Requirement(module="hiredis", install="pip install hiredis")
DJANGO_REDIS = Requirement(module="django_redis", install="pip install django-redis")
PYMEMCACHE = Requirement(module="pymemcache", install="pip install pymemcache")
PYLIBMC = Requirement(module="pylibmc", install="pip install pylibmc (needs libmemcached-dev)")
PYTHON_MEMCACHED = Requirement(module="memcache", install="pip install python-memcached")
DISKCACHE = Requirement(module="diskcache", install="pip install diskcache")
SHARED_MEMORY = Requirement(module="nearcache.backends", install="pip install nearcache")

EXAMPLE_PLACES = {
    "dir": "/dev/shm/mysite",  # noqa: S108 - tmpfs, as it was measured
    "shm_path": "mysite",
    "redis_socket": "/run/redis/redis-server.sock",
    "redis_port": "6379",
    "memcached_socket": "/run/memcached/memcached.sock",
    "memcached_port": "11211",
}


def _redis(
    library: str, backend: str, needs: Sequence[Requirement], parser: ParserKind, kind: SocketKind
) -> Candidate:
    locations = {
        "unix": "unix://{redis_socket}?db=0",
        "tcp": "redis://127.0.0.1:{redis_port}/0",
    }
    with_c_parser = parser == "hiredis"
    return Candidate(
        name=f"{library}-{parser}-{kind}",
        title=f"{backend.rpartition('.')[0].partition('.')[0]} RedisCache, {parser} parser, {kind}",
        family=library,
        reach="host" if kind == "unix" else "network",
        settings={"BACKEND": backend, "LOCATION": locations[kind]},
        needs=(*needs, HIREDIS) if with_c_parser else tuple(needs),
        hides=() if with_c_parser else ("hiredis",),
        servers=("redis",),
        socket=kind,
        parser=parser,
    )


def _ours(parser: ParserKind, kind: SocketKind) -> Candidate:
    """nearcache's RedisCache; its name says so, as all the others' do."""
    return replace(
        _redis("nearcache-redis", "nearcache.backends.RedisCache", (OUR_REDIS,), parser, kind),
        family="nearcache redis",
        title=f"nearcache RedisCache, {parser} parser, {kind}",
    )


def _memcached(
    library: str, backend: str, needs: Requirement, kind: SocketKind, note: str = ""
) -> Candidate:
    locations = {"unix": "unix:{memcached_socket}", "tcp": "127.0.0.1:{memcached_port}"}
    return Candidate(
        name=f"{library}-{kind}",
        title=f"Memcached by {library}, {kind}",
        family="memcached",
        reach="host" if kind == "unix" else "network",
        settings={"BACKEND": backend, "LOCATION": locations[kind]},
        needs=(needs,),
        servers=("memcached-unix" if kind == "unix" else "memcached-tcp",),
        socket=kind,
        note=note,
        recommendable=backend != PLAIN_BACKEND,
    )


LOCMEM = Candidate(
    name="locmem",
    title="LocMemCache",
    family="memory",
    reach="process",
    settings={
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "LOCATION": "lab",
        "OPTIONS": ROOMY,
    },
    note="one cache per process; its default of 300 entries is raised, or gets become misses",
)
SHM = Candidate(
    name="shm",
    title="SharedMemoryCache",
    family="shared memory",
    reach="host",
    settings={
        "BACKEND": "nearcache.backends.SharedMemoryCache",
        "LOCATION": "{shm_path}",
    },
    needs=(SHARED_MEMORY,),
)
FILES = Candidate(
    name="filebased",
    title="FileBasedCache on tmpfs",
    family="files",
    reach="host",
    settings={
        "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
        "LOCATION": "{dir}",
        "OPTIONS": ROOMY,
    },
    note="compresses with zlib; every set lists the whole directory, so more entries slow it down",
)
DATABASE = Candidate(
    name="database-sqlite",
    title="DatabaseCache, SQLite on tmpfs",
    family="files",
    reach="host",
    settings={
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "nearcache_lab",
        "OPTIONS": ROOMY,
    },
    note="SQLite with Django's defaults (rollback journal); the file is on tmpfs",
)
DISK = Candidate(
    name="diskcache",
    title="DiskCache on tmpfs",
    family="files",
    reach="host",
    settings={"BACKEND": "diskcache.DjangoCache", "LOCATION": "{dir}"},
    needs=(DISKCACHE,),
    note="its directory is on tmpfs, so no disk is involved",
)

DJANGO_REDIS_BACKEND = "django.core.cache.backends.redis.RedisCache"
PYMEMCACHE_BACKEND = "django.core.cache.backends.memcached.PyMemcacheCache"
PYLIBMC_BACKEND = "django.core.cache.backends.memcached.PyLibMCCache"
PLAIN_BACKEND = "nearcache.lab.plain_memcached.PlainMemcachedCache"
PYMEMCACHE_NOTE = "Django closes its connection after every request; here it stays open"
PLAIN_NOTE = "Django dropped this library; measured as a plain client behind a thin adapter"

CANDIDATES: tuple[Candidate, ...] = (
    LOCMEM,
    SHM,
    FILES,
    DATABASE,
    DISK,
    _memcached("pymemcache", PYMEMCACHE_BACKEND, PYMEMCACHE, "unix", PYMEMCACHE_NOTE),
    _memcached("pymemcache", PYMEMCACHE_BACKEND, PYMEMCACHE, "tcp", PYMEMCACHE_NOTE),
    _memcached("pylibmc", PYLIBMC_BACKEND, PYLIBMC, "unix"),
    _memcached("pylibmc", PYLIBMC_BACKEND, PYLIBMC, "tcp"),
    _memcached("python-memcached", PLAIN_BACKEND, PYTHON_MEMCACHED, "unix", PLAIN_NOTE),
    _memcached("python-memcached", PLAIN_BACKEND, PYTHON_MEMCACHED, "tcp", PLAIN_NOTE),
    _redis("redis", DJANGO_REDIS_BACKEND, (REDIS_PY,), "hiredis", "unix"),
    _redis("redis", DJANGO_REDIS_BACKEND, (REDIS_PY,), "hiredis", "tcp"),
    _redis("redis", DJANGO_REDIS_BACKEND, (REDIS_PY,), "python", "unix"),
    _redis("redis", DJANGO_REDIS_BACKEND, (REDIS_PY,), "python", "tcp"),
    _redis("django-redis", "django_redis.cache.RedisCache", (DJANGO_REDIS,), "hiredis", "unix"),
    _redis("django-redis", "django_redis.cache.RedisCache", (DJANGO_REDIS,), "hiredis", "tcp"),
    _redis("django-redis", "django_redis.cache.RedisCache", (DJANGO_REDIS,), "python", "unix"),
    _redis("django-redis", "django_redis.cache.RedisCache", (DJANGO_REDIS,), "python", "tcp"),
    _ours("hiredis", "unix"),
    _ours("hiredis", "tcp"),
    _ours("python", "unix"),
    _ours("python", "tcp"),
)


def choose(known: Sequence[Candidate], names: Iterable[str]) -> list[Candidate]:
    """The candidates of these names, in the order of the registry."""
    wanted = list(names)
    by_name = {candidate.name: candidate for candidate in known}
    for name in wanted:
        if name not in by_name:
            raise LabError(unknown_name("candidate", name, by_name))
    return [candidate for candidate in known if candidate.name in wanted]


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
    return f"no {kind} named {name!r}; {hint}"


def twin(candidate: Candidate) -> Candidate:
    """The same configuration under another name: what it differs by is noise."""
    return replace(
        candidate,
        name=f"{candidate.name} (twin)",
        title=f"{candidate.title} (A/A twin)",
        twin_of=candidate.name,
    )


def fill(value: Any, places: Mapping[str, str]) -> Any:
    """``value`` with every ``{placeholder}`` in its strings replaced."""
    if isinstance(value, str):
        for name, place in places.items():
            value = value.replace("{" + name + "}", place)
        return value
    if isinstance(value, Mapping):
        return {key: fill(item, places) for key, item in value.items()}
    return value
