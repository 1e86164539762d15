"""Which cache would serve this site's own calls fastest? Played from a recording.

What is asked. A recording, made in production by ``RecordingCache`` or imported from
another trace, says which calls a site made: operations, sizes, types, how well values
compress, how often keys recur, what hit and what missed, and when. Which cache does that
in the least time, and, at a fixed rate, with which latency?

How it is answered. Every candidate plays the same slices of the recording, round by round.
Values are made of the recorded types, sizes and compressibility; every answer is known
beforehand and compared, hits and misses included, so no candidate gets faster by losing
values. At full speed, calls follow each other, and the mean of a slice is what it counts
as. With ``--speed N`` each call begins when it was due, N times as fast as recorded, and
latency counts from then, also for calls that had to wait for the one before.

No article has this: articles 000 and 003 stored the list of their own timings, which grew with
every request, and seed 004 one value of 100 bytes.

What it cannot answer. A recording at a share of 0.01 holds all calls of one key in a
hundred: at speed 1 its load is a hundredth of the site's, and --speed 100 is nearer to it.
Calls are made by one process. Lifetimes and evictions are not played: what missed in
production misses here.
"""

from __future__ import annotations

from nearcache.lab.arms.candidates import CANDIDATES
from nearcache.lab.base.model import Experiment, Operation, Plan

SOME = (
    "locmem",
    "shm",
    "pymemcache-tcp",
    "redis-hiredis-tcp",
    "django-redis-hiredis-tcp",
    "nearcache-redis-hiredis-tcp",
)

REPLAY = Experiment(
    name="replay",
    question="Which cache serves what this site asked, fastest?",
    candidates=CANDIDATES,
    payloads={"recording": "recorded calls"},
    operations=(
        Operation(name="call", title="any call of the recording", as_rate=True),
        Operation(name="get"),
        Operation(name="miss", title="get of what was not there"),
        Operation(name="set"),
        Operation(name="many", title="get_many, set_many and delete_many"),
        Operation(name="other", title="add, delete, touch, incr and so on"),
    ),
    baseline="locmem",
    twins=("locmem", "redis-hiredis-tcp", "redis-hiredis-unix", "pymemcache-tcp"),
    arm="nearcache.lab.experiments.replay.arm.ReplayArm",
    mix={"call": 1.0},
    plans={
        "full": Plan(
            repetitions=5,
            rounds=10,
            phase_ms=150,
            time_limit_s=120,
            candidates=SOME,
        ),
        "quick": Plan(repetitions=2, rounds=6, phase_ms=60, time_limit_s=40, candidates=SOME),
    },
    cannot_answer=(
        "Many clients at once: one process plays all calls, one after the other.",
        "What a cache would evict or let expire: what missed in production misses here.",
        "Calls of keys that were not in the recording's sample.",
    ),
    views="nearcache.lab.experiments.replay.findings",
)
