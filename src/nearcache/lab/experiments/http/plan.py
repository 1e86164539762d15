"""One endpoint: not cached, cached in Django, and cached by nginx in front of it.

What is asked. A Django view reads a JSON blob from a database, scrubs it and sends a
little JSON. How many requests a second can one core serve, and how long do they take at a
rate that all can serve, if the view computes every answer; if it looks in a cache first
(memory of the process, shared memory, Redis); if nginx keeps the answers itself
(``proxy_cache`` before gunicorn, ``uwsgi_cache`` before uWSGI)? And what do the first request
of a URL cost, the first after its time is over, and a crowd that asks for the same at once,
with and without ``cache_lock``?

How it is answered. Every arm is the same view and the same data, behind the same nginx,
which either passes requests on or keeps answers; one arm has no nginx, to show what that
costs. Before anything is timed every URL is asked for twice, and who gave the second
answer must be who should: by the headers, and by the view's own count of how often it ran.
Every answer is compared with what it must be, byte for byte. The closed loop (capacity) is
driven by wrk if it is installed, with a script that checks each body; the open loops, at 30 to
90 % of what the slowest arm can do, by a client of our own that counts from when a request was
due and says how often it was late itself. Servers have one core, the generator another.

What seed 002 did. It asked nginx 10,000 times for one URL and got 10,119 requests a second,
over TLS on a laptop, and concluded that a proxy cache is "probably order of magnitude faster"
than choosing a database. What the same endpoint does without the cache was not shown; the text
said that the figure included the WSGI and database work, of which a hit has none. One URL,
always a hit, in a closed loop: it could not show queues, misses or many URLs. Its own later
finding was that of real requests 16 % were hits. That is what the payload "tail" is for.

nginx's cache is on tmpfs here, as all files of the lab are: on a disk a file that the page
cache has not kept is slower. What the view costs decides every ratio: a slower one gains more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearcache.lab.arms.candidates import HIREDIS, LOCMEM, REDIS_PY, SHM
from nearcache.lab.base.model import (
    DIFFERS,
    Candidate,
    Claim,
    Experiment,
    Operation,
    Plan,
    Requirement,
)

GUNICORN = Requirement(module="gunicorn", install="pip install gunicorn")
UWSGI = Requirement(module="pyuwsgi", install="pip install pyuwsgi")
REDIS = {
    "BACKEND": "django.core.cache.backends.redis.RedisCache",
    "LOCATION": "unix://{redis_socket}?db=0",
}
NEARCACHE_REDIS = {
    "BACKEND": "nearcache.backends.RedisCache",
    "LOCATION": "unix://{redis_socket}?db=0",
}
RATES = (30, 50, 70, 90)


def _arm(
    name: str,
    title: str,
    family: str,
    *,
    server: str = "gunicorn",
    front: str = "pass",
    answers: str = "the view",
    cache: Mapping[str, Any] | None = None,
    **more: Any,
) -> Candidate:
    own = more.pop("needs", ())
    return Candidate(
        name=name,
        title=title,
        family=family,
        settings=cache or {},
        options={"server": server, "front": front, "answers": answers},
        needs=(GUNICORN if server == "gunicorn" else UWSGI, *own),
        recommendable=False,  # where to cache is not a question of CACHES alone
        **more,
    )


def _in_django(name: str, title: str, cache: Mapping[str, Any], **more: Any) -> Candidate:
    family = {"locmem": "memory", "shm": "shared memory"}.get(name, "redis")
    return _arm(name, title, family, answers="Django's cache", cache=cache, **more)


CANDIDATES = (
    _arm("uncached", "nginx passes on to gunicorn, the view computes", "uncached"),
    _arm(
        "uncached-direct",
        "gunicorn alone, the view computes",
        "uncached",
        front="none",
        note="no nginx in front: what passing on costs is the difference to uncached",
    ),
    _in_django(
        "locmem",
        "view-level cache in LocMemCache",
        LOCMEM.settings,
        reach="process",
        note="one process serves here; with several each has its own copy, and its own misses",
    ),
    _in_django(
        "shm", "view-level cache in SharedMemoryCache", SHM.settings, needs=tuple(SHM.needs)
    ),
    _in_django(
        "redis",
        "view-level cache in Redis, Django's backend",
        REDIS,
        needs=(REDIS_PY, HIREDIS),
        servers=("redis",),
    ),
    _in_django(
        "nearcache-redis",
        "view-level cache in Redis, nearcache's backend",
        NEARCACHE_REDIS,
        needs=(REDIS_PY, HIREDIS),
        servers=("redis",),
    ),
    _arm(
        "nginx-cache", "nginx keeps answers (proxy_cache)", "nginx", front="cache", answers="nginx"
    ),
    _arm(
        "nginx-cache-lock",
        "nginx keeps answers (proxy_cache, cache_lock)",
        "nginx",
        front="cache-lock",
        answers="nginx",
    ),
    _arm(
        "uwsgi-uncached",
        "nginx passes on to uWSGI, the view computes",
        "uncached",
        server="uwsgi",
    ),
    _arm(
        "uwsgi-cache",
        "nginx keeps answers (uwsgi_cache)",
        "nginx",
        server="uwsgi",
        front="cache",
        answers="nginx",
    ),
)
QUICK = ("uncached", "shm", "redis", "nginx-cache", "nginx-cache-lock", "uwsgi-cache")

HTTP = Experiment(
    name="http",
    question="One endpoint: where should its answers be cached, and what does that gain?",
    candidates=CANDIDATES,
    payloads={
        "zipf": "200 URLs, some far more popular than others",
        "single": "one URL, as the article had it",
        "tail": "every other request is for a URL that nobody has asked before",
    },
    default_payloads=("zipf", "single"),
    operations=(
        Operation(name="capacity", title="requests, as many as it can serve", as_rate=True),
        *(
            Operation(
                name=f"at_{share}",
                title=f"answer at {share} % of what the slowest can serve, from when it was due",
            )
            for share in RATES
        ),
        Operation(name="cold", title="first request of a URL", payload_free=True),
        Operation(
            name="expired", title="first request after the time of a URL is over", payload_free=True
        ),
        Operation(
            name="stampede",
            title="how often an answer is computed that 16 ask for at once",
            unit="count",
            payload_free=True,
        ),
    ),
    baseline="uncached",
    twins=("nginx-cache", "redis"),
    arm="nearcache.lab.experiments.http.arm.HttpArm",
    mix={"capacity": 1.0},
    plans={
        "full": Plan(repetitions=2, rounds=5, phase_ms=300, time_limit_s=400),
        "quick": Plan(
            repetitions=1,
            rounds=6,
            phase_ms=150,
            time_limit_s=42,
            candidates=QUICK,
        ),
    },
    contrasts={
        "cached by nginx, or in Django": (
            ("nginx-cache", "locmem"),
            ("nginx-cache", "shm"),
            ("nginx-cache", "redis"),
        ),
        "proxy_cache before gunicorn, or uwsgi_cache before uWSGI": (
            ("nginx-cache", "uwsgi-cache"),
            ("uncached", "uwsgi-uncached"),
        ),
        "what nginx costs that only passes on": (("uncached", "uncached-direct"),),
        "shared memory, or Redis": (("shm", "redis"), ("shm", "nearcache-redis")),
        "cache_lock, where nothing is to be locked": (("nginx-cache-lock", "nginx-cache"),),
    },
    claims=(
        Claim(
            article="002",
            text='a proxy cache in front of Django is "probably order of magnitude faster"',
            ratio=10.0,
            slow="uncached",
            fast="nginx-cache",
            operation="capacity",
            payload="single",
            why="the article measured the cached side only, 10,119 requests a second of one URL; "
            "the ratio is as large as the view is slow",
            explains=DIFFERS,
        ),
        Claim(
            article="002",
            text="the same, beside a page that Django keeps in Redis",
            ratio=10.0,
            slow="redis",
            fast="nginx-cache",
            operation="capacity",
            payload="single",
            why="a hit in Django still pays for the request and the response in Python",
            explains=("holds", "larger"),
        ),
    ),
    cannot_answer=(
        "TLS, HTTP/2 and clients far away: requests are plain and come from this host.",
        "A view that is slower or faster than this one: what it costs decides every ratio.",
        "nginx's cache on a disk: here it is on tmpfs, and always in memory.",
        "Who may see a page: nginx keeps one answer for all, and a page for one user is none.",
        "More cores: the servers have one, so what they do beside each other is not seen.",
    ),
    views="nearcache.lab.experiments.http.findings",
)
