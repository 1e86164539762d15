"""Which cache backend answers fastest, for one process that talks to it all the time?

Seed 003 asked this in 2017 and could not tell Redis with hiredis from Redis without
it: both arms used hiredis, so it had compared a thing with itself. Here every candidate
proves its client, socket, parser and place before it is timed, every answer is checked, and
twins of the baseline and of a server's client say how much of a difference is noise.

Two loads, because they answer two questions. One call after the other gives the cost of a
call. Gets that come when they are due, at 30 to 90 % of what the slowest candidate can do, give
what a visitor waits. Where the time of a get and a set goes is measured beside both, once
in every process: key, encoding, client, network, server.
"""

from __future__ import annotations

from nearcache.lab.arms.candidates import CANDIDATES
from nearcache.lab.base.model import DIFFERS, Claim, Experiment, Operation, Plan
from nearcache.lab.load.fixed_rate import PREFIX, SHARES
from nearcache.lab.workloads import DEFAULT_PAYLOADS, PAYLOAD_TITLES

# One of each kind; servers are asked by the shorter way.
QUICK = (
    "shm", "locmem", "filebased", "database-sqlite", "nearcache-redis-hiredis-unix",
    "redis-hiredis-unix", "django-redis-hiredis-unix", "redis-python-unix", "pylibmc-unix",
    "pymemcache-unix",
)  # fmt: skip

CROWDED = (
    "the article's 60 threads shared four CPUs and waited for those, too; each backend read a list "
    "of another length, and the servers were on other hosts"
)


def _claim(text: str, ratio: float, slow: str, fast: str, why: str, *explains: str) -> Claim:
    """The article read a list of floats; its ratios are those of averages, which it preferred."""
    return Claim(
        article="003",
        text=text,
        ratio=round(ratio, 3),
        slow=slow,
        fast=fast,
        operation="get",
        payload="F",
        why=why,
        explains=explains,
    )


CLAIMS = (
    _claim(
        "Redis is twice as fast as Memcached, to read",
        7.523 / 3.502, "python-memcached-tcp", "django-redis-hiredis-tcp",
        CROWDED, *DIFFERS,
    ),
    _claim(
        "LocMemCache is 10 times faster than Redis",
        3.502 / 0.305, "django-redis-hiredis-tcp", "locmem",
        CROWDED, *DIFFERS,
    ),
    _claim(
        "pylibmc, in C, is not faster than python-memcached",
        8.465 / 8.653, "python-memcached-tcp", "pylibmc-tcp",
        CROWDED, "larger",
    ),
    _claim(
        "hiredis is not faster than redis-py's own parser",
        5.628 / 5.566, "django-redis-python-tcp", "django-redis-hiredis-tcp",
        "it was in use on both arms of the article, as redis-py takes it wherever it is installed",
        "larger",
    ),
)  # fmt: skip

BACKENDS = Experiment(
    name="backends",
    question="Which Django cache backend is fastest on this machine?",
    candidates=CANDIDATES,
    payloads=PAYLOAD_TITLES,
    default_payloads=DEFAULT_PAYLOADS,
    operations=(
        Operation(name="get"),
        Operation(name="get_fresh", title="get of what another process has just written"),
        Operation(name="set"),
        Operation(name="get_many", title="get_many of 20 keys"),
        Operation(name="incr", payload_free=True),
        Operation(name="delete"),
        Operation(name="miss", title="get of a key that is not there", payload_free=True),
        *(
            Operation(
                name=f"{PREFIX}{share}",
                title=f"get when it is due, at {share} % of what the slowest can do",
                payload_free=True,  # with the first payload only
            )
            for share in SHARES
        ),
    ),
    baseline="locmem",
    twins=("locmem", "redis-hiredis-unix", "pymemcache-unix", "redis-hiredis-tcp"),
    # Reads dominate a cache: the shares of DiskCache's benchmark of Django backends.
    mix={"get": 0.90, "set": 0.09, "delete": 0.01},
    plans={
        "full": Plan(repetitions=5, rounds=8, phase_ms=6, time_limit_s=420),
        # Few enough that there are rounds enough to judge by.
        "quick": Plan(
            repetitions=2,
            rounds=8,
            phase_ms=4,
            time_limit_s=44,
            candidates=QUICK,
            payloads=("S", "H"),
            operations=("get", "get_fresh", "set", "get_many", "incr", "delete", "miss"),
        ),
    },
    contrasts={
        "hiredis or the Python parser": (
            ("redis-hiredis-unix", "redis-python-unix"),
            ("redis-hiredis-tcp", "redis-python-tcp"),
            ("django-redis-hiredis-unix", "django-redis-python-unix"),
            ("django-redis-hiredis-tcp", "django-redis-python-tcp"),
            ("nearcache-redis-hiredis-unix", "nearcache-redis-python-unix"),
        ),
        "unix socket or TCP": (
            ("pylibmc-unix", "pylibmc-tcp"),
            ("pymemcache-unix", "pymemcache-tcp"),
            ("redis-hiredis-unix", "redis-hiredis-tcp"),
            ("django-redis-hiredis-unix", "django-redis-hiredis-tcp"),
        ),
        "django-redis or Django's own": (
            ("django-redis-hiredis-unix", "redis-hiredis-unix"),
            ("django-redis-python-tcp", "redis-python-tcp"),
        ),
        "nearcache's RedisCache or another": (
            ("nearcache-redis-hiredis-unix", "django-redis-hiredis-unix"),
            ("nearcache-redis-hiredis-tcp", "django-redis-hiredis-tcp"),
            ("nearcache-redis-hiredis-unix", "redis-hiredis-unix"),
            ("nearcache-redis-hiredis-unix", "pylibmc-unix"),
        ),
        "a Memcached client in C or in Python": (
            ("pylibmc-unix", "pymemcache-unix"),
            ("pylibmc-unix", "python-memcached-unix"),
        ),
        "Memcached by pylibmc or Redis by django-redis": (
            ("pylibmc-unix", "django-redis-hiredis-unix"),
            ("pylibmc-tcp", "django-redis-hiredis-tcp"),
        ),
    },
    claims=CLAIMS,
    views="nearcache.lab.experiments.backends.findings",
    cannot_answer=(
        "Many clients at once: one process at a time is measured, so nothing queues.",
        "A server on another host: a network adds its round trip to every TCP candidate.",
        "A cache that is full: everything fits, nothing is evicted.",
    ),
)
