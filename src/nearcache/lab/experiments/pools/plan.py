"""Few connections for many contenders: which pool, and which queue inside it, serves most?

Seed 001 let 5,000 greenlets share redis-py's BlockingConnectionPool of 1, 10 and 100
connections, for a minute each, and found that a queue of gevent's own in place of the
standard library's gave 17, 13 and 7 times the throughput. Where it fooled itself: the
share of successes that it printed was throughput once more, as 5,000 contenders that give
up after 1 s can fail at most 5,000 times a second, and nearly did in every cell; that most
of them may never have been served could not be seen. Each cell ran once, in a fixed order.

What has changed since: gevent's patch_all() replaces the queue as well, from 25.4.1 on. The
old code then compares gevent's queue with gevent's queue, and is the A/A test that it
never had. The old comparison takes ``patch_all(queue=False)``; both are here, and the class
of the queue that really served is read from the live pool.

How it is measured: every candidate is one process on the server's own CPU. Contenders are
made, wait at a gate and are released together; a round ends at its deadline, and the next
begins when the last contender has ended. Each asks for a value of its own and checks it, so
that a reply to somebody else shows. ``get`` counts answers within the round, ``wait`` how
long every attempt took, with those that failed or had not ended. Fairness is Jain's index
of answers per contender.

Candidates are named style, client, connections. nearcache's RedisCache has no pool: all share one
connection. Through Django the value also passes a serializer, which the bare clients lack.
"""

from __future__ import annotations

from dataclasses import replace

from nearcache.lab.arms.candidates import DJANGO_REDIS, HIREDIS, REDIS_PY
from nearcache.lab.base.model import Candidate, Claim, Experiment, Operation, Plan, Requirement

GEVENT = Requirement(module="greenlet", install="pip install gevent")
DJANGO = Requirement(module="django", install="pip install django")
SIZES = (1, 10, 100)
WAIT_S = 1.0  # for a connection, as in the article; nearcache: for a reply

QUEUES = {
    "stdlib": "the standard library's queue (patch_all(queue=False))",
    "gevent": "queue_class=gevent.queue.LifoQueue (patch_all(queue=False))",
    "patched": "the queue that patch_all() leaves",
}


def _blocking(queue: str, connections: int) -> Candidate:
    return Candidate(
        name=f"greenlets-{queue}-{connections}",
        title=f"greenlets, redis-py's blocking pool of {connections}, {QUEUES[queue]}",
        family="redis-py",
        options={
            "style": "greenlets",
            "client": "redis-py",
            "queue": queue,
            "connections": connections,
            "wait_s": WAIT_S,
        },
        needs=(REDIS_PY, HIREDIS, GEVENT),
        servers=("redis",),
        recommendable=False,
    )


def _other(style: str, client: str, name: str, title: str, connections: int = 0) -> Candidate:
    base = _blocking("patched", connections)
    needs = (REDIS_PY, HIREDIS, *((GEVENT,) if style == "greenlets" else ()))
    return replace(
        base,
        name=f"{style}-{name}",
        title=f"{style}, {title}",
        family={"nearcache": "nearcache redis", "django-redis": "django-redis"}.get(
            client, "redis-py"
        ),
        options={**base.options, "style": style, "client": client},
        needs=(*needs, DJANGO_REDIS) if client == "django-redis" else needs,
    )


def _nearcache(style: str) -> Candidate:
    title = "nearcache's RedisCache: one connection, no pool"
    return _other(style, "nearcache", "nearcache", title, connections=1)


def _sized(size: int) -> tuple[Candidate, ...]:
    """All clients whose pool has this size."""
    blocking = f"redis-py's blocking pool of {size}"
    return (
        *(_blocking(queue, size) for queue in QUEUES),
        _other(
            "greenlets",
            "redis-py-nonblocking",
            f"nonblocking-{size}",
            f"redis-py's ConnectionPool of {size}, which refuses instead of waiting",
            size,
        ),
        _other(
            "greenlets",
            "django-redis",
            f"django-redis-{size}",
            f"django-redis over {blocking}",
            size,
        ),
        _other("threads", "redis-py", f"redis-py-{size}", blocking, size),
        _other(
            "threads", "django-redis", f"django-redis-{size}", f"django-redis over {blocking}", size
        ),
        _other(
            "tasks",
            "redis-py-tasks",
            f"redis-py-{size}",
            f"redis.asyncio's blocking pool of {size}",
            size,
        ),
    )


CANDIDATES = (
    *(candidate for size in SIZES for candidate in _sized(size)),
    replace(
        _other(
            "greenlets",
            "django-redis",
            "django-redis",
            "django-redis as it comes: redis-py's ConnectionPool",
        ),
        note="its pool has redis-py's own limit, and refuses instead of waiting",
    ),
    *(_nearcache(style) for style in ("greenlets", "threads", "tasks")),
)

DEFAULT = (
    *(f"greenlets-{queue}-{size}" for size in SIZES for queue in ("stdlib", "gevent")),
    "greenlets-patched-10",
    "greenlets-nonblocking-10",
    "greenlets-django-redis-10",
    "greenlets-nearcache",
    "threads-redis-py-10",
    "threads-nearcache",
    "tasks-redis-py-10",
    "tasks-nearcache",
)
QUICK = (
    "greenlets-stdlib-10",
    "greenlets-gevent-10",
    "greenlets-patched-10",
    "greenlets-nearcache",
    "tasks-redis-py-10",
    "tasks-nearcache",
)


def _claim(size: int, ratio: float) -> Claim:
    return Claim(
        article="001",
        text=f"5,000 greenlets, a pool of {size}: gevent's queue in it serves faster than Python's",
        ratio=ratio,
        slow=f"greenlets-stdlib-{size}",
        fast=f"greenlets-gevent-{size}",
        operation="get",
        payload="5000",
        why="Python 2 waited for a lock with a timeout by sleeping and looking again; "
        "Python 3 does not, and redis-py does more of its own per command",
        explains=("same", "smaller", "reversed"),
    )


POOLS = Experiment(
    name="pools",
    question="Thousands of contenders, few connections: which pool serves most, and whom?",
    candidates=CANDIDATES,
    payloads={
        "10": "10 contenders",
        "100": "100 contenders",
        "1000": "1,000 contenders",
        "5000": "5,000 contenders",
    },
    default_payloads=("100", "5000"),
    operations=(
        Operation(name="get", title="answers of the whole crowd", as_rate=True),
        Operation(name="wait", title="one attempt, from asking to whatever end it had"),
    ),
    baseline="greenlets-patched-10",
    twins=("greenlets-gevent-10", "greenlets-nearcache"),
    arm="nearcache.lab.experiments.pools.arm.PoolArm",
    plans={
        "full": Plan(
            # Each of one round: fewer than six would give no interval.
            repetitions=8,
            rounds=1,
            phase_ms=800,
            time_limit_s=540,
            candidates=DEFAULT,
        ),
        "quick": Plan(
            repetitions=1,
            rounds=2,
            phase_ms=1000,
            time_limit_s=48,
            candidates=QUICK,
            payloads=("5000",),
        ),
    },
    mix={"get": 1.0},
    contrasts={
        "gevent's queue or the standard library's": tuple(
            (f"greenlets-stdlib-{size}", f"greenlets-gevent-{size}") for size in SIZES
        ),
        "the article's change, made today: gevent's queue or gevent's queue": (
            ("greenlets-patched-10", "greenlets-gevent-10"),
        ),
        "one connection for all, or a pool": (
            ("greenlets-nearcache", "greenlets-patched-10"),
            ("greenlets-nearcache", "greenlets-django-redis-10"),
            ("threads-nearcache", "threads-redis-py-10"),
            ("tasks-nearcache", "tasks-redis-py-10"),
        ),
        "django-redis or redis-py alone": (("greenlets-django-redis-10", "greenlets-patched-10"),),
    },
    claims=(
        _claim(1, 16.7),
        _claim(10, 13.2),
        _claim(100, 6.7),
        Claim(
            article="001",
            text="the same change in today's code: patch_all() and queue_class",
            ratio=13.2,
            slow="greenlets-patched-10",
            fast="greenlets-gevent-10",
            operation="get",
            payload="5000",
            why="since 25.4.1 gevent's patch_all() replaces the queue too, so both are gevent's",
            explains=("same",),
        ),
    ),
    cannot_answer=(
        "A server on another host: the longer the round trip, the longer each connection is taken.",
        "Slow commands: all answers here are small and immediate.",
        "The article's own versions: Python 2.7, gevent 1.3 and redis-py 2.10 are not run again.",
    ),
    views="nearcache.lab.experiments.pools.findings",
)
