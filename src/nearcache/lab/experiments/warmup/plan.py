"""What does it cost to begin: a new process, an empty cache, a restart under traffic?

The comments under seed 003 asked it. LocMemCache is empty after every restart, in every
worker; one reader filled it with ``ab`` and more connections than workers, another thought
of an endpoint that fills it, a third of ``gunicorn --preload``, and the author feared four
workers with four copies, and stampedes.

    cold      a new interpreter, from its start to the first answer: Python, Django, the
              backend and its client, the first get with its connection; then the first
              miss and a steady get, in the same process
    fill      five hundred keys by ``set_many`` and by ``set``
    hot90/99  two processes with eight threads each answer requests at a fixed rate, keys
              drawn by Zipf's law, from an empty cache: how long until 90 % of the last 100,
              and 99 % of the last 200, were answered without computing. ``computed`` says
              how often a key was computed that need be computed once: the stampede
    memory    what values of 16 MB take in a master and three workers (PSS), if each worker
              fills its own cache; beside it, if the master fills it and forks
              (``--preload``): right after the fork, after all workers have read
              everything, and after each has rewritten a tenth

Requests are timed from when they were due. Computing is 10 ms asleep, like waiting for a
database. With ``fill`` a command in a process of its own computes and stores all keys before
the traffic begins; that time counts as well.
"""

from __future__ import annotations

from nearcache.lab.arms.candidates import CANDIDATES, choose
from nearcache.lab.base.model import Claim, Experiment, Operation, Plan

NAMES = (
    "locmem", "shm", "filebased", "pymemcache-unix", "redis-hiredis-unix",
    "django-redis-hiredis-unix", "nearcache-redis-hiredis-unix",
)  # fmt: skip

WARMUP = Experiment(
    name="warmup",
    question="What does it cost to begin: a new process, an empty cache, a restart under traffic?",
    candidates=choose(CANDIDATES, NAMES),
    payloads={
        "traffic": "requests alone: get, and on a miss compute and set",
        "fill": "a command fills the cache, then the traffic begins",
        "protected": "nearcache's get_or_set: of all who miss one computes",
    },
    operations=(
        Operation(name="cold", title="new interpreter to first answer", payload_free=True),
        Operation(name="first_get", title="first get, with its connection", payload_free=True),
        Operation(name="first_miss", title="first get of what is not there", payload_free=True),
        Operation(name="steady_get", title="get, the same process later", payload_free=True),
        Operation(name="fill_many", title="a key of set_many", payload_free=True),
        Operation(name="fill_one", title="a key by set", payload_free=True),
        Operation(name="hot90", title="until 90 % of requests need no computing"),
        Operation(name="hot99", title="until 99 % of requests need no computing"),
        Operation(name="computed", title="computations for each key computed", unit="count"),
        Operation(
            name="memory_small", title="16 MB of 1 kB values, a master and three workers",
            unit="bytes", payload_free=True,
        ),
        Operation(
            name="memory_large", title="16 MB of 200 kB values, a master and three workers",
            unit="bytes", payload_free=True,
        ),
    ),
    baseline="locmem",
    twins=("locmem", "redis-hiredis-unix"),
    arm="nearcache.lab.experiments.warmup.arm.WarmupArm",
    plans={
        # phase_ms is how long a refill may take before it is said not to get hot.
        "full": Plan(repetitions=2, rounds=3, phase_ms=5000, time_limit_s=330),
        "quick": Plan(
            repetitions=1, rounds=3, phase_ms=2500, time_limit_s=42,
            candidates=tuple(name for name in NAMES if name != "filebased"),
        ),
    },
    claims=(
        Claim(
            article="003",
            text="four workers with LocMemCache take four times the memory of one shared cache",
            ratio=4.0,
            slow="locmem",
            fast="shm",
            operation="memory_large",
            payload="-",
            why="a master and three workers here, and none of them preloaded",
        ),
    ),
    cannot_answer=(
        "Caches on another host: a first connection costs a round trip more, or three with TLS.",
        "Your own keys: how many are asked for, and how unevenly, decides how long it takes.",
        "Computing that needs the CPU: it sleeps here, so sixteen at once do not slow each other.",
    ),
    views="nearcache.lab.experiments.warmup.findings",
)  # fmt: skip
