"""What does a lock decorator cost: alone, in a crowd, and after its holder has died?

Seed 002 decorates functions with a lock of django-redis and finds the cost "extremely tiny
and almost negligible", without a number. Where it fooled itself: the view under test does
nothing, so what a lock takes away from parallel work could not be seen; and "the waiting is
implemented deep down in Redis" is not so: redis-py asks again every 0.1 s. That lock has no
timeout, so a holder that is killed keeps it for ever; its name comes from the arguments
alone, so unrelated functions wait for each other; and it is a key like any other, gone
after a flush.

How it is measured: ``call`` and ``view`` have one caller, and everybody else away: the lock
around an empty function, and around the article's own view, requested through Django's WSGI
handler. ``turn`` and ``wait`` have four processes or eight threads that want one lock, hold
it for 1 ms, do something else for 1 ms and come again: wall time per turn, and how long each
waited.
``recover`` kills a holder with SIGKILL while another waits: the time until that one is in.
All processes share one CPU with the server.

Whether two were ever inside at once is seen by flags and a counter in shared memory, and by
the times of entries and exits; an arm that lets two in is void. The arm without a lock has
to let them in, which shows that the counting works. What happens after a flush, and which
calls share a lock, is tried once for each arm and told in words.
"""

from __future__ import annotations

from nearcache.lab.arms.candidates import DJANGO_REDIS, HIREDIS, REDIS_PY, SHARED_MEMORY
from nearcache.lab.base.model import Candidate, Claim, Experiment, Operation, Plan, Requirement

PSYCOPG = Requirement(module="psycopg", install="pip install 'psycopg[binary]'")
TIMEOUT_S = 1.0  # of every lock that has one: after so long a dead holder's lock is free
POLL_S = 0.01

DJANGO_REDIS_ALIAS = {
    "BACKEND": "django_redis.cache.RedisCache",
    "LOCATION": "unix://{redis_socket}?db=0",
}

CANDIDATES = (
    Candidate(
        name="no-lock",
        title="the bare function",
        family="none",
        reach="process",
        options={"locker": "none"},
        note="lets two in, as it must: the proof that the counting sees it",
        recommendable=False,
    ),
    Candidate(
        name="seed-decorator",
        title="seed 002's decorator over django-redis: no timeout, asks every 0.1 s",
        family="django-redis",
        reach="network",
        settings=DJANGO_REDIS_ALIAS,
        options={"locker": "seed"},
        needs=(DJANGO_REDIS, HIREDIS),
        servers=("redis",),
        recommendable=False,
    ),
    Candidate(
        name="redis-py-tuned",
        title=f"redis-py's lock, timeout {TIMEOUT_S:g} s, asks every {POLL_S:g} s",
        family="redis-py",
        reach="network",
        settings=DJANGO_REDIS_ALIAS,
        options={"locker": "tuned", "timeout_s": TIMEOUT_S, "sleep_s": POLL_S},
        needs=(DJANGO_REDIS, HIREDIS),
        servers=("redis",),
        note=f"not renewed: free after {TIMEOUT_S:g} s, whether its holder has finished or not",
        recommendable=False,
    ),
    Candidate(
        name="nearcache-redis",
        title=f"nearcache's @locked over Redis, timeout {TIMEOUT_S:g} s, renewed",
        family="nearcache redis",
        reach="network",
        settings={
            "BACKEND": "nearcache.backends.RedisCache",
            "LOCATION": "unix://{redis_socket}?db=0",
        },
        options={"locker": "nearcache", "timeout_s": TIMEOUT_S},
        needs=(REDIS_PY, HIREDIS),
        servers=("redis",),
        recommendable=False,
    ),
    Candidate(
        name="nearcache-shm",
        title="nearcache's @locked over shared memory, held until its process is gone",
        family="shared memory",
        settings={
            "BACKEND": "nearcache.backends.SharedMemoryCache",
            "LOCATION": "{shm_path}",
            "OPTIONS": {"size": "16MB"},
        },
        options={"locker": "nearcache", "timeout_s": None},
        needs=(SHARED_MEMORY,),
        note="timeout=None; with a timeout a dead holder's lock is free after that",
        recommendable=False,
    ),
    Candidate(
        name="add-spin",
        title=f"cache.add until it succeeds, every {POLL_S:g} s, over django-redis",
        family="django-redis",
        reach="network",
        settings=DJANGO_REDIS_ALIAS,
        options={"locker": "add", "timeout_s": TIMEOUT_S, "sleep_s": POLL_S},
        needs=(DJANGO_REDIS, HIREDIS),
        servers=("redis",),
        recommendable=False,
    ),
    Candidate(
        name="flock",
        title="flock on a file on tmpfs",
        family="files",
        options={"locker": "flock"},
        recommendable=False,
    ),
    Candidate(
        name="pg-advisory",
        title="PostgreSQL's advisory lock, by psycopg on an open connection",
        family="postgres",
        reach="network",
        options={
            "locker": "advisory",
            "postgres": "host={postgres_host} port={postgres_port} "
            "user={postgres_user} dbname={postgres_database}",
        },
        needs=(PSYCOPG,),
        servers=("postgres",),
        recommendable=False,
    ),
)

LOCKS = Experiment(
    name="locks",
    question="What does a lock decorator cost, alone, in a crowd and after a crash?",
    candidates=CANDIDATES,
    payloads={
        "4x1": "4 processes",
        "1x8": "8 threads of one process",
        "2x4": "2 processes of 4 threads",
    },
    default_payloads=("4x1", "1x8"),
    operations=(
        Operation(name="call", title="an empty function, nobody else there", payload_free=True),
        Operation(name="view", title="a request to the article's view, alone", payload_free=True),
        Operation(name="turn", title="turns of a contended lock", as_rate=True),
        Operation(name="wait", title="from asking for it to being in"),
        Operation(
            name="recover", title="from the holder's death to the next one in", payload_free=True
        ),
    ),
    baseline="no-lock",
    twins=("no-lock", "redis-py-tuned", "nearcache-redis"),
    arm="nearcache.lab.experiments.locks.arm.LockArm",
    plans={
        "full": Plan(repetitions=5, rounds=2, phase_ms=300, time_limit_s=240),
        "quick": Plan(
            repetitions=1,
            rounds=3,
            phase_ms=250,
            time_limit_s=44,
            payloads=("4x1",),
        ),
    },
    claims=(
        Claim(
            article="002",
            text='a view with the lock, alone: "extremely tiny and almost negligible"',
            ratio=1.0,
            slow="seed-decorator",
            fast="no-lock",
            operation="view",
            payload="-",
            why="two round trips to Redis around each call, and a view that does nothing",
            explains=("larger",),
        ),
    ),
    cannot_answer=(
        "A server on another host: each lock over Redis or PostgreSQL adds its round trips.",
        "More contenders than a few, and locks held for seconds.",
        "Failover: what a replica had not heard of when the primary died.",
    ),
    views="nearcache.lab.experiments.locks.findings",
)
