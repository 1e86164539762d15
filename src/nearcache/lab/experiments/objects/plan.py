"""How much slower than a cache is S3, for a small object?

Seed 004 (2013) set and got one small dict a thousand times, in S3 by django-s3-cache and in
Memcached by two clients. It published first numbers of sets that had failed: nobody
listened at the address, python-memcached answers 0 and None then, and fast. Its text says
10 times; its own table says 198 to 231 for sets and 120 to 148 for gets.

Here a canary comes first: what one client has set, another one must find, equal, and must
not find after it was deleted. Every get is compared and every acknowledgement looked at;
a client that does not wait for answers is told to. Connections are kept, and what making
the client and the first get take is shown apart. The requests of every operation are counted.

The S3 server is a real one, on this host (the report says which): so its distance is not in the
numbers, unlike Amazon's. Some candidates are therefore put 1 and 10 ms away, both S3 and
Memcached, by forwarding their bytes late. The article's suspects, a SHA-1 for the name and two
pickles for the value, are candidates as well, and so is what it had switched off: culling,
which lists the bucket at every set.
"""

from __future__ import annotations

from nearcache.lab.arms.candidates import HIREDIS, PYLIBMC, PYMEMCACHE, PYTHON_MEMCACHED, REDIS_PY
from nearcache.lab.base.model import (
    Candidate,
    Claim,
    Experiment,
    Operation,
    Plan,
    Requirement,
    ServerName,
)
from nearcache.lab.workloads.small_dict import SmallDict

BOTO3 = Requirement(module="boto3", install="pip install boto3")
DISTANCES_MS = (1, 10)


def _candidate(
    name: str,
    title: str,
    server: ServerName,
    needs: tuple[Requirement, ...],
    round_trip_ms: int = 0,
    note: str = "",
) -> Candidate:
    """``name`` is that of a box; one that is further away says so in its own."""
    far = f"-{round_trip_ms}ms" if round_trip_ms else ""
    return Candidate(
        name=f"{name}{far}",
        title=f"{title}, {round_trip_ms} ms away" if round_trip_ms else title,
        family={"redis": "Redis", "s3": "S3"}.get(server, "Memcached"),
        reach="network",
        options={"box": name, "round_trip_ms": round_trip_ms},
        needs=needs,
        servers=(server,),
        note=note,
        recommendable=False,
    )


def _s3(name: str, title: str, round_trip_ms: int = 0, note: str = "") -> Candidate:
    return _candidate(name, title, "s3", (BOTO3,), round_trip_ms, note)


def _memcached(name: str, title: str, needs: Requirement, note: str = "") -> Candidate:
    return _candidate(name, title, "memcached-tcp", (needs,), note=note)


def _of_table(operation: str, text: str, ratio: float) -> Claim:
    return Claim(
        article="004",
        text=text,
        ratio=ratio,
        slow="s3-seed",
        fast="pylibmc",
        operation=operation,
        payload=SmallDict.letter,
        why="Amazon's S3 was tens of milliseconds away; this one is on the same host",
        explains=("same", "smaller"),
    )


OBJECTS = Experiment(
    name="objects",
    question="How much slower than a cache is S3, for a small object?",
    candidates=(
        _memcached("pylibmc", "Memcached by pylibmc", PYLIBMC),
        _memcached(
            "pymemcache",
            "Memcached by pymemcache",
            PYMEMCACHE,
            "waits for the answer to a set, which is not its default",
        ),
        _memcached("python-memcached", "Memcached by python-memcached", PYTHON_MEMCACHED),
        _candidate("redis", "Redis by redis-py", "redis", (REDIS_PY, HIREDIS)),
        _s3("s3", "S3 by boto3: the key as the name, eight bytes of deadline and the pickle"),
        _s3("s3-seed", "S3 as django-s3-cache: a SHA-1 as the name, two pickles"),
        _s3(
            "s3-culling",
            "the same with MAX_ENTRIES: every set lists the bucket",
            note="the article had switched this off; the bucket of this run holds few objects",
        ),
        *(
            _candidate("pylibmc", "Memcached by pylibmc", "memcached-tcp", (PYLIBMC,), distance)
            for distance in DISTANCES_MS
        ),
        *(_s3("s3", "S3 by boto3", distance) for distance in DISTANCES_MS),
    ),
    payloads={SmallDict.letter: "small dict of five fields"},
    operations=(
        Operation(name="set", title="set, acknowledged"),
        Operation(name="get", title="get, compared with what was set"),
        Operation(name="delete", title="delete, acknowledged"),
        Operation(name="first", title="make a client, connect, get once", payload_free=True),
    ),
    baseline="pylibmc",
    twins=("s3", "pylibmc"),
    arm="nearcache.lab.experiments.objects.arm.ObjectsArm",
    plans={
        "full": Plan(repetitions=4, rounds=10, phase_ms=60, time_limit_s=130),
        "quick": Plan(
            repetitions=2,
            rounds=6,
            phase_ms=25,
            time_limit_s=32,
            candidates=(
                "pylibmc",
                "pymemcache",
                "python-memcached",
                "redis",
                "s3",
                "s3-seed",
                "s3-culling",
                "pylibmc-1ms",
                "s3-1ms",
            ),
        ),
    },
    claims=(
        Claim(
            article="004",
            text="ElastiCache is 10 times faster than S3 (the text)",
            ratio=10.0,
            slow="s3-seed",
            fast="pylibmc",
            operation="get",
            payload=SmallDict.letter,
            why="no row of the article's own table says so",
            explains=("smaller", "larger"),
        ),
        _of_table("set", "sets: 70.8 s in S3, 0.306 s by pylibmc (the table)", 70.81 / 0.306),
        _of_table("get", "gets: 43.1 s in S3, 0.291 s by pylibmc (the table)", 43.05 / 0.2905),
        Claim(
            article="004",
            text="pylibmc is 1.2 times as fast as python-memcached",
            ratio=0.358 / 0.2905,
            slow="python-memcached",
            fast="pylibmc",
            operation="get",
            payload=SmallDict.letter,
        ),
    ),
    cannot_answer=(
        "Amazon's S3: its own time for a request, its TLS, and how far it is from your hosts.",
        "Many requests at once: S3 serves as many as you send; here one waits for the other.",
        "Cost: S3 bills every request, which for small objects is most of it.",
        "Large objects: what a request costs is all there is to a small one.",
    ),
    compares=("S3",),
    views="nearcache.lab.experiments.objects.findings",
)
